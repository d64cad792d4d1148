/* ir/schedule.h - what each stage of a pipeline does, in which order. A schedule is a few
 * numbers; its lists of actions are made from them when they are needed, so a plan does not grow
 * with microbatches. Stands on ir/base.h alone: the compiler, the simulator and a runtime that
 * expands a schedule when it loads a plan share it.
 *
 * p stages, m microbatches, v chunks a stage, G = p v chunks in chain order. A channel is
 * (from, to, F|B): its own queue, first in, first out, nothing is tagged. */
#ifndef PTC_SCHEDULE_H
#define PTC_SCHEDULE_H
#include "ir/base.h"

/* B is the whole backward; I its half that makes the gradient of the chunk's input, W the half
 * that makes gradients of weights. A schedule has either B or I and W of each microbatch. */
enum action_kind { ACT_F, ACT_B, ACT_I, ACT_W, NACT };
extern const char action_letter[NACT];

struct action {
	uint8_t kind;
	uint16_t chunk; /* in chain order */
	int32_t mb;
};

struct actions { /* of one stage: PUSH(mem, &list, action) */
	struct action *at;
	uint32_t n, cap;
};

enum schedule_kind {
	SCHED_GPIPE,       /* all F, then all B */
	SCHED_1F1B,
	SCHED_INTERLEAVED, /* with v = 1: 1f1b with twice the warm-up */
	SCHED_ZB_H1,       /* 1f1b, W put off to fill the drain */
	SCHED_ZB_H2,       /* twice the warm-up: pays if the next step may begin early */
	SCHED_ZB_V,        /* two chunks a stage, the chain runs down and back up */
	SCHED_LIST,        /* explicit, from a CSV */
	NSCHED
};

struct schedule {
	enum schedule_kind kind;
	int p, v, m;
	int group;      /* interleaved: least microbatches that a chunk takes in a row; 0: p */
	int warm_extra; /* more forwards before the first backward, on all stages but the last */
	int inflight;   /* microbatches that a stage may hold at once; 0: what the kind needs to be fast */
	/* Explicit, if list is set (kind then only says where it comes from): p lists, and the stage
	 * of each chunk (NULL: by kind). */
	const struct actions *list;
	const uint16_t *place;
};

const char *schedule_name(enum schedule_kind kind);
bool schedule_find(const char *name, enum schedule_kind *kind);
bool schedule_splits(const struct schedule *s);     /* has I and W, not B */
int schedule_stage(const struct schedule *s, int chunk);
int schedule_chunk(const struct schedule *s, int stage, int i); /* i-th of the stage in chain order, 0 <= i < v */

/* NULL, or what is wrong with p, v, m for this kind. */
const char *schedule_refused(struct arena *mem, const struct schedule *s);
/* p lists. The schedule has not been refused. */
struct actions *schedule_expand(struct arena *mem, const struct schedule *s);
/* Most chunk activations that a stage may hold at once, if they are freed at B or W. */
int schedule_inflight(const struct schedule *s, int stage);

/* -- schedule_check.c -- */
struct schedule_fault {
	const char *what, *note; /* what NULL: none; note may be NULL */
	int stage;               /* -1: of no stage */
	uint32_t at;             /* index of the action in the stage's list */
	struct span span;        /* set by schedule_read_csv: file is 0, line 1-based */
};
/* One F and one B (or I and W) of each microbatch of each chunk, on its stage; F before B, I
 * before W; both ends of each channel agree on the order; no deadlock with so many receive
 * buffers a channel (0: any number). False: fault says the first thing wrong. */
bool schedule_check(struct arena *mem, const struct schedule *s, const struct actions *list, int receive,
		    struct schedule_fault *fault);
/* The least receive buffers of a channel, `from` (1 or more) at least, with which lists that schedule_check takes come
 * to their end where a stage waits to send until its message before has left: it has one buffer for each channel. 0:
 * they never do; fault says why, or why not with `from`. */
int schedule_buffers(struct arena *mem, const struct schedule *s, const struct actions *list, int from,
		     struct schedule_fault *fault);

/* -- schedule_csv.c: as PyTorch's torch.distributed.pipelining writes and reads it: one row a
 * rank, cells like 0F0, 1B3, 1I3, 1W3; empty cells and cells of communication mean nothing. -- */
bool schedule_read_csv(struct arena *mem, const char *text, size_t n, struct schedule *out,
		       struct schedule_fault *fault);
void schedule_write_csv(struct text *out, const struct schedule *s, const struct actions *list);
#endif
