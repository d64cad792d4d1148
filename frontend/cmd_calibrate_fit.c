/* frontend/cmd_calibrate_fit.c - the figures with which the cost model says of ops what was measured.
 *
 * Each kind of op has figures of its own, found from its ops alone: one after the other is made larger or smaller, by less
 * and less, as long as the mean of |log(predicted / measured)| falls, where an op weighs as the root of the time that it
 * takes of a step. So an error of one kind does not hide behind one of another. On a GPU, where ops run behind the host's
 * clock, whole steps take the place of ops: those of trials that are mostly of one kind. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_calibrate.h"

enum { MOST_FIGURES = 5 };

/* Ops of one kind, and the figures that say what they take, with where the search begins. */
struct family {
	const char *name;
	enum speaks of;
	bool (*has)(const struct sample *x);
	int n;
	struct {
		size_t at; /* of a double in struct hardware */
		double usual;
	} figure[MOST_FIGURES];
};

static bool is_product(const struct sample *x, bool half)
{
	return x->op->code == OP_EINSUM && (x->op->in[0]->dt == BF16) == half;
}

static bool is_product32(const struct sample *x)
{
	return is_product(x, false);
}

static bool is_product16(const struct sample *x)
{
	return is_product(x, true);
}

static bool is_kernel(const struct sample *x)
{
	return x->op->code == OP_KERNEL;
}

static bool is_attention(const struct sample *x)
{
	return opinfo[x->op->code].class == C_ATTN;
}

static bool is_comm(const struct sample *x)
{
	return comm_sends(x->op->code);
}

#define AT(field) offsetof(struct hardware, field)
#define GEMM(no) { { AT(measured.gemm[no].rate), 4e10 }, { AT(measured.gemm[no].rows), 4 }, { AT(measured.gemm[no].columns), 4 }, { AT(measured.gemm[no].depth), 4 }, { AT(measured.gemm[no].call), 1e-6 } }

/* Kernels come first: the bandwidth that they find is that of products too. */
static const struct family families[] = {
	{ "kernels", OF_KERNELS, is_kernel, 5, { { AT(measured.kernel.bandwidth), 1e10 }, { AT(measured.kernel.call), 1e-6 }, { AT(measured.kernel.simple), 1e-10 },
				     { AT(measured.kernel.hard), 1e-9 }, { AT(measured.kernel.sum), 1e-10 } } },
	{ "products", OF_PRODUCTS, is_product32, 5, GEMM(0) },
	{ "products in bf16", OF_PRODUCTS16, is_product16, 5, GEMM(1) },
	{ "attention", OF_ATTENTION, is_attention, 4, { { AT(measured.attention.rate), 4e10 }, { AT(measured.attention.call), 1e-6 },
					  { AT(measured.attention.score), 1e-9 }, { AT(measured.attention.back), 3 } } },
	{ "collectives", OF_COLLECTIVES, is_comm, 2, { { AT(link[0].bandwidth), 2e9 }, { AT(link[0].latency), 2e-5 } } },
};

/* The ops of one family, each with its trial; or, where ops can't be timed, the trials whose steps are mostly of it. */
struct member {
	const struct sample *x; /* NULL: the whole step */
	struct outcome *of;
};

struct search {
	const struct family *family;
	VEC(struct member) at;
};

static double *figure(struct hardware *h, const struct family *f, int i)
{
	return (double *)(void *)((char *)h + f->figure[i].at);
}

#define PULL 0.002 /* a figure that no op speaks of stays near the usual */

static double step_of(struct outcome *o)
{
	struct arena *mem = arena_new();
	double seconds = step_time_of(mem, o->m, &o->flops).step;

	arena_free(mem);
	return seconds;
}

static double predicted(const struct member *x)
{
	if (!x->x)
		return step_of(x->of);
	struct op_price p = op_price(x->of->pricing, x->x->op);

	return p.seconds + p.extra + p.ring;
}

