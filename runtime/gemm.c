/* runtime/gemm.c - contractions of labelled tensors as matrix products.
 *
 * The loops of an einsum fall into four kinds by who has them: a b c: batch; a c: M; b c: N;
 * a b: K. Neighbours in memory merge. One loop of M, N and K each becomes a matrix product
 * (float32: dnnl_sgemm; bf16: matmul primitives, made once a shape), the others are loops
 * around it. Where no choice has unit strides, operands are copied to a layout that has. */
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/rings.h"

/* One shape of a bf16 product. */
struct shape {
	int64_t m, n, k, lda, ldb, ldc;
	int32_t ta, tb, add, f32;
};

struct primitive {
	struct shape shape;
	dnnl_primitive_t prim;
	dnnl_memory_t mem[4]; /* a, b, c, scratchpad */
	int64_t pad;
	bool used;
};

struct gemm {
	void *scratch[NSCRATCH];
	int64_t bytes[NSCRATCH], limit, held;
	int parts; /* that share the workspace, this one of them */
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	struct primitive *table;
	uint32_t n, cap;
	bool bf16; /* products of bf16 are fast; else they are taken in float32 */
	struct team *team;
	struct gemm **of; /* of the team's threads, this one first */
	char error[160];
};

/* Without AMX, oneDNN's bf16 products run at half the speed of float32 (measured: 80 and 150 GF/s). */
static bool has_matrix_units(void)
{
	const char *want = getenv("PTC_BF16_GEMM");

	return want ? *want == '1' : (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
}

struct gemm *gemm_open(int64_t limit)
{
	struct gemm *g = calloc(1, sizeof *g);

	if (!g)
		return NULL;
	g->limit = limit;
	g->parts = 1;
	g->cap = 64;
	g->bf16 = has_matrix_units();
	g->table = calloc(g->cap, sizeof *g->table);
	if (!g->table || dnnl_engine_create(&g->engine, dnnl_cpu, 0) != dnnl_success ||
	    dnnl_stream_create(&g->stream, g->engine, dnnl_stream_default_flags) != dnnl_success) {
		gemm_close(g);
		return NULL;
	}
	return g;
}

struct gemm *gemm_team(int64_t limit, struct team *team)
{
	int n = team_size(team);
	struct gemm *g = gemm_open(limit / n);

	if (!g || n == 1)
		return g;
	g->of = calloc((size_t)n, sizeof(struct gemm *));
	if (!g->of) {
		gemm_close(g);
		return NULL;
	}
	g->team = team;
	g->of[0] = g;
	g->parts = n;
	for (int i = 1; i < n; i++) {
		if (!(g->of[i] = gemm_open(limit / n))) {
			gemm_close(g);
			return NULL;
		}
		g->of[i]->parts = n;
	}
	return g;
}

struct gemm *gemm_of(struct gemm *g, int i)
{
	return g->of ? g->of[i] : g;
}

struct team *gemm_threads(const struct gemm *g)
{
	return g->team;
}

static void primitive_free(struct primitive *p)
{
	for (size_t i = 0; i < LEN(p->mem); i++)
		if (p->mem[i])
			dnnl_memory_destroy(p->mem[i]);
	if (p->prim)
		dnnl_primitive_destroy(p->prim);
}

void gemm_close(struct gemm *g)
{
	if (!g)
		return;
	for (int i = 1; g->of && i < team_size(g->team); i++)
		gemm_close(g->of[i]);
	free(g->of);
	for (uint32_t i = 0; g->table && i < g->cap; i++)
		if (g->table[i].used)
			primitive_free(&g->table[i]);
	free(g->table);
	for (int i = 0; i < NSCRATCH; i++)
		free(g->scratch[i]);
	if (g->stream)
		dnnl_stream_destroy(g->stream);
	if (g->engine)
		dnnl_engine_destroy(g->engine);
	free(g);
}

const char *gemm_error(const struct gemm *g)
{
	return g->error;
}

bool gemm_failed(struct gemm *g, const struct gemm *helper)
{
	if (helper != g)
		memcpy(g->error, helper->error, sizeof g->error);
	return false;
}

int64_t gemm_bytes(const struct gemm *g)
{
	return g->held;
}

void *gemm_scratch(struct gemm *g, int slot, int64_t bytes)
{
	if (bytes <= g->bytes[slot])
		return g->scratch[slot];
	int64_t want = (bytes + 4095) / 4096 * 4096;

	if (g->held - g->bytes[slot] + want > g->limit) {
		long long all = g->limit * g->parts, need = (g->held - g->bytes[slot] + want) * g->parts;

		snprintf(g->error, sizeof g->error, "the workspace of %lld bytes is too small: %lld are needed; 'workspace = %lld' in the plan gives them",
			 all, need, need);
		return NULL;
	}
	free(g->scratch[slot]);
	g->held -= g->bytes[slot];
	g->bytes[slot] = 0;
	g->scratch[slot] = aligned_alloc(64, (size_t)want);
	if (!g->scratch[slot]) {
		snprintf(g->error, sizeof g->error, "no memory for %lld bytes of workspace", (long long)want);
		return NULL;
	}
	g->bytes[slot] = want;
	g->held += want;
	return g->scratch[slot];
}

static bool failed(struct gemm *g, const char *what, int status)
{
	snprintf(g->error, sizeof g->error, "oneDNN: %s fails with status %d", what, status);
	return false;
}

bool gemm_f32(struct gemm *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
	      const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
	if (m <= 0 || n <= 0)
		return true;
	if (k <= 0) { /* sums of nothing */
		for (int64_t i = 0; i < m && beta == 0; i++)
			memset(c + i * ldc, 0, (size_t)n * sizeof *c);
		return true;
	}
	dnnl_status_t s = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, beta, c, ldc);

	return s == dnnl_success || failed(g, "sgemm", s);
}

