/* Reshard chains, nested padding, and what microbatches allow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/rng.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "passes/reshard.h"
#include "tests/unit/chains.h"

/* -- the least that any chain sends, by Dijkstra over shardings -- */

enum { MOST_STATES = 40000 };

struct node {
	struct sharding sh;
	double sent, peak; /* peak: the most elements that a rank holds on the way */
	bool done;
};

struct search {
	const struct module *m;
	int nd, n;
	const dimid *d;
	struct node *node;
};

static void relax(struct search *s, const struct node *from, const struct sharding *to, double sent)
{
	double total = from->sent + sent, held = shard_elements(s->m, s->nd, s->d, to);
	int i = 0;

	while (i < s->n && !sharding_equal(&s->node[i].sh, to, s->nd))
		i++;
	if (i == s->n) {
		assert_true(s->n < MOST_STATES);
		s->node[s->n++] = (struct node){ *to, total + 1, 0, false };
	}
	if (total < s->node[i].sent) {
		s->node[i].sent = total;
		s->node[i].peak = fmax(from->peak, held);
	}
}

static void moves(struct search *s, const struct node *at)
{
	double held = shard_elements(s->m, s->nd, s->d, &at->sh);
	uint32_t used = sharding_axes(&at->sh, s->nd) | at->sh.sum;

	for (int i = 0; i < s->nd; i++)
		for (uint32_t a = 0; a < s->m->axes.n; a++) {
			struct sharding to = at->sh;
			bool owed = to.sum >> a & 1;

			if (!owed && used >> a & 1)
				continue;
			axes_push(&to.on[i], (int)a);
			to.sum &= ~(1u << a);
			relax(s, at, &to, owed ? shard_elements(s->m, s->nd, s->d, &to) * (s->m->axes.at[a].size - 1) : 0);
		}
	for (int i = 0; i < s->nd; i++) {
		struct sharding to = at->sh;

		if (!to.on[i].n)
			continue;
		int a = to.on[i].a[--to.on[i].n];
		double k = s->m->axes.at[a].size;
		relax(s, at, &to, held * (k - 1));
		for (int e = 0; e < s->nd; e++) {
			struct sharding moved = to;

			if (e == i)
				continue;
			axes_push(&moved.on[e], a);
			relax(s, at, &moved, shard_elements(s->m, s->nd, s->d, &moved) * (k - 1) / k);
		}
	}
	for (uint32_t set = at->sh.sum; set; set = (set - 1) & at->sh.sum) {
		struct sharding to = at->sh;
		double k = (double)group_size(s->m, set);

		to.sum &= ~set;
		relax(s, at, &to, 2 * (k - 1) / k * held);
	}
}

static struct node cheapest(struct arena *mem, const struct module *m, int nd, const dimid *d,
			    const struct sharding *src, const struct sharding *dst)
{
	struct search s = { m, nd, 1, d, NEWN(mem, struct node, MOST_STATES) };

	s.node[0] = (struct node){ *src, 0, shard_elements(m, nd, d, src), false };
	for (;;) {
		struct node *best = NULL;

		for (int i = 0; i < s.n; i++)
			if (!s.node[i].done && (!best || s.node[i].sent < best->sent))
				best = &s.node[i];
		assert_non_null(best);
		if (sharding_equal(&best->sh, dst, nd))
			return *best;
		best->done = true;
		struct node at = *best;
		moves(&s, &at);
	}
}

/* -- 2,000 random pairs -- */

static double sent_by(const struct module *m, int nd, const dimid *d, const struct sharding *src,
		      const struct chain *c, double *peak)
{
	const struct sharding *before = src;
	double sum = 0;

	*peak = shard_elements(m, nd, d, src);
	for (int i = 0; i < c->n; i++) {
		const struct reshard *r = &c->step[i];
		double in = shard_elements(m, nd, d, before), out = shard_elements(m, nd, d, &r->sh), k = 1;

		for (int x = 0; x < r->axes.n; x++)
			k *= m->axes.at[r->axes.a[x]].size;
		sum += r->code == OP_ALL_GATHER ? in * (k - 1) : r->code == OP_REDUCE_SCATTER ? out * (k - 1) :
		       r->code == OP_ALL_TO_ALL ? out * (k - 1) / k : r->code == OP_ALL_REDUCE ? 2 * (k - 1) / k * in : 0;
		*peak = fmax(*peak, out);
		before = &r->sh;
	}
	return sum;
}

