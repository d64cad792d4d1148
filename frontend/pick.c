/* Functions that choose and move elements: argmax, topk, rank, scatter, concat. */
#include "frontend/lower.h"

static struct builder *at(struct call *k)
{
	return here(k->c, k->n->at);
}

/* Argument 0 as a tensor of ints or floats; NULL after a message. */
static struct value *operand(struct call *k, bool open)
{
	struct val x = open ? arg_open(k, 0) : arg_value(k, 0);

	if (x.kind == V_BAD)
		return NULL;
	if (x.kind != V_TENSOR) {
		fail(k->c, k->arg[0]->at, "argument 1 of %s has no dims", k->f->name);
		return NULL;
	}
	struct value *v = import(k->c, x.v);
	return v->dt == BOOL ? b_cast(at(k), v, INT) : v;
}

static bool lacks(struct call *k, const struct value *v, dimid d)
{
	if (has_dim(v, d))
		return false;
	fail(k->c, k->arg[0]->at, "argument 1 of %s has no '%s', only %s", k->f->name,
	     k->c->m->dims.at[d].name, dims_text(k->c, v));
	return true;
}

struct val make_argmax(struct call *k)
{
	struct value *x = operand(k, false);
	dimid d = arg_dim(k, 1), rest[MAX_DIMS];
	int n = 0;

	if (!x || d == NODIM || lacks(k, x, d))
		return call_bad();
	if (!dim_size(k->c->m, d))
		return fail(k->c, k->arg[1]->at, "the largest of none: '%s' is 0", k->c->m->dims.at[d].name);
	for (int i = 0; i < x->nd; i++)
		if (x->d[i] != d)
			rest[n++] = x->d[i];
	struct op *op = op_new(at(k), OP_ARGMAX, 1, &x, 1);
	SET(op, dim, d);
	return tensor(op_type(at(k), op, 0, INT, n, rest));
}

struct val make_topk(struct call *k)
{
	struct ctx *c = k->c;
	struct value *x = operand(k, false);
	dimid d = arg_dim(k, 1), to = arg_dim(k, 2), dims[MAX_DIMS];

	if (!x || d == NODIM || to == NODIM || lacks(k, x, d))
		return call_bad();
	if (has_dim(x, to))
		return fail(c, k->arg[2]->at, "argument 1 of topk has '%s' already", c->m->dims.at[to].name);
	if (dim_size(c->m, to) > dim_size(c->m, d))
		return fail(c, k->arg[2]->at, "the %lld largest ('%s') of %lld ('%s')",
			    (long long)dim_size(c->m, to), c->m->dims.at[to].name,
			    (long long)dim_size(c->m, d), c->m->dims.at[d].name);
	for (int i = 0; i < x->nd; i++)
		dims[i] = x->d[i] == d ? to : x->d[i];
	struct op *op = op_new(at(k), OP_TOPK, 1, &x, 1);
	SET(op, dim, d);
	SET(op, to, to);
	return tensor(op_type(at(k), op, 0, INT, x->nd, dims));
}

struct val make_rank(struct call *k)
{
	struct ctx *c = k->c;
	struct value *x = operand(k, false);
	struct dimlist along = { .n = 0 };
	int n = arg_rest(k, along.d);

	if (!x || n < 0)
		return call_bad();
	if (is_float(x->dt)) {
		fail(c, k->arg[0]->at, "rank counts equal ints; this is float");
		hint(c, "topk(x, dim, k) gives the positions of the largest");
		return call_bad();
	}
	for (int i = 0; i < n; i++)
		if (lacks(k, x, along.d[i]))
			return call_bad();
	if (n == 0)
		memcpy(along.d, x->d, sizeof along.d);
	along.n = (uint8_t)(n ? n : x->nd);
	struct op *op = op_new(at(k), OP_RANK, 1, &x, 1);
	SET(op, dims, along);
	return tensor(op_type(at(k), op, 0, INT, x->nd, x->d));
}

/* -- concat -- */

/* x along `from`, as the part of `to` that begins at start. */
static struct value *padded(struct call *k, struct value *x, dimid from, dimid to, int64_t start)
{
	dimid d[MAX_DIMS];

	for (int i = 0; i < x->nd; i++)
		d[i] = x->d[i] == from ? to : x->d[i];
	struct op *op = op_new(at(k), OP_PAD, 1, &x, 1);
	SET(op, dim, from);
	SET(op, to, to);
	SET(op, start, start);
	SET(op, stride, 1);
	return op_type(at(k), op, 0, x->dt, x->nd, d);
}

/* Argument i, which has dim d and not yet the dim `to`. */
static struct value *part(struct call *k, int i, dimid d, dimid to)
{
	struct ctx *c = k->c;
	struct val x = arg_value(k, i);

	if (x.kind == V_BAD)
		return NULL;
	if (x.kind != V_TENSOR || !has_dim(x.v, d)) {
		fail(c, k->arg[i]->at, "argument %d of concat has no '%s'%s%s", i + 1,
		     c->m->dims.at[d].name, x.kind == V_TENSOR ? ", only " : "",
		     x.kind == V_TENSOR ? dims_text(c, x.v) : "");
		return NULL;
	}
	if (to != d && has_dim(x.v, to)) {
		fail(c, k->arg[i]->at, "argument %d of concat has '%s' already", i + 1,
		     c->m->dims.at[to].name);
		return NULL;
	}
	struct value *v = import(c, x.v);
	return v->dt == BOOL ? b_cast(at(k), v, INT) : v;
}

