/* tests/softgpu/shim.h - what stands before a kernel source when the host's C++ compiler gets it in NVRTC's place.
 *
 * It gives what NVRTC gives without a header, and, where the source's own prelude would use inline PTX, functions by agreement:
 * the prelude leaves them out under PTC_SOFTGPU.
 *     PTC_DYN_SHARED(type, name)                        type *name: the block's dynamic shared memory, 128-byte aligned
 *     void ptc_mma_bf16_16816(float d[4], const unsigned a[4], const unsigned b[2])    mma.sync.m16n8k16, d += a b
 *     void ptc_ldmatrix_x4(unsigned r[4], const void *row), _x2, and both with _trans   ldmatrix.sync; row: this lane's, in shared memory
 *     void ptc_cp_async16(void *shared, const void *global)                              cp.async, both 16-byte aligned
 *     void ptc_cp_async16_if(void *shared, const void *global, bool on)                  the same; off: zeros
 *     void ptc_cp_commit(), template <int N> void ptc_cp_wait()                          as cp.async.commit_group, wait_group N
 *     float ptc_bf16_to_float(unsigned short), unsigned short ptc_float_to_bf16(float)   round to nearest even, NaN 0x7fff
 *     unsigned ptc_float2_to_bf16x2(float low, float high)
 * Not given, so that a source that needs them does not compile: __shared__ (all shared memory is dynamic), __constant__,
 * module variables, textures, wgmma, TMA. */
#define PTC_SOFTGPU 1
#define __CUDACC_RTC__ 1
#define __global__ __attribute__((section(".text.softgpu")))    /* by which kernels are found */
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define warpSize 32

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS 1    /* C's own, without a hundred templates */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct uint3 { unsigned x, y, z; };
struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
#define SOFTGPU_VECTOR(T, N, n1, n2, n4) \
	struct __attribute__((aligned(n1))) N##1 { T x; }; \
	struct __attribute__((aligned(n2))) N##2 { T x, y; }; \
	struct N##3 { T x, y, z; }; \
	struct __attribute__((aligned(n4))) N##4 { T x, y, z, w; }; \
	static __forceinline__ N##2 make_##N##2(T x, T y) { return N##2{x, y}; } \
	static __forceinline__ N##4 make_##N##4(T x, T y, T z, T w) { return N##4{x, y, z, w}; }
SOFTGPU_VECTOR(char, char, 1, 2, 4)
SOFTGPU_VECTOR(unsigned char, uchar, 1, 2, 4)
SOFTGPU_VECTOR(short, short, 2, 4, 8)
SOFTGPU_VECTOR(unsigned short, ushort, 2, 4, 8)
SOFTGPU_VECTOR(int, int, 4, 8, 16)
SOFTGPU_VECTOR(float, float, 4, 8, 16)
struct __attribute__((aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };
static __forceinline__ uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }
static __forceinline__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
struct __attribute__((aligned(16))) double2 { double x, y; };
struct __attribute__((aligned(16))) longlong2 { long long x, y; };
struct __attribute__((aligned(16))) ulonglong2 { unsigned long long x, y; };

extern "C" {
/* Of the thread that runs now; the software GPU sets it on every switch. */
struct softgpu_ids { uint3 thread, block, block_dim, grid_dim; };
extern const struct softgpu_ids softgpu_ids;               /* const: one thread sees one value, and no hook for it */
void *softgpu_shared(void);
void softgpu_syncthreads(void);
int softgpu_vote(int how, int predicate);                  /* 0 count, 1 and, 2 or, over the block */
unsigned long long softgpu_shuffle(unsigned mask, unsigned long long value, int from);
unsigned softgpu_ballot(unsigned mask, int predicate);
void softgpu_syncwarp(unsigned mask);
unsigned softgpu_activemask(void);
void softgpu_mma(float *d, const unsigned *a, const unsigned *b);
void softgpu_ldmatrix(unsigned *r, const void *row, int n, int trans);
void softgpu_cp_async(void *shared, const void *global, int on);
void softgpu_cp_commit(void);
void softgpu_cp_wait(int left);
/* what: 0 add, 1 max, 2 min, 3 and, 4 or, 5 exchange, 6 compare and swap, 7 xor; type: 0 i32, 1 u32, 2 u64, 3 f32, 4 f64 */
unsigned long long softgpu_atomic(int what, int type, void *p, unsigned long long value, unsigned long long compare);
void softgpu_trap(void);
}
#define threadIdx softgpu_ids.thread
#define blockIdx softgpu_ids.block
#define blockDim softgpu_ids.block_dim
#define gridDim softgpu_ids.grid_dim

#define PTC_DYN_SHARED(type, name) type *name = (type *)softgpu_shared()

