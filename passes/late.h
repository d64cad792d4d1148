/* passes/late.h */
#ifndef PTC_LATE_H
#define PTC_LATE_H
#include "ir/ir.h"

/* Functions of sums over the batch leave the loops of FORWARD. Needs kinds. */
bool split_late(struct module *m, struct diag *d);

#endif
