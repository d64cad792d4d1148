/* passes/report.c - FLOPs, memory and time of a plan. */
#include "passes/report.h"

#include "ir/layout.h"
#include "passes/passes.h"

/* -- FLOPs -- */

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
		f->hardware += op_times(m, op) * op_local_flops(m, op) * here;
	}
}

struct flops count_flops(const struct module *m)
{
	struct flops f = { 0 };

	add_flops(m, &m->top, 1, 0, &f);
	return f;
}

/* -- memory -- */

/* Of rows that a stage has of a tensor that is stored with its longest stage's. */
static int64_t stage_bytes(const struct module *m, int64_t bytes, int nd, const dimid *d, const struct axes *on, int stage)
{
	int64_t cap = nd && is_staged(m, d[0]) && on[0].n == 1 ? cap_of(m, d[0], &on[0]) : 0;

	return cap ? bytes / cap * pipe_rows(m, d[0], stage) : bytes;
}

static int64_t buffer_bytes(const struct module *m, const struct buffer *b, int stage)
{
	int64_t bytes = dtype_bytes(b->dt);

	if (!holds_buffer(m, b, stage))
		return 0;
	for (int i = 0; i < b->nd; i++)
		bytes *= cap_of(m, b->d[i], &b->store.on[i]);
	return stage_bytes(m, bytes, b->nd, b->d, b->store.on, stage);
}

static int64_t gradient_bytes(const struct module *m, int stage)
{
	int64_t bytes = 0;

	for (const struct op *op = m->top.first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++) {
			const struct value *v = op->out[i];
			bool here = pipe_axis(m) < 0 || !HAS(op, where) || (op->at.where & pipe_places(m, stage));

			if (here && v->name && strncmp(v->name, "d:", 2) == 0)
				bytes += stage_bytes(m, local_bytes(m, v), v->nd, v->d, v->sh.on, stage);
		}
	return bytes;
}

static void add_channels(struct arena *mem, const struct module *m, struct stage_memory *x)
{
	struct regions *r = regions_of(mem, m);

	regions_measure(r, m);
	struct layouts *l = layouts_of(mem, m, r);
	for (uint32_t i = 0; i < l->channels.n; i++) {
		const struct channel_plan *c = &l->channels.at[i];

		x[c->to].comm += c->bytes * c->buffers;
		x[c->from].comm += c->from == c->to ? 0 : c->bytes;
	}
}

struct stage_memory *stage_memories(struct arena *mem, const struct module *m)
{
	int stages = pipe_stages(m);
	struct stage_memory *all = NEWN(mem, struct stage_memory, stages);

	if (pipe_axis(m) >= 0)
		add_channels(mem, m, all);
	for (int d = 0; d < stages; d++) {
		struct stage_memory *x = &all[d];
		int64_t arena = pipe_axis(m) >= 0 ? m->pipe.arena.at[d] : m->arena;

		x->workspace = m->workspace;
		x->peak = arena + m->workspace;
		for (uint32_t i = 0; i < m->bufs.n; i++) {
			const struct buffer *b = m->bufs.at[i];

			x->params += b->role == B_PARAM || b->role == B_STATE ? buffer_bytes(m, b, d) : 0;
			x->optimizer += b->role == B_OPT ? buffer_bytes(m, b, d) : 0;
		}
		x->grads = gradient_bytes(m, d);
		x->activations = arena - x->params - x->optimizer - x->grads;
		if (x->activations < 0) { /* gradients share their place with what is not alive any more */
			x->grads += x->activations;
			x->activations = 0;
		}
	}
	return all;
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

struct step_time step_time_of(struct arena *mem, const struct module *m, const struct flops *f)
{
	struct step_time x = { .costs = step_costs_of(mem, m, timing_of(mem, m)) };
	const struct schedule *s = &x.costs.s;
	double ranks = (double)module_ranks(m), peak = m->precision == BF16 && m->hw.bf16 > 0 ? m->hw.bf16 : m->hw.fp32;

	x.run = simulate(mem, s, schedule_expand(mem, s), &x.costs.c);
	const struct busy *b = &x.costs.stage[busiest(&x.run, s->p)];

	x.step = x.run.seconds;
	x.compute = b->compute;
	x.exposed = b->exposed;
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
