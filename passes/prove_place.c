/* passes/prove_place.c - where values lie, and what may lie on what, by the rules at the head of memory.c. */
#include "passes/prove.h"

bool same_spot(const struct spot *a, const struct spot *b)
{
	if (a->region != b->region || a->base != b->base || a->n != b->n)
		return false;
	for (int i = 0; i < a->n; i++)
		if (a->depth[i] != b->depth[i] || a->stride[i] != b->stride[i])
			return false;
	return true;
}

/* Do the elements of both lie in memory alike? */
static bool alike(const struct value *v, int nd, const dimid *d, const struct axes *on, enum dtype dt)
{
	bool ok = v->nd == nd && v->dt == dt;

	for (int i = 0; ok && i < nd; i++)
		ok = v->d[i] == d[i] && axes_equal(&v->sh.on[i], &on[i]);
	return ok;
}

static bool values_alike(const struct value *a, const struct value *b)
{
	return alike(a, b->nd, b->d, b->sh.on, b->dt);
}

bool row_of(const struct module *m, const struct value *v, const struct value *whole, dimid dim)
{
	const struct axes *on = &whole->sh.on[0];
	bool staged = on->n == 1 && is_staged(m, dim) && on->a[0] == pipe_axis(m);

	return whole->nd == v->nd + 1 && whole->d[0] == stack_dim(m, whole, dim) && (!on->n || staged) &&
	       alike(v, v->nd, whole->d + 1, whole->sh.on + 1, whole->dt);
}

int row_depth(const struct prover *p, const struct op *repeat, const struct value *v, const struct spot *whole)
{
	const struct region *x = &p->r->at.at[whole->region];

	if (!has_dim(v, repeat->at.dim))
		return IN_KEPT;

	if (repeat->home->owner || !p->l || !is_staged(p->m, repeat->at.dim))
		return prove_depth(repeat->home);
	return x->kind == RG_STASH && x->dim != NODIM ? IN_CHUNK : IN_STAGE;
}

int prove_depth(const struct block *block)
{
	int n = 0;

	for (; block->owner; block = block->owner->home)
		n++;
	return n;
}

/* -- views -- */

static dimid renamed(const struct op *op, dimid d)
{
	for (int k = 0; k < op->at.dims.n; k++)
		if (op->at.dims.d[k] == d)
			return op->at.tos.d[k];
	return d;
}

/* Dim d over `on` holds what `parts` hold, the first of them over the same axes: no part of it, on no rank, may
 * end within a row of the minor parts, and no padding may come between. */
static bool parts_fit(const struct module *m, dimid d, const struct axes *on, const struct dimlist *parts,
		      const struct axes *part_on)
{
	int64_t minor = 1, a = dim_size(m, d), b = dim_size(m, parts->d[0]);

	for (int i = 1; i < parts->n; i++) {
		minor *= dim_size(m, parts->d[i]);
		if (part_on[i].n)
			return false;
	}
	for (int i = 0; i < on->n; i++) {
		a = ceil_div(a, m->axes.at[on->a[i]].size);
		b = ceil_div(b, m->axes.at[on->a[i]].size);
		if (a != b * minor)
			return false;
	}
	return axes_equal(on, &part_on[0]) && a == b * minor;
}

static bool parts_in_place(const struct module *m, const struct value *wide, dimid d, const struct value *fine,
			   const struct dimlist *parts)
{
	int k = 0;

	if (fine->nd != wide->nd - 1 + parts->n || fine->dt != wide->dt || !parts->n)
		return false;
	for (int i = 0; i < wide->nd; i++) {
		if (wide->d[i] != d) {
			if (fine->d[k] != wide->d[i] || !axes_equal(&fine->sh.on[k], &wide->sh.on[i]))
				return false;
			k++;
			continue;
		}
		if (!parts_fit(m, d, &wide->sh.on[i], parts, &fine->sh.on[k]))
			return false;
		for (int j = 0; j < parts->n; j++, k++)
			if (fine->d[k] != parts->d[j])
				return false;
	}
	return true;
}

