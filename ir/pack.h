/* ir/pack.h - lays pieces of memory out on a timeline. */
#ifndef PTC_PACK_H
#define PTC_PACK_H
#include "ir/base.h"

/* Live at start..end, both included; -1 <= start, end <= n. */
struct packed {
	int64_t bytes, start, end, off, load;
	uint32_t no; /* for ties: in the order given */
};

/* Sets off, no two that are live together overlap; the height. */
int64_t pack(struct arena *mem, struct packed **at, uint32_t count, int64_t n);
/* The same, where a few orders are not enough: tries more. */
int64_t pack_tight(struct arena *mem, struct packed **at, uint32_t count, int64_t n);
int64_t most_live(struct arena *mem, struct packed **at, uint32_t count, int64_t n); /* no layout is lower */

#endif
