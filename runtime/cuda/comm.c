/* runtime/cuda/comm.c - collectives by NCCL, all of a rank on one stream in the order of the plan.
 *
 * NCCL moves equal blocks that lie together. Where a tensor is not split along its outermost dim, or its parts are uneven, the
 * blocks are packed and unpacked on the same stream; all ranks of a group have blocks of one size, that of the caps. */
#include <stdio.h>

#include "ir/file.h"
#include "runtime/collectives.h"
#include "runtime/cuda/apart.h"
#include "runtime/cuda/meet.h"

enum { ABORT_S = 2 };

/* -- communicators -- */

/* A communicator that is to be. */
struct joining {
	const char *name;
	const int64_t *rank; /* its members; this rank is number `me` of n */
	int n, me;
	ncclUniqueId id;
	ncclComm_t comm;
	ncclResult_t e;
};

static void make_id(void *p)
{
	struct joining *j = p;

	j->e = lib.ncclGetUniqueId(&j->id);
}

static void join(void *p)
{
	struct joining *j = p;

	j->e = lib.ncclCommInitRank(&j->comm, j->n, j->id, j->me);
}

static struct meet *meet_of(const struct gpu *g)
{
	return ((struct cuda *)g->r->rt->own)->meet;
}

static double wait_of(const struct gpu *g)
{
	return ((struct cuda *)g->r->rt->own)->wait;
}

static const char *key_of(struct gpu *g, const struct joining *j, int member)
{
	return arena_printf(g->mem, "%s, rank %lld", j->name, (long long)j->rank[member]);
}

/* All have had their time. */
static void say_missing(struct gpu *g, const struct joining *j)
{
	struct text who = { .mem = g->mem };

	for (int i = 0; i < j->n; i++)
		if (!meet_has(meet_of(g), key_of(g, j, i)))
			text_put(&who, "%s%lld", who.n ? ", " : "", (long long)j->rank[i]);
	if (gpu_others_ok(g))
		comm_fail(g->r->rt->comm, g->r->no, (struct span){ 0 }, "NCCL has not connected %d ranks in %.0f s; %s%s", j->n, wait_of(g),
			  who.n ? "these have not come: " : "all have come", who.n ? who.s : "");
}

/* A call of NCCL that may wait for others, for ever if one is lost. */
static bool call_apart(struct gpu *g, void (*fn)(void *), struct joining *j, const char *what)
{
	double end = seconds_now() + wait_of(g);
	struct apart *a = apart_begin(g, fn, j, sizeof *j);
	bool ok = a != NULL;

	while (ok && !apart_done(a, .05)) {
		ok = gpu_others_ok(g) && !comm_failed(g->r->rt->comm);
		if (ok && seconds_now() > end) {
			say_missing(g, j);
			ok = false;
		}
	}
	g->hung |= a && !apart_end(a, j);
	return ok && nccl_ok(g, NULL, j->e, what);
}

/* The first of the ranks makes the id that the others need. */
static bool share_id(struct gpu *g, struct joining *j)
{
	struct meet *m = meet_of(g);
	char why[MEET_TEXT], broken[MEET_TEXT];

	if (!j->me && !call_apart(g, make_id, j, "ncclGetUniqueId"))
		return false;
	if ((j->me || meet_put(m, j->name, &j->id, sizeof j->id, why)) && meet_put(m, key_of(g, j, j->me), "", 0, why) &&
	    (!j->me || meet_get(m, j->name, &j->id, sizeof j->id, why)))
		return true;
	if (meet_ok(m, broken))
		say_missing(g, j);
	else
		comm_fail(g->r->rt->comm, g->r->no, (struct span){ 0 }, "a group of ranks does not meet: %s", why);
	return false;
}

bool communicator(struct gpu *g, const char *name, int n, const int64_t *rank, int me, ncclComm_t *to)
{
	struct joining j = { .name = name, .rank = rank, .n = n, .me = me };
	bool ok = share_id(g, &j) && call_apart(g, join, &j, "ncclCommInitRank");

	*to = j.comm;
	return ok;
}

bool groups_open(struct gpu *g)
{
	struct rank *r = g->r;
	struct runtime *rt = r->rt;

	g->group = NEWN(g->mem, ncclComm_t, rt->groups.n + 1);
	for (uint32_t s = 0; s < rt->groups.n; s++) {
		char name[64];

		if (!r->group[s])
			continue;
		int n = comm_size(r->group[s]);
		int64_t *rank = NEWN(g->mem, int64_t, n);

		for (int i = 0; i < n; i++)
			rank[i] = comm_rank(r->group[s], i);
		snprintf(name, sizeof name, "group %u of %lld", s, (long long)rank[0]);
		if (!communicator(g, name, n, rank, r->place[s], &g->group[s]))
			return false;
	}
	return true;
}

