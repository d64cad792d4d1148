/* tests/fuzz/programs.c - random programs without mistakes.
 *
 *   fuzz-programs [-n CASES | -t SECONDS] [-p PTC] [-o FOLDER] [SEED]
 *   fuzz-programs -d SEED        prints the program of one seed
 *
 * A program is dims, inputs, params, states, defs, repeats, contractions, every function, an
 * optimizer and a plan with arrows. It must go through the front end without an error, verify, and
 * read back from its text; fmt must settle after one step, and what it wrote must compile to the
 * same module. Every 5th goes through all passes with --verify, every 20th through ptc check; these
 * may be refused for the reasons in `listed` only. Case i has seed SEED + i. What fails is kept in
 * FOLDER, which must be there. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "frontend/fmt.h"
#include "frontend/frontend.h"
#include "ir/rng.h"
#include "ir/text.h"

enum type { FLOAT, INTS, BOOLS };
enum { MOST = 5, NDIMS = 7, ALIAS = NDIMS, ALL = 2 * NDIMS };

/* What the statement or expression s is: its type, its dims. */
struct term {
	const char *s;
	enum type dt;
	int nd, d[MOST];
};

struct def {
	int form;
	struct term x; /* what it takes, where that is fixed */
};

struct gen {
	struct arena *mem;
	struct text t;
	uint64_t r;
	bool smooth;   /* no jumps: figures will be compared */
	int indent, names;
	int size[ALL]; /* dims d0.. and their aliases, e0.. */
	VEC(struct term) vals;
	VEC(struct def) defs;
	int loops;     /* repeats around */
	bool in_def;
	VEC(const char *) params, values; /* of the file: for selectors */
};

static uint32_t roll(struct gen *g, uint32_t n)
{
	g->r += 0x9E3779B97F4A7C15ull;
	return (uint32_t)(mix64(g->r) >> 33) % n;
}

static bool chance(struct gen *g, uint32_t percent)
{
	return roll(g, 100) < percent;
}

#define PICK(g, ...) pick(g, (const char *const[]){ __VA_ARGS__ }, LEN(((const char *const[]){ __VA_ARGS__ })))
static const char *pick(struct gen *g, const char *const *of, uint32_t n)
{
	return of[roll(g, n)];
}

#define SAY(g, ...) arena_printf((g)->mem, __VA_ARGS__)

static const char *dim(struct gen *g, int d)
{
	return d == 0 ? "batch" : SAY(g, "%c%d", d < NDIMS ? 'd' : 'e', d % NDIMS);
}

static int alias(int d)
{
	return d < NDIMS ? d + NDIMS : d - NDIMS;
}

static int where_is(const struct term *a, int d)
{
	for (int i = 0; i < a->nd; i++)
		if (a->d[i] == d)
			return i;
	return -1;
}

static bool has(const struct term *a, int d)
{
	return where_is(a, d) >= 0;
}

static void without(struct term *a, int d)
{
	int at = where_is(a, d);

	for (int i = at; i >= 0 && i + 1 < a->nd; i++)
		a->d[i] = a->d[i + 1];
	a->nd -= at >= 0;
}

/* false if there would be too many */
static bool with(struct term *a, int d)
{
	if (has(a, d))
		return true;
	if (a->nd == MOST)
		return false;
	a->d[a->nd++] = d;
	return true;
}

static bool unite(struct term *a, const struct term *b)
{
	for (int i = 0; i < b->nd; i++)
		if (!with(a, b->d[i]))
			return false;
	return true;
}

static bool within(const struct term *a, const struct term *b)
{
	for (int i = 0; i < a->nd; i++)
		if (!has(b, a->d[i]))
			return false;
	return true;
}

static const char *list(struct gen *g, const struct term *a)
{
	struct text t = { .mem = g->mem };

	text_bytes(&t, "", 0);
	for (int i = 0; i < a->nd; i++)
		text_put(&t, "%s%s", i ? ", " : "", dim(g, a->d[i]));
	return t.s;
}

static void line(struct gen *g, const char *s)
{
	static const char *const ends[] = { "\n", "\n", "\n", "  # why\n", ";\n", "\n\n" };

	for (int i = 0; i < g->indent; i++)
		text_put(&g->t, "    ");
	text_put(&g->t, "%s%s", s, s[strlen(s) - 1] == '{' ? "\n" : ends[roll(g, LEN(ends))]);
}

/* No word is reserved, so some names are keywords. */
static const char *name(struct gen *g, char c)
{
	static const char *const words[] = { "input", "param", "state", "update", "metric", "repeat", "def",
					     "return", "include", "minimize", "plan", "hardware", "with",
					     "checkpoint", "over", "on", "dim" };
	int n = g->names++;

	return n >= 40 && n < 40 + (int)LEN(words) && c == 'v' ? words[n - 40] : SAY(g, "%c%d", c, n);
}

/* -- terms -- */

