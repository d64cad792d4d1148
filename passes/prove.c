/* passes/prove.c - ptc verify: a plan is shown to be safe, from its text alone, whatever the number of ranks.
 *
 * What verify() says of types comes first: what is pending, over which axes, through loops, sums over
 * microbatches and into the buffers, which take nothing pending. Then that nothing is computed in vain: a term that
 * was left out of a sum is a value that nobody reads. Then memory, by a walk over one rank's program. */
#include <stdio.h>
#include <stdlib.h>

#include "ir/file.h"
#include "ir/text.h"
#include "passes/prove.h"

bool unsafe(struct prover *p, const struct op *op, const char *fmt, ...)
{
	char what[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	if (op->nout)
		return diag_error(p->d, op->span, "unsafe plan: %s of %s: %s", opinfo[op->code].name,
				  prove_name(p, op->out[0]), what);
	return diag_error(p->d, op->span, "unsafe plan: %s: %s", opinfo[op->code].name, what);
}

/* 0: as much as a runtime takes by itself. */
bool has_workspace(struct prover *p, const struct op *op, const char *what, int64_t bytes)
{
	int64_t all = p->m->workspace ? p->m->workspace : USUAL_WORKSPACE;

	if (bytes <= all)
		return true;
	p->proof->cramped = true;
	diag_error(p->d, op->span, "%s needs %lld bytes of workspace for %s, and the plan has %lld", opinfo[op->code].name, (long long)bytes, what,
		   (long long)all);
	diag_note(p->d, (struct span){ 0 }, "'workspace = %lld' in the plan, or in --set, gives it that", (long long)bytes);
	return false;
}

const char *prove_name(struct prover *p, const struct value *v)
{
	return v->name ? arena_printf(p->d->mem, "%%%u '%s'", v->id, v->name) : arena_printf(p->d->mem, "%%%u", v->id);
}

/* -- nothing in vain -- */

static void count_readers(struct prover *p, const struct block *block, uint32_t *readers)
{
	for (uint32_t i = 0; i < block->yields.n; i++)
		readers[block->yields.at[i]->id]++;
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nin; i++)
			readers[op->in[i]->id]++;
		if (op->body)
			count_readers(p, op->body, readers);
	}
}

static bool makes_gradients(const struct op *op)
{
	return op->phase == BACKWARD && !HAS(op, again);
}

/* Attention's gradients are made together: of what needs none as well. */
static bool is_any_read(const struct op *op, const uint32_t *readers)
{
	bool any = false;

	for (uint32_t i = 0; i < op->nout; i++)
		any |= readers[op->out[i]->id] != 0;
	return any;
}

/* What may have no reader: what a loop carries for itself alone, lse of an attention that has no gradient. */
static bool may_be_idle(const struct op *op, uint32_t i, const uint32_t *readers)
{
	if (op->code == OP_REPEAT)
		return i < op->at.ncarry && readers[op->body->args.at[i]->id] > (op->body->yields.at[i] == op->body->args.at[i]);
	return (op->code == OP_ATTENTION && i == 1) || (op->code == OP_ATTENTION_GRAD && is_any_read(op, readers));
}

static bool is_zero(const struct value *v)
{
	const struct op *def = v->def;

	while (def && def->code == OP_KERNEL) {
		v = def->body->yields.at[v->no];
		def = v->def;
	}
	return def && def->code == OP_CONST && def->at.value == 0;
}

/* A loop need not read what it carries: what the last iteration made is its result. Gradients add up, but for the
 * cotangent of what each iteration carries on detached: from zero, as nothing of the result leads back. */
static bool may_be_unused(const struct op *op, uint32_t i, const uint32_t *readers)
{
	return op->code == OP_REPEAT && i < op->at.ncarry && readers[op->out[i]->id] &&
	       (!makes_gradients(op) || (op->out[i]->kind != K_SUM && is_zero(op->in[i])));
}

static bool is_read(struct prover *p, const struct block *block, const uint32_t *readers)
{
	for (uint32_t i = 0; i < block->args.n && block->owner; i++)
		if (!readers[block->args.at[i]->id] && !may_be_unused(block->owner, i, readers))
			return unsafe(p, block->owner, "its operand %u is not used", i);
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			if (!readers[op->out[i]->id] && !may_be_idle(op, i, readers))
				return unsafe(p, op, "nothing reads %s", prove_name(p, op->out[i]));
		if (op->body && !is_read(p, op->body, readers))
			return false;
	}
	return true;
}

static bool prove_readers(struct prover *p)
{
	uint32_t *readers = NEWN(p->d->mem, uint32_t, p->m->next_id + 1);

	count_readers(p, &p->m->top, readers);
	return is_read(p, &p->m->top, readers);
}

/* -- loops run back where their gradients are made -- */

