/* passes/prove_step.c - a step of each stage: prologue, microbatches, epilogue.
 *
 * Without a pipeline microbatches share all memory, so a few are walked, with the parity of all. With one every
 * action of the stage is: a microbatch has places of its own. What FORWARD left of it is put aside until its
 * BACKWARD; anything else a microbatch does not find, whatever another left there. */
#include "passes/prove.h"

enum { FEW = 4 };

static const struct slot whole_arena = { 0, 1 };

/* What reports need that need no backward. */
static const bool *find_shown(struct prover *p)
{
	int64_t n = 0;
	bool *back, *want;

	for (struct op *op = p->m->top.first; op; op = op->next)
		op->mark = n++;
	back = NEWN(p->d->mem, bool, n + 1);
	want = NEWN(p->d->mem, bool, n + 1);
	for (const struct op *op = p->m->top.first; op; op = op->next) {
		back[op->mark] = op->phase == BACKWARD;
		for (uint32_t i = 0; i < op->nin; i++)
			back[op->mark] |= op->in[i]->def && back[op->in[i]->def->mark];
	}
	for (const struct op *op = p->m->top.last; op; op = op->prev) {
		want[op->mark] |= op->code == OP_REPORT && !back[op->mark];
		for (uint32_t i = 0; i < op->nin && want[op->mark]; i++)
			if (op->in[i]->def)
				want[op->in[i]->def->mark] = true;
	}
	return want;
}

/* -- buffers -- */

static bool is_here(const struct prover *p, const struct buffer *b)
{
	return b->role != B_INPUT && (!p->l || holds_buffer(p->m, b, p->stage));
}

static bool place_buffers(struct prover *p)
{
	p->memory.pieces.n = 0;
	for (uint32_t i = 0; i < p->m->bufs.n; i++) {
		const struct buffer *b = p->m->bufs.at[i];
		struct piece hole;

		p->bufs[i] = (struct content){ 0, 0 };
		if (!is_here(p, b))
			continue;
		struct bytes at = buffer_range(p, i);

		if (b->off < 0 || b->off % 64 || at.lo < 0 || at.hi > prove_end(p, at))
			return diag_error(p->d, b->at, "unsafe plan: the buffer '%s' lies outside of the arena", b->name);
		const struct piece *x = memory_find(&p->memory, at, (struct content){ 0, 0 }, &hole);

		if (at.lo < at.hi && (x != &hole || hole.at.hi < at.hi))
			return diag_error(p->d, b->at, "unsafe plan: the buffer '%s' lies on another", b->name);
		p->bufs[i] = (struct content){ tag_new(p, NULL), at.lo };
		memory_put(&p->memory, at, p->bufs[i]);
	}
	return true;
}

static bool keeps_buffers(struct prover *p)
{
	for (uint32_t i = 0; i < p->m->bufs.n; i++) {
		const struct buffer *b = p->m->bufs.at[i];
		struct piece hole;
		const struct piece *x = is_here(p, b) ? memory_find(&p->memory, buffer_range(p, i), p->bufs[i], &hole) : NULL;

		if (x)
			return diag_error(p->d, b->at, "unsafe plan: at the end of %s step '%s' holds %s in bytes %lld to %lld",
					  p->eval ? "an evaluation" : "a", b->name, content_name(p, x->is),
					  (long long)x->at.lo, (long long)x->at.hi);
	}
	return true;
}

/* -- sections -- */

static bool runs_here(const struct prover *p, const struct op *op)
{
	if (op->phase == FORWARD || op->phase == BACKWARD)
		return true;
	return !p->l || !HAS(op, where) || !op->at.where || (op->at.where & p->places);
}

/* place -1: all. */
static bool walk_section(struct prover *p, int section, int place)
{
	int64_t i = 0;

	for (const struct op *op = p->m->top.first; op; op = op->next, i++) {
		if (op_section(op) != section || (p->eval && !p->shown[i]) || (place >= 0 && op_place(op) != place))
			continue;
		if (runs_here(p, op) ? !walk_op(p, op) : !prove_absent(p, op))
			return false;
	}
	return true;
}

static bool walk_once(struct prover *p, enum phase phase)
{
	p->slot = p->l ? p->l->stage[p->stage].once : &whole_arena;
	p->chunk = -1;
	p->first = true;
	p->nth = 0;
	return walk_section(p, phase, -1);
}

static bool walk_micros(struct prover *p)
{
	int64_t micro = p->m->micro <= FEW ? p->m->micro : FEW - p->m->micro % 2;

	for (p->nth = 0; p->nth < micro; p->nth++) {
		p->first = p->nth == 0;
		if (!walk_section(p, FORWARD, -1) || !walk_section(p, BACKWARD, -1))
			return false;
	}
	return true;
}

/* -- actions -- */