static const struct term *any(struct gen *g, enum type dt)
{
	for (int i = 0; i < 40; i++) {
		const struct term *v = &g->vals.at[roll(g, g->vals.n)];

		if (v->dt == dt && (v->nd > 0 || chance(g, 10)))
			return v;
	}
	for (uint32_t i = 0; i < g->vals.n; i++)
		if (g->vals.at[i].dt == dt)
			return &g->vals.at[i];
	return NULL;
}

/* A float with some dims, perhaps with a function around. */
static struct term term(struct gen *g)
{
	struct term v = *any(g, FLOAT);
	static const char *const smooth[] = {
		"tanh(%s)", "sigmoid(%s)", "silu(%s)", "gelu(%s, tanh)", "gelu(%s, quick)", "gelu(%s, erf)",
		"gelu(%s)", "(%s + 1)", "(2 * %s)", "(-%s)", "exp(tanh(%s))", "log(1 + square(%s))",
		"sqrt(square(%s) + 0.1)", "rsqrt(square(%s) + 1)", "(%s / 3)", "pow(sigmoid(%s), 2)",
		"fp32(%s)", "detach(%s)", "sin_of",
	};
	static const char *const rough[] = { "relu(%s)", "abs(%s)", "sign(%s)", "max(%s, 0)", "min(%s, 1)",
					     "(%s * int(3.5))", "(%s // 2)", "(%s %% 3)", "bf16(%s)",
					     "(%s - training)", "(%s + step)" };
	const char *f = g->smooth || chance(g, 70) ? smooth[roll(g, LEN(smooth) - 1)] : rough[roll(g, LEN(rough))];
	const char *hole = strstr(f, "%s");

	if (!chance(g, 40))
		return v;
	const char *rest = hole + 2;
	v.s = SAY(g, "%.*s%s%s", (int)(hole - f), f, v.s, strncmp(rest, " %%", 3) == 0 ? " % 3)" : rest);
	return v;
}

static struct term number(struct gen *g)
{
	return (struct term){ .s = PICK(g, "1", "0.5", "2e-1", "3m", "1.5", "d1", "batch", "2 * d2"), .dt = FLOAT };
}

/* s becomes a statement, its value is known from here on. */
static void bind(struct gen *g, struct term v, const char *s, bool declare)
{
	const char *n = name(g, 'v');

	if (declare && v.nd) {
		struct term turned = v;

		for (int i = v.nd - 1; i > 0; i--) {
			int j = (int)roll(g, (uint32_t)i + 1), d = turned.d[i];

			turned.d[i] = turned.d[j];
			turned.d[j] = d;
		}
		line(g, SAY(g, "%s[%s] = %s", n, list(g, &turned), s));
	} else {
		line(g, SAY(g, "%s = %s", n, s));
	}
	v.s = n;
	PUSH(g->mem, &g->vals, v);
	if (!g->in_def && !g->loops)
		PUSH(g->mem, &g->values, n);
}

static struct term new_param(struct gen *g, struct term like)
{
	like.s = name(g, 'w');
	like.dt = FLOAT;
	line(g, SAY(g, like.nd ? "param %s[%s] ~ %s" : "param %s%s ~ %s", like.s, list(g, &like),
		    g->smooth ? PICK(g, "normal(0.5)", "uniform(0.5)") : PICK(g, "normal(0.5)", "uniform(0.5)", "ones", "constant(0.3)", "normal(1 / sqrt(d1))")));
	if (!g->in_def)
		PUSH(g->mem, &g->params, like.s);
	return like;
}

static int some_dim(struct gen *g, const struct term *v)
{
	return v->d[roll(g, (uint32_t)v->nd)];
}

/* -- statements -- */

static void pointwise(struct gen *g)
{
	struct term a = term(g), b = chance(g, 20) ? number(g) : term(g), all = a;
	const char *op = PICK(g, "+", "-", "*", "+", "*", "/");

	if (!unite(&all, &b))
		return;
	bool declare = chance(g, 50) || !(within(&a, &b) || within(&b, &a));
	const char *right = *op == '/' ? SAY(g, "(1 + square(%s))", b.s) : b.nd ? b.s : SAY(g, "(%s)", b.s);
	if (chance(g, 30)) {
		struct term c = term(g);

		if (within(&c, &all)) {
			bind(g, all, SAY(g, "%s %s %s %s %s", a.s, op, right, PICK(g, "+", "-"), c.s), declare);
			return;
		}
	}
	bind(g, all, SAY(g, "%s %s %s", a.s, op, right), declare);
}