void groups_close(struct gpu *g)
{
	for (uint32_t s = 0; g->group && s < g->r->rt->groups.n; s++) {
		if (g->group[s])
			lib.ncclCommDestroy(g->group[s]);
		g->group[s] = NULL;
	}
}

static void abort_one(void *p)
{
	lib.ncclCommAbort(*(ncclComm_t *)p);
}

/* All at once: what one waits for before it ends, a step that has begun, may wait for another. */
void comms_abort(struct gpu *g)
{
	uint32_t groups = g->group ? g->r->rt->groups.n : 0, n = 0;
	ncclComm_t *all = NEWN(g->mem, ncclComm_t, groups + g->channels.n + 1);
	struct apart **a = NEWN(g->mem, struct apart *, groups + g->channels.n + 1);
	double end = seconds_now() + ABORT_S;

	for (uint32_t i = 0; i < groups; i++) {
		if (g->group[i])
			all[n++] = g->group[i];
		g->group[i] = NULL;
	}
	n += channels_take(g, all + n);
	for (uint32_t i = 0; i < n; i++)
		a[i] = apart_begin(g, abort_one, &all[i], sizeof all[i]);
	for (uint32_t i = 0; i < n; i++) {
		double left = end - seconds_now();

		if (a[i])
			apart_done(a[i], left > 0 ? left : 0);
		g->hung |= !a[i] || !apart_end(a[i], &all[i]);
	}
}

/* -- blocks -- */

static const ncclDataType_t nccl_type[NDTYPE] = { [F32] = ncclFloat32, [BF16] = ncclBfloat16, [INT] = ncclInt32, [BOOL] = ncclUint8 };

/* How members share dim d of a value. */
struct parts {
	const struct rank *r;
	const struct op *op;
	const struct value *v;
	dimid d;
	int n;
	int64_t cap;
	bool even;             /* each has cap elements, one after the other */
};

static struct extent part_at(const struct parts *p, int member)
{
	return comm_part(p->r, p->op, p->v, p->d, member);
}

static void find_parts(const struct rank *r, const struct op *op, const struct value *v, dimid d, int n, struct parts *p)
{
	*p = (struct parts){ r, op, v, d, n, cap_of(r->rt->m, d, &v->sh.on[dim_pos(v, d)]), true };
	for (int c = 0; c < n && p->even; c++) {
		struct extent e = part_at(p, c);

		p->even = e.start == c * p->cap && e.valid == p->cap;
	}
}

/* All blocks between a tensor and where they lie one after the other. l: the loops of one block, of which loop k is the
 * dim that members share; step: what one of its elements is in the tensor. */
static bool move_blocks(struct gpu *g, const struct parts *p, struct nest l, int k, bool pack, int64_t step, int64_t block, enum dtype dt,
			char *dst, char *src)
{
	int64_t es = dtype_bytes(dt);

	if (p->even && l.nd < (int)LEN(l.n)) {
		int at = l.nd++;

		l.n[k] = p->cap;
		l.n[at] = p->n;
		l.ds[at] = pack ? block : p->cap * step;
		l.ss[at] = pack ? p->cap * step : block;
		return gpu_copy(g, g->comm, &l, dt, dst, dt, src);
	}
	for (int c = 0; c < p->n; c++) {
		struct extent e = part_at(p, c);
		int64_t whole = e.start * step * es, part = c * block * es;

		l.n[k] = e.valid;
		if (!gpu_copy(g, g->comm, &l, dt, dst + (pack ? part : whole), dt, src + (pack ? whole : part)))
			return false;
	}
	return true;
}

/* Do blocks that lie one after the other make the whole tensor? split: has a part of dim d of whole. */
static bool lies_in_blocks(const struct rank *r, const struct value *whole, const struct value *split, dimid d, const struct parts *p)
{
	const struct module *m = r->rt->m;
	bool before = true;

	if (!p->even || whole->nd != split->nd || local_count(m, whole) < p->n * local_count(m, split))
		return false;
	for (int i = 0; i < whole->nd; i++) {
		if (whole->d[i] != split->d[i])
			return false;
		if (whole->d[i] == d)
			before = false;
		else if (before && cap_of(m, whole->d[i], &whole->sh.on[i]) != 1)
			return false;
	}
	return true;
}

