/* ir/ir.h - the IR: read this first.
 *
 * A module is one training step of a model on a mesh: dims, mesh axes, buffers that outlive
 * the step (inputs, params, states) and one SSA block of ops. Every form of it, from the
 * lowered model to the plan, is this structure and prints as one text (ir/text.h), which reads
 * back to the same text.
 *
 * The top block is in four sections by op.phase, in this order: PROLOGUE (once a step),
 * FORWARD and BACKWARD (once a microbatch), EPILOGUE (once a step). A section is a function:
 * what it reads from an earlier one is its parameters. A value that BACKWARD reads from
 * FORWARD is the stash of a microbatch; what EPILOGUE reads from the two must have gone
 * through `accumulate`.
 *
 * Microbatches are a mesh axis in time (axis.time): a value of one microbatch is sharded over
 * it along the batch dim (major to all other axes there), a sum over the batch is pending over
 * it, and `accumulate` is its reduction. No collective may name it. So extents, random indices
 * and the pending check know nothing about microbatches.
 *
 * Before `place` shardings mean nothing; after it `placed` values hold theirs; after
 * `partition` all do, and every op works on local shapes that follow from them.
 */
#ifndef PTC_IR_H
#define PTC_IR_H
#include <math.h>

#include "ir/base.h"
#include "ir/bits.h"
#include "ir/diag.h"
#include "ir/limits.h"
#include "ir/schedule.h"
#include "ir/software.h"

enum opcode {
#define OP(code, text, least, most, results, class, linear, formula) OP_##code,
#include "ir/ops.h"
#undef OP
	NOP
};

enum opclass { C_LEAF, C_MAP, C_REDUCE, C_EINSUM, C_LOOKUP, C_SCATTER, C_PICK, C_VIEW, C_ATTN,
	       C_REGION, C_STEP, C_COMM, C_HOST };
/* What a rank does at a time, one thing on each: ops of compute, collectives, copies from the host, copies to it. */
enum stream { S_COMPUTE, S_COMM, S_IN, S_OUT, NSTREAM };
enum linear { L_NO, L_ALL, L_ONE, L_FIRST, L_REST };

struct opinfo {
	const char *name;
	int least, most, results;
	enum opclass class;
	enum linear linear;
	const char *formula;
};
extern const struct opinfo opinfo[NOP];

enum dtype { F32, BF16, INT, BOOL, NDTYPE };
extern const char *const dtype_name[NDTYPE]; /* "f32" "bf16" "int" "bool" */
int dtype_bytes(enum dtype dt);              /* 4 2 4 1 */
static inline bool is_float(enum dtype dt) { return dt == F32 || dt == BF16; }
/* a // b of that type: an int over 0 is 0, which leaves a as its remainder. */
static inline double floor_quotient(enum dtype dt, double a, double b) { return dt == INT && b == 0 ? 0 : floor(a / b); }

typedef uint16_t dimid; /* index into module.dims */
enum { NODIM = 0xffff };

/* A dim may stand for a part of the iterations of a repeat at the top, counted on each stage, over all repeats
 * of a pipeline, or by themselves.
 * PART_KEPT: rows of those from number `from` on, of a stack that others need not have: all before share the
 * first row, in turn. PART_FIRST: a repeat over it, right in one over `of`, runs once in the first `from`
 * iterations and not at all in the others, where its results are what it was given. */
enum dim_part { PART_NONE, PART_KEPT, PART_FIRST };
extern const char *const part_name[]; /* "" "kept" "first" */

struct dim {
	const char *name;
	int64_t size;      /* of a part it follows from `of`: see dim_size */
	enum dim_part part;
	dimid of;          /* of a part */
	int64_t from;
	struct span at;
	int zigzag; /* K: 2K chunks, of which neighbours hold an early and a late one; 0: natural order */
	bool loop;  /* a repeat runs over it; for place, not printed */
};

/* An axis of the refined mesh: a user's axis, or a part "tp/0" of one. Rank numbers are
 * row-major over the axes that are not time axes, the first outermost. */
struct axis {
	const char *name;
	int size;
	int user;  /* index into module.mesh */
	bool time; /* the microbatches */
};

