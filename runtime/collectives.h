/* runtime/collectives.h - which elements each collective moves, whatever moves them (collectives.c). */
#ifndef PTC_RUNTIME_COLLECTIVES_H
#define PTC_RUNTIME_COLLECTIVES_H
#include "runtime/internal.h"

/* Loops over out's dims, extents as given, strides by name: ds in out, ss in in. */
struct nest comm_loops(const struct module *m, const struct value *out, const struct value *in, const int64_t *n);
void comm_extents(const struct rank *r, const struct value *v, const int *coord, int64_t *n); /* valid ones */
/* What member c of op's group has of dim d of v, which is split over its axes last; start: within what they
 * split. Members are numbered by the coordinates of all axes, the outermost first. */
struct extent comm_part(const struct rank *r, const struct op *op, const struct value *v, dimid d, int c);
struct nest comm_reduce_loops(struct rank *r, const struct op *op, uint32_t k); /* of operand k of an all_reduce */
bool comm_axes_last(struct rank *r, const struct op *op, uint32_t k);       /* false: said */

#endif
