/* The plan: mesh and settings. Its arrows are in arrow.c. */
#include "frontend/lower.h"

#include <math.h>

static const char *const settings[] = {
	"mesh", "pipeline", "microbatches", "workspace", "recompute", "precision", "deterministic",
	"software", "chunk",
};

const struct user_axis *find_user_axis(const struct ctx *c, const char *name, int *no)
{
	for (uint32_t i = 0; i < c->m->mesh.n; i++)
		if (streq(c->m->mesh.at[i].name, name)) {
			*no = (int)i;
			return &c->m->mesh.at[i];
		}
	return NULL;
}

/* -- mesh -- */

static bool axis_size(struct ctx *c, const struct node *a, int *size)
{
	int64_t n;

	if (a->kind != N_KEY || !a->a || a->a->kind == N_STRING || a->a->kind == N_LIST) {
		fail(c, a->at, "an axis of the mesh is name = size");
		return false;
	}
	if (!eval_size(c, a->a, &n))
		return false;
	if (n < 1 || n > MOST_RANKS) {
		fail(c, a->a->at, "axis '%s' is %lld; it is at least 1 and at most 2^20", a->name,
		     (long long)n);
		return false;
	}
	*size = (int)n;
	return true;
}

static void run_mesh(struct ctx *c, const struct node *line)
{
	for (const struct node *a = line->list; a; a = a->next) {
		int size = 1, no;

		if (!axis_size(c, a, &size) && a->kind != N_KEY)
			continue;
		if (find_user_axis(c, a->name, &no)) {
			fail(c, a->at, "axis '%s' is declared twice", a->name);
			continue;
		}
		if (c->m->mesh.n == MAX_MESH) {
			fail(c, a->at, "a mesh has at most %d axes", MAX_MESH);
			return;
		}
		struct user_axis u = { a->name, size, a->at };
		PUSH(c->mem, &c->m->mesh, u);
	}
	if (!line->list)
		fail(c, line->at, "write mesh name = size, …");
}

static void no_axis(struct ctx *c, const struct node *a)
{
	struct text t = { .mem = c->mem };

	for (uint32_t i = 0; i < c->m->mesh.n; i++)
		text_put(&t, "%s%s", i ? ", " : "", c->m->mesh.at[i].name);
	fail(c, a->at, "the mesh has no axis '%s'", a->name);
	if (t.n)
		hint(c, "axes: %s", t.s);
	else
		hint(c, "the plan of this model declares no mesh");
}

/* --mesh sets the sizes of declared axes; those that it leaves out become 1. */
static void override_mesh(struct ctx *c)
{
	int no;

	if (!c->opt->mesh)
		return;
	const char *text = arena_printf(c->mem, "plan { mesh %s }", c->opt->mesh);
	const struct node *plan = ast_parse(c->mem, c->src, c->diag, "--mesh", text, strlen(text));
	const struct node *line = plan && plan->kind == N_PLAN && !plan->next ? plan->body : NULL;
	if (!line || line->kind != N_SETTING || line->next || line->label) {
		if (!c->diag->errors)
			diag_error(c->diag, (struct span){ 0 }, "write --mesh name=size,…");
		return;
	}
	for (uint32_t i = 0; i < c->m->mesh.n; i++)
		c->m->mesh.at[i].size = 1;
	for (const struct node *a = line->list; a; a = a->next) {
		int size = 1;

		if (!axis_size(c, a, &size))
			continue;
		for (const struct node *b = line->list; b != a; b = b->next)
			if (streq(a->name, b->name))
				fail(c, a->at, "axis '%s' has two sizes", a->name);
		if (find_user_axis(c, a->name, &no))
			c->m->mesh.at[no].size = size;
		else
			no_axis(c, a);
	}
}

static void make_axes(struct ctx *c)
{
	double ranks = 1;

	for (uint32_t i = 0; i < c->m->mesh.n; i++) {
		struct axis a = { c->m->mesh.at[i].name, c->m->mesh.at[i].size, (int)i, false };

		ranks *= a.size;
		PUSH(c->mem, &c->m->axes, a);
	}
	if (ranks > MOST_RANKS)
		fail(c, c->m->mesh.at[0].at, "this mesh has %.0f ranks; %d is the most", ranks, MOST_RANKS);
}

/* -- settings -- */

const struct node *setting_value(const struct node *line)
{
	if (line->a)
		return line->a;
	return line->list && line->list->kind != N_KEY ? line->list : NULL;
}