/* A bucket's operands take their blocks from one room. */
struct job {
	struct gpu *g;
	const struct op *op;
	uint32_t k;
	ncclComm_t group;
	int me, n;
	char *in, *out, *room;
	int64_t used;          /* of the room, so far; first only counted */
	bool counts;
};

static char *take(struct job *j, int64_t bytes)
{
	char *p = j->counts ? NULL : j->room + j->used;

	j->used += (bytes + 255) / 256 * 256;
	return p;
}

static bool call_ok(const struct job *j, ncclResult_t e)
{
	return nccl_ok(j->g, j->group, e, "NCCL");
}

/* -- each kind: before the call, the call, after it -- */

enum stage { COUNT, BEFORE, CALL, AFTER };

static bool gather(struct job *j, enum stage s)
{
	const struct value *in = j->op->in[j->k], *o = j->op->out[j->k];
	struct rank *r = j->g->r;
	dimid d = comm_dim(j->op, j->k);
	int64_t block = local_count(r->rt->m, in), n[MAX_DIMS];
	struct parts p;

	find_parts(r, j->op, in, d, j->n, &p);
	bool direct = lies_in_blocks(r, o, in, d, &p);
	char *to = direct ? j->out : take(j, j->n * block * dtype_bytes(in->dt));

	if (s == CALL)
		return call_ok(j, lib.ncclAllGather(j->in, to, (size_t)block, nccl_type[in->dt], j->group, j->g->comm));
	if (s != AFTER || direct)
		return true;
	comm_extents(r, o, r->coord, n);
	struct nest l = comm_loops(r->rt->m, o, in, n);
	int k = dim_pos(o, d);

	return move_blocks(j->g, &p, l, k, false, l.ds[k], block, o->dt, j->out, to);
}

static bool scatter(struct job *j, enum stage s)
{
	const struct value *in = j->op->in[j->k], *o = j->op->out[j->k];
	struct rank *r = j->g->r;
	dimid d = comm_dim(j->op, j->k);
	int64_t block = local_count(r->rt->m, o), n[MAX_DIMS];
	struct parts p;

	find_parts(r, j->op, o, d, j->n, &p);
	bool direct = lies_in_blocks(r, in, o, d, &p);
	char *from = direct ? j->in : take(j, j->n * block * dtype_bytes(in->dt));

	if (s == CALL)
		return call_ok(j, lib.ncclReduceScatter(from, j->out, (size_t)block, nccl_type[o->dt], ncclSum, j->group, j->g->comm));
	if (s != BEFORE || direct)
		return true;
	comm_extents(r, o, r->coord, n);
	struct nest l = comm_loops(r->rt->m, o, in, n);
	int k = dim_pos(o, d);

	return move_blocks(j->g, &p, l, k, true, l.ss[k], block, o->dt, from, j->in);
}

static bool reduce(struct job *j, enum stage s)
{
	const struct value *o = j->op->out[j->k];
	struct rank *r = j->g->r;
	struct nest l = comm_reduce_loops(r, j->op, j->k);
	bool direct = local_count(r->rt->m, o) == local_count(r->rt->m, j->op->in[j->k]);

	for (int i = 0; i < l.nd; i++)
		direct &= l.ds[i] == l.ss[i];
	if (s == BEFORE && !direct)
		return gpu_copy(j->g, j->g->comm, &l, o->dt, j->out, o->dt, j->in);
	return s != CALL || call_ok(j, lib.ncclAllReduce(direct ? j->in : j->out, j->out, (size_t)local_count(r->rt->m, o), nccl_type[o->dt],
							 HAS(j->op, max) && j->op->at.max ? ncclMax : ncclSum, j->group, j->g->comm));
}

/* Strides of a block of an all_to_all: the dims of the result, with the part of `dim` that one member brings. */
static int64_t block_strides(const struct rank *r, const struct value *o, dimid dim, int64_t cap, int64_t *s)
{
	int64_t n = 1;

	for (int i = o->nd - 1; i >= 0; i--) {
		s[i] = n;
		n *= o->d[i] == dim ? cap : cap_of(r->rt->m, o->d[i], &o->sh.on[i]);
	}
	return n;
}

static bool send_blocks(struct job *j, char *from, char *to, int64_t block, enum dtype dt)
{
	int64_t bytes = block * dtype_bytes(dt);

	for (int c = 0; c < j->n; c++)
		if (!call_ok(j, lib.ncclSend(from + c * bytes, (size_t)block, nccl_type[dt], c, j->group, j->g->comm)) ||
		    !call_ok(j, lib.ncclRecv(to + c * bytes, (size_t)block, nccl_type[dt], c, j->group, j->g->comm)))
			return false;
	return true;
}

