/* tests/fuzz/gen_ops.c - the steps: single ops and the patterns that models are made of. */
#include "tests/fuzz/gen_impl.h"

struct value *konst(struct scope *s, double x)
{
	return b_const(&s->b, F32, x);
}

struct value *scaled(struct scope *s, struct value *x, double by)
{
	return by == 1 ? x : b_map2(&s->b, OP_MUL, x, konst(s, by));
}

struct value *one_op(struct scope *s, enum opcode code, struct value *x)
{
	return b_map1(&s->b, code, x);
}

struct value *two_op(struct scope *s, enum opcode code, struct value *x, struct value *y)
{
	return b_map2(&s->b, code, x, y);
}

/* Elements, 1 if there are none: what sums are divided by. */
static double count_of(const struct gen *g, int nd, const dimid *d)
{
	double n = 1;

	for (int i = 0; i < nd; i++)
		n *= (double)dim_size(g->m, d[i]);
	return n > 0 ? n : 1;
}

static bool has_empty(const struct gen *g, int nd, const dimid *d)
{
	for (int i = 0; i < nd; i++)
		if (!dim_size(g->m, d[i]))
			return true;
	return false;
}

struct value *mean_over(struct gen *g, struct scope *s, struct value *x, int nd, const dimid *over)
{
	return scaled(s, b_reduce(&s->b, OP_SUM, x, nd, over), 1 / count_of(g, nd, over));
}

struct value *mean_all(struct gen *g, struct scope *s, struct value *x)
{
	return x->nd ? mean_over(g, s, x, x->nd, x->d) : x;
}

/* A random subset of the dims of x, without those that may not be summed. */
static int some_dims(struct gen *g, struct value *x, bool batch, dimid *over, int percent)
{
	int n = 0;

	for (int i = 0; i < x->nd; i++)
		if (chance(g, percent) && (batch || x->d[i] != g->batch))
			over[n++] = x->d[i];
	return n;
}

static int dims_of_two(const struct value *x, const struct value *y, dimid *d)
{
	return union_dims(union_dims(0, d, x), d, y);
}

static bool two_fit(struct gen *g, const struct value *x, const struct value *y)
{
	dimid d[2 * MAX_DIMS];

	return fits(g, dims_of_two(x, y, d), d);
}

static struct value *unary(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);
	enum opcode code;

	if (!x)
		return NULL;
	switch (roll(g, 12)) {
	case 0: code = OP_TANH; break;
	case 1: code = OP_SIGMOID; break;
	case 2: code = OP_SIN; break;
	case 3: code = OP_COS; break;
	case 4: code = OP_SILU; break;
	case 5: code = OP_NEG; break;
	case 6: return one_op(s, OP_EXP, scaled(s, one_op(s, OP_TANH, x), 0.7));
	case 7: return one_op(s, OP_LOG, two_op(s, OP_ADD, one_op(s, OP_SIGMOID, x), konst(s, 0.5)));
	case 8: return one_op(s, OP_SQRT, two_op(s, OP_ADD, two_op(s, OP_MUL, x, x), konst(s, 0.3)));
	case 9: return one_op(s, OP_RSQRT, two_op(s, OP_ADD, two_op(s, OP_MUL, x, x), konst(s, 0.4)));
	case 10: return scaled(s, x, 0.9);
	default: {
		struct value *y = one_op(s, OP_GELU, x);

		SET(y->def, form, (int64_t)roll(g, 3));
		return y;
	}
	}
	return one_op(s, code, x);
}

/* Kinks: at values that no exact result takes. */
static struct value *kinked(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);

	if (!x)
		return NULL;
	x = two_op(s, OP_ADD, one_op(s, OP_SIN, x), konst(s, 0.0123457));
	switch (roll(g, 4)) {
	case 0: return one_op(s, OP_RELU, x);
	case 1: return one_op(s, OP_ABS, x);
	case 2: return two_op(s, OP_MAX, x, konst(s, 0.2711));
	default: return two_op(s, OP_MIN, x, konst(s, 0.31415));
	}
}

static struct value *binary(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *y = pick(g, s);

	if (!x || !y || !two_fit(g, x, y))
		return NULL;
	switch (roll(g, 6)) {
	case 0: return scaled(s, two_op(s, OP_MUL, x, y), 0.8);
	case 1: return two_op(s, OP_DIV, x, two_op(s, OP_ADD, two_op(s, OP_MUL, y, y), konst(s, 0.7)));
	case 2: return scaled(s, two_op(s, OP_SUB, x, y), 0.6);
	case 3: return one_op(s, OP_TANH, two_op(s, OP_ADD, x, y));
	case 4: return two_op(s, OP_POW, two_op(s, OP_ADD, one_op(s, OP_SIGMOID, x), konst(s, 0.5)), y);
	default: return scaled(s, two_op(s, OP_ADD, x, y), 0.7);
	}
}

