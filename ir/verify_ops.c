/* ir/verify_ops.c - attributes, dims and types of every op, in any form. */
#include "ir/verify.h"

#define ATTR_BIT(x) (1u << A_##x)

/* The attributes without which an op has no meaning. */
static uint32_t needed(enum opcode code)
{
	switch (code) {
	case OP_READ:
	case OP_WRITE:
		return ATTR_BIT(buf);
	case OP_CONST:
		return ATTR_BIT(value);
	case OP_INDEX:
	case OP_ITER:
		return ATTR_BIT(dim);
	case OP_RNG:
		return ATTR_BIT(key) | ATTR_BIT(dims);
	case OP_LOOKUP:
	case OP_SCATTER:
		return ATTR_BIT(dims);
	case OP_RENAME:
		return ATTR_BIT(dims) | ATTR_BIT(tos);
	case OP_SPLIT:
		return ATTR_BIT(dim) | ATTR_BIT(tos);
	case OP_MERGE:
		return ATTR_BIT(dims) | ATTR_BIT(to);
	case OP_SLICE:
	case OP_PAD:
		return ATTR_BIT(dim) | ATTR_BIT(to);
	case OP_ROLL:
		return ATTR_BIT(dim) | ATTR_BIT(shift);
	case OP_ARGMAX:
		return ATTR_BIT(dim);
	case OP_TOPK:
		return ATTR_BIT(dim) | ATTR_BIT(to);
	case OP_RANK:
		return ATTR_BIT(dims);
	case OP_ATTENTION:
	case OP_ATTENTION_GRAD:
		return ATTR_BIT(dim) | ATTR_BIT(ctx) | ATTR_BIT(scale);
	case OP_REPEAT:
		return ATTR_BIT(dim) | ATTR_BIT(ncarry);
	case OP_REPORT:
		return ATTR_BIT(key);
	case OP_MINIMIZE:
	case OP_TRAIN:
		return ATTR_BIT(buf) | ATTR_BIT(opt);
	case OP_SHARD:
		return ATTR_BIT(dim) | ATTR_BIT(axes);
	case OP_ALL_TO_ALL:
		return ATTR_BIT(dim) | ATTR_BIT(to) | ATTR_BIT(axes);
	case OP_ALL_GATHER: /* {dim} unless it is a bucket */
	case OP_REDUCE_SCATTER:
	case OP_ALL_REDUCE:
	case OP_TO_PARTIAL:
		return ATTR_BIT(axes);
	default:
		return 0;
	}
}

static bool dim_exists(struct verifier *v, const struct op *op, dimid d)
{
	return d < v->m->dims.n || ver_fail(v, op, "an attribute names no dim");
}

static bool list_exists(struct verifier *v, const struct op *op, const struct dimlist *l)
{
	if (l->n > MAX_DIMS)
		return ver_fail(v, op, "a list of %d dims", l->n);
	for (int i = 0; i < l->n; i++) {
		if (!dim_exists(v, op, l->d[i]))
			return false;
		for (int k = 0; k < i; k++)
			if (l->d[k] == l->d[i])
				return ver_fail(v, op, "a list has dim '%s' twice", v->m->dims.at[l->d[i]].name);
	}
	return true;
}

static bool check_attrs(struct verifier *v, const struct op *op)
{
	static const char *const name[] = {
#define A(x) #x,
		ATTRS(A, A, A, A, A, A, A)
#undef A
	};
	uint32_t lacks = needed(op->code) & ~op->has;

	for (int i = 0; i < NATTR; i++)
		if (lacks >> i & 1)
			return ver_fail(v, op, "it lacks {%s}", name[i]);
	if ((HAS(op, dim) && !dim_exists(v, op, op->at.dim)) || (HAS(op, to) && !dim_exists(v, op, op->at.to)) ||
	    (HAS(op, ctx) && !dim_exists(v, op, op->at.ctx)) ||
	    (HAS(op, causal) && !dim_exists(v, op, op->at.causal)) ||
	    (HAS(op, dims) && !list_exists(v, op, &op->at.dims)) ||
	    (HAS(op, tos) && !list_exists(v, op, &op->at.tos)))
		return false;
	if (HAS(op, buf) && !find_buffer(v->m, op->at.buf))
		return ver_fail(v, op, "there is no buffer '%s'", op->at.buf ? op->at.buf : "");
	if (HAS(op, key) && !op->at.key)
		return ver_fail(v, op, "an empty key");
	return true;
}

