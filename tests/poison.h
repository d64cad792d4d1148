/* tests/poison.h - memory that a step may not rely on, filled with NaNs before it. */
#ifndef PTC_TESTS_POISON_H
#define PTC_TESTS_POISON_H
#include <stdlib.h>

#include "runtime/internal.h"

/* Fills all of every arena but the buffers with NaNs. false: no memory. */
static inline bool poison(struct runtime *rt)
{
	for (int64_t r = 0; r < rt->nrank; r++) {
		struct rank *k = &rt->rank[r];
		int64_t bytes = rt->layouts ? rt->layouts->stage[k->stage].arena : rt->m->arena;
		char *keep = calloc(1, (size_t)bytes + 1);

		if (!keep)
			return false;
		begin_once(k);
		for (uint32_t i = 0; i < rt->m->bufs.n; i++) {
			const struct buffer *b = rt->m->bufs.at[i];
			struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store };
			struct loc at = { .region = rt->regions->buf[i], .base = b->off };

			memcpy(v.d, b->d, sizeof v.d);
			if (b->role == B_INPUT || b->host || k->slot[at.region].base < 0)
				continue;
			dimid dim = rt->regions->at.at[at.region].dim;
			int64_t n = local_bytes(rt->m, &v), lo = rank_at(k, &at) - k->arena;

			if (dim != NODIM)
				n = n / cap_of(rt->m, dim, &v.sh.on[0]) * k->slot[at.region].rows;
			memset(keep + lo, 1, (size_t)n);
		}
		for (int64_t i = 0; i < bytes; i++)
			if (!keep[i])
				k->arena[i] = (char)0xff;
		free(keep);
	}
	return true;
}

#endif
