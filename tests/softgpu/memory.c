/* memory.c - device memory: addresses that programs see cannot be touched by the host, the bytes lie at a fixed distance;
 * kernels and libraries get those. Each allocation lies on pages of its own with free pages around it. */
#include "tests/softgpu/softgpu.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, FRESH = 16 << 20 };
char *mem_handed, *mem_bytes;
size_t mem_span;
static struct allocations {
	struct allocation *at;      /* by address */
	int n, cap;
	size_t used;
} live[MAX_DEVICES + 1];            /* the last: pinned host memory, after that of the devices */
static struct pinned {
	char *at;
	size_t bytes;
	bool ours;
	struct pinned *next;
} *pins;

/* What one device spans: its memory, and as many free pages. */
static size_t device_span(void)
{
	return 2 * (cfg.memory + PAGE - 1) / PAGE * PAGE;
}

bool mem_open(void)
{
	if (mem_handed)
		return true;
	mem_span = device_span() * (size_t)cfg.devices;
	char *p = mmap(NULL, 2 * mem_span + device_span(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return false;
	mem_handed = p;
	mem_bytes = p + mem_span;
	return true;
}

int mem_device(const void *bytes)
{
	size_t at = (size_t)((const char *)bytes - mem_bytes);
	return at < mem_span ? (int)(at / device_span()) : -1;
}

size_t mem_watched(void)
{
	return mem_span + device_span();
}

/* Whose allocation it may be: a device's, or that after the last of pinned memory; -1. */
static int slot_of(const void *bytes)
{
	size_t at = (size_t)((const char *)bytes - mem_bytes);
	return mem_bytes && at < mem_watched() ? (int)(at / device_span()) : -1;
}

/* The last allocation of a device that starts at or before p; -1. */
static int find_before(const struct allocations *a, const char *p)
{
	int lo = -1, hi = a->n;
	while (hi - lo > 1) {
		int mid = (lo + hi) / 2;
		*(a->at[mid].at <= p ? &lo : &hi) = mid;
	}
	return lo;
}

const struct allocation *mem_find(const void *bytes)
{
	int d = slot_of(bytes);
	if (d < 0)
		return NULL;
	int i = find_before(&live[d], bytes);
	const struct allocation *a = i < 0 ? NULL : &live[d].at[i];
	return a && (size_t)((const char *)bytes - a->at) < a->bytes ? a : NULL;
}

const char *mem_near(const void *bytes)
{
	int d = mem_device(bytes);
	const char *p = bytes;
	if (d < 0)
		return "which is not device memory";
	int i = find_before(&live[d], p);
	const struct allocation *before = i < 0 ? NULL : &live[d].at[i], *after = i + 1 < live[d].n ? &live[d].at[i + 1] : NULL;
	size_t past = before ? (size_t)(p - before->at) - before->bytes : SIZE_MAX, short_of = after ? (size_t)(after->at - p) : SIZE_MAX;
	if (past == SIZE_MAX && short_of == SIZE_MAX)
		return "in no live allocation: there is none";
	return past <= short_of ? text("in no live allocation: %zu bytes after the end of one of %zu", past, before->bytes) :
		text("in no live allocation: %zu bytes before one of %zu", short_of, after->bytes);
}

void *mem_range(int dev, const void *handed, size_t bytes, const char *what, const char *which)
{
	if (!is_handed((uint64_t)handed)) {
		report("bad pointer", "%s: %s is not an address of device memory", what, which);
		return NULL;
	}
	char *p = bytes_of((uint64_t)handed);
	if (mem_device(p) != dev) {
		report("bad pointer", "%s: %s lies on gpu%d", what, which, mem_device(p));
		return NULL;
	}
	const struct allocation *a = mem_find(p);
	if (!a && !bytes)
		return p;
	if (!a || (size_t)(p - a->at) + bytes > a->bytes) {
		if (a)
			report("out of bounds", "%s: %s ends %zu bytes after its allocation of %zu bytes", what, which,
			       (size_t)(p - a->at) + bytes - a->bytes, a->bytes);
		else
			report("out of bounds", "%s: %s lies %s", what, which, mem_near(p));
		return NULL;
	}
	return p;
}

/* Fills with 0xff, NaN in fp32 and bf16: pages of a file, so that those never written cost nothing. */
static bool map_fresh(char *at, size_t bytes)
{
	static int file = -1;
	if (file < 0) {
		file = memfd_create("softgpu-fresh", MFD_CLOEXEC);
		char page[PAGE];
		memset(page, 0xff, sizeof page);
		for (int i = 0; file >= 0 && i < FRESH / PAGE; i++)
			if (write(file, page, sizeof page) != sizeof page)
				return false;
	}
	for (size_t done = 0; done < bytes; done += FRESH) {
		size_t n = bytes - done < FRESH ? bytes - done : FRESH;
		if (mmap(at + done, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
			return false;
	}
	return true;
}

/* Room for a new allocation: at what index, or -1. */
static int find_room(struct allocations *a, char *base, size_t bytes, char **at)
{
	char *from = base + PAGE;
	for (int i = 0; i <= a->n; i++) {
		char *end = i < a->n ? a->at[i].at : base + device_span();
		if (from + bytes + PAGE <= end) {
			*at = from;
			return i;
		}
		if (i < a->n)
			from = a->at[i].at + (a->at[i].bytes + PAGE - 1) / PAGE * PAGE + PAGE;
	}
	return -1;
}

CUresult mem_alloc(int dev, CUdeviceptr *p, size_t bytes)
{
	struct allocations *a = &live[dev];
	size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
	if (bytes > cfg.memory || a->used + whole > cfg.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	char *at;
	int i = find_room(a, mem_bytes + device_span() * (size_t)dev, whole, &at);
	if (i < 0 || !map_fresh(at, whole))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (a->n == a->cap) {
		a->cap = a->cap ? 2 * a->cap : 16;
		a->at = must(realloc(a->at, (size_t)a->cap * sizeof *a->at));
	}
	memmove(a->at + i + 1, a->at + i, (size_t)(a->n++ - i) * sizeof *a->at);
	a->at[i] = (struct allocation){at, bytes};
	a->used += whole;
	check_forget(at, whole);
	*p = (CUdeviceptr)(mem_handed + (at - mem_bytes));
	return CUDA_SUCCESS;
}

CUresult mem_free(int dev, CUdeviceptr p)
{
	struct allocations *a = &live[dev];
	char *at = is_handed(p) ? bytes_of(p) : NULL;
	int i = at ? find_before(a, at) : -1;
	if (i < 0 || a->at[i].at != at)
		return CUDA_ERROR_INVALID_VALUE;
	size_t whole = (a->at[i].bytes + PAGE - 1) / PAGE * PAGE;
	if (mmap(at, whole, PROT_NONE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
		must(NULL);
	a->used -= whole;
	memmove(a->at + i, a->at + i + 1, (size_t)(--a->n - i) * sizeof *a->at);
	return CUDA_SUCCESS;
}

size_t mem_free_bytes(int dev)
{
	return cfg.memory - live[dev].used;
}

bool mem_pinned(const void *p, size_t bytes)
{
	for (const struct pinned *x = pins; x; x = x->next)
		if ((const char *)p >= x->at && (const char *)p + bytes <= x->at + x->bytes)
			return true;
	return false;
}

CUresult mem_pin(void **p, size_t bytes, bool ours)
{
	if (ours) {
		CUdeviceptr at;
		CUresult e = mem_alloc(cfg.devices, &at, bytes);
		if (e)
			return e;
		*p = bytes_of(at);
	} else if (mem_pinned(*p, bytes)) {
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	}
	struct pinned *x = must(malloc(sizeof *x));
	*x = (struct pinned){*p, bytes, ours, pins};
	pins = x;
	return CUDA_SUCCESS;
}

CUresult mem_unpin(void *p, bool ours)
{
	for (struct pinned **at = &pins; *at; at = &(*at)->next) {
		struct pinned *x = *at;
		if (x->at != p || x->ours != ours)
			continue;
		*at = x->next;
		if (ours)
			mem_free(cfg.devices, (CUdeviceptr)(mem_handed + (x->at - mem_bytes)));
		free(x);
		return CUDA_SUCCESS;
	}
	return ours ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
