/* codegen/kernel_c.c - a planned kernel as one C function.
 *
 * build() turns roots into a tree of loops, greedily: the first root that waits for nothing opens
 * a loop over its next dim, and every later root that can goes in with it. What a root needs is
 * evaluated by gen() as statements in the outermost open loop that has all its dims. Views and
 * lookups evaluate their operand at other indices (struct env). */
#include <inttypes.h>

#include "codegen/kernel.h"

enum { ROW_LIMIT = 192 * 1024, BLOCK = 2048 };

/* Under an env some dims are not the loop's variable but an index computed before. */
struct env {
	const struct env *up;
	const struct op *op;
	uint32_t over;                 /* kdims replaced */
	const char *index[MAX_KDIM];
	uint32_t from[MAX_KDIM];       /* loops that the index depends on */
	const char *ok;                /* NULL: always in range */
	uint32_t ok_from;
};

#define SAY(g, ...) arena_printf((g)->mem, __VA_ARGS__)

static const char *const ctype[NDTYPE] = { "float", "bf16", "int32_t", "uint8_t" };

static const char *gen(struct gen *g, struct value *v, const struct env *e);

/* -- extents -- */

static int ext_of(struct gen *g, int k)
{
	struct kdim *kd = &g->kd[k];

	if (kd->ext < 0) {
		if (g->sig->next == (int)LEN(g->sig->ext))
			die("a kernel of more than 64 extents");
		kd->ext = g->sig->next++;
		g->sig->ext[kd->ext].d = kd->part[0];
		g->sig->ext[kd->ext].on = kd->on;
	}
	return kd->ext;
}

static const char *count_of(struct gen *g, int k)
{
	if (g->kd[k].even)
		return SAY(g, "%" PRId64, g->kd[k].cap);
	ext_of(g, k);
	g->valid_used |= 1ull << k;
	return SAY(g, "n%d", k);
}

/* "" or " + s3" */
static const char *plus_start(struct gen *g, int k)
{
	if (!g->kd[k].on.n)
		return "";
	ext_of(g, k);
	g->start_used |= 1ull << k;
	return SAY(g, " + s%d", k);
}

/* -- indices and places -- */

static const char *index_of(struct gen *g, int k, const struct env *e)
{
	for (; e; e = e->up)
		if (e->over >> k & 1)
			return e->index[k];
	return SAY(g, "i%d", k);
}

/* The loops that dims of mask depend on under e. */
static uint32_t loops_of(uint32_t mask, const struct env *e)
{
	uint32_t loops = 0;

	for (int k = 0; k < MAX_KDIM; k++) {
		if (!(mask >> k & 1))
			continue;
		const struct env *at = e;

		while (at && !(at->over >> k & 1))
			at = at->up;
		loops |= at ? at->from[k] : 1u << k;
	}
	return loops;
}

static struct node *node_at(struct gen *g, uint32_t loops)
{
	for (int i = g->depth; i > 0; i--)
		if (loops >> g->path[i]->kdim & 1) {
			if (loops & ~g->path[i]->open)
				break;
			return g->path[i];
		}
	if (loops)
		die("a value of kernel %s is read outside its loops (%x)", g->sig->name, loops);
	return g->path[0];
}

static const char *place(struct gen *g, const struct kval *k, uint32_t mask, const int64_t *stride,
			 const struct env *e)
{
	struct text t = { .mem = g->mem };

	(void)k;
	for (int i = 0; i < g->nk; i++) {
		if (!(mask >> i & 1))
			continue;
		text_put(&t, "%s%s", t.n ? " + " : "", index_of(g, i, e));
		if (stride[i] != 1)
			text_put(&t, " * %" PRId64, stride[i]);
	}
	if (!t.n)
		text_put(&t, "0");
	return t.s;
}

/* Strides of an array that holds the dims of span only. */
static void span_strides(const struct gen *g, uint32_t span, int64_t *stride)
{
	int64_t n = 1;

	for (int i = g->nk - 1; i >= 0; i--) {
		stride[i] = n;
		if (span >> i & 1)
			n *= g->kd[i].cap;
	}
}

