/* tests/mutate/mutants.c - one fault in a plan: what a compiler with a bug, or an editor, might do to it. */
#include "ir/layout.h"
#include "tests/mutate/mutate.h"

struct picked {
	VEC(struct op *) ops;
};
typedef bool wanted(const struct op *op);

static uint64_t draw(uint64_t *seed, uint64_t n)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % n;
}

static void gather(struct module *m, struct block *block, bool kernels, wanted *want, struct picked *to)
{
	for (struct op *op = block->first; op; op = op->next) {
		if (want(op))
			PUSH(m->mem, &to->ops, op);
		if (op->code == OP_REPEAT || (op->code == OP_KERNEL && kernels))
			gather(m, op->body, kernels, want, to);
	}
}

static struct op *pick(struct module *m, uint64_t *seed, bool kernels, wanted *want)
{
	struct picked p = { 0 };

	gather(m, &m->top, kernels, want, &p);
	return p.ops.n ? p.ops.at[draw(seed, p.ops.n)] : NULL;
}

static bool is_comm(const struct op *op)
{
	return comm_sends(op->code);
}

static bool is_copy(const struct op *op)
{
	return opinfo[op->code].class == C_HOST;
}

static bool is_flier(const struct op *op)
{
	return may_fly(op->code);
}

static bool is_any_comm(const struct op *op)
{
	return opinfo[op->code].class == C_COMM;
}

static bool is_any(const struct op *op)
{
	return op->nin || op->nout;
}

static bool is_wait(const struct op *op)
{
	return op->code == OP_WAIT;
}

static bool is_accumulate(const struct op *op)
{
	return op->code == OP_ACCUMULATE;
}

static bool is_to_partial(const struct op *op)
{
	return op->code == OP_TO_PARTIAL;
}

static bool is_repeat(const struct op *op)
{
	return op->code == OP_REPEAT;
}

static bool is_write(const struct op *op)
{
	return op->code == OP_WRITE || op->code == OP_REPORT;
}

static bool is_sum(const struct op *op)
{
	return op->code == OP_ACCUM || op->code == OP_ADD;
}

static bool is_einsum(const struct op *op)
{
	return op->code == OP_EINSUM;
}

static bool is_view(const struct op *op)
{
	return op->code == OP_RENAME || op->code == OP_SPLIT || op->code == OP_MERGE || op->code == OP_READ ||
	       op->code == OP_WAIT || op->code == OP_ACCUMULATE;
}

static bool has_place(const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (op->out[i]->off >= 0)
			return true;
	return false;
}

static bool has_alias(const struct op *op)
{
	return op->nout && op->out[0]->off < 0;
}

static struct value *placed_value(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, has_place);

	for (uint32_t k = op ? (uint32_t)draw(seed, op->nout) : 0; op; k = (k + 1) % op->nout)
		if (op->out[k]->off >= 0)
			return op->out[k];
	return NULL;
}

/* -- what is owed: honest types behind a reduction that is gone -- */

static bool owe(struct value *v, uint32_t sum, uint32_t max)
{
	uint32_t before = v->sh.sum | v->sh.max, split = sharding_axes(&v->sh, v->nd);

	v->sh.sum |= sum & ~split;
	v->sh.max |= max & ~split & ~v->sh.sum;
	return (v->sh.sum | v->sh.max) != before;
}

