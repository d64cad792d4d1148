/* passes/live.h - what lies in a rank's memory when most of it is in use, tensor by tensor. */
#ifndef PTC_LIVE_H
#define PTC_LIVE_H
#include "ir/ir.h"

enum mem_kind { MEM_PARAMS, MEM_GRADS, MEM_OPTIMIZER, MEM_ACTIVATIONS, MEM_WORKSPACE, MEM_COMM, MEM_GATHERED, NMEM };
extern const char *const mem_kind_name[NMEM];

struct holding {
	const char *name;   /* "layers.mlp.wu", "the gradient of wte", "the einsum of f.pdsl:12" */
	enum mem_kind kind;
	int64_t bytes;      /* of all that there are */
	int64_t times;      /* how many at once: microbatches in flight, places used in turn */
	struct span at;
};

/* The kinds add up to the peak, and so do the holdings, the largest first. What travels between ranks is of
 * kind comm: buffers of messages and results of collectives, but for gradients and for params that lie in parts and are
 * put together where they are read, which are gathered. */
struct stage_live {
	int64_t peak;       /* bytes of a rank, with the workspace */
	int64_t of[NMEM];
	int64_t unused;     /* holes between tensors: no layout without any was found. A part of activations */
	const char *when;   /* "backward of microbatch 3 in chunk 1" */
	struct span at;     /* the op */
	VEC(struct holding) held;
};

/* By stage, of a plan. Marks and aux of all ops and values are used. NULL after an error, of a plan that was
 * not made by ptc. */
struct stage_live *live_at_peak(struct arena *mem, struct module *m, struct diag *d);
#endif
