/* codegen/kernel_c.c - a planned kernel as one C function.
 *
 * build() turns roots into a tree of loops, greedily: a root that waits for nothing opens a loop
 * over its next dim, and every later root that can goes in with it. What a root needs is
 * evaluated by gen() (value.c) as statements in the outermost open loop that has all its dims. */
#include <inttypes.h>

#include "codegen/kernel.h"

enum { ROW_LIMIT = 192 * 1024, BLOCK = 2048 };

const char *const ctype[NDTYPE] = { "float", "bf16", "int32_t", "uint8_t" };

/* -- roots -- */

void put_store(struct text *t, const char *where, enum dtype dt, const char *x)
{
	if (dt == BF16)
		text_put(t, "%s = st_bf16(%s);\n", where, x);
	else
		text_put(t, "%s = (%s)(%s);\n", where, ctype[dt], x);
}

const char *grow(struct gen *g, const struct root *r, const char *acc, const char *x)
{
	if (r->k->v->def->code == OP_RMAX)
		return SAY(g, "%s = %s > %s ? %s : %s;\n", acc, x, acc, x, acc);
	return SAY(g, "%s += %s;\n", acc, x);
}

static void emit_scatter(struct gen *g, struct root *r)
{
	struct value *v = r->k->v;
	const struct op *op = v->def;
	const struct env *e = env_for(g, op, NULL);
	const char *x = operand(g, op->in[0], NULL, false);
	const char *where = SAY(g, "o%d[%s]", r->out, place(g, r->k, r->k->mask, r->k->stride, e));
	struct node *n = g->path[g->depth];
	uint32_t direct = r->k->mask & ~e->over;

	if (n->kdim >= 0 && !(direct >> n->kdim & 1))
		n->serial = true;
	for (int k = 0; k < g->nk; k++)
		if ((e->over & r->k->mask) >> k & 1 && n->kdim >= 0 && e->from[k] >> n->kdim & 1)
			n->serial = true;
	if (e->ok)
		text_put(&n->text, "if (%s)\n\t", e->ok);
	put_store(&n->text, where, v->dt, SAY(g, "%s + %s", load(g, v->dt, where), x));
}

static void emit_rng_row(struct gen *g, struct kval *k)
{
	const struct op *op = k->v->def;
	int last = kdim_of(g, op->at.dims.d[op->at.dims.n - 1]);
	const char *args = rng_args(g, op, NULL, last), *count = count_of(g, last);

	k->arr = SAY(g, "t%d", g->serial++);
	k->span = 1u << last;
	k->whole = false;
	k->full = true;
	k->at = 0;
	k->arr_depth = g->depth;
	text_put(&g->path[g->depth]->text, "_Alignas(64) float %s[%" PRId64 "];\np_uniforms(%s, %s, %s);\n", k->arr,
		 g->kd[last].cap, k->arr, count, args);
}

static void emit_root(struct gen *g, struct root *r)
{
	struct kval *k = r->k;
	const char *x;

	switch (r->kind) {
	case R_STORE:
		x = operand(g, k->v, NULL, false);
		put_store(&g->path[g->depth]->stores, SAY(g, "o%d[%s]", r->out, place(g, k, k->mask, k->stride, NULL)), k->v->dt, x);
		break;
	case R_KEEP:
		x = gen(g, k->v, NULL);
		if (k->arr && g->depth > k->arr_depth)
			text_put(&g->path[g->depth]->text, "%s = %s;\n",
				 cell(g, k, k->arr, k->whole, k->span, NULL), x);
		break;
	case R_RED:
		x = operand(g, k->v->def->in[0], NULL, false);
		text_put(&g->path[g->depth]->text, "%s",
			 grow(g, r, r->acc_array ? cell(g, k, r->acc, r->acc_whole, r->acc_span, NULL) : r->acc, x));
		break;
	case R_SCATTER:
		emit_scatter(g, r);
		break;
	case R_RNG:
		emit_rng_row(g, k);
		break;
	}
	r->done = true;
}

/* -- loops -- */

