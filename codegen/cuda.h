/* codegen/cuda.h - kernel regions, attention and the moves of a plan as CUDA C.
 *
 * One source a plan; the runtime gives it to NVRTC and caches the result by content. The text is plain CUDA C++ without
 * any header of the toolkit: a prelude (cuda.inc, math.inc, cuda_rows.inc) defines what it uses, twice: for NVRTC, and, under
 * PTC_SOFTGPU, for the host compiler of the software GPU. All kernels are extern "C"; only kernels declare shared memory,
 * and all of it is dynamic, by PTC_DYN_SHARED(type, name); no pointer lies in device memory; tensor cores and
 * asynchronous copies are reached through prelude functions alone; no thread returns before a barrier of its block.
 *
 * Arguments of every kernel of a region, in order:
 *   the operands' pointers, the results' pointers (64-byte aligned at the first element of the tensor);
 *   char *scratch             (sig.scratch bytes, of this kernel alone until its last launch is done);
 *   int64_t start, valid      (a pair for each of sig.ext, as struct kernel_sig says);
 *   const struct ptc_step *   (in device memory, written once a step: all that changes from step to step);
 *   struct ptc_iter           (by value: constant in a captured graph). */
#ifndef PTC_CUDA_H
#define PTC_CUDA_H
#include "codegen/codegen.h"

/* The same text stands in the prelude. */
struct ptc_step {
	uint64_t seed;
	uint32_t step, training;
};
struct ptc_iter {
	uint32_t iter[8], iter_all, mb;
};

/* Launches of a region run in order on one stream. All sizes are of caps, not of a rank's extents. */
struct cuda_launch {
	const char *fn;             /* symbol */
	uint32_t grid, block;       /* one-dimensional, both; block: of the row length, a multiple of 32 */
	uint32_t shared;            /* bytes of dynamic shared memory */
};

/* Regions that follow each other in the plan, none in need of another, launched together: the k-th launches of all are one, in which
 * each has a range of the blocks. Arguments: operands, results and extents of each region in turn, then scratch, ptc_step and
 * ptc_iter. */
struct cuda_run {
	int n, nlaunch;             /* regions */
	struct cuda_launch *launch;
	int64_t scratch;            /* bytes, of all */
};

struct cuda_sig {
	const struct op *op;        /* OP_KERNEL */
	const struct cuda_run *run; /* that it may be launched with; NULL */
	int run_at;                 /* which of it, from 0 */
	int nlaunch;
	struct cuda_launch *launch;
	int next;
	struct { dimid d; struct axes on; } ext[64];
	int64_t scratch;            /* bytes */
	uint64_t clear;             /* results (bit k) that must be set to zero before the first launch */
};

/* The CUDA text of all kernels of m, prelude included, in order; sigs gets one entry a kernel. Equal kernels share their
 * functions. NULL after an error. */
char *codegen_cuda(struct arena *mem, const struct module *m, struct cuda_sig **sigs, int *nsig, struct diag *d);

/* -- moves: kernels that every plan's source has -- */

/* n[i] steps of ds[i] elements (ss[i] in the source), outermost first. The same text stands in cuda_moves.inc. */
struct ptc_nest {
	int64_t n[12], ds[12], ss[12], count;
	double x;
	int32_t nd, mode, ddt, sdt;
};
enum cuda_move_mode { CUDA_COPY, CUDA_ADD, CUDA_FILL };
struct cuda_move {
	const char *fn;
	uint32_t grid, block;      /* grid 0: there is nothing to do */
	struct ptc_nest nest;
};
/* dst = src, dst += src (in float32, rounded once) or dst = x over a nest of at most 12 loops; any pair of dtypes. Arguments
 * of the kernel: void *dst, const void *src (NULL for a fill), struct ptc_nest. align: dst | src | 16, of the addresses. */
struct cuda_move cuda_move_of(enum cuda_move_mode mode, enum dtype ddt, enum dtype sdt, int nd, const int64_t *n, const int64_t *ds,
			      const int64_t *ss, double x, uint64_t align);
/* Others, whose arguments are
 *   ptc_join: void *dst, int32_t ddt, const void *src, int32_t sdt, int64_t count, int64_t parts, int64_t step, float scale,
 *             int32_t max: dst[i] = scale * the sum (or largest) of src[i + k step] for k < parts, in order, in float32;
 *             blocks of 256, any grid;
 *   ptc_store_int: int32_t *p, int32_t x: *p = x, by one thread.
 *   ptc_combine: void *o, int32_t dt, float *lse, const float *all_o, const float *all_lse, int64_t n, int64_t no, int64_t nlse,
 *             struct ptc_nest: results of attention over parts of the keys, n of them no (nlse) elements apart, weighed by
 *             exp(lse) and made one: o of type dt, by the nest's ds, their rows by its ss; or, if lse is given, that, by ss;
 *             blocks of 128, any grid. */

/* -- attention -- */

/* What an attention is on a rank: as struct attention of runtime/internal.h, whose comments say what each part means, with
 * the operands and results in the order of its AT_ numbers. The same text stands in cuda_attn.inc. delta: scratch. */
enum { CUDA_Q, CUDA_K, CUDA_V, CUDA_O, CUDA_LSE, CUDA_DO, CUDA_DQ, CUDA_DK, CUDA_DV, CUDA_BIAS, CUDA_MASK, CUDA_WINDOW, CUDA_DBIAS,
       CUDA_ALL };
struct ptc_order {
	int64_t start, size, zigzag;
};
struct ptc_extra {
	int64_t there, row, col, loop[8];
};
struct ptc_attention {
	void *at[CUDA_ALL];
	float *delta;
	int64_t rows, cols, d, dv;
	int64_t row_stride[CUDA_BIAS], d_stride[CUDA_BIAS];
	int64_t nloop, n[8], stride[CUDA_BIAS][8];
	int64_t keys, causal, join, training; /* keys: bit l: loop l is over a dim of k and v. training: not read, ptc_step has it */
	struct ptc_order row, col, loop[8];
	double scale, cap, p;
	uint64_t key, rng_base, rng_row, rng_col, rng_loop[8];
	struct ptc_extra extra[4];            /* bias, mask, window, dbias */
};
struct cuda_attention {
	int nlaunch;
	struct cuda_launch launch[4];         /* in order, on one stream; shared may be more than 48 KB */
	char name[4][40];                     /* that launch->fn points to: not to be copied */
	int64_t scratch;                      /* bytes, for x->delta */
};
/* The launches of an OP_ATTENTION, or the gradient, whose arguments are struct ptc_attention, const struct ptc_step *, struct
 * ptc_iter. With x->join, o and lse (dq, dk, dv, dbias) grow and are float32, else they are made. x may be changed. */
void cuda_attention_of(struct cuda_attention *a, const struct module *m, const struct op *op, struct ptc_attention *x);

/* For NVRTC, beside the architecture; no contraction, so that an op yields the same in any kernel. */
extern const char *const cuda_flags;

#endif
