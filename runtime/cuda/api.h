/* runtime/cuda/api.h - what is used of the CUDA driver, NVRTC, cuBLASLt and NCCL: types, constants and function lists.
 *
 * So that one build works with and without a toolkit, no header of theirs is included; where a toolkit is found, tests/softgpu
 * compares every constant, size and function type below with it. Values and layouts are those of CUDA 12 and 13, NCCL 2.14 and up.
 *
 * Each constant list is an X-macro over X(name, value), each function list over X(name, result, (parameters)). A list gives
 * prototypes, tables and names:
 *     #define FN(name, ret, args) ret(*name) args;
 *     struct driver { CU_FUNCTIONS(FN) };
 * Functions that the driver renamed are macros here as there (cuMemAlloc is cuMemAlloc_v2): use the name, never a string;
 * a name is made a string by a two-level macro, so that the version is part of it. None is newer than CUDA 12.0: of
 * cuEventElapsedTime the first version is used, which every driver has (the second came with 12.8). */
#ifndef PTC_CUDA_API_H
#define PTC_CUDA_API_H
#include <stddef.h>
#include <stdint.h>

#define API_ENUM(name, value) name = value,

/* ---- driver: libcuda.so.1 ---- */

#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemAllocHost cuMemAllocHost_v2
#define cuMemHostRegister cuMemHostRegister_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuGraphInstantiate cuGraphInstantiateWithFlags

#define CU_RESULTS(X) \
	X(CUDA_SUCCESS, 0) \
	X(CUDA_ERROR_INVALID_VALUE, 1) \
	X(CUDA_ERROR_OUT_OF_MEMORY, 2) \
	X(CUDA_ERROR_NOT_INITIALIZED, 3) \
	X(CUDA_ERROR_DEINITIALIZED, 4) \
	X(CUDA_ERROR_STUB_LIBRARY, 34) \
	X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, 36) \
	X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46) \
	X(CUDA_ERROR_NO_DEVICE, 100) \
	X(CUDA_ERROR_INVALID_DEVICE, 101) \
	X(CUDA_ERROR_INVALID_IMAGE, 200) \
	X(CUDA_ERROR_INVALID_CONTEXT, 201) \
	X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209) \
	X(CUDA_ERROR_ECC_UNCORRECTABLE, 214) \
	X(CUDA_ERROR_INVALID_PTX, 218) \
	X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220) \
	X(CUDA_ERROR_INVALID_SOURCE, 300) \
	X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303) \
	X(CUDA_ERROR_OPERATING_SYSTEM, 304) \
	X(CUDA_ERROR_INVALID_HANDLE, 400) \
	X(CUDA_ERROR_ILLEGAL_STATE, 401) \
	X(CUDA_ERROR_NOT_FOUND, 500) \
	X(CUDA_ERROR_NOT_READY, 600) \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
	X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) \
	X(CUDA_ERROR_LAUNCH_TIMEOUT, 702) \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) \
	X(CUDA_ERROR_ASSERT, 710) \
	X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713) \
	X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715) \
	X(CUDA_ERROR_MISALIGNED_ADDRESS, 716) \
	X(CUDA_ERROR_LAUNCH_FAILED, 719) \
	X(CUDA_ERROR_NOT_PERMITTED, 800) \
	X(CUDA_ERROR_NOT_SUPPORTED, 801) \
	X(CUDA_ERROR_SYSTEM_NOT_READY, 802) \
	X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901) \
	X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904) \
	X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905) \
	X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906) \
	X(CUDA_ERROR_CAPTURED_EVENT, 907) \
	X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908) \
	X(CUDA_ERROR_TIMEOUT, 909) \
	X(CUDA_ERROR_UNKNOWN, 999)

#define CU_DEVICE_ATTRIBUTES(X) \
	X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1) \
	X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8) \
	X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10) \
	X(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 12) \
	X(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 13) \
	X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) \
	X(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36) \
	X(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37) \
	X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38) \
	X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41) \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
	X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81) \
	X(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 82) \
	X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)

