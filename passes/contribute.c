/* passes/contribute.c - the contributions to one cotangent, an n-ary sum: those that are split alike are added up first,
 * each group is brought home, where the forward value lives, and the groups are added up there (docs/SHARDING.md). */
#include "passes/partition.h"

struct group {
	struct sharding sh;
	VEC(struct value *) old;
};

struct accum {
	struct part *p;
	struct op *op;
	VEC(struct group) group;
	VEC(struct value *) wild;
	bool has_home;
	struct sharding home;
};

/* A cotangent is of one microbatch, even where its value is whole. */
static void home_in_time(struct accum *a)
{
	const struct part *p = a->p;
	int t = time_axis(p->m), i = t < 0 ? -1 : dim_pos(a->op->out[0], p->m->batch);

	if (i < 0 || axes_has(&a->home.on[i], t))
		return;
	struct axes with = { .n = 1, .a = { (uint8_t)t } };
	for (int k = 0; k < a->home.on[i].n && with.n < MAX_ON; k++)
		axes_push(&with, a->home.on[i].a[k]);
	a->home.on[i] = with;
}

/* Where the forward value lives: what its producer made, before any reshard, nothing pending. */
static void find_home(struct accum *a)
{
	struct part *p = a->p;
	const struct value *v = a->op->out[0];
	const struct op *of = a->op->of;

	if (v->placed && strncmp(v->name ? v->name : "", "d:", 2) == 0 && p->scope->up == NULL)
		return; /* a param's gradient: home comes in the epilogue */
	/* An alias has no home of its own: its cotangent is resolved with that of its root. */
	for (uint32_t k = 0; of && of->code != OP_READ && of->code != OP_RENAME && k < of->nout; k++) {
		shardings list = { 0 };

		if (!same_dims(of->out[k], v) || info_of(p, of->out[k])->how == H_FREE)
			continue;
		available(p, of->out[k], &list);
		if (!list.n)
			continue;
		for (int i = 0; i < v->nd; i++)
			a->home.on[i] = list.at[0].on[dim_pos(of->out[k], v->d[i])];
		home_in_time(a);
		a->has_home = true;
		return;
	}
	struct op *loop = p->scope->new;
	for (int64_t i = 0; loop && i < loop->at.ncarry; i++)
		if (p->scope->old->body->yields.at[i] == v &&
		    info_of(p, p->scope->old->body->args.at[i])->how != H_WILD) {
			a->home = loop->body->args.at[i]->sh;
			a->has_home = true;
			return;
		}
}

struct sharding in_order_of(const struct value *x, const struct value *y, const struct sharding *sh)
{
	struct sharding r = { .sum = sh->sum, .max = sh->max };

	for (int k = 0; k < x->nd; k++)
		if (dim_pos(y, x->d[k]) >= 0)
			r.on[k] = sh->on[dim_pos(y, x->d[k])];
	return r;
}

/* May x, with sharding sh, join a group (in the order of v)? It may lack dims of v: it is
 * broadcast along them. */
static bool joins(const struct value *v, const struct sharding *group, const struct value *x,
		  const struct sharding *sh)
{
	for (int i = 0; i < x->nd; i++)
		if (!axes_equal(&group->on[dim_pos(v, x->d[i])], &sh->on[i]))
			return false;
	return !(sh->sum & sharding_axes(group, v->nd)) && sh->max == group->max;
}

/* Contributions that are split alike share a group: one that is whole where another is pending
 * is made pending, for free. */
static void add_contribution(struct accum *a, struct value *x)
{
	struct part *p = a->p;
	struct value *v = a->op->out[0];
	shardings list = { 0 };
	struct info *i = info_of(p, x);

	if (i->how == H_WILD) {
		PUSH(p->m->mem, &a->wild, x);
		return;
	}
	available(p, x, &list);
	struct sharding sh = list.n ? list.at[0] : (struct sharding){ .sum = 0 };
	for (uint32_t g = 0; g < a->group.n; g++)
		if (i->how == H_FREE || joins(v, &a->group.at[g].sh, x, &sh)) {
			a->group.at[g].sh.sum |= i->how == H_FREE ? 0 : sh.sum;
			PUSH(p->m->mem, &a->group.at[g].old, x);
			return;
		}
	struct group g = { .sh = in_order_of(v, x, &sh) };
	PUSH(p->m->mem, &g.old, x);
	PUSH(p->m->mem, &a->group, g);
}

/* Whole contributions first, then those that are broadcast, then free ones. */
static void add_contributions(struct accum *a)
{
	for (int round = 0; round < 3; round++)
		for (uint32_t i = 0; i < a->op->nin; i++) {
			struct value *x = a->op->in[i];
			int rank = info_of(a->p, x)->how == H_FREE ? 2 : x->nd < a->op->out[0]->nd;

			if (rank == round)
				add_contribution(a, x);
		}
}

