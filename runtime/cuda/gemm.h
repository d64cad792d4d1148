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

struct product {
	struct shape is;
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t at[3];
	cublasLtMatmulAlgo_t algo;
	int64_t workspace, tried; /* tried: of so many ways it was the fastest */
	bool none;                /* the library has no way for it with its epilogue */
	struct product *next;
};
bool gpu_point(struct gpu *g, const struct product *p, const struct extras *x); /* where these lie, this time */

/* -- tune.c -- */
enum { MOST_WAYS = 16 };
int tune_ways(const struct gpu *g); /* to ask for; 1: nothing is measured */
/* Sets algo, workspace and tried from the n ways there are, at least one. */
void tune(struct gpu *g, struct product *p, const cublasLtMatmulHeuristicResult_t *way, int n);

/* The shape of a choice; by: the loop that is a batch. Of an epilogue, after that. */
struct shape gpu_shape(const struct choice *c, const struct ring *by, const struct contraction *x, const void *a, const void *b,
		       const void *o, bool add);
void gpu_shape_extras(struct shape *s, int epilogue, const struct extras *x);
/* a, b: as cuBLASLt orders them. *none: the library has no way for this epilogue, and nothing was done. false: said. */
bool gpu_multiply(struct gpu *g, const struct shape *s, const void *a, const void *b, void *c, const struct extras *x, bool *none);
void gpu_share_sums(struct contraction *x); /* a loop of one operand alone, which is summed, gets a step of 0 in the other */

#endif
