/* tests/unit/test_codegen.h - for tests of generated kernels: a module of reads, ops and writes is fused,
 * its kernels printed as C, compiled, and run for every coordinate on the shards of the evaluator's
 * buffers; every value that leaves a kernel must be what the evaluator says. */
#ifndef TEST_CODEGEN_H
#define TEST_CODEGEN_H
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/codegen.h"
#include "ir/eval.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "passes/prove.h"

#ifdef WITH_CUDA
#include "tests/cuda/gpu.h"
static bool puts_in_order; /* some CUDA text has put the list of a scatter_add in order */
#endif

#define SAY(mem, ...) arena_printf(mem, __VA_ARGS__)
enum { MAX_SEEN = 4096, MAX_COORDS = 64 };

struct world {
	struct arena *mem;
	struct module *m;
	struct diag d;
	struct eval *e;
	struct kernel_sig *sigs;
	int nsig;
	char *c;
	void *lib;
	char path[64];
	struct { const struct value *v; struct tensor *t; } seen[MAX_SEEN];
	int nseen;
	int64_t step;
#ifdef WITH_CUDA
	struct gpu gpu;
	struct cuda_sig *cuda;
	int ncuda;
#endif
};

static void see(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error)
{
	struct world *w = me;

	(void)iter;
	if (error)
		fail_msg("evaluator: %s", error);
	assert_true(w->nseen < MAX_SEEN);
	struct tensor *t = tensor_new(w->mem, whole->nd, whole->size);

	memcpy(t->x, whole->x, (size_t)whole->count * sizeof *t->x);
	w->seen[w->nseen].v = v;
	w->seen[w->nseen++].t = t;
}

static struct tensor *whole_of(const struct world *w, const struct value *v)
{
	for (int i = 0; i < w->nseen; i++)
		if (w->seen[i].v == v)
			return w->seen[i].t;
	fail_msg("%%%u was not evaluated", v->id);
	return NULL;
}

/* -- locals -- */

/* Calls back for each valid element: local offset by caps, global offset. */
struct walk {
	int64_t local, global;
};

static int64_t list_elements(struct world *w, const struct value *v, const int *coord, struct walk *out)
{
	int64_t idx[MAX_DIMS] = { 0 }, n = 0;
	struct extent x[MAX_DIMS];

	for (int i = 0; i < v->nd; i++) {
		x[i] = extent_of(w->m, v->d[i], &v->sh.on[i], coord);
		if (!x[i].valid)
			return 0;
	}
	for (;;) {
		int64_t l = 0, g = 0;
		int i;

		for (i = 0; i < v->nd; i++) {
			l = l * x[i].cap + idx[i];
			g = g * dim_size(w->m, v->d[i]) + x[i].start + idx[i];
		}
		out[n].local = l;
		out[n++].global = g;
		for (i = v->nd - 1; i >= 0 && ++idx[i] == x[i].valid; i--)
			idx[i] = 0;
		if (i < 0)
			return n;
	}
}

static float from_bf16(uint16_t u)
{
	uint32_t x = (uint32_t)u << 16;
	float f;

	memcpy(&f, &x, 4);
	return f;
}

static uint16_t to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return f != f ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double get(const void *p, enum dtype dt, int64_t i)
{
	switch (dt) {
	case F32:
		return ((const float *)p)[i];
	case BF16:
		return from_bf16(((const uint16_t *)p)[i]);
	case INT:
		return ((const int32_t *)p)[i];
	default:
		return ((const uint8_t *)p)[i];
	}
}

static void put(void *p, enum dtype dt, int64_t i, double x)
{
	switch (dt) {
	case F32:
		((float *)p)[i] = (float)x;
		break;
	case BF16:
		((uint16_t *)p)[i] = to_bf16((float)x);
		break;
	case INT:
		((int32_t *)p)[i] = (int32_t)x;
		break;
	default:
		((uint8_t *)p)[i] = x != 0;
	}
}

/* A local tensor with guards on both sides; padding is NaN (0xff). */
enum { GUARD = 256 };

static void *local_new(struct world *w, const struct value *v)
{
	size_t n = (size_t)local_bytes(w->m, v) + 2 * GUARD + 64;
	char *p = arena_alloc(w->mem, n);

	p += 64 - (uintptr_t)p % 64;
	memset(p, 0xff, n - 64);
	return p + GUARD;
}

