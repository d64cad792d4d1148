/* passes/simplify.c - constants, identities, equal ops, dead ops; lookups that are views (views.c).
 *
 * Requires: form LOGICAL. Runs before and after differentiate.
 * Leaves: the same values under the same names; no op whose result nobody reads.
 * Breaks: nothing. `of` of a gradient op may become NULL if its forward op has gone; two equal ops
 * become the first of them, with its `of`.
 *
 * While a sweep is at work, aux of a value is what it is replaced by, and aux of an op that has
 * gone is the op in its place. */
#include <math.h>

#include "passes/passes.h"
#include "passes/views.h"

static struct value *now(struct value *v)
{
	while (v->aux)
		v = v->aux;
	return v;
}

static bool is_const(const struct value *v)
{
	return v->def && v->def->code == OP_CONST;
}

static bool is_number(const struct value *v, double x)
{
	return is_const(v) && v->def->at.value == x;
}

/* old can be new: same numbers, same type, and no name is lost. */
static bool may_replace(const struct value *old, struct value *new)
{
	if (old == new || old->dt != new->dt || !same_dims(old, new))
		return false;
	if (!old->name || !old->nd || streq(old->name, new->name))
		return true;
	if (new->name || !new->def || new->def->code == OP_READ || new->home != old->home)
		return false;
	new->name = old->name;
	new->span = old->span;
	return true;
}

/* -- constants -- */

static double fold1(const struct op *op, double a)
{
	switch (op->code) {
	case OP_NEG: return -a;
	case OP_EXP: return exp(a);
	case OP_LOG: return log(a);
	case OP_SQRT: return sqrt(a);
	case OP_RSQRT: return 1 / sqrt(a);
	case OP_TANH: return tanh(a);
	case OP_SIGMOID: return 1 / (1 + exp(-a));
	case OP_SIN: return sin(a);
	case OP_COS: return cos(a);
	case OP_ABS: return fabs(a);
	case OP_SIGN: return (a > 0) - (a < 0);
	case OP_NOT: return a == 0;
	case OP_RELU: return a > 0 ? a : 0;
	case OP_DRELU: return a > 0;
	case OP_CAST:
		if (op->out[0]->dt == INT)
			return trunc(a);
		return op->out[0]->dt == BOOL ? a != 0 : a;
	default: return NAN;
	}
}

static double fold2(enum opcode code, enum dtype dt, double a, double b)
{
	switch (code) {
	case OP_ADD: return a + b;
	case OP_SUB: return a - b;
	case OP_MUL: return a * b;
	case OP_DIV: return a / b;
	case OP_FLOORDIV: return floor_quotient(dt, a, b);
	case OP_MOD: return a - b * floor_quotient(dt, a, b);
	case OP_POW: return pow(a, b);
	case OP_MIN: return a < b ? a : b;
	case OP_MAX: return a > b ? a : b;
	case OP_EQ: return a == b;
	case OP_NE: return a != b;
	case OP_LT: return a < b;
	case OP_LE: return a <= b;
	case OP_GT: return a > b;
	case OP_GE: return a >= b;
	case OP_AND: return a != 0 && b != 0;
	case OP_OR: return a != 0 || b != 0;
	default: return NAN;
	}
}

static struct value *make_const(struct module *m, struct op *op, double x)
{
	struct builder b = { m, op->home, op, op->phase, op->span, op->of, op->at.where };
	struct value *r = op->out[0];
	struct op *c = op_new(&b, OP_CONST, 0, NULL, 1);

	SET(c, value, x);
	return op_type(&b, c, 0, r->dt, r->nd, r->d);
}

/* A pointwise op of constants. Results that no number stands for (NaN) stay as they are. */
static struct value *fold(struct module *m, struct op *op)
{
	double x = NAN, a[3] = { 0 };

