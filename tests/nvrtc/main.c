/* main.c - the real NVRTC takes the kernels of plans, and what they use of a multiprocessor stays within limits.
 *
 *   kernels [-a] [-k NAME] [-t TABLE] [-j WORKERS] PLAN...    plans as `ptc show --after=memory` prints them
 *
 * NAME: only kernels whose names begin so.
 * -a: every kernel for every architecture. Without it: of kernels that differ in sizes only one, and each for one architecture, in
 * turn; of those made by hand, half.
 * Kernels of one text are compiled once, many in one source; processes take the sources one after another, the long ones first.
 * TABLE gets a line for each kernel and architecture. Says what is wrong, then what there was. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/nvrtc/kernels.h"

/* Registers of a multiprocessor; a warp gets them in steps of 8 a thread. MOST_STACK bytes: what the largest few have taken so far. */
enum { REGISTERS = 65536, STEP = 8, MOST_SPILL = 0, MOST_STACK = 32, AT_ONCE = 24 };
static const struct {
	const char *name;
	int shared;                /* bytes that a block may have, by the programming guide's table of compute capabilities */
} archs[] = { { "sm_90a", 232448 }, { "sm_80", 166912 }, { "sm_100", 232448 } };
enum { ARCHS = LEN(archs) };

struct batch {
	int arch, n, which[AT_ONCE];
	double cost;
};
struct job {
	struct arena *mem;
	struct catalog k;
	struct nvrtc *lib;
	bool all;
	const char *only;
	VEC(struct batch) batches;
	struct usage (*usage)[ARCHS];      /* shared by the processes, as is next */
	int *next, workers, wrong;
};

/* -- what is compiled -- */

static double cost_of(const struct kernel *k)
{
	return strncmp(k->name, "ptc_attend", 10) ? 1 : strstr(k->name, "dkv") ? 300 : 100;
}

static void put_batch(struct job *j, int kernel, int arch)
{
	const struct kernel *k = &j->k.all.at[kernel];
	double cost = cost_of(k);
	struct batch *b = NULL;

	for (uint32_t i = 0; cost < 2 && i < j->batches.n && !b; i++) {
		struct batch *x = &j->batches.at[i];

		if (x->arch == arch && x->n < AT_ONCE && x->cost < 2 * AT_ONCE && j->k.all.at[x->which[0]].prelude == k->prelude)
			b = x;
	}
	if (!b) {
		PUSH(j->mem, &j->batches, ((struct batch){ .arch = arch }));
		b = &j->batches.at[j->batches.n - 1];
	}
	b->which[b->n++] = kernel;
	b->cost += cost;
}

static bool is_due(const struct job *j, int kernel, int arch)
{
	const struct kernel *k = &j->k.all.at[kernel];

	if (strncmp(k->name, j->only, strlen(j->only)) != 0)
		return false;
	/* Those made by hand, attention above all, take ptxas as long as sixty others. */
	return j->all || (k->like == kernel && (int)((k->hash >> 8) % (k->named ? 2 * ARCHS : ARCHS)) == arch);
}

