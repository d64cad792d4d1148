/* passes/fuse.c - groups the ops of each block into `kernel` regions.
 *
 * Requires form PARTITIONED. Afterwards only what a runtime has a routine for stands outside of
 * kernels: read, einsum, attention, collectives, aliasing views, repeat, accumulate, write, report
 * and iter. All ops keep their identity; they move into the bodies. What is only made of leaves is
 * cloned into each kernel that reads it ("free" ops).
 *
 * A kernel is one nest of loops: rows over the dims that all its consumed reductions keep, then the
 * inner dims, in as many sweeps as reductions ask for. Reductions over rows may only be results. */
#include "passes/fuse.h"

static bool is_dear(enum opcode code)
{
	switch (code) {
	case OP_EXP: case OP_LOG: case OP_TANH: case OP_SIGMOID: case OP_SIN: case OP_COS: case OP_POW:
	case OP_SILU: case OP_DSILU: case OP_GELU: case OP_DGELU: case OP_SQRT: case OP_RSQRT:
		return true;
	default:
		return false;
	}
}

/* -- roles -- */

static bool same_axes(const struct value *a, int i, const struct value *b, int j)
{
	return axes_equal(&a->sh.on[i], &b->sh.on[j]);
}

/* A view whose result lies in memory exactly as its operand. */
static bool is_alias(const struct op *op)
{
	const struct value *a = op->in[0], *r = op->out[0];
	const struct attrs *at = &op->at;
	int j = 0;

	if (op->code != OP_RENAME && op->code != OP_SPLIT && op->code != OP_MERGE)
		return false;
	for (int i = 0; i < a->nd; i++) {
		dimid want[MAX_DIMS] = { a->d[i] };
		int n = 1, skip = 1;

		if (op->code == OP_RENAME) {
			for (int k = 0; k < at->dims.n; k++)
				if (at->dims.d[k] == a->d[i])
					want[0] = at->tos.d[k];
		} else if (op->code == OP_SPLIT && a->d[i] == at->dim) {
			n = at->tos.n;
			memcpy(want, at->tos.d, (size_t)n * sizeof *want);
		} else if (op->code == OP_MERGE && a->d[i] == at->dims.d[0]) {
			skip = at->dims.n;
			for (int k = 0; k < skip; k++)
				if (i + k >= a->nd || a->d[i + k] != at->dims.d[k] || (k && a->sh.on[i + k].n))
					return false;
			want[0] = at->to;
		}
		for (int k = 0; k < n; k++, j++)
			if (j >= r->nd || r->d[j] != want[k] || (k ? r->sh.on[j].n > 0 : !same_axes(a, i, r, j)))
				return false;
		i += skip - 1;
	}
	return j == r->nd && a->dt == r->dt;
}

static bool all_free(const struct fuse *f, const struct op *op, int *cost)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		int at = item_of(f, op->in[i]);

		if (at < 0 || f->it[at].role != FREE)
			return false;
		*cost += f->it[at].cost;
	}
	return true;
}

static enum role_of find_role(const struct fuse *f, const struct op *op, int *cost)
{
	*cost = 0;
	switch (opinfo[op->code].class) {
	case C_LEAF:
		return op->code == OP_READ ? OUTSIDE : FREE;
	case C_MAP:
		*cost = 1;
		return all_free(f, op, cost) && *cost <= FREE_OPS && !is_dear(op->code) ? FREE : FUSED;
	case C_VIEW:
		if (op->code == OP_RENAME && all_free(f, op, cost))
			return FREE;
		return is_alias(op) ? OUTSIDE : FUSED;
	case C_REDUCE:
	case C_LOOKUP:
	case C_SCATTER:
	case C_PICK:
		return FUSED;
	default:
		return OUTSIDE;
	}
}

static void add_edge(struct fuse *f, int from, int to)
{
	PUSH(f->mem, &f->it[from].users, to);
}

/* What reads a buffer runs before the write to it. */
static void order_writes(struct fuse *f)
{
	VEC(int) reads = { 0 };

	for (int r = 0; r < f->n; r++)
		if (f->it[r].op->code == OP_READ)
			PUSH(f->mem, &reads, r);
	for (int w = 0; w < f->n; w++)
		for (uint32_t i = 0; f->it[w].op->code == OP_WRITE && i < reads.n; i++) {
			const struct item *r = &f->it[reads.at[i]];

			if (!streq(r->op->at.buf, f->it[w].op->at.buf))
				continue;
			for (uint32_t u = 0; u < r->users.n; u++)
				if (r->users.at[u] != w)
					PUSH(f->mem, &f->it[r->users.at[u]].after, w);
		}
}

