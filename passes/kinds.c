/* passes/kinds.c - the kind of every value: a type system of six values that says
 * what a value depends on, hence how often it must be computed, and which uses of a sum over the
 * batch are legal when the batch comes in microbatches.
 *
 *   const  nothing but the step, positions and random numbers
 *   input  inputs only                    param  params and states (and inputs' whole sums) only
 *   inner  both, and has the batch dim    sum    linear in sums of inner values over the batch
 *   fn     any other function of sums
 *
 * A pipeline cuts a repeat into stages, and what its iterations carry on passes from one to the next in a
 * microbatch: it is inner, whatever it is made of, but for what they only add to.
 */
#include "passes/kinds.h"

struct kinds {
	struct module *m;
	struct diag *d; /* NULL: do not report */
	dimid batch;
	int errors;     /* before this pass */
	VEC(const struct value *) refused;
};

static enum kind join(const struct kinds *k, enum kind a, enum kind b, const struct value *v)
{
	enum kind lo = a < b ? a : b, hi = a < b ? b : a;

	if (lo == K_CONST || lo == hi)
		return hi;
	if (hi == K_PARAM)
		return has_dim(v, k->batch) ? K_INNER : K_PARAM;
	return hi;
}

static const char *what_of(const struct value *v)
{
	return v->name ? v->name : v->def ? opinfo[v->def->code].name : "a value";
}

/* The sum over the batch that v is made of. */
static const struct value *origin(const struct value *v)
{
	for (int steps = 0; steps < 10000; steps++) {
		const struct value *from = NULL;

		if (!v->def && v->home->owner && v->no < v->home->owner->at.ncarry)
			from = v->home->owner->body->yields.at[v->no];
		if (v->def && v->def->code == OP_REPEAT)
			from = v->def->body->yields.at[v->no];
		for (uint32_t i = 0; v->def && v->def->code != OP_REPEAT && i < v->def->nin; i++)
			if (v->def->in[i]->kind == K_SUM || v->def->in[i]->kind == K_FN)
				from = v->def->in[i];
		if (!from)
			break;
		v = from;
	}
	return v;
}

static uint32_t line_of(const struct op *op)
{
	return op->span.line || !op->of ? op->span.line : op->of->span.line;
}

/* "'microbatches = 8' splits 'batch', but the sum over it at line 8 feeds line 10". One mistake, one
 * message: what backward makes of it is not said again. */
static void refuse(struct kinds *k, const struct op *op, const struct value *v)
{
	const struct module *m = k->m;
	const struct value *sum = origin(v);

	if (!k->d || m->micro <= 1 || (op->phase != FORWARD && k->d->errors > k->errors))
		return;
	for (uint32_t i = 0; i < k->refused.n; i++)
		if (k->refused.at[i] == sum)
			return;
	PUSH(m->mem, &k->refused, sum);
	diag_error(k->d, op->span, "'microbatches = %lld' splits '%s', but the sum over it at line %u feeds line %u",
		   (long long)m->micro, m->dims.at[k->batch].name, sum->span.line, line_of(op));
	diag_note(k->d, sum->span, "'%s' needs the whole batch: set microbatches = 1, or normalise over a dim of your own",
		  what_of(sum));
}

/* A loss that is not linear in sums: named is where it ceases to be. */
static void check_loss(struct kinds *k, const struct op *report)
{
	const struct op *op = report->in[0]->def, *last = NULL;
	const struct value *sum = NULL;

	if (!streq(report->at.key, "loss") || report->in[0]->kind != K_FN)
		return;
	while (op && op != last) {
		last = op;
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->kind == K_FN && op->in[i]->def)
				op = op->in[i]->def;
	}
	for (uint32_t i = 0; last && i < last->nin; i++)
		if (last->in[i]->kind == K_SUM && (!sum || !op_linear(last, i)))
			sum = last->in[i];
	refuse(k, last ? last : report, sum ? sum : report->in[0]);
}

