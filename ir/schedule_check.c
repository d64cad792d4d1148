/* ir/schedule_check.c - is a list of actions for each stage a step, and does it come to its end? */
#include "ir/simulate.h"

struct check {
	struct arena *mem;
	const struct schedule *s;
	const struct actions *list;
	struct schedule_fault *fault;
	uint8_t *seen; /* kinds, by chunk and microbatch */
};

static bool fault(struct check *c, int stage, uint32_t at, const char *what, const char *note)
{
	c->fault->what = what;
	c->fault->note = note;
	c->fault->stage = stage;
	c->fault->at = at;
	return false;
}

static const char *name(struct check *c, const struct action *a)
{
	return arena_printf(c->mem, "%d%c%d", a->chunk, action_letter[a->kind], a->mb);
}

static bool check_action(struct check *c, int d, uint32_t i)
{
	enum { F = 1 << ACT_F, B = 1 << ACT_B, I = 1 << ACT_I, W = 1 << ACT_W };
	static const uint8_t needs[NACT] = { 0, F, F, F | I }, excludes[NACT] = { F, B | I | W, B | I, B | W };
	const struct action *a = &c->list[d].at[i];

	if (a->kind >= NACT || a->chunk >= c->s->p * c->s->v || a->mb < 0 || a->mb >= c->s->m)
		return fault(c, d, i, arena_printf(c->mem, "'%s' is not one of %d chunks and %d microbatches", name(c, a),
						   c->s->p * c->s->v, c->s->m), NULL);
	if (schedule_stage(c->s, a->chunk) != d)
		return fault(c, d, i, arena_printf(c->mem, "'%s' is on stage %d, but chunk %d on stage %d", name(c, a), d,
						   a->chunk, schedule_stage(c->s, a->chunk)), NULL);
	uint8_t *seen = &c->seen[(int64_t)a->chunk * c->s->m + a->mb];
	if (*seen & excludes[a->kind])
		return fault(c, d, i, *seen >> a->kind & 1
			     ? arena_printf(c->mem, "'%s' is there twice", name(c, a))
			     : arena_printf(c->mem, "'%s': a backward is whole (B) or in two halves (I and W), not both", name(c, a)),
			     NULL);
	if ((*seen & needs[a->kind]) != needs[a->kind])
		return fault(c, d, i, arena_printf(c->mem, "'%s' comes before its %c", name(c, a), *seen & F ? 'I' : 'F'), NULL);
	*seen |= (uint8_t)(1u << a->kind);
	return true;
}

static bool check_all(struct check *c)
{
	for (int g = 0; g < c->s->p * c->s->v; g++)
		for (int j = 0; j < c->s->m; j++) {
			uint8_t seen = c->seen[(int64_t)g * c->s->m + j];
			int missing = !(seen >> ACT_F & 1) ? 'F' : seen >> ACT_B & 1 ? 0
				: !(seen >> ACT_I & 1) ? 'B' : !(seen >> ACT_W & 1) ? 'W' : 0;

			if (missing)
				return fault(c, schedule_stage(c->s, g), c->list[schedule_stage(c->s, g)].n,
					     arena_printf(c->mem, "'%d%c%d' is missing", g, missing, j), NULL);
		}
	return true;
}

/* Messages of a channel as one end sees them: the sender's chunk and microbatch. */
static uint32_t next_message(const struct check *c, int stage, uint32_t i, int other, int dir, bool sends)
{
	for (; i < c->list[stage].n; i++) {
		const struct action *a = &c->list[stage].at[i];
		int to = a->chunk + (sends == (dir == 0) ? 1 : -1);

		if (a->kind != ACT_W && (a->kind != ACT_F) == dir && to >= 0 && to < c->s->p * c->s->v &&
		    schedule_stage(c->s, to) == other)
			break;
	}
	return i;
}

static bool check_channel(struct check *c, int from, int to, int dir)
{
	uint32_t i = 0, k = 0;

	for (;; i++, k++) {
		i = next_message(c, from, i, to, dir, true);
		k = next_message(c, to, k, from, dir, false);
		if (k == c->list[to].n)
			return true; /* all are there: as many at both ends */
		const struct action *a = &c->list[from].at[i], *b = &c->list[to].at[k];
		if (a->mb != b->mb || a->chunk + (dir ? -1 : 1) != b->chunk)
			return fault(c, to, k, arena_printf(c->mem, "stage %d does not receive in the order in which stage %d sends",
							    to, from),
				     arena_printf(c->mem, "'%s' is next, but '%s' has been sent", name(c, b), name(c, a)));
	}
}

static bool check_channels(struct check *c)
{
	int n = c->s->p * c->s->v;

	for (int g = 0; g + 1 < n; g++) {
		int a = schedule_stage(c->s, g), b = schedule_stage(c->s, g + 1);
		bool seen = a == b;

		for (int h = g - 1; h >= 0 && !seen && n <= 4096; h--)
			seen = schedule_stage(c->s, h) == a && schedule_stage(c->s, h + 1) == b;
		if (!seen && (!check_channel(c, a, b, 0) || !check_channel(c, b, a, 1)))
			return false;
	}
	return true;
}

bool schedule_check(struct arena *mem, const struct schedule *s, const struct actions *list, int receive,
		    struct schedule_fault *f)
{
	struct check c = { .mem = mem, .s = s, .list = list, .fault = f };
	struct costs none = { .receive = receive };

	*f = (struct schedule_fault){ .stage = -1 };
	c.seen = NEWN(mem, uint8_t, (int64_t)s->p * s->v * s->m);
	for (int d = 0; d < s->p; d++)
		for (uint32_t i = 0; i < list[d].n; i++)
			if (!check_action(&c, d, i))
				return false;
	if (!check_all(&c) || !check_channels(&c))
		return false;
	none.chunk = NEWN(mem, struct chunk_cost, s->p * s->v);
	*f = simulate(mem, s, list, &none).fault;
	return !f->what;
}

static bool comes_to_end(struct arena *mem, const struct schedule *s, const struct actions *list, int receive,
			 struct schedule_fault *f)
{
	struct costs none = { .chunk = NEWN(mem, struct chunk_cost, s->p * s->v), .receive = receive, .send = SEND_BUFFERS };

	*f = simulate(mem, s, list, &none).fault;
	return !f->what;
}

int schedule_buffers(struct arena *mem, const struct schedule *s, const struct actions *list, int from,
		     struct schedule_fault *f)
{
	int to = s->m * s->v; /* all that a channel ever has */
	struct schedule_fault never;

	if (comes_to_end(mem, s, list, from, f))
		return from;
	if (from >= to || !comes_to_end(mem, s, list, to, &never))
		return 0;
	while (from + 1 < to) {
		int middle = from + (to - from) / 2;

		*(comes_to_end(mem, s, list, middle, &never) ? &to : &from) = middle;
	}
	return to;
}
