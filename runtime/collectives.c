/* runtime/collectives.c - what each collective moves between ranks of one process.
 *
 * Members of a group are in the order of their coordinates (first axis outermost); sums are taken in
 * that order, so every run gives the same bits. Only valid elements are touched. Operands of a bucket
 * are taken one after the other between the same meetings: each is what it would be alone. */
#include "runtime/collectives.h"

struct nest comm_loops(const struct module *m, const struct value *out, const struct value *in, const int64_t *n)
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

void comm_extents(const struct rank *r, const struct value *v, const int *coord, int64_t *n)
{
	for (int i = 0; i < v->nd; i++)
		n[i] = rank_extent(r->rt->m, v->d[i], &v->sh.on[i], coord).valid;
}

struct extent comm_part(const struct rank *r, const struct op *op, const struct value *v, dimid d, int c)
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

static void gather(struct rank *r, const struct op *op, uint32_t k, struct group *g, char *out)
{
	const struct value *in = op->in[k], *o = op->out[k];
	dimid d = comm_dim(op, k);
	int64_t n[MAX_DIMS], es = dtype_bytes(o->dt);
	int p = dim_pos(o, d);

	comm_extents(r, o, r->coord, n);
	for (int c = 0; c < comm_size(g); c++) {
		struct extent part = comm_part(r, op, in, d, c);

		n[p] = part.valid;
		struct nest l = comm_loops(r->rt->m, o, in, n);

		nest_copy(&l, o->dt, out + part.start * l.ds[p] * es, in->dt, comm_in(g, c, k));
	}
}

static const void *const *sources(struct rank *r, struct group *g, uint32_t k, int64_t off)
{
	for (int c = 0; c < comm_size(g); c++)
		r->peers[c] = (const char *)comm_in(g, c, k) + off;
	return r->peers;
}

static void scatter(struct rank *r, const struct op *op, uint32_t k, struct group *g, int me, char *out)
{
	const struct value *in = op->in[k], *o = op->out[k];
	dimid d = comm_dim(op, k);
	int64_t n[MAX_DIMS], start = comm_part(r, op, o, d, me).start;

	comm_extents(r, o, r->coord, n);
	struct nest l = comm_loops(r->rt->m, o, in, n);

	nest_join(&l, o->dt, out, comm_size(g), sources(r, g, k, start * l.ss[dim_pos(o, d)] * dtype_bytes(o->dt)), false);
}

