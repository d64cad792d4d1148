/* passes/price.h - what an op takes on real hardware with some software: the refined model that reports use.
 * Passes choose by the simple one of passes.h, in which latencies and kernels' details play no part. */
#ifndef PTC_PRICE_H
#define PTC_PRICE_H
#include "passes/passes.h"

enum time_kind { /* where the time of a step goes */
	T_PRODUCTS,    /* matrix products */
	T_ATTENTION,
	T_MEMORY,      /* work on elements, bound by memory */
	T_HOST,        /* the device waits for launches */
	T_ACTIVATIONS, /* exposed collectives: on activations (tensor and sequence parallelism) */
	T_EXCHANGE,    /* all-to-alls */
	T_RING,        /* keys and values that go round */
	T_PARAMS,      /* gathers of params */
	T_GRADS,       /* reductions of gradients, and of scalars */
	T_COPIES,      /* from and to the memory of the host */
	NTIME
};
extern const char *const time_name[NTIME];

struct op_price {
	enum time_kind kind;
	double seconds;  /* on the device, or on the link of a collective */
	double extra;    /* of seconds, on the memory: casts to fp8, sums over microbatches */
	double ring;     /* seconds that an attention waits for keys */
	double launches; /* of the host */
};

int64_t number_ops(const struct block *block, int64_t n); /* sets marks from n on; one behind the last */
struct pricing; /* what is known of all ops: which products run as one, how often tokens are sent */
struct pricing *pricing_of(struct arena *mem, const struct module *m); /* numbers ops (op.mark) */
struct op_price op_price(const struct pricing *p, const struct op *op); /* of no loop */
bool op_is_free(const struct module *m, const struct op *op); /* nothing happens when it runs */
double launch_seconds(const struct module *m); /* the host's, of one launch */
/* Seconds of a message of value v to the next stage, but for what all messages take. */
double hop_price(const struct module *m, const struct value *v);
double hop_latency(const struct module *m);

double passed_bytes(const struct module *m, const struct value *v); /* of a rank, where software keeps v in its own width */
double memory_seconds(const struct module *m, double bytes); /* of work on elements that moves so many */
static inline uint8_t software(const struct module *m, enum switch_no sw)
{
	return m->software.at[sw];
}

/* -- price_eager.c -- */
double eager_bytes(const struct module *m, const struct op *kernel); /* that each of its ops moves, launched by itself */

/* -- price_attention.c -- */
struct op_price price_attention(const struct module *m, const struct op *op); /* or of its gradient */

/* -- price_comm.c -- */
/* A collective of n ranks that each send `sent` bytes; ways: 1, of an all_reduce 2. copies: of an exchange of
 * tokens, how many experts one goes to; 0: no exchange. */
double link_price(const struct module *m, uint32_t axes, double sent, int ways, double copies);
double size_curve(double bytes); /* share of the bandwidth that a collective of so many bytes gets */

/* -- price_gemm.c -- */
struct gemm {
	double batch, m, n, k;
	double bytes;  /* of operands and results */
	bool turned;   /* the result lies with m, which is operand 0's, innermost: its columns */
};
double gemm_price(const struct module *m, const struct gemm *g, enum dtype dt, int width); /* width: GEMM_PLAN, ... */
struct gemm product_of(const struct module *m, const struct op *op);

/* -- price_measured.c: of machines that were measured -- */
struct scores {
	double rows, keys, batch; /* of a rank, all blocks of a ring together; batch: of heads and sequences */
	double qk, v;             /* dims of a head */
};
double measured_gemm(const struct module *m, const struct gemm *g, enum dtype dt);
double measured_kernel(const struct module *m, const struct op *op, double bytes);
double measured_attention(const struct module *m, const struct scores *s, bool causal, bool back);
double measured_comm(const struct link *link, double n, double sent, int ways); /* of ranks that share a memory */

/* -- price_memory.c -- */
/* Bytes of one microbatch that other software holds from forward to backward. */
double chunk_held(const struct module *m, int g);
#endif
