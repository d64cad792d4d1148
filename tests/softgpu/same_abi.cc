/* tests/softgpu/same_abi.cc - compiles only if runtime/cuda/api.h says what the toolkit's headers say: every constant, the size
 * of every struct, every function's result and parameters (pointers to pointers, integers and enums of the same size and
 * sign, structs of the same size). Compiled, never run; needs the toolkit. */
#include <cuda.h>
#include <nvrtc.h>
#include <cublasLt.h>
#include <nccl.h>
#include <cstdint>
#include <type_traits>

/* What are macros there and enumerators or other macros here. */
constexpr long there_NCCL_UNIQUE_ID_BYTES = NCCL_UNIQUE_ID_BYTES;
#undef NCCL_UNIQUE_ID_BYTES

/* The name that a program compiled against the toolkit links, before the same macros are defined here. */
#define STRING(x) #x
#define VERSIONED(x) STRING(x)
struct renamed {
	const char *there, *here;
};
#define RENAMED(X) \
	X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRelease) X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemAllocHost) X(cuMemHostRegister) \
	X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuStreamDestroy) \
	X(cuEventDestroy) X(cuStreamBeginCapture) X(cuGraphInstantiate)
namespace {
#define X(f) constexpr char there_##f[] = VERSIONED(f);
RENAMED(X)
#undef X
}
#undef cuMemcpyHtoD
#undef cuMemcpyDtoH
#undef cuMemcpyHtoDAsync
#undef cuMemcpyDtoHAsync
#undef cuMemcpyDtoDAsync
#undef cuStreamBeginCapture
#undef cuEventElapsedTime
extern "C" CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to);    /* the first version, of which cuda.h says nothing */

namespace own {
#include "runtime/cuda/api.h"
}

constexpr bool same_text(const char *a, const char *b) { return *a == *b && (!*a || same_text(a + 1, b + 1)); }
#define X(f) static_assert(same_text(there_##f, VERSIONED(f)), "another version of " #f);
RENAMED(X)
#undef X

template <class A, class B> constexpr bool same() {
	if constexpr (std::is_void_v<A> || std::is_void_v<B>)
		return std::is_void_v<A> && std::is_void_v<B>;
	else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
		using P = std::remove_pointer_t<A>;
		using Q = std::remove_pointer_t<B>;
		if constexpr (std::is_function_v<P> || std::is_function_v<Q>)
			return std::is_function_v<P> && std::is_function_v<Q>;
		else if constexpr (std::is_class_v<P> || std::is_class_v<Q>)    /* handles */
			return std::is_class_v<P> && std::is_class_v<Q>;
		else
			return std::is_const_v<P> == std::is_const_v<Q> && same<std::remove_const_t<P>, std::remove_const_t<Q>>();
	} else if constexpr (std::is_enum_v<A> || std::is_enum_v<B>)
		return std::is_enum_v<A> && std::is_enum_v<B> && sizeof(A) == sizeof(B);
	else if constexpr (std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
		return sizeof(A) == sizeof(B) && std::is_signed_v<A> == std::is_signed_v<B> &&
			std::is_floating_point_v<A> == std::is_floating_point_v<B>;
	else
		return std::is_class_v<A> && std::is_class_v<B> && sizeof(A) == sizeof(B) && alignof(A) == alignof(B);
}

template <class F, class G> struct signature : std::false_type {};
template <class R, class... A, class S, class... B> struct signature<R(A...), S(B...)> {
	template <int> static constexpr bool all() {
		if constexpr (sizeof...(A) == sizeof...(B))
			return (same<A, B>() && ... && same<R, S>());
		else
			return false;
	}
	static constexpr bool value = all<0>();
};

/* The types of api.h are looked up where a list is expanded: inside its own namespace. */
#define CONSTANT(name, v) static_assert((long)name == (long)::name, "another value of " #name);
#define MACRO(name, v) static_assert((long)name == there_##name, "another value of " #name);
#define FUNCTION(name, ret, args) \
	using own_##name = ret args; \
	static_assert(signature<own_##name, decltype(::name)>::value, "another type of " #name);
#define ABI(type) static_assert(sizeof(type) == sizeof(::type) && alignof(type) == alignof(::type), "another layout of " #type);

namespace own {
CU_RESULTS(CONSTANT)
CU_DEVICE_ATTRIBUTES(CONSTANT)
CU_FUNC_ATTRIBUTES(CONSTANT)
CU_CAPTURE_MODES(CONSTANT)
CU_CAPTURE_STATUSES(CONSTANT)
CU_JIT_OPTIONS(CONSTANT)
CU_FLAGS(CONSTANT)
NVRTC_RESULTS(CONSTANT)
CUBLAS_STATUSES(CONSTANT)
CUBLAS_COMPUTE_TYPES(CONSTANT)
CUBLAS_OPERATIONS(CONSTANT)
CUDA_DATA_TYPES(CONSTANT)
CUBLASLT_DESC_ATTRIBUTES(CONSTANT)
CUBLASLT_LAYOUT_ATTRIBUTES(CONSTANT)
CUBLASLT_PREF_ATTRIBUTES(CONSTANT)
CUBLASLT_EPILOGUES(CONSTANT)
CUBLASLT_ORDERS(CONSTANT)
CUBLASLT_BATCH_MODES(CONSTANT)
CUBLASLT_POINTER_MODES(CONSTANT)
NCCL_RESULTS(CONSTANT)
NCCL_DATA_TYPES(CONSTANT)
NCCL_RED_OPS(CONSTANT)
NCCL_CONSTANTS(MACRO)
ABI(cublasLtMatmulAlgo_t)
ABI(cublasLtMatmulHeuristicResult_t)
ABI(ncclUniqueId)
CU_FUNCTIONS(FUNCTION)
NVRTC_FUNCTIONS(FUNCTION)
CUBLASLT_FUNCTIONS(FUNCTION)
NCCL_FUNCTIONS(FUNCTION)
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == offsetof(::cublasLtMatmulHeuristicResult_t, state), "");
}
