/* ir/arenas.c - the pieces of each stage's arena, and how high they are when they are packed. */
#include "ir/laying.h"

/* -- lines -- */

/* Of each action, by number: the one that ends with this half of backward of the same chunk and microbatch. */
static int64_t *find_halves(struct arena *mem, const struct actions *acts, const int *no, int64_t micro, size_t chunks, enum action_kind half)
{
	int64_t *at = NEWN(mem, int64_t, acts->n + 1), *of = NEWN(mem, int64_t, (int64_t)chunks * micro + 1);

	for (uint32_t i = 0; i < acts->n; i++)
		if (acts->at[i].kind == half || acts->at[i].kind == ACT_B)
			of[no[acts->at[i].chunk] * micro + acts->at[i].mb] = i;
	for (uint32_t i = 0; i < acts->n; i++)
		at[i] = of[no[acts->at[i].chunk] * micro + acts->at[i].mb];
	return at;
}

/* The same actions, but that chunks are numbered among their stage's? */
static bool act_alike(const struct line *a, const struct line *b, const int *no)
{
	bool same = a->acts.n == b->acts.n && a->chunks.n == b->chunks.n;

	for (uint32_t i = 0; same && i < a->acts.n; i++) {
		const struct action *x = &a->acts.at[i], *y = &b->acts.at[i];

		same = x->kind == y->kind && x->mb == y->mb && no[x->chunk] == no[y->chunk];
	}
	return same;
}

struct line *lines_of(struct arena *mem, const struct module *m)
{
	struct schedule s = pipe_schedule(m);
	struct actions *acts = schedule_expand(mem, &s);
	int stages = pipe_stages(m), chunks = pipe_chunks(m), *no = NEWN(mem, int, chunks);
	struct line *all = NEWN(mem, struct line, stages);

	for (int g = 0; g < chunks; g++) {
		struct line *x = &all[pipe_stage(m, g)];

		no[g] = (int)x->chunks.n;
		PUSH(mem, &x->chunks, g);
	}
	for (int d = 0; d < stages; d++) {
		struct line *x = &all[d];

		x->acts = acts[d];
		x->at[OWN] = NEWN(mem, int64_t, x->acts.n + 1);
		for (uint32_t i = 0; i < x->acts.n; i++)
			x->at[OWN][i] = i;
		x->at[AT_I] = find_halves(mem, &x->acts, no, m->micro, x->chunks.n, ACT_I);
		x->at[AT_W] = find_halves(mem, &x->acts, no, m->micro, x->chunks.n, ACT_W);
		while (x->alike < d && !(all[x->alike].alike == x->alike && act_alike(x, &all[x->alike], no)))
			x->alike++;
	}
	return all;
}

enum turn turn_of(const struct action *a)
{
	return a->kind == ACT_F ? ON_F : a->kind == ACT_W ? ON_W : ON_B;
}

/* -- what the actions of a chunk need -- */

static int8_t tick_of(const struct laying *l, enum phase phase, int place)
{
	return (int8_t)(1 + (phase == FORWARD ? place : l->want.map.last - place));
}

/* Of the places at which a phase reads it, the tick of the last; -1: there are none. */
static int8_t last_read(const struct laying *l, enum phase phase, int64_t places)
{
	if (!places)
		return -1;
	return tick_of(l, phase, phase == FORWARD ? 63 - __builtin_clzll((uint64_t)places) : __builtin_ctzll((uint64_t)places));
}

static int8_t later(int8_t a, int8_t b)
{
	return a > b ? a : b;
}

static bool runs(const struct laying *l, int g, int place)
{
	return l->want.map.runs[g] >> place & 1;
}

static bool sends(const struct laying *l, uint32_t no, int g)
{
	const struct trips *t = &l->want.sent[no];

	return t->lo <= g && g < t->hi;
}

static struct need need_of(const struct laying *l, uint32_t no, int64_t rows, enum when in, int8_t start)
{
	const struct region *x = &l->r->at.at[no];

	rows = x->dim == NODIM ? 1 : rows;
	return (struct need){ (int)no, rows, round_up(x->bytes * rows), (int8_t)in, start, { -1, -1, -1 } };
}

