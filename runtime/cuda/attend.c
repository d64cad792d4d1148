/* runtime/cuda/attend.c - attention on a GPU: its kernels, keys that go round by NCCL, results that are combined. */
#include "runtime/cuda/cuda.h"

/* -- rows meet keys -- */

static struct ptc_order order(const struct order *o)
{
	return (struct ptc_order){ o->start, o->size, o->zigzag };
}

static void describe(const struct attention *x, void *const *at, struct ptc_attention *y)
{
	*y = (struct ptc_attention){
		.rows = x->rows, .cols = x->cols, .d = x->d, .dv = x->dv, .nloop = x->nloop, .causal = x->causal, .join = x->join,
		.row = order(&x->row), .col = order(&x->col), .scale = x->scale, .cap = x->cap, .p = x->p, .key = x->key,
		.rng_base = x->rng_base, .rng_row = x->rng_row, .rng_col = x->rng_col,
	};
	for (int w = 0; w < NPLACE; w++)
		y->at[w] = at[w];
	for (int w = 0; w < NAT; w++) {
		y->row_stride[w] = x->row_stride[w];
		y->d_stride[w] = x->d_stride[w];
	}
	for (int k = 0; k < x->nloop; k++) {
		y->n[k] = x->n[k];
		y->keys |= (int64_t)x->keys[k] << k;
		y->loop[k] = order(&x->loop[k]);
		y->rng_loop[k] = x->rng_loop[k];
		for (int w = 0; w < NAT; w++)
			y->stride[w][k] = x->stride[w][k];
	}
	for (int w = 0; w < NPLACE - NAT; w++) {
		const struct extra *e = &x->extra[w];

		y->extra[w] = (struct ptc_extra){ e->there, e->row, e->col, { 0 } };
		for (int k = 0; k < x->nloop; k++)
			y->extra[w].loop[k] = e->loop[k];
	}
}
_Static_assert((int)CUDA_ALL == (int)NPLACE && (int)CUDA_BIAS == (int)NAT && (int)CUDA_DV == (int)AT_DV, "the same numbers");

/* Bytes from the first to behind the last element of operand or result w. */
static int64_t reach(const struct attention *x, int w, bool writes)
{
	static const enum dtype extra[] = { F32, BOOL, INT, F32 };
	bool keys = w == AT_K || w == AT_V || w == AT_DK || w == AT_DV, wide = w == AT_Q || w == AT_K || w == AT_DQ || w == AT_DK;
	const struct extra *e = w < NAT ? NULL : &x->extra[w - NAT];
	enum dtype dt = e ? extra[w - NAT] : w == AT_LSE || (writes && x->join) ? F32 : x->dt;
	int64_t last = e ? (x->rows - 1) * e->row + (x->cols - 1) * e->col : ((keys ? x->cols : x->rows) - 1) * x->row_stride[w];

	if (!e && w != AT_LSE)
		last += ((wide ? x->d : x->dv) - 1) * x->d_stride[w];
	for (int k = 0; k < x->nloop; k++) {
		if (x->n[k] <= 0)
			return 0;
		last += (x->n[k] - 1) * (e ? e->loop[k] : x->stride[w][k]);
	}
	return x->rows <= 0 || x->cols <= 0 ? 0 : (last + 1) * dtype_bytes(dt);
}

/* What the launches of an attention, or of its gradient, may touch. */
static void declare(const struct gpu *g, const struct op *op, const struct attention *x, void *const *at, const void *delta, int64_t bytes)
{
	struct touched t[NPLACE + 2];
	size_t n = 0;

	for (int w = 0; w < NPLACE; w++) {
		bool writes = op->code == OP_ATTENTION ? w == AT_O || w == AT_LSE : w == AT_DQ || w == AT_DK || w == AT_DV || w == AT_DBIAS;

		if (at[w])
			t[n++] = (struct touched){ at[w], reach(x, w, writes), writes };
	}
	t[n++] = (struct touched){ delta, delta ? bytes : 0, true };
	t[n++] = (struct touched){ (const void *)(uintptr_t)g->step, sizeof(struct ptc_step), false };
	gpu_declare(t, n);
}

