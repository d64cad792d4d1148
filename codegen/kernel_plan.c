/* codegen/kernel_plan.c - a kernel region before printing: its dims in loop order, neighbours made
 * one, the layout of its values, its roots and what each root waits for. */
#include "codegen/kernel.h"

enum { KEEP_COST = 8, STORE_COST = 3, RNG_ROW = 16384 };

int kdim_of(const struct gen *g, dimid d)
{
	for (int i = 0; i < g->nk; i++)
		for (int k = 0; k < g->kd[i].nparts; k++)
			if (g->kd[i].part[k] == d)
				return i;
	return -1;
}

static void add_value(struct gen *g, struct value *v, int arg)
{
	struct kval *k = &g->val[g->nval++];

	k->v = v;
	k->arg = arg;
	k->root = k->store = -1;
	v->aux = k;
}

static bool number_values(struct gen *g)
{
	const struct block *body = g->op->body;
	uint32_t n = body->args.n;

	for (const struct op *op = body->first; op; op = op->next)
		n += op->nout;
	if (n > MAX_VALUES)
		return diag_error(g->d, g->op->span, "a kernel of %u values", n);
	g->val = NEWN(g->mem, struct kval, n + 1);
	for (uint32_t i = 0; i < body->args.n; i++)
		add_value(g, body->args.at[i], (int)i);
	for (const struct op *op = body->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			add_value(g, op->out[i], -1);
	for (const struct op *op = body->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (!i || op->in[i] != op->in[i - 1])
				kval_of(op->in[i])->uses++;
	for (uint32_t i = 0; i < body->yields.n; i++)
		kval_of(body->yields.at[i])->uses++;
	return true;
}

/* -- dims -- */

/* before: the kdim that follows in some tensor; g->nk: none. */
static bool add_dim(struct gen *g, dimid d, const struct axes *on, int before)
{
	int at = kdim_of(g, d);

	if (at >= 0) {
		if (axes_equal(&g->kd[at].on, on))
			return true;
		return diag_error(g->d, g->op->span, "a kernel has dim '%s' in two shardings",
				  g->m->dims.at[d].name);
	}
	if (g->nk == MAX_KDIM)
		return diag_error(g->d, g->op->span, "a kernel of more than %d dims", MAX_KDIM);
	struct kdim *k = &g->kd[before];
	memmove(k + 1, k, (size_t)(g->nk++ - before) * sizeof *k);
	*k = (struct kdim){ 0 };
	k->nparts = 1;
	k->part[0] = d;
	k->on = *on;
	k->size = dim_size(g->m, d);
	k->cap = cap_of(g->m, d, on);
	k->inner = 1;
	k->ext = -1;
	int64_t size = k->size;
	k->even = !is_staged(g->m, d);
	for (int i = 0; i < on->n; i++) {
		int64_t ways = g->m->axes.at[on->a[i]].size;

		k->even &= size % ways == 0;
		size = ceil_div(size, ways);
	}
	return true;
}

static bool add_dims_of(struct gen *g, const struct value *v, bool last)
{
	for (int i = 0; i < v->nd; i++) {
		int before = g->nk;

		for (int j = v->nd - 1; j > i && !last; j--)
			if (kdim_of(g, v->d[j]) >= 0)
				before = kdim_of(g, v->d[j]);
		if (!add_dim(g, v->d[i], &v->sh.on[i], before))
			return false;
	}
	return true;
}

static bool is_view(const struct op *op)
{
	return opinfo[op->code].class == C_VIEW || op->code == OP_LOOKUP;
}

/* Read through an index only: its order in memory says nothing about loops. */
static bool table_only(const struct gen *g, const struct value *v)
{
	bool table = false;

	for (const struct op *op = g->op->body->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++) {
			if (op->in[i] != v)
				continue;
			if (i > 0 || !is_view(op))
				return false;
			table = true;
		}
	return table || (v->def && v->def->code == OP_SCATTER);
}

/* Dims in loop order: those of the largest tensor as they lie in memory, then the others. */
static bool collect_dims(struct gen *g)
{
	const struct value *best = NULL;
	int64_t most = -1;

	for (int i = 0; i < g->nval; i++) {
		const struct value *v = g->val[i].v;
		int64_t n = local_bytes(g->m, v) * 2;

		if (table_only(g, v))
			continue;
		n += g->val[i].arg >= 0 || g->val[i].uses == 0;
		if (n > most) {
			most = n;
			best = v;
		}
	}
	if (best && !add_dims_of(g, best, false))
		return false;
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < g->nval; i++)
			if (table_only(g, g->val[i].v) == (pass == 1) && !add_dims_of(g, g->val[i].v, pass == 1))
				return false;
	return true;
}

static void pin(struct gen *g, dimid d)
{
	int k = kdim_of(g, d);

	if (k >= 0)
		g->kd[k].pinned = true;
}

static void pin_dims(struct gen *g)
{
	for (const struct op *op = g->op->body->first; op; op = op->next) {
		for (int i = 0; op->code == OP_RNG && i < op->at.dims.n; i++)
			if (g->m->dims.at[op->at.dims.d[i]].zigzag)
				pin(g, op->at.dims.d[i]);
		if (!is_view(op) && op->code != OP_SCATTER && op->code != OP_INDEX)
			continue;
		if (HAS(op, dim))
			pin(g, op->at.dim);
		if (HAS(op, to))
			pin(g, op->at.to);
		for (int i = 0; HAS(op, dims) && i < op->at.dims.n; i++)
			pin(g, op->at.dims.d[i]);
		for (int i = 0; HAS(op, tos) && i < op->at.tos.n; i++)
			pin(g, op->at.tos.d[i]);
	}
}

/* d[] has neither of the two kdims, or b right after a. */
static bool neighbours(const struct kdim *a, const struct kdim *b, int n, const dimid *d)
{
	int at = -1, bt = -1;

	for (int i = 0; i < n; i++) {
		if (d[i] == a->part[a->nparts - 1])
			at = i;
		if (d[i] == b->part[0])
			bt = i;
	}
	return at < 0 ? bt < 0 : bt == at + 1;
}

static bool can_join(const struct gen *g, const struct kdim *a, const struct kdim *b)
{
	if (a->pinned || b->pinned || b->on.n || a->nparts + b->nparts > MAX_DIMS)
		return false;
	for (int i = 0; i < g->nval; i++)
		if (!neighbours(a, b, g->val[i].v->nd, g->val[i].v->d))
			return false;
	for (const struct op *op = g->op->body->first; op; op = op->next)
		if (op->code == OP_RNG && (a->cap * b->size > RNG_ROW || !neighbours(a, b, op->at.dims.n, op->at.dims.d)))
			return false;
	return true;
}

/* Only the innermost loops gain from being joined. */
static void join_dims(struct gen *g)
{
	for (int i = g->nk - 2; i >= 0; i--) {
		struct kdim *a = &g->kd[i], *b = &g->kd[i + 1];

		if (!can_join(g, a, b)) {
			if (g->loops >> (i + 1) & 1)
				return;
			continue;
		}
		memcpy(a->part + a->nparts, b->part, (size_t)b->nparts * sizeof *b->part);
		a->nparts += b->nparts;
		a->size *= b->size;
		a->cap *= b->size;
		a->inner *= b->size;
		memmove(b, b + 1, (size_t)(g->nk - i - 2) * sizeof *b);
		g->nk--;
	}
}

static uint32_t mask_of(const struct gen *g, const struct value *v)
{
	uint32_t mask = 0;

	for (int i = 0; i < v->nd; i++)
		mask |= 1u << kdim_of(g, v->d[i]);
	return mask;
}

static void lay_out(struct gen *g)
{
	for (int i = 0; i < g->nval; i++) {
		struct kval *k = &g->val[i];
		int64_t stride = 1;

		k->mask = mask_of(g, k->v);
		for (int j = k->v->nd - 1; j >= 0; j--) {
			int kd = kdim_of(g, k->v->d[j]);

			if (!k->stride[kd])
				k->stride[kd] = stride;
			stride *= cap_of(g->m, k->v->d[j], &k->v->sh.on[j]);
		}
	}
}

/* -- costs -- */

static double op_cost(const struct op *op)
{
	switch (op->code) {
	case OP_EXP: case OP_LOG: case OP_TANH: case OP_SIGMOID: case OP_SILU: case OP_GELU:
		return 12;
	case OP_DSILU: case OP_DGELU:
		return 16;
	case OP_SIN: case OP_COS: case OP_POW: case OP_RNG:
		return 30;
	case OP_DIV: case OP_SQRT: case OP_RSQRT: case OP_LOOKUP: case OP_ROLL: case OP_SLICE: case OP_PAD:
		return 4;
	case OP_MOD: case OP_FLOORDIV: case OP_MERGE:
		return 6;
	case OP_CAST: case OP_DETACH: case OP_CONST: case OP_STEP: case OP_TRAINING: case OP_ITER:
		return 0;
	default:
		return 1;
	}
}

static void find_costs(struct gen *g)
{
	for (int i = 0; i < g->nval; i++) {
		struct kval *k = &g->val[i];
		const struct op *op = k->v->def;

		if (k->arg >= 0 || !op) {
			k->cost = k->mask ? 1 : 0;
			continue;
		}
		if (opinfo[op->code].class == C_REDUCE || op->code == OP_SCATTER || (!k->mask && op->nin == 0))
			continue;
		k->cost = op_cost(op);
		for (uint32_t j = 0; j < op->nin; j++)
			k->cost += kval_of(op->in[j])->mask ? kval_of(op->in[j])->cost : 0;
		if (k->cost > 1e6)
			k->cost = 1e6;
	}
}

/* -- roots -- */

static struct root *new_root(struct gen *g, enum rootkind kind, struct kval *k, int out)
{
	if (g->nroot == MAX_ROOT) {
		g->failed = true;
		diag_error(g->d, g->op->span, "a kernel of more than %d results", MAX_ROOT);
		return &g->root[0];
	}
	struct root *r = &g->root[g->nroot++];
	r->kind = kind;
	r->k = k;
	r->out = out;
	r->it = k->mask;
	return r;
}

static void sum_root(struct gen *g, struct kval *k, const struct op *op)
{
	k->root = g->nroot;
	struct root *r = new_root(g, op->code == OP_SCATTER ? R_SCATTER : R_RED, k, -1);
	uint32_t all = 0;

	for (uint32_t i = 0; i < op->nin; i++)
		all |= kval_of(op->in[i])->mask;
	if (r->kind == R_RED) {
		r->it = all | k->mask;
		r->red = all & ~k->mask;
	} else {
		r->it = all;
	}
}

/* Random numbers of a row are made together: their last dim is the innermost loop. */
static bool rng_row(const struct gen *g, const struct kval *k)
{
	const struct op *op = k->v->def;

	if (k->arg >= 0 || op->code != OP_RNG || !op->at.dims.n)
		return false;
	dimid d = op->at.dims.d[op->at.dims.n - 1];
	int last = kdim_of(g, d);

	return !g->device && last >= 0 && !g->m->dims.at[d].zigzag && !(g->loops >> (last + 1)) && k->mask >> last & 1 && g->kd[last].cap <= RNG_ROW &&
	       g->kd[last].cap >= 16;
}

static bool worth_keeping(const struct kval *k, double least)
{
	const struct op *op = k->v->def;

	return k->arg < 0 && k->mask && k->uses > 1 && k->cost >= least && k->v->dt != BOOL &&
	       (opinfo[op->code].class == C_MAP || op->code == OP_LOOKUP);
}

/* Missing dims: a consumer has a loop inside those of v that v lacks. */
static bool in_wider_loops(const struct gen *g, const struct kval *k)
{
	for (const struct op *op = g->op->body->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i] == k->v && kval_of(op->out[0])->mask & ~k->mask)
				return true;
	return false;
}