#define CU_FUNC_ATTRIBUTES(X) \
	X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0) \
	X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1) \
	X(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 2) \
	X(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3) \
	X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4) \
	X(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 6) \
	X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8) \
	X(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 9)

#define CU_CAPTURE_MODES(X) \
	X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0) \
	X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1) \
	X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)

#define CU_CAPTURE_STATUSES(X) \
	X(CU_STREAM_CAPTURE_STATUS_NONE, 0) \
	X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1) \
	X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)

#define CU_JIT_OPTIONS(X) \
	X(CU_JIT_INFO_LOG_BUFFER, 3) \
	X(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 4) \
	X(CU_JIT_ERROR_LOG_BUFFER, 5) \
	X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)

#define CU_FLAGS(X) \
	X(CU_STREAM_DEFAULT, 0) \
	X(CU_STREAM_NON_BLOCKING, 1) \
	X(CU_EVENT_DEFAULT, 0) \
	X(CU_EVENT_BLOCKING_SYNC, 1) \
	X(CU_EVENT_DISABLE_TIMING, 2) \
	X(CU_EVENT_WAIT_DEFAULT, 0) \
	X(CU_CTX_SCHED_AUTO, 0) \
	X(CU_CTX_SCHED_BLOCKING_SYNC, 4)

typedef enum cudaError_enum { CU_RESULTS(API_ENUM) } CUresult;
typedef enum CUdevice_attribute_enum { CU_DEVICE_ATTRIBUTES(API_ENUM) } CUdevice_attribute;
typedef enum CUfunction_attribute_enum { CU_FUNC_ATTRIBUTES(API_ENUM) } CUfunction_attribute;
typedef enum CUstreamCaptureMode_enum { CU_CAPTURE_MODES(API_ENUM) } CUstreamCaptureMode;
typedef enum CUstreamCaptureStatus_enum { CU_CAPTURE_STATUSES(API_ENUM) } CUstreamCaptureStatus;
typedef enum CUjit_option_enum { CU_JIT_OPTIONS(API_ENUM) } CUjit_option;
enum { CU_FLAGS(API_ENUM) };

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef void (*CUhostFn)(void *);

