/* products.c - cuBLASLt: every combination of transposes, orders, types, batches, beta and epilogues of the stand-in against
 * loops in double precision; and what it must refuse. */
#include "tests/softgpu/programs/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { M = 24, N = 16, K = 40, BATCH = 3, PAD = 8 };
static cublasLtHandle_t lt;
static CUdeviceptr workspace;
enum { WORKSPACE = 1 << 16 };

struct matrix {
	int rows, cols, ld;
	bool in_rows, bf16;
	cublasLtMatrixLayout_t layout;
	CUdeviceptr p;
	double *x;                  /* BATCH x rows x cols, as stored */
	int64_t stride;
};

static double sample(void)
{
	static uint64_t s = 1;
	s = s * 6364136223846793005u + 1442695040888963407u;
	return (double)(int64_t)(s >> 40) / (1 << 23) - 1;
}

static uint16_t to_bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t b)
{
	uint32_t u = (uint32_t)b << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static size_t at(const struct matrix *a, int b, int r, int c)
{
	return (size_t)b * (size_t)a->stride + (size_t)(a->in_rows ? r * a->ld + c : c * a->ld + r);
}

static double *cell(const struct matrix *a, int b, int r, int c)
{
	return &a->x[(b * a->rows + r) * a->cols + c];
}

static void upload(struct matrix *a)
{
	size_t n = (size_t)a->stride * BATCH, size = a->bf16 ? 2 : 4;
	char *bytes = calloc(n, size);
	CHECK(bytes);
	for (int b = 0; b < BATCH; b++)
		for (int r = 0; r < a->rows; r++)
			for (int c = 0; c < a->cols; c++) {
				float f = (float)*cell(a, b, r, c);
				uint16_t h = to_bf16(f);
				memcpy(bytes + size * at(a, b, r, c), a->bf16 ? (void *)&h : (void *)&f, size);
				*cell(a, b, r, c) = a->bf16 ? from_bf16(h) : f;
			}
	CU(cuMemcpyHtoD(a->p, bytes, n * size));
	free(bytes);
}

static struct matrix matrix(int rows, int cols, bool in_rows, bool bf16, int batch)
{
	struct matrix a = {.rows = rows, .cols = cols, .in_rows = in_rows, .bf16 = bf16};
	a.ld = (in_rows ? cols : rows) + PAD;
	a.stride = (int64_t)a.ld * (in_rows ? rows : cols);
	a.p = alloc((size_t)a.stride * BATCH * (bf16 ? 2 : 4));
	a.x = malloc(sizeof(double) * (size_t)(BATCH * rows * cols));
	CHECK(a.x);
	for (int i = 0; i < BATCH * rows * cols; i++)
		a.x[i] = sample();
	upload(&a);
	DO(cublasLtMatrixLayoutCreate(&a.layout, bf16 ? CUDA_R_16BF : CUDA_R_32F, (uint64_t)rows, (uint64_t)cols, a.ld));
	int32_t order = in_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
	DO(cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
	DO(cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
	DO(cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &a.stride, sizeof a.stride));
	return a;
}

static void drop(struct matrix *a)
{
	CU(cuMemFree(a->p));
	DO(cublasLtMatrixLayoutDestroy(a->layout));
	free(a->x);
}

static double read_back(const struct matrix *a, const char *bytes, int b, int r, int c)
{
	size_t i = at(a, b, r, c);
	if (!a->bf16)
		return ((const float *)(const void *)bytes)[i];
	return from_bf16(((const uint16_t *)(const void *)bytes)[i]);
}

static void expect(const struct matrix *a, int batch, const double *want, const char *what)
{
	size_t n = (size_t)a->stride * BATCH * (a->bf16 ? 2 : 4);
	char *bytes = malloc(n);
	CHECK(bytes);
	CU(cuMemcpyDtoH(bytes, a->p, n));
	for (int i = 0; i < batch * a->rows * a->cols; i++) {
		int b = i / (a->rows * a->cols), r = i / a->cols % a->rows, c = i % a->cols;
		double got = read_back(a, bytes, b, r, c), tol = a->bf16 ? 0.02 : 2e-5;
		if (!(fabs(got - want[i]) <= tol * (1 + fabs(want[i])))) {
			fprintf(stderr, "%s: batch %d, row %d, column %d: %g, expected %g\n", what, b, r, c, got, want[i]);
			fail(__FILE__, __LINE__, what, -1);
		}
	}
	free(bytes);
}

static double gelu(double x)
{
	return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double dgelu(double x)
{
	double h = 1e-5;
	return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

struct how {
	bool ta, tb, in_rows, bf16, out_bf16, arrays;
	int batch;
	float alpha, beta;
	uint32_t epilogue;
};

struct run {
	struct how h;
	struct matrix a, b, c, d, bias, aux;
	double *want, *want_bias, *want_aux;
};

static void set_epilogue(cublasLtMatmulDesc_t desc, const struct run *t)
{
	int32_t yes = CUBLAS_OP_T;
	if (t->h.ta)
		DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &yes, 4));
	if (t->h.tb)
		DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &yes, 4));
	int64_t ld = t->aux.ld, bias_stride = t->bias.stride, aux_stride = t->aux.stride;
	DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &t->h.epilogue, 4));
	DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &t->bias.p, 8));
	DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &bias_stride, 8));
	DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &t->aux.p, 8));
	DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, 8));
	DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &aux_stride, 8));
}