static void find_roots(struct gen *g)
{
	const struct block *body = g->op->body;

	for (int i = 0; i < g->nval; i++) {
		struct kval *k = &g->val[i];
		const struct op *op = k->v->def;
		bool stored = false, direct = false;

		if (k->arg < 0 && (opinfo[op->code].class == C_REDUCE || op->code == OP_SCATTER)) {
			sum_root(g, k, op);
			direct = op->code == OP_SCATTER;
		}
		if (rng_row(g, k)) {
			k->root = g->nroot;
			struct root *r = new_root(g, R_RNG, k, -1);
			r->it = k->mask & ~(1u << kdim_of(g, op->at.dims.d[op->at.dims.n - 1]));
		}
		for (uint32_t y = 0; y < body->yields.n; y++)
			stored |= body->yields.at[y] == k->v;
		bool back = stored && k->v->dt == F32 && !g->device;
		if (k->root < 0 && !back && !g->device && k->arg < 0 && (worth_keeping(k, KEEP_COST) ||
		    (k->mask && k->cost >= KEEP_COST && k->v->dt != BOOL && in_wider_loops(g, k)))) {
			k->root = g->nroot;
			new_root(g, R_KEEP, k, -1);
		}
		for (uint32_t y = 0; y < body->yields.n; y++) {
			if (body->yields.at[y] != k->v)
				continue;
			if (direct) {
				g->root[k->root].out = (int)y;
				direct = false;
				continue;
			}
			if (k->store < 0)
				k->store = g->nroot;
			new_root(g, R_STORE, k, (int)y);
		}
		if (k->root < 0 && back && worth_keeping(k, STORE_COST))
			k->root = k->store;
	}
}

