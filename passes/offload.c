/* passes/offload.c - what lies in host memory is copied to the device where it is used, and no sooner.
 *
 * Requires form PARTITIONED, right before memory. A read of such a buffer is a copy, and what it makes takes memory until
 * its last reader: so each section, and each place of a pipeline, has a read of its own, right before the first
 * op there that wants it. Loops copy the rows of what they slice, iteration by iteration (passes/memory.c). */
#include "passes/passes.h"

static bool on_host(const struct module *m, const struct op *op)
{
	const struct buffer *b = op->code == OP_READ ? find_buffer(m, op->at.buf) : NULL;

	return b && b->host;
}

static bool apart(const struct op *a, const struct op *b)
{
	return a->phase != b->phase || a->at.where != b->at.where;
}

/* op and all readers behind it in its section read what is copied right before it. */
static void copy_before(struct module *m, struct op *read, struct op *op)
{
	struct builder b = { .m = m, .block = op->home, .before = op, .phase = op->phase, .where = op->at.where };
	struct value *v = read->out[0];
	struct op *copy = op_clone(&b, read, false);

	copy->phase = op->phase;
	if (HAS(op, where))
		SET(copy, where, op->at.where);
	for (struct op *o = op; o; o = o->next)
		for (uint32_t i = 0; !apart(o, op) && i < o->nin; i++)
			if (o->in[i] == v)
				o->in[i] = copy->out[0];
}

static bool reads(const struct op *op, const struct value *v)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i] == v)
			return true;
	return false;
}

static void move_read(struct module *m, struct op *read)
{
	const struct buffer *b = find_buffer(m, read->at.buf);
	bool left = false;

	for (struct op *op = read->next; op; op = op->next) {
		if (!reads(op, read->out[0]))
			continue;
		if (b->where && (op->at.where & ~b->where)) /* it comes from another stage */
			left = true;
		else
			copy_before(m, read, op);
	}
	if (!left)
		op_unlink(read);
}

bool pass_offload(struct module *m, struct diag *d)
{
	VEC(struct op *) all = { 0 };

	(void)d;
	for (struct op *op = m->top.first; op; op = op->next)
		if (on_host(m, op))
			PUSH(m->mem, &all, op);
	for (uint32_t i = 0; i < all.n; i++)
		move_read(m, all.at[i]);
	return true;
}
