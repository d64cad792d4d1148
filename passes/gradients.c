/* passes/gradients.c - the gradient of each op, as ops. Where an output says as much as an input
 * (exp, tanh, relu, ...) the output is read. */
#include "passes/gradients.h"

enum { MOST_ACCUM = 64 };

struct cot *cot_of(struct grad *g, struct value *v)
{
	if (!v->aux)
		v->aux = NEW(g->m->mem, struct cot);
	return v->aux;
}

enum dtype cot_type(struct grad *g, struct value *v)
{
	return cot_of(g, v)->param ? F32 : v->dt;
}

/* -- ops on cotangents -- */

static struct value *konst(struct grad *g, double x)
{
	return b_const(&g->b, F32, x);
}

/* A number without dims never widens the type of a tensor. */
static enum dtype joined_type(const struct value *x, const struct value *y, enum dtype dt)
{
	if (!is_float(dt))
		return dt;
	if (!x->nd && y->nd && is_float(y->dt))
		return y->dt;
	if (!y->nd && x->nd && is_float(x->dt))
		return x->dt;
	return dt;
}

static struct value *map2(struct grad *g, enum opcode code, struct value *x, struct value *y)
{
	struct value *v = b_map2(&g->b, code, x, y);

	v->dt = joined_type(x, y, v->dt);
	return v;
}

static struct value *map1(struct grad *g, enum opcode code, struct value *x)
{
	return b_map1(&g->b, code, x);
}

static struct value *mul(struct grad *g, struct value *x, struct value *y)
{
	return map2(g, OP_MUL, x, y);
}

static struct value *where(struct grad *g, struct value *c, struct value *x, struct value *y)
{
	struct value *v = b_where(&g->b, c, x, y);

	v->dt = joined_type(x, y, v->dt);
	return v;
}

static struct value *accum(struct grad *g, uint32_t n, struct value *const *parts, enum dtype dt)
{
	dimid d[MAX_DIMS];
	int nd = 0;
	struct op *op = op_new(&g->b, OP_ACCUM, n, parts, 1);

	for (uint32_t i = 0; i < n; i++)
		nd = union_dims(nd, d, parts[i]);
	return op_type(&g->b, op, 0, dt, nd, d);
}

void cot_give(struct grad *g, struct value *v, struct value *dv)
{
	struct cot *c = cot_of(g, v);

	if (!c->varied)
		return;
	if (!is_float(dv->dt))
		die("a cotangent of type %s", dtype_name[dv->dt]);
	dv = b_cast(&g->b, dv, cot_type(g, v));
	PUSH(g->m->mem, &c->parts, dv);
}

struct value *cot_take(struct grad *g, struct value *v)
{
	struct cot *c = cot_of(g, v);
	struct op *of = g->b.of;
	struct span span = g->b.span;
	uint32_t n = c->parts.n;

	c->parts.n = 0;
	if (n <= 1)
		return n ? c->parts.at[0] : NULL;
	g->b.of = v->def;
	g->b.span = v->span;
	struct value *sum = accum(g, n < MOST_ACCUM ? n : MOST_ACCUM, c->parts.at, cot_type(g, v));
	for (uint32_t i = MOST_ACCUM; i < n; i += MOST_ACCUM - 1) {
		struct value *in[MOST_ACCUM] = { sum };
		uint32_t k = n - i < MOST_ACCUM - 1 ? n - i : MOST_ACCUM - 1;

		memcpy(in + 1, c->parts.at + i, k * sizeof *in);
		sum = accum(g, k + 1, in, cot_type(g, v));
	}
	g->b.of = of;
	g->b.span = span;
	return sum;
}

static struct value *ones(struct grad *g, enum dtype dt, int nd, const dimid *d)
{
	struct op *op = op_new(&g->b, OP_CONST, 0, NULL, 1);

	SET(op, value, 1.0);
	return op_type(&g->b, op, 0, dt, nd, d);
}

struct value *cot_zeros(struct grad *g, struct value *v)
{
	struct op *op = op_new(&g->b, OP_CONST, 0, NULL, 1);

