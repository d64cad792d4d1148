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

struct cuda_sig {
	const struct op *op;        /* OP_KERNEL */
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

/* For NVRTC, beside the architecture; no contraction, so that an op yields the same in any kernel. */
extern const char *const cuda_flags;

#endif
