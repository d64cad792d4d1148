/* passes/delay.c - work that a collective does not wait for goes behind its start.
 *
 * Requires form PARTITIONED, after collectives, before overlap.
 * Leaves: the same ops in an order in which more of a collective can be hidden. Where there is less compute between a
 * collective and its first reader than the collective takes, ops before it that it does not need, and that nothing
 * up to it reads, are moved behind it, the last first, until there is enough: in backward, the products that make the
 * gradients of weights stand between the reduction of an activation's gradient and what goes on with it.
 *
 * Only compute moves. Collectives keep their order, which all ranks share. What moves keeps its operands alive for
 * longer, so no more of it moves than the collective takes, and none where that hides less than a latency. */
#include "passes/passes.h"

struct delay {
	struct module *m;
	struct op **at; /* by position, which is op.mark; op.aux: it hides a collective already */
	int64_t low;    /* where the section of the collective begins */
	bool *needed;   /* by position: the collective waits for it */
	bool *moves;    /* by position: it goes behind the collective */
};

static bool is_work(const struct op *op)
{
	return op->code == OP_KERNEL || opinfo[op->code].class == C_EINSUM || opinfo[op->code].class == C_ATTN;
}

/* Ops of one section may pass one another. */
static bool same_section(const struct op *a, const struct op *b)
{
	return a->phase == b->phase && a->at.where == b->at.where && a->at.late == b->at.late &&
	       a->code != OP_REPEAT && b->code != OP_REPEAT && a->code != OP_WRITE && b->code != OP_WRITE;
}

static bool reads(const struct op *op, const struct op *def)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i]->def == def)
			return true;
	return false;
}

/* Seconds of compute between op and its first reader, as far as op takes. What it counts is spoken for. */
static double hidden_behind(struct delay *x, const struct op *op, double need)
{
	double have = 0;

	for (struct op *q = op->next; q && have < need && same_section(op, q) && !reads(q, op); q = q->next) {
		if (!is_work(q) || q->aux == x)
			continue;
		q->aux = x;
		have += op_seconds(x->m, q);
	}
	return have;
}

static void find_needed(struct delay *x, const struct op *op)
{
	for (int64_t p = x->low; p <= op->mark; p++)
		x->needed[p] = p == op->mark;
	for (int64_t p = op->mark; p >= x->low; p--)
		for (uint32_t i = 0; x->needed[p] && i < x->at[p]->nin; i++) {
			const struct op *def = x->at[p]->in[i]->def;

			if (def && def->home == op->home && def->mark >= x->low)
				x->needed[def->mark] = true;
		}
}

/* Behind this position op may start as it is. Behind another collective it starts when that is there: late. */
static int64_t ready_at(const struct delay *x, const struct op *op)
{
	int64_t at = x->low - 1;

	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *def = op->in[i]->def;

		if (def && comm_sends(def->code))
			return op->mark;
		if (def && def->home == op->home && def->mark > at)
			at = def->mark;
	}
	return at;
}

/* Chooses work before op for up to `need` seconds, the last first. A value that is read before op, by what stays, is
 * marked. What stands where op can be in flight need not move. */
static double choose_work(struct delay *x, const struct op *op, double need)
{
	int64_t ready = ready_at(x, op);
	double have = 0;

	for (int64_t p = x->low; p < op->mark; p++)
		for (uint32_t i = 0; i < x->at[p]->nout; i++)
			x->at[p]->out[i]->mark = 0;
	for (int64_t p = op->mark - 1; p >= x->low; p--) {
		struct op *q = x->at[p];
		bool free = have < need && is_work(q) && !x->needed[p] && q->aux != x;

		for (uint32_t i = 0; free && i < q->nout; i++)
			free = !q->out[i]->mark;
		have += free ? op_seconds(x->m, q) : 0;
		x->moves[p] = free && p < ready;
		if (free && p > ready) {
			q->aux = x;
			free = false;
		}
		for (uint32_t i = 0; !free && i < q->nin; i++)
			q->in[i]->mark = 1;
	}
	return have;
}

/* Behind op, in the order they had. */
static void move(struct delay *x, struct op *op)
{
	int64_t p = x->low, end = op->mark;
	struct op *behind = op->next;

	for (; p < end; p++) {
		if (!x->moves[p])
			continue;
		x->at[p]->aux = x;
		op_move_before(x->at[p], behind);
	}
	struct op *q = x->low ? x->at[x->low - 1]->next : op->home->first;
	for (p = x->low; q != behind; q = q->next, p++) {
		x->at[p] = q;
		q->mark = p;
	}
}

static void consider(struct delay *x, struct op *op)
{
	double seconds = op_seconds(x->m, op), latency = comm_seconds(x->m, axes_bits(&op->at.axes), 0);
	double hidden = hidden_behind(x, op, seconds);

	x->low = op->mark;
	while (x->low > 0 && same_section(x->at[x->low - 1], op))
		x->low--;
	find_needed(x, op);
	double more = choose_work(x, op, seconds - hidden);
	if (more > 0 && hidden + more >= latency)
		move(x, op);
}

static void delay_block(struct module *m, struct block *block)
{
	struct delay x = { .m = m };
	int64_t n = 0;
	bool any = false;

	for (struct op *op = block->first; op; op = op->next, n++) {
		any |= comm_sends(op->code);
		op->aux = NULL;
		op->mark = n;
		if (op->code == OP_REPEAT)
			delay_block(m, op->body);
	}
	if (!any)
		return;
	x.at = NEWN(m->mem, struct op *, n);
	x.needed = NEWN(m->mem, bool, n);
	x.moves = NEWN(m->mem, bool, n);
	for (struct op *op = block->first; op; op = op->next)
		x.at[op->mark] = op;
	for (struct op *op = block->first, *next; op; op = next) {
		next = op->next;
		if (comm_sends(op->code))
			consider(&x, op);
	}
}

bool pass_delay(struct module *m, struct diag *d)
{
	(void)d;
	delay_block(m, &m->top);
	return true;
}
