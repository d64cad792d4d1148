/* passes/fuse_epilogue.c - what a matrix product makes of its result becomes a kernel of its own, right behind it.
 *
 * Only then a backend can carry out both as one leaf: ir/epilogue.h has the forms. Where nothing takes part in them
 * but the product's result, a bias and what was kept of forward, a kernel that holds more would read one tensor less
 * than the two; a product with its epilogue reads and writes its result once less, and is one launch instead of two. */
#include "ir/epilogue.h"
#include "passes/fuse.h"

static bool among(const struct epilogue_ops *x, const struct op *op)
{
	for (int i = 0; i < x->n; i++)
		if (x->at[i] == op)
			return true;
	return false;
}

/* The sum of what is stored as it is, f32: the gradient of a bias, which the product makes as well. */
static struct op *sum_of(const struct fuse *f, const struct op *einsum, const struct op *out)
{
	const struct item *it = &f->it[out->mark];

	for (uint32_t u = 0; out->out[0]->dt == F32 && u < it->users.n; u++) {
		struct op *op = f->it[it->users.at[u]].op;

		if (op->code == OP_SUM && op->out[0]->dt == F32 && epilogue_along(einsum, op->out[0]))
			return op;
	}
	return NULL;
}

/* Is op a sum of what `out` stores? It may be made while another product reads that. */
static bool sums_up(const struct fuse *f, int op)
{
	const struct item *it = &f->it[op];

	if (it->op->code == OP_CAST && it->users.n == 1)
		it = &f->it[it->users.at[0]];
	return it->op->code == OP_SUM;
}

/* Who reads the result of op, a part of x? Others of x; where it is stored anyway, what is in no kernel, or in the
 * other half, or sums up. */
static bool own_readers(const struct fuse *f, const struct epilogue_ops *x, const struct op *op, bool stored)
{
	const struct item *it = &f->it[op->mark];

	for (uint32_t u = 0; u < it->users.n; u++) {
		int by = it->users.at[u];

		if (!among(x, f->it[by].op) &&
		    !(stored && (f->it[by].role == OUTSIDE || f->it[by].op->phase != op->phase || sums_up(f, by))))
			return false;
	}
	return stored || !fuse_yields(f, op->out[0]);
}

static bool one_place(const struct op *a, const struct op *b)
{
	return a->phase == b->phase && a->at.where == b->at.where && a->at.late == b->at.late;
}

/* Can the ops of x, which make the result of op i, be a kernel of their own? apart: but for casts that others read too,
 * or that stand elsewhere. */
static bool fits(const struct fuse *f, int i, struct epilogue_ops *x, bool apart)
{
	const struct op *out = f->it[i].op;

	if (f->it[i].role != FUSED || opinfo[out->code].class != C_MAP || !fuse_is_stored(f, i) ||
	    !epilogue_match(out->out[0], x) || x->z->home != f->block)
		return false;
	if ((x->bias && !epilogue_along(x->z->def, x->bias)) || !one_place(x->z->def, out) ||
	    f->it[x->z->def->mark].users.n != 1 || fuse_yields(f, x->z))
		return false;
	for (int k = 0; k < x->n; k++) {
		const struct op *op = x->at[k];
		bool stored = op == out || op->out[0] == x->kept;

		if (op->home != f->block || op->mark < 0 || f->it[op->mark].role != FUSED || f->it[op->mark].group >= 0)
			return false;
		if (apart && !stored && op->code == OP_CAST && !fuse_yields(f, op->out[0]))
			continue;
		if (!one_place(op, out) || !own_readers(f, x, op, stored))
			return false;
	}
	return true;
}

/* -- before the grouping -- */

static void copy_for(struct fuse *f, const struct op *op, struct op *by)
{
	struct builder b = { .m = f->m, .block = f->block, .before = by, .phase = by->phase, .span = op->span,
			     .where = by->at.where };
	struct op *copy = op_clone(&b, op, false);

	copy->phase = by->phase;
	copy->has &= ~(1u << A_where);
	copy->at.where = 0;
	if (b.where)
		SET(copy, where, b.where);
	op_half(copy, by);
	copy->mark = -1;
	for (uint32_t n = 0; n < by->nin; n++)
		by->in[n] = by->in[n] == op->out[0] ? copy->out[0] : by->in[n];
}

