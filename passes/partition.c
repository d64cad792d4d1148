/* passes/partition.c - one greedy pass in topological order: a sharding for every value, and the
 * collectives between them (docs/SHARDING.md).
 *
 * Requires anchors (place). The old block is walked and a new one is built: for each op a work
 * sharding is chosen by cost (forward, prologue, epilogue) or taken from the forward op it is the
 * gradient of (backward), its operands are brought into the shardings that follow, and the op is
 * emitted. Renames are aliases, leaves are made where they are read, loops are partitioned once.
 */
#include "passes/partition.h"

#include "passes/microbatch.h"
#include "passes/place.h"

static void part_block(struct part *p, struct block *block);

static void set_info(struct part *p, struct value *v, enum how how, struct value *from)
{
	struct info *i = info_of(p, v);

	i->scope = p->scope;
	i->how = how;
	i->from = from;
}

/* -- which forward values need a gradient -- */

static bool stops_gradient(const struct op *op, const struct value *out)
{
	return !is_float(out->dt) || op->code == OP_DETACH;
}

static void mark_grads(struct part *p, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		bool need = false;

		if (op->phase > FORWARD)
			continue;
		if (op->code == OP_READ) {
			const struct buffer *b = find_buffer(p->m, op->at.buf);

			need = b && b->role == B_PARAM;
		}
		for (uint32_t i = 0; i < op->nin; i++) {
			bool n = info_of(p, op->in[i])->needs_grad;

			need |= n;
			if (op->body)
				info_of(p, op->body->args.at[i])->needs_grad = n || (i < op->at.ncarry && is_float(op->in[i]->dt));
		}
		if (op->body)
			mark_grads(p, op->body);
		for (uint32_t i = 0; i < op->nout; i++)
			info_of(p, op->out[i])->needs_grad = need && !stops_gradient(op, op->out[i]);
	}
}

/* -- plain ops -- */

static void put_result(struct part *p, struct value *old, struct value *val, const struct sharding *sh)
{
	val->sh = *sh;
	val->placed = true;
	val->span = old->span;
	set_info(p, old, H_MADE, NULL);
	add_version(p, old, val);
}

/* An attention over split keys sends within. */
static void set_inner(struct part *p, struct op *op, struct work *w)
{
	struct arena *mem = p->m->mem;
	const struct axes *keys = opinfo[op->code].class == C_ATTN ? work_on(w, op->at.ctx) : NULL;

	if (!keys || !keys->n)
		return;
	SET(op, axes, *keys);
	op->why = arena_printf(mem, attn_ring(op) ? "%s of keys over %s: rows and %s are split alike (%s)" :
			       "%s of results over %s: %s is split, rows are not (%s)", comm_name(op),
			       axes_user_text(mem, p->m, comm_axes(op)), p->m->dims.at[op->at.ctx].name,
			       span_text(mem, p->m->src, op->span));
}

static void emit_op(struct part *p, struct op *op, struct work *w)
{
	struct value **in = NEWN(p->m->mem, struct value *, op->nin ? op->nin : 1);

	for (uint32_t i = 0; i < op->nin; i++) {
		struct sharding need = work_need(op, w, i);

		in[i] = get_version(p, op->in[i], &need);
	}
	struct builder b = p->scope->b;
	b.span = op->span;
	struct op *new = op_new(&b, op->code, op->nin, in, op->nout);
	new->has = op->has;
	new->at = op->at;
	new->why = op->why;
	set_inner(p, new, w);
	for (uint32_t k = 0; k < op->nout; k++) {
		struct value *v = op->out[k];
		struct sharding sh = work_result(p->m, op, w, k);

		put_result(p, v, op_type(&b, new, k, v->dt, v->nd, v->d), &sh);
		if (v->placed && (op->phase <= FORWARD || op->phase == EPILOGUE))
			get_version(p, v, &v->sh);
	}
	struct work *keep = NEW(p->m->mem, struct work);
	*keep = *w;
	op->aux = keep;
	note_gradients(p, op, w);
}

