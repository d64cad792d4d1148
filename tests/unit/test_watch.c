/* A rank that waits by looking again and again finds who stands still. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/internal.h"

/* Rank 0 waits; rank 1 began an op so long ago; both have waited so long. */
static const char *look(double quiet, double waited, int64_t patience, bool other_waits, bool *ok)
{
	static char why[256];
	struct op op = { .code = OP_EINSUM };
	struct comm *c = comm_open(2, 60);
	struct watch w, other;
	struct span at;

	comm_pulse(c, 1, &op, patience, -1, 0);
	comm_watch_begin(c, 0, &w);
	if (other_waits)
		comm_watch_begin(c, 1, &other);
	w.last -= quiet;
	w.start -= waited;
	*ok = comm_watch(c, 0, &w);
	snprintf(why, sizeof why, "%s", comm_failed(c) ? comm_error(c, &at) : "");
	comm_watch_end(c, 0);
	comm_close(c);
	return why;
}

static void who_stands_still_is_named(void **state)
{
	bool ok;

	(void)state;
	assert_string_equal(look(20, 20, 0, false, &ok), "rank 1: stalled: einsum has not ended for 20 s, and rank 0 waits");
	assert_false(ok);
}

static void patience_is_had(void **state)
{
	bool ok;

	(void)state;
	assert_string_equal(look(20, 20, 30000, false, &ok), "");
	assert_true(ok);
	assert_string_equal(look(2, 20, 0, false, &ok), "");
	assert_string_equal(look(20, 20, 0, true, &ok), ""); /* it waits itself, for the GPU */
}

static void a_gpu_that_does_not_end_is_named(void **state)
{
	bool ok;

	(void)state;
	assert_string_equal(look(0, 90, 0, true, &ok), "rank 0: time-out: its GPU has not ended the step for 90 s");
	assert_false(ok);
}

static void who_moves_is_left_alone(void **state)
{
	struct op op = { .code = OP_EINSUM };
	struct comm *c = comm_open(2, 60);
	struct watch w;

	(void)state;
	comm_pulse(c, 1, &op, 0, -1, 0);
	comm_watch_begin(c, 0, &w);
	w.last -= 20;
	comm_pulse(c, 1, &op, 0, -1, 0);
	assert_true(comm_watch(c, 0, &w));
	comm_watch_end(c, 0);
	comm_close(c);
}

/* Ranks 0 and 1 wait for their GPUs, which have come by so many marks, for so long. What rank 0 finds. */
static const char *look_at_devices(int32_t at0, int32_t at1, double quiet)
{
	static char why[256];
	struct op gather = { .code = OP_ALL_GATHER }, einsum = { .code = OP_EINSUM };
	struct mark mark[] = { { .op = &einsum, .more = 2, .chunk = -1 }, { .op = &gather, .waits = true, .chunk = -1 }, { .waits = true, .chunk = -1 } };
	struct marks all = { { mark, LEN(mark), LEN(mark) } };
	struct comm *c = comm_open(2, 60);
	struct watch w, other;
	struct span at;

	comm_watch_begin(c, 0, &w);
	comm_watch_begin(c, 1, &other);
	comm_device(c, 0, &at0, &all);
	comm_device(c, 1, &at1, &all);
	assert_true(comm_watch(c, 0, &w)); /* it has seen where they are */
	w.last -= quiet;
	comm_watch(c, 0, &w);
	snprintf(why, sizeof why, "%s", comm_failed(c) ? comm_error(c, &at) : "");
	comm_watch_end(c, 0);
	comm_watch_end(c, 1);
	comm_close(c);
	return why;
}

static void a_gpu_that_stands_still_is_named(void **state)
{
	(void)state;
	assert_string_equal(look_at_devices(2, 1, 20),
			    "rank 1: stalled: einsum or what follows it, 2 instructions, has not ended for 20 s, and rank 0 waits");
	assert_string_equal(look_at_devices(1, 2, 20),
			    "rank 0: stalled: einsum or what follows it, 2 instructions, has not ended for 20 s, and it waits for its GPU");
	assert_string_equal(look_at_devices(2, 1, 5), "");
	assert_string_equal(look_at_devices(0, 0, 20), "");
	assert_string_equal(look_at_devices(2, 3, 20), "rank 0: stalled: all_gather has not ended for 20 s, and all GPUs wait");
	assert_string_equal(look_at_devices(2, 3, 12), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_stands_still_is_named), cmocka_unit_test(patience_is_had),
		cmocka_unit_test(a_gpu_that_does_not_end_is_named), cmocka_unit_test(who_moves_is_left_alone),
		cmocka_unit_test(a_gpu_that_stands_still_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
