/* passes/price_gemm.c - seconds of a matrix product by its shape.
 *
 * t = max(2 m n k batch / (best * share * waves * k / (k + fill) * alignment), bytes / bandwidth) + a launch's tail */
#include <math.h>

#include "passes/constants.h"
#include "passes/price.h"

/* The part of dim d that a rank works on. */
static double part_of(const struct module *m, const struct op *op, dimid d)
{
	int64_t cap = dim_size(m, d);

	for (uint32_t k = 0; k < op->nin + op->nout; k++) {
		const struct value *v = k < op->nin ? op->in[k] : op->out[k - op->nin];
		int pos = dim_pos(v, d);

		if (pos >= 0 && cap_of(m, d, &v->sh.on[pos]) < cap)
			cap = cap_of(m, d, &v->sh.on[pos]);
	}
	return (double)cap;
}

enum { TILE_M = 128, TILE_N = 256 }; /* the largest tile, which large products are made of */

struct gemm product_of(const struct module *m, const struct op *op)
{
	struct gemm g = { 1, 1, 1, 1, op_local_bytes(m, op), false };
	dimid d[MAX_DIMS * 12];
	int n = op_space(op, d);

	for (int i = 0; i < n; i++) {
		bool a = has_dim(op->in[0], d[i]), b = has_dim(op->in[1], d[i]), r = has_dim(op->out[0], d[i]);
		double size = part_of(m, op, d[i]);

		*(a && b && r ? &g.batch : !r ? &g.k : a ? &g.m : &g.n) *= size;
	}
	for (int i = op->out[0]->nd - 1; i >= 0; i--)
		if (has_dim(op->in[0], op->out[0]->d[i]) != has_dim(op->in[1], op->out[0]->d[i])) {
			g.turned = has_dim(op->in[0], op->out[0]->d[i]);
			break;
		}
	return g;
}

/* Tensor cores load 16 bytes at once: share of the rate by the largest power of two in a dim. */
static double alignment(double size)
{
	static const struct {
		int64_t by;
		double share;
	} step[] = { { 64, 1 }, { 32, 0.97 }, { 16, 0.93 }, { 8, 0.84 }, { 4, 0.30 } };

	for (size_t i = 0; i < LEN(step); i++)
		if (fmod(size, (double)step[i].by) == 0)
			return step[i].share;
	return 0.20;
}

/* Tiles are worked off in waves of one a unit; half of a last wave that is not full is hidden by what comes
 * next. The best of a library's tiles, each with what it reaches of the rate. */
static double waves(const struct module *m, const struct gemm *g)
{
	static const struct {
		double m, n, share;
	} tile[] = { { 128, 256, 1 }, { 256, 128, 1 }, { 128, 128, 0.95 }, { 128, 64, 0.80 }, { 64, 64, 0.62 } };
	double units = m->hw.units, best = 0;

	for (size_t i = 0; i < LEN(tile); i++) {
		double tiles = ceil(g->m / tile[i].m) * ceil(g->n / tile[i].n) * g->batch;
		double w = tiles <= units ? 1 : (ceil(tiles / units) + tiles / units) / 2;
		double share = tile[i].share * g->m * g->n * g->batch / (w * units * tile[i].m * tile[i].n);

		best = share > best ? share : best;
	}
	return best;
}

/* Depth at which half of the rate is reached: a tile takes GEMM_FILL besides its products. The faster a unit is, the
 * more of these go by: 150 on A100, 400 on H100, 810 on B200, and twice that in fp8. */
static double fill_depth(const struct module *m, int width)
{
	const struct hardware *h = &m->hw;
	double peak = width == GEMM_FP4 && h->fp4 > 0 ? h->fp4 : width != GEMM_PLAN && h->fp8 > 0 ? h->fp8 : h->bf16;

	return GEMM_FILL * peak / (h->units * 2 * TILE_M * TILE_N);
}

static double best_rate(const struct module *m, enum dtype dt, int width)
{
	const struct hardware *h = &m->hw;
	double best16 = h->best16 > 0 ? h->best16 : GEMM_BEST * h->bf16, best8 = h->best8 > 0 ? h->best8 : GEMM_BEST_FP8 * h->fp8;

	if (dt != BF16 && m->software.at[SW_ELEMENTWISE] != ELEM_PLAN) /* TF32: half of the rate */
		return fmax(GEMM_SHARE * best16 / 2, GEMM_SHARE * GEMM_BEST * h->fp32);
	if (dt != BF16 || h->bf16 <= 0)
		return GEMM_SHARE * GEMM_BEST * h->fp32;
	if (width == GEMM_PLAN || h->fp8 <= 0)
		return GEMM_SHARE * best16;
	if (width == GEMM_FP8 || h->fp4 <= 0)
		return GEMM_SHARE * best8;
	return GEMM_SHARE * GEMM_SHARE_FP4 * best8 * h->fp4 / h->fp8;
}

double gemm_price(const struct module *m, const struct gemm *g, enum dtype dt, int width)
{
	if (m->hw.measured.gemm[0].rate > 0 && width == GEMM_PLAN)
		return measured_gemm(m, g, dt);
	double flops = 2 * g->m * g->n * g->k * g->batch, rate = best_rate(m, dt, width);

	if (m->hw.units > 0) /* a GPU */
		rate *= waves(m, g) * g->k / (g->k + fill_depth(m, width)) * fmin(alignment(g->n), alignment(g->k));
	double compute = rate > 0 ? flops / rate : 0, move = m->hw.bandwidth > 0 ? g->bytes / (m->hw.bandwidth * MEMORY_SHARE) : 0;

	return fmax(compute, move) + LAUNCH_TAIL;
}
