/* The collectives pass: what becomes one bucket and what must not, by small plans in partitioned form. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "tests/unit/both.h"

#define HEAD \
	"ptc-ir 1\nmodule \"t\" form=partitioned\nmesh dp=2\nmesh tp=2\naxis dp=2 of dp\naxis tp=2 of tp\n" \
	"hardware \"h\" fp32=1e12 bf16=1e12 memory=1e9 bandwidth=1e11 price=1 link=l:0:1e9:1e-05\n"
#define BUFFERS "dim x=6\ndim big=500000\n" \
	"buffer @\"a\" param f32[x]\nbuffer @\"b\" param f32[x]\nbuffer @\"s\" param f32[x@dp] compute=[x]\n" \
	"buffer @\"t\" param f32[x@dp] compute=[x]\nbuffer @\"big\" param f32[big]\n"
#define A "epilogue:\n%0 = read {buf=\"a\"} : f32[x]\n%1 = read {buf=\"b\"} : f32[x]\n"
#define PARTS(axes) "%2 = to_partial %0 {axes=(" axes ")} : f32[x]+" axes "\n%3 = to_partial %1 {axes=(" axes ")} : f32[x]+" axes "\n"
#define WRITES(x, y) "write " x " {buf=\"a\"}\nwrite " y " {buf=\"b\"}\n"

static struct module *bucketed(struct arena *mem, const char *text)
{
	struct diag d;
	const char *all = arena_printf(mem, "%s%s", HEAD, text);

	diag_init(&d, mem, NULL, stderr);
	struct module *m = module_parse(mem, "t", all, strlen(all), &d);
	if (!m || !verify(m, &d) || !run_pass_list(m, &d, "collectives", &(struct pass_options){ .verify = true }))
		fail_msg("%s", all);
	return m;
}

/* Operands of each collective, in order: "2 1 1". */
static const char *sizes(struct arena *mem, const struct block *b)
{
	struct text t = { .mem = mem };

	for (const struct op *op = b->first; op; op = op->next) {
		if (is_bucket(op->code))
			text_put(&t, "%s%u", t.n ? " " : "", op->nin);
		if (op->body)
			text_put(&t, " (%s)", sizes(mem, op->body));
	}
	return t.n ? t.s : "";
}

static void expect(const char *text, const char *want)
{
	struct arena *mem = arena_new();

	assert_string_equal(sizes(mem, &bucketed(mem, text)->top), want);
	arena_free(mem);
}

static void ready_together(void **state)
{
	(void)state;
	expect(BUFFERS A PARTS("dp") "%4 = all_reduce %2 {axes=(dp)} : f32[x]\n%5 = all_reduce %3 {axes=(dp)} : f32[x]\n"
	       WRITES("%4", "%5"), "2");
	/* a reader of the first may stand before the second; the second moves forward */
	expect(BUFFERS A PARTS("dp") "%4 = all_reduce %2 {axes=(dp)} : f32[x]\n%6 = neg %4 : f32[x]\n"
	       "%5 = all_reduce %3 {axes=(dp)} : f32[x]\n" WRITES("%6", "%5"), "2");
	/* a gather whose result is only written moves back, and the write with it */
	expect(BUFFERS "epilogue:\n%0 = read {buf=\"s\"} : f32[x@dp]\n%1 = neg %0 : f32[x@dp]\n"
	       "%2 = all_gather %1 {dim=x, axes=(dp)} : f32[x]\nwrite %2 {buf=\"a\"}\n%3 = exp %0 : f32[x@dp]\n"
	       "%4 = all_gather %3 {dim=x, axes=(dp)} : f32[x]\nwrite %4 {buf=\"b\"}\n", "2");
	/* gathers at the top of a body */
	expect("dim layers=3\n" BUFFERS "buffer @\"p\" param f32[layers, x@dp] compute=[layers, x]\nforward:\n"
	       "%0 = read {buf=\"a\"} : f32[x]\n%1 = read {buf=\"p\"} : f32[layers, x@dp]\n"
	       "%2 = repeat %0, %1, %1 {dim=layers, ncarry=1, nwith=0} : f32[x] {\n  args %3: f32[x], %4: f32[x@dp], %5: f32[x@dp]\n"
	       "  %6 = all_gather %4 {dim=x, axes=(dp)} : f32[x]\n  %7 = mul %3, %6 : f32[x]\n"
	       "  %8 = all_gather %5 {dim=x, axes=(dp)} : f32[x]\n  %9 = add %7, %8 : f32[x]\n  yield %9\n}\n", " (2)");
	/* what a bucket makes may be reduced again, together */
	expect(BUFFERS A "%2 = to_partial %0 {axes=(dp.tp)} : f32[x]+dp.tp\n%3 = to_partial %1 {axes=(dp.tp)} : f32[x]+dp.tp\n"
	       "%4 = all_reduce %2 {axes=(dp)} : f32[x]+tp\n%5 = all_reduce %4 {axes=(tp)} : f32[x]\n%6 = neg %5 : f32[x]\n"
	       "%7 = all_reduce %3 {axes=(dp)} : f32[x]+tp\n%8 = all_reduce %7 {axes=(tp)} : f32[x]\n" WRITES("%6", "%8"), "2 2");
}

