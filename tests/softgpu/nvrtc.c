/* nvrtc.c - NVRTC: the same source, behind shim.h, through the host's C++ compiler into a shared object.
 *
 * Checked kernels are compiled for the hooks of a race detector, whose run-time library is not linked: check.c has them.
 * $SOFTGPU_CXX is the compiler (g++), $SOFTGPU_CACHE a folder that keeps what was compiled, $SOFTGPU_KEEP one for the text. */
#include "tests/softgpu/module.h"
#include "build/softgpu/shim_text.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FLAGS = 64 };
struct _nvrtcProgram {
	char *src, *name, *log;
	struct image *image;        /* NULL: not compiled */
	char *flag[MAX_FLAGS];      /* macros and folders of the caller */
	int nflag, arch;
	bool fmad;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
enum { NARCHS = sizeof archs / sizeof *archs };

const char *nvrtcGetErrorString(nvrtcResult result)
{
#define NAME(n, v) \
	case n: return #n;
	switch (result) { NVRTC_RESULTS(NAME) }
#undef NAME
	return "NVRTC_ERROR unknown";
}

nvrtcResult nvrtcVersion(int *major, int *minor)
{
	if (!major || !minor)
		return NVRTC_ERROR_INVALID_INPUT;
	if (!enter())
		return NVRTC_ERROR_INTERNAL_ERROR;
	leave();                    /* the settings are read */
	*major = 13;
	*minor = cfg.check;         /* what it makes is not the same */
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *n)
{
	if (!n)
		return NVRTC_ERROR_INVALID_INPUT;
	*n = NARCHS;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int *list)
{
	if (!list)
		return NVRTC_ERROR_INVALID_INPUT;
	memcpy(list, archs, sizeof archs);
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *prog, const char *src, const char *name, int n, const char *const *headers,
			       const char *const *names)
{
	(void)headers;
	(void)names;
	if (!prog || !src || n < 0)
		return NVRTC_ERROR_INVALID_INPUT;
	if (n) {
		fprintf(stderr, "softgpu: nvrtcCreateProgram: headers are not supported\n");
		return NVRTC_ERROR_PROGRAM_CREATION_FAILURE;
	}
	struct _nvrtcProgram *p = must(calloc(1, sizeof *p));
	p->src = must(strdup(src));
	p->name = must(strdup(name && *name ? name : "default_program"));
	p->log = must(strdup(""));
	*prog = p;
	return NVRTC_SUCCESS;
}

static void drop_flags(nvrtcProgram p)
{
	while (p->nflag)
		free(p->flag[--p->nflag]);
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *prog)
{
	if (!prog || !*prog)
		return NVRTC_ERROR_INVALID_PROGRAM;
	drop_flags(*prog);
	free((*prog)->src);
	free((*prog)->name);
	free((*prog)->log);
	free((*prog)->image);
	free(*prog);
	*prog = NULL;
	return NVRTC_SUCCESS;
}

/* ---- options ---- */

static const char *after(const char *s, const char *start)
{
	size_t n = strlen(start);
	return strncmp(s, start, n) ? NULL : s + n;
}

/* sm_90a is 90; -1: unknown. compute_90 gives the same object: PTX is not another language here. */
static int arch_of(const char *s)
{
	const char *n = after(s, "sm_");
	if (!n)
		n = after(s, "compute_");
	char *end;
	long a = n ? strtol(n, &end, 10) : -1;
	if (!n || end == n || (strcmp(end, "") && strcmp(end, "a") && strcmp(end, "f")))
		return -1;
	for (int i = 0; i < NARCHS; i++)
		if (archs[i] == a)
			return (int)a;
	return -1;
}

/* Options that change nothing here, by their start. */
static bool is_ignored(const char *s)
{
	static const char *const starts[] = {
		"--ptxas-options", "-Xptxas", "--use_fast_math", "-use_fast_math", "--generate-line-info", "-lineinfo", "--restrict", "-restrict",
		"--maxrregcount", "-maxrregcount", "--device-as-default-execution-space", "-default-device", "--extra-device-vectorization",
		"--disable-warnings", "-w", "--diag-suppress", "-diag-suppress", "--split-compile", "--minimal", "-minimal", "--dopt", "-dopt",
		"--device-debug", "-G", "--ftz", "--prec-div", "--prec-sqrt",
	};
	for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
		const char *rest = after(s, starts[i]);
		if (rest && (!*rest || *rest == '='))
			return true;
	}
	return false;
}

