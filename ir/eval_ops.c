/* ir/eval_ops.c - the ops that stay on a coordinate: leaves, maps, sums, products, indices, views. */
#include "ir/eval_impl.h"
#include "ir/rng.h"

/* -- maps -- */

static double sigmoid(double a)
{
	return 1 / (1 + exp(-a));
}

static const double TANH_K = 0.79788456080286535588; /* sqrt(2 / pi) */

static double gelu(int64_t form, double a)
{
	if (form == 1)
		return a / 2 * (1 + tanh(TANH_K * (a + 0.044715 * a * a * a)));
	if (form == 2)
		return a * sigmoid(1.702 * a);
	return a / 2 * (1 + erf(a / sqrt(2)));
}

static double dgelu(int64_t form, double a)
{
	if (form == 1) {
		double t = tanh(TANH_K * (a + 0.044715 * a * a * a));

		return (1 + t) / 2 + a / 2 * (1 - t * t) * TANH_K * (1 + 3 * 0.044715 * a * a);
	}
	if (form == 2) {
		double s = sigmoid(1.702 * a);

		return s + 1.702 * a * s * (1 - s);
	}
	return (1 + erf(a / sqrt(2))) / 2 + a * exp(-a * a / 2) * TANH_K / 2;
}

static double cast(enum dtype to, double a)
{
	if (to == BOOL)
		return a != 0;
	return to == INT ? trunc(a) : a;
}

double ev_map(const struct op *op, double a, double b, double c)
{
	switch (op->code) {
	case OP_NEG:
		return -a;
	case OP_CAST:
		return cast(op->out[0]->dt, a);
	case OP_DETACH:
		return a;
	case OP_EXP:
		return exp(a);
	case OP_LOG:
		return log(a);
	case OP_SQRT:
		return sqrt(a);
	case OP_RSQRT:
		return 1 / sqrt(a);
	case OP_TANH:
		return tanh(a);
	case OP_SIGMOID:
		return sigmoid(a);
	case OP_SIN:
		return sin(a);
	case OP_COS:
		return cos(a);
	case OP_ABS:
		return fabs(a);
	case OP_SIGN:
		return isnan(a) ? a : (a > 0) - (a < 0);
	case OP_NOT:
		return a == 0;
	case OP_RELU:
		return a > 0 ? a : 0;
	case OP_DRELU:
		return a > 0;
	case OP_SILU:
		return a * sigmoid(a);
	case OP_DSILU:
		return sigmoid(a) * (1 + a * (1 - sigmoid(a)));
	case OP_GELU:
		return gelu(op->at.form, a);
	case OP_DGELU:
		return dgelu(op->at.form, a);
	case OP_ADD:
		return a + b;
	case OP_SUB:
		return a - b;
	case OP_MUL:
		return a * b;
	case OP_DIV:
		return a / b;
	case OP_FLOORDIV:
		return floor_quotient(op->out[0]->dt, a, b);
	case OP_MOD:
		return a - b * floor_quotient(op->out[0]->dt, a, b);
	case OP_POW:
		return pow(a, b);
	case OP_MIN:
		return isnan(b) ? b : b < a ? b : a;
	case OP_MAX:
		return isnan(b) ? b : b > a ? b : a;
	case OP_EQ:
		return a == b;
	case OP_NE:
		return a != b;
	case OP_LT:
		return a < b;
	case OP_LE:
		return a <= b;
	case OP_GT:
		return a > b;
	case OP_GE:
		return a >= b;
	case OP_AND:
		return a != 0 && b != 0;
	case OP_OR:
		return a != 0 || b != 0;
	case OP_WHERE:
		return a != 0 ? b : c;
	default:
		die("no map: %s", opinfo[op->code].name);
	}
}

static bool all_in(struct eval *e, const struct op *op, struct held **in, uint32_t most)
{
	if (op->nin > most)
		return ev_fail(e, op, "%u operands", op->nin);
	for (uint32_t i = 0; i < op->nin; i++) {
		in[i] = ev_in(e, op, op->in[i]);
		if (!in[i])
			return false;
	}
	return true;
}

