/* runtime/cuda/marks.c - how far a device is: `compute` counts in pinned memory the marks that it comes by, so that a device that
 * stands still is told from one that waits for others (comm_threads.c).
 *
 * A mark is the launch of one thread, a microsecond or two; so a step has no more than MOST_MARKS of them, and one wherever
 * compute begins to wait for other ranks and where it ends to. They are part of the step's graph. */
#include "runtime/cuda/cuda.h"

enum { FASTER = 1000 }; /* than the machine that instr.patience has in mind: 1 TFLOP/s, 100 GB/s */

static int64_t patience(const struct rank *r, const struct instr *i)
{
	return i->patience / FASTER / r->rt->nrank;
}

static bool put_mark(struct gpu *g, const struct mark *m)
{
	CUfunction fn = gpu_function(g, "ptc_store_int", 0);
	const int32_t *to = g->mark;
	int32_t no = (int32_t)g->now->marks.v.n + 1;

	if (!fn)
		return false;
	PUSH(g->mem, &g->now->marks.v, *m);
	g->passed = m->waits ? g->pace : 0;
	return CU(g, cuLaunchKernel, fn, 1, 1, 1, 1, 1, 1, 0, g->compute, (void *[]){ &to, &no }, NULL);
}

bool cuda_begins(struct rank *r, const struct instr *i)
{
	struct gpu *g = gpu_of(r);
	struct marks *all = &g->now->marks;
	struct mark m = { i->op, i->code == I_WAIT || (i->code == I_COMM && !i->async), 0, patience(r, i), r->chunk, r->mb };

	if (i->code == I_REPEAT || (i->code == I_COMM && i->async))
		return true; /* its body's instructions; it is for the other stream */
	if (g->dry) {
		g->passed++;
		return gpu_function(g, "ptc_store_int", 0) != NULL;
	}
	if (m.waits || g->passed >= g->pace - 1)
		return put_mark(g, &m);
	g->passed++;
	if (all->v.n) {
		all->v.at[all->v.n - 1].more++;
		all->v.at[all->v.n - 1].patience += m.patience;
	}
	return true;
}

bool gpu_waits(struct gpu *g, CUevent e, const struct op *op)
{
	struct mark m = { op, true, 0, 0, g->r->chunk, g->r->mb };

	if (g->dry)
		return true;
	if (!put_mark(g, &m) || !CU(g, cuStreamWaitEvent, g->compute, e, CU_EVENT_WAIT_DEFAULT))
		return false;
	m.waits = false;
	return !op || put_mark(g, &m);
}

void marks_begin(struct gpu *g)
{
	g->passed = g->pace;
	g->now->marks.v.n = 0;
}

bool marks_end(struct gpu *g)
{
	return put_mark(g, &(struct mark){ .waits = true, .chunk = -1 });
}