/* Ops that nobody reads. */
static void drop_dead(struct block *b)
{
	for (struct op *op = b->first; op; op = op->next)
		op->mark = 0;
	for (struct op *op = b->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->def && op->in[i]->home == b)
				op->in[i]->def->mark++;
	for (uint32_t i = 0; i < b->yields.n; i++)
		if (b->yields.at[i]->def)
			b->yields.at[i]->def->mark++;
	for (struct op *op = b->last, *prev; op; op = prev) {
		prev = op->prev;
		if (op->mark || opinfo[op->code].class > C_VIEW || op->nout != 1)
			continue;
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->def && op->in[i]->home == b)
				op->in[i]->def->mark--;
		op_unlink(op);
	}
}

/* Looks through whole rows of what lies in memory: a kernel of its own. */
static bool is_pick(const struct op *op)
{
	return opinfo[op->code].class == C_PICK;
}

/* An evaluation runs no backward, and what depends on it. */
static void find_shown(struct fuse *f)
{
	for (int i = 0; i < f->n; i++) {
		f->it[i].back |= f->it[i].op->phase == BACKWARD;
		for (uint32_t u = 0; u < f->it[i].users.n && f->it[i].back; u++)
			f->it[f->it[i].users.at[u]].back = true;
	}
	for (int i = f->n - 1; i >= 0; i--) {
		f->it[i].shown = f->it[i].op->code == OP_REPORT && !f->it[i].back;
		for (uint32_t u = 0; u < f->it[i].users.n; u++)
			f->it[i].shown |= f->it[f->it[i].users.at[u]].shown;
	}
}

/* A map whose result ops outside of kernels read, or nothing but maps of that size that are sent. */
static void find_sent(struct fuse *f)
{
	for (int i = f->n - 1; i >= 0; i--) {
		struct item *it = &f->it[i];
		bool out, within = it->users.n > 0;

		if (it->role != FUSED || opinfo[it->op->code].class != C_MAP)
			continue;
		out = fuse_yields(f, it->op->out[0]);
		for (uint32_t u = 0; u < it->users.n; u++) {
			const struct item *user = &f->it[it->users.at[u]];

			out |= user->role == OUTSIDE;
			within &= user->sent && same_dims(user->op->out[0], it->op->out[0]);
		}
		it->sent = out || within;
	}
}

static void scan(struct fuse *f)
{
	drop_dead(f->block);
	f->n = 0;
	for (struct op *op = f->block->first; op; op = op->next)
		op->mark = f->n++;
	f->it = NEWN(f->mem, struct item, f->n + 1);
	f->queue = NEWN(f->mem, int, f->n + 1);
	f->arg_uses = NEWN(f->mem, struct uses, f->block->args.n + 1);
	for (struct op *op = f->block->first; op; op = op->next) {
		struct item *it = &f->it[op->mark];

		it->op = op;
		it->group = -1;
		it->role = find_role(f, op, &it->cost);
		for (uint32_t i = 0; i < op->nin; i++) {
			int at = item_of(f, op->in[i]);

			if (at >= 0)
				add_edge(f, at, (int)op->mark);
			if (!op->in[i]->def && op->in[i]->home == f->block)
				PUSH(f->mem, &f->arg_uses[op->in[i]->no].ops, (int)op->mark);
			if (at >= 0 && f->it[at].role == FREE && (it->role == OUTSIDE || is_pick(op)))
				f->it[at].stays = true;
		}
	}
	for (uint32_t i = 0; i < f->block->yields.n; i++) {
		int at = item_of(f, f->block->yields.at[i]);

		if (at >= 0 && f->it[at].role == FREE)
			f->it[at].stays = true;
	}
	order_writes(f);
	find_shown(f);
	find_sent(f);
}

/* -- facts about a set of ops -- */

static bool in_set(const struct fuse *f, const struct value *v, int a, int b)
{
	int at = item_of(f, v);

	return at >= 0 && f->it[at].group >= 0 && (f->it[at].group == a || f->it[at].group == b);
}

bool fuse_yields(const struct fuse *f, const struct value *v)
{
	for (uint32_t i = 0; i < f->block->yields.n; i++)
		if (f->block->yields.at[i] == v)
			return true;
	return false;
}

