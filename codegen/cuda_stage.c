/* codegen/cuda_stage.c - which roots of a kernel region are done together, and by how many threads. */
#include "codegen/cuda_impl.h"

enum { BLOCK = 256, FEW_ROWS = 64, LONG_ROW = 4096, MOST_BLOCKS = 1024, MANY_BLOCKS = 4096 };

static bool has_bit(const uint64_t *set, int i)
{
	return set[i / 64] >> i % 64 & 1;
}

const char *root_type(const struct root *r, bool wide)
{
	return !is_float(r->k->v->dt) ? "int32_t" : wide && is_wide(r->k->v) ? "double" : "float";
}

/* -- is the result of a reduction read at other rows than the reader's? -- */

struct visit {
	const struct value *v;
	uint32_t over;
};
struct walk {
	struct gen *g;
	int root;
	VEC(struct visit) seen;
};

static bool moved(struct walk *w, const struct value *v, uint32_t over)
{
	const struct kval *k = kval_of(v);
	struct visit me = { v, over };

	if (k->root >= 0)
		return k->root == w->root && k->mask & over;
	if (k->arg >= 0 || !v->def)
		return false;
	for (uint32_t i = 0; i < w->seen.n; i++)
		if (w->seen.at[i].v == v && w->seen.at[i].over == over)
			return false;
	PUSH(w->g->mem, &w->seen, me);
	for (uint32_t i = 0; i < v->def->nin; i++)
		if (moved(w, v->def->in[i], i ? over : over | overridden(w->g, v->def)))
			return true;
	return false;
}

static bool reads_elsewhere(struct gen *g, const struct root *r, int dep)
{
	struct walk w = { .g = g, .root = dep };
	const struct op *op = r->k->v->def;

	if (r->kind == R_STORE)
		return moved(&w, r->k->v, 0);
	for (uint32_t i = 0; i < op->nin; i++)
		if (moved(&w, op->in[i], 0))
			return true;
	return false;
}

/* -- stages -- */

static bool by_rows(const struct root *r)
{
	return r->red >> last_bit(r->it) & 1;
}

/* All that root i needs is done, by earlier stages or, row by row, in s. */
static bool ready(struct cuda *c, int i, const struct stage *s)
{
	struct gen *g = c->g;

	for (int d = 0; d < g->nroot; d++) {
		if (d == i || !has_bit(g->root[i].deps, d))
			continue;
		if (c->made[d].stage < 0)
			return false;
		if (s && c->made[d].stage == s->no &&
		    (s->keep != g->root[d].k->mask || reads_elsewhere(g, &g->root[i], d)))
			return false;
	}
	return true;
}

static struct stage *new_stage(struct cuda *c, enum stage_kind kind, uint32_t all, uint32_t keep)
{
	struct stage *s = NEW(c->g->mem, struct stage);

	s->kind = kind;
	s->all = all;
	s->keep = keep;
	s->no = (int)c->stages.n;
	s->lanes = 1;
	s->chunks = 1;
	PUSH(c->g->mem, &c->stages, s);
	return s;
}

static void take(struct cuda *c, struct stage *s, int i)
{
	PUSH(c->g->mem, &s->roots, i);
	if (s->kind == ST_CHUNK || s->kind == ST_COLUMN) {
		if (c->g->root[i].kind == R_RED)
			c->made[i].parts = s->no;
		else
			c->made[i].stage = s->no;
		return;
	}
	c->made[i].stage = s->no;
}

static bool open_root(const struct cuda *c, int i)
{
	return c->made[i].stage < 0 && c->made[i].parts < 0;
}

/* Dims that s already runs over beside its rows: another pass over them costs no launch and finds them in cache. */
static bool has_loop(const struct cuda *c, const struct stage *s, uint32_t it)
{
	for (uint32_t i = 0; i < s->roots.n; i++)
		if (c->g->root[s->roots.at[i]].it == it)
			return true;
	return false;
}

