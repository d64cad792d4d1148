/* runtime/cuda/cuda.h - the parts of the CUDA backend, as they see each other. Read struct gpu last.
 *
 * A rank's thread puts work in order on streams of its device and waits only at the end of a step: `compute` has kernels,
 * matrix products and copies, `comm` all collectives in the order of the plan, `in` and `out` copies from and to the host that the
 * plan starts early, and each channel of messages a stream of its own at both ends. Events order them. From the second step on, what a step puts in order is captured in a graph
 * and replayed, so nothing in it may depend on the step: what does is read from struct ptc_step in device memory. */
#ifndef PTC_RUNTIME_CUDA_H
#define PTC_RUNTIME_CUDA_H
#include "codegen/cuda.h"
#include "runtime/backend.h"
#include "runtime/cuda/api.h"

/* -- libs.c: the libraries, loaded once a process -- */
void lib_names(struct text *t);

#define API_FIELD(name, ret, args) ret(*name) args;
struct cuda_libs {
	CU_FUNCTIONS(API_FIELD)
	NVRTC_FUNCTIONS(API_FIELD)
	CUBLASLT_FUNCTIONS(API_FIELD)
	NCCL_FUNCTIONS(API_FIELD)
	/* The software GPU's: which bytes the next launch may touch. NULL on a real one. */
	void (*softgpuDeclare)(int n, const CUdeviceptr *base, const size_t *bytes, const unsigned char *writable);
	bool nccl;        /* loaded */
	int devices;
	char nvrtc_id[96]; /* version and file, for the key of the cache */
};
extern struct cuda_libs lib;
/* nccl: needed too. Says all that is missing, and what to install. */
bool libs_load(bool nccl, struct diag *d);

/* -- module.c: kernels -- */

struct image { /* a cubin, or PTX */
	char *at;
	size_t bytes;
};
/* From the cache, or compiled for the device's architecture (major * 10 + minor). */
bool image_make(struct arena *mem, const char *source, int arch, struct image *image, struct diag *d);
void image_forget(struct arena *mem, const char *source, int arch, struct diag *d); /* it does not load: once more */

/* -- a rank -- */

enum { MAX_SLOTS = NSCRATCH + 6, SLOT_COMM = NSCRATCH, SLOT_GEMM, SLOT_KERNEL, SLOT_STAGE, SLOT_IN, SLOT_OUT };

/* What goes to the device each step: the part of a batch that one instruction reads in one microbatch. */
struct upload {
	const struct instr *i;
	int coord[MAX_AXES];
	int64_t mb;
	char *at; /* pinned */
	int64_t bytes;
};

struct replay { /* of a step: training, or not */
	CUgraph graph;
	CUgraphExec exec;
	int runs;            /* without it */
	uint64_t places;     /* gpu.places when it was captured */
	struct tally *sent;    /* by rt->senders: by a step */
	struct marks marks;
	VEC(const struct instr *) reports;
};

struct named { /* a function of the module */
	const char *name;
	CUfunction fn;
	uint32_t shared; /* bytes that it may have */
};

struct product;         /* gemm.c */
struct kept;

struct gpu {
	struct rank *r;
	struct arena *mem;
	CUdevice dev;
	CUcontext ctx;
	CUmodule module;
	CUfunction *fn;       /* by launch, in the order of kernels */
	VEC(struct named) named; /* moves.c */
	CUstream stream[NSTREAM]; /* by enum stream */
	CUstream compute, comm;   /* two of them */
	CUevent fork, joined;     /* compute to another; another to compute */
	struct pair {
		CUevent e[2];
	} *done;              /* by rt->starts, and parity of the iteration */
	ncclComm_t *group;    /* by rt->groups; NULL: it is in none */
	VEC(struct channel *) channels; /* that have an end here */
	struct {
		CUdeviceptr p;
		int64_t n, want; /* bytes: there; asked for so far */
	} slot[MAX_SLOTS];
	uint64_t places;      /* grows when something may move that a graph knows */
	bool hung;            /* it has not ended a step that is given up: no call that may wait for it */
	bool dry;             /* a step is read to see what it needs; nothing is put in order */
	CUdeviceptr step;     /* struct ptc_step */
	struct ptc_step *step_host; /* pinned */
	char *report;         /* pinned, 8 bytes each */
	int32_t *mark;        /* pinned: the mark that compute has come by */
	int pace, passed;     /* of the instructions of a step each pace-th gets a mark; so many since the last */
	bool *mine;           /* reports that this rank has made in the step */
	VEC(struct upload) uploads;
	struct replay replay[2];
	struct replay *now;   /* the step at hand */
	bool capturing;
	cublasLtHandle_t lt;
	struct product **products; /* gemm.c: a table by hash */
	int nproducts;
	const struct kept *kept; /* gemm.c: of runs before */
	int kept_n;
	bool kept_read, found;   /* found: there is more to keep */
};

static inline struct gpu *gpu_of(const struct rank *r)
{
	return r->own;
}

/* What all ranks share. */
struct cuda {
	struct cuda_sig *sig;
	int nsig, *first;     /* of each kernel: its first launch */
	int nlaunch;
	const char *source;
	struct image image;
	int arch;             /* that the image is for */
	struct meet *meet;
	double wait;          /* s: that ranks wait for each other at most, to come */
	bool well;            /* of several processes: this one's rank has ended without a failure */
	int local;            /* the device of this process's rank, where it has one rank of several */
	int graphs, tune;     /* PTC_CUDA_GRAPHS, PTC_CUDA_TUNE */
	int ways;             /* tune.c: that are tried for a product; 1: the library's best is taken. 0: there is no lock yet */
	pthread_mutex_t tuning;
	struct choice_made *chosen;
};
bool tune_open(struct cuda *c, struct diag *d);
void tune_close(struct cuda *c);

