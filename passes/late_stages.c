/* passes/late_stages.c - on which stages the ops of the epilogue run.
 *
 * A value is where its op ran: what is accumulated at a place is on the stages that run that place, a param
 * where it is held, what is stacked along a repeat everywhere (each stage has its rows). An op runs where all
 * its operands are. Where operands are on different stages and the result is wanted on more than have all of
 * them, these become sums over the pipeline's axis, zero but on their stage (to_partial {from}), which the
 * partitioner reduces like any other: the global norm is one all-reduce. As long as such a sum may be owed, all
 * stages that have a part of it take part in what is made of it. */
#include "passes/stages.h"

struct value *to_sum(struct builder *b, struct value *x, int64_t from, int64_t to, bool partial)
{
	struct op *op = op_new(b, OP_TO_PARTIAL, 1, &x, 1);
	struct axes on = { .n = 1, .a = { (uint8_t)pipe_axis(b->m) } };
	struct value *v = op_type(b, op, 0, x->dt, x->nd, x->d);

	SET(op, axes, on);
	SET(op, from, from);
	SET(op, form, partial);
	if (to != EVERYWHERE)
		SET(op, where, to);
	v->kind = x->kind;
	v->span = x->span;
	return v;
}

static struct op *first_late(struct stages *s)
{
	struct op *op = s->m->top.first;

	while (op && op->phase != EPILOGUE)
		op = op->next;
	return op;
}

/* -- gradients that were accumulated in parts -- */

static struct value *add_parts(struct stages *s, struct builder *b, const struct value *whole, int64_t to)
{
	const struct spot *x = spot_of(s, whole);
	struct value **in = NEWN(s->m->mem, struct value *, x->parts.n);

	for (uint32_t i = 0; i < x->parts.n; i++)
		to |= 1ll << x->parts.at[i].place;
	for (uint32_t i = 0; i < x->parts.n; i++)
		in[i] = to_sum(b, x->parts.at[i].v, 1ll << x->parts.at[i].place, to, x->parts.at[i].partial);
	struct op *sum = op_new(b, OP_ACCUM, x->parts.n, in, 1);
	struct value *v = op_type(b, sum, 0, whole->dt, whole->nd, whole->d);
	if (to != EVERYWHERE)
		SET(sum, where, to);
	v->kind = whole->kind;
	v->name = whole->name;
	v->span = whole->span;
	spot_of(s, v)->there = spot_of(s, v)->owed = to;
	return v;
}

static void join_parts(struct stages *s)
{
	struct op *late = first_late(s);

	for (struct op *op = s->m->top.first, *next; op; op = next) {
		const struct spot *x = op->nout ? spot_of(s, op->out[0]) : NULL;

		next = op->next;
		if (op->phase != BACKWARD || !x->parts.n || x->parts.at[0].v == op->out[0])
			continue;
		if (op->code == OP_ACCUMULATE && late) {
			struct value *old = op->out[0];
			const char *param = old->name && strncmp(old->name, "d:", 2) == 0 ? old->name + 2 : NULL;
			const struct buffer *p = param ? find_buffer(s->m, param) : NULL;
			struct builder b = { s->m, &s->m->top, late, EPILOGUE, op->span, NULL, 0 };

			replace_uses(&s->m->top, old, add_parts(s, &b, old, p && p->where ? p->where : EVERYWHERE));
		}
	}
	for (struct op *op = s->m->top.last, *prev; op; op = prev) { /* what the parts stand in for */
		const struct spot *x = op->nout ? spot_of(s, op->out[0]) : NULL;

		prev = op->prev;
		if (op->phase == BACKWARD && x->parts.n && x->parts.at[0].v != op->out[0])
			op_unlink(op);
	}
}

/* -- where values are, and where they are wanted -- */

static int64_t where_of(const struct op *op)
{
	return HAS(op, where) ? op->at.where : EVERYWHERE;
}

static bool stacked(const struct stages *s, const struct value *v)
{
	for (int i = 0; i < v->nd; i++)
		if (is_staged(s->m, v->d[i]))
			return true;
	return false;
}

static int64_t buffer_where(const struct stages *s, const char *name)
{
	const struct buffer *b = find_buffer(s->m, name);

	return b && b->where ? b->where : EVERYWHERE;
}

static int64_t there(struct stages *s, const struct value *v)
{
	const struct op *op = v->def;

	if (stacked(s, v))
		return EVERYWHERE; /* each stage has its rows, some none */
	if (op->phase == EPILOGUE)
		return spot_of(s, v)->there;
	return where_of(op);
}

/* The stages that have rows of what op works on; those that have a part of a sum of rows are all. 0: it has none. */
static int64_t op_rows(const struct stages *s, const struct op *op)
{
	int64_t in = 0, out = 0;

	for (uint32_t i = 0; i < op->nin; i++)
		in |= stage_rows(s->m, op->in[i]);
	for (uint32_t i = 0; i < op->nout; i++)
		out |= stage_rows(s->m, op->out[i]);
	if (stage_loop(s, op) >= 0)
		return op->at.ncarry ? EVERYWHERE : in | out | 2ll << 2 * stage_loop(s, op);
	return op->nout && in && !out ? EVERYWHERE : in | out;
}

