/* op_faults.c NAME good|bad - streams, ranges and collectives: right, or with one fault that must be found. Without
 * arguments: the names, what is reported, whether also when unchecked. */
#include "tests/softgpu/programs/test.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool bad;
static const char source[] =
	"extern \"C\" __global__ void copy(float *y, const float *x) { int i = threadIdx.x; y[i] = x[i]; }\n"
	"extern \"C\" __global__ void shift(float *y, const float *x, int by) { int i = threadIdx.x; y[i + by] = x[i]; }\n";
static CUmodule module;
enum { BYTES = 512 };

static float value(int i)
{
	return (float)i;
}

static void copy(CUdeviceptr y, CUdeviceptr x, CUstream s)
{
	LAUNCH(function(module, "copy"), 1, 128, 0, s, &y, &x);
}

static void wait_for(CUstream s, CUstream before)
{
	CUevent e = event();
	CU(cuEventRecord(e, before));
	CU(cuStreamWaitEvent(s, e, 0));
	CU(cuEventDestroy(e));
}

/* y is written on one stream, read on another. */
static void read_too_early(void)
{
	CUdeviceptr x = floats(128, value), y = floats(128, value), z = alloc(BYTES);
	CUstream s = stream(), t = stream();
	copy(y, x, s);
	if (!bad)
		wait_for(t, s);
	copy(z, y, t);
	CU(cuStreamSynchronize(s));
	CU(cuStreamSynchronize(t));
}

/* y is read on one stream, then written on another. */
static void write_too_early(void)
{
	CUdeviceptr x = floats(128, value), y = floats(128, value), z = alloc(BYTES);
	CUstream s = stream(), t = stream();
	copy(z, y, s);
	if (!bad)
		wait_for(t, s);
	copy(y, x, t);
	CU(cuCtxSynchronize());
}

/* An event is waited for before it is recorded again: only what it was then is waited for. */
static void old_event(void)
{
	CUdeviceptr x = floats(128, value), y = floats(128, value), z = alloc(BYTES);
	CUstream s = stream(), t = stream();
	CUevent e = event();
	CU(cuEventRecord(e, s));
	if (bad)
		CU(cuStreamWaitEvent(t, e, 0));
	copy(y, x, s);
	CU(cuEventRecord(e, s));
	if (!bad)
		CU(cuStreamWaitEvent(t, e, 0));
	copy(z, y, t);
	CU(cuCtxSynchronize());
}

/* A wait within a captured graph. */
static void in_graph(void)
{
	CUdeviceptr x = floats(128, value), y = floats(128, value), z = alloc(BYTES);
	CUstream s = stream(), t = stream();
	CUgraph g;
	CUgraphExec e;
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	wait_for(t, s);
	copy(y, x, s);
	if (!bad)
		wait_for(t, s);
	copy(z, y, t);
	wait_for(s, t);
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphInstantiate(&e, g, 0));
	for (int i = 0; i < 2; i++)
		CU(cuGraphLaunch(e, s));
	CU(cuStreamSynchronize(s));
}

/* Two graphs after one another on two streams. */
static void after_graph(void)
{
	CUdeviceptr x = floats(128, value), y = floats(128, value), z = alloc(BYTES);
	CUstream s = stream(), t = stream();
	CUgraph g;
	CUgraphExec e;
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	copy(y, x, s);
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphInstantiate(&e, g, 0));
	CU(cuGraphLaunch(e, s));
	if (!bad)
		wait_for(t, s);
	copy(z, y, t);
	CU(cuCtxSynchronize());
}

/* A library's product reads what another stream writes. */
static void product(void)
{
	CUdeviceptr a = floats(256, value), b = floats(256, value), c = alloc(1024), x = floats(128, value);
	CUstream s = stream(), t = stream();
	cublasLtHandle_t h;
	cublasLtMatmulDesc_t d;
	cublasLtMatrixLayout_t l;
	float one = 1, zero = 0;
	DO(cublasLtCreate(&h));
	DO(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	DO(cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, 16, 16, 16));
	copy(b, x, s);
	if (!bad)
		wait_for(t, s);
	DO(cublasLtMatmul(h, d, &one, (void *)a, l, (void *)b, l, &zero, (void *)c, l, (void *)c, l, NULL, NULL, 0, t));
	CU(cuCtxSynchronize());
}

