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

void set_info(struct part *p, struct value *v, enum how how, struct value *from)
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

void put_result(struct part *p, struct value *old, struct value *val, const struct sharding *sh)
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

/* What each stage has added up in the prologue is one sum from here on, and known as nothing else: who reads it may run
 * on one stage alone, or in forward and backward, where stages don't come together. */
static void join_stages(struct part *p, struct value *v)
{
	struct info *i = info_of(p, v);
	struct sharding sh = i->ver.at[0].sh;

	sh.sum &= ~(1u << pipe_axis(p->m));
	struct value *sum = get_version(p, v, &sh);
	i->ver.n = 0;
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
	new->at.acc = (struct bits){ 0 };
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

		if (repeat_local(op, i)) /* each stage has its own */
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
	drop_dead(m->mem, &m->top);
	m->form = PARTITIONED;
	return !p.failed;
}
