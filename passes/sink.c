/* passes/sink.c - letting a cotangent stay pending where its readers, all linear in it, lead to
 * something smaller, or to a sum that is reduced over the same axes anyway (docs/SHARDING.md): dk and
 * dv of grouped queries with fewer key heads than ranks, the gradient of an expert's input. */
#include "passes/partition.h"

enum { DEEP = 8 };

void set_readers(struct part *p, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nin; i++) {
			struct info *in = info_of(p, op->in[i]);

			if (!in->readers.n || in->readers.at[in->readers.n - 1] != op)
				PUSH(p->m->mem, &in->readers, op);
		}
		if (!op->body)
			continue;
		set_readers(p, op->body);
		for (uint32_t i = 0; i < op->body->yields.n; i++) {
			struct info *y = info_of(p, op->body->yields.at[i]);

			if (i < (uint64_t)op->at.ncarry || op->phase != BACKWARD)
				y->yielded = true;
			else
				y->stacked = true;
		}
	}
}

static bool mirrored(const struct op *op)
{
	return op->phase == BACKWARD && op->of && op->of->code != OP_REPEAT && op_work(op->of) &&
	       op->code != OP_ACCUM && op->code != OP_RENAME && op->nout;
}

/* How v is split when it is made, as far as that is known before. */
static struct sharding forecast(struct part *p, const struct value *v)
{
	struct info *i = info_of(p, v);
	struct sharding sh;

	memset(&sh, 0, sizeof sh);
	if (i->ver.n)
		return i->ver.at[0].sh;
	if (v->def && mirrored(v->def)) {
		struct work w = mirror_work(p, v->def, op_work(v->def->of));

		return work_result(p->m, v->def, &w, v->no);
	}
	const struct op *of = v->def ? v->def->of : NULL;
	for (uint32_t k = 0; of && k < of->nout; k++) {
		struct info *f = info_of(p, of->out[k]);

		if (!same_dims(of->out[k], v) || !f->ver.n)
			continue;
		for (int x = 0; x < v->nd; x++)
			sh.on[x] = f->ver.at[0].sh.on[dim_pos(of->out[k], v->d[x])];
		return sh;
	}
	return sh;
}

static double reduce_seconds(struct part *p, const struct value *v, uint32_t axes)
{
	struct sharding sh = forecast(p, v);
	return staged_seconds(p->m, axes, shard_elements(p->m, v->nd, v->d, &sh) * dtype_bytes(v->dt), 2);
}

/* Is the sum `op` reduced over these axes whatever becomes of its operand v? */
static bool reduced_anyway(struct part *p, const struct op *op, const struct value *v, uint32_t axes, int deep)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		struct value *x = rename_root(p, op->in[i]);

		if (op->in[i] == v || x == v || !x->def)
			continue;
		if (x->def->code == OP_RENAME)
			x = x->def->in[0];
		if (x->def && x->def->code == OP_ACCUM && deep < DEEP) {
			if (reduced_anyway(p, x->def, v, axes, deep + 1))
				return true;
			continue;
		}
		if ((forecast(p, x).sum & axes) == axes && !info_of(p, x)->sunk)
			return true;
	}
	return false;
}

/* Does the op split a loop of its own over one of these axes? */
static bool splits(struct part *p, struct op *op, uint32_t axes)
{
	struct work w = mirror_work(p, op, op_work(op->of));

	for (int i = 0; i < w.nd; i++)
		for (int k = 0; k < w.on[i].n; k++)
			if (axes >> w.on[i].a[k] & 1)
				return true;
	return false;
}

static double later_seconds(struct part *p, struct value *v, uint32_t axes, double limit, int deep);

/* Is the op linear in v and in what stays pending beside it, all at once? A product is in one operand only: of two
 * that owe a sum over the same axis one is reduced, which is the one that comes later. */
static bool linear_in(struct part *p, const struct op *op, const struct value *v, uint32_t axes)
{
	uint64_t owe = 0, linear = ~0ull;

	for (uint32_t k = 0; k < op->nin; k++)
		if (op->in[k] == v || info_of(p, op->in[k])->sunk & axes) {
			owe |= 1ull << k;
			linear &= op_linear(op, k);
		}
	return (owe & ~linear) == 0;
}

/* What one reader of v costs; < 0: it needs v whole. */
static double reader_seconds(struct part *p, struct value *v, struct op *op, uint32_t axes, double limit,
			     int deep)
{
	if (op->code == OP_ACCUMULATE)
		return reduce_seconds(p, v, axes) / (double)p->m->micro;
	if (op->phase != BACKWARD || op->nout != 1)
		return -1;
	if (op->code == OP_ACCUM && reduced_anyway(p, op, v, axes, 0))
		return 0;
	if (!linear_in(p, op, v, axes) || (op->code != OP_ACCUM && op->code != OP_RENAME && (!mirrored(op) || splits(p, op, axes))))
		return -1;
	struct value *out = op->out[0];
	double whole = reduce_seconds(p, out, axes);
	double pend = later_seconds(p, out, axes, whole < limit ? whole : limit, deep + 1);
	return pend >= 0 && pend < whole ? pend : whole;
}

/* Seconds that v, pending over `axes`, costs if it stays so; < 0: a reader needs it whole. Stops
 * counting at the limit. */
static double later_seconds(struct part *p, struct value *v, uint32_t axes, double limit, int deep)
{
	struct info *i = info_of(p, v);
	double t = i->stacked ? reduce_seconds(p, v, axes) / (double)p->m->micro : 0;

	if (i->yielded || deep > DEEP || (!i->readers.n && !i->stacked))
		return -1;
	for (uint32_t r = 0; r < i->readers.n && t < limit; r++) {
		double s = reader_seconds(p, v, i->readers.at[r], axes, limit - t, deep);

		if (s < 0)
			return -1;
		t += s;
	}
	return t;
}

/* v is made again, and forward has its sum already. */
static bool forward_has_sum(struct part *p, struct value *v, uint32_t axes)
{
	struct sharding sh = forecast(p, v);

	sh.sum &= ~axes;
	return forward_twin(p, v, &sh) != NULL;
}

void sink(struct part *p, struct value *v, uint32_t axes)
{
	axes &= ~until_late(p->m);
	if (!axes || !v->nd || p->scope->b.phase != BACKWARD || forward_has_sum(p, v, axes))
		return;
	double now = reduce_seconds(p, v, axes), later = later_seconds(p, v, axes, now, 0);
	if (later >= 0 && later < now * (1 - 1e-9))
		info_of(p, v)->sunk = axes;
}