struct walk {
	struct prover *p;
	struct content **left; /* by chunk and microbatch: what FORWARD, and I, left, by id; NULL: it has not run */
	uint32_t nleft;        /* so many of the prover's are taken */
	int64_t seen[NSECTION]; /* places */
	int64_t *had[NSECTION]; /* by chunk: microbatches */
};

/* The region of what a value of the top block lies in; NULL: a buffer's, or none. */
static const struct region *region_of(const struct prover *p, const struct value *v)
{
	const struct value *root = p->r->root[v->id];
	int no = root ? p->r->of[root->id] : -1;

	return no < 0 ? NULL : &p->r->at.at[no];
}

/* What an action finds: of FORWARD what the same microbatch left, of BACKWARD nothing, but W what I left. */
static void begin_contents(struct prover *p, const struct content *left, bool w)
{
	for (const struct op *op = p->m->top.first; op; op = op->next)
		for (uint32_t k = 0; k < op->nout && (op->phase == FORWARD || op->phase == BACKWARD); k++) {
			const struct value *v = op->out[k];
			const struct region *x = region_of(p, v);

			if (x && x->kind == RG_STEP)
				continue;
			p->held[v->id].is = left && (op->phase == FORWARD || w) ? left[v->id] : (struct content){ 0, 0 };
		}
}

static void leave_contents(struct prover *p, struct content *left, enum phase phase)
{
	for (const struct op *op = p->m->top.first; op; op = op->next)
		for (uint32_t k = 0; k < op->nout && op->phase == phase; k++)
			left[op->out[k]->id] = p->held[op->out[k]->id].is;
}

/* Room for what a microbatch leaves in a chunk; nothing of BACKWARD is there yet. */
static struct content *room_to_leave(struct walk *w)
{
	struct prover *p = w->p;

	if (w->nleft == p->left.n)
		PUSH(p->d->mem, &p->left, NEWN(p->d->mem, struct content, p->m->next_id + 1));
	struct content *left = p->left.at[w->nleft++];

	for (const struct op *op = p->m->top.first; op; op = op->next)
		for (uint32_t k = 0; k < op->nout && op->phase == BACKWARD; k++)
			left[op->out[k]->id] = (struct content){ 0, 0 };
	return left;
}

/* An evaluation sends what it does not make as well: nobody reads that. Marks are those of find_shown. */
static bool is_made(const struct prover *p, const struct value *v)
{
	return !p->eval || p->shown[v->def->mark];
}

/* A message is there: it holds the values of its regions, and all that lie in them. */
static bool receive(struct prover *p, const struct message *msg)
{
	for (uint32_t i = 0; i < msg->regions.n; i++) {
		const struct value *v = p->r->at.at[msg->regions.at[i]].v;
		struct bytes at = range_of(p, &p->held[v->id].spot);
		struct content is = { is_made(p, v) ? tag_new(p, v) : 0, at.lo };

		if (at.lo < 0 || at.hi > prove_end(p, at))
			return unsafe(p, v->def, "a message brings it to stage %d, which has no place for it", p->stage);
		for (uint32_t k = 0; k < p->flights.n; k++)
			if (meet(p->flights.at[k].at, at))
				return unsafe(p, v->def, "a message brings it to where another still is");
		memory_put(&p->memory, at, is);
		for (const struct op *op = p->m->top.first; op; op = op->next)
			for (uint32_t k = 0; k < op->nout; k++)
				if (p->r->root[op->out[k]->id] == v)
					p->held[op->out[k]->id].is = is;
	}
	return true;
}

static bool send(struct prover *p, const struct message *msg)
{
	for (uint32_t i = 0; i < msg->regions.n; i++) {
		const struct value *v = p->r->at.at[msg->regions.at[i]].v;

		if (is_made(p, v) && !read_value(p, v->def, v))
			return false;
	}
	return true;
}

static bool walk_places(struct walk *w, int section, int chunk)
{
	struct prover *p = w->p;
	int last = 2 * (int)p->m->pipe.loops.n;
	int64_t seen = w->seen[section];

	for (int i = 0; i <= last; i++) {
		int place = section == FORWARD ? i : last - i;

		if (!pipe_runs(p->m, chunk, place))
			continue;
		p->first = !(seen >> place & 1);
		w->seen[section] |= 1ll << place;
		if (!walk_section(p, section, place))
			return false;
	}
	return true;
}

