/* passes/chunk.h - of the pass `chunk`: what is to be done in parts, and along which dim. */
#ifndef PTC_CHUNK_H
#define PTC_CHUNK_H
#include "passes/passes.h"

/* op.mark, of ops at the top: it reads or makes the value or one as large (IN); it follows from such ops
 * (BELOW); they follow from it (ABOVE). What is both follows and leads is IN too, in the end. */
enum { REGION_IN = 1, REGION_BELOW = 2, REGION_ABOVE = 4 };

struct chunk_region {
	struct module *m;
	struct diag *d;
	const struct chunk *how;
	struct value *v;       /* the value that `how` names */
	enum phase phase;      /* of the loop */
	dimid dim;             /* that is cut */
	int64_t parts;         /* 1: it is small enough as it is */
};

/* Marks the ops at the top, and sets the fields from v on. False: an error says why not. */
bool chunk_find(struct chunk_region *r);
/* Is x as large as r->v, and made of inputs alone by maps? Then each loop makes what it reads of it. */
bool chunk_again(const struct chunk_region *r, const struct value *x);
/* Is op a sum along `dim`, of which every part adds its own? */
bool chunk_sums(const struct op *op, dimid dim);

#endif
