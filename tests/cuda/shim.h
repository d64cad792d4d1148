/* tests/cuda/shim.h - stands before generated CUDA text when the host's C++ compiler takes it: threads of a block as
 * fibers, one block after the other. Shared memory is fresh NaN for each block. */
#define PTC_SOFTGPU 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <utility>
#include <stdint.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __expf(x) expf(x)
#define __align__(n) __attribute__((aligned(n)))
#define PTC_DYN_SHARED(T, name) T *name = (T *)shim.shared

struct shim_dim { unsigned x, y, z; };
static shim_dim threadIdx, blockIdx, blockDim, gridDim;
enum { SHIM_MOST = 1024, SHIM_STACK = 128 * 1024, SHIM_SHARED = 256 * 1024 };
enum shim_wait { RUNS, AT_BARRIER, AT_WARP, GONE };
static struct {
	ucontext_t main, at[SHIM_MOST];
	char *stack;
	shim_wait state[SHIM_MOST];
	int n, me;
	uint64_t slot[SHIM_MOST][2];
	int turn[SHIM_MOST];
	void (*fn)(void **);
	void **args;
	__align__(128) unsigned char shared[SHIM_SHARED];
} shim;

static void shim_stop(shim_wait why)
{
	shim.state[shim.me] = why;
	swapcontext(&shim.at[shim.me], &shim.main);
}
static void shim_thread()
{
	shim.fn(shim.args);
	shim_stop(GONE);
}
static inline void __syncthreads()
{
	shim_stop(AT_BARRIER);
}
static inline void __syncwarp(unsigned = 0xffffffffu)
{
	shim_stop(AT_WARP);
}
/* Everybody of the warp writes, then reads; slots are used in turn. */
static uint64_t *shim_share(uint64_t x)
{
	int t = shim.turn[shim.me] ^= 1;
	shim.slot[shim.me][t] = x;
	shim_stop(AT_WARP);
	return &shim.slot[shim.me & ~31][t];
}
template <class T> static inline T shim_read(const uint64_t *s, int lane)
{
	T y;
	memcpy(&y, s + 2 * lane, sizeof y);
	return y;
}
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int mask)
{
	uint64_t w = 0;
	memcpy(&w, &x, sizeof x);
	return shim_read<T>(shim_share(w), (shim.me & 31) ^ mask);
}
template <class T> static inline T __shfl_sync(unsigned, T x, int lane)
{
	uint64_t w = 0;
	memcpy(&w, &x, sizeof x);
	return shim_read<T>(shim_share(w), lane & 31);
}
static inline unsigned __ballot_sync(unsigned, int p)
{
	const uint64_t *s = shim_share(p != 0);
	unsigned r = 0;
	for (int i = 0; i < 32 && (shim.me & ~31) + i < shim.n; i++)
		r |= (unsigned)s[2 * i] << i;
	return r;
}

