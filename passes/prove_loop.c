/* passes/prove_loop.c - loops, and the stacks of what their iterations make.
 *
 * A loop is walked for a few of its iterations: the first two, all others at once as one wide row, the last,
 * and one more before it if their number is odd, so that what is used in turn ends as it does in the run. What
 * an iteration leaves for the next is met from both sides of the wide row. Loops that hold loops are
 * walked whole. */
#include "passes/prove.h"

enum { FEW = 4 };

struct spot row_spot(struct prover *p, const struct op *r, const struct value *whole)
{
	struct held *h = held(p, whole);
	struct spot s = h->spot;
	dimid d = stack_dim(p->m, whole, r->at.dim);

	if (h->stacked != d) { /* how many rows there are takes a walk over all stages, and it is asked in each iteration */
		int64_t cap = cap_of(p->m, d, &whole->sh.on[dim_pos(whole, d)]);

		h->stack_row = s.rows ? s.rows : cap ? s.bytes / cap : 0;
		h->stacked = d;
	}
	s.bytes = h->stack_row;
	s.rows = 0;
	s.depth[s.n] = row_depth(p, r, whole, &s);
	s.stride[s.n++] = s.bytes;
	return s;
}

/* -- stacks -- */

/* Do rows lie one behind the other? Else a row is spread over all of the stack. Such rows are taken for neighbours
 * all the same: that is as good a name for their bytes as any as long as nothing else lies in the
 * stack, which is seen to whenever one is read or written, and when all of it is read. */
static bool in_rows(const struct prover *p, const struct op *r, const struct value *whole, const struct value *row)
{
	return row_of(p->m, row, whole, r->at.dim);
}

static struct bytes stack_range(const struct prover *p, const struct op *r, const struct value *whole, const struct value *row,
				const struct spot *s)
{
	return range_of(p, in_rows(p, r, whole, row) ? s : &held(p, whole)->spot);
}

/* Is nobody at work in a stack whose rows are spread, and nothing else there? */
static bool is_whole(struct prover *p, const struct op *r, const struct value *whole, const struct value *row, bool writes)
{
	struct bytes at = range_of(p, &held(p, whole)->spot);
	const struct value *v = p->made.at[held(p, whole)->is.tag];

	if (in_rows(p, r, whole, row))
		return true;
	if (in_flight(p, r, whole, at, writes))
		return false;
	return memory_holds_only(&p->memory, at, p->made.at, v) ||
	       unsafe(p, r, "something else lies among the rows of %s", prove_name(p, whole));
}

static bool put_row(struct prover *p, const struct op *r, uint32_t k)
{
	const struct value *y = r->body->yields.at[k], *whole = r->out[k];
	struct held *w = held(p, whole);
	bool sums = sums_in_step(p->m) && repeat_adds(r, k);
	struct spot s = row_spot(p, r, whole);
	struct bytes at = range_of(p, &s);

	if (in_rows(p, r, whole, y) && same_spot(&s, &held(p, y)->spot))
		return true;
	if (!read_value(p, r, y))
		return false;
	if (meet(stack_range(p, r, whole, y, &s), range_of(p, &held(p, y)->spot)))
		return unsafe(p, r, "%s lies across its row of the stack", prove_name(p, y));
	if (!is_whole(p, r, whole, y, true))
		return false;
	if (sums && p->nth > 0 && !read_at(p, r, whole, at, w->was))
		return false;
	return write_at(p, r, whole, at, w->is);
}

bool put_rows(struct prover *p, const struct op *op)
{
	const struct op *r = op->home->owner;

	for (uint32_t k = r ? (uint32_t)r->at.ncarry : 0; r && k < r->body->yields.n; k++)
		if (r->body->yields.at[k]->def == op && !put_row(p, r, k))
			return false;
	return true;
}