static int64_t span_count(const struct gen *g, uint32_t span)
{
	int64_t n = 1;

	for (int i = 0; i < g->nk; i++)
		if (span >> i & 1)
			n *= g->kd[i].cap;
	return n;
}

static const char *cell(struct gen *g, const struct kval *k, const char *arr, bool whole, uint32_t span,
			const struct env *e)
{
	int64_t stride[MAX_KDIM];

	if (whole)
		return SAY(g, "%s[%s]", arr, place(g, k, k->mask, k->stride, e));
	span_strides(g, span, stride);
	return SAY(g, "%s[%s]", arr, place(g, k, span, stride, e));
}

static const char *load(struct gen *g, enum dtype dt, const char *what)
{
	return dt == BF16 ? SAY(g, "ld_bf16(%s)", what) : what;
}

/* -- envs: views and lookups -- */

static const char *let(struct gen *g, uint32_t loops, const char *type, const char *expr)
{
	const char *name = SAY(g, "x%d", g->serial++);

	text_put(&node_at(g, loops)->text, "const %s %s = %s;\n", type, name, expr);
	return name;
}

static void replace(struct gen *g, struct env *n, dimid d, uint32_t loops, const char *expr)
{
	int k = kdim_of(g, d);

	n->over |= 1u << k;
	n->from[k] = loops;
	n->index[k] = let(g, loops, "int64_t", expr);
}

/* Index k is within [0, count): else the value is 0, and the index is made harmless. */
static void guard(struct gen *g, struct env *n, dimid d, const char *also)
{
	int k = kdim_of(g, d);
	uint32_t loops = n->from[k];
	const char *ok = SAY(g, "(uint64_t)%s < (uint64_t)%s%s%s", n->index[k], count_of(g, k),
			     also ? " && " : "", also ? also : "");

	if (n->ok)
		ok = SAY(g, "%s & (%s)", n->ok, ok);
	n->ok_from |= loops;
	n->ok = let(g, n->ok_from, "int32_t", ok);
	n->index[k] = let(g, n->ok_from, "int64_t", SAY(g, "%s ? %s : 0", n->ok, n->index[k]));
	n->from[k] = n->ok_from;
}

static void env_slice(struct gen *g, struct env *n, const struct op *op, const struct env *e)
{
	const struct attrs *at = &op->at;
	dimid to = HAS(op, to) ? at->to : at->dim;
	int64_t step = HAS(op, stride) && at->stride ? at->stride : 1;
	int64_t size = dim_size(g->m, at->dim), out = dim_size(g->m, to);
	int kt = kdim_of(g, to);
	uint32_t loops = loops_of(1u << kt, e);
	const char *i = index_of(g, kt, e);

	if (op->code == OP_SLICE) {
		int64_t last = at->start + step * (out - 1);

		replace(g, n, at->dim, loops, SAY(g, "%s * %" PRId64 " + %" PRId64, i, step, at->start));
		if (at->start < 0 || last < 0 || at->start >= size || last >= size)
			guard(g, n, at->dim, NULL);
		return;
	}
	const char *j = let(g, loops, "int64_t", SAY(g, "%s - %" PRId64, i, at->start));

	replace(g, n, at->dim, loops, step == 1 ? j : SAY(g, "%s / %" PRId64, j, step));
	guard(g, n, at->dim, step == 1 ? NULL : SAY(g, "%s %% %" PRId64 " == 0", j, step));
}

