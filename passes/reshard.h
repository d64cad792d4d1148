/* passes/reshard.h - from one sharding to another: the greedy chain of docs/SHARDING.md. */
#ifndef PTC_RESHARD_H
#define PTC_RESHARD_H
#include "passes/passes.h"

enum { MAX_CHAIN = 36 };

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
	double seconds, latency; /* latency: what of it does not depend on sizes */
	bool free; /* nothing is sent */
};

/* Dims d[nd] and type of the value are given; both shardings are in the order of d. This one is quick, for
 * weighing; what is sent goes by the best. */
struct chain reshard_chain(const struct module *m, int nd, const dimid *d, enum dtype dt,
			   const struct sharding *src, const struct sharding *dst);
struct chain reshard_best(const struct module *m, int nd, const dimid *d, enum dtype dt,
			  const struct sharding *src, const struct sharding *dst);
/* Puts a cheaper chain in place of *c if there is one (reroute.c); its seconds and free are then to be set. */
void reroute(const struct module *m, int nd, const dimid *d, enum dtype dt, const struct sharding *src,
	     const struct sharding *dst, struct chain *c);
uint32_t step_axes(const struct reshard *r);
/* What a rank sends in a step from `in` to `out` elements. */
double step_bytes(const struct module *m, const struct reshard *r, enum dtype dt, double in, double out);
double shard_elements(const struct module *m, int nd, const dimid *d, const struct sharding *sh);

#endif
