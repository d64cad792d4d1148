/* Generated kernels, case by case, against the reference evaluator: see test_codegen.h. */
#include "tests/unit/test_codegen.h"

static void check(const char *text, int kernels)
{
	check_tol("micro=1", text, kernels, 2e-6);
}

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

/* Rows that are many and wide: on a GPU the list is put in order first. With dims that the result and the indices share; with
 * few rows that are named often, and many that are not; with what is summed away. */
static void test_scatter_in_order(void **state)
{
	(void)state;
	check("mesh dp=2\nmesh tp=3\ndim b=5\ndim s=7\ndim v=401\ndim e=40\ndim k=3\n"
	      "buffer @\"t\" input int[b, s] tokens=401\nbuffer @\"few\" input int[s] tokens=3\n"
	      "buffer @\"dy\" param f32[b@dp, s, e] init=normal(1)\n"
	      "buffer @\"dz\" param f32[s, k, e] init=normal(1)\n"
	      "buffer @\"q\" opt f32[v@tp, e] init=zeros\nbuffer @\"r\" opt f32[b@dp, v, e] init=zeros\n"
	      "buffer @\"f\" opt f32[v, e] init=zeros\n"
	      "forward:\n"
	      "%0 = read {buf=\"t\"} : int[b@dp, s]\n%1 = read {buf=\"few\"} : int[s]\n"
	      "%2 = read {buf=\"dy\"} : f32[b@dp, s, e]\n%3 = read {buf=\"dz\"} : f32[s, k, e]\n"
	      "%4 = scatter_add %2, %0 {dims=(v)} : f32[v@tp, e]+dp\n"
	      "%5 = all_reduce %4 {axes=(dp)} : f32[v@tp, e]\nwrite %5 {buf=\"q\"}\n"
	      "%6 = scatter_add %2, %0 {dims=(v)} : f32[b@dp, v, e]\nwrite %6 {buf=\"r\"}\n"
	      "%7 = scatter_add %3, %1 {dims=(v)} : f32[v, e]\nwrite %7 {buf=\"f\"}\n", -1);
	/* the order of the list, which names row 0 by 1e8, -1e8 and 1 (0, 3, 6: as check fills inputs): backwards 1 is lost beside 1e8 */
	check("mesh dp=2\ndim s=7\ndim v=401\ndim e=40\nbuffer @\"t\" input int[s] tokens=1\nbuffer @\"one\" param f32[s, e] init=ones\n"
	      "buffer @\"f\" opt f32[v, e] init=zeros\nforward:\n"
	      "%0 = read {buf=\"t\"} : int[s]\n%1 = read {buf=\"one\"} : f32[s, e]\n%2 = index {dim=s} : int[s]\n"
	      "%3 = const {value=0} : int[]\n%4 = const {value=3} : int[]\n%5 = const {value=1e8} : f32[]\n%6 = const {value=-1e8} : f32[]\n"
	      "%7 = const {value=1} : f32[]\n%8 = eq %2, %3 : bool[s]\n%9 = eq %2, %4 : bool[s]\n%10 = where %9, %6, %7 : f32[s]\n"
	      "%11 = where %8, %5, %10 : f32[s]\n%12 = mul %1, %11 : f32[s, e]\n"
	      "%13 = scatter_add %12, %0 {dims=(v)} : f32[v, e]\nwrite %13 {buf=\"f\"}\n", -1);
	/* a list of several blocks of the sort; rows that are few and wide look through theirs */
	check("dim b=3\ndim s=100\ndim v=3000\ndim e=40\ndim f=4\nbuffer @\"t\" input int[b, s] tokens=3000\n"
	      "buffer @\"u\" input int[b, s] tokens=4\nbuffer @\"dy\" param f32[b, s, e] init=normal(1)\n"
	      "buffer @\"q\" opt f32[v, e] init=zeros\nbuffer @\"r\" opt f32[f, e] init=zeros\nforward:\n"
	      "%0 = read {buf=\"t\"} : int[b, s]\n%1 = read {buf=\"u\"} : int[b, s]\n%2 = read {buf=\"dy\"} : f32[b, s, e]\n"
	      "%3 = scatter_add %2, %0 {dims=(v)} : f32[v, e]\nwrite %3 {buf=\"q\"}\n"
	      "%4 = scatter_add %2, %1 {dims=(f)} : f32[f, e]\nwrite %4 {buf=\"r\"}\n", -1);
#ifdef WITH_CUDA
	assert_true(puts_in_order);
#endif
}