/* With a param of dims that x has, or of others: a bias, a gain, a table of positions. */
static struct value *with_param(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *p;
	dimid d[MAX_DIMS];
	int n = 0;

	if (!x)
		return NULL;
	for (int i = 0; i < x->nd; i++)
		if (chance(g, 50) && x->d[i] != g->batch && x->d[i] != g->loop[0] && x->d[i] != g->loop[1])
			d[n++] = x->d[i];
	if (chance(g, 15)) {
		dimid new = g->feat[roll(g, FEATS)];

		if (!has_dim(x, new))
			d[n++] = new;
	}
	if (n > 1 && chance(g, 30)) {
		dimid t = d[0];

		d[0] = d[1];
		d[1] = t;
	}
	p = new_param(g, s, n, d);
	if (!two_fit(g, x, p))
		return NULL;
	if (chance(g, 50))
		return scaled(s, two_op(s, OP_ADD, x, p), 0.7);
	return chance(g, 50) ? two_op(s, OP_MUL, x, p) : two_op(s, OP_MUL, p, x);
}

static struct value *tokens_in(struct gen *g, struct scope *s, bool targets)
{
	for (struct op *op = g->m->top.first; op; op = op->next)
		if (op->code == OP_READ && streq(op->at.buf, targets ? "targets" : "tokens"))
			return into(g, s, op->out[0]);
	return NULL;
}

static struct value *condition(struct gen *g, struct scope *s, struct value *x)
{
	dimid d = x->nd ? x->d[roll(g, x->nd)] : g->seq;
	struct value *i = b_index(&s->b, d);

	switch (roll(g, 4)) {
	case 0: return two_op(s, OP_LT, i, b_const(&s->b, INT, 1 + roll(g, 4)));
	case 1: return two_op(s, OP_NE, tokens_in(g, s, true), b_const(&s->b, INT, -100));
	case 2: return two_op(s, OP_LE, b_index(&s->b, d), b_index(&s->b, g->seq));
	default: return two_op(s, OP_EQ, b_map2(&s->b, OP_MOD, i, b_const(&s->b, INT, 2)), b_const(&s->b, INT, 0));
	}
}

static struct value *chosen(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *y = pick(g, s), *c;
	dimid d[3 * MAX_DIMS];

	if (!x || !y)
		return NULL;
	c = condition(g, s, x);
	if (chance(g, 50))
		y = konst(s, chance(g, 50) ? 0 : 0.25);
	if (!fits(g, union_dims(dims_of_two(x, y, d), d, c), d))
		return NULL;
	return chance(g, 75) ? b_where(&s->b, c, x, y) : b_where(&s->b, c, y, x);
}

static struct value *reduced(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);
	dimid over[MAX_DIMS];

	if (!x)
		return NULL;
	int n = some_dims(g, x, may_sum_batch(g, x) && chance(g, 40), over, 40);
	if (!n)
		return NULL;
	if (chance(g, 75) || has_empty(g, n, over)) /* no largest of none: infinities spread */
		return scaled(s, b_reduce(&s->b, OP_SUM, x, n, over), 1 / sqrt(count_of(g, n, over)));
	/* no ties: what the positions add differs */
	struct value *z = x;
	for (int i = 0; i < n; i++)
		z = two_op(s, OP_ADD, z, scaled(s, b_cast(&s->b, b_index(&s->b, over[i]), F32), 0.137 + 0.31 * i));
	return b_reduce(&s->b, OP_RMAX, z, n, over);
}

/* x @ w */
static struct value *linear(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *w;
	dimid d[2 * MAX_DIMS], keep[2 * MAX_DIMS];
	int n = 0, gone = 0, nk = 0;

	if (!x)
		return NULL;
	for (int i = 0; i < x->nd; i++) {
		bool take = x->d[i] != g->batch && x->d[i] != g->loop[0] && x->d[i] != g->loop[1] && chance(g, 45);

		if (take)
			d[n++] = x->d[i];
		else
			keep[nk++] = x->d[i];
	}
	gone = n;
	if (n && chance(g, 15)) /* a dim of both that stays */
		keep[nk++] = d[--gone];
	for (int i = 0; i < 2; i++) {
		dimid new[] = { g->feat[roll(g, FEATS)], g->heads, g->head, g->vocab };
		dimid f = new[chance(g, 70) ? 0 : 1 + roll(g, 3)];
		bool has = has_dim(x, f);

		for (int k = 0; k < n; k++)
			has |= d[k] == f;
		if (!has && chance(g, i ? 30 : 85)) {
			d[n++] = f;
			keep[nk++] = f;
		}
	}
	if (!n || !nk || !fits(g, nk, keep) || !fits(g, n, d))
		return NULL;
	double by = 1 / sqrt(count_of(g, gone, d));
	if (chance(g, 40))
		for (int i = 0; i < n / 2; i++) {
			dimid t = d[i];

			d[i] = d[n - 1 - i];
			d[n - 1 - i] = t;
		}
	w = new_param(g, s, n, d);
	struct value *y = chance(g, 70) ? b_einsum(&s->b, x, w, F32, nk, keep) : b_einsum(&s->b, w, x, F32, nk, keep);
	return scaled(s, y, by);
}

