/* edges.c - NVRTC's options and errors; communicators that cannot be, are not ready, are given up, or one thread's alone. */
#include "tests/softgpu/programs/test.h"
#include <stdlib.h>
#include <string.h>

#define GIVES(code, call) CHECK(api.call == (code))

/* ---- NVRTC ---- */

static nvrtcResult try_compile(const char *src, int n, const char *const *options, char *log, size_t size)
{
	nvrtcProgram p;
	DO(nvrtcCreateProgram(&p, src, "file.cu", 0, NULL, NULL));
	nvrtcResult r = api.nvrtcCompileProgram(p, n, options);
	size_t bytes;
	DO(nvrtcGetProgramLogSize(p, &bytes));
	CHECK(bytes <= size);
	DO(nvrtcGetProgramLog(p, log));
	CHECK((api.nvrtcGetCUBINSize(p, &bytes) == NVRTC_SUCCESS) == (r == NVRTC_SUCCESS));
	DO(nvrtcDestroyProgram(&p));
	return r;
}

static void compiler(void)
{
	static char log[1 << 16];
	const char *good[] = {"--gpu-architecture=sm_90a", "--std=c++17", "--fmad=false", "-DWANT=4", "--ptxas-options=-v", "-default-device"};
	const char *unknown[] = {"--no-such-option"}, *arch[] = {"--gpu-architecture=sm_91"};
	int n, major, minor, list[64];
	CHECK(!try_compile("static_assert(WANT == 4 && __CUDA_ARCH__ == 900, \"\"); extern \"C\" __global__ void f() {}", 6, good, log, sizeof log));
	CHECK(try_compile("extern \"C\" __global__ void f() {\n\tundeclared = 1;\n}", 1, good, log, sizeof log) == NVRTC_ERROR_COMPILATION);
	CHECK(strstr(log, "file.cu:2") && strstr(log, "undeclared"));
	CHECK(try_compile("extern \"C\" __global__ void f() { __shared__ float x[4]; x[0] = 1; }", 1, good, log, sizeof log) ==
	      NVRTC_ERROR_COMPILATION);
	CHECK(try_compile("", 1, unknown, log, sizeof log) == NVRTC_ERROR_INVALID_OPTION && strstr(log, "--no-such-option"));
	CHECK(try_compile("", 1, arch, log, sizeof log) == NVRTC_ERROR_INVALID_OPTION);
	DO(nvrtcVersion(&major, &minor));
	CHECK(major == 13);
	DO(nvrtcGetNumSupportedArchs(&n));
	CHECK(n > 0 && n < 64);
	DO(nvrtcGetSupportedArchs(list));
	CHECK(list[0] == 75);
}

/* A module for another device is refused. */
static void other_arch(void)
{
	const char *options[] = {"--gpu-architecture=sm_80"};
	nvrtcProgram p;
	size_t n;
	CUmodule m;
	DO(nvrtcCreateProgram(&p, "extern \"C\" __global__ void f() {}", NULL, 0, NULL, NULL));
	DO(nvrtcCompileProgram(p, 1, options));
	DO(nvrtcGetCUBINSize(p, &n));
	char *image = malloc(n);
	CHECK(image);
	DO(nvrtcGetCUBIN(p, image));
	GIVES(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&m, image));
	free(image);
	DO(nvrtcDestroyProgram(&p));
}

/* ---- communicators ---- */

static void refusals(void)
{
	ncclUniqueId id, foreign = {{0}};
	ncclComm_t c;
	int pid;
	DO(ncclGetUniqueId(&id));
	GIVES(ncclInvalidArgument, ncclCommInitRank(&c, 2, id, 2));
	GIVES(ncclInvalidArgument, ncclCommInitRank(&c, 2, foreign, 0));
	foreign = id;
	memcpy(&pid, foreign.internal + 16, sizeof pid);
	pid++;
	memcpy(foreign.internal + 16, &pid, sizeof pid);
	GIVES(ncclSystemError, ncclCommInitRank(&c, 2, foreign, 0));
	CHECK(strstr(api.ncclGetLastError(NULL), "one process"));
	GIVES(ncclInvalidUsage, ncclGroupEnd());
	DO(ncclCommInitRank(&c, 1, id, 0));
	CUdeviceptr p = alloc(16);
	GIVES(ncclInvalidArgument, ncclAllReduce((void *)p, (void *)p, 5, ncclFloat32, ncclSum, c, NULL));
	GIVES(ncclInvalidArgument, ncclBroadcast((void *)p, (void *)p, 4, ncclFloat32, 1, c, NULL));
	GIVES(ncclInvalidArgument, ncclAllReduce((void *)p, (void *)p, 4, (ncclDataType_t)77, ncclSum, c, NULL));
	CHECK(api.softgpuReports() == 1);       /* out of bounds */
	DO(ncclAllReduce((void *)p, (void *)p, 0, ncclFloat32, ncclSum, c, NULL));
	DO(ncclCommDestroy(c));
}

/* One thread, all ranks. */
enum { N = 4 };
static void one_thread(void)
{
	ncclUniqueId id;
	ncclComm_t c[N];
	CUstream s[N];
	CUdeviceptr p[N];
	DO(ncclGetUniqueId(&id));
	DO(ncclGroupStart());
	for (int i = 0; i < N; i++) {
		set_device(i);
		DO(ncclCommInitRank(&c[i], N, id, i));
	}
	DO(ncclGroupEnd());
	for (int i = 0; i < N; i++) {
		set_device(i);
		s[i] = stream();
		p[i] = alloc(4);
		CU(cuMemsetD32Async(p[i], 1u << i, 1, s[i]));
	}
	DO(ncclGroupStart());
	for (int i = 0; i < N; i++)
		DO(ncclAllReduce((void *)p[i], (void *)p[i], 1, ncclInt32, ncclSum, c[i], s[i]));
	DO(ncclGroupEnd());
	for (int i = 0; i < N; i++) {
		int got;
		set_device(i);
		CU(cuStreamSynchronize(s[i]));
		CU(cuMemcpyDtoH(&got, p[i], 4));
		CHECK(got == 15);
	}
	for (int i = 0; i < N; i++)
		DO(ncclCommDestroy(c[i]));
	set_device(0);
}

/* Two ranks on one device cannot be. */
static ncclUniqueId shared_id;
static ncclResult_t on_one[2];
static void same_device(int rank)
{
	ncclComm_t c;
	set_device(0);
	on_one[rank] = api.ncclCommInitRank(&c, 2, shared_id, rank);
}

/* One rank gives up; what it had begun ends. */
static void giving_up(int rank)
{
	ncclResult_t state;
	ncclComm_t c;
	DO(ncclCommInitRank(&c, N, shared_id, rank));
	DO(ncclCommGetAsyncError(c, &state));
	CHECK(state == ncclSuccess);
	CUstream s = stream();
	CUdeviceptr p = alloc(4);
	CU(cuMemsetD32Async(p, 1, 1, s));
	if (rank) {             /* the first does not come */
		DO(ncclAllReduce((void *)p, (void *)p, 1, ncclInt32, ncclSum, c, s));
		CHECK(api.cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
	}
	DO(ncclCommAbort(c));
	CU(cuStreamSynchronize(s));
}

int main(void)
{
	open_api();
	compiler();
	other_arch();
	refusals();
	one_thread();
	DO(ncclGetUniqueId(&shared_id));
	ranks(2, same_device);
	CHECK(on_one[0] == ncclInvalidUsage && on_one[1] == ncclInvalidUsage);
	DO(ncclGetUniqueId(&shared_id));
	ranks(N, giving_up);
	return 0;
}
