/* simplify: what it leaves of small modules, that values stay the same numbers under the same names,
 * and that lookups by index arithmetic become views. precision: which values are f32. */
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

static const char header[] =
	"dim b=3\ndim c=4\ndim d=2\ndim e=2\ndim s=5\ndim k=4\ndim n=3\ndim r=6\ndim q=3\ndim o=2\ndim im=7\ndim w=12\n"
	"buffer @\"p\" param f32[b, c] init=normal(1)\n"
	"buffer @\"l\" param f32[n, c] init=normal(1)\n"
	"buffer @\"img\" param f32[b, r, c] init=normal(1)\n"
	"buffer @\"grid\" param f32[b, q, o] init=normal(1)\n"
	"buffer @\"long\" param f32[w, b] init=normal(1)\n"
	"buffer @\"sq\" param f32[c, k] init=normal(1)\n"
	"buffer @\"st\" state f32[b] init=normal(1)\n"
	"forward:\n";

#define P "%1 = read {buf=\"p\"} : f32[b, c] \"p\"\n"

struct seen {
	struct arena *mem;
	const struct tensor *y;
};

static struct module *parse(struct arena *mem, const char *props, const char *text)
{
	struct diag d;
	const char *all = arena_printf(mem, "ptc-ir 1\nmodule \"t\" form=logical micro=1 workspace=0 %s\n%s%s", props,
				       header, text);

	diag_init(&d, mem, NULL, stderr);
	struct module *m = module_parse(mem, "t", all, strlen(all), &d);
	if (!m || !verify(m, &d))
		fail_msg("%s", all);
	return m;
}

static void see(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error)
{
	struct seen *s = me;

	assert_null(error);
	if (!streq(v->name, "y") || iter)
		return;
	struct tensor *t = tensor_new(s->mem, whole->nd, whole->size);
	memcpy(t->x, whole->x, (size_t)t->count * sizeof *t->x);
	s->y = t;
}

/* The value called y. */
static const struct tensor *run(struct arena *mem, const struct module *m)
{
	struct seen s = { mem, NULL };
	struct eval *e = eval_new(mem, m, 5);
	const char *why = NULL;

	eval_init(e);
	if (!eval_step(e, 0, true, &(struct eval_watch){ see, &s, false }, &why))
		fail_msg("%s", why);
	assert_non_null(s.y);
	return s.y;
}

static int count(const struct block *block, enum opcode code)
{
	int n = 0;

	for (const struct op *op = block->first; op; op = op->next)
		n += (op->code == code) + (op->body ? count(op->body, code) : 0);
	return n;
}

static int ops(const struct block *block)
{
	int n = 0;

	for (const struct op *op = block->first; op; op = op->next)
		n += 1 + (op->body ? ops(op->body) : 0);
	return n;
}

/* text makes "y"; what reads it keeps it alive. */
static struct module *simplified(struct arena *mem, const char *text)
{
	struct diag d;
	size_t len;
	struct module *before = parse(mem, "precision=f32", text), *m = parse(mem, "precision=f32", text);

	diag_init(&d, mem, NULL, stderr);
	assert_true(pass_simplify(m, &d));
	if (!verify(m, &d))
		fail_msg("%s", module_print(m, mem, &len));
	char *once = module_print(m, mem, &len);
	assert_non_null(module_parse(mem, "again", once, len, &d));
	assert_true(pass_simplify(m, &d));
	assert_string_equal(once, module_print(m, mem, &len)); /* nothing is left to do */
	const struct tensor *x = run(mem, before), *y = run(mem, m);
	assert_int_equal(x->count, y->count);
	for (int64_t i = 0; i < x->count; i++)
		if (!(x->x[i] == y->x[i]))
			fail_msg("y[%d] is %g, not %g\n%s", (int)i, y->x[i], x->x[i], once);
	return m;
}

#define END "%98 = sum %90 : f32[]\nreport %98 {key=\"loss\"}\n"