static void part_plain(struct part *p, struct op *op)
{
	struct work *of = op->phase == BACKWARD && op->of && op->of->code != OP_REPEAT ? op_work(op->of) : NULL;
	bool again = of && op->nout == 1 && info_of(p, op->out[0])->again;
	struct work w = again ? *of : of ? gradient_work(p, op, of) : choose_work(p, op);

	emit_op(p, op, &w);
	for (uint32_t k = 0; k < op->nout; k++)
		sink(p, op->out[k], work_result(p->m, op, &w, k).sum);
}

/* Backward reads the params of the top in the versions that forward made: what was gathered for the
 * head is still there. (In a loop each iteration gathers its own.) */
static bool read_again(struct part *p, struct op *op)
{
	if (op->home != &p->m->top)
		return false;
	for (uint32_t i = p->reads.n; i && op->phase == BACKWARD; i--) {
		const struct op *f = p->reads.at[i - 1];

		if (streq(f->at.buf, op->at.buf) && f->out[0]->dt == op->out[0]->dt) {
			op->out[0]->aux = f->out[0]->aux;
			return true;
		}
	}
	if (op->phase <= FORWARD)
		PUSH(p->m->mem, &p->reads, op);
	return false;
}

static void part_read(struct part *p, struct op *op)
{
	const struct buffer *buf = find_buffer(p->m, op->at.buf);
	struct builder b = p->scope->b;

	if (read_again(p, op))
		return;
	b.span = op->span;
	struct op *new = op_new(&b, OP_READ, 0, NULL, 1);
	new->has = op->has;
	new->at = op->at;
	put_result(p, op->out[0], op_type(&b, new, 0, op->out[0]->dt, op->out[0]->nd, op->out[0]->d), &buf->store);
	struct info *i = info_of(p, op->out[0]);
	i->gated = i->weight = buf->role == B_PARAM;
	i->gate = buf->compute;
	if (op->phase == PROLOGUE && gathered_once(p->m, buf->name))
		get_version(p, op->out[0], &i->gate);
}

/* Params that are gathered once a step are read in the prologue. */
static void read_ahead(struct module *m)
{
	struct op *first = m->top.first;

	while (first && first->phase == PROLOGUE)
		first = first->next;
	for (struct op *op = first, *next; op && op->phase == FORWARD; op = next) {
		next = op->next;
		if (op->code != OP_READ || !gathered_once(m, op->at.buf))
			continue;
		op->phase = PROLOGUE;
		if (op == first)
			first = next;
		else
			op_move_before(op, first);
	}
}

/* -- the contributions to one cotangent -- */

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

/* sh, given in the order of y's dims, in the order of x's; dims that y lacks are whole. */
static struct sharding in_order_of(const struct value *x, const struct value *y, const struct sharding *sh)
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

static void part_accum(struct part *p, struct op *op)
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

/* -- loops -- */

static void part_carry(struct part *p, struct op *op, int64_t i, struct op *new)
{
	struct value *arg = op->body->args.at[i];
	struct value *val = block_arg(&p->scope->b, new->body, arg->dt, arg->nd, arg->d);
	shardings list = { 0 };
	int t = time_axis(p->m);

	val->span = arg->span;
	val->placed = true;
	val->kind = arg->kind;
	val->name = arg->name;
	set_info(p, arg, H_MADE, NULL);
	available(p, op->in[i], &list);
	if (arg->placed) {
		val->sh = arg->sh;
	} else if (!list.n) { /* whatever made it can be made again in any sharding */
		info_of(p, arg)->how = H_WILD;
		return;
	} else {
		val->sh = list.at[0];
		val->sh.max = 0;
		if (arg->nd)
			val->sh.sum &= t >= 0 ? 1u << t : 0;
		if (t >= 0 && (arg->kind == K_SUM || arg->kind == K_FN) &&
		    (op->phase == FORWARD || op->phase == BACKWARD))
			val->sh.sum |= 1u << t;
	}
	add_version(p, arg, val);
}

