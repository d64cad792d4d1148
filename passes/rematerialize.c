/* passes/rematerialize.c - backward makes again what the plan does not keep of forward.
 *
 * Requires form PARTITIONED, places given (pipeline). A reverse repeat first reads forward values directly, as
 * while it was made (differentiate): its slices of what the forward repeat stacks are taken away. Inner
 * repeats come first. Then it is chosen what is kept (remat_keep.c), and what each op of backward reads is put
 * in place: a slice of a stack, or copies of the forward ops just before the first op that reads them,
 * collectives with them. A copy has {again}. What is then stacked for nobody goes.
 *
 * Results stay the same bits: random numbers and iterations are functions of indices, and routing, of which a
 * tie could go another way, is never made again. */
#include "ir/text.h"
#include "passes/partition.h"
#include "passes/remat.h"

struct node *node_of(const struct pair *p, const struct value *v)
{
	return v->home == p->f ? v->aux : NULL;
}

bool is_wanted(const struct module *m, const struct value *v)
{
	for (uint32_t i = 0; v->name && i < m->recompute.keep.n; i++)
		if (selector_matches(m->recompute.keep.at[i].sel, m->recompute.keep.at[i].glob, v->name))
			return true;
	return false;
}

bool can_stack(const struct pair *p, const struct value *v)
{
	return !p->fwd || (v->nd < MAX_DIMS && !has_dim(v, p->fwd->at.dim));
}

/* -- nodes -- */

static bool is_forward(const struct pair *p, const struct value *v)
{
	return v->home == p->f && (p->fwd || (v->def && v->def->phase == FORWARD));
}

static struct node *add_node(struct pair *p, struct value *v)
{
	if (!is_forward(p, v))
		return NULL;
	if (v->aux)
		return v->aux;
	for (uint32_t i = 0; v->def && i < v->def->nin; i++)
		add_node(p, v->def->in[i]);
	struct node *n = NEW(p->m->mem, struct node);
	n->v = v;
	n->no = (int)p->nodes.n;
	v->aux = n;
	PUSH(p->m->mem, &p->nodes, n);
	return n;
}

/* Is op one of those whose reads are resolved? */
static bool reads_here(const struct pair *p, const struct op *op)
{
	return p->fwd || (op->phase == BACKWARD && op->at.where == p->where);
}

static void find_reads(struct pair *p)
{
	for (struct op *op = p->b->first; op; op = op->next)
		for (uint32_t i = 0; reads_here(p, op) && i < op->nin; i++) {
			struct node *n = add_node(p, op->in[i]);

			if (n)
				n->read = true;
		}
	for (uint32_t i = 0; p->fwd && i < p->b->yields.n; i++) {
		struct node *n = add_node(p, p->b->yields.at[i]);

		if (n)
			n->read = true;
	}
}

