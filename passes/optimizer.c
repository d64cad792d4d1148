/* passes/optimizer.c - the update of params as ops (docs/LANGUAGE.md).
 *
 * Requires: form LOGICAL, after differentiate: `train` ops, whose operand 0 is the gradient.
 * Leaves: EPILOGUE ops in their place; buffers PATH:m, PATH:v, PATH:row, PATH:col, PATH:master;
 * `grad_norm` reported.
 * Breaks: nothing.
 *
 * Operands of train after the gradient, all without dims:
 *   adamw  lr, weight_decay, beta1, beta2, eps [, clip]
 *   sgd    lr, weight_decay, momentum [, clip]
 *   adafactor  lr, decay, eps, threshold [, clip]
 * With probes the gradient is written to PATH:grad and the update uses PATH:given in its place. */
#include "passes/passes.h"
#include "passes/fixed_order.h"
#include "passes/place.h"

enum { MOST_ACCUM = 64 };

struct train {
	struct op *op;
	struct buffer *param;
	struct value *g;       /* the gradient, float32 */
	struct value *given;   /* what the update uses: g, or with probes the buffer PATH:given */
};

struct norm_group {
	int64_t no;
	VEC(struct train) trains;
};

static struct value *add(struct builder *b, struct value *x, struct value *y)
{
	return b_map2(b, OP_ADD, x, y);
}

static struct value *sub(struct builder *b, struct value *x, struct value *y)
{
	return b_map2(b, OP_SUB, x, y);
}

static struct value *mul(struct builder *b, struct value *x, struct value *y)
{
	return b_map2(b, OP_MUL, x, y);
}

static struct value *quot(struct builder *b, struct value *x, struct value *y)
{
	return b_map2(b, OP_DIV, x, y);
}

static struct value *konst(struct builder *b, double x)
{
	return b_const(b, F32, x);
}

static void write_buffer(struct builder *b, struct value *v, const struct buffer *to)
{
	v = b_cast(b, v, to->dt);
	struct op *op = op_new(b, OP_WRITE, 1, &v, 0);

	SET(op, buf, to->name);
}

/* PATH:what, float32, in the param's dims but `without`. */
static struct buffer *buffer_without(struct module *m, enum role role, const struct buffer *param,
				     const char *what, dimid without)
{
	const char *name = arena_printf(m->mem, "%s:%s", param->name, what);
	struct buffer *b = find_buffer(m, name);
	dimid d[MAX_DIMS];
	int nd = 0;

	for (int i = 0; i < param->nd; i++)
		if (param->d[i] != without)
			d[nd++] = param->d[i];
	if (!b)
		b = module_buffer(m, role, name, F32, nd, d);
	b->owner = param->name;
	b->at = param->at;
	return b;
}

static struct buffer *buffer_of(struct module *m, enum role role, const struct buffer *param,
				const char *what)
{
	return buffer_without(m, role, param, what, NODIM);
}

/* An option may be missing or of another type; the front end gives them all. */
static struct value *option(struct builder *b, const struct op *op, uint32_t i, double otherwise)
{
	return i < op->nin ? b_cast(b, op->in[i], F32) : konst(b, otherwise);
}

static bool is_const(const struct value *v, double x)
{
	return v->def && v->def->code == OP_CONST && v->def->at.value == x;
}

/* step + 1 */
static struct value *step_number(struct builder *b)
{
	struct op *step = op_new(b, OP_STEP, 0, NULL, 1);

	return add(b, b_cast(b, op_type(b, step, 0, INT, 0, NULL), F32), konst(b, 1));
}

/* 1 - beta^(step + 1) */
static struct value *correction(struct builder *b, struct value *beta, struct value *t)
{
	return sub(b, konst(b, 1), b_map2(b, OP_POW, beta, t));
}

static struct value *adamw(struct builder *b, const struct train *t, struct value *p, struct value *g)
{
	struct buffer *mbuf = buffer_of(b->m, B_OPT, t->param, "m");
	struct buffer *vbuf = buffer_of(b->m, B_OPT, t->param, "v");
	struct value *lr = option(b, t->op, 1, 0), *decay = option(b, t->op, 2, 0.01);
	struct value *beta1 = option(b, t->op, 3, 0.9), *beta2 = option(b, t->op, 4, 0.999);
	struct value *eps = option(b, t->op, 5, 1e-8);
	struct value *n = step_number(b);
	struct value *one = konst(b, 1);
	struct value *m = add(b, mul(b, b_read(b, mbuf), beta1), mul(b, g, sub(b, one, beta1)));
	struct value *v = add(b, mul(b, b_read(b, vbuf), beta2),
			      mul(b, mul(b, g, g), sub(b, one, beta2)));
	struct value *mhat = quot(b, m, correction(b, beta1, n));
	struct value *vhat = quot(b, v, correction(b, beta2, n));
	struct value *move = quot(b, mhat, add(b, b_map1(b, OP_SQRT, vhat), eps));