static void spread(struct block *block)
{
	bool more = true;

	while (more) {
		more = false;
		for (struct op *op = block->first; op; op = op->next) {
			uint32_t sum = 0, max = 0, ends = opinfo[op->code].class == C_COMM ? axes_bits(&op->at.axes) : 0;

			if (op->code == OP_WAIT)
				ends = 0;
			for (uint32_t i = 0; i < op->nin; i++) {
				sum |= op->in[i]->sh.sum & ~ends;
				max |= op->in[i]->sh.max & ~ends;
				if (op->body && i < op->body->args.n)
					more |= owe(op->body->args.at[i], op->in[i]->sh.sum, op->in[i]->sh.max);
			}
			if (op->body) {
				spread(op->body);
				for (uint32_t i = 0; i < op->nout && i < op->body->yields.n; i++) {
					more |= owe(op->out[i], op->body->yields.at[i]->sh.sum, op->body->yields.at[i]->sh.max);
					if (op->code == OP_REPEAT && i < op->at.ncarry)
						more |= owe(op->body->args.at[i], op->out[i]->sh.sum, op->out[i]->sh.max);
				}
				continue;
			}
			if (op->code == OP_ACCUMULATE)
				continue;
			for (uint32_t i = 0; i < op->nout; i++)
				more |= owe(op->out[i], sum, max);
		}
	}
}

/* Its readers read its operands. */
static void bypass(struct op *op)
{
	for (uint32_t i = 0; i < op->nout && i < op->nin; i++)
		replace_uses(op->home, op->out[i], op->in[i]);
	op_unlink(op);
}

/* -- collectives -- */

static bool drop_comm(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_comm);

	if (!op)
		return false;
	bypass(op);
	return true;
}

static bool is_reduction(const struct op *op)
{
	return op->code == OP_ALL_REDUCE && !is_async(op);
}

static bool drop_honestly(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_reduction);

	if (!op)
		return false;
	bypass(op);
	spread(&m->top);
	return true;
}

static bool is_scatter(const struct op *op)
{
	return op->code == OP_REDUCE_SCATTER && op->nin == 1 && op->at.axes.n == 1;
}

/* Each rank keeps its own part of its own summand. */
static bool scatter_own(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_scatter);

	if (!op)
		return false;
	if (is_async(op) && op->out[0]->def) {
		for (struct op *w = op->next; w; w = w->next)
			if (w->code == OP_WAIT && w->in[0] == op->out[0]) {
				struct op *wait = w;
				bypass(wait);
				break;
			}
		op->has &= ~(1u << A_async);
	}
	op->code = OP_SHARD;
	op->has |= 1u << A_dim;
	if (draw(seed, 2)) {
		op->in[0]->sh.sum &= ~axes_bits(&op->at.axes);
		return true;
	}
	return true;
}

static bool other_axes(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_any_comm);
	struct axes a = { 0 };

	if (!op || m->axes.n < 2)
		return false;
	axes_push(&a, (int)draw(seed, m->axes.n));
	if (draw(seed, 3) == 0) {
		int b = (int)draw(seed, m->axes.n);

		if (b != a.a[0])
			axes_push(&a, b);
	}
	SET(op, axes, a);
	return true;
}

static bool other_axes_honestly(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_reduction);
	struct axes a = { 0 };

	if (!op || m->axes.n < 2)
		return false;
	for (int i = 0; i < op->at.axes.n; i++)
		if (op->at.axes.n > 1 ? draw(seed, 2) : 0)
			axes_push(&a, op->at.axes.a[i]);
	if (!a.n)
		axes_push(&a, (int)draw(seed, m->axes.n));
	for (uint32_t i = 0; i < op->nout; i++)
		op->out[i]->sh.sum = op->in[i]->sh.sum & ~axes_bits(&a);
	SET(op, axes, a);
	spread(&m->top);
	return true;
}

static bool move_op(struct op *op, uint64_t *seed, uint64_t far)
{
	struct op *at = op;
	uint64_t n = 1 + draw(seed, far);
	bool up = draw(seed, 2);

	while (n-- && (up ? at->prev : at->next))
		at = up ? at->prev : at->next;
	if (at == op)
		return false;
	if (up) {
		op_move_before(op, at);
		op->phase = at->phase > op->phase ? op->phase : at->phase;
	} else {
		struct op *behind = at->next;

		if (op->phase != at->phase)
			op->phase = at->phase;
		op_move_before(op, behind);
	}
	return true;
}

