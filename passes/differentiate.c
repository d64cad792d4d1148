/* passes/differentiate.c - reverse mode, loops rolled.
 *
 * Requires: form LOGICAL; params are read at the top only; the top's ops are FORWARD.
 * Leaves: for each `minimize` a `train` (EPILOGUE) of the gradient "d:PATH"; gradient ops are
 * BACKWARD with of = their forward op; a repeat on the way to the loss has gained stacked results
 * and a reverse twin.
 * Breaks: nothing; dead ops and equal ops may be left for simplify.
 *
 * Values get a cotangent if they depend on a trained param and the loss depends on them. A reverse
 * body first names forward values directly; `resolve` then puts in their place an invariant, a
 * slice, a stash, or a copy of what made them if that was leaves alone. */
#include "passes/gradients.h"
#include "passes/passes.h"

/* -- who wants a gradient -- */

static bool trained(const char **names, uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (streq(names[i], name))
			return true;
	return false;
}

static void forget(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->aux = NULL;
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
		if (op->body)
			forget(op->body);
	}
}

static bool is_view(enum opcode code)
{
	return code == OP_RENAME || code == OP_SPLIT || code == OP_MERGE;
}

struct vary {
	struct grad *g;
	const char **names;
	uint32_t n;
};

static bool vary_block(struct vary *w, struct block *block);

static bool vary_set(struct grad *g, struct value *v, bool yes)
{
	struct cot *c = cot_of(g, v);
	bool news = yes && !c->varied;

	c->varied |= yes;
	return news;
}

/* Args and results of a repeat, until nothing changes. True if anything did. */
static bool vary_repeat(struct vary *w, struct op *op)
{
	struct block *f = op->body;
	uint32_t nc = (uint32_t)op->at.ncarry;
	bool any = false, again = true;

	for (uint32_t i = 0; i < op->nin; i++) {
		any |= vary_set(w->g, f->args.at[i], cot_of(w->g, op->in[i])->varied);
		if (i >= nc)
			cot_of(w->g, f->args.at[i])->param = cot_of(w->g, op->in[i])->param;
	}
	while (again) {
		again = false;
		any |= vary_block(w, f);
		for (uint32_t i = 0; i < nc; i++)
			again |= vary_set(w->g, f->args.at[i], cot_of(w->g, f->yields.at[i])->varied);
		any |= again;
	}
	for (uint32_t i = 0; i < op->nout; i++)
		any |= vary_set(w->g, op->out[i], cot_of(w->g, f->yields.at[i])->varied);
	return any;
}

static bool vary_block(struct vary *w, struct block *block)
{
	bool any = false;

	for (struct op *op = block->first; op; op = op->next) {
		if (op->phase != FORWARD)
			continue;
		if (op->code == OP_REPEAT) {
			any |= vary_repeat(w, op);
		} else if (op->code == OP_READ) {
			const struct buffer *b = find_buffer(w->g->m, op->at.buf);

			if (b && b->role == B_PARAM) {
				cot_of(w->g, op->out[0])->param = true;
				any |= vary_set(w->g, op->out[0],
						trained(w->names, w->n, b->name));
			}
		} else if (op->nout) {
			bool v = false;

			for (uint32_t i = 0; i < op->nin; i++)
				v |= gradient_flows(op, i) && cot_of(w->g, op->in[i])->varied;
			if (is_view(op->code) || op->code == OP_CAST)
				cot_of(w->g, op->out[0])->param = cot_of(w->g, op->in[0])->param;
			any |= vary_set(w->g, op->out[0], v);
		}
	}
	return any;
}

/* -- which values in a loop's body can receive a cotangent -- */

static void useful_op(struct grad *g, struct op *op)
{
	bool any = false;

	for (uint32_t i = 0; i < op->nout; i++)
		any |= cot_of(g, op->out[i])->useful;
	for (uint32_t i = 0; any && i < op->nin; i++)
		if (op->code == OP_REPEAT || gradient_flows(op, i))
			cot_of(g, op->in[i])->useful = true;
}