static void apart(void **state)
{
	(void)state;
	/* the second needs the first */
	expect(BUFFERS A "%2 = to_partial %0 {axes=(dp)} : f32[x]+dp\n%4 = all_reduce %2 {axes=(dp)} : f32[x]\n%6 = neg %4 : f32[x]\n"
	       "%3 = to_partial %6 {axes=(dp)} : f32[x]+dp\n%5 = all_reduce %3 {axes=(dp)} : f32[x]\n" WRITES("%4", "%5"), "1 1");
	/* other axes, sum and maximum */
	expect(BUFFERS A "%2 = to_partial %0 {axes=(dp)} : f32[x]+dp\n%3 = to_partial %1 {axes=(tp)} : f32[x]+tp\n"
	       "%4 = all_reduce %2 {axes=(dp)} : f32[x]\n%5 = all_reduce %3 {axes=(tp)} : f32[x]\n" WRITES("%4", "%5"), "1 1");
	expect(BUFFERS A "%2 = to_partial %0 {axes=(dp)} : f32[x]+dp\n%3 = to_partial %1 {axes=(dp), max=1} : f32[x]^dp\n"
	       "%4 = all_reduce %2 {axes=(dp)} : f32[x]\n%5 = all_reduce %3 {axes=(dp), max=1} : f32[x]\n" WRITES("%4", "%5"), "1 1");
	/* 2 MB does not fit with anything where 25 latencies of 10 us at 1 GB/s are 250 kB */
	expect(BUFFERS A "%2 = to_partial %0 {axes=(dp)} : f32[x]+dp\n%4 = all_reduce %2 {axes=(dp)} : f32[x]\nwrite %4 {buf=\"a\"}\n"
	       "%3 = read {buf=\"big\"} : f32[big]\n%5 = to_partial %3 {axes=(dp)} : f32[big]+dp\n"
	       "%6 = all_reduce %5 {axes=(dp)} : f32[big]\nwrite %6 {buf=\"big\"}\n", "1 1");
	/* in two sections: once a microbatch, once a step */
	expect(BUFFERS "forward:\n%0 = read {buf=\"a\"} : f32[x]\n%1 = to_partial %0 {axes=(dp)} : f32[x]+dp\n"
	       "%2 = all_reduce %1 {axes=(dp)} : f32[x]\nepilogue:\n%3 = all_reduce %1 {axes=(dp)} : f32[x]\n" WRITES("%2", "%3"), "1 1");
	/* what an evaluation shows, and what it leaves out */
	expect(BUFFERS "forward:\n%0 = read {buf=\"a\"} : f32[x]\n%1 = sum %0 : f32[]\n%2 = to_partial %1 {axes=(dp)} : f32[]+dp\n"
	       "backward:\n%3 = exp %0 : f32[x]\n%4 = sum %3 : f32[]\n%5 = to_partial %4 {axes=(dp)} : f32[]+dp\n"
	       "epilogue:\n%6 = all_reduce %2 {axes=(dp)} : f32[]\nreport %6 {key=\"loss\"}\n"
	       "%7 = all_reduce %5 {axes=(dp)} : f32[]\nreport %7 {key=\"norm\"}\n", "1 1");
}

