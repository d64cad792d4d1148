/* lt.c - cuBLASLt: descriptors, what is allowed, the call. Attributes, sizes and errors are those of the real library
 * (programs/lt_attrs.c compares); which products it has for a device is not known here. */
#include "tests/softgpu/lt.h"
#include <stdlib.h>
#include <string.h>

struct attr {
	int id;
	size_t at, size;
};
#define AT(id, type, field) {id, offsetof(struct type, field), sizeof(((struct type *)0)->field)}
static const struct attr desc_attrs[] = {
	AT(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, ptc_lt_desc, compute),
	AT(CUBLASLT_MATMUL_DESC_SCALE_TYPE, ptc_lt_desc, scale),
	AT(CUBLASLT_MATMUL_DESC_POINTER_MODE, ptc_lt_desc, pointer_mode),
	AT(CUBLASLT_MATMUL_DESC_TRANSA, ptc_lt_desc, transa),
	AT(CUBLASLT_MATMUL_DESC_TRANSB, ptc_lt_desc, transb),
	AT(CUBLASLT_MATMUL_DESC_TRANSC, ptc_lt_desc, transc),
	AT(CUBLASLT_MATMUL_DESC_FILL_MODE, ptc_lt_desc, fill),
	AT(CUBLASLT_MATMUL_DESC_EPILOGUE, ptc_lt_desc, epilogue),
	AT(CUBLASLT_MATMUL_DESC_BIAS_POINTER, ptc_lt_desc, bias),
	AT(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, ptc_lt_desc, bias_stride),
	AT(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, ptc_lt_desc, aux),
	AT(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ptc_lt_desc, aux_ld),
	AT(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, ptc_lt_desc, aux_stride),
	AT(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, ptc_lt_desc, alpha_stride),
	AT(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, ptc_lt_desc, sm_count),
	AT(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, ptc_lt_desc, aux_type),
	AT(CUBLASLT_MATMUL_DESC_FAST_ACCUM, ptc_lt_desc, fast_accum),
	AT(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, ptc_lt_desc, bias_type),
	{0, 0, 0},
};
static const struct attr layout_attrs[] = {
	AT(CUBLASLT_MATRIX_LAYOUT_TYPE, ptc_lt_layout, type),
	AT(CUBLASLT_MATRIX_LAYOUT_ORDER, ptc_lt_layout, order),
	AT(CUBLASLT_MATRIX_LAYOUT_ROWS, ptc_lt_layout, rows),
	AT(CUBLASLT_MATRIX_LAYOUT_COLS, ptc_lt_layout, cols),
	AT(CUBLASLT_MATRIX_LAYOUT_LD, ptc_lt_layout, ld),
	AT(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, ptc_lt_layout, batch),
	AT(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, ptc_lt_layout, stride),
	AT(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, ptc_lt_layout, plane),
	AT(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, ptc_lt_layout, batch_mode),
	{0, 0, 0},
};
static const struct attr pref_attrs[] = {
	AT(CUBLASLT_MATMUL_PREF_SEARCH_MODE, ptc_lt_pref, search),
	AT(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, ptc_lt_pref, workspace),
	AT(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, ptc_lt_pref, reduction),
	AT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, ptc_lt_pref, align[0]),
	AT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, ptc_lt_pref, align[1]),
	AT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, ptc_lt_pref, align[2]),
	AT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, ptc_lt_pref, align[3]),
	AT(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, ptc_lt_pref, waves),
	AT(CUBLASLT_MATMUL_PREF_IMPL_MASK, ptc_lt_pref, impl),
	{0, 0, 0},
};

static const struct attr *find(const struct attr *a, int id)
{
	while (a->size && a->id != id)
		a++;
	return a->size ? a : NULL;
}

