/* passes/price_attention.c - seconds of attention by its scores, the machine's kernels and the software's.
 *
 * Flash attention makes the scores that are met, and no others; software before it makes all of them. */
#include <math.h>

#include "passes/constants.h"
#include "passes/price.h"

static struct scores scores_of(const struct module *m, const struct op *op)
{
	const struct value *q = op->in[0], *k = op->in[1], *v = op->in[2];
	double ring = (double)group_size(m, attn_ring(op)), all = (double)local_count(m, q);
	struct scores s = { .qk = (double)dim_size(m, op->at.dim), .v = 1 };
	dimid row = HAS(op, causal) ? op->at.causal : NODIM;

	for (int i = 0; i < v->nd; i++)
		if (!has_dim(q, v->d[i]) && v->d[i] != op->at.ctx)
			s.v *= (double)cap_of(m, v->d[i], &v->sh.on[i]);
	if (has_dim(v, op->at.dim))
		s.v *= s.qk;
	s.keys = (double)cap_of(m, op->at.ctx, &k->sh.on[dim_pos(k, op->at.ctx)]) * ring;
	for (int i = 0; i < q->nd && row == NODIM; i++) /* without an order: what q has and k lacks */
		if (!has_dim(k, q->d[i]) && dim_size(m, q->d[i]) >= dim_size(m, op->at.ctx))
			row = q->d[i];
	s.rows = row == NODIM ? 1 : (double)cap_of(m, row, &q->sh.on[dim_pos(q, row)]);
	s.batch = all > 0 ? all / s.qk / s.rows : 0;
	return s;
}

/* Share of the rate, which heads of 128 dims get, that one of d dims gets. A smaller one has fewer products for each
 * exponential, and these are made at a rate of their own: the faster a machine's products, the more of the time at 128 is
 * theirs. flops: of one score at 128 dims. Larger ones have less room for tiles. */
static double head_share(const struct module *m, double rate, double flops, double d)
{
	double exponentials = fmin(1, rate / flops / (m->hw.units * EXPONENTIALS));

	if (d >= 128)
		return d == 128 ? 1 : d <= 192 ? 0.92 : 0.90;
	return m->hw.units > 0 ? d / 128 / (exponentials + (1 - exponentials) * d / 128) : 0.95;
}

/* What the kernels of the software reach on long sequences, of heads of 128 dims, forward. */
static double flash_rate(const struct module *m, enum dtype dt)
{
	double peak = dt == BF16 ? m->hw.bf16 : m->hw.fp32, best = m->hw.fa3 > 0 ? m->hw.fa3 : ATTENTION_USUAL;
	double share[] = { best, 0, m->hw.fa1, m->hw.fa2, best, best }, x = share[software(m, SW_ATTENTION)];

	if (software(m, SW_ATTENTION) == ATTN_FP8 && dt == BF16 && m->hw.fp8 > 0)
		return fmax(m->hw.attn8 > 0 ? m->hw.attn8 * m->hw.fp8 : 0, best * peak);
	return peak * (x > 0 ? x : best);
}

/* Keys at which half of that is reached: 120 on A100, 250 on H200, 320 on GB200 (Dao 2023; cudnn-frontend). */
static double ramp_keys(const struct module *m, double rate)
{
	return m->hw.units > 0 ? ATTENTION_RAMP * sqrt(rate / m->hw.units / 1e12) : ATTENTION_RAMP;
}

/* The number that v is everywhere; 0: not known here. */
static double number_of(const struct value *v)
{
	const struct block *b = v->home;

	if (v->def && v->def->code == OP_CONST)
		return v->def->at.value;
	if (v->def && v->def->code == OP_KERNEL && v->def->nout == 1)
		return number_of(v->def->body->yields.at[0]);
	for (uint32_t i = 0; !v->def && b && b->owner && !v->nd && i < b->args.n && i < b->owner->nin; i++)
		if (b->args.at[i] == v && !b->owner->in[i]->nd) /* the same in all iterations */
			return number_of(b->owner->in[i]);
	return 0;
}