static void constants_fold(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct module *m = simplified(mem, P
		"%2 = const {value=3} : int[]\n%3 = const {value=2} : int[]\n%4 = div %2, %3 : f32[]\n%5 = sqrt %4 : f32[]\n"
		"%6 = gt %2, %3 : bool[]\n%7 = where %6, %5, %4 : f32[]\n%8 = floordiv %2, %3 : int[]\n%9 = mul %7, %8 : f32[]\n"
		"%90 = mul %1, %9 : f32[b, c] \"y\"\n" END);

	assert_int_equal(ops(&m->top), 5); /* read, const, mul, sum, report */
	arena_free(mem);
}

static void identities(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct module *m = simplified(mem, P
		"%2 = const {value=1} : f32[]\n%3 = const {value=0} : f32[]\n%4 = mul %1, %2 : f32[b, c]\n"
		"%5 = add %3, %4 : f32[b, c]\n%6 = sub %5, %3 : f32[b, c]\n%7 = div %6, %2 : f32[b, c]\n%8 = neg %7 : f32[b, c]\n"
		"%9 = neg %8 : f32[b, c]\n%10 = cast %9 : f32[b, c]\n%11 = const {value=1} : bool[]\n"
		"%12 = where %11, %10, %3 : f32[b, c]\n%13 = accum %12, %3 : f32[b, c]\n%90 = sin %13 : f32[b, c] \"y\"\n"
		END);

	assert_int_equal(ops(&m->top), 4);
	/* what widens is no identity */
	m = simplified(mem, P "%2 = const {value=1} : f32[c]\n%3 = read {buf=\"st\"} : f32[b]\n"
		       "%90 = mul %3, %2 : f32[b, c] \"y\"\n" END);
	assert_int_equal(count(&m->top, OP_MUL), 1);
	/* a name stays */
	m = simplified(mem, P "%2 = const {value=1} : f32[]\n%90 = mul %1, %2 : f32[b, c] \"y\"\n" END);
	assert_int_equal(count(&m->top, OP_MUL), 1);
	/* a mark for pass precision stays */
	m = simplified(mem, P "%90 = cast %1 {key=\"fp32\"} : f32[b, c] \"y\"\n" END);
	assert_int_equal(count(&m->top, OP_CAST), 1);
	arena_free(mem);
}

static void equal_ops(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct module *m = simplified(mem, P
		"%2 = read {buf=\"p\"} : f32[b, c]\n%3 = exp %1 : f32[b, c]\n%4 = exp %2 : f32[b, c]\n"
		"%5 = rng {key=\"a\", dims=(b)} : f32[b]\n%6 = rng {key=\"a\", dims=(b)} : f32[b]\n"
		"%7 = rng {key=\"b\", dims=(b)} : f32[b]\n%8 = mul %3, %5 : f32[b, c]\n%9 = mul %4, %6 : f32[b, c]\n"
		"%10 = add %8, %9 : f32[b, c]\n%90 = mul %10, %7 : f32[b, c] \"y\"\n" END);

	assert_int_equal(count(&m->top, OP_READ), 1);
	assert_int_equal(count(&m->top, OP_EXP), 1);
	assert_int_equal(count(&m->top, OP_RNG), 2);
	/* two names are two values */
	m = simplified(mem, P "%2 = exp %1 : f32[b, c] \"one\"\n%3 = exp %1 : f32[b, c] \"two\"\n"
		       "%90 = add %2, %3 : f32[b, c] \"y\"\n" END);
	assert_int_equal(count(&m->top, OP_EXP), 2);
	arena_free(mem);
}

/* Carried values, invariants, slices and stacks that nobody needs go; one that never changes is an
 * invariant. */
