/* codegen/value.c - the values of a kernel as C: where they lie, at which index they are read, and
 * the statements that compute them. */
#include <inttypes.h>

#include "codegen/kernel.h"

const char *give_up(struct gen *g, const char *why)
{
	if (!g->failed)
		diag_error(g->d, g->op->span, "no code for a kernel: %s", why);
	g->failed = true;
	return "0";
}

/* -- extents -- */

static int ext_of(struct gen *g, int k)
{
	struct kdim *kd = &g->kd[k];

	if (kd->ext < 0) {
		if (g->sig->next == (int)LEN(g->sig->ext)) {
			give_up(g, "too many extents");
			return 0;
		}
		kd->ext = g->sig->next++;
		g->sig->ext[kd->ext].d = kd->part[0];
		g->sig->ext[kd->ext].on = kd->on;
	}
	return kd->ext;
}

const char *count_of(struct gen *g, int k)
{
	if (g->kd[k].even)
		return SAY(g, "%" PRId64, g->kd[k].cap);
	ext_of(g, k);
	g->valid_used |= 1ull << k;
	return SAY(g, "n%d", k);
}

const char *first_of(struct gen *g, int k)
{
	return k == g->split ? "from" : "0";
}

const char *end_of(struct gen *g, int k)
{
	return k == g->split ? "to" : count_of(g, k);
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

static const char *translated(struct gen *g, dimid d, const char *by, const char *x)
{
	const struct dim *dim = &g->m->dims.at[d];

	return dim->zigzag ? SAY(g, "%s(%s, %" PRId64 ", %d)", by, x, dim->size, dim->zigzag) : x;
}

const char *index_at(struct gen *g, dimid d, const char *position)
{
	return translated(g, d, "p_index", position);
}

const char *position_of(struct gen *g, dimid d, const char *index)
{
	return translated(g, d, "p_position", index);
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

struct node *node_at(struct gen *g, uint32_t loops)
{
	for (int i = g->depth; i > 0; i--)
		if (loops >> g->path[i]->kdim & 1) {
			if (loops & ~g->path[i]->open)
				break;
			return g->path[i];
		}
	if (loops)
		give_up(g, "a value is read outside of its loops");
	return g->path[0];
}

const char *place(struct gen *g, const struct kval *k, uint32_t mask, const int64_t *stride,
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

int64_t span_count(const struct gen *g, uint32_t span)
{
	int64_t n = 1;

	for (int i = 0; i < g->nk; i++)
		if (span >> i & 1)
			n *= g->kd[i].cap;
	return n;
}

const char *cell(struct gen *g, const struct kval *k, const char *arr, bool whole, uint32_t span,
			const struct env *e)
{
	int64_t stride[MAX_KDIM];

	if (whole)
		return SAY(g, "%s[%s]", arr, place(g, k, k->mask, k->stride, e));
	span_strides(g, span, stride);
	return SAY(g, "%s[%s]", arr, place(g, k, span, stride, e));
}

const char *load(struct gen *g, enum dtype dt, const char *what)
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
	const char *i = index_at(g, to, index_of(g, kt, e));

	if (op->code == OP_SLICE) {
		int64_t last = at->start + step * (out - 1);

		replace(g, n, at->dim, loops,
			position_of(g, at->dim, SAY(g, "%s * %" PRId64 " + %" PRId64, i, step, at->start)));
		if (at->start < 0 || last < 0 || at->start >= size || last >= size)
			guard(g, n, at->dim, NULL);
		return;
	}
	const char *j = let(g, loops, "int64_t", SAY(g, "%s - %" PRId64, i, at->start));

	replace(g, n, at->dim, loops, position_of(g, at->dim, step == 1 ? j : SAY(g, "%s / %" PRId64, j, step)));
	guard(g, n, at->dim, step == 1 ? NULL : SAY(g, "%s %% %" PRId64 " == 0", j, step));
}

static void env_roll(struct gen *g, struct env *n, const struct op *op, const struct env *e)
{
	int k = kdim_of(g, op->at.dim);
	int64_t size = g->kd[k].size, shift = size ? ((op->at.shift % size) + size) % size : 0;
	const char *i = index_at(g, op->at.dim, index_of(g, k, e));
	struct node *loop = node_at(g, loops_of(1u << k, e));

	if (!g->device && loop->kdim == k && streq(i, SAY(g, "i%d", k)) && shift && (!loop->shift || loop->shift == shift)) {
		loop->shift = shift;
		replace(g, n, op->at.dim, 1u << k, SAY(g, "%s + c%d", i, k));
		return;
	}
	replace(g, n, op->at.dim, loops_of(1u << k, e),
		position_of(g, op->at.dim, SAY(g, "%s + %" PRId64 " - (%s >= %" PRId64 " ? %" PRId64 " : 0)", i, shift, i,
					       size - shift, size)));
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
		env_roll(g, n, op, e);
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
		const char *at = position_of(g, d, gen(g, row, e)), *start = plus_start(g, k);

		replace(g, n, d, loops, *start ? SAY(g, "(int64_t)%s - s%d", at, k) : at);
		guard(g, n, d, NULL);
	}
}

const struct env *env_for(struct gen *g, const struct op *op, const struct env *e)
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

const char *literal(struct gen *g, const struct op *op, bool wide)
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
	const struct op *around[MAX_NEST];
	int n = 0;

	for (const struct op *o = g->op->home->owner; o; o = o->home->owner)
		if (o->code == OP_REPEAT && n < MAX_NEST)
			around[n++] = o;
	for (int i = 0; i < n; i++)
		if (around[i]->at.dim == op->at.dim)
			return SAY(g, "(int32_t)env->iter[%d]", n - 1 - i);
	return "0";
}

