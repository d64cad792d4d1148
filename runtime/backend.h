/* runtime/backend.h - what carries out the instructions of a rank: here the processor (cpu.c), in cuda/ a GPU.
 *
 * The program (program.c) and the flow of control (exec.c, actions.c) are the same for all. A backend may run behind:
 * a leaf only has to put its work in order, until `step` returns. Addresses are those of rank_at: in the arena of
 * the rank, wherever that is, or in host memory. Leaves that return false, or nothing, tell comm_fail what went wrong. */
#ifndef PTC_RUNTIME_BACKEND_H
#define PTC_RUNTIME_BACKEND_H
#include "runtime/internal.h"

/* What a rank shows its neighbours while keys go round, or results are combined (attend.c). */
struct shown {
	char *key[2];      /* its own k and v, at step 0 */
	char *block[2][2]; /* [step % 2]: k and v of somebody */
	char *grad[2][2];  /* dk and dv of them, in float32 */
	const float *o, *lse;
};

struct key_ring {
	struct rank *r;
	struct group *group;
	int row, me, n;    /* of rt->groups; which member of how many */
	const struct shown *mine;
	void *lent[1];     /* of threads: mine, as others see it until the end */
	struct shown left; /* of threads: the member before */
	struct call call;
};

struct backend {
	const char *name;
	unsigned starts; /* bits of enum stream: what is on these and waited for later begins where the plan says, not where it is waited for */

	void (*versions)(struct text *t);                   /* what it was built with and needs, a line */
	bool (*machine)(struct machine *m, struct diag *d); /* what there is to run on */
	/* The libraries, and the code of the kernels: sets rt->kernels.op and n. */
	bool (*load)(struct runtime *rt, struct diag *d);
	void (*unload)(struct runtime *rt); /* after the ranks are closed; also if it was never loaded */
	/* Of a kernel, when the program is built: kernel number i->no. Sets i->own. */
	bool (*prepare)(struct runtime *rt, struct instr *i, struct diag *d);

	/* r->arena, zeroed, and r->host; from the caller's thread. Closed also when it was not opened. */
	bool (*rank_open)(struct rank *r, size_t bytes, struct diag *d);
	void (*rank_close)(struct rank *r, size_t bytes);
	/* In the rank's own thread, all ranks at once: before the first step, and after the last if there was a first. */
	bool (*enter)(struct rank *r);
	void (*leave)(struct rank *r);
	/* Calls run(r), in the rank's own thread, and ends what that has begun. */
	void (*step)(struct rank *r, bool (*run)(struct rank *));

	bool (*begins)(struct rank *r, const struct instr *i); /* before any instruction; false: failed. NULL: nothing to do */
	bool (*kernel)(struct rank *r, const struct instr *i);
	/* n instructions from kernel i on: *done, how many of them have been carried out at once; 0: none. NULL: never. */
	bool (*kernels)(struct rank *r, const struct instr *i, uint32_t n, uint32_t *done);
	bool (*einsum)(struct rank *r, const struct instr *i, const struct contraction *x, const void *a, const void *b, void *c);
	/* An einsum and the kernel after it, its epilogue i->with, as one. *done: they are, else nothing was done and they are carried
	 * out one by one. NULL: never. x: as for einsum. */
	bool (*epilogue)(struct rank *r, const struct instr *i, const struct instr *kernel, const struct contraction *x, bool *done);
	/* Some rows meet some keys; i: the op they belong to. */
	bool (*attention)(struct rank *r, const struct instr *i, const struct attention *x, void *const *at);
	bool (*comm)(struct rank *r, const struct instr *i); /* if S_COMM starts, it is only begun where i->async or i->ahead */
	/* A copy from or to the host is begun. */
	bool (*aside)(struct rank *r, const struct instr *i, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src);
	bool (*wait)(struct rank *r, const struct instr *i); /* for what `comm` or `aside` has begun for this iteration */
	/* A ring: begin, then turns; in each, bytes are pulled from the member before, from what *from is there, a field of its
	 * struct shown. They have come after arrive, or the next turn. */
	bool (*ring_begin)(struct key_ring *g);
	bool (*pull)(struct key_ring *g, void *to, char *const *from, int64_t bytes);
	bool (*arrive)(struct key_ring *g);
	bool (*ring_turn)(struct key_ring *g);
	bool (*ring_end)(struct key_ring *g);
	/* o and lse, of so many elements, from those that all members show, by the weight of their lse. */
	bool (*combine)(struct key_ring *g, const struct attention *x, void *o, float *lse, int64_t no, int64_t nlse);
	void (*copy)(struct rank *r, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src);
	void (*add)(struct rank *r, const struct nest *l, enum dtype dt, void *dst, const void *src); /* dst += src */
	void (*fill)(struct rank *r, const struct nest *l, enum dtype dt, void *dst, double x);
	void *(*scratch)(struct rank *r, const struct op *op, int slot, int64_t bytes); /* 64-byte aligned; NULL: failed */
	bool (*input)(struct rank *r, const struct instr *i, char *to);
	bool (*report)(struct rank *r, const struct instr *i, const char *from);
	bool (*count)(struct rank *r, const struct instr *i, char *to, int32_t x); /* one int */

	/* Messages: as channel_* in internal.h. move: bytes within the rank. */
	struct channel *(*channel_open)(struct runtime *rt, const struct channel_ends *e);
	void (*channel_close)(struct channel *ch);
	void (*channel_await)(struct channel *ch, bool open);
	char *(*channel_room)(struct channel *ch, const struct letter *l);
	void (*channel_send)(struct channel *ch);
	bool (*channel_flush)(struct channel *ch);
	const char *(*channel_take)(struct channel *ch, const struct letter *l);
	void (*channel_done)(struct channel *ch);
	void (*move)(struct rank *r, void *dst, const void *src, int64_t bytes);

	/* Bytes of a rank as the host may see and change them, between steps, from any thread. */
	void *(*peek)(struct rank *r, void *at, int64_t bytes); /* NULL: failed */
	void (*poke)(struct rank *r, void *at, void *seen, int64_t bytes, bool changed); /* the end of a peek */
};

extern const struct backend cpu_backend, cuda_backend;

/* -- exec.c, for backends -- */
int rank_turn(const struct rank *r, const struct op *op); /* parity of its iteration: what is had ahead has two places; 0: it is in no loop */
bool rank_broken(struct rank *r, const struct op *op, const char *why); /* false */
void rank_input(struct rank *r, const struct instr *i, char *to);       /* packs its part of the batch, on the host */
void rank_report(struct rank *r, const struct instr *i, const void *x); /* sets what is reported; x: on the host */

#endif
