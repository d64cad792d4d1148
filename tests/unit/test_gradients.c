/* Gradients of every op, of loops and of whole small models against finite differences in the
 * reference evaluator, which computes in double. Each case runs plain,
 * between two simplify, and with precision bf16. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/text.h"
#include "passes/passes.h"

static const char header[] =
	"ptc-ir 1\n"
	"module \"t\" form=logical precision=f32 micro=1 batch=b workspace=0\n"
	"dim b=3\ndim c=4\ndim d=2\ndim e=2\ndim s=5\ndim t=5\ndim v=6\ndim n=3\ndim o=2\ndim k=4\n"
	"dim cd=8\ndim h=2\ndim g=2\n"
	"buffer @\"p\" param f32[b, c] init=normal(1)\n"
	"buffer @\"q\" param f32[b, c] init=normal(1)\n"
	"buffer @\"r\" param f32[c] init=normal(1)\n"
	"buffer @\"u\" param f32[b] init=normal(1)\n"
	"buffer @\"z\" param f32[] init=normal(1)\n"
	"buffer @\"w\" param f32[c, d] init=normal(1)\n"
	"buffer @\"m\" param f32[c, d, e] init=normal(1)\n"
	"buffer @\"x\" param f32[c, k] init=normal(0.7)\n"
	"buffer @\"tab\" param f32[v, c] init=normal(1)\n"
	"buffer @\"tq\" param f32[v, b] init=normal(1)\n"
	"buffer @\"l\" param f32[n, c] init=normal(1)\n"
	"buffer @\"lw\" param f32[n, c, k] init=normal(0.5)\n"
	"buffer @\"low\" param f32[o, n, c] init=normal(1)\n"
	"buffer @\"ln\" param f32[c, n] init=normal(1)\n"
	"buffer @\"aq\" param f32[b, s, h, g, d] init=normal(1)\n"
	"buffer @\"ak\" param f32[b, t, h, d] init=normal(1)\n"
	"buffer @\"av\" param f32[b, t, h, e] init=normal(1)\n"
	"buffer @\"ab\" param f32[h, s, t] init=normal(1)\n"
	"buffer @\"at\" param f32[t, g] init=normal(1)\n"
	"buffer @\"st\" state f32[b, c] init=normal(1)\n";

/* `text` makes %90, a float of dims `dims`; the loss is sum(sin(%90)). */
struct test {
	const char *name, *dims, *text;
};