bool fuse_escapes(const struct fuse *f, const struct op *op, int a, int b)
{
	const struct item *it = &f->it[op->mark];

	for (uint32_t i = 0; i < it->users.n; i++) {
		const struct item *u = &f->it[it->users.at[i]];

		if (u->group < 0 || (u->group != a && u->group != b))
			return true;
	}
	return fuse_yields(f, op->out[0]);
}

static bool used_in(const struct fuse *f, const struct op *op, int a, int b)
{
	const struct item *it = &f->it[op->mark];

	for (uint32_t i = 0; i < it->users.n; i++) {
		const struct item *u = &f->it[it->users.at[i]];

		if (u->group >= 0 && (u->group == a || u->group == b))
			return true;
	}
	return false;
}

static bool view_op(const struct op *op)
{
	return opinfo[op->code].class == C_VIEW || op->code == OP_LOOKUP;
}

static bool takes_dim(const struct op *op, dimid d)
{
	if (HAS(op, dim) && op->at.dim == d)
		return true;
	for (int i = 0; HAS(op, dims) && i < op->at.dims.n; i++)
		if (op->at.dims.d[i] == d)
			return true;
	return false;
}

/* Can a view in the kernel evaluate v at other indices: cheaply, and not a sum along its dims. */
static bool view_reaches(const struct fuse *f, const struct op *view, const struct value *v, int a, int b, int *cost)
{
	if (!in_set(f, v, a, b))
		return true;
	if (v->def->code == OP_SCATTER)
		return false;
	if (is_sum(v->def)) {
		for (int i = 0; i < v->nd; i++)
			if (takes_dim(view, v->d[i]))
				return false;
		return true;
	}
	if (is_dear(v->def->code) || ++*cost > (view->code == OP_LOOKUP ? 4 : 12))
		return false;
	for (uint32_t i = 0; i < v->def->nin; i++)
		if (!view_reaches(f, view, v->def->in[i], a, b, cost))
			return false;
	return true;
}

struct dimset {
	int n;
	dimid d[64];
};

static bool set_has(const struct dimset *s, dimid d)
{
	for (int i = 0; i < s->n; i++)
		if (s->d[i] == d)
			return true;
	return false;
}

static bool set_add(struct dimset *s, dimid d)
{
	if (set_has(s, d))
		return true;
	if (s->n == (int)LEN(s->d))
		return false;
	s->d[s->n++] = d;
	return true;
}

/* One sharding for each dim in the whole kernel. */
struct axes_of {
	int n;
	dimid d[64];
	struct axes on[64];
};

static bool agree(struct axes_of *s, const struct value *v)
{
	for (int i = 0; i < v->nd; i++) {
		int k = 0;

		while (k < s->n && s->d[k] != v->d[i])
			k++;
		if (k == s->n) {
			if (s->n == 30)
				return false;
			s->d[k] = v->d[i];
			s->on[k] = v->sh.on[i];
			s->n++;
		} else if (!axes_equal(&s->on[k], &v->sh.on[i])) {
			return false;
		}
	}
	return true;
}

static bool dims_agree(const struct fuse *f, const struct group *a, const struct group *b)
{
	struct axes_of s = { 0 };

	for (int side = 0; side < 2; side++) {
		const struct group *g = side ? b : a;

		for (uint32_t i = 0; i < g->ops.n; i++) {
			const struct op *op = f->it[g->ops.at[i]].op;

			for (uint32_t k = 0; k < op->nin; k++)
				if (!agree(&s, op->in[k]))
					return false;
			if (!agree(&s, op->out[0]))
				return false;
		}
	}
	return true;
}

/* The loops of an op that must run for its own sake. */
static void loops_of(const struct op *op, struct dimset *s)
{
	s->n = 0;
	if (op->code == OP_SCATTER || opinfo[op->code].class == C_REDUCE) {
		for (uint32_t k = 0; k < op->nin; k++)
			for (int i = 0; i < op->in[k]->nd; i++)
				set_add(s, op->in[k]->d[i]);
	} else {
		for (int i = 0; i < op->out[0]->nd; i++)
			set_add(s, op->out[0]->d[i]);
	}
}

/* Partial sums that a consumed reduction would hold at once: kept dims inside of summed ones. */
int64_t fuse_held(const struct fuse *f, const struct op *op)
{
	const struct value *a = op->in[0];
	bool below = false;
	int64_t n = 1;

	for (int i = 0; i < a->nd; i++)
		if (!has_dim(op->out[0], a->d[i]))
			below = true;
		else if (below)
			n *= cap_of(f->m, a->d[i], &a->sh.on[i]);
	return n;
}

