/* runtime/program_compute.c - the instructions that compute: kernels, matrix products, attention; and what is told of them. */
#include <math.h>

#include "ir/eval.h"
#include "runtime/backend.h"
#include "runtime/lowering.h"

/* The instruction before, if it is the einsum whose epilogue op is. */
static void note_epilogue(struct lowering *l, const struct op *op)
{
	uint32_t n = l->to->code.n;
	struct instr *kernel = &l->to->code.at[n - 1], *i = n > 1 ? kernel - 1 : NULL;
	struct epilogue e;
	const struct op *einsum = epilogue_pair(op, &e);

	if (!einsum || !i || i->code != I_EINSUM || i->op != einsum || i->eval != kernel->eval || i->where != kernel->where)
		return;
	struct paired *p = NEW(l->rt->mem, struct paired);
	const struct value *v = e.bias >= 0 ? op->in[e.bias] : e.grad >= 0 ? op->out[e.grad] : NULL;

	p->is = e;
	for (int k = 0; v && k < i->einsum->x.nd; k++) {
		p->has[k] = has_dim(v, i->einsum->d[k]);
		p->vector[k] = stride_in(l->m, v, i->einsum->d[k]);
	}
	i->with = p;
}

bool lower_kernel(struct lowering *l, const struct op *op)
{
	const struct kernels *k = &l->rt->kernels;
	struct loc *at = locs(l, op);

	if (!at)
		return false;
	if (op->nin > MAX_OPERANDS || op->nout > MAX_OPERANDS)
		return odd(l, op, "too many operands");
	for (int n = 0; n < k->n; n++) {
		int no = (l->kernel + n) % k->n;

		if (k->op[no] != op)
			continue;
		struct instr *i = emit(l, I_KERNEL, op);

		i->at = at;
		i->no = no;
		l->kernel = no + 1;
		note_epilogue(l, op);
		return l->rt->backend->prepare(l->rt, i, l->d);
	}
	return odd(l, op, "no code was made for it");
}

bool lower_einsum(struct lowering *l, const struct op *op)
{
	struct loc *at = locs(l, op);
	struct einsum *e = NEW(l->rt->mem, struct einsum);
	const struct value *v[3] = { op->in[0], op->in[1], op->out[0] };
	dimid d[3 * MAX_DIMS];
	int n = 0;

	if (!at)
		return false;
	for (int k = 0; k < 3; k++) {
		n = union_dims(n, d, v[k]);
		e->x.dt[k] = v[k]->dt;
	}
	e->x.nd = n;
	e->x.add = at[2].adds;
	for (int i = 0; i < n; i++) {
		const struct axes *on = NULL;

		e->d[i] = d[i];
		for (int k = 0; k < 3; k++) {
			int p = dim_pos(v[k], d[i]);

			if (p < 0)
				continue;
			e->x.has[k][i] = true;
			e->x.stride[k][i] = stride_in(l->m, v[k], d[i]);
			if (on && !axes_equal(on, &v[k]->sh.on[p]))
				return odd(l, op, "operands are sharded differently");
			on = &v[k]->sh.on[p];
		}
		e->on[i] = *on;
		if (!e->x.has[0][i] && !e->x.has[1][i])
			return odd(l, op, "a dim of the result is in no operand");
	}
	if (e->x.add && e->x.dt[2] != F32)
		return odd(l, op, "a sum over microbatches that is not f32");
	struct instr *i = emit(l, I_EINSUM, op);

	i->at = at;
	i->einsum = e;
	return true;
}

static int64_t mask_step(const struct module *m, const struct op *op, dimid d)
{
	int64_t step = 1;

	for (int i = op->at.dims.n - 1; i >= 0; i--) {
		if (op->at.dims.d[i] == d)
			return step;
		step *= dim_size(m, op->at.dims.d[i]);
	}
	return 0;
}

