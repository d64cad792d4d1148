/* tests/softgpu/api.h - private: prototypes of what the stand-in gives to others, and between its files that give it. */
#ifndef SOFTGPU_API_H
#define SOFTGPU_API_H
#include "tests/softgpu/softgpu.h"

#define PROTOTYPE(name, ret, args) __attribute__((visibility("default"))) ret name args;
CU_FUNCTIONS(PROTOTYPE)
NVRTC_FUNCTIONS(PROTOTYPE)
CUBLASLT_FUNCTIONS(PROTOTYPE)
NCCL_FUNCTIONS(PROTOTYPE)
#undef PROTOTYPE

/* By dlsym in libcuda.so.1, absent in a real one. */
#define SOFTGPU_EXPORT __attribute__((visibility("default")))
/* The next cuLaunchKernel of this thread may touch these ranges of device memory and no other. len: bytes. */
SOFTGPU_EXPORT void softgpuDeclare(int n, const CUdeviceptr *base, const size_t *len, const unsigned char *writable);
/* Faults reported until now; sets the number back, so that a test that wants them can end well. */
SOFTGPU_EXPORT int softgpuReports(void);

CUresult api_leave(CUresult e);                             /* gives the lock back, gives e */
bool callback_run(struct node *n);                          /* of cuLaunchHostFunc */
struct CUstream_st *stream_make(int dev, bool blocking);
CUresult device_idle(int dev, const char *why);             /* waits for all of its nodes */
CUresult wait_node(struct node *n, const char *why);        /* n may be NULL */

#endif
