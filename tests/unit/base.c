/* The arena, growing arrays and texts, name suggestions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/base.h"
#include "ir/diag.h"

static void times_have_a_unit_that_suits(void **state)
{
	(void)state;
	static const struct {
		double seconds;
		const char *text;
	} want[] = { { 0, "0.0 us" }, { 2.5e-6, "2.5 us" }, { 0.0034, "3.40 ms" }, { 14.268, "14.27 s" }, { 119.99, "119.99 s" }, { 127.2, "2.12 min" },
		     { 7199, "120 min" }, { 7200, "2 h" }, { 5955000, "68.9 days" }, { 365.25 * 86400 * 12.5, "12.5 years" }, { 1e12, "31688 years" } };
	struct arena *a = arena_new();

	for (size_t i = 0; i < LEN(want); i++)
		assert_string_equal(seconds_text(a, want[i].seconds), want[i].text);
	assert_string_equal(long_time(a, 147.7 * 86400), "147.7 days");
	arena_free(a);
}

static void arena_is_zeroed_and_aligned(void **state)
{
	(void)state;
	struct arena *a = arena_new();

	for (size_t n = 1; n < 300000; n = n * 3 + 1) {
		unsigned char *p = arena_alloc(a, n);

		assert_int_equal((uintptr_t)p % 16, 0);
		for (size_t i = 0; i < n; i++) {
			assert_int_equal(p[i], 0);
			p[i] = 0xff;
		}
	}
	assert_true(arena_bytes(a) > 0);
	arena_free(a);
}

static void vec_grows(void **state)
{
	(void)state;
	struct arena *a = arena_new();
	struct { VEC(int) v; } x = { 0 };

	for (int i = 0; i < 1000; i++)
		PUSH(a, &x.v, i);
	assert_int_equal(x.v.n, 1000);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(x.v.at[i], i);
	arena_free(a);
}

static void text_grows(void **state)
{
	(void)state;
	struct arena *a = arena_new();
	struct text t = { .mem = a };
	char long_one[5000];

	memset(long_one, 'x', sizeof long_one - 1);
	long_one[sizeof long_one - 1] = 0;
	text_put(&t, "%d,%s;", 7, "ab");
	text_put(&t, "%s", long_one);
	assert_int_equal(t.n, 5 + 4999);
	assert_int_equal(strlen(t.s), t.n);
	assert_memory_equal(t.s, "7,ab;xxx", 8);
	arena_free(a);
}

static void near_names(void **state)
{
	(void)state;
	struct near n = { .name = "embd", .best = NULL, .dist = 0 };

	near_offer(&n, "batch");
	near_offer(&n, "embed");
	assert_string_equal(n.best, "embed");
	n = (struct near){ .name = "w", .best = NULL, .dist = 0 };
	near_offer(&n, "x"); /* nothing of it is the same */
	assert_null(n.best);
	n = (struct near){ .name = "zzz", .best = NULL, .dist = 0 };
	near_offer(&n, "embed");
	assert_null(n.best);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arena_is_zeroed_and_aligned),
		cmocka_unit_test(times_have_a_unit_that_suits),
		cmocka_unit_test(vec_grows),
		cmocka_unit_test(text_grows),
		cmocka_unit_test(near_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