/* x @ y: some dims of both contracted, some kept, some of one alone summed. */
static struct value *product(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *y = pick(g, s);
	dimid d[2 * MAX_DIMS], keep[2 * MAX_DIMS], gone[2 * MAX_DIMS];
	int n, nk = 0, ng = 0;

	if (!x || !y)
		return NULL;
	n = dims_of_two(x, y, d);
	bool batch = may_sum_batch(g, x) && may_sum_batch(g, y);
	for (int i = 0; i < n; i++) {
		bool both = has_dim(x, d[i]) && has_dim(y, d[i]);

		if ((d[i] == g->batch && !(batch && chance(g, 20))) || !chance(g, both ? 50 : 20))
			keep[nk++] = d[i];
		else
			gone[ng++] = d[i];
	}
	if (!nk || !fits(g, nk, keep) || count_of(g, n, d) > 20000)
		return NULL;
	if (nk > 1 && chance(g, 30)) {
		dimid t = keep[0];

		keep[0] = keep[nk - 1];
		keep[nk - 1] = t;
	}
	y = scaled(s, b_einsum(&s->b, x, y, F32, nk, keep), 1 / sqrt(count_of(g, ng, gone)));
	return s->up || chance(g, 50) ? one_op(s, OP_TANH, y) : y; /* or loops run away */
}

static struct value *looked_up(struct gen *g, struct scope *s)
{
	struct value *t = tokens_in(g, s, chance(g, 20)), *in[3];
	dimid d[4], out[6];
	int n = 0, no = 0, at;
	struct dimlist dims = { .n = 1, .d = { g->vocab } };

	if (chance(g, 30))
		d[n++] = g->feat[roll(g, FEATS)];
	at = n;
	d[n++] = g->vocab;
	if (chance(g, 25)) /* a dim that the indices have too */
		d[n++] = g->seq;
	dimid last = g->feat[roll(g, FEATS)];
	if (chance(g, 60) && at == 0)
		d[n++] = last;
	in[0] = new_param(g, s, n, d);
	in[1] = t;
	uint32_t nin = 2;
	if (n > at + 1 && d[n - 1] != g->seq && chance(g, 20)) { /* two indexed dims */
		dims.d[dims.n++] = d[--n];
		in[nin++] = b_map2(&s->b, OP_MOD, b_map2(&s->b, OP_ADD, t, b_index(&s->b, g->seq)),
				   b_const(&s->b, INT, 1 + (double)dim_size(g->m, d[n])));
	}
	out[no++] = g->batch;
	out[no++] = g->seq;
	for (int i = 0; i < n; i++)
		if (d[i] != g->vocab && d[i] != g->seq)
			out[no++] = d[i];
	if (!fits(g, no, out))
		return NULL;
	struct op *op = op_new(&s->b, OP_LOOKUP, nin, in, 1);
	SET(op, dims, dims);
	return op_type(&s->b, op, 0, F32, no, out);
}

/* From an activation, along a dim of it by a position. */
static struct value *gathered(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *in[2];
	dimid out[MAX_DIMS];
	int n = 0;

	if (!x)
		return NULL;
	dimid d = x->d[roll(g, x->nd)], to = chance(g, 60) ? g->ctx : d;
	if ((d == g->batch && (!may_sum_batch(g, x) || to == d)) || (to != d && has_dim(x, to)))
		return NULL;
	for (int i = 0; i < x->nd; i++)
		out[n++] = x->d[i] == d ? to : x->d[i];
	if (!fits(g, n, out))
		return NULL;
	in[0] = x;
	in[1] = b_map2(&s->b, OP_SUB, b_const(&s->b, INT, (double)dim_size(g->m, d) - 1 + roll(g, 2)), b_index(&s->b, to));
	struct op *op = op_new(&s->b, OP_LOOKUP, 2, in, 1);
	SET(op, dims, (struct dimlist){ 1, { d } });
	return op_type(&s->b, op, 0, x->dt, n, out);
}

/* A convolution: windows along seq, then a product with the taps' weights. */
static struct value *convolved(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *in[2];
	dimid taps = chance(g, 50) ? g->group : g->slot, to = chance(g, 50) ? g->ctx : g->seq, out[MAX_DIMS], w[2], keep[MAX_DIMS];
	int n = 0, nw = 0, nk = 0;

	if (!x || !has_dim(x, g->seq) || has_dim(x, taps) || (to != g->seq && has_dim(x, to)))
		return NULL;
	for (int i = 0; i < x->nd; i++)
		keep[nk++] = out[n++] = x->d[i] == g->seq ? to : x->d[i];
	out[n++] = taps;
	if (!fits(g, n, out))
		return NULL;
	struct value *at = b_map2(&s->b, OP_ADD, b_index(&s->b, to), b_index(&s->b, taps));
	in[0] = x;
	in[1] = b_map2(&s->b, OP_SUB, at, b_const(&s->b, INT, roll(g, 3)));
	struct op *op = op_new(&s->b, OP_LOOKUP, 2, in, 1);
	SET(op, dims, (struct dimlist){ 1, { g->seq } });
	struct value *windows = op_type(&s->b, op, 0, x->dt, n, out);
	w[nw++] = taps;
	if (chance(g, 50) && !has_dim(windows, g->twin[1]) && nk < 5)
		keep[nk++] = w[nw++] = g->twin[1];
	if (!fits(g, nk, keep))
		return NULL;
	struct value *y = b_einsum(&s->b, windows, new_param(g, s, nw, w), F32, nk, keep);
	return scaled(s, y, 1 / sqrt(count_of(g, 1, &taps)));
}

