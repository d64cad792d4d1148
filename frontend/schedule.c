/* Schedules: macros over `step`, which counts from 0 (docs/LANGUAGE.md). */
#include "frontend/lower.h"

#include <math.h>

static struct val num(double x)
{
	return val_number(F32, x);
}

struct maker {
	struct ctx *c;
	struct span at;
};

static struct val op2(const struct maker *m, enum opcode code, struct val a, struct val b)
{
	return emit2(m->c, code, a, b, m->at, "schedule");
}

static struct val step_value(const struct maker *m)
{
	struct op *op = op_new(here(m->c, m->at), OP_STEP, 0, NULL, 1);

	return tensor(b_cast(here(m->c, m->at), op_type(&m->c->frame->b, op, 0, INT, 0, NULL), F32));
}

/* peak (1 + cos(pi u)) / 2 from peak to final; linear: peak - (peak - final) u */
static struct val decay(const struct maker *m, bool cosine, struct val peak, struct val final, struct val u)
{
	struct val span = op2(m, OP_SUB, peak, final), by;

	if (cosine) {
		by = emit1(m->c, OP_COS, op2(m, OP_MUL, u, num(3.14159265358979323846)), m->at);
		by = op2(m, OP_MUL, op2(m, OP_ADD, by, num(1)), num(0.5));
	} else {
		by = op2(m, OP_SUB, num(1), u);
	}
	return op2(m, OP_ADD, final, op2(m, OP_MUL, span, by));
}

/* min(1, (step - from) / (to - from)), at least 0 */
static struct val progress(const struct maker *m, struct val step, struct val from, struct val to)
{
	struct val length = op2(m, OP_MAX, op2(m, OP_SUB, to, from), num(1));
	struct val u = op2(m, OP_DIV, op2(m, OP_SUB, step, from), length);

	return op2(m, OP_MAX, op2(m, OP_MIN, u, num(1)), num(0));
}

struct val make_schedule(struct call *k)
{
	struct ctx *c = k->c;
	struct maker m = { c, k->n->at };
	struct val arg[4] = { { .kind = V_BAD }, num(0), num(1), num(0) };

	for (int i = 0; i < 4; i++) {
		if (k->arg[i])
			arg[i] = arg_value(k, i);
		if (arg[i].kind == V_BAD)
			return call_bad();
		if (!is_number(&arg[i]) && (arg[i].kind != V_TENSOR || arg[i].v->nd))
			return fail(c, k->arg[i]->at, "a schedule takes numbers and expressions over step");
	}
	struct val peak = arg[0], warmup = arg[1], steps = arg[2], step = step_value(&m), rate = peak;
	struct val some = op2(&m, OP_MAX, warmup, num(1));
	struct val rise = op2(&m, OP_MUL, peak, op2(&m, OP_DIV, op2(&m, OP_ADD, step, num(1)), some));

	if (streq(k->f->name, "cosine") || streq(k->f->name, "linear"))
		rate = decay(&m, *k->f->name == 'c', peak, arg[3], progress(&m, step, warmup, steps));
	else if (streq(k->f->name, "wsd"))
		rate = decay(&m, false, peak, num(0),
			     progress(&m, step, op2(&m, OP_SUB, steps, arg[3]), steps));
	else if (streq(k->f->name, "rsqrt"))
		rate = op2(&m, OP_MUL, peak, emit1(c, OP_SQRT, op2(&m, OP_DIV, some,
			   op2(&m, OP_MAX, op2(&m, OP_ADD, step, num(1)), some)), m.at));
	if (is_number(&warmup) && warmup.x <= 0)
		return rate;
	return emit_where(c, op2(&m, OP_LT, step, warmup), rise, rate, m.at);
}
