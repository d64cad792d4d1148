/* Arrows: [what :] dims -> axes. */
#include "frontend/lower.h"

static const char *const kinds[] = {
	[W_DIMS] = "", [W_PARAMS] = "params", [W_GRADS] = "grads", [W_OPTIMIZER] = "optimizer",
	[W_ACTIVATIONS] = "activations",
};

bool is_repeated(const struct ctx *c, dimid d)
{
	for (uint32_t i = 0; i < c->repeated.n; i++)
		if (c->repeated.at[i] == d)
			return true;
	return false;
}

static dimid quiet_dim(struct ctx *c, const struct node *what)
{
	struct sym *s = what->kind == N_NAME ? find(c, what->name) : NULL;

	return s && s->val.kind == V_DIM ? s->val.d : NODIM;
}

/* The axis of an arrow of repeats is the pipeline's, wherever in the plan it stands. */
void find_pipeline_axis(struct ctx *c, const struct node *n)
{
	dimid d = quiet_dim(c, n->list);

	if (c->pipeline || d == NODIM || !is_repeated(c, d) || n->more->kind != N_NAME)
		return;
	if (find_user_axis(c, n->more->name, &c->pipeline_axis)) {
		c->pipeline = n;
		c->m->pipe.user = c->pipeline_axis;
	}
}

static bool read_dims(struct ctx *c, const struct node *n, struct arrow *a)
{
	for (const struct node *w = n->list; w; w = w->next) {
		bool kind = false;

		if (w->kind == N_STRING) {
			fail(c, w->at, "a selector stands before ':', as in \"%s\": dims -> axes", w->name);
			return false;
		}
		for (size_t i = W_PARAMS; i < LEN(kinds); i++)
			if (streq(w->name, kinds[i])) {
				a->what = (enum arrow_what)i;
				kind = true;
			}
		a->none |= streq(w->name, "none");
		if ((kind || a->none || a->what != W_DIMS) && (w != n->list || w->next)) {
			fail(c, w->at, "'%s' stands alone on the left of '->'", w->name);
			return false;
		}
		if (kind || a->none)
			continue;
		dimid d = find_dim_name(c, w->name, w->at);
		if (d == NODIM)
			return false;
		if (a->dims.n == MAX_DIMS) {
			fail(c, w->at, "an arrow has at most %d dims", MAX_DIMS);
			return false;
		}
		for (int i = 0; i < a->dims.n; i++)
			if (a->dims.d[i] == d) {
				fail(c, w->at, "dim '%s' is listed twice", w->name);
				return false;
			}
		a->dims.d[a->dims.n++] = d;
	}
	return true;
}

static bool read_option(struct ctx *c, const struct node *arg, struct arrow *a)
{
	const char *value = arg->a && arg->a->kind == N_NAME ? arg->a->name : "";

	if (streq(arg->name, "order") && streq(value, "zigzag"))
		a->zigzag = true;
	else if (streq(arg->name, "gather") && streq(value, "step"))
		a->gather_step = true;
	else if (!(streq(arg->name, "order") && streq(value, "contiguous")) &&
		 !(streq(arg->name, "gather") && streq(value, "use"))) {
		fail(c, arg->at, "an arrow has no option like this");
		hint(c, "options are order = zigzag and gather = step");
		return false;
	}
	return true;
}

static bool read_axis(struct ctx *c, const struct node *arg, struct arrow *a, const struct node *mesh)
{
	struct text t = { .mem = c->mem };
	int no;

	if (arg->kind != N_NAME) {
		fail(c, arg->at, "this is no axis of the mesh");
		return false;
	}
	if (streq(arg->name, "host"))
		return a->host = true;
	if (!find_user_axis(c, arg->name, &no)) {
		for (uint32_t i = 0; i < c->m->mesh.n; i++)
			text_put(&t, "%s%s", i ? ", " : "", c->m->mesh.at[i].name);
		fail(c, arg->at, "the mesh has no axis '%s'", arg->name);
		if (mesh && t.n)
			hint(c, "axes: %s (%s)", t.s, line_of(c, mesh->at, arg->at));
		else
			hint(c, "the plan declares no mesh: mesh %s = n", arg->name);
		return false;
	}
	for (int i = 0; i < a->naxes; i++)
		if (a->axes[i] == no) {
			fail(c, arg->at, "axis '%s' is listed twice", arg->name);
			return false;
		}
	a->axes[a->naxes++] = (uint8_t)no;
	return true;
}