static void open_loop(struct gen *g, int kdim)
{
	struct node *n = NEW(g->mem, struct node);

	n->kdim = kdim;
	n->open = (g->depth >= 0 ? g->path[g->depth]->open : 0) | (kdim >= 0 ? 1u << kdim : 0);
	n->text.mem = n->stores.mem = g->mem;
	n->inner = true;
	g->path[++g->depth] = n;
}

static struct node *close_loop(struct gen *g)
{
	struct node *n = g->path[g->depth--];

	for (int i = 0; i < g->nval; i++)
		if (g->val[i].arr && g->val[i].arr_depth > g->depth)
			g->val[i].arr = NULL;
	return n;
}

/* for (i over the valid part of the dims of span, as they lie in memory) what */
static void fill_loops(struct gen *g, struct text *t, uint32_t span, const int64_t *stride, const char *what)
{
	while (span) {
		int next = -1;

		for (int i = 0; i < g->nk; i++)
			if (span >> i & 1 && (next < 0 || (stride && stride[i] > stride[next])))
				next = i;
		span &= ~(1u << next);
		text_put(t, "%sfor (int64_t i%d = %s; i%d < %s; i%d++)\n", span ? "" : "_Pragma(\"omp simd\")\n",
			 next, first_of(g, next), next, end_of(g, next), next);
	}
	text_put(t, "%s", what);
}

/* One level of a reduction: its sum over the loop that is being opened. */
struct level {
	struct root *r;
	const char *acc, *up;
	uint32_t span, up_span;
	uint32_t fill; /* of span: those looped over here */
	bool array, up_array, whole, up_whole;
	bool scalar; /* a new float p, declared around the loop */
	bool top, skip;
};

const char *zero_of(const struct root *r)
{
	if (r->k->v->def->code != OP_RMAX)
		return "0";
	return is_float(r->k->v->dt) ? "-INF" : "INT32_MIN";
}

static void declare(struct gen *g, struct kval *k, const char *arr, uint32_t span)
{
	int64_t count = span_count(g, span);

	if (count * 4 > 4 * ROW_LIMIT)
		diag_warn(g->d, k->v->span, "a kernel holds %" PRId64 " partial results on the stack", count);
	text_put(&g->path[g->depth]->text, "_Alignas(64) %s %s[%" PRId64 "];\n",
		 is_float(k->v->dt) ? "float" : "int32_t", arr, count);
}

/* A result that is stored as it is may be made in place; its store is then done. */
static const char *result_of(struct gen *g, struct kval *k)
{
	if (k->store < 0 || (k->v->dt != F32 && k->v->dt != INT))
		return NULL;
	g->root[k->store].done = true;
	return SAY(g, "o%d", g->root[k->store].out);
}

static void sum_array(struct gen *g, struct level *l, uint32_t span)
{
	struct kval *k = l->r->k;
	const char *out;

	l->array = true;
	l->span = span;
	l->fill = span;
	if (l->top && k->arr) {
		l->acc = k->arr;
		l->whole = k->whole;
		l->span = k->span;
	} else if (l->top && (out = result_of(g, k))) {
		l->acc = out;
		l->whole = true;
	} else {
		l->acc = SAY(g, "t%d", g->serial++);
		declare(g, k, l->acc, span);
	}
	fill_loops(g, &g->path[g->depth]->text, span, l->whole ? k->stride : NULL,
		   SAY(g, "%s = %s;\n", cell(g, k, l->acc, l->whole, l->span, NULL), zero_of(l->r)));
}

static void open_level(struct gen *g, struct level *l, int d)
{
	struct root *r = l->r;
	uint32_t open = g->path[g->depth]->open, below = ~open & ~(1u << d);
	uint32_t kin = r->it & ~r->red & below;

	l->up = r->acc;
	l->up_array = r->acc_array;
	l->up_whole = r->acc_whole;
	l->up_span = r->acc_span;
	l->top = !(r->red & open);
	if (kin) {
		l->skip = !l->top && (span_count(g, kin) > 4096 || g->kd[d].cap < 16);
		if (l->skip)
			return;
		sum_array(g, l, kin);
	} else {
		l->scalar = true;
		l->acc = SAY(g, "a%d", g->serial++);
	}
	r->acc = l->acc;
	r->acc_array = l->array;
	r->acc_whole = l->whole;
	r->acc_span = l->span;
}

