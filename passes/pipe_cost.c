/* passes/pipe_cost.c - seconds and bytes of the sections of a step, from its ops.
 *
 * A section is walked in order with two clocks. An op of compute takes its time on the first; a collective
 * starts when both are there and holds up compute, as a copy from or to the host does, unless it is {async}: then only its wait does, or {ahead}:
 * then it was started an iteration before. */
#include "passes/pipe_cost.h"

#include "ir/region.h"
#include "passes/passes.h"

struct op_time {
	double compute, comm; /* seconds of one */
	double end;           /* of the one in flight; -1: none */
};

struct timing {
	struct arena *mem;
	const struct module *m;
	struct op_time *op; /* by op.mark */
};

/* Lies in another's storage, or in a place of its own from the start. */
static bool is_free(const struct module *m, const struct op *op)
{
	return opinfo[op->code].class == C_LEAF || op->code == OP_WRITE || op->code == OP_REPORT || is_alias(m, op);
}

static int64_t number_ops(const struct block *block, int64_t n)
{
	for (struct op *op = block->first; op; op = op->next) {
		op->mark = n++;
		if (op->code == OP_REPEAT)
			n = number_ops(op->body, n);
	}
	return n;
}

static void time_ops(struct timing *t, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next) {
		struct op_time *x = &t->op[op->mark];

		x->comm = host_seconds(t->m, op);
		if (op->code == OP_REPEAT)
			time_ops(t, op->body);
		else if (comm_sends(op->code))
			x->comm = op_seconds(t->m, op);
		else if (!is_free(t->m, op)) {
			x->compute = op_compute_seconds(t->m, op);
			x->comm = op_seconds(t->m, op) - x->compute; /* of an attention over ranks: what it can't hide */
		}
	}
}

struct timing *timing_of(struct arena *mem, const struct module *m)
{
	struct timing *t = NEW(mem, struct timing);

	*t = (struct timing){ mem, m, NEWN(mem, struct op_time, number_ops(&m->top, 0) + 1) };
	time_ops(t, &m->top);
	return t;
}

struct busy op_busy(const struct timing *t, const struct op *op)
{
	return (struct busy){ t->op[op->mark].compute, t->op[op->mark].comm };
}

/* -- a section -- */

struct walk {
	struct timing *t;
	int section;
	int64_t places;    /* ops of these places */
	int chunk, stage;  /* whose iterations and rows; -1: all */
	double now, comm;  /* the clocks */
	double compute;    /* of now */
};

enum { WARM = 3 }; /* iterations until one is like the next */

static double later(double a, double b)
{
	return a > b ? a : b;
}

/* The part of what op says that is here: rows along a dim that is cut into stages. */
static double share_of(const struct walk *w, const struct op *op)
{
	const struct module *m = w->t->m;
	const struct value *v = op->nin ? op->in[0] : op->nout ? op->out[0] : NULL;

	if (!v || !v->nd || !is_staged(m, v->d[0]) || v->sh.on[0].n != 1 || (w->chunk < 0 && w->stage < 0))
		return 1;
	double cap = (double)cap_of(m, v->d[0], &v->sh.on[0]);
	struct trips t = w->chunk < 0 ? (struct trips){ 0, pipe_rows(m, v->d[0], w->stage) } : pipe_trips(m, v->d[0], w->chunk);

	return cap > 0 ? (double)(t.hi - t.lo) / cap : 1;
}

static void walk_comm(struct walk *w, const struct op *op, double share)
{
	struct op_time *x = &w->t->op[op->mark];
	double seconds = x->comm * share;

	if (HAS(op, ahead) && x->end >= 0)
		w->now = later(w->now, x->end);
	w->comm = later(w->now, w->comm) + seconds;
	if (HAS(op, ahead) && x->end < 0) { /* the first iteration's own */
		w->now = w->comm;
		w->comm += seconds;
	}
	x->end = w->comm;
	if (!HAS(op, async) && !HAS(op, ahead))
		w->now = w->comm;
}

static void walk_loop(struct walk *w, const struct op *loop, int64_t trips);

static void walk_op(struct walk *w, const struct op *op, double share)
{
	const struct op_time *x = &w->t->op[op->mark];

	if (op->code == OP_WAIT) {
		w->now = later(w->now, w->t->op[op->in[0]->def->mark].end);
	} else if (comm_sends(op->code)) {
		walk_comm(w, op, share);
	} else {
		w->now += (x->compute + x->comm) * share;
		w->compute += x->compute * share;
	}
}