/* The stages that hold the param whose gradient this is; 0: it is none. What the norm makes of it is smaller. */
static int64_t gradient_home(const struct stages *s, const struct op *op)
{
	const char *name = op->code == OP_ACCUM ? op->out[0]->name : NULL;

	return name && strncmp(name, "d:", 2) == 0 && find_buffer(s->m, name + 2) ? buffer_where(s, name + 2) : 0;
}

/* Where op has to run. */
static int64_t wanted_of(struct stages *s, const struct op *op)
{
	int64_t home = gradient_home(s, op);

	if (home)
		return home;
	int64_t wanted = op->code == OP_WRITE ? buffer_where(s, op->at.buf) : 0, rows = op_rows(s, op);

	for (uint32_t i = 0; i < op->nout; i++)
		wanted |= spot_of(s, op->out[i])->wanted;
	return rows ? rows : wanted;
}

static void find_wanted(struct stages *s)
{
	for (struct op *op = s->m->top.last; op && op->phase == EPILOGUE; op = op->prev) {
		int64_t wanted = wanted_of(s, op);

		for (uint32_t i = 0; i < op->nin; i++)
			spot_of(s, op->in[i])->wanted |= wanted;
	}
}

static bool is_const(const struct value *v)
{
	return v->def && v->def->code == OP_CONST;
}

struct meeting {
	int64_t all;          /* stages that have all operands */
	bool apart, mixed;    /* operands are on different stages; some everywhere, some not */
	int64_t owed;         /* stages that have a part of an operand that is still a sum */
};

static int64_t owed(struct stages *s, const struct value *v)
{
	return v->def->phase == EPILOGUE ? spot_of(s, v)->owed : 0;
}

/* What is summed along rows of a repeat is a sum over all stages, until an op is not linear in it. */
static int64_t makes_sum(struct stages *s, const struct op *op)
{
	int64_t on = 0;

	if (HAS(op, local))
		return EVERYWHERE;
	for (uint32_t i = 0; i < op->nin; i++)
		if (stacked(s, op->in[i]) && !stacked(s, op->out[0]))
			on = EVERYWHERE;
		else if (op_linear(op, i))
			on |= owed(s, op->in[i]);
	return on;
}

static struct meeting meet(struct stages *s, const struct op *op)
{
	struct meeting x = { EVERYWHERE, false, false, 0 };
	bool whole = false;

	for (uint32_t i = 0; i < op->nin; i++) {
		int64_t t = there(s, op->in[i]);

		x.owed |= owed(s, op->in[i]);
		if (t == EVERYWHERE) {
			whole |= !is_const(op->in[i]);
			continue;
		}
		x.apart |= x.all != EVERYWHERE && x.all != t;
		x.all &= t;
	}
	x.mixed = whole && x.all != EVERYWHERE;
	return x;
}

static bool covers(int64_t have, int64_t wanted)
{
	return !(wanted & ~have);
}

/* Operands that are not on all these stages become sums over them, and over those that they come from.
 * Returns both. */
static int64_t spread_operands(struct stages *s, struct op *op, int64_t to)
{
	struct builder b = { s->m, op->home, op, EPILOGUE, op->span, NULL, 0 };

	for (int64_t before = 0; before != to;) {
		before = to;
		for (uint32_t i = 0; i < op->nin; i++)
			to |= covers(there(s, op->in[i]), to) ? 0 : there(s, op->in[i]);
	}
	for (uint32_t i = 0; i < op->nin; i++) {
		int64_t t = there(s, op->in[i]);

		if (covers(t, to))
			continue;
		op->in[i] = to_sum(&b, op->in[i], t, to, false);
		spot_of(s, op->in[i])->there = spot_of(s, op->in[i])->owed = to;
	}
	return to;
}

static void place_late_op(struct stages *s, struct op *op)
{
	struct meeting x = meet(s, op);
	int64_t wanted = wanted_of(s, op);

	if ((x.apart && !x.all) || (!covers(x.all, wanted) && (x.apart || x.mixed || op->code == OP_WRITE || op_rows(s, op))))
		x.all = spread_operands(s, op, (wanted ? wanted : EVERYWHERE) | x.owed);
	else if (!covers(x.all, x.owed))
		x.all = spread_operands(s, op, x.all | x.owed);
	if (op->code == OP_READ || op->code == OP_WRITE)
		x.all = buffer_where(s, op->at.buf);
	else if (op->code == OP_TO_PARTIAL)
		x.all = where_of(op);
	if (x.all != EVERYWHERE)
		SET(op, where, x.all);
	for (uint32_t i = 0; i < op->nout; i++) {
		spot_of(s, op->out[i])->there = x.all;
		spot_of(s, op->out[i])->owed = makes_sum(s, op);
	}
}

void place_late(struct stages *s)
{
	join_parts(s);
	find_wanted(s);
	for (struct op *op = first_late(s), *next; op; op = next) {
		next = op->next;
		place_late_op(s, op);
	}
}
