/* passes/offload.c - what lies in host memory is copied to the device where it is used, and no sooner.
 *
 * Requires form PARTITIONED, after collectives, before overlap, which starts these copies early and waits for them late. A
 * read of a buffer in host memory lies there; a from_host right before the first op that wants it makes a copy, which takes
 * memory until its last reader: so each section, and each place of a pipeline, has one of its own. A loop over the
 * rows of a buffer copies one in each iteration. A to_host makes what is written in the buffer itself, behind the last read of
 * the old value. */
#include "ir/epilogue.h"
#include "ir/region.h"
#include "passes/passes.h"

typedef VEC(struct op *) ops;

static bool apart(const struct op *a, const struct op *b)
{
	return a->phase != b->phase || a->at.where != b->at.where;
}

static bool reads(const struct op *op, const struct value *v)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i] == v)
			return true;
	return false;
}

/* Does op only slice v, row by row? */
static bool only_sliced(const struct module *m, const struct op *op, const struct value *v)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i] == v && (op->code != OP_REPEAT || !op->body->first || i < op->at.ncarry + op->at.nwith || !arg_in_row(m, op, i)))
			return false;
	return true;
}

/* op and all behind it in its section that read `old` read `new`. */
static void read_instead(struct op *op, const struct value *old, struct value *new)
{
	for (struct op *o = op; o; o = o->next)
		for (uint32_t i = 0; !apart(o, op) && i < o->nin; i++)
			if (o->in[i] == old)
				o->in[i] = new;
}

/* op, or the product that it is the epilogue of: nothing stands between the two. */
static struct op *before(struct op *op)
{
	struct epilogue e;
	const struct op *einsum = epilogue_pair(op, &e);

	return einsum ? op->prev : op;
}

/* A copy of v, right before op, on its stages; if these are all, on those that have v: op takes it from them. */
static struct value *copy_in(struct module *m, struct value *v, struct op *op)
{
	op = before(op);
	struct builder b = { .m = m, .block = op->home, .before = op, .phase = op->phase, .span = op->span, .where = op->at.where };
	struct op *copy = op_new(&b, OP_FROM_HOST, 1, &v, 1);
	struct value *to = op_type(&b, copy, 0, v->dt, v->nd, v->d);

	if (HAS(op, where))
		SET(copy, where, op->at.where);
	else if (v->def && HAS(v->def, where))
		SET(copy, where, v->def->at.where);
	to->sh = v->sh;
	to->kind = v->kind;
	to->name = v->name;
	to->span = v->span;
	return to;
}

/* -- loops -- */

static bool yielded(const struct block *body, const struct value *v)
{
	for (uint32_t k = 0; k < body->yields.n; k++)
		if (body->yields.at[k] == v)
			return true;
	return false;
}

/* Its readers in the body, and who stacks it, have a copy. */
static void copy_row(struct module *m, struct block *body, struct value *row)
{
	struct op *first = body->first;

	while (first && !reads(first, row))
		first = first->next;
	if (!first && !yielded(body, row))
		return;
	struct value *copy = copy_in(m, row, first ? first : body->first);

	for (struct op *op = first; op; op = op->next)
		for (uint32_t k = 0; k < op->nin; k++)
			if (op->in[k] == row)
				op->in[k] = copy;
	for (uint32_t k = 0; k < body->yields.n; k++)
		if (body->yields.at[k] == row)
			body->yields.at[k] = copy;
}

static void copy_rows(struct module *m, struct op *loop, const struct value *v)
{
	for (uint32_t i = 0; i < loop->nin; i++)
		if (loop->in[i] == v)
			copy_row(m, loop->body, loop->body->args.at[i]);
}

/* -- reads -- */

/* Where the run of ops begins that op stands in, with no loop between: as soon as the copy may start. */
static struct op *run_start(struct op *op)
{
	while (op->prev && op->prev->code != OP_REPEAT && !apart(op->prev, op) && op->prev->at.late == op->at.late)
		op = op->prev;
	return op;
}

