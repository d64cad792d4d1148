/* Axes on several links: where they are cut, what a group costs, and the chains that follow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "passes/place.h"
#include "tests/unit/chains.h"

/* Two links, the first of `group` ranks; three if `outer` ranks share a second. */
static void set_links(struct module *m, int64_t group, int64_t outer, double ratio, double latency)
{
	m->hw.nlink = outer ? 3 : 2;
	m->hw.link[0] = (struct link){ "in", group, 1e6, latency };
	m->hw.link[1] = (struct link){ "out", outer, 1e6 / ratio, 4 * latency };
	m->hw.link[2] = (struct link){ "far", 0, 1e6 / ratio / ratio, 8 * latency };
}

/* -- where axes are cut -- */

static const char *axes_text(struct arena *mem, const struct module *m)
{
	struct text t = { .mem = mem };

	for (uint32_t i = 0; i < m->axes.n; i++)
		text_put(&t, "%s%s=%d", i ? " " : "", m->axes.at[i].name, m->axes.at[i].size);
	return t.s;
}

static const char *cut(struct arena *mem, int n, const int *size, int64_t group, int64_t outer)
{
	struct module *m = mesh_of(mem, n, size, 0, NULL, NULL);
	struct diag d;

	diag_init(&d, mem, NULL, stdout);
	m->form = LOGICAL;
	set_links(m, group, outer, 8, 1e-6);
	assert_true(pass_place(m, &d));
	return axes_text(mem, m);
}

static void cuts(void **state)
{
	static const struct {
		int n, size[4];
		int64_t group, outer;
		const char *want;
	} table[] = {
		{ 1, { 16 }, 8, 0, "w/0=2 w/1=8" },
		{ 1, { 8 }, 8, 0, "w=8" },                  /* on one link */
		{ 1, { 6 }, 8, 0, "w=6" },
		{ 1, { 12 }, 8, 0, "w/0=3 w/1=4" },         /* 6 of 12 would lie on two nodes */
		{ 1, { 9 }, 8, 0, "w=9" },
		{ 1, { 7 }, 4, 0, "w=7" },
		{ 2, { 4, 4 }, 8, 0, "w/0=2 w/1=2 x=4" },   /* the outer one straddles */
		{ 2, { 2, 16 }, 8, 0, "w=2 x/0=2 x/1=8" },  /* the inner one does */
		{ 2, { 16, 8 }, 8, 0, "w=16 x=8" },         /* both end where the link does */
		{ 2, { 8, 3 }, 8, 0, "w=8 x=3" },
		{ 2, { 8, 6 }, 4, 0, "w=8 x/0=3 x/1=2" },
		{ 1, { 64 }, 4, 16, "w/0=4 w/1=4 w/2=4" },
		{ 2, { 32, 2 }, 4, 16, "w/0=4 w/1=4 w/2=2 x=2" },
		{ 1, { 16 }, 4, 16, "w/0=4 w/1=4" },        /* no rank is far */
	};

	(void)state;
	for (size_t i = 0; i < LEN(table); i++) {
		struct arena *mem = arena_new();

		assert_string_equal(cut(mem, table[i].n, table[i].size, table[i].group, table[i].outer), table[i].want);
		arena_free(mem);
	}
}

/* With one link, or an inner one that is no faster, nothing is cut; nor are the stages of a pipeline. */
static void no_cuts(void **state)
{
	struct arena *mem = arena_new();
	int size[1] = { 16 };
	struct module *m = mesh_of(mem, 1, size, 0, NULL, NULL);
	struct diag d;

	(void)state;
	diag_init(&d, mem, NULL, stdout);
	m->form = LOGICAL;
	assert_true(pass_place(m, &d));
	assert_string_equal(axes_text(mem, m), "w=16");
	set_links(m, 8, 0, 1, 1e-6);
	assert_true(pass_place(m, &d));
	assert_string_equal(axes_text(mem, m), "w=16");
	set_links(m, 8, 0, 8, 1e-6);
	m->pipe.user = 0;
	assert_true(pass_place(m, &d));
	assert_string_equal(axes_text(mem, m), "w=16");
	arena_free(mem);
}

