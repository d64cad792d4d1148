/* tests/cuda/gpu.h - runs generated CUDA text on the software GPU (tests/softgpu), every access checked, for unit tests. What
 * it finds makes the test program end with status 66. */
#ifndef PTC_TESTS_GPU_H
#define PTC_TESTS_GPU_H
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cuda.h"
#include "runtime/cuda/api.h"

#define GPU_FN(name, ret, args) ret(*name) args;
static struct {
	CU_FUNCTIONS(GPU_FN)
	NVRTC_FUNCTIONS(GPU_FN)
} gpu_api;
#undef GPU_FN

struct gpu {
	CUmodule module;  /* NULL: an error has been printed */
};

#define GPU_STR2(x) #x
#define GPU_STR(x) GPU_STR2(x)
static inline bool gpu_start(void)
{
	static bool done;
	CUdevice dev;
	CUcontext ctx;

	if (done)
		return true;
	if (system("${MAKE:-make} -s softgpu >/dev/null") != 0)
		return false;
	setenv("SOFTGPU_CHECK", "1", 0);
	setenv("SOFTGPU_CACHE", "build/softgpu/cache", 0);
	void *lib = dlopen("build/softgpu/libsoftgpu.so", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return false;
#define GPU_FN(name, ret, args) *(void **)&gpu_api.name = dlsym(lib, GPU_STR(name));
	CU_FUNCTIONS(GPU_FN)
	NVRTC_FUNCTIONS(GPU_FN)
#undef GPU_FN
	done = !gpu_api.cuInit(0) && !gpu_api.cuDeviceGet(&dev, 0) && !gpu_api.cuDevicePrimaryCtxRetain(&ctx, dev) &&
	       !gpu_api.cuCtxSetCurrent(ctx);
	return done;
}

static inline struct gpu gpu_open(const char *text)
{
	const char *options[] = { "--gpu-architecture=sm_90" };
	struct gpu g = { NULL };
	nvrtcProgram p;
	size_t n = 0;

	if (!text || !gpu_start() || gpu_api.nvrtcCreateProgram(&p, text, "kernels.cu", 0, NULL, NULL))
		return g;
	if (gpu_api.nvrtcCompileProgram(p, 1, options)) {
		gpu_api.nvrtcGetProgramLogSize(p, &n);
		char *log = calloc(1, n + 1);

		gpu_api.nvrtcGetProgramLog(p, log);
		fprintf(stderr, "%.3000s\n", log);
		free(log);
		return g;
	}
	gpu_api.nvrtcGetCUBINSize(p, &n);
	char *cubin = malloc(n);

	gpu_api.nvrtcGetCUBIN(p, cubin);
	if (gpu_api.cuModuleLoadData(&g.module, cubin))
		g.module = NULL;
	free(cubin);
	gpu_api.nvrtcDestroyProgram(&p);
	return g;
}

static inline void gpu_close(struct gpu *g)
{
	gpu_api.cuModuleUnload(g->module);
}

/* A copy on the device; gpu_take brings it back and frees it. */
static inline void *gpu_give(const void *x, int64_t bytes)
{
	CUdeviceptr p = 0;

	if (gpu_api.cuMemAlloc(&p, (size_t)(bytes ? bytes : 1)) || (bytes && x && gpu_api.cuMemcpyHtoD(p, x, (size_t)bytes)))
		abort();
	return (void *)(uintptr_t)p;
}

static inline void gpu_take(void *x, void *p, int64_t bytes)
{
	if ((bytes && x && gpu_api.cuMemcpyDtoH(x, (CUdeviceptr)(uintptr_t)p, (size_t)bytes)) ||
	    gpu_api.cuMemFree((CUdeviceptr)(uintptr_t)p))
		abort();
}

static inline bool gpu_launch(const struct gpu *g, const struct cuda_launch *l, void **args)
{
	CUfunction fn;

	if (gpu_api.cuModuleGetFunction(&fn, g->module, l->fn) ||
	    (l->shared > 48 << 10 && gpu_api.cuFuncSetAttribute(fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)l->shared)))
		return false;
	return !l->grid || (!gpu_api.cuLaunchKernel(fn, l->grid, 1, 1, l->block, 1, 1, l->shared, NULL, args, NULL) &&
			    !gpu_api.cuCtxSynchronize());
}

/* All launches of a region of m, on copies of operands and results. */
static inline bool gpu_region(const struct gpu *g, const struct module *m, const struct cuda_sig *s, void *const *in, void *const *out,
			      const int64_t *start, const int64_t *valid, const struct ptc_step *step, struct ptc_iter iter)
{
	const struct op *op = s->op;
	void *args[320], *at[160], *scratch = gpu_give(NULL, s->scratch), *steps = gpu_give(step, sizeof *step);
	int n = 0;
	bool ok = true;

	for (uint32_t i = 0; i < op->nin + op->nout; i++) {
		const struct value *v = i < op->nin ? op->in[i] : op->out[i - op->nin];

		at[i] = gpu_give(i < op->nin ? in[i] : out[i - op->nin], local_bytes(m, v));
		args[n++] = &at[i];
	}
	args[n++] = &scratch;
	for (int i = 0; i < s->next; i++) {
		args[n++] = (void *)(uintptr_t)&start[i];
		args[n++] = (void *)(uintptr_t)&valid[i];
	}
	args[n++] = &steps;
	args[n++] = &iter;
	for (int i = 0; i < s->nlaunch; i++)
		ok &= gpu_launch(g, &s->launch[i], args);
	for (uint32_t i = 0; i < op->nin + op->nout; i++)
		gpu_take(i < op->nin ? NULL : out[i - op->nin], at[i], i < op->nin ? 0 : local_bytes(m, op->out[i - op->nin]));
	gpu_take(NULL, scratch, 0);
	gpu_take(NULL, steps, 0);
	return ok;
}
#endif
