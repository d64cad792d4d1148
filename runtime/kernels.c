/* runtime/kernels.c - generated kernels: C source to a shared object by the system's cc, cached on disk.
 *
 * What is cached is a kernel, by its text, flags, compiler and processor: other plans of a model, and its twin on one
 * rank, have most of them too. Those that a plan lacks are compiled together; the file is linked under the name of
 * each. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cache.h"

enum { MAX_ARGS = 64 };
static const struct span nowhere;

const char *kernel_compiler(void)
{
	const char *cc = getenv("CC");

	return cc && *cc ? cc : "cc";
}

/* Splits words at spaces; no quoting. */
static int words(struct arena *mem, const char *s, char **argv, int n)
{
	while (*s && n < MAX_ARGS - 8) {
		size_t len = strcspn(s, " ");

		if (len)
			argv[n++] = arena_strndup(mem, s, len);
		s += len;
		s += strspn(s, " ");
	}
	return n;
}

static char *read_fd(struct arena *mem, int fd)
{
	struct text t = { .mem = mem };
	char buf[4096];
	ssize_t k;

	while ((k = read(fd, buf, sizeof buf)) > 0 || (k < 0 && errno == EINTR))
		if (k > 0)
			text_bytes(&t, buf, (size_t)k);
	return t.s ? t.s : arena_strdup(mem, "");
}

/* Starts argv with both its streams at `to`, and nothing to read. An errno, 0: it runs. Not by fork: the pages of a
 * process that holds tensors are many. */
