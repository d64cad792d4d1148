/* codegen/cuda_loops.c - a stage of a kernel region as CUDA text: all but scatters.
 *
 * Values are printed by value.c into the nodes of open loops, as for C; here a loop is an index that follows from the
 * thread's number, so that the text of all nodes stands one after the other, that of the innermost in a loop over the
 * lanes of the thread. `block` is the number of the block among those of the stage. */
#include <inttypes.h>

#include "codegen/cuda_impl.h"

int last_bit(uint32_t x)
{
	for (int i = 31; i >= 0; i--)
		if (x >> i & 1)
			return i;
	return -1;
}

const char *count_type(const struct gen *g, uint32_t mask)
{
	return span_count(g, mask) < INT32_MAX / 2 ? "uint32_t" : "uint64_t";
}

/* -- loops -- */

static void open_dim(struct gen *g, int k)
{
	struct node *n = NEW(g->mem, struct node);

	n->kdim = k;
	n->open = (g->depth >= 0 ? g->path[g->depth]->open : 0) | (k >= 0 ? 1u << k : 0);
	n->text.mem = n->stores.mem = g->mem;
	g->path[++g->depth] = n;
}

void open_dims(struct gen *g, uint32_t mask)
{
	for (int k = 0; k < g->nk; k++)
		if (mask >> k & 1)
			open_dim(g, k);
}

void close_to(struct gen *g, int depth)
{
	g->depth = depth;
}

static const char *in_scratch(struct cuda *c, const char *type, int64_t at)
{
	return SAY(c->g, "((%s *)(scratch + %" PRId64 "))", type, at);
}

void begin_stage(struct cuda *c, struct stage *s)
{
	struct gen *g = c->g;

	g->depth = -1;
	g->lanes = NULL;
	open_dim(g, -1);
	for (int i = 0; i < g->nroot; i++) {
		struct kval *k = g->root[i].k;

		if (g->root[i].kind != R_RED)
			continue;
		k->arr = NULL;
		if (c->made[i].stage >= s->no || c->made[i].at < 0)
			continue;
		k->arr = in_scratch(c, SAY(g, "const %s", root_type(&g->root[i], true)), c->made[i].at);
		k->span = k->mask;
		k->whole = false;
		k->full = true;
		k->at = 0;
	}
}

void put_indices(struct gen *g, struct text *t, uint32_t mask, const char *number, int lanes)
{
	int64_t n = 1;
	int last = last_bit(mask);

	for (int k = last; k >= 0; k--) {
		if (!(mask >> k & 1))
			continue;
		int64_t cap = g->kd[k].cap / (k == last ? lanes : 1);
		bool first = !(mask & ((1u << k) - 1));

		text_put(t, "const %s %c%d = (%s)(%s", g->ix, k == last && lanes > 1 ? 'b' : 'i', k, g->ix, number);
		if (n > 1)
			text_put(t, " / %" PRId64, n);
		if (!first)
			text_put(t, " %% %" PRId64, cap);
		text_put(t, ")%s;\n", k == last && lanes > 1 ? SAY(g, " * %d", lanes) : "");
		n *= cap;
	}
}

const char *inside(struct gen *g, uint32_t mask)
{
	struct text t = { .mem = g->mem };

	for (int k = 0; k < g->nk; k++)
		if (mask >> k & 1 && !g->kd[k].even)
			text_put(&t, "%si%d < %s", t.n ? " && " : "", k, count_of(g, k));
	return t.n ? t.s : "1";
}

void put_nodes(struct gen *g, struct text *t, int from, int to)
{
	for (int i = from; i <= to; i++)
		if (g->path[i]->text.n)
			text_bytes(t, g->path[i]->text.s, g->path[i]->text.n);
}

/* -- lanes -- */

