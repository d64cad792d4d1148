/* passes/fuse_again.c - before the grouping of fuse.c: detaches and renames that only stand in the
 * way, sums in few bits, and values that are cheaper made again in each kernel than stored. */
#include "passes/fuse.h"

enum { CHAIN = 5 }; /* ops that are made again for one value */

void fuse_drop_detach(struct block *b)
{
	for (struct op *op = b->first, *next; op; op = next) {
		next = op->next;
		if (op->code != OP_DETACH || op->in[0]->dt != op->out[0]->dt || op->in[0]->nd != op->out[0]->nd ||
		    !sharding_equal(&op->in[0]->sh, &op->out[0]->sh, op->out[0]->nd))
			continue;
		bool same = true;

		for (int i = 0; i < op->out[0]->nd; i++)
			same &= op->in[0]->d[i] == op->out[0]->d[i];
		if (!same)
			continue;
		replace_uses(b, op->out[0], op->in[0]);
		op_unlink(op);
	}
}

/* rename(f(a, b)) = f(rename(a), rename(b)): the renames move to where they cost nothing. */
static void lift_rename(struct fuse *f, struct op *op)
{
	int at = op->code == OP_RENAME ? item_of(f, op->in[0]) : -1;
	struct op *map = at < 0 ? NULL : op->in[0]->def;

	if (at < 0 || f->it[at].role != FUSED || f->it[at].users.n != 1 ||
	    fuse_yields(f, op->in[0]) || opinfo[map->code].class != C_MAP || map->at.where != op->at.where ||
	    map->at.late != op->at.late)
		return;
	for (uint32_t u = 0; u < f->it[op->mark].users.n; u++)
		if (f->it[f->it[op->mark].users.at[u]].role != FUSED)
			return;
	for (uint32_t i = 0; i < map->nin; i++)
		for (int k = 0; k < op->at.tos.n; k++)
			if (has_dim(map->in[i], op->at.tos.d[k]))
				return;
	struct builder b = { .m = f->m, .block = f->block, .before = op, .phase = op->phase, .span = op->span,
			     .where = op->at.where };
	struct op *c = op_clone(&b, map, false);
	struct value *v = c->out[0];
	c->mark = -1;

	for (uint32_t i = 0; i < c->nin; i++)
		for (int k = 0; k < op->at.dims.n; k++) {
			if (!has_dim(c->in[i], op->at.dims.d[k]))
				continue;
			b.before = c;
			struct value *x = b_rename(&b, c->in[i], op->at.dims.d[k], op->at.tos.d[k]);

			x->def->mark = -1;
			op_half(x->def, op);
			x->sh = c->in[i]->sh;
			x->kind = c->in[i]->kind;
			c->in[i] = x;
		}
	memcpy(v->d, op->out[0]->d, sizeof v->d);
	v->sh = op->out[0]->sh;
	v->name = op->out[0]->name;
	v->kind = op->out[0]->kind;
	c->of = op->of ? op->of : map->of;
	replace_uses(f->block, op->out[0], v);
}

void fuse_lift_renames(struct fuse *f)
{
	for (int i = 0; i < f->n; i++)
		lift_rename(f, f->it[i].op);
}

/* Sums that grow in memory do so in f32; what is kept in fewer bits is rounded by a kernel after it. */
void fuse_widen_sums(struct fuse *f)
{
	for (int i = 0; i < f->n; i++) {
		struct op *op = f->it[i].op;
		struct value *v = op->out[0];

		if (f->it[i].role != FUSED || !is_sum(op) || v->dt != BF16 ||
		    (op->code != OP_SCATTER && fuse_held(f, op) <= COLUMN_LIMIT))
			continue;
		struct builder b = { .m = f->m, .block = f->block, .before = op->next, .phase = op->phase,
				     .span = op->span, .of = op->of, .where = op->at.where };
		struct op *cast = op_new(&b, OP_CAST, 1, &v, 1);
		cast->mark = -1;
		op_half(cast, op);
		struct value *r = op_type(&b, cast, 0, BF16, v->nd, v->d);

		r->sh = v->sh;
		r->kind = v->kind;
		r->name = v->name;
		r->placed = v->placed;
		replace_uses(f->block, v, r);
		cast->in[0] = v;
		v->name = NULL;
		v->dt = F32;
	}
}

