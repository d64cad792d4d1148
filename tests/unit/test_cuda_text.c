/* Every kernel region of the models in tests/models, on uneven shards too, as CUDA against C on the same random inputs:
 * float32 and bf16 by turns, ALL=1: both. ONLY=gpt2: that model. Then moves between layouts against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/text.h"
#include "runtime/internal.h"
#include "tests/cuda/gpu.h"

/* -- a model -- */

struct world {
	struct arena *mem;
	struct module *m;
	struct diag d;
	struct gpu gpu;
	struct cuda_sig *cuda;
	struct kernels c;
	int ncuda;
	uint64_t rnd;
	int kernels;
};

/* The options after "# SET: " in a model's file. */
static char *sizes_of(struct arena *mem, const char *file)
{
	char line[512], *set = NULL;
	FILE *f = fopen(file, "r");

	assert_non_null(f);
	while (!set && fgets(line, sizeof line, f))
		if (!strncmp(line, "# SET: ", 7))
			set = arena_strndup(mem, line + 7, strcspn(line + 7, "\n"));
	fclose(f);
	return set;
}

static struct module *plan_of(struct arena *mem, struct diag *d, const char *model, bool bf16)
{
	const char *file = arena_printf(mem, "tests/models/%s.pdsl", model), *set = sizes_of(mem, file);
	const char *ptc = getenv("BUILD") ? getenv("BUILD") : "build";
	char *cmd = arena_printf(mem, "%s/ptc show %s --plan small %s%s --set precision=%s --after=memory 2>/dev/null", ptc, file,
				 set ? "--set " : "", set ? set : "", bf16 ? "bf16" : "fp32"), buf[65536];
	struct text t = { .mem = mem };
	FILE *f = popen(cmd, "r");

	assert_non_null(f);
	for (size_t k; (k = fread(buf, 1, sizeof buf, f));)
		text_bytes(&t, buf, k);
	if (pclose(f) != 0)
		fail_msg("%s", cmd);
	return module_parse(mem, model, t.s, t.n, d);
}

/* -- operands -- */

static double draw(struct world *w)
{
	w->rnd = w->rnd * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(w->rnd >> 33) / 2147483648.0 * 2 - 1;
}

/* Ints that are indices of small dims, some of them out of range. */
static void *operand(struct world *w, const struct value *v)
{
	int64_t n = local_count(w->m, v);
	void *p = aligned_alloc(64, (size_t)(n * 4 + 127) / 64 * 64);

	assert_non_null(p);
	for (int64_t i = 0; i < n; i++)
		nest_store(v->dt, p, i, v->dt == INT ? floor(draw(w) * 4) + 2 : v->dt == BOOL ? draw(w) > 0 : v->nd ? draw(w) * 2 : 0.5 + draw(w) * 0.25);
	return p;
}

static void *result(const struct world *w, const struct value *v)
{
	size_t n = (size_t)(local_bytes(w->m, v) + 127) / 64 * 64;
	void *p = aligned_alloc(64, n);

	assert_non_null(p);
	memset(p, 0xff, n);
	return p;
}

/* -- a kernel -- */

static bool near(double a, double b, double most, enum dtype dt)
{
	return a == b || (a != a && b != b) || fabs(a - b) <= (dt == BF16 ? 1e-2 : 3e-5) * fmax(fabs(b), fmax(most, 0.1)); /* operands are about 1: sums cancel */
}

static void compare(struct world *w, const struct cuda_sig *s, const struct value *v, const void *cuda, const void *c)
{
	double most = 0;

	for (int64_t k = 0; k < local_count(w->m, v); k++) {
		double y = nest_load(v->dt, c, k);

		most = isfinite(y) && fabs(y) > most ? fabs(y) : most;
	}
	for (int64_t k = 0; k < local_count(w->m, v); k++) {
		double a = nest_load(v->dt, cuda, k), b = nest_load(v->dt, c, k);

		if (is_float(v->dt) ? !near(a, b, most, v->dt) : a != b)
			fail_msg("%s: %%%u '%s' [%d]: %.9g, C has %.9g (largest %g)", s->launch->fn, v->id, v->name ? v->name : "", (int)k, a, b, most);
	}
}