static bool take_option(nvrtcProgram p, const char *s)
{
	const char *v;
	if ((v = after(s, "--gpu-architecture=")) || (v = after(s, "-arch=")) || (v = after(s, "--gpu-architecture "))) {
		p->arch = arch_of(v);
		return p->arch > 0;
	}
	if ((v = after(s, "--fmad=")) || (v = after(s, "-fmad="))) {
		p->fmad = !strcmp(v, "true");
		return p->fmad || !strcmp(v, "false");
	}
	if ((v = after(s, "--std=")) || (v = after(s, "-std=")))
		return !strcmp(v, "c++17") || !strcmp(v, "c++14") || !strcmp(v, "c++11") || !strcmp(v, "c++20");
	char kind = (v = after(s, "--define-macro=")) || (v = after(s, "-D")) ? 'D' :
		(v = after(s, "--undefine-macro=")) || (v = after(s, "-U")) ? 'U' :
		(v = after(s, "--include-path=")) || (v = after(s, "-I")) ? 'I' : 0;
	if (kind && p->nflag < MAX_FLAGS) {
		if (asprintf(&p->flag[p->nflag++], "-%c%s", kind, v) < 0)
			must(NULL);
		return true;
	}
	return is_ignored(s);
}

/* ---- the compiler ---- */

static uint64_t hash(uint64_t h, const char *s)
{
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3;
	return (h ^ 0xff) * 0x100000001b3;
}

static const char *compiler(void)
{
	const char *s = getenv("SOFTGPU_CXX");
	return s && *s ? s : "g++";
}

static const char *machine(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return "-march=x86-64-v3";
#endif
	return "-DSOFTGPU_ANY_CPU";
}

