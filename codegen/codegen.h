/* codegen/codegen.h - kernel regions as C. The runtime compiles them with the system's cc and the flags below, and
 * caches each by content. */
#ifndef PTC_CODEGEN_H
#define PTC_CODEGEN_H
#include "ir/ir.h"

/* What a kernel is told at run time. ext: for each dim that a kernel names in its `dims` (order of
 * struct kernel_sig), this rank's extent; caps are compiled in. All pointers are 64-byte aligned
 * at their tensor's first element. */
struct ptc_env {
	uint64_t seed;
	uint32_t step, training;
	uint32_t iter[MAX_NEST]; /* of the enclosing repeats, outermost first; combined index in iter_all */
	uint32_t iter_all;
	uint32_t part, parts;  /* this call does share `part` of `parts`; parts 0 or 1: all */
};
typedef void ptc_kernel(void *const *in, void *const *out, const int64_t *start, const int64_t *valid,
			const struct ptc_env *env);

struct kernel_sig {
	const struct op *op;   /* OP_KERNEL */
	int code;              /* in the set's */
	const char *name;      /* C symbol; of codegen_c */
	int next;              /* extents it is given: (dim, axes) pairs, start[i] and valid[i] */
	struct { dimid d; struct axes on; } ext[64];
	/* Calls for parts 0 .. parts - 1 may run at once and make the results together, bit for bit
	 * those of one call; at most `split` are worth it, 1: none. Where `maxes` has bit k, each part needs a
	 * result k of its own, and the whole is the larger of them. No sum is made in parts: its order would
	 * depend on what else is in the kernel, and bits on what backward makes again. */
	int split;
	uint64_t maxes;
	int64_t work;          /* elements that its loops run over, about */
};
enum { KERNEL_PARTS = 8 };     /* a good number of parts where there are maxima */

/* A function: its text, in which @ stands for its name. */
struct kernel_code {
	const char *text, *name;
	uint64_t hash;
};
/* All kernels of a module, in order, and their functions; equal kernels share one. The functions are not yet named. */
struct kernel_set {
	struct kernel_sig *sig;
	struct kernel_code *code;
	int nsig, ncode;
};
bool codegen_kernels(struct arena *mem, const struct module *m, struct kernel_set *set, struct diag *d);
/* A C source: what kernels call, then n functions by their names. They are the same code in whatever company. */
char *codegen_source(struct arena *mem, const struct kernel_code *code, int n);
/* The C text of all kernels of m, functions named k0, k1 and on; sigs gets one entry a kernel. NULL after an error. */
char *codegen_c(struct arena *mem, const struct module *m, struct kernel_sig **sigs, int *nsig, struct diag *d);
extern const char *const codegen_cflags; /* the safe set */

#endif
