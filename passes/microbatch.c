/* passes/microbatch.c - cuts the step into its four sections.
 *
 * Requires the whole step as ops (after optimizer). Afterwards every op stands in the section it
 * runs in, sections are in order, and what the epilogue reads of forward and backward has gone
 * through `accumulate` (or a stacked result with its acc bit).
 *
 *   free        leaves and maps of leaves: made again in each section that reads them
 *   once        depend on params or whole inputs only: prologue, or epilogue if only that reads them
 *   fn          functions of sums that only the epilogue reads: epilogue; those in a loop in a
 *               loop there (late.c)
 *   sinks       reports and writes of states: epilogue
 *   the rest    stays in forward or backward
 *
 * With more than one microbatch the mesh gains the time axis.
 */
#include "passes/microbatch.h"

#include "passes/early.h"
#include "passes/fixed_order.h"
#include "passes/kinds.h"
#include "passes/late.h"

bool is_free(const struct value *v)
{
	const struct op *op = v->def;

	if (!op || (op->code != OP_READ && opinfo[op->code].class != C_LEAF &&
		    opinfo[op->code].class != C_MAP && opinfo[op->code].class != C_VIEW))
		return false;
	if (op->code == OP_READ)
		return v->kind == K_INPUT;
	for (uint32_t i = 0; i < op->nin; i++)
		if (!is_free(op->in[i]))
			return false;
	return true;
}

/* What this pass knows of an old value: its copy in each section, its accumulated form. */
struct seat {
	struct value *in[NPHASE];
	struct value *whole;
	bool epilogue_only;
};

struct cut {
	struct module *m;
	struct block section[NPHASE];
	struct block late[NPHASE]; /* accumulate ops: the end of forward and backward */
};

static struct seat *seat_of(struct cut *c, struct value *v)
{
	if (!v->aux)
		v->aux = NEW(c->m->mem, struct seat);
	return v->aux;
}

static void clear_aux(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->aux = NULL;
	for (struct op *op = block->first; op; op = op->next) {
		op->mark = 0;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
		if (op->body)
			clear_aux(op->body);
	}
}

static void set_phase(struct op *op, enum phase phase)
{
	op->phase = phase;
	if (op->body)
		for (struct op *o = op->body->first; o; o = o->next)
			set_phase(o, phase);
}

static bool all_results(const struct op *op, bool (*test)(const struct cut *, const struct value *),
			const struct cut *c)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (!test(c, op->out[i]))
			return false;
	return op->nout > 0;
}

static bool value_once(const struct cut *c, const struct value *v)
{
	dimid batch = c->m->batch;

	if (v->kind == K_CONST || v->kind == K_PARAM)
		return true;
	if (v->kind != K_INPUT)
		return false;
	return batch == NODIM || !has_dim(v, batch) || across_batch(c->m, v->def);
}

enum { USED_EARLY = 1, USED_LATE = 2 };

static bool has_fn(const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (op->out[i]->kind == K_FN)
			return true;
	return false;
}

/* Where op runs, given who reads it (op.mark). */
static enum phase section_of(struct cut *c, const struct op *op)
{
	if (op->phase == PROLOGUE)
		return PROLOGUE;
	if (op->code == OP_REPORT || op->code == OP_WRITE || op->phase == EPILOGUE)
		return EPILOGUE;
	if (all_results(op, value_once, c))
		return op->mark & USED_EARLY ? PROLOGUE : EPILOGUE;
	if (has_fn(op) && !op->body && op->mark == USED_LATE)
		return EPILOGUE;
	return op->phase;
}

/* From the last op backwards, so that all readers of an op are known before it. */
static void assign_sections(struct cut *c)
{
	for (struct op *op = c->m->top.last; op; op = op->prev) {
		bool again = op->nout && is_free(op->out[0]);
		enum phase phase = section_of(c, op);
		int64_t who = again ? op->mark : phase == EPILOGUE ? USED_LATE : USED_EARLY;

		if (!again)
			set_phase(op, phase);
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->def)
				op->in[i]->def->mark |= who;
	}
}

static struct value *want(struct cut *c, struct value *v, enum phase phase);

static struct builder at_end(struct cut *c, enum phase phase)
{
	return (struct builder){ .m = c->m, .block = &c->section[phase], .phase = phase };
}

static struct value *want_again(void *me, struct value *v, enum phase phase)
{
	return want(me, v, phase);
}

/* The op again, in another section. */
static struct value *remake(struct cut *c, struct value *v, enum phase phase)
{
	struct op *op = v->def;
	struct again a = { .b = at_end(c, phase), .name = want_again, .me = c };
	struct op *copy = known_again(&a, op);

	for (uint32_t i = 0, k = 0; i < op->nout; i++)
		if (is_known(op->out[i]))
			seat_of(c, op->out[i])->in[phase] = copy->out[k++];
	return seat_of(c, v)->in[phase];
}

/* Is every reader of this stacked result in the epilogue? Decided value by value. */
static bool read_by_epilogue_only(const struct cut *c, const struct value *v)
{
	for (const struct op *op = c->m->top.first; op; op = op->next)
		if (op->phase != EPILOGUE)
			for (uint32_t i = 0; i < op->nin; i++)
				if (op->in[i] == v)
					return false;
	return true;
}