/* Rows: the dims kept by the reductions that are read inside; all of them keep the same ones. */
static bool find_rows(const struct fuse *f, const struct group *g, int a, int b, const struct op **row)
{
	for (uint32_t i = 0; i < g->ops.n; i++) {
		const struct op *op = f->it[g->ops.at[i]].op;

		if (!is_sum(op) || !used_in(f, op, a, b))
			continue;
		if (op->code == OP_SCATTER || op->out[0]->nd == 0 || fuse_held(f, op) > COLUMN_LIMIT)
			return false;
		if (*row && !same_dims((*row)->out[0], op->out[0]))
			return false;
		*row = op;
	}
	return true;
}

static bool fits_rows(const struct fuse *f, const struct group *g, int a, int b, const struct op *row)
{
	for (uint32_t i = 0; i < g->ops.n; i++) {
		const struct op *op = f->it[g->ops.at[i]].op;
		struct dimset s;

		if (!is_sum(op) && !fuse_escapes(f, op, a, b))
			continue;
		loops_of(op, &s);
		for (int k = 0; k < row->out[0]->nd; k++)
			if (!set_has(&s, row->out[0]->d[k]))
				return false;
	}
	return true;
}

static bool views_fit(const struct fuse *f, const struct group *g, int a, int b)
{
	for (uint32_t i = 0; i < g->ops.n; i++) {
		const struct op *op = f->it[g->ops.at[i]].op;
		int cost = 0;

		if (view_op(op) && !view_reaches(f, op, op->in[0], a, b, &cost))
			return false;
	}
	return true;
}

static bool one_nest(const struct fuse *f, int a, int b)
{
	const struct group *ga = &f->groups.at[a], *gb = &f->groups.at[b];
	const struct op *row = NULL;

	if (!find_rows(f, ga, a, b, &row) || !find_rows(f, gb, a, b, &row))
		return false;
	if (row && (!fits_rows(f, ga, a, b, row) || !fits_rows(f, gb, a, b, row)))
		return false;
	return views_fit(f, ga, a, b) && views_fit(f, gb, a, b);
}

static int count_io(const struct fuse *f, int a, int b)
{
	int n = 0;

	for (int side = 0; side < 2; side++) {
		const struct group *g = &f->groups.at[side ? b : a];

		for (uint32_t i = 0; i < g->ops.n; i++) {
			const struct op *op = f->it[g->ops.at[i]].op;

			n += fuse_escapes(f, op, a, b);
			for (uint32_t k = 0; k < op->nin; k++) {
				int at = item_of(f, op->in[k]);

				n += at < 0 || (f->it[at].role != FREE && !in_set(f, op->in[k], a, b));
			}
		}
	}
	return n;
}

/* -- order: no way from a to b through others -- */

static bool visit(struct fuse *f, int i, int *n)
{
	if (f->it[i].seen == f->stamp)
		return false;
	f->it[i].seen = f->stamp;
	f->queue[(*n)++] = i;
	return true;
}

/* Queues what follows op i; true if that is in a or b and `stop`. */
static bool follow(struct fuse *f, int i, int a, int b, int last, bool stop, int *n)
{
	const struct item *it = &f->it[i];

	for (uint32_t u = 0; u < it->users.n + it->after.n; u++) {
		int to = u < it->users.n ? it->users.at[u] : it->after.at[u - it->users.n];
		int g = f->it[to].group;

		if (g >= 0 && (g == a || g == b)) {
			if (stop)
				return true;
			continue;
		}
		if ((g < 0 && to > last) || !visit(f, to, n) || g < 0)
			continue;
		for (uint32_t k = 0; k < f->groups.at[g].ops.n; k++)
			visit(f, f->groups.at[g].ops.at[k], n);
	}
	return false;
}

/* No way that starts at or above op `last` and ends there leads beyond this op: ways go down, but for
 * the steps within a group. */
static int furthest(const struct fuse *f, int last)
{
	for (bool grew = true; grew;) {
		grew = false;
		for (uint32_t g = 0; g < f->groups.n; g++) {
			const struct group *x = &f->groups.at[g];

			if (x->ops.n && x->ops.at[0] <= last && x->key > last) {
				last = x->key;
				grew = true;
			}
		}
	}
	return last;
}

