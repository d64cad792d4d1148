/* passes/report.h - what `ptc explain` says of a plan, in numbers. */
#ifndef PTC_REPORT_H
#define PTC_REPORT_H
#include "passes/pipe_cost.h"

struct flops { /* of the whole job, a step */
	double model;    /* logical; of causal attention only what lies below the diagonal */
	double hardware; /* what all ranks do: padding, and what several of them do or backward does again */
	double full;     /* model, with the scores above the diagonal */
};
struct flops count_flops(const struct module *m);

struct step_time {
	struct step_costs costs;
	struct run run;
	double step, compute, exposed, bubble; /* seconds, of the busiest stage; bubble: a share of step */
	double mfu, hfu, tflops, tokens;       /* of model and hardware FLOPs; TFLOP/s and tokens/s of a rank */
	double dollars, per_tokens;            /* of a step, of 1e12 tokens; 0: no price */
};
struct step_time step_time_of(struct arena *mem, const struct module *m, const struct flops *f);

double step_tokens(const struct module *m);                  /* of the first input of tokens, else examples */
int64_t stage_params(const struct module *m, int stage);     /* elements, of all ranks of a stage */
int64_t stage_iterations(const struct module *m, int stage); /* of pipelined repeats */
#endif
