/* runtime/cuda/gemm.h - private to the CUDA backend: products by cuBLASLt, with and without an epilogue. */
#ifndef PTC_RUNTIME_CUDA_GEMM_H
#define PTC_RUNTIME_CUDA_GEMM_H
#include "runtime/cuda/cuda.h"
#include "runtime/rings.h"

/* A product as cuBLASLt sees it: c[n x m] = a[n x k] b[k x m] by columns. No padding: it is a key. */
struct shape {
	int64_t m, n, k, lda, ldb, ldc, batch, sa, sb, sc;
	int32_t ta, tb, type, ctype;
	int32_t align[5]; /* bytes, of the pointers, up to 256: a, b, c; an epilogue's vector and matrix, 0: none */
	int32_t add, epilogue, zero;
};

/* What an epilogue reads or writes beside: a bias or a bias gradient; a matrix like the result. NULL: none. */
struct extras {
	const void *vector, *aux;
};

/* The shape of a choice; by: the loop that is a batch. Of an epilogue, after that. */
struct shape gpu_shape(const struct choice *c, const struct ring *by, const struct contraction *x, const void *a, const void *b, const void *o,
		       bool add);
void gpu_shape_extras(struct shape *s, int epilogue, const struct extras *x);
/* a, b: as cuBLASLt orders them. *none: the library has no way for this epilogue, and nothing was done. false: said. */
bool gpu_multiply(struct gpu *g, const struct shape *s, const void *a, const void *b, void *c, const struct extras *x, bool *none);
void gpu_share_sums(struct contraction *x); /* a loop of one operand alone, which is summed, gets a step of 0 in the other */

#endif
