/* The table of functions, and those of them that are one op. */
#include "frontend/lower.h"

#include <math.h>

static struct val make_map1(struct call *k)
{
	return emit1(k->c, k->f->code, arg_open(k, 0), k->n->at);
}

static struct val make_square(struct call *k)
{
	struct val a = arg_open(k, 0);

	return emit2(k->c, OP_MUL, a, a, k->n->at, "square");
}

static struct val make_pow(struct call *k)
{
	struct val a = arg_open(k, 0), b = arg_open(k, 1);

	return emit2(k->c, OP_POW, a, b, k->n->at, "pow");
}

static struct val make_where(struct call *k)
{
	struct val cond = arg_open(k, 0), a = arg_open(k, 1), b = arg_open(k, 2);

	return emit_where(k->c, cond, a, b, k->n->at);
}

static struct val make_gelu(struct call *k)
{
	struct ctx *c = k->c;
	struct val a = arg_open(k, 0), form = { .kind = V_FLAG, .flag = "erf" };
	static const char *const forms[] = { "erf", "tanh", "quick" };

	if (k->arg[1])
		form = arg_value(k, 1);
	if (a.kind == V_BAD || form.kind == V_BAD)
		return call_bad();
	if (form.kind != V_FLAG)
		return fail(c, k->arg[1]->at, "the form of gelu is erf, tanh or quick");
	a = emit1(c, OP_GELU, a, k->n->at);
	for (int i = 0; i < 3 && a.kind == V_TENSOR; i++)
		if (streq(form.flag, forms[i]))
			SET(a.v->def, form, i);
	return a;
}

static struct val make_int(struct call *k)
{
	struct val a = arg_open(k, 0);

	if (is_number(&a))
		return val_number(INT, trunc(a.x));
	if (a.kind != V_TENSOR)
		return emit1(k->c, OP_DETACH, a, k->n->at);
	return tensor(b_cast(here(k->c, k->n->at), import(k->c, a.v), INT));
}

/* Both are one type until the pass `precision` looks at the key. */
static struct val make_width(struct call *k)
{
	struct val a = arg_open(k, 0);

	if (a.kind != V_TENSOR)
		return is_number(&a) ? val_number(F32, a.x) : emit1(k->c, OP_DETACH, a, k->n->at);
	struct value *v = float_of(k->c, a, k->n->at);
	struct val made = copy_of(k->c, v, k->n->at, v->nd, v->d);
	SET(made.v->def, key, k->f->name);
	return made;
}

static struct val make_index(struct call *k)
{
	struct ctx *c = k->c;
	dimid d = arg_dim(k, 0);

	if (d == NODIM)
		return call_bad();
	for (const struct frame *f = c->frame; f->up; f = f->up)
		if (f->dim == d) {
			here(c, k->n->at);
			return tensor(iter_of(c, f));
		}
	return tensor(b_index(here(c, k->n->at), d));
}

/* sum, mean, max and min add their dims to what the statement wants of its operand. */
static struct want wider(const struct call *k, int n, const dimid *d)
{
	struct want w = k->w ? *k->w : (struct want){ .known = false };

	w.known &= n > 0 && w.n + n <= MAX_DIMS;
	for (int i = 0; i < n && w.known; i++) {
		bool has = false;

		for (int j = 0; j < w.n; j++)
			has |= w.d[j] == d[i];
		if (!has)
			w.d[w.n++] = d[i];
	}
	return w;
}

static bool has_all(struct call *k, const struct value *v, int n, const dimid *d)
{
	for (int i = 0; i < n; i++)
		if (!has_dim(v, d[i])) {
			fail(k->c, k->rest[i]->at, "there is no '%s' to reduce, only %s",
			     k->c->m->dims.at[d[i]].name, dims_text(k->c, v));
			return false;
		}
	return true;
}

static struct val reduced(struct call *k, struct val a, int n, const dimid *d)
{
	struct ctx *c = k->c;
	struct builder *b = here(c, k->n->at);
	double count = 1;

	if (k->f->code == OP_RMAX || k->f->code == OP_MIN) {
		bool min = k->f->code == OP_MIN;
		struct value *v = value_of(c, a, k->n->at);

		if (v->dt == BOOL)
			v = b_cast(b, v, INT);
		v = b_reduce(b, OP_RMAX, min ? b_map1(b, OP_NEG, v) : v, n, d);
		return tensor(min ? b_map1(b, OP_NEG, v) : v);
	}
	if (k->f->code != OP_DIV)
		return emit_sum(c, a, n, d, k->n->at);
	for (int i = 0; i < n; i++)
		count *= (double)dim_size(c->m, d[i]);
	if (count == 0) {
		fail(c, k->n->at, "the mean of no elements: [%s] is empty", list_text(c, n, d, ""));
		hint(c, "their sum is 0");
		return call_bad();
	}
	struct value *v = b_reduce(b, OP_SUM, float_of(c, a, k->n->at), n, d);
	return tensor(b_map2(b, OP_MUL, v, b_const(b, F32, 1 / count)));
}

