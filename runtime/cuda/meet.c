/* runtime/cuda/meet.c - the table of meet.h: in memory; with several processes, served by that of rank 0 over TCP (meet_wire.h).
 *
 * A rank asks, the server answers at once or, where a key is not there yet, after a moment with "not yet", so that a connection is
 * never held for long. A thread of each rank gives signs of life; a connection that ends without a goodbye, or is silent, breaks
 * the table, and every answer from then on says who it was. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ir/file.h"
#include "runtime/cuda/meet_wire.h"
#include "runtime/internal.h"

enum { NOT_YET_MS = 100, GRACE = 10 /* s: rank 0 says who is missing */ };

struct entry {
	char key[MEET_KEY];
	void *x;
	size_t n;
	struct entry *next;
};

/* A connection of the server. */
struct guest {
	struct meet *m;
	int fd, rank; /* rank -1: has not said */
	double seen;
	bool gone, told; /* told: that the table is broken */
	pthread_t thread;
	struct guest *next;
};

struct meet {
	struct meet_place at;
	pthread_mutex_t lock;  /* of the table, and of a client's connection */
	pthread_cond_t changed;
	struct entry *entries;
	bool broken;
	char why[MEET_TEXT];
	/* the server */
	int listener;
	pthread_t accepts;
	bool serves, closing;
	struct guest *guests;
	int here;              /* ranks that have said hello, with its own */
	/* a client */
	int fd;
	pthread_t beats;
	bool living;
};

/* -- the table; with the lock -- */

static void break_table(struct meet *m, const char *why)
{
	if (!m->broken)
		snprintf(m->why, sizeof m->why, "%s", why);
	m->broken = true;
	pthread_cond_broadcast(&m->changed);
}

static struct entry *find(const struct meet *m, const char *key)
{
	struct entry *e = m->entries;

	while (e && strcmp(e->key, key) != 0)
		e = e->next;
	return e;
}

/* A key that is put again has its new value. */
static bool insert(struct meet *m, const char *key, const void *x, size_t n)
{
	struct entry *e = find(m, key);
	void *copy = malloc(n ? n : 1);

	if (!copy || (!e && !(e = calloc(1, sizeof *e)))) {
		free(copy);
		return false;
	}
	if (!e->x) {
		snprintf(e->key, sizeof e->key, "%s", key);
		e->next = m->entries;
		m->entries = e;
	}
	free(e->x);
	memcpy(copy, x, n);
	e->x = copy;
	e->n = n;
	pthread_cond_broadcast(&m->changed);
	return true;
}

static void wait_change(struct meet *m, double seconds)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);

	t.tv_sec += ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	pthread_cond_timedwait(&m->changed, &m->lock, &t);
}

static const struct entry *await(struct meet *m, const char *key, double seconds)
{
	double end = seconds_now() + seconds;
	const struct entry *e;

	while (!(e = find(m, key)) && !m->broken && seconds_now() < end)
		wait_change(m, end - seconds_now() < .1 ? end - seconds_now() : .1);
	return e;
}

/* -- the server -- */

static bool answer(struct guest *g, enum message_kind kind, const void *x, size_t n)
{
	bool ok = meet_send(&g->m->at, g->fd, kind, "", x, n);

	if (kind == NO) {
		pthread_mutex_lock(&g->m->lock);
		g->told = true;
		pthread_cond_broadcast(&g->m->changed);
		pthread_mutex_unlock(&g->m->lock);
	}
	return ok;
}

/* false: the connection ends. */
static bool greet(struct guest *g, const struct frame *f)
{
	struct meet *m = g->m;
	char why[MEET_TEXT] = "";

	pthread_mutex_lock(&m->lock);
	if (f->world != (uint32_t)m->at.world)
		meet_say(why, "rank %u is told of %u ranks, rank 0 of %d", f->rank, f->world, m->at.world);
	else if (f->plan != m->at.plan)
		meet_say(why, "rank %u has another plan, or another ptc, than rank 0", f->rank);
	else if (f->rank == 0 || f->rank >= (uint32_t)m->at.world)
		meet_say(why, "a process says it is rank %u of %d", f->rank, m->at.world);
	for (const struct guest *o = m->guests; o && !*why; o = o->next)
		if (o->rank == (int)f->rank)
			meet_say(why, "two processes say they are rank %u", f->rank);
	if (*why) {
		break_table(m, why);
	} else {
		g->rank = (int)f->rank;
		m->here++;
		pthread_cond_broadcast(&m->changed);
	}
	pthread_mutex_unlock(&m->lock);
	return *why ? answer(g, NO, why, strlen(why)) && false : answer(g, YES, NULL, 0);
}