/* Those that read the result of op, parts of x or not, get it made where they are. */
static void copy_apart(struct fuse *f, const struct epilogue_ops *x, const struct op *op, bool parts)
{
	for (uint32_t u = 0; u < f->it[op->mark].users.n; u++) {
		struct op *by = f->it[f->it[op->mark].users.at[u]].op;

		if (among(x, by) == parts)
			copy_for(f, op, by);
	}
}

void fuse_part_epilogues(struct fuse *f)
{
	struct epilogue_ops x;

	for (int i = 0; i < f->n; i++) {
		if (fits(f, i, &x, false) || !fits(f, i, &x, true))
			continue;
		for (int k = 0; k < x.n; k++) {
			const struct op *op = x.at[k];
			bool away = !one_place(op, f->it[i].op);

			if (op != f->it[i].op && op->out[0] != x.kept && (away || !own_readers(f, &x, op, false)))
				copy_apart(f, &x, op, away);
		}
	}
}

static void add(struct fuse *f, int group, const struct op *op)
{
	struct group *g = &f->groups.at[group];
	uint32_t k = g->ops.n;

	f->it[op->mark].group = group;
	PUSH(f->mem, &g->ops, (int)op->mark);
	for (; k > 0 && g->ops.at[k - 1] > (int)op->mark; k--)
		g->ops.at[k] = g->ops.at[k - 1];
	g->ops.at[k] = (int)op->mark;
	g->key = g->ops.at[g->ops.n - 1];
	g->back |= f->it[op->mark].back;
	g->shown |= f->it[op->mark].shown;
}

void fuse_seal_epilogues(struct fuse *f)
{
	struct epilogue_ops x;

	for (int i = 0; i < f->n; i++) {
		if (!fits(f, i, &x, false))
			continue;
		const struct op *sum = x.act == EPI_DGELU ? sum_of(f, x.z->def, f->it[i].op) : NULL;
		int g = fuse_new_group(f, i);

		f->it[i].group = g;
		f->groups.at[g].sealed = true;
		f->groups.at[g].scalar = f->groups.at[g].table = false;
		for (int k = 0; k < x.n; k++)
			if (x.at[k] != f->it[i].op)
				add(f, g, x.at[k]);
		if (sum && one_place(sum, f->it[i].op) && f->it[sum->mark].role == FUSED && f->it[sum->mark].group < 0)
			add(f, g, sum);
	}
}

/* -- the finished block -- */

static bool stands_before(const struct op *a, const struct op *b)
{
	while (a && a != b)
		a = a->next;
	return a != NULL;
}

/* May kernel stand right behind einsum, whose operand it sums? Nobody before that reads what it makes. */
static bool may_follow(const struct op *kernel, const struct op *einsum)
{
	if (stands_before(einsum, kernel))
		return true;
	for (const struct op *op = kernel->next; op != einsum->next; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i] == kernel->out[0])
				return false;
	return true;
}

static bool writes_between(const struct op *from, const struct op *to)
{
	for (const struct op *op = from; op != to; op = op->next)
		if (op->code == OP_WRITE)
			return true;
	return false;
}

/* The kernel goes to the product that reads what it sums, or the product to the kernel that alone reads it: others may stand
 * between. */
static void pair_one(struct block *b, struct op *kernel)
{
	struct epilogue e, other;

	if (epilogue_pair(kernel, &e))
		return;
	for (struct op *op = b->first; op; op = op->next) {
		if (op->code != OP_EINSUM || !one_place(op, kernel) || !epilogue_of(op, kernel, &e) ||
		    (op->next && epilogue_pair(op->next, &other)))
			continue;
		if (e.z >= 0 && is_only_reader(op->out[0], kernel) && !writes_between(op, kernel))
			op_move_before(op, kernel);
		else if (e.z < 0 && op->next && may_follow(kernel, op))
			op_move_before(kernel, op->next);
		else
			continue;
		return;
	}
}

void fuse_pair_epilogues(struct block *b)
{
	for (struct op *op = b->first, *next; op; op = next) {
		next = op->next;
		if (op->code == OP_KERNEL)
			pair_one(b, op);
	}
}