static void flush_level(struct gen *g, struct level *l, const char *value)
{
	struct root *r = l->r;
	struct kval *k = r->k;
	struct node *n = g->path[g->depth];

	r->acc = l->up;
	r->acc_array = l->up_array;
	r->acc_whole = l->up_whole;
	r->acc_span = l->up_span;
	if (l->skip)
		return;
	if (l->top) {
		if (!l->array) {
			const char *name = SAY(g, "v%d", (int)(k - g->val));
			const char *type = is_wide(k->v) ? "double" : is_float(k->v->dt) ? "float" : "int32_t";

			text_put(&n->text, "const %s %s = (%s)%s;\n", type, name, type, value);
			remember(g, n, k, NULL, name);
			if (k->arr)
				text_put(&n->text, "%s = %s;\n", cell(g, k, k->arr, k->whole, k->span, NULL), name);
		} else if (!k->arr) {
			k->arr = l->acc;
			k->arr_depth = g->depth;
			k->span = l->span;
			k->whole = l->whole;
		}
		k->full = true;
		k->at = n->open;
		return;
	}
	const char *to = l->up_array ? cell(g, k, l->up, l->up_whole, l->up_span, NULL) : l->up;
	if (l->array)
		fill_loops(g, &n->text, l->fill, NULL, grow(g, r, to, cell(g, k, l->acc, false, l->span, NULL)));
	else
		text_put(&n->text, "%s", grow(g, r, to, value));
}

static bool wide_level(const struct level *l, uint32_t deeper)
{
	return l->scalar && is_float(l->r->k->v->dt) && l->r->k->v->def->code == OP_SUM && (l->r->red & deeper);
}

static void put_body(struct text *t, const struct node *n)
{
	if (n->text.n)
		text_bytes(t, n->text.s, n->text.n);
	if (n->stores.n)
		text_bytes(t, n->stores.s, n->stores.n);
}

/* Puts the finished loop into its parent, with the scalars it sums into. */
static void put_loop(struct gen *g, struct node *n, struct level *l, int nl)
{
	struct text *t = &g->path[g->depth]->text;
	int d = n->kdim;
	const char *first = first_of(g, d), *end = end_of(g, d);
	bool blocked = false, simd = n->inner && !n->serial && !(g->kd[d].even && g->kd[d].cap < 4);
	uint32_t deeper = ~n->open;

	for (int i = 0; i < nl; i++)
		blocked |= n->inner && !n->shift && l[i].scalar && is_float(l[i].r->k->v->dt) && g->kd[d].cap > 2 * BLOCK;
	for (int i = 0; i < nl; i++) {
		if (!l[i].scalar)
			continue;
		const char *type = !is_float(l[i].r->k->v->dt) ? "int32_t" : wide_level(&l[i], deeper) ? "double" : "float";

		if (blocked)
			text_put(t, "%s b%s = %s;\n", streq(type, "float") && l[i].r->k->v->def->code == OP_SUM ? "double" : type,
				 l[i].acc, zero_of(l[i].r));
		else
			text_put(t, "%s %s = %s;\n", type, l[i].acc, zero_of(l[i].r));
	}
	if (blocked) {
		text_put(t, "for (int64_t b%d = %s; b%d < %s; b%d += %d) {\n", d, first, d, end, d, BLOCK);
		text_put(t, "const int64_t e%d = b%d + %d < %s ? b%d + %d : %s;\n", d, d, BLOCK, end, d, BLOCK, end);
		for (int i = 0; i < nl; i++)
			if (l[i].scalar)
				text_put(t, "%s %s = %s;\n", is_float(l[i].r->k->v->dt) ? "float" : "int32_t", l[i].acc, zero_of(l[i].r));
	}
	if (n->shift) {
		int64_t size = g->kd[d].size;

		text_put(t, "for (int64_t c%d = %" PRId64 "; c%d > -%" PRId64 "; c%d -= %" PRId64 ") {\n", d, n->shift, d, size, d,
			 size);
		text_put(t, "const int64_t b%d = c%d < 0 ? -c%d : 0, e%d = c%d < 0 ? %" PRId64 " : %" PRId64 ";\n", d, d, d, d, d,
			 size, size - n->shift);
	}
	bool runs = blocked || n->shift;

	if (simd) {
		text_put(t, "_Pragma(\"omp simd");
		for (int i = 0; i < nl; i++)
			if (l[i].scalar)
				text_put(t, " reduction(%s:%s)", l[i].r->k->v->def->code == OP_RMAX ? "max" : "+", l[i].acc);
		text_put(t, "\")\n");
	}
	text_put(t, "for (int64_t i%d = %s; i%d < %s; i%d++) {\n", d, runs ? SAY(g, "b%d", d) : first, d,
		 runs ? SAY(g, "e%d", d) : end, d);
	put_body(t, n);
	text_put(t, n->shift ? "}\n}\n" : "}\n");
	if (blocked) {
		for (int i = 0; i < nl; i++)
			if (l[i].scalar)
				text_put(t, "%s", grow(g, l[i].r, SAY(g, "b%s", l[i].acc), l[i].acc));
		text_put(t, "}\n");
	}
	for (int i = 0; i < nl; i++)
		flush_level(g, &l[i], blocked && l[i].scalar ? SAY(g, "b%s", l[i].acc) : l[i].acc);
	g->path[g->depth]->inner = false;
}