/* -- sets of dims -- */

struct set {
	int n;
	dimid d[70 * MAX_DIMS];
};

static bool in_set(const struct set *s, dimid d)
{
	for (int i = 0; i < s->n; i++)
		if (s->d[i] == d)
			return true;
	return false;
}

static void set_add(struct set *s, dimid d)
{
	if (!in_set(s, d))
		s->d[s->n++] = d;
}

static void set_take(struct set *s, dimid d)
{
	for (int i = 0; i < s->n; i++)
		if (s->d[i] == d) {
			s->d[i] = s->d[--s->n];
			return;
		}
}

static void set_join(struct set *s, const struct value *x)
{
	for (int i = 0; i < x->nd; i++)
		set_add(s, x->d[i]);
}

static bool subset(const struct value *x, const struct set *s)
{
	for (int i = 0; i < x->nd; i++)
		if (!in_set(s, x->d[i]))
			return false;
	return true;
}

/* Result no has just these dims. */
static bool check_dims(struct verifier *v, const struct op *op, uint32_t no, const struct set *s)
{
	const struct value *x = op->out[no];
	struct text t = { .mem = v->d->mem };

	if (x->nd == s->n && subset(x, s))
		return true;
	for (int i = 0; i < s->n; i++)
		text_put(&t, "%s%s", i ? ", " : "", v->m->dims.at[s->d[i]].name);
	return ver_fail(v, op, "result %u does not have the dims [%s]", no, t.n ? t.s : "");
}

static bool check_scalar(struct verifier *v, const struct op *op, const struct value *x)
{
	return !x->nd || ver_fail(v, op, "%%%u is not a scalar", x->id);
}

static bool check_type(struct verifier *v, const struct op *op, const struct value *x, enum dtype dt)
{
	return x->dt == dt || ver_fail(v, op, "%%%u is %s, not %s", x->id, dtype_name[x->dt], dtype_name[dt]);
}

/* Same dims, in any order, and the same dtype. */
static bool check_alike(struct verifier *v, const struct op *op, const struct value *a, const struct value *b)
{
	if (a->dt != b->dt)
		return ver_fail(v, op, "%%%u is %s, %%%u is %s", a->id, dtype_name[a->dt], b->id, dtype_name[b->dt]);
	return same_dims(a, b) || ver_fail(v, op, "%%%u and %%%u have other dims", a->id, b->id);
}

/* In a plan in the same order, too. */
static bool check_same(struct verifier *v, const struct op *op, const struct value *a, const struct value *b)
{
	if (!check_alike(v, op, a, b))
		return false;
	if (v->m->form == PLANNED && a->nd && memcmp(a->d, b->d, a->nd * sizeof *a->d) != 0)
		return ver_fail(v, op, "%%%u and %%%u have their dims in other orders", a->id, b->id);
	return true;
}

/* -- by class -- */

static bool check_buffer_dims(struct verifier *v, const struct op *op, const struct value *x)
{
	const struct buffer *b = find_buffer(v->m, op->at.buf);
	struct value like = { .nd = b->nd };

	memcpy(like.d, b->d, sizeof like.d);
	if (!same_dims(x, &like))
		return ver_fail(v, op, "%%%u and buffer '%s' have other dims", x->id, b->name);
	if (op->code != OP_TRAIN && x->dt != b->dt)
		return ver_fail(v, op, "%%%u is %s, buffer '%s' is %s", x->id, dtype_name[x->dt], b->name,
				dtype_name[b->dt]);
	return true;
}

static bool in_repeat(const struct op *op)
{
	for (const struct op *o = op->home->owner; o; o = o->home->owner)
		if (o->code == OP_REPEAT && o->at.dim == op->at.dim)
			return true;
	return false;
}

