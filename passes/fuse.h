/* passes/fuse.h - private to fuse: the ops of one block and their groups. */
#ifndef PTC_FUSE_H
#define PTC_FUSE_H
#include "passes/passes.h"

enum { FREE_OPS = 6, MOST_OPS = 150, MOST_IO = 60, COLUMN_LIMIT = 16384, ROW_LIMIT = 32768 };

enum role_of { OUTSIDE, FREE, FUSED };

struct group {
	VEC(int) ops;  /* indices, ascending */
	bool scalar, back, shown;
	bool table;    /* made of leaves alone */
	bool sealed;   /* the epilogue of a product: nothing joins it */
	int64_t most;  /* elements of its longest loops */
	int key;       /* index of the last op: its place among the others */
};

struct item {
	struct op *op;
	enum role_of role;
	int group;     /* -1 */
	int cost;      /* of a free op: maps in its tree */
	bool stays;    /* a free op that something outside of kernels reads */
	bool back;     /* depends on backward */
	bool shown;    /* an evaluation runs it, for a report that does not */
	bool sent;     /* see find_sent */
	uint32_t seen;
	VEC(int) users, after; /* ops that read it; that must come after it */
};

struct fuse {
	struct arena *mem;
	struct module *m;
	struct diag *d;
	struct block *block;
	int n;
	struct item *it;
	struct uses { VEC(int) ops; } *arg_uses; /* by number of the block's argument */
	VEC(struct group) groups;
	uint32_t stamp;
	int *queue;
};

/* The number of the op that makes v, -1: it comes from outside the block, or is new. */
static inline int item_of(const struct fuse *f, const struct value *v)
{
	return v->def && v->home == f->block ? (int)v->def->mark : -1;
}

static inline bool is_sum(const struct op *op)
{
	return opinfo[op->code].class == C_REDUCE || op->code == OP_SCATTER;
}

bool fuse_yields(const struct fuse *f, const struct value *v);   /* the block yields v */
/* Is the result of op read outside of groups a and b? */
bool fuse_escapes(const struct fuse *f, const struct op *op, int a, int b);
/* Partial sums that a reduction would hold at once: kept dims inside of summed ones. */
int64_t fuse_held(const struct fuse *f, const struct op *op);

/* -- fuse_again.c: what is changed for the sake of kernels; new ops have mark -1 -- */
void fuse_drop_detach(struct block *b);
void fuse_lift_renames(struct fuse *f);
void fuse_widen_sums(struct fuse *f);
void fuse_find_labels(struct fuse *f);
void fuse_order_results(struct fuse *f); /* as the kernels that read them want them in memory */
bool fuse_make_again(struct fuse *f); /* true: something changed */
bool fuse_is_stored(const struct fuse *f, int i); /* whatever the kernels are */

/* -- fuse_build.c: groups become kernels; false, told, if they wait for each other -- */
bool fuse_rebuild(struct fuse *f);

/* -- fuse_epilogue.c: what a product makes of its result (ir/epilogue.h) is a kernel of its own, right behind it -- */
void fuse_part_epilogues(struct fuse *f);  /* casts that others read too are made again for it: mark -1 */
void fuse_seal_epilogues(struct fuse *f);  /* makes their groups, before any other */
void fuse_pair_epilogues(struct block *b); /* of the finished block: product and epilogue side by side */
int fuse_new_group(struct fuse *f, int i);

#endif
