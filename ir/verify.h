/* ir/verify.h - what the files of the verifier share: verify.c (module, blocks), verify_ops.c (dims and
 * types of every op), verify_shard.c (shardings). Every check returns false after it has reported. */
#ifndef PTC_VERIFY_H
#define PTC_VERIFY_H
#include "ir/ir.h"

struct verifier {
	const struct module *m;
	struct diag *d;
	struct value **seen; /* by id: defined so far */
	bool *waited;        /* by id: it was in flight, and is waited for */
	int time;            /* the time axis, -1: none */
};

bool ver_fail(struct verifier *v, const struct op *op, const char *fmt, ...) PRINTF(3, 4);
bool ver_op_dims(struct verifier *v, const struct op *op);
bool ver_op_shards(struct verifier *v, const struct op *op);
bool ver_sharding(struct verifier *v, const struct op *op, const char *what, int nd, const struct sharding *sh);

#endif
