/* runtime/comm_threads.c - ranks that are threads meet here.
 *
 * A meeting is a barrier of a group: every member says what it is about to do (a mismatch is found
 * by the member that sees it) and lends the others two pointers. A waiting thread spins for a
 * moment, then sleeps. If every rank sleeps or has ended its step, and nobody has moved for a while,
 * the run is broken and says who waits where; so it is when one meeting takes too long and
 * nobody gets on. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ir/file.h"
#include "runtime/internal.h"

enum { SPINS = 400, TICK_MS = 50, STILL = 4, QUIET_MS = 8000 };

struct member {
	int64_t rank;
	const struct call *call; /* of the meeting at hand */
	void *const *in, *const *out;
};

struct group {
	struct comm *c;
	struct group *next;
	pthread_mutex_t lock;
	pthread_cond_t met;
	_Atomic uint64_t turn;  /* meetings so far */
	int n, arrived, asleep;
	const struct call *first;
	int first_member;
	struct member at[];
};

/* What a rank is at, for others that wait for it. */
struct pulse {
	_Atomic(const struct op *) op; /* NULL: it runs nothing */
	_Atomic uint64_t beats;        /* instructions begun */
	_Atomic int64_t patience;      /* ms that this one may take */
	_Atomic int chunk, mb;         /* chunk -1: it is in no action */
	_Atomic bool waits;
	_Atomic(const int32_t *) device; /* the mark that it has come by; NULL: the rank does not wait for one */
	const struct marks *marks;       /* with the lock of struct comm */
};

struct comm {
	int64_t ranks;
	struct pulse *pulse;
	double timeout;
	struct group *groups;
	_Atomic int64_t asleep, done;
	_Atomic uint64_t moves;  /* meetings of all groups */
	_Atomic bool broken;
	pthread_mutex_t lock;    /* of what follows */
	bool told;
	char error[512];
	struct span at;
};

struct comm *comm_open(int64_t ranks, double timeout_s)
{
	struct comm *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->ranks = ranks;
	c->timeout = timeout_s;
	c->pulse = calloc((size_t)ranks, sizeof *c->pulse);
	if (c->pulse && pthread_mutex_init(&c->lock, NULL) == 0)
		return c;
	free(c->pulse);
	free(c);
	return NULL;
}

void comm_close(struct comm *c)
{
	if (!c)
		return;
	for (struct group *g = c->groups, *next; g; g = next) {
		next = g->next;
		pthread_cond_destroy(&g->met);
		pthread_mutex_destroy(&g->lock);
		free(g);
	}
	pthread_mutex_destroy(&c->lock);
	free(c->pulse);
	free(c);
}

bool comm_cond(pthread_cond_t *cond)
{
	pthread_condattr_t a;

	if (pthread_condattr_init(&a) != 0)
		return false;
	bool ok = pthread_condattr_setclock(&a, CLOCK_MONOTONIC) == 0 && pthread_cond_init(cond, &a) == 0;

	pthread_condattr_destroy(&a);
	return ok;
}

struct group *comm_group(struct comm *c, int n, const int64_t *ranks)
{
	struct group *g = calloc(1, sizeof *g + (size_t)n * sizeof *g->at);

	if (!g)
		return NULL;
	g->c = c;
	g->n = n;
	for (int i = 0; i < n; i++)
		g->at[i].rank = ranks[i];
	if (pthread_mutex_init(&g->lock, NULL) != 0 || !comm_cond(&g->met)) {
		free(g);
		return NULL;
	}
	g->next = c->groups;
	c->groups = g;
	return g;
}

void comm_begin(struct comm *c)
{
	atomic_store(&c->done, 0);
}

void comm_done(struct comm *c)
{
	atomic_fetch_add(&c->done, 1);
}

bool comm_failed(struct comm *c)
{
	return atomic_load(&c->broken);
}

const char *comm_error(struct comm *c, struct span *at)
{
	*at = c->at;
	return c->error;
}

void comm_fail(struct comm *c, int64_t rank, struct span at, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&c->lock);
	if (!c->told) {
		int n = snprintf(c->error, sizeof c->error, "rank %lld: ", (long long)rank);

		va_start(ap, fmt);
		vsnprintf(c->error + n, sizeof c->error - (size_t)n, fmt, ap);
		va_end(ap);
		c->told = true;
		c->at = at;
	}
	pthread_mutex_unlock(&c->lock);
	atomic_store(&c->broken, true);
}

static bool same_call(const struct call *a, const struct call *b)
{
	return a == b || (a->op == b->op && streq(a->name, b->name) && a->axes == b->axes && a->bytes == b->bytes);
}

static void mismatch(struct group *g, int me, const struct call *call)
{
	const struct call *o = g->first;

	comm_fail(g->c, g->at[me].rank, call->at,
		  "a collective does not match: %s of %lld bytes (axes %x, line %u) meets %s of %lld bytes (axes %x, "
		  "line %u) of rank %lld", call->name, (long long)call->bytes, call->axes, call->at.line, o->name,
		  (long long)o->bytes, o->axes, o->at.line, (long long)g->at[g->first_member].rank);
}

