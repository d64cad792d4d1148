/* ir/base.h - what every part stands on: one arena a compilation, growing arrays, spans, fatal ends. */
#ifndef PTC_BASE_H
#define PTC_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PRINTF(a, b) __attribute__((format(printf, a, b)))
#define LEN(x) (sizeof(x) / sizeof(*(x)))

/* A place in a source file: 1-based line and column, length in bytes. file indexes
 * struct sources; line 0 means "nowhere". */
struct span {
	uint32_t file, line, col, len;
};

/* Memory of one compilation: zeroed, 16-byte aligned, freed all at once. Never returns NULL. */
struct arena;
struct arena *arena_new(void);
void arena_free(struct arena *a);
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_grow(struct arena *a, void *old, size_t old_bytes, size_t new_bytes);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF(2, 3);
size_t arena_bytes(const struct arena *a); /* bytes handed out so far */
#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEWN(a, T, n) ((T *)arena_alloc((a), (size_t)(n) * sizeof(T)))

/* Growing arrays: struct { VEC(struct op *) ops; } then PUSH(arena, &x->ops, op). */
#define VEC(T) struct { T *at; uint32_t n, cap; }
#define PUSH(a, v, x) (vec_room((a), (void **)&(v)->at, (v)->n, &(v)->cap, sizeof *(v)->at), \
		       (v)->at[(v)->n++] = (x))
void vec_room(struct arena *a, void **at, uint32_t n, uint32_t *cap, size_t size);

/* A growing text on the arena, NUL-terminated at any time. */
struct text {
	struct arena *mem;
	char *s;
	size_t n, cap;
};
void text_put(struct text *t, const char *fmt, ...) PRINTF(2, 3);
void text_bytes(struct text *t, const char *s, size_t n);

/* What takes seconds, for people: "3.40 ms", "14.27 s", "2.12 min", "68.9 days"; of what is long anyway "147.7 days". */
const char *seconds_text(struct arena *a, double seconds);
const char *long_time(struct arena *a, double seconds);

/* A bug of ours, or no memory: says where and aborts. Never for wrong input. */
_Noreturn void die(const char *fmt, ...) PRINTF(1, 2);

static inline bool streq(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
	return b ? (a + b - 1) / b : 0;
}

/* FNV-1a, 64 bits: names of random streams, checksums of plans. */
uint64_t fnv1a(uint64_t seed, const void *p, size_t n);
#define FNV_START 14695981039346656037ull

#endif