/* A kept value comes in or is made, is read, goes out; backward may read it later. */
static void need_kept(struct laying *l, uint32_t no, int g, struct needs *to)
{
	const struct region *x = &l->r->at.at[no];
	bool fore = x->phase == FORWARD, comes = (fore ? g > 0 : g + 1 < l->want.map.chunks) && sends(l, no, fore ? g - 1 : g + 1);
	bool made = runs(l, g, x->place);
	int8_t at = tick_of(l, x->phase, x->place);

	if (!comes && !made)
		return;
	struct need n = need_of(l, no, 1, OWN, comes ? 0 : at);

	n.end[OWN] = later(made ? at : n.start, last_read(l, x->phase, region_reads(&l->want.map, x, g, x->phase)));
	if (sends(l, no, g))
		n.end[OWN] = (int8_t)(l->ticks - 1);
	if (fore)
		n.end[AT_I] = last_read(l, BACKWARD, region_reads(&l->want.map, x, g, BACKWARD));
	n.end[AT_W] = last_read(l, BACKWARD, x->until_w & l->want.map.runs[g]);
	PUSH(l->mem, to, n);
}

static int64_t trips_of(const struct laying *l, const struct region *x, int g)
{
	struct trips t = x->dim == NODIM ? (struct trips){ 0, 1 } : pipe_trips(l->m, x->dim, g);

	return t.hi - t.lo;
}

/* Rows of a PART_KEPT in a chunk that has none of its iterations: the others make in their place what they need
 * while they run, and leave nothing. */
bool is_passing(const struct module *m, const struct region *x, int g)
{
	const struct dim *d = x->kind == RG_STASH && x->dim != NODIM ? &m->dims.at[x->dim] : NULL;

	if (!d || d->part != PART_KEPT)
		return false;
	struct trips t = pipe_trips(m, d->of, g);

	return pipe_chunk_number(m, d->of, g) + t.hi - t.lo <= d->from;
}

static void need_passing(struct laying *l, uint32_t no, int g, struct needs *to)
{
	const struct region *x = &l->r->at.at[no];
	int64_t rows = trips_of(l, x, g);

	for (enum when k = OWN; k <= (x->until_w ? AT_W : AT_I); k++) {
		int8_t at = tick_of(l, k == OWN ? x->phase : BACKWARD, x->place);
		struct need n = need_of(l, no, rows, k, at);

		n.end[k] = at;
		PUSH(l->mem, to, n);
	}
}

/* From one action to the last that reads it, at one place. */
static void need_stash(struct laying *l, uint32_t no, int g, struct needs *to)
{
	const struct region *x = &l->r->at.at[no];
	enum when until = x->until_w ? AT_W : x->phase == FORWARD ? AT_I : OWN;
	struct need n = need_of(l, no, trips_of(l, x, g), OWN, tick_of(l, x->phase, x->place));

	n.end[until] = tick_of(l, until == OWN ? x->phase : BACKWARD, x->place);
	PUSH(l->mem, to, n);
}

static void need_work(struct laying *l, uint32_t no, struct needs *to)
{
	const struct region *x = &l->r->at.at[no];
	struct need n = need_of(l, no, 1, OWN, tick_of(l, x->phase, x->place));

	n.end[OWN] = n.start;
	PUSH(l->mem, to, n);
}

static void find_needs(struct laying *l, int g)
{
	for (uint32_t i = 0; i < l->r->at.n; i++) {
		const struct region *x = &l->r->at.at[i];
		struct needs *to = &l->want.of[g][x->phase == FORWARD ? ON_F : x->late ? ON_W : ON_B];

		if (x->phase != FORWARD && x->phase != BACKWARD)
			continue;
		if (x->kind == RG_KEPT)
			need_kept(l, i, g, to);
		else if (x->kind == RG_WORK && runs(l, g, x->place))
			need_work(l, i, to);
		else if (is_passing(l->m, x, g))
			need_passing(l, i, g, to);
		else if (x->kind == RG_STASH && runs(l, g, x->place))
			need_stash(l, i, g, to);
	}
}

/* -- channels -- */

static void add_channel(struct laying *l, int g, int to, enum phase phase, const struct message *msg)
{
	const struct module *m = l->m;
	struct demand *x = &l->want;
	struct channel_plan c = { pipe_stage(m, g), pipe_stage(m, to), phase, 0, m->pipe.buffers ? (int)m->pipe.buffers : 2, -1, -1 };
	int at = msg->regions.n ? channel_find(&x->channels, c.from, c.to, phase) : -1;

	if (!msg->regions.n)
		return;
	if (at < 0) {
		at = (int)x->channels.n;
		PUSH(l->mem, &x->channels, c);
	}
	if (msg->bytes > x->channels.at[at].bytes)
		x->channels.at[at].bytes = msg->bytes;
}

static void find_channels(struct laying *l)
{
	struct demand *x = &l->want;

	x->fore = messages_of(l->mem, &x->map, l->r, FORWARD);
	x->back = messages_of(l->mem, &x->map, l->r, BACKWARD);
	for (int g = 0; g < x->map.chunks; g++) {
		if (g + 1 < x->map.chunks)
			add_channel(l, g, g + 1, FORWARD, &x->fore[g]);
		if (g)
			add_channel(l, g, g - 1, BACKWARD, &x->back[g]);
	}
}

