/* front_compile: reads, parses, checks, lowers. */
#include "frontend/lower.h"

/* --set a=1,b=2 is read as lines of a plan: a = 1; b = 2. */
static bool read_set(struct ctx *c, const char *set)
{
	struct text t = { .mem = c->mem };
	int depth = 0;

	text_put(&t, "plan { ");
	for (const char *p = set; *p; p++) {
		depth += *p == '(' || *p == '[';
		depth -= *p == ')' || *p == ']';
		text_bytes(&t, *p == ',' && depth <= 0 ? ";" : p, 1);
	}
	text_put(&t, " }");
	const struct node *plan = ast_parse(c->mem, c->src, c->diag, "--set", t.s, t.n);
	if (c->diag->errors)
		return false;
	for (const struct node *n = plan ? plan->body : NULL; n; n = n->next) {
		if (n->kind != N_SETTING || !n->a || n->a->kind == N_STRING || n->a->kind == N_LIST) {
			fail(c, n->at, "write --set name=value");
			return false;
		}
		struct setting s = { n->name, n->a, false };
		PUSH(c->mem, &c->sets, s);
	}
	return true;
}

static bool is_set_before(const struct ctx *c, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (streq(c->sets.at[k].name, c->sets.at[i].name))
			return true;
	return false;
}

static void unused_sets(struct ctx *c)
{
	for (uint32_t i = 0; i < c->sets.n; i++) {
		const struct setting *s = &c->sets.at[i];
		struct near near = { .name = s->name };

		if (s->used)
			continue;
		if (is_set_before(c, i)) {
			fail(c, s->value->at, "'%s' is set twice", s->name);
			continue;
		}
		for (uint32_t k = 0; k < c->file->syms.n; k++)
			if (c->file->syms.at[k]->kind == S_DIM ||
			    c->file->syms.at[k]->val.kind == V_NUMBER)
				near_offer(&near, c->file->syms.at[k]->name);
		fail(c, s->value->at, "the model has no dim, constant or setting '%s'", s->name);
		if (near.best)
			hint(c, "did you mean '%s'?", near.best);
	}
}

static void unused_params(struct ctx *c)
{
	for (uint32_t i = 0; i < c->params.n; i++)
		if (!c->params.at[i]->used)
			caution(c, c->params.at[i]->at, "param '%s' is never used", c->params.at[i]->path);
}

static const char *module_name(struct arena *mem, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	const char *dot = strrchr(base, '.');

	return dot && dot > base ? arena_strndup(mem, base, (size_t)(dot - base)) :
				   arena_strdup(mem, base);
}

static void check_model(struct ctx *c, const struct node *items)
{
	lower_statements(c, items);
	c->broken = c->diag->errors > 0;
	for (uint32_t i = 0; i < c->minimize.n && !c->full; i++)
		lower_minimize(c, c->minimize.at[i], i);
	check_checkpoints(c);
	lower_plan(c);
	unused_sets(c);
	if (c->diag->errors)
		return;
	unused_params(c);
	check_gradients(c);
	check_arrows(c);
	check_keep(c);
	check_first(c);
}

static struct module *lower(struct arena *mem, struct sources *src, struct diag *d, const char *path,
			    const struct node *items, const struct front_options *opt)
{
	static const struct front_options none;
	struct ctx c = { .mem = mem, .src = src, .diag = d, .opt = opt ? opt : &none, .prefix = "" };
	struct frame top = { .dim = NODIM };
	int errors = d->errors;

	c.m = module_new(mem, src);
	c.items = items;
	c.m->name = module_name(mem, path);
	c.m->workspace = USUAL_WORKSPACE;
	top.b = (struct builder){ .m = c.m, .block = &c.m->top, .phase = FORWARD };
	c.frame = &top;
	c.file = scope_push(&c, NULL);
	for (int i = 0; i < c.opt->nsets; i++)
		if (!read_set(&c, c.opt->sets[i]))
			return NULL;
	check_model(&c, items);
	return d->errors > errors ? NULL : c.m;
}

struct module *front_compile(struct arena *mem, struct sources *src, struct diag *d, const char *path,
			     const struct front_options *opt)
{
	int errors = d->errors;
	const struct node *items = ast_read(mem, src, d, path);

	return d->errors > errors ? NULL : lower(mem, src, d, path, items, opt);
}

struct module *front_compile_text(struct arena *mem, struct sources *src, struct diag *d, const char *name,
				  const char *text, size_t len, const struct front_options *opt)
{
	int errors = d->errors;
	const struct node *items = ast_read_text(mem, src, d, name, text, len);

	return d->errors > errors ? NULL : lower(mem, src, d, name, items, opt);
}
