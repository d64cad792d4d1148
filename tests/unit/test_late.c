/* Reports and states that are functions of sums over the batch: with microbatches the sums are
 * complete before anything is made of them, at the top and in loops. An evaluation changes no state. */
#include "tests/unit/both.h"

static const char mesh[] = "mesh dp=2\nmesh tp=3\n", arrows[] = "arrow b -> dp\narrow n -> tp\n";

static void run_all(const char *text)
{
	struct arena *mem = arena_new();

	both_run("precision=f32 micro=1 batch=b", text, 2e-5);
	both_run("precision=f32 micro=4 batch=b", text, 2e-5);
	both_run("precision=f32 micro=1 batch=b", both_on_mesh(mem, mesh, arrows, text), 2e-5);
	both_run("precision=f32 micro=4 batch=b", both_on_mesh(mem, mesh, arrows, text), 2e-5);
	arena_free(mem);
}

#define HEAD "dim b=16\ndim n=5\ndim l=3\n" \
	"buffer @\"x\" input f32[b, n]\nbuffer @\"w\" param f32[n] init=normal(1)\nbuffer @\"lw\" param f32[l, n] init=normal(1)\n" \
	"buffer @\"st\" state f32[n] init=ones\nbuffer @\"ls\" state f32[l, n] init=normal(0.1)\nbuffer @\"num\" state f32[] init=zeros\n" \
	"forward:\n%0 = read {buf=\"x\"} : f32[b, n]\n%1 = read {buf=\"w\"} : f32[n]\n%2 = read {buf=\"lw\"} : f32[l, n]\n" \
	"%3 = read {buf=\"st\"} : f32[n]\n%4 = read {buf=\"ls\"} : f32[l, n]\n%5 = mul %0, %1 : f32[b, n] \"h\"\n%6 = const {value=0.1} : f32[]\n"
#define TRAIN "%90 = mul %5, %5 : f32[b, n]\n%91 = sum %90 : f32[]\nreport %91 {key=\"loss\"}\n" \
	"minimize %91, %6, %6, %6 {buf=\"w\", opt=\"sgd\", group=0}\n"

static void reports(void **state)
{
	(void)state;
	run_all(HEAD
		"%10 = sum %5 : f32[]\n%11 = abs %5 : f32[b, n]\n%12 = sum %11 : f32[]\n%13 = div %10, %12 : f32[]\n"
		"report %13 {key=\"ratio\"}\n"
		"%14 = sum %5 : f32[n]\n%15 = abs %14 : f32[n]\n%16 = sum %15 : f32[]\nreport %16 {key=\"sum of functions\"}\n"
		"%17 = rmax %15 : f32[]\nreport %17 {key=\"largest\"}\n"
		"%18 = argmax %15 {dim=n} : int[]\n%19 = cast %18 : f32[]\nreport %19 {key=\"which\"}\n"
		"%20 = sum %1 : f32[]\nreport %20 {key=\"of params\"}\n" TRAIN);
}

static void states(void **state)
{
	(void)state;
	run_all(HEAD
		"%10 = sum %5 : f32[n]\n%11 = const {value=0.0625} : f32[]\n%12 = mul %10, %11 : f32[n]\n"
		"%13 = mul %12, %6 : f32[n]\n%14 = const {value=0.9} : f32[]\n%15 = mul %3, %14 : f32[n]\n%16 = add %15, %13 : f32[n]\n"
		"write %16 {buf=\"st\"}\n%17 = rmax %16 : f32[]\nreport %17 {key=\"largest\"}\n"
		"%18 = read {buf=\"num\"} : f32[]\n%19 = const {value=1} : f32[]\n%20 = add %18, %19 : f32[]\nwrite %20 {buf=\"num\"}\n"
		"report %20 {key=\"steps\"}\n%21 = mul %4, %4 : f32[l, n]\nwrite %21 {buf=\"ls\"}\n" TRAIN);
}

/* A router's bias moves by the sign of its load; a metric is carried; one result is of params only. */
static void loops(void **state)
{
	(void)state;
	run_all(HEAD
		"%10 = const {value=0} : f32[]\n%11 = const {value=0.001} : f32[]\n"
		"%12, %13, %14, %15, %16 = repeat %5, %10, %10, %6, %2, %4 {dim=l, ncarry=3, nwith=1} : "
		"f32[b, n], f32[], f32[], f32[l, n], f32[l, n] {\n"
		"args %20: f32[b, n], %21: f32[], %22: f32[], %23: f32[], %24: f32[n], %25: f32[n]\n"
		"%26 = mul %20, %24 : f32[b, n]\n%27 = add %26, %25 : f32[b, n]\n%28 = tanh %27 : f32[b, n] \"t\"\n"
		"%29 = const {value=0.1} : f32[]\n%30 = gt %28, %29 : bool[b, n]\n%31 = cast %30 : f32[b, n]\n%32 = sum %31 : f32[n]\n"
		"%33 = sum %32 : f32[]\n%34 = const {value=0.2} : f32[]\n%35 = mul %33, %34 : f32[]\n%36 = sub %35, %32 : f32[n]\n"
		"%37 = sign %36 : f32[n]\n%38 = mul %37, %23 : f32[n]\n%39 = iter {dim=l} : int[]\n%40 = mul %38, %39 : f32[n]\n"
		"%41 = add %25, %40 : f32[n]\n"
		"%42 = rmax %32 : f32[]\n%43 = div %42, %35 : f32[]\n%44 = add %21, %43 : f32[]\n"
		"%45 = mul %24, %24 : f32[n]\n%46 = sum %45 : f32[]\n%47 = add %22, %46 : f32[]\n"
		"yield %28, %44, %47, %41, %45\n}\n"
		"write %15 {buf=\"ls\"}\nreport %13 {key=\"imbalance\"}\nreport %14 {key=\"of params\"}\n"
		"%50 = sum %16 : f32[]\nreport %50 {key=\"of stacked params\"}\n"
		"%51 = sum %12 : f32[]\n%52 = accum %51, %14 : f32[]\nreport %52 {key=\"loss\"}\n"
		"minimize %52, %6, %6, %6 {buf=\"lw\", opt=\"sgd\", group=0}\nminimize %52, %6, %6, %6 {buf=\"w\", opt=\"sgd\", group=0}\n");
}

static void a_state_of_the_batch(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct diag d;
	static const char text[] = "dim b=4\nbuffer @\"x\" input f32[b]\nbuffer @\"s\" state f32[b] init=zeros\nforward:\n"
				   "%0 = read {buf=\"x\"} : f32[b]\nwrite %0 {buf=\"s\"}\n";
	struct module *m = both_parse(mem, &d, "precision=f32 micro=2 batch=b", text);

	diag_init(&d, mem, NULL, NULL);
	assert_false(pass_microbatch(m, &d));
	both_run("precision=f32 micro=1 batch=b", text, 0);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reports), cmocka_unit_test(states), cmocka_unit_test(loops),
		cmocka_unit_test(a_state_of_the_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
