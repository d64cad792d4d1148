/* passes/views.c - lookups whose indices are arithmetic on positions, as views (docs/LANGUAGE.md).
 *
 *   x[d = s + c index(b)]                        slice        (out of range reads 0 in both)
 *   x[d = index(b) n + index(c)]                 split, if b and c fill d
 *   x[d = (index(b) + h) % size(d)]              roll
 *   x[d = j // n, e = j % n], j = s + c index(b) merge, then slice; n the size of e
 *
 * Each index is taken off the lookup by itself; what is left stays a lookup. */
#include "passes/views.h"

enum { MOST_TERMS = 4 };

/* c0 + sum of c[i] index(d[i]) */
struct affine {
	int n;
	dimid d[MOST_TERMS];
	int64_t c[MOST_TERMS], c0;
};

static bool add_term(struct affine *f, dimid d, int64_t c)
{
	for (int i = 0; i < f->n; i++)
		if (f->d[i] == d) {
			f->c[i] += c;
			return true;
		}
	if (f->n == MOST_TERMS)
		return false;
	f->d[f->n] = d;
	f->c[f->n++] = c;
	return true;
}

/* f += k g; numbers beyond 2^31 are no index. */
static bool add_scaled(struct affine *f, const struct affine *g, int64_t k)
{
	for (int i = 0; i < g->n; i++)
		if (!add_term(f, g->d[i], k * g->c[i]))
			return false;
	f->c0 += k * g->c0;
	return true;
}

static bool fits(const struct affine *f)
{
	bool ok = f->c0 > -INT32_MAX && f->c0 < INT32_MAX;

	for (int i = 0; i < f->n; i++)
		ok &= f->c[i] > -INT32_MAX && f->c[i] < INT32_MAX;
	return ok;
}

static bool affine_of(const struct value *v, struct affine *f, int depth)
{
	const struct op *op = v->def;
	struct affine g;

	*f = (struct affine){ 0 };
	if (!op || v->dt != INT || depth > 16)
		return false;
	switch (op->code) {
	case OP_CONST:
		if (!(op->at.value > -INT32_MAX && op->at.value < INT32_MAX))
			return false;
		f->c0 = (int64_t)op->at.value;
		return !v->nd && (double)f->c0 == op->at.value;
	case OP_INDEX:
		return add_term(f, op->at.dim, 1);
	case OP_NEG:
		return affine_of(op->in[0], &g, depth + 1) && add_scaled(f, &g, -1);
	case OP_ADD:
	case OP_SUB:
		if (!affine_of(op->in[0], f, depth + 1) || !affine_of(op->in[1], &g, depth + 1))
			return false;
		return add_scaled(f, &g, op->code == OP_ADD ? 1 : -1) && fits(f);
	case OP_MUL: {
		struct affine h;

		if (!affine_of(op->in[0], &g, depth + 1) || !affine_of(op->in[1], &h, depth + 1))
			return false;
		if (!g.n)
			return add_scaled(f, &h, g.c0) && fits(f);
		return !h.n && add_scaled(f, &g, h.c0) && fits(f);
	}
	default:
		return false;
	}
}

/* Drops terms that cancelled. */
static void tidy(struct affine *f)
{
	int n = 0;

	for (int i = 0; i < f->n; i++)
		if (f->c[i]) {
			f->d[n] = f->d[i];
			f->c[n++] = f->c[i];
		}
	f->n = n;
}

/* -- the work on one lookup -- */

struct look {
	struct module *m;
	struct builder b;
	struct value *x;           /* what is left to be looked up in */
	uint32_t n;                /* indices left */
	dimid d[8];
	struct value *i[8];
};

static struct value *view(struct look *l, enum opcode code, struct op **op, int nd, const dimid *d)
{
	*op = op_new(&l->b, code, 1, &l->x, 1);
	return op_type(&l->b, *op, 0, l->x->dt, nd, d);
}

/* The dims of x with `from` replaced by the n of `to`. */
static int replaced(const struct value *x, dimid from, int n, const dimid *to, dimid *d)
{
	int nd = 0;

	for (int i = 0; i < x->nd; i++) {
		if (x->d[i] != from) {
			d[nd++] = x->d[i];
			continue;
		}
		for (int k = 0; k < n; k++)
			d[nd++] = to[k];
	}
	return nd;
}