/* A stage that sends to itself must take all that it sends before it receives. */
static int own_buffers(const struct laying *l, int stage, enum phase of)
{
	const struct actions *acts = &l->line[stage].acts;
	int now = 0, most = 1;

	for (uint32_t i = 0; i < acts->n; i++) {
		const struct action *a = &acts->at[i];
		enum phase phase = a->kind == ACT_F ? FORWARD : BACKWARD;
		int before = phase == FORWARD ? a->chunk - 1 : a->chunk + 1, after = phase == FORWARD ? a->chunk + 1 : a->chunk - 1;

		if (phase != of || a->kind == ACT_W)
			continue;
		if (before >= 0 && before < l->want.map.chunks && pipe_stage(l->m, before) == stage)
			now--;
		if (after >= 0 && after < l->want.map.chunks && pipe_stage(l->m, after) == stage)
			now++;
		most = now > most ? now : most;
	}
	return most;
}

struct laying lay(struct arena *mem, const struct module *m, const struct regions *r, const struct line *line, struct known *known)
{
	struct laying l = { mem, m, r, line, known, { .map = chunk_map_of(mem, m) }, 2 * (int64_t)m->pipe.loops.n + 3 };

	l.want.sent = NEWN(mem, struct trips, r->at.n + 1);
	for (uint32_t i = 0; i < r->at.n; i++)
		l.want.sent[i] = region_senders(&l.want.map, &r->at.at[i]);
	find_channels(&l);
	for (uint32_t i = 0; i < l.want.channels.n; i++) {
		struct channel_plan *c = &l.want.channels.at[i];

		if (c->from == c->to)
			c->buffers = own_buffers(&l, c->to, c->phase);
	}
	l.want.of = arena_alloc(mem, (size_t)l.want.map.chunks * sizeof *l.want.of);
	for (int g = 0; g < l.want.map.chunks; g++)
		find_needs(&l, g);
	return l;
}

/* -- pieces -- */

static int64_t begin_of(const struct laying *l, int64_t a)
{
	return 1 + a * l->ticks;
}

static int64_t last_tick(const struct laying *l, int stage)
{
	return begin_of(l, l->line[stage].acts.n);
}

static void put(const struct laying *l, struct pieces *to, struct laid what, int64_t bytes, int64_t start, int64_t end)
{
	struct laid *x = NEW(l->mem, struct laid);

	*x = what;
	x->p = (struct packed){ .bytes = round_up(bytes), .start = start, .end = end };
	PUSH(l->mem, to, x);
}

static void put_once(const struct laying *l, int stage, struct pieces *to)
{
	const struct line *line = &l->line[stage];
	int64_t end = last_tick(l, stage), places = 0;

	for (uint32_t i = 0; i < line->chunks.n; i++)
		places |= l->want.map.runs[line->chunks.at[i]];
	for (uint32_t i = 0; i < l->r->at.n; i++) {
		const struct region *x = &l->r->at.at[i];
		struct laid what = { .region = (int)i, .channel = -1, .act = -1, .rows = 1 };

		if (x->kind == RG_STEP && (!x->where || (x->where & places))) {
			what.rows = x->dim == NODIM ? 1 : pipe_rows(l->m, x->dim, stage);
			put(l, to, what, x->bytes * what.rows, 0, end);
		} else if (x->kind == RG_ONCE) {
			put(l, to, what, x->bytes, x->phase == PROLOGUE ? 0 : end, x->phase == PROLOGUE ? 0 : end);
		}
	}
}

static void put_channels(const struct laying *l, int stage, struct pieces *to)
{
	int64_t end = last_tick(l, stage) - 1;

	for (uint32_t i = 0; i < l->want.channels.n; i++) {
		const struct channel_plan *c = &l->want.channels.at[i];
		struct laid what = { .region = -1, .channel = (int)i, .act = -1 };

		if (c->to == stage)
			put(l, to, what, c->bytes * c->buffers, 1, end);
		if (c->from == stage && c->to != stage)
			put(l, to, what, c->bytes, 1, end);
	}
}

static void put_need(const struct laying *l, const struct line *line, int64_t a, const struct need *n, struct pieces *to)
{
	int64_t in = line->at[n->in][a], end = -1;

	if (n->in != OWN && in == a)
		return;
	for (enum when k = OWN; k < NWHEN; k++) {
		int64_t t = n->end[k] < 0 ? -1 : begin_of(l, line->at[k][a]) + n->end[k];

		end = t > end ? t : end;
	}
	put(l, to, (struct laid){ .region = n->region, .channel = -1, .act = in, .rows = n->rows }, n->bytes,
	    begin_of(l, in) + n->start, end);
}

