/* tests/fuzz/compiled.h - a case run by the runtime, against one rank in the evaluator. */
#ifndef PTC_FUZZ_COMPILED_H
#define PTC_FUZZ_COMPILED_H
#include "ir/eval.h"

struct datum {
	const char *name; /* of a buffer */
	struct tensor *t;
};

/* One rank after its step, and what it began with. */
struct one_rank {
	const struct module *m;
	struct eval *e;
	const struct datum *data;
	uint32_t ndata;
	uint64_t seed;
	int64_t step;
	bool training;
};

/* m, partitioned, is compiled to a plan, which must be proved safe. NULL, or what is wrong. */
const char *check_proved(struct arena *mem, struct module *m);
/* The plan m is run. NULL, or what is wrong; *compared counts buffers. */
const char *check_compiled(struct arena *mem, struct module *m, const struct one_rank *one, uint32_t *compared);
/* For kernels that run once: built fast, kept in build/. */
void use_fast_compiler(void);

#endif
