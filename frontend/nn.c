/* Functions that are formulas over primitive ops (docs/LANGUAGE.md says what each means). */
#include "frontend/lower.h"

#include <math.h>

static struct builder *at(struct call *k)
{
	return here(k->c, k->n->at);
}

/* Argument i as floats that have d; *v is the tensor. */
bool arg_float(struct call *k, int i, struct val *v, const struct value **t, dimid d)
{
	if (v->kind == V_BAD)
		return false;
	if (v->kind != V_TENSOR) {
		fail(k->c, k->arg[i]->at, "argument %d of %s has no dims", i + 1, k->f->name);
		return false;
	}
	if (d != NODIM && !has_dim(v->v, d)) {
		fail(k->c, k->arg[i]->at, "argument %d of %s has no '%s', only %s", i + 1, k->f->name,
		     k->c->m->dims.at[d].name, dims_text(k->c, v->v));
		return false;
	}
	*v = tensor(float_of(k->c, *v, k->arg[i]->at));
	*t = v->v;
	return true;
}

/* f(x, dim, ...): x and dim; NULL after a message. */
static struct value *x_and_dim(struct call *k, dimid *d)
{
	struct val x = arg_open(k, 0);
	const struct value *t;

	*d = arg_dim(k, 1);
	if (*d == NODIM || !arg_float(k, 0, &x, &t, *d))
		return NULL;
	return x.v;
}

static struct value *shifted_exp(struct builder *b, struct value *z, dimid d, struct value **most)
{
	*most = b_map1(b, OP_DETACH, b_reduce(b, OP_RMAX, z, 1, &d));
	return b_map1(b, OP_EXP, b_map2(b, OP_SUB, z, *most));
}

struct val make_softmax(struct call *k)
{
	dimid d;
	struct value *z = x_and_dim(k, &d), *most;

	if (!z)
		return call_bad();
	struct value *e = shifted_exp(at(k), z, d, &most);
	return tensor(b_map2(at(k), OP_DIV, e, b_reduce(at(k), OP_SUM, e, 1, &d)));
}

static struct value *log_sum_exp(struct builder *b, struct value *z, dimid d)
{
	struct value *most, *e = shifted_exp(b, z, d, &most);

	return b_map2(b, OP_ADD, b_map1(b, OP_LOG, b_reduce(b, OP_SUM, e, 1, &d)), most);
}

struct val make_lse(struct call *k)
{
	struct val z = arg_value(k, 0);
	dimid d = arg_dim(k, 1);
	const struct value *t;

	if (d == NODIM || !arg_float(k, 0, &z, &t, d))
		return call_bad();
	return tensor(log_sum_exp(at(k), z.v, d));
}

static struct value *mean_over(struct call *k, struct value *x, dimid d)
{
	struct builder *b = at(k);
	double n = (double)dim_size(k->c->m, d);

	return b_map2(b, OP_MUL, b_reduce(b, OP_SUM, x, 1, &d), b_const(b, F32, 1 / n));
}

static struct value *over_rms(struct call *k, struct value *x, dimid d, double eps)
{
	struct builder *b = at(k);
	struct value *var = mean_over(k, b_map2(b, OP_MUL, x, x), d);

	return b_map2(b, OP_MUL, x, b_map1(b, OP_RSQRT, b_map2(b, OP_ADD, var, b_const(b, F32, eps))));
}

struct val make_layernorm(struct call *k)
{
	double eps = 1e-5;
	dimid d;
	struct value *x = x_and_dim(k, &d);

	if (!x || !arg_number(k, 2, &eps))
		return call_bad();
	x = b_map2(at(k), OP_SUB, x, mean_over(k, x, d));
	return tensor(over_rms(k, x, d, eps));
}

struct val make_rmsnorm(struct call *k)
{
	double eps = 1e-5;
	dimid d;
	struct value *x = x_and_dim(k, &d);

	if (!x || !arg_number(k, 2, &eps))
		return call_bad();
	return tensor(over_rms(k, x, d, eps));
}

struct val make_l2norm(struct call *k)
{
	dimid d;
	struct value *x = x_and_dim(k, &d);

	if (!x)
		return call_bad();
	struct builder *b = at(k);
	struct value *sum = b_reduce(b, OP_SUM, b_map2(b, OP_MUL, x, x), 1, &d);
	sum = b_map2(b, OP_MAX, sum, b_const(b, F32, 1e-24));
	return tensor(b_map2(b, OP_MUL, x, b_map1(b, OP_RSQRT, sum)));
}

/* -- random masks -- */

