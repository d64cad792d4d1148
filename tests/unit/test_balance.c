/* Cuts of a chain of iterations: against brute force, against known figures. */
#include <time.h>

#include "passes/balance.h"
#include "tests/unit/pipes.h"

static double piece_time(const struct piece *x)
{
	return x->seconds[ACT_F] + x->seconds[ACT_B];
}

static struct piece piece_of(double layers)
{
	return (struct piece){ .seconds = { layers, 2 * layers, layers, layers }, .bytes = layers };
}

static struct chain chain_of(struct arena *mem, int n, double first, double last)
{
	struct piece *x = NEWN(mem, struct piece, n);

	for (int i = 0; i < n; i++)
		x[i] = piece_of(1);
	return (struct chain){ .iteration = x, .n = n, .first = piece_of(first), .last = piece_of(last) };
}

static void assert_counts(const int *end, int chunks, const int *want)
{
	for (int g = 0; g < chunks; g++)
		assert_int_equal(end[g] - (g ? end[g - 1] : 0), want[g]);
}

/* The longest stage and the sum of squares of a cut; false if a stage does not fit. */
static bool weigh(const struct chain *c, const int *end, int chunks, const double *inflight, double bytes, double *most, double *squares)
{
	*most = *squares = 0;
	for (int g = 0; g < chunks; g++) {
		double t = 0, kept = 0, fixed = 0;
		const struct piece *ends[2] = { g == 0 ? &c->first : NULL, g == chunks - 1 ? &c->last : NULL };

		for (int i = g ? end[g - 1] : 0; i < end[g]; i++)
			for (int k = 0; k < 2; k++) {
				bool early = i < (g ? end[g - 1] : 0) + c->nfirst;
				const struct piece *x = k == 0 ? early ? &c->early[i] : &c->iteration[i] : c->glue && i ? &c->glue[i] : NULL;

				if (x)
					t += piece_time(x), kept += x->bytes, fixed += x->fixed;
			}
		for (int k = 0; k < 2; k++)
			if (ends[k])
				t += piece_time(ends[k]), kept += ends[k]->bytes, fixed += ends[k]->fixed;
		if (bytes > 0 && fixed + kept * inflight[g] > bytes * (1 + 1e-9))
			return false;
		*most = fmax(*most, t);
		*squares += t * t;
	}
	return true;
}

/* All cuts. */
static bool brute(const struct chain *c, int chunks, const double *inflight, double bytes, double *most, double *squares)
{
	int end[6] = { 0 };
	bool any = false;
	double m, q;

	end[chunks - 1] = c->n;
	for (;;) {
		bool rising = true;

		for (int g = 1; g < chunks; g++)
			rising &= end[g] >= end[g - 1];
		if (rising && weigh(c, end, chunks, inflight, bytes, &m, &q) &&
		    (!any || m < *most * (1 - 1e-9) || (m < *most * (1 + 1e-9) && q < *squares))) {
			*most = m;
			*squares = q;
			any = true;
		}
		int g = 0;
		while (g < chunks - 1 && ++end[g] > c->n)
			end[g++] = 0;
		if (g >= chunks - 1)
			return any;
	}
}

static struct piece random_piece(uint64_t *seed, double scale, bool coarse)
{
	double t = coarse ? uniform_int(seed, 1, 3) : uniform(seed, .2, 2);

	return (struct piece){ .seconds = { t * scale, 2 * t * scale, t * scale, t * scale }, .bytes = uniform(seed, .2, 1) * scale,
			       .fixed = uniform(seed, 0, 2) * scale };
}

static void exact_against_brute_force(void **state)
{
	(void)state;
	uint64_t seed = 31;
	int infeasible = 0;

	for (int k = 0; k < 3000; k++) {
		struct arena *mem = arena_new();
		int n = uniform_int(&seed, 0, 9), chunks = uniform_int(&seed, 1, 5), *end;
		struct piece *x = NEWN(mem, struct piece, n + 1), *glue = NEWN(mem, struct piece, n + 1), *early = NEWN(mem, struct piece, n + 1);
		struct chain c = { .iteration = x, .n = n, .glue = k % 3 == 0 ? glue : NULL, .early = early,
				   .nfirst = k % 4 == 0 ? uniform_int(&seed, 1, 4) : 0 };
		double inflight[5], bytes = k % 2 ? uniform(&seed, 2, 22) : 0, most, squares, m, q;

		for (int i = 0; i < n; i++) {
			x[i] = early[i] = random_piece(&seed, 1, k % 5 == 0);
			early[i].bytes *= uniform(&seed, .2, 1);
			early[i].seconds[ACT_B] *= uniform(&seed, 1, 3);
			early[i].seconds[ACT_I] = early[i].seconds[ACT_B] - early[i].seconds[ACT_W];
			if (uniform_int(&seed, 0, 3) == 0)
				glue[i] = random_piece(&seed, .5, false);
		}
		c.first = random_piece(&seed, uniform(&seed, 0, 1), false);
		c.last = random_piece(&seed, uniform(&seed, 0, 3), false);
		for (int g = 0; g < chunks; g++)
			inflight[g] = chunks - g;
		end = cut_even(mem, &c, chunks, chunks, inflight, bytes);
		if (brute(&c, chunks, inflight, bytes, &most, &squares)) {
			assert_non_null(end);
			assert_int_equal(end[chunks - 1], n);
			assert_true(weigh(&c, end, chunks, inflight, bytes, &m, &q));
			NEAR(m, most);
			NEAR(q, squares);
		} else {
			assert_null(end);
			infeasible++;
		}
		arena_free(mem);
	}
	printf("3000 chains as brute force says, %d of them infeasible\n", infeasible);
	assert_true(infeasible > 300 && infeasible < 1500);
}

