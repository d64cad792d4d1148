/* driver.c - what the driver's calls give when all is well and when it is not: devices, memory, launches, streams, events. */
#include "tests/softgpu/programs/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char source[] =
	"extern \"C\" __global__ void fill(float *y, float v) { y[threadIdx.x] = v; }\n"
	"extern \"C\" __global__ void shared(int *y) { PTC_DYN_SHARED(int, s); s[16000] = 5; y[0] = s[16000]; }\n"
	"extern \"C\" __global__ void trap(int *y) { if (y) __trap(); }\n"
	"struct many { char c; long long l; float f; };\n"
	"extern \"C\" __global__ void args(double *y, char a, short b, many m, double d, bool t) { *y = a + b + m.c + m.l + m.f + d + t; }\n";
static CUmodule module;

#define GIVES(code, call) CHECK(api.call == (code))

static void before_init(void)
{
	CUdeviceptr p;
	int n;
	CUcontext ctx;
	GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&p, 16));
	GIVES(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuInit(1));
	CU(cuInit(0));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&p, 16));
	GIVES(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&ctx, 4));
	CU(cuDeviceGetCount(&n));
	CHECK(n == 4);
	set_device(0);
}

static void attributes(void)
{
	int major, minor, warp, version;
	char name[64];
	size_t bytes;
	CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1));
	CU(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 1));
	CU(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1));
	CHECK(major == 9 && minor == 0 && warp == 32);
	CU(cuDeviceGetName(name, sizeof name, 0));
	CHECK(!strcmp(name, "software GPU"));
	CU(cuDriverGetVersion(&version));
	CHECK(version == 13000);
	CU(cuDeviceTotalMem(&bytes, 0));
	CHECK(bytes == (size_t)4 << 30);
	const char *what;
	CU(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &what));
	CHECK(!strcmp(what, "CUDA_ERROR_ILLEGAL_ADDRESS"));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &what));
}

static void memory(void)
{
	CUdeviceptr p, q;
	size_t before, after, total;
	float x[4];
	CU(cuMemGetInfo(&before, &total));
	p = alloc(1000);
	q = alloc(1000);
	CHECK(p % 256 == 0 && q % 256 == 0 && (q >= p + 1000 || p >= q + 1000));
	CU(cuMemcpyDtoH(x, p, sizeof x));
	CHECK(isnan(x[0]) && isnan(x[3]));      /* fresh memory is no number */
	CU(cuMemFree(p));
	CU(cuMemFree(q));
	CU(cuMemGetInfo(&after, &total));
	CHECK(before == after);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, total + 1));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(q));
	CU(cuMemFree(0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(x, q, 4));
	CHECK(api.softgpuReports() == 1);       /* that one */
}

/* The host cannot look through a device pointer. */
static void host_access(void)
{
	CUdeviceptr p = alloc(16);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child)
		_exit(*(volatile char *)p);
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void launches(void)
{
	CUdeviceptr y = alloc(4096);
	CUfunction fn = function(module, "fill"), shared = function(module, "shared"), none;
	float v = 3, x[32];
	void *args[] = {&y, &v};
	LAUNCH(fn, 1, 32, 0, NULL, &y, &v);
	CU(cuMemcpyDtoH(x, y, sizeof x));
	CHECK(x[0] == 3 && x[31] == 3);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(fn, 1, 1, 1, 1025, 1, 1, 0, NULL, args, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(fn, 0, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(fn, 1, 65536, 1, 32, 1, 1, 0, NULL, args, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(shared, 1, 1, 1, 32, 1, 1, 65536, NULL, args, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300000));
	CU(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
	LAUNCH(shared, 1, 1, 65536, NULL, &y);
	int five;
	CU(cuMemcpyDtoH(&five, y, 4));
	CHECK(five == 5);
	GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&none, module, "nothing"));
	set_device(1);
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(fn, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
	set_device(0);
	char image[64] = "\177ELF";
	CUmodule m;
	GIVES(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, image));
}

static void arguments(void)
{
	CUdeviceptr y = alloc(8);
	char a = 1;
	short b = 20;
	struct {
		char c;
		long long l;
		float f;
	} m = {3, 400, 0.5f};
	double d = 6000, got;
	bool t = true;
	LAUNCH(function(module, "args"), 1, 1, 0, NULL, &y, &a, &b, &m, &d, &t);
	a = 100;        /* they were copied */
	CU(cuMemcpyDtoH(&got, y, 8));
	CHECK(got == 6425.5);
}

/* Pageable memory is read when the copy is called, pinned memory when it runs. */
static void host_memory(void)
{
	CUdeviceptr p = alloc(4), q = alloc(4);
	CUstream s = stream();
	int pageable = 1, *pinned, got[2];
	void *host;
	CU(cuMemAllocHost(&host, 8));
	pinned = host;
	pinned[0] = 1;
	CU(cuMemcpyHtoDAsync(p, &pageable, 4, s));
	CU(cuMemcpyHtoDAsync(q, pinned, 4, s));
	pageable = pinned[0] = 2;
	CU(cuMemcpyDtoHAsync(pinned + 1, p, 4, s));
	CHECK(pinned[1] == -1);         /* not yet there */
	CU(cuStreamSynchronize(s));
	CHECK(pinned[1] == 1);
	CU(cuMemcpyDtoH(got, q, 4));
	CHECK(got[0] == 2);
	CU(cuMemcpyDtoHAsync(got + 1, q, 4, s));
	CHECK(got[1] == 2);             /* a copy to pageable memory is over when it returns */
	CHECK(api.softgpuReports() == (getenv("SOFTGPU_CHECK") && atoi(getenv("SOFTGPU_CHECK")) ? 1 : 0));   /* pinned[0] was not to be touched */
	CU(cuMemFreeHost(host));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
	GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(&pageable));
	CU(cuMemHostRegister(&pageable, 4, 0));
	CU(cuMemHostUnregister(&pageable));
}

