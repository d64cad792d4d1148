/* passes/remat_front.c - all that is worth choosing between keeping and making again.
 *
 * What is made again costs the time of every op on the way from what is kept to what is read. Costs do not add
 * up: two reads may share their way. So up to EXACT_MOST results all choices are looked at, and those remain
 * that no other beats in both bytes and time (the Pareto front). With more results, two greedy walks, from all
 * kept and from nothing kept, then exchanges of one kept result for another. */
#include "passes/remat.h"

struct trial {
	struct arena *mem;
	uint32_t n, ncand, words;
	const struct trial_op *ops;
	uint32_t *cand;      /* ops that may be kept */
	int *bit;            /* of an op; -1: not one of these */
	uint64_t *in, *need; /* sets of ops, `words` each: operands; scratch */
	uint64_t *read;
	struct front front;
};

static bool has_bit(const uint64_t *set, uint32_t i)
{
	return set[i / 64] >> (i % 64) & 1;
}

/* From the last op to the first: what is needed and not kept is made, and needs its operands. */
static double seconds_of(const struct trial *t, const uint64_t *keep)
{
	double sum = 0;

	memcpy(t->need, t->read, t->words * sizeof *t->need);
	for (uint32_t w = t->words; w-- > 0;)
		while (t->need[w]) {
			uint32_t bit = 63 - (uint32_t)__builtin_clzll(t->need[w]), i = 64 * w + bit;

			t->need[w] ^= 1ull << bit;
			if (t->bit[i] >= 0 && has_bit(keep, (uint32_t)t->bit[i]))
				continue;
			sum += t->ops[i].seconds;
			for (uint32_t k = 0; k <= w; k++)
				t->need[k] |= t->in[i * t->words + k];
		}
	return sum;
}

static int64_t bytes_of(const struct trial *t, const uint64_t *keep)
{
	int64_t sum = 0;

	for (uint32_t c = 0; c < t->ncand; c++)
		if (has_bit(keep, c))
			sum += t->ops[t->cand[c]].bytes;
	return sum;
}

/* A point goes in unless one is as good; those that it beats go out. */
static bool offer(struct trial *t, const uint64_t *keep)
{
	struct point new = { .bytes = bytes_of(t, keep), .seconds = seconds_of(t, keep) };
	struct front *f = &t->front;
	uint32_t at = 0, end;

	while (at < f->n && f->at[at].bytes < new.bytes)
		at++;
	if ((at && f->at[at - 1].seconds <= new.seconds) ||
	    (at < f->n && f->at[at].bytes == new.bytes && f->at[at].seconds <= new.seconds))
		return false;
	for (end = at; end < f->n && f->at[end].seconds >= new.seconds; end++)
		;
	memcpy(new.keep, keep, sizeof new.keep);
	if (end == at) {
		PUSH(t->mem, f, new);
		memmove(f->at + at + 1, f->at + at, (f->n - 1 - at) * sizeof new);
	} else {
		memmove(f->at + at + 1, f->at + end, (f->n - end) * sizeof new);
		f->n -= end - at - 1;
	}
	f->at[at] = new;
	return true;
}

static void look_at_all(struct trial *t)
{
	for (uint64_t set = 0; set >> t->ncand == 0; set++)
		offer(t, (uint64_t[KEEP_WORDS]){ set });
}

/* The change of one result that gains most time for its bytes, or saves most bytes for its time. */
static void walk(struct trial *t, uint64_t *keep, bool add)
{
	offer(t, keep);
	for (uint32_t step = 0; step < t->ncand; step++) {
		double now = seconds_of(t, keep), best = -1;
		uint32_t which = 0;

		for (uint32_t c = 0; c < t->ncand; c++) {
			if (has_bit(keep, c) == add)
				continue;
			keep[c / 64] ^= 1ull << (c % 64);
			double change = seconds_of(t, keep) - now, bytes = (double)t->ops[t->cand[c]].bytes + 1;
			double gain = add ? -change / bytes : bytes / (change + 1e-12);
			keep[c / 64] ^= 1ull << (c % 64);
			if (gain > best) {
				best = gain;
				which = c;
			}
		}
		if (best < 0)
			return;
		keep[which / 64] ^= 1ull << (which % 64);
		offer(t, keep);
	}
}

static void exchange(struct trial *t, const struct point *p)
{
	uint64_t keep[KEEP_WORDS];

	for (uint32_t a = 0; a < t->ncand; a++)
		for (uint32_t b = 0; b < t->ncand; b++) {
			if (!has_bit(p->keep, a) || has_bit(p->keep, b))
				continue;
			memcpy(keep, p->keep, sizeof keep);
			keep[a / 64] ^= 1ull << (a % 64);
			keep[b / 64] ^= 1ull << (b % 64);
			offer(t, keep);
		}
}

static void look_around(struct trial *t)
{
	uint64_t none[KEEP_WORDS] = { 0 }, all[KEEP_WORDS] = { 0 };

	for (uint32_t c = 0; c < t->ncand; c++)
		all[c / 64] |= 1ull << (c % 64);
	walk(t, none, true);
	walk(t, all, false);
	uint32_t n = t->front.n;
	struct point *was = NEWN(t->mem, struct point, n);
	memcpy(was, t->front.at, n * sizeof *was);
	for (uint32_t i = 0; i < n; i++)
		exchange(t, &was[i]);
}

static void set_up(struct trial *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		t->bit[i] = -1;
		if (t->ops[i].may_keep && t->ncand < 64 * KEEP_WORDS) {
			t->bit[i] = (int)t->ncand;
			t->cand[t->ncand++] = i;
		}
		if (t->ops[i].read)
			t->read[i / 64] |= 1ull << (i % 64);
		for (uint32_t k = 0; k < t->ops[i].nin; k++)
			t->in[i * t->words + t->ops[i].in[k] / 64] |= 1ull << (t->ops[i].in[k] % 64);
	}
}

struct front remat_front(struct arena *mem, uint32_t n, const struct trial_op *ops)
{
	struct trial t = { .mem = mem, .n = n, .ops = ops, .words = n / 64 + 1 };

	t.cand = NEWN(mem, uint32_t, n + 1);
	t.bit = NEWN(mem, int, n + 1);
	t.in = NEWN(mem, uint64_t, (size_t)(n + 1) * t.words);
	t.need = NEWN(mem, uint64_t, t.words);
	t.read = NEWN(mem, uint64_t, t.words);
	set_up(&t);
	if (t.ncand <= EXACT_MOST)
		look_at_all(&t);
	else
		look_around(&t);
	return t.front;
}
