/* runtime/exec.h - exec.c for open.c. */
#ifndef PTC_RUNTIME_EXEC_H
#define PTC_RUNTIME_EXEC_H
#include "runtime/internal.h"

bool threads_start(struct runtime *rt, struct diag *d);
void threads_stop(struct runtime *rt);

#endif
