/* passes/pipeline.c - every op of forward and backward at the top gets its one place along the pipeline.
 *
 * Requires form PARTITIONED and the places that `stages` gave (what it placed keeps its place). New since then
 * are collectives and leaves. A collective runs at either end of the way that its value travels, where the
 * message is smaller. What is made of constants, inputs and params alone does not travel: each place that
 * reads it makes its own. */
#include "passes/passes.h"
#include "passes/stages.h"

struct at {
	int64_t need;   /* places that read it */
	int least, most; /* where readers want it, of forward and of backward */
	int first, last; /* places of these readers */
	int back;        /* the least place of a reader of backward: what forward makes is not there before */
	int64_t held;    /* places that hold all buffers that it and what leads to it are made of; 0: not known yet */
};

static struct at *at_of(struct module *m, const struct value *v)
{
	struct value *w = (struct value *)v;

	if (!w->aux) {
		struct at *x = NEW(m->mem, struct at);

		x->least = x->first = x->back = 1 << 20;
		x->most = x->last = -1;
		w->aux = x;
	}
	return w->aux;
}

static bool in_microbatch(const struct op *op)
{
	return op->phase == FORWARD || op->phase == BACKWARD;
}

/* Not so what a loop makes, nor what follows from that: it is made at one place. */
static bool placeless(const struct op *op)
{
	enum kind k = op->nout ? op->out[0]->kind : K_FN;

	if ((k != K_CONST && k != K_INPUT && k != K_PARAM) || op->code == OP_ACCUMULATE || op->code == OP_REPEAT)
		return false;
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *def = op->in[i]->def;

		if (def && in_microbatch(def) && !def->mark)
			return false;
	}
	return true;
}

/* Marks what is placeless. */
static void find_placeless(struct module *m)
{
	for (struct op *op = m->top.first; op; op = op->next)
		op->mark = in_microbatch(op) && placeless(op);
}

static int place_of(const struct op *op)
{
	return __builtin_ctzll((uint64_t)op->at.where);
}

/* Where v can first be read by its own phase: a loop's result behind the loop, as its phase runs. */
static int reach(const struct value *v)
{
	int place = place_of(v->def);

	return place % 2 == 0 || v->def->code != OP_REPEAT ? place : v->def->phase == FORWARD ? place + 1 : place - 1;
}

/* -- ops without a place -- */

/* What a repeat reads is made in the glue before it, as its phase runs: else all its chunks would make it. */
static int read_place(const struct op *op)
{
	int place = place_of(op);

	return place % 2 == 0 || op->code != OP_REPEAT ? place : op->phase == FORWARD ? place - 1 : place + 1;
}

static void note_read(struct module *m, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		struct at *x = at_of(m, op->in[i]);
		int place = read_place(op), own = place_of(op);

		x->need |= op->at.where;
		if (op->phase == FORWARD) {
			x->least = place < x->least ? place : x->least;
			x->first = own < x->first ? own : x->first;
		} else {
			x->most = place > x->most ? place : x->most;
			x->last = own > x->last ? own : x->last;
			x->back = own < x->back ? own : x->back;
		}
	}
}

/* -- who holds what op reads -- */

static int64_t held_at(struct module *m, const struct op *op);

static int64_t held_of(struct module *m, const struct value *v)
{
	struct at *x = at_of(m, v);

	if (!v->def || (in_microbatch(v->def) && HAS(v->def, where)))
		return -1; /* it comes to where it is read; of the prologue it is made there */
	if (!x->held)
		x->held = held_at(m, v->def);
	return x->held;
}

static int64_t held_at(struct module *m, const struct op *op)
{
	const struct buffer *b = op->code == OP_READ ? find_buffer(m, op->at.buf) : NULL;
	int64_t held = b && b->where ? b->where : -1;

	for (uint32_t i = 0; i < op->nin; i++)
		held &= held_of(m, op->in[i]);
	return held;
}

