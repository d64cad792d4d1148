/* runtime/cuda/apart.c - see apart.h. */
#include <stdlib.h>
#include <time.h>

#include "runtime/cuda/apart.h"

struct apart {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int owners; /* the thread, who waits for it: the last frees it */
	bool done;
	CUcontext ctx;
	void (*fn)(void *);
	size_t bytes;
	_Alignas(max_align_t) char x[];
};

/* With the lock. */
static void let_go(struct apart *a)
{
	bool last = --a->owners == 0;

	pthread_mutex_unlock(&a->lock);
	if (!last)
		return;
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

static void *call(void *arg)
{
	struct apart *a = arg;

	if (lib.cuCtxSetCurrent(a->ctx) == CUDA_SUCCESS)
		a->fn(a->x);
	pthread_mutex_lock(&a->lock);
	a->done = true;
	pthread_cond_signal(&a->changed);
	let_go(a);
	return NULL;
}

static bool make_locks(struct apart *a)
{
	if (!comm_cond(&a->changed))
		return false;
	if (pthread_mutex_init(&a->lock, NULL) == 0)
		return true;
	pthread_cond_destroy(&a->changed);
	return false;
}

struct apart *apart_begin(struct gpu *g, void (*fn)(void *), const void *x, size_t bytes)
{
	struct apart *a = calloc(1, sizeof *a + bytes);
	pthread_t thread;

	if (a && make_locks(a)) {
		a->owners = 2;
		a->ctx = g->ctx;
		a->fn = fn;
		a->bytes = bytes;
		memcpy(a->x, x, bytes);
		if (pthread_create(&thread, NULL, call, a) == 0) {
			pthread_detach(thread);
			return a;
		}
	}
	free(a);
	comm_fail(g->r->rt->comm, g->r->no, (struct span){ 0 }, "a thread can't be made");
	return NULL;
}

bool apart_done(struct apart *a, double seconds)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);

	t.tv_sec += ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	pthread_mutex_lock(&a->lock);
	while (!a->done && pthread_cond_timedwait(&a->changed, &a->lock, &t) == 0)
		;
	bool done = a->done;

	pthread_mutex_unlock(&a->lock);
	return done;
}

bool apart_end(struct apart *a, void *x)
{
	pthread_mutex_lock(&a->lock);
	bool done = a->done;

	if (done)
		memcpy(x, a->x, a->bytes);
	let_go(a);
	return done;
}
