/* passes/chunk_region.c - which ops must run in parts so that a value never exists as a whole, and along
 * which dim they may.
 *
 * The ops that read or make the value, or another that has all its dims: logits, their exponentials, their
 * gradient. With them what lies between two of them, the maximum and the sum of a row. All of it must be done
 * for each position of the dim on its own, or be a sum along it that none of them reads. What is as large but an
 * input, or made of inputs alone, labels as ones and zeros, ties nothing together: who reads it makes its own. */
#include "passes/chunk.h"

#include "passes/place.h"

static bool in_microbatch(const struct op *op)
{
	return op->phase == FORWARD || op->phase == BACKWARD;
}

static bool is_leaf(const struct op *op)
{
	return opinfo[op->code].class == C_LEAF;
}

static bool is_in_repeat(const struct block *block, const char *name)
{
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; block->owner && i < op->nout; i++)
			if (op->out[i]->name && selector_matches(name, false, op->out[i]->name))
				return true;
		if (op->body && is_in_repeat(op->body, name))
			return true;
	}
	return false;
}

static struct value *find_value(struct chunk_region *r)
{
	const struct chunk *c = r->how;
	struct near near = { .name = c->sel };
	struct text names = { .mem = r->m->mem };
	const char *last = NULL;

	for (struct op *op = r->m->top.first; op; op = op->next)
		for (uint32_t i = 0; op->phase == FORWARD && !is_leaf(op) && !op->body && i < op->nout; i++) {
			struct value *v = op->out[i];

			if (!v->name || !v->nd)
				continue;
			if (selector_matches(c->sel, false, v->name))
				return v;
			near_offer(&near, v->name);
			if (!streq(v->name, last)) /* made in several steps */
				text_put(&names, "%s%s", names.n ? ", " : "", v->name);
			last = v->name;
		}
	diag_error(r->d, c->at, "no value outside of all repeats is called '%s'", c->sel);
	bool inside = is_in_repeat(&r->m->top, c->sel);

	if (near.best && !inside)
		diag_note(r->d, c->at, "did you mean '%s'?", near.best);
	else if (!inside && names.n)
		diag_note(r->d, c->at, "those with dims that something reads are %s", names.s);
	else
		diag_note(r->d, c->at, "'chunk' takes the name of a value that is made after the last repeat: "
			  "logits[batch, seq, vocab] = …");
	return NULL;
}

/* -- which ops -- */

static bool as_large(const struct value *x, const struct value *v)
{
	for (int i = 0; i < v->nd; i++)
		if (!has_dim(x, v->d[i]))
			return false;
	return true;
}

bool chunk_again(const struct chunk_region *r, const struct value *x)
{
	const struct op *op = x->def;
	bool again = op && as_large(x, r->v) && x->kind <= K_INPUT && opinfo[op->code].class == C_MAP;

	for (uint32_t i = 0; again && i < op->nin; i++) {
		const struct value *y = op->in[i];

		again = !as_large(y, r->v) || (y->def && y->def->code == OP_CONST) || chunk_again(r, y);
	}
	return again;
}

/* A large value that is there as a whole, or is made by each reader for itself, ties nothing together. */
static bool is_apart(const struct chunk_region *r, const struct value *x)
{
	return (x->def && x->def->code == OP_READ) || chunk_again(r, x);
}

/* Is there a marked op at the other end of a large value of op? */
static bool touches(const struct chunk_region *r, const struct op *op, const struct op *by)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		if (!as_large(op->in[i], r->v) || is_apart(r, op->in[i]))
			continue;
		if (op->in[i]->def == by)
			return true;
		for (uint32_t k = 0; k < by->nin; k++)
			if (by->in[k] == op->in[i])
				return true;
	}
	for (uint32_t i = 0; i < by->nin; i++)
		if (as_large(by->in[i], r->v) && by->in[i]->def == op)
			return true;
	return false;
}

static bool may_be_in(const struct chunk_region *r, const struct op *op)
{
	return in_microbatch(op) && op->code != OP_READ && !(op->nout == 1 && chunk_again(r, op->out[0]));
}

static void mark_large(struct chunk_region *r)
{
	VEC(struct op *) list = { 0 };

	r->v->def->mark = REGION_IN;
	PUSH(r->m->mem, &list, r->v->def);
	for (uint32_t i = 0; i < list.n; i++)
		for (struct op *op = r->m->top.first; op; op = op->next)
			if (!op->mark && may_be_in(r, op) && touches(r, op, list.at[i])) {
				op->mark = REGION_IN;
				PUSH(r->m->mem, &list, op);
			}
}

