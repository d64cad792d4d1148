/* passes/chunk.c - what must not exist as a whole is made in parts: `chunk logits, rows = 1024`.
 *
 * Requires form PARTITIONED, as `partition` left it. The ops that read or make the value, of forward and of
 * backward, and what lies between them (chunk_region.c) move into one loop over the parts:
 *
 *   what they read and has the dim      is split, and sliced by iteration
 *   what they read and lacks it         is an invariant
 *   what they make for others, with it  is stacked, and merged
 *   sums along it                       are carried, and each part adds its own
 *
 * So logits, their softmax and their gradient live for one part only, and nothing is computed twice: the
 * gradient of a part is made right behind its loss, for what backward brings to a loss hangs on no loss. The
 * loop is of backward if any of its ops is; what forward makes of its results, the loss, then follows it there.
 *
 * Part c of n are the positions c, c + n, c + 2n and so on: the part of each rank is cut, whatever splits the
 * dim, and each row is computed as before. */
#include "passes/chunk.h"

#include "passes/partition.h"

struct cut {
	struct chunk_region r;
	struct module *m;
	dimid loop, part;      /* number of the part, position in it */
	int64_t where;         /* of the ops; 0: none */
	struct op *repeat;
	struct block *body;
	VEC(struct op *) before, behind; /* the loop: what splits, zeros; what merges */
	VEC(struct value *) with, with_arg, over, over_arg, sum, stack; /* sum, stack: old values */
};

static dimid new_dim(struct module *m, const char *of, const char *what, int64_t size, struct span at)
{
	const char *name = arena_printf(m->mem, "%s_%s", of, what);

	while (find_dim(m, name) != NODIM)
		name = arena_printf(m->mem, "%s_", name);
	return module_dim(m, name, size, at);
}

static struct builder at_top(struct cut *c, struct span at)
{
	return (struct builder){ .m = c->m, .block = &c->m->top, .phase = c->r.phase, .span = at, .where = c->where };
}

static struct builder in_body(struct cut *c, struct span at)
{
	return (struct builder){ .m = c->m, .block = c->body, .phase = c->r.phase, .span = at };
}

static bool is_in(const struct op *op)
{
	return op && op->mark & REGION_IN;
}

/* -- types: the dim becomes its part, a stack has the loop's in front -- */

static void copy_type(struct value *to, const struct value *from)
{
	to->sh = from->sh;
	to->kind = from->kind;
	to->placed = true;
	to->span = from->span;
}

static void cut_type(struct cut *c, struct value *v)
{
	int i = dim_pos(v, c->r.dim);

	if (i >= 0)
		v->d[i] = c->part;
}

static struct value *stacked_type(struct cut *c, struct value *v, const struct value *whole)
{
	memmove(v->d + 1, v->d, v->nd * sizeof *v->d);
	memmove(v->sh.on + 1, v->sh.on, v->nd * sizeof *v->sh.on);
	v->d[0] = c->loop;
	v->sh.on[0] = (struct axes){ .n = 0 };
	v->nd++;
	v->kind = whole->kind;
	return v;
}

/* -- what is computed twice -- */

static bool same_type(const struct value *a, const struct value *b)
{
	return a->dt == b->dt && a->nd == b->nd && memcmp(a->d, b->d, a->nd * sizeof *a->d) == 0 &&
	       sharding_equal(&a->sh, &b->sh, a->nd);
}

/* The op before new that computes the same, as backward makes again what is cheap; NULL: none. */
static struct op *done_before(const struct op *new)
{
	for (struct op *op = new->prev; op; op = op->prev) {
		bool same = op->code == new->code && op->nin == new->nin && op->nout == new->nout && op_same_attrs(op, new);

		for (uint32_t i = 0; same && i < op->nin; i++)
			same = op->in[i] == new->in[i];
		for (uint32_t i = 0; same && i < op->nout; i++)
			same = same_type(op->out[i], new->out[i]);
		if (same)
			return op;
	}
	return NULL;
}

/* new, the copy of op: takes the one before if there is one. */
static void drop_double(struct op *op, struct op *new)
{
	struct op *old = done_before(new);

	for (uint32_t i = 0; old && i < op->nout; i++) {
		op->out[i]->aux = old->out[i];
		if (!old->out[i]->name)
			old->out[i]->name = op->out[i]->name;
	}
	if (old)
		op_unlink(new);
}

/* -- what the loop is given -- */