static bool map(struct eval *e, const struct op *op)
{
	struct held *in[3] = { NULL }, *out = ev_make(e, op->out[0]);
	struct nest n;
	struct walk w;

	if (!all_in(e, op, in, 3))
		return false;
	nest_init(&n);
	nest_dims(&n, out->v);
	nest_ptr(&n, out);
	for (uint32_t k = 0; k < op->nin; k++)
		nest_ptr(&n, in[k]);
	for (int c = 0; c < e->ncoord; c++) {
		if (!walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w)) {
			double *r = ev_at(out, c) + w.off[0];
			const double *x[3] = { r, r, r };
			int64_t step[3] = { 0 };

			for (uint32_t k = 0; k < op->nin; k++) {
				x[k] = ev_at(in[k], c) + w.off[k + 1];
				step[k] = walk_step(&w, (int)k + 1);
			}
			for (int64_t i = 0; i < walk_n(&w); i++)
				r[i * walk_step(&w, 0)] = ev_map(op, x[0][i * step[0]], x[1][i * step[1]],
								 x[2][i * step[2]]);
		}
	}
	return true;
}

/* -- sums: r = sum or max of products of one or two tensors -- */

static void reduce_row(double *r, int64_t sr, const double *a, int64_t sa, int64_t n, bool max)
{
	for (int64_t i = 0; i < n; i++) {
		double x = a[i * sa], *to = r + i * sr;

		if (!max)
			*to += x;
		else if (x > *to || isnan(x))
			*to = x;
	}
}

/* Adds (or maximizes) one operand into out, over the dims that out lacks. */
static bool reduce_into(struct eval *e, const struct op *op, struct held *out, struct held *in, bool max)
{
	struct nest n;
	struct walk w;

	nest_init(&n);
	nest_dims(&n, out->v);
	nest_dims(&n, in->v);
	nest_ptr(&n, out);
	nest_ptr(&n, in);
	for (int c = 0; c < e->ncoord; c++) {
		if (!walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w))
			reduce_row(ev_at(out, c) + w.off[0], walk_step(&w, 0), ev_at(in, c) + w.off[1],
				   walk_step(&w, 1), walk_n(&w), max);
	}
	return true;
}

static bool reduce(struct eval *e, const struct op *op)
{
	struct held *in[1], *out = ev_make(e, op->out[0]);
	bool max = op->code == OP_RMAX;

	if (!all_in(e, op, in, 1))
		return false;
	for (int i = 0; i < out->v->nd; i++)
		if (!has_dim(in[0]->v, out->v->d[i]))
			return ev_fail(e, op, "the operand has no dim '%s'", e->m->dims.at[out->v->d[i]].name);
	return ev_fill(e, op, out, max ? -INFINITY : 0) && reduce_into(e, op, out, in[0], max);
}

static bool accum(struct eval *e, const struct op *op)
{
	struct held *out = ev_make(e, op->out[0]);

	if (!ev_fill(e, op, out, 0))
		return false;
	for (uint32_t i = 0; i < op->nin; i++) {
		struct held *in = ev_in(e, op, op->in[i]);

		if (!in)
			return false;
		for (int k = 0; k < in->v->nd; k++)
			if (!has_dim(out->v, in->v->d[k]))
				return ev_fail(e, op, "the result has no dim '%s'", e->m->dims.at[in->v->d[k]].name);
		if (!reduce_into(e, op, out, in, false))
			return false;
	}
	return true;
}

static bool einsum(struct eval *e, const struct op *op)
{
	struct held *in[2], *out = ev_make(e, op->out[0]);
	struct nest n;
	struct walk w;

	if (!all_in(e, op, in, 2) || !ev_fill(e, op, out, 0))
		return false;
	nest_init(&n);
	nest_dims(&n, out->v);
	nest_dims(&n, in[0]->v);
	nest_dims(&n, in[1]->v);
	nest_ptr(&n, out);
	nest_ptr(&n, in[0]);
	nest_ptr(&n, in[1]);
	for (int i = 0; i < out->v->nd; i++)
		if (!has_dim(in[0]->v, out->v->d[i]) && !has_dim(in[1]->v, out->v->d[i]))
			return ev_fail(e, op, "no operand has dim '%s'", e->m->dims.at[out->v->d[i]].name);
	for (int c = 0; c < e->ncoord; c++) {
		if (!walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w)) {
			double *r = ev_at(out, c) + w.off[0];
			const double *a = ev_at(in[0], c) + w.off[1], *b = ev_at(in[1], c) + w.off[2];
			int64_t sr = walk_step(&w, 0), sa = walk_step(&w, 1), sb = walk_step(&w, 2), count = walk_n(&w);
			double sum = *r;

			for (int64_t i = 0; !sr && i < count; i++)
				*r = sum += a[i * sa] * b[i * sb];
			for (int64_t i = 0; sr && i < count; i++)
				r[i * sr] += a[i * sa] * b[i * sb];
		}
	}
	return true;
}