static bool fits(struct cuda *c, const struct stage *s, int i)
{
	const struct root *r = &c->g->root[i];

	if (r->kind == R_SCATTER)
		return false;
	if (r->kind == R_RED)
		return !r->red ? false : s->kind == ST_ROW ? by_rows(r) && r->k->mask == s->keep :
		       s->kind != ST_POINT && r->k->mask == s->keep && r->it == s->all;
	switch (s->kind) {
	case ST_ROW:
		return r->it == s->keep || has_loop(c, s, r->it);
	case ST_POINT:
		return r->it == s->keep;
	default:
		return r->it == s->all;
	}
}

static void absorb(struct cuda *c, struct stage *s)
{
	bool more = true;

	while (more) {
		more = false;
		for (int i = 0; i < c->g->nroot; i++)
			if (open_root(c, i) && fits(c, s, i) && ready(c, i, s)) {
				take(c, s, i);
				more = true;
			}
	}
}

/* What was left in parts is added up. */
static void finish_parts(struct cuda *c, struct stage *parts)
{
	struct stage *s = new_stage(c, ST_POINT, parts->keep, parts->keep);

	for (uint32_t i = 0; i < parts->roots.n; i++)
		if (c->made[parts->roots.at[i]].parts == parts->no)
			take(c, s, parts->roots.at[i]);
	absorb(c, s);
}

static void reduce(struct cuda *c, int i)
{
	struct gen *g = c->g;
	const struct root *r = &g->root[i];
	int64_t rows = span_count(g, r->k->mask), length = span_count(g, r->red);
	bool row = r->red && by_rows(r);
	struct stage *s;

	if (!r->red) {
		s = new_stage(c, ST_POINT, r->it, r->it);
		take(c, s, i);
		absorb(c, s);
		return;
	}
	if (row && (rows >= FEW_ROWS || length <= LONG_ROW) && !is_wide(r->k->v)) {
		s = new_stage(c, ST_ROW, r->it, r->k->mask);
		take(c, s, i);
		absorb(c, s);
		return;
	}
	s = new_stage(c, row ? ST_CHUNK : ST_COLUMN, r->it, r->k->mask);
	take(c, s, i);
	absorb(c, s);
	finish_parts(c, s);
}

/* Dims of the indices of a scatter. */
static uint32_t index_dims(const struct op *op)
{
	uint32_t mask = 0;

	for (uint32_t i = 1; i < op->nin; i++)
		mask |= kval_of(op->in[i])->mask;
	return mask;
}

static bool next_stage(struct cuda *c)
{
	struct gen *g = c->g;
	struct stage *s;

	/* rows first: more can go with them */
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < g->nroot; i++)
			if (g->root[i].kind == R_RED && open_root(c, i) && (g->root[i].red && by_rows(&g->root[i])) == !pass && ready(c, i, NULL)) {
				reduce(c, i);
				return true;
			}
	for (int i = 0; i < g->nroot; i++) {
		if (!open_root(c, i) || !ready(c, i, NULL))
			continue;
		if (g->root[i].kind == R_SCATTER) {
			s = new_stage(c, ST_INDEX, index_dims(g->root[i].k->v->def), index_dims(g->root[i].k->v->def));
			PUSH(g->mem, &s->roots, i);
			c->made[i].parts = s->no;
			if (cuda_scatter_sorts(g, i)) {
				c->made[i].list = s->no;
				s = new_stage(c, ST_ORDER, s->all, s->all);
				PUSH(g->mem, &s->roots, i);
				c->made[i].parts = s->no;
			}
			s = new_stage(c, ST_SCATTER, g->root[i].it, g->root[i].k->mask);
		} else {
			s = new_stage(c, ST_POINT, g->root[i].it, g->root[i].it);
		}
		take(c, s, i);
		absorb(c, s);
		return true;
	}
	return false;
}

/* -- launches -- */

