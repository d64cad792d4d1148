/* check.c - every load and store of kernels and libraries: bounds, alignment, races, what was never written.
 *
 * For each 4 bytes a cell remembers who wrote and read last: the epoch (barrier of a block, or operation of a library),
 * the thread, how many barriers its warp had passed, which of the bytes. Two accesses, one a write, are in order if
 * - in one block: they are of one thread, or a barrier of the block lies between, or one of their warp;
 * - in one launch, different blocks: never, unless both are atomic;
 * - in different operations: the first is in the clock of the second. */
#include "tests/softgpu/softgpu.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WRITERS = 2, READERS = 3, SLOTS = WRITERS + READERS };
struct access {
	uint32_t epoch;             /* 0: none */
	uint32_t thread : 10, bytes : 4, atomic : 1, landing : 1, syncs : 16;
};
struct cell {
	struct access of[SLOTS];    /* writers first */
	uint32_t block;             /* shared memory: init is of the block with this first epoch */
	uint8_t init;               /* bytes that were written */
};
enum kind { READ, TAKE, WRITE, ATOMIC, ASYNC, LANDED };

char *stacks_from, *stacks_to;
static struct cell *device_cells, *shared_cells;

void check_open(void)
{
	if (device_cells)
		return;
	size_t n = mem_watched() / 4 * sizeof(struct cell), s = SHARED_LIMIT / 4 * sizeof(struct cell);
	void *p = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);     /* opened by check_forget */
	void *q = mmap(NULL, s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || q == MAP_FAILED)
		must(NULL);
	device_cells = p;
	shared_cells = q;
}

/* Who accesses now. */
struct now {
	const struct node *node;
	const char *what;
	uint32_t launch, block;     /* first epochs */
	struct access me;
};

static struct now of_thread(void)
{
	return (struct now){running.node, running.node->what, running.first_epoch, running.block_epoch,
			    {epoch, running.thread & 1023, 0, 0, 0, running.warp_sync & 0xffff}};
}

static struct now of_library(const struct node *n)
{
	return (struct now){n, n->what, epoch, epoch, {.epoch = epoch}};
}

/* ---- order ---- */

/* Did the operation of that epoch come before the node, surely? */
static bool happened(uint32_t e, const struct node *n)
{
	static struct {
		uint32_t from, to;
		const struct node *node;
		uint32_t tick;
		bool before;
	} memo[16];
	unsigned k = e % 16;
	if (memo[k].node == n && memo[k].tick == n->tick && e >= memo[k].from && e < memo[k].to)
		return memo[k].before;
	const struct op_record *o = op_of(e);
	memo[k].from = o->epoch;
	memo[k].to = op_end(o);
	memo[k].node = n;
	memo[k].tick = n->tick;
	bool same = o->chain == n->chain && o->tick == n->tick;
	return memo[k].before = same || clock_at(&n->clock, o->chain) >= o->tick;
}

static bool in_order(const struct access *a, const struct now *w)
{
	if (a->epoch < w->launch)
		return happened(a->epoch, w->node);
	if (a->epoch < w->block)
		return false;
	if (a->thread == w->me.thread || a->epoch != w->me.epoch)
		return true;
	return a->thread / WARP == w->me.thread / WARP && a->syncs != w->me.syncs;
}

/* ---- reports ---- */

static const char *who(const struct access *a, const struct now *w)
{
	if (a->epoch >= w->block)
		return text("thread %u of the same block", (unsigned)a->thread);
	if (a->epoch >= w->launch)
		return text("thread %u of another block", (unsigned)a->thread);
	return op_of(a->epoch)->what;
}

static const char *place(const void *p)
{
	if (p >= (void *)shared_memory && p < (void *)(shared_memory + SHARED_LIMIT))
		return text("shared memory, byte %zu", (size_t)((const char *)p - shared_memory));
	const struct allocation *a = mem_find(p);
	if (!a)
		return text("memory of gpu%d", mem_device(p));
	const char *of = mem_device(p) < 0 ? "pinned memory" : text("an allocation of gpu%d", mem_device(p));
	return text("byte %zu of %zu of %s", (size_t)((const char *)p - a->at), a->bytes, of);
}

static const char *me(const struct now *w)
{
	return running.node ? where() : w->what;
}

static void say_race(const struct now *w, const void *p, const struct access *a, bool first_wrote, enum kind kind)
{
	const char *does = kind == READ || kind == TAKE ? "reads" : kind == ATOMIC ? "adds to" : "writes";
	bool same = a->epoch >= w->launch;
	const char *kind_name = a->landing ? "asynchronous copy" : same ? "race" : "missing wait";
	const char *other = same ? "itself" : op_of(a->epoch)->what;
	REPORT_FIRST(text("%s / %s", w->what, other), kind_name, "%s %s %s, which %s %s, without %s between", me(w), does, place(p), who(a, w),
		     a->landing ? "copies to asynchronously" : first_wrote ? "wrote" : "read",
		     a->landing ? "its cp.async waited for" : same ? "a barrier" : "a wait or an event");
}

