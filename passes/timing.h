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

/* Told of each op of a walk, and of each iteration of a loop (what it copies): when it begins and ends. */
typedef void walk_note(void *to, const struct op *op, int64_t iter, double start, double end);

struct part {
	int section;
	int64_t places;    /* ops of these places */
	int chunk, stage;  /* whose iterations and rows; -1: all */
	enum early { AS_CUT, NONE_EARLY, ALL_EARLY } early; /* iterations that run what the first of a stage run alone */
	const struct op *first, *end; /* from first (NULL: the top) up to end (NULL: the end of the block) */
	walk_note *note;   /* NULL: nobody is told, and of many iterations that are alike only some are walked */
	void *to;
};
struct busy walk_part(struct timing *t, struct part part);
#endif
