/* The verifier: every rule is kept by some small text and broken by another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ir/text.h"

#define DIMS \
	"dim batch=8\ndim seq=4\ndim ctx=4\ndim embed=6\ndim heads=4\ndim head=2\ndim vhead=3\ndim vocab=10\n" \
	"dim layers=3\ndim flat=8\ndim win=2\n" \
	"buffer @\"x\" input int[batch, seq] tokens=10\n" \
	"buffer @\"w\" param f32[vocab@tp, embed]\n" \
	"buffer @\"ws\" param f32[layers, embed]\n"
#define LOGIC "ptc-ir 1\nmodule\nmesh dp=2\nmesh tp=2\n" DIMS
#define PART "ptc-ir 1\nmodule form=partitioned micro=2\nmesh dp=2\nmesh tp=2\naxis dp=2 of dp\naxis tp=2 of tp\naxis mb=2 time\n" DIMS
#define X "forward:\n%0 = const {value=1} : f32[batch, seq, embed]\n"
#define V(id, type) "%" #id " = const {value=1} : " type "\n"
#define P(id, type, axes) "%9" #id " = const {value=1} : " type "\n%" #id " = to_partial %9" #id " {axes=(" axes ")} : " type "+" axes "\n"

static bool check(struct arena *mem, const char *head, const char *text, const char **log)
{
	struct diag d;
	char *s = arena_printf(mem, "%s%s", head, text);

	diag_init(&d, mem, NULL, NULL);
	struct module *m = module_parse(mem, "in.pir", s, strlen(s), &d);
	if (!m)
		fail_msg("%s", d.log.s);
	bool ok = verify(m, &d);
	*log = d.log.s ? d.log.s : "";
	assert_true(ok == (d.errors == 0));
	return ok;
}

static void good_in(const char *head, const char *text)
{
	struct arena *mem = arena_new();
	const char *log;

	if (!check(mem, head, text, &log))
		fail_msg("%s in:\n%s", log, text);
	arena_free(mem);
}

static void wrong_in(const char *head, const char *text, const char *why)
{
	struct arena *mem = arena_new();
	const char *log;

	if (check(mem, head, text, &log))
		fail_msg("'%s' expected in:\n%s", why, text);
	if (!strstr(log, why))
		fail_msg("'%s' expected, not: %s", why, log);
	arena_free(mem);
}

#define good(text) good_in(LOGIC, text)
#define wrong(text, why) wrong_in(LOGIC, text, why)
#define part(text) good_in(PART, "forward:\n" text)
#define unpart(text, why) wrong_in(PART, "forward:\n" text, why)

static void tables(void **state)
{
	(void)state;
	good_in("ptc-ir 1\nmodule\n", "");
	wrong_in("ptc-ir 1\nmodule\nmesh a=4\naxis b=2 of a\n", "", "the parts of axis 'a' make 2, not 4");
	good_in("ptc-ir 1\nmodule\nmesh a=4\naxis b=2 of a\naxis c=2 of a\n", "");
	wrong_in("ptc-ir 1\nmodule micro=4\naxis b=2 time\n", "", "the time axis is not one of 4");
	wrong_in("ptc-ir 1\nmodule form=partitioned micro=4\n", "", "without a time axis");
	wrong_in("ptc-ir 1\nmodule\nbuffer @\"x\" input int[] next=\"y\":1\n", "", "follows 'y'");
	wrong_in("ptc-ir 1\nmodule\nbuffer @\"x\" input int[] next=\"x\":1\n", "", "follows 'x', which is no input of its dims with data of its own");
	wrong_in("ptc-ir 1\nmodule\nbuffer @\"x\" input int[] next=\"y\":1\nbuffer @\"y\" state int[] init=zeros\n", "", "follows 'y', which");
	wrong_in("ptc-ir 1\nmodule\ndim a=2\nbuffer @\"x\" input int[] next=\"y\":1\nbuffer @\"y\" input int[a]\n", "", "follows 'y', which");
	wrong_in("ptc-ir 1\nmodule\nbuffer @\"x\" opt int[] owner=\"y\"\n", "", "belongs to 'y'");
	wrong_in("ptc-ir 1\nmodule form=placed\nmesh a=2\ndim d=2\nbuffer @\"x\" opt int[d@a.a]\n", "", "axis 'a' twice");
	wrong_in("ptc-ir 1\nmodule form=placed\nmesh a=2\ndim d=2\nbuffer @\"x\" opt int[d]+a\n", "", "pending");
}

static void leaves(void **state)
{
	(void)state;
	good("forward:\n%0 = read {buf=\"x\"} : int[seq, batch]\n%1 = index {dim=seq} : int[seq]\n%2 = step : int[]\n"
	     "%3 = rng {key=\"k\", dims=(seq)} : f32[seq]\n");
	wrong("forward:\n%0 = read {buf=\"q\"} : int[seq]\n", "there is no buffer 'q'");
	wrong("forward:\n%0 = read {buf=\"x\"} : int[seq]\n", "other dims");
	wrong("forward:\n%0 = read {buf=\"x\"} : f32[batch, seq]\n", "is f32, buffer 'x' is int");
	wrong("forward:\n%0 = read : int[seq]\n", "it lacks {buf}");
	wrong("forward:\n%0 = const : f32[]\n", "it lacks {value}");
	wrong("forward:\n%0 = index {dim=seq} : int[batch]\n", "does not have the dims [seq]");
	wrong("forward:\n%0 = index {dim=-} : int[batch]\n", "names no dim");
	wrong("forward:\n%0 = index {dim=seq} : f32[seq]\n", "is f32, not int");
	wrong("forward:\n%0 = iter {dim=seq} : int[]\n", "in no repeat");
	wrong("forward:\n%0 = step : int[seq]\n", "not a scalar");
	wrong("forward:\n%0 = rng {key=\"k\", dims=(seq, seq)} : f32[seq]\n", "twice");
}

static void maps_and_sums(void **state)
{
	(void)state;
	good(X "%1 = add %0, %0 : f32[seq, batch, embed]\n%2 = sum %1 : f32[]\n%3 = add %2, %1 : f32[batch, seq, embed]\n"
	     "%4 = lt %1, %3 : bool[batch, seq, embed]\n%5 = where %4, %2, %1 : f32[batch, seq, embed]\n"
	     "%6 = einsum %1, %3 : f32[seq]\n");
	wrong(X "%1 = add %0, %0 : f32[batch, embed]\n", "does not have the dims [batch, seq, embed]");
	wrong(X "%1 = sum %0 : f32[batch, head]\n", "a dim that no operand has");
	wrong(X "%1 = einsum %0, %0 : f32[batch, head]\n", "a dim that no operand has");
	wrong(X "%1 = lt %0, %0 : f32[batch, seq, embed]\n", "a test is f32");
	wrong(X "%1 = add %0, %0 : int[batch, seq, embed]\n", "a float becomes int");
	wrong("forward:\n%0 = step : int[]\n%1 = exp %0 : int[]\n", "not a float");
}

static void indexed(void **state)
{
	(void)state;
#define IN "forward:\n%0 = read {buf=\"w\"} : f32[vocab, embed]\n%1 = read {buf=\"x\"} : int[batch, seq]\n"
	good(IN "%2 = lookup %0, %1 {dims=(vocab)} : f32[batch, seq, embed]\n"
	     "%3 = scatter_add %2, %1 {dims=(vocab)} : f32[vocab, embed]\n");
	wrong(IN "%2 = lookup %0, %1 {dims=(vocab)} : f32[batch, seq]\n", "does not have the dims");
	wrong(IN "%2 = lookup %0, %1 {dims=(head)} : f32[batch, seq]\n", "the table lacks dim 'head'");
	wrong(IN "%2 = lookup %0, %1 {dims=(vocab, embed)} : f32[batch, seq]\n", "2 indexed dims, 1 indices");
	wrong(IN "%2 = lookup %0, %0 {dims=(vocab)} : f32[vocab, embed]\n", "is f32, not int");
	wrong(IN "%2 = scatter_add %0, %1 {dims=(head)} : f32[vocab, embed]\n", "the result lacks dim 'head'");
}

static void views(void **state)
{
	(void)state;
	good(X "%1 = rename %0 {dims=(seq), tos=(ctx)} : f32[batch, ctx, embed]\n"
	     "%2 = split %0 {dim=batch, tos=(heads, head)} : f32[heads, head, seq, embed]\n"
	     "%3 = merge %2 {dims=(heads, head), to=batch} : f32[batch, seq, embed]\n"
	     "%4 = slice %0 {dim=seq, to=win, start=1} : f32[batch, win, embed]\n"
	     "%5 = pad %4 {dim=win, to=seq, start=1} : f32[batch, seq, embed]\n"
	     "%6 = roll %0 {dim=seq, shift=1} : f32[batch, seq, embed]\n"
	     "%7 = rename %0 {dims=(batch, seq), tos=(flat, ctx)} : f32[flat, ctx, embed]\n"
	     "%8 = slice %0 {dim=seq, to=seq, start=-1} : f32[batch, seq, embed]\n");
	wrong(X "%1 = rename %0 {dims=(seq), tos=(embed)} : f32[batch, embed]\n", "other sizes");
	wrong(X "%1 = rename %0 {dims=(seq), tos=(seq, ctx)} : f32[batch, embed]\n", "1 dims renamed to 2");
	wrong(X "%1 = rename %0 {dims=(ctx), tos=(heads)} : f32[batch, seq, embed]\n", "lacks dim 'ctx'");
	wrong(X "%1 = split %0 {dim=batch, tos=(heads, ctx)} : f32[heads, ctx, seq, embed]\n", "sizes 8 and 16");
	wrong(X "%1 = slice %0 {dim=seq, to=embed} : f32[batch, embed]\n", "has dim 'embed' already");
	wrong(X "%1 = slice %0 {dim=seq, to=win, stride=0} : f32[batch, win, embed]\n", "a stride of 0");
	wrong(X "%1 = roll %0 {dim=ctx, shift=1} : f32[batch, seq, embed]\n", "lacks dim 'ctx'");
	wrong(X "%1 = roll %0 {dim=seq, shift=1} : bf16[batch, seq, embed]\n", "is bf16, not f32");
}

static void attention(void **state)
{
	(void)state;
#define QKV "forward:\n" V(0, "f32[batch, seq, heads, head]") V(1, "f32[batch, ctx, heads, head]") \
	V(2, "f32[batch, ctx, heads, vhead]")
#define ATT "{dim=head, ctx=ctx, causal=seq, scale=1}"
	good(QKV "%3, %4 = attention %0, %1, %2 " ATT " : f32[batch, seq, heads, vhead], f32[batch, seq, heads]\n"
	     "%5, %6, %7 = attention_grad %0, %1, %2, %3, %4, %3 " ATT " : f32[batch, seq, heads, head], "
	     "f32[batch, ctx, heads, head], f32[batch, ctx, heads, vhead]\n");
	good(QKV "%3, %4 = attention %0, %1, %1 " ATT " : f32[batch, seq, heads, head], f32[batch, seq, heads]\n");
	wrong(QKV "%3, %4 = attention %0, %1, %2 " ATT " : f32[batch, seq, heads, head], f32[batch, seq, heads]\n",
	      "does not have the dims");
	wrong(QKV "%3, %4 = attention %1, %0, %2 " ATT " : f32[batch, seq, heads, vhead], f32[batch, seq, heads]\n",
	      "do not have the dims");
	wrong(QKV "%3, %4 = attention %0, %1, %2 {dim=head, ctx=ctx, scale=1, p=0.1} : f32[], f32[]\n", "dropout without");
	wrong(QKV "%3, %4 = attention %0, %1, %2 {key=\"k\", dim=head, ctx=ctx, causal=seq, dims=(batch, seq, head, ctx), scale=1, p=0.1} : "
	      "f32[batch, seq, heads, vhead], f32[batch, seq, heads]\n", "dropout goes by 'head', which the scores lack");
	wrong(QKV "%3, %4 = attention %0, %1, %2 {dim=head, ctx=ctx, scale=1, causal=embed} : f32[], f32[]\n", "lacks the dim");
}

static void repeats(void **state)
{
	(void)state;
#define LOOP(init, over, args, body, yields, type) \
	"forward:\n%0 = const {value=1} : " init "\n%1 = read {buf=\"ws\"} : f32[layers, embed]\n" \
	"%2 = repeat %0, " over " {dim=layers, ncarry=1, nwith=0} : " type " {\nargs %3: f32[embed]" args "\n" \
	body "yield " yields "\n}\n"
	good(LOOP("f32[embed]", "%1", ", %4: f32[embed]", "%5 = mul %3, %4 : f32[embed]\n%6 = iter {dim=layers} : int[]\n",
		  "%5", "f32[embed]"));
	wrong(LOOP("f32[embed]", "%1", ", %4: f32[embed]", "%5 = sum %4 : f32[]\n", "%5", "f32[embed]"), "have other dims");
	wrong(LOOP("f32[embed]", "%1", ", %4: f32[layers, embed]", "", "%3", "f32[embed]"), "in its body");
	wrong(LOOP("f32[embed]", "%0", ", %4: f32[embed]", "", "%3", "f32[embed]"), "lacks the dim of the repeat");
	wrong(LOOP("bf16[embed]", "%1", ", %4: f32[embed]", "", "%3", "f32[embed]"), "%0 is bf16, %3 is f32");
	wrong(LOOP("f32[embed]", "%1", "", "", "%3", "f32[embed]"), "2 operands, 1 arguments");
	good("forward:\n%0 = repeat {dim=layers, ncarry=0, nwith=0} : f32[layers, embed] {\n%1 = const {value=1} : f32[embed]\n"
	     "yield %1\n}\n");
	wrong("forward:\n%0 = repeat {dim=layers, ncarry=0, nwith=0} : f32[embed] {\n%1 = const {value=1} : f32[embed]\n"
	      "yield %1\n}\n", "lacks the dim of the repeat");
	wrong_in("ptc-ir 1\nmodule\ndim a=8 zigzag=2\n", "forward:\n%0 = repeat {dim=a, ncarry=0, nwith=0} : f32[a] {\n"
		 "%1 = const {value=1} : f32[]\nyield %1\n}\n", "not zigzag");
	wrong("forward:\n%0 = repeat {dim=layers, ncarry=0, nwith=0, local=1} : f32[layers, embed] {\n"
	      "%1 = const {value=1} : f32[embed]\nyield %1\n}\n", "{local} names");
	wrong("forward:\n%0 = repeat {dim=layers, ncarry=0, nwith=0, acc=2} : f32[layers, embed] {\n"
	      "%1 = const {value=1} : f32[embed]\nyield %1\n}\n", "{acc} names");
	wrong("forward:\n%0 = repeat {dim=layers, ncarry=2, nwith=0} : f32[embed] {\nyield\n}\n", "do not fit");
	wrong("forward:\n%0 = repeat {dim=layers, ncarry=0} : f32[layers] {\n%1 = const {value=1} : f32[] phase=backward\nyield %1\n}\n",
	      "of phase backward in a body of phase forward");
	good(X "%1 = kernel %0 : f32[batch] {\nargs %2: f32[batch, seq, embed]\n%3 = sum %2 : f32[batch]\nyield %3\n}\n");
	wrong(X "%1 = kernel %0 : f32[seq] {\nargs %2: f32[batch, seq, embed]\n%3 = sum %2 : f32[batch]\nyield %3\n}\n", "other dims");
	wrong(X "kernel %0 {\nargs %2: f32[batch, seq, embed]\n%3 = accumulate %2 : f32[batch, seq, embed]\nyield\n}\n",
	      "stands in a kernel");
}

static void steps(void **state)
{
	(void)state;
	wrong("backward:\n%0 = step : int[]\nforward:\n%1 = step : int[]\n", "forward after backward");
	wrong(X "report %0 {key=\"loss\"}\n", "not a scalar");
	wrong(X "write %0 {buf=\"w\"}\n", "other dims");
	wrong("forward:\n%0 = read {buf=\"w\"} : f32[vocab, embed]\nwrite %0 {buf=\"w\"}\nwrite %0 {buf=\"w\"}\n", "written twice");
	good("forward:\n%0 = const {value=1} : f32[]\nminimize %0, %0 {buf=\"w\", opt=\"sgd\"}\n");
	wrong("forward:\n%0 = const {value=1} : f32[]\ntrain %0, %0 {buf=\"w\", opt=\"sgd\"}\n", "other dims");
	unpart("%0 = const {value=1} : f32[]\nminimize %0, %0 {buf=\"w\", opt=\"sgd\"}\n", "the optimizer has not run");
	wrong(X "%1 = shard %0 {dim=batch, axes=(dp)} : f32[batch, seq, embed]\n", "before partition");
}

static void values_hold_an_axis_once(void **state)
{
	(void)state;
	unpart(V(0, "f32[batch@dp, seq@dp]"), "axis 'dp' twice");
	unpart(V(0, "f32[batch@dp]+dp"), "axis 'dp' twice");
	unpart(V(0, "f32[batch]+dp^dp"), "a sum and a maximum");
	wrong_in("ptc-ir 1\nmodule form=placed\nmesh a=2\ndim d=2\ndim e=2\n", "forward:\n%0 = const {value=1} : f32[d@a, e@a] anchor\n",
		 "axis 'a' twice");
}

static void work_is_one(void **state)
{
	(void)state;
	part(V(0, "f32[batch@mb.dp, seq]") V(1, "f32[batch@mb.dp, embed@tp]")
	     "%2 = einsum %0, %1 : f32[batch@mb.dp, seq, embed@tp]\n%3 = einsum %0, %1 : f32[seq, embed@tp]+dp.mb\n"
	     "%4 = sum %2 : f32[]+dp.tp.mb\n%5 = rmax %2 : f32[batch@mb.dp, seq]^tp\n");
	unpart(V(0, "f32[batch@dp]") V(1, "f32[batch]") "%2 = add %0, %1 : f32[batch@dp]\n", "split 'batch' in another way");
	unpart(V(0, "f32[batch@dp]") V(1, "f32[seq@dp]") "%2 = add %0, %1 : f32[batch@dp, seq@dp]\n", "axis 'dp' twice");
	unpart(V(0, "f32[batch@dp]") V(1, "f32[seq@dp]") "%2 = einsum %0, %1 : f32[]+dp\n", "splits two dims");
	unpart(V(0, "f32[batch@dp]") "%1 = neg %0 : f32[batch]\n", "in another way");
	unpart(V(0, "f32[batch@dp.mb]") V(1, "f32[batch@mb.dp]") "%2 = add %0, %1 : f32[batch@dp.mb]\n", "in another way");
	unpart(V(0, "f32[batch@dp]") "%1 = sum %0 : f32[]\n", "its pending sum is over dp");
	unpart(V(0, "f32[batch@dp]") "%1 = rmax %0 : f32[]+dp\n", "its pending sum is over nothing");
	unpart(V(0, "f32[batch@dp]") "%1 = rmax %0 : f32[]\n", "its pending maximum is over dp");
	part(V(0, "f32[seq@tp]") "%1 = rename %0 {dims=(seq), tos=(ctx)} : f32[ctx@tp]\n");
	unpart(V(0, "f32[seq@tp]") "%1 = rename %0 {dims=(seq), tos=(ctx)} : f32[ctx]\n", "in another way");
	part(V(0, "f32[batch@tp]") "%1 = split %0 {dim=batch, tos=(heads, head)} : f32[heads@tp, head]\n");
	part(V(0, "f32[head, heads@tp]") "%1 = merge %0 {to=batch, dims=(heads, head)} : f32[batch@tp]\n");
	unpart(V(0, "f32[batch]") "%1 = split %0 {dim=batch, tos=(heads, head)} : f32[heads, head@tp]\n", "may not be split");
	unpart(V(0, "f32[batch@tp]") "%1 = split %0 {dim=batch, tos=(heads, head)} : f32[heads, head]\n", "in another way");
	
	part(V(0, "f32[batch@dp, seq]") "%1 = argmax %0 {dim=seq} : int[batch@dp]\n");
	unpart(V(0, "f32[batch, seq@dp]") "%1 = argmax %0 {dim=seq} : int[batch]\n", "may not be split");
	unpart(V(0, "int[batch@dp, seq]") "%1 = rank %0 {dims=(batch)} : int[batch@dp, seq]\n", "may not be split");
	unpart(V(0, "f32[batch, seq]+dp") "%1 = argmax %0 {dim=seq} : int[batch]\n", "it is not linear in it");
	unpart(V(0, "f32[batch@tp]") "%1 = roll %0 {dim=batch, shift=1} : f32[batch@tp]\n", "may not be split");
}

static void pending_is_linear(void **state)
{
	(void)state;
	part(P(0, "f32[batch]", "dp") P(1, "f32[batch]", "dp") V(2, "f32[batch]")
	     "%3 = add %0, %1 : f32[batch]+dp\n%4 = mul %0, %2 : f32[batch]+dp\n%5 = einsum %2, %0 : f32[]+dp\n"
	     "%6 = neg %0 : f32[batch]+dp\n%7 = div %0, %2 : f32[batch]+dp\n"
	     "%8 = const {value=1} : bool[]\n%9 = where %8, %0, %1 : f32[batch]+dp\n");
	unpart(V(0, "f32[batch]+dp") V(1, "f32[batch]") "%2 = add %0, %1 : f32[batch]+dp\n", "not linear");
	unpart(V(0, "f32[batch]+dp") "%1 = mul %0, %0 : f32[batch]+dp\n", "not linear");
	unpart(V(0, "f32[batch]+dp") V(1, "f32[batch]") "%2 = div %1, %0 : f32[batch]+dp\n", "not linear");
	unpart(V(0, "f32[batch]+dp") "%1 = exp %0 : f32[batch]+dp\n", "not linear");
	unpart(V(0, "f32[batch]^dp") "%1 = neg %0 : f32[batch]^dp\n", "pending maximum must be resolved");
	unpart(V(0, "f32[batch]+dp") V(1, "f32[batch@dp]") "%2 = mul %0, %1 : f32[batch@dp]\n", "in another way");
	unpart(V(0, "f32[batch]+dp") V(1, "f32[seq@dp]") "%2 = einsum %0, %1 : f32[batch]+dp\n", "is pending and splits");
	unpart(V(0, "f32[batch]+dp") "%1 = neg %0 : f32[batch]\n", "its pending sum is over dp");
	unpart(V(0, "f32[]+dp") "report %0 {key=\"loss\"}\n", "still pending");
}

static void indexed_shards(void **state)
{
	(void)state;
#define SHIN "%0 = read {buf=\"w\"} : f32[vocab@tp, embed]\n%1 = read {buf=\"x\"} : int[batch@mb.dp, seq]\n"
	part(SHIN "%2 = lookup %0, %1 {dims=(vocab)} : f32[batch@mb.dp, seq, embed]+tp\n" V(3, "f32[batch@mb.dp, seq, embed]")
	     "%4 = scatter_add %3, %1 {dims=(vocab)} : f32[vocab@tp, embed]+dp.mb\n");
	unpart(SHIN "%2 = lookup %0, %1 {dims=(vocab)} : f32[batch@mb.dp, seq, embed]\n", "its pending sum is over tp");
	unpart(SHIN V(3, "f32[batch@mb.dp, seq, embed]") "%4 = scatter_add %3, %1 {dims=(vocab)} : f32[vocab@tp, embed]\n",
	       "its pending sum is over dp.mb");
	unpart("%0 = read {buf=\"w\"} : f32[vocab, embed]\n", "stored in another way");
	unpart("%0 = index {dim=seq} : int[seq@tp]\n" V(1, "f32[seq@tp]") "%2 = lookup %1, %0 {dims=(seq)} : f32[seq@tp]\n",
	       "may not be split");
}

static void attention_shards(void **state)
{
	(void)state;
#define PQ V(0, "f32[batch@dp, seq@tp, heads, head]") V(1, "f32[batch@dp, ctx, heads, head]")
	part(PQ "%2, %3 = attention %0, %1, %1 " ATT " : f32[batch@dp, seq@tp, heads, head], f32[batch@dp, seq@tp, heads]\n"
	     "%4, %5, %6 = attention_grad %0, %1, %1, %2, %3, %2 " ATT " : f32[batch@dp, seq@tp, heads, head], "
	     "f32[batch@dp, ctx, heads, head]+tp, f32[batch@dp, ctx, heads, head]+tp\n");
	unpart(PQ "%2, %3 = attention %0, %1, %1 " ATT " : f32[batch@dp, seq, heads, head], f32[batch@dp, seq, heads]\n",
	       "in another way");
	unpart(V(0, "f32[batch, seq, heads, head]") V(1, "f32[batch, ctx@tp, heads, head]")
	       "%2, %3 = attention %0, %1, %1 " ATT " : f32[batch, seq, heads, head], f32[batch, seq, heads]\n",
	       "the keys are split over tp, {axes} says nothing");
#define OVER "{dim=head, ctx=ctx, causal=seq, scale=1, axes=(tp)}"
#define KEYS V(1, "f32[batch@dp, ctx@tp, heads, head]")
	/* a ring: rows and keys over one axis; the gradients of keys are whole, each rank has its own */
	part(V(0, "f32[batch@dp, seq@tp, heads, head]") KEYS
	     "%2, %3 = attention %0, %1, %1 " OVER " : f32[batch@dp, seq@tp, heads, head], f32[batch@dp, seq@tp, heads]\n"
	     "%4, %5, %6 = attention_grad %0, %1, %1, %2, %3, %2 " OVER " : f32[batch@dp, seq@tp, heads, head], "
	     "f32[batch@dp, ctx@tp, heads, head], f32[batch@dp, ctx@tp, heads, head]\n");
	/* keys apart: dq is a sum */
	part(V(0, "f32[batch@dp, seq, heads, head]") KEYS
	     "%2, %3 = attention %0, %1, %1 " OVER " : f32[batch@dp, seq, heads, head], f32[batch@dp, seq, heads]\n"
	     "%4, %5, %6 = attention_grad %0, %1, %1, %2, %3, %2 " OVER " : f32[batch@dp, seq, heads, head]+tp, "
	     "f32[batch@dp, ctx@tp, heads, head], f32[batch@dp, ctx@tp, heads, head]\n");
	unpart(V(0, "f32[batch@dp, seq, heads, head]") KEYS
	       "%2, %3 = attention %0, %1, %1 " OVER " : f32[batch@dp, seq, heads, head]+tp, f32[batch@dp, seq, heads]\n",
	       "its pending sum is over nothing");
	unpart(V(0, "f32[batch@dp, seq, heads, head]") V(1, "f32[batch@dp, ctx, heads, head]")
	       "%2, %3 = attention %0, %1, %1 " OVER " : f32[batch@dp, seq, heads, head], f32[batch@dp, seq, heads]\n",
	       "the keys are split over nothing, {axes} says tp");
	unpart(V(0, "f32[batch@dp, seq, heads, head]") KEYS V(4, "bool[ctx@tp]")
	       "%2, %3 = attention %0, %1, %1, %4 {dim=head, ctx=ctx, causal=seq, scale=1, axes=(tp), extra=2} : "
	       "f32[batch@dp, seq, heads, head], f32[batch@dp, seq, heads]\n", "it must be whole along 'ctx'");
	unpart(V(0, "f32[batch@dp, seq, heads@tp, head]") KEYS
	       "%2, %3 = attention %0, %1, %1 " OVER " : f32[batch@dp, seq, heads@tp, head], f32[batch@dp, seq, heads@tp]\n",
	       "in another way");
}

