/* Values of the IR: made where the walk stands, with the types and limits of the language. */
#include "frontend/lower.h"

#include <math.h>

#define LARGEST ((int64_t)1 << 50)
enum { MOST_VALUES = 400000 };

struct builder *here(struct ctx *c, struct span at)
{
	c->frame->b.span = at;
	return &c->frame->b;
}

struct val tensor(struct value *v)
{
	return (struct val){ .kind = V_TENSOR, .dt = v->dt, .v = v };
}

/* Leaves are made again where they are used. A read is not: params come in as operands. */
static bool is_leaf(const struct op *op)
{
	return op && opinfo[op->code].class == C_LEAF && op->code != OP_READ && op->code != OP_RNG;
}

static struct value *import_into(struct ctx *c, struct frame *f, struct value *v)
{
	if (v->home == f->b.block)
		return v;
	if (!f->up) { /* made in a body that has ended: only after mistakes that this adds to */
		fail(c, v->span, "a value made here is used where it is no longer to be had");
		return v;
	}
	if (is_leaf(v->def)) {
		struct op *op = op_new(&f->b, v->def->code, 0, NULL, 1);

		op->has = v->def->has;
		op->at = v->def->at;
		return op_type(&f->b, op, 0, v->dt, v->nd, v->d);
	}
	struct value *outer = import_into(c, f->up, v);
	for (uint32_t i = 0; i < f->with.n; i++)
		if (f->with.at[i] == outer)
			return f->with_arg.at[i];
	struct value *arg = block_arg(&f->b, f->b.block, v->dt, v->nd, v->d);
	arg->name = v->name;
	arg->span = v->span;
	PUSH(c->mem, &f->with, outer);
	PUSH(c->mem, &f->with_arg, arg);
	return arg;
}

struct value *import(struct ctx *c, struct value *v)
{
	return import_into(c, c->frame, v);
}

struct value *value_of(struct ctx *c, struct val v, struct span at)
{
	if (v.kind == V_TENSOR)
		return import(c, v.v);
	if (!is_number(&v))
		die("value_of");
	if (v.dt == INT && fabs(v.x) >= 0x1p31)
		v.dt = F32;
	return b_const(here(c, at), v.dt, v.x);
}

struct value *float_of(struct ctx *c, struct val v, struct span at)
{
	if (is_number(&v)) {
		v.dt = F32;
		return value_of(c, v, at);
	}
	struct value *t = value_of(c, v, at);
	return is_float(t->dt) ? t : b_cast(here(c, at), t, F32);
}

/* The whole buffer, read in the top block; a param of a repeat comes in slice by slice. */
static struct value *read_in(struct ctx *c, struct frame *f, struct sym *s)
{
	if (!f->up) {
		f->b.span = s->at;
		struct value *v = b_read(&f->b, s->buf);

		v->name = s->path;
		return v;
	}
	struct value *outer = read_in(c, f->up, s);
	dimid d[MAX_DIMS];
	int n = 0;

	for (int i = 0; i < outer->nd; i++)
		if (outer->d[i] != f->dim)
			d[n++] = outer->d[i];
	f->b.span = s->at;
	struct value *arg = block_arg(&f->b, f->b.block, outer->dt, n, d);
	arg->name = s->path;
	PUSH(c->mem, &f->over, outer);
	PUSH(c->mem, &f->over_arg, arg);
	return arg;
}

struct val sym_value(struct ctx *c, struct sym *s)
{
	s->used = true;
	if (s->buf && s->val.kind != V_TENSOR)
		s->val = tensor(read_in(c, s->frame, s));
	return s->val;
}

struct value *iter_of(struct ctx *c, const struct frame *f)
{
	struct op *op = op_new(&c->frame->b, OP_ITER, 0, NULL, 1);

	SET(op, dim, f->dim);
	return op_type(&c->frame->b, op, 0, INT, 0, NULL);
}

const char *list_text(struct ctx *c, int n, const dimid *d, const char *quote)
{
	struct text t = { .mem = c->mem };

	text_bytes(&t, "", 0);
	for (int i = 0; i < n; i++)
		text_put(&t, "%s%s%s%s", i ? ", " : "", quote, c->m->dims.at[d[i]].name, quote);
	return t.s;
}

const char *dims_text(struct ctx *c, const struct value *v)
{
	return arena_printf(c->mem, "[%s]", list_text(c, v->nd, v->d, ""));
}

bool fits(struct ctx *c, int n, const dimid *d, struct span at)
{
	int64_t count = 1;

	if (n > MAX_DIMS) {
		fail(c, at, "this has %d dims; %d is the most", n, MAX_DIMS);
		return false;
	}
	for (int i = 0; i < n; i++) {
		if (!elements_fit(&count, dim_size(c->m, d[i]), LARGEST)) {
			fail(c, at, "this tensor [%s] has more than 2^50 elements",
			     list_text(c, n, d, ""));
			return false;
		}
	}
	if (c->m->next_id > MOST_VALUES) {
		fail(c, at, "the calls of this model expand to more than %d values", MOST_VALUES);
		c->full = true;
		return false;
	}
	return true;
}

