/* runtime/exec.h - exec.c for open.c. */
#ifndef PTC_RUNTIME_EXEC_H
#define PTC_RUNTIME_EXEC_H
#include "runtime/internal.h"

bool threads_start(struct runtime *rt, struct diag *d);
bool threads_run(struct runtime *rt, void (*what)(struct rank *)); /* in every rank's thread; true */
void init_first(struct rank *r);  /* open.c: buffers of which it holds the first copy */
void init_copies(struct rank *r); /* the others */
int processor_count(void);        /* open.c: that it may use, or PTC_THREADS */
void threads_stop(struct runtime *rt);

#endif