/* b may become a dim of x in place of d: nobody else has it or asks for it. me, you: the indices
 * that b comes from. */
static bool is_free(const struct look *l, dimid b, dimid d, uint32_t me, uint32_t you)
{
	if (b != d && has_dim(l->x, b))
		return false;
	for (uint32_t k = 0; k < l->n; k++)
		if (k != me && k != you && (has_dim(l->i[k], b) || l->d[k] == b))
			return false;
	return true;
}

static void drop(struct look *l, uint32_t k)
{
	l->n--;
	for (; k < l->n; k++) {
		l->d[k] = l->d[k + 1];
		l->i[k] = l->i[k + 1];
	}
}

static void rename_to(struct look *l, dimid from, dimid to)
{
	if (from != to)
		l->x = b_rename(&l->b, l->x, from, to);
}

static void slice_to(struct look *l, dimid from, dimid to, int64_t start, int64_t stride)
{
	dimid d[MAX_DIMS];
	struct op *op;

	if (!start && stride == 1 && dim_size(l->m, from) == dim_size(l->m, to)) {
		rename_to(l, from, to);
		return;
	}
	int nd = replaced(l->x, from, 1, &to, d);
	l->x = view(l, OP_SLICE, &op, nd, d);
	SET(op, dim, from);
	SET(op, to, to);
	SET(op, start, start);
	SET(op, stride, stride);
}

static bool try_slice(struct look *l, uint32_t k, const struct affine *f)
{
	if (f->n != 1 || !is_free(l, f->d[0], l->d[k], k, k))
		return false;
	slice_to(l, l->d[k], f->d[0], f->c0, f->c[0]);
	return true;
}

/* Terms sorted by falling coefficient must be the strides of a row-major split of all of d. */
static bool try_split(struct look *l, uint32_t k, struct affine *f)
{
	struct dimlist tos = { 0 };
	int64_t stride = 1;
	dimid d[MAX_DIMS];
	struct op *op;

	if (f->n < 2 || f->c0 || l->x->nd + f->n - 1 > MAX_DIMS)
		return false;
	for (int i = 1; i < f->n; i++)
		for (int j = i; j > 0 && f->c[j] > f->c[j - 1]; j--) {
			int64_t c = f->c[j];
			dimid e = f->d[j];

			f->c[j] = f->c[j - 1];
			f->d[j] = f->d[j - 1];
			f->c[j - 1] = c;
			f->d[j - 1] = e;
		}
	for (int i = f->n - 1; i >= 0; i--) {
		if (f->c[i] != stride || f->d[i] == l->d[k] || !is_free(l, f->d[i], l->d[k], k, k))
			return false;
		stride *= dim_size(l->m, f->d[i]);
	}
	if (stride != dim_size(l->m, l->d[k]))
		return false;
	tos.n = (uint8_t)f->n;
	memcpy(tos.d, f->d, (size_t)f->n * sizeof *f->d);
	int nd = replaced(l->x, l->d[k], f->n, f->d, d);
	l->x = view(l, OP_SPLIT, &op, nd, d);
	SET(op, dim, l->d[k]);
	SET(op, tos, tos);
	return true;
}

/* (index(b) + h) % n: the operands of the mod or floordiv, n a constant. */
static bool by_const(const struct value *v, enum opcode code, struct affine *f, int64_t *n)
{
	struct affine g;

	if (!v->def || v->def->code != code || v->dt != INT)
		return false;
	if (!affine_of(v->def->in[0], f, 0) || !affine_of(v->def->in[1], &g, 0) || g.n)
		return false;
	tidy(f);
	*n = g.c0;
	return true;
}

static bool try_roll(struct look *l, uint32_t k)
{
	int64_t n, size = dim_size(l->m, l->d[k]);
	struct affine f;
	struct op *op;

	if (!by_const(l->i[k], OP_MOD, &f, &n) || n != size || f.n != 1 || f.c[0] != 1 ||
	    dim_size(l->m, f.d[0]) != size || !is_free(l, f.d[0], l->d[k], k, k))
		return false;
	int64_t shift = (f.c0 % size + size) % size;
	if (shift) {
		l->x = view(l, OP_ROLL, &op, l->x->nd, l->x->d);
		SET(op, dim, l->d[k]);
		SET(op, shift, shift);
	}
	rename_to(l, l->d[k], f.d[0]);
	return true;
}

