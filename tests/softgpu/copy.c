/* copy.c - driver: copies and fills.
 *
 * Pinned host memory is read and written when the copy runs, pageable memory is read when the call is made, and a copy to
 * it is over when the call returns. */
#include "tests/softgpu/api.h"
#include <stdlib.h>
#include <string.h>

struct copy {
	struct work work;
	int pattern;                /* bytes of a fill's value; 0: a copy */
	uint32_t value;
	char *dst;
	const char *src;
	char *snapshot;             /* src at the time of the call */
	size_t bytes;
};

static void copy_drop(struct work *w)
{
	free(((struct copy *)w)->snapshot);
}

static bool watched(const void *p)
{
	return mem_find(p);
}

/* What was not initialised is not after a copy; no fault so far. What the host has written is not known: all of its memory
 * counts as initialised. */
static void check_bytes(const struct node *n, const struct copy *c)
{
	bool from = !c->pattern && !c->snapshot && watched(c->src), to = watched(c->dst), both = from && to && mem_device(c->src) >= 0;
	unsigned char *init = both ? must(malloc(c->bytes + 1)) : NULL;
	if (both)
		check_init_get(c->src, c->bytes, init);
	if (from)
		check_take(n, c->src, c->bytes);
	if (to)
		check_range(n, c->dst, c->bytes, true);
	if (both && mem_device(c->dst) >= 0)
		check_init_put(c->dst, c->bytes, init);
	free(init);
}

/* ---- the host beside a copy from or to pinned memory ---- */

static uint64_t hash(const char *p, size_t n)
{
	uint64_t h = 0xcbf29ce484222325;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * 0x100000001b3;
	return h;
}

static bool copy_run(struct node *n);

static bool overlap(const char *p, size_t n, const char *q, size_t m)
{
	return p < q + m && q < p + n;
}

/* May some pending node but self write the range, or with `read` read it? A host function may do anything. */
static bool in_use(const struct node *self, const char *p, size_t bytes, bool read)
{
	for (const struct node *n = pending; n; n = n->after) {
		if (n == self || !n->work || !n->work->run)
			continue;
		const struct copy *c = (const struct copy *)n->work;
		if (n->work->run != copy_run ? n->work->run == callback_run :
		    overlap(p, bytes, c->dst, c->bytes) || (read && !c->pattern && overlap(p, bytes, c->src, c->bytes)))
			return true;
	}
	return false;
}

/* When the copy is asked for: what the host reads of its target before it is there is rubbish; what it reads is remembered. */
static void copy_enter(struct node *n)
{
	const struct copy *c = (const struct copy *)n->work;
	if (mem_device(c->dst) < 0 && mem_pinned(c->dst, c->bytes) && !in_use(n, c->dst, c->bytes, true))
		memset(c->dst, 0xff, c->bytes);
	if (!c->pattern && !c->snapshot && mem_device(c->src) < 0 && mem_pinned(c->src, c->bytes) && !in_use(n, c->src, c->bytes, false)) {
		uint64_t *h = n->state = must(malloc(sizeof *h));
		*h = hash(c->src, c->bytes);
	}
}

static void check_host(const struct node *n, const struct copy *c)
{
	if (n->state && *(const uint64_t *)n->state != hash(c->src, c->bytes))
		REPORT_FIRST(n->what, "race with the host", "%s: the host has written its source, %zu bytes of pinned memory, before it ran",
			     n->what, c->bytes);
}

static bool copy_run(struct node *n)
{
	const struct copy *c = (const struct copy *)n->work;
	if (cfg.check) {
		check_host(n, c);
		check_bytes(n, c);
	}
	if (c->pattern == 1)
		memset(c->dst, (int)c->value, c->bytes);
	else if (c->pattern == 4)
		for (size_t i = 0; i < c->bytes; i += 4)
			memcpy(c->dst + i, &c->value, 4);
	else
		memmove(c->dst, c->snapshot ? c->snapshot : c->src, c->bytes);
	return true;
}

static struct copy *copy_make(void *dst, const void *src, size_t bytes)
{
	struct copy *c = (struct copy *)work_make(sizeof *c, copy_run);
	c->work.drop = copy_drop;
	c->work.enter = cfg.check ? copy_enter : NULL;
	c->dst = dst;
	c->src = src;
	c->bytes = bytes;
	return c;
}