/* The arguments of the random number at the loops' place under e, kdim `without` at 0:
 * "key, index, step, iteration". */
const char *rng_args(struct gen *g, const struct op *op, const struct env *e, int without)
{
	struct text at = { .mem = g->mem };
	const char *iter = "0";
	const struct dimlist *l = &op->at.dims;
	int64_t stride = 1;
	int last = -1;

	for (int i = l->n - 1; i >= 0; i--) {
		int k = kdim_of(g, l->d[i]);

		if (k >= 0 && k != last)
			text_put(&at, "%s(uint64_t)(%s) * %" PRId64, at.n ? " + " : "",
				 index_at(g, l->d[i], SAY(g, "%s%s", k == without ? "0" : index_of(g, k, e), plus_start(g, k))),
				 stride);
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

/* -- several elements of a thread at once -- */

static const char *push_lane(struct gen *g, struct lane l)
{
	l.name = SAY(g, "q%d", g->serial++);
	PUSH(g->mem, &g->lanes->load, l);
	return SAY(g, "%s[u]", l.name);
}

static const char *lane_rng(struct gen *g, const struct op *op, uint32_t mask)
{
	const struct dimlist *d = &op->at.dims;

	if (!d->n || kdim_of(g, d->d[d->n - 1]) != g->lanes->dim || g->m->dims.at[d->d[d->n - 1]].zigzag)
		return NULL;
	return push_lane(g, (struct lane){ .from = rng_args(g, op, NULL, -1), .rng = true, .mask = mask });
}

bool lies_together(const struct gen *g, const struct kval *k)
{
	const struct lanes *l = g->lanes;

	if (!(k->mask >> l->dim & 1) || k->stride[l->dim] != 1)
		return false;
	for (int i = 0; i < g->nk; i++)
		if (i != l->dim && k->mask >> i & 1 && k->stride[i] % l->n)
			return false;
	return true;
}

static const char *lane_load(struct gen *g, const struct kval *k)
{
	if (!lies_together(g, k))
		return NULL;
	const char *from = SAY(g, "p%d + %s", k->arg, place(g, k, k->mask, k->stride, NULL));

	return push_lane(g, (struct lane){ .from = from, .dt = k->v->dt, .mask = k->mask });
}

static const char *leaf_expr(struct gen *g, const struct op *op, const struct env *e)
{
	const char *x;
	int k;

	switch (op->code) {
	case OP_INDEX:
		k = kdim_of(g, op->at.dim);
		return SAY(g, "(int32_t)(%s)", index_at(g, op->at.dim, SAY(g, "%s%s", index_of(g, k, e), plus_start(g, k))));
	case OP_ITER:
		return iter_expr(g, op);
	case OP_STEP:
		return "(int32_t)env->step";
	case OP_TRAINING:
		return "(int32_t)env->training";
	case OP_RNG:
		if (g->lanes && !e && (x = lane_rng(g, op, kval_of(op->out[0])->mask)))
			return x;
		return SAY(g, "p_uniform(%s)", rng_args(g, op, e, -1));
	default:
		return give_up(g, opinfo[op->code].name);
	}
}

const char *operand(struct gen *g, struct value *v, const struct env *e, bool wide)
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

void remember(struct gen *g, struct node *n, struct kval *k, const struct env *e, const char *name)
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
		return x ? x : give_up(g, opinfo[op->code].name);
	case C_VIEW:
	case C_LOOKUP:
		e = env_for(g, op, e);
		x = operand(g, op->in[0], e, false);
		return e->ok ? SAY(g, "%s ? %s : 0", e->ok, x) : x;
	default:
		return give_up(g, "a sum is read before it is done");
	}
}

static uint32_t over_of(const struct env *e)
{
	uint32_t over = 0;

	for (; e; e = e->up)
		over |= e->over;
	return over;
}

const char *gen(struct gen *g, struct value *v, const struct env *e)
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
	if (k->arg >= 0 && g->lanes && !e && (expr = lane_load(g, k)))
		;
	else if (k->arg >= 0)
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
