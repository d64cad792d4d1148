#include "ir/base.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 64 * 1024 };

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(16) char bytes[];
};

struct arena {
	struct chunk *head;
	size_t total;
};

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("ptc: internal error: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	abort();
}

struct arena *arena_new(void)
{
	struct arena *a = calloc(1, sizeof *a);

	if (!a)
		die("out of memory");
	return a;
}

void arena_free(struct arena *a)
{
	if (!a)
		return;
	for (struct chunk *c = a->head, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(a);
}

void *arena_alloc(struct arena *a, size_t bytes)
{
	struct chunk *c = a->head;

	if (bytes > SIZE_MAX / 4)
		die("an allocation of %zu bytes", bytes);
	bytes = (bytes + 15) & ~(size_t)15;
	if (!c || c->size - c->used < bytes) {
		size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;

		c = calloc(1, sizeof *c + size);
		if (!c)
			die("out of memory (%zu bytes)", size);
		c->size = size;
		c->next = a->head;
		a->head = c;
	}
	void *p = c->bytes + c->used;
	c->used += bytes;
	a->total += bytes;
	return p;
}

void *arena_grow(struct arena *a, void *old, size_t old_bytes, size_t new_bytes)
{
	void *p = arena_alloc(a, new_bytes);

	if (old_bytes)
		memcpy(p, old, old_bytes);
	return p;
}

size_t arena_bytes(const struct arena *a)
{
	return a->total;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *p = arena_alloc(a, n + 1);

	memcpy(p, s, n);
	return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return s ? arena_strndup(a, s, strlen(s)) : NULL;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		die("vsnprintf failed");
	char *p = arena_alloc(a, (size_t)n + 1);
	vsnprintf(p, (size_t)n + 1, fmt, again);
	va_end(again);
	return p;
}

void vec_room(struct arena *a, void **at, uint32_t n, uint32_t *cap, size_t size)
{
	if (n < *cap)
		return;
	uint32_t more = *cap ? *cap * 2 : 8;

	*at = arena_grow(a, *at, (size_t)n * size, (size_t)more * size);
	*cap = more;
}

void text_bytes(struct text *t, const char *s, size_t n)
{
	if (t->n + n + 1 > t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 1024;

		while (cap < t->n + n + 1)
			cap *= 2;
		t->s = arena_grow(t->mem, t->s, t->n, cap);
		t->cap = cap;
	}
	memcpy(t->s + t->n, s, n);
	t->n += n;
	t->s[t->n] = 0;
}

void text_put(struct text *t, const char *fmt, ...)
{
	char small[256];
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(small, sizeof small, fmt, ap);
	va_end(ap);
	if (n < 0)
		die("vsnprintf failed");
	if ((size_t)n < sizeof small) {
		text_bytes(t, small, (size_t)n);
	} else {
		char *big = malloc((size_t)n + 1);

		if (!big)
			die("out of memory");
		vsnprintf(big, (size_t)n + 1, fmt, again);
		text_bytes(t, big, (size_t)n);
		free(big);
	}
	va_end(again);
}

uint64_t fnv1a(uint64_t seed, const void *p, size_t n)
{
	const unsigned char *s = p;

	for (size_t i = 0; i < n; i++)
		seed = (seed ^ s[i]) * 1099511628211ull;
	return seed;
}

struct unit {
	double seconds;
	const char *name;
};

/* The largest of which there are two at least. */
static struct unit unit_of(double seconds)
{
	static const struct unit unit[] = { { 365.25 * 86400, "years" }, { 86400, "days" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
	size_t i = 0;

	while (i + 1 < LEN(unit) && seconds < 2 * unit[i].seconds)
		i++;
	return unit[i];
}

const char *seconds_text(struct arena *a, double seconds)
{
	struct unit unit = unit_of(seconds);
	double x = seconds / unit.seconds;

	if (unit.seconds > 1)
		return arena_printf(a, x < 999.5 ? "%.3g %s" : "%.0f %s", x, unit.name);
	return seconds >= 1 ? arena_printf(a, "%.2f s", seconds) : seconds >= 1e-3 ? arena_printf(a, "%.2f ms", 1e3 * seconds) :
	       arena_printf(a, "%.1f us", 1e6 * seconds);
}

const char *long_time(struct arena *a, double seconds)
{
	struct unit unit = unit_of(seconds);

	return arena_printf(a, "%.1f %s", seconds / unit.seconds, unit.name);
}
