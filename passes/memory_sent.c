/* passes/memory_sent.c - values that are made where they are sent, rather than copied there: to the sum of `accumulate`, a
 * carried result, a row of a stack, the buffer of a `write`. */
#include "passes/planner.h"

#include "ir/epilogue.h"
#include "ir/layout.h"

/* What a wait waits for is made where its result is sent. */
static struct value *made_as(struct value *v)
{
	while (v->def && v->def->code == OP_WAIT)
		v = v->def->in[v->no];
	return v;
}

static bool makes_storage(const struct module *m, const struct value *v)
{
	return v->def && v->def->code != OP_READ && !is_alias(m, v->def) && home_of(v)->root == v;
}

void direct_accumulate(struct planner *p, struct op *op)
{
	struct value *x = op->in[0];

	if (once_a_step(p->m, op))
		return;
	struct home *h = home_of(op->out[0]);

	h->step = true;
	if (makes_storage(p->m, x) && x->def->code == OP_EINSUM && x->mark == 1 && same_place(x, op->out[0]))
		home_of(x)->direct = true;
}

bool stack_adds(const struct op *repeat, uint32_t k)
{
	return repeat_adds(repeat, k);
}

static bool is_carried(const struct block *block, const struct value *v)
{
	for (int64_t k = 0; k < block->owner->at.ncarry; k++)
		if (block->yields.at[k] == v)
			return true;
	return false;
}

/* The first stack that v is a row of: the only one that it may be made in. */
static uint32_t first_row(const struct module *m, const struct block *block, const struct value *v)
{
	const struct op *r = block->owner;
	uint32_t k = (uint32_t)r->at.ncarry;

	while (k < block->yields.n && !(block->yields.at[k] == v && is_row(m, v, r->out[k], r->at.dim)))
		k++;
	return k;
}

void stacked_yields(struct planner *p, struct block *block)
{
	struct op *r = block->owner;

	for (uint32_t k = (uint32_t)r->at.ncarry; k < block->yields.n; k++) {
		struct value *yield = block->yields.at[k], *y = made_as(yield);
		struct home *h = home_of(y);
		bool sums = stack_adds(r, k) && sums_in_step(p->m);

		if (!makes_storage(p->m, y) || h->direct || is_carried(block, yield) || first_row(p->m, block, yield) != k)
			continue;
		if (sums && (y->def->code != OP_EINSUM || y->mark != 1))
			continue;
		h->direct = true;
	}
}

/* Has v a dim within one of `made` that it lacks? A kernel may keep such a value, and make it between two
 * loop nests. */
static bool made_between(const struct op *op, const struct value *made)
{
	const struct value *v = op->nout == 1 ? op->out[0] : NULL;
	bool lacks = false;

	if (!v || (opinfo[op->code].class != C_MAP && op->code != OP_LOOKUP))
		return false;
	for (int k = 0; k < made->nd; k++) {
		if (lacks && has_dim(v, made->d[k]))
			return true;
		lacks |= !has_dim(v, made->d[k]);
	}
	return false;
}

/* A kernel makes its results in the order of their ops, in one loop nest (but for rows of random numbers
 * and what lacks an outer dim, which come between), and reads an operand when the first that needs it is made: by the time that
 * `result` is stored, is arg i in a register? One result is stored last of all. */
static bool read_by_then(const struct op *op, const struct value *result, uint32_t i)
{
	const struct block *body = op->body;
	const struct value *made = body->yields.at[result->no];
	int64_t pos = 0;

	if (op->nout == 1)
		return true;
	for (uint32_t a = 0; a < body->args.n; a++)
		body->args.at[a]->mark = a == i ? 1 : INT64_MAX;
	/* mark: where a value that needs arg i stands, else the end of time */
	for (struct op *o = body->first; o; o = o->next) {
		bool needs = false;

		if (o->code == OP_RNG || made_between(o, result))
			return false;
		o->mark = ++pos;
		for (uint32_t n = 0; n < o->nin; n++)
			needs |= o->in[n]->mark != INT64_MAX;
		for (uint32_t n = 0; n < o->nout; n++)
			o->out[n]->mark = needs ? pos : INT64_MAX;
	}
	for (uint32_t r = 0; r < body->yields.n; r++)
		if (made->def && body->yields.at[r]->mark <= made->def->mark)
			return true;
	return false;
}

/* May result k lie where its operands with this home lie? A kernel of maps over the dims of its results is
 * one loop nest: everything is read at the very place that is written next. An all_reduce reads the parts
 * of an operand before it writes the result in their place. */
bool in_place(const struct op *op, const struct value *result, const struct home *h)
{
	if (op->code == OP_ALL_REDUCE) {
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->aux == h && (i != result->no || !same_place(op->in[i], result)))
				return false;
		return true;
	}
	if (op->code != OP_KERNEL && op->code != OP_TO_PARTIAL)
		return false;
	struct epilogue e;
	bool one = epilogue_pair(op, &e) != NULL; /* a product writes it while it reads all but its own sum */

	for (uint32_t i = 0; one && i < op->nin; i++)
		if (op->in[i]->aux == h && (int)i != e.z)
			return false;
	for (const struct op *o = op->code == OP_KERNEL ? op->body->first : NULL; o; o = o->next)
		if (opinfo[o->code].class != C_MAP && opinfo[o->code].class != C_LEAF)
			return false;
	for (uint32_t i = 0; i < op->nout; i++)
		if (op->out[i]->nd != result->nd || memcmp(op->out[i]->d, result->d, result->nd * sizeof *result->d))
			return false;
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i]->aux == h &&
		    (!same_place(op->in[i], result) || (op->code == OP_KERNEL && !read_by_then(op, result, i))))
			return false;
	return true;
}