/* Is there a way from the ops of a or b back to them through ops of neither? */
static bool way_around(struct fuse *f, int a, int b)
{
	int n = 0, last = f->groups.at[a].key > f->groups.at[b].key ? f->groups.at[a].key : f->groups.at[b].key;

	last = furthest(f, last);
	f->stamp++;
	for (int side = 0; side < 2; side++) {
		const struct group *g = &f->groups.at[side ? b : a];

		for (uint32_t i = 0; i < g->ops.n; i++)
			follow(f, g->ops.at[i], a, b, last, false, &n);
	}
	for (int i = 0; i < n; i++)
		if (follow(f, f->queue[i], a, b, last, true, &n))
			return true;
	return false;
}

/* Does a group reduce rows that are too long to stay near while they are read again? */
static bool reduces_long_rows(const struct fuse *f, const struct group *g)
{
	for (uint32_t i = 0; i < g->ops.n; i++) {
		const struct op *op = f->it[g->ops.at[i]].op;

		if (opinfo[op->code].class == C_REDUCE && op->out[0]->nd && local_count(f->m, op->out[0]) &&
		    local_count(f->m, op->in[0]) / ROW_LIMIT >= local_count(f->m, op->out[0]))
			return true;
	}
	return false;
}

/* Does it make something as large as its loops that is stored for an op that is in no kernel? */
static bool stores_all(const struct fuse *f, const struct group *g)
{
	for (uint32_t i = 0; i < g->ops.n; i++) {
		const struct item *it = &f->it[g->ops.at[i]];

		if (it->sent && local_count(f->m, it->op->out[0]) == g->most)
			return true;
	}
	return false;
}

/* Between the sweeps of one kernel long rows are read from memory again, so one kernel is no faster than two;
 * and what the second stores may lie where what it reads lay. */
static bool better_apart(const struct fuse *f, const struct group *a, const struct group *b)
{
	return a->most == b->most && ((reduces_long_rows(f, a) && stores_all(f, b)) ||
				      (reduces_long_rows(f, b) && stores_all(f, a)));
}

/* -- grouping -- */

static bool join(struct fuse *f, int a, int b)
{
	struct group *ga = &f->groups.at[a], *gb = &f->groups.at[b];

	if (a == b || ga->sealed || gb->sealed || is_pick(f->it[ga->ops.at[0]].op) || is_pick(f->it[gb->ops.at[0]].op))
		return false;
	if (f->it[ga->ops.at[0]].op->phase != f->it[gb->ops.at[0]].op->phase ||
	    f->it[ga->ops.at[0]].op->at.where != f->it[gb->ops.at[0]].op->at.where ||
	    f->it[ga->ops.at[0]].op->at.late != f->it[gb->ops.at[0]].op->at.late || ga->scalar != gb->scalar ||
	    (ga->shown && gb->back) || (ga->back && gb->shown))
		return false;
	/* a small table is made once, not in every row */
	if (ga->table != gb->table && (ga->table ? ga->most * 4 <= gb->most : gb->most * 4 <= ga->most))
		return false;
	if (better_apart(f, ga, gb))
		return false;
	if (ga->ops.n + gb->ops.n > MOST_OPS || !dims_agree(f, ga, gb) || !one_nest(f, a, b) ||
	    count_io(f, a, b) > MOST_IO || way_around(f, a, b))
		return false;
	VEC(int) all = { 0 };
	uint32_t i = 0, k = 0;

	while (i < ga->ops.n || k < gb->ops.n)
		if (k == gb->ops.n || (i < ga->ops.n && ga->ops.at[i] < gb->ops.at[k]))
			PUSH(f->mem, &all, ga->ops.at[i++]);
		else
			PUSH(f->mem, &all, gb->ops.at[k++]);
	for (i = 0; i < gb->ops.n; i++)
		f->it[gb->ops.at[i]].group = a;
	ga->ops.at = all.at;
	ga->ops.n = all.n;
	ga->ops.cap = all.cap;
	if (gb->key > ga->key)
		ga->key = gb->key;
	ga->back |= gb->back;
	ga->shown |= gb->shown;
	ga->table &= gb->table;
	if (gb->most > ga->most)
		ga->most = gb->most;
	gb->ops.n = 0;
	return true;
}

int fuse_new_group(struct fuse *f, int i)
{
	struct group g = { .key = i, .back = f->it[i].back, .shown = f->it[i].shown };
	const struct op *op = f->it[i].op;

	PUSH(f->mem, &g.ops, i);
	g.scalar = op->out[0]->nd == 0 && !is_sum(op);
	g.table = op->out[0]->nd > 0;
	g.most = local_count(f->m, op->out[0]);
	for (uint32_t k = 0; k < op->nin; k++) {
		int at = item_of(f, op->in[k]), n = at < 0 ? -1 : f->it[at].group;

		g.scalar &= op->in[k]->nd == 0;
		g.table &= at >= 0 && (f->it[at].role == FREE || (n >= 0 && f->groups.at[n].table));
		if (local_count(f->m, op->in[k]) > g.most)
			g.most = local_count(f->m, op->in[k]);
	}
	PUSH(f->mem, &f->groups, g);
	return (int)f->groups.n - 1;
}

