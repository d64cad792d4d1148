/* runtime/ring.c - rings of ranks that are threads: a member reads what the one before it shows. */
#include <math.h>

#include "runtime/ring.h"

bool ring_begin(struct key_ring *g)
{
	g->lent[0] = (void *)(uintptr_t)g->mine;
	if (!comm_meet(g->group, g->me, &g->call, g->lent, NULL))
		return false;
	g->left = *(const struct shown *)comm_in(g->group, (g->me + g->n - 1) % g->n, 0);
	return true;
}

bool ring_pull(struct key_ring *g, void *to, char *const *from, int64_t bytes)
{
	size_t field = (size_t)((const char *)from - (const char *)g->mine);

	memcpy(to, *(char *const *)(const void *)((const char *)&g->left + field), (size_t)bytes);
	return true;
}

bool ring_arrive(struct key_ring *g)
{
	(void)g;
	return true;
}

bool ring_turn(struct key_ring *g)
{
	return comm_step(g->group, g->me, &g->call);
}

bool ring_end(struct key_ring *g)
{
	return comm_wait(g->group, g->me);
}

/* -- results that are combined -- */

struct join {
	const struct key_ring *g;
	const struct attention *x;
	void *o;
	float *lse;
};

static const struct shown *shown_by(const struct key_ring *g, int member)
{
	return comm_in(g->group, member, 0);
}

static void combine_row(const struct join *j, int64_t o, int64_t lse)
{
	const struct attention *x = j->x;
	int n = j->g->n;
	float top = -INFINITY, sum = 0, *weight = j->g->r->weights;

	for (int c = 0; c < n; c++)
		top = shown_by(j->g, c)->lse[lse] > top ? shown_by(j->g, c)->lse[lse] : top;
	for (int c = 0; c < n; c++)
		sum += weight[c] = top == -INFINITY ? 0 : expf(shown_by(j->g, c)->lse[lse] - top);
	j->lse[lse] = top + logf(sum);
	for (int64_t k = 0; k < x->dv; k++, o += x->d_stride[AT_O]) {
		float y = 0;

		for (int c = 0; c < n; c++)
			y += shown_by(j->g, c)->o[o] * weight[c];
		nest_store(x->dt, j->o, o, top == -INFINITY ? 0 : y / sum);
	}
}

static void combine_loop(const struct join *j, int loop, int64_t o, int64_t lse)
{
	const struct attention *x = j->x;

	if (loop == x->nloop) {
		for (int64_t r = 0; r < x->rows; r++)
			combine_row(j, o + r * x->row_stride[AT_O], lse + r * x->row_stride[AT_LSE]);
		return;
	}
	for (int64_t i = 0; i < x->n[loop]; i++)
		combine_loop(j, loop + 1, o + i * x->stride[AT_O][loop], lse + i * x->stride[AT_LSE][loop]);
}

bool ring_combine(struct key_ring *g, const struct attention *x, void *o, float *lse, int64_t no, int64_t nlse)
{
	const struct join j = { g, x, o, lse };

	(void)no;
	(void)nlse;
	if (!ring_begin(g))
		return false;
	combine_loop(&j, 0, 0, 0);
	return ring_end(g);
}