static bool whole(struct ctx *c, const struct node *line, int64_t *x)
{
	const struct node *v = setting_value(line);

	if (!v || v->kind == N_STRING || v->kind == N_LIST || v->kind == N_WORD) {
		fail(c, line->at, "write %s = n", line->name);
		return false;
	}
	if (!eval_size(c, v, x))
		return false;
	if (*x >= 1)
		return true;
	fail(c, v->at, "%s is at least 1", line->name);
	return false;
}

static void set_microbatches(struct ctx *c, const struct node *line)
{
	c->micro_at = line->at;
	whole(c, line, &c->m->micro);
}

static void set_precision(struct ctx *c, const struct node *line)
{
	const struct node *v = setting_value(line);

	if (v && v->kind == N_NAME && streq(v->name, "fp32"))
		c->m->precision = F32;
	else if (v && v->kind == N_NAME && streq(v->name, "bf16"))
		c->m->precision = BF16;
	else
		fail(c, line->at, "precision is fp32 or bf16");
}

static void set_deterministic(struct ctx *c, const struct node *line)
{
	const struct node *v = setting_value(line);
	bool off = v && v->kind == N_NAME && streq(v->name, "off");

	if (v && !off && !(v->kind == N_NAME && streq(v->name, "on")))
		fail(c, v->at, "write deterministic, or deterministic = on or off");
	c->m->deterministic = !off;
}

/* `pipeline` and `recompute`: a word, then options. */
static bool check_word(struct ctx *c, const struct node *line, int n, const char *const *words,
		       int nopt, const char *const *options)
{
	const struct node *v = setting_value(line);
	struct near near = { .name = v && v->name ? v->name : "" };
	struct text all = { .mem = c->mem };
	bool good = false;

	for (int i = 0; i < n; i++) {
		near_offer(&near, words[i]);
		text_put(&all, "%s%s", i ? ", " : "", words[i]);
		good |= v && (v->kind == N_NAME || v->kind == N_WORD) && streq(v->name, words[i]);
	}
	if (!good) {
		fail(c, v ? v->at : line->at, "%s is one of %s", line->name, all.s);
		if (v && near.best)
			hint(c, "did you mean '%s'?", near.best);
		return false;
	}
	for (const struct node *a = line->list ? line->list->next : NULL; a; a = a->next) {
		good = false;
		all = (struct text){ .mem = c->mem };
		for (int i = 0; i < nopt; i++) {
			text_put(&all, "%s%s", i ? ", " : "", options[i]);
			good |= a->kind == N_KEY && streq(a->name, options[i]);
		}
		if (good)
			continue;
		fail(c, a->at, "%s has no option like this", line->name);
		hint(c, "options are %s", all.s);
		return false;
	}
	return true;
}

static void set_recompute(struct ctx *c, const struct node *line)
{
	static const char *const limits[] = { "memory", "first", "keep" };

	if (check_word(c, line, NRECOMPUTE, recompute_name, LEN(limits), limits))
		read_recompute(c, line);
}

static void check_pipeline(struct ctx *c, const struct node *line)
{
	static const char *const orders[] = { "gpipe", "1f1b", "interleaved", "zb_h1", "zb_v" };
	static const char *const stages[] = { "stages", "chunks", "inflight", "buffers" };

	check_word(c, line, LEN(orders), orders, LEN(stages), stages); /* the rest is read before: read_pipeline */
}

static void unknown_setting(struct ctx *c, const struct node *line)
{
	struct near near = { .name = line->name };

	for (size_t i = 0; i < LEN(settings); i++)
		near_offer(&near, settings[i]);
	fail(c, line->name_at, "a plan has no setting '%s'", line->name);
	if (near.best)
		hint(c, "did you mean '%s'?", near.best);
	else
		hint(c, "settings are mesh, microbatches, precision, workspace, recompute, chunk, pipeline, software, deterministic");
}

static void run_setting(struct ctx *c, const struct node *line)
{
	if (streq(line->name, "mesh"))
		return; /* read before */
	if (line->label)
		fail(c, line->label_at, "only a mesh is 'on' something");
	else if (streq(line->name, "microbatches"))
		set_microbatches(c, line);
	else if (streq(line->name, "workspace"))
		whole(c, line, &c->m->workspace);
	else if (streq(line->name, "precision"))
		set_precision(c, line);
	else if (streq(line->name, "deterministic"))
		set_deterministic(c, line);
	else if (streq(line->name, "recompute"))
		set_recompute(c, line);
	else if (streq(line->name, "pipeline"))
		check_pipeline(c, line);
	else if (streq(line->name, "software"))
		read_software(c, line);
	else if (streq(line->name, "chunk"))
		read_chunk(c, line);
	else
		unknown_setting(c, line);
}

