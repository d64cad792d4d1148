/* ir/eval.h - the reference evaluator: any form of the IR, all ranks and all microbatches at once
 * (the time axis is one more axis of the grid of coordinates), in plain loops over doubles. It
 * decides what is right. Nothing is fast here; everything is obvious.
 *
 * Each coordinate holds its local tensor (caps); elements beyond `valid` start as NaN and are
 * never read. Before PLACED shardings are ignored and there is one coordinate (times microbatches). */
#ifndef PTC_EVAL_H
#define PTC_EVAL_H
#include "ir/ir.h"

/* A whole tensor on the host: doubles whatever the dtype, row-major in d's order. */
struct tensor {
	int nd;
	int64_t size[MAX_DIMS];
	int64_t count;
	double *x;
};
struct tensor *tensor_new(struct arena *mem, int nd, const int64_t *size);
struct tensor *tensor_like(struct arena *mem, const struct module *m, int nd, const dimid *d);

struct eval;
/* Called for every value made, in every iteration: whole = the logical value (partials summed,
 * shards joined). error: NULL, or what is inconsistent (replicas differ). iter: the combined
 * iteration of the enclosing repeats, 0 outside. With `named`, whole is NULL for values without a name, which are
 * looked at for inconsistencies alone. */
struct eval_watch {
	void (*see)(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error);
	void *me;
	bool named;
};

struct eval *eval_new(struct arena *mem, const struct module *m, uint64_t seed);
/* Draws initial params, states and optimizer states by rng.h. */
void eval_init(struct eval *e);
void eval_set(struct eval *e, const char *buffer, const struct tensor *t);   /* inputs: the global batch */
struct tensor *eval_get(struct eval *e, const char *buffer);                 /* the logical tensor */
/* From now on, but for 0, each value is rounded where it is made, to one of its two neighbours in its own type, at random as
 * the number says, the nearer one more often: what a machine may make of the step, whatever order it sums in. */
void eval_round(struct eval *e, uint64_t draw);
/* One step. false: *why says what went wrong (a collective over replicas that differ, an op whose
 * operands' shardings do not fit). watch may be NULL. */
bool eval_step(struct eval *e, int64_t step, bool training, const struct eval_watch *watch, const char **why);
double eval_report(const struct eval *e, const char *key, bool *found);      /* "loss", "grad_norm" */
int eval_reports(const struct eval *e);                                      /* how many, and the i-th: */
const char *eval_report_key(const struct eval *e, int i);

/* The initial value of one element of a buffer (params and states), by rng.h; shared with the runtime. */
double init_value(const struct buffer *b, uint64_t seed, uint64_t index);
uint64_t stream_key(uint64_t seed, const char *path);

#endif