/* The members are named, with the reason of the first. */
static void says_why(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct module *m = bucketed(mem, BUFFERS A PARTS("dp")
		"%4 = all_reduce %2 {axes=(dp)} : f32[x] why=\"all_reduce of the gradient of a over dp: y needs its sum (f:1)\"\n"
		"%5 = all_reduce %3 {axes=(dp)} : f32[x] why=\"all_reduce of b over dp: z needs its sum (f:2)\"\n"
		"%6 = all_reduce %3 {axes=(dp)} : f32[x] why=\"all_reduce of c over dp: z needs its sum (f:3)\"\n" WRITES("%4", "%5"));
	int n;
	struct comm_row *row = comm_table(mem, m, &n);

	(void)state;
	assert_int_equal(n, 1);
	assert_true(row->count == 1 && row->bytes == 3 * 6 * 4);
	assert_string_equal(row->why, "all_reduce of the gradient of a, b and 1 more over dp: y needs its sum (f:1)");
	arena_free(mem);
}

/* As many as a large model has params: full buckets, in time that grows with their number. */
static void many(void **state)
{
	struct arena *mem = arena_new();
	struct text t = { .mem = mem };
	enum { N = 30000 };

	(void)state;
	text_put(&t, "%s", BUFFERS A "%2 = to_partial %0 {axes=(dp)} : f32[x]+dp\n");
	for (int i = 0; i < N; i++)
		text_put(&t, "%%%d = all_reduce %%2 {axes=(dp)} : f32[x]\n", i + 3);
	struct diag d;
	const char *all = arena_printf(mem, "%s%s", HEAD, t.s);
	diag_init(&d, mem, NULL, stderr);
	struct module *m = module_parse(mem, "t", all, strlen(all), &d);
	assert_non_null(m);
	size_t before = arena_bytes(mem);
	assert_true(pass_collectives(m, &d));
	printf("%d collectives: %.1f MB\n", N, (double)(arena_bytes(mem) - before) / 1e6);
	assert_true((double)(arena_bytes(mem) - before) < 40e6);
	int n = 0;
	for (const struct op *op = m->top.first; op; op = op->next)
		n += is_bucket(op->code);
	assert_int_equal(n, (N + MAX_BUCKET - 1) / MAX_BUCKET);
	arena_free(mem);
}

/* -- start and wait -- */

#define W "dim e=6\nbuffer @\"p\" param f32[x@dp, e] compute=[x, e]\nbuffer @\"q\" param f32[e, x]\n"
#define LOADS "epilogue:\n%0 = read {buf=\"p\"} : f32[x@dp, e]\n%1 = read {buf=\"q\"} : f32[e, x]\n"

/* The ops in order by their names, where a collective starts in capitals. */
static const char *order(struct arena *mem, const struct block *b)
{
	struct text t = { .mem = mem };

	for (const struct op *op = b->first; op; op = op->next) {
		const char *name = opinfo[op->code].name;

		if (op->code == OP_READ)
			continue;
		text_put(&t, "%s%s%s", t.n ? " " : "", HAS(op, async) ? "start:" : HAS(op, ahead) ? "ahead:" : "", name);
		if (op->body)
			text_put(&t, " (%s)", order(mem, op->body));
	}
	return t.n ? t.s : "";
}

/* Compute of a microsecond an einsum, or so; a collective takes 1 ns. */
static void after(const char *list, const char *text, const char *want)
{
	struct arena *mem = arena_new();
	struct diag d;
	const char *all = arena_printf(mem, "ptc-ir 1\nmodule \"t\" form=partitioned\nmesh dp=2\nmesh tp=2\naxis dp=2 of dp\naxis tp=2 of tp\n"
		"hardware \"h\" fp32=1e9 bf16=1e9 memory=1e9 bandwidth=1e11 price=1 link=l:0:1e12:1e-09\n%s", text);

	diag_init(&d, mem, NULL, stderr);
	struct module *m = module_parse(mem, "t", all, strlen(all), &d);
	if (!m || !verify(m, &d) || !run_pass_list(m, &d, list, &(struct pass_options){ .verify = true }))
		fail_msg("%s", all);
	assert_string_equal(order(mem, &m->top), want);
	arena_free(mem);
}

static void overlapped(const char *text, const char *want)
{
	after("overlap", text, want);
}

