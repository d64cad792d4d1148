/* passes/prove_walk.c - ops, walked over abstract memory: what they read must be there, what they write takes
 * the place of what was there. */
#include "passes/prove.h"

enum { MOST_STEPS = 10000000 };

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

bool read_at(struct prover *p, const struct op *op, const struct value *v, struct bytes at, struct content is)
{
	struct piece hole;
	const struct piece *x;

	p->proof->reads++;
	if (at.lo < 0 || at.hi > prove_end(p, at))
		return unsafe(p, op, "it reads %s, which is not on stage %d", prove_name(p, v), p->stage);
	if (in_flight(p, op, v, at, false))
		return false;
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

/* The bytes that v has on this stage: of what is cut into stages only its rows. They are taken for
 * neighbours, in whatever order the dims are: see stack_range. */
static struct bytes rows_there(const struct prover *p, const struct value *v)
{
	const struct held *h = held(p, v);
	struct bytes at = range_of(p, &h->spot);

	if (at.lo >= 0 && h->cut != NODIM)
		at.hi = at.lo + h->row * pipe_rows(p->m, h->cut, p->stage);
	return at;
}

bool read_value(struct prover *p, const struct op *op, const struct value *v)
{
	return read_at(p, op, v, rows_there(p, v), held(p, v)->is);
}

bool write_at(struct prover *p, const struct op *op, const struct value *v, struct bytes at, struct content is)
{
	p->proof->writes++;
	if (at.lo < 0 || at.hi > prove_end(p, at))
		return unsafe(p, op, "it writes %s outside of the arena of stage %d", prove_name(p, v), p->stage);
	if (in_flight(p, op, v, at, true))
		return false;
	memory_put(&p->memory, at, is);
	return true;
}

/* Its place is taken by a content of its own. */
bool write_value(struct prover *p, const struct op *op, const struct value *v)
{
	struct bytes at = range_of(p, &held(p, v)->spot);

	held(p, v)->is = (struct content){ tag_new(p, v), at.lo };
	return write_at(p, op, v, at, held(p, v)->is);
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

/* -- compute -- */

/* A sum over stages: which of them give what they hold, the others zeros. */
bool takes_part(const struct prover *p, const struct op *op)
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

/* What lies in host memory is read by a from_host and made by a to_host, and by nothing else. */
bool keeps_off_host(struct prover *p, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin + op->nout; i++) {
		const struct value *v = i < op->nin ? op->in[i] : op->out[i - op->nin];
		bool host = p->r->host >= 0 && held(p, v)->spot.region == p->r->host;

		if (host != (op->code == (i < op->nin ? OP_FROM_HOST : OP_TO_HOST)))
			return unsafe(p, op, "%s %s in host memory", prove_name(p, v), host ? "lies" : "does not lie");
	}
	return true;
}

bool walk_compute(struct prover *p, const struct op *op)
{
	if (!keeps_off_host(p, op))
		return false;
	for (uint32_t i = 0; i < op->nin; i++)
		if (takes_part(p, op) && !read_value(p, op, op->in[i]))
			return false;
	if (!may_be_left(p, op) || (takes_part(p, op) && !apart(p, op)))
		return false;
	for (uint32_t i = 0; i < op->nout; i++)
		if (!write_result(p, op, op->out[i]))
			return false;
	if (is_async(op))
		fly(p, op);
	return true;
}

/* -- buffers -- */

static int buffer_no(const struct prover *p, const char *name)
{
	for (uint32_t i = 0; i < p->m->bufs.n; i++)
		if (streq(p->m->bufs.at[i]->name, name))
			return (int)i;
	return -1;
}

static struct spot buffer_spot(const struct prover *p, uint32_t buf)
{
	const struct buffer *b = p->m->bufs.at[buf];
	struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store };
	struct spot s = { .region = p->r->buf[buf], .base = b->off };

	memcpy(v.d, b->d, sizeof v.d);
	s.bytes = local_bytes(p->m, &v);
	if (p->r->at.at[s.region].dim != NODIM) {
		int64_t cap = cap_of(p->m, v.d[0], &v.sh.on[0]);

		s.rows = cap ? s.bytes / cap : 0;
	}
	return s;
}

void find_buffers(struct prover *p)
{
	p->buf_spot = NEWN(p->d->mem, struct spot, p->m->bufs.n + 1);
	for (uint32_t i = 0; i < p->m->bufs.n; i++)
		if (p->m->bufs.at[i]->role != B_INPUT)
			p->buf_spot[i] = buffer_spot(p, i);
}

struct bytes buffer_range(const struct prover *p, uint32_t buf)
{
	return range_of(p, &p->buf_spot[buf]);
}

static bool walk_read(struct prover *p, const struct op *op)
{
	int i = buffer_no(p, op->at.buf);
	const struct buffer *b = p->m->bufs.at[i];
	const struct value *v = op->out[0];

	if (b->role == B_INPUT)
		return write_result(p, op, v);
	if (p->made.at[p->bufs[i].tag])
		return unsafe(p, op, "'%s' has been written, which holds from the next step on", b->name);
	if (v->off < 0) {
		held(p, v)->is = p->bufs[i];
		return true;
	}
	if (meet(range_of(p, &held(p, v)->spot), buffer_range(p, (uint32_t)i)))
		return unsafe(p, op, "the copy of '%s' lies on the buffer", b->name);
	return read_at(p, op, v, buffer_range(p, (uint32_t)i), p->bufs[i]) && write_result(p, op, v);
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
