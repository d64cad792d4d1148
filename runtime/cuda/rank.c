/* runtime/cuda/rank.c - a rank's device: its context, memory, streams and kernels; tensors seen from the host. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cuda/env.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/meet.h"

static const struct span nowhere;

/* -- errors -- */

static void tell(struct gpu *g, const char *what, const char *name, const char *text)
{
	const struct op *op = g->r->op;

	comm_fail(g->r->rt->comm, g->r->no, op ? op->span : nowhere, "%s%s%s: %s%s%s", op ? opinfo[op->code].name : "", op ? ": " : "",
		  what, name, text ? ", " : "", text ? text : "");
}

bool cu_ok(struct gpu *g, CUresult e, const char *what)
{
	const char *name = "an unknown error", *text = NULL;

	if (e == CUDA_SUCCESS)
		return true;
	lib.cuGetErrorName(e, &name);
	lib.cuGetErrorString(e, &text);
	tell(g, what, name, text);
	return false;
}

bool lt_ok(struct gpu *g, cublasStatus_t e, const char *what)
{
	if (e != CUBLAS_STATUS_SUCCESS)
		tell(g, what, lib.cublasLtGetStatusName(e), NULL);
	return e == CUBLAS_STATUS_SUCCESS;
}

bool nccl_ok(struct gpu *g, ncclComm_t c, ncclResult_t e, const char *what)
{
	if (e != ncclSuccess)
		tell(g, what, lib.ncclGetErrorString(e), lib.ncclGetLastError(c));
	return e == ncclSuccess;
}

/* -- memory -- */

bool gpu_enter(struct gpu *g)
{
	return CU(g, cuCtxSetCurrent, g->ctx);
}

static int64_t workspace(const struct runtime *rt)
{
	return rt->m->workspace > 0 ? rt->m->workspace : USUAL_WORKSPACE;
}

char *gpu_room(struct gpu *g, int slot, int64_t bytes)
{
	static const uintptr_t anywhere = 1 << 16;

	if (g->dry) {
		g->slot[slot].want = bytes > g->slot[slot].want ? bytes : g->slot[slot].want;
		return (char *)anywhere;
	}
	if (bytes <= g->slot[slot].n)
		return (char *)(uintptr_t)g->slot[slot].p;
	tell(g, "its room", "more is needed than was foreseen", NULL);
	return NULL;
}

static bool grow(struct gpu *g, int slot)
{
	int64_t n = (g->slot[slot].want + 255) / 256 * 256;

	if (g->slot[slot].p && !CU(g, cuMemFree, g->slot[slot].p))
		return false;
	g->slot[slot].p = 0;
	g->slot[slot].n = 0;
	if (!CU(g, cuMemAlloc, &g->slot[slot].p, (size_t)n))
		return false;
	g->slot[slot].n = n;
	return true;
}

/* Between steps, when nothing is under way: allocating may wait for the whole device. */
bool gpu_rooms(struct gpu *g)
{
	int64_t limit = workspace(g->r->rt), all = 0;
	char why[128];

	for (int i = 0; i < MAX_SLOTS; i++) {
		if (g->slot[i].want > g->slot[i].n && !grow(g, i))
			return false;
		all += g->slot[i].n;
	}
	if (all <= limit)
		return true;
	snprintf(why, sizeof why, "%lld bytes more than the workspace of %lld bytes", (long long)(all - limit), (long long)limit);
	g->r->op = NULL;
	tell(g, "its work needs ", why, "set a larger one in the plan: workspace = ...");
	return false;
}

/* -- a rank's device -- */

static bool find_device(struct gpu *g, int *arch)
{
	const struct rank *r = g->r;
	int major = 0, minor = 0;

	if (!CU(g, cuDeviceGet, &g->dev, r->rt->here < 0 ? (int)(r->no % lib.devices) : ((struct cuda *)r->rt->own)->local) || !CU(g, cuDevicePrimaryCtxRetain, &g->ctx, g->dev) || !gpu_enter(g) ||
	    !CU(g, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, g->dev) ||
	    !CU(g, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, g->dev))
		return false;
	*arch = major * 10 + minor;
	return true;
}

