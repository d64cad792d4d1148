/* tests/cuda/attention.h - what runtime/attention.c is told, as the CUDA kernels are told it. */
#ifndef PTC_TESTS_CUDA_ATTENTION_H
#define PTC_TESTS_CUDA_ATTENTION_H
#include "codegen/cuda.h"
#include "runtime/internal.h"

static inline struct ptc_order cuda_order(const struct order *o)
{
	return (struct ptc_order){ o->start, o->size, o->zigzag };
}

static inline struct ptc_attention cuda_attention(const struct attention *x, void *const *at)
{
	struct ptc_attention y = { .rows = x->rows, .cols = x->cols, .d = x->d, .dv = x->dv, .nloop = x->nloop, .causal = x->causal,
				   .join = x->join, .row = cuda_order(&x->row), .col = cuda_order(&x->col), .scale = x->scale,
				   .cap = x->cap, .p = x->p, .key = x->key, .rng_base = x->rng_base, .rng_row = x->rng_row,
				   .rng_col = x->rng_col };

	for (int w = 0; w < NPLACE; w++)
		y.at[w] = at[w];
	for (int w = 0; w < NAT; w++) {
		y.row_stride[w] = x->row_stride[w];
		y.d_stride[w] = x->d_stride[w];
		for (int l = 0; l < x->nloop; l++)
			y.stride[w][l] = x->stride[w][l];
	}
	for (int l = 0; l < x->nloop; l++) {
		y.n[l] = x->n[l];
		y.keys |= (int64_t)x->keys[l] << l;
		y.loop[l] = cuda_order(&x->loop[l]);
		y.rng_loop[l] = x->rng_loop[l];
	}
	for (int k = 0; k < NPLACE - NAT; k++) {
		y.extra[k] = (struct ptc_extra){ .there = x->extra[k].there, .row = x->extra[k].row, .col = x->extra[k].col };
		for (int l = 0; l < x->nloop; l++)
			y.extra[k].loop[l] = x->extra[k].loop[l];
	}
	return y;
}
#endif
