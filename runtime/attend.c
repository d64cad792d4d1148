/* runtime/attend.c - the attention of one rank: keys that go round, results that are combined.
 *
 * Ring. Each rank holds a block of keys. In step t it works on the block of the t-th rank before it and
 * fetches the next from its neighbour into the other of two buffers, so a transport that takes time could
 * run beside the work; one meeting of the group ends a step. In backward the gradients of a block follow
 * it in float32, two buffers again, the last fetch brings them home. A rank's own block is first, so
 * everything is added up in one order.
 *
 * Apart. Ranks with the same rows have different keys: each makes its o and lse, then all combine all in
 * the order of ranks. Backward needs nothing: dq is left as a sum. */
#include <math.h>

#include "runtime/backend.h"
#include "runtime/exec.h"

struct part {
	struct rank *r;
	const struct instr *i;
	const struct attend *a;
	const struct module *m;
	struct attention x;
	void *at[NPLACE];      /* where results grow or are made */
	void *given[NPLACE];   /* as the op has them */
	const struct value *of[NPLACE];
	struct shown mine;
};

static const struct backend *on(const struct part *t)
{
	return t->r->rt->backend;
}

/* -- rows meet keys -- */

/* What is added to scores, or hides them, is whole along the keys. */
static void move_extras(const struct part *t, void **at, int64_t by)
{
	static const int64_t size[] = { 4, 1, 4, 4 };

	for (int w = AT_BIAS; w < NPLACE; w++)
		if (t->x.extra[w - NAT].there)
			at[w] = (char *)at[w] + by * t->x.extra[w - NAT].col * size[w - NAT];
}

/* All rows meet the keys of the rank with these coordinates. */
static bool block(struct part *t, const int *coord, void *const *where)
{
	struct extent keys = rank_extent(t->m, t->a->col, &t->a->col_on, coord);
	struct attention x = t->x;
	void *at[NPLACE];

	x.cols = keys.valid;
	x.col = order_of(t->m, t->a->col, keys.start);
	memcpy(at, where, sizeof at);
	move_extras(t, at, keys.start);
	return on(t)->attention(t->r, t->i, &x, at);
}

/* -- keys that go round -- */

static int64_t count(const struct part *t, int which)
{
	return local_count(t->m, t->of[which]);
}

static struct nest all_of(const struct part *t, int which)
{
	return (struct nest){ 1, { count(t, which) }, { 1 }, { 1 } };
}

static bool fetch_keys(struct part *t, struct key_ring *ring, int step)
{
	for (int k = 0; k < 2; k++)
		if (!on(t)->pull(ring, t->mine.block[(step + 1) % 2][k], step ? &t->mine.block[step % 2][k] : &t->mine.key[k],
				 count(t, AT_K + k) * dtype_bytes(t->x.dt)))
			return false;
	return true;
}

static bool fetch_gradients(struct part *t, struct key_ring *ring, int step)
{
	for (int k = 0; k < 2; k++) {
		char *to = t->mine.grad[step % 2][k];
		struct nest l = all_of(t, AT_DK + k);

		if (step == 1)
			on(t)->fill(t->r, &l, F32, to, 0);
		else if (!on(t)->pull(ring, to, &t->mine.grad[(step - 1) % 2][k], count(t, AT_DK + k) * 4))
			return false;
	}
	return on(t)->arrive(ring);
}

/* From the neighbour, who was the last to work on this rank's block. */
static bool gradients_home(struct part *t, struct key_ring *ring, int steps)
{
	for (int k = 0; k < 2; k++)
		if (!on(t)->pull(ring, t->mine.grad[steps % 2][k], &t->mine.grad[(steps - 1) % 2][k], count(t, AT_DK + k) * 4))
			return false;
	if (!on(t)->arrive(ring))
		return false;
	for (int k = 0; k < 2; k++) {
		struct nest l = all_of(t, AT_DK + k);

		on(t)->add(t->r, &l, F32, t->at[AT_DK + k], t->mine.grad[steps % 2][k]);
	}
	return true;
}

