/* passes/portfolio.c - where costs are unequal another order of actions may be faster: a list
 * scheduler with a clock, and the choice among few candidates by simulation. */
#include "passes/simulate.h"

#include <math.h>

struct queue {
	struct actions list;
	uint32_t next;
};

struct clock_stage {
	struct queue *f, *b; /* one, or one a chunk */
	struct queue w;      /* its list grows as I are taken */
	int held, limit;
	bool after_f;
	double free, next;   /* next: when it decides */
};

struct clock {
	struct arena *mem;
	const struct schedule *s;
	const struct costs *c;
	enum clock_rule rule;
	int queues, chunks;
	bool splits;
	double *end[2]; /* of the F and the B or I of a chunk and microbatch; INFINITY: not yet */
	struct clock_stage *stage;
	struct actions *out;
};

static const struct action *head(const struct queue *q)
{
	return q->next < q->list.n ? &q->list.at[q->next] : NULL;
}

/* When its input is there, as far as is known. */
static double ready(const struct clock *k, const struct action *a)
{
	int dir = a->kind != ACT_F, from = a->chunk + (dir ? 1 : -1);
	double hop;

	if (from < 0)
		return 0;
	if (from == k->chunks)
		return k->end[0][(int64_t)a->chunk * k->s->m + a->mb];
	hop = schedule_stage(k->s, from) == schedule_stage(k->s, a->chunk) ? 0 : k->c->chunk[from].hop[dir];
	return k->end[dir][(int64_t)from * k->s->m + a->mb] + hop;
}

/* A forward needs room. Where chunks have queues of their own the last one keeps some: without it
 * nothing that is held could be let go. */
static bool has_room(const struct clock *k, const struct clock_stage *x, int queue, const struct action *a)
{
	return a->kind != ACT_F || x->held < x->limit - (queue < k->queues - 1);
}

/* The queue whose head the rule prefers of those ready at t; when: the first may be so, INFINITY: not yet. */
static struct queue *find_head(const struct clock *k, const struct clock_stage *x, struct queue *queues, double t, double *when)
{
	struct queue *best = NULL;

	*when = INFINITY;
	for (int i = 0; i < k->queues; i++) {
		struct queue *q = &queues[i];
		const struct action *a = head(q);
		double at = a && has_room(k, x, i, a) ? ready(k, a) : INFINITY;
		bool later = k->rule == CLOCK_CHUNK1_FIRST && a && a->kind == ACT_F;

		*when = at < *when ? at : *when;
		if (at <= t && (!best || later || a->mb <= head(best)->mb))
			best = q;
	}
	return best;
}

static void find_next(struct clock *k, struct clock_stage *x)
{
	double f, b, first;

	find_head(k, x, x->f, -1, &f);
	find_head(k, x, x->b, -1, &b);
	first = f < b ? f : b;
	x->next = head(&x->w) || first < x->free ? x->free : first;
}

static void note_end(struct clock *k, int d, const struct action *a)
{
	struct clock_stage *x = &k->stage[d];

	PUSH(k->mem, &k->out[d], *a);
	x->free = x->next + k->c->chunk[a->chunk].seconds[a->kind];
	x->held += a->kind == ACT_F ? 1 : a->kind == ACT_I ? 0 : -1;
	if (a->kind != ACT_W) {
		x->after_f = a->kind == ACT_F;
		k->end[a->kind != ACT_F][(int64_t)a->chunk * k->s->m + a->mb] = x->free;
	}
	if (a->kind == ACT_I) {
		struct action w = { ACT_W, a->chunk, a->mb };

		PUSH(k->mem, &x->w.list, w);
	}
}

/* Takes an action on a stage at the time it decides; who may now decide earlier is told. */
static void decide(struct clock *k, int d)
{
	struct clock_stage *x = &k->stage[d];
	double when;
	struct queue *f = find_head(k, x, x->f, x->next, &when), *b = find_head(k, x, x->b, x->next, &when);
	struct queue *q = f && b ? (x->after_f || k->rule != CLOCK_STRICT ? b : f) : f ? f : b ? b : &x->w;
	struct action a = q->list.at[q->next++];
	int to = a.chunk + (a.kind == ACT_F ? 1 : -1);

	note_end(k, d, &a);
	find_next(k, x);
	if (a.kind != ACT_W && to >= 0 && to < k->chunks)
		find_next(k, &k->stage[schedule_stage(k->s, to)]);
}

