/* tests/softgpu/softgpu.h - private to the software GPU: stand-ins for the driver, NVRTC, cuBLASLt and NCCL on the CPU.
 *
 * Everything the API is asked to do on a device is a node of one graph: a stream is a chain of nodes, an event a node that is
 * remembered, a wait an edge, a launch of a captured graph a copy of its nodes, a collective nodes of all ranks that end
 * together. Nothing runs until every host thread waits; then one thread runs one ready node after another (host.c), in an
 * order of choice, until some wait is over. All state is under one lock, held from an API call's start to its end. */
#ifndef SOFTGPU_H
#define SOFTGPU_H
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include "runtime/cuda/api.h"

enum { MAX_DEVICES = 64, WARP = 32, MAX_THREADS = 1024, SHARED_STATIC_LIMIT = 48 << 10, SHARED_LIMIT = 227 << 10 };

/* -- report.c: settings and faults -- */
enum order { FIFO, LIFO, RANDOM };
struct config {
	int devices;                /* $SOFTGPU_DEVICES, 1 */
	bool check;                 /* $SOFTGPU_CHECK: every access of kernels and libraries is checked */
	enum order order;           /* $SOFTGPU_ORDER: fifo, lifo, random; of ready nodes and of a block's threads */
	uint64_t seed;              /* $SOFTGPU_SEED, of the random order */
	double timeout;             /* $SOFTGPU_TIMEOUT, 5 s: of waiting for host threads that are busy elsewhere */
	size_t memory;              /* $SOFTGPU_MEMORY, 4 GiB: of a device */
	int arch;                   /* $SOFTGPU_ARCH, 90 */
	bool plain;                 /* $SOFTGPU_PLAIN: cuBLASLt has products without epilogues alone */
	int nways;                  /* $SOFTGPU_WAYS: ways of a product, and the ms that each takes by the clock of events; 0: one, real time */
	double way_ms[8];
	bool verbose;               /* $SOFTGPU_VERBOSE: prints each node that runs */
	const char *processes;      /* $SOFTGPU_PROCESSES: a folder in which ranks that are processes meet; NULL: ranks are threads */
	const char *lose;           /* $SOFTGPU_LOSE, id, init or joined, :kill or :hang: where NCCL loses this process; NULL */
	struct stall {              /* $SOFTGPU_STALL, gpu:launch:seconds: that launch of that GPU, from 1, does not end for so long */
		int dev, launch;        /* launch 0: none */
		double seconds;
	} stall;
	int drop_wait;              /* $SOFTGPU_DROP_WAIT: this cuStreamWaitEvent of gpu0 is left out, from 1; 0: none */
};
extern struct config cfg;
void config_read(void);                                     /* once; stops the program on a bad value */
/* A fault of the program under test. Repeats of a text are counted, not printed; when the program ends well in spite of a
 * report, its exit status is 66. */
void report(const char *kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same in two steps, for what is costly to say: counts it; was one of this kind and key printed? */
bool report_again(const char *kind, const char *key);
void report_print(const char *kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define REPORT_FIRST(key, kind, ...) (report_again(kind, key) ? (void)0 : report_print(kind, __VA_ARGS__))
void *must(void *p);                                        /* stops the program when memory is out */
char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));      /* kept for ever, equal texts once */
uint64_t random_next(uint64_t *state);
double now(void);                                           /* s */

/* -- clock.c: what happened before what -- */
struct clock {
	int n;
	uint32_t *tick;             /* by chain */
};
int new_chain(void);
void clock_join(struct clock *a, const struct clock *b);
void clock_set(struct clock *a, int chain, uint32_t tick);
static inline uint32_t clock_at(const struct clock *a, int chain)
{
	return chain < a->n ? a->tick[chain] : 0;
}
/* Epochs number the barriers of all blocks of all launches, and the operations of libraries; each belongs to one node. */
struct op_record {
	uint32_t epoch;             /* the first */
	int chain;
	uint32_t tick;
	const char *what;
};
extern uint32_t epoch;              /* of what runs now */
struct node;
void op_begin(const struct node *n);                        /* a new epoch, n's */
const struct op_record *op_of(uint32_t epoch);              /* NULL: none */
uint32_t op_end(const struct op_record *o);                 /* first epoch after it */

