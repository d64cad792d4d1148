/* runtime/program.c - a planned module becomes a program of instructions, the same for all ranks. */
#include <math.h>
#include <stdlib.h>

#include "runtime/backend.h"
#include "runtime/lowering.h"

/* Is what starts begun, or carried out, where the plan starts it? */
static bool begins(const struct lowering *l, const struct op *op)
{
	return l->eager || (!l->late && (l->rt->backend->starts >> op_stream(op->code) & 1));
}

/* -- copies -- */

int64_t stride_in(const struct module *m, const struct value *v, dimid d)
{
	int64_t s[MAX_DIMS];
	int i = dim_pos(v, d);

	strides_of(m, v->nd, v->d, v->sh.on, s);
	return i < 0 ? 0 : s[i];
}

/* Loops over the dims of `over`, less `skip`; strides by name in to and from (0 where they lack it). */
static void mover_init(const struct module *m, struct mover *x, const struct value *over, dimid skip,
		       const struct value *to, const struct value *from)
{
	*x = (struct mover){ .mode = MODE_COPY, .ddt = to->dt, .sdt = from->dt, .part_axis = -1 };
	x->bytes = local_bytes(m, over);
	for (int i = 0; i < over->nd; i++) {
		if (over->d[i] == skip)
			continue;
		x->d[x->nd] = over->d[i];
		x->on[x->nd] = over->sh.on[i];
		x->ds[x->nd] = stride_in(m, to, over->d[i]);
		x->ss[x->nd++] = stride_in(m, from, over->d[i]);
	}
}

static bool same_loc(const struct loc *a, const struct loc *b)
{
	if (a->region != b->region || a->base != b->base || a->n != b->n)
		return false;
	for (int i = 0; i < a->n; i++)
		if (a->depth[i] != b->depth[i] || a->stride[i] != b->stride[i])
			return false;
	return true;
}

bool odd(struct lowering *l, const struct op *op, const char *what)
{
	return diag_error(l->d, op->span, "%s in the plan: %s", opinfo[op->code].name, what);
}

/* 100 MB/s and 1 GFLOP/s, and as much more as ranks share a core. */
static int64_t patience(const struct lowering *l, const struct op *op)
{
	double bytes = 0, flops = op->code == OP_EINSUM ? 2 : 0;
	dimid d[3 * MAX_DIMS];
	int n = op->code == OP_EINSUM ? op_space(op, d) : 0;

	for (uint32_t i = 0; i < op->nin; i++)
		bytes += (double)local_bytes(l->m, op->in[i]);
	for (int i = 0; i < n; i++)
		flops *= (double)dim_size(l->m, d[i]);
	if (op->code == OP_ATTENTION || op->code == OP_ATTENTION_GRAD)
		flops = 16.0 * (double)(local_count(l->m, op->in[0]) * dim_size(l->m, op->at.ctx));
	double ms = (bytes / 1e8 + flops / 1e9) * 1e3 * (double)l->rt->nrank;
	return ms < 1e15 ? (int64_t)ms : INT64_C(1000000000000000);
}

struct instr *emit(struct lowering *l, enum icode code, const struct op *op)
{
	bool own = code != I_COPY || op->code == OP_READ || op->code == OP_WRITE; /* else a copy beside the op */

	PUSH(l->rt->mem, &l->to->code, ((struct instr){ .code = code, .op = op, .eval = l->eval, .where = l->where, .patience = patience(l, op),
							.stream = (int8_t)(own ? trace_stream(l->m, op) : -1) }));
	return &l->to->code.at[l->to->code.n - 1];
}

static bool place(struct lowering *l, const struct value *v, struct loc *at)
{
	return place_checked(&l->placing, v, at);
}

static struct move *emit_move(struct lowering *l, const struct op *op)
{
	struct move *mv = NEW(l->rt->mem, struct move);
	struct instr *i = emit(l, I_COPY, op);

	i->move = mv;
	return mv;
}

static struct value buffer_value(const struct buffer *b)
{
	struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store, .span = b->at, .off = b->off };

	memcpy(v.d, b->d, sizeof v.d);
	return v;
}

static bool covers(const struct value *a, const struct value *b)
{
	for (int i = 0; i < b->nd; i++)
		if (!has_dim(a, b->d[i]))
			return false;
	return a->nd == b->nd;
}