/* A loop that only some of the iterations around it run: its share of one. */
static void walk_first(struct walk *w, const struct op *loop)
{
	struct walk before = *w;
	double share = first_share(w->t->m, loop->at.dim, w->stage, w->chunk);

	walk_loop(w, loop, 1);
	w->now = before.now + share * (w->now - before.now);
	w->comm = before.comm + share * (w->comm - before.comm);
	w->compute = before.compute + share * (w->compute - before.compute);
}

static void walk_body(struct walk *w, const struct block *body)
{
	for (const struct op *op = body->first; op; op = op->next)
		if (is_first_part(w->t->m, op))
			walk_first(w, op);
		else if (op->code == OP_REPEAT)
			walk_loop(w, op, dim_size(w->t->m, op->at.dim));
		else
			walk_op(w, op, 1);
}

static void walk_loop(struct walk *w, const struct op *loop, int64_t trips)
{
	struct walk before = *w;
	int64_t n = trips < WARM ? trips : WARM;

	for (const struct op *op = loop->body->first; op; op = op->next)
		w->t->op[op->mark].end = -1;
	for (int64_t i = 0; i < n; i++) {
		before = *w;
		w->now += w->t->op[loop->mark].comm; /* rows that are copied from the host */
		walk_body(w, loop->body);
	}
	double more = (double)(trips - n), step = w->now - before.now;
	w->now += more * step;
	w->comm += more * step;
	w->compute += more * (w->compute - before.compute);
}

static bool is_here(const struct walk *w, const struct op *op)
{
	if (op_section(op) != w->section)
		return false;
	if (pipe_axis(w->t->m) < 0)
		return true;
	if (op->phase == FORWARD || op->phase == BACKWARD)
		return w->places >> op_place(op) & 1;
	return !HAS(op, where) || (op->at.where & w->places);
}

static int64_t trips_here(const struct walk *w, const struct op *loop)
{
	if (w->chunk < 0 || !is_staged(w->t->m, loop->at.dim))
		return dim_size(w->t->m, loop->at.dim);
	struct trips t = pipe_trips(w->t->m, loop->at.dim, w->chunk);

	return t.hi - t.lo;
}

/* From first (NULL: the top) up to end (NULL: the end of the block). */
static struct busy walk_section(struct walk w, const struct op *first, const struct op *end)
{
	for (const struct op *op = first ? first : w.t->m->top.first; op != end; op = op->next) {
		if (!is_here(&w, op))
			continue;
		if (op->code == OP_REPEAT)
			walk_loop(&w, op, trips_here(&w, op));
		else
			walk_op(&w, op, share_of(&w, op));
	}
	return (struct busy){ w.compute, w.now - w.compute };
}

struct busy place_busy(struct timing *t, int section, int place)
{
	return walk_section((struct walk){ .t = t, .section = section, .places = 1ll << place, .chunk = -1, .stage = -1 }, NULL, NULL);
}

static int64_t chunk_places(const struct module *m, int g)
{
	int64_t bits = 0;

	for (int p = 0; p <= 2 * (int)m->pipe.loops.n; p++)
		bits |= pipe_runs(m, g, p) ? 1ll << p : 0;
	return bits;
}

static struct busy chunk_busy(struct timing *t, int section, int g)
{
	int64_t places = pipe_axis(t->m) < 0 ? 1 : chunk_places(t->m, g);

	return walk_section((struct walk){ .t = t, .section = section, .places = places, .chunk = g, .stage = -1 }, NULL, NULL);
}

/* -- bytes -- */

static double row_bytes(const struct module *m, const struct region *x, double bytes, const struct axes *on)
{
	int64_t cap = x->dim == NODIM ? 1 : cap_of(m, x->dim, on);

	return cap ? bytes / (double)cap : bytes;
}

static double rows_of_chunk(const struct module *m, const struct region *x, int g)
{
	struct trips t = x->dim == NODIM ? (struct trips){ 0, 1 } : pipe_trips(m, x->dim, g);

	return (double)(t.hi - t.lo);
}