static bool serve_get(struct guest *g, const char *key)
{
	struct meet *m = g->m;
	enum message_kind kind = NOT_YET;
	char why[MEET_TEXT];
	void *copy = NULL;
	size_t n = 0;

	pthread_mutex_lock(&m->lock);
	const struct entry *e = await(m, key, NOT_YET_MS * 1e-3);

	if (m->broken) {
		kind = NO;
		memcpy(why, m->why, sizeof why);
	} else if (e && (copy = malloc(e->n + 1))) {
		kind = YES;
		memcpy(copy, e->x, n = e->n);
	}
	pthread_mutex_unlock(&m->lock);
	bool ok = kind == NO ? answer(g, NO, why, strlen(why)) : answer(g, kind, copy, n);

	free(copy);
	return ok;
}

static bool serve_one(struct guest *g, const struct frame *f, const void *x)
{
	struct meet *m = g->m;
	char why[MEET_TEXT];

	if (f->kind == GET)
		return serve_get(g, f->key);
	if (f->kind != PUT && f->kind != BEAT && f->kind != BREAK)
		return false;
	pthread_mutex_lock(&m->lock);
	if (f->kind == PUT && !insert(m, f->key, x, f->bytes))
		break_table(m, "no memory");
	if (f->kind == BREAK)
		break_table(m, x);
	bool broken = m->broken;

	memcpy(why, m->why, sizeof why);
	pthread_mutex_unlock(&m->lock);
	return broken ? answer(g, NO, why, strlen(why)) : answer(g, YES, NULL, 0);
}

/* The end of a connection; said: it was a goodbye. */
static void part_with(struct guest *g, bool said)
{
	struct meet *m = g->m;
	char why[MEET_TEXT];

	pthread_mutex_lock(&m->lock);
	g->gone = true;
	pthread_cond_broadcast(&m->changed);
	if (!said && g->rank > 0 && !m->closing) {
		meet_say(why, seconds_now() - g->seen > m->at.silence ? "rank %d is lost: no sign of life for %.0f s" : "rank %d has left", g->rank,
		    seconds_now() - g->seen);
		break_table(m, why);
	}
	pthread_mutex_unlock(&m->lock);
}

static void *serve(void *arg)
{
	struct guest *g = arg;
	bool said = false, more = true;

	while (more) {
		struct frame f;
		void *x;

		if (!meet_receive(g->fd, &f, &x, g->m->at.silence))
			break;
		g->seen = seconds_now();
		said = f.kind == BYE;
		more = !said && (f.kind == HELLO ? g->rank < 0 && greet(g, &f) : g->rank > 0 && serve_one(g, &f, x));
		free(x);
	}
	part_with(g, said);
	return NULL;
}

static void *accept_all(void *arg)
{
	struct meet *m = arg;

	for (;;) {
		int fd = accept(m->listener, NULL, NULL);
		struct guest *g;

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0)
			return NULL; /* meet_close has shut it */
		pthread_mutex_lock(&m->lock);
		g = m->closing ? NULL : calloc(1, sizeof *g);
		if (g) {
			*g = (struct guest){ .m = m, .fd = fd, .rank = -1, .seen = seconds_now(), .next = m->guests };
			m->guests = g;
			if (pthread_create(&g->thread, NULL, serve, g) != 0) {
				m->guests = g->next;
				free(g);
				g = NULL;
			}
		}
		pthread_mutex_unlock(&m->lock);
		if (!g)
			close(fd);
	}
}

/* -- a client -- */

/* One question, one answer. *x: the answer's bytes, to be freed. */
static bool ask(struct meet *m, enum message_kind kind, const char *key, const void *x, size_t n, struct frame *f, void **y, char *why)
{
	*y = NULL;
	if (!meet_send(&m->at, m->fd, kind, key, x, n) || !meet_receive(m->fd, f, y, m->at.silence)) {
		if (!m->broken)
			break_table(m, "rank 0 has left");
		return meet_say(why, "%s", m->why);
	}
	if (f->kind != NO)
		return true;
	break_table(m, *y);
	free(*y);
	*y = NULL;
	return meet_say(why, "%s", m->why);
}

static bool tell(struct meet *m, enum message_kind kind, const char *key, const void *x, size_t n, char *why)
{
	struct frame f;
	void *y;

	pthread_mutex_lock(&m->lock);
	bool ok = ask(m, kind, key, x, n, &f, &y, why);

	pthread_mutex_unlock(&m->lock);
	free(y);
	return ok;
}