/* A product of 16 x 16 on stream t with an epilogue: its result at c, a vector, a matrix. */
static cublasStatus_t with_epilogue(uint32_t e, CUdeviceptr c, CUdeviceptr vector, CUdeviceptr aux, CUstream t)
{
	CUdeviceptr a = floats(256, value), b = floats(256, value);
	cublasLtHandle_t h;
	cublasLtMatmulDesc_t d;
	cublasLtMatrixLayout_t l;
	float one = 1, zero = 0;
	int64_t ld = 16;
	DO(cublasLtCreate(&h));
	DO(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	DO(cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, 16, 16, 16));
	DO(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, 4));
	DO(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, 8));
	DO(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, 8));
	DO(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, 8));
	if (c == 1)
		c = a;
	return api.cublasLtMatmul(h, d, &one, (void *)a, l, (void *)b, l, &zero, (void *)c, l, (void *)c, l, NULL, NULL, 0, t);
}

/* The bias is still written; what went into gelu is read; the gradient of a bias is read: without a wait. */
static void epilogue_bias(void)
{
	CUdeviceptr x = floats(128, value), y = floats(128, value);
	CUstream s = stream(), t = stream();
	copy(y, x, s);
	if (!bad)
		wait_for(t, s);
	CHECK(!with_epilogue(CUBLASLT_EPILOGUE_BIAS, alloc(1024), y, 0, t));
	CU(cuCtxSynchronize());
}

static void epilogue_aux(void)
{
	CUdeviceptr aux = floats(256, value), y = floats(16, value), z = alloc(BYTES);
	CUstream s = stream(), t = stream();
	CHECK(!with_epilogue(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, alloc(1024), y, aux, t));
	if (!bad)
		wait_for(s, t);
	copy(z, aux, s);
	CU(cuCtxSynchronize());
}

static void epilogue_slope(void)
{
	CUdeviceptr x = floats(128, value), aux = floats(256, value);
	CUstream s = stream(), t = stream();
	copy(aux, x, s);
	if (!bad)
		wait_for(t, s);
	CHECK(!with_epilogue(CUBLASLT_EPILOGUE_DGELU, alloc(1024), 0, aux, t));
	CU(cuCtxSynchronize());
}

static void epilogue_grad(void)
{
	static const uint32_t e[] = {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_DGELU_BGRAD};
	CUdeviceptr y = floats(128, value), z = alloc(BYTES);
	CUstream s = stream(), t = stream();
	for (int i = 0; i < 3; i++) {
		CHECK(!with_epilogue(e[i], alloc(1024), y, floats(256, value), t));
		if (!bad)
			wait_for(s, t);
		copy(z, y, s);
		CU(cuCtxSynchronize());
	}
}

/* It ends 4 bytes behind the allocation. */
static void epilogue_end(void)
{
	CUdeviceptr y = alloc(64);
	CU(cuMemsetD32Async(y, 0, 16, NULL));
	CHECK(!with_epilogue(CUBLASLT_EPILOGUE_BIAS, alloc(1024), y + 4 * (unsigned)bad, 0, NULL) == !bad);
	CU(cuCtxSynchronize());
}

static void epilogue_aligned(void)
{
	CUdeviceptr aux = floats(300, value);
	CHECK(!with_epilogue(CUBLASLT_EPILOGUE_GELU_AUX, alloc(1024), 0, aux + 4 * (unsigned)bad, NULL) == !bad);
	CU(cuCtxSynchronize());
}

/* What goes into gelu, or the result, is written over what is read. */
static void epilogue_overlap(void)
{
	CUdeviceptr c = alloc(1024), y = floats(16, value);
	CHECK(!with_epilogue(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, c, y, bad ? c : alloc(1024), NULL) == !bad);
	CHECK(!with_epilogue(CUBLASLT_EPILOGUE_BIAS, bad ? 1 : c, y, 0, NULL) == !bad);
	CHECK(!with_epilogue(CUBLASLT_EPILOGUE_BGRADA, c, bad ? c : y, 0, NULL) == !bad);
	CU(cuCtxSynchronize());
}

