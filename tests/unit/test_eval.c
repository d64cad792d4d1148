/* The reference evaluator: each op against numbers worked out by hand, collectives on uneven
 * meshes, repeats, attention against a naive softmax. Modules are written as IR text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/rng.h"
#include "ir/text.h"

struct run {
	struct arena *mem;
	struct module *m;
	struct eval *e;
	const char *why;
	int seen, wrong; /* values watched, those whose replicas differ */
	char first[512];
	struct tensor *by_name[64];
	const char *name[64];
	int names;
};

/* text: the lines after the header. */
static struct run start(const char *form, const char *text)
{
	struct run r = { .mem = arena_new() };
	struct diag d;
	const char *all = arena_printf(r.mem, "ptc-ir 1\nmodule \"t\" form=%s precision=f32 micro=1 workspace=0\n%s",
				       form, text);

	diag_init(&d, r.mem, NULL, stderr);
	r.m = module_parse(r.mem, "t", all, strlen(all), &d);
	assert_non_null(r.m);
	r.e = eval_new(r.mem, r.m, 42);
	eval_init(r.e);
	return r;
}

static void end(struct run *r)
{
	arena_free(r->mem);
}

static void see(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error)
{
	struct run *r = me;

	r->seen++;
	if (error && !r->wrong++)
		snprintf(r->first, sizeof r->first, "%%%u %s, iteration %d: %s", v->id, v->name ? v->name : "",
			 (int)iter, error);
	if (!v->name)
		return;
	int k = 0;
	while (k < r->names && !streq(r->name[k], v->name))
		k++;
	assert_true(k < 64);
	if (k == r->names)
		r->names++;
	r->name[k] = v->name;
	r->by_name[k] = tensor_new(r->mem, whole->nd, whole->size);
	memcpy(r->by_name[k]->x, whole->x, (size_t)whole->count * sizeof *whole->x);
}

static const struct tensor *seen(const struct run *r, const char *name)
{
	for (int k = 0; k < r->names; k++)
		if (streq(r->name[k], name))
			return r->by_name[k];
	fail_msg("no value '%s'", name);
	return NULL;
}

static bool try_step(struct run *r, int64_t step, bool training)
{
	struct eval_watch w = { see, r, false };

	r->wrong = 0;
	return eval_step(r->e, step, training, &w, &r->why);
}

static void step(struct run *r)
{
	if (!try_step(r, 0, true))
		fail_msg("%s", r->why);
	if (r->wrong)
		fail_msg("%s", r->first);
}

static void set(struct run *r, const char *name, const double *x)
{
	struct tensor *t = eval_get(r->e, name);

	assert_non_null(t);
	memcpy(t->x, x, (size_t)t->count * sizeof *x);
	eval_set(r->e, name, t);
}

/* 1, 2, 3... times scale, so that sums are told apart. */
static void set_ramp(struct run *r, const char *name, double scale)
{
	struct tensor *t = eval_get(r->e, name);

	for (int64_t i = 0; i < t->count; i++)
		t->x[i] = scale * (double)(i + 1);
	eval_set(r->e, name, t);
}

static void set_noise(struct run *r, const char *name)
{
	struct tensor *t = eval_get(r->e, name);

	for (int64_t i = 0; i < t->count; i++)
		t->x[i] = rng_normal(stream_key(7, name), (uint64_t)i, 0, 0);
	eval_set(r->e, name, t);
}

