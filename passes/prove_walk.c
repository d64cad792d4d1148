/* passes/prove_walk.c - ops and loops, walked once over abstract memory.
 *
 * A loop is walked for a few of its iterations: the first two, all others at once as one wide row, the last,
 * and one more before it if their number is odd, so that what is used in turn ends as it does in the run. What
 * an iteration leaves for the next is met from both sides of the wide row. Loops that hold loops are
 * walked whole. */
#include "passes/prove.h"

enum { MOST_STEPS = 10000000, FEW = 4 };

static struct held *held(struct prover *p, const struct value *v)
{
	return &p->held[v->id];
}

struct bytes range_of(const struct prover *p, const struct spot *s)
{
	/* What lies on the host has addresses behind the arena. */
	const struct slot host = { round_up(p->arena), 1 };
	const struct slot *at = s->region == p->r->host ? &host : &p->slot[s->region];
	struct bytes b = { at->base + s->base * at->rows, 0 };

	if (at->base < 0)
		return (struct bytes){ -1, 0 };
	b.hi = b.lo + (s->rows ? s->rows * at->rows : s->bytes);

	for (int i = 0; i < s->n; i++) {
		b.lo += p->iter[s->depth[i]].lo * s->stride[i];
		b.hi += (p->iter[s->depth[i]].hi - 1) * s->stride[i];
	}
	return b;
}

uint32_t tag_new(struct prover *p, const struct value *v)
{
	PUSH(p->d->mem, &p->made, v);
	return p->made.n - 1;
}

const char *content_name(struct prover *p, struct content is)
{
	const struct value *v = is.tag ? p->made.at[is.tag] : NULL;

	if (!is.tag)
		return "nothing";
	return v ? prove_name(p, v) : "a buffer";
}

/* -- reading and writing -- */

static const char *flight_name(const struct flight *f)
{
	return f->op ? opinfo[f->op->code].name : "a message";
}

static bool read_at(struct prover *p, const struct op *op, const struct value *v, struct bytes at, struct content is)
{
	struct piece hole;
	const struct piece *x;

	p->proof->reads++;
	if (at.lo < 0 || at.hi > prove_end(p, at))
		return unsafe(p, op, "it reads %s, which is not on stage %d", prove_name(p, v), p->stage);
	for (uint32_t i = 0; i < p->flights.n; i++)
		if (p->flights.at[i].written && meet(p->flights.at[i].at, at))
			return unsafe(p, op, "it reads %s while %s still writes there", prove_name(p, v),
				      flight_name(&p->flights.at[i]));
	x = is.tag ? memory_find(&p->memory, at, is, &hole) : NULL;
	if (is.tag && !x)
		return true;
	if (!is.tag && at.lo == at.hi)
		return true;
	if (!is.tag)
		return unsafe(p, op, "it reads %s, which has not been made", prove_name(p, v));
	return unsafe(p, op, "it reads %s, but bytes %lld to %lld hold %s", prove_name(p, v),
		      (long long)(x->at.lo > at.lo ? x->at.lo : at.lo), (long long)(x->at.hi < at.hi ? x->at.hi : at.hi),
		      x->is.tag == is.tag ? "another part of it" : content_name(p, x->is));
}

bool read_value(struct prover *p, const struct op *op, const struct value *v)
{
	return read_at(p, op, v, range_of(p, &held(p, v)->spot), held(p, v)->is);
}

static bool write_at(struct prover *p, const struct op *op, const struct value *v, struct bytes at, struct content is)
{
	p->proof->writes++;
	if (at.lo < 0 || at.hi > prove_end(p, at))
		return unsafe(p, op, "it writes %s outside of the arena of stage %d", prove_name(p, v), p->stage);
	for (uint32_t i = 0; i < p->flights.n; i++)
		if (meet(p->flights.at[i].at, at))
			return unsafe(p, op, "it writes %s where %s is still at work", prove_name(p, v),
				      flight_name(&p->flights.at[i]));
	memory_put(&p->memory, at, is);
	return true;
}

/* Its place is taken by a content of its own. */
static bool write_value(struct prover *p, const struct op *op, const struct value *v)
{
	struct bytes at = range_of(p, &held(p, v)->spot);

	held(p, v)->is = (struct content){ tag_new(p, v), at.lo };
	return write_at(p, op, v, at, held(p, v)->is);
}