static bool move_comm(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_any_comm);

	return op && move_op(op, seed, 12);
}

static bool move_wait(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_wait);

	return op && move_op(op, seed, 20);
}

static bool move_start(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_async);

	return op && move_op(op, seed, 20);
}

static bool move_any(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_any);

	return op && move_op(op, seed, 20);
}

static bool swap_comms(struct module *m, uint64_t *seed)
{
	struct op *a = pick(m, seed, false, is_comm), *b = pick(m, seed, false, is_comm), *next;

	if (!a || a == b || a->home != b->home)
		return false;
	next = a->next;
	op_move_before(a, b);
	op_move_before(b, next == b ? a : next);
	return true;
}

static bool drop_wait(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_wait), *start;

	if (!op)
		return false;
	start = op->in[0]->def;
	bypass(op);
	if (start && draw(seed, 2))
		start->has &= ~(1u << A_async);
	return true;
}

static bool toggle_async(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_flier);

	if (!op)
		return false;
	if (is_async(op))
		op->has &= ~(1u << A_async);
	else
		SET(op, async, 1);
	return true;
}

static bool is_gather(const struct op *op)
{
	return (op->code == OP_ALL_GATHER || op->code == OP_FROM_HOST) && op->home->owner;
}

static bool toggle_ahead(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_gather);

	if (!op)
		return false;
	if (HAS(op, ahead))
		op->has &= ~(1u << A_ahead);
	else
		SET(op, ahead, 1);
	return true;
}

static bool flip_max(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_any_comm);

	if (!op)
		return false;
	SET(op, max, !op->at.max);
	return true;
}

static bool other_dim(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_any_comm);

	if (!op || !op->in[0]->nd)
		return false;
	SET(op, dim, op->in[0]->d[draw(seed, op->in[0]->nd)]);
	return true;
}

/* -- copies from and to the host -- */

static bool drop_copy(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_copy);

	if (!op)
		return false;
	bypass(op);
	return true;
}

static bool move_copy(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_copy);

	return op && move_op(op, seed, 20);
}

static bool swap_copies(struct module *m, uint64_t *seed)
{
	struct op *a = pick(m, seed, false, is_copy), *b = pick(m, seed, false, is_copy);

	if (!a || a == b || a->code != b->code || a->home != b->home)
		return false;
	struct value *in = a->in[0];

	a->in[0] = b->in[0];
	b->in[0] = in;
	return true;
}

/* A copy that lies where another value does. */
static bool overlap_copy(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_copy);
	struct value *other = placed_value(m, seed);

	if (!op || !other)
		return false;
	op->out[0]->off = draw(seed, 4) ? other->off : other->off + 64 * (int64_t)draw(seed, 9) - 256;
	return op->out[0]->off >= 0;
}

static bool is_wait_for_copy(const struct op *op)
{
	return op->code == OP_WAIT && op->in[0]->def && is_copy(op->in[0]->def);
}

static bool drop_copy_wait(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_wait_for_copy), *start;

	if (!op)
		return false;
	start = op->in[0]->def;
	bypass(op);
	if (draw(seed, 2))
		start->has &= ~(1u << A_async);
	return true;
}

static bool move_copy_wait(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_wait_for_copy);

	return op && move_op(op, seed, 40);
}

/* The result is said to have another size. */
static bool resize_comm(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_any_comm);
	struct value *v = op ? op->out[draw(seed, op->nout)] : NULL;

	if (!v || !v->nd)
		return false;
	if (draw(seed, 2))
		v->d[draw(seed, v->nd)] = (dimid)draw(seed, m->dims.n);
	else
		v->sh.on[draw(seed, v->nd)].n = 0;
	return true;
}

/* -- memory -- */

static bool shift_place(struct module *m, uint64_t *seed)
{
	struct value *v = placed_value(m, seed);

	if (!v)
		return false;
	v->off += 64 * ((int64_t)draw(seed, 17) - 8);
	return v->off >= 0;
}