/* ---- cells ---- */

static void note(struct cell *c, const struct now *w, bool write, struct access me_now)
{
	struct access *s = c->of + (write ? 0 : WRITERS);
	int n = write ? WRITERS : READERS, at = n - 1;
	for (int i = 0; i < n; i++)
		if (s[i].epoch == me_now.epoch && s[i].thread == me_now.thread && s[i].syncs == me_now.syncs) {
			me_now.bytes |= s[i].bytes;
			s[i] = me_now;
			return;
		}
	for (int i = 0; i < n; i++)
		if (!s[i].epoch || (!(s[i].bytes & ~me_now.bytes) && in_order(&s[i], w))) {
			s[i] = me_now;
			return;
		}
	/* Those of other warps tell more. */
	for (int i = 0; i < n; i++)
		if (s[i].epoch == me_now.epoch && s[i].thread / WARP == me_now.thread / WARP)
			at = i;
	s[at] = me_now;
}

static void touch(struct cell *c, const struct now *w, const void *p, unsigned bytes, enum kind kind)
{
	bool write = kind != READ && kind != TAKE;
	for (int i = 0; i < (write ? SLOTS : WRITERS); i++) {
		const struct access *a = &c->of[i];
		if (!a->epoch || !(a->bytes & bytes) || (kind == ATOMIC && a->atomic))
			continue;
		bool landing = a->landing && a->epoch >= w->block && (kind != LANDED || a->thread != w->me.thread);
		if (landing || !in_order(a, w))
			say_race(w, p, a, i < WRITERS, kind);
	}
	for (int i = 0; i < WRITERS && kind == LANDED; i++)
		if (c->of[i].landing && c->of[i].thread == w->me.thread && c->of[i].epoch >= w->block)
			c->of[i] = (struct access){0};
	struct access now_me = w->me;
	now_me.bytes = bytes & 15;
	now_me.atomic = kind == ATOMIC;
	now_me.landing = kind == ASYNC;
	note(c, w, write, now_me);
}

/* All cells of a range, of device or shared memory. */
static void touch_all(const struct now *w, const char *p, size_t len, enum kind kind, struct cell *cells, const char *base, bool shared)
{
	size_t from = (size_t)(p - base), to = from + len;
	unsigned never = 0;
	const char *never_at = p;
	for (size_t i = from / 4; i * 4 < to; i++) {
		unsigned bytes = 15;
		if (i * 4 < from)
			bytes &= 15u << (from - i * 4);
		if (i * 4 + 4 > to)
			bytes &= 15u >> (i * 4 + 4 - to);
		struct cell *c = &cells[i];
		if (shared && c->block != w->block)
			*c = (struct cell){.block = w->block};
		if ((kind == READ || kind == ATOMIC) && bytes & ~c->init & 15u && !never++)
			never_at = base + i * 4;
		touch(c, w, base + i * 4, bytes, kind);
		if (kind == WRITE || kind == ATOMIC || kind == LANDED)
			c->init |= (uint8_t)bytes;
	}
	if (never)
		REPORT_FIRST(w->what, "uninitialised", "%s reads %s, which nothing has written", me(w), place(never_at));
}

static void touch_device(const struct now *w, const void *p, size_t len, enum kind kind)
{
	touch_all(w, p, len, kind, device_cells, mem_bytes, false);
}

void check_range(const struct node *n, const void *bytes, size_t len, bool write)
{
	struct now w = of_library(n);
	touch_device(&w, bytes, len, write ? WRITE : READ);
}

void check_take(const struct node *n, const void *bytes, size_t len)
{
	struct now w = of_library(n);
	touch_device(&w, bytes, len, TAKE);
}

void check_init_get(const void *bytes, size_t len, unsigned char *init)
{
	size_t at = (size_t)((const char *)bytes - mem_bytes);
	for (size_t i = 0; i < len; i++)
		init[i] = device_cells[(at + i) / 4].init >> (at + i) % 4 & 1;
}

void check_init_put(const void *bytes, size_t len, const unsigned char *init)
{
	size_t at = (size_t)((const char *)bytes - mem_bytes);
	for (size_t i = 0; i < len; i++) {
		struct cell *c = &device_cells[(at + i) / 4];
		c->init = (uint8_t)((c->init & ~(1u << (at + i) % 4)) | (unsigned)init[i] << (at + i) % 4);
	}
}

void check_forget(const void *bytes, size_t len)
{
	/* bytes and len are of whole pages, and so are their cells: dropped, they are zero. */
	if (!device_cells)
		return;
	struct cell *c = &device_cells[((const char *)bytes - mem_bytes) / 4];
	if (mprotect(c, len / 4 * sizeof *c, PROT_READ | PROT_WRITE) || madvise(c, len / 4 * sizeof *c, MADV_DONTNEED))
		must(NULL);
}

