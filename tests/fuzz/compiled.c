/* tests/fuzz/compiled.c - a case as it is run: through the last passes, its kernels compiled, every rank a
 * thread, fp32, against one rank in the evaluator.
 *
 * How far fp32 may be off is asked of the evaluator: its step is done once more from data that differ in
 * the last bits. What that moves much says nothing and is left out; `held` counts what was compared.
 * Its memory is full of NaNs before. Every plan must be proved safe, whether it is run or not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "passes/passes.h"
#include "tests/fuzz/gen.h"
#include "tests/fuzz/compiled.h"
#include "tests/poison.h"

enum { TIMES = 30 };                              /* what fp32 may do, in moves of the last bits */
static const double exact = 3e-5, loose = 0.02;   /* of the largest element */

struct held {
	const struct buffer *b;
	struct tensor *want;
	double most, moved;
};

struct compiled {
	struct arena *mem;
	const struct one_rank *one;
	VEC(struct held) held;
	double report_moved[64];
	double report[64];
};

static double largest(const struct tensor *t)
{
	double most = 0;

	for (int64_t i = 0; i < t->count; i++)
		if (isfinite(t->x[i]))
			most = fmax(most, fabs(t->x[i]));
	return most;
}

static double distance(const struct tensor *a, const struct tensor *b)
{
	double most = 0;

	for (int64_t i = 0; i < a->count; i++)
		if (isfinite(a->x[i]) != isfinite(b->x[i]))
			return INFINITY;
		else if (isfinite(a->x[i]))
			most = fmax(most, fabs(a->x[i] - b->x[i]));
	return most;
}

static struct tensor *copied(struct arena *mem, const struct tensor *t)
{
	struct tensor *c = tensor_new(mem, t->nd, t->size);

	memcpy(c->x, t->x, (size_t)t->count * sizeof *t->x);
	return c;
}

/* What one rank has after its step, and the largest element of each role: small gradients are rounded as
 * large ones are. */
static void hold(struct compiled *c)
{
	double most[NROLE] = { 0 };

	for (uint32_t i = 0; i < c->one->m->bufs.n; i++) {
		const struct buffer *b = c->one->m->bufs.at[i];

		if (b->role == B_INPUT || (b->role == B_PROBE && !c->one->training)) /* evaluation has no backward */
			continue;
		struct held h = { b, copied(c->mem, eval_get(c->one->e, b->name)), 0, 0 };
		h.most = largest(h.want);
		most[b->role] = fmax(most[b->role], h.most);
		PUSH(c->mem, &c->held, h);
	}
	for (uint32_t i = 0; i < c->held.n; i++)
		c->held.at[i].most = fmax(c->held.at[i].most, 1e-2 * most[c->held.at[i].b->role]);
	for (int i = 0; i < eval_reports(c->one->e) && i < 64; i++)
		c->report[i] = eval_report(c->one->e, eval_report_key(c->one->e, i), NULL);
}

/* The step once more, from data that are off by the last bits. */
static bool move(struct compiled *c)
{
	struct rnd r = { 5 };
	const char *why;

	eval_init(c->one->e);
	for (uint32_t i = 0; i < c->one->m->bufs.n; i++) {
		const struct buffer *b = c->one->m->bufs.at[i];
		struct tensor *t = copied(c->mem, eval_get(c->one->e, b->name));

		for (uint32_t k = 0; k < c->one->ndata; k++)
			if (streq(c->one->data[k].name, b->name))
				t = copied(c->mem, c->one->data[k].t);
		for (int64_t k = 0; k < t->count && is_float(b->dt); k++)
			t->x[k] *= 1 + (2 * rnd_unit(&r) - 1) / (1 << 23);
		eval_set(c->one->e, b->name, t);
	}
	if (!eval_step(c->one->e, c->one->step, c->one->training, NULL, &why))
		return false;
	for (uint32_t i = 0; i < c->held.n; i++)
		c->held.at[i].moved = distance(c->held.at[i].want, eval_get(c->one->e, c->held.at[i].b->name));
	for (int i = 0; i < eval_reports(c->one->e) && i < 64; i++)
		c->report_moved[i] =
			fabs(c->report[i] - eval_report(c->one->e, eval_report_key(c->one->e, i), NULL));
	return true;
}