static cublasStatus_t set(const struct attr *list, void *d, int id, const void *buf, size_t bytes)
{
	const struct attr *a = d ? find(list, id) : NULL;
	if (!a || !buf || bytes != a->size)
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy((char *)d + a->at, buf, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const struct attr *list, const void *d, int id, void *buf, size_t bytes, size_t *written)
{
	const struct attr *a = d ? find(list, id) : NULL;
	if (!a || (bytes ? bytes != a->size || !buf : !written))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (written)
		*written = a->size;
	if (bytes)
		memcpy(buf, (const char *)d + a->at, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr, const void *buf, size_t bytes)
{
	return set(desc_attrs, d, attr, buf, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr, void *buf, size_t bytes,
					      size_t *written)
{
	return get(desc_attrs, d, attr, buf, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attr, const void *buf,
						size_t bytes)
{
	return set(layout_attrs, l, attr, buf, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attr, void *buf, size_t bytes,
						size_t *written)
{
	return get(layout_attrs, l, attr, buf, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attr,
						    const void *buf, size_t bytes)
{
	return set(pref_attrs, p, attr, buf, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attr, void *buf,
						    size_t bytes, size_t *written)
{
	return get(pref_attrs, p, attr, buf, bytes, written);
}

/* ---- making and freeing ---- */

size_t cublasLtGetVersion(void)
{
	return 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
#define NAME(n, v) \
	case n: return #n;
	switch (status) { CUBLAS_STATUSES(NAME) }
#undef NAME
	return "unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
	if (!h)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (api_enter())
		return CUBLAS_STATUS_NOT_INITIALIZED;
	*h = must(malloc(1));
	leave();
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
	free(h);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType scale)
{
	if (!d)
		return CUBLAS_STATUS_INVALID_VALUE;
	*d = must(calloc(1, sizeof **d));
	**d = (struct ptc_lt_desc){.compute = compute, .scale = scale, .fill = 2, .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
				   .aux_type = -1, .bias_type = -1};
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	free(d);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
	if (!l)
		return CUBLAS_STATUS_INVALID_VALUE;
	*l = must(calloc(1, sizeof **l));
	**l = (struct ptc_lt_layout){.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
	free(l);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
	if (!p)
		return CUBLAS_STATUS_INVALID_VALUE;
	*p = must(calloc(1, sizeof **p));
	**p = (struct ptc_lt_pref){.reduction = 7, .align = {256, 256, 256, 256}, .impl = UINT64_MAX};
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
	free(p);
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- what is allowed ---- */

size_t lt_size(uint32_t type)
{
	return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 0;
}

size_t lt_extent(const struct ptc_lt_layout *l)
{
	size_t lines = l->order == CUBLASLT_ORDER_ROW ? l->rows : l->cols, line = l->order == CUBLASLT_ORDER_ROW ? l->cols : l->rows;
	size_t last = (lines - 1) * (size_t)l->ld + line;
	if (l->batch > 1 && l->stride > 0)
		last += (size_t)(l->batch - 1) * (size_t)l->stride;
	return last * lt_size(l->type);
}

uint32_t lt_bias_type(const struct lt_work *w)
{
	return w->d.bias_type < 0 ? w->o.type : (uint32_t)w->d.bias_type;
}

uint32_t lt_aux_type(const struct lt_work *w)
{
	return w->d.aux_type < 0 ? w->o.type : (uint32_t)w->d.aux_type;
}

static bool known_epilogue(uint32_t e)
{
	switch (e) {
	case CUBLASLT_EPILOGUE_DEFAULT:
	case CUBLASLT_EPILOGUE_RELU:
	case CUBLASLT_EPILOGUE_BIAS:
	case CUBLASLT_EPILOGUE_RELU_BIAS:
	case CUBLASLT_EPILOGUE_GELU:
	case CUBLASLT_EPILOGUE_GELU_BIAS:
	case CUBLASLT_EPILOGUE_GELU_AUX:
	case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
	case CUBLASLT_EPILOGUE_DGELU:
	case CUBLASLT_EPILOGUE_DGELU_BGRAD:
	case CUBLASLT_EPILOGUE_BGRADA:
	case CUBLASLT_EPILOGUE_BGRADB: return true;
	}
	return false;
}

/* " with GELU_AUX_BIAS"; nothing for the plain product. */
static const char *epilogue_text(uint32_t e)
{
	static const char before[] = "CUBLASLT_EPILOGUE_";
	const char *name = "";
#define NAME(n, v) \
	case n: name = #n; break;
	switch (e) { CUBLASLT_EPILOGUES(NAME) }
#undef NAME
	return e == CUBLASLT_EPILOGUE_DEFAULT || !*name ? "" : text(" with %s", name + sizeof before - 1);
}

static bool layout_good(const struct ptc_lt_layout *l)
{
	uint64_t line = l->order == CUBLASLT_ORDER_ROW ? l->cols : l->rows;
	return lt_size(l->type) && (l->order == CUBLASLT_ORDER_COL || l->order == CUBLASLT_ORDER_ROW) && l->rows && l->cols &&
		l->ld >= (int64_t)line && l->batch >= 1;
}

/* Types, shapes, batches, epilogue; fills m, n, k. */
static cublasStatus_t allowed(struct lt_work *w)
{
	const struct ptc_lt_layout *a = &w->a, *b = &w->b, *c = &w->c, *o = &w->o;
	if (!layout_good(a) || !layout_good(b) || !layout_good(c) || !layout_good(o))
		return CUBLAS_STATUS_INVALID_VALUE;
	w->m = (int64_t)o->rows;
	w->n = (int64_t)o->cols;
	w->k = (int64_t)(w->d.transa ? a->rows : a->cols);
	bool fits = (int64_t)(w->d.transa ? a->cols : a->rows) == w->m && (int64_t)(w->d.transb ? b->cols : b->rows) == w->k &&
		(int64_t)(w->d.transb ? b->rows : b->cols) == w->n && (int64_t)c->rows == w->m && (int64_t)c->cols == w->n;
	bool batches = a->batch == o->batch && b->batch == o->batch && c->batch == o->batch && a->batch_mode == o->batch_mode &&
		b->batch_mode == o->batch_mode && c->batch_mode == o->batch_mode;
	if (!fits || !batches || w->d.transc || w->d.transa > CUBLAS_OP_T || w->d.transb > CUBLAS_OP_T)
		return CUBLAS_STATUS_INVALID_VALUE;
	bool compute = w->d.compute == CUBLAS_COMPUTE_32F || w->d.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
		w->d.compute == CUBLAS_COMPUTE_32F_FAST_16BF || w->d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
	bool types = compute && w->d.scale == CUDA_R_32F && a->type == b->type && c->type == o->type &&
		(o->type == CUDA_R_32F || o->type == a->type) && (w->d.compute == CUBLAS_COMPUTE_32F || w->d.compute ==
		CUBLAS_COMPUTE_32F_PEDANTIC || a->type == CUDA_R_32F);
	if (!types || !known_epilogue(w->d.epilogue) || w->d.pointer_mode > CUBLASLT_POINTER_MODE_DEVICE)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (w->d.epilogue != CUBLASLT_EPILOGUE_DEFAULT && (cfg.plain || o->batch_mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (w->d.epilogue & LT_AUX && (w->d.aux_ld % 8 || w->d.aux_ld < w->m))
		return CUBLAS_STATUS_INVALID_VALUE;
	return CUBLAS_STATUS_SUCCESS;
}

/* Of the one algorithm there is: it takes what it gets, as one that splits k would, and no more than D in fp32. */
static size_t workspace_need(const struct lt_work *w, size_t most)
{
	size_t want = (size_t)w->m * (size_t)w->n * 4;
	return want <= most ? want : 0;
}

enum { ALGO_MAGIC = 0x736f6674 };

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t A,
					      cublasLtMatrixLayout_t B, cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
					      cublasLtMatmulPreference_t p, int wanted, cublasLtMatmulHeuristicResult_t *results, int *got)
{
	if (!h || !d || !A || !B || !C || !D || !p || wanted < 1 || !results || !got)
		return CUBLAS_STATUS_INVALID_VALUE;
	struct lt_work w = {.d = *d, .a = *A, .b = *B, .c = *C, .o = *D};
	*got = 0;
	cublasStatus_t s = allowed(&w);
	if (s)
		return s;
	for (int i = 0; i < wanted && i < (cfg.nways ? cfg.nways : 1); i++) {
		results[i] = (cublasLtMatmulHeuristicResult_t){.workspaceSize = workspace_need(&w, p->workspace), .wavesCount = 1};
		results[i].algo.data[0] = ALGO_MAGIC;
		results[i].algo.data[1] = results[i].workspaceSize;
		results[i].algo.data[2] = (uint64_t)i;
		*got = i + 1;
	}
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- the call ---- */

static bool take_matrix(const char **at, const struct ptc_lt_layout *l, const void *p, const char *which)
{
	bool array = l->batch_mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY;
	*at = mem_range(self_host->dev, p, array ? 8 * (size_t)l->batch : lt_extent(l), "cublasLtMatmul", which);
	return *at;
}

static bool take_vector(void **p, size_t n, uint32_t type, const char *which)
{
	*p = mem_range(self_host->dev, *p, n * lt_size(type), "cublasLtMatmul", which);
	return *p;
}

static bool aligned(const void *p, size_t bytes, const char *which)
{
	if ((uint64_t)p % bytes == 0)
		return true;
	report("misaligned", "cublasLtMatmul: %s lies at no multiple of %zu bytes", which, bytes);
	return false;
}

static cublasStatus_t take_epilogue(struct lt_work *w)
{
	uint32_t e = w->d.epilogue;
	if ((e & LT_AUX && !aligned(w->d.aux, 16, "the auxiliary matrix")) ||
	    (e & (LT_BIAS | LT_BGRAD | LT_BGRADA | LT_BGRADB) && !aligned(w->d.bias, lt_size(lt_bias_type(w)), "the bias")))
		return CUBLAS_STATUS_INVALID_VALUE;
	size_t len = (size_t)(e & LT_BGRADB ? w->n : w->m) + (size_t)(w->o.batch - 1) * (size_t)w->d.bias_stride;
	if (e & (LT_BIAS | LT_BGRAD | LT_BGRADA | LT_BGRADB) && !take_vector(&w->d.bias, len, lt_bias_type(w), "the bias"))
		return CUBLAS_STATUS_INVALID_VALUE;
	size_t aux = (size_t)(w->n - 1) * (size_t)w->d.aux_ld + (size_t)w->m + (size_t)(w->o.batch - 1) * (size_t)w->d.aux_stride;
	if (e & LT_AUX && !take_vector(&w->d.aux, aux, lt_aux_type(w), "the auxiliary matrix"))
		return CUBLAS_STATUS_INVALID_VALUE;
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- nothing that is read is written, nothing is written twice ---- */

struct lines {
	const char *which, *at;
	size_t line, step, n;      /* bytes of a line, from one to the next, lines */
	bool write;
};

static struct lines lines_of(const char *which, const char *at, const struct ptc_lt_layout *l, bool write)
{
	bool rows = l->order == CUBLASLT_ORDER_ROW;
	size_t size = lt_size(l->type);
	return (struct lines){which, at, (rows ? l->cols : l->rows) * size, (size_t)l->ld * size, rows ? l->rows : l->cols, write};
}

static bool lines_meet(const struct lines *a, const struct lines *b)
{
	if (!(a->at < b->at + (b->n - 1) * b->step + b->line && b->at < a->at + (a->n - 1) * a->step + a->line))
		return false;
	for (size_t i = 0; i < a->n; i++)
		for (size_t k = 0; k < b->n; k++)
			if (a->at + i * a->step < b->at + k * b->step + b->line && b->at + k * b->step < a->at + i * a->step + a->line)
				return true;
	return false;
}

/* Of the first of a batch. C may be D. */
static bool lie_apart(const struct lt_work *w)
{
	uint32_t e = w->d.epilogue;
	struct lines all[6];
	int n = 0;
	all[n++] = lines_of("D", w->po, &w->o, true);
	all[n++] = lines_of("A", w->pa, &w->a, false);
	all[n++] = lines_of("B", w->pb, &w->b, false);
	if (e & LT_AUX) {
		size_t size = lt_size(lt_aux_type(w));
		all[n++] = (struct lines){"the auxiliary matrix", w->d.aux, (size_t)w->m * size, (size_t)w->d.aux_ld * size, (size_t)w->n,
					  (e & LT_GELU) != 0};
	}
	if (e & (LT_BIAS | LT_BGRAD | LT_BGRADA | LT_BGRADB))
		all[n++] = (struct lines){"the bias", w->d.bias, (size_t)(e & LT_BGRADB ? w->n : w->m) * lt_size(lt_bias_type(w)), 0, 1,
					  !(e & LT_BIAS)};
	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++)
			if (i != k && all[i].write && (!all[k].write || i < k) && lines_meet(&all[i], &all[k])) {
				report("overlap", "cublasLtMatmul: %s is written over %s", all[i].which, all[k].which);
				return false;
			}
	return true;
}

static cublasStatus_t take_scalars(struct lt_work *w, const void *alpha, const void *beta)
{
	if (!alpha || !beta)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (w->d.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
		memcpy(&w->alpha, alpha, 4);
		memcpy(&w->beta, beta, 4);
		return CUBLAS_STATUS_SUCCESS;
	}
	w->device_alpha = mem_range(self_host->dev, alpha, 4, "cublasLtMatmul", "alpha");
	w->device_beta = mem_range(self_host->dev, beta, 4, "cublasLtMatmul", "beta");
	return w->device_alpha && w->device_beta ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* All that the call names, translated and checked. */
static cublasStatus_t take(struct lt_work *w, const void *alpha, const void *A, const void *B, const void *beta, const void *C, void *D)
{
	cublasStatus_t s = allowed(w);
	if (!s)
		s = take_scalars(w, alpha, beta);
	if (!s)
		s = take_epilogue(w);
	if (s)
		return s;
	bool reads_c = w->device_beta || w->beta != 0;
	const char *out;
	if (!take_matrix(&w->pa, &w->a, A, "A") || !take_matrix(&w->pb, &w->b, B, "B") || !take_matrix(&out, &w->o, D, "D") ||
	    (reads_c && !take_matrix(&w->pc, &w->c, C, "C")))
		return CUBLAS_STATUS_INVALID_VALUE;
	w->po = (char *)(uintptr_t)out;
	/* D may be C, but not partly. */
	if (reads_c && w->pc == w->po && memcmp(&w->c, &w->o, sizeof w->c))
		return CUBLAS_STATUS_INVALID_VALUE;
	return w->o.batch_mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY || lie_apart(w) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *A, cublasLtMatrixLayout_t Adesc,
			      const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc,
			      void *D, cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo, void *workspace,
			      size_t workspace_bytes, CUstream stream)
{
	if (!h || !d || !Adesc || !Bdesc || !Cdesc || !Ddesc)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (api_enter())
		return CUBLAS_STATUS_EXECUTION_FAILED;
	struct lt_work *w = (struct lt_work *)work_make(sizeof *w, lt_run);
	w->d = *d;
	w->a = *Adesc;
	w->b = *Bdesc;
	w->c = *Cdesc;
	w->o = *Ddesc;
	cublasStatus_t s = take(w, alpha, A, B, beta, C, D);
	if (!s && algo && (algo->data[0] != ALGO_MAGIC || algo->data[2] >= 8 || (algo->data[2] && (int)algo->data[2] >= cfg.nways)))
		s = CUBLAS_STATUS_INVALID_VALUE;
	if (!s) {
		w->way = algo ? (int)algo->data[2] : 0;
		w->workspace_bytes = algo ? algo->data[1] : workspace_need(w, workspace_bytes);
		if (w->workspace_bytes > workspace_bytes || (w->workspace_bytes && (uint64_t)workspace % 16))
			s = CUBLAS_STATUS_INVALID_VALUE;
	}
	if (!s && w->workspace_bytes) {
		w->workspace = mem_range(self_host->dev, workspace, w->workspace_bytes, "cublasLtMatmul", "the workspace");
		s = w->workspace ? s : CUBLAS_STATUS_INVALID_VALUE;
	}
	if (s)
		work_unref(&w->work);
	else if (stream_add(stream, text("matmul %lld x %lld x %lld%s%s", (long long)w->m, (long long)w->n, (long long)w->k,
					  epilogue_text(w->d.epilogue), cfg.nways ? text(" by way %d", w->way) : ""), &w->work))
		s = CUBLAS_STATUS_EXECUTION_FAILED;
	leave();
	return s;
}