/* A place for op from lo to hi: the first or the last, but where there are the buffers that it reads; else that
 * of the loop that reads it. */
static int choose(struct module *m, const struct op *op, int lo, int hi, bool first)
{
	int64_t held = held_at(m, op);
	int own_lo = lo, own_hi = hi;

	for (uint32_t i = 0; i < op->nout; i++) {
		const struct at *x = at_of(m, op->out[i]);

		if (op->phase == FORWARD && x->first == hi + 1)
			own_hi = x->first;
		if (op->phase == BACKWARD && x->last == lo - 1)
			own_lo = x->last;
	}
	for (int k = 0; k <= hi - lo; k++) {
		int at = first ? lo + k : hi - k;

		if (held >> at & 1)
			return at;
	}
	if (own_hi > hi && (held >> own_hi & 1))
		return own_hi;
	if (own_lo < lo && (held >> own_lo & 1))
		return own_lo;
	return first ? lo : hi;
}

static bool shrinks(const struct module *m, const struct op *op)
{
	return op->nin && op->nout && local_bytes(m, op->out[0]) < local_bytes(m, op->in[0]);
}

/* Not before what op reads of forward is made, not behind what it reads of backward. An operand without a
 * place yet, as the step before in a chain, is bound as its own operands are. */
static void bound_by_operands(const struct op *op, int *lo, int *hi)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *def = op->in[i]->def;

		if (!def || !in_microbatch(def))
			continue;
		if (!HAS(def, where)) {
			if (!def->mark)
				bound_by_operands(def, lo, hi);
			continue;
		}
		if (def->phase == FORWARD && reach(op->in[i]) > *lo)
			*lo = reach(op->in[i]);
		if (def->phase == BACKWARD && reach(op->in[i]) < *hi)
			*hi = reach(op->in[i]);
	}
}

/* The range of places that an op may have. */
static void bounds(struct module *m, const struct op *op, int n, int *lo, int *hi)
{
	*lo = 0;
	*hi = 2 * n;
	bound_by_operands(op, lo, hi);
	for (uint32_t i = 0; i < op->nout; i++) {
		const struct at *x = at_of(m, op->out[i]);

		if (op->phase == FORWARD && x->least < *hi)
			*hi = x->least;
		if (op->phase == FORWARD && x->back < *hi)
			*hi = x->back;
		if (op->phase == BACKWARD && x->most > *lo)
			*lo = x->most;
	}
	*hi -= *hi % 2 && op->phase == FORWARD; /* a repeat's own place is that of all its chunks */
	*lo += *lo % 2 && op->phase == BACKWARD;
	if (*hi < *lo && op->phase == FORWARD)
		*hi = *lo;
	if (*hi < *lo)
		*lo = *hi;
}

/* What each stage has a part of stays where the parts are. */
static void place_parts(struct module *m)
{
	uint32_t stages = 1u << pipe_axis(m);

	for (struct op *op = m->top.first; op; op = op->next)
		for (uint32_t i = 0; in_microbatch(op) && !HAS(op, where) && i < op->nin; i++) {
			const struct op *def = op->in[i]->def;

			if (op->in[i]->sh.sum & stages && in_microbatch(def) && HAS(def, where))
				SET(op, where, def->at.where);
		}
}

/* From the end, so that readers are known; an operand without a place yet bounds nothing, and is placed by
 * its reader in its turn. */
static void place_ops(struct module *m)
{
	int n = (int)m->pipe.loops.n;

	for (struct op *op = m->top.last; op; op = op->prev) {
		if (!in_microbatch(op))
			continue;
		if (!HAS(op, where) && !op->mark) {
			int lo, hi;

			bounds(m, op, n, &lo, &hi);
			SET(op, where, 1ll << choose(m, op, lo, hi, (op->phase == FORWARD) == shrinks(m, op)));
		}
		if (HAS(op, where))
			note_read(m, op);
	}
}

