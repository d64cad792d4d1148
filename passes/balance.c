/* passes/balance.c - one stage a chunk: exact. For a bound on time each chunk takes as many iterations as it may: as time
 * and memory grow with the range, the chain is used up if any cut does it. Where the first iterations of a stage cost
 * something else, a range that begins later may take longer: all cuts are tried then, chunk by chunk. The least bound is found
 * by halving. Several chunks a stage: two
 * guesses, judged by simulation. */
#include "passes/balance.h"

#include <math.h>

enum { HALVINGS = 60, CLIMB_CHUNKS = 24 };
static const double tie = 1e-9; /* sums in another order */

/* Sums over iterations 0 to i, as early ones and as later ones. */
enum { LATER, EARLY };
struct sums {
	int n, chunks, stages;
	double *time[2], *kept[2], *fixed[2];
	double first, last; /* time */
	const struct chain *c;
	const double *inflight;
	double bytes;
};

static double piece_time(const struct piece *x)
{
	const double *k = x->seconds;

	return k[ACT_F] + (k[ACT_I] + k[ACT_W] > k[ACT_B] ? k[ACT_I] + k[ACT_W] : k[ACT_B]);
}

/* Iteration i, of a stage that has had so many. */
static const struct piece *piece_at(const struct chain *c, int i, int had)
{
	return c->early && had < c->nfirst ? &c->early[i] : &c->iteration[i];
}

static struct sums make_sums(struct arena *mem, const struct chain *c, int chunks, int stages)
{
	struct sums x = { .n = c->n, .chunks = chunks, .stages = stages, .c = c, .first = piece_time(&c->first),
			  .last = piece_time(&c->last) };

	for (int early = LATER; early <= EARLY; early++) {
		double *time = x.time[early] = NEWN(mem, double, c->n + 1), *kept = x.kept[early] = NEWN(mem, double, c->n + 1);
		double *fixed = x.fixed[early] = NEWN(mem, double, c->n + 1);

		for (int i = 0; i < c->n; i++) {
			const struct piece none = { 0 }, *a = piece_at(c, i, early ? 0 : c->nfirst), *b = c->glue && i ? &c->glue[i] : &none;

			time[i + 1] = time[i] + piece_time(a) + piece_time(b);
			kept[i + 1] = kept[i] + a->bytes + b->bytes;
			fixed[i + 1] = fixed[i] + a->fixed + b->fixed;
		}
	}
	return x;
}

/* Of the iterations of chunk g, by their sums. */
static double range_sum(const struct sums *x, double *const sum[2], int g, int from, int to)
{
	int last = g < x->stages ? from + x->c->nfirst : from, until = last < to ? last : to; /* the early ones */

	return sum[EARLY][until] - sum[EARLY][from] + sum[LATER][to] - sum[LATER][until];
}

static double range_time(const struct sums *x, int g, int from, int to)
{
	return range_sum(x, x->time, g, from, to) + (g == 0 ? x->first : 0) + (g == x->chunks - 1 ? x->last : 0);
}

static bool range_fits(const struct sums *x, int g, int from, int to)
{
	double kept = range_sum(x, x->kept, g, from, to), fixed = range_sum(x, x->fixed, g, from, to);

	if (g == 0)
		kept += x->c->first.bytes, fixed += x->c->first.fixed;
	if (g == x->chunks - 1)
		kept += x->c->last.bytes, fixed += x->c->last.fixed;
	fixed += x->c->work ? x->c->work[g] : 0; /* of v = 1: a stage a chunk */
	return x->bytes <= 0 || fixed + kept * (x->inflight ? x->inflight[g] : 1) <= x->bytes * (1 + tie);
}

static double longest(const struct sums *x, const int *end)
{
	double most = 0;

	for (int g = 0; g < x->chunks; g++) {
		double t = range_time(x, g, g ? end[g - 1] : 0, end[g]);

		most = t > most ? t : most;
	}
	return most;
}

/* best[g][i]: the least sum of squares of chunks g and on from iteration i, to[g][i] where g ends then. NULL: the bound is
 * too small, or memory is. */
static int *least_squares(struct arena *mem, const struct sums *x, double bound)
{
	int n = x->n, *end = NEWN(mem, int, x->chunks), *to = NEWN(mem, int, (int64_t)x->chunks * (n + 1));
	double *best = NEWN(mem, double, n + 1), *next = NEWN(mem, double, n + 1), *swap;

	for (int i = 0; i <= n; i++)
		next[i] = i == n ? 0 : INFINITY;
	for (int g = x->chunks - 1; g >= 0; g--) {
		for (int i = 0; i <= n; i++) {
			best[i] = INFINITY;
			for (int k = i; k <= n; k++) {
				double t = range_time(x, g, i, k), sum = t * t + next[k];

				if (t > bound * (1 + tie) || !range_fits(x, g, i, k))
					break;
				if (isinf(best[i]) ? !isinf(sum) : sum < best[i] * (1 - tie)) {
					best[i] = sum;
					to[(int64_t)g * (n + 1) + i] = k;
				}
			}
		}
		swap = next, next = best, best = swap;
	}
	if (isinf(next[0]))
		return NULL;
	for (int g = 0, i = 0; g < x->chunks; g++)
		i = end[g] = to[(int64_t)g * (n + 1) + i];
	return end;
}