struct user_axis {
	const char *name;
	int size;
	struct span at;
};

/* The axes that split one dim, major first. */
struct axes {
	uint8_t n;
	uint8_t a[MAX_ON];
};

/* on[i] belongs to the i-th dim of the value. An axis occurs once in all. */
struct sharding {
	struct axes on[MAX_DIMS];
	uint32_t sum, max; /* bit sets of axes over which a reduction is still owed */
};

/* What a value depends on, hence when it is computed. */
enum kind { K_CONST, K_INPUT, K_PARAM, K_INNER, K_SUM, K_FN, NKIND };
extern const char *const kind_name[NKIND];

enum phase { PROLOGUE, FORWARD, BACKWARD, EPILOGUE, NPHASE };
extern const char *const phase_name[NPHASE];

struct op;
struct block;

struct value {
	uint32_t id; /* unique in the module; renumbered when printed */
	enum dtype dt;
	uint8_t nd;
	bool placed;      /* sh is an anchor (form PLACED) */
	dimid d[MAX_DIMS];
	struct sharding sh;
	enum kind kind;
	const char *name; /* the user's path, "layers.mha.q", or NULL */
	struct op *def;   /* NULL: an argument of `home` */
	struct block *home; /* the block it is defined in */
	uint32_t no;      /* which result of def, which argument of home */
	struct span span;
	int64_t off;      /* byte offset (memory pass), -1: none */
	/* for the pass at work only; not printed, may hold anything on entry */
	void *aux;
	int64_t mark;
};

/* Attributes, one row each: name, kind of field. An op has those whose bit is in op->has. */
#define ATTRS(I, N, S, D, L, X, B) \
	S(buf) S(key) S(opt) D(dim) D(to) D(ctx) D(causal) L(dims) L(tos) X(axes) \
	N(value) N(scale) N(cap) N(p) I(form) I(start) I(stride) I(shift) I(max) I(ncarry) \
	I(nwith) I(reverse) B(acc) I(group) I(extra) I(where) I(from) B(local) I(async) I(ahead) \
	I(again) I(late)

struct dimlist {
	uint8_t n;
	dimid d[MAX_DIMS];
};

enum attr_no {
#define A(x) A_##x,
	ATTRS(A, A, A, A, A, A, A)
#undef A
	NATTR
};
_Static_assert(NATTR <= 32, "op.has has a bit for each");

struct attrs {
#define I(x) int64_t x;
#define N(x) double x;
#define S(x) const char *x;
#define D(x) dimid x;
#define L(x) struct dimlist x;
#define X(x) struct axes x;
#define B(x) struct bits x;
	ATTRS(I, N, S, D, L, X, B)
#undef I
#undef N
#undef S
#undef D
#undef L
#undef X
#undef B
};
/* SET(op, dim, d): assigns and marks as present. HAS(op, dim). */
#define SET(op, name, ...) ((op)->has |= 1u << A_##name, (op)->at.name = (__VA_ARGS__))
#define HAS(op, name) (((op)->has >> A_##name) & 1)

struct op {
	enum opcode code;
	enum phase phase;
	struct value **in, **out;
	uint32_t nin, nout;
	struct op *of;       /* a gradient op: the forward op it belongs to */
	uint32_t has;        /* bit set of enum attr_no */
	struct attrs at;
	const char *why;     /* of a collective: "all_gather of h over tp: q needs seq whole" */
	struct block *body;  /* of a region */
	struct span span;
	struct block *home;
	struct op *prev, *next;
	void *aux;           /* for the pass at work only */
	int64_t mark;
};

struct block {
	struct op *first, *last;
	VEC(struct value *) args;
	VEC(struct value *) yields;
	struct op *owner;    /* the region op, NULL: the module's top block */
};

enum role { B_INPUT, B_PARAM, B_STATE, B_OPT, B_PROBE, NROLE };
extern const char *const role_name[NROLE];
enum init { INIT_ZEROS, INIT_ONES, INIT_CONSTANT, INIT_NORMAL, INIT_UNIFORM, NINIT };
extern const char *const init_name[NINIT];

