/* passes/views.h - lookups by index arithmetic as views; a part of simplify. */
#ifndef PTC_VIEWS_H
#define PTC_VIEWS_H
#include "ir/ir.h"

/* What `op`, a lookup, is as slices, splits, merges, renames and rolls (made before op), as far as
 * its indices are affine: a value of op's type, or NULL if it stays a lookup as it is. */
struct value *lookup_view(struct module *m, struct op *op);

#endif
