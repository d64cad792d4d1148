/* A table of known volumes: what the partitioner sends for GPT-2 with biases, wpe and a tied
 * head (36 params, 1952 elements; 2 layers, batch 4, seq 8, E 8, heads 4, ff 32, vocab 16), by axis, in
 * elements a rank. A collective in a loop counts once an iteration, one on a stacked gradient once a
 * layer, as comm_table does. Scalars are left out of the rows and counted beside them: the prototype of
 * the table neither showed a loss nor the number of valid labels, and had a norm in some rows only. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/text.h"
#include "passes/passes.h"

static const char model[] =
	"forward:\n"
	"%1 = read {buf=\"tokens\"} : int[batch, seq] \"tokens\"\n"
	"%2 = read {buf=\"wte\"} : f32[vocab, embed]\n"
	"%3 = read {buf=\"wpe\"} : f32[seq, embed]\n"
	"%4 = lookup %2, %1 {dims=(vocab)} : f32[batch, seq, embed]\n"
	"%5 = add %4, %3 : f32[batch, seq, embed] \"x\"\n"
	"%6 = read {buf=\"layers.n1.g\"} : f32[layers, embed]\n"
	"%7 = read {buf=\"layers.n1.b\"} : f32[layers, embed]\n"
	"%8 = read {buf=\"layers.wq\"} : f32[layers, embed, heads, head]\n"
	"%9 = read {buf=\"layers.wk\"} : f32[layers, embed, heads, head]\n"
	"%10 = read {buf=\"layers.wv\"} : f32[layers, embed, heads, head]\n"
	"%11 = read {buf=\"layers.wo\"} : f32[layers, heads, head, embed]\n"
	"%12 = read {buf=\"layers.bq\"} : f32[layers, heads, head]\n"
	"%13 = read {buf=\"layers.bk\"} : f32[layers, heads, head]\n"
	"%14 = read {buf=\"layers.bv\"} : f32[layers, heads, head]\n"
	"%15 = read {buf=\"layers.bo\"} : f32[layers, embed]\n"
	"%16 = read {buf=\"layers.n2.g\"} : f32[layers, embed]\n"
	"%17 = read {buf=\"layers.n2.b\"} : f32[layers, embed]\n"
	"%18 = read {buf=\"layers.wu\"} : f32[layers, embed, ff]\n"
	"%19 = read {buf=\"layers.bu\"} : f32[layers, ff]\n"
	"%20 = read {buf=\"layers.wd\"} : f32[layers, ff, embed]\n"
	"%21 = read {buf=\"layers.bd\"} : f32[layers, embed]\n"
	"%22 = repeat %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
	"%21 {dim=layers, ncarry=1, nwith=0} : f32[batch, seq, embed] \"x\" {\n"
	"  args %23: f32[batch, seq, embed] \"x\", %24: f32[embed], %25: f32[embed], %26: f32[embed, heads, "
	"head], %27: f32[embed, heads, head], %28: f32[embed, heads, head], %29: f32[heads, head, embed], "
	"%30: f32[heads, head], %31: f32[heads, head], %32: f32[heads, head], %33: f32[embed], "
	"%34: f32[embed], %35: f32[embed], %36: f32[embed, ff], %37: f32[ff], %38: f32[ff, embed], "
	"%39: f32[embed]\n"
	"  %40 = sum %23 : f32[batch, seq]\n"
	"  %41 = const {value=0.125} : f32[]\n"
	"  %42 = mul %40, %41 : f32[batch, seq]\n"
	"  %43 = sub %23, %42 : f32[batch, seq, embed]\n"
	"  %44 = mul %43, %43 : f32[batch, seq, embed]\n"
	"  %45 = sum %44 : f32[batch, seq]\n"
	"  %46 = mul %45, %41 : f32[batch, seq]\n"
	"  %47 = const {value=1e-05} : f32[]\n"
	"  %48 = add %46, %47 : f32[batch, seq]\n"
	"  %49 = rsqrt %48 : f32[batch, seq]\n"
	"  %50 = mul %43, %49 : f32[batch, seq, embed]\n"
	"  %51 = mul %50, %24 : f32[batch, seq, embed]\n"
	"  %52 = add %51, %25 : f32[batch, seq, embed] \"layers.h\"\n"
	"  %53 = einsum %52, %26 : f32[batch, seq, heads, head]\n"
	"  %54 = add %53, %30 : f32[batch, seq, heads, head] \"layers.q\"\n"
	"  %55 = rename %52 {dims=(seq), tos=(ctx)} : f32[batch, ctx, embed]\n"
	"  %56 = einsum %55, %27 : f32[batch, ctx, heads, head]\n"
	"  %57 = add %56, %31 : f32[batch, ctx, heads, head] \"layers.k\"\n"
	"  %58 = einsum %55, %28 : f32[batch, ctx, heads, head]\n"
	"  %59 = add %58, %32 : f32[batch, ctx, heads, head] \"layers.v\"\n"
	"  %60, %61 = attention %54, %57, %59 {dim=head, ctx=ctx, causal=seq, scale=0.7} : f32[batch, seq, "
	"heads, head], f32[batch, seq, heads]\n"
	"  %62 = einsum %60, %29 : f32[batch, seq, embed]\n"
	"  %63 = add %62, %33 : f32[batch, seq, embed]\n"
	"  %64 = add %23, %63 : f32[batch, seq, embed] \"x\"\n"
	"  %65 = sum %64 : f32[batch, seq]\n"
	"  %66 = const {value=0.125} : f32[]\n"
	"  %67 = mul %65, %66 : f32[batch, seq]\n"
	"  %68 = sub %64, %67 : f32[batch, seq, embed]\n"
	"  %69 = mul %68, %68 : f32[batch, seq, embed]\n"
	"  %70 = sum %69 : f32[batch, seq]\n"
	"  %71 = mul %70, %66 : f32[batch, seq]\n"
	"  %72 = const {value=1e-05} : f32[]\n"
	"  %73 = add %71, %72 : f32[batch, seq]\n"
	"  %74 = rsqrt %73 : f32[batch, seq]\n"
	"  %75 = mul %68, %74 : f32[batch, seq, embed]\n"
	"  %76 = mul %75, %34 : f32[batch, seq, embed]\n"
	"  %77 = add %76, %35 : f32[batch, seq, embed] \"layers.hm\"\n"
	"  %78 = einsum %77, %36 : f32[batch, seq, ff]\n"
	"  %79 = add %78, %37 : f32[batch, seq, ff]\n"
	"  %80 = gelu %79 {form=1} : f32[batch, seq, ff] \"layers.u\"\n"
	"  %81 = einsum %80, %38 : f32[batch, seq, embed]\n"
	"  %82 = add %81, %39 : f32[batch, seq, embed]\n"
	"  %83 = add %64, %82 : f32[batch, seq, embed] \"x\"\n"
	"  yield %83\n"
	"}\n"
	"%84 = read {buf=\"nf.g\"} : f32[embed]\n"
	"%85 = read {buf=\"nf.b\"} : f32[embed]\n"
	"%86 = sum %22 : f32[batch, seq]\n"
	"%87 = const {value=0.125} : f32[]\n"
	"%88 = mul %86, %87 : f32[batch, seq]\n"
	"%89 = sub %22, %88 : f32[batch, seq, embed]\n"
	"%90 = mul %89, %89 : f32[batch, seq, embed]\n"
	"%91 = sum %90 : f32[batch, seq]\n"
	"%92 = mul %91, %87 : f32[batch, seq]\n"
	"%93 = const {value=1e-05} : f32[]\n"
	"%94 = add %92, %93 : f32[batch, seq]\n"
	"%95 = rsqrt %94 : f32[batch, seq]\n"
	"%96 = mul %89, %95 : f32[batch, seq, embed]\n"
	"%97 = mul %96, %84 : f32[batch, seq, embed]\n"
	"%98 = add %97, %85 : f32[batch, seq, embed] \"xf\"\n"
	"%99 = einsum %98, %2 : f32[batch, seq, vocab] \"logits\"\n"
	"%100 = rmax %99 : f32[batch, seq]\n"
	"%101 = detach %100 : f32[batch, seq]\n"
	"%102 = sub %99, %101 : f32[batch, seq, vocab]\n"
	"%103 = exp %102 : f32[batch, seq, vocab]\n"
	"%104 = sum %103 : f32[batch, seq]\n"
	"%105 = log %104 : f32[batch, seq]\n"
	"%106 = add %105, %101 : f32[batch, seq]\n"
	"%107 = read {buf=\"targets\"} : int[batch, seq] \"targets\"\n"
	"%108 = index {dim=vocab} : int[vocab]\n"
	"%109 = eq %108, %107 : bool[batch, seq, vocab]\n"
	"%110 = const {value=0.0} : f32[]\n"
	"%111 = where %109, %99, %110 : f32[batch, seq, vocab]\n"
	"%112 = sum %111 : f32[batch, seq]\n"
	"%113 = sub %106, %112 : f32[batch, seq]\n"
	"%114 = const {value=-100.0} : int[]\n"
	"%115 = ne %107, %114 : bool[batch, seq]\n"
	"%116 = where %115, %113, %110 : f32[batch, seq]\n"
	"%117 = sum %116 : f32[]\n"
	"%118 = sum %115 : int[]\n"
	"%119 = const {value=1.0} : int[]\n"
	"%120 = max %118, %119 : int[]\n"
	"%121 = div %117, %120 : f32[] \"loss\"\n";

static const struct {
	const char *name, *dims;
} params[] = {
	{ "wte", "vocab, embed" }, { "wpe", "seq, embed" },
	{ "layers.n1.g", "layers, embed" }, { "layers.n1.b", "layers, embed" },
	{ "layers.wq", "layers, embed, heads, head" }, { "layers.wk", "layers, embed, heads, head" },
	{ "layers.wv", "layers, embed, heads, head" }, { "layers.wo", "layers, heads, head, embed" },
	{ "layers.bq", "layers, heads, head" }, { "layers.bk", "layers, heads, head" },
	{ "layers.bv", "layers, heads, head" }, { "layers.bo", "layers, embed" },
	{ "layers.n2.g", "layers, embed" }, { "layers.n2.b", "layers, embed" },
	{ "layers.wu", "layers, embed, ff" }, { "layers.bu", "layers, ff" },
	{ "layers.wd", "layers, ff, embed" }, { "layers.bd", "layers, embed" },
	{ "nf.g", "embed" }, { "nf.b", "embed" },
};

struct sizes {
	int batch, seq, vocab, embed, heads, head, ff;
	int node; /* ranks that share the inner of two links; 0: one link */
};
static const struct sizes small = { 4, 8, 16, 8, 4, 2, 32, 0 };
static const struct sizes odd = { 4, 8, 17, 8, 6, 2, 10, 0 };
static const struct sizes large = { 64, 4096, 131072, 4096, 32, 128, 16384, 0 };
/* 20000 params, all of which 16 divides. */
static const struct sizes nodes = { 16, 16, 16, 16, 16, 8, 32, 8 };
static const struct sizes large_nodes = { 64, 4096, 131072, 4096, 32, 128, 16384, 8 };

