/* codegen/cuda_scatter.c - scatter_add as CUDA text, always in one order and without atomics.
 *
 * A first stage writes down for each index the row of the result that it names, none where it is out of range. Where rows are many
 * and wide, a second one puts the elements in the order of their rows, and of one row in the order of the list: the place of
 * each is the number of those before it, so that no two write the same and nothing has to be counted first. A warp for 32 neighbours of
 * a row then finds the first of its elements by halves. Elsewhere the elements of the result look through the list: a warp for
 * 32 neighbours of a row, whose lanes try 32 indices at once; where a row has few elements a thread each, or a warp that shares
 * the list. */
#include <inttypes.h>

#include "codegen/cuda_impl.h"

enum { LONG_LIST = 128, DEAR = 4 /* a look of a list in order, in looks through the list */ };

struct scatter {
	const struct root *r;
	const struct op *op;
	uint32_t index;          /* dims of the indices */
	uint32_t to;             /* of the result: named by them, */
	uint32_t shared, own;    /* dims that indices have too, that only what is added has */
	uint32_t list, inner;    /* loops: over indices, over what else is summed away */
	bool wide, warp;         /* a warp 32 elements; a warp an element */
	bool sorted;             /* wide, and the list is put in order */
};

static int64_t units(const struct gen *g, const struct scatter *x)
{
	int64_t rows = span_count(g, x->shared) * span_count(g, x->to), own = span_count(g, x->own);

	return rows * (x->wide ? ceil_div(own, 32) : own);
}

/* To put n elements in order takes n looks each. */
static bool sort_pays(const struct gen *g, const struct scatter *x)
{
	int64_t n = span_count(g, x->index), keys = span_count(g, x->shared) * span_count(g, x->to);

	return x->wide && n > 0 && keys < INT32_MAX && n < INT32_MAX && units(g, x) / n > DEAR * n / span_count(g, x->list);
}

static struct scatter scatter_of(const struct gen *g, int root)
{
	struct scatter x = { .r = &g->root[root], .op = g->root[root].k->v->def };

	for (uint32_t i = 1; i < x.op->nin; i++)
		x.index |= kval_of(x.op->in[i])->mask;
	for (int i = 0; i < x.op->at.dims.n; i++)
		x.to |= 1u << kdim_of(g, x.op->at.dims.d[i]);
	uint32_t direct = x.r->k->mask & ~x.to, summed = x.r->it & ~direct;

	x.shared = direct & x.index;
	x.own = direct & ~x.index;
	x.list = summed & x.index;
	x.inner = summed & ~x.index;
	x.wide = span_count(g, x.own) >= 32;
	x.warp = !x.wide && span_count(g, x.list) >= LONG_LIST;
	x.sorted = sort_pays(g, &x);
	return x;
}

bool cuda_scatter_sorts(const struct gen *g, int root)
{
	return scatter_of(g, root).sorted;
}

void cuda_scatter_threads(struct cuda *c, struct stage *s)
{
	struct scatter x = scatter_of(c->g, s->roots.at[0]);
	int64_t threads = units(c->g, &x) * (x.wide || x.warp ? 32 : 1);

	s->block = threads >= 128 ? 128 : threads > 32 ? 64 : 32;
	s->blocks = ceil_div(threads, s->block);
}

static const char *list_at(struct cuda *c, int root, const char *type)
{
	return SAY(c->g, "((%s *)(scratch + %" PRId64 "))", type, c->made[root].parts_at);
}

/* The row in order of place q, whose element it is: the second and third list. */
static const char *in_order(struct cuda *c, int root, const char *type, int list, const char *q)
{
	struct scatter x = scatter_of(c->g, root);

	return SAY(c->g, "%s[%" PRId64 " + %s]", list_at(c, root, type), list * span_count(c->g, x.index), q);
}

/* The number of an element among those of these dims, the last one fastest. */
static const char *number_of(struct gen *g, uint32_t mask, const char *const *index)
{
	struct text t = { .mem = g->mem };
	int64_t n = 1;

	for (int k = g->nk - 1; k >= 0; k--)
		if (mask >> k & 1) {
			text_put(&t, "%s%s * %" PRId64, t.n ? " + " : "", index ? index[k] : SAY(g, "i%d", k), n);
			n *= g->kd[k].cap;
		}
	return t.n ? t.s : "0";
}

