/* tests/softgpu/test.h - for tests of the software GPU: the libraries by dlopen from $PTC_CUDA_LIBS, as a program would. */
#ifndef SOFTGPU_TEST_H
#define SOFTGPU_TEST_H
#include <stdbool.h>
#include <stdio.h>
#include "runtime/cuda/api.h"

#define FN(name, ret, args) ret(*name) args;
struct api {
	CU_FUNCTIONS(FN)
	NVRTC_FUNCTIONS(FN)
	CUBLASLT_FUNCTIONS(FN)
	NCCL_FUNCTIONS(FN)
	void (*softgpuDeclare)(int, const CUdeviceptr *, const size_t *, const unsigned char *);
	int (*softgpuReports)(void);
};
#undef FN
extern struct api api;

/* Stops the program where a call fails. */
#define CU(call) \
	do { \
		CUresult cu_result = api.call; \
		if (cu_result) \
			fail(__FILE__, __LINE__, #call, cu_result); \
	} while (0)
#define DO(call) \
	do { \
		int do_result = (int)api.call; \
		if (do_result) \
			fail(__FILE__, __LINE__, #call, do_result); \
	} while (0)
#define CHECK(x) \
	do { \
		if (!(x)) \
			fail(__FILE__, __LINE__, #x, -1); \
	} while (0)
_Noreturn void fail(const char *file, int line, const char *what, int code);

void load_api(void);                /* all names */
void open_api(void);                /* and the first device is current */
CUmodule compile(const char *src);  /* for the current device; prints the log and stops when it fails */
CUfunction function(CUmodule m, const char *name);
CUdeviceptr alloc(size_t bytes);
/* Device memory with n floats f(i). */
CUdeviceptr floats(int n, float (*f)(int));
void launch(CUfunction fn, unsigned grid, unsigned block, unsigned shared, CUstream s, void **args);
#define LAUNCH(fn, grid, block, shared, s, ...) launch(fn, grid, block, shared, s, (void *[]){__VA_ARGS__})
CUstream stream(void);              /* non-blocking */
CUevent event(void);
void set_device(int dev);
/* n threads, one a device: run(rank). */
void ranks(int n, void (*run)(int rank));
int number_arg(const char *s, int otherwise);

#endif
