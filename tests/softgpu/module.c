/* module.c - driver: modules, functions, launches. */
#include "tests/softgpu/module.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct library {
	int refs, fd;
	uint64_t bytes;
	char *image;
	void *dl;
	const struct softgpu_kernel *kernels;
	struct library *next;
};
struct CUmod_st {
	int dev;
	struct library *lib;
	struct CUfunc_st *fns;
};
struct CUfunc_st {
	struct CUmod_st *module;
	const struct softgpu_kernel *kernel;
	int shared;                 /* most dynamic shared memory it may be given */
	struct CUfunc_st *next;
};
static struct library *libraries;
enum { KNOWN = 61 };
static struct {                     /* lines that were asked for, of libraries that are loaded */
	const void *code;
	const char *line;
} known[KNOWN];

/* Kernels call back into this library, which a program has loaded with its names kept to itself. */
static bool own_names_seen(void)
{
	static void *me;
	Dl_info info;
	if (!me && dladdr((void *)(uintptr_t)&own_names_seen, &info))
		me = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
	return me;
}

/* The loader knows a file by its name: fd stays open as long as the library is loaded. */
static bool library_open(struct library *l)
{
	char name[64];
	l->fd = memfd_create("softgpu-module", MFD_CLOEXEC);
	if (l->fd < 0)
		return false;
	for (uint64_t at = 0; at < l->bytes;) {
		ssize_t n = write(l->fd, l->image + at, l->bytes - at);
		if (n <= 0)
			return false;
		at += (uint64_t)n;
	}
	snprintf(name, sizeof name, "/proc/self/fd/%d", l->fd);
	l->dl = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	l->kernels = l->dl ? dlsym(l->dl, "softgpu_kernels") : NULL;
	if (!l->kernels)
		fprintf(stderr, "softgpu: module: %s\n", dlerror());
	return l->kernels;
}

static void library_unref(struct library *l)
{
	if (--l->refs)
		return;
	for (struct library **at = &libraries; *at; at = &(*at)->next)
		if (*at == l) {
			*at = l->next;
			break;
		}
	memset(known, 0, sizeof known);
	if (l->dl)
		dlclose(l->dl);
	if (l->fd >= 0)
		close(l->fd);
	free(l->image);
	free(l);
}

static const char *find_line(const void *code)
{
	Dl_info info;
	int fd;
	if (!code || !dladdr(code, &info) || sscanf(info.dli_fname, "/proc/self/fd/%d", &fd) != 1)
		return "";
	size_t at = (size_t)((const char *)code - (const char *)info.dli_fbase) - 1;    /* within the call */
	FILE *f = popen(text("addr2line -i -s -e /proc/%d/fd/%d 0x%zx 2>/dev/null", (int)getpid(), fd, at), "r");
	char line[300] = "";
	const char *found = "";
	while (f && !*found && fgets(line, sizeof line, f))     /* innermost first; shim.h, a.cc to the compiler, is not the source */
		if (strncmp(line, "shim.h", 6) && strncmp(line, "a.cc", 4) && line[0] != '?')
			found = text(" at %.*s", (int)strcspn(line, " \n"), line);
	if (f)
		pclose(f);
	return found;
}

const char *line_of(const void *code)
{
	size_t k = (uint64_t)code % KNOWN;
	if (known[k].code != code || !known[k].line) {
		known[k].code = code;
		known[k].line = find_line(code);
	}
	return known[k].line;
}

/* One copy in memory, however many devices load it: kernels have no state. NULL: it cannot be loaded. */
static struct library *library_of(const struct image *im)
{
	for (struct library *l = libraries; l; l = l->next)
		if (l->bytes == im->bytes && !memcmp(l->image, im->data, im->bytes)) {
			l->refs++;
			return l;
		}
	struct library *l = must(calloc(1, sizeof *l));
	l->refs = 1;
	l->bytes = im->bytes;
	l->image = must(malloc(im->bytes));
	memcpy(l->image, im->data, im->bytes);
	l->next = libraries;
	libraries = l;
	if (own_names_seen() && library_open(l))
		return l;
	library_unref(l);
	return NULL;
}