void cuda_index_text(struct cuda *c, struct stage *s, struct text *t)
{
	struct gen *g = c->g;
	struct scatter x = scatter_of(g, s->roots.at[0]);

	open_dims(g, s->all);
	const struct env *e = env_for(g, x.op, NULL);
	const char *row = number_of(g, x.to, e->index), *list = list_at(c, s->roots.at[0], "int32_t");
	const char *cell_of = x.sorted ? SAY(g, "%s[t]", list) : cell(g, x.r->k, list, false, s->all, NULL);

	if (x.sorted && x.shared)
		row = SAY(g, "(%s) * %" PRId64 " + %s", number_of(g, x.shared, NULL), span_count(g, x.to), row);
	put_nodes(g, t, 0, 0);
	text_put(t, "const uint64_t t = (uint64_t)block * %d + threadIdx.x;\nif (t < %" PRId64 ") {\n", s->block,
		 span_count(g, s->all));
	put_indices(g, t, s->all, "t", 1);
	text_put(t, "if (%s) {\n", inside(g, s->all));
	put_nodes(g, t, 1, g->depth);
	text_put(t, "%s = %s ? (int32_t)(%s) : -1;\n}", cell_of, e->ok ? e->ok : "1", row);
	if (x.sorted)
		text_put(t, " else {\n%s = -1;\n}", cell_of);
	text_put(t, "\n}\n");
}

void cuda_order_text(struct cuda *c, struct stage *s, struct text *t)
{
	int root = s->roots.at[0];
	int64_t n = span_count(c->g, s->all);

	text_put(t, "p_place_in_order(%s, %s, %s, %" PRId64 ", block, (uint32_t *)shared);\n", list_at(c, root, "const uint32_t"),
		 SAY(c->g, "&%s", in_order(c, root, "uint32_t", 1, "0")), SAY(c->g, "&%s", in_order(c, root, "uint32_t", 2, "0")), n);
}

/* What element `t` of the list adds, to `sum`. */
static void put_add(struct gen *g, struct text *t, const struct scatter *x, const char *value, int from)
{
	put_indices(g, t, x->sorted ? x->index : x->list, "t", 1);
	if (x->inner) {
		text_put(t, "for (uint32_t t2 = 0; t2 < %" PRId64 "; t2++) {\n", span_count(g, x->inner));
		put_indices(g, t, x->inner, "t2", 1);
		text_put(t, "if (%s) {\n", inside(g, x->inner));
	}
	put_nodes(g, t, from, g->depth);
	text_put(t, "sum += %s;\n%s", value, x->inner ? "}\n}\n" : "");
}

static void put_wide(struct cuda *c, struct text *t, const struct scatter *x, const char *value, const char *at, int from)
{
	struct gen *g = c->g;
	int64_t n = span_count(g, x->list);

	text_put(t, "for (uint32_t t0 = 0; t0 < %" PRId64 "; t0 += 32) {\nconst uint32_t mine = t0 + lane;\nint32_t to = -1;\n", n);
	text_put(t, "if (mine < %" PRId64 ") {\n", n);
	put_indices(g, t, x->list, "mine", 1);
	text_put(t, "if (%s)\n\tto = %s;\n}\n", inside(g, x->list), at);
	text_put(t, "uint32_t hits = __ballot_sync(0xffffffffu, to == (int32_t)x);\nwhile (hits) {\n"
		 "const uint32_t t = t0 + p_low_bit(hits);\nhits &= hits - 1;\nif (mine_too) {\n");
	put_add(g, t, x, value, from);
	text_put(t, "}\n}\n}\n");
}

