/* Attention kernels for GPUs against runtime/attention.c: random shapes and options, float32 and bf16, every size that heads
 * are padded to. FROM=0 N=1000 for more; SHOW=1 prints the shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/text.h"
#include "tests/cuda/attention.h"
#include "tests/cuda/gpu.h"

enum { LOOPS = 3 };

struct rnd {
	uint64_t x;
};

static int below(struct rnd *r, int n)
{
	r->x = r->x * 6364136223846793005ull + 1442695040888963407ull;
	return (int)((r->x >> 33) % (uint64_t)n);
}

static double draw(struct rnd *r)
{
	return below(r, 1 << 20) / (double)(1 << 19) - 1;
}

/* -- the source: an op for each size and type -- */

static const int sizes[] = { 32, 64, 96, 128, 192, 256 };
enum { CAP = 1, DROP = 2, EXTRA = 4 };
static const int with[] = { CAP | DROP | EXTRA, 0, DROP | EXTRA, 0, DROP, CAP | EXTRA }; /* what they are compiled for */

struct world {
	struct arena *mem;
	struct module *m;
	struct gpu gpu;
	const struct op *op[2][2][LEN(sizes)]; /* backward, bf16, size */
};

static void put_ops(struct text *t, int i, enum dtype dt)
{
	const char *ty = dtype_name[dt];
	bool all = with[i] & EXTRA;
	int n = 1000 * (2 * i + (dt == BF16) + 1);
	char extra[64] = "", more[128];

	snprintf(more, sizeof more, "extra=%d%s%s", all ? 7 : 0, with[i] & CAP ? ", cap=2" : "",
		 with[i] & DROP ? ", p=0.25, key=\"k\", dims=(seq, ctx)" : "");

	for (int k = 0; k < 6; k++)
		text_put(t, "%%%d = const {value=0} : %s[%s, h%d]\n", n + k, ty, k == 1 || k == 2 ? "ctx" : "seq", i);
	text_put(t, "%%%d = const {value=0} : f32[seq]\n%%%d = const {value=0} : f32[seq, ctx]\n", n + 6, n + 7);
	text_put(t, "%%%d = const {value=0} : bool[seq, ctx]\n%%%d = const {value=0} : int[]\n", n + 8, n + 9);
	if (all)
		snprintf(extra, sizeof extra, ", %%%d, %%%d, %%%d", n + 7, n + 8, n + 9);
	text_put(t, "%%%d, %%%d = attention %%%d, %%%d, %%%d%s {dim=h%d, ctx=ctx, %s} : %s[seq, h%d], f32[seq]\n", n + 10, n + 11, n, n + 1,
		 n + 2, extra, i, more, ty, i);
	text_put(t, "%%%d, %%%d, %%%d", n + 20, n + 21, n + 22);
	text_put(t, all ? ", %%%d = " : " = ", n + 23);
	text_put(t, "attention_grad %%%d, %%%d, %%%d%s, %%%d, %%%d, %%%d {dim=h%d, ctx=ctx, %s} : %s[seq, h%d], %s[ctx, h%d], %s[ctx, h%d]%s\n", n,
		 n + 1, n + 2, extra, n + 3, n + 6, n + 5, i, more, ty, i, ty, i, ty, i, all ? ", f32[seq, ctx]" : "");
}

static struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof *w);
	struct text t = { 0 };
	struct cuda_sig *sig;
	struct diag d;
	int n, at[2][2] = { { 0 } };

	assert_non_null(w);
	t.mem = w->mem = arena_new();
	text_put(&t, "ptc-ir 1\nmodule \"t\" form=logical precision=f32 micro=1 workspace=0\ndim seq=8\ndim ctx=8\n");
	for (size_t i = 0; i < LEN(sizes); i++)
		text_put(&t, "dim h%d=%d\n", (int)i, sizes[i]);
	text_put(&t, "forward:\n");
	for (size_t i = 0; i < LEN(sizes); i++)
		for (int k = 0; k < 2; k++)
			put_ops(&t, (int)i, k ? BF16 : F32);
	diag_init(&d, w->mem, NULL, stderr);
	w->m = module_parse(w->mem, "t", t.s, t.n, &d);
	assert_non_null(w->m);
	for (const struct op *op = w->m->top.first; op; op = op->next)
		if (opinfo[op->code].class == C_ATTN) {
			int back = op->code == OP_ATTENTION_GRAD, narrow = op->in[0]->dt == BF16;

			w->op[back][narrow][at[back][narrow]++] = op;
		}
	w->gpu = gpu_open(codegen_cuda(w->mem, w->m, &sig, &n, &d));
	assert_non_null(w->gpu.module);
	return w;
}

