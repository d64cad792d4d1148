/* passes/fixed_order.h */
#ifndef PTC_FIXED_ORDER_H
#define PTC_FIXED_ORDER_H
#include "passes/passes.h"

/* The sum of the squares of n float32 values, layer by layer in their order; no dims. */
struct value *sum_of_squares(struct builder *b, struct value *const *g, uint32_t n);

/* g, the gradient of a param, as the sum of what its uses contribute in a step, in b's phase, which is EPILOGUE. */
struct value *sum_of_uses(struct builder *b, struct value *g);

/* What the iterations of a repeat add up once a step, as a sum over terms. Wants kinds, and leaves new values without. */
void order_sums(struct module *m);

#endif
