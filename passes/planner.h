/* passes/planner.h - what the files of the memory pass share. */
#ifndef PTC_PLANNER_H
#define PTC_PLANNER_H
#include "passes/memory.h"
#include "passes/passes.h"

struct planner {
	struct module *m;
	struct diag *d;
	struct items items;         /* of the block at hand */
	struct regions *r;          /* NULL: in a body, which is in one region */
	int64_t *base;              /* by region: where its values begin, buffers lie below */
	int64_t forward, backward, end; /* positions: first op of F, last op of B, after all; top block */
	struct home **bufs;         /* by index in module.bufs */
	bool *shown;                /* by position: an evaluation runs it, for its reports */
};

/* -- memory.c -- */
bool once_a_step(const struct module *m, const struct op *op);
struct home *home_of(const struct value *v);
int buffer_index(const struct planner *p, const char *name); /* -1: none */
void touch(struct home *h, int64_t pos);                      /* it is read at pos */

/* -- memory_sent.c -- */
void direct_accumulate(struct planner *p, struct op *op);
void stacked_yields(struct planner *p, struct block *block);
void carried_yields(struct planner *p, struct block *block, int64_t n);
void direct_write(struct planner *p, struct op *op);
bool place_writes(struct planner *p, struct block *top);
bool check_writes(struct planner *p, const struct block *top); /* false after an error, as check_copies */
bool check_copies(struct planner *p, const struct block *top);
bool in_place(const struct op *op, const struct value *result, const struct home *h); /* the result may lie on operands at h */
bool stack_adds(const struct op *repeat, uint32_t k);             /* is result k a stack that is summed over the microbatches? */
/* What evaluation runs: all that reports without backward need. It must not touch a buffer. */
void find_shown(struct planner *p, struct block *top, int64_t n);

#endif