static const char *const common[] = {"-std=c++17", "-w", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-gnu-unique", "-fno-strict-aliasing", NULL};
/* Both at the level of $SOFTGPU_OPT: a plan's kernels compile in half the time of -O2 with g, and tests run them once. */
static const char *const checked[] = {"-g1", "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0", "-fno-tree-sra",
				      "-fno-ipa-sra", NULL};
static const char *const unchecked[] = {NULL};

static const char *level(void)
{
	const char *s = getenv("SOFTGPU_OPT");
	return text("-O%s", s && *s ? s : "g");
}

struct command {
	const char *arg[2 * MAX_FLAGS];
	int n;
};

static void add(struct command *c, const char *s)
{
	if (c->n < 2 * MAX_FLAGS - 1)
		c->arg[c->n++] = s;
}

static void add_all(struct command *c, const char *const *list)
{
	for (; *list; list++)
		add(c, *list);
}

/* Runs it, stderr into the file err. */
static bool execute(struct command *c, const char *err)
{
	extern char **environ;
	posix_spawn_file_actions_t a;
	pid_t pid;
	if (posix_spawn_file_actions_init(&a))
		return false;
	posix_spawn_file_actions_addopen(&a, 2, err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int e = posix_spawnp(&pid, c->arg[0], &a, NULL, (char *const *)(uintptr_t)c->arg, environ);
	posix_spawn_file_actions_destroy(&a);
	if (e) {
		FILE *f = fopen(err, "w");
		if (f) {
			fprintf(f, "cannot run %s: %s\n", c->arg[0], strerror(e));
			fclose(f);
		}
		return false;
	}
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static char *read_file(const char *path, size_t *bytes)
{
	FILE *f = fopen(path, "rb");
	if (!f)
		return NULL;
	size_t n = 0, cap = 1 << 16;
	char *s = must(malloc(cap + 1));
	for (size_t got; (got = fread(s + n, 1, cap - n, f)) > 0;) {
		n += got;
		if (n == cap)
			s = must(realloc(s, (cap *= 2) + 1));
	}
	fclose(f);
	s[n] = 0;
	*bytes = n;
	return s;
}

static bool is_name(char c)
{
	return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Appends the table of kernels: the name before the first parenthesis after each mark that __global__ leaves. */
static void write_table(FILE *f, const char *s)
{
	static const char mark[] = "section(\".text.softgpu\")))";
	char **name = NULL;
	int n = 0;
	while ((s = strstr(s, mark))) {
		s += sizeof mark - 1;
		const char *end = strchr(s, '(');
		if (!end)
			break;
		while (end > s && !is_name(end[-1]))
			end--;
		const char *from = end;
		while (from > s && is_name(from[-1]))
			from--;
		int k = 0;
		while (k < n && (strlen(name[k]) != (size_t)(end - from) || strncmp(name[k], from, (size_t)(end - from))))
			k++;
		if (k < n)
			continue;
		name = must(realloc(name, (size_t)(n + 1) * sizeof(char *)));
		name[n++] = must(strndup(from, (size_t)(end - from)));
	}
	fprintf(f, "\n# 1 \"kernels\"\nextern \"C\" __attribute__((visibility(\"default\"))) const softgpu_kernel softgpu_kernels[];\n"
		"const softgpu_kernel softgpu_kernels[] = {\n");
	for (int i = 0; i < n; i++) {
		fprintf(f, "{\"%s\", softgpu_thunk<decltype(&%s)>::call<%s>, softgpu_thunk<decltype(&%s)>::nargs, "
			"softgpu_thunk<decltype(&%s)>::sizes},\n", name[i], name[i], name[i], name[i], name[i]);
		free(name[i]);
	}
	fprintf(f, "{0, 0, 0, 0}};\n");
	free(name);
}

static bool write_source(const char *path, nvrtcProgram p)
{
	FILE *f = fopen(path, "w");
	if (!f)
		return false;
	fprintf(f, "#define __CUDA_ARCH__ %d\n# 1 \"shim.h\"\n%s\n# 1 \"%s\"\n%s\n", 10 * p->arch, shim_text, p->name, p->src);
	return !fclose(f);
}

static bool preprocess(nvrtcProgram p, const char *dir)
{
	struct command c = {0};
	add(&c, compiler());
	add_all(&c, common);
	for (int i = 0; i < p->nflag; i++)
		add(&c, p->flag[i]);
	add(&c, "-E");
	add(&c, "-o");
	add(&c, text("%s/b.ii", dir));
	add(&c, text("%s/a.cc", dir));
	if (!write_source(text("%s/a.cc", dir), p) || !execute(&c, text("%s/log", dir)))
		return false;
	size_t n;
	char *s = read_file(text("%s/b.ii", dir), &n);
	FILE *f = s ? fopen(text("%s/b.ii", dir), "a") : NULL;
	if (f)
		write_table(f, s);
	free(s);
	return f && !fclose(f);
}

static bool build(nvrtcProgram p, const char *dir)
{
	struct command c = {0};
	add(&c, compiler());
	add_all(&c, common);
	add_all(&c, cfg.check ? checked : unchecked);
	add(&c, level());
	add(&c, machine());
	add(&c, p->fmad ? "-ffp-contract=fast" : "-ffp-contract=off");
	add_all(&c, (const char *const[]){"-shared", "-nostdlib", "-fpreprocessed", "-x", "c++", "-o", NULL});
	add(&c, text("%s/c.so", dir));
	add(&c, text("%s/b.ii", dir));
	add_all(&c, (const char *const[]){"-x", "none", "-lm", "-lc", NULL});
	return execute(&c, text("%s/log", dir));
}

static uint64_t key_of(nvrtcProgram p)
{
	static char version[16];
	uint64_t h = hash(0xcbf29ce484222325, shim_text);
	snprintf(version, sizeof version, "%d %d %d %d", p->arch, p->fmad, cfg.check, __GNUC__);
	h = hash(hash(hash(hash(hash(h, p->src), version), compiler()), machine()), level());
	for (const char *const *s = cfg.check ? checked : unchecked; *s; s++)
		h = hash(h, *s);
	for (int i = 0; i < p->nflag; i++)
		h = hash(h, p->flag[i]);
	return h;
}

static bool take_image(nvrtcProgram p, const char *path)
{
	size_t n;
	char *s = read_file(path, &n);
	if (!s)
		return false;
	free(p->image);
	p->image = must(calloc(1, sizeof *p->image + n));
	memcpy(p->image->magic, IMAGE_MAGIC, sizeof p->image->magic);
	p->image->bytes = n;
	p->image->arch = p->arch;
	p->image->checked = cfg.check;
	memcpy(p->image->data, s, n);
	free(s);
	return true;
}

static void take_log(nvrtcProgram p, const char *path)
{
	size_t n;
	char *s = read_file(path, &n);
	if (s) {
		free(p->log);
		p->log = s;
	}
}

static nvrtcResult compile(nvrtcProgram p)
{
	const char *cache = getenv("SOFTGPU_CACHE"), *keep = getenv("SOFTGPU_KEEP"), *tmp = getenv("TMPDIR");
	char *kept = cache && *cache ? text("%s/%016llx.so", cache, (unsigned long long)key_of(p)) : NULL;
	if (kept && take_image(p, kept))
		return NVRTC_SUCCESS;
	char *dir = must(strdup(text("%s/softgpu-XXXXXX", kept ? cache : tmp && *tmp ? tmp : "/tmp")));
	if (kept)
		mkdir(cache, 0700);
	if (!mkdtemp(dir)) {
		free(p->log);
		p->log = must(strdup(text("cannot make %s: %s", dir, strerror(errno))));
		free(dir);
		return NVRTC_ERROR_INTERNAL_ERROR;
	}
	bool good = preprocess(p, dir) && build(p, dir);
	take_log(p, text("%s/log", dir));
	if (good)
		good = take_image(p, text("%s/c.so", dir));
	if (good && kept)
		rename(text("%s/c.so", dir), kept);
	if (keep && *keep)
		rename(text("%s/a.cc", dir), text("%s/kernels.cc", keep));
	const char *const files[] = {"a.cc", "b.ii", "c.so", "log"};
	for (int i = 0; i < 4; i++)
		unlink(text("%s/%s", dir, files[i]));
	rmdir(dir);
	free(dir);
	return good ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options)
{
	if (!p)
		return NVRTC_ERROR_INVALID_PROGRAM;
	if (!enter())
		return NVRTC_ERROR_INTERNAL_ERROR;
	leave();                    /* the settings are read; other threads go on while the compiler runs */
	drop_flags(p);
	p->arch = 75;
	p->fmad = true;
	for (int i = 0; i < n; i++)
		if (!take_option(p, options[i])) {
			free(p->log);
			p->log = must(strdup(text("nvrtc: error: unrecognized option or value: %s", options[i])));
			return NVRTC_ERROR_INVALID_OPTION;
		}
	pthread_mutex_lock(&lock);
	nvrtcResult r = compile(p);
	pthread_mutex_unlock(&lock);
	return r;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes)
{
	if (!p || !p->image)
		return NVRTC_ERROR_INVALID_PROGRAM;
	*bytes = sizeof *p->image + p->image->bytes;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *cubin)
{
	if (!p || !p->image)
		return NVRTC_ERROR_INVALID_PROGRAM;
	memcpy(cubin, p->image, sizeof *p->image + p->image->bytes);
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes)
{
	return nvrtcGetCUBINSize(p, bytes);
}

nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *ptx)
{
	return nvrtcGetCUBIN(p, ptx);
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes)
{
	if (!p)
		return NVRTC_ERROR_INVALID_PROGRAM;
	*bytes = strlen(p->log) + 1;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
	if (!p)
		return NVRTC_ERROR_INVALID_PROGRAM;
	strcpy(log, p->log);
	return NVRTC_SUCCESS;
}
