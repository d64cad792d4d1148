/* ir/layout.c - the timeline of a stage, and where its regions lie. */
#include "ir/layout.h"

struct laying {
	struct arena *mem;
	const struct module *m;
	const struct regions *r;
	struct layouts *all;
	struct stage_layout *to;
	int stage;
	int64_t ticks;                /* of an action */
	const int64_t *i_of, *w_of;   /* by action: where the halves of its backward are */
	VEC(int64_t *) bases;         /* where the offset of each piece is wanted */
};

enum { MOST_ACTIONS = 1 << 20 };

const char *layout_refused(struct arena *mem, const struct module *m, struct span *at)
{
	int last = 2 * (int)m->pipe.loops.n;

	*at = (struct span){ 0 };
	if (pipe_axis(m) < 0)
		return NULL;
	struct schedule s = pipe_schedule(m);
	const char *why = schedule_refused(mem, &s);

	if (why)
		return why;
	if ((int)m->pipe.end.n != pipe_chunks(m) || !last)
		return "the pipeline is not cut into chunks";
	if ((int64_t)pipe_chunks(m) * m->micro > MOST_ACTIONS)
		return arena_printf(mem, "%d chunks of %lld microbatches are too many actions", pipe_chunks(m), (long long)m->micro);
	for (const struct op *op = m->top.first; op; op = op->next)
		if ((op->phase == FORWARD || op->phase == BACKWARD) &&
		    (!HAS(op, where) || !op->at.where || (op->at.where & (op->at.where - 1)) || op_place(op) > last)) {
			*at = op->span;
			return arena_printf(mem, "%s has not got one place along the pipeline", opinfo[op->code].name);
		}
	return NULL;
}

/* -- the timeline -- */

static int64_t begin_of(const struct laying *l, int64_t a)
{
	return 1 + a * l->ticks;
}

static int64_t end_of(const struct laying *l, int64_t a)
{
	return begin_of(l, a) + l->ticks - 1;
}

static int64_t place_tick(const struct laying *l, int64_t a, int place)
{
	int last = 2 * (int)l->m->pipe.loops.n;

	return begin_of(l, a) + 1 + (l->to->acts.at[a].kind == ACT_F ? place : last - place);
}

static int64_t last_tick(const struct laying *l)
{
	return begin_of(l, l->to->acts.n);
}

static void want(struct laying *l, int64_t *base, struct laid what, int64_t bytes, int64_t start, int64_t end)
{
	struct laid *x = NEW(l->mem, struct laid);

	*x = what;
	x->p = (struct packed){ .bytes = round_up(bytes), .start = start, .end = end };
	PUSH(l->mem, &l->to->pieces, x);
	PUSH(l->mem, &l->bases, base);
}

/* s is a slot of region no. */
static void want_region(struct laying *l, struct slot *s, int no, int64_t rows, int64_t start, int64_t end)
{
	const struct region *x = &l->r->at.at[no];

	s->rows = x->dim == NODIM ? 1 : rows;
	want(l, &s->base, (struct laid){ .region = no, .channel = -1 }, x->bytes * s->rows, start, end);
}

/* Of each action, by number: the one that ends with this half of backward of the same chunk and microbatch. */
static int64_t *find_partners(struct laying *l, enum action_kind half)
{
	const struct actions *acts = &l->to->acts;
	int64_t *at = NEWN(l->mem, int64_t, acts->n + 1), m = l->m->micro;
	int64_t *of = NEWN(l->mem, int64_t, pipe_chunks(l->m) * m + 1);

	for (uint32_t i = 0; i < acts->n; i++)
		if (acts->at[i].kind == half || acts->at[i].kind == ACT_B)
			of[acts->at[i].chunk * m + acts->at[i].mb] = i;
	for (uint32_t i = 0; i < acts->n; i++)
		at[i] = of[acts->at[i].chunk * m + acts->at[i].mb];
	return at;
}

static bool runs(const struct laying *l, int64_t a, int64_t places, int place)
{
	return (places >> place & 1) && pipe_runs(l->m, l->to->acts.at[a].chunk, place);
}

/* -- regions of an action -- */

