/* runtime/internal.h - the parts of the runtime, as they see each other. Read struct runtime last.
 *
 * A planned module is lowered once to a program of instructions (program.c), which all ranks run
 * (exec.c), each with its own coordinates, arena and iteration counters. */
#ifndef PTC_RUNTIME_INTERNAL_H
#define PTC_RUNTIME_INTERNAL_H
#include <pthread.h>
#include <stdatomic.h>

#include "codegen/codegen.h"
#include "ir/epilogue.h"
#include "ir/layout.h"
#include "ir/trace.h"
#include "runtime/runtime.h"

enum { SLOT = MAX_NEST };
/* Of a repeat that is cut into stages: the iteration among those of the chunk at work, among the rows of the
 * stage. Of a repeat with a part that is kept: the row there. They follow a rank's other counters. */
enum { IN_CHUNK = SLOT + MAX_NEST, IN_STAGE, IN_KEPT, NITER };

/* -- team.c: threads that help a rank -- */
struct team;
typedef void team_fn(void *arg, int me, int n); /* me: 0..n-1; 0 is the caller */
struct team *team_open(int n);
void team_run(struct team *t, team_fn *fn, void *arg);
int team_size(const struct team *t); /* NULL: 1 */
void team_close(struct team *t);
void one_thread_each(void);          /* oneDNN, when called from this thread */

/* -- nest.c: strided loops -- */

/* n[i] steps of ds[i] elements in the destination, ss[i] in the source; outermost first. */
struct nest {
	int nd;
	int64_t n[MAX_DIMS + 2], ds[MAX_DIMS + 2], ss[MAX_DIMS + 2];
};
void nest_simplify(struct nest *l); /* drops loops of one step, merges what is contiguous */
bool nest_empty(const struct nest *l);
void nest_copy(const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src);
void nest_add(const struct nest *l, enum dtype dt, void *dst, const void *src); /* dst += src */
void nest_copy_by(struct team *t, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src);
void nest_add_by(struct team *t, const struct nest *l, enum dtype dt, void *dst, const void *src);
void nest_fill(const struct nest *l, enum dtype dt, void *dst, double x);       /* by ds */
double nest_load(enum dtype dt, const void *p, int64_t i); /* element i of p */
void nest_store(enum dtype dt, void *p, int64_t i, double x);
/* dst = the sum (or largest) of k sources of one layout, in order, rounded once. */
void nest_join(const struct nest *l, enum dtype dt, void *dst, int k, const void *const *src, bool max);

static inline float bf16_float(uint16_t x)
{
	union { uint32_t u; float f; } v = { .u = (uint32_t)x << 16 };

	return v.f;
}

