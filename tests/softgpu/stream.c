/* stream.c - driver: streams, events, copies, callbacks. */
#include "tests/softgpu/api.h"
#include <stdlib.h>
#include <string.h>

struct CUstream_st *stream_make(int dev, bool blocking)
{
	struct CUstream_st *s = must(calloc(1, sizeof *s));
	s->dev = dev;
	s->id = devices[dev].streams++;
	s->chain = new_chain();
	s->blocking = blocking;
	s->next = devices[dev].all;
	devices[dev].all = s;
	return s;
}

struct CUstream_st *stream_of(CUstream s)
{
	struct device *d = &devices[self_host->dev];
	if (!s || s == (CUstream)1)
		return d->null;
	for (struct CUstream_st *x = d->all; x; x = x->next)
		if (x == s)
			return x;
	return NULL;
}

struct node *stream_node(struct CUstream_st *s, const char *what, struct work *w)
{
	struct node *n = node_new(s->dev, what, w, s->chain);
	struct device *d = &devices[s->dev];
	node_after(n, s->last);
	if (s == d->null) {
		for (struct CUstream_st *x = d->all; x; x = x->next)
			if (x != s && x->blocking)
				node_after(n, x->last);
	} else if (s->blocking) {
		node_after(n, d->null->last);
	}
	return n;
}

void stream_end(struct CUstream_st *s, struct node *n)
{
	node_enter(n);
	node_unref(s->last);
	s->last = n;
}

CUresult stream_add(CUstream stream, const char *what, struct work *w)
{
	struct CUstream_st *s = stream_of(stream);
	CUresult e = s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	if (s && capturing(s))
		return capture_add(s, what, w);
	if (s && s == devices[s->dev].null)
		e = capture_forbids("work on the null stream");
	if (e) {
		work_unref(w);
		return e;
	}
	struct node *n = stream_node(s, text("%s (stream %d)", what, s->id), w);
	stream_end(s, n);
	return CUDA_SUCCESS;
}

struct work *work_make(size_t size, bool (*run)(struct node *))
{
	struct work *w = must(calloc(1, size));
	w->refs = 1;
	w->run = run;
	return w;
}

/* ---- waiting ---- */

static bool node_over(void *p)
{
	const struct node *n = p;
	return n->done || devices[n->dev].error;
}

CUresult wait_node(struct node *n, const char *why)
{
	if (!n)
		return CUDA_SUCCESS;
	int dev = n->dev;
	node_ref(n);
	bool good = host_wait(node_over, n, text("%s gpu%d", why, dev), false);
	if (n->done)
		clock_join(&self_host->clock, &n->clock);
	node_unref(n);
	return devices[dev].error ? devices[dev].error : good ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}

CUresult device_idle(int dev, const char *why)
{
	CUresult e = CUDA_SUCCESS;
	for (struct CUstream_st *s = devices[dev].all; s && !e; s = s->next)
		e = wait_node(s->last, why);
	return e;
}

