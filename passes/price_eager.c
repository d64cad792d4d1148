/* passes/price_eager.c - bytes that software moves which launches a kernel for each op, where the plan has one for all of them.
 *
 * Each op reads its operands and writes its result. What PyTorch has one kernel for is one pass: a norm, a softmax, or the
 * gradient of one, which is a reduction with what it is of and what is made of it. One over rows
 * and one over columns are two: PyTorch sums the gradients of a norm's params by themselves. Casts are parts of the ops beside
 * them, and what is known before is not read. Each sum of two gradients is autograd's, a pass of its own. */
#include "passes/price.h"

enum { /* marks of values */
	FEEDS = 1,   /* a reduction needs it */
	FOLLOWS = 2, /* it needs a reduction */
	STORED = 4,  /* by the plan */
	READ = 8,    /* by reductions, and so counted */
	SENT = 16,   /* from them, likewise */
};

static bool no_pass(const struct op *op)
{
	return opinfo[op->code].class == C_LEAF || opinfo[op->code].class == C_VIEW || op->code == OP_CAST || op->code == OP_DETACH;
}

/* Where v is made, or comes into the kernel. */
static struct value *origin(struct value *v)
{
	while (v->def && no_pass(v->def) && v->def->nin == 1)
		v = v->def->in[0];
	return v;
}

static bool of_reduction(const struct op *op)
{
	const struct value *v = op->out[0];

	return op->code != OP_ACCUM && (v->mark & FOLLOWS || (v->mark & (FEEDS | STORED)) == FEEDS);
}

static void mark_values(const struct block *b)
{
	for (uint32_t i = 0; i < b->args.n; i++)
		b->args.at[i]->mark = 0;
	for (const struct op *op = b->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
	for (uint32_t i = 0; i < b->yields.n; i++)
		origin(b->yields.at[i])->mark |= STORED;
	for (const struct op *op = b->first; op; op = op->next) {
		bool follows = opinfo[op->code].class == C_REDUCE;

		for (uint32_t i = 0; i < op->nin; i++)
			follows = follows || (op->in[i]->mark & FOLLOWS && op->code != OP_ACCUM);
		op->out[0]->mark |= follows ? FOLLOWS : 0;
	}
	for (const struct op *op = b->last; op; op = op->prev) {
		bool feeds = opinfo[op->code].class == C_REDUCE || (op->out[0]->mark & (FEEDS | STORED)) == FEEDS;

		for (uint32_t i = 0; feeds && op->code != OP_ACCUM && i < op->nin; i++)
			op->in[i]->mark |= FEEDS;
	}
}

/* Bytes of v, which op reads, or 0: of what is known before. */
static double read_bytes(const struct module *m, const struct op *op, const struct value *v)
{
	bool known = v->def && no_pass(v->def), rows = op->code == OP_LOOKUP && v == origin(op->in[0]);

	return known ? 0 : rows ? (double)local_count(m, op->out[0]) * dtype_bytes(v->dt) : passed_bytes(m, v);
}

/* A value that a reduction makes is written once, however many read it. */
static double sent_bytes(const struct module *m, struct value *v)
{
	if (!v->def || no_pass(v->def) || !of_reduction(v->def) || v->mark & SENT)
		return 0;
	v->mark |= SENT;
	return passed_bytes(m, v);
}

/* Terms of one reduction are its own; each other one is added by a pass. */
static double sum_bytes(const struct module *m, const struct op *op)
{
	double one = passed_bytes(m, op->out[0]), adds = -1, own = 0;

	for (uint32_t i = 0; i < op->nin; i++) {
		struct value *v = origin(op->in[i]);

		if (v->def && !no_pass(v->def) && of_reduction(v->def))
			v->mark |= SENT, own = 1;
		else
			adds++;
	}
	return one * (3 * (adds + own) + own);
}

static double pass_bytes(const struct module *m, const struct op *op)
{
	double bytes = passed_bytes(m, op->out[0]);

	if (op->code == OP_ACCUM)
		return sum_bytes(m, op);
	for (uint32_t i = 0; i < op->nin; i++) {
		struct value *v = origin(op->in[i]);

		if (!i || v != origin(op->in[0])) /* a square reads once */
			bytes += read_bytes(m, op, v);
		bytes += sent_bytes(m, v);
	}
	return bytes;
}

static double reduction_bytes(const struct module *m, const struct op *op)
{
	double bytes = 0;

	for (uint32_t i = 0; i < op->nin; i++) {
		struct value *v = origin(op->in[i]);

		if (v->mark & READ || (v->def && !no_pass(v->def) && of_reduction(v->def)))
			continue;
		v->mark |= READ;
		bytes += read_bytes(m, op, v);
	}
	return bytes;
}

/* In how many ways reductions go: over rows, over columns. */
static int directions(const struct block *b)
{
	int n = 0;

	for (const struct op *op = b->first; op; op = op->next) {
		bool seen = opinfo[op->code].class != C_REDUCE;

		for (const struct op *o = b->first; o != op; o = o->next)
			seen = seen || (opinfo[o->code].class == C_REDUCE && same_dims(o->out[0], op->out[0]));
		n += !seen;
	}
	return n;
}

double eager_bytes(const struct module *m, const struct op *kernel)
{
	const struct block *b = kernel->body;
	double bytes = 0, read = 0;

	mark_values(b);
	for (const struct op *op = b->first; op; op = op->next)
		if (!no_pass(op) && of_reduction(op))
			read += reduction_bytes(m, op);
		else if (!no_pass(op))
			bytes += pass_bytes(m, op);
	for (uint32_t i = 0; i < b->yields.n; i++)
		bytes += sent_bytes(m, origin(b->yields.at[i]));
	return bytes + read * directions(b);
}