/* As far as each chunk may go. NULL: the bound is too small, or memory is. */
static int *farthest(struct arena *mem, const struct sums *x, double bound)
{
	int *end = NEWN(mem, int, x->chunks), at = 0;

	for (int g = 0; g < x->chunks; g++) {
		int from = at;

		if (range_time(x, g, from, from) > bound * (1 + tie) || !range_fits(x, g, from, from))
			return NULL;
		while (at < x->n && range_time(x, g, from, at + 1) <= bound * (1 + tie) && range_fits(x, g, from, at + 1))
			at++;
		end[g] = at;
	}
	return at == x->n ? end : NULL;
}

static int *any_cut(struct arena *mem, const struct sums *x, double bound)
{
	return x->c->early && x->c->nfirst ? least_squares(mem, x, bound) : farthest(mem, x, bound);
}

int *cut_even(struct arena *mem, const struct chain *c, int chunks, int stages, const double *inflight, double bytes)
{
	struct sums x = make_sums(mem, c, chunks, stages);
	double lo = 0, all = (x.time[EARLY][x.n] + x.time[LATER][x.n] + x.first + x.last) * (1 + tie), hi = all / chunks;
	int *best;

	x.inflight = inflight;
	x.bytes = bytes;
	for (; !(best = any_cut(mem, &x, hi)) && hi < all; hi *= 2)
		lo = hi;
	for (int i = 0; best && i < HALVINGS && lo < (hi = longest(&x, best)) * (1 - tie); i++) {
		int *end = any_cut(mem, &x, (lo + hi) / 2);

		if (end)
			best = end;
		else
			lo = (lo + hi) / 2;
	}
	return best ? least_squares(mem, &x, longest(&x, best)) : NULL;
}

/* Pours so many drops over n grounds, each where it is lowest then. */
static void pour(const double *ground, int n, int drops, double drop, int *got)
{
	for (int d = 0; d < n; d++)
		got[d] = 0;
	for (; drops > 0; drops--) {
		int lowest = 0;

		for (int d = 1; d < n; d++)
			if (ground[d] + got[d] * drop < ground[lowest] + got[lowest] * drop - tie * drop)
				lowest = d;
		got[lowest]++;
	}
}

/* Iterations of mean size for each chunk: over the stages, then on each over its chunks. */
static int *find_shares(struct arena *mem, const struct sums *x, const struct schedule *s, double drop)
{
	double *ground = NEWN(mem, double, s->p), *low = NEWN(mem, double, s->v);
	int *drops = NEWN(mem, int, s->p), *got = NEWN(mem, int, s->v), *share = NEWN(mem, int, x->chunks);

	ground[schedule_stage(s, 0)] += x->first;
	ground[schedule_stage(s, x->chunks - 1)] += x->last;
	pour(ground, s->p, x->n, drop, drops);
	for (int d = 0; d < s->p; d++) {
		for (int i = 0; i < s->v; i++) {
			int g = schedule_chunk(s, d, i);

			low[i] = (g == 0 ? x->first : 0) + (g == x->chunks - 1 ? x->last : 0);
		}
		pour(low, s->v, drops[d], drop, got);
		for (int i = 0; i < s->v; i++)
			share[schedule_chunk(s, d, i)] = got[i];
	}
	return share;
}

int *cut_level(struct arena *mem, const struct chain *c, const struct schedule *s)
{
	struct sums x = make_sums(mem, c, s->p * s->v, s->p);
	const double *time = x.time[LATER];
	double drop = x.n ? time[x.n] / x.n : 0, until = 0;
	int *end = NEWN(mem, int, x.chunks), *share = find_shares(mem, &x, s, drop), at = 0;

	for (int g = 0; g < x.chunks; g++) {
		until += share[g] * drop;
		while (at < x.n && time[at + 1] - until < until - time[at] - tie * until)
			at++;
		end[g] = g == x.chunks - 1 ? x.n : at;
	}
	return end;
}

int *cut_given(struct arena *mem, const struct chain *c, int chunks, const int *count)
{
	int *end = NEWN(mem, int, chunks);
	int64_t at = 0;

	for (int g = 0; g < chunks; g++) {
		at += count[g];
		if (count[g] < 0 || at > c->n)
			return NULL;
		end[g] = (int)at;
	}
	return at == c->n ? end : NULL;
}