/* All cuts are tried, with a table for each bound, only where early iterations cost something else; else the same is found
 * without. */
static void many_chunks(void **state)
{
	(void)state;
	struct arena *mem = arena_new(), *other = arena_new();
	struct chain c = chain_of(mem, 126, .3, 2), early = c;

	early.early = c.iteration;
	early.nfirst = 1;
	size_t before = arena_bytes(mem);
	int *quick = cut_even(mem, &c, 128, 128, NULL, 0), *all = cut_even(other, &early, 128, 128, NULL, 0);

	assert_non_null(quick);
	assert_memory_equal(quick, all, 128 * sizeof *all);
	assert_true(arena_bytes(mem) - before < 256 << 10);
	assert_true(arena_bytes(other) > 1 << 20);
	arena_free(mem);
	arena_free(other);
}

static void known_cuts(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct chain thirty = chain_of(mem, 30, 0, 0), llama = chain_of(mem, 126, .3, 2), head = chain_of(mem, 4, 0, 3), none = chain_of(mem, 0, 1, 1);

	assert_counts(cut_even(mem, &thirty, 4, 4, NULL, 0), 4, (int[]){ 7, 7, 8, 8 });
	assert_counts(cut_even(mem, &llama, 16, 16, NULL, 0), 16, (int[]){ 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 6 });
	assert_counts(cut_even(mem, &head, 4, 4, NULL, 0), 4, (int[]){ 1, 1, 2, 0 });
	assert_counts(cut_even(mem, &none, 3, 3, NULL, 0), 3, (int[]){ 0, 0, 0 });
	assert_null(cut_given(mem, &head, 2, (int[]){ 2, 1 }));
	assert_null(cut_given(mem, &head, 2, (int[]){ 5, -1 }));
	assert_null(cut_given(mem, &head, 2, (int[]){ 2, 3 }));
	assert_counts(cut_given(mem, &head, 2, (int[]){ 0, 4 }), 2, (int[]){ 0, 4 });
	arena_free(mem);
}

/* Time of a cut over work / stages. */
static double over_ideal(struct arena *mem, const struct chain *c, const struct schedule *s, int *end)
{
	struct costs like = { .receive = RECEIVE_BUFFERS, .clip = true }, k = cut_costs(mem, c, s, end, &like);
	double work = piece_time(&c->first) + piece_time(&c->last);

	for (int i = 0; i < c->n; i++)
		work += piece_time(&c->iteration[i]);
	return simulate(mem, s, schedule_expand(mem, s), &k).seconds / (s->m * work / s->p);
}

static int *equal_counts(struct arena *mem, const struct chain *c, int chunks)
{
	int *count = NEWN(mem, int, chunks);

	for (int g = 0; g < chunks; g++)
		count[g] = c->n / chunks + (g < c->n % chunks);
	return cut_given(mem, c, chunks, count);
}

static void several_chunks(void **state)
{
	(void)state;
	static const struct { int n, p, v, m; double first, last, equal, even, level, best; } want[] = {
		{ 30, 4, 2, 8, .3, 2, 1.319, 1.195, 1.195, 1.181 },
		{ 28, 4, 2, 8, .3, 2, 1.406, 1.226, 1.182, 1.162 },
		{ 24, 4, 3, 8, 0, 3, 1.444, 1.185, 1.259, 1.185 },
	};

	for (size_t k = 0; k < LEN(want); k++) {
		struct arena *mem = arena_new();
		struct chain c = chain_of(mem, want[k].n, want[k].first, want[k].last);
		struct schedule s = { .kind = SCHED_INTERLEAVED, .p = want[k].p, .v = want[k].v, .m = want[k].m };
		struct costs like = { .receive = RECEIVE_BUFFERS, .clip = true };
		int chunks = s.p * s.v;
		struct balance b = balance_chain(mem, &c, &s, &like, 0);
		double x[4] = { over_ideal(mem, &c, &s, equal_counts(mem, &c, chunks)),
				over_ideal(mem, &c, &s, cut_even(mem, &c, chunks, s.p, NULL, 0)),
				over_ideal(mem, &c, &s, cut_level(mem, &c, &s)), over_ideal(mem, &c, &s, b.end) };

		printf("%d layers p%d v%d: equal %.3f, even %.3f, level %.3f, %s %.3f (%d simulations):", want[k].n, s.p, s.v, x[0],
		       x[1], x[2], b.how, x[3], b.simulations);
		for (int g = 0; g < chunks; g++)
			printf(" %d", b.end[g] - (g ? b.end[g - 1] : 0));
		printf("\n");
		assert_true(fabs(x[0] - want[k].equal) < .0006 && fabs(x[1] - want[k].even) < .0006);
		assert_true(fabs(x[2] - want[k].level) < .0006 && fabs(x[3] - want[k].best) < .0006);
		assert_true(b.simulations < 300);
		arena_free(mem);
	}
}