static bool guards_hold(struct world *w, const struct value *v, const void *p)
{
	const unsigned char *c = p;
	int64_t n = local_bytes(w->m, v);

	for (int i = 0; i < GUARD; i++)
		if (c[-1 - i] != 0xff || c[n + i] != 0xff)
			return false;
	return true;
}

/* -- building -- */

static void compile(struct world *w)
{
	char cmd[512], file[80];

	w->c = codegen_c(w->mem, w->m, &w->sigs, &w->nsig, &w->d);
	assert_non_null(w->c);
	snprintf(w->path, sizeof w->path, "/tmp/ptc-test-%d-%p.so", (int)getpid(), (void *)w->mem);
	snprintf(file, sizeof file, "%s.c", w->path);
	FILE *f = fopen(file, "w");
	assert_non_null(f);
	fputs(w->c, f);
	fclose(f);
	if (getenv("SHOW"))
		fputs(strstr(w->c, "KERNEL(k"), stdout);
	snprintf(cmd, sizeof cmd, "%s %s -Wall -Wno-unused-variable -Wno-unused-but-set-variable -shared -fPIC -o %s %s",
		 getenv("CC") ? getenv("CC") : "cc", codegen_cflags, w->path, file);
	assert_int_equal(system(cmd), 0);
#ifdef WITH_CUDA
	char *cuda = codegen_cuda(w->mem, w->m, &w->cuda, &w->ncuda, &w->d);
	assert_non_null(cuda);
	puts_in_order |= strstr(cuda, "\np_place_in_order(") != NULL;
	if (getenv("SHOW"))
		fputs(strstr(cuda, "extern \"C\""), stdout), fflush(stdout);
	w->gpu = gpu_open(cuda);
	assert_non_null(w->gpu.module);
#endif
	w->lib = dlopen(w->path, RTLD_NOW);
	if (!w->lib)
		fail_msg("%s", dlerror());
	unlink(w->path);
	if (!getenv("KEEP"))
		unlink(file);
}

static struct world start(const char *text, const char *head)
{
	struct world w = { .mem = arena_new() };
	const char *all = arena_printf(w.mem, "ptc-ir 1\nmodule \"t\" form=partitioned precision=f32 %s workspace=0\n%s",
				       head, text);

	diag_init(&w.d, w.mem, NULL, stderr);
	w.m = module_parse(w.mem, "t", all, strlen(all), &w.d);
	assert_non_null(w.m);
	assert_true(verify(w.m, &w.d));
	return w;
}

/* -- running -- */

static int64_t coords(const struct module *m, int64_t i, int *coord)
{
	for (int a = (int)m->axes.n - 1; a >= 0; a--) {
		coord[a] = (int)(i % m->axes.at[a].size);
		i /= m->axes.at[a].size;
	}
	return i;
}

/* The same bits, but for the sign of zeros, which the flags leave open. */
static bool same_bits(struct world *w, const struct value *v, const void *a, const void *b)
{
	for (int64_t i = 0; i < local_count(w->m, v); i++) {
		double x = get(a, v->dt, i), y = get(b, v->dt, i);

		if (x != y && (x == x || y == y))
			return false;
	}
	return true;
}

/* Again with the results at[] says on the operands that it names: the same bits. */
static void run_on(struct world *w, const struct kernel_sig *s, ptc_kernel *fn, const int *at, void **in, void **whole,
		   const int64_t *from, const int64_t *valid, const struct ptc_env *env)
{
	const struct op *op = s->op;
	void *out[64], *operand[64];

	memcpy(operand, in, op->nin * sizeof *in);
	for (uint32_t k = 0; k < op->nout; k++) {
		out[k] = local_new(w, op->out[k]);
		if (at[k] < 0)
			continue;
		operand[at[k]] = out[k];
		memcpy(out[k], in[at[k]], (size_t)local_bytes(w->m, op->out[k]));
	}
	fn(operand, out, from, valid, env);
	for (uint32_t k = 0; k < op->nout; k++)
		if (!same_bits(w, op->out[k], out[k], whole[k]))
			fail_msg("%s: other bits in place", s->name);
}