static void find_levels(struct cuda *c)
{
	struct gen *g = c->g;

	for (uint32_t n = 0; n < c->stages.n; n++) {
		struct stage *s = c->stages.at[n];

		for (uint32_t i = 0; i < s->roots.n; i++) {
			int r = s->roots.at[i];
			int before = s->kind == ST_INDEX ? -1 : s->kind == ST_ORDER ? c->made[r].list : c->made[r].parts;

			if (before >= 0 && before != s->no && c->stages.at[before]->level >= s->level)
				s->level = c->stages.at[before]->level + 1;
			for (int d = 0; d < g->nroot; d++) {
				int at = c->made[d].stage;

				if (d == r || !has_bit(g->root[r].deps, d) || at == s->no)
					continue;
				c->made[d].later = true;
				if (c->stages.at[at]->level >= s->level)
					s->level = c->stages.at[at]->level + 1;
			}
		}
	}
}

static int64_t room(struct cuda *c, int64_t bytes)
{
	int64_t at = c->scratch;

	c->scratch += (bytes + 63) / 64 * 64;
	return at;
}

static int bytes_of(const struct root *r)
{
	return is_wide(r->k->v) ? 8 : 4;
}

static void lay_out_scratch(struct cuda *c)
{
	struct gen *g = c->g;

	for (int i = 0; i < g->nroot; i++) {
		const struct root *r = &g->root[i];
		const struct stage *s = c->made[i].parts < 0 ? NULL : c->stages.at[c->made[i].parts];

		c->made[i].at = c->made[i].parts_at = -1;
		if (s && s->kind == ST_INDEX)
			c->made[i].parts_at = room(c, 4 * span_count(g, s->all));
		else if (s && s->kind == ST_ORDER) /* rows as they come; in order; whose they are */
			c->made[i].parts_at = room(c, 3 * 4 * span_count(g, s->all));
		else if (s)
			c->made[i].parts_at = room(c, 4 * s->chunks * span_count(g, s->keep));
		if (r->kind == R_RED && c->made[i].later)
			c->made[i].at = room(c, bytes_of(r) * span_count(g, r->k->mask));
	}
}

/* -- threads -- */

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int threads_for(int64_t n, int most)
{
	int t = 32;

	while (t < n && t < most)
		t *= 2;
	return t;
}

/* How many neighbours along `dim` a thread takes: 16 bytes of the narrowest, if it has registers for all. */
int cuda_lanes_for(struct cuda *c, int dim)
{
	struct gen *g = c->g;
	struct lanes l = { .dim = dim };
	int best = 1;

	if (dim < 0 || !g->kd[dim].even)
		return 1;
	g->lanes = &l;
	for (l.n = 2; l.n <= 8; l.n *= 2) {
		int n = 0;
		bool narrow = false;

		for (int i = 0; i < g->nval; i++) {
			struct kval *k = &g->val[i];

			if ((k->arg < 0 && k->store < 0) || !lies_together(g, k))
				continue;
			n++;
			narrow |= k->v->dt == BF16 || k->v->dt == BOOL;
		}
		if (n && g->kd[dim].cap % l.n == 0 && n * l.n <= 64 && (l.n < 8 || narrow))
			best = l.n;
	}
	g->lanes = NULL;
	return best;
}

static void row_threads(struct cuda *c, struct stage *s)
{
	int64_t rows = span_count(c->g, s->keep), most = 1;

	for (uint32_t i = 0; i < s->roots.n; i++) {
		uint32_t rest = c->g->root[s->roots.at[i]].it & ~s->keep;
		int64_t n = span_count(c->g, rest);

		n /= rest ? cuda_lanes_for(c, last_bit(rest)) : 1;
		most = n > most ? n : most;
	}
	if (most <= 128) {
		s->warp = true;
		s->block = (int)(32 * smaller(rows, 4));
		s->block = s->block == 96 ? 64 : s->block;
		s->blocks = ceil_div(rows, s->block / 32);
		return;
	}
	s->block = threads_for(most / 2, 512);
	s->blocks = rows;
	s->shared = 32 * 8 * (int)s->roots.n;
}