static bool check_leaf(struct verifier *v, const struct op *op)
{
	const struct value *r = op->out[0];
	struct set s = { 0 };

	switch (op->code) {
	case OP_READ:
		return check_buffer_dims(v, op, r);
	case OP_INDEX:
		set_add(&s, op->at.dim);
		return check_type(v, op, r, INT) && check_dims(v, op, 0, &s);
	case OP_ITER:
		if (!in_repeat(op))
			return ver_fail(v, op, "it stands in no repeat over '%s'", v->m->dims.at[op->at.dim].name);
		return check_type(v, op, r, INT) && check_scalar(v, op, r);
	case OP_STEP:
	case OP_TRAINING:
		return check_scalar(v, op, r);
	case OP_RNG:
		for (int i = 0; i < op->at.dims.n; i++)
			set_add(&s, op->at.dims.d[i]);
		for (uint32_t i = 0; i < op->nin; i++)
			if (!check_scalar(v, op, op->in[i]) || !check_type(v, op, op->in[i], INT))
				return false;
		return check_type(v, op, r, F32) && check_dims(v, op, 0, &s);
	default:
		return true;
	}
}

/* Ops whose result need not be a float though an operand is. */
static bool may_lose_float(enum opcode code)
{
	return code == OP_CAST || code == OP_NOT || (code >= OP_EQ && code <= OP_OR);
}

static bool check_map(struct verifier *v, const struct op *op)
{
	const struct value *r = op->out[0];
	struct set s = { 0 };
	bool test = op->code == OP_NOT || (op->code >= OP_EQ && op->code <= OP_OR);

	for (uint32_t i = 0; i < op->nin; i++) {
		set_join(&s, op->in[i]);
		if (is_float(op->in[i]->dt) && !is_float(r->dt) && !may_lose_float(op->code) &&
		    !(op->code == OP_WHERE && i == 0))
			return ver_fail(v, op, "a float becomes %s", dtype_name[r->dt]);
	}
	if (test && r->dt != BOOL)
		return ver_fail(v, op, "a test is %s, not bool", dtype_name[r->dt]);
	if (((op->code >= OP_EXP && op->code <= OP_COS) || op->code == OP_DIV) && !is_float(r->dt))
		return ver_fail(v, op, "the result is %s, not a float", dtype_name[r->dt]);
	return check_dims(v, op, 0, &s);
}

static bool check_sum(struct verifier *v, const struct op *op)
{
	const struct value *r = op->out[0];
	struct set s = { 0 };

	for (uint32_t i = 0; i < op->nin; i++) {
		set_join(&s, op->in[i]);
		if (is_float(op->in[i]->dt) && !is_float(r->dt))
			return ver_fail(v, op, "a float becomes %s", dtype_name[r->dt]);
	}
	return subset(r, &s) || ver_fail(v, op, "the result has a dim that no operand has");
}

static bool check_indices(struct verifier *v, const struct op *op, struct set *s)
{
	if (!op->at.dims.n || op->nin != 1u + op->at.dims.n)
		return ver_fail(v, op, "%d indexed dims, %u indices", op->at.dims.n, op->nin - 1);
	for (uint32_t i = 1; i < op->nin; i++) {
		if (!check_type(v, op, op->in[i], INT))
			return false;
		set_join(s, op->in[i]);
	}
	return true;
}

static bool check_lookup(struct verifier *v, const struct op *op)
{
	const struct value *a = op->in[0];
	struct set s = { 0 };

	set_join(&s, a);
	for (int i = 0; i < op->at.dims.n; i++) {
		if (!has_dim(a, op->at.dims.d[i]))
			return ver_fail(v, op, "the table lacks dim '%s'", v->m->dims.at[op->at.dims.d[i]].name);
		set_take(&s, op->at.dims.d[i]);
	}
	return check_indices(v, op, &s) && check_dims(v, op, 0, &s);
}

