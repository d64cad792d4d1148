/* What chunks and stages of real models cost, by their own ops: sums over stages are those of the whole
 * program, time is near the least possible, and two streams hide what a plan says they do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "frontend/frontend.h"
#include "passes/passes.h"
#include "passes/pipe_cost.h"
#include "passes/report.h"

struct made {
	struct arena *mem;
	struct sources src;
	struct diag d;
	struct module *m;
};

static void make(struct made *x, const char *file, const char *plan, const char *mesh, const char *set)
{
	const char *sets[] = { set };
	struct front_options front = { .plan = plan, .mesh = mesh, .sets = sets, .nsets = set ? 1 : 0 };

	*x = (struct made){ .mem = arena_new() };
	diag_init(&x->d, x->mem, &x->src, NULL);
	x->m = front_compile(x->mem, &x->src, &x->d, file, &front);
	assert_non_null(x->m);
	assert_true(run_passes(x->m, &x->d, &(struct pass_options){ .verify = true }));
}

static const char large[] = "batch=64,seq=2048,vocab=16,embed=2048,heads=16,head=128,ff=8192,layers=16";
static const char llama[] = "batch=2048,embed=16384,layers=126,group=16,ff=53248";

static struct step_time time_of(struct made *x)
{
	struct flops f = count_flops(x->m);

	return step_time_of(x->mem, x->m, &f);
}

/* Of prologue and epilogue the longest are added to what no order of actions can beat. */
static void near_bound(const char *file, const char *plan, const char *mesh, const char *set, double most)
{
	struct made x;

	make(&x, file, plan, mesh, set);
	struct step_time t = time_of(&x);
	const struct costs *c = &t.costs.c;
	double bound = lower_bound(&t.costs.s, c), once = 0;

	for (int d = 0; d < t.costs.s.p; d++)
		once = fmax(once, c->stage[d].prologue + c->stage[d].reduce + c->stage[d].epilogue);
	assert_null(t.run.fault.what);
	assert_true(t.step >= bound);
	if (t.step > most * (bound + once))
		fail_msg("%s %s: %g s, at least %g", file, plan ? plan : "", t.step, bound + once);
	arena_free(x.mem);
}

static void test_bound(void **state)
{
	(void)state;
	near_bound("tests/explain/gpt.pdsl", NULL, NULL, large, 1.15);
	near_bound("tests/explain/gpt.pdsl", "gpipe", NULL, large, 1.15);
	near_bound("tests/explain/gpt.pdsl", "interleaved", NULL, large, 1.15);
	near_bound("examples/llama.pdsl", "big", "pp=16,dp=128,tp=8", llama, 1.15);
	near_bound("examples/llama.pdsl", "big", "pp=4,dp=8,tp=8", NULL, 1.15);
}

/* A chunk's share of a repeat is as long as its iterations: all chunks are one stage that has them all. */
static void test_sum(void **state)
{
	struct made cut, whole;
	double f[2] = { 0 }, b[2] = { 0 };

	(void)state;
	make(&cut, "tests/explain/gpt.pdsl", NULL, NULL, large);
	make(&whole, "tests/explain/gpt.pdsl", NULL, "pp=1", large);
	struct step_time t[2] = { time_of(&cut), time_of(&whole) };
	for (int i = 0; i < 2; i++)
		for (int g = 0; g < t[i].costs.s.p * t[i].costs.s.v; g++) {
			f[i] += t[i].costs.c.chunk[g].seconds[ACT_F];
			b[i] += t[i].costs.c.chunk[g].seconds[ACT_B];
		}
	assert_true(fabs(f[0] - f[1]) < 1e-2 * f[1]);
	assert_true(fabs(b[0] - b[1]) < 1e-2 * b[1]);
	assert_true(fabs(t[1].step - (t[1].costs.c.stage[0].prologue + 8 * (f[1] + b[1]) + t[1].costs.c.stage[0].epilogue)) < 1e-9);
	arena_free(cut.mem);
	arena_free(whole.mem);
}

/* Taking async and ahead off leaves the work as it is; all of what is sent is then waited for. */
static void drop_flight(struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		op->has &= ~(1u << A_async | 1u << A_ahead);
		if (op->body)
			drop_flight(op->body);
	}
}

