/* lt_attrs.c - prints what cuBLASLt's descriptors take and give: for each attribute and size, the status of setting and
 * getting it, the size written, the value. The output of the stand-in must be that of the real library. */
#include "runtime/cuda/api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FN(name, ret, args) static ret(*name) args;
CUBLASLT_FUNCTIONS(FN)
#define LOAD(name, ret, args) *(void **)&name = dlsym(h, #name);
#define ROW(name, value) {#name, value},
struct attr {
	const char *name;
	int value;
};

/* The last is unknown to any version. */
static const struct attr desc_attrs[] = {CUBLASLT_DESC_ATTRIBUTES(ROW){"desc unknown", 1000}};
static const struct attr layout_attrs[] = {CUBLASLT_LAYOUT_ATTRIBUTES(ROW){"layout unknown", 1000}};
static const struct attr pref_attrs[] = {CUBLASLT_PREF_ATTRIBUTES(ROW){"preference unknown", 1000}};

typedef int (*setter)(void *d, int attr, const void *buf, size_t bytes);
typedef int (*getter)(void *d, int attr, void *buf, size_t bytes, size_t *written);

static void try(const struct attr *a, void *d, setter set, getter get)
{
	static const size_t sizes[] = {0, 1, 2, 4, 8, 12, 16};
	unsigned char was[16] = {0};
	size_t size = 0;
	get(d, a->value, NULL, 0, &size);
	printf("%s: size %zu\n", a->name, size);
	if (size <= sizeof was)
		get(d, a->value, was, size, NULL);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		unsigned char buf[16];
		memset(buf, 0xaa, sizeof buf);
		size_t written = 77;
		int r = get(d, a->value, buf, sizes[i], &written);
		printf("  get %zu: %d, written %zu,", sizes[i], r, written);
		for (size_t k = 0; k < sizes[i]; k++)
			printf(" %02x", buf[k]);
		r = set(d, a->value, was, sizes[i]);
		printf("; set: %d\n", r);
	}
	printf("  get without written: %d, set NULL: %d\n", get(d, a->value, was, size, NULL), set(d, a->value, NULL, size));
}

int main(int argc, char **argv)
{
	void *h = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!h) {
		fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "lt_attrs LIBRARY");
		return 2;
	}
	CUBLASLT_FUNCTIONS(LOAD)
	cublasLtMatmulDesc_t d;
	cublasLtMatrixLayout_t l;
	cublasLtMatmulPreference_t p;
	printf("create %d %d %d\n", cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F),
	       cublasLtMatrixLayoutCreate(&l, CUDA_R_16BF, 24, 40, 32), cublasLtMatmulPreferenceCreate(&p));
	for (size_t i = 0; i < sizeof desc_attrs / sizeof *desc_attrs; i++)
		try(&desc_attrs[i], d, (setter)cublasLtMatmulDescSetAttribute, (getter)cublasLtMatmulDescGetAttribute);
	for (size_t i = 0; i < sizeof layout_attrs / sizeof *layout_attrs; i++)
		try(&layout_attrs[i], l, (setter)cublasLtMatrixLayoutSetAttribute, (getter)cublasLtMatrixLayoutGetAttribute);
	for (size_t i = 0; i < sizeof pref_attrs / sizeof *pref_attrs; i++)
		try(&pref_attrs[i], p, (setter)cublasLtMatmulPreferenceSetAttribute, (getter)cublasLtMatmulPreferenceGetAttribute);
	printf("destroy %d %d %d\n", cublasLtMatmulDescDestroy(d), cublasLtMatrixLayoutDestroy(l), cublasLtMatmulPreferenceDestroy(p));
	return 0;
}