static __forceinline__ void __syncthreads() { softgpu_syncthreads(); }
static __forceinline__ int __syncthreads_count(int p) { return softgpu_vote(0, p); }
static __forceinline__ int __syncthreads_and(int p) { return softgpu_vote(1, p); }
static __forceinline__ int __syncthreads_or(int p) { return softgpu_vote(2, p); }
static __forceinline__ void __syncwarp(unsigned mask = 0xffffffff) { softgpu_syncwarp(mask); }
static __forceinline__ void __threadfence() {}
static __forceinline__ void __threadfence_block() {}
static __forceinline__ void __trap() { softgpu_trap(); }
static __forceinline__ unsigned __activemask() { return softgpu_activemask(); }
static __forceinline__ unsigned __ballot_sync(unsigned mask, int p) { return softgpu_ballot(mask, p); }
static __forceinline__ int __any_sync(unsigned mask, int p) { return softgpu_ballot(mask, p) != 0; }
static __forceinline__ int __all_sync(unsigned mask, int p) { return softgpu_ballot(mask, !p) == 0; }

template <class T> static __forceinline__ T softgpu_exchange(unsigned mask, T value, int from)
{
	static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
	unsigned long long bits = 0;
	__builtin_memcpy(&bits, &value, sizeof value);
	bits = softgpu_shuffle(mask, bits, from);
	__builtin_memcpy(&value, &bits, sizeof value);
	return value;
}
#define SOFTGPU_LANE (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31)
template <class T> static __forceinline__ T __shfl_sync(unsigned mask, T v, int from, int width = 32)
{
	return softgpu_exchange(mask, v, (SOFTGPU_LANE & ~(width - 1)) | (from & (width - 1)));
}
template <class T> static __forceinline__ T __shfl_xor_sync(unsigned mask, T v, int with, int width = 32)
{
	int lane = SOFTGPU_LANE, from = lane ^ with;
	return softgpu_exchange(mask, v, from >= ((lane + width) & ~(width - 1)) ? lane : from);
}
template <class T> static __forceinline__ T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
	int lane = SOFTGPU_LANE;
	return softgpu_exchange(mask, v, (lane & (width - 1)) + (int)by >= width ? lane : lane + (int)by);
}
template <class T> static __forceinline__ T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
	int lane = SOFTGPU_LANE;
	return softgpu_exchange(mask, v, (lane & (width - 1)) < (int)by ? lane : lane - (int)by);
}

#define SOFTGPU_ATOMIC(T, type) \
	static __forceinline__ T softgpu_atom(int what, T *p, T v, T c) { \
		unsigned long long a = 0, b = 0; \
		__builtin_memcpy(&a, &v, sizeof v); \
		__builtin_memcpy(&b, &c, sizeof c); \
		a = softgpu_atomic(what, type, (void *)p, a, b); \
		__builtin_memcpy(&v, &a, sizeof v); \
		return v; \
	} \
	static __forceinline__ T atomicAdd(T *p, T v) { return softgpu_atom(0, p, v, v); } \
	static __forceinline__ T atomicExch(T *p, T v) { return softgpu_atom(5, p, v, v); }
#define SOFTGPU_ATOMIC_INT(T) \
	static __forceinline__ T atomicMax(T *p, T v) { return softgpu_atom(1, p, v, v); } \
	static __forceinline__ T atomicMin(T *p, T v) { return softgpu_atom(2, p, v, v); } \
	static __forceinline__ T atomicAnd(T *p, T v) { return softgpu_atom(3, p, v, v); } \
	static __forceinline__ T atomicOr(T *p, T v) { return softgpu_atom(4, p, v, v); } \
	static __forceinline__ T atomicXor(T *p, T v) { return softgpu_atom(7, p, v, v); } \
	static __forceinline__ T atomicCAS(T *p, T compare, T v) { return softgpu_atom(6, p, v, compare); }
SOFTGPU_ATOMIC(int, 0)
SOFTGPU_ATOMIC(unsigned, 1)
SOFTGPU_ATOMIC(unsigned long long, 2)
SOFTGPU_ATOMIC(float, 3)
SOFTGPU_ATOMIC(double, 4)
SOFTGPU_ATOMIC_INT(int)
SOFTGPU_ATOMIC_INT(unsigned)
SOFTGPU_ATOMIC_INT(unsigned long long)