static void env_view(struct gen *g, struct env *n, const struct op *op, const struct env *e)
{
	const struct attrs *at = &op->at;

	if (op->code == OP_RENAME) {
		for (int i = 0; i < at->dims.n; i++) {
			int kt = kdim_of(g, at->tos.d[i]);

			replace(g, n, at->dims.d[i], loops_of(1u << kt, e), index_of(g, kt, e));
		}
	} else if (op->code == OP_SPLIT) {
		const char *i = NULL;
		uint32_t loops = 0;

		for (int j = 0; j < at->tos.n; j++) {
			int kt = kdim_of(g, at->tos.d[j]);
			const char *x = index_of(g, kt, e);

			loops |= loops_of(1u << kt, e);
			i = i ? SAY(g, "(%s) * %" PRId64 " + %s", i, dim_size(g->m, at->tos.d[j]), x) : x;
		}
		replace(g, n, at->dim, loops, i);
	} else if (op->code == OP_MERGE) {
		int kt = kdim_of(g, at->to);
		int64_t inner = 1;

		for (int i = at->dims.n - 1; i >= 0; i--) {
			int64_t size = dim_size(g->m, at->dims.d[i]);

			replace(g, n, at->dims.d[i], loops_of(1u << kt, e),
				SAY(g, i ? "%s / %" PRId64 " %% %" PRId64 : "%s / %" PRId64,
				    index_of(g, kt, e), inner, size));
			inner *= size;
		}
	} else {
		int k = kdim_of(g, at->dim);
		int64_t size = g->kd[k].size, shift = ((at->shift % size) + size) % size;
		const char *i = index_of(g, k, e);

		replace(g, n, at->dim, loops_of(1u << k, e),
			SAY(g, "%s + %" PRId64 " - (%s >= %" PRId64 " ? %" PRId64 " : 0)", i, shift, i,
			    size - shift, size));
	}
}

/* The rows of in[1..] name places along at.dims: of a lookup's table, of a scatter's result. */
static void env_rows(struct gen *g, struct env *n, const struct op *op, const struct env *e)
{
	for (int i = 0; i < op->at.dims.n; i++) {
		dimid d = op->at.dims.d[i];
		struct value *row = op->in[i + 1];
		uint32_t loops = loops_of(kval_of(row)->mask, e);
		int k = kdim_of(g, d);
		const char *at = gen(g, row, e), *start = plus_start(g, k);

		replace(g, n, d, loops, *start ? SAY(g, "(int64_t)%s - s%d", at, k) : at);
		guard(g, n, d, NULL);
	}
}

static const struct env *env_for(struct gen *g, const struct op *op, const struct env *e)
{
	for (int i = g->depth; i >= 0; i--)
		for (uint32_t j = 0; j < g->path[i]->envs.n; j++)
			if (g->path[i]->envs.at[j]->op == op && g->path[i]->envs.at[j]->up == e)
				return g->path[i]->envs.at[j];
	struct env *n = NEW(g->mem, struct env);
	uint32_t loops = 0;

	n->up = e;
	n->op = op;
	if (op->code == OP_LOOKUP || op->code == OP_SCATTER)
		env_rows(g, n, op, e);
	else if (op->code == OP_SLICE || op->code == OP_PAD)
		env_slice(g, n, op, e);
	else
		env_view(g, n, op, e);
	for (int k = 0; k < g->nk; k++)
		if (n->over >> k & 1)
			loops |= n->from[k];
	struct node *home = node_at(g, loops | n->ok_from);
	PUSH(g->mem, &home->envs, n);
	return n;
}

/* -- values -- */

static const char *literal(struct gen *g, const struct op *op, bool wide)
{
	double x = op->at.value;

	if (op->out[0]->dt == INT)
		return SAY(g, "%d", (int)x);
	if (op->out[0]->dt == BOOL)
		return x != 0 ? "1" : "0";
	if (x != x)
		return "__builtin_nanf(\"\")";
	if (x > 3.4028235677973366e38 || x < -3.4028235677973366e38)
		return x > 0 ? "INF" : "(-INF)";
	return wide ? SAY(g, x < 0 ? "(%a)" : "%a", x) : SAY(g, x < 0 ? "(%af)" : "%af", (double)(float)x);
}

static const char *iter_expr(struct gen *g, const struct op *op)
{
	const struct op *around[8];
	int n = 0;

	for (const struct op *o = g->op->home->owner; o; o = o->home->owner)
		if (o->code == OP_REPEAT && n < 8)
			around[n++] = o;
	for (int i = 0; i < n; i++)
		if (around[i]->at.dim == op->at.dim)
			return SAY(g, "(int32_t)env->iter[%d]", n - 1 - i);
	return "0";
}