#define TWO V(0, "f32[batch@tp, seq]") V(1, "f32[seq@tp]")
#define START TWO "%2, %3 = all_gather %0, %1 {axes=(tp), async=1} : f32[batch, seq], f32[seq]\n"
#define TYPES " : f32[batch, seq], f32[seq]\n"

/* Of a bucket each operand has its own dim; what is in flight is read by one wait. */
static void buckets_and_waits(void **state)
{
	(void)state;
	part(TWO "%2, %3 = all_gather %0, %1 {axes=(tp)}" TYPES);
	part(START "%4, %5 = wait %2, %3" TYPES "%6 = mul %4, %5 : f32[batch, seq]\n");
	unpart(TWO "%2, %3 = all_gather %0, %1 {dim=batch, axes=(tp)}" TYPES, "a bucket has no {dim}");
	unpart(TWO "%2, %3 = all_gather %0, %1 {axes=(tp)} : f32[batch@tp, seq], f32[seq]\n", "operand 0 has no dim that it joins");
	unpart(TWO "%2, %3 = all_gather %0, %1 {axes=(dp)}" TYPES, "it does not make");
	unpart(V(0, "f32[batch]") "%1 = all_gather %0 {axes=(tp)} : f32[batch]\n", "has no dim that it joins");
	unpart(START, "nothing waits for it");
	unpart(START "%4 = neg %2 : f32[batch, seq]\n%5, %6 = wait %2, %3" TYPES, "is in flight: only a wait may read it");
	unpart(START "%4 = wait %2 : f32[batch, seq]\n", "other than all results");
	unpart(START "%4, %5 = wait %3, %2 : f32[seq], f32[batch, seq]\n", "other than all results");
	unpart(START "%4, %5 = wait %2, %3" TYPES "%6, %7 = wait %2, %3" TYPES, "waited for twice");
	unpart(START "%4, %5 = wait %2, %3 : f32[batch@tp, seq], f32[seq]\n", "do not agree");
	unpart(V(0, "f32[seq]") "%1 = wait %0 : f32[seq]\n", "is not in flight");
	unpart(V(0, "f32[seq@tp]") "%1 = all_gather %0 {dim=seq, axes=(tp), ahead=1} : f32[seq]\n", "in a loop can be {ahead}");
#define AHEAD(nwith, yield) V(0, "f32[seq]") V(1, "f32[layers, seq@tp]") V(9, "f32[seq@tp]") \
	"%2 = repeat %0, " nwith " : f32[seq] {\n  args %3: f32[seq], %4: f32[seq@tp]\n" \
	"  %5 = all_gather %4 {dim=seq, axes=(tp), ahead=1} : f32[seq]\n  %6 = add %5, %3 : f32[seq]\n  yield " yield "\n}\n"
	part(AHEAD("%1 {dim=layers, ncarry=1, nwith=0}", "%6"));
	unpart(AHEAD("%9 {dim=layers, ncarry=1, nwith=1}", "%6"), "is no slice");
	unpart(AHEAD("%1 {dim=layers, ncarry=1, nwith=0}", "%5"), "does not outlive its iteration");
	unpart(V(0, "f32[seq]") "%1 = neg %0 {async=1} : f32[seq]\n", "it can't be {async}");
}

