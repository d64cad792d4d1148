/* passes/memory.c - every stored value gets a place: PARTITIONED and fused -> PLANNED.
 *
 * Requires: after fuse, only the ops of the plan stand in blocks. Sets value.off and buffer.off
 * (byte offsets in a region, 64-byte aligned) and module.arena. Without a pipeline there is one region, at
 * the beginning of the arena; with one ir/region.h says which region a value is in, ir/layout.h where that
 * lies. Offsets in repeat bodies are relative to the region too. off = -1 is a value that lives in another's
 * storage:
 *
 *   read                     the buffer, when the layouts are the same; of one in host memory there
 *   rename, split, merge     the operand (also accumulate, when there is one microbatch; and wait)
 *   repeat over the first    the operand of its number: a row of a stack that lacks these iterations, or shares it
 *   args of a repeat body    carry: the repeat's result; with: the operand; over: row i of it
 *   any other result         where it is sent: `accumulate` (an einsum that adds), a carried yield,
 *                            row i of a stacked yield, or the buffer of its first `write` (in host memory only `to_host`)
 *
 * What is had {ahead} has two places, one behind the other, for as long as its loop runs.
 * runtime/place.c resolves the same rules. A yield that does not lie in its row is copied to it
 * as soon as it is known; a carried yield that does not lie in its place is copied at the end of
 * the iteration; everything else that has an offset and could not be an alias is a copy.
 *
 * Lifetimes are intervals of positions in a block. A repeat body is planned first and is then
 * one piece of the enclosing timeline. Of regions that are no workspaces all pieces are live together.
 * Buffers that outlive the step lie below. */
#include "passes/planner.h"

#include "ir/epilogue.h"
#include "ir/layout.h"

bool once_a_step(const struct module *m, const struct op *op)
{
	return !sums_in_step(m) || (op->phase != FORWARD && op->phase != BACKWARD);
}

int buffer_index(const struct planner *p, const char *name)
{
	for (uint32_t i = 0; i < p->m->bufs.n; i++)
		if (streq(p->m->bufs.at[i]->name, name))
			return (int)i;
	return -1;
}

static struct home *home_new(struct planner *p, struct value *root, int64_t def)
{
	struct home *h = NEW(p->m->mem, struct home);

	h->root = root;
	h->def = h->last = def;
	h->carry = -1;
	if (root)
		root->aux = h;
	return h;
}

void touch(struct home *h, int64_t pos)
{
	if (pos > h->last)
		h->last = pos;
}

struct home *home_of(const struct value *v)
{
	return v->aux;
}

/* -- one block: homes and last uses -- */

static void read_home(struct planner *p, struct op *op, int64_t pos)
{
	struct value *v = op->out[0];
	int i = buffer_index(p, op->at.buf);
	struct buffer *b = i >= 0 ? p->m->bufs.at[i] : NULL;

	if (!b || b->role == B_INPUT) {
		home_new(p, v, pos);
		return;
	}
	if (reads_in_place(p->m, op)) {
		v->aux = p->bufs[i];
		return;
	}
	home_new(p, v, pos);
	touch(p->bufs[i], pos);
}

static void result_homes(struct planner *p, struct op *op, int64_t pos)
{
	if (op->code == OP_READ) {
		read_home(p, op, pos);
		return;
	}
	for (uint32_t i = 0; i < op->nout; i++) {
		if (is_alias(p->m, op))
			op->out[i]->aux = op->in[alias_of(op, i)]->aux;
		else
			home_new(p, op->out[i], pos);
	}
}

static void arg_homes(struct planner *p, struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++) {
		struct value *a = block->args.at[i];
		struct op *r = block->owner;
		struct home *h = home_new(p, a, -1);

		h->root = NULL;
		if ((int64_t)i < r->at.ncarry)
			h->carry = (int)i;
		if (i >= r->at.ncarry + r->at.nwith && !arg_in_row(p->m, r, i))
			h->root = a;
	}
}

static void count_use(struct value *v)
{
	v->mark++;
}

/* Buffers read in a body are read where the repeat stands. */
static void body_reads(struct planner *p, const struct block *body, int64_t pos)
{
	for (const struct op *op = body->first; op; op = op->next) {
		int i = op->code == OP_READ ? buffer_index(p, op->at.buf) : -1;

		if (i >= 0)
			touch(p->bufs[i], pos);
		if (op->code == OP_REPEAT)
			body_reads(p, op->body, pos);
	}
}

/* What has started reads its operands until the wait. */
static void land(struct op *wait, int64_t pos)
{
	struct op *start = wait->in[0]->def;

	for (uint32_t i = 0; i < start->nin; i++) {
		struct home *h = home_of(start->in[i]);

		touch(h, pos);
		h->flight = pos;
		h->flights++;
	}
}