#define CU_FUNCTIONS(X) \
	X(cuInit, CUresult, (unsigned flags)) \
	X(cuDriverGetVersion, CUresult, (int *version)) \
	X(cuGetErrorName, CUresult, (CUresult error, const char **name)) \
	X(cuGetErrorString, CUresult, (CUresult error, const char **text)) \
	X(cuDeviceGetCount, CUresult, (int *count)) \
	X(cuDeviceGet, CUresult, (CUdevice *dev, int ordinal)) \
	X(cuDeviceGetName, CUresult, (char *name, int len, CUdevice dev)) \
	X(cuDeviceGetPCIBusId, CUresult, (char *id, int len, CUdevice dev)) \
	X(cuDeviceGetAttribute, CUresult, (int *value, CUdevice_attribute attr, CUdevice dev)) \
	X(cuDeviceTotalMem, CUresult, (size_t *bytes, CUdevice dev)) \
	X(cuDevicePrimaryCtxRetain, CUresult, (CUcontext *ctx, CUdevice dev)) \
	X(cuDevicePrimaryCtxRelease, CUresult, (CUdevice dev)) \
	X(cuCtxSetCurrent, CUresult, (CUcontext ctx)) \
	X(cuCtxGetCurrent, CUresult, (CUcontext *ctx)) \
	X(cuCtxGetDevice, CUresult, (CUdevice *dev)) \
	X(cuCtxSynchronize, CUresult, (void)) \
	X(cuCtxGetStreamPriorityRange, CUresult, (int *least, int *greatest)) \
	X(cuMemGetInfo, CUresult, (size_t *free, size_t *total)) \
	X(cuMemAlloc, CUresult, (CUdeviceptr *p, size_t bytes)) \
	X(cuMemFree, CUresult, (CUdeviceptr p)) \
	X(cuMemAllocHost, CUresult, (void **p, size_t bytes)) \
	X(cuMemFreeHost, CUresult, (void *p)) \
	X(cuMemHostRegister, CUresult, (void *p, size_t bytes, unsigned flags)) \
	X(cuMemHostUnregister, CUresult, (void *p)) \
	X(cuMemcpyHtoD, CUresult, (CUdeviceptr dst, const void *src, size_t bytes)) \
	X(cuMemcpyDtoH, CUresult, (void *dst, CUdeviceptr src, size_t bytes)) \
	X(cuMemcpyHtoDAsync, CUresult, (CUdeviceptr dst, const void *src, size_t bytes, CUstream s)) \
	X(cuMemcpyDtoHAsync, CUresult, (void *dst, CUdeviceptr src, size_t bytes, CUstream s)) \
	X(cuMemcpyDtoDAsync, CUresult, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s)) \
	X(cuMemsetD8Async, CUresult, (CUdeviceptr dst, unsigned char value, size_t n, CUstream s)) \
	X(cuMemsetD32Async, CUresult, (CUdeviceptr dst, unsigned value, size_t n, CUstream s)) \
	X(cuStreamCreate, CUresult, (CUstream *s, unsigned flags)) \
	X(cuStreamCreateWithPriority, CUresult, (CUstream *s, unsigned flags, int priority)) \
	X(cuStreamDestroy, CUresult, (CUstream s)) \
	X(cuStreamSynchronize, CUresult, (CUstream s)) \
	X(cuStreamQuery, CUresult, (CUstream s)) \
	X(cuStreamWaitEvent, CUresult, (CUstream s, CUevent e, unsigned flags)) \
	X(cuEventCreate, CUresult, (CUevent *e, unsigned flags)) \
	X(cuEventDestroy, CUresult, (CUevent e)) \
	X(cuEventRecord, CUresult, (CUevent e, CUstream s)) \
	X(cuEventSynchronize, CUresult, (CUevent e)) \
	X(cuEventQuery, CUresult, (CUevent e)) \
	X(cuEventElapsedTime, CUresult, (float *ms, CUevent from, CUevent to)) \
	X(cuLaunchHostFunc, CUresult, (CUstream s, CUhostFn fn, void *data)) \
	X(cuStreamBeginCapture, CUresult, (CUstream s, CUstreamCaptureMode mode)) \
	X(cuStreamEndCapture, CUresult, (CUstream s, CUgraph *graph)) \
	X(cuStreamIsCapturing, CUresult, (CUstream s, CUstreamCaptureStatus *status)) \
	X(cuThreadExchangeStreamCaptureMode, CUresult, (CUstreamCaptureMode *mode)) \
	X(cuGraphGetNodes, CUresult, (CUgraph graph, CUgraphNode *nodes, size_t *n)) \
	X(cuGraphInstantiate, CUresult, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
	X(cuGraphLaunch, CUresult, (CUgraphExec exec, CUstream s)) \
	X(cuGraphExecDestroy, CUresult, (CUgraphExec exec)) \
	X(cuGraphDestroy, CUresult, (CUgraph graph)) \
	X(cuModuleLoadData, CUresult, (CUmodule *m, const void *image)) \
	X(cuModuleLoadDataEx, CUresult, (CUmodule *m, const void *image, unsigned n, CUjit_option *options, void **values)) \
	X(cuModuleUnload, CUresult, (CUmodule m)) \
	X(cuModuleGetFunction, CUresult, (CUfunction *fn, CUmodule m, const char *name)) \
	X(cuFuncGetAttribute, CUresult, (int *value, CUfunction_attribute attr, CUfunction fn)) \
	X(cuFuncSetAttribute, CUresult, (CUfunction fn, CUfunction_attribute attr, int value)) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor, CUresult, (int *blocks, CUfunction fn, int block, size_t shared)) \
	X(cuLaunchKernel, CUresult, \
	  (CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
	   CUstream s, void **params, void **extra))