bool view_keeps(const struct module *m, const struct op *op)
{
	const struct value *in = op->in[0], *out = op->out[0];
	struct value named = *in;
	bool same = true;

	switch (op->code) {
	case OP_RENAME:
		for (int i = 0; i < in->nd; i++)
			named.d[i] = renamed(op, in->d[i]);
		return values_alike(&named, out);
	case OP_SPLIT:
		return parts_in_place(m, in, op->at.dim, out, &op->at.tos);
	case OP_MERGE:
		return parts_in_place(m, out, op->at.to, in, &op->at.dims);
	default:
		for (uint32_t i = 0; i < op->nout; i++)
			same = same && values_alike(op->in[i], op->out[i]);
		return same;
	}
}

/* -- what may lie on what -- */

/* Has the value a dim within one of `made` that it lacks? Then it may be made in a loop of its own. */
static bool has_own_loop(const struct op *op, const struct value *made)
{
	const struct value *v = op->nout == 1 ? op->out[0] : NULL;
	bool lacks = false;

	if (!v || (opinfo[op->code].class != C_MAP && op->code != OP_LOOKUP))
		return false;
	for (int k = 0; k < made->nd; k++) {
		if (lacks && has_dim(v, made->d[k]))
			return true;
		lacks |= !has_dim(v, made->d[k]);
	}
	return false;
}

/* A kernel makes its results in the order of their ops. Is the operand loaded, for a result that is made no
 * later, when this one is stored? */
static bool loaded_by_then(const struct op *op, uint32_t result, uint32_t operand)
{
	const struct block *body = op->body;
	const struct value *made = body->yields.at[result];
	int64_t pos = 0, at = -1, first = INT64_MAX;

	for (uint32_t a = 0; a < body->args.n; a++)
		body->args.at[a]->mark = a == operand;
	for (const struct op *o = body->first; o; o = o->next) {
		bool needs = false;

		if (o->code == OP_RNG || has_own_loop(o, op->out[result]))
			return false;
		pos++;
		for (uint32_t n = 0; n < o->nin; n++)
			needs |= o->in[n]->mark;
		for (uint32_t n = 0; n < o->nout; n++) {
			o->out[n]->mark = needs;
			at = o->out[n] == made ? pos : at;
			for (uint32_t r = 0; r < body->yields.n && needs && pos < first; r++)
				first = body->yields.at[r] == o->out[n] ? pos : first;
		}
	}
	return at >= 0 && first <= at;
}

bool may_lie_on(const struct op *op, uint32_t result, uint32_t operand)
{
	const struct value *r = op->out[result], *x = op->in[operand];

	if (!values_alike(x, r))
		return false;
	if (op->code == OP_ALL_REDUCE)
		return result == operand;
	if (op->code == OP_TO_PARTIAL)
		return true;
	if (op->code != OP_KERNEL)
		return false;
	for (const struct op *o = op->body->first; o; o = o->next)
		if (opinfo[o->code].class != C_MAP && opinfo[o->code].class != C_LEAF)
			return false;
	for (uint32_t i = 0; i < op->nout; i++)
		if (op->out[i]->nd != r->nd || memcmp(op->out[i]->d, r->d, r->nd * sizeof *r->d))
			return false;
	return op->nout == 1 || loaded_by_then(op, result, operand);
}

/* -- places -- */

static bool lost(struct prover *p, const struct value *v, const char *why)
{
	return diag_error(p->d, v->span, "the plan gives %s no place: %s", prove_name(p, v), why);
}

static bool place(struct prover *p, const struct value *v);

static bool place_at(struct prover *p, const struct value *v, const struct value *other)
{
	struct spot *s = &p->held[v->id].spot;
	int64_t bytes = s->bytes;

	if (!place(p, other))
		return false;
	*s = p->held[other->id].spot;
	s->bytes = bytes;
	return true;
}

/* Row of `whole` at the iteration of r. */
static bool place_row(struct prover *p, const struct value *v, const struct op *r, const struct value *whole)
{
	struct spot *s = &p->held[v->id].spot;

	if (!row_of(p->m, v, whole, r->at.dim))
		return lost(p, v, "it is no row of the stack");
	if (!place_at(p, v, whole))
		return false;
	if (s->n == MAX_NEST)
		return lost(p, v, "repeats are nested too deep");
	s->rows = 0;
	s->depth[s->n] = row_depth(p, r, whole, s);
	s->stride[s->n++] = s->bytes;
	return true;
}

