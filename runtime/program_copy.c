/* runtime/program_copy.c - what is copied: buffers read and written, views; what microbatches add up. */
#include "runtime/lowering.h"

int64_t stride_in(const struct module *m, const struct value *v, dimid d)
{
	int64_t s[MAX_DIMS];
	int i = dim_pos(v, d);

	strides_of(m, v->nd, v->d, v->sh.on, s);
	return i < 0 ? 0 : s[i];
}

/* Loops over the dims of `over`, less `skip`; strides by name in to and from (0 where they lack it). */
void mover_init(const struct module *m, struct mover *x, const struct value *over, dimid skip,
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

bool same_loc(const struct loc *a, const struct loc *b)
{
	if (a->region != b->region || a->base != b->base || a->n != b->n)
		return false;
	for (int i = 0; i < a->n; i++)
		if (a->depth[i] != b->depth[i] || a->stride[i] != b->stride[i])
			return false;
	return true;
}

bool find_loc(struct lowering *l, const struct value *v, struct loc *at)
{
	return place_checked(&l->placing, v, at);
}

struct move *emit_move(struct lowering *l, const struct op *op)
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

bool covers(const struct value *a, const struct value *b)
{
	for (int i = 0; i < b->nd; i++)
		if (!has_dim(a, b->d[i]))
			return false;
	return a->nd == b->nd;
}

bool lower_read(struct lowering *l, const struct op *op)
{
	const struct value *v = op->out[0];
	struct buffer *b = find_buffer(l->m, op->at.buf);
	struct loc at;

	if (!b || !find_loc(l, v, &at))
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

bool lower_write(struct lowering *l, const struct op *op)
{
	const struct value *v = op->in[0];
	struct buffer *b = find_buffer(l->m, op->at.buf);
	struct loc from, to = { 0 };

	if (!b || b->off < 0 || !find_loc(l, v, &from))
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

bool lower_view(struct lowering *l, const struct op *op)
{
	const struct value *in = op->in[0], *out = op->out[0], *fine = out;
	struct loc at, from;
	int64_t ds[MAX_DIMS], ss[MAX_DIMS];

	if (!find_loc(l, out, &at) || !find_loc(l, in, &from))
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

bool lower_accumulate(struct lowering *l, const struct op *op)
{
	const struct value *in = op->in[0], *out = op->out[0];
	struct loc at, from;

	if (!find_loc(l, out, &at) || !find_loc(l, in, &from) || !covers(in, out))
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