/* ---- NVRTC: libnvrtc.so.13, .12 ---- */

#define NVRTC_RESULTS(X) \
	X(NVRTC_SUCCESS, 0) \
	X(NVRTC_ERROR_OUT_OF_MEMORY, 1) \
	X(NVRTC_ERROR_PROGRAM_CREATION_FAILURE, 2) \
	X(NVRTC_ERROR_INVALID_INPUT, 3) \
	X(NVRTC_ERROR_INVALID_PROGRAM, 4) \
	X(NVRTC_ERROR_INVALID_OPTION, 5) \
	X(NVRTC_ERROR_COMPILATION, 6) \
	X(NVRTC_ERROR_BUILTIN_OPERATION_FAILURE, 7) \
	X(NVRTC_ERROR_INTERNAL_ERROR, 11)

typedef enum { NVRTC_RESULTS(API_ENUM) } nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;

#define NVRTC_FUNCTIONS(X) \
	X(nvrtcGetErrorString, const char *, (nvrtcResult result)) \
	X(nvrtcVersion, nvrtcResult, (int *major, int *minor)) \
	X(nvrtcGetNumSupportedArchs, nvrtcResult, (int *n)) \
	X(nvrtcGetSupportedArchs, nvrtcResult, (int *archs)) \
	X(nvrtcCreateProgram, nvrtcResult, \
	  (nvrtcProgram *prog, const char *src, const char *name, int n, const char *const *headers, const char *const *names)) \
	X(nvrtcDestroyProgram, nvrtcResult, (nvrtcProgram *prog)) \
	X(nvrtcCompileProgram, nvrtcResult, (nvrtcProgram prog, int n, const char *const *options)) \
	X(nvrtcGetPTXSize, nvrtcResult, (nvrtcProgram prog, size_t *bytes)) \
	X(nvrtcGetPTX, nvrtcResult, (nvrtcProgram prog, char *ptx)) \
	X(nvrtcGetCUBINSize, nvrtcResult, (nvrtcProgram prog, size_t *bytes)) \
	X(nvrtcGetCUBIN, nvrtcResult, (nvrtcProgram prog, char *cubin)) \
	X(nvrtcGetProgramLogSize, nvrtcResult, (nvrtcProgram prog, size_t *bytes)) \
	X(nvrtcGetProgramLog, nvrtcResult, (nvrtcProgram prog, char *log))

/* ---- cuBLASLt: libcublasLt.so.13, .12 ---- */

#define CUBLAS_STATUSES(X) \
	X(CUBLAS_STATUS_SUCCESS, 0) \
	X(CUBLAS_STATUS_NOT_INITIALIZED, 1) \
	X(CUBLAS_STATUS_ALLOC_FAILED, 3) \
	X(CUBLAS_STATUS_INVALID_VALUE, 7) \
	X(CUBLAS_STATUS_ARCH_MISMATCH, 8) \
	X(CUBLAS_STATUS_MAPPING_ERROR, 11) \
	X(CUBLAS_STATUS_EXECUTION_FAILED, 13) \
	X(CUBLAS_STATUS_INTERNAL_ERROR, 14) \
	X(CUBLAS_STATUS_NOT_SUPPORTED, 15) \
	X(CUBLAS_STATUS_LICENSE_ERROR, 16)

#define CUBLAS_COMPUTE_TYPES(X) \
	X(CUBLAS_COMPUTE_16F, 64) \
	X(CUBLAS_COMPUTE_32F, 68) \
	X(CUBLAS_COMPUTE_32F_PEDANTIC, 69) \
	X(CUBLAS_COMPUTE_32F_FAST_16BF, 75) \
	X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)