static bool overlap_places(struct module *m, uint64_t *seed)
{
	struct value *v = placed_value(m, seed), *w = placed_value(m, seed);

	if (!v || v == w)
		return false;
	v->off = w->off + (draw(seed, 2) ? 0 : 64 * (int64_t)draw(seed, 4));
	return true;
}

static bool swap_places(struct module *m, uint64_t *seed)
{
	struct value *v = placed_value(m, seed), *w = placed_value(m, seed);
	int64_t off;

	if (!v || v->off == w->off)
		return false;
	off = v->off;
	v->off = w->off;
	w->off = off;
	return true;
}

/* A result on an operand, or away from it. */
static bool change_in_place(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, has_place);
	struct value *v = op ? op->out[draw(seed, op->nout)] : NULL, *x;

	if (!v || !op->nin)
		return false;
	x = op->in[draw(seed, op->nin)];
	if (x->off < 0)
		return false;
	if (v->off == x->off)
		v->off += 64;
	else
		v->off = x->off;
	return true;
}

static bool make_alias(struct module *m, uint64_t *seed)
{
	struct value *v = placed_value(m, seed);

	if (!v)
		return false;
	v->off = -1;
	return true;
}

static bool copy_alias(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, has_alias);
	struct value *w = placed_value(m, seed);

	if (!op || !w || !op->nout)
		return false;
	op->out[0]->off = draw(seed, 2) ? w->off : m->arena;
	m->arena += op->out[0]->off == m->arena ? 1 << 20 : 0;
	return true;
}

static bool alias_view(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_view);

	if (!op || op->out[0]->off < 0)
		return false;
	op->out[0]->off = -1;
	return true;
}

static bool move_buffer(struct module *m, uint64_t *seed)
{
	struct buffer *a = m->bufs.at[draw(seed, m->bufs.n)], *b = m->bufs.at[draw(seed, m->bufs.n)];

	if (a->role == B_INPUT || b->role == B_INPUT)
		return false;
	switch (draw(seed, 3)) {
	case 0:
		a->off += 64 * ((int64_t)draw(seed, 9) - 4);
		return a->off >= 0;
	case 1:
		a->off = b->off;
		return a != b;
	default: {
		int64_t off = a->off;

		a->off = b->off;
		b->off = off;
		return a != b;
	}
	}
}

static bool shrink_arena(struct module *m, uint64_t *seed)
{
	m->arena -= 64 * (1 + (int64_t)draw(seed, 8));
	return m->arena > 0;
}

/* -- sums -- */

static bool drop_accumulate(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_accumulate);

	if (!op)
		return false;
	if (draw(seed, 2)) {
		op->in[0]->sh.sum = op->out[0]->sh.sum;
		if (op->in[0]->def && op->in[0]->def->code == OP_KERNEL)
			op->in[0]->def->body->yields.at[op->in[0]->no]->sh.sum = op->out[0]->sh.sum;
	}
	bypass(op);
	return true;
}

static struct bits flipped(struct module *m, struct bits b, uint64_t i)
{
	struct bits x = { 0 };

	for (int64_t k = 0; k < bits_end(b); k++)
		x = bits_has(b, k) && k != (int64_t)i ? bits_with(m->mem, x, k) : x;
	return bits_has(b, (int64_t)i) ? x : bits_with(m->mem, b, (int64_t)i);
}

static bool flip_acc(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_repeat);

	if (!op || op->nout <= op->at.ncarry)
		return false;
	SET(op, acc, flipped(m, op->at.acc, draw(seed, op->nout - (uint64_t)op->at.ncarry)));
	return true;
}

static bool drop_to_partial(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_to_partial);

	if (!op)
		return false;
	if (draw(seed, 2)) { /* as if every rank's were a part */
		op->in[0]->sh.sum |= axes_bits(&op->at.axes);
		if (op->in[0]->def && op->in[0]->def->code == OP_KERNEL)
			op->in[0]->def->body->yields.at[op->in[0]->no]->sh.sum |= axes_bits(&op->at.axes);
	}
	bypass(op);
	return true;
}