static void test_overlap(void **state)
{
	struct made x;

	(void)state;
	make(&x, "examples/llama.pdsl", NULL, NULL, NULL);
	struct step_time with = time_of(&x);
	drop_flight(&x.m->top);
	struct step_time without = time_of(&x);
	assert_true(fabs(with.compute - without.compute) < 1e-9 * with.compute);
	assert_true(with.exposed < 0.5 * without.exposed);
	assert_true(with.step < without.step);
	arena_free(x.mem);
}

/* The analysis reads a plan that was written and read as it does the module it came from; hardware FLOPs of a
 * pipeline are of its own ranks. */
static void test_flops(void **state)
{
	struct made cut, whole;

	(void)state;
	make(&cut, "tests/explain/gpt.pdsl", NULL, NULL, large);
	make(&whole, "tests/explain/gpt.pdsl", NULL, "pp=1", large);
	struct flops a = count_flops(cut.m), b = count_flops(whole.m);
	assert_true(fabs(a.model - b.model) < 1e-9 * b.model);
	assert_true(fabs(a.hardware - b.hardware) < 1e-9 * b.hardware);
	arena_free(cut.mem);
	arena_free(whole.mem);
}

static double simple_seconds(struct made *x)
{
	struct step_costs c = step_costs_of(x->mem, x->m, timing_of(x->mem, x->m));

	return simulate(x->mem, &c.s, schedule_expand(x->mem, &c.s), &c.c).seconds;
}

/* A slow link between stages: one more forward in the warm-up hides its way, and the plan says so; where it
 * gains nothing the order is as asked. */
static void test_warm(void **state)
{
	struct made slow, fast;

	(void)state;
	make(&slow, "tests/explain/gpt.pdsl", NULL, NULL, NULL);
	make(&fast, "tests/explain/gpt.pdsl", NULL, NULL, large);
	assert_true(slow.m->pipe.warm == 1 || slow.m->pipe.list);
	assert_int_equal(fast.m->pipe.warm, 0);
	assert_null(fast.m->pipe.list);
	double chosen = simple_seconds(&slow); /* passes choose by the simple costs */
	slow.m->pipe.warm = 0;
	slow.m->pipe.list = NULL;
	assert_true(chosen < 0.99 * simple_seconds(&slow));
	arena_free(slow.mem);
	arena_free(fast.mem);
}

/* Wherever it is cut, the pieces of the chain cost a chunk what its ops do: of a stage that has few iterations more are
 * those that keep nothing. */
static void costs_as_cut(const char *plan, int chunks, const int64_t *end)
{
	struct made x;
	int cut[8];

	make(&x, "tests/unit/early.pdsl", plan, NULL, NULL);
	struct timing *t = timing_of(x.mem, x.m);
	struct chain c = chain_of(x.mem, x.m, t);
	struct schedule s = pipe_schedule(x.m);
	struct costs like = { .receive = RECEIVE_BUFFERS };

	assert_int_equal(chunks, pipe_chunks(x.m));
	for (int g = 0; g < chunks; g++)
		x.m->pipe.end.at[g] = cut[g] = (int)end[g];
	struct costs sums = cut_costs(x.mem, &c, &s, cut, &like), own = step_costs_of(x.mem, x.m, t).c;
	for (int g = 0; g < chunks; g++) {
		assert_true(fabs(sums.chunk[g].seconds[ACT_F] - own.chunk[g].seconds[ACT_F]) < 1e-3 * own.chunk[g].seconds[ACT_F]);
		assert_true(fabs(sums.chunk[g].seconds[ACT_B] - own.chunk[g].seconds[ACT_B]) < 1e-3 * own.chunk[g].seconds[ACT_B]);
		assert_true(fabs(sums.chunk[g].bytes - own.chunk[g].bytes) <= c.iteration[0].bytes); /* early ones share a row */
	}
	arena_free(x.mem);
}

static void test_early(void **state)
{
	(void)state;
	costs_as_cut(NULL, 4, (int64_t[]){ 2, 12, 15, 22 });
	costs_as_cut(NULL, 4, (int64_t[]){ 6, 11, 17, 22 });
	costs_as_cut("interleaved", 8, (int64_t[]){ 1, 5, 7, 10, 12, 15, 20, 22 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bound), cmocka_unit_test(test_sum), cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_flops), cmocka_unit_test(test_warm), cmocka_unit_test(test_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