#define CUBLAS_OPERATIONS(X) \
	X(CUBLAS_OP_N, 0) \
	X(CUBLAS_OP_T, 1)

#define CUDA_DATA_TYPES(X) \
	X(CUDA_R_32F, 0) \
	X(CUDA_R_16F, 2) \
	X(CUDA_R_32I, 10) \
	X(CUDA_R_16BF, 14)

#define CUBLASLT_DESC_ATTRIBUTES(X) \
	X(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 0) \
	X(CUBLASLT_MATMUL_DESC_SCALE_TYPE, 1) \
	X(CUBLASLT_MATMUL_DESC_POINTER_MODE, 2) \
	X(CUBLASLT_MATMUL_DESC_TRANSA, 3) \
	X(CUBLASLT_MATMUL_DESC_TRANSB, 4) \
	X(CUBLASLT_MATMUL_DESC_TRANSC, 5) \
	X(CUBLASLT_MATMUL_DESC_FILL_MODE, 6) \
	X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7) \
	X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8) \
	X(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 10) \
	X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11) \
	X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12) \
	X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, 13) \
	X(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, 14) \
	X(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 15) \
	X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, 22) \
	X(CUBLASLT_MATMUL_DESC_FAST_ACCUM, 25) \
	X(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)

#define CUBLASLT_LAYOUT_ATTRIBUTES(X) \
	X(CUBLASLT_MATRIX_LAYOUT_TYPE, 0) \
	X(CUBLASLT_MATRIX_LAYOUT_ORDER, 1) \
	X(CUBLASLT_MATRIX_LAYOUT_ROWS, 2) \
	X(CUBLASLT_MATRIX_LAYOUT_COLS, 3) \
	X(CUBLASLT_MATRIX_LAYOUT_LD, 4) \
	X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5) \
	X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6) \
	X(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, 7) \
	X(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, 8)

#define CUBLASLT_PREF_ATTRIBUTES(X) \
	X(CUBLASLT_MATMUL_PREF_SEARCH_MODE, 0) \
	X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1) \
	X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3) \
	X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5) \
	X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6) \
	X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7) \
	X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8) \
	X(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, 9) \
	X(CUBLASLT_MATMUL_PREF_IMPL_MASK, 12)

/* An epilogue is a set of bits. */
#define CUBLASLT_EPILOGUES(X) \
	X(CUBLASLT_EPILOGUE_DEFAULT, 1) \
	X(CUBLASLT_EPILOGUE_RELU, 2) \
	X(CUBLASLT_EPILOGUE_BIAS, 4) \
	X(CUBLASLT_EPILOGUE_RELU_BIAS, 6) \
	X(CUBLASLT_EPILOGUE_RELU_AUX, 130) \
	X(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, 134) \
	X(CUBLASLT_EPILOGUE_DRELU, 136) \
	X(CUBLASLT_EPILOGUE_DRELU_BGRAD, 152) \
	X(CUBLASLT_EPILOGUE_GELU, 32) \
	X(CUBLASLT_EPILOGUE_GELU_BIAS, 36) \
	X(CUBLASLT_EPILOGUE_GELU_AUX, 160) \
	X(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164) \
	X(CUBLASLT_EPILOGUE_DGELU, 192) \
	X(CUBLASLT_EPILOGUE_DGELU_BGRAD, 208) \
	X(CUBLASLT_EPILOGUE_BGRADA, 256) \
	X(CUBLASLT_EPILOGUE_BGRADB, 512)

#define CUBLASLT_ORDERS(X) \
	X(CUBLASLT_ORDER_COL, 0) \
	X(CUBLASLT_ORDER_ROW, 1)

#define CUBLASLT_BATCH_MODES(X) \
	X(CUBLASLT_BATCH_MODE_STRIDED, 0) \
	X(CUBLASLT_BATCH_MODE_POINTER_ARRAY, 1)

#define CUBLASLT_POINTER_MODES(X) \
	X(CUBLASLT_POINTER_MODE_HOST, 0) \
	X(CUBLASLT_POINTER_MODE_DEVICE, 1)