static void contraction(struct gen *g)
{
	struct term a = term(g), b, all = a, sum = { .nd = 0 };

	if (!a.nd)
		return;
	if (chance(g, 60)) {
		struct term like = { .nd = 0 };

		with(&like, some_dim(g, &a));
		with(&like, 1 + (int)roll(g, NDIMS - 1));
		b = new_param(g, like);
	} else {
		b = term(g);
	}
	int shared = 0;
	for (int i = 0; i < a.nd; i++)
		if (has(&b, a.d[i])) {
			shared++;
			if (chance(g, 70) || !sum.nd)
				with(&sum, a.d[i]);
		}
	all.nd = 0;
	for (int i = 0; i < a.nd + b.nd; i++) {
		int d = i < a.nd ? a.d[i] : b.d[i - a.nd];

		if (!has(&sum, d) && !with(&all, d))
			return;
	}
	if (!shared)
		return;
	if (shared == 1 && chance(g, 40))
		bind(g, all, SAY(g, "%s @ %s", a.s, b.s), false);
	else if (chance(g, 50))
		bind(g, all, SAY(g, "%s @[%s] %s", a.s, list(g, &sum), b.s), chance(g, 50));
	else if (all.nd)
		bind(g, all, SAY(g, chance(g, 30) ? "tanh(%s @ %s)" : "%s @ %s", a.s, b.s), true);
}

static void norm(struct gen *g)
{
	struct term v = term(g);

	if (!v.nd)
		return;
	int d = some_dim(g, &v);
	if (g->smooth && g->size[d] < 4) /* to norm two numbers is to divide by what they differ */
		return;
	switch (roll(g, 8)) {
	case 0: bind(g, v, SAY(g, "softmax(%s, %s)", v.s, dim(g, d)), chance(g, 50)); return;
	case 1: bind(g, v, SAY(g, "layernorm(%s, %s)", v.s, dim(g, d)), chance(g, 50)); return;
	case 2: bind(g, v, SAY(g, "rmsnorm(%s, %s, eps = 1e-3)", v.s, dim(g, d)), chance(g, 50)); return;
	case 3: bind(g, v, SAY(g, "l2norm(%s + 0.1, %s)", v.s, dim(g, d)), chance(g, 50)); return;
	case 4:
		if (chance(g, 30))
			bind(g, v, SAY(g, "dropout(%s, 0.25)", v.s), false);
		else
			bind(g, v, SAY(g, "dropout(%s, 0.5, %s)", v.s, dim(g, d)), false);
		return;
	case 5:
		if (g->size[d] % 2 == 0) {
			int p = some_dim(g, &v);

			bind(g, v, SAY(g, chance(g, 50) ? "rope(%s, %s, %s)" : "rope(%s, index(%s), %s, theta = 100)",
				       v.s, dim(g, p), dim(g, d)), chance(g, 50));
		}
		return;
	default:
		without(&v, d);
		if (chance(g, 25)) {
			bind(g, v, SAY(g, "lse(%s, %s)", v.s, dim(g, d)), chance(g, 50));
			return;
		}
		const char *f = g->smooth ? PICK(g, "sum", "mean") : PICK(g, "sum", "mean", "max", "min");
		if (v.nd && chance(g, 30)) {
			int other = some_dim(g, &v);

			without(&v, other);
			bind(g, v, SAY(g, "%s(%s, %s, %s)", f, v.s, dim(g, d), dim(g, other)), chance(g, 50));
		} else {
			bind(g, v, SAY(g, "%s(%s, %s)", f, v.s, dim(g, d)), chance(g, 50));
		}
	}
}

static void subscript(struct gen *g)
{
	struct term v = *any(g, FLOAT), i;

	if (!v.nd)
		return;
	int at = (int)roll(g, (uint32_t)v.nd), d = v.d[at], to;
	switch (roll(g, 5)) {
	case 0: /* a rename */
		if (has(&v, alias(d)))
			return;
		v.d[at] = alias(d);
		bind(g, v, SAY(g, "%s[%s -> %s]", v.s, dim(g, d), dim(g, alias(d))), chance(g, 50));
		return;
	case 1: /* an element */
		without(&v, d);
		bind(g, v, SAY(g, "%s[%s = %u]", v.s, dim(g, d), roll(g, (uint32_t)g->size[d])), chance(g, 50));
		return;
	case 2: /* a slice, a shift */
		to = 1 + (int)roll(g, NDIMS - 1);
		if (to != d && has(&v, to))
			return;
		v.d[at] = to;
		bind(g, v, SAY(g, "%s[%s = index(%s)%s]", v.s, dim(g, d), dim(g, to),
			       PICK(g, "", " + 1", " - 1", " * 2", " // 2", " * 2 + 1")), chance(g, 50));
		return;
	case 3: /* a swap */
		if (v.nd < 2 || has(&v, alias(d)))
			return;
		to = v.d[(at + 1) % v.nd];
		if (has(&v, alias(to)))
			return;
		v.d[at] = alias(d);
		v.d[(at + 1) % v.nd] = alias(to);
		bind(g, v, SAY(g, "%s[%s -> %s, %s -> %s]", v.s, dim(g, d), dim(g, alias(d)), dim(g, to),
			       dim(g, alias(to))), chance(g, 50));
		return;
	default: /* a table */
		i = *any(g, INTS);
		without(&v, d);
		if (has(&i, d) || !unite(&v, &i))
			return;
		bind(g, v, SAY(g, "%s[%s = %s]", v.s, dim(g, d), i.s), chance(g, 50));
	}
}

