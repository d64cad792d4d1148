/* kernels.h - the kernels of many plans, each text once, and what the real NVRTC makes of them. */
#ifndef TESTS_NVRTC_KERNELS_H
#define TESTS_NVRTC_KERNELS_H
#include "codegen/cuda.h"

/* A kernel of some plans. Its text without its name is what makes it another. */
struct kernel {
	const char *prelude;       /* what stands before it in the source, but for other kernels; equal ones are the same pointer */
	const char *head, *rest;   /* around the name */
	const char *name, *plan;   /* of the first plan that has it */
	bool named;                /* made by hand, with one name in all plans: not like another but for sizes */
	int threads, uses;         /* of a block; plans that have it */
	uint32_t shared;           /* the most dynamic shared memory that a launch gives it */
	uint64_t hash;             /* of its text without numbers */
	int like;                  /* the first kernel whose text is the same but for numbers */
};
struct catalog {
	struct arena *mem;
	VEC(struct kernel) all;
	VEC(const char *) preludes;
	int total, kinds;          /* kernels before equal ones were one; different ones but for numbers */
};

/* Adds those of a plan in the IR's form after memory. False after an error. */
bool kernels_add(struct catalog *k, const char *file, struct diag *d);

/* What ptxas says of a kernel for an architecture; of a warp's thread, but for shared, which is static and of a block. */
struct usage {
	int state;                 /* 0: was not compiled */
	int registers, stack, spill_stores, spill_loads, shared;
};

struct nvrtc;
/* NULL: no library is found; $NVRTC names one before those of the loader. */
struct nvrtc *nvrtc_find(struct arena *mem);
const char *nvrtc_version(struct arena *mem, const struct nvrtc *n);
/* Compiles kernels which[0 .. n-1], of one prelude, as one source; usage[i] is of which[i]. The log if that fails, or NULL. */
const char *nvrtc_compile(struct arena *mem, const struct nvrtc *lib, const struct catalog *k, const int *which, int n, const char *arch,
			  struct usage *usage);
#endif
