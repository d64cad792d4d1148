/* passes/timing.h - private to the costs of a pipeline: what part of a step is walked. */
#ifndef PTC_TIMING_H
#define PTC_TIMING_H
#include "passes/pipe_cost.h"

struct timing {
	struct arena *mem;
	const struct module *m;
	struct op_time *op;    /* by op.mark */
	struct pricing *price; /* NULL: simple */
};

struct part {
	int section;
	int64_t places;    /* ops of these places */
	int chunk, stage;  /* whose iterations and rows; -1: all */
	const struct op *first, *end; /* from first (NULL: the top) up to end (NULL: the end of the block) */
};
struct busy walk_part(struct timing *t, struct part part);
#endif
