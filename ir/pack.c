/* ir/pack.c - places for pieces of memory that are live for a while: the lowest hole, in the best of some orders. */
#include <stdlib.h>

#include "ir/pack.h"

static int cmp(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int tie(const struct packed *a, const struct packed *b)
{
	int c = cmp(a->start, b->start);

	if (!c)
		c = cmp(b->bytes, a->bytes);
	return c ? c : cmp(a->no, b->no);
}

static int by_size_time(const void *x, const void *y)
{
	const struct packed *a = *(struct packed *const *)x, *b = *(struct packed *const *)y;
	double s = (double)a->bytes * (double)(a->end - a->start + 1);
	double t = (double)b->bytes * (double)(b->end - b->start + 1);

	return s != t ? (s < t) - (s > t) : tie(a, b);
}

static int by_size(const void *x, const void *y)
{
	const struct packed *a = *(struct packed *const *)x, *b = *(struct packed *const *)y;
	int c = cmp(b->bytes, a->bytes);

	return c ? c : tie(a, b);
}

static int by_load(const void *x, const void *y)
{
	const struct packed *a = *(struct packed *const *)x, *b = *(struct packed *const *)y;
	int c = cmp(b->load, a->load);

	return c ? c : by_size(x, y);
}

static int by_start(const void *x, const void *y)
{
	return tie(*(struct packed *const *)x, *(struct packed *const *)y);
}

static int by_time(const void *x, const void *y)
{
	const struct packed *a = *(struct packed *const *)x, *b = *(struct packed *const *)y;
	int c = cmp(b->end - b->start, a->end - a->start);

	return c ? c : by_size(x, y);
}

/* The most that is live at once while a piece is. */
static void loads(struct arena *mem, struct packed **at, uint32_t count, int64_t n)
{
	int64_t *live = NEWN(mem, int64_t, n + 3);

	for (uint32_t i = 0; i < count; i++) {
		live[at[i]->start + 1] += at[i]->bytes;
		live[at[i]->end + 2] -= at[i]->bytes;
	}
	for (int64_t t = 1; t < n + 3; t++)
		live[t] += live[t - 1];
	for (uint32_t i = 0; i < count; i++) {
		struct packed *s = at[i];

		for (int64_t t = s->start + 1; t <= s->end + 1; t++)
			if (live[t] > s->load)
				s->load = live[t];
	}
}

enum { MANY = 1500 };            /* pieces: from here on only the order that is fast is tried */
enum { ROUNDS = 128, FRESH = 32 }; /* of mending an order; after so many with another */

/* Pieces that end before `start` are out of the way for good. */
static uint32_t drop_ended(struct packed **by_off, uint32_t n, int64_t start)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++)
		if (by_off[i]->end >= start)
			by_off[k++] = by_off[i];
	return k;
}

/* Lowest fit: by_off holds the pieces placed so far, lowest first; in_time: they come by their starts.
 * Returns the height. */
static int64_t fit(struct packed **order, uint32_t n, struct packed **by_off, bool in_time)
{
	int64_t height = 0;
	uint32_t placed = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct packed *s = order[i];
		int64_t at = 0;
		uint32_t k;

		if (in_time)
			placed = drop_ended(by_off, placed, s->start);
		for (k = 0; k < placed; k++) {
			struct packed *o = by_off[k];

			if (o->start > s->end || s->start > o->end)
				continue;
			if (o->off >= at + s->bytes)
				break;
			if (o->off + o->bytes > at)
				at = o->off + o->bytes;
		}
		s->off = at;
		for (k = placed++; k > 0 && by_off[k - 1]->off > at; k--)
			by_off[k] = by_off[k - 1];
		by_off[k] = s;
		if (at + s->bytes > height)
			height = at + s->bytes;
	}
	return height;
}

int64_t most_live(struct arena *mem, struct packed **at, uint32_t count, int64_t n)
{
	int64_t *live = NEWN(mem, int64_t, n + 3), most = 0;

	for (uint32_t i = 0; i < count; i++) {
		live[at[i]->start + 1] += at[i]->bytes;
		live[at[i]->end + 2] -= at[i]->bytes;
	}
	for (int64_t t = 1; t < n + 3; t++) {
		live[t] += live[t - 1];
		most = live[t] > most ? live[t] : most;
	}
	return most;
}

/* Places in order; keeps offsets in best_off if nothing was lower so far. */
struct trial {
	struct packed **at, **order, **by_off;
	int64_t *best_off, best, least;
	uint32_t count;
};

static int64_t try_order(struct trial *t, bool in_time)
{
	int64_t height = fit(t->order, t->count, t->by_off, in_time);

	if (height < t->best)
		for (uint32_t i = 0; i < t->count; i++)
			t->best_off[i] = t->at[i]->off;
	t->best = height < t->best ? height : t->best;
	return height;
}

static void begin_trials(struct arena *mem, struct trial *t, struct packed **at, uint32_t count, int64_t n)
{
	*t = (struct trial){ at, NEWN(mem, struct packed *, count + 1), NEWN(mem, struct packed *, count + 1),
			     NEWN(mem, int64_t, count + 1), INT64_MAX, most_live(mem, at, count, n), count };
	for (uint32_t i = 0; i < count; i++) {
		at[i]->no = i;
		t->order[i] = at[i];
	}
}

static int64_t end_trials(struct trial *t)
{
	for (uint32_t i = 0; i < t->count; i++)
		t->at[i]->off = t->best_off[i];
	return t->count ? t->best : 0;
}

/* The best of several orders, the first that can't be bettered. */
static void try_orders(struct arena *mem, struct trial *t, int64_t n)
{
	static int (*const orders[])(const void *, const void *) = { by_size_time, by_size, by_load, by_start, by_time };

	if (t->count <= MANY)
		loads(mem, t->at, t->count, n);
	for (size_t o = 0; o < LEN(orders) && t->best > t->least; o++) {
		bool in_time = orders[o] == by_start;

		if (t->count > MANY && !in_time)
			continue;
		qsort(t->order, t->count, sizeof *t->order, orders[o]);
		try_order(t, in_time);
	}
}

int64_t pack(struct arena *mem, struct packed **at, uint32_t count, int64_t n)
{
	struct trial t;

	begin_trials(mem, &t, at, count, n);
	try_orders(mem, &t, n);
	return end_trials(&t);
}

/* What lay highest comes first in the next order. */
static void highest_first(struct trial *t, int64_t height)
{
	uint32_t top = 0, n = 0;

	for (uint32_t i = 0; i < t->count; i++)
		if (t->order[i]->off + t->order[i]->bytes == height)
			top = i;
	struct packed *x = t->order[top];

	for (n = top; n > 0; n--)
		t->order[n] = t->order[n - 1];
	t->order[0] = x;
}

int64_t pack_tight(struct arena *mem, struct packed **at, uint32_t count, int64_t n)
{
	struct trial t;

	begin_trials(mem, &t, at, count, n);
	try_orders(mem, &t, n);
	for (int i = 0; i < ROUNDS && count && count <= MANY && t.best > t.least; i++) {
		if (i % FRESH == 0)
			qsort(t.order, count, sizeof *t.order, i / FRESH % 2 ? by_load : by_size_time);
		highest_first(&t, try_order(&t, false));
	}
	return end_trials(&t);
}
