/* runtime/cuda/moves.c - strided copies, sums and fills, by the kernels that every plan has (codegen/cuda.h), or as plain copies
 * of bytes; results of attention that are combined. */
#include "runtime/cuda/cuda.h"

/* A function of the module by name, with leave for so much shared memory. NULL: said. The driver may load it now, for which it may
 * wait for all that is under way, collectives too: so each is asked for in the dry step. */
CUfunction gpu_function(struct gpu *g, const char *name, uint32_t shared)
{
	struct named *f = NULL;

	for (uint32_t i = 0; i < g->named.n && !f; i++)
		if (streq(g->named.at[i].name, name))
			f = &g->named.at[i];
	if (!f) {
		struct named made = { arena_strdup(g->mem, name), NULL, 48 << 10 };

		if (!CU(g, cuModuleGetFunction, &made.fn, g->module, name))
			return NULL;
		PUSH(g->mem, &g->named, made);
		f = &g->named.at[g->named.n - 1];
	}
	if (shared > f->shared && !CU(g, cuFuncSetAttribute, f->fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared))
		return NULL;
	f->shared = shared > f->shared ? shared : f->shared;
	return f->fn;
}

static int64_t count_of(const struct nest *l)
{
	int64_t n = 1;

	for (int i = 0; i < l->nd; i++)
		n *= l->n[i];
	return n;
}

/* Bytes from the first to behind the last element. */
static int64_t span(const struct nest *l, const int64_t *stride, enum dtype dt)
{
	int64_t last = 0;

	for (int i = 0; i < l->nd; i++)
		last += (l->n[i] - 1) * stride[i];
	return (last + 1) * dtype_bytes(dt);
}

/* src NULL: a fill with x. */
static bool launch(struct gpu *g, CUstream s, enum cuda_move_mode mode, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt,
		   const void *src, double x)
{
	struct cuda_move m = cuda_move_of(mode, ddt, sdt, l->nd, l->n, l->ds, l->ss, x, dev(dst) | dev(src) | 16);
	CUdeviceptr to = dev(dst), from = dev(src);
	void *args[] = { &to, &from, &m.nest };
	const struct touched touched[] = { { dst, span(l, l->ds, ddt), true }, { src, src ? span(l, l->ss, sdt) : 0, false } };
	CUfunction fn = m.grid ? gpu_function(g, m.fn, 0) : NULL;

	if (!fn || g->dry)
		return fn || !m.grid;
	gpu_declare(touched, LEN(touched));
	return CU(g, cuLaunchKernel, fn, m.grid, 1, 1, m.block, 1, 1, 0, s, args, NULL);
}

/* -- host memory: what the plan keeps there, pinned -- */

bool on_host(const struct gpu *g, const void *p)
{
	const struct rank *r = g->r;

	return r->host && (const char *)p >= r->host && (const char *)p < r->host + r->rt->m->host;
}

bool gpu_bytes(struct gpu *g, CUstream s, void *dst, const void *src, int64_t n)
{
	if (n <= 0 || g->dry)
		return true;
	if (on_host(g, src))
		return CU(g, cuMemcpyHtoDAsync, dev(dst), src, (size_t)n, s);
	if (on_host(g, dst))
		return CU(g, cuMemcpyDtoHAsync, dst, dev(src), (size_t)n, s);
	return CU(g, cuMemcpyDtoDAsync, dev(dst), dev(src), (size_t)n, s);
}

/* Between host and device: through device memory, where it is laid out and typed as the other side wants it. */
static bool by_way_of(struct gpu *g, CUstream s, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	bool up = on_host(g, src);
	int64_t n = up ? span(l, l->ss, sdt) : span(l, l->ds, ddt);
	char *room = gpu_room(g, s == g->stream[S_IN] ? SLOT_IN : s == g->stream[S_OUT] ? SLOT_OUT : SLOT_STAGE, n);

	if (!room)
		return false;
	if (up)
		return gpu_bytes(g, s, room, src, n) && gpu_copy(g, s, l, ddt, dst, sdt, room);
	/* what lies between the elements on the host stays as it is */
	return (count_of(l) * dtype_bytes(ddt) == n || gpu_bytes(g, s, room, dst, n)) &&
	       gpu_copy(g, s, l, ddt, room, sdt, src) && gpu_bytes(g, s, dst, room, n);
}

/* -- nests -- */

static bool lies_together(const struct nest *l)
{
	return l->nd == 0 || (l->nd == 1 && l->ds[0] == 1 && l->ss[0] == 1);
}

