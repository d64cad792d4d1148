/* nccl.c - NCCL: collectives, transfers, groups.
 *
 * The n-th collective that one rank of a communicator enters meets the n-th of the others; transfers meet by sender and
 * receiver, in order. A node starts when its stream comes to it, and is done when each of its operations has met all its
 * parties, all started: so does a group make progress with all of its operations at once. */
#include "tests/softgpu/nccl.h"
#include <stdlib.h>
#include <string.h>

/* ---- meetings ---- */

struct state {                      /* of a node */
	int left;                   /* operations not done */
};

static const struct nccl_work *work_of(const struct node *n)
{
	return (const struct nccl_work *)n->work;
}

struct nccl_work *nccl_work_of(const struct node *n)
{
	return n->work && n->work->run == nccl_run ? (struct nccl_work *)n->work : NULL;
}

bool nccl_is_transfer(const struct nccl_op *op)
{
	return op->kind == SEND || op->kind == RECV;
}

static struct meeting *meet(struct clique *c, int number, int from, int to)
{
	struct meeting **at = &c->meetings;
	for (; *at; at = &(*at)->next)
		if ((*at)->number == number && (*at)->from == from && (*at)->to == to)
			return *at;
	struct meeting *m = *at = must(calloc(1, sizeof *m));
	m->number = number;
	m->from = from;
	m->to = to;
	m->ranks = from < 0 ? c->n : 2;
	m->party = must(calloc((size_t)m->ranks, sizeof *m->party));
	return m;
}

bool nccl_matches(const struct nccl_op *a, const struct nccl_op *b)
{
	if (a->capture != b->capture)
		return false;
	if (nccl_is_transfer(a))
		return a->count * nccl_size(a->type) == b->count * nccl_size(b->type);
	bool reduces = a->kind == ALL_REDUCE || a->kind == REDUCE_SCATTER || a->kind == REDUCE;
	bool rooted = a->kind == BROADCAST || a->kind == REDUCE;
	return a->kind == b->kind && a->count == b->count && a->type == b->type && (!reduces || a->red == b->red) &&
		(!rooted || a->root == b->root);
}

/* The party of a collective that is a device's; NULL. */
static const struct party *party_on(const struct clique *c, const struct meeting *m, int dev)
{
	for (int i = 0; i < c->n; i++)
		if (c->member[i] && c->member[i]->dev == dev)
			return m->party[i].op ? &m->party[i] : NULL;
	return NULL;
}

/* Devices must come to collectives of several communicators in one order: they may not have room for both at once.
 * m has just been entered on dev. */
static void check_order(const struct clique *c, const struct meeting *m, int dev)
{
	for (const struct clique *o = cliques; o; o = o->next)
		for (const struct meeting *x = o == c ? NULL : o->meetings; x; x = x->next) {
			const struct party *mine = x->from < 0 ? party_on(o, x, dev) : NULL;
			for (int i = 0; mine && i < c->n; i++) {
				const struct party *p = &m->party[i];
				const struct party *q = p->op ? party_on(o, x, c->member[i]->dev) : NULL;
				if (q && q != mine && p->issue < q->issue)
					report("order of communicators", "call %d of communicator %d comes after call %d of communicator %d "
					       "on gpu%d, but before it on gpu%d", m->number, c->serial, x->number, o->serial, dev,
					       c->member[i]->dev);
			}
		}
}

static void enter_op(struct ncclComm *comm, struct node *n, const struct nccl_op *op)
{
	struct clique *c = comm->clique;
	struct meeting *m;
	int as = comm->rank;
	static int issues[MAX_DEVICES];
	if (nccl_is_transfer(op)) {
		bool send = op->kind == SEND;
		int from = send ? comm->rank : op->root, to = send ? op->root : comm->rank;
		int *count = &c->transfers[(send ? 0 : c->n * c->n) + from * c->n + to];
		m = meet(c, (*count)++, from, to);
		as = !send;
	} else {
		m = meet(c, comm->collectives++, -1, -1);
	}
	for (int i = 0; i < m->ranks && !m->bad; i++)
		if (m->party[i].op && !nccl_matches(m->party[i].op, op)) {
			report("mismatched collective", "call %d of communicator %d: rank %d calls %s, rank %d calls %s", m->number, c->serial,
			       nccl_is_transfer(op) ? op->root : i, nccl_describe(m->party[i].op), comm->rank, nccl_describe(op));
			m->bad = true;
			c->error = ncclInvalidUsage;
		}
	m->party[as].node = node_ref(n);
	m->party[as].op = op;
	m->party[as].issue = issues[comm->dev]++;
	m->entered++;
	if (m->from < 0)
		check_order(c, m, comm->dev);
}

void nccl_enter(struct node *n)
{
	const struct nccl_work *w = work_of(n);
	if (w->comm->clique->remote) {
		remote_enter(n);
		return;
	}
	struct state *s = n->state = must(calloc(1, sizeof *s));
	s->left = w->n;
	for (int i = 0; i < w->n && !w->comm->aborted; i++)
		enter_op(w->comm, n, &w->op[i]);
}