/* Results may lie on operands, as far as the proof lets them: each by itself, and as many as can at once. */
static void run_in_place(struct world *w, const struct kernel_sig *s, ptc_kernel *fn, void **in, void **whole,
			 const int64_t *from, const int64_t *valid, const struct ptc_env *env)
{
	const struct op *op = s->op;
	int at[64], all[64];
	bool taken[64] = { false };

	for (uint32_t k = 0; k < op->nout; k++)
		at[k] = all[k] = -1;
	for (uint32_t k = 0; k < op->nout; k++)
		for (uint32_t i = 0; i < op->nin; i++) {
			if (!may_lie_on(op, k, i))
				continue;
			at[k] = (int)i;
			run_on(w, s, fn, at, in, whole, from, valid, env);
			at[k] = -1;
			if (all[k] < 0 && !taken[i]) {
				all[k] = (int)i;
				taken[i] = true;
			}
		}
	run_on(w, s, fn, all, in, whole, from, valid, env);
}

/* The same in parts: the same bits. */
static void run_parts(struct world *w, const struct kernel_sig *s, ptc_kernel *fn, void **in, void **whole,
		      const int64_t *from, const int64_t *valid, struct ptc_env env)
{
	const struct op *op = s->op;
	void *out[64], *part[64];
	int parts = s->maxes ? KERNEL_PARTS : s->split < 3 ? s->split : 3;

	for (uint32_t i = 0; i < op->nout; i++)
		out[i] = local_new(w, op->out[i]);
	for (int p = 0; p < parts; p++) {
		for (uint32_t i = 0; i < op->nout; i++)
			part[i] = p && s->maxes >> i & 1 ? local_new(w, op->out[i]) : out[i];
		env.part = (uint32_t)p;
		env.parts = (uint32_t)parts;
		fn(in, part, from, valid, &env);
		for (uint32_t i = 0; i < op->nout; i++)
			for (int64_t k = 0; part[i] != out[i] && k < local_count(w->m, op->out[i]); k++) {
				float *x = (float *)out[i] + k, y = ((float *)part[i])[k];

				*x = y > *x ? y : *x;
			}
	}
	for (uint32_t i = 0; i < op->nout; i++)
		if (!same_bits(w, op->out[i], whole[i], out[i]))
			fail_msg("%s: parts make other bits of result %%%u", s->name, op->out[i]->id);
}

#ifdef WITH_CUDA
static bool near(double a, double b, double most, enum dtype dt)
{
	return a == b || (a != a && b != b) || fabs(a - b) <= (dt == BF16 ? 8e-3 : 2e-5) * fmax(fabs(b), most * 0.2);
}

static const struct cuda_sig *cuda_sig_of(const struct world *w, const struct op *op)
{
	for (int i = 0; i < w->ncuda; i++)
		if (w->cuda[i].op == op)
			return &w->cuda[i];
	fail_msg("no CUDA kernel");
	return NULL;
}

/* The CUDA kernel yields what the C kernel did; padding stays as it is. */
static void run_cuda(struct world *w, const struct op *op, void **in, void **whole, const int *coord)
{
	const struct cuda_sig *s = cuda_sig_of(w, op);
	struct ptc_step step = { .seed = 42, .step = (uint32_t)w->step, .training = 1 };
	int64_t from[64], valid[64];
	void *out[64];

	for (uint32_t i = 0; i < op->nout; i++)
		out[i] = local_new(w, op->out[i]);
	for (int i = 0; i < s->next; i++) {
		struct extent x = extent_of(w->m, s->ext[i].d, &s->ext[i].on, coord);

		from[i] = x.start;
		valid[i] = x.valid;
	}
	assert_true(gpu_region(&w->gpu, w->m, s, in, out, from, valid, &step, (struct ptc_iter){ .mb = 0 }));
	for (uint32_t i = 0; i < op->nout; i++) {
		const struct value *v = op->out[i];
		double most = 0;

		if (!guards_hold(w, v, out[i]))
			fail_msg("CUDA %s wrote outside of result %%%u", s->launch->fn, v->id);
		for (int64_t k = 0; k < local_count(w->m, v); k++)
			if (isfinite(get(whole[i], v->dt, k)))
				most = fmax(most, fabs(get(whole[i], v->dt, k)));
		for (int64_t k = 0; k < local_count(w->m, v); k++) {
			double a = get(out[i], v->dt, k), b = get(whole[i], v->dt, k);

			if (is_float(v->dt) ? !near(a, b, most, v->dt) : a != b)
				fail_msg("CUDA %s: %%%u[%d]: %.9g, C has %.9g", s->launch->fn, v->id, (int)k, a, b);
		}
	}
}
#endif