/* Signs of life, several in the time after which a silent rank is lost; they bring the news of a broken table too. */
static void *live(void *arg)
{
	struct meet *m = arg;
	char why[MEET_TEXT];
	struct frame f;
	void *y;

	pthread_mutex_lock(&m->lock);
	while (!m->closing && !m->broken) {
		wait_change(m, m->at.silence / 8 < 1 ? m->at.silence / 8 : 1);
		if (!m->closing && !m->broken && ask(m, BEAT, "", NULL, 0, &f, &y, why))
			free(y);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/* Rank 0 may start later. */
static bool join(struct meet *m, char *why)
{
	double end = seconds_now() + m->at.timeout;

	while ((m->fd = meet_socket(&m->at, false, why)) < 0) {
		if (seconds_now() > end)
			return false;
		nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
	}
	if (!tell(m, HELLO, "", NULL, 0, why))
		return false;
	m->living = pthread_create(&m->beats, NULL, live, m) == 0;
	return m->living || meet_say(why, "the thread that gives signs of life can't be made");
}

/* -- all ranks come, and go -- */

/* Says which ranks have not come. */
static bool missing(const struct meet *m, char *why)
{
	char who[200] = "";
	size_t n = 0;

	for (int r = 1; r < m->at.world && n < sizeof who - 24; r++) {
		bool here = false;

		for (const struct guest *g = m->guests; g && !here; g = g->next)
			here = g->rank == r;
		if (!here)
			n += (size_t)snprintf(who + n, sizeof who - n, "%s%d", n ? ", " : "", r);
	}
	return meet_say(why, "%d of %d ranks have come in %.0f s; not: %s", m->here, m->at.world, m->at.timeout, who);
}

static bool await_all(struct meet *m, char *why)
{
	double end = seconds_now() + m->at.timeout;
	bool ok;

	pthread_mutex_lock(&m->lock);
	while (m->here < m->at.world && !m->broken && seconds_now() < end)
		wait_change(m, .1);
	ok = m->broken ? meet_say(why, "%s", m->why) : m->here == m->at.world || missing(m, why);
	if (!ok)
		break_table(m, why);
	pthread_mutex_unlock(&m->lock);
	return ok && meet_put(m, "all are here", "", 0, why);
}

static bool serve_all(struct meet *m, char *why)
{
	m->listener = meet_socket(&m->at, true, why);
	if (m->listener < 0)
		return false;
	m->here = 1;
	if (pthread_create(&m->accepts, NULL, accept_all, m) != 0)
		return meet_say(why, "the thread that serves other ranks can't be made");
	m->serves = true;
	return await_all(m, why);
}

static bool make_locks(struct meet *m)
{
	if (!comm_cond(&m->changed))
		return false;
	if (pthread_mutex_init(&m->lock, NULL) == 0)
		return true;
	pthread_cond_destroy(&m->changed);
	return false;
}

/* Before the table goes, why it is broken is told to all who still ask, as they do with each sign of life, and to whom was refused. */
static void tell_all(struct meet *m)
{
	double end = seconds_now() + (m->at.silence / 4 > 3 ? m->at.silence / 4 : 3);
	bool left = m->broken;

	while (left && seconds_now() < end) {
		left = false;
		for (const struct guest *g = m->guests; g; g = g->next)
			left |= !g->gone && !g->told;
		if (left)
			wait_change(m, .05);
	}
}

void meet_end(struct meet *m)
{
	double end = seconds_now() + m->at.silence;
	bool left = true;

	pthread_mutex_lock(&m->lock);
	while (left && !m->broken && seconds_now() < end) {
		left = false;
		for (const struct guest *g = m->guests; g; g = g->next)
			left |= !g->gone && g->rank > 0;
		if (left)
			wait_change(m, .05);
	}
	pthread_mutex_unlock(&m->lock);
}

static void close_guests(struct meet *m)
{
	for (struct guest *g = m->guests, *next; g; g = next) {
		next = g->next;
		shutdown(g->fd, SHUT_RDWR);
		pthread_join(g->thread, NULL);
		close(g->fd);
		free(g);
	}
}

void meet_close(struct meet *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	tell_all(m);
	m->closing = true;
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
	if (m->living)
		pthread_join(m->beats, NULL);
	if (m->fd >= 0) {
		meet_send(&m->at, m->fd, BYE, "", NULL, 0);
		close(m->fd);
	}
	if (m->listener >= 0)
		shutdown(m->listener, SHUT_RDWR);
	if (m->serves)
		pthread_join(m->accepts, NULL);
	close_guests(m);
	if (m->listener >= 0)
		close(m->listener);
	for (struct entry *e = m->entries, *next; e; e = next) {
		next = e->next;
		free(e->x);
		free(e);
	}
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

/* -- what ranks do -- */

static bool is_client(const struct meet *m)
{
	return m->at.world > 1 && m->at.rank;
}

bool meet_put(struct meet *m, const char *key, const void *x, size_t n, char *why)
{
	if (is_client(m))
		return tell(m, PUT, key, x, n, why);
	pthread_mutex_lock(&m->lock);
	bool ok = m->broken ? meet_say(why, "%s", m->why) : insert(m, key, x, n) || meet_say(why, "no memory");

	pthread_mutex_unlock(&m->lock);
	return ok;
}

static bool fetch(struct meet *m, const char *key, void *x, size_t n, char *why, bool *there)
{
	struct frame f;
	void *y;

	pthread_mutex_lock(&m->lock);
	bool ok = ask(m, GET, key, NULL, 0, &f, &y, why);

	pthread_mutex_unlock(&m->lock);
	*there = ok && f.kind == YES;
	if (*there && f.bytes != n)
		ok = meet_say(why, "'%s' has %u bytes instead of %zu", key, f.bytes, n);
	else if (*there && n)
		memcpy(x, y, n);
	free(y);
	return ok;
}

static bool late(const char *key, double seconds, char *why)
{
	return meet_say(why, "time-out: '%s' has not come for %.0f s", key, seconds);
}

static bool get_within(struct meet *m, const char *key, void *x, size_t n, double seconds, char *why)
{
	double end = seconds_now() + seconds;

	if (is_client(m)) {
		bool there = false, ok = true;

		while (ok && !there && seconds_now() < end)
			ok = fetch(m, key, x, n, why, &there);
		return ok && (there || late(key, seconds, why));
	}
	pthread_mutex_lock(&m->lock);
	const struct entry *e = await(m, key, seconds);
	bool ok = m->broken ? meet_say(why, "%s", m->why) : e || late(key, seconds, why);

	if (ok && e->n != n)
		ok = meet_say(why, "'%s' has %zu bytes instead of %zu", key, e->n, n);
	else if (ok && n)
		memcpy(x, e->x, n);
	pthread_mutex_unlock(&m->lock);
	return ok;
}

bool meet_get(struct meet *m, const char *key, void *x, size_t n, char *why)
{
	return get_within(m, key, x, n, m->at.timeout, why);
}

bool meet_has(struct meet *m, const char *key)
{
	char why[MEET_TEXT];
	bool there = false;

	if (is_client(m))
		return fetch(m, key, NULL, 0, why, &there) && there;
	pthread_mutex_lock(&m->lock);
	there = find(m, key) != NULL;
	pthread_mutex_unlock(&m->lock);
	return there;
}

bool meet_take(struct meet *m, const char *key, void *x, size_t n, char *why)
{
	if (!meet_get(m, key, x, n, why))
		return false;
	pthread_mutex_lock(&m->lock);
	for (struct entry **at = &m->entries, *e; (e = *at); at = &e->next)
		if (strcmp(e->key, key) == 0) {
			*at = e->next;
			free(e->x);
			free(e);
			break;
		}
	pthread_mutex_unlock(&m->lock);
	return true;
}

bool meet_ok(struct meet *m, char *why)
{
	pthread_mutex_lock(&m->lock);
	bool ok = !m->broken || meet_say(why, "%s", m->why);

	pthread_mutex_unlock(&m->lock);
	return ok;
}

void meet_break(struct meet *m, const char *text)
{
	char why[MEET_TEXT];

	if (is_client(m)) {
		tell(m, BREAK, "", text, strlen(text) + 1, why);
		return;
	}
	pthread_mutex_lock(&m->lock);
	break_table(m, text);
	pthread_mutex_unlock(&m->lock);
}

struct meet *meet_open(const struct meet_place *p, char *why)
{
	struct meet *m = calloc(1, sizeof *m);

	if (!m || !make_locks(m)) {
		free(m);
		meet_say(why, "no memory");
		return NULL;
	}
	m->at = *p;
	m->listener = m->fd = -1;
	if (p->world < 2 || (p->rank ? join(m, why) && get_within(m, "all are here", NULL, 0, m->at.timeout + GRACE, why) : serve_all(m, why))) {
		*why = 0; /* rank 0 may have been late */
		return m;
	}
	meet_close(m);
	return NULL;
}
