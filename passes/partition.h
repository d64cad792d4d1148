/* passes/partition.h - what the files of the partition pass share.
 *
 * An old value (of the placed module) has versions: new values that hold it in some sharding. An
 * op is emitted with a work sharding: for each dim of its loops the axes that split it, and for
 * each axis the operands through which a pending sum passes. Everything else is derived from it
 * (docs/SHARDING.md), for every op, in work.c.
 */
#ifndef PTC_PARTITION_H
#define PTC_PARTITION_H
#include "passes/passes.h"
#include "passes/reshard.h"

enum { MAX_SPACE = 32 };

struct work {
	int nd;
	dimid d[MAX_SPACE];
	struct axes on[MAX_SPACE];
	uint64_t pass[MAX_AXES]; /* bit set of operands that are pending sums over this axis */
};

/* How versions of an old value come about, beside those that were made. */
enum how {
	H_MADE,
	H_FREE,    /* made in any sharding by doing its op again */
	H_ALIAS,   /* rename of `from` */
	H_WITH,    /* invariant of a loop: passed in, `from` is outside */
	H_OVER,    /* slice of `from`, outside */
	H_STACKED, /* stack of `from`, a yield of the body */
	H_WILD,    /* carried from zeros: takes the sharding of its first use */
};

struct version {
	struct sharding sh;
	struct value *val;
	enum phase phase;
};

struct info {
	VEC(struct version) ver;
	struct scope *scope;
	enum how how;
	struct value *from;
	/* A gate: other versions come from this one only. Of a param (its compute placement; not
	 * gathered further in forward and backward) or of a gradient in the epilogue (its home). */
	bool gated, weight;
	struct sharding gate;
	bool needs_grad;
	uint16_t hint[MAX_AXES]; /* positions of dims that a consumer wants over this axis */
	VEC(struct op *) readers;
	bool yielded, stacked;   /* carried on by a loop; stacked by a backward one: a param's gradient */
	uint32_t sunk;           /* axes over which it stays pending for its readers (sink.c) */
	double later;            /* elements that its readers would have to reduce, if it stays pending */
	struct value *again;     /* made again in backward: the forward value that it equals (again.c) */
	VEC(struct sharding) gives; /* how readers of forward will split its cotangent */
	struct value *stash;     /* that, as the block of this one reads it; made when it is wanted */
};

/* A block being built, and the loop it is the body of. */
struct scope {
	struct scope *up;
	struct builder b;
	struct op *old, *new; /* the repeat, NULL at the top */
	uint32_t nwith;
	bool open;
};

struct part {
	struct module *m;
	struct diag *d;
	struct scope *scope; /* where new ops go */
	const struct op *reader; /* old op that asks, for `why` */
	VEC(struct op *) reads;  /* of params, at the top, in forward */
	bool failed, no_latency; /* no_latency: version_seconds counts bytes alone */
};

/* -- work.c -- */
struct axes *work_on(struct work *w, dimid d); /* NULL: not a dim of the op */
struct sharding work_need(const struct op *op, const struct work *w, uint32_t i);
struct sharding work_result(const struct module *m, const struct op *op, const struct work *w, uint32_t k);
struct work work_empty(const struct op *op);
bool work_closed(const struct op *op, dimid d);            /* no axis may split this loop */
void work_time(struct part *p, const struct op *op, struct work *w); /* the time axis, the pipeline's: no choice */
/* *now: what is sent before the op runs, as against what its readers may have to send. */
double work_seconds(struct part *p, const struct op *op, const struct work *w, double *now);
struct work gradient_work(struct part *p, struct op *op, const struct work *of); /* mirror_work, or nearer home */
struct work mirror_work(struct part *p, struct op *op, const struct work *of); /* 1.7 */
void note_gradients(struct part *p, struct op *op, const struct work *w); /* op is emitted so */
void set_later(struct part *p, struct block *block);       /* info.later, one sweep from the end */

/* -- choose.c -- */
struct work choose_work(struct part *p, struct op *op);    /* docs/SHARDING.md */
void set_hints(struct part *p, struct block *block);

/* -- partition.c -- */
void set_info(struct part *p, struct value *v, enum how how, struct value *from); /* v is made in the scope at hand */
void put_result(struct part *p, struct value *old, struct value *val, const struct sharding *sh); /* val is old, as sh */

/* -- contribute.c -- */
void part_accum(struct part *p, struct op *op);
/* sh, given in the order of y's dims, in the order of x's; dims that y lacks are whole. */
struct sharding in_order_of(const struct value *x, const struct value *y, const struct sharding *sh);

/* -- sink.c -- */
void set_readers(struct part *p, struct block *block);
/* v was made pending over axes in backward: decides whether it stays so for its readers. */
void sink(struct part *p, struct value *v, uint32_t axes);

/* -- again.c -- */
/* op is of backward: notes if it makes a forward value again. */
void set_again(struct part *p, struct op *op);
/* The forward value, as v's block reads it, if forward has it as sh; else NULL. */
struct value *forward_twin(struct part *p, struct value *v, const struct sharding *sh);

/* -- version.c -- */
struct info *info_of(struct part *p, const struct value *v);
struct value *get_version(struct part *p, struct value *v, const struct sharding *sh);
double version_seconds(struct part *p, struct value *v, const struct sharding *sh); /* 0: there or free */
typedef VEC(struct sharding) shardings;
void available(struct part *p, struct value *v, shardings *list);
void add_version(struct part *p, struct value *old, struct value *val);
struct value *root_of(struct part *p, struct value *v, struct sharding *sh); /* and sh of that */
void fix_wild(struct part *p, struct value *v, const struct sharding *sh);
uint32_t until_late(const struct module *m); /* axes over which a sum may wait for the epilogue: microbatches, stages */
struct value *rename_root(struct part *p, struct value *v); /* through aliases */

/* -- drop.c -- */
void drop_dead(struct arena *mem, struct block *block);

static inline struct work *op_work(const struct op *op) { return op->aux; }

#endif
