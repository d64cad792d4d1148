/* passes/pipe_cost.c - seconds and bytes of the sections of a step, from its ops: timing.h walks them. */
#include "passes/pipe_cost.h"

#include <math.h>

#include "ir/region.h"
#include "passes/constants.h"
#include "passes/timing.h"

int64_t chunk_places(const struct module *m, int g)
{
	int64_t bits = 0;

	if (pipe_axis(m) < 0)
		return 1;
	for (int p = 0; p <= 2 * (int)m->pipe.loops.n; p++)
		bits |= pipe_runs(m, g, p) ? 1ll << p : 0;
	return bits;
}

static struct busy chunk_busy(struct timing *t, int section, int g)
{
	return walk_part(t, (struct part){ .section = section, .places = chunk_places(t->m, g), .chunk = g, .stage = -1 });
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

static double hop_seconds(const struct timing *t, const struct regions *r, const struct message *msg)
{
	const struct module *m = t->m;
	double bytes = 0, seconds = 0;

	for (uint32_t i = 0; i < msg->regions.n; i++) {
		const struct value *v = r->at.at[msg->regions.at[i]].v;

		bytes += (double)local_bytes(m, v);
		seconds += t->price ? hop_price(m, v) : 0;
	}
	if (bytes <= 0)
		return 0;
	return t->price ? seconds + hop_latency(m) : comm_seconds(m, 1u << pipe_axis(m), bytes);
}

/* Of each chunk's message to the next, and to the one before. */
static void find_hops(struct arena *mem, const struct timing *t, const struct regions *r, int chunks, double (*hop)[2])
{
	struct chunk_map map = chunk_map_of(mem, t->m);
	struct message *fore = messages_of(mem, &map, r, FORWARD), *back = messages_of(mem, &map, r, BACKWARD);

	for (int g = 0; g < chunks; g++) {
		hop[g][0] = hop_seconds(t, r, &fore[g]);
		hop[g][1] = hop_seconds(t, r, &back[g]);
	}
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
	to->hidden += times * b.hidden;
	for (int k = 0; k < NTIME; k++)
		to->kind[k] += times * b.kind[k];
}

/* What op makes is told, and nothing else comes of it: a norm where nothing is clipped. Our own runtime waits for it. */
static bool only_told(const struct op *op)
{
	for (const struct op *o = op->next; o; o = o->next)
		for (uint32_t i = 0; i < o->nin; i++)
			if (o->in[i]->def == op && o->code != OP_REPORT && (o->code == OP_WRITE || o->code == OP_REPEAT || !only_told(o)))
				return false;
	return true;
}

/* The op behind the last in the epilogue for which stages wait for each other; NULL: there is none. */
static const struct op *find_meeting(const struct module *m)
{
	int axis = pipe_axis(m);
	bool ours = m->software.at[SW_ELEMENTWISE] == ELEM_PLAN;

	for (const struct op *op = m->top.last; op && axis >= 0 && op->phase == EPILOGUE; op = op->prev)
		if (comm_sends(op->code) && comm_axes(op) >> axis & 1 && (ours || !only_told(op)))
			return op->next;
	return NULL;
}

/* Compute of a stage that collectives of a step go on behind: those of its n chunks one after another, a chunk's
 * behind its own first forward (or last backward), and until the next chunk's turn comes. */
struct window {
	int n;
	double own, turn;
};

/* What no compute hides of collectives that take `all` seconds: of the first chunk's alone, or of all together. */
static double shown_of(double all, const struct window *w)
{
	double first = all / w->n - HIDE_MOST * w->own, last = all - HIDE_MOST * (w->own + (w->n - 1) * w->turn);

	return fmax(SHOW_LEAST * all, fmax(first, last));
}

/* What a window of compute leaves of collectives behind it, and what they slow it. */
static void show_behind(struct busy *b, struct window w)
{
	for (int k = 0; k < NTIME; k++) {
		double all = b->behind[k], shown = shown_of(all, &w);

		if (all <= 0)
			continue;
		w.own = fmax(0, w.own - all / w.n);
		w.turn = fmax(0, w.turn - all / w.n);
		b->exposed += shown + CONTENTION * (all - shown);
		b->kind[k] += shown + CONTENTION * (all - shown);
		b->hidden += all - shown;
	}
}

/* At the end of a step gradients are reduced behind backward, params gathered before the next forward. */
static void split_behind(struct busy *b, const struct window window[2])
{
	double params = b->behind[T_PARAMS];

	b->behind[T_PARAMS] = 0;
	show_behind(b, window[1]);
	memset(b->behind, 0, sizeof b->behind);
	b->behind[T_PARAMS] = params;
	show_behind(b, window[0]);
}

/* window: that of forward and that of backward */
static void cost_stage(struct timing *t, int d, const struct op *meet, const struct window window[2], struct stage_cost *x, struct busy *all)
{
	struct part part = { .section = PROLOGUE, .chunk = -1, .stage = pipe_axis(t->m) < 0 ? -1 : d,
			  .places = pipe_axis(t->m) < 0 ? 1 : pipe_places(t->m, d) };
	struct busy before = walk_part(t, part), reduce = { 0 };

	part.section = EPILOGUE;
	if (meet) {
		part.end = meet;
		reduce = walk_part(t, part);
	}
	part.first = meet;
	part.end = NULL;
	struct busy after = walk_part(t, part);
	show_behind(&before, window[0]);
	show_behind(&reduce, window[1]);
	split_behind(&after, window);
	x->prologue = sum(before);
	x->reduce = sum(reduce);
	x->epilogue = sum(after);
	add(all, before, 1);
	add(all, reduce, 1);
	add(all, after, 1);
}

/* A stage that waits until its message has gone: the action takes longer, the message has no time of its own. If there
 * is one at a time, the stage that gets it waits as long: comes[] are those. */
static void send_first(struct chunk_cost *x, const double comes[2], struct busy *f, struct busy *b)
{
	enum action_kind splits = x->seconds[ACT_W] > 0 ? ACT_I : ACT_B;
	double waits[2] = { x->hop[0] + comes[0], x->hop[1] + comes[1] };

	x->seconds[ACT_F] += waits[0];
	x->seconds[ACT_B] += waits[1];
	x->seconds[ACT_I] += splits == ACT_I ? waits[1] : 0;
	f->exposed += waits[0];
	b->exposed += waits[1];
	f->kind[T_ACTIVATIONS] += waits[0];
	b->kind[T_ACTIVATIONS] += waits[1];
	x->hop[0] = x->hop[1] = 0;
}

/* Behind the first forward and the last backward of a stage. Of interleaved chunks each runs as many microbatches as
 * there are stages, then the next has its turn: Megatron-Core starts a chunk's gathers when the one before has its
 * first microbatch, its reductions when it has done its last (core/pipeline_parallel/schedules.py). */
static void find_window(const struct schedule *s, const struct chunk_cost *chunk, int d, struct window window[2])
{
	double row = s->v > 1 ? s->p < s->m ? s->p : s->m : 0, sum[2] = { 0, 0 };

	for (int g = 0; g < s->p * s->v; g++)
		if (schedule_stage(s, g) == d) {
			sum[0] += chunk[g].seconds[ACT_F] / s->v;
			sum[1] += chunk[g].seconds[ACT_B] / s->v;
		}
	for (int i = 0; i < 2; i++)
		window[i] = (struct window){ .n = s->v, .own = sum[i], .turn = row * sum[i] };
}

/* Other software holds so much of a microbatch; what it holds beside what the plan does, I frees: scores, mostly. */
static void hold_more(struct chunk_cost *x, double held)
{
	double more = held - x->bytes;

	if (more > 0 && held > 0)
		x->freed = (x->freed * x->bytes + more) / held;
	x->bytes = held;
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
	double (*hop)[2] = arena_alloc(mem, (size_t)chunks * sizeof *hop);

	if (piped)
		find_hops(mem, t, r, chunks, hop);
	else
		x.s = (struct schedule){ .kind = SCHED_1F1B, .p = 1, .v = 1, .m = (int)m->micro };
	for (int g = 0; g < chunks; g++) {
		struct busy f = chunk_busy(t, FORWARD, g), b = chunk_busy(t, BACKWARD, g), late = chunk_busy(t, SECTION_W, g);
		int d = schedule_stage(&x.s, g);

		chunk[g].seconds[ACT_F] = sum(f);
		set_backward(chunk[g].seconds, sum(b), sum(late));
		chunk[g].hop[0] = hop[g][0];
		chunk[g].hop[1] = hop[g][1];
		if (t->price && m->software.at[SW_P2P] != P2P_ASYNC) {
			bool single = piped && m->software.at[SW_P2P] == P2P_SINGLE;
			double comes[2] = { single && g ? hop[g - 1][0] : 0, single && g + 1 < chunks ? hop[g + 1][1] : 0 };

			send_first(&chunk[g], comes, &f, &b);
		}
		add(&busy[d], f, (double)m->micro);
		add(&busy[d], b, (double)m->micro);
		add(&busy[d], late, (double)m->micro);
	}
	for (int d = 0; d < stages; d++) {
		struct window window[2];

		find_window(&x.s, chunk, d, window);
		cost_stage(t, d, meet, window, &stage[d], &busy[d]);
	}
	if (piped)
		add_bytes(m, r, chunk, stage);
	for (int g = 0; g < chunks; g++)
		chunk[g].freed = share(chunk[g].freed, chunk[g].bytes);
	for (int g = 0; g < chunks && t->price && m->software.at[SW_ELEMENTWISE] != ELEM_PLAN; g++)
		hold_more(&chunk[g], chunk_held(m, g));
	x.c = (struct costs){ .chunk = chunk, .stage = stage, .clip = meet != NULL,
			      .receive = m->pipe.buffers ? (int)m->pipe.buffers : RECEIVE_BUFFERS };
	x.stage = busy;
	return x;
}

/* -- the chain -- */

/* Seconds of one of n iterations. */
static double part_of(struct timing *t, int section, int place, enum early early, double n)
{
	return sum(walk_part(t, (struct part){ .section = section, .places = 1ll << place, .chunk = -1, .stage = -1, .early = early })) / n;
}

static struct piece piece_of(struct timing *t, int place, enum early early, double n)
{
	struct piece x = { .seconds = { [ACT_F] = part_of(t, FORWARD, place, early, n) } };