/* Work that a collective does not wait for, and that nothing before it reads, goes behind it; then it is hidden. */
static void delayed(void **state)
{
	(void)state;
	/* the gradients of weights, %3 and %4: one is enough */
	after("delay", "dim x=6\n" W LOADS "%3 = einsum %1, %1 : f32[e]\n%4 = einsum %1, %1 : f32[x]\n%2 = to_partial %1 {axes=(dp)} : f32[e, x]+dp\n"
	      "%5 = all_reduce %2 {axes=(dp)} : f32[e, x]\n%6 = einsum %5, %4 : f32[e]\n%7 = einsum %6, %3 : f32[]\n",
	      "einsum to_partial all_reduce einsum einsum einsum");
	/* then it is hidden; two collectives take one each */
	after("delay,overlap", "dim x=6\n" W LOADS "%3 = einsum %1, %1 : f32[e]\n%4 = einsum %1, %1 : f32[x]\n%2 = to_partial %1 {axes=(dp)} : f32[e, x]+dp\n"
	      "%5 = all_reduce %2 {axes=(dp)} : f32[e, x]\n%8 = to_partial %5 {axes=(tp)} : f32[e, x]+tp\n"
	      "%9 = all_reduce %8 {axes=(tp)} : f32[e, x]\n%6 = einsum %9, %4 : f32[e]\n%7 = einsum %6, %3 : f32[]\n",
	      "to_partial start:all_reduce einsum wait to_partial start:all_reduce einsum wait einsum einsum");
	/* what stands where it can be in flight stays */
	after("delay", "dim x=6\n" W LOADS "%3 = einsum %1, %1 : f32[e]\n%2 = to_partial %1 {axes=(dp)} : f32[e, x]+dp\n%4 = einsum %1, %1 : f32[x]\n"
	      "%5 = all_reduce %2 {axes=(dp)} : f32[e, x]\n%6 = einsum %5, %4 : f32[e]\n%7 = einsum %6, %3 : f32[]\n",
	      "einsum to_partial einsum all_reduce einsum einsum");
	/* not what it waits for, nor what is read on the way, nor over a write */
	after("delay,overlap", "dim x=6\n" W LOADS "%3 = einsum %1, %1 : f32[e]\n%4 = einsum %1, %3 : f32[x]\n"
	      "%2 = to_partial %4 {axes=(dp)} : f32[x]+dp\n%5 = all_reduce %2 {axes=(dp)} : f32[x]\n%6 = einsum %5, %1 : f32[e]\n",
	      "einsum einsum to_partial all_reduce einsum");
	after("delay", "dim x=6\n" W LOADS "%3 = einsum %1, %1 : f32[e]\n%2 = to_partial %1 {axes=(dp)} : f32[e, x]+dp\nwrite %1 {buf=\"q\"}\n"
	      "%5 = all_reduce %2 {axes=(dp)} : f32[e, x]\n%6 = einsum %5, %3 : f32[x]\n",
	      "einsum to_partial write all_reduce einsum");
}

static void started_early(void **state)
{
	(void)state;
	/* a gather starts no earlier than is enough, its first reader waits */
	overlapped("dim x=6\n" W LOADS "%2 = einsum %1, %1 : f32[e]\n%3 = einsum %1, %2 : f32[x]\n%4 = all_gather %0 {dim=x, axes=(dp)} : f32[x, e]\n"
		   "%5 = einsum %4, %3 : f32[e]\n%6 = einsum %4, %5 : f32[x]\n",
		   "einsum start:all_gather einsum wait einsum einsum");
	/* a reduction starts when its operand is there, and is waited for when that is enough */
	overlapped("dim x=6\n" W LOADS "%2 = to_partial %1 {axes=(dp)} : f32[e, x]+dp\n%3 = einsum %1, %1 : f32[e]\n"
		   "%4 = all_reduce %2 {axes=(dp)} : f32[e, x]\n%5 = einsum %1, %3 : f32[x]\n%6 = einsum %1, %5 : f32[e]\n"
		   "%7 = einsum %1, %6 : f32[x]\n%8 = einsum %4, %7 : f32[e]\n",
		   "to_partial start:all_reduce einsum wait einsum einsum einsum einsum");
	/* what is only written is waited for before the write, which stands back */
	overlapped("dim x=6\n" W LOADS "%2 = to_partial %1 {axes=(dp)} : f32[e, x]+dp\n%4 = all_reduce %2 {axes=(dp)} : f32[e, x]\n"
		   "write %4 {buf=\"q\"}\n%3 = einsum %1, %1 : f32[e]\n%5 = einsum %1, %3 : f32[x]\n",
		   "to_partial start:all_reduce einsum wait write einsum");
}

