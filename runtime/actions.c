/* runtime/actions.c - the program of a stage: its actions in the order of the schedule. An action takes what
 * comes from the chunk before, runs the places that its chunk runs, and gives what goes to the next. */
#include <stdlib.h>

#include "runtime/backend.h"

static const struct slot whole_arena = { 0, 1 };

void begin_once(struct rank *r)
{
	r->slot = r->rt->layouts ? r->rt->layouts->stage[r->stage].once : &whole_arena;
	r->chunk = -1;
}

/* -- messages -- */

static int next_chunk(const struct pipe_step *s)
{
	return s->phase == FORWARD ? s->act.chunk + 1 : s->act.chunk - 1;
}

static int chunk_before(const struct pipe_step *s)
{
	return s->phase == FORWARD ? s->act.chunk - 1 : s->act.chunk + 1;
}

static bool receive(struct rank *r, const struct pipe_step *s)
{
	struct letter l = { s->phase, chunk_before(s), s->act.mb, s->gets->bytes };
	const struct backend *b = r->rt->backend;
	const char *from = b->channel_take(s->from, &l);

	for (uint32_t i = 0; from && i < s->gets->regions.n; i++) {
		int no = s->gets->regions.at[i];
		int64_t n = r->rt->regions->at.at[no].bytes;

		b->move(r, r->arena + s->slot[no].base, from, n);
		from += n;
	}
	if (from)
		b->channel_done(s->from);
	return from;
}

static void count_send(struct rank *r, const struct pipe_step *s, int region)
{
	struct tally *t = &r->sent[r->rt->sends[region]];

	if (pipe_stage(r->rt->m, next_chunk(s)) == r->stage)
		return; /* it stays on the rank */
	t->count++;
	t->bytes += (double)local_bytes(r->rt->m, r->rt->regions->at.at[region].v);
}

static bool give(struct rank *r, const struct pipe_step *s)
{
	struct letter l = { s->phase, s->act.chunk, s->act.mb, s->gives->bytes };
	const struct backend *b = r->rt->backend;
	char *to = b->channel_room(s->to, &l);

	for (uint32_t i = 0; to && i < s->gives->regions.n; i++) {
		int no = s->gives->regions.at[i];
		int64_t n = r->rt->regions->at.at[no].bytes;

		b->move(r, to, r->arena + s->slot[no].base, n);
		to += n;
		count_send(r, s, no);
	}
	if (to)
		b->channel_send(s->to);
	return to;
}

/* -- actions -- */

static bool run_places(struct rank *r, const struct pipe_step *s)
{
	const struct module *m = r->rt->m;
	int last = 2 * (int)m->pipe.loops.n;

	for (int i = 0; i <= last; i++) {
		int place = s->phase == FORWARD ? i : last - i;

		if (!pipe_runs(m, s->act.chunk, place))
			continue;
		r->first = s->first >> place & 1;
		if (!run_prog(r, &r->rt->prog[s->section][place]))
			return false;
		if (r->rt->after_place && !r->rt->after_place(r, s, place))
			return false;
	}
	return true;
}

static bool run_action(struct rank *r, const struct pipe_step *s)
{
	int time = time_axis(r->rt->m);

	r->slot = s->slot;
	r->chunk = s->act.chunk;
	r->first_rows = s->first_rows;
	r->mb = s->act.mb;
	if (time >= 0)
		r->coord[time] = s->act.mb;
	r->act = s->act;
	double start = tracer_now(r);

	if (s->from && !receive(r, s))
		return false;
	if (s->from)
		tracer_note(r, TRACE_RECEIVE, NULL, pipe_stage(r->rt->m, chunk_before(s)), start);
	start = tracer_now(r);
	if (!run_places(r, s))
		return false;
	tracer_note(r, TRACE_ACTION, NULL, 0, start);
	start = tracer_now(r);
	if (s->to && !give(r, s))
		return false;
	if (s->to)
		tracer_note(r, TRACE_SEND, NULL, pipe_stage(r->rt->m, next_chunk(s)), start);
	return true;
}