static void put_load(struct gen *g, struct text *t, const struct lane *l)
{
	const struct lanes *v = g->lanes;

	text_put(t, "%s %s[%d];\n{ const %s i%d = b%d;\n", is_float(l->dt) ? "float" : "int32_t", l->name, v->n, g->ix, v->dim,
		 v->dim);
	if (l->rng)
		text_put(t, "p_uniforms<%d>(%s, %s); }\n", v->n, l->name, l->from);
	else
		text_put(t, "p_get<%d>(%s, %s); }\n", v->n, l->name, l->from);
}

/* The loads that depend on dims of `inner`, or those that do not. */
static void put_loads(struct gen *g, struct text *t, uint32_t inner, bool which)
{
	for (uint32_t i = 0; g->lanes && i < g->lanes->load.n; i++)
		if (!(g->lanes->load.at[i].mask & inner) != which)
			put_load(g, t, &g->lanes->load.at[i]);
}

/* The text of nodes from..to, the last of which is the lanes'; loads that need no dim of inner stand before. */
static void put_body(struct gen *g, struct text *t, int from, uint32_t inner)
{
	struct lanes *l = g->lanes;
	struct node *last = g->path[g->depth];

	put_nodes(g, t, from, g->depth - 1);
	put_loads(g, t, inner, true);
	for (uint32_t i = 0; l && i < l->store.n; i++)
		text_put(t, "%s %s[%d];\n", is_float(l->store.at[i].dt) ? "float" : "int32_t", l->store.at[i].name, l->n);
	if (l)
		text_put(t, "#pragma unroll\nfor (int u = 0; u < %d; u++) {\nconst %s i%d = b%d + u;\n", l->n, g->ix, l->dim, l->dim);
	put_nodes(g, t, g->depth, g->depth);
	if (last->stores.n)
		text_bytes(t, last->stores.s, last->stores.n);
	if (l)
		text_put(t, "}\n");
	for (uint32_t i = 0; l && i < l->store.n; i++)
		text_put(t, "{ const %s i%d = b%d;\np_put<%d>(%s, %s); }\n", g->ix, l->dim, l->dim, l->n, l->store.at[i].from,
			 l->store.at[i].name);
}

static void set_lanes(struct gen *g, int dim, int n)
{
	g->lanes = NULL;
	if (n < 2)
		return;
	g->lanes = NEW(g->mem, struct lanes);
	g->lanes->dim = dim;
	g->lanes->n = n;
}

/* -- roots -- */

static void emit_store(struct gen *g, const struct root *r, const char *when)
{
	struct kval *k = r->k;
	struct node *n = g->path[g->depth];
	const char *x = operand(g, k->v, NULL, false), *at = place(g, k, k->mask, k->stride, NULL);

	if (g->lanes && lies_together(g, k)) {
		struct lane l = { SAY(g, "q%d", g->serial++), SAY(g, "o%d + %s", r->out, at), k->v->dt, false, k->mask };

		PUSH(g->mem, &g->lanes->store, l);
		text_put(&n->stores, "%s[u] = %s;\n", l.name, x);
		return;
	}
	text_put(&n->stores, "%s", when);
	put_store(&n->stores, SAY(g, "o%d[%s]", r->out, at), k->v->dt, x);
}

static const char *sum_name(struct gen *g, int root)
{
	return SAY(g, "a%d", root);
}

static void emit_red(struct gen *g, int root, bool array)
{
	const struct root *r = &g->root[root];
	const char *x = operand(g, r->k->v->def->in[0], NULL, false);

	text_put(&g->path[g->depth]->text, "%s", grow(g, r, array ? SAY(g, "%s[u]", sum_name(g, root)) : sum_name(g, root), x));
}

static const char *way(const struct root *r)
{
	return r->k->v->def->code == OP_RMAX ? "max" : "sum";
}