static void chains(void **state)
{
	double sum = 0, least = 0, worst = 1;
	int searched = 0, replicated = 0, above = 0;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		struct arena *mem = arena_new();
		int n = 1 + rnd(4), size[4], nd = 1 + rnd(3), ranks = 1;
		int64_t dims[3];
		dimid d[3];
		double peak;

		for (int k = 0; k < n; k++) {
			size[k] = 2 + rnd(3);
			if (ranks * size[k] > 32)
				size[k] = 1;
			ranks *= size[k];
		}
		for (int k = 0; k < nd; k++)
			dims[k] = 1 + rnd(17);
		struct module *m = mesh_of(mem, n, size, nd, dims, d);
		struct sharding src = random_sharding(m, nd, true), dst = random_sharding(m, nd, false);
		struct chain c = reshard_best(m, nd, d, F32, &src, &dst);
		assert_true(c.seconds < 1e30);
		assert_true(run_chain(mem, m, nd, d, &src, &c));
		double sent = sent_by(m, nd, d, &src, &c, &peak);
		if (i < 700) { /* the search is slow */
			struct node best = cheapest(mem, m, nd, d, &src, &dst);
			double all = shard_elements(m, nd, d, &(struct sharding){ .sum = 0 });

			assert_true(sent >= best.sent - 1e-9);
			replicated += peak == all && best.peak < all;
			above += sent > best.sent + 1e-9;
			if (best.sent > 0 && sent / best.sent > worst)
				worst = sent / best.sent;
			sum += sent;
			least += best.sent;
			searched++;
		}
		arena_free(mem);
	}
	printf("2000 chains right; of %d, %d send more than the best chain (in all %.4f times, at most %.3f times), "
	       "%d replicate where it does not\n", searched, above, sum / least, worst, replicated);
	assert_int_equal(replicated, 0);
	assert_true(sum <= 1.05 * least); /* the rest is padding, which the greedy chain does not see */
}

static struct chain chain_of(const struct module *m, int nd, const dimid *d, struct sharding src, struct sharding dst)
{
	return reshard_best(m, nd, d, F32, &src, &dst);
}

/* The two, and the order of pitfall "[E, X] + dp + ep -> X@ep". */
static void known_chains(void **state)
{
	struct arena *mem = arena_new();
	int size[2] = { 2, 4 };
	int64_t dims[2] = { 8, 8 };
	dimid d[2];
	struct module *m = mesh_of(mem, 2, size, 2, dims, d);
	struct axes w = { .n = 1, .a = { 0 } }, x = { .n = 1, .a = { 1 } }, wx = { .n = 2, .a = { 0, 1 } };

	(void)state;
	struct chain c = chain_of(m, 2, d, (struct sharding){ .on = { w } }, (struct sharding){ .on = { { 0 }, w } });
	assert_int_equal(c.n, 1);
	assert_int_equal(c.step[0].code, OP_ALL_TO_ALL);
	c = chain_of(m, 2, d, (struct sharding){ .on = { wx } }, (struct sharding){ .on = { x, w } });
	struct sharding src = { .on = { wx } };
	double peak, sent = sent_by(m, 2, d, &src, &c, &peak);
	assert_true(sent <= 24 + 16); /* gather x, move w, cut x */
	assert_true(peak < 64);
	c = chain_of(m, 2, d, (struct sharding){ .sum = 3 }, (struct sharding){ .on = { { 0 }, x } });
	assert_int_equal(c.n, 2);
	assert_int_equal(c.step[0].code, OP_REDUCE_SCATTER);
	assert_int_equal(c.step[1].code, OP_ALL_REDUCE);
	c = chain_of(m, 2, d, (struct sharding){ .sum = 3 }, (struct sharding){ .sum = 0 });
	assert_int_equal(c.n, 1); /* one group */
	c = chain_of(m, 2, d, (struct sharding){ .sum = 0 }, (struct sharding){ .on = { w }, .sum = 2 });
	assert_true(c.free);
	arena_free(mem);
}

/* -- padding nests (docs/SHARDING.md) -- */