static void one_kernel(struct world *w, int no, const int *coord)
{
	const struct cuda_sig *s = &w->cuda[no];
	const struct kernel_sig *c = &w->c.sig[no];
	const struct op *op = s->op;
	void *in[256], *out[256], *want[256];
	int64_t start[64], valid[64];
	struct ptc_step step = { .seed = 42, .step = 3, .training = 1 };
	struct ptc_iter iter = { .iter = { 1 }, .iter_all = 1 };
	struct ptc_env env = { .seed = 42, .step = 3, .training = 1, .iter = { 1 }, .iter_all = 1 };

	assert_ptr_equal(op, c->op);
	for (uint32_t i = 0; i < op->nin; i++)
		in[i] = operand(w, op->in[i]);
	for (uint32_t i = 0; i < op->nout; i++) {
		out[i] = result(w, op->out[i]);
		want[i] = result(w, op->out[i]);
	}
	for (int i = 0; i < c->next; i++) {
		start[i] = extent_of(w->m, c->ext[i].d, &c->ext[i].on, coord).start;
		valid[i] = extent_of(w->m, c->ext[i].d, &c->ext[i].on, coord).valid;
	}
	w->c.fn[no](in, want, start, valid, &env);
	for (int i = 0; i < s->next; i++) {
		start[i] = extent_of(w->m, s->ext[i].d, &s->ext[i].on, coord).start;
		valid[i] = extent_of(w->m, s->ext[i].d, &s->ext[i].on, coord).valid;
	}
	assert_true(gpu_region(&w->gpu, w->m, s, in, out, start, valid, &step, iter));
	for (uint32_t i = 0; i < op->nout; i++)
		compare(w, s, op->out[i], out[i], want[i]);
	for (uint32_t i = 0; i < op->nin; i++)
		free(in[i]);
	for (uint32_t i = 0; i < op->nout; i++) {
		free(out[i]);
		free(want[i]);
	}
	w->kernels++;
}

static void one_model(const char *model, bool bf16)
{
	struct world w = { .mem = arena_new(), .rnd = 7 };
	int coord[MAX_AXES];

	diag_init(&w.d, w.mem, NULL, stderr);
	w.m = plan_of(w.mem, &w.d, model, bf16);
	assert_non_null(w.m);
	char *text = codegen_cuda(w.mem, w.m, &w.cuda, &w.ncuda, &w.d);
	assert_non_null(text);
	assert_true(kernels_load(w.mem, w.m, &w.c, &w.d));
	w.gpu = gpu_open(text);
	assert_non_null(w.gpu.module);
	assert_int_equal(w.ncuda, w.c.n);
	int64_t ranks = module_ranks(w.m);

	for (int64_t r = 0; r < ranks; r += ranks > 1 ? ranks - 1 : 1) {
		rank_coords(w.m, r, coord);
		for (int i = 0; i < w.ncuda; i++)
			one_kernel(&w, i, coord);
	}
	printf("    %s %s: %d kernels\n", model, bf16 ? "bf16" : "f32", w.ncuda);
	fflush(stdout);
	kernels_close(&w.c);
	gpu_close(&w.gpu);
	arena_free(w.mem);
}

static void test_models(void **state)
{
	static const char *const all[] = { "gpt2", "mixtral", "t5", "llama", "deepseek", "gemma2", "mlp_bn", "vit", "bert", "clip", "lora", "mup" };
	size_t n = getenv("ALL") || getenv("ONLY") ? LEN(all) : 7;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		if (getenv("ONLY") && !streq(getenv("ONLY"), all[i]))
			continue;
		if (getenv("ALL"))
			one_model(all[i], i % 2);
		one_model(all[i], i % 2 == 0);
	}
}

/* -- moves -- */

