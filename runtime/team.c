/* runtime/team.c - the threads that help one rank: each call hands out one function to all, and waits.
 *
 * They spin for a moment between calls, then sleep, so that cores that others need are given back.
 * (OpenMP's own threads spin for milliseconds; oneDNN is told to use one thread.) */
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/internal.h"

enum { SPINS = 2000 };

struct helper {
	struct team *team;
	int me;
	pthread_t thread;
};

struct team {
	int n; /* with the caller */
	pthread_mutex_t lock;
	pthread_cond_t go, ended;
	_Atomic uint64_t turn;
	_Atomic int left;
	_Atomic bool stop;
	team_fn *fn;
	void *arg;
	int started;
	struct helper at[];
};

void one_thread_each(void)
{
	void (*set)(int);

	*(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
	if (set)
		set(1);
}

static void rest(int i)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
	if (i % 128 == 127)
		sched_yield();
}

static void wait_turn(struct team *t, uint64_t turn)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load(&t->turn) != turn || atomic_load(&t->stop))
			return;
		rest(i);
	}
	pthread_mutex_lock(&t->lock);
	while (atomic_load(&t->turn) == turn && !atomic_load(&t->stop))
		pthread_cond_wait(&t->go, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

static void *help(void *arg)
{
	struct helper *h = arg;
	struct team *t = h->team;
	uint64_t turn = 0;

	one_thread_each();
	for (;;) {
		wait_turn(t, turn);
		if (atomic_load(&t->stop))
			return NULL;
		turn = atomic_load(&t->turn);
		t->fn(t->arg, h->me, t->n);
		if (atomic_fetch_sub(&t->left, 1) == 1) {
			pthread_mutex_lock(&t->lock);
			pthread_cond_signal(&t->ended);
			pthread_mutex_unlock(&t->lock);
		}
	}
}

void team_run(struct team *t, team_fn *fn, void *arg)
{
	t->fn = fn;
	t->arg = arg;
	atomic_store(&t->left, t->n - 1);
	pthread_mutex_lock(&t->lock);
	atomic_fetch_add(&t->turn, 1);
	pthread_cond_broadcast(&t->go);
	pthread_mutex_unlock(&t->lock);
	fn(arg, 0, t->n);
	for (int i = 0; i < SPINS && atomic_load(&t->left); i++)
		rest(i);
	if (!atomic_load(&t->left))
		return;
	pthread_mutex_lock(&t->lock);
	while (atomic_load(&t->left))
		pthread_cond_wait(&t->ended, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

int team_size(const struct team *t)
{
	return t ? t->n : 1;
}

void team_close(struct team *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	atomic_store(&t->stop, true);
	pthread_cond_broadcast(&t->go);
	pthread_mutex_unlock(&t->lock);
	for (int i = 0; i < t->started; i++)
		pthread_join(t->at[i].thread, NULL);
	pthread_cond_destroy(&t->go);
	pthread_cond_destroy(&t->ended);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

struct team *team_open(int n)
{
	struct team *t = calloc(1, sizeof *t + (size_t)n * sizeof *t->at);
	pthread_attr_t attr;

	if (!t)
		return NULL;
	t->n = n;
	if (pthread_mutex_init(&t->lock, NULL) != 0 || pthread_cond_init(&t->go, NULL) != 0 ||
	    pthread_cond_init(&t->ended, NULL) != 0 || pthread_attr_init(&attr) != 0) {
		free(t);
		return NULL;
	}
	pthread_attr_setstacksize(&attr, 16 << 20);
	while (t->started < n - 1) {
		struct helper *h = &t->at[t->started];

		h->team = t;
		h->me = t->started + 1;
		if (pthread_create(&h->thread, &attr, help, h) != 0)
			break;
		t->started++;
	}
	pthread_attr_destroy(&attr);
	if (t->started == n - 1)
		return t;
	team_close(t);
	return NULL;
}
