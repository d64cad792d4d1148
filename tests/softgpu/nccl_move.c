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
		s = text("%s %s rank %d", s, op->kind == SEND ? "to" : "from", op->root);
	if (op->kind == BROADCAST || op->kind == REDUCE)
		s = text("%s, root %d", s, op->root);
	return op->capture ? text("%s, in a graph, its capture %d", s, op->capture) : s;
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

static struct bytes bytes_make(size_t n)
{
	struct bytes b = {must(calloc(n + 1, 1)), must(calloc(n + 1, 1))};
	memset(b.init, 1, n);
	return b;
}

void bytes_free(struct bytes b)
{
	free(b.at);
	free(b.init);
}

struct bytes nccl_take(const struct node *n, const char *from, size_t len)
{
	struct bytes b = bytes_make(len);
	memcpy(b.at, from, len);
	if (cfg.check) {
		op_begin(n);
		check_take(n, from, len);
		check_init_get(from, len, b.init);
	}
	return b;
}

void nccl_give(const struct node *n, char *to, size_t len, struct bytes from)
{
	memcpy(to, from.at, len);
	if (!cfg.check)
		return;
	op_begin(n);
	check_range(n, to, len, true);
	check_init_put(to, len, from.init);
}

size_t nccl_sent(const struct nccl_op *op, int ranks, int rank)
{
	size_t len = op->count * nccl_size(op->type);
	return op->kind == RECV || (op->kind == BROADCAST && rank != op->root) ? 0 : op->kind == REDUCE_SCATTER ? len * (size_t)ranks : len;
}

size_t nccl_part(const struct nccl_op *op, int ranks, int rank, size_t *at)
{
	size_t len = op->count * nccl_size(op->type);
	*at = op->kind == REDUCE_SCATTER ? len * (size_t)rank : 0;
	if (op->kind == REDUCE)
		return rank == op->root ? len : 0;
	if (op->kind == BROADCAST)
		return rank == op->root && op->recv == op->send ? 0 : len;
	return op->kind == ALL_GATHER ? len * (size_t)ranks : len;
}

struct bytes nccl_combine(const struct nccl_op *op, int ranks, struct bytes (*sent)(void *, int rank, size_t len), void *x)
{
	size_t len = nccl_sent(op, ranks, op->root);
	if (op->kind == BROADCAST)
		return sent(x, op->root, len);
	bool reduces = op->kind != ALL_GATHER;
	struct bytes all = bytes_make(reduces ? len : len * (size_t)ranks);
	for (int r = 0; r < ranks; r++) {
		struct bytes one = sent(x, r, len);
		if (!reduces || !r) {
			size_t at = reduces ? 0 : len * (size_t)r;
			memcpy(all.at + at, one.at, len);
			memcpy(all.init + at, one.init, len);
		} else {
			reduce(all.at, one.at, len / nccl_size(op->type), op->type, op->red);
			for (size_t i = 0; i < len; i++)
				all.init[i] &= one.init[i];
		}
		bytes_free(one);
	}
	if (reduces && op->red == ncclAvg)
		divide(all.at, len / nccl_size(op->type), op->type, ranks);
	return all;
}

/* ---- of one process ---- */

static void move_transfer(struct meeting *m)
{
	const struct party *from = &m->party[0], *to = &m->party[1];
	size_t len = from->op->count * nccl_size(from->op->type);
	clock_join(&to->node->clock, &from->node->clock);
	struct bytes b = nccl_take(from->node, from->op->send, len);
	nccl_give(to->node, to->op->recv, len, b);
	bytes_free(b);
}

static struct bytes sent_here(void *x, int rank, size_t len)
{
	const struct party *p = &((const struct meeting *)x)->party[rank];
	return nccl_take(p->node, p->op->send, len);
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

void nccl_move(struct meeting *m)
{
	if (m->from >= 0) {
		move_transfer(m);
		return;
	}
	join_clocks(m);
	struct bytes all = nccl_combine(m->party[0].op, m->ranks, sent_here, m);
	for (int r = 0; r < m->ranks; r++) {
		const struct party *p = &m->party[r];
		size_t at, len = nccl_part(p->op, m->ranks, r, &at);
		if (len)
			nccl_give(p->node, p->op->recv, len, (struct bytes){all.at + at, all.init + at});
	}
	bytes_free(all);
}