static void declared_range(size_t len, bool writable, int by)
{
	CUdeviceptr arena = floats(512, value), x = arena, y = arena + 1024;
	CUdeviceptr base[] = {x, y};
	size_t lens[] = {BYTES, len};
	unsigned char writes[] = {0, writable};
	api.softgpuDeclare(2, base, lens, writes);
	LAUNCH(function(module, "shift"), 1, 128, 0, NULL, &y, &x, &by);
	api.cuStreamSynchronize(NULL);
}

/* One arena: only the declared ranges tell a neighbour from one's own. */
static void neighbour(void)
{
	declared_range(BYTES, true, bad);
}

static void read_only(void)
{
	declared_range(BYTES, !bad, 0);
}

static void freed(void)
{
	CUdeviceptr x = floats(128, value), y = alloc(BYTES);
	if (bad)
		CU(cuMemFree(x));
	copy(y, x, NULL);
	api.cuStreamSynchronize(NULL);
}

static void fill_too_far(void)
{
	CUdeviceptr y = alloc(BYTES);
	CUresult r = api.cuMemsetD32Async(y, 0, 128 + bad, NULL);
	CHECK(r == (bad ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS));
}

/* Two copies through one pinned buffer, on two streams. */
static void through_host(void)
{
	CUdeviceptr x = floats(128, value), y = alloc(BYTES);
	CUstream s = stream(), t = stream();
	void *p;
	CU(cuMemAllocHost(&p, BYTES));
	CU(cuMemcpyDtoHAsync(p, x, BYTES, s));
	if (!bad)
		wait_for(t, s);
	CU(cuMemcpyHtoDAsync(y, p, BYTES, t));
	CU(cuCtxSynchronize());
}

static void pinned_end(void)
{
	CUdeviceptr x = floats(128, value);
	void *p;
	CU(cuMemAllocHost(&p, BYTES));
	CUresult r = api.cuMemcpyDtoHAsync((char *)p + 4 * bad, x, BYTES, stream());
	CHECK(r == (bad ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS));
	CU(cuCtxSynchronize());
}

/* The host fills a buffer again before the copy from it is done. */
static void host_writes(void)
{
	CUdeviceptr y = alloc(BYTES);
	CUstream s = stream();
	void *p;
	CU(cuMemAllocHost(&p, BYTES));
	for (int i = 0; i < 3; i++) {
		memset(p, i, BYTES);
		CU(cuMemcpyHtoDAsync(y, p, BYTES, s));
		if (!bad)
			CU(cuStreamSynchronize(s));
	}
	CU(cuStreamSynchronize(s));
}

static void other_gpu(void)
{
	CUdeviceptr x = floats(128, value), y = alloc(BYTES);
	if (bad) {
		set_device(1);
		x = floats(128, value);
		set_device(0);
	}
	CUfunction fn = function(module, "copy");
	CUresult r = api.cuLaunchKernel(fn, 1, 1, 1, 128, 1, 1, 0, NULL, (void *[]){&y, &x}, NULL);
	CHECK(r == (bad ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS));
}

/* ---- collectives, 4 ranks ---- */

enum { N = 4 };
static ncclUniqueId id[2];
static CUdeviceptr buffers[N];
static ncclComm_t comms[N][2];
static CUstream streams[N][2];

static void end(int rank)
{
	CUresult r = api.cuCtxSynchronize();
	if (r)
		fprintf(stderr, "rank %d: the device failed: %d\n", rank, r);
}

static void setup(int rank)
{
	for (int i = 0; i < 2; i++) {
		DO(ncclCommInitRank(&comms[rank][i], N, id[i], rank));
		streams[rank][i] = stream();
	}
	buffers[rank] = floats(128, value);
}

#define SETUP \
	setup(rank); \
	ncclComm_t a = comms[rank][0], b = comms[rank][1]; \
	void *p = (void *)buffers[rank]; \
	CUstream s = streams[rank][0], t = streams[rank][1]; \
	bool odd = bad && rank == 2; \
	(void)a, (void)b, (void)t, (void)p, (void)odd

static void count(int rank)
{
	SETUP;
	api.ncclAllReduce(p, p, odd ? 32 : 64, ncclFloat32, ncclSum, a, s);
	end(rank);
}