/* Says who of the group is missing. */
static void stuck(struct group *g, int me, const char *how)
{
	char who[160];
	size_t n = 0;

	who[0] = 0;
	for (int i = 0; i < g->n && n < sizeof who - 24; i++)
		if (!g->at[i].call)
			n += (size_t)snprintf(who + n, sizeof who - n, "%s%lld", n ? ", " : "", (long long)g->at[i].rank);
	const struct call *call = g->at[me].call;

	comm_fail(g->c, g->at[me].rank, call->at, "%s: %s of %lld bytes waits for rank%s %s", how, call->name,
		  (long long)call->bytes, strchr(who, ',') ? "s" : "", who);
}

static void tick(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += TICK_MS * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	pthread_cond_timedwait(cond, lock, &t);
}

void comm_pulse(struct comm *c, int64_t rank, const struct op *op, int64_t patience, int chunk, int64_t mb)
{
	struct pulse *p = &c->pulse[rank];

	atomic_store_explicit(&p->patience, patience, memory_order_relaxed);
	atomic_store_explicit(&p->chunk, chunk, memory_order_relaxed);
	atomic_store_explicit(&p->mb, (int)mb, memory_order_relaxed);
	atomic_store_explicit(&p->op, op, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->beats, 1, memory_order_release);
}

void comm_device(struct comm *c, int64_t rank, const int32_t *at, const struct marks *m)
{
	pthread_mutex_lock(&c->lock);
	c->pulse[rank].marks = m;
	atomic_store(&c->pulse[rank].device, at);
	pthread_mutex_unlock(&c->lock);
}

/* Written by a device. */
static int32_t device_at(const struct pulse *p)
{
	const int32_t *at = atomic_load(&p->device);

	return at ? __atomic_load_n(at, __ATOMIC_ACQUIRE) : 0;
}

/* The instructions that all ranks have begun, what their devices have come by, and meetings: while this changes, somebody works. */
static uint64_t progress(struct comm *c)
{
	uint64_t n = atomic_load(&c->moves);

	for (int64_t i = 0; i < c->ranks; i++)
		n += atomic_load_explicit(&c->pulse[i].beats, memory_order_acquire) + (uint64_t)device_at(&c->pulse[i]);
	return n;
}

/* What a rank is at, or its device if the rank waits for that. device: it is the device that tells. */
static struct mark find_mark(struct comm *c, int64_t rank, bool *device)
{
	struct pulse *p = &c->pulse[rank];
	struct mark m = { .op = atomic_load(&p->op), .waits = atomic_load(&p->waits), .patience = atomic_load(&p->patience),
			  .chunk = atomic_load(&p->chunk), .mb = atomic_load(&p->mb) };

	pthread_mutex_lock(&c->lock);
	int32_t at = device_at(p);

	*device = p->marks && at > 0 && (uint32_t)at <= p->marks->v.n;
	if (*device)
		m = p->marks->v.at[at - 1];
	pthread_mutex_unlock(&c->lock);
	return m;
}

static void say_stalled(struct comm *c, int64_t rank, const struct mark *m, double quiet, const char *why)
{
	char where[64] = "", more[64] = "";

	if (m->chunk >= 0)
		snprintf(where, sizeof where, " in %s of chunk %d, microbatch %lld,", phase_name[m->op->phase], m->chunk, (long long)m->mb);
	if (m->more)
		snprintf(more, sizeof more, " or what follows it, %d instructions,", m->more);
	comm_fail(c, rank, m->op->span, "stalled: %s%s%s has not ended for %.0f s, and %s", opinfo[m->op->code].name, where, more, quiet, why);
}

/* Nothing has happened for so long: has a rank that does not wait, or its device, been at one instruction too long? Do
 * the devices of all wait for each other? */
static void look_for_stalled(struct comm *c, int64_t me, double quiet)
{
	bool all = true, device;
	struct mark m;

	for (int64_t i = 0; i < c->ranks && quiet * 1e3 > QUIET_MS; i++) {
		char who[48] = "it waits for its GPU";

		m = find_mark(c, i, &device);
		all &= device && m.waits;
		if (!m.op || m.waits || quiet * 1e3 < (double)(QUIET_MS + m.patience))
			continue;
		if (i != me)
			snprintf(who, sizeof who, "rank %lld waits", (long long)me);
		say_stalled(c, i, &m, quiet, who);
		return;
	}
	m = find_mark(c, me, &device);
	if (all && m.op && quiet * 1e3 > 2 * QUIET_MS)
		say_stalled(c, me, &m, quiet, "all GPUs wait");
}