static void loops_are_pruned(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct module *m = simplified(mem, P
		"%2 = read {buf=\"l\"} : f32[n, c]\n%3 = exp %1 : f32[b, c]\n%4 = sin %1 : f32[b, c]\n%5 = cos %1 : f32[b, c]\n"
		"%6, %7, %8, %9 = repeat %3, %4, %5, %3, %1, %1, %2, %2 {dim=n, ncarry=3, nwith=3} : "
		"f32[b, c], f32[b, c], f32[b, c], f32[n, b, c] {\n"
		"args %10: f32[b, c], %11: f32[b, c], %12: f32[b, c], %13: f32[b, c], %14: f32[b, c], %15: f32[b, c], "
		"%16: f32[c], %17: f32[c]\n"
		"%20 = mul %10, %16 : f32[b, c]\n%21 = mul %20, %12 : f32[b, c]\n%22 = mul %21, %14 : f32[b, c]\n"
		"%23 = mul %22, %15 : f32[b, c]\n%24 = add %11, %13 : f32[b, c]\n%25 = exp %24 : f32[b, c]\n"
		"yield %23, %24, %12, %25\n}\n"
		"%90 = sin %6 : f32[b, c] \"y\"\n" END);
	const struct op *r = m->top.first;

	while (r->code != OP_REPEAT)
		r = r->next;
	assert_int_equal(r->at.ncarry, 1);
	assert_int_equal(r->at.nwith, 2); /* %5, %1 */
	assert_int_equal(r->nin, 4);
	assert_int_equal(r->nout, 1);
	assert_int_equal(count(&m->top, OP_EXP), 1);
	assert_int_equal(count(&m->top, OP_SIN), 1); /* %4 has gone */
	/* nothing is left of a loop that nobody reads */
	m = simplified(mem, P
		"%6 = repeat %1 {dim=n, ncarry=1, nwith=0} : f32[b, c] {\nargs %10: f32[b, c]\n%11 = exp %10 : f32[b, c]\n"
		"yield %11\n}\n%90 = sin %1 : f32[b, c] \"y\"\n" END);
	assert_int_equal(count(&m->top, OP_REPEAT), 0);
	arena_free(mem);
}

struct look {
	const char *text;
	int lookups;
	enum opcode code; /* an op that must be there */
};

#define I(no, dim) "%" #no " = index {dim=" #dim "} : int[" #dim "]\n"
#define K(no, x) "%" #no " = const {value=" #x "} : int[]\n"
#define IMG "%1 = read {buf=\"img\"} : f32[b, r, c]\n"
#define GRID "%1 = read {buf=\"grid\"} : f32[b, q, o]\n"

