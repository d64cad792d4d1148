/* kernel_faults.c NAME good|bad - one kernel, right or with one fault that checked mode must find. Without arguments: the names,
 * and what is reported. */
#include "tests/softgpu/programs/test.h"
#include <stdlib.h>
#include <string.h>

/* BAD is 0 or 1. */
#define K "extern \"C\" __global__ void k("
static const struct fault {
	const char *name, *kind, *source;
	unsigned grid, block, shared;
} faults[] = {
	{"barrier", "race", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x; s[i] = x[i];\n"
	 "if (!BAD) __syncthreads();\n y[i] = s[127 - i]; }", 1, 128, 512},
	{"loop-barrier", "race", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x; float sum = 0;\n"
	 "for (int k = 0; k < 4; k++) { s[i] = x[i] + k; __syncthreads(); sum += s[127 - i]; if (!BAD) __syncthreads(); }\n y[i] = sum; }", 1, 128, 512},
	{"warp-barrier", "race", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x; s[i] = x[i];\n"
	 "if (!BAD) __syncwarp();\n y[i] = s[i ^ 1]; }", 1, 32, 128},
	{"bounds", "out of bounds", K "float *y, const float *x) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 128 + BAD) y[i] = x[0]; }", 2, 128, 0},
	{"before", "out of bounds", K "float *y, const float *x) { int i = threadIdx.x; y[i - BAD] = x[i]; }", 1, 128, 0},
	{"shared-bounds", "out of bounds", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x; s[i + BAD] = x[i]; y[i] = s[i + BAD]; }",
	 1, 128, 512},
	{"blocks", "race", K "float *y, const float *x) { if (BAD) { if (!threadIdx.x) y[0] = y[0] + x[blockIdx.x]; }\n"
	 "else if (!threadIdx.x) atomicAdd(y, x[blockIdx.x]); }", 4, 32, 0},
	{"threads", "race", K "float *y, const float *x) { int i = threadIdx.x; y[BAD ? i / 2 : i] = x[i]; }", 1, 128, 0},
	{"half-threads", "race", K "uint16_t *y, const float *x) { int i = threadIdx.x; y[BAD ? i / 2 : i] = (uint16_t)x[i]; }", 1, 128, 0},
	{"uninit-shared", "uninitialised", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x; if (i < 128 - BAD) s[i] = x[i];\n"
	 "__syncthreads(); y[i] = s[i]; }", 1, 128, 512},
	{"uninit-global", "uninitialised", K "float *y, const float *x) { int i = threadIdx.x; if (BAD) y[i] = x[i] + y[i]; else y[i] = x[i]; }", 1, 128, 0},
	{"misaligned", "misaligned", K "float *y, const float *x) { if (threadIdx.x < 8) { float4 v = *(const float4 *)(x + 4 * threadIdx.x + BAD);\n"
	 "y[threadIdx.x] = v.x + v.w; } }", 1, 32, 0},
	{"async-wait", "asynchronous copy", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x; ptc_cp_async16(s + 4 * i, x + 4 * i);\n"
	 "ptc_cp_commit(); if (!BAD) ptc_cp_wait<0>(); __syncthreads(); y[i] = s[i]; ptc_cp_wait<0>(); }", 1, 32, 512},
	{"async-group", "asynchronous copy", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x;\n"
	 "for (int g = 0; g < 2; g++) { ptc_cp_async16(s + 128 * g + 4 * i, x + 4 * i); ptc_cp_commit(); }\n"
	 "ptc_cp_wait<BAD>(); __syncthreads(); y[i] = s[128 + i]; ptc_cp_wait<0>(); }", 1, 32, 1024},
	{"async-late-wait", "asynchronous copy", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x;\n"
	 "for (int k = 0; k < 2; k++) { ptc_cp_async16(s + 4 * i, x + 4 * i); ptc_cp_commit(); __syncthreads(); if (!BAD) ptc_cp_wait<0>();\n"
	 "__syncthreads(); y[i] = s[127 - i]; ptc_cp_wait<0>(); __syncthreads(); } }", 1, 32, 512},
	{"async-returns", "asynchronous copy", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x;\n"
	 "ptc_cp_async16(s + 4 * i, x + 4 * i); if (!BAD) ptc_cp_commit(); ptc_cp_wait<0>(); y[i] = x[i]; }", 1, 32, 512},
	{"async-barrier", "race", K "float *y, const float *x) { PTC_DYN_SHARED(float, s); int i = threadIdx.x; float sum = 0;\n"
	 "for (int k = 0; k < 3; k++) { if (i < 32) { ptc_cp_async16(s + 4 * i, x + 4 * i); ptc_cp_commit(); ptc_cp_wait<0>(); } __syncthreads();\n"
	 "sum += s[127 - i]; if (!BAD) __syncthreads(); } y[i] = sum; }", 1, 128, 512},
	{"divergent", "barrier fault", K "float *y, const float *x) { if (BAD && threadIdx.x % 2) __syncwarp(); else __syncthreads(); y[threadIdx.x] = x[0]; }",
	 1, 128, 0},
	{"half-warp", "barrier fault", K "float *y, const float *x) { int i = threadIdx.x; if (BAD && i >= 64) __syncwarp(i % 2 ? 0xffffffff : 0x55555555);\n"
	 "y[i] = x[i]; }", 1, 128, 0},
	{"returned", "barrier fault", K "float *y, const float *x) { if (BAD && threadIdx.x >= 100) return; __syncthreads(); y[threadIdx.x] = x[0]; }", 1, 128, 0},
	{"shuffle", "barrier fault", K "float *y, const float *x) { int i = threadIdx.x; float v = x[i];\n"
	 "if (i < 16) v = __shfl_sync(0xffff, v, BAD ? 20 : 3); y[i] = v; }", 1, 32, 0},
	{"shuffle-mask", "barrier fault", K "float *y, const float *x) { int i = threadIdx.x; float v = x[i];\n"
	 "if (i < 16) v = __shfl_xor_sync(BAD ? 0xffffffff : 0xffff, v, 3); y[i] = v; }", 1, 32, 0},
	{"stored-pointer", "bad pointer", K "unsigned long long *y, const float *x) { if (!threadIdx.x) y[0] = BAD ? *(const unsigned long long *)x : 0;\n"
	 "if (BAD && !threadIdx.x) y[1] = *(const unsigned *)y[0]; }", 1, 32, 0},
};

