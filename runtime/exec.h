/* runtime/exec.h - exec.c for open.c. */
#ifndef PTC_RUNTIME_EXEC_H
#define PTC_RUNTIME_EXEC_H
#include "runtime/internal.h"

size_t rank_bytes(const struct rank *r); /* open.c: of its arena */
bool run_einsum(struct rank *r, const struct instr *i);
int64_t rank_carry_bytes(const struct loop *x); /* of scratch that its carried values take */
void rank_set_iter(struct rank *r, const struct loop *x, int64_t n, int64_t turn);
bool rehearse_attention(struct rank *r, const struct instr *i); /* attend.c: a block, as if by itself */
bool rehearse(struct rank *r);    /* rehearse.c */

bool threads_start(struct runtime *rt, struct diag *d);
bool threads_run(struct runtime *rt, void (*what)(struct rank *)); /* in every rank's thread; true */
void init_first(struct rank *r);  /* open.c: buffers of which it holds the first copy */
void init_copies(struct rank *r); /* the others */
int processor_count(void);        /* open.c: that it may use, or PTC_THREADS */
void threads_stop(struct runtime *rt);

#endif