/* What an iteration leaves for the next makes an order: the model's in FORWARD and where BACKWARD does that
 * again, the other way where gradients are made. Once a step there may be both. */
static bool runs_right(struct prover *p, const struct op *r)
{
	bool back = makes_gradients(r);

	if (!r->at.ncarry || (r->phase != FORWARD && r->phase != BACKWARD) || back == (HAS(r, reverse) && r->at.reverse))
		return true;
	return unsafe(p, r, back ? "it runs the way of the loop whose gradients it makes" : "it runs from its last iteration to its first");
}

static bool prove_order(struct prover *p, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next)
		if (op->code == OP_REPEAT && (!runs_right(p, op) || !prove_order(p, op->body)))
			return false;
	return true;
}

/* -- the whole -- */

static int64_t count_comms(const struct block *block)
{
	int64_t n = 0;

	for (const struct op *op = block->first; op; op = op->next) {
		n += comm_sends(op->code);
		n += opinfo[op->code].class == C_ATTN && comm_axes(op) != 0;
		n += op->code == OP_REPEAT ? count_comms(op->body) : 0;
	}
	return n;
}

/* Regions, and with a pipeline where they lie, follow from the plan; a runtime makes the same. */
static bool lay_out(struct prover *p)
{
	struct regions *r = regions_of(p->d->mem, p->m);
	struct span at = { 0 };
	const char *refused = pipe_axis(p->m) < 0 ? NULL : layout_refused(p->d->mem, p->m, &at);

	p->r = r;
	if (refused)
		return diag_error(p->d, at, "unsafe plan: %s", refused);
	if (pipe_axis(p->m) < 0)
		return true;
	regions_measure(r, p->m);
	p->l = layouts_of(p->d->mem, p->m, r);
	p->proof->channels = p->l->channels.n;
	return true;
}

static bool prove(const struct module *m, bool whole, struct proof *proof, struct diag *d)
{
	struct prover p = { .m = m, .d = d, .proof = proof, .memory = { .mem = d->mem } };
	double start = seconds_now();

	*proof = (struct proof){ .stages = pipe_stages(m), .collectives = count_comms(&m->top) };
	if (m->form != PLANNED)
		return diag_error(d, (struct span){ 0 }, "the module is %s, not a plan", form_name[m->form]);
	p.held = NEWN(d->mem, struct held, m->next_id + 1);
	p.bufs = NEWN(d->mem, struct content, m->bufs.n + 1);
	PUSH(d->mem, &p.made, NULL); /* tag 0 is nothing */
	bool ok = verify(m, d) && (!whole || (prove_readers(&p) && prove_order(&p, &m->top))) && lay_out(&p) &&
		  prove_places(&p) && prove_ops(&p, &m->top) && prove_channels(&p) && prove_steps(&p);

	proof->seconds = seconds_now() - start;
	return ok;
}

bool prove_plan(const struct module *m, struct proof *proof, struct diag *d)
{
	return prove(m, true, proof, d);
}

bool prove_safe(const struct module *m, struct proof *proof, struct diag *d)
{
	return prove(m, false, proof, d);
}

/* Test only: PTC_TEST_SPOIL="OLD NEW" puts NEW where the text has OLD first, as a compiler that is wrong would. */
static const char *spoiled(struct arena *mem, const char *text, size_t *n)
{
	const char *s = getenv("PTC_TEST_SPOIL"), *new = s ? strchr(s, ' ') : NULL;
	const char *old = new ? arena_strndup(mem, s, (size_t)(new - s)) : NULL, *at = old ? strstr(text, old) : NULL;

	if (!at)
		return text;
	text = arena_printf(mem, "%.*s%s%s", (int)(at - text), text, new + 1, at + strlen(old));
	*n = strlen(text);
	return text;
}

static bool prove_text(struct module *m, struct proof *proof, struct diag *d)
{
	size_t n, again;
	const char *text = spoiled(m->mem, module_print(m, m->mem, &n), &n);
	struct module *back = module_parse(m->mem, "the plan", text, n, d);

	if (!back)
		return false;
	const char *two = module_print(back, m->mem, &again);

	if (n != again || memcmp(text, two, n))
		return diag_error(d, (struct span){ 0 }, "the text of the plan changes when it is read back");
	return prove_safe(back, proof, d);
}

void own_fault(struct diag *d)
{
	diag_note(d, (struct span){ 0 }, "the model is not at fault, ptc is: it has made a plan that is not sound, and nothing is written");
	diag_note(d, (struct span){ 0 }, "please report the model, the command line, the lines above and what ptc --version says");
}

bool prove_made(struct module *m, struct proof *proof, struct diag *d)
{
	double start = seconds_now();

	*proof = (struct proof){ 0 };
	bool ok = prove_text(m, proof, d);

	proof->seconds = seconds_now() - start;
	if (!ok && !proof->cramped)
		own_fault(d);
	return ok;
}