/* -- lookup and scatter_add -- */

/* A table addressed by indices: dims of t in {dims} are not walked. pos[k]: which dim of t is
 * {dims}[k]; the indices are operands 1... of the op, pointers first... of the nest. */
struct table {
	const struct held *t, *index[8];
	int nindex, first;
	int pos[8];
};

static bool table_init(struct eval *e, const struct op *op, struct table *t, const struct held *h,
		       dimid *as)
{
	t->t = h;
	t->nindex = (int)op->nin - 1;
	if (t->nindex < 1 || t->nindex > 8 || op->at.dims.n != t->nindex)
		return ev_fail(e, op, "%d indices for %d dims", t->nindex, op->at.dims.n);
	memcpy(as, h->v->d, sizeof h->v->d);
	for (int k = 0; k < t->nindex; k++) {
		t->index[k] = ev_in(e, op, op->in[k + 1]);
		if (!t->index[k])
			return false;
		t->pos[k] = dim_pos(h->v, op->at.dims.d[k]);
		if (t->pos[k] < 0)
			return ev_fail(e, op, "the table has no dim '%s'", e->m->dims.at[op->at.dims.d[k]].name);
		as[t->pos[k]] = NODIM;
	}
	return true;
}

/* Offset in the local table that the indices at off[] mean; -1: not in this part, or nowhere. */
static int64_t table_row(const struct eval *e, const struct table *t, int c, const int64_t *off)
{
	int64_t at = 0;

	for (int k = 0; k < t->nindex; k++) {
		const struct extent *x = ev_ext(t->t, c) + t->pos[k];
		double i = ev_at(t->index[k], c)[off[k]];

		if (!(i >= 0 && i < (double)dim_size(e->m, t->t->v->d[t->pos[k]])))
			return -1;
		int64_t local = dim_position(e->m, t->t->v->d[t->pos[k]], (int64_t)i) - x->start;
		if (local < 0 || local >= x->valid)
			return -1;
		at += local * t->t->stride[t->pos[k]];
	}
	return at;
}

/* One loop for both: the walk is over the dims of the dense side (the result of a lookup, the
 * values of a scatter) and of the indices. Pointers: dense, table, indices. */
static bool index_loop(struct eval *e, const struct op *op, struct nest *n, const struct table *t,
		       const struct held *dense, bool add)
{
	struct walk w;

	for (int c = 0; c < e->ncoord; c++) {
		if (!walk_begin(e, op, n, c, &w))
			return false;
		while (walk_row(&w))
			for (int64_t i = 0; i < walk_n(&w); i++) {
				double *x = ev_at(dense, c) + w.off[0] + i * walk_step(&w, 0);
				double *row = ev_at(t->t, c) + w.off[1] + i * walk_step(&w, 1);
				int64_t off[8];

				for (int k = 0; k < t->nindex; k++)
					off[k] = w.off[2 + k] + i * walk_step(&w, 2 + k);
				int64_t at = table_row(e, t, c, off);
				if (!add)
					*x = at < 0 ? 0 : row[at];
				else if (at >= 0)
					row[at] += *x;
			}
	}
	return true;
}

static bool lookup(struct eval *e, const struct op *op)
{
	struct held *a = ev_in(e, op, op->in[0]), *out = ev_make(e, op->out[0]);
	dimid as[MAX_DIMS];
	struct table t;
	struct nest n;

	if (!a || !table_init(e, op, &t, a, as))
		return false;
	nest_init(&n);
	nest_dims(&n, out->v);
	nest_ptr(&n, out);
	nest_ptr_as(&n, a, as);
	for (int k = 0; k < t.nindex; k++)
		nest_ptr(&n, t.index[k]);
	return index_loop(e, op, &n, &t, out, false);
}

