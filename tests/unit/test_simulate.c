/* Simulated steps: hops, bytes, buffers, streams, unequal costs, the choice among candidates. */
#include "tests/unit/pipes.h"

static struct run run_with(struct arena *mem, const struct schedule *s, const struct costs *c)
{
	struct actions *list = schedule_expand(mem, s);
	struct schedule_fault fault;

	assert_true(schedule_check(mem, s, list, c->receive, &fault));
	return simulate(mem, s, list, c);
}

static void hops(void **state)
{
	(void)state;
	static const struct { enum schedule_kind kind; int v, extra; double hop, seconds; } want[] = {
		{ SCHED_1F1B, 1, 0, .12, 60.36 }, { SCHED_1F1B, 1, 1, .12, 57.72 },
		{ SCHED_1F1B, 1, 0, .3, 65.4 }, { SCHED_1F1B, 1, 1, .3, 61.6 },
		{ SCHED_INTERLEAVED, 1, 0, .3, 58.8 }, /* twice the warm-up of 1f1b */
		{ SCHED_INTERLEAVED, 2, 0, .12, 54.18 }, { SCHED_INTERLEAVED, 2, 1, .12, 55.62 },
	};

	for (size_t k = 0; k < LEN(want); k++) {
		struct arena *mem = arena_new();
		struct schedule s = { .kind = want[k].kind, .p = 4, .v = want[k].v, .m = 16, .warm_extra = want[k].extra };
		struct costs c = equal_costs(mem, &s, 1, 1, 1, want[k].hop);
		struct run r = run_with(mem, &s, &c);

		NEAR(r.seconds, want[k].seconds);
		if (s.kind == SCHED_1F1B)
			NEAR(r.stage[0].peak, 4 + want[k].extra);
		if (want[k].extra && s.kind == SCHED_1F1B && want[k].hop < .2)
			NEAR(r.seconds, lower_bound(&s, &c));
		arena_free(mem);
	}
}

static void bytes_of_halves(void **state)
{
	(void)state;
	static const struct { double freed, cut, peak[4]; } want[] = {
		{ .5, .5, { 4, 4, 4, 4 } }, { 0, .6, { 4.6, 5.2, 5.8, 6.4 } }, { .4, .3, { 4, 3.9, 3.8, 3.7 } },
	};

	for (size_t k = 0; k < LEN(want); k++)
		for (int m = 4; m <= 64; m *= 4) {
			struct arena *mem = arena_new();
			struct schedule s = { .kind = SCHED_ZB_H1, .p = 4, .v = 1, .m = m };
			struct costs c = equal_costs(mem, &s, 1, 1, 1, 0);
			struct chunk_cost *chunk = NEWN(mem, struct chunk_cost, 4);
			struct stage_cost stage[4] = { { .bytes = 100 } };

			memcpy(chunk, c.chunk, 4 * sizeof *chunk);
			for (int d = 0; d < 4; d++) {
				chunk[d].freed = want[k].freed;
				chunk[d].cut = want[k].cut;
			}
			c.chunk = chunk;
			c.stage = stage;
			struct run r = run_with(mem, &s, &c);
			for (int d = 0; d < 4; d++) {
				NEAR(r.stage[d].bytes - stage[d].bytes, want[k].peak[d]);
				NEAR(r.stage[d].peak, 4);
			}
			arena_free(mem);
		}
}

static void end_of_the_step(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct schedule s = { .kind = SCHED_1F1B, .p = 2, .v = 1, .m = 2 };
	struct costs c = equal_costs(mem, &s, 1, 1, 1, 0); /* ends at 9, stage 1 at 7 */
	struct stage_cost stage[2] = { { .prologue = .5, .reduce = 1, .epilogue = 1 }, { .prologue = 0, .reduce = 2, .epilogue = 3 } };

	c.stage = stage;
	NEAR(run_with(mem, &s, &c).seconds, 9.5 + 1 + 3);
	c.clip = false;
	NEAR(run_with(mem, &s, &c).seconds, 7.5 + 2 + 3);
	NEAR(run_with(mem, &s, &c).stage[0].busy, 8.5);
	arena_free(mem);
}