static struct spot row_spot(struct prover *p, const struct op *r, const struct value *whole, const struct value *row)
{
	struct spot s = held(p, whole)->spot;

	s.bytes = held(p, row)->spot.bytes;
	s.rows = 0;
	s.depth[s.n] = row_depth(p, r, &s);
	s.stride[s.n++] = s.bytes;
	return s;
}

/* -- stacks -- */

/* A stack that is not of rows, one behind the other, is taken whole at every iteration. */
static bool in_rows(const struct prover *p, const struct op *r, const struct value *whole, const struct value *row)
{
	return row_of(p->m, row, whole, r->at.dim);
}

static bool put_row(struct prover *p, const struct op *r, uint32_t k)
{
	const struct value *y = r->body->yields.at[k], *whole = r->out[k];
	struct held *w = held(p, whole);
	bool sums = sums_in_step(p->m) && sums_up(r, k);

	if (!in_rows(p, r, whole, y)) {
		if (sums)
			return unsafe(p, r, "a sum over the microbatches that is not stacked by rows");
		return read_value(p, r, y) && write_at(p, r, whole, range_of(p, &w->spot), w->is);
	}
	struct spot s = row_spot(p, r, whole, y);
	struct bytes at = range_of(p, &s);

	if (same_spot(&s, &held(p, y)->spot))
		return true;
	if (!read_value(p, r, y))
		return false;
	if (meet(at, range_of(p, &held(p, y)->spot)))
		return unsafe(p, r, "%s lies across its row of the stack", prove_name(p, y));
	if (sums && p->nth > 0 && !read_at(p, r, whole, at, w->was))
		return false;
	return write_at(p, r, whole, at, w->is);
}

static bool put_rows(struct prover *p, const struct op *op)
{
	const struct op *r = op->home->owner;

	for (uint32_t k = r ? (uint32_t)r->at.ncarry : 0; r && k < r->body->yields.n; k++)
		if (r->body->yields.at[k]->def == op && !put_row(p, r, k))
			return false;
	return true;
}

/* The stack or sum that v is made in, if it is. */
static const struct value *made_in(struct prover *p, const struct value *v)
{
	const struct op *r = v->home->owner, *to = held(p, v)->to;

	if (to && to->code == OP_WAIT)
		return v->def && v->def->nout == to->nout ? made_in(p, to->out[v->no]) : NULL;
	if (to && to->code == OP_ACCUMULATE && sums_in_step(p->m) && same_spot(&held(p, v)->spot, &held(p, to->out[0])->spot))
		return to->out[0];
	for (uint32_t k = r ? (uint32_t)r->at.ncarry : 0; r && k < r->body->yields.n; k++)
		if (r->body->yields.at[k] == v && in_rows(p, r, r->out[k], v)) {
			struct spot s = row_spot(p, r, r->out[k], v);

			if (same_spot(&s, &held(p, v)->spot))
				return r->out[k];
		}
	return NULL;
}

/* -- the ops -- */

/* A result over an operand, or over another result, where that is not safe. */
static bool apart(struct prover *p, const struct op *op)
{
	for (uint32_t k = 0; k < op->nout; k++) {
		struct bytes at = range_of(p, &held(p, op->out[k])->spot);

		for (uint32_t j = 0; j < k; j++)
			if (meet(at, range_of(p, &held(p, op->out[j])->spot)))
				return unsafe(p, op, "its results %s and %s overlap", prove_name(p, op->out[j]),
					      prove_name(p, op->out[k]));
		for (uint32_t i = 0; i < op->nin; i++) {
			struct bytes in = range_of(p, &held(p, op->in[i])->spot);

			if (!meet(at, in) || (at.lo == in.lo && at.hi == in.hi && may_lie_on(op, k, i)))
				continue;
			return unsafe(p, op, "its result %s lies on its operand %s", prove_name(p, op->out[k]),
				      prove_name(p, op->in[i]));
		}
	}
	return true;
}

/* Does a sum over the microbatches begin? Rows of a stack do so chunk by chunk. */
static bool begins(const struct prover *p, const struct value *sum)
{
	return sum->def->code == OP_REPEAT ? !p->nth : p->first;
}