static void mark(uint64_t *set, int no)
{
	set[no / 64] |= 1ull << no % 64;
}

/* direct: no other root lies on the way from r. */
static void find_deps(struct gen *g, struct root *r, const struct value *v, bool direct, uint64_t *seen, uint64_t *pulled)
{
	struct kval *k = kval_of(v);
	int no = (int)(k - g->val);
	uint64_t *done = direct ? pulled : seen;

	if (done[no / 64] >> no % 64 & 1)
		return;
	mark(done, no);
	if (k->root >= 0 && &g->root[k->root] != r) {
		enum rootkind kind = g->root[k->root].kind;

		mark(r->deps, k->root);
		if (direct)
			mark(r->pulls, k->root);
		direct = false;
		if (kind == R_RED || kind == R_SCATTER)
			return;
	}
	if (k->arg >= 0)
		return;
	for (uint32_t i = 0; i < v->def->nin; i++)
		find_deps(g, r, v->def->in[i], direct, seen, pulled);
}

static void root_deps(struct gen *g, struct root *r)
{
	uint64_t *seen = NEWN(g->mem, uint64_t, g->nval / 64 + 1), *pulled = NEWN(g->mem, uint64_t, g->nval / 64 + 1);
	struct value *v = r->k->v;

	if (r->kind != R_RED && r->kind != R_SCATTER) {
		find_deps(g, r, v, true, seen, pulled);
		return;
	}
	for (uint32_t i = 0; i < v->def->nin; i++)
		find_deps(g, r, v->def->in[i], true, seen, pulled);
}

