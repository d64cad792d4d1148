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

/* What member c of op's group has of dim d of v, which is split over its axes last; start: within what they
 * split. Members are numbered by the coordinates of all axes, the outermost first. */
static struct extent part_of(const struct rank *r, const struct op *op, const struct value *v, dimid d, int c)
{
	const struct module *m = r->rt->m;
	struct axes whole = v->sh.on[dim_pos(v, d)];
	int coord[MAX_AXES];

	memcpy(coord, r->coord, sizeof coord);
	for (int a = (int)m->axes.n - 1; a >= 0; a--)
		if (axes_has(&op->at.axes, a)) {
			coord[a] = c % m->axes.at[a].size;
			c /= m->axes.at[a].size;
		}
	struct extent e = rank_extent(m, d, &whole, coord);

	whole.n -= op->at.axes.n;
	e.start -= rank_extent(m, d, &whole, coord).start;
	return e;
}

static void gather(struct rank *r, const struct op *op, struct group *g, char *out)
{
	const struct value *in = op->in[0], *o = op->out[0];
	int64_t n[MAX_DIMS], es = dtype_bytes(o->dt);
	int p = dim_pos(o, op->at.dim);

	extents(r, o, r->coord, n);
	for (int c = 0; c < comm_size(g); c++) {
		struct extent part = part_of(r, op, in, op->at.dim, c);

		n[p] = part.valid;
		struct nest l = loops(r->rt->m, o, in, n);

		nest_copy(&l, o->dt, out + part.start * l.ds[p] * es, in->dt, comm_in(g, c));
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
	int64_t n[MAX_DIMS], start = part_of(r, op, o, op->at.dim, me).start;

	extents(r, o, r->coord, n);
	struct nest l = loops(r->rt->m, o, in, n);

	sources(g, src, start * l.ss[dim_pos(o, op->at.dim)] * dtype_bytes(o->dt));
	nest_join(&l, o->dt, out, comm_size(g), src, false);
}

static void exchange(struct rank *r, const struct op *op, struct group *g, int me, char *out)
{
	const struct value *in = op->in[0], *o = op->out[0];
	int p = dim_pos(o, op->at.dim), q = dim_pos(o, op->at.to);
	int64_t n[MAX_DIMS], to = part_of(r, op, o, op->at.to, me).start, es = dtype_bytes(o->dt);

	extents(r, o, r->coord, n);
	for (int c = 0; c < comm_size(g); c++) {
		struct extent part = part_of(r, op, in, op->at.dim, c);

		n[p] = part.valid;
		struct nest l = loops(r->rt->m, o, in, n);

		nest_copy(&l, o->dt, out + part.start * l.ds[p] * es, in->dt,
			  (const char *)comm_in(g, c) + to * l.ss[q] * es);
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

static bool axes_last(struct rank *r, const struct op *op)
{
	const struct value *v = op->code == OP_REDUCE_SCATTER ? op->out[0] : op->in[0];
	const struct axes *on = has_dim(v, op->at.dim) ? &v->sh.on[dim_pos(v, op->at.dim)] : NULL, *a = &op->at.axes;

	if (a->n && on && on->n >= a->n && memcmp(&on->a[on->n - a->n], a->a, a->n) == 0 &&
	    (op->code != OP_ALL_TO_ALL || has_dim(op->out[0], op->at.to)))
		return true;
	comm_fail(r->rt->comm, r->no, op->span, "%s over axes that are not the last of their dim",
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

	if (!local_count(r->rt->m, op->in[0]))
		return true; /* a dim is 0: nothing to send, on every rank */
	if (op->code != OP_ALL_REDUCE && !axes_last(r, op))
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
