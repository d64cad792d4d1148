/* codegen/kernel.h - private to codegen: a kernel region made ready for printing as loops.
 *
 * A kernel is a set of roots (results to store, reductions, scatters, values worth keeping); all
 * else is evaluated where it is needed. Loops run over kdims in one order for the whole kernel:
 * bit i of a mask is kdim i, and lower bits are outer loops. */
#ifndef PTC_KERNEL_H
#define PTC_KERNEL_H
#include "codegen/codegen.h"

/* A dim of the kernel, or neighbours that lie together in every tensor, as one loop. */
struct kdim {
	int nparts;
	dimid part[MAX_DIMS];
	struct axes on;   /* of part 0; the others are whole */
	int64_t size, cap, inner; /* of all parts; inner: of all but part 0 */
	bool even;        /* every rank holds cap elements */
	bool pinned;      /* some op needs it alone */
	int ext;          /* in sig.ext, -1 */
};

struct env;
struct kval {
	struct value *v;
	int arg;          /* operand of the kernel, -1 */
	uint32_t mask;
	int64_t stride[MAX_KDIM];
	int root;         /* reduction, scatter or kept value: its root, -1 */
	int store;        /* root that stores it, -1 */
	int uses;
	double cost;      /* to evaluate once, loads included */
	/* an array that holds it for now */
	const char *arr;
	uint32_t span;    /* dims that it holds all of */
	bool whole;       /* it is a result: indexed by all dims */
	bool full;        /* the loops that fill it are over, */
	uint32_t at;      /* but for these, which are open: it is right at their place */
	int arr_depth;    /* of the loop that declares it */
};

enum rootkind { R_STORE, R_RED, R_SCATTER, R_KEEP, R_RNG };
struct root {
	enum rootkind kind;
	struct kval *k;
	int out;              /* R_STORE, R_SCATTER: result number; R_RED: stored as it grows, or -1 */
	uint32_t it, red;     /* loops; those that a reduction sums away */
	uint64_t deps[MAX_ROOT / 64];  /* roots that must be done before */
	uint64_t pulls[MAX_ROOT / 64]; /* those of them that it reads itself */
	bool done;
	/* where a reduction adds to now */
	const char *acc;
	uint32_t acc_span;
	bool acc_array, acc_whole;
};

struct memo {
	struct kval *k;
	const struct env *env;
	const char *name;
};

/* An open loop. level 0 is the function. */
struct node {
	int kdim;             /* -1: the function */
	uint32_t open;        /* loops open here, itself included */
	struct text text;
	struct text stores;   /* come last: a result may lie where an operand is read */
	VEC(struct memo) memo;
	VEC(struct env *) envs;
	bool inner, serial;   /* no loop within; no simd */
	int64_t shift;        /* a roll is read in two runs of the loop: at i + shift, then less the size */
};

struct gen {
	struct arena *mem;
	const struct module *m;
	const struct op *op;
	struct diag *d;
	struct kernel_sig *sig;
	int nk;
	struct kdim kd[MAX_KDIM];
	uint32_t loops;       /* kdims that are loops of some root */
	int nval, nroot;
	struct kval *val;
	struct root root[MAX_ROOT];
	int *outs;            /* for each result: its kval */
	int depth;
	struct node *path[MAX_KDIM + 1];
	int serial;           /* names */
	int split;            /* the kdim that parts of a call share, -1 */
	bool device;          /* CUDA: roots are stores, reductions and scatters alone */
	const char *ix;       /* CUDA: type of indices */
	struct lanes *lanes;  /* what a thread takes at once, where the innermost loop is that; NULL */
	uint64_t start_used, valid_used;
	bool failed;
};

/* A thread takes `n` neighbours of kdim `dim`. What lies together is loaded before their loop (over u), into
 * arrays; its index there is the first one's. */
struct lane {
	const char *name, *from; /* an array, where its elements lie; of random numbers the arguments */
	enum dtype dt;
	bool rng;
	uint32_t mask;           /* kdims that it depends on */
};
struct lanes {
	int dim, n;
	VEC(struct lane) load, store;
};
bool lies_together(const struct gen *g, const struct kval *k); /* along that dim, aligned */

static inline struct kval *kval_of(const struct value *v)
{
	return v->aux;
}

/* plan: dims, values, roots. false after an error. */
bool kernel_plan(struct gen *g);
int kdim_of(const struct gen *g, dimid d);          /* -1: none */

/* pick.c: a kernel of one argmax, topk or rank; NULL: it is another */
const struct op *kernel_pick(const struct op *kernel);
char *pick_text(struct gen *g, const struct op *pick); /* NULL after an error */

#define SAY(g, ...) arena_printf((g)->mem, __VA_ARGS__)

/* Under an env some dims are not the loop's variable but an index computed before. */
struct env {
	const struct env *up;
	const struct op *op;
	uint32_t over;                 /* kdims replaced */
	const char *index[MAX_KDIM];
	uint32_t from[MAX_KDIM];       /* loops that the index depends on */
	const char *ok;                /* NULL: always in range */
	uint32_t ok_from;
};

/* -- value.c -- */
const char *give_up(struct gen *g, const char *why);   /* says so once; "0" */
const char *count_of(struct gen *g, int k);            /* elements of kdim k here, as C */
const char *first_of(struct gen *g, int k);            /* the part of a call: from, */
const char *end_of(struct gen *g, int k);              /* to */
/* Index of k's element, mask and strides given; under e. */
const char *place(struct gen *g, const struct kval *k, uint32_t mask, const int64_t *stride, const struct env *e);
/* Of an array that holds the dims of span, or a whole result. */
const char *cell(struct gen *g, const struct kval *k, const char *arr, bool whole, uint32_t span, const struct env *e);
int64_t span_count(const struct gen *g, uint32_t span);
/* C for the index at a position of dim d, and for the position of an index (-1: out of range). */
const char *index_at(struct gen *g, dimid d, const char *position);
const char *position_of(struct gen *g, dimid d, const char *index);
const char *load(struct gen *g, enum dtype dt, const char *what);
const struct env *env_for(struct gen *g, const struct op *op, const struct env *e);
void put_store(struct text *t, const char *where, enum dtype dt, const char *x);
const char *grow(struct gen *g, const struct root *r, const char *acc, const char *x);
const char *zero_of(const struct root *r);
extern const char *const ctype[NDTYPE];
const char *literal(struct gen *g, const struct op *op, bool wide);
uint32_t overridden(const struct gen *g, const struct op *op); /* kdims whose index a view or lookup computes */
struct node *node_at(struct gen *g, uint32_t loops);            /* the outermost place where all these are open */
void remember(struct gen *g, struct node *n, struct kval *k, const struct env *e, const char *name);
const char *rng_args(struct gen *g, const struct op *op, const struct env *e, int without);
/* The C name of v where the open loops are; statements that compute it are added to them. */
const char *gen(struct gen *g, struct value *v, const struct env *e);
const char *operand(struct gen *g, struct value *v, const struct env *e, bool wide); /* or a literal */

/* emit: the whole function, with @ for its name */
char *kernel_text(struct gen *g);
/* The value of a MAP, LEAF; a: the names of the operands. NULL: not an expression of them. */
char *map_expr(struct gen *g, const struct op *op, const char *const *a, bool wide);
bool is_wide(const struct value *v);                /* a scalar that is computed in double */

#endif
