/* graph.c - driver: capture of streams into graphs, their launch. */
#include "tests/softgpu/api.h"
#include <stdlib.h>
#include <string.h>

struct step {
	const char *what;
	struct work *work;
	int dev, branch;
	struct front after;
};
struct CUgraph_st {
	struct step *step;
	int n, cap, branches;
};
struct capture {
	int refs;                   /* streams and events that are in it */
	int no;                     /* from 1 */
	struct CUgraph_st *graph;   /* NULL: it has ended */
	bool broken;
	const struct host *by;
	CUstreamCaptureMode mode;
	struct CUstream_st *origin, *streams;
	struct capture *next;
};
struct CUgraphExec_st {
	struct CUgraph_st *graph;
	int *chain;                 /* by branch */
	struct node *last;          /* end of the last launch */
};
static struct capture *active;

/* ---- fronts ---- */

static void front_add(struct front *a, const struct front *b)
{
	for (int i = 0; i < b->n; i++) {
		int k = 0;
		while (k < a->n && a->at[k] != b->at[i])
			k++;
		if (k < a->n)
			continue;
		a->at = must(realloc(a->at, (size_t)(a->n + 1) * sizeof *a->at));
		a->at[a->n++] = b->at[i];
	}
}

static void front_clear(struct front *a)
{
	free(a->at);
	*a = (struct front){0};
}

static void graph_free(struct CUgraph_st *g)
{
	for (int i = 0; i < g->n; i++) {
		nccl_in_graph(g->step[i].work, -1);
		work_unref(g->step[i].work);
		front_clear(&g->step[i].after);
	}
	free(g->step);
	free(g);
}

static void graph_push(struct CUgraph_st *g, struct step s)
{
	if (g->n == g->cap) {
		g->cap = g->cap ? 2 * g->cap : 16;
		g->step = must(realloc(g->step, (size_t)g->cap * sizeof *g->step));
	}
	g->step[g->n++] = s;
	nccl_in_graph(s.work, 1);
}

/* ---- capture ---- */

bool capturing(const struct CUstream_st *s)
{
	return s && s->capture;
}

int capture_no(const struct CUstream_st *s)
{
	return capturing(s) ? s->capture->no : 0;
}

static void capture_unref(struct capture *c)
{
	if (c && !--c->refs)
		free(c);
}

void capture_forget(CUevent e)
{
	capture_unref(e->capture);
	e->capture = NULL;
	front_clear(&e->front);
}

CUresult capture_broken(struct CUstream_st *s, CUresult error)
{
	s->capture->broken = true;
	return error;
}