static bool step_on(struct part *t, struct key_ring *ring, int step)
{
	int n = ring->n, from = (ring->me - step % n + n) % n;
	void *at[NPLACE];

	memcpy(at, t->at, sizeof at);
	if (step && t->a->backward && !fetch_gradients(t, ring, step))
		return false;
	if (step + 1 < n && !fetch_keys(t, ring, step))
		return false;
	for (int k = 0; step && k < 2; k++)
		at[AT_K + k] = t->mine.block[step % 2][k];
	for (int k = 0; step && t->a->backward && k < 2; k++)
		at[AT_DK + k] = t->mine.grad[step % 2][k];
	return block(t, t->r->rt->rank[comm_rank(ring->group, from)].coord, at);
}

static struct key_ring ring_of(struct part *t, uint32_t axes, const char *name, int64_t bytes)
{
	int row = group_kind(t->r->rt, axes, 0);
	struct group *g = t->r->group[row];

	return (struct key_ring){ .r = t->r, .group = g, .row = row, .me = t->r->place[row], .n = comm_size(g), .mine = &t->mine,
			      .call = { t->i->op, name, axes, bytes, t->i->op->span } };
}

static bool go_round(struct part *t)
{
	struct key_ring ring = ring_of(t, t->a->ring, "ring", (count(t, AT_K) + count(t, AT_V)) * dtype_bytes(t->x.dt));

	if (!on(t)->ring_begin(&ring))
		return false;
	for (int step = 0; step < ring.n; step++)
		if ((step && !on(t)->ring_turn(&ring)) || !step_on(t, &ring, step))
			return false;
	if (!t->a->backward || ring.n == 1)
		return true;
	return on(t)->ring_turn(&ring) && gradients_home(t, &ring, ring.n) && on(t)->ring_end(&ring);
}

static bool combine(struct part *t)
{
	struct key_ring ring = ring_of(t, t->a->apart, "combine", 4 * count(t, AT_O));

	return on(t)->combine(&ring, &t->x, t->given[AT_O], t->given[AT_LSE], count(t, AT_O), count(t, AT_LSE));
}

/* -- where results grow -- */

struct room {
	char *p;
	int64_t n; /* bytes handed out; p NULL: only counted */
};

static void *take(struct room *m, int64_t bytes)
{
	void *p = m->p ? m->p + m->n : NULL;

	m->n += (bytes + 63) / 64 * 64;
	return p;
}

/* In the result itself where that is float32 and nobody else reads it. */
static void grow_in(struct part *t, struct room *m, int which, bool apart)
{
	if (t->x.dt != F32 || apart)
		t->at[which] = take(m, count(t, which) * 4);
}

static void lay_out(struct part *t, struct room *m)
{
	bool apart = t->a->apart && !t->a->backward;

	if (t->a->backward) {
		grow_in(t, m, AT_DQ, false);
		grow_in(t, m, AT_DK, false);
		grow_in(t, m, AT_DV, false);
	} else {
		grow_in(t, m, AT_O, apart);
		if (apart)
			t->at[AT_LSE] = take(m, count(t, AT_LSE) * 4);
	}
	for (int k = 0; t->a->ring && k < 4; k++) {
		t->mine.block[k / 2][k % 2] = take(m, count(t, AT_K + k % 2) * dtype_bytes(t->x.dt));
		if (t->a->backward)
			t->mine.grad[k / 2][k % 2] = take(m, count(t, AT_DK + k % 2) * 4);
	}
}

static bool make_room(struct part *t)
{
	struct room m = { 0 };

	lay_out(t, &m);
	if (m.n && !(m.p = on(t)->scratch(t->r, t->i->op, SCRATCH_RING, m.n)))
		return false;
	m.n = 0;
	memcpy(t->at, t->given, sizeof t->at);
	lay_out(t, &m);
	t->mine.key[0] = t->at[AT_K];
	t->mine.key[1] = t->at[AT_V];
	t->mine.o = t->at[AT_O];
	t->mine.lse = t->at[AT_LSE];
	return true;
}

