/* nccl_comm.c - NCCL: communicators. Ranks are threads of this process or, with $SOFTGPU_PROCESSES, processes (nccl_remote.c). */
#include "tests/softgpu/nccl.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct clique *cliques;
static const char *last_error = "";

ncclResult_t nccl_fail(ncclResult_t r, const char *fmt, ...)
{
	char buf[500];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	last_error = text("%s", buf);
	return r;
}

ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return ncclInvalidArgument;
	*version = 22800;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	switch (result) {
	case ncclSuccess: return "no error";
	case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
	case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
	case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
	case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
	case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
	case ncclRemoteError: return "remote process exited or there was a network error";
	case ncclInProgress: return "NCCL operation in progress";
	}
	return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return last_error;
}

/* With the lock: the process ends here, or the thread does not go on. */
static void may_be_lost(const char *where)
{
	if (!cfg.lose || strncmp(cfg.lose, where, strlen(where)) || cfg.lose[strlen(where)] != ':')
		return;
	if (strstr(cfg.lose, ":kill"))
		kill(getpid(), SIGKILL);
	leave();
	for (;;)
		pause();
}

struct id {
	char tag[16];
	int pid, serial;
};

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	static int serial;
	if (!id)
		return ncclInvalidArgument;
	if (!enter())
		return ncclInvalidUsage;
	may_be_lost("id");
	struct id x = {"software NCCL", getpid(), ++serial};
	memset(id, 0, sizeof *id);
	memcpy(id, &x, sizeof x);
	leave();
	return ncclSuccess;
}

/* ---- joining ---- */

static struct clique *clique_make(int n)
{
	static int serial;
	struct clique *c = must(calloc(1, sizeof *c));
	c->n = n;
	c->serial = ++serial;
	c->member = must(calloc((size_t)n, sizeof(struct ncclComm *)));
	c->transfers = must(calloc(2 * (size_t)n * (size_t)n, sizeof(int)));
	c->next = cliques;
	cliques = c;
	return c;
}

static struct ncclComm *member_make(struct clique *c, int rank, int dev)
{
	struct ncclComm *m = must(calloc(1, sizeof *m));
	*m = (struct ncclComm){.clique = c, .rank = rank, .dev = dev, .refs = 1};
	c->member[rank] = m;
	c->refs++;
	c->joined++;
	return m;
}

int nccl_joined(const struct clique *c)
{
	return c->remote ? remote_joined(c->remote) : c->joined;
}

static bool all_joined(void *p)
{
	const struct ncclComm *c = p;
	return nccl_joined(c->clique) == c->clique->n || c->clique->error || c->aborted;
}

ncclResult_t nccl_init_wait(struct ncclComm *c)
{
	if (!host_wait(all_joined, c, text("ncclCommInitRank, rank %d of %d", c->rank, c->clique->n), true))
		return nccl_fail(ncclSystemError, "%d of %d ranks came", nccl_joined(c->clique), c->clique->n);
	return c->clique->error;
}

/* Of ranks that are processes: each has its own. */
static ncclResult_t clique_apart(const struct id *x, int n, int rank, struct clique **to)
{
	struct remote *r = remote_open(text("%d-%d", x->pid, x->serial), n, rank, self_host->dev);
	if (!r)
		return ncclInvalidUsage;
	*to = clique_make(n);
	(*to)->remote = r;
	return ncclSuccess;
}