void comm_nap(struct comm *c, const struct nap *n)
{
	double last = seconds_now();
	uint64_t moves = atomic_load(&c->moves), seen = progress(c);
	int still = 0;

	atomic_store(&c->pulse[n->rank].waits, true);
	++*n->asleep;
	atomic_fetch_add(&c->asleep, 1);
	while (!n->ready(n->x) && !atomic_load(&c->broken)) {
		tick(n->cond, n->lock);
		if (n->ready(n->x))
			break;
		uint64_t m = atomic_load(&c->moves);
		bool all = atomic_load(&c->asleep) + atomic_load(&c->done) >= c->ranks;

		still = all && m == moves ? still + 1 : 0;
		moves = m;
		if (still >= STILL)
			n->stuck(n->x, "deadlock");
		else if (seconds_now() - last > c->timeout) /* as long as others get on it may wait */
			n->stuck(n->x, "time-out");
		last = progress(c) == seen ? last : seconds_now();
		seen = progress(c);
		look_for_stalled(c, n->rank, seconds_now() - last);
	}
	atomic_store(&c->pulse[n->rank].waits, false);
	if (!n->ready(n->x)) { /* else it was counted out already */
		--*n->asleep;
		atomic_fetch_sub(&c->asleep, 1);
	}
}

void comm_watch_begin(struct comm *c, int64_t rank, struct watch *w)
{
	w->start = w->last = seconds_now();
	w->seen = progress(c);
	atomic_store(&c->pulse[rank].waits, true);
}

bool comm_watch(struct comm *c, int64_t rank, struct watch *w)
{
	uint64_t seen = progress(c);

	if (seen != w->seen)
		w->last = seconds_now();
	w->seen = seen;
	look_for_stalled(c, rank, seconds_now() - w->last);
	if (seconds_now() - w->start > c->timeout)
		comm_fail(c, rank, (struct span){ 0 }, "time-out: its GPU has not ended the step for %.0f s", seconds_now() - w->start);
	return !atomic_load(&c->broken);
}

void comm_watch_end(struct comm *c, int64_t rank)
{
	comm_device(c, rank, NULL, NULL);
	atomic_store(&c->pulse[rank].waits, false);
}

/* From now on they are awake, however long it takes until they run: else a busy machine looks like a
 * deadlock. */
void comm_wake(struct comm *c, pthread_cond_t *cond, int *asleep)
{
	atomic_fetch_sub(&c->asleep, *asleep);
	*asleep = 0;
	atomic_fetch_add(&c->moves, 1);
	pthread_cond_broadcast(cond);
}

/* A member that waits for the turn to pass. */
struct waiting {
	struct group *g;
	int me;
	uint64_t turn;
};

static bool turn_passed(void *x)
{
	const struct waiting *w = x;

	return atomic_load(&w->g->turn) != w->turn;
}

static void member_stuck(void *x, const char *how)
{
	const struct waiting *w = x;

	stuck(w->g, w->me, how);
}

static void sleep_until(struct group *g, int me, uint64_t turn)
{
	struct waiting w = { g, me, turn };
	struct nap n = { &g->met, &g->lock, &g->asleep, turn_passed, member_stuck, &w, g->at[me].rank };

	comm_nap(g->c, &n);
}

static void pause_cpu(int i)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
	if (i % 64 == 63)
		sched_yield();
}

/* The barrier. call NULL: as in the meeting before. */
static bool arrive(struct group *g, int me, const struct call *call)
{
	struct comm *c = g->c;
	uint64_t turn;

	pthread_mutex_lock(&g->lock);
	if (!g->arrived) {
		g->first = call;
		g->first_member = me;
	} else if (!same_call(call, g->first)) {
		mismatch(g, me, call);
	}
	turn = atomic_load(&g->turn);
	if (!atomic_load(&c->broken) && ++g->arrived == g->n) {
		g->arrived = 0;
		for (int i = 0; i < g->n; i++)
			g->at[i].call = NULL;
		atomic_store(&g->turn, turn + 1);
		comm_wake(c, &g->met, &g->asleep);
		pthread_mutex_unlock(&g->lock);
		return true;
	}
	g->at[me].call = call;
	pthread_mutex_unlock(&g->lock);
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load(&g->turn) != turn || atomic_load(&c->broken))
			return !atomic_load(&c->broken);
		pause_cpu(i);
	}
	pthread_mutex_lock(&g->lock);
	sleep_until(g, me, turn);
	pthread_mutex_unlock(&g->lock);
	return !atomic_load(&c->broken);
}

bool comm_meet(struct group *g, int me, const struct call *call, void *const *in, void *const *out)
{
	g->at[me].in = in;
	g->at[me].out = out;
	return arrive(g, me, call);
}

bool comm_wait(struct group *g, int me)
{
	static const struct call again = { .name = "the end of a collective" };

	return arrive(g, me, &again);
}

bool comm_step(struct group *g, int me, const struct call *call)
{
	return arrive(g, me, call);
}

const void *comm_in(const struct group *g, int member, uint32_t k)
{
	return g->at[member].in[k];
}

const void *comm_out(const struct group *g, int member, uint32_t k)
{
	return g->at[member].out[k];
}

int64_t comm_rank(const struct group *g, int member)
{
	return g->at[member].rank;
}

int comm_size(const struct group *g)
{
	return g->n;
}