	set_backward(x.seconds, part_of(t, BACKWARD, place, early, n), part_of(t, SECTION_W, place, early, n));
	return x;
}

/* Is a region with rows along dim (NODIM: of glue) one of a piece? Early iterations have no rows that only the others keep. */
static bool has_rows(const struct module *m, const struct region *g, dimid dim, enum early early)
{
	if (g->dim == dim || dim == NODIM)
		return true;
	return g->dim != NODIM && m->dims.at[g->dim].part == PART_KEPT && m->dims.at[g->dim].of == dim && early != ALL_EARLY;
}

/* What lies with a piece: its params, states and gradients, and what backward reads of one forward. */
static void add_bytes_of(const struct module *m, const struct regions *r, int place, enum early early, struct piece *x)
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
			if (g && g->place == place && has_rows(m, g, dim, early))
				keep_bytes(g, bytes, &x->bytes, &x->freed, &x->cut);
		}
	x->freed = share(x->freed, x->bytes);
}

/* How many of the first iterations of a stage keep less than the others. */
static int early_iterations(const struct module *m)
{
	int64_t n = 0;

	for (uint32_t d = 0; d < m->dims.n; d++)
		if (m->dims.at[d].part == PART_FIRST && m->dims.at[d].from > n)
			n = m->dims.at[d].from;
	return (int)n;
}

