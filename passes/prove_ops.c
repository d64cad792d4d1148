/* passes/prove_ops.c - what a runtime asks of an op beyond its type, before it opens a plan. */
#include "passes/prove.h"

/* An attention of q, k and v runs over the dims that k and v share with q; v may have one more. */
static bool prove_heads(struct prover *p, const struct op *op)
{
	const struct value *q = op->in[0], *k = op->in[1], *v = op->in[2];
	int own = 0;

	for (int i = 0; i < k->nd; i++) {
		dimid d = k->d[i];

		if (d != op->at.dim && d != op->at.ctx && (!has_dim(q, d) || !has_dim(v, d)))
			return unsafe(p, op, "k has '%s', which q or v lacks", p->m->dims.at[d].name);
	}
	for (int i = 0; i < v->nd; i++) {
		dimid d = v->d[i];
		bool row = d != op->at.dim && has_dim(q, d);

		if (row && !has_dim(k, d))
			return unsafe(p, op, "v has '%s', which k lacks", p->m->dims.at[d].name);
		own += d != op->at.ctx && !row;
	}
	if (own > 1)
		return unsafe(p, op, "v has two dims of its own");
	return !HAS(op, causal) || !has_dim(k, op->at.causal) || unsafe(p, op, "k has the positions of the queries");
}

static int64_t floats(const struct prover *p, const struct value *v)
{
	return round_up(4 * local_count(p->m, v));
}

/* In the workspace: the keys of others, two blocks of them in turn, and what grows as float32 where its result does not. */
static int64_t attention_room(const struct prover *p, const struct op *op)
{
	bool ring = attn_ring(op), apart = attn_apart(op), grad = op->code == OP_ATTENTION_GRAD, wide = op->in[0]->dt == F32;
	int64_t n = 0;

	for (uint32_t k = 0; grad && !wide && k < 3; k++)
		n += floats(p, op->out[k]);
	if (!grad && (!wide || apart))
		n += floats(p, op->out[0]) + (apart ? floats(p, op->out[1]) : 0);
	for (uint32_t k = 1; ring && k < 3; k++)
		n += 2 * round_up(local_bytes(p->m, op->in[k])) + (grad ? 2 * floats(p, op->out[k]) : 0);
	return ring || apart ? n : 0;
}

static bool prove_attention(struct prover *p, const struct op *op)
{
	const struct value *v = op->in[2];
	uint32_t over = axes_bits(&v->sh.on[dim_pos(v, op->at.ctx)]);

	return prove_heads(p, op) && has_workspace(p, op, "the keys of other ranks", attention_room(p, op)) &&
	       (over == (attn_ring(op) | attn_apart(op)) || unsafe(p, op, "its keys are not split over its axes"));
}

static bool prove_op(struct prover *p, const struct op *op)
{
	bool micro = !op->home->owner && (op->phase == FORWARD || op->phase == BACKWARD);

	if (micro && !p->l && op_place(op) > 0)
		return unsafe(p, op, "it has a place along a pipeline that is not there");
	switch (op->code) {
	case OP_SHARD:
		return op->at.axes.n == 1 || unsafe(p, op, "it cuts over several axes at once");
	case OP_EINSUM:
		return !held(p, op->out[0])->spot.adds || op->out[0]->dt == F32 ||
		       unsafe(p, op, "what microbatches add up is not f32");
	case OP_ATTENTION:
	case OP_ATTENTION_GRAD:
		return prove_attention(p, op);
	default:
		return true;
	}
}

bool prove_ops(struct prover *p, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next)
		if (!prove_op(p, op) || (op->code == OP_REPEAT && !prove_ops(p, op->body)))
			return false;
	return true;
}
