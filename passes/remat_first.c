/* passes/remat_first.c - the first iterations of a stage keep less than the others, in one loop.
 *
 * What the others keep beside has rows for them alone (PART_KEPT): before its own iteration writes it the first
 * row takes what the first iterations make, and in backward, which comes to them last, when its own iteration has
 * read it, what they make again. So the reverse body begins with a repeat over a PART_FIRST: given the rows, it
 * runs once in these iterations and makes what they lack in the place of the row, else it leaves the row as it
 * is. Where other loops read the rows too there is a row more, which belongs to nobody else. */
#include "passes/remat.h"

int64_t first_apart(const struct pair *p, int64_t n)
{
	dimid kept = p->fwd ? kept_part(p->m, p->fwd->at.dim) : NODIM;

	if (!n || p->apart || !p->fwd || p->fwd->home != &p->m->top || dim_size(p->m, p->fwd->at.dim) <= n)
		return 0;
	return kept == NODIM || p->m->dims.at[kept].from == n - p->shared ? n : 0;
}

bool is_gathered_param(const struct node *n)
{
	return n->v->kind == K_PARAM && n->v->def && opinfo[n->v->def->code].class == C_COMM;
}

void keep_rest(struct pair *p)
{
	for (uint32_t i = 0; i < p->nodes.n; i++) {
		struct node *n = p->nodes.at[i];

		if (n->keep || n->source || !n->read || !n->v->def || opinfo[n->v->def->code].class == C_LEAF || is_gathered_param(n) ||
		    !can_stack(p, n->v))
			continue;
		n->keep = n->rest = true;
	}
}

struct first {
	struct pair *p;
	struct op *op; /* the repeat over the first iterations */
};

static struct value *arg_of(struct first *x, struct value *outside)
{
	struct module *m = x->p->m;
	struct builder b = { .m = m, .block = x->op->body };
	struct value *arg = block_arg(&b, x->op->body, outside->dt, outside->nd, outside->d);

	arg->sh = outside->sh;
	arg->placed = outside->placed;
	arg->kind = outside->kind;
	arg->span = outside->span;
	arg->home = x->op->body;
	op_add_in(m, x->op, outside);
	return arg;
}

static struct value *given(struct first *x, struct value *outside)
{
	for (uint32_t i = (uint32_t)x->op->at.ncarry; i < x->op->nin; i++)
		if (x->op->in[i] == outside)
			return x->op->body->args.at[i];
	x->op->at.nwith++;
	return arg_of(x, outside);
}

static bool is_outside(const struct node *n)
{
	return !n->v->def || n->source || (n->keep && !n->rest) || is_gathered_param(n);
}

static struct value *inner(struct first *x, struct value *v);

static void copy_inner(struct first *x, struct op *op)
{
	struct module *m = x->p->m;
	struct builder b = { m, x->op->body, NULL, BACKWARD, op->span, op, op->at.where };
	struct value **in = NEWN(m->mem, struct value *, op->nin + 1);
	void **aux = NEWN(m->mem, void *, op->nout + 1);

	for (uint32_t i = 0; i < op->nin; i++)
		in[i] = inner(x, op->in[i]);
	for (uint32_t i = 0; i < op->nout; i++)
		aux[i] = op->out[i]->aux;
	struct op *copy = op_clone(&b, op, false);

	mark_again(m, copy, op);
	for (uint32_t i = 0; i < op->nin; i++)
		copy->in[i] = in[i];
	for (uint32_t i = 0; i < op->nout; i++) {
		struct node *n = op->out[i]->aux = aux[i];

		if (n && !n->inner)
			n->inner = copy->out[i];
	}
}

static struct value *inner(struct first *x, struct value *v)
{
	struct node *n = node_of(x->p, v);

	if (!n->inner && is_outside(n))
		n->inner = given(x, image(x->p, v, x->op));
	else if (!n->inner)
		copy_inner(x, v->def);
	return n->inner;
}

/* The rows of the others: what the repeat is given, and what it makes of it. */
static void carry_rows(struct first *x, dimid rows)
{
	struct pair *p = x->p;

	for (uint32_t i = 0; i < p->nodes.n; i++) {
		struct node *n = p->nodes.at[i];

		if (!n->rest)
			continue;
		arg_of(x, add_over(p, stack_over(p, n->v, rows), n->v));
		n->image = op_add_out(p->m, x->op, n->v);
		n->image->sh = n->v->sh;
		n->image->placed = n->v->placed;
		n->image->kind = n->v->kind;
		n->image->name = NULL;
		n->image->aux = NULL;
		x->op->at.ncarry++;
	}
}

void make_first(struct pair *p)
{
	struct module *m = p->m;
	dimid loop = p->fwd->at.dim, rows = kept_part(m, loop);
	struct builder b = { m, p->b, p->b->first, BACKWARD, p->rev->span, NULL, p->rev->at.where };
	struct first x = { p, op_new(&b, OP_REPEAT, 0, NULL, 0) };

	if (rows == NODIM)
		rows = part_dim(m, PART_KEPT, loop, p->first - p->shared);
	SET(x.op, dim, part_dim(m, PART_FIRST, loop, p->first));
	SET(x.op, ncarry, 0);
	SET(x.op, nwith, 0);
	SET(x.op, again, 1);
	x.op->body = block_new(m, x.op);
	carry_rows(&x, rows);
	for (uint32_t i = 0; i < p->nodes.n; i++)
		if (p->nodes.at[i]->rest)
			PUSH(m->mem, &x.op->body->yields, inner(&x, p->nodes.at[i]->v));
	if (!x.op->nout)
		op_unlink(x.op);
}