static void padding(void **state)
{
	static const int want10[4][2] = { { 0, 3 }, { 3, 2 }, { 5, 3 }, { 8, 2 } };
	struct arena *mem = arena_new();
	int size[3] = { 2, 2, 8 };
	int64_t dims[2] = { 10, 9 };
	dimid d[2];
	struct module *m = mesh_of(mem, 3, size, 2, dims, d);
	struct axes two = { .n = 2, .a = { 0, 1 } }, eight = { .n = 1, .a = { 2 } };

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct extent e = extent_of(m, d[0], &two, (int[]){ i / 2, i % 2, 0 });

		assert_int_equal(e.start, want10[i][0]);
		assert_int_equal(e.valid, want10[i][1]);
		assert_int_equal(e.cap, 3);
	}
	for (int i = 0; i < 8; i++) {
		struct extent e = extent_of(m, d[1], &eight, (int[]){ 0, 0, i });

		assert_int_equal(e.valid, i < 4 ? 2 : i == 4);
		assert_int_equal(e.cap, 2);
	}
	/* a gather of the inner axis trims: 3 + 3 becomes 5 */
	struct sharding from = { .on = { two, eight } }, to = { .on = { { .n = 1, .a = { 0 } } } };
	struct chain c = reshard_best(m, 2, d, F32, &from, &to);
	assert_int_equal(c.n, 2);
	assert_int_equal(cap_of(m, d[0], &c.step[1].sh.on[0]), 5);
	assert_true(run_chain(mem, m, 2, d, &from, &c));
	arena_free(mem);
}

/* -- microbatches -- */

static const char head[] =
	"dim batch=8\ndim seq=3\ndim ctx=3\ndim other=8\ndim c=4\ndim v=5\ndim layers=2\ndim inner=2\n"
	"buffer @\"x\" input f32[batch, seq, c]\n"
	"buffer @\"t\" input int[batch, seq] tokens=5\n"
	"buffer @\"w\" param f32[c, v] init=normal(0.5)\n"
	"buffer @\"g\" param f32[c] init=normal(0.5)\n"
	"buffer @\"temp\" param f32[] init=constant(0.7)\n"
	"buffer @\"l\" param f32[layers, c] init=normal(0.5)\n"
	"buffer @\"u\" param f32[v] init=normal(0.5)\n"
	"arrow batch -> dp\narrow v -> tp\narrow optimizer -> dp\n"
	"forward:\n"
	"%1 = read {buf=\"x\"} : f32[batch, seq, c] !0:1:1:1\n"
	"%2 = read {buf=\"t\"} : int[batch, seq] !0:1:1:1\n"
	"%3 = read {buf=\"w\"} : f32[c, v] !0:1:1:1\n"
	"%4 = read {buf=\"g\"} : f32[c] !0:1:1:1\n"
	"%5 = read {buf=\"temp\"} : f32[] !0:1:1:1\n"
	"%6 = read {buf=\"l\"} : f32[layers, c] !0:1:1:1\n"
	"%19 = read {buf=\"u\"} : f32[v] !0:1:1:1\n"
	"%7 = const {value=0.125} : f32[]\n"
	"%8 = const {value=0} : f32[]\n"
	"%9 = const {value=1} : f32[]\n";

/* %z, %n: the sum of the negative log likelihoods of h @ w, of at most 5 classes, and the number of labels. */
#define NLL(h) \
	"%20 = einsum " h ", %3 : f32[batch, seq, v] \"z\" !0:2:1:1\n" \
	"%21 = rmax %20 : f32[batch, seq] !0:2:1:1\n%22 = detach %21 : f32[batch, seq] !0:2:1:1\n" \
	"%23 = sub %20, %22 : f32[batch, seq, v] !0:2:1:1\n%24 = exp %23 : f32[batch, seq, v] !0:2:1:1\n" \
	"%25 = sum %24 : f32[batch, seq] !0:2:1:1\n%26 = log %25 : f32[batch, seq] !0:2:1:1\n" \
	"%27 = add %26, %22 : f32[batch, seq] !0:2:1:1\n%28 = index {dim=v} : int[v]\n" \
	"%29 = eq %2, %28 : bool[batch, seq, v] !0:2:1:1\n%30 = where %29, %20, %8 : f32[batch, seq, v] !0:2:1:1\n" \
	"%31 = sum %30 : f32[batch, seq] !0:2:1:1\n%32 = sub %27, %31 : f32[batch, seq] !0:2:1:1\n" \
	"%33 = const {value=-100} : int[]\n%34 = ne %2, %33 : bool[batch, seq] !0:2:1:1\n" \
	"%35 = where %34, %32, %8 : f32[batch, seq] !0:2:1:1\n%36 = sum %35 : f32[] !0:2:1:1\n" \
	"%37 = cast %34 : f32[batch, seq] !0:2:1:1\n%38 = sum %37 : f32[] !0:2:1:1\n" \
	"%39 = max %38, %9 : f32[] !0:2:1:1\n"
