/* ir/schedule.c - one generator without a clock. A stage has an order of forwards, an order of
 * backwards, a count of forwards that come first, and a lag of weight halves behind input halves:
 *
 *   F x warm;  until all B are done: { F if any is left; B (or I); W while more than lag wait };  W
 *
 * zb_v alone is a pattern of its own. */
#include "ir/schedule.h"

const char action_letter[NACT] = { 'F', 'B', 'I', 'W' };

static const struct {
	const char *name;
	bool splits;
	int warm; /* of stage d: warm (p-1-d), and what chunks add */
} kinds[NSCHED] = {
	[SCHED_GPIPE] = { "gpipe", false, 0 },
	[SCHED_1F1B] = { "1f1b", false, 1 },
	[SCHED_INTERLEAVED] = { "interleaved", false, 2 },
	[SCHED_ZB_H1] = { "zb_h1", true, 1 },
	[SCHED_ZB_H2] = { "zb_h2", true, 2 },
	[SCHED_ZB_V] = { "zb_v", true, 0 },
	[SCHED_LIST] = { "csv", false, 0 },
};

const char *schedule_name(enum schedule_kind kind)
{
	return kinds[kind].name;
}

bool schedule_find(const char *name, enum schedule_kind *kind)
{
	for (int i = 0; i < SCHED_LIST; i++)
		if (streq(name, kinds[i].name)) {
			*kind = (enum schedule_kind)i;
			return true;
		}
	return false;
}

bool schedule_splits(const struct schedule *s)
{
	for (int d = 0; s->list && d < s->p; d++)
		for (uint32_t i = 0; i < s->list[d].n; i++)
			if (s->list[d].at[i].kind >= ACT_I)
				return true;
	return kinds[s->kind].splits;
}

int schedule_stage(const struct schedule *s, int chunk)
{
	if (s->place)
		return s->place[chunk];
	if (s->kind == SCHED_ZB_V && chunk >= s->p)
		return 2 * s->p - 1 - chunk;
	return chunk % s->p;
}

int schedule_chunk(const struct schedule *s, int stage, int i)
{
	for (int g = 0; g < s->p * s->v; g++)
		if (schedule_stage(s, g) == stage && i-- == 0)
			return g;
	return -1;
}

/* Groups of interleaved: as many as have at least `group` (p) microbatches each, of sizes that
 * differ by one at most. A short last group would deadlock. */
struct groups {
	int n, largest;
};

static struct groups find_groups(const struct schedule *s)
{
	int least = s->group ? s->group : s->p, n = s->m / least;

	if (n < 1)
		n = 1;
	return (struct groups){ n, (int)ceil_div(s->m, n) };
}

/* Fewest microbatches in flight with which the count form can go on: interleaved must get a
 * microbatch of its first group to its last chunk; zb_v's pattern is what it is. */
static int least_inflight(const struct schedule *s)
{
	if (s->kind == SCHED_ZB_V)
		return s->p < s->m ? s->p : s->m;
	return s->v == 1 ? 1 : (int)ceil_div((int64_t)(s->v - 1) * (s->kind == SCHED_GPIPE ? s->m : find_groups(s).largest) + 1, s->v);
}

const char *schedule_refused(struct arena *mem, const struct schedule *s)
{
	const char *name = kinds[s->kind].name;

	if (s->p < 1 || s->v < 1 || s->m < 1 || s->group < 0 || s->warm_extra < 0 || s->inflight < 0)
		return arena_printf(mem, "'%s' with %d stages, %d chunks a stage, %d microbatches", name, s->p, s->v, s->m);
	if ((int64_t)s->p * s->v > UINT16_MAX)
		return arena_printf(mem, "%lld chunks, at most %d", (long long)s->p * s->v, UINT16_MAX);
	if ((int64_t)s->p * s->v * s->m > 1 << 26 || s->group > 1 << 26 || s->warm_extra > 1 << 26)
		return arena_printf(mem, "%d stages of %d chunks with %d microbatches are too many actions", s->p, s->v, s->m);
	if (s->kind == SCHED_LIST && !s->list)
		return "a schedule without its lists";
	if (s->list)
		return NULL;
	if (s->kind == SCHED_ZB_V && s->v != 2)
		return arena_printf(mem, "'zb_v' has 2 chunks a stage, not %d", s->v);
	if (s->v > 1 && s->kind != SCHED_GPIPE && s->kind != SCHED_INTERLEAVED && s->kind != SCHED_ZB_V)
		return arena_printf(mem, "'%s' has 1 chunk a stage, not %d: use interleaved", name, s->v);
	if (s->inflight && s->inflight < least_inflight(s))
		return arena_printf(mem, "'%s' needs %d microbatches in flight, not %d", name, least_inflight(s), s->inflight);
	return NULL;
}

static int group_start(const struct schedule *s, int groups, int i)
{
	return (int)((int64_t)i * (s->m / groups) + (i < s->m % groups ? i : s->m % groups));
}

static void put(struct arena *mem, struct actions *list, enum action_kind kind, int chunk, int mb)
{
	struct action a = { .kind = (uint8_t)kind, .chunk = (uint16_t)chunk, .mb = mb };

	PUSH(mem, list, a);
}

/* The order of forwards, or of backwards with the chunks turned round: group by group, in each
 * chunk by chunk. One group of all microbatches is breadth first. */