/* A tensor that outlives the step. d is the declared order, repeat dims first. */
struct buffer {
	const char *name;    /* path; of an optimizer state "PATH:m", "PATH:v", "PATH:master" */
	enum role role;
	enum dtype dt;
	uint8_t nd;
	dimid d[MAX_DIMS];
	enum init init;
	double init_arg;
	int64_t tokens;      /* input token(n): ints 0..n-1 or -100; 0: not tokens */
	const char *next_of; /* input = next(that, next_k); else NULL */
	int64_t next_k;
	const char *owner;   /* of an optimizer state: its param */
	struct sharding store, compute; /* place; compute differs for params only */
	int64_t where;       /* places of the pipeline whose stages hold it; 0: all */
	bool host;           /* it lies in host memory: from_host and to_host copy it */
	struct span at;
	int64_t off;         /* in the arena, or in the host's part */
};

enum arrow_what { W_DIMS, W_PARAMS, W_GRADS, W_OPTIMIZER, W_ACTIVATIONS };

/* [sel :] dims -> axes. Names, not ids, as the user wrote them; checked by the front end. */
struct arrow {
	const char *sel;     /* NULL: all values; a path or a pattern (glob) */
	bool glob;
	enum arrow_what what;
	struct dimlist dims;
	uint8_t naxes;       /* user axes, in order */
	uint8_t axes[MAX_MESH];
	bool none, host, zigzag, gather_step;
	struct span at;
};

struct link {
	const char *name;
	int64_t group;       /* ranks that it joins; 0: all */
	double bandwidth, latency; /* bytes/s a rank one way; seconds */
};

/* What was measured of a machine's ops (`ptc calibrate`). A rate or size that is 0 is not known: the priors of
 * passes/constants.h stand for all of its group. Seconds of
 *   a product    call + 2 m n k / rate (1 + rows / m) (1 + columns / n) (1 + depth / k), or its bytes / bandwidth
 *   a kernel     call + bytes / bandwidth + elements by what is done with them
 *   attention    call a set of heads + FLOPs / rate + scores met * score; backward, times back */
struct measured {
	struct product_rate {
		double rate, rows, columns, depth, call;
	} gemm[2];                     /* fp32, bf16 */
	struct kernel_rate {
		double bandwidth, call;
		double simple, hard, sum; /* seconds of an element: of an addition, e^x or a random number; that is summed up or looked up */
	} kernel;
	struct attention_rate {
		double rate, call, score, back;
	} attention;
};

struct hardware {
	const char *name;
	double fp32, bf16, fp8, fp4; /* FLOP/s, the peaks */
	double best16, best8;      /* FLOP/s of the best products measured, in bf16 and fp8; 0: a usual share of the peak */
	double fa1, fa2, fa3;      /* share of the peak that attention reaches, by kernels; 0: as usual */
	double attn8;              /* of the peak of fp8, with products in that */
	double units;              /* that work on tiles of a product; 0: as if there were no last, half-empty wave */
	double watts;              /* of a device at work; 0: unknown */
	double memory, bandwidth;  /* bytes, bytes/s */
	int nlink;
	struct link link[4];       /* from the inside out */
	double host, host_latency; /* bytes/s a rank to or from host memory, seconds a copy; 0: unknown, copies are taken for free */
	double price;              /* dollars a device-hour */
	double cores;              /* of a processor, that a rank has: some, or a part of one; 0: unknown */
	struct measured measured;
};

/* Every figure of it but the links, as IR text names them (hardware.c); ends with a NULL name. */
struct hardware_figure {
	const char *name;
	size_t at; /* of a double in struct hardware */
};
extern const struct hardware_figure hardware_figure[];

enum form { LOGICAL, PLACED, PARTITIONED, PLANNED, NFORM };
extern const char *const form_name[NFORM];

/* `layers -> pp`: the iterations of some repeats, one chain in file order, are cut into chunks; see pipe.c.
 * A place is a piece of forward or backward that one chunk runs: 2k the glue before repeat k, 2k + 1 repeat
 * k, 2n the glue behind the last. Ops of FORWARD and BACKWARD at the top have one place in {where}; those of
 * PROLOGUE and EPILOGUE run on all stages that run one of the places in {where}, or on all without it. A
 * value is there where its op ran; one of FORWARD or BACKWARD travels to the places that read it.
 *
 * Of a schedule with I and W, ops of BACKWARD at the top are I, or {late}: W. What W makes does not travel. */