#define CE NLL("%1") "%40 = div %36, %39 : f32[] \"ce\" !0:2:1:1\n"
#define MEAN_G "%50 = mul %1, %4 : f32[batch, seq, c] !0:3:1:1\n%51 = sum %50 : f32[] \"m\" !0:3:1:1\n"

static const struct {
	const char *name, *text; /* makes %90, the loss */
	int sum, use;            /* lines that a refusal names; 0: accepted */
} cases[] = {
	{ "cross entropy", CE "%90 = mul %40, %9 : f32[]\n", 0, 0 },
	{ "times a param", CE "%90 = mul %40, %5 : f32[]\n", 0, 0 },
	{ "weight penalty", CE "%41 = mul %3, %3 : f32[c, v]\n%42 = sum %41 : f32[]\n%90 = add %40, %42 : f32[]\n", 0, 0 },
	{ "aux per sequence", CE
	  "%41 = sum %20 : f32[batch, v]\n%42 = mul %41, %41 : f32[batch, v]\n%43 = sum %42 : f32[]\n"
	  "%44 = mul %43, %7 : f32[]\n%90 = add %40, %44 : f32[]\n", 0, 0 },
	{ "input mean times a sum", CE
	  "%41 = sum %1 : f32[c]\n%42 = mul %41, %7 : f32[c]\n%43 = mul %1, %4 : f32[batch, seq, c]\n"
	  "%44 = sin %43 : f32[batch, seq, c]\n%45 = sum %44 : f32[c]\n%46 = mul %42, %45 : f32[c]\n"
	  "%47 = sum %46 : f32[]\n"
	  "%90 = add %40, %47 : f32[]\n", 0, 0 },
	{ "inputs centred over the batch",
	  "%10 = sum %1 : f32[seq, c]\n%11 = mul %10, %7 : f32[seq, c]\n%12 = sub %1, %11 : f32[batch, seq, c]\n"
	  NLL("%12") "%90 = div %36, %39 : f32[]\n", 0, 0 },
	{ "a plain sum", MEAN_G "%90 = mul %51, %7 : f32[]\n", 0, 0 },
	{ "aux carried by a repeat",
	  "%10, %11 = repeat %1, %8, %6 {dim=layers, ncarry=2, nwith=0} : f32[batch, seq, c] \"h\", f32[] \"aux\" {\n"
	  "args %12: f32[batch, seq, c] \"h\", %13: f32[] \"aux\", %14: f32[c]\n"
	  "%15 = mul %12, %14 : f32[batch, seq, c]\n"
	  "%16 = tanh %15 : f32[batch, seq, c] \"h\"\n%17 = mul %16, %16 : f32[batch, seq, c]\n%18 = sum %17 : f32[]\n"
	  "%69 = add %13, %18 : f32[] \"aux\"\nyield %16, %69\n}\n"
	  NLL("%10") "%40 = div %36, %39 : f32[]\n%41 = mul %11, %7 : f32[]\n%90 = add %40, %41 : f32[]\n", 0, 0 },
	{ "labels counted in a repeat",
	  "%10, %11 = repeat %1, %8, %2, %6 {dim=layers, ncarry=2, nwith=1} : f32[batch, seq, c] \"h\", f32[] \"aux\" {\n"
	  "args %12: f32[batch, seq, c] \"h\", %13: f32[] \"aux\", %61: int[batch, seq], %14: f32[c]\n"
	  "%15 = mul %12, %14 : f32[batch, seq, c]\n%16 = tanh %15 : f32[batch, seq, c] \"h\"\n"
	  "%62 = const {value=-100} : int[]\n%63 = ne %61, %62 : bool[batch, seq]\n%64 = cast %63 : f32[batch, seq]\n"
	  "%65 = sum %64 : f32[]\n%66 = mul %16, %64 : f32[batch, seq, c]\n%67 = sum %66 : f32[]\n"
	  "%68 = div %67, %65 : f32[]\n"
	  "%69 = add %13, %68 : f32[] \"aux\"\nyield %16, %69\n}\n"
	  NLL("%10") "%40 = div %36, %39 : f32[]\n%90 = add %40, %11 : f32[]\n", 0, 0 },
	{ "metrics", CE MEAN_G
	  "%41 = div %51, %36 : f32[]\nreport %41 {key=\"ratio\"}\n%42 = sum %20 : f32[v]\n"
	  "%43 = mul %42, %42 : f32[v]\n"
	  "%44 = sum %43 : f32[]\nreport %44 {key=\"square\"}\n%90 = mul %40, %9 : f32[]\n", 0, 0 },
	{ "a loop of inputs", /* made again in the prologue */
	  "%10 = repeat %1 {dim=layers, ncarry=1, nwith=0} : f32[batch, seq, c] {\nargs %11: f32[batch, seq, c]\n"
	  "%12 = tanh %11 : f32[batch, seq, c]\nyield %12\n}\n%13 = sum %10 : f32[c]\n%14 = mul %13, %7 : f32[c]\n"
	  "%15 = sub %1, %14 : f32[batch, seq, c]\n" NLL("%15") "%90 = div %36, %39 : f32[]\n", 0, 0 },
	{ "a loop of inputs and others", /* half of it is */
	  "%10, %61 = repeat %1, %1, %6 {dim=layers, ncarry=2, nwith=0} : f32[batch, seq, c], f32[batch, seq, c] {\n"
	  "args %11: f32[batch, seq, c], %62: f32[batch, seq, c], %63: f32[c]\n%12 = tanh %11 : f32[batch, seq, c]\n"
	  "%64 = mul %62, %63 : f32[batch, seq, c]\n%65 = mul %64, %12 : f32[batch, seq, c]\nyield %12, %65\n}\n"
	  "%13 = sum %10 : f32[c]\n%14 = mul %13, %7 : f32[c]\n%15 = sub %61, %14 : f32[batch, seq, c]\n"
	  NLL("%15") "%90 = div %36, %39 : f32[]\n", 0, 0 },
	{ "one distribution for all", /* the gradient needs sums of inputs only */
	  "%10 = rmax %19 : f32[]\n%11 = detach %10 : f32[]\n%12 = sub %19, %11 : f32[v]\n%13 = exp %12 : f32[v]\n"
	  "%14 = sum %13 : f32[]\n%15 = log %14 : f32[]\n%16 = add %15, %11 : f32[]\n%17 = index {dim=v} : int[v]\n"
	  "%18 = eq %2, %17 : bool[batch, seq, v]\n%61 = where %18, %19, %8 : f32[batch, seq, v]\n"
	  "%62 = sum %61 : f32[batch, seq]\n"
	  "%63 = sub %16, %62 : f32[batch, seq]\n%65 = const {value=-100} : int[]\n"
	  "%66 = ne %2, %65 : bool[batch, seq]\n"
	  "%67 = where %66, %63, %8 : f32[batch, seq]\n%64 = sum %67 : f32[]\n"
	  "%68 = cast %66 : f32[batch, seq]\n%69 = sum %68 : f32[]\n%90 = div %64, %69 : f32[]\n", 0, 0 },
	{ "a position along the batch", /* of params only, but with the batch dim */
	  "%10 = index {dim=batch} : int[batch]\n%11 = cast %10 : f32[batch]\n%12 = mul %11, %7 : f32[batch]\n"
	  "%13 = mul %12, %4 : f32[batch, c]\n%14 = tanh %13 : f32[batch, c] \"p\"\n"
	  "%15 = add %1, %14 : f32[batch, seq, c]\n"
	  NLL("%15") "%41 = mul %14, %14 : f32[batch, c]\n%42 = sum %41 : f32[]\n%43 = add %36, %42 : f32[]\n"
	  "%90 = mul %43, %7 : f32[]\n", 0, 0 },
	{ "an invariant of nested loops",
	  "%61 = tanh %4 : f32[c]\n%10 = repeat %1, %61 {dim=layers, ncarry=1, nwith=1} : f32[batch, seq, c] {\n"
	  "args %11: f32[batch, seq, c], %12: f32[c]\n"
	  "%13 = repeat %11, %12 {dim=inner, ncarry=1, nwith=1} : f32[batch, seq, c] {\n"
	  "args %14: f32[batch, seq, c], %15: f32[c]\n%16 = mul %14, %15 : f32[batch, seq, c]\n"
	  "%17 = sin %16 : f32[batch, seq, c]\n"
	  "yield %17\n}\nyield %13\n}\n" NLL("%10") "%90 = div %36, %39 : f32[]\n", 0, 0 },
	{ "attention with split values", /* lse is whole */
	  "%10 = mul %1, %4 : f32[batch, seq, c]\n%11 = rename %10 {dims=(seq), tos=(ctx)} : f32[batch, ctx, c]\n"
	  "%12 = einsum %11, %3 : f32[batch, ctx, v] \"values\"\n"
	  "%13, %14 = attention %10, %11, %12 {dim=c, ctx=ctx, causal=seq, scale=0.5} : f32[batch, seq, v], f32[batch, seq]\n"
	  "%15 = mul %13, %13 : f32[batch, seq, v]\n%16 = sum %15 : f32[]\n%90 = mul %16, %7 : f32[]\n", 0, 0 },
	{ "attention by params", /* q and k know no batch, v does */
	  "%10 = einsum %4, %3 : f32[v]\n%11 = index {dim=seq} : int[seq]\n%12 = cast %11 : f32[seq]\n"
	  "%13 = mul %12, %10 : f32[seq, v]\n%14 = tanh %13 : f32[seq, v]\n"
	  "%15 = rename %14 {dims=(seq), tos=(ctx)} : f32[ctx, v]\n"
	  "%16 = rename %1 {dims=(seq), tos=(ctx)} : f32[batch, ctx, c]\n%17 = mul %16, %4 : f32[batch, ctx, c]\n"
	  "%61, %62 = attention %14, %15, %17 {dim=v, ctx=ctx, scale=0.5} : f32[seq, batch, c], f32[seq]\n"
	  "%63 = mul %61, %61 : f32[seq, batch, c]\n%64 = sum %63 : f32[]\n%90 = mul %64, %7 : f32[]\n", 0, 0 },
	{ "a loop of params", /* its cotangent is a sum over the batch */
	  "%10 = repeat %4, %6 {dim=layers, ncarry=1, nwith=0} : f32[c] \"a\" {\nargs %11: f32[c] \"a\", %12: f32[c]\n"
	  "%13 = add %11, %12 : f32[c] \"a\"\nyield %13\n}\n%15 = mul %1, %10 : f32[batch, seq, c]\n"
	  NLL("%15") "%90 = div %36, %39 : f32[]\n", 0, 0 },
	{ "a sum spread again in a loop", /* cotangents that lack dims of what they are added to */
	  "%10, %61 = repeat %1, %8, %3 {dim=layers, ncarry=2, nwith=1} : f32[batch, seq, c] \"h\", f32[] {\n"
	  "args %11: f32[batch, seq, c] \"h\", %62: f32[], %63: f32[c, v]\n%12 = sin %11 : f32[batch, seq, c] \"h\"\n"
	  "%64 = mul %12, %63 : f32[batch, seq, c, v]\n%65 = sum %64 : f32[]\n%66 = add %62, %65 : f32[]\n"
	  "yield %12, %66\n}\n"
	  NLL("%10") "%40 = div %36, %39 : f32[]\n%41 = mul %61, %7 : f32[]\n%90 = add %40, %41 : f32[]\n", 0, 0 },
	{ "the maximum of a sum", /* backward compares with the very same elements */
	  "%10 = einsum %1, %3 : f32[batch, seq, v]\n%11 = einsum %10, %3 : f32[batch, seq, c]\n"
	  "%12 = index {dim=c} : int[c]\n"
	  "%13 = cast %12 : f32[c]\n%14 = mul %13, %7 : f32[c]\n%15 = add %11, %14 : f32[batch, seq, c]\n"
	  "%16 = rmax %15 : f32[batch, seq]\n%17 = sin %16 : f32[batch, seq]\n%18 = sum %17 : f32[]\n"
	  "%90 = mul %18, %7 : f32[]\n", 0, 0 },
	{ "batch norm",
	  "%10 = mul %1, %4 : f32[batch, seq, c]\n%11 = sum %10 : f32[c] !0:5:1:1\n"
	  "%12 = mul %11, %7 : f32[c] !0:5:1:1\n"
	  "%13 = sub %10, %12 : f32[batch, seq, c] !0:6:1:1\n" NLL("%13") "%90 = div %36, %39 : f32[] !0:7:1:1\n", 5, 6 },
	{ "sum times sum", CE
	  "%41 = sum %20 : f32[v] !0:5:1:1\n%42 = mul %20, %20 : f32[batch, seq, v] !0:6:1:1\n"
	  "%43 = sum %42 : f32[v] !0:6:1:1\n"
	  "%44 = mul %41, %43 : f32[v] !0:7:1:1\n%45 = sum %44 : f32[] !0:7:1:1\n"
	  "%90 = add %40, %45 : f32[] !0:8:1:1\n", 5, 7 },
	{ "weights of the model", NLL("%1")
	  "%41 = mul %1, %4 : f32[batch, seq, c]\n%42 = sum %41 : f32[] !0:5:1:1\n"
	  "%90 = div %36, %42 : f32[] !0:6:1:1\n", 5, 6 },
	{ "exp of a mean", MEAN_G "%52 = mul %51, %7 : f32[] !0:4:1:1\n%90 = exp %52 : f32[] !0:5:1:1\n", 3, 5 },
	{ "gram squared",
	  "%10 = mul %1, %4 : f32[batch, seq, c] !0:4:1:1\n%11 = sum %10 : f32[batch, c] !0:4:1:1\n"
	  "%12 = einsum %11, %10 : f32[seq, c] !0:5:1:1\n%13 = mul %12, %12 : f32[seq, c] !0:6:1:1\n"
	  "%90 = sum %13 : f32[] !0:7:1:1\n", 5, 6 },
	{ "rename along batch",
	  "%10 = mul %1, %4 : f32[batch, seq, c] !0:5:1:1\n"
	  "%11 = rename %10 {dims=(batch), tos=(other)} : f32[other, seq, c] !0:6:1:1\n"
	  "%12 = einsum %10, %11 : f32[batch, other] !0:7:1:1\n%90 = sum %12 : f32[] !0:8:1:1\n", 5, 6 },
	{ "carried sum fed back",
	  "%10, %11 = repeat %1, %8, %6 {dim=layers, ncarry=2, nwith=0} : f32[batch, seq, c] \"h\", f32[] \"aux\" !0:4:1:1 {\n"
	  "args %12: f32[batch, seq, c] \"h\", %13: f32[] \"aux\", %14: f32[c]\n"
	  "%15 = mul %12, %14 : f32[batch, seq, c] !0:5:1:1\n%16 = add %15, %13 : f32[batch, seq, c] \"h\" !0:6:1:1\n"
	  "%18 = sum %16 : f32[] \"aux\" !0:7:1:1\nyield %16, %18\n}\n%90 = sum %10 : f32[] !0:8:1:1\n", 7, 6 },
};

