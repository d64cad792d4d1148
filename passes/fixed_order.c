/* passes/fixed_order.c - with `deterministic`: sums in an order that does not depend on the stages.
 *
 * A sum over several layers, or over several uses of a param, is made of each stage's own sum: other stages,
 * another order, other bits. Here no such sum is left to them:
 *
 *   norm        the squares of each layer of each param are one term. The terms lie side by side, each alone where
 *               it is not zero, so that to bring them together adds zeros, which is exact. Then every stage adds
 *               up the whole row, from the first to the last
 *   gradient    of a param with several uses: what each contributes is summed over microbatches and ranks by
 *               itself, and added to the others two by two
 *   sum         of what iterations of a repeat add to it once a step, a penalty on params: each is one term, as above
 *
 * What an op that is not linear reads is not pending: such ones (abs, max) stand where a sum must be whole.
 *
 * What iterations of a repeat contribute to one param that all of them read is carried on from each to the next, over the
 * cuts too (stages.c): one sum a microbatch, from the last iteration to the first.
 *
 * Runs within `optimizer`, and the last of the three within `microbatch`, form LOGICAL. */
#include "passes/fixed_order.h"

#include "passes/kinds.h"

enum { MOST_TERMS = 64 };

/* -- the norm -- */

/* The dim of v that a repeat at the top runs over; NODIM: none. */
static dimid layers_of(const struct module *m, const struct value *v)
{
	for (const struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_REPEAT && has_dim(v, op->at.dim))
			return op->at.dim;
	return NODIM;
}

static int64_t terms_of(const struct module *m, const struct value *g)
{
	dimid d = layers_of(m, g);

	return d == NODIM ? 1 : dim_size(m, d);
}

/* The squares of g, summed but along the layers. */
static struct value *squares(struct builder *b, struct value *g)
{
	dimid own[MAX_DIMS], layers = layers_of(b->m, g);
	int n = 0;

	for (int i = 0; i < g->nd; i++)
		if (g->d[i] != layers)
			own[n++] = g->d[i];
	struct value *x = b_map2(b, OP_MUL, g, g);
	return n ? b_reduce(b, OP_SUM, x, n, own) : x;
}

/* x as term `no`: zeros beside it. */
static struct value *among(struct builder *b, struct value *x, dimid terms, struct value *no)
{
	return b_where(b, b_map2(b, OP_EQ, no, b_index(b, terms)), x, b_const(b, x->dt, 0));
}

static struct value *iteration(struct builder *b, dimid loop)
{
	struct op *op = op_new(b, OP_ITER, 0, NULL, 1);

	SET(op, dim, loop);
	return op_type(b, op, 0, INT, 0, NULL);
}

static dimid new_dim(struct module *m, int64_t size, struct span at)
{
	const char *name = "terms";

	while (find_dim(m, name) != NODIM)
		name = arena_printf(m->mem, "%s'", name);
	return module_dim(m, name, size, at);
}

static struct value *together(struct builder *b, struct value **in, uint32_t n)
{
	while (n > 1) {
		uint32_t k = n < MOST_TERMS ? n : MOST_TERMS;
		struct op *op = op_new(b, OP_ACCUM, k, in, 1);

		in[0] = op_type(b, op, 0, F32, in[0]->nd, in[0]->d);
		memmove(in + 1, in + k, (n - k) * sizeof *in);
		n -= k - 1;
	}
	return in[0];
}

struct terms {
	dimid dim;             /* of all terms */
	uint32_t n;
	struct value **square; /* of each param, with or without layers */
	int64_t *first;        /* its first term */
};

static struct value *zeros(struct builder *b, dimid d)
{
	struct value *v = b_const(b, F32, 0);

	v->d[v->nd++] = d;
	return v;
}

static struct value *new_arg(struct builder *in, struct op *loop, struct value *from, int nd, const dimid *d)
{
	op_add_in(in->m, loop, from);
	return block_arg(in, loop->body, F32, nd, d);
}

/* The terms of all params with these layers, put in their places layer by layer: a row of all terms. */
static struct value *layer_terms(struct builder *b, const struct terms *t, dimid layers)
{
	struct op *loop = op_new(b, OP_REPEAT, 0, NULL, 0);
	struct builder in = *b;
	struct value **row = NEWN(b->m->mem, struct value *, t->n + 1);
	uint32_t n = 0;

	SET(loop, dim, layers);
	SET(loop, ncarry, 1);
	SET(loop, nwith, 0);
	loop->body = in.block = block_new(b->m, loop);
	in.before = NULL;
	struct builder before = *b;
	before.before = loop;
	struct value *sum = new_arg(&in, loop, zeros(&before, t->dim), 1, &t->dim);
	struct value *at = iteration(&in, layers);
	for (uint32_t i = 0; i < t->n; i++) {
		if (!has_dim(t->square[i], layers))
			continue;
		struct value *x = new_arg(&in, loop, t->square[i], 0, NULL);

		row[n++] = among(&in, x, t->dim, b_map2(&in, OP_ADD, at, b_const(&in, INT, (double)t->first[i])));
	}
	sum = b_map2(&in, OP_ADD, sum, together(&in, row, n));
	PUSH(b->m->mem, &loop->body->yields, sum);
	return op_add_out(b->m, loop, sum);
}