static bool same_order(const struct value *x, const struct value *y)
{
	return x->nd == y->nd && memcmp(x->d, y->d, x->nd * sizeof *x->d) == 0;
}

static struct value *put_op(struct accum *a, enum opcode code, uint32_t n, struct value **in,
			    const struct sharding *sh)
{
	struct value *v = a->op->out[0];
	struct builder b = a->p->scope->b;

	b.span = a->op->span;
	struct op *op = op_new(&b, code, n, in, 1);
	struct value *out = op_type(&b, op, 0, v->dt, v->nd, v->d);
	out->sh = *sh;
	out->placed = true;
	out->span = v->span;
	out->kind = v->kind;
	return out;
}

/* x in all dims of the sum: times ones of those that it lacks. */
static struct value *spread(struct accum *a, struct value *x, const struct sharding *sh)
{
	const struct value *v = a->op->out[0];
	struct builder b = a->p->scope->b;
	struct sharding ones = { .sum = 0 };
	dimid lacks[MAX_DIMS];
	int n = 0;

	for (int i = 0; i < v->nd; i++)
		if (!has_dim(x, v->d[i])) {
			ones.on[n] = sh->on[i];
			lacks[n++] = v->d[i];
		}
	if (!n)
		return x;
	b.span = a->op->span;
	struct op *op = op_new(&b, OP_CONST, 0, NULL, 1);
	SET(op, value, 1.0);
	struct value *in[2] = { x, op_type(&b, op, 0, v->dt, n, lacks) };
	in[1]->sh = ones;
	in[1]->placed = true;
	return put_op(a, OP_MUL, 2, in, sh);
}

static struct value *sum_of(struct accum *a, uint32_t n, struct value **in, const struct sharding *sh)
{
	struct value *v = a->op->out[0];
	dimid all[MAX_DIMS];
	int nd = 0;

	for (uint32_t i = 0; i < n; i++)
		nd = union_dims(nd, all, in[i]);
	if (nd < v->nd)
		in[0] = spread(a, in[0], sh);
	if (n == 1 && same_order(in[0], v))
		return in[0];
	return put_op(a, OP_ACCUM, n, in, sh);
}

/* The sum of one group, brought to `to`. */
static struct value *group_sum(struct accum *a, struct group *g, const struct sharding *to)
{
	struct part *p = a->p;
	struct value **in = NEWN(p->m->mem, struct value *, g->old.n), *v = a->op->out[0];

	for (uint32_t i = 0; i < g->old.n; i++) {
		struct sharding sh = in_order_of(g->old.at[i], v, &g->sh);

		in[i] = get_version(p, g->old.at[i], &sh);
	}
	struct value *sum = sum_of(a, g->old.n, in, &g->sh);
	struct value *old = NEW(p->m->mem, struct value); /* the sum as something that has versions */
	*old = *v;
	old->aux = NULL;
	set_info(p, old, H_MADE, NULL);
	add_version(p, old, sum);
	return get_version(p, old, to);
}

void part_accum(struct part *p, struct op *op)
{
	struct accum a = { .p = p, .op = op };
	struct value *v = op->out[0];

	add_contributions(&a);
	find_home(&a);
	struct sharding to = { .sum = 0 };
	if (a.has_home)
		to = a.home;
	else if (a.group.n)
		to = a.group.at[0].sh;
	uint32_t last = until_late(p->m);
	for (uint32_t g = 0; g < a.group.n; g++)
		to.sum |= a.group.at[g].sh.sum & (a.has_home ? last : ~0u);
	to.sum &= ~sharding_axes(&to, v->nd);
	uint32_t owed = 0;
	for (uint32_t g = 0; g < a.group.n; g++)
		owed |= a.group.at[g].sh.sum;
	if (a.has_home && !a.wild.n)
		sink(p, v, owed & ~sharding_axes(&to, v->nd));
	to.sum |= info_of(p, v)->sunk;
	struct value **in = NEWN(p->m->mem, struct value *, a.group.n + a.wild.n);
	uint32_t n = 0;
	for (uint32_t i = 0; i < a.wild.n; i++) {
		struct sharding sh = in_order_of(a.wild.at[i], v, &to);

		in[n++] = get_version(p, a.wild.at[i], &sh);
	}
	for (uint32_t g = 0; g < a.group.n; g++)
		in[n++] = group_sum(&a, &a.group.at[g], &to);
	put_result(p, v, sum_of(&a, n, in, &to), &to);
}
