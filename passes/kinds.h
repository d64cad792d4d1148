/* passes/kinds.h */
#ifndef PTC_KINDS_H
#define PTC_KINDS_H
#include "passes/passes.h"

/* Sets value.kind everywhere. With more than one microbatch a use of a sum over the batch that
 * microbatches would change is an error (docs/LANGUAGE.md). */
bool set_kinds(struct module *m, struct diag *d);

/* The op of a body in which v, read there alone, is added to more; NULL: there is none. */
const struct op *added_in(const struct block *body, const struct value *v);

/* Is what iterations make only added to carried value i of a repeat? Then its iterations may add it up in parts. */
bool only_grows(const struct op *repeat, uint32_t i);

#endif