/* Is the arg dead when its next value is made, or read for that alone and at the very place that is written? */
static bool may_be_next(const struct value *arg, const struct value *y)
{
	const struct home *a = home_of(arg);

	return a->last < home_of(y)->def || (a->last == home_of(y)->def && !a->flights && in_place(y->def, y, a));
}

/* The first result that v is carried on as: of several the only one that it may be made in. */
static int64_t first_carried(const struct block *block, const struct value *v)
{
	int64_t k = 0;

	while (block->yields.at[k] != v)
		k++;
	return k;
}

/* Carried yields: in place when they may be, else copied at the end. */
void carried_yields(struct planner *p, struct block *block, int64_t n)
{
	int64_t nc = block->owner->at.ncarry;

	for (int64_t k = 0; k < nc; k++) {
		struct home *h = home_of(block->yields.at[k]);

		if (h->carry >= 0 && h->carry != k)
			touch(h, n);
	}
	for (int64_t k = 0; k < nc; k++) {
		struct value *y = made_as(block->yields.at[k]), *arg = block->args.at[k];
		struct home *h = home_of(y);

		if (h->carry == k)
			continue;
		if (makes_storage(p->m, y) && !h->direct && first_carried(block, block->yields.at[k]) == k && may_be_next(arg, y) &&
		    same_place(y, arg)) {
			h->direct = true;
			touch(home_of(arg), n);
		} else {
			touch(h, n);
		}
	}
}

static bool reads_buffer(const struct op *op, const struct home *buf)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i]->aux == buf)
			return true;
	return false;
}

static int writes_of(const struct block *block, const char *buf)
{
	int n = 0;

	for (const struct op *op = block->first; op; op = op->next)
		n += op->code == OP_WRITE && streq(op->at.buf, buf);
	return n;
}

void find_shown(struct planner *p, struct block *top, int64_t n)
{
	bool *back = NEWN(p->m->mem, bool, n + 1);

	p->shown = NEWN(p->m->mem, bool, n + 1);
	for (struct op *op = top->first; op; op = op->next) {
		back[op->mark] = op->phase == BACKWARD;
		for (uint32_t i = 0; i < op->nin; i++)
			back[op->mark] |= op->in[i]->def && back[op->in[i]->def->mark];
	}
	for (struct op *op = top->last; op; op = op->prev) {
		if (op->code == OP_REPORT && !back[op->mark])
			p->shown[op->mark] = true;
		for (uint32_t i = 0; i < op->nin && p->shown[op->mark]; i++)
			if (op->in[i]->def)
				p->shown[op->in[i]->def->mark] = true;
	}
}

/* Do all stages that run op hold the buffer? */
static bool held_where_made(const struct module *m, const struct op *op, const struct buffer *b)
{
	return pipe_axis(m) < 0 || !b->where || (HAS(op, where) && !(op->at.where & ~b->where));
}

/* Of what is sent to several places the first is its own, as in runtime/place.c; the others get copies. */
static bool is_sent_first(const struct op *write)
{
	const struct op *op = write->home->first;

	while (op != write && !((op->code == OP_WRITE || op->code == OP_ACCUMULATE) && op->in[0] == write->in[0]))
		op = op->next;
	return op == write;
}

/* A value made right in the buffer that it is written to. */
void direct_write(struct planner *p, struct op *op)
{
	int i = buffer_index(p, op->at.buf);
	struct value *x = made_as(op->in[0]);
	struct buffer *b = i >= 0 ? p->m->bufs.at[i] : NULL;

	if (!b || b->host != (x->def->code == OP_TO_HOST) || op->home->owner || !makes_storage(p->m, x) || home_of(x)->direct || x->def->code == OP_REPEAT ||
	    !once_a_step(p->m, x->def) || !same_layout(x, b->nd, b->d, b->store.on, b->dt) ||
	    writes_of(op->home, b->name) != 1 || !is_sent_first(op) || !held_where_made(p->m, x->def, b))
		return;
	struct home *h = p->bufs[i];

	if (h->last > x->def->mark || p->shown[x->def->mark])
		return;
	if (reads_buffer(x->def, h) && !in_place(x->def, x, h))
		return;
	home_of(x)->direct = true;
}

/* A write stands right after the value is made if nobody reads the old contents later, else last. */
bool place_writes(struct planner *p, struct block *top)
{
	bool moved = false;
	struct op *next;

	for (struct op *op = top->first; op; op = next) {
		next = op->next;
		if (op->code != OP_WRITE)
			continue;
		int i = buffer_index(p, op->at.buf);
		bool late = i >= 0 && p->bufs[i]->last > op->mark;

		if (!late || op == top->last || op->aux)
			continue;
		op_move_before(op, NULL);
		op->aux = op; /* moved once */
		moved = true;
	}
	return moved;
}

bool check_writes(struct planner *p, const struct block *top)
{
	for (const struct op *op = top->first; op; op = op->next) {
		int i = op->code == OP_WRITE ? buffer_index(p, op->at.buf) : -1;

		if (i >= 0 && p->bufs[i]->last > op->mark)
			return diag_error(p->d, op->span, "'%s' is written before its old value is last read", op->at.buf);
	}
	return true;
}

/* A copy to the host has no other place than the buffer. */
bool check_copies(struct planner *p, const struct block *top)
{
	for (const struct op *op = top->first; op; op = op->next)
		if (op->code == OP_TO_HOST && !home_of(op->out[0])->direct)
			return diag_error(p->d, op->span, "a copy to the host can't be made in the buffer that it is written to");
	return true;
}
