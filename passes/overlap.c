/* passes/overlap.c - collectives that compute can hide are started early and waited for late.
 *
 * Requires form PARTITIONED, after collectives. Such a collective gets {async}: it only starts, and its
 * results are in flight until a `wait`, behind which all readers stand. Ranks run one program, so they start
 * what they share in one order. Between start and wait the operands and the results take memory, so
 * the two are no further apart than ENOUGH times what the collective takes: a gather starts as late as that
 * allows, a reduction is waited for as soon. No loop lies between them.
 *
 * A gather of slices of buffers in a loop for which there is too little before its first reader gets
 * {ahead}: that of the next iteration starts when this one is there. */
#include "passes/passes.h"

static const double ENOUGH = 2;

enum { WAITS, WRITES, STARTS, NSLOT };

typedef VEC(struct op *) ops;

struct overlap {
	struct module *m;
	struct block *block;
	int64_t n;
	struct op **at;            /* by position */
	double *before;            /* seconds of compute before a position */
	int64_t *low, *high;       /* by position: where its section or the loop before it ends, the next begins */
	ops *slot[NSLOT];          /* what is put before the op at a position */
};

/* All other ops are views and copies, or loops. */
static double compute(const struct module *m, const struct op *op)
{
	bool works = op->code == OP_KERNEL || opinfo[op->code].class == C_EINSUM || opinfo[op->code].class == C_ATTN;

	return works ? op_seconds(m, op) : 0;
}

/* May what is started at one of them be in flight at the other? Not across sections, stages, or loops. */
static bool together(const struct op *a, const struct op *b)
{
	return a->phase == b->phase && a->at.where == b->at.where && a->at.late == b->at.late && a->code != OP_REPEAT && b->code != OP_REPEAT;
}

/* -- positions: op.mark; value.mark is that of its first reader, writes apart -- */

static void survey(struct overlap *o)
{
	int64_t n = 0, edge = 0;

	for (struct op *op = o->block->first; op; op = op->next, n++) {
		o->at[n] = op;
		op->mark = n;
		if (op->prev && !together(op->prev, op))
			edge = n;
		o->low[n] = edge;
		o->before[n + 1] = o->before[n] + compute(o->m, op);
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = o->n;
	}
	edge = o->n;
	for (n = o->n - 1; n >= 0; n--) {
		struct op *op = o->at[n];

		if (op->next && !together(op, op->next))
			edge = n + 1;
		o->high[n] = edge;
		for (uint32_t i = 0; i < op->nin && op->code != OP_WRITE; i++)
			op->in[i]->mark = n;
	}
}

static void put(struct overlap *o, int what, int64_t place, struct op *op)
{
	PUSH(o->m->mem, &o->slot[what][place], op);
}

/* -- one collective -- */

struct flight {
	int64_t start, wait;
};

/* As far apart as the operands' makers and the results' readers allow. */
static struct flight furthest(const struct overlap *o, const struct op *op)
{
	struct flight f = { o->low[op->mark], o->high[op->mark] };

	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *def = op->in[i]->def;

		if (def && comm_sends(def->code))
			f.start = op->mark;
		else if (def && def->mark >= f.start)
			f.start = def->mark + 1;
	}
	for (uint32_t i = 0; i < op->nout; i++)
		if (op->out[i]->mark < f.wait)
			f.wait = op->out[i]->mark;
	return f;
}

/* No further than pays. */
static void tighten(const struct overlap *o, const struct op *op, double need, struct flight *f)
{
	bool read = f->wait < o->high[op->mark];

	if (op->code == OP_ALL_GATHER && read)
		while (f->start < op->mark && o->before[f->wait] - o->before[f->start + 1] >= need)
			f->start++;
	else
		while (f->wait > op->mark + 1 && o->before[f->wait - 1] - o->before[f->start] >= need)
			f->wait--;
}

static void launch(struct overlap *o, struct op *op, int64_t wait)
{
	struct builder b = { .m = o->m, .block = o->block, .phase = op->phase, .span = op->span,
			     .where = op->at.where };
	struct op *w = op_new(&b, OP_WAIT, op->nout, op->out, op->nout);

	op_half(w, op);
	SET(op, async, 1);
	for (uint32_t i = 0; i < op->nout; i++) {
		struct value *old = op->out[i], *fly = op_type(&b, op, i, old->dt, old->nd, old->d);

		fly->sh = old->sh;
		fly->kind = old->kind;
		fly->span = old->span;
		w->in[i] = fly;
		w->out[i] = old;
		old->def = w;
		old->no = i;
	}
	w->mark = wait;
	put(o, WAITS, wait, w);
}

