/* The optimizers against their formulas (docs/LANGUAGE.md), for three steps; clip by the global
 * norm; norm groups; probes; masters of bf16 params. */
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

static const char model[] =
	"dim a=3\ndim b=2\n"
	"buffer @\"w\" param f32[a, b] init=normal(1)\n"
	"buffer @\"v\" param f32[a] init=normal(1)\n"
	"forward:\n"
	"%0 = read {buf=\"w\"} : f32[a, b]\n"
	"%1 = read {buf=\"v\"} : f32[a]\n"
	"%2 = sin %0 : f32[a, b]\n"
	"%3 = mul %2, %1 : f32[a, b]\n"
	"%4 = sum %3 : f32[]\n"
	"report %4 {key=\"loss\"}\n"
	"%10 = const {value=0.1} : f32[]\n"
	"%11 = const {value=0.02} : f32[]\n"
	"%12 = const {value=0.9} : f32[]\n"
	"%13 = const {value=0.99} : f32[]\n"
	"%14 = const {value=1e-8} : f32[]\n"
	"%15 = const {value=0.5} : f32[]\n"
	"%16 = const {value=0} : f32[]\n";

struct run {
	struct arena *mem;
	struct module *m;
	struct eval *e;
	double w[6], v[3], m1[9], m2[9]; /* what should be there */
};

static void start(struct run *r, const char *props, const char *minimize)
{
	struct diag d;

	*r = (struct run){ .mem = arena_new() };
	const char *text = arena_printf(r->mem, "ptc-ir 1\nmodule \"t\" form=logical micro=1 workspace=0 %s\n%s%s",
					props, model, minimize);
	diag_init(&d, r->mem, NULL, stderr);
	r->m = module_parse(r->mem, "t", text, strlen(text), &d);
	assert_non_null(r->m);
	assert_true(pass_simplify(r->m, &d));
	assert_true(pass_precision(r->m, &d));
	assert_true(verify(r->m, &d));
	assert_true(pass_differentiate(r->m, &d));
	assert_true(verify(r->m, &d));
	assert_true(pass_optimizer(r->m, &d));
	assert_true(verify(r->m, &d));
	assert_true(pass_simplify(r->m, &d));
	assert_true(verify(r->m, &d));
	r->e = eval_new(r->mem, r->m, 3);
	eval_init(r->e);
	memcpy(r->w, eval_get(r->e, "w")->x, sizeof r->w);
	memcpy(r->v, eval_get(r->e, "v")->x, sizeof r->v);
}

/* The gradients at r->w, r->v, w first; the norm of all. */
static double gradient(const struct run *r, double *g)
{
	double norm = 0;

	for (int i = 0; i < 3; i++) {
		g[6 + i] = 0;
		for (int k = 0; k < 2; k++) {
			g[2 * i + k] = cos(r->w[2 * i + k]) * r->v[i];
			g[6 + i] += sin(r->w[2 * i + k]);
		}
	}
	for (int i = 0; i < 9; i++)
		norm += g[i] * g[i];
	return sqrt(norm);
}

static void same(struct run *r, const char *buffer, const double *want, int n)
{
	struct tensor *t = eval_get(r->e, buffer);

	assert_non_null(t);
	assert_int_equal(t->count, n);
	for (int i = 0; i < n; i++)
		if (!(fabs(t->x[i] - want[i]) <= 1e-12 * (1 + fabs(want[i]))))
			fail_msg("%s[%d] is %.15g, not %.15g", buffer, i, t->x[i], want[i]);
}

static double step(struct run *r, int64_t no)
{
	const char *why = NULL;
	bool found;

	if (!eval_step(r->e, no, true, NULL, &why))
		fail_msg("%s", why);
	double norm = eval_report(r->e, "grad_norm", &found);
	assert_true(found);
	return norm;
}

static double *at(struct run *r, int i)
{
	return i < 6 ? &r->w[i] : &r->v[i - 6];
}

static void check_adamw(double clip)
{
	struct run r;
	char text[512];

	snprintf(text, sizeof text,
		"%%17 = const {value=%g} : f32[]\n"
		"minimize %%4, %%10, %%11, %%12, %%13, %%14%s {buf=\"w\", opt=\"adamw\", group=0}\n"
		"minimize %%4, %%10, %%11, %%12, %%13, %%14%s {buf=\"v\", opt=\"adamw\", group=0}\n",
		clip, clip ? ", %17" : "", clip ? ", %17" : "");
	start(&r, "precision=f32", text);
	for (int t = 1; t <= 3; t++) {
		double g[9], norm = gradient(&r, g), scale = clip ? fmin(1, clip / (norm + 1e-6)) : 1;

		assert_true(fabs(step(&r, t - 1) - norm) < 1e-12);
		for (int i = 0; i < 9; i++) {
			double gi = g[i] * scale, *p = at(&r, i);

			r.m1[i] = 0.9 * r.m1[i] + 0.1 * gi;
			r.m2[i] = 0.99 * r.m2[i] + 0.01 * gi * gi;
			double mhat = r.m1[i] / (1 - pow(0.9, t)), vhat = r.m2[i] / (1 - pow(0.99, t));
			*p -= 0.1 * (mhat / (sqrt(vhat) + 1e-8) + 0.02 * *p);
		}
		same(&r, "w", r.w, 6);
		same(&r, "v", r.v, 3);
		same(&r, "w:m", r.m1, 6);
		same(&r, "v:v", r.m2 + 6, 3);
	}
	arena_free(r.mem);
}