static int order[3], norder;
static CUresult inside;

static void note(void *p)
{
	order[norder++] = *(int *)p;
	CUcontext ctx;
	inside = api.cuCtxGetCurrent(&ctx);
}

static void streams(void)
{
	CUstream s = stream(), t = stream();
	CUevent e = event(), timed[2];
	int one = 1, two = 2, three = 3;
	CU(cuLaunchHostFunc(s, note, &one));
	CU(cuEventRecord(e, s));
	CU(cuStreamWaitEvent(t, e, 0));
	CU(cuLaunchHostFunc(t, note, &two));
	CU(cuEventRecord(e, t));
	CU(cuStreamWaitEvent(s, e, 0));
	CU(cuLaunchHostFunc(s, note, &three));
	CHECK(norder == 0);
	CU(cuStreamSynchronize(s));
	CHECK(norder == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3 && inside == CUDA_ERROR_NOT_PERMITTED);
	CU(cuEventQuery(e));
	for (int i = 0; i < 2; i++) {
		CU(cuEventCreate(&timed[i], CU_EVENT_DEFAULT));
		CU(cuEventRecord(timed[i], s));
	}
	float ms;
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, timed[0], e));
	while (api.cuEventQuery(timed[1]))
		;
	CU(cuEventElapsedTime(&ms, timed[0], timed[1]));
	CHECK(ms >= 0);
	CU(cuStreamDestroy(t));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(t));
}

/* The null stream waits for blocking streams and they for it. */
static void null_stream(void)
{
	CUdeviceptr p = alloc(16);
	CUstream s;
	unsigned got[4];
	CU(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	CU(cuMemsetD32Async(p, 1, 4, s));
	CU(cuMemsetD32Async(p, 2, 3, NULL));
	CU(cuMemsetD32Async(p, 3, 2, s));
	CU(cuMemsetD8Async(p, 4, 4, NULL));
	CU(cuMemcpyDtoH(got, p, sizeof got));
	CHECK(got[0] == 0x04040404 && got[1] == 3 && got[2] == 2 && got[3] == 1);
}

/* A fault ends the context of its device, of no other. */
static void sticky(void)
{
	CUdeviceptr p = alloc(4), q;
	LAUNCH(function(module, "trap"), 1, 1, 0, NULL, &p);
	GIVES(CUDA_ERROR_ASSERT, cuStreamSynchronize(NULL));
	GIVES(CUDA_ERROR_ASSERT, cuMemAlloc(&q, 4));
	GIVES(CUDA_ERROR_ASSERT, cuMemcpyDtoH(&q, p, 4));
	set_device(1);
	q = alloc(4);
	CU(cuMemsetD32Async(q, 7, 1, NULL));
	CU(cuStreamSynchronize(NULL));
	CHECK(api.softgpuReports() == 1);
}

int main(void)
{
	load_api();
	before_init();
	attributes();
	module = compile(source);
	memory();
	host_access();
	launches();
	arguments();
	host_memory();
	streams();
	null_stream();
	sticky();
	return 0;
}
