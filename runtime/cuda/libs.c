/* runtime/cuda/libs.c - the driver, NVRTC, cuBLASLt and NCCL, found when a GPU is asked for.
 *
 * Nothing is linked, so that one build works with and without them. PTC_CUDA_LIBS names the folder that holds all four (only
 * it is looked in then); else they are where the loader finds them. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "runtime/cuda/cuda.h"

struct cuda_libs lib;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct span nowhere;

struct entry {
	const char *name;
	void **to;
};

#define STRING(x) #x
#define NAME(x) STRING(x)
#define ENTRY(f, ret, args) { NAME(f), (void **)&lib.f },

static const struct entry driver[] = { CU_FUNCTIONS(ENTRY) };
static const struct entry nvrtc[] = { NVRTC_FUNCTIONS(ENTRY) };
static const struct entry blas[] = { CUBLASLT_FUNCTIONS(ENTRY) };
static const struct entry nccl[] = { NCCL_FUNCTIONS(ENTRY) };

struct library {
	const char *what, *file[3], *install;
	const struct entry *entry;
	size_t n;
	void *handle;
};

static struct library libraries[] = {
	{ "the NVIDIA driver", { "libcuda.so.1" }, "install the NVIDIA driver of your GPU (a container needs --gpus)", driver,
	  LEN(driver), NULL },
	{ "NVRTC", { "libnvrtc.so.13", "libnvrtc.so.12" }, "install the CUDA Toolkit 12 or 13, or its package cuda-nvrtc", nvrtc,
	  LEN(nvrtc), NULL },
	{ "cuBLASLt", { "libcublasLt.so.13", "libcublasLt.so.12" }, "install the CUDA Toolkit 12 or 13, or its package libcublas",
	  blas, LEN(blas), NULL },
	{ "NCCL", { "libnccl.so.2" }, "install NCCL 2.14 or newer (the package libnccl2)", nccl, LEN(nccl), NULL },
};
enum { LIB_NCCL = 3 };

void lib_names(struct text *t)
{
	for (size_t i = 0; i < LEN(libraries); i++)
		text_put(t, "%s%s", i ? ", " : "", libraries[i].file[0]);
}

static void *open_one(const struct library *l, char *why, size_t size)
{
	const char *folder = getenv("PTC_CUDA_LIBS");

	*why = 0;
	for (size_t i = 0; i < LEN(l->file) && l->file[i]; i++) {
		char path[4096];

		if (folder && *folder)
			snprintf(path, sizeof path, "%s/%s", folder, l->file[i]);
		else
			snprintf(path, sizeof path, "%s", l->file[i]);
		void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);

		if (h)
			return h;
		if (!*why)
			snprintf(why, size, "%s", dlerror());
	}
	return NULL;
}

/* The file that a function is in, by size and time: another build of it makes other code. */
static void identify(char *to, size_t size)
{
	int major = 0, minor = 0;
	Dl_info at;
	struct stat st = { 0 };

	lib.nvrtcVersion(&major, &minor);
	if (dladdr(*(void **)&lib.nvrtcVersion, &at) && at.dli_fname && stat(at.dli_fname, &st) != 0)
		memset(&st, 0, sizeof st);
	snprintf(to, size, "nvrtc %d.%d %lld %lld", major, minor, (long long)st.st_size, (long long)st.st_mtime);
}

static bool load_one(struct library *l, struct diag *d)
{
	char why[1024];

	if (l->handle)
		return true;
	void *h = open_one(l, why, sizeof why);

	if (!h) {
		diag_error(d, nowhere, "%s can't be loaded: %s", l->what, why);
		diag_note(d, nowhere, "%s%s", l->install,
			  getenv("PTC_CUDA_LIBS") ? "; PTC_CUDA_LIBS names the only folder that is looked in" : "");
		return false;
	}
	for (size_t i = 0; i < l->n; i++) {
		*l->entry[i].to = dlsym(h, l->entry[i].name);
		if (!*l->entry[i].to) {
			diag_error(d, nowhere, "%s that was found lacks %s: it is too old", l->what, l->entry[i].name);
			diag_note(d, nowhere, "%s", l->install);
			dlclose(h);
			return false;
		}
	}
	l->handle = h;
	return true;
}

static bool start_driver(struct diag *d)
{
	const char *text = "unknown";
	CUresult e = lib.cuInit(0);

	if (e == CUDA_SUCCESS)
		e = lib.cuDeviceGetCount(&lib.devices);
	if (e == CUDA_SUCCESS && lib.devices > 0)
		return true;
	if (e != CUDA_SUCCESS && lib.cuGetErrorString(e, &text) != CUDA_SUCCESS)
		text = "unknown error";
	diag_error(d, nowhere, "there is no GPU: %s", e == CUDA_SUCCESS ? "the driver finds none" : text);
	diag_note(d, nowhere, "nvidia-smi lists what the driver sees; CUDA_VISIBLE_DEVICES may hide it; --backend cpu needs none");
	return false;
}

bool libs_load(bool with_nccl, struct diag *d)
{
	bool ok = true;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < (int)LEN(libraries); i++)
		if (i != LIB_NCCL || with_nccl)
			ok = load_one(&libraries[i], d) && ok;
	if (ok && !lib.devices && (ok = start_driver(d))) {
		identify(lib.nvrtc_id, sizeof lib.nvrtc_id);
		*(void **)&lib.softgpuDeclare = dlsym(libraries[0].handle, "softgpuDeclare");
	}
	lib.nccl = libraries[LIB_NCCL].handle != NULL;
	pthread_mutex_unlock(&lock);
	return ok;
}
