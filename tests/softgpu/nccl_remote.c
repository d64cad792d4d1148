/* nccl_remote.c - NCCL: ranks that are processes of one machine.
 *
 * A communicator is a file of $SOFTGPU_PROCESSES that its id names. Its first pages are mapped by all: a seat for each rank, a
 * line for each pair of them. Behind these is room for what each seat and each line gives, read and written as a file, which
 * has holes where nothing was given. The k-th collective of a seat is given when all have taken all before it, and
 * taken when all have given theirs; a transfer likewise by the line from its sender to its receiver. So nothing is lost or
 * overtaken, and no process waits in a call for another: a node that has started is looked at until all of it is done. */
#include "tests/softgpu/nccl.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
struct said {
	struct nccl_op op;          /* its addresses mean nothing to others */
};
struct seat {
	_Atomic int pid;            /* 0: has not come */
	_Atomic bool away;
	_Atomic unsigned beats;
	_Atomic uint64_t given, taken;      /* collectives */
	struct said said;
	int dev;
};
struct line {
	_Atomic uint64_t given, taken;
	struct said said;
};
struct table {
	_Atomic int n, joined, left;
	struct seat seat[];
};
struct remote {
	struct table *t;
	struct line *line;          /* by from * n + to */
	size_t bytes;               /* of what is mapped */
	int fd, n, rank;
	unsigned seen;              /* beats of others */
	char *path;
	struct remote *next;
};
static struct remote *remotes;

/* ---- coming and going ---- */

static bool fail(struct remote *r, const char *what)
{
	nccl_fail(ncclSystemError, "%s: %s: %s", r->path, what, strerror(errno));
	return false;
}

static bool open_table(struct remote *r)
{
	size_t seats = sizeof(struct table) + (size_t)r->n * sizeof(struct seat);
	r->bytes = (seats + (size_t)(r->n * r->n) * sizeof(struct line) + PAGE - 1) / PAGE * PAGE;
	r->fd = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	/* Room is never made less, whoever comes first. */
	if (r->fd < 0 || (lseek(r->fd, 0, SEEK_END) < (off_t)r->bytes && ftruncate(r->fd, (off_t)r->bytes)))
		return fail(r, "cannot be made");
	void *p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (p == MAP_FAILED)
		return fail(r, "cannot be mapped");
	r->t = p;
	r->line = (struct line *)(void *)((char *)p + seats);
	return true;
}

/* Takes a seat. */
static bool sit_down(struct remote *r, int dev)
{
	int none = 0;
	if (!atomic_compare_exchange_strong(&r->t->n, &none, r->n) && none != r->n) {
		nccl_fail(ncclInvalidUsage, "ranks disagree on their number");
		return false;
	}
	none = 0;
	r->t->seat[r->rank].dev = dev;
	if (!atomic_compare_exchange_strong(&r->t->seat[r->rank].pid, &none, (int)getpid())) {
		nccl_fail(ncclInvalidUsage, "rank %d came twice", r->rank);
		return false;
	}
	for (int i = 0; i < r->n; i++)
		if (i != r->rank && atomic_load(&r->t->seat[i].pid) && r->t->seat[i].dev == dev) {
			nccl_fail(ncclInvalidUsage, "ranks %d and %d are on one device, gpu%d", i, r->rank, dev);
			return false;
		}
	atomic_fetch_add(&r->t->joined, 1);
	return true;
}

static void let_go(struct remote *r)
{
	if (r->t)
		munmap(r->t, r->bytes);
	if (r->fd >= 0)
		close(r->fd);
	free(r->path);
	free(r);
}

struct remote *remote_open(const char *name, int n, int rank, int dev)
{
	struct remote *r = must(calloc(1, sizeof *r));
	*r = (struct remote){.n = n, .rank = rank, .fd = -1, .path = must(strdup(text("%s/%s", cfg.processes, name)))};
	if (!open_table(r) || !sit_down(r, dev)) {
		let_go(r);
		return NULL;
	}
	r->next = remotes;
	remotes = r;
	return r;
}

/* The last takes the file away. */
void remote_close(struct remote *r)
{
	if (!r)
		return;
	for (struct remote **at = &remotes; *at; at = &(*at)->next)
		if (*at == r) {
			*at = r->next;
			break;
		}
	atomic_store(&r->t->seat[r->rank].away, true);
	if (atomic_fetch_add(&r->t->left, 1) + 1 == r->n)
		unlink(r->path);
	let_go(r);
}

int remote_joined(const struct remote *r)
{
	return atomic_load(&r->t->joined);
}