static void collectives(void **state)
{
	(void)state;
	part(V(0, "f32[batch@dp.tp, seq]") "%1 = all_gather %0 {dim=batch, axes=(tp)} : f32[batch@dp, seq]\n"
	     "%2 = all_to_all %0 {dim=batch, to=seq, axes=(tp)} : f32[batch@dp, seq@tp]\n"
	     "%3 = shard %1 {dim=seq, axes=(tp)} : f32[batch@dp, seq@tp]\n"
	     "%4 = to_partial %1 {axes=(tp)} : f32[batch@dp, seq]+tp\n"
	     "%5 = reduce_scatter %4 {dim=seq, axes=(tp)} : f32[batch@dp, seq@tp]\n"
	     "%6 = all_reduce %4 {axes=(tp)} : f32[batch@dp, seq]\n"
	     "%7 = to_partial %1 {axes=(tp), max=1} : f32[batch@dp, seq]^tp\n"
	     "%8 = all_reduce %7 {axes=(tp), max=1} : f32[batch@dp, seq]\n"
	     "%9 = to_partial %1 {axes=(mb)} : f32[batch@dp, seq]+mb\n");
#define ONE(type, op) unpart(V(0, type) "%1 = " op, "it does not make")
	ONE("f32[batch@dp.tp]", "all_gather %0 {dim=batch, axes=(dp)} : f32[batch@tp]\n");
	ONE("f32[batch@dp.tp]", "all_gather %0 {dim=batch, axes=(tp)} : f32[batch]\n");
	ONE("f32[batch@dp, seq@tp]", "all_gather %0 {dim=batch, axes=(tp)} : f32[batch@dp, seq]\n");
	ONE("f32[batch]", "all_reduce %0 {axes=(tp)} : f32[batch]\n");
	ONE("f32[batch]+tp", "all_reduce %0 {axes=(tp), max=1} : f32[batch]\n");
	ONE("f32[batch]+tp", "reduce_scatter %0 {dim=batch, axes=(tp)} : f32[batch]\n");
	ONE("f32[batch]", "reduce_scatter %0 {dim=batch, axes=(tp)} : f32[batch@tp]\n");
	ONE("f32[batch@dp, seq]", "all_to_all %0 {dim=batch, to=seq, axes=(dp)} : f32[batch@dp, seq]\n");
	ONE("f32[batch@dp, seq]", "all_to_all %0 {dim=batch, to=batch, axes=(dp)} : f32[batch@dp, seq]\n");
	unpart(V(0, "f32[batch@tp]") "%1 = shard %0 {dim=batch, axes=(tp)} : f32[batch@tp]\n", "has axis tp already");
	unpart(V(0, "f32[batch]+mb") "%1 = all_reduce %0 {axes=(mb)} : f32[batch]\n", "over the microbatches");
	unpart(V(0, "f32[batch]") "%1 = all_reduce %0 {axes=()} : f32[batch]\n", "over no axis");
	unpart(V(0, "f32[batch]") "%1 = shard %0 {dim=seq, axes=(dp)} : f32[batch]\n", "lacks dim 'seq'");
	unpart(V(0, "f32[batch]+tp") "%1 = all_reduce %0 {axes=(tp)} : bf16[batch]\n", "is f32");
}