struct pipe {
	int user;          /* index into module.mesh; -1: no pipeline */
	enum schedule_kind order;
	int chunks;        /* of a stage */
	bool fixed;        /* the plan says where to cut */
	int64_t inflight, buffers; /* microbatches a stage may hold, receive buffers; 0: as the order says, 2 */
	int warm;          /* more forwards before the first backward than the order has */
	const struct actions *list; /* of each stage, if it is none of the known orders or better than it; NULL */
	const uint16_t *place;      /* with a list of SCHED_LIST: the stage of each chunk */
	VEC(dimid) loops;  /* dims of the repeats, in file order */
	VEC(int64_t) end;  /* of each chunk, in iterations of the chain; none: not cut yet */
	VEC(int64_t) arena; /* of a plan: bytes of each stage */
};

/* What backward makes again rather than keep what forward made: passes/rematerialize.c. A forward op that
 * it does once more has {again}. */
enum recompute_how { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_AUTO, NRECOMPUTE };
extern const char *const recompute_name[NRECOMPUTE];

struct keep_name {
	const char *sel;
	bool glob;
	struct span at;
};

struct recompute {
	enum recompute_how how;
	int64_t memory;    /* bytes a rank that `auto` may use, 0: what the hardware has */
	int64_t first;     /* only so many iterations of a stage, or of a repeat, the others keep all; 0: all */
	VEC(struct keep_name) keep; /* these values are kept, and no others; none: as `how` says */
	struct span at;
};

/* What is made of a value, and the value, in parts, one after the other: passes/chunk.c. */
struct chunk {
	const char *sel;   /* the value: a name, or a path */
	int64_t parts;     /* so many; 0: as `rows` says */
	int64_t rows;      /* at most so many of the value on a rank at once */
	dimid dim;         /* that is cut; NODIM: any that may be */
	struct span at;
};

struct module {
	struct arena *mem;
	struct sources *src;
	enum form form;
	const char *name;
	VEC(struct dim) dims;
	VEC(struct user_axis) mesh;
	VEC(struct axis) axes;      /* before place: one for each user axis; then a time axis if m > 1 */
	VEC(struct buffer *) bufs;
	VEC(struct arrow) arrows;
	struct pipe pipe;
	struct recompute recompute;
	VEC(struct chunk) chunks;
	struct hardware hw;
	struct software software;   /* that estimates are for */
	enum dtype precision;       /* F32 or BF16 */
	int64_t micro;              /* microbatches a step */
	dimid batch;                /* NODIM: the model has no inputs */
	int64_t workspace;          /* bytes, cap of the backend's scratch */
	int64_t arena;              /* bytes a rank (memory pass), of stages the largest; 0: not planned */
	int64_t host;               /* bytes a rank in host memory */
	bool deterministic;         /* bits do not depend on how layers and microbatches are spread over stages */
	bool probes;                /* `check`: gradients are written to probe buffers and read back */
	struct block top;
	uint32_t next_id;
};

/* -- module.c: making and changing -- */
struct module *module_new(struct arena *mem, struct sources *src);
dimid module_dim(struct module *m, const char *name, int64_t size, struct span at); /* new */
dimid find_dim(const struct module *m, const char *name);        /* NODIM: none */
int find_axis(const struct module *m, const char *name);         /* refined axis, -1: none */
struct buffer *find_buffer(const struct module *m, const char *name);
struct buffer *module_buffer(struct module *m, enum role role, const char *name, enum dtype dt,
			     int nd, const dimid *d);            /* new */
int time_axis(const struct module *m);                           /* -1: one microbatch */
int64_t module_ranks(const struct module *m);
void rank_coords(const struct module *m, int64_t rank, int *coord); /* time axes get 0 */

/* Where new ops go, and what they inherit. before NULL: at the end of block. */
struct builder {
	struct module *m;
	struct block *block;
	struct op *before;
	enum phase phase;
	struct span span;
	struct op *of;
	int64_t where; /* 0: none */
};