/* Which operand or (after the operands) result an AT_ number is; -1: none. */
static int attention_slot(const struct op *op, int which)
{
	static const int bit[] = { X_BIAS, X_MASK, X_WINDOW };
	int rest = (int)attn_rest(op), nin = (int)op->nin;

	if (which == AT_DBIAS)
		return op->nout > 3 ? nin + 3 : -1;
	if (which >= AT_BIAS)
		return attn_extra(op, bit[which - AT_BIAS]);
	if (which < AT_O)
		return which;
	if (op->code == OP_ATTENTION)
		return which < AT_DO ? nin + which - AT_O : -1;
	return which < AT_DQ ? rest + which - AT_O : nin + which - AT_DQ;
}

static const struct value *attention_value(const struct op *op, int which)
{
	int at = attention_slot(op, which);

	return at < 0 ? NULL : at < (int)op->nin ? op->in[at] : op->out[at - (int)op->nin];
}

/* Rows run along {causal}, else the longest dim of the queries only. */
static dimid row_dim(const struct module *m, const struct op *op, const struct value *lse)
{
	dimid best = NODIM;

	if (HAS(op, causal))
		return op->at.causal;
	for (int i = 0; i < lse->nd; i++) {
		dimid d = lse->d[i];

		if (!has_dim(op->in[1], d) && !has_dim(op->in[2], d) && (best == NODIM || dim_size(m, d) > dim_size(m, best)))
			best = d;
	}
	return best;
}

static bool attend_dims(struct lowering *l, const struct op *op, struct attend *a)
{
	const struct value *q = op->in[0], *k = op->in[1], *v = op->in[2], *lse = attention_value(op, AT_LSE);

	a->row = row_dim(l->m, op, lse);
	a->dim = op->at.dim;
	a->col = op->at.ctx;
	a->own = NODIM;
	for (int i = 0; i < v->nd; i++)
		if (v->d[i] == a->col) {
			a->col_on = v->sh.on[i];
		} else if (!has_dim(lse, v->d[i])) {
			if (a->own != NODIM)
				return odd(l, op, "v has two dims of its own");
			a->own = v->d[i];
			a->own_on = v->sh.on[i];
		}
	if (!has_dim(q, a->dim) || !has_dim(k, a->dim) || !has_dim(k, a->col) || !has_dim(v, a->col) ||
	    lse->dt != F32 || (a->row != NODIM && (!has_dim(lse, a->row) || has_dim(k, a->row) || has_dim(v, a->row))))
		return odd(l, op, "its dims do not fit");
	for (int i = 0; i < lse->nd; i++) {
		dimid d = lse->d[i];

		if (d == a->row) {
			a->row_on = lse->sh.on[i];
			continue;
		}
		if (a->x.nloop == MAX_LOOPS)
			return odd(l, op, "too many dims");
		int n = a->x.nloop++;

		a->loop[n] = d;
		a->loop_on[n] = lse->sh.on[i];
		a->x.keys[n] = has_dim(k, d);
		if (has_dim(k, d) != has_dim(v, d) || !has_dim(q, d))
			return odd(l, op, "a dim of k that v or q lacks");
		a->x.rng_loop[n] = (uint64_t)mask_step(l->m, op, d);
	}
	return true;
}

static bool attend_extra(struct lowering *l, const struct op *op, struct attend *a, int which)
{
	static const enum dtype types[] = { F32, BOOL, INT, F32 };
	const struct value *v = attention_value(op, which);
	struct extra *x = &a->x.extra[which - NAT];
	int64_t s[MAX_DIMS];

	if (!v)
		return true;
	if (v->dt != types[which - NAT])
		return odd(l, op, "a bias, mask or window of a wrong type");
	x->there = true;
	strides_of(l->m, v->nd, v->d, v->sh.on, s);
	for (int i = 0; i < v->nd; i++) {
		int n = 0;

		while (n < a->x.nloop && a->loop[n] != v->d[i])
			n++;
		if (v->d[i] == a->col && !v->sh.on[i].n)
			x->col = s[i];
		else if (v->d[i] == a->row && axes_equal(&v->sh.on[i], &a->row_on))
			x->row = s[i];
		else if (n < a->x.nloop && axes_equal(&v->sh.on[i], &a->loop_on[n]))
			x->loop[n] = s[i];
		else
			return odd(l, op, "a bias, mask or window does not fit the scores");
	}
	return true;
}

