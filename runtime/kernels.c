/* runtime/kernels.c - generated kernels: C source to a shared object by the system's cc, cached on disk
 * by source, flags, compiler and processor. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cache.h"

enum { MAX_ARGS = 64 };
static const struct span nowhere;

static const char *compiler(void)
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

/* Runs argv; what it says (both streams) is returned, its status put in *status. */
static char *run_program(struct arena *mem, char *const *argv, int *status)
{
	int p[2];

	*status = -1;
	if (pipe2(p, O_CLOEXEC) != 0)
		return arena_printf(mem, "pipe: %s", strerror(errno));
	pid_t pid = fork();

	if (pid < 0) {
		close(p[0]);
		close(p[1]);
		return arena_printf(mem, "fork: %s", strerror(errno));
	}
	if (pid == 0) {
		int null = open("/dev/null", O_RDONLY);

		if (null >= 0)
			dup2(null, 0);
		dup2(p[1], 1);
		dup2(p[1], 2);
		execvp(argv[0], argv);
		dprintf(2, "%s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	close(p[1]);
	char *said = read_fd(mem, p[0]);

	close(p[0]);
	while (waitpid(pid, status, 0) < 0 && errno == EINTR)
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

static bool key_of(struct arena *mem, const char *source, char *hex, size_t size, struct diag *d)
{
	char *argv[MAX_ARGS] = { 0 };
	int n = words(mem, compiler(), argv, 0), status;

	argv[n] = arena_strdup(mem, "--version");
	char *version = run_program(mem, argv, &status);

	if (status != 0) {
		diag_error(d, nowhere, "the C compiler '%s' does not run: %.*s", compiler(), (int)strcspn(version, "\n"), version);
		diag_note(d, nowhere, "kernels are compiled when a plan is loaded; install cc, or set CC");
		return false;
	}
	char *rest = arena_printf(mem, "%s\n%s\n%s\n%s", compiler(), codegen_cflags, version, processor(mem));
	uint64_t a = fnv1a(fnv1a(FNV_START, source, strlen(source)), rest, strlen(rest));
	uint64_t b = fnv1a(fnv1a(~FNV_START, rest, strlen(rest)), source, strlen(source));

	snprintf(hex, size, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
	return true;
}

static bool compile(struct arena *mem, const char *source, const char *base, const char *so, struct diag *d)
{
	char *c = arena_printf(mem, "%s.%ld.c", base, (long)getpid()), *tmp = arena_printf(mem, "%s.%ld.tmp", base, (long)getpid());
	int fd = open(c, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600), status, n;
	char *argv[MAX_ARGS] = { 0 };

	if (fd < 0)
		return diag_error(d, nowhere, "'%s' can't be written: %s", c, strerror(errno));
	bool ok = cache_put(fd, source, strlen(source));
	int why = errno;

	if (close(fd) != 0 || !ok) {
		unlink(c);
		return diag_error(d, nowhere, "'%s' can't be written: %s", c, strerror(ok ? errno : why));
	}
	/* our flags after the compiler's name, yours after ours: the last one counts */
	const char *cc = compiler();
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
		return false;
	}
	unlink(c);
	if (rename(tmp, so) != 0) {
		unlink(tmp);
		return diag_error(d, nowhere, "'%s' can't be made: %s", so, strerror(errno));
	}
	return true;
}

bool kernels_load(struct arena *mem, const struct module *m, struct kernels *k, struct diag *d)
{
	char hex[40];
	char *source = codegen_c(mem, m, &k->sig, &k->n, d), *dir;

	if (!source)
		return false;
	if (!k->n)
		return true;
	k->op = NEWN(mem, const struct op *, k->n);
	for (int i = 0; i < k->n; i++)
		k->op[i] = k->sig[i].op;
	if (!(dir = cache_dir(mem, d)) || !key_of(mem, source, hex, sizeof hex, d))
		return false;
	char *base = arena_printf(mem, "%s/%s", dir, hex), *so = arena_printf(mem, "%s.so", base);

	if (!cache_ours(so) && !compile(mem, source, base, so, d))
		return false;
	k->lib = dlopen(so, RTLD_NOW | RTLD_LOCAL);
	if (!k->lib) { /* a file cut short by a full disk, say: once more */
		unlink(so);
		if (!compile(mem, source, base, so, d))
			return false;
		k->lib = dlopen(so, RTLD_NOW | RTLD_LOCAL);
	}
	if (!k->lib)
		return diag_error(d, nowhere, "the kernels can't be loaded: %s", dlerror());
	k->fn = NEWN(mem, ptc_kernel *, k->n);
	for (int i = 0; i < k->n; i++) {
		*(void **)&k->fn[i] = dlsym(k->lib, k->sig[i].name);
		if (!k->fn[i])
			return diag_error(d, nowhere, "the kernels lack '%s'", k->sig[i].name);
	}
	return true;
}

void kernels_close(struct kernels *k)
{
	if (k->lib)
		dlclose(k->lib);
	k->lib = NULL;
}
