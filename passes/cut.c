/* passes/cut.c - the pass `balance`: where a pipeline's iterations are cut into chunks, unless the plan says
 * so, and which order of actions suits them best, by what the ops of the plan cost (pipe_cost.h).
 *
 * Requires form PARTITIONED, when all ops that cost something are there. What a stage needs is known to the byte
 * when a copy of the module has been planned (memory.c): regions have the same bytes a row wherever it is cut, and
 * ir/layout.h says where they lie. The balance itself goes by sums over pieces; what these lack, work areas and
 * messages, is learnt from the cut that it finds, until one fits. An order other than the one asked for must be
 * faster by GAIN: what it holds at once is more, or its lists are longer. */
#include "ir/layout.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "passes/pipe_cost.h"

static const double GAIN = 0.01;

/* What a rank's memory leaves for a stage; 0: any. */
static double room(const struct module *m)
{
	double all = m->hw.memory, own = (double)m->recompute.memory;

	if (m->recompute.how == RECOMPUTE_AUTO && own > 0 && (own < all || all <= 0))
		all = own;
	return all > (double)m->workspace ? all - (double)m->workspace : 0;
}

/* -- what stages need -- */

struct needs {
	struct arena *mem;
	struct module *copy; /* planned; cut as is being asked for */
	struct regions *r;
	struct arenas *arenas;
	int left;            /* times that may still be asked */
};

/* False: the module can't be planned, as the pass memory will say. */
static bool open_needs(struct needs *n, const struct module *m, struct arena *mem)
{
	enum { MOST = 400 };
	struct diag quiet;

	*n = (struct needs){ .mem = mem, .copy = module_copy((struct module *)m, mem), .left = MOST };
	diag_init(&quiet, mem, m->src, NULL);
	if (!pass_memory(n->copy, &quiet))
		return false;
	n->r = regions_of(mem, n->copy);
	regions_measure(n->r, n->copy);
	n->arenas = arenas_open(mem, n->copy, n->r);
	return true;
}

/* Bytes of each stage's arena. */
static void find_needs(struct needs *n, const int *end, double *bytes)
{
	struct arena *mem = arena_new();
	int stages = pipe_stages(n->copy);
	int64_t *arena = NEWN(mem, int64_t, stages);

	for (uint32_t g = 0; end && g < n->copy->pipe.end.n; g++)
		n->copy->pipe.end.at[g] = end[g];
	arenas_find(n->arenas, arena);
	for (int d = 0; d < stages; d++)
		bytes[d] = (double)arena[d];
	n->left--;
	arena_free(mem);
}

/* -- where to cut -- */

struct cutting {
	struct needs *needs;
	const struct schedule *s;
	double room;
	double *bytes, *work;
	int *best;     /* NULL: none yet */
	double excess; /* of the best: bytes over the room on its stages, in all */
};

/* Asks what a cut needs; is it the one that lacks least so far? */
static bool weigh(struct cutting *c, const int *end)
{
	int chunks = c->s->p * c->s->v;
	double excess = 0;

	find_needs(c->needs, end, c->bytes);
	for (int d = 0; d < c->s->p; d++)
		excess += c->bytes[d] > c->room ? c->bytes[d] - c->room : 0;
	if (c->best && excess >= c->excess)
		return false;
	c->best = NEWN(c->needs->mem, int, chunks);
	memcpy(c->best, end, (size_t)chunks * sizeof *end);
	c->excess = excess;
	return true;
}

/* By what the balance thinks that stages hold, what they need and it does not know. */
static void learn(struct cutting *c, const struct chain *chain, const struct costs *like, const int *end)
{
	struct arena *mem = arena_new();
	struct costs costs = cut_costs(mem, chain, c->s, end, like);
	struct run run = simulate(mem, c->s, schedule_expand(mem, c->s), &costs);

	for (int d = 0; d < c->s->p; d++)
		c->work[d] += c->bytes[d] - run.stage[d].bytes;
	arena_free(mem);
}

