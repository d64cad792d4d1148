/* runtime/cuda/gemm.c - einsums by cuBLASLt.
 *
 * cuBLASLt's matrices are stored by columns: the row-major c = a b is its c' = b' a', with the operands exchanged and nothing
 * transposed. What it says is the best way for a shape is kept on disk, by device and library. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cache.h"
#include "runtime/cuda/gemm.h"

enum { TABLE = 1024, LT_MOST = 32 << 20, KEPT_MOST = 4096 };

/* What is kept of one. */
struct kept {
	struct shape is;
	cublasLtMatmulAlgo_t algo;
	int64_t workspace, tried;
};

static uint64_t hash(const struct shape *s)
{
	return fnv1a(FNV_START, (const char *)s, sizeof *s);
}

/* -- on disk -- */

static char *kept_path(struct gpu *g, struct arena *mem)
{
	struct diag quiet;
	char name[256] = "";

	diag_init(&quiet, mem, NULL, NULL);
	char *dir = cache_dir(mem, &quiet);

	if (!dir || lib.cuDeviceGetName(name, sizeof name, g->dev) != CUDA_SUCCESS)
		return NULL;
	char *who = arena_printf(mem, "%s %zu %zu", name, lib.cublasLtGetVersion(), sizeof(struct kept));

	return arena_printf(mem, "%s/lt-%016llx.bin", dir, (unsigned long long)fnv1a(FNV_START, who, strlen(who)));
}

static void read_kept(struct gpu *g)
{
	size_t n = 0;
	char *path = kept_path(g, g->mem), *s = path ? cache_read(g->mem, path, &n) : NULL;

	g->kept_n = s && n % sizeof(struct kept) == 0 ? (int)(n / sizeof(struct kept)) : 0;
	g->kept = (const struct kept *)(void *)s;
	g->kept_read = true;
}

static const struct kept *find_kept(struct gpu *g, const struct shape *s)
{
	if (!g->kept_read)
		read_kept(g);
	for (int i = 0; i < g->kept_n; i++)
		if (memcmp(&g->kept[i].is, s, sizeof *s) == 0)
			return g->kept[i].tried >= tune_ways(g) ? &g->kept[i] : NULL;
	return NULL;
}

/* One rank writes what it has found, with what was there. */
static void write_kept(struct gpu *g)
{
	struct text t = { .mem = g->mem };
	char *path = g->found && g->r->no == 0 ? kept_path(g, g->mem) : NULL;

	if (!path)
		return;
	for (int i = 0; i < TABLE; i++)
		for (struct product *p = g->products[i]; p; p = p->next) {
			struct kept k = { p->is, p->algo, p->workspace, p->tried };

			if (!p->none)
				text_bytes(&t, (const char *)&k, sizeof k);
		}
	for (int i = 0; i < g->kept_n && g->nproducts + i < KEPT_MOST; i++) {
		bool known = false;

		for (struct product *p = g->products[hash(&g->kept[i].is) % TABLE]; p && !known; p = p->next)
			known = memcmp(&p->is, &g->kept[i].is, sizeof p->is) == 0;
		if (!known)
			text_bytes(&t, (const char *)&g->kept[i], sizeof g->kept[i]);
	}
	cache_write(g->mem, path, t.s, t.n);
}

/* -- a product made ready -- */

