/* passes/pipeline.h - the schedule of a module's pipeline. */
#ifndef PTC_PIPELINE_H
#define PTC_PIPELINE_H
#include "ir/ir.h"
#include "passes/schedule.h"

/* By m->pipe and m->micro; expand it where its actions are needed. */
struct schedule pipe_schedule(const struct module *m);

#endif
