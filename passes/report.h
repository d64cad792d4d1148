/* passes/report.h - what `ptc explain` says of a plan, in numbers. */
#ifndef PTC_REPORT_H
#define PTC_REPORT_H
#include "passes/pipe_cost.h"

struct flops { /* of the whole job, a step; flops_rule says how each is counted */
	double model, full;             /* that the model asks for */
	double hardware, hardware_full; /* what all ranks do */
};
extern const struct flops_rule {
	const char *name, *rule;
} flops_rule[]; /* in the order of struct flops; ends with a NULL name */
struct flops count_flops(const struct module *m);

struct step_time {
	struct step_costs costs;
	struct run run;
	double step, compute, exposed, bubble; /* seconds, of the busiest stage; compute: launches included; bubble: a share of step */
	double copies;                         /* of exposed: from and to the memory of the host */
	double waits;                          /* for the slowest of all ranks: a part of step; seconds */
	int busiest;                           /* the stage: costs.stage[busiest].kind says where its time goes */
	double mfu, hfu, tflops, tokens;       /* of model and hardware FLOPs; TFLOP/s and tokens/s of a rank */
	double dollars, per_tokens;            /* of a step, of 1e12 tokens; 0: no price */
};
/* Bytes that the software which the plan names would allocate on a rank of the stage; 0: it is our own runtime. */
int64_t software_bytes(const struct module *m, const struct run *run, int stage);
struct step_time step_time_of(struct arena *mem, const struct module *m, const struct flops *f);

double step_tokens(const struct module *m);                  /* of the first input of tokens, else examples */
int64_t stage_params(const struct module *m, int stage);     /* elements, of all ranks of a stage */
int64_t stage_iterations(const struct module *m, int stage); /* of pipelined repeats */
#endif