static struct value *split(struct cut *c, struct value *x)
{
	struct builder b = at_top(c, x->span);
	struct op *op = op_new(&b, OP_SPLIT, 1, &x, 1);
	dimid d[MAX_DIMS];

	memcpy(d, x->d, sizeof d);
	struct value *v = op_type(&b, op, 0, x->dt, x->nd, d);

	SET(op, dim, c->r.dim);
	SET(op, tos, (struct dimlist){ .n = 2, .d = { c->part, c->loop } });
	copy_type(v, x);
	cut_type(c, v);
	PUSH(c->m->mem, &c->before, op);
	return stacked_type(c, v, x);
}

static struct value *new_arg(struct cut *c, const struct value *x)
{
	struct builder b = in_body(c, x->span);
	struct value *arg = block_arg(&b, c->body, x->dt, x->nd, x->d);

	copy_type(arg, x);
	cut_type(c, arg);
	return arg;
}

static struct value *inside(struct cut *c, struct value *x);

static void clone_in(struct cut *c, struct op *op)
{
	struct builder b = in_body(c, op->span);
	dimid dim = c->r.dim;

	for (uint32_t i = 0; i < op->nin; i++)
		inside(c, op->in[i]);
	struct op *new = op_clone(&b, op, true);
	for (uint32_t i = 0; i < new->nout; i++)
		cut_type(c, new->out[i]);
	if (HAS(new, dim) && new->at.dim == dim)
		new->at.dim = c->part;
	if (HAS(new, to) && new->at.to == dim)
		new->at.to = c->part;
	drop_double(op, new);
}

/* What the body calls a value from outside: constants, and what is large for nothing, are made again; the rest is
 * given. */
static struct value *inside(struct cut *c, struct value *x)
{
	struct builder b = in_body(c, x->span);

	if (x->aux)
		return x->aux;
	if (x->def && x->def->code != OP_READ && opinfo[x->def->code].class == C_LEAF && !has_dim(x, c->r.dim)) {
		drop_double(x->def, op_clone(&b, x->def, false));
		return x->aux;
	}
	if (chunk_again(&c->r, x)) {
		clone_in(c, x->def);
		return x->aux;
	}
	struct value *arg = new_arg(c, x);
	if (has_dim(x, c->r.dim)) {
		PUSH(c->m->mem, &c->over, split(c, x));
		PUSH(c->m->mem, &c->over_arg, arg);
	} else {
		PUSH(c->m->mem, &c->with, x);
		PUSH(c->m->mem, &c->with_arg, arg);
	}
	return x->aux = arg;
}

/* -- the body -- */

static bool read_outside(const struct cut *c, const struct value *v)
{
	for (const struct op *op = c->m->top.first; op; op = op->next)
		for (uint32_t i = 0; !is_in(op) && i < op->nin; i++)
			if (op->in[i] == v)
				return true;
	return false;
}

