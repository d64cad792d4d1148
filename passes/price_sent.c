/* passes/price_sent.c - seconds of the collectives of a plan: what they send, in which width, and which run as one. */
#include "passes/pricing.h"

#include <math.h>

#include "passes/constants.h"

enum time_kind comm_kind(const struct op *op)
{
	bool reduces = op->code == OP_REDUCE_SCATTER || op->code == OP_ALL_REDUCE;

	if (op->code == OP_ALL_TO_ALL)
		return T_EXCHANGE;
	if (op->in[0]->kind == K_PARAM || op->phase == PROLOGUE || op->phase == EPILOGUE)
		return reduces ? T_GRADS : T_PARAMS;
	return reduces && op->phase == BACKWARD && !HAS(op, again) && op->in[0]->dt == F32 ? T_GRADS : T_ACTIVATIONS;
}

/* -- chains: where an axis crosses nodes the plan goes link by link, where a library issues one collective */

static bool same_user(const struct module *m, uint32_t a, uint32_t b)
{
	int of[2] = { -1, -1 };

	for (int i = 0; i < (int)m->axes.n; i++)
		for (int k = 0; k < 2; k++)
			if ((k ? b : a) >> i & 1) {
				if (of[0] >= 0 && of[0] != m->axes.at[i].user)
					return false;
				of[0] = m->axes.at[i].user;
			}
	return true;
}

/* The collective that goes on with what op sends, as a part of the same. */
static const struct op *goes_on(const struct module *m, const struct op *op)
{
	const struct op *next = op->nin == 1 ? only_reader(op->out[0]) : NULL;

	while (next && next->code == OP_WAIT && next->nin == 1)
		next = only_reader(next->out[0]);
	if (!next || !comm_sends(next->code) || next->nin != 1)
		return NULL;
	if (op->code == OP_ALL_TO_ALL || next->code == OP_ALL_TO_ALL)
		return op->code == next->code ? next : NULL;
	return same_user(m, comm_axes(op), comm_axes(next)) ? next : NULL;
}

enum { MOST_LINKS = 4 };

/* A ring through all nodes: the parts on different links are under way at once. */
static double pipelined(const struct module *m, const struct op *first)
{
	double link[MOST_LINKS] = { 0 }, most = 0;

	for (const struct op *op = first; op; op = goes_on(m, op))
		link[comm_link(m, comm_axes(op))] +=
			link_price(m, comm_axes(op), comm_bytes(m, op), op->code == OP_ALL_REDUCE ? 2 : 1, 0);
	for (int i = 0; i < MOST_LINKS; i++)
		most = fmax(most, link[i]);
	return most;
}

void find_chain(struct pricing *p, const struct op *first)
{
	struct note *note = &p->note[first->mark];

	if (note->merged || !goes_on(p->m, first))
		return;
	if (first->code == OP_ALL_TO_ALL)
		for (const struct op *op = first; op; op = goes_on(p->m, op))
			note->axes |= comm_axes(op);
	else
		note->seconds = pipelined(p->m, first);
	for (const struct op *op = goes_on(p->m, first); op; op = goes_on(p->m, op))
		p->note[op->mark].merged = true;
}

/* What only products in few bits read is gathered in 8 of them: it is cast before. */
static bool gathers_narrow(const struct module *m, const struct op *op)
{
	bool read = false;

	if (op->code != OP_ALL_GATHER || !op_in_loop(op) || op->in[0]->dt != BF16 || op->in[0]->kind == K_PARAM || software(m, SW_GEMM) == GEMM_PLAN)
		return false;
	for (const struct op *o = op->next; o; o = o->next)
		for (uint32_t i = 0; i < o->nin; i++)
			if (root_of(o->in[i]) == op->out[0]) {
				if (o->code != OP_EINSUM && o->code != OP_RENAME && o->code != OP_WAIT)
					return false;
				read = read || (o->code == OP_EINSUM && op_width(m, o) != GEMM_PLAN);
			}
	return read;
}

static double exchange_launches(const struct module *m, const struct op *op)
{
	if (op->code != OP_ALL_TO_ALL)
		return HOST_COLLECTIVE;
	return software(m, SW_DISPATCH) == DISPATCH_ONCE ? HOST_EXCHANGE : HOST_LIBRARY;
}

/* A library's all-to-all brings tokens by rank; they are sorted by expert behind it, and back before it. Products in fp8 take
 * queues of 16 or 32 tokens: those of another length are copied to be longer, and what they make to be shorter. */
static double sorted_bytes(const struct module *m, const struct op *op)
{
	bool pads = software(m, SW_DISPATCH) == DISPATCH_EACH && software(m, SW_GEMM) != GEMM_PLAN;

	if (op->code != OP_ALL_TO_ALL || software(m, SW_DISPATCH) == DISPATCH_ONCE)
		return 0;
	return (pads ? 4 : 2) * (double)local_bytes(m, op->in[0]);
}

struct op_price price_sent(const struct pricing *p, const struct op *op)
{
	const struct note *note = &p->note[op->mark];
	struct op_price x = { .kind = comm_kind(op), .launches = exchange_launches(p->m, op) };
	double sent = comm_bytes(p->m, op) / (gathers_narrow(p->m, op) ? 2 : 1);
	bool narrow = x.kind == T_GRADS && op->in[0]->dt == F32 && software(p->m, SW_GRADS) == GRADS_BF16;

	if (note->axes) {
		double n = (double)group_size(p->m, note->axes);

		x.seconds = link_price(p->m, note->axes, (n - 1) / n * (double)local_bytes(p->m, op->in[0]), 1, p->copies);
	} else if (note->seconds > 0) {
		x.seconds = narrow ? note->seconds / 2 : note->seconds;
	} else {
		x.seconds = link_price(p->m, comm_axes(op), narrow ? sent / 2 : sent, op->code == OP_ALL_REDUCE ? 2 : 1,
				       op->code == OP_ALL_TO_ALL ? p->copies : 0);
	}
	x.seconds += memory_seconds(p->m, sorted_bytes(p->m, op));
	return x;
}
