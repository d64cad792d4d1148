/* capture.c - what captures refuse, with the driver's own error, and what graphs do when launched again. */
#include "tests/softgpu/programs/test.h"
#include <string.h>

static const char source[] =
	"extern \"C\" __global__ void add(int *y, int by) { y[threadIdx.x] += by; }\n"
	"extern \"C\" __global__ void twice(int *y) { y[threadIdx.x] *= 2; }\n";
static CUmodule module;
static CUdeviceptr y;
#define LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

#define GIVES(code, call) CHECK(api.call == (code))

static void add(CUstream s, int by)
{
	LAUNCH(function(module, "add"), 1, 32, 0, s, &y, &by);
}

static void twice(CUstream s)
{
	LAUNCH(function(module, "twice"), 1, 32, 0, s, &y);
}

static int value(void)
{
	int x;
	CU(cuMemcpyDtoH(&x, y, 4));
	return x;
}

/* The error of the call breaks the capture: its end says so. */
static void ends_broken(CUstream s)
{
	CUgraph g;
	CUstreamCaptureStatus status;
	CU(cuStreamIsCapturing(s, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
	CHECK(!g);
	CU(cuStreamIsCapturing(s, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
}

static void refusals(CUstream s, CUstream t)
{
	CUgraph g;
	CUdeviceptr p;
	CUevent e = event(), outside = event();
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, LOCAL));
	GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &g));
	CU(cuStreamBeginCapture(s, LOCAL));
	GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(s, LOCAL));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
	ends_broken(s);
	CU(cuStreamBeginCapture(s, LOCAL));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&p, 4));
	ends_broken(s);
	CU(cuStreamBeginCapture(s, RELAXED));
	p = alloc(4);
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphDestroy(g));
	CU(cuEventRecord(outside, t));
	CU(cuStreamBeginCapture(s, LOCAL));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, outside, 0));
	ends_broken(s);
	CU(cuStreamBeginCapture(s, LOCAL));
	CU(cuEventRecord(e, s));
	GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(e));
	GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
	CU(cuStreamWaitEvent(t, e, 0));
	add(t, 1);
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &g));
	CHECK(!g);
	CU(cuStreamBeginCapture(s, LOCAL));
	CU(cuEventRecord(e, s));
	CU(cuStreamWaitEvent(t, e, 0));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(t, &g));
	ends_broken(s);
}

/* The thread may relax for a call that is known to be harmless. */
static void exchange(CUstream s)
{
	CUstreamCaptureMode mode = RELAXED;
	CUgraph g;
	CU(cuStreamBeginCapture(s, LOCAL));
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CU(cuMemFree(alloc(4)));
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == RELAXED);
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphDestroy(g));
}

/* y = (y + 1) * 2 + 3, the middle on the other stream. */
static CUgraphExec graph(CUstream s, CUstream t)
{
	CUgraph g;
	CUgraphExec x;
	CUevent e = event();
	CU(cuStreamBeginCapture(s, LOCAL));
	add(s, 1);
	CU(cuEventRecord(e, s));
	CU(cuStreamWaitEvent(t, e, 0));
	twice(t);
	CU(cuEventRecord(e, t));
	CU(cuStreamWaitEvent(s, e, 0));
	add(s, 3);
	CU(cuStreamEndCapture(s, &g));
	size_t n = 0;
	CU(cuGraphGetNodes(g, NULL, &n));
	CHECK(n == 3);
	CU(cuGraphInstantiate(&x, g, 0));
	CU(cuGraphDestroy(g));
	return x;
}

static void launches(CUstream s, CUstream t)
{
	CUgraphExec x = graph(s, t);
	CU(cuMemsetD32Async(y, 1, 32, s));
	CU(cuStreamSynchronize(s));
	CHECK(value() == 1);            /* a capture runs nothing */
	CU(cuGraphLaunch(x, s));
	add(s, 1);                      /* after all of it */
	CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	CHECK(value() == ((1 + 1) * 2 + 3 + 1 + 1) * 2 + 3);
	/* one graph launched on two streams does not overlap itself */
	CUevent e = event();
	CU(cuMemsetD32Async(y, 0, 32, s));
	CU(cuEventRecord(e, s));
	CU(cuStreamWaitEvent(t, e, 0));
	CU(cuGraphLaunch(x, s));
	CU(cuGraphLaunch(x, t));
	CU(cuCtxSynchronize());
	CHECK(value() == (5 + 1) * 2 + 3);
	CU(cuGraphExecDestroy(x));
}

/* Destroyed while pending: what was launched is done. */
static void destroyed(CUstream s, CUstream t)
{
	CUgraphExec x = graph(s, t);
	CU(cuMemsetD32Async(y, 0, 32, s));
	CU(cuGraphLaunch(x, s));
	CU(cuGraphExecDestroy(x));
	CU(cuStreamSynchronize(s));
	CHECK(value() == 5);
}

int main(void)
{
	open_api();
	module = compile(source);
	y = alloc(128);
	CUstream s = stream(), t = stream();
	refusals(s, t);
	exchange(s);
	launches(s, t);
	destroyed(s, t);
	return 0;
}
