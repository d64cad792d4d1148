/* passes/prove.h - is a plan safe? What the files of the proof share; passes.h has the entry.
 *
 * All ranks of a stage run one program, so it is walked once, over abstract memory: which bytes hold which
 * content. What an op reads must be there, whole. Nothing here is shared with memory.c, which made the
 * places, or with the runtime, which uses them: all three follow the rules at the head of memory.c. */
#ifndef PTC_PROVE_H
#define PTC_PROVE_H
#include "passes/passes.h"

/* A depth from SLOT on: not the iteration but the parity of a count of them, of what is gathered {ahead}. */
enum { PROVE_NEST = 8, SLOT = PROVE_NEST };

/* Where a value lies: base + iteration[depth] * stride. */
struct spot {
	int64_t base, bytes;
	int n, depth[PROVE_NEST];
	int64_t stride[PROVE_NEST];
	bool adds; /* it is added to what lies there, but in the first microbatch */
};

/* A content is a number of its own for each value made, each time it is made. A row of a stack is a part of
 * the stack's content. */
struct content {
	uint32_t tag;  /* 0: nothing */
	int64_t start; /* address of the first byte of what it is a part of */
};

struct held {
	struct spot spot;
	bool placed;
	const struct op *to; /* the op that it is sent to */
	struct content is, was; /* was: of a sum, before this microbatch */
};

/* -- prove_bytes.c: which bytes hold what -- */
struct bytes {
	int64_t lo, hi;
};

struct piece {
	struct bytes at;
	struct content is;
};

struct memory {
	struct arena *mem;
	VEC(struct piece) pieces; /* sorted, disjoint */
};
void memory_put(struct memory *m, struct bytes at, struct content is);
/* NULL: all of `at` holds `is`; else the first piece that does not (of tag 0 where nothing lies). */
const struct piece *memory_find(struct memory *m, struct bytes at, struct content is, struct piece *hole);
static inline bool meet(struct bytes a, struct bytes b)
{
	return a.lo < b.hi && b.lo < a.hi;
}

/* Bytes that belong to a collective that has started and has not been waited for. */
struct flight {
	struct bytes at;
	bool written;
	const struct op *op;
};

struct prover {
	const struct module *m;
	struct diag *d;
	struct held *held;     /* by id of the value */
	struct content *bufs;  /* by index in module.bufs */
	struct memory memory;
	VEC(const struct value *) made; /* by tag: the value it was made as */
	VEC(struct flight) flights;
	struct bytes iter[SLOT + PROVE_NEST]; /* rows that are walked at once, by depth */
	int64_t turns[PROVE_NEST];            /* iterations walked, by depth */
	struct bytes next;                    /* rows of the next iteration of the innermost loop; none: empty */
	int64_t mb, steps;
	int hops;
	bool eval;             /* an evaluation: what the reports need that need no backward */
	bool *shown;           /* by number of the op of the top block */
	struct proof *proof;
};

/* -- prove_place.c -- */
bool prove_places(struct prover *p);  /* of all values; false: one has none, or lies outside the arena */
int prove_depth(const struct block *block);
bool same_spot(const struct spot *a, const struct spot *b);
bool row_of(const struct value *v, const struct value *whole, dimid dim);
bool sums_up(const struct op *repeat, uint32_t k);
bool view_keeps(const struct module *m, const struct op *op); /* a view that need not move an element */
bool may_lie_on(const struct op *op, uint32_t result, uint32_t operand); /* read before it is written, wherever it is */

/* -- prove_walk.c -- */
bool prove_memory(struct prover *p);

/* -- prove_pipe.c -- */
bool prove_pipe(struct prover *p);

bool unsafe(struct prover *p, const struct op *op, const char *fmt, ...) PRINTF(3, 4);
const char *prove_name(struct prover *p, const struct value *v); /* %12 'x' */

#endif
