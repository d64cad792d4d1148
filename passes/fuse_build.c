/* passes/fuse_build.c - the block anew: its groups as kernels, in an order in which each has what it reads. */
#include "passes/fuse.h"

/* -- order -- */

struct order {
	int *left;       /* by node: edges that are still open */
	int *node;       /* by op; a node is the first op of its group */
	int *out, n;     /* nodes in order */
};

static int key_of(const struct fuse *f, int node)
{
	return f->it[node].group >= 0 ? f->groups.at[f->it[node].group].key : node;
}

static bool is_node(const struct fuse *f, int i)
{
	const struct item *it = &f->it[i];

	if (it->group >= 0)
		return f->groups.at[it->group].ops.at[0] == i;
	return it->role == OUTSIDE || (it->stays && it->op->code == OP_ITER);
}

static void edges(const struct fuse *f, struct order *o, int node, int by)
{
	const struct item *it = &f->it[node];
	uint32_t n = it->group >= 0 ? f->groups.at[it->group].ops.n : 1;

	for (uint32_t k = 0; k < n; k++) {
		const struct item *op = it->group >= 0 ? &f->it[f->groups.at[it->group].ops.at[k]] : it;

		for (uint32_t u = 0; u < op->users.n + op->after.n; u++) {
			int to = o->node[u < op->users.n ? op->users.at[u] : op->after.at[u - op->users.n]];

			if (to >= 0 && to != node)
				o->left[to] += by;
		}
	}
}

/* Kahn's order; of what is ready, what stood first. */
static bool sort_nodes(struct fuse *f, struct order *o)
{
	int nodes = 0;

	o->left = NEWN(f->mem, int, f->n + 1);
	o->node = NEWN(f->mem, int, f->n + 1);
	o->out = NEWN(f->mem, int, f->n + 1);
	for (int i = 0; i < f->n; i++)
		o->node[i] = f->it[i].group >= 0 ? f->groups.at[f->it[i].group].ops.at[0] : is_node(f, i) ? i : -1;
	for (int i = 0; i < f->n; i++)
		if (is_node(f, i)) {
			nodes++;
			edges(f, o, i, 1);
		}
	/* nodes by key: bucket[key] */
	int *at = NEWN(f->mem, int, f->n + 1);

	for (int i = 0; i < f->n; i++)
		at[i] = -1;
	for (int i = 0; i < f->n; i++)
		if (is_node(f, i))
			at[key_of(f, i)] = i;
	while (o->n < nodes) {
		int k = 0;

		while (k < f->n && (at[k] < 0 || o->left[at[k]] > 0))
			k++;
		if (k == f->n)
			return false;
		o->out[o->n++] = at[k];
		edges(f, o, at[k], -1);
		at[k] = -1;
	}
	return true;
}

/* -- kernels -- */

static void append(struct block *b, struct op *op)
{
	op->home = b;
	op->prev = b->last;
	op->next = NULL;
	if (b->last)
		b->last->next = op;
	else
		b->first = op;
	b->last = op;
	for (uint32_t i = 0; i < op->nout; i++)
		op->out[i]->home = b;
}

static void need_free(const struct fuse *f, const struct op *op, bool *need)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		int at = item_of(f, op->in[i]);

		if (at >= 0 && f->it[at].role == FREE && !need[at]) {
			need[at] = true;
			need_free(f, f->it[at].op, need);
		}
	}
}

static struct value *kernel_arg(struct builder *b, struct op *kernel, struct value *v)
{
	for (uint32_t i = 0; i < kernel->nin; i++)
		if (kernel->in[i] == v)
			return kernel->body->args.at[i];
	struct value *a = block_arg(b, kernel->body, v->dt, v->nd, v->d);

	a->sh = v->sh;
	a->kind = v->kind;
	a->name = v->name;
	a->span = v->span;
	op_add_in(b->m, kernel, v);
	return a;
}

/* Moves op into the kernel; operands become args, or the clones of free ops (value.aux). */
static void take_in(struct fuse *f, struct builder *b, struct op *kernel, struct op *op, int g)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		struct value *v = op->in[i];
		int at = item_of(f, v);

		if (v->home == kernel->body)
			continue;
		if (at >= 0 && f->it[at].role == FREE && f->it[at].group != g)
			op->in[i] = v->aux;
		else
			op->in[i] = kernel_arg(b, kernel, v);
	}
	append(kernel->body, op);
}

static void give_out(struct fuse *f, struct op *kernel, const struct item *it)
{
	struct value *v = it->op->out[0];
	bool out = fuse_yields(f, v);

	for (uint32_t u = 0; u < it->users.n; u++) {
		const struct item *user = &f->it[it->users.at[u]];

		out |= user->op->home != kernel->body && (user->role != FREE || is_node(f, it->users.at[u]));
	}
	if (!out)
		return;
	struct value *r = op_add_out(f->m, kernel, v);

	r->name = v->name;
	PUSH(f->mem, &kernel->body->yields, v);
	for (uint32_t u = 0; u < it->users.n; u++) {
		struct op *user = f->it[it->users.at[u]].op;

		for (uint32_t i = 0; user->home != kernel->body && i < user->nin; i++)
			if (user->in[i] == v)
				user->in[i] = r;
	}
	for (uint32_t i = 0; i < f->block->yields.n; i++)
		if (f->block->yields.at[i] == v)
			f->block->yields.at[i] = r;
}

static struct op *make_kernel(struct fuse *f, int g)
{
	const struct group *group = &f->groups.at[g];
	const struct op *last = f->it[group->ops.at[group->ops.n - 1]].op;
	struct builder b = { .m = f->m, .block = f->block, .phase = last->phase, .span = last->span,
			     .where = last->at.where };
	struct op *kernel = op_new(&b, OP_KERNEL, 0, NULL, 0);
	bool *need = NEWN(f->mem, bool, f->n + 1);

	op_half(kernel, last);
	op_unlink(kernel);
	kernel->mark = -1;
	kernel->body = block_new(f->m, kernel);
	struct builder in = b;
	in.block = kernel->body;
	for (uint32_t i = 0; i < group->ops.n; i++)
		need_free(f, f->it[group->ops.at[i]].op, need);
	for (int i = 0; i < f->n; i++)
		if (need[i]) {
			struct op *c = op_clone(&in, f->it[i].op, true);

			c->phase = last->phase;
			c->of = f->it[i].op->of;
			for (uint32_t k = 0; k < c->nin; k++) /* a free op that another kernel gave out */
				if (c->in[k]->home != kernel->body)
					c->in[k] = kernel_arg(&in, kernel, c->in[k]);
		}
	for (uint32_t i = 0; i < group->ops.n; i++)
		take_in(f, &in, kernel, f->it[group->ops.at[i]].op, g);
	for (uint32_t i = 0; i < group->ops.n; i++)
		give_out(f, kernel, &f->it[group->ops.at[i]]);
	return kernel;
}

static void clear_aux(struct block *b)
{
	for (uint32_t i = 0; i < b->args.n; i++)
		b->args.at[i]->aux = NULL;
	for (struct op *op = b->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
		if (op->body)
			clear_aux(op->body);
	}
}

bool fuse_rebuild(struct fuse *f)
{
	struct order o = { 0 };
	struct block *b = f->block;

	if (!sort_nodes(f, &o))
		die("fuse: a cycle among kernels");
	clear_aux(b);
	b->first = b->last = NULL;
	for (int i = 0; i < o.n; i++) {
		int g = f->it[o.out[i]].group;

		append(b, g >= 0 ? make_kernel(f, g) : f->it[o.out[i]].op);
	}
	return true;
}