	if (opinfo[op->code].class != C_MAP || !op->nin || op->nin > 3 || op->code == OP_DETACH ||
	    (op->code == OP_CAST && HAS(op, key)))
		return NULL;
	for (uint32_t i = 0; i < op->nin; i++) {
		if (!is_const(op->in[i]))
			return NULL;
		a[i] = op->in[i]->def->at.value;
	}
	if (op->code == OP_ACCUM)
		x = a[0] + a[1] + a[2];
	else if (op->nin == 1)
		x = fold1(op, a[0]);
	else if (op->nin == 2)
		x = fold2(op->code, op->out[0]->dt, a[0], a[1]);
	else if (op->code == OP_WHERE)
		x = a[0] != 0 ? a[1] : a[2];
	if (!isfinite(x) || (op->out[0]->dt == INT && fabs(x) > INT32_MAX))
		return NULL;
	return make_const(m, op, op->out[0]->dt == INT ? trunc(x) : x);
}

/* -- identities -- */

/* A cast to more bits and back to the type it came from. */
static bool there_and_back(const struct op *cast)
{
	const struct op *up = cast->in[0]->def;

	return up && up->code == OP_CAST && !HAS(up, key) && up->in[0]->dt == BF16 && up->out[0]->dt == F32 && cast->out[0]->dt == BF16;
}

static struct value *same_as_operand(const struct op *op)
{
	struct value *a = op->nin ? op->in[0] : NULL, *b = op->nin > 1 ? op->in[1] : NULL;

	switch (op->code) {
	case OP_ADD:
		return is_number(b, 0) ? a : is_number(a, 0) ? b : NULL;
	case OP_SUB:
		return is_number(b, 0) ? a : NULL;
	case OP_MUL:
		return is_number(b, 1) ? a : is_number(a, 1) ? b : NULL;
	case OP_DIV:
	case OP_POW:
		return is_number(b, 1) ? a : NULL;
	case OP_FLOORDIV:
		return is_number(b, 1) && a->dt == INT ? a : NULL;
	case OP_AND:
		return is_const(b) && b->def->at.value != 0 ? a : is_const(a) && a->def->at.value != 0 ? b : NULL;
	case OP_OR:
		return is_number(b, 0) ? a : is_number(a, 0) ? b : NULL;
	case OP_WHERE:
		if (is_const(a))
			return a->def->at.value != 0 ? b : op->in[2];
		return b == op->in[2] ? b : NULL;
	case OP_NEG:
	case OP_NOT:
		return a->def && a->def->code == op->code ? a->def->in[0] : NULL;
	case OP_CAST:
		return HAS(op, key) ? NULL : there_and_back(op) ? a->def->in[0] : a; /* a mark for pass precision */
	case OP_SUM:
	case OP_RMAX:
		return a; /* over nothing, if the dims are the same */
	case OP_ROLL:
		return op->at.shift == 0 ? a : NULL;
	case OP_ACCUM:
		return op->nin == 1 && !memcmp(a->d, op->out[0]->d, sizeof a->d) ? a : NULL;
	default:
		return NULL;
	}
}

/* Zeros among the terms of a sum go; what they were needed for (dims) stays. */
static void drop_zeros(struct op *op)
{
	dimid d[MAX_DIMS];

	for (uint32_t i = 0; i < op->nin && op->nin > 1; i++) {
		int nd = 0;

		if (!is_number(op->in[i], 0))
			continue;
		for (uint32_t k = 0; k < op->nin; k++)
			if (k != i)
				nd = union_dims(nd, d, op->in[k]);
		if (nd != op->out[0]->nd)
			continue;
		memmove(op->in + i, op->in + i + 1, (op->nin - i - 1) * sizeof *op->in);
		op->nin--;
		i--;
	}
}

/* pow(x, 2) and 0 - x in simpler ops; const div to mul would round otherwise and stays. */
static struct value *other_op(struct module *m, struct op *op)
{
	struct builder b = { m, op->home, op, op->phase, op->span, op->of, op->at.where };