static bool check_scatter(struct verifier *v, const struct op *op)
{
	const struct value *r = op->out[0];
	struct set s = { 0 };

	set_join(&s, op->in[0]);
	if (!check_indices(v, op, &s))
		return false;
	for (int i = 0; i < op->at.dims.n; i++) {
		if (!has_dim(r, op->at.dims.d[i]))
			return ver_fail(v, op, "the result lacks dim '%s'", v->m->dims.at[op->at.dims.d[i]].name);
		set_add(&s, op->at.dims.d[i]);
	}
	return subset(r, &s) || ver_fail(v, op, "the result has a dim that no operand has");
}

static bool move_dims(struct verifier *v, const struct op *op, struct set *s, const struct dimlist *from,
		      const struct dimlist *to)
{
	int64_t a = 1, b = 1;

	for (int i = 0; i < from->n; i++) {
		if (!in_set(s, from->d[i]))
			return ver_fail(v, op, "the operand lacks dim '%s'", v->m->dims.at[from->d[i]].name);
		set_take(s, from->d[i]);
		a *= dim_size(v->m, from->d[i]);
	}
	for (int i = 0; i < to->n; i++) {
		if (in_set(s, to->d[i]))
			return ver_fail(v, op, "the operand has dim '%s' already", v->m->dims.at[to->d[i]].name);
		set_add(s, to->d[i]);
		if (b && dim_size(v->m, to->d[i]) > MOST_ELEMENTS / b)
			return ver_fail(v, op, "too many elements");
		b *= dim_size(v->m, to->d[i]);
	}
	if (a != b && op->code != OP_SLICE && op->code != OP_PAD)
		return ver_fail(v, op, "sizes %lld and %lld", (long long)a, (long long)b);
	return true;
}

static bool check_view(struct verifier *v, const struct op *op)
{
	struct dimlist from = { 1, { op->at.dim } }, to = { 1, { op->at.to } };
	struct set s = { 0 };

	set_join(&s, op->in[0]);
	if (op->code == OP_RENAME || op->code == OP_MERGE)
		from = op->at.dims;
	if (op->code == OP_RENAME || op->code == OP_SPLIT)
		to = op->at.tos;
	if (op->code == OP_ROLL)
		to = from;
	if (op->code == OP_RENAME) {
		if (from.n != to.n)
			return ver_fail(v, op, "%d dims renamed to %d", from.n, to.n);
		for (int i = 0; i < from.n; i++)
			if (dim_size(v->m, from.d[i]) != dim_size(v->m, to.d[i]))
				return ver_fail(v, op, "'%s' and '%s' have other sizes",
						v->m->dims.at[from.d[i]].name, v->m->dims.at[to.d[i]].name);
		for (int i = 0; i < from.n; i++)
			if (v->m->dims.at[from.d[i]].zigzag != v->m->dims.at[to.d[i]].zigzag)
				return ver_fail(v, op, "'%s' and '%s' have other orders",
						v->m->dims.at[from.d[i]].name, v->m->dims.at[to.d[i]].name);
	}
	if (HAS(op, stride) && !op->at.stride)
		return ver_fail(v, op, "a stride of 0");
	return check_type(v, op, op->out[0], op->in[0]->dt) && move_dims(v, op, &s, &from, &to) &&
	       check_dims(v, op, 0, &s);
}

static bool check_pick(struct verifier *v, const struct op *op)
{
	const struct value *a = op->in[0];
	struct set s = { 0 };

	set_join(&s, a);
	if (op->code == OP_RANK) {
		if (!op->at.dims.n)
			return ver_fail(v, op, "it ranks along no dim");
		for (int i = 0; i < op->at.dims.n; i++)
			if (!has_dim(a, op->at.dims.d[i]))
				return ver_fail(v, op, "the operand lacks dim '%s'", v->m->dims.at[op->at.dims.d[i]].name);
		return check_type(v, op, a, INT) && check_type(v, op, op->out[0], INT) && check_dims(v, op, 0, &s);
	}
	if (!has_dim(a, op->at.dim))
		return ver_fail(v, op, "the operand lacks dim '%s'", v->m->dims.at[op->at.dim].name);
	set_take(&s, op->at.dim);
	if (op->code == OP_TOPK) {
		if (in_set(&s, op->at.to))
			return ver_fail(v, op, "the operand has dim '%s' already", v->m->dims.at[op->at.to].name);
		if (dim_size(v->m, op->at.to) > dim_size(v->m, op->at.dim))
			return ver_fail(v, op, "the %lld largest of %lld", (long long)dim_size(v->m, op->at.to),
					(long long)dim_size(v->m, op->at.dim));
		set_add(&s, op->at.to);
	}
	return check_type(v, op, op->out[0], INT) && check_dims(v, op, 0, &s);
}