static void type(int rank)
{
	SETUP;
	api.ncclAllReduce(p, p, 64, odd ? ncclInt32 : ncclFloat32, ncclSum, a, s);
	end(rank);
}

static void order(int rank)
{
	SETUP;
	for (int i = 0; i < 2; i++)
		if (i == odd)
			api.ncclAllReduce(p, p, 16, ncclFloat32, ncclSum, a, s);
		else
			api.ncclReduceScatter(p, p, 16, ncclFloat32, ncclSum, a, s);
	end(rank);
}

static void root(int rank)
{
	SETUP;
	api.ncclBroadcast(p, p, 64, ncclFloat32, odd, a, s);
	end(rank);
}

static void missing(int rank)
{
	SETUP;
	if (!odd)
		api.ncclAllReduce(p, p, 64, ncclFloat32, ncclSum, a, s);
	end(rank);
}

/* The same, and all poll. */
static void missing_polled(int rank)
{
	SETUP;
	if (!odd)
		api.ncclAllReduce(p, p, 64, ncclFloat32, ncclSum, a, s);
	ncclResult_t error;
	CUresult r;
	while ((r = api.cuStreamQuery(s)) == CUDA_ERROR_NOT_READY && !api.ncclCommGetAsyncError(a, &error))
		usleep(1000);
	CHECK(r == (bad && !odd ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS));
}

/* Two communicators on one stream, in another order. */
static void two_comms(int rank)
{
	SETUP;
	for (int i = 0; i < 2; i++)
		api.ncclAllReduce(p, p, 64, ncclFloat32, ncclSum, i == odd ? a : b, s);
	end(rank);
}

/* The same on two streams: it may go well, until the device has no room for both. */
static void two_streams(int rank)
{
	SETUP;
	char *q = (char *)p + 256;
	for (int i = 0; i < 2; i++)
		if (i == odd)
			api.ncclAllReduce(p, p, 64, ncclFloat32, ncclSum, a, s);
		else
			api.ncclAllReduce(q, q, 64, ncclFloat32, ncclSum, b, t);
	end(rank);
}

static void transfer_size(int rank)
{
	SETUP;
	if (rank == 0)
		api.ncclSend(p, bad ? 63 : 64, ncclFloat32, 1, a, s);
	if (rank == 1)
		api.ncclRecv(p, 64, ncclFloat32, 0, a, s);
	end(rank);
}

/* Two ranks that both receive first. */
static void transfer_cycle(int rank)
{
	SETUP;
	char *q = (char *)p + 256;
	if (rank > 1)
		return;
	if (!bad)
		DO(ncclGroupStart());
	api.ncclRecv(q, 64, ncclFloat32, !rank, a, s);
	api.ncclSend(p, 64, ncclFloat32, !rank, a, s);
	if (!bad)
		DO(ncclGroupEnd());
	end(rank);
}

/* The host has waited for the wrong stream before the next use of the buffer. */
static void collective_wait(int rank)
{
	SETUP;
	api.ncclAllReduce(p, p, 64, ncclFloat32, ncclSum, a, t);
	CU(cuStreamSynchronize(bad ? s : t));
	CU(cuMemsetD32Async((CUdeviceptr)p, 0, 64, s));
	end(rank);
}

static void capture_reduce(ncclComm_t c, void *p, CUstream s, CUgraphExec *e)
{
	CUgraph g;
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	api.ncclAllReduce(p, p, 64, ncclFloat32, ncclSum, c, s);        /* refused where another rank has been caught */
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphInstantiate(e, g, 0));
	CU(cuGraphDestroy(g));
}

/* The communicator's end waits for that of the graph. */
static void graph_outlives(int rank)
{
	SETUP;
	CUgraphExec e;
	capture_reduce(a, p, s, &e);
	CU(cuGraphLaunch(e, s));
	CU(cuStreamSynchronize(s));
	if (!bad)
		CU(cuGraphExecDestroy(e));
	DO(ncclCommDestroy(a));
	if (bad)
		CU(cuGraphExecDestroy(e));
}

