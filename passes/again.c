/* passes/again.c - what backward makes again from its operands, rather than keep it (differentiate), is the
 * forward value. A version of that, gathered in forward, is kept rather than gathered a second
 * time; where nothing would be sent, nothing is kept. */
#include "passes/partition.h"

/* The forward value that o, read in backward, is; NULL: none that is known. */
static struct value *forward_of(struct part *p, struct value *o)
{
	const struct info *i = info_of(p, o);

	if (i->again)
		return i->again;
	if (o->def)
		return o->def->phase == FORWARD ? o : NULL;
	if (i->how != H_OVER)
		return NULL;
	struct value *all = forward_of(p, i->from);
	return all && info_of(p, all)->how == H_STACKED ? info_of(p, all)->from : NULL;
}

static bool is_leaf(const struct value *v)
{
	return v->def && !v->def->nin && opinfo[v->def->code].class == C_LEAF;
}

/* Is b, read in backward, the same as f is in forward? */
static bool same_value(struct part *p, struct value *b, struct value *f)
{
	const struct info *ib = info_of(p, b), *jf = info_of(p, f);

	if (ib == jf || forward_of(p, b) == f)
		return true;
	if (is_leaf(b) && is_leaf(f))
		return b->def->code == f->def->code && op_same_attrs(b->def, f->def);
	return !b->def && !f->def && ib->how == jf->how && (ib->how == H_WITH || ib->how == H_OVER) &&
	       same_value(p, ib->from, jf->from);
}

void set_again(struct part *p, struct op *op)
{
	const struct op *f = op->of;

	if (op->phase != BACKWARD || !f || f->phase != FORWARD || f->code != op->code || op->body ||
	    op->nin != f->nin || op->nout != 1 || f->nout != 1 || !op_same_attrs(op, f))
		return;
	struct value *v = op->out[0], *is = f->out[0];
	if (v->dt != is->dt || v->nd != is->nd || (v->nd && memcmp(v->d, is->d, v->nd * sizeof *v->d)))
		return;
	for (uint32_t k = 0; k < op->nin; k++)
		if (!same_value(p, op->in[k], f->in[k]))
			return;
	info_of(p, v)->again = is;
}

/* f, of the scope `from`, as something that the scope `to` of backward reads. NULL: the two are
 * not loops of one another. */
static struct value *stash_of(struct part *p, struct value *f, struct scope *from, struct scope *to)
{
	struct op *loop = from->old;

	if (!loop || !to->old)
		return loop == to->old ? f : NULL;
	if (loop->at.dim != to->old->at.dim || has_dim(f, loop->at.dim) || f->nd == MAX_DIMS || from->open || !to->open)
		return NULL;
	struct value *all = NEW(p->m->mem, struct value), *one = NEW(p->m->mem, struct value);
	*one = *all = *f;
	one->aux = all->aux = NULL;
	one->def = NULL;
	all->def = loop;
	all->no = loop->nout + 64; /* a result of its own, not one that is added up */
	memmove(all->d + 1, all->d, f->nd * sizeof *f->d);
	all->d[0] = loop->at.dim;
	all->nd++;
	info_of(p, all)->how = H_STACKED;
	info_of(p, all)->from = f;
	info_of(p, all)->scope = from->up;
	struct value *outer = stash_of(p, all, from->up, to->up);
	if (!outer)
		return NULL;
	info_of(p, one)->how = H_OVER;
	info_of(p, one)->from = outer;
	info_of(p, one)->scope = to;
	return one;
}

struct value *forward_twin(struct part *p, struct value *v, const struct sharding *sh)
{
	struct info *i = info_of(p, v);
	bool there = false;

	if (!i->again || p->scope->b.phase != BACKWARD)
		return NULL;
	const struct info *f = info_of(p, i->again);
	for (uint32_t k = 0; k < f->ver.n; k++)
		there |= f->ver.at[k].phase == FORWARD && sharding_equal(&f->ver.at[k].sh, sh, v->nd);
	if (there && !i->stash)
		i->stash = stash_of(p, i->again, f->scope, i->scope);
	return there ? i->stash : NULL;
}
