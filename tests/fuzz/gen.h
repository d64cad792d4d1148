/* tests/fuzz/gen.h - random valid modules, form LOGICAL, as the front end could make them.
 *
 * A case is a seed. It is made in steps (an op or a pattern of ops, an axis, an arrow, a term of the
 * loss), each with its own random stream, so that a step can be left out and the rest stays much as
 * it was: that is how a failing case is made smaller. */
#ifndef PTC_FUZZ_GEN_H
#define PTC_FUZZ_GEN_H
#include "ir/ir.h"

enum { MOST_STEPS = 256 };

struct gen_case {
	uint64_t seed;
	bool skip[MOST_STEPS];
	bool staged;   /* a program with a pipeline */
	int steps;     /* out: how many there were, skipped ones too */
	int groups;    /* out: losses */
	bool detached; /* out: some of it has no gradient */
};

struct module *gen_module(struct arena *mem, struct gen_case *c);

struct rnd {
	uint64_t s;
};
uint32_t rnd_to(struct rnd *r, uint32_t n); /* 0 .. n-1; 0 if n is 0 */
double rnd_unit(struct rnd *r);

#endif
