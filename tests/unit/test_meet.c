/* Ranks that are processes meet over TCP: they find each other, leave and fetch, and name who is lost. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ir/file.h"
#include "runtime/cuda/meet.h"

enum { WORLD = 4 };

static int free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	close(fd);
	return ntohs(a.sin_port);
}

static struct meet_place place_of(int rank, int port)
{
	struct meet_place p = { .rank = rank, .world = WORLD, .port = port, .timeout = 20, .silence = 2, .plan = 7 };

	snprintf(p.host, sizeof p.host, "127.0.0.1");
	return p;
}

/* What a rank says of a run is sent to the test by a pipe; each is a process. */
struct child {
	pid_t pid;
	int out;
};
typedef void body(struct meet_place p, char *says);

static struct child start(body *fn, struct meet_place p)
{
	int ends[2];
	struct child c;

	assert_int_equal(pipe(ends), 0);
	c.out = ends[0];
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		char says[MEET_TEXT] = "";

		close(ends[0]);
		fn(p, says);
		if (write(ends[1], says, sizeof says) != sizeof says)
			_exit(1);
		_exit(0);
	}
	close(ends[1]);
	return c;
}

static void finish(struct child c, char *says)
{
	size_t got = 0;
	ssize_t k;

	says[0] = 0;
	while (got < MEET_TEXT && (k = read(c.out, says + got, MEET_TEXT - got)) > 0)
		got += (size_t)k;
	close(c.out);
	waitpid(c.pid, NULL, 0);
}

/* -- what ranks do -- */

static void exchange(struct meet_place p, char *says)
{
	struct meet *m = meet_open(&p, says);
	char key[32];
	int sum = 0;

	for (int turn = 0; m && turn < 20; turn++) {
		int mine = 100 * turn + p.rank, x;

		snprintf(key, sizeof key, "turn %d rank %d", turn, p.rank);
		if (!meet_put(m, key, &mine, sizeof mine, says))
			break;
		usleep(turn == 19 && p.rank ? 200000 : 0); /* rank 0 has all before the others have */
		for (int r = 0; r < WORLD; r++) {
			snprintf(key, sizeof key, "turn %d rank %d", turn, r);
			if (!meet_get(m, key, &x, sizeof x, says))
				break;
			sum += x;
		}
	}
	if (m && !*says)
		snprintf(says, MEET_TEXT, "%d", sum);
	if (m)
		meet_end(m); /* else rank 0, which may be the first to have all, would take the table away */
	meet_close(m);
}

/* Rank 2 leaves in the middle, without a goodbye; the others wait for what it will never bring. */
static void one_leaves(struct meet_place p, char *says)
{
	struct meet *m = meet_open(&p, says);
	int x;

	if (m && p.rank == 2)
		_exit(3);
	if (m)
		meet_get(m, "of rank 2", &x, sizeof x, says);
	meet_close(m);
}

static void one_stands_still(struct meet_place p, char *says)
{
	struct meet *m = meet_open(&p, says);
	int x;

	if (m && p.rank == 3)
		raise(SIGSTOP);
	if (m)
		meet_get(m, "of rank 3", &x, sizeof x, says);
	meet_close(m);
}

/* The same while nobody asks for anything. */
static void one_breaks(struct meet_place p, char *says)
{
	struct meet *m = meet_open(&p, says);

	if (m && p.rank == 1)
		meet_break(m, "rank 1: the disk is full");
	for (int i = 0; m && i < 100 && meet_ok(m, says); i++)
		usleep(50000);
	usleep(p.rank ? 0 : 500000);
	meet_close(m);
}

static void only_open(struct meet_place p, char *says)
{
	struct meet *m = meet_open(&p, says);

	meet_close(m);
}

/* -- tests -- */

static void run_world(body *fn, char says[WORLD][MEET_TEXT])
{
	struct child c[WORLD];
	int port = free_port();

	for (int r = WORLD - 1; r >= 0; r--) /* rank 0 comes last */
		c[r] = start(fn, place_of(r, port));
	for (int r = 0; r < WORLD; r++)
		finish(c[r], says[r]);
}

static void all_get_what_all_leave(void **state)
{
	char says[WORLD][MEET_TEXT];

	(void)state;
	run_world(exchange, says);
	for (int r = 0; r < WORLD; r++)
		assert_string_equal(says[r], "76120"); /* 4 x 100 x (0 + ... + 19) + 20 x (0 + ... + 3) */
}

static void who_leaves_is_named(void **state)
{
	char says[WORLD][MEET_TEXT];
	double start_s = seconds_now();

	(void)state;
	run_world(one_leaves, says);
	assert_string_equal(says[0], "rank 2 has left");
	assert_string_equal(says[1], "rank 2 has left");
	assert_string_equal(says[3], "rank 2 has left");
	assert_true(seconds_now() - start_s < 15);
}

static void who_stands_still_is_named(void **state)
{
	char says[WORLD][MEET_TEXT];
	struct child c[WORLD];
	int port = free_port();

	(void)state;
	for (int r = WORLD - 1; r >= 0; r--)
		c[r] = start(one_stands_still, place_of(r, port));
	for (int r = 0; r < 3; r++) {
		finish(c[r], says[r]);
		assert_non_null(strstr(says[r], "rank 3 is lost: no sign of life for"));
	}
	kill(c[3].pid, SIGKILL);
	finish(c[3], says[3]);
}