static void await_messages(struct rank *r, bool open)
{
	for (uint32_t i = 0; i < r->inbox.n; i++)
		r->rt->backend->channel_await(r->inbox.at[i], open);
}

bool run_actions(struct rank *r)
{
	const struct stage_layout *l = &r->rt->layouts->stage[r->stage];
	int time = time_axis(r->rt->m);
	bool ok = true;

	await_messages(r, true);
	for (uint32_t i = 0; ok && i < l->acts.n; i++)
		if (r->env.training || r->steps[i].phase == FORWARD)
			ok = run_action(r, &r->steps[i]);
	for (uint32_t i = 0; ok && i < r->outbox.n; i++) /* the epilogue has other things where they lie */
		ok = r->rt->backend->channel_flush(r->outbox.at[i]);
	await_messages(r, false);
	if (time >= 0)
		r->coord[time] = 0;
	return ok;
}

/* -- is all there that an action touches? -- */

struct presence {
	const struct slot *slot;
	const struct module *m;
	int64_t places; /* of the stage */
	int host;       /* the region in host memory, which is always there; -1: none */
	const struct op *missing;
};

static void check_loc(struct presence *p, const struct op *op, const struct loc *at)
{
	if (at->region != p->host && p->slot[at->region].base < 0)
		p->missing = op;
}

static void check_prog(struct presence *p, const struct prog *prog);

static void check_loop(struct presence *p, const struct instr *i)
{
	const struct loop *x = i->loop;
	const struct { const struct move *at; uint32_t n; } lists[] = {
		{ x->entry.at, x->entry.n }, { x->before.at, x->before.n }, { x->each.at, x->each.n }, { x->after.at, x->after.n } };

	for (size_t k = 0; k < LEN(lists); k++)
		for (uint32_t n = 0; n < lists[k].n; n++) {
			check_loc(p, i->op, &lists[k].at[n].to);
			if (k) /* where iterations begin is seen when they do */
				check_loc(p, i->op, &lists[k].at[n].from);
		}
	check_prog(p, &x->body);
}

static void check_prog(struct presence *p, const struct prog *prog)
{
	for (uint32_t k = 0; k < prog->code.n; k++) {
		const struct instr *i = &prog->code.at[k];

		if (i->where && !(i->where & p->places))
			continue;
		for (uint32_t n = 0; i->at && n < i->op->nin + i->op->nout; n++)
			check_loc(p, i->op, &i->at[n]);
		if (i->move)
			check_loc(p, i->op, &i->move->to);
		if (i->move && i->code != I_INPUT && !i->move->m.from)
			check_loc(p, i->op, &i->move->from);
		if (i->loop)
			check_loop(p, i);
	}
}

bool actions_there(struct runtime *rt, int stage, struct diag *d)
{
	const struct stage_layout *l = &rt->layouts->stage[stage];
	struct presence p = { l->once, rt->m, pipe_places(rt->m, stage), rt->regions->host, NULL };

	check_prog(&p, rt->prog[PROLOGUE]);
	check_prog(&p, rt->prog[EPILOGUE]);
	for (uint32_t a = 0; a < l->acts.n; a++) {
		p.slot = l->act[a];
		for (int place = 0; place <= 2 * (int)rt->m->pipe.loops.n; place++)
			if (pipe_runs(rt->m, l->acts.at[a].chunk, place))
				check_prog(&p, &rt->prog[action_section(&l->acts.at[a])][place]);
	}
	return !p.missing || diag_error(d, p.missing->span, "%s in the plan: stage %d has not got all that it works on",
					opinfo[p.missing->code].name, stage);
}

/* -- made ready -- */

/* The rank of another stage with the same other coordinates. */
static int64_t on_stage(const struct rank *r, int stage)
{
	const struct module *m = r->rt->m;
	int64_t step = 1;

	for (int i = (int)m->axes.n - 1; i > pipe_axis(m); i--)
		step *= m->axes.at[i].time ? 1 : m->axes.at[i].size;
	return r->no + (stage - r->stage) * step;
}