/* What a product reads stays until its epilogue is over, so that both may be one. */
static void stay(const struct op *einsum, int64_t pos)
{
	for (uint32_t i = 0; i < einsum->nin; i++)
		touch(home_of(einsum->in[i]), pos);
}

static void uses(struct planner *p, struct op *op, int64_t pos)
{
	struct epilogue e;
	const struct op *einsum = epilogue_pair(op, &e);

	if (einsum)
		stay(einsum, pos);
	if (op->code == OP_REPEAT)
		body_reads(p, op->body, pos);
	for (uint32_t i = 0; i < op->nin; i++) {
		touch(home_of(op->in[i]), pos);
		home_of(op->in[i])->read = pos;
		count_use(op->in[i]);
	}
	if (op->code == OP_WAIT)
		land(op, pos);
}

static void forget(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->mark = 0;
	for (struct op *op = block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
}

/* Positions, homes, last uses. Returns the number of ops. */
static int64_t survey(struct planner *p, struct block *block)
{
	int64_t pos = 0;

	forget(block);
	arg_homes(p, block);
	for (struct op *op = block->first; op; op = op->next, pos++) {
		op->mark = pos;
		uses(p, op, pos);
		result_homes(p, op, pos);
	}
	for (uint32_t i = 0; i < block->yields.n; i++)
		count_use(block->yields.at[i]);
	return pos;
}

/* -- lifetimes at the top, where sections repeat -- */

static void section_bounds(struct planner *p, const struct block *top, int64_t n)
{
	p->forward = p->end = n;
	p->backward = -1;
	for (const struct op *op = top->first; op; op = op->next) {
		if (op->phase != FORWARD && op->phase != BACKWARD)
			continue;
		if (op->mark < p->forward)
			p->forward = op->mark;
		p->backward = op->mark;
	}
}

static void stretch(struct planner *p, struct block *top)
{
	if (!sums_in_step(p->m))
		return;
	for (struct op *op = top->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++) {
			struct home *h = home_of(op->out[i]);

			if (!h->root || h->root->def != op)
				continue;
			if (op->phase == PROLOGUE && h->last >= p->forward)
				touch(h, p->backward);
			if (h->step) {
				h->def = p->forward;
				touch(h, p->backward);
			}
		}
	}
}

/* A result of a repeat that grows over the microbatches, or holds one that does. */
static bool grows(const struct op *r, uint32_t k)
{
	if (r->code != OP_REPEAT || k < r->at.ncarry)
		return false;
	if (stack_adds(r, k))
		return true;
	const struct value *y = r->body->yields.at[k];

	return y->def && grows(y->def, y->no);
}

static bool mark_growing(struct planner *p, struct op *op)
{
	for (uint32_t k = 0; k < op->nout; k++) {
		struct home *h = home_of(op->out[k]);

		if (!grows(op, k) || !sums_in_step(p->m))
			continue;
		if (!op->home->owner)
			h->step = true;
		else if (!h->direct)
			return diag_error(p->d, op->span, "a stack that is summed over microbatches is not stacked in place");
	}
	return true;
}

/* Does nothing but op read h from op on? What op itself has in flight may become its result. */
static bool last_read(const struct home *h, const struct op *op)
{
	if (HAS(op, async))
		return h->read == op->mark && h->last == h->flight && h->flights == 1;
	return h->last == op->mark;
}

/* Is h a piece of this block that ends at op, so that a result of op may take it over? */
static bool ends_at(const struct module *m, const struct home *h, const struct op *op)
{
	return h->root && !h->direct && !h->step && !h->buf && h->carry < 0 && last_read(h, op) && h->root->def &&
	       h->root->home == op->home && once_a_step(m, h->root->def) == once_a_step(m, op);
}

/* Are both in one workspace, where a place may change hands? */
static bool same_work(const struct planner *p, const struct value *a, const struct value *b)
{
	const struct region *r;

	if (!p->r)
		return true;
	r = &p->r->at.at[p->r->of[a->id]];
	return p->r->of[a->id] == p->r->of[b->id] && (r->kind == RG_ALL || r->kind == RG_ONCE || r->kind == RG_WORK);
}

static bool takes_over(const struct planner *p, const struct value *result, struct home *h)
{
	struct home *res = home_of(result);

	if (res->root != result || res->direct || res->step || !same_place(h->root, result) ||
	    !same_work(p, h->root, result))
		return false;
	touch(h, res->last);
	for (struct op *o = result->def; o; o = o->next)
		for (uint32_t i = 0; i < o->nout; i++)
			if (o->out[i]->aux == res)
				o->out[i]->aux = h;
	return true;
}