static void column_threads(struct cuda *c, struct stage *s)
{
	struct gen *g = c->g;

	s->lanes = cuda_lanes_for(c, last_bit(s->all));
	int64_t columns = span_count(g, s->keep) / s->lanes, length = span_count(g, s->all & ~s->keep);
	int down = 1;

	s->across = 1;
	while (s->across < columns && s->across < 32)
		s->across *= 2;
	while (s->across * down < 32 || (down < length && s->across * down < BLOCK))
		down *= 2;
	s->block = s->across * down;
	int64_t wide = ceil_div(columns, s->across), most = ceil_div(length, down * 8);

	s->chunks = MOST_BLOCKS / wide;
	s->chunks = s->chunks > most ? most : s->chunks < 1 ? 1 : s->chunks;
	s->blocks = wide * s->chunks;
	s->shared = 4 * s->lanes * s->block;
}

static void chunk_threads(struct cuda *c, struct stage *s)
{
	struct gen *g = c->g;
	int64_t rows = span_count(g, s->keep), length = span_count(g, s->all & ~s->keep);

	s->lanes = cuda_lanes_for(c, last_bit(s->all));
	s->block = cuda_has_body(g) ? BLOCK : threads_for(length / s->lanes, BLOCK); /* of one size, for runs (cuda_run.c) */
	s->chunks = smaller(ceil_div(length, s->block * s->lanes * 4), MOST_BLOCKS / rows);
	s->chunks = s->chunks < 1 ? 1 : s->chunks;
	s->blocks = rows * s->chunks;
	s->shared = 32 * 8 * (int)s->roots.n;
}

static void point_threads(struct cuda *c, struct stage *s)
{
	int64_t n = span_count(c->g, s->keep), most = 0;

	for (uint32_t i = 0; i < s->roots.n; i++) {
		int parts = c->made[s->roots.at[i]].parts;

		most = parts >= 0 && c->stages.at[parts]->chunks > most ? c->stages.at[parts]->chunks : most;
	}
	s->warp = most >= 32;
	s->lanes = most ? 1 : cuda_lanes_for(c, last_bit(s->keep));
	n = s->warp ? n * 32 : n / s->lanes;
	s->block = threads_for(n, BLOCK);
	s->blocks = s->warp ? ceil_div(n, s->block) : smaller(ceil_div(n, s->block), MANY_BLOCKS);
}

static void order_threads(struct cuda *c, struct stage *s)
{
	s->block = ORDER_BLOCK;
	s->blocks = ceil_div(span_count(c->g, s->all), s->block);
	s->shared = 4 * ORDER_BLOCK;
}

bool cuda_stages(struct cuda *c)
{
	struct gen *g = c->g;

	c->made = NEWN(g->mem, struct made, g->nroot + 1);
	for (int i = 0; i < g->nroot; i++)
		c->made[i] = (struct made){ -1, -1, -1, -1, -1, false };
	while (next_stage(c))
		;
	for (int i = 0; i < g->nroot; i++)
		if (c->made[i].stage < 0) {
			give_up(g, "a result waits for ever");
			return false;
		}
	find_levels(c);
	for (uint32_t i = 0; i < c->stages.n; i++) {
		struct stage *s = c->stages.at[i];

		if (s->kind == ST_ROW)
			row_threads(c, s);
		else if (s->kind == ST_COLUMN)
			column_threads(c, s);
		else if (s->kind == ST_CHUNK)
			chunk_threads(c, s);
		else if (s->kind == ST_SCATTER)
			cuda_scatter_threads(c, s);
		else if (s->kind == ST_ORDER)
			order_threads(c, s);
		else
			point_threads(c, s);
	}
	lay_out_scratch(c);
	return true;
}