static void meeting_free(struct clique *c, struct meeting *m)
{
	for (struct meeting **at = &c->meetings; *at; at = &(*at)->next)
		if (*at == m) {
			*at = m->next;
			break;
		}
	for (int i = 0; i < m->ranks; i++)
		node_unref(m->party[i].node);
	free(m->party);
	free(m);
}

void nccl_forget(struct clique *c)
{
	while (c->meetings)
		meeting_free(c, c->meetings);
}

/* All parties have started: data moves, nodes without another operation are done, but for `running`. */
static void conclude(struct clique *c, struct meeting *m, const struct node *running_node)
{
	nccl_move(m);
	for (int i = 0; i < m->ranks; i++) {
		struct node *n = m->party[i].node;
		struct state *s = n->state;
		if (!n->done && !--s->left && n != running_node)
			node_done(n);
	}
	meeting_free(c, m);
}

/* Is n a party of m, not started as such? Then it is now. */
static bool start_in(struct meeting *m, const struct node *n)
{
	bool some = false;
	for (int i = 0; i < m->ranks; i++)
		if (m->party[i].node == n && !m->party[i].started) {
			m->party[i].started = some = true;
			m->started++;
		}
	return some;
}

bool nccl_run(struct node *n)
{
	const struct nccl_work *w = work_of(n);
	struct clique *c = w->comm->clique;
	struct state *s = n->state;
	if (w->comm->aborted)
		return true;
	if (c->remote)
		return remote_run(n);
	for (struct meeting *m = c->meetings, *next; m; m = next) {
		next = m->next;
		if (start_in(m, n) && m->started == m->ranks && !m->bad)
			conclude(c, m, n);
	}
	return !s->left && !n->done;
}

void nccl_explain(struct node *n, char *buf, size_t size)
{
	const struct clique *c = work_of(n)->comm->clique;
	size_t at = 0;
	if (c->remote) {
		remote_explain(n, buf, size);
		return;
	}
	for (const struct meeting *m = c->meetings; m; m = m->next) {
		bool mine = false;
		for (int i = 0; i < m->ranks; i++)
			mine |= m->party[i].node == n;
		for (int i = 0; mine && i < m->ranks && at < size; i++) {
			const struct party *p = &m->party[i];
			if (p->started && !m->bad)
				continue;
			int rank = m->from < 0 ? i : i ? m->to : m->from;
			at += (size_t)snprintf(buf + at, size - at, "%s rank %d (%s)", at ? "," : "waits for", rank,
					       m->bad ? "mismatched" : !p->node ? "never issued" :
					       p->node->waits ? "behind other work of its stream" : "its device failed");
		}
	}
}

bool nccl_under_way(int dev)
{
	for (const struct node *n = pending; n; n = n->after)
		if (n->dev == dev && nccl_work_of(n))
			return true;
	return false;
}

bool nccl_busy(const struct ncclComm *c)
{
	for (const struct node *n = pending; n; n = n->after)
		if (nccl_work_of(n) && work_of(n)->comm == c)
			return true;
	return false;
}

void nccl_abort(struct ncclComm *c)
{
	c->aborted = true;
	for (struct node *n = pending, *next; n; n = next) {
		next = n->after;
		if (nccl_work_of(n) && work_of(n)->comm == c && n->started && !n->done) {
			node_done(n);
			next = pending;     /* others may be done with it */
		}
	}
}

/* ---- groups ---- */

static void work_drop(struct work *p)
{
	struct nccl_work *w = (struct nccl_work *)p;
	free(w->op);
	comm_unref(w->comm);
}

void nccl_in_graph(struct work *w, int by)
{
	if (w && w->run == nccl_run)
		((struct nccl_work *)w)->comm->in_graphs += by;
}

/* That they come from a graph, and from which capture, is a property of calls that all ranks must share. */
static void note_capture(struct nccl_work *w, int capture)
{
	struct ncclComm *c = w->comm;
	if (!capture)
		return;
	c->captures += c->last_capture != capture;
	c->last_capture = capture;
	for (int i = 0; i < w->n; i++)
		w->op[i].capture = c->captures;
}

static ncclResult_t add_work(const struct group *g, int first)
{
	const struct entry *e = &g->entry[first];
	struct nccl_work *w = (struct nccl_work *)work_make(sizeof *w, nccl_run);
	w->work.enter = nccl_enter;
	w->work.explain = nccl_explain;
	w->work.drop = work_drop;
	w->comm = e->comm;
	w->comm->refs++;
	w->op = must(calloc((size_t)g->n, sizeof *w->op));
	for (int i = first; i < g->n; i++)
		if (g->entry[i].comm == e->comm && g->entry[i].stream == e->stream)
			w->op[w->n++] = g->entry[i].op;
	int dev = self_host->dev;
	self_host->dev = e->comm->dev;
	note_capture(w, capture_no(stream_of(e->stream)));
	const char *what = w->n == 1 ? text("nccl %s", nccl_describe(&w->op[0])) : text("nccl group of %d operations", w->n);
	CUresult r = stream_add(e->stream, text("%s by rank %d of communicator %d", what, e->comm->rank, e->comm->clique->serial), &w->work);
	self_host->dev = dev;
	return r ? nccl_fail(ncclUnhandledCudaError, "the stream refuses: %d", r) : ncclSuccess;
}