/* The text of the model on a mesh, "dp=2 tp=2", with arrows, "batch -> dp; heads, ff -> tp". */
static char *text_of(struct arena *mem, const struct sizes *z, const char *mesh, const char *arrows)
{
	struct text t = { .mem = mem };

	text_put(&t, "ptc-ir 1\nmodule \"gpt2\" form=logical precision=f32 micro=1 batch=batch workspace=0\n");
	for (const char *s = mesh; *s; s += strcspn(s, " "), s += *s == ' ')
		text_put(&t, "mesh %.*s\n", (int)strcspn(s, " "), s);
	text_put(&t, "hardware \"h100\" fp32=6e14 bf16=6e14 memory=8e10 bandwidth=3.35e12 "
		     "link=nv:%d:450000000000:1e-05%s\n", z->node, z->node ? " link=net:0:50000000000:2e-05" : "");
	text_put(&t, "dim batch=%d\ndim seq=%d\ndim ctx=%d\ndim vocab=%d\ndim embed=%d\ndim heads=%d\ndim head=%d\n"
		     "dim ff=%d\ndim layers=2\n", z->batch, z->seq, z->seq, z->vocab, z->embed, z->heads, z->head, z->ff);
	text_put(&t, "buffer @\"tokens\" input int[batch, seq] tokens=%d\n", z->vocab);
	text_put(&t, "buffer @\"targets\" input int[batch, seq] tokens=%d next=\"tokens\":1\n", z->vocab);
	for (size_t i = 0; i < LEN(params); i++)
		text_put(&t, "buffer @\"%s\" param f32[%s] init=normal(0.3)\n", params[i].name, params[i].dims);
	for (const char *s = arrows; *s; s += strcspn(s, ";"), s += *s == ';')
		text_put(&t, "arrow %.*s\n", (int)strcspn(s, ";"), s);
	text_put(&t, "%s%%900 = const {value=0.01} : f32[]\n%%901 = const {value=0} : f32[]\n", model);
	text_put(&t, "report %%121 {key=\"loss\"}\n");
	for (size_t i = 0; i < LEN(params); i++)
		text_put(&t, "minimize %%121, %%900, %%901, %%901 {buf=\"%s\", opt=\"sgd\", group=0}\n", params[i].name);
	return t.s;
}