	SET(op, value, 0.0);
	return op_type(&g->b, op, 0, cot_type(g, v), v->nd, v->d);
}

static bool same_order(const struct value *a, const struct value *b)
{
	return a->nd == b->nd && (!a->nd || !memcmp(a->d, b->d, a->nd * sizeof *a->d));
}

struct value *cot_widen(struct grad *g, struct value *dv, struct value *v, bool order)
{
	enum dtype dt = order ? cot_type(g, v) : dv->dt;
	dimid lacks[MAX_DIMS];
	int n = 0;

	for (int i = 0; i < v->nd; i++)
		if (!has_dim(dv, v->d[i]))
			lacks[n++] = v->d[i];
	if (!n && (!order || (same_order(dv, v) && dv->dt == dt)))
		return dv;
	if (!n) {
		struct op *op = op_new(&g->b, OP_ACCUM, 1, &dv, 1);

		return op_type(&g->b, op, 0, dt, v->nd, v->d);
	}
	struct value *in[2] = { dv, ones(g, dt, n, lacks) };
	struct op *op = op_new(&g->b, OP_MUL, 2, in, 1);
	return op_type(&g->b, op, 0, dt, v->nd, v->d);
}

static struct value *sum_over(struct grad *g, struct value *x, int n, const dimid *over)
{
	return n ? b_reduce(&g->b, OP_SUM, x, n, over) : x;
}

/* t, whose dims are among those of result y, summed over the dims of y that v lacks. Along a dim
 * that t lacks it is the same number, size times; the batch is summed all the same, because how
 * much of it is at hand is not known here. */
static struct value *reduce_to(struct grad *g, struct value *t, const struct value *v,
			       const struct value *y)
{
	dimid over[MAX_DIMS];
	int n = 0;
	double times = 1;

	for (int i = 0; i < y->nd; i++) {
		dimid d = y->d[i];

		if (has_dim(v, d))
			continue;
		if (!has_dim(t, d) && d == g->m->batch)
			t = mul(g, t, ones(g, t->dt, 1, &d));
		if (has_dim(t, d))
			over[n++] = d;
		else
			times *= (double)dim_size(g->m, d);
	}
	if (n)
		t = sum_over(g, b_cast(&g->b, t, cot_type(g, (struct value *)v)), n, over);
	return times == 1 ? t : mul(g, t, konst(g, times));
}

static void give_sum(struct grad *g, struct value *v, struct value *t, const struct value *y)
{
	if (cot_of(g, v)->varied)
		cot_give(g, v, reduce_to(g, t, v, y));
}

/* The product of dy and x, summed over the dims that v lacks (x has them all): one kernel, the
 * product is nowhere stored. It can't be a matrix product, since dy has all dims of x. */
static struct value *product_to(struct grad *g, struct value *v, struct value *dy, struct value *x)
{
	dimid over[MAX_DIMS];
	int n = 0;
	bool shared = false;

	for (int i = 0; i < x->nd; i++)
		if (!has_dim(v, x->d[i])) {
			over[n++] = x->d[i];
			shared |= has_dim(dy, x->d[i]);
		}
	if (n && !shared && is_float(x->dt)) /* dy is the same all along */
		return mul(g, dy, sum_over(g, b_cast(&g->b, x, cot_type(g, v)), n, over));
	struct value *t = mul(g, dy, x);
	return n ? sum_over(g, b_cast(&g->b, t, cot_type(g, v)), n, over) : t;
}

static bool wanted(struct grad *g, const struct op *op, uint32_t i)
{
	return cot_of(g, op->in[i])->varied;
}

/* -- pointwise -- */

typedef void rule(struct grad *g, struct op *op, struct value *dy);

static void d_neg(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], map1(g, OP_NEG, dy));
}

static void d_cast(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], dy);
}

static void d_exp(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], mul(g, dy, op->out[0]));
}

static void d_log(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], map2(g, OP_DIV, dy, op->in[0]));
}

static void d_sqrt(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], map2(g, OP_DIV, mul(g, dy, konst(g, 0.5)), op->out[0]));
}

