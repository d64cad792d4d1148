/* argmax, topk and rank: the evaluator against numbers worked out by hand, generated kernels against
 * the evaluator, on meshes and in microbatches. */
#include "tests/unit/both.h"

/* -- the evaluator -- */

static void set(struct eval *e, const char *name, const double *x)
{
	struct tensor *t = eval_get(e, name);

	memcpy(t->x, x, (size_t)t->count * sizeof *x);
	eval_set(e, name, t);
}

static void expect(struct eval *e, const char *name, const double *want)
{
	struct tensor *t = eval_get(e, name);

	for (int64_t i = 0; i < t->count; i++)
		if (t->x[i] != want[i])
			fail_msg("%s[%d] is %g, not %g", name, (int)i, t->x[i], want[i]);
}

static void by_hand(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct diag d;
	struct module *m = both_parse(mem, &d, "precision=f32 micro=1",
		"dim b=2\ndim n=5\ndim k=3\n"
		"buffer @\"x\" input f32[b, n]\nbuffer @\"e\" input int[n, b]\n"
		"buffer @\"best\" probe int[b]\nbuffer @\"top\" probe int[k, b]\nbuffer @\"r1\" probe int[b, n]\n"
		"buffer @\"r2\" probe int[b, n]\nbuffer @\"r3\" probe int[b, n]\n"
		"forward:\n"
		"%0 = read {buf=\"x\"} : f32[b, n]\n%1 = read {buf=\"e\"} : int[n, b]\n"
		"%2 = argmax %0 {dim=n} : int[b]\n%3 = topk %0 {dim=n, to=k} : int[b, k]\n"
		"%4 = rank %1 {dims=(n)} : int[n, b]\n%5 = rank %1 {dims=(b, n)} : int[b, n]\n"
		"%6 = rank %1 {dims=(n, b)} : int[b, n]\n"
		"write %2 {buf=\"best\"}\nwrite %3 {buf=\"top\"}\nwrite %4 {buf=\"r1\"}\nwrite %5 {buf=\"r2\"}\nwrite %6 {buf=\"r3\"}\n");
	struct eval *e = eval_new(mem, m, 1);
	const char *why = NULL;

	eval_init(e);
	set(e, "x", (double[]){ 1, 7, -2, 7, 5, -INFINITY, -INFINITY, -3, -INFINITY, -1 });
	set(e, "e", (double[]){ 4, 4, 2, 4, 4, -100, 4, 2, 2, -100 }); /* b 0: 4 2 4 4 2, b 1: 4 4 -100 2 -100 */
	if (!eval_step(e, 0, true, NULL, &why))
		fail_msg("%s", why);
	expect(e, "best", (double[]){ 1, 4 });
	expect(e, "top", (double[]){ 1, 4, 3, 2, 4, 0 });
	expect(e, "r1", (double[]){ 0, 0, 1, 2, 1, 0, 1, 0, 0, 1 });
	expect(e, "r2", (double[]){ 0, 0, 1, 2, 1, 3, 4, 0, 2, 1 });
	expect(e, "r3", (double[]){ 0, 0, 3, 4, 2, 1, 2, 0, 1, 1 });
	arena_free(mem);
}

static void refused(const char *ops)
{
	struct arena *mem = arena_new();
	struct diag d;
	const char *all = arena_printf(mem, "ptc-ir 1\nmodule form=logical micro=1\ndim b=2\ndim n=5\ndim k=6\nforward:\n"
				       "%%0 = const {value=1} : f32[b, n]\n%%1 = const {value=1} : int[b, n]\n%s", ops);

	diag_init(&d, mem, NULL, NULL);
	struct module *m = module_parse(mem, "t", all, strlen(all), &d);
	if (m && verify(m, &d))
		fail_msg("good: %s", ops);
	arena_free(mem);
}

static void mistakes(void **state)
{
	(void)state;
	refused("%2 = argmax %0 {dim=n} : f32[b]\n");
	refused("%2 = argmax %0 {dim=k} : int[b]\n");
	refused("%2 = argmax %0 {dim=n} : int[b, n]\n");
	refused("%2 = argmax %0 : int[b]\n");
	refused("%2 = topk %0 {dim=n, to=k} : int[b, k]\n");
	refused("%2 = topk %0 {dim=n, to=b} : int[b]\n");
	refused("%2 = rank %0 {dims=(n)} : int[b, n]\n");
	refused("%2 = rank %1 {dims=(k)} : int[b, n]\n");
	refused("%2 = rank %1 {dims=()} : int[b, n]\n");
	refused("%2 = rank %1 {dims=(n, n)} : int[b, n]\n");
}

/* -- all the way: the runtime against the evaluator -- */