static void useful_body(struct grad *g, struct op *r)
{
	struct block *f = r->body;
	bool again = true;

	for (uint32_t i = 0; i < f->args.n; i++)
		cot_of(g, f->args.at[i])->useful = false;
	for (struct op *op = f->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			cot_of(g, op->out[i])->useful = false;
	for (uint32_t i = 0; i < r->nout; i++)
		if (cot_of(g, r->out[i])->parts.n)
			cot_of(g, f->yields.at[i])->useful = true;
	while (again) {
		again = false;
		for (struct op *op = f->last; op; op = op->prev)
			useful_op(g, op);
		for (uint32_t i = 0; i < (uint32_t)r->at.ncarry; i++)
			if (cot_of(g, f->args.at[i])->useful && !cot_of(g, f->yields.at[i])->useful)
				again = cot_of(g, f->yields.at[i])->useful = true;
	}
}

/* -- the reverse of a repeat -- */

struct list { /* as VEC makes it */
	struct value **at;
	uint32_t n, cap;
};

struct loop {
	struct grad *g;             /* of the body bb */
	struct op *fwd;
	struct block *f, *bb;
	uint32_t ncarry, nwith;     /* of fwd */
	struct list carry_in, with_in, over_in;    /* operands, outside */
	struct list carry_arg, with_arg, over_arg; /* and what the body calls them */
	struct list carry_of, stack_of;            /* forward values in f whose cotangent is yielded */
	struct list carry_to, stack_to;            /* who gets it outside */
	struct op *anchor;          /* first gradient op of bb: copies stand before it */
};

static void push(struct loop *l, struct list *list, struct value *v)
{
	PUSH(l->g->m->mem, list, v);
}

/* Made by leaves alone: cheaper to do again than to keep. */
static bool leafy(struct grad *g, struct value *v)
{
	struct cot *c = cot_of(g, v);
	struct op *op = v->def;

	if (c->leafy)
		return c->leafy > 0;
	bool yes = op && op->code != OP_READ && !op->body &&
		   (opinfo[op->code].class == C_LEAF || opinfo[op->code].class == C_MAP);
	for (uint32_t i = 0; yes && i < op->nin; i++)
		yes = op->in[i]->home == v->home && leafy(g, op->in[i]);
	c->leafy = yes ? 1 : -1;
	return yes;
}

static bool pointwise(const struct value *v)
{
	return v->def && v->nd && !v->name &&
	       (opinfo[v->def->code].class == C_MAP || is_view(v->def->code));
}

static void add_root(struct cot *c, struct value *v)
{
	for (int i = 0; i < c->roots - 1 && i < (int)LEN(c->root); i++)
		if (c->root[i] == v)
			return;
	if (c->roots - 1 < (int)LEN(c->root))
		c->root[c->roots - 1] = v;
	c->roots += c->roots - 1 <= (int)LEN(c->root);
}

/* The tensors of v's size that it is made of by pointwise ops; more than two is too many. */
static const struct cot *roots_of(struct grad *g, struct value *v)
{
	struct cot *c = cot_of(g, v);

	if (c->roots)
		return c;
	c->roots = 1;
	if (leafy(g, v))
		return c;
	if (!pointwise(v)) {
		add_root(c, v);
		return c;
	}
	for (uint32_t i = 0; i < v->def->nin; i++) {
		struct value *x = v->def->in[i];

		if (value_count(g->m, x) < value_count(g->m, v))
			continue;
		const struct cot *from = roots_of(g, x);
		for (int k = 0; k < from->roots - 1; k++)
			add_root(c, k < (int)LEN(c->root) ? from->root[k] : v);
	}
	return c;
}

/* Params that lie sharded are gathered wherever they are read. */
static bool params_sharded(const struct module *m)
{
	for (uint32_t i = 0; i < m->arrows.n; i++)
		if (m->arrows.at[i].what == W_PARAMS && !m->arrows.at[i].none && !m->arrows.at[i].host)
			return true;
	return false;
}

/* Does the pointwise group of v read a param? */
static bool from_param(struct grad *g, struct value *v)
{
	if (cot_of(g, v)->param)
		return true;
	if (!pointwise(v))
		return false;
	for (uint32_t i = 0; i < v->def->nin; i++)
		if (from_param(g, v->def->in[i]))
			return true;
	return false;
}

/* Whether to make v again from its operands rather than keep it: an unnamed step of a pointwise
 * group, which is f32 and stored nowhere (precision), if no more than two tensors are kept for it
 * and no param is gathered a second time; a view; a cast that makes its operand no smaller. */
static bool made_again(struct grad *g, struct value *v)
{
	const struct op *op = v->def;

	if (!op || cot_of(g, v)->kept)
		return false;
	if (pointwise(v) && roots_of(g, v)->roots - 1 <= (int)LEN(cot_of(g, v)->root) &&
	    !(params_sharded(g->m) && from_param(g, v)))
		return true;
	if (op->code == OP_CAST)
		return dtype_bytes(op->in[0]->dt) <= dtype_bytes(v->dt);
	return is_view(op->code) || op->code == OP_READ || op->code == OP_DETACH;
}

static struct value *resolve(struct loop *l, struct value *v);

static struct value *copy_here(struct loop *l, struct value *v)
{
	struct op *op = v->def;
	struct builder b = { l->g->m, l->bb, l->anchor, BACKWARD, op->span, op, 0 };
	struct value **in = NEWN(b.m->mem, struct value *, op->nin ? op->nin : 1);
	struct cot *c = cot_of(l->g, v);

	for (uint32_t i = 0; i < op->nin; i++)
		in[i] = resolve(l, op->in[i]);
	struct op *new = op_clone(&b, op, false);
	v->aux = c; /* op_clone wrote there */
	new->in = in;
	new->out[0]->name = NULL;
	return new->out[0];
}

static struct value *add_slice(struct loop *l, struct value *outside, struct value *like)
{
	struct value *arg = block_arg(&l->g->b, l->bb, like->dt, like->nd, like->d);

	push(l, &l->over_in, outside);
	push(l, &l->over_arg, arg);
	return arg;
}

/* The result of r that stacks v, made if it is not there. */
static struct value *stacked(struct grad *g, struct op *r, struct value *v)
{
	for (uint32_t i = (uint32_t)r->at.ncarry; i < r->nout; i++)
		if (r->body->yields.at[i] == v)
			return r->out[i];
	if (v->nd == MAX_DIMS)
		die("a value of %d dims can't be stacked", MAX_DIMS);
	struct value *out = op_add_out(g->m, r, v);
	memmove(out->d + 1, out->d, v->nd * sizeof *v->d);
	memset(&out->sh, 0, sizeof out->sh);
	out->d[0] = r->at.dim;
	out->nd++;
	PUSH(g->m->mem, &r->body->yields, v);
	return out;
}

/* A dim like d that no value of the model has. */
static dimid twin_dim(struct module *m, dimid d)
{
	const char *name = arena_printf(m->mem, "%s_kept", m->dims.at[d].name);
	dimid twin = find_dim(m, name);

	if (twin == NODIM || dim_size(m, twin) != dim_size(m, d))
		twin = module_dim(m, name, dim_size(m, d), m->dims.at[d].at);
	return twin;
}

/* A stash of v; one that has the loop's own dim is kept under another name for it. */
static struct value *keep(struct loop *l, struct value *v)
{
	struct module *m = l->g->m;
	dimid d = l->fwd->at.dim;

	if (!has_dim(v, d))
		return add_slice(l, stacked(l->g, l->fwd, v), v);
	struct builder f = { m, l->f, NULL, FORWARD, v->span, NULL, 0 };
	struct value *other = b_rename(&f, v, d, twin_dim(m, d));
	struct builder b = { m, l->bb, l->anchor, BACKWARD, v->span, v->def, 0 };

	return b_rename(&b, add_slice(l, stacked(l->g, l->fwd, other), other), other->d[dim_pos(v, d)], d);
}

/* At the top a forward value can be read as it is; only what is cheap is not kept for that. */
static struct value *resolve_top(struct loop *l, struct value *v)
{
	if (v->nd && v->def && v->def->phase == FORWARD && v->def->code != OP_READ &&
	    !is_view(v->def->code) && (leafy(l->g, v) || made_again(l->g, v)))
		return copy_here(l, v);
	return v;
}

/* What the backward body of l calls the forward value v of l->f. */
static struct value *resolve(struct loop *l, struct value *v)
{
	struct cot *c = cot_of(l->g, v);

	if (c->here)
		return c->here;
	if (!l->fwd) {
		c->here = resolve_top(l, v);
	} else if (!v->def && v->no >= l->ncarry) {
		struct value *outside = l->fwd->in[v->no];

		if (v->no < l->ncarry + l->nwith) {
			c->here = block_arg(&l->g->b, l->bb, v->dt, v->nd, v->d);
			push(l, &l->with_in, outside);
			push(l, &l->with_arg, c->here);
		} else {
			c->here = add_slice(l, outside, v);
		}
	} else if (v->def && (leafy(l->g, v) || made_again(l->g, v))) {
		c->here = copy_here(l, v);
	} else {
		c->here = keep(l, v);
	}
	return c->here;
}

static void resolve_all(struct loop *l, struct op *first)
{
	l->anchor = first;
	for (struct op *op = first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->home == l->f)
				op->in[i] = resolve(l, op->in[i]);
	for (uint32_t i = 0; i < l->bb->yields.n; i++)
		if (l->bb->yields.at[i]->home == l->f)
			l->bb->yields.at[i] = resolve(l, l->bb->yields.at[i]);
}

/* The argument of a cotangent is called "d:NAME" after its forward value, so that it is placed as
 * that is; an accumulator of a param has no name and lies as it comes. */
static void carry_cotangent(struct loop *l, struct value *seed, struct value *gets,
			    struct value *yields, struct value *to, const char *name)
{
	struct value *arg = block_arg(&l->g->b, l->bb, cot_type(l->g, yields), yields->nd, yields->d);

	arg->name = name ? arena_printf(l->g->m->mem, "d:%s", name) : NULL;
	push(l, &l->carry_in, seed);
	push(l, &l->carry_arg, arg);
	push(l, &l->carry_of, yields);
	push(l, &l->carry_to, to);
	cot_give(l->g, gets, arg);
}

/* Cotangents of carried values, and an accumulator for each invariant that needs a gradient: a
 * computed one starts from what its value has so far, a param's from zero. */
static void carry_in(struct loop *l, struct grad *outer)
{
	for (uint32_t i = 0; i < l->ncarry; i++) {
		struct value *arg = l->f->args.at[i], *y = l->f->yields.at[i];

		if (!cot_of(l->g, y)->useful || !cot_of(l->g, arg)->varied)
			continue;
		struct value *seed = cot_take(outer, l->fwd->out[i]);
		seed = seed ? cot_widen(outer, seed, l->fwd->out[i], true) : cot_zeros(outer, arg);
		const char *name = arg->name ? arg->name : y->name;
		carry_cotangent(l, seed, y, arg, l->fwd->in[i], name ? name : "");
	}
	for (uint32_t i = l->ncarry; i < l->ncarry + l->nwith; i++) {
		struct value *arg = l->f->args.at[i], *v = l->fwd->in[i];
		struct cot *c = cot_of(l->g, arg);

		if (!c->useful || !c->varied)
			continue;
		struct value *seed = c->param ? NULL : cot_take(outer, v);
		seed = seed ? cot_widen(outer, seed, v, true) : cot_zeros(outer, arg);
		carry_cotangent(l, seed, arg, arg, v, c->param ? NULL : v->name ? v->name : "");
	}
}

static void yield_cotangents(struct loop *l)
{
	for (uint32_t i = 0; i < l->carry_of.n; i++) {
		struct value *v = l->carry_of.at[i], *y = cot_take(l->g, v);

		l->g->b.of = v->def;
		l->g->b.span = v->span;
		y = y ? cot_widen(l->g, y, v, true) : cot_zeros(l->g, v);
		PUSH(l->g->m->mem, &l->bb->yields, y);
	}
	for (uint32_t i = l->ncarry + l->nwith; i < l->f->args.n; i++) {
		struct value *arg = l->f->args.at[i], *y = cot_take(l->g, arg);

		if (!y)
			continue;
		l->g->b.of = NULL;
		l->g->b.span = arg->span;
		PUSH(l->g->m->mem, &l->bb->yields, cot_widen(l->g, y, arg, true));
		push(l, &l->stack_of, arg);
		push(l, &l->stack_to, l->fwd->in[i]);
	}
}

static void append(struct loop *l, struct list *to, const struct list *from)
{
	for (uint32_t i = 0; i < from->n; i++)
		push(l, to, from->at[i]);
}

/* The reverse repeat itself, once its body is whole. */
static struct op *make_reverse(struct loop *l, struct grad *outer)
{
	struct list in = { 0 }, args = { 0 };

	append(l, &in, &l->carry_in);
	append(l, &in, &l->with_in);
	append(l, &in, &l->over_in);
	append(l, &args, &l->carry_arg);
	append(l, &args, &l->with_arg);
	append(l, &args, &l->over_arg);
	for (uint32_t i = 0; i < args.n; i++) {
		args.at[i]->no = i;
		l->bb->args.at[i] = args.at[i];
	}
	struct op *r = op_new(&outer->b, OP_REPEAT, in.n, in.at, l->bb->yields.n);
	SET(r, dim, l->fwd->at.dim);
	SET(r, ncarry, (int64_t)l->carry_in.n);
	SET(r, nwith, (int64_t)l->with_in.n);
	if (!l->fwd->at.reverse)
		SET(r, reverse, 1);
	r->body = l->bb;
	l->bb->owner = r;
	for (uint32_t i = 0; i < r->nout; i++) {
		struct value *y = l->bb->yields.at[i];
		dimid d[MAX_DIMS];
		int nd = y->nd;

		memcpy(d, y->d, sizeof d);
		if (i >= l->carry_in.n) {
			int pos = dim_pos(l->stack_to.at[i - l->carry_in.n], l->fwd->at.dim);

			memmove(d + pos + 1, d + pos, (size_t)(nd - pos) * sizeof *d);
			d[pos] = l->fwd->at.dim;
			nd++;
		}
		op_type(&outer->b, r, i, y->dt, nd, d);
	}
	return r;
}

static void back_ops(struct grad *g, struct op *last);

static void back_repeat(struct grad *outer, struct op *fwd)
{
	struct grad g = *outer;
	struct loop l = { .g = &g, .fwd = fwd, .f = fwd->body, .ncarry = (uint32_t)fwd->at.ncarry,
			  .nwith = (uint32_t)fwd->at.nwith };

	useful_body(outer, fwd);
	l.bb = block_new(g.m, NULL);
	g.b.block = l.bb;
	g.b.before = NULL;
	carry_in(&l, outer);
	back_ops(&g, l.f->last);
	yield_cotangents(&l);
	resolve_all(&l, l.bb->first);
	if (!l.bb->yields.n)
		return;
	struct op *r = make_reverse(&l, outer);
	for (uint32_t i = 0; i < l.carry_to.n; i++)
		cot_give(outer, l.carry_to.at[i], r->out[i]);
	for (uint32_t i = 0; i < l.stack_to.n; i++)
		cot_give(outer, l.stack_to.at[i], r->out[l.carry_to.n + i]);
}

/* Runs the ops up to `last` backwards; what the block yields has its cotangents. */
static void back_ops(struct grad *g, struct op *last)
{
	for (struct op *op = last, *prev; op; op = prev) {
		bool any = false;

		prev = op->prev;
		for (uint32_t i = 0; i < op->nout; i++)
			any |= cot_of(g, op->out[i])->parts.n > 0;
		if (!any || op->code == OP_READ)
			continue;
		g->b.of = op;
		g->b.span = op->span;
		if (op->code == OP_REPEAT) {
			back_repeat(g, op);
			continue;
		}
		struct value *dy = cot_take(g, op->out[0]);
		if (dy)
			op_gradient(g, op, dy);
	}
}

/* -- the step -- */

struct reads { /* as VEC makes it: those of the forward section */
	struct op **at;
	uint32_t n, cap;
};

/* The gradient of a param, from all the places that read it. */
static struct value *param_gradient(struct grad *g, const struct reads *reads, const char *name)
{
	struct value *first = NULL;

	for (uint32_t r = 0; r < reads->n; r++) {
		struct op *op = reads->at[r];

		if (!streq(op->at.buf, name))
			continue;
		if (!first) {
			first = op->out[0];
			continue;
		}
		struct cot *from = cot_of(g, op->out[0]), *to = cot_of(g, first);
		for (uint32_t i = 0; i < from->parts.n; i++)
			PUSH(g->m->mem, &to->parts, from->parts.at[i]);
		from->parts.n = 0;
	}
	const struct buffer *b = find_buffer(g->m, name);
	g->b.of = first ? first->def : NULL;
	g->b.span = first ? first->span : b->at;
	struct value *dv = first ? cot_take(g, first) : NULL;
	if (dv) {
		dv = cot_widen(g, dv, first, true);
	} else {
		struct op *zero = op_new(&g->b, OP_CONST, 0, NULL, 1);

		SET(zero, value, 0.0);
		dv = op_type(&g->b, zero, 0, F32, b->nd, b->d);
	}
	if (dv->name || dv->def->phase != BACKWARD) { /* the gradient of another param as well */
		struct op *copy = op_new(&g->b, OP_ACCUM, 1, &dv, 1);

		dv = op_type(&g->b, copy, 0, F32, dv->nd, dv->d);
	}
	dv->name = arena_printf(g->m->mem, "d:%s", name);
	return dv;
}

struct group {
	int64_t no;
	struct value *loss;
	VEC(struct op *) ops;      /* its minimize ops */
};

/* Gradients of one loss. last: the last op of the forward section. */
static void differentiate_group(struct module *m, struct group *group, struct op *last)
{
	struct grad g = { m, { m, &m->top, NULL, BACKWARD, group->loss->span, group->loss->def, 0 } };
	const char **names = NEWN(m->mem, const char *, group->ops.n);
	struct value **grads = NEWN(m->mem, struct value *, group->ops.n);

	for (uint32_t i = 0; i < group->ops.n; i++)
		names[i] = group->ops.at[i]->at.buf;
	forget(&m->top);
	vary_block(&(struct vary){ &g, names, group->ops.n }, &m->top);
	if (cot_of(&g, group->loss)->varied)
		cot_give(&g, group->loss, b_const(&g.b, group->loss->dt, 1));
	struct op *before = m->top.last;
	back_ops(&g, last);
	if (before->next)
		resolve_all(&(struct loop){ .g = &g, .f = &m->top, .bb = &m->top }, before->next);
	struct reads reads = { 0 };
	for (struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_READ && op->phase == FORWARD)
			PUSH(m->mem, &reads, op);
	for (uint32_t i = 0; i < group->ops.n; i++)
		grads[i] = param_gradient(&g, &reads, names[i]);
	for (uint32_t i = 0; i < group->ops.n; i++)
		group->ops.at[i]->in[0] = grads[i];
}

static void add_to_group(struct module *m, struct group *groups, int *n, struct op *op)
{
	int i = 0;

	while (i < *n && groups[i].no != op->at.group)
		i++;
	if (i == *n) {
		groups[i].no = op->at.group;
		groups[i].loss = op->in[0];
		(*n)++;
	}
	PUSH(m->mem, &groups[i].ops, op);
}

/* What a loop keeps for backward gets its dim. */
static bool check_room(const struct block *block, int depth, struct diag *d)
{
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; depth && i < op->nout; i++)
			if (op->out[i]->nd + depth > MAX_DIMS)
				return diag_error(d, op->span, "%d dims inside %d repeat%s are too many: at most %d in all",
						  op->out[i]->nd, depth, depth > 1 ? "s" : "", MAX_DIMS);
		if (op->body && !check_room(op->body, depth + 1, d))
			return false;
	}
	return true;
}

bool pass_differentiate(struct module *m, struct diag *d)
{
	struct op *last = m->top.last;
	int nops = 0, n = 0;

	if (!check_room(&m->top, 0, d))
		return false;
	for (struct op *op = m->top.first; op; op = op->next)
		nops += op->code == OP_MINIMIZE;
	struct group *groups = NEWN(m->mem, struct group, nops ? nops : 1);
	for (struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_MINIMIZE)
			add_to_group(m, groups, &n, op);
	for (int i = 0; i < n; i++)
		differentiate_group(m, &groups[i], last);
	for (int i = 0; i < n; i++)
		for (uint32_t k = 0; k < groups[i].ops.n; k++) {
			struct op *op = groups[i].ops.at[k];
			struct builder b = { m, &m->top, NULL, EPILOGUE, op->span, NULL, 0 };
			struct op *t = op_new(&b, OP_TRAIN, op->nin, op->in, 0);

			t->has = op->has;
			t->at = op->at;
			op_unlink(op);
		}
	return true;
}
