/* ir/eval_impl.h - what the files of the reference evaluator share; nobody else includes it.
 *
 * A held value has one local tensor a coordinate of the grid (all axes, time included), laid out
 * like on the device: row-major over its dims, caps wide. Ops are loop nests over named dims:
 * a nest lists the dims, each tensor in it has a step for each dim (0: broadcast), and a walk
 * runs through the elements that are valid at one coordinate. */
#ifndef PTC_EVAL_IMPL_H
#define PTC_EVAL_IMPL_H
#include <math.h>

#include "ir/eval.h"

struct held {
	const struct value *v;
	const struct block *home;
	uint32_t arg;          /* an argument: which one of home */
	const struct op *last; /* its last reader in home; NULL: none */
	bool kept;             /* lives until its block ends: yields and arguments */
	int64_t stride[MAX_DIMS], count;
	struct extent *ext;    /* [coordinate * nd + dim]; NULL: not yet known */
	double *x;             /* of all coordinates, count each; NULL: not made, or gone */
};

struct ebuf {
	const struct buffer *b;
	struct tensor *now, *next;
	bool set, written;     /* written: next becomes now when the step ends */
};

struct ereport {
	const char *key;
	double value;
};

/* An iteration at work of a repeat. */
struct frame {
	const struct frame *up;
	dimid dim;
	int64_t i;
};

struct eval {
	struct arena *mem;
	const struct module *m;
	uint64_t seed;
	uint64_t draw;         /* eval_round; 0: nothing is rounded */
	uint64_t rounded;      /* how many elements were */
	VEC(struct ebuf) bufs;
	VEC(struct ereport) reports;
	const char *why;
	/* the step at work */
	struct arena *scratch;
	const struct eval_watch *watch;
	int64_t step;
	bool training;
	const struct frame *frame;
	int only;              /* the stage that ev_copy writes to; -1: all */
	struct held *tab;      /* by value.id */
	uint32_t ntab;
	/* the grid */
	bool local;            /* shardings count */
	int ncoord;
	int size[MAX_AXES], step_of[MAX_AXES]; /* coordinate number = sum of coord * step_of */
};

enum { NEST_DIMS = 40, NEST_PTRS = 16 };

struct nest {
	int nd, np;
	dimid d[NEST_DIMS];
	dimid stray;           /* a dim of a tensor that the nest lacks, else NODIM */
	struct {
		const struct held *h;
		dimid as[MAX_DIMS];      /* what its dims are called here; NODIM: not walked */
		int64_t step[NEST_DIMS];
	} p[NEST_PTRS];
};

/* Goes through a nest row by row: the last dim is the row, which the caller runs through, n[row]
 * elements from off[k] on, by step[row]. */
struct walk {
	const struct nest *nest;
	int row;
	bool begun;
	int64_t n[NEST_DIMS], start[NEST_DIMS], i[NEST_DIMS];
	int64_t off[NEST_PTRS];
};

/* -- eval_nest.c -- */
bool ev_fail(struct eval *e, const struct op *op, const char *fmt, ...) PRINTF(3, 4);
void ev_grid(struct eval *e);                        /* from the module's axes */
void ev_coords(const struct eval *e, int c, int *coord);
/* What v holds; NULL after a failure if it was not made. */
struct held *ev_in(struct eval *e, const struct op *op, const struct value *v);
struct held *ev_make(struct eval *e, const struct value *v); /* storage, all NaN */
void ev_room(struct eval *e, struct held *h);                /* the same, for an h that is in no table */
void ev_drop(struct held *h);
const struct sharding *ev_sharding(const struct eval *e, const struct value *v);
static inline const struct extent *ev_ext(const struct held *h, int c)
{
	return h->ext + (size_t)c * h->v->nd;
}
static inline double *ev_at(const struct held *h, int c)
{
	return h->x + (size_t)c * (size_t)h->count;
}

int ev_stage(const struct eval *e, int c);
bool ev_where(const struct eval *e, const struct op *op);          /* is it run on some stages only? */
bool ev_absent(const struct eval *e, const struct op *op, int c);  /* not on c's */
void ev_forget_absent(struct eval *e, const struct op *op);