/* The stack or sum that v is made in, if it is. */
const struct value *made_in(struct prover *p, const struct value *v)
{
	const struct op *r = v->home->owner, *to = held(p, v)->to;

	if (to && to->code == OP_WAIT)
		return v->def && v->def->nout == to->nout ? made_in(p, to->out[v->no]) : NULL;
	if (to && to->code == OP_ACCUMULATE && sums_in_step(p->m) && same_spot(&held(p, v)->spot, &held(p, to->out[0])->spot))
		return to->out[0];
	for (uint32_t k = r ? (uint32_t)r->at.ncarry : 0; r && k < r->body->yields.n; k++)
		if (r->body->yields.at[k] == v && in_rows(p, r, r->out[k], v)) {
			struct spot s = row_spot(p, r, r->out[k]);

			if (same_spot(&s, &held(p, v)->spot))
				return r->out[k];
		}
	return NULL;
}

/* rows: of the loop's range on this chunk. */
void set_iter(struct prover *p, int depth, struct bytes rows, int64_t turn)
{
	int64_t at = depth ? 0 : p->chunk_at;

	p->iter[depth] = (struct bytes){ at + rows.lo, at + rows.hi };
	p->iter[SLOT + depth] = (struct bytes){ turn & 1, (turn & 1) + 1 };
	if (depth)
		return;
	if (p->kept != NODIM && rows.lo < rows.hi)
		p->iter[IN_KEPT] = (struct bytes){ kept_row(p->m, p->kept, at + rows.lo), kept_row(p->m, p->kept, at + rows.hi - 1) + 1 };
	p->iter[IN_CHUNK] = rows;
	p->iter[IN_STAGE] = (struct bytes){ p->stage_at + rows.lo, p->stage_at + rows.hi };
}

/* The next of the rows that are walked, from row *at on. */
static struct bytes next_rows(int64_t at, int64_t trips)
{
	struct bytes b = { at, at + 1 };

	if (trips > FEW && at == 2)
		b.hi = trips - 1 - trips % 2;
	return b;
}

/* Of the k-th iteration walked; nothing where there is none. */
static struct bytes rows_of(const struct bytes *rows, int64_t n, bool whole, int64_t k)
{
	if (k < 0 || k >= n)
		return (struct bytes){ 0, 0 };
	return whole ? (struct bytes){ k, k + 1 } : rows[k];
}

/* Is r cut into chunks? */
static bool is_piped(const struct prover *p, const struct op *r)
{
	return p->l && !r->home->owner && is_staged(p->m, r->at.dim);
}

static bool goes_back(const struct op *r)
{
	return HAS(r, reverse) && r->at.reverse;
}

static bool holds_loop(const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next)
		if (op->code == OP_REPEAT)
			return true;
	return false;
}

/* A loop of a pipeline that is carried on from another chunk has what it carries from there. */
static bool is_entered(struct prover *p, const struct op *r, int64_t k)
{
	if (!is_piped(p, r) || p->chunk < 0 || repeat_local(r, (uint32_t)k))
		return true;
	struct trips t = pipe_trips(p->m, r->at.dim, p->chunk);

	return goes_back(r) ? t.hi == dim_size(p->m, r->at.dim) : t.lo == 0;
}

static bool begin_carry(struct prover *p, const struct op *r, int64_t k)
{
	struct held *in = held(p, r->in[k]), *out = held(p, r->out[k]);

	if (!is_entered(p, r, k))
		return read_value(p, r, r->out[k]);
	if (same_spot(&in->spot, &out->spot)) {
		out->is = in->is;
		return true;
	}
	if (meet(range_of(p, &in->spot), range_of(p, &out->spot)))
		return unsafe(p, r, "%s lies across what it is carried in", prove_name(p, r->in[k]));
	return read_value(p, r, r->in[k]) && write_value(p, r, r->out[k]);
}

/* The contents of a stack of sums, one for each number of microbatches that were added. */
static uint32_t level_of(struct prover *p, const struct value *stack)
{
	struct held *h = held(p, stack);

	if (!h->level)
		for (int64_t i = 0; i <= p->m->micro; i++) {
			uint32_t tag = tag_new(p, stack);

			h->level = h->level ? h->level : tag;
		}
	return h->level + (uint32_t)p->nth;
}