/* -- what a group costs -- */

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-12 * fabs(b);
}

static void costs(void **state)
{
	struct arena *mem = arena_new();
	int size[2] = { 2, 8 }, odd[2] = { 4, 3 };
	struct module *m = mesh_of(mem, 2, size, 0, NULL, NULL);

	(void)state;
	assert_int_equal(comm_link(m, 3), 0);
	assert_false(several_links(m, 3));
	set_links(m, 8, 0, 10, 0.5);
	assert_int_equal(comm_link(m, 1), 1);
	assert_int_equal(comm_link(m, 2), 0);
	assert_int_equal(comm_link(m, 3), 1);
	assert_true(several_links(m, 3));
	assert_false(several_links(m, 1));
	/* a ring is bound by its slowest link */
	assert_true(near(comm_seconds(m, 3, 1e6), 2 + 10));
	assert_true(near(comm_seconds(m, 2, 1e6), 0.5 + 1));
	/* 7/8 in, 2 x 1/2 of an eighth out, 7/8 in */
	assert_true(near(staged_seconds(m, 3, 8e6, 2), (0.5 + 7) + (2 + 10) + (0.5 + 7)));
	assert_true(near(staged_seconds(m, 3, 8e6, 1), (0.5 + 7) + (2 + 5)));
	/* little is not worth three latencies */
	assert_true(near(staged_seconds(m, 3, 8, 2), 2 + 1.875 * 8 * 10 / 1e6));
	assert_true(near(staged_seconds(m, 2, 8e6, 2), 0.5 + 14));
	/* threes lie across the ends of nodes of four */
	m = mesh_of(mem, 2, odd, 0, NULL, NULL);
	set_links(m, 4, 0, 10, 0.5);
	assert_int_equal(comm_link(m, 2), 1);
	arena_free(mem);
}

/* -- known chains, on 2 nodes of 8 -- */

struct sent {
	double on[3]; /* elements, by link */
	const char *ops;
};

static struct sent sent_on(struct arena *mem, const struct module *m, int nd, const dimid *d, const struct sharding *src,
			   const struct chain *c)
{
	struct text t = { .mem = mem };
	struct sent s = { { 0 }, "" };

	for (int i = 0; i < c->n; i++) {
		const struct reshard *r = &c->step[i];

		if (r->code == OP_SHARD || r->code == OP_TO_PARTIAL)
			continue;
		s.on[comm_link(m, step_axes(r))] +=
			step_bytes(m, r, F32, shard_elements(m, nd, d, i ? &c->step[i - 1].sh : src),
				   shard_elements(m, nd, d, &r->sh)) / 4;
		text_put(&t, "%s%s", t.n ? " " : "", opinfo[r->code].name);
		for (int k = 0; k < r->axes.n; k++)
			text_put(&t, "%s%s", k ? "." : " ", m->axes.at[r->axes.a[k]].name);
	}
	s.ops = t.n ? t.s : "";
	return s;
}

