/* compile.c - the real NVRTC, and what its assembler says of each kernel. It needs no GPU. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/nvrtc/kernels.h"

typedef struct nvrtc_program *program;
struct nvrtc {
	int (*version)(int *, int *);
	int (*create)(program *, const char *, const char *, int, const char *const *, const char *const *);
	int (*compile)(program, int, const char *const *);
	int (*log_size)(program, size_t *);
	int (*log)(program, char *);
	int (*destroy)(program *);
};

struct nvrtc *nvrtc_find(struct arena *mem)
{
	const char *const names[] = { getenv("NVRTC"), "libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13", "libnvrtc.so.12" };
	struct nvrtc *n = NEW(mem, struct nvrtc);
	void *lib = NULL;

	for (size_t i = 0; i < LEN(names) && !lib; i++)
		lib = names[i] && *names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!lib)
		return NULL;
	*(void **)&n->version = dlsym(lib, "nvrtcVersion");
	*(void **)&n->create = dlsym(lib, "nvrtcCreateProgram");
	*(void **)&n->compile = dlsym(lib, "nvrtcCompileProgram");
	*(void **)&n->log_size = dlsym(lib, "nvrtcGetProgramLogSize");
	*(void **)&n->log = dlsym(lib, "nvrtcGetProgramLog");
	*(void **)&n->destroy = dlsym(lib, "nvrtcDestroyProgram");
	return n->version && n->create && n->compile && n->log_size && n->log && n->destroy ? n : NULL;
}

const char *nvrtc_version(struct arena *mem, const struct nvrtc *n)
{
	int major = 0, minor = 0;

	n->version(&major, &minor);
	return arena_printf(mem, "%d.%d", major, minor);
}

/* The number before what, in s .. end; 0 if it is not there. */
static int number_before(const char *s, const char *end, const char *what)
{
	const char *at = strstr(s, what);

	if (!at || at >= end)
		return 0;
	while (at > s && at[-1] == ' ')
		at--;
	while (at > s && at[-1] >= '0' && at[-1] <= '9')
		at--;
	return atoi(at);
}

/* A log has for each kernel a line that names it, one of stack and spills, one of registers. */
static void read_log(const char *log, int n, struct usage *usage)
{
	struct usage *u = NULL;

	for (const char *s = log, *end; (end = strchr(s, '\n')); s = end + 1) {
		const char *at = strstr(s, "Compiling entry function 'u");
		int i;

		if (at && at < end && sscanf(at, "Compiling entry function 'u%d'", &i) == 1 && i >= 0 && i < n)
			u = &usage[i];
		if (!u)
			continue;
		if ((at = strstr(s, "bytes spill stores")) && at < end) {
			u->stack = number_before(s, end, "bytes stack frame");
			u->spill_stores = number_before(s, end, "bytes spill stores");
			u->spill_loads = number_before(s, end, "bytes spill loads");
		}
		if ((at = strstr(s, "Used ")) && at < end && sscanf(at, "Used %d registers", &u->registers) == 1) {
			u->shared = number_before(s, end, "bytes smem");
			u->state = 1;
			u = NULL;
		}
	}
}

const char *nvrtc_compile(struct arena *mem, const struct nvrtc *lib, const struct catalog *k, const int *which, int n, const char *arch,
			  struct usage *usage)
{
	struct text source = { .mem = mem };
	const char *opt[16];
	int nopt = 0;
	program p;
	size_t size = 0;
	char *flags = arena_strdup(mem, cuda_flags), *save = NULL;

	text_put(&source, "%s", k->all.at[which[0]].prelude);
	for (int i = 0; i < n; i++)
		text_put(&source, "%su%d%s", k->all.at[which[i]].head, i, k->all.at[which[i]].rest);
	for (char *w = strtok_r(flags, " ", &save); w && nopt < 14; w = strtok_r(NULL, " ", &save))
		opt[nopt++] = w;
	opt[nopt++] = arena_printf(mem, "--gpu-architecture=%s", arch);
	opt[nopt++] = "--ptxas-options=-v";
	if (lib->create(&p, source.s, "kernels.cu", 0, NULL, NULL))
		return "it takes no program";
	int failed = lib->compile(p, nopt, opt);
	lib->log_size(p, &size);
	char *log = arena_alloc(mem, size + 1);
	lib->log(p, log);
	lib->destroy(&p);
	if (failed)
		return log;
	memset(usage, 0, (size_t)n * sizeof *usage);
	read_log(log, n, usage);
	return NULL;
}
