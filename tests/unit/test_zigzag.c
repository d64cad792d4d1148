/* The zigzag order of a dim: where an index lies, what of it goes to one rank, and how even the work is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "frontend/frontend.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "runtime/internal.h"

static struct module *with_dim(struct arena *mem, int64_t size, int zigzag)
{
	struct module *m = module_new(mem, NULL);
	dimid d = module_dim(m, "seq", size, (struct span){ 0 });

	m->dims.at[d].zigzag = zigzag;
	return m;
}

static void order_of_eight(void **state)
{
	static const int64_t by_two[] = { 0, 1, 6, 7, 2, 3, 4, 5 }, by_four[] = { 0, 7, 1, 6, 2, 5, 3, 4 };
	struct arena *mem = arena_new();
	struct module *none = with_dim(mem, 8, 0), *two = with_dim(mem, 8, 2), *four = with_dim(mem, 8, 4);

	(void)state;
	for (int64_t p = 0; p < 8; p++) {
		assert_int_equal(dim_index(none, 0, p), p);
		assert_int_equal(dim_position(none, 0, p), p);
		assert_int_equal(dim_index(two, 0, p), by_two[p]);
		assert_int_equal(dim_index(four, 0, p), by_four[p]);
	}
	arena_free(mem);
}

/* Positions are a permutation of the indices, and each of K parts has the same sum: as much before it
 * as after it. */
static void parts_are_balanced(void **state)
{
	(void)state;
	for (int k = 2; k <= 7; k++) {
		struct arena *mem = arena_new();
		int64_t n = 6 * k, part = n / k;
		struct module *m = with_dim(mem, n, k);

		for (int64_t c = 0; c < k; c++) {
			int64_t sum = 0;

			for (int64_t p = c * part; p < (c + 1) * part; p++) {
				assert_int_equal(dim_position(m, 0, dim_index(m, 0, p)), p);
				sum += dim_index(m, 0, p);
			}
			assert_int_equal(sum, part * (n - 1) / 2);
		}
		arena_free(mem);
	}
}

static const char *refused(struct arena *mem, const char *text)
{
	struct diag d;

	diag_init(&d, mem, NULL, NULL);
	struct module *m = module_parse(mem, "in.pir", text, strlen(text), &d);
	if (m)
		assert_false(verify(m, &d));
	return d.log.s ? d.log.s : "";
}

static void bad_orders(void **state)
{
	struct arena *mem = arena_new();

	(void)state;
	assert_non_null(strstr(refused(mem, "ptc-ir 1\nmodule\ndim seq=8 zigzag=3\n"),
			       "8 are no 2 * 3 equal chunks"));
	assert_non_null(strstr(refused(mem, "ptc-ir 1\nmodule\ndim seq=8 zigzag=1\n"), "error"));
	assert_non_null(strstr(refused(mem, "ptc-ir 1\nmodule\ndim seq=0 zigzag=2\n"), "equal chunks"));
	assert_non_null(strstr(refused(mem, "ptc-ir 1\nmodule\ndim seq=8 zigzag=2\ndim ctx=8\nforward:\n"
				       "%0 = const {value=1} : f32[seq]\n"
				       "%1 = rename %0 {dims=(seq), tos=(ctx)} : f32[ctx]\n"),
			       "'seq' and 'ctx' have other orders"));
	arena_free(mem);
}

/* -- the work of attention, counted as the runtime does it: scores of a tile of rows and the keys it meets -- */

/* The slowest rank of cp = k over the mean, of a training step. */
static double slowest(const char *plan, const char *mesh)
{
	const char *set = "batch=1,seq=1024,layers=1,heads=2,drop=0";
	struct arena *mem = arena_new();
	struct sources src = { 0 };
	struct diag d;
	double most = 0, all = 0;

	diag_init(&d, mem, &src, NULL);
	struct module *m = front_compile(mem, &src, &d, "tests/equiv/gpt.pdsl",
					 &(struct front_options){ .plan = plan, .mesh = mesh, .sets = &set, .nsets = 1 });
	assert_non_null(m);
	assert_true(run_passes(m, &d, &(struct pass_options){ 0 }));
	struct runtime *rt = rt_open(m, 0, &d);
	assert_non_null(rt);
	assert_true(rt_step(rt, 0, true, &d));
	for (int64_t i = 0; i < rt->nrank; i++) {
		all += rt->rank[i].scores;
		most = rt->rank[i].scores > most ? rt->rank[i].scores : most;
	}
	double ratio = most * (double)rt->nrank / all;

	rt_close(rt);
	arena_free(mem);
	return ratio;
}

static void near(double x, double y)
{
	if (fabs(x - y) > 0.05)
		fail_msg("%g, not %g", x, y);
}

static void attention_is_balanced(void **state)
{
	(void)state;
	near(slowest("context", "cp=2"), 1.5);
	near(slowest("context", "cp=4"), 1.75);
	near(slowest("zigzag", "cp=2"), 1);
	near(slowest("zigzag", "cp=4"), 1);
	near(slowest("zigzag3", "cp=4"), 1); /* keys go round */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_of_eight),
		cmocka_unit_test(parts_are_balanced),
		cmocka_unit_test(bad_orders),
		cmocka_unit_test(attention_is_balanced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