static void run_kernel(struct world *w, const struct kernel_sig *s, void **local, const int *coord)
{
	const struct op *op = s->op;
	void *in[64], *out[64];
	int64_t from[64], valid[64];
	struct ptc_env env = { .seed = 42, .step = (uint32_t)w->step, .training = 1 };
	ptc_kernel *fn = NULL;

	*(void **)&fn = dlsym(w->lib, s->name);
	assert_non_null(fn);
	for (uint32_t i = 0; i < op->nin; i++)
		in[i] = local[op->in[i]->id];
	for (uint32_t i = 0; i < op->nout; i++)
		out[i] = local[op->out[i]->id] = local_new(w, op->out[i]);
	for (int i = 0; i < s->next; i++) {
		struct extent x = extent_of(w->m, s->ext[i].d, &s->ext[i].on, coord);

		from[i] = x.start;
		valid[i] = x.valid;
	}
	fn(in, out, from, valid, &env);
#ifdef WITH_CUDA
	run_cuda(w, op, in, out, coord);
	return;
#endif
	run_in_place(w, s, fn, in, out, from, valid, &env);
	if (s->split > 1)
		run_parts(w, s, fn, in, out, from, valid, env);
	for (uint32_t i = 0; i < op->nout; i++)
		if (!guards_hold(w, op->out[i], out[i]))
			fail_msg("%s wrote outside of result %%%u", s->name, op->out[i]->id);
}

static void run_op(struct world *w, const struct op *op, void **local, const int *coord)
{
	struct walk *walk = NULL;

	if (op->code == OP_KERNEL) {
		for (int i = 0; i < w->nsig; i++)
			if (w->sigs[i].op == op)
				run_kernel(w, &w->sigs[i], local, coord);
	} else if (op->code == OP_RENAME || op->code == OP_SPLIT || op->code == OP_MERGE) {
		local[op->out[0]->id] = local[op->in[0]->id];
	} else if (op->code != OP_WRITE && op->code != OP_REPORT) {
		const struct value *v = op->out[0];
		const struct tensor *t = whole_of(w, v);
		void *p = local[v->id] = local_new(w, v);

		walk = malloc((size_t)(value_count(w->m, v) + 1) * sizeof *walk);
		int64_t n = list_elements(w, v, coord, walk);
		for (int64_t i = 0; i < n; i++)
			put(p, v->dt, walk[i].local, t->x[walk[i].global]);
		free(walk);
	}
}

/* The logical value from all coordinates; replicas must be the same bits. */
static double *joined(struct world *w, const struct value *v, void ***local, int64_t nc)
{
	int64_t count = value_count(w->m, v);
	double *x = NEWN(w->mem, double, count + 1);
	bool *have = NEWN(w->mem, bool, count + 1);
	struct walk *walk = malloc((size_t)(count + 1) * sizeof *walk);

	for (int64_t c = 0; c < nc; c++) {
		int coord[MAX_AXES];

		coords(w->m, c, coord);
		int64_t n = list_elements(w, v, coord, walk);
		/* of the replicas count one: coordinate 0 on axes that neither split nor pend */
		uint32_t used = sharding_axes(&v->sh, v->nd) | v->sh.sum | v->sh.max;
		bool first = true;

		for (uint32_t a = 0; a < w->m->axes.n; a++)
			first &= (used >> a & 1) || coord[a] == 0;
		for (int64_t i = 0; i < n; i++) {
			double y = get(local[c][v->id], v->dt, walk[i].local);
			int64_t g = walk[i].global;

			if (!first) {
				if (have[g] && !(v->sh.sum | v->sh.max) && x[g] != y && !(x[g] != x[g] && y != y))
					fail_msg("replicas of %%%u differ", v->id);
				continue;
			}
			x[g] = !have[g] ? y : v->sh.max ? (y > x[g] ? y : x[g]) : x[g] + y;
			have[g] = true;
		}
	}
	free(walk);
	for (int64_t i = 0; i < count; i++)
		if (!have[i])
			x[i] = v->sh.max ? -INFINITY : 0;
	return x;
}

static void compare(struct world *w, const struct value *v, const double *x, double tol)
{
	const struct tensor *t = whole_of(w, v);
	int64_t n = value_count(w->m, v);
	double most = 0;

	for (int64_t i = 0; i < n; i++)
		if (isfinite(t->x[i]) && fabs(t->x[i]) > most)
			most = fabs(t->x[i]);
	if (v->dt == BF16)
		tol = 8e-3;
	for (int64_t i = 0; i < n; i++) {
		double a = x[i], b = t->x[i], e = fabs(a - b);
		/* fuzzed sums cancel: there the terms are about 1 */
		double bound = tol * fmax(fmax(fabs(b), most * (tol > 1e-3 ? 0.3 : 0.05)), tol == 1e-4 ? 1 : 0);

		if (a == b || (a != a && b != b))
			continue;
		if (!is_float(v->dt) ? a != b : !(e <= bound))
			fail_msg("%%%u '%s' [%d]: %.9g, should be %.9g (largest %g)", v->id,
				 v->name ? v->name : "", (int)i, a, b, most);
	}
}