/* Rows that are spread over a stack have all of it from the first on. */
static bool reserve(struct prover *p, const struct op *r, uint32_t k)
{
	const struct value *whole = r->out[k];
	struct content is = held(p, whole)->is;

	if (in_rows(p, r, whole, r->body->yields.at[k]))
		return true;
	return write_at(p, r, whole, range_of(p, &held(p, whole)->spot), (struct content){ tag_new(p, p->made.at[is.tag]), is.start });
}

static bool begin_stack(struct prover *p, const struct op *r, uint32_t k)
{
	const struct value *in = made_in(p, r->out[k]);
	struct held *h = held(p, r->out[k]);
	int64_t lo = range_of(p, &h->spot).lo;
	bool sums = sums_in_step(p->m) && repeat_adds(r, k), begins = true;

	if (in) {
		if (h->spot.adds && !sums)
			return unsafe(p, r, "%s takes the place of a sum over the microbatches", prove_name(p, r->out[k]));
		h->was = held(p, in)->was;
		h->is = held(p, in)->is;
		begins = !sums || !p->nth;
	} else if (sums) {
		begins = !h->level;
		h->was = (struct content){ level_of(p, r->out[k]), lo };
		h->is = (struct content){ level_of(p, r->out[k]) + 1, lo };
	} else {
		h->is = (struct content){ tag_new(p, r->out[k]), lo };
	}
	return !begins || reserve(p, r, k);
}

static bool begin_loop(struct prover *p, const struct op *r)
{
	for (int64_t k = 0; k < r->at.ncarry; k++)
		if (!begin_carry(p, r, k))
			return false;
	for (uint32_t k = (uint32_t)r->at.ncarry; k < r->nout; k++)
		if (!begin_stack(p, r, k))
			return false;
	return true;
}

/* Args, and args that are stacked as they are. */
static bool begin_iteration(struct prover *p, const struct op *r)
{
	const struct block *body = r->body;

	for (uint32_t i = 0; i < body->args.n; i++) {
		const struct value *a = body->args.at[i], *from = i < r->at.ncarry ? r->out[i] : r->in[i];

		held(p, a)->is = held(p, from)->is;
		if (i < r->at.ncarry + r->at.nwith || a->off < 0)
			continue;
		struct spot s = row_spot(p, r, from);

		if (meet(stack_range(p, r, from, a, &s), range_of(p, &held(p, a)->spot)))
			return unsafe(p, r, "%s lies on the stack that it is a row of", prove_name(p, a));
		if (!is_whole(p, r, from, a, false) || !read_at(p, r, from, range_of(p, &s), held(p, from)->is) || !write_value(p, r, a))
			return false;
	}
	for (uint32_t k = (uint32_t)r->at.ncarry; k < body->yields.n; k++)
		if (!body->yields.at[k]->def && !put_row(p, r, k))
			return false;
	return true;
}

/* Is it kept aside, since another carried value is about to be put where it lies? */
static bool is_kept(struct prover *p, const struct op *r, int64_t k)
{
	for (int64_t j = 0; j < r->at.ncarry; j++)
		if (j != k && same_spot(&held(p, r->out[j])->spot, &held(p, r->body->yields.at[k])->spot))
			return true;
	return false;
}

static bool carry(struct prover *p, const struct op *r)
{
	int64_t kept = 0;

	for (int pass = 0; pass < 3; pass++)
		for (int64_t k = 0; k < r->at.ncarry; k++) {
			const struct value *y = r->body->yields.at[k], *o = r->out[k];
			bool keep, moved = !same_spot(&held(p, y)->spot, &held(p, o)->spot);

			if (!moved) {
				if (pass == 0)
					held(p, o)->is = held(p, y)->is;
				continue;
			}
			keep = is_kept(p, r, k);
			kept += pass == 0 && keep ? held(p, o)->spot.bytes : 0;
			if (keep != (pass != 1))
				continue;
			if (pass != 2 && !read_value(p, r, y))
				return false;
			if (pass == 1 && meet(range_of(p, &held(p, y)->spot), range_of(p, &held(p, o)->spot)))
				return unsafe(p, r, "%s lies across what it is carried in", prove_name(p, y));
			if (pass != 0 && !write_value(p, r, o))
				return false;
		}
	return has_workspace(p, r, "what it carries", kept);
}