/* A reduction is done: its value has a name where the loops stand, and a place if it is read later. */
static void name_result(struct cuda *c, int root, const char *value, const char *when)
{
	struct gen *g = c->g;
	const struct root *r = &g->root[root];
	struct node *n = g->path[g->depth];
	const char *type = root_type(r, true), *name = SAY(g, "v%d", (int)(r->k - g->val));

	text_put(&n->text, "const %s %s = (%s)%s;\n", type, name, type, value);
	remember(g, n, r->k, NULL, name);
	if (c->made[root].at >= 0)
		text_put(&n->text, "%s%s = %s;\n", when,
			 cell(g, r->k, in_scratch(c, type, c->made[root].at), false, r->k->mask, NULL), name);
}

/* -- rows -- */

/* Roots of s over `it` that wait for no reduction of s that is not done. */
static int pick_phase(struct cuda *c, const struct stage *s, const bool *done, uint32_t it, bool *mine)
{
	struct gen *g = c->g;
	int n = 0;

	for (uint32_t i = 0; i < s->roots.n; i++) {
		const struct root *r = &g->root[s->roots.at[i]];
		bool ready = !done[i] && r->it == it && (r->kind == R_RED || it != s->keep);

		for (uint32_t d = 0; d < s->roots.n && ready; d++)
			ready = done[d] || d == i || g->root[s->roots.at[d]].kind != R_RED ||
				!(r->deps[s->roots.at[d] / 64] >> s->roots.at[d] % 64 & 1);
		mine[i] = ready;
		n += ready;
	}
	return n;
}

static int phase_lanes(struct cuda *c, uint32_t rest)
{
	return rest ? cuda_lanes_for(c, last_bit(rest)) : 1;
}

/* One pass over the rest of the dims of `it`, by the threads of a row. */
static void put_phase(struct cuda *c, struct stage *s, uint32_t it, const bool *mine)
{
	struct gen *g = c->g;
	uint32_t rest = it & ~s->keep;
	int depth = g->depth, lanes = phase_lanes(c, rest);

	set_lanes(g, last_bit(rest), lanes);
	open_dims(g, rest);
	for (uint32_t i = 0; i < s->roots.n; i++) {
		int no = s->roots.at[i];

		if (mine[i] && g->root[no].kind == R_RED)
			emit_red(g, no, false);
		else if (mine[i])
			emit_store(g, &g->root[no], "");
	}
	struct text *t = &g->path[depth]->text, body = { .mem = g->mem };

	if (rest)
		put_body(g, &body, depth + 1, ~0u);
	for (uint32_t i = 0; i < s->roots.n; i++)
		if (mine[i] && g->root[s->roots.at[i]].kind == R_RED)
			text_put(t, "%s %s = %s;\n", root_type(&g->root[s->roots.at[i]], false), sum_name(g, s->roots.at[i]),
				 zero_of(&g->root[s->roots.at[i]]));
	const char *type = count_type(g, rest);

	text_put(t, "for (%s t = lane; t < %" PRId64 "; t += nlane) {\n", type, span_count(g, rest) / lanes);
	put_indices(g, t, rest, "t", lanes);
	text_put(t, "if (%s) {\n%s}\n}\n", inside(g, lanes > 1 ? rest & ~(1u << last_bit(rest)) : rest), body.s ? body.s : "");
	close_to(g, depth);
	set_lanes(g, 0, 1);
}

static void row_phases(struct cuda *c, struct stage *s)
{
	struct gen *g = c->g;
	bool *done = NEWN(g->mem, bool, s->roots.n + 1), *mine = NEWN(g->mem, bool, s->roots.n + 1);
	uint32_t i;

	for (;;) {
		for (i = 0; i < s->roots.n; i++)
			if (!done[i] && pick_phase(c, s, done, g->root[s->roots.at[i]].it, mine) && mine[i])
				break;
		if (i == s->roots.n)
			break;
		put_phase(c, s, g->root[s->roots.at[i]].it, mine);
		for (i = 0; i < s->roots.n; i++) {
			int no = s->roots.at[i];
			const struct root *r = &g->root[no];

			if (!mine[i])
				continue;
			done[i] = true;
			if (r->kind == R_RED)
				name_result(c, no, s->warp ? SAY(g, "p_warp_%s(%s)", way(r), sum_name(g, no)) :
					    SAY(g, "p_block_%s(%s, (%s *)(shared + %u))", way(r), sum_name(g, no),
						root_type(r, false), i * 256), "if (!lane)\n\t");
		}
	}
	for (i = 0; i < s->roots.n; i++)
		if (!done[i])
			emit_store(g, &g->root[s->roots.at[i]], "if (!lane)\n\t");
}

