/* passes/report.c - FLOPs, memory and time of a plan. */
#include "passes/report.h"

#include <math.h>

#include "ir/region.h"
#include "passes/constants.h"
#include "passes/price.h"

/* -- FLOPs -- */

const struct flops_rule flops_rule[] = {
	{ "model", "products of logical sizes, 2 a multiply-add, backward twice forward; of causal attention what lies below the diagonal "
		   "(Megatron-Core since 2025, PaLM's MFU but for the half)" },
	{ "full", "the same, with the scores above the diagonal (Narayanan et al. 2021, Korthikanti et al. 2022, PaLM)" },
	{ "hardware", "what all ranks compute: padding, what several of them do, what backward does again, scores that attention makes again" },
	{ "hardware_full", "the same, with the scores above the diagonal" },
	{ 0 },
};

/* Ranks that run op: those of one stage for what has a place in the pipeline. */
static double ranks_of(const struct module *m, const struct op *op)
{
	double ranks = (double)module_ranks(m);
	int stages = 0;

	if (pipe_axis(m) < 0)
		return ranks;
	if (op->phase == FORWARD || op->phase == BACKWARD)
		return ranks / pipe_stages(m);
	for (int d = 0; d < pipe_stages(m); d++)
		stages += !HAS(op, where) || (op->at.where & pipe_places(m, d));
	return ranks / pipe_stages(m) * stages;
}

/* times: iterations of the repeats around the block. Logical sizes cover all microbatches. */
static void add_flops(const struct module *m, const struct block *b, double times, double ranks, struct flops *f)
{
	for (const struct op *op = b->first; op; op = op->next) {
		double here = b->owner ? ranks : ranks_of(m, op);

		if (op->body) {
			double n = op->code == OP_REPEAT ? (double)dim_size(m, op->at.dim) : 1;

			add_flops(m, op->body, times * n, here, f);
			continue;
		}
		double one = times * op_flops(m, op);
		bool half = (op->code == OP_ATTENTION || op->code == OP_ATTENTION_GRAD) && HAS(op, causal);

		if (!HAS(op, again)) { /* what is made once more is no work of the model */
			f->model += one;
			f->full += half ? 2 * one : one;
		}
		double done = op_times(m, op) * op_local_flops(m, op) * here;

		f->hardware += done;
		f->hardware_full += half ? 2 * done : done;
	}
}

struct flops count_flops(const struct module *m)
{
	struct flops f = { 0 };

	add_flops(m, &m->top, 1, 0, &f);
	return f;
}

/* -- time -- */

double step_tokens(const struct module *m)
{
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		double count = 1;

		if (b->role != B_INPUT || !b->tokens || b->next_of)
			continue;
		for (int k = 0; k < b->nd; k++)
			count *= (double)dim_size(m, b->d[k]);
		return count;
	}
	return m->batch == NODIM ? 1 : (double)dim_size(m, m->batch);
}

static int busiest(const struct run *r, int stages)
{
	int most = 0;

	for (int d = 1; d < stages; d++)
		if (r->stage[d].busy > r->stage[most].busy)
			most = d;
	return most;
}

/* All wait for the slowest rank, and of more ranks the slowest is slower. */
static double jitter(double ranks)
{
	return ranks > 8 ? 1 + JITTER * log2(ranks / 8) : 1;
}

static void scale_costs(struct step_costs *x, double by)
{
	struct chunk_cost *chunk = (struct chunk_cost *)x->c.chunk;
	struct stage_cost *stage = (struct stage_cost *)x->c.stage;

	for (int g = 0; g < x->s.p * x->s.v; g++) {
		for (int k = 0; k < NACT; k++)
			chunk[g].seconds[k] *= by;
		chunk[g].hop[0] *= by;
		chunk[g].hop[1] *= by;
	}
	for (int d = 0; d < x->s.p; d++) {
		struct busy *b = (struct busy *)&x->stage[d];

		stage[d].prologue *= by;
		stage[d].reduce *= by;
		stage[d].epilogue *= by;
		b->compute *= by;
		b->exposed *= by;
		b->hidden *= by;
		for (int k = 0; k < NTIME; k++)
			b->kind[k] *= by;
	}
}