/* What each arrangement of streams does to the orders, in all (p 2-8, m 1-3p). */
static void streams(void **state)
{
	(void)state;
	static const struct { enum schedule_kind kind; int v0, v1, cases, deadlocks[4]; } want[] = {
		{ SCHED_1F1B, 1, 1, 105, { 98, 0, 0, 0 } },
		{ SCHED_ZB_H1, 1, 1, 105, { 98, 0, 0, 0 } },
		{ SCHED_INTERLEAVED, 2, 4, 315, { 294, 24, 3, 0 } },
		{ SCHED_ZB_V, 2, 2, 105, { 98, 70, 70, 0 } },
	};

	printf("deadlocks: one stream, send + receive, pairs, channels\n");
	for (size_t k = 0; k < LEN(want); k++) {
		int dead[4] = { 0 }, cases = 0;
		double slower[4] = { 1, 1, 1, 1 }, one = 1;

		for (int p = 2; p <= 8; p++)
			for (int v = want[k].v0; v <= want[k].v1; v++)
				for (int m = 1; m <= 3 * p; m++, cases++) {
					struct arena *mem = arena_new();
					struct schedule s = { .kind = want[k].kind, .p = p, .v = v, .m = m };
					struct costs c = equal_costs(mem, &s, 1, 1, 1, .12);
					struct actions *list = schedule_expand(mem, &s);
					double best = oracle(mem, &s, list, &c, CHANNELS, 0);

					if (p == 4 && m == 8 && v == 2)
						NEAR(best, s.kind == SCHED_ZB_V ? 27.06 : 30.18);

					for (int i = 0; i < 4; i++) {
						double t = oracle(mem, &s, list, &c, (enum streams)i, 0);

						dead[i] += t < 0;
						slower[i] = fmax(slower[i], t / best);
					}
					one = fmax(one, oracle(mem, &s, list, &c, CHANNELS, 1) / best);
					NEAR(oracle(mem, &s, list, &c, CHANNELS, 2), best);
					NEAR(simulate(mem, &s, list, &c).seconds, best);
					arena_free(mem);
				}
		printf("  %-12s %d cases: %d %d %d %d; else %.2f %.2f %.2f %.2f; channels of 1 receive buffer %.3f\n",
		       schedule_name(want[k].kind), cases, dead[0], dead[1], dead[2], dead[3], slower[0], slower[1], slower[2], slower[3], one);
		assert_true(want[k].kind == SCHED_INTERLEAVED ? one > 1.05 : near(one, 1)); /* two are never slower, see above */
		assert_int_equal(cases, want[k].cases);
		for (int i = 0; i < 4; i++)
			assert_int_equal(dead[i], want[k].deadlocks[i]);
	}
}

/* Chunk costs that differ by so much, the last one more by head, and hops. */
static struct costs unequal(struct arena *mem, const struct schedule *s, uint64_t *seed, double spread, double head, double hop)
{
	struct chunk_cost *k = NEWN(mem, struct chunk_cost, s->p * s->v);
	int n = s->p * s->v;

	for (int g = 0; g < n; g++) {
		double f = uniform(seed, 1 - spread, 1 + spread) / s->v * (g == n - 1 ? 1 + head : 1);
		double i = uniform(seed, 1 - spread, 1 + spread) / s->v * (g == n - 1 ? 1 + head : 1);

		k[g] = (struct chunk_cost){ .seconds = { f, 2 * i, i, i }, .bytes = 1, .hop = { hop / s->v, hop / s->v } };
	}
	return (struct costs){ .chunk = k, .receive = RECEIVE_BUFFERS, .clip = true };
}

static void same_as_the_oracle(void **state)
{
	(void)state;
	uint64_t seed = 5;

	for (int k = 0; k < 800; k++) {
		struct arena *mem = arena_new();
		struct schedule s = { .kind = (enum schedule_kind)(k % SCHED_LIST), .p = uniform_int(&seed, 1, 6), .m = uniform_int(&seed, 1, 18) };

		s.v = s.kind == SCHED_ZB_V ? 2 : s.kind == SCHED_INTERLEAVED || s.kind == SCHED_GPIPE ? uniform_int(&seed, 1, 3) : 1;
		struct costs c = unequal(mem, &s, &seed, .5, .2, uniform(&seed, 0, .5));
		struct actions *list = schedule_expand(mem, &s);
		c.receive = uniform_int(&seed, 0, 3);
		struct run r = simulate(mem, &s, list, &c);
		double want = oracle(mem, &s, list, &c, CHANNELS, c.receive);

		if (want < 0) {
			assert_non_null(r.fault.what);
		} else {
			assert_null(r.fault.what);
			NEAR(r.seconds, want);
			assert_true(r.seconds >= lower_bound(&s, &c) - 1e-9);
		}
		/* As many send buffers as it says are enough, and change nothing; one less may. */
		for (int i = 0; i < r.channels; i++)
			c.send = r.channel[i].send > c.send ? r.channel[i].send : c.send;
		if (!r.fault.what)
			NEAR(simulate(mem, &s, list, &c).seconds, r.seconds);
		arena_free(mem);
	}
}

