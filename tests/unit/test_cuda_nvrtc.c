/* NVRTC takes the kernels of the examples at their full sizes without spills; a block's registers fit. NVRTC needs no GPU;
 * where its library is not found the test is skipped. gpt2, llama and mixtral take turns with the architectures; ALL=1 (make check-nvrtc):
 * all examples for each, ARCH=sm_90a ONLY=gpt2: these alone, V=1: registers of each kernel. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codegen/cuda.h"
#include "ir/text.h"

enum { MOST_SPILL = 0, REGISTERS = 65536 };

typedef struct nvrtc_program *program;
static struct {
	int (*create)(program *, const char *, const char *, int, const char *const *, const char *const *);
	int (*compile)(program, int, const char *const *);
	int (*log_size)(program, size_t *);
	int (*log)(program, char *);
	int (*destroy)(program *);
} nvrtc;

static bool find_nvrtc(void)
{
	static const char *const names[] = { "libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13", "libnvrtc.so.12" };
	void *lib = NULL;

	for (size_t i = 0; i < LEN(names) && !lib; i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return false;
	*(void **)&nvrtc.create = dlsym(lib, "nvrtcCreateProgram");
	*(void **)&nvrtc.compile = dlsym(lib, "nvrtcCompileProgram");
	*(void **)&nvrtc.log_size = dlsym(lib, "nvrtcGetProgramLogSize");
	*(void **)&nvrtc.log = dlsym(lib, "nvrtcGetProgramLog");
	*(void **)&nvrtc.destroy = dlsym(lib, "nvrtcDestroyProgram");
	return nvrtc.create && nvrtc.compile && nvrtc.log_size && nvrtc.log && nvrtc.destroy;
}

static char *compile(struct arena *mem, const char *text, const char *arch, bool *ok)
{
	const char *opt[16];
	int n = 0;
	program p;
	size_t size = 0;
	char *flags = arena_strdup(mem, cuda_flags), *save = NULL;

	for (char *w = strtok_r(flags, " ", &save); w; w = strtok_r(NULL, " ", &save))
		opt[n++] = w;
	opt[n++] = arena_printf(mem, "--gpu-architecture=%s", arch);
	opt[n++] = "--ptxas-options=-v";
	assert_int_equal(nvrtc.create(&p, text, "kernels.cu", 0, NULL, NULL), 0);
	*ok = nvrtc.compile(p, n, opt) == 0;
	nvrtc.log_size(p, &size);
	char *log = arena_alloc(mem, size + 1);
	nvrtc.log(p, log);
	log[size] = 0;
	nvrtc.destroy(&p);
	return log;
}

static int block_of(const struct cuda_sig *sig, int n, const char *fn)
{
	for (int i = 0; i < n; i++)
		for (int k = 0; k < sig[i].nlaunch; k++)
			if (streq(sig[i].launch[k].fn, fn))
				return (int)sig[i].launch[k].block;
	return 0;
}

static void check_log(const char *file, const char *arch, const char *log, const struct cuda_sig *sig, int n)
{
	char fn[128] = "";
	int spill, registers, kernels = 0;

	for (const char *s = log; s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL) {
		const char *at = strstr(s, "entry function '"), *end = strchr(s, '\n');

		if (!end)
			break;
		if (at && at < end)
			snprintf(fn, sizeof fn, "%.*s", (int)strcspn(at + 16, "'"), at + 16);
		if ((at = strstr(s, "bytes spill stores")) && at < end) {
			while (at > s && at[-1] != ',')
				at--;
			spill = atoi(at);
			if (spill > MOST_SPILL)
				fail_msg("%s for %s: %s spills %d bytes", file, arch, fn, spill);
		}
		if ((at = strstr(s, "Used ")) && at < end && sscanf(at, "Used %d registers", &registers) == 1) {
			kernels++;
			if (getenv("V"))
				printf("%s %s %s: %d registers, %d threads\n", file, arch, fn, registers, block_of(sig, n, fn));
			if (registers * block_of(sig, n, fn) > REGISTERS)
				fail_msg("%s for %s: %s has %d registers, %d threads", file, arch, fn, registers, block_of(sig, n, fn));
		}
	}
	if (!kernels)
		fail_msg("no word of registers in\n%s", log);
}

enum { USUAL = 3 }; /* examples without ALL: ptxas needs half a minute for the attention of one */
static const char *const archs[] = { "sm_90a", "sm_80", "sm_100" };

static void check(const char *file, size_t turn)
{
	struct arena *mem = arena_new();
	char *cmd = arena_printf(mem, "%s/ptc show --after=memory %s", getenv("BUILD") ? getenv("BUILD") : "build", file);
	struct text t = { .mem = mem };
	struct cuda_sig *sig;
	struct diag d;
	char buf[65536];
	int n;
	FILE *f = popen(arena_printf(mem, "%s 2>/dev/null", cmd), "r");

	assert_non_null(f);
	for (size_t k; (k = fread(buf, 1, sizeof buf, f));)
		text_bytes(&t, buf, k);
	if (pclose(f) != 0)
		fail_msg("%s", cmd);
	diag_init(&d, mem, NULL, stderr);
	struct module *m = module_parse(mem, file, t.s, t.n, &d);
	assert_non_null(m);
	char *text = codegen_cuda(mem, m, &sig, &n, &d);
	assert_non_null(text);
	for (size_t i = 0; i < LEN(archs); i++) {
		bool ok;

		if (getenv("ARCH") ? !streq(getenv("ARCH"), archs[i]) : !getenv("ALL") && turn % LEN(archs) != i)
			continue;
		char *log = compile(mem, text, archs[i], &ok);

		if (!ok)
			fail_msg("%s for %s:\n%.4000s", file, archs[i], log);
		check_log(file, archs[i], log, sig, n);
	}
	arena_free(mem);
}

static void test_examples(void **state)
{
	static const char *const all[] = { "gpt2", "llama", "mixtral", "bert", "vit", "t5", "clip", "deepseek", "gemma2", "lora",
					   "mup", "mlp", "mlp_bn", "gpt-mini" };

	(void)state;
	if (!find_nvrtc()) {
		puts("skipped: libnvrtc is not found");
		skip();
	}
	for (size_t i = 0; i < LEN(all); i++) {
		char file[64];

		if (getenv("ONLY") ? !streq(getenv("ONLY"), all[i]) : !getenv("ALL") && i >= USUAL)
			continue;
		snprintf(file, sizeof file, "examples/%s.pdsl", all[i]);
		check(file, i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
