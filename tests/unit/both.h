/* tests/unit/both.h - one module twice: as it is written in the evaluator, and through all passes in
 * the runtime. Steps are compared by reports and by every buffer. For test programs only. */
#ifndef PTC_TESTS_BOTH_H
#define PTC_TESTS_BOTH_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "runtime/runtime.h"

struct both {
	struct arena *mem;
	struct diag d;
	struct module *plan;
	struct eval *e;
	struct runtime *rt;
};

/* Verified, and printed and read back. */
static inline struct module *both_parse(struct arena *mem, struct diag *d, const char *props, const char *text)
{
	const char *all = arena_printf(mem, "ptc-ir 1\nmodule \"t\" form=logical %s workspace=67108864\n%s", props, text);
	size_t n;

	diag_init(d, mem, NULL, stderr);
	struct module *m = module_parse(mem, "t", all, strlen(all), d);
	if (!m || !verify(m, d))
		fail_msg("in\n%s", all);
	const char *once = module_print(m, mem, &n);
	struct module *again = module_parse(mem, "t", once, n, d);
	assert_non_null(again);
	assert_string_equal(module_print(again, mem, &n), once);
	return again;
}

static inline void both_pass(struct both *x, struct module *m, const char *names)
{
	static const struct pass_options opt = { .verify = true };
	size_t n;

	if (!run_pass_list(m, &x->d, names, &opt))
		fail_msg("passes %s:\n%s", names, module_print(m, x->mem, &n));
}

static inline struct both both_open(const char *props, const char *text)
{
	struct both x = { .mem = arena_new() };
	struct module *m = both_parse(x.mem, &x.d, props, text);

	x.plan = both_parse(x.mem, &x.d, props, text);
	both_pass(&x, x.plan, "simplify,precision,differentiate,optimizer,simplify2,microbatch,place,partition,fuse,collectives,offload,overlap,memory");
	both_pass(&x, m, "precision,differentiate,optimizer"); /* the evaluator knows no minimize */
	x.e = eval_new(x.mem, m, 5);
	eval_init(x.e);
	x.rt = rt_open(x.plan, 5, &x.d);
	assert_non_null(x.rt);
	return x;
}

static inline void both_close(struct both *x)
{
	rt_close(x->rt);
	arena_free(x->mem);
}

/* Inputs with ties; of the ints some are out of range. */
static inline void both_feed(struct both *x, int64_t step)
{
	for (uint32_t i = 0; i < x->plan->bufs.n; i++) {
		const struct buffer *b = x->plan->bufs.at[i];

		if (b->role != B_INPUT)
			continue;
		struct tensor *t = tensor_like(x->mem, x->plan, b->nd, b->d);
		for (int64_t k = 0; k < t->count; k++)
			t->x[k] = b->dt == INT ? (double)((k * 7919 + 13 * step) % 5 - 1) :
				  b->dt == BOOL ? (k * 31 + step) % 7 > 1 :
				  (double)(float)(floor(sin((double)(k + 31 * step) * 1.7) * 8) / 4);
		eval_set(x->e, b->name, t);
		rt_set(x->rt, b->name, t->x);
	}
}

static inline void both_compare(struct both *x, const char *buffer, double tol)
{
	struct tensor *a = eval_get(x->e, buffer), *b;
	double most = 0;

	assert_non_null(a);
	b = tensor_new(x->mem, a->nd, a->size);
	rt_get(x->rt, buffer, b->x);
	for (int64_t i = 0; i < a->count; i++)
		most = fmax(most, fabs(a->x[i]));
	for (int64_t i = 0; i < a->count; i++)
		if (!(fabs(a->x[i] - b->x[i]) <= tol * (fabs(a->x[i]) + 0.1 * most)))
			fail_msg("%s[%d]: %.9g, evaluator %.9g", buffer, (int)i, b->x[i], a->x[i]);
}

static inline void both_step(struct both *x, int64_t step, bool training, double tol)
{
	const char *why = NULL;

	both_feed(x, step);
	if (!eval_step(x->e, step, training, NULL, &why))
		fail_msg("%s", why);
	if (!rt_step(x->rt, step, training, &x->d))
		fail_msg("the runtime");
	for (int i = 0; i < eval_reports(x->e); i++) {
		const char *key = eval_report_key(x->e, i);
		bool found;
		double a = eval_report(x->e, key, &found), b = rt_report(x->rt, key, &found);

		if (!training && streq(key, "grad_norm"))
			continue;
		if (!found || !(fabs(a - b) <= tol * (1 + fabs(a))))
			fail_msg("step %d, %s: %.9g, evaluator %.9g", (int)step, key, b, a);
	}
	for (uint32_t i = 0; i < x->plan->bufs.n; i++)
		if (x->plan->bufs.at[i]->role != B_INPUT)
			both_compare(x, x->plan->bufs.at[i]->name, tol);
}

/* Two steps with an evaluation between them, which may change nothing. */
static inline void both_run(const char *props, const char *text, double tol)
{
	struct both x = both_open(props, text);

	both_step(&x, 0, true, tol);
	both_step(&x, 1, false, tol);
	both_step(&x, 2, true, tol);
	both_close(&x);
}

/* The text with a mesh and arrows. */
static inline const char *both_on_mesh(struct arena *mem, const char *mesh, const char *arrows, const char *text)
{
	const char *rest = strstr(text, "forward:");

	return arena_printf(mem, "%s%.*s%s%s", mesh, (int)(rest - text), text, arrows, rest);
}

#endif
