/* tests/fuzz/features.c - what a random module has: ops, arrows, the shape of the mesh. */
#include "tests/fuzz/features.h"

static bool any_op(const struct block *b, bool (*is)(const struct op *op))
{
	for (const struct op *op = b->first; op; op = op->next)
		if (is(op) || (op->body && any_op(op->body, is)))
			return true;
	return false;
}

static bool any_arrow(const struct module *m, bool (*is)(const struct module *m, const struct arrow *a))
{
	for (uint32_t i = 0; i < m->arrows.n; i++)
		if (is(m, &m->arrows.at[i]))
			return true;
	return false;
}

/* -- of the mesh: axes of more than one rank count -- */

static int64_t ranks(const struct module *m)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < m->mesh.n; i++)
		n *= m->mesh.at[i].size;
	return n;
}

static int wide_axes(const struct module *m)
{
	int n = 0;

	for (uint32_t i = 0; i < m->mesh.n; i++)
		n += m->mesh.at[i].size > 1;
	return n;
}

static bool one_rank(const struct module *m) { return ranks(m) == 1; }
static bool to_4(const struct module *m) { return ranks(m) > 1 && ranks(m) <= 4; }
static bool to_16(const struct module *m) { return ranks(m) > 4 && ranks(m) <= 16; }
static bool more(const struct module *m) { return ranks(m) > 16; }
static bool axes_2(const struct module *m) { return wide_axes(m) == 2; }
static bool axes_3(const struct module *m) { return wide_axes(m) >= 3; }

static bool axis_of_1(const struct module *m)
{
	return wide_axes(m) < (int)m->mesh.n;
}

static bool micro(const struct module *m) { return m->micro > 1; }
static bool recompute(const struct module *m) { return m->recompute.how != RECOMPUTE_NONE; }
static bool empty_dim(const struct module *m)
{
	for (uint32_t i = 0; i < m->bufs.n; i++)
		for (int k = 0; k < m->bufs.at[i]->nd; k++)
			if (!dim_size(m, m->bufs.at[i]->d[k]))
				return true;
	return false;
}

static bool bf16(const struct module *m) { return m->precision == BF16; }

/* A dim that an arrow names is less than the arrow's axis, or not a multiple of it. */
static bool dim_vs_axis(const struct module *m, bool less)
{
	for (uint32_t i = 0; i < m->arrows.n; i++) {
		const struct arrow *a = &m->arrows.at[i];

		for (int k = 0; k < a->dims.n; k++)
			for (int j = 0; j < a->naxes; j++) {
				int64_t size = dim_size(m, a->dims.d[k]), axis = m->mesh.at[a->axes[j]].size;

				if (less ? size < axis : size > axis && size % axis)
					return true;
			}
	}
	return false;
}

static bool small_dim(const struct module *m) { return dim_vs_axis(m, true); }
static bool odd_dim(const struct module *m) { return dim_vs_axis(m, false); }

/* -- of arrows -- */

static bool is_wide(const struct module *m, const struct arrow *a)
{
	for (int i = 0; i < a->naxes; i++)
		if (m->mesh.at[a->axes[i]].size > 1)
			return true;
	return false;
}

static bool of_batch(const struct module *m, const struct arrow *a)
{
	return is_wide(m, a) && a->dims.n && a->dims.d[0] == m->batch;
}

static bool names_dim(const struct module *m, const struct arrow *a, const char *name)
{
	for (int i = 0; i < a->dims.n; i++)
		if (streq(m->dims.at[a->dims.d[i]].name, name))
			return is_wide(m, a);
	return false;
}