enum { NFAULTS = sizeof faults / sizeof *faults };

static float value(int i)
{
	return (float)(i % 7);
}

/* All kernels in one module, fault i as ki_0 and ki_1. */
static CUmodule compile_all(void)
{
	static char source[1 << 16];
	size_t n = 0;
	for (size_t i = 0; i < 2 * NFAULTS; i++)
		n += (size_t)snprintf(source + n, sizeof source - n, "#define BAD %d\n#define k k%d_%d\n%s\n#undef k\n#undef BAD\n", (int)(i % 2),
				      (int)(i / 2), (int)(i % 2), faults[i / 2].source);
	CHECK(n < sizeof source);
	return compile(source);
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		for (size_t i = 0; i < NFAULTS; i++)
			printf("%s:%s\n", faults[i].name, faults[i].kind);
		return 0;
	}
	const struct fault *f = faults;
	while (strcmp(f->name, argv[1]))
		f++;
	bool bad = !strcmp(argv[2], "bad");
	open_api();
	CUmodule m = compile_all();
	char name[16];
	snprintf(name, sizeof name, "k%d_%d", (int)(f - faults), bad);
	CUdeviceptr x = floats(128, value), y = alloc(512), guard = alloc(512);
	if (!strcmp(f->name, "blocks"))
		CU(cuMemsetD32Async(y, 0, 1, NULL));
	if (!strcmp(f->name, "stored-pointer"))
		CU(cuMemcpyHtoD(x, &x, 8));
	LAUNCH(function(m, name), f->grid, f->block, f->shared, NULL, &y, &x);
	CUresult r = api.cuStreamSynchronize(NULL);
	if (r)
		fprintf(stderr, "the device failed: %d\n", r);
	(void)guard;
	return r && !bad;
}