static struct val reduce(struct call *k, struct val a, int n, const dimid *d)
{
	if (a.kind == V_BAD)
		return a;
	if (a.kind != V_TENSOR)
		return n || !is_number(&a) ? fail(k->c, k->n->at, "%s of what has no dims", k->f->name) : a;
	if (!has_all(k, a.v, n, d))
		return call_bad();
	if (n == 0 && a.v->nd == 0)
		return a;
	return n ? reduced(k, a, n, d) : reduced(k, a, a.v->nd, a.v->d);
}

static struct val make_reduce(struct call *k)
{
	dimid d[MAX_DIMS];
	int n = arg_rest(k, d);

	if (n < 0)
		return call_bad();
	struct want w = wider(k, n, d);
	return reduce(k, eval(k->c, k->arg[0], &w), n, d);
}

/* max(a, b) is pointwise, unless b is a dim that a has. */
static struct val make_max(struct call *k)
{
	struct ctx *c = k->c;
	const struct node *second = k->nrest == 1 ? k->rest[0] : NULL;
	struct sym *s = second && second->kind == N_NAME ? find(c, second->name) : NULL;
	bool dim = s && s->val.kind == V_DIM;

	if (!second)
		return make_reduce(k);
	struct want w = wider(k, dim, dim ? &s->val.d : NULL);
	struct val a = eval(c, k->arg[0], dim ? &w : k->w);
	if (dim && a.kind == V_TENSOR && has_dim(a.v, s->val.d))
		return reduce(k, a, 1, &s->val.d);
	return emit2(c, k->f->code == OP_RMAX ? OP_MAX : OP_MIN, a, eval(c, second, k->w), k->n->at,
		     k->f->name);
}

static const struct builtin builtins[] = {
	{ "exp", "x", make_map1, OP_EXP },
	{ "log", "x", make_map1, OP_LOG },
	{ "sqrt", "x", make_map1, OP_SQRT },
	{ "rsqrt", "x", make_map1, OP_RSQRT },
	{ "tanh", "x", make_map1, OP_TANH },
	{ "sigmoid", "x", make_map1, OP_SIGMOID },
	{ "relu", "x", make_map1, OP_RELU },
	{ "silu", "x", make_map1, OP_SILU },
	{ "abs", "x", make_map1, OP_ABS },
	{ "sign", "x", make_map1, OP_SIGN },
	{ "detach", "x", make_map1, OP_DETACH },
	{ "square", "x", make_square, NOP },
	{ "pow", "a b", make_pow, NOP },
	{ "min", "x dims*", make_max, OP_MIN },
	{ "max", "x dims*", make_max, OP_RMAX },
	{ "where", "c a b", make_where, NOP },
	{ "gelu", "x form?", make_gelu, NOP },
	{ "int", "x", make_int, NOP },
	{ "fp32", "x", make_width, NOP },
	{ "bf16", "x", make_width, NOP },
	{ "index", "dim", make_index, NOP },
	{ "sum", "x dims*", make_reduce, OP_SUM },
	{ "mean", "x dims*", make_reduce, OP_DIV },
	{ "lse", "x dim", make_lse, NOP },
	{ "softmax", "x dim", make_softmax, NOP },
	{ "layernorm", "x dim eps?", make_layernorm, NOP },
	{ "rmsnorm", "x dim eps?", make_rmsnorm, NOP },
	{ "l2norm", "x dim", make_l2norm, NOP },
	{ "dropout", "x p dims*", make_dropout, NOP },
	{ "rope", "x positions dim theta?", make_rope, NOP },
	{ "attention", "q k v dim keys causal? window? mask? bias? cap? scale? dropout?",
	  make_attention, NOP },
	{ "cross_entropy", "logits targets dim", make_cross_entropy, NOP },
	{ "nll", "logits targets dim", make_nll, NOP },
	{ "cosine", "peak warmup steps final?", make_schedule, NOP },
	{ "linear", "peak warmup steps final?", make_schedule, NOP },
	{ "wsd", "peak warmup steps decay", make_schedule, NOP },
	{ "constant", "peak warmup?", make_schedule, NOP },
	{ "argmax", "x dim", make_argmax, NOP },
	{ "concat", "a b da db d", make_concat, NOP },
	{ "topk", "x dim k", make_topk, NOP },
	{ "rank", "e dims*", make_rank, NOP },
};
static const struct builtin rsqrt_schedule = { "rsqrt", "peak warmup", make_schedule, NOP };
static const struct builtin scatter = { "scatter", "x index*", make_scatter, NOP };

const struct builtin *find_builtin(const char *name, int nargs)
{
	if (streq(name, "rsqrt") && nargs == 2)
		return &rsqrt_schedule;
	if (streq(name, "scatter"))
		return &scatter;
	for (size_t i = 0; i < LEN(builtins); i++)
		if (streq(name, builtins[i].name))
			return &builtins[i];
	return NULL;
}

void offer_builtins(struct near *n)
{
	for (size_t i = 0; i < LEN(builtins); i++)
		near_offer(n, builtins[i].name);
}
