/* passes/overlap.c - collectives, and copies from and to the host, that other work can hide are started early and waited for late.
 *
 * Requires form PARTITIONED, after collectives and offload. Such an op gets {async}: it only starts, and its
 * results are in flight until a `wait`, behind which all readers stand. Ranks run one program, so they start
 * what they share in one order. Between start and wait the operands and the results take memory, so
 * the two of a collective are no further apart than ENOUGH times what it takes: a gather starts as late as that
 * allows, a reduction is waited for as soon. No loop lies between them.
 *
 * Copies share one link each way, and in an update of the optimizer they take longer than all that could hide them: what
 * keeps the link at work is that the next are always under way. So their distance is one of bytes: those that are under way
 * at once are no more than what the one op that wants most has copied. Of params of one size, that is one ahead.
 *
 * A gather of slices of buffers in a loop for which there is too little before its first reader, or a copy of them from
 * the host, gets {ahead}: that of the next iteration starts when this one is there. */
#include "ir/epilogue.h"
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
	double *cover[NSTREAM];    /* of what hides copies of this stream: compute, and whatever is on other streams */
	double seconds[NSTREAM];   /* of all ops of the block on it */
	int64_t most[NSTREAM];     /* bytes that one op has copied in, or gives to be copied out */
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

static bool is_copy(const struct op *op)
{
	return opinfo[op->code].class == C_HOST;
}

static int64_t copied(const struct overlap *o, const struct op *op)
{
	return local_bytes(o->m, op->in[0]);
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
		o->seconds[op_stream(op->code)] += may_fly(op->code) ? op_seconds(o->m, op) : 0;
		for (int s = S_IN; s <= S_OUT; s++)
			o->cover[s][n + 1] = o->cover[s][n] + compute(o->m, op) +
					     (may_fly(op->code) && (int)op_stream(op->code) != s ? op_seconds(o->m, op) : 0);
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

/* -- one collective, or copy -- */

struct flight {
	int64_t start, wait;
};

/* As far apart as the operands' makers and the results' readers allow. */
static struct flight furthest(const struct overlap *o, const struct op *op)
{
	struct flight f = { o->low[op->mark], o->high[op->mark] };

	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *def = op->in[i]->def;

		if ((def && may_fly(def->code)) || op->code == OP_TO_HOST) /* that stands behind the last read of the old value */
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

/* Does op read nothing but such rows? */
static bool reads_rows(const struct overlap *o, const struct op *op)
{
	const struct op *loop = o->block->owner;

	for (uint32_t i = 0; i < op->nin; i++)
		if (op->code == OP_FROM_HOST ? op->in[i]->def || op->in[i]->no < loop->at.ncarry + loop->at.nwith :
					       !is_stored(o->m, loop, op->in[i]))
			return false;
	return true;
}

static bool may_be_ahead(const struct overlap *o, const struct op *op)
{
	const struct block *body = o->block;

	if ((op->code != OP_ALL_GATHER && op->code != OP_FROM_HOST) || !body->owner || body->owner->code != OP_REPEAT || !reads_rows(o, op))
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

/* -- copies -- */

/* Neighbours that one op wants, or that stand behind one that made them, go together. */
static void find_most(struct overlap *o)
{
	int64_t sum[NSTREAM] = { 0 }, with[NSTREAM] = { -1, -1, -1, -1 };

	for (int64_t p = 0; p < o->n; p++) {
		struct op *op = o->at[p];
		enum stream s = op_stream(op->code);
		const struct op *def = is_copy(op) ? op->in[0]->def : NULL;
		int64_t at = s == S_IN ? furthest(o, op).wait : def ? def->mark : -1;

		if (!is_copy(op))
			continue;
		sum[s] = (at == with[s] ? sum[s] : 0) + copied(o, op);
		with[s] = at;
		o->most[s] = sum[s] > o->most[s] ? sum[s] : o->most[s];
	}
}

/* As early as those before it that are still under way leave room, and not before they start: they are wanted sooner. */
static void start_early(const struct overlap *o, const struct op *op, struct flight *f)
{
	int64_t under_way = copied(o, op);

	for (const struct op *b = op->prev; b && b->mark >= o->low[op->mark]; b = b->prev) {
		const struct flight *x = b->aux;

		if (op_stream(b->code) != S_IN || HAS(b, ahead))
			continue;
		if (f->start < x->start)
			f->start = x->start;
		under_way += copied(o, b);
		if (under_way > o->most[S_IN] && f->start < x->wait)
			f->start = x->wait;
	}
}

/* Until one is to start for which there is no room, or no longer than the section. */
static void wait_late(const struct overlap *o, const struct op *op, struct flight *f)
{
	int64_t under_way = copied(o, op);

	for (const struct op *b = op->next; b && b->mark < f->wait; b = b->next) {
		if (op_stream(b->code) != S_OUT)
			continue;
		under_way += copied(o, b);
		if (under_way > o->most[S_OUT])
			f->wait = b->mark;
	}
}

static void consider_copy(struct overlap *o, struct op *op)
{
	enum stream s = op_stream(op->code);
	struct flight *f = NEW(o->m->mem, struct flight);
	struct epilogue e;

	*f = furthest(o, op);
	if (f->wait < o->n && epilogue_pair(o->at[f->wait], &e)) /* nothing stands between the two */
		f->wait--;
	op->aux = f;
	if (s == S_IN)
		start_early(o, op, f);
	else
		wait_late(o, op, f);
	double hidden = o->cover[s][f->wait] - o->cover[s][f->start];

	/* What an iteration has before the first reader must do for all of its copies. */
	if (may_be_ahead(o, op) && o->before[o->n] > 0 && (hidden <= 0 || hidden < o->seconds[s])) {
		SET(op, ahead, 1);
		hidden = 0;
	}
	put(o, STARTS, hidden > 0 ? f->start : op->mark, op);
	if (hidden > 0)
		launch(o, op, f->wait);
	else
		f->start = f->wait = op->mark; /* it is not under way when others are */
}

static void consider(struct overlap *o, struct op *op)
{
	if (is_copy(op)) {
		consider_copy(o, op);
		return;
	}

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
		if (op && !may_fly(op->code) && op->aux != o)
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
		any |= may_fly(op->code);
		if (op->code == OP_REPEAT)
			overlap_block(m, op->body);
	}
	if (!any)
		return;
	o.at = NEWN(m->mem, struct op *, o.n + 1);
	o.before = NEWN(m->mem, double, o.n + 2);
	for (int s = S_IN; s <= S_OUT; s++)
		o.cover[s] = NEWN(m->mem, double, o.n + 2);
	o.low = NEWN(m->mem, int64_t, o.n + 1);
	o.high = NEWN(m->mem, int64_t, o.n + 1);
	for (int i = 0; i < NSLOT; i++)
		o.slot[i] = NEWN(m->mem, ops, o.n + 1);
	survey(&o);
	find_most(&o);
	for (int64_t p = 0; p < o.n; p++)
		if (may_fly(o.at[p]->code))
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