/* The case on a mesh, with micro microbatches. */
static char *text_of(struct arena *mem, size_t i, int micro, int dp, int tp)
{
	static const char *const params[] = { "w", "g", "temp", "l", "u" };
	struct text t = { .mem = mem };

	text_put(&t, "ptc-ir 1\nmodule \"m\" form=logical precision=f32 micro=%d batch=batch workspace=0\n"
		     "source 0 \"m.pdsl\"\nmesh dp=%d\nmesh tp=%d\n%s%sreport %%90 {key=\"loss\"}\n", micro, dp, tp, head,
		 cases[i].text);
	for (size_t k = 0; k < LEN(params); k++)
		text_put(&t, "minimize %%90, %%7, %%8, %%8 {buf=\"%s\", opt=\"sgd\", group=0}\n", params[k]);
	return t.s;
}

static struct module *compile(struct arena *mem, const char *text, struct diag *d)
{
	struct pass_options opt = { .stop_after = "partition", .verify = true };
	struct module *m = module_parse(mem, "case", text, strlen(text), d);

	return m && run_passes(m, d, &opt) ? m : NULL;
}

static struct eval *step_of(struct arena *mem, const struct module *m, int valid)
{
	struct eval *e = eval_new(mem, m, 11);
	struct tensor *x = tensor_new(mem, 3, (int64_t[]){ 8, 3, 4 }), *t = tensor_new(mem, 2, (int64_t[]){ 8, 3 });
	const char *why = NULL;