static void what_breaks_is_told_to_all(void **state)
{
	char says[WORLD][MEET_TEXT];

	(void)state;
	run_world(one_breaks, says);
	for (int r = 0; r < WORLD; r++)
		assert_string_equal(says[r], "rank 1: the disk is full");
}

static void who_does_not_come_is_named(void **state)
{
	struct meet_place p = place_of(0, free_port());
	char says[MEET_TEXT], other[MEET_TEXT];

	(void)state;
	p.timeout = 1.5;
	struct child zero = start(only_open, p), one = start(only_open, place_of(1, p.port));

	finish(zero, says);
	finish(one, other);
	assert_string_equal(says, "2 of 4 ranks have come in 2 s; not: 2, 3");
	assert_string_equal(other, says);
}

static void who_does_not_fit_is_refused(void **state)
{
	static const struct {
		int rank, world;
		uint64_t plan;
		const char *why;
	} cases[] = {
		{ 1, 3, 7, "rank 1 is told of 3 ranks, rank 0 of 4" },
		{ 1, 4, 8, "rank 1 has another plan, or another ptc, than rank 0" },
		{ 9, 4, 7, "a process says it is rank 9 of 4" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct meet_place zero = place_of(0, free_port()), odd = place_of(cases[i].rank, zero.port);
		char says[MEET_TEXT], other[MEET_TEXT];

		odd.world = cases[i].world;
		odd.plan = cases[i].plan;
		struct child a = start(only_open, zero), b = start(only_open, odd);

		finish(a, says);
		finish(b, other);
		assert_string_equal(says, cases[i].why);
		assert_string_equal(other, cases[i].why);
	}
}

static void nobody_is_there(void **state)
{
	struct meet_place p = place_of(1, free_port());
	char says[MEET_TEXT];

	(void)state;
	p.timeout = .3;
	assert_null(meet_open(&p, says));
	assert_non_null(strstr(says, "rank 0 can't be reached at port"));
}

/* What is no frame ends the connection, and nothing else. */
static void garbage_is_ignored(void **state)
{
	struct meet_place p = place_of(0, free_port());
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)p.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct child c[WORLD];
	char says[MEET_TEXT], junk[4096];

	(void)state;
	memset(junk, 0xa5, sizeof junk);
	c[0] = start(exchange, p);
	for (int i = 0; i < 5; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0), tries = 0;

		while (connect(fd, (struct sockaddr *)&a, sizeof a) != 0 && tries++ < 100)
			usleep(50000);
		assert_true(send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
		close(fd);
	}
	for (int r = 1; r < WORLD; r++)
		c[r] = start(exchange, place_of(r, p.port));
	for (int r = 0; r < WORLD; r++) {
		finish(c[r], says);
		assert_string_equal(says, "76120");
	}
}

static void places_come_from_the_launcher(void **state)
{
	static const char *const names[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS",
					     "SLURM_LOCALID", "SLURM_JOB_NODELIST", "SLURM_JOB_ID" };
	struct meet_place p;
	char why[MEET_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unsetenv(names[i]);
	assert_true(meet_find(&p, why) && p.world == 1 && p.rank == 0);
	setenv("SLURM_PROCID", "5", 1);
	setenv("SLURM_NTASKS", "16", 1);
	setenv("SLURM_LOCALID", "1", 1);
	setenv("SLURM_JOB_ID", "1234567", 1);
	setenv("SLURM_JOB_NODELIST", "gpu[03-07,11]", 1);
	assert_true(meet_find(&p, why) && p.world == 16 && p.rank == 5 && p.local == 1 && p.port == 24567);
	assert_string_equal(p.host, "gpu03");
	setenv("SLURM_JOB_NODELIST", "a,b", 1);
	assert_true(meet_find(&p, why));
	assert_string_equal(p.host, "a");
	setenv("WORLD_SIZE", "8", 1); /* torchrun's come first */
	assert_false(meet_find(&p, why));
	assert_string_equal(why, "RANK is not set");
	setenv("RANK", "8", 1);
	setenv("MASTER_PORT", "29500", 1);
	assert_false(meet_find(&p, why));
	assert_string_equal(why, "RANK=8 is no number from 0 to 7");
	setenv("RANK", "7x", 1);
	assert_false(meet_find(&p, why));
	assert_string_equal(why, "RANK=7x is no number from 0 to 7");
	setenv("RANK", "7", 1);
	assert_false(meet_find(&p, why));
	assert_string_equal(why, "MASTER_ADDR is not set");
	setenv("MASTER_ADDR", "head", 1);
	setenv("LOCAL_RANK", "3", 1);
	assert_true(meet_find(&p, why) && p.world == 8 && p.rank == 7 && p.local == 3 && p.port == 29500);
	assert_string_equal(p.host, "head");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_get_what_all_leave),     cmocka_unit_test(who_leaves_is_named),
		cmocka_unit_test(who_stands_still_is_named),  cmocka_unit_test(what_breaks_is_told_to_all),
		cmocka_unit_test(who_does_not_come_is_named), cmocka_unit_test(who_does_not_fit_is_refused),
		cmocka_unit_test(nobody_is_there),            cmocka_unit_test(garbage_is_ignored),
		cmocka_unit_test(places_come_from_the_launcher),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