static bool write_result(struct prover *p, const struct op *op, const struct value *v)
{
	const struct value *whole = made_in(p, v);
	struct held *h = held(p, v);

	if (!whole)
		return h->spot.adds ? unsafe(p, op, "%s adds to what nothing has made", prove_name(p, v)) : write_value(p, op, v);
	struct bytes at = range_of(p, &h->spot);

	if (h->spot.adds && op->code != OP_EINSUM)
		return unsafe(p, op, "%s is to be added to a sum; only an einsum can do that", prove_name(p, v));
	if (whole->def->code == OP_ACCUMULATE) {
		held(p, whole)->was = held(p, whole)->is;
		held(p, whole)->is = (struct content){ tag_new(p, whole), at.lo };
	}
	if (h->spot.adds && !begins(p, whole) && !read_at(p, op, whole, at, held(p, whole)->was))
		return false;
	h->is = held(p, whole)->is;
	return write_at(p, op, v, at, h->is);
}

/* -- collectives in flight -- */

void start_flight(struct prover *p, const struct op *op, struct bytes at, bool written)
{
	PUSH(p->d->mem, &p->flights, ((struct flight){ at, written, op }));
}

static void end_flights(struct prover *p, const struct op *op)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->flights.n; i++)
		if (p->flights.at[i].op != op)
			p->flights.at[n++] = p->flights.at[i];
	p->flights.n = n;
}

/* It has started: its operands are read, its results written, until something waits for it. */
static void fly(struct prover *p, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++)
		start_flight(p, op, range_of(p, &held(p, op->in[i])->spot), false);
	for (uint32_t i = 0; i < op->nout; i++)
		start_flight(p, op, range_of(p, &held(p, op->out[i])->spot), true);
}

static bool walk_wait(struct prover *p, const struct op *op)
{
	const struct op *start = op->in[0]->def;

	end_flights(p, start);
	for (uint32_t i = 0; i < op->nin; i++) {
		if (!same_spot(&held(p, op->in[i])->spot, &held(p, op->out[i])->spot))
			return unsafe(p, op, "%s is not where the collective puts it", prove_name(p, op->out[i]));
		held(p, op->out[i])->is = held(p, op->in[i])->is;
	}
	return true;
}

/* rows: of the loop's range on this chunk. */
static void set_iter(struct prover *p, int depth, struct bytes rows, int64_t turn)
{
	int64_t at = depth ? 0 : p->chunk_at;

	p->iter[depth] = (struct bytes){ at + rows.lo, at + rows.hi };
	p->iter[SLOT + depth] = (struct bytes){ turn & 1, (turn & 1) + 1 };
	if (depth)
		return;
	p->iter[IN_CHUNK] = rows;
	p->iter[IN_STAGE] = (struct bytes){ p->stage_at + rows.lo, p->stage_at + rows.hi };
}

/* The gather of another iteration than this, from its start on. */
static bool fly_ahead(struct prover *p, const struct op *op, int depth, struct bytes rows, int64_t turn)
{
	struct bytes kept[NCOUNT];
	bool ok = true;

	memcpy(kept, p->iter, sizeof kept);
	set_iter(p, depth, rows, turn);
	for (uint32_t i = 0; ok && i < op->nin; i++) {
		held(p, op->in[i])->is = held(p, op->home->owner->in[op->in[i]->no])->is;
		ok = op->in[i]->off < 0 ? read_value(p, op, op->in[i]) :
					  unsafe(p, op, "%s is a copy, made in its own iteration", prove_name(p, op->in[i]));
	}
	for (uint32_t i = 0; ok && i < op->nout; i++)
		ok = write_at(p, op, op->out[i], range_of(p, &held(p, op->out[i])->spot), (struct content){ 0, 0 });
	if (ok)
		fly(p, op);
	memcpy(p->iter, kept, sizeof kept);
	return ok;
}

/* A sum over stages: which of them give what they hold, the others zeros. */
static bool takes_part(const struct prover *p, const struct op *op)
{
	if (op->code != OP_TO_PARTIAL || !p->l || !HAS(op, from) || !op->at.from)
		return true;
	return HAS(op, form) && op->at.form ? p->places & op->at.from : p->stage == pipe_first_stage(p->m, op->at.from);
}

/* What a stage has made is a term of its own: it may not be left out. */
static bool may_be_left(struct prover *p, const struct op *op)
{
	return takes_part(p, op) || !(HAS(op, form) && op->at.form) || !held(p, op->in[0])->is.tag ||
	       unsafe(p, op, "what stage %d has of %s is left out of the sum", p->stage, prove_name(p, op->in[0]));
}

