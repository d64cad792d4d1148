/* tests/mutate/main.c - build/mutate [-a] [-v] N SEED PLAN...: N mutants of the plans, each of one fault.
 *
 * What is true of a mutant is asked of a run of all its ranks, twice: collectives and copies that were started are carried
 * out when they are waited for, and at once. Memory that a step may not rely on holds NaNs before it. If the run ends as that
 * of the original, in the same reports and the same bits of every buffer, the mutant is harmless, else it is
 * unsafe: it hangs, crashes, is refused by a rank, or computes something else. `ptc verify` is to reject every
 * one that is unsafe, unless what it computes is what its own text says (meaning.c): then it is a plan of another model, and
 * all ranks have computed that alike. Of those that it rejects one in four is run, with -a all; -v tells of each. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ir/text.h"
#include "passes/passes.h"
#include "runtime/internal.h"
#include "tests/mutate/mutate.h"
#include "tests/poison.h"

enum { STEPS = 2, SECONDS = 20, AGAIN = 10 /* times as many */, KINDS = 64, SEED = 7 };
enum truth { SAME, MODEL, OTHER, BROKEN, STUCK };

struct outcome {
	uint64_t result[2]; /* what was computed: late, eager */
	bool meant;         /* by one rank too, that reads the same text */
};

struct plan {
	const char *path, *text;
	size_t len;
	uint64_t result;
};

struct row {
	int64_t mutants, run, unsafe, rejected, harmless_rejected, model, missed;
};

static bool loud, all_run;
static volatile sig_atomic_t stopped;

static void stop(int sig)
{
	(void)sig;
	stopped = 1;
}

/* -- a run of all ranks -- */

static uint64_t hash_buffers(struct runtime *rt, uint64_t h)
{
	for (uint32_t i = 0; i < rt->m->bufs.n; i++) {
		const struct buffer *b = rt->m->bufs.at[i];
		int64_t n = 1;

		if (b->role == B_INPUT)
			continue;
		for (int k = 0; k < b->nd; k++)
			n *= dim_size(rt->m, b->d[k]);
		double *x = calloc((size_t)n + 1, sizeof *x);

		if (!x)
			_exit(BROKEN);
		rt_get(rt, b->name, x);
		h = fnv1a(h, x, (size_t)n * sizeof *x);
		free(x);
	}
	for (uint32_t i = 0; i < rt->reports.n; i++)
		h = fnv1a(h, &rt->reports.at[i].x, sizeof(double));
	return h;
}

double input_value(const struct buffer *b, int64_t step, int64_t i)
{
	uint64_t r = fnv1a(FNV_START + (uint64_t)step, &i, sizeof i) >> 20;

	return b->tokens ? (double)(r % (uint64_t)b->tokens) : (double)(r % 2000) / 1000 - 1;
}

static void set_inputs(struct runtime *rt, int64_t step)
{
	for (uint32_t i = 0; i < rt->inputs.n; i++) {
		const struct host_input *in = rt->inputs.at[i];
		double *x = calloc((size_t)in->count + 1, sizeof *x);

		if (!x)
			_exit(BROKEN);
		for (int64_t k = 0; k < in->count; k++)
			x[k] = input_value(in->buf, step, k);
		rt_set(rt, in->buf->name, x);
		free(x);
	}
}

/* meant: whether it does what its text says; NULL: that is not asked. */
static uint64_t run(const struct plan *p, bool eager, bool *meant)
{
	struct arena *mem = arena_new();
	struct meaning *x = meant ? meaning_of(mem, p->path, p->text, p->len, SEED) : NULL;
	struct diag d;
	struct runtime *rt;
	uint64_t h = FNV_START;

	diag_init(&d, mem, NULL, loud ? stderr : NULL);
	unsetenv(eager ? "PTC_TEST_LATE" : "PTC_TEST_EAGER");
	setenv(eager ? "PTC_TEST_EAGER" : "PTC_TEST_LATE", "1", 1);
	struct module *m = module_parse(mem, p->path, p->text, p->len, &d);

	if (!m || m->arena > 1 << 28 || module_ranks(m) > 64 || m->workspace < 0)
		_exit(BROKEN);
	m->workspace = m->workspace < 1 << 24 ? m->workspace : 1 << 24;
	rt = rt_open(m, SEED, &d);
	if (!rt)
		_exit(BROKEN);
	for (int64_t step = 0; step < STEPS; step++) {
		set_inputs(rt, step);
		if (!poison(rt))
			_exit(BROKEN);
		if (!rt_step(rt, step, true, &d))
			_exit(BROKEN);
		h = hash_buffers(rt, h);
		if (x)
			*meant &= meaning_step(x, rt, step);
	}
	rt_close(rt);
	arena_free(mem);
	return h;
}