/* -- bf16 -- */

static dnnl_status_t make(struct gemm *g, struct primitive *p)
{
	const struct shape *s = &p->shape;
	dnnl_dims_t ad = { s->m, s->k }, bd = { s->k, s->n }, cd = { s->m, s->n };
	dnnl_dims_t as = { s->ta ? 1 : s->lda, s->ta ? s->lda : 1 }, bs = { s->tb ? 1 : s->ldb, s->tb ? s->ldb : 1 };
	dnnl_dims_t cs = { s->ldc, 1 };
	dnnl_memory_desc_t a, b, c;
	dnnl_matmul_desc_t desc;
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t post = NULL;
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t st;

	if ((st = dnnl_memory_desc_init_by_strides(&a, 2, ad, dnnl_bf16, as)) ||
	    (st = dnnl_memory_desc_init_by_strides(&b, 2, bd, dnnl_bf16, bs)) ||
	    (st = dnnl_memory_desc_init_by_strides(&c, 2, cd, s->f32 ? dnnl_f32 : dnnl_bf16, cs)) ||
	    (st = dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c)) || (st = dnnl_primitive_attr_create(&attr)))
		return st;
	if (!(st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)) && s->add &&
	    !(st = dnnl_post_ops_create(&post)) && !(st = dnnl_post_ops_append_sum(post, 1)))
		st = dnnl_primitive_attr_set_post_ops(attr, post);
	if (!st && !(st = dnnl_primitive_desc_create(&pd, &desc, attr, g->engine, NULL)))
		st = dnnl_primitive_create(&p->prim, pd);
	if (!st) {
		const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);

		p->pad = pad ? (int64_t)dnnl_memory_desc_get_size(pad) : 0;
		if (!(st = dnnl_memory_create(&p->mem[0], &a, g->engine, NULL)) &&
		    !(st = dnnl_memory_create(&p->mem[1], &b, g->engine, NULL)) &&
		    !(st = dnnl_memory_create(&p->mem[2], &c, g->engine, NULL)) && pad)
			st = dnnl_memory_create(&p->mem[3], pad, g->engine, NULL);
	}
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (post)
		dnnl_post_ops_destroy(post);
	dnnl_primitive_attr_destroy(attr);
	return st;
}

static struct primitive *slot_of(struct primitive *table, uint32_t cap, const struct shape *s)
{
	uint32_t i = (uint32_t)fnv1a(FNV_START, s, sizeof *s) & (cap - 1);

	while (table[i].used && memcmp(&table[i].shape, s, sizeof *s) != 0)
		i = (i + 1) & (cap - 1);
	return &table[i];
}

static bool table_grow(struct gemm *g)
{
	struct primitive *t = calloc(2 * (size_t)g->cap, sizeof *t);

	if (!t) {
		snprintf(g->error, sizeof g->error, "no memory for %u primitives", 2 * g->cap);
		return false;
	}
	for (uint32_t i = 0; i < g->cap; i++)
		if (g->table[i].used)
			*slot_of(t, 2 * g->cap, &g->table[i].shape) = g->table[i];
	free(g->table);
	g->table = t;
	g->cap *= 2;
	return true;
}

static struct primitive *primitive_for(struct gemm *g, const struct shape *s)
{
	struct primitive *p = slot_of(g->table, g->cap, s);