/* Events follow one another on each stage, and messages take their hop. */
static void timelines(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	uint64_t seed = 17;
	struct schedule s = { .kind = SCHED_ZB_V, .p = 4, .v = 2, .m = 9 };
	struct costs c = unequal(mem, &s, &seed, .3, 0, .1);
	struct run r = run_with(mem, &s, &c);
	double (*end)[3] = arena_alloc(mem, sizeof *end * 8 * 9);

	for (int d = 0; d < 4; d++) {
		assert_int_equal(r.stage[d].n, 2 * 9 * 3);
		for (uint32_t i = 0; i < r.stage[d].n; i++) {
			const struct event *e = &r.stage[d].event[i];

			if (i)
				assert_true(e->start >= e[-1].end - 1e-12);
			NEAR(e->end - e->start, c.chunk[e->what.chunk].seconds[e->what.kind]);
			end[e->what.chunk * 9 + e->what.mb][e->what.kind == ACT_F ? 0 : e->what.kind == ACT_I ? 1 : 2] = e->end;
		}
	}
	for (int d = 0; d < 4; d++)
		for (uint32_t i = 0; i < r.stage[d].n; i++) {
			const struct event *e = &r.stage[d].event[i];
			int g = e->what.chunk, j = e->what.mb;

			if (e->what.kind == ACT_F && g)
				assert_true(e->start >= end[(g - 1) * 9 + j][0] + (g == 4 ? 0 : c.chunk[g - 1].hop[0]) - 1e-9);
			if (e->what.kind == ACT_I && g < 7)
				assert_true(e->start >= end[(g + 1) * 9 + j][1] + (g == 3 ? 0 : c.chunk[g + 1].hop[1]) - 1e-9);
		}
	arena_free(mem);
}

static bool same_lists(const struct actions *a, const struct actions *b, int p)
{
	for (int d = 0; d < p; d++) {
		if (a[d].n != b[d].n)
			return false;
		for (uint32_t i = 0; i < a[d].n; i++)
			if (a[d].at[i].kind != b[d].at[i].kind || a[d].at[i].chunk != b[d].at[i].chunk || a[d].at[i].mb != b[d].at[i].mb)
				return false;
	}
	return true;
}

static struct actions *clocked(struct arena *mem, const struct schedule *s, const struct costs *c, enum clock_rule rule)
{
	int *limit = NEWN(mem, int, s->p);

	for (int d = 0; d < s->p; d++)
		limit[d] = schedule_inflight(s, d);
	return schedule_clocked(mem, s, c, rule, limit);
}

static void clocked_with_equal_costs(void **state)
{
	(void)state;
	static const struct { enum schedule_kind kind; int p, m, v; bool same; } want[] = {
		{ SCHED_1F1B, 4, 5, 1, true }, { SCHED_1F1B, 4, 8, 1, true }, { SCHED_1F1B, 8, 24, 1, true },
		{ SCHED_INTERLEAVED, 4, 8, 2, true }, { SCHED_INTERLEAVED, 4, 8, 4, true }, { SCHED_INTERLEAVED, 8, 24, 2, false },
	};
	static const struct { int p, m; double idle; } zb[] = { { 4, 3, 2.5 }, { 4, 5, 1.5 }, { 8, 8, 3.5 }, { 8, 9, 5.5 } };

	for (size_t k = 0; k < LEN(want); k++) {
		struct arena *mem = arena_new();
		struct schedule s = { .kind = want[k].kind, .p = want[k].p, .v = want[k].v, .m = want[k].m }, t = s;
		struct costs c = equal_costs(mem, &s, 1, 1, 1, 0);
		struct actions *list = schedule_expand(mem, &s);

		t.list = clocked(mem, &s, &c, CLOCK_STRICT);
		assert_non_null(t.list);
		printf("%s %d,%d,%d clocked: %s order\n", schedule_name(s.kind), s.p, s.m, s.v, same_lists(list, t.list, s.p) ? "the same" : "another");
		if (want[k].same)
			assert_true(same_lists(list, t.list, s.p));
		NEAR(run_with(mem, &t, &c).idle, run_with(mem, &s, &c).idle);
		arena_free(mem);
	}
	for (size_t k = 0; k < LEN(zb); k++) {
		struct arena *mem = arena_new();
		struct schedule s = { .kind = SCHED_ZB_V, .p = zb[k].p, .v = 2, .m = zb[k].m };
		struct costs c = equal_costs(mem, &s, 1, 1, 1, 0);
		struct portfolio all = schedule_choose(mem, &s, &c, 0);

		NEAR(all.at[all.best].run.idle, zb[k].idle);
		for (int d = 0; d < s.p; d++)
			assert_true(all.at[all.best].run.stage[d].peak <= s.p);
		arena_free(mem);
	}
	/* Deep, with slow hops: memory must not fill with first chunks alone. */
	struct arena *deep = arena_new();
	struct schedule v = { .kind = SCHED_ZB_V, .p = 16, .v = 2, .m = 60 };
	struct costs slow = equal_costs(deep, &v, 1, 1, 1, .3);
	assert_int_equal(schedule_choose(deep, &v, &slow, 0).n, 4);
	arena_free(deep);
	/* W put in just before a critical I: the count form is better. */
	struct arena *mem = arena_new();
	struct schedule s = { .kind = SCHED_ZB_H1, .p = 8, .v = 1, .m = 32 }, t = s;
	struct costs c = equal_costs(mem, &s, 1, 1.2, .8, 0);
	t.list = clocked(mem, &s, &c, CLOCK_STRICT);
	NEAR(run_with(mem, &t, &c).idle, 13.6);
	struct portfolio all = schedule_choose(mem, &s, &c, 0);
	NEAR(all.at[all.best].run.idle, 9.8);
	assert_int_equal(all.best, 0); /* ties to the count form */
	arena_free(mem);
}

