/* tests/softgpu/fiber.h - private: threads of the block that runs, between block.c (switches) and barrier.c (who waits for whom). */
#ifndef SOFTGPU_FIBER_H
#define SOFTGPU_FIBER_H
#include "tests/softgpu/softgpu.h"

struct uint3 {
	unsigned x, y, z;
};
struct ids {
	struct uint3 thread, block, block_dim, grid_dim;
};
#define KERNEL_CALLS __attribute__((visibility("default")))
KERNEL_CALLS extern struct ids softgpu_ids;

enum { ASYNC_MAX = 64, GROUPS_MAX = 64 };
struct async_copy {
	char *to;
	const char *from;           /* NULL: zeros */
	unsigned group;
};
enum warp_op { WARP_SYNC, WARP_SHUFFLE, WARP_BALLOT, WARP_MMA, WARP_LDMATRIX };
struct lane {
	void *sp;
	int stack;
	bool started, done;
	const void *at;             /* code that called the barrier */
	/* at a barrier of its warp: with whom, for what, with what */
	uint32_t mask;
	enum warp_op op;
	int from, flags;            /* lane that it reads; ldmatrix: matrices, transposed << 8 */
	uint64_t value;             /* in, then out */
	void *out;
	const void *in[2];
	struct async_copy *async;   /* not landed */
	int nasync, casync;
	unsigned groups;            /* committed */
};
struct warp {
	uint32_t live, ready, waiting, at_block;    /* lanes, as bits */
	unsigned syncs;             /* barriers of the warp passed in this block */
};
struct block {
	int lane;                   /* that runs */
	int live;                   /* threads that have not returned */
	int arrived;                /* at the block's barrier */
	int returned;               /* threads */
	uint32_t ready;             /* warps with ready lanes */
	int count, all, any;        /* of a vote: predicates that hold; all do; some does */
	int voted_count, voted_all, voted_any;
};
extern struct lane lanes[MAX_THREADS];
extern struct warp warps[MAX_THREADS / WARP];
extern struct block block;

void lane_ready(int lane);
void lane_block(void);              /* the running thread is not ready, */
void lane_yield(void);              /* others run until it is */
void lane_done(int lane);
void say_stuck(void);               /* no thread can go on: which wait for what */

#endif