CUresult capture_forbids(const char *what)
{
	(void)what;
	CUresult e = CUDA_SUCCESS;
	for (struct capture *c = active; c; c = c->next)
		if (self_host->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
		    (c->by == self_host || c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
			c->broken = true;
			e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return e;
}

CUresult capture_add(struct CUstream_st *s, const char *what, struct work *w)
{
	struct capture *c = s->capture;
	if (c->broken) {
		work_unref(w);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	struct step st = {text("%s (captured, branch %d)", what, s->branch), w, s->dev, s->branch, s->front};
	graph_push(c->graph, st);
	int at = c->graph->n - 1;
	s->front = (struct front){0};
	front_add(&s->front, &(struct front){1, &at});
	return CUDA_SUCCESS;
}

CUresult capture_record(CUevent e, struct CUstream_st *s)
{
	if (s->capture->broken)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	s->capture->refs++;
	capture_forget(e);
	e->capture = s->capture;
	front_add(&e->front, &s->front);
	return CUDA_SUCCESS;
}

static void join(struct CUstream_st *s, struct capture *c)
{
	s->capture = c;
	s->branch = c->graph->branches++;
	s->joined = c->streams;
	c->streams = s;
	c->refs++;
}

CUresult capture_wait(struct CUstream_st *s, CUevent e)
{
	struct capture *c = e->capture;
	if (!c)         /* recorded outside */
		return e->node ? capture_broken(s, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
	if (!c->graph)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (c->broken || (s->capture && s->capture->broken))
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s->capture && s->capture != c) {
		c->broken = true;
		return capture_broken(s, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	if (s == devices[s->dev].null)
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (!s->capture)
		join(s, c);
	front_add(&s->front, &e->front);
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	CUresult e = api_enter();
	if (e)
		return e;
	struct CUstream_st *s = stream_of(stream);
	if (!s)
		return api_leave(CUDA_ERROR_INVALID_HANDLE);
	if (s == devices[s->dev].null)
		return api_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (capturing(s) || (unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return api_leave(capturing(s) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE);
	static int number;
	struct capture *c = must(calloc(1, sizeof *c));
	c->no = ++number;
	c->graph = must(calloc(1, sizeof *c->graph));
	c->refs = 1;
	c->by = self_host;
	c->mode = mode;
	c->origin = s;
	c->next = active;
	active = c;
	join(s, c);
	return api_leave(CUDA_SUCCESS);
}

/* What comes before the origin's front, itself included. */
static void mark(const struct CUgraph_st *g, const struct front *f, bool *seen)
{
	for (int i = 0; i < f->n; i++)
		if (!seen[f->at[i]]) {
			seen[f->at[i]] = true;
			mark(g, &g->step[f->at[i]].after, seen);
		}
}

static bool all_joined(const struct capture *c)
{
	bool *seen = must(calloc((size_t)c->graph->n + 1, 1)), good = true;
	mark(c->graph, &c->origin->front, seen);
	for (const struct CUstream_st *s = c->streams; s; s = s->joined)
		for (int i = 0; i < s->front.n; i++)
			good &= seen[s->front.at[i]];
	free(seen);
	return good;
}

static void capture_end(struct capture *c)
{
	for (struct capture **at = &active; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	while (c->streams) {
		struct CUstream_st *s = c->streams;
		c->streams = s->joined;
		s->capture = NULL;
		front_clear(&s->front);
		capture_unref(c);
	}
	c->graph = NULL;
	capture_unref(c);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	CUresult e = api_enter();
	if (e)
		return e;
	*graph = NULL;
	struct CUstream_st *s = stream_of(stream);
	if (!s || !capturing(s))
		return api_leave(s ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_HANDLE);
	struct capture *c = s->capture;
	if (c->origin != s)
		return api_leave(capture_broken(s, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
	if (c->by != self_host && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		return api_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	e = c->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : all_joined(c) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	struct CUgraph_st *g = c->graph;
	capture_end(c);
	if (e)
		graph_free(g);
	else
		*graph = g;
	return api_leave(e);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	CUresult e = api_enter();
	if (e)
		return e;
	const struct CUstream_st *s = stream_of(stream);
	if (!s)
		return api_leave(CUDA_ERROR_INVALID_HANDLE);
	*status = !capturing(s) ? CU_STREAM_CAPTURE_STATUS_NONE :
		s->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return api_leave(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	if (!enter())
		return CUDA_ERROR_NOT_PERMITTED;
	CUstreamCaptureMode old = self_host->mode;
	self_host->mode = *mode;
	*mode = old;
	return api_leave(CUDA_SUCCESS);
}

/* ---- graphs ---- */

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	CUresult e = api_enter();
	if (e)
		return e;
	for (size_t i = 0; nodes && i < *n; i++)
		nodes[i] = i < (size_t)graph->n ? (CUgraphNode)(void *)&graph->step[i] : NULL;
	if (!nodes || *n > (size_t)graph->n)
		*n = (size_t)graph->n;
	return api_leave(CUDA_SUCCESS);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (!exec || !graph || flags)
		return api_leave(CUDA_ERROR_INVALID_VALUE);
	struct CUgraphExec_st *x = must(calloc(1, sizeof *x));
	x->graph = must(calloc(1, sizeof *x->graph));
	x->graph->branches = graph->branches;
	for (int i = 0; i < graph->n; i++) {
		struct step st = graph->step[i];
		if (st.work)
			st.work->refs++;
		st.after = (struct front){0};
		front_add(&st.after, &graph->step[i].after);
		graph_push(x->graph, st);
	}
	x->chain = must(calloc((size_t)graph->branches + 1, sizeof *x->chain));
	for (int i = 0; i < graph->branches; i++)
		x->chain[i] = new_chain();
	*exec = x;
	return api_leave(CUDA_SUCCESS);
}

static void launch(struct CUgraphExec_st *x, struct CUstream_st *s)
{
	struct CUgraph_st *g = x->graph;
	struct node *begin = stream_node(s, text("start of a graph (stream %d)", s->id), NULL);
	node_after(begin, x->last);
	stream_end(s, begin);
	struct node **made = must(calloc((size_t)g->n + 1, sizeof(struct node *)));
	for (int i = 0; i < g->n; i++) {
		struct step *st = &g->step[i];
		if (st->work)
			st->work->refs++;
		struct node *n = node_new(st->dev, st->what, st->work, x->chain[st->branch]);
		if (!st->after.n)
			node_after(n, begin);
		for (int k = 0; k < st->after.n; k++)
			node_after(n, made[st->after.at[k]]);
		node_enter(n);
		made[i] = n;
	}
	struct node *end = stream_node(s, text("end of a graph (stream %d)", s->id), NULL);
	for (int i = 0; i < g->n; i++) {
		node_after(end, made[i]);
		node_unref(made[i]);
	}
	free(made);
	stream_end(s, end);
	node_unref(x->last);
	x->last = node_ref(end);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	CUresult e = api_enter();
	if (e)
		return e;
	struct CUstream_st *s = stream_of(stream);
	if (!s || !exec)
		return api_leave(s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	if (capturing(s))       /* child graphs are not there */
		return api_leave(capture_broken(s, CUDA_ERROR_NOT_SUPPORTED));
	launch(exec, s);
	return api_leave(CUDA_SUCCESS);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	CUresult e = api_enter();
	if (e)
		return e;
	graph_free(exec->graph);
	node_unref(exec->last);
	free(exec->chain);
	free(exec);
	return api_leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph)
{
	CUresult e = api_enter();
	if (e)
		return e;
	graph_free(graph);
	return api_leave(CUDA_SUCCESS);
}
