/* passes/gradients.h - what differentiate.c (blocks and loops) and gradients.c (one rule an op)
 * share. A cotangent may lack dims of its value: it is the same number along them. */
#ifndef PTC_GRADIENTS_H
#define PTC_GRADIENTS_H
#include "ir/ir.h"

/* What the pass knows of a value; hangs on value.aux while it works. */
struct cot {
	bool varied;           /* depends on a trained param, so a gradient is wanted */
	bool param;            /* is a param or a view of one: its gradient is f32 */
	bool kept;             /* not made again, as it might round otherwise, or as it costs nothing to keep */
	bool useful;           /* a result that has a cotangent depends on it (loops only) */
	signed char leafy;     /* made of leaves alone: 1 yes, -1 no, 0 not asked yet */
	signed char roots;     /* 1 + how many tensors it is made of pointwise; 0 not asked yet */
	struct value *root[2];
	struct value *here;    /* what the backward body at work calls it */
	VEC(struct value *) parts; /* contributions to its cotangent so far */
};

struct grad {
	struct module *m;
	struct builder b;      /* where backward ops go */
};

struct cot *cot_of(struct grad *g, struct value *v);
enum dtype cot_type(struct grad *g, struct value *v);
/* Adds dv to the cotangent of v; nothing if none is wanted. */
void cot_give(struct grad *g, struct value *v, struct value *dv);
/* The contributions so far as one value, NULL if there are none; takes them. */
struct value *cot_take(struct grad *g, struct value *v);
/* dv with all dims of v; with `order` also in v's order and of its cotangent's type. */
struct value *cot_widen(struct grad *g, struct value *dv, struct value *v, bool order);
struct value *cot_zeros(struct grad *g, struct value *v);

/* Whether a cotangent of op's results reaches operand i. Not for regions. */
bool gradient_flows(const struct op *op, uint32_t i);
/* Gives the operands of op their contributions; dy: the cotangent of result 0. */
void op_gradient(struct grad *g, struct op *op, struct value *dy);

#endif