/* Late, eager, and once more beside one rank unless both end as they should. */
static struct outcome run_all(const struct plan *p)
{
	struct outcome o = { { run(p, false, NULL), run(p, true, NULL) }, true };

	if (o.result[0] != p->result || o.result[1] != p->result)
		o.meant &= run(p, false, &o.meant) == o.result[0];
	return o;
}

/* In a process of its own: it may crash or hang. */
static enum truth try_run(const struct plan *p, struct outcome *o, int seconds)
{
	int fd[2], status;
	struct pollfd in;
	bool there = false;

	fflush(NULL);
	if (pipe(fd))
		exit(3);
	pid_t pid = fork();

	if (pid < 0)
		exit(3);
	if (pid == 0) {
		struct rlimit none = { 0, 0 };
		int sink = loud ? -1 : open("/dev/null", O_WRONLY);

		setrlimit(RLIMIT_CORE, &none);
		if (sink >= 0)
			dup2(sink, 2);
		*o = run_all(p);
		_exit(write(fd[1], o, sizeof *o) == sizeof *o ? 0 : BROKEN);
	}
	close(fd[1]);
	in = (struct pollfd){ .fd = fd[0], .events = POLLIN };
	int n;

	while ((n = poll(&in, 1, seconds * 1000)) < 0 && errno == EINTR)
		;
	if (n > 0)
		there = read(fd[0], o, sizeof *o) == sizeof *o;
	else
		in.revents = 0;
	kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	close(fd[0]);
	return there ? SAME : in.revents ? BROKEN : STUCK;
}

static enum truth truth_of(const struct plan *mutant, bool accepted)
{
	struct outcome o;
	enum truth t = try_run(mutant, &o, SECONDS);

	if (t == STUCK && accepted) /* the machine may be busy, and its kernels are new */
		t = try_run(mutant, &o, AGAIN * SECONDS);
	if (t != SAME)
		return t;
	if (o.result[0] != o.result[1])
		return OTHER;
	return o.result[0] == mutant->result ? SAME : o.meant ? MODEL : OTHER;
}

/* -- the verdict -- */

static bool accepted(const struct plan *p, char *why, size_t size)
{
	struct arena *mem = arena_new();
	struct proof proof;
	struct diag d;

	diag_init(&d, mem, NULL, NULL);
	struct module *m = module_parse(mem, p->path, p->text, p->len, &d);
	bool ok = m && prove_plan(m, &proof, &d);

	snprintf(why, size, "%s", d.log.s ? d.log.s : "");
	arena_free(mem);
	return ok;
}

/* A mutant of p by mutation k; false: it can't have one, or the text is the same. */
static bool mutate(struct arena *mem, const struct plan *p, int k, uint64_t *seed, struct plan *out)
{
	struct diag d;

	diag_init(&d, mem, NULL, NULL);
	struct module *m = module_parse(mem, p->path, p->text, p->len, &d);

	if (!m || !mutations[k].change(m, seed))
		return false;
	*out = *p;
	out->text = module_print(m, mem, &out->len);
	return out->len != p->len || memcmp(out->text, p->text, p->len) != 0;
}

static void keep(bool missed, const char *kind, const struct plan *p, int64_t n)
{
	const char *what = missed ? "missed" : "model";
	char path[256];

	snprintf(path, sizeof path, "%s/%s-%lld.pir", getenv("TMP") ? getenv("TMP") : "/tmp", what, (long long)n);
	FILE *f = fopen(path, "w");

	if (!f)
		return;
	fwrite(p->text, 1, p->len, f);
	fclose(f);
	printf("%s  %s of %s: %s\n", missed ? "MISSED" : "another model, computed alike:", kind, p->path, path);
}