/* "layers.x#1": the path of the statement, and how many masks it has made before. */
const char *mask_key(struct ctx *c)
{
	int n = 0;

	for (uint32_t i = 0; i < c->keys.n; i++)
		n += streq(c->keys.at[i], c->statement);
	PUSH(c->mem, &c->keys, c->statement);
	return arena_printf(c->mem, "%s#%d", c->statement, n);
}

/* The iterations of the repeats around, outermost first. */
int iterations(struct ctx *c, struct value **in)
{
	const struct frame *frames[MAX_DIMS];
	int n = 0;

	for (const struct frame *f = c->frame; f->up && n < MAX_DIMS; f = f->up)
		frames[n++] = f;
	for (int i = 0; i < n; i++)
		in[i] = iter_of(c, frames[n - 1 - i]);
	return n;
}

bool arg_probability(struct call *k, int i, double *p)
{
	if (!arg_number(k, i, p))
		return false;
	if (*p >= 0 && *p < 1)
		return true;
	fail(k->c, k->arg[i]->at, "the rate of dropout is %g; it must be at least 0 and below 1", *p);
	return false;
}

static struct val masked(struct call *k, struct value *x, double p, int n, const dimid *d)
{
	struct builder *b = at(k);
	struct value *iters[MAX_DIMS];
	int depth = iterations(k->c, iters);
	struct dimlist dims = { .n = (uint8_t)n };

	if (depth > 4)
		return fail(k->c, k->n->at, "dropout inside more than 4 repeats");
	memcpy(dims.d, d, (size_t)n * sizeof *d);
	struct op *rng = op_new(b, OP_RNG, (uint32_t)depth, iters, 1);
	SET(rng, key, mask_key(k->c));
	SET(rng, dims, dims);
	struct value *u = op_type(b, rng, 0, F32, n, d);
	struct op *training = op_new(b, OP_TRAINING, 0, NULL, 1);
	struct value *on = op_type(b, training, 0, BOOL, 0, NULL);
	struct value *keep = b_map2(b, OP_OR, b_map2(b, OP_GE, u, b_const(b, F32, p)),
				    b_map1(b, OP_NOT, on));
	struct value *by = b_where(b, on, b_const(b, F32, 1 / (1 - p)), b_const(b, F32, 1));
	struct value *out = b_where(b, keep, b_map2(b, OP_MUL, x, by), b_const(b, F32, 0));
	return tensor(out);
}

struct val make_dropout(struct call *k)
{
	struct val x = arg_open(k, 0);
	const struct value *t;
	dimid d[MAX_DIMS];
	double p = 0;
	int n = arg_rest(k, d);

	if (n < 0 || !arg_float(k, 0, &x, &t, NODIM) || !arg_probability(k, 1, &p))
		return call_bad();
	for (int i = 0; i < n; i++)
		if (!has_dim(t, d[i]))
			return fail(k->c, k->rest[i]->at, "there is no '%s', only %s",
				    k->c->m->dims.at[d[i]].name, dims_text(k->c, t));
	if (p == 0)
		return x;
	return n ? masked(k, x.v, p, n, d) : masked(k, x.v, p, t->nd, t->d);
}

/* -- rope -- */

static struct value *angles(struct call *k, struct value *pos, dimid d, double theta)
{
	struct builder *b = at(k);
	double n = (double)dim_size(k->c->m, d);
	struct value *j = b_map2(b, OP_MOD, b_index(b, d), b_const(b, INT, n / 2));
	struct value *power = b_map2(b, OP_MUL, b_cast(b, j, F32), b_const(b, F32, -2 / n));

	return b_map2(b, OP_MUL, b_cast(b, pos, F32), b_map2(b, OP_POW, b_const(b, F32, theta), power));
}

static struct value *positions(struct call *k)
{
	struct ctx *c = k->c;
	struct sym *s = k->arg[1]->kind == N_NAME ? find(c, k->arg[1]->name) : NULL;
	struct val p;

	if (s && s->val.kind == V_DIM)
		return b_index(at(k), s->val.d);
	p = arg_value(k, 1);
	if (p.kind == V_TENSOR && p.dt == INT)
		return import(c, p.v);
	if (p.kind != V_BAD)
		fail(c, k->arg[1]->at, "the positions of rope are a dim or an int tensor");
	return NULL;
}

struct val make_rope(struct call *k)
{
	struct ctx *c = k->c;
	struct val x = arg_open(k, 0);
	struct value *pos = positions(k);
	dimid d = arg_dim(k, 2);
	const struct value *t;
	double theta = 10000;