static void d_rsqrt(struct grad *g, struct op *op, struct value *dy)
{
	struct value *y = op->out[0];
	struct value *cube = mul(g, mul(g, y, y), y);

	cot_give(g, op->in[0], mul(g, mul(g, dy, konst(g, -0.5)), cube));
}

static void d_tanh(struct grad *g, struct op *op, struct value *dy)
{
	struct value *y = op->out[0];

	cot_give(g, op->in[0], mul(g, dy, map2(g, OP_SUB, konst(g, 1), mul(g, y, y))));
}

static void d_sigmoid(struct grad *g, struct op *op, struct value *dy)
{
	struct value *y = op->out[0];

	cot_give(g, op->in[0], mul(g, dy, mul(g, y, map2(g, OP_SUB, konst(g, 1), y))));
}

static void d_sin(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], mul(g, dy, map1(g, OP_COS, op->in[0])));
}

static void d_cos(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], map1(g, OP_NEG, mul(g, dy, map1(g, OP_SIN, op->in[0]))));
}

static void d_abs(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], mul(g, dy, map1(g, OP_SIGN, op->in[0])));
}

static void d_relu(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], mul(g, dy, map1(g, OP_DRELU, op->out[0])));
}

static void d_silu(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], mul(g, dy, map1(g, OP_DSILU, op->in[0])));
}

static const struct op *through_casts(const struct value *v)
{
	while (v->def && v->def->code == OP_CAST)
		v = v->def->in[0];
	return v->def;
}

/* A product with a bias, of x's size. */
static bool is_biased(struct grad *g, const struct value *x)
{
	const struct op *sum = through_casts(x);
	const struct op *a = sum && sum->code == OP_ADD ? through_casts(sum->in[0]) : NULL;
	const struct op *b = sum && sum->code == OP_ADD ? through_casts(sum->in[1]) : NULL;
	bool first = a && a->code == OP_EINSUM, second = b && b->code == OP_EINSUM;

	return first != second && value_count(g->m, sum->in[!first]) == value_count(g->m, x) &&
	       value_count(g->m, sum->in[first]) < value_count(g->m, x);
}

/* What goes into a gelu (tanh) is a product with a bias: that is kept, in the fewest bits that it has, and not the product, so that one
 * leaf makes both it and the gelu (ir/epilogue.h). The bytes are the same. */
static void keep_biased(struct grad *g, struct value *x)
{
	if (!is_biased(g, x))
		return;
	if (x->def->code == OP_CAST && dtype_bytes(x->def->in[0]->dt) < dtype_bytes(x->dt))
		x = x->def->in[0];
	cot_of(g, x)->kept = true;
}

static void d_gelu(struct grad *g, struct op *op, struct value *dy)
{
	struct value *slope = map1(g, OP_DGELU, op->in[0]);

	if (HAS(op, form) && op->at.form == 1)
		keep_biased(g, op->in[0]);
	if (HAS(op, form))
		SET(slope->def, form, op->at.form);
	cot_give(g, op->in[0], mul(g, dy, slope));
}

static void d_add(struct grad *g, struct op *op, struct value *dy)
{
	for (uint32_t i = 0; i < op->nin; i++)
		give_sum(g, op->in[i], dy, op->out[0]);
}

static void d_sub(struct grad *g, struct op *op, struct value *dy)
{
	give_sum(g, op->in[0], dy, op->out[0]);
	if (wanted(g, op, 1))
		cot_give(g, op->in[1], map1(g, OP_NEG, reduce_to(g, dy, op->in[1], op->out[0])));
}

static void d_mul(struct grad *g, struct op *op, struct value *dy)
{
	for (uint32_t i = 0; i < 2; i++)
		if (wanted(g, op, i))
			cot_give(g, op->in[i], product_to(g, op->in[i], dy, op->in[1 - i]));
}

static void d_div(struct grad *g, struct op *op, struct value *dy)
{
	struct value *b = op->in[1];

	if (wanted(g, op, 0))
		give_sum(g, op->in[0], map2(g, OP_DIV, dy, b), op->out[0]);
	if (wanted(g, op, 1)) {
		struct value *t = product_to(g, b, dy, op->out[0]);

		cot_give(g, b, map1(g, OP_NEG, map2(g, OP_DIV, t, b)));
	}
}