static void mark_between(struct module *m)
{
	for (struct op *op = m->top.first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->def && op->in[i]->def->mark & (REGION_IN | REGION_BELOW))
				op->mark |= REGION_BELOW;
	for (struct op *op = m->top.last; op; op = op->prev)
		for (uint32_t i = 0; op->mark & (REGION_IN | REGION_ABOVE) && i < op->nin; i++)
			if (op->in[i]->def)
				op->in[i]->def->mark |= REGION_ABOVE;
	for (struct op *op = m->top.first; op; op = op->next)
		if (op->mark & REGION_BELOW && op->mark & REGION_ABOVE)
			op->mark |= REGION_IN;
}

/* -- along which dim -- */

bool chunk_sums(const struct op *op, dimid dim)
{
	return (op->code == OP_EINSUM || op->code == OP_SUM || op->code == OP_SCATTER) && op->nout == 1 &&
	       !has_dim(op->out[0], dim);
}

static bool read_within(const struct op *op)
{
	for (const struct op *o = op->home->first; o; o = o->next)
		for (uint32_t i = 0; o->mark & REGION_IN && i < o->nin; i++)
			if (o->in[i]->def == op)
				return true;
	return false;
}

static bool in_list(const struct dimlist *l, dimid d)
{
	for (int i = 0; i < l->n; i++)
		if (l->d[i] == d)
			return true;
	return false;
}

/* Does op look along d, other than position by position? */
static bool looks_along(const struct op *op, dimid d)
{
	if (op_closed_dim(op, d))
		return true;
	switch (opinfo[op->code].class) {
	case C_LEAF:
		return (op->code != OP_CONST && op->nout && has_dim(op->out[0], d));
	case C_VIEW:
		return (HAS(op, dim) && op->at.dim == d) || (HAS(op, to) && op->at.to == d) || in_list(&op->at.dims, d) ||
		       in_list(&op->at.tos, d);
	case C_LOOKUP:
	case C_SCATTER:
		return in_list(&op->at.dims, d);
	case C_MAP:
	case C_REDUCE:
	case C_EINSUM:
	case C_PICK:
	case C_COMM:
		return false;
	default:
		return true;
	}
}

/* Why op can't be done in parts along d, NULL: it can. */
static const char *obstacle(const struct module *m, const struct op *op, dimid d)
{
	bool any = false, all = true;

	if (m->dims.at[d].zigzag)
		return "has it in zigzag order";
	if (is_staged(m, d) || m->dims.at[d].part != PART_NONE)
		return "has it cut in stages";
	if (looks_along(op, d))
		return op->body ? "a repeat reads what is made of it, and makes what it needs" : "reads along it";
	if (is_leaf(op))
		return NULL;
	for (uint32_t i = 0; i < op->nin; i++)
		any |= has_dim(op->in[i], d);
	for (uint32_t i = 0; i < op->nout; i++)
		all &= has_dim(op->out[i], d);
	if (!any)
		return "needs all of it at once";
	if (all)
		return NULL;
	if (!chunk_sums(op, d))
		return "reads along it";
	return read_within(op) ? "adds it up, and what follows is needed for each part" : NULL;
}

/* Positions of d on a rank in v; 0: they are not as many on each. */
static int64_t positions(const struct module *m, const struct value *v, dimid d)
{
	const struct axes *on = &v->sh.on[dim_pos(v, d)];
	int64_t size = dim_size(m, d), ranks = group_size(m, axes_bits(on));

	return ranks && size % ranks == 0 ? size / ranks : 0;
}

static bool fits_value(const struct module *m, const struct value *x, dimid d, int64_t parts)
{
	int64_t n = has_dim(x, d) ? positions(m, x, d) : parts;

	return n && n % parts == 0;
}

/* Can each rank have its `parts` parts of each value that has d? */
static bool fits(const struct chunk_region *r, dimid d, int64_t parts)
{
	for (const struct op *op = r->m->top.first; op; op = op->next) {
		if (!(op->mark & REGION_IN))
			continue;
		for (uint32_t i = 0; i < op->nin; i++)
			if (!fits_value(r->m, op->in[i], d, parts))
				return false;
		for (uint32_t i = 0; i < op->nout; i++)
			if (!fits_value(r->m, op->out[i], d, parts))
				return false;
	}
	return true;
}