static struct value *softmax(struct scope *s, struct value *z, dimid d)
{
	struct value *m = one_op(s, OP_DETACH, b_reduce(&s->b, OP_RMAX, z, 1, &d));
	struct value *e = one_op(s, OP_EXP, two_op(s, OP_SUB, z, m));

	return two_op(s, OP_DIV, e, b_reduce(&s->b, OP_SUM, e, 1, &d));
}

static struct value *softmaxed(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);
	dimid d;

	if (!x)
		return NULL;
	d = x->d[roll(g, x->nd)];
	if (d == g->batch && !may_sum_batch(g, x))
		return NULL;
	return softmax(s, scaled(s, x, 1.7), d);
}

static struct value *normed(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *mu;
	dimid over[MAX_DIMS];

	if (!x)
		return NULL;
	int n = some_dims(g, x, may_sum_batch(g, x) && chance(g, 50), over, 60);
	if (!n)
		return NULL;
	if (chance(g, 60)) {
		mu = mean_over(g, s, x, n, over);
		x = two_op(s, OP_SUB, x, mu);
	}
	mu = mean_over(g, s, two_op(s, OP_MUL, x, x), n, over);
	x = two_op(s, OP_MUL, x, one_op(s, OP_RSQRT, two_op(s, OP_ADD, mu, konst(s, 0.1))));
	if (chance(g, 70))
		x = two_op(s, OP_MUL, x, new_param(g, s, over[0] == g->batch ? 0 : 1, over));
	return x;
}

static dimid twin_of(const struct gen *g, dimid d)
{
	for (int i = 0; i < FEATS; i++) {
		if (d == g->feat[i])
			return g->twin[i];
		if (d == g->twin[i])
			return g->feat[i];
	}
	return d == g->seq ? g->ctx : d == g->ctx ? g->seq : NODIM;
}

static struct value *renamed(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);
	dimid d[MAX_DIMS];
	struct dimlist from = { 0 }, to = { 0 };

	if (!x)
		return NULL;
	memcpy(d, x->d, sizeof d);
	for (int i = 0; i < x->nd; i++) {
		dimid t = twin_of(g, x->d[i]);

		if (t == NODIM || has_dim(x, t) || !chance(g, 60) || from.n == 2)
			continue;
		from.d[from.n++] = x->d[i];
		to.d[to.n++] = d[i] = t;
	}
	if (!from.n)
		return NULL;
	struct op *op = op_new(&s->b, OP_RENAME, 1, &x, 1);
	SET(op, dims, from);
	SET(op, tos, to);
	return op_type(&s->b, op, 0, x->dt, x->nd, d);
}

/* slice, pad, roll, split, merge */
static struct value *viewed(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);
	dimid d[MAX_DIMS];
	int n;

	if (!x)
		return NULL;
	int at = (int)roll(g, x->nd);
	dimid from = x->d[at], to = g->feat[roll(g, FEATS)];
	memcpy(d, x->d, sizeof d);
	n = x->nd;
	if (from == g->batch && !may_sum_batch(g, x))
		return NULL;
	if (chance(g, 35)) {
		struct op *op = op_new(&s->b, OP_ROLL, 1, &x, 1);

		SET(op, dim, from);
		SET(op, shift, (int64_t)roll(g, 5) - 2);
		return op_type(&s->b, op, 0, x->dt, n, d);
	}
	if (has_dim(x, g->feat[0]) && has_dim(x, g->feat[1]) && !has_dim(x, g->wide) && chance(g, 60)) {
		struct op *op = op_new(&s->b, OP_MERGE, 1, &x, 1);

		SET(op, dims, (struct dimlist){ 2, { g->feat[0], g->feat[1] } });
		SET(op, to, g->wide);
		n = 0;
		for (int i = 0; i < x->nd; i++)
			if (x->d[i] != g->feat[1])
				d[n++] = x->d[i] == g->feat[0] ? g->wide : x->d[i];
		return op_type(&s->b, op, 0, x->dt, n, d);
	}
	if (has_dim(x, g->wide) && !has_dim(x, g->feat[0]) && !has_dim(x, g->feat[1])) {
		struct op *op = op_new(&s->b, OP_SPLIT, 1, &x, 1);

		SET(op, dim, g->wide);
		SET(op, tos, (struct dimlist){ 2, { g->feat[0], g->feat[1] } });
		n = 0;
		for (int i = 0; i < x->nd; i++) {
			d[n++] = x->d[i] == g->wide ? g->feat[0] : x->d[i];
			if (x->d[i] == g->wide)
				d[n++] = g->feat[1];
		}
		return op_type(&s->b, op, 0, x->dt, n, d);
	}
	if (has_dim(x, to))
		return NULL;
	struct op *op = op_new(&s->b, chance(g, 50) ? OP_SLICE : OP_PAD, 1, &x, 1);
	SET(op, dim, from);
	SET(op, to, to);
	SET(op, start, (int64_t)roll(g, 4) - 1);
	SET(op, stride, 1 + (int64_t)roll(g, 2));
	d[at] = to;
	return op_type(&s->b, op, 0, x->dt, n, d);
}