static bool walk_compute(struct prover *p, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (takes_part(p, op) && !read_value(p, op, op->in[i]))
			return false;
	if (!may_be_left(p, op) || (takes_part(p, op) && !apart(p, op)))
		return false;
	for (uint32_t i = 0; i < op->nout; i++)
		if (!write_result(p, op, op->out[i]))
			return false;
	if (HAS(op, async) && op->at.async)
		fly(p, op);
	return true;
}

/* What the iteration before started is there; the next one's starts. */
static bool walk_ahead(struct prover *p, const struct op *op)
{
	int depth = prove_depth(op->home) - 1;

	end_flights(p, op);
	return walk_compute(p, op) &&
	       (p->next.lo == p->next.hi || fly_ahead(p, op, depth, p->next, p->turns[depth] + 1));
}

static int buffer_no(const struct prover *p, const char *name)
{
	for (uint32_t i = 0; i < p->m->bufs.n; i++)
		if (streq(p->m->bufs.at[i]->name, name))
			return (int)i;
	return -1;
}

struct bytes buffer_range(const struct prover *p, uint32_t buf)
{
	const struct buffer *b = p->m->bufs.at[buf];
	struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store };
	struct spot s = { .region = p->r->buf[buf], .base = b->off };

	memcpy(v.d, b->d, sizeof v.d);
	s.bytes = local_bytes(p->m, &v);
	if (p->r->at.at[s.region].dim != NODIM)
		s.rows = s.bytes / cap_of(p->m, v.d[0], &v.sh.on[0]);
	return range_of(p, &s);
}

static bool walk_read(struct prover *p, const struct op *op)
{
	int i = buffer_no(p, op->at.buf);
	const struct buffer *b = p->m->bufs.at[i];
	const struct value *v = op->out[0];

	if (b->role == B_INPUT)
		return write_value(p, op, v);
	if (v->off < 0) {
		held(p, v)->is = p->bufs[i];
		return true;
	}
	if (meet(range_of(p, &held(p, v)->spot), buffer_range(p, (uint32_t)i)))
		return unsafe(p, op, "the copy of '%s' lies on the buffer", b->name);
	return read_at(p, op, v, buffer_range(p, (uint32_t)i), p->bufs[i]) && write_value(p, op, v);
}

static bool walk_write(struct prover *p, const struct op *op)
{
	int i = buffer_no(p, op->at.buf);
	const struct buffer *b = p->m->bufs.at[i];
	struct held *h = held(p, op->in[0]);
	struct bytes to = buffer_range(p, (uint32_t)i), from = range_of(p, &h->spot);

	if (!read_value(p, op, op->in[0]))
		return false;
	if (p->eval)
		return unsafe(p, op, "an evaluation would write '%s'", b->name);
	if (!h->spot.n && from.lo == to.lo && from.hi == to.hi) {
		p->bufs[i] = h->is;
		return true;
	}
	if (meet(from, to))
		return unsafe(p, op, "%s lies across the buffer '%s'", prove_name(p, op->in[0]), b->name);
	p->bufs[i] = (struct content){ tag_new(p, op->in[0]), to.lo };
	return write_at(p, op, op->in[0], to, p->bufs[i]);
}

static bool walk_view(struct prover *p, const struct op *op)
{
	const struct value *in = op->in[0], *out = op->out[0];

	if (out->off < 0) {
		held(p, out)->is = held(p, in)->is;
		return true;
	}
	return walk_compute(p, op);
}

static bool walk_accumulate(struct prover *p, const struct op *op)
{
	struct held *in = held(p, op->in[0]), *out = held(p, op->out[0]);

	if (!sums_in_step(p->m))
		return walk_view(p, op);
	if (same_spot(&in->spot, &out->spot)) { /* it was added where it was made */
		out->is = in->is;
		return in->spot.adds || !local_bytes(p->m, op->in[0]) || unsafe(p, op, "%s takes the place of its own sum", prove_name(p, op->in[0]));
	}
	if (!read_value(p, op, op->in[0]) || !apart(p, op))
		return false;
	if (!p->first && !read_value(p, op, op->out[0]))
		return false;
	return write_value(p, op, op->out[0]);
}