	if (p->used)
		return p;
	if (2 * (g->n + 1) > g->cap) {
		if (!table_grow(g))
			return NULL;
		p = slot_of(g->table, g->cap, s);
	}
	p->shape = *s;
	dnnl_status_t st = make(g, p);

	if (st != dnnl_success) {
		primitive_free(p);
		memset(p, 0, sizeof *p);
		failed(g, "a bf16 matrix product", st);
		return NULL;
	}
	p->used = true;
	g->n++;
	return p;
}

/* Of the workspace, what copies of operands may take: the primitives want room of their own beside them. */
static int64_t copies_limit(const struct gemm *g)
{
	return g->bf16 ? g->limit / 4 * 3 : g->limit;
}

/* Of a side that is cut since the workspace is too small for what oneDNN wants beside the product. */
enum { LEAST_SIDE = 32 };

static int64_t half(int64_t n)
{
	return (n / 2 + 15) / 16 * 16;
}

bool gemm_bf16(struct gemm *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
	       const uint16_t *b, int64_t ldb, bool add, enum dtype cdt, void *c, int64_t ldc)
{
	struct shape s;

	memset(&s, 0, sizeof s); /* hashed with its padding */
	s = (struct shape){ m, n, k, lda, ldb, ldc, ta, tb, add, cdt == F32 };
	struct primitive *p = primitive_for(g, &s);

	if (!p)
		return false;
	if (p->pad > g->limit - copies_limit(g) && (m > LEAST_SIDE || n > LEAST_SIDE)) {
		int64_t mm = m >= n ? half(m) : m, nn = m >= n ? n : half(n);

		return gemm_bf16(g, ta, tb, mm, nn, k, a, lda, b, ldb, add, cdt, c, ldc) &&
		       (m >= n ? gemm_bf16(g, ta, tb, m - mm, n, k, a + mm * (ta ? 1 : lda), lda, b, ldb, add, cdt,
					   (char *)c + mm * ldc * dtype_bytes(cdt), ldc)
			       : gemm_bf16(g, ta, tb, m, n - nn, k, a, lda, b + nn * (tb ? ldb : 1), ldb, add, cdt,
					   (char *)c + nn * dtype_bytes(cdt), ldc));
	}
	void *pad = p->pad ? gemm_scratch(g, SCRATCH_PACK, p->pad) : NULL;

	if (p->pad && !pad)
		return false;
	dnnl_exec_arg_t args[4] = { { DNNL_ARG_SRC, p->mem[0] }, { DNNL_ARG_WEIGHTS, p->mem[1] },
				    { DNNL_ARG_DST, p->mem[2] }, { DNNL_ARG_SCRATCHPAD, p->mem[3] } };
	dnnl_status_t st;

	if ((st = dnnl_memory_set_data_handle(p->mem[0], (void *)(uintptr_t)a)) ||
	    (st = dnnl_memory_set_data_handle(p->mem[1], (void *)(uintptr_t)b)) ||
	    (st = dnnl_memory_set_data_handle(p->mem[2], c)) ||
	    (p->mem[3] && (st = dnnl_memory_set_data_handle(p->mem[3], pad))) ||
	    (st = dnnl_primitive_execute(p->prim, g->stream, p->mem[3] ? 4 : 3, args)) ||
	    (st = dnnl_stream_wait(g->stream)))
		return failed(g, "a bf16 matrix product", st);
	return true;
}

/* -- what a contraction is made of -- */

/* One matrix product, row-major. */
struct job {
	struct gemm *g;
	bool ta, tb, add;
	int64_t m, n, k, lda, ldb, ldc;
	enum dtype dt, cdt;
	const char *a, *b;
	char *c;
};

struct shared_job {
	struct job j;
	bool ok[64]; /* by thread */
};

static bool run_job(struct gemm *g, const struct job *j)
{
	if (j->m <= 0 || j->n <= 0)
		return true;
	if (j->dt == F32)
		return gemm_f32(g, j->ta, j->tb, j->m, j->n, j->k, (const float *)j->a, j->lda, (const float *)j->b, j->ldb,
				j->add, (float *)j->c, j->ldc);
	return gemm_bf16(g, j->ta, j->tb, j->m, j->n, j->k, (const uint16_t *)j->a, j->lda, (const uint16_t *)j->b,
			 j->ldb, j->add, j->cdt, j->c, j->ldc);
}

