/* tests/mutate/mutate.h - plans with one fault each: mutants.c makes them, main.c judges them. */
#ifndef PTC_TESTS_MUTATE_H
#define PTC_TESTS_MUTATE_H
#include "ir/ir.h"

struct mutation {
	const char *name;
	bool (*change)(struct module *m, uint64_t *seed); /* false: there was nothing to change */
};
extern const struct mutation mutations[]; /* ends with a NULL name */

#endif