static struct module *compile(struct arena *mem, const char *text, bool whole)
{
	struct pass_options opt = { .stop_after = whole ? "optimizer" : "partition", .verify = true };
	struct diag d;

	diag_init(&d, mem, NULL, stdout);
	struct module *m = module_parse(mem, "gpt2", text, strlen(text), &d);
	assert_non_null(m);
	assert_true(run_passes(m, &d, &opt));
	return m;
}

/* -- what is counted -- */

struct sent {
	double all, scalars;       /* elements a rank a step; scalars are not in `all` */
	int count, nscalar;
	const char *by;            /* by op and axis: "all_reduce dp 2928" */
};

struct row {
	enum opcode op;
	const char *name;
	uint32_t axes;
	double elements;
};

static void add(struct row *rows, int *n, const struct module *m, const struct op *op)
{
	uint32_t axes = 0;
	int i = 0;

	for (int k = 0; k < op->at.axes.n; k++)
		axes |= 1u << op->at.axes.a[k];
	while (i < *n && (rows[i].op != op->code || rows[i].axes != axes))
		i++;
	if (i == *n)
		rows[(*n)++] = (struct row){ op->code, comm_name(op), axes, 0 };
	rows[i].elements += comm_elements(m, op) * op_times(m, op);
}

static void walk(struct sent *s, struct row *rows, int *n, const struct module *m, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next) {
		if (op->body)
			walk(s, rows, n, m, op->body);
		if (comm_elements(m, op) == 0)
			continue;
		if (op->in[0]->nd) {
			add(rows, n, m, op);
			continue;
		}
		s->scalars += comm_elements(m, op) * op_times(m, op);
		s->nscalar += (int)op_times(m, op);
	}
}