static void add_piece(struct chunk_cost *k, double *fixed, const struct piece *x)
{
	for (int i = 0; i < NACT; i++)
		k->seconds[i] += x->seconds[i];
	if (k->bytes + x->bytes > 0)
		k->freed = (k->freed * k->bytes + x->freed * x->bytes) / (k->bytes + x->bytes);
	k->bytes += x->bytes;
	k->cut += x->cut;
	*fixed += x->fixed;
}

struct costs cut_costs(struct arena *mem, const struct chain *c, const struct schedule *s, const int *end,
		       const struct costs *like)
{
	struct costs costs = *like;
	int chunks = s->p * s->v;
	struct chunk_cost *chunk = NEWN(mem, struct chunk_cost, chunks);
	struct stage_cost *stage = NEWN(mem, struct stage_cost, s->p);
	int *had = NEWN(mem, int, s->p); /* iterations */

	for (int d = 0; d < s->p; d++) {
		if (like->stage)
			stage[d] = like->stage[d];
		stage[d].bytes += c->work ? c->work[d] : 0;
	}
	for (int g = 0; g < chunks; g++) {
		int d = schedule_stage(s, g);
		double *fixed = &stage[d].bytes;

		if (g == 0)
			add_piece(&chunk[g], fixed, &c->first);
		for (int i = g ? end[g - 1] : 0; i < end[g]; i++) {
			add_piece(&chunk[g], fixed, piece_at(c, i, had[d]++));
			if (c->glue && i)
				add_piece(&chunk[g], fixed, &c->glue[i]);
		}
		if (g == chunks - 1)
			add_piece(&chunk[g], fixed, &c->last);
		chunk[g].hop[0] = c->hop ? c->hop[end[g]][0] : 0;
		chunk[g].hop[1] = c->hop && g ? c->hop[end[g - 1]][1] : 0;
	}
	costs.chunk = chunk;
	costs.stage = stage;
	return costs;
}

/* A judge of cuts: the same lists, other costs. */
struct judge {
	const struct chain *c;
	const struct schedule *s;
	const struct actions *list;
	const struct costs *like;
	double bytes;
	struct balance best;
};

/* Takes the cut if it is better: one that fits before one that does not, then the faster. */
static bool judge_cut(struct judge *j, int *end, const char *how)
{
	struct arena *mem = arena_new();
	struct costs costs = cut_costs(mem, j->c, j->s, end, j->like);
	struct run run = simulate(mem, j->s, j->list, &costs);
	struct balance *b = &j->best, new = { end, how, run.seconds, true, b->simulations + 1 };
	bool better;

	for (int d = 0; d < j->s->p; d++)
		new.fits &= j->bytes <= 0 || run.stage[d].bytes <= j->bytes * (1 + tie);
	better = !b->end || (new.fits != b->fits ? new.fits : new.seconds < b->seconds * (1 - tie));
	b->simulations++;
	if (better)
		*b = new;
	arena_free(mem);
	return better;
}

/* The best move of one iteration from a chunk to another, those between shift; while there is one. */
static void climb(struct arena *mem, struct judge *j, int chunks)
{
	int *try = NEWN(mem, int, chunks), *from = NEWN(mem, int, chunks);
	size_t size = (size_t)chunks * sizeof *try;

	for (bool again = true; again;) {
		again = false;
		memcpy(from, j->best.end, size);
		for (int a = 0; a < chunks; a++)
			for (int b = 0; b < chunks; b++) {
				if (a == b || from[a] == (a ? from[a - 1] : 0))
					continue;
				memcpy(try, from, size);
				for (int g = a < b ? a : b; g < (a < b ? b : a); g++)
					try[g] += a < b ? -1 : 1;
				if (judge_cut(j, try, "climb")) {
					try = NEWN(mem, int, chunks);
					again = true;
				}
			}
	}
}

struct balance balance_chain(struct arena *mem, const struct chain *c, const struct schedule *s,
			     const struct costs *like, double bytes)
{
	struct judge j = { .c = c, .s = s, .list = schedule_expand(mem, s), .like = like, .bytes = bytes };
	int chunks = s->p * s->v, *even;
	double *inflight = NEWN(mem, double, s->p);

	for (int d = 0; d < s->p; d++)
		inflight[d] = schedule_inflight(s, d);
	even = s->v == 1 ? cut_even(mem, c, chunks, s->p, inflight, bytes) : cut_even(mem, c, chunks, s->p, NULL, 0);
	if (!even)
		return j.best;
	judge_cut(&j, even, "even");
	if (s->v == 1)
		return j.best;
	judge_cut(&j, cut_level(mem, c, s), "level");
	if (chunks <= CLIMB_CHUNKS)
		climb(mem, &j, chunks);
	return j.best;
}