static bool holds(const struct message *x, int no)
{
	bool found = false;

	for (uint32_t i = 0; i < x->regions.n; i++)
		found |= x->regions.at[i] == no;
	return found;
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* A kept value comes in or is made, is read, goes out; backward may read it later. */
static void lay_kept(struct laying *l, int no, int64_t a)
{
	const struct region *x = &l->r->at.at[no];
	int g = l->to->acts.at[a].chunk, last = 2 * (int)l->m->pipe.loops.n;
	bool comes = x->phase == FORWARD ? g > 0 && holds(&l->all->fore[g - 1], no) :
					   g + 1 < pipe_chunks(l->m) && holds(&l->all->back[g + 1], no);
	bool made = pipe_runs(l->m, g, x->place);

	if (!comes && !made)
		return;
	int64_t start = comes ? begin_of(l, a) : place_tick(l, a, x->place);
	int64_t end = made ? place_tick(l, a, x->place) : start;

	for (int p = 0; p <= last; p++)
		if (region_read(l->m, x, g, x->phase, p))
			end = later(end, place_tick(l, a, p));
	if (holds(x->phase == FORWARD ? &l->all->fore[g] : &l->all->back[g], no))
		end = end_of(l, a);
	for (int p = 0; p <= last; p++) {
		if (x->phase == FORWARD && region_read(l->m, x, g, BACKWARD, p))
			end = later(end, place_tick(l, l->i_of[a], p));
		if (runs(l, a, x->until_w, p))
			end = later(end, place_tick(l, l->w_of[a], p));
	}
	want_region(l, &l->to->act[a][no], no, 1, start, end);
}

static int64_t trips_of(const struct laying *l, const struct region *x, int g)
{
	struct trips t = x->dim == NODIM ? (struct trips){ 0, 1 } : pipe_trips(l->m, x->dim, g);

	return t.hi - t.lo;
}

/* The last action that reads what is stashed by action a. */
static int64_t stash_end(const struct laying *l, const struct region *x, int64_t a)
{
	if (x->until_w)
		return l->w_of[a];
	return x->phase == FORWARD ? l->i_of[a] : a;
}

/* Rows of a PART_KEPT in a chunk that has none of its iterations: the others make in their place what they need
 * while they run, and leave nothing. */
static bool is_passing(const struct laying *l, const struct region *x, int g)
{
	const struct dim *d = x->kind == RG_STASH && x->dim != NODIM ? &l->m->dims.at[x->dim] : NULL;

	if (!d || d->part != PART_KEPT)
		return false;
	struct trips t = pipe_trips(l->m, d->of, g);

	return pipe_chunk_number(l->m, d->of, g) + t.hi - t.lo <= d->from;
}

static void lay_passing(struct laying *l, uint32_t no, int64_t a)
{
	const struct region *x = &l->r->at.at[no];
	int64_t rows = trips_of(l, x, l->to->acts.at[a].chunk), at[] = { a, l->i_of[a], x->until_w ? l->w_of[a] : a };

	for (size_t k = 0; k < LEN(at); k++) {
		int64_t tick = place_tick(l, at[k], x->place);

		if (k == 0 || at[k] != a)
			want_region(l, &l->to->act[at[k]][no], (int)no, rows, tick, tick);
	}
}

static void lay_action(struct laying *l, int64_t a)
{
	const struct action *act = &l->to->acts.at[a];
	enum phase phase = act->kind == ACT_F ? FORWARD : BACKWARD;

	for (uint32_t i = 0; i < l->r->at.n; i++) {
		const struct region *x = &l->r->at.at[i];
		struct slot *s = &l->to->act[a][i];
		bool here = x->phase == phase && x->late == (act->kind == ACT_W) && x->kind != RG_STEP && x->kind != RG_ONCE;

		if (here && x->kind == RG_KEPT)
			lay_kept(l, (int)i, a);
		else if (here && x->kind == RG_WORK && pipe_runs(l->m, act->chunk, x->place))
			want_region(l, s, (int)i, 1, place_tick(l, a, x->place), place_tick(l, a, x->place));
		else if (here && is_passing(l, x, act->chunk))
			lay_passing(l, i, a);
		else if (here && x->kind == RG_STASH && pipe_runs(l->m, act->chunk, x->place))
			want_region(l, s, (int)i, trips_of(l, x, act->chunk), place_tick(l, a, x->place),
				    place_tick(l, stash_end(l, x, a), x->place));
	}
}

static void lay_once(struct laying *l)
{
	int64_t end = last_tick(l), places = pipe_places(l->m, l->stage);

	for (uint32_t i = 0; i < l->r->at.n; i++) {
		const struct region *x = &l->r->at.at[i];
		struct slot *s = &l->to->once[i];

		if (x->kind == RG_STEP && (!x->where || (x->where & places)))
			want_region(l, s, (int)i, x->dim == NODIM ? 1 : pipe_rows(l->m, x->dim, l->stage), 0, end);
		else if (x->kind == RG_ONCE)
			want_region(l, s, (int)i, 1, x->phase == PROLOGUE ? 0 : end, x->phase == PROLOGUE ? 0 : end);
	}
}

/* -- channels -- */

int channel_find(const struct layouts *l, int from, int to, enum phase phase)
{
	for (uint32_t i = 0; i < l->channels.n; i++) {
		const struct channel_plan *c = &l->channels.at[i];

		if (c->from == from && c->to == to && c->phase == phase)
			return (int)i;
	}
	return -1;
}

static void add_channel(struct arena *mem, struct layouts *l, const struct module *m, int g, int to, enum phase phase,
			const struct message *msg)
{
	struct channel_plan c = { pipe_stage(m, g), pipe_stage(m, to), phase, 0, m->pipe.buffers ? (int)m->pipe.buffers : 2, -1, -1 };
	int at = channel_find(l, c.from, c.to, phase);

	if (!msg->regions.n)
		return;
	if (at < 0) {
		at = (int)l->channels.n;
		PUSH(mem, &l->channels, c);
	}
	if (msg->bytes > l->channels.at[at].bytes)
		l->channels.at[at].bytes = msg->bytes;
}

static void find_channels(struct arena *mem, struct layouts *l, const struct module *m, const struct regions *r)
{
	int chunks = pipe_chunks(m);

	l->fore = NEWN(mem, struct message, chunks);
	l->back = NEWN(mem, struct message, chunks);
	for (int g = 0; g < chunks; g++) {
		if (g + 1 < chunks) {
			l->fore[g] = message_of(mem, m, r, g, FORWARD);
			add_channel(mem, l, m, g, g + 1, FORWARD, &l->fore[g]);
		}
		if (g) {
			l->back[g] = message_of(mem, m, r, g, BACKWARD);
			add_channel(mem, l, m, g, g - 1, BACKWARD, &l->back[g]);
		}
	}
}

/* A stage that sends to itself must take all that it sends before it receives. */
static int own_buffers(const struct laying *l, const struct channel_plan *c)
{
	int now = 0, most = 1;

	for (uint32_t i = 0; i < l->to->acts.n; i++) {
		const struct action *a = &l->to->acts.at[i];
		enum phase phase = a->kind == ACT_F ? FORWARD : BACKWARD;
		int before = phase == FORWARD ? a->chunk - 1 : a->chunk + 1, after = phase == FORWARD ? a->chunk + 1 : a->chunk - 1;

		if (phase != c->phase || a->kind == ACT_W)
			continue;
		if (before >= 0 && before < pipe_chunks(l->m) && pipe_stage(l->m, before) == l->stage)
			now--;
		if (after >= 0 && after < pipe_chunks(l->m) && pipe_stage(l->m, after) == l->stage)
			now++;
		most = now > most ? now : most;
	}
	return most;
}

static void lay_channels(struct laying *l)
{
	for (uint32_t i = 0; i < l->all->channels.n; i++) {
		struct channel_plan *c = &l->all->channels.at[i];

		if (c->to == l->stage) {
			if (c->from == c->to)
				c->buffers = own_buffers(l, c);
			want(l, &c->in, (struct laid){ .region = -1, .channel = (int)i }, c->bytes * c->buffers, 1, last_tick(l) - 1);
		}
		if (c->from == l->stage && c->to != l->stage)
			want(l, &c->out, (struct laid){ .region = -1, .channel = (int)i }, c->bytes, 1, last_tick(l) - 1);
	}
}

/* -- a stage -- */

/* Does a half of backward of chunk g find it where an action before left it? */
static bool is_left(const struct laying *l, const struct region *x, int g, bool w)
{
	bool read = false;

	if (is_passing(l, x, g))
		return false;
	for (int p = 0; p <= 2 * (int)l->m->pipe.loops.n; p++)
		read |= w ? (x->until_w >> p & 1) && pipe_runs(l->m, g, p) :
			    x->phase == FORWARD && region_read(l->m, x, g, BACKWARD, p);
	return (x->kind == RG_STASH && (w ? x->until_w && !x->late : x->phase == FORWARD)) || (x->kind == RG_KEPT && read);
}

/* What an action does not make itself: what lives as long as the step, and what others left. */
static void inherit_slots(struct laying *l)
{
	for (uint32_t a = 0; a < l->to->acts.n; a++)
		for (uint32_t i = 0; i < l->r->at.n; i++) {
			const struct action *act = &l->to->acts.at[a];
			const struct region *x = &l->r->at.at[i];
			bool makes = act->kind == (x->phase == FORWARD ? ACT_F : ACT_I);
			struct slot *s = l->to->act[a];

			if (x->kind == RG_STEP)
				s[i] = l->to->once[i];
			else if (act->kind == ACT_F && is_left(l, x, act->chunk, false))
				l->to->act[l->i_of[a]][i] = s[i];
			if (x->kind != RG_STEP && makes && is_left(l, x, act->chunk, true))
				l->to->act[l->w_of[a]][i] = s[i];
		}
}

static void clear_slots(struct slot *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		s[i] = (struct slot){ -1, 1 };
}

static void lay_stage(struct laying *l)
{
	struct stage_layout *to = l->to;
	uint32_t n = l->r->at.n;

	l->i_of = find_partners(l, ACT_I);
	l->w_of = find_partners(l, ACT_W);
	to->once = NEWN(l->mem, struct slot, n + 1);
	to->act = NEWN(l->mem, struct slot *, to->acts.n + 1);
	clear_slots(to->once, n);
	for (uint32_t a = 0; a < to->acts.n; a++) {
		to->act[a] = NEWN(l->mem, struct slot, n + 1);
		clear_slots(to->act[a], n);
	}
	lay_once(l);
	lay_channels(l);
	for (uint32_t a = 0; a < to->acts.n; a++)
		lay_action(l, a);
	struct packed **pieces = NEWN(l->mem, struct packed *, to->pieces.n + 1);

	for (uint32_t i = 0; i < to->pieces.n; i++)
		pieces[i] = &to->pieces.at[i]->p;
	to->ticks = last_tick(l);
	to->arena = pack_tight(l->mem, pieces, to->pieces.n, to->ticks);
	to->live = most_live(l->mem, pieces, to->pieces.n, to->ticks);
	for (uint32_t i = 0; i < to->pieces.n; i++)
		*l->bases.at[i] = to->pieces.at[i]->p.off;
	inherit_slots(l);
}

struct layouts *layouts_of(struct arena *mem, const struct module *m, const struct regions *r)
{
	struct layouts *l = NEW(mem, struct layouts);
	struct schedule s = pipe_schedule(m);
	struct actions *acts = schedule_expand(mem, &s);

	l->stages = pipe_stages(m);
	l->stage = NEWN(mem, struct stage_layout, l->stages);
	find_channels(mem, l, m, r);
	for (int i = 0; i < l->stages; i++) {
		struct laying x = { .mem = mem, .m = m, .r = r, .all = l, .to = &l->stage[i], .stage = i,
				    .ticks = 2 * (int64_t)m->pipe.loops.n + 3 };

		l->stage[i].acts = acts[i];
		lay_stage(&x);
	}
	return l;
}

void layout_arenas(struct module *m, struct regions *r)
{
	struct arena *mem = arena_new();

	regions_measure(r, m);
	struct layouts *l = layouts_of(mem, m, r);

	m->arena = 0;
	m->pipe.arena.n = 0;
	for (int i = 0; i < l->stages; i++) {
		PUSH(m->mem, &m->pipe.arena, l->stage[i].arena);
		m->arena = l->stage[i].arena > m->arena ? l->stage[i].arena : m->arena;
	}
	arena_free(mem);
}
