/* runtime/cuda/tune.c - which of the ways that cuBLASLt holds to be best for a product is the fastest here, measured.
 *
 * PTC_CUDA_TUNE=N: N of them are tried when a product is first met, while the first step is read and nothing is under
 * way, on zeros in memory of its own. All ranks of the process take what the first that met it has found, so that they
 * round alike; processes that are one rank each could not, and are not tuned. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cuda/gemm.h"

enum { ROUNDS = 5, NMEM_TRIAL = 6 };

struct choice_made {
	struct shape is;
	cublasLtMatmulAlgo_t algo;
	int64_t workspace;
	struct choice_made *next;
};

bool tune_open(struct cuda *c, struct diag *d)
{
	c->ways = c->tune > 1 ? c->tune : 1;
	return pthread_mutex_init(&c->tuning, NULL) == 0 || diag_error(d, (struct span){ 0 }, "no lock can be made");
}

void tune_close(struct cuda *c)
{
	while (c->chosen) {
		struct choice_made *next = c->chosen->next;

		free(c->chosen);
		c->chosen = next;
	}
	if (c->ways)
		pthread_mutex_destroy(&c->tuning);
}

int tune_ways(const struct gpu *g)
{
	const struct runtime *rt = g->r->rt;

	return g->dry && rt->here < 0 ? ((const struct cuda *)rt->own)->ways : 1;
}

/* -- a trial -- */

struct trial {
	CUdeviceptr at[NMEM_TRIAL]; /* a, b, c; vector, matrix; workspace */
	CUevent from, to;
};

static int64_t bytes_of(const struct product *p, int k)
{
	const struct shape *s = &p->is;
	const int64_t cols[3] = { s->ta ? s->n : s->k, s->tb ? s->k : s->m, s->m }, ld[3] = { s->lda, s->ldb, s->ldc };
	const int64_t stride[3] = { s->sa, s->sb, s->sc };

	return (cols[k] * ld[k] + (s->batch - 1) * stride[k]) * dtype_bytes((enum dtype)(k == 2 ? s->ctype : s->type));
}

static bool trial_open(struct gpu *g, const struct product *p, size_t workspace, struct trial *t)
{
	const struct shape *s = &p->is;
	const size_t n[NMEM_TRIAL] = { (size_t)bytes_of(p, 0), (size_t)bytes_of(p, 1), (size_t)bytes_of(p, 2),
				       s->align[3] ? 4 * (size_t)(s->n > s->m ? s->n : s->m) : 0, s->align[4] ? (size_t)bytes_of(p, 2) : 0,
				       workspace };

	*t = (struct trial){ 0 };
	for (int i = 0; i < NMEM_TRIAL; i++)
		if (n[i] && (lib.cuMemAlloc(&t->at[i], n[i]) != CUDA_SUCCESS ||
			     lib.cuMemsetD8Async(t->at[i], 0, n[i], g->compute) != CUDA_SUCCESS))
			return false;
	return lib.cuEventCreate(&t->from, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
	       lib.cuEventCreate(&t->to, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
}

static void trial_close(struct trial *t)
{
	for (int i = 0; i < NMEM_TRIAL; i++)
		if (t->at[i])
			lib.cuMemFree(t->at[i]);
	if (t->from)
		lib.cuEventDestroy(t->from);
	if (t->to)
		lib.cuEventDestroy(t->to);
}

/* Milliseconds of some rounds, after one that does not count. < 0: it does not work. */
static float measure(struct gpu *g, const struct product *p, const struct trial *t,
		     const cublasLtMatmulHeuristicResult_t *way)
{
	const float one = 1, beta = p->is.add ? 1 : 0;
	void *c = (void *)(uintptr_t)t->at[2];
	float ms = -1;

	for (int i = 0; i <= ROUNDS; i++)
		if ((i == 1 && lib.cuEventRecord(t->from, g->compute) != CUDA_SUCCESS) ||
		    lib.cublasLtMatmul(g->lt, p->desc, &one, (void *)(uintptr_t)t->at[0], p->at[0],
				       (void *)(uintptr_t)t->at[1], p->at[1], &beta, c, p->at[2], c, p->at[2], &way->algo, (void *)(uintptr_t)t->at[5], way->workspaceSize,
				       g->compute) != CUBLAS_STATUS_SUCCESS)
			return -1;
	if (lib.cuEventRecord(t->to, g->compute) != CUDA_SUCCESS || lib.cuStreamSynchronize(g->compute) != CUDA_SUCCESS ||
	    lib.cuEventElapsedTime(&ms, t->from, t->to) != CUDA_SUCCESS)
		return -1;
	return ms;
}

static int fastest(struct gpu *g, const struct product *p, const cublasLtMatmulHeuristicResult_t *way, int n)
{
	size_t workspace = 0;
	struct trial t;
	float least = -1;
	int best = 0;

	for (int i = 0; i < n; i++)
		workspace = way[i].workspaceSize > workspace ? way[i].workspaceSize : workspace;
	if (trial_open(g, p, workspace, &t)) {
		struct extras x = { (void *)(uintptr_t)t.at[3], (void *)(uintptr_t)t.at[4] };

		for (int i = 0; i < n && gpu_point(g, p, &x); i++) {
			float ms = way[i].state == CUBLAS_STATUS_SUCCESS ? measure(g, p, &t, &way[i]) : -1;

			if (ms >= 0 && (least < 0 || ms < least)) {
				least = ms;
				best = i;
			}
		}
	}
	trial_close(&t);
	return best;
}

void tune(struct gpu *g, struct product *p, const cublasLtMatmulHeuristicResult_t *way, int n)
{
	struct cuda *c = g->r->rt->own;
	struct choice_made *x;

	pthread_mutex_lock(&c->tuning);
	for (x = c->chosen; x && memcmp(&x->is, &p->is, sizeof p->is); x = x->next)
		;
	if (!x && (x = malloc(sizeof *x))) {
		int best = fastest(g, p, way, n);

		*x = (struct choice_made){ p->is, way[best].algo, (int64_t)way[best].workspaceSize, c->chosen };
		c->chosen = x;
	}
	pthread_mutex_unlock(&c->tuning);
	p->algo = x ? x->algo : way[0].algo;
	p->workspace = x ? x->workspace : (int64_t)way[0].workspaceSize;
	p->tried = x ? c->ways : 1;
}