static void d_mod(struct grad *g, struct op *op, struct value *dy)
{
	give_sum(g, op->in[0], dy, op->out[0]);
	if (wanted(g, op, 1)) {
		struct value *n = map2(g, OP_FLOORDIV, op->in[0], op->in[1]);

		give_sum(g, op->in[1], map1(g, OP_NEG, mul(g, dy, n)), op->out[0]);
	}
}

static void d_pow(struct grad *g, struct op *op, struct value *dy)
{
	struct value *a = op->in[0], *n = op->in[1], *y = op->out[0];

	if (wanted(g, op, 0)) {
		struct value *less = map2(g, OP_SUB, n, konst(g, 1));
		struct value *t = mul(g, mul(g, dy, n), map2(g, OP_POW, a, less));

		if (!n->def || n->def->code != OP_CONST || n->def->at.value == 0)
			t = where(g, map2(g, OP_EQ, n, konst(g, 0)), konst(g, 0), t);
		give_sum(g, a, t, y);
	}
	if (wanted(g, op, 1)) {
		struct value *t = mul(g, dy, mul(g, y, map1(g, OP_LOG, a)));

		give_sum(g, n, where(g, map2(g, OP_EQ, a, konst(g, 0)), konst(g, 0), t), y);
	}
}

/* min and max: equal operands get half each, as in PyTorch and JAX. */
static void d_extreme(struct grad *g, struct op *op, struct value *dy)
{
	enum opcode code = op->code == OP_MAX ? OP_GT : OP_LT;

	for (uint32_t i = 0; i < 2; i++) {
		struct value *me = op->in[i], *other = op->in[1 - i];

		if (!wanted(g, op, i))
			continue;
		struct value *half = where(g, map2(g, OP_EQ, me, other), konst(g, 0.5), konst(g, 0));
		struct value *share = where(g, map2(g, code, me, other), konst(g, 1), half);
		give_sum(g, me, mul(g, dy, share), op->out[0]);
	}
}

static void d_where(struct grad *g, struct op *op, struct value *dy)
{
	struct value *c = op->in[0];

	if (wanted(g, op, 1))
		give_sum(g, op->in[1], where(g, c, dy, konst(g, 0)), op->out[0]);
	if (wanted(g, op, 2))
		give_sum(g, op->in[2], where(g, c, konst(g, 0), dy), op->out[0]);
}

/* -- sums and contractions -- */

static void d_sum(struct grad *g, struct op *op, struct value *dy)
{
	cot_give(g, op->in[0], dy); /* the same number along what was summed */
}

static void d_rmax(struct grad *g, struct op *op, struct value *dy)
{
	struct value *x = op->in[0], *most = map2(g, OP_EQ, x, op->out[0]);
	dimid over[MAX_DIMS];
	int n = 0;

	cot_of(g, op->in[0])->kept = true;
	for (int i = 0; i < x->nd; i++)
		if (!has_dim(op->out[0], x->d[i]))
			over[n++] = x->d[i];
	struct value *share = map2(g, OP_DIV, dy, sum_over(g, most, n, over));
	cot_give(g, x, where(g, most, share, konst(g, 0)));
}

static void d_einsum(struct grad *g, struct op *op, struct value *dy)
{
	dy = cot_widen(g, dy, op->out[0], false);
	for (uint32_t i = 0; i < 2; i++) {
		struct value *v = op->in[i], *x = op->in[1 - i], *t = dy;
		dimid keep[MAX_DIMS];
		int n = 0;

		if (!wanted(g, op, i))
			continue;
		for (int k = 0; k < v->nd; k++)
			if (has_dim(dy, v->d[k]) || has_dim(x, v->d[k]))
				keep[n++] = v->d[k];
		if (t->dt != x->dt) {
			t = b_cast(&g->b, t, BF16);
			x = b_cast(&g->b, x, BF16);
		}
		cot_give(g, v, b_einsum(&g->b, i ? x : t, i ? t : x, cot_type(g, v), n, keep));
	}
}

