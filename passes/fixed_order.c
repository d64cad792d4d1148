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
 *
 * What an op that is not linear reads is not pending: such ones (abs, max) stand where a sum must be whole.
 *
 * What iterations of a repeat contribute to one param that all of them read is still added up in loops, stage by
 * stage: that alone depends on the cut.
 *
 * Runs within `optimizer`, form LOGICAL. */
#include "passes/fixed_order.h"

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

/* x, which has no dims, as term `no`: zeros beside it. */
static struct value *among(struct builder *b, struct value *x, dimid terms, struct value *no)
{
	return b_where(b, b_map2(b, OP_EQ, no, b_index(b, terms)), x, b_const(b, F32, 0));
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
	struct op *iter = op_new(&in, OP_ITER, 0, NULL, 1);
	SET(iter, dim, layers);
	struct value *at = op_type(&in, iter, 0, INT, 0, NULL);
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
