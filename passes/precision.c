/* passes/precision.c - the width of floats (docs/LANGUAGE.md).
 *
 * Requires: form LOGICAL as the front end made it: floats are f32; casts with key "fp32" or "bf16"
 * are the user's. Before differentiate.
 * Leaves: no such keys. With precision bf16: params are bf16; pointwise ops and reductions are f32
 * inside and what they make is rounded once where it is stored: as a named value with dims, as an
 * operand of an einsum, attention or gelu, as a carried value. Casts say where.
 * Breaks: nothing.
 *
 * Two kinds of values stay f32 though they have a name: strong ones (of fp32(x), and of states, and
 * what is pointwise of such), and those made of leaves alone (positions, angles). */
#include "passes/passes.h"

enum { STRONG = 1, LEAFY = 2 };

struct precision {
	struct module *m;
	bool bf16;
	uint32_t n;             /* how many values there were */
	struct value **rounded; /* of each, what it was rounded to as an operand, or NULL */
};

static void round_block(struct precision *p, struct block *block);

static struct builder at(const struct precision *p, const struct op *op, struct op *before)
{
	return (struct builder){ p->m, op->home, before, op->phase, op->span, op->of, op->at.where };
}

/* Operand i of op in type dt; a cast stands before op. A value is rounded once for all its readers: two roundings
 * would be two operands of their einsums, with a gather each, and two gradients, with a reduction each. */
static void operand_as(struct precision *p, struct op *op, uint32_t i, enum dtype dt)
{
	struct builder b = at(p, op, op);
	struct value *v = op->in[i];
	struct value **rounded = dt == BF16 && v->id < p->n ? &p->rounded[v->id] : NULL;

	if (!is_float(v->dt) || v->dt == dt)
		return;
	if (rounded && *rounded) {
		op->in[i] = *rounded;
		return;
	}
	op->in[i] = b_cast(&b, v, dt);
	op->in[i]->mark = v->mark;
	op->in[i]->aux = NULL;
	if (rounded)
		*rounded = op->in[i];
}

/* From here on v is v rounded to dt, under v's name. */
static void round_result(struct precision *p, struct op *op, struct value *v, enum dtype dt)
{
	struct builder b = at(p, op, op->next);
	struct value *r = b_cast(&b, v, dt);

	r->name = v->name;
	r->span = v->span;
	r->mark = v->mark;
	r->aux = NULL;
	r->def->mark = 1; /* seen already */
	v->name = NULL;
	v->aux = r;
}

static void round_named(struct precision *p, struct op *op)
{
	struct value *v = op->out[0];

	if (v->name && v->nd && v->dt == F32 && !(v->mark & (STRONG | LEAFY)))
		round_result(p, op, v, BF16);
}

/* fp32(x) and bf16(x). In a module of f32 the latter rounds, and what comes of it is f32 again. */
static void marked_cast(struct precision *p, struct op *op)
{
	bool wide = streq(op->at.key, "fp32");
	struct value *v = op->out[0];

	op->has &= ~(1u << A_key);
	op->at.key = NULL;
	v->dt = wide ? F32 : BF16;
	v->mark = wide ? STRONG : 0;
	if (!wide && !p->bf16)
		round_result(p, op, v, F32);
}

/* What goes into gelu is what backward needs, and is kept in few bits: then it is rounded here as well, so that forward and
 * backward see the same. A product with a bias makes both at once (ir/epilogue.h). */
static void round_kept(struct precision *p, struct op *op)
{
	if (op->code != OP_GELU || !op->in[0]->nd || (op->in[0]->mark & (STRONG | LEAFY)) ||
	    (op->in[0]->def && op->in[0]->def->code == OP_CAST && op->in[0]->def->in[0]->dt == BF16))
		return;
	operand_as(p, op, 0, BF16);
	operand_as(p, op, 0, F32);
}

static void type_pointwise(struct precision *p, struct op *op)
{
	struct value *v = op->out[0];
	bool leaves = true;

	for (uint32_t i = 0; i < op->nin; i++) {
		leaves &= (op->in[i]->mark & LEAFY) != 0;
		v->mark |= op->in[i]->mark & STRONG;
		operand_as(p, op, i, F32);
	}
	round_kept(p, op);
	if (leaves)
		v->mark |= LEAFY;
	round_named(p, op);
}

static void type_einsum(struct precision *p, struct op *op)
{
	struct value *v = op->out[0];

	if (!is_float(v->dt))
		return;
	if (op->in[0]->mark & op->in[1]->mark & STRONG) {
		v->mark = STRONG;
		return;
	}
	for (uint32_t i = 0; i < 2; i++)
		operand_as(p, op, i, BF16);
	v->dt = v->nd ? BF16 : F32;
}

