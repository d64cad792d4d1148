/* runtime/place.h - places of values in a plan (place.c), for program.c and plan.c. */
#ifndef PTC_RUNTIME_PLACE_H
#define PTC_RUNTIME_PLACE_H
#include "runtime/internal.h"

struct placing {
	const struct module *m;
	const struct regions *r;
	struct diag *d;
	int hops;
};

void note_targets(struct block *block); /* sets aux of all values; before the others */
bool place_value(struct placing *p, const struct value *v, struct loc *at);
int buffer_region(const struct placing *p, const struct buffer *b);
bool is_cut(const struct module *m, const struct op *repeat); /* its iterations are those of a stage's chunks */
int row_counter(const struct placing *p, const struct op *repeat, const struct value *whole, int region); /* which of a rank's counts rows */
bool place_checked(struct placing *p, const struct value *v, struct loc *at); /* and within the arena */
int depth_of(const struct block *block);
bool safe_bytes(const struct module *m, const struct value *v, int64_t *bytes); /* false: overflow */

#endif
