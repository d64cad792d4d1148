/* passes/cut.c - the pass `balance`: where a pipeline's iterations are cut into chunks, unless the plan says
 * so, and which order of actions suits them best, by what the ops of the plan cost (pipe_cost.h).
 *
 * Requires form PARTITIONED, when all ops that cost something are there. An order other than the one asked
 * for must be faster by GAIN: what it holds at once is more, or its lists are longer. */
#include "passes/passes.h"
#include "passes/pipe_cost.h"

static const double GAIN = 0.01;

/* What a rank's memory leaves for a stage; 0: any. */
static double room(const struct module *m)
{
	return m->hw.memory > (double)m->workspace ? m->hw.memory - (double)m->workspace : 0;
}

static void cut(struct module *m, struct arena *mem, struct timing *t, const struct schedule *s)
{
	struct chain c = chain_of(mem, m, t);
	struct costs like = { .receive = m->pipe.buffers ? (int)m->pipe.buffers : RECEIVE_BUFFERS, .clip = true };
	struct balance b = balance_chain(mem, &c, s, &like, room(m));

	if (!b.end) /* it does not fit in any way: explain says by how much */
		b = balance_chain(mem, &c, s, &like, 0);
	for (uint32_t g = 0; b.end && g < m->pipe.end.n; g++)
		m->pipe.end.at[g] = b.end[g];
}

static struct actions *keep(struct module *m, const struct actions *list, int stages)
{
	struct actions *copy = NEWN(m->mem, struct actions, stages);

	for (int d = 0; d < stages; d++)
		for (uint32_t i = 0; i < list[d].n; i++)
			PUSH(m->mem, &copy[d], list[d].at[i]);
	return copy;
}

static void choose_order(struct module *m, struct arena *mem, struct timing *t)
{
	struct step_costs x = step_costs_of(mem, m, t);
	struct portfolio all = schedule_choose(mem, &x.s, &x.c, room(m));
	const struct candidate *asked = &all.at[0], *best = &all.at[all.best];

	if (best->run.seconds > asked->run.seconds * (1 - GAIN))
		return;
	m->pipe.warm = best->s.warm_extra;
	if (best->s.list)
		m->pipe.list = keep(m, best->s.list, x.s.p);
}

bool pass_balance(struct module *m, struct diag *d)
{
	struct schedule s = pipe_schedule(m);

	if (pipe_axis(m) < 0)
		return true;
	const char *refused = schedule_refused(m->mem, &s);
	if (refused)
		return diag_error(d, m->mesh.at[m->pipe.user].at, "%s", refused);
	struct arena *mem = arena_new();
	struct timing *t = timing_of(mem, m);

	if (!m->pipe.fixed)
		cut(m, mem, t, &s);
	if (!m->pipe.list)
		choose_order(m, mem, t);
	arena_free(mem);
	return true;
}