/* -- a case -- */

/* A few rows and keys; several tiles of both; one row alone in the last tile, which is the first of a tile of keys, and one more than
 * the last of the tile before: what is seen across edges, where a window is 2. */
enum extent_of_case { SMALL, LARGE, EDGE };

struct all {
	struct attention x;
	enum extent_of_case extent;
	void *cpu[NPLACE], *gpu[NPLACE];
	int64_t room[NPLACE];
};

static enum dtype type_of(const struct all *a, int w)
{
	bool grows = a->x.join && (w == AT_DQ || w == AT_DK || w == AT_DV);

	return w == AT_LSE || w == AT_BIAS || w == AT_DBIAS || grows ? F32 : w == AT_MASK ? BOOL : w == AT_WINDOW ? INT : a->x.dt;
}

static int64_t width(const struct attention *x, int w)
{
	return w == AT_LSE ? 1 : w == AT_V || w == AT_O || w == AT_DO || w == AT_DV ? x->dv : x->d;
}

static bool is_key(int w)
{
	return w == AT_K || w == AT_V || w == AT_DK || w == AT_DV;
}

/* [loops and rows in some order, width], with room to spare or, sometimes, the width outermost. */
static int64_t lay(struct rnd *r, struct attention *x, int w, bool odd, bool outer)
{
	int64_t n = width(x, w), pad = odd ? 1 + below(r, 3) : 0, rows = is_key(w) ? x->cols : x->rows, st = n + pad;
	int swap = below(r, 2);

	x->d_stride[w] = 1;
	if (outer) {
		x->d_stride[w] = rows + pad;
		x->row_stride[w] = 1;
		st = (rows + pad) * n + pad;
	} else if (swap) {
		x->row_stride[w] = st;
		st *= rows;
	}
	for (int l = LOOPS - 1; l >= 0; l--) {
		bool there = x->keys[l] || !is_key(w);

		x->stride[w][l] = there ? st : 0;
		st *= there ? x->n[l] : 1;
	}
	if (!outer && !swap) {
		x->row_stride[w] = st;
		st *= rows;
	}
	return st + 8;
}

static int64_t lay_extra(struct rnd *r, struct attention *x, int w)
{
	struct extra *e = &x->extra[w - NAT];
	int64_t n = 1;
	int which = below(r, 32);

	e->there = true;
	if (which & 1) {
		e->col = n;
		n *= w == AT_BIAS || w == AT_DBIAS || w == AT_MASK || w == AT_WINDOW ? x->cols : 1;
	}
	if (which & 2) {
		e->row = n;
		n *= x->rows;
	}
	for (int l = 0; l < LOOPS; l++)
		if (which >> (2 + l) & 1) {
			e->loop[l] = n;
			n *= x->n[l];
		}
	return n + 8;
}

static struct order some_order(struct rnd *r, int64_t n, bool zigzag, int64_t *start)
{
	struct order o = { 0, n, 0 };

	if (zigzag) {
		/* a K-th of 2 K chunks, or all */
		int64_t k = 2, part = below(r, 2);

		o.zigzag = (int)k;
		o.size = part ? n * 2 : n;
		o.start = part ? n * below(r, 2) : 0;
	} else {
		o.start = below(r, 3) ? 0 : below(r, 9);
	}
	*start = o.start;
	return o;
}

