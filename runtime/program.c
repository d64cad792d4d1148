/* runtime/program.c - a planned module becomes a program of instructions, the same for all ranks. */
#include <stdlib.h>

#include "runtime/backend.h"
#include "runtime/lowering.h"

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

struct loc *locs(struct lowering *l, const struct op *op)
{
	struct loc *at = NEWN(l->rt->mem, struct loc, op->nin + op->nout + 1);

	for (uint32_t i = 0; i < op->nin; i++)
		if (!find_loc(l, op->in[i], &at[i]))
			return NULL;
	for (uint32_t i = 0; i < op->nout; i++)
		if (!find_loc(l, op->out[i], &at[op->nin + i]))
			return NULL;
	for (uint32_t i = 0; l->rt->regions->host >= 0 && i < op->nin + op->nout; i++)
		if (at[i].region == l->rt->regions->host) {
			odd(l, op, "it works on what lies in host memory");
			return NULL;
		}
	return at;
}

/* -- repeats -- */

/* A row of whole to v (from the left) or back, at this iteration. */
static bool row_move(struct lowering *l, const struct op *r, const struct value *v, const struct value *whole,
		     bool out, struct move *mv)
{
	struct loc row, mine;

	if (whole->nd != v->nd + 1 || stack_dim(l->m, whole, r->at.dim) == NODIM || !find_loc(l, v, &mine) || !find_loc(l, whole, &row))
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
	mv->m.mode = sums_in_step(l->m) && repeat_adds(r, k) ? MODE_ADD : MODE_COPY;
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
		if (j != k && find_loc(l, r->out[j], &at) && same_loc(&at, from))
			return true;
	return false;
}

static bool lower_carry(struct lowering *l, const struct op *r, struct loop *x)
{
	for (int64_t k = 0; k < r->at.ncarry; k++) {
		const struct value *y = r->body->yields.at[k], *o = r->out[k];
		struct move mv;

		if (!find_loc(l, o, &mv.to) || !find_loc(l, r->in[k], &mv.from) || !covers(r->in[k], o) || !covers(y, o))
			return odd(l, r, "a carried value changes its dims");
		mover_init(l->m, &mv.m, o, NODIM, o, r->in[k]);
		bool own = x->staged && repeat_local(r, (uint32_t)k);

		if (!same_loc(&mv.to, &mv.from) && x->staged && !own)
			PUSH(l->rt->mem, &x->entry, mv);
		else if (!same_loc(&mv.to, &mv.from))
			PUSH(l->rt->mem, &x->before, mv);
		if (!find_loc(l, y, &mv.from))
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