bool gpu_copy(struct gpu *g, CUstream s, const struct nest *given, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	struct nest l = *given;

	nest_simplify(&l);
	if (nest_empty(&l))
		return true;
	if (ddt == sdt && lies_together(&l))
		return gpu_bytes(g, s, dst, src, count_of(&l) * dtype_bytes(ddt));
	if (on_host(g, src) || on_host(g, dst))
		return by_way_of(g, s, &l, ddt, dst, sdt, src);
	return launch(g, s, CUDA_COPY, &l, ddt, dst, sdt, src, 0);
}

bool gpu_add(struct gpu *g, CUstream s, const struct nest *l, enum dtype dt, void *dst, const void *src)
{
	if (nest_empty(l))
		return true;
	if (on_host(g, dst) || on_host(g, src))
		return rank_broken(g->r, g->r->op, "a sum that is not on the GPU");
	return launch(g, s, CUDA_ADD, l, dt, dst, dt, src, 0);
}

bool gpu_fill(struct gpu *g, CUstream s, const struct nest *given, enum dtype dt, void *dst, double x)
{
	struct nest l = *given;

	memcpy(l.ss, l.ds, sizeof l.ss);
	nest_simplify(&l);
	if (nest_empty(&l))
		return true;
	if (lies_together(&l) && x == 0)
		return g->dry || CU(g, cuMemsetD8Async, dev(dst), 0, (size_t)(count_of(&l) * dtype_bytes(dt)), s);
	return launch(g, s, CUDA_FILL, &l, dt, dst, dt, NULL, x);
}

/* Behind what compute has been given by now; the arena may still be read there, or be made. */
bool cuda_aside(struct rank *r, const struct instr *i, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	struct gpu *g = gpu_of(r);
	CUstream s = g->stream[op_stream(i->op->code)];

	if (g->dry)
		return gpu_copy(g, s, l, ddt, dst, sdt, src);
	return CU(g, cuEventRecord, g->fork, g->compute) && CU(g, cuStreamWaitEvent, s, g->fork, CU_EVENT_WAIT_DEFAULT) &&
	       gpu_copy(g, s, l, ddt, dst, sdt, src) && CU(g, cuEventRecord, done_event(g, i), s);
}

/* -- attention's results -- */

/* Bytes from the first to behind the last element of a side. */
static int64_t reach(const struct ptc_nest *l, const int64_t *stride, enum dtype dt)
{
	int64_t last = 0;

	for (int i = 0; i < l->nd; i++)
		last += (l->n[i] - 1) * stride[i];
	return (last + 1) * dtype_bytes(dt);
}

static bool combine(struct gpu *g, const struct attention *x, int64_t n, const void *all_o, int64_t no, const void *all_lse, int64_t nlse,
		    void *o, float *lse)
{
	struct ptc_nest l = { .count = 1 };
	CUdeviceptr to = dev(o), row = dev(lse), from = dev(all_o), rows = dev(all_lse);
	int32_t dt = (int32_t)x->dt;
	void *args[] = { &to, &dt, &row, &from, &rows, &n, &no, &nlse, &l };
	CUfunction fn = gpu_function(g, "ptc_combine", 0);

	for (int k = 0; k < x->nloop + 2; k++) {
		bool loop = k < x->nloop, width = k > x->nloop;

		if (width && lse)
			continue;
		l.n[l.nd] = loop ? x->n[k] : width ? x->dv : x->rows;
		l.ds[l.nd] = loop ? x->stride[AT_O][k] : width ? x->d_stride[AT_O] : x->row_stride[AT_O];
		l.ss[l.nd] = loop ? x->stride[AT_LSE][k] : width ? 0 : x->row_stride[AT_LSE];
		l.count *= l.n[l.nd++];
	}
	int64_t blocks = ceil_div(l.count, 128);
	const struct touched touched[] = {
		{ o, lse ? 0 : reach(&l, l.ds, x->dt), true }, { lse, lse ? reach(&l, l.ss, F32) : 0, true },
		{ all_o, n * no * 4, false }, { all_lse, n * nlse * 4, false },
	};

	if (!fn || !l.count)
		return fn != NULL;
	gpu_declare(touched, LEN(touched));
	return CU(g, cuLaunchKernel, fn, (unsigned)(blocks < 8192 ? blocks : 8192), 1, 1, 128, 1, 1, 0, g->compute, args, NULL);
}

bool gpu_combine(struct gpu *g, const struct attention *x, int64_t n, const void *all_o, int64_t no, const void *all_lse, int64_t nlse,
		 void *o, float *lse)
{
	return combine(g, x, n, all_o, no, all_lse, nlse, o, NULL) && combine(g, x, n, all_o, no, all_lse, nlse, o, lse);
}