/* -- parts of a call -- */

enum { PART_BYTES = 65536 };

static uint32_t kdims_of(const struct gen *g, const struct dimlist *l)
{
	uint32_t mask = 0;

	for (int i = 0; i < l->n; i++)
		if (kdim_of(g, l->d[i]) >= 0)
			mask |= 1u << kdim_of(g, l->d[i]);
	return mask;
}

uint32_t overridden(const struct gen *g, const struct op *op)
{
	if (!is_view(op))
		return 0;
	return (HAS(op, dims) ? kdims_of(g, &op->at.dims) : 0) | (HAS(op, dim) ? kdims_of(g, &(struct dimlist){ 1, { op->at.dim } }) : 0);
}

/* Dims whose index an op computes: what lies elsewhere along them may be of another part. */
static uint32_t computed_dims(const struct gen *g)
{
	uint32_t mask = 0;

	for (const struct op *op = g->op->body->first; op; op = op->next) {
		const struct attrs *at = &op->at;

		if (!is_view(op) && op->code != OP_SCATTER)
			continue;
		mask |= (HAS(op, dims) ? kdims_of(g, &at->dims) : 0) | (HAS(op, tos) ? kdims_of(g, &at->tos) : 0);
		mask |= HAS(op, dim) ? kdims_of(g, &(struct dimlist){ 1, { at->dim } }) : 0;
		mask |= HAS(op, to) ? kdims_of(g, &(struct dimlist){ 1, { at->to } }) : 0;
	}
	for (int i = 0; i < g->nroot; i++)
		if (g->root[i].kind == R_RNG)
			mask |= g->root[i].k->mask & ~g->root[i].it;
	return mask;
}