static void one_move(const struct gpu *g, uint64_t *rnd, enum cuda_move_mode mode, enum dtype ddt, enum dtype sdt)
{
	int64_t n[4], ds[4], ss[4], dcount = 1, scount = 1, at[4] = { 0 };
	int order[4] = { 0, 1, 2, 3 };
	struct world w = { .rnd = *rnd };

	for (int i = 3; i > 0; i--) {
		int j = (int)((draw(&w) + 1) * 0.5 * (i + 1)), t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
	for (int i = 0; i < 4; i++)
		n[i] = 1 + (int64_t)((draw(&w) + 1) * 4.5);
	n[3] *= draw(&w) > 0 ? 8 : 1;
	bool same = draw(&w) > 0;
	for (int i = 3; i >= 0; i--) {
		ds[i] = dcount;
		dcount *= n[i];
		int k = same ? i : order[i];
		ss[k] = scount;
		scount *= n[k];
	}
	*rnd = w.rnd;
	void *src = aligned_alloc(64, (size_t)(scount * 4 + 127) / 64 * 64), *dst = aligned_alloc(64, (size_t)(dcount * 4 + 127) / 64 * 64);
	double *want = calloc((size_t)dcount, sizeof *want);

	assert_non_null(src);
	assert_non_null(dst);
	assert_non_null(want);
	for (int64_t i = 0; i < scount; i++)
		nest_store(sdt, src, i, floor(draw(&w) * 60));
	for (int64_t i = 0; i < dcount; i++)
		nest_store(ddt, dst, i, floor(draw(&w) * 60));
	for (at[0] = 0; at[0] < n[0]; at[0]++)
		for (at[1] = 0; at[1] < n[1]; at[1]++)
			for (at[2] = 0; at[2] < n[2]; at[2]++)
				for (at[3] = 0; at[3] < n[3]; at[3]++) {
					int64_t d = 0, s = 0;

					for (int i = 0; i < 4; i++) {
						d += at[i] * ds[i];
						s += at[i] * ss[i];
					}
					double x = mode == CUDA_FILL ? 3 : nest_load(sdt, src, s), y = mode == CUDA_ADD ? x + nest_load(ddt, dst, d) : x;

					want[d] = ddt == BOOL ? y != 0 : y;
				}
	struct cuda_move m = cuda_move_of(mode, ddt, sdt, 4, n, ds, mode == CUDA_FILL ? NULL : ss, 3, 64);
	struct cuda_launch l = { m.fn, m.grid, m.block, 0 };
	void *to = gpu_give(dst, dcount * dtype_bytes(ddt)), *from = gpu_give(src, scount * dtype_bytes(sdt)), *args[] = { &to, &from, &m.nest };

	assert_true(gpu_launch(g, &l, args));
	gpu_take(dst, to, dcount * dtype_bytes(ddt));
	gpu_take(NULL, from, 0);
	for (int64_t i = 0; i < dcount; i++)
		if (nest_load(ddt, dst, i) != want[i])
			fail_msg("%s from %s to %s: [%d] is %g, not %g", m.fn, dtype_name[sdt], dtype_name[ddt], (int)i, nest_load(ddt, dst, i), want[i]);
	free(src);
	free(dst);
	free(want);
}

static void test_moves(void **state)
{
	struct arena *mem = arena_new();
	struct diag d;
	static const char text[] = "ptc-ir 1\nmodule \"t\" form=logical precision=f32 micro=1 workspace=0\nforward:\n";
	struct cuda_sig *sig;
	uint64_t rnd = 11;
	int n;

	(void)state;
	diag_init(&d, mem, NULL, stderr);
	struct module *m = module_parse(mem, "t", text, strlen(text), &d);
	assert_non_null(m);
	struct gpu g = gpu_open(codegen_cuda(mem, m, &sig, &n, &d));
	assert_non_null(g.module);
	for (int turn = 0; turn < 6; turn++)
		for (int a = F32; a < NDTYPE; a++)
			for (int b = F32; b < NDTYPE; b++)
				for (int mode = CUDA_COPY; mode <= CUDA_FILL; mode++)
					if (mode != CUDA_ADD || (a != BOOL && b != BOOL))
						one_move(&g, &rnd, mode, a, b);
	gpu_close(&g);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_models),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