/* Numbers count as floats or ints; a flag or none is no value. */
static bool is_value(struct ctx *c, struct val *v, struct span at)
{
	if (v->kind == V_NONE)
		*v = fail(c, at, "'none' is no value");
	else if (v->kind == V_FLAG)
		*v = fail(c, at, "'%s' is a flag, not a value", v->flag);
	return v->kind != V_BAD;
}

struct val emit1(struct ctx *c, enum opcode code, struct val a, struct span at)
{
	if (!is_value(c, &a, at))
		return a;
	if (is_number(&a))
		return fold1(c, code, a, at);
	struct value *v = value_of(c, a, at);
	bool any = code == OP_NEG || code == OP_ABS || code == OP_SIGN || code == OP_NOT ||
		   code == OP_RELU || code == OP_DETACH;

	if (!fits(c, v->nd, v->d, at))
		return call_bad();
	if (!any && !is_float(v->dt))
		v = b_cast(here(c, at), v, F32);
	if (any && v->dt == BOOL && code != OP_NOT && code != OP_DETACH)
		v = b_cast(here(c, at), v, INT);
	return tensor(b_map1(here(c, at), code, v));
}

static bool compares(enum opcode code)
{
	return code >= OP_EQ && code <= OP_GE;
}

/* Two floats, neither of which has all dims of the result: said so by the statement, or a slip. */
static bool outer_product(struct ctx *c, const struct value *a, const struct value *b, int n,
			  const dimid *d, struct span at, const char *name)
{
	if (c->declared || n == a->nd || n == b->nd || !is_float(a->dt) || !is_float(b->dt))
		return false;
	fail(c, at, "'%s' of %s and %s has more dims than either", name, dims_text(c, a),
	     dims_text(c, b));
	hint(c, "write %s[%s] = … if that is meant", c->left ? c->left : "name", list_text(c, n, d, ""));
	return true;
}

struct val emit2(struct ctx *c, enum opcode code, struct val a, struct val b, struct span at,
		 const char *name)
{
	dimid d[2 * MAX_DIMS];

	if (!is_value(c, &a, at) || !is_value(c, &b, at))
		return call_bad();
	if (is_number(&a) && is_number(&b))
		return fold2(c, code, a, b, at);
	bool floats = is_float(a.dt) || is_float(b.dt) || code == OP_DIV || code == OP_POW;
	bool tests = code == OP_AND || code == OP_OR || (compares(code) && a.dt == b.dt);
	struct value *x = floats && !tests ? float_of(c, a, at) : value_of(c, a, at);
	struct value *y = floats && !tests ? float_of(c, b, at) : value_of(c, b, at);
	int n = union_dims(union_dims(0, d, x), d, y);

	if (!fits(c, n, d, at) || outer_product(c, x, y, n, d, at, name))
		return call_bad();
	if (!tests && !floats) {
		x = x->dt == BOOL ? b_cast(here(c, at), x, INT) : x;
		y = y->dt == BOOL ? b_cast(here(c, at), y, INT) : y;
	}
	return tensor(b_map2(here(c, at), code, x, y));
}

struct val emit_where(struct ctx *c, struct val cond, struct val a, struct val b, struct span at)
{
	dimid d[3 * MAX_DIMS];

	if (!is_value(c, &cond, at) || !is_value(c, &a, at) || !is_value(c, &b, at))
		return call_bad();
	if (is_number(&cond))
		return cond.x != 0 ? a : b;
	bool floats = is_float(a.dt) || is_float(b.dt);
	struct value *t = value_of(c, cond, at);
	struct value *x = floats ? float_of(c, a, at) : value_of(c, a, at);
	struct value *y = floats ? float_of(c, b, at) : value_of(c, b, at);
	int n = union_dims(union_dims(0, d, x), d, y);

	if (is_float(t->dt))
		return fail(c, at, "the condition of where is a float; write a comparison");
	n = union_dims(n, d, t);
	if (!fits(c, n, d, at))
		return call_bad();
	if (!floats && x->dt != y->dt) {
		x = b_cast(here(c, at), x, INT);
		y = b_cast(here(c, at), y, INT);
	}
	return tensor(b_where(here(c, at), t, x, y));
}

struct val emit_sum(struct ctx *c, struct val a, int n, const dimid *over, struct span at)
{
	if (a.kind == V_BAD || n == 0)
		return a;
	struct value *v = value_of(c, a, at);

	if (v->dt == BOOL)
		v = b_cast(here(c, at), v, INT);
	return tensor(b_reduce(here(c, at), OP_SUM, v, n, over));
}

struct val copy_of(struct ctx *c, struct value *v, struct span at, int n, const dimid *d)
{
	struct op *op = op_new(here(c, at), OP_CAST, 1, &v, 1);

	return tensor(op_type(&c->frame->b, op, 0, v->dt, n, d));
}
