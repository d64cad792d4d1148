/* Attention with a bias, a mask and a window, of all shapes that fit: the evaluator against plain
 * loops, the runtime and its gradients against the evaluator, on meshes and in microbatches. The
 * gradients of the evaluator are checked by differences in test_gradients.c. */
#include <stdlib.h>

#include "tests/unit/both.h"

struct shape {
	const char *bias, *mask, *window; /* dims; NULL: none */
	bool causal;
	double cap, p;
};

static const struct shape shapes[] = {
	{ "h, s, t", NULL, NULL, true, 0, 0 },
	{ "s, t", "b, t", NULL, false, 0, 0 },
	{ "b, t", "s, t", "", true, 0, 0 },
	{ "g, h", NULL, "", true, 0, 0.3 },
	{ "", "b, s, t", "s", true, 2, 0 },
	{ "t, g, b, h, s", "b, h, t", "h", true, 1.5, 0.2 },
	{ NULL, "b, t", NULL, true, 0, 0.25 },
	{ NULL, "", "b", true, 3, 0 },
	{ NULL, NULL, "t", true, 0, 0 },
	{ "t", "g", NULL, false, 0, 0 },
};

/* A param has no batch dim: a bias that has one is a param plus something of each example. */
static const char *without_b(struct arena *mem, const char *dims)
{
	const char *b = strstr(dims, "b, ");

	return b ? arena_printf(mem, "%.*s%s", (int)(b - dims), dims, b + 3) : dims;
}

static const char *text_of(struct arena *mem, const struct shape *x, bool train)
{
	struct text t = { .mem = mem };
	int extra = (x->bias ? 1 : 0) | (x->mask ? 2 : 0) | (x->window ? 4 : 0);

	text_put(&t, "dim b=4\ndim s=5\ndim t=6\ndim h=2\ndim g=3\ndim d=4\ndim e=3\n"
		 "buffer @\"x\" input f32[b, s]\nbuffer @\"q\" param f32[s, h, g, d] init=normal(1)\n"
		 "buffer @\"k\" param f32[h, t, d] init=normal(1)\nbuffer @\"v\" param f32[t, h, e] init=normal(1)\n");
	if (x->bias)
		text_put(&t, "buffer @\"bias\" param f32[%s] init=normal(1)\n", without_b(mem, x->bias));
	if (x->mask)
		text_put(&t, "buffer @\"mask\" input bool[%s]\n", x->mask);
	if (x->window)
		text_put(&t, "buffer @\"win\" input int[%s]\n", x->window);
	if (!train)
		text_put(&t, "buffer @\"o\" probe f32[b, s, h, g, e]\nbuffer @\"lse\" probe f32[b, s, h, g]\n");
	text_put(&t, "forward:\n%%0 = read {buf=\"x\"} : f32[b, s]\n%%1 = read {buf=\"q\"} : f32[s, h, g, d]\n"
		 "%%2 = read {buf=\"k\"} : f32[h, t, d]\n%%3 = read {buf=\"v\"} : f32[t, h, e]\n%%4 = add %%1, %%0 : f32[b, s, h, g, d] \"qx\"\n"
		 "%%14 = rename %%0 {dims=(s), tos=(u)} : f32[b, u]\n%%15 = sum %%14 : f32[b]\n"
		 "%%5 = mul %%2, %%15 : f32[b, h, t, d] \"kx\"\n%%6 = add %%3, %%15 : f32[b, t, h, e]\n");
	if (x->bias)
		text_put(&t, "%%%d = read {buf=\"bias\"} : f32[%s]\n", strchr(x->bias, 'b') ? 17 : 7, without_b(mem, x->bias));
	if (x->bias && strchr(x->bias, 'b'))
		text_put(&t, "%%7 = add %%17, %%15 : f32[%s]\n", x->bias);
	if (x->mask)
		text_put(&t, "%%8 = read {buf=\"mask\"} : bool[%s]\n", x->mask);
	if (x->window)
		text_put(&t, "%%9 = read {buf=\"win\"} : int[%s]\n", x->window);
	text_put(&t, "%%10, %%11 = attention %%4, %%5, %%6%s%s%s {dim=d, ctx=t%s, scale=0.6", x->bias ? ", %7" : "",
		 x->mask ? ", %8" : "", x->window ? ", %9" : "", x->causal ? ", causal=s" : "");
	if (x->cap > 0)
		text_put(&t, ", cap=%g", x->cap);
	if (x->p > 0)
		text_put(&t, ", p=%g, key=\"a#1\", dims=(b, s, h, g, t)", x->p);
	if (extra)
		text_put(&t, ", extra=%d", extra);
	text_put(&t, "} : f32[b, s, h, g, e]%s, f32[b, s, h, g]\n", train ? " \"ox\"" : "");
	if (!train) {
		text_put(&t, "write %%10 {buf=\"o\"}\nwrite %%11 {buf=\"lse\"}\n");
		return t.s;
	}
	text_put(&t, "%%20 = sin %%10 : f32[b, s, h, g, e]\n%%21 = sum %%20 : f32[]\nreport %%21 {key=\"loss\"}\n"
		 "%%22 = const {value=0.1} : f32[]\n%%23 = const {value=0} : f32[]\n");
	for (int i = 0; i < (x->bias ? 4 : 3); i++)
		text_put(&t, "minimize %%21, %%22, %%23, %%23 {buf=\"%s\", opt=\"sgd\", group=0}\n",
			 ((const char *[]){ "q", "k", "v", "bias" })[i]);
	return t.s;
}

