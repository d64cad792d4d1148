/* ir/region.c - which region a value lies in, and which values pass from chunk to chunk. */
#include "ir/region.h"

int64_t round_up(int64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

int op_place(const struct op *op)
{
	return HAS(op, where) && op->at.where ? __builtin_ctzll((uint64_t)op->at.where) : 0;
}

int op_section(const struct op *op)
{
	return HAS(op, late) ? SECTION_W : (int)op->phase;
}

int action_section(const struct action *a)
{
	return a->kind == ACT_W ? SECTION_W : a->kind == ACT_F ? FORWARD : BACKWARD;
}

bool sums_in_step(const struct module *m)
{
	return m->micro > 1 || pipe_axis(m) >= 0;
}

bool holds_buffer(const struct module *m, const struct buffer *b, int stage)
{
	return b->role != B_INPUT && (!b->where || pipe_axis(m) < 0 || (pipe_places(m, stage) & b->where));
}

/* -- who reads what -- */

struct readers {
	int64_t fore, back; /* places */
	int64_t fore_in, back_in; /* repeats that begin with it, and nothing else there reads it */
	int64_t until_w;    /* of those in back: W does */
	bool late;          /* the epilogue */
};

struct building {
	const struct module *m;
	struct arena *mem;
	struct regions *r;
	struct readers *by; /* of roots, by id */
};

static void find_roots(struct building *b)
{
	for (const struct op *op = b->m->top.first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++) {
			const struct value *v = op->out[i];

			b->r->root[v->id] = is_alias(b->m, op) ? b->r->root[op->in[alias_of(op, i)]->id] : v;
			if (op->code == OP_READ && reads_in_place(b->m, op))
				b->r->root[v->id] = NULL;
		}
}

/* Is operand i what the first chunk, as the repeat runs, begins with? The others go on with what that has made. */
static bool is_entry(const struct building *b, const struct op *op, uint32_t i)
{
	bool reverse = HAS(op, reverse) && op->at.reverse;

	return op->code == OP_REPEAT && i < op->at.ncarry && is_staged(b->m, op->at.dim) && !repeat_local(op, i) &&
	       reverse == (op->phase == BACKWARD);
}

static void read_at(struct building *b, const struct op *op, const struct value *in, bool entry)
{
	const struct value *v = b->r->root[in->id];
	struct readers *x = v ? &b->by[v->id] : NULL;
	int64_t place = op->phase == FORWARD || op->phase == BACKWARD ? 1ll << op_place(op) : 0;

	if (!x)
		return;
	if (op->phase == FORWARD)
		*(entry ? &x->fore_in : &x->fore) |= place;
	else if (op->phase == BACKWARD)
		*(entry ? &x->back_in : &x->back) |= place;
	else if (op->phase == EPILOGUE)
		x->late = true;
	if (op->phase == BACKWARD && HAS(op, late))
		x->until_w |= 1ll << op_place(op);
}

/* A collective reads its operands until it is waited for. */
static void find_readers(struct building *b)
{
	for (const struct op *op = b->m->top.first; op; op = op->next) {
		const struct op *start = op->code == OP_WAIT ? op->in[0]->def : NULL;

		for (uint32_t i = 0; i < op->nin; i++)
			read_at(b, op, op->in[i], is_entry(b, op, i));
		for (uint32_t i = 0; start && i < start->nin; i++)
			read_at(b, op, start->in[i], false);
	}
}

/* -- regions -- */

static bool same_region(const struct region *a, const struct region *b)
{
	return a->kind == b->kind && a->phase == b->phase && a->place == b->place && a->where == b->where &&
	       a->dim == b->dim && a->v == b->v && a->late == b->late && a->until_w == b->until_w;
}

static int find_region(struct building *b, const struct region *x)
{
	for (uint32_t i = 0; i < b->r->at.n; i++)
		if (same_region(&b->r->at.at[i], x))
			return (int)i;
	PUSH(b->mem, &b->r->at, *x);
	return (int)b->r->at.n - 1;
}

/* The dim along which it has rows on each stage that are whole there. */
static dimid rows_of(const struct module *m, int nd, const dimid *d, const struct axes *on)
{
	return nd && is_staged(m, d[0]) && on[0].n == 1 ? d[0] : NODIM;
}

/* What is cut into stages, along whichever dim, all stages have, some of them no rows. */
static int step_region(struct building *b, int64_t where, int nd, const dimid *d, const struct axes *on)
{
	for (int i = 0; i < nd; i++)
		if (is_staged(b->m, d[i]) && on[i].n)
			where = 0;
	return find_region(b, &(struct region){ .kind = RG_STEP, .where = where, .dim = rows_of(b->m, nd, d, on) });
}

static int work_region(struct building *b, const struct op *op)
{
	if (op->phase == PROLOGUE || op->phase == EPILOGUE)
		return find_region(b, &(struct region){ .kind = RG_ONCE, .phase = op->phase, .dim = NODIM });
	return find_region(b, &(struct region){ .kind = RG_WORK, .phase = op->phase, .place = op_place(op), .dim = NODIM,
						.late = HAS(op, late) });
}

static bool is_carried(const struct module *m, const struct value *v)
{
	const struct op *op = v->def;

	return op->code == OP_REPEAT && is_staged(m, op->at.dim) && v->no < op->at.ncarry && !repeat_local(op, v->no);
}

/* A value of FORWARD or BACKWARD. */
static int micro_region(struct building *b, const struct value *v)
{
	const struct op *op = v->def;
	struct readers x = b->by[v->id];
	int place = op_place(op);
	int64_t mine = 1ll << place, others = (x.fore | x.back | x.fore_in | x.back_in) & ~mine;
	bool fore = op->phase == FORWARD, late = HAS(op, late), carried = is_carried(b->m, v);

	if (op->code == OP_ACCUMULATE || x.late)
		return step_region(b, mine, v->nd, v->d, v->sh.on);
	if (op->code == OP_REPEAT && is_staged(b->m, op->at.dim) && v->no >= op->at.ncarry)
		return find_region(b, &(struct region){ .kind = RG_STASH, .phase = op->phase, .place = place, .late = late,
							.until_w = x.until_w, .dim = rows_of(b->m, v->nd, v->d, v->sh.on) });
	if (carried || others)
		return find_region(b, &(struct region){ .kind = RG_KEPT, .phase = op->phase, .place = place, .dim = NODIM,
							.v = v, .carried = carried, .fore = x.fore, .back = x.back,
							.fore_in = x.fore_in, .back_in = x.back_in, .until_w = x.until_w });
	if ((fore && x.back) || (!late && x.until_w))
		return find_region(b, &(struct region){ .kind = RG_STASH, .phase = op->phase, .place = place, .dim = NODIM,
							.until_w = x.until_w });
	return work_region(b, op);
}

static int top_region(struct building *b, const struct value *v)
{
	const struct op *op = v->def;
	const struct readers *x = &b->by[v->id];

	if (op->phase == FORWARD || op->phase == BACKWARD)
		return micro_region(b, v);
	if (op->phase == PROLOGUE && (x->fore || x->back || x->fore_in || x->back_in || x->late))
		return step_region(b, HAS(op, where) ? op->at.where : 0, v->nd, v->d, v->sh.on);
	return work_region(b, op);
}

static void fill_body(struct regions *r, const struct block *block, int region)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		r->of[block->args.at[i]->id] = region;
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			r->of[op->out[i]->id] = region;
		if (op->code == OP_REPEAT)
			fill_body(r, op->body, region);
	}
}