static void clear_one(struct part *t, int which, double x)
{
	struct nest l = all_of(t, which);

	on(t)->fill(t->r, &l, F32, t->at[which], x);
}

static void clear(struct part *t)
{
	static const int grows[] = { AT_DQ, AT_DK, AT_DV };

	if (t->at[AT_DBIAS])
		clear_one(t, AT_DBIAS, 0);
	for (size_t i = 0; t->a->backward && i < LEN(grows); i++)
		clear_one(t, grows[i], 0);
	if (t->a->backward)
		return;
	clear_one(t, AT_O, 0);
	clear_one(t, AT_LSE, -INFINITY);
}

/* What grew elsewhere, in the type of the result. */
static void settle(struct part *t)
{
	static const int grows[] = { AT_O, AT_DQ, AT_DK, AT_DV };

	for (size_t i = t->a->backward; i < (t->a->backward ? LEN(grows) : 1); i++) {
		int w = grows[i];
		struct nest l = all_of(t, w);

		if (t->at[w] != t->given[w])
			on(t)->copy(t->r, &l, t->x.dt, t->given[w], F32, t->at[w]);
	}
}

/* -- the op -- */

static bool joined(struct part *t)
{
	t->x.join = true;
	if (!make_room(t))
		return false;
	clear(t);
	if (!(t->a->ring ? go_round(t) : block(t, t->r->coord, t->at)))
		return false;
	if (t->a->ring || (t->a->apart && !t->a->backward))
		count_comm(t->r, t->i);
	if (t->a->apart && !t->a->backward)
		return combine(t);
	settle(t);
	return true;
}

static void set_up(struct part *t)
{
	const struct attend *a = t->a;
	const struct op *op = t->i->op;
	struct attention *x = &t->x;
	struct extent row = { 0, 1, 1 };

	*x = a->x;
	x->scores = &t->r->scores;
	if (a->row != NODIM) {
		row = rank_extent(t->m, a->row, &a->row_on, t->r->coord);
		x->row = order_of(t->m, a->row, row.start);
	}
	x->rows = row.valid;
	x->d = dim_size(t->m, a->dim);
	x->dv = a->own == NODIM ? 1 : rank_extent(t->m, a->own, &a->own_on, t->r->coord).valid;
	x->causal = a->causal;
	x->p = t->r->env.training ? x->p : 0;
	x->step = t->r->env.step;
	x->iter = t->r->env.iter_all;
	x->rng_row = (uint64_t)a->mask_row;
	x->rng_base = (uint64_t)(row.start * a->mask_row);
	for (int k = 0; k < x->nloop; k++) {
		struct extent e = rank_extent(t->m, a->loop[k], &a->loop_on[k], t->r->coord);

		x->n[k] = e.valid;
		x->loop[k] = order_of(t->m, a->loop[k], e.start);
		x->rng_base += (uint64_t)e.start * x->rng_loop[k];
	}
	for (int w = 0; w < NPLACE; w++) {
		int s = a->slot[w];

		t->given[w] = s < 0 ? NULL : rank_at(t->r, &t->i->at[s]);
		t->of[w] = s < 0 ? NULL : s < (int)op->nin ? op->in[s] : op->out[s - (int)op->nin];
	}
	memcpy(t->at, t->given, sizeof t->at);
}

bool run_attention(struct rank *r, const struct instr *i)
{
	struct part t = { .r = r, .i = i, .a = i->attend, .m = r->rt->m };

	set_up(&t);
	return t.a->ring || t.a->apart ? joined(&t) : block(&t, r->coord, t.at);
}

bool rehearse_attention(struct rank *r, const struct instr *i)
{
	struct part t = { .r = r, .i = i, .a = i->attend, .m = r->rt->m };

	set_up(&t);
	t.x.join = t.a->ring || t.a->apart;
	return (!t.x.join || make_room(&t)) && block(&t, r->coord, t.at);
}