static cudaDataType lt_type(enum dtype dt)
{
	return dt == F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static bool describe_epilogue(struct gpu *g, const struct product *p)
{
	const uint32_t e = (uint32_t)p->is.epilogue;
	const int64_t ld = p->is.ldc;

	return e == CUBLASLT_EPILOGUE_DEFAULT ||
	       (LT(g, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e) &&
		(!p->is.align[4] || LT(g, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld)));
}

bool gpu_point(struct gpu *g, const struct product *p, const struct extras *x)
{
	return (!x->vector || LT(g, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x->vector, sizeof x->vector)) &&
	       (!x->aux || LT(g, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &x->aux, sizeof x->aux));
}

static bool describe(struct gpu *g, struct product *p)
{
	const struct shape *s = &p->is;
	const int64_t rows[3] = { s->ta ? s->k : s->n, s->tb ? s->m : s->k, s->n }, cols[3] = { s->ta ? s->n : s->k, s->tb ? s->k : s->m, s->m };
	const int64_t ld[3] = { s->lda, s->ldb, s->ldc }, stride[3] = { s->sa, s->sb, s->sc };
	const int32_t batch = (int32_t)s->batch;
	const cublasOperation_t ta = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;

	if (!LT(g, cublasLtMatmulDescCreate, &p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
	    !LT(g, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta) ||
	    !LT(g, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb))
		return false;
	for (int i = 0; i < 3; i++) {
		enum dtype dt = i == 2 ? (enum dtype)s->ctype : (enum dtype)s->type;

		if (!LT(g, cublasLtMatrixLayoutCreate, &p->at[i], lt_type(dt), (uint64_t)rows[i], (uint64_t)cols[i], ld[i]))
			return false;
		if (batch > 1 &&
		    (!LT(g, cublasLtMatrixLayoutSetAttribute, p->at[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch) ||
		     !LT(g, cublasLtMatrixLayoutSetAttribute, p->at[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride[i], sizeof stride[i])))
			return false;
	}
	return describe_epilogue(g, p);
}

static bool ask(struct gpu *g, struct product *p)
{
	static const cublasLtMatmulPreferenceAttributes_t align[] = { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
	int64_t limit = g->r->rt->m->workspace > 0 ? g->r->rt->m->workspace / 4 : LT_MOST;
	uint64_t most = (uint64_t)(limit < LT_MOST ? limit : LT_MOST);
	cublasLtMatmulHeuristicResult_t way[MOST_WAYS] = { 0 };
	cublasLtMatmulPreference_t pref = NULL;
	int n = 0;

	if (!LT(g, cublasLtMatmulPreferenceCreate, &pref))
		return false;
	bool ok = LT(g, cublasLtMatmulPreferenceSetAttribute, pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);

	for (int i = 0; ok && i < 4; i++) {
		uint32_t a = (uint32_t)p->is.align[i < 3 ? i : 2];

		ok = LT(g, cublasLtMatmulPreferenceSetAttribute, pref, align[i], &a, sizeof a);
	}
	cublasStatus_t e = ok ? lib.cublasLtMatmulAlgoGetHeuristic(g->lt, p->desc, p->at[0], p->at[1], p->at[2], p->at[2], pref,
							       tune_ways(g), way, &n) : CUBLAS_STATUS_SUCCESS;

	if (e == CUBLAS_STATUS_SUCCESS && ok)
		e = n > 0 ? way[0].state : CUBLAS_STATUS_NOT_SUPPORTED;
	lib.cublasLtMatmulPreferenceDestroy(pref);
	p->none = ok && (e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_INVALID_VALUE) &&
		  p->is.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
	if (p->none)
		return true;
	ok = ok && lt_ok(g, e, "cuBLASLt has no way for a product");
	p->algo = way[0].algo;
	p->workspace = (int64_t)way[0].workspaceSize;
	p->tried = 1;
	if (ok && tune_ways(g) > 1)
		tune(g, p, way, n);
	g->found |= ok;
	return ok;
}

static struct product *product_of(struct gpu *g, const struct shape *s, const struct extras *x)
{
	uint64_t h = hash(s) % TABLE;

	if (!g->products)
		g->products = NEWN(g->mem, struct product *, TABLE);
	for (struct product *p = g->products[h]; p; p = p->next)
		if (memcmp(&p->is, s, sizeof *s) == 0)
			return p;
	struct product *p = NEW(g->mem, struct product);
	const struct kept *k = find_kept(g, s);

	p->is = *s;
	p->next = g->products[h];
	g->products[h] = p;
	g->nproducts++;
	if (k) {
		p->algo = k->algo;
		p->workspace = k->workspace;
		p->tried = k->tried;
	}
	return describe(g, p) && gpu_point(g, p, x) && (k || ask(g, p)) ? p : NULL;
}

void products_close(struct gpu *g)
{
	if (!g->products)
		return;
	write_kept(g);
	for (int i = 0; i < TABLE; i++)
		for (struct product *p = g->products[i]; p; p = p->next) {
			for (int k = 0; k < 3; k++)
				if (p->at[k])
					lib.cublasLtMatrixLayoutDestroy(p->at[k]);
			if (p->desc)
				lib.cublasLtMatmulDescDestroy(p->desc);
		}
}

/* -- a product carried out -- */

static int32_t alignment(const void *p, int64_t stride, enum dtype dt)
{
	uint64_t x = (uint64_t)(uintptr_t)p | (uint64_t)(stride * dtype_bytes(dt)) | 256;

	return p ? (int32_t)(x & -x) : 0;
}

bool gpu_multiply(struct gpu *g, const struct shape *s, const void *a, const void *b, void *c, const struct extras *x, bool *none)
{
	struct product *p = product_of(g, s, x);
	float one = 1, beta = s->add ? 1 : 0;

	*none = p && p->none;
	for (int tries = 0; p && !*none && tries < 2; tries++) {
		char *room = p->workspace ? gpu_room(g, SLOT_GEMM, p->workspace) : NULL;

		if (g->dry || (p->workspace && !room))
			return g->dry;
		if (!gpu_point(g, p, x))
			return false;
		cublasStatus_t e = lib.cublasLtMatmul(g->lt, p->desc, &one, a, p->at[0], b, p->at[1], &beta, c, p->at[2], c, p->at[2],
						     &p->algo, room, (size_t)p->workspace, g->compute);

		if (e == CUBLAS_STATUS_SUCCESS || tries)
			return lt_ok(g, e, "cublasLtMatmul");
		if (!ask(g, p)) /* what was kept may be of another build of the library */
			return false;
		*none = p->none;
	}
	return *none;
}

struct shape gpu_shape(const struct choice *c, const struct ring *by, const struct contraction *x, const void *a, const void *b,
		       const void *o, bool add)
{
	/* by columns: b is the first operand; of the transposed product, a */
	bool swap = c->swap;
	struct shape s = {
		.m = swap ? c->n : c->m, .n = swap ? c->m : c->n, .k = c->k,
		.lda = swap ? c->lda : c->ldb, .ldb = swap ? c->ldb : c->lda, .ldc = c->ldc,
		.batch = by->n, .sa = by->s[!swap], .sb = by->s[swap], .sc = by->s[2],
		.ta = swap ? !c->ta : c->tb, .tb = swap ? !c->tb : c->ta,
		.type = (int32_t)x->dt[0], .ctype = (int32_t)x->dt[2], .add = add, .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
	};

	s.align[0] = alignment(swap ? a : b, s.sa, x->dt[0]);
	s.align[1] = alignment(swap ? b : a, s.sb, x->dt[0]);
	s.align[2] = alignment(o, s.sc, x->dt[2]);
	return s;
}

void gpu_shape_extras(struct shape *s, int epilogue, const struct extras *x)
{
	s->epilogue = epilogue;
	s->align[3] = alignment(x->vector, 0, F32);
	s->align[4] = alignment(x->aux, 0, F32);
}

static bool product(void *self, const struct choice *c, const struct ring *batch, const struct contraction *x, const char *a, const char *b,
		    char *o, bool add)
{
	struct gpu *g = self;
	static const struct ring one = { 1, { 0, 0, 0 } };
	static const struct extras nothing;
	struct shape s = gpu_shape(c, batch ? batch : &one, x, a, b, o, add);
	bool none;

	return gpu_multiply(g, &s, c->swap ? a : b, c->swap ? b : a, o, &nothing, &none);
}

/* -- the rest of a contraction -- */

static void *room(void *self, int slot, int64_t bytes)
{
	return gpu_room(self, slot, bytes);
}

static bool copy(void *self, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	return gpu_copy(self, ((struct gpu *)self)->compute, l, ddt, dst, sdt, src);
}

static bool add(void *self, const struct nest *l, enum dtype dt, void *dst, const void *src)
{
	return gpu_add(self, ((struct gpu *)self)->compute, l, dt, dst, src);
}

static bool fill(void *self, const struct nest *l, enum dtype dt, void *dst, double x)
{
	return gpu_fill(self, ((struct gpu *)self)->compute, l, dt, dst, x);
}

static bool none(void *self, const struct contraction *x, const void *a, const void *b, void *c)
{
	struct gpu *g = self;

	(void)x;
	(void)a;
	(void)b;
	(void)c;
	return rank_broken(g->r, g->r->op, "a contraction of values that are no floats, on a GPU");
}

/* A loop of one operand alone, which is summed: the other is as if it had it too, with a step of 0. */
void gpu_share_sums(struct contraction *x)
{
	for (int i = 0; i < x->nd; i++)
		if (x->n[i] > 1 && !x->has[2][i] && x->has[0][i] != x->has[1][i]) {
			int lacks = x->has[0][i] ? 1 : 0;

			x->has[lacks][i] = true;
			x->stride[lacks][i] = 0;
		}
}

bool cuda_einsum(struct rank *r, const struct instr *i, const struct contraction *x, const void *a, const void *b, void *c)
{
	struct gpu *g = gpu_of(r);
	int64_t limit = r->rt->m->workspace > 0 ? r->rt->m->workspace : USUAL_WORKSPACE;
	struct contraction y = *x;
	const struct contractor by = { g, limit, true, true, true, room, copy, add, fill, product, none };

	(void)i;
	gpu_share_sums(&y);
	return contract_by(&by, &y, a, b, c);
}