/* Thread `me`'s rows or columns, whichever there are more of. */
static void run_part(void *arg, int me, int n)
{
	struct shared_job *all = arg;
	struct job j = all->j;
	bool rows = j.m >= j.n;
	int64_t size = rows ? j.m : j.n, part = (ceil_div(size, n) + 15) / 16 * 16, from = me * part;
	int64_t es = dtype_bytes(j.dt), left = size - from < part ? size - from : part;

	if (rows) {
		j.m = left;
		j.a += from * (j.ta ? 1 : j.lda) * es;
		j.c += from * j.ldc * dtype_bytes(j.cdt);
	} else {
		j.n = left;
		j.b += from * (j.tb ? j.ldb : 1) * es;
		j.c += from * dtype_bytes(j.cdt);
	}
	all->ok[me] = run_job(gemm_of(j.g, me), &j);
}

static bool product(void *self, const struct choice *c, const struct ring *batch, const struct contraction *x, const char *a,
		    const char *b, char *o, bool add)
{
	struct gemm *g = self;
	struct shared_job all = { .j = { g, c->ta, c->tb, add, c->m, c->n, c->k, c->lda, c->ldb, c->ldc, x->dt[0], x->dt[2],
					a, b, o } };

	if (c->swap) /* the transposed product */
		all.j = (struct job){ g, !c->tb, !c->ta, add, c->n, c->m, c->k, c->ldb, c->lda, c->ldc, x->dt[0], x->dt[2],
				      b, a, o };
	int n = team_size(g->team);

	(void)batch;

	if (n == 1 || n > (int)LEN(all.ok) || c->work < 1 << 19)
		return run_job(g, &all.j);
	team_run(g->team, run_part, &all);
	for (int i = 0; i < n; i++)
		if (!all.ok[i])
			return gemm_failed(g, gemm_of(g, i));
	return true;
}

/* Plain loops in double: odd types, sums over a loop of one operand. */
static void plain(const struct contraction *x, const void *a, const void *b, void *c)
{
	int order[3 * MAX_DIMS], n = 0, outer;
	int64_t at[3 * MAX_DIMS] = { 0 }, ia = 0, ib = 0, ic = 0;
	double sum = 0;

	for (int i = 0; i < x->nd; i++)
		if (x->has[2][i])
			order[n++] = i;
	outer = n;
	for (int i = 0; i < x->nd; i++)
		if (!x->has[2][i])
			order[n++] = i;
	for (;;) {
		sum += nest_load(x->dt[0], a, ia) * nest_load(x->dt[1], b, ib);
		int i = n - 1;
		bool stored_it = false;

		for (; i >= 0; i--) {
			int d = order[i];

			if (i < outer && !stored_it) {
				nest_store(x->dt[2], c, ic, sum + (x->add ? nest_load(x->dt[2], c, ic) : 0));
				sum = 0;
				stored_it = true;
			}
			ia += x->has[0][d] ? x->stride[0][d] : 0;
			ib += x->has[1][d] ? x->stride[1][d] : 0;
			ic += x->has[2][d] ? x->stride[2][d] : 0;
			if (++at[i] < x->n[d])
				break;
			ia -= x->has[0][d] ? x->n[d] * x->stride[0][d] : 0;
			ib -= x->has[1][d] ? x->n[d] * x->stride[1][d] : 0;
			ic -= x->has[2][d] ? x->n[d] * x->stride[2][d] : 0;
			at[i] = 0;
		}
		if (i >= 0)
			continue;
		if (!stored_it)
			nest_store(x->dt[2], c, ic, sum + (x->add ? nest_load(x->dt[2], c, ic) : 0));
		return;
	}
}

static bool plain_way(void *self, const struct contraction *x, const void *a, const void *b, void *c)
{
	(void)self;
	plain(x, a, b, c);
	return true;
}

static void *room(void *self, int slot, int64_t bytes)
{
	return gemm_scratch(self, slot, bytes);
}

static bool copy(void *self, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	nest_copy_by(((struct gemm *)self)->team, l, ddt, dst, sdt, src);
	return true;
}

static bool add(void *self, const struct nest *l, enum dtype dt, void *dst, const void *src)
{
	nest_add_by(((struct gemm *)self)->team, l, dt, dst, src);
	return true;
}

static bool fill(void *self, const struct nest *l, enum dtype dt, void *dst, double x)
{
	(void)self;
	nest_fill(l, dt, dst, x);
	return true;
}

bool contract(struct gemm *g, const struct contraction *x, const void *a, const void *b, void *c)
{
	const struct contractor by = { g, copies_limit(g), g->bf16, false, false, room, copy, add, fill, product, plain_way };

	return contract_by(&by, x, a, b, c);
}

void gemm_version(struct text *t)
{
	const dnnl_version_t *v = dnnl_version();

	text_put(t, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
	if (v->major != DNNL_VERSION_MAJOR || v->minor != DNNL_VERSION_MINOR)
		text_put(t, " (built with %d.%d.%d)", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
}