void nest_init(struct nest *n);
void nest_dims(struct nest *n, const struct value *v);    /* adds the dims that it lacks */
int nest_ptr(struct nest *n, const struct held *h);       /* after all dims; its number */
int nest_ptr_as(struct nest *n, const struct held *h, const dimid *as);
/* A plain array with the given steps for the dims d. */
int nest_array(struct nest *n, int nd, const dimid *d, const int64_t *step);
/* Starts a walk at coordinate c. false: tensors disagree on where a dim starts or ends. */
bool walk_begin(struct eval *e, const struct op *op, const struct nest *n, int c, struct walk *w);
bool walk_row(struct walk *w);
static inline int64_t walk_n(const struct walk *w)
{
	return w->row < 0 ? 1 : w->n[w->row];
}
static inline int64_t walk_step(const struct walk *w, int p)
{
	return w->row < 0 ? 0 : w->nest->p[p].step[w->row];
}
/* Index, not position, of element i of the row along dim k of the nest. */
static inline int64_t walk_index(const struct eval *e, const struct walk *w, int k, int64_t i)
{
	return dim_index(e->m, w->nest->d[k], w->start[k] + (k == w->row ? i : w->i[k]));
}
/* Where element i of the row is in a logical tensor with the steps of pointer p: walk_across, which is the
 * same for all of the row, and walk_along. */
int64_t walk_across(const struct eval *e, const struct walk *w, int p);
static inline int64_t walk_along(const struct eval *e, const struct walk *w, int p, int64_t i)
{
	int64_t step = walk_step(w, p);

	return step ? walk_index(e, w, w->row, i) * step : 0;
}
bool ev_fill(struct eval *e, const struct op *op, const struct held *h, double x); /* valid elements */
/* to = from at all coordinates, dims matched by name; to_at, from_at are added to the offsets, skip
 * is a dim of one of the two that is not walked (NODIM: none). */
bool ev_copy(struct eval *e, const struct op *op, const struct held *to, int64_t to_at,
	     const struct held *from, int64_t from_at, dimid skip);

/* -- eval_comm.c -- */
/* Whether all coordinates that should hold the same do; else what differs. */
const char *ev_replicas(struct eval *e, const struct held *h);
/* The logical value, dims in the order given: NULL, or what is wrong with it. */
const char *ev_join(struct eval *e, const struct held *h, const dimid *order, double *whole);
bool ev_comm(struct eval *e, const struct op *op);
bool ev_wait(struct eval *e, const struct op *op);
/* Room for h without the axes of dim d (ev_drop gives it back); h gathered into it; and out as the sum of
 * its own part of `whole` over the group along the axes of bits. */
struct held *ev_wider(struct eval *e, const struct held *h, dimid d);
bool ev_gather(struct eval *e, const struct op *op, const struct held *h, const struct held *whole, uint32_t bits);
bool ev_scatter(struct eval *e, const struct op *op, const struct held *whole, const struct held *out, uint32_t bits);
/* The k-th of the group of coordinate c along the axes of bits, and how many there are. */
int ev_member(const struct eval *e, int c, uint32_t bits, int64_t k);
int64_t ev_members(const struct eval *e, uint32_t bits);
bool ev_sum_time(struct eval *e, const struct op *op, const struct held *h); /* in place */
bool ev_read(struct eval *e, const struct op *op);

/* -- eval_ops.c -- */
bool ev_compute(struct eval *e, const struct op *op); /* leaves to views */
/* The iterations a random stream is keyed by, combined, at coordinate c. */
bool ev_iteration(struct eval *e, const struct op *op, uint32_t first, int c, uint32_t *iter);
double ev_map(const struct op *op, double a, double b, double c);

/* -- eval_attn.c -- */
bool ev_attention(struct eval *e, const struct op *op);

/* -- eval_pick.c -- */
bool ev_pick(struct eval *e, const struct op *op);

#endif