static void not_started_early(void **state)
{
	(void)state;
	/* nothing to hide behind */
	overlapped("dim x=6\n" W LOADS "%4 = all_gather %0 {dim=x, axes=(dp)} : f32[x, e]\n%5 = einsum %4, %1 : f32[x]\n", "all_gather einsum");
	/* not across a loop, nor a section */
	overlapped("dim x=6\ndim layers=3\n" W "epilogue:\n%0 = read {buf=\"p\"} : f32[x@dp, e]\n%1 = read {buf=\"q\"} : f32[e, x]\n"
		   "%2 = repeat %1 {dim=layers, ncarry=1, nwith=0} : f32[e, x] {\n  args %3: f32[e, x]\n  %4 = exp %3 : f32[e, x]\n  yield %4\n}\n"
		   "%5 = all_gather %0 {dim=x, axes=(dp)} : f32[x, e]\n%6 = einsum %5, %2 : f32[x]\n", "repeat (exp) all_gather einsum");
	overlapped("dim x=6\n" W "forward:\n%0 = read {buf=\"p\"} : f32[x@dp, e]\n%1 = read {buf=\"q\"} : f32[e, x]\n%2 = einsum %1, %1 : f32[x]\n"
		   "backward:\n%5 = all_gather %0 {dim=x, axes=(dp)} : f32[x, e]\n%6 = einsum %5, %2 : f32[e]\n", "einsum all_gather einsum");
}

#define LOOP(arg, rest, whole, compute, body) \
	"dim x=6\ndim e=6\ndim layers=3\nbuffer @\"p\" param f32[" whole "] compute=[" compute "]\nbuffer @\"q\" param f32[e]\n" \
	"forward:\n%0 = read {buf=\"q\"} : f32[e]\n%1 = read {buf=\"p\"} : f32[" whole "]\n" rest \
	"%2 = repeat %0, " arg " {dim=layers, ncarry=1, nwith=0} : f32[e] {\n  args %3: f32[e], %4: f32[x@dp, e]\n" body "  yield %8\n}\n"
#define GATHER "  %5 = all_gather %4 {dim=x, axes=(dp)} : f32[x, e]\n"

/* A gather of slices that nothing before it hides; of stored ones only. */
static void gathered_ahead(void **state)
{
	(void)state;
	overlapped(LOOP("%1", "", "layers, x@dp, e", "layers, x, e", GATHER "  %6 = einsum %5, %3 : f32[x]\n  %8 = einsum %5, %6 : f32[e]\n"),
		   "repeat (ahead:all_gather einsum einsum)");
	/* there is enough before it */
	overlapped(LOOP("%1", "", "layers, x@dp, e", "layers, x, e", "  %10 = einsum %3, %3 : f32[e]\n" GATHER
			"  %6 = einsum %5, %10 : f32[x]\n  %8 = einsum %5, %6 : f32[e]\n"),
		   "repeat (start:all_gather einsum wait einsum einsum)");
	/* computed in the loop, or outside of it; or no row */
	overlapped(LOOP("%1", "", "layers, x@dp, e", "layers, x, e", "  %11 = einsum %4, %3 : f32[x@dp]\n  %5 = all_gather %11 {dim=x, axes=(dp)} : f32[x]\n"
			"  %6 = einsum %5, %3 : f32[x, e]\n  %8 = einsum %5, %6 : f32[e]\n"), "repeat (einsum all_gather einsum einsum)");
	overlapped(LOOP("%12", "%12 = einsum %1, %0 : f32[layers, x@dp, e]\n", "layers, x@dp, e", "layers, x, e",
			GATHER "  %6 = einsum %5, %3 : f32[x]\n  %8 = einsum %5, %6 : f32[e]\n"), "einsum repeat (all_gather einsum einsum)");
	overlapped(LOOP("%1", "", "x@dp, layers, e", "x, layers, e", GATHER "  %6 = einsum %5, %3 : f32[x]\n  %8 = einsum %5, %6 : f32[e]\n"),
		   "repeat (all_gather einsum einsum)");
}

/* What is in flight, operands and results, is nobody else's memory. */
static bool apart_from(const struct module *m, const struct value *a, const struct value *b)
{
	return a->off < 0 || b->off < 0 || a->off + local_bytes(m, a) <= b->off || b->off + local_bytes(m, b) <= a->off;
}

static int check_flights(const struct module *m, const struct block *b)
{
	int n = 0;

	for (const struct op *op = b->first; op; op = op->next) {
		if (op->code == OP_REPEAT)
			n += check_flights(m, op->body);
		if (!HAS(op, async))
			continue;
		n++;
		for (const struct op *o = op->next; o->code != OP_WAIT || o->in[0]->def != op; o = o->next)
			for (uint32_t k = 0; k < o->nout; k++)
				for (uint32_t i = 0; i < op->nin && o->code != OP_WAIT; i++)
					assert_true(apart_from(m, o->out[k], op->in[i]) && apart_from(m, o->out[k], op->out[i]));
	}
	return n;
}