static struct sent count(struct arena *mem, const struct module *m)
{
	static const enum opcode order[] = { OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER, OP_ALL_TO_ALL,
					     OP_ATTENTION, OP_ATTENTION_GRAD };
	struct sent s = { 0 };
	struct row rows[64];
	struct text t = { .mem = mem };
	int n = 0, nrow;
	struct comm_row *table = comm_table(mem, m, &nrow);

	walk(&s, rows, &n, m, &m->top);
	for (uint32_t axes = 0; axes < 1u << m->axes.n; axes++)
		for (size_t o = 0; o < LEN(order); o++)
			for (int i = 0; i < n; i++)
				if (rows[i].op == order[o] && rows[i].axes == axes)
					text_put(&t, "%s%s %s %g", t.n ? ", " : "", rows[i].name,
						 axes_user_text(mem, m, axes), rows[i].elements);
	for (int i = 0; i < nrow; i++) {
		s.all += table[i].elements;
		s.count += (int)table[i].count;
	}
	s.all -= s.scalars;
	s.count -= s.nscalar;
	s.by = t.n ? t.s : "nothing";
	return s;
}

/* -- the right loss -- */

static double loss_of(struct arena *mem, const struct module *m, double *norm)
{
	struct eval *e = eval_new(mem, m, 7);
	const char *why = NULL;

	eval_init(e);
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		struct tensor *x;

		if (b->role != B_INPUT)
			continue;
		x = tensor_like(mem, m, b->nd, b->d);
		for (int64_t j = 0; j < x->count; j++)
			x->x[j] = (double)((j * 7 + 3) % b->tokens);
		eval_set(e, b->name, x);
	}
	if (!eval_step(e, 0, true, NULL, &why))
		fail_msg("%s", why);
	*norm = eval_report(e, "grad_norm", NULL);
	return eval_report(e, "loss", NULL);
}