/* -- repeats -- */

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
	return p->l && !r->home->owner && is_staged(p->m, r->at.dim) && p->chunk >= 0;
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
	if (!is_piped(p, r) || (HAS(r, local) && k < 63 && (r->at.local >> k & 1)))
		return true;
	struct trips t = pipe_trips(p->m, r->at.dim, p->chunk);

	return HAS(r, reverse) && r->at.reverse ? t.hi == dim_size(p->m, r->at.dim) : t.lo == 0;
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

static bool begin_loop(struct prover *p, const struct op *r)
{
	for (int64_t k = 0; k < r->at.ncarry; k++)
		if (!begin_carry(p, r, k))
			return false;
	for (uint32_t k = (uint32_t)r->at.ncarry; k < r->nout; k++) {
		const struct value *in = made_in(p, r->out[k]);
		struct held *h = held(p, r->out[k]);
		int64_t lo = range_of(p, &h->spot).lo;

		if (in) {
			h->was = held(p, in)->was;
			h->is = held(p, in)->is;
		} else if (sums_in_step(p->m) && sums_up(r, k)) {
			h->was = (struct content){ level_of(p, r->out[k]), lo };
			h->is = (struct content){ level_of(p, r->out[k]) + 1, lo };
		} else {
			h->is = (struct content){ tag_new(p, r->out[k]), lo };
		}
	}
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
		struct spot s = in_rows(p, r, from, a) ? row_spot(p, r, from, a) : held(p, from)->spot;

		if (meet(range_of(p, &s), range_of(p, &held(p, a)->spot)))
			return unsafe(p, r, "%s lies on the stack that it is a row of", prove_name(p, a));
		if (!read_at(p, r, from, range_of(p, &s), held(p, from)->is) || !write_value(p, r, a))
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
	return kept <= p->m->workspace || unsafe(p, r, "its carried values need %lld bytes of workspace", (long long)kept);
}

static bool walk_body(struct prover *p, const struct block *body);

static bool walk_trips(struct prover *p, const struct op *r, int64_t trips)
{
	int depth = prove_depth(r->home);
	bool whole = holds_loop(r->body), back = HAS(r, reverse) && r->at.reverse;
	struct bytes rows[FEW + 2];
	int64_t n = whole ? trips : 0;

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

static bool walk_repeat(struct prover *p, const struct op *r)
{
	int64_t trips = dim_size(p->m, r->at.dim), chunk_at = p->chunk_at, stage_at = p->stage_at;
	struct bytes next = p->next;
	bool ok;

	if (p->l && !r->home->owner && is_staged(p->m, r->at.dim) && p->chunk < 0)
		return unsafe(p, r, "a loop of the pipeline outside of its chunks");
	if (!r->home->owner)
		p->chunk_at = p->stage_at = 0;
	if (is_piped(p, r)) {
		struct trips t = pipe_trips(p->m, r->at.dim, p->chunk);

		trips = t.hi - t.lo;
		p->chunk_at = t.lo;
		p->stage_at = pipe_row(p->m, r->at.dim, p->chunk);
	}
	ok = begin_loop(p, r) && walk_trips(p, r, trips);
	p->next = next;
	p->chunk_at = chunk_at;
	p->stage_at = stage_at;
	return ok;
}

static bool walk_one(struct prover *p, const struct op *op)
{
	if (++p->steps > MOST_STEPS)
		return unsafe(p, op, "the loops around it are too long to be walked");
	switch (op->code) {
	case OP_READ:
		return walk_read(p, op);
	case OP_WRITE:
		return walk_write(p, op);
	case OP_RENAME:
	case OP_SPLIT:
	case OP_MERGE:
		return walk_view(p, op);
	case OP_ACCUMULATE:
		return walk_accumulate(p, op);
	case OP_REPEAT:
		return walk_repeat(p, op);
	case OP_WAIT:
		return walk_wait(p, op);
	default:
		return HAS(op, ahead) ? walk_ahead(p, op) : walk_compute(p, op);
	}
}

bool walk_op(struct prover *p, const struct op *op)
{
	return walk_one(p, op) && put_rows(p, op);
}

static bool walk_body(struct prover *p, const struct block *body)
{
	for (const struct op *op = body->first; op; op = op->next)
		if (!walk_op(p, op))
			return false;
	return true;
}