/* What was measured of ranks that share a core is what they take when all of them work. While a stage waits, the others
 * have its part of the cores, up to one each: the step takes as long as all work does, or as its longest chain. */
static struct run run_shared(struct arena *mem, const struct module *m, struct step_costs *x)
{
	const struct actions *list = schedule_expand(mem, &x->s);
	struct run run = simulate(mem, &x->s, list, &x->c);
	double mean = 0;

	for (int d = 0; d < x->s.p; d++)
		mean += run.stage[d].busy / x->s.p;
	if (m->hw.cores <= 0 || m->hw.cores >= 1 || run.seconds <= 0 || mean >= run.seconds)
		return run;
	scale_costs(x, fmax(m->hw.cores, mean / run.seconds));
	return simulate(mem, &x->s, list, &x->c);
}

/* Stages that wait for no norm begin the next step when they are done with this one: a step takes as long as the
 * stage that is at it longest, not from the first stage's start to the last one's end (Qi et al. 2023, section 4). */
static void follow_on(struct run *r, const struct step_costs *x)
{
	double longest = 0, most = 0;

	for (int d = 0; d < x->s.p; d++) {
		const struct stage_cost *k = &x->c.stage[d];

		longest = fmax(longest, k->prologue + r->stage[d].end - r->stage[d].start + k->reduce + k->epilogue);
		most = fmax(most, r->stage[d].busy);
	}
	if (longest >= r->seconds)
		return;
	r->seconds = longest;
	for (int d = 0; d < x->s.p; d++)
		r->stage[d].idle = longest - r->stage[d].busy;
	r->idle = fmax(0, longest - most);
	r->bubble = longest > 0 ? r->idle / longest : 0;
}

struct step_time step_time_of(struct arena *mem, const struct module *m, const struct flops *f)
{
	struct step_time x = { .costs = step_costs_of(mem, m, timing_refined(mem, m)) };
	const struct schedule *s = &x.costs.s;
	double ranks = (double)module_ranks(m), peak = m->precision == BF16 && m->hw.bf16 > 0 ? m->hw.bf16 : m->hw.fp32;

	x.run = run_shared(mem, m, &x.costs);
	if (!x.costs.c.clip && software(m, SW_ELEMENTWISE) != ELEM_PLAN) /* our own runtime begins a step on all stages at once */
		follow_on(&x.run, &x.costs);
	x.busiest = busiest(&x.run, s->p);
	const struct busy *b = &x.costs.stage[x.busiest];

	x.step = x.run.seconds * jitter(ranks);
	x.waits = x.step - x.run.seconds;
	x.compute = b->compute + b->kind[T_HOST]; /* waiting for launches is no communication */
	x.exposed = fmax(b->exposed - b->kind[T_HOST], 0); /* of two sums in other orders: the difference may be a hair below 0 */
	x.copies = b->kind[T_COPIES];
	x.bubble = x.run.bubble;
	if (x.step > 0) {
		x.mfu = peak > 0 ? f->model / (x.step * ranks * peak) : 0;
		x.hfu = peak > 0 ? f->hardware / (x.step * ranks * peak) : 0;
		x.tflops = f->model / x.step / ranks / 1e12;
		x.tokens = step_tokens(m) / x.step / ranks;
	}
	x.dollars = x.step * ranks * m->hw.price / 3600;
	x.per_tokens = step_tokens(m) > 0 ? x.dollars / step_tokens(m) * 1e12 : 0;
	return x;
}

int64_t stage_params(const struct module *m, int stage)
{
	int64_t total = 0;

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		int64_t count = b->role == B_PARAM && holds_buffer(m, b, stage);

		for (int k = 0; k < b->nd; k++)
			count *= k == 0 && is_staged(m, b->d[0]) ? pipe_rows(m, b->d[0], stage) : dim_size(m, b->d[k]);
		total += count;
	}
	return total;
}

int64_t stage_iterations(const struct module *m, int stage)
{
	int64_t n = 0;

	for (uint32_t i = 0; i < m->pipe.loops.n; i++)
		n += pipe_rows(m, m->pipe.loops.at[i], stage);
	return n;
}
