/* ir/layout.c - where the regions of each stage lie, action by action. */
#include "ir/laying.h"

/* Bytes of all pieces that a stage may have, and of the buffers of all channels, or more. */
static bool fits_an_arena(struct arena *mem, const struct module *m)
{
	struct regions *r = regions_of(mem, m);
	double pieces = 3.0 * pipe_chunks(m) * (double)m->micro + 1 + 4.0 * pipe_chunks(m) * (double)(m->pipe.buffers + 2), sum = 0;

	regions_measure(r, m);
	for (uint32_t i = 0; i < r->at.n; i++)
		sum += (double)r->at.at[i].bytes * (r->at.at[i].dim == NODIM ? 1 : (double)dim_size(m, r->at.at[i].dim)) * pieces;
	return sum < 0x1p62;
}

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
	return fits_an_arena(mem, m) ? NULL : "what lies on a stage is larger than any memory";
}

int channel_find(const struct channels *all, int from, int to, enum phase phase)
{
	for (uint32_t i = 0; i < all->n; i++) {
		const struct channel_plan *c = &all->at[i];

		if (c->from == from && c->to == to && c->phase == phase)
			return (int)i;
	}
	return -1;
}

/* -- what an action finds where another left it -- */

/* Does a half of backward of chunk g find it where an action before left it? */
static bool is_left(const struct laying *l, const struct region *x, int g, bool w)
{
	const struct chunk_map *c = &l->want.map;

	if (is_passing(l->m, x, g))
		return false;
	if (x->kind == RG_STASH)
		return w ? x->until_w && !x->late : x->phase == FORWARD;
	return x->kind == RG_KEPT && (w ? x->until_w & c->runs[g] : x->phase == FORWARD && region_reads(c, x, g, BACKWARD));
}

/* Regions that the actions of a chunk leave: F to I, F to W, I to W. */
struct left {
	VEC(uint32_t) fi, fw, iw;
};

static struct left find_left(const struct laying *l, int g)
{
	struct left x = { 0 };

	for (uint32_t i = 0; i < l->r->at.n; i++) {
		const struct region *r = &l->r->at.at[i];

		if (is_left(l, r, g, false))
			PUSH(l->mem, &x.fi, i);
		if (is_left(l, r, g, true) && r->phase == FORWARD)
			PUSH(l->mem, &x.fw, i);
		else if (is_left(l, r, g, true))
			PUSH(l->mem, &x.iw, i);
	}
	return x;
}

static void inherit_slots(const struct line *line, struct slot **act, const struct left *left)
{
	for (uint32_t a = 0; a < line->acts.n; a++) {
		enum action_kind kind = line->acts.at[a].kind;
		const struct left *x = &left[line->acts.at[a].chunk];
		struct slot *s = act[a], *i = act[line->at[AT_I][a]], *w = act[line->at[AT_W][a]];

		for (uint32_t k = 0; kind == ACT_F && k < x->fi.n; k++)
			i[x->fi.at[k]] = s[x->fi.at[k]];
		for (uint32_t k = 0; kind == ACT_F && k < x->fw.n; k++)
			w[x->fw.at[k]] = s[x->fw.at[k]];
		for (uint32_t k = 0; kind == ACT_I && k < x->iw.n; k++)
			w[x->iw.at[k]] = s[x->iw.at[k]];
	}
}

/* -- a stage -- */

static void set_place(struct layouts *all, struct stage_layout *to, int stage, const struct laid *x)
{
	if (x->region >= 0) {
		(x->act < 0 ? to->once : to->act[x->act])[x->region] = (struct slot){ x->p.off, x->rows };
		return;
	}
	struct channel_plan *c = &all->channels.at[x->channel];

	*(c->to == stage ? &c->in : &c->out) = x->p.off;
}

/* Slots of n regions, for each action: what lives as long as the step is there always. */
static void make_slots(const struct laying *l, struct stage_layout *to, uint32_t n)
{
	struct slot *all = NEWN(l->mem, struct slot, (int64_t)(to->acts.n + 1) * (n + 1)), *always = NEWN(l->mem, struct slot, n + 1);

	for (uint32_t i = 0; i < n; i++)
		always[i] = l->r->at.at[i].kind == RG_STEP ? to->once[i] : (struct slot){ -1, 1 };
	to->act = NEWN(l->mem, struct slot *, to->acts.n + 1);
	for (uint32_t a = 0; a < to->acts.n; a++) {
		to->act[a] = all + (int64_t)a * (n + 1);
		memcpy(to->act[a], always, n * sizeof *always);
	}
}

static void lay_stage(const struct laying *l, struct layouts *all, int stage, const struct left *left)
{
	struct stage_layout *to = &all->stage[stage];
	const struct packing *packed = packing_of(l, stage);
	uint32_t n = l->r->at.n, once = 0;

	to->acts = l->line[stage].acts;
	to->arena = packed->arena;
	to->live = packed->live;
	to->ticks = 1 + to->acts.n * l->ticks;
	to->pieces = pieces_of(l, stage);
	for (uint32_t i = 0; i < to->pieces.n; i++)
		to->pieces.at[i]->p.off = packed->off[i];
	to->once = NEWN(l->mem, struct slot, n + 1);
	for (uint32_t i = 0; i < n; i++)
		to->once[i] = (struct slot){ -1, 1 };
	for (; once < to->pieces.n && to->pieces.at[once]->act < 0; once++)
		set_place(all, to, stage, to->pieces.at[once]);
	make_slots(l, to, n);
	for (uint32_t i = once; i < to->pieces.n; i++)
		set_place(all, to, stage, to->pieces.at[i]);
	inherit_slots(&l->line[stage], to->act, left);
}

struct layouts *layouts_of(struct arena *mem, const struct module *m, const struct regions *r)
{
	struct layouts *all = NEW(mem, struct layouts);
	struct known *known = NEW(mem, struct known);
	struct left *left = NEWN(mem, struct left, pipe_chunks(m));

	*known = (struct known){ .mem = mem, .places = true };
	struct laying l = lay(mem, m, r, lines_of(mem, m), known);

	all->stages = pipe_stages(m);
	all->stage = NEWN(mem, struct stage_layout, all->stages);
	all->fore = l.want.fore;
	all->back = l.want.back;
	all->channels = l.want.channels;
	for (int g = 0; g < pipe_chunks(m); g++)
		left[g] = find_left(&l, g);
	for (int d = 0; d < all->stages; d++)
		lay_stage(&l, all, d, left);
	return all;
}

void layout_arenas(struct module *m, struct regions *r)
{
	struct arena *mem = arena_new();
	int64_t *bytes = NEWN(mem, int64_t, pipe_stages(m));

	regions_measure(r, m);
	arenas_find(arenas_open(mem, m, r), bytes);
	m->arena = 0;
	m->pipe.arena.n = 0;
	for (int d = 0; d < pipe_stages(m); d++) {
		PUSH(m->mem, &m->pipe.arena, bytes[d]);
		m->arena = bytes[d] > m->arena ? bytes[d] : m->arena;
	}
	arena_free(mem);
}