/* While a stage lacks memory: an iteration from one chunk to another, those between shift. */
static void move_iterations(struct cutting *c)
{
	int chunks = c->s->p * c->s->v, *end = NEWN(c->needs->mem, int, chunks);

	for (bool again = true; again && c->excess > 0;) {
		const int *from = c->best;

		again = false;
		for (int a = 0; a < chunks && !again; a++)
			for (int b = 0; b < chunks && !again && c->needs->left > 0; b++) {
				if (a == b || from[a] == (a ? from[a - 1] : 0))
					continue;
				memcpy(end, from, (size_t)chunks * sizeof *end);
				for (int g = a < b ? a : b; g < (a < b ? b : a); g++)
					end[g] += a < b ? -1 : 1;
				again = weigh(c, end);
			}
	}
}

/* All cuts of n iterations, if they are no more than may be asked for. */
static void weigh_all(struct cutting *c, int n)
{
	int chunks = c->s->p * c->s->v, *end = NEWN(c->needs->mem, int, chunks);
	double all = 1;

	for (int g = 1; g < chunks; g++)
		all *= (double)(n + g) / g;
	if (all > c->needs->left)
		return;
	end[chunks - 1] = n;
	for (int g = 0; g < chunks - 1 && c->excess > 0; end[g]++) {
		weigh(c, end);
		for (g = 0; g < chunks - 1 && end[g] == end[g + 1];)
			end[g++] = 0;
	}
}

static int *cut_to_fit(struct module *m, struct chain *chain, const struct schedule *s, const struct costs *like, struct needs *n)
{
	enum { TRIES = 6 };
	struct cutting c = { n, s, room(m), NEWN(n->mem, double, s->p), NEWN(n->mem, double, s->p), NULL, 0 };

	chain->work = c.work;
	for (int i = 0; i < TRIES && (!c.best || c.excess > 0); i++) {
		struct balance b = balance_chain(n->mem, chain, s, like, c.room);

		if (!b.end && !c.best)
			b = balance_chain(n->mem, chain, s, like, 0);
		if (!b.end || !b.fits)
			i = TRIES;
		if (!b.end)
			break;
		weigh(&c, b.end);
		learn(&c, chain, like, b.end);
	}
	if (c.excess > 0)
		weigh_all(&c, chain->n);
	move_iterations(&c);
	return c.best;
}

/* needs: NULL if any memory will do. */
static void cut(struct module *m, struct arena *mem, struct timing *t, const struct schedule *s, struct needs *needs)
{
	struct chain c = chain_of(mem, m, t);
	struct costs like = { .receive = m->pipe.buffers ? (int)m->pipe.buffers : RECEIVE_BUFFERS, .clip = true };
	int *end = needs ? cut_to_fit(m, &c, s, &like, needs) : balance_chain(mem, &c, s, &like, 0).end;

	for (uint32_t g = 0; end && g < m->pipe.end.n; g++)
		m->pipe.end.at[g] = end[g];
}

/* -- the order -- */

static struct actions *keep(struct module *m, const struct actions *list, int stages)
{
	struct actions *copy = NEWN(m->mem, struct actions, stages);

	for (int d = 0; d < stages; d++)
		for (uint32_t i = 0; i < list[d].n; i++)
			PUSH(m->mem, &copy[d], list[d].at[i]);
	return copy;
}

/* What stages hold all the time is what they need in the order asked for but for what that holds in turn. */
static void add_work(struct module *m, struct arena *mem, struct step_costs *x, struct needs *needs)
{
	struct run run = simulate(mem, &x->s, schedule_expand(mem, &x->s), &x->c);
	double *bytes = NEWN(mem, double, x->s.p);
	struct stage_cost *stage = NEWN(mem, struct stage_cost, x->s.p);
	int *end = NEWN(mem, int, m->pipe.end.n);

	for (uint32_t g = 0; g < m->pipe.end.n; g++)
		end[g] = (int)m->pipe.end.at[g];
	find_needs(needs, end, bytes);
	for (int d = 0; d < x->s.p; d++) {
		stage[d] = x->c.stage[d];
		stage[d].bytes += bytes[d] - run.stage[d].bytes;
	}
	x->c.stage = stage;
}