static void portfolio_near_the_bound(void **state)
{
	(void)state;
	static const enum schedule_kind kinds[] = { SCHED_1F1B, SCHED_ZB_H1, SCHED_INTERLEAVED, SCHED_ZB_V };
	uint64_t seed = 23;

	for (size_t k = 0; k < LEN(kinds); k++) {
		double sum = 0, most = 0, count_most = 1;
		int count_best = 0;

		for (int n = 0; n < 120; n++) {
			struct arena *mem = arena_new();
			struct schedule s = { .kind = kinds[k], .p = uniform_int(&seed, 2, 8), .v = kinds[k] >= SCHED_ZB_V || kinds[k] == SCHED_INTERLEAVED ? 2 : 1 };

			s.m = uniform_int(&seed, 2 * s.p, 4 * s.p);
			struct costs c = unequal(mem, &s, &seed, n % 3 == 0 ? 0 : n % 3 == 1 ? .1 : .3, .15, .03);
			struct portfolio all = schedule_choose(mem, &s, &c, 0);
			const struct candidate *best = &all.at[all.best];
			double over = best->run.seconds / lower_bound(&s, &c);

			assert_int_equal(all.n, kinds[k] == SCHED_INTERLEAVED ? 2 : kinds[k] == SCHED_ZB_V ? 4 : 3);
			assert_true(over > 1 - 1e-9 && over < 1.15);
			sum += over;
			most = fmax(most, over);
			count_best += all.at[0].run.seconds < best->run.seconds * (1 + 1e-9);
			count_most = fmax(count_most, all.at[0].run.seconds / best->run.seconds);
			arena_free(mem);
		}
		printf("%-12s over the bound: mean %.3f, most %.3f; count form best in %d of 120, else up to %.3f\n",
		       schedule_name(kinds[k]), sum / 120, most, count_best, count_most);
		assert_true(sum / 120 < 1.06);
	}
}

static void memory_decides(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct schedule s = { .kind = SCHED_1F1B, .p = 4, .v = 1, .m = 16 };
	struct costs c = equal_costs(mem, &s, 1, 1, 1, .12);
	struct portfolio all = schedule_choose(mem, &s, &c, 0);

	assert_string_equal(all.at[all.best].name, "warm-up + 1");
	NEAR(all.at[all.best].run.seconds, 57.72);
	all = schedule_choose(mem, &s, &c, 4.5); /* not five activations */
	NEAR(all.at[all.best].run.seconds, 60.36);
	assert_true(all.at[all.best].fits);
	all = schedule_choose(mem, &s, &c, 2);
	assert_int_equal(all.best, 0);
	assert_false(all.at[0].fits);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hops),
		cmocka_unit_test(bytes_of_halves),
		cmocka_unit_test(end_of_the_step),
		cmocka_unit_test(streams),
		cmocka_unit_test(same_as_the_oracle),
		cmocka_unit_test(timelines),
		cmocka_unit_test(clocked_with_equal_costs),
		cmocka_unit_test(portfolio_near_the_bound),
		cmocka_unit_test(memory_decides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
