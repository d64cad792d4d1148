/* passes/trace.c - a predicted step, event by event. */
#include "passes/trace.h"

#include "ir/region.h"
#include "passes/timing.h"

struct tracing {
	struct arena *mem;
	const struct module *m;
	const struct step_time *x;
	struct timing *t;
	struct message *sent[2]; /* by chunk, FORWARD and BACKWARD; NULL: no pipeline */
	struct trace_list *to;   /* of the stage at hand */
	struct trace_list *part; /* of each chunk, by section: its ops, from 0 on */
	double *length;          /* seconds of each part */
	struct trace_list *out;  /* of the part that is walked */
};

static double later(double a, double b)
{
	return a > b ? a : b;
}

static void put(void *to, const struct op *op, int64_t iter, double start, double end)
{
	struct tracing *w = to;
	struct trace_event e = { .what = TRACE_OP, .op = op, .iter = iter, .start = start, .end = end };

	if (trace_stream(w->m, op) >= 0)
		PUSH(w->mem, &w->out->event, e);
}

/* The ops of a chunk, or of a stage's prologue or epilogue, from 0 on; how long they take. */
static double walk_section(struct tracing *w, int section, int chunk, int stage, struct trace_list *out)
{
	bool piped = pipe_axis(w->m) >= 0;
	struct part part = { .section = section, .chunk = chunk, .stage = piped ? stage : -1, .note = put, .to = w };

	part.places = chunk < 0 ? piped ? pipe_places(w->m, stage) : 1 : chunk_places(w->m, chunk);
	w->out = out;
	struct busy b = walk_part(w->t, part);

	return b.compute + b.exposed;
}

/* Puts events of a part between start and end, those behind `gap` (seconds of the part) by `wait` later. */
static void place_part(struct tracing *w, const struct trace_list *part, double length, struct action act, double start, double end,
		       double gap, double wait)
{
	double stretch = length > 0 ? (end - start - wait) / length : 0;

	for (uint32_t i = 0; i < part->event.n; i++) {
		struct trace_event e = part->event.at[i];
		double late = e.start * stretch >= gap ? wait : 0;

		e.act = act;
		e.end = start + e.end * stretch + late; /* a collective that nobody waits for may end behind the part */
		e.start = start + e.start * stretch + late;
		PUSH(w->mem, &w->to->event, e);
	}
}

static void put_once(struct tracing *w, int section, int stage, double start, double end, double gap, double wait)
{
	struct action act = { .kind = NACT, .mb = section == EPILOGUE };
	struct trace_event e = { .what = TRACE_ACTION, .act = act, .start = start, .end = end };
	struct trace_list part = { 0 };
	double length = walk_section(w, section, -1, stage, &part);

	PUSH(w->mem, &w->to->event, e);
	place_part(w, &part, length, act, start, end, gap, wait);
}

/* -- messages -- */

static bool sends(const struct tracing *w, int g, enum phase phase)
{
	int to = phase == FORWARD ? g + 1 : g - 1;

	if (!w->sent[0] || g < 0 || g >= pipe_chunks(w->m) || to < 0 || to >= pipe_chunks(w->m))
		return false;
	return w->sent[phase != FORWARD][g].regions.n > 0;
}

static void put_message(struct tracing *w, enum trace_what what, const struct action *a, double start, double end)
{
	enum phase phase = a->kind == ACT_F ? FORWARD : BACKWARD;
	int before = phase == FORWARD ? a->chunk - 1 : a->chunk + 1, after = phase == FORWARD ? a->chunk + 1 : a->chunk - 1;
	struct trace_event e = { .what = what, .act = *a, .start = start, .end = end };

	if (a->kind == ACT_W || !sends(w, what == TRACE_SEND ? a->chunk : before, phase))
		return;
	e.other = pipe_stage(w->m, what == TRACE_SEND ? after : before);
	PUSH(w->mem, &w->to->event, e);
}

/* -- a stage -- */

static void put_action(struct tracing *w, const struct event *e, double scale, double before)
{
	const struct action *a = &e->what;
	int section = action_section(a), no = a->chunk * NSECTION + section;
	double start = e->start * scale, end = e->end * scale, hop = w->x->costs.c.chunk[a->chunk].hop[a->kind == ACT_F ? 0 : 1] * scale;
	struct trace_event whole = { .what = TRACE_ACTION, .act = *a, .start = start, .end = end };

	if (!w->part[no].event.n)
		w->length[no] = walk_section(w, section, a->chunk, -1, &w->part[no]);
	put_message(w, TRACE_RECEIVE, a, before, start);
	PUSH(w->mem, &w->to->event, whole);
	place_part(w, &w->part[no], w->length[no], *a, start, end, 0, 0);
	put_message(w, TRACE_SEND, a, end, end + hop);
}

/* When the last stage has reduced its gradients. */
static double norm_at(const struct step_time *x, double scale)
{
	double norm = 0;

	for (int d = 0; d < x->costs.s.p; d++) {
		const struct stage_run *r = &x->run.stage[d];
		double end = r->n ? r->event[r->n - 1].end : 0;

		norm = later(norm, (end + x->costs.c.stage[d].reduce) * scale);
	}
	return norm;
}

static void put_stage(struct tracing *w, int d, double scale)
{
	const struct stage_run *r = &w->x->run.stage[d];
	const struct stage_cost *c = &w->x->costs.c.stage[d];
	double before = c->prologue * scale;

	put_once(w, PROLOGUE, d, 0, before, 0, 0);
	for (uint32_t i = 0; i < r->n; i++) {
		put_action(w, &r->event[i], scale, before);
		before = r->event[i].end * scale;
	}
	double reduced = before + c->reduce * scale, norm = w->x->costs.c.clip ? norm_at(w->x, scale) : reduced;

	put_once(w, EPILOGUE, d, before, norm + c->epilogue * scale, c->reduce * scale, norm - reduced);
}

struct trace trace_predicted(struct arena *mem, const struct module *m, const struct step_time *x)
{
	struct tracing w = { .mem = mem, .m = m, .x = x, .t = timing_refined(mem, m) };
	struct trace t = { .kind = "predicted", .seconds = x->step, .stages = x->costs.s.p };
	int chunks = x->costs.s.p * x->costs.s.v;

	if (pipe_axis(m) >= 0) {
		struct chunk_map map = chunk_map_of(mem, m);
		struct regions *r = regions_of(mem, m);

		w.sent[0] = messages_of(mem, &map, r, FORWARD);
		w.sent[1] = messages_of(mem, &map, r, BACKWARD);
	}
	w.part = NEWN(mem, struct trace_list, chunks * NSECTION);
	w.length = NEWN(mem, double, chunks * NSECTION);
	t.stage = NEWN(mem, struct trace_list, t.stages);
	for (int d = 0; d < t.stages; d++) {
		w.to = &t.stage[d];
		put_stage(&w, d, x->run.seconds > 0 ? x->step / x->run.seconds : 1);
	}
	return t;
}