struct found {
	dimid d[MAX_DIMS]; /* along which it may be cut */
	int n;
	const struct op *stop; /* of another dim, the first obstacle */
	const char *why;
	dimid stopped;
};

static struct found find_dims(const struct chunk_region *r)
{
	struct found f = { .stopped = NODIM };

	for (int i = 0; i < r->v->nd; i++) {
		dimid d = r->v->d[i];
		const char *why = NULL;
		const struct op *op = r->m->top.first;

		while (op && !(op->mark & REGION_IN && (why = obstacle(r->m, op, d))))
			op = op->next;
		if (!why) {
			f.d[f.n++] = d;
		} else if (f.stopped == NODIM || d == r->how->dim) {
			f.stopped = d;
			f.stop = op;
			f.why = why;
		}
	}
	return f;
}

static bool refuse(struct chunk_region *r, const struct found *f)
{
	const struct module *m = r->m;
	dimid want = r->how->dim;
	const char *name = m->dims.at[want == NODIM ? f->stopped : want].name;

	if (want != NODIM && !has_dim(r->v, want))
		return diag_error(r->d, r->how->at, "'%s' has no dim '%s' that it could be cut along", r->v->name, name);
	diag_error(r->d, r->how->at, want == NODIM && f->n == 0 && r->v->nd > 1 ?
		   "'%s' can't be made in parts: along none of its dims, not along '%s' either" :
		   "'%s' can't be made in parts along '%s'", r->v->name, name);
	diag_note(r->d, f->stop->span, "%s %s", f->stop->body ? "this:" : opinfo[f->stop->code].name, f->why);
	return false;
}

/* Rows of v on a rank, one for each position of the dims that may be cut. */
static int64_t rows_of(const struct chunk_region *r, const struct found *f)
{
	int64_t n = 1;

	for (int i = 0; i < f->n; i++)
		n *= cap_of(r->m, f->d[i], &r->v->sh.on[dim_pos(r->v, f->d[i])]);
	return n;
}

static bool take(struct chunk_region *r, const struct found *f, int64_t parts)
{
	for (int i = 0; i < f->n; i++)
		if ((r->how->dim == NODIM || r->how->dim == f->d[i]) && fits(r, f->d[i], parts)) {
			r->dim = f->d[i];
			r->parts = parts;
			return true;
		}
	return false;
}

static bool uneven(struct chunk_region *r, const struct found *f, int64_t parts)
{
	struct text t = { .mem = r->m->mem };

	for (int i = 0; i < f->n; i++) {
		int64_t n = positions(r->m, r->v, f->d[i]);

		if (r->how->dim != NODIM && r->how->dim != f->d[i])
			continue;
		text_put(&t, "%s'%s' has %lld", t.n ? ", " : "", r->m->dims.at[f->d[i]].name,
			 (long long)(n ? n : cap_of(r->m, f->d[i], &r->v->sh.on[dim_pos(r->v, f->d[i])])));
		text_put(&t, n ? "" : " or fewer");
	}
	diag_error(r->d, r->how->at, "'%s' can't be cut evenly in %lld parts%s", r->v->name, (long long)parts,
		   r->how->rows ? ", nor in up to twice as many" : "");
	diag_note(r->d, r->how->at, "positions on a rank: %s; take a number of parts that divides one of them", t.s);
	return false;
}

static bool choose(struct chunk_region *r, const struct found *f)
{
	const struct chunk *c = r->how;
	int64_t want = c->parts ? c->parts : ceil_div(rows_of(r, f), c->rows), most = c->parts ? want : 2 * want;

	r->parts = 1;
	for (int64_t n = want; n <= most && want > 1; n++)
		if (take(r, f, n))
			return true;
	return want <= 1 || uneven(r, f, want);
}

bool chunk_find(struct chunk_region *r)
{
	for (struct op *op = r->m->top.first; op; op = op->next)
		op->mark = 0;
	r->v = find_value(r);
	if (!r->v)
		return false;
	mark_large(r);
	mark_between(r->m);
	r->phase = FORWARD;
	for (const struct op *op = r->m->top.first; op; op = op->next)
		if (op->mark & REGION_IN && op->phase == BACKWARD)
			r->phase = BACKWARD;
	struct found f = find_dims(r);
	bool can = false;

	for (int i = 0; i < f.n; i++)
		can |= r->how->dim == NODIM || f.d[i] == r->how->dim;
	return can ? choose(r, &f) : refuse(r, &f);
}
