/* What is known when compiling: dims, constants, and what follows from them. */
#include "frontend/lower.h"

#include <math.h>

bool is_number(const struct val *v)
{
	return v->kind == V_NUMBER || v->kind == V_DIM;
}

struct val val_number(enum dtype dt, double x)
{
	return (struct val){ .kind = V_NUMBER, .dt = dt, .x = x };
}

static double gelu(double x)
{
	return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double apply1(enum opcode code, double x)
{
	switch (code) {
	case OP_NEG: return -x;
	case OP_EXP: return exp(x);
	case OP_LOG: return log(x);
	case OP_SQRT: return sqrt(x);
	case OP_RSQRT: return 1 / sqrt(x);
	case OP_TANH: return tanh(x);
	case OP_SIGMOID: return 1 / (1 + exp(-x));
	case OP_SIN: return sin(x);
	case OP_COS: return cos(x);
	case OP_ABS: return fabs(x);
	case OP_SIGN: return x > 0 ? 1 : x < 0 ? -1 : 0;
	case OP_NOT: return x == 0;
	case OP_RELU: return x > 0 ? x : 0;
	case OP_SILU: return x / (1 + exp(-x));
	case OP_GELU: return gelu(x);
	default: return x;
	}
}

struct val fold1(struct ctx *c, enum opcode code, struct val a, struct span at)
{
	enum dtype dt = F32;
	double x = apply1(code, a.x);

	if (code == OP_NOT)
		dt = BOOL;
	else if (code == OP_NEG || code == OP_ABS || code == OP_SIGN || code == OP_RELU)
		dt = a.dt == BOOL ? INT : a.dt;
	else if (code == OP_DETACH)
		dt = a.dt;
	if (isnan(x) && !isnan(a.x))
		return fail(c, at, "%s of %g is not a number", opinfo[code].name, a.x);
	return val_number(dt, x);
}

static double floor_mod(double a, double b)
{
	return a - b * floor(a / b);
}

static double apply2(enum opcode code, double a, double b)
{
	switch (code) {
	case OP_ADD: return a + b;
	case OP_SUB: return a - b;
	case OP_MUL: return a * b;
	case OP_DIV: return a / b;
	case OP_FLOORDIV: return floor(a / b);
	case OP_MOD: return floor_mod(a, b);
	case OP_POW: return pow(a, b);
	case OP_MIN: return a < b ? a : b;
	case OP_MAX: return a > b ? a : b;
	case OP_AND: return a != 0 && b != 0;
	case OP_OR: return a != 0 || b != 0;
	default: die("apply2: %s", opinfo[code].name);
	}
}

struct val fold2(struct ctx *c, enum opcode code, struct val a, struct val b, struct span at)
{
	bool ints = !is_float(a.dt) && !is_float(b.dt);
	enum dtype dt = code == OP_AND || code == OP_OR ? BOOL :
			ints && code != OP_DIV && code != OP_POW ? INT : F32;

	if (b.x == 0 && (code == OP_DIV || code == OP_FLOORDIV || code == OP_MOD))
		return fail(c, at, "this divides by zero");
	double x = apply2(code, a.x, b.x);
	if (dt == INT && fabs(x) > 0x1p53)
		return fail(c, at, "this integer is too large");
	return val_number(dt, x);
}

/* Divisors of a around b: one below, two above. */
static void divisor_hint(struct ctx *c, double a, double b)
{
	struct text t = { .mem = c->mem };
	int64_t n = (int64_t)a, from = (int64_t)b, below = 0;
	int more = 0;

	for (int64_t i = from - 1; i >= 1 && from - i < 100000 && !below; i--)
		if (n % i == 0)
			below = i;
	if (below)
		text_put(&t, "%lld", (long long)below);
	for (int64_t i = from + 1; i <= n && i - from < 100000 && more < 2; i++)
		if (n % i == 0) {
			text_put(&t, "%s%lld", t.n ? ", " : "", (long long)i);
			more++;
		}
	if (t.n)
		hint(c, "%lld is divided by %s; '//' rounds down", (long long)n, t.s);
}

static bool size_number(struct ctx *c, const struct node *n, double *x)
{
	struct val v = eval(c, n, NULL);

	if (v.kind == V_BAD)
		return false;
	if (!is_number(&v)) {
		fail(c, n->at, "a size must be known when compiling: dims, constants and integers");
		return false;
	}
	if (v.x != floor(v.x) || fabs(v.x) > 0x1p53) {
		const char *text = node_text(c->mem, c->src, n);

		if (n->kind == N_NUMBER)
			fail(c, n->at, "%s is not an integer", text);
		else
			fail(c, n->at, "%s is %g, not an integer", text, v.x);
		return false;
	}
	*x = v.x;
	return true;
}

static bool size_of(struct ctx *c, const struct node *n, double *x)
{
	double a, b;

	if (n->kind != N_BINARY)
		return size_number(c, n, x);
	if (n->op != OPR_DIV && n->op != OPR_ADD && n->op != OPR_SUB && n->op != OPR_MUL)
		return size_number(c, n, x);
	if (!size_of(c, n->a, &a) || !size_of(c, n->b, &b))
		return false;
	if (n->op == OPR_DIV && (b == 0 || floor_mod(a, b) != 0)) {
		fail(c, n->at, "%s is %.0f / %.0f, not an integer", node_text(c->mem, c->src, n), a, b);
		if (a > 0 && b > 0)
			divisor_hint(c, a, b);
		return false;
	}
	*x = n->op == OPR_DIV ? a / b : n->op == OPR_ADD ? a + b : n->op == OPR_SUB ? a - b : a * b;
	if (fabs(*x) > 0x1p53) {
		fail(c, n->at, "this integer is too large");
		return false;
	}
	return true;
}

bool eval_size(struct ctx *c, const struct node *n, int64_t *x)
{
	double d;

	if (!size_of(c, n, &d))
		return false;
	*x = (int64_t)d;
	return true;
}

bool eval_number(struct ctx *c, const struct node *n, const char *what, double *x)
{
	struct val v = eval(c, n, NULL);

	if (is_number(&v)) {
		*x = v.x;
		return true;
	}
	if (v.kind != V_BAD)
		fail(c, n->at, "%s must be a number that is known when compiling", what);
	return false;
}

struct setting *find_setting(struct ctx *c, const char *name)
{
	for (uint32_t i = 0; i < c->sets.n; i++)
		if (streq(c->sets.at[i].name, name))
			return &c->sets.at[i];
	return NULL;
}