/* -- of the next iteration -- */

/* Is v a row of a buffer? It is there whichever iteration runs. */
static bool is_stored(const struct module *m, const struct op *loop, const struct value *v)
{
	if (v->def || v->no < loop->at.ncarry + loop->at.nwith || !is_row(m, v, loop->in[v->no], loop->at.dim))
		return false;
	const struct op *read = loop->in[v->no]->def;
	const struct buffer *b = read && read->code == OP_READ ? find_buffer(m, read->at.buf) : NULL;

	return b && b->role != B_INPUT && !b->host && same_layout(read->out[0], b->nd, b->d, b->store.on, b->dt);
}

static bool may_be_ahead(const struct overlap *o, const struct op *op)
{
	const struct block *body = o->block;

	if (op->code != OP_ALL_GATHER || !body->owner || body->owner->code != OP_REPEAT)
		return false;
	for (uint32_t i = 0; i < op->nin; i++)
		if (!is_stored(o->m, body->owner, op->in[i]))
			return false;
	for (uint32_t k = 0; k < body->yields.n; k++)
		if (body->yields.at[k]->def == op)
			return false;
	return true;
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

/* A whole iteration hides what the ops before the first reader can't; two places are the price. */
static bool gather_ahead(const struct overlap *o, struct op *op, double seconds, double hidden, double latency)
{
	double gain = least(seconds, o->before[o->n]) - least(seconds, hidden);

	if (gain < latency || gain <= 0 || !may_be_ahead(o, op))
		return false;
	SET(op, ahead, 1);
	return true;
}

static void consider(struct overlap *o, struct op *op)
{
	uint32_t axes = axes_bits(&op->at.axes);
	double latency = comm_seconds(o->m, axes, 0), seconds = op_seconds(o->m, op);
	struct flight f = furthest(o, op);

	tighten(o, op, ENOUGH * seconds, &f);
	double hidden = o->before[f.wait] - o->before[f.start];
	bool pays = hidden > 0 && least(hidden, seconds) >= latency;

	if (gather_ahead(o, op, seconds, hidden, latency))
		pays = false;

	put(o, STARTS, pays ? f.start : op->mark, op);
	if (pays)
		launch(o, op, f.wait);
}

/* -- the block anew -- */

static void empty(struct overlap *o, int what, int64_t place)
{
	for (uint32_t i = 0; i < o->slot[what][place].n; i++)
		op_move_before(o->slot[what][place].at[i], NULL);
}

static void rebuild(struct overlap *o)
{
	for (int64_t p = 0; p <= o->n; p++) {
		struct op *op = p < o->n ? o->at[p] : NULL;

		for (int what = 0; what < NSLOT; what++)
			empty(o, what, p);
		if (op && !comm_sends(op->code) && op->aux != o)
			op_move_before(op, NULL);
	}
}

/* A write of what is in flight stands behind the wait. */
static void hold_back(struct overlap *o, struct op *op)
{
	const struct op *wait = op->in[0]->def;

	if (wait && wait->code == OP_WAIT && wait->mark > op->mark) {
		put(o, WRITES, wait->mark, op);
		op->aux = o;
	}
}

static void overlap_block(struct module *m, struct block *block)
{
	struct overlap o = { .m = m, .block = block };
	bool any = false;

	for (struct op *op = block->first; op; op = op->next, o.n++) {
		op->aux = NULL;
		any |= comm_sends(op->code);
		if (op->code == OP_REPEAT)
			overlap_block(m, op->body);
	}
	if (!any)
		return;
	o.at = NEWN(m->mem, struct op *, o.n + 1);
	o.before = NEWN(m->mem, double, o.n + 2);
	o.low = NEWN(m->mem, int64_t, o.n + 1);
	o.high = NEWN(m->mem, int64_t, o.n + 1);
	for (int i = 0; i < NSLOT; i++)
		o.slot[i] = NEWN(m->mem, ops, o.n + 1);
	survey(&o);
	for (int64_t p = 0; p < o.n; p++)
		if (comm_sends(o.at[p]->code))
			consider(&o, o.at[p]);
	for (int64_t p = 0; p < o.n; p++)
		if (o.at[p]->code == OP_WRITE)
			hold_back(&o, o.at[p]);
	rebuild(&o);
}

bool pass_overlap(struct module *m, struct diag *d)
{
	(void)d;
	overlap_block(m, &m->top);
	return true;
}