/* bf16 fragments as in the PTX manual, m16n8k16 */
static inline float shim_bf16(uint32_t w, int i)
{
	uint32_t u = i ? w & 0xffff0000u : w << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
static inline void ptc_mma_bf16_16816(float *d, const uint32_t *a, const uint32_t *b)
{
	static uint32_t all[SHIM_MOST / 32][2][32][6];
	int w = shim.me / 32, l = shim.me & 31, t = shim.turn[shim.me] ^= 1;
	memcpy(all[w][t][l], a, 16);
	memcpy(all[w][t][l] + 4, b, 8);
	shim_stop(AT_WARP);
	for (int i = 0; i < 4; i++) {
		int row = l / 4 + i / 2 * 8, col = l % 4 * 2 + i % 2;
		float sum = 0;
		for (int k = 0; k < 16; k++) {
			int la = row % 8 * 4 + k % 8 / 2, ra = row / 8 + k / 8 * 2;
			int lb = col * 4 + k % 8 / 2, rb = k / 8;
			sum += shim_bf16(all[w][t][la][ra], k & 1) * shim_bf16(all[w][t][lb][4 + rb], k & 1);
		}
		d[i] += sum;
	}
}
static inline void shim_ldmatrix(uint32_t *r, const void *row, bool trans)
{
	const uint64_t *s = shim_share((uint64_t)(uintptr_t)row);
	int l = shim.me & 31;
	for (int m = 0; m < 4; m++)
		for (int h = 0; h < 2; h++) {
			int i = trans ? l % 4 * 2 + h : l / 4, j = trans ? l / 4 : l % 4 * 2 + h;
			uint16_t x = ((const uint16_t *)(uintptr_t)s[2 * (8 * m + i)])[j];
			r[m] = h ? r[m] | (uint32_t)x << 16 : x;
		}
	shim_stop(AT_WARP);
}
static inline void ptc_ldmatrix_x4(uint32_t *r, const void *row)
{
	shim_ldmatrix(r, row, false);
}
static inline void ptc_ldmatrix_x4_trans(uint32_t *r, const void *row)
{
	shim_ldmatrix(r, row, true);
}
/* Copies arrive when they are waited for, as late as they may. */
struct shim_copy { void *to; const void *from; int group; };
static struct { shim_copy at[4096]; int n, group; } shim_copies[SHIM_MOST];
static inline void ptc_cp_async16(void *to, const void *from)
{
	auto *c = &shim_copies[shim.me];
	c->at[c->n++] = { to, from, c->group };
}
static inline void ptc_cp_commit()
{
	shim_copies[shim.me].group++;
}
template <int N> static inline void ptc_cp_wait()
{
	auto *c = &shim_copies[shim.me];
	int k = 0;
	for (int i = 0; i < c->n; i++)
		if (c->at[i].group < c->group - N)
			memcpy(c->at[i].to, c->at[i].from, 16);
		else
			c->at[k++] = c->at[i];
	c->n = k;
}

static void shim_release()
{
	int waits = 0, alive = 0;
	for (int i = 0; i < shim.n; i++) {
		alive += shim.state[i] != GONE;
		waits += shim.state[i] == AT_BARRIER;
	}
	if (alive && waits == shim.n) {
		for (int i = 0; i < shim.n; i++)
			shim.state[i] = RUNS;
		return;
	}
	bool any = false;
	for (int w = 0; w < shim.n; w += 32) {
		int k = 0;
		for (int i = w; i < w + 32; i++)
			k += shim.state[i] == AT_WARP;
		for (int i = w; i < w + 32 && k == 32; i++)
			shim.state[i] = RUNS;
		any |= k == 32;
	}
	if (alive && !any) {
		fprintf(stderr, "threads of a block wait for each other\n");
		abort();
	}
}
extern "C" void shim_run(void (*fn)(void **), void **args, unsigned grid, unsigned block, unsigned shared)
{
	if (!shim.stack)
		shim.stack = (char *)malloc((size_t)SHIM_MOST * SHIM_STACK);
	if (block % 32 || block > SHIM_MOST || shared > SHIM_SHARED)
		abort();
	shim.fn = fn;
	shim.args = args;
	shim.n = (int)block;
	gridDim = { grid, 1, 1 };
	blockDim = { block, 1, 1 };
	for (unsigned b = 0; b < grid; b++) {
		blockIdx = { b, 0, 0 };
		memset(shim.shared, 0xff, shared);
		for (int i = 0; i < shim.n; i++) {
			getcontext(&shim.at[i]);
			shim.at[i].uc_stack.ss_sp = shim.stack + (size_t)i * SHIM_STACK;
			shim.at[i].uc_stack.ss_size = SHIM_STACK;
			makecontext(&shim.at[i], shim_thread, 0);
			shim.state[i] = RUNS;
			shim.turn[i] = 0;
		}
		for (int left = shim.n; left;) {
			bool ran = false;
			for (int i = 0; i < shim.n; i++) {
				if (shim.state[i] != RUNS)
					continue;
				ran = true;
				shim.me = i;
				threadIdx = { (unsigned)i, 0, 0 };
				swapcontext(&shim.main, &shim.at[i]);
				left -= shim.state[i] == GONE;
			}
			if (!ran)
				shim_release();
		}
	}
}
template <class... A, size_t... I> static void shim_call(void (*f)(A...), void **p, std::index_sequence<I...>)
{
	f(*(A *)p[I]...);
}
template <class... A> static void shim_thunk(void (*f)(A...), void **p)
{
	shim_call(f, p, std::index_sequence_for<A...>());
}