/* Results of a linear op with one or more sums among its operands. */
static enum kind sum_kind(struct kinds *k, const struct op *op, const struct value *out)
{
	uint32_t sums = 0;
	uint64_t linear = 0;
	bool fn = false;
	const struct value *first = NULL;

	for (uint32_t i = 0; i < op->nin; i++) {
		fn |= op->in[i]->kind == K_FN;
		if (op->in[i]->kind == K_SUM) {
			first = first ? first : op->in[i];
			linear = sums++ ? linear & op_linear(op, i) : op_linear(op, i);
			if (sums > 1 && !(linear >> i & 1))
				fn = true;
		}
		if (op->in[i]->kind == K_FN && !first)
			first = op->in[i];
	}
	if (has_dim(out, k->batch)) {
		refuse(k, op, first);
		return K_INNER;
	}
	for (uint32_t i = 0; i < op->nin && !fn; i++)
		if (op->in[i]->kind == K_SUM)
			for (uint32_t j = 0; j < op->nin; j++)
				fn |= op->in[j]->kind == K_SUM && !(op_linear(op, i) >> j & 1);
	return fn || !linear ? K_FN : K_SUM;
}

/* Ops that look along the batch other than by summing it. */
static bool along_batch(const struct kinds *k, const struct op *op)
{
	if (!op->nin)
		return false;
	switch (opinfo[op->code].class) {
	case C_REDUCE:
		return op->code == OP_RMAX && has_dim(op->in[0], k->batch) && !has_dim(op->out[0], k->batch);
	case C_VIEW:
		return (has_dim(op->in[0], k->batch) != has_dim(op->out[0], k->batch)) ||
		       (op_closed_dim(op, k->batch) && has_dim(op->in[0], k->batch));
	case C_LOOKUP:
		for (int i = 0; i < op->at.dims.n; i++)
			if (op->at.dims.d[i] == k->batch)
				return true;
		return false;
	case C_PICK:
		return op_closed_dim(op, k->batch) && has_dim(op->in[0], k->batch);
	case C_ATTN:
		for (uint32_t i = 0; i < op->nin; i++)
			if (op_closed_dim(op, k->batch) && has_dim(op->in[i], k->batch))
				return true;
		return false;
	default:
		return false;
	}
}

static bool sums_batch(const struct kinds *k, const struct op *op, const struct value *out)
{
	if (has_dim(out, k->batch) || op->code == OP_ATTENTION) /* lse does not see v */
		return false;
	for (uint32_t i = 0; i < op->nin; i++)
		if (has_dim(op->in[i], k->batch))
			return true;
	return false;
}

static enum kind op_kind(struct kinds *k, const struct op *op, const struct value *out)
{
	enum kind kind = K_CONST;
	bool sum = false, mixed;

	if (op->code == OP_READ) {
		const struct buffer *b = find_buffer(k->m, op->at.buf);

		return b && b->role == B_INPUT ? K_INPUT : K_PARAM;
	}
	bool has[NKIND] = { false };
	for (uint32_t i = 0; i < op->nin; i++) {
		has[op->in[i]->kind] = true;
		sum |= op->in[i]->kind == K_SUM || op->in[i]->kind == K_FN;
		kind = join(k, kind, op->in[i]->kind, out);
	}
	if (sum)
		return sum_kind(k, op, out);
	if (along_batch(k, op) && (kind == K_INNER || kind == K_PARAM)) {
		const struct value *in = op->in[0];

		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->kind == K_INNER)
				in = op->in[i];
		if (kind == K_INNER && k->d && k->m->micro > 1 && (op->phase == FORWARD || k->d->errors == k->errors)) {
			diag_error(k->d, op->span, "'microbatches = %lld' splits '%s', but '%s' (line %u) is read along it at line %u",
				   (long long)k->m->micro, k->m->dims.at[k->batch].name, what_of(in),
				   in->span.line, op->span.line);
			diag_note(k->d, in->span, "set microbatches = 1");
		}
		return kind;
	}
	mixed = has[K_INPUT] && has[K_PARAM];
	if (sums_batch(k, op, out) && (kind == K_INNER || (mixed && kind == K_PARAM)))
		return K_SUM;
	return kind;
}