/* -- node.c -- */
/* What a node does. Shared by the launches of a captured graph. */
struct work {
	int refs;
	bool (*run)(struct node *);     /* true: done; false: node_done() will be called. NULL: nothing to do. */
	void (*enter)(struct node *);   /* when the node is made, in the order of the host's calls; may be NULL */
	void (*explain)(struct node *, char *buf, size_t size);    /* what a started node waits for; may be NULL */
	void (*drop)(struct work *);    /* frees what it owns; may be NULL */
};
struct node {
	int refs;
	int dev;
	const char *what;           /* for reports */
	struct work *work;
	void *state;                /* of its work, for this run */
	int chain;
	uint32_t tick;
	struct clock clock;         /* all that happened before it */
	int waits;                  /* for so many nodes */
	struct node **next;         /* that wait for it */
	int nnext, cap;
	bool started, done, killed;
	double time;                /* when it was done */
	struct node *before, *after;    /* in the list of those not done */
};
extern struct node *pending;        /* the oldest */
struct node *node_new(int dev, const char *what, struct work *w, int chain);   /* one reference; waits for the host's past */
void node_after(struct node *n, struct node *dep);          /* before node_enter */
void node_enter(struct node *n);
void node_run(struct node *n);
void node_done(struct node *n);
struct node *node_ref(struct node *n);
void node_unref(struct node *n);
struct node *node_pick(void);                               /* ready and not started, by cfg.order; NULL */
void node_took(const struct node *n, double ms);            /* by the clock of events, where it is not the real one */
struct work *work_make(size_t size, bool (*run)(struct node *));
void work_unref(struct work *w);
void nodes_kill(int dev);                                   /* all of a device are done, without having run */

/* -- host.c: threads of the program, waiting -- */
struct host {
	long tid;
	_Atomic bool entering;      /* waits for the lock */
	bool blocked, polling;
	bool settled;               /* it has slept for a while, when it had run so often: */
	unsigned long runs;
	bool woken;                 /* its wait is over, it has not returned yet */
	bool patient;               /* waits for threads that may not have called yet */
	bool gave_up;               /* a deadlock was reported */
	const char *why;            /* it waits */
	bool (*over)(void *);       /* its wait is */
	void *arg;
	struct clock clock;         /* of what it waited for */
	int dev;                    /* current context's; -1 */
	CUstreamCaptureMode mode;
	struct declared *declared;  /* for its next launch */
	struct group *group;        /* NCCL's, open */
	int group_depth;
	struct host *next;
};
extern struct host *self_host;      /* who called */
bool enter(void);                   /* takes the lock; false: a call from within a callback of a stream */
bool enter_poll(void);              /* the same, of a call that adds no work, whatever it finds */
void leave(void);
/* Runs nodes until over(arg). patient: threads that have not called yet may be needed. false: it will never be so, which
 * was reported; the devices of what hangs have failed. */
bool host_wait(bool (*over)(void *), void *arg, const char *why, bool patient);
/* What goes on by itself, when no thread calls and no node is ready: other processes (nccl_remote.c), a launch that stalls. */
bool remote_poll(void);             /* has anything come? */
bool remote_waits(void);            /* may anything come? */
bool remote_moves(void);            /* have other processes done anything since this was asked? */
void remote_beat(void);             /* this process has done something */
bool stall_poll(void);
bool stall_waits(void);
/* The same, as far as it goes without another thread's doing; over(arg) in the end. */
bool host_poll(bool (*over)(void *), void *arg);
void host_callback(CUhostFn fn, void *data);

/* -- memory.c -- */
struct allocation {
	char *at;                   /* the bytes */
	size_t bytes;
};
extern char *mem_handed, *mem_bytes;    /* addresses that programs see, and where the bytes lie */
extern size_t mem_span;                 /* of all devices */
bool mem_open(void);
int mem_device(const void *bytes);      /* whose it is; -1: not a device's */
size_t mem_watched(void);               /* bytes from mem_bytes on that checked mode watches: those of devices, then pinned ones */
const struct allocation *mem_find(const void *bytes);        /* NULL: no live allocation holds it */
const char *mem_near(const void *bytes);                     /* for a report: what lies next to it */
/* The bytes of a range that a library call was given for device dev. NULL after a report: not all of it is one live
 * allocation of that device. */
void *mem_range(int dev, const void *handed, size_t bytes, const char *what, const char *which);
static inline bool is_handed(uint64_t p)
{
	return p - (uint64_t)mem_handed < mem_span;
}
static inline char *bytes_of(uint64_t p)
{
	return mem_bytes + (p - (uint64_t)mem_handed);
}
CUresult mem_alloc(int dev, CUdeviceptr *p, size_t bytes);
CUresult mem_free(int dev, CUdeviceptr p);
size_t mem_free_bytes(int dev);
bool mem_pinned(const void *p, size_t bytes);
CUresult mem_pin(void **p, size_t bytes, bool ours);         /* ours: allocates */
CUresult mem_unpin(void *p, bool ours);

