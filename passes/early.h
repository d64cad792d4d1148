/* passes/early.h */
#ifndef PTC_EARLY_H
#define PTC_EARLY_H
#include "ir/ir.h"

/* Depends on params and inputs only: may be made again in any section. Needs kinds. */
static inline bool is_known(const struct value *v)
{
	return v->kind <= K_PARAM;
}

/* Copies those results of op that are known, with all they need of its body; op is known or a
 * repeat. name: what an operand is called in b's block. */
struct again {
	struct builder b;
	struct value *(*name)(void *me, struct value *v, enum phase phase);
	void *me;
	bool nested; /* keep inner repeats none of whose results is known; body values and inner
	              * repeats get their copies as aux */
};
struct op *known_again(const struct again *a, struct op *op);

/* Does op look along the batch, so that one microbatch does not do? */
bool across_batch(const struct module *m, const struct op *op);

/* What loops of FORWARD and BACKWARD sum of inputs over the batch is made in loops of PROLOGUE. */
void hoist_early(struct module *m);

#endif
