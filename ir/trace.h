/* ir/trace.h - a step as a timeline, predicted (passes/trace.c) or measured (runtime/trace.c): the same events
 * with the same names and ids, so that one can be laid over the other. Written as Chrome's and Perfetto's trace
 * JSON: a process for each stage, of which one rank is shown, with a thread for the actions of the pipeline and one for
 * each stream. */
#ifndef PTC_TRACE_H
#define PTC_TRACE_H
#include "ir/ir.h"

enum trace_stream { TRACE_ACTIONS, TRACE_COMPUTE, TRACE_COMM, TRACE_COPY, TRACE_IN, TRACE_OUT, NTRACE };

enum trace_what {
	TRACE_OP,
	TRACE_ACTION,  /* of the schedule; prologue, epilogue */
	TRACE_SEND, TRACE_RECEIVE /* the message that follows, or comes before, an action */
};

struct trace_event {
	enum trace_what what;
	const struct op *op;  /* of TRACE_OP */
	struct action act;    /* at work. Kind NACT: the prologue, with mb 1 the epilogue */
	int64_t iter;         /* of the repeats around */
	int other;            /* the stage that a message goes to or comes from */
	double start, end;    /* seconds */
	double busy;          /* seconds that the thread had a processor; of a step that is watched (rt_watch), else 0 */
};

struct trace_list {
	VEC(struct trace_event) event; /* in order of start within a stream */
};

struct trace {
	const char *kind;     /* "predicted", "measured" */
	double seconds;       /* of the step */
	int stages;
	struct trace_list *stage;
};

/* The stream of an op that is shown; -1: none. A copy that is not on a stream of its own is of a batch, mostly. */
int trace_stream(const struct module *m, const struct op *op);
/* -- label.c: "einsum logits", "einsum with layers.mlp.wu", "all_gather wte", "kernel gpt.pdsl:12" -- */
const char *op_label_text(struct arena *mem, const struct module *m, const struct op *op);
/* Sets op.mark to a number that is the same in every reading of a plan. Returns how many there are. */
int64_t trace_number(const struct module *m);
/* Numbers the ops. Gaps between actions are shown as idle. */
void trace_write(struct text *out, const struct module *m, const struct trace *t);
#endif