static double distance(const struct search *s, struct hardware *h)
{
	double sum = 0, weight = 0, pull = 0;
	const struct outcome *last = NULL;

	for (int i = 0; i < s->family->n; i++)
		pull += PULL * fabs(log(*figure(h, s->family, i) / s->family->figure[i].usual));
	for (uint32_t i = 0; i < s->at.n; i++) {
		const struct member *x = &s->at.at[i];
		double seconds = x->x ? x->x->seconds : x->of->seconds, w = x->x ? sqrt(seconds * x->x->times) : 1;

		if (x->of != last)
			x->of->m->hw = *h;
		last = x->of;
		sum += w * fabs(log(predicted(x) / seconds));
		weight += w;
	}
	return weight > 0 ? sum / weight + pull : pull;
}

static double search(const struct search *s, struct hardware *h)
{
	double best = distance(s, h);

	for (double by = 4; by > 1.02; by = sqrt(by))
		for (bool better = true; better;) {
			better = false;
			for (int k = 0; k < 2 * s->family->n; k++) {
				struct hardware other = *h;

				*figure(&other, s->family, k / 2) *= k % 2 ? by : 1 / by;
				double d = distance(s, &other);

				if (d < best * 0.9999) {
					best = d;
					*h = other;
					better = true;
				}
			}
		}
	return best;
}

#define LEAST 0.004 /* of a step: shorter ops say little */

static double find_family(struct arena *mem, struct trials *t, const struct family *f, struct hardware *h)
{
	struct search s = { .family = f };

	for (uint32_t i = 0; i < t->out.n; i++) {
		if (t->cores <= 0 && t->out.at[i].of == f->of)
			PUSH(mem, &s.at, ((struct member){ NULL, &t->out.at[i] }));
		for (int64_t k = 0; t->cores > 0 && k < t->out.at[i].n; k++) {
			struct member x = { &t->out.at[i].op[k], &t->out.at[i] };

			x.of->m->hw = *h;
			if (x.x->op && f->has(x.x) && x.x->seconds * x.x->times > LEAST * x.of->seconds && predicted(&x) > 0)
				PUSH(mem, &s.at, x);
		}
	}
	return search(&s, h);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double predict_steps(struct trials *t, const struct hardware *h)
{
	double *ratio = NEWN(t->out.at[0].m->mem, double, t->out.n);

	for (uint32_t i = 0; i < t->out.n; i++) {
		t->out.at[i].m->hw = *h;
		t->out.at[i].predicted = step_of(&t->out.at[i]);
		ratio[i] = t->out.at[i].predicted > 0 ? t->out.at[i].seconds / t->out.at[i].predicted : 1;
	}
	qsort(ratio, t->out.n, sizeof *ratio, by_size);
	return ratio[t->out.n / 2];
}

/* Ops at their least take less than a step of them: ranks wait for each other, and one's ops fill the caches of another's.
 * All figures are slower by what the trials' steps are, in the median. */
static void slow_down(struct hardware *h, double by)
{
	struct product_rate *g = h->measured.gemm;

	for (int i = 0; i < 2; i++) {
		g[i].rate /= by;
		g[i].call *= by;
	}
	h->measured.kernel.bandwidth /= by;
	h->measured.kernel.call *= by;
	h->measured.kernel.simple *= by;
	h->measured.kernel.hard *= by;
	h->measured.kernel.sum *= by;
	h->measured.attention.rate /= by;
	h->measured.attention.call *= by;
	h->measured.attention.score *= by;
	h->link[0].bandwidth /= by;
	h->link[0].latency *= by;
}

void find_figures(struct trials *t, struct hardware *h)
{
	struct arena *mem = arena_new();

	for (size_t k = 0; k < LEN(families); k++)
		for (int i = 0; i < families[k].n; i++)
			*figure(h, &families[k], i) = families[k].figure[i].usual;
	for (size_t k = 0; k < LEN(families); k++) {
		double d = find_family(mem, t, &families[k], h);

		if (d > 0)
			fprintf(stderr, "%d rank%s  %-18s predicted within %.0f %%\n", t->ranks, t->ranks == 1 ? " " : "s", families[k].name, 100 * (exp(d) - 1));
	}
	if (t->cores > 0)
		slow_down(h, predict_steps(t, h));
	h->fp32 = h->measured.gemm[0].rate;
	h->bf16 = h->measured.gemm[1].rate;
	h->bandwidth = h->measured.kernel.bandwidth;
	predict_steps(t, h);
	arena_free(mem);
}
