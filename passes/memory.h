/* passes/memory.h - what the memory pass laid out, for analyses of a plan: passes/live.c. */
#ifndef PTC_MEMORY_H
#define PTC_MEMORY_H
#include "ir/ir.h"
#include "ir/pack.h"

struct items;

/* A value, or the workspace of a repeat's body, on the timeline of a block: from position start to end. */
struct item {
	struct packed p;
	struct value *v;          /* NULL: a body's */
	const struct items *body;
	int region;
};

struct items {
	VEC(struct item *) list;
	struct block *of;
};

/* Where a value lives: value.aux. Aliases share one. */
struct home {
	struct value *root; /* NULL: outside this block */
	struct buffer *buf; /* the storage of a buffer */
	int64_t def, last;  /* positions */
	int64_t read;       /* last, but for what is in flight */
	int64_t flight;     /* last wait for what started and reads it */
	int flights;        /* how many of them there are */
	int carry;          /* -1, or which carried arg this is */
	bool direct;        /* root lives where it is sent */
	bool step;          /* live from the first microbatch */
	bool twice;         /* has two places, used in turn by the iterations */
};

/* The pieces of a plan that has just been made, or was read: it is planned once more, which gives the same
 * offsets. Afterwards op.mark is an op's position in its block and value.aux its home. NULL after an error. */
const struct items *memory_items(struct module *m, struct diag *d);
#endif