	write_buffer(b, m, mbuf);
	write_buffer(b, v, vbuf);
	if (!is_const(decay, 0))
		move = add(b, move, mul(b, p, decay));
	return sub(b, p, mul(b, move, lr));
}

static struct value *sgd(struct builder *b, const struct train *t, struct value *p, struct value *g)
{
	struct value *lr = option(b, t->op, 1, 0), *decay = option(b, t->op, 2, 0);
	struct value *momentum = option(b, t->op, 3, 0);

	if (!is_const(decay, 0))
		g = add(b, g, mul(b, p, decay));
	if (!is_const(momentum, 0)) {
		struct buffer *mbuf = buffer_of(b->m, B_OPT, t->param, "m");

		g = add(b, mul(b, b_read(b, mbuf), momentum), g);
		write_buffer(b, g, mbuf);
	}
	return sub(b, p, mul(b, g, lr));
}

/* -- adafactor -- */

static struct value *mean(struct builder *b, struct value *x, int n, const dimid *over)
{
	double count = 1;

	for (int i = 0; i < n; i++)
		count *= (double)dim_size(b->m, over[i]);
	return n ? mul(b, b_reduce(b, OP_SUM, x, n, over), konst(b, count ? 1 / count : 0)) : x;
}

/* beta2 of the buffer + (1 - beta2) x, written back. */
static struct value *decayed(struct builder *b, const struct buffer *to, struct value *beta2, struct value *x)
{
	struct value *rest = sub(b, konst(b, 1), beta2);
	struct value *v = add(b, mul(b, b_read(b, to), beta2), mul(b, x, rest));

	write_buffer(b, v, to);
	return v;
}

/* Dims of the param, in memory order, without those of repeats: a layer is a param of its own. */
static int own_dims(const struct module *m, const struct buffer *param, dimid *d)
{
	int n = 0;

	for (int i = 0; i < param->nd; i++)
		if (!is_repeat_dim(m, param->d[i]))
			d[n++] = param->d[i];
	return n;
}

/* g over the root of its second moment: that of rows times that of columns, over their mean. */
static struct value *scaled(struct builder *b, const struct buffer *param, struct value *g, struct value *beta2,
			    struct value *eps, int n, const dimid *own)
{
	struct value *square = add(b, mul(b, g, g), eps);

	if (n < 2) {
		struct buffer *v = buffer_of(b->m, B_OPT, param, "v");

		return mul(b, g, b_map1(b, OP_RSQRT, decayed(b, v, beta2, square)));
	}
	dimid last = own[n - 1], first = own[n - 2];
	struct buffer *rows = buffer_without(b->m, B_OPT, param, "row", last);
	struct buffer *cols = buffer_without(b->m, B_OPT, param, "col", first);
	struct value *row = decayed(b, rows, beta2, mean(b, square, 1, &last));
	struct value *col = decayed(b, cols, beta2, mean(b, square, 1, &first));
	struct value *share = quot(b, row, mean(b, row, 1, &first));

	return mul(b, mul(b, g, b_map1(b, OP_RSQRT, share)), b_map1(b, OP_RSQRT, col));
}

static struct value *adafactor(struct builder *b, const struct train *t, struct value *p, struct value *g)
{
	struct value *lr = option(b, t->op, 1, 0), *decay = option(b, t->op, 2, 0.8);
	struct value *eps = option(b, t->op, 3, 1e-30), *threshold = option(b, t->op, 4, 1);
	dimid own[MAX_DIMS];
	int n = own_dims(b->m, t->param, own);
	struct value *beta2 = sub(b, konst(b, 1), b_map2(b, OP_POW, step_number(b), b_map1(b, OP_NEG, decay)));
	struct value *u = scaled(b, t->param, g, beta2, eps, n, own);
	struct value *rms = b_map1(b, OP_SQRT, mean(b, mul(b, u, u), n, own));
	struct value *over = b_map2(b, OP_MAX, konst(b, 1), quot(b, rms, threshold));

	return sub(b, p, mul(b, quot(b, u, over), lr));
}

/* The param in float32: itself, or its master, whose initial value is the param's. */
static struct buffer *master_of(struct module *m, struct buffer *param)
{
	if (param->dt == F32)
		return param;
	struct buffer *b = buffer_of(m, B_OPT, param, "master");
	b->init = param->init;
	b->init_arg = param->init_arg;
	return b;
}