typedef enum { CUBLAS_STATUSES(API_ENUM) } cublasStatus_t;
typedef enum { CUBLAS_COMPUTE_TYPES(API_ENUM) } cublasComputeType_t;
typedef enum { CUBLAS_OPERATIONS(API_ENUM) } cublasOperation_t;
typedef enum cudaDataType_t { CUDA_DATA_TYPES(API_ENUM) } cudaDataType;
typedef enum { CUBLASLT_DESC_ATTRIBUTES(API_ENUM) } cublasLtMatmulDescAttributes_t;
typedef enum { CUBLASLT_LAYOUT_ATTRIBUTES(API_ENUM) } cublasLtMatrixLayoutAttribute_t;
typedef enum { CUBLASLT_PREF_ATTRIBUTES(API_ENUM) } cublasLtMatmulPreferenceAttributes_t;
typedef enum { CUBLASLT_EPILOGUES(API_ENUM) } cublasLtEpilogue_t;
typedef enum { CUBLASLT_ORDERS(API_ENUM) } cublasLtOrder_t;
typedef enum { CUBLASLT_BATCH_MODES(API_ENUM) } cublasLtBatchMode_t;
typedef enum { CUBLASLT_POINTER_MODES(API_ENUM) } cublasLtPointerMode_t;

typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct ptc_lt_desc *cublasLtMatmulDesc_t;
typedef struct ptc_lt_layout *cublasLtMatrixLayout_t;
typedef struct ptc_lt_pref *cublasLtMatmulPreference_t;
typedef struct {
	uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
	cublasLtMatmulAlgo_t algo;
	size_t workspaceSize;
	cublasStatus_t state;
	float wavesCount;
	int reserved[4];
} cublasLtMatmulHeuristicResult_t;

#define CUBLASLT_FUNCTIONS(X) \
	X(cublasLtGetVersion, size_t, (void)) \
	X(cublasLtGetStatusName, const char *, (cublasStatus_t status)) \
	X(cublasLtCreate, cublasStatus_t, (cublasLtHandle_t *h)) \
	X(cublasLtDestroy, cublasStatus_t, (cublasLtHandle_t h)) \
	X(cublasLtMatmulDescCreate, cublasStatus_t, (cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType scale)) \
	X(cublasLtMatmulDescDestroy, cublasStatus_t, (cublasLtMatmulDesc_t d)) \
	X(cublasLtMatmulDescSetAttribute, cublasStatus_t, \
	  (cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr, const void *buf, size_t bytes)) \
	X(cublasLtMatmulDescGetAttribute, cublasStatus_t, \
	  (cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr, void *buf, size_t bytes, size_t *written)) \
	X(cublasLtMatrixLayoutCreate, cublasStatus_t, \
	  (cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)) \
	X(cublasLtMatrixLayoutDestroy, cublasStatus_t, (cublasLtMatrixLayout_t l)) \
	X(cublasLtMatrixLayoutSetAttribute, cublasStatus_t, \
	  (cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attr, const void *buf, size_t bytes)) \
	X(cublasLtMatrixLayoutGetAttribute, cublasStatus_t, \
	  (cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attr, void *buf, size_t bytes, size_t *written)) \
	X(cublasLtMatmulPreferenceCreate, cublasStatus_t, (cublasLtMatmulPreference_t *p)) \
	X(cublasLtMatmulPreferenceDestroy, cublasStatus_t, (cublasLtMatmulPreference_t p)) \
	X(cublasLtMatmulPreferenceSetAttribute, cublasStatus_t, \
	  (cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attr, const void *buf, size_t bytes)) \
	X(cublasLtMatmulPreferenceGetAttribute, cublasStatus_t, \
	  (cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attr, void *buf, size_t bytes, size_t *written)) \
	X(cublasLtMatmulAlgoGetHeuristic, cublasStatus_t, \
	  (cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B, cublasLtMatrixLayout_t C, \
	   cublasLtMatrixLayout_t D, cublasLtMatmulPreference_t p, int wanted, cublasLtMatmulHeuristicResult_t *results, int *got)) \
	X(cublasLtMatmul, cublasStatus_t, \
	  (cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *A, cublasLtMatrixLayout_t Adesc, const void *B, \
	   cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc, void *D, \
	   cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, CUstream s))