void remote_beat(void)
{
	for (struct remote *r = remotes; r; r = r->next)
		atomic_fetch_add_explicit(&r->t->seat[r->rank].beats, 1, memory_order_relaxed);
}

bool remote_moves(void)
{
	bool some = false;
	for (struct remote *r = remotes; r; r = r->next) {
		unsigned all = (unsigned)remote_joined(r);
		for (int i = 0; i < r->n; i++)
			all += i == r->rank ? 0 : atomic_load_explicit(&r->t->seat[i].beats, memory_order_relaxed);
		some |= all != r->seen;
		r->seen = all;
	}
	return some;
}

/* ---- what is given ---- */

/* Room of a seat, or, after those, of a line: bytes, then which are initialised. */
static off_t room(const struct remote *r, int slot)
{
	return (off_t)(r->bytes + (size_t)slot * 2 * ((cfg.memory + PAGE - 1) / PAGE * PAGE));
}

static void put_all(const struct remote *r, off_t at, const void *x, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = pwrite(r->fd, (const char *)x + done, n - done, at + (off_t)done);
		if (k <= 0) {
			fprintf(stderr, "softgpu: %s: cannot be written: %s\n", r->path, strerror(errno));
			abort();
		}
		done += (size_t)k;
	}
}

static void give(const struct remote *r, int slot, const struct node *n, const char *from, size_t len)
{
	struct bytes b = nccl_take(n, from, len);
	put_all(r, room(r, slot), b.at, len);
	if (cfg.check)
		put_all(r, room(r, slot) + (off_t)len, b.init, len);
	bytes_free(b);
}

static void get_all(const struct remote *r, off_t at, void *x, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = pread(r->fd, (char *)x + done, n - done, at + (off_t)done);
		if (k <= 0) {
			fprintf(stderr, "softgpu: %s: cannot be read: %s\n", r->path, k ? strerror(errno) : "it is cut short");
			abort();
		}
		done += (size_t)k;
	}
}

static struct bytes take(const struct remote *r, int slot, size_t len)
{
	struct bytes b = {must(malloc(len + 1)), must(malloc(len + 1))};
	memset(b.init, 1, len);
	get_all(r, room(r, slot), b.at, len);
	if (cfg.check)
		get_all(r, room(r, slot) + (off_t)len, b.init, len);
	return b;
}

static struct bytes sent_there(void *x, int rank, size_t len)
{
	return take(x, rank, len);
}

/* ---- a node's operations ---- */

struct left {                       /* state of a node */
	int n;                      /* operations not done */
	struct part {
		const struct nccl_op *op;
		uint64_t number;
		bool given, done;
	} at[];
};

static int pair_of(const struct remote *r, const struct nccl_op *op)
{
	return op->kind == SEND ? r->rank * r->n + op->root : op->root * r->n + r->rank;
}

void remote_enter(struct node *n)
{
	const struct nccl_work *w = nccl_work_of(n);
	struct clique *c = w->comm->clique;
	struct left *s = n->state = must(calloc(1, sizeof *s + (size_t)w->n * sizeof *s->at));
	s->n = w->n;
	for (int i = 0; i < w->n; i++) {
		const struct nccl_op *op = &w->op[i];
		int *count = !nccl_is_transfer(op) ? &w->comm->collectives :
			&c->transfers[(op->kind == SEND ? 0 : c->n * c->n) + pair_of(c->remote, op)];
		s->at[i] = (struct part){.op = op, .number = (uint64_t)(*count)++};
	}
}

static bool mismatch(struct ncclComm *comm, const struct part *p, int other, const struct nccl_op *theirs)
{
	if (nccl_matches(p->op, theirs))
		return false;
	report("mismatched collective", "call %llu of communicator %d: rank %d calls %s, rank %d calls %s", (unsigned long long)p->number,
	       comm->clique->serial, other, nccl_describe(theirs), comm->rank, nccl_describe(p->op));
	comm->clique->error = ncclInvalidUsage;
	return true;
}

static bool all_took(const struct remote *r, uint64_t number)
{
	for (int i = 0; i < r->n; i++)
		if (atomic_load(&r->t->seat[i].taken) < number)
			return false;
	return true;
}

static bool all_gave(const struct remote *r, uint64_t number)
{
	for (int i = 0; i < r->n; i++)
		if (atomic_load(&r->t->seat[i].given) <= number)
			return false;
	return true;
}

