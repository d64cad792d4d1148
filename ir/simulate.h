/* ir/simulate.h - how long a step of a pipeline takes and what it holds, given what its parts cost. With
 * costs of nothing it says whether an order of actions stands still: schedule_check.c. */
#ifndef PTC_IR_SIMULATE_H
#define PTC_IR_SIMULATE_H
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
enum { RECEIVE_BUFFERS = 2, SEND_BUFFERS = 1 }; /* of a plan that says no other; of every plan */

struct event { /* of a timeline */
	struct action what;
	double start, end;
};

struct stage_run {
	double start, end;  /* of its actions */
	double busy, idle;  /* idle: the rest of the step */
	double peak;        /* microbatches in flight: chunk activations / v, freed at B or W */
	double bytes;       /* at their peak, with those held all the time */
	double fixed;       /* the latter */
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
#endif