static int by_cost(const void *a, const void *b)
{
	double x = ((const struct batch *)a)->cost, y = ((const struct batch *)b)->cost;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* -- compiling -- */

static void one_batch(struct job *j, const struct batch *b)
{
	struct arena *mem = arena_new();
	struct usage u[AT_ONCE];
	const char *log = nvrtc_compile(mem, j->lib, &j->k, b->which, b->n, archs[b->arch].name, u);

	if (log) {
		const struct kernel *k = &j->k.all.at[b->which[0]];

		fprintf(stderr, "%s from %s and %d more for %s:\n%.3000s\n", k->name, k->plan, b->n - 1, archs[b->arch].name, log);
	}
	for (int i = 0; i < b->n && !log; i++)
		j->usage[b->which[i]][b->arch] = u[i];
	arena_free(mem);
}

static void work(struct job *j)
{
	for (;;) {
		int i = __atomic_fetch_add(j->next, 1, __ATOMIC_RELAXED);

		if (i >= (int)j->batches.n)
			_exit(0);
		one_batch(j, &j->batches.at[i]);
	}
}

static void *in_common(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no memory in common");
	return p;
}

/* A worker that dies leaves kernels that were not compiled, which are found then. */
static void compile_all(struct job *j)
{
	for (int i = 0; i < j->workers; i++) {
		pid_t pid = fork();

		if (!pid)
			work(j);
		if (pid < 0)
			die("no process can be started");
	}
	for (int i = 0, status; i < j->workers; i++)
		if (wait(&status) < 0 || status)
			j->wrong++, fprintf(stderr, "a process that compiles ends with status %d\n", status);
}

/* -- the verdict -- */

static bool check(const struct kernel *k, int arch, const struct usage *u)
{
	int registers = (u->registers + STEP - 1) / STEP * STEP;
	const char *why = NULL;

	if (!u->state)
		why = "was not compiled";
	else if (u->spill_stores > MOST_SPILL || u->spill_loads > MOST_SPILL)
		why = "spills";
	else if (u->stack > MOST_STACK)
		why = "keeps variables in memory";
	else if (registers * k->threads > REGISTERS)
		why = "has more registers than there are";
	else if (k->shared + (uint32_t)u->shared > (uint32_t)archs[arch].shared)
		why = "has more shared memory than a block may have";
	if (why)
		fprintf(stderr, "%s (first of %s) for %s %s: %d registers, %d threads, stack of %d, spills of %d and %d, %u + %d bytes shared\n",
			k->name, k->plan, archs[arch].name, why, u->registers, k->threads, u->stack, u->spill_stores, u->spill_loads,
			k->shared, u->shared);
	return !why;
}

static void verdict(struct job *j, FILE *table)
{
	int done = 0, most = 0, last = 0;

	for (uint32_t i = 0; i < j->k.all.n; i++)
		for (int a = 0; a < ARCHS; a++) {
			const struct kernel *k = &j->k.all.at[i];
			const struct usage *u = &j->usage[i][a];

			if (!is_due(j, (int)i, a))
				continue;
			done++;
			j->wrong += !check(k, a, u);
			most = u->registers > most ? u->registers : most;
			last = u->registers * k->threads > last ? u->registers * k->threads : last;
			if (table)
				fprintf(table, "%-8s %-28s %4d threads %3d registers %5d stack %5d spills %6u shared %3d uses %s\n", archs[a].name, k->name,
					k->threads, u->registers, u->stack, u->spill_stores, k->shared, k->uses, k->plan);
		}
	struct rusage r;

	getrusage(RUSAGE_CHILDREN, &r);
	printf("%d kernels, %u different, %d of them but for sizes; NVRTC %s compiled %d in %lld s of processors; at most %d registers, %d a block; %d wrong\n",
	       j->k.total, j->k.all.n, j->k.kinds, nvrtc_version(j->mem, j->lib), done, (long long)(r.ru_utime.tv_sec + r.ru_stime.tv_sec), most,
	       last, j->wrong);
}

int main(int argc, char **argv)
{
	struct job j = { .mem = arena_new(), .only = "", .workers = (int)sysconf(_SC_NPROCESSORS_ONLN) };
	FILE *table = NULL;
	struct diag d;
	int c;

	j.k.mem = j.mem;
	while ((c = getopt(argc, argv, "ak:t:j:")) >= 0)
		if (c == 'a')
			j.all = true;
		else if (c == 'k')
			j.only = optarg;
		else if (c == 'j')
			j.workers = atoi(optarg);
		else if (c != 't' || !(table = fopen(optarg, "w")))
			return 2;
	if (!(j.lib = nvrtc_find(j.mem))) {
		puts("no NVRTC");
		return 77;
	}
	diag_init(&d, j.mem, NULL, stderr);
	for (int i = optind; i < argc; i++)
		if (!kernels_add(&j.k, argv[i], &d))
			return 2;
	for (uint32_t i = 0; i < j.k.all.n; i++)
		for (int a = 0; a < ARCHS; a++)
			if (is_due(&j, (int)i, a))
				put_batch(&j, (int)i, a);
	qsort(j.batches.at, j.batches.n, sizeof *j.batches.at, by_cost);
	j.usage = in_common((j.k.all.n + 1) * sizeof *j.usage);
	j.next = in_common(sizeof *j.next);
	compile_all(&j);
	verdict(&j, table);
	if (table && fclose(table))
		return 2;
	arena_free(j.mem);
	return j.wrong ? 1 : 0;
}