/* Where a sum over microbatches begins: places, and chunks, that the stage has not run before. */
static void find_firsts(struct rank *r, struct pipe_step *steps, uint32_t n)
{
	int64_t seen[NSECTION] = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		struct pipe_step *s = &steps[i];

		s->first_rows = true;
		for (uint32_t k = 0; k < i && s->first_rows; k++)
			s->first_rows = steps[k].section != s->section || steps[k].act.chunk != s->act.chunk;
		s->first = ~seen[s->section];
		for (int p = 0; p <= 2 * (int)r->rt->m->pipe.loops.n; p++)
			if (pipe_runs(r->rt->m, s->act.chunk, p))
				seen[s->section] |= 1ll << p;
	}
}

/* The channel of this rank by number of its plan; it has one end here. */
static struct channel *channel_at(const struct rank *r, int no, struct channel *const *all)
{
	return no < 0 ? NULL : all[(int64_t)no * r->rt->nrank + on_stage(r, r->rt->layouts->channels.at[no].to)];
}

static void make_steps(struct rank *r, struct channel *const *all)
{
	struct runtime *rt = r->rt;
	const struct layouts *l = rt->layouts;
	const struct stage_layout *st = &l->stage[r->stage];
	struct pipe_step *steps = NEWN(rt->mem, struct pipe_step, st->acts.n + 1);

	for (uint32_t i = 0; i < st->acts.n; i++) {
		struct pipe_step *s = &steps[i];

		s->act = st->acts.at[i];
		s->phase = s->act.kind == ACT_F ? FORWARD : BACKWARD;
		s->section = action_section(&s->act);
		s->slot = st->act[i];
		if (s->act.kind == ACT_W)
			continue; /* nobody waits for it */
		const struct message *of = s->phase == FORWARD ? l->fore : l->back;
		int before = chunk_before(s), after = next_chunk(s), chunks = pipe_chunks(rt->m);

		if (before >= 0 && before < chunks && of[before].regions.n) {
			s->gets = &of[before];
			s->from = channel_at(r, channel_find(&l->channels, pipe_stage(rt->m, before), r->stage, s->phase), all);
		}
		if (after >= 0 && after < chunks && of[s->act.chunk].regions.n) {
			s->gives = &of[s->act.chunk];
			s->to = channel_at(r, channel_find(&l->channels, r->stage, pipe_stage(rt->m, after), s->phase), all);
		}
	}
	find_firsts(r, steps, st->acts.n);
	r->steps = steps;
}

/* all: by number in the plan, then by receiving rank. */
static bool open_channels(struct runtime *rt, struct channel **all)
{
	for (uint32_t i = 0; i < rt->layouts->channels.n; i++) {
		const struct channel_plan *c = &rt->layouts->channels.at[i];

		for (int64_t k = 0; k < rt->nrank; k++) {
			struct rank *to = &rt->rank[k];

			if (to->stage != c->to)
				continue;
			int64_t from = on_stage(to, c->from);
			struct channel_ends e = { from, k, c->buffers, c->bytes,
						  c->from == c->to ? NULL : rt->rank[from].arena + c->out, to->arena + c->in };
			struct channel *ch = rt->backend->channel_open(rt, &e);

			if (!ch)
				return false;
			PUSH(rt->mem, &rt->channels, ch);
			PUSH(rt->mem, &to->inbox, ch);
			PUSH(rt->mem, &rt->rank[from].outbox, ch);
			all[i * rt->nrank + k] = ch;
		}
	}
	return true;
}

bool actions_open(struct runtime *rt, struct diag *d)
{
	if (!rt->layouts)
		return true;
	struct channel **all = NEWN(rt->mem, struct channel *, rt->layouts->channels.n * rt->nrank + 1);

	if (!open_channels(rt, all))
		return diag_error(d, (struct span){ 0 }, "no memory for messages between stages");
	for (int64_t i = 0; i < rt->nrank; i++)
		make_steps(&rt->rank[i], all);
	for (int stage = 0; stage < rt->layouts->stages; stage++)
		if (!actions_there(rt, stage, d))
			return false;
	return true;
}

void actions_close(struct runtime *rt)
{
	for (uint32_t i = 0; i < rt->channels.n; i++)
		rt->backend->channel_close(rt->channels.at[i]);
}