static void make_body(struct cut *c)
{
	for (struct op *op = c->m->top.first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
	c->body = block_new(c->m, NULL);
	for (struct op *op = c->m->top.first; op; op = op->next) {
		if (!is_in(op))
			continue;
		clone_in(c, op);
		for (uint32_t i = 0; i < op->nout; i++) {
			if (!read_outside(c, op->out[i]))
				continue;
			if (has_dim(op->out[i], c->r.dim))
				PUSH(c->m->mem, &c->stack, op->out[i]);
			else
				PUSH(c->m->mem, &c->sum, op->out[i]);
		}
	}
}

/* -- the loop -- */

/* Zeros to begin a sum with, as pending as it will be. */
static struct value *zeros(struct cut *c, const struct value *v, enum dtype dt)
{
	struct builder b = at_top(c, v->span);
	struct op *op = op_new(&b, OP_CONST, 0, NULL, 1);
	struct value *zero = op_type(&b, op, 0, dt, v->nd, v->d);
	struct axes owed = { .n = 0 };

	SET(op, value, 0.0);
	copy_type(zero, v);
	zero->sh.sum = 0;
	zero->kind = K_CONST;
	PUSH(c->m->mem, &c->before, op);
	for (uint32_t a = 0; a < c->m->axes.n; a++)
		if (v->sh.sum >> a & 1)
			axes_push(&owed, (int)a);
	if (!owed.n)
		return zero;
	op = op_new(&b, OP_TO_PARTIAL, 1, &zero, 1);
	SET(op, axes, owed);
	struct value *partial = op_type(&b, op, 0, dt, v->nd, v->d);
	copy_type(partial, v);
	partial->kind = K_CONST;
	PUSH(c->m->mem, &c->before, op);
	return partial;
}

/* A sum is carried in float32: each part rounds to no less. */
static void carry_sum(struct cut *c, struct value *old, uint32_t k, struct value **in)
{
	struct value *part = old->aux;
	enum dtype dt = is_float(old->dt) ? F32 : old->dt;
	struct builder b = in_body(c, old->span);

	part->dt = dt;
	in[k] = zeros(c, old, dt);
	struct value *arg = block_arg(&b, c->body, dt, old->nd, old->d);
	copy_type(arg, old);
	struct op *add = op_new(&b, OP_ACCUM, 2, (struct value *[]){ arg, part }, 1);
	struct value *y = op_type(&b, add, 0, dt, old->nd, old->d);
	copy_type(y, old);
	PUSH(c->m->mem, &c->body->yields, y);
}

static struct value *sum_result(struct cut *c, struct value *old, uint32_t k)
{
	struct builder b = at_top(c, old->span);
	struct value *v = op_type(&b, c->repeat, k, is_float(old->dt) ? F32 : old->dt, old->nd, old->d);

	copy_type(v, old);
	if (v->dt == old->dt)
		return v;
	struct op *op = op_new(&b, OP_CAST, 1, &v, 1);
	struct value *narrow = op_type(&b, op, 0, old->dt, old->nd, old->d);
	copy_type(narrow, old);
	PUSH(c->m->mem, &c->behind, op);
	return narrow;
}

static struct value *stack_result(struct cut *c, struct value *old, uint32_t k)
{
	struct builder b = at_top(c, old->span);
	const struct value *row = old->aux;
	dimid d[MAX_DIMS];

	memcpy(d, row->d, sizeof d);
	struct value *stack = op_type(&b, c->repeat, k, old->dt, old->nd, d);
	copy_type(stack, row);
	stacked_type(c, stack, old);
	struct op *op = op_new(&b, OP_MERGE, 1, &stack, 1);
	SET(op, dims, (struct dimlist){ .n = 2, .d = { c->part, c->loop } });
	SET(op, to, c->r.dim);
	struct value *v = op_type(&b, op, 0, old->dt, old->nd, old->d);
	copy_type(v, old);
	PUSH(c->m->mem, &c->behind, op);
	return v;
}

/* Body args in the order of the operands: carried, invariant, sliced. */
static void order_args(struct cut *c)
{
	uint32_t n = 0, carried = c->sum.n, given = c->with.n + c->over.n;
	struct value **arg = NEWN(c->m->mem, struct value *, carried + given + 1);

	for (uint32_t i = 0; i < carried; i++)
		arg[n++] = c->body->args.at[given + i]; /* the last that were made */
	for (uint32_t i = 0; i < c->with.n; i++)
		arg[n++] = c->with_arg.at[i];
	for (uint32_t i = 0; i < c->over.n; i++)
		arg[n++] = c->over_arg.at[i];
	for (uint32_t i = 0; i < n; i++) {
		c->body->args.at[i] = arg[i];
		arg[i]->no = i;
	}
}

static void make_loop(struct cut *c)
{
	struct builder b = at_top(c, c->r.v->span);
	uint32_t nsum = c->sum.n, n = nsum + c->with.n + c->over.n;
	struct value **in = NEWN(c->m->mem, struct value *, n + 1);

	for (uint32_t k = 0; k < nsum; k++)
		carry_sum(c, c->sum.at[k], k, in);
	for (uint32_t k = 0; k < c->stack.n; k++)
		PUSH(c->m->mem, &c->body->yields, (struct value *)c->stack.at[k]->aux);
	if (c->with.n)
		memcpy(in + nsum, c->with.at, c->with.n * sizeof *in);
	if (c->over.n)
		memcpy(in + nsum + c->with.n, c->over.at, c->over.n * sizeof *in);
	order_args(c);
	c->repeat = op_new(&b, OP_REPEAT, n, in, nsum + c->stack.n);
	SET(c->repeat, dim, c->loop);
	SET(c->repeat, ncarry, (int64_t)nsum);
	SET(c->repeat, nwith, (int64_t)c->with.n);
	if (c->r.phase == BACKWARD) /* as all loops there: the order of the parts is as good either way */
		SET(c->repeat, reverse, 1);
	c->repeat->body = c->body;
	c->body->owner = c->repeat;
}

/* -- in its place -- */

struct order {
	struct op *first, *last;
};

static void put(struct order *o, struct op *op)
{
	op->prev = o->last;
	op->next = NULL;
	if (o->last)
		o->last->next = op;
	else
		o->first = op;
	o->last = op;
}

/* Sections before the loop's; of that what leads to the loop; the loop; what an earlier section makes of its
 * results; the rest. */
static void place_loop(struct cut *c, struct op *const *op, uint32_t n)
{
	struct order o = { NULL, NULL };
	enum phase phase = c->r.phase;

	for (uint32_t i = 0; i < n; i++)
		if (op[i]->phase < phase && !(op[i]->mark & (REGION_IN | REGION_BELOW)))
			put(&o, op[i]);
	for (uint32_t i = 0; i < n; i++)
		if (op[i]->phase == phase && !is_in(op[i]) && op[i]->mark & REGION_ABOVE)
			put(&o, op[i]);
	for (uint32_t i = 0; i < c->before.n; i++)
		put(&o, c->before.at[i]);
	put(&o, c->repeat);
	for (uint32_t i = 0; i < c->behind.n; i++)
		put(&o, c->behind.at[i]);
	for (uint32_t i = 0; i < n; i++)
		if (op[i]->phase < phase && !is_in(op[i]) && op[i]->mark & REGION_BELOW) {
			op[i]->phase = phase;
			put(&o, op[i]);
		} else if (op[i]->phase >= phase && !is_in(op[i]) && !(op[i]->phase == phase && op[i]->mark & REGION_ABOVE)) {
			put(&o, op[i]);
		}
	c->m->top.first = o.first;
	c->m->top.last = o.last;
}

/* What follows from the value in forward moves to backward with it: no repeat may. */
static bool check_moves(struct cut *c)
{
	for (const struct op *op = c->m->top.first; op; op = op->next)
		if (op->body && op->phase < c->r.phase && op->mark & REGION_BELOW) {
			diag_error(c->r.d, c->r.how->at, "'%s' can't be made in parts: a repeat reads what is made of it", c->r.v->name);
			diag_note(c->r.d, op->span, "this repeat");
			return false;
		}
	return true;
}

/* Of a pipeline, all of it must be at one place. */
static bool find_place(struct cut *c)
{
	for (const struct op *op = c->m->top.first; op; op = op->next) {
		if (!is_in(op) || !HAS(op, where))
			continue;
		if (c->where && op->at.where != c->where) {
			diag_error(c->r.d, c->r.how->at, "'%s' can't be made in parts: what is made of it is on several stages", c->r.v->name);
			diag_note(c->r.d, op->span, "this is on another stage than the rest");
			return false;
		}
		c->where = op->at.where;
	}
	return true;
}

static void cut_up(struct cut *c)
{
	struct module *m = c->m;
	VEC(struct op *) old = { 0 };
	dimid dim = c->r.dim;

	c->loop = new_dim(m, m->dims.at[dim].name, "chunk", c->r.parts, c->r.how->at);
	c->part = new_dim(m, m->dims.at[dim].name, "part", dim_size(m, dim) / c->r.parts, c->r.how->at);
	m->dims.at[c->loop].loop = true;
	for (struct op *op = m->top.first; op; op = op->next)
		PUSH(m->mem, &old, op);
	make_body(c);
	make_loop(c);
	uint32_t nsum = c->sum.n;
	for (uint32_t k = 0; k < nsum; k++)
		replace_uses(&m->top, c->sum.at[k], sum_result(c, c->sum.at[k], k));
	for (uint32_t k = 0; k < c->stack.n; k++) {
		struct value *v = stack_result(c, c->stack.at[k], nsum + k);

		v->name = c->stack.at[k]->name;
		replace_uses(&m->top, c->stack.at[k], v);
	}
	place_loop(c, old.at, old.n);
}

bool pass_chunk(struct module *m, struct diag *d)
{
	bool any = false;

	for (uint32_t i = 0; i < m->chunks.n; i++) {
		struct cut c = { .m = m, .r = { .m = m, .d = d, .how = &m->chunks.at[i] } };

		if (!chunk_find(&c.r))
			return false;
		if (c.r.parts < 2)
			continue;
		if (!check_moves(&c) || !find_place(&c))
			return false;
		cut_up(&c);
		any = true;
	}
	if (any) { /* what each loop has made for itself */
		block_unmark(&m->top);
		drop_dead(m->mem, &m->top);
	}
	return true;
}
