/* passes/early.c - what a loop sums of inputs over the batch, moved to a loop of the prologue.
 *
 * With microbatches such a sum (a count of labels, the mean of an input) is that of all of them and
 * may feed anything: its kind is input. A repeat whose body has some gets a twin in the prologue,
 * of what these sums need and no more, that stacks them; the old one reads them as slices. */
#include "passes/early.h"

static struct value *by_aux(void *me, struct value *v, enum phase phase)
{
	(void)me;
	(void)phase;
	return v->aux;
}

static bool any_known(const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (is_known(op->out[i]))
			return true;
	return false;
}

static void copy_args(struct builder *in, struct op *new, struct op *old)
{
	for (uint32_t i = 0; i < old->body->args.n; i++) {
		struct value *arg = old->body->args.at[i], *copy;

		arg->aux = NULL;
		if (!is_known(arg))
			continue;
		copy = block_arg(in, new->body, arg->dt, arg->nd, arg->d);
		copy->kind = arg->kind;
		copy->name = arg->name;
		copy->span = arg->span;
		arg->aux = copy;
	}
}

static void copy_body(const struct again *a, struct op *new, struct op *old)
{
	struct again in = { .b = a->b, .name = by_aux, .nested = a->nested };

	new->body = block_new(a->b.m, new);
	in.b.block = new->body;
	in.b.before = NULL;
	copy_args(&in.b, new, old);
	for (struct op *op = old->body->first; op; op = op->next) {
		struct op *copy;

		if (!any_known(op) && !(op->body && a->nested))
			continue;
		copy = known_again(&in, op);
		op->aux = copy;
		for (uint32_t i = 0, k = 0; i < op->nout; i++)
			op->out[i]->aux = is_known(op->out[i]) ? copy->out[k++] : NULL;
	}
	for (uint32_t i = 0; i < old->nout; i++)
		if (is_known(old->out[i]))
			PUSH(a->b.m->mem, &new->body->yields, old->body->yields.at[i]->aux);
}

struct op *known_again(const struct again *a, struct op *op)
{
	struct module *m = a->b.m;
	struct value **in = NEWN(m->mem, struct value *, op->nin ? op->nin : 1);
	uint32_t n = 0, nout = 0, ncarry = 0, nwith = 0;
	struct again at = *a;

	for (uint32_t i = 0; i < op->nin; i++) {
		if (op->body && !is_known(op->body->args.at[i]))
			continue;
		in[n++] = a->name(a->me, op->in[i], a->b.phase);
		ncarry += op->body && i < op->at.ncarry;
		nwith += op->body && i >= op->at.ncarry && i < op->at.ncarry + op->at.nwith;
	}
	for (uint32_t i = 0; i < op->nout; i++)
		nout += is_known(op->out[i]);
	at.b.span = op->span;
	at.b.of = op->of;
	struct op *new = op_new(&at.b, op->code, n, in, nout);
	new->has = op->has & ~(1u << A_acc);
	new->at = op->at;
	new->at.acc = (struct bits){ 0 };
	for (uint32_t i = 0, k = 0; i < op->nout; i++) {
		const struct value *v = op->out[i];
		struct value *out;

		if (!is_known(v))
			continue;
		out = op_type(&at.b, new, k++, v->dt, v->nd, v->d);
		out->kind = v->kind;
		out->name = v->name;
		out->span = v->span;
	}
	if (op->body) {
		new->at.ncarry = ncarry;
		new->at.nwith = nwith;
		copy_body(&at, new, op);
	}
	return new;
}

/* -- what has to leave a loop -- */

bool across_batch(const struct module *m, const struct op *op)
{
	bool has = false, kept = op->nout > 0;

	if (m->batch == NODIM || op->body)
		return false;
	for (uint32_t i = 0; i < op->nin; i++)
		has |= has_dim(op->in[i], m->batch);
	for (uint32_t i = 0; i < op->nout; i++)
		kept &= has_dim(op->out[i], m->batch);
	if (has && op->code == OP_LOOKUP)
		for (int i = 0; i < op->at.dims.n; i++)
			kept &= op->at.dims.d[i] != m->batch;
	return has && op->nout && (!kept || op_closed_dim(op, m->batch));
}

typedef VEC(struct value *) values;

static void find_early(const struct module *m, const struct block *block, values *list)
{
	for (struct op *op = block->first; op; op = op->next) {
		if (op->body)
			find_early(m, op->body, list);
		else if (across_batch(m, op))
			for (uint32_t i = 0; i < op->nout; i++)
				if (is_known(op->out[i]))
					PUSH(m->mem, list, op->out[i]);
	}
}

/* v, of the body of twin, as a stacked result of it. */
static struct value *add_stack(struct module *m, struct op *twin, struct value *v)
{
	struct value *out = op_add_out(m, twin, v);

	if (v->nd == MAX_DIMS)
		die("a value of %d dims can't be stacked", MAX_DIMS);
	memmove(out->d + 1, out->d, v->nd * sizeof *v->d);
	out->d[0] = twin->at.dim;
	out->nd++;
	PUSH(m->mem, &twin->body->yields, v);
	return out;
}

/* An iteration of `outside` as an argument of loop's body. */
static struct value *add_slice(struct module *m, struct op *loop, struct value *outside)
{
	struct builder b = { .m = m, .block = loop->body, .span = outside->span };
	struct value *arg = block_arg(&b, loop->body, outside->dt, outside->nd - 1, outside->d + 1);

	arg->kind = outside->kind;
	op_add_in(m, loop, outside);
	return arg;
}

static struct value *from_twin(struct module *m, struct op *top, struct op *loop, struct value *v)
{
	struct value *stack = add_stack(m, loop->aux, v);

	if (loop != top)
		stack = from_twin(m, top, loop->home->owner, stack);
	return add_slice(m, loop, stack);
}

static void drop_empty(struct op *twin)
{
	for (struct op *op = twin->body->first, *next; op; op = next) {
		next = op->next;
		if (!op->body)
			continue;
		drop_empty(op);
		if (!op->nout)
			op_unlink(op);
	}
}

static struct value *same(void *me, struct value *v, enum phase phase)
{
	(void)me;
	(void)phase;
	return v;
}

static void hoist_loop(struct module *m, struct op *op)
{
	values early = { 0 };

	find_early(m, op->body, &early);
	if (!early.n)
		return;
	struct again a = { .b = { .m = m, .block = &m->top, .before = op, .phase = PROLOGUE }, .name = same,
			   .nested = true };
	op->aux = known_again(&a, op);
	for (uint32_t i = 0; i < early.n; i++) {
		struct value *v = early.at[i];

		replace_uses(v->home, v, from_twin(m, op, v->home->owner, v->aux));
		op_unlink(v->def);
	}
	drop_empty(op->aux);
}

static bool once(const struct module *m, const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (!is_known(op->out[i]) || (op->out[i]->kind == K_INPUT && has_dim(op->out[i], m->batch)))
			return false;
	return op->nout > 0;
}

void hoist_early(struct module *m)
{
	if (m->batch == NODIM)
		return;
	for (struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_REPEAT && (op->phase == FORWARD || op->phase == BACKWARD) && !once(m, op))
			hoist_loop(m, op);
}