/* A bias, mask or window: its dims are among those of the scores. */
static bool check_extra(struct verifier *v, const struct op *op, int which, enum dtype dt, const struct set *rows)
{
	int at = attn_extra(op, which);
	struct set scores = *rows;

	if (at < 0)
		return true;
	set_add(&scores, op->at.ctx);
	if (!subset(op->in[at], &scores))
		return ver_fail(v, op, "%%%u has a dim that the scores lack", op->in[at]->id);
	return check_type(v, op, op->in[at], dt);
}

static bool check_extras(struct verifier *v, const struct op *op, const struct set *rows)
{
	uint32_t first = attn_iterations(op);

	if (HAS(op, extra) && (op->at.extra < 0 || op->at.extra > (X_BIAS | X_MASK | X_WINDOW)))
		return ver_fail(v, op, "{extra} is %lld", (long long)op->at.extra);
	if (op->nin < first)
		return ver_fail(v, op, "%u operands, not at least %u", op->nin, first);
	if (attn_extra(op, X_WINDOW) >= 0 && !HAS(op, causal))
		return ver_fail(v, op, "a window without {causal}");
	for (uint32_t i = first; i < op->nin; i++)
		if (!check_scalar(v, op, op->in[i]) || !check_type(v, op, op->in[i], INT))
			return false;
	return check_extra(v, op, X_BIAS, F32, rows) && check_extra(v, op, X_MASK, BOOL, rows) &&
	       check_extra(v, op, X_WINDOW, INT, rows);
}

static bool check_attention_grad(struct verifier *v, const struct op *op, const struct set *rows, const struct set *out)
{
	const struct value *const *rest = (const struct value *const *)op->in + attn_rest(op);
	int bias = attn_extra(op, X_BIAS);

	if (rest[0]->nd != out->n || !subset(rest[0], out) || !same_dims(rest[0], rest[2]) ||
	    rest[1]->nd != rows->n || !subset(rest[1], rows))
		return ver_fail(v, op, "o, lse or do have wrong dims");
	for (uint32_t i = 0; i < op->nout; i++) {
		if (i == 3 && bias < 0)
			return ver_fail(v, op, "the gradient of a bias that is not there");
		if (!same_dims(op->in[i < 3 ? i : (uint32_t)bias], op->out[i]))
			return ver_fail(v, op, "result %u and its operand have other dims", i);
	}
	return op->nout < 4 || check_type(v, op, op->out[3], F32);
}

static bool check_attention(struct verifier *v, const struct op *op)
{
	const struct value *q = op->in[0], *k = op->in[1], *w = op->in[2];
	struct set rows = { 0 }, out;

	if (!has_dim(q, op->at.dim) || !has_dim(k, op->at.dim) || !has_dim(k, op->at.ctx) ||
	    !has_dim(w, op->at.ctx) || has_dim(q, op->at.ctx) || op->at.dim == op->at.ctx)
		return ver_fail(v, op, "q, k and v do not have the dims {dim} and {ctx}");
	if (HAS(op, causal) && (!has_dim(q, op->at.causal) || op->at.causal == op->at.dim))
		return ver_fail(v, op, "q lacks the dim {causal}");
	if (HAS(op, p) && !(HAS(op, key) && HAS(op, dims)))
		return ver_fail(v, op, "dropout without {key} and {dims}");
	set_join(&rows, q);
	set_join(&rows, k);
	set_take(&rows, op->at.dim);
	set_take(&rows, op->at.ctx);
	for (int i = 0; HAS(op, dims) && i < op->at.dims.n; i++)
		if (op->at.dims.d[i] != op->at.ctx && !in_set(&rows, op->at.dims.d[i]))
			return ver_fail(v, op, "dropout goes by '%s', which the scores lack", v->m->dims.at[op->at.dims.d[i]].name);
	out = rows;
	set_join(&out, w);
	set_take(&out, op->at.ctx);
	if (!check_extras(v, op, &rows))
		return false;
	if (op->code == OP_ATTENTION_GRAD)
		return check_attention_grad(v, op, &rows, &out);
	return check_type(v, op, op->out[1], F32) && check_dims(v, op, 0, &out) && check_dims(v, op, 1, &rows);
}