static inline uint16_t float_bf16(float x)
{
	union { float f; uint32_t u; } v = { .f = x };

	if ((v.u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(v.u >> 16 | 0x40);
	return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

/* -- aside.c: copies that go on beside a rank -- */

/* A thread that copies, and room for so many copies at once. NULL: no memory, or no thread. */
struct aside;
struct aside *aside_open(int n);
void aside_close(struct aside *a);
/* Copy number i is to be done. Who waits for one does what nobody has begun. */
void aside_put(struct aside *a, int i, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src);
void aside_wait(struct aside *a, int i, double *began, double *ended);
void aside_drain(struct aside *a);

/* -- gemm.c: contractions by oneDNN -- */

/* One thread's primitives and scratch memory. limit: bytes of scratch it may hold. With a team of n
 * threads there are n of them, which share the limit; gemm_of gives thread i's. */
struct gemm;
struct gemm *gemm_open(int64_t limit);
struct gemm *gemm_team(int64_t limit, struct team *team);
struct gemm *gemm_of(struct gemm *g, int i);
struct team *gemm_threads(const struct gemm *g);
void gemm_close(struct gemm *g);
void gemm_version(struct text *t);
const char *gemm_error(const struct gemm *g); /* of the last call that failed */
bool gemm_failed(struct gemm *g, const struct gemm *helper); /* takes its error over; false */
int64_t gemm_bytes(const struct gemm *g);     /* scratch held */
enum { SCRATCH_A, SCRATCH_B, SCRATCH_C, SCRATCH_OUT, SCRATCH_PACK, SCRATCH_CARRY, SCRATCH_PARTS, SCRATCH_ATTENTION, SCRATCH_RING, NSCRATCH };
void *gemm_scratch(struct gemm *g, int slot, int64_t bytes); /* 64-byte aligned; NULL: over the limit */

/* c[..] (+)= sum a[..] b[..] over nd loops; an operand that lacks a loop has has[] false there. */
struct contraction {
	int nd;
	int64_t n[3 * MAX_DIMS];
	int64_t stride[3][3 * MAX_DIMS]; /* of a, b, c, in elements */
	bool has[3][3 * MAX_DIMS];
	enum dtype dt[3];
	bool add;                        /* c is F32 then */
};
bool contract(struct gemm *g, const struct contraction *x, const void *a, const void *b, void *c);
/* Row-major: c[m][n] = beta c + a b, with transposes; leading dims in elements. */
bool gemm_f32(struct gemm *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
	      const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
bool gemm_bf16(struct gemm *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
	       const uint16_t *b, int64_t ldb, bool add, enum dtype cdt, void *c, int64_t ldc);

/* -- attention.c -- */

enum { AT_Q, AT_K, AT_V, AT_O, AT_LSE, AT_DO, AT_DQ, AT_DK, AT_DV, NAT };
enum { AT_BIAS = NAT, AT_MASK, AT_WINDOW, AT_DBIAS, NPLACE }; /* f32, bool, int, f32 */
enum { MAX_LOOPS = MAX_DIMS - 2 }; /* q, that has all rows, has {dim}, and a dim of rows or k has {ctx} */

/* A bias, mask, window or dbias; strides in elements, 0 along what it lacks. */
struct extra {
	bool there;
	int64_t row, col, loop[MAX_LOOPS];
};

/* Element i of a dim on a rank is at position start + i; zigzag 0: that is its index. */
struct order {
	int64_t start, size;
	int zigzag;
};
struct order order_of(const struct module *m, dimid d, int64_t start);
int64_t order_index(const struct order *o, int64_t i);
int64_t order_run(const struct order *o, int64_t i, int64_t end); /* elements from i on whose indices follow each other */

/* Shapes of one attention on a rank. Loops run over what neither is summed nor a row or column of
 * the scores; an operand that lacks a loop has stride 0 there. All strides in elements. */
struct attention {
	enum dtype dt;              /* of q k v o do dq dk dv */
	int64_t rows, cols, d, dv;  /* queries, keys, size of q and k, size of v */
	int64_t row_stride[NAT], d_stride[NAT]; /* of k, v, dk, dv: keys; lse has no d */
	int nloop;
	int64_t n[MAX_LOOPS], stride[NAT][MAX_LOOPS];
	bool keys[MAX_LOOPS];       /* the loop is over a dim of k and v; else they are shared */
	bool causal;
	struct order row, col, loop[MAX_LOOPS];
	/* These are some of the keys: o is joined with what it and lse hold; dq, dk, dv and dbias grow.
	 * All of them are float32 then. Else they are made. */
	bool join;
	double *scores;             /* grows by those that were made, a tile is of rows times keys; NULL: not counted */
	double scale, cap;          /* cap 0: none */
	double p;                   /* dropout; 0: none */
	uint64_t key;
	uint32_t step, iter;
	uint64_t rng_base, rng_row, rng_col, rng_loop[MAX_LOOPS]; /* index of an element's mask; base: at the starts of the orders */
	struct extra extra[NPLACE - NAT];
};
bool attention_forward(struct gemm *g, const struct attention *x, void *const *at);
bool attention_backward(struct gemm *g, const struct attention *x, void *const *at);

/* -- comm_threads.c: ranks as threads -- */

/* What a member says it is about to do; all members must say the same. */
struct call {
	const struct op *op;
	const char *name;
	uint32_t axes;
	int64_t bytes;
	struct span at;
};
struct comm;
struct group;
struct comm *comm_open(int64_t ranks, double timeout_s);
void comm_close(struct comm *c);
struct group *comm_group(struct comm *c, int n, const int64_t *ranks); /* before the threads start */
/* All members meet. in, out: what others may read of it, until the next meeting. false: the run is broken. */
bool comm_meet(struct group *g, int me, const struct call *call, void *const *in, void *const *out);
bool comm_wait(struct group *g, int me);   /* all members meet again */
bool comm_step(struct group *g, int me, const struct call *call); /* the same, in the middle of a long call */
const void *comm_in(const struct group *g, int member, uint32_t k); /* operand k, lent by a member */
const void *comm_out(const struct group *g, int member, uint32_t k);
int comm_size(const struct group *g);
int64_t comm_rank(const struct group *g, int member);
void comm_begin(struct comm *c);           /* a step begins: nobody is done */
/* A rank begins an instruction, which may take so many ms on top of what all may; op NULL: it does nothing. */
void comm_pulse(struct comm *c, int64_t rank, const struct op *op, int64_t patience, int chunk, int64_t mb);
void comm_done(struct comm *c);            /* a rank has ended its step */
/* A device works through what its rank has put in order, and counts in *at, which the rank's host may read, the marks that it
 * comes by. mark[n - 1]: what it does from mark n on. */
struct mark {
	const struct op *op;
	bool waits;         /* for other ranks */
	int more;           /* instructions after that one, without a mark of their own */
	int64_t patience;   /* ms, of all of these */
	int chunk;          /* -1: it is in no action */
	int64_t mb;
};
struct marks {
	VEC(struct mark) v;
};
/* From now on the rank waits for its device, which begins at 0; m stays as it is until comm_watch_end. */
void comm_device(struct comm *c, int64_t rank, const int32_t *at, const struct marks *m);
void comm_fail(struct comm *c, int64_t rank, struct span at, const char *fmt, ...) PRINTF(4, 5);
bool comm_failed(struct comm *c);
const char *comm_error(struct comm *c, struct span *at); /* the first failure, when no thread runs */

/* For a rank that waits by looking again and again. comm_watch: false: the run is broken, perhaps because a rank that
 * does not wait, or its device, has stood at one instruction for too long, or this wait is too long. */
struct watch {
	double start, last; /* s: of the wait; that something moved */
	uint64_t seen;
};
void comm_watch_begin(struct comm *c, int64_t rank, struct watch *w);
bool comm_watch(struct comm *c, int64_t rank, struct watch *w);
void comm_watch_end(struct comm *c, int64_t rank);

/* With lock held: sleeps until ready(x) or the run is broken. Who makes it ready calls comm_wake, with the lock. */
struct nap {
	pthread_cond_t *cond;
	pthread_mutex_t *lock;
	int *asleep;
	bool (*ready)(void *x);
	void (*stuck)(void *x, const char *how);
	void *x;
	int64_t rank;
};
void comm_nap(struct comm *c, const struct nap *n);
void comm_wake(struct comm *c, pthread_cond_t *cond, int *asleep);
bool comm_cond(pthread_cond_t *cond);

/* -- channel.c: messages between two stages -- */

/* What a message is; both ends must say the same. */
struct letter {
	enum phase phase;
	int chunk;        /* that sends it */
	int64_t mb, bytes;
};
struct channel;
/* out NULL: a rank that sends to itself. in: so many buffers of so many bytes. */
struct channel_ends {
	int64_t from, to; /* ranks */
	int buffers;
	int64_t bytes;
	char *out, *in;
};
struct channel *channel_open(struct comm *c, const struct channel_ends *e);
void channel_close(struct channel *ch);
void channel_await(struct channel *ch, bool open); /* the receiver: from now on messages may come, no more */
char *channel_room(struct channel *ch, const struct letter *l); /* to write the next message to; NULL: broken */
void channel_send(struct channel *ch);
bool channel_flush(struct channel *ch); /* the sender's buffer is free; false: broken */
const char *channel_take(struct channel *ch, const struct letter *l); /* the next message; NULL: broken */
void channel_done(struct channel *ch);                                /* its buffer is free */

/* -- program.c: instructions -- */

/* A place in the arena: that of the region + base * its rows + iteration[depth] * stride, in bytes. From SLOT
 * on "iterations" are the parity of the iterations that the loops at a depth have run: which of two places
 * to use. */
struct loc {
	int region;
	int64_t base;
	int n, depth[MAX_NEST];
	int64_t stride[MAX_NEST];
	bool adds; /* a sum over microbatches grows here */
	bool rows; /* in rows of the chunk's own */
};

enum icode { I_KERNEL, I_EINSUM, I_ATTENTION, I_COPY, I_COMM, I_REPEAT, I_INPUT, I_REPORT, I_ITER, I_WAIT, I_HOST };
enum mode { MODE_COPY, MODE_ADD, MODE_FILL }; /* add: copy in the first microbatch; fill: on ranks with a coordinate */

/* A copy between two layouts, by the names of dims. n: the extents of dims d as split by on. */
struct mover {
	enum mode mode;
	enum dtype ddt, sdt;
	int nd;
	dimid d[MAX_DIMS];
	struct axes on[MAX_DIMS];
	int64_t ds[MAX_DIMS], ss[MAX_DIMS];
	double fill;
	uint32_t axes;    /* MODE_FILL */
	int64_t from;     /* not 0: places whose stages hold the value; the first of them keeps it, or all */
	bool from_all;
	int part_axis;    /* shard: the source starts at coordinate * part (elements); -1: none */
	int64_t part;
	bool late;        /* carried: through scratch memory, as its source is overwritten */
	int64_t bytes;    /* of the destination */
};

struct move {
	struct mover m;
	struct loc to, from;
};

/* An einsum: loops d as split by on, and all of a contraction but its sizes. */
struct einsum {
	dimid d[3 * MAX_DIMS];
	struct axes on[3 * MAX_DIMS];
	struct contraction x;
};

/* The kernel after an einsum, its epilogue. vector: steps of the bias, or of the bias gradient, by the einsum's loops. */
struct paired {
	struct epilogue is;
	int64_t vector[3 * MAX_DIMS];
	bool has[3 * MAX_DIMS];
};

/* The same for attention: loops, and the dims of rows, columns and sizes. */
struct attend {
	struct attention x;
	bool backward;
	int slot[NPLACE];                                   /* AT_ number to operand or result; -1 */
	dimid row, col, dim, own, loop[MAX_LOOPS];          /* NODIM: of size 1 */
	struct axes row_on, col_on, own_on, loop_on[MAX_LOOPS];
	bool causal;
	uint32_t ring, apart;                               /* axes that split the keys: attend.c */
	int64_t mask_row;                                   /* step of the mask's index; 0: not in it */
};

struct instr;
struct prog {
	VEC(struct instr) code;
};

struct loop {
	int64_t trips;
	bool reverse;
	int depth;
	dimid dim;
	bool staged;
	dimid kept;         /* its part that has rows, NODIM: all have */
	bool first;         /* over the first iterations of the one around it */
	VEC(struct move) entry, before, each, after; /* where its iterations begin; the loop; every iteration */
	struct prog body;
};

struct instr {
	enum icode code;
	const struct op *op;
	int8_t stream;      /* enum trace_stream; -1: not shown in a trace */
	bool eval;          /* needed for the reports of an evaluation */
	bool ahead;         /* carries out what the next iteration will want */
	int64_t where;      /* of prologue and epilogue: on stages that run one of these places; 0: all */
	struct loc *at;     /* operands, then results */
	void *own;          /* of a kernel: what the backend needs */
	bool async;         /* the backend may only begin it: I_WAIT ends it */
	bool aside;         /* a copy from or to the host that goes on beside the rank */
	int start;          /* of what may, and its I_WAIT: which of rt->starts */
	int no;             /* of a kernel: which; of what sends: its row of rt->senders */
	int group;          /* of a collective */
	int64_t patience;   /* ms after which others may wonder, at the pace of a very slow machine */
	struct move *move;
	struct einsum *einsum;
	struct paired *with; /* of an einsum: the next instruction may be carried out with it; NULL */
	struct attend *attend;
	struct loop *loop;
	struct host_input *input;
};

/* Lowers rt->m. false after an error. */
bool program_build(struct runtime *rt, struct diag *d);
struct extent rank_extent(const struct module *m, dimid d, const struct axes *on, const int *coord);
void strides_of(const struct module *m, int nd, const dimid *d, const struct axes *on, int64_t *stride);

/* -- kernels.c -- */
const char *kernel_compiler(void);
struct kernels {
	VEC(void *) libs;
	struct kernel_sig *sig;
	ptc_kernel **fn;
	const struct op **op;      /* of each */
	int n;
};
bool kernels_load(struct arena *mem, const struct module *m, struct kernels *k, struct diag *d);
void kernels_close(struct kernels *k);

/* -- exec.c -- */
struct host_input {
	struct buffer *buf;
	void *x;           /* the global batch, in the buffer's dtype */
	int64_t count;
};

struct report {
	const char *key;
	double x;
	bool set;
	struct span at;
};

/* What is counted of all that ranks send: a collective, or a value that goes to another stage. */
struct sender {
	const struct op *op;
	const struct value *sent; /* op NULL: this */
};

struct tally { /* since the runtime was opened */
	double count, bytes;
};

struct rank {
	struct runtime *rt;
	int64_t no;
	int coord[MAX_AXES];
	char *arena, *host;
	const struct slot *slot;  /* where regions are, now */
	int64_t iter[NITER];
	struct trips range[MAX_NEST]; /* of the loops that run now */
	int64_t rows_before;      /* of the stage, before the range of a loop that is cut */
	int64_t turns[MAX_NEST];  /* iterations run, of all loops at a depth */
	const struct loop *loop[MAX_NEST]; /* that run now */
	int depth;
	const struct op *op;      /* of the instruction at work */
	int64_t mb;
	int stage, chunk;         /* chunk: at work */
	int64_t places;           /* that the stage runs */
	bool first, first_rows;   /* what is summed over microbatches begins here; rows of the chunk */
	const struct pipe_step *steps; /* its actions */
	VEC(struct channel *) inbox, outbox; /* where it receives, sends */
	struct ptc_env env;
	struct team *team;        /* NULL: it works alone */
	struct aside *aside;      /* of the processor: what it has under way; NULL: it never has */
	double began, ended;      /* of what was waited for last, if it is known */
	struct gemm *gemm;
	struct group **group;     /* by rt->groups; NULL: it is in none */
	int *place;               /* which member of it */
	int most_peers;           /* members of the largest */
	const void **peers;       /* room for a pointer, and a number, for each of them */
	float *weights;
	struct tally *sent;       /* by rt->senders */
	double busy_s;            /* processor seconds of its thread in the last step */
	struct tracer *trace;     /* NULL: its step is not traced */
	struct action act;        /* at work; kind NACT: prologue, with mb 1 epilogue */
	double scores;            /* that attention has met since the runtime was opened */
	void *own;                /* the backend's */
	pthread_t thread;
	bool started;
};

/* Ranks along axes, of stages that run one of the places (0: of all). */
struct group_kind {
	uint32_t axes;
	int64_t where;
};

/* What one action of a stage needs beside its layout. */
struct pipe_step {
	struct action act;
	enum phase phase;
	int section;
	const struct slot *slot;
	int64_t first;            /* places that no action of this kind ran before */
	bool first_rows;
	struct channel *from, *to; /* NULL: nothing comes, goes */
	const struct message *gets, *gives;
};

struct runtime {
	struct arena *mem;
	struct module *m;
	uint64_t seed;
	int64_t nrank;
	int64_t here;              /* of several processes, the rank that is this one; -1: all are here */
	struct rank *rank;
	struct comm *comm;
	const struct backend *backend;
	void *own;                 /* the backend's */
	struct kernels kernels;
	struct prog *prog[NSECTION]; /* by place */
	struct regions *regions;
	struct layouts *layouts;   /* NULL: no pipeline */
	VEC(struct channel *) channels;
	VEC(struct host_input *) inputs;
	VEC(struct report) reports;
	VEC(struct sender) senders;
	VEC(const struct op *) starts; /* all that may go on beside compute */
	int *sends;               /* by region: which of the senders; -1: it does not travel */
	VEC(struct group_kind) groups;
	int threads;              /* a rank */
	double busy_s;            /* processor seconds of all threads in the last step */

	pthread_mutex_t lock;
	pthread_cond_t go, ended;
	uint64_t turn;            /* steps asked for */
	int64_t busy;
	void (*what)(struct rank *); /* is asked for */
	int64_t step;
	bool training, stop;
	bool entered;             /* the ranks have been told to */
	bool (*after_place)(struct rank *, const struct pipe_step *, int place); /* tests look in here; NULL */
};
int group_kind(struct runtime *rt, uint32_t axes, int64_t where); /* its row */
bool plan_lay_out(struct runtime *rt, struct diag *d); /* open.c: regions, and with a pipeline where they lie */

static inline bool rank_here(const struct rank *r)
{
	return r->rt->here < 0 || r->rt->here == r->no;
}

char *rank_at(const struct rank *r, const struct loc *l);
bool holds_any(const struct rank *r, int64_t places);
bool run_prog(struct rank *r, const struct prog *p);
struct host_input *rt_input(struct runtime *r, const char *buffer);
bool run_comm(struct rank *r, const struct instr *i); /* collectives.c */
int64_t rank_iter_all(const struct rank *r);
void count_comm(struct rank *r, const struct instr *i);

/* -- attend.c -- */
bool run_attention(struct rank *r, const struct instr *i); /* false: comm_fail has been told */

/* -- actions.c: the program of a stage -- */
bool actions_open(struct runtime *rt, struct diag *d); /* after the arenas */
bool actions_there(struct runtime *rt, int stage, struct diag *d); /* is all there that the program of a stage touches? */
void actions_close(struct runtime *rt);
void begin_once(struct rank *r);  /* prologue and epilogue */
bool run_actions(struct rank *r); /* all microbatches */

/* -- trace.c: one rank of each stage notes when it begins and ends what it does -- */
struct tracer;
bool tracers_open(struct runtime *rt, struct diag *d); /* room for a step's events */
void tracers_close(struct runtime *rt);
void tracer_begin(struct rank *r);                    /* a step begins: the last one is forgotten */
double tracer_now(const struct rank *r);              /* 0 without a tracer */
void tracer_note(struct rank *r, enum trace_what what, const struct op *op, int other, double start); /* until now */
void tracer_note_span(struct rank *r, enum trace_what what, const struct op *op, int other, double start, double end);
bool tracers_write(struct runtime *rt, const char *path, double began, double ended, struct diag *d);

/* -- data.c -- */
struct data;
struct data *data_open(struct arena *mem, struct runtime *r, const struct run_options *opt, uint64_t seed, struct diag *d);
bool data_step(struct data *x, int64_t step, struct diag *d); /* fills the inputs */
void data_close(struct data *x);

/* -- safetensors.c -- */
struct progress { /* of a run: what the next step depends on besides tensors */
	int64_t steps; /* done */
	uint64_t seed;
};
bool params_save(struct runtime *r, const char *path, struct diag *d);
bool params_load(struct runtime *r, const char *path, struct diag *d);
/* A checkpoint: params, states, and what the optimizer keeps. */
bool run_save(struct runtime *r, const char *path, const struct progress *done, struct diag *d);
bool run_load(struct runtime *r, const char *path, struct diag *d);
bool run_progress(const char *path, struct progress *done, struct diag *d); /* of a checkpoint, before there is a runtime */

#endif