static int iterations(struct gen *g, struct scope *s, struct scope *at, struct value **in)
{
	(void)g;
	if (!s->up)
		return 0;
	int n = iterations(g, s->up, at, in);
	if (s != at) { /* of an outer repeat: an iter inside */
		struct op *op = op_new(&at->b, OP_ITER, 0, NULL, 1);

		SET(op, dim, s->dim);
		in[n] = op_type(&at->b, op, 0, INT, 0, NULL);
		return n + 1;
	}
	struct op *op = op_new(&at->b, OP_ITER, 0, NULL, 1);
	SET(op, dim, s->dim);
	in[n] = op_type(&at->b, op, 0, INT, 0, NULL);
	return n + 1;
}

static struct value *training(struct scope *s)
{
	return op_type(&s->b, op_new(&s->b, OP_TRAINING, 0, NULL, 1), 0, BOOL, 0, NULL);
}

static struct value *dropped(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *in[4];
	struct dimlist dims = { 0 };
	double p = 0.3;

	if (!x)
		return NULL;
	for (int i = 0; i < x->nd; i++)
		if (chance(g, 75))
			dims.d[dims.n++] = x->d[i];
	int n = iterations(g, s, s, in);
	struct op *op = op_new(&s->b, OP_RNG, (uint32_t)n, in, 1);
	SET(op, key, arena_printf(g->mem, "k%d#0", g->nkey++));
	SET(op, dims, dims);
	struct value *u = op_type(&s->b, op, 0, F32, dims.n, dims.d);
	struct value *on = b_map2(&s->b, OP_OR, b_map2(&s->b, OP_GE, u, konst(s, p)),
				  b_map1(&s->b, OP_NOT, training(s)));
	struct value *by = b_where(&s->b, training(s), konst(s, 1 / (1 - p)), konst(s, 1));
	return b_where(&s->b, on, two_op(s, OP_MUL, x, by), konst(s, 0));
}

static struct value *detached(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);

	g->c->detached = true;
	return x ? one_op(s, OP_DETACH, x) : NULL;
}

/* A projection of x to the dims `to`, its others kept if they are batch or row. */
static struct value *project(struct gen *g, struct scope *s, struct value *x, dimid row, int nto, const dimid *to)
{
	dimid d[MAX_DIMS], keep[MAX_DIMS];
	int n = 0, nk = 0;

	for (int i = 0; i < x->nd; i++)
		if (x->d[i] == g->batch || x->d[i] == row)
			keep[nk++] = x->d[i];
		else
			d[n++] = x->d[i];
	double by = 1 / sqrt(count_of(g, n, d));
	for (int i = 0; i < nto; i++) {
		d[n++] = to[i];
		keep[nk++] = to[i];
	}
	return scaled(s, b_einsum(&s->b, x, new_param(g, s, n, d), F32, nk, keep), by);
}

static bool row_value(struct gen *g, struct value *x)
{
	int n = 0;

	if (!x || !has_dim(x, g->batch) || !has_dim(x, g->seq) || has_dim(x, g->ctx))
		return false;
	for (int i = 0; i < x->nd; i++) {
		if (x->d[i] == g->heads || x->d[i] == g->group || x->d[i] == g->head || x->d[i] == g->loop[0] ||
		    x->d[i] == g->loop[1])
			return false;
		n += x->d[i] != g->batch && x->d[i] != g->seq;
	}
	return n > 0;
}

static void maybe_name(struct gen *g, struct value *v, const char *what)
{
	if (!chance(g, 50) || !v->def || v->name)
		return;
	v->name = arena_printf(g->mem, "%s%d", what, g->nname++);
	PUSH(g->mem, &g->names, v->name);
}

/* A bias, a mask and a window of an attention; their bits. */
static int64_t extras(struct gen *g, struct scope *s, struct value **in, uint32_t *nin, bool causal)
{
	dimid d[] = { g->heads, g->seq, g->ctx };
	int64_t bits = 0;

	if (chance(g, 25)) {
		int skip = (int)roll(g, 3);

		in[(*nin)++] = new_param(g, s, 3 - skip, d + skip);
		bits |= X_BIAS;
	}
	if (chance(g, 25)) {
		in[(*nin)++] = chance(g, 50) ? b_map2(&s->b, OP_NE, tokens_in(g, s, false), b_const(&s->b, INT, 0)) :
			       b_map2(&s->b, OP_GE, b_index(&s->b, g->ctx), b_const(&s->b, INT, 1));
		bits |= X_MASK;
	}
	if (causal && chance(g, 25)) {
		in[(*nin)++] = b_const(&s->b, INT, 1 + roll(g, 4));
		bits |= X_WINDOW;
	}
	return bits;
}

