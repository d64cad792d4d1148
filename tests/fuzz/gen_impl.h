/* tests/fuzz/gen_impl.h - what the files of the generator share.
 *
 * Values in the pools stay near [-2, 2], so that long chains neither vanish nor overflow, and keep
 * away from kinks (ties of max, relu at 0), where rounding would decide. */
#ifndef PTC_FUZZ_GEN_IMPL_H
#define PTC_FUZZ_GEN_IMPL_H
#include "ir/rng.h"
#include "tests/fuzz/gen.h"

enum { DRAWN_ELEMENTS = 1500, FEATS = 4, CHAIN = 3 };

typedef VEC(struct value *) values;

/* A block being built: the top, or the body of a repeat. */
struct scope {
	struct scope *up;
	struct builder b;
	struct op *op;          /* the repeat */
	dimid dim;
	values pool, aux;       /* tensors to build on; scalars that may join the loss */
	values with, with_arg, over, over_arg;
	int depth;
};

struct gen {
	struct arena *mem;
	struct module *m;
	struct gen_case *c;
	struct rnd r;           /* of the step at work */
	dimid batch, seq, ctx, vocab, feat[FEATS], twin[FEATS], heads, group, head, wide, pick, slot, loop[2];
	dimid chain[CHAIN];     /* repeats at the top that a pipeline may cut */
	int nchain;
	struct scope top;
	values tables;          /* reads of params, for ties and penalties */
	VEC(const char *) names;
	int nparam, nname, nkey;
};

typedef struct value *step(struct gen *g, struct scope *s); /* NULL: nothing made */

bool gen_step(struct gen *g);                     /* begins a step; false: it is left out */
bool chance(struct gen *g, int percent);
uint32_t roll(struct gen *g, uint32_t n);
/* What v of an outer scope is called in s: brought in as an invariant, or sliced if it has s's dim. */
struct value *into(struct gen *g, struct scope *s, struct value *v);
struct value *pick(struct gen *g, struct scope *s);
struct value *new_param(struct gen *g, struct scope *s, int nd, const dimid *d);
bool inner(struct gen *g, const struct value *v); /* made of params and inputs */
bool may_sum_batch(struct gen *g, const struct value *v);
bool fits(const struct gen *g, int nd, const dimid *d);
void arg_flags(struct value *arg, int flags);
int flags_of(struct gen *g, struct value *v);

struct value *konst(struct scope *s, double x);
struct value *scaled(struct scope *s, struct value *x, double by);
struct value *one_op(struct scope *s, enum opcode code, struct value *x);
struct value *two_op(struct scope *s, enum opcode code, struct value *x, struct value *y);
struct value *mean_over(struct gen *g, struct scope *s, struct value *x, int nd, const dimid *over);
struct value *mean_all(struct gen *g, struct scope *s, struct value *x);

extern step *const gen_steps[];
extern const int gen_nsteps;
void gen_loss(struct gen *g);
void gen_mesh(struct gen *g);
void fill_scope(struct gen *g, struct scope *s, int steps);
struct value *step_repeat(struct gen *g, struct scope *s);
struct value *make_repeat(struct gen *g, struct scope *s, dimid d);
void make_chain(struct gen *g);
bool in_chain(const struct gen *g, const struct value *v);
void fill_chain(struct gen *g);
int gen_pipeline(struct gen *g);

#endif
