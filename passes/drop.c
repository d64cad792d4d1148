/* passes/drop.c - takes out new ops whose results nobody reads, versions that were made and not used, and what
 * a loop stacks or is given for nothing. value.mark: somebody reads it. */
#include "passes/partition.h"

static void drop_results(struct op *op)
{
	uint32_t nc = (uint32_t)op->at.ncarry, n = nc;
	int64_t acc = 0;

	for (uint32_t k = nc; k < op->nout; k++) {
		if (!op->out[k]->mark)
			continue;
		if (HAS(op, acc) && k - nc < 63 && op->at.acc >> (k - nc) & 1)
			acc |= 1ll << (n - nc);
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

static void drop_in_body(struct op *op)
{
	drop_results(op);
	for (uint32_t i = 0; i < op->body->yields.n; i++)
		op->body->yields.at[i]->mark = 1;
	drop_dead(op->body);
	drop_args(op);
}

void drop_dead(struct block *block)
{
	for (struct op *op = block->last, *prev; op; op = prev) {
		bool used = !op->nout;

		prev = op->prev;
		for (uint32_t i = 0; i < op->nout; i++)
			used |= op->out[i]->mark != 0;
		if (!used) {
			op_unlink(op);
			continue;
		}
		if (op->body)
			drop_in_body(op);
		for (uint32_t i = 0; i < op->nin; i++)
			op->in[i]->mark = 1;
	}
}
