/* minimize and metric. */
#include "frontend/lower.h"

#include <stdlib.h>

enum { LR, DECAY, BETAS, EPS, MOMENTUM, CLIP, LR_SCALE, RATE, THRESHOLD, NOPTION };
static const char *const option_names[NOPTION] = {
	"lr", "weight_decay", "betas", "eps", "momentum", "clip", "lr_scale", "decay", "threshold",
};

struct optimizer {
	const char *name;
	int order[5];  /* options by place, ends with -1 */
	double decay;
	const char *takes;
};
static const struct optimizer optimizers[] = {
	{ "adamw", { LR, BETAS, EPS, DECAY, CLIP }, 0.01, "lr, betas, eps, weight_decay, clip" },
	{ "sgd", { LR, MOMENTUM, DECAY, CLIP, -1 }, 0, "lr, momentum, weight_decay, clip" },
	{ "adafactor", { LR, RATE, EPS, THRESHOLD, CLIP }, 0, "lr, decay, eps, threshold, clip" },
};

struct made {
	const struct node *from;
	struct value *v;
};

struct training {
	struct ctx *c;
	const struct node *n;
	const struct optimizer *opt;
	const struct node *base[NOPTION];
	int64_t group; /* which minimize this is */
	VEC(struct made) made; /* an option is lowered once */
};

static bool takes(const struct optimizer *opt, int option)
{
	for (int i = 0; i < 5 && opt->order[i] >= 0; i++)
		if (opt->order[i] == option)
			return true;
	return option == LR_SCALE;
}

static int find_option(struct training *t, const struct node *arg)
{
	struct ctx *c = t->c;
	struct near near = { .name = arg->name };

	for (int i = 0; i < NOPTION; i++) {
		if (!takes(t->opt, i))
			continue;
		near_offer(&near, option_names[i]);
		if (streq(arg->name, option_names[i]))
			return i;
	}
	fail(c, arg->name_at, "%s has no option '%s'", t->opt->name, arg->name);
	if (near.best)
		hint(c, "did you mean '%s'?", near.best);
	else
		hint(c, "it takes %s; a group also lr_scale", t->opt->takes);
	return -1;
}

static bool find_optimizer(struct training *t, const struct node *call)
{
	struct ctx *c = t->c;

	for (size_t i = 0; i < LEN(optimizers); i++)
		if (streq(call->name, optimizers[i].name))
			t->opt = &optimizers[i];
	if (t->opt)
		return true;
	fail(c, call->name_at, "there is no optimizer '%s'", call->name);
	hint(c, "optimizers are adamw, sgd, adafactor");
	return false;
}

static bool base_options(struct training *t, const struct node *call)
{
	int place = 0;
	bool good = true;

	for (const struct node *a = call->kind == N_CALL ? call->list : NULL; a; a = a->next) {
		int option;

		if (a->kind == N_KEY)
			option = find_option(t, a);
		else
			option = place < 5 ? t->opt->order[place++] : -1;
		if (option < 0 || t->base[option]) {
			good = false;
			fail(t->c, a->at, option < 0 ? "%s has no such argument" :
			     "this option of %s is given twice", t->opt->name);
			continue;
		}
		t->base[option] = a->kind == N_KEY ? a->a : a;
	}
	if (good && !t->base[LR]) {
		fail(t->c, call->at, "%s needs a learning rate, lr = …", t->opt->name);
		good = false;
	}
	return good;
}

static bool check_groups(struct training *t)
{
	bool good = true;

	for (const struct node *g = t->n->more; g; g = g->next)
		for (const struct node *a = g->more; a; a = a->next) {
			int option;

			if (a->kind != N_KEY) {
				fail(t->c, a->at, "write option = value");
				good = false;
				continue;
			}
			option = find_option(t, a);
			good &= option >= 0;
			if (option == CLIP) {
				fail(t->c, a->at, "clip is of all params together; give it to %s(…)",
				     t->opt->name);
				good = false;
			}
		}
	return good;
}

void list_params(struct ctx *c)
{
	struct text t = { .mem = c->mem };
	int n = 0;

	for (uint32_t i = 0; i < c->params.n && n < 9; i++) {
		bool seen = false;

		for (uint32_t j = 0; j < i; j++)
			seen |= streq(c->params.at[i]->name, c->params.at[j]->name);
		if (seen)
			continue;
		if (++n < 9)
			text_put(&t, "%s%s", n > 1 ? ", " : "", c->params.at[i]->name);
		else
			text_put(&t, ", …");
	}
	if (t.n)
		hint(c, "params here: %s", t.s);
}