static void known(void **state)
{
	struct arena *mem = arena_new();
	int size[2] = { 2, 8 };
	int64_t dims[2] = { 64, 64 }, n = 64 * 64;
	dimid d[2];
	struct module *m = mesh_of(mem, 2, size, 2, dims, d);
	struct axes w = { .n = 1, .a = { 0 } }, x = { .n = 1, .a = { 1 } };
	struct axes wx = { .n = 2, .a = { 0, 1 } }, xw = { .n = 2, .a = { 1, 0 } };
	const struct {
		struct sharding src, dst;
		double in, out;
		const char *ops;
	} table[] = {
		/* an all_reduce: the outer link carries an eighth */
		{ { .sum = 3 }, { .sum = 0 }, 2 * 7 / 8.0, 1 / 8.0, "reduce_scatter x all_reduce w all_gather x" },
		/* FSDP inside, replicas outside; and the other way round */
		{ { .sum = 3 }, { .on = { x } }, 7 / 8.0, 1 / 8.0, "reduce_scatter x all_reduce w" },
		{ { .sum = 3 }, { .on = { w } }, 7 / 8.0 + 7 / 16.0, 1 / 16.0, NULL },
		/* split over both, in both orders */
		{ { .sum = 3 }, { .on = { xw } }, 7 / 8.0, 1 / 16.0, "reduce_scatter x reduce_scatter w" },
		{ { .sum = 3 }, { .on = { wx } }, 7 / 8.0 + 7 / 128.0, 1 / 16.0,
		  "reduce_scatter x reduce_scatter w all_to_all x" },
		{ { .on = { xw } }, { .sum = 0 }, 7 / 8.0, 1 / 16.0, "all_gather w all_gather x" },
		{ { .on = { wx } }, { .sum = 0 }, 7 / 8.0 + 7 / 128.0, 1 / 16.0,
		  "all_to_all x all_gather w all_gather x" },
		/* one link: as ever */
		{ { .sum = 2 }, { .sum = 0 }, 2 * 7 / 8.0, 0, "all_reduce x" },
		{ { .sum = 1 }, { .sum = 0 }, 0, 1, "all_reduce w" },
	};

	(void)state;
	set_links(m, 8, 0, 10, 1e-6);
	for (size_t i = 0; i < LEN(table); i++) {
		struct chain c = reshard_best(m, 2, d, F32, &table[i].src, &table[i].dst);
		struct sent s = sent_on(mem, m, 2, d, &table[i].src, &c);

		printf("%s: %g in, %g out\n", s.ops, s.on[0] / (double)n, s.on[1] / (double)n);
		assert_true(near(s.on[0], table[i].in * (double)n));
		assert_true(near(s.on[1], table[i].out * (double)n));
		if (table[i].ops)
			assert_string_equal(s.ops, table[i].ops);
	}
	/* a scalar is all latency: one group */
	struct sharding both = { .sum = 3 }, none = { .sum = 0 };
	struct chain c = reshard_best(m, 0, NULL, F32, &both, &none);
	assert_int_equal(c.n, 1);
	arena_free(mem);
}

/* The parts of one axis move to another dim in their order: as one, or over a third dim where that is cheaper. */
static void moves(void **state)
{
	struct arena *mem = arena_new();
	int size[1] = { 16 };
	int64_t dims[3] = { 64, 64, 4 };
	dimid d[3];
	struct axes parts = { .n = 2, .a = { 0, 1 } };
	struct sharding src = { .on = { parts } }, dst = { .on = { { 0 }, parts } };

	(void)state;
	for (int ratio = 1; ratio <= 100; ratio *= 100) {
		struct module *m = mesh_of(mem, 1, size, 3, dims, d);
		struct diag diag;

		diag_init(&diag, mem, NULL, stdout);
		m->form = LOGICAL;
		set_links(m, 4, 0, 1.01 * ratio, 1e-9);
		assert_true(pass_place(m, &diag));
		m->form = PARTITIONED;
		struct chain c = reshard_best(m, 3, d, F32, &src, &dst);
		struct sent s = sent_on(mem, m, 3, d, &src, &c);

		printf("%s: %g in, %g out\n", s.ops, s.on[0], s.on[1]);
		assert_true(run_chain(mem, m, 3, d, &src, &c));
		assert_string_equal(s.ops, ratio == 1 ? "all_to_all w/0.w/1" : "all_to_all w/1 all_to_all w/0 all_to_all w/1");
		assert_true(near(s.on[1], 1024 * (ratio == 1 ? 15 / 16.0 : 3 / 4.0)));
	}
	arena_free(mem);
}

/* -- 2,000 random pairs on random links -- */

static struct axes parts_of(const struct module *m, const struct axes *l)
{
	struct axes p = { 0 };

	for (int i = 0; i < l->n; i++)
		for (uint32_t a = 0; a < m->axes.n; a++)
			if (m->axes.at[a].user == l->a[i])
				axes_push(&p, (int)a);
	return p;
}

/* sh of whole axes, on the axes of m. */
static struct sharding cut_sharding(const struct module *m, int nd, const struct sharding *sh)
{
	struct sharding c = { .sum = 0 };