static bool place_arg(struct prover *p, const struct value *v)
{
	const struct op *r = v->home->owner;
	int64_t i = v->no;

	if (!r || r->code != OP_REPEAT)
		return lost(p, v, "it is the argument of no repeat");
	if (i < r->at.ncarry)
		return (values_alike(v, r->out[i]) || lost(p, v, "it differs from the result")) && place_at(p, v, r->out[i]);
	if (i < r->at.ncarry + r->at.nwith)
		return (values_alike(v, r->in[i]) || lost(p, v, "it differs from the operand")) && place_at(p, v, r->in[i]);
	return place_row(p, v, r, r->in[i]);
}

/* Of a region of rows it has those that there are on the stage, or in the chunk, at hand. */
static bool place_in_region(struct prover *p, const struct value *v, int region, int64_t base)
{
	struct spot *s = &p->held[v->id].spot;

	if (region < 0)
		return lost(p, v, "it is of no region");
	s->region = region;
	s->base = base;
	dimid dim = p->r->at.at[region].dim;

	if (dim == NODIM)
		return true;
	int64_t cap = v->nd && v->d[0] == dim ? cap_of(p->m, dim, &v->sh.on[0]) : 0;

	if (!cap)
		return lost(p, v, "it has no rows in a region of rows");
	s->rows = s->bytes / cap;
	return true;
}

static bool place_in_buffer(struct prover *p, const struct value *v, const char *name)
{
	const struct buffer *b = find_buffer(p->m, name);
	uint32_t i = 0;

	if (!b || b->off < 0 || !alike(v, b->nd, b->d, b->store.on, b->dt))
		return lost(p, v, "its layout is not that of the buffer");
	while (p->m->bufs.at[i] != b)
		i++;
	return place_in_region(p, v, p->r->buf[i], b->off);
}

/* v lies where `as` is sent: itself, or what a wait makes of it. */
static bool place_where_sent(struct prover *p, const struct value *v, const struct value *as)
{
	const struct op *r = as->home->owner, *to = p->held[as->id].to;
	struct spot *s = &p->held[v->id].spot;

	if (to && to->code == OP_WAIT)
		return as == v && v->def->nout == to->nout ? place_where_sent(p, v, to->out[v->no]) :
							     lost(p, v, "nothing waits for it");
	if (to && to->code == OP_ACCUMULATE && sums_in_step(p->m)) {
		if (!values_alike(v, to->out[0]))
			return lost(p, v, "it differs from what it is added to");
		if (!place_at(p, v, to->out[0]))
			return false;
		s->adds = true;
		return true;
	}
	for (uint32_t k = 0; r && k < as->home->yields.n; k++) {
		if (as->home->yields.at[k] != as)
			continue;
		if ((int64_t)k < r->at.ncarry)
			return (values_alike(v, as->home->args.at[k]) || lost(p, v, "it differs from what is carried")) &&
			       place_at(p, v, as->home->args.at[k]);
		if (!row_of(p->m, v, r->out[k], r->at.dim))
			continue;
		if (!place_row(p, v, r, r->out[k]))
			return false;
		s->adds |= sums_in_step(p->m) && repeat_adds(r, k);
		return true;
	}
	return to && to->code == OP_WRITE ? place_in_buffer(p, v, to->at.buf) : lost(p, v, "it has no offset");
}

/* Two places, one behind the other, used in turn. */
static bool place_in_turn(struct prover *p, const struct value *v)
{
	struct spot *s = &p->held[v->id].spot;
	int depth = prove_depth(v->home) - 1;

	if (depth < 0 || depth >= MAX_NEST || s->n == MAX_NEST || s->bytes > INT64_MAX - 64)
		return lost(p, v, "it can't be gathered ahead");
	s->depth[s->n] = SLOT + depth;
	s->stride[s->n++] = (s->bytes + 63) / 64 * 64;
	return true;
}

static bool find_place(struct prover *p, const struct value *v)
{
	if (v->off >= 0) {
		return place_in_region(p, v, p->r->of[v->id], v->off) &&
		       (!v->def || !HAS(v->def, ahead) || place_in_turn(p, v));
	}
	if (!v->def)
		return place_arg(p, v);
	switch (v->def->code) {
	case OP_READ:
		return place_in_buffer(p, v, v->def->at.buf);
	case OP_ACCUMULATE:
		if (sums_in_step(p->m))
			return place_where_sent(p, v, v);
		/* fall through */
	case OP_WAIT:
	case OP_RENAME:
	case OP_SPLIT:
	case OP_MERGE:
	case OP_REPEAT:
		if (v->def->code == OP_REPEAT && !is_first_part(p->m, v->def))
			return place_where_sent(p, v, v);
		return (view_keeps(p->m, v->def) || lost(p, v, "its elements lie in another order than its operand's")) &&
		       place_at(p, v, v->def->in[v->no]);
	default:
		return place_where_sent(p, v, v);
	}
}