static bool lower_read(struct lowering *l, const struct op *op)
{
	const struct value *v = op->out[0];
	struct buffer *b = find_buffer(l->m, op->at.buf);
	struct loc at;

	if (!b || !place(l, v, &at))
		return b ? false : odd(l, op, "no such buffer");
	struct value bv = buffer_value(b);

	if (!covers(v, &bv) || v->dt != b->dt)
		return odd(l, op, "the type is not the buffer's");
	if (b->role == B_INPUT) {
		struct move *mv = emit_move(l, op);
		struct instr *i = &l->to->code.at[l->to->code.n - 1];

		i->code = I_INPUT;
		i->input = rt_input(l->rt, b->name);
		memset(&bv.sh, 0, sizeof bv.sh);
		mover_init(l->m, &mv->m, v, NODIM, v, &bv);
		mv->to = at;
		return true;
	}
	if (v->off < 0)
		return true;
	for (int i = 0; i < v->nd; i++)
		if (!axes_equal(&v->sh.on[i], &bv.sh.on[dim_pos(&bv, v->d[i])]))
			return odd(l, op, "it is sharded otherwise than its buffer");
	struct move *mv = emit_move(l, op);

	mover_init(l->m, &mv->m, v, NODIM, v, &bv);
	mv->to = at;
	mv->from.base = b->off;
	mv->from.region = buffer_region(&l->placing, b);
	return true;
}

static bool lower_write(struct lowering *l, const struct op *op)
{
	const struct value *v = op->in[0];
	struct buffer *b = find_buffer(l->m, op->at.buf);
	struct loc from, to = { 0 };

	if (!b || b->off < 0 || !place(l, v, &from))
		return b && b->off >= 0 ? false : odd(l, op, "no such buffer");
	struct value bv = buffer_value(b);

	to.base = b->off;
	to.region = buffer_region(&l->placing, b);
	if (!covers(v, &bv))
		return odd(l, op, "the dims are not the buffer's");
	for (int i = 0; i < v->nd; i++)
		if (!axes_equal(&v->sh.on[i], &bv.sh.on[dim_pos(&bv, v->d[i])]))
			return odd(l, op, "the value is sharded otherwise than its buffer");
	if (same_loc(&from, &to) && same_layout(v, b->nd, b->d, b->store.on, b->dt))
		return true;
	struct move *mv = emit_move(l, op);

	mover_init(l->m, &mv->m, v, NODIM, &bv, v);
	mv->to = to;
	mv->from = from;
	return true;
}

/* -- views and the free twins of collectives -- */

/* The type of the operand under the result's names: what a rename, split or merge reads. */
static bool under_names(struct lowering *l, const struct op *op, const struct value **fine, int64_t *ds, int64_t *ss)
{
	const struct value *in = op->in[0], *out = op->out[0];
	int64_t si[MAX_DIMS], so[MAX_DIMS];
	bool merge = op->code == OP_MERGE;
	const struct value *few = merge ? out : in; /* has the wide dim */
	const struct dimlist *parts = merge ? &op->at.dims : &op->at.tos;
	dimid wide = merge ? op->at.to : op->at.dim;

	*fine = merge ? in : out;
	strides_of(l->m, in->nd, in->d, in->sh.on, si);
	strides_of(l->m, out->nd, out->d, out->sh.on, so);
	int64_t *mine = merge ? ss : ds, *other = merge ? ds : ss, *fs = merge ? si : so, *ws = merge ? so : si;

	for (int i = 0; i < (*fine)->nd; i++) {
		dimid d = (*fine)->d[i];
		int64_t inner = 1, at = -1;

		for (int k = parts->n - 1; k >= 0; k--) {
			if (parts->d[k] == d)
				at = inner;
			inner *= dim_size(l->m, parts->d[k]);
		}
		int w = dim_pos(few, at >= 0 ? wide : d);

		if (w < 0)
			return odd(l, op, "its dims do not match");
		mine[i] = fs[i];
		other[i] = ws[w] * (at >= 0 ? at : 1);
	}
	return true;
}