static struct value *accumulated(struct cut *c, struct value *v)
{
	struct seat *s = seat_of(c, v);
	struct op *def = v->def;

	if (s->whole)
		return s->whole;
	if (def->code == OP_REPEAT && s->epilogue_only && v->no >= def->at.ncarry &&
	    (c->m->micro <= 1 || v->kind == K_SUM || v->kind == K_INNER)) {
		SET(def, acc, bits_with(c->m->mem, def->at.acc, v->no - def->at.ncarry));
		return s->whole = v;
	}
	struct builder b = { .m = c->m, .block = &c->late[def->phase], .phase = def->phase,
			     .span = v->span, .of = def->of };
	struct op *op = op_new(&b, OP_ACCUMULATE, 1, &v, 1);
	s->whole = op_type(&b, op, 0, v->dt, v->nd, v->d);
	s->whole->kind = v->kind;
	s->whole->name = v->name;
	s->whole->span = v->span;
	if (v->name && strncmp(v->name, "d:", 2) == 0)
		v->name = NULL;
	return s->whole;
}

/* The form of v that an op in this section reads. */
static struct value *want(struct cut *c, struct value *v, enum phase phase)
{
	struct seat *s = seat_of(c, v);
	enum phase made = v->def->phase;

	if (s->in[phase])
		return s->in[phase];
	if (is_free(v) || v->def->code == OP_READ)
		return remake(c, v, phase);
	if (made > phase)
		return is_known(v) ? remake(c, v, phase) : v;
	if (phase == EPILOGUE && (made == FORWARD || made == BACKWARD))
		return is_known(v) ? remake(c, v, phase) : accumulated(c, v);
	return v;
}

static void append(struct block *to, struct op *op)
{
	op->home = to;
	op->prev = to->last;
	op->next = NULL;
	if (to->last)
		to->last->next = op;
	else
		to->first = op;
	to->last = op;
}

static void join(struct block *to, struct block *from)
{
	for (struct op *op = from->first, *next; op; op = next) {
		next = op->next;
		append(to, op);
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->home = to;
	}
}

/* Stacked results that may be accumulated where they lie. */
static void find_stacks(struct cut *c)
{
	for (struct op *op = c->m->top.first; op; op = op->next)
		for (uint32_t i = 0; op->code == OP_REPEAT && i < op->nout; i++)
			if (i >= (uint64_t)op->at.ncarry)
				seat_of(c, op->out[i])->epilogue_only = read_by_epilogue_only(c, op->out[i]);
}

static void cut_up(struct cut *c)
{
	struct op *first = c->m->top.first;

	for (struct op *op = first, *next; op; op = next) {
		next = op->next;
		if (op->nout && (is_free(op->out[0]) || op->code == OP_READ))
			continue;
		for (uint32_t i = 0; i < op->nin; i++)
			op->in[i] = want(c, op->in[i], op->phase);
		append(&c->section[op->phase], op);
		for (uint32_t i = 0; i < op->nout; i++)
			seat_of(c, op->out[i])->in[op->phase] = op->out[i];
	}
	c->m->top.first = c->m->top.last = NULL;
	for (int p = 0; p < NPHASE; p++) {
		join(&c->m->top, &c->section[p]);
		join(&c->m->top, &c->late[p]);
	}
}

static void add_time_axis(struct module *m)
{
	if (m->micro <= 1 || time_axis(m) >= 0)
		return;
	struct axis a = { find_axis(m, "micro") < 0 ? "micro" : "micro'", (int)m->micro, -1, true };
	PUSH(m->mem, &m->axes, a);
}

/* What outlives the step can't come in microbatches. */
static bool check_buffers(const struct module *m, struct diag *d)
{
	for (uint32_t i = 0; i < m->bufs.n && m->micro > 1; i++) {
		const struct buffer *b = m->bufs.at[i];

		for (int k = 0; k < b->nd && (b->role == B_PARAM || b->role == B_STATE); k++)
			if (b->d[k] == m->batch)
				return diag_error(d, b->at, "'microbatches = %lld' splits '%s', but the %s '%s' has it",
						  (long long)m->micro, m->dims.at[m->batch].name, role_name[b->role], b->name);
	}
	return true;
}

static bool know_kinds(struct module *m, struct diag *d)
{
	if (!set_kinds(m, d))
		return false;
	if (!m->deterministic)
		return true;
	order_sums(m);
	return set_kinds(m, d);
}

bool pass_microbatch(struct module *m, struct diag *d)
{
	struct cut *c = NEW(m->mem, struct cut);

	c->m = m;
	if (!know_kinds(m, d) || !check_buffers(m, d) || (m->micro > 1 && !split_late(m, d)))
		return false;
	if (m->micro > 1)
		hoist_early(m);
	add_time_axis(m);
	clear_aux(&m->top);
	assign_sections(c);
	find_stacks(c);
	cut_up(c);
	/* What forward and backward each made of params is one in the prologue. A loop made again in another section may
	 * be read there alone. */
	join_equal_ops(m);
	return true;
}
