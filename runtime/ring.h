/* runtime/ring.h - rings of ranks that are threads (ring.c), for cpu.c. */
#ifndef PTC_RUNTIME_RING_H
#define PTC_RUNTIME_RING_H
#include "runtime/backend.h"

bool ring_begin(struct key_ring *g);
bool ring_pull(struct key_ring *g, void *to, char *const *from, int64_t bytes);
bool ring_arrive(struct key_ring *g);
bool ring_turn(struct key_ring *g);
bool ring_end(struct key_ring *g);
bool ring_combine(struct key_ring *g, const struct attention *x, void *o, float *lse, int64_t no, int64_t nlse);

#endif