static bool lower_view(struct lowering *l, const struct op *op)
{
	const struct value *in = op->in[0], *out = op->out[0], *fine = out;
	struct loc at, from;
	int64_t ds[MAX_DIMS], ss[MAX_DIMS];

	if (!place(l, out, &at) || !place(l, in, &from))
		return false;
	if (out->off < 0)
		return true;
	if (op->code == OP_RENAME) {
		struct value as = *in;

		for (int i = 0; i < in->nd; i++)
			for (int k = 0; k < op->at.dims.n; k++)
				if (in->d[i] == op->at.dims.d[k])
					as.d[i] = op->at.tos.d[k];
		if (!covers(&as, out))
			return odd(l, op, "its dims do not match");
		struct move *mv = emit_move(l, op);

		mover_init(l->m, &mv->m, out, NODIM, out, &as);
		mv->to = at;
		mv->from = from;
		return true;
	}
	if (!under_names(l, op, &fine, ds, ss))
		return false;
	struct move *mv = emit_move(l, op);

	mover_init(l->m, &mv->m, fine, NODIM, out, in);
	memcpy(mv->m.ds, ds, sizeof ds);
	memcpy(mv->m.ss, ss, sizeof ss);
	mv->to = at;
	mv->from = from;
	return true;
}

static bool lower_accumulate(struct lowering *l, const struct op *op)
{
	const struct value *in = op->in[0], *out = op->out[0];
	struct loc at, from;

	if (!place(l, out, &at) || !place(l, in, &from) || !covers(in, out))
		return odd(l, op, "operand and result differ");
	if (same_loc(&at, &from))
		return true;
	struct move *mv = emit_move(l, op);

	mover_init(l->m, &mv->m, out, NODIM, out, in);
	mv->m.mode = sums_in_step(l->m) ? MODE_ADD : MODE_COPY;
	mv->to = at;
	mv->from = from;
	return true;
}

/* A group over the pipeline's axis is of the stages that run the op. */
static int64_t group_where(struct lowering *l, const struct op *op)
{
	int axis = pipe_axis(l->m);

	return axis >= 0 && (axes_bits(&op->at.axes) >> axis & 1) && HAS(op, where) ? op->at.where : 0;
}

struct loc *locs(struct lowering *l, const struct op *op)
{
	struct loc *at = NEWN(l->rt->mem, struct loc, op->nin + op->nout + 1);

	for (uint32_t i = 0; i < op->nin; i++)
		if (!place(l, op->in[i], &at[i]))
			return NULL;
	for (uint32_t i = 0; i < op->nout; i++)
		if (!place(l, op->out[i], &at[op->nin + i]))
			return NULL;
	for (uint32_t i = 0; l->rt->regions->host >= 0 && i < op->nin + op->nout; i++)
		if (at[i].region == l->rt->regions->host) {
			odd(l, op, "it works on what lies in host memory");
			return NULL;
		}
	return at;
}

/* -- what may go on beside compute -- */

static void note_start(struct lowering *l, struct instr *i)
{
	i->async = !l->eager && is_async(i->op) && begins(l, i->op);
	i->ahead = HAS(i->op, ahead) && begins(l, i->op);
	i->start = (int)l->rt->starts.n;
	PUSH(l->rt->mem, &l->rt->starts, i->op);
}

/* A copy between the memories of host and device. What only starts is shown in a trace when it is waited for. */
static bool emit_host(struct lowering *l, const struct op *op)
{
	struct loc from, to;
	int host = l->rt->regions->host;

	if (!place(l, op->in[0], &from) || !place(l, op->out[0], &to) || !covers(op->in[0], op->out[0]))
		return odd(l, op, "operand and result differ");
	if (host < 0 || (op->code == OP_FROM_HOST ? from.region : to.region) != host ||
	    (op->code == OP_FROM_HOST ? to.region : from.region) == host)
		return odd(l, op, "it is not between host and device");
	struct move *mv = emit_move(l, op);
	struct instr *i = &l->to->code.at[l->to->code.n - 1];

	mover_init(l->m, &mv->m, op->out[0], NODIM, op->out[0], op->in[0]);
	mv->to = to;
	mv->from = from;
	i->code = I_HOST;
	i->stream = (int8_t)trace_stream(l->m, op);
	note_start(l, i);
	i->aside = !l->eager && (i->async || i->ahead);
	if (i->async)
		i->stream = -1;
	return true;
}

static bool lower_host(struct lowering *l, const struct op *op)
{
	return (is_async(op) && !begins(l, op)) || emit_host(l, op);
}