/* The two places of what is gathered ahead are nobody else's in that body. */
static int check_ahead(const struct module *m, const struct block *b)
{
	int n = 0;

	for (const struct op *op = b->first; op; op = op->next) {
		if (op->code == OP_REPEAT)
			n += check_ahead(m, op->body);
		n += HAS(op, ahead);
		for (const struct op *o = b->first; o && HAS(op, ahead); o = o->next)
			for (uint32_t k = 0; k < o->nout && o != op; k++)
				for (uint32_t i = 0; i < op->nout; i++) {
					struct value second = *op->out[i];

					second.off += (local_bytes(m, &second) + 63) / 64 * 64;
					assert_true(apart_from(m, o->out[k], op->out[i]) && apart_from(m, o->out[k], &second));
				}
	}
	return n;
}

static const char net[] =
	"hardware \"h\" fp32=1e6 bf16=1e6 memory=1e9 bandwidth=1e6 price=1 link=l:0:1e6:1e-09\n"
	"dim b=8\ndim e=6\ndim f=10\ndim layers=3\nbuffer @\"x\" input f32[b, e]\nbuffer @\"u\" param f32[layers, e, f] init=normal(0.5)\n"
	"buffer @\"v\" param f32[layers, f, e] init=normal(0.5)\nbuffer @\"w\" param f32[e, f] init=normal(1)\n"
	"forward:\n%0 = read {buf=\"x\"} : f32[b, e]\n%1 = read {buf=\"u\"} : f32[layers, e, f]\n%2 = read {buf=\"v\"} : f32[layers, f, e]\n"
	"%3 = repeat %0, %1, %2 {dim=layers, ncarry=1, nwith=0} : f32[b, e] \"y\" {\n  args %4: f32[b, e], %5: f32[e, f], %6: f32[f, e]\n"
	"  %7 = einsum %4, %5 : f32[b, f]\n  %8 = tanh %7 : f32[b, f]\n  %9 = einsum %8, %6 : f32[b, e]\n  %10 = add %4, %9 : f32[b, e]\n  yield %10\n}\n"
	"%11 = read {buf=\"w\"} : f32[e, f]\n%12 = einsum %3, %11 : f32[b, f]\n%13 = tanh %12 : f32[b, f]\n%14 = sum %13 : f32[]\nreport %14 {key=\"loss\"}\n"
	"%15 = const {value=0.1} : f32[]\n%16 = const {value=0} : f32[]\n"
	"minimize %14, %15, %16, %16 {buf=\"u\", opt=\"sgd\", group=0}\nminimize %14, %15, %16, %16 {buf=\"v\", opt=\"sgd\", group=0}\n"
	"minimize %14, %15, %16, %16 {buf=\"w\", opt=\"sgd\", group=0}\n";

static void in_flight(void **state)
{
	static const char *const arrows[] = { "arrow b -> dp\n", "arrow b -> dp\narrow f -> tp\narrow params -> dp\n",
					      "arrow b -> dp\narrow grads -> dp\n", "arrow b -> dp\narrow f -> tp\narrow optimizer -> dp\n" };
	struct arena *mem = arena_new();

	(void)state;
	for (size_t i = 0; i < 2 * LEN(arrows); i++) {
		const char *props = i & 1 ? "precision=f32 micro=2 batch=b" : "precision=f32 micro=1 batch=b";
		const char *text = both_on_mesh(mem, "mesh dp=2\nmesh tp=2\n", arrows[i / 2], net);
		struct both x = both_open(props, text);
		int n = check_flights(x.plan, &x.plan->top), ahead = check_ahead(x.plan, &x.plan->top);

		printf("%d in flight, %d ahead: %s", n, ahead, arrows[i / 2]);
		assert_true(n > 1 && (ahead > 1) == (i / 2 == 1));
		both_close(&x);
		both_run(props, text, 1e-4);
		setenv("PTC_TEST_EAGER", "1", 1);
		both_run(props, text, 1e-4);
		unsetenv("PTC_TEST_EAGER");
	}
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ready_together), cmocka_unit_test(apart), cmocka_unit_test(says_why), cmocka_unit_test(many),
		cmocka_unit_test(delayed), cmocka_unit_test(started_early), cmocka_unit_test(not_started_early), cmocka_unit_test(gathered_ahead), cmocka_unit_test(in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
