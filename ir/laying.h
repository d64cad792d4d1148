/* ir/laying.h - what ir/layout.c and ir/arenas.c share: the pieces of each stage, found in three steps.
 *
 * Lines: the actions of each stage, whatever the cut. Demand: what a cut makes each action of a chunk need; all microbatches
 * need the same. From both, the pieces of a stage, packed. Stages whose actions and needs are the same are packed alike, so a
 * packing is made once and then known. */
#ifndef PTC_LAYING_H
#define PTC_LAYING_H
#include "ir/layout.h"

/* Of an action: itself, and the halves of the backward of its chunk and microbatch. */
enum when { OWN, AT_I, AT_W, NWHEN };

struct line {
	struct actions acts;
	int64_t *at[NWHEN];  /* by action: numbers of actions */
	VEC(int) chunks;
	int alike;           /* the first stage that does the same, chunk for chunk */
};

/* The kinds of actions, as far as what they need goes. */
enum turn { ON_F, ON_B, ON_W, NTURN };

/* A region that each such action of a chunk gives a place. In ticks of an action; -1: not of that one. */
struct need {
	int region;
	int64_t rows, bytes;
	int8_t in, start;    /* in: which action has the place; it begins at a tick of that */
	int8_t end[NWHEN];   /* it lasts until the latest of these */
};

struct needs {
	struct need *at;
	uint32_t n, cap;
};

struct demand {
	struct chunk_map map;
	struct trips *sent;           /* by region: the chunks that send it */
	struct message *fore, *back;  /* by chunk */
	struct channels channels;
	struct needs (*of)[NTURN];    /* by chunk */
};

/* How a stage was packed. */
struct packing {
	struct packing *next; /* of the same hash */
	const int64_t *key;
	size_t words;
	int64_t arena, live;
	const int64_t *off;   /* by piece; NULL: not asked for */
};

struct known {
	struct arena *mem;
	bool places; /* offsets are kept */
	struct packing *first[1024];
};

struct laying {
	struct arena *mem;
	const struct module *m;
	const struct regions *r;
	const struct line *line; /* by stage */
	struct known *known;
	struct demand want;
	int64_t ticks;           /* of an action */
};

/* -- arenas.c -- */
struct line *lines_of(struct arena *mem, const struct module *m); /* by stage */
struct laying lay(struct arena *mem, const struct module *m, const struct regions *r, const struct line *line, struct known *known);
enum turn turn_of(const struct action *a);
bool is_passing(const struct module *m, const struct region *x, int g);
struct pieces pieces_of(const struct laying *l, int stage); /* as they are packed, in this order */
/* Of a stage, on the arena of what is known; its pieces are in the order of pieces_of. */
const struct packing *packing_of(const struct laying *l, int stage);

#endif