static bool section_slices(const struct module *m, const struct op *op, const struct value *v)
{
	for (const struct op *o = op; o; o = o->next)
		if (!apart(o, op) && !only_sliced(m, o, v))
			return false;
	return true;
}

/* op and all readers behind it in its section have a read of their own. */
static void read_here(struct module *m, struct op *read, struct op *op)
{
	struct op *start = run_start(op);
	struct builder b = { .m = m, .block = op->home, .before = start, .phase = op->phase, .where = op->at.where };
	bool rows = section_slices(m, op, read->out[0]);
	struct op *here = op_clone(&b, read, false);
	struct value *v = here->out[0];

	here->phase = op->phase;
	if (HAS(op, where))
		SET(here, where, op->at.where);
	read_instead(op, read->out[0], rows ? v : copy_in(m, v, op));
	for (struct op *o = op; rows && o; o = o->next)
		if (reads(o, v))
			copy_rows(m, o, v);
}

static void move_read(struct module *m, struct op *read)
{
	const struct buffer *b = find_buffer(m, read->at.buf);
	struct op *far = NULL;

	for (struct op *op = read->next; op; op = op->next) {
		if (!reads(op, read->out[0]))
			continue;
		if (b->where && (op->at.where & ~b->where)) /* it comes from another stage */
			far = op;
		else
			read_here(m, read, op);
	}
	if (!far) {
		op_unlink(read);
		return;
	}
	struct value *copy = copy_in(m, read->out[0], read->next);

	copy->def->phase = read->phase;
	copy->def->has &= ~(1u << A_where);
	copy->def->at.where = 0;
	if (HAS(read, where))
		SET(copy->def, where, read->at.where);
	for (struct op *op = copy->def->next; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i] == read->out[0])
				op->in[i] = copy;
}

/* -- writes -- */

static struct op *last_read(const struct module *m, struct op *write)
{
	struct op *last = NULL;

	for (struct op *op = write->next; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++) {
			const struct buffer *b = host_buffer(m, op->in[i]);

			if (b && streq(b->name, write->at.buf))
				last = op;
		}
	return last;
}

/* May what is written be made in the buffer? Not while microbatches go on. */
static bool may_copy_out(const struct module *m, const struct op *write, const struct buffer *b)
{
	const struct value *v = write->in[0];

	return (write->phase == EPILOGUE || !sums_in_step(m)) && same_layout(v, b->nd, b->d, b->store.on, b->dt) &&
	       (pipe_axis(m) < 0 || !b->where || (HAS(write, where) && !(write->at.where & ~b->where)));
}

static void copy_out(struct module *m, struct op *write)
{
	struct value *v = write->in[0];
	struct op *last = last_read(m, write);

	if (last)
		op_move_before(write, last->next);
	struct builder b = { .m = m, .block = write->home, .before = write, .phase = write->phase, .span = write->span,
			     .where = write->at.where };
	struct op *copy = op_new(&b, OP_TO_HOST, 1, &v, 1);
	struct value *to = op_type(&b, copy, 0, v->dt, v->nd, v->d);

	if (HAS(write, where))
		SET(copy, where, write->at.where);
	to->sh = v->sh;
	to->kind = v->kind;
	to->span = v->span;
	write->in[0] = to;
}

bool pass_offload(struct module *m, struct diag *d)
{
	ops in = { 0 }, out = { 0 };

	(void)d;
	for (struct op *op = m->top.first; op; op = op->next) {
		const struct buffer *b = op->code == OP_WRITE ? find_buffer(m, op->at.buf) : NULL;

		if (op->code == OP_READ && host_buffer(m, op->out[0]))
			PUSH(m->mem, &in, op);
		if (b && b->host && may_copy_out(m, op, b))
			PUSH(m->mem, &out, op);
	}
	for (uint32_t i = 0; i < in.n; i++)
		move_read(m, in.at[i]);
	for (uint32_t i = 0; i < out.n; i++)
		copy_out(m, out.at[i]);
	return true;
}
