/* host.c - the program's threads, their waits, and when nodes run.
 *
 * Nodes run only when no thread of the program that has ever called can change anything: each waits in a call, or polls, or
 * sleeps elsewhere (seen twice, without a call in between). So the choice of the next node is the same in every run,
 * however the threads race, and a deadlock shows at once: nothing is ready and all wait. Ranks of other processes are
 * looked at again and again, for as long as one of them does anything. */
#include "tests/softgpu/softgpu.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct host *self_host;
static struct host *hosts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;
static _Thread_local struct host *mine;
static _Thread_local bool in_callback;
static unsigned long calls;        /* of the API, all threads */
static double progress;            /* when a node ran or a thread called, but to poll */
static double progress_before;     /* the call at hand */

static void host_exit(void *p)
{
	struct host *h = p;
	pthread_mutex_lock(&lock);
	for (struct host **at = &hosts; *at; at = &(*at)->next)
		if (*at == h) {
			*at = h->next;
			break;
		}
	calls++;
	pthread_cond_broadcast(&change);
	pthread_mutex_unlock(&lock);
	if (h->declared)
		free(h->declared->range);
	free(h->declared);
	free(h->group);
	free(h->clock.tick);
	free(h);
}

static void make_key(void)
{
	if (pthread_key_create(&key, host_exit))
		must(NULL);
}

/* polls: whatever the call finds, it adds no work. */
static bool enter_to(bool polls)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (in_callback)
		return false;
	pthread_once(&once, make_key);
	if (mine)
		mine->entering = !polls || !mine->polling;
	pthread_mutex_lock(&lock);
	config_read();
	if (!mine) {
		mine = must(calloc(1, sizeof *mine));
		mine->tid = syscall(SYS_gettid);
		mine->dev = -1;
		mine->mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
		mine->next = hosts;
		hosts = mine;
		pthread_setspecific(key, mine);
	}
	self_host = mine;
	mine->entering = mine->polling = mine->settled = false;
	calls++;
	progress_before = progress;
	progress = now();
	return true;
}

bool enter(void)
{
	return enter_to(false);
}

bool enter_poll(void)
{
	return enter_to(true);
}

void leave(void)
{
	pthread_mutex_unlock(&lock);
}

void host_callback(CUhostFn fn, void *data)
{
	in_callback = true;
	fn(data);
	in_callback = false;
}

/* Sleeps, as the kernel sees it: 'S' after the name's last ')'. */
static bool asleep(long tid)
{
	char path[64], buf[512];
	snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
	FILE *f = fopen(path, "r");
	if (!f)
		return true;
	size_t n = fread(buf, 1, sizeof buf - 1, f);
	fclose(f);
	buf[n] = 0;
	const char *p = strrchr(buf, ')');
	return p && p[1] && p[2] == 'S';
}

/* How often the thread has begun to run, by the third number of its schedstat; 0: not known. */
static unsigned long runs(long tid)
{
	char path[64];
	unsigned long n = 0;
	snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", tid);
	FILE *f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%*u %*u %lu", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

/* Threads that may still do something: 0 none; 1 all of them sleep or poll; 2 some run. */
static int others_active(const struct host *me)
{
	int most = 0;
	for (struct host *h = hosts; h; h = h->next) {
		int a = h == me || h->blocked ? 0 : !h->woken && !h->entering && (h->polling || asleep(h->tid)) ? 1 : 2;
		most = a > most ? a : most;
	}
	return most;
}

/* Has one of them come to call, or can it go on now? Without a look at those that sleep: who wakes up calls before it matters. */
static bool others_call(const struct host *me)
{
	for (const struct host *h = hosts; h; h = h->next)
		if (h != me && (h->entering || h->woken))
			return true;
	return false;
}

/* All that sleep have been seen to for long enough. */
static void settle(const struct host *me)
{
	for (struct host *h = hosts; h; h = h->next)
		if (h != me && !h->blocked && !h->polling) {
			h->runs = runs(h->tid);
			h->settled = h->runs;
		}
}

/* Do all that are active still sleep as they did then? */
static bool is_settled(const struct host *me)
{
	for (const struct host *h = hosts; h; h = h->next)
		if (h != me && !h->blocked && !h->polling && (!h->settled || runs(h->tid) != h->runs))
			return false;
	return true;
}

static bool someone_patient(void)
{
	for (const struct host *h = hosts; h; h = h->next)
		if (h->blocked && h->patient)
			return true;
	return false;
}

static bool wake(void)
{
	bool some = false;
	for (struct host *h = hosts; h; h = h->next)
		if (h->blocked && h->over(h->arg)) {
			h->blocked = false;
			h->woken = some = true;
		}
	if (some)
		pthread_cond_broadcast(&change);
	return some;
}

static void nap(double seconds)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	long ns = t.tv_nsec + (long)(seconds * 1e9);
	t.tv_sec += ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	pthread_cond_timedwait(&change, &lock, &t);
}

