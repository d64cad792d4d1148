/* passes/trace.h - the timeline of a step as it is predicted. */
#ifndef PTC_PASSES_TRACE_H
#define PTC_PASSES_TRACE_H
#include "ir/trace.h"
#include "passes/report.h"

/* Actions lie as the simulation of x has them; the ops of one follow each other on two streams, as the
 * plan starts and waits for collectives, and are stretched to the time that the action takes. */
struct trace trace_predicted(struct arena *mem, const struct module *m, const struct step_time *x);
#endif