/* The result of a carried value takes over its initial value's storage, if that ends here. */
static void inherit_carry(const struct planner *p, struct op *op)
{
	for (int64_t k = 0; k < op->at.ncarry; k++) {
		struct home *h = home_of(op->in[k]);
		bool again = false;

		for (uint32_t i = 0; i < op->nin; i++)
			again |= i != k && home_of(op->in[i]) == h;
		if (!again && ends_at(p->m, h, op) && same_place(op->in[k], op->out[k]))
			takes_over(p, op->out[k], h);
	}
}

/* Does a result of op before k lie there? Then it is made as well, though nothing may read it later than its
 * stack, which takes it at once. */
static bool is_taken(const struct op *op, uint32_t k, const struct home *h)
{
	for (uint32_t j = 0; j < k; j++)
		if (op->out[j]->aux == h)
			return true;
	return false;
}

/* A result takes over an operand's storage. */
static void inherit_operand(const struct planner *p, struct op *op)
{
	for (uint32_t k = 0; k < op->nout; k++)
		for (uint32_t i = 0; i < op->nin; i++) {
			struct home *h = home_of(op->in[i]);

			if (is_bucket(op->code) && i != k)
				continue;
			if (!is_taken(op, k, h) && ends_at(p->m, h, op) && in_place(op, op->out[k], h) &&
			    takes_over(p, op->out[k], h))
				break;
		}
}

/* -- offsets -- */

static int region_of(const struct planner *p, const struct value *v)
{
	return p->r ? p->r->of[v->id] : 0;
}

static int body_region(const struct planner *p, const struct op *repeat)
{
	const struct block *b = repeat->body;

	return b->args.n ? region_of(p, b->args.at[0]) : b->first && b->first->nout ? region_of(p, b->first->out[0]) : 0;
}

/* Of a region that is no workspace all pieces are live together. */
static void add_item(struct planner *p, struct value *v, const struct items *body, int region, int64_t bytes, int64_t start,
		     int64_t end)
{
	struct item *x = NEW(p->m->mem, struct item);
	const struct region *r = p->r ? &p->r->at.at[region] : NULL;

	if (r && v && r->dim != NODIM)
		bytes /= cap_of(p->m, r->dim, &v->sh.on[0]) ? cap_of(p->m, r->dim, &v->sh.on[0]) : 1;
	if (r && (r->kind == RG_STEP || r->kind == RG_STASH || r->kind == RG_KEPT)) {
		start = 0;
		end = p->end;
	}
	*x = (struct item){ { .bytes = round_up(bytes), .start = start, .end = end }, v, body, region };
	PUSH(p->m->mem, &p->items.list, x);
}

static void shift_value(struct value *v, int64_t by)
{
	if (v->off >= 0)
		v->off += by;
}

static void shift(struct block *block, int64_t by)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		shift_value(block->args.at[i], by);
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			shift_value(op->out[i], by);
		if (op->code == OP_REPEAT)
			shift(op->body, by);
	}
}

/* From before the first iteration to the last. */
static void keep_ahead(struct op *op, int64_t n)
{
	for (uint32_t i = 0; i < op->nout; i++) {
		struct home *h = home_of(op->out[i]);

		h->twice = true;
		h->def = -1;
		touch(h, n);
	}
}

static bool plan_block(struct planner *p, struct block *block, int64_t *bytes);

static void outside_buffers(struct planner *p)
{
	p->bufs = NEWN(p->m->mem, struct home *, p->m->bufs.n + 1);
	for (uint32_t i = 0; i < p->m->bufs.n; i++) {
		p->bufs[i] = home_new(p, NULL, -1);
		p->bufs[i]->buf = p->m->bufs.at[i];
	}
}

/* The bodies inside, each a piece of this block. */
static bool plan_bodies(struct planner *p, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		int64_t bytes;

		if (op->code != OP_REPEAT)
			continue;
		struct planner *in = NEW(p->m->mem, struct planner);

		*in = (struct planner){ .m = p->m, .d = p->d };
		outside_buffers(in);
		if (!plan_block(in, op->body, &bytes))
			return false;
		if (bytes)
			add_item(p, NULL, &in->items, body_region(p, op), bytes, op->mark, op->mark);
	}
	return true;
}

static void add_values(struct planner *p, struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++) {
		struct value *a = block->args.at[i];
		struct home *h = home_of(a);

		if (h->root == a)
			add_item(p, a, NULL, 0, local_bytes(p->m, a), -1, h->last);
	}
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++) {
			struct home *h = home_of(op->out[i]);

			int64_t bytes = local_bytes(p->m, op->out[i]);

			if (h->root == op->out[i] && !h->direct)
				add_item(p, h->root, NULL, region_of(p, h->root), h->twice ? 2 * round_up(bytes) : bytes, h->def, h->last);
		}
	}
}

