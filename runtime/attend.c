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

#include "runtime/internal.h"

/* What a rank shows its neighbours. */
struct shown {
	const char *key[2];    /* its own k and v, at step 0 */
	char *block[2][2];     /* [step % 2]: k and v of somebody */
	float *grad[2][2];     /* dk and dv of them */
	const float *o, *lse;
};

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

static bool broken(struct part *t)
{
	comm_fail(t->r->rt->comm, t->r->no, t->i->op->span, "%s: %s", opinfo[t->i->op->code].name,
		  gemm_error(t->r->gemm));
	return false;
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
	bool ok = t->a->backward ? attention_backward(t->r->gemm, &x, at) : attention_forward(t->r->gemm, &x, at);
	return ok || broken(t);
}

/* -- keys that go round -- */

static void copy_bytes(void *to, const void *from, int64_t n)
{
	memcpy(to, from, (size_t)n);
}

static int64_t count(const struct part *t, int which)
{
	return local_count(t->m, t->of[which]);
}

static void fetch_keys(struct part *t, const struct shown *left, int step)
{
	for (int k = 0; k < 2; k++)
		copy_bytes(t->mine.block[(step + 1) % 2][k], step ? left->block[step % 2][k] : left->key[k],
			   count(t, AT_K + k) * dtype_bytes(t->x.dt));
}

static void fetch_gradients(struct part *t, const struct shown *left, int step)
{
	for (int k = 0; k < 2; k++) {
		float *to = t->mine.grad[step % 2][k];

		if (step == 1)
			memset(to, 0, (size_t)count(t, AT_DK + k) * sizeof *to);
		else
			copy_bytes(to, left->grad[(step - 1) % 2][k], count(t, AT_DK + k) * (int64_t)sizeof *to);
	}
}

/* From the neighbour, who was the last to work on this rank's block. */
static void gradients_home(struct part *t, const struct shown *left, int steps)
{
	for (int k = 0; k < 2; k++) {
		struct nest l = { 1, { count(t, AT_DK + k) }, { 1 }, { 1 } };

		nest_add(&l, F32, t->at[AT_DK + k], left->grad[(steps - 1) % 2][k]);
	}
}

static bool step_on(struct part *t, const struct group *g, int me, int step, const struct shown *left)
{
	int n = comm_size(g), from = (me - step % n + n) % n;
	void *at[NPLACE];

	memcpy(at, t->at, sizeof at);
	if (step + 1 < n)
		fetch_keys(t, left, step);
	for (int k = 0; step && k < 2; k++)
		at[AT_K + k] = t->mine.block[step % 2][k];
	if (step && t->a->backward) {
		fetch_gradients(t, left, step);
		for (int k = 0; k < 2; k++)
			at[AT_DK + k] = t->mine.grad[step % 2][k];
	}
	return block(t, t->r->rt->rank[comm_rank(g, from)].coord, at);
}

static bool go_round(struct part *t)
{
	const struct op *op = t->i->op;
	int set = group_kind(t->r->rt, t->a->ring, 0), me = t->r->place[set];
	struct group *g = t->r->group[set];
	int n = comm_size(g);
	struct call call = { op, "ring", t->a->ring, (count(t, AT_K) + count(t, AT_V)) * dtype_bytes(t->x.dt), op->span };
	void *const lent[] = { &t->mine };

	if (!comm_meet(g, me, &call, lent, NULL))
		return false;
	struct shown left = *(const struct shown *)comm_in(g, (me + n - 1) % n, 0);

	for (int step = 0; step < n; step++)
		if ((step && !comm_step(g, me, &call)) || !step_on(t, g, me, step, &left))
			return false;
	if (!t->a->backward || n == 1)
		return true;
	if (!comm_step(g, me, &call))
		return false;
	gradients_home(t, &left, n);
	return comm_wait(g, me);
}

/* -- results that are combined -- */

static const struct shown *shown_by(const struct group *g, int member)
{
	return comm_in(g, member, 0);
}

static void combine_row(struct part *t, const struct group *g, int64_t o, int64_t lse)
{
	const struct attention *x = &t->x;
	int n = comm_size(g);
	float top = -INFINITY, sum = 0, weight[MAX_GROUP];

	for (int c = 0; c < n; c++)
		top = shown_by(g, c)->lse[lse] > top ? shown_by(g, c)->lse[lse] : top;
	for (int c = 0; c < n; c++)
		sum += weight[c] = top == -INFINITY ? 0 : expf(shown_by(g, c)->lse[lse] - top);
	((float *)t->given[AT_LSE])[lse] = top + logf(sum);
	for (int64_t j = 0; j < x->dv; j++, o += x->d_stride[AT_O]) {
		float y = 0;

		for (int c = 0; c < n; c++)
			y += shown_by(g, c)->o[o] * weight[c];
		nest_store(x->dt, t->given[AT_O], o, top == -INFINITY ? 0 : y / sum);
	}
}

static void combine_loop(struct part *t, const struct group *g, int loop, int64_t o, int64_t lse)
{
	const struct attention *x = &t->x;

	if (loop == x->nloop) {
		for (int64_t r = 0; r < x->rows; r++)
			combine_row(t, g, o + r * x->row_stride[AT_O], lse + r * x->row_stride[AT_LSE]);
		return;
	}
	for (int64_t i = 0; i < x->n[loop]; i++)
		combine_loop(t, g, loop + 1, o + i * x->stride[AT_O][loop], lse + i * x->stride[AT_LSE][loop]);
}

static bool combine(struct part *t)
{
	const struct op *op = t->i->op;
	int set = group_kind(t->r->rt, t->a->apart, 0), me = t->r->place[set];
	struct group *g = t->r->group[set];
	struct call call = { op, "combine", t->a->apart, 4 * count(t, AT_O), op->span };
	void *const lent[] = { &t->mine };

	if (!comm_meet(g, me, &call, lent, NULL))
		return false;
	combine_loop(t, g, 0, 0, 0);
	return comm_wait(g, me);
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
	if (m.n && !(m.p = gemm_scratch(t->r->gemm, SCRATCH_RING, m.n)))
		return broken(t);
	m.n = 0;
	memcpy(t->at, t->given, sizeof t->at);
	lay_out(t, &m);
	t->mine.key[0] = t->at[AT_K];
	t->mine.key[1] = t->at[AT_V];
	t->mine.o = t->at[AT_O];
	t->mine.lse = t->at[AT_LSE];
	return true;
}

static void clear(struct part *t)
{
	static const int grows[] = { AT_DQ, AT_DK, AT_DV };

	if (t->at[AT_DBIAS])
		memset(t->at[AT_DBIAS], 0, (size_t)count(t, AT_DBIAS) * 4);
	for (size_t i = 0; t->a->backward && i < LEN(grows); i++)
		memset(t->at[grows[i]], 0, (size_t)count(t, grows[i]) * 4);
	if (t->a->backward)
		return;
	memset(t->at[AT_O], 0, (size_t)count(t, AT_O) * 4);
	for (int64_t i = 0; i < count(t, AT_LSE); i++)
		((float *)t->at[AT_LSE])[i] = -INFINITY;
}

/* What grew elsewhere, in the type of the result. */
static void settle(struct part *t)
{
	static const int grows[] = { AT_O, AT_DQ, AT_DK, AT_DV };

	for (size_t i = t->a->backward; i < (t->a->backward ? LEN(grows) : 1); i++) {
		int w = grows[i];
		struct nest l = { 1, { count(t, w) }, { 1 }, { 1 } };

		if (t->at[w] != t->given[w])
			nest_copy(&l, t->x.dt, t->given[w], F32, t->at[w]);
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
