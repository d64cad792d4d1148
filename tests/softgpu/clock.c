/* clock.c - vector clocks over chains of operations, and which operation an epoch belongs to. */
#include "tests/softgpu/softgpu.h"
#include <stdlib.h>
#include <string.h>

uint32_t epoch = 1;
static struct {
	struct op_record *at;
	size_t n, cap;
} ops;

int new_chain(void)
{
	static int chains;
	return chains++;
}

static void clock_grow(struct clock *a, int n)
{
	if (n <= a->n)
		return;
	a->tick = must(realloc(a->tick, (size_t)n * sizeof *a->tick));
	memset(a->tick + a->n, 0, (size_t)(n - a->n) * sizeof *a->tick);
	a->n = n;
}

void clock_join(struct clock *a, const struct clock *b)
{
	clock_grow(a, b->n);
	for (int i = 0; i < b->n; i++)
		if (a->tick[i] < b->tick[i])
			a->tick[i] = b->tick[i];
}

void clock_set(struct clock *a, int chain, uint32_t tick)
{
	clock_grow(a, chain + 1);
	a->tick[chain] = tick;
}

void op_begin(const struct node *n)
{
	if (ops.n == ops.cap) {
		ops.cap = ops.cap ? 2 * ops.cap : 256;
		ops.at = must(realloc(ops.at, ops.cap * sizeof *ops.at));
	}
	epoch++;
	ops.at[ops.n++] = (struct op_record){epoch, n->chain, n->tick, n->what};
}

const struct op_record *op_of(uint32_t e)
{
	size_t lo = 0, hi = ops.n;
	while (hi - lo > 1) {
		size_t mid = (lo + hi) / 2;
		if (ops.at[mid].epoch <= e)
			lo = mid;
		else
			hi = mid;
	}
	return lo < ops.n && ops.at[lo].epoch <= e ? &ops.at[lo] : NULL;
}

uint32_t op_end(const struct op_record *o)
{
	return o + 1 < ops.at + ops.n ? o[1].epoch : UINT32_MAX;
}