static struct value *attention(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *y = chance(g, 80) ? x : pick(g, s), *in[12];
	dimid qd[3], kd[2] = { g->heads, g->head }, vd[2] = { g->heads, chance(g, 70) ? g->head : g->feat[0] };
	dimid row[MAX_DIMS], out[MAX_DIMS];
	int n = 0, nr = 0, no;
	bool grouped = chance(g, 50), shared = chance(g, 15);

	if (!row_value(g, x) || !row_value(g, y))
		return NULL;
	if (has_dim(y, vd[1]))
		vd[1] = g->head;
	qd[n++] = g->heads;
	if (grouped)
		qd[n++] = g->group;
	qd[n++] = g->head;
	struct value *keys = b_rename(&s->b, y, g->seq, g->ctx);
	in[0] = project(g, s, x, g->seq, n, qd);
	in[1] = project(g, s, keys, g->ctx, shared ? 1 : 2, shared ? kd + 1 : kd);
	in[2] = project(g, s, keys, g->ctx, shared ? 1 : 2, shared ? vd + 1 : vd);
	maybe_name(g, in[0], "q");
	maybe_name(g, in[1], "k");
	maybe_name(g, in[2], "v");
	for (int i = 0; i < in[0]->nd; i++)
		if (in[0]->d[i] != g->head)
			row[nr++] = in[0]->d[i];
	memcpy(out, row, sizeof row);
	no = nr;
	out[no++] = vd[1];
	double p = chance(g, 25) ? 0.25 : 0;
	bool causal = chance(g, 60);
	uint32_t nin = 3;
	int64_t extra = extras(g, s, in, &nin, causal);
	if (p > 0)
		nin += (uint32_t)iterations(g, s, s, in + nin);
	struct op *op = op_new(&s->b, OP_ATTENTION, nin, in, 2);
	if (extra)
		SET(op, extra, extra);
	SET(op, dim, g->head);
	SET(op, ctx, g->ctx);
	SET(op, scale, 1 / sqrt(count_of(g, 1, &g->head)));
	if (causal)
		SET(op, causal, g->seq);
	if (chance(g, 20))
		SET(op, cap, 3.0);
	if (p > 0) {
		struct dimlist dims = { .n = (uint8_t)(nr + 1) };

		memcpy(dims.d, row, (size_t)nr * sizeof *row);
		dims.d[nr] = g->ctx;
		SET(op, p, p);
		SET(op, key, arena_printf(g->mem, "k%d#0", g->nkey++));
		SET(op, dims, dims);
	}
	op_type(&s->b, op, 1, F32, nr, row);
	return op_type(&s->b, op, 0, F32, no, out);
}

/* Attention out of plain ops. */
static struct value *attention_by_hand(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *q, *k, *v, *z;
	dimid d[2] = { g->heads, g->head }, score[] = { g->batch, g->heads, g->seq, g->ctx };
	dimid o[] = { g->batch, g->seq, g->heads, g->head };

	if (!row_value(g, x) || !fits(g, 4, score))
		return NULL;
	struct value *keys = b_rename(&s->b, x, g->seq, g->ctx);
	q = project(g, s, x, g->seq, 2, d);
	k = project(g, s, keys, g->ctx, 2, d);
	v = project(g, s, keys, g->ctx, 2, d);
	maybe_name(g, k, "k");
	maybe_name(g, v, "v");
	z = b_einsum(&s->b, q, k, F32, 4, score);
	maybe_name(g, z, "z");
	if (chance(g, 50))
		z = b_where(&s->b, b_map2(&s->b, OP_LE, b_index(&s->b, g->ctx), b_index(&s->b, g->seq)), z,
			    konst(s, -INFINITY));
	z = softmax(s, z, g->ctx);
	return b_einsum(&s->b, z, v, F32, 4, o);
}