static void set_offsets(struct planner *p, struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->off = -1;
	for (struct op *op = block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->off = -1;
	for (uint32_t i = 0; i < p->items.list.n; i++) {
		const struct item *x = p->items.list.at[i];
		int64_t off = x->p.off + (p->base ? p->base[x->region] : 0);

		if (x->v)
			x->v->off = off;
		else
			shift(x->body->of, off);
	}
	for (struct op *op = block->first; op; op = op->next) /* results that took over a place */
		for (uint32_t i = 0; op->code != OP_READ && !is_alias(p->m, op) && i < op->nout; i++) {
			struct home *h = home_of(op->out[i]);

			if (h->root && h->root != op->out[i])
				op->out[i]->off = h->root->off;
		}
}

/* Each region by itself; the height of the highest. */
static int64_t assign(struct planner *p, int64_t n)
{
	struct packed **at = NEWN(p->m->mem, struct packed *, p->items.list.n + 1);
	int64_t most = 0;

	for (uint32_t r = 0; r < (p->r ? p->r->at.n : 1); r++) {
		uint32_t count = 0;

		for (uint32_t i = 0; i < p->items.list.n; i++)
			if (p->items.list.at[i]->region == (int)r)
				at[count++] = &p->items.list.at[i]->p;
		int64_t height = pack(p->m->mem, at, count, n);

		most = height > most ? height : most;
	}
	return most;
}

static bool plan_block(struct planner *p, struct block *block, int64_t *bytes)
{
	int64_t n = survey(p, block);

	p->items.of = block;
	while (!block->owner && place_writes(p, block)) {
		for (uint32_t i = 0; i < p->m->bufs.n; i++)
			p->bufs[i]->last = -1;
		n = survey(p, block);
	}
	if (!block->owner && !check_writes(p, block))
		return false;
	if (!block->owner)
		find_shown(p, block, n);
	section_bounds(p, block, n);
	for (struct op *op = block->first; op; op = op->next) {
		if (op->code == OP_ACCUMULATE)
			direct_accumulate(p, op);
		if (HAS(op, ahead))
			keep_ahead(op, n);
	}
	if (block->owner) {
		carried_yields(p, block, n);
		stacked_yields(p, block);
	}
	for (struct op *op = block->first; op; op = op->next)
		if (op->code == OP_REPEAT && !mark_growing(p, op))
			return false;
	if (!block->owner)
		stretch(p, block);
	for (struct op *op = block->first; op; op = op->next) {
		if (op->code == OP_REPEAT)
			inherit_carry(p, op);
		if (op->code == OP_WRITE)
			direct_write(p, op);
	}
	if (!check_copies(p, block))
		return false;
	for (struct op *op = block->first; op; op = op->next)
		inherit_operand(p, op);
	if (!plan_bodies(p, block))
		return false;
	add_values(p, block);
	*bytes = assign(p, n);
	set_offsets(p, block);
	return true;
}

/* Buffers that outlive the step, at the bottom of their regions. Inputs are staged where they are read. */
static void plan_buffers(struct planner *p)
{
	const struct module *m = p->m;

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		struct buffer *b = m->bufs.at[i];
		struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store };
		int no = p->r->buf[i];

		b->off = -1;
		if (b->role == B_INPUT)
			continue;
		memcpy(v.d, b->d, sizeof v.d);
		dimid rows = p->r->at.at[no].dim;
		int64_t cap = rows == NODIM ? 1 : cap_of(m, rows, &b->store.on[0]);

		b->off = p->base[no];
		p->base[no] += round_up(local_bytes(m, &v) / (cap ? cap : 1));
	}
}

/* Sets offsets. *bytes: of the values, where there is one region. */
static bool plan_module(struct planner *p, int64_t *bytes)
{
	struct module *m = p->m;
	struct span at;
	const char *refused = layout_refused(m->mem, m, &at);

	if (refused)
		return diag_error(p->d, at, "%s", refused);
	for (struct op *op = m->top.first; op; op = op->next)
		op->aux = NULL;
	p->r = regions_of(m->mem, m);
	p->base = NEWN(m->mem, int64_t, p->r->at.n);
	outside_buffers(p);
	plan_buffers(p);
	return plan_block(p, &m->top, bytes);
}

bool pass_memory(struct module *m, struct diag *d)
{
	struct planner p = { .m = m, .d = d };
	int64_t bytes;

	if (!plan_module(&p, &bytes))
		return false;
	m->form = PLANNED;
	if (pipe_axis(m) >= 0)
		layout_arenas(m, p.r);
	else
		m->arena = p.base[0] + bytes;
	m->host = p.r->host < 0 ? 0 : p.base[p.r->host];
	return true;
}

const struct items *memory_items(struct module *m, struct diag *d)
{
	struct planner *p = NEW(m->mem, struct planner);
	int64_t bytes;

	*p = (struct planner){ .m = m, .d = d };
	return plan_module(p, &bytes) ? &p->items : NULL;
}