static void ints(struct gen *g)
{
	const struct term *of = any(g, g->smooth ? INTS : FLOAT);
	struct term v = of ? *of : *any(g, INTS);
	int to = 1 + (int)roll(g, NDIMS - 1);

	if (!v.nd)
		return;
	int at = (int)roll(g, (uint32_t)v.nd), d = v.d[at];
	switch (roll(g, 4)) {
	case 0:
		without(&v, d);
		v.dt = INTS;
		bind(g, v, SAY(g, "argmax(%s, %s)", v.s, dim(g, d)), chance(g, 50));
		return;
	case 1:
		if (has(&v, to) || g->size[to] > g->size[d])
			return;
		v.d[at] = to;
		v.dt = INTS;
		bind(g, v, SAY(g, "topk(%s, %s, %s)", v.s, dim(g, d), dim(g, to)), chance(g, 50));
		return;
	case 2:
		v = *any(g, INTS);
		if (v.nd)
			bind(g, v, SAY(g, "rank(%s, %s)", v.s, dim(g, some_dim(g, &v))), chance(g, 50));
		return;
	default:
		v = (struct term){ .dt = INTS, .nd = 1, .d = { to } };
		bind(g, v, SAY(g, "index(%s) %s", dim(g, to), PICK(g, "+ 1", "% 2", "// 2", "* 2 - 1")), false);
	}
}

static void conditions(struct gen *g)
{
	struct term a = *any(g, INTS), b = *any(g, INTS), x, y;

	if (!any(g, BOOLS) || chance(g, 40)) {
		if (unite(&a, &b)) {
			a.dt = BOOLS;
			bind(g, a, SAY(g, "%s%s %s %s%s", chance(g, 20) ? "!(" : "(", a.s,
				       PICK(g, "==", "!=", "<", "<=", ">", ">="), b.s,
				       PICK(g, ")", ")", " + 1)")), chance(g, 50));
		}
		return;
	}
	a = *any(g, BOOLS);
	if (chance(g, 30)) {
		b = *any(g, BOOLS);
		if (unite(&a, &b))
			bind(g, a, SAY(g, "%s %s %s", a.s, PICK(g, "&", "|"), b.s), chance(g, 50));
		return;
	}
	x = term(g);
	y = chance(g, 30) ? number(g) : term(g);
	const char *s = SAY(g, "where(%s, %s, %s)", a.s, x.s, y.s);
	if (unite(&x, &y) && unite(&x, &a))
		bind(g, x, s, true);
}

static void scatters(struct gen *g)
{
	struct term x = term(g), i = *any(g, INTS), out = x;
	int to = 1 + (int)roll(g, NDIMS - 1);

	if (!unite(&out, &i) || has(&out, to) || !x.nd)
		return;
	while (out.nd > 2)
		without(&out, out.d[roll(g, (uint32_t)out.nd)]);
	with(&out, to);
	bind(g, out, SAY(g, "scatter(%s, %s = %s)", x.s, dim(g, to), i.s), true);
}

static void concats(struct gen *g)
{
	struct term a = term(g), b = term(g);

	if (!a.nd || !b.nd)
		return;
	int da = some_dim(g, &a), db = some_dim(g, &b), to = 1 + (int)roll(g, NDIMS - 1);
	if (g->size[da] + g->size[db] != g->size[to] || (to != da && has(&a, to)) || (to != db && has(&b, to)))
		return;
	const char *s = SAY(g, "concat(%s, %s, %s, %s, %s)", a.s, b.s, dim(g, da), dim(g, db), dim(g, to));
	a.d[where_is(&a, da)] = to;
	b.d[where_is(&b, db)] = to;
	if (unite(&a, &b))
		bind(g, a, s, true);
}

static void attends(struct gen *g)
{
	struct term x = term(g), out;
	int head, seq;

	if (x.nd < 2 || x.nd > 3)
		return;
	seq = x.d[x.nd - 2], head = x.d[x.nd - 1];
	if (has(&x, alias(seq)))
		return;
	out = x;
	const char *k = SAY(g, "%s[%s -> %s]", x.s, dim(g, seq), dim(g, alias(seq)));
	struct text t = { .mem = g->mem };
	text_put(&t, "attention(%s, %s, %s, %s, %s", x.s, k, k, dim(g, head), dim(g, alias(seq)));
	if (chance(g, 50)) {
		text_put(&t, ", causal = %s", dim(g, seq));
		if (chance(g, 40))
			text_put(&t, ", window = %u", 1 + roll(g, 3));
	}
	if (chance(g, 30))
		text_put(&t, ", bias = index(%s) - index(%s)", dim(g, seq), dim(g, alias(seq)));
	if (chance(g, 30))
		text_put(&t, ", mask = index(%s) %s index(%s)", dim(g, seq), PICK(g, ">=", "!=", "<="),
			 dim(g, alias(seq)));
	if (chance(g, 20))
		text_put(&t, ", cap = 20");
	if (chance(g, 20))
		text_put(&t, ", scale = 0.3, dropout = %s", PICK(g, "0", "0.1"));
	text_put(&t, ")");
	bind(g, out, t.s, chance(g, 50));
}