/* A bias is added in f32, whatever q, k and v are. */
static void type_attention(struct precision *p, struct op *op)
{
	int bias = attn_extra(op, X_BIAS);

	if (bias >= 0)
		operand_as(p, op, (uint32_t)bias, F32);
	if (op->in[0]->mark & op->in[1]->mark & op->in[2]->mark & STRONG) {
		op->out[0]->mark = STRONG;
		return;
	}
	for (uint32_t i = 0; i < 3; i++)
		operand_as(p, op, i, BF16);
	op->out[0]->dt = BF16;
}

static void type_repeat(struct precision *p, struct op *op)
{
	struct block *body = op->body;
	uint32_t nc = (uint32_t)op->at.ncarry;

	for (uint32_t i = 0; i < op->nin; i++) {
		struct value *arg = body->args.at[i];

		if (i < nc && arg->nd && !(op->in[i]->mark & STRONG))
			operand_as(p, op, i, BF16);
		arg->dt = op->in[i]->dt;
		arg->mark = op->in[i]->mark & (i < nc ? STRONG : ~0);
		arg->aux = NULL;
	}
	round_block(p, body);
	for (uint32_t i = 0; i < nc; i++) {
		struct value *y = body->yields.at[i];
		struct builder b = { p->m, body, NULL, op->phase, y->span, NULL, 0 };

		if (is_float(y->dt))
			body->yields.at[i] = b_cast(&b, y, body->args.at[i]->dt);
		op->out[i]->dt = body->args.at[i]->dt;
		op->out[i]->mark = body->args.at[i]->mark;
	}
}

static void type_read(struct precision *p, struct op *op)
{
	const struct buffer *b = find_buffer(p->m, op->at.buf);

	if (!b)
		return;
	op->out[0]->dt = b->dt;
	op->out[0]->mark = b->role == B_STATE ? STRONG : 0;
}

static void type_op(struct precision *p, struct op *op)
{
	switch (opinfo[op->code].class) {
	case C_LEAF:
		if (op->code == OP_READ)
			type_read(p, op);
		else
			op->out[0]->mark = LEAFY;
		break;
	case C_MAP:
		if (op->code != OP_DETACH) {
			type_pointwise(p, op);
			break;
		}
		/* fall through */
	case C_LOOKUP:
	case C_SCATTER:
	case C_VIEW:
		op->out[0]->dt = op->in[0]->dt;
		op->out[0]->mark = op->in[0]->mark;
		for (uint32_t i = 1; i < op->nin; i++)
			op->out[0]->mark &= op->in[i]->mark | ~(int64_t)LEAFY;
		round_named(p, op);
		break;
	case C_REDUCE:
		type_pointwise(p, op);
		break;
	case C_EINSUM:
		type_einsum(p, op);
		break;
	case C_ATTN:
		type_attention(p, op);
		break;
	case C_PICK:
		break;
	case C_REGION:
		if (op->code == OP_REPEAT)
			type_repeat(p, op);
		break;
	case C_STEP:
		if (op->code == OP_WRITE) {
			const struct buffer *b = find_buffer(p->m, op->at.buf);

			operand_as(p, op, 0, b ? b->dt : F32);
		}
		break;
	case C_COMM:
	case C_HOST:
		break;
	}
}

static void round_block(struct precision *p, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next)
		op->mark = 0;
	for (struct op *op = block->first; op; op = op->next) {
		if (op->mark)
			continue;
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->aux)
				op->in[i] = op->in[i]->aux;
		for (uint32_t i = 0; i < op->nout; i++) {
			op->out[i]->aux = NULL;
			op->out[i]->mark = 0;
		}
		if (op->code == OP_CAST && HAS(op, key))
			marked_cast(p, op);
		else if (p->bf16)
			type_op(p, op);
		else if (op->body) {
			for (uint32_t i = 0; i < op->body->args.n; i++)
				op->body->args.at[i]->aux = NULL;
			round_block(p, op->body);
		}
	}
	for (uint32_t i = 0; i < block->yields.n; i++)
		if (block->yields.at[i]->aux)
			block->yields.at[i] = block->yields.at[i]->aux;
}

bool pass_precision(struct module *m, struct diag *d)
{
	struct precision p = { m, m->precision == BF16, m->next_id, NEWN(m->mem, struct value *, m->next_id) };

	(void)d;
	for (uint32_t i = 0; p.bf16 && i < m->bufs.n; i++)
		if (m->bufs.at[i]->role == B_PARAM && m->bufs.at[i]->dt == F32)
			m->bufs.at[i]->dt = BF16;
	round_block(&p, &m->top);
	return true;
}
