/* What to keep for backward: the front of choices and the minimum cut, against all subsets of small random
 * graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/remat.h"

static uint64_t seed = 1;

static uint32_t dice(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((seed >> 33) % n);
}

/* -- the front -- */

static void random_ops(struct arena *mem, struct trial_op *ops, uint32_t n, uint32_t most_kept)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t *in = NEWN(mem, uint32_t, 3), nin = i ? dice(3) : 0;

		for (uint32_t k = 0; k < nin; k++)
			in[k] = dice(i);
		ops[i] = (struct trial_op){ .seconds = dice(9), .bytes = 1 + dice(7), .read = dice(2), .nin = nin, .in = in };
		ops[i].may_keep = dice(4) > 0 && kept < most_kept;
		kept += ops[i].may_keep;
	}
}

/* Makes what i needs, by recursion: another way than the sweep. */
static double make(const struct trial_op *ops, uint32_t i, const bool *keep, bool *made)
{
	double sum = ops[i].seconds;

	if (made[i] || keep[i])
		return 0;
	made[i] = true;
	for (uint32_t k = 0; k < ops[i].nin; k++)
		sum += make(ops, ops[i].in[k], keep, made);
	return sum;
}

static double cost(const struct trial_op *ops, uint32_t n, const bool *keep, int64_t *bytes)
{
	bool made[64] = { 0 };
	double sum = 0;

	*bytes = 0;
	for (uint32_t i = 0; i < n; i++) {
		*bytes += keep[i] ? ops[i].bytes : 0;
		sum += ops[i].read ? make(ops, i, keep, made) : 0;
	}
	return sum;
}

/* keep[] of a set over the ops that may be kept. */
static void unpack(const struct trial_op *ops, uint32_t n, const uint64_t *set, bool *keep)
{
	uint32_t c = 0;

	for (uint32_t i = 0; i < n; i++) {
		keep[i] = ops[i].may_keep && (set[c / 64] >> (c % 64) & 1);
		c += ops[i].may_keep;
	}
}

/* The least seconds of all choices with at most so many bytes. */
static double least(const struct trial_op *ops, uint32_t n, int64_t budget)
{
	uint32_t kept = 0;
	double best = 1e30;
	bool keep[64];
	int64_t bytes;

	for (uint32_t i = 0; i < n; i++)
		kept += ops[i].may_keep;
	for (uint64_t set = 0; set >> kept == 0; set++) {
		unpack(ops, n, &set, keep);
		double c = cost(ops, n, keep, &bytes);

		if (bytes <= budget && c < best)
			best = c;
	}
	return best;
}

static double of_front(const struct front *f, int64_t budget)
{
	double best = 1e30;

	for (uint32_t i = 0; i < f->n; i++)
		if (f->at[i].bytes <= budget)
			best = f->at[i].seconds;
	return best;
}

static void check_points(const struct front *f, const struct trial_op *ops, uint32_t n)
{
	bool keep[64];
	int64_t bytes;

	for (uint32_t i = 0; i < f->n; i++) {
		unpack(ops, n, f->at[i].keep, keep);
		assert_true(cost(ops, n, keep, &bytes) == f->at[i].seconds);
		assert_int_equal(bytes, f->at[i].bytes);
		assert_true(!i || (f->at[i - 1].bytes < bytes && f->at[i - 1].seconds > f->at[i].seconds));
	}
}

static void front_is_exact(void **state)
{
	(void)state;
	for (int round = 0; round < 200; round++) {
		struct arena *mem = arena_new();
		struct trial_op ops[14];
		uint32_t n = 1 + dice(14);

		random_ops(mem, ops, n, 10);
		struct front f = remat_front(mem, n, ops);
		check_points(&f, ops, n);
		for (int64_t budget = 0; budget < 60; budget += 3)
			assert_true(of_front(&f, budget) == least(ops, n, budget));
		arena_free(mem);
	}
}

/* More than 20 that may be kept: what is found is true, from nothing to all, and no worse than either walk. */
static void large_front_is_sound(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		struct arena *mem = arena_new();
		struct trial_op ops[60];

		random_ops(mem, ops, 60, 60);
		struct front f = remat_front(mem, 60, ops);
		check_points(&f, ops, 60);
		assert_true(f.n > 4);
		assert_int_equal(f.at[0].bytes, 0);
		arena_free(mem);
	}
}

/* -- the cut -- */

struct graph {
	int n;
	bool arc[8][8], from[8], to[8];
	int64_t price[8];
};

static struct cut *cut_of(struct arena *mem, const struct graph *g)
{
	struct cut *c = cut_new(mem, CUT_FIRST + 2 * g->n);

	for (int i = 0; i < g->n; i++) {
		int at = CUT_FIRST + 2 * i;

		cut_arc(c, at, at + 1, g->price[i]);
		if (g->from[i])
			cut_arc(c, CUT_FROM, at, CUT_NEVER);
		if (g->to[i])
			cut_arc(c, at + 1, CUT_TO, CUT_NEVER);
		for (int k = 0; k < g->n; k++)
			if (g->arc[i][k])
				cut_arc(c, at + 1, CUT_FIRST + 2 * k, CUT_NEVER);
	}
	return c;
}