static void microbatches(void **state)
{
	(void)state;
	part(P(0, "f32[embed]", "mb.dp") "%1 = accumulate %0 : f32[embed]+dp\nepilogue:\n%2 = neg %1 : f32[embed]+dp\n");
	unpart(V(0, "f32[embed]+mb.dp") "epilogue:\n%2 = neg %0 : f32[embed]+mb.dp\n", "read in the epilogue");
	unpart(V(0, "f32[batch@mb]") "epilogue:\n%2 = neg %0 : f32[batch@mb]\n", "read in the epilogue");
	unpart("epilogue:\n" V(0, "f32[batch@mb]"), "made in the epilogue");
	unpart(V(0, "f32[embed]") "%1 = accumulate %0 : f32[embed]\n", "not pending over the microbatches");
	unpart(V(0, "f32[embed]+mb") "%1 = accumulate %0 : f32[embed]+mb\n", "do not agree");
}

static void repeat_shards(void **state)
{
	(void)state;
#define RS(arg, yield, stack, acc) \
	V(0, "f32[embed@tp]") V(1, "f32[layers, seq@dp]") \
	"%2, %3 = repeat %0, %1 {dim=layers, ncarry=1, nwith=0, acc=" acc "} : f32[embed@tp], " stack " {\n" \
	"args %4: " arg ", %5: f32[seq@dp]\n%6 = const {value=1} : f32[embed@tp]\n" yield "yield %6, %7\n}\n"
	part(RS("f32[embed@tp]", P(7, "f32[seq@dp]", "mb"), "f32[layers, seq@dp]+mb", "0"));
	part(RS("f32[embed@tp]", P(7, "f32[seq@dp]", "mb"), "f32[layers, seq@dp]", "1"));
	unpart(RS("f32[embed]", V(7, "f32[seq@dp]"), "f32[layers, seq@dp]", "0"), "do not agree");
	unpart(RS("f32[embed@tp]", V(7, "f32[seq@dp]"), "f32[layers@tp, seq@dp]", "0"), "do not agree");
	unpart(RS("f32[embed@tp]", V(7, "f32[seq@dp]"), "f32[layers, seq]", "0"), "do not agree");
	unpart(RS("f32[embed@tp]", V(7, "f32[seq@dp]"), "f32[layers, seq@dp]", "1"), "not pending over the microbatches");
	unpart(RS("f32[embed@tp]", P(7, "f32[seq@dp]", "mb"), "f32[layers, seq@dp]+mb", "1"), "do not agree");
	unpart(V(0, "f32[embed@tp]") "%1 = kernel %0 : f32[embed@tp] {\nargs %2: f32[embed]\nyield %2\n}\n", "do not agree");
}