/* Those of copies are there where the plan starts some. */
static bool has_stream(const struct gpu *g, int s)
{
	for (uint32_t i = 0; i < g->r->rt->starts.n; i++)
		if ((int)op_stream(g->r->rt->starts.at[i]->code) == s)
			return true;
	return s == S_COMPUTE || s == S_COMM;
}

static bool make_streams(struct gpu *g)
{
	int least = 0, greatest = 0;
	uint32_t n = g->r->rt->starts.n;

	g->done = NEWN(g->mem, struct pair, n + 1);
	if (!CU(g, cuCtxGetStreamPriorityRange, &least, &greatest))
		return false;
	for (int s = 0; s < NSTREAM; s++)
		if (has_stream(g, s) &&
		    !CU(g, cuStreamCreateWithPriority, &g->stream[s], CU_STREAM_NON_BLOCKING, s == S_COMPUTE ? least : greatest))
			return false;
	g->compute = g->stream[S_COMPUTE];
	g->comm = g->stream[S_COMM];
	if (!CU(g, cuEventCreate, &g->fork, CU_EVENT_DISABLE_TIMING) || !CU(g, cuEventCreate, &g->joined, CU_EVENT_DISABLE_TIMING))
		return false;
	for (uint32_t i = 0; i < n; i++)
		for (int k = 0; k < 2; k++)
			if (!CU(g, cuEventCreate, &g->done[i].e[k], CU_EVENT_DISABLE_TIMING))
				return false;
	return true;
}

static bool make_memory(struct gpu *g, size_t bytes, struct diag *d)
{
	struct rank *r = g->r;
	const struct runtime *rt = r->rt;
	CUdeviceptr arena = 0;
	size_t left = 0, all = 0;
	CUresult e = lib.cuMemAlloc(&arena, bytes);
	void *p = NULL;

	if (e == CUDA_ERROR_OUT_OF_MEMORY && lib.cuMemGetInfo(&left, &all) == CUDA_SUCCESS)
		return diag_error(d, nowhere, "no memory for rank %lld: the plan needs %zu bytes, its GPU has %zu free of %zu",
				  (long long)r->no, bytes, left, all);
	if (!cu_ok(g, e, "cuMemAlloc"))
		return false;
	r->arena = (char *)(uintptr_t)arena;
	if (!CU(g, cuMemsetD8Async, arena, 0, bytes, g->compute) || !CU(g, cuMemAlloc, &g->step, sizeof(struct ptc_step)) ||
	    !CU(g, cuMemAllocHost, &p, sizeof(struct ptc_step)))
		return false;
	g->step_host = p;
	if (!CU(g, cuMemAllocHost, &p, 8 * (size_t)(rt->reports.n + 1)))
		return false;
	g->report = p;
	if (!CU(g, cuMemAllocHost, &p, sizeof *g->mark))
		return false;
	g->mark = p;
	g->pace = 1;
	g->mine = NEWN(g->mem, bool, rt->reports.n + 1);
	if (rt->m->host && !CU(g, cuMemAllocHost, &p, (size_t)rt->m->host))
		return false;
	r->host = rt->m->host ? p : NULL;
	if (r->host)
		memset(r->host, 0, (size_t)rt->m->host);
	return CU(g, cuStreamSynchronize, g->compute);
}

static bool load_image(struct gpu *g, struct cuda *c, int arch, struct diag *d)
{
	struct runtime *rt = g->r->rt;

	if (c->arch != arch && !image_make(rt->mem, c->source, arch, &c->image, d))
		return false;
	c->arch = arch;
	if (lib.cuModuleLoadData(&g->module, c->image.at) == CUDA_SUCCESS)
		return true;
	image_forget(rt->mem, c->source, arch, d); /* cut short by a full disk, say */
	return image_make(rt->mem, c->source, arch, &c->image, d) && CU(g, cuModuleLoadData, &g->module, c->image.at);
}

static bool find_functions(struct gpu *g, const struct cuda *c)
{
	g->fn = NEWN(g->mem, CUfunction, c->nlaunch + 1);
	for (int k = 0; k < c->nsig; k++)
		for (int i = 0; i < c->sig[k].nlaunch; i++) {
			const struct cuda_launch *l = &c->sig[k].launch[i];
			CUfunction *fn = &g->fn[c->first[k] + i];

			if (!CU(g, cuModuleGetFunction, fn, g->module, l->fn) ||
			    (l->shared > 48 << 10 &&
			     !CU(g, cuFuncSetAttribute, *fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)l->shared)))
				return false;
		}
	return true;
}

