/* passes/simulate.h - which order of actions suits the costs of a pipeline best. */
#ifndef PTC_SIMULATE_H
#define PTC_SIMULATE_H
#include "ir/simulate.h"

/* A list scheduler with a clock. Strict: in the schedule's own orders; where a forward and a backward
 * are ready, they alternate. The other two are zb_v's: each chunk has its own order, backwards come
 * first, by microbatch; of two forwards the one of the later chunk, or of the earlier microbatch.
 * None is ready: the oldest W. limit: chunk activations of each stage. NULL: it stood still. */
enum clock_rule { CLOCK_STRICT, CLOCK_CHUNK1_FIRST, CLOCK_MICROBATCH_FIRST };
struct actions *schedule_clocked(struct arena *mem, const struct schedule *s, const struct costs *c,
				 enum clock_rule rule, const int *limit);

struct candidate {
	const char *name; /* "count", "warm-up + 1", "clocked", ... */
	struct schedule s;
	struct run run;
	bool fits; /* in bytes a stage; a candidate that deadlocks is not listed */
};

/* All that there are; the first is the count form. best: index of the fastest that fits, ties to
 * the first; the first if none fits. bytes: a stage's memory, 0: any. */
struct portfolio {
	struct candidate at[6];
	int n, best;
};
struct portfolio schedule_choose(struct arena *mem, const struct schedule *s, const struct costs *c, double bytes);
#endif
