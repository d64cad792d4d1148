/* What the compiler does for a model is counted, not timed: ops in the plan and bytes of memory taken, for
 * 12 and 96 layers and for 8 and 4,096 ranks. Loops stay rolled and ranks are coordinates, so neither grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "frontend/frontend.h"
#include "passes/passes.h"

struct work_done {
	double ops, bytes;
};

static double count_ops(const struct block *block)
{
	double n = 0;

	for (const struct op *op = block->first; op; op = op->next)
		n += 1 + (op->body ? count_ops(op->body) : 0);
	return n;
}

static struct work_done compile(const char *mesh, const char *layers)
{
	struct arena *mem = arena_new();
	struct sources src = { 0 };
	struct diag d;
	const char *sets[] = { layers, "batch=16384" };
	struct front_options front = { .mesh = mesh, .sets = sets, .nsets = 2 };
	struct pass_options opt = { 0 };

	diag_init(&d, mem, &src, NULL);
	struct module *m = front_compile(mem, &src, &d, "examples/gpt2.pdsl", &front);
	assert_non_null(m);
	assert_true(run_passes(m, &d, &opt));
	struct work_done w = { count_ops(&m->top), (double)arena_bytes(mem) };
	arena_free(mem);
	return w;
}

static void near(double a, double b, double part)
{
	assert_true(a <= b * (1 + part) && b <= a * (1 + part));
}

static void layers_do_not_count(void **state)
{
	(void)state;
	for (int big = 0; big < 2; big++) {
		const char *mesh = big ? "dp=1024,tp=4" : "dp=2,tp=4";
		struct work_done a = compile(mesh, "layers=12"), b = compile(mesh, "layers=96");

		printf("%s, 12 and 96 layers: %g, %g ops, %g, %g bytes\n", mesh, a.ops, b.ops, a.bytes, b.bytes);
		near(a.ops, b.ops, 0.03); /* larger gradients fill more buckets, down to one each */
		near(a.bytes, b.bytes, 0.03);
	}
}

static void ranks_hardly_count(void **state)
{
	struct work_done node = compile("dp=2,tp=4", "layers=12"), a = compile("dp=16,tp=4", "layers=12");
	struct work_done b = compile("dp=1024,tp=4", "layers=12");

	(void)state;
	printf("8, 64, 4096 ranks: %g, %g, %g ops, %g, %g, %g bytes\n", node.ops, a.ops, b.ops, node.bytes, a.bytes, b.bytes);
	near(a.ops, b.ops, 0.03); /* a few gradients are reduced in other ways */
	near(a.bytes, b.bytes, 0.05);
	near(node.ops, b.ops, 0.1); /* on more than a node in parts */
	near(node.bytes, b.bytes, 0.4); /* one axis more to try */
	assert_true(a.bytes < 200e6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_do_not_count),
		cmocka_unit_test(ranks_hardly_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