/* What was carried on in a row of a stack around it is that row now. */
static bool end_loop(struct prover *p, const struct op *r)
{
	for (int64_t k = 0; k < r->at.ncarry; k++) {
		const struct value *o = r->out[k], *whole = made_in(p, o);

		if (!whole)
			continue;
		if (held(p, o)->spot.adds)
			return unsafe(p, r, "%s takes the place of a sum over the microbatches", prove_name(p, o));
		if (!read_value(p, r, o))
			return false;
		held(p, o)->is = held(p, whole)->is;
		if (!write_at(p, r, o, range_of(p, &held(p, o)->spot), held(p, o)->is))
			return false;
	}
	return true;
}

static bool walk_body(struct prover *p, const struct block *body)
{
	for (const struct op *op = body->first; op; op = op->next)
		if (!walk_op(p, op))
			return false;
	return true;
}

static bool walk_trips(struct prover *p, const struct op *r, int64_t trips)
{
	int depth = prove_depth(r->home);
	bool whole = holds_loop(r->body), back = goes_back(r);
	struct bytes rows[FEW + 2];
	int64_t n = whole ? trips : 0;

	if (!trips)
		return prove_idle(p, r);
	for (int64_t at = 0; !whole && at < trips; at = rows[n++].hi)
		rows[n] = next_rows(at, trips);
	for (const struct op *op = r->body->first; n && op; op = op->next)
		if (HAS(op, ahead) && !fly_ahead(p, op, depth, rows_of(rows, n, whole, back ? n - 1 : 0), p->turns[depth]))
			return false;
	for (int64_t i = 0; i < n; i++, p->turns[depth]++) {
		int64_t k = back ? n - 1 - i : i;

		set_iter(p, depth, rows_of(rows, n, whole, k), p->turns[depth]);
		p->next = rows_of(rows, n, whole, back ? k - 1 : k + 1);
		if (!begin_iteration(p, r) || !walk_body(p, r->body) || !carry(p, r))
			return false;
	}
	return true;
}

static bool walk_chunk(struct prover *p, const struct op *r, int g)
{
	struct trips t = pipe_trips(p->m, r->at.dim, g);

	p->chunk_at = t.lo;
	p->stage_at = pipe_row(p->m, r->at.dim, g);
	return walk_trips(p, r, t.hi - t.lo);
}

/* Once a step a stage runs its rows chunk by chunk: what it carries on must not come from other stages, nor from a
 * chunk behind. */
static bool walk_chunks(struct prover *p, const struct op *r)
{
	bool all = pipe_rows(p->m, r->at.dim, p->stage) == dim_size(p->m, r->at.dim);

	for (int64_t k = 0; k < r->at.ncarry; k++)
		if (!repeat_local(r, (uint32_t)k) && (!all || goes_back(r)))
			return unsafe(p, r, "%s is carried on from stage to stage once a step", prove_name(p, r->out[k]));
	for (int g = 0; g < pipe_chunks(p->m); g++)
		if (pipe_stage(p->m, g) == p->stage && !walk_chunk(p, r, g))
			return false;
	return true;
}

bool walk_repeat(struct prover *p, const struct op *r)
{
	int64_t chunk_at = p->chunk_at, stage_at = p->stage_at;
	struct bytes next = p->next;

	if (!r->home->owner)
		p->kept = kept_part(p->m, r->at.dim);
	bool ok = begin_loop(p, r);

	if (ok && is_piped(p, r)) {
		ok = p->chunk < 0 ? walk_chunks(p, r) : walk_chunk(p, r, p->chunk);
	} else if (ok) {
		if (!r->home->owner)
			p->chunk_at = p->stage_at = 0;
		ok = walk_trips(p, r, !is_first_part(p->m, r) ? dim_size(p->m, r->at.dim) :
				in_first(p->m, r->at.dim, p->iter[prove_depth(r->home) - 1].lo));
	}
	p->next = next;
	p->chunk_at = chunk_at;
	p->stage_at = stage_at;
	return ok && end_loop(p, r);
}
