/* runtime/collectives.c - what each collective moves between ranks of one process.
 *
 * Members of a group are in the order of their coordinates (first axis outermost); sums are taken in
 * that order, so every run gives the same bits. Only valid elements are touched. */
#include "runtime/internal.h"

/* Loops over out's dims, extents as given, strides by name. */
static struct nest loops(const struct module *m, const struct value *out, const struct value *in, const int64_t *n)
{
	struct nest l = { .nd = out->nd };
	int64_t so[MAX_DIMS], si[MAX_DIMS];

	strides_of(m, out->nd, out->d, out->sh.on, so);
	strides_of(m, in->nd, in->d, in->sh.on, si);
	for (int i = 0; i < out->nd; i++) {
		l.n[i] = n[i];
		l.ds[i] = so[i];
		l.ss[i] = si[dim_pos(in, out->d[i])];
	}
	return l;
}

static void extents(const struct rank *r, const struct value *v, const int *coord, int64_t *n)
{
	for (int i = 0; i < v->nd; i++)
		n[i] = rank_extent(r->rt->m, v->d[i], &v->sh.on[i], coord).valid;
}

/* One member's part of dim d of v, which is split over axis last. */
static int64_t part_valid(const struct rank *r, const struct value *v, dimid d, int axis, int member)
{
	int coord[MAX_AXES];

	memcpy(coord, r->coord, sizeof coord);
	coord[axis] = member;
	return rank_extent(r->rt->m, d, &v->sh.on[dim_pos(v, d)], coord).valid;
}

static int64_t part_cap(const struct rank *r, const struct value *v, dimid d)
{
	return cap_of(r->rt->m, d, &v->sh.on[dim_pos(v, d)]);
}

static void gather(struct rank *r, const struct op *op, struct group *g, char *out)
{
	const struct value *in = op->in[0], *o = op->out[0];
	int axis = op->at.axes.a[0], p = dim_pos(o, op->at.dim);
	int64_t n[MAX_DIMS], cap = part_cap(r, in, op->at.dim), es = dtype_bytes(o->dt);

	extents(r, o, r->coord, n);
	for (int c = 0; c < comm_size(g); c++) {
		n[p] = part_valid(r, in, op->at.dim, axis, c);
		struct nest l = loops(r->rt->m, o, in, n);

		nest_copy(&l, o->dt, out + c * cap * l.ds[p] * es, in->dt, comm_in(g, c));
	}
}

static void sources(struct group *g, const void **src, int64_t off)
{
	for (int c = 0; c < comm_size(g); c++)
		src[c] = (const char *)comm_in(g, c) + off;
}

static void scatter(struct rank *r, const struct op *op, struct group *g, int me, char *out)
{
	const struct value *in = op->in[0], *o = op->out[0];
	const void *src[MAX_GROUP];
	int64_t n[MAX_DIMS], cap = part_cap(r, o, op->at.dim);

	extents(r, o, r->coord, n);
	struct nest l = loops(r->rt->m, o, in, n);

	sources(g, src, me * cap * l.ss[dim_pos(o, op->at.dim)] * dtype_bytes(o->dt));
	nest_join(&l, o->dt, out, comm_size(g), src, false);
}

static void exchange(struct rank *r, const struct op *op, struct group *g, int me, char *out)
{
	const struct value *in = op->in[0], *o = op->out[0];
	int axis = op->at.axes.a[0], p = dim_pos(o, op->at.dim), q = dim_pos(o, op->at.to);
	int64_t n[MAX_DIMS], cap = part_cap(r, in, op->at.dim), to = part_cap(r, o, op->at.to);
	int64_t es = dtype_bytes(o->dt);

	extents(r, o, r->coord, n);
	for (int c = 0; c < comm_size(g); c++) {
		n[p] = part_valid(r, in, op->at.dim, axis, c);
		struct nest l = loops(r->rt->m, o, in, n);

		nest_copy(&l, o->dt, out + c * cap * l.ds[p] * es, in->dt,
			  (const char *)comm_in(g, c) + me * to * l.ss[q] * es);
	}
}

