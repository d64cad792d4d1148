/* frontend/cmd_compare.h - two sides of a check, and the one bound by which they are compared. */
#ifndef PTC_CMD_COMPARE_H
#define PTC_CMD_COMPARE_H
#include "frontend/cmd.h"
#include "ir/eval.h"
#include "runtime/runtime.h"

/* A module together with something that runs its steps. */
struct side {
	struct module *m;
	void *self;
	void (*set)(void *self, const char *buffer, const struct tensor *t);
	struct tensor *(*get)(void *self, struct arena *mem, const char *buffer);
	bool (*step)(void *self, int64_t step, const struct eval_watch *watch, const char **why);
	double (*report)(void *self, const char *key, bool *found);
	void (*close)(void *self);
};

/* On the arena of s; initial params are drawn. side_runtime: NULL after errors; close it. */
struct side *side_eval(struct session *s, struct module *m, uint64_t seed);
struct side *side_runtime(struct session *s, const struct backend *backend, struct module *m, uint64_t seed);

/* The plan of the command line with these --set (as shrink_model made them) and some more (NULL: none), probes in it; stages
 * are those of `like`, NULL: cut by cost, or as the plan says. Its twin on one rank, which is one microbatch and keeps all; as it stands after a pass, NULL: whole. NULL after errors. */
struct module *check_plan(struct session *s, const char *set, const char *more, const struct module *like);
struct module *check_twin(struct session *s, const struct module *plan, const char *set, const char *stop_after);

enum quantity { Q_INITIAL, Q_SCALAR, Q_VALUE, Q_GRADIENT, Q_UPDATED, Q_STORED };

/* How far a may be from b: the only place that knows. size: max|b|; largest: of any gradient. */
double check_size(enum quantity q, double size, double largest); /* what it is a share of */
double check_bound(enum quantity q, enum dtype precision, double size, double largest);
#define MOST_ROUNDING 0.75 /* of its size, that a tensor may be off by rounding */
struct off {
	double most, size; /* what rounding makes of a tensor's elements at most; and the largest of them without any */
};
/* The same, where rounding alone is off by as much as this. */
double rounding_bound(enum quantity q, struct off off, double size, double largest);
const char *check_bound_text(enum dtype precision);

struct difference {
	double error, bound; /* the largest, and what was allowed */
	double a, b;         /* where */
	int64_t at;
	bool bad;            /* !(error <= bound) */
};
struct difference compare(enum quantity q, enum dtype precision, const struct tensor *a,
			  const struct tensor *b, double largest);
double tensor_size(const struct tensor *t); /* max|t|, NaN if any is */
double ulps(double a, double b);            /* |a - b| in units of the last place of float b */

/* What a side is given before a step. */
struct fed {
	const char *buffer;
	const struct tensor *t;
};
/* How far rounding alone takes what one rank computes; m is the twin as the evaluator runs it. NULL if it can't be run.
 * Of a buffer that is written, or of a report: the largest error, 0 if it is unknown. */
struct rounding *rounding_of_step(struct arena *keep, const struct module *m, uint64_t seed, const struct fed *fed, int n, int64_t step);
struct off rounding_off(const struct rounding *r, const char *name, bool report);
/* Where a value is decided, not made, as by a sign, rounding turns some elements altogether: are those further apart than the
 * bound few, and not many more than it turns of this buffer? */
bool rounding_turns(const struct rounding *r, const char *name, const struct tensor *a, const struct tensor *b, double bound);

/* The collective nearest before v, NULL if there is none. */
const struct op *made_by(const struct value *v);

#endif