/* The free twins: nothing is sent. */
static bool lower_cut(struct lowering *l, const struct op *op, const struct loc *at)
{
	const struct value *in = op->in[0], *out = op->out[0];
	struct move *mv = emit_move(l, op);

	mover_init(l->m, &mv->m, out, NODIM, out, in);
	mv->from = at[0];
	mv->to = at[1];
	if (op->code == OP_TO_PARTIAL) {
		mv->m.mode = MODE_FILL;
		mv->m.axes = axes_bits(&op->at.axes);
		mv->m.fill = HAS(op, max) && op->at.max ? -INFINITY : 0;
		mv->m.from = HAS(op, from) ? op->at.from : 0;
		mv->m.from_all = HAS(op, form) && op->at.form;
		return true;
	}
	int i = dim_pos(out, op->at.dim);

	if (i < 0 || op->at.axes.n != 1)
		return odd(l, op, "no dim, or several axes");
	mv->m.part_axis = op->at.axes.a[0];
	mv->m.part = cap_of(l->m, op->at.dim, &out->sh.on[i]) * stride_in(l->m, in, op->at.dim);
	return true;
}

static bool emit_comm(struct lowering *l, const struct op *op, struct loc *at)
{
	struct instr *i = emit(l, I_COMM, op);

	i->at = at;
	i->group = group_kind(l->rt, axes_bits(&op->at.axes), group_where(l, op));
	i->no = (int)l->rt->senders.n;
	note_start(l, i);
	PUSH(l->rt->mem, &l->rt->senders, ((struct sender){ .op = op }));
	return true;
}

static bool lower_comm(struct lowering *l, const struct op *op)
{
	struct loc *at = locs(l, op);

	if (!at)
		return false;
	for (uint32_t k = 0; k < op->nin; k++)
		if (!covers(op->in[k], op->out[k]) || op->in[k]->dt != op->out[k]->dt)
			return odd(l, op, "operand and result differ");
	if (!op->at.axes.n)
		return odd(l, op, "it has no axes");
	if (op->code == OP_SHARD || op->code == OP_TO_PARTIAL)
		return lower_cut(l, op, at);
	return (is_async(op) && !begins(l, op)) || emit_comm(l, op, at);
}

static bool emit_wait(struct lowering *l, const struct op *start)
{
	int no = 0;

	while (no < (int)l->rt->starts.n && l->rt->starts.at[no] != start)
		no++;
	struct instr *i = emit(l, I_WAIT, start);

	i->start = no;
	i->aside = opinfo[start->code].class == C_HOST;
	return no < (int)l->rt->starts.n || odd(l, start, "it is waited for before it is started");
}

/* Where the backend does not begin it, what was started is carried out here: of collectives a rank never blocks at the
 * start, and all wait in one order. */
static bool lower_wait(struct lowering *l, const struct op *op)
{
	const struct op *start = op->in[0]->def;
	struct loc *at;

	if (!start || !may_fly(start->code) || start->nout != op->nin)
		return odd(l, op, "nothing was started");
	for (uint32_t k = 0; k < op->nin; k++)
		if (op->in[k] != start->out[k] || !covers(op->in[k], op->out[k]))
			return odd(l, op, "it does not fit what was started");
	if (begins(l, start))
		return l->eager || emit_wait(l, start);
	if (opinfo[start->code].class == C_HOST)
		return emit_host(l, start);
	at = locs(l, start);
	return at && emit_comm(l, start, at);
}

/* -- repeats -- */

/* A row of whole to v (from the left) or back, at this iteration. */
static bool row_move(struct lowering *l, const struct op *r, const struct value *v, const struct value *whole,
		     bool out, struct move *mv)
{
	struct loc row, mine;

	if (whole->nd != v->nd + 1 || stack_dim(l->m, whole, r->at.dim) == NODIM || !place(l, v, &mine) || !place(l, whole, &row))
		return odd(l, r, "a value does not fit its stack");
	for (int i = 0; i < v->nd; i++)
		if (!has_dim(whole, v->d[i]))
			return odd(l, r, "a value does not fit its stack");
	if (row.n == MAX_NEST)
		return odd(l, r, "too deep");
	row.depth[row.n] = row_counter(&l->placing, r, whole, row.region);
	row.stride[row.n++] = stride_in(l->m, whole, stack_dim(l->m, whole, r->at.dim)) * dtype_bytes(whole->dt);
	mover_init(l->m, &mv->m, v, NODIM, out ? whole : v, out ? v : whole);
	mv->to = out ? row : mine;
	mv->from = out ? mine : row;
	return true;
}