static void choose_order(struct module *m, struct arena *mem, struct timing *t, struct needs *needs)
{
	struct step_costs x = step_costs_of(mem, m, t);

	if (needs)
		add_work(m, mem, &x, needs);
	struct portfolio all = schedule_choose(mem, &x.s, &x.c, room(m));
	const struct candidate *asked = &all.at[0], *best = &all.at[all.best];

	if (best->run.seconds > asked->run.seconds * (1 - GAIN) && (asked->fits || !best->fits))
		return;
	m->pipe.warm = best->s.warm_extra;
	if (best->s.list)
		m->pipe.list = keep(m, best->s.list, x.s.p);
}

/* Does a stage need more than there is, cut and ordered as m is now? */
static bool lacks_room(const struct module *m, struct needs *needs)
{
	double *bytes = NEWN(needs->mem, double, pipe_stages(m));
	int *end = NEWN(needs->mem, int, m->pipe.end.n);
	bool lacks = false;

	for (uint32_t g = 0; g < m->pipe.end.n; g++)
		end[g] = (int)m->pipe.end.at[g];
	needs->copy->pipe.warm = m->pipe.warm;
	needs->copy->pipe.list = m->pipe.list;
	needs->arenas = arenas_open(needs->mem, needs->copy, needs->r);
	find_needs(needs, end, bytes);
	for (int d = 0; d < pipe_stages(m); d++)
		lacks |= bytes[d] > room(m);
	return lacks;
}

/* The cut and the order that fit, or else the fastest: what does not fit is not worth a longer step. */
static void cut_and_order(struct module *m, struct arena *mem, struct timing *t, const struct schedule *s, struct needs *needs)
{
	bool listed = m->pipe.list != NULL;

	if (!m->pipe.fixed)
		cut(m, mem, t, s, needs);
	if (!listed)
		choose_order(m, mem, t, needs);
	if (m->pipe.fixed || !needs || !lacks_room(m, needs))
		return;
	cut(m, mem, t, s, NULL);
	if (listed)
		return;
	m->pipe.warm = 0;
	m->pipe.list = NULL;
	choose_order(m, mem, t, NULL);
}

/* -- receive buffers -- */

/* With more than one chunk a stage, or few microbatches in flight, a stage may wait for one that waits to send to it:
 * there must be more receive buffers than are usual. They are taken, if the plan does not say how many. */
static bool settle_buffers(struct module *m, struct diag *d, struct arena *mem)
{
	struct schedule s = pipe_schedule(m);
	int have = m->pipe.buffers ? (int)m->pipe.buffers : RECEIVE_BUFFERS;
	struct span at = m->mesh.at[m->pipe.user].at;
	struct schedule_fault fault;
	int need = schedule_buffers(mem, &s, schedule_expand(mem, &s), have, &fault);

	if (need == have)
		return true;
	if (!need) {
		diag_error(d, at, "%s: %s", fault.what, fault.note);
		diag_note(d, at, "take another order%s", m->pipe.inflight ? ", or leave 'inflight' out" : "");
		return false;
	}
	if (m->pipe.buffers) {
		diag_error(d, at, "with %d receive buffer%s %s: %s", have, have == 1 ? "" : "s", fault.what, fault.note);
		diag_note(d, at, "set buffers = %d, or leave it out", need);
		return false;
	}
	m->pipe.buffers = need;
	return true;
}

bool pass_balance(struct module *m, struct diag *d)
{
	struct schedule s = pipe_schedule(m);
	struct needs needs;

	if (pipe_axis(m) < 0)
		return true;
	const char *refused = schedule_refused(m->mem, &s);
	if (refused)
		return diag_error(d, m->mesh.at[m->pipe.user].at, "%s", refused);
	struct arena *mem = arena_new();
	struct timing *t = timing_of(mem, m);
	bool asks = room(m) > 0 && (!m->pipe.fixed || !m->pipe.list) && open_needs(&needs, m, mem);

	cut_and_order(m, mem, t, &s, asks ? &needs : NULL);
	bool goes = settle_buffers(m, d, mem);
	arena_free(mem);
	return goes;
}