static void part_args(struct part *p, struct op *op, struct op *new)
{
	for (int64_t i = 0; i < op->at.ncarry; i++) {
		struct scope *here = p->scope;

		part_carry(p, op, i, new);
		p->scope = here;
	}
	for (uint32_t i = (uint32_t)op->at.ncarry; i < op->nin; i++) {
		bool with = i < (uint64_t)(op->at.ncarry + op->at.nwith);
		struct value *arg = op->body->args.at[i];
		struct info *outer = info_of(p, op->in[i]), *in = info_of(p, arg);

		set_info(p, arg, with ? H_WITH : H_OVER, op->in[i]);
		in->gated = outer->gated && outer->weight;
		in->weight = outer->weight;
		in->gate = outer->gate;
		if (in->gated && !with)
			for (int k = 0; k < arg->nd; k++)
				in->gate.on[k] = outer->gate.on[dim_pos(op->in[i], arg->d[k])];
	}
}

static void part_yields(struct part *p, struct op *op, struct op *new)
{
	for (int64_t i = 0; i < op->at.ncarry; i++) {
		struct value *arg = op->body->args.at[i];

		p->reader = op;
		if (info_of(p, arg)->how == H_WILD) {
			shardings list = { 0 };

			available(p, op->body->yields.at[i], &list);
			fix_wild(p, arg, list.n ? &list.at[0] : &(struct sharding){ .sum = 0 });
		}
		PUSH(p->m->mem, &new->body->yields,
		     get_version(p, op->body->yields.at[i], &new->body->args.at[i]->sh));
	}
}

/* Stacked results that the body has made no version of: leaves, and what it only passes on. */
static void part_stacked(struct part *p, struct op *op)
{
	bool time = op->phase == FORWARD || op->phase == BACKWARD;

	p->reader = op;
	for (uint32_t i = (uint32_t)op->at.ncarry; i < op->nout; i++) {
		struct value *v = rename_root(p, op->body->yields.at[i]);
		shardings list = { 0 };

		if (info_of(p, v)->ver.n)
			continue;
		available(p, v, &list);
		struct sharding sh = list.n ? list.at[0] : place_by_arrows(p->m, NULL, v->nd, v->d, time);
		get_version(p, v, &sh);
	}
}

/* The gradient of a param whose accumulator is sharded: brought to `home` (a slice of it where v
 * is one iteration's), still pending over the microbatches. */
static void reduce_early(struct part *p, const struct value *named, struct value *v)
{
	int t = time_axis(p->m);

	if (!named->placed || !named->name || strncmp(named->name, "d:", 2) ||
	    !reduced_each_microbatch(p->m, named->name + 2))
		return;
	struct sharding home = in_order_of(v, named, &named->sh);
	shardings list = { 0 };

	available(p, v, &list);
	home.sum |= list.n ? list.at[0].sum & until_late(p->m) : 0;
	if (t >= 0)
		home.sum |= 1u << t;
	get_version(p, v, &home);
}

/* What each stage has added up in the prologue is one sum from here on: a section of one stage may read it. */
static void join_stages(struct part *p, struct value *v)
{
	struct sharding sh = info_of(p, v)->ver.at[0].sh;

	sh.sum &= ~(1u << pipe_axis(p->m));
	struct value *sum = get_version(p, v, &sh);
	set_info(p, v, H_MADE, NULL);
	add_version(p, v, sum);
}