/* x along its last dim, turned by position: as rope, but for the halves. */
static struct value *roped(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);

	if (!x || !has_dim(x, g->seq))
		return NULL;
	dimid d = x->d[x->nd - 1];
	int64_t n = dim_size(g->m, d);
	if (d == g->batch || d == g->seq || n < 2)
		return NULL;
	struct value *j = b_map2(&s->b, OP_MOD, b_index(&s->b, d), b_const(&s->b, INT, (double)(n / 2)));
	struct value *angle = two_op(s, OP_MUL, b_cast(&s->b, b_index(&s->b, g->seq), F32),
				     b_map2(&s->b, OP_POW, konst(s, 10), scaled(s, b_cast(&s->b, j, F32), -2.0 / (double)n)));
	struct op *op = op_new(&s->b, OP_ROLL, 1, &x, 1);
	SET(op, dim, d);
	SET(op, shift, n / 2);
	struct value *turned = op_type(&s->b, op, 0, x->dt, x->nd, x->d);
	struct value *sign = b_where(&s->b, b_map2(&s->b, OP_LT, b_index(&s->b, d), b_const(&s->b, INT, (double)(n / 2))),
				     konst(s, -1), konst(s, 1));
	struct value *a = two_op(s, OP_MUL, x, one_op(s, OP_COS, angle));
	return two_op(s, OP_ADD, a, two_op(s, OP_MUL, two_op(s, OP_MUL, turned, sign), one_op(s, OP_SIN, angle)));
}

/* Two layers with a nonlinearity between: what tensor parallelism is for. */
static struct value *mlp(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *h, *y;
	dimid a = g->feat[roll(g, FEATS)], b = g->feat[roll(g, FEATS)];
	dimid up[2] = { a, b }, down[2] = { b, a }, keep[MAX_DIMS];
	int n = 0;

	if (!x || a == b || !has_dim(x, a) || has_dim(x, b))
		return NULL;
	for (int i = 0; i < x->nd; i++)
		keep[n++] = x->d[i] == a ? b : x->d[i];
	if (!fits(g, n, keep))
		return NULL;
	h = b_einsum(&s->b, x, new_param(g, s, 2, up), F32, n, keep);
	h = two_op(s, OP_ADD, scaled(s, h, 1 / sqrt(count_of(g, 1, &a))), new_param(g, s, 1, &b));
	h = one_op(s, chance(g, 50) ? OP_SILU : OP_TANH, h);
	maybe_name(g, h, "u");
	y = b_einsum(&s->b, h, new_param(g, s, 2, down), F32, x->nd, x->d);
	y = scaled(s, y, 1 / sqrt(count_of(g, 1, &b)));
	if (chance(g, 50))
		y = two_op(s, OP_ADD, y, new_param(g, s, 1, &a));
	return chance(g, 50) ? scaled(s, two_op(s, OP_ADD, x, y), 0.7) : y;
}

/* Routing: a soft gate over experts, each expert its own weights. */
static struct value *experts(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);
	dimid e = g->feat[3], f = g->feat[2], keep[MAX_DIMS], d[MAX_DIMS];
	int n = 0, nk = 0;

	if (!x || has_dim(x, e) || !has_dim(x, f) || has_dim(x, g->twin[2]))
		return NULL;
	for (int i = 0; i < x->nd; i++)
		if (x->d[i] != f)
			keep[nk++] = x->d[i];
	keep[nk++] = e;
	dimid w[] = { f, e };
	struct value *gate = b_einsum(&s->b, x, new_param(g, s, 2, w), F32, nk, keep);
	gate = softmax(s, gate, e);
	maybe_name(g, gate, "gate");
	struct value *to = b_einsum(&s->b, gate, x, F32, (memcpy(d, keep, sizeof keep), d[nk] = f, nk + 1), d);
	maybe_name(g, to, "xe");
	dimid w2[] = { e, f, g->twin[2] };
	d[nk] = g->twin[2];
	if (!fits(g, nk + 1, d))
		return NULL;
	struct value *h = one_op(s, OP_TANH, b_einsum(&s->b, to, new_param(g, s, 3, w2), F32, nk + 1, d));
	n = 0;
	for (int i = 0; i < nk; i++)
		if (keep[i] != e)
			d[n++] = keep[i];
	d[n++] = g->twin[2];
	return b_einsum(&s->b, h, gate, F32, n, d);
}

static struct value *topk(struct scope *s, struct value *x, dimid d, dimid to)
{
	struct op *op = op_new(&s->b, OP_TOPK, 1, &x, 1);
	dimid out[MAX_DIMS];

	for (int i = 0; i < x->nd; i++)
		out[i] = x->d[i] == d ? to : x->d[i];
	SET(op, dim, d);
	SET(op, to, to);
	return op_type(&s->b, op, 0, INT, x->nd, out);
}

static struct value *looked(struct scope *s, struct value *x, uint32_t n, struct value *const *index,
			    const struct dimlist *dims, int nd, const dimid *d)
{
	struct value *in[4] = { x };

	memcpy(in + 1, index, n * sizeof *index);
	struct op *op = op_new(&s->b, OP_LOOKUP, n + 1, in, 1);
	SET(op, dims, *dims);
	return op_type(&s->b, op, 0, x->dt, nd, d);
}