	for (int i = 0; i < nd; i++)
		c.on[i] = parts_of(m, &sh->on[i]);
	for (uint32_t a = 0; a < m->axes.n; a++)
		c.sum |= (sh->sum >> m->axes.at[a].user & 1) << a;
	return c;
}

static double seconds_of(const struct module *m, int nd, const dimid *d, const struct sharding *src, const struct chain *c)
{
	double sum = 0;

	for (int i = 0; i < c->n; i++) {
		const struct reshard *r = &c->step[i];

		if (r->code != OP_SHARD && r->code != OP_TO_PARTIAL)
			sum += comm_seconds(m, step_axes(r), step_bytes(m, r, F32,
					    shard_elements(m, nd, d, i ? &c->step[i - 1].sh : src),
					    shard_elements(m, nd, d, &r->sh)));
	}
	return sum;
}

static void random_links(void **state)
{
	double flat = 0, staged = 0;
	int better = 0, same = 0;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		static const int sizes[] = { 2, 4, 8, 16, 3, 6, 12 };
		struct arena *mem = arena_new();
		bool divides = i % 2;
		int n = 1 + rnd(3), size[3], nd = 1 + rnd(3), ranks = 1;
		int64_t dims[3];
		dimid d[3];
		struct diag diag;

		for (int k = 0; k < n; k++) {
			size[k] = sizes[rnd(divides ? 4 : 7)];
			if (ranks * size[k] > 32)
				size[k] = 1;
			ranks *= size[k];
		}
		for (int k = 0; k < nd; k++)
			dims[k] = divides ? 32 : 1 + rnd(17);
		if (divides && nd == 3)
			nd = 2;
		struct module *whole = mesh_of(mem, n, size, nd, dims, d), *m = mesh_of(mem, n, size, nd, dims, d);
		int64_t group = 2 << rnd(3), outer = rnd(2) ? group * 2 : 0;
		double ratio = 1 + rnd(20);
		set_links(whole, group, outer, ratio, 0);
		set_links(m, group, outer, ratio, 0);
		diag_init(&diag, mem, NULL, stdout);
		m->form = LOGICAL;
		assert_true(pass_place(m, &diag));
		m->form = PARTITIONED;
		struct sharding src0 = random_sharding(whole, nd, true), dst0 = random_sharding(whole, nd, false);
		struct sharding src = cut_sharding(m, nd, &src0), dst = cut_sharding(m, nd, &dst0);
		struct chain c = reshard_best(m, nd, d, F32, &src, &dst);
		assert_true(c.seconds < 1e30);
		assert_true(near(c.seconds, seconds_of(m, nd, d, &src, &c)) || c.seconds == 0);
		assert_true(run_chain(mem, m, nd, d, &src, &c));
		struct chain quick = reshard_chain(m, nd, d, F32, &src, &dst);
		double most = seconds_of(m, nd, d, &src, &quick);
		assert_true(c.seconds <= most * (1 + 1e-9));
		if (divides) { /* chunks that nest are those of the whole axis */
			struct chain ring = reshard_chain(whole, nd, d, F32, &src0, &dst0);
			double t = seconds_of(whole, nd, d, &src0, &ring);

			if (c.seconds > t * (1 + 1e-9))
				printf("%s group %lld outer %lld ratio %g: %g > %g: %s\n", axes_text(mem, m), (long long)group,
				       (long long)outer, ratio, c.seconds, t, sent_on(mem, m, nd, d, &src, &c).ops);
			assert_true(c.seconds <= t * (1 + 1e-9));
			better += c.seconds < t * (1 - 1e-9);
			same += c.seconds >= t * (1 - 1e-9);
			flat += t;
			staged += c.seconds;
		}
		arena_free(mem);
	}
	printf("2000 chains right; %d faster than rings over whole axes, %d the same, in all %.3f of the time\n", better, same,
	       staged / flat);
	assert_true(better > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts), cmocka_unit_test(no_cuts), cmocka_unit_test(costs), cmocka_unit_test(known),
		cmocka_unit_test(moves), cmocka_unit_test(random_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