static void losses(struct gen *g)
{
	struct term z = term(g), i = *any(g, INTS);

	if (!z.nd)
		return;
	int d = some_dim(g, &z);
	struct term rest = z;
	without(&rest, d);
	if (has(&i, d) || !within(&rest, &i))
		return;
	if (chance(g, 50)) {
		i.dt = FLOAT;
		bind(g, i, SAY(g, "nll(%s, %s, %s)", z.s, i.s, dim(g, d)), chance(g, 50));
	} else {
		bind(g, (struct term){ .dt = FLOAT }, SAY(g, "cross_entropy(%s, %s, %s)", z.s, i.s, dim(g, d)), false);
	}
}

static void states(struct gen *g)
{
	struct term v = term(g);

	if (g->loops || g->in_def)
		return;
	for (int i = 0; i < 8 && has(&v, 0); i++) {
		const char *s = SAY(g, "mean(%s, batch)", v.s);

		without(&v, 0);
		v.s = s;
	}
	const char *n = name(g, 's');
	line(g, SAY(g, v.nd ? "state %s[%s] ~ %s" : "state %s%s ~ %s", n, list(g, &v), PICK(g, "zeros", "ones")));
	line(g, SAY(g, "update %s = 0.9 * %s + 0.1 * (%s)", n, n, v.s));
	v.s = n;
	PUSH(g->mem, &g->vals, v);
}

static void statements(struct gen *g, int n);

static void repeats(struct gen *g)
{
	struct term x = term(g), carried;
	int loop = g->loops;

	if (g->loops > 1 || g->in_def)
		return;
	bind(g, x, SAY(g, "%s * 1", x.s), false);
	carried = g->vals.at[g->vals.n - 1];
	line(g, SAY(g, "repeat layers%d {", loop));
	uint32_t known = g->vals.n;
	g->indent++, g->loops++;
	new_param(g, x);
	if (chance(g, 40))
		bind(g, (struct term){ .dt = INTS }, SAY(g, "index(layers%d) %s", loop, PICK(g, "% 2", "+ 1", "* 2")), false);
	statements(g, 1 + (int)roll(g, 4));
	for (int i = 0; i < 10; i++) {
		struct term v = term(g);

		if (within(&v, &carried) || i == 9) {
			line(g, SAY(g, "%s = %s + 0.1 * %s", carried.s, carried.s, i == 9 ? carried.s : v.s));
			break;
		}
	}
	g->indent--, g->loops--;
	g->vals.n = known;
	line(g, "}");
}

/* -- defs -- */

/* A def of some form, or one with a random body, whose argument has given dims. */
static void defines(struct gen *g)
{
	struct def def = { .form = (int)roll(g, 4) };
	uint32_t n = g->defs.n;
	struct gen saved = *g;

	switch (def.form) {
	case 0:
		text_put(&g->t, "def f%u(x, e, eps = 1e-5) {\n    param gain[e] ~ ones\n"
				"    return rmsnorm(x, e, eps = eps) * gain + layernorm(x, e)\n}\n", n);
		break;
	case 1:
		text_put(&g->t, "def f%u(x, e, f, form = erf) {\n    param wu[e, f], wd[f, e] ~ normal(0.3)\n"
				"    return gelu(x @ wu, form) @ wd\n}\n", n);
		break;
	case 2:
		text_put(&g->t, "def f%u(x, e, s = 2, cut = none) {\n    return s * x, mean(x, e)\n}\n", n);
		break;
	default:
		def.x = (struct term){ .s = SAY(g, "x"), .dt = FLOAT, .nd = 2, .d = { 0, 1 + (int)roll(g, NDIMS - 1) } };
		text_put(&g->t, "def f%u(x) {\n", n);
		g->vals.n = 0;
		g->vals.at = NULL;
		g->vals.cap = 0;
		PUSH(g->mem, &g->vals, def.x);
		struct term i = { .s = SAY(g, "index(%s)", dim(g, def.x.d[1])), .dt = INTS, .nd = 1, .d = { def.x.d[1] } };
		PUSH(g->mem, &g->vals, i);
		g->in_def = true;
		g->indent++;
		statements(g, 2 + (int)roll(g, 4));
		g->indent--;
		text_put(&g->t, "    return %s\n}\n", SAY(g, "x + mean(%s)", any(g, FLOAT)->s));
		g->in_def = false;
		g->vals.at = saved.vals.at;
		g->vals.n = saved.vals.n;
		g->vals.cap = saved.vals.cap;
	}
	PUSH(g->mem, &g->defs, def);
}

