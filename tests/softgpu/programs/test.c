/* test.c - see test.h */
#include "tests/softgpu/programs/test.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct api api;

void fail(const char *file, int line, const char *what, int code)
{
	const char *name = NULL;
	if (api.cuGetErrorName && code > 0)
		api.cuGetErrorName((CUresult)code, &name);
	fprintf(stderr, "%s:%d: %s: %d %s\n", file, line, what, code, name ? name : "");
	fflush(NULL);
	_Exit(1);
}

static void *library(const char *name)
{
	char path[4096];
	const char *dir = getenv("PTC_CUDA_LIBS");
	snprintf(path, sizeof path, "%s/%s", dir ? dir : "build/softgpu", name);
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return h;
}

static void *symbol(void *h, const char *name)
{
	void *p = dlsym(h, name);
	if (!p) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return p;
}

#define STRING(x) #x
#define VERSIONED(x) STRING(x)
#define LOAD(name, ret, args) *(void **)&api.name = symbol(h, VERSIONED(name));

void open_api(void)
{
	load_api();
	CU(cuInit(0));
	set_device(0);
}

void load_api(void)
{
	void *h = library("libcuda.so.1");
	CU_FUNCTIONS(LOAD)
	*(void **)&api.softgpuDeclare = symbol(h, "softgpuDeclare");
	*(void **)&api.softgpuReports = symbol(h, "softgpuReports");
	h = library("libnvrtc.so.13");
	NVRTC_FUNCTIONS(LOAD)
	h = library("libcublasLt.so.13");
	CUBLASLT_FUNCTIONS(LOAD)
	h = library("libnccl.so.2");
	NCCL_FUNCTIONS(LOAD)
}

void set_device(int dev)
{
	CUcontext ctx;
	CU(cuDevicePrimaryCtxRetain(&ctx, dev));
	CU(cuCtxSetCurrent(ctx));
}

CUmodule compile(const char *src)
{
	nvrtcProgram p;
	const char *options[] = {"--gpu-architecture=sm_90"};
	DO(nvrtcCreateProgram(&p, src, "test.cu", 0, NULL, NULL));
	if (api.nvrtcCompileProgram(p, 1, options)) {
		size_t n;
		DO(nvrtcGetProgramLogSize(p, &n));
		char *log = malloc(n);
		CHECK(log);
		DO(nvrtcGetProgramLog(p, log));
		fail("test.cu", 0, log, -1);
	}
	size_t n;
	DO(nvrtcGetCUBINSize(p, &n));
	char *image = malloc(n);
	CHECK(image);
	DO(nvrtcGetCUBIN(p, image));
	DO(nvrtcDestroyProgram(&p));
	CUmodule m;
	CU(cuModuleLoadData(&m, image));
	free(image);
	return m;
}

CUfunction function(CUmodule m, const char *name)
{
	CUfunction fn;
	CU(cuModuleGetFunction(&fn, m, name));
	return fn;
}

CUdeviceptr alloc(size_t bytes)
{
	CUdeviceptr p;
	CU(cuMemAlloc(&p, bytes));
	return p;
}

CUdeviceptr floats(int n, float (*f)(int))
{
	CUdeviceptr p = alloc((size_t)n * 4);
	float *x = malloc((size_t)n * 4);
	CHECK(x);
	for (int i = 0; i < n; i++)
		x[i] = f(i);
	CU(cuMemcpyHtoD(p, x, (size_t)n * 4));
	free(x);
	return p;
}

void launch(CUfunction fn, unsigned grid, unsigned block, unsigned shared, CUstream s, void **args)
{
	CU(cuLaunchKernel(fn, grid, 1, 1, block, 1, 1, shared, s, args, NULL));
}

CUstream stream(void)
{
	CUstream s;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

CUevent event(void)
{
	CUevent e;
	CU(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	return e;
}

struct rank {
	int rank;
	void (*run)(int);
};

static void *rank_main(void *p)
{
	const struct rank *r = p;
	set_device(r->rank);
	r->run(r->rank);
	return NULL;
}

void ranks(int n, void (*run)(int rank))
{
	pthread_t t[64];
	struct rank r[64];
	CHECK(n <= 64);
	for (int i = 0; i < n; i++) {
		r[i] = (struct rank){i, run};
		CHECK(!pthread_create(&t[i], NULL, rank_main, &r[i]));
	}
	for (int i = 0; i < n; i++)
		CHECK(!pthread_join(t[i], NULL));
}

int number_arg(const char *s, int otherwise)
{
	return s && *s ? atoi(s) : otherwise;
}