/* The bytes behind a device address, of whatever device. */
static void *device_bytes(CUdeviceptr p, size_t bytes, const char *what, const char *which)
{
	int dev = is_handed(p) ? mem_device(bytes_of(p)) : self_host->dev;
	return mem_range(dev, (const void *)p, bytes, what, which);
}

/* Pinned memory that ends before the copy does: reported. */
static bool over_the_end(const void *p, size_t bytes, const char *what)
{
	const struct allocation *a = mem_find(p);
	if (!a || (size_t)((const char *)p - a->at) + bytes <= a->bytes)
		return false;
	report("out of bounds", "%s: %zu bytes from byte %zu of pinned memory of %zu", what, bytes, (size_t)((const char *)p - a->at), a->bytes);
	return true;
}

static CUresult to_device(CUdeviceptr dst, const void *src, size_t bytes, CUstream s, bool wait)
{
	void *to = device_bytes(dst, bytes, "copy to the device", "the destination");
	if (!to || (!src && bytes) || over_the_end(src, bytes, "copy to the device"))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_handed((uint64_t)src))
		src = bytes_of((uint64_t)src);
	struct CUstream_st *st = stream_of(s);
	struct copy *c = copy_make(to, src, bytes);
	if (st && !capturing(st) && !wait && mem_device(src) < 0 && !mem_pinned(src, bytes)) {
		c->snapshot = must(malloc(bytes ? bytes : 1));
		memcpy(c->snapshot, src, bytes);
	}
	CUresult e = stream_add(s, "copy to the device", &c->work);
	return e || !wait ? e : wait_node(stream_of(s)->last, "cuMemcpyHtoD");
}

static CUresult to_host(void *dst, CUdeviceptr src, size_t bytes, CUstream s, bool wait)
{
	void *from = device_bytes(src, bytes, "copy to the host", "the source");
	if (!from || (!dst && bytes) || over_the_end(dst, bytes, "copy to the host"))
		return CUDA_ERROR_INVALID_VALUE;
	struct CUstream_st *st = stream_of(s);
	CUresult e = stream_add(s, "copy to the host", &copy_make(dst, from, bytes)->work);
	if (!e && !wait)
		wait = !capturing(st) && !mem_pinned(dst, bytes);
	return e || !wait ? e : wait_node(st->last, "copy to the host");
}

CUresult cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t bytes)
{
	CUresult e = api_enter();
	if (e)
		return e;
	e = capture_forbids("cuMemcpyHtoD");
	return api_leave(e ? e : to_device(dst, src, bytes, NULL, true));
}

CUresult cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t bytes)
{
	CUresult e = api_enter();
	if (e)
		return e;
	e = capture_forbids("cuMemcpyDtoH");
	return api_leave(e ? e : to_host(dst, src, bytes, NULL, true));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes, CUstream s)
{
	CUresult e = api_enter();
	return e ? e : api_leave(to_device(dst, src, bytes, s, false));
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes, CUstream s)
{
	CUresult e = api_enter();
	return e ? e : api_leave(to_host(dst, src, bytes, s, false));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s)
{
	CUresult e = api_enter();
	if (e)
		return e;
	void *to = device_bytes(dst, bytes, "copy on the device", "the destination");
	void *from = device_bytes(src, bytes, "copy on the device", "the source");
	if (!to || !from)
		return api_leave(CUDA_ERROR_INVALID_VALUE);
	return api_leave(stream_add(s, "copy on the device", &copy_make(to, from, bytes)->work));
}

static CUresult fill(CUdeviceptr dst, uint32_t value, int pattern, size_t n, CUstream s)
{
	CUresult e = api_enter();
	if (e)
		return e;
	void *to = device_bytes(dst, n * (size_t)pattern, "fill", "the destination");
	if (!to || dst % (unsigned)pattern)
		return api_leave(CUDA_ERROR_INVALID_VALUE);
	struct copy *c = copy_make(to, NULL, n * (size_t)pattern);
	c->pattern = pattern;
	c->value = value;
	return api_leave(stream_add(s, "fill", &c->work));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream s)
{
	return fill(dst, value, 1, n, s);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, CUstream s)
{
	return fill(dst, value, 4, n, s);
}
