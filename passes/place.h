/* passes/place.h */
#ifndef PTC_PLACE_H
#define PTC_PLACE_H
#include "ir/ir.h"

/* The sharding that the arrows ask for of a tensor with this name (NULL: only arrows without a
 * selector apply), docs/LANGUAGE.md. batch_in_time: it holds one microbatch, so the batch dim
 * is split over the time axis first. Needs the refined mesh (after place). */
struct sharding place_by_arrows(const struct module *m, const char *name, int nd, const dimid *d,
				bool batch_in_time);

/* The axes of the `what` arrows that match, each appended at the minor end of the first dim in
 * memory order whose local extent it divides, else of the largest; never a repeat's dim. */
struct sharding refine_by_kind(const struct module *m, const char *name, int nd, const dimid *d,
			       struct sharding sh, enum arrow_what what);

/* Does a `grads` or `params` arrow hold for this param? Then its gradient is reduced to its home in
 * each microbatch and accumulated there; else it is accumulated pending, and reduced once a step. */
bool reduced_each_microbatch(const struct module *m, const char *param);

/* Sets dim.zigzag by the arrows, for all of the program. false: a dim can't have the order asked for. */
bool order_dims(struct module *m, struct diag *d); /* order.c */

void find_loops(struct module *m, const struct block *block); /* sets dim.loop */
/* Is there a `params` arrow with `gather = step` for this param? Then it is gathered in the prologue and
 * kept for forward and backward; else each use gathers it. */
bool gathered_once(const struct module *m, const char *param);

bool is_repeat_dim(const struct module *m, dimid d);
/* Shell pattern: * and ? match any text. */
bool glob_match(const char *pattern, const char *name);

#endif