/* ---- NCCL: libnccl.so.2 ---- */

#define NCCL_RESULTS(X) \
	X(ncclSuccess, 0) \
	X(ncclUnhandledCudaError, 1) \
	X(ncclSystemError, 2) \
	X(ncclInternalError, 3) \
	X(ncclInvalidArgument, 4) \
	X(ncclInvalidUsage, 5) \
	X(ncclRemoteError, 6) \
	X(ncclInProgress, 7)

#define NCCL_DATA_TYPES(X) \
	X(ncclInt8, 0) \
	X(ncclUint8, 1) \
	X(ncclInt32, 2) \
	X(ncclUint32, 3) \
	X(ncclInt64, 4) \
	X(ncclUint64, 5) \
	X(ncclFloat16, 6) \
	X(ncclFloat32, 7) \
	X(ncclFloat64, 8) \
	X(ncclBfloat16, 9)

#define NCCL_RED_OPS(X) \
	X(ncclSum, 0) \
	X(ncclProd, 1) \
	X(ncclMax, 2) \
	X(ncclMin, 3) \
	X(ncclAvg, 4)

#define NCCL_CONSTANTS(X) \
	X(NCCL_UNIQUE_ID_BYTES, 128)

typedef enum { NCCL_RESULTS(API_ENUM) } ncclResult_t;
typedef enum { NCCL_DATA_TYPES(API_ENUM) } ncclDataType_t;
typedef enum { NCCL_RED_OPS(API_ENUM) } ncclRedOp_t;
enum { NCCL_CONSTANTS(API_ENUM) };

typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct ncclComm *ncclComm_t;

#define NCCL_FUNCTIONS(X) \
	X(ncclGetVersion, ncclResult_t, (int *version)) \
	X(ncclGetErrorString, const char *, (ncclResult_t result)) \
	X(ncclGetLastError, const char *, (ncclComm_t comm)) \
	X(ncclGetUniqueId, ncclResult_t, (ncclUniqueId *id)) \
	X(ncclCommInitRank, ncclResult_t, (ncclComm_t *comm, int n, ncclUniqueId id, int rank)) \
	X(ncclCommDestroy, ncclResult_t, (ncclComm_t comm)) \
	X(ncclCommAbort, ncclResult_t, (ncclComm_t comm)) \
	X(ncclCommGetAsyncError, ncclResult_t, (ncclComm_t comm, ncclResult_t *error)) \
	X(ncclCommCount, ncclResult_t, (ncclComm_t comm, int *n)) \
	X(ncclCommUserRank, ncclResult_t, (ncclComm_t comm, int *rank)) \
	X(ncclAllReduce, ncclResult_t, \
	  (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream s)) \
	X(ncclReduceScatter, ncclResult_t, \
	  (const void *send, void *recv, size_t recvcount, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream s)) \
	X(ncclAllGather, ncclResult_t, \
	  (const void *send, void *recv, size_t sendcount, ncclDataType_t type, ncclComm_t comm, CUstream s)) \
	X(ncclBroadcast, ncclResult_t, \
	  (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream s)) \
	X(ncclReduce, ncclResult_t, \
	  (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, CUstream s)) \
	X(ncclSend, ncclResult_t, (const void *buf, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream s)) \
	X(ncclRecv, ncclResult_t, (void *buf, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream s)) \
	X(ncclGroupStart, ncclResult_t, (void)) \
	X(ncclGroupEnd, ncclResult_t, (void))

#endif
