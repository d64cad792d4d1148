/* tests/softgpu/module.h - private: what the stand-in for NVRTC gives as a cubin. */
#ifndef SOFTGPU_MODULE_H
#define SOFTGPU_MODULE_H
#include "tests/softgpu/api.h"

#define IMAGE_MAGIC "SOFTGPU"
struct image {
	char magic[8];
	uint64_t bytes;
	int32_t arch, checked;
	char data[];                /* a shared object with softgpu_kernels, ended by a name NULL */
};

#endif
