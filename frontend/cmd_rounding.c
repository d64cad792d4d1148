/* frontend/cmd_rounding.c - how far rounding alone takes a step of one rank, whatever kernels the runtime has.
 *
 * The evaluator computes the step exactly, and then some times with each value rounded at random to one of its neighbours
 * (Monte Carlo arithmetic, Parker 1997). Where a model makes much of little, as the norm of a short vector does, or
 * subtracts large gradients from each other, these lie apart by more than any fixed share. */
#include <math.h>

#include "frontend/cmd_compare.h"

enum { DRAWS = 8 };

struct rounded {
	const char *name;
	bool report;
	const struct tensor *exact; /* while draws are made */
	struct off off;             /* of all elements and draws */
	int64_t turned; /* elements of a draw that are off by most of the tensor's size, the most of all draws */
};

struct rounding {
	VEC(struct rounded) of;
};

static bool run(struct eval *e, const struct fed *fed, int n, int64_t step, uint64_t draw)
{
	const char *why;

	for (int i = 0; i < n; i++)
		eval_set(e, fed[i].buffer, fed[i].t);
	eval_round(e, draw);
	return eval_step(e, step, true, NULL, &why);
}

static struct tensor *result(struct arena *mem, struct eval *e, const struct rounded *x)
{
	if (!x->report)
		return eval_get(e, x->name);
	struct tensor *t = tensor_new(mem, 0, NULL);

	t->x[0] = eval_report(e, x->name, NULL);
	return t;
}

static void add(struct arena *keep, struct rounding *r, const char *name, bool report)
{
	struct rounded x = { .name = name, .report = report };

	PUSH(keep, &r->of, x);
}

/* NaN stays: no bound is made of it. */
static void measure(struct rounded *x, const struct tensor *t)
{
	int64_t turned = 0;

	for (int64_t i = 0; i < t->count; i++) {
		double off = fabs(t->x[i] - x->exact->x[i]);

		if (!(off <= x->off.most))
			x->off.most = off;
		turned += off > MOST_ROUNDING * x->off.size;
	}
	if (turned > x->turned)
		x->turned = turned;
}

struct rounding *rounding_of_step(struct arena *keep, const struct module *m, uint64_t seed, const struct fed *fed, int n, int64_t step)
{
	struct arena *mem = arena_new();
	struct eval *e = eval_new(mem, m, seed);
	struct rounding *r = NEW(keep, struct rounding);
	bool ok = true;

	eval_init(e);
	for (uint32_t i = 0; i < m->bufs.n; i++)
		if (m->bufs.at[i]->role != B_INPUT)
			add(keep, r, m->bufs.at[i]->name, false);
	for (uint64_t draw = 0; ok && draw <= DRAWS; draw++) {
		ok = run(e, fed, n, step, draw);
		for (int i = 0; ok && !draw && i < eval_reports(e); i++)
			add(keep, r, eval_report_key(e, i), true);
		for (uint32_t i = 0; ok && i < r->of.n; i++) {
			struct rounded *x = &r->of.at[i];

			if (draw) {
				measure(x, result(mem, e, x));
			} else {
				x->exact = result(mem, e, x);
				x->off.size = tensor_size(x->exact);
			}
		}
	}
	arena_free(mem);
	return ok ? r : NULL;
}

static const struct rounded *find(const struct rounding *r, const char *name, bool report)
{
	for (uint32_t i = 0; r && i < r->of.n; i++)
		if (r->of.at[i].report == report && streq(r->of.at[i].name, name))
			return &r->of.at[i];
	return NULL;
}

struct off rounding_off(const struct rounding *r, const char *name, bool report)
{
	const struct rounded *x = find(r, name, report);

	return x ? x->off : (struct off){ 0, 0 };
}

bool rounding_turns(const struct rounding *r, const char *name, const struct tensor *a, const struct tensor *b, double bound)
{
	const struct rounded *x = find(r, name, false);
	int64_t turned = 0;

	for (int64_t i = 0; i < b->count; i++)
		turned += !(fabs(a->x[i] - b->x[i]) <= bound);
	return x && isfinite(x->off.most) && turned <= 4 * x->turned && turned <= b->count / 4;
}