static void fill_piped(struct building *b)
{
	const struct module *m = b->m;

	find_roots(b);
	find_readers(b);
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *buf = m->bufs.at[i];

		b->r->buf[i] = buf->role == B_INPUT ? -1 : step_region(b, buf->where, buf->nd, buf->d, buf->store.on);
	}
	for (const struct op *op = m->top.first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			b->r->of[op->out[i]->id] = b->r->root[op->out[i]->id] == op->out[i] ? top_region(b, op->out[i]) : -1;
		if (op->code == OP_REPEAT)
			fill_body(b->r, op->body, work_region(b, op));
	}
}

static void host_region(struct building *b)
{
	struct regions *r = b->r;

	r->host = -1;
	for (uint32_t i = 0; i < b->m->bufs.n; i++) {
		if (!b->m->bufs.at[i]->host)
			continue;
		if (r->host < 0)
			r->host = find_region(b, &(struct region){ .kind = RG_HOST, .dim = NODIM });
		r->buf[i] = r->host;
	}
}

struct regions *regions_of(struct arena *mem, const struct module *m)
{
	struct regions *r = NEW(mem, struct regions);
	struct building b = { m, mem, r, NEWN(mem, struct readers, m->next_id + 1) };

	r->of = NEWN(mem, int, m->next_id + 1);
	r->buf = NEWN(mem, int, m->bufs.n + 1);
	r->root = NEWN(mem, const struct value *, m->next_id + 1);
	if (pipe_axis(m) >= 0)
		fill_piped(&b);
	else
		PUSH(mem, &r->at, ((struct region){ .kind = RG_ALL, .dim = NODIM }));
	host_region(&b);
	return r;
}

/* -- sizes -- */