struct op *op_new(struct builder *b, enum opcode code, uint32_t nin, struct value *const *in,
		  uint32_t nout); /* results untyped: see op_type */
struct value *op_type(struct builder *b, struct op *op, uint32_t no, enum dtype dt, int nd,
		      const dimid *d); /* makes result no */
struct value *block_arg(struct builder *b, struct block *block, enum dtype dt, int nd, const dimid *d);
struct block *block_new(struct module *m, struct op *owner);
void op_half(struct op *op, const struct op *as);   /* op is of the half of backward that `as` is of */
void op_unlink(struct op *op);                     /* out of its block; results must be unused */
void op_move_before(struct op *op, struct op *at); /* same block */
void op_add_in(struct module *m, struct op *op, struct value *v);     /* appends an operand */
struct value *op_add_out(struct module *m, struct op *op, struct value *like); /* appends a result */
void block_unmark(struct block *block); /* mark = 0 of its ops and values, and of those within */
void replace_uses(struct block *in, struct value *old, struct value *new); /* in and all regions within */
/* Copies op before b->before with operands mapped (old values whose aux is set map to aux when
 * use_aux, else stay); results get their aux set to the copies. Regions are copied deeply. */
struct op *op_clone(struct builder *b, const struct op *op, bool use_aux);

/* Short hands; the result takes the union of the operands' dims (left first), its dtype from
 * the operands (float: F32 if any is, else BF16; comparisons BOOL; div float), except where said. */
struct value *b_const(struct builder *b, enum dtype dt, double x);           /* no dims */
struct value *b_index(struct builder *b, dimid d);
struct value *b_map1(struct builder *b, enum opcode code, struct value *x);
struct value *b_map2(struct builder *b, enum opcode code, struct value *x, struct value *y);
struct value *b_where(struct builder *b, struct value *c, struct value *x, struct value *y);
struct value *b_cast(struct builder *b, struct value *x, enum dtype dt);     /* x itself if it is */
struct value *b_reduce(struct builder *b, enum opcode code, struct value *x, int nd, const dimid *over);
struct value *b_einsum(struct builder *b, struct value *x, struct value *y, enum dtype dt,
		       int nd, const dimid *keep);                           /* result dims = keep */
struct value *b_rename(struct builder *b, struct value *x, dimid from, dimid to);
struct value *b_read(struct builder *b, const struct buffer *buf);

/* -- dims of values -- */
int dim_pos(const struct value *v, dimid d);       /* -1: v lacks it */
static inline bool has_dim(const struct value *v, dimid d) { return dim_pos(v, d) >= 0; }
int64_t dim_size(const struct module *m, dimid d);
/* Every value, sharded or whole, holds a dim in order of position; buffers' logical tensors, random
 * streams and the model speak of indices. The two are one, but in zigzag order: there, of 2K equal
 * chunks, chunks c and 2K-1-c lie side by side, so that any cut of the positions in K equal parts
 * gives each an early and a late chunk. */
int64_t zigzag_index(int64_t size, int64_t k, int64_t position); /* k 0: as it is */
int64_t zigzag_position(int64_t size, int64_t k, int64_t index);
int64_t dim_index(const struct module *m, dimid d, int64_t position);
int64_t dim_position(const struct module *m, dimid d, int64_t index);
/* *count *= size, if that stays within most. A dim of size 0 counts as 1: the strides of an empty tensor
 * must be numbers too. */