static bool scatter(struct eval *e, const struct op *op)
{
	struct held *a = ev_in(e, op, op->in[0]), *out = ev_make(e, op->out[0]);
	dimid as[MAX_DIMS];
	struct table t;
	struct nest n;

	if (!a || !table_init(e, op, &t, out, as) || !ev_fill(e, op, out, 0))
		return false;
	nest_init(&n);
	nest_dims(&n, a->v);
	for (int k = 0; k < t.nindex; k++)
		nest_dims(&n, t.index[k]->v);
	nest_ptr(&n, a);
	nest_ptr_as(&n, out, as);
	for (int k = 0; k < t.nindex; k++)
		nest_ptr(&n, t.index[k]);
	return index_loop(e, op, &n, &t, a, true);
}

/* -- views -- */

static bool in_list(const struct dimlist *l, dimid d)
{
	for (int i = 0; i < l->n; i++)
		if (l->d[i] == d)
			return true;
	return false;
}

static bool rename_dims(struct eval *e, const struct op *op)
{
	struct held *in[1], *out = ev_make(e, op->out[0]);
	dimid as[MAX_DIMS];
	struct nest n;
	struct walk w;

	if (!all_in(e, op, in, 1))
		return false;
	for (int i = 0; i < in[0]->v->nd; i++) {
		as[i] = in[0]->v->d[i];
		for (int k = 0; k < op->at.dims.n; k++)
			if (op->at.dims.d[k] == in[0]->v->d[i])
				as[i] = op->at.tos.d[k];
	}
	nest_init(&n);
	nest_dims(&n, out->v);
	nest_ptr(&n, out);
	nest_ptr_as(&n, in[0], as);
	for (int c = 0; c < e->ncoord; c++) {
		if (!walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w))
			for (int64_t i = 0; i < walk_n(&w); i++)
				ev_at(out, c)[w.off[0] + i * walk_step(&w, 0)] =
					ev_at(in[0], c)[w.off[1] + i * walk_step(&w, 1)];
	}
	return true;
}

/* The dims that a view changes: those of the operand, those of the result. */
static void view_dims(const struct op *op, struct dimlist *from, struct dimlist *to)
{
	*from = (struct dimlist){ 1, { op->at.dim } };
	*to = (struct dimlist){ 1, { op->at.to } };
	if (op->code == OP_ROLL)
		*to = *from;
	else if (op->code == OP_SPLIT)
		*to = op->at.tos;
	else if (op->code == OP_MERGE)
		*from = op->at.dims;
}

static int64_t floor_mod(int64_t a, int64_t n)
{
	return n ? (a % n + n) % n : 0;
}

/* Indices in the operand of indices r of the result. false: nothing, a zero. */
static bool view_source(const struct module *m, const struct op *op, const struct dimlist *from,
			const struct dimlist *to, const int64_t *r, int64_t *a)
{
	int64_t stride = HAS(op, stride) ? op->at.stride : 1, size = dim_size(m, from->d[0]);
	int64_t flat = 0;

	switch (op->code) {
	case OP_SLICE:
		a[0] = op->at.start + stride * r[0];
		return a[0] >= 0 && a[0] < size;
	case OP_PAD:
		a[0] = stride ? (r[0] - op->at.start) / stride : -1;
		return a[0] >= 0 && a[0] < size && a[0] * stride == r[0] - op->at.start;
	case OP_ROLL:
		a[0] = floor_mod(r[0] + op->at.shift, size);
		return true;
	default: /* split, merge */
		for (int i = 0; i < to->n; i++)
			flat = flat * dim_size(m, to->d[i]) + r[i];
		for (int i = from->n - 1; i >= 0; i--) {
			a[i] = flat % dim_size(m, from->d[i]);
			flat /= dim_size(m, from->d[i]);
		}
		return true;
	}
}

/* Copies along the dims that the view leaves alone, from one place of the others to another. */
struct view {
	const struct op *op;
	const struct held *in, *out;
	struct dimlist from, to;
	struct nest n; /* over the dims left alone */
	int c;
};

/* zero: there is no source. */
static bool view_copy(struct eval *e, const struct view *v, int64_t to, int64_t from, bool zero)
{
	struct walk w;

	if (!walk_begin(e, v->op, &v->n, v->c, &w))
		return false;
	while (walk_row(&w)) {
		double *r = ev_at(v->out, v->c) + to + w.off[0];
		const double *a = ev_at(v->in, v->c) + from + w.off[1];

		for (int64_t i = 0; i < walk_n(&w); i++)
			r[i * walk_step(&w, 0)] = zero ? 0 : a[i * walk_step(&w, 1)];
	}
	return true;
}

