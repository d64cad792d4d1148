/* ir/label.c - what an op is called where people read it: after what it makes, the param it multiplies with, or the place
 * in the text that it comes from. */
#include "ir/trace.h"

enum { FAR = 12 }; /* ops that are followed */

/* The buffer that v holds, whole or a part or a row of it; NULL: another value. */
static const char *source_of(const struct value *v)
{
	for (int i = 0; v && i < FAR; i++) {
		const struct op *op = v->def, *loop = op ? NULL : v->home->owner;

		if (loop && loop->code == OP_REPEAT)
			v = (int64_t)v->no < loop->at.ncarry ? NULL : loop->in[v->no];
		else if (op && op->code == OP_READ)
			return op->at.buf;
		else if (op && op->nin == 1 && (opinfo[op->code].class == C_VIEW || opinfo[op->code].class == C_COMM || opinfo[op->code].class == C_HOST || op->code == OP_WAIT || op->code == OP_KERNEL))
			v = op->in[0];
		else
			return NULL;
	}
	return NULL;
}

static bool reads(const struct op *op, const struct value *v)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i] == v)
			return true;
	return false;
}

/* The buffer that v is written to; NULL: none. */
static const char *written_to(const struct value *v)
{
	for (const struct op *op = v->def ? v->def->next : NULL; op; op = op->next)
		if (op->code == OP_WRITE && reads(op, v))
			return op->at.buf;
	return NULL;
}

/* The name of what v goes into: a stack of its rows, a sum over microbatches. */
static const char *target_of(const struct value *v)
{
	for (int i = 0; v && i < FAR; i++) {
		const struct block *b = v->home;
		const struct value *to = NULL;

		if (v->name)
			return v->name;
		for (uint32_t k = 0; b->owner && b->owner->code == OP_REPEAT && k < b->yields.n && !to; k++)
			to = b->yields.at[k] == v ? b->owner->out[k] : NULL;
		for (const struct op *op = v->def ? v->def->next : NULL; op && !to; op = op->next)
			to = (op->code == OP_ACCUMULATE || op->code == OP_WAIT) && reads(op, v) ? op->out[0] : NULL;
		v = to;
	}
	return NULL;
}

static const char *name_of(const struct op *op)
{
	const char *name = op->code == OP_READ || op->code == OP_WRITE ? op->at.buf : NULL;

	for (uint32_t i = 0; i < op->nout && !name; i++)
		name = op->out[i]->name;
	for (uint32_t i = 0; i < op->nin && !name && may_fly(op->code); i++)
		name = op->in[i]->name;
	for (uint32_t i = 0; i < op->nin && !name && may_fly(op->code); i++)
		name = source_of(op->in[i]);
	return name;
}

static const char *in_words(struct arena *mem, const char *name)
{
	return strncmp(name, "d:", 2) == 0 ? arena_printf(mem, "gradient of %s", name + 2) : name;
}

const char *op_label_text(struct arena *mem, const struct module *m, const struct op *op)
{
	const char *name = name_of(op), *what = opinfo[op->code].name, *with = NULL;

	if (name)
		return arena_printf(mem, "%s %s", what, in_words(mem, name));
	for (uint32_t i = 0; i < op->nin && op->code == OP_EINSUM && !with; i++)
		with = source_of(op->in[i]);
	if (with && (op->phase == FORWARD || HAS(op, again)))
		return arena_printf(mem, "%s with %s%s", what, with, HAS(op, again) ? " again" : "");
	if (with)
		return arena_printf(mem, "%s back through %s", what, with);
	name = op->code == OP_EINSUM && op->nout ? target_of(op->out[0]) : NULL;
	for (uint32_t i = 0; i < op->nout && op->code == OP_KERNEL && op->phase == EPILOGUE && !name; i++)
		name = written_to(op->out[i]);
	if (name)
		return arena_printf(mem, "%s for %s", what, in_words(mem, name));
	return arena_printf(mem, "%s %s", what, span_text(mem, m->src, op->nout ? op->out[0]->span : op->span));
}