static void update(struct builder *b, const struct train *t, struct value *scale)
{
	struct buffer *master = master_of(b->m, t->param);
	struct value *p = b_read(b, master);
	struct value *g = scale ? mul(b, t->given, scale) : t->given;
	const char *opt = t->op->at.opt;
	struct value *new = streq(opt, "sgd") ? sgd(b, t, p, g) : streq(opt, "adafactor") ? adafactor(b, t, p, g) :
			    adamw(b, t, p, g);

	write_buffer(b, new, master);
	if (master != t->param)
		write_buffer(b, new, t->param);
}

/* The sum of n values without dims. */
static struct value *total(struct builder *b, struct value **in, uint32_t n)
{
	while (n > 1) {
		uint32_t k = n < MOST_ACCUM ? n : MOST_ACCUM;
		struct op *op = op_new(b, OP_ACCUM, k, in, 1);

		in[0] = op_type(b, op, 0, F32, 0, NULL);
		memmove(in + 1, in + k, (n - k) * sizeof *in);
		n -= k - 1;
	}
	return in[0];
}

/* The global norm of the group's gradients. */
static struct value *norm(struct builder *b, const struct norm_group *group, bool given)
{
	struct value **sums = NEWN(b->m->mem, struct value *, group->trains.n);

	for (uint32_t i = 0; i < group->trains.n; i++) {
		struct train *t = &group->trains.at[i];
		struct value *g = given ? t->given : t->g;

		b->span = t->op->span;
		sums[i] = b->m->deterministic ? g : b_reduce(b, OP_SUM, mul(b, g, g), g->nd, g->d);
	}
	if (b->m->deterministic)
		return b_map1(b, OP_SQRT, sum_of_squares(b, sums, group->trains.n));
	return b_map1(b, OP_SQRT, total(b, sums, group->trains.n));
}

/* The operand `clip` of a train, NULL if it has none. */
static struct value *clip_of(const struct op *op)
{
	uint32_t at = streq(op->at.opt, "sgd") ? 4 : streq(op->at.opt, "adafactor") ? 5 : 6;

	return op->nin > at ? op->in[at] : NULL;
}

static void probe(struct builder *b, struct train *t)
{
	struct buffer *grad = buffer_of(b->m, B_PROBE, t->param, "grad");
	struct buffer *given = buffer_of(b->m, B_PROBE, t->param, "given");

	b->span = t->op->span;
	write_buffer(b, t->g, grad);
	t->given = b_read(b, given);
}

static void expand(struct module *m, struct norm_group *group, bool first)
{
	struct op *op = group->trains.at[0].op;
	struct builder b = { m, &m->top, NULL, EPILOGUE, op->span, NULL, 0 };
	struct value *scale = NULL, *clip = clip_of(op);

	for (uint32_t i = 0; m->deterministic && i < group->trains.n; i++) {
		struct train *t = &group->trains.at[i];

		t->g = t->given = sum_of_uses(&b, t->g);
	}
	for (uint32_t i = 0; m->probes && i < group->trains.n; i++)
		probe(&b, &group->trains.at[i]);
	struct value *n = norm(&b, group, false);
	b.span = op->span;
	struct op *report = op_new(&b, OP_REPORT, 1, &n, 0);
	SET(report, key, first ? "grad_norm" : arena_printf(m->mem, "grad_norm:%d", (int)group->no));
	if (clip) {
		struct value *used = m->probes ? norm(&b, group, true) : n;

		b.span = op->span;
		scale = quot(&b, clip, add(&b, used, konst(&b, 1e-6)));
		scale = b_map2(&b, OP_MIN, konst(&b, 1), scale);
	}
	for (uint32_t i = 0; i < group->trains.n; i++) {
		b.span = group->trains.at[i].op->span;
		update(&b, &group->trains.at[i], scale);
		op_unlink(group->trains.at[i].op);
	}
}

bool pass_optimizer(struct module *m, struct diag *d)
{
	VEC(struct norm_group) groups = { 0 };

	for (struct op *op = m->top.first; op; op = op->next) {
		uint32_t i = 0;

		if (op->code != OP_TRAIN)
			continue;
		struct train t = { op, find_buffer(m, op->at.buf), op->in[0], op->in[0] };
		if (!t.param)
			return diag_error(d, op->span, "there is no param '%s' to train", op->at.buf);
		while (i < groups.n && groups.at[i].no != op->at.group)
			i++;
		if (i == groups.n)
			PUSH(m->mem, &groups, (struct norm_group){ .no = op->at.group });
		PUSH(m->mem, &groups.at[i].trains, t);
	}
	for (uint32_t i = 0; i < groups.n; i++)
		expand(m, &groups.at[i], i == 0);
	return true;
}
