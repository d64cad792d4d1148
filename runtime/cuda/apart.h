/* runtime/cuda/apart.h - private to the CUDA backend: calls of libraries that may wait for other ranks, for ever if one is lost. */
#ifndef PTC_CUDA_APART_H
#define PTC_CUDA_APART_H
#include "runtime/cuda/cuda.h"

/* fn(copy of x) by a thread of its own, in g's context. NULL: said. */
struct apart;
struct apart *apart_begin(struct gpu *g, void (*fn)(void *), const void *x, size_t bytes);
bool apart_done(struct apart *a, double seconds); /* waits so long */
/* The copy as fn has left it, or, if it is not done, nothing: the thread is left in it. false: that. */
bool apart_end(struct apart *a, void *x);

#endif