static void make_case(struct rnd *r, struct all *a, enum dtype dt, int size, int what)
{
	struct attention *x = &a->x;
	int64_t start;
	bool large = a->extent == LARGE, edge = a->extent == EDGE, zigzag = below(r, 4) == 0 && !edge, join = below(r, 3) == 0;
	int low = size == 32 ? 1 : size == 64 ? 33 : size == 96 ? 65 : size == 128 ? 97 : size == 192 ? 129 : 193;

	*x = (struct attention){ .dt = dt, .nloop = LOOPS, .n = { 1 + below(r, 2), 1 + below(r, 2), 1 + below(r, 2) },
				 .keys = { true, true, false }, .causal = below(r, 2), .join = join, .scale = 0.3, .key = 12345,
				 .step = 3, .iter = 2 };
	x->rows = large ? 150 : 1 + below(r, 40);
	x->cols = large ? 170 : below(r, 40);
	if (zigzag) {
		x->rows = 8 * (1 + below(r, 6));
		x->cols = 8 * (1 + below(r, 6));
	}
	if (edge) {
		x->rows = x->cols = 65;
		x->causal = true;
	}
	x->d = below(r, 2) ? size : low + below(r, size - low + 1);
	x->dv = below(r, 2) ? x->d : 1 + below(r, size);
	x->cap = what & CAP ? 2 : 0;
	x->p = !(what & DROP) || below(r, 3) == 0 ? 0 : 0.25;
	x->row = some_order(r, x->rows, zigzag, &start);
	x->rng_base = 5000 + (uint64_t)start * 100;
	x->col = some_order(r, x->cols, zigzag, &start);
	if (edge)
		x->row.start = x->col.start = 0;
	x->rng_row = 100;
	x->rng_col = below(r, 4) ? 1 : 7;
	for (int l = 0; l < LOOPS; l++) {
		x->loop[l] = (struct order){ 0, x->n[l], 0 };
		x->rng_loop[l] = 10000 * (uint64_t)(l + 1);
	}
	bool odd = below(r, 2), outer = below(r, 6) == 0;
	for (int w = 0; w < NAT; w++)
		a->room[w] = lay(r, x, w, odd && w != AT_LSE, outer && w != AT_LSE);
	if (edge && what & EXTRA) {
		x->extra[AT_WINDOW - NAT].there = true;
		a->room[AT_WINDOW] = 1;
	}
	for (int w = AT_BIAS; w <= AT_WINDOW && !edge; w++)
		a->room[w] = !(what & EXTRA) || below(r, 3) == 0 ? 0 : lay_extra(r, x, w);
	if (x->extra[0].there) {
		x->extra[AT_DBIAS - NAT] = x->extra[0];
		a->room[AT_DBIAS] = a->room[AT_BIAS];
	}
}

static double first(struct rnd *r, const struct all *a, int w)
{
	switch (w) {
	case AT_MASK:
		return below(r, 4) > 0;
	case AT_WINDOW:
		return a->extent == EDGE ? 2 : 1 + below(r, 12);
	case AT_LSE:
		return a->x.join ? draw(r) : 9;
	default:
		return draw(r) * 2;
	}
}

static void fill_case(struct rnd *r, struct all *a)
{
	for (int w = 0; w < NPLACE; w++) {
		a->cpu[w] = a->gpu[w] = NULL;
		if (!a->room[w])
			continue;
		a->cpu[w] = aligned_alloc(64, (size_t)(a->room[w] * 4 + 63) / 64 * 64);
		a->gpu[w] = aligned_alloc(64, (size_t)(a->room[w] * 4 + 63) / 64 * 64);
		assert_non_null(a->cpu[w]);
		assert_non_null(a->gpu[w]);
		for (int64_t i = 0; i < a->room[w]; i++) {
			nest_store(type_of(a, w), a->cpu[w], i, first(r, a, w));
			nest_store(type_of(a, w), a->gpu[w], i, nest_load(type_of(a, w), a->cpu[w], i));
		}
	}
}

/* What is given is the same on both sides. */
static void give(struct all *a, int w, enum dtype from)
{
	enum dtype dt = type_of(a, w);
	int64_t n = a->room[w];
	double *x = malloc((size_t)n * sizeof *x);

	assert_non_null(x);
	for (int64_t i = 0; i < n; i++)
		x[i] = nest_load(from, a->cpu[w], i);
	for (int64_t i = 0; i < n; i++) {
		nest_store(dt, a->cpu[w], i, x[i]);
		nest_store(dt, a->gpu[w], i, x[i]);
	}
	free(x);
}

static void compare(const struct all *a, int w, enum dtype dt, double tol, const char *what)
{
	double most = 0;

	for (int64_t i = 0; i < a->room[w]; i++) {
		double y = nest_load(dt, a->cpu[w], i);

		most = isfinite(y) && fabs(y) > most ? fabs(y) : most;
	}
	for (int64_t i = 0; i < a->room[w]; i++) {
		double x = nest_load(dt, a->gpu[w], i), y = nest_load(dt, a->cpu[w], i);

		if (x != y && !(x != x && y != y) && !(fabs(x - y) <= tol * fmax(fabs(y), most)))
			fail_msg("%s [%d]: %.9g, should be %.9g (largest %g)", what, (int)i, x, y, most);
	}
}

/* o is float32 where it grows, forward. */
static int64_t bytes_of(const struct all *a, int w, const struct op *op)
{
	return a->room[w] * dtype_bytes(w == AT_O && a->x.join && op->code == OP_ATTENTION ? F32 : type_of(a, w));
}