/* local[]: indices of the changed dims of the result, local. */
static bool view_at(struct eval *e, const struct view *v, const int64_t *local)
{
	int64_t r[MAX_DIMS], a[MAX_DIMS], to = 0, from = 0;
	bool zero;

	for (int i = 0; i < v->to.n; i++) {
		int pos = dim_pos(v->out->v, v->to.d[i]);

		r[i] = dim_index(e->m, v->to.d[i], ev_ext(v->out, v->c)[pos].start + local[i]);
		to += local[i] * v->out->stride[pos];
	}
	zero = !view_source(e->m, v->op, &v->from, &v->to, r, a);
	for (int i = 0; i < v->from.n && !zero; i++) {
		int pos = dim_pos(v->in->v, v->from.d[i]);
		const struct extent *x = ev_ext(v->in, v->c) + pos;
		int64_t at = dim_position(e->m, v->from.d[i], a[i]);

		if (at < x->start || at >= x->start + x->valid)
			return ev_fail(e, v->op, "element %lld of '%s' is not at hand (coordinate %d)",
				       (long long)a[i], e->m->dims.at[v->from.d[i]].name, v->c);
		from += (at - x->start) * v->in->stride[pos];
	}
	return view_copy(e, v, to, zero ? 0 : from, zero);
}

static bool view_coord(struct eval *e, struct view *v)
{
	int64_t local[MAX_DIMS] = { 0 }, n[MAX_DIMS];
	int k;

	for (int i = 0; i < v->to.n; i++) {
		n[i] = ev_ext(v->out, v->c)[dim_pos(v->out->v, v->to.d[i])].valid;
		if (!n[i])
			return true;
	}
	for (int i = 0; i < v->out->v->nd; i++)
		if (!ev_ext(v->out, v->c)[i].valid)
			return true;
	do {
		if (!view_at(e, v, local))
			return false;
		for (k = v->to.n - 1; k >= 0 && ++local[k] == n[k]; k--)
			local[k] = 0;
	} while (k >= 0);
	return true;
}

static bool view(struct eval *e, const struct op *op)
{
	struct held *in[1], *out = ev_make(e, op->out[0]);
	struct view v = { .op = op, .out = out };
	dimid as[MAX_DIMS];

	if (!all_in(e, op, in, 1))
		return false;
	v.in = in[0];
	view_dims(op, &v.from, &v.to);
	for (int i = 0; i < v.from.n; i++)
		if (!has_dim(v.in->v, v.from.d[i]))
			return ev_fail(e, op, "the operand has no dim '%s'", e->m->dims.at[v.from.d[i]].name);
	for (int i = 0; i < v.to.n; i++)
		if (!has_dim(out->v, v.to.d[i]))
			return ev_fail(e, op, "the result has no dim '%s'", e->m->dims.at[v.to.d[i]].name);
	nest_init(&v.n);
	for (int i = 0; i < out->v->nd; i++) {
		as[i] = in_list(&v.to, out->v->d[i]) ? NODIM : out->v->d[i];
		if (as[i] != NODIM)
			v.n.d[v.n.nd++] = as[i];
	}
	nest_ptr_as(&v.n, out, as);
	for (int i = 0; i < v.in->v->nd; i++)
		as[i] = in_list(&v.from, v.in->v->d[i]) ? NODIM : v.in->v->d[i];
	nest_ptr_as(&v.n, v.in, as);
	for (v.c = 0; v.c < e->ncoord; v.c++)
		if (!view_coord(e, &v))
			return false;
	return true;
}

/* -- leaves -- */

/* The repeat dim that an iteration number counts, NODIM: cannot be told. */
static dimid iter_dim(const struct eval *e, const struct value *v)
{
	while (!v->def) {
		const struct held *h = &e->tab[v->id];
		const struct op *owner = h->home->owner;

		if (!owner || h->arg >= owner->nin)
			return NODIM;
		if (owner->code == OP_REPEAT && ((int64_t)h->arg < owner->at.ncarry ||
						 (int64_t)h->arg >= owner->at.ncarry + owner->at.nwith))
			return NODIM;
		v = owner->in[h->arg];
	}
	return v->def->code == OP_ITER ? v->def->at.dim : NODIM;
}