static void put_all(struct gen *g, struct text *t, int from)
{
	put_nodes(g, t, from, g->depth);
	for (int i = from; i <= g->depth; i++)
		if (g->path[i]->stores.n)
			text_bytes(t, g->path[i]->stores.s, g->path[i]->stores.n);
}

static void row_text(struct cuda *c, struct stage *s, struct text *t)
{
	struct gen *g = c->g;

	open_dims(g, s->keep);
	row_phases(c, s);
	if (s->warp)
		text_put(t, "const int lane = threadIdx.x & 31, nlane = 32;\nconst uint64_t row = (uint64_t)block * %d + (threadIdx.x >> 5);\n",
			 s->block / 32);
	else
		text_put(t, "const int lane = threadIdx.x, nlane = %d;\nconst uint32_t row = block;\n", s->block);
	if (s->keep)
		put_nodes(g, t, 0, 0);
	text_put(t, "if (row < %" PRId64 ") {\n", span_count(g, s->keep));
	put_indices(g, t, s->keep, "row", 1);
	text_put(t, "if (%s) {\n", inside(g, s->keep));
	put_all(g, t, s->keep ? 1 : 0);
	text_put(t, "}\n}\n");
}

/* -- partial results -- */

static void open_sums(struct cuda *c, struct stage *s, struct text *t)
{
	struct gen *g = c->g;

	for (uint32_t i = 0; i < s->roots.n; i++) {
		int no = s->roots.at[i];
		const struct root *r = &g->root[no];

		if (r->kind != R_RED)
			continue;
		if (s->kind == ST_COLUMN)
			text_put(t, "%s %s[%d];\n#pragma unroll\nfor (int u = 0; u < %d; u++)\n\t%s[u] = %s;\n", root_type(r, false),
				 sum_name(g, no), s->lanes, s->lanes, sum_name(g, no), zero_of(r));
		else
			text_put(t, "%s %s = %s;\n", root_type(r, false), sum_name(g, no), zero_of(r));
	}
}

static void emit_parts(struct cuda *c, struct stage *s)
{
	struct gen *g = c->g;

	for (uint32_t i = 0; i < s->roots.n; i++) {
		int no = s->roots.at[i];

		if (g->root[no].kind == R_RED)
			emit_red(g, no, s->kind == ST_COLUMN);
		else
			emit_store(g, &g->root[no], "");
	}
}

static void chunk_text(struct cuda *c, struct stage *s, struct text *t)
{
	struct gen *g = c->g;
	uint32_t rest = s->all & ~s->keep;
	int64_t count = span_count(g, rest) / s->lanes, per = ceil_div(count, s->chunks);

	open_dims(g, s->keep);
	int depth = g->depth;
	set_lanes(g, last_bit(rest), s->lanes);
	open_dims(g, rest);
	emit_parts(c, s);
	text_put(t, "const uint32_t row = block / %" PRId64 ", chunk = block %% %" PRId64 ";\n", s->chunks, s->chunks);
	put_nodes(g, t, 0, 0);
	put_indices(g, t, s->keep, "row", 1);
	open_sums(c, s, t);
	text_put(t, "if (%s) {\n", inside(g, s->keep));
	put_nodes(g, t, 1, depth);
	const char *type = count_type(g, rest);

	text_put(t, "const %s end = (chunk + (%s)1) * %" PRId64 " < %" PRId64 " ? (chunk + (%s)1) * %" PRId64 " : %" PRId64 ";\n", type,
		 type, per, count, type, per, count);
	text_put(t, "for (%s t = chunk * (%s)%" PRId64 " + threadIdx.x; t < end; t += %d) {\n", type, type, per, s->block);
	put_indices(g, t, rest, "t", s->lanes);
	text_put(t, "if (%s) {\n", inside(g, s->lanes > 1 ? rest & ~(1u << last_bit(rest)) : rest));
	if (rest)
		put_body(g, t, depth + 1, ~0u);
	else
		put_all(g, t, depth);
	text_put(t, "}\n}\n}\n");
	for (uint32_t i = 0; i < s->roots.n; i++) {
		int no = s->roots.at[i];
		const struct root *r = &g->root[no];

		if (r->kind != R_RED)
			continue;
		text_put(t, "%s = p_block_%s(%s, (%s *)(shared + %u));\nif (!threadIdx.x)\n\t%s[block] = %s;\n", sum_name(g, no), way(r),
			 sum_name(g, no), root_type(r, false), i * 256, in_scratch(c, root_type(r, false), c->made[no].parts_at),
			 sum_name(g, no));
	}
}

