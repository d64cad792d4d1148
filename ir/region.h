/* ir/region.h - regions: what lies together in a rank's arena, and what passes between chunks.
 *
 * Offsets of values and buffers are relative to a region. A program without a pipeline has one, at the
 * beginning of the arena. With a pipeline a region follows from where a value is made and read; where it
 * lies differs from stage to stage and from one microbatch to the next: ir/layout.h. */
#ifndef PTC_REGION_H
#define PTC_REGION_H
#include "ir/ir.h"

enum { ALIGN = 64 };

enum region_kind {
	RG_ALL,   /* the one of a program without a pipeline */
	RG_STEP,  /* lives as long as the step, on stages that run one of the places in where (0: all) */
	RG_ONCE,  /* workspace of PROLOGUE or EPILOGUE */
	RG_WORK,  /* workspace of FORWARD or BACKWARD at a place */
	RG_STASH, /* made and read at one place, of one chunk and microbatch, from FORWARD to BACKWARD, I to W */
	RG_HOST,  /* in host memory: an arena of its own */
	RG_KEPT   /* one value that is read at other places than its own: it travels along the chain */
};

struct region {
	enum region_kind kind;
	enum phase phase;
	int place;
	int64_t where;
	dimid dim;             /* a row for each iteration that a stage or a chunk has; NODIM: just one */
	const struct value *v; /* kept */
	bool carried;          /* kept: each chunk of the repeat goes on with what the one before made */
	int64_t fore, back;    /* kept: places that read it in FORWARD, in BACKWARD */
	int64_t fore_in, back_in; /* kept: repeats that are carried in from it, so that but one chunk of each reads it */
	bool late;             /* W makes it */
	int64_t until_w;       /* kept or stash: places where W reads it */
	int64_t bytes;         /* of a row */
};

struct regions {
	VEC(struct region) at;
	int *of;               /* region of a value that has a place of its own, by id; values of bodies too */
	int *buf;              /* of a buffer, by number */
	int host;              /* of all buffers in host memory; -1: none */
	const struct value **root; /* by id: whose storage a value of the top block lies in; NULL: a buffer's */
};

/* Numbers of values are used: they must be below m->next_id and unique. */
struct regions *regions_of(struct arena *mem, const struct module *m);
/* Sets bytes, from the offsets of a plan. */
void regions_measure(struct regions *r, const struct module *m);

int op_place(const struct op *op);                    /* of FORWARD or BACKWARD */
/* Sections of a program: phases, but that what is {late} in BACKWARD is one of its own. */
enum { SECTION_W = NPHASE, NSECTION };
int op_section(const struct op *op);
int action_section(const struct action *a);
bool sums_in_step(const struct module *m);            /* is what is accumulated a buffer of the step? */
bool holds_buffer(const struct module *m, const struct buffer *b, int stage);
/* What the cut of a pipeline gives each chunk; to be found again when it changes. */
struct chunk_map {
	int chunks, last;     /* last: the highest place */
	int64_t *runs;        /* by chunk: the places that it runs, as bits */
	int64_t *entered[2];  /* by chunk: repeats that FORWARD (BACKWARD) begins there */
};
struct chunk_map chunk_map_of(struct arena *mem, const struct module *m);
/* The places, as bits, at which chunk g reads it in FORWARD or BACKWARD. */
int64_t region_reads(const struct chunk_map *c, const struct region *x, int g, enum phase phase);
/* Kept values go from chunk to chunk, to the next (forward) or to the one before: the chunks that send it. */
struct trips region_senders(const struct chunk_map *c, const struct region *x);
/* What a chunk sends: regions in an order that both ends know; bytes of the message. */
struct message {
	VEC(int) regions;
	int64_t bytes;
};
struct message *messages_of(struct arena *mem, const struct chunk_map *c, const struct regions *r, enum phase phase); /* by chunk */
int64_t round_up(int64_t n);

/* -- layouts: when may one value be another's storage? -- */
bool same_place(const struct value *a, const struct value *b);
/* Does the result of op lie in its operand's storage? Of a bucket, and of a repeat over the first iterations of
 * another, each result in the operand of its number. */
bool is_alias(const struct module *m, const struct op *op);
bool write_copies(const struct module *m, const struct op *op); /* a write of what was not made where the buffer lies */
uint32_t alias_of(const struct op *op, uint32_t result); /* which operand, if it does */
/* Does the result of a read lie in its buffer, on the device or the host? */
bool reads_in_place(const struct module *m, const struct op *read);
/* Does sliced argument i of a repeat lie in its row of the operand? */
bool arg_in_row(const struct module *m, const struct op *repeat, uint32_t i);
#endif
