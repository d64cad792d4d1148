/* codegen/cuda_impl.h - private: a kernel region as launches of CUDA kernels.
 *
 * Roots (kernel.h) are grouped in stages; stages that wait for nothing but earlier launches make one launch, in ranges
 * of its blocks. A reduction is done by the rows of a stage (ST_ROW: a block or a warp a row, everything that needs the
 * result of the row right there), or in parts: a first stage leaves partial results in scratch, a stage over what is
 * kept adds them up, always in the same order. */
#ifndef PTC_CUDA_IMPL_H
#define PTC_CUDA_IMPL_H
#include "codegen/cuda.h"
#include "codegen/kernel.h"

enum stage_kind {
	ST_POINT,   /* a thread an element of `keep`; finishes reductions that were made in parts */
	ST_ROW,     /* a block or a warp a row of `keep`, loops over the rest */
	ST_CHUNK,   /* partial results: blocks share rows of `keep` */
	ST_COLUMN,  /* partial results: threads along `keep`, which has the innermost dim */
	ST_INDEX,   /* of a scatter: the row that each element goes to */
	ST_ORDER,   /* ... and the elements in the order of these rows */
	ST_SCATTER  /* a warp some elements of a row */
};

struct stage {
	enum stage_kind kind;
	uint32_t all, keep;
	VEC(int) roots;
	int level, no;      /* which launch; which stage */
	int64_t blocks;
	int block, shared;  /* threads; bytes */
	int lanes;          /* that a thread takes at once */
	bool warp;          /* ST_ROW: a warp a row; ST_POINT: a warp an element */
	int64_t chunks;     /* ST_CHUNK, ST_COLUMN */
	int across;         /* ST_COLUMN: threads of a block along columns */
	const char *text;
};

struct made {
	int stage, parts;       /* that finishes the root; that leaves its partial results; -1 */
	int list;               /* of a scatter in order: that writes down the rows; -1 */
	int64_t at, parts_at;   /* in scratch; -1 */
	bool later;             /* a later stage reads it */
};

struct cuda {
	struct gen *g;
	VEC(struct stage *) stages;
	struct made *made;      /* by root */
	int64_t scratch;
};

/* cuda_stage.c: the stages, in an order that they can run in. false: an error has been reported. */
bool cuda_stages(struct cuda *c);
int cuda_lanes_for(struct cuda *c, int dim); /* along the innermost dim of a loop */
const char *root_type(const struct root *r, bool wide);

/* cuda_loops.c, cuda_scatter.c: text of a stage; blocks of the launch before `first` belong to others */
void cuda_stage_text(struct cuda *c, struct stage *s);
void cuda_index_text(struct cuda *c, struct stage *s, struct text *t);
void cuda_scatter_text(struct cuda *c, struct stage *s, struct text *t);
void cuda_order_text(struct cuda *c, struct stage *s, struct text *t);
void cuda_scatter_threads(struct cuda *c, struct stage *s);
bool cuda_scatter_sorts(const struct gen *g, int root); /* it wants an ST_ORDER */
enum { ORDER_BLOCK = 256 };                             /* threads, and rows in shared memory */
/* Their parts. */
void begin_stage(struct cuda *c, struct stage *s);
void open_dims(struct gen *g, uint32_t mask);
void close_to(struct gen *g, int depth);
int last_bit(uint32_t x);                      /* -1: none */
/* Indices of the dims of mask from `number`, the last one in steps of lanes: b%d for i%d then. */
void put_indices(struct gen *g, struct text *t, uint32_t mask, const char *number, int lanes);
const char *inside(struct gen *g, uint32_t mask); /* all indices are of this rank's part: C, "1" */
void put_nodes(struct gen *g, struct text *t, int from, int to); /* the text of these open loops */
const char *count_type(const struct gen *g, uint32_t mask);
/* cuda_run.c: the launches that several regions of a block share, behind the source so far. sig: of each kernel of the plan, in
 * order. */
struct cuda_region {
	struct gen *g;
	struct cuda_sig *sig;
	const char *name; /* of its functions */
};
void cuda_runs(struct arena *mem, struct text *out, const struct cuda_region *all, int n);
/* A region's arguments up to ptc_step, each with `before` before its name, with their types or to be passed on; scratch: its text. */
void put_arguments(const struct gen *g, struct text *t, const char *before, const char *scratch, bool types);
bool cuda_has_body(const struct gen *g); /* its functions are there to be called by others too */
/* pick.c */
char *cuda_pick(struct gen *g, const struct op *op, int64_t *blocks, int *block);
/* cuda_attn.c: adds the kernels that op needs, if t has none like them. false: an error has been reported. */
bool cuda_attention_text(struct text *t, const struct module *m, const struct op *op, struct diag *d);

#endif
