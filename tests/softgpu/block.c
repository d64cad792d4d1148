/* block.c - runs the blocks of a launch, one after another, a fiber for each thread of a block.
 *
 * A thread runs until it must wait for others; then the next ready thread goes on, of the same warp first. A thread that
 * never waits needs no switch: the next one starts on its stack. */
#include "tests/softgpu/fiber.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK = 256 << 10, NWARP = MAX_THREADS / WARP };
struct ids softgpu_ids;
struct running running;
char *shared_memory;
struct lane lanes[MAX_THREADS];
struct warp warps[NWARP];
struct block block;
static struct {
	void *main;                 /* stack pointer of run_blocks while fibers run */
	char *stacks;               /* each with a page below that cannot be touched */
	int free[MAX_THREADS], nfree;
	int guarded;                /* of the stacks, the first so many */
	bool stopped;
	CUresult error;
} fib;

/* ---- switching ---- */

#if defined(__x86_64__) && !defined(SOFTGPU_UCONTEXT)
/* Keeps the registers that a call keeps, on the old stack, and goes on where `to` was left. */
__attribute__((naked, noinline)) static void switch_stack(void **save __attribute__((unused)), void *to __attribute__((unused)))
{
	__asm__("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
		"movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
		"popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

static void *new_stack(char *stack, void (*start)(void))
{
	void **top = (void **)(stack + STACK);
	*--top = NULL;                          /* as if called: the stack pointer is 8 off 16 */
	*--top = (void *)(uintptr_t)start;
	top -= 6;
	memset(top, 0, 6 * sizeof *top);
	return top;
}
#else
#include <ucontext.h>
static ucontext_t contexts[MAX_THREADS + 1];
static void switch_stack(void **save, void *to)
{
	*save = save == &fib.main ? &contexts[MAX_THREADS] : &contexts[(struct lane *)((char *)save - offsetof(struct lane, sp)) - lanes];
	swapcontext(*save, to);
}

static void *new_stack(char *stack, void (*start)(void))
{
	ucontext_t *c = &contexts[block.lane];
	getcontext(c);
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = STACK;
	c->uc_link = NULL;
	makecontext(c, start, 0);
	return c;
}
#endif

static bool open_once(void)
{
	if (fib.stacks)
		return true;
	char *p = mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	shared_memory = mmap(NULL, SHARED_LIMIT + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || (void *)shared_memory == MAP_FAILED)
		return false;
	fib.stacks = stacks_from = p;
	stacks_to = p + (size_t)MAX_THREADS * STACK;
	return true;
}

/* ---- which thread is next ---- */

static int low(uint32_t m)
{
	return cfg.order == LIFO ? 31 - __builtin_clz(m) : __builtin_ctz(m);
}

static int random_bit(uint32_t m)
{
	static uint64_t state;
	state = state ? state : cfg.seed * 2 + 1;
	for (int skip = (int)(random_next(&state) % (unsigned)__builtin_popcount(m)); skip; skip--)
		m &= m - 1;
	return __builtin_ctz(m);
}

static int pick(void)
{
	int w = block.lane / WARP;
	if (cfg.order == RANDOM || !warps[w].ready) {
		if (!block.ready)
			return -1;
		w = cfg.order == RANDOM ? random_bit(block.ready) : low(block.ready);
	}
	return w * WARP + (cfg.order == RANDOM ? random_bit(warps[w].ready) : low(warps[w].ready));
}

void lane_ready(int lane)
{
	warps[lane / WARP].ready |= 1u << lane % WARP;
	block.ready |= 1u << lane / WARP;
}

void lane_block(void)
{
	struct warp *w = &warps[block.lane / WARP];
	w->ready &= ~(1u << block.lane % WARP);
	if (!w->ready)
		block.ready &= ~(1u << block.lane / WARP);
}

static void set_current(int lane)
{
	block.lane = lane;
	softgpu_ids.thread.x = (unsigned)lane % softgpu_ids.block_dim.x;
	softgpu_ids.thread.y = (unsigned)lane / softgpu_ids.block_dim.x % softgpu_ids.block_dim.y;
	softgpu_ids.thread.z = (unsigned)lane / softgpu_ids.block_dim.x / softgpu_ids.block_dim.y;
	running.thread = (unsigned)lane;
	running.warp_sync = warps[lane / WARP].syncs;
}

static void lane_main(void)
{
	for (;;) {
		running.launch->kernel->call(running.launch->arg);
		int me = block.lane;
		lane_block();
		lane_done(me);
		int next = pick();
		if (next >= 0 && !lanes[next].started) {
			lanes[next].started = true;
			lanes[next].stack = lanes[me].stack;
			set_current(next);
			continue;
		}
		fib.free[fib.nfree++] = lanes[me].stack;
		if (next >= 0)
			set_current(next);
		switch_stack(&lanes[me].sp, next < 0 ? fib.main : lanes[next].sp);
	}
}

/* To another thread, which may not have begun. */
static void go(void **save, int next)
{
	set_current(next);
	if (!lanes[next].started) {
		lanes[next].started = true;
		int s = lanes[next].stack = fib.free[--fib.nfree];
		char *stack = fib.stacks + (size_t)s * STACK;
		for (; fib.guarded <= s; fib.guarded++)
			mprotect(fib.stacks + (size_t)fib.guarded * STACK, 4096, PROT_NONE);
		lanes[next].sp = new_stack(stack, lane_main);
	}
	switch_stack(save, lanes[next].sp);
}

void lane_yield(void)
{
	int me = block.lane, next = pick();
	if (next == me) {
		set_current(me);        /* the count of its warp's barriers went on */
		return;
	}
	if (next < 0)
		switch_stack(&lanes[me].sp, fib.main);
	else
		go(&lanes[me].sp, next);
}

void stop_kernel(CUresult error)
{
	fib.stopped = true;
	fib.error = error;
	void *lost;
#if defined(__x86_64__) && !defined(SOFTGPU_UCONTEXT)
	switch_stack(&lost, fib.main);
#else
	(void)lost;
	switch_stack(&lanes[block.lane].sp, fib.main);
#endif
	abort();
}

/* ---- blocks ---- */

const char *where(void)
{
	return text("kernel %s%s, block %u,%u,%u, thread %u,%u,%u", running.launch->kernel->name, line_of(running.at), softgpu_ids.block.x,
		    softgpu_ids.block.y, softgpu_ids.block.z, softgpu_ids.thread.x, softgpu_ids.thread.y, softgpu_ids.thread.z);
}

static void start_block(int threads)
{
	block = (struct block){.live = threads, .lane = 0};
	memset(lanes, 0, (size_t)threads * sizeof *lanes);
	memset(warps, 0, sizeof warps);
	for (int i = 0; i < threads; i++) {
		warps[i / WARP].live |= 1u << i % WARP;
		lane_ready(i);
	}
	fib.nfree = 0;
	for (int i = MAX_THREADS - 1; i >= 0; i--)
		fib.free[fib.nfree++] = i;
	running.block_epoch = ++epoch;
	memset(shared_memory, 0xff, running.shared);
}

static bool run_block(int threads)
{
	start_block(threads);
	go(&fib.main, pick());
	if (!fib.stopped && block.live) {
		say_stuck();
		fib.error = CUDA_ERROR_LAUNCH_TIMEOUT;
		return false;
	}
	return !fib.stopped;
}

bool run_blocks(const struct launch *l, struct node *n, CUresult *error)
{
	if (!open_once())
		must(NULL);
	fib.stopped = false;
	running = (struct running){.node = n, .launch = l, .first_epoch = epoch, .shared = l->shared};
	softgpu_ids.block_dim = (struct uint3){l->block[0], l->block[1], l->block[2]};
	softgpu_ids.grid_dim = (struct uint3){l->grid[0], l->grid[1], l->grid[2]};
	int threads = (int)(l->block[0] * l->block[1] * l->block[2]);
	uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
	bool good = true;
	for (uint64_t i = 0; i < blocks && good; i++) {
		uint64_t b = cfg.order == LIFO ? blocks - 1 - i : i;
		softgpu_ids.block = (struct uint3){(unsigned)(b % l->grid[0]), (unsigned)(b / l->grid[0] % l->grid[1]),
						   (unsigned)(b / l->grid[0] / l->grid[1])};
		good = run_block(threads);
	}
	running = (struct running){0};
	*error = fib.error;
	return good;
}
