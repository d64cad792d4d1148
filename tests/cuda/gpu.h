/* tests/cuda/gpu.h - runs generated CUDA text on the host, for unit tests. */
#ifndef PTC_TESTS_GPU_H
#define PTC_TESTS_GPU_H
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/cuda.h"

static const char *gpu_level = "-O1";

struct gpu {
	void *lib;
	void (*run)(void (*)(void **), void **, unsigned, unsigned, unsigned);
};

static inline void gpu_put_thunks(FILE *f, const char *text)
{
	for (const char *s = text; (s = strstr(s, "extern \"C\" __global__")); s++) {
		const char *name = strstr(s, "void ") + 5;

		if (!strncmp(name, "__launch_bounds__", 17))
			name = strchr(name, ')') + 2;
		int n = (int)strcspn(name, "(");

		fprintf(f, "extern \"C\" void thunk_%.*s(void **p) { shim_thunk(%.*s, p); }\n", n, name, n, name);
	}
}

static inline struct gpu gpu_open(const char *text)
{
	char base[64], cmd[512], path[80];
	static int no;
	struct gpu g = { 0 };

	snprintf(base, sizeof base, "/tmp/ptc-cuda-%d-%d", (int)getpid(), no++);
	snprintf(path, sizeof path, "%s.cc", base);
	FILE *f = fopen(path, "w"), *shim = fopen("tests/cuda/shim.h", "r");
	if (!f || !shim)
		abort();
	for (int c; (c = getc(shim)) != EOF;)
		putc(c, f);
	fclose(shim);
	fputs(text, f);
	gpu_put_thunks(f, text);
	if (fclose(f))
		abort();
	snprintf(cmd, sizeof cmd, "%s -std=gnu++17 %s -ffp-contract=off -fwrapv -fno-strict-aliasing -w -shared -fPIC -o %s.so %s",
		 getenv("CXX") ? getenv("CXX") : "g++", gpu_level, base, path);
	if (system(cmd) != 0) {
		fprintf(stderr, "does not compile: %s\n", path);
		return g;
	}
	snprintf(path, sizeof path, "%s.so", base);
	g.lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!g.lib)
		fprintf(stderr, "%s\n", dlerror());
	else
		*(void **)&g.run = dlsym(g.lib, "shim_run");
	unlink(path);
	snprintf(path, sizeof path, "%s.cc", base);
	if (!getenv("KEEP"))
		unlink(path);
	return g;
}

static inline bool gpu_launch(const struct gpu *g, const struct cuda_launch *l, void **args)
{
	char name[128];
	void (*fn)(void **) = NULL;

	snprintf(name, sizeof name, "thunk_%s", l->fn);
	*(void **)&fn = dlsym(g->lib, name);
	if (!fn)
		return false;
	if (l->grid)
		g->run(fn, args, l->grid, l->block, l->shared);
	return true;
}

/* All launches of a region. ext: start and valid by turns. */
static inline bool gpu_region(const struct gpu *g, const struct cuda_sig *s, void *const *in, void *const *out, const int64_t *start,
			      const int64_t *valid, const struct ptc_step *step, struct ptc_iter iter)
{
	void *args[256];
	char *scratch = aligned_alloc(64, (size_t)(s->scratch + 128) / 64 * 64);
	int n = 0;
	bool ok = true;

	if (!scratch)
		abort();
	memset(scratch, 0xff, (size_t)s->scratch);
	for (uint32_t i = 0; i < s->op->nin; i++)
		args[n++] = (void *)&in[i];
	for (uint32_t i = 0; i < s->op->nout; i++)
		args[n++] = (void *)&out[i];
	args[n++] = &scratch;
	for (int i = 0; i < s->next; i++) {
		args[n++] = (void *)&start[i];
		args[n++] = (void *)&valid[i];
	}
	args[n++] = (void *)&step;
	args[n++] = &iter;
	for (int i = 0; i < s->nlaunch; i++)
		ok &= gpu_launch(g, &s->launch[i], args);
	free(scratch);
	return ok;
}

static inline void gpu_close(struct gpu *g)
{
	if (g->lib)
		dlclose(g->lib);
}
#endif
