/* passes/remat.h - what the files of the pass rematerialize share.
 *
 * A pair is a block of forward and the block of backward that reads its values: the bodies of a repeat and
 * of its reverse, or the top with itself. Each forward value that backward needs, directly or to make another
 * one, is a node. What is not kept is made again from what is. */
#ifndef PTC_REMAT_H
#define PTC_REMAT_H
#include "passes/passes.h"

struct front;

struct node {
	struct value *v, *image; /* image: what the backward block calls it, once it is there */
	int no;                  /* in pair.nodes, behind its operands */
	bool read;               /* by backward */
	bool source;             /* can't be made again: given to the iteration, or routing, or too dear */
	bool keep;               /* else it is made again where it is needed */
	bool rest;               /* kept, but made again by the first iterations: pair.first */
	struct value *inner;     /* what the repeat over the first iterations calls it */
};

struct pair {
	struct module *m;
	struct block *f, *b;
	struct op *fwd, *rev;    /* the repeats; NULL: the top */
	int64_t where;           /* at the top: the place whose ops these are */
	bool dear;               /* may do dear ops once more */
	int64_t first;           /* so many iterations of a stage keep less than the others; 0: all keep the same */
	bool apart;              /* the two run at different places of a pipeline: nothing is made again */
	bool shared;             /* other backward blocks read what f makes */
	VEC(struct node *) nodes;
	VEC(struct value *) kept, rest; /* auto: the choice, for when nodes are made anew; rest: not by the first */
};

struct node *node_of(const struct pair *p, const struct value *v); /* NULL: none */
void find_nodes(struct pair *p);                                   /* anew, and which are sources */
bool is_wanted(const struct module *m, const struct value *v);     /* `keep` names it */
bool can_stack(const struct pair *p, const struct value *v);

struct value *image(struct pair *p, struct value *v, struct op *before); /* what p->b calls v */
struct value *add_over(struct pair *p, struct value *outside, const struct value *like); /* a slice of it in p->b */
struct value *stack_over(struct pair *p, struct value *v, dimid rows); /* the result of the forward repeat that stacks v */
void mark_again(struct module *m, struct op *copy, struct op *op);

/* stacks: for `auto`, the bytes that the loops' stacks may have. Returns what they have then. fronts: of an
 * earlier copy of the module, or made here. */
int64_t rematerialize(struct module *m, int64_t stacks, struct front **fronts);

/* -- remat_first.c -- */
int64_t first_apart(const struct pair *p, int64_t n); /* n, or 0 where the pair can't tell its first n iterations from others */
bool is_gathered_param(const struct node *n); /* all iterations want it in backward itself, and gather it there */
void keep_rest(struct pair *p); /* sets node.rest: what the first p->first iterations make again, as was chosen */
void make_first(struct pair *p); /* ... which is put at the beginning of p->b */

/* -- remat_keep.c -- */
bool choose_kept(struct pair *p); /* sets node.keep; false: leave this pair alone */
void set_sources(struct pair *p);
bool is_light(const struct pair *p, const struct op *op);

/* -- remat_front.c: which of the results of some ops to keep, for any number of bytes -- */
enum { KEEP_WORDS = 4, EXACT_MOST = 20 }; /* up to 256 that can be kept; up to 2^20 choices are all looked at */

struct trial_op {            /* operands stand before it */
	double seconds;
	int64_t bytes;
	bool may_keep, read;     /* read by backward */
	uint32_t nin;
	const uint32_t *in;
};

struct point {
	int64_t bytes;
	double seconds;          /* of what is made again */
	uint64_t keep[KEEP_WORDS]; /* the k-th op that may be kept */
};

struct front {               /* bytes rise, seconds fall */
	struct point *at;
	uint32_t n, cap;
};

struct front remat_front(struct arena *mem, uint32_t n, const struct trial_op *ops);

/* -- remat_auto.c -- */
/* Sets pair.kept of all pairs, so that their stacks are within a number of bytes a rank if they can be. The
 * bytes that they have then, beside what is kept in any case. *fronts: of each pair, NULL: made here. */
/* Rows of a loop's stacks that a rank holds at once: of the stage with most. */
double rows_held(const struct module *m, dimid d);
int64_t choose_within(struct module *m, struct pair *pairs, uint32_t n, int64_t bytes, struct front **fronts);

/* -- remat_cut.c: the cheapest vertices that part a source from a sink -- */
struct cut;
enum { CUT_FROM, CUT_TO, CUT_FIRST }; /* numbers of the source, the sink, the first other vertex */
#define CUT_NEVER ((int64_t)1 << 60)
struct cut *cut_new(struct arena *mem, int vertices);
void cut_arc(struct cut *c, int from, int to, int64_t capacity);
bool cut_solve(struct cut *c); /* false: only arcs of CUT_NEVER part them */
bool cut_behind(const struct cut *c, int vertex); /* on the sink's side, which is the smallest there is */

#endif