static int outside(const struct block *b)
{
	int n = 0;

	for (const struct op *op = b->first; op; op = op->next)
		n += op->code == OP_KERNEL;
	return n;
}

/* text: dims, buffers and ops. kernels: how many there must be, -1: any. */
static void check_tol(const char *head, const char *text, int kernels, double tol)
{
	struct world w = start(text, head);
	const char *why = NULL;

	assert_true(pass_fuse(w.m, &w.d));
	size_t len;
	char *printed = module_print(w.m, w.mem, &len);
	if (getenv("SHOW"))
		puts(printed), fflush(stdout);
	if (!verify(w.m, &w.d))
		fail_msg("verify\n%s", printed);
	if (kernels >= 0 && outside(&w.m->top) != kernels)
		fail_msg("%d kernels, not %d\n%s", outside(&w.m->top), kernels, printed);
	struct module *again = module_parse(w.mem, "t", printed, len, &w.d);
	assert_non_null(again);
	w.m = again;
	size_t len2;
	assert_string_equal(module_print(w.m, w.mem, &len2), printed);

	w.step = 3;
	w.e = eval_new(w.mem, w.m, 42);
	eval_init(w.e);
	for (uint32_t i = 0; i < w.m->bufs.n; i++) {
		struct buffer *b = w.m->bufs.at[i];

		if (b->role != B_INPUT)
			continue;
		struct tensor *t = tensor_like(w.mem, w.m, b->nd, b->d);
		for (int64_t k = 0; k < t->count; k++)
			t->x[k] = b->dt == INT ? (double)((k * 7919 + 13) % (b->tokens + 2) - 1) : sin((double)k * 1.7) * 2;
		eval_set(w.e, b->name, t);
	}
	struct eval_watch watch = { see, &w, false };
	if (!eval_step(w.e, w.step, true, &watch, &why))
		fail_msg("evaluator: %s\n%s", why, printed);
	compile(&w);

	int64_t nc = 1;
	for (uint32_t a = 0; a < w.m->axes.n; a++)
		nc *= w.m->axes.at[a].size;
	assert_true(nc <= MAX_COORDS);
	void ***local = NEWN(w.mem, void **, nc);
	for (int64_t c = 0; c < nc; c++) {
		int coord[MAX_AXES];

		coords(w.m, c, coord);
		local[c] = NEWN(w.mem, void *, w.m->next_id + 1);
		for (const struct op *op = w.m->top.first; op; op = op->next)
			run_op(&w, op, local[c], coord);
	}
	for (const struct op *op = w.m->top.first; op; op = op->next)
		for (uint32_t i = 0; op->code == OP_KERNEL && i < op->nout; i++)
			compare(&w, op->out[i], joined(&w, op->out[i], local, nc), tol);
#ifdef WITH_CUDA
	gpu_close(&w.gpu);
#endif
	dlclose(w.lib);
	arena_free(w.mem);
}

/* Ops on the values before them, each kept in a buffer of its own. */
struct script {
	struct text buffers, ops;
	int next;
};

static struct script script_new(struct arena *mem, const char *buffers, const char *ops, int next)
{
	struct script s = { { .mem = mem }, { .mem = mem }, next };

	text_put(&s.buffers, "%s", buffers);
	text_put(&s.ops, "forward:\n%s", ops);
	return s;
}

/* what: "add %0, %1"; kept if type is stored. Returns the value's number. */
static int say(struct script *s, bool keep, const char *type, const char *fmt, ...)
{
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	text_put(&s->ops, "%%%d = %s : %s\n", s->next, what, type);
	if (keep) {
		text_put(&s->ops, "write %%%d {buf=\"o%d\"}\n", s->next, s->next);
		text_put(&s->buffers, "buffer @\"o%d\" opt %s init=zeros\n", s->next, type);
	}
	return s->next++;
}

static void check_script(const char *head, struct script *s, int kernels, double tol)
{
	text_put(&s->buffers, "%s", s->ops.s);
	check_tol(head, s->buffers.s, kernels, tol);
}

#endif