static void remove_operand(struct op *op, uint32_t i)
{
	memmove(op->in + i, op->in + i + 1, (op->nin - i - 1) * sizeof *op->in);
	op->nin--;
}

/* One term is left out of a sum of a kernel. */
static bool drop_term(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, true, is_sum);

	if (!op || op->nin < 2)
		return false;
	if (op->code == OP_ADD)
		op->code = OP_ACCUM;
	remove_operand(op, (uint32_t)draw(seed, op->nin));
	return true;
}

static bool drop_write(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_write);

	if (!op || op->code != OP_WRITE)
		return false;
	op_unlink(op);
	return true;
}

static bool write_elsewhere(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_write);

	if (!op || op->code != OP_WRITE)
		return false;
	op->at.buf = m->bufs.at[draw(seed, m->bufs.n)]->name;
	return true;
}

static bool drop_any(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_any);

	if (!op || op->nin != op->nout || op->body)
		return false;
	bypass(op);
	return true;
}

/* -- loops -- */

static bool other_trips(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_repeat);

	if (!op)
		return false;
	op->at.dim = (dimid)draw(seed, m->dims.n);
	return true;
}

static bool turn_around(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_repeat);

	if (!op || dim_size(m, op->at.dim) < 2)
		return false;
	SET(op, reverse, !op->at.reverse);
	return true;
}

static bool swap_yields(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_repeat);
	struct block *b = op ? op->body : NULL;

	if (!op || op->at.ncarry < 1 || op->nout < 1)
		return false;
	op->at.ncarry += draw(seed, 2) ? 1 : -1;
	return op->at.ncarry <= (int64_t)b->yields.n;
}

static bool other_micro(struct module *m, uint64_t *seed)
{
	m->micro = 1 + (int64_t)draw(seed, 4);
	return true;
}

static bool split_otherwise(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_einsum);
	struct value *v = op ? draw(seed, 2) ? op->out[0] : op->in[draw(seed, op->nin)] : NULL;

	if (!v || !v->nd)
		return false;
	struct axes *on = &v->sh.on[draw(seed, v->nd)];

	if (on->n)
		on->n = 0;
	else
		axes_push(on, (int)draw(seed, m->axes.n));
	return true;
}

/* -- pipelines -- */

static bool has_where(const struct op *op)
{
	return HAS(op, where);
}

static int64_t other_places(struct module *m, uint64_t *seed, int64_t where)
{
	uint64_t n = 2 * m->pipe.loops.n + 1;

	return draw(seed, 2) ? 1ll << draw(seed, n) : where ^ 1ll << draw(seed, n);
}

/* Stages have other things now: it is seldom the size of their arenas alone that tells. */
static bool fit_arenas(struct module *m, uint64_t *seed)
{
	if (draw(seed, 4) && pipe_axis(m) >= 0)
		layout_arenas(m, regions_of(m->mem, m));
	return true;
}

static bool other_where(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, has_where);

	if (!op || !m->pipe.loops.n)
		return false;
	SET(op, where, other_places(m, seed, op->at.where));
	return fit_arenas(m, seed);
}

static bool runs_on_some(const struct op *op)
{
	return HAS(op, where) && op->at.where;
}

/* On all stages. */
static bool everywhere(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, runs_on_some);

	if (!op || !m->pipe.loops.n)
		return false;
	SET(op, where, 0);
	return fit_arenas(m, seed);
}

static bool other_holders(struct module *m, uint64_t *seed)
{
	struct buffer *b = m->bufs.at[draw(seed, m->bufs.n)];

	if (!m->pipe.loops.n)
		return false;
	b->where = other_places(m, seed, b->where);
	return fit_arenas(m, seed);
}

static bool from_stages(const struct op *op)
{
	return HAS(op, from);
}