/* -- indexed -- */

static void d_lookup(struct grad *g, struct op *op, struct value *dy)
{
	struct value *a = op->in[0], **in = NEWN(g->m->mem, struct value *, op->nin);

	memcpy(in, op->in, op->nin * sizeof *in);
	in[0] = b_cast(&g->b, cot_widen(g, dy, op->out[0], false), cot_type(g, a));
	struct op *s = op_new(&g->b, OP_SCATTER, op->nin, in, 1);
	SET(s, dims, op->at.dims);
	cot_give(g, a, op_type(&g->b, s, 0, cot_type(g, a), a->nd, a->d));
}

static bool listed(const struct dimlist *l, dimid d)
{
	for (int i = 0; i < l->n; i++)
		if (l->d[i] == d)
			return true;
	return false;
}

static void d_scatter(struct grad *g, struct op *op, struct value *dy)
{
	struct value *a = op->in[0], **in = NEWN(g->m->mem, struct value *, op->nin);
	dimid d[4 * MAX_DIMS], over[MAX_DIMS];
	int nd = 0, n = 0;

	memcpy(in, op->in, op->nin * sizeof *in);
	in[0] = dy = cot_widen(g, dy, op->out[0], false);
	for (uint32_t i = 1; i < op->nin; i++)
		nd = union_dims(nd, d, op->in[i]);
	for (int i = 0; i < dy->nd; i++) {
		bool there = listed(&op->at.dims, dy->d[i]);

		for (int k = 0; k < nd; k++)
			there |= d[k] == dy->d[i];
		if (!there)
			d[nd++] = dy->d[i];
	}
	struct op *l = op_new(&g->b, OP_LOOKUP, op->nin, in, 1);
	SET(l, dims, op->at.dims);
	struct value *t = op_type(&g->b, l, 0, dy->dt, nd, d);
	for (int i = 0; i < nd; i++)
		if (!has_dim(a, d[i]))
			over[n++] = d[i];
	cot_give(g, a, sum_over(g, t, n, over));
}

/* -- views -- */

static void d_rename(struct grad *g, struct op *op, struct value *dy)
{
	struct dimlist from = { 0 }, to = { 0 };
	dimid d[MAX_DIMS];

	memcpy(d, dy->d, sizeof d);
	for (int k = 0; k < op->at.dims.n; k++) {
		int pos = dim_pos(dy, op->at.tos.d[k]);

		if (pos < 0)
			continue;
		from.d[from.n++] = op->at.tos.d[k];
		to.d[to.n++] = d[pos] = op->at.dims.d[k];
	}
	if (from.n) {
		struct op *r = op_new(&g->b, OP_RENAME, 1, &dy, 1);

		SET(r, dims, from);
		SET(r, tos, to);
		dy = op_type(&g->b, r, 0, dy->dt, dy->nd, d);
	}
	cot_give(g, op->in[0], dy);
}

/* The transpose of a view, in the dims of its operand. */
static void give_view(struct grad *g, struct op *op, struct value *dy, enum opcode code,
		      struct attrs at, uint32_t has)
{
	struct value *x = op->in[0];
	struct op *t = op_new(&g->b, code, 1, &dy, 1);

	t->at = at;
	t->has = has;
	cot_give(g, x, op_type(&g->b, t, 0, dy->dt, x->nd, x->d));
}

static void d_split(struct grad *g, struct op *op, struct value *dy)
{
	give_view(g, op, cot_widen(g, dy, op->out[0], false), OP_MERGE,
		  (struct attrs){ .dims = op->at.tos, .to = op->at.dim },
		  1u << A_dims | 1u << A_to);
}

static void d_merge(struct grad *g, struct op *op, struct value *dy)
{
	give_view(g, op, cot_widen(g, dy, op->out[0], false), OP_SPLIT,
		  (struct attrs){ .tos = op->at.dims, .dim = op->at.to },
		  1u << A_tos | 1u << A_dim);
}

