/* runtime/place.c - where values lie: offsets of the plan, and the aliases of passes/memory.c. */
#include "runtime/place.h"

struct extent rank_extent(const struct module *m, dimid d, const struct axes *on, const int *coord)
{
	return extent_of(m, d, on, coord);
}

struct order order_of(const struct module *m, dimid d, int64_t start)
{
	return (struct order){ start, dim_size(m, d), m->dims.at[d].zigzag };
}

int64_t order_index(const struct order *o, int64_t i)
{
	return zigzag_index(o->size, o->zigzag, o->start + i);
}

int64_t order_run(const struct order *o, int64_t i, int64_t end)
{
	if (!o->zigzag)
		return end - i;
	int64_t chunk = o->size / (2 * (int64_t)o->zigzag), left = chunk - (o->start + i) % chunk;
	return left < end - i ? left : end - i;
}

void strides_of(const struct module *m, int nd, const dimid *d, const struct axes *on, int64_t *stride)
{
	int64_t s = 1;

	for (int i = nd - 1; i >= 0; i--) {
		stride[i] = s;
		s *= cap_of(m, d[i], &on[i]);
	}
}

int depth_of(const struct block *block)
{
	int n = 0;

	for (; block->owner; block = block->owner->home)
		n++;
	return n;
}

bool safe_bytes(const struct module *m, const struct value *v, int64_t *bytes)
{
	int64_t n = dtype_bytes(v->dt);

	for (int i = 0; i < v->nd; i++)
		if (__builtin_mul_overflow(n, cap_of(m, v->d[i], &v->sh.on[i]), &n))
			return false;
	*bytes = n;
	return n >= 0;
}

static bool lost(struct placing *p, const struct value *v, const char *why)
{
	return diag_error(p->d, v->span, "the plan gives %%%u no place: %s", v->id, why);
}

/* The op that v is sent to, and lives at. */
void note_targets(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->aux = NULL;
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
		if ((op->code == OP_ACCUMULATE || op->code == OP_WRITE) && !op->in[0]->aux)
			op->in[0]->aux = op;
		for (uint32_t i = 0; op->code == OP_WAIT && i < op->nin; i++)
			op->in[i]->aux = op;
		if (op->code == OP_REPEAT)
			note_targets(op->body);
	}
}

int buffer_region(const struct placing *p, const struct buffer *b)
{
	for (uint32_t i = 0; i < p->m->bufs.n; i++)
		if (p->m->bufs.at[i] == b)
			return p->r->buf[i];
	return -1;
}

bool is_cut(const struct module *m, const struct op *repeat)
{
	return !repeat->home->owner && pipe_axis(m) >= 0 && is_staged(m, repeat->at.dim);
}

int row_counter(const struct placing *p, const struct op *repeat, const struct value *whole, int region)
{
	if (!has_dim(whole, repeat->at.dim))
		return IN_KEPT;
	if (!is_cut(p->m, repeat))
		return depth_of(repeat->home);
	return p->r->at.at[region].kind == RG_STASH && p->r->at.at[region].dim != NODIM ? IN_CHUNK : IN_STAGE;
}

static bool step_row(struct placing *p, const struct value *v, const struct op *r, const struct value *whole,
		     struct loc *at)
{
	int64_t bytes;

	if (!is_row(p->m, v, whole, r->at.dim) || !safe_bytes(p->m, v, &bytes))
		return lost(p, v, "it is no row of the stack");
	if (at->n == MAX_NEST)
		return lost(p, v, "repeats are nested too deep");
	at->depth[at->n] = row_counter(p, r, whole, at->region);
	at->stride[at->n++] = bytes;
	return true;
}

static bool place_arg(struct placing *p, const struct value *v, struct loc *at)
{
	const struct op *r = v->home->owner;
	int64_t i = v->no;

	if (!r || r->code != OP_REPEAT)
		return lost(p, v, "it is the argument of no repeat");
	if (i < r->at.ncarry)
		return same_layout(v, r->out[i]->nd, r->out[i]->d, r->out[i]->sh.on, r->out[i]->dt) ?
			       place_value(p, r->out[i], at) : lost(p, v, "it differs from the result");
	if (i < r->at.ncarry + r->at.nwith)
		return same_layout(v, r->in[i]->nd, r->in[i]->d, r->in[i]->sh.on, r->in[i]->dt) ?
			       place_value(p, r->in[i], at) : lost(p, v, "it differs from the operand");
	return place_value(p, r->in[i], at) && step_row(p, v, r, r->in[i], at);
}

static bool place_in_buffer(struct placing *p, const struct value *v, const char *name, struct loc *at)
{
	const struct buffer *b = find_buffer(p->m, name);

	if (!b || b->off < 0 || !same_layout(v, b->nd, b->d, b->store.on, b->dt))
		return lost(p, v, "its layout is not that of the buffer");
	at->base = b->off;
	at->region = buffer_region(p, b);
	return true;
}