/* Positions by all three, summed up so that each counts; the order of dims in memory varies. */
static const char picks[] =
	"dim b=8\ndim s=6\ndim n=7\ndim k=3\n"
	"buffer @\"x\" input f32[b, s, n]\nbuffer @\"e\" input int[b, s, n]\nbuffer @\"wide\" input int[b, n]\n"
	"buffer @\"w\" param f32[n] init=constant(2)\n"
	"buffer @\"sums\" state f32[s, k] init=zeros\nbuffer @\"am\" state f32[s] init=zeros\n"
	"buffer @\"ranks\" state f32[s, n] init=zeros\nbuffer @\"far\" state f32[n] init=zeros\n"
	"forward:\n"
	"%90 = read {buf=\"x\"} : f32[b, s, n]\n%1 = read {buf=\"e\"} : int[b, s, n]\n%2 = read {buf=\"wide\"} : int[b, n]\n"
	"%91 = read {buf=\"w\"} : f32[n]\n%0 = mul %90, %91 : f32[b, s, n] \"xw\"\n%92 = cast %91 : int[n]\n"
	"%93 = mul %1, %92 : int[n, b, s] \"ew\"\n"
	"%3 = index {dim=n} : int[n]\n%4 = index {dim=b} : int[b]\n"
	"%10 = topk %0 {dim=n, to=k} : int[b, s, k]\n%11 = argmax %0 {dim=n} : int[s, b]\n"
	"%12 = rank %93 {dims=(s, n)} : int[n, b, s]\n%13 = const {value=100003} : int[]\n%14 = mul %2, %13 : int[b, n]\n"
	"%15 = rank %14 {dims=(n)} : int[b, n]\n%16 = argmax %3 {dim=n} : int[]\n"
	"%20 = cast %10 : f32[b, s, k]\n%21 = cast %11 : f32[s, b]\n%22 = cast %12 : f32[n, b, s]\n%23 = cast %15 : f32[b, n]\n"
	"%24 = mul %20, %4 : f32[b, s, k]\n%25 = mul %21, %4 : f32[s, b]\n%26 = mul %22, %4 : f32[n, b, s]\n"
	"%27 = mul %23, %4 : f32[b, n]\n%30 = sum %24 : f32[s, k]\n%31 = sum %25 : f32[s]\n%32 = sum %26 : f32[s, n]\n"
	"%33 = sum %27 : f32[n]\n%34 = cast %16 : f32[]\n%35 = add %31, %34 : f32[s]\n"
	"write %30 {buf=\"sums\"}\nwrite %35 {buf=\"am\"}\nwrite %32 {buf=\"ranks\"}\nwrite %33 {buf=\"far\"}\n"
	"%36 = sum %31 : f32[]\nreport %36 {key=\"loss\"}\n";

static const char mesh[] = "mesh dp=3\nmesh tp=2\n", arrows[] = "arrow b -> dp\narrow s -> tp\n";

static void run_all(const char *text)
{
	struct arena *mem = arena_new();

	both_run("precision=f32 micro=1 batch=b", text, 1e-5);
	both_run("precision=f32 micro=2 batch=b", text, 1e-5);
	both_run("precision=f32 micro=1 batch=b", both_on_mesh(mem, mesh, arrows, text), 1e-5);
	both_run("precision=f32 micro=2 batch=b", both_on_mesh(mem, mesh, arrows, text), 1e-5);
	arena_free(mem);
}

static void kernels(void **state)
{
	(void)state;
	run_all(picks);
}

/* Ranks along the batch: of inputs only they are known before the first microbatch. */
static void along_the_batch(void **state)
{
	(void)state;
	run_all("dim b=8\ndim s=6\nbuffer @\"e\" input int[b, s]\nbuffer @\"w\" param f32[s] init=normal(1)\n"
		"buffer @\"st\" state f32[s] init=zeros\nforward:\n"
		"%0 = read {buf=\"e\"} : int[b, s]\n%1 = read {buf=\"w\"} : f32[s]\n%2 = rank %0 {dims=(b)} : int[b, s]\n"
		"%3 = cast %2 : f32[b, s]\n%4 = mul %3, %1 : f32[b, s]\n%5 = mul %4, %0 : f32[b, s]\n%6 = sum %5 : f32[s]\n"
		"write %6 {buf=\"st\"}\n");
}

static void refused_with_microbatches(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct diag d;
	struct module *m = both_parse(mem, &d, "precision=f32 micro=2 batch=b",
		"dim b=8\nbuffer @\"e\" input f32[b]\nbuffer @\"w\" param f32[] init=normal(1)\nforward:\n"
		"%0 = read {buf=\"e\"} : f32[b]\n%1 = read {buf=\"w\"} : f32[]\n%2 = mul %0, %1 : f32[b]\n"
		"%3 = argmax %2 {dim=b} : int[]\n%4 = cast %3 : f32[]\nreport %4 {key=\"x\"}\n");

	diag_init(&d, mem, NULL, NULL);
	assert_false(pass_microbatch(m, &d));
	assert_int_equal(d.errors, 1);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_hand), cmocka_unit_test(mistakes), cmocka_unit_test(kernels),
		cmocka_unit_test(along_the_batch), cmocka_unit_test(refused_with_microbatches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
