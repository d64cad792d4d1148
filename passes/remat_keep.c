/* passes/remat_keep.c - what of a forward block is kept for backward.
 *
 * Backward reads some values. They follow from others by ops that may be done once more; some can't be made
 * again (sources): what the iteration was given, and the results of ops that may not be repeated. The fewest
 * bytes from which all that is read follows are a minimum cut between sources and reads, each value a vertex
 * that costs its bytes. `full` lets all ops be repeated but those of routing, so that what an iteration was
 * given is the cut as a rule; `selective` those whose work is to read and write their operands once, and
 * gathers. Of equal cuts the one nearest to the reads has the least to do. */
#include "passes/remat.h"

static bool routes(const struct op *op)
{
	if (opinfo[op->code].class == C_PICK || opinfo[op->code].class == C_STEP)
		return true;
	for (const struct op *o = op->body ? op->body->first : NULL; o; o = o->next)
		if (routes(o))
			return true;
	return false;
}

bool is_light(const struct pair *p, const struct op *op)
{
	switch (opinfo[op->code].class) {
	case C_LEAF: case C_MAP: case C_REDUCE: case C_VIEW:
		return true;
	case C_COMM: /* outside of loops a gathered copy is read soon, or not worth a name */
		return op->code == OP_SHARD || op->code == OP_TO_PARTIAL || (op->code == OP_ALL_GATHER && p->fwd);
	default:
		return false;
	}
}

/* An op of the top belongs to its place. */
static bool may_repeat(const struct pair *p, const struct op *op)
{
	return !routes(op) && (p->dear || is_light(p, op)) && (p->fwd || !p->where || op->at.where == p->where);
}

void set_sources(struct pair *p)
{
	for (uint32_t i = 0; i < p->nodes.n; i++) {
		struct node *n = p->nodes.at[i];

		n->source = n->v->def ? !may_repeat(p, n->v->def) : (int64_t)n->v->no < p->fwd->at.ncarry;
	}
}

static int64_t price(const struct pair *p, const struct value *v)
{
	if (!can_stack(p, v))
		return CUT_NEVER;
	return is_wanted(p->m, v) ? 0 : local_bytes(p->m, v);
}

static struct cut *cut_of(struct pair *p)
{
	struct cut *c = cut_new(p->m->mem, CUT_FIRST + 2 * (int)p->nodes.n);

	for (uint32_t i = 0; i < p->nodes.n; i++) {
		const struct node *n = p->nodes.at[i];
		int at = CUT_FIRST + 2 * (int)i;

		cut_arc(c, at, at + 1, price(p, n->v));
		if (n->read)
			cut_arc(c, at + 1, CUT_TO, CUT_NEVER);
		if (n->source)
			cut_arc(c, CUT_FROM, at, CUT_NEVER);
		for (uint32_t k = 0; !n->source && n->v->def && k < n->v->def->nin; k++) {
			const struct node *from = node_of(p, n->v->def->in[k]);

			if (from)
				cut_arc(c, CUT_FIRST + 2 * from->no + 1, at, CUT_NEVER);
		}
	}
	return c;
}

/* An op that has made one of its results has made all. */
static void keep_together(struct pair *p)
{
	for (uint32_t i = 0; i < p->nodes.n; i++) {
		const struct node *n = p->nodes.at[i];

		for (uint32_t k = 0; n->keep && n->v->def && k < n->v->def->nout; k++) {
			struct node *other = node_of(p, n->v->def->out[k]);

			if (other && can_stack(p, other->v))
				other->keep = true;
		}
	}
}

bool choose_kept(struct pair *p)
{
	struct cut *c = cut_of(p);

	if (!cut_solve(c))
		return false;
	for (uint32_t i = 0; i < p->nodes.n; i++) {
		int at = CUT_FIRST + 2 * (int)i;

		p->nodes.at[i]->keep = !cut_behind(c, at) && cut_behind(c, at + 1);
	}
	keep_together(p);
	return true;
}