/* Keys that a row meets, on average: with an order those up to its own, of these at most a window; and what tiles on the
 * edges have too many, half a tile on the diagonal and as much where a window begins. */
static double keys_met(const struct op *op, double keys)
{
	int at = attn_extra(op, X_WINDOW);
	double window = at < 0 ? 0 : number_of(op->in[at]);

	if (!HAS(op, causal))
		return keys;
	if (window <= 0 || window >= keys)
		return keys / 2 + TILE_EDGE;
	return fmin(keys / 2 + TILE_EDGE, window - window * window / (2 * keys) + 2 * TILE_EDGE);
}

static double flash_seconds(const struct module *m, const struct op *op, const struct scores *s)
{
	double best = flash_rate(m, op->in[0]->dt), back = op->code == OP_ATTENTION_GRAD, keys = keys_met(op, s->keys);
	double products = back ? 5 : 2, flops = products * s->batch * s->rows * keys * (s->qk + s->v);
	double rate = best * ATTENTION_SHARE * (back ? ATTENTION_BACK : 1);

	rate *= head_share(m, rate, products * 2 * 128, s->qk) * keys / (keys + ramp_keys(m, best));
	return rate > 0 ? flops / rate : 0;
}

/* Operands are read and written in one byte before products in fp8. */
static double cast_seconds(const struct module *m, const struct op *op)
{
	double bytes = 0;

	for (uint32_t i = 0; i < op->nin && op->in[i]->dt == BF16; i++)
		bytes += 3 * (double)local_count(m, op->in[i]);
	return software(m, SW_ATTENTION) == ATTN_FP8 ? memory_seconds(m, bytes) : 0;
}

/* Scores are made, kept and read: two products forward, four backward, on all of them. */
static struct op_price unfused(const struct module *m, const struct op *op, const struct scores *s)
{
	struct gemm qk = { s->batch, s->rows, s->keys, s->qk, 0, false }, pv = { s->batch, s->rows, s->v, s->keys, 0, false };
	bool back = op->code == OP_ATTENTION_GRAD;
	double count = s->batch * s->rows * s->keys, bytes = (back ? 6 : 4) + (HAS(op, p) ? 5 : 0);
	double once = gemm_price(m, &qk, op->in[0]->dt, GEMM_PLAN) + gemm_price(m, &pv, op->in[0]->dt, GEMM_PLAN);

	return (struct op_price){ .kind = T_ATTENTION, .seconds = once * (back ? 2 : 1) + memory_seconds(m, bytes * count),
				  .launches = back ? 9 : 7 };
}

struct op_price price_attention(const struct module *m, const struct op *op)
{
	struct scores s = scores_of(m, op);
	struct op_price x = { .kind = T_ATTENTION, .launches = 1 };
	double bytes = comm_bytes(m, op);

	if (software(m, SW_ATTENTION) == ATTN_UNFUSED)
		x = unfused(m, op, &s);
	else if (m->hw.measured.attention.rate > 0)
		x.seconds = measured_attention(m, &s, HAS(op, causal), op->code == OP_ATTENTION_GRAD);
	else
		x.seconds = flash_seconds(m, op, &s) + LAUNCH_TAIL, x.extra = cast_seconds(m, op);
	if (bytes > 0 && m->hw.cores > 0) { /* threads copy */
		x.ring = link_price(m, comm_axes(op), bytes, 1, 0);
	} else if (bytes > 0 && attn_ring(op)) { /* blocks go round under the computing on others */
		double send = link_price(m, comm_axes(op), bytes, 1, 0);

		x.ring = fmax(RING_SHOWN * send, send - RING_HIDES * x.seconds);
	} else if (bytes > 0) {
		x.ring = link_price(m, comm_axes(op), bytes, 1, 0);
	}
	return x;
}