/* Which of them a copy takes depends on addresses, which a dry step does not know. */
static bool find_moves(struct gpu *g)
{
	static const char *const names[] = { "ptc_copy16", "ptc_copy8", "ptc_copy4", "ptc_copy2", "ptc_copy1", "ptc_move" };

	for (size_t i = 0; i < LEN(names); i++)
		if (!gpu_function(g, names[i], 0))
			return false;
	return true;
}

static bool open_all(struct gpu *g, size_t bytes, struct diag *d)
{
	struct cuda *c = g->r->rt->own;
	int arch = 0;

	return find_device(g, &arch) && make_streams(g) && make_memory(g, bytes, d) && load_image(g, c, arch, d) && find_functions(g, c) &&
	       find_moves(g) && LT(g, cublasLtCreate, &g->lt);
}

static bool cuda_open(struct rank *r, size_t bytes, struct diag *d)
{
	struct arena *mem = arena_new();
	struct gpu *g = NEW(mem, struct gpu);
	struct span at = nowhere;

	g->mem = mem;
	g->r = r;
	r->own = g;
	if (open_all(g, bytes, d))
		return true;
	return comm_failed(r->rt->comm) ? diag_error(d, nowhere, "%s", comm_error(r->rt->comm, &at)) : false;
}

static void close_streams(struct gpu *g)
{
	for (uint32_t i = 0; g->done && i < g->r->rt->starts.n; i++)
		for (int k = 0; k < 2; k++)
			if (g->done[i].e[k])
				lib.cuEventDestroy(g->done[i].e[k]);
	if (g->fork)
		lib.cuEventDestroy(g->fork);
	if (g->joined)
		lib.cuEventDestroy(g->joined);
	for (int s = 0; s < NSTREAM; s++)
		if (g->stream[s])
			lib.cuStreamDestroy(g->stream[s]);
}

static void close_memory(struct gpu *g)
{
	struct rank *r = g->r;

	for (int i = 0; i < MAX_SLOTS; i++)
		if (g->slot[i].p)
			lib.cuMemFree(g->slot[i].p);
	for (uint32_t i = 0; i < g->uploads.n; i++)
		lib.cuMemFreeHost(g->uploads.at[i].at);
	if (r->arena)
		lib.cuMemFree(dev(r->arena));
	if (g->step)
		lib.cuMemFree(g->step);
	if (g->step_host)
		lib.cuMemFreeHost(g->step_host);
	if (g->report)
		lib.cuMemFreeHost(g->report);
	if (g->mark)
		lib.cuMemFreeHost(g->mark);
	if (r->host)
		lib.cuMemFreeHost(r->host);
}

static void cuda_close(struct rank *r, size_t bytes)
{
	struct gpu *g = gpu_of(r);

	(void)bytes;
	if (!g)
		return;
	if (!g->hung && g->ctx && lib.cuCtxSetCurrent(g->ctx) == CUDA_SUCCESS) {
		replay_close(g);
		products_close(g);
		if (g->lt)
			lib.cublasLtDestroy(g->lt);
		close_streams(g);
		close_memory(g);
		if (g->module)
			lib.cuModuleUnload(g->module);
		lib.cuDevicePrimaryCtxRelease(g->dev);
	}
	arena_free(g->mem);
	r->own = NULL;
}

static bool cuda_enter(struct rank *r)
{
	struct gpu *g = gpu_of(r);

	return gpu_enter(g) && groups_open(g) && channels_open(g);
}

static void cuda_leave(struct rank *r)
{
	struct gpu *g = gpu_of(r);

	if (g->hung || !gpu_enter(g))
		return;
	((struct cuda *)r->rt->own)->well = r->rt->here >= 0 && !comm_failed(r->rt->comm);
	replay_close(g);
	if (comm_failed(r->rt->comm))
		comms_abort(g);
	if (g->hung)
		return;
	channels_close(g);
	groups_close(g);
}

/* -- the plan's kernels, and the processes that run it -- */