/* attrs in the order that the printer has them: printed once */
static struct module *parsed(struct arena *mem, struct diag *d, const char *props, const char *text)
{
	const char *all = arena_printf(mem, "ptc-ir 1\nmodule \"t\" form=logical %s workspace=0\ndim u=5\n%s", props, text);

	diag_init(d, mem, NULL, stderr);
	struct module *m = module_parse(mem, "t", all, strlen(all), d);
	if (!m || !verify(m, d))
		fail_msg("in\n%s", all);
	return m;
}

/* -- plain loops -- */

enum { B = 4, S = 5, T = 6, H = 2, G = 3, D = 4, E = 3 };

/* Element of a buffer with dims `dims` where b, s, t, h, g are as given. */
static double at(struct eval *e, const char *buffer, const char *dims, const int *i)
{
	static const char names[] = "bsthg";
	static const int size[] = { B, S, T, H, G };
	int64_t k = 0;

	for (const char *c = dims; *c; c++) {
		const char *n = strchr(names, *c);

		if (n)
			k = k * size[n - names] + i[n - names];
	}
	return eval_get(e, buffer)->x[k];
}

static void row(struct arena *mem, struct eval *e, const struct shape *x, int b, int s, int h, int g)
{
	double u[T], top = -INFINITY, sum = 0, part = 0;
	const double *q = eval_get(e, "q")->x, *k = eval_get(e, "k")->x, *v = eval_get(e, "v")->x, *in = eval_get(e, "x")->x;
	int64_t r = ((b * S + s) * H + h) * G + g;

	for (int i = 0; i < S; i++)
		part += in[b * S + i];
	for (int t = 0; t < T; t++) {
		int i[] = { b, s, t, h, g };

		u[t] = 0;
		for (int d = 0; d < D; d++)
			u[t] += (q[r % (S * H * G) * D + d] + in[b * S + s]) * k[(h * T + t) * D + d] * part;
		u[t] *= 0.6;
		if (x->cap > 0)
			u[t] = x->cap * tanh(u[t] / x->cap);
		if (x->bias)
			u[t] += at(e, "bias", without_b(mem, x->bias), i) + (strchr(x->bias, 'b') ? part : 0);
		if ((x->mask && !at(e, "mask", x->mask, i)) || (x->causal && t > s) ||
		    (x->window && s - t >= at(e, "win", x->window, i)))
			u[t] = -INFINITY;
		top = fmax(top, u[t]);
	}
	for (int t = 0; t < T; t++)
		sum += top > -INFINITY ? exp(u[t] - top) : 0;
	double lse = eval_get(e, "lse")->x[r];
	if (top == -INFINITY ? lse != top : fabs(lse - top - log(sum)) > 1e-12 * (1 + fabs(lse)))
		fail_msg("lse is %g, not %g", lse, top + log(sum));
	for (int c = 0; c < E; c++) {
		double o = 0;

		for (int t = 0; t < T && sum > 0; t++)
			o += exp(u[t] - top) / sum * (v[(t * H + h) * E + c] + part);
		if (fabs(o - eval_get(e, "o")->x[r * E + c]) > 1e-12 * (1 + fabs(o)))
			fail_msg("o is %g, not %g", eval_get(e, "o")->x[r * E + c], o);
	}
}