/* ---- kernels ---- */

_Noreturn static void bad_address(const char *kind, const void *p, size_t len, bool write, const char *why)
{
	REPORT_FIRST(running.node->what, kind, "%s %s %zu bytes %s", where(), write ? "writes" : "reads", len, why);
	(void)p;
	stop_kernel(CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void check_bounds(const char *p, size_t len, bool write)
{
	const struct declared *d = running.launch->declared;
	static const struct range *last;
	if (!d) {
		const struct allocation *a = mem_find(p);
		if (mem_device(p) != running.node->dev)
			bad_address("out of bounds", p, len, write, "in memory of another GPU");
		if (!a || (size_t)(p - a->at) + len > a->bytes)
			bad_address("out of bounds", p, len, write, a ? text("over the end of %s", place(p)) : mem_near(p));
		return;
	}
	if (last >= d->range && last < d->range + d->n && p >= last->from && p + len <= last->to && (last->writable || !write))
		return;
	bool inside = false;
	for (int i = 0; i < d->n; i++)
		if (p >= d->range[i].from && p + len <= d->range[i].to) {
			inside = true;
			last = &d->range[i];
			if (last->writable || !write)
				return;
		}
	bad_address("out of bounds", p, len, write,
		    text(inside ? "in a range declared to be only read: %s" : "outside of the declared ranges: %s", place(p)));
}

static void access_by_thread(const char *p, size_t len, enum kind kind)
{
	bool write = kind != READ && kind != TAKE;
	struct now w = of_thread();
	if ((size_t)(p - shared_memory) < SHARED_LIMIT) {
		if ((size_t)(p - shared_memory) + len > running.shared)
			bad_address("out of bounds", p, len, write, text("of shared memory from byte %zu; the launch has %u",
								     (size_t)(p - shared_memory), running.shared));
		touch_all(&w, p, len, kind, shared_cells, shared_memory, true);
	} else if (mem_device(p) >= 0) {
		check_bounds(p, len, write);
		touch_device(&w, p, len, kind);
	} else if ((uint64_t)p < 4096) {
		bad_address("out of bounds", p, len, write, "at a null pointer");
	} else if (is_handed((uint64_t)p)) {
		bad_address("bad pointer", p, len, write, "through a device address that was not an argument");
	}
}

void check_access(const void *p, size_t len, bool write)
{
	access_by_thread(p, len, write ? WRITE : READ);
}

void check_atomic(const void *p, size_t len)
{
	access_by_thread(p, len, ATOMIC);
}

void check_async(const void *shared, size_t len, bool landed)
{
	access_by_thread(shared, len, landed ? LANDED : ASYNC);
}

/* ---- the hooks: what the compiler calls before each access ---- */

#define HOOK __attribute__((visibility("default"))) void
static void hook(const char *p, size_t len, bool write, bool aligned)
{
	if (!running.node || (p >= stacks_from && p < stacks_to))
		return;
	if (aligned && (uint64_t)p % len && (mem_device(p) >= 0 || (size_t)(p - shared_memory) < SHARED_LIMIT)) {
		REPORT_FIRST(running.node->what, "misaligned", "%s %s %zu bytes at once, %s", where(), write ? "writes" : "reads", len, place(p));
		stop_kernel(CUDA_ERROR_MISALIGNED_ADDRESS);
	}
	access_by_thread(p, len, write ? WRITE : READ);
}

#define HERE (running.at = __builtin_return_address(0))
#define HOOKS(N) \
	HOOK __tsan_read##N(const void *p); \
	HOOK __tsan_write##N(const void *p); \
	HOOK __tsan_unaligned_read##N(const void *p); \
	HOOK __tsan_unaligned_write##N(const void *p); \
	HOOK __tsan_read##N(const void *p) { HERE; hook(p, N, false, true); } \
	HOOK __tsan_write##N(const void *p) { HERE; hook(p, N, true, true); } \
	HOOK __tsan_unaligned_read##N(const void *p) { HERE; hook(p, N, false, false); } \
	HOOK __tsan_unaligned_write##N(const void *p) { HERE; hook(p, N, true, false); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

HOOK __tsan_init(void);
HOOK __tsan_read_range(const void *p, size_t len);
HOOK __tsan_write_range(const void *p, size_t len);
HOOK __tsan_vptr_update(void **p, void *v);
HOOK __tsan_init(void) {}
HOOK __tsan_read_range(const void *p, size_t len) { HERE; hook(p, len, false, false); }
HOOK __tsan_write_range(const void *p, size_t len) { HERE; hook(p, len, true, false); }
HOOK __tsan_vptr_update(void **p, void *v) { (void)p; (void)v; }