static void exchange(struct rank *r, const struct op *op, struct group *g, int me, char *out)
{
	const struct value *in = op->in[0], *o = op->out[0];
	int p = dim_pos(o, op->at.dim), q = dim_pos(o, op->at.to);
	int64_t n[MAX_DIMS], to = comm_part(r, op, o, op->at.to, me).start, es = dtype_bytes(o->dt);

	comm_extents(r, o, r->coord, n);
	for (int c = 0; c < comm_size(g); c++) {
		struct extent part = comm_part(r, op, in, op->at.dim, c);

		n[p] = part.valid;
		struct nest l = comm_loops(r->rt->m, o, in, n);

		nest_copy(&l, o->dt, out + part.start * l.ds[p] * es, in->dt,
			  (const char *)comm_in(g, c, 0) + to * l.ss[q] * es);
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

struct nest comm_reduce_loops(struct rank *r, const struct op *op, uint32_t k)
{
	int64_t n[MAX_DIMS];

	comm_extents(r, op->out[k], r->coord, n);
	struct nest all = comm_loops(r->rt->m, op->out[k], op->in[k], n);

	nest_simplify(&all);
	return all;
}

/* This member's share of the elements is joined from all members. */
static void join_share(struct rank *r, const struct op *op, uint32_t k, struct group *g, int me, char *out)
{
	int64_t ds, ss, es = dtype_bytes(op->out[k]->dt);
	struct nest all = comm_reduce_loops(r, op, k), l = share(&all, comm_size(g), me, &ds, &ss);

	nest_join(&l, op->out[k]->dt, out + ds * es, comm_size(g), sources(r, g, k, ss * es), HAS(op, max) && op->at.max);
}

static void fetch_shares(struct rank *r, const struct op *op, uint32_t k, struct group *g, int me, char *out)
{
	enum dtype dt = op->out[k]->dt;
	int64_t ds, ss, es = dtype_bytes(dt);
	struct nest all = comm_reduce_loops(r, op, k);
	int n = comm_size(g);

	for (int i = 1; i < n; i++) {
		int c = (me + i) % n;
		struct nest p = share(&all, n, c, &ds, &ss);

		memcpy(p.ss, p.ds, sizeof p.ss);
		nest_copy(&p, dt, out + ds * es, dt, (const char *)comm_out(g, c, k) + ds * es);
	}
}

/* Each member joins a part of the elements, then fetches the others'. */
static bool reduce(struct rank *r, const struct op *op, struct group *g, int me, void *const *out)
{
	for (uint32_t k = 0; k < op->nin; k++)
		join_share(r, op, k, g, me, out[k]);
	if (!comm_wait(g, me))
		return false;
	for (uint32_t k = 0; k < op->nin; k++)
		fetch_shares(r, op, k, g, me, out[k]);
	return true;
}

bool comm_axes_last(struct rank *r, const struct op *op, uint32_t k)
{
	const struct value *v = op->code == OP_REDUCE_SCATTER ? op->out[k] : op->in[k];
	dimid d = comm_dim(op, k);
	const struct axes *on = has_dim(v, d) ? &v->sh.on[dim_pos(v, d)] : NULL, *a = &op->at.axes;

	if (a->n && on && on->n >= a->n && memcmp(&on->a[on->n - a->n], a->a, a->n) == 0 &&
	    (op->code != OP_ALL_TO_ALL || has_dim(op->out[k], op->at.to)))
		return true;
	comm_fail(r->rt->comm, r->no, op->span, "%s over axes that are not the last of their dim",
		  opinfo[op->code].name);
	return false;
}

void count_comm(struct rank *r, const struct instr *i)
{
	const struct module *m = r->rt->m;

	r->sent[i->no].count++;
	r->sent[i->no].bytes += comm_bytes(m, i->op) * (r->rt->layouts ? pipe_share(m, i->op->in[0], r->stage) : 1);
}

static bool carry_out(struct rank *r, const struct op *op, struct group *g, int me, void *const *out)
{
	if (op->code == OP_ALL_REDUCE)
		return reduce(r, op, g, me, out);
	for (uint32_t k = 0; k < op->nin; k++) {
		if (op->code == OP_ALL_GATHER)
			gather(r, op, k, g, out[k]);
		else if (op->code == OP_REDUCE_SCATTER)
			scatter(r, op, k, g, me, out[k]);
		else
			exchange(r, op, g, me, out[k]);
	}
	return true;
}

bool run_comm(struct rank *r, const struct instr *i)
{
	const struct op *op = i->op;
	int row = i->group, me = r->place[row];
	struct group *g = r->group[row];
	struct call call = { op, opinfo[op->code].name, axes_bits(&op->at.axes), 0, op->span };
	void *in[MAX_BUCKET], *out[MAX_BUCKET];

	for (uint32_t k = 0; k < op->nin; k++) {
		if (op->code != OP_ALL_REDUCE && !comm_axes_last(r, op, k))
			return false;
		in[k] = rank_at(r, &i->at[k]);
		out[k] = rank_at(r, &i->at[op->nin + k]);
		call.bytes += local_bytes(r->rt->m, op->in[k]);
	}
	if (!call.bytes)
		return true; /* dims are 0: nothing to send, on every rank */
	if (!comm_meet(g, me, &call, in, out) || !carry_out(r, op, g, me, out))
		return false;
	count_comm(r, i);
	return comm_wait(g, me);
}