static int64_t trips_at(const struct prover *p, const struct value *v, int depth)
{
	const struct block *b = v->home;

	if (depth >= SLOT && depth != IN_KEPT)
		return 2;
	for (int n = prove_depth(b); b->owner; b = b->owner->home, n--)
		if (depth == IN_KEPT && n == 1)
			return dim_size(p->m, kept_part(p->m, b->owner->at.dim));
		else if (n == depth + 1)
			return dim_size(p->m, b->owner->at.dim);
	return -1;
}

/* Both ends of its range, over all iterations there are, or nothing if there are none; of a pipeline's stages the walk sees
 * to it. */
static bool is_inside(struct prover *p, const struct value *v)
{
	const struct spot *s = &p->held[v->id].spot;
	int64_t high, more;
	bool ok = s->base >= 0 && s->base % 64 == 0 && !__builtin_add_overflow(s->base, s->bytes, &high);

	for (int i = 0; ok && !p->l && i < s->n; i++) {
		int64_t trips = trips_at(p, v, s->depth[i]);

		if (!trips)
			return true;
		ok = trips > 0 && !__builtin_mul_overflow(s->stride[i], trips - 1, &more) && !__builtin_add_overflow(high, more, &high);
	}
	return (ok && (p->l || high <= (s->region == p->r->host ? p->m->host : p->m->arena))) || lost(p, v, "it lies outside of the arena");
}

static bool bytes_of(const struct module *m, const struct value *v, int64_t *bytes)
{
	*bytes = dtype_bytes(v->dt);
	for (int i = 0; i < v->nd; i++)
		if (__builtin_mul_overflow(*bytes, cap_of(m, v->d[i], &v->sh.on[i]), bytes))
			return false;
	return true;
}

/* Of what lies in no region of rows, though a dim of it is cut into stages. */
static void note_cut(struct prover *p, const struct value *v)
{
	struct held *h = &p->held[v->id];

	h->cut = h->stacked = NODIM;
	for (int i = 0; p->l && !h->spot.rows && i < v->nd; i++) {
		int64_t cap = cap_of(p->m, v->d[i], &v->sh.on[i]);

		if (!is_staged(p->m, v->d[i]) || !axes_has(&v->sh.on[i], pipe_axis(p->m)) || !cap)
			continue;
		h->cut = v->d[i];
		h->row = h->spot.bytes / cap;
	}
}

/* Aliases lead outward or to earlier values: a circle would not end. */
static bool place(struct prover *p, const struct value *v)
{
	struct held *h = &p->held[v->id];

	if (h->placed)
		return true;
	if (++p->hops > 1000)
		return lost(p, v, "it goes in circles");
	bool ok = bytes_of(p->m, v, &h->spot.bytes) ? find_place(p, v) : lost(p, v, "it is too large");

	p->hops--;
	h->placed = ok;
	if (ok)
		note_cut(p, v);
	return ok && is_inside(p, v);
}

static void note_targets(struct prover *p, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next) {
		if ((op->code == OP_ACCUMULATE || op->code == OP_WRITE) && !p->held[op->in[0]->id].to)
			p->held[op->in[0]->id].to = op;
		for (uint32_t i = 0; op->code == OP_WAIT && i < op->nin; i++)
			p->held[op->in[i]->id].to = op;
		if (op->code == OP_REPEAT)
			note_targets(p, op->body);
	}
}

static bool place_block(struct prover *p, const struct block *block)
{
	if (prove_depth(block) > MAX_NEST)
		return unsafe(p, block->owner, "repeats are nested too deep");
	for (uint32_t i = 0; i < block->args.n; i++)
		if (!place(p, block->args.at[i]))
			return false;
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			if (!place(p, op->out[i]))
				return false;
		if (op->code == OP_REPEAT && !place_block(p, op->body))
			return false;
	}
	return true;
}

bool prove_places(struct prover *p)
{
	note_targets(p, &p->m->top);
	return place_block(p, &p->m->top);
}
