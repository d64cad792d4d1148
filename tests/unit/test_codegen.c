/* Generated kernels against the reference evaluator: modules of reads, ops and writes are fused,
 * their kernels printed as C, compiled, and run for every coordinate on the shards of the
 * evaluator's buffers; every value that leaves a kernel must be what the evaluator says. */
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
		x[i] = extent_of(w->m, dim_size(w->m, v->d[i]), &v->sh.on[i], coord);
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
	snprintf(cmd, sizeof cmd, "%s %s -Wall -Wno-unused-variable -shared -fPIC -o %s %s",
		 getenv("CC") ? getenv("CC") : "cc", codegen_cflags, w->path, file);
	assert_int_equal(system(cmd), 0);
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

/* The same in parts: the same bits, or sums that replace those of one call. */
static void run_parts(struct world *w, const struct kernel_sig *s, ptc_kernel *fn, void **in, void **whole,
		      const int64_t *from, const int64_t *valid, struct ptc_env env)
{
	const struct op *op = s->op;
	void *out[64], *part[64];
	int parts = s->sums | s->maxes ? KERNEL_PARTS : s->split < 3 ? s->split : 3;

	for (uint32_t i = 0; i < op->nout; i++)
		out[i] = local_new(w, op->out[i]);
	for (int p = 0; p < parts; p++) {
		for (uint32_t i = 0; i < op->nout; i++)
			part[i] = p && (s->sums | s->maxes) >> i & 1 ? local_new(w, op->out[i]) : out[i];
		env.part = (uint32_t)p;
		env.parts = (uint32_t)parts;
		fn(in, part, from, valid, &env);
		for (uint32_t i = 0; i < op->nout; i++)
			for (int64_t k = 0; part[i] != out[i] && k < local_count(w->m, op->out[i]); k++) {
				float *x = (float *)out[i] + k, y = ((float *)part[i])[k];

				*x = s->sums >> i & 1 ? *x + y : y > *x ? y : *x;
			}
	}
	for (uint32_t i = 0; i < op->nout; i++)
		if ((s->sums | s->maxes) >> i & 1)
			memcpy(whole[i], out[i], (size_t)local_bytes(w->m, op->out[i]));
		else if (memcmp(whole[i], out[i], (size_t)local_bytes(w->m, op->out[i])) != 0)
			fail_msg("%s: parts make other bits of result %%%u", s->name, op->out[i]->id);
}

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
		struct extent x = extent_of(w->m, dim_size(w->m, s->ext[i].d), &s->ext[i].on, coord);

		from[i] = x.start;
		valid[i] = x.valid;
	}
	fn(in, out, from, valid, &env);
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
	struct eval_watch watch = { see, &w };
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
	dlclose(w.lib);
	arena_free(w.mem);
}

static void check(const char *text, int kernels)
{
	check_tol("micro=1", text, kernels, 2e-6);
}

/* -- cases -- */

static const char norm_dims[] =
	"dim batch=3\ndim seq=5\ndim embed=40\n"
	"buffer @\"x\" param f32[batch, seq, embed] init=normal(1)\n"
	"buffer @\"dy\" param f32[batch, seq, embed] init=normal(1)\n"
	"buffer @\"g\" param f32[embed] init=normal(1)\n"
	"buffer @\"b\" param f32[embed] init=normal(1)\n";

static void one_op(const char *op, const char *attrs, const char *range)
{
	char text[2048];

	snprintf(text, sizeof text,
		 "dim n=3\ndim k=37\n"
		 "buffer @\"x\" param f32[n, k] init=%s\nbuffer @\"y\" param f32[k] init=%s\n"
		 "buffer @\"r\" opt f32[n, k] init=zeros\nforward:\n"
		 "%%0 = read {buf=\"x\"} : f32[n, k]\n"
		 "%%1 = %s %%0 %s : f32[n, k]\n"
		 "write %%1 {buf=\"r\"}\n", range, range, op, attrs);
	check(text, 1);
}