#define READ(no, buf, type) "%" #no " = read {buf=\"" buf "\"} : " type "\n"
#define P READ(1, "p", "f32[b, c]")
#define Q READ(2, "q", "f32[b, c]")
#define R READ(3, "r", "f32[c]")
#define U READ(4, "u", "f32[b]")
#define Z READ(5, "z", "f32[]")
#define ONE(op) { #op, "b, c", P "%90 = " #op " %1 : f32[b, c]\n" }
/* of exp(p), which is positive */
#define POS(op) { #op, "b, c", P "%2 = exp %1 : f32[b, c]\n%90 = " #op " %2 : f32[b, c]\n" }
#define TWO(op) \
	{ #op " alike", "b, c", P Q "%90 = " #op " %1, %2 : f32[b, c]\n" }, \
	{ #op " spread", "b, c", P R "%90 = " #op " %1, %3 : f32[b, c]\n" }, \
	{ #op " spread left", "b, c", U P "%90 = " #op " %4, %1 : f32[b, c]\n" }, \
	{ #op " outer", "b, c", U R "%90 = " #op " %4, %3 : f32[b, c]\n" }, \
	{ #op " number", "b, c", P Z "%90 = " #op " %1, %5 : f32[b, c]\n" }, \
	{ #op " itself", "b, c", P "%90 = " #op " %1, %1 : f32[b, c]\n" }

/* by exp of the right operand, which stays away from 0 */
#define BY(op) \
	{ #op " alike", "b, c", P Q "%6 = exp %2 : f32[b, c]\n%90 = " #op " %1, %6 : f32[b, c]\n" }, \
	{ #op " spread", "b, c", P R "%6 = exp %3 : f32[c]\n%90 = " #op " %1, %6 : f32[b, c]\n" }, \
	{ #op " spread left", "b, c", U P "%6 = exp %1 : f32[b, c]\n%90 = " #op " %4, %6 : f32[b, c]\n" }, \
	{ #op " outer", "b, c", U R "%6 = exp %3 : f32[c]\n%90 = " #op " %4, %6 : f32[b, c]\n" }, \
	{ #op " number", "b, c", P Z "%6 = exp %5 : f32[]\n%90 = " #op " %1, %6 : f32[b, c]\n" }, \
	{ #op " itself", "b, c", P "%6 = exp %1 : f32[b, c]\n%90 = " #op " %6, %6 : f32[b, c]\n" }

static const struct test pointwise[] = {
	ONE(neg), ONE(exp), ONE(tanh), ONE(sigmoid), ONE(sin), ONE(cos), ONE(abs), ONE(relu), ONE(silu),
	POS(log), POS(sqrt), POS(rsqrt), ONE(detach), ONE(sign), ONE(cast),
	{ "gelu erf", "b, c", P "%90 = gelu %1 {form=0} : f32[b, c]\n" },
	{ "gelu tanh", "b, c", P "%90 = gelu %1 {form=1} : f32[b, c]\n" },
	{ "gelu quick", "b, c", P "%90 = gelu %1 {form=2} : f32[b, c]\n" },
	TWO(add), TWO(sub), TWO(mul), BY(div), BY(mod), TWO(min), TWO(max),
	{ "pow", "b, c", P Q "%6 = exp %1 : f32[b, c]\n%90 = pow %6, %2 : f32[b, c]\n" },
	{ "pow spread", "b, c", P R "%6 = exp %1 : f32[b, c]\n%90 = pow %6, %3 : f32[b, c]\n" },
	{ "square", "b, c", P "%6 = const {value=2} : f32[]\n%90 = pow %1, %6 : f32[b, c]\n" },
	{ "cube", "b, c", P "%6 = const {value=3} : f32[]\n%90 = pow %1, %6 : f32[b, c]\n" },
	{ "where", "b, c", P Q R "%6 = gt %1, %3 : bool[b, c]\n%90 = where %6, %1, %2 : f32[b, c]\n" },
	{ "where spread", "b, c", R U P "%6 = gt %1, %3 : bool[b, c]\n%90 = where %6, %3, %4 : f32[b, c]\n" },
	{ "accum", "b, c", P Q R U "%90 = accum %1, %3, %2, %4, %1 : f32[b, c]\n" },
	{ "half detached", "b, c", P "%6 = detach %1 : f32[b, c]\n%90 = mul %1, %6 : f32[b, c]\n" },
	{ "through int", "b, c", P "%6 = cast %1 : int[b, c]\n%90 = mul %1, %6 : f32[b, c]\n" },
};

static const struct test tensors[] = {
	{ "sum", "b", P "%90 = sum %1 : f32[b]\n" },
	{ "sum all", "", P "%90 = sum %1 : f32[]\n" },
	{ "sum of a product", "b", P R "%6 = mul %1, %3 : f32[b, c]\n%90 = sum %6 : f32[b]\n" },
	{ "mean then wide", "b, c", P "%6 = sum %1 : f32[]\n%90 = mul %1, %6 : f32[b, c]\n" },
	{ "number to wide sum", "", P Z "%6 = mul %1, %5 : f32[b, c]\n%90 = sum %6 : f32[]\n" },
	{ "narrow through add", "", R U "%6 = add %3, %4 : f32[c, b]\n%90 = sum %6 : f32[]\n" },
	{ "narrow through exp", "", P R "%6 = exp %1 : f32[b, c]\n%7 = sub %6, %3 : f32[b, c]\n%90 = sum %7 : f32[]\n" },
	{ "rmax", "b", P "%90 = rmax %1 : f32[b]\n" },
	{ "rmax all", "", P "%90 = rmax %1 : f32[]\n" },
	{ "softmax", "b, c", P
	  "%2 = rmax %1 : f32[b]\n%3 = detach %2 : f32[b]\n%4 = sub %1, %3 : f32[b, c]\n%5 = exp %4 : f32[b, c]\n"
	  "%6 = sum %5 : f32[b]\n%90 = div %5, %6 : f32[b, c]\n" },
	{ "einsum", "b, d", P READ(6, "w", "f32[c, d]") "%90 = einsum %1, %6 : f32[b, d]\n" },
	{ "einsum batched", "c, b", P Q "%90 = einsum %1, %2 : f32[c, b]\n" },
	{ "einsum of one sum", "b", P READ(6, "w", "f32[c, d]") "%90 = einsum %1, %6 : f32[b]\n" },
	{ "einsum itself", "b", P "%90 = einsum %1, %1 : f32[b]\n" },
	{ "einsum summed", "", P READ(6, "w", "f32[c, d]") "%7 = einsum %1, %6 : f32[b, d]\n%90 = sum %7 : f32[]\n" },
	{ "lookup", "b, s, c", READ(1, "tab", "f32[v, c]")
	  "%2 = index {dim=b} : int[b]\n%3 = index {dim=s} : int[s]\n%4 = mul %2, %3 : int[b, s]\n"
	  "%5 = const {value=5} : int[]\n%6 = mod %4, %5 : int[b, s]\n%90 = lookup %1, %6 {dims=(v)} : f32[b, s, c]\n" },
	{ "lookup out of range", "s, c", READ(1, "tab", "f32[v, c]")
	  "%3 = index {dim=s} : int[s]\n%4 = mul %3, %3 : int[s]\n%5 = const {value=3} : int[]\n%6 = sub %4, %5 : int[s]\n"
	  "%90 = lookup %1, %6 {dims=(v)} : f32[s, c]\n" },
	{ "lookup matched", "b, s", READ(1, "tq", "f32[v, b]")
	  "%2 = index {dim=b} : int[b]\n%3 = index {dim=s} : int[s]\n%4 = mul %2, %3 : int[b, s]\n"
	  "%90 = lookup %1, %4 {dims=(v)} : f32[b, s]\n" },
	{ "lookup twice", "s", READ(1, "tab", "f32[v, c]")
	  "%3 = index {dim=s} : int[s]\n%5 = const {value=2} : int[]\n%6 = mod %3, %5 : int[s]\n%7 = mul %3, %6 : int[s]\n"
	  "%90 = lookup %1, %3, %7 {dims=(v, c)} : f32[s]\n" },
	{ "lookup summed", "", READ(1, "tab", "f32[v, c]")
	  "%3 = index {dim=s} : int[s]\n%5 = const {value=2} : int[]\n%6 = floordiv %3, %5 : int[s]\n"
	  "%7 = lookup %1, %6 {dims=(v)} : f32[s, c]\n%90 = sum %7 : f32[]\n" },
	{ "scatter", "v, c", P
	  "%2 = index {dim=b} : int[b]\n%3 = mul %2, %2 : int[b]\n%90 = scatter_add %1, %3 {dims=(v)} : f32[v, c]\n" },
	{ "scatter summed", "v", P
	  "%2 = index {dim=b} : int[b]\n%3 = mul %2, %2 : int[b]\n%90 = scatter_add %1, %3 {dims=(v)} : f32[v]\n" },
	{ "scatter spread", "v, c", R
	  "%2 = index {dim=b} : int[b]\n%4 = const {value=2} : int[]\n%5 = floordiv %2, %4 : int[b]\n"
	  "%90 = scatter_add %3, %5 {dims=(v)} : f32[v, c]\n" },
	{ "scatter matched", "v, b", P
	  "%2 = index {dim=b} : int[b]\n%4 = index {dim=c} : int[c]\n%5 = mul %2, %4 : int[b, c]\n"
	  "%90 = scatter_add %1, %5 {dims=(v)} : f32[v, b]\n" },
	{ "rename", "b, k", P Q "%6 = rename %1 {dims=(c), tos=(k)} : f32[b, k]\n"
	  "%7 = einsum %6, %2 : f32[b, k, c]\n%90 = sum %7 : f32[b, k]\n" },
	{ "rename narrow", "", P "%6 = rename %1 {dims=(c), tos=(k)} : f32[b, k]\n%90 = sum %6 : f32[]\n" },
	{ "split", "b, h, g", P "%90 = split %1 {dim=c, tos=(h, g)} : f32[b, h, g]\n" },
	{ "merge", "cd", READ(6, "w", "f32[c, d]") "%90 = merge %6 {dims=(c, d), to=cd} : f32[cd]\n" },
	{ "merge across", "cd, e", READ(6, "m", "f32[c, d, e]") "%90 = merge %6 {dims=(d, c), to=cd} : f32[cd, e]\n" },
	{ "slice", "b, d", P "%90 = slice %1 {dim=c, to=d, start=1, stride=2} : f32[b, d]\n" },
	{ "slice past the end", "b, s", P "%90 = slice %1 {dim=c, to=s, start=-1, stride=2} : f32[b, s]\n" },
	{ "slice back", "b, k", P "%90 = slice %1 {dim=c, to=k, start=3, stride=-1} : f32[b, k]\n" },
	{ "slice in itself", "b, c", P "%90 = slice %1 {dim=c, to=c, start=1, stride=1} : f32[b, c]\n" },
	{ "slice summed", "", P "%6 = slice %1 {dim=c, to=d, start=1, stride=2} : f32[b, d]\n%90 = sum %6 : f32[]\n" },
	{ "pad", "b, v", P "%90 = pad %1 {dim=c, to=v, start=-1, stride=2} : f32[b, v]\n" },
	{ "roll", "b, c", P "%90 = roll %1 {dim=c, shift=3} : f32[b, c]\n" },
};

#define QKV READ(1, "aq", "f32[b, s, h, g, d]") READ(2, "ak", "f32[b, t, h, d]") READ(3, "av", "f32[b, t, h, e]")
#define O "f32[b, s, h, g, e], f32[b, s, h, g]\n"
static const struct test attention[] = {
	{ "attention", "b, s, h, g, e", QKV "%90, %91 = attention %1, %2, %3 {dim=d, ctx=t, scale=0.7} : " O },
	{ "attention causal", "b, s, h, g, e",
	  QKV "%90, %91 = attention %1, %2, %3 {dim=d, ctx=t, causal=s, scale=0.7} : " O },
	{ "attention capped", "b, s, h, g, e",
	  QKV "%90, %91 = attention %1, %2, %3 {dim=d, ctx=t, causal=s, scale=0.7, cap=1.5} : " O },
	{ "attention dropout", "b, s, h, g, e",
	  QKV "%90, %91 = attention %1, %2, %3 {dim=d, ctx=t, causal=s, scale=0.7, p=0.3, key=\"a#1\", "
	  "dims=(b, s, h, g, t)} : " O },
	{ "attention with a bias", "b, s, h, g, e", QKV READ(4, "ab", "f32[h, s, t]")
	  "%90, %91 = attention %1, %2, %3, %4 {dim=d, ctx=t, causal=s, scale=0.7, extra=1} : " O },
	{ "attention with all", "b, s, h, g, e", QKV READ(4, "u", "f32[b]") READ(5, "at", "f32[t, g]")
	  "%6 = add %4, %5 : f32[b, t, g]\n%7 = index {dim=s} : int[s]\n%8 = index {dim=t} : int[t]\n"
	  "%9 = ne %7, %8 : bool[s, t]\n%10 = const {value=3} : int[]\n"
	  "%90, %91 = attention %1, %2, %3, %6, %9, %10 {dim=d, ctx=t, causal=s, scale=0.7, cap=1.5, extra=7} : " O },
	{ "attention with a fixed bias", "b, s, h, g, e", QKV
	  "%7 = index {dim=s} : int[s]\n%8 = index {dim=t} : int[t]\n%9 = sub %8, %7 : int[s, t]\n%10 = cast %9 : f32[s, t]\n"
	  "%90, %91 = attention %1, %2, %3, %10 {dim=d, ctx=t, scale=0.7, extra=1} : " O },
	{ "attention with a bias and dropout", "b, s, h, g, e", QKV READ(5, "at", "f32[t, g]")
	  "%90, %91 = attention %1, %2, %3, %5 {dim=d, ctx=t, scale=0.7, p=0.3, key=\"a#1\", dims=(b, s, h, g, t), extra=1} : " O },
	{ "attention summed", "", QKV "%80, %81 = attention %1, %2, %3 {dim=d, ctx=t, scale=0.7} : " O
	  "%90 = sum %80 : f32[]\n" },
};

static const struct test loops[] = {
	{ "params by layer", "b, c", P READ(6, "l", "f32[n, c]")
	  "%90 = repeat %1, %6 {dim=n, ncarry=1, nwith=0} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c]\n%12 = mul %10, %11 : f32[b, c]\n%13 = tanh %12 : f32[b, c]\nyield %13\n}\n" },
	{ "dim of the loop inside", "b, c", P READ(6, "ln", "f32[c, n]")
	  "%90 = repeat %1, %6 {dim=n, ncarry=1, nwith=0} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c]\n%12 = mul %10, %11 : f32[b, c]\n%13 = tanh %12 : f32[b, c]\nyield %13\n}\n" },
	{ "matrices by layer", "b, c", P READ(6, "lw", "f32[n, c, k]")
	  "%90 = repeat %1, %6 {dim=n, ncarry=1, nwith=0} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c, k]\n%12 = einsum %10, %11 : f32[b, k]\n%13 = gelu %12 {form=1} : f32[b, k]\n"
	  "%14 = einsum %13, %11 : f32[b, c]\n%15 = add %10, %14 : f32[b, c]\nyield %15\n}\n" },
	{ "a param and a computed invariant", "b, c", P Q R
	  "%6 = sin %2 : f32[b, c]\n%7 = mul %6, %3 : f32[b, c]\n"
	  "%8 = repeat %1, %3, %6 {dim=n, ncarry=1, nwith=2} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c], %12: f32[b, c]\n%13 = mul %10, %11 : f32[b, c]\n%14 = mul %13, %12 : f32[b, c]\n"
	  "%15 = sigmoid %14 : f32[b, c]\nyield %15\n}\n%90 = add %8, %7 : f32[b, c]\n" },
	{ "two carried, one idle", "b, c", P Q R Z
	  "%6, %7, %8 = repeat %1, %2, %5, %3 {dim=n, ncarry=3, nwith=1} : f32[b, c], f32[b, c], f32[] {\n"
	  "args %10: f32[b, c], %11: f32[b, c], %12: f32[], %13: f32[c]\n%14 = mul %10, %13 : f32[b, c]\n"
	  "%15 = tanh %14 : f32[b, c]\n%16 = sum %11 : f32[]\n%17 = add %12, %16 : f32[]\nyield %11, %15, %17\n}\n"
	  "%90 = mul %6, %2 : f32[b, c]\n" },
	{ "a sum carried", "", P READ(6, "l", "f32[n, c]")
	  "%7 = const {value=0} : f32[]\n"
	  "%8, %9 = repeat %1, %7, %6 {dim=n, ncarry=2, nwith=0} : f32[b, c], f32[] {\n"
	  "args %10: f32[b, c], %11: f32[], %12: f32[c]\n%13 = mul %10, %12 : f32[b, c]\n%14 = sin %13 : f32[b, c]\n"
	  "%15 = sum %14 : f32[]\n%16 = add %11, %15 : f32[]\nyield %14, %16\n}\n"
	  "%20 = sum %8 : f32[]\n%90 = add %20, %9 : f32[]\n" },
	{ "by iteration", "b, c", P READ(6, "l", "f32[n, c]")
	  "%90 = repeat %1, %6 {dim=n, ncarry=1, nwith=0} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c]\n%12 = iter {dim=n} : int[]\n%13 = rng %12 {key=\"x#1\", dims=(b, c)} : f32[b, c]\n"
	  "%14 = const {value=0.4} : f32[]\n%15 = ge %13, %14 : bool[b, c]\n%16 = mul %10, %11 : f32[b, c]\n"
	  "%17 = const {value=0} : f32[]\n%18 = where %15, %16, %17 : f32[b, c]\n%19 = mul %18, %12 : f32[b, c]\n"
	  "%20 = rename %19 {dims=(c), tos=(k)} : f32[b, k]\n%21 = einsum %20, %19 : f32[b, c]\n%22 = add %10, %21 : f32[b, c]\n"
	  "%23 = sin %22 : f32[b, c]\nyield %23\n}\n" },
	{ "nested", "b, c", P R READ(6, "low", "f32[o, n, c]") READ(7, "x", "f32[c, k]")
	  "%8 = cos %3 : f32[c]\n"
	  "%90 = repeat %1, %7, %8, %6 {dim=o, ncarry=1, nwith=2} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c, k], %12: f32[c], %13: f32[n, c]\n%14 = mul %10, %12 : f32[b, c]\n"
	  "%15 = repeat %14, %11, %10, %13 {dim=n, ncarry=1, nwith=2} : f32[b, c] {\n"
	  "args %20: f32[b, c], %21: f32[c, k], %22: f32[b, c], %23: f32[c]\n%24 = einsum %20, %21 : f32[b, k]\n"
	  "%25 = tanh %24 : f32[b, k]\n%26 = einsum %25, %21 : f32[b, c]\n%27 = mul %22, %23 : f32[b, c]\n"
	  "%28 = add %26, %27 : f32[b, c]\n%29 = sin %28 : f32[b, c]\nyield %29\n}\n"
	  "%16 = sigmoid %15 : f32[b, c]\n%17 = add %16, %10 : f32[b, c]\nyield %17\n}\n" },
	{ "one after another", "b, c", P Q READ(6, "l", "f32[n, c]")
	  "%7 = repeat %1, %6 {dim=n, ncarry=1, nwith=0} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c]\n%12 = mul %10, %11 : f32[b, c]\n%13 = tanh %12 : f32[b, c]\nyield %13\n}\n"
	  "%90 = repeat %2, %7, %6 {dim=n, ncarry=1, nwith=1} : f32[b, c] {\n"
	  "args %20: f32[b, c], %21: f32[b, c], %22: f32[c]\n%23 = mul %20, %21 : f32[b, c]\n%24 = sub %23, %22 : f32[b, c]\n"
	  "%25 = sin %24 : f32[b, c]\nyield %25\n}\n" },
	{ "attention in a loop", "b, s, h, g, d",
	  READ(1, "aq", "f32[b, s, h, g, d]") READ(2, "ak", "f32[b, t, h, d]")
	  "%90 = repeat %1, %2 {dim=n, ncarry=1, nwith=1} : f32[b, s, h, g, d] {\n"
	  "args %10: f32[b, s, h, g, d], %11: f32[b, t, h, d]\n%12 = iter {dim=n} : int[]\n"
	  "%13, %14 = attention %10, %11, %11, %12 {dim=d, ctx=t, causal=s, scale=0.7, p=0.2, key=\"k#1\", dims=(b, s, h, g, t)} : "
	  "f32[b, s, h, g, d], f32[b, s, h, g]\n%15 = add %10, %13 : f32[b, s, h, g, d]\nyield %15\n}\n" },
	{ "tied thrice", "b, c", P READ(6, "x", "f32[c, k]")
	  "%7 = einsum %1, %6 : f32[b, k]\n%8 = rename %7 {dims=(k), tos=(c)} : f32[b, c]\n"
	  "%9 = repeat %8, %6 {dim=n, ncarry=1, nwith=1} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c, k]\n%12 = einsum %10, %11 : f32[b, k]\n%13 = tanh %12 : f32[b, k]\n"
	  "%14 = rename %13 {dims=(k), tos=(c)} : f32[b, c]\nyield %14\n}\n" READ(20, "x", "f32[c, k]")
	  "%21 = einsum %9, %20 : f32[b, k]\n%90 = rename %21 {dims=(k), tos=(c)} : f32[b, c]\n" },
	{ "a gradient that two params share", "b, c", P Q "%90 = add %1, %2 : f32[b, c]\n" },
	{ "the dim of the loop in a value", "b, c", P READ(6, "ln", "f32[c, n]")
	  "%90 = repeat %1, %6 {dim=n, ncarry=1, nwith=1} : f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[c, n]\n%12 = mul %10, %11 : f32[b, c, n]\n%13 = sin %12 : f32[b, c, n]\n"
	  "%14 = sum %13 : f32[b, c]\nyield %14\n}\n" },
	{ "unchanged carried", "b, c", P Q
	  "%6, %90 = repeat %1, %2 {dim=n, ncarry=2, nwith=0} : f32[b, c], f32[b, c] {\n"
	  "args %10: f32[b, c], %11: f32[b, c]\n%12 = mul %10, %11 : f32[b, c]\n%13 = tanh %12 : f32[b, c]\nyield %10, %13\n}\n" },
};

/* -- the harness -- */

static bool mentions(const struct test *t, const char *param)
{
	char what[64];

	snprintf(what, sizeof what, "buf=\"%s\"", param);
	return strstr(t->text, what) != NULL;
}

static struct module *parse(struct arena *mem, const struct test *t)
{
	struct text s = { .mem = mem };
	struct diag d;

	text_put(&s, "%sforward:\n%s", header, t->text);
	text_put(&s, "%%100 = sin %%90 : f32[%s]\n%%101 = sum %%100 : f32[]\nreport %%101 {key=\"loss\"}\n", t->dims);
	text_put(&s, "%%102 = const {value=0.1} : f32[]\n");
	for (const char *line = header; (line = strstr(line, "buffer @\"")); line++) {
		char name[16];

		if (sscanf(line, "buffer @\"%15[^\"]\" param", name) == 1 && mentions(t, name))
			text_put(&s, "minimize %%101, %%102 {buf=\"%s\", opt=\"sgd\", group=0}\n", name);
	}
	diag_init(&d, mem, NULL, stderr);
	struct module *m = module_parse(mem, t->name, s.s, s.n, &d);
	if (!m || !verify(m, &d))
		fail_msg("%s does not parse:\n%s", t->name, s.s);
	return m;
}

static double loss_of(struct eval *e, const struct test *t)
{
	const char *why = NULL;
	bool found;

	if (!eval_step(e, 3, true, NULL, &why))
		fail_msg("%s: %s", t->name, why ? why : "?");
	return eval_report(e, "loss", &found);
}

/* The gradients of the module go to buffers "NAME:grad". */
static void write_gradients(struct module *m)
{
	for (struct op *op = m->top.first, *next; op; op = next) {
		next = op->next;
		if (op->code != OP_TRAIN)
			continue;
		const struct buffer *p = find_buffer(m, op->at.buf);
		struct buffer *g = module_buffer(m, B_PROBE, arena_printf(m->mem, "%s:grad", p->name), F32,
						 p->nd, p->d);
		struct builder b = { m, &m->top, op, EPILOGUE, op->span, NULL, 0 };
		struct op *w = op_new(&b, OP_WRITE, 1, op->in, 0);

		SET(w, buf, g->name);
		assert_string_equal(op->in[0]->name, arena_printf(m->mem, "d:%s", p->name));
		op_unlink(op);
	}
}

static void sound(struct module *m, const struct test *t, const char *after)
{
	struct diag d;
	size_t len, len2;

	diag_init(&d, m->mem, NULL, stderr);
	if (!verify(m, &d))
		fail_msg("%s after %s:\n%s", t->name, after, module_print(m, m->mem, &len));
	char *text = module_print(m, m->mem, &len);
	struct module *again = module_parse(m->mem, t->name, text, len, &d);
	if (!again)
		fail_msg("%s after %s:\n%s", t->name, after, text);
	char *text2 = module_print(again, m->mem, &len2);
	assert_string_equal(text, text2);
}

/* The loss with element i of the param moved by dx. */
static double moved(struct eval *plain, const struct test *t, const char *param, struct tensor *x, int64_t i, double dx)
{
	double was = x->x[i];

	x->x[i] = was + dx;
	eval_set(plain, param, x);
	double loss = loss_of(plain, t);
	x->x[i] = was;
	eval_set(plain, param, x);
	return loss;
}

static void compare(const struct test *t, struct module *m, struct eval *plain, struct eval *e, const char *param)
{
	const double h = 5e-5;
	struct tensor *x = eval_get(plain, param);
	struct tensor *g = eval_get(e, arena_printf(m->mem, "%s:grad", param));
	size_t len;

	assert_non_null(g);
	for (int64_t i = 0; i < x->count; i++) {
		double near = moved(plain, t, param, x, i, h) - moved(plain, t, param, x, i, -h);
		double far = moved(plain, t, param, x, i, 2 * h) - moved(plain, t, param, x, i, -2 * h);
		double slope = (8 * near - far) / (12 * h);

		if (!(fabs(slope - g->x[i]) <= 2e-8 * (1 + fabs(slope))))
			fail_msg("%s: d:%s[%d] is %.9g, not %.9g\n%s", t->name, param, (int)i, g->x[i], slope,
				 strstr(module_print(m, m->mem, &len), "forward:"));
	}
}

/* how: 0 plain, 1 between two simplify, 2 with bf16 (the evaluator does not round) as well. */
static void check(const struct test *t, int how, bool zero)
{
	struct arena *mem = arena_new();
	struct module *forward = parse(mem, t), *m = parse(mem, t);
	struct eval *plain = eval_new(mem, forward, 7), *e;
	struct diag d;

	diag_init(&d, mem, NULL, stderr);
	if (how) {
		assert_true(pass_simplify(m, &d));
		sound(m, t, "simplify");
	}
	if (how == 2) {
		m->precision = BF16;
		assert_true(pass_precision(m, &d));
		sound(m, t, "precision");
	}
	assert_true(pass_differentiate(m, &d));
	sound(m, t, "differentiate");
	write_gradients(m);
	if (how) {
		assert_true(pass_simplify(m, &d));
		sound(m, t, "simplify again");
	}
	e = eval_new(mem, m, 7);
	eval_init(plain);
	eval_init(e);
	double loss = loss_of(e, t);
	assert_true(fabs(loss - loss_of(plain, t)) < 1e-12);
	for (uint32_t i = 0; i < forward->bufs.n; i++) {
		const char *name = forward->bufs.at[i]->name;

		if (forward->bufs.at[i]->role != B_PARAM || !mentions(t, name))
			continue;
		if (zero) /* where finite differences do not agree: detached */
			continue;
		compare(t, m, plain, e, name);
	}
	arena_free(mem);
}

static bool detached(const struct test *t)
{
	return strstr(t->text, "detach %1 ") || !strcmp(t->name, "sign");
}

static void check_all(const struct test *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (int how = 0; how < 3; how++)
			check(&t[i], how, detached(&t[i]));
}

static void pointwise_ops(void **state)
{
	(void)state;
	check_all(pointwise, LEN(pointwise));
}

static void tensor_ops(void **state)
{
	(void)state;
	check_all(tensors, LEN(tensors));
}

static void attention_op(void **state)
{
	(void)state;
	check_all(attention, LEN(attention));
}

static void repeats(void **state)
{
	(void)state;
	check_all(loops, LEN(loops));
}

/* x * detach(x): the gradient is x alone. */
static void detach_stops(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	static const struct test t = { "detach", "b, c",
		P "%6 = detach %1 : f32[b, c]\n%7 = sin %6 : f32[b, c]\n%90 = mul %1, %7 : f32[b, c]\n" };
	struct module *m = parse(mem, &t);
	struct diag d;

	diag_init(&d, mem, NULL, stderr);
	assert_true(pass_differentiate(m, &d));
	write_gradients(m);
	struct eval *e = eval_new(mem, m, 7);
	eval_init(e);
	struct tensor *x = eval_get(e, "p");
	loss_of(e, &t);
	struct tensor *g = eval_get(e, "p:grad");
	for (int64_t i = 0; i < x->count; i++)
		assert_true(fabs(g->x[i] - cos(x->x[i] * sin(x->x[i])) * sin(x->x[i])) < 1e-12);
	arena_free(mem);
}

/* Equal largest elements share the gradient. */
static void ties_share(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	static const struct test t = { "ties", "b",
		P "%6 = const {value=0} : f32[]\n%7 = mul %1, %6 : f32[b, c]\n%8 = add %7, %7 : f32[b, c]\n"
		"%9 = detach %1 : f32[b, c]\n%10 = sub %1, %9 : f32[b, c]\n%90 = rmax %10 : f32[b]\n" };
	struct module *m = parse(mem, &t);
	struct diag d;

	diag_init(&d, mem, NULL, stderr);
	assert_true(pass_differentiate(m, &d));
	write_gradients(m);
	struct eval *e = eval_new(mem, m, 7);
	eval_init(e);
	loss_of(e, &t);
	struct tensor *g = eval_get(e, "p:grad");
	for (int64_t i = 0; i < g->count; i++)
		assert_true(fabs(g->x[i] - 0.25) < 1e-12);
	arena_free(mem);
}

/* A param that the loss does not depend on has a gradient of zeros. */
static void unused_is_zero(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	static const struct test t = { "unused", "b, c", P R "%90 = sin %1 : f32[b, c]\n" };
	struct module *m = parse(mem, &t);
	struct diag d;

	diag_init(&d, mem, NULL, stderr);
	assert_true(pass_differentiate(m, &d));
	write_gradients(m);
	sound(m, &t, "differentiate");
	struct eval *e = eval_new(mem, m, 7);
	eval_init(e);
	loss_of(e, &t);
	struct tensor *g = eval_get(e, "r:grad");
	for (int64_t i = 0; i < g->count; i++)
		assert_true(g->x[i] == 0);
	arena_free(mem);
}

static struct op *find_op(struct block *block, enum opcode code, bool reverse)
{
	for (struct op *op = block->first; op; op = op->next)
		if (op->code == code && (op->at.reverse != 0) == reverse)
			return op;
	return NULL;
}

/* The mask of dropout is made again, not kept; the gradient of an invariant that is a param is not
 * seeded with what the param has from elsewhere. */
static void what_is_kept(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct diag d;

	diag_init(&d, mem, NULL, stderr);
	for (size_t i = 0; i < LEN(loops); i++) {
		struct module *m = parse(mem, &loops[i]);
		bool tied = !strcmp(loops[i].name, "tied thrice");

		if (!tied && strcmp(loops[i].name, "by iteration"))
			continue;
		assert_true(pass_differentiate(m, &d));
		struct op *fwd = find_op(&m->top, OP_REPEAT, false), *back = find_op(&m->top, OP_REPEAT, true);
		assert_ptr_equal(back->of, fwd);
		for (uint32_t k = 0; k < fwd->nout; k++)
			assert_true(is_float(fwd->out[k]->dt));
		if (!tied) {
			assert_non_null(find_op(back->body, OP_RNG, false));
			continue;
		}
		for (uint32_t k = 0; k < (uint32_t)back->at.ncarry; k++)
			if (has_dim(back->in[k], find_dim(m, "k")) && !has_dim(back->in[k], find_dim(m, "b")))
				assert_int_equal(back->in[k]->def->code, OP_CONST);
	}
	arena_free(mem);
}

/* Every op of a gradient says which forward op it is of, and stands in the backward section. */
static void of_and_phase(struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		if (op->phase != BACKWARD)
			continue;
		if (op->code != OP_ACCUM && op->code != OP_CONST && op->code != OP_MUL)
			assert_non_null(op->of);
		if (op->of)
			assert_int_equal(op->of->phase, FORWARD);
		if (op->body)
			of_and_phase(op->body);
	}
}

static void gradient_ops_are_marked(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(loops); i++) {
		struct arena *mem = arena_new();
		struct module *m = parse(mem, &loops[i]);
		struct diag d;

		diag_init(&d, mem, NULL, stderr);
		assert_true(pass_differentiate(m, &d));
		of_and_phase(&m->top);
		arena_free(mem);
	}
}

int main(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(pointwise_ops), cmocka_unit_test(tensor_ops),
		cmocka_unit_test(attention_op), cmocka_unit_test(repeats),
		cmocka_unit_test(detach_stops), cmocka_unit_test(ties_share),
		cmocka_unit_test(unused_is_zero), cmocka_unit_test(what_is_kept),
		cmocka_unit_test(gradient_ops_are_marked),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