static void plans(void **state)
{
	(void)state;
#define PLAN "ptc-ir 1\nmodule form=planned\nmesh dp=2\nmesh tp=2\n" DIMS
	good_in(PLAN, X "%1 = kernel %0 : f32[seq, batch] {\nargs %2: f32[batch, seq, embed]\n%3 = sum %2 : f32[seq, batch]\nyield %3\n}\n");
	wrong_in(PLAN, X "%1 = neg %0 : f32[batch, seq, embed]\n", "outside of a kernel");
	wrong_in(PLAN, X "%1 = kernel %0 : f32[seq, batch] {\nargs %2: f32[batch, seq, embed]\n%3 = sum %2 : f32[batch, seq]\nyield %3\n}\n",
		 "in other orders");
}

/* Damage that no text can hold. */
static void broken_links(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct diag d;

	for (int i = 0; i < 7; i++) {
		struct module *m = module_new(mem, NULL);
		struct builder b = { .m = m, .block = &m->top, .phase = FORWARD };
		struct value *x = b_const(&b, F32, 1), *y = b_map1(&b, OP_NEG, x);
		struct block *other = block_new(m, NULL);

		diag_init(&d, mem, NULL, NULL);
		assert_true(verify(m, &d));
		switch (i) {
		case 0: op_unlink(x->def); break;
		case 1: x->id = y->id; break;
		case 2: x->home = other; break;
		case 3: y->def->in[0] = NULL; break;
		case 4: y->def->out[0] = NULL; break;
		case 5: y->def->prev = NULL; break;
		default: y->def->body = other; break;
		}
		assert_false(verify(m, &d));
		assert_true(d.errors > 0);
	}
	arena_free(mem);
}