static void test_maps(void **state)
{
	(void)state;
	static const char *const plain[] = { "neg", "exp", "tanh", "sigmoid", "sin", "cos", "abs", "sign", "relu",
					     "drelu", "silu", "dsilu" };
	static const char *const positive[] = { "log", "sqrt", "rsqrt" };

	for (size_t i = 0; i < LEN(plain); i++)
		one_op(plain[i], "", "normal(3)");
	for (size_t i = 0; i < LEN(positive); i++)
		one_op(positive[i], "", "constant(0.37)");
	for (int i = 0; i < 3; i++) {
		char form[16];

		snprintf(form, sizeof form, "{form=%d}", i);
		one_op("gelu", form, "normal(2)");
		one_op("dgelu", form, "normal(2)");
	}
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

static void test_maps2(void **state)
{
	(void)state;
	static const char *const ops[] = { "add", "sub", "mul", "div", "min", "max", "floordiv", "mod" };
	static const char *const tests[] = { "eq", "ne", "lt", "le", "gt", "ge" };
	struct arena *mem = arena_new();
	struct script s = script_new(mem, "dim n=3\ndim k=37\nbuffer @\"x\" param f32[n, k] init=normal(1)\n"
				     "buffer @\"y\" param f32[k] init=normal(1)\n",
				     "%0 = read {buf=\"x\"} : f32[n, k]\n%1 = read {buf=\"y\"} : f32[k]\n", 2);
	int t[6], c, i;

	for (size_t k = 0; k < LEN(ops); k++)
		say(&s, true, "f32[n, k]", "%s %%0, %%1", ops[k]);
	for (size_t k = 0; k < LEN(tests); k++)
		t[k] = say(&s, true, "bool[n, k]", "%s %%0, %%1", tests[k]);
	say(&s, true, "bool[n, k]", "and %%%d, %%%d", t[3], t[5]);
	c = say(&s, true, "bool[n, k]", "or %%%d, %%%d", t[0], t[2]);
	say(&s, true, "bool[n, k]", "not %%%d", c);
	c = say(&s, true, "f32[n, k]", "where %%%d, %%0, %%1", c);
	c = say(&s, true, "f32[n, k]", "accum %%%d, %%0, %%0", c);
	i = say(&s, true, "int[n, k]", "cast %%%d", c);
	c = say(&s, false, "int[]", "const {value=3}");
	say(&s, true, "int[n, k]", "floordiv %%%d, %%%d", i, c);
	say(&s, true, "int[n, k]", "mod %%%d, %%%d", i, c);
	say(&s, true, "f32[n, k]", "div %%%d, %%%d", i, c);
	say(&s, true, "f32[n, k]", "mul %%%d, %%0", i);
	c = say(&s, false, "f32[n, k]", "abs %%0");
	say(&s, true, "f32[n, k]", "pow %%%d, %%1", c);
	check_script("micro=1", &s, 1, 2e-6);
	arena_free(mem);
}

/* Sums over every set of dims of [a, b, c], of values and of products, and what is made of them. */
static void test_reductions(void **state)
{
	(void)state;
	static const char *const keep[] = { "[]", "[a]", "[b]", "[c]", "[a, b]", "[a, c]", "[b, c]", "[c, a]" };
	static const char *const codes[] = { "sum", "rmax" };

	for (int half = 0; half < 4; half++) {
		struct arena *mem = arena_new();
		const char *const on = half & 1 ? "mesh p=2\nmesh q=3\n" : "";
		const char *const x = half & 1 ? "[a@p, b, c@q]" : "[a, b, c]";
		struct script s = script_new(mem, SAY(mem, "%sdim a=5\ndim b=4\ndim c=23\nbuffer @\"x\" param f32%s init=normal(1)\n", on, x),
					     SAY(mem, "%%0 = read {buf=\"x\"} : f32%s\n", x), 1);

		for (size_t k = 0; k < LEN(keep); k++) {
			char type[64] = "f32", owed[64] = "";

			for (const char *c = keep[k]; *c; c++)
				snprintf(type + strlen(type), 16, "%c%s", *c, half & 1 && *c == 'a' ? "@p" : half & 1 && *c == 'c' ? "@q" : "");
			bool p = half & 1 && !strchr(keep[k], 'a'), q = half & 1 && !strchr(keep[k], 'c');
			if (p || q)
				snprintf(owed, sizeof owed, "%s%s%s", p ? "p" : "", p && q ? "." : "", q ? "q" : "");
			int r = say(&s, !(p || q), p || q ? SAY(mem, "%s%s%s", type, half & 2 ? "^" : "+", owed) : type, "%s %%0", codes[half >> 1]);
			if (p || q)
				r = say(&s, true, type, "all_reduce %%%d {axes=(%s)%s}", r, owed, half & 2 ? ", max=1" : "");
			say(&s, false, SAY(mem, "f32%s", x), "mul %%0, %%%d", r);
			say(&s, true, SAY(mem, "f32%s", x), "sub %%%d, %%0", s.next - 1);
		}
		check_script("micro=1", &s, -1, 4e-6);
		arena_free(mem);
	}
}

static const char norm_text[] =
	"buffer @\"r\" opt f32[batch, seq, embed] init=zeros\n"
	"buffer @\"s\" opt f32[batch, seq] init=zeros\n"
	"forward:\n"
	"%0 = read {buf=\"x\"} : f32[batch, seq, embed]\n"
	"%1 = read {buf=\"g\"} : f32[embed]\n"
	"%2 = read {buf=\"b\"} : f32[embed]\n"
	"%3 = sum %0 : f32[batch, seq]\n"
	"%4 = const {value=0.025} : f32[]\n"
	"%5 = mul %3, %4 : f32[batch, seq]\n"
	"%6 = sub %0, %5 : f32[batch, seq, embed]\n"
	"%7 = mul %6, %6 : f32[batch, seq, embed]\n"
	"%8 = sum %7 : f32[batch, seq]\n"
	"%9 = mul %8, %4 : f32[batch, seq]\n"
	"%10 = const {value=1e-05} : f32[]\n"
	"%11 = add %9, %10 : f32[batch, seq]\n"
	"%12 = rsqrt %11 : f32[batch, seq]\n"
	"%13 = mul %6, %12 : f32[batch, seq, embed]\n"
	"%14 = mul %13, %1 : f32[batch, seq, embed]\n"
	"%15 = add %14, %2 : f32[batch, seq, embed]\n"
	"write %15 {buf=\"r\"}\n"
	"write %12 {buf=\"s\"}\n";

static void test_layernorm(void **state)
{
	(void)state;
	struct text t = { .mem = arena_new() };

	text_put(&t, "%s%s", norm_dims, norm_text);
	check(t.s, 1);
	arena_free(t.mem);
}

static void test_layernorm_backward(void **state)
{
	(void)state;
	struct text t = { .mem = arena_new() };

	text_put(&t, "%s%s", norm_dims,
		 "buffer @\"r\" opt f32[batch, seq, embed] init=zeros\n"
		 "buffer @\"s\" param f32[batch, seq] init=normal(1)\n"
		 "buffer @\"dg\" opt f32[embed] init=zeros\n"
		 "forward:\n"
		 "%0 = read {buf=\"x\"} : f32[batch, seq, embed]\n"
		 "%1 = read {buf=\"dy\"} : f32[batch, seq, embed]\n"
		 "%2 = read {buf=\"g\"} : f32[embed]\n"
		 "%3 = read {buf=\"s\"} : f32[batch, seq]\n"
		 "%4 = sum %1 : f32[embed] \"db\"\n"
		 "%5 = mul %0, %3 : f32[batch, seq, embed]\n"
		 "%6 = mul %1, %5 : f32[batch, seq, embed]\n"
		 "%7 = sum %6 : f32[embed] \"dg\"\n"
		 "%8 = mul %1, %2 : f32[batch, seq, embed]\n"
		 "%9 = mul %8, %3 : f32[batch, seq, embed]\n"
		 "%10 = mul %8, %0 : f32[batch, seq, embed]\n"
		 "%11 = sum %10 : f32[batch, seq]\n"
		 "%12 = mul %11, %3 : f32[batch, seq]\n"
		 "%13 = mul %0, %12 : f32[batch, seq, embed]\n"
		 "%14 = accum %9, %13 : f32[batch, seq, embed]\n"
		 "%15 = sum %14 : f32[batch, seq]\n"
		 "%16 = sub %14, %15 : f32[batch, seq, embed]\n"
		 "write %16 {buf=\"r\"}\n"
		 "write %4 {buf=\"b\"}\n"
		 "write %7 {buf=\"dg\"}\n");
	check(t.s, 1);
	arena_free(t.mem);
}

static const char entropy[] =
	"dim batch=5\ndim seq=7\ndim vocab=%d\n"
	"buffer @\"z\" param f32[batch, seq, vocab] init=normal(2)\n"
	"buffer @\"t\" input int[batch, seq] tokens=%d\n"
	"buffer @\"d\" param f32[] init=constant(0.5)\n"
	"buffer @\"r\" opt f32[batch, seq, vocab] init=zeros\n"
	"buffer @\"n\" opt f32[batch, seq] init=zeros\n"
	"buffer @\"l\" opt f32[] init=zeros\n"
	"forward:\n"
	"%%0 = read {buf=\"z\"} : f32[batch, seq, vocab]\n"
	"%%1 = read {buf=\"t\"} : int[batch, seq]\n"
	"%%2 = rmax %%0 : f32[batch, seq]\n"
	"%%3 = sub %%0, %%2 : f32[batch, seq, vocab]\n"
	"%%4 = exp %%3 : f32[batch, seq, vocab] \"e\"\n"
	"%%5 = sum %%4 : f32[batch, seq]\n"
	"%%6 = log %%5 : f32[batch, seq]\n"
	"%%7 = add %%6, %%2 : f32[batch, seq]\n"
	"%%8 = index {dim=vocab} : int[vocab]\n"
	"%%9 = eq %%8, %%1 : bool[vocab, batch, seq]\n"
	"%%10 = const {value=0} : f32[]\n"
	"%%11 = where %%9, %%0, %%10 : f32[batch, seq, vocab]\n"
	"%%12 = sum %%11 : f32[batch, seq]\n"
	"%%13 = sub %%7, %%12 : f32[batch, seq]\n"
	"%%14 = const {value=-100} : int[]\n"
	"%%15 = ne %%1, %%14 : bool[batch, seq]\n"
	"%%16 = where %%15, %%13, %%10 : f32[batch, seq]\n"
	"%%17 = sum %%16 : f32[] \"loss\"\n"
	"write %%16 {buf=\"n\"}\n"
	"write %%17 {buf=\"l\"}\n"
	"backward:\n"
	"%%18 = read {buf=\"d\"} : f32[]\n"
	"%%19 = where %%15, %%18, %%10 : f32[batch, seq]\n"
	"%%20 = neg %%19 : f32[batch, seq]\n"
	"%%21 = where %%9, %%20, %%10 : f32[batch, seq, vocab]\n"
	"%%22 = div %%19, %%5 : f32[batch, seq]\n"
	"%%23 = mul %%22, %%4 : f32[batch, seq, vocab]\n"
	"%%24 = accum %%21, %%23 : f32[batch, seq, vocab]\n"
	"write %%24 {buf=\"r\"}\n";

static void test_entropy(void **state)
{
	(void)state;
	static const int sizes[] = { 11, 257, 9001 };

	for (size_t i = 0; i < LEN(sizes); i++) {
		char text[8192];

		snprintf(text, sizeof text, entropy, sizes[i], sizes[i]);
		check(text, 2);
	}
}

/* Rows of a table, whole and split over the vocabulary; labels out of range. */
static void test_lookup(void **state)
{
	(void)state;
	check("mesh dp=2\nmesh tp=3\ndim b=5\ndim s=3\ndim v=10\ndim e=20\n"
	      "buffer @\"t\" input int[b, s] tokens=10\n"
	      "buffer @\"w\" param f32[v@tp, e] init=normal(1)\n"
	      "buffer @\"u\" param f32[v, b@dp, e] init=normal(1)\n"
	      "buffer @\"dy\" param f32[b@dp, s, e] init=normal(1)\n"
	      "buffer @\"o\" opt f32[b@dp, s, e] init=zeros\nbuffer @\"p\" opt f32[b@dp, s, e] init=zeros\n"
	      "buffer @\"q\" opt f32[v, e] init=zeros\nbuffer @\"r\" opt f32[v@tp] init=zeros\n"
	      "forward:\n"
	      "%0 = read {buf=\"t\"} : int[b@dp, s]\n%1 = read {buf=\"w\"} : f32[v@tp, e]\n"
	      "%2 = read {buf=\"u\"} : f32[v, b@dp, e]\n%3 = read {buf=\"dy\"} : f32[b@dp, s, e]\n"
	      "%4 = lookup %1, %0 {dims=(v)} : f32[b@dp, s, e]+tp\n"
	      "%5 = all_reduce %4 {axes=(tp)} : f32[b@dp, s, e]\n"
	      "%6 = mul %3, %5 : f32[b@dp, s, e]\nwrite %6 {buf=\"o\"}\n"
	      "%7 = lookup %2, %0 {dims=(v)} : f32[b@dp, s, e]\n"
	      "%8 = add %7, %6 : f32[b@dp, s, e]\nwrite %8 {buf=\"p\"}\n"
	      "%9 = scatter_add %3, %0 {dims=(v)} : f32[v, e]+dp\n"
	      "%10 = all_reduce %9 {axes=(dp)} : f32[v, e]\nwrite %10 {buf=\"q\"}\n"
	      "%11 = scatter_add %3, %0 {dims=(v)} : f32[v@tp]+dp\n"
	      "%12 = all_reduce %11 {axes=(dp)} : f32[v@tp]\nwrite %12 {buf=\"r\"}\n", -1);
}

static void test_views(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct script s = script_new(mem, "dim n=12\ndim k=6\ndim a=3\ndim b=4\ndim h=5\ndim j=6\n"
				     "buffer @\"x\" param f32[n, k] init=normal(1)\nbuffer @\"y\" param f32[a, b, k] init=normal(1)\n",
				     "%0 = read {buf=\"x\"} : f32[n, k]\n%1 = read {buf=\"y\"} : f32[a, b, k]\n", 2);
	int v = say(&s, true, "f32[k, a, b]", "split %%0 {dim=n, tos=(a, b)}");

	say(&s, true, "f32[b, k, a]", "mul %%%d, %%1", v);
	v = say(&s, true, "f32[k, n]", "merge %%1 {to=n, dims=(a, b)}");
	say(&s, true, "f32[k, n]", "sub %%%d, %%0", v);
	v = say(&s, true, "f32[h, k]", "slice %%0 {dim=n, to=h, start=1, stride=2}");
	say(&s, true, "f32[h, k]", "slice %%0 {dim=n, to=h, start=-3, stride=2}");
	say(&s, true, "f32[h, k]", "slice %%0 {dim=n, to=h, start=9, stride=1}");
	v = say(&s, true, "f32[n, k]", "pad %%%d {dim=h, to=n, start=1, stride=2}", v);
	v = say(&s, true, "f32[n, k]", "pad %%%d {dim=n, to=n, start=2, stride=1}", v);
	v = say(&s, true, "f32[n, k]", "roll %%0 {dim=k, shift=2}");
	v = say(&s, true, "f32[n, k]", "mul %%%d, %%0", v);
	v = say(&s, true, "f32[n, k]", "roll %%%d {dim=n, shift=-5}", v);
	v = say(&s, true, "f32[n, k]", "roll %%%d {dim=k, shift=3}", v);
	v = say(&s, true, "f32[j, n]", "rename %%%d {dims=(k), tos=(j)}", v);
	v = say(&s, false, "int[k]", "index {dim=k}");
	v = say(&s, true, "f32[n, k]", "mul %%%d, %%0", v);
	v = say(&s, true, "f32[n]", "sum %%%d", v);
	check_script("micro=1", &s, -1, 2e-6);
	arena_free(mem);
}

static void test_random(void **state)
{
	(void)state;
	check_tol("micro=2", "mesh dp=2\nmesh tp=3\naxis dp=2 of dp\naxis tp=3 of tp\naxis micro=2 time\ndim b=12\ndim s=5\ndim e=22\n"
	      "buffer @\"x\" param f32[b@micro.dp, s, e@tp] init=normal(1)\n"
	      "forward:\n"
	      "%0 = rng {key=\"a#0\", dims=(b, s, e)} : f32[b@micro.dp, s, e@tp]\n"
	      "%1 = read {buf=\"x\"} : f32[b@micro.dp, s, e@tp]\n"
	      "%2 = const {value=0.1} : f32[]\n"
	      "%3 = ge %0, %2 : bool[b@micro.dp, s, e@tp]\n"
	      "%4 = const {value=0} : f32[]\n"
	      "%5 = where %3, %1, %4 : f32[b@micro.dp, s, e@tp] \"dropped\"\n"
	      "%6 = add %5, %0 : f32[b@micro.dp, s, e@tp]\n"
	      "%7 = sum %6 : f32[b@micro.dp, s]+tp\n"
	      "%8 = rng {key=\"b#0\", dims=(e, b)} : f32[e@tp, b@micro.dp]\n"
	      "%9 = mul %8, %6 : f32[b@micro.dp, s, e@tp]\n"
	      "%10 = sum %9 : f32[]+micro.dp.tp\n"
	      "%11 = accumulate %10 : f32[]+dp.tp\n", -1, 2e-6);
}

static void test_bf16(void **state)
{
	(void)state;
	struct text t = { .mem = arena_new() };
	char *n = arena_strdup(t.mem, norm_text), *d = arena_strdup(t.mem, norm_dims);

	text_put(&t, "%s%s", d, n);
	struct text u = { .mem = t.mem };
	for (const char *c = t.s; *c; c++)
		if (!strncmp(c, "f32[batch, seq, embed]", 22) && c[-1] == ' ') {
			text_put(&u, "bf16[batch, seq, embed]");
			c += 21;
		} else {
			text_bytes(&u, c, 1);
		}
	check_tol("micro=1", u.s, 1, 8e-3);
	arena_free(t.mem);
}

static void test_adamw(void **state)
{
	(void)state;
	check("mesh dp=3\ndim l=2\ndim e=7\ndim f=12\n"
	      "buffer @\"p\" param f32[l, e@dp, f] init=normal(1)\nbuffer @\"g\" param f32[l, e@dp, f] init=normal(1)\n"
	      "buffer @\"m\" param f32[l, e@dp, f] init=normal(1)\nbuffer @\"v\" param f32[l, e@dp, f] init=uniform(1)\n"
	      "epilogue:\n"
	      "%0 = read {buf=\"p\"} : f32[l, e@dp, f]\n%1 = read {buf=\"g\"} : f32[l, e@dp, f]\n"
	      "%2 = read {buf=\"m\"} : f32[l, e@dp, f]\n%3 = read {buf=\"v\"} : f32[l, e@dp, f]\n"
	      "%4 = const {value=0.9} : f32[]\n%5 = const {value=0.1} : f32[]\n"
	      "%6 = const {value=0.999} : f32[]\n%7 = const {value=0.001} : f32[]\n"
	      "%8 = mul %2, %4 : f32[l, e@dp, f]\n%9 = mul %1, %5 : f32[l, e@dp, f]\n%10 = add %8, %9 : f32[l, e@dp, f]\n"
	      "%11 = mul %1, %1 : f32[l, e@dp, f]\n%12 = mul %11, %7 : f32[l, e@dp, f]\n"
	      "%13 = abs %3 : f32[l, e@dp, f]\n%14 = mul %13, %6 : f32[l, e@dp, f]\n%15 = add %14, %12 : f32[l, e@dp, f]\n"
	      "%16 = step : int[]\n%17 = const {value=1} : int[]\n%18 = add %16, %17 : int[]\n"
	      "%19 = pow %4, %18 : f32[]\n%20 = pow %6, %18 : f32[]\n%21 = const {value=1} : f32[]\n"
	      "%22 = sub %21, %19 : f32[] \"c1\"\n%23 = sub %21, %20 : f32[] \"c2\"\n"
	      "%24 = div %10, %22 : f32[l, e@dp, f]\n%25 = div %15, %23 : f32[l, e@dp, f]\n"
	      "%26 = sqrt %25 : f32[l, e@dp, f]\n%27 = const {value=1e-08} : f32[]\n%28 = add %26, %27 : f32[l, e@dp, f]\n"
	      "%29 = div %24, %28 : f32[l, e@dp, f]\n%30 = mul %29, %7 : f32[l, e@dp, f]\n%31 = sub %0, %30 : f32[l, e@dp, f]\n"
	      "%32 = mul %1, %1 : f32[l, e@dp, f]\n%33 = sum %32 : f32[]+dp\n%34 = all_reduce %33 {axes=(dp)} : f32[]\n"
	      "%35 = sqrt %34 : f32[]\nreport %35 {key=\"grad_norm\"}\n"
	      "write %31 {buf=\"p\"}\nwrite %10 {buf=\"m\"}\nwrite %15 {buf=\"v\"}\n", 3);
}

/* -- random kernels -- */

struct rnd {
	uint64_t x;
};

static int below(struct rnd *r, int n)
{
	r->x = r->x * 6364136223846793005ull + 1442695040888963407ull;
	return (int)((r->x >> 33) % (uint64_t)n);
}

struct made {
	int id;
	char dims[8]; /* letters, in order */
};

static const char *dims_text(struct arena *mem, const char *dims, const char *on[128])
{
	struct text t = { .mem = mem };

	text_put(&t, "f32[");
	for (const char *c = dims; *c; c++)
		text_put(&t, "%s%c%s", c == dims ? "" : ", ", *c, on[(int)*c]);
	text_put(&t, "]");
	return t.s;
}

static void shuffle(struct rnd *r, char *s)
{
	for (int i = (int)strlen(s) - 1; i > 0; i--) {
		int j = below(r, i + 1);
		char c = s[i];

		s[i] = s[j];
		s[j] = c;
	}
}

/* MAPs, sums and rolls over tensors of dims a b c d in any order; sums over split dims are resolved. */
static void random_kernel(uint64_t seed)
{
	static const char *const ones[] = { "neg", "tanh", "sigmoid", "sin", "abs", "relu", "gelu" };
	static const char *const twos[] = { "add", "sub", "mul", "min", "max" };
	struct rnd r = { seed * 77 + 5 };
	struct arena *mem = arena_new();
	const char *on[128] = { 0 };
	bool split = below(&r, 2);
	struct made v[64];
	int n = 0;

	on['a'] = split ? "@p" : "";
	on['b'] = on['d'] = "";
	on['c'] = split ? "@q" : "";
	struct script s = script_new(mem, SAY(mem, "%sdim a=%d\ndim b=%d\ndim c=%d\ndim d=%d\n", split ? "mesh p=2\nmesh q=3\n" : "",
					      1 + below(&r, 6), 1 + below(&r, 4), 1 + below(&r, 40), 1 + below(&r, 5)), "", 0);
	for (; n < 3; n++) {
		strcpy(v[n].dims, n == 0 ? "abcd" : n == 1 ? "abc" : "cd");
		shuffle(&r, v[n].dims);
		v[n].dims[1 + below(&r, (int)strlen(v[n].dims))] = 0;
		const char *type = dims_text(mem, v[n].dims, on);

		text_put(&s.buffers, "buffer @\"x%d\" param %s init=normal(1)\n", n, type);
		v[n].id = say(&s, false, type, "read {buf=\"x%d\"}", n);
	}
	int ops = 4 + below(&r, 14);

	for (int i = 0; i < ops; i++) {
		struct made *a = &v[below(&r, n)], *b = &v[n - 1 - below(&r, n < 4 ? n : 4)], *c = &v[n];
		bool keep = below(&r, 3) == 0 || i == ops - 1;
		int what = below(&r, 10);

		strcpy(c->dims, b->dims);
		if (what < 3) {
			c->id = say(&s, keep, dims_text(mem, c->dims, on), "%s %%%d", ones[below(&r, LEN(ones))], b->id);
		} else if (what < 7 || !*b->dims) {
			for (const char *d = a->dims; *d; d++)
				if (!strchr(c->dims, *d))
					strncat(c->dims, d, 1);
			if (below(&r, 3) == 0)
				shuffle(&r, c->dims);
			c->id = say(&s, keep, dims_text(mem, c->dims, on), "%s %%%d, %%%d", twos[below(&r, LEN(twos))], a->id, b->id);
		} else if (what == 7 && strchr(b->dims, 'd') && below(&r, 3)) {
			bool slice = below(&r, 2);

			c->id = say(&s, keep, dims_text(mem, c->dims, on), below(&r, 2) ? "roll %%%d {dim=d, shift=%d}" :
				    slice ? "slice %%%d {dim=d, to=d, start=%d, stride=2}" : "pad %%%d {dim=d, to=d, start=%d, stride=2}",
				    b->id, below(&r, 5) - 2);
		} else if (what == 7 && strchr(b->dims, 'b') && strchr(b->dims, 'd')) {
			int i = say(&s, false, "int[d]", "index {dim=d}"), k = say(&s, false, "int[]", "const {value=%d}", below(&r, 4) - 1);
			int row = say(&s, false, "int[d]", below(&r, 2) ? "add %%%d, %%%d" : "sub %%%d, %%%d", i, k);
			bool back = below(&r, 2);

			if (!back)
				memmove(strchr(c->dims, 'b'), strchr(c->dims, 'b') + 1, strlen(strchr(c->dims, 'b')));
			c->id = say(&s, keep, dims_text(mem, c->dims, on), back ? "scatter_add %%%d, %%%d {dims=(b)}" : "lookup %%%d, %%%d {dims=(b)}",
				    b->id, row);
		} else if (what == 7 && below(&r, 2)) {
			struct text list = { .mem = mem };

			for (const char *d = b->dims; *d; d++)
				text_put(&list, "%s%c", d == b->dims ? "" : ", ", *d);
			int u = say(&s, false, dims_text(mem, c->dims, on), "rng {key=\"k%d\", dims=(%s)}", i, list.s);

			c->id = say(&s, keep, dims_text(mem, c->dims, on), "mul %%%d, %%%d", b->id, u);
		} else if (what == 7 && strchr(b->dims, 'd')) {
			c->id = say(&s, keep, dims_text(mem, c->dims, on), "roll %%%d {dim=d, shift=%d}", b->id, below(&r, 5) - 2);
		} else {
			char owed[16] = "", *to = c->dims;
			bool max = below(&r, 4) == 0;

			for (const char *d = b->dims; *d; d++)
				if (below(&r, 2))
					*to++ = *d;
				else if (*on[(int)*d])
					snprintf(owed + strlen(owed), 4, "%s%s", *owed ? "." : "", on[(int)*d] + 1);
			*to = 0;
			if (strlen(c->dims) == strlen(b->dims))
				c->dims[strlen(c->dims) - 1] = 0, strcpy(owed, *on[(int)b->dims[strlen(b->dims) - 1]] ? on[(int)b->dims[strlen(b->dims) - 1]] + 1 : "");
			const char *type = dims_text(mem, c->dims, on);
			if (!strcmp(owed, "q.p"))
				strcpy(owed, "p.q");
			c->id = say(&s, keep && !*owed, *owed ? SAY(mem, "%s%c%s", type, max ? '^' : '+', owed) : type, "%s %%%d", max ? "rmax" : "sum", b->id);
			if (*owed)
				c->id = say(&s, keep, type, "all_reduce %%%d {axes=(%s)%s}", c->id, owed, max ? ", max=1" : "");
		}
		n++;
	}
	check_script("micro=1", &s, -1, 1e-4);
	arena_free(mem);
}

static void test_fuzz(void **state)
{
	const char *n = getenv("FUZZ"), *from = getenv("FROM");
	uint64_t first = from ? (uint64_t)atoll(from) : 0;

	(void)state;
	for (uint64_t i = first; i < first + (uint64_t)(n ? atoll(n) : 20); i++) {
		if (n)
			fprintf(stderr, "seed %d\n", (int)i);
		random_kernel(i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_maps),
		cmocka_unit_test(test_maps2),
		cmocka_unit_test(test_reductions),
		cmocka_unit_test(test_layernorm),
		cmocka_unit_test(test_layernorm_backward),
		cmocka_unit_test(test_entropy),
		cmocka_unit_test(test_lookup),
		cmocka_unit_test(test_views),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_adamw),
		cmocka_unit_test(test_fuzz),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
