/* runtime/cuda/module.c - the kernels of a plan: CUDA text to code of a device by NVRTC, kept on disk by text, architecture
 * and NVRTC. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cache.h"
#include "runtime/cuda/cuda.h"

static const struct span nowhere;

/* The device's own architecture, else the newest before it, whose PTX the driver compiles. 0: none is that old. */
static int choose_arch(int device, bool *ptx)
{
	int n = 0, best = 0, archs[64];

	if (lib.nvrtcGetNumSupportedArchs(&n) != NVRTC_SUCCESS || n < 1 || n > (int)LEN(archs) ||
	    lib.nvrtcGetSupportedArchs(archs) != NVRTC_SUCCESS)
		return 0;
	for (int i = 0; i < n; i++)
		if (archs[i] <= device && archs[i] > best)
			best = archs[i];
	*ptx = best != device;
	return best;
}

static char *path_of(struct arena *mem, const char *dir, const char *source, int arch)
{
	char rest[400];

	snprintf(rest, sizeof rest, "%s arch %d %s", lib.nvrtc_id, arch, cuda_flags);
	uint64_t a = fnv1a(fnv1a(FNV_START, source, strlen(source)), rest, strlen(rest));
	uint64_t b = fnv1a(fnv1a(~FNV_START, rest, strlen(rest)), source, strlen(source));

	return arena_printf(mem, "%s/%016llx%016llx.cubin", dir, (unsigned long long)a, (unsigned long long)b);
}

static const char *log_of(struct arena *mem, nvrtcProgram p)
{
	size_t n = 0;

	if (lib.nvrtcGetProgramLogSize(p, &n) != NVRTC_SUCCESS || n < 2)
		return "it gives no reason";
	char *s = arena_alloc(mem, n + 1);

	return lib.nvrtcGetProgramLog(p, s) == NVRTC_SUCCESS ? s : "it gives no reason";
}

/* What does not compile is kept, to be looked at. */
static bool refuse(struct arena *mem, const char *path, const char *source, const char *why, struct diag *d)
{
	char *kept = arena_printf(mem, "%s.cu", path);

	diag_error(d, nowhere, "NVRTC fails on the generated kernels: %.2000s", why);
	if (cache_write(mem, kept, source, strlen(source)))
		diag_note(d, nowhere, "the source is kept in '%s'", kept);
	return false;
}

static bool code_of(struct arena *mem, nvrtcProgram p, bool ptx, struct image *image)
{
	if ((ptx ? lib.nvrtcGetPTXSize(p, &image->bytes) : lib.nvrtcGetCUBINSize(p, &image->bytes)) != NVRTC_SUCCESS)
		return false;
	image->at = arena_alloc(mem, image->bytes + 1);
	return (ptx ? lib.nvrtcGetPTX(p, image->at) : lib.nvrtcGetCUBIN(p, image->at)) == NVRTC_SUCCESS;
}

/* Splits at spaces. */
static int words(struct arena *mem, const char *s, const char **word)
{
	int n = 0;

	while (*s && n < 16) {
		size_t len = strcspn(s, " ");

		word[n++] = arena_strndup(mem, s, len);
		s += len;
		s += strspn(s, " ");
	}
	return n;
}

static bool compile(struct arena *mem, const char *source, int device, const char *path, struct image *image, struct diag *d)
{
	bool ptx = false;
	int arch = choose_arch(device, &ptx);
	nvrtcProgram p = NULL;

	if (!arch) {
		diag_error(d, nowhere, "this NVRTC has no code for the GPU (sm_%d)", device);
		diag_note(d, nowhere, "use a CUDA Toolkit of the GPU's time");
		return false;
	}
	const char *options[16];
	int n = words(mem, arena_printf(mem, "--gpu-architecture=%s_%d %s", ptx ? "compute" : "sm", arch, cuda_flags), options);
	nvrtcResult e = lib.nvrtcCreateProgram(&p, source, "plan.cu", 0, NULL, NULL);

	if (e != NVRTC_SUCCESS)
		return diag_error(d, nowhere, "NVRTC: %s", lib.nvrtcGetErrorString(e));
	bool ok = lib.nvrtcCompileProgram(p, n, options) == NVRTC_SUCCESS;

	ok = ok ? code_of(mem, p, ptx, image) || refuse(mem, path, source, "no code comes out", d) :
		  refuse(mem, path, source, log_of(mem, p), d);
	lib.nvrtcDestroyProgram(&p);
	if (ok)
		cache_write(mem, path, image->at, image->bytes); /* a full disk only costs time */
	return ok;
}

bool image_make(struct arena *mem, const char *source, int arch, struct image *image, struct diag *d)
{
	char *dir = cache_dir(mem, d);

	if (!dir)
		return false;
	char *path = path_of(mem, dir, source, arch);

	image->at = cache_read(mem, path, &image->bytes);
	return image->at || compile(mem, source, arch, path, image, d);
}

void image_forget(struct arena *mem, const char *source, int arch, struct diag *d)
{
	char *dir = cache_dir(mem, d);

	if (dir)
		unlink(path_of(mem, dir, source, arch));
}
