/* Expressions: names, operators, subscripts. */
#include "frontend/lower.h"

#include <math.h>

static const enum opcode opcodes[] = {
	[OPR_OR] = OP_OR, [OPR_AND] = OP_AND, [OPR_EQ] = OP_EQ, [OPR_NE] = OP_NE, [OPR_LT] = OP_LT,
	[OPR_LE] = OP_LE, [OPR_GT] = OP_GT, [OPR_GE] = OP_GE, [OPR_ADD] = OP_ADD, [OPR_SUB] = OP_SUB,
	[OPR_MUL] = OP_MUL, [OPR_DIV] = OP_DIV, [OPR_FLOORDIV] = OP_FLOORDIV, [OPR_MOD] = OP_MOD,
	[OPR_NEG] = OP_NEG, [OPR_NOT] = OP_NOT,
};

static struct val special(struct ctx *c, const char *name, struct span at)
{
	enum opcode code = streq(name, "step") ? OP_STEP : OP_TRAINING;
	struct op *op = op_new(here(c, at), code, 0, NULL, 1);

	return tensor(op_type(&c->frame->b, op, 0, code == OP_STEP ? INT : BOOL, 0, NULL));
}

static bool is_flag(const char *name)
{
	return streq(name, "erf") || streq(name, "tanh") || streq(name, "quick");
}

struct val eval_name(struct ctx *c, const struct node *n)
{
	struct sym *s = find(c, n->name);

	if (s && s->kind == S_DEF)
		return fail(c, n->at, "'%s' is a def: call it, %s(…)", n->name, n->name);
	if (s)
		return sym_value(c, s);
	if (streq(n->name, "none"))
		return (struct val){ .kind = V_NONE };
	if (streq(n->name, "inf"))
		return val_number(F32, INFINITY);
	if (streq(n->name, "step") || streq(n->name, "training"))
		return special(c, n->name, n->at);
	if (is_flag(n->name))
		return (struct val){ .kind = V_FLAG, .flag = n->name };
	return no_name(c, n->name, n->at);
}

static struct val compare_numbers(struct ctx *c, const struct node *n, struct val a, struct val b)
{
	bool sizes = a.kind == V_DIM && b.kind == V_DIM;

	fail(c, n->at, "this compares two %s, %.15g and %.15g", sizes ? "sizes" : "numbers", a.x, b.x);
	if (sizes)
		hint(c, "positions are index(%s) %s index(%s)", node_text(c->mem, c->src, n->a),
		     node_op_name(n->op), node_text(c->mem, c->src, n->b));
	return call_bad();
}

static struct val eval_binary(struct ctx *c, const struct node *n, const struct want *w)
{
	if (n->op == OPR_DOT)
		return eval_dot(c, n, w);
	struct val a = eval(c, n->a, w), b = eval(c, n->b, w);

	if (n->op >= OPR_EQ && n->op <= OPR_GE && is_number(&a) && is_number(&b))
		return compare_numbers(c, n, a, b);
	return emit2(c, opcodes[n->op], a, b, n->at, node_op_name(n->op));
}

/* -- subscripts -- */

struct subs {
	struct dimlist from, to, looked; /* renames; dims that are looked up */
	struct value *index[MAX_DIMS];
};

static const char *base_text(struct ctx *c, const struct node *n)
{
	return node_text(c->mem, c->src, n);
}

static bool listed(const struct dimlist *l, dimid d)
{
	for (int i = 0; i < l->n; i++)
		if (l->d[i] == d)
			return true;
	return false;
}

static bool take_dim(struct ctx *c, const struct node *base, const struct value *x,
		     const struct subs *s, const struct node *sub, dimid *d)
{
	*d = find_dim_name(c, sub->name, sub->name_at);
	if (*d == NODIM)
		return false;
	if (!has_dim(x, *d)) {
		fail(c, sub->name_at, "%s has no '%s', only %s", base_text(c, base), sub->name,
		     dims_text(c, x));
		return false;
	}
	if (listed(&s->from, *d) || listed(&s->looked, *d)) {
		fail(c, sub->name_at, "'%s' stands twice in this bracket", sub->name);
		return false;
	}
	return true;
}

/* Does a part of the bracket take this dim away? */
static bool leaves(const struct node *list, const char *name)
{
	for (; list; list = list->next)
		if (streq(list->name, name))
			return true;
	return false;
}

static bool add_rename(struct ctx *c, const struct node *n, const struct value *x,
		       const struct node *sub, struct subs *s, dimid from)
{
	dimid to = find_dim_name(c, sub->label, sub->label_at);

	if (to == NODIM)
		return false;
	if (has_dim(x, to) && !leaves(n->list, sub->label)) {
		fail(c, sub->at, "%s already has '%s'", base_text(c, n->a), sub->label);
		return false;
	}
	if (dim_size(c->m, from) != dim_size(c->m, to)) {
		fail(c, sub->at, "'%s' is %lld and '%s' is %lld", sub->name,
		     (long long)dim_size(c->m, from), sub->label, (long long)dim_size(c->m, to));
		hint(c, "a slice is x[%s = index(%s)]", sub->name, sub->label);
		return false;
	}
	s->from.d[s->from.n++] = from;
	s->to.d[s->to.n++] = to;
	return true;
}

static bool check_range(struct ctx *c, const struct node *base, const struct node *sub,
			struct val i, dimid d)
{
	int64_t size = dim_size(c->m, d);

	if (i.x >= 0 && i.x < (double)size)
		return true;
	fail(c, sub->a->at, "index %.15g is outside '%s' (0..%lld)", i.x, sub->name, (long long)(size - 1));
	if (i.kind == V_DIM)
		hint(c, "'%s' here is its size; did you mean %s[%s -> %s]?", base_text(c, sub->a),
		     base_text(c, base), sub->name, base_text(c, sub->a));
	return false;
}