static bool check_selectors(struct ctx *c, const struct node *list)
{
	bool good = true;

	for (const struct node *w = list; w; w = w->next) {
		bool any = false;

		for (uint32_t i = 0; i < c->params.n; i++)
			any |= selects(w, c->params.at[i]->path);
		if (any || c->broken) /* it may be a param of what was refused */
			continue;
		good = false;
		fail(c, w->at, w->kind == N_STRING ? "no param matches \"%s\"" :
		     "there is no param '%s'", w->name);
		list_params(c);
	}
	return good;
}

static bool matches(const struct node *list, const char *path)
{
	for (const struct node *w = list; w; w = w->next)
		if (selects(w, path))
			return true;
	return false;
}

/* For each param and option the first matching line wins. */
static const struct node *option_of(const struct training *t, const struct sym *p, int option)
{
	for (const struct node *g = t->n->more; g; g = g->next)
		if (matches(g->list, p->path))
			for (const struct node *a = g->more; a; a = a->next)
				if (streq(a->name, option_names[option]))
					return a->a;
	return t->base[option];
}

static struct value *lowered(struct training *t, const struct node *from)
{
	struct ctx *c = t->c;

	for (uint32_t i = 0; i < t->made.n; i++)
		if (t->made.at[i].from == from)
			return t->made.at[i].v;
	struct made m = { from, NULL };
	struct val v = from->kind == N_STRING || from->kind == N_LIST ?
		fail(c, from->at, "this option is one number") : eval(c, from, NULL);
	if (v.kind == V_TENSOR && v.v->nd)
		v = fail(c, from->at, "an option is a number or an expression over step; this has %s",
			 dims_text(c, v.v));
	else if (v.kind != V_BAD && v.kind != V_TENSOR && !is_number(&v))
		v = fail(c, from->at, "an option is a number or an expression over step");
	if (v.kind != V_BAD)
		m.v = float_of(c, v, from->at);
	PUSH(c->mem, &t->made, m);
	return m.v;
}

static struct value *scalar(struct training *t, const struct node *from, double otherwise)
{
	if (from)
		return lowered(t, from);
	return b_const(here(t->c, t->n->at), F32, otherwise);
}

static bool betas(struct training *t, const struct node *from, struct value **b1, struct value **b2)
{
	const struct node *first = from ? from->list : NULL;

	if (from && (from->kind != N_LIST || !first || !first->next || first->next->next)) {
		fail(t->c, from->at, "betas are two numbers, [0.9, 0.999]");
		return false;
	}
	*b1 = scalar(t, first, 0.9);
	*b2 = scalar(t, first ? first->next : NULL, 0.999);
	return *b1 && *b2;
}

static bool is_none(struct ctx *c, const struct node *n)
{
	return !n || (n->kind == N_NAME && streq(n->name, "none") && !find(c, "none"));
}

/* The options after lr, in the order that passes/optimizer.c reads; how many operands there are then. */
static uint32_t options_of(struct training *t, const struct sym *p, struct value **in, uint32_t n)
{
	if (streq(t->opt->name, "adafactor")) {
		in[n++] = scalar(t, option_of(t, p, RATE), 0.8);
		in[n++] = scalar(t, option_of(t, p, EPS), 1e-30);
		in[n++] = scalar(t, option_of(t, p, THRESHOLD), 1);
		return n;
	}
	in[n++] = scalar(t, option_of(t, p, DECAY), t->opt->decay);
	if (streq(t->opt->name, "sgd")) {
		in[n++] = scalar(t, option_of(t, p, MOMENTUM), 0);
		return n;
	}
	if (!betas(t, option_of(t, p, BETAS), &in[n], &in[n + 1]))
		return 0;
	in[n + 2] = scalar(t, option_of(t, p, EPS), 1e-8);
	return n + 3;
}

