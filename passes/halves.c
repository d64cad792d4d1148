/* passes/halves.c - backward in two halves, for schedules that have I and W in place of B.
 *
 * Requires form PARTITIONED and a place for every op (pipeline). I is what the chunk before waits for: the
 * cotangents that travel, and all that they are made of. W is the rest, the gradients of params: {late}.
 *
 *   at the top  an op is I if I reads one of its results, or an op of another place does; else W
 *   a reverse   of the pipeline becomes two. I: what carried values and results that I reads are made of.
 *   repeat      W: stacked gradients and {local} accumulators. Of what I makes, W reads a stack of its own,
 *               the cut; no iteration of W waits for another but to add up
 *
 * What W needs and can make from what forward kept, pointwise and of hardly more bytes than the cut would have,
 * it makes again. Leaves are made in each half that reads them. */
#include "passes/passes.h"

enum { BY_I = 1, BY_W = 2 }; /* value.mark: which halves read it */
enum { IN_I = 1, IN_W = 2 }; /* op.mark: which halves it runs in */

static bool is_leaf(const struct op *op)
{
	return opinfo[op->code].class == C_LEAF;
}

static bool is_pointwise(const struct op *op)
{
	return op->nout == 1 && (opinfo[op->code].class == C_MAP || op->code == OP_RENAME);
}

/* -- the body of a repeat: which half an op is in -- */

/* Does I make result k? */
static bool made_by_i(const struct op *r, uint32_t k)
{
	return (k < r->at.ncarry && !repeat_local(r, k)) || (r->out[k]->mark & BY_I);
}

/* An argument that all iterations have, or one of its rows. */
static bool is_given(const struct op *r, const struct value *v)
{
	return !v->def && v->no >= r->at.ncarry;
}

static void mark_all(struct value *const *v, uint32_t n, int64_t by)
{
	for (uint32_t i = 0; i < n; i++)
		v[i]->mark |= by;
}

static bool reads_marked(const struct op *op, int64_t by)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (op->out[i]->mark & by)
			return true;
	return false;
}

static void clear_body(const struct op *r)
{
	for (uint32_t i = 0; i < r->body->args.n; i++)
		r->body->args.at[i]->mark = 0;
	for (struct op *op = r->body->first; op; op = op->next) {
		op->mark = 0;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
	}
}

static void find_i(const struct op *r)
{
	for (uint32_t k = 0; k < r->nout; k++)
		r->body->yields.at[k]->mark |= made_by_i(r, k) ? BY_I : BY_W;
	for (struct op *op = r->body->last; op; op = op->prev)
		if (reads_marked(op, BY_I)) {
			op->mark = IN_I;
			mark_all(op->in, op->nin, BY_I);
		}
}

/* What W would need to make a value again. */
struct remake {
	const struct op *r;
	const struct module *m;
	VEC(const struct value *) seen;
	int64_t bytes; /* of what W would read for that alone */
};

static bool is_seen(const struct remake *x, const struct value *v)
{
	for (uint32_t i = 0; i < x->seen.n; i++)
		if (x->seen.at[i] == v)
			return true;
	return false;
}

/* Params are there all the time. */
static bool is_held(const struct op *r, const struct value *arg)
{
	return r->in[arg->no]->def->code == OP_READ && arg->kind == K_PARAM;
}

static bool can_remake(struct remake *x, const struct value *v)
{
	if (is_seen(x, v))
		return true;
	PUSH(x->m->mem, &x->seen, v);
	if (!v->def) {
		x->bytes += (v->mark & BY_W) || is_held(x->r, v) ? 0 : local_bytes(x->m, v);
		return is_given(x->r, v);
	}
	if (!is_leaf(v->def) && !is_pointwise(v->def))
		return false;
	for (uint32_t i = 0; i < v->def->nin; i++)
		if (!can_remake(x, v->def->in[i]))
			return false;
	return true;
}

static bool pays(const struct module *m, const struct op *r, const struct op *op)
{
	struct remake x = { .r = r, .m = m };

	if (is_leaf(op))
		return true;
	/* statistics of rows beside the rows themselves cost less than to write what is made of both */
	return is_pointwise(op) && can_remake(&x, op->out[0]) && 8 * x.bytes <= 9 * local_bytes(m, op->out[0]);
}