static void d_slice(struct grad *g, struct op *op, struct value *dy)
{
	struct attrs at = op->at;

	at.dim = op->at.to;
	at.to = op->at.dim;
	give_view(g, op, cot_widen(g, dy, op->out[0], false),
		  op->code == OP_SLICE ? OP_PAD : OP_SLICE, at, op->has);
}

static void d_roll(struct grad *g, struct op *op, struct value *dy)
{
	struct attrs at = op->at;
	int64_t size = dim_size(g->m, at.dim);

	at.shift = size ? ((-at.shift) % size + size) % size : 0;
	give_view(g, op, cot_widen(g, dy, op->out[0], false), OP_ROLL, at, op->has);
}

static void d_attention(struct grad *g, struct op *op, struct value *dy)
{
	struct value *in[16];
	uint32_t n = 0, first = attn_rest(op);
	int bias = attn_extra(op, X_BIAS);
	bool dbias = bias >= 0 && wanted(g, op, (uint32_t)bias);

	for (; n < first; n++)
		in[n] = op->in[n];
	in[n++] = op->out[0];
	in[n++] = op->out[1];
	in[n++] = b_cast(&g->b, cot_widen(g, dy, op->out[0], true), op->out[0]->dt);
	for (uint32_t i = first; i < op->nin; i++)
		in[n++] = op->in[i];
	struct op *t = op_new(&g->b, OP_ATTENTION_GRAD, n, in, dbias ? 4 : 3);
	t->at = op->at;
	t->has = op->has;
	for (uint32_t i = 0; i < t->nout; i++) {
		struct value *x = op->in[i < 3 ? i : (uint32_t)bias];

		op_type(&g->b, t, i, i < 3 ? x->dt : F32, x->nd, x->d); /* as wide as q, k and v */
	}
	for (uint32_t i = 0; i < t->nout; i++) {
		struct value *x = op->in[i < 3 ? i : (uint32_t)bias];

		cot_give(g, x, b_cast(&g->b, t->out[i], i < 3 ? cot_type(g, x) : F32));
	}
}

static rule *const rules[NOP] = {
	[OP_NEG] = d_neg, [OP_CAST] = d_cast, [OP_EXP] = d_exp, [OP_LOG] = d_log,
	[OP_SQRT] = d_sqrt, [OP_RSQRT] = d_rsqrt, [OP_TANH] = d_tanh, [OP_SIGMOID] = d_sigmoid,
	[OP_SIN] = d_sin, [OP_COS] = d_cos, [OP_ABS] = d_abs, [OP_RELU] = d_relu,
	[OP_SILU] = d_silu, [OP_GELU] = d_gelu, [OP_ADD] = d_add, [OP_SUB] = d_sub,
	[OP_MUL] = d_mul, [OP_DIV] = d_div, [OP_MOD] = d_mod, [OP_POW] = d_pow,
	[OP_MIN] = d_extreme, [OP_MAX] = d_extreme, [OP_WHERE] = d_where, [OP_ACCUM] = d_add,
	[OP_SUM] = d_sum, [OP_RMAX] = d_rmax, [OP_EINSUM] = d_einsum, [OP_LOOKUP] = d_lookup,
	[OP_SCATTER] = d_scatter, [OP_RENAME] = d_rename, [OP_SPLIT] = d_split,
	[OP_MERGE] = d_merge, [OP_SLICE] = d_slice, [OP_PAD] = d_slice, [OP_ROLL] = d_roll,
	[OP_ATTENTION] = d_attention,
};

bool gradient_flows(const struct op *op, uint32_t i)
{
	if (!rules[op->code] || !is_float(op->in[i]->dt) || !is_float(op->out[0]->dt))
		return false;
	switch (op->code) {
	case OP_LOOKUP:
	case OP_SCATTER:
		return i == 0;
	case OP_WHERE:
		return i > 0;
	case OP_ATTENTION:
		return i < 3 || (int)i == attn_extra(op, X_BIAS);
	default:
		return true;
	}
}

void op_gradient(struct grad *g, struct op *op, struct value *dy)
{
	if (rules[op->code])
		rules[op->code](g, op, dy);
}