static void put_actions(const struct laying *l, int stage, struct pieces *to)
{
	const struct line *line = &l->line[stage];

	for (uint32_t a = 0; a < line->acts.n; a++) {
		const struct action *act = &line->acts.at[a];
		const struct needs *needs = &l->want.of[act->chunk][turn_of(act)];

		for (uint32_t i = 0; i < needs->n; i++)
			put_need(l, line, a, &needs->at[i], to);
	}
}

struct pieces pieces_of(const struct laying *l, int stage)
{
	struct pieces p = { 0 };

	put_once(l, stage, &p);
	put_channels(l, stage, &p);
	put_actions(l, stage, &p);
	return p;
}

/* -- packing -- */

struct key {
	int64_t *at;
	uint32_t n, cap;
};

/* All that sizes and lifetimes of a stage's pieces follow from, given what is the same for all stages. */
static struct key key_of(const struct laying *l, int stage)
{
	const struct line *line = &l->line[stage];
	struct pieces always = { 0 };
	struct key k = { 0 };

	PUSH(l->mem, &k, line->alike);
	put_once(l, stage, &always);
	put_channels(l, stage, &always);
	PUSH(l->mem, &k, always.n);
	for (uint32_t i = 0; i < always.n; i++) {
		PUSH(l->mem, &k, always.at[i]->p.bytes);
		PUSH(l->mem, &k, always.at[i]->p.start << 32 | always.at[i]->p.end);
	}
	for (uint32_t c = 0; c < line->chunks.n; c++)
		for (enum turn t = ON_F; t < NTURN; t++) {
			const struct needs *needs = &l->want.of[line->chunks.at[c]][t];

			PUSH(l->mem, &k, needs->n);
			for (uint32_t i = 0; i < needs->n; i++) {
				const struct need *n = &needs->at[i];
				int64_t when = n->in;

				when = when << 8 | n->start;
				for (enum when w = OWN; w < NWHEN; w++)
					when = when << 8 | (n->end[w] + 1);
				PUSH(l->mem, &k, n->bytes);
				PUSH(l->mem, &k, when);
			}
		}
	return k;
}

static struct packing *pack_new(const struct laying *l, int stage, const struct key *k)
{
	struct arena *mem = l->known->mem;
	struct packing *x = NEW(mem, struct packing);
	struct pieces p = pieces_of(l, stage);
	struct packed **at = NEWN(l->mem, struct packed *, p.n + 1);
	int64_t *off = NEWN(l->known->places ? mem : l->mem, int64_t, p.n + 1), *key = NEWN(mem, int64_t, k->n);

	for (uint32_t i = 0; i < p.n; i++)
		at[i] = &p.at[i]->p;
	x->arena = pack_tight(l->mem, at, p.n, last_tick(l, stage));
	x->live = most_live(l->mem, at, p.n, last_tick(l, stage));
	for (uint32_t i = 0; i < p.n; i++)
		off[i] = at[i]->off;
	memcpy(key, k->at, k->n * sizeof *key);
	x->off = l->known->places ? off : NULL;
	x->key = key;
	x->words = k->n;
	return x;
}

const struct packing *packing_of(const struct laying *l, int stage)
{
	struct key k = key_of(l, stage);
	size_t bytes = k.n * sizeof *k.at;
	struct packing **first = &l->known->first[fnv1a(FNV_START, k.at, bytes) % LEN(l->known->first)], *x = *first;

	while (x && (x->words != k.n || memcmp(x->key, k.at, bytes)))
		x = x->next;
	if (x)
		return x;
	x = pack_new(l, stage, &k);
	x->next = *first;
	return *first = x;
}

/* -- arenas alone -- */

struct arenas {
	const struct module *m;
	const struct regions *r;
	const struct line *line;
	struct known known;
};

struct arenas *arenas_open(struct arena *mem, const struct module *m, const struct regions *r)
{
	struct arenas *a = NEW(mem, struct arenas);

	a->m = m;
	a->r = r;
	a->line = lines_of(mem, m);
	a->known.mem = mem;
	return a;
}

void arenas_find(struct arenas *a, int64_t *bytes)
{
	struct arena *mem = arena_new();
	struct laying l = lay(mem, a->m, a->r, a->line, &a->known);

	for (int d = 0; d < pipe_stages(a->m); d++)
		bytes[d] = packing_of(&l, d)->arena;
	arena_free(mem);
}