	for (int64_t i = 0; i < x->count; i++)
		x->x[i] = sin(1.3 * (double)i);
	for (int64_t i = 0; i < t->count; i++)
		t->x[i] = i < valid ? (double)(i * 7 % 5) : -100;
	eval_init(e);
	eval_set(e, "x", x);
	eval_set(e, "t", t);
	if (!eval_step(e, 0, true, NULL, &why))
		fail_msg("%s", why);
	return e;
}

static void same(struct arena *mem, struct eval *a, struct eval *b, const struct module *m)
{
	(void)mem;
	assert_int_equal(eval_reports(a), eval_reports(b));
	for (int i = 0; i < eval_reports(a); i++) {
		double y = eval_report(a, eval_report_key(a, i), NULL), x = eval_report(b, eval_report_key(a, i), NULL);

		if (!(fabs(x - y) <= 1e-12 * fmax(1, fabs(y))))
			fail_msg("%s is %.17g, should be %.17g", eval_report_key(a, i), x, y);
	}
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		struct tensor *x, *y;

		if (m->bufs.at[i]->role == B_INPUT)
			continue;
		x = eval_get(b, m->bufs.at[i]->name);
		y = eval_get(a, m->bufs.at[i]->name);
		for (int64_t k = 0; k < x->count; k++)
			if (!(fabs(x->x[k] - y->x[k]) <= 1e-12 * fmax(1, fabs(y->x[k]))))
				fail_msg("%s: %.17g, should be %.17g", m->bufs.at[i]->name, x->x[k], y->x[k]);
	}
}