/* -- device.c -- */
struct device {
	bool open;
	CUresult error;             /* of the context: all calls give it from then on */
	int streams;                /* ever made */
	struct CUstream_st *null;
	struct CUstream_st *all;
};
extern struct device devices[MAX_DEVICES];
void device_fail(int dev, CUresult error);
/* In an API function: takes the lock, checks the context. */
CUresult api_enter(void);
CUresult api_enter_poll(void);

/* -- stream.c, graph.c -- */
struct front {                      /* nodes of a captured graph that what comes next comes after */
	int n;
	int *at;
};
struct CUstream_st {
	int dev, id, chain;
	bool blocking;              /* with the null stream */
	struct node *last;
	struct capture *capture;
	int branch;                 /* of the capture */
	struct front front;
	struct CUstream_st *next, *joined;
};
struct CUstream_st *stream_of(CUstream s);                  /* NULL: not a stream of this context */
/* Adds work to a stream, or to the graph that it is captured into. Takes w. */
CUresult stream_add(CUstream s, const char *what, struct work *w);
CUresult capture_add(struct CUstream_st *s, const char *what, struct work *w);
CUresult capture_record(CUevent e, struct CUstream_st *s);
CUresult capture_wait(struct CUstream_st *s, CUevent e);
void capture_forget(CUevent e);                             /* e is recorded in none any more */
bool capturing(const struct CUstream_st *s);
int capture_no(const struct CUstream_st *s);                /* 0: none */
bool nccl_under_way(int dev);                               /* a collective that is not done */
void nccl_in_graph(struct work *w, int by);                 /* so many graphs more have it, if it is NCCL's */
CUresult capture_forbids(const char *what);                 /* a call that no thread may make while it captures */
CUresult capture_broken(struct CUstream_st *s, CUresult error);
struct node *stream_node(struct CUstream_st *s, const char *what, struct work *w);  /* after its last, not yet entered */
void stream_end(struct CUstream_st *s, struct node *n);     /* n is its last; entered */
struct CUevent_st {
	int dev;
	unsigned flags;
	struct node *node;          /* recorded; NULL: nothing */
	struct capture *capture;    /* recorded in it */
	struct front front;
};

/* -- module.c, block.c -- */
struct softgpu_kernel {
	const char *name;
	void (*call)(void **args);
	int nargs;
	const unsigned *sizes;
};
struct range {
	char *from, *to;
	bool writable;
};
struct declared {
	int n;
	struct range *range;
};
struct launch {
	struct work work;
	const struct softgpu_kernel *kernel;
	unsigned grid[3], block[3], shared;
	char *args;                 /* values, one after another, each aligned to 16 */
	void **arg;
	struct declared *declared;  /* NULL: any live allocation of the device */
};
/* Runs all blocks. false: it was stopped (out of bounds, barrier fault): the context is lost. */
bool run_blocks(const struct launch *l, struct node *n, CUresult *error);

/* What runs now on the device; written by block.c, read by check.c. */
struct running {
	struct node *node;          /* NULL: no kernel */
	const struct launch *launch;
	uint32_t first_epoch;       /* of the launch */
	uint32_t block_epoch;       /* first of the block */
	unsigned thread;            /* number in its block */
	unsigned warp_sync;         /* of its warp, counted from the block's start */
	unsigned shared;            /* bytes */
	const void *at;             /* the kernel's code that called here last */
};
extern struct running running;
extern char *shared_memory;         /* of the block that runs */
_Noreturn void stop_kernel(CUresult error);                 /* from one of its threads */
const char *where(void);            /* "kernel k at file:line, block ..., thread ..." */
const char *line_of(const void *code);      /* " at file:line" of a kernel's source; "" */

/* -- check.c -- */
void check_open(void);
/* A library or copy reads or writes memory of a device, by the node that runs. bytes: where they lie. */
void check_range(const struct node *n, const void *bytes, size_t len, bool write);
void check_take(const struct node *n, const void *bytes, size_t len);      /* reads; that it is not initialised is no fault */
/* Which bytes are initialised, one byte each. */
void check_init_get(const void *bytes, size_t len, unsigned char *init);
void check_init_put(const void *bytes, size_t len, const unsigned char *init);
void check_forget(const void *bytes, size_t len);           /* whole pages: nothing is known about them (fresh) */
void check_access(const void *p, size_t len, bool write);   /* by the thread that runs */
void check_atomic(const void *p, size_t len);
void check_async(const void *shared, size_t len, bool landed);
extern char *stacks_from, *stacks_to;                       /* of a block's threads: theirs alone */

#endif