static void feed(struct eval *e, const char *name, int step)
{
	struct tensor *t = eval_get(e, name);

	if (!t)
		return;
	for (int64_t i = 0; i < t->count; i++)
		t->x[i] = streq(name, "mask") ? (i * 31 + step) % 7 > 1 : streq(name, "win") ? (double)((i * 7 + step) % 5 - 1) :
			  sin((double)i * 1.3 + step);
	eval_set(e, name, t);
}

static void by_the_book(void **state)
{
	(void)state;
	for (size_t n = 0; n < LEN(shapes); n++)
		for (int step = 0; step < 3; step++) {
			struct arena *mem = arena_new();
			struct shape x = shapes[n];
			struct diag d;
			const char *why = NULL;

			x.p = 0; /* dropout is checked by test_eval.c */
			struct eval *e = eval_new(mem, parsed(mem, &d, "precision=f32 micro=1", text_of(mem, &x, false)), 3);
			eval_init(e);
			feed(e, "x", step);
			feed(e, "mask", step);
			feed(e, "win", step);
			if (!eval_step(e, 0, true, NULL, &why))
				fail_msg("%s", why);
			for (int i = 0; i < B * S * H * G; i++)
				row(mem, e, &x, i / (S * H * G), i / (H * G) % S, i / G % H, i % G);
			arena_free(mem);
		}
}

/* -- the runtime -- */

static void all_the_way(void **state)
{
	(void)state;
	static const char *const meshes[][2] = {
		{ "", "" }, { "mesh dp=2\nmesh tp=2\n", "arrow b -> dp\narrow h -> tp\n" },
		{ "mesh sp=3\n", "arrow s -> sp\narrow optimizer -> sp\n" },
		{ "mesh tp=4\n", "arrow g, h -> tp\n" }, { "mesh ep=3\n", "arrow e -> ep\n" },
	};

	for (size_t n = 0; n < LEN(shapes); n++)
		for (size_t i = 0; i < LEN(meshes); i++) {
			struct arena *mem = arena_new();
			const char *text = arena_printf(mem, "dim u=5\n%s", text_of(mem, &shapes[n], true));

			text = both_on_mesh(mem, meshes[i][0], meshes[i][1], text);
			both_run(i % 2 ? "precision=f32 micro=2 batch=b" : "precision=f32 micro=1 batch=b", text, 1e-4);
			arena_free(mem);
		}
}

/* A bias is added in f32; q, k and v are rounded. */
static void in_bf16(void **state)
{
	(void)state;
	for (size_t n = 0; n < LEN(shapes); n++) {
		struct arena *mem = arena_new();

		struct both x = both_open("precision=bf16 micro=1 batch=b",
					  arena_printf(mem, "dim u=5\n%s", text_of(mem, &shapes[n], true)));

		both_step(&x, 0, true, 0.1);
		both_close(&x);
		arena_free(mem);
	}
}

static void wrong(const char *types, const char *op)
{
	struct arena *mem = arena_new();
	struct diag d;
	const char *all = arena_printf(mem, "ptc-ir 1\nmodule form=logical micro=1\ndim b=2\ndim s=3\ndim t=3\ndim d=2\nforward:\n"
				       "%%0 = const {value=1} : f32[b, s, d]\n%%1 = const {value=1} : f32[b, t, d]\n%%2 = const {value=1} : %s\n"
				       "%%3, %%4 = attention %%0, %%1, %%1%s : f32[b, s, d], f32[b, s]\n", types, op);

	diag_init(&d, mem, NULL, NULL);
	struct module *m = module_parse(mem, "t", all, strlen(all), &d);
	if (m && verify(m, &d))
		fail_msg("good: %s", op);
	arena_free(mem);
}

static void mistakes(void **state)
{
	(void)state;
	wrong("int[]", ", %2 {dim=d, ctx=t, scale=1, extra=1}");
	wrong("f32[d]", ", %2 {dim=d, ctx=t, scale=1, extra=1}");
	wrong("f32[t]", " {dim=d, ctx=t, scale=1, extra=1}");
	wrong("f32[t]", ", %2 {dim=d, ctx=t, scale=1, extra=2}");
	wrong("f32[t]", ", %2 {dim=d, ctx=t, scale=1}");
	wrong("int[]", ", %2 {dim=d, ctx=t, scale=1, extra=4}"); /* not causal */
	wrong("f32[t]", ", %2 {dim=d, ctx=t, scale=1, extra=8}");
	wrong("f32[t]", ", %2, %2 {dim=d, ctx=t, scale=1, extra=1}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_the_book), cmocka_unit_test(all_the_way), cmocka_unit_test(in_bf16),
		cmocka_unit_test(mistakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