/* false: said, with the op at hand. */
bool cu_ok(struct gpu *g, CUresult e, const char *what);
bool lt_ok(struct gpu *g, cublasStatus_t e, const char *what);
bool nccl_ok(struct gpu *g, ncclComm_t c, ncclResult_t e, const char *what);
#define CU(g, f, ...) cu_ok(g, lib.f(__VA_ARGS__), #f)
#define LT(g, f, ...) lt_ok(g, lib.f(__VA_ARGS__), #f)

static inline CUdeviceptr dev(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* Room in device memory for what stream order makes safe: a slot is used by one stream. NULL: said. */
char *gpu_room(struct gpu *g, int slot, int64_t bytes);
bool gpu_rooms(struct gpu *g); /* what a dry step has asked for is made */
bool gpu_enter(struct gpu *g); /* its context becomes the thread's */

/* -- launch.c, moves.c -- */
struct touched {
	const void *at;
	int64_t bytes;
	bool writes;
};
void gpu_declare(const struct touched *t, size_t n); /* what the next launch may touch, for the software GPU */
CUfunction gpu_function(struct gpu *g, const char *name, uint32_t shared);
/* o and lse of attention, from n of each that lie one after the other, on compute. */
bool gpu_combine(struct gpu *g, const struct attention *x, int64_t n, const void *all_o, int64_t no, const void *all_lse, int64_t nlse,
		 void *o, float *lse);
bool cuda_prepare(struct runtime *rt, struct instr *i, struct diag *d);
bool cuda_kernel(struct rank *r, const struct instr *i);
bool cuda_kernels(struct rank *r, const struct instr *i, uint32_t n, uint32_t *done);
/* Nests on a stream. */
bool gpu_copy(struct gpu *g, CUstream s, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src);
bool gpu_add(struct gpu *g, CUstream s, const struct nest *l, enum dtype dt, void *dst, const void *src);
bool gpu_fill(struct gpu *g, CUstream s, const struct nest *l, enum dtype dt, void *dst, double x);
bool on_host(const struct gpu *g, const void *p); /* what the plan keeps there, pinned */
bool gpu_bytes(struct gpu *g, CUstream s, void *dst, const void *src, int64_t n); /* either may be on the host */

/* -- gemm.c -- */
bool cuda_einsum(struct rank *r, const struct instr *i, const struct contraction *x, const void *a, const void *b, void *c);
void products_close(struct gpu *g);

/* -- epilogue.c -- */
bool cuda_epilogue(struct rank *r, const struct instr *i, const struct instr *kernel, const struct contraction *x, bool *done);

/* -- attend.c -- */
bool cuda_attention(struct rank *r, const struct instr *i, const struct attention *x, void *const *at);
bool cuda_ring_begin(struct key_ring *k);
bool cuda_pull(struct key_ring *k, void *to, char *const *from, int64_t bytes);
bool cuda_arrive(struct key_ring *k);
bool cuda_ring_end(struct key_ring *k);
bool cuda_combine(struct key_ring *k, const struct attention *x, void *o, float *lse, int64_t no, int64_t nlse);

/* -- comm.c, channel.c -- */
/* All n ranks call it; false: said. */
bool communicator(struct gpu *g, const char *name, int n, const int64_t *rank, int me, ncclComm_t *to);
void comms_abort(struct gpu *g); /* what others of them wait for will not come: they need not wait */
bool cuda_comm(struct rank *r, const struct instr *i);
bool cuda_wait(struct rank *r, const struct instr *i);
CUevent done_event(struct gpu *g, const struct instr *i); /* for this iteration */
bool cuda_aside(struct rank *r, const struct instr *i, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src);
bool groups_open(struct gpu *g);
void groups_close(struct gpu *g);
bool channels_open(struct gpu *g);
uint32_t channels_take(struct gpu *g, ncclComm_t *to); /* their communicators, which are theirs no longer */
void channels_close(struct gpu *g);
struct channel *cuda_channel_open(struct runtime *rt, const struct channel_ends *e);
void cuda_channel_close(struct channel *ch);
void cuda_channel_await(struct channel *ch, bool open);
char *cuda_channel_room(struct channel *ch, const struct letter *l);
void cuda_channel_send(struct channel *ch);
bool cuda_channel_flush(struct channel *ch);
const char *cuda_channel_take(struct channel *ch, const struct letter *l);
void cuda_channel_done(struct channel *ch);

/* -- marks.c: how far compute is -- */
enum { MOST_MARKS = 64 };  /* of a step, but for those where it waits */
bool cuda_begins(struct rank *r, const struct instr *i);
/* compute waits for what other ranks must do too, in the middle of an op, which goes on then. NULL: between ops. */
bool gpu_waits(struct gpu *g, CUevent e, const struct op *op);
void marks_begin(struct gpu *g); /* a step is read */
bool marks_end(struct gpu *g);   /* nothing but waiting comes */

/* -- step.c: a step, and its graph -- */
void cuda_step(struct rank *r, bool (*run)(struct rank *));
bool cuda_input(struct rank *r, const struct instr *i, char *to);
bool cuda_report(struct rank *r, const struct instr *i, const char *from);
void replay_close(struct gpu *g); /* before the communicators whose calls it replays: NCCL would wait for that */
bool gpu_others_ok(struct gpu *g); /* false, said: another process has failed or is lost */

#endif
