/* lt_run.c - cuBLASLt: the product itself, with its epilogue, in fp32.
 *
 * D = epilogue(alpha op(A) op(B) + beta C). GELU is the tanh form; its auxiliary matrix holds what goes into it, DGELU
 * multiplies by its derivative there. Bias and its gradient run along D's rows. */
#include "tests/softgpu/lt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float load(const char *p, uint32_t type, int64_t i)
{
	if (type == CUDA_R_32F)
		return ((const float *)(const void *)p)[i];
	if (type == CUDA_R_16F)
		return ((const _Float16 *)(const void *)p)[i];
	uint32_t u = (uint32_t)((const uint16_t *)(const void *)p)[i] << 16;
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

static void store(char *p, uint32_t type, int64_t i, float f)
{
	if (type == CUDA_R_32F)
		((float *)(void *)p)[i] = f;
	else if (type == CUDA_R_16F)
		((_Float16 *)(void *)p)[i] = (_Float16)f;
	else
		((uint16_t *)(void *)p)[i] = to_bf16(f);
}

/* As the tensor cores would see it: 10 or 7 bits of fraction. */
static float narrow(float f, int compute)
{
	int drop = compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? 13 : compute == CUBLAS_COMPUTE_32F_FAST_16BF ? 16 : 0;
	if (!drop || f != f)
		return f;
	uint32_t u;
	memcpy(&u, &f, 4);
	u = (u + (1u << (drop - 1)) - 1 + (u >> drop & 1)) >> drop << drop;
	memcpy(&f, &u, 4);
	return f;
}

static int64_t element(const struct ptc_lt_layout *l, int64_t row, int64_t col)
{
	return l->order == CUBLASLT_ORDER_ROW ? row * l->ld + col : col * l->ld + row;
}

static char *matrix(const char *p, const struct ptc_lt_layout *l, int batch)
{
	char *q = (char *)(uintptr_t)p;
	if (l->batch_mode == CUBLASLT_BATCH_MODE_STRIDED)
		return q + batch * l->stride * (int64_t)lt_size(l->type);
	uint64_t at;
	memcpy(&at, p + 8 * batch, 8);
	return bytes_of(at);
}

/* Accesses of the lines of a matrix. */
static void touch(const struct node *n, const char *p, const struct ptc_lt_layout *l, bool write)
{
	int64_t lines = (int64_t)(l->order == CUBLASLT_ORDER_ROW ? l->rows : l->cols);
	int64_t line = (int64_t)(l->order == CUBLASLT_ORDER_ROW ? l->cols : l->rows), size = (int64_t)lt_size(l->type);
	for (int64_t i = 0; cfg.check && i < lines; i++)
		check_range(n, p + i * l->ld * size, (size_t)(line * size), write);
}

/* rows x cols of op(X), in rows; swap: of its transpose. */
static float *take(const char *p, const struct ptc_lt_layout *l, int64_t rows, int64_t cols, bool swap, int compute)
{
	float *x = must(malloc((size_t)rows * (size_t)cols * 4));
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < cols; j++)
			x[i * cols + j] = narrow(load(p, l->type, swap ? element(l, j, i) : element(l, i, j)), compute);
	return x;
}

#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
static void product(float *restrict d, const float *restrict a, const float *restrict b, int64_t m, int64_t n, int64_t k)
{
	memset(d, 0, (size_t)m * (size_t)n * 4);
	for (int64_t i = 0; i < m; i++)
		for (int64_t l = 0; l < k; l++)
			for (int64_t j = 0; j < n; j++)
				d[i * n + j] += a[i * k + l] * b[l * n + j];
}

static const float root = 0.7978845608f, cube = 0.044715f;

static float gelu(float x)
{
	return 0.5f * x * (1.0f + tanhf(root * (x + cube * x * x * x)));
}

static float dgelu(float x)
{
	float t = tanhf(root * (x + cube * x * x * x));
	return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * root * (1.0f + 3.0f * cube * x * x);
}

struct batch {
	const struct lt_work *w;
	const struct node *node;
	char *a, *b, *c, *o, *bias, *aux;
	float alpha, beta, *x;      /* x: m x n, in rows */
};

