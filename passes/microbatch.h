/* passes/microbatch.h */
#ifndef PTC_MICROBATCH_H
#define PTC_MICROBATCH_H
#include "ir/ir.h"

/* Positions, constants, random numbers, inputs, and maps or views of only those: never stored
 * across sections nor resharded, but made again where they are read. Needs kinds. */
bool is_free(const struct value *v);

#endif