static const char *compare_buffer(struct compiled *c, struct runtime *rt, const struct held *h, uint32_t *compared)
{
	double bound = exact * h->most + TIMES * h->moved;
	struct tensor *got = tensor_new(c->mem, h->want->nd, h->want->size);

	if (!(bound <= loose * h->most) && h->most > 0)
		return NULL;
	++*compared;
	rt_get(rt, h->b->name, got->x);
	for (int64_t i = 0; i < got->count; i++) {
		double x = got->x[i], y = h->want->x[i];

		if (x != y && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= bound))
			return arena_printf(c->mem, "kernels: buffer '%s': element %lld is %.9g, should be %.9g within %.2g",
					    h->b->name, (long long)i, x, y, bound);
	}
	return NULL;
}

static const char *compare_reports(struct compiled *c, struct runtime *rt)
{
	for (int i = 0; i < eval_reports(c->one->e) && i < 64; i++) {
		const char *key = eval_report_key(c->one->e, i);
		bool found;
		double x = rt_report(rt, key, &found), y = c->report[i];
		double bound = exact * fmax(fabs(y), 1e-2) + TIMES * c->report_moved[i];

		if (!c->one->training && strncmp(key, "grad_norm", 9) == 0)
			continue;
		if (!found || (!(fabs(x - y) <= bound) && !(isnan(x) && isnan(y)) && bound <= loose * fmax(fabs(y), 1e-2)))
			return arena_printf(c->mem, "kernels: report '%s' is %.9g, should be %.9g within %.2g", key, x, y,
					    bound);
	}
	return NULL;
}

static const char *run(struct compiled *c, struct module *m, struct diag *d, uint32_t *compared)
{
	struct runtime *rt = rt_open(m, c->one->seed, d);
	const char *wrong = NULL;

	if (!rt)
		return arena_printf(c->mem, "the runtime does not open: %s", d->log.s);
	for (uint32_t i = 0; i < c->one->ndata; i++)
		if (find_buffer(m, c->one->data[i].name))
			rt_set(rt, c->one->data[i].name, c->one->data[i].t->x);
	if (!poison(rt))
		wrong = "no memory";
	else if (!rt_step(rt, c->one->step, c->one->training, d))
		wrong = arena_printf(c->mem, "the runtime: %s", d->log.s);
	for (uint32_t i = 0; i < c->held.n && !wrong; i++)
		wrong = compare_buffer(c, rt, &c->held.at[i], compared);
	if (!wrong)
		wrong = compare_reports(c, rt);
	rt_close(rt);
	return wrong;
}

const char *check_proved(struct arena *mem, struct module *m)
{
	const struct pass_options last = { .start_after = "rematerialize", .verify = true };
	struct proof proof;
	struct diag d;

	diag_init(&d, mem, NULL, NULL);
	m->workspace = 1 << 20; /* the generator gives none */
	if (!run_passes(m, &d, &last))
		return arena_printf(mem, "does not compile: %s", d.log.s);
	return prove_plan(m, &proof, &d) ? NULL : arena_printf(mem, "is not proved: %s", d.log.s);
}

const char *check_compiled(struct arena *mem, struct module *m, const struct one_rank *one, uint32_t *compared)
{
	struct compiled c = { .mem = mem, .one = one };
	struct diag d;

	diag_init(&d, mem, NULL, NULL);
	hold(&c);
	return move(&c) ? run(&c, m, &d, compared) : NULL;
}

void use_fast_compiler(void)
{
	const char *cc = getenv("CC");
	char line[400];

	snprintf(line, sizeof line, "%s -O0", cc && *cc ? cc : "cc");
	setenv("CC", line, 1);
	setenv("PTC_CACHE", "build/fuzz-kernels", 0);
	setenv("PTC_THREADS", "1", 0);
}