/* One rank calls what the others replay; one has captured it again. */
static void one_replays_not(int rank)
{
	SETUP;
	CUgraphExec e;
	capture_reduce(a, p, s, &e);
	if (odd)
		api.ncclAllReduce(p, p, 64, ncclFloat32, ncclSum, a, s);
	else
		CU(cuGraphLaunch(e, s));
	end(rank);
}

static void one_captures_again(int rank)
{
	SETUP;
	CUgraphExec e;
	for (int i = 0; i <= odd; i++)
		capture_reduce(a, p, s, &e);
	CU(cuGraphLaunch(e, s));
	end(rank);
}

/* Lazy loading may wait for the device, on which the collective waits for a rank that loads too. */
static void late_kernel(int rank)
{
	SETUP;
	CUmodule m = compile(source);
	CUfunction fn;
	if (!odd)
		CU(cuModuleGetFunction(&fn, m, "copy"));
	api.ncclAllReduce(p, p, 64, ncclFloat32, ncclSum, a, s);
	if (odd)
		CU(cuModuleGetFunction(&fn, m, "copy"));
	end(rank);
}

static const struct scenario {
	const char *name, *kind;
	bool unchecked;             /* found without checked mode too */
	void (*one)(void);
	void (*rank)(int);
} scenarios[] = {
	{"read-too-early", "missing wait", false, read_too_early, NULL},
	{"write-too-early", "missing wait", false, write_too_early, NULL},
	{"old-event", "missing wait", false, old_event, NULL},
	{"in-graph", "missing wait", false, in_graph, NULL},
	{"after-graph", "missing wait", false, after_graph, NULL},
	{"product", "missing wait", false, product, NULL},
	{"epilogue-bias", "missing wait", false, epilogue_bias, NULL},
	{"epilogue-aux", "missing wait", false, epilogue_aux, NULL},
	{"epilogue-slope", "missing wait", false, epilogue_slope, NULL},
	{"epilogue-grad", "missing wait", false, epilogue_grad, NULL},
	{"epilogue-end", "out of bounds", true, epilogue_end, NULL},
	{"epilogue-aligned", "misaligned", true, epilogue_aligned, NULL},
	{"epilogue-overlap", "overlap", true, epilogue_overlap, NULL},
	{"collective-wait", "missing wait", false, NULL, collective_wait},
	{"through-host", "missing wait", false, through_host, NULL},
	{"host-writes", "race with the host", false, host_writes, NULL},
	{"pinned-end", "out of bounds", true, pinned_end, NULL},
	{"neighbour", "out of bounds", false, neighbour, NULL},
	{"read-only", "out of bounds", false, read_only, NULL},
	{"freed", "out of bounds", false, freed, NULL},
	{"fill", "out of bounds", true, fill_too_far, NULL},
	{"other-gpu", "bad pointer", true, other_gpu, NULL},
	{"count", "mismatched collective", true, NULL, count},
	{"type", "mismatched collective", true, NULL, type},
	{"order", "mismatched collective", true, NULL, order},
	{"root", "mismatched collective", true, NULL, root},
	{"replay", "mismatched collective", true, NULL, one_replays_not},
	{"capture-again", "mismatched collective", true, NULL, one_captures_again},
	{"late-kernel", "late kernel", true, NULL, late_kernel},
	{"graph-outlives", "deadlock", true, NULL, graph_outlives},
	{"transfer-size", "mismatched collective", true, NULL, transfer_size},
	{"missing", "deadlock", true, NULL, missing},
	{"missing-polled", "deadlock", true, NULL, missing_polled},
	{"two-comms", "deadlock", true, NULL, two_comms},
	{"transfer-cycle", "deadlock", true, NULL, transfer_cycle},
	{"two-streams", "order of communicators", true, NULL, two_streams},
};

int main(int argc, char **argv)
{
	if (argc == 1) {
		for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
			printf("%s:%s:%d\n", scenarios[i].name, scenarios[i].kind, scenarios[i].unchecked);
		return 0;
	}
	const struct scenario *f = scenarios;
	while (strcmp(f->name, argv[1]))
		f++;
	bad = !strcmp(argv[2], "bad");
	open_api();
	module = compile(source);
	DO(ncclGetUniqueId(&id[0]));
	DO(ncclGetUniqueId(&id[1]));
	if (f->one)
		f->one();
	else
		ranks(N, f->rank);
	return 0;
}
