/* passes/prove_idle.c - what a stage does not do: iterations that run elsewhere, ops of other stages. */
#include "passes/prove.h"

/* -- loops without iterations -- */

/* A runtime makes a stage ready for all ops of a loop, though it may run no iteration there: what they work on must have a
 * place on the stage. A loop that runs has its places seen when they are read and written. */
static bool has_place(struct prover *p, const struct op *op, const struct value *v)
{
	int region = held(p, v)->spot.region;

	return region == p->r->host || p->slot[region].base >= 0 ||
	       unsafe(p, op, "stage %d has no place for %s; it works on that in a loop of which no iteration runs there", p->stage, prove_name(p, v));
}

/* What is to be moved from a to b. */
static bool have_places(struct prover *p, const struct op *op, const struct value *a, const struct value *b)
{
	return has_place(p, op, a) && has_place(p, op, b);
}

static bool needs_none(const struct op *op)
{
	switch (op->code) {
	case OP_READ:
	case OP_RENAME:
	case OP_SPLIT:
	case OP_MERGE:
		return op->out[0]->off < 0;
	default:
		return op->code == OP_WAIT;
	}
}

static bool prove_idle_op(struct prover *p, const struct op *op)
{
	bool some = op->code == OP_TO_PARTIAL && HAS(op, from) && op->at.from; /* not of all stages */

	if (op->code == OP_REPEAT) {
		for (int64_t k = 0; k < op->at.ncarry; k++)
			if (!same_spot(&held(p, op->in[k])->spot, &held(p, op->out[k])->spot) && !have_places(p, op, op->in[k], op->out[k]))
				return false;
		return prove_idle(p, op);
	}
	if (needs_none(op))
		return true;
	for (uint32_t i = 0; i < op->nin && !some; i++)
		if (!has_place(p, op, op->in[i]))
			return false;
	for (uint32_t i = 0; i < op->nout; i++)
		if (!has_place(p, op, op->out[i]))
			return false;
	return keeps_off_host(p, op);
}

/* Of all that an iteration of r would touch. */
bool prove_idle(struct prover *p, const struct op *r)
{
	const struct block *body = r->body;

	for (uint32_t i = (uint32_t)(r->at.ncarry + r->at.nwith); i < body->args.n; i++)
		if (body->args.at[i]->off >= 0 && !have_places(p, r, r->in[i], body->args.at[i]))
			return false;
	for (const struct op *op = body->first; op; op = op->next)
		if (!prove_idle_op(p, op))
			return false;
	for (uint32_t k = 0; k < body->yields.n; k++) {
		const struct value *y = body->yields.at[k], *to = r->out[k];
		struct spot s = (int64_t)k < r->at.ncarry ? held(p, to)->spot : row_spot(p, r, to);

		if (!same_spot(&s, &held(p, y)->spot) && !have_places(p, r, y, to))
			return false;
	}
	return true;
}

/* -- ops of other stages -- */

/* An op that other stages carry out and this one does not: it must have no part in it. Stages that hold a buffer hold the
 * same in it. */
bool prove_absent(struct prover *p, const struct op *op)
{
	if (op->code == OP_TO_PARTIAL && HAS(op, from) && op->at.from && takes_part(p, op))
		return unsafe(p, op, "it takes what stage %d has of %s, which does not run it", p->stage, prove_name(p, op->in[0]));
	if (op->code == OP_WRITE && holds_buffer(p->m, find_buffer(p->m, op->at.buf), p->stage))
		return unsafe(p, op, "stage %d holds '%s' and does not write it", p->stage, op->at.buf);
	return true;
}