/* All that the list names this row for, in its order. */
static void put_sorted(struct cuda *c, struct text *t, const struct scatter *x, int root, const char *value, int from)
{
	struct gen *g = c->g;
	const char *key = in_order(c, root, "const uint32_t", 1, "q");
	int64_t own = span_count(g, x->own), n = span_count(g, x->index);

	text_put(t, "const uint32_t key = (uint32_t)(unit / %" PRId64 ");\n", ceil_div(own, 32));
	text_put(t, "for (uint32_t q = p_first_in_order(&%s, %" PRId64 ", key); q < %" PRId64 " && %s == key; q++) {\n",
		 in_order(c, root, "const uint32_t", 1, "0"), n, n, key);
	text_put(t, "const uint32_t t = %s;\nif (mine_too) {\n", in_order(c, root, "const uint32_t", 2, "q"));
	put_add(g, t, x, value, from);
	text_put(t, "}\n}\n");
}

static void put_narrow(struct cuda *c, struct text *t, const struct scatter *x, const char *value, const char *at, int from)
{
	struct gen *g = c->g;

	text_put(t, "for (uint32_t t = %s; t < %" PRId64 "; t += %d) {\n", x->warp ? "lane" : "0", span_count(g, x->list),
		 x->warp ? 32 : 1);
	text_put(t, "int32_t to = -1;\n{\n");
	put_indices(g, t, x->list, "t", 1);
	text_put(t, "if (%s)\n\tto = %s;\n}\nif (to == (int32_t)x) {\n", inside(g, x->list), at);
	put_add(g, t, x, value, from);
	text_put(t, "}\n}\n");
	if (x->warp)
		text_put(t, "sum = p_warp_sum(sum);\n");
}

void cuda_scatter_text(struct cuda *c, struct stage *s, struct text *t)
{
	struct gen *g = c->g;
	int root = s->roots.at[0];
	struct scatter x = scatter_of(g, root);
	const struct kval *k = x.r->k;
	int64_t own = span_count(g, x.own), per_row = x.wide ? ceil_div(own, 32) : own;

	open_dims(g, x.shared);
	open_dims(g, x.own);
	int depth = g->depth;
	open_dims(g, x.list);
	open_dims(g, x.inner);
	const char *value = operand(g, x.op->in[0], NULL, false);
	const char *at = cell(g, k, list_at(c, root, "const int32_t"), false, x.index, NULL);

	put_nodes(g, t, 0, 0);
	text_put(t, "const uint64_t thread = (uint64_t)block * %d + threadIdx.x, unit = thread / %d;\n", s->block,
		 x.wide || x.warp ? 32 : 1);
	text_put(t, "const uint32_t lane = threadIdx.x & 31;\n(void)lane;\n");
	text_put(t, "if (unit < %" PRId64 ") {\nconst uint32_t x = unit / %" PRId64 " %% %" PRId64 ";\n", units(g, &x), per_row,
		 span_count(g, x.to));
	put_indices(g, t, x.shared, SAY(g, "(unit / %" PRId64 ")", per_row * span_count(g, x.to)), 1);
	put_indices(g, t, x.to, "x", 1);
	text_put(t, "const uint64_t e = unit %% %" PRId64 "%s;\n", per_row, x.wide ? " * 32 + lane" : "");
	put_indices(g, t, x.own, "e", 1);
	text_put(t, "if (%s) {\nconst bool mine_too = e < %" PRId64 " && %s;\n", inside(g, x.shared | x.to), own, inside(g, x.own));
	text_put(t, "%s sum = 0;\n", is_float(k->v->dt) ? "float" : "int32_t");
	if (x.wide)
		text_put(t, "if (1) {\n");
	else
		text_put(t, "if (mine_too) {\n");
	if (!x.wide)
		put_nodes(g, t, 1, depth);
	if (x.sorted)
		put_sorted(c, t, &x, root, value, 1);
	else if (x.wide)
		put_wide(c, t, &x, value, at, 1);
	else
		put_narrow(c, t, &x, value, at, depth + 1);
	text_put(t, "if (%s)\n\t", x.wide ? "mine_too" : x.warp ? "!lane" : "1");
	put_store(t, SAY(g, "o%d[%s]", x.r->out, place(g, k, k->mask, k->stride, NULL)), k->v->dt, "sum");
	text_put(t, "}\n}\n}\n");
}