static void forget(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->aux = NULL;
	for (struct op *op = block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
}

/* -- what backward calls a forward value -- */

static struct value *body_arg(struct pair *p, const struct value *like)
{
	struct builder b = { .m = p->m, .block = p->b };
	struct value *arg = block_arg(&b, p->b, like->dt, like->nd, like->d);

	arg->sh = like->sh;
	arg->placed = like->placed;
	arg->kind = like->kind;
	arg->span = like->span;
	arg->home = p->b;
	return arg;
}

struct value *add_over(struct pair *p, struct value *outside, const struct value *like)
{
	struct op *rev = p->rev;

	for (uint32_t i = (uint32_t)(rev->at.ncarry + rev->at.nwith); i < rev->nin; i++)
		if (rev->in[i] == outside)
			return p->b->args.at[i];
	op_add_in(p->m, rev, outside);
	return body_arg(p, like);
}

static struct value *add_with(struct pair *p, struct value *outside, const struct value *like)
{
	struct op *rev = p->rev;
	uint32_t at = (uint32_t)(rev->at.ncarry + rev->at.nwith);

	for (uint32_t i = (uint32_t)rev->at.ncarry; i < at; i++)
		if (rev->in[i] == outside)
			return p->b->args.at[i];
	op_add_in(p->m, rev, outside);
	struct value *arg = body_arg(p, like);
	for (uint32_t i = rev->nin - 1; i > at; i--) {
		rev->in[i] = rev->in[i - 1];
		p->b->args.at[i] = p->b->args.at[i - 1];
		p->b->args.at[i]->no = i;
	}
	rev->in[at] = outside;
	p->b->args.at[at] = arg;
	arg->no = at;
	SET(rev, nwith, rev->at.nwith + 1);
	return arg;
}

struct value *stack_over(struct pair *p, struct value *v, dimid rows)
{
	struct op *fwd = p->fwd;

	for (uint32_t i = (uint32_t)fwd->at.ncarry; i < fwd->nout; i++)
		if (p->f->yields.at[i] == v && has_dim(fwd->out[i], rows))
			return fwd->out[i];
	struct value *all = op_add_out(p->m, fwd, v);
	memmove(all->d + 1, all->d, v->nd * sizeof *v->d);
	all->d[0] = rows;
	all->nd = (uint8_t)(v->nd + 1);
	all->sh = v->sh;
	memmove(all->sh.on + 1, v->sh.on, v->nd * sizeof *v->sh.on);
	all->sh.on[0] = (struct axes){ 0 };
	if (pipe_axis(p->m) >= 0 && is_staged(p->m, fwd->at.dim))
		axes_push(&all->sh.on[0], pipe_axis(p->m));
	all->placed = v->placed;
	all->kind = v->kind;
	all->span = v->span;
	all->name = NULL;
	all->aux = NULL;
	PUSH(p->m->mem, &p->f->yields, v);
	return all;
}

static struct value *stack_of(struct pair *p, struct value *v)
{
	return stack_over(p, v, p->fwd->at.dim);
}

static struct value *arg_image(struct pair *p, struct value *v)
{
	uint32_t nc = (uint32_t)p->fwd->at.ncarry, with = nc + (uint32_t)p->fwd->at.nwith;

	if (v->no < nc)
		return add_over(p, stack_of(p, v), v);
	return v->no < with ? add_with(p, p->fwd->in[v->no], v) : add_over(p, p->fwd->in[v->no], v);
}

static const char *why_again(struct arena *mem, const char *why)
{
	const char *reason = why ? strstr(why, ": ") : NULL;

	if (!reason)
		return "again, as it was not kept";
	return arena_printf(mem, "%.*sagain, as it was not kept; %s", (int)(reason + 2 - why), why, reason + 2);
}

/* The copies are nameless: they are no values of the model. */
void mark_again(struct module *m, struct op *copy, struct op *op)
{
	copy->of = op;
	SET(copy, again, 1);
	if (op->why)
		copy->why = why_again(m->mem, op->why);
	for (uint32_t i = 0; i < copy->nout; i++) {
		copy->out[i]->name = NULL;
		copy->out[i]->aux = NULL;
	}
	if (!op->body)
		return;
	for (struct op *c = copy->body->first, *o = op->body->first; c && o; c = c->next, o = o->next)
		mark_again(m, c, o);
}

/* Operands first, so that copies stand in order. */
static void copy_op(struct pair *p, struct op *op, struct op *before)
{
	struct builder b = { p->m, p->b, before, BACKWARD, op->span, op, op->at.where };
	struct value **in = NEWN(p->m->mem, struct value *, op->nin ? op->nin : 1);
	void **aux = NEWN(p->m->mem, void *, op->nout);

	for (uint32_t i = 0; i < op->nin; i++)
		in[i] = image(p, op->in[i], before);
	for (uint32_t i = 0; i < op->nout; i++)
		aux[i] = op->out[i]->aux;
	struct op *copy = op_clone(&b, op, false);
	mark_again(p->m, copy, op);
	for (uint32_t i = 0; i < op->nin; i++)
		copy->in[i] = in[i];
	for (uint32_t i = 0; i < op->nout; i++) {
		struct node *n = op->out[i]->aux = aux[i];

		if (n && !n->image)
			n->image = copy->out[i];
	}
}

struct value *image(struct pair *p, struct value *v, struct op *before)
{
	struct node *n = node_of(p, v);

	if (!n)
		return v;
	if (n->image)
		return n->image;
	if (!p->fwd && (n->keep || n->source || v->def->code == OP_READ))
		n->image = v;
	else if (!v->def)
		n->image = arg_image(p, v);
	else if (n->keep || n->source)
		n->image = add_over(p, stack_of(p, v), v);
	else
		copy_op(p, v->def, before);
	return n->image;
}

static void resolve(struct pair *p)
{
	if (p->first)
		make_first(p);
	for (struct op *op = p->b->first; op; op = op->next)
		for (uint32_t i = 0; reads_here(p, op) && i < op->nin; i++)
			op->in[i] = image(p, op->in[i], op);
	for (uint32_t i = 0; p->fwd && i < p->b->yields.n; i++)
		p->b->yields.at[i] = image(p, p->b->yields.at[i], NULL);
}

/* -- pairs -- */

/* Slices of the stacks of fwd give way to what they are slices of. */
static void read_directly(struct pair *p)
{
	for (uint32_t i = (uint32_t)(p->rev->at.ncarry + p->rev->at.nwith); i < p->rev->nin; i++) {
		struct value *v = p->rev->in[i];

		if (v->def == p->fwd && v->no >= p->fwd->at.ncarry)
			replace_uses(p->b, p->b->args.at[i], p->f->yields.at[v->no]);
	}
}

static void keep_all(struct pair *p)
{
	for (uint32_t i = 0; i < p->nodes.n; i++)
		p->nodes.at[i]->keep = p->nodes.at[i]->read;
}

void find_nodes(struct pair *p)
{
	p->nodes.n = 0;
	forget(p->f);
	find_reads(p);
	set_sources(p);
}

static void do_pair(struct pair *p)
{
	find_nodes(p);
	if (p->apart || !choose_kept(p))
		keep_all(p);
	else if (p->first)
		keep_rest(p);
	resolve(p);
}

/* The repeat in f whose stacks rev reads; NULL: none. */
static struct op *forward_of(const struct block *f, const struct op *rev)
{
	if (rev->code != OP_REPEAT || rev->phase != BACKWARD)
		return NULL;
	for (uint32_t i = (uint32_t)(rev->at.ncarry + rev->at.nwith); i < rev->nin; i++) {
		struct op *def = rev->in[i]->def;

		if (def && def->code == OP_REPEAT && def->phase == FORWARD && def->home == f && def->at.dim == rev->at.dim &&
		    rev->in[i]->no >= def->at.ncarry)
			return def;
	}
	return NULL;
}

static struct pair open_pair(struct module *m, struct op *fwd, struct op *rev, bool apart)
{
	enum recompute_how how = m->recompute.how;
	struct pair p = { .m = m, .f = fwd->body, .b = rev->body, .fwd = fwd, .rev = rev, .apart = apart,
			  .dear = how == RECOMPUTE_FULL || (how == RECOMPUTE_SELECTIVE && m->recompute.keep.n) };

	read_directly(&p);
	for (struct op *op = p.b->first; op; op = op->next) {
		struct op *inner = forward_of(p.f, op);

		if (!inner)
			continue;
		struct pair x = open_pair(m, inner, op, apart);
		do_pair(&x);
	}
	return p;
}

typedef VEC(struct pair) pairs;

static pairs top_pairs(struct module *m)
{
	pairs all = { 0 };

	for (struct op *op = m->top.first; op; op = op->next) {
		struct op *fwd = forward_of(&m->top, op);

		if (fwd)
			PUSH(m->mem, &all, open_pair(m, fwd, op, fwd->at.where != op->at.where));
	}
	for (uint32_t i = 0; i < all.n; i++)
		for (uint32_t k = 0; k < all.n; k++)
			all.at[i].shared |= i != k && all.at[i].fwd == all.at[k].fwd;
	return all;
}

static void do_chosen(struct pair *p)
{
	find_nodes(p);
	if (p->apart)
		keep_all(p);
	for (uint32_t i = 0; i < p->kept.n; i++) {
		struct node *n = node_of(p, p->kept.at[i]);

		if (n)
			n->keep = true;
	}
	for (uint32_t i = 0; i < p->rest.n; i++) {
		struct node *n = node_of(p, p->rest.at[i]);

		if (n && p->first && is_gathered_param(n))
			n->keep = false;
		else if (n)
			n->rest = p->first > 0;
	}
	resolve(p);
}

static void do_top(struct module *m)
{
	int64_t places = 0;

	for (const struct op *op = m->top.first; op; op = op->next)
		if (op->phase == BACKWARD)
			places |= op->at.where ? op->at.where : 1ll << 62;
	for (; places; places &= places - 1) {
		int64_t one = places & -places;

		do_pair(&(struct pair){ .m = m, .f = &m->top, .b = &m->top, .where = one == 1ll << 62 ? 0 : one });
	}
}

/* -- afterwards -- */

static bool same_type(const struct value *a, const struct value *b)
{
	return a->dt == b->dt && a->nd == b->nd && !memcmp(a->d, b->d, a->nd * sizeof *a->d) &&
	       sharding_equal(&a->sh, &b->sh, a->nd);
}

/* Do the two hold the same, by the ops that they are made by? deep: how many to look at in a row. */
static bool same_value(const struct value *a, const struct value *b, int deep)
{
	const struct op *x = a->def, *y = b->def;
	struct op one, two;

	if (a == b)
		return true;
	if (!x || !y || !deep || x->code != y->code || x->body || x->nin != y->nin || x->phase != y->phase ||
	    a->no != b->no || !same_type(a, b))
		return false;
	one = *x;
	two = *y;
	one.has &= ~(1u << A_again);
	two.has &= ~(1u << A_again);
	if (!op_same_attrs(&one, &two))
		return false;
	for (uint32_t i = 0; i < x->nin; i++)
		if (!same_value(x->in[i], y->in[i], deep - 1))
			return false;
	return true;
}

/* What backward gathers in any case, such as a param that lies sharded, is not gathered a second time. */
static void merge_collectives(struct block *block)
{
	enum { DEEP = 4 };

	for (struct op *op = block->first; op; op = op->next) {
		if (op->body)
			merge_collectives(op->body);
		if (opinfo[op->code].class != C_COMM || op->phase != BACKWARD)
			continue;
		for (struct op *o = op->next, *next; o; o = next) {
			next = o->next;
			if (o->code != op->code || (!HAS(op, again) && !HAS(o, again)) ||
			    !same_value(op->out[0], o->out[0], DEEP))
				continue;
			replace_uses(block, o->out[0], op->out[0]);
			op_unlink(o);
		}
	}
}

int64_t rematerialize(struct module *m, int64_t stacks, struct front **fronts)
{
	bool choose = m->recompute.how == RECOMPUTE_AUTO;
	pairs all = top_pairs(m);

	if (choose) {
		for (uint32_t i = 0; i < all.n; i++)
			all.at[i].dear = true;
		stacks = choose_within(m, all.at, all.n, stacks, fronts);
	}
	for (uint32_t i = 0; i < all.n; i++) {
		if (!choose)
			all.at[i].first = first_apart(&all.at[i], m->recompute.first);
		choose ? do_chosen(&all.at[i]) : do_pair(&all.at[i]);
	}
	do_top(m);
	merge_collectives(&m->top);
	block_unmark(&m->top);
	drop_dead(m->mem, &m->top);
	return stacks;
}