/* Several reductions that share their threads: over columns, and over all of a long row in parts. */
static void test_shared_rooms(void **state)
{
	(void)state;
	check("dim a=700\ndim c=40\ndim n=9000\nbuffer @\"x\" param f32[a, c] init=normal(1)\nbuffer @\"z\" param f32[n] init=normal(1)\n"
	      "buffer @\"p\" opt f32[c] init=zeros\nbuffer @\"q\" opt f32[c] init=zeros\n"
	      "forward:\n%0 = read {buf=\"x\"} : f32[a, c]\n%1 = read {buf=\"z\"} : f32[n]\n"
	      "%2 = rmax %0 : f32[c]\nwrite %2 {buf=\"p\"}\n%3 = mul %0, %0 : f32[a, c]\n%4 = rmax %3 : f32[c]\nwrite %4 {buf=\"q\"}\n"
	      "%6 = rmax %1 : f32[]\n%7 = mul %1, %1 : f32[n]\n%8 = rmax %7 : f32[]\n%9 = mul %6, %8 : f32[]\nreport %9 {key=\"a\"}\n", -1);
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
	/* 8 neighbours a thread: two blocks of the generator */
	check("dim s=5\ndim e=64\nbuffer @\"x\" param bf16[s, e] init=normal(1)\nbuffer @\"y\" opt bf16[s, e] init=zeros\nforward:\n"
	      "%0 = rng {key=\"a#0\", dims=(s, e)} : f32[s, e]\n%1 = read {buf=\"x\"} : bf16[s, e]\n%2 = cast %1 : f32[s, e]\n"
	      "%3 = mul %2, %0 : f32[s, e]\n%4 = cast %3 : bf16[s, e]\nwrite %4 {buf=\"y\"}\n", -1);
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

/* What is made of an operand in two results, the second by way of a value of fewer dims: the first is not stored before the
 * second has read the operand on which it may lie. */
static void test_made_between(void **state)
{
	(void)state;
	static const char *const between[] = { "a", "b", "c", "a, b", "b, c", "a, c" };
	static const char *const other[] = { "a, b, c", "a, c, b", "b, a, c", "b, c, a", "c, a, b", "c, b, a" };

	for (size_t k = 0; k < LEN(between); k++)
		for (size_t i = 0; i < LEN(other); i++) {
			struct text t = { .mem = arena_new() };

			text_put(&t, "dim a=3\ndim b=4\ndim c=19\nbuffer @\"x\" param f32[a, b, c] init=normal(1)\n"
				 "buffer @\"y\" param f32[%s] init=normal(1)\nbuffer @\"z\" param f32[%s] init=normal(1)\n"
				 "buffer @\"u\" opt f32[a, b, c] init=zeros\nbuffer @\"v\" opt f32[a, b, c] init=zeros\n", other[i], between[k]);
			text_put(&t, "forward:\n%%0 = read {buf=\"x\"} : f32[a, b, c]\n%%1 = read {buf=\"y\"} : f32[%s]\n"
				 "%%2 = read {buf=\"z\"} : f32[%s]\n%%3 = tanh %%2 : f32[%s]\n", other[i], between[k], between[k]);
			text_put(&t, "%%4 = mul %%0, %%2 : f32[a, b, c]\n%%5 = mul %%3, %%3 : f32[%s]\n%%6 = add %%5, %%2 : f32[%s]\n"
				 "%%7 = mul %%0, %%6 : f32[a, b, c]\n%%8 = add %%7, %%1 : f32[a, b, c]\nwrite %%4 {buf=\"u\"}\nwrite %%8 {buf=\"v\"}\n",
				 between[k], between[k]);
			check(t.s, 1);
			arena_free(t.mem);
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
		cmocka_unit_test(test_scatter_in_order),
		cmocka_unit_test(test_shared_rooms),
		cmocka_unit_test(test_views),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_adamw),
		cmocka_unit_test(test_made_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
