/* passes/pipe_cost.h - what the sections of a step cost, read off a module's own ops: the seconds of each
 * chunk and stage for simulate.h, from form PARTITIONED on. Without a pipeline there is one of each. */
#ifndef PTC_PIPE_COST_H
#define PTC_PIPE_COST_H
#include "ir/ir.h"
#include "passes/balance.h"
#include "passes/price.h"

/* A section on two streams, compute and communication: exposed is what compute waits for. */
struct busy {
	double compute, exposed;
	double kind[NTIME];   /* refined: of both, where they go */
	double behind[NTIME]; /* refined: of the end (start) of a step, what a backward (forward) may hide */
	double hidden;        /* refined: seconds of collectives under compute */
};

struct timing; /* the seconds of each op, taken once; numbers ops (op.mark) */
struct timing *timing_of(struct arena *mem, const struct module *m);     /* simple: passes choose by it */
struct timing *timing_refined(struct arena *mem, const struct module *m); /* for reports */
int64_t chunk_places(const struct module *m, int g); /* that the ops of a chunk have, as bits; without a pipeline 1 */

struct step_costs {
	struct schedule s;
	struct costs c;
	const struct busy *stage; /* of a step, by stage: all that it does */
};
struct step_costs step_costs_of(struct arena *mem, const struct module *m, struct timing *t);

/* The pipelined repeats as a chain of pieces to be cut. */
struct chain chain_of(struct arena *mem, const struct module *m, struct timing *t);
#endif