static int low_bit(uint32_t x)
{
	for (int i = 0; i < 32; i++)
		if (x >> i & 1)
			return i;
	return -1;
}

/* Nothing that r waits for is unfinished, but for roots in `with` that do not sum over loop d. */
static bool ready(const struct gen *g, const struct root *r, const bool *with, int d)
{
	for (int i = 0; i < g->nroot; i++) {
		if (!(r->deps[i / 64] >> i % 64 & 1) || g->root[i].done)
			continue;
		if (!with || !with[i] || (d >= 0 && g->root[i].red >> d & 1))
			return false;
	}
	return true;
}

/* A kept value or a reduction that roots outside of loop d read too needs an array. */
static void make_array(struct gen *g, int no, const bool *with)
{
	struct root *r = &g->root[no];
	struct kval *k = r->k;
	uint32_t span = r->it & ~r->red & ~g->path[g->depth]->open;
	bool outside = false;

	for (int i = 0; i < g->nroot; i++)
		outside |= (g->root[i].pulls[no / 64] >> no % 64 & 1) && !g->root[i].done && !with[i];
	if (k->root != no || k->arr || !outside)
		return;
	const char *out = r->kind == R_STORE ? SAY(g, "o%d", r->out) : r->kind == R_RED ? result_of(g, k) : NULL;

	if (r->kind == R_KEEP && span_count(g, span) * 4 > ROW_LIMIT) {
		r->done = true;
		return;
	}
	k->arr = out ? out : SAY(g, "t%d", g->serial++);
	k->whole = out != NULL;
	k->span = span;
	k->full = false;
	k->arr_depth = g->depth;
	if (!out)
		declare(g, k, k->arr, span);
}

static void build(struct gen *g, const bool *mine);

static void build_loop(struct gen *g, const bool *mine, int first, int d)
{
	bool *with = NEWN(g->mem, bool, g->nroot);
	struct level *l = NEWN(g->mem, struct level, g->nroot);
	uint32_t open = g->path[g->depth]->open;
	int nl = 0;

	for (int i = first; i < g->nroot; i++) {
		struct root *r = &g->root[i];

		if (mine[i] && !r->done && low_bit(r->it & ~open) == d)
			with[i] = ready(g, r, with, d);
	}
	for (int i = first; i < g->nroot; i++)
		if (with[i] && g->root[i].kind != R_SCATTER && g->root[i].kind != R_RNG && !(g->root[i].red >> d & 1))
			make_array(g, i, with);
	for (int i = first; i < g->nroot; i++)
		if (with[i] && !g->root[i].done && g->root[i].kind == R_RED && g->root[i].red >> d & 1) {
			l[nl].r = &g->root[i];
			open_level(g, &l[nl++], d);
		}
	open_loop(g, d);
	build(g, with);
	struct node *n = close_loop(g);
	put_loop(g, n, l, nl);
	for (int i = first; i < g->nroot; i++) {
		struct kval *k = g->root[i].k;

		g->root[i].done |= with[i];
		if (with[i] && k->root == i && k->arr && k->arr_depth == g->depth) {
			k->full = true;
			k->at = open;
		}
	}
}