	if (!pos || d == NODIM || !arg_float(k, 0, &x, &t, d) || !arg_number(k, 3, &theta))
		return call_bad();
	int64_t n = dim_size(c->m, d);
	if (n % 2)
		return fail(c, k->arg[2]->at, "rope turns pairs, and '%s' is %lld",
			    c->m->dims.at[d].name, (long long)n);
	if (theta <= 0)
		return fail(c, k->arg[3]->at, "theta must be positive");
	for (int i = 0; i < pos->nd; i++)
		if (!has_dim(t, pos->d[i]))
			return fail(c, k->arg[1]->at, "argument 1 of rope has no '%s', only %s",
				    c->m->dims.at[pos->d[i]].name, dims_text(c, t));
	struct builder *b = at(k);
	struct value *angle = angles(k, pos, d, theta);
	struct op *roll = op_new(b, OP_ROLL, 1, &x.v, 1);
	SET(roll, dim, d);
	SET(roll, shift, n / 2);
	struct value *turned = op_type(b, roll, 0, F32, t->nd, t->d);
	struct value *first = b_map2(b, OP_LT, b_index(b, d), b_const(b, INT, (double)(n / 2)));
	struct value *sign = b_where(b, first, b_const(b, F32, -1), b_const(b, F32, 1));
	struct value *sine = b_map2(b, OP_MUL, sign, b_map1(b, OP_SIN, angle));
	struct value *straight = b_map2(b, OP_MUL, x.v, b_map1(b, OP_COS, angle));
	return tensor(b_map2(b, OP_ADD, straight, b_map2(b, OP_MUL, turned, sine)));
}

/* -- losses -- */

static bool loss_arguments(struct call *k, struct value **z, struct value **t, dimid *d)
{
	struct ctx *c = k->c;
	struct val logits = arg_value(k, 0), targets = arg_value(k, 1);

	*d = arg_dim(k, 2);
	if (logits.kind == V_BAD || targets.kind == V_BAD || *d == NODIM)
		return false;
	if (logits.kind != V_TENSOR || !has_dim(logits.v, *d)) {
		fail(c, k->arg[0]->at, "the logits have no '%s', only %s", c->m->dims.at[*d].name,
		     logits.kind == V_TENSOR ? dims_text(c, logits.v) : "a number");
		return false;
	}
	if (targets.kind != V_TENSOR || targets.dt != INT) {
		fail(c, k->arg[1]->at, "the targets of %s must be an int tensor", k->f->name);
		return false;
	}
	*z = float_of(c, logits, k->n->at);
	*t = import(c, targets.v);
	if (has_dim(*t, *d)) {
		fail(c, k->arg[1]->at, "the targets have '%s' themselves", c->m->dims.at[*d].name);
		return false;
	}
	for (int i = 0; i < (*z)->nd; i++)
		if ((*z)->d[i] != *d && !has_dim(*t, (*z)->d[i])) {
			fail(c, k->n->at, "the logits have '%s', the targets only %s",
			     c->m->dims.at[(*z)->d[i]].name, dims_text(c, *t));
			return false;
		}
	return true;
}

static struct value *nll(struct call *k, struct value *z, struct value *t, dimid d, struct value **valid)
{
	struct builder *b = at(k);
	struct value *hit = b_map2(b, OP_EQ, t, b_index(b, d));
	struct value *picked = b_where(b, hit, z, b_const(b, F32, 0));
	struct value *loss = b_map2(b, OP_SUB, log_sum_exp(b, z, d), b_reduce(b, OP_SUM, picked, 1, &d));

	*valid = b_map2(b, OP_NE, t, b_const(b, INT, -100));
	return b_where(b, *valid, loss, b_const(b, F32, 0));
}

struct val make_nll(struct call *k)
{
	struct value *z, *t, *valid;
	dimid d;

	if (!loss_arguments(k, &z, &t, &d))
		return call_bad();
	return tensor(nll(k, z, t, d, &valid));
}

struct val make_cross_entropy(struct call *k)
{
	struct builder *b = at(k);
	struct value *z, *t, *valid;
	dimid d;

	if (!loss_arguments(k, &z, &t, &d))
		return call_bad();
	struct value *each = nll(k, z, t, d, &valid);
	struct value *count = b_reduce(b, OP_SUM, b_cast(b, valid, F32), valid->nd, valid->d);
	struct value *sum = b_reduce(b, OP_SUM, each, each->nd, each->d);
	return tensor(b_map2(b, OP_DIV, sum, b_map2(b, OP_MAX, count, b_const(b, F32, 1))));
}