static void part_repeat(struct part *p, struct op *op)
{
	struct scope *up = p->scope, *s = NEW(p->m->mem, struct scope);
	struct builder b = up->b;
	uint32_t nc = (uint32_t)op->at.ncarry;

	b.span = op->span;
	struct op *new = op_new(&b, OP_REPEAT, 0, NULL, 0);
	new->has = op->has & ~(1u << A_acc);
	new->at = op->at;
	new->at.acc = 0;
	new->body = block_new(p->m, new);
	for (uint32_t i = 0; i < nc; i++)
		op_add_in(p->m, new, op->in[i]); /* replaced below */
	*s = (struct scope){ up, b, op, new, 0, true };
	s->b.block = new->body;
	s->b.before = NULL;
	up->b.before = new;
	p->scope = s;
	part_args(p, op, new);
	part_block(p, op->body);
	part_yields(p, op, new);
	part_stacked(p, op);
	for (uint32_t i = nc; op->phase == BACKWARD && i < op->nout; i++)
		reduce_early(p, op->out[i], op->body->yields.at[i]);
	s->open = false;
	p->scope = up;
	p->reader = op;
	for (uint32_t i = 0; i < nc; i++) {
		new->in[i] = get_version(p, op->in[i], &new->body->args.at[i]->sh);
		struct value *like = new->body->args.at[i];
		struct sharding sh = like->sh;

		if (HAS(op, local) && op->at.local >> i & 1) /* each stage has its own */
			sh.sum |= 1u << pipe_axis(p->m);
		put_result(p, op->out[i], op_add_out(p->m, new, like), &sh);
	}
	up->b.before = NULL;
	SET(new, nwith, (int64_t)s->nwith);
	for (uint32_t i = 0; op->phase == PROLOGUE && HAS(op, local) && i < nc; i++)
		join_stages(p, op->out[i]);
	for (uint32_t i = nc; i < op->nout; i++)
		set_info(p, op->out[i], H_STACKED, op->body->yields.at[i]);
	for (uint32_t i = 0; i < op->nout; i++)
		if (i < nc && op->out[i]->placed && op->phase <= FORWARD)
			get_version(p, op->out[i], &op->out[i]->sh);
}

/* -- the step -- */

/* Takes the sum as it is, pending over the mesh, so that it is reduced once a step; of several
 * versions the one nearest to where its reader wants it. */
static void part_accumulate(struct part *p, struct op *op)
{
	shardings list = { 0 };
	struct value *v = op->out[0];
	int t = time_axis(p->m);
	uint32_t time = t < 0 ? 0 : 1u << t, best = 0;
	double least = 1e30;

	reduce_early(p, v, op->in[0]);
	available(p, op->in[0], &list);
	for (uint32_t k = 0; k < list.n; k++) {
		struct sharding sh = list.at[k];

		sh.sum &= ~time;
		double s = v->placed ? reshard_chain(p->m, v->nd, v->d, v->dt, &sh, &v->sh).seconds : (double)k;
		if (s < least) {
			least = s;
			best = k;
		}
	}
	struct sharding sh = list.n ? list.at[best] : (struct sharding){ .sum = time };
	sh.sum |= time; /* what is the same in each microbatch counts once */
	struct value *in = get_version(p, op->in[0], &sh);
	struct builder b = p->scope->b;
	b.span = op->span;
	struct op *new = op_new(&b, OP_ACCUMULATE, 1, &in, 1);
	new->has = op->has;
	new->at = op->at;
	sh.sum &= ~time;
	put_result(p, v, op_type(&b, new, 0, v->dt, v->nd, v->d), &sh);
}

/* A value that is on some stages only becomes a sum over all; what else it owes it keeps. */
static void part_to_partial(struct part *p, struct op *op)
{
	shardings list = { 0 };
	struct builder b = p->scope->b;

	available(p, op->in[0], &list);
	struct sharding sh = list.n ? list.at[0] : (struct sharding){ .sum = 0 };
	struct value *v = op->out[0], *in = get_version(p, op->in[0], &sh);
	b.span = op->span;
	struct op *new = op_new(&b, op->code, 1, &in, 1);
	new->has = op->has;
	new->at = op->at;
	sh.sum |= 1u << pipe_axis(p->m);
	put_result(p, v, op_type(&b, new, 0, v->dt, v->nd, v->d), &sh);
}