static bool walk_action(struct walk *w, uint32_t no)
{
	struct prover *p = w->p;
	const struct action *a = &p->l->stage[p->stage].acts.at[no];
	int section = action_section(a);
	enum phase phase = section == FORWARD ? FORWARD : BACKWARD;
	struct content **left = &w->left[a->chunk * p->m->micro + a->mb];
	int before = phase == FORWARD ? a->chunk - 1 : a->chunk + 1, after = phase == FORWARD ? a->chunk + 1 : a->chunk - 1;
	const struct message *msg = phase == FORWARD ? p->l->fore : p->l->back;

	p->slot = p->l->stage[p->stage].act[no];
	p->chunk = a->chunk;
	p->nth = w->had[section][a->chunk]++;
	if ((phase == FORWARD) != !*left)
		return unsafe(p, p->m->top.first, "stage %d: action %u, %c of chunk %d and microbatch %d: %s", p->stage, no,
			      action_letter[a->kind], a->chunk, a->mb, *left ? "twice" : "its forward has not run");
	begin_contents(p, *left, section == SECTION_W);
	if (section == SECTION_W)
		return walk_places(w, section, a->chunk);
	if (before >= 0 && before < pipe_chunks(p->m) && !receive(p, &msg[before]))
		return false;
	if (!walk_places(w, section, a->chunk))
		return false;
	if (after >= 0 && after < pipe_chunks(p->m) && !send(p, &msg[a->chunk]))
		return false;
	if (phase == FORWARD)
		*left = room_to_leave(w);
	leave_contents(p, *left, phase);
	return true;
}

/* Messages come when they may: their buffers are the channels' as long as there are actions. */
static void open_channels(struct prover *p)
{
	for (uint32_t i = 0; i < p->l->channels.n; i++) {
		const struct channel_plan *c = &p->l->channels.at[i];

		if (c->to == p->stage)
			start_flight(p, NULL, (struct bytes){ c->in, c->in + c->bytes * c->buffers }, true);
		if (c->from == p->stage && c->from != c->to)
			start_flight(p, NULL, (struct bytes){ c->out, c->out + c->bytes }, true);
	}
}

static bool has_late(const struct module *m)
{
	for (const struct op *op = m->top.first; op; op = op->next)
		if (HAS(op, late))
			return true;
	return false;
}

static bool had_all(const struct walk *w, int g)
{
	int64_t micro = w->p->m->micro;

	return w->had[FORWARD][g] == micro && (w->p->eval || w->had[BACKWARD][g] == micro) &&
	       (w->p->eval || !has_late(w->p->m) || w->had[SECTION_W][g] == micro);
}

static bool walk_actions(struct prover *p)
{
	const struct actions *acts = &p->l->stage[p->stage].acts;
	int64_t chunks = pipe_chunks(p->m);
	struct walk w = { .p = p, .left = NEWN(p->d->mem, struct content *, chunks * p->m->micro + 1) };

	for (int i = 0; i < NSECTION; i++)
		w.had[i] = NEWN(p->d->mem, int64_t, chunks + 1);
	open_channels(p);
	for (uint32_t i = 0; i < acts->n; i++)
		if ((!p->eval || acts->at[i].kind == ACT_F) && !walk_action(&w, i)) {
			diag_note(p->d, (struct span){ 0 }, "stage %d, action %u: %c of chunk %d, microbatch %d", p->stage, i,
				  action_letter[acts->at[i].kind], acts->at[i].chunk, acts->at[i].mb);
			return false;
		}
	for (int g = 0; g < chunks; g++)
		if (pipe_stage(p->m, g) == p->stage && !had_all(&w, g))
			return unsafe(p, p->m->top.first, "chunk %d has not had all microbatches", g);
	p->flights.n = 0;
	return true;
}

/* -- a stage -- */

static bool walk_step(struct prover *p)
{
	for (uint32_t i = 0; i < p->m->next_id; i++) {
		p->held[i].is = p->held[i].was = (struct content){ 0, 0 };
		p->held[i].level = 0;
	}
	p->made.n = 1;
	p->flights.n = 0;
	memset(p->turns, 0, sizeof p->turns);
	p->slot = p->l ? p->l->stage[p->stage].once : &whole_arena;
	if (!place_buffers(p) || !walk_once(p, PROLOGUE))
		return false;
	if (p->flights.n && p->l)
		return unsafe(p, p->flights.at[0].op, "nothing waits for it before the microbatches");
	if (!(p->l ? walk_actions(p) : walk_micros(p)) || !walk_once(p, EPILOGUE) || !keeps_buffers(p))
		return false;
	return !p->flights.n || unsafe(p, p->flights.at[0].op, "nothing waits for it");
}

static bool walk_stage(struct prover *p, int stage)
{
	p->stage = stage;
	p->places = p->l ? pipe_places(p->m, stage) : 0;
	p->arena = p->m->arena;
	if (p->l && (stage >= (int)p->m->pipe.arena.n || p->m->pipe.arena.at[stage] != p->l->stage[stage].arena))
		return diag_error(p->d, (struct span){ 0 }, "unsafe plan: the arena of stage %d does not fit what lies in it", stage);
	if (p->l)
		p->arena = p->m->pipe.arena.at[stage];
	p->eval = false;
	if (!walk_step(p))
		return false;
	p->eval = true;
	return walk_step(p);
}

bool prove_steps(struct prover *p)
{
	p->shown = find_shown(p);
	find_buffers(p);
	for (int s = 0; s < (p->l ? p->l->stages : 1); s++)
		if (!walk_stage(p, s))
			return false;
	return true;
}