/* What lasts from F to backward, of that what I frees (bytes here), and what lasts from I to W. */
static void keep_bytes(const struct region *x, double bytes, double *kept, double *freed, double *cut)
{
	bool lasts = x->kind == RG_STASH || x->kind == RG_KEPT;

	if (lasts && x->phase == FORWARD && (x->kind == RG_STASH || x->back || x->back_in)) {
		*kept += bytes;
		*freed += x->until_w ? 0 : bytes;
	} else if (lasts && !x->late && x->until_w) {
		*cut += bytes;
	}
}

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

static void add_value(const struct module *m, const struct region *x, const struct value *v, struct chunk_cost *chunk,
		      struct stage_cost *stage)
{
	double bytes = row_bytes(m, x, (double)local_bytes(m, v), &v->sh.on[0]);

	for (int g = 0; g < pipe_chunks(m); g++)
		if (pipe_runs(m, g, x->place))
			keep_bytes(x, bytes * rows_of_chunk(m, x, g), &chunk[g].bytes, &chunk[g].freed, &chunk[g].cut);
	for (int d = 0; d < pipe_stages(m) && x->kind == RG_STEP; d++)
		if (!x->where || (x->where & pipe_places(m, d)))
			stage[d].bytes += bytes * (x->dim == NODIM ? 1 : (double)pipe_rows(m, x->dim, d));
}

static void add_bytes(const struct module *m, const struct regions *r, struct chunk_cost *chunk, struct stage_cost *stage)
{
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store };

		memcpy(v.d, b->d, sizeof v.d);
		if (b->role != B_INPUT)
			add_value(m, &r->at.at[r->buf[i]], &v, chunk, stage);
	}
	for (const struct op *op = m->top.first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			if (r->of[op->out[i]->id] >= 0)
				add_value(m, &r->at.at[r->of[op->out[i]->id]], op->out[i], chunk, stage);
}

static double hop_seconds(const struct module *m, const struct regions *r, int g, enum phase phase)
{
	double bytes = 0;

	for (uint32_t i = 0; i < r->at.n; i++)
		if (region_in_message(m, &r->at.at[i], g, phase))
			bytes += (double)local_bytes(m, r->at.at[i].v);
	return bytes > 0 ? comm_seconds(m, 1u << pipe_axis(m), bytes) : 0;
}

/* -- the step -- */

static void set_backward(double seconds[NACT], double i, double w)
{
	seconds[ACT_I] = i;
	seconds[ACT_W] = w;
	seconds[ACT_B] = i + w;
}

static double sum(struct busy b)
{
	return b.compute + b.exposed;
}

static void add(struct busy *to, struct busy b, double times)
{
	to->compute += times * b.compute;
	to->exposed += times * b.exposed;
}

/* The op behind the last in the epilogue for which stages wait for each other; NULL: there is none. */
static const struct op *find_meeting(const struct module *m)
{
	int axis = pipe_axis(m);

	for (const struct op *op = m->top.last; op && axis >= 0 && op->phase == EPILOGUE; op = op->prev)
		if (comm_sends(op->code) && comm_axes(op) >> axis & 1)
			return op->next;
	return NULL;
}

static void cost_stage(struct timing *t, int d, const struct op *meet, struct stage_cost *x, struct busy *all)
{
	struct walk w = { .t = t, .section = PROLOGUE, .chunk = -1, .stage = pipe_axis(t->m) < 0 ? -1 : d,
			  .places = pipe_axis(t->m) < 0 ? 1 : pipe_places(t->m, d) };
	struct busy before = walk_section(w, NULL, NULL), reduce = { 0 };

	w.section = EPILOGUE;
	if (meet)
		reduce = walk_section(w, NULL, meet);
	struct busy after = walk_section(w, meet, NULL);
	x->prologue = sum(before);
	x->reduce = sum(reduce);
	x->epilogue = sum(after);
	add(all, before, 1);
	add(all, reduce, 1);
	add(all, after, 1);
}

struct step_costs step_costs_of(struct arena *mem, const struct module *m, struct timing *t)
{
	struct step_costs x = { .s = pipe_schedule(m) };
	int chunks = pipe_chunks(m), stages = pipe_stages(m);
	bool piped = pipe_axis(m) >= 0;
	struct chunk_cost *chunk = NEWN(mem, struct chunk_cost, chunks);
	struct stage_cost *stage = NEWN(mem, struct stage_cost, stages);
	struct busy *busy = NEWN(mem, struct busy, stages);
	struct regions *r = regions_of(mem, m);
	const struct op *meet = find_meeting(m);