/* -- regions -- */

/* whole is part with the dim of the repeat. */
static bool check_slice(struct verifier *v, const struct op *op, const struct value *whole, const struct value *part)
{
	struct value x = *part;
	dimid d = stack_dim(v->m, whole, op->at.dim);

	if (has_dim(part, op->at.dim) || part->nd == MAX_DIMS)
		return ver_fail(v, op, "%%%u has the dim of the repeat in its body", part->id);
	if (d == NODIM)
		return ver_fail(v, op, "%%%u lacks the dim of the repeat", whole->id);
	if (whole->nd != part->nd + 1)
		return ver_fail(v, op, "%%%u and %%%u have other dims", whole->id, part->id);
	x.nd = whole->nd; /* in the order of whole */
	for (int i = 0, k = 0; i < whole->nd; i++)
		x.d[i] = whole->d[i] == d ? d : part->d[k++];
	return check_alike(v, op, whole, &x);
}

/* A repeat over some of another's iterations stands right in it, and is given all that it may leave as it is. Rows
 * that are not kept are shared, in turn: they are made in the order of iterations, and not added up. */
static bool check_part(struct verifier *v, const struct op *op)
{
	const struct dim *d = &v->m->dims.at[op->at.dim];
	const struct op *around = op->home->owner;
	int64_t ncarry = op->at.ncarry, nwith = HAS(op, nwith) ? op->at.nwith : 0;

	if (d->part == PART_KEPT)
		return ver_fail(v, op, "it runs over rows, not iterations");
	if (d->part == PART_FIRST && (!around || around->code != OP_REPEAT || around->home->owner || around->at.dim != d->of))
		return ver_fail(v, op, "it does not stand right in a repeat over '%s'", v->m->dims.at[d->of].name);
	if (d->part == PART_FIRST && (op->nin != ncarry + nwith || op->nout != ncarry))
		return ver_fail(v, op, "it has rows");
	for (uint32_t k = (uint32_t)ncarry; k < op->nout; k++)
		if (!has_dim(op->out[k], op->at.dim) && (around || repeat_adds(op, k) || (HAS(op, reverse) && op->at.reverse)))
			return ver_fail(v, op, "%%%u is no stack of all rows", op->out[k]->id);
	return true;
}

static bool check_repeat(struct verifier *v, const struct op *op)
{
	const struct block *body = op->body;
	int64_t ncarry = op->at.ncarry, nwith = HAS(op, nwith) ? op->at.nwith : 0;
	bool ok = true;

	if (ncarry < 0 || nwith < 0 || ncarry > op->nin || nwith > op->nin - ncarry || ncarry > op->nout)
		return ver_fail(v, op, "{ncarry} and {nwith} do not fit %u operands, %u results", op->nin, op->nout);
	if (body->args.n != op->nin || body->yields.n != op->nout)
		return ver_fail(v, op, "%u operands, %u arguments; %u results, %u yields", op->nin, body->args.n,
				op->nout, body->yields.n);
	if (v->m->dims.at[op->at.dim].zigzag)
		return ver_fail(v, op, "iterations run in the order of '%s', not zigzag", v->m->dims.at[op->at.dim].name);
	if (!check_part(v, op))
		return false;
	if (HAS(op, acc) && bits_end(op->at.acc) > op->nout - ncarry)
		return ver_fail(v, op, "{acc} names results that are not stacked");
	if (HAS(op, local) && bits_end(op->at.local) > ncarry)
		return ver_fail(v, op, "{local} names results that are not carried");
	for (uint32_t i = 0; i < op->nin; i++)
		ok = ok && (i < ncarry + nwith ? check_same(v, op, op->in[i], body->args.at[i]) :
			    check_slice(v, op, op->in[i], body->args.at[i]));
	for (uint32_t i = 0; i < op->nout; i++)
		ok = ok && (i < ncarry ? check_alike(v, op, op->out[i], body->yields.at[i]) &&
			    check_same(v, op, op->in[i], op->out[i]) :
			    check_slice(v, op, op->out[i], body->yields.at[i]));
	return ok;
}