static void mutants_do_not_crash(void **state)
{
	(void)state;
	static const char text[] = PART "forward:\n" SHIN
		"%2 = lookup %0, %1 {dims=(vocab)} : f32[batch@mb.dp, seq, embed]+tp\n"
		"%3 = all_reduce %2 {axes=(tp)} : f32[batch@mb.dp, seq, embed]\n"
		"%4 = read {buf=\"ws\"} : f32[layers, embed]\n"
		"%5 = repeat %3, %4 {dim=layers, ncarry=1, nwith=0} : f32[batch@mb.dp, seq, embed] {\n"
		"args %6: f32[batch@mb.dp, seq, embed], %7: f32[embed]\n%8 = mul %6, %7 : f32[batch@mb.dp, seq, embed]\n"
		"%9 = roll %8 {dim=seq, shift=1} : f32[batch@mb.dp, seq, embed]\nyield %9\n}\n"
		"%10 = rename %5 {dims=(seq), tos=(ctx)} : f32[batch@mb.dp, ctx, embed]\n"
		"%11, %12 = attention %5, %10, %10 {dim=embed, ctx=ctx, causal=seq, scale=1} : "
		"f32[batch@mb.dp, seq, embed], f32[batch@mb.dp, seq]\n"
		"%13 = sum %11 : f32[]+mb.dp\n%14 = scatter_add %11, %1 {dims=(vocab)} : f32[vocab@tp, embed]+mb.dp\n"
		"%15 = accumulate %14 : f32[vocab@tp, embed]+dp\nepilogue:\n"
		"%16 = all_reduce %15 {axes=(dp)} : f32[vocab@tp, embed]\nwrite %16 {buf=\"w\"}\n";
	static const char *const words[] = { "batch", "seq", "ctx", "embed", "vocab", "layers", "dp", "tp", "mb", "%0", "%1", "%5", "%6",
		"0", "1", "-", "f32", "int", "bool", "bf16", "sum", "neg", "rmax", "all_gather", "shard", "all_to_all", "merge", "split",
		"slice", "einsum", "max=1", "acc=1", "to=seq", "dim=seq", "axes=(dp)", "tos=(ctx)", "9", "^", "+", "@", "." };
	uint64_t s = 88172645463325252u;
	int read = 0;

	good_in("", text);
	for (int i = 0; i < 20000; i++) {
		struct arena *mem = arena_new();
		struct text t = { .mem = mem };
		struct diag d;
		size_t at[2], from = 0;

		for (int k = 0; k < 2; k++) {
			s ^= s << 13, s ^= s >> 7, s ^= s << 17;
			at[k] = s % (sizeof text - 1);
		}
		for (int k = i & 1; k < 2; k++) { /* the word at one or either place is another */
			size_t a = at[at[0] > at[1] ? !k : k];

			while (a && strchr(" [](){},@.+=^", text[a - 1]) == NULL)
				a--;
			if (a < from)
				break;
			text_bytes(&t, text + from, a - from);
			s ^= s << 13, s ^= s >> 7, s ^= s << 17;
			text_put(&t, "%s", words[s % LEN(words)]);
			from = a + strcspn(text + a, " [](){},@.+=^\n");
		}
		text_bytes(&t, text + from, sizeof text - 1 - from);
		diag_init(&d, mem, NULL, NULL);
		struct module *m = module_parse(mem, "in.pir", t.s, t.n, &d);
		if (m) {
			bool ok = verify(m, &d);

			assert_true(ok == (d.errors == 0));
			read++;
		}
		arena_free(mem);
	}
	assert_true(read > 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables), cmocka_unit_test(leaves), cmocka_unit_test(maps_and_sums), cmocka_unit_test(indexed),
		cmocka_unit_test(views), cmocka_unit_test(attention), cmocka_unit_test(repeats), cmocka_unit_test(steps),
		cmocka_unit_test(values_hold_an_axis_once), cmocka_unit_test(work_is_one), cmocka_unit_test(pending_is_linear),
		cmocka_unit_test(indexed_shards), cmocka_unit_test(attention_shards), cmocka_unit_test(buckets_and_waits), cmocka_unit_test(collectives),
		cmocka_unit_test(microbatches), cmocka_unit_test(repeat_shards), cmocka_unit_test(plans),
		cmocka_unit_test(broken_links), cmocka_unit_test(mutants_do_not_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