static bool other_from(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, from_stages);

	if (!op)
		return false;
	if (draw(seed, 3))
		SET(op, from, other_places(m, seed, op->at.from));
	else
		SET(op, form, !op->at.form);
	return true;
}

static bool other_cut(struct module *m, uint64_t *seed)
{
	if (!m->pipe.end.n)
		return false;
	m->pipe.end.at[draw(seed, m->pipe.end.n)] += draw(seed, 2) ? 1 : -1;
	return true;
}

static bool other_schedule(struct module *m, uint64_t *seed)
{
	if (!m->pipe.end.n)
		return false;
	switch (draw(seed, 4)) {
	case 0:
		m->pipe.order = (enum schedule_kind)draw(seed, SCHED_LIST);
		return true;
	case 1:
		m->pipe.buffers = 1 + (int64_t)draw(seed, 4);
		return true;
	case 2:
		m->pipe.inflight = (int64_t)draw(seed, 6);
		return true;
	default:
		m->pipe.chunks = 1 + (int)draw(seed, 3);
		return true;
	}
}

static bool other_arena(struct module *m, uint64_t *seed)
{
	if (!m->pipe.arena.n)
		return false;
	m->pipe.arena.at[draw(seed, m->pipe.arena.n)] += draw(seed, 2) ? 64 : -64;
	return true;
}

static bool flip_local(struct module *m, uint64_t *seed)
{
	struct op *op = pick(m, seed, false, is_repeat);

	if (!op || !op->at.ncarry || !m->pipe.end.n)
		return false;
	SET(op, local, flipped(m, op->at.local, draw(seed, (uint64_t)op->at.ncarry)));
	return true;
}

const struct mutation mutations[] = {
	{ "collective dropped", drop_comm },
	{ "reduction dropped, owed", drop_honestly },
	{ "reduce_scatter of own part", scatter_own },
	{ "other group", other_axes },
	{ "other group, owed", other_axes_honestly },
	{ "collective moved", move_comm },
	{ "collectives swapped", swap_comms },
	{ "start moved", move_start },
	{ "wait moved", move_wait },
	{ "wait dropped", drop_wait },
	{ "async changed", toggle_async },
	{ "ahead changed", toggle_ahead },
	{ "host copy dropped", drop_copy },
	{ "host copy moved", move_copy },
	{ "host copies swapped", swap_copies },
	{ "host copy overlapped", overlap_copy },
	{ "wait for a copy dropped", drop_copy_wait },
	{ "wait for a copy moved", move_copy_wait },
	{ "max changed", flip_max },
	{ "other dim", other_dim },
	{ "other size", resize_comm },
	{ "op moved", move_any },
	{ "op dropped", drop_any },
	{ "place shifted", shift_place },
	{ "places overlapped", overlap_places },
	{ "places swapped", swap_places },
	{ "in place changed", change_in_place },
	{ "place taken away", make_alias },
	{ "alias copied", copy_alias },
	{ "view made an alias", alias_view },
	{ "buffer moved", move_buffer },
	{ "arena shrunk", shrink_arena },
	{ "accumulate dropped", drop_accumulate },
	{ "accumulation changed", flip_acc },
	{ "to_partial dropped", drop_to_partial },
	{ "term dropped", drop_term },
	{ "write dropped", drop_write },
	{ "written elsewhere", write_elsewhere },
	{ "trips changed", other_trips },
	{ "loop turned around", turn_around },
	{ "carry changed", swap_yields },
	{ "microbatches changed", other_micro },
	{ "split otherwise", split_otherwise },
	{ "other place of the pipeline", other_where },
	{ "run on all stages", everywhere },
	{ "other stages hold a buffer", other_holders },
	{ "other terms of stages", other_from },
	{ "other cut", other_cut },
	{ "other schedule", other_schedule },
	{ "other arena of a stage", other_arena },
	{ "carried otherwise", flip_local },
	{ NULL, NULL },
};
