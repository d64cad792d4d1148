/* codegen/expr.c - pointwise ops as C expressions. Vector code computes in float; scalars of the
 * step (no dims) in double, since they cost nothing there. */
#include <math.h>

#include "codegen/kernel.h"

bool is_wide(const struct value *v)
{
	const struct op *op = v->def;

	if (v->nd || !op || !is_float(v->dt))
		return false;
	return opinfo[op->code].class == C_MAP || op->code == OP_SUM || op->code == OP_CONST;
}

/* $0 $1 $2: operands; f, d: the forms for float and double, i for ints (NULL: as f). */
struct rule {
	enum opcode code;
	const char *f, *d, *i;
};

static const struct rule forms[] = {
	{ OP_NEG, "-$0", NULL, NULL },
	{ OP_EXP, "p_exp($0)", "p_expd($0)", NULL },
	{ OP_LOG, "p_log($0)", "p_logd($0)", NULL },
	{ OP_SQRT, "__builtin_sqrtf($0)", "__builtin_sqrt($0)", NULL },
	{ OP_RSQRT, "1.0f / __builtin_sqrtf($0)", "1.0 / __builtin_sqrt($0)", NULL },
	{ OP_TANH, "p_tanh($0)", "p_tanhd($0)", NULL },
	{ OP_SIGMOID, "p_sigmoid($0)", "1.0 / (1.0 + p_expd(-$0))", NULL },
	{ OP_SIN, "p_sin($0)", "p_sind($0)", NULL },
	{ OP_COS, "p_cos($0)", "p_cosd($0)", NULL },
	{ OP_ABS, "__builtin_fabsf($0)", "__builtin_fabs($0)", "$0 < 0 ? -$0 : $0" },
	{ OP_SIGN, "(float)(($0 > 0) - ($0 < 0))", NULL, "($0 > 0) - ($0 < 0)" },
	{ OP_NOT, "$0 == 0", NULL, NULL },
	{ OP_RELU, "$0 > 0 ? $0 : 0", NULL, NULL },
	{ OP_DRELU, "$0 > 0 ? 1.0f : 0.0f", NULL, NULL },
	{ OP_SILU, "p_silu($0)", NULL, NULL },
	{ OP_DSILU, "p_dsilu($0)", NULL, NULL },
	{ OP_ADD, "$0 + $1", NULL, NULL },
	{ OP_SUB, "$0 - $1", NULL, NULL },
	{ OP_MUL, "$0 * $1", NULL, NULL },
	{ OP_DIV, "(float)$0 / (float)$1", "(double)$0 / (double)$1", NULL },
	{ OP_FLOORDIV, "__builtin_floorf((float)$0 / (float)$1)", "__builtin_floor((double)$0 / $1)",
	  "p_floordiv_i($0, $1)" },
	{ OP_MOD, "p_mod($0, $1)", "$0 - $1 * __builtin_floor((double)$0 / $1)", "p_mod_i($0, $1)" },
	{ OP_POW, "p_pow($0, $1)", "p_powd($0, $1)", NULL },
	{ OP_MIN, "$0 < $1 || $0 != $0 ? $0 : $1", NULL, NULL },
	{ OP_MAX, "$0 > $1 || $0 != $0 ? $0 : $1", NULL, NULL },
	{ OP_EQ, "$0 == $1", NULL, NULL },
	{ OP_NE, "$0 != $1", NULL, NULL },
	{ OP_LT, "$0 < $1", NULL, NULL },
	{ OP_LE, "$0 <= $1", NULL, NULL },
	{ OP_GT, "$0 > $1", NULL, NULL },
	{ OP_GE, "$0 >= $1", NULL, NULL },
	{ OP_AND, "($0 != 0) & ($1 != 0)", NULL, NULL },
	{ OP_OR, "($0 != 0) | ($1 != 0)", NULL, NULL },
	{ OP_WHERE, "$0 ? $1 : $2", NULL, NULL },
};

static char *fill(struct gen *g, const char *form, const char *const *a)
{
	struct text t = { .mem = g->mem };

	for (const char *s = form; *s; s++)
		if (*s == '$')
			text_put(&t, "%s", a[*++s - '0']);
		else
			text_bytes(&t, s, 1);
	return t.s;
}

static char *cast_expr(struct gen *g, const struct op *op, const char *a)
{
	enum dtype from = op->in[0]->dt, to = op->out[0]->dt;

	if (is_float(to) || from == to)
		return is_float(from) || from == to ? arena_strdup(g->mem, a) : arena_printf(g->mem, "(float)%s", a);
	if (to == BOOL)
		return arena_printf(g->mem, "%s != 0", a);
	return is_float(from) ? arena_printf(g->mem, "(int32_t)%s", a) : arena_strdup(g->mem, a);
}

static char *sum_expr(struct gen *g, const struct op *op, const char *const *a)
{
	struct text t = { .mem = g->mem };

	for (uint32_t i = 0; i < op->nin; i++)
		text_put(&t, "%s%s", i ? " + " : "", a[i]);
	return t.s;
}

char *map_expr(struct gen *g, const struct op *op, const char *const *a, bool wide)
{
	static const char *const gelu[2][3] = { { "p_gelu0($0)", "p_gelu1($0)", "p_gelu2($0)" },
						{ "p_dgelu0($0)", "p_dgelu1($0)", "p_dgelu2($0)" } };
	bool ints = !is_float(op->out[0]->dt);

	for (uint32_t i = 0; i < op->nin; i++)
		ints &= !is_float(op->in[i]->dt);
	switch (op->code) {
	case OP_CAST:
		return cast_expr(g, op, a[0]);
	case OP_DETACH:
		return arena_strdup(g->mem, a[0]);
	case OP_ACCUM:
		return sum_expr(g, op, a);
	case OP_GELU:
	case OP_DGELU:
		return fill(g, gelu[op->code == OP_DGELU][op->at.form < 0 || op->at.form > 2 ? 0 : op->at.form], a);
	default:
		break;
	}
	for (size_t i = 0; i < LEN(forms); i++)
		if (forms[i].code == op->code)
			return fill(g, ints && forms[i].i ? forms[i].i : wide && forms[i].d ? forms[i].d : forms[i].f, a);
	return NULL;
}
