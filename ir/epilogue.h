/* ir/epilogue.h - what a matrix product can make of its result before it is stored, and of an operand while it is read.
 *
 * A kernel region right behind an einsum may be such an epilogue: a bias, gelu (tanh), relu, what goes into gelu kept beside it,
 * the derivative of gelu at what was kept, sums of the result or of an operand (gradients of biases). The two stay two ops, and
 * the plan gives both their places; a backend that has products with epilogues (docs/GPU.md) carries both out as one leaf, where the
 * sum is rounded once, at the end. Others run one after the other. What counts is the kernel's expression, whatever it is called. */
#ifndef PTC_EPILOGUE_H
#define PTC_EPILOGUE_H
#include "ir/ir.h"

enum epilogue_act { EPI_NONE, EPI_GELU, EPI_RELU, EPI_DGELU };

/* out = act(z + bias), or z * gelu'(aux). Numbers of operands and results of the kernel, -1: none.
 * Without a z the kernel sums operand `side` of the einsum, over what the einsum sums: `grad` alone. */
struct epilogue {
	enum epilogue_act act;
	int z, bias, aux; /* operands. aux: what gelu' is taken of */
	int out, kept;    /* results. kept: what goes into gelu */
	int grad, side;   /* grad: sums of out, or of operand `side`, that leave the dims of its result */
};

/* Is kernel an epilogue of einsum, by what both compute? Whether they may be one is epilogue_pair's. */
bool epilogue_of(const struct op *einsum, const struct op *kernel, struct epilogue *e);
/* The einsum that stands right before kernel and may be carried out with it: nobody else reads z. NULL: none. */
const struct op *epilogue_pair(const struct op *kernel, struct epilogue *e);
bool is_only_reader(const struct value *v, const struct op *reader); /* no other op of its block, nor what follows that */

/* Does v have the dims that the einsum's result has of one operand alone, the last one among them, as a bias has? */
bool epilogue_along(const struct op *einsum, const struct value *v);

/* The expression of a value that is stored, in a kernel or before there are any: the ops that make it of z. Outside of a kernel z
 * is an einsum's. false: it is none of the forms. */
enum { EPI_OPS = 12 };
struct epilogue_ops {
	int n;
	const struct op *at[EPI_OPS];
	const struct value *z, *bias, *aux, *kept; /* NULL: none */
	enum epilogue_act act;
};
bool epilogue_match(const struct value *out, struct epilogue_ops *x);

#endif