/* -- the table -- */

static const struct {
	const char *name, *mesh, *arrows;
	double all;           /* without scalars */
	int count;
	double scalars;
	const char *by;
} table[] = {
#define TP "heads, ff, vocab -> tp"
#define DP "batch -> dp"
	{ "a dp4", "dp=4", DP, 2928, 36, 3, "all_reduce dp 2928" },
	{ "a dp2", "dp=2", DP, 1952, 36, 2, "all_reduce dp 1952" },
	/* 10 x 384, and twice [batch, seq] for the cross entropy */
	{ "b tp4", "tp=4", TP, 3840 + 96, 12, 3, "all_reduce tp 3936" },
	/* the same 3840 in halves; norm gradients and, with hints, 4 bias gradients over tp */
	{ "c sp4", "tp=4", TP ";seq -> tp", 3840 + 96 + 168, 36, 4.5,
	  "all_reduce tp 264, reduce_scatter tp 1920, all_gather tp 1920" },
	{ "d z1 dp4", "dp=4", DP ";optimizer -> dp", 2928, 72, 4.5, "reduce_scatter dp 1464, all_gather dp 1464" },
	{ "d z2 dp4", "dp=4", DP ";grads -> dp;optimizer -> dp", 2928, 72, 4.5,
	  "reduce_scatter dp 1464, all_gather dp 1464" },
	/* backward gathers what it reads only, and finds the head as forward left it: under 3 x 1464 */
	{ "d z3 dp4", "dp=4", DP ";params -> dp", 1464 + 1464 + 1176, 88, 4.5,
	  "reduce_scatter dp 1464, all_gather dp 2640" },
	{ "d z1 dp2 tp2", "dp=2 tp=2", DP ";" TP ";optimizer -> dp", 2376, 84, 4,
	  "reduce_scatter dp 532, all_gather dp 532, all_reduce tp 1312" },
	/* scattered over the inner axis, then reduced over the outer one on half of it */
	{ "d z3 HSDP 2x2", "do=2 di=2", "batch -> do.di;params -> di", 976 + 976 + 1760, 124, 4,
	  "all_reduce do 976, reduce_scatter di 976, all_gather di 1760" },
	/* 2 x 192 a layer forward and backward; the gradient of wpe is split, the others are summed */
	{ "e seq->cp 4", "cp=4", "seq -> cp", 4368, 43, 4.5,
	  "all_reduce cp 2832, reduce_scatter cp 768, all_gather cp 768" },
	/* forward the bytes of the gathers; backward keys and values go round again, their gradients with them */
	{ "e seq,ctx->cp 4", "cp=4", "seq -> cp;ctx -> cp", 2832 + 768 + 1536, 39, 4.5,
	  "all_reduce cp 2832, ring cp 768, ring cp 1536" },
	/* a layer: 2 x 3/4 of a maximum and a sum [b, h, s] and of o; the sum of dq, 384; x's gradient through k and
	 * v gathered, 192; the gradients of wk and wv summed, 192, and of their biases, 24 */
	{ "e ctx->cp 4", "cp=4", "ctx -> cp", 1536 + 768 + 384 + 432, 14, 0,
	  "all_reduce cp 1200, all_gather cp 384, combine cp 1536" },
	/* 4 x 48 a layer forward and backward */
	/* 4 x 48 a layer forward and backward; the gradients of q, k and v's biases are split by heads */
	{ "e Ulysses 4", "cp=4", "seq -> cp;\"q\": heads -> cp;\"k\": heads -> cp;\"v\": heads -> cp",
	  768 + 2832 - 36, 51, 4.5,
	  "all_reduce cp 2760, all_gather cp 36, all_to_all cp 768" },
	{ "j dp2 cp2 tp2 sp", "dp=2 cp=2 tp=2", DP ";" TP ";seq -> cp.tp", 2456, 66, 5,
	  "all_reduce dp 16, reduce_scatter cp 128, all_gather cp 128, all_reduce dp.cp 1332, all_reduce tp 16, "
	  "reduce_scatter tp 320, all_gather tp 320, all_reduce dp.cp.tp 196" },
	{ "j z1", "dp=2 cp=2 tp=2", DP ";" TP ";seq -> cp.tp;optimizer -> dp", 2456, 137, 5.25,
	  "reduce_scatter dp 508, all_gather dp 508, all_reduce cp 444, reduce_scatter cp 128, all_gather cp 128, "
	  "all_reduce tp 16, reduce_scatter tp 320, all_gather tp 320, all_reduce cp.tp 84" },
	{ "j z3", "dp=2 cp=2 tp=2", DP ";" TP ";seq -> cp.tp;params -> dp", 2856, 153, 5.25,
	  "reduce_scatter dp 508, all_gather dp 908, all_reduce cp 444, reduce_scatter cp 128, all_gather cp 128, "
	  "all_reduce tp 16, reduce_scatter tp 320, all_gather tp 320, all_reduce cp.tp 84" },
	/* A rank has 572 params, 460 of them its own part by tp. 112 gradients are reduced over tp once they are
	 * halved over dp: ten of norms, and four of biases, which are added after the reduce-scatter, on a quarter of
	 * what is before it. (Without hints these four were not: 24 fewer sent, four times the work.) */
	{ "j dp2 tp4 sp z1", "dp=2 tp=4", DP ";" TP ";seq -> tp;optimizer -> dp", 1920 + 48 + 572 + 84, 108, 5.25,
	  "reduce_scatter dp 286, all_gather dp 286, all_reduce tp 132, reduce_scatter tp 960, all_gather tp 960" },
	/* and backward gathers 456 - 32 - 8 of them a second time: the head and the last norm are still there */
	{ "j dp2 tp4 sp z3", "dp=2 tp=4", DP ";" TP ";seq -> tp;params -> dp", 1920 + 48 + 572 + 84 + 208, 124, 5.25,
	  "reduce_scatter dp 286, all_gather dp 494, all_reduce tp 132, reduce_scatter tp 960, all_gather tp 960" },
	{ "h vocab 17, heads 6, ff 10", "tp=4", TP, 3840 + 96, 12, 3, "all_reduce tp 3936" },
	/* on nodes of 8. An all_reduce of 20000: 7/8 in, twice half of an eighth out, 7/8 in */
	{ "l dp16", "dp=16", DP, 2 * 17500 + 2500, 108, 3.75,
	  "all_reduce dp 2500, reduce_scatter dp 17500, all_gather dp 17500" },
	{ "l z1 dp16", "dp=16", DP ";optimizer -> dp", 2 * (17500 + 1250), 144, 5.625,
	  "reduce_scatter dp 1250, all_gather dp 1250, reduce_scatter dp 17500, all_gather dp 17500" },
	{ "l z2 dp16", "dp=16", DP ";grads -> dp", 2 * (17500 + 1250), 144, 5.625,
	  "reduce_scatter dp 1250, all_gather dp 1250, reduce_scatter dp 17500, all_gather dp 17500" },
	/* backward gathers 16184 of them again */
	{ "l z3 dp16", "dp=16", DP ";params -> dp", 54840, 176, 5.625,
	  "reduce_scatter dp 1250, all_gather dp 2406, reduce_scatter dp 17500, all_gather dp 33684" },
	/* whichever is named first */
	{ "l z1 do.di", "do=2 di=8", "batch -> do.di;optimizer -> do.di", 2 * (17500 + 1250), 144, 5.625,
	  "reduce_scatter do 1250, all_gather do 1250, reduce_scatter di 17500, all_gather di 17500" },
	{ "l z1 di.do", "do=2 di=8", "batch -> do.di;optimizer -> di.do", 2 * (17500 + 1250), 144, 5.625,
	  "reduce_scatter do 1250, all_gather do 1250, reduce_scatter di 17500, all_gather di 17500" },
	{ "l z3 HSDP inside", "do=2 di=8", "batch -> do.di;params -> di", 53684, 124, 5.5,
	  "all_reduce do 2500, reduce_scatter di 17500, all_gather di 33684" },
	{ "l z3 HSDP outside", "do=2 di=8", "batch -> do.di;params -> do", 46892, 160, 4.75,
	  "all_reduce do 36, reduce_scatter do 1232, all_gather do 19248, reduce_scatter di 17500, all_gather di 8876" },
	/* dp: two of each tp group on a node, on two nodes */
	{ "l z1 dp4 tp4", "dp=4 tp=4", DP ";" TP ";optimizer -> dp", 23592, 156, 5.25,
	  "reduce_scatter dp 1340, all_gather dp 1340, reduce_scatter dp 2680, all_gather dp 2680, all_reduce tp 15552" },
};

