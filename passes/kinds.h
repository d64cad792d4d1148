/* passes/kinds.h */
#ifndef PTC_KINDS_H
#define PTC_KINDS_H
#include "passes/passes.h"

/* Sets value.kind everywhere. With more than one microbatch a use of a sum over the batch that
 * microbatches would change is an error (docs/LANGUAGE.md). */
bool set_kinds(struct module *m, struct diag *d);

#endif
