/* tests/softgpu/nccl.h - private: communicators (nccl_comm.c) and what they do (nccl.c, nccl_move.c). */
#ifndef SOFTGPU_NCCL_H
#define SOFTGPU_NCCL_H
#include "tests/softgpu/api.h"

enum op_kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, SEND, RECV };
struct nccl_op {
	enum op_kind kind;
	const char *send;           /* where the bytes lie; NULL: none */
	char *recv;
	size_t count;               /* as in the call: of each rank for gather and scatter */
	ncclDataType_t type;
	ncclRedOp_t red;
	int root;                   /* or peer */
	int capture;                /* called from a graph, of the so-manieth capture of the communicator; 0: directly */
};
/* What one rank does on one stream between the start and the end of a group. */
struct nccl_work {
	struct work work;
	struct ncclComm *comm;
	int n;
	struct nccl_op *op;
};
/* The n-th collective of a communicator, or the n-th transfer from a rank to another. */
struct meeting {
	int number;
	int from, to;               /* a transfer's; -1 */
	int entered, started, ranks;
	bool bad;                   /* mismatched */
	struct party {
		struct node *node;      /* NULL: has not called */
		const struct nccl_op *op;
		bool started;
		int issue;              /* how many calls its device had had before */
	} *party;                   /* by rank; of a transfer: sender, receiver */
	struct meeting *next;
};
struct clique {
	int refs, n, joined, serial;
	ncclUniqueId id;
	struct ncclComm **member;
	struct meeting *meetings;   /* not over, oldest first */
	int *transfers;             /* entered so far, by from * n + to; sends, then receives */
	ncclResult_t error;
	struct remote *remote;      /* ranks are processes; NULL: threads of this one */
	struct clique *next;
};
struct ncclComm {
	struct clique *clique;
	int rank, dev, collectives;
	int captures, last_capture; /* so many so far; the number of the last */
	int in_graphs;              /* works that graphs of the program hold */
	bool aborted;
	int refs;                   /* the program's, and one for each work */
};

size_t nccl_size(ncclDataType_t t);
const char *nccl_describe(const struct nccl_op *op);
extern struct clique *cliques;
bool nccl_matches(const struct nccl_op *a, const struct nccl_op *b);
int nccl_joined(const struct clique *c);
bool nccl_is_transfer(const struct nccl_op *op);

/* -- nccl_move.c -- */
struct bytes {
	char *at;
	unsigned char *init;        /* which of them are initialised */
};
void bytes_free(struct bytes b);
struct bytes nccl_take(const struct node *n, const char *from, size_t len);    /* read by n */
void nccl_give(const struct node *n, char *to, size_t len, struct bytes from); /* written by n */
/* Bytes that a rank gives to a collective or a transfer; that it gets, beginning at *at of what the collective makes. */
size_t nccl_sent(const struct nccl_op *op, int ranks, int rank);
size_t nccl_part(const struct nccl_op *op, int ranks, int rank, size_t *at);
/* What a collective makes of all that is sent. */
struct bytes nccl_combine(const struct nccl_op *op, int ranks, struct bytes (*sent)(void *, int rank, size_t len), void *x);
/* Moves the data of a meeting whose parties all have started. */
void nccl_move(struct meeting *m);

/* -- nccl_remote.c: ranks of other processes -- */
struct remote *remote_open(const char *name, int n, int rank, int dev);        /* NULL: nccl_fail() has been told */
void remote_close(struct remote *r);
int remote_joined(const struct remote *r);
void remote_enter(struct node *n);                          /* its operations get their numbers */
bool remote_run(struct node *n);                            /* it starts; true: it is done */
void remote_explain(struct node *n, char *buf, size_t size);

/* -- nccl.c, nccl_comm.c -- */
struct nccl_work *nccl_work_of(const struct node *n);       /* NULL: other work */
void nccl_enter(struct node *n);
bool nccl_run(struct node *n);
void nccl_explain(struct node *n, char *buf, size_t size);
void nccl_abort(struct ncclComm *c);                        /* its nodes end, without having moved anything */
void nccl_forget(struct clique *c);                         /* meetings that will never be */
void comm_unref(struct ncclComm *c);
bool nccl_busy(const struct ncclComm *c);                   /* some are pending */
ncclResult_t nccl_init_wait(struct ncclComm *c);
struct group {
	struct entry {
		struct ncclComm *comm;
		CUstream stream;
		struct nccl_op op;
	} *entry;
	int n;
	struct ncclComm **init;     /* that wait for their others */
	int ninit;
	ncclResult_t error;
};
ncclResult_t nccl_fail(ncclResult_t r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));     /* for ncclGetLastError */

#endif