static void column_sums(struct cuda *c, struct stage *s, struct text *t, int64_t columns)
{
	struct gen *g = c->g;

	for (uint32_t i = 0; i < s->roots.n; i++) {
		int no = s->roots.at[i];
		const struct root *r = &g->root[no];
		const char *type = root_type(r, false), *a = sum_name(g, no);

		if (r->kind != R_RED)
			continue;
		text_put(t, "p_down_%s<%d>(%s, (%s *)shared, %d, %d);\nif (column < %" PRId64 " && !down) {\n#pragma unroll\n"
			 "for (int u = 0; u < %d; u++)\n\t%s[chunk * %" PRId64 "ll + column * %d + u] = %s[u];\n}\n",
			 way(r), s->lanes, a, type, s->across, s->block, columns, s->lanes,
			 in_scratch(c, type, c->made[no].parts_at), columns * s->lanes, s->lanes, a);
	}
}

static void column_text(struct cuda *c, struct stage *s, struct text *t)
{
	struct gen *g = c->g;
	uint32_t rest = s->all & ~s->keep;
	int last = last_bit(s->all), down = s->block / s->across;
	int64_t columns = span_count(g, s->keep) / s->lanes, count = span_count(g, rest), per = ceil_div(count, s->chunks);
	const char *type = count_type(g, rest);

	set_lanes(g, last, s->lanes);
	open_dims(g, s->keep & ~(1u << last));
	int depth = g->depth;
	open_dims(g, rest);
	open_dims(g, 1u << last);
	if (s->lanes == 1)
		text_put(&g->path[g->depth]->text, "const int u = 0;\n");
	emit_parts(c, s);
	text_put(t, "const uint32_t chunk = block %% %" PRId64 ", down = threadIdx.x / %d;\n", s->chunks, s->across);
	text_put(t, "const uint64_t column = block / %" PRId64 " * (uint64_t)%d + threadIdx.x %% %d;\n", s->chunks, s->across, s->across);
	put_nodes(g, t, 0, 0);
	open_sums(c, s, t);
	text_put(t, "if (column < %" PRId64 ") {\n", columns);
	put_indices(g, t, s->keep, "column", s->lanes);
	text_put(t, "if (%s) {\n", inside(g, s->lanes > 1 ? s->keep & ~(1u << last) : s->keep));
	put_nodes(g, t, 1, depth);
	put_loads(g, t, rest, false);
	text_put(t, "const %s end = (chunk + (%s)1) * %" PRId64 " < %" PRId64 " ? (chunk + (%s)1) * %" PRId64 " : %" PRId64 ";\n", type,
		 type, per, count, type, per, count);
	text_put(t, "for (%s t = chunk * (%s)%" PRId64 " + down; t < end; t += %d) {\n", type, type, per, down);
	put_indices(g, t, rest, "t", 1);
	text_put(t, "if (%s) {\n", inside(g, rest));
	put_body(g, t, depth + 1, rest);
	text_put(t, "}\n}\n}\n}\n");
	column_sums(c, s, t, columns);
}