CUresult cuModuleLoadData(CUmodule *m, const void *image)
{
	CUresult e = api_enter();
	if (e)
		return e;
	const struct image *im = image;
	if (!m || !im || memcmp(im->magic, IMAGE_MAGIC, sizeof im->magic))
		return api_leave(CUDA_ERROR_INVALID_IMAGE);
	e = capture_forbids("cuModuleLoadData");
	if (!e && (im->arch != cfg.arch || im->checked != cfg.check))   /* one from a cache may be */
		e = CUDA_ERROR_NO_BINARY_FOR_GPU;
	struct library *l = e ? NULL : library_of(im);
	if (!l)
		return api_leave(e ? e : CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
	*m = must(calloc(1, sizeof **m));
	(*m)->dev = self_host->dev;
	(*m)->lib = l;
	return api_leave(CUDA_SUCCESS);
}

CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *options, void **values)
{
	for (unsigned i = 0; i < n; i++) {
		if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
			values[i] = NULL;       /* nothing was written */
		else if (options[i] != CU_JIT_INFO_LOG_BUFFER && options[i] != CU_JIT_ERROR_LOG_BUFFER)
			return CUDA_ERROR_INVALID_VALUE;
		else if (values[i])
			*(char *)values[i] = 0;
	}
	return cuModuleLoadData(m, image);
}

CUresult cuModuleUnload(CUmodule m)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (!m)
		return api_leave(CUDA_ERROR_INVALID_HANDLE);
	e = device_idle(m->dev, "cuModuleUnload");
	while (m->fns) {
		struct CUfunc_st *f = m->fns;
		m->fns = f->next;
		free(f);
	}
	library_unref(m->lib);
	free(m);
	return api_leave(e);
}

CUresult cuModuleGetFunction(CUfunction *fn, CUmodule m, const char *name)
{
	CUresult e = api_enter();
	if (e)
		return e;
	const struct softgpu_kernel *k = m ? m->lib->kernels : NULL;
	while (k && k->name && strcmp(k->name, name))
		k++;
	if (!k || !k->name)
		return api_leave(m ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE);
	if (nccl_under_way(self_host->dev)) /* the driver's lazy loading */
		report("late kernel", "%s is loaded while collectives of gpu%d are under way: it may wait for them, and they for a rank that "
		       "waits likewise", name, self_host->dev);
	struct CUfunc_st *f = must(calloc(1, sizeof *f));
	*f = (struct CUfunc_st){m, k, SHARED_STATIC_LIMIT, m->fns};
	m->fns = f;
	*fn = f;
	return api_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attr, CUfunction fn)
{
	CUresult e = api_enter();
	if (e)
		return e;
	switch (attr) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MAX_THREADS; break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = cfg.arch; break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = fn->shared; break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
	default: e = CUDA_ERROR_INVALID_VALUE;
	}
	return api_leave(e);
}

CUresult cuFuncSetAttribute(CUfunction fn, CUfunction_attribute attr, int value)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (attr == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 && value <= SHARED_LIMIT)
		fn->shared = value;
	else if (attr != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
		e = CUDA_ERROR_INVALID_VALUE;
	return api_leave(e);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction fn, int block, size_t shared)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (!blocks || !fn || block <= 0 || block > MAX_THREADS)
		return api_leave(CUDA_ERROR_INVALID_VALUE);
	size_t by_threads = 2048 / (size_t)block, by_shared = (SHARED_LIMIT + 1024) / (shared + 1024);
	*blocks = shared > (size_t)fn->shared ? 0 : (int)(by_threads < by_shared ? by_threads : by_shared);
	return api_leave(CUDA_SUCCESS);
}

/* ---- launches ---- */

static bool launch_run(struct node *n);

void softgpuDeclare(int n, const CUdeviceptr *base, const size_t *len, const unsigned char *writable)
{
	if (api_enter())
		return;
	struct declared *d = must(calloc(1, sizeof *d));
	d->n = n;
	d->range = must(calloc((size_t)n + 1, sizeof *d->range));
	for (int i = 0; i < n; i++) {
		char *from = mem_range(self_host->dev, (const void *)base[i], len[i], "softgpuDeclare", text("range %d", i));
		d->range[i] = (struct range){from, from ? from + len[i] : from, writable[i]};
	}
	if (self_host->declared)
		free(self_host->declared->range);
	free(self_host->declared);
	self_host->declared = d;
	leave();
}

