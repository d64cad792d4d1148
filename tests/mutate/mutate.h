/* tests/mutate/mutate.h - plans with one fault each: mutants.c makes them, main.c judges them, meaning.c says what they mean. */
#ifndef PTC_TESTS_MUTATE_H
#define PTC_TESTS_MUTATE_H
#include "ir/ir.h"

struct mutation {
	const char *name;
	bool (*change)(struct module *m, uint64_t *seed); /* false: there was nothing to change */
};
extern const struct mutation mutations[]; /* ends with a NULL name */

/* -- main.c -- */
double input_value(const struct buffer *b, int64_t step, int64_t i); /* what the runs are given */

/* -- meaning.c -- */
struct meaning;
struct runtime;
struct meaning *meaning_of(struct arena *mem, const char *path, const char *text, size_t len, uint64_t seed);
/* One rank does a step too; has rt all that it has? */
bool meaning_step(struct meaning *x, struct runtime *rt, int64_t step);

#endif