static bool of_seq(const struct module *m, const struct arrow *a) { return names_dim(m, a, "seq"); }
static bool of_ctx(const struct module *m, const struct arrow *a) { return names_dim(m, a, "ctx"); }
static bool ring(const struct module *m, const struct arrow *a) { return of_seq(m, a) && of_ctx(m, a); }
static bool zigzag(const struct module *m, const struct arrow *a) { return a->zigzag && is_wide(m, a); }
static bool gather_step(const struct module *m, const struct arrow *a) { return a->gather_step && is_wide(m, a); }
static bool nested(const struct module *m, const struct arrow *a) { return a->naxes > 1 && is_wide(m, a); }
static bool selected(const struct module *m, const struct arrow *a) { return a->sel && !a->none && is_wide(m, a); }
static bool none(const struct module *m, const struct arrow *a) { return a->none && is_wide(m, a); }
static bool params(const struct module *m, const struct arrow *a) { return a->what == W_PARAMS && is_wide(m, a); }
static bool grads(const struct module *m, const struct arrow *a) { return a->what == W_GRADS && is_wide(m, a); }
static bool optimizer(const struct module *m, const struct arrow *a)
{
	return a->what == W_OPTIMIZER && is_wide(m, a);
}

/* -- of ops -- */

static bool repeats(const struct op *op) { return op->code == OP_REPEAT; }
static bool attention(const struct op *op) { return op->code == OP_ATTENTION; }
static bool dispatch(const struct op *op) { return op->code == OP_SCATTER || op->code == OP_RANK; }
static bool picks(const struct op *op) { return op->code == OP_TOPK || op->code == OP_ARGMAX; }
static bool windows(const struct op *op) { return op->code == OP_SLICE || op->code == OP_PAD || op->code == OP_ROLL; }
static bool lookup(const struct op *op) { return op->code == OP_LOOKUP; }
static bool random_op(const struct op *op) { return op->code == OP_RNG || (op->code == OP_ATTENTION && HAS(op, p)); }
static bool metric(const struct op *op) { return op->code == OP_REPORT && !streq(op->at.key, "loss"); }

static const struct {
	const char *name;
	bool (*of)(const struct module *m);
	bool (*arrow)(const struct module *m, const struct arrow *a);
	bool (*op)(const struct op *op);
} all[NFEATURES] = {
	{ "one rank", one_rank, NULL, NULL }, { "2-4 ranks", to_4, NULL, NULL }, { "5-16", to_16, NULL, NULL },
	{ "more", more, NULL, NULL }, { "2 axes", axes_2, NULL, NULL }, { "3 axes or 4", axes_3, NULL, NULL },
	{ "an axis of 1", axis_of_1, NULL, NULL }, { "microbatches", micro, NULL, NULL }, { "recompute", recompute, NULL, NULL }, { "bf16", bf16, NULL, NULL },
	{ "a dim less than its axis", small_dim, NULL, NULL }, { "one it does not divide", odd_dim, NULL, NULL },
	{ "an empty param or input", empty_dim, NULL, NULL }, { "batch ->", NULL, of_batch, NULL }, { "seq ->", NULL, of_seq, NULL }, { "ctx ->", NULL, of_ctx, NULL },
	{ "seq, ctx ->", NULL, ring, NULL }, { "zigzag", NULL, zigzag, NULL }, { "gather = step", NULL, gather_step, NULL },
	{ "nested axes", NULL, nested, NULL }, { "named values", NULL, selected, NULL }, { "none", NULL, none, NULL },
	{ "params ->", NULL, params, NULL }, { "grads ->", NULL, grads, NULL }, { "optimizer ->", NULL, optimizer, NULL },
	{ "repeats", NULL, NULL, repeats }, { "attention", NULL, NULL, attention }, { "experts", NULL, NULL, dispatch },
	{ "picks", NULL, NULL, picks }, { "slices", NULL, NULL, windows }, { "lookups", NULL, NULL, lookup },
	{ "dropout", NULL, NULL, random_op }, { "metrics", NULL, NULL, metric },
};

uint64_t features_of(const struct module *m)
{
	uint64_t bits = 0;

	for (int i = 0; i < NFEATURES; i++)
		if (all[i].of ? all[i].of(m) : all[i].arrow ? any_arrow(m, all[i].arrow) : any_op(&m->top, all[i].op))
			bits |= (uint64_t)1 << i;
	return bits;
}

const char *feature_name(int i)
{
	return all[i].name;
}