static bool check_kernel(struct verifier *v, const struct op *op)
{
	const struct block *body = op->body;
	bool ok = true;

	if (body->args.n != op->nin || body->yields.n != op->nout)
		return ver_fail(v, op, "%u operands, %u arguments; %u results, %u yields", op->nin, body->args.n,
				op->nout, body->yields.n);
	for (uint32_t i = 0; i < op->nin; i++)
		ok = ok && check_same(v, op, op->in[i], body->args.at[i]);
	for (uint32_t i = 0; i < op->nout; i++)
		ok = ok && check_same(v, op, op->out[i], body->yields.at[i]);
	return ok;
}

static bool check_step(struct verifier *v, const struct op *op)
{
	if (op->home->owner && op->code != OP_ACCUMULATE)
		return ver_fail(v, op, "it stands in a body");
	switch (op->code) {
	case OP_ACCUMULATE:
		return check_same(v, op, op->in[0], op->out[0]);
	case OP_REPORT:
		return check_scalar(v, op, op->in[0]);
	case OP_WRITE:
		return check_buffer_dims(v, op, op->in[0]);
	default:
		for (uint32_t i = op->code == OP_TRAIN; i < op->nin; i++)
			if (!check_scalar(v, op, op->in[i]))
				return false;
		return op->code == OP_MINIMIZE || check_buffer_dims(v, op, op->in[0]);
	}
}

static bool check_comm(struct verifier *v, const struct op *op)
{
	if (HAS(op, dim) && !has_dim(op->in[0], op->at.dim))
		return ver_fail(v, op, "the operand lacks dim '%s'", v->m->dims.at[op->at.dim].name);
	if (HAS(op, to) && !has_dim(op->in[0], op->at.to))
		return ver_fail(v, op, "the operand lacks dim '%s'", v->m->dims.at[op->at.to].name);
	if (HAS(op, dim) && op->nin > 1)
		return ver_fail(v, op, "a bucket has no {dim}: that of each operand follows from its shardings");
	for (uint32_t i = 0; i < op->nin; i++) {
		if (!check_same(v, op, op->in[i], op->out[i]))
			return false;
		if ((op->code == OP_ALL_GATHER || op->code == OP_REDUCE_SCATTER) && comm_dim(op, i) == NODIM)
			return ver_fail(v, op, "operand %u has no dim that it joins or splits", i);
	}
	return true;
}

bool ver_op_dims(struct verifier *v, const struct op *op)
{
	if (!check_attrs(v, op))
		return false;
	switch (opinfo[op->code].class) {
	case C_LEAF:
		return check_leaf(v, op);
	case C_MAP:
		return check_map(v, op);
	case C_REDUCE:
	case C_EINSUM:
		return check_sum(v, op);
	case C_LOOKUP:
		return check_lookup(v, op);
	case C_SCATTER:
		return check_scatter(v, op);
	case C_PICK:
		return check_pick(v, op);
	case C_VIEW:
		return check_view(v, op);
	case C_ATTN:
		return check_attention(v, op);
	case C_REGION:
		return op->code == OP_REPEAT ? check_repeat(v, op) : check_kernel(v, op);
	case C_STEP:
		return check_step(v, op);
	case C_COMM:
		return check_comm(v, op);
	case C_HOST:
		return check_same(v, op, op->in[0], op->out[0]);
	}
	return true;
}