static struct piece make_piece(const struct regions *r, struct timing *t, int place, enum early early, int64_t n)
{
	struct piece x = piece_of(t, place, early, (double)n);

	add_bytes_of(t->m, r, place, early, &x);
	return x;
}

struct chain chain_of(struct arena *mem, const struct module *m, struct timing *t)
{
	int n = (int)m->pipe.loops.n, total = (int)m->pipe.end.at[m->pipe.end.n - 1], k = 0;
	struct piece *iteration = NEWN(mem, struct piece, total), *early = NEWN(mem, struct piece, total);
	struct piece *glue = NEWN(mem, struct piece, total);
	struct regions *r = regions_of(mem, m);

	for (int i = 0; i < n; i++) {
		int64_t trips = dim_size(m, m->pipe.loops.at[i]);
		struct piece one = make_piece(r, t, 2 * i + 1, NONE_EARLY, trips), first = make_piece(r, t, 2 * i + 1, ALL_EARLY, trips);

		if (i && k < total)
			glue[k] = make_piece(r, t, 2 * i, AS_CUT, 1);
		for (int64_t j = 0; j < trips; j++) {
			early[k] = first;
			iteration[k++] = one;
		}
	}
	return (struct chain){ .iteration = iteration, .n = total, .early = early, .nfirst = early_iterations(m), .glue = glue,
			       .first = make_piece(r, t, 0, AS_CUT, 1), .last = make_piece(r, t, 2 * n, AS_CUT, 1) };
}