static void block_kinds(struct kinds *k, struct block *block);

static enum kind carry_join(enum kind a, enum kind b)
{
	return a > b ? a : b;
}

const struct op *added_in(const struct block *body, const struct value *v)
{
	const struct op *in = NULL;
	int uses = 0;

	for (const struct op *op = body->first; op; op = op->next)
		for (uint32_t k = 0; k < op->nin; k++)
			if (op->in[k] == v) {
				bool adds = opinfo[op->code].linear == L_ALL && !(op->code == OP_SUB && k);

				in = adds ? op : NULL;
				uses++;
			}
	for (uint32_t k = 0; k < body->yields.n; k++)
		uses += body->yields.at[k] == v;
	return uses == 1 ? in : NULL;
}

bool only_grows(const struct op *r, uint32_t i)
{
	const struct value *y = r->body->yields.at[i];
	const struct op *op = added_in(r->body, r->body->args.at[i]);

	while (op && op->out[0] != y)
		op = added_in(r->body, op->out[0]);
	for (uint32_t k = 0; k < r->body->yields.n; k++)
		if (k != i && r->body->yields.at[k] == y)
			return false;
	for (const struct op *o = r->body->first; o; o = o->next)
		for (uint32_t k = 0; k < o->nin; k++)
			if (o->in[k] == y)
				return false;
	return op;
}

static bool passes_on(const struct module *m, const struct op *r, uint32_t i)
{
	return pipe_axis(m) >= 0 && !r->home->owner && pipe_takes(m, r->at.dim) && dim_size(m, r->at.dim) &&
	       r->body->yields.at[i] != r->body->args.at[i] && !only_grows(r, i);
}

/* Carried kinds start as the initial values' and grow until they stand still. */
static void repeat_kinds(struct kinds *k, struct op *op)
{
	int64_t nc = op->at.ncarry;
	struct diag *d = k->d;
	bool again = true;

	for (uint32_t i = 0; i < op->nin; i++)
		op->body->args.at[i]->kind = op->in[i]->kind;
	k->d = NULL;
	while (again) {
		again = false;
		block_kinds(k, op->body);
		for (int64_t i = 0; i < nc; i++) {
			struct value *arg = op->body->args.at[i];
			enum kind kind = carry_join(arg->kind, op->body->yields.at[i]->kind);

			if (kind < K_INNER && passes_on(k->m, op, (uint32_t)i))
				kind = K_INNER;
			again |= kind != arg->kind;
			arg->kind = kind;
		}
	}
	k->d = d;
	if (d)
		block_kinds(k, op->body);
	for (uint32_t i = 0; i < op->nout; i++)
		op->out[i]->kind = i < nc ? op->body->args.at[i]->kind : op->body->yields.at[i]->kind;
}

/* An op is made as a whole: attention's lse, of a q and k of params alone, waits for v. */
static void level_kinds(struct op *op)
{
	enum kind most = K_CONST;

	for (uint32_t i = 0; i < op->nout; i++)
		most = op->out[i]->kind > most ? op->out[i]->kind : most;
	for (uint32_t i = 0; i < op->nout && most > K_PARAM; i++)
		if (op->out[i]->kind <= K_PARAM)
			op->out[i]->kind = K_INNER;
}

static void block_kinds(struct kinds *k, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		if (op->code == OP_REPEAT) {
			repeat_kinds(k, op);
			continue;
		}
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->kind = op_kind(k, op, op->out[i]);
		level_kinds(op);
		if (op->code == OP_REPORT)
			check_loss(k, op);
	}
}

bool set_kinds(struct module *m, struct diag *d)
{
	struct kinds k = { .m = m, .d = d, .batch = m->batch, .errors = d->errors };

	block_kinds(&k, &m->top);
	return d->errors == k.errors;
}