static CUresult query_node(struct node *n)
{
	if (!n)
		return CUDA_SUCCESS;
	node_ref(n);
	bool good = host_poll(node_over, n);
	if (n->done)
		clock_join(&self_host->clock, &n->clock);
	CUresult e = devices[n->dev].error;
	node_unref(n);
	return e ? e : good ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuCtxSynchronize(void)
{
	CUresult e = api_enter();
	if (e)
		return e;
	e = capture_forbids("cuCtxSynchronize");
	return api_leave(e ? e : device_idle(self_host->dev, "cuCtxSynchronize"));
}

static CUresult sync_stream(struct CUstream_st *s)
{
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (capturing(s))
		return capture_broken(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CUresult e = wait_node(s->last, "cuStreamSynchronize");
	if (s == devices[s->dev].null)
		for (struct CUstream_st *x = devices[s->dev].all; x && !e; x = x->next)
			if (x->blocking)
				e = wait_node(x->last, "cuStreamSynchronize");
	return e;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult e = api_enter();
	return e ? e : api_leave(sync_stream(stream_of(stream)));
}

CUresult cuStreamQuery(CUstream stream)
{
	CUresult e = api_enter_poll();
	if (e)
		return e;
	struct CUstream_st *s = stream_of(stream);
	if (!s)
		return api_leave(CUDA_ERROR_INVALID_HANDLE);
	if (capturing(s))
		return api_leave(capture_broken(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
	return api_leave(query_node(s->last));
}

/* ---- streams ---- */

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority)
{
	(void)priority;
	CUresult e = api_enter();
	if (e)
		return e;
	if (!s || flags > CU_STREAM_NON_BLOCKING)
		return api_leave(CUDA_ERROR_INVALID_VALUE);
	*s = stream_make(self_host->dev, !(flags & CU_STREAM_NON_BLOCKING));
	return api_leave(CUDA_SUCCESS);
}

CUresult cuStreamCreate(CUstream *s, unsigned flags)
{
	return cuStreamCreateWithPriority(s, flags, 0);
}

CUresult cuStreamDestroy(CUstream stream)
{
	CUresult e = api_enter();
	if (e)
		return e;
	struct CUstream_st *s = stream ? stream_of(stream) : NULL;
	if (!s || s == devices[s->dev].null)
		return api_leave(CUDA_ERROR_INVALID_HANDLE);
	if (capturing(s))
		return api_leave(capture_broken(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
	for (struct CUstream_st **at = &devices[s->dev].all; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	node_unref(s->last);
	free(s);
	return api_leave(CUDA_SUCCESS);
}

/* A fault on purpose: is this the wait to leave out? */
static bool dropped(const struct CUstream_st *s)
{
	static int waits;
	if (s->dev || ++waits != cfg.drop_wait)
		return false;
	fprintf(stderr, "softgpu: left out: wait %d of gpu0, by stream %d\n", waits, s->id);
	return true;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent ev, unsigned flags)
{
	CUresult e = api_enter();
	if (e)
		return e;
	struct CUstream_st *s = stream_of(stream);
	if (!s || !ev || flags)
		return api_leave(s && ev ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	if (dropped(s))
		return api_leave(CUDA_SUCCESS);
	if (ev->capture || capturing(s))
		return api_leave(capture_wait(s, ev));
	if (!ev->node)
		return api_leave(CUDA_SUCCESS);
	struct node *n = stream_node(s, text("wait for an event (stream %d)", s->id), NULL);
	node_after(n, ev->node);
	stream_end(s, n);
	return api_leave(CUDA_SUCCESS);
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *ev, unsigned flags)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (!ev || flags > 3)
		return api_leave(CUDA_ERROR_INVALID_VALUE);
	*ev = must(calloc(1, sizeof **ev));
	(*ev)->dev = self_host->dev;
	(*ev)->flags = flags;
	return api_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent ev)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (!ev)
		return api_leave(CUDA_ERROR_INVALID_HANDLE);
	node_unref(ev->node);
	capture_forget(ev);
	free(ev);
	return api_leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent ev, CUstream stream)
{
	CUresult e = api_enter();
	if (e)
		return e;
	struct CUstream_st *s = stream_of(stream);
	if (!s || !ev || ev->dev != s->dev)
		return api_leave(CUDA_ERROR_INVALID_HANDLE);
	if (capturing(s))
		return api_leave(capture_record(ev, s));
	/* A node of its own: its time is when all before it was done. */
	struct node *n = stream_node(s, text("record an event (stream %d)", s->id), NULL);
	stream_end(s, n);
	capture_forget(ev);
	node_unref(ev->node);
	ev->node = node_ref(n);
	return api_leave(CUDA_SUCCESS);
}

CUresult cuEventSynchronize(CUevent ev)
{
	CUresult e = api_enter();
	if (e)
		return e;
	e = !ev ? CUDA_ERROR_INVALID_HANDLE : ev->capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
	return api_leave(e ? e : wait_node(ev->node, "cuEventSynchronize"));
}

CUresult cuEventQuery(CUevent ev)
{
	CUresult e = api_enter_poll();
	if (e)
		return e;
	e = !ev ? CUDA_ERROR_INVALID_HANDLE : ev->capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
	return api_leave(e ? e : query_node(ev->node));
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (!from || !to || !from->node || !to->node || (from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)
		return api_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!from->node->done || !to->node->done)
		return api_leave(CUDA_ERROR_NOT_READY);
	*ms = (float)(1e3 * (to->node->time - from->node->time));
	return api_leave(CUDA_SUCCESS);
}

/* ---- callbacks ---- */

struct callback {
	struct work work;
	CUhostFn fn;
	void *data;
};

bool callback_run(struct node *n)
{
	const struct callback *c = (const struct callback *)n->work;
	host_callback(c->fn, c->data);
	return true;
}

CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *data)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (!fn)
		return api_leave(CUDA_ERROR_INVALID_VALUE);
	struct callback *c = (struct callback *)work_make(sizeof *c, callback_run);
	c->fn = fn;
	c->data = data;
	return api_leave(stream_add(s, "host function", &c->work));
}