/* sum(where(index(d) == t, z, 0), d) is z at d = t: t, NULL if op is something else. */
static struct value *label_of(const struct op *op)
{
	const struct value *w = op->code == OP_SUM ? op->in[0] : NULL;
	const struct op *where = w ? w->def : NULL;

	if (!where || where->code != OP_WHERE || w->nd != op->out[0]->nd + 1)
		return NULL;
	const struct op *eq = where->in[0]->def, *zero = where->in[2]->def;
	const struct value *z = where->in[1];

	if (!eq || eq->code != OP_EQ || !zero || zero->code != OP_CONST || zero->at.value != 0 || z->dt != op->out[0]->dt ||
	    !same_dims(z, w) || z->sh.sum || z->sh.max)
		return NULL;
	for (int i = 0; i < 2; i++) {
		const struct op *index = eq->in[i]->def;
		struct value *t = eq->in[1 - i];

		if (!index || index->code != OP_INDEX || has_dim(op->out[0], index->at.dim) || t->dt != INT)
			continue;
		bool fits = !has_dim(t, index->at.dim);

		for (int k = 0; k < t->nd; k++)
			fits &= has_dim(op->out[0], t->d[k]);
		if (fits)
			return t;
	}
	return NULL;
}

void fuse_find_labels(struct fuse *f)
{
	for (int i = 0; i < f->n; i++) {
		struct op *op = f->it[i].op;
		struct value *t = label_of(op);

		if (!t)
			continue;
		const struct op *where = op->in[0]->def;
		struct value *in[2] = { where->in[1], t };
		struct dimlist l = { 1, { 0 } };

		for (int k = 0; k < in[0]->nd; k++)
			if (!has_dim(op->out[0], in[0]->d[k]))
				l.d[0] = in[0]->d[k];
		op->code = OP_LOOKUP;
		op->in = NEWN(f->mem, struct value *, 2);
		memcpy(op->in, in, sizeof in);
		op->nin = 2;
		SET(op, dims, l);
	}
}

/* Do the two run at different places of a pipeline? Then what one of them reads may not be where the other is. */
static bool is_elsewhere(const struct op *a, const struct op *b)
{
	return HAS(a, where) && a->at.where != b->at.where;
}

/* Stored whatever the kernels are, or sent. */
bool fuse_is_stored(const struct fuse *f, int i)
{
	if (f->it[i].role == OUTSIDE || fuse_yields(f, f->it[i].op->out[0]))
		return true;
	for (uint32_t u = 0; u < f->it[i].users.n; u++) {
		const struct item *user = &f->it[f->it[i].users.at[u]];

		if (user->role == OUTSIDE || is_elsewhere(f->it[i].op, user->op))
			return true;
	}
	return false;
}

static bool is_random(const struct fuse *f, const struct value *v)
{
	int at = item_of(f, v);
	bool any = at >= 0 && v->def->code == OP_RNG;

	for (uint32_t i = 0; at >= 0 && f->it[at].role == FREE && !any && i < v->def->nin; i++)
		any = is_random(f, v->def->in[i]);
	return any;
}

/* Can v be made again from small values and at most one large one that is stored anyway? */
static bool cheap_again(const struct fuse *f, const struct value *v, int64_t full, const struct value **big, int *ops)
{
	int at = item_of(f, v);

	if (at >= 0 && f->it[at].role == FREE)
		return !is_random(f, v);
	if (*ops && local_count(f->m, v) * 8 <= full)
		return true;
	if (at >= 0 && opinfo[v->def->code].class == C_MAP && (!*ops || !fuse_is_stored(f, at))) {
		if (++*ops > CHAIN)
			return false;
		for (uint32_t i = 0; i < v->def->nin; i++)
			if (!cheap_again(f, v->def->in[i], full, big, ops))
				return false;
		return true;
	}
	if ((at >= 0 && !fuse_is_stored(f, at)) || (*big && *big != v))
		return false;
	*big = v;
	return true;
}

static struct value *again(struct fuse *f, struct builder *b, struct value *v, int64_t full, bool top)
{
	int at = item_of(f, v);

	if (at < 0 || f->it[at].role != FUSED || opinfo[v->def->code].class != C_MAP)
		return v;
	if (!top && (local_count(f->m, v) * 8 <= full || fuse_is_stored(f, at)))
		return v;
	struct op *op = v->def;
	struct value **in = NEWN(f->mem, struct value *, op->nin);