static void reach(struct regions *r, const struct module *m, const struct value *v)
{
	int no = r->of[v->id];
	struct region *x = v->off >= 0 && no >= 0 && no != r->host ? &r->at.at[no] : NULL;
	int64_t bytes = x ? local_bytes(m, v) : 0;

	if (!x)
		return;
	if (x->dim != NODIM && cap_of(m, x->dim, &v->sh.on[0]))
		bytes /= cap_of(m, x->dim, &v->sh.on[0]);
	bytes = round_up(bytes) * (v->def && HAS(v->def, ahead) ? 2 : 1) + v->off;
	x->bytes = bytes > x->bytes ? bytes : x->bytes;
}

static void reach_block(struct regions *r, const struct module *m, const struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		reach(r, m, block->args.at[i]);
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			reach(r, m, op->out[i]);
		if (op->code == OP_REPEAT)
			reach_block(r, m, op->body);
	}
}

void regions_measure(struct regions *r, const struct module *m)
{
	for (uint32_t i = 0; i < r->at.n; i++)
		r->at.at[i].bytes = 0;
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store, .off = b->off, .id = m->next_id };

		memcpy(v.d, b->d, sizeof v.d);
		r->of[m->next_id] = r->buf[i];
		reach(r, m, &v);
	}
	reach_block(r, m, &m->top);
}

/* -- what chunks run and read, and what passes between them -- */

/* Where the first iteration of each pipelined repeat, as FORWARD (BACKWARD) runs it, is. */
static void find_entries(const struct module *m, struct chunk_map *c)
{
	for (uint32_t k = 0; k < m->pipe.loops.n; k++) {
		dimid d = m->pipe.loops.at[k];
		int64_t n = dim_size(m, d);

		if (!n)
			continue;
		c->entered[0][pipe_chunk_of(m, d, 0)] |= 1ll << (2 * k + 1);
		c->entered[1][pipe_chunk_of(m, d, n - 1)] |= 1ll << (2 * k + 1);
	}
}

struct chunk_map chunk_map_of(struct arena *mem, const struct module *m)
{
	struct chunk_map c = { .chunks = pipe_chunks(m), .last = 2 * (int)m->pipe.loops.n };

	c.runs = NEWN(mem, int64_t, c.chunks);
	c.entered[0] = NEWN(mem, int64_t, c.chunks);
	c.entered[1] = NEWN(mem, int64_t, c.chunks);
	for (int g = 0; g < c.chunks; g++)
		for (int p = 0; p <= c.last; p++)
			c.runs[g] |= pipe_runs(m, g, p) ? 1ll << p : 0;
	find_entries(m, &c);
	return c;
}

int64_t region_reads(const struct chunk_map *c, const struct region *x, int g, enum phase phase)
{
	int64_t all = phase == FORWARD ? x->fore : x->back, one = phase == FORWARD ? x->fore_in : x->back_in;

	return c->runs[g] & (all | (one & c->entered[phase != FORWARD][g]));
}

/* Does chunk g read it, or go on with it? */
static bool is_wanted(const struct chunk_map *c, const struct region *x, int g)
{
	return (x->carried && c->runs[g] >> x->place & 1) || region_reads(c, x, g, FORWARD) || region_reads(c, x, g, BACKWARD);
}

struct trips region_senders(const struct chunk_map *c, const struct region *x)
{
	int made, end; /* chunks: the first that runs it, the last that wants it; BACKWARD: the last, the first */

	if (x->kind != RG_KEPT)
		return (struct trips){ 0, 0 };
	if (x->phase == FORWARD) {
		for (made = 0; made + 1 < c->chunks && !(c->runs[made] >> x->place & 1);)
			made++;
		for (end = c->chunks - 1; end > made && !is_wanted(c, x, end);)
			end--;
		return (struct trips){ made, end };
	}
	for (made = c->chunks - 1; made > 0 && !(c->runs[made] >> x->place & 1);)
		made--;
	for (end = 0; end < made && !is_wanted(c, x, end);)
		end++;
	return (struct trips){ end + 1, made + 1 };
}

struct message *messages_of(struct arena *mem, const struct chunk_map *c, const struct regions *r, enum phase phase)
{
	struct message *all = NEWN(mem, struct message, c->chunks);

	for (uint32_t i = 0; i < r->at.n; i++) {
		const struct region *x = &r->at.at[i];
		struct trips t = x->phase == phase ? region_senders(c, x) : (struct trips){ 0, 0 };

		for (int64_t g = t.lo; g < t.hi; g++) {
			PUSH(mem, &all[g].regions, (int)i);
			all[g].bytes += x->bytes;
		}
	}
	return all;
}