/* That of an id, in which there is a place for the rank. */
static ncclResult_t clique_of(const ncclUniqueId *id, const struct id *x, int n, int rank, struct clique **to)
{
	if (cfg.processes)
		return clique_apart(x, n, rank, to);
	if (x->pid != getpid()) {
		fprintf(stderr, "softgpu: ncclCommInitRank: the software NCCL connects ranks of one process only: "
			"run ranks as threads, or set SOFTGPU_PROCESSES\n");
		return nccl_fail(ncclSystemError, "the software NCCL connects ranks of one process only: run ranks as threads, or set SOFTGPU_PROCESSES");
	}
	struct clique *c = cliques;
	while (c && memcmp(&c->id, id, sizeof *id))
		c = c->next;
	if (!c) {
		c = clique_make(n);
		c->id = *id;
	}
	if (c->n != n || c->member[rank])
		return nccl_fail(ncclInvalidUsage, c->n != n ? "ranks disagree on their number" : "rank %d came twice", rank);
	for (int i = 0; i < n; i++)
		if (c->member[i] && c->member[i]->dev == self_host->dev)
			c->error = nccl_fail(ncclInvalidUsage, "ranks %d and %d are on one device, gpu%d", i, rank, self_host->dev);
	*to = c;
	return c->error;
}

static ncclResult_t join(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
	struct id x;
	memcpy(&x, &id, sizeof x);
	if (!comm || n < 1 || rank < 0 || rank >= n)
		return nccl_fail(ncclInvalidArgument, "rank %d of %d", rank, n);
	if (strcmp(x.tag, "software NCCL"))
		return nccl_fail(ncclInvalidArgument, "not a unique id of this library");
	struct clique *c = NULL;
	ncclResult_t r = clique_of(&id, &x, n, rank, &c);
	if (r)
		return r;
	*comm = member_make(c, rank, self_host->dev);
	may_be_lost("joined");
	struct group *g = self_host->group_depth ? self_host->group : NULL;
	if (!g)
		return nccl_init_wait(*comm);
	g->init = must(realloc(g->init, (size_t)(g->ninit + 1) * sizeof(struct ncclComm *)));
	g->init[g->ninit++] = *comm;
	return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
	if (api_enter())
		return ncclUnhandledCudaError;
	may_be_lost("init");
	ncclResult_t r = join(comm, n, id, rank);
	leave();
	return r;
}

/* ---- the end ---- */

static bool not_busy(void *p)
{
	const struct ncclComm *c = p;
	return !nccl_busy(c) || devices[c->dev].error;
}

void comm_unref(struct ncclComm *m)
{
	if (--m->refs)
		return;
	struct clique *c = m->clique;
	c->member[m->rank] = NULL;
	free(m);
	if (--c->refs)
		return;
	for (struct clique **at = &cliques; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	nccl_forget(c);
	remote_close(c->remote);
	free(c->member);
	free(c->transfers);
	free(c);
}

/* NCCL 2.26 and later wait then, for ever if it is the caller that holds the graph. */
static void graphs_are_gone(const struct ncclComm *c)
{
	if (c->in_graphs)
		report("deadlock", "the end of communicator %d, rank %d: it waits until graphs that captured its calls are destroyed",
		       c->clique->serial, c->rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	if (!comm)
		return ncclInvalidArgument;
	if (!enter())
		return ncclInvalidUsage;
	bool good = host_wait(not_busy, comm, text("ncclCommDestroy, rank %d", comm->rank), false) && !devices[comm->dev].error;
	nccl_abort(comm);
	graphs_are_gone(comm);
	comm_unref(comm);
	leave();
	return good ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	if (!comm)
		return ncclInvalidArgument;
	if (!enter())
		return ncclInvalidUsage;
	nccl_abort(comm);
	graphs_are_gone(comm);
	comm_unref(comm);
	leave();
	return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	if (!comm || !error)
		return ncclInvalidArgument;
	if (!enter_poll())
		return ncclInvalidUsage;
	host_poll(all_joined, comm);
	self_host->polling = true;
	*error = devices[comm->dev].error ? ncclUnhandledCudaError : comm->clique->error;
	leave();
	return ncclSuccess;
}

static ncclResult_t tell(const struct ncclComm *comm, int *to, const int *what)
{
	if (!comm || !to)
		return ncclInvalidArgument;
	*to = *what;
	return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *n)
{
	return tell(comm, n, comm ? &comm->clique->n : NULL);
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
	return tell(comm, rank, comm ? &comm->rank : NULL);
}