static void near_to(double got, double want, const char *what, int64_t i)
{
	if (!(got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
		fail_msg("%s[%d] is %.17g, not %.17g", what, (int)i, got, want);
}

static void expect(struct run *r, const char *name, int n, const double *want)
{
	const struct tensor *t = seen(r, name);

	assert_int_equal(t->count, n);
	for (int i = 0; i < n; i++)
		near_to(t->x[i], want[i], name, i);
}
#define EXPECT(r, name, ...) \
	expect(r, name, LEN(((double[]){ __VA_ARGS__ })), (double[]){ __VA_ARGS__ })

static void same(struct run *a, struct run *b, const char *name)
{
	const struct tensor *x = seen(a, name), *y = seen(b, name);

	assert_int_equal(x->count, y->count);
	for (int64_t i = 0; i < x->count; i++)
		near_to(x->x[i], y->x[i], name, i);
}

/* -- pointwise -- */

static const char one_op[] =
	"dim n=3\nbuffer @\"a\" input f32[n]\nbuffer @\"b\" input f32[n]\nbuffer @\"c\" input f32[n]\n"
	"forward:\n%%0 = read {buf=\"a\"} : f32[n]\n%%1 = read {buf=\"b\"} : f32[n]\n"
	"%%2 = read {buf=\"c\"} : f32[n]\n%%3 = %s : %s[n] \"r\"\n";

static void op_is(const char *op, const char *dt, const double *a, const double *b, const double *c,
		  const double *want)
{
	struct arena *mem = arena_new();
	struct run r = start("logical", arena_printf(mem, one_op, op, dt));

	set(&r, "a", a);
	set(&r, "b", b ? b : a);
	set(&r, "c", c ? c : a);
	step(&r);
	expect(&r, "r", 3, want);
	end(&r);
	arena_free(mem);
}
#define A3(a, b, c) ((double[]){ a, b, c })

static void maps_of_one(void **state)
{
	(void)state;
	const double *x = A3(-1, 0, 2.5);

	op_is("neg %0", "f32", x, NULL, NULL, A3(1, 0, -2.5));
	op_is("cast %0", "int", x, NULL, NULL, A3(-1, 0, 2));
	op_is("cast %0", "bool", x, NULL, NULL, A3(1, 0, 1));
	op_is("detach %0", "f32", x, NULL, NULL, x);
	op_is("exp %0", "f32", x, NULL, NULL, A3(exp(-1), 1, exp(2.5)));
	op_is("log %0", "f32", A3(1, 2, 0), NULL, NULL, A3(0, log(2), -INFINITY));
	op_is("sqrt %0", "f32", A3(1, 4, 9), NULL, NULL, A3(1, 2, 3));
	op_is("rsqrt %0", "f32", A3(1, 4, 16), NULL, NULL, A3(1, .5, .25));
	op_is("tanh %0", "f32", x, NULL, NULL, A3(tanh(-1), 0, tanh(2.5)));
	op_is("sigmoid %0", "f32", A3(0, 800, -800), NULL, NULL, A3(.5, 1, 0));
	op_is("sin %0", "f32", x, NULL, NULL, A3(sin(-1), 0, sin(2.5)));
	op_is("cos %0", "f32", x, NULL, NULL, A3(cos(-1), 1, cos(2.5)));
	op_is("abs %0", "f32", x, NULL, NULL, A3(1, 0, 2.5));
	op_is("sign %0", "f32", x, NULL, NULL, A3(-1, 0, 1));
	op_is("not %0", "bool", x, NULL, NULL, A3(0, 1, 0));
	op_is("relu %0", "f32", x, NULL, NULL, A3(0, 0, 2.5));
	op_is("drelu %0", "f32", x, NULL, NULL, A3(0, 0, 1));
	op_is("silu %0", "f32", A3(0, 1, -1), NULL, NULL, A3(0, 1 / (1 + exp(-1)), -1 / (1 + exp(1))));
	op_is("gelu %0 {form=0}", "f32", A3(0, 1, -1), NULL, NULL,
	      A3(0, .84134474606854294859, -.15865525393145705141));
	op_is("gelu %0 {form=1}", "f32", A3(0, 1, -1), NULL, NULL,
	      A3(0, .84119199060827670, -.15880800939172330));
	op_is("gelu %0 {form=2}", "f32", A3(0, 1, -1), NULL, NULL,
	      A3(0, 1 / (1 + exp(-1.702)), -1 / (1 + exp(1.702))));
}

/* d is the derivative of f: central differences. */
static void derivative_is(const char *d, const char *f)
{
	double h = 1e-5, up[3], down[3], slope[3];
	const double x[3] = { -1.3, .4, 2.1 };
	struct arena *mem = arena_new();

	for (int sign = -1; sign <= 1; sign += 2) {
		struct run r = start("logical", arena_printf(mem, one_op, f, "f32"));

		set(&r, "a", A3(x[0] + sign * h, x[1] + sign * h, x[2] + sign * h));
		set(&r, "b", x);
		set(&r, "c", x);
		step(&r);
		memcpy(sign > 0 ? up : down, seen(&r, "r")->x, sizeof up);
		end(&r);
	}
	struct run r = start("logical", arena_printf(mem, one_op, d, "f32"));
	set(&r, "a", x);
	set(&r, "b", x);
	set(&r, "c", x);
	step(&r);
	for (int i = 0; i < 3; i++) {
		slope[i] = (up[i] - down[i]) / (2 * h);
		assert_true(fabs(slope[i] - seen(&r, "r")->x[i]) < 1e-8);
	}
	end(&r);
	arena_free(mem);
}

static void derivatives(void **state)
{
	(void)state;
	derivative_is("drelu %0", "relu %0");
	derivative_is("dsilu %0", "silu %0");
	derivative_is("dgelu %0 {form=0}", "gelu %0 {form=0}");
	derivative_is("dgelu %0 {form=1}", "gelu %0 {form=1}");
	derivative_is("dgelu %0 {form=2}", "gelu %0 {form=2}");
}

static void maps_of_more(void **state)
{
	(void)state;
	const double *a = A3(-7, 3, 5), *b = A3(2, 3, -2), *c = A3(10, 20, 30);

	op_is("add %0, %1", "f32", a, b, c, A3(-5, 6, 3));
	op_is("sub %0, %1", "f32", a, b, c, A3(-9, 0, 7));
	op_is("mul %0, %1", "f32", a, b, c, A3(-14, 9, -10));
	op_is("div %0, %1", "f32", a, b, c, A3(-3.5, 1, -2.5));
	op_is("floordiv %0, %1", "f32", a, b, c, A3(-4, 1, -3));
	op_is("mod %0, %1", "f32", a, b, c, A3(1, 0, -1));
	op_is("pow %0, %1", "f32", a, b, c, A3(49, 27, .04));
	op_is("min %0, %1", "f32", a, b, c, A3(-7, 3, -2));
	op_is("max %0, %1", "f32", A3(-7, NAN, 5), A3(2, 3, NAN), c, A3(2, NAN, NAN));
	op_is("min %0, %1", "f32", A3(-7, NAN, 5), A3(2, 3, NAN), c, A3(-7, NAN, NAN));
	op_is("eq %0, %1", "bool", a, b, c, A3(0, 1, 0));
	op_is("ne %0, %1", "bool", a, b, c, A3(1, 0, 1));
	op_is("lt %0, %1", "bool", a, b, c, A3(1, 0, 0));
	op_is("le %0, %1", "bool", a, b, c, A3(1, 1, 0));
	op_is("gt %0, %1", "bool", a, b, c, A3(0, 0, 1));
	op_is("ge %0, %1", "bool", a, b, c, A3(0, 1, 1));
	op_is("and %0, %1", "bool", A3(0, 1, 2), A3(1, 0, 3), c, A3(0, 0, 1));
	op_is("or %0, %1", "bool", A3(0, 1, 0), A3(1, 0, 0), c, A3(1, 1, 0));
	op_is("where %0, %1, %2", "f32", A3(0, 1, -1), b, c, A3(10, 3, -2));
	op_is("accum %0, %1, %2", "f32", a, b, c, A3(5, 26, 33));
}

/* -- leaves, sums, indices, views -- */

static void leaves_and_broadcasts(void **state)
{
	(void)state;
	struct run r = start("logical",
		"dim n=2\ndim k=3\n"
		"forward:\n"
		"%0 = index {dim=n} : int[n]\n"
		"%1 = index {dim=k} : int[k]\n"
		"%2 = const {value=10} : int[]\n"
		"%3 = mul %0, %2 : int[n]\n"
		"%4 = add %3, %1 : int[k, n] \"r\"\n"
		"%5 = step : int[] \"step\"\n"
		"%6 = training : bool[] \"training\"\n");

	step(&r);
	EXPECT(&r, "r", 0, 10, 1, 11, 2, 12);
	EXPECT(&r, "training", 1);
	assert_true(try_step(&r, 7, false));
	EXPECT(&r, "step", 7);
	EXPECT(&r, "training", 0);
	end(&r);
}

static void sums_and_products(void **state)
{
	(void)state;
	struct run r = start("logical",
		"dim n=2\ndim k=3\ndim m=2\n"
		"buffer @\"a\" input f32[n, k]\nbuffer @\"b\" input f32[k, m]\n"
		"forward:\n"
		"%0 = read {buf=\"a\"} : f32[n, k]\n"
		"%1 = read {buf=\"b\"} : f32[m, k] \"transposed\"\n"
		"%2 = sum %0 : f32[n] \"sum\"\n"
		"%3 = rmax %0 : f32[k] \"max\"\n"
		"%4 = einsum %0, %1 : f32[m, n] \"product\"\n"
		"%5 = sum %0 : f32[] \"all\"\n"
		"%6 = einsum %0, %1 : f32[k, n] \"batched\"\n");

	set(&r, "a", (double[]){ 1, 2, 3, -4, 5, -6 });
	set(&r, "b", (double[]){ 1, 10, 2, 20, 3, 30 });
	step(&r);
	EXPECT(&r, "transposed", 1, 2, 3, 10, 20, 30);
	EXPECT(&r, "sum", 6, -5);
	EXPECT(&r, "max", 1, 5, 3);
	EXPECT(&r, "product", 14, -12, 140, -120);
	EXPECT(&r, "all", 1);
	EXPECT(&r, "batched", 11, -44, 44, 110, 99, -198);
	end(&r);
}

static void lookup_and_scatter(void **state)
{
	(void)state;
	struct run r = start("logical",
		"dim v=3\ndim h=2\ndim t=4\ndim u=2\n"
		"buffer @\"w\" input f32[v, h]\nbuffer @\"i\" input int[t]\nbuffer @\"x\" input f32[t, h]\n"
		"buffer @\"j\" input int[h]\n"
		"forward:\n"
		"%0 = read {buf=\"w\"} : f32[v, h]\n"
		"%1 = read {buf=\"i\"} : int[t]\n"
		"%2 = read {buf=\"x\"} : f32[t, h]\n"
		"%3 = lookup %0, %1 {dims=(v)} : f32[t, h] \"rows\"\n"
		"%4 = scatter_add %2, %1 {dims=(v)} : f32[v, h] \"added\"\n"
		"%5 = read {buf=\"j\"} : int[h]\n"
		"%6 = lookup %0, %5 {dims=(v)} : f32[h] \"matched\"\n"
		"%7 = lookup %0, %1, %1 {dims=(v, h)} : f32[t] \"both\"\n"
		"%8 = scatter_add %2, %1 {dims=(v)} : f32[v] \"summed\"\n"
		"%9 = index {dim=t} : int[t]\n"
		"%10 = const {value=1} : int[]\n"
		"%11 = sub %9, %10 : int[t]\n"
		"%12 = lookup %2, %11 {dims=(t)} : f32[t, h] \"shifted\"\n");

	set_ramp(&r, "w", 1);
	set(&r, "i", (double[]){ 1, -100, 3, 1 });
	set(&r, "j", (double[]){ 2, 0 });
	set_ramp(&r, "x", 10);
	step(&r);
	EXPECT(&r, "rows", 3, 4, 0, 0, 0, 0, 3, 4);
	EXPECT(&r, "added", 0, 0, 80, 100, 0, 0);
	EXPECT(&r, "matched", 5, 2);
	EXPECT(&r, "both", 4, 0, 0, 4);
	EXPECT(&r, "summed", 0, 180, 0);
	EXPECT(&r, "shifted", 0, 0, 10, 20, 30, 40, 50, 60);
	end(&r);
}

static void views(void **state)
{
	(void)state;
	struct run r = start("logical",
		"dim n=6\ndim a=2\ndim b=3\ndim s=3\ndim k=2\n"
		"buffer @\"x\" input f32[n, k]\n"
		"forward:\n"
		"%0 = read {buf=\"x\"} : f32[n, k]\n"
		"%1 = split %0 {dim=n, tos=(a, b)} : f32[a, b, k]\n"
		"%2 = sum %1 : f32[b, a] \"split\"\n"
		"%3 = merge %1 {to=n, dims=(a, b)} : f32[k, n] \"merged\"\n"
		"%4 = slice %0 {dim=n, to=s, start=-1, stride=3} : f32[s, k] \"slice\"\n"
		"%5 = pad %4 {dim=s, to=n, start=-1, stride=3} : f32[n, k] \"pad\"\n"
		"%6 = roll %0 {dim=n, shift=2} : f32[n, k] \"roll\"\n"
		"%7 = roll %0 {dim=n, shift=-1} : f32[n, k] \"back\"\n"
		"%8 = rename %0 {dims=(k), tos=(a)} : f32[a, n] \"renamed\"\n"
		"%9 = sum %1 : f32[a, k]\n"
		"%10 = rename %9 {dims=(a, k), tos=(k, a)} : f32[a, k] \"swapped\"\n");

	set_ramp(&r, "x", 1);
	step(&r);
	EXPECT(&r, "split", 3, 15, 7, 19, 11, 23);
	EXPECT(&r, "merged", 1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10, 12);
	EXPECT(&r, "slice", 0, 0, 5, 6, 11, 12);
	EXPECT(&r, "pad", 0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 11, 12);
	EXPECT(&r, "roll", 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4);
	EXPECT(&r, "back", 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	EXPECT(&r, "renamed", 1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10, 12);
	EXPECT(&r, "swapped", 9, 27, 12, 30);
	end(&r);
}

/* -- random numbers and initial values -- */

static void random_numbers(void **state)
{
	(void)state;
	static const char body[] =
		"forward:\n"
		"%%0 = rng {key=\"drop#0\", dims=(n, k)} : f32[n%s, k%s] \"u\"\n"
		"%%1 = rng {key=\"drop#0\", dims=(k)} : f32[k%s] \"narrow\"\n";
	static const char head[] = "mesh x=2\nmesh y=2\ndim n=3\ndim k=5\n";
	struct arena *mem = arena_new();
	struct run a = start("logical", arena_printf(mem, "%s%s", head, arena_printf(mem, body, "", "", "")));
	struct run b = start("partitioned", arena_printf(mem, "%s%s", head, arena_printf(mem, body, "@y", "@x", "@x.y")));

	assert_true(try_step(&a, 3, true));
	assert_true(try_step(&b, 3, true));
	assert_int_equal(b.wrong, 0);
	for (int i = 0; i < 15; i++)
		near_to(seen(&a, "u")->x[i], rng_uniform(stream_key(42, "drop#0"), (uint64_t)i, 3, 0), "u", i);
	same(&a, &b, "u");
	same(&a, &b, "narrow");
	end(&a);
	end(&b);
	arena_free(mem);
}

static void initial_values(void **state)
{
	(void)state;
	struct run r = start("logical",
		"dim n=3\n"
		"buffer @\"o\" param f32[n] init=ones\nbuffer @\"c\" param f32[n] init=constant(2.5)\n"
		"buffer @\"u\" param f32[n] init=uniform(0.5)\nbuffer @\"g\" param f32[n] init=normal(0.02)\n"
		"buffer @\"g:master\" opt f32[n] init=normal(0.02) owner=\"g\"\n");
	struct tensor *g = eval_get(r.e, "g"), *copy = eval_get(r.e, "g:master"), *u = eval_get(r.e, "u");

	for (int i = 0; i < 3; i++) {
		near_to(eval_get(r.e, "o")->x[i], 1, "o", i);
		near_to(eval_get(r.e, "c")->x[i], 2.5, "c", i);
		near_to(u->x[i], (float)(.5 * (2 * rng_uniform(stream_key(42, "u"), (uint64_t)i, 0, 0) - 1)), "u", i);
		near_to(g->x[i], (float)(.02 * rng_normal(stream_key(42, "g"), (uint64_t)i, 0, 0)), "g", i);
		near_to(copy->x[i], g->x[i], "master", i);
	}
	end(&r);
}

/* -- buffers over steps -- */

static void writes_take_effect_after_the_step(void **state)
{
	(void)state;
	struct run r = start("logical",
		"dim n=2\nbuffer @\"p\" param f32[n] init=ones\n"
		"forward:\n"
		"%0 = read {buf=\"p\"} : f32[n]\n"
		"%1 = add %0, %0 : f32[n]\n"
		"write %1 {buf=\"p\"}\n"
		"%2 = read {buf=\"p\"} : f32[n] \"late\"\n"
		"%3 = sum %1 : f32[]\n"
		"report %3 {key=\"loss\"}\n");
	bool found;

	step(&r);
	EXPECT(&r, "late", 1, 1);
	near_to(eval_get(r.e, "p")->x[1], 2, "p", 1);
	near_to(eval_report(r.e, "loss", &found), 4, "loss", 0);
	assert_true(found);
	assert_true(try_step(&r, 1, false)); /* evaluation changes nothing */
	near_to(eval_get(r.e, "p")->x[1], 2, "p", 1);
	near_to(eval_report(r.e, "loss", &found), 8, "loss", 0);
	assert_int_equal(eval_reports(r.e), 1);
	assert_string_equal(eval_report_key(r.e, 0), "loss");
	eval_report(r.e, "acc", &found);
	assert_false(found);
	end(&r);
}

/* -- shardings -- */

static void every_collective_keeps_the_value(const char *text, const char *buf)
{
	struct run r = start("partitioned", text);
	struct tensor *x;

	set_noise(&r, buf);
	x = eval_get(r.e, buf);
	step(&r);
	assert_true(r.names > 2);
	for (int k = 0; k < r.names; k++)
		expect(&r, r.name[k], (int)x->count, x->x);
	end(&r);
}

static void collectives_on_uneven_meshes(void **state)
{
	(void)state;
	/* n = 10 on (x2, y2): chunks of 3 in chunks of 5; n = 3 on 4; 9 on 8: three ranks are empty. */
	static const int sizes[][2] = { { 10, 3 }, { 3, 1 }, { 9, 8 }, { 1, 5 }, { 8, 4 } };
	struct arena *mem = arena_new();

	for (size_t i = 0; i < LEN(sizes); i++)
		every_collective_keeps_the_value(arena_printf(mem,
			"mesh x=2\nmesh y=2\nmesh z=2\ndim n=%d\ndim k=%d\nbuffer @\"b\" input f32[n, k]\n"
			"forward:\n"
			"%%0 = read {buf=\"b\"} : f32[n@x.y.z, k] \"0\"\n"
			"%%1 = all_gather %%0 {dim=n, axes=(z)} : f32[n@x.y, k] \"1\"\n"
			"%%2 = all_to_all %%1 {dim=n, to=k, axes=(y)} : f32[n@x, k@y] \"2\"\n"
			"%%3 = shard %%2 {dim=k, axes=(z)} : f32[n@x, k@y.z] \"3\"\n"
			"%%4 = all_gather %%3 {dim=n, axes=(x)} : f32[n, k@y.z] \"4\"\n"
			"%%5 = to_partial %%4 {axes=(x)} : f32[n, k@y.z]+x \"5\"\n"
			"%%6 = reduce_scatter %%5 {dim=n, axes=(x)} : f32[n@x, k@y.z] \"6\"\n"
			"%%7 = all_gather %%6 {dim=k, axes=(y.z)} : f32[n@x, k] \"7\"\n"
			"%%8 = to_partial %%7 {axes=(y.z)} : f32[n@x, k]+y.z \"8\"\n"
			"%%9 = all_reduce %%8 {axes=(y.z)} : f32[n@x, k] \"9\"\n"
			"%%10 = to_partial %%9 {axes=(z), max=1} : f32[n@x, k]^z \"10\"\n"
			"%%11 = all_reduce %%10 {axes=(z), max=1} : f32[n@x, k] \"11\"\n"
			"%%12 = read {buf=\"b\"} : f32[n, k] \"12\"\n"
			"%%13 = shard %%12 {dim=n, axes=(y)} : f32[n@y, k] \"13\"\n",
			sizes[i][0], sizes[i][1]), "b");
	arena_free(mem);
}

/* Sums, products, lookups over split dims, with all that they owe. */
static void split_loops(void **state)
{
	(void)state;
	static const char body[] =
		"mesh x=2\nmesh y=4\ndim n=9\ndim k=7\ndim v=5\ndim t=6\n"
		"buffer @\"a\" input f32[n, k]\nbuffer @\"b\" input f32[k, v]\nbuffer @\"i\" input int[t]\n"
		"forward:\n"
		"%%0 = read {buf=\"a\"} : f32[n%s, k%s]\n"
		"%%1 = read {buf=\"b\"} : f32[k%s, v]\n"
		"%%2 = einsum %%0, %%1 : f32[n%s, v]%s \"product\"\n"
		"%%3 = sum %%0 : f32[]%s \"sum\"\n"
		"%%4 = rmax %%0 : f32[n%s]%s \"max\"\n"
		"%%5 = read {buf=\"i\"} : int[t]\n"
		"%%6 = read {buf=\"b\"} : f32[v, k%s]\n"
		"%%7 = lookup %%6, %%5 {dims=(k)} : f32[t, v]%s \"rows\"\n"
		"%%8 = scatter_add %%7, %%5 {dims=(n)} : f32[n%s, v]%s \"added\"\n"
		"%%9 = index {dim=n} : int[n%s] \"index\"\n";
	struct arena *mem = arena_new();
	struct run a = start("logical", arena_printf(mem, body, "", "", "", "", "", "", "", "", "", "", "", "", ""));
	struct run b = start("partitioned", arena_printf(mem, body, "@x", "@y", "@y", "@x", "+y", "+x.y", "@x", "^y",
							 "@y", "+y", "@x", "+y", "@y.x"));
	struct run *both[2] = { &a, &b };

	for (int i = 0; i < 2; i++) {
		set_noise(both[i], "a");
		set_noise(both[i], "b");
		set(both[i], "i", (double[]){ 0, 6, 7, -1, 3, 6 });
		step(both[i]);
	}
	same(&a, &b, "product");
	same(&a, &b, "sum");
	same(&a, &b, "max");
	same(&a, &b, "rows");
	same(&a, &b, "added");
	same(&a, &b, "index");
	end(&a);
	end(&b);
	arena_free(mem);
}

static void fails_with(const char *body, const char *want)
{
	struct run r = start("partitioned", body);

	set_ramp(&r, "b", 1);
	assert_false(try_step(&r, 0, true));
	if (!strstr(r.why, want))
		fail_msg("\"%s\" lacks \"%s\"", r.why, want);
	end(&r);
}

#define HEAD "mesh x=2\nmesh y=2\ndim n=10\nbuffer @\"b\" input f32[n]\nbuffer @\"p\" param f32[n] init=ones\nforward:\n"

static void mistakes_are_found(void **state)
{
	(void)state;
	fails_with(HEAD "%0 = read {buf=\"b\"} : f32[n@x]\n%1 = all_reduce %0 {axes=(y)} : f32[n@x]\n",
		   "all_reduce %1 over y (?): nothing is owed");
	fails_with(HEAD "%0 = read {buf=\"b\"} : f32[n@x]\n%1 = all_gather %0 {dim=n, axes=(y)} : f32[n]\n",
		   "the sharding of the result");
	fails_with(HEAD "%0 = read {buf=\"b\"} : f32[n@x.y]\n%1 = all_gather %0 {dim=n, axes=(x)} : f32[n@y]\n",
		   "the sharding of the result");
	fails_with(HEAD "%0 = read {buf=\"b\"} : f32[n@x]\n%1 = read {buf=\"b\"} : f32[n@y]\n"
		   "%2 = add %0, %1 : f32[n@x]\n", "elements of 'n'");
	fails_with(HEAD "%0 = read {buf=\"b\"} : f32[n@x]\n%1 = sum %0 : f32[]\nwrite %1 {buf=\"p\"}\n",
		   "the dims are not those of buffer 'p'");
	fails_with(HEAD "%0 = read {buf=\"b\"} : f32[n@x]\n%1 = sum %0 : f32[]\nreport %1 {key=\"loss\"}\n",
		   "replicas of %1 differ: 15, but 40 at x=1");
	fails_with(HEAD "%0 = read {buf=\"b\"} : f32[n@x]\n%1 = sum %0 : f32[]+x\nreport %1 {key=\"loss\"}\n",
		   "still pending");
	fails_with(HEAD "%0 = read {buf=\"b\"} : f32[n@x]\n%1 = sum %0 : f32[]\n"
		   "%2 = to_partial %1 {axes=(y)} : f32[]+y\n", "replicas of %1 differ");
	fails_with(HEAD "%0 = read {buf=\"q\"} : f32[n@x]\n", "no buffer 'q'");
}

/* -- rounding -- */

static void values_are_rounded_at_random(void **state)
{
	(void)state;
	static const char text[] = "dim n=64\nbuffer @\"b\" input f32[n]\nforward:\n%0 = read {buf=\"b\"} : f32[n]\n"
				   "%1 = cast %0 : bf16[n] \"y\"\n%2 = exp %0 : f32[n] \"z\"\n%3 = cast %2 : int[n] \"i\"\n";
	struct run r = start("logical", text);
	struct tensor *b = tensor_like(r.mem, r.m, 1, (dimid[]){ 0 });
	int above = 0, other = 0;
	double first[64];

	for (int i = 0; i < 64; i++)
		b->x[i] = i < 2 ? i : 1 + 3.0 / 512; /* of bf16: 0, 1, and else 3/4 of the way from one to the next */
	eval_set(r.e, "b", b);
	for (uint64_t draw = 0; draw < 3; draw++) {
		eval_round(r.e, draw);
		assert_true(try_step(&r, 0, true));
		const double *y = seen(&r, "y")->x, *z = seen(&r, "z")->x;

		assert_true(y[0] == 0 && y[1] == 1 && z[0] == 1);
		for (int i = 2; i < 64; i++) {
			if (draw == 0) {
				assert_true(y[i] == b->x[i] && z[i] == exp(b->x[i]));
				continue;
			}
			assert_true(y[i] == 1 || y[i] == 1 + 1.0 / 128);
			assert_true(z[i] == (float)z[i] && fabs(z[i] - exp(b->x[i])) < 0x1p-22);
			assert_true(seen(&r, "i")->x[i] == 2);
			above += y[i] > 1;
			other += draw == 2 && y[i] != first[i];
			first[i] = y[i];
		}
	}
	assert_in_range(above, 75, 111); /* of 124, 93 by chance */
	assert_true(other > 0);
	end(&r);
}

/* -- microbatches -- */

static void microbatches(void **state)
{
	(void)state;
	static const char body[] =
		"mesh dp=2\naxis dp=2 of dp\naxis micro=3 time\n"
		"dim batch=10\ndim n=2\nbuffer @\"x\" input f32[batch, n]\nbuffer @\"p\" param f32[n] init=ones\n"
		"forward:\n"
		"%%0 = read {buf=\"x\"} : f32[batch%s, n]\n"
		"%%1 = read {buf=\"p\"} : f32[n]\n"
		"%%2 = einsum %%0, %%1 : f32[batch%s] \"y\"\n"
		"%%3 = sum %%2 : f32[]%s \"s\"\n"
		"backward:\n"
		"%%4 = sum %%0 : f32[n]%s \"g\"\n"
		"epilogue:\n"
		"%%5 = accumulate %%3 : f32[]%s \"S\"\n"
		"%%6 = accumulate %%4 : f32[n]%s \"G\"\n";
	static const char tail[] =
		"%7 = all_reduce %5 {axes=(dp)} : f32[]\n"
		"report %7 {key=\"loss\"}\n"
		"%8 = reduce_scatter %6 {dim=n, axes=(dp)} : f32[n@dp]\n"
		"write %8 {buf=\"p\"}\n";
	struct arena *mem = arena_new();
	struct run a = start("logical", arena_printf(mem, body, "", "", "", "", "", ""));
	struct run b = start("partitioned", arena_printf(mem, "%s%s",
		arena_printf(mem, body, "@micro.dp", "@micro.dp", "+dp.micro", "+dp.micro", "+dp", "+dp"), tail));
	struct run *both[2] = { &a, &b };
	bool found;

	for (int i = 0; i < 2; i++) {
		set_ramp(both[i], "x", 1);
		step(both[i]);
	}
	same(&a, &b, "y");
	same(&a, &b, "s");
	same(&a, &b, "S");
	same(&a, &b, "G");
	EXPECT(&b, "G", 100, 110);
	near_to(eval_report(b.e, "loss", &found), 210, "loss", 0);
	near_to(eval_get(b.e, "p")->x[1], 110, "p", 1);
	end(&a);
	end(&b);
	arena_free(mem);
}

/* -- regions -- */

static void repeats(void **state)
{
	(void)state;
	/* x' = x w[l] + i; the body yields its two carried values crosswise, and stacks x. */
	struct run r = start("logical",
		"dim l=3\ndim n=2\nbuffer @\"w\" input f32[l, n]\nbuffer @\"x\" input f32[n]\n"
		"forward:\n"
		"%0 = read {buf=\"x\"} : f32[n]\n"
		"%1 = read {buf=\"w\"} : f32[l, n]\n"
		"%2 = const {value=0} : f32[]\n"
		"%3, %4 = repeat %0, %2, %1 {dim=l, ncarry=1, nwith=1} : f32[n] \"end\", f32[n, l] \"stack\" {\n"
		"  args %5: f32[n], %6: f32[], %7: f32[n]\n"
		"  %8 = mul %5, %7 : f32[n]\n"
		"  %9 = iter {dim=l} : int[]\n"
		"  %10 = add %8, %9 : f32[n]\n"
		"  %11 = add %10, %6 : f32[n] \"layers.x\"\n"
		"  yield %11, %5\n"
		"}\n"
		"%12, %13, %14 = repeat %0, %3, %1 {dim=l, ncarry=2, nwith=0, reverse=1} : f32[n] \"a\", f32[n] \"b\", "
		"f32[l, n] \"rstack\" {\n"
		"  args %15: f32[n], %16: f32[n], %17: f32[n]\n"
		"  %18 = iter {dim=l} : int[]\n"
		"  %19 = mul %17, %18 : f32[n]\n"
		"  yield %16, %15, %19\n"
		"}\n");

	set(&r, "x", (double[]){ 1, 2 });
	set(&r, "w", (double[]){ 2, 3, 4, 5, 6, 7 });
	step(&r);
	EXPECT(&r, "stack", 1, 2, 9, 2, 6, 31);
	EXPECT(&r, "end", 56, 219);
	EXPECT(&r, "a", 56, 219); /* three swaps */
	EXPECT(&r, "b", 1, 2);
	EXPECT(&r, "rstack", 0, 0, 4, 5, 12, 14);
	end(&r);
}

static void nested_repeats_and_random_streams(void **state)
{
	(void)state;
	static const char body[] =
		"mesh dp=2\ndim l=2\ndim k=3\ndim n=4\n"
		"forward:\n"
		"%%0 = const {value=0} : f32[n%s]\n"
		"%%1 = repeat %%0 {dim=l, ncarry=1, nwith=0} : f32[n%s] \"end\" {\n"
		"  args %%2: f32[n%s]\n"
		"  %%3 = iter {dim=l} : int[]\n"
		"  %%4 = repeat %%2, %%3 {dim=k, ncarry=1, nwith=1} : f32[n%s] {\n"
		"    args %%5: f32[n%s], %%6: int[]\n"
		"    %%7 = iter {dim=k} : int[]\n"
		"    %%8 = rng %%6, %%7 {key=\"s\", dims=(n)} : f32[n%s]\n"
		"    %%9 = add %%5, %%8 : f32[n%s] \"x\"\n"
		"    yield %%9\n"
		"  }\n"
		"  yield %%4\n"
		"}\n";
	struct arena *mem = arena_new();
	struct run a = start("logical", arena_printf(mem, body, "", "", "", "", "", "", ""));
	struct run b = start("partitioned", arena_printf(mem, body, "@dp", "@dp", "@dp", "@dp", "@dp", "@dp", "@dp"));

	step(&a);
	step(&b);
	same(&a, &b, "end");
	for (int i = 0; i < 4; i++) {
		double sum = 0;

		for (uint32_t t = 0; t < 6; t++)
			sum += rng_uniform(stream_key(42, "s"), (uint64_t)i, 0, t);
		near_to(seen(&a, "end")->x[i], sum, "end", i);
	}
	end(&a);
	end(&b);
	arena_free(mem);
}

static void accumulated_stacks_and_kernels(void **state)
{
	(void)state;
	struct run r = start("partitioned",
		"mesh dp=2\naxis dp=2 of dp\naxis micro=2 time\n"
		"dim batch=8\ndim l=3\nbuffer @\"x\" input f32[batch]\nbuffer @\"w\" input f32[l]\n"
		"backward:\n"
		"%0 = read {buf=\"x\"} : f32[batch@micro.dp]\n"
		"%1 = read {buf=\"w\"} : f32[l]\n"
		"%2 = repeat %0, %1 {dim=l, ncarry=0, nwith=1, acc=1} : f32[l]+dp \"g\" {\n"
		"  args %3: f32[batch@micro.dp], %4: f32[]\n"
		"  %5 = kernel %3, %4 : f32[]+dp.micro {\n"
		"    args %6: f32[batch@micro.dp], %7: f32[]\n"
		"    %8 = mul %6, %7 : f32[batch@micro.dp]\n"
		"    %9 = sum %8 : f32[]+dp.micro\n"
		"    yield %9\n"
		"  }\n"
		"  yield %5\n"
		"}\n"
		"epilogue:\n"
		"%10 = all_reduce %2 {axes=(dp)} : f32[l] \"G\"\n");

	set_ramp(&r, "x", 1);
	set(&r, "w", A3(1, 10, 100));
	step(&r);
	EXPECT(&r, "g", 36, 360, 3600);
	EXPECT(&r, "G", 36, 360, 3600);
	end(&r);
}

/* -- attention -- */

/* GQA: q[b, s, g, h, d], k and v[b, c, g, d]; causal; cap; the naive way, by maps and einsums. */
static const char naive[] =
	"dim b=2\ndim s=4\ndim c=4\ndim g=2\ndim h=3\ndim d=5\n"
	"buffer @\"q\" input f32[b, s, g, h, d]\nbuffer @\"k\" input f32[b, c, g, d]\n"
	"buffer @\"v\" input f32[b, c, g, d]\n"
	"forward:\n"
	"%0 = read {buf=\"q\"} : f32[b, s, g, h, d]\n"
	"%1 = read {buf=\"k\"} : f32[b, c, g, d]\n"
	"%2 = read {buf=\"v\"} : f32[b, c, g, d]\n"
	"%3 = einsum %0, %1 : f32[b, g, h, s, c]\n"
	"%4 = const {value=0.3} : f32[]\n"
	"%5 = mul %3, %4 : f32[b, g, h, s, c]\n"
	"%6 = const {value=2} : f32[]\n"
	"%7 = div %5, %6 : f32[b, g, h, s, c]\n"
	"%8 = tanh %7 : f32[b, g, h, s, c]\n"
	"%9 = mul %8, %6 : f32[b, g, h, s, c]\n"
	"%10 = index {dim=s} : int[s]\n"
	"%11 = index {dim=c} : int[c]\n"
	"%12 = gt %11, %10 : bool[s, c]\n"
	"%13 = const {value=-inf} : f32[]\n"
	"%14 = where %12, %13, %9 : f32[b, g, h, s, c]\n"
	"%15 = exp %14 : f32[b, g, h, s, c]\n"
	"%16 = sum %15 : f32[b, s, g, h]\n"
	"%17 = div %15, %16 : f32[b, g, h, s, c]\n"
	"%18 = rng {key=\"m\", dims=(b, s, g, h, c)} : f32[b, s, g, h, c]\n"
	"%19 = const {value=0.25} : f32[]\n"
	"%20 = ge %18, %19 : bool[b, s, g, h, c]\n"
	"%21 = mul %17, %20 : f32[b, g, h, s, c]\n"
	"%22 = const {value=0.75} : f32[]\n"
	"%23 = div %21, %22 : f32[b, g, h, s, c]\n"
	"%24 = einsum %23, %2 : f32[b, s, g, h, d] \"o\"\n"
	"%25 = log %16 : f32[b, s, g, h] \"lse\"\n";

static const char fused[] =
	"mesh x=2\nmesh y=2\ndim b=2\ndim s=4\ndim c=4\ndim g=2\ndim h=3\ndim d=5\n"
	"buffer @\"q\" input f32[b, s, g, h, d]\nbuffer @\"k\" input f32[b, c, g, d]\n"
	"buffer @\"v\" input f32[b, c, g, d]\nbuffer @\"do\" input f32[b, s, g, h, d]\n"
	"forward:\n"
	"%0 = read {buf=\"q\"} : f32[b, s@x, g@y, h, d]\n"
	"%1 = read {buf=\"k\"} : f32[b, c, g@y, d]\n"
	"%2 = read {buf=\"v\"} : f32[b, g@y, c, d]\n"
	"%3 = read {buf=\"do\"} : f32[b, s@x, g@y, d, h]\n"
	"%4, %5 = attention %0, %1, %2 {key=\"m\", dim=d, ctx=c, causal=s, dims=(b, s, g, h, c), scale=0.3, cap=2, p=0.25}"
	" : f32[b, h, s@x, g@y, d] \"o\", f32[b, s@x, g@y, h] \"lse\"\n"
	"%6, %7, %8 = attention_grad %0, %1, %2, %4, %5, %3 {key=\"m\", dim=d, ctx=c, causal=s, dims=(b, s, g, h, c), "
	"scale=0.3, cap=2, p=0.25} : f32[b, s@x, g@y, h, d] \"dq\", f32[b, c, g@y, d]+x \"dk\", f32[c, b, g@y, d]+x \"dv\"\n";

static void set_qkv(struct run *r)
{
	set_noise(r, "q");
	set_noise(r, "k");
	set_noise(r, "v");
}

static void attention_is_a_softmax(void **state)
{
	(void)state;
	struct run a = start("logical", naive), b = start("logical", fused), c = start("partitioned", fused);

	set_qkv(&a);
	set_qkv(&b);
	set_qkv(&c);
	set_noise(&b, "do");
	set_noise(&c, "do");
	step(&a);
	step(&b);
	step(&c);
	const struct tensor *x = seen(&a, "o"), *y = seen(&b, "o"); /* [b, s, g, h, d], [b, h, s, g, d] */
	for (int i = 0; i < 2; i++)
		for (int s = 0; s < 4; s++)
			for (int g = 0; g < 2; g++)
				for (int hd = 0; hd < 15; hd++)
					near_to(y->x[(((i * 3 + hd / 5) * 4 + s) * 2 + g) * 5 + hd % 5],
						x->x[((i * 4 + s) * 2 + g) * 15 + hd], "o", hd);
	same(&a, &b, "lse");
	same(&b, &c, "o");
	same(&b, &c, "lse");
	same(&b, &c, "dq");
	same(&b, &c, "dk");
	same(&b, &c, "dv");
	end(&a);
	end(&b);
	end(&c);
}

/* sum(o * do) as a function of one element of a buffer, against the gradient. */
static double objective(struct run *r, const struct tensor *dout)
{
	double sum = 0;
	const struct tensor *o = seen(r, "o");

	step(r);
	o = seen(r, "o");
	for (int i = 0; i < 2; i++) /* [b, h, s, g, d] against [b, s, g, h, d] */
		for (int h = 0; h < 3; h++)
			for (int s = 0; s < 4; s++)
				for (int gd = 0; gd < 10; gd++)
					sum += o->x[(((i * 3 + h) * 4 + s) * 2) * 5 + gd] *
					       dout->x[(((i * 4 + s) * 2 + gd / 5) * 3 + h) * 5 + gd % 5];
	return sum;
}

static void attention_gradient_by_differences(void **state)
{
	(void)state;
	static const char *const names[3] = { "q", "k", "v" }, *const grads[3] = { "dq", "dk", "dv" };
	struct run r = start("logical", fused);
	struct tensor *dout, *grad[3];
	double h = 1e-5;

	set_qkv(&r);
	set_noise(&r, "do");
	dout = eval_get(r.e, "do");
	step(&r);
	for (int t = 0; t < 3; t++) {
		const struct tensor *g = seen(&r, grads[t]);

		grad[t] = tensor_new(r.mem, g->nd, g->size);
		memcpy(grad[t]->x, g->x, (size_t)g->count * sizeof *g->x);
	}
	for (int t = 0; t < 3; t++)
		for (int64_t i = 0; i < grad[t]->count; i += 7) {
			struct tensor *x = eval_get(r.e, names[t]);
			int64_t at = i;
			double up, down;

			if (t == 2) /* dv is [c, b, g, d], v is [b, c, g, d] */
				at = (i / 10 % 2 * 4 + i / 20) * 10 + i % 10;
			x->x[at] += h;
			eval_set(r.e, names[t], x);
			up = objective(&r, dout);
			x->x[at] -= 2 * h;
			eval_set(r.e, names[t], x);
			down = objective(&r, dout);
			x->x[at] += h;
			eval_set(r.e, names[t], x);
			if (fabs((up - down) / (2 * h) - grad[t]->x[i]) > 1e-8)
				fail_msg("%s[%d]: %.12g, by differences %.12g", grads[t], (int)i, grad[t]->x[i],
					 (up - down) / (2 * h));
		}
	end(&r);
}

/* Cross attention whose queries lack the batch, v with a dim of its own, ctx shorter than a row. */
static void attention_by_names(void **state)
{
	(void)state;
	struct run r = start("logical",
		"dim b=2\ndim s=1\ndim c=2\ndim d=1\ndim e=2\n"
		"buffer @\"q\" input f32[s, d]\nbuffer @\"k\" input f32[b, c, d]\nbuffer @\"v\" input f32[b, c, e]\n"
		"forward:\n"
		"%0 = read {buf=\"q\"} : f32[s, d]\n"
		"%1 = read {buf=\"k\"} : f32[b, c, d]\n"
		"%2 = read {buf=\"v\"} : f32[b, c, e]\n"
		"%3, %4 = attention %0, %1, %2 {dim=d, ctx=c, scale=1} : f32[b, s, e] \"o\", f32[b, s] \"lse\"\n"
		"%5, %6, %7 = attention_grad %0, %1, %2, %3, %4, %3 {dim=d, ctx=c, scale=1} : f32[s, d] \"dq\", "
		"f32[b, c, d] \"dk\", f32[b, c, e] \"dv\"\n");

	set(&r, "q", (double[]){ 1 });
	set(&r, "k", (double[]){ 0, 0, 0, log(3) });
	set(&r, "v", (double[]){ 2, 0, 4, 8, 4, 0, 8, 16 });
	step(&r);
	EXPECT(&r, "o", 3, 4, 7, 12);
	EXPECT(&r, "lse", log(2), log(4));
	EXPECT(&r, "dv", 1.5, 2, 1.5, 2, 1.75, 3, 5.25, 9);
	/* batch 0: dP = (6, 44), du = .5 (-19, 19); batch 1: dP = (28, 248), du = (.25, .75) (-165, 55). */
	EXPECT(&r, "dk", -9.5, 9.5, -41.25, 41.25);
	EXPECT(&r, "dq", 41.25 * log(3));
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(maps_of_one),
		cmocka_unit_test(derivatives),
		cmocka_unit_test(maps_of_more),
		cmocka_unit_test(leaves_and_broadcasts),
		cmocka_unit_test(sums_and_products),
		cmocka_unit_test(lookup_and_scatter),
		cmocka_unit_test(views),
		cmocka_unit_test(random_numbers),
		cmocka_unit_test(initial_values),
		cmocka_unit_test(writes_take_effect_after_the_step),
		cmocka_unit_test(collectives_on_uneven_meshes),
		cmocka_unit_test(split_loops),
		cmocka_unit_test(mistakes_are_found),
		cmocka_unit_test(values_are_rounded_at_random),
		cmocka_unit_test(microbatches),
		cmocka_unit_test(repeats),
		cmocka_unit_test(nested_repeats_and_random_streams),
		cmocka_unit_test(accumulated_stacks_and_kernels),
		cmocka_unit_test(attention_is_a_softmax),
		cmocka_unit_test(attention_gradient_by_differences),
		cmocka_unit_test(attention_by_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