static void say_deadlock(void)
{
	char buf[3500] = "";
	size_t n = 0;
	for (struct host *h = hosts; h; h = h->next)
		if (h->blocked && n < sizeof buf)
			n += (size_t)snprintf(buf + n, sizeof buf - n, " {host thread: %s}", h->why);
	for (struct node *x = pending; x; x = x->after) {
		if (x->waits || n >= sizeof buf)
			continue;
		char why[400] = "";
		if (x->work && x->work->explain)
			x->work->explain(x, why, sizeof why);
		n += (size_t)snprintf(buf + n, sizeof buf - n, " {%s on gpu%d%s%s}", x->what, x->dev, *why ? " " : "", why);
	}
	report("deadlock", "nothing can run:%s", buf);
	for (struct host *h = hosts; h; h = h->next)
		if (h->blocked) {
			h->blocked = false;
			h->woken = h->gave_up = true;
		}
	for (int d = 0; d < cfg.devices; d++)
		for (struct node *x = pending; x; x = x->after)
			if (x->dev == d) {
				device_fail(d, CUDA_ERROR_LAUNCH_TIMEOUT);
				break;
			}
	pthread_cond_broadcast(&change);
}

/* What can be done is done, for one node. */
static bool run_next(void)
{
	struct node *n = node_pick();
	if (n)
		node_run(n);
	else if (!remote_poll() && !stall_poll())
		return false;
	progress = now();
	remote_beat();
	return true;
}

/* Seconds after which nothing will come any more. */
static double patience(int active, double usual)
{
	return (active == 2 || remote_waits() ? 20 : usual) * cfg.timeout;
}

/* For how long nothing has happened, here or in other processes. */
static double quiet(void)
{
	if (remote_moves() || stall_waits())
		progress = now();
	return now() - progress;
}

/* One step of a wait. false: a deadlock. */
static bool step(struct host *me, unsigned long *seen, double *since)
{
	if (me->over(me->arg)) {        /* by what another thread has called */
		me->blocked = false;
		return true;
	}
	int active = others_active(me);
	if (*seen != calls) {
		*seen = calls;
		*since = progress = now();
	}
	double idle = now() - *since;
	if (active && idle < (active == 1 ? 0.001 : 0.5) && !(active == 1 && is_settled(me))) {
		nap(0.0005);
		return true;
	}
	if (active == 1 && idle >= 0.001)
		settle(me);
	if (run_next()) {
		wake();
		return true;
	}
	if (!active && !someone_patient() && !remote_waits() && !stall_waits())
		return false;
	if (quiet() > patience(active, 1))
		return false;
	nap(0.002);
	return true;
}

bool host_wait(bool (*over)(void *), void *arg, const char *why, bool patient)
{
	struct host *me = mine;
	unsigned long seen = calls;
	double since = now();
	me->why = why;
	me->over = over;
	me->arg = arg;
	me->patient = patient;
	me->gave_up = false;
	me->blocked = !over(arg);
	wake();
	while (me->blocked)
		if (!step(me, &seen, &since))
			say_deadlock();
	me->woken = false;
	calls++;
	self_host = me;
	return !me->gave_up;
}

bool host_poll(bool (*over)(void *), void *arg)
{
	struct host *me = mine;
	me->polling = true;
	calls--;
	progress = progress_before;
	bool stuck = others_active(me) == 2;
	while (!over(arg) && !stuck && !others_call(me))
		stuck = !run_next() || wake();
	/* Who polls may give up: that is waited for. */
	if (!over(arg) && pending && quiet() > patience(others_active(me), 4) && !node_pick())
		say_deadlock();
	self_host = me;
	me->polling = !over(arg);
	return !me->polling;
}
