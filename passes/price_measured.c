/* passes/price_measured.c - what ops take on a machine that `ptc calibrate` measured: the formulas of struct measured.
 *
 * On a processor ranks are threads, of `cores` cores each. What one does alone takes as long as its work does; what its
 * helpers share is in the rates, and a kernel that they can't share takes them all. */
#include <math.h>

#include "passes/price.h"

double measured_gemm(const struct module *m, const struct gemm *g, enum dtype dt)
{
	const struct product_rate *r = &m->hw.measured.gemm[dt == BF16 && m->hw.measured.gemm[1].rate > 0];
	double rows = g->turned ? g->n : g->m, columns = g->turned ? g->m : g->n;
	double flops = 2 * g->m * g->n * g->k * g->batch, shape = (1 + r->rows / rows) * (1 + r->columns / columns) * (1 + r->depth / g->k);
	double calls = m->hw.units > 0 ? 1 : g->batch; /* a processor takes them one by one */
	double move = m->hw.measured.kernel.bandwidth > 0 ? g->bytes / m->hw.measured.kernel.bandwidth : 0;

	return calls * r->call + fmax(flops / r->rate * shape, move);
}

/* -- kernels -- */

static bool sums_up(const struct op *op)
{
	return opinfo[op->code].class == C_REDUCE || op->code == OP_SCATTER;
}

struct effort { /* elements of a rank */
	double simple, hard, sum;
};

static void add_effort(const struct module *m, const struct op *op, struct effort *e)
{
	double n = op->nout ? (double)local_count(m, op->out[0]) : 0;

	switch (op->code) {
	case OP_SUM: case OP_RMAX: case OP_SCATTER:
		e->sum += (double)local_count(m, op->in[0]);
		break;
	case OP_LOOKUP:
		e->sum += n;
		break;
	case OP_EXP: case OP_LOG: case OP_TANH: case OP_SIGMOID: case OP_SILU: case OP_GELU:
		e->hard += n;
		break;
	case OP_DSILU: case OP_DGELU:
		e->hard += 1.5 * n;
		break;
	case OP_SIN: case OP_COS: case OP_POW: case OP_RNG:
		e->hard += 2 * n;
		break;
	case OP_DIV: case OP_SQRT: case OP_RSQRT:
		e->simple += 2 * n;
		break;
	case OP_CAST: case OP_DETACH: case OP_CONST: case OP_STEP: case OP_TRAINING: case OP_ITER: case OP_INDEX:
		break;
	default:
		e->simple += opinfo[op->code].class == C_VIEW ? 0 : op->code == OP_ACCUM ? n * (op->nin - 1) : n;
	}
}

static struct effort effort_of(const struct module *m, const struct block *body)
{
	struct effort e = { 0 };

	for (const struct op *op = body->first; op; op = op->next)
		add_effort(m, op, &e);
	return e;
}

/* Threads share a kernel along a dim over which nothing is summed: see codegen/kernel_plan.c. */
static bool is_shared(const struct module *m, const struct block *body)
{
	const struct value *most = NULL;

	for (const struct op *op = body->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin + op->nout; i++) {
			const struct value *v = i < op->nin ? op->in[i] : op->out[i - op->nin];

			most = !most || local_count(m, v) > local_count(m, most) ? v : most;
		}
	for (int k = 0; most && k < most->nd; k++) {
		bool whole = cap_of(m, most->d[k], &most->sh.on[k]) > 1;

		for (const struct op *op = body->first; op && whole; op = op->next)
			whole = !sums_up(op) || !has_dim(op->in[0], most->d[k]) || has_dim(op->out[0], most->d[k]);
		if (whole)
			return true;
	}
	return false;
}

double measured_kernel(const struct module *m, const struct op *op, double bytes)
{
	const struct kernel_rate *r = &m->hw.measured.kernel;
	struct effort e = op->code == OP_KERNEL ? effort_of(m, op->body) : (struct effort){ .simple = (double)local_count(m, op->out[0]) };
	bool alone = m->hw.cores > 1 && op->code == OP_KERNEL && !is_shared(m, op->body);

	return r->call + (bytes / r->bandwidth + e.simple * r->simple + e.hard * r->hard + e.sum * r->sum) * (alone ? m->hw.cores : 1);
}

/* -- attention -- */

enum { MOST_ROWS = 64 }; /* of a tile, which meets the keys that its last row sees: runtime/attention.c, and flash kernels' */

double measured_attention(const struct module *m, const struct scores *s, bool causal, bool back)
{
	const struct attention_rate *r = &m->hw.measured.attention;
	double tile = fmin(MOST_ROWS, s->rows), keys = causal ? fmin(s->keys, (s->keys + tile) / 2) : s->keys;
	double met = s->batch * s->rows * keys, tiles = s->batch * ceil(s->rows / tile);

	return (tiles * r->call + 2 * met * (s->qk + s->v) / r->rate + met * r->score) * (back ? r->back : 1);
}

/* -- collectives of threads --
 *
 * A gather or an exchange reads and writes all that the group has of it, a reduction is made in parts which all fetch:
 * runtime/collectives.c. `bandwidth` is that of what two ranks send each other, of which it moves four times as much. */
double measured_comm(const struct link *link, double n, double sent, int ways)
{
	double all = sent * n / (n - 1) / ways;

	return (1 + ways) * (all / 4 / link->bandwidth + link->latency);
}