bool cuda_attention(struct rank *r, const struct instr *i, const struct attention *x, void *const *at)
{
	struct gpu *g = gpu_of(r);
	struct cuda_attention a;
	struct ptc_attention y;
	struct ptc_iter iter = { .iter_all = r->env.iter_all, .mb = (uint32_t)r->mb };
	CUdeviceptr step = g->step;
	void *args[] = { &y, &step, &iter };

	memcpy(iter.iter, r->env.iter, sizeof iter.iter);
	describe(x, at, &y);
	cuda_attention_of(&a, r->rt->m, i->op, &y);
	y.delta = a.scratch ? (float *)(void *)gpu_room(g, SLOT_KERNEL, a.scratch) : NULL;
	if (a.scratch && !y.delta)
		return false;
	for (int k = 0; k < a.nlaunch; k++) {
		const struct cuda_launch *l = &a.launch[k];
		CUfunction fn = gpu_function(g, l->fn, l->shared);

		if (!fn)
			return false;
		if (g->dry)
			continue;
		declare(g, i->op, x, at, y.delta, a.scratch);
		if (l->grid && !CU(g, cuLaunchKernel, fn, l->grid, 1, 1, l->block, 1, 1, l->shared, g->compute, args, NULL))
			return false;
	}
	return true;
}

/* -- keys that go round -- */

bool cuda_ring_begin(struct key_ring *k)
{
	(void)k;
	return true;
}

/* After what compute has done so far; beside what it does next. */
static bool fork_comm(struct gpu *g)
{
	return CU(g, cuEventRecord, g->fork, g->compute) && CU(g, cuStreamWaitEvent, g->comm, g->fork, CU_EVENT_WAIT_DEFAULT);
}

static bool send_on(struct gpu *g, ncclComm_t c, const struct key_ring *k, void *to, const void *from, size_t n)
{
	ncclResult_t e = lib.ncclGroupStart(), end;

	if (e == ncclSuccess)
		e = lib.ncclSend(from, n, ncclUint8, (k->me + 1) % k->n, c, g->comm);
	if (e == ncclSuccess)
		e = lib.ncclRecv(to, n, ncclUint8, (k->me + k->n - 1) % k->n, c, g->comm);
	end = lib.ncclGroupEnd();
	return nccl_ok(g, c, e != ncclSuccess ? e : end, "keys that go round");
}

bool cuda_pull(struct key_ring *k, void *to, char *const *from, int64_t bytes)
{
	struct gpu *g = gpu_of(k->r);

	return g->dry || !bytes || (fork_comm(g) && send_on(g, g->group[k->row], k, to, *from, (size_t)bytes));
}

bool cuda_arrive(struct key_ring *k)
{
	struct gpu *g = gpu_of(k->r);

	return g->dry || (CU(g, cuEventRecord, g->joined, g->comm) && gpu_waits(g, g->joined, g->r->op));
}

bool cuda_ring_end(struct key_ring *k)
{
	(void)k;
	return true;
}

/* -- results that are combined -- */

bool cuda_combine(struct key_ring *k, const struct attention *x, void *o, float *lse, int64_t no, int64_t nlse)
{
	struct gpu *g = gpu_of(k->r);
	ncclComm_t c = g->group[k->row];
	int64_t each = (no + nlse) * 4;
	char *all = gpu_room(g, SLOT_COMM, k->n * each);

	if (g->dry || !all)
		return all && gpu_function(g, "ptc_combine", 0);
	char *lses = all + k->n * no * 4;

	if (!fork_comm(g) || !nccl_ok(g, c, lib.ncclGroupStart(), "ncclGroupStart"))
		return false;
	ncclResult_t e = lib.ncclAllGather(k->mine->o, all, (size_t)no, ncclFloat32, c, g->comm);

	if (e == ncclSuccess)
		e = lib.ncclAllGather(k->mine->lse, lses, (size_t)nlse, ncclFloat32, c, g->comm);
	ncclResult_t end = lib.ncclGroupEnd();

	return nccl_ok(g, c, e != ncclSuccess ? e : end, "results that are combined") && cuda_arrive(k) &&
	       gpu_combine(g, x, k->n, all, no, lses, nlse, o, lse);
}