static void launch(struct world *w, const struct op *op, const struct all *a)
{
	void *at[NPLACE];
	struct cuda_attention l;
	struct ptc_step step = { .seed = 1, .step = a->x.step, .training = 1 };
	void *steps;
	struct ptc_iter iter = { .iter_all = a->x.iter };
	struct ptc_attention x;
	void *args[] = { &x, &steps, &iter };

	for (int k = 0; k < NPLACE; k++)
		at[k] = a->room[k] ? gpu_give(a->gpu[k], bytes_of(a, k, op)) : NULL;
	steps = gpu_give(&step, sizeof step);
	x = cuda_attention(&a->x, at);
	cuda_attention_of(&l, w->m, op, &x);
	x.delta = gpu_give(NULL, l.scratch);
	for (int i = 0; i < l.nlaunch; i++)
		if (!gpu_launch(&w->gpu, &l.launch[i], args))
			fail_msg("no kernel %s", l.launch[i].fn);
	gpu_take(NULL, x.delta, 0);
	gpu_take(NULL, steps, 0);
	for (int k = 0; k < NPLACE; k++)
		if (at[k])
			gpu_take(a->gpu[k], at[k], bytes_of(a, k, op));
}

static void show(const struct attention *x, int seed, int size)
{
	printf("seed %d size %d %s rows %d cols %d d %d dv %d n %d %d %d%s%s cap %g p %g bias %d mask %d window %d zigzag %d start %d %d\n", seed,
	       size, dtype_name[x->dt], (int)x->rows, (int)x->cols, (int)x->d, (int)x->dv, (int)x->n[0], (int)x->n[1], (int)x->n[2],
	       x->causal ? " causal" : "", x->join ? " join" : "", x->cap, x->p, x->extra[0].there, x->extra[1].there, x->extra[2].there,
	       x->row.zigzag, (int)x->row.start, (int)x->col.start);
	fflush(stdout);
}

static void one_case(struct world *w, struct gemm *g, int seed, enum dtype dt, int size, enum extent_of_case extent)
{
	struct rnd r = { (uint64_t)seed * 77 + 5 };
	struct all a = { .extent = extent };
	double tol = dt == BF16 ? 2e-2 : 2e-5;
	int narrow = dt == BF16;

	below(&r, 2);
	make_case(&r, &a, dt, sizes[size], with[size]);
	if (getenv("SHOW"))
		show(&a.x, seed, sizes[size]);
	fill_case(&r, &a);
	enum dtype odt = a.x.join ? F32 : dt;
	give(&a, AT_O, type_of(&a, AT_O));
	for (int64_t i = 0; i < a.room[AT_O]; i++) {
		nest_store(odt, a.cpu[AT_O], i, sin((double)i));
		nest_store(odt, a.gpu[AT_O], i, sin((double)i));
	}
	assert_true(attention_forward(g, &a.x, a.cpu));
	launch(w, w->op[0][narrow][size], &a);
	compare(&a, AT_O, odt, tol, "o");
	compare(&a, AT_LSE, F32, tol, "lse");
	give(&a, AT_O, odt);
	give(&a, AT_LSE, F32);
	assert_true(attention_backward(g, &a.x, a.cpu));
	launch(w, w->op[1][narrow][size], &a);
	compare(&a, AT_DQ, type_of(&a, AT_DQ), tol, "dq");
	compare(&a, AT_DK, type_of(&a, AT_DK), tol, "dk");
	compare(&a, AT_DV, type_of(&a, AT_DV), tol, "dv");
	if (a.room[AT_DBIAS])
		compare(&a, AT_DBIAS, F32, tol, "dbias");
	for (int k = 0; k < NPLACE; k++) {
		free(a.cpu[k]);
		free(a.gpu[k]);
	}
}

static void test_random(void **state)
{
	struct world *w = *state;
	struct gemm *g = gemm_open(1 << 26);
	const char *n = getenv("N"), *from = getenv("FROM");
	int start = from ? atoi(from) : 0;

	for (int i = start; i < start + (n ? atoi(n) : 24); i++)
		one_case(w, g, i, i & 1 ? BF16 : F32, i / 2 % (int)LEN(sizes), SMALL);
	gemm_close(g);
}

/* Several tiles of rows and of keys. */
static void test_tiles(void **state)
{
	struct world *w = *state;
	struct gemm *g = gemm_open(1 << 26);

	for (int i = 0; i < 4; i++)
		one_case(w, g, 1000 + i, i & 1 ? BF16 : F32, i / 2 % 2, LARGE);
	for (int i = 0; i < 4; i++)
		one_case(w, g, 2000 + i, i & 1 ? BF16 : F32, i / 2, EDGE);
	gemm_close(g);
}

static int open_world(void **state)
{
	*state = world_new();
	return 0;
}

static int close_world(void **state)
{
	struct world *w = *state;

	gpu_close(&w->gpu);
	arena_free(w->mem);
	free(w);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_tiles),
	};

	return cmocka_run_group_tests(tests, open_world, close_world);
}