static void part_sink(struct part *p, struct op *op)
{
	struct sharding sh = { .sum = 0 };

	if (op->code == OP_WRITE)
		sh = find_buffer(p->m, op->at.buf)->store;
	struct value *in = get_version(p, op->in[0], &sh);
	struct builder b = p->scope->b;
	b.span = op->span;
	struct op *new = op_new(&b, op->code, 1, &in, 0);
	new->has = op->has;
	new->at = op->at;
}

/* Gradients that the epilogue reads are brought home first, whoever reads them. */
static void gate_gradients(struct part *p, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++) {
			struct value *v = op->out[i];

			if ((op->phase > BACKWARD && op->code != OP_ACCUM) || !v->placed || !v->name ||
			    strncmp(v->name, "d:", 2))
				continue;
			info_of(p, v)->gated = true;
			info_of(p, v)->gate = v->sh;
		}
}

static void part_op(struct part *p, struct op *op)
{
	p->reader = op;
	switch (op->code) {
	case OP_READ:
		if (is_free(op->out[0]))
			set_info(p, op->out[0], H_FREE, NULL);
		else
			part_read(p, op);
		break;
	case OP_RENAME:
		set_info(p, op->out[0], is_free(op->out[0]) ? H_FREE : H_ALIAS, op->in[0]);
		break;
	case OP_REPEAT:
		part_repeat(p, op);
		break;
	case OP_ACCUMULATE:
		part_accumulate(p, op);
		break;
	case OP_WRITE:
	case OP_REPORT:
		part_sink(p, op);
		break;
	case OP_TO_PARTIAL:
		part_to_partial(p, op);
		break;
	case OP_ACCUM:
		if (op->phase == BACKWARD) {
			part_accum(p, op);
			break;
		}
		/* fall through */
	default:
		if (op->nout == 1 && is_free(op->out[0]))
			set_info(p, op->out[0], H_FREE, NULL);
		else
			part_plain(p, op);
	}
}

static void part_block(struct part *p, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		p->scope->b.phase = op->phase;
		set_again(p, op);
		part_op(p, op);
	}
}

static void clear_aux(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->aux = NULL;
	for (struct op *op = block->first; op; op = op->next) {
		op->aux = NULL;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
		if (op->body)
			clear_aux(op->body);
	}
}

/* `of` may name an op that has left the module, whose aux is anybody's. */
static void mark_of(struct block *block, int64_t mark, bool ops)
{
	for (struct op *op = block->first; op; op = op->next) {
		if (ops)
			op->mark = mark;
		else if (op->of)
			op->of->mark = mark;
		if (op->body)
			mark_of(op->body, mark, ops);
	}
}

static void drop_stale_of(struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		if (op->of && !op->of->mark)
			op->of = NULL;
		if (op->body)
			drop_stale_of(op->body);
	}
}

bool pass_partition(struct module *m, struct diag *d)
{
	struct scope top = { .open = true };
	struct part p = { .m = m, .d = d, .scope = &top };
	struct block *new = block_new(m, NULL);

	find_loops(m, &m->top);
	clear_aux(&m->top);
	mark_of(&m->top, 0, false);
	mark_of(&m->top, 1, true);
	drop_stale_of(&m->top);
	top.b = (struct builder){ .m = m, .block = new };
	read_ahead(m);
	mark_grads(&p, &m->top);
	set_readers(&p, &m->top);
	set_hints(&p, &m->top);
	set_later(&p, &m->top);
	gate_gradients(&p, &m->top);
	part_block(&p, &m->top);
	m->top.first = new->first;
	m->top.last = new->last;
	for (struct op *op = new->first; op; op = op->next) {
		op->home = &m->top;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->home = &m->top;
	}
	drop_dead(&m->top);
	m->form = PARTITIONED;
	return !p.failed;
}