static ncclResult_t group_end(struct group *g)
{
	ncclResult_t r = g->error;
	for (int i = 0; i < g->ninit && !r; i++)
		r = nccl_init_wait(g->init[i]);
	for (int i = 0; i < g->n && !r; i++) {
		bool seen = false;
		for (int k = 0; k < i; k++)
			seen |= g->entry[k].comm == g->entry[i].comm && g->entry[k].stream == g->entry[i].stream;
		if (!seen)
			r = add_work(g, i);
	}
	free(g->entry);
	free(g->init);
	*g = (struct group){0};
	return r;
}

ncclResult_t ncclGroupStart(void)
{
	if (!enter())
		return ncclInvalidUsage;
	if (!self_host->group)
		self_host->group = must(calloc(1, sizeof *self_host->group));
	self_host->group_depth++;
	leave();
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	if (!enter())
		return ncclInvalidUsage;
	ncclResult_t r = !self_host->group_depth ? nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart") :
		--self_host->group_depth ? ncclSuccess : group_end(self_host->group);
	leave();
	return r;
}

/* Bytes that a rank sends and receives by an operation. */
static void sizes(const struct nccl_op *op, const struct ncclComm *c, size_t *send, size_t *recv)
{
	size_t b = op->count * nccl_size(op->type), n = (size_t)c->clique->n;
	*send = nccl_sent(op, c->clique->n, c->rank);
	*recv = op->kind == SEND || (op->kind == REDUCE && c->rank != op->root) ? 0 : op->kind == ALL_GATHER ? n * b : b;
}

static ncclResult_t check_op(const struct ncclComm *c, const struct nccl_op *op)
{
	if (!c)
		return nccl_fail(ncclInvalidArgument, "no communicator");
	if (nccl_joined(c->clique) < c->clique->n)
		return nccl_fail(ncclInvalidArgument, "the communicator is not ready");
	bool rooted = op->kind == BROADCAST || op->kind == REDUCE || nccl_is_transfer(op);
	if (!nccl_size(op->type) || (unsigned)op->red > ncclAvg || (rooted && (op->root < 0 || op->root >= c->clique->n)))
		return nccl_fail(ncclInvalidArgument, "type %d, operation %d, root %d", op->type, op->red, op->root);
	return c->clique->error;
}

static ncclResult_t call(struct ncclComm *comm, CUstream stream, struct nccl_op op)
{
	if (!enter())
		return ncclInvalidUsage;
	ncclResult_t r = check_op(comm, &op);
	if (!r && devices[comm->dev].error)
		r = ncclUnhandledCudaError;
	size_t send = 0, recv = 0;
	if (!r)
		sizes(&op, comm, &send, &recv);
	const char *what = text("nccl %s", nccl_describe(&op));
	if (!r && send && !(op.send = mem_range(comm->dev, op.send, send, what, "the send buffer")))
		r = nccl_fail(ncclInvalidArgument, "%s: send buffer", what);
	if (!r && recv && !(op.recv = mem_range(comm->dev, op.recv, recv, what, "the receive buffer")))
		r = nccl_fail(ncclInvalidArgument, "%s: receive buffer", what);
	struct group one = {0}, *g = self_host->group_depth ? self_host->group : &one;
	if (r) {
		g->error = g->error ? g->error : r;
	} else if (op.count) {
		g->entry = must(realloc(g->entry, (size_t)(g->n + 1) * sizeof *g->entry));
		g->entry[g->n++] = (struct entry){comm, stream, op};
	}
	if (g == &one)
		r = group_end(g);
	leave();
	return r;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream s)
{
	return call(comm, s, (struct nccl_op){ALL_REDUCE, send, recv, count, type, op, 0, 0});
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			       CUstream s)
{
	return call(comm, s, (struct nccl_op){REDUCE_SCATTER, send, recv, recvcount, type, op, 0, 0});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t type, ncclComm_t comm, CUstream s)
{
	return call(comm, s, (struct nccl_op){ALL_GATHER, send, recv, sendcount, type, 0, 0, 0});
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream s)
{
	return call(comm, s, (struct nccl_op){BROADCAST, send, recv, count, type, 0, root, 0});
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
			CUstream s)
{
	return call(comm, s, (struct nccl_op){REDUCE, send, recv, count, type, op, root, 0});
}

ncclResult_t ncclSend(const void *buf, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream s)
{
	return call(comm, s, (struct nccl_op){SEND, buf, NULL, count, type, 0, peer, 0});
}

ncclResult_t ncclRecv(void *buf, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream s)
{
	return call(comm, s, (struct nccl_op){RECV, NULL, buf, count, type, 0, peer, 0});
}