static const struct sizes *sizes_of(const char *name)
{
	return name[0] == 'h' ? &odd : name[0] == 'l' ? &nodes : &small;
}

static void rows(void **state)
{
	bool good = true;

	(void)state;
	printf("%-26s %9s %9s %6s %6s  scalars  by axis\n", "case", "expected", "measured", "number", "");
	for (size_t i = 0; i < LEN(table); i++) {
		struct arena *mem = arena_new();
		const char *text = text_of(mem, sizes_of(table[i].name), table[i].mesh, table[i].arrows);
		struct module *m = compile(mem, text, false), *one = compile(mem, text, true);
		struct sent s = count(mem, m);
		double norm, want_norm, loss = loss_of(mem, m, &norm), want = loss_of(mem, one, &want_norm);
		bool right = s.all == table[i].all && s.count == table[i].count && s.scalars == table[i].scalars &&
			     streq(s.by, table[i].by);

		printf("%-26s %9g %9g %6d %6d  %g  %s%s\n", table[i].name, table[i].all, s.all, table[i].count, s.count,
		       s.scalars, s.by, right ? "" : "  WRONG");
		good &= right;
		assert_true(fabs(loss - want) <= 1e-12 * want && fabs(norm - want_norm) <= 1e-12 * want_norm);
		arena_free(mem);
	}
	assert_true(good);
}