/* From the end, so that all readers in W are known. */
static void find_w(const struct module *m, const struct op *r)
{
	for (struct op *op = r->body->last; op; op = op->prev) {
		bool wanted = reads_marked(op, BY_W);

		if (op->mark == 0 || (wanted && pays(m, r, op)))
			op->mark |= IN_W;
		if (op->mark & IN_W)
			mark_all(op->in, op->nin, BY_W);
	}
}

static void mark_body(const struct module *m, const struct op *r)
{
	clear_body(r);
	find_i(r);
	find_w(m, r);
}

/* -- the top: which half an op is in -- */

static bool is_staged_back(const struct module *m, const struct op *op)
{
	return op->code == OP_REPEAT && op->phase == BACKWARD && is_staged(m, op->at.dim);
}

/* What another place reads travels, with I. */
static void mark_travel(const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *def = op->in[i]->def;

		if (def->phase == BACKWARD && op->phase == BACKWARD && def->at.where != op->at.where)
			op->in[i]->mark |= BY_I;
	}
}

static void mark_repeat(const struct module *m, struct op *r)
{
	mark_body(m, r);
	for (uint32_t i = 0; i < r->nin; i++)
		r->in[i]->mark |= i >= r->at.ncarry ? r->body->args.at[i]->mark : made_by_i(r, i) ? BY_I : BY_W;
	for (uint32_t k = 0; k < r->nout; k++)
		r->mark |= made_by_i(r, k) ? IN_I : IN_W;
}

static void mark_top(struct module *m)
{
	for (struct op *op = m->top.first; op; op = op->next) {
		op->mark = 0;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
	}
	for (struct op *op = m->top.last; op; op = op->prev) {
		if (op->phase != BACKWARD)
			continue;
		mark_travel(op);
		if (is_staged_back(m, op)) {
			mark_repeat(m, op);
			continue;
		}
		bool i = reads_marked(op, BY_I);

		op->mark = (i ? IN_I : 0) | (!i || (is_leaf(op) && reads_marked(op, BY_W)) ? IN_W : 0);
		mark_all(op->in, op->nin, (op->mark & IN_I ? BY_I : 0) | (op->mark & IN_W ? BY_W : 0));
	}
}

/* -- two repeats of one -- */

struct splitting {
	struct module *m;
	struct diag *d;
	struct op *r, *half[2]; /* the repeat; I, W */
	struct value **map[2];  /* by id of a value of r's body: what stands for it in the half */
};

static struct op *new_half(struct splitting *s, bool late)
{
	struct op *r = s->r;
	struct builder b = { s->m, r->home, r, r->phase, r->span, r->of, r->at.where };
	struct op *new = op_new(&b, OP_REPEAT, 0, NULL, 0);

	SET(new, dim, r->at.dim);
	SET(new, ncarry, 0);
	SET(new, nwith, 0);
	if (late)
		SET(new, late, 1);
	if (HAS(r, reverse))
		SET(new, reverse, r->at.reverse);
	new->body = block_new(s->m, new);
	return new;
}

/* A half reads `from`; what stands for it in the body. */
static struct value *new_arg(struct splitting *s, struct op *half, struct value *from, const struct value *like)
{
	struct builder b = { .m = s->m, .block = half->body, .phase = half->phase, .span = like->span };
	struct value *v = block_arg(&b, half->body, like->dt, like->nd, like->d);

	op_add_in(s->m, half, from);
	v->sh = like->sh;
	v->kind = like->kind;
	v->name = like->name;
	return v;
}

/* Of the arguments of r those that the half reads; a carried value belongs to one half. */
static void give_args(struct splitting *s, bool late)
{
	struct op *r = s->r, *half = s->half[late];
	int64_t nc = r->at.ncarry;

	for (uint32_t i = 0; i < r->nin; i++) {
		const struct value *a = r->body->args.at[i];
		bool mine = i < nc ? made_by_i(r, i) != late : (a->mark & (late ? BY_W : BY_I)) != 0;

		if (!mine)
			continue;
		s->map[late][a->id] = new_arg(s, half, r->in[i], a);
		half->at.ncarry += i < nc;
		half->at.nwith += i >= nc && i < nc + r->at.nwith;
	}
}

/* A stack of what I makes, in I. */
static struct value *cut_stack(struct splitting *s, struct value *y)
{
	struct value like = *y;