static bool exchange(struct job *j, enum stage s)
{
	const struct op *op = j->op;
	const struct value *in = op->in[0], *o = op->out[0];
	struct rank *r = j->g->r;
	int p = dim_pos(o, op->at.dim), q = dim_pos(o, op->at.to);
	int64_t n[MAX_DIMS], bs[MAX_DIMS];
	struct parts from, to; /* of dim, that members bring; of `to`, that they get */

	find_parts(r, op, in, op->at.dim, j->n, &from);
	find_parts(r, op, o, op->at.to, j->n, &to);
	int64_t block = block_strides(r, o, op->at.dim, from.cap, bs), bytes = j->n * block * dtype_bytes(o->dt);
	char *out = take(j, bytes), *back = take(j, bytes);

	if (s == COUNT)
		return true;
	if (s == CALL)
		return send_blocks(j, out, back, block, o->dt);
	comm_extents(r, o, r->coord, n);
	n[p] = part_at(&from, j->me).valid;
	struct nest l = comm_loops(r->rt->m, o, in, n);

	memcpy(s == BEFORE ? l.ds : l.ss, bs, sizeof *bs * (size_t)o->nd);
	return s == BEFORE ? move_blocks(j->g, &to, l, q, true, l.ss[q], block, o->dt, out, j->in) :
			     move_blocks(j->g, &from, l, p, false, l.ds[p], block, o->dt, j->out, back);
}

static bool run_stage(struct job *j, const struct instr *i, enum stage s)
{
	const struct op *op = j->op;
	struct rank *r = j->g->r;

	j->used = 0;
	j->counts = s == COUNT;
	for (j->k = 0; j->k < op->nin; j->k++) {
		j->in = rank_at(r, &i->at[j->k]);
		j->out = rank_at(r, &i->at[op->nin + j->k]);
		if (!local_count(r->rt->m, op->in[j->k]))
			continue;
		bool ok = op->code == OP_ALL_REDUCE ? reduce(j, s) : op->code == OP_ALL_GATHER ? gather(j, s) :
			  op->code == OP_REDUCE_SCATTER ? scatter(j, s) : exchange(j, s);

		if (!ok)
			return false;
	}
	return true;
}

/* One NCCL group, so that a bucket is one kernel. */
static bool call(struct job *j, const struct instr *i)
{
	if (!call_ok(j, lib.ncclGroupStart()))
		return false;
	bool ok = run_stage(j, i, CALL);

	return call_ok(j, lib.ncclGroupEnd()) && ok;
}

/* -- the instruction -- */

CUevent done_event(struct gpu *g, const struct instr *i)
{
	return g->done[i->start].e[rank_turn(g->r, i->op)];
}

bool cuda_wait(struct rank *r, const struct instr *i)
{
	struct gpu *g = gpu_of(r);

	return g->dry || CU(g, cuStreamWaitEvent, g->compute, done_event(g, i), CU_EVENT_WAIT_DEFAULT);
}

bool cuda_comm(struct rank *r, const struct instr *i)
{
	struct gpu *g = gpu_of(r);
	const struct op *op = i->op;
	struct job j = { .g = g, .op = op, .group = g->group[i->group], .me = r->place[i->group], .n = comm_size(r->group[i->group]) };
	bool any = false;

	for (uint32_t k = 0; k < op->nin; k++) {
		if (op->code != OP_ALL_REDUCE && !comm_axes_last(r, op, k))
			return false;
		any |= local_count(r->rt->m, op->in[k]) > 0;
	}
	if (!any) /* dims are 0: nothing to send, on every rank; whoever waits has an event all the same */
		return g->dry || CU(g, cuEventRecord, done_event(g, i), g->comm);
	if (!run_stage(&j, i, COUNT) || (j.used && !(j.room = gpu_room(g, SLOT_COMM, j.used))))
		return false;
	if (g->dry)
		return true;
	if (!CU(g, cuEventRecord, g->fork, g->compute) || !CU(g, cuStreamWaitEvent, g->comm, g->fork, CU_EVENT_WAIT_DEFAULT) ||
	    !run_stage(&j, i, BEFORE) || !call(&j, i) || !run_stage(&j, i, AFTER) || !CU(g, cuEventRecord, done_event(g, i), g->comm))
		return false;
	count_comm(r, i);
	return i->async || i->ahead || cuda_wait(r, i);
}
