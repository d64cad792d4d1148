/* passes/drop.c - takes out new ops whose results nobody reads, versions that were made and not used, and what
 * a loop stacks, carries or is given for nothing. value.mark: somebody reads it. */
#include "passes/partition.h"

/* -- what is carried on for nothing: nobody reads it but what is carried on for nothing -- */

static bool is_marked(const struct op *op)
{
	bool used = !op->nout;

	for (uint32_t i = 0; i < op->nout; i++)
		used |= op->out[i]->mark != 0;
	return used;
}

/* Marks what leads to marked values and to ops without results; a loop reads all that it is given. */
static void mark_leading(const struct block *body)
{
	for (const struct op *op = body->last; op; op = op->prev)
		for (uint32_t i = 0; is_marked(op) && i < op->nin; i++)
			op->in[i]->mark = 1;
}

static void unmark(struct block *body)
{
	for (uint32_t i = 0; i < body->args.n; i++)
		body->args.at[i]->mark = 0;
	for (struct op *op = body->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
}

/* Marks results of carried values that are needed within. */
static void mark_carried(struct op *op)
{
	uint32_t nc = (uint32_t)op->at.ncarry;

	for (bool more = true; more;) {
		more = false;
		for (uint32_t k = 0; k < op->nout; k++)
			op->body->yields.at[k]->mark |= op->out[k]->mark;
		mark_leading(op->body);
		for (uint32_t k = 0; k < nc; k++) {
			more |= op->body->args.at[k]->mark && !op->out[k]->mark;
			op->out[k]->mark |= op->body->args.at[k]->mark;
		}
	}
}

static void drop_carried(struct arena *mem, struct op *op)
{
	uint32_t nc = (uint32_t)op->at.ncarry, n = 0, ni = 0, no = 0;
	struct bits local = { 0 };

	for (uint32_t k = 0; k < nc; k++)
		if (op->out[k]->mark) {
			local = repeat_local(op, k) ? bits_with(mem, local, n) : local;
			n++;
		}
	for (uint32_t i = 0; i < op->nin; i++) {
		if (i < nc && !op->out[i]->mark)
			continue;
		op->in[ni] = op->in[i];
		op->body->args.at[ni] = op->body->args.at[i];
		op->body->args.at[ni]->no = ni;
		ni++;
	}
	for (uint32_t i = 0; i < op->nout; i++) {
		if (i < nc && !op->out[i]->mark)
			continue;
		op->out[no] = op->out[i];
		op->body->yields.at[no] = op->body->yields.at[i];
		op->out[no]->no = no;
		no++;
	}
	op->nin = op->body->args.n = ni;
	op->nout = op->body->yields.n = no;
	op->at.ncarry = n;
	op->at.local = HAS(op, local) ? local : op->at.local;
}

/* -- results, arguments -- */

static void drop_results(struct arena *mem, struct op *op)
{
	uint32_t nc = (uint32_t)op->at.ncarry, n = nc;
	struct bits acc = { 0 };

	for (uint32_t k = nc; k < op->nout; k++) {
		if (!op->out[k]->mark)
			continue;
		if (repeat_adds(op, k))
			acc = bits_with(mem, acc, n - nc);
		op->out[n] = op->out[k];
		op->out[n]->no = n;
		op->body->yields.at[n++] = op->body->yields.at[k];
	}
	op->nout = op->body->yields.n = n;
	op->at.acc = acc;
}

static void drop_args(struct op *op)
{
	uint32_t nc = (uint32_t)op->at.ncarry, with = nc + (uint32_t)op->at.nwith, n = nc;

	for (uint32_t i = nc; i < op->nin; i++) {
		if (!op->body->args.at[i]->mark) {
			op->at.nwith -= i < with;
			continue;
		}
		op->in[n] = op->in[i];
		op->body->args.at[n] = op->body->args.at[i];
		op->body->args.at[n]->no = n;
		n++;
	}
	op->nin = op->body->args.n = n;
}

static void drop_in_body(struct arena *mem, struct op *op)
{
	if (op->code == OP_REPEAT) {
		mark_carried(op);
		drop_carried(mem, op);
		unmark(op->body); /* what loops within need is not known yet */
	}
	drop_results(mem, op);
	for (uint32_t i = 0; i < op->body->yields.n; i++)
		op->body->yields.at[i]->mark = 1;
	drop_dead(mem, op->body);
	drop_args(op);
}

void drop_dead(struct arena *mem, struct block *block)
{
	for (struct op *op = block->last, *prev; op; op = prev) {
		prev = op->prev;
		if (!is_marked(op)) {
			op_unlink(op);
			continue;
		}
		if (op->body)
			drop_in_body(mem, op);
		for (uint32_t i = 0; i < op->nin; i++)
			op->in[i]->mark = 1;
	}
}