static double operand(const struct matrix *a, bool transposed, int b, int r, int c)
{
	return transposed ? *cell(a, b, c, r) : *cell(a, b, r, c);
}

static void reference_epilogue(struct run *t, int b, int i, int j, double v)
{
	uint32_t e = t->h.epilogue;
	double *aux = cell(&t->aux, b, i, j), *bias = cell(&t->bias, b, e == CUBLASLT_EPILOGUE_BGRADB ? j : i, 0);
	if (e & CUBLASLT_EPILOGUE_BIAS)
		v += *bias;
	if (e & CUBLASLT_EPILOGUE_GELU) {
		t->want_aux[(b * M + i) * N + j] = v;
		v = gelu(v);
	} else if (e & 64) {
		v *= dgelu(*aux);
		if (e & 16)
			t->want_bias[b * M + i] += v;
	} else if (e & CUBLASLT_EPILOGUE_RELU) {
		v = v > 0 ? v : 0;
	}
	t->want[(b * M + i) * N + j] = v;
}

static void reference(struct run *t)
{
	for (int b = 0; b < t->h.batch; b++) {
		for (int i = 0; i < M; i++)
			for (int j = 0; j < N; j++) {
				double s = 0;
				for (int k = 0; k < K; k++)
					s += operand(&t->a, t->h.ta, b, i, k) * operand(&t->b, t->h.tb, b, k, j);
				reference_epilogue(t, b, i, j, (double)t->h.alpha * s + (t->h.beta != 0 ? (double)t->h.beta * *cell(&t->c, b, i, j) : 0));
			}
		if (t->h.epilogue == CUBLASLT_EPILOGUE_BGRADA)
			for (int i = 0; i < M * K; i++)
				t->want_bias[b * M + i / K] += operand(&t->a, t->h.ta, b, i / K, i % K);
		if (t->h.epilogue == CUBLASLT_EPILOGUE_BGRADB)
			for (int j = 0; j < N * K; j++)
				t->want_bias[b * N + j / K] += operand(&t->b, t->h.tb, b, j % K, j / K);
	}
}

/* An array of the addresses of the batches, in device memory. */
static void *addresses(struct matrix *a, bool arrays, int batch)
{
	if (!arrays)
		return (void *)a->p;
	CUdeviceptr list[BATCH], p = alloc(sizeof list);
	for (int i = 0; i < batch; i++)
		list[i] = a->p + (CUdeviceptr)(batch - 1 - i) * (CUdeviceptr)a->stride * (a->bf16 ? 2 : 4);
	CU(cuMemcpyHtoD(p, list, sizeof list));
	uint32_t mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY;
	DO(cublasLtMatrixLayoutSetAttribute(a->layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode, sizeof mode));
	return (void *)p;
}