/* With gather = step what is gathered doesn't grow with microbatches, and backward gathers nothing. */
static void gathered_once_a_step(void **state)
{
	static const struct {
		int micro;
		const char *arrows, *by;
	} cases[] = {
		{ 1, DP ";params -> dp", "reduce_scatter dp 1464, all_gather dp 2640" },
		{ 1, DP ";params -> dp gather_step", "reduce_scatter dp 1464, all_gather dp 1464" },
		{ 4, DP ";params -> dp", "reduce_scatter dp 5856, all_gather dp 10560" },
		{ 4, DP ";params -> dp gather_step", "reduce_scatter dp 5856, all_gather dp 1464" },
	};
	struct sizes z = small;

	(void)state;
	z.batch = 16;
	for (size_t i = 0; i < LEN(cases); i++) {
		struct arena *mem = arena_new();
		char *text = text_of(mem, &z, "dp=4", cases[i].arrows), *micro = strstr(text, "micro=1");
		double norm, want_norm;
		struct module *one = compile(mem, text, true);

		micro[strlen("micro=")] = (char)('0' + cases[i].micro);
		struct module *m = compile(mem, text, false);
		double loss = loss_of(mem, m, &norm), want = loss_of(mem, one, &want_norm);

		assert_string_equal(count(mem, m).by, cases[i].by);
		assert_true(fabs(loss - want) <= 1e-12 * want && fabs(norm - want_norm) <= 1e-12 * want_norm);
		for (const struct op *op = m->top.first; op; op = op->next)
			if (op->code == OP_ALL_GATHER && strstr(cases[i].arrows, "gather_step"))
				assert_int_equal(op->phase, PROLOGUE);
		arena_free(mem);
	}
}

