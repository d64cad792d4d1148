/* passes/stages.h - what the files of the stages pass share. */
#ifndef PTC_STAGES_H
#define PTC_STAGES_H
#include "passes/passes.h"

enum { EVERYWHERE = -1 }; /* as a set of places: all, and what no place runs */

/* A cotangent that is still a sum over places, in parts: one value for each place. */
struct part_at {
	int place;
	bool partial; /* of a loop: each stage that runs iterations has its own part */
	struct value *v;
};

/* What the pass knows of a value. */
struct spot {
	int place;       /* in forward and backward; -1: none, it is made where it is read */
	bool free;       /* of backward, made of forward alone: it bounds no reader */
	bool deferred;   /* may stay a sum over places until the epilogue */
	VEC(struct part_at) parts;
	int64_t need;    /* places that read it (values without one, prologue, buffers' reads) */
	int64_t there, wanted; /* epilogue: sets of places */
	int64_t owed;    /* it may still be a sum over the stages of these places; 0: it is not */
};

struct stages {
	struct module *m;
	struct diag *d;
	int n;           /* repeats */
};

struct spot *spot_of(struct stages *s, const struct value *v);
int stage_loop(const struct stages *s, const struct op *op); /* which repeat of the pipeline; -1 */
bool stage_placeless(const struct value *v); /* made of constants, inputs, params alone */
bool makes_placeless(const struct op *op);   /* and nothing else: a repeat may make both */
void stage_put(struct stages *s, struct op *op, int place); /* there op runs */
int64_t stage_rows(const struct module *m, const struct value *v); /* places of the repeats that v has rows of */

/* -- back_stages.c -- */
void place_backward(struct stages *s);

/* -- once_stages.c -- */
bool from_zero(const struct op *repeat, uint32_t i);  /* carried value i begins with zero */
bool carry_once(struct stages *s);  /* makes what loops that run once a step carry {local}; false: it can't be */

void place_late(struct stages *s);  /* the epilogue; see late_stages.c */
/* x, as it is on the stages of `from`, for those of `to`: a sum over the pipeline's axis. Before b->before. */
struct value *to_sum(struct builder *b, struct value *x, int64_t from, int64_t to, bool partial);

#endif
