/* node.c - the graph of what devices are to do: edges, clocks, which node is next. */
#include "tests/softgpu/softgpu.h"
#include <stdlib.h>
#include <string.h>

struct node *pending;
static struct node *newest;

void work_unref(struct work *w)
{
	if (!w || --w->refs)
		return;
	if (w->drop)
		w->drop(w);
	free(w);
}

struct node *node_ref(struct node *n)
{
	if (n)
		n->refs++;
	return n;
}

void node_unref(struct node *n)
{
	if (!n || --n->refs)
		return;
	free(n->clock.tick);
	free(n->next);
	free(n->state);
	work_unref(n->work);
	free(n);
}

struct node *node_new(int dev, const char *what, struct work *w, int chain)
{
	static uint32_t *ticks;
	static int nticks;
	if (chain >= nticks) {
		ticks = must(realloc(ticks, (size_t)(chain + 64) * sizeof *ticks));
		memset(ticks + nticks, 0, (size_t)(chain + 64 - nticks) * sizeof *ticks);
		nticks = chain + 64;
	}
	struct node *n = must(calloc(1, sizeof *n));
	n->refs = 1;
	n->dev = dev;
	n->what = what;
	n->work = w;
	n->chain = chain;
	n->tick = ++ticks[chain];
	clock_join(&n->clock, &self_host->clock);
	return n;
}

void node_after(struct node *n, struct node *dep)
{
	if (!dep)
		return;
	if (dep->done) {
		clock_join(&n->clock, &dep->clock);
		return;
	}
	if (dep->nnext == dep->cap) {
		dep->cap = dep->cap ? 2 * dep->cap : 4;
		dep->next = must(realloc(dep->next, (size_t)dep->cap * sizeof(struct node *)));
	}
	dep->next[dep->nnext++] = node_ref(n);
	n->waits++;
}

static void unlink_node(struct node *n)
{
	*(n->before ? &n->before->after : &pending) = n->after;
	*(n->after ? &n->after->before : &newest) = n->before;
}

static double clocks[MAX_DEVICES];

void node_took(const struct node *n, double ms)
{
	clocks[n->dev] += ms / 1e3;
}

void node_done(struct node *n)
{
	n->done = true;
	n->time = cfg.nways ? clocks[n->dev] : now();
	clock_set(&n->clock, n->chain, n->tick);
	unlink_node(n);
	for (int i = 0; i < n->nnext; i++) {
		struct node *m = n->next[i];
		clock_join(&m->clock, &n->clock);
		if (!--m->waits && !(m->work && m->work->run))
			node_run(m);
		node_unref(m);
	}
	n->nnext = 0;
	node_unref(n);      /* the list's */
}

void node_run(struct node *n)
{
	node_ref(n);
	n->started = true;
	op_begin(n);
	double start = now();
	if (devices[n->dev].error || !n->work || !n->work->run || n->work->run(n))
		node_done(n);
	if (cfg.verbose && n->work)
		fprintf(stderr, "softgpu: gpu%d ran %s: %.3f ms\n", n->dev, n->what, 1e3 * (now() - start));
	node_unref(n);
}

void node_enter(struct node *n)
{
	node_ref(n);
	n->before = newest;
	*(newest ? &newest->after : &pending) = n;
	newest = n;
	if (n->work && n->work->enter)
		n->work->enter(n);
	if (!n->waits && !n->started && !(n->work && n->work->run))
		node_run(n);
}

/* Of nodes that are ready, chains first compared, so that the order in which host threads came does not matter. */
static bool earlier(const struct node *a, const struct node *b)
{
	return a->tick != b->tick ? a->tick < b->tick : a->chain < b->chain;
}

/* The at-th of those that are ready. */
static struct node *ready_at(uint64_t at, int n)
{
	struct node **ready = must(malloc((size_t)n * sizeof *ready));
	int have = 0;
	for (struct node *x = pending; x; x = x->after) {
		if (x->started || x->waits)
			continue;
		int k = have++;
		for (; k && earlier(x, ready[k - 1]); k--)
			ready[k] = ready[k - 1];
		ready[k] = x;
	}
	struct node *it = ready[at];
	free(ready);
	return it;
}

struct node *node_pick(void)
{
	static uint64_t state;
	struct node *best = NULL;
	int n = 0;
	for (struct node *x = pending; x; x = x->after) {
		if (x->started || x->waits)
			continue;
		n++;
		if (!best || earlier(x, best) == (cfg.order != LIFO))
			best = x;
	}
	if (n < 2 || cfg.order != RANDOM)
		return best;
	state = state ? state : cfg.seed * 2 + 1;
	return ready_at(random_next(&state) % (uint64_t)n, n);
}

void nodes_kill(int dev)
{
	bool again = true;
	while (again) {
		again = false;
		for (struct node *x = pending; x; x = x->after)
			if (x->dev == dev && !x->waits && !x->done && !x->killed) {
				x->killed = x->started = true;
				node_done(x);
				again = true;
				break;
			}
	}
}