	if (op->code == OP_POW && is_number(op->in[1], 2) && op->in[0]->dt == op->out[0]->dt)
		return b_map2(&b, OP_MUL, op->in[0], op->in[0]);
	if (op->code == OP_SUB && is_number(op->in[0], 0) && op->in[1]->dt == op->out[0]->dt)
		return b_map1(&b, OP_NEG, op->in[1]);
	return NULL;
}

/* -- loops -- */

/* Operand and argument i of a repeat, carried but never changed, as its first invariant. */
static void demote(struct op *op, uint32_t i)
{
	struct block *body = op->body;
	uint32_t last = (uint32_t)op->at.ncarry - 1;
	struct value *in = op->in[i], *arg = body->args.at[i];

	op->out[i]->aux = op->in[i];
	for (uint32_t k = i; k < last; k++) {
		op->in[k] = op->in[k + 1];
		body->args.at[k] = body->args.at[k + 1];
		body->args.at[k]->no = k;
	}
	op->in[last] = in;
	body->args.at[last] = arg;
	arg->no = last;
	for (uint32_t k = i; k + 1 < op->nout; k++) {
		op->out[k] = op->out[k + 1];
		op->out[k]->no = k;
		body->yields.at[k] = body->yields.at[k + 1];
	}
	op->nout--;
	body->yields.n--;
	op->at.ncarry--;
	SET(op, nwith, op->at.nwith + 1);
}

/* Two operands of one kind that are the same value: the body uses the first. */
static void join_operands(struct op *op)
{
	uint32_t nc = (uint32_t)op->at.ncarry, nw = nc + (uint32_t)op->at.nwith;

	for (uint32_t i = nc; i < op->nin; i++)
		for (uint32_t k = i < nw ? nc : nw; k < i; k++)
			if (op->in[k] == op->in[i]) {
				op->body->args.at[i]->aux = op->body->args.at[k];
				break;
			}
}

static bool fold_block(struct module *m, struct block *block);

/* Is carried value i never changed, or the same number before and after each iteration? */
static bool stays(const struct op *op, uint32_t i)
{
	const struct value *init = now(op->in[i]), *yield = op->body->yields.at[i];

	return yield == op->body->args.at[i] ||
	       (is_const(init) && is_number(yield, init->def->at.value) && same_dims(init, yield));
}

static bool fold_repeat(struct module *m, struct op *op)
{
	bool any = false;

	for (uint32_t i = 0; i < op->body->args.n; i++)
		op->body->args.at[i]->aux = NULL;
	join_operands(op);
	any |= fold_block(m, op->body);
	for (uint32_t i = 0; i < (uint32_t)op->at.ncarry; i++)
		if (stays(op, i) && op->in[i]->dt == op->out[i]->dt) {
			demote(op, i--);
			any = true;
		}
	return any;
}

static bool fold_op(struct module *m, struct op *op)
{
	struct value *r = op->nout == 1 ? op->out[0] : NULL, *v = NULL;

	if (op->code == OP_REPEAT)
		return fold_repeat(m, op);
	if (!r || opinfo[op->code].class == C_STEP || opinfo[op->code].class == C_LEAF)
		return false;
	if (op->code == OP_ACCUM)
		drop_zeros(op);
	v = same_as_operand(op);
	if (v && may_replace(r, v)) {
		r->aux = v;
		return true;
	}
	v = fold(m, op);
	if (!v)
		v = other_op(m, op);
	if (!v && op->code == OP_LOOKUP)
		v = lookup_view(m, op);
	if (!v || !may_replace(r, v))
		return false;
	r->aux = v;
	return true;
}

static bool fold_block(struct module *m, struct block *block)
{
	bool any = false;

	for (struct op *op = block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nin; i++)
			op->in[i] = now(op->in[i]);
		any |= fold_op(m, op);
	}
	for (uint32_t i = 0; i < block->yields.n; i++)
		block->yields.at[i] = now(block->yields.at[i]);
	return any;
}