static int64_t ranks_of(const struct ctx *c, const struct arrow *a)
{
	int64_t n = 1;

	for (int i = 0; i < a->naxes; i++)
		n *= c->m->mesh.at[a->axes[i]].size;
	return n;
}

/* What is not there yet is refused where it would change the layout. On axes of 1 any arrow is
 * legal: a plan declares pp = 1 to keep `layers -> pp`. False: the arrow is left out. */
static bool supported(struct ctx *c, const struct node *n, const struct arrow *a, const char *what)
{
	const char *text = node_text(c->mem, c->src, n);

	if (a->host)
		caution(c, n->at, "'%s' is not supported yet, and has no effect", text);
	else if (ranks_of(c, a) > 1)
		fail(c, n->at, "'%s' is not supported yet%s", text, what);
	return false;
}

static bool check_pipeline(struct ctx *c, const struct node *n, const struct arrow *a)
{
	int repeats = 0;

	for (int i = 0; i < a->dims.n; i++)
		repeats += is_repeated(c, a->dims.d[i]);
	if (repeats && repeats < a->dims.n) {
		fail(c, n->at, "repeats and other dims don't mix in one arrow");
		return false;
	}
	if (repeats && a->naxes > 1) {
		fail(c, n->at, "a pipeline has one axis");
		return false;
	}
	if (repeats)
		return true;
	for (int i = 0; i < a->naxes; i++)
		if (c->pipeline && a->axes[i] == c->pipeline_axis) {
			fail(c, n->at, "'%s' is the pipeline's axis (%s): it can't shard '%s'",
			     c->m->mesh.at[a->axes[i]].name, line_of(c, c->pipeline->at, n->at),
			     n->list->name);
			return false;
		}
	return true;
}

static bool check_kind(struct ctx *c, const struct node *n, const struct arrow *a)
{
	if (a->gather_step && a->what != W_PARAMS) {
		fail(c, n->at, "'gather' is an option of params -> axes");
		return false;
	}
	if (a->zigzag && (a->what != W_DIMS || a->none)) {
		fail(c, n->at, "'order' is an option of dims -> axes");
		return false;
	}
	if (a->host && a->naxes) {
		fail(c, n->at, "an arrow to the host has no axes");
		hint(c, "a line of its own says how it is split: optimizer -> dp, and optimizer -> host");
		return false;
	}
	if (a->host && a->what != W_PARAMS && a->what != W_OPTIMIZER)
		return supported(c, n, a, "");
	if (a->host)
		return true;
	if (a->what == W_ACTIVATIONS)
		return supported(c, n, a, "; 'params -> …', 'grads -> …' and 'optimizer -> …' are");
	return check_pipeline(c, n, a);
}

void lower_arrow(struct ctx *c, const struct node *n, const struct node *mesh)
{
	struct arrow a = { .at = n->at };
	bool good = read_dims(c, n, &a);

	for (const struct node *arg = n->more; arg; arg = arg->next)
		good &= arg->kind == N_KEY ? read_option(c, arg, &a) : read_axis(c, arg, &a, mesh);
	if (good && !a.naxes && !a.host) {
		fail(c, n->at, "an arrow needs an axis");
		good = false;
	}
	if (a.none && !n->body) {
		fail(c, n->at, "'none' needs a selector: name: none -> axis");
		good = false;
	}
	if (!good || !check_kind(c, n, &a))
		return;
	if (!n->body) {
		PUSH(c->mem, &c->m->arrows, a);
		return;
	}
	for (const struct node *s = n->body; s; s = s->next) {
		a.sel = s->name;
		a.glob = s->kind == N_STRING;
		a.at = s->at;
		PUSH(c->mem, &c->m->arrows, a);
	}
}
