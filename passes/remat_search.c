/* passes/remat_search.c - the pass `rematerialize`; for `auto`, how much may be kept: the passes to come say. */
#include "ir/text.h"
#include "passes/pipe_cost.h"
#include "passes/remat.h"

struct search {
	struct module *m;
	struct front *fronts;
	int64_t most;             /* bytes a rank */
	int64_t best, best_peak;  /* stacks with the least peak so far; if that fits, with the least time */
	double seconds;           /* of a step of the best, if it fits */
};

static double step_seconds(const struct module *m)
{
	struct arena *mem = arena_new();
	struct step_costs x = step_costs_of(mem, m, timing_of(mem, m));
	double seconds = simulate(mem, &x.s, schedule_expand(mem, &x.s), &x.c).seconds;

	arena_free(mem);
	return seconds;
}

/* Is the plan with these stacks better? One that fits before one that does not, the faster before the slower. */
static void take(struct search *s, int64_t stacks, int64_t peak, double seconds)
{
	bool fits = peak <= s->most, fitted = s->best_peak <= s->most;

	if (fits && fitted ? seconds >= s->seconds : peak >= s->best_peak)
		return;
	s->best = stacks;
	s->best_peak = peak;
	s->seconds = seconds;
}

/* Does the plan with stacks of at most *stacks fit? Then, what they have. */
static bool fits(struct search *s, int64_t *stacks)
{
	struct diag quiet;
	struct module *copy = module_copy(s->m, s->m->mem);
	int64_t most = *stacks;

	diag_init(&quiet, s->m->mem, s->m->src, NULL);
	*stacks = rematerialize(copy, most, &s->fronts);
	if (!run_passes(copy, &quiet, &(struct pass_options){ .start_after = "rematerialize" }))
		return false;
	take(s, most, copy->arena + copy->workspace, step_seconds(copy));
	return copy->arena + copy->workspace <= s->most;
}

/* What the stacks leave room for is known when the rest is laid out, by the passes to come; and less in stacks
 * may be more in all, since what is made again lies somewhere too. So some sizes are tried, the largest first,
 * then some between the first that fits and the one before. Where stages may be cut to fit, what is kept may cost
 * more in balance than it saves: there all sizes are tried, and those around the best. */
static int64_t stacks_that_fit(struct search *s, struct diag *d)
{
	enum { STEPS = 8, CLOSER = 3 };
	int64_t all = INT64_MAX, hi, lo = 0, step;
	bool cuts = pipe_axis(s->m) >= 0 && !s->m->pipe.fixed;

	if (fits(s, &all) && !cuts)
		return s->best;
	hi = all;
	step = all / STEPS;
	for (int i = STEPS - 1; i >= 0; i--, hi = lo) {
		int64_t has = lo = step * i;

		if (fits(s, &has) && !cuts)
			break;
	}
	if (s->best_peak > s->most)
		diag_warn(d, s->m->recompute.at, "a rank needs %lld bytes however much is recomputed, %lld more than there are",
			  (long long)s->best_peak, (long long)(s->best_peak - s->most));
	for (int i = 0; i < CLOSER && s->best_peak <= s->most && !cuts; i++) {
		int64_t middle = lo + (hi - lo) / 2, has = middle;

		*(fits(s, &has) ? &lo : &hi) = middle;
	}
	for (int i = 0; i < CLOSER && s->best_peak <= s->most && cuts; i++) {
		int64_t at = s->best < all ? s->best : all, more = at + (step /= 2), less = at - step;

		fits(s, &more);
		if (less > 0)
			fits(s, &less);
	}
	return s->best;
}

bool pass_rematerialize(struct module *m, struct diag *d)
{
	int64_t memory = m->recompute.memory ? m->recompute.memory : (int64_t)m->hw.memory, stacks = 0;
	struct search s = { .m = m, .most = memory, .best_peak = INT64_MAX };

	if (m->recompute.how == RECOMPUTE_AUTO)
		stacks = stacks_that_fit(&s, d);
	if (m->recompute.how != RECOMPUTE_NONE)
		rematerialize(m, stacks, &s.fronts);
	return true;
}
