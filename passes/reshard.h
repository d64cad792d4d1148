/* passes/reshard.h - from one sharding to another: the greedy chain of ALGEBRA.md 1.5. */
#ifndef PTC_RESHARD_H
#define PTC_RESHARD_H
#include "passes/passes.h"

enum { MAX_CHAIN = 32 };

struct reshard {
	enum opcode code;
	struct axes axes;
	dimid dim, to;      /* NODIM where the op has none */
	bool max;
	struct sharding sh; /* afterwards */
};

struct chain {
	int n;
	struct reshard step[MAX_CHAIN];
	double seconds;
	bool free; /* nothing is sent */
};

/* Dims d[nd] and type of the value are given; both shardings are in the order of d. */
struct chain reshard_chain(const struct module *m, int nd, const dimid *d, enum dtype dt,
			   const struct sharding *src, const struct sharding *dst);
double shard_elements(const struct module *m, int nd, const dimid *d, const struct sharding *sh);

#endif