/* Where a result without an offset is sent. */
static bool place_target(struct placing *p, const struct value *v, struct loc *at)
{
	const struct op *r = v->home->owner, *to = v->aux;

	if (to && to->code == OP_WAIT) /* it is sent where what the wait makes of it is sent */
		return v->def->nout == to->nout && place_target(p, to->out[v->no], at);
	if (to && to->code == OP_ACCUMULATE && sums_in_step(p->m)) {
		const struct value *o = to->out[0];

		if (!same_layout(v, o->nd, o->d, o->sh.on, o->dt))
			return lost(p, v, "it differs from what it is added to");
		at->adds = true;
		return place_value(p, o, at);
	}
	for (uint32_t k = 0; r && k < v->home->yields.n; k++) {
		if (v->home->yields.at[k] != v)
			continue;
		if ((int64_t)k < r->at.ncarry)
			return place_arg(p, v->home->args.at[k], at);
		if (!is_row(p->m, v, r->out[k], r->at.dim))
			continue;
		if (sums_in_step(p->m) && repeat_adds(r, k))
			at->adds = true;
		if (!place_value(p, r->out[k], at) || !step_row(p, v, r, r->out[k], at))
			return false;
		at->rows |= is_cut(p->m, r);
		return true;
	}
	if (to && to->code == OP_WRITE)
		return place_in_buffer(p, v, to->at.buf, at);
	return lost(p, v, "it has no offset");
}

/* Two places, one behind the other. */
static bool take_turns(struct placing *p, const struct value *v, struct loc *at)
{
	int64_t bytes;
	int depth = depth_of(v->home) - 1;

	if (depth < 0 || depth >= MAX_NEST || at->n == MAX_NEST || !safe_bytes(p->m, v, &bytes) || bytes > INT64_MAX - 64)
		return lost(p, v, "it can't be gathered ahead");
	at->depth[at->n] = SLOT + depth;
	at->stride[at->n++] = (bytes + 63) / 64 * 64;
	return true;
}

static bool resolve(struct placing *p, const struct value *v, struct loc *at)
{
	int64_t a, b;

	if (v->off >= 0) {
		at->base = v->off;
		at->region = p->r->of[v->id];
		return !v->def || !HAS(v->def, ahead) || take_turns(p, v, at);
	}
	if (!v->def)
		return place_arg(p, v, at);
	const struct value *source = v->def->nin && alias_of(v->def, v->no) < v->def->nin ? v->def->in[alias_of(v->def, v->no)] : NULL;

	switch (v->def->code) {
	case OP_READ:
		return place_in_buffer(p, v, v->def->at.buf, at);
	case OP_ACCUMULATE:
		if (sums_in_step(p->m))
			return place_target(p, v, at);
		/* fall through */
	case OP_WAIT:
	case OP_RENAME:
	case OP_SPLIT:
	case OP_MERGE:
	case OP_REPEAT:
		if (v->def->code == OP_REPEAT && !is_first_part(p->m, v->def))
			return place_target(p, v, at);
		if (!safe_bytes(p->m, v, &a) || !safe_bytes(p->m, source, &b) || a != b)
			return lost(p, v, "it is larger than its operand");
		return place_value(p, source, at);
	default:
		return place_target(p, v, at);
	}
}

/* Aliases lead outward or to earlier values; a plan that goes in circles is stopped by the count. */
bool place_value(struct placing *p, const struct value *v, struct loc *at)
{
	if (++p->hops > 1000)
		return lost(p, v, "it goes in circles");
	bool ok = resolve(p, v, at);

	p->hops--;
	return ok;
}

static int64_t trips_at(const struct placing *p, const struct value *v, int depth)
{
	const struct block *b = v->home;

	if (depth >= SLOT && depth != IN_KEPT)
		return 2;
	for (int n = depth_of(b); b->owner; b = b->owner->home, n--)
		if (depth == IN_KEPT && n == 1)
			return dim_size(p->m, kept_part(p->m, b->owner->at.dim));
		else if (n == depth + 1)
			return dim_size(p->m, b->owner->at.dim);
	return -1;
}

bool place_checked(struct placing *p, const struct value *v, struct loc *at)
{
	int64_t bytes, high;

	*at = (struct loc){ 0 };
	p->hops = 0;
	if (!place_value(p, v, at))
		return false;
	if (!safe_bytes(p->m, v, &bytes) || __builtin_add_overflow(at->base, bytes, &high))
		return lost(p, v, "it is too large");
	if (at->region < 0 || at->base < 0 || at->base % 64)
		return lost(p, v, "it lies outside the arena");
	if (pipe_axis(p->m) >= 0) /* regions are as large as what lies in them */
		return true;
	for (int i = 0; i < at->n; i++) {
		int64_t trips = trips_at(p, v, at->depth[i]), more;

		if (!trips) /* a row of none: it is never had */
			return true;
		if (trips < 0 || __builtin_mul_overflow(at->stride[i], trips - 1, &more) ||
		    __builtin_add_overflow(high, more, &high))
			return lost(p, v, "it lies outside its repeat");
	}
	if (high > (at->region == p->r->host ? p->m->host : p->m->arena))
		return lost(p, v, "it lies outside the arena");
	return true;
}