static void llama_405b(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct chain c = chain_of(mem, 126, .3, 2);
	struct costs like = { .receive = RECEIVE_BUFFERS, .clip = true };
	struct schedule s = { .kind = SCHED_INTERLEAVED, .p = 16, .v = 8, .m = 16 }, four = { .kind = SCHED_INTERLEAVED, .p = 16, .v = 4, .m = 16 };
	struct balance b = balance_chain(mem, &c, &s, &like, 0);

	assert_int_equal(b.simulations, 2); /* of so many chunks none is moved */
	for (int g = 0; g < 128; g++)
		assert_int_equal(b.end[g] - (g ? b.end[g - 1] : 0), g > 0 && g < 127);
	assert_true(fabs(over_ideal(mem, &c, &s, b.end) - 1.234) < .0006);
	assert_true(fabs(over_ideal(mem, &c, &s, equal_counts(mem, &c, 128)) - 1.277) < .0006);
	b = balance_chain(mem, &c, &four, &like, 0);
	for (int g = 0; g < 64; g++)
		assert_int_equal(b.end[g] - (g ? b.end[g - 1] : 0), g < 63 ? 2 : 0);
	assert_true(fabs(over_ideal(mem, &c, &four, b.end) - 1.269) < .0006);
	arena_free(mem);
}

/* The sum of what chunks cost is the chain's, whatever the cut; hops are those of the cuts. */
static void costs_of_cuts(void **state)
{
	(void)state;
	uint64_t seed = 41;

	for (int k = 0; k < 200; k++) {
		struct arena *mem = arena_new();
		int n = uniform_int(&seed, 1, 20);
		struct schedule s = { .kind = SCHED_ZB_V, .p = uniform_int(&seed, 1, 4), .v = 2, .m = 5 };
		struct piece *x = NEWN(mem, struct piece, n), *glue = NEWN(mem, struct piece, n);
		double (*hop)[2] = arena_alloc(mem, sizeof *hop * (size_t)(n + 1)), sum = 0, got = 0, fixed = 0;
		struct chain c = { .iteration = x, .n = n, .glue = glue, .first = random_piece(&seed, 1, false),
				   .last = random_piece(&seed, 2, false), .hop = (const double (*)[2])hop };
		struct costs like = { .receive = RECEIVE_BUFFERS };

		for (int i = 0; i < n; i++) {
			x[i] = random_piece(&seed, 1, false);
			glue[i] = random_piece(&seed, .1, false);
			sum += x[i].fixed + (i ? glue[i].fixed : 0) + x[i].bytes + (i ? glue[i].bytes : 0);
		}
		for (int i = 0; i <= n; i++)
			hop[i][0] = i, hop[i][1] = 100 + i;
		sum += c.first.fixed + c.first.bytes + c.last.fixed + c.last.bytes;
		struct balance b = balance_chain(mem, &c, &s, &like, 0);
		struct costs costs = cut_costs(mem, &c, &s, b.end, &like);
		for (int g = 0; g < s.p * s.v; g++) {
			got += costs.chunk[g].bytes;
			NEAR(costs.chunk[g].hop[0], b.end[g]);
			if (g)
				NEAR(costs.chunk[g].hop[1], 100 + b.end[g - 1]);
		}
		for (int d = 0; d < s.p; d++)
			fixed += costs.stage[d].bytes;
		NEAR(got + fixed, sum);
		NEAR(simulate(mem, &s, schedule_expand(mem, &s), &costs).seconds, b.seconds);
		arena_free(mem);
	}
}

static void memory_moves_cuts(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct chain c = chain_of(mem, 16, 0, 0);
	struct schedule s = { .kind = SCHED_1F1B, .p = 4, .v = 1, .m = 8 };
	struct costs like = { .receive = RECEIVE_BUFFERS, .clip = true };
	struct balance b = balance_chain(mem, &c, &s, &like, 0);

	assert_counts(b.end, 4, (int[]){ 4, 4, 4, 4 });
	b = balance_chain(mem, &c, &s, &like, 12); /* 4 in flight on the first, 3 on the second, ... */
	assert_counts(b.end, 4, (int[]){ 3, 4, 4, 5 });
	assert_true(b.fits);
	b = balance_chain(mem, &c, &s, &like, 2);
	assert_null(b.end);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exact_against_brute_force),
		cmocka_unit_test(many_chunks),
		cmocka_unit_test(known_cuts),
		cmocka_unit_test(several_chunks),
		cmocka_unit_test(llama_405b),
		cmocka_unit_test(costs_of_cuts),
		cmocka_unit_test(memory_moves_cuts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