static void launch_drop(struct work *w)
{
	struct launch *l = (struct launch *)w;
	if (l->declared)
		free(l->declared->range);
	free(l->declared);
	free(l->args);
	free(l->arg);
}

static struct node *stalled;        /* a launch that has begun and does not end */
static double stalled_until;

static bool stalls(struct node *n)
{
	static int launches;
	if (n->dev != cfg.stall.dev || ++launches != cfg.stall.launch)
		return false;
	fprintf(stderr, "softgpu: gpu%d stands still for %g s at %s\n", n->dev, cfg.stall.seconds, n->what);
	stalled = node_ref(n);
	stalled_until = now() + cfg.stall.seconds;
	return true;
}

bool stall_waits(void)
{
	return stalled;
}

bool stall_poll(void)
{
	struct node *n = stalled;
	if (!n || (now() < stalled_until && !n->done))
		return false;
	stalled = NULL;
	if (!n->done && launch_run(n))
		node_done(n);
	node_unref(n);
	return true;
}

static bool launch_run(struct node *n)
{
	CUresult error = CUDA_SUCCESS;
	if (cfg.stall.launch && stalls(n))
		return false;
	if (!run_blocks((const struct launch *)n->work, n, &error))
		device_fail(n->dev, error);
	return !n->done;
}

/* Copies the arguments; addresses that lie in them become those of the bytes. */
static CUresult take_args(struct launch *l, void **params, int dev)
{
	const struct softgpu_kernel *k = l->kernel;
	size_t total = 0;
	for (int i = 0; i < k->nargs; i++)
		total += (k->sizes[i] + 15u) / 16 * 16;
	l->args = must(calloc(1, total + 16));
	l->arg = must(calloc((size_t)k->nargs + 1, sizeof(void *)));
	char *at = l->args;
	for (int i = 0; i < k->nargs; i++) {
		memcpy(at, params[i], k->sizes[i]);
		for (unsigned w = 0; w + 8 <= k->sizes[i]; w += 8) {
			uint64_t p;
			memcpy(&p, at + w, 8);
			if (!is_handed(p))
				continue;
			if (mem_device(bytes_of(p)) != dev) {
				report("bad pointer", "kernel %s: argument %d points to memory of gpu%d, not of gpu%d", k->name, i,
				       mem_device(bytes_of(p)), dev);
				return CUDA_ERROR_INVALID_VALUE;
			}
			p = (uint64_t)bytes_of(p);
			memcpy(at + w, &p, 8);
		}
		l->arg[i] = at;
		at += (k->sizes[i] + 15u) / 16 * 16;
	}
	return CUDA_SUCCESS;
}

static CUresult check_shape(const struct CUfunc_st *fn, const unsigned *grid, const unsigned *block, unsigned shared)
{
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
	if (!grid[0] || !grid[1] || !grid[2] || !threads || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535)
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > MAX_THREADS || block[2] > 64 || shared > (unsigned)fn->shared)
		return CUDA_ERROR_INVALID_VALUE;
	return fn->module->dev == self_host->dev ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
			CUstream s, void **params, void **extra)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (!fn || extra || (!params && fn->kernel->nargs))
		return api_leave(fn ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	struct launch *l = (struct launch *)work_make(sizeof *l, launch_run);
	l->work.drop = launch_drop;
	l->kernel = fn->kernel;
	memcpy(l->grid, (unsigned[]){gx, gy, gz}, sizeof l->grid);
	memcpy(l->block, (unsigned[]){bx, by, bz}, sizeof l->block);
	l->shared = shared;
	l->declared = self_host->declared;
	self_host->declared = NULL;
	e = check_shape(fn, l->grid, l->block, shared);
	if (!e)
		e = take_args(l, params, self_host->dev);
	if (e) {
		work_unref(&l->work);
		return api_leave(e);
	}
	return api_leave(stream_add(s, text("kernel %s", fn->kernel->name), &l->work));
}