static const struct look looks[] = {
	/* x[c = index(k)]: another name */
	{ P I(2, k) "%90 = lookup %1, %2 {dims=(c)} : f32[b, k] \"y\"\n", 0, OP_RENAME },
	/* x[c = index(d) + 1] */
	{ P I(2, d) K(3, 1) "%4 = add %2, %3 : int[d]\n%90 = lookup %1, %4 {dims=(c)} : f32[b, d] \"y\"\n", 0, OP_SLICE },
	/* x[c = 3 - 2 * index(s)], past both ends */
	{ P I(2, s) K(3, 2) K(5, 3) "%4 = mul %3, %2 : int[s]\n%6 = sub %5, %4 : int[s]\n"
	  "%90 = lookup %1, %6 {dims=(c)} : f32[b, s] \"y\"\n", 0, OP_SLICE },
	/* x[c = index(c) - 1]: a shift */
	{ P I(2, c) K(3, 1) "%4 = sub %2, %3 : int[c]\n%90 = lookup %1, %4 {dims=(c)} : f32[b, c] \"y\"\n", 0, OP_SLICE },
	/* x[c = (index(k) + 3) % 4] */
	{ P I(2, k) K(3, 3) K(4, 4) "%5 = add %2, %3 : int[k]\n%6 = mod %5, %4 : int[k]\n"
	  "%90 = lookup %1, %6 {dims=(c)} : f32[b, k] \"y\"\n", 0, OP_ROLL },
	/* x[c = index(d) * 2 + index(e)] */
	{ P I(2, d) I(3, e) K(4, 2) "%5 = mul %2, %4 : int[d]\n%6 = add %5, %3 : int[d, e]\n"
	  "%90 = lookup %1, %6 {dims=(c)} : f32[b, d, e] \"y\"\n", 0, OP_SPLIT },
	/* patches: img[r = index(q) * 2 + index(o), c = index(d) * 2 + index(e)] */
	{ IMG I(2, q) I(3, o) I(4, d) I(5, e) K(6, 2) "%7 = mul %2, %6 : int[q]\n%8 = add %7, %3 : int[q, o]\n"
	  "%9 = mul %4, %6 : int[d]\n%10 = add %9, %5 : int[d, e]\n"
	  "%90 = lookup %1, %8, %10 {dims=(r, c)} : f32[b, q, o, d, e] \"y\"\n", 0, OP_SPLIT },
	/* grid[q = index(r) // 2, o = index(r) % 2] */
	{ GRID I(2, r) K(3, 2) "%4 = floordiv %2, %3 : int[r]\n%5 = mod %2, %3 : int[r]\n"
	  "%90 = lookup %1, %4, %5 {dims=(q, o)} : f32[b, r] \"y\"\n", 0, OP_MERGE },
	/* class token: grid[q = i // 2, o = i % 2], i = index(im) - 1 */
	{ GRID I(2, im) K(3, 2) K(6, 1) "%7 = sub %2, %6 : int[im]\n%4 = floordiv %7, %3 : int[im]\n"
	  "%5 = mod %7, %3 : int[im]\n%90 = lookup %1, %4, %5 {dims=(q, o)} : f32[b, im] \"y\"\n", 0, OP_MERGE },
	/* a diagonal is no view: sq[c = index(d), k = index(d)] */
	{ "%1 = read {buf=\"sq\"} : f32[c, k]\n" I(2, d) "%90 = lookup %1, %2, %2 {dims=(c, k)} : f32[d] \"y\"\n", 1, OP_READ },
	/* nor is a matched dim: long[w = index(b) + 1] of [w, b] */
	{ "%1 = read {buf=\"long\"} : f32[w, b]\n" I(2, b) K(3, 1) "%4 = add %2, %3 : int[b]\n"
	  "%90 = lookup %1, %4 {dims=(w)} : f32[b] \"y\"\n", 1, OP_READ },
	/* nor a convolution, yet: img[r = index(q) + index(o)] */
	{ IMG I(2, q) I(3, o) "%8 = add %2, %3 : int[q, o]\n%90 = lookup %1, %8 {dims=(r)} : f32[b, q, o, c] \"y\"\n", 1, OP_READ },
	/* one of two: img[r = index(q) + 1, c = (index(s) * index(s)) % 3] */
	{ IMG I(2, q) I(3, s) K(4, 1) K(5, 3) "%6 = add %2, %4 : int[q]\n%7 = mul %3, %3 : int[s]\n%8 = mod %7, %5 : int[s]\n"
	  "%90 = lookup %1, %6, %8 {dims=(r, c)} : f32[b, q, s] \"y\"\n", 1, OP_SLICE },
	/* two ends swapped: sq[c = index(k), k = index(c)] is a transpose by names */
	{ "%1 = read {buf=\"sq\"} : f32[c, k]\n" I(2, k) I(3, c) "%90 = lookup %1, %2, %3 {dims=(c, k)} : f32[k, c] \"y\"\n", 1,
	  OP_READ },
};

static void lookups_are_views(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(looks); i++) {
		struct arena *mem = arena_new();
		size_t len;
		struct module *m = simplified(mem, arena_printf(mem, "%s%s", looks[i].text, END));

		if (count(&m->top, OP_LOOKUP) != looks[i].lookups || !count(&m->top, looks[i].code))
			fail_msg("case %zu:\n%s", i, strstr(module_print(m, mem, &len), "forward:"));
		arena_free(mem);
	}
}

/* -- precision -- */

static struct value *named(const struct block *block, const char *name)
{
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			if (streq(op->out[i]->name, name))
				return op->out[i];
		struct value *v = op->body ? named(op->body, name) : NULL;
		if (v)
			return v;
	}
	return NULL;
}