/* Is there no way around the set from a source to a sink? Arcs go up. */
static bool parts(const struct graph *g, unsigned set)
{
	bool in[8] = { 0 };

	for (int i = 0; i < g->n; i++) {
		in[i] |= g->from[i];
		if (!in[i] || set >> i & 1)
			continue;
		if (g->to[i])
			return false;
		for (int k = i + 1; k < g->n; k++)
			in[k] |= g->arc[i][k];
	}
	return true;
}

static int64_t price_of(const struct graph *g, unsigned set)
{
	int64_t sum = 0;

	for (int i = 0; i < g->n; i++)
		sum += set >> i & 1 ? g->price[i] : 0;
	return sum;
}

static void cut_is_least(void **state)
{
	(void)state;
	for (int round = 0; round < 500; round++) {
		struct arena *mem = arena_new();
		struct graph g = { .n = 2 + (int)dice(7) };
		unsigned found = 0;
		int64_t best = INT64_MAX;

		for (int i = 0; i < g.n; i++) {
			g.price[i] = dice(6);
			g.from[i] = dice(3) == 0;
			g.to[i] = dice(3) == 0;
			for (int k = i + 1; k < g.n; k++)
				g.arc[i][k] = dice(3) == 0;
		}
		struct cut *c = cut_of(mem, &g);
		assert_true(cut_solve(c));
		for (int i = 0; i < g.n; i++)
			found |= (unsigned)(!cut_behind(c, CUT_FIRST + 2 * i) && cut_behind(c, CUT_FIRST + 2 * i + 1)) << i;
		for (unsigned set = 0; set < 1u << g.n; set++)
			if (parts(&g, set) && price_of(&g, set) < best)
				best = price_of(&g, set);
		assert_true(parts(&g, found));
		assert_int_equal(price_of(&g, found), best);
		arena_free(mem);
	}
}

static void no_cut(void **state)
{
	struct arena *mem = arena_new();
	struct graph g = { .n = 1, .price = { CUT_NEVER }, .from = { true }, .to = { true } };

	(void)state;
	assert_false(cut_solve(cut_of(mem, &g)));
	arena_free(mem);
}

/* The most rows of stacks between F and the end of backward on a stage, by its list of actions. */
static double count_rows(struct arena *mem, const struct module *m, dimid d)
{
	struct schedule s = pipe_schedule(m);
	struct actions *list = schedule_expand(mem, &s);
	double most = 0;

	for (int stage = 0; stage < s.p; stage++) {
		double now = 0;

		for (uint32_t i = 0; i < list[stage].n; i++) {
			const struct action *a = &list[stage].at[i];
			struct trips t = pipe_trips(m, d, a->chunk);

			if (a->kind != ACT_I)
				now += (double)(t.hi - t.lo) * (a->kind == ACT_F ? 1 : -1);
			most = now > most ? now : most;
		}
	}
	return most;
}

static void rows_are_those_of_the_schedule(void **state)
{
	static const struct {
		enum schedule_kind kind;
		int stages, chunks, micro;
	} cases[] = { { SCHED_GPIPE, 3, 1, 5 }, { SCHED_1F1B, 4, 1, 8 }, { SCHED_1F1B, 4, 1, 2 },
		      { SCHED_INTERLEAVED, 2, 2, 8 }, { SCHED_INTERLEAVED, 4, 2, 8 }, { SCHED_ZB_H1, 4, 1, 8 },
		      { SCHED_ZB_H2, 3, 1, 9 }, { SCHED_ZB_V, 4, 2, 8 } };

	(void)state;
	for (size_t i = 0; i < LEN(cases); i++) {
		struct arena *mem = arena_new();
		struct sources src = { 0 };
		struct module *m = module_new(mem, &src);
		int chunks = cases[i].stages * cases[i].chunks;
		dimid d = module_dim(m, "layers", 3 * chunks, (struct span){ 0 });

		PUSH(mem, &m->mesh, ((struct user_axis){ .name = "pp", .size = cases[i].stages }));
		PUSH(mem, &m->axes, ((struct axis){ .name = "pp", .size = cases[i].stages }));
		m->pipe = (struct pipe){ .order = cases[i].kind, .chunks = cases[i].chunks };
		m->micro = cases[i].micro;
		PUSH(mem, &m->pipe.loops, d);
		for (int g = 1; g <= chunks; g++)
			PUSH(mem, &m->pipe.end, 3 * g);
		assert_true(rows_held(m, d) == count_rows(mem, m, d));
		arena_free(mem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(front_is_exact), cmocka_unit_test(large_front_is_sound),
		cmocka_unit_test(cut_is_least), cmocka_unit_test(no_cut), cmocka_unit_test(rows_are_those_of_the_schedule),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