/* -- equal ops -- */

static bool same_op(const struct op *a, const struct op *b)
{
	if (a->code != b->code || a->phase != b->phase || a->nin != b->nin || a->nout != b->nout)
		return false;
	for (uint32_t i = 0; i < a->nin; i++)
		if (a->in[i] != b->in[i])
			return false;
	for (uint32_t i = 0; i < a->nout; i++) {
		const struct value *x = a->out[i], *y = b->out[i];

		if (x->dt != y->dt || x->nd != y->nd || (x->nd && memcmp(x->d, y->d, x->nd * sizeof *x->d)))
			return false;
	}
	return op_same_attrs(a, b);
}

static uint64_t hash_op(const struct op *op)
{
	uint64_t h = fnv1a(FNV_START, &op->code, sizeof op->code);

	for (uint32_t i = 0; i < op->nin; i++)
		h = fnv1a(h, &op->in[i]->id, sizeof op->in[i]->id);
	if (HAS(op, value))
		h = fnv1a(h, &op->at.value, sizeof op->at.value);
	if (HAS(op, buf))
		h = fnv1a(h, op->at.buf, strlen(op->at.buf));
	if (HAS(op, dim))
		h = fnv1a(h, &op->at.dim, sizeof op->at.dim);
	return h;
}

static bool is_pure(const struct op *op)
{
	enum opclass c = opinfo[op->code].class;

	return op->nout && c != C_STEP && c != C_REGION && c != C_COMM;
}

/* b, equal to a, becomes a. All results or none: names may forbid it. */
static bool merge(struct op *a, struct op *b)
{
	for (uint32_t i = 0; i < b->nout; i++) {
		const char *x = a->out[i]->name, *y = b->out[i]->name;

		if (x && y && !streq(x, y) && b->out[i]->nd)
			return false;
	}
	for (uint32_t i = 0; i < b->nout; i++) {
		if (!a->out[i]->name && b->out[i]->name) {
			a->out[i]->name = b->out[i]->name;
			a->out[i]->span = b->out[i]->span;
		}
		b->out[i]->aux = a->out[i];
	}
	b->aux = a;
	return true;
}

static bool join_equal(struct module *m, struct block *block)
{
	uint32_t n = 0, size = 64;
	bool any = false;

	for (struct op *op = block->first; op; op = op->next, n++)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
	while (size < 2 * n)
		size *= 2;
	struct op **table = NEWN(m->mem, struct op *, size);
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nin; i++)
			op->in[i] = now(op->in[i]);
		if (op->body) {
			any |= join_equal(m, op->body);
			continue;
		}
		if (!is_pure(op))
			continue;
		uint32_t at = (uint32_t)hash_op(op) & (size - 1);
		while (table[at] && !(same_op(table[at], op) && merge(table[at], op)))
			at = (at + 1) & (size - 1);
		if (table[at])
			any = true;
		else
			table[at] = op;
	}
	for (uint32_t i = 0; i < block->yields.n; i++)
		block->yields.at[i] = now(block->yields.at[i]);
	return any;
}

/* -- dead ops; mark: 1 is read -- */

static void mark_block(struct block *block);

/* From the results that are read to the operands that are. */
static void mark_repeat(struct op *op)
{
	struct block *body = op->body;
	uint32_t nc = (uint32_t)op->at.ncarry;
	bool again = true;

	for (uint32_t i = 0; i < op->nout; i++)
		if (op->out[i]->mark)
			body->yields.at[i]->mark = 1;
	while (again) {
		again = false;
		mark_block(body);
		for (uint32_t i = 0; i < nc; i++)
			if ((body->args.at[i]->mark || op->out[i]->mark) &&
			    !(body->args.at[i]->mark && body->yields.at[i]->mark && op->out[i]->mark)) {
				body->args.at[i]->mark = body->yields.at[i]->mark = op->out[i]->mark = 1;
				again = true;
			}
	}
	for (uint32_t i = 0; i < op->nin; i++)
		if (body->args.at[i]->mark)
			op->in[i]->mark = 1;
}

