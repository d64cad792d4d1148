/* nccl_move.c - NCCL: moves and reduces the data of a meeting. Sums go in the order of ranks, rounded at each. */
#include "tests/softgpu/nccl.h"
#include <stdlib.h>
#include <string.h>

size_t nccl_size(ncclDataType_t t)
{
	switch (t) {
	case ncclInt8:
	case ncclUint8: return 1;
	case ncclFloat16:
	case ncclBfloat16: return 2;
	case ncclInt32:
	case ncclUint32:
	case ncclFloat32: return 4;
	case ncclInt64:
	case ncclUint64:
	case ncclFloat64: return 8;
	}
	return 0;
}

#define NAME(n, v) [v] = #n,
const char *nccl_describe(const struct nccl_op *op)
{
	static const char *const kinds[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "send", "recv"};
	static const char *const types[] = {NCCL_DATA_TYPES(NAME)};
	static const char *const reds[] = {NCCL_RED_OPS(NAME)};
	const char *s = text("%s of %zu %s", kinds[op->kind], op->count, nccl_size(op->type) ? types[op->type] + 4 : "?");
	if (op->kind == ALL_REDUCE || op->kind == REDUCE_SCATTER || op->kind == REDUCE)
		s = text("%s, %s", s, (unsigned)op->red <= ncclAvg ? reds[op->red] + 4 : "?");
	if (op->kind == SEND || op->kind == RECV)
		return text("%s %s rank %d", s, op->kind == SEND ? "to" : "from", op->root);
	return op->kind == BROADCAST || op->kind == REDUCE ? text("%s, root %d", s, op->root) : s;
}