	like.nd = 0;
	like.d[like.nd] = s->r->at.dim;
	like.sh.on[like.nd++] = (struct axes){ .n = 1, .a = { (uint8_t)pipe_axis(s->m) } };
	for (int k = 0; k < y->nd; k++) {
		like.d[like.nd] = y->d[k];
		like.sh.on[like.nd++] = y->sh.on[k];
	}
	PUSH(s->m->mem, &s->half[0]->body->yields, y);
	return op_add_out(s->m, s->half[0], &like);
}

/* What stands for v in a half. W gets a row of a stack of what I alone makes. */
static struct value *standing_for(struct splitting *s, const struct value *v, bool late)
{
	struct value **at = &s->map[late][v->id];

	if (!*at) {
		struct value *y = s->map[0][v->id];

		if (y->nd == MAX_DIMS) {
			diag_error(s->d, s->r->span, "a value of %d dims can't be kept for each iteration", y->nd);
			return NULL;
		}
		*at = new_arg(s, s->half[1], cut_stack(s, y), v);
	}
	return *at;
}

static bool give_ops(struct splitting *s, bool late)
{
	struct builder b = { .m = s->m, .block = s->half[late]->body, .phase = s->r->phase };

	for (const struct op *op = s->r->body->first; op; op = op->next) {
		if (!(op->mark & (late ? IN_W : IN_I)))
			continue;
		struct op *new = op_clone(&b, op, false);

		new->of = op->of;
		for (uint32_t k = 0; k < op->nin; k++)
			if (!(new->in[k] = standing_for(s, op->in[k], late)))
				return false;
		for (uint32_t k = 0; k < op->nout; k++)
			s->map[late][op->out[k]->id] = new->out[k];
	}
	return true;
}

static bool give_results(struct splitting *s, bool late)
{
	struct op *r = s->r, *half = s->half[late];

	for (uint32_t k = 0; k < r->nout; k++) {
		if (made_by_i(r, k) == late)
			continue;
		struct value *y = standing_for(s, r->body->yields.at[k], late);
		struct value *new = y ? op_add_out(s->m, half, r->out[k]) : NULL;

		if (!y)
			return false;
		PUSH(s->m->mem, &half->body->yields, y);
		new->name = r->out[k]->name;
		new->mark = r->out[k]->mark;
		if (late && repeat_local(r, k))
			SET(half, local, bits_with(s->m->mem, half->at.local, new->no));
		if (repeat_adds(r, k))
			SET(half, acc, bits_with(s->m->mem, half->at.acc, new->no - half->at.ncarry));
		replace_uses(r->home, r->out[k], new);
	}
	return true;
}

static bool split_repeat(struct module *m, struct diag *d, struct op *r)
{
	struct splitting s = { .m = m, .d = d, .r = r };

	for (int late = 0; late < 2; late++)
		s.map[late] = NEWN(m->mem, struct value *, m->next_id + 1);
	for (int late = 0; late < 2; late++) {
		s.half[late] = new_half(&s, late);
		give_args(&s, late);
		if (!give_ops(&s, late) || !give_results(&s, late))
			return false;
	}
	op_unlink(r);
	return true;
}

/* -- the top -- */

static void copy_leaf(struct module *m, struct op *op)
{
	struct builder b = { m, op->home, op->next, op->phase, op->span, op->of, 0 };
	struct op *copy = op_clone(&b, op, false);

	SET(copy, late, 1);
	for (struct op *o = copy->next; o; o = o->next)
		for (uint32_t i = 0; o->mark == IN_W && o->at.where == op->at.where && i < o->nin; i++)
			if (o->in[i] == op->out[0])
				o->in[i] = copy->out[0];
}

bool pass_halves(struct module *m, struct diag *d)
{
	struct schedule s = pipe_schedule(m);

	if (pipe_axis(m) < 0 || !schedule_splits(&s))
		return true;
	mark_top(m);
	for (struct op *op = m->top.first, *next; op; op = next) {
		next = op->next;
		if (op->mark == IN_W)
			SET(op, late, 1);
		else if (op->mark == (IN_I | IN_W) && is_leaf(op))
			copy_leaf(m, op);
		else if (op->mark == (IN_I | IN_W) && !split_repeat(m, d, op))
			return false;
	}
	return true;
}