static inline bool elements_fit(int64_t *count, int64_t size, int64_t most)
{
	if (size && size > most / *count)
		return false;
	*count *= size ? size : 1;
	return true;
}
/* A part of a repeat's dim, new if there is none. */
dimid part_dim(struct module *m, enum dim_part part, dimid of, int64_t from);
/* The dim of `whole` along which iterations of a repeat over `loop` have rows: loop, or a PART_KEPT of it. NODIM: none. */
dimid stack_dim(const struct module *m, const struct value *whole, dimid loop);
dimid kept_part(const struct module *m, dimid loop); /* the PART_KEPT of loop; NODIM: none */
bool is_first_part(const struct module *m, const struct op *op); /* a repeat over a PART_FIRST */
int64_t value_count(const struct module *m, const struct value *v); /* elements, logical */
int union_dims(int n, dimid *d, const struct value *v); /* appends what d lacks; the new n */
bool same_dims(const struct value *a, const struct value *b); /* as sets */
/* Dims of an op along which it may not be split (attention: {dim} and {ctx}; roll: {dim}; ...). */
bool op_closed_dim(const struct op *op, dimid d);
/* The label of a dim of an operand or a result among the loops of op: dims of one label are split
 * alike. A renamed dim has its new name; the major part of a split or merge that of the wide dim. */
dimid op_label(const struct op *op, dimid d, bool result);
int label_pos(const struct op *op, const struct value *v, dimid label, bool result); /* -1: v lacks it */
/* May the loop `label` be split over these axes? A split or merge: if they cut the major part evenly. */
bool op_may_split(const struct module *m, const struct op *op, dimid label, const struct axes *on);
/* The operands of an attention that {extra} announces. */
enum { X_BIAS = 1, X_MASK = 2, X_WINDOW = 4 };
int attn_extra(const struct op *op, int which);  /* operand number, -1: none */
uint32_t attn_rest(const struct op *op);         /* what follows them: iterations; o in a gradient */
uint32_t attn_iterations(const struct op *op);   /* the first of them */
/* Is d the keys of an attention? It is closed to others, the op itself may be over {axes} of it. */
bool attn_keys(const struct op *op, dimid d);
/* Is operand (result) no read (made) whole along d, however the op splits that loop? What is added to
 * scores or hides them stays where its rows are, while keys move. */
bool attn_whole(const struct op *op, dimid d, uint32_t no, bool result);
/* An attention's {axes} split its keys. Those that split rows of q as well: every rank meets the keys of
 * all, which go round. The others: ranks with the same rows meet their own keys, results are combined. */
uint32_t attn_ring(const struct op *op);
uint32_t attn_apart(const struct op *op);
/* Is result k of a repeat added up over the microbatches, {acc}? Has each stage a carried value k of its own, {local}? */
bool repeat_adds(const struct op *repeat, uint32_t k);
bool repeat_local(const struct op *repeat, uint32_t k);
bool results_fit(enum opcode code, uint32_t nin, uint32_t nout);
bool comm_sends(enum opcode code); /* a collective that sends something */
enum stream op_stream(enum opcode code);
static inline bool may_fly(enum opcode code) { return op_stream(code) != S_COMPUTE; } /* {async} or {ahead} of others */
static inline bool is_async(const struct op *op) { return HAS(op, async) && op->at.async; }
/* The buffer in host memory that v is a read of, or a row of one, so that only a copy may touch it; NULL: another value. */
const struct buffer *host_buffer(const struct module *m, const struct value *v);
bool is_bucket(enum opcode code); /* may have many operands, and has a result for each: a collective or a wait */
bool op_same_attrs(const struct op *a, const struct op *b);
/* All dims of the op's loops: operands and results, a lookup's table dims included. */
int op_space(const struct op *op, dimid *d);
/* Operands that must be pending together if operand i is (bit set), 0: not linear in i. */
uint64_t op_linear(const struct op *op, uint32_t i);

/* -- shard.c: sharding -- */
/* Nested chunks: the part of a dim of `size` that a rank holds. start: global index of its
 * first element; valid: elements that exist; cap: what it allocates (the same on all ranks). */
