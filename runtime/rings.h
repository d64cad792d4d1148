/* runtime/rings.h - the loops of a contraction (einsum), sorted and merged, and seen as matrix products: rings.c. */
#ifndef PTC_RUNTIME_RINGS_H
#define PTC_RUNTIME_RINGS_H
#include "runtime/internal.h"

enum { BATCH, ROW, COL, SUM, NKINDS }; /* in a b c; a c; b c; a b */

struct ring { /* one loop; s: steps in a, b, c, in elements, 0 where it lacks the loop */
	int64_t n, s[3];
};

struct rings {
	int n;
	struct ring r[3 * MAX_DIMS];
};

/* by[NKINDS]. false: a loop that only one of a and b has, or only c. */
bool classify(const struct contraction *x, struct rings *by);

/* A choice of one loop of each kind as a matrix product: which, how stored. */
struct choice {
	int at[NKINDS];     /* -1: none; BATCH unused */
	bool ta, tb, swap;  /* swap: c is stored transposed */
	int64_t m, n, k, lda, ldb, ldc;
	double work;
};
bool choose(const struct rings *by, struct choice *best); /* the largest product; false: none fits */

/* Nests between operand `which` (ss) and a packed copy (ds); y gets the packed strides. in_order: loops in the order
 * of memory. packing: batch, then those of `first`, then the rest (rows before sums and so on). */
struct nest in_order(const struct contraction *x, struct contraction *y, int which);
struct nest packing(const struct contraction *x, struct contraction *y, int which, int first, int second);
int64_t nest_count(const struct nest *l);

/* -- contract.c -- */

/* What carries out a contraction. All return false (NULL) after an error of their own. */
struct contractor {
	void *self;
	int64_t limit;  /* bytes of scratch */
	bool bf16;      /* products of bf16 exist */
	bool keeps;     /* what is only reordered keeps its type */
	bool batches;   /* of several at once: `batch` may be given */
	void *(*room)(void *self, int slot, int64_t bytes);
	bool (*copy)(void *self, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src);
	bool (*add)(void *self, const struct nest *l, enum dtype dt, void *dst, const void *src);
	bool (*fill)(void *self, const struct nest *l, enum dtype dt, void *dst, double x);
	/* x: for the types. add: c += */
	bool (*product)(void *self, const struct choice *c, const struct ring *batch, const struct contraction *x, const char *a,
			const char *b, char *o, bool add);
	bool (*plain)(void *self, const struct contraction *x, const void *a, const void *b, void *c); /* all that is no product */
};
/* How many calls of product() a choice is. */
int64_t contract_calls(const struct rings *by, const struct choice *c, bool batches);
bool contract_by(const struct contractor *by, const struct contraction *x, const void *a, const void *b, void *c);

#endif
