/* runtime/lowering.h - what the files that make a rank's program share: program*.c. */
#ifndef PTC_RUNTIME_LOWERING_H
#define PTC_RUNTIME_LOWERING_H
#include "runtime/internal.h"
#include "runtime/place.h"

struct lowering {
	struct runtime *rt;
	struct module *m;
	struct diag *d;
	struct placing placing;
	struct prog *to;
	int kernel;  /* the next one's number in kernels.sig */
	bool eval;
	bool eager;  /* test only: PTC_TEST_EAGER carries out at the start what may be waited for later */
	bool late;   /* test only: PTC_TEST_LATE carries out what starts where it is waited for */
	int64_t where;
};

/* -- program.c -- */
bool odd(struct lowering *l, const struct op *op, const char *what);       /* an error; false */
struct instr *emit(struct lowering *l, enum icode code, const struct op *op);
struct loc *locs(struct lowering *l, const struct op *op); /* of its operands, then of its results; NULL after an error */

/* -- program_copy.c -- */
int64_t stride_in(const struct module *m, const struct value *v, dimid d); /* 0: it lacks d */
void mover_init(const struct module *m, struct mover *x, const struct value *over, dimid skip, const struct value *to, const struct value *from);
bool find_loc(struct lowering *l, const struct value *v, struct loc *at);
bool same_loc(const struct loc *a, const struct loc *b);
struct move *emit_move(struct lowering *l, const struct op *op);
bool covers(const struct value *a, const struct value *b);
bool lower_read(struct lowering *l, const struct op *op);
bool lower_write(struct lowering *l, const struct op *op);
bool lower_view(struct lowering *l, const struct op *op);
bool lower_accumulate(struct lowering *l, const struct op *op);

/* -- program_comm.c -- */
bool lower_host(struct lowering *l, const struct op *op);
bool lower_comm(struct lowering *l, const struct op *op);
bool lower_wait(struct lowering *l, const struct op *op);

/* -- program_compute.c -- */
bool lower_kernel(struct lowering *l, const struct op *op);
bool lower_einsum(struct lowering *l, const struct op *op);
bool lower_attention(struct lowering *l, const struct op *op);
bool lower_report(struct lowering *l, const struct op *op);
bool lower_iter(struct lowering *l, const struct op *op);

#endif