/* A mutant of some plan by mutation k: not each has what it changes. */
static const struct plan *make_mutant(struct arena *mem, const struct plan *plan, int nplan, int64_t n, int k, uint64_t *seed,
				      struct plan *out)
{
	for (int i = 0; i < 2 * nplan; i++) {
		const struct plan *p = &plan[(n + i) % nplan];

		if (mutate(mem, p, k, seed, out))
			return p;
	}
	return NULL;
}

static void judge(const struct plan *plan, int nplan, int64_t n, int k, uint64_t *seed, struct row *row)
{
	static const char *const names[] = { "harmless", "another model", "other results", "broken", "stuck" };
	struct arena *mem = arena_new();
	struct plan mutant;
	char why[300];
	const struct plan *p = make_mutant(mem, plan, nplan, n, k, seed, &mutant);

	if (p) {
		bool yes = accepted(&mutant, why, sizeof why);
		bool asked = yes || all_run || n % 4 == 0;
		enum truth t = asked ? truth_of(&mutant, yes) : BROKEN;

		row->mutants++;
		row->run += asked;
		row->unsafe += asked && t > MODEL;
		row->rejected += !yes;
		row->harmless_rejected += !yes && t == SAME;
		row->model += yes && t == MODEL;
		row->missed += yes && t > MODEL;
		if (loud)
			printf("%-28s %-30s %-14s %s", mutations[k].name, p->path, names[t], yes ? "accepted\n" : why);
		if (yes && t != SAME)
			keep(t > MODEL, mutations[k].name, &mutant, n);
	}
	arena_free(mem);
}

static bool load(struct plan *p, const char *path)
{
	FILE *f = fopen(path, "rb");
	char why[300], *text = calloc(1, 1 << 24);

	if (!f || !text)
		return false;
	p->path = path;
	p->len = fread(text, 1, 1 << 24, f);
	fclose(f);
	if (strncmp(text, "ptc-plan", 8) == 0) {
		char *end = strchr(text, '\n') + 1;

		p->len -= (size_t)(end - text);
		text = end;
	}
	p->text = text;
	if (!accepted(p, why, sizeof why)) {
		printf("REJECTED  the original %s: %s\n", path, why);
		return false;
	}
	struct outcome o;

	if (try_run(p, &o, AGAIN * SECONDS) != SAME || o.result[0] != o.result[1] || !o.meant) {
		printf("FAILED  the original %s does not run, not always alike, or not as its text says\n", path);
		return false;
	}
	p->result = o.result[0];
	return true;
}

static void show(const char *name, const struct row *r)
{
	printf("%-28s %8lld %8lld %8lld %8lld %12lld %8lld %8lld\n", name, (long long)r->mutants, (long long)r->run,
	       (long long)r->unsafe, (long long)r->rejected, (long long)r->harmless_rejected, (long long)r->model,
	       (long long)r->missed);
}

int main(int argc, char **argv)
{
	struct row rows[KINDS] = { { 0 } }, all = { 0 };
	int kinds = 0, a = 1, nplan = 0;
	struct plan plan[64];

	for (; a < argc && argv[a][0] == '-'; a++) {
		loud |= strcmp(argv[a], "-v") == 0;
		all_run |= strcmp(argv[a], "-a") == 0;
	}
	if (argc - a < 3)
		return 2;
	int64_t n = atoll(argv[a]);
	uint64_t seed = (uint64_t)atoll(argv[a + 1]);

	for (a += 2; a < argc && nplan < 64; a++)
		if (!load(&plan[nplan++], argv[a]))
			return 1;
	signal(SIGTERM, stop); /* and shows what it has */
	while (mutations[kinds].name)
		kinds++;
	for (int64_t i = 0; i < n && !stopped; i++)
		judge(plan, nplan, i / kinds + i, (int)(i % kinds), &seed, &rows[i % kinds]);
	printf("%-28s %8s %8s %8s %8s %12s %8s %8s\n", "", "mutants", "run", "unsafe", "rejected", "harmless rej.", "models", "MISSED");
	for (int k = 0; k < kinds; k++) {
		show(mutations[k].name, &rows[k]);
		all.mutants += rows[k].mutants;
		all.run += rows[k].run;
		all.unsafe += rows[k].unsafe;
		all.rejected += rows[k].rejected;
		all.harmless_rejected += rows[k].harmless_rejected;
		all.model += rows[k].model;
		all.missed += rows[k].missed;
	}
	show("all", &all);
	return all.missed ? 1 : 0;
}
