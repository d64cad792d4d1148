/* passes/prove.h - is a plan safe? What the files of the proof share; passes.h has the entry.
 *
 * All ranks of a stage run one program, so it is walked once, over abstract memory: which bytes hold which
 * content. What an op reads must be there, whole. Nothing here is shared with memory.c, which made the
 * places, or with the runtime, which uses them: all three follow the rules at the head of memory.c. */
#ifndef PTC_PROVE_H
#define PTC_PROVE_H
#include "ir/layout.h"
#include "passes/passes.h"

/* A depth from SLOT on: not the iteration but the parity of a count of them, of what is gathered {ahead}; and
 * the iterations of a pipelined loop that come before on this chunk, on this stage; or rows of those that are kept. */
enum { SLOT = MAX_NEST, IN_CHUNK = 2 * MAX_NEST, IN_STAGE, IN_KEPT, NCOUNT };

/* Where a value lies: base + iteration[depth] * stride, in a region (ir/region.h). rows: it is all rows of the
 * region that there are, each of so many bytes; 0: it is not. */
struct spot {
	int region;
	int64_t base, bytes, rows;
	int n, depth[MAX_NEST + 2];
	int64_t stride[MAX_NEST + 2];
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
	dimid cut;              /* a dim that is cut into stages, where a stage has not all rows; NODIM: none */
	int64_t row;            /* bytes of one of them */
	dimid stacked;          /* along which rows were last asked for, NODIM: none yet */
	int64_t stack_row;      /* bytes of one of these */
	uint32_t level;         /* of a stack of sums: its content when nothing was added, then each after the one before */
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
/* Is all that lies there of contents that v was made as? made: by tag. */
bool memory_holds_only(const struct memory *m, struct bytes at, const struct value *const *made, const struct value *v);
static inline bool meet(struct bytes a, struct bytes b)
{
	return a.lo < b.hi && b.lo < a.hi;
}

/* Bytes that belong to a collective or a copy that has started and has not been waited for. */
struct flight {
	struct bytes at;
	bool written;
	const struct op *op;  /* NULL: a message */
};

struct prover {
	const struct module *m;
	struct diag *d;
	const struct regions *r;
	const struct layouts *l; /* NULL: no pipeline */
	struct held *held;       /* by id of the value */
	struct content *bufs;    /* by index in module.bufs */
	struct spot *buf_spot;   /* the same: where it lies */
	VEC(struct content *) left; /* by id: room for what actions leave for others, of one stage after the other */
	struct memory memory;
	VEC(const struct value *) made; /* by tag: the value it was made as */
	VEC(struct flight) flights;
	int hops;

	/* Where the walk is. */
	bool eval;               /* an evaluation: what the reports need that need no backward */
	const bool *shown;       /* by number of the op of the top block */
	const struct slot *slot; /* by region */
	int64_t arena, places;   /* of the stage */
	int stage, chunk;        /* chunk -1: prologue, epilogue */
	bool first;              /* sums over the microbatches begin here */
	int64_t nth;             /* microbatches that this chunk has had */
	struct bytes iter[NCOUNT];   /* rows that are walked at once, by depth */
	int64_t turns[MAX_NEST];   /* iterations walked, by depth */
	struct bytes next;           /* rows of the next iteration of the innermost loop; none: empty */
	dimid kept;                  /* of the loop at the top: the part that has rows; NODIM: all have */
	int64_t chunk_at, stage_at;  /* of the pipelined loop: iterations before the chunk's, on all stages, on this */
	int64_t steps;
	struct proof *proof;
};

static inline struct held *held(const struct prover *p, const struct value *v)
{
	return &p->held[v->id];
}

/* -- prove_place.c -- */
bool prove_places(struct prover *p);  /* of all values; false: one has none, or lies outside the arena */
int prove_depth(const struct block *block);
bool same_spot(const struct spot *a, const struct spot *b);
bool row_of(const struct module *m, const struct value *v, const struct value *whole, dimid dim);
/* What counts the rows of v, which lies in whole. */
int row_depth(const struct prover *p, const struct op *repeat, const struct value *v, const struct spot *whole);
bool view_keeps(const struct module *m, const struct op *op); /* a view that need not move an element */
bool may_lie_on(const struct op *op, uint32_t result, uint32_t operand); /* read before it is written, wherever it is */

/* -- prove_ops.c -- */
bool prove_ops(struct prover *p, const struct block *block); /* once there are places */

/* -- prove_walk.c -- */
bool walk_op(struct prover *p, const struct op *op); /* at the top, or in a body */
bool walk_compute(struct prover *p, const struct op *op);
bool keeps_off_host(struct prover *p, const struct op *op);
bool takes_part(const struct prover *p, const struct op *op); /* does the stage, in a sum over stages? */
bool read_value(struct prover *p, const struct op *op, const struct value *v);
bool read_at(struct prover *p, const struct op *op, const struct value *v, struct bytes at, struct content is);
bool write_value(struct prover *p, const struct op *op, const struct value *v); /* a content of its own */
bool write_at(struct prover *p, const struct op *op, const struct value *v, struct bytes at, struct content is);
struct bytes range_of(const struct prover *p, const struct spot *s);
void find_buffers(struct prover *p); /* of each where it lies, for buffer_range */
struct bytes buffer_range(const struct prover *p, uint32_t buf);
uint32_t tag_new(struct prover *p, const struct value *v);
const char *content_name(struct prover *p, struct content is);

/* -- prove_loop.c -- */
bool walk_repeat(struct prover *p, const struct op *r);
struct spot row_spot(struct prover *p, const struct op *r, const struct value *whole); /* of this iteration of r */
bool put_rows(struct prover *p, const struct op *op); /* its results, on the stacks of the loop around it */
const struct value *made_in(struct prover *p, const struct value *v); /* the stack or sum that it is made in; or NULL */
void set_iter(struct prover *p, int depth, struct bytes rows, int64_t turn);

/* -- prove_idle.c -- */
bool prove_idle(struct prover *p, const struct op *r);    /* a loop of which no iteration runs here */
bool prove_absent(struct prover *p, const struct op *op); /* an op of the top block that does not */

/* -- prove_fly.c -- */
void start_flight(struct prover *p, const struct op *op, struct bytes at, bool written);
void fly(struct prover *p, const struct op *op);
bool in_flight(struct prover *p, const struct op *op, const struct value *v, struct bytes at, bool writes); /* unsafe */
bool walk_wait(struct prover *p, const struct op *op);
bool walk_ahead(struct prover *p, const struct op *op);
bool fly_ahead(struct prover *p, const struct op *op, int depth, struct bytes rows, int64_t turn);

/* -- prove_step.c -- */
bool prove_steps(struct prover *p);   /* of every stage: training, evaluation */

/* -- prove_pipe.c -- */
bool prove_channels(struct prover *p);

bool unsafe(struct prover *p, const struct op *op, const char *fmt, ...) PRINTF(3, 4);
const char *prove_name(struct prover *p, const struct value *v); /* %12 'x' */

/* Is there so much workspace? If not it is said, with the way out: a plan may be given more. */
bool has_workspace(struct prover *p, const struct op *op, const char *what, int64_t bytes);

/* Where the memory ends that these bytes begin in: the arena, or the host's part, which has addresses behind it. */
static inline int64_t prove_end(const struct prover *p, struct bytes at)
{
	int64_t host = round_up(p->arena);

	return p->m->host && at.lo >= host ? host + p->m->host : p->arena;
}

#endif