/* One loop for each repeat that has params. */
static struct value *all_terms(struct builder *b, const struct terms *t)
{
	struct value **row = NEWN(b->m->mem, struct value *, 2 * t->n + 1);
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n; i++) {
		dimid d = layers_of(b->m, t->square[i]);
		bool done = false;

		for (uint32_t k = 0; k < i && d != NODIM; k++)
			done |= has_dim(t->square[k], d);
		if (d == NODIM)
			row[n++] = among(b, t->square[i], t->dim, b_const(b, INT, (double)t->first[i]));
		else if (!done)
			row[n++] = layer_terms(b, t, d);
	}
	return together(b, row, n);
}

struct value *sum_of_squares(struct builder *b, struct value *const *g, uint32_t n)
{
	struct arena *mem = b->m->mem;
	struct terms t = { .n = n, .square = NEWN(mem, struct value *, n + 1), .first = NEWN(mem, int64_t, n + 1) };
	int64_t all = 0;

	for (uint32_t i = 0; i < n; i++) {
		t.first[i] = all;
		t.square[i] = squares(b, g[i]);
		all += terms_of(b->m, g[i]);
	}
	if (!all)
		return b_const(b, F32, 0);
	t.dim = new_dim(b->m, all, b->span);
	return b_reduce(b, OP_SUM, b_map1(b, OP_ABS, all_terms(b, &t)), 1, &t.dim); /* none is below zero */
}

/* -- a gradient -- */

/* The same, where nothing of it is pending any more. */
static struct value *whole(struct builder *b, struct value *x)
{
	return b_map2(b, OP_MAX, x, x);
}

struct value *sum_of_uses(struct builder *b, struct value *g)
{
	struct op *old = g->def;

	if (!old || old->code != OP_ACCUM || old->nin < 2 || old->phase != BACKWARD)
		return g;
	struct value *v = old->in[0];
	for (uint32_t i = 1; i < old->nin; i++) { /* two can be added in one way only */
		struct op *sum = op_new(b, OP_ACCUM, 2, (struct value *[]){ whole(b, v), whole(b, old->in[i]) }, 1);
		dimid d[MAX_DIMS];
		int nd = 0;

		for (int k = 0; k < g->nd; k++)
			if (has_dim(v, g->d[k]) || has_dim(old->in[i], g->d[k]))
				d[nd++] = g->d[k];
		sum->span = old->span;
		v = op_type(b, sum, 0, g->dt, nd, d);
	}
	v->span = g->span;
	v->name = g->name;
	g->name = NULL;
	return v;
}

/* -- what iterations add up -- */

static struct value *zeros_like(struct builder *b, const struct value *v)
{
	struct value *zero = b_const(b, v->dt, 0);

	memcpy(zero->d, v->d, sizeof zero->d);
	zero->nd = v->nd;
	return zero;
}

/* What has been added up so far is not what the user calls so. */
static void forget_names(const struct block *body, struct value *v)
{
	const struct op *op;

	for (v->name = NULL; (op = added_in(body, v)); v->name = NULL)
		v = op->out[0];
}

static void add_dim(struct value *v, dimid d)
{
	v->d[v->nd++] = d;
}

/* Carried value i becomes a row of what each iteration adds; it is added up behind the repeat. */
static void carry_terms(struct module *m, struct op *loop, uint32_t i)
{
	struct block *body = loop->body;
	struct value *init = loop->in[i], *row = loop->out[i], *arg = body->args.at[i];
	struct builder in = { m, body, body->first, loop->phase, loop->span, NULL, 0 };
	struct builder out = { m, loop->home, loop, loop->phase, loop->span, NULL, 0 };
	dimid terms = new_dim(m, dim_size(m, loop->at.dim), loop->span);

	forget_names(body, arg);
	replace_uses(body, arg, zeros_like(&in, arg));
	in.before = NULL;
	add_dim(arg, terms);
	struct value *term = among(&in, body->yields.at[i], terms, iteration(&in, loop->at.dim));
	body->yields.at[i] = b_map2(&in, OP_ADD, arg, term);
	loop->in[i] = zeros_like(&out, arg);
	out.before = loop->next;
	add_dim(row, terms);
	struct value *all = whole(&out, row), *sum = b_map2(&out, OP_ADD, init, b_reduce(&out, OP_SUM, all, 1, &terms));
	replace_uses(loop->home, row, sum);
	all->def->in[0] = all->def->in[1] = row;
	sum->name = row->name;
	sum->span = row->span;
	row->name = NULL;
}

void order_sums(struct module *m)
{
	for (struct op *op = m->top.first; op; op = op->next)
		for (uint32_t i = 0; op->code == OP_REPEAT && op->phase == FORWARD && i < op->at.ncarry; i++) {
			const struct value *v = op->out[i];

			if (v->kind != K_INNER && v->kind != K_SUM && is_float(v->dt) && v->nd < MAX_DIMS && only_grows(op, i))
				carry_terms(m, op, i);
		}
}