static const char mixed[] = P
	"%2 = read {buf=\"sq\"} : f32[c, k]\n%3 = read {buf=\"st\"} : f32[b]\n"
	"%4 = sum %1 : f32[b]\n%5 = sub %1, %4 : f32[b, c]\n%6 = exp %5 : f32[b, c]\n%7 = sin %6 : f32[b, c] \"h\"\n"
	"%8 = einsum %7, %2 : f32[b, k] \"e\"\n%9 = cast %1 {key=\"fp32\"} : f32[b, c]\n%10 = mul %9, %6 : f32[b, c] \"strong\"\n"
	"%11 = cast %2 {key=\"fp32\"} : f32[c, k]\n%12 = einsum %10, %11 : f32[b, k] \"wide\"\n"
	"%13 = einsum %10, %2 : f32[b, k] \"narrow\"\n%14 = index {dim=k} : int[k]\n%15 = const {value=0.5} : f32[]\n"
	"%16 = mul %14, %15 : f32[k] \"angle\"\n%17 = cos %16 : f32[k]\n%18 = mul %8, %17 : f32[b, k] \"turned\"\n"
	"%19 = mul %3, %15 : f32[b] \"average\"\nwrite %19 {buf=\"st\"}\n"
	"%20 = repeat %18 {dim=n, ncarry=1, nwith=0} : f32[b, k] \"x\" {\nargs %30: f32[b, k]\n%31 = tanh %30 : f32[b, k]\n"
	"%32 = cast %31 {key=\"bf16\"} : f32[b, k] \"low\"\n%33 = mul %31, %32 : f32[b, k]\nyield %33\n}\n"
	"%21 = add %20, %13 : f32[b, k]\n%22 = add %21, %12 : f32[b, k]\n%90 = sum %22 : f32[] \"y\"\n"
	"report %90 {key=\"loss\"}\n%97 = const {value=1} : f32[]\nminimize %90, %97, %97, %97 {buf=\"p\", opt=\"sgd\", group=0}\n"
	"minimize %90, %97, %97, %97 {buf=\"sq\", opt=\"sgd\", group=0}\n";

static void precision_types(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		enum dtype dt;
	} want[] = {
		{ "p", BF16 }, { "h", BF16 }, { "e", BF16 }, { "strong", F32 }, { "wide", F32 }, { "narrow", BF16 },
		{ "angle", F32 }, { "turned", BF16 }, { "average", F32 }, { "x", BF16 }, { "low", BF16 }, { "y", F32 },
	};
	struct arena *mem = arena_new();
	struct module *m = parse(mem, "precision=bf16", mixed), *plain = parse(mem, "precision=bf16", mixed);
	struct diag d;
	size_t len;

	diag_init(&d, mem, NULL, stderr);
	assert_true(pass_simplify(m, &d));
	assert_true(pass_precision(m, &d));
	if (!verify(m, &d))
		fail_msg("%s", module_print(m, mem, &len));
	for (size_t i = 0; i < LEN(want); i++) {
		const struct value *v = named(&m->top, want[i].name);

		assert_non_null(v);
		if (v->dt != want[i].dt)
			fail_msg("%s is %s\n%s", want[i].name, dtype_name[v->dt], module_print(m, mem, &len));
	}
	const struct tensor *x = run(mem, plain), *y = run(mem, m);
	assert_true(fabs(x->x[0] - y->x[0]) < 1e-12); /* the evaluator does not round */
	assert_true(pass_differentiate(m, &d) && verify(m, &d));
	assert_true(pass_optimizer(m, &d) && verify(m, &d));
	assert_true(pass_simplify(m, &d) && verify(m, &d));
	run(mem, m);
	arena_free(mem);
}

/* In f32 the marks go; bf16(x) rounds and what comes of it is f32. */
static void precision_f32(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct module *m = parse(mem, "precision=f32", mixed);
	struct diag d;

	diag_init(&d, mem, NULL, stderr);
	assert_true(pass_precision(m, &d) && verify(m, &d));
	assert_int_equal(named(&m->top, "h")->dt, F32);
	assert_int_equal(named(&m->top, "low")->dt, F32);
	assert_int_equal(named(&m->top, "low")->def->in[0]->dt, BF16);
	assert_true(pass_differentiate(m, &d) && verify(m, &d));
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(constants_fold), cmocka_unit_test(identities), cmocka_unit_test(equal_ops),
		cmocka_unit_test(loops_are_pruned), cmocka_unit_test(lookups_are_views),
		cmocka_unit_test(precision_types), cmocka_unit_test(precision_f32),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
