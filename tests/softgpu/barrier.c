/* barrier.c - what kernels call: barriers, votes, shuffles, tensor cores, asynchronous copies, atomics. */
#include "tests/softgpu/fiber.h"
#include <stdlib.h>
#include <string.h>

KERNEL_CALLS void *softgpu_shared(void);
KERNEL_CALLS void softgpu_syncthreads(void);
KERNEL_CALLS int softgpu_vote(int how, int predicate);
KERNEL_CALLS unsigned long long softgpu_shuffle(unsigned mask, unsigned long long value, int from);
KERNEL_CALLS unsigned softgpu_ballot(unsigned mask, int predicate);
KERNEL_CALLS void softgpu_syncwarp(unsigned mask);
KERNEL_CALLS unsigned softgpu_activemask(void);
KERNEL_CALLS void softgpu_mma(float *d, const unsigned *a, const unsigned *b);
KERNEL_CALLS void softgpu_ldmatrix(unsigned *r, const void *row, int n, int trans);
KERNEL_CALLS void softgpu_cp_async(void *shared, const void *global, int on);
KERNEL_CALLS void softgpu_cp_commit(void);
KERNEL_CALLS void softgpu_cp_wait(int left);
KERNEL_CALLS unsigned long long softgpu_atomic(int what, int type, void *p, unsigned long long value, unsigned long long compare);
KERNEL_CALLS void softgpu_trap(void);

#define HERE (running.at = __builtin_return_address(0))

void *softgpu_shared(void)
{
	return shared_memory;
}

void softgpu_trap(void)
{
	HERE;
	report("trap", "%s", where());
	stop_kernel(CUDA_ERROR_ASSERT);
}

/* ---- the block's barrier ---- */