struct extent {
	int64_t start, valid, cap;
};
struct extent extent_of(const struct module *m, dimid d, const struct axes *on, const int *coord);
int64_t cap_of(const struct module *m, dimid d, const struct axes *on);
int64_t local_count(const struct module *m, const struct value *v);  /* product of caps */
int64_t local_bytes(const struct module *m, const struct value *v);
bool axes_has(const struct axes *l, int axis);
bool axes_equal(const struct axes *a, const struct axes *b);
bool axes_prefix(const struct axes *a, const struct axes *b); /* a is a (not nec. strict) prefix of b */
void axes_push(struct axes *l, int axis);
uint32_t axes_bits(const struct axes *l);
/* Do the elements of v lie in memory as those of a tensor of this type? */
bool same_layout(const struct value *v, int nd, const dimid *d, const struct axes *on, enum dtype dt);
/* As those of whole for one `dim`? Whole has that dim first: all of it, or a stage's part. */
bool is_row(const struct module *m, const struct value *v, const struct value *whole, dimid dim);
uint32_t sharding_axes(const struct sharding *s, int nd); /* all axes that split, as bits; not pending */
bool sharding_equal(const struct sharding *a, const struct sharding *b, int nd);
int64_t group_size(const struct module *m, uint32_t axes); /* ranks along these axes */
/* The dim of operand i that a collective joins or splits: {dim}; in a bucket it follows from the shardings of
 * operand and result. NODIM: none, or they do not say. */
dimid comm_dim(const struct op *op, uint32_t i);
/* Elements a rank sends in op (a collective, an attention over {axes}), by docs/SHARDING.md; 0 for shard
 * and to_partial. Their bytes. The axes of the group, what it is called in a table. */
double comm_elements(const struct module *m, const struct op *op);
double comm_bytes(const struct module *m, const struct op *op);
uint32_t comm_axes(const struct op *op);
const char *comm_name(const struct op *op);
const char *axes_user_text(struct arena *mem, const struct module *m, uint32_t axes); /* "dp.tp" */

/* -- pipe.c: the cut of a pipeline. A chunk is numbered along the chain, a stage is a coordinate. -- */
struct trips {
	int64_t lo, hi;
};
int pipe_axis(const struct module *m);               /* refined axis; -1: no pipeline, or of one stage */
bool pipe_takes(const struct module *m, dimid d);    /* an arrow gives it to the pipeline */
int pipe_stages(const struct module *m);
int pipe_chunks(const struct module *m);             /* of all stages */
int pipe_stage(const struct module *m, int g);
bool is_staged(const struct module *m, dimid d);     /* d is cut: its order is by stage, then by chunk */
struct trips pipe_trips(const struct module *m, dimid d, int g);   /* iterations of a repeat in chunk g */
int64_t pipe_rows(const struct module *m, dimid d, int stage);     /* iterations on a stage */
int64_t pipe_row(const struct module *m, dimid d, int g);          /* of them, those before chunk g's */
struct extent pipe_extent(const struct module *m, dimid d, int stage);
/* The number of an iteration of d among all that its stage runs, of all repeats of the pipeline. Of a chunk's first. */
int64_t pipe_number(const struct module *m, dimid d, int64_t index);
int64_t pipe_chunk_number(const struct module *m, dimid d, int g);
/* Of a PART_KEPT, the row of an iteration of {of}: among those of its chunk, or of all if it is not staged. */
int64_t kept_row(const struct module *m, dimid kept, int64_t index);
/* Iterations of d that are of a PART_FIRST of it, in chunk g; g -1: in all chunks. */
int64_t first_trips(const struct module *m, dimid first, int g);
/* Of the iterations of {of} on a stage (-1: all), in a chunk (-1: all), the share that is of the PART_FIRST. */
double first_share(const struct module *m, dimid first, int stage, int g);
bool in_first(const struct module *m, dimid first, int64_t index); /* is the iteration of {of} one of them? */
/* Rows of v that a stage has over those of the stage with most, which is what the type of v says; else 1. */
double pipe_share(const struct module *m, const struct value *v, int stage);
int pipe_chunk_of(const struct module *m, dimid d, int64_t index);
int64_t pipe_position(const struct module *m, dimid d, int64_t index);
int64_t pipe_index(const struct module *m, dimid d, int64_t position);
bool pipe_runs(const struct module *m, int g, int place);
int64_t pipe_places(const struct module *m, int stage);            /* bit set of places that it runs */
int pipe_first_stage(const struct module *m, int64_t places);      /* the first that runs one of them */
struct schedule pipe_schedule(const struct module *m);             /* expand it where its actions are needed */

/* -- verify.c -- */
/* The invariants of the module's form. false after an error has been reported. */
bool verify(const struct module *m, struct diag *d);

#endif
