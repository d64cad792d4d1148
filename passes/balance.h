/* passes/balance.h - where to cut the iterations of a pipeline's repeats into chunks. */
#ifndef PTC_BALANCE_H
#define PTC_BALANCE_H
#include "passes/simulate.h"

struct piece { /* of the work: an iteration, or straight-line code */
	double seconds[NACT];
	double bytes, freed, cut; /* as of struct chunk_cost */
	double fixed;             /* held all the time: params, gradients, states */
};

/* The iterations of all repeats in file order. */
struct chain {
	const struct piece *iteration;
	int n;
	const struct piece *early; /* n, or NULL: an iteration that is one of the first nfirst of its stage, in all its chunks */
	int nfirst;
	const struct piece *glue;  /* n, or NULL: straight-line code before iteration i > 0, that goes with it */
	struct piece first, last;  /* before the first, after the last: of the first and the last chunk */
	const double *work;        /* by stage, or NULL: bytes that it needs beside what its pieces hold */
	const double (*hop)[2];    /* n + 1, or NULL: seconds of an F and a B message over a cut before iteration i */
};

/* A cut: chunk g has iterations end[g-1] to end[g]; may be empty. */

/* The least possible time of the longest of `chunks` chunks, among those that hold at most `bytes`
 * (0: any) with so many microbatches in flight (NULL: 1); of these cuts the one with the least sum
 * of squares; of these the one with the short chunks first. NULL: none fits. Of several chunks a stage the first
 * `stages` alone are taken to have early iterations. */
int *cut_even(struct arena *mem, const struct chain *c, int chunks, int stages, const double *inflight, double bytes);
/* Stages, each the sum of its chunks, filled to one level; then the chunks of each. */
int *cut_level(struct arena *mem, const struct chain *c, const struct schedule *s);
/* From the iterations of each chunk. NULL if they do not add up to the chain's. */
int *cut_given(struct arena *mem, const struct chain *c, int chunks, const int *count);

/* What the chunks of a cut cost, and what their stages hold besides what `like` says. */
struct costs cut_costs(struct arena *mem, const struct chain *c, const struct schedule *s, const int *end,
		       const struct costs *like);

struct balance {
	int *end;        /* NULL: does not fit (v = 1) */
	const char *how; /* "even", "level", "climb" */
	double seconds;  /* of a step, simulated */
	bool fits;       /* in bytes a stage */
	int simulations;
};
/* v = 1: cut_even. Otherwise the better of the two by simulation, improved one iteration at a time
 * as long as chunks are few. `like` gives stages' costs, buffers and clip; its chunks are not read. */
struct balance balance_chain(struct arena *mem, const struct chain *c, const struct schedule *s,
			     const struct costs *like, double bytes);
#endif