static bool add_lookup(struct ctx *c, const struct node *base, const struct node *sub,
		       struct subs *s, dimid d)
{
	struct val i = eval(c, sub->a, NULL);

	if (i.kind == V_BAD)
		return false;
	if (i.kind != V_TENSOR && !is_number(&i)) {
		fail(c, sub->a->at, "an index must be an int expression");
		return false;
	}
	if (is_number(&i) && !check_range(c, base, sub, i, d))
		return false;
	if (is_float(i.dt)) {
		fail(c, sub->a->at, "the index along '%s' is float", sub->name);
		if (sub->a->kind == N_NAME)
			hint(c, "int(…) truncates; %s @ %s mixes rows", sub->a->name, base_text(c, base));
		else
			hint(c, "int(…) truncates");
		return false;
	}
	struct value *v = value_of(c, i, sub->a->at);
	s->index[s->looked.n] = v->dt == BOOL ? b_cast(here(c, sub->at), v, INT) : v;
	s->looked.d[s->looked.n++] = d;
	return true;
}

/* The renamed dims must not meet dims that stay. */
static bool clash(struct ctx *c, const struct node *n, const struct value *x, const struct subs *s)
{
	for (int i = 0; i < s->to.n; i++) {
		dimid to = s->to.d[i];
		bool stays = has_dim(x, to) && !listed(&s->from, to) && !listed(&s->looked, to);

		for (int k = 0; k < i; k++)
			stays |= s->to.d[k] == to;
		if (stays) {
			fail(c, n->at, "%s already has '%s'", base_text(c, n->a), c->m->dims.at[to].name);
			return true;
		}
	}
	return false;
}

static struct value *apply_renames(struct ctx *c, const struct node *n, struct value *x,
				   const struct subs *s)
{
	dimid d[MAX_DIMS];

	if (!s->from.n)
		return x;
	memcpy(d, x->d, sizeof d);
	for (int i = 0; i < s->from.n; i++)
		d[dim_pos(x, s->from.d[i])] = s->to.d[i];
	struct op *op = op_new(here(c, n->at), OP_RENAME, 1, &x, 1);
	SET(op, dims, s->from);
	SET(op, tos, s->to);
	return op_type(&c->frame->b, op, 0, x->dt, x->nd, d);
}

/* The new dims stand where the first looked-up dim stood. */
static struct val apply_lookups(struct ctx *c, const struct node *n, struct value *x,
				const struct subs *s)
{
	struct value *in[1 + MAX_DIMS] = { x };
	dimid d[(1 + MAX_DIMS) * MAX_DIMS];
	struct value kept = { .nd = 0 };
	int nd = 0;
	bool done = false;

	if (!s->looked.n)
		return tensor(x);
	if (s->looked.n > 7)
		return fail(c, n->at, "more than 7 lookups in one bracket");
	for (int i = 0; i < x->nd; i++)
		if (!listed(&s->looked, x->d[i]))
			kept.d[kept.nd++] = x->d[i];
	for (int i = 0; i < x->nd; i++) {
		if (!listed(&s->looked, x->d[i])) {
			d[nd++] = x->d[i];
			continue;
		}
		for (int k = 0; !done && k < s->looked.n; k++)
			for (int j = 0; j < s->index[k]->nd; j++) {
				struct value so_far = { .nd = 0 };
				dimid new = s->index[k]->d[j];

				for (int q = 0; q < nd && q < MAX_DIMS; q++)
					so_far.d[so_far.nd++] = d[q];
				if (!has_dim(&kept, new) && !has_dim(&so_far, new))
					d[nd++] = new;
			}
		done = true;
	}
	if (!fits(c, nd, d, n->at))
		return call_bad();
	for (int k = 0; k < s->looked.n; k++)
		in[1 + k] = s->index[k];
	struct op *op = op_new(here(c, n->at), OP_LOOKUP, 1 + s->looked.n, in, 1);
	SET(op, dims, s->looked);
	return tensor(op_type(&c->frame->b, op, 0, x->dt, nd, d));
}

static struct val eval_subscript(struct ctx *c, const struct node *n)
{
	struct val base = eval(c, n->a, NULL);
	struct subs s = { .from.n = 0 };
	bool good = true;

	if (base.kind == V_BAD)
		return base;
	if (base.kind != V_TENSOR)
		return fail(c, n->at, "%s has no dims", base_text(c, n->a));
	for (const struct node *sub = n->list; sub; sub = sub->next) {
		dimid d;

		if (!take_dim(c, n->a, base.v, &s, sub, &d))
			good = false;
		else if (sub->kind == N_RENAME)
			good &= add_rename(c, n, base.v, sub, &s, d);
		else
			good &= add_lookup(c, n->a, sub, &s, d);
	}
	if (!good || clash(c, n, base.v, &s))
		return call_bad();
	return apply_lookups(c, n, apply_renames(c, n, import(c, base.v), &s), &s);
}

struct val eval(struct ctx *c, const struct node *n, const struct want *w)
{
	switch (n->kind) {
	case N_NUMBER:
		return val_number(n->whole ? INT : F32, n->number);
	case N_NAME:
		return eval_name(c, n);
	case N_CALL:
		return eval_call(c, n, w);
	case N_UNARY:
		return emit1(c, opcodes[n->op], eval(c, n->a, w), n->at);
	case N_BINARY:
		return eval_binary(c, n, w);
	case N_SUBSCRIPT:
		return eval_subscript(c, n);
	case N_BAD:
		return call_bad();
	case N_WORD:
		return fail(c, n->at, "'%s' is no value", n->name);
	default:
		return fail(c, n->at, "this is no value");
	}
}