bool lower_attention(struct lowering *l, const struct op *op)
{
	struct attend *a = NEW(l->rt->mem, struct attend);
	struct loc *at = locs(l, op);
	int64_t s[MAX_DIMS];

	if (!at || !attend_dims(l, op, a))
		return false;
	a->backward = op->code == OP_ATTENTION_GRAD;
	for (int w = 0; w < NPLACE; w++)
		a->slot[w] = attention_slot(op, w);
	a->causal = HAS(op, causal);
	a->x.dt = op->in[0]->dt;
	a->x.scale = HAS(op, scale) ? op->at.scale : 1 / sqrt((double)dim_size(l->m, op->at.dim));
	a->x.cap = HAS(op, cap) ? op->at.cap : 0;
	a->x.p = HAS(op, p) ? op->at.p : 0;
	a->x.key = a->x.p > 0 ? stream_key(l->rt->seed, op->at.key) : 0;
	a->mask_row = a->row == NODIM ? 0 : mask_step(l->m, op, a->row);
	a->x.rng_col = (uint64_t)mask_step(l->m, op, a->col);
	for (int w = 0; w < (a->backward ? NAT : AT_DO); w++) {
		const struct value *v = attention_value(op, w);
		dimid own = w == AT_V || w == AT_O || w == AT_DO || w == AT_DV ? a->own : a->dim;
		bool key = w == AT_K || w == AT_V || w == AT_DK || w == AT_DV;

		if (w != AT_LSE && v->dt != a->x.dt)
			return odd(l, op, "operands of two types");
		strides_of(l->m, v->nd, v->d, v->sh.on, s);
		for (int i = 0; i < v->nd; i++) {
			if (v->d[i] == own && w != AT_LSE)
				a->x.d_stride[w] = s[i];
			else if (v->d[i] == (key ? a->col : a->row))
				a->x.row_stride[w] = s[i];
			else
				for (int n = 0; n < a->x.nloop; n++)
					if (a->loop[n] == v->d[i])
						a->x.stride[w][n] = s[i];
		}
	}
	for (int w = AT_BIAS; w < NPLACE; w++)
		if (!attend_extra(l, op, a, w))
			return false;
	struct instr *i = emit(l, I_ATTENTION, op);

	i->at = at;
	i->attend = a;
	a->ring = attn_ring(op);
	a->apart = attn_apart(op);
	if (axes_bits(&a->col_on) != (a->ring | a->apart))
		return odd(l, op, "its keys are not split over its axes");
	if (a->ring)
		group_kind(l->rt, a->ring, 0);
	if (a->apart)
		group_kind(l->rt, a->apart, 0);
	i->no = (int)l->rt->senders.n;
	if (comm_elements(l->m, op) > 0)
		PUSH(l->rt->mem, &l->rt->senders, ((struct sender){ .op = op }));
	return true;
}

bool lower_report(struct lowering *l, const struct op *op)
{
	struct loc *at = locs(l, op);
	struct report r = { .key = op->at.key, .at = op->span };

	if (!at || op->in[0]->nd)
		return at ? odd(l, op, "it is no scalar") : false;
	struct instr *i = emit(l, I_REPORT, op);

	i->at = at;
	i->no = (int)l->rt->reports.n;
	PUSH(l->rt->mem, &l->rt->reports, r);
	return true;
}

bool lower_iter(struct lowering *l, const struct op *op)
{
	struct loc *at = locs(l, op);
	int depth = depth_of(op->home) - 1;
	const struct block *b = op->home;

	if (!at)
		return false;
	while (b->owner && HAS(op, dim) && b->owner->at.dim != op->at.dim) {
		b = b->owner->home;
		depth--;
	}
	if (!b->owner)
		return odd(l, op, "no such repeat around it");
	struct instr *i = emit(l, I_ITER, op);

	i->at = at;
	i->no = depth;
	return true;
}