static void adamw(void **state)
{
	(void)state;
	check_adamw(0);
}

static void adamw_clipped(void **state)
{
	(void)state;
	check_adamw(0.25); /* below the norm */
	check_adamw(1e6);  /* above */
}

static void sgd(void **state)
{
	(void)state;
	struct run r;

	start(&r, "precision=f32",
	      "minimize %4, %10, %11, %12 {buf=\"w\", opt=\"sgd\", group=0}\n"
	      "minimize %4, %10, %16, %16 {buf=\"v\", opt=\"sgd\", group=0}\n");
	assert_null(find_buffer(r.m, "v:m"));
	for (int t = 1; t <= 3; t++) {
		double g[9], norm = gradient(&r, g);

		assert_true(fabs(step(&r, t - 1) - norm) < 1e-12);
		for (int i = 0; i < 6; i++) {
			r.m1[i] = 0.9 * r.m1[i] + g[i] + 0.02 * r.w[i];
			r.w[i] -= 0.1 * r.m1[i];
		}
		for (int i = 0; i < 3; i++)
			r.v[i] -= 0.1 * g[6 + i];
		same(&r, "w", r.w, 6);
		same(&r, "v", r.v, 3);
	}
	arena_free(r.mem);
}

/* Each minimize has its own norm, and its own loss. */
static void groups(void **state)
{
	(void)state;
	struct run r;

	start(&r, "precision=f32",
	      "%20 = neg %4 : f32[]\n"
	      "minimize %4, %10, %16, %16, %15 {buf=\"w\", opt=\"sgd\", group=0}\n"
	      "minimize %20, %10, %16, %16, %15 {buf=\"v\", opt=\"sgd\", group=1}\n");
	double g[9], nw = 0, nv = 0;

	gradient(&r, g);
	for (int i = 0; i < 9; i++)
		*(i < 6 ? &nw : &nv) += g[i] * g[i];
	assert_true(fabs(step(&r, 0) - sqrt(nw)) < 1e-12);
	for (int i = 0; i < 6; i++)
		r.w[i] -= 0.1 * g[i] * fmin(1, 0.5 / (sqrt(nw) + 1e-6));
	for (int i = 0; i < 3; i++)
		r.v[i] += 0.1 * g[6 + i] * fmin(1, 0.5 / (sqrt(nv) + 1e-6));
	same(&r, "w", r.w, 6);
	same(&r, "v", r.v, 3);
	arena_free(r.mem);
}

/* With probes the real gradient is reported and written, and the given one is used. */
static void probes(void **state)
{
	(void)state;
	struct run r;
	static const int64_t size[] = { 3, 2 };

	start(&r, "precision=f32 probes",
	      "minimize %4, %10, %16, %16, %15 {buf=\"w\", opt=\"sgd\", group=0}\n");
	double g[9], norm = 0;
	struct tensor *given = tensor_new(r.mem, 2, size);

	gradient(&r, g);
	for (int i = 0; i < 6; i++) {
		given->x[i] = 0.1 * (i + 1);
		norm += g[i] * g[i];
	}
	eval_set(r.e, "w:given", given);
	assert_true(fabs(step(&r, 0) - sqrt(norm)) < 1e-12);
	same(&r, "w:grad", g, 6);
	for (int i = 0; i < 6; i++)
		r.w[i] -= 0.1 * given->x[i] * fmin(1, 0.5 / (sqrt(0.91) + 1e-6));
	same(&r, "w", r.w, 6);
	arena_free(r.mem);
}

/* bf16: the master is f32, starts as the param does and is what the update works on. */
static void masters(void **state)
{
	(void)state;
	struct run r;

	start(&r, "precision=bf16",
	      "minimize %4, %10, %16, %16 {buf=\"w\", opt=\"sgd\", group=0}\n");
	assert_int_equal(find_buffer(r.m, "w")->dt, BF16);
	assert_int_equal(find_buffer(r.m, "v")->dt, BF16);
	struct buffer *b = find_buffer(r.m, "w:master");
	assert_non_null(b);
	assert_null(find_buffer(r.m, "v:master"));
	assert_int_equal(b->dt, F32);
	assert_int_equal(b->role, B_OPT);
	assert_string_equal(b->owner, "w");
	assert_int_equal(b->init, INIT_NORMAL);
	for (struct op *op = r.m->top.first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			if (op->out[i]->name && !strncmp(op->out[i]->name, "d:", 2))
				assert_int_equal(op->out[i]->dt, F32);
	double g[9];
	gradient(&r, g);
	step(&r, 0);
	for (int i = 0; i < 6; i++)
		r.w[i] -= 0.1 * g[i];
	same(&r, "w:master", r.w, 6);
	arena_free(r.mem);
}

int main(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(adamw), cmocka_unit_test(adamw_clipped), cmocka_unit_test(sgd),
		cmocka_unit_test(groups), cmocka_unit_test(probes), cmocka_unit_test(masters),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
