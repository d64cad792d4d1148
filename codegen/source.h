/* codegen/source.h - private to codegen: what the sources in C and CUDA have in common. */
#ifndef PTC_SOURCE_H
#define PTC_SOURCE_H
#include "codegen/kernel.h"

/* Different texts of functions, with @ where their name stands. */
struct codes {
	struct arena *mem;
	VEC(struct kernel_code) all;
};
int code_no(struct codes *c, const char *text); /* its number; new text gets the next one */
void put_named(struct text *t, const char *text, const char *name);
/* Calls f for each op of the plan: in repeats, not in kernels. false: f has said so, and no more are called. */
bool source_each(const struct block *b, bool (*f)(void *self, const struct op *op), void *self);

#endif