/* Is root r only stored, so that parts of it can be added up? */
static bool only_stored(const struct gen *g, int no)
{
	const struct kval *k = g->root[no].k;
	int stores = 0;

	for (int i = 0; i < g->nroot; i++)
		if (g->root[i].deps[no / 64] >> no % 64 & 1) {
			if (g->root[i].kind != R_STORE || g->root[i].k != k)
				return false;
			stores++;
		}
	return stores == 1 && k->v->dt == F32;
}

/* Can parts share kdim d; which results are maxima of theirs then? */
static bool can_split(const struct gen *g, int d, uint64_t *maxes)
{
	int64_t bytes = 0;

	*maxes = 0;
	for (int i = 0; i < g->nroot; i++) {
		const struct root *r = &g->root[i];
		const struct kval *k = r->k;

		if (r->red >> d & 1) {
			if (k->v->def->code != OP_RMAX || !only_stored(g, i) || g->root[k->store].out >= 64)
				return false;
			bytes += local_bytes(g->m, k->v);
			*maxes |= 1ull << g->root[k->store].out;
		} else if ((r->kind == R_SCATTER || r->kind == R_STORE) && !(k->mask >> d & 1)) {
			if (r->kind == R_SCATTER || k->root < 0 || !(g->root[k->root].red >> d & 1))
				return false;
		}
	}
	return bytes <= PART_BYTES;
}

/* The outermost dim that splits without partial maxima, else one that needs few; long enough. */
static void find_split(struct gen *g)
{
	uint32_t computed = computed_dims(g), loops = 0;
	uint64_t maxes;
	int64_t most = 1;

	for (int i = 0; i < g->nroot; i++) {
		int64_t n = 1;

		for (int k = 0; k < g->nk; k++)
			n *= g->root[i].it >> k & 1 ? g->kd[k].cap : 1;
		g->sig->work += n;
		loops |= g->root[i].it;
	}
	for (int pass = 0; pass < 2 && g->split < 0; pass++)
		for (int d = 0; d < g->nk; d++) {
			bool inner = !(loops >> d >> 1);
			int64_t n = inner ? g->kd[d].cap / 64 : g->kd[d].cap;

			if (!((loops & ~computed) >> d & 1) || n < 2 || (most >= KERNEL_PARTS && g->split >= 0) || n <= most)
				continue;
			if (!can_split(g, d, &maxes) || (maxes != 0) != (pass == 1))
				continue;
			most = n;
			g->split = d;
			g->sig->split = n < 1000 ? (int)n : 1000;
			g->sig->maxes = maxes;
		}
}

bool kernel_plan(struct gen *g)
{
	if (!number_values(g) || !collect_dims(g))
		return false;
	pin_dims(g);
	/* dims of what is reduced, scattered or stored; joined before masks are final */
	for (int i = 0; i < g->nval; i++)
		if (!table_only(g, g->val[i].v))
			g->loops |= mask_of(g, g->val[i].v);
	join_dims(g);
	g->loops = 0;
	for (int i = 0; i < g->nval; i++)
		if (!table_only(g, g->val[i].v))
			g->loops |= mask_of(g, g->val[i].v);
	lay_out(g);
	find_costs(g);
	find_roots(g);
	for (int i = 0; i < g->nroot; i++)
		root_deps(g, &g->root[i]);
	if (!g->device)
		find_split(g);
	return !g->failed;
}
