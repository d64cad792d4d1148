/* ir/layout.h - where the regions of a pipelined plan lie on each stage, action by action.
 *
 * One timeline a stage: the prologue, its actions in the order of the schedule, each in phases (what comes
 * in, the places that its chunk runs, what goes out), the epilogue. A region has a place of its own for each
 * microbatch and chunk that needs it, for as long as it does. All of it follows from the module, so a plan
 * holds no more of it than the size of each stage's arena. */
#ifndef PTC_LAYOUT_H
#define PTC_LAYOUT_H
#include "ir/pack.h"
#include "ir/region.h"
#include "ir/schedule.h"

/* Of a region at the time of an action: its offset in the arena, -1 where it is not; rows. */
struct slot {
	int64_t base, rows;
};

/* Messages of one direction between two stages: FIFO. Receive buffers lie with the receiver, one more with
 * the sender, but for a stage that sends to itself. */
struct channel_plan {
	int from, to;
	enum phase phase;
	int64_t bytes;
	int buffers;
	int64_t out, in; /* offsets in the arenas of from and to; -1: none */
};

struct channels {
	struct channel_plan *at;
	uint32_t n, cap;
};

/* A piece of a stage's arena: a region for as long as an action needs it, or the buffers of a channel. */
struct laid {
	struct packed p;
	int region;  /* -1: of a channel */
	int channel; /* -1: of a region */
	int64_t act; /* of a region: the action that has it; -1: prologue and epilogue */
	int64_t rows;
};

struct pieces {
	struct laid **at;
	uint32_t n, cap;
};

struct stage_layout {
	int64_t arena, live;     /* bytes; the most that is in use at once */
	struct pieces pieces;
	int64_t ticks;           /* of its timeline: pieces are live in 0..ticks */
	struct actions acts;
	struct slot *once;       /* by region: in prologue and epilogue */
	struct slot **act;       /* by action, then by region */
};

struct layouts {
	int stages;
	struct stage_layout *stage;
	struct channels channels;
	struct message *fore, *back; /* that chunk g sends */
};

/* NULL, or why a module can't be laid out: a pipeline that was not cut, ops without a place, more actions than
 * fit in memory. Call it first for what comes from a file. */
const char *layout_refused(struct arena *mem, const struct module *m, struct span *at);
struct layouts *layouts_of(struct arena *mem, const struct module *m, const struct regions *r);
int channel_find(const struct channels *all, int from, int to, enum phase phase); /* -1: none */
/* Sets module.arena, the largest, and that of each stage. */
void layout_arenas(struct module *m, struct regions *r);
/* The arenas alone, of a module that is cut in one way after the other: of a stage that comes again they are known. Regions
 * are measured; but for the cut nothing of the module may change. */
struct arenas;
struct arenas *arenas_open(struct arena *mem, const struct module *m, const struct regions *r);
void arenas_find(struct arenas *a, int64_t *bytes); /* by stage, as the module is cut now */
#endif