static struct actions make_order(struct arena *mem, const struct schedule *s, int stage, bool backward)
{
	int groups = s->kind == SCHED_GPIPE ? 1 : find_groups(s).n;
	enum action_kind kind = !backward ? ACT_F : kinds[s->kind].splits ? ACT_I : ACT_B;
	struct actions list = { 0 };

	for (int k = 0; k < groups; k++)
		for (int i = 0; i < s->v; i++)
			for (int j = group_start(s, groups, k); j < group_start(s, groups, k + 1); j++)
				put(mem, &list, kind, stage + s->p * (backward ? s->v - 1 - i : i), j);
	return list;
}

static int64_t warm_up(const struct schedule *s, int stage)
{
	int64_t all = (int64_t)s->m * s->v, warm = (int64_t)kinds[s->kind].warm * (s->p - 1 - stage);

	warm += (int64_t)(s->v - 1) * find_groups(s).largest + (stage < s->p - 1 ? s->warm_extra : 0);
	if (s->kind == SCHED_GPIPE || warm > all)
		warm = all;
	return s->inflight && warm > (int64_t)s->inflight * s->v - 1 ? (int64_t)s->inflight * s->v - 1 : warm;
}

/* Weight halves that may wait: a stage's number, as far as there is room. */
static int64_t find_lag(const struct schedule *s, int stage)
{
	int64_t room = (int64_t)s->inflight * s->v - 1 - warm_up(s, stage);

	return s->inflight && room < stage ? room : stage;
}

static struct actions emit(struct arena *mem, const struct schedule *s, int stage)
{
	struct actions f = make_order(mem, s, stage, false), b = make_order(mem, s, stage, true), list = { 0 };
	uint32_t nf = 0, nw = 0, warm = (uint32_t)warm_up(s, stage), lag = (uint32_t)find_lag(s, stage);
	bool splits = kinds[s->kind].splits;

	while (nf < warm)
		PUSH(mem, &list, f.at[nf++]);
	for (uint32_t nb = 0; nb < b.n; nb++) {
		if (nf < f.n)
			PUSH(mem, &list, f.at[nf++]);
		PUSH(mem, &list, b.at[nb]);
		for (; splits && nb + 1 - nw > lag; nw++)
			put(mem, &list, ACT_W, b.at[nw].chunk, b.at[nw].mb);
	}
	for (; splits && nw < b.n; nw++)
		put(mem, &list, ACT_W, b.at[nw].chunk, b.at[nw].mb);
	return list;
}

/* zb_v: chunk 0 is a (on the way down), chunk 1 is b (on the way back). Made for as many
 * microbatches as its pattern needs; those that are not there are left out. */
struct v_maker {
	struct arena *mem;
	const struct schedule *s;
	int chunk[2], count[2][NACT];
	struct actions list;
};

static void v_put(struct v_maker *x, int times, enum action_kind kind, int which)
{
	for (; times > 0; times--) {
		int mb = x->count[which][kind]++;

		if (mb < x->s->m)
			put(x->mem, &x->list, kind, x->chunk[which], mb);
	}
}

static void v_cycle(struct v_maker *x, int which)
{
	v_put(x, 1, ACT_I, which);
	v_put(x, 1, ACT_W, which);
}

static struct actions emit_v(struct arena *mem, const struct schedule *s, int d)
{
	int p = s->p, n = s->m > 2 * p - 1 ? s->m : 2 * p - 1;
	struct v_maker x = { .mem = mem, .s = s, .chunk = { d, 2 * p - 1 - d } };

	v_put(&x, 2 * (p - d) - 1, ACT_F, 0);
	for (int i = 0; i < d; i++) {
		v_put(&x, 1, ACT_F, 1);
		v_put(&x, 1, ACT_F, 0);
	}
	for (int i = d; i < p; i++) {
		v_put(&x, 1, ACT_F, 1);
		v_cycle(&x, 1);
	}
	while (x.count[1][ACT_F] < n) {
		v_put(&x, x.count[0][ACT_F] < n, ACT_F, 0);
		v_cycle(&x, 0);
		v_put(&x, 1, ACT_F, 1);
		v_cycle(&x, 1);
	}
	for (int i = 0; i < d; i++) {
		v_put(&x, 1, ACT_I, 0);
		v_put(&x, 1, ACT_I, 1);
	}
	for (int i = d; i < p; i++)
		v_cycle(&x, 0);
	for (int which = 1; which >= 0; which--)
		v_put(&x, n - x.count[which][ACT_W], ACT_W, which);
	return x.list;
}

struct actions *schedule_expand(struct arena *mem, const struct schedule *s)
{
	struct actions *list = NEWN(mem, struct actions, s->p);

	for (int d = 0; d < s->p; d++)
		list[d] = s->list ? s->list[d] : s->kind == SCHED_ZB_V ? emit_v(mem, s, d) : emit(mem, s, d);
	return list;
}

static int list_inflight(const struct actions *list)
{
	int held = 0, most = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		enum action_kind kind = list->at[i].kind;

		held += kind == ACT_F ? 1 : kind == ACT_I ? 0 : -1;
		most = held > most ? held : most;
	}
	return most;
}

int schedule_inflight(const struct schedule *s, int stage)
{
	int64_t all = (int64_t)s->m * s->v, held;

	if (s->list)
		return list_inflight(&s->list[stage]);
	held = warm_up(s, stage) + 1;
	if (s->kind == SCHED_ZB_V)
		held = 2 * s->p;
	else if (kinds[s->kind].splits)
		held += find_lag(s, stage);
	return (int)(held < all ? held : all);
}