static bool stack_one(struct lowering *l, const struct op *r, uint32_t k, struct move *mv, bool *needed)
{
	if (!row_move(l, r, r->body->yields.at[k], r->out[k], true, mv))
		return false;
	mv->m.mode = sums_in_step(l->m) && adds_up(r, k) ? MODE_ADD : MODE_COPY;
	mv->to.rows |= is_cut(l->m, r);
	*needed = !same_loc(&mv->to, &mv->from);
	return true;
}

/* Copies to stacks of what this op makes. */
static bool stack_results(struct lowering *l, const struct op *op)
{
	const struct op *r = op->home->owner;
	struct move mv;
	bool needed;

	for (uint32_t k = r ? (uint32_t)r->at.ncarry : 0; r && k < r->body->yields.n; k++) {
		if (r->body->yields.at[k]->def != op)
			continue;
		if (!stack_one(l, r, k, &mv, &needed))
			return false;
		if (needed)
			*emit_move(l, r) = mv;
	}
	return true;
}

static bool lower_block(struct lowering *l, const struct block *block, struct prog *to);

/* Does the carried value k's yield lie where another carried value is about to be put? */
static bool is_late(struct lowering *l, const struct op *r, int64_t k, const struct loc *from)
{
	struct loc at;

	for (int64_t j = 0; j < r->at.ncarry; j++)
		if (j != k && place(l, r->out[j], &at) && same_loc(&at, from))
			return true;
	return false;
}

static bool lower_carry(struct lowering *l, const struct op *r, struct loop *x)
{
	for (int64_t k = 0; k < r->at.ncarry; k++) {
		const struct value *y = r->body->yields.at[k], *o = r->out[k];
		struct move mv;

		if (!place(l, o, &mv.to) || !place(l, r->in[k], &mv.from) || !covers(r->in[k], o) || !covers(y, o))
			return odd(l, r, "a carried value changes its dims");
		mover_init(l->m, &mv.m, o, NODIM, o, r->in[k]);
		bool own = x->staged && HAS(r, local) && k < 63 && (r->at.local >> k & 1);

		if (!same_loc(&mv.to, &mv.from) && x->staged && !own)
			PUSH(l->rt->mem, &x->entry, mv);
		else if (!same_loc(&mv.to, &mv.from))
			PUSH(l->rt->mem, &x->before, mv);
		if (!place(l, y, &mv.from))
			return false;
		mover_init(l->m, &mv.m, o, NODIM, o, y);
		mv.m.late = is_late(l, r, k, &mv.from);
		if (!same_loc(&mv.to, &mv.from))
			PUSH(l->rt->mem, &x->after, mv);
	}
	return true;
}

static bool lower_args(struct lowering *l, const struct op *r, struct loop *x)
{
	struct move mv;
	bool needed;

	for (uint32_t i = (uint32_t)(r->at.ncarry + r->at.nwith); i < r->body->args.n; i++) {
		if (r->body->args.at[i]->off < 0)
			continue;
		if (!row_move(l, r, r->body->args.at[i], r->in[i], false, &mv))
			return false;
		PUSH(l->rt->mem, &x->each, mv);
	}
	for (uint32_t k = (uint32_t)r->at.ncarry; k < r->body->yields.n; k++) {
		if (r->body->yields.at[k]->def)
			continue;
		if (!stack_one(l, r, k, &mv, &needed))
			return false;
		if (needed)
			PUSH(l->rt->mem, &x->each, mv);
	}
	return true;
}