static void multiply(struct run *t)
{
	cublasLtMatmulDesc_t desc;
	cublasLtMatmulPreference_t pref;
	cublasLtMatmulHeuristicResult_t found;
	int n = 0;
	uint64_t most = WORKSPACE;
	DO(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	set_epilogue(desc, t);
	DO(cublasLtMatmulPreferenceCreate(&pref));
	DO(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
	struct how h = t->h;
	void *a = addresses(&t->a, h.arrays, h.batch), *b = addresses(&t->b, h.arrays, h.batch), *c = addresses(&t->c, h.arrays, h.batch),
	     *d = addresses(&t->d, h.arrays, h.batch);
	DO(cublasLtMatmulAlgoGetHeuristic(lt, desc, t->a.layout, t->b.layout, t->c.layout, t->d.layout, pref, 1, &found, &n));
	CHECK(n == 1 && found.state == CUBLAS_STATUS_SUCCESS && found.workspaceSize && found.workspaceSize <= most);
	DO(cublasLtMatmul(lt, desc, &h.alpha, a, t->a.layout, b, t->b.layout, &h.beta, c, t->c.layout, d, t->d.layout, &found.algo,
			  (void *)workspace, WORKSPACE, NULL));
	CU(cuStreamSynchronize(NULL));
	DO(cublasLtMatmulPreferenceDestroy(pref));
	DO(cublasLtMatmulDescDestroy(desc));
}

static void try(struct how h)
{
	struct run t = {.h = h};
	t.a = matrix(h.ta ? K : M, h.ta ? M : K, h.in_rows, h.bf16, h.batch);
	t.b = matrix(h.tb ? N : K, h.tb ? K : N, h.in_rows, h.bf16, h.batch);
	t.c = matrix(M, N, h.in_rows, h.out_bf16, h.batch);
	t.d = matrix(M, N, h.in_rows, h.out_bf16, h.batch);
	t.bias = matrix(h.epilogue == CUBLASLT_EPILOGUE_BGRADB ? N : M, 1, false, h.out_bf16, h.batch);
	t.aux = matrix(M, N, false, h.out_bf16, h.batch);
	t.want = calloc(BATCH * M * N, sizeof(double));
	t.want_aux = calloc(BATCH * M * N, sizeof(double));
	t.want_bias = calloc(BATCH * (M + N), sizeof(double));
	CHECK(t.want && t.want_aux && t.want_bias);
	reference(&t);
	multiply(&t);
	char what[160];
	snprintf(what, sizeof what, "A%s B%s %s %s->%s batch %d%s alpha %g beta %g epilogue %u", h.ta ? "^T" : "", h.tb ? "^T" : "",
		 h.in_rows ? "rows" : "columns", h.bf16 ? "bf16" : "fp32", h.out_bf16 ? "bf16" : "fp32", h.batch, h.arrays ? " by pointer" : "",
		 (double)h.alpha, (double)h.beta, h.epilogue);
	expect(&t.d, h.batch, t.want, what);
	if ((h.epilogue & (128 | 32)) == (128 | 32))
		expect(&t.aux, h.batch, t.want_aux, what);
	if (h.epilogue & (16 | 256 | 512))
		expect(&t.bias, h.batch, t.want_bias, what);
	free(t.want);
	free(t.want_aux);
	free(t.want_bias);
	struct matrix *all[] = {&t.a, &t.b, &t.c, &t.d, &t.bias, &t.aux};
	for (int i = 0; i < 6; i++)
		drop(all[i]);
}

static void combinations(void)
{
	static const uint32_t epilogues[] = {
		CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU,
		CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
		CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB,
	};
	for (int i = 0; i < 16; i++)
		try((struct how){i & 1, i & 2, i & 4, i & 8, i & 8 && i & 1, false, 1 + i % 3, 1, 0, CUBLASLT_EPILOGUE_DEFAULT});
	for (size_t e = 0; e < sizeof epilogues / sizeof *epilogues; e++)
		for (int i = 0; i < 4; i++)
			try((struct how){e & 1, i & 1, i & 2, i & 1, i & 1 && e & 1, false, 1 + (int)e % 2, 0.5f, i & 2 ? 2 : 0, epilogues[e]});
	try((struct how){false, true, false, true, true, true, BATCH, 1, 1, CUBLASLT_EPILOGUE_DEFAULT});
}

/* What must be refused, and that nothing was written. */
static void refusals(void)
{
	struct matrix a = matrix(M, K, false, false, 1), b = matrix(K, N, false, false, 1), c = matrix(M, N, false, false, 1);
	struct matrix wrong = matrix(K, N + 8, false, false, 1), half = matrix(K, N, false, true, 1);
	cublasLtMatmulDesc_t desc;
	float one = 1;
	DO(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
#define MULTIPLY(B, D, w, bytes) \
	api.cublasLtMatmul(lt, desc, &one, (void *)a.p, a.layout, (void *)(B).p, (B).layout, &one, (void *)(D).p, (D).layout, (void *)(D).p, \
			   (D).layout, NULL, (void *)(w), bytes, NULL)
	CHECK(MULTIPLY(wrong, c, 0, 0) == CUBLAS_STATUS_INVALID_VALUE);
	CHECK(MULTIPLY(half, c, 0, 0) == CUBLAS_STATUS_NOT_SUPPORTED);
	CHECK(MULTIPLY(b, c, workspace + 4, WORKSPACE - 4) == CUBLAS_STATUS_INVALID_VALUE);
	uint32_t e = CUBLASLT_EPILOGUE_GELU_AUX;
	int64_t ld = M + 4;             /* not a multiple of 8 */
	DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, 4));
	DO(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, 8));
	CHECK(MULTIPLY(b, c, 0, 0) == CUBLAS_STATUS_INVALID_VALUE);
	double *same = malloc(sizeof(double) * M * N);
	CHECK(same);
	memcpy(same, c.x, sizeof(double) * M * N);
	expect(&c, 1, same, "refused");
	free(same);
	CHECK(api.softgpuReports() == 0);
}

int main(void)
{
	open_api();
	DO(cublasLtCreate(&lt));
	workspace = alloc(WORKSPACE);
	combinations();
	refusals();
	DO(cublasLtDestroy(lt));
	return 0;
}