static __forceinline__ unsigned __float_as_uint(float f) { unsigned u; __builtin_memcpy(&u, &f, 4); return u; }
static __forceinline__ int __float_as_int(float f) { int u; __builtin_memcpy(&u, &f, 4); return u; }
static __forceinline__ float __uint_as_float(unsigned u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
static __forceinline__ float __int_as_float(int u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
static __forceinline__ long long __double_as_longlong(double f) { long long u; __builtin_memcpy(&u, &f, 8); return u; }
static __forceinline__ double __longlong_as_double(long long u) { double f; __builtin_memcpy(&f, &u, 8); return f; }
static __forceinline__ float rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define __expf(x) expf(x)           /* declared by math.h as well */
#define __logf(x) logf(x)
static __forceinline__ float __frcp_rn(float x) { return 1.0f / x; }
static __forceinline__ float __fdividef(float a, float b) { return a / b; }
static __forceinline__ float __fdiv_rn(float a, float b) { return a / b; }
static __forceinline__ float __fsqrt_rn(float a) { return sqrtf(a); }
static __forceinline__ float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static __forceinline__ float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
/* Never contracted with what stands around. */
static __attribute__((noinline, unused)) float __fadd_rn(float a, float b) { return a + b; }
static __attribute__((noinline, unused)) float __fsub_rn(float a, float b) { return a - b; }
static __attribute__((noinline, unused)) float __fmul_rn(float a, float b) { return a * b; }
static __forceinline__ int __float2int_rn(float x) { return (int)rintf(x); }
static __forceinline__ unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static __forceinline__ unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
	return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static __forceinline__ int __popc(unsigned x) { return __builtin_popcount(x); }
static __forceinline__ int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static __forceinline__ int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static __forceinline__ int __ffs(int x) { return __builtin_ffs(x); }
static __forceinline__ unsigned __brev(unsigned x)
{
	unsigned r = 0;
	for (int i = 0; i < 32; i++)
		r |= (x >> i & 1u) << (31 - i);
	return r;
}
template <class T> static __forceinline__ T __ldg(const T *p) { return *p; }
template <class T> static __forceinline__ T __ldcs(const T *p) { return *p; }
template <class T> static __forceinline__ void __stcs(T *p, T v) { *p = v; }
static __forceinline__ size_t __cvta_generic_to_shared(const void *p) { return (size_t)p; }
static __forceinline__ void __nanosleep(unsigned) {}
#define SOFTGPU_MINMAX(T) \
	static __forceinline__ T min(T a, T b) { return b < a ? b : a; } \
	static __forceinline__ T max(T a, T b) { return a < b ? b : a; }
SOFTGPU_MINMAX(int)
SOFTGPU_MINMAX(unsigned)
SOFTGPU_MINMAX(long)
SOFTGPU_MINMAX(unsigned long)
SOFTGPU_MINMAX(long long)
SOFTGPU_MINMAX(unsigned long long)
static __forceinline__ float min(float a, float b) { return fminf(a, b); }
static __forceinline__ float max(float a, float b) { return fmaxf(a, b); }

static __forceinline__ float ptc_bf16_to_float(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
static __forceinline__ unsigned short ptc_float_to_bf16(float f)
{
	unsigned u = __float_as_uint(f);
	return f != f ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static __forceinline__ unsigned ptc_float2_to_bf16x2(float low, float high)
{
	return ptc_float_to_bf16(low) | (unsigned)ptc_float_to_bf16(high) << 16;
}
static __forceinline__ void ptc_mma_bf16_16816(float *d, const unsigned *a, const unsigned *b) { softgpu_mma(d, a, b); }
static __forceinline__ void ptc_ldmatrix_x4(unsigned *r, const void *row) { softgpu_ldmatrix(r, row, 4, 0); }
static __forceinline__ void ptc_ldmatrix_x4_trans(unsigned *r, const void *row) { softgpu_ldmatrix(r, row, 4, 1); }
static __forceinline__ void ptc_ldmatrix_x2(unsigned *r, const void *row) { softgpu_ldmatrix(r, row, 2, 0); }
static __forceinline__ void ptc_ldmatrix_x2_trans(unsigned *r, const void *row) { softgpu_ldmatrix(r, row, 2, 1); }
static __forceinline__ void ptc_cp_async16(void *shared, const void *global) { softgpu_cp_async(shared, global, 1); }
static __forceinline__ void ptc_cp_async16_if(void *shared, const void *global, bool on) { softgpu_cp_async(shared, global, on); }
static __forceinline__ void ptc_cp_commit() { softgpu_cp_commit(); }
template <int N> static __forceinline__ void ptc_cp_wait() { softgpu_cp_wait(N); }

/* Calls a kernel with arguments given by address; a module's table of kernels. */
struct softgpu_kernel {
	const char *name;
	void (*call)(void **args);
	int nargs;
	const unsigned *sizes;
};
template <unsigned... I> struct softgpu_index {};
template <unsigned N, unsigned... I> struct softgpu_count : softgpu_count<N - 1, N - 1, I...> {};
template <unsigned... I> struct softgpu_count<0, I...> { typedef softgpu_index<I...> type; };
#define SOFTGPU_PLAIN __attribute__((no_sanitize("thread")))
template <class F> struct softgpu_thunk;
template <class... A> struct softgpu_thunk<void (*)(A...)> {
	template <void (*f)(A...), unsigned... I> SOFTGPU_PLAIN static void spread(void **p, softgpu_index<I...>) { f(*(A *)p[I]...); (void)p; }
	template <void (*f)(A...)> SOFTGPU_PLAIN static void call(void **p) { spread<f>(p, typename softgpu_count<sizeof...(A)>::type()); }
	static constexpr unsigned sizes[] = {(unsigned)sizeof(A)..., 0};
	static constexpr int nargs = sizeof...(A);
};
