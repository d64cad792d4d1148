/* frontend/cmd_calibrate.h - the parts of `ptc calibrate`: what is run, and how figures are found from it. */
#ifndef PTC_CMD_CALIBRATE_H
#define PTC_CMD_CALIBRATE_H
#include "frontend/cmd.h"
#include "passes/price.h"
#include "passes/report.h"
#include "runtime/runtime.h"

/* What a trial spends most of its time on; which figures its steps speak of, where ops can't be timed. */
enum speaks { OF_KERNELS, OF_PRODUCTS, OF_PRODUCTS16, OF_ATTENTION, OF_COLLECTIVES };

/* One op of a trial, and what it took. */
struct sample {
	const struct op *op;      /* NULL: it was not timed */
	double times;             /* a step */
	double seconds;           /* each time, the least of all steps */
};

/* A small model that was trained. */
struct outcome {
	const char *name;
	enum speaks of;
	struct module *m;
	struct runtime *rt;
	struct flops flops;
	const struct pricing *pricing;
	struct sample *op;        /* by op.mark */
	int64_t n;
	double seconds;           /* of a step, the least */
	double predicted;         /* of it, set by find_figures */
};

struct trials {
	int ranks;
	const struct backend *on;
	double cores;             /* a rank; 0: of no processor, and no op is timed, only steps */
	bool quick;
	VEC(struct outcome) out;
};

/* How many ranks a core works for, at least 1. */
static inline double crowd(const struct trials *t)
{
	return t->cores > 0 && t->cores < 1 ? 1 / t->cores : 1;
}

/* Runs all trials for t->ranks on t->on. false after an error. */
bool run_trials(struct session *s, struct trials *t);

/* The figures of h with which the cost model says of the trials what was measured. h has memory and cores. */
void find_figures(struct trials *t, struct hardware *h);
#endif