static bool enough_devices(const struct runtime *rt, const struct cuda *c, struct diag *d)
{
	if (rt->here >= 0 && c->local >= lib.devices)
		return diag_error(d, nowhere, "rank %lld is number %d on its host, which has %d GPU%s", (long long)rt->here, c->local,
				  lib.devices, lib.devices == 1 ? "" : "s");
	if (rt->here >= 0 || rt->nrank <= lib.devices)
		return true;
	diag_error(d, nowhere, "the plan is for %lld ranks, and there %s %d GPU%s", (long long)rt->nrank, lib.devices == 1 ? "is" : "are",
		   lib.devices, lib.devices == 1 ? "" : "s");
	diag_note(d, nowhere, "each rank needs a GPU of its own; compile it for a smaller mesh");
	return false;
}

/* All ranks are threads here, or, where a launcher says so, this process is one of them. */
static bool find_place(struct runtime *rt, struct cuda *c, struct diag *d)
{
	struct meet_place p;
	char why[MEET_TEXT] = "";

	if (!meet_find(&p, why))
		return diag_error(d, nowhere, "%s", why);
	if (p.world > 1 && p.world != rt->nrank) {
		diag_error(d, nowhere, "the plan is for %lld ranks, and %d processes were started", (long long)rt->nrank, p.world);
		diag_note(d, nowhere, "start one for each rank, or one process for all of them, without WORLD_SIZE");
		return false;
	}
	rt->here = p.world > 1 ? p.rank : -1;
	c->local = p.local;
	p.plan = fnv1a(fnv1a(FNV_START, c->source, strlen(c->source)), (const char *)&rt->seed, sizeof rt->seed);
	if (!enough_devices(rt, c, d))
		return false;
	c->wait = p.timeout;
	c->meet = meet_open(&p, why);
	return c->meet || diag_error(d, nowhere, "ranks do not meet: %s", why);
}

/* What the environment says; a launcher's variables are read later. */
static bool read_settings(struct cuda *c, struct diag *d)
{
	char why[ENV_TEXT];

	c->graphs = 1;
	return (env_number("PTC_CUDA_GRAPHS", 0, 1, &c->graphs, why) && env_number("PTC_CUDA_TUNE", 0, MOST_WAYS, &c->tune, why)) ||
	       diag_error(d, nowhere, "%s", why);
}

static bool cuda_load(struct runtime *rt, struct diag *d)
{
	struct cuda *c = NEW(rt->mem, struct cuda);

	rt->own = c;
	if (!read_settings(c, d) || !tune_open(c, d) || !libs_load(rt->nrank > 1, d))
		return false;
	c->source = codegen_cuda(rt->mem, rt->m, &c->sig, &c->nsig, d);
	if (!c->source)
		return false;
	if (!find_place(rt, c, d))
		return false;
	c->first = NEWN(rt->mem, int, c->nsig + 1);
	rt->kernels.n = c->nsig;
	rt->kernels.op = NEWN(rt->mem, const struct op *, c->nsig + 1);
	for (int i = 0; i < c->nsig; i++) {
		rt->kernels.op[i] = c->sig[i].op;
		c->first[i] = c->nlaunch;
		c->nlaunch += c->sig[i].nlaunch;
	}
	return true;
}

/* Other processes, that this one ends before its time. */
static void tell_others(struct runtime *rt, struct meet *m)
{
	struct span at;
	char why[64];

	snprintf(why, sizeof why, "rank %lld has left", (long long)rt->here);
	meet_break(m, rt->comm && comm_failed(rt->comm) ? comm_error(rt->comm, &at) : why);
}

static void cuda_unload(struct runtime *rt)
{
	struct cuda *c = rt->own;

	if (!c)
		return;
	if (c->meet && c->well)
		meet_end(c->meet);
	else if (c->meet && rt->here >= 0)
		tell_others(rt, c->meet);
	meet_close(c->meet); /* libraries stay: others of this process may use them */
	tune_close(c);
}

/* -- leaves that are a few calls -- */

static void cuda_copy(struct rank *r, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	gpu_copy(gpu_of(r), gpu_of(r)->compute, l, ddt, dst, sdt, src);
}

static void cuda_add(struct rank *r, const struct nest *l, enum dtype dt, void *dst, const void *src)
{
	gpu_add(gpu_of(r), gpu_of(r)->compute, l, dt, dst, src);
}

static void cuda_fill(struct rank *r, const struct nest *l, enum dtype dt, void *dst, double x)
{
	gpu_fill(gpu_of(r), gpu_of(r)->compute, l, dt, dst, x);
}