/* -- elements -- */

/* The sum of what an earlier stage left. */
static void finish(struct cuda *c, int root, const char *when)
{
	struct gen *g = c->g;
	const struct root *r = &g->root[root];

	if (c->made[root].parts < 0) { /* over nothing */
		name_result(c, root, SAY(g, "(%s)", operand(g, r->k->v->def->in[0], NULL, false)), when);
		return;
	}
	const struct stage *p = c->stages.at[c->made[root].parts];
	bool column = p->kind == ST_COLUMN, sum = r->k->v->def->code == OP_SUM;
	const char *type = root_type(r, false), *wide = is_float(r->k->v->dt) ? sum ? "double" : "float" : "int32_t";
	struct kval *k = r->k;
	int64_t stride[MAX_KDIM], n = column ? 1 : p->chunks;

	for (int i = g->nk - 1; i >= 0; i--) {
		stride[i] = n;
		if (k->mask >> i & 1)
			n *= g->kd[i].cap;
	}
	const char *from = SAY(g, "%s + (%s)", in_scratch(c, SAY(g, "const %s", type), c->made[root].parts_at),
			       place(g, k, k->mask, stride, NULL));

	name_result(c, root, SAY(g, "p_parts_%s<%s>(%s, %" PRId64 ", %" PRId64 ", lane, nlane)", way(r), wide, from, p->chunks,
				 column ? span_count(g, k->mask) : (int64_t)1), when);
}

static void point_text(struct cuda *c, struct stage *s, struct text *t)
{
	struct gen *g = c->g;
	int64_t count = span_count(g, s->keep) / s->lanes;
	const char *type = count_type(g, s->keep), *when = s->warp ? "if (!lane)\n\t" : "";

	set_lanes(g, last_bit(s->keep), s->lanes);
	open_dims(g, s->keep);
	for (uint32_t i = 0; i < s->roots.n; i++)
		if (g->root[s->roots.at[i]].kind == R_RED)
			finish(c, s->roots.at[i], when);
	for (uint32_t i = 0; i < s->roots.n; i++)
		if (g->root[s->roots.at[i]].kind == R_STORE)
			emit_store(g, &g->root[s->roots.at[i]], when);
	if (s->keep)
		put_nodes(g, t, 0, 0);
	text_put(t, s->warp ? "const int lane = threadIdx.x & 31, nlane = 32;\n" : "const int lane = 0, nlane = 1;\n");
	text_put(t, "for (%s t = (block * (%s)%d + threadIdx.x)%s; t < %" PRId64 "; t += %" PRId64 ") {\n", type, type, s->block,
		 s->warp ? " / 32" : "", count, s->blocks * s->block / (s->warp ? 32 : 1));
	put_indices(g, t, s->keep, "t", s->lanes);
	text_put(t, "if (%s) {\n", inside(g, s->lanes > 1 ? s->keep & ~(1u << last_bit(s->keep)) : s->keep));
	if (s->keep)
		put_body(g, t, 1, ~0u);
	else
		put_all(g, t, 0);
	text_put(t, "}\n}\n");
}

void cuda_stage_text(struct cuda *c, struct stage *s)
{
	struct text t = { .mem = c->g->mem };

	begin_stage(c, s);
	switch (s->kind) {
	case ST_POINT:
		point_text(c, s, &t);
		break;
	case ST_ROW:
		row_text(c, s, &t);
		break;
	case ST_CHUNK:
		chunk_text(c, s, &t);
		break;
	case ST_COLUMN:
		column_text(c, s, &t);
		break;
	case ST_INDEX:
		cuda_index_text(c, s, &t);
		break;
	case ST_ORDER:
		cuda_order_text(c, s, &t);
		break;
	case ST_SCATTER:
		cuda_scatter_text(c, s, &t);
		break;
	}
	s->text = t.s;
	set_lanes(c->g, 0, 1);
}