static void group_dims(const struct fuse *f, int g, struct dimset *all)
{
	for (uint32_t i = 0; i < f->groups.at[g].ops.n; i++) {
		struct dimset s;

		loops_of(f->it[f->groups.at[g].ops.at[i]].op, &s);
		for (int k = 0; k < s.n; k++)
			set_add(all, s.d[k]);
	}
}

static bool spans(const struct value *v, const struct dimset *s)
{
	if (v->nd != s->n)
		return false;
	for (int i = 0; i < v->nd; i++)
		if (!set_has(s, v->d[i]))
			return false;
	return true;
}

static void join_producers(struct fuse *f, int i)
{
	const struct op *op = f->it[i].op;

	for (uint32_t k = 0; k < op->nin; k++) {
		int at = item_of(f, op->in[k]);

		if (at >= 0 && f->it[at].group >= 0)
			join(f, f->it[at].group, f->it[i].group);
	}
}

static bool reads(const struct op *op, const struct value *v)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i] == v)
			return true;
	return false;
}

/* Kernels that read the same tensor, and nothing larger, read it once. */
static void join_siblings(struct fuse *f, const struct value *v, uint32_t n, const int *users)
{
	int first = -1;

	for (uint32_t u = 0; u < n && v->nd; u++) {
		int i = users[u];
		struct dimset s = { 0 };

		if (f->it[i].group < 0 || (first >= 0 && f->it[first].group == f->it[i].group) || !reads(f->it[i].op, v))
			continue;
		group_dims(f, f->it[i].group, &s);
		if (!spans(v, &s))
			continue;
		if (first < 0 || !join(f, f->it[first].group, f->it[i].group))
			first = i;
	}
}

/* What is computed of the step alone, together. */
static void join_scalars(struct fuse *f)
{
	int last = -1;

	for (int i = 0; i < f->n; i++) {
		int g = f->it[i].group;

		if (g >= 0 && f->groups.at[g].scalar && g != last && (last < 0 || !join(f, last, g)))
			last = g;
	}
}

static void make_groups(struct fuse *f)
{
	fuse_seal_epilogues(f);
	for (int i = 0; i < f->n; i++)
		if (f->it[i].role == FUSED && f->it[i].group < 0)
			f->it[i].group = fuse_new_group(f, i);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < f->n; i++)
			if (f->it[i].role == FUSED)
				join_producers(f, i);
		for (uint32_t i = 0; i < f->block->args.n; i++)
			join_siblings(f, f->block->args.at[i], f->arg_uses[i].ops.n, f->arg_uses[i].ops.at);
		for (int i = 0; i < f->n; i++)
			for (uint32_t k = 0; k < f->it[i].op->nout && f->it[i].role != FREE && f->it[i].users.n > 1; k++)
				join_siblings(f, f->it[i].op->out[k], f->it[i].users.n, f->it[i].users.at);
	}
	join_scalars(f);
	for (int i = 0; i < f->n; i++)
		if (f->it[i].role == FREE && f->it[i].stays && f->it[i].op->code != OP_ITER)
			f->it[i].group = fuse_new_group(f, i);
}

static bool fuse_block(struct module *m, struct block *block, struct diag *d)
{
	struct fuse f = { .mem = m->mem, .m = m, .d = d, .block = block };

	for (struct op *op = block->first; op; op = op->next)
		if (op->body && !fuse_block(m, op->body, d))
			return false;
	fuse_drop_detach(block);
	scan(&f);
	fuse_find_labels(&f);
	fuse_lift_renames(&f);
	fuse_widen_sums(&f);
	scan(&f);
	fuse_part_epilogues(&f);
	scan(&f);
	make_groups(&f);
	for (int round = 0; round < 2 && fuse_make_again(&f); round++) {
		scan(&f);
		f.groups.n = 0;
		make_groups(&f);
	}
	fuse_order_results(&f);
	if (!fuse_rebuild(&f))
		return false;
	fuse_pair_epilogues(block);
	return true;
}

bool pass_fuse(struct module *m, struct diag *d)
{
	return fuse_block(m, &m->top, d);
}