/* The arguments of the random number at the loops' place under e, kdim `without` at 0:
 * "key, index, step, iteration". */
static const char *rng_args(struct gen *g, const struct op *op, const struct env *e, int without)
{
	struct text at = { .mem = g->mem };
	const char *iter = "0";
	const struct dimlist *l = &op->at.dims;
	int64_t stride = 1;
	int last = -1;

	for (int i = l->n - 1; i >= 0; i--) {
		int k = kdim_of(g, l->d[i]);

		if (k >= 0 && k != last)
			text_put(&at, "%s(uint64_t)(%s%s) * %" PRId64, at.n ? " + " : "",
				 k == without ? "0" : index_of(g, k, e), plus_start(g, k), stride);
		last = k;
		stride *= dim_size(g->m, l->d[i]);
	}
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *it = op->in[i]->def;
		int64_t size = it && it->code == OP_ITER ? dim_size(g->m, it->at.dim) : 1;
		const char *x = gen(g, op->in[i], e);

		iter = i ? SAY(g, "(%s * %" PRId64 "u + (uint32_t)%s)", iter, size, x) : SAY(g, "(uint32_t)%s", x);
	}
	const char *key = op->at.key ? op->at.key : "";

	return SAY(g, "env->seed ^ 0x%016" PRIx64 "ull, %s, env->step, %s", fnv1a(FNV_START, key, strlen(key)),
		   at.n ? at.s : "0", iter);
}

static const char *leaf_expr(struct gen *g, const struct op *op, const struct env *e)
{
	int k;

	switch (op->code) {
	case OP_INDEX:
		k = kdim_of(g, op->at.dim);
		return SAY(g, "(int32_t)(%s%s)", index_of(g, k, e), plus_start(g, k));
	case OP_ITER:
		return iter_expr(g, op);
	case OP_STEP:
		return "(int32_t)env->step";
	case OP_TRAINING:
		return "(int32_t)env->training";
	case OP_RNG:
		return SAY(g, "p_uniform(%s)", rng_args(g, op, e, -1));
	default:
		die("%s in a kernel", opinfo[op->code].name);
	}
}

static const char *operand(struct gen *g, struct value *v, const struct env *e, bool wide)
{
	if (v->def && v->def->code == OP_CONST && kval_of(v)->arg < 0)
		return literal(g, v->def, wide);
	const char *name = gen(g, v, e);
	return is_wide(v) && !wide && kval_of(v)->arg < 0 ? SAY(g, "(float)%s", name) : name;
}

static const char *find_memo(const struct node *n, const struct kval *k, const struct env *e)
{
	for (uint32_t i = n->memo.n; i-- > 0;)
		if (n->memo.at[i].k == k && n->memo.at[i].env == e)
			return n->memo.at[i].name;
	return NULL;
}

static void remember(struct gen *g, struct node *n, struct kval *k, const struct env *e, const char *name)
{
	struct memo memo = { k, e, name };

	PUSH(g->mem, &n->memo, memo);
}

/* 1 / v, where v has fewer loops than the quotient. */
static const char *reciprocal(struct gen *g, struct value *v, const struct env *e, const char *name)
{
	struct kval *k = kval_of(v);
	uint32_t loops = loops_of(k->mask, e);
	struct node *n = node_at(g, loops);
	const char *key = SAY(g, "r%s", name);

	for (uint32_t i = 0; i < n->memo.n; i++)
		if (!n->memo.at[i].k && streq(n->memo.at[i].name, key))
			return n->memo.at[i].name;
	if (strchr(name, ' ') || strchr(name, '(') || (name[0] != 'v'))
		return SAY(g, "(1.0f / %s)", name);
	text_put(&n->text, "const float %s = (float)(1.0 / (double)%s);\n", key, name);
	remember(g, n, NULL, NULL, key);
	return key;
}

