/* ir/limits.h - every fixed size that a plan must fit: what the front end takes, the proof asks for and the runtime has room for. */
#ifndef PTC_LIMITS_H
#define PTC_LIMITS_H
#include <stdint.h>

enum {
	MAX_MESH = 6,            /* axes of a mesh */
	MAX_AXES = 14,           /* after they were cut by links, with that of the microbatches */
	MAX_ON = 14,             /* axes that split one dim: all may */
	MAX_DIMS = 10,           /* of a value */
	MAX_NEST = 8,            /* repeats within each other */
	MAX_BUCKET = 256,        /* operands of one collective */
	MOST_RANKS = 1 << 20,    /* of a mesh */
	MOST_ACTIONS = 1 << 20,  /* chunks of a pipeline times microbatches */
	/* of a kernel */
	MAX_OPERANDS = 1024,     /* and as many results */
	MAX_VALUES = 4096,
	MAX_KDIM = 32,           /* dims: a word has a bit for each */
	MAX_ROOT = 256,          /* what it stores, sums and keeps */
	/* of a process */
	MOST_THREADS = 4096      /* ranks: no limit of a plan, which may be run by many processes */
};

/* A value, and a memory or an offset in it, in bytes. */
static const int64_t MOST_ELEMENTS = (int64_t)1 << 56, MAX_MEMORY = (int64_t)1 << 56;

static const int64_t USUAL_WORKSPACE = (int64_t)256 << 20;

#endif