static void train_param(struct training *t, struct value *loss, struct sym *p)
{
	struct ctx *c = t->c;
	const struct node *scale = option_of(t, p, LR_SCALE), *clip = t->base[CLIP];
	struct value *in[8] = { loss, scalar(t, option_of(t, p, LR), 0) };

	if (scale && in[1]) {
		struct value *by = lowered(t, scale);

		in[1] = by ? b_map2(here(c, t->n->at), OP_MUL, in[1], by) : NULL;
	}
	uint32_t n = options_of(t, p, in, 2);
	if (n && !is_none(c, clip))
		in[n++] = lowered(t, clip);
	for (uint32_t i = 0; i < n; i++)
		if (!in[i])
			return;
	if (!n)
		return;
	struct op *op = op_new(here(c, t->n->at), OP_MINIMIZE, n, in, 0);
	SET(op, buf, p->path);
	SET(op, opt, t->opt->name);
	SET(op, group, t->group);
}

static void report(struct ctx *c, struct value *v, const char *key, struct span at)
{
	struct op *op = op_new(here(c, at), OP_REPORT, 1, &v, 0);

	SET(op, key, key);
}

static struct value *loss_value(struct ctx *c, const struct node *n)
{
	struct node name = { .kind = N_NAME, .name = n->name, .at = n->name_at, .name_at = n->name_at };
	struct val v = eval(c, &name, NULL);

	if (v.kind == V_BAD)
		return NULL;
	if (v.kind != V_TENSOR) {
		fail(c, n->name_at, "'%s' is a number: there is nothing to minimize", n->name);
		return NULL;
	}
	if (v.v->nd) {
		fail(c, n->name_at, "'%s' is not a scalar: it has %s", n->name, dims_text(c, v.v));
		hint(c, "mean(%s), or cross_entropy(…)", n->name);
		return NULL;
	}
	return float_of(c, v, n->name_at);
}

/* The first loss is shown as "loss", the others by their names, each once. */
static void report_loss(struct ctx *c, const struct node *n, struct value *loss, int64_t group)
{
	for (int64_t i = 0; i < group; i++)
		if (streq(c->minimize.at[i]->name, n->name))
			return;
	for (uint32_t i = 0; i < c->metrics.n && group; i++)
		if (streq(c->metrics.at[i], n->name))
			return;
	report(c, loss, group ? n->name : "loss", n->at);
}

static bool trains_alone(struct ctx *c, const struct node *n, struct sym *p)
{
	if (!p->trained) {
		p->trained = n;
		return true;
	}
	fail(c, n->at, "'%s' is trained by another minimize already (%s)", p->path,
	     line_of(c, p->trained->at, n->at));
	hint(c, "say which params each of them trains: minimize %s over … with …", n->name);
	return false;
}

void lower_minimize(struct ctx *c, const struct node *n, int64_t group)
{
	struct training t = { .c = c, .n = n, .group = group };
	struct value *loss = loss_value(c, n);

	if (!find_optimizer(&t, n->a))
		return;
	bool good = base_options(&t, n->a);
	good &= check_groups(&t);
	good &= check_selectors(c, n->list);
	for (const struct node *g = n->more; g; g = g->next)
		good &= check_selectors(c, g->list);
	if (!good || !loss)
		return;
	report_loss(c, n, loss, group);
	for (uint32_t i = 0; i < c->params.n; i++) {
		struct sym *p = c->params.at[i];

		if (!p->used || (n->list && !matches(n->list, p->path)))
			continue;
		if (!trains_alone(c, n, p))
			return;
		train_param(&t, loss, p);
	}
}

void lower_metric(struct ctx *c, const struct node *n)
{
	struct val v;

	if (streq(n->name, "loss") || streq(n->name, "grad_norm")) {
		fail(c, n->name_at, "'%s' is shown already", n->name);
		return;
	}
	for (uint32_t i = 0; i < c->metrics.n; i++)
		if (streq(c->metrics.at[i], n->name)) {
			fail(c, n->name_at, "metric '%s' is already defined", n->name);
			return;
		}
	PUSH(c->mem, &c->metrics, n->name);
	c->left = n->name;
	c->statement = n->name;
	v = eval(c, n->a, NULL);
	if (v.kind == V_BAD)
		return;
	if (v.kind == V_TENSOR && v.v->nd) {
		fail(c, n->a->at, "'%s' is not a scalar: it has %s", n->name, dims_text(c, v.v));
		hint(c, "mean(…) or sum(…) of it");
		return;
	}
	if (v.kind != V_TENSOR && !is_number(&v)) {
		fail(c, n->a->at, "a metric is a number");
		return;
	}
	report(c, float_of(c, v, n->at), n->name, n->at);
}
