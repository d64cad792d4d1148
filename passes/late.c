/* passes/late.c - what a loop makes of sums over the batch, moved to a loop of the epilogue.
 *
 * With microbatches such a sum is known after the last of them only. A repeat whose body has
 * functions of sums (kind fn: the next bias of a router, a ratio for a metric) is cut in two: the
 * old one stacks the sums and whatever else these functions read, a new one over the same dim, in
 * the epilogue, reads the stacks. A gradient never depends on such values (kinds has seen to it). */
#include "passes/late.h"

struct late {
	struct module *m;
	struct diag *d;
	struct op *old, *new;
	struct builder in; /* the new body */
};

enum origin { LATER, LEAF, WITH, OVER };

static bool is_late(const struct value *v)
{
	return v->kind == K_FN;
}

static bool op_is_late(const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (is_late(op->out[i]))
			return true;
	return false;
}

/* Where the new body finds a value of the old one. */
static enum origin origin_of(const struct late *l, const struct value *v)
{
	int64_t nc = l->old->at.ncarry;

	if (is_late(v))
		return LATER;
	if (v->def)
		return opinfo[v->def->code].class == C_LEAF && v->def->code != OP_READ ? LEAF : OVER;
	return v->no >= nc && v->no < nc + l->old->at.nwith ? WITH : OVER;
}

/* The old loop's value v of all iterations. NULL after an error. */
static struct value *stack_of(struct late *l, struct value *v)
{
	struct op *old = l->old;
	struct value like = *v;

	if (!v->def && v->no >= old->at.ncarry + old->at.nwith)
		return old->in[v->no];
	for (uint32_t k = (uint32_t)old->at.ncarry; k < old->nout; k++)
		if (old->body->yields.at[k] == v)
			return old->out[k];
	if (v->nd == MAX_DIMS) {
		diag_error(l->d, v->span, "a value of more than %d dims", MAX_DIMS);
		return NULL;
	}
	memmove(like.d + 1, like.d, v->nd * sizeof *like.d);
	like.d[0] = old->at.dim;
	like.nd++;
	like.placed = false;
	PUSH(l->m->mem, &old->body->yields, v);
	return op_add_out(l->m, old, &like);
}

static bool bring(struct late *l, struct value *v, enum origin what)
{
	struct value *outer, *arg;

	if (v->aux || origin_of(l, v) != what)
		return true;
	outer = what == WITH ? l->old->in[v->no] : stack_of(l, v);
	if (!outer)
		return false;
	arg = block_arg(&l->in, l->new->body, v->dt, v->nd, v->d);
	arg->kind = v->kind;
	arg->span = v->span;
	v->aux = arg;
	op_add_in(l->m, l->new, outer);
	if (what == WITH)
		l->new->at.nwith++;
	return true;
}

static bool bring_all(struct late *l, enum origin what)
{
	const struct block *body = l->old->body;
	uint32_t yields = body->yields.n;

	for (struct op *op = body->first; op; op = op->next)
		for (uint32_t i = 0; op_is_late(op) && i < op->nin; i++)
			if (!bring(l, op->in[i], what))
				return false;
	for (uint32_t k = 0; k < yields; k++)
		if (is_late(l->old->out[k]) && !bring(l, body->yields.at[k], what))
			return false;
	return true;
}

static struct value *add_result(struct late *l, struct value *old)
{
	struct value *v = op_add_out(l->m, l->new, old);

	v->name = old->name;
	replace_uses(&l->m->top, old, v);
	return v;
}

/* Carried values first, then invariants, then what is sliced. */
static bool build(struct late *l)
{
	struct op *old = l->old, *new = l->new;
	struct block *body = old->body;
	uint32_t nc = (uint32_t)old->at.ncarry, n = old->nout;

	for (uint32_t i = 0; i < nc; i++) {
		struct value *arg = body->args.at[i];

		if (!is_late(old->out[i]))
			continue;
		arg->aux = block_arg(&l->in, new->body, arg->dt, arg->nd, arg->d);
		((struct value *)arg->aux)->kind = K_FN;
		((struct value *)arg->aux)->name = arg->name;
		op_add_in(l->m, new, old->in[i]);
		new->at.ncarry++;
	}
	if (!bring_all(l, WITH) || !bring_all(l, OVER))
		return false;
	for (struct op *op = body->first; op; op = op->next) {
		if (op_is_late(op) && op->body)
			return diag_error(l->d, op->span, "a function of a sum over the batch, in a repeat within a "
					  "repeat: set microbatches = 1");
		if (op_is_late(op) || (opinfo[op->code].class == C_LEAF && op->code != OP_READ))
			op_clone(&l->in, op, true);
	}
	for (uint32_t k = 0; k < n; k++)
		if (is_late(old->out[k])) {
			add_result(l, old->out[k]);
			PUSH(l->m->mem, &new->body->yields, body->yields.at[k]->aux);
		}
	return true;
}

/* Takes what has moved away out of the old loop. */
static void strip(struct op *r)
{
	struct block *body = r->body;
	uint32_t nc = (uint32_t)r->at.ncarry, nin = 0, nout = 0;

	for (uint32_t i = 0; i < r->nin; i++) {
		if (i < nc && is_late(r->out[i]))
			continue;
		body->args.at[nin] = body->args.at[i];
		body->args.at[nin]->no = nin;
		r->in[nin++] = r->in[i];
	}
	for (uint32_t k = 0; k < r->nout; k++) {
		if (is_late(r->out[k])) {
			r->at.ncarry -= k < nc;
			continue;
		}
		body->yields.at[nout] = body->yields.at[k];
		r->out[nout] = r->out[k];
		r->out[nout]->no = nout;
		nout++;
	}
	r->nin = body->args.n = nin;
	r->nout = body->yields.n = nout;
	for (struct op *op = body->last, *prev; op; op = prev) {
		prev = op->prev;
		if (op_is_late(op))
			op_unlink(op);
	}
	if (!r->nout)
		op_unlink(r);
}

static bool needs_split(const struct op *r)
{
	for (uint32_t i = 0; i < r->nout; i++)
		if (is_late(r->out[i]))
			return true;
	for (const struct op *op = r->body->first; op; op = op->next)
		if (op_is_late(op))
			return true;
	return false;
}

static void forget(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->aux = NULL;
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
		if (op->body)
			forget(op->body);
	}
}

static bool split(struct module *m, struct op *r, struct diag *d)
{
	struct late l = { .m = m, .d = d, .old = r };
	struct builder top = { .m = m, .block = &m->top, .before = r->next, .phase = EPILOGUE, .span = r->span };

	forget(r->body);
	l.new = op_new(&top, OP_REPEAT, 0, NULL, 0);
	SET(l.new, dim, r->at.dim);
	SET(l.new, ncarry, 0);
	SET(l.new, nwith, 0);
	l.new->body = block_new(m, l.new);
	l.in = top;
	l.in.block = l.new->body;
	l.in.before = NULL;
	if (!build(&l))
		return false;
	strip(r);
	if (!l.new->nout)
		op_unlink(l.new);
	return true;
}

bool split_late(struct module *m, struct diag *d)
{
	for (struct op *op = m->top.first, *next; op; op = next) {
		next = op->next;
		if (op->code == OP_REPEAT && op->phase == FORWARD && needs_split(op) && !split(m, op, d))
			return false;
	}
	return true;
}