	for (uint32_t i = 0; i < op->nin; i++)
		in[i] = again(f, b, op->in[i], full, false);
	struct op *c = op_clone(b, op, false);
	c->phase = b->phase;
	c->has &= ~(1u << A_where);
	c->at.where = 0;
	if (b->where)
		SET(c, where, b->where);
	op_half(c, b->before);
	c->mark = -1;
	memcpy(c->in, in, op->nin * sizeof *in);
	c->out[0]->name = NULL;
	return c->out[0];
}

/* A copy of value i for the kernel that its user `first` is in. */
static void again_for(struct fuse *f, int i, struct op *first)
{
	struct value *v = f->it[i].op->out[0];
	int group = f->it[first->mark].group;
	struct builder b = { .m = f->m, .block = f->block, .before = first, .phase = first->phase, .span = v->span,
			     .where = first->at.where };
	struct value *copy = again(f, &b, v, local_count(f->m, v), true);

	for (uint32_t u = 0; u < f->it[i].users.n; u++) {
		const struct item *user = &f->it[f->it[i].users.at[u]];

		for (uint32_t k = 0; user->group == group && k < user->op->nin; k++)
			if (user->op->in[k] == v)
				user->op->in[k] = copy;
	}
}

/* Pointwise values that only other kernels read are made again there instead of stored: at the same place of a
 * pipeline, where what they are made of is. */
bool fuse_make_again(struct fuse *f)
{
	bool any = false;
	int n = f->n;

	for (int i = 0; i < n; i++) {
		const struct op *op = f->it[i].op;
		const struct value *big = NULL;
		int ops = 0;

		if (f->it[i].role != FUSED || opinfo[op->code].class != C_MAP || !op->out[0]->nd ||
		    f->groups.at[f->it[i].group].table || f->groups.at[f->it[i].group].sealed || fuse_is_stored(f, i) ||
		    !fuse_escapes(f, op, f->it[i].group, -1) ||
		    !cheap_again(f, op->out[0], local_count(f->m, op->out[0]), &big, &ops))
			continue;
		for (uint32_t u = 0; u < f->it[i].users.n; u++) {
			const struct item *user = &f->it[f->it[i].users.at[u]];
			bool reads = false;

			for (uint32_t k = 0; k < user->op->nin; k++)
				reads |= user->op->in[k] == op->out[0];
			if (reads && user->group != f->it[i].group && user->op->at.where == op->at.where) {
				again_for(f, i, user->op);
				any = true;
			}
		}
	}
	return any;
}

/* The largest tensor of a group: its order is that of the loops. */
static const struct value *largest(const struct fuse *f, int group)
{
	const struct group *g = &f->groups.at[group];
	const struct value *best = NULL;

	for (uint32_t i = 0; i < g->ops.n; i++) {
		const struct op *op = f->it[g->ops.at[i]].op;

		for (uint32_t k = 0; k <= op->nin; k++) {
			const struct value *v = k < op->nin ? op->in[k] : op->out[0];

			if (!best || local_count(f->m, v) > local_count(f->m, best))
				best = v;
		}
	}
	return best;
}

static void order_as(struct value *v, const struct value *ref)
{
	for (int i = 1; i < v->nd; i++)
		for (int k = i; k > 0; k--) {
			int a = dim_pos(ref, v->d[k - 1]), b = dim_pos(ref, v->d[k]);
			dimid d = v->d[k];
			struct axes on = v->sh.on[k];

			if (a < 0 || b < 0 || a < b)
				break;
			v->d[k] = v->d[k - 1];
			v->sh.on[k] = v->sh.on[k - 1];
			v->d[k - 1] = d;
			v->sh.on[k - 1] = on;
		}
}

void fuse_order_results(struct fuse *f)
{
	for (int i = 0; i < f->n; i++) {
		struct value *v = f->it[i].op->nout ? f->it[i].op->out[0] : NULL;
		int reader = -1;
		bool own = f->it[i].role == FUSED && v && v->nd > 1 && !v->name && !fuse_yields(f, v);

		for (uint32_t u = 0; own && u < f->it[i].users.n; u++) {
			const struct item *user = &f->it[f->it[i].users.at[u]];

			own = user->role == FUSED && opinfo[user->op->code].class != C_PICK;
			if (user->group != f->it[i].group && reader < 0)
				reader = user->group;
		}
		if (own && reader >= 0 && opinfo[f->it[i].op->code].class != C_PICK)
			order_as(v, largest(f, reader));
	}
}