static bool lower_repeat(struct lowering *l, const struct op *op)
{
	struct loop *x = NEW(l->rt->mem, struct loop);
	struct prog *to = l->to;

	x->trips = dim_size(l->m, op->at.dim);
	x->dim = op->at.dim;
	x->staged = is_cut(l->m, op);
	x->reverse = HAS(op, reverse) && op->at.reverse;
	x->kept = op->home->owner ? NODIM : kept_part(l->m, op->at.dim);
	x->first = is_first_part(l->m, op);
	x->depth = depth_of(op->home);
	if (x->first && (!x->depth || l->m->dims.at[op->at.dim].of != op->home->owner->at.dim))
		return odd(l, op, "it does not stand in the repeat of which it is a part");
	if (x->depth >= MAX_NEST)
		return odd(l, op, "it is nested too deep");
	if (op->body->args.n != op->nin || op->body->yields.n != op->nout || op->at.ncarry > op->nout ||
	    op->at.ncarry + op->at.nwith > op->nin)
		return odd(l, op, "args and yields do not match it");
	if (!lower_carry(l, op, x) || !lower_args(l, op, x) || !lower_block(l, op->body, &x->body))
		return false;
	l->to = to;
	emit(l, I_REPEAT, op)->loop = x;
	return true;
}

static bool lower_op(struct lowering *l, const struct op *op)
{
	switch (op->code) {
	case OP_READ:
		return lower_read(l, op);
	case OP_WRITE:
		return lower_write(l, op);
	case OP_RENAME:
	case OP_SPLIT:
	case OP_MERGE:
		return lower_view(l, op);
	case OP_ACCUMULATE:
		return lower_accumulate(l, op);
	case OP_EINSUM:
		return lower_einsum(l, op);
	case OP_ATTENTION:
	case OP_ATTENTION_GRAD:
		return lower_attention(l, op);
	case OP_KERNEL:
		return lower_kernel(l, op);
	case OP_REPEAT:
		return lower_repeat(l, op);
	case OP_REPORT:
		return lower_report(l, op);
	case OP_ITER:
		return lower_iter(l, op);
	case OP_WAIT:
		return lower_wait(l, op);
	case OP_FROM_HOST:
	case OP_TO_HOST:
		return lower_host(l, op);
	default:
		if (opinfo[op->code].class == C_COMM)
			return lower_comm(l, op);
		return odd(l, op, "it may stand in kernels only");
	}
}

static bool lower_block(struct lowering *l, const struct block *block, struct prog *to)
{
	for (const struct op *op = block->first; op; op = op->next) {
		bool micro = op->phase == FORWARD || op->phase == BACKWARD;
		int last = l->rt->layouts ? 2 * (int)l->m->pipe.loops.n : 0;

		if (!block->owner && micro && op_place(op) > last)
			return odd(l, op, "its place is beyond the pipeline");
		l->to = block->owner ? to : &l->rt->prog[op_section(op)][micro && l->rt->layouts ? op_place(op) : 0];
		if (!block->owner)
			l->eval = op->mark;
		if (!block->owner)
			l->where = !micro && l->rt->layouts && HAS(op, where) ? op->at.where : 0;
		if (!lower_op(l, op) || !stack_results(l, op))
			return false;
	}
	return true;
}

/* -- evaluation: what the reports need that need no backward -- */

static bool needs_backward(struct op *op)
{
	if (op->mark == 2 || op->phase == BACKWARD)
		return true;
	if (op->mark)
		return false;
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i]->def && needs_backward(op->in[i]->def)) {
			op->mark = 2;
			return true;
		}
	op->mark = 1;
	return false;
}

static void want(struct op *op)
{
	if (op->mark == 3)
		return;
	op->mark = 3;
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i]->def)
			want(op->in[i]->def);
}

static void mark_eval(struct block *top)
{
	for (struct op *op = top->first; op; op = op->next)
		op->mark = 0;
	for (struct op *op = top->first; op; op = op->next)
		if (op->code == OP_REPORT && !needs_backward(op))
			want(op);
	for (struct op *op = top->first; op; op = op->next)
		op->mark = op->mark == 3;
}

static bool is_set(const char *name)
{
	const char *s = getenv(name);

	return s && *s;
}

bool program_build(struct runtime *rt, struct diag *d)
{
	struct lowering l = { .rt = rt, .m = rt->m, .d = d, .placing = { .m = rt->m, .r = rt->regions, .d = d },
			      .eager = is_set("PTC_TEST_EAGER"), .late = is_set("PTC_TEST_LATE") };

	for (int i = 0; i < NSECTION; i++)
		rt->prog[i] = NEWN(rt->mem, struct prog, 2 * rt->m->pipe.loops.n + 1);
	note_targets(&rt->m->top);
	mark_eval(&rt->m->top);
	return lower_block(&l, &rt->m->top, NULL);
}