/* One more step of it, if it can be made. */
static bool step_collective(struct ncclComm *comm, struct node *n, struct part *p)
{
	struct remote *r = comm->clique->remote;
	struct seat *mine = &r->t->seat[comm->rank];
	if (!p->given) {
		if (atomic_load(&mine->given) != p->number || !all_took(r, p->number))
			return false;
		give(r, comm->rank, n, p->op->send, nccl_sent(p->op, r->n, comm->rank));
		mine->said.op = *p->op;
		atomic_store(&mine->given, p->number + 1);
		return p->given = true;
	}
	if (atomic_load(&mine->taken) != p->number || !all_gave(r, p->number))
		return false;
	for (int i = 0; i < r->n; i++)
		if (mismatch(comm, p, i, &r->t->seat[i].said.op))
			return false;
	size_t at, len = nccl_part(p->op, r->n, comm->rank, &at);
	if (len) {
		struct bytes all = nccl_combine(p->op, r->n, sent_there, r);
		nccl_give(n, p->op->recv, len, (struct bytes){all.at + at, all.init + at});
		bytes_free(all);
	}
	atomic_store(&mine->taken, p->number + 1);
	return p->done = true;
}

static bool step_transfer(struct ncclComm *comm, struct node *n, struct part *p)
{
	struct remote *r = comm->clique->remote;
	struct line *l = &r->line[pair_of(r, p->op)];
	uint64_t given = atomic_load(&l->given), taken = atomic_load(&l->taken);
	size_t len = p->op->count * nccl_size(p->op->type);
	if (p->op->kind == SEND && p->given)
		return p->done = taken > p->number;
	if (taken != p->number || (given > p->number) != (p->op->kind == RECV))
		return false;
	int slot = r->n + pair_of(r, p->op);
	if (p->op->kind == SEND) {
		give(r, slot, n, p->op->send, len);
		l->said.op = *p->op;
		atomic_store(&l->given, p->number + 1);
		return p->given = true;
	}
	if (mismatch(comm, p, p->op->root, &l->said.op))
		return false;
	struct bytes b = take(r, slot, len);
	nccl_give(n, p->op->recv, len, b);
	bytes_free(b);
	atomic_store(&l->taken, p->number + 1);
	return p->done = true;
}

static bool step(struct node *n)
{
	struct ncclComm *comm = nccl_work_of(n)->comm;
	struct left *s = n->state;
	bool some = false;
	for (int i = 0; i < nccl_work_of(n)->n && !comm->clique->error; i++) {
		struct part *p = &s->at[i];
		if (p->done)
			continue;
		some |= nccl_is_transfer(p->op) ? step_transfer(comm, n, p) : step_collective(comm, n, p);
		s->n -= p->done;
	}
	return some;
}

bool remote_run(struct node *n)
{
	const struct left *s = n->state;
	while (step(n))
		;
	return !s->n;
}

/* Started, and not done. */
static bool is_under_way(const struct node *n)
{
	const struct nccl_work *w = nccl_work_of(n);
	return w && w->comm->clique->remote && n->started && !n->done && !n->killed && !w->comm->clique->error;
}

bool remote_poll(void)
{
	for (struct node *n = remotes ? pending : NULL; n; n = n->after) {
		if (!is_under_way(n) || !step(n))
			continue;
		if (!((const struct left *)n->state)->n)
			node_done(n);
		return true;
	}
	return false;
}

bool remote_waits(void)
{
	for (const struct remote *r = remotes; r; r = r->next)
		if (remote_joined(r) < r->n)
			return true;
	for (const struct node *n = remotes ? pending : NULL; n; n = n->after)
		if (is_under_way(n))
			return true;
	return false;
}

void remote_explain(struct node *n, char *buf, size_t size)
{
	const struct remote *r = nccl_work_of(n)->comm->clique->remote;
	const struct left *s = n->state;
	size_t at = 0;
	for (int i = 0; i < r->n && at < size; i++) {
		const struct seat *o = &r->t->seat[i];
		int pid = atomic_load(&o->pid);
		bool gone = atomic_load(&o->away) || (pid && kill(pid, 0) && errno == ESRCH), waits = false;
		for (int k = 0; k < nccl_work_of(n)->n; k++) {
			const struct part *p = &s->at[k];
			waits |= !p->done && (nccl_is_transfer(p->op) ? p->op->root == i : atomic_load(&o->given) <= p->number);
		}
		if (waits)
			at += (size_t)snprintf(buf + at, size - at, "%s rank %d, process %d%s", at ? "," : "waits for", i, pid, gone ? ", which has ended" : "");
	}
}