_Noreturn static void fault(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void fault(const char *fmt, ...)
{
	char buf[300];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	report("barrier fault", "%s: %s", where(), buf);
	stop_kernel(CUDA_ERROR_LAUNCH_FAILED);
}

static void release_block(void)
{
	if (block.returned)
		fault("the block's barrier is passed though %d of its threads have returned", block.returned);
	epoch++;
	block.arrived = 0;
	block.voted_count = block.count;
	block.voted_all = block.all;
	block.voted_any = block.any;
	for (int w = 0; w < MAX_THREADS / WARP && warps[w].live; w++) {
		warps[w].ready = warps[w].live;
		warps[w].at_block = 0;
		block.ready |= 1u << w;
	}
}

static void arrive(int predicate)
{
	if (!block.arrived) {
		block.count = block.any = 0;
		block.all = 1;
	}
	block.count += predicate != 0;
	block.all &= predicate != 0;
	block.any |= predicate != 0;
	lanes[block.lane].at = running.at;
	warps[block.lane / WARP].at_block |= 1u << block.lane % WARP;
	lane_block();
	if (++block.arrived == block.live)
		release_block();
	lane_yield();
}

void softgpu_syncthreads(void)
{
	HERE;
	arrive(0);
}

int softgpu_vote(int how, int predicate)
{
	HERE;
	arrive(predicate);
	return how == 0 ? block.voted_count : how == 1 ? block.voted_all : block.voted_any;
}

void lane_done(int lane)
{
	struct warp *w = &warps[lane / WARP];
	if (lanes[lane].nasync)
		REPORT_FIRST(text("%s returns", running.launch->kernel->name), "asynchronous copy", "%s: returns while a cp.async is under way%s",
			     where(), lanes[lane].async[0].group == UINT_MAX ? ", which no commit has taken into a group to wait for" : "");
	free(lanes[lane].async);
	lanes[lane].async = NULL;
	lanes[lane].done = true;
	w->live &= ~(1u << lane % WARP);
	block.live--;
	block.returned++;
	if (block.arrived && block.arrived == block.live)
		release_block();
}

void say_stuck(void)
{
	int at_block = 0, at_warp = 0;
	const char *block_line = "", *warp_line = "";
	for (int i = 0; i < MAX_THREADS; i++) {
		const struct warp *w = &warps[i / WARP];
		if (w->at_block >> i % WARP & 1 && !at_block++)
			block_line = line_of(lanes[i].at);
		if (w->waiting >> i % WARP & 1 && !at_warp++)
			warp_line = line_of(lanes[i].at);
	}
	report("barrier fault", "kernel %s, block %u,%u,%u: %d threads wait at the block's barrier%s, %d at one of their warp%s, %d have "
	       "returned", running.launch->kernel->name, softgpu_ids.block.x, softgpu_ids.block.y, softgpu_ids.block.z, at_block, block_line,
	       at_warp, warp_line, block.returned);
}

/* ---- barriers of a warp ---- */

static float bf16(unsigned pair, int high)
{
	uint32_t u = high ? pair & 0xffff0000u : pair << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

/* Fragments as in the PTX manual: lane = 4 g + t. */
static void mma(struct lane *l)
{
	float a[16][16], b[16][8];
	for (int i = 0; i < WARP; i++) {
		int g = i / 4, t = i % 4;
		const unsigned *x = l[i].in[0], *y = l[i].in[1];
		for (int r = 0; r < 4; r++)
			for (int h = 0; h < 2; h++)
				a[g + 8 * (r & 1)][2 * t + h + 8 * (r >> 1)] = bf16(x[r], h);
		for (int r = 0; r < 2; r++)
			for (int h = 0; h < 2; h++)
				b[2 * t + h + 8 * r][g] = bf16(y[r], h);
	}
	for (int i = 0; i < WARP; i++)
		for (int r = 0; r < 4; r++) {
			int row = i / 4 + 8 * (r >> 1), col = 2 * (i % 4) + (r & 1);
			float sum = ((float *)l[i].out)[r];
			for (int k = 0; k < 16; k++)
				sum += a[row][k] * b[k][col];
			((float *)l[i].out)[r] = sum;
		}
}

static void ldmatrix(struct lane *l, int n, bool trans)
{
	for (int m = 0; m < n; m++)
		for (int i = 0; i < WARP; i++) {
			unsigned short half[2];
			for (int h = 0; h < 2; h++) {
				int row = trans ? 2 * (i % 4) + h : i / 4, col = trans ? i / 4 : 2 * (i % 4) + h;
				memcpy(&half[h], (const char *)l[8 * m + row].in[0] + 2 * col, 2);
			}
			((unsigned *)l[i].out)[m] = half[0] | (unsigned)half[1] << 16;
		}
}

/* All lanes of mask are there: what each gets. */
static void exchange(struct lane *l, uint32_t mask, enum warp_op op, int flags)
{
	uint64_t out[WARP];
	if (op == WARP_MMA)
		mma(l);
	if (op == WARP_LDMATRIX)
		ldmatrix(l, flags & 0xff, flags >> 8);
	if (op != WARP_SHUFFLE && op != WARP_BALLOT)
		return;
	uint64_t votes = 0;
	for (int i = 0; i < WARP; i++)
		if (mask >> i & 1)
			votes |= (uint64_t)(l[i].value & 1) << i;
	for (int i = 0; i < WARP; i++) {
		if (!(mask >> i & 1))
			continue;
		int from = l[i].from & (WARP - 1);
		if (op == WARP_SHUFFLE && !(mask >> from & 1))
			fault("a shuffle reads lane %d, which takes no part (mask 0x%08x)", from, mask);
		out[i] = op == WARP_BALLOT ? votes : l[from].value;
	}
	for (int i = 0; i < WARP; i++)
		if (mask >> i & 1)
			l[i].value = out[i];
}

static void warp_arrive(enum warp_op op, uint32_t mask, int flags)
{
	int lane = block.lane % WARP;
	struct warp *w = &warps[block.lane / WARP];
	struct lane *l = &lanes[block.lane - lane];
	if (!(mask >> lane & 1))
		fault("lane %d is not in the mask 0x%08x of its warp's barrier", lane, mask);
	if (mask & ~w->live)
		fault("a warp's barrier with mask 0x%08x: lanes 0x%08x have returned or do not exist", mask, mask & ~w->live);
	l[lane].at = running.at;
	l[lane].mask = mask;
	l[lane].op = op;
	l[lane].flags = flags;
	lane_block();
	w->waiting |= 1u << lane;
	bool all = (w->waiting & mask) == mask;
	for (int i = 0; all && i < WARP; i++) {
		all = !(mask >> i & 1) || l[i].mask == mask;
		if (all && mask >> i & 1 && (l[i].op != op || l[i].flags != flags))
			fault("lanes %d and %d of a warp are at different barriers", i, lane);
	}
	if (all) {
		exchange(l, mask, op, flags);
		w->waiting &= ~mask;
		w->syncs++;
		for (int i = 0; i < WARP; i++)
			if (mask >> i & 1)
				lane_ready(block.lane - lane + i);
	}
	lane_yield();
}

void softgpu_syncwarp(unsigned mask)
{
	HERE;
	warp_arrive(WARP_SYNC, mask, 0);
}

unsigned long long softgpu_shuffle(unsigned mask, unsigned long long value, int from)
{
	HERE;
	struct lane *l = &lanes[block.lane];
	l->value = value;
	l->from = from;
	warp_arrive(WARP_SHUFFLE, mask, 0);
	return l->value;
}

unsigned softgpu_ballot(unsigned mask, int predicate)
{
	HERE;
	struct lane *l = &lanes[block.lane];
	l->value = predicate != 0;
	warp_arrive(WARP_BALLOT, mask, 0);
	return (unsigned)l->value;
}

unsigned softgpu_activemask(void)
{
	return warps[block.lane / WARP].live;
}

void softgpu_mma(float *d, const unsigned *a, const unsigned *b)
{
	HERE;
	struct lane *l = &lanes[block.lane];
	l->out = d;
	l->in[0] = a;
	l->in[1] = b;
	warp_arrive(WARP_MMA, 0xffffffff, 0);
}

void softgpu_ldmatrix(unsigned *r, const void *row, int n, int trans)
{
	HERE;
	struct lane *l = &lanes[block.lane];
	if (block.lane % WARP < 8 * n) {
		if ((uint64_t)row % 16)
			report("misaligned", "%s: a row of ldmatrix is not aligned to 16 bytes", where());
		if ((size_t)((const char *)row - shared_memory) + 16 > running.shared) {
			report("out of bounds", "%s: a row of ldmatrix does not lie in shared memory", where());
			stop_kernel(CUDA_ERROR_ILLEGAL_ADDRESS);
		}
		if (cfg.check)
			check_access(row, 16, false);
	}
	l->out = r;
	l->in[0] = row;
	warp_arrive(WARP_LDMATRIX, 0xffffffff, n | trans << 8);
}

/* ---- asynchronous copies: moved when waited for, which is as late as can be ---- */

void softgpu_cp_async(void *shared, const void *global, int on)
{
	HERE;
	struct lane *l = &lanes[block.lane];
	if ((size_t)((const char *)shared - shared_memory) + 16 > running.shared || (on && mem_device(global) < 0)) {
		report("out of bounds", "%s: cp.async not from device to shared memory", where());
		stop_kernel(CUDA_ERROR_ILLEGAL_ADDRESS);
	}
	if ((uint64_t)shared % 16 || (on && (uint64_t)global % 16)) {
		report("misaligned", "%s: cp.async of addresses that are not aligned to 16 bytes", where());
		stop_kernel(CUDA_ERROR_MISALIGNED_ADDRESS);
	}
	if (cfg.check && on)
		check_access(global, 16, false);
	if (cfg.check)
		check_async(shared, 16, false);
	if (l->nasync == l->casync) {
		l->casync = l->casync ? 2 * l->casync : 8;
		l->async = must(realloc(l->async, (size_t)l->casync * sizeof *l->async));
	}
	l->async[l->nasync++] = (struct async_copy){shared, on ? global : NULL, UINT_MAX};
}

void softgpu_cp_commit(void)
{
	struct lane *l = &lanes[block.lane];
	for (int i = 0; i < l->nasync; i++)
		if (l->async[i].group == UINT_MAX)
			l->async[i].group = l->groups;
	l->groups++;
}

void softgpu_cp_wait(int left)
{
	HERE;
	struct lane *l = &lanes[block.lane];
	int kept = 0;
	for (int i = 0; i < l->nasync; i++) {
		struct async_copy c = l->async[i];
		if (c.group == UINT_MAX || (int)(l->groups - c.group) <= left) {
			l->async[kept++] = c;
			continue;
		}
		if (c.from)
			memcpy(c.to, c.from, 16);
		else
			memset(c.to, 0, 16);
		if (cfg.check)
			check_async(c.to, 16, true);
	}
	l->nasync = kept;
}

/* ---- atomics ---- */

#define ATOMIC(T, INTEGER) \
	do { \
		T old, v, c, r; \
		memcpy(&old, p, sizeof old); \
		memcpy(&v, &value, sizeof v); \
		memcpy(&c, &compare, sizeof c); \
		r = what == 0 ? (T)(old + v) : what == 1 ? (old < v ? v : old) : what == 2 ? (v < old ? v : old) : \
			what == 6 ? (memcmp(&old, &c, sizeof c) ? old : v) : v; \
		INTEGER; \
		memcpy(p, &r, sizeof r); \
		memcpy(&before, &old, sizeof old); \
	} while (0)
#define BITS (r = what == 3 ? old & v : what == 4 ? old | v : what == 7 ? old ^ v : r)

unsigned long long softgpu_atomic(int what, int type, void *p, unsigned long long value, unsigned long long compare)
{
	HERE;
	static const unsigned char sizes[] = {4, 4, 8, 4, 8};
	unsigned long long before = 0;
	if (cfg.check)
		check_atomic(p, sizes[type]);
	switch (type) {
	case 0: ATOMIC(int32_t, BITS); break;
	case 1: ATOMIC(uint32_t, BITS); break;
	case 2: ATOMIC(uint64_t, BITS); break;
	case 3: ATOMIC(float, (void)0); break;
	default: ATOMIC(double, (void)0);
	}
	return before;
}