static void *cuda_scratch(struct rank *r, const struct op *op, int slot, int64_t bytes)
{
	(void)op;
	return gpu_room(gpu_of(r), slot, bytes);
}

static bool cuda_count(struct rank *r, const struct instr *i, char *to, int32_t x)
{
	(void)i;
	return gpu_of(r)->dry || CU(gpu_of(r), cuMemsetD32Async, dev(to), (unsigned)x, 1, gpu_of(r)->compute);
}

static void cuda_move(struct rank *r, void *dst, const void *src, int64_t bytes)
{
	gpu_bytes(gpu_of(r), gpu_of(r)->compute, dst, src, bytes);
}

static void *cuda_peek(struct rank *r, void *at, int64_t bytes)
{
	struct gpu *g = gpu_of(r);

	if (on_host(g, at))
		return at;
	void *seen = malloc(bytes ? (size_t)bytes : 1);

	if (!seen)
		tell(g, "a tensor is looked at", "no memory", NULL);
	if (seen && gpu_enter(g) && CU(g, cuMemcpyDtoHAsync, seen, dev(at), (size_t)bytes, g->compute) && CU(g, cuStreamSynchronize, g->compute))
		return seen;
	free(seen);
	return NULL;
}

/* In the order of the stream that reads it, as a copy from pageable memory may return before it is done. */
static void cuda_poke(struct rank *r, void *at, void *seen, int64_t bytes, bool changed)
{
	struct gpu *g = gpu_of(r);

	if (at == seen)
		return;
	if (changed && gpu_enter(g) && CU(g, cuMemcpyHtoDAsync, dev(at), seen, (size_t)bytes, g->compute))
		CU(g, cuStreamSynchronize, g->compute);
	free(seen);
}

/* The first device stands for all. */
static bool cuda_machine(struct machine *m, struct diag *d)
{
	CUdevice dev;
	size_t bytes = 0;
	int units = 0;

	if (!libs_load(false, d))
		return false;
	if (lib.cuDeviceGet(&dev, 0) != CUDA_SUCCESS || lib.cuDeviceTotalMem(&bytes, dev) != CUDA_SUCCESS ||
	    lib.cuDeviceGetAttribute(&units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev) != CUDA_SUCCESS)
		return diag_error(d, nowhere, "the driver does not say what its first GPU is");
	m->ranks = lib.devices;
	m->memory = (double)bytes;
	m->units = units;
	return true;
}

static void cuda_versions(struct text *t)
{
	lib_names(t);
	text_put(t, ", opened when it is asked for; processes meet by TCP, no MPI");
}

const struct backend cuda_backend = {
	.name = "cuda",
	.versions = cuda_versions,
	.machine = cuda_machine,
	.starts = 1u << S_COMM | 1u << S_IN | 1u << S_OUT,
	.load = cuda_load,
	.unload = cuda_unload,
	.prepare = cuda_prepare,
	.rank_open = cuda_open,
	.rank_close = cuda_close,
	.enter = cuda_enter,
	.leave = cuda_leave,
	.step = cuda_step,
	.begins = cuda_begins,
	.kernel = cuda_kernel,
	.kernels = cuda_kernels,
	.einsum = cuda_einsum,
	.epilogue = cuda_epilogue,
	.attention = cuda_attention,
	.ring_begin = cuda_ring_begin,
	.pull = cuda_pull,
	.arrive = cuda_arrive,
	.ring_turn = cuda_arrive,
	.ring_end = cuda_ring_end,
	.combine = cuda_combine,
	.comm = cuda_comm,
	.aside = cuda_aside,
	.wait = cuda_wait,
	.copy = cuda_copy,
	.add = cuda_add,
	.fill = cuda_fill,
	.scratch = cuda_scratch,
	.input = cuda_input,
	.report = cuda_report,
	.count = cuda_count,
	.channel_open = cuda_channel_open,
	.channel_close = cuda_channel_close,
	.channel_await = cuda_channel_await,
	.channel_room = cuda_channel_room,
	.channel_send = cuda_channel_send,
	.channel_flush = cuda_channel_flush,
	.channel_take = cuda_channel_take,
	.channel_done = cuda_channel_done,
	.move = cuda_move,
	.peek = cuda_peek,
	.poke = cuda_poke,
};