static bool same_affine(const struct affine *a, const struct affine *b)
{
	return a->n == 1 && b->n == 1 && a->d[0] == b->d[0] && a->c[0] == b->c[0] && a->c0 == b->c0;
}

/* A dim for two that are merged, of a size that no dim at hand has. */
static dimid merged_dim(struct module *m, dimid p, dimid q, int64_t size)
{
	const char *name = arena_printf(m->mem, "%s_%s", m->dims.at[p].name, m->dims.at[q].name);

	for (int i = 2; find_dim(m, name) != NODIM; i++) {
		if (dim_size(m, find_dim(m, name)) == size)
			return find_dim(m, name);
		name = arena_printf(m->mem, "%s_%s_%d", m->dims.at[p].name, m->dims.at[q].name, i);
	}
	return module_dim(m, name, size, m->dims.at[p].at);
}

/* Indices k (j // n) and e (j % n). */
static bool try_merge(struct look *l, uint32_t k, uint32_t e)
{
	struct affine f, g;
	int64_t n, n2, size = dim_size(l->m, l->d[k]) * dim_size(l->m, l->d[e]);
	struct op *op;
	dimid d[MAX_DIMS], to;
	int nd = 0;

	if (!by_const(l->i[k], OP_FLOORDIV, &f, &n) || !by_const(l->i[e], OP_MOD, &g, &n2) ||
	    n != n2 || n != dim_size(l->m, l->d[e]) || !same_affine(&f, &g))
		return false;
	if (!is_free(l, f.d[0], NODIM, k, e))
		return false;
	bool whole = f.c[0] == 1 && !f.c0 && dim_size(l->m, f.d[0]) == size;
	to = whole ? f.d[0] : merged_dim(l->m, l->d[k], l->d[e], size);
	if (!whole && has_dim(l->x, to))
		return false;
	for (int i = 0; i < l->x->nd; i++)
		if (l->x->d[i] == l->d[k])
			d[nd++] = to;
		else if (l->x->d[i] != l->d[e])
			d[nd++] = l->x->d[i];
	l->x = view(l, OP_MERGE, &op, nd, d);
	SET(op, dims, (struct dimlist){ 2, { l->d[k], l->d[e] } });
	SET(op, to, to);
	if (!whole)
		slice_to(l, to, f.d[0], f.c0, f.c[0]);
	drop(l, k > e ? k : e);
	drop(l, k > e ? e : k);
	return true;
}

/* Takes one index, or two, off the lookup. */
static bool peel(struct look *l)
{
	for (uint32_t k = 0; k < l->n; k++) {
		struct affine f;
		bool affine = affine_of(l->i[k], &f, 0);

		if (affine)
			tidy(&f);
		if ((affine && (try_slice(l, k, &f) || try_split(l, k, &f))) || try_roll(l, k)) {
			drop(l, k);
			return true;
		}
		for (uint32_t e = 0; e < l->n; e++)
			if (e != k && try_merge(l, k, e))
				return true;
	}
	return false;
}

/* l->x in op's own order of dims and under its type. */
static struct value *finish(struct look *l, struct op *op)
{
	struct value *r = op->out[0];

	if (l->n) {
		struct value *in[9] = { l->x };
		struct dimlist dims = { (uint8_t)l->n, { 0 } };

		for (uint32_t k = 0; k < l->n; k++) {
			in[k + 1] = l->i[k];
			dims.d[k] = l->d[k];
		}
		struct op *rest = op_new(&l->b, OP_LOOKUP, l->n + 1, in, 1);
		SET(rest, dims, dims);
		return op_type(&l->b, rest, 0, r->dt, r->nd, r->d);
	}
	if (l->x->def && l->x != op->in[0]) /* a view of ours */
		memcpy(l->x->d, r->d, sizeof r->d);
	return l->x;
}

struct value *lookup_view(struct module *m, struct op *op)
{
	struct look l = { .m = m, .x = op->in[0], .n = op->at.dims.n,
			  .b = { m, op->home, op, op->phase, op->span, op->of, op->at.where } };

	if (l.n + 1 != op->nin || l.n > LEN(l.d))
		return NULL;
	for (uint32_t k = 0; k < l.n; k++) {
		l.d[k] = op->at.dims.d[k];
		l.i[k] = op->in[k + 1];
	}
	if (!peel(&l))
		return NULL;
	while (l.n && peel(&l))
		;
	return finish(&l, op);
}