	if (!piped)
		x.s = (struct schedule){ .kind = SCHED_1F1B, .p = 1, .v = 1, .m = (int)m->micro };
	for (int g = 0; g < chunks; g++) {
		struct busy f = chunk_busy(t, FORWARD, g), b = chunk_busy(t, BACKWARD, g), late = chunk_busy(t, SECTION_W, g);
		int d = schedule_stage(&x.s, g);

		chunk[g].seconds[ACT_F] = sum(f);
		set_backward(chunk[g].seconds, sum(b), sum(late));
		chunk[g].hop[0] = piped && g + 1 < chunks ? hop_seconds(m, r, g, FORWARD) : 0;
		chunk[g].hop[1] = piped && g ? hop_seconds(m, r, g, BACKWARD) : 0;
		add(&busy[d], f, (double)m->micro);
		add(&busy[d], b, (double)m->micro);
		add(&busy[d], late, (double)m->micro);
	}
	for (int d = 0; d < stages; d++)
		cost_stage(t, d, meet, &stage[d], &busy[d]);
	if (piped)
		add_bytes(m, r, chunk, stage);
	for (int g = 0; g < chunks; g++)
		chunk[g].freed = share(chunk[g].freed, chunk[g].bytes);
	x.c = (struct costs){ .chunk = chunk, .stage = stage, .clip = meet != NULL,
			      .receive = m->pipe.buffers ? (int)m->pipe.buffers : RECEIVE_BUFFERS };
	x.stage = busy;
	return x;
}

/* -- the chain -- */

static struct piece piece_of(struct timing *t, int place, double n)
{
	struct piece x = { .seconds = { [ACT_F] = sum(place_busy(t, FORWARD, place)) / n } };

	set_backward(x.seconds, sum(place_busy(t, BACKWARD, place)) / n, sum(place_busy(t, SECTION_W, place)) / n);
	return x;
}

/* What lies with a piece: its params, states and gradients, and what backward reads of one forward. */
static void add_fixed(const struct module *m, const struct regions *r, int place, struct piece *x)
{
	dimid dim = place % 2 ? m->pipe.loops.at[place / 2] : (dimid)NODIM;

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		const struct region *g = b->role == B_INPUT ? NULL : &r->at.at[r->buf[i]];
		double bytes = dtype_bytes(b->dt);

		for (int k = 0; g && k < b->nd; k++)
			bytes *= (double)cap_of(m, b->d[k], &b->store.on[k]);
		if (g && g->dim == dim && (dim != NODIM || (g->where >> place & 1)))
			x->fixed += row_bytes(m, g, bytes, &b->store.on[0]);
	}
	for (const struct op *op = m->top.first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++) {
			const struct value *v = op->out[i];
			const struct region *g = r->of[v->id] < 0 ? NULL : &r->at.at[r->of[v->id]];
			double bytes = g ? row_bytes(m, g, (double)local_bytes(m, v), &v->sh.on[0]) : 0;

			if (g && g->kind == RG_STEP && g->dim == dim && (dim != NODIM || (g->where >> place & 1)))
				x->fixed += bytes;
			if (g && g->place == place && (g->dim == dim || dim == NODIM))
				keep_bytes(g, bytes, &x->bytes, &x->freed, &x->cut);
		}
	x->freed = share(x->freed, x->bytes);
}

struct chain chain_of(struct arena *mem, const struct module *m, struct timing *t)
{
	int n = (int)m->pipe.loops.n, total = (int)m->pipe.end.at[m->pipe.end.n - 1], k = 0;
	struct piece *iteration = NEWN(mem, struct piece, total), *glue = NEWN(mem, struct piece, total);
	struct regions *r = regions_of(mem, m);
	struct piece first = piece_of(t, 0, 1), last = piece_of(t, 2 * n, 1);

	for (int i = 0; i < n; i++) {
		int64_t trips = dim_size(m, m->pipe.loops.at[i]);
		struct piece one = piece_of(t, 2 * i + 1, (double)trips);

		add_fixed(m, r, 2 * i + 1, &one);
		if (i && k < total) {
			glue[k] = piece_of(t, 2 * i, 1);
			add_fixed(m, r, 2 * i, &glue[k]);
		}
		for (int64_t j = 0; j < trips; j++)
			iteration[k++] = one;
	}
	add_fixed(m, r, 0, &first);
	add_fixed(m, r, 2 * n, &last);
	return (struct chain){ .iteration = iteration, .n = total, .glue = glue, .first = first, .last = last };
}