static int start(pid_t *pid, char *const *argv, int to)
{
	posix_spawn_file_actions_t files;
	int why = posix_spawn_file_actions_init(&files);

	if (why)
		return why;
	why = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	for (int fd = 1; !why && fd <= 2; fd++)
		why = posix_spawn_file_actions_adddup2(&files, to, fd);
	if (!why)
		why = posix_spawnp(pid, argv[0], &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	return why;
}

/* Runs argv; what it says (both streams) is returned, its status put in *status. */
static char *run_program(struct arena *mem, char *const *argv, int *status)
{
	int p[2];
	pid_t pid;

	*status = -1;
	if (pipe2(p, O_CLOEXEC) != 0)
		return arena_printf(mem, "pipe: %s", strerror(errno));
	int why = start(&pid, argv, p[1]);

	close(p[1]);
	char *said = why ? arena_printf(mem, "%s: %s\n", argv[0], strerror(why)) : read_fd(mem, p[0]);

	close(p[0]);
	while (!why && waitpid(pid, status, 0) < 0 && errno == EINTR)
		;
	return said;
}

/* What decides which instructions -march=native makes. */
static char *processor(struct arena *mem)
{
	int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return arena_strdup(mem, "unknown");
	char *all = read_fd(mem, fd), *end = strstr(all, "\n\n"), *flags = strstr(all, "\nflags");
	char *model = strstr(all, "model name");

	close(fd);
	if (end)
		*end = 0;
	return arena_printf(mem, "%.200s %s", model ? model : "", flags && (!end || flags < end) ? flags : all);
}

/* What the code of a kernel depends on, besides its text. NULL: the compiler does not run. */
static char *circumstances(struct arena *mem, struct diag *d)
{
	char *argv[MAX_ARGS] = { 0 };
	int n = words(mem, kernel_compiler(), argv, 0), status;

	argv[n] = arena_strdup(mem, "--version");
	char *version = run_program(mem, argv, &status);

	if (status != 0) {
		diag_error(d, nowhere, "the C compiler '%s' does not run: %.*s", kernel_compiler(), (int)strcspn(version, "\n"), version);
		diag_note(d, nowhere, "kernels are compiled when a plan is loaded; install cc, or set CC");
		return NULL;
	}
	return arena_printf(mem, "%s\n%s\n%s\n%s\n%s", kernel_compiler(), codegen_cflags, version, processor(mem),
			    codegen_source(mem, NULL, 0));
}

/* Each function is called by what it is. */
static bool name_codes(struct arena *mem, struct kernel_set *set, struct diag *d)
{
	char *rest = circumstances(mem, d);

	if (!rest)
		return false;
	uint64_t a = fnv1a(FNV_START, rest, strlen(rest)), b = fnv1a(~FNV_START, rest, strlen(rest));

	for (int i = 0; i < set->ncode; i++) {
		const char *text = set->code[i].text;
		size_t n = strlen(text);

		set->code[i].name = arena_printf(mem, "k_%016llx%016llx", (unsigned long long)fnv1a(a, text, n),
						 (unsigned long long)fnv1a(b, text, n));
	}
	return true;
}

/* The source to a shared object, a new file beside base; its name: the caller's to unlink. NULL after an error. */
static char *compile(struct arena *mem, const char *source, const char *base, struct diag *d)
{
	char *c = arena_printf(mem, "%s.%ld.c", base, (long)getpid()), *tmp = arena_printf(mem, "%s.%ld.tmp", base, (long)getpid());
	int fd = open(c, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600), status, n;
	char *argv[MAX_ARGS] = { 0 };

	if (fd < 0) {
		diag_error(d, nowhere, "'%s' can't be written: %s", c, strerror(errno));
		return NULL;
	}
	bool ok = cache_put(fd, source, strlen(source));
	int why = errno;

	if (close(fd) != 0 || !ok) {
		unlink(c);
		diag_error(d, nowhere, "'%s' can't be written: %s", c, strerror(ok ? errno : why));
		return NULL;
	}
	/* our flags after the compiler's name, yours after ours: the last one counts */
	const char *cc = kernel_compiler();
	size_t name = strspn(cc, " ") + strcspn(cc + strspn(cc, " "), " ");

	n = words(mem, arena_strndup(mem, cc, name), argv, 0);
	n = words(mem, codegen_cflags, argv, n);
	n = words(mem, cc + name, argv, n);
	argv[n++] = (char[]){ "-shared" };
	argv[n++] = (char[]){ "-fPIC" };
	argv[n++] = (char[]){ "-o" };
	argv[n++] = tmp;
	argv[n++] = c;
	argv[n++] = (char[]){ "-lm" };
	char *said = run_program(mem, argv, &status);

	if (status != 0) {
		unlink(tmp);
		diag_error(d, nowhere, "the C compiler fails on the generated kernels: %.2000s", said);
		diag_note(d, nowhere, "the source is kept in '%s'", c);
		return NULL;
	}
	unlink(c);
	return tmp;
}

static char *file_of(struct arena *mem, const char *dir, const struct kernel_code *code)
{
	return arena_printf(mem, "%s/%s.so", dir, code->name);
}

/* The functions that lie in this file, of those that are not yet had. false: there is no such file, or it is broken. */
static bool take(struct arena *mem, struct kernels *k, const char *so, const struct kernel_set *set, ptc_kernel **fn,
		 int first, int n)
{
	void *lib = dlopen(so, RTLD_NOW | RTLD_LOCAL);
	bool all = lib;

	if (!lib)
		return false;
	PUSH(mem, &k->libs, lib);
	for (int i = first; i < first + n; i++)
		if (!fn[i]) {
			*(void **)&fn[i] = dlsym(lib, set->code[i].name);
			all &= fn[i] != NULL;
		}
	return all;
}

/* A file of several kernels lies in the cache under the name of each; where files can't be linked, as a copy. Another
 * process may have been faster. What can't be kept is compiled once more, next time. */
static void keep(struct arena *mem, const char *made, const char *so)
{
	size_t n;
	char *s;

	if (link(made, so) != 0 && errno != EEXIST && (s = cache_read(mem, made, &n)))
		cache_write(mem, so, s, n);
}

/* Those that the cache lacks. */
static bool compile_missing(struct arena *mem, struct kernels *k, const char *dir, const struct kernel_set *set,
			    ptc_kernel **fn, struct diag *d)
{
	VEC(struct kernel_code) missing = { 0 };

	for (int i = 0; i < set->ncode; i++)
		if (!fn[i])
			PUSH(mem, &missing, set->code[i]);
	if (!missing.n)
		return true;
	char *made = compile(mem, codegen_source(mem, missing.at, (int)missing.n),
			     arena_printf(mem, "%s/%s", dir, missing.at[0].name), d);

	if (!made)
		return false;
	bool ok = take(mem, k, made, set, fn, 0, set->ncode);

	if (!ok)
		diag_error(d, nowhere, "the kernels can't be loaded: %s", dlerror());
	for (uint32_t i = 0; ok && i < missing.n; i++)
		keep(mem, made, file_of(mem, dir, &missing.at[i]));
	unlink(made);
	return ok;
}

bool kernels_load(struct arena *mem, const struct module *m, struct kernels *k, struct diag *d)
{
	struct kernel_set set;
	char *dir;

	if (!codegen_kernels(mem, m, &set, d))
		return false;
	k->sig = set.sig;
	k->n = set.nsig;
	if (!k->n)
		return true;
	if (!(dir = cache_dir(mem, d)) || !name_codes(mem, &set, d))
		return false;
	ptc_kernel **fn = NEWN(mem, ptc_kernel *, set.ncode);

	for (int i = 0; i < set.ncode; i++) {
		char *so = file_of(mem, dir, &set.code[i]);

		if (cache_ours(so) && !take(mem, k, so, &set, fn, i, 1))
			unlink(so); /* cut short by a full disk, say: once more */
	}
	if (!compile_missing(mem, k, dir, &set, fn, d))
		return false;
	k->op = NEWN(mem, const struct op *, k->n);
	k->fn = NEWN(mem, ptc_kernel *, k->n);
	for (int i = 0; i < k->n; i++) {
		k->op[i] = k->sig[i].op;
		k->fn[i] = fn[k->sig[i].code];
	}
	return true;
}

void kernels_close(struct kernels *k)
{
	for (uint32_t i = 0; i < k->libs.n; i++)
		dlclose(k->libs.at[i]);
	k->libs.n = 0;
}
