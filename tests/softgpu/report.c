/* report.c - settings from the environment, faults found, small helpers. */
#include "tests/softgpu/api.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct config cfg;
static int reports;

static void bad_setting(const char *name, const char *value, const char *want)
{
	fprintf(stderr, "softgpu: %s=%s: expected %s\n", name, value, want);
	_exit(2);
}

static double number(const char *name, double otherwise, double min, double max)
{
	const char *s = getenv(name);
	if (!s || !*s)
		return otherwise;
	char *end;
	double x = strtod(s, &end);
	const char *unit = "KMG", *u = *end ? strchr(unit, *end) : NULL;
	if (u) {
		x *= (double)(1ull << 10 * (u - unit + 1));
		end++;
	}
	char want[80];
	snprintf(want, sizeof want, "a number from %g to %g", min, max);
	if (end == s || *end || !(x >= min && x <= max))
		bad_setting(name, s, want);
	return x;
}

/* "3,1,2" */
static void ways(void)
{
	const char *s = getenv("SOFTGPU_WAYS");
	char *end;
	while (s && *s) {
		double ms = strtod(s, &end);
		if (end == s || (*end && *end != ',') || ms < 0 || cfg.nways == 8)
			bad_setting("SOFTGPU_WAYS", s, "up to 8 numbers of milliseconds, with commas");
		cfg.way_ms[cfg.nways++] = ms;
		s = *end ? end + 1 : end;
	}
}

static void lose(void)
{
	static const char *const names[] = {"id:kill", "id:hang", "init:kill", "init:hang", "joined:kill", "joined:hang"};
	const char *s = getenv("SOFTGPU_LOSE");
	for (size_t i = 0; s && *s && i < sizeof names / sizeof *names; i++)
		if (!strcmp(s, names[i]))
			cfg.lose = names[i];
	if (s && *s && !cfg.lose)
		bad_setting("SOFTGPU_LOSE", s, "id, init or joined, and :kill or :hang");
}

void config_read(void)
{
	static bool done;
	if (done)
		return;
	done = true;
	cfg.devices = (int)number("SOFTGPU_DEVICES", 1, 0, MAX_DEVICES);
	cfg.check = number("SOFTGPU_CHECK", 0, 0, 1) != 0;
	cfg.seed = (uint64_t)number("SOFTGPU_SEED", 1, 0, 1e15);
	cfg.timeout = number("SOFTGPU_TIMEOUT", 5, 0.01, 1e6);
	cfg.memory = (size_t)number("SOFTGPU_MEMORY", 4.0 * (1 << 30), 1 << 16, 1e12);
	cfg.arch = (int)number("SOFTGPU_ARCH", 90, 70, 129);
	ways();
	cfg.plain = number("SOFTGPU_PLAIN", 0, 0, 1) != 0;
	cfg.verbose = number("SOFTGPU_VERBOSE", 0, 0, 1) != 0;
	cfg.drop_wait = (int)number("SOFTGPU_DROP_WAIT", 0, 0, 1e9);
	const char *s = getenv("SOFTGPU_PROCESSES");
	cfg.processes = s && *s ? s : NULL;
	s = getenv("SOFTGPU_STALL");
	char end;
	if (s && *s && (sscanf(s, "%d:%d:%lf%c", &cfg.stall.dev, &cfg.stall.launch, &cfg.stall.seconds, &end) != 3 || cfg.stall.launch < 1))
		bad_setting("SOFTGPU_STALL", s, "gpu:launch:seconds");
	lose();
	s = getenv("SOFTGPU_ORDER");
	const char *const names[] = {"fifo", "lifo", "random"};
	for (int i = 0; s && *s && i < 3; i++)
		if (!strcmp(s, names[i])) {
			cfg.order = (enum order)i;
			s = NULL;
		}
	if (s && *s)
		bad_setting("SOFTGPU_ORDER", s, "fifo, lifo or random");
}

void *must(void *p)
{
	if (p)
		return p;
	fprintf(stderr, "softgpu: out of memory\n");
	abort();
}

static struct {
	char **at;
	size_t n, cap;             /* cap: a power of two */
} texts;

static char **text_slot(const char *s)
{
	size_t h = 5381;
	for (const char *c = s; *c; c++)
		h = h * 33 + (unsigned char)*c;
	while (texts.at[h & (texts.cap - 1)] && strcmp(texts.at[h & (texts.cap - 1)], s))
		h++;
	return &texts.at[h & (texts.cap - 1)];
}

static void texts_grow(void)
{
	char **old = texts.at;
	size_t had = texts.cap;
	texts.cap = had ? 2 * had : 256;
	texts.at = must(calloc(texts.cap, sizeof *texts.at));
	for (size_t i = 0; i < had; i++)
		if (old[i])
			*text_slot(old[i]) = old[i];
	free(old);
}

char *text(const char *fmt, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	va_list ap;
	va_start(ap, fmt);
	char *s = NULL;
	if (vasprintf(&s, fmt, ap) < 0)
		s = must(NULL);
	va_end(ap);
	pthread_mutex_lock(&lock);
	if (2 * texts.n >= texts.cap)
		texts_grow();
	char **slot = text_slot(s);
	if (*slot) {
		free(s);
	} else {
		*slot = s;
		texts.n++;
	}
	s = *slot;
	pthread_mutex_unlock(&lock);
	return s;
}

bool report_again(const char *kind, const char *key)
{
	enum { MOST = 50 };
	static const char *said[MOST];
	static int n;
	const char *k = text("%s: %s", kind, key);
	reports++;
	for (int i = 0; i < n; i++)
		if (said[i] == k)
			return true;
	if (n == MOST)
		return true;
	said[n++] = k;
	if (n == MOST)
		fprintf(stderr, "softgpu: the last report that is printed:\n");
	return false;
}

void report_print(const char *kind, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fprintf(stderr, "softgpu: %s: ", kind);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
}

void report(const char *kind, const char *fmt, ...)
{
	char buf[4096];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	if (!report_again(kind, buf))
		report_print(kind, "%s", buf);
}

/* For tests of the software GPU itself: reports until now, and the number is set back. */
int softgpuReports(void)
{
	int n = reports;
	reports = 0;
	return n;
}

__attribute__((destructor)) static void at_exit(void)
{
	if (!reports)
		return;
	fprintf(stderr, "softgpu: %d report%s\n", reports, reports == 1 ? "" : "s");
	fflush(NULL);
	_exit(66);
}

uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
