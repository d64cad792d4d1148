/* Splits and merges whose major part is sharded, slices and pads (concat is pad + pad + add) whose
 * other dims are: the runtime against the evaluator, with gradients, and what is sent. */
#include "tests/unit/both.h"

/* f = h k; y is split, used by heads, merged into g. Sizes f, h, k; z: order of the parts in memory. */
#define HEADS(f, h, k, z) \
	"dim b=4\ndim e=6\ndim f=" #f "\ndim h=" #h "\ndim k=" #k "\ndim g=" #f "\n" \
	"buffer @\"x\" input f32[b, e]\nbuffer @\"w\" param f32[e, f] init=normal(0.5)\n" \
	"buffer @\"s\" param f32[h] init=normal(1)\nbuffer @\"o\" param f32[g, e] init=normal(0.5)\n" \
	"forward:\n%0 = read {buf=\"x\"} : f32[b, e]\n%1 = read {buf=\"w\"} : f32[e, f]\n%2 = read {buf=\"s\"} : f32[h]\n" \
	"%3 = read {buf=\"o\"} : f32[g, e]\n%4 = einsum %0, %1 : f32[b, f] \"y\"\n" \
	"%5 = split %4 {dim=f, tos=(h, k)} : f32[" z "] \"z\"\n%6 = tanh %5 : f32[b, h, k]\n%7 = mul %6, %2 : f32[b, h, k]\n" \
	"%8 = merge %7 {to=g, dims=(h, k)} : f32[b, g] \"m\"\n%9 = sin %8 : f32[b, g]\n%10 = einsum %9, %3 : f32[b, e]\n" \
	"%11 = tanh %10 : f32[b, e]\n%12 = sum %11 : f32[]\nreport %12 {key=\"loss\"}\n" \
	"%13 = const {value=0.1} : f32[]\n%14 = const {value=0} : f32[]\n" \
	"minimize %12, %13, %14, %14 {buf=\"w\", opt=\"sgd\", group=0}\nminimize %12, %13, %14, %14 {buf=\"s\", opt=\"sgd\", group=0}\n" \
	"minimize %12, %13, %14, %14 {buf=\"o\", opt=\"sgd\", group=0}\n"

static const char mesh[] = "mesh dp=2\nmesh tp=2\n", arrows[] = "arrow b -> dp\narrow f, h, g -> tp\n";

static int count(const struct block *b, enum opcode code)
{
	int n = 0;

	for (const struct op *op = b->first; op; op = op->next)
		n += (op->code == code) + (op->body ? count(op->body, code) : 0);
	return n;
}

static void nothing_is_gathered(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	const char *text = both_on_mesh(mem, mesh, arrows, HEADS(8, 4, 2, "b, h, k"));
	struct both x = both_open("precision=f32 micro=1 batch=b", text);

	assert_int_equal(count(&x.plan->top, OP_ALL_GATHER), 0);
	assert_int_equal(count(&x.plan->top, OP_ALL_TO_ALL), 0);
	assert_int_equal(count(&x.plan->top, OP_SHARD), 0);
	both_close(&x);
	both_run("precision=f32 micro=1 batch=b", text, 1e-4);
	both_run("precision=f32 micro=2 batch=b", text, 1e-4);
	both_run("precision=f32 micro=2 batch=b", both_on_mesh(mem, mesh, arrows, HEADS(8, 4, 2, "h, k, b")), 1e-4);
	both_run("precision=f32 micro=1 batch=b", both_on_mesh(mem, "mesh tp=2\nmesh up=2\n", "arrow f, h, g -> tp.up\n",
							       HEADS(8, 4, 2, "b, h, k")), 1e-4);
	arena_free(mem);
}

static void uneven_parts_are_whole(void **state)
{
	(void)state;
	struct arena *mem = arena_new();

	both_run("precision=f32 micro=1 batch=b", both_on_mesh(mem, mesh, arrows, HEADS(6, 3, 2, "b, h, k")), 1e-4);
	both_run("precision=f32 micro=2 batch=b", both_on_mesh(mem, mesh, arrows, HEADS(6, 3, 2, "b, h, k")), 1e-4);
	both_run("precision=f32 micro=1 batch=b", both_on_mesh(mem, "mesh tp=2\nmesh up=2\n", "arrow f, h, g -> tp.up\n",
							       HEADS(12, 6, 2, "k, h, b")), 1e-4);
	both_run("precision=f32 micro=1 batch=b", HEADS(6, 3, 2, "b, h, k"), 1e-4);
	arena_free(mem);
}

/* A class token in front of five patches, then a slice of every other position. */
static void concat(void **state)
{
	(void)state;
	static const char text[] =
		"dim b=4\ndim p=5\ndim one=1\ndim s=6\ndim t=3\ndim e=8\n"
		"buffer @\"x\" input f32[b, p, e]\nbuffer @\"c\" param f32[one, e] init=normal(1)\nbuffer @\"w\" param f32[e] init=normal(1)\n"
		"forward:\n%0 = read {buf=\"x\"} : f32[b, p, e]\n%1 = read {buf=\"c\"} : f32[one, e]\n%2 = read {buf=\"w\"} : f32[e]\n"
		"%3 = mul %0, %2 : f32[b, p, e] \"h\"\n%4 = pad %1 {dim=one, to=s, start=0} : f32[s, e]\n"
		"%5 = pad %3 {dim=p, to=s, start=1} : f32[b, s, e]\n%6 = add %5, %4 : f32[b, s, e] \"cat\"\n"
		"%7 = slice %6 {dim=s, to=t, start=0, stride=2} : f32[b, t, e]\n%8 = sin %7 : f32[b, t, e]\n%9 = sum %8 : f32[]\n"
		"%10 = mul %6, %6 : f32[b, s, e]\n%11 = sum %10 : f32[]\n%12 = add %9, %11 : f32[]\nreport %12 {key=\"loss\"}\n"
		"%13 = const {value=0.01} : f32[]\n%14 = const {value=0} : f32[]\n"
		"minimize %12, %13, %14, %14 {buf=\"c\", opt=\"sgd\", group=0}\nminimize %12, %13, %14, %14 {buf=\"w\", opt=\"sgd\", group=0}\n";
	struct arena *mem = arena_new();
	const char *split = both_on_mesh(mem, mesh, "arrow b -> dp\narrow e -> tp\n", text);
	struct both x = both_open("precision=f32 micro=2 batch=b", split);

	assert_int_equal(count(&x.plan->top, OP_ALL_GATHER), 0);
	assert_int_equal(count(&x.plan->top, OP_ALL_TO_ALL), 0);
	both_close(&x);
	both_run("precision=f32 micro=1 batch=b", text, 1e-4);
	both_run("precision=f32 micro=2 batch=b", split, 1e-4);
	/* along the dim that changes it is gathered and cut again */
	both_run("precision=f32 micro=1 batch=b", both_on_mesh(mem, mesh, "arrow b -> dp\narrow p, s, t -> tp\n", text), 1e-4);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_gathered), cmocka_unit_test(uneven_parts_are_whole), cmocka_unit_test(concat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