/* The largest elements along a dim, or a hot one of the largest. */
static struct value *picked(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *z, *e;
	dimid d = g->feat[3];

	if (!x || !has_dim(x, d) || has_dim(x, g->pick))
		return NULL;
	z = two_op(s, OP_ADD, x, scaled(s, b_cast(&s->b, b_index(&s->b, d), F32), 0.137));
	if (chance(g, 40) && dim_size(g->m, d)) {
		dimid keep[MAX_DIMS];
		int n = 0;

		for (int i = 0; i < x->nd; i++)
			if (x->d[i] != d)
				keep[n++] = x->d[i];
		struct op *op = op_new(&s->b, OP_ARGMAX, 1, &z, 1);
		SET(op, dim, d);
		e = op_type(&s->b, op, 0, INT, n, keep);
		return two_op(s, OP_MUL, x, b_cast(&s->b, b_map2(&s->b, OP_EQ, e, b_index(&s->b, d)), F32));
	}
	e = topk(s, z, d, g->pick);
	return looked(s, x, 1, &e, &(struct dimlist){ 1, { d } }, e->nd, e->d);
}

/* Routing by topk and rank: tokens go to places of experts, and come back. */
static struct value *dispatched(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);
	dimid f = g->feat[2], e = g->feat[3], t = g->twin[2];
	dimid bse[] = { g->batch, g->seq, e }, fe[] = { f, e }, efo[] = { e, f, t };
	dimid places[] = { g->batch, e, g->slot, f }, made[] = { g->batch, e, g->slot, t };
	dimid back[] = { g->batch, g->seq, g->pick, t }, out[] = { g->batch, g->seq, t };

	if (!fits(g, 4, places) || !row_value(g, x) || has_dim(x, e) || has_dim(x, g->pick) || has_dim(x, g->slot))
		return NULL;
	if (x->nd != 3 && has_dim(x, f))
		return NULL;
	if (!has_dim(x, f))
		x = project(g, s, x, g->seq, 1, &f);
	struct value *r = b_einsum(&s->b, x, new_param(g, s, 2, fe), F32, 3, bse);
	struct value *z = two_op(s, OP_ADD, r, scaled(s, b_cast(&s->b, b_index(&s->b, e), F32), 0.0137));
	struct value *to[2] = { topk(s, z, e, g->pick) };
	struct op *op = op_new(&s->b, OP_RANK, 1, to, 1);
	SET(op, dims, (struct dimlist){ 2, { g->seq, g->pick } });
	to[1] = op_type(&s->b, op, 0, INT, to[0]->nd, to[0]->d);
	struct value *in[3] = { x, to[0], to[1] };
	op = op_new(&s->b, OP_SCATTER, 3, in, 1);
	struct dimlist place = { 2, { e, g->slot } };
	SET(op, dims, place);
	struct value *xe = op_type(&s->b, op, 0, F32, 4, places);
	maybe_name(g, xe, "xe");
	struct value *ye = one_op(s, OP_TANH, b_einsum(&s->b, xe, new_param(g, s, 3, efo), F32, 4, made));
	struct value *gate = softmax(s, looked(s, r, 1, to, &(struct dimlist){ 1, { e } }, to[0]->nd, to[0]->d), g->pick);
	return b_einsum(&s->b, gate, looked(s, ye, 2, to, &place, 4, back), F32, 3, out);
}

/* A state that the model reads and renews. */
static struct value *kept(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *new;
	dimid d[2], over[MAX_DIMS];
	int n = 0, no = 0;

	if (!x || s->up)
		return NULL;
	for (int i = 0; i < x->nd; i++)
		if (x->d[i] != g->batch && n < 2 && chance(g, 50))
			d[n++] = x->d[i];
		else
			over[no++] = x->d[i];
	struct buffer *b = module_buffer(g->m, B_STATE, arena_printf(g->mem, "s%d", g->nkey++), F32, n, d);
	b->init = INIT_UNIFORM;
	b->init_arg = 0.5;
	struct value *old = b_read(&s->b, b);
	new = no ? mean_over(g, s, x, no, over) : x;
	if (chance(g, 30))
		new = one_op(s, OP_SIN, new);
	new = two_op(s, OP_ADD, scaled(s, old, 0.9), scaled(s, new, 0.1));
	struct op *op = op_new(&s->b, OP_WRITE, 1, &new, 0);
	SET(op, buf, b->name);
	return scaled(s, two_op(s, OP_ADD, x, old), 0.7);
}

static struct value *of_position(struct gen *g, struct scope *s)
{
	dimid d[] = { g->seq, g->feat[roll(g, FEATS)], g->heads, g->batch };
	struct value *i = b_cast(&s->b, b_index(&s->b, d[chance(g, 4) ? 3 : roll(g, 3)]), F32);

	return one_op(s, OP_SIN, two_op(s, OP_ADD, scaled(s, i, 0.7), konst(s, 0.3)));
}

step *const gen_steps[] = {
	unary, unary, kinked, binary, binary, with_param, with_param, chosen, reduced, linear, linear,
	linear, product, product, looked_up, looked_up, gathered, softmaxed, normed, renamed, renamed,
	viewed, dropped, detached, attention, attention, attention_by_hand, roped, mlp, mlp, experts,
	of_position, picked, dispatched, dispatched, convolved, kept, step_repeat, step_repeat, step_repeat,
};
const int gen_nsteps = (int)LEN(gen_steps);
