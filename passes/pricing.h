/* passes/pricing.h - what the files that price ops share: what is known of each op from those around it. */
#ifndef PTC_PRICING_H
#define PTC_PRICING_H
#include "passes/price.h"

struct note { /* of an op, by its mark */
	struct gemm gemm;   /* of all products that run as one with it */
	double share;       /* its part of them */
	bool merged;        /* of a collective: another one does its work */
	uint32_t axes;      /* of the first of a chain of exchanges: of all of them */
	double seconds;     /* of the first of another chain: of all of it; 0: no chain */
	double bytes;       /* moved besides its own */
};

struct pricing {
	const struct module *m;
	struct note *note;
	double logits;      /* elements of the largest product outside of loops; 0: none */
	double copies;      /* experts that a token goes to; 1: none */
	dimid slot;         /* of an expert, that holds a token; NODIM: there are no experts */
};

/* -- price.c -- */
bool op_in_loop(const struct op *op);
int op_width(const struct module *m, const struct op *op); /* GEMM_PLAN, ...: in which its products run */
static inline const struct value *root_of(const struct value *v)
{
	while (v->def && v->def->code == OP_RENAME)
		v = v->def->in[0];
	return v;
}
static inline const struct op *only_reader(const struct value *v) /* the op that alone reads v; NULL: there are others */
{
	return v->aux;
}

/* -- price_sent.c -- */
enum time_kind comm_kind(const struct op *op);
void find_chain(struct pricing *p, const struct op *first); /* of collectives that begins with it: notes it in all of them */
struct op_price price_sent(const struct pricing *p, const struct op *op);
#endif
