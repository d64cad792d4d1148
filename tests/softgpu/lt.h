/* tests/softgpu/lt.h - private: descriptors of cuBLASLt (lt.c) and the product (lt_run.c). */
#ifndef SOFTGPU_LT_H
#define SOFTGPU_LT_H
#include "tests/softgpu/api.h"

struct ptc_lt_desc {
	int32_t compute, scale, pointer_mode, transa, transb, transc, fill;
	uint32_t epilogue;
	void *bias;
	int64_t bias_stride;
	void *aux;
	int64_t aux_ld, aux_stride, alpha_stride;
	int32_t sm_count, aux_type;
	int8_t fast_accum;
	int32_t bias_type;
};
struct ptc_lt_layout {
	uint32_t type;
	int32_t order;
	uint64_t rows, cols;
	int64_t ld;
	int32_t batch;
	int64_t stride, plane;
	uint32_t batch_mode;
};
struct ptc_lt_pref {
	uint32_t search;
	uint64_t workspace;
	uint32_t reduction;
	uint32_t align[4];
	float waves;
	uint64_t impl;
};

enum { LT_BIAS = 4, LT_RELU = 2, LT_GELU = 32, LT_DGELU = 64, LT_AUX = 128, LT_BGRAD = 16, LT_BGRADA = 256, LT_BGRADB = 512 };
struct lt_work {
	struct work work;
	struct ptc_lt_desc d;
	struct ptc_lt_layout a, b, c, o;    /* o: D */
	const char *pa, *pb, *pc;   /* where bytes lie */
	char *po, *workspace;
	size_t workspace_bytes;
	float alpha, beta;
	const float *device_alpha, *device_beta;    /* NULL: alpha and beta hold */
	int64_t m, n, k;
	int way;                    /* which of the algorithms */
};

size_t lt_size(uint32_t type);      /* bytes of an element; 0: not a type of products */
bool lt_run(struct node *n);
/* Bytes from a matrix's start to its last element's end, over all batches. */
size_t lt_extent(const struct ptc_lt_layout *l);
uint32_t lt_bias_type(const struct lt_work *w);
uint32_t lt_aux_type(const struct lt_work *w);

#endif
