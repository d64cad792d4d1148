/* passes/simulate.h - how long a step of a pipeline takes and what it holds, given what its parts
 * cost; and which order of actions suits these costs best. */
#ifndef PTC_SIMULATE_H
#define PTC_SIMULATE_H
#include "ir/schedule.h"

struct chunk_cost {
	double seconds[NACT];  /* of an F, B, I, W of one microbatch */
	double bytes;          /* kept from F to the end of the backward, one microbatch */
	double freed;          /* share of them that I frees */
	double cut;            /* bytes that I makes and W reads */
	double hop[2];         /* seconds: its F result to the next chunk, its B result to the one before: */
			       /* latency + bytes / bandwidth; not read where both are on one stage */
};

struct stage_cost {
	double prologue, reduce, epilogue; /* seconds: before the first action; after the last; after the clip */
	double bytes;                      /* held all the time */
};

struct costs {
	const struct chunk_cost *chunk; /* p v of them */
	const struct stage_cost *stage; /* p, or NULL: none */
	int receive;                    /* buffers of a channel at its end: 0: any number */
	int send;                       /* at its start; 0: any number */
	bool clip;                      /* the global norm: no epilogue before all stages have reduced */
};
enum { RECEIVE_BUFFERS = 2 };

struct event { /* of a timeline */
	struct action what;
	double start, end;
};

struct stage_run {
	double start, end;  /* of its actions */
	double busy, idle;  /* idle: the rest of the step */
	double peak;        /* microbatches in flight: chunk activations / v, freed at B or W */
	double bytes;       /* at their peak, with those held all the time */
	struct event *event;
	uint32_t n;
};

struct channel_run {
	int from, to;
	enum action_kind kind; /* ACT_F or ACT_B */
	int messages;
	int send; /* buffers in use at once where it starts. With so many (and the receive buffers) no
		     timing of the actions can deadlock: if one run fits, the graph has no cycle */
};

struct run {
	double seconds, idle, bubble; /* idle: the rest of the step on the busiest stage; bubble: its share */
	struct stage_run *stage;
	struct channel_run *channel;
	int channels;
	struct schedule_fault fault; /* what: why it stands still; the rest is as far as it came */
};

/* lists: p of them, as schedule_expand makes or schedule_check has seen. All on the arena. */
struct run simulate(struct arena *mem, const struct schedule *s, const struct actions *list, const struct costs *c);
/* No order of actions is faster: the work of each stage with the way to it and back, and the way there
 * and back of one microbatch. Of prologue and epilogue nothing. */
double lower_bound(const struct schedule *s, const struct costs *c);

/* -- portfolio.c -- */
/* A list scheduler with a clock. Strict: in the schedule's own orders; where a forward and a backward
 * are ready, they alternate. The other two are zb_v's: each chunk has its own order, backwards come
 * first, by microbatch; of two forwards the one of the later chunk, or of the earlier microbatch.
 * None is ready: the oldest W. limit: chunk activations of each stage. NULL: it stood still. */
enum clock_rule { CLOCK_STRICT, CLOCK_CHUNK1_FIRST, CLOCK_MICROBATCH_FIRST };
struct actions *schedule_clocked(struct arena *mem, const struct schedule *s, const struct costs *c,
				 enum clock_rule rule, const int *limit);

struct candidate {
	const char *name; /* "count", "warm-up + 1", "clocked", ... */
	struct schedule s;
	struct run run;
	bool fits; /* in bytes a stage; a candidate that deadlocks is not listed */
};

/* All that there are; the first is the count form. best: index of the fastest that fits, ties to
 * the first; the first if none fits. bytes: a stage's memory, 0: any. */
struct portfolio {
	struct candidate at[6];
	int n, best;
};
struct portfolio schedule_choose(struct arena *mem, const struct schedule *s, const struct costs *c, double bytes);
#endif