static bool is_setting(const char *name)
{
	for (size_t i = 1; i < LEN(settings); i++)
		if (streq(name, settings[i]))
			return true;
	return false;
}

/* Settings of --set stand in place of those of the plan. */
static bool overridden(struct ctx *c, const char *name)
{
	return is_setting(name) && find_setting(c, name);
}

static struct node line_of_setting(const struct setting *s)
{
	return (struct node){ .kind = N_SETTING, .name = s->name, .at = s->value->at, .name_at = s->value->at,
			      .a = (struct node *)s->value };
}

static void override_settings(struct ctx *c)
{
	for (uint32_t i = 0; i < c->sets.n; i++) {
		struct setting *s = &c->sets.at[i];

		if (s->used || !is_setting(s->name))
			continue;
		struct node line = line_of_setting(s);
		s->used = true;
		run_setting(c, &line);
	}
}

/* The line that holds of those for one setting, or the one before: the last. */
static const struct node *last_line(const struct node *line, const char *name, const struct node *before)
{
	for (; line; line = line->next)
		if (line->kind == N_SETTING && streq(line->name, name))
			before = line;
	return before;
}

/* -- which plan -- */

static const struct node *choose(struct ctx *c)
{
	const char *want = c->opt->plan;
	struct text t = { .mem = c->mem };

	for (uint32_t i = 0; i < c->plans.n; i++) {
		const struct node *p = c->plans.at[i];

		for (uint32_t j = 0; j < i; j++)
			if (streq(p->name, c->plans.at[j]->name))
				fail(c, p->name_at, p->name ? "plan '%s' is already defined" :
				     "there is already a plan without a name", p->name);
		text_put(&t, "%s%s", t.n ? ", " : "", p->name ? p->name : "one without a name");
	}
	for (uint32_t i = 0; i < c->plans.n; i++)
		if (streq(c->plans.at[i]->name, want))
			return c->plans.at[i];
	if (!want)
		return c->plans.n ? c->plans.at[0] : NULL;
	diag_error(c->diag, (struct span){ 0 }, "the model has no plan '%s'", want);
	c->muted = false;
	if (t.n)
		hint(c, "its plans: %s", t.s);
	return NULL;
}

static const struct node *find_mesh(struct ctx *c, const struct node *plan)
{
	const struct node *mesh = NULL;

	for (const struct node *line = plan ? plan->body : NULL; line; line = line->next) {
		if (line->kind != N_SETTING || !streq(line->name, "mesh"))
			continue;
		if (mesh)
			fail(c, line->at, "a plan has one mesh");
		else
			mesh = line;
	}
	return mesh;
}

/* --add: lines that stand behind those of the plan. */
static const struct node *added_lines(struct ctx *c)
{
	const char *text = c->opt->add ? arena_printf(c->mem, "plan { %s }", c->opt->add) : NULL;
	const struct node *plan = text ? ast_parse(c->mem, c->src, c->diag, "--add", text, strlen(text)) : NULL;

	for (const struct node *line = plan ? plan->body : NULL; line; line = line->next)
		if (line->kind == N_SETTING && streq(line->name, "mesh")) {
			fail(c, line->at, "a plan has one mesh");
			hint(c, "--mesh sets the sizes of its axes");
		}
	return plan ? plan->body : NULL;
}

static void lower_lines(struct ctx *c, const struct node *line, const struct node *mesh)
{
	for (; line; line = line->next) {
		if (line->kind == N_ARROW)
			lower_arrow(c, line, mesh);
		else if (!overridden(c, line->name))
			run_setting(c, line);
	}
}

void lower_plan(struct ctx *c)
{
	const struct node *plan = choose(c), *mesh = find_mesh(c, plan), *more = added_lines(c);

	if (mesh)
		run_mesh(c, mesh);
	override_mesh(c);
	make_axes(c);
	lower_hardware(c, mesh && mesh->label ? mesh->label : "cpu",
		     mesh && mesh->label ? mesh->label_at : (struct span){ 0 });
	for (const struct node *line = plan ? plan->body : NULL; line; line = line->next)
		if (line->kind == N_ARROW)
			find_pipeline_axis(c, line);
	for (const struct node *line = more; line; line = line->next)
		if (line->kind == N_ARROW)
			find_pipeline_axis(c, line);
	const struct setting *set = find_setting(c, "pipeline");
	struct node order = set ? line_of_setting(set) : (struct node){ 0 };
	read_pipeline(c, set ? &order : last_line(more, "pipeline", last_line(plan ? plan->body : NULL, "pipeline", NULL)));
	lower_lines(c, plan ? plan->body : NULL, mesh);
	lower_lines(c, more, mesh);
	override_settings(c);
}