/* -- what each place makes for itself -- */

static void use_copy(struct op *from, int64_t where, struct value *old, struct value *copy)
{
	for (struct op *op = from; op; op = op->next)
		for (uint32_t i = 0; in_microbatch(op) && op->at.where == where && i < op->nin; i++)
			if (op->in[i] == old)
				op->in[i] = copy;
}

static struct op *copy_of(struct module *m, struct op *op, int64_t where)
{
	struct builder b = { m, op->home, op, op->phase, op->span, op->of, 0 };
	void **keep = NEWN(m->mem, void *, op->nout);

	for (uint32_t i = 0; i < op->nout; i++)
		keep[i] = op->out[i]->aux;
	struct op *copy = op_clone(&b, op, false);
	copy->of = op->of;
	for (uint32_t i = 0; i < op->nout; i++) {
		op->out[i]->aux = keep[i];
		copy->out[i]->aux = NULL;
		use_copy(op->next, where, op->out[i], copy->out[i]);
	}
	return copy;
}

/* The last of its places keeps op itself. */
static void copy_to_places(struct module *m, struct op *op)
{
	int64_t need = 0;

	for (uint32_t i = 0; i < op->nout; i++)
		need |= at_of(m, op->out[i])->need;
	if (!need)
		need = 1; /* nobody reads it */
	for (int64_t rest = need; rest; rest &= rest - 1) {
		int64_t where = rest & -rest;
		struct op *at = rest == where ? op : copy_of(m, op, where);

		SET(at, where, where);
		for (uint32_t i = 0; i < at->nin; i++)
			at_of(m, at->in[i])->need |= where;
	}
}

static void copy_placeless(struct module *m)
{
	for (struct op *op = m->top.last, *prev; op; op = prev) {
		prev = op->prev;
		if (in_microbatch(op) && !HAS(op, where))
			copy_to_places(m, op);
	}
}

/* The places whose stages have a part of what op makes: rows of a repeat, or of a sum of these. 0: it is whole. */
static int64_t parts_of(const struct module *m, const struct op *op, int64_t all)
{
	int64_t at = 0;

	if (HAS(op, local) || (opinfo[op->code].class == C_COMM && axes_has(&op->at.axes, pipe_axis(m))))
		return all;
	for (uint32_t i = 0; i < op->nout; i++)
		at |= stage_rows(m, op->out[i]);
	return at;
}

/* What is made once a step is made where it is read, or its parts are, or on all stages if these are all. */
static void place_prologue(struct module *m)
{
	int64_t all = (2ll << 2 * m->pipe.loops.n) - 1;

	for (struct op *op = m->top.last; op; op = op->prev) {
		int64_t need = 0;

		if (in_microbatch(op))
			continue;
		for (uint32_t i = 0; i < op->nout; i++)
			need |= at_of(m, op->out[i])->need;
		if (parts_of(m, op, all))
			need = parts_of(m, op, all);
		if (op->phase == EPILOGUE)
			need = HAS(op, where) ? op->at.where : all;
		if (op->code == OP_TO_PARTIAL && HAS(op, from) && op->at.from)
			need = op->at.from; /* other stages give zeros */
		for (uint32_t i = 0; i < op->nin; i++)
			at_of(m, op->in[i])->need |= need;
		if (op->phase == EPILOGUE)
			continue;
		op->has &= ~(1u << A_where);
		op->at.where = 0;
		if (need && need != all)
			SET(op, where, need);
	}
}

static void clear(struct block *block)
{
	for (struct op *op = block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
}

bool pass_pipeline(struct module *m, struct diag *d)
{
	if (pipe_axis(m) < 0)
		return true;
	clear(&m->top);
	find_placeless(m);
	place_parts(m);
	place_ops(m);
	copy_placeless(m);
	place_prologue(m);
	(void)d;
	return true;
}