static const char *op_expr(struct gen *g, struct value *v, const struct env *e)
{
	const struct op *op = v->def;
	const char *a[64], *x;

	switch (opinfo[op->code].class) {
	case C_LEAF:
		return op->code == OP_CONST ? literal(g, op, is_wide(v)) : leaf_expr(g, op, e);
	case C_MAP:
		for (uint32_t i = 0; i < op->nin && i < 64; i++)
			a[i] = operand(g, op->in[i], e, is_wide(v));
		if (op->code == OP_DIV && kval_of(v)->mask & ~kval_of(op->in[1])->mask)
			return SAY(g, "%s * %s", a[0], reciprocal(g, op->in[1], e, a[1]));
		x = map_expr(g, op, a, is_wide(v));
		if (!x)
			die("no C for %s", opinfo[op->code].name);
		return x;
	case C_VIEW:
	case C_LOOKUP:
		e = env_for(g, op, e);
		x = operand(g, op->in[0], e, false);
		return e->ok ? SAY(g, "%s ? %s : 0", e->ok, x) : x;
	default:
		die("%s is read in its kernel before it is done", opinfo[op->code].name);
	}
}

static uint32_t over_of(const struct env *e)
{
	uint32_t over = 0;

	for (; e; e = e->up)
		over |= e->over;
	return over;
}

/* The C name of v where the open loops are; statements that compute it are added to them. */
static const char *gen(struct gen *g, struct value *v, const struct env *e)
{
	struct kval *k = kval_of(v);
	const char *expr;

	while (e && !(e->over & k->mask))
		e = e->up;
	uint32_t loops = loops_of(k->mask, e);
	struct node *n = node_at(g, loops);
	const char *name = find_memo(n, k, e);

	if (name)
		return name;
	if (k->arg >= 0)
		expr = load(g, v->dt, SAY(g, "p%d[%s]", k->arg, place(g, k, k->mask, k->stride, e)));
	else if (k->arr && k->full && !(over_of(e) & k->mask & ~(k->span & ~k->at)))
		expr = cell(g, k, k->arr, k->whole, k->span, e);
	else
		expr = op_expr(g, v, e);
	const char *type = is_wide(v) && k->arg < 0 ? "double" : is_float(v->dt) ? "float" : "int32_t";
	int no = (int)(k - g->val);

	name = e ? SAY(g, "v%d_%d", no, g->serial++) : SAY(g, "v%d", no);
	n = node_at(g, loops);
	text_put(&n->text, "const %s %s = %s;\n", type, name, expr);
	remember(g, n, k, e, name);
	return name;
}

/* -- roots -- */

static void put_store(struct gen *g, const char *where, enum dtype dt, const char *x)
{
	struct text *t = &g->path[g->depth]->text;

	if (dt == BF16)
		text_put(t, "%s = st_bf16(%s);\n", where, x);
	else
		text_put(t, "%s = (%s)(%s);\n", where, ctype[dt], x);
}

static const char *grow(struct gen *g, const struct root *r, const char *acc, const char *x)
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
	put_store(g, where, v->dt, SAY(g, "%s + %s", load(g, v->dt, where), x));
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
		put_store(g, SAY(g, "o%d[%s]", r->out, place(g, k, k->mask, k->stride, NULL)), k->v->dt, x);
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
	n->text.mem = g->mem;
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

