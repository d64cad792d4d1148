/* runtime/vector.h - 16 floats at a time, on whatever the processor has: functions marked FAST are
 * compiled for AVX-512, AVX2 and the base, and chosen when the program starts. */
#ifndef PTC_RUNTIME_VECTOR_H
#define PTC_RUNTIME_VECTOR_H
#include <stdint.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

enum { LANES = 16 };
typedef float vf __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t vw __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* wraps */
typedef uint16_t vh __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
#define AT(p) (*(vf *)(p))
#define GET(p) (*(const vf *)(p))
#define PICK(mask, a, b) ((vf)(((mask) & (vi)(a)) | (~(mask) & (vi)(b))))

#endif