/* The root that is next, -1: none is ready. Of those that are, one that needs no more loops, else the first of those whose
 * next loop is the innermost: what is made for several rows stands before their loop, and all that run over it can share
 * it. Where results may lie on operands this is not a matter of speed: a second loop would read what the first has
 * written (prove_place.c has the rule). */
static int next_root(const struct gen *g, const bool *mine, int *loop)
{
	int best = -1;

	*loop = -1;
	for (int i = 0; i < g->nroot; i++) {
		if (!mine[i] || g->root[i].done || !ready(g, &g->root[i], NULL, -1))
			continue;
		int d = low_bit(g->root[i].it & ~g->path[g->depth]->open);

		if (best < 0 || (*loop >= 0 && (d < 0 || d > *loop))) {
			best = i;
			*loop = d;
		}
	}
	return best;
}

static void build(struct gen *g, const bool *mine)
{
	int i, d;

	while ((i = next_root(g, mine, &d)) >= 0) {
		if (d < 0)
			emit_root(g, &g->root[i]);
		else
			build_loop(g, mine, i, d);
	}
	for (i = 0; i < g->nroot; i++)
		if (mine[i] && !g->root[i].done)
			give_up(g, "a result waits for ever");
}

/* -- the function -- */

static void zero_scatters(struct gen *g)
{
	struct text *t = &g->path[0]->text;

	for (int i = 0; i < g->nroot; i++) {
		struct root *r = &g->root[i];
		bool even = true;

		if (r->kind != R_SCATTER)
			continue;
		if (r->out < 0) {
			give_up(g, "a scatter_add stays in it");
			continue;
		}
		for (int k = 0; k < g->nk; k++)
			even &= (g->kd[k].even && k != g->split) || !(r->k->mask >> k & 1);
		if (even)
			text_put(t, "__builtin_memset(o%d, 0, %" PRId64 ");\n", r->out, local_bytes(g->m, r->k->v));
		else
			fill_loops(g, t, r->k->mask, r->k->stride,
				   SAY(g, "o%d[%s] = 0;\n", r->out, place(g, r->k, r->k->mask, r->k->stride, NULL)));
	}
}

static void put_header(struct gen *g, struct text *t)
{
	const struct block *body = g->op->body;

	text_put(t, "KERNEL(@)\n{\n");
	for (uint32_t i = 0; i < body->args.n; i++)
		text_put(t, "const %s *p%u = in[%u];\n", ctype[body->args.at[i]->dt], i, i);
	for (uint32_t i = 0; i < body->yields.n; i++)
		text_put(t, "%s *o%u = out[%u];\n", ctype[body->yields.at[i]->dt], i, i);
	text_put(t, "(void)in, (void)out, (void)start, (void)valid, (void)env;\n");
	if (g->split >= 0)
		count_of(g, g->split);
	for (int k = 0; k < g->nk; k++) {
		if (g->start_used >> k & 1)
			text_put(t, "const int64_t s%d = start[%d] * %" PRId64 ";\n", k, g->kd[k].ext, g->kd[k].inner);
		if (g->valid_used >> k & 1)
			text_put(t, "const int64_t n%d = valid[%d] * %" PRId64 ";\n", k, g->kd[k].ext, g->kd[k].inner);
	}
	if (g->split >= 0) {
		const char *count = count_of(g, g->split);

		text_put(t, "const int64_t parts = env->parts > 1 ? env->parts : 1;\n");
		text_put(t, "const int64_t from = %s * env->part / parts, to = %s * (env->part + (int64_t)1) / parts;\n", count,
			 count);
	}
}

char *kernel_text(struct gen *g)
{
	bool *all = NEWN(g->mem, bool, g->nroot + 1);
	struct text t = { .mem = g->mem };

	g->depth = -1;
	open_loop(g, -1);
	zero_scatters(g);
	memset(all, true, (size_t)g->nroot);
	build(g, all);
	struct node *n = g->path[0];
	put_header(g, &t);
	put_body(&t, n);
	text_put(&t, "}\n");
	return t.s;
}