/* for (i over the valid part of the dims of span) what */
static void fill_loops(struct gen *g, struct text *t, uint32_t span, const char *what)
{
	int last = -1;

	for (int i = 0; i < g->nk; i++)
		if (span >> i & 1)
			last = i;
	for (int i = 0; i < g->nk; i++)
		if (span >> i & 1)
			text_put(t, "%sfor (int64_t i%d = 0; i%d < %s; i%d++)\n",
				 i == last ? "_Pragma(\"omp simd\")\n" : "", i, i, count_of(g, i), i);
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

static const char *zero_of(const struct root *r)
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
	fill_loops(g, &g->path[g->depth]->text, span,
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
		fill_loops(g, &n->text, l->fill, grow(g, r, to, cell(g, k, l->acc, false, l->span, NULL)));
	else
		text_put(&n->text, "%s", grow(g, r, to, value));
}

static bool wide_level(const struct level *l, uint32_t deeper)
{
	return l->scalar && is_float(l->r->k->v->dt) && l->r->k->v->def->code == OP_SUM && (l->r->red & deeper);
}

/* Puts the finished loop into its parent, with the scalars it sums into. */
static void put_loop(struct gen *g, struct node *n, struct level *l, int nl)
{
	struct text *t = &g->path[g->depth]->text;
	int d = n->kdim;
	const char *count = count_of(g, d);
	bool blocked = false, simd = n->inner && !n->serial && !(g->kd[d].even && g->kd[d].cap < 4);
	uint32_t deeper = ~n->open;

	for (int i = 0; i < nl; i++)
		blocked |= n->inner && l[i].scalar && is_float(l[i].r->k->v->dt) && g->kd[d].cap > 2 * BLOCK;
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
		text_put(t, "for (int64_t b%d = 0; b%d < %s; b%d += %d) {\n", d, d, count, d, BLOCK);
		text_put(t, "const int64_t e%d = b%d + %d < %s ? b%d + %d : %s;\n", d, d, BLOCK, count, d, BLOCK, count);
		for (int i = 0; i < nl; i++)
			if (l[i].scalar)
				text_put(t, "%s %s = %s;\n", is_float(l[i].r->k->v->dt) ? "float" : "int32_t", l[i].acc, zero_of(l[i].r));
	}
	if (simd) {
		text_put(t, "_Pragma(\"omp simd");
		for (int i = 0; i < nl; i++)
			if (l[i].scalar)
				text_put(t, " reduction(%s:%s)", l[i].r->k->v->def->code == OP_RMAX ? "max" : "+", l[i].acc);
		text_put(t, "\")\n");
	}
	text_put(t, "for (int64_t i%d = %s; i%d < %s; i%d++) {\n", d, blocked ? SAY(g, "b%d", d) : "0", d,
		 blocked ? SAY(g, "e%d", d) : count, d);
	text_bytes(t, n->text.s ? n->text.s : "", n->text.n);
	text_put(t, "}\n");
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
		outside |= (g->root[i].deps[no / 64] >> no % 64 & 1) && !g->root[i].done && !with[i];
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

static void build(struct gen *g, const bool *mine)
{
	for (;;) {
		int i, d;

		for (i = 0; i < g->nroot; i++)
			if (mine[i] && !g->root[i].done && ready(g, &g->root[i], NULL, -1))
				break;
		if (i == g->nroot)
			break;
		d = low_bit(g->root[i].it & ~g->path[g->depth]->open);
		if (d < 0)
			emit_root(g, &g->root[i]);
		else
			build_loop(g, mine, i, d);
	}
	for (int i = 0; i < g->nroot; i++)
		if (mine[i] && !g->root[i].done)
			die("kernel %s: a result waits for ever", g->sig->name);
}

/* -- the function -- */

static void zero_scatters(struct gen *g)
{
	for (int i = 0; i < g->nroot; i++) {
		struct root *r = &g->root[i];

		if (r->kind != R_SCATTER)
			continue;
		if (r->out < 0)
			die("a scatter_add that stays in its kernel");
		fill_loops(g, &g->path[0]->text, r->k->mask,
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
	for (int k = 0; k < g->nk; k++) {
		if (g->start_used >> k & 1)
			text_put(t, "const int64_t s%d = start[%d] * %" PRId64 ";\n", k, g->kd[k].ext, g->kd[k].inner);
		if (g->valid_used >> k & 1)
			text_put(t, "const int64_t n%d = valid[%d] * %" PRId64 ";\n", k, g->kd[k].ext, g->kd[k].inner);
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
	text_bytes(&t, n->text.s ? n->text.s : "", n->text.n);
	text_put(&t, "}\n");
	return t.s;
}