static void calls(struct gen *g)
{
	if (!g->defs.n || g->in_def)
		return;
	uint32_t n = roll(g, g->defs.n);
	const struct def *def = &g->defs.at[n];
	struct term v = term(g);
	const char *f = SAY(g, "f%u.call%d", n, g->names++);
	int to = 1 + (int)roll(g, NDIMS - 1);

	if (!v.nd)
		return;
	int d = some_dim(g, &v);
	if (def->form == 0 && (g->size[d] >= 4 || !g->smooth))
		bind(g, v, SAY(g, "%s(%s, %s%s)", f, v.s, dim(g, d), PICK(g, "", ", eps = 1e-3", ", 1m")), chance(g, 50));
	else if (def->form == 1 && !has(&v, to))
		bind(g, v, SAY(g, "%s(%s, %s, f = %s%s)", f, v.s, dim(g, d), dim(g, to),
			       PICK(g, "", ", form = tanh", ", form = quick")), false);
	else if (def->form == 2 && !g->loops) {
		const char *a = name(g, 'p'), *b = name(g, 'q');

		line(g, SAY(g, "%s, %s = %s(%s, %s%s)", a, b, f, v.s, dim(g, d), PICK(g, "", ", s = 0.5", ", cut = none")));
		v.s = a;
		PUSH(g->mem, &g->vals, v);
		without(&v, d);
		v.s = b;
		PUSH(g->mem, &g->vals, v);
	} else if (def->form == 3 && v.nd == 2 && v.d[0] == def->x.d[0] && v.d[1] == def->x.d[1]) {
		bind(g, v, SAY(g, "%s(%s)", f, v.s), false);
	}
}

static void statements(struct gen *g, int n)
{
	static void (*const kinds[])(struct gen *g) = {
		pointwise, pointwise, contraction, contraction, contraction, norm, norm, subscript, subscript,
		ints, conditions, scatters, concats, attends, losses, states, repeats, calls, calls,
	};

	for (int i = 0; i < n; i++)
		kinds[roll(g, LEN(kinds))](g);
}

/* -- the file -- */

static void dims(struct gen *g)
{
	static const int sizes[] = { 1, 2, 2, 3, 4, 4, 6, 8 };
	struct text t = { .mem = g->mem };

	g->size[0] = 4;
	text_put(&t, "dim batch = 4, e0 = batch, layers0 = %u, layers1 = 2", 1 + roll(g, 3));
	line(g, t.s);
	t = (struct text){ .mem = g->mem };
	for (int d = 1; d < NDIMS; d++) {
		int half = d > 1 ? (int)roll(g, (uint32_t)d - 1) + 1 : 0;

		g->size[d] = sizes[g->smooth ? 1 + roll(g, 5) : roll(g, LEN(sizes))];
		if (half && chance(g, 25) && g->size[half] % 2 == 0 && g->size[half] > 2) {
			g->size[d] = g->size[half] / 2;
			text_put(&t, "%sd%d = d%d %s 2", t.n ? ", " : "dim ", d, half, PICK(g, "/", "//"));
		} else {
			text_put(&t, "%sd%d = %d", t.n ? ", " : "dim ", d, g->size[d]);
		}
		text_put(&t, ", e%d = d%d", d, d);
	}
	line(g, t.s);
	for (int d = 0; d < NDIMS; d++)
		g->size[d + ALIAS] = g->size[d];
}

static void inputs(struct gen *g)
{
	struct term v = { .dt = FLOAT, .nd = 1, .d = { 0 } };

	for (int i = 0; i < 2 + (int)roll(g, 2); i++) {
		v.nd = 1;
		for (int k = (int)roll(g, 3); k > 0; k--)
			with(&v, 1 + (int)roll(g, NDIMS - 1));
		v.s = name(g, 'u');
		line(g, SAY(g, "input %s[%s]: float", v.s, list(g, &v)));
		PUSH(g->mem, &g->vals, v);
	}
	v.nd = 1;
	v.dt = INTS;
	with(&v, 1 + (int)roll(g, NDIMS - 1));
	v.s = name(g, 'i');
	line(g, SAY(g, "input %s[%s]: token(%s)", v.s, list(g, &v), PICK(g, "d2", "5", "d1 + 1")));
	PUSH(g->mem, &g->vals, v);
	if (chance(g, 40)) {
		const char *of = v.s;

		v.s = name(g, 'i');
		line(g, SAY(g, "input %s[%s]: token(5) = next(%s%s)", v.s, list(g, &v), of, PICK(g, "", ", 2")));
		PUSH(g->mem, &g->vals, v);
	}
	if (chance(g, 50)) {
		v.dt = BOOLS;
		v.s = name(g, 'b');
		line(g, SAY(g, "input %s[%s]: bool", v.s, list(g, &v)));
		PUSH(g->mem, &g->vals, v);
	}
	struct term index = { .s = SAY(g, "index(d1)"), .dt = INTS, .nd = 1, .d = { 1 } };
	PUSH(g->mem, &g->vals, index);
}

