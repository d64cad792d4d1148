/* runtime/runtime.h - runs a plan: every rank a thread, CPU backend, collectives through shared memory. */
#ifndef PTC_RUNTIME_H
#define PTC_RUNTIME_H
#include "ir/ir.h"
#include "ir/trace.h"

/* -- plan files (plan.c): a header line "ptc-plan 1 <16 hex digits of fnv1a> <bytes>", then the IR text. */
bool plan_save(struct module *m, const char *path, struct diag *d);
struct module *plan_load(struct arena *mem, struct sources *src, const char *path, struct diag *d);
bool is_plan_file(const char *path);

/* Would it be run, on a machine that is large enough? false after an error. aux and marks of m are used. */
bool plan_fits(struct module *m, struct diag *d);

struct backend; /* backend.h */
/* NULL, with an error: there is none of that name. name NULL: the processor. */
const struct backend *backend_find(const char *name, struct diag *d);

/* A line for each backend: its name, and what it was built with. */
void backend_versions(struct text *t);

/* The machine that a backend finds; units, cores, ranks: 0 where they are not known or there is no limit. */
struct machine {
	int64_t ranks;    /* that it has devices for */
	double memory;    /* bytes of a device, or of all */
	double units;     /* multiprocessors of a GPU */
	double cores;     /* of a processor, that ranks share, as they do its memory */
};
bool backend_machine(const struct backend *on, struct machine *m, struct diag *d);

struct run_options {
	const struct backend *backend;
	int64_t seed;          /* -1: that of the checkpoint, or 0 */
	int64_t steps;         /* from the first step of all, also of a run that is gone on with */
	const char **data;     /* "FILE" or "NAME=FILE" */
	int ndata;
	const char *init, *save; /* safetensors of logical params, or NULL */
	const char *resume, *checkpoint; /* the same with all that a run goes on from */
	int64_t checkpoint_every; /* steps between two checkpoints; 0: one, at the end */
	const char *trace;     /* where to write the last step's timeline (ir/trace.h), or NULL */
	bool json;             /* a line a step, then the summary */
	const char *about;     /* an object of JSON that the first step's line carries as "run", or NULL */
	int64_t log_every;     /* progress lines on stdout when not json; 0: none */
};

/* The whole of `ptc run`. 0 done, 1 the input is wrong, 3 the machine failed. */
int run_plan(struct module *m, const struct run_options *opt, struct diag *d);

/* -- for `ptc check` and tests: the same executor, step by step -- */
struct runtime;
struct runtime *rt_open_on(const struct backend *backend, struct module *m, uint64_t seed, struct diag *d);
struct runtime *rt_open(struct module *m, uint64_t seed, struct diag *d); /* on the processor: kernels compiled, arenas made, buffers initialised */
void rt_close(struct runtime *r);
void rt_set(struct runtime *r, const char *buffer, const double *x); /* logical tensor, row-major as declared; inputs: the whole batch */
void rt_get(struct runtime *r, const char *buffer, double *x);       /* joined from the ranks */
bool rt_step(struct runtime *r, int64_t step, bool training, struct diag *d);
/* What the last step takes the processors: the seconds of the busiest of the ranks' threads, or those of all threads over
 * the cores, whichever are more. Other programs on the machine do not add to it; nor does waiting. */
double rt_processor_seconds(const struct runtime *r);
/* For `ptc calibrate`: from now on each step notes (on) when rank 0 begins and ends each op, and how long its thread had a
 * processor. On a processor only: elsewhere ops run behind the host's clock. rt_watched: those of the last step. */
bool rt_watch(struct runtime *r, bool on, struct diag *d);
const struct trace_event *rt_watched(const struct runtime *r, int64_t *n);
double rt_report(struct runtime *r, const char *key, bool *found);
int64_t rt_peak_bytes(struct runtime *r, int64_t rank);

/* -- safetensors.c -- */
struct st_file; /* opened, checked against its size */
#endif