/* The update is p - 0.125 g: equal params after the step are equal gradients. */
static void accepted(void **state)
{
	static const int meshes[][3] = { /* microbatches, dp, tp */
		{ 1, 1, 1 }, { 2, 1, 1 }, { 4, 1, 1 }, { 8, 1, 1 }, { 2, 2, 2 }, { 4, 2, 2 }, { 4, 3, 1 },
	};

	(void)state;
	for (size_t i = 0; i < LEN(cases); i++) {
		if (cases[i].sum || cases[i].use)
			continue;
		for (int valid = 2; valid <= 24; valid += 11) { /* some microbatches without labels */
			struct arena *mem = arena_new();
			struct diag d;

			diag_init(&d, mem, NULL, stdout);
			struct module *one = compile(mem, text_of(mem, i, 1, 1, 1), &d);
			assert_non_null(one);
			struct eval *want = step_of(mem, one, valid);
			for (size_t k = 0; k < LEN(meshes); k++) {
				struct module *m = compile(mem, text_of(mem, i, meshes[k][0], meshes[k][1], meshes[k][2]), &d);

				if (!m)
					fail_msg("%s: refused", cases[i].name);
				same(mem, want, step_of(mem, m, valid), one);
			}
			arena_free(mem);
		}
	}
}

/* Refused with both lines named; with one microbatch all is allowed. */
static void refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(cases); i++) {
		struct arena *mem = arena_new();
		struct diag d;

		diag_init(&d, mem, NULL, NULL);
		if (cases[i].sum > 0 || cases[i].use > 0) {
			assert_non_null(compile(mem, text_of(mem, i, 1, 2, 1), &d));
			assert_null(compile(mem, text_of(mem, i, 4, 2, 1), &d));
			assert_int_equal(d.errors, 1);
			if (!strstr(d.log.s, arena_printf(mem, "line %d", cases[i].sum)) ||
			    !strstr(d.log.s, arena_printf(mem, "line %d", cases[i].use)))
				fail_msg("%s: lines %d and %d are not named", cases[i].name, cases[i].sum, cases[i].use);
		}
		arena_free(mem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chains), cmocka_unit_test(known_chains), cmocka_unit_test(padding),
		cmocka_unit_test(accepted), cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
