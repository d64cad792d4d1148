/* Which params a loss has a gradient for: those that it reaches through floats alone. A param
 * that it reaches only by way of positions, tests or integers is warned about. */
#include "frontend/lower.h"

enum { BY_GRADIENT = 1, AT_ALL = 2 };

static void clear(struct block *b)
{
	for (uint32_t i = 0; i < b->args.n; i++) {
		b->args.at[i]->mark = 0;
		b->args.at[i]->aux = NULL;
	}
	for (struct op *op = b->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++) {
			op->out[i]->mark = 0;
			op->out[i]->aux = NULL;
		}
		if (op->body)
			clear(op->body);
	}
}

/* aux: the op that lets no gradient through. True if this is news. */
static bool give(struct value *to, int64_t mark, void *block)
{
	bool news = (to->mark | mark) != to->mark;

	if (!to->mark)
		to->aux = block;
	to->mark |= mark;
	return news;
}

static bool give_as(struct value *to, const struct value *from)
{
	return from->mark && give(to, from->mark, from->aux);
}

/* Where a float ends that a gradient would have to go on with. */
static bool stops(const struct op *op, const struct value *in, const struct value *out)
{
	return is_float(in->dt) && (!is_float(out->dt) || op->code == OP_DETACH || op->code == OP_SIGN);
}

static bool visit(struct block *b);

static bool visit_repeat(struct op *op)
{
	struct block *b = op->body;
	bool news = false, again = true;

	for (uint32_t i = 0; i < op->nout; i++)
		news |= give_as(b->yields.at[i], op->out[i]);
	while (again) {
		again = visit(b);
		for (uint32_t i = 0; i < (uint32_t)op->at.ncarry; i++)
			again |= give_as(b->yields.at[i], b->args.at[i]);
		news |= again;
	}
	for (uint32_t i = 0; i < op->nin; i++)
		news |= give_as(op->in[i], b->args.at[i]);
	return news;
}

static bool visit(struct block *b)
{
	bool news = false;

	for (struct op *op = b->last; op; op = op->prev) {
		if (op->code == OP_REPEAT) {
			news |= visit_repeat(op);
			continue;
		}
		for (uint32_t i = 0; i < op->nin; i++)
			for (uint32_t k = 0; k < op->nout; k++) {
				struct value *out = op->out[k], *in = op->in[i];

				if (!out->mark)
					continue;
				bool stop = stops(op, in, out);

				if ((out->mark & BY_GRADIENT) && !stop && is_float(in->dt))
					news |= give(in, BY_GRADIENT | AT_ALL, NULL);
				else
					news |= give(in, AT_ALL, stop && !out->aux ? op : out->aux);
			}
	}
	return news;
}

static const char *last_part(const char *path)
{
	const char *dot = path ? strrchr(path, '.') : NULL;

	return dot ? dot + 1 : path;
}

static const char *what_stops(const struct op *op)
{
	if (op->code >= OP_EQ && op->code <= OP_GE)
		return "a comparison";
	return op->code == OP_CAST ? "int" : opinfo[op->code].name;
}

static void warn(struct ctx *c, const struct op *min, const struct sym *p, const char *loss)
{
	const struct op *by = NULL;
	int64_t mark = 0;

	for (const struct op *op = c->m->top.first; op; op = op->next)
		if (op->code == OP_READ && streq(op->at.buf, min->at.buf)) {
			mark |= op->out[0]->mark;
			by = op->out[0]->aux ? op->out[0]->aux : by;
		}
	if (mark & BY_GRADIENT)
		return;
	if (!by) {
		caution(c, p->at, "param '%s' gets no gradient: '%s' does not depend on it", p->path, loss);
		hint(c, "freeze it with 'over'");
		return;
	}
	caution(c, p->at, "param '%s' gets no gradient: its only way to '%s' is %s (%s)", p->path, loss,
		what_stops(by), line_of(c, by->span, p->at));
	const char *from = last_part(by->in[0]->name), *to = last_part(by->out[0]->name);
	if (by->code == OP_TOPK && from && to)
		hint(c, "use %s[%s = %s] as a weight, or freeze it with 'over'", from,
		     c->m->dims.at[by->at.dim].name, to);
	else
		hint(c, "freeze it with 'over'");
}

void check_gradients(struct ctx *c)
{
	for (uint32_t i = 0; i < c->minimize.n; i++) {
		bool found = false;

		for (struct op *op = c->m->top.first; op; op = op->next) {
			if (op->code != OP_MINIMIZE || op->at.group != (int64_t)i)
				continue;
			if (!found) {
				clear(&c->m->top);
				give(op->in[0], BY_GRADIENT | AT_ALL, NULL);
				visit(&c->m->top);
				found = true;
			}
			for (uint32_t k = 0; k < c->params.n; k++)
				if (streq(c->params.at[k]->path, op->at.buf))
					warn(c, op, c->params.at[k], c->minimize.at[i]->name);
		}
	}
}