static void parameters(void **state)
{
	struct arena *mem = arena_new();
	struct module *m = compile(mem, text_of(mem, &small, "dp=1", ""), false);
	int64_t elements = 0;
	int n = 0;

	(void)state;
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		int64_t count = 1, layers = 1;

		if (b->role != B_PARAM)
			continue;
		for (int k = 0; k < b->nd; k++) {
			count *= dim_size(m, b->d[k]);
			if (streq(m->dims.at[b->d[k]].name, "layers"))
				layers = dim_size(m, b->d[k]);
		}
		elements += count;
		n += (int)layers;
	}
	assert_int_equal(n, 36);
	assert_int_equal(elements, 1952);
	assert_string_equal(count(mem, m).by, "nothing");
	arena_free(mem);
}

/* -- decisions do not depend on sizes -- */

/* The collectives and what they are for, in order, without numbers. */
static const char *decisions(struct arena *mem, const struct sizes *z, const char *mesh, const char *arrows)
{
	struct module *m = compile(mem, text_of(mem, z, mesh, arrows), false);
	struct text t = { .mem = mem };
	int n;
	struct comm_row *rows_of = comm_table(mem, m, &n);

	for (int i = 0; i < n; i++)
		text_put(&t, "%s %s %g %s\n", rows_of[i].name, rows_of[i].axis, rows_of[i].count, rows_of[i].why);
	return t.n ? t.s : "";
}

static void sizes_do_not_matter(void **state)
{
	struct sizes many = large;

	(void)state;
	many.heads = small.heads; /* where a param is cut goes by what divides */
	many.head = large.embed / many.heads;
	for (size_t i = 0; i < LEN(table); i++) {
		struct arena *mem = arena_new();

		print_message("%s\n", table[i].name);
		const struct sizes *z = sizes_of(table[i].name);

		assert_string_equal(decisions(mem, z->node ? z : &small, table[i].mesh, table[i].arrows),
				    decisions(mem, z->node ? &large_nodes : &many, table[i].mesh, table[i].arrows));
		arena_free(mem);
	}
}

/* -- work -- */

/* The gradient of a table that is split by rows is added up by rows. */
static void scatter_is_split(void **state)
{
	struct arena *mem = arena_new();
	struct module *m = compile(mem, text_of(mem, &small, "tp=4", TP), false);
	int n = 0;

	(void)state;
	for (const struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_SCATTER) {
			assert_int_equal(op->out[0]->sh.on[dim_pos(op->out[0], find_dim(m, "vocab"))].n, 1);
			n++;
		}
	assert_int_equal(n, 1);
	arena_free(mem);
}

/* Choices multiply with axes; what is tried must not. Counted in bytes, which all tries take. */
static void many_axes(void **state)
{
	static const char *const mesh[] = {
		"a=8 cp=8 tp=8", "a=8 b=8 cp=8 tp=8", "a=8 b=8 cp=8 tp=24 e=5", "a=8 b=8 cp=8 tp=24 e=5 f=7",
	};
	static const char *const arrows[] = {
		"batch -> a;seq -> cp.tp;" TP ";optimizer -> a", "batch -> a.b;seq -> cp.tp;" TP ";params -> b",
		"batch -> a.b;seq -> cp.tp;" TP ";params -> b;embed, head -> e",
		"batch, seq -> a.b.f;seq -> cp.tp;heads, ff, vocab -> tp.f;params -> b;embed, head -> e",
	};

	(void)state;
	for (size_t i = 0; i < LEN(mesh); i++) {
		struct arena *mem = arena_new();
		const char *text = text_of(mem, &large, mesh[i], arrows[i]);

		compile(mem, text, false);
		printf("%s: %.1f MB\n", mesh[i], (double)arena_bytes(mem) / 1e6);
		assert_true(arena_bytes(mem) < 400e6);
		arena_free(mem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters),
		cmocka_unit_test(rows),
		cmocka_unit_test(gathered_once_a_step),
		cmocka_unit_test(sizes_do_not_matter),
		cmocka_unit_test(scatter_is_split),
		cmocka_unit_test(many_axes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