struct val make_concat(struct call *k)
{
	struct ctx *c = k->c;
	dimid da = arg_dim(k, 2), db = arg_dim(k, 3), d = arg_dim(k, 4);

	if (da == NODIM || db == NODIM || d == NODIM)
		return call_bad();
	int64_t na = dim_size(c->m, da), nb = dim_size(c->m, db), n = dim_size(c->m, d);
	if (na + nb != n) {
		fail(c, k->arg[4]->at, "'%s' is %lld, not %s + %s = %lld", c->m->dims.at[d].name,
		     (long long)n, c->m->dims.at[da].name, c->m->dims.at[db].name, (long long)(na + nb));
		if (d != da && d != db)
			hint(c, "declare dim %s = %s + %s", c->m->dims.at[d].name,
			     c->m->dims.at[da].name, c->m->dims.at[db].name);
		return call_bad();
	}
	struct value *a = part(k, 0, da, d), *b = part(k, 1, db, d);
	if (!a || !b)
		return call_bad();
	if (is_float(a->dt) != is_float(b->dt)) {
		a = float_of(c, tensor(a), k->n->at);
		b = float_of(c, tensor(b), k->n->at);
	}
	a = padded(k, a, da, d, 0);
	b = padded(k, b, db, d, na);
	return emit2(c, OP_ADD, tensor(a), tensor(b), k->n->at, "concat");
}

/* -- scatter -- */

struct target {
	struct dimlist dims;
	struct value *in[1 + MAX_DIMS]; /* x, then an index for each of the dims */
};

static bool in_want(const struct want *w, dimid d)
{
	for (int i = 0; i < w->n; i++)
		if (w->d[i] == d)
			return true;
	return false;
}

/* a = i */
static bool add_index(struct call *k, const struct node *arg, struct target *t)
{
	struct ctx *c = k->c;
	dimid d = find_dim_name(c, arg->name, arg->name_at);
	struct val i = eval(c, arg->a, NULL);

	if (d == NODIM || i.kind == V_BAD)
		return false;
	for (int j = 0; j < t->dims.n; j++)
		if (t->dims.d[j] == d) {
			fail(c, arg->name_at, "'%s' stands twice here", arg->name);
			return false;
		}
	if (!in_want(k->w, d)) {
		fail(c, arg->name_at, "'%s' is not among %s's dims", arg->name, k->w->name);
		return false;
	}
	if (i.kind != V_TENSOR && !is_number(&i)) {
		fail(c, arg->a->at, "an index must be an int expression");
		return false;
	}
	if (is_float(i.dt)) {
		fail(c, arg->a->at, "the index along '%s' is float", arg->name);
		hint(c, "int(…) truncates");
		return false;
	}
	if (is_number(&i) && (i.x < 0 || i.x >= (double)dim_size(c->m, d))) {
		fail(c, arg->a->at, "index %.15g is outside '%s' (0..%lld)", i.x, arg->name,
		     (long long)(dim_size(c->m, d) - 1));
		return false;
	}
	struct value *v = value_of(c, i, arg->a->at);
	t->in[1 + t->dims.n] = v->dt == BOOL ? b_cast(here(c, arg->at), v, INT) : v;
	t->dims.d[t->dims.n++] = d;
	return true;
}

/* The dims of the statement that the rows or the indices bring. */
static struct val scattered(struct call *k, struct target *t)
{
	struct ctx *c = k->c;
	dimid d[MAX_DIMS];
	int n = 0;

	for (int i = 0; i < k->w->n; i++) {
		bool has = false;

		for (int j = 0; j < t->dims.n; j++)
			has |= t->dims.d[j] == k->w->d[i];
		for (int j = 0; j <= t->dims.n && !has; j++)
			has = has_dim(t->in[j], k->w->d[i]);
		if (has)
			d[n++] = k->w->d[i];
	}
	if (!fits(c, n, d, k->n->at))
		return call_bad();
	struct op *op = op_new(at(k), OP_SCATTER, 1 + t->dims.n, t->in, 1);
	SET(op, dims, t->dims);
	return tensor(op_type(at(k), op, 0, t->in[0]->dt, n, d));
}

/* scatter(x, a = i, ...): its keywords are dims, not names of places. */
struct val make_scatter(struct call *k)
{
	struct ctx *c = k->c;
	const struct node *x = k->n->list;
	struct target t = { .dims.n = 0 };

	if (!k->w || !k->w->known) {
		fail(c, k->n->at, "the statement of a scatter names its dims");
		hint(c, "write %s[…] = scatter(…), and give it a statement of its own",
		     c->left ? c->left : "name");
		return call_bad();
	}
	if (x->kind == N_KEY || x->kind == N_WORD || !x->next)
		return fail(c, k->n->at, "scatter takes a tensor, then where it goes: scatter(x, dim = index)");
	k->arg[0] = x;
	t.in[0] = operand(k, false);
	if (!t.in[0])
		return call_bad();
	for (const struct node *a = x->next; a; a = a->next) {
		if (a->kind != N_KEY)
			return fail(c, a->at, "write dim = index");
		if (t.dims.n == 7)
			return fail(c, a->at, "more than 7 indices in one scatter");
		if (!add_index(k, a, &t))
			return call_bad();
	}
	return scattered(k, &t);
}