static void trains(struct gen *g)
{
	struct text t = { .mem = g->mem };
	int n = 0;

	text_put(&t, "loss = ");
	for (uint32_t i = g->vals.n; i-- > 0 && n < 6;)
		if (g->vals.at[i].dt == FLOAT)
			text_put(&t, "%s%s(square(%s))", n++ ? " + " : "", g->vals.at[i].nd ? "mean" : "tanh",
				 g->vals.at[i].s);
	line(g, t.s);
	if (chance(g, 50))
		line(g, SAY(g, "metric size = mean(%s)", any(g, FLOAT)->s));
	const char *lr = g->smooth ? "0.01" :
		PICK(g, "0.1", "1m", "cosine(1e-3, warmup = 10, steps = 100)", "linear(0.1, 2, 10, final = 0.01)",
		     "wsd(0.1, 2, 10, decay = 3)", "rsqrt(0.1, 3)", "constant(0.1, warmup = 2)", "0.1 / (step + 1)");
	const char *opt = PICK(g, "sgd(lr = %s", "sgd(%s, momentum = 0.9", "adamw(lr = %s, betas = [0.8, 0.9]",
			       "adamw(%s, weight_decay = 0.1", "adafactor(lr = %s");
	const char *hole = strstr(opt, "%s");
	const char *call = SAY(g, "%.*s%s%s%s)", (int)(hole - opt), opt, lr, hole + 2, PICK(g, "", ", clip = 1.0"));
	if (chance(g, 40) && g->params.n) {
		line(g, SAY(g, "minimize loss with %s {", call));
		g->indent++;
		line(g, SAY(g, "%s: lr_scale = 0.5", g->params.at[roll(g, g->params.n)]));
		g->indent--;
		line(g, "}");
	} else {
		line(g, SAY(g, "minimize loss with %s", call));
	}
}

static void plans(struct gen *g)
{
	static const char *const kinds[] = { "params", "grads", "optimizer" };

	line(g, "plan {");
	g->indent++;
	line(g, PICK(g, "mesh dp = 2, tp = 2", "mesh dp = 2, tp = 1", "mesh dp = 1, tp = 2", "mesh tp = 2, dp = 2 on h100"));
	if (chance(g, 30) && g->values.n)
		line(g, SAY(g, "%s: none -> tp", g->values.at[roll(g, g->values.n)]));
	if (chance(g, 20) && g->params.n)
		line(g, SAY(g, "\"*%s\": d1, d2 -> tp", g->params.at[roll(g, g->params.n)]));
	if (chance(g, 80))
		line(g, "batch -> dp");
	for (int i = (int)roll(g, 3); i > 0; i--) {
		int a = 1 + (int)roll(g, NDIMS - 1), b = 1 + (int)roll(g, NDIMS - 1);

		if (a != b && chance(g, 40))
			line(g, SAY(g, "d%d, d%d -> tp", a, b));
		else
			line(g, SAY(g, "d%d -> %s", a, PICK(g, "tp", "tp", "dp", "tp, dp")));
	}
	if (chance(g, 40))
		line(g, SAY(g, "%s -> dp", kinds[roll(g, LEN(kinds))]));
	if (chance(g, 20))
		line(g, "microbatches = 2");
	if (!g->smooth && chance(g, 30))
		line(g, "precision bf16");
	g->indent--;
	line(g, "}");
}

static const char *program(struct arena *mem, uint64_t seed, bool smooth)
{
	struct gen g = { .mem = mem, .t.mem = mem, .r = mix64(seed + 1), .smooth = smooth };

	dims(&g);
	inputs(&g);
	for (int i = (int)roll(&g, 4); i > 0; i--)
		defines(&g);
	statements(&g, 6 + (int)roll(&g, 50));
	struct term last = *any(&g, FLOAT);
	bind(&g, last, SAY(&g, "%s * 2", last.s), false);
	trains(&g);
	if (chance(&g, 80))
		plans(&g);
	return g.t.s;
}

/* -- what is asked of it -- */

static const char *const listed[] = {
	"microbatches do not divide the",  /* a rank has fewer sequences than that */
	"' splits 'batch', but",           /* rule 24: what a sum over the batch feeds, states with it */
	"within a repeat: set microbatches = 1",
	"are too many: at most",           /* dims of a value and of the repeats around */
};

static uint64_t now_seed;
static const char *folder;

static void crashed(int sig)
{
	char s[80];
	int n = snprintf(s, sizeof s, "seed %llu: signal %d\n", (unsigned long long)now_seed, sig);

	if (write(STDOUT_FILENO, s, (size_t)n) < 0)
		_exit(3);
	_exit(2);
}

static bool wrong(const char *what, const char *more)
{
	printf("seed %llu: %s\n%s\n", (unsigned long long)now_seed, what, more ? more : "");
	return false;
}

static bool refused(const char *log)
{
	for (size_t i = 0; i < LEN(listed); i++)
		if (log && strstr(log, listed[i]))
			return true;
	return false;
}

/* -1: wrong; 0: refused; 1: good */
static int front(struct arena *mem, const char *text, size_t len, char **ir)
{
	struct sources src = { 0 };
	struct diag d;
	size_t n, again;

	diag_init(&d, mem, &src, NULL);
	struct module *m = front_compile_text(mem, &src, &d, "program.pdsl", text, len, NULL);
	if (!m)
		return refused(d.log.s) ? 0 : wrong("does not compile", d.log.s) - 1;
	if (!verify(m, &d))
		return wrong("does not verify", d.log.s) - 1;
	*ir = module_print(m, mem, &n);
	struct module *copy = module_parse(mem, "program.pir", *ir, n, &d);
	if (!copy)
		return wrong("the module does not read back", d.log.s) - 1;
	const char *twice = module_print(copy, mem, &again);
	return n == again && memcmp(*ir, twice, n) == 0 ? 1 : wrong("the module reads back as another", NULL) - 1;
}

