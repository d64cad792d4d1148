/* passes/order.c - the order along dims: arrows with `order = zigzag`.
 *
 * An order is a dim's, not one value's: it holds wherever the dim occurs, sharded or whole. Dims that a
 * rename calls one another hold the same elements at the same positions, so they share it. Ops that
 * look at indices translate (ir.h, dim_index); those whose result lies where the operand lies, but under
 * other dims, cannot, and are refused. */
#include "passes/place.h"

static const struct span nowhere;

struct order {
	struct module *m;
	struct diag *d;
	dimid *same;                /* a dim that has the order of this one; itself: the one of its class */
	const struct arrow **by;    /* of the one: the arrow that says so */
};

static dimid class_of(struct order *o, dimid d)
{
	while (o->same[d] != d)
		d = o->same[d] = o->same[o->same[d]];
	return d;
}

static void join_renamed(struct order *o, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next) {
		for (int i = 0; op->code == OP_RENAME && i < op->at.dims.n; i++)
			o->same[class_of(o, op->at.dims.d[i])] = class_of(o, op->at.tos.d[i]);
		if (op->body)
			join_renamed(o, op->body);
	}
}

static int parts_of(const struct module *m, const struct arrow *a)
{
	int64_t k = 1;

	for (int i = 0; i < a->naxes; i++)
		k *= m->mesh.at[a->axes[i]].size;
	return k > INT32_MAX ? INT32_MAX : (int)k;
}

static bool order_dim(struct order *o, const struct arrow *a, dimid dim)
{
	struct dim *d = &o->m->dims.at[class_of(o, dim)];
	const char *name = o->m->dims.at[dim].name;
	int k = parts_of(o->m, a);

	if (dim == o->m->batch || d->loop) {
		diag_error(o->d, a->at, "'%s' has no order to balance", name);
		diag_note(o->d, nowhere, "order = zigzag is for a dim along which attention is causal");
		return false;
	}
	if (!d->size)
		return true;
	if (d->zigzag && d->zigzag != k) {
		diag_error(o->d, a->at, "'%s' would be in two orders, of %d and of %d parts", name, d->zigzag, k);
		diag_note(o->d, o->by[class_of(o, dim)]->at, "the other is that of this arrow, by a rename if it is another dim");
		return false;
	}
	if (d->size % (2 * (int64_t)k)) {
		diag_error(o->d, a->at, "zigzag over %d ranks cuts '%s' in %lld parts, but it has %lld elements", k, name,
			   2LL * k, (long long)d->size);
		diag_note(o->d, nowhere, "nearest: %s = %lld; or leave order = zigzag out", name,
			  (long long)(ceil_div(d->size, 2 * (int64_t)k) * 2 * k));
		return false;
	}
	d->zigzag = k;
	o->by[class_of(o, dim)] = a;
	return true;
}

static bool order_dims_of(struct order *o, const struct arrow *a)
{
	if (!a->zigzag || parts_of(o->m, a) == 1)
		return true;
	for (int i = 0; i < a->dims.n; i++)
		if (!order_dim(o, a, a->dims.d[i]))
			return false;
	return true;
}

static bool natural(struct order *o, const struct op *op, dimid d)
{
	const struct dim *x = &o->m->dims.at[d];

	if (!x->zigzag)
		return true;
	diag_error(o->d, op->span, "%s along '%s' needs its elements in order", opinfo[op->code].name, x->name);
	diag_note(o->d, o->by[class_of(o, d)]->at, "this arrow puts '%s' in zigzag order; leave order = zigzag out", x->name);
	return false;
}

static bool check_block(struct order *o, const struct block *block)
{
	bool ok = true;

	for (const struct op *op = block->first; op && ok; op = op->next) {
		const struct dimlist *parts = op->code == OP_SPLIT ? &op->at.tos : &op->at.dims;

		if (op->code == OP_SPLIT || op->code == OP_MERGE) {
			ok = natural(o, op, op->code == OP_SPLIT ? op->at.dim : op->at.to);
			for (int i = 0; i < parts->n && ok; i++)
				ok = natural(o, op, parts->d[i]);
		}
		if (op->code == OP_TOPK)
			ok = natural(o, op, op->at.to);
		if (op->body)
			ok = ok && check_block(o, op->body);
	}
	return ok;
}

bool order_dims(struct module *m, struct diag *d)
{
	struct order o = { m, d, NEWN(m->mem, dimid, m->dims.n + 1), NEWN(m->mem, const struct arrow *, m->dims.n + 1) };

	for (uint32_t i = 0; i < m->dims.n; i++) {
		o.same[i] = (dimid)i;
		m->dims.at[i].zigzag = 0;
	}
	join_renamed(&o, &m->top);
	for (uint32_t i = 0; i < m->arrows.n; i++)
		if (!order_dims_of(&o, &m->arrows.at[i]))
			return false;
	for (uint32_t i = 0; i < m->dims.n; i++)
		m->dims.at[i].zigzag = m->dims.at[class_of(&o, (dimid)i)].zigzag;
	return check_block(&o, &m->top);
}