bool ev_iteration(struct eval *e, const struct op *op, uint32_t first, int c, uint32_t *iter)
{
	int64_t k = 0;

	for (uint32_t i = first; i < op->nin; i++) {
		const struct held *h = ev_in(e, op, op->in[i]);

		if (!h)
			return false;
		if (h->v->nd)
			return ev_fail(e, op, "operand %u is no iteration number", i);
		if (i > first) {
			dimid d = iter_dim(e, h->v);

			if (d == NODIM)
				return ev_fail(e, op, "cannot tell which repeat operand %u counts", i);
			k *= dim_size(e->m, d);
		}
		k += (int64_t)*ev_at(h, c);
	}
	*iter = (uint32_t)k;
	return true;
}

static bool rng(struct eval *e, const struct op *op)
{
	struct held *out = ev_make(e, op->out[0]);
	uint64_t key = stream_key(e->seed, op->at.key);
	int64_t step[MAX_DIMS], count = 1;
	uint32_t iter;
	struct nest n;
	struct walk w;

	for (int i = op->at.dims.n - 1; i >= 0; i--) {
		step[i] = count;
		count *= dim_size(e->m, op->at.dims.d[i]);
	}
	nest_init(&n);
	nest_dims(&n, out->v);
	nest_ptr(&n, out);
	nest_array(&n, op->at.dims.n, op->at.dims.d, step);
	for (int c = 0; c < e->ncoord; c++) {
		if (!ev_iteration(e, op, 0, c, &iter) || !walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w)) {
			int64_t first = walk_across(e, &w, 1);

			for (int64_t i = 0; i < walk_n(&w); i++)
				ev_at(out, c)[w.off[0] + i * walk_step(&w, 0)] =
					rng_uniform(key, (uint64_t)(first + walk_along(e, &w, 1, i)), (uint32_t)e->step, iter);
		}
	}
	return true;
}

static bool indices(struct eval *e, const struct op *op)
{
	struct held *out = ev_make(e, op->out[0]);
	int64_t one = 1;
	struct nest n;
	struct walk w;

	nest_init(&n);
	nest_dims(&n, out->v);
	nest_ptr(&n, out);
	nest_array(&n, 1, &op->at.dim, &one);
	for (int c = 0; c < e->ncoord; c++) {
		if (!walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w)) {
			int64_t first = walk_across(e, &w, 1);

			for (int64_t i = 0; i < walk_n(&w); i++)
				ev_at(out, c)[w.off[0] + i * walk_step(&w, 0)] = (double)(first + walk_along(e, &w, 1, i));
		}
	}
	return true;
}

static bool iteration(struct eval *e, const struct op *op)
{
	for (const struct frame *f = e->frame; f; f = f->up)
		if (f->dim == op->at.dim)
			return ev_fill(e, op, ev_make(e, op->out[0]), (double)f->i);
	return ev_fail(e, op, "no repeat over '%s' here", e->m->dims.at[op->at.dim].name);
}

bool ev_compute(struct eval *e, const struct op *op)
{
	switch (op->code) {
	case OP_CONST:
		return ev_fill(e, op, ev_make(e, op->out[0]), op->at.value);
	case OP_STEP:
		return ev_fill(e, op, ev_make(e, op->out[0]), (double)e->step);
	case OP_TRAINING:
		return ev_fill(e, op, ev_make(e, op->out[0]), e->training);
	case OP_READ:
		return ev_read(e, op);
	case OP_INDEX:
		return indices(e, op);
	case OP_ITER:
		return iteration(e, op);
	case OP_RNG:
		return rng(e, op);
	case OP_ACCUM:
		return accum(e, op);
	case OP_SUM:
	case OP_RMAX:
		return reduce(e, op);
	case OP_EINSUM:
		return einsum(e, op);
	case OP_LOOKUP:
		return lookup(e, op);
	case OP_SCATTER:
		return scatter(e, op);
	case OP_RENAME:
		return rename_dims(e, op);
	default:
		return opinfo[op->code].class == C_VIEW ? view(e, op) : map(e, op);
	}
}