/* The IR without places: fmt moves text. */
static const char *no_spans(char *ir)
{
	char *to = ir;

	for (const char *p = ir; *p;) {
		if (*p == '!' || strncmp(p, "at=", 3) == 0)
			while (*p && *p != ' ' && *p != '\n' && *p != ',')
				p++;
		else
			*to++ = *p++;
	}
	*to = 0;
	return ir;
}

static bool formats(struct arena *mem, const char *text, size_t len, char *ir)
{
	struct sources src = { 0 };
	struct diag d;
	size_t n = 0, again = 0;
	char *other = NULL;

	diag_init(&d, mem, &src, NULL);
	const char *once = fmt_text(mem, &src, &d, "program", text, len, &n);
	const char *twice = once ? fmt_text(mem, &src, &d, "once", once, n, &again) : NULL;
	if (!twice)
		return wrong("fmt refuses it", d.log.s);
	if (n != again || memcmp(once, twice, n) != 0)
		return wrong("fmt changes what it wrote", twice);
	if (front(mem, once, n, &other) != 1 || !streq(no_spans(ir), no_spans(other)))
		return wrong("fmt made another program", once);
	return true;
}

/* false: wrong. *refusals counts. */
static bool runs(struct arena *mem, const char *command, int *refusals)
{
	struct text out = { .mem = mem };
	char buf[4096];
	size_t n;
	FILE *f = popen(command, "r");

	if (!f)
		return wrong("popen", command);
	text_bytes(&out, "", 0);
	while ((n = fread(buf, 1, sizeof buf, f)) > 0)
		text_bytes(&out, buf, n);
	int status = pclose(f);
	if (status == 0)
		return true;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && refused(out.s)) {
		++*refusals;
		return true;
	}
	if (out.n > 4000)
		out.s[4000] = 0;
	return wrong(command, out.s);
}

static bool one(uint64_t seed, const char *ptc, bool verify_it, bool check_it, int *refusals)
{
	struct arena *mem = arena_new();
	char *ir = NULL;

	now_seed = seed;
	const char *text = program(mem, seed, seed % 20 == 0);
	size_t len = strlen(text);
	const char *path = SAY((&(struct gen){ .mem = mem }), "%s/program-%llu.pdsl", folder, (unsigned long long)seed);
	FILE *f = fopen(path, "w");
	if (!f || fwrite(text, 1, len, f) != len || fclose(f)) {
		perror(path);
		exit(2);
	}
	int good = front(mem, text, len, &ir);
	*refusals += good == 0;
	bool fine = good == 0 || (good == 1 && formats(mem, text, len, ir));
	if (fine && good == 1 && ptc && verify_it)
		fine = runs(mem, arena_printf(mem, "timeout 60 %s %s --verify -o /dev/null 2>&1", ptc, path), refusals);
	if (fine && good == 1 && ptc && check_it)
		fine = runs(mem, arena_printf(mem, "timeout 120 %s check %s 2>&1", ptc, path), refusals);
	if (fine)
		unlink(path);
	else
		printf("kept as %s\n", path);
	arena_free(mem);
	return fine;
}

int main(int argc, char **argv)
{
	const char *ptc = NULL;
	int c, cases = 0, seconds = 0, done = 0, refusals = 0, bad = 0;
	bool show = false;

	folder = "/tmp";
	while ((c = getopt(argc, argv, "n:t:p:o:d")) != -1)
		switch (c) {
		case 'n': cases = atoi(optarg); break;
		case 't': seconds = atoi(optarg); break;
		case 'p': ptc = optarg; break;
		case 'o': folder = optarg; break;
		case 'd': show = true; break;
		default: return 2;
		}
	uint64_t seed = optind < argc ? strtoull(argv[optind], NULL, 10) : 1;
	if (show) {
		struct arena *mem = arena_new();

		fputs(program(mem, seed, seed % 20 == 0), stdout);
		arena_free(mem);
		return 0;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGSEGV, crashed);
	signal(SIGABRT, crashed);
	signal(SIGFPE, crashed);
	time_t start = time(NULL);
	if (!cases && !seconds)
		cases = 200;
	for (; (!cases || done < cases) && (!seconds || time(NULL) - start < seconds) && bad < 5; done++) {
		uint64_t s = seed + (uint64_t)done;

		bad += !one(s, ptc, s % 5 == 0, s % 20 == 0, &refusals);
	}
	printf("%d programs from seed %llu, %d refused for a listed reason, %d wrong\n", done,
	       (unsigned long long)seed, refusals, bad);
	return bad != 0;
}
