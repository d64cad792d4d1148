/* passes/passes.h - a pass is one function, one file, one row of the table in passes.c. The driver
 * alone runs, verifies, dumps and times. */
#ifndef PTC_PASSES_H
#define PTC_PASSES_H
#include "ir/ir.h"

struct pass {
	const char *name, *what;
	bool (*run)(struct module *m, struct diag *d); /* false: an error has been reported */
	enum form from, to;
};
extern const struct pass passes[]; /* in running order, ends with a NULL name */

bool pass_simplify(struct module *m, struct diag *d);
bool pass_precision(struct module *m, struct diag *d);
bool pass_differentiate(struct module *m, struct diag *d);
bool pass_optimizer(struct module *m, struct diag *d);
bool pass_microbatch(struct module *m, struct diag *d);
bool pass_stages(struct module *m, struct diag *d);
bool pass_place(struct module *m, struct diag *d);
bool pass_partition(struct module *m, struct diag *d);
bool pass_chunk(struct module *m, struct diag *d);
bool pass_pipeline(struct module *m, struct diag *d);
bool pass_split(struct module *m, struct diag *d);
bool pass_rematerialize(struct module *m, struct diag *d);
bool pass_halves(struct module *m, struct diag *d);
bool pass_fuse(struct module *m, struct diag *d);
bool pass_collectives(struct module *m, struct diag *d);
bool pass_delay(struct module *m, struct diag *d);
bool pass_overlap(struct module *m, struct diag *d);
bool pass_offload(struct module *m, struct diag *d);
bool pass_balance(struct module *m, struct diag *d);
bool pass_memory(struct module *m, struct diag *d);

/* -- simplify.c: equal ops of a section become one; what nobody reads goes, carried values of loops too -- */
void join_equal_ops(struct module *m);

struct pass_options {
	const char *start_after; /* NULL: from the first */
	const char *stop_after; /* NULL: all */
	const char *dump_after; /* NULL, a name, or "all": to stderr, "(unchanged)" if so */
	bool verify;            /* verify and round-trip after each pass */
	bool time;              /* to stderr */
};
/* Runs passes [first, last] by name (NULL: from the start, to the end). */
bool run_passes(struct module *m, struct diag *d, const struct pass_options *opt);
bool run_pass_list(struct module *m, struct diag *d, const char *names /* "a,b" */, const struct pass_options *opt);

/* -- place.c: a selector without a dot matches the last part of a path, with a dot the whole -- */
bool selector_matches(const char *sel, bool glob, const char *path);

/* -- cost.c: the one place with machine numbers; counted from labels -- */
double op_flops(const struct module *m, const struct op *op);        /* that the model asks for: logical, whole job, once */
double op_local_flops(const struct module *m, const struct op *op);  /* that one rank does: caps, q.k again in backward */
double op_local_bytes(const struct module *m, const struct op *op);  /* read + written, one rank */
double op_compute_seconds(const struct module *m, const struct op *op); /* roofline; of no loop or collective */
double op_seconds(const struct module *m, const struct op *op);      /* roofline + collectives, one rank */
double comm_seconds(const struct module *m, uint32_t axes, double bytes); /* alpha + bytes / slowest link */
/* Of a reduction of `bytes` a rank, ways 1 (reduce_scatter) or 2 (all_reduce): in one ring, or link by link. */
double staged_seconds(const struct module *m, uint32_t axes, double bytes, int ways);
int comm_link(const struct module *m, uint32_t axes);      /* number of the link that a group crosses */
bool several_links(const struct module *m, uint32_t axes); /* these axes are not all on one */
/* a and b are neighbouring parts of one axis of the mesh that was cut where a link ends. */
bool same_cut_axis(const struct module *m, int a, int b);
/* Causal attention: scores that the rank with most has to make, over the mean; 1 if they are even. */
double attention_imbalance(const struct module *m);
/* How often an op runs in a step: iterations of the repeats around it, times microbatches in
 * FORWARD and BACKWARD. */
double op_times(const struct module *m, const struct op *op);

/* What a rank copies from host memory to the device in a step, and back; of a plan. */
struct host_traffic {
	double in, out;
};
struct host_traffic host_traffic(const struct module *m);
/* Seconds of the copy from or to host memory that op is; 0: it is none, or the hardware does not say. */
double host_seconds(const struct module *m, const struct op *op);

/* A row of the table of collectives: same op, axes, source line. bytes: what a rank sends a step. */
struct comm_row {
	enum opcode op;   /* NOP: of a message between stages */
	const char *name; /* of what is sent: all_gather, ring, send */
	uint32_t axes;
	const char *axis, *link, *why; /* link: that it crosses; "" if the hardware has none */
	struct span at;
	double count, bytes, elements;
};
struct comm_row *comm_table(struct arena *mem, const struct module *m, int *n); /* of the program, all stages */
struct comm_row *stage_table(struct arena *mem, const struct module *m, int stage, int *n); /* of a rank of one */

/* -- prove.c: a plan is shown to be safe. False: an error says the first thing that is wrong. -- */
struct proof {
	int64_t stages, collectives, channels, reads, writes;
	double seconds;
	bool cramped; /* it failed since the plan has too little workspace, which is no fault of ours */
};
bool prove_plan(const struct module *m, struct proof *proof, struct diag *d);
/* The same, but for what only shows that a plan is not the compiler's: something is computed in vain. */
bool prove_safe(const struct module *m, struct proof *proof, struct diag *d);
/* Of what the passes have made of a model, before it is written: its text reads back, and what is read is safe. Else it is a
 * fault of ours, and said to be. */
bool prove_made(struct module *m, struct proof *proof, struct diag *d);
void own_fault(struct diag *d); /* says that */

#endif