static bool is_root(const struct op *op)
{
	if (op->body)
		for (const struct op *o = op->body->first; o; o = o->next)
			if (is_root(o))
				return true;
	return opinfo[op->code].class == C_STEP;
}

static void mark_block(struct block *block)
{
	for (struct op *op = block->last; op; op = op->prev) {
		bool live = is_root(op);

		for (uint32_t i = 0; i < op->nout; i++)
			live |= op->out[i]->mark != 0;
		if (!live)
			continue;
		op->mark = 1;
		if (op->code == OP_REPEAT) {
			mark_repeat(op);
			continue;
		}
		for (uint32_t i = 0; i < op->nin; i++)
			op->in[i]->mark = 1;
	}
}

/* Takes the operands and results of a repeat away that nobody reads. */
static bool prune(struct arena *mem, struct op *op)
{
	struct block *body = op->body;
	uint32_t nc = (uint32_t)op->at.ncarry, nw = nc + (uint32_t)op->at.nwith, n = 0;
	int64_t ncarry = 0, nwith = 0;
	struct bits acc = { 0 };
	bool any = false;

	for (uint32_t i = 0; i < op->nin; i++) {
		if (!body->args.at[i]->mark) {
			any = true;
			continue;
		}
		ncarry += i < nc;
		nwith += i >= nc && i < nw;
		op->in[n] = op->in[i];
		body->args.at[n] = body->args.at[i];
		body->args.at[n]->no = n;
		n++;
	}
	op->nin = body->args.n = n;
	n = 0;
	for (uint32_t i = 0; i < op->nout; i++) {
		if (!op->out[i]->mark) {
			any = true;
			continue;
		}
		if (repeat_adds(op, i))
			acc = bits_with(mem, acc, n - ncarry);
		op->out[n] = op->out[i];
		op->out[n]->no = n;
		body->yields.at[n] = body->yields.at[i];
		n++;
	}
	op->nout = body->yields.n = n;
	op->at.ncarry = ncarry;
	op->at.nwith = nwith;
	op->at.acc = acc;
	return any;
}

static bool sweep_block(struct arena *mem, struct block *block)
{
	bool any = false;

	for (struct op *op = block->first, *next; op; op = next) {
		next = op->next;
		if (!op->mark) {
			op_unlink(op);
			any = true;
			continue;
		}
		if (op->code == OP_REPEAT)
			any |= prune(mem, op);
		if (op->body)
			any |= sweep_block(mem, op->body);
	}
	return any;
}

/* Forward ops that have gone: the one in their place, or none. */
static void mend_of(struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		while (op->of && !op->of->mark)
			op->of = op->of->aux;
		if (op->body)
			mend_of(op->body);
	}
}

static void forget(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->aux = NULL;
	for (struct op *op = block->first; op; op = op->next) {
		op->aux = NULL;
		if (op->of)
			op->of->aux = NULL;
		if (op->body)
			forget(op->body);
	}
}

static bool drop_dead(struct module *m)
{
	block_unmark(&m->top);
	mark_block(&m->top);
	bool any = sweep_block(m->mem, &m->top);
	mend_of(&m->top);
	return any;
}

void join_equal_ops(struct module *m)
{
	forget(&m->top);
	join_equal(m, &m->top);
	drop_dead(m);
}

bool pass_simplify(struct module *m, struct diag *d)
{
	(void)d;
	for (int round = 0; round < 8; round++) {
		bool any;

		forget(&m->top);
		any = fold_block(m, &m->top);
		any |= join_equal(m, &m->top);
		any |= drop_dead(m);
		if (!any)
			break;
	}
	return true;
}