/* Cuts the outermost loop that is long enough in comm_size parts; part c of it. */
static struct nest share(const struct nest *all, int k, int c, int64_t *ds, int64_t *ss)
{
	struct nest l = *all;
	int at = 0;

	*ds = *ss = 0;
	for (int i = 0; i < l.nd; i++)
		if (l.n[i] > l.n[at])
			at = i;
	if (!l.nd) {
		if (c)
			l = (struct nest){ 1, { 0 }, { 1 }, { 1 } };
		return l;
	}
	int64_t part = ceil_div(l.n[at], k), from = part * c;

	*ds = from * l.ds[at];
	*ss = from * l.ss[at];
	l.n[at] = l.n[at] - from < 0 ? 0 : l.n[at] - from > part ? part : l.n[at] - from;
	return l;
}

/* Each member joins a part of the elements, then fetches the others'. */
static bool reduce(struct rank *r, const struct op *op, struct group *g, int me, char *out)
{
	const struct value *in = op->in[0], *o = op->out[0];
	const void *src[MAX_GROUP];
	int64_t n[MAX_DIMS], ds, ss, es = dtype_bytes(o->dt);
	int k = comm_size(g);

	extents(r, o, r->coord, n);
	struct nest all = loops(r->rt->m, o, in, n);

	nest_simplify(&all);
	struct nest l = share(&all, k, me, &ds, &ss);

	sources(g, src, ss * es);
	nest_join(&l, o->dt, out + ds * es, k, src, HAS(op, max) && op->at.max);
	if (!comm_wait(g, me))
		return false;
	for (int i = 1; i < k; i++) {
		int c = (me + i) % k;
		struct nest p = share(&all, k, c, &ds, &ss);

		memcpy(p.ss, p.ds, sizeof p.ss);
		nest_copy(&p, o->dt, out + ds * es, o->dt, (const char *)comm_out(g, c) + ds * es);
	}
	return true;
}

static bool single_axis(struct rank *r, const struct op *op)
{
	const struct value *v = op->code == OP_REDUCE_SCATTER ? op->out[0] : op->in[0];
	const struct axes *on = has_dim(v, op->at.dim) ? &v->sh.on[dim_pos(v, op->at.dim)] : NULL;

	if (op->at.axes.n == 1 && on && on->n && on->a[on->n - 1] == op->at.axes.a[0] &&
	    (op->code != OP_ALL_TO_ALL || has_dim(op->out[0], op->at.to)))
		return true;
	comm_fail(r->rt->comm, r->no, op->span, "%s over an axis that is not the last of its dim",
		  opinfo[op->code].name);
	return false;
}

void count_comm(struct rank *r, const struct instr *i)
{
	if (r->no)
		return;
	r->rt->comms.at[i->no].count++;
	r->rt->comms.at[i->no].bytes += comm_bytes(r->rt->m, i->op);
}

bool run_comm(struct rank *r, const struct instr *i, char *in, char *out)
{
	const struct op *op = i->op;
	int row = axes_set(r->rt, axes_bits(&op->at.axes)), me = r->place[row];
	struct group *g = r->group[row];
	struct call call = { op, opinfo[op->code].name, axes_bits(&op->at.axes), local_bytes(r->rt->m, op->in[0]), op->span };

	if (op->code != OP_ALL_REDUCE && !single_axis(r, op))
		return false;
	if (!comm_meet(g, me, &call, in, out))
		return false;
	switch (op->code) {
	case OP_ALL_GATHER:
		gather(r, op, g, out);
		break;
	case OP_REDUCE_SCATTER:
		scatter(r, op, g, me, out);
		break;
	case OP_ALL_TO_ALL:
		exchange(r, op, g, me, out);
		break;
	default:
		if (!reduce(r, op, g, me, out))
			return false;
	}
	count_comm(r, i);
	return comm_wait(g, me);
}