static void fill_queues(struct clock *k, int d, const struct actions *list)
{
	struct clock_stage *x = &k->stage[d];
	int g0 = k->queues > 1 ? schedule_chunk(k->s, d, 0) : 0;

	x->f = NEWN(k->mem, struct queue, k->queues);
	x->b = NEWN(k->mem, struct queue, k->queues);
	for (uint32_t i = 0; i < list->n; i++) {
		const struct action *a = &list->at[i];
		struct queue *q = a->kind == ACT_F ? x->f : x->b;

		if (a->kind != ACT_W)
			PUSH(k->mem, &q[k->queues > 1 && a->chunk != g0].list, *a);
	}
}

struct actions *schedule_clocked(struct arena *mem, const struct schedule *s, const struct costs *c,
				 enum clock_rule rule, const int *limit)
{
	struct clock k = { .mem = mem, .s = s, .c = c, .rule = rule, .chunks = s->p * s->v, .splits = schedule_splits(s),
			   .queues = rule == CLOCK_STRICT || s->v != 2 ? 1 : 2, .out = NEWN(mem, struct actions, s->p) };
	const struct actions *list = schedule_expand(mem, s);
	int64_t left = (int64_t)k.chunks * s->m * (k.splits ? 3 : 2);

	for (int i = 0; i < 2; i++) {
		k.end[i] = NEWN(mem, double, (int64_t)k.chunks * s->m);
		for (int64_t j = 0; j < (int64_t)k.chunks * s->m; j++)
			k.end[i][j] = INFINITY;
	}
	k.stage = NEWN(mem, struct clock_stage, s->p);
	for (int d = 0; d < s->p; d++) {
		k.stage[d].limit = limit[d];
		k.stage[d].free = c->stage ? c->stage[d].prologue : 0;
		fill_queues(&k, d, &list[d]);
		find_next(&k, &k.stage[d]);
	}
	for (; left; left--) {
		int d = 0;

		for (int e = 1; e < s->p; e++)
			if (k.stage[e].next < k.stage[d].next)
				d = e;
		if (isinf(k.stage[d].next))
			return NULL;
		decide(&k, d);
	}
	return k.out;
}

static void offer(struct arena *mem, struct portfolio *all, const char *name, const struct schedule *s,
		  const struct costs *c, double bytes)
{
	const struct actions *list = schedule_expand(mem, s);
	struct candidate *x = &all->at[all->n], *best = &all->at[all->best];
	struct schedule_fault fault;

	if (all->n && !schedule_check(mem, s, list, c->receive, &fault))
		return;
	*x = (struct candidate){ .name = name, .s = *s, .run = simulate(mem, s, list, c) };
	x->fits = !x->run.fault.what;
	if (x->run.fault.what && all->n)
		return;
	for (int d = 0; d < s->p; d++)
		x->fits &= bytes <= 0 || x->run.stage[d].bytes <= bytes;
	if (all->n++ && x->fits && (!best->fits || x->run.seconds < best->run.seconds * (1 - 1e-9)))
		all->best = all->n - 1;
}

static void offer_clocked(struct arena *mem, struct portfolio *all, const char *name, const struct schedule *s,
			  const struct costs *c, double bytes, enum clock_rule rule)
{
	struct schedule x = *s;
	int *limit = NEWN(mem, int, s->p);

	for (int d = 0; d < s->p; d++)
		limit[d] = schedule_inflight(s, d);
	x.list = schedule_clocked(mem, s, c, rule, limit);
	if (x.list)
		offer(mem, all, name, &x, c, bytes);
}

struct portfolio schedule_choose(struct arena *mem, const struct schedule *s, const struct costs *c, double bytes)
{
	struct portfolio all = { .n = 0 };
	struct schedule more = *s;

	offer(mem, &all, "count", s, c, bytes);
	if (s->list || s->kind == SCHED_GPIPE)
		return all;
	more.warm_extra++;
	if (s->kind == SCHED_1F1B || s->kind == SCHED_ZB_H1)
		offer(mem, &all, "warm-up + 1", &more, c, bytes);
	offer_clocked(mem, &all, "clocked", s, c, bytes, CLOCK_STRICT);
	if (s->kind == SCHED_ZB_V) {
		offer_clocked(mem, &all, "clocked, chunk 1 first", s, c, bytes, CLOCK_CHUNK1_FIRST);
		offer_clocked(mem, &all, "clocked, microbatch first", s, c, bytes, CLOCK_MICROBATCH_FIRST);
	}
	return all;
}
