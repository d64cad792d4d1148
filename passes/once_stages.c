/* passes/once_stages.c - repeats of the pipeline in the prologue and the epilogue.
 *
 * There each stage goes through the iterations that it has, all at once, and sends nothing. What is carried on in
 * parts is {local}: each stage begins with zero, and the parts are added up over the stages. `kinds` leaves only such
 * repeats to these sections, but for functions of sums over the batch, which may not run earlier. */
#include "passes/kinds.h"
#include "passes/stages.h"

bool from_zero(const struct op *op, uint32_t i)
{
	return op->in[i]->def && op->in[i]->def->code == OP_CONST && op->in[i]->def->at.value == 0;
}

/* What is added up from anything else than zero: from zero, and to that in the end. */
static void start_from_zero(struct stages *s, struct op *op, uint32_t i)
{
	struct value *init = op->in[i], *out = op->out[i];
	struct builder at = { s->m, op->home, op, op->phase, op->span, op->of, 0 };
	struct builder behind = { s->m, op->home, op->next, op->phase, op->span, op->of, 0 };
	struct op *add = op_new(&behind, OP_ADD, 2, (struct value *[]){ out, init }, 1);
	struct value *sum = op_type(&behind, add, 0, out->dt, out->nd, out->d), *zero = b_const(&at, out->dt, 0);

	zero->nd = init->nd;
	memcpy(zero->d, init->d, sizeof zero->d);
	op->in[i] = zero;
	sum->kind = out->kind;
	sum->span = out->span;
	sum->name = out->name;
	out->name = NULL;
	replace_uses(&s->m->top, out, sum);
	add->in[0] = out;
}

/* What has been added up so far is of one stage, not what the user calls so. */
static void forget_names(const struct block *body, struct value *v)
{
	const struct op *op;

	for (v->name = NULL; (op = added_in(body, v)); v->name = NULL)
		v = op->out[0];
}

/* Each stage goes through its own iterations, so what they carry on must be a sum of parts. */
static bool carry_in_parts(struct stages *s, struct op *op)
{
	struct bits local = { 0 };

	for (uint32_t i = 0; i < op->at.ncarry; i++) {
		if (i >= 63 || !only_grows(op, i)) {
			const char *name = op->out[i]->name;

			diag_error(s->d, op->body->yields.at[i]->span, "'%s' can't be cut into stages: each iteration of '%s' makes it of "
				   "what the one before made, once a step", name ? name : "?", s->m->dims.at[op->at.dim].name);
			diag_note(s->d, op->span, "it follows from sums over the batch, which are there behind the last microbatch: set "
				   "microbatches = 1, only add to it, or leave this repeat out of the pipeline");
			return false;
		}
		if (!from_zero(op, i))
			start_from_zero(s, op, i);
		forget_names(op->body, op->body->args.at[i]);
		local = bits_with(s->m->mem, local, i);
	}
	if (local.n)
		SET(op, local, local);
	return true;
}

bool carry_once(struct stages *s)
{
	for (struct op *op = s->m->top.first; op; op = op->next)
		if ((op->phase == PROLOGUE || op->phase == EPILOGUE) && stage_loop(s, op) >= 0 && !carry_in_parts(s, op))
			return false;
	return true;
}
