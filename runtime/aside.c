/* runtime/aside.c - copies that go on beside a rank: a thread takes them in the order in which they were put. Who waits for one
 * that nobody has begun does not wait for that thread, but takes what is next himself. */
#include <stdlib.h>

#include "ir/file.h"
#include "runtime/internal.h"

enum state { IDLE, QUEUED, BUSY };

struct errand {
	struct nest l;
	enum dtype ddt, sdt;
	void *dst;
	const void *src;
	enum state state;
	double began, ended;
};

struct aside {
	int n;
	pthread_mutex_t lock;
	pthread_cond_t go, done;
	struct errand *at;
	int *queue, first, waiting; /* a ring of n: numbers of errands, each at most once */
	bool stop, started;
	pthread_t thread;
};

/* With the lock held, which is let go while the next errand is done. */
static void do_next(struct aside *a)
{
	struct errand *e = &a->at[a->queue[a->first]];

	a->first = (a->first + 1) % a->n;
	a->waiting--;
	e->state = BUSY;
	pthread_mutex_unlock(&a->lock);
	double began = seconds_now();

	nest_copy(&e->l, e->ddt, e->dst, e->sdt, e->src);
	double ended = seconds_now();

	pthread_mutex_lock(&a->lock);
	e->began = began;
	e->ended = ended;
	e->state = IDLE;
	pthread_cond_broadcast(&a->done);
}

static void *aside_main(void *arg)
{
	struct aside *a = arg;

	pthread_mutex_lock(&a->lock);
	while (!a->stop || a->waiting)
		if (a->waiting)
			do_next(a);
		else
			pthread_cond_wait(&a->go, &a->lock);
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* With the lock held: until errand e is done. */
static void until_idle(struct aside *a, const struct errand *e)
{
	while (e->state != IDLE)
		if (a->waiting)
			do_next(a);
		else
			pthread_cond_wait(&a->done, &a->lock);
}

void aside_put(struct aside *a, int i, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	struct errand *e = &a->at[i];

	pthread_mutex_lock(&a->lock);
	until_idle(a, e); /* a plan that is safe has waited for it */
	e->l = *l;
	e->ddt = ddt;
	e->dst = dst;
	e->sdt = sdt;
	e->src = src;
	e->state = QUEUED;
	a->queue[(a->first + a->waiting++) % a->n] = i;
	pthread_cond_signal(&a->go);
	pthread_mutex_unlock(&a->lock);
}

void aside_wait(struct aside *a, int i, double *began, double *ended)
{
	pthread_mutex_lock(&a->lock);
	until_idle(a, &a->at[i]);
	*began = a->at[i].began;
	*ended = a->at[i].ended;
	pthread_mutex_unlock(&a->lock);
}

void aside_drain(struct aside *a)
{
	pthread_mutex_lock(&a->lock);
	for (int i = 0; i < a->n; i++)
		until_idle(a, &a->at[i]);
	pthread_mutex_unlock(&a->lock);
}

void aside_close(struct aside *a)
{
	if (!a)
		return;
	if (a->started) {
		pthread_mutex_lock(&a->lock);
		a->stop = true;
		pthread_cond_signal(&a->go);
		pthread_mutex_unlock(&a->lock);
		pthread_join(a->thread, NULL);
	}
	pthread_cond_destroy(&a->go);
	pthread_cond_destroy(&a->done);
	pthread_mutex_destroy(&a->lock);
	free(a->at);
	free(a->queue);
	free(a);
}

struct aside *aside_open(int n)
{
	struct aside *a = calloc(1, sizeof *a);

	if (!a)
		return NULL;
	a->n = n;
	a->at = calloc((size_t)n, sizeof *a->at);
	a->queue = calloc((size_t)n, sizeof *a->queue);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->go, NULL);
	pthread_cond_init(&a->done, NULL);
	a->started = a->at && a->queue && pthread_create(&a->thread, NULL, aside_main, a) == 0;
	if (a->started)
		return a;
	aside_close(a);
	return NULL;
}
