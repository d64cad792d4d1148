/* passes/price_memory.c - what other software than our runtime allocates for a plan.
 *
 * Ours is planned to the byte. Other software keeps until backward what our plan keeps, in the width of the
 * precision, without recomputation what products read (autograd's rule; our kernels make it again), scores where they are not fused,
 * but not what a gather of activations can bring back (Korthikanti et al. 2022, section 4.2.2). */
#include <math.h>

#include "ir/region.h"
#include "passes/constants.h"
#include "passes/report.h"

/* In bytes a rank, of one iteration. */
struct kept {
	double all;  /* that backward could read: what is there while a layer is done again */
	double held; /* from forward to backward */
};

static double width_bytes(const struct module *m, const struct value *v)
{
	bool wide = v->dt == F32 && m->precision == BF16 && local_count(m, v) > 1;

	return (double)local_bytes(m, v) / (wide && v->nd > 2 ? 2 : 1);
}

static double kept_bytes(const struct module *m, const struct value *v)
{
	const struct op *op = v->def;

	if (op && op->code == OP_ALL_GATHER && v->kind != K_PARAM && op->nin == 1)
		return width_bytes(m, op->in[0]);
	return width_bytes(m, v);
}

static bool is_yielded(const struct block *b, uint32_t first, const struct value *v)
{
	for (uint32_t i = first; i < b->yields.n; i++) {
		const struct value *y = b->yields.at[i];

		while (y->def && y->def->code == OP_RENAME)
			y = y->def->in[0];
		if (y == v)
			return true;
	}
	return false;
}

static double score_bytes(const struct module *m, const struct op *op)
{
	double all = (double)local_count(m, op->in[0]), rows = all > 0 ? all / (double)dim_size(m, op->at.dim) : 0;
	const struct value *k = op->in[1];
	double keys = (double)cap_of(m, op->at.ctx, &k->sh.on[dim_pos(k, op->at.ctx)]);

	/* softmax, and with dropout its mask and its result */
	return rows * keys * (HAS(op, p) ? 5 : 2);
}

/* What a product reads is kept for the gradient of its weight. */
static double read_bytes(const struct module *m, const struct op *op, uint32_t first)
{
	double bytes = 0;

	for (uint32_t i = 0; i < op->nin; i++) {
		struct value *v = op->in[i];

		while (v->def && v->def->code == OP_RENAME)
			v = v->def->in[0];
		if (v->kind == K_INNER && v->def && v->home == op->home && !v->mark++ && !is_yielded(op->home, first, v))
			bytes += kept_bytes(m, v);
	}
	return bytes;
}

/* Marks of ops are the timing's. */
static void unmark_values(const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
}

static struct kept kept_of(const struct module *m, const struct op *loop)
{
	struct kept k = { 0, 0 };
	bool unfused = m->software.at[SW_ATTENTION] == ATTN_UNFUSED, none = m->recompute.how == RECOMPUTE_NONE;
	uint32_t first = (uint32_t)loop->at.ncarry;

	unmark_values(loop->body);
	for (uint32_t i = first; i < loop->body->yields.n; i++)
		k.held += kept_bytes(m, loop->body->yields.at[i]);
	k.all = k.held;
	for (const struct op *op = loop->body->first; op; op = op->next) {
		double bytes = op->code == OP_EINSUM ? read_bytes(m, op, first) : 0, scores = 0;

		if (op->code == OP_REPEAT)
			bytes += kept_of(m, op).held * (double)dim_size(m, op->at.dim);
		if (op->code == OP_ATTENTION && unfused)
			scores = score_bytes(m, op);
		k.all += bytes + scores;
		k.held += none ? bytes + scores : 0;
	}
	if (m->software.at[SW_GEMM] != GEMM_PLAN)
		k.held *= NARROW_KEPT;
	return k;
}

/* Logits in the width of the loss, with what its backward makes: 8 bytes fused, 12 in PyTorch. */
static double logit_bytes(const struct module *m)
{
	double most = 0;

	for (const struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_EINSUM && op->phase == FORWARD)
			most = fmax(most, (double)local_count(m, op->out[0]));
	return most * (m->software.at[SW_LOSS] == LOSS_EAGER ? 12 : 8);
}

double chunk_held(const struct module *m, int g)
{
	double bytes = 0;

	for (const struct op *op = m->top.first; op; op = op->next) {
		if (op->code != OP_REPEAT || op->phase != FORWARD)
			continue;
		double n = (double)dim_size(m, op->at.dim);

		if (is_staged(m, op->at.dim)) {
			struct trips t = pipe_trips(m, op->at.dim, g);

			n = (double)(t.hi - t.lo);
		}
		bytes += n * kept_of(m, op).held;
	}
	return bytes;
}

static double stage_live(const struct module *m, int stage)
{
	double layer = 0, chunk = m->recompute.how == RECOMPUTE_NONE ? 0 : 1;
	bool head = pipe_axis(m) < 0 || pipe_stage(m, pipe_chunks(m) - 1) == stage;

	for (const struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_REPEAT && op->phase == FORWARD) {
			struct kept k = kept_of(m, op);

			layer = fmax(layer, chunk * (k.all - k.held) * LIVE_LAYER);
		}
	return fmax(layer, head ? logit_bytes(m) : 0);
}

/* Of rows that a stage has of a tensor that is stored with its longest stage's. */
static double stage_bytes(const struct module *m, double bytes, int nd, const dimid *d, const struct axes *on, int stage)
{
	int64_t cap = nd && is_staged(m, d[0]) && on[0].n == 1 ? cap_of(m, d[0], &on[0]) : 0;

	return cap ? bytes / (double)cap * (double)pipe_rows(m, d[0], stage) : bytes;
}

static double buffer_bytes(const struct module *m, const struct buffer *b, int stage)
{
	double bytes = dtype_bytes(b->dt);

	for (int i = 0; i < b->nd; i++)
		bytes *= (double)cap_of(m, b->d[i], &b->store.on[i]);
	return stage_bytes(m, bytes, b->nd, b->d, b->store.on, stage);
}

/* Of the gradient of a param, before it is reduced. */
static double gradient_bytes(const struct module *m, const struct buffer *b, int stage)
{
	double most = 0;

	for (const struct op *op = m->top.first; op; op = op->next)
		for (uint32_t k = 0; k < op->nout; k++) {
			const struct value *v = op->out[k];

			if (v->name && strncmp(v->name, "d:", 2) == 0 && streq(v->name + 2, b->name))
				most = fmax(most, stage_bytes(m, (double)local_bytes(m, v), v->nd, v->d, v->sh.on, stage));
		}
	return most * (m->software.at[SW_GRADS] == GRADS_BF16 ? 0.5 : 1);
}

int64_t software_bytes(const struct module *m, const struct run *run, int stage)
{
	double bytes = run->stage[stage].bytes - run->stage[stage].fixed + stage_live(m, stage);

	if (m->software.at[SW_ELEMENTWISE] == ELEM_PLAN)
		return 0;
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];

		if (b->role == B_INPUT || b->role == B_PROBE || b->host || !holds_buffer(m, b, stage))
			continue;
		bytes += buffer_bytes(m, b, stage) + (b->role == B_PARAM ? gradient_bytes(m, b, stage) : 0);
	}
	return (int64_t)bytes;
}
