/* nccl_comm.c - NCCL: communicators. Ranks are threads of this process or, with $SOFTGPU_PROCESSES, processes (nccl_remote.c). */
#include "tests/softgpu/nccl.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct split {
	int number, arrived;
	bool built;
	int *color, *key;
	struct ncclComm **made;
	struct split *next;
};
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

static ncclResult_t join(ncclComm_t *comm, int n, ncclUniqueId id, int rank, bool wait)
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
	struct group *g = self_host->group_depth ? self_host->group : NULL;
	if (!wait)
		return g ? ncclSuccess : ncclInProgress;
	if (!g)
		return nccl_init_wait(*comm);
	g->init = must(realloc(g->init, (size_t)(g->ninit + 1) * sizeof(struct ncclComm *)));
	g->init[g->ninit++] = *comm;
	return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ptc_nccl_config *config)
{
	if (api_enter())
		return ncclUnhandledCudaError;
	ncclResult_t r = config && config->magic != NCCL_CONFIG_MAGIC ? nccl_fail(ncclInvalidArgument, "the configuration has no magic") :
		join(comm, n, id, rank, !config || config->blocking != 0);
	leave();
	return r;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
	return ncclCommInitRankConfig(comm, n, id, rank, NULL);
}

/* ---- splitting ---- */

static bool is_built(void *p)
{
	return ((const struct split *)p)->built;
}

/* New cliques: one a colour, ranks by key, then by old rank. */
static void split_build(struct clique *c, struct split *s)
{
	for (int i = 0; i < c->n; i++) {
		if (s->color[i] == NCCL_SPLIT_NOCOLOR || s->made[i])
			continue;
		int n = 0;
		for (int k = i; k < c->n; k++)
			n += s->color[k] == s->color[i];
		struct clique *sub = clique_make(n);
		for (int k = i; k < c->n; k++) {
			if (s->color[k] != s->color[i])
				continue;
			int rank = 0;
			for (int o = 0; o < c->n; o++)
				rank += s->color[o] == s->color[i] && (s->key[o] < s->key[k] || (s->key[o] == s->key[k] && o < k));
			s->made[k] = member_make(sub, rank, c->member[k]->dev);
		}
	}
	s->built = true;
}

static struct split *split_of(struct ncclComm *comm)
{
	struct clique *c = comm->clique;
	struct split **at = &c->splits;
	while (*at && (*at)->number != comm->splits)
		at = &(*at)->next;
	if (!*at) {
		struct split *s = *at = must(calloc(1, sizeof *s));
		s->number = comm->splits;
		s->color = must(calloc((size_t)c->n, sizeof(int)));
		s->key = must(calloc((size_t)c->n, sizeof(int)));
		s->made = must(calloc((size_t)c->n, sizeof(struct ncclComm *)));
	}
	comm->splits++;
	return *at;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *sub, ptc_nccl_config *config)
{
	(void)config;
	if (api_enter())
		return ncclUnhandledCudaError;
	if (!comm || !sub || (color < 0 && color != NCCL_SPLIT_NOCOLOR) || self_host->group_depth) {
		leave();
		return nccl_fail(ncclInvalidArgument, "ncclCommSplit: colour %d", color);
	}
	if (comm->clique->remote) {
		leave();
		return nccl_fail(ncclInvalidUsage, "ncclCommSplit: not of ranks that are processes");
	}
	struct split *s = split_of(comm);
	s->color[comm->rank] = color;
	s->key[comm->rank] = key;
	if (++s->arrived == comm->clique->n)
		split_build(comm->clique, s);
	bool good = host_wait(is_built, s, text("ncclCommSplit, rank %d of %d", comm->rank, comm->clique->n), true);
	*sub = good ? s->made[comm->rank] : NULL;
	leave();
	return good ? ncclSuccess : ncclSystemError;
}

/* ---- the end ---- */

static bool not_busy(void *p)
{
	const struct ncclComm *c = p;
	return !nccl_busy(c) || devices[c->dev].error;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	if (!comm)
		return ncclInvalidArgument;
	if (!enter())
		return ncclInvalidUsage;
	bool good = host_wait(not_busy, comm, text("ncclCommFinalize, rank %d", comm->rank), false);
	leave();
	return good && !devices[comm->dev].error ? ncclSuccess : ncclUnhandledCudaError;
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
	while (c->splits) {
		struct split *s = c->splits;
		c->splits = s->next;
		free(s->color);
		free(s->key);
		free(s->made);
		free(s);
	}
	nccl_forget(c);
	remote_close(c->remote);
	free(c->member);
	free(c->transfers);
	free(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	ncclResult_t r = ncclCommFinalize(comm);
	if (r == ncclInvalidArgument || !enter())
		return r;
	nccl_abort(comm);
	comm_unref(comm);
	leave();
	return r;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	if (!comm)
		return ncclInvalidArgument;
	if (!enter())
		return ncclInvalidUsage;
	nccl_abort(comm);
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
	bool there = host_poll(all_joined, comm);
	self_host->polling = true;
	*error = devices[comm->dev].error ? ncclUnhandledCudaError : comm->clique->error ? comm->clique->error :
		there ? ncclSuccess : ncclInProgress;
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

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *dev)
{
	return tell(comm, dev, comm ? &comm->dev : NULL);
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
	return tell(comm, rank, comm ? &comm->rank : NULL);
}