static float from_bf16(uint16_t x)
{
	uint32_t u = (uint32_t)x << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static uint16_t to_bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#define SAME(x) (x)
#define REDUCE_LOOP(T, W, IN, OUT) \
	for (size_t i = 0; i < n; i++) { \
		W a = IN(((T *)acc)[i]), b = IN(((const T *)x)[i]); \
		((T *)acc)[i] = (T)OUT(red == ncclProd ? a * b : red == ncclMax ? (a < b ? b : a) : red == ncclMin ? (b < a ? b : a) : a + b); \
	}
#define DIVIDE_LOOP(T, W, IN, OUT) \
	for (size_t i = 0; i < n; i++) \
		((T *)acc)[i] = (T)OUT(IN(((T *)acc)[i]) / (W)by);
#define BY_TYPE(LOOP) \
	switch (type) { \
	case ncclInt8: LOOP(int8_t, int8_t, SAME, SAME) break; \
	case ncclUint8: LOOP(uint8_t, uint8_t, SAME, SAME) break; \
	case ncclInt32: LOOP(int32_t, int32_t, SAME, SAME) break; \
	case ncclUint32: LOOP(uint32_t, uint32_t, SAME, SAME) break; \
	case ncclInt64: LOOP(int64_t, int64_t, SAME, SAME) break; \
	case ncclUint64: LOOP(uint64_t, uint64_t, SAME, SAME) break; \
	case ncclFloat16: LOOP(_Float16, float, SAME, SAME) break; \
	case ncclFloat32: LOOP(float, float, SAME, SAME) break; \
	case ncclFloat64: LOOP(double, double, SAME, SAME) break; \
	case ncclBfloat16: LOOP(uint16_t, float, from_bf16, to_bf16) break; \
	}

static void reduce(void *acc, const void *x, size_t n, ncclDataType_t type, ncclRedOp_t red)
{
	BY_TYPE(REDUCE_LOOP)
}

static void divide(void *acc, size_t n, ncclDataType_t type, int by)
{
	BY_TYPE(DIVIDE_LOOP)
}

/* Bytes and which of them are initialised. */
struct bytes {
	char *at;
	unsigned char *init;
};

static struct bytes bytes_make(size_t n)
{
	struct bytes b = {must(calloc(n + 1, 1)), must(calloc(n + 1, 1))};
	memset(b.init, 1, n);
	return b;
}

static void bytes_free(struct bytes b)
{
	free(b.at);
	free(b.init);
}

/* What a party sends, read by its node. */
static void take(const struct party *p, const char *from, size_t len, struct bytes to)
{
	memcpy(to.at, from, len);
	if (!cfg.check)
		return;
	op_begin(p->node);
	check_take(p->node, from, len);
	check_init_get(from, len, to.init);
}

static void give(const struct party *p, char *to, size_t len, struct bytes from)
{
	memcpy(to, from.at, len);
	if (!cfg.check)
		return;
	op_begin(p->node);
	check_range(p->node, to, len, true);
	check_init_put(to, len, from.init);
}

static void move_transfer(struct meeting *m)
{
	const struct party *from = &m->party[0], *to = &m->party[1];
	size_t len = from->op->count * nccl_size(from->op->type);
	clock_join(&to->node->clock, &from->node->clock);
	struct bytes b = bytes_make(len);
	take(from, from->op->send, len, b);
	give(to, to->op->recv, len, b);
	bytes_free(b);
}

/* All that the ranks send, reduced or one after another. */
static struct bytes collect(const struct meeting *m, size_t len, bool reduces)
{
	const struct nccl_op *op = m->party[0].op;
	struct bytes all = bytes_make(reduces ? len : len * (size_t)m->ranks), one = bytes_make(len);
	for (int r = 0; r < m->ranks; r++) {
		take(&m->party[r], m->party[r].op->send, len, one);
		if (!reduces || !r) {
			size_t at = reduces ? 0 : len * (size_t)r;
			memcpy(all.at + at, one.at, len);
			memcpy(all.init + at, one.init, len);
			continue;
		}
		reduce(all.at, one.at, len / nccl_size(op->type), op->type, op->red);
		for (size_t i = 0; i < len; i++)
			all.init[i] &= one.init[i];
	}
	if (reduces && op->red == ncclAvg)
		divide(all.at, len / nccl_size(op->type), op->type, m->ranks);
	bytes_free(one);
	return all;
}

static void move_rooted(const struct meeting *m, size_t len)
{
	int root = m->party[0].op->root;
	const struct party *p = &m->party[root];
	if (p->op->kind == REDUCE) {
		struct bytes b = collect(m, len, true);
		give(p, p->op->recv, len, b);
		bytes_free(b);
		return;
	}
	struct bytes b = bytes_make(len);
	take(p, p->op->send, len, b);
	for (int r = 0; r < m->ranks; r++)
		if (r != root || p->op->recv != p->op->send)
			give(&m->party[r], m->party[r].op->recv, len, b);
	bytes_free(b);
}

/* Every rank's part comes after what came before any other's. */
static void join_clocks(const struct meeting *m)
{
	struct clock all = {0};
	for (int r = 0; r < m->ranks; r++)
		clock_join(&all, &m->party[r].node->clock);
	for (int r = 0; r < m->ranks; r++)
		clock_join(&m->party[r].node->clock, &all);
	free(all.tick);
}

void nccl_move(struct clique *c, struct meeting *m)
{
	(void)c;
	if (m->from >= 0) {
		move_transfer(m);
		return;
	}
	const struct nccl_op *op = m->party[0].op;
	size_t len = op->count * nccl_size(op->type);
	join_clocks(m);
	if (op->kind == BROADCAST || op->kind == REDUCE) {
		move_rooted(m, len);
		return;
	}
	bool reduces = op->kind != ALL_GATHER, scatters = op->kind == REDUCE_SCATTER;
	struct bytes all = collect(m, scatters ? len * (size_t)m->ranks : len, reduces);
	for (int r = 0; r < m->ranks; r++) {
		size_t at = scatters ? len * (size_t)r : 0;
		struct bytes part = {all.at + at, all.init + at};
		give(&m->party[r], m->party[r].op->recv, reduces ? len : len * (size_t)m->ranks, part);
	}
	bytes_free(all);
}