static void epilogue(const struct batch *t)
{
	const struct lt_work *w = t->w;
	uint32_t e = w->d.epilogue, aux = lt_aux_type(w);
	for (int64_t i = 0; i < w->m; i++) {
		float bias = e & LT_BIAS ? load(t->bias, lt_bias_type(w), i) : 0;
		for (int64_t j = 0; j < w->n; j++) {
			float v = t->alpha * t->x[i * w->n + j];
			if (t->beta != 0)
				v += t->beta * load(t->c, w->c.type, element(&w->c, i, j));
			v += bias;
			if (e & LT_GELU && e & LT_AUX)
				store(t->aux, aux, j * w->d.aux_ld + i, v);
			if (e & LT_GELU)
				v = gelu(v);
			if (e & LT_DGELU)
				v *= dgelu(load(t->aux, aux, j * w->d.aux_ld + i));
			if (e & LT_RELU)
				v = v > 0 ? v : 0;
			t->x[i * w->n + j] = v;
		}
	}
}

/* Sums of rows of x: rows x cols, in rows, or of its columns. */
static void sums(const struct batch *t, const float *x, int64_t rows, int64_t cols, bool of_rows)
{
	for (int64_t i = 0; i < (of_rows ? rows : cols); i++) {
		float s = 0;
		for (int64_t j = 0; j < (of_rows ? cols : rows); j++)
			s += of_rows ? x[i * cols + j] : x[j * cols + i];
		store(t->bias, lt_bias_type(t->w), i, s);
	}
}

static void touch_vector(const struct batch *t, const char *p, int64_t n, uint32_t type, bool write)
{
	if (cfg.check)
		check_range(t->node, p, (size_t)n * lt_size(type), write);
}

static void touch_aux(const struct batch *t)
{
	const struct lt_work *w = t->w;
	struct ptc_lt_layout l = {.type = lt_aux_type(w), .rows = (uint64_t)w->m, .cols = (uint64_t)w->n, .ld = w->d.aux_ld, .batch = 1};
	touch(t->node, t->aux, &l, w->d.epilogue & LT_GELU);
}

static void run_batch(struct batch *t)
{
	const struct lt_work *w = t->w;
	uint32_t e = w->d.epilogue;
	touch(t->node, t->a, &w->a, false);
	touch(t->node, t->b, &w->b, false);
	if (t->beta != 0)
		touch(t->node, t->c, &w->c, false);
	if (e & LT_BIAS)
		touch_vector(t, t->bias, w->m, lt_bias_type(w), false);
	if (e & LT_AUX)
		touch_aux(t);
	float *a = take(t->a, &w->a, w->m, w->k, w->d.transa, w->d.compute), *b = take(t->b, &w->b, w->k, w->n, w->d.transb, w->d.compute);
	t->x = must(malloc((size_t)w->m * (size_t)w->n * 4));
	product(t->x, a, b, w->m, w->n, w->k);
	epilogue(t);
	if (e & (LT_BGRAD | LT_BGRADA | LT_BGRADB))
		touch_vector(t, t->bias, e & LT_BGRADB ? w->n : w->m, lt_bias_type(w), true);
	if (e & LT_BGRADA)
		sums(t, a, w->m, w->k, true);
	if (e & LT_BGRADB)
		sums(t, b, w->k, w->n, false);
	if (e & LT_BGRAD)
		sums(t, t->x, w->m, w->n, true);
	touch(t->node, t->o, &w->o, true);
	for (int64_t i = 0; i < w->m; i++)
		for (int64_t j = 0; j < w->n; j++)
			store(t->o, w->o.type, element(&w->o, i, j), t->x[i * w->n + j]);
	free(a);
	free(b);
	free(t->x);
}

bool lt_run(struct node *n)
{
	const struct lt_work *w = (const struct lt_work *)n->work;
	struct batch t = {.w = w, .node = n, .alpha = w->alpha, .beta = w->beta};
	if (cfg.nways)
		node_took(n, cfg.way_ms[w->way]);
	if (w->device_alpha) {
		t.alpha = *w->device_alpha;
		t.beta = *w->device_beta;
	}
	if (w->workspace) {
		if (cfg.check)
			check_range(n, w->workspace, w->workspace_bytes, true);
		memset(w->workspace, 0xff, w->workspace_bytes);
	}
	for (int i = 0; i < w->o.batch; i++) {
		t.a = matrix(w->pa, &w->a, i);
		t.b = matrix(w->pb, &w->b, i);
		t.c = w->pc ? matrix(w->pc, &w->c, i) : NULL;
		t.o = matrix(w->po, &w->o, i);
		t.bias = w->d.bias ? (char *)w->d.bias + i * w->d.bias_stride * (int64_t)lt_size(lt_bias_type(w)) : NULL;
		t.aux = w->d.aux ? (char *)w->d.aux + i * w->d.aux_stride * (int64_t)lt_size(lt_aux_type(w)) : NULL;
		run_batch(&t);
	}
	return true;
}
