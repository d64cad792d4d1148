/* device.c - driver: devices, contexts, memory; what each call checks first. */
#include "tests/softgpu/api.h"
#include <string.h>

struct device devices[MAX_DEVICES];
static bool opened;

static CUresult api_entered(bool entered)
{
	if (!entered)
		return CUDA_ERROR_NOT_PERMITTED;
	CUresult e = !opened ? CUDA_ERROR_NOT_INITIALIZED :
		self_host->dev < 0 ? CUDA_ERROR_INVALID_CONTEXT : devices[self_host->dev].error;
	if (e)
		leave();
	return e;
}

CUresult api_enter(void)
{
	return api_entered(enter());
}

CUresult api_enter_poll(void)
{
	return api_entered(enter_poll());
}

CUresult api_leave(CUresult e)
{
	leave();
	return e;
}

void device_fail(int dev, CUresult error)
{
	if (devices[dev].error)
		return;
	devices[dev].error = error;
	nodes_kill(dev);
}

static bool valid_device(CUdevice d)
{
	return d >= 0 && d < cfg.devices;
}

CUresult cuInit(unsigned flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!enter())
		return CUDA_ERROR_NOT_PERMITTED;
	opened = cfg.devices && mem_open();
	if (opened && cfg.check)
		check_open();
	return api_leave(opened ? CUDA_SUCCESS : cfg.devices ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NO_DEVICE);
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = 13000;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
#define NAME(n, v) \
	case n: \
		*name = #n; \
		return CUDA_SUCCESS;
	switch (error) { CU_RESULTS(NAME) }
#undef NAME
	*name = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **s)
{
	CUresult e = cuGetErrorName(error, s);
	return e;
}

CUresult cuDeviceGetCount(int *count)
{
	if (!enter())
		return CUDA_ERROR_NOT_PERMITTED;
	*count = cfg.devices;
	return api_leave(opened ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED);
}

/* What asks of a device and needs no context. */
static CUresult ask(CUdevice d)
{
	if (!enter())
		return CUDA_ERROR_NOT_PERMITTED;
	return api_leave(!opened ? CUDA_ERROR_NOT_INITIALIZED : valid_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
	CUresult e = ask(ordinal);
	if (!e)
		*dev = ordinal;
	return e;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult e = len > 0 ? ask(dev) : CUDA_ERROR_INVALID_VALUE;
	if (!e)
		snprintf(name, (size_t)len, "software GPU");
	return e;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	CUresult e = len > 0 ? ask(dev) : CUDA_ERROR_INVALID_VALUE;
	if (!e)
		snprintf(id, (size_t)len, "0000:%02X:00.0", (unsigned)dev + 1);
	return e;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
	CUresult e = ask(dev);
	if (!e)
		*bytes = cfg.memory;
	return e;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attr, CUdevice dev)
{
	CUresult e = ask(dev);
	if (e)
		return e;
	switch (attr) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MAX_THREADS; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = SHARED_STATIC_LIMIT; break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = WARP; break;
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; break;
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1000000; break;
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 1000000; break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 64; break;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *value = 1; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = cfg.arch / 10; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = cfg.arch % 10; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = SHARED_LIMIT + 1024; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = SHARED_LIMIT; break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	CUresult e = ask(dev);
	if (e)
		return e;
	if (!enter())
		return CUDA_ERROR_NOT_PERMITTED;
	struct device *d = &devices[dev];
	if (!d->null)
		d->null = stream_make(dev, true);
	d->open = true;
	*ctx = (CUcontext)(void *)d;
	return api_leave(d->error);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return ask(dev);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	if (!enter())
		return CUDA_ERROR_NOT_PERMITTED;
	struct device *d = (struct device *)(void *)ctx;
	bool good = !d || (d >= devices && d < devices + cfg.devices && d->open);
	if (good)
		self_host->dev = d ? (int)(d - devices) : -1;
	return api_leave(good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	if (!enter())
		return CUDA_ERROR_NOT_PERMITTED;
	*ctx = self_host->dev < 0 ? NULL : (CUcontext)(void *)&devices[self_host->dev];
	return api_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
	CUresult e = api_enter();
	if (e)
		return e;
	*dev = self_host->dev;
	return api_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUresult e = api_enter();
	if (e)
		return e;
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return api_leave(CUDA_SUCCESS);
}

CUresult cuMemGetInfo(size_t *free, size_t *total)
{
	CUresult e = api_enter();
	if (e)
		return e;
	*free = mem_free_bytes(self_host->dev);
	*total = cfg.memory;
	return api_leave(CUDA_SUCCESS);
}

CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
	CUresult e = api_enter();
	if (e)
		return e;
	e = !p || !bytes ? CUDA_ERROR_INVALID_VALUE : capture_forbids("cuMemAlloc");
	return api_leave(e ? e : mem_alloc(self_host->dev, p, bytes));
}

CUresult cuMemFree(CUdeviceptr p)
{
	CUresult e = api_enter();
	if (e || !p)
		return e ? e : api_leave(e);
	e = capture_forbids("cuMemFree");
	if (!e)
		e = device_idle(self_host->dev, "cuMemFree");
	if (!e && is_handed(p) && mem_device(bytes_of(p)) != self_host->dev)
		e = CUDA_ERROR_INVALID_VALUE;
	return api_leave(e ? e : mem_free(self_host->dev, p));
}

CUresult cuMemAllocHost(void **p, size_t bytes)
{
	CUresult e = api_enter();
	if (e)
		return e;
	e = !p || !bytes ? CUDA_ERROR_INVALID_VALUE : capture_forbids("cuMemAllocHost");
	return api_leave(e ? e : mem_pin(p, bytes, true));
}

CUresult cuMemFreeHost(void *p)
{
	CUresult e = api_enter();
	if (e)
		return e;
	e = device_idle(self_host->dev, "cuMemFreeHost");
	return api_leave(e ? e : mem_unpin(p, true));
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned flags)
{
	CUresult e = api_enter();
	if (e)
		return e;
	e = !p || !bytes || flags > 15 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	return api_leave(e ? e : mem_pin(&p, bytes, false));
}

CUresult cuMemHostUnregister(void *p)
{
	CUresult e = api_enter();
	return e ? e : api_leave(mem_unpin(p, false));
}
