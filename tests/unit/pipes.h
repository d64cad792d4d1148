/* What tests of schedules share: equal costs, and an oracle that knows nothing of channels'
 * buffers or of walking stages: a graph of all actions and transfers, longest paths. */
#ifndef PTC_TEST_PIPES_H
#define PTC_TEST_PIPES_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "passes/simulate.h"

#define NEAR(a, b) assert_true(near(a, b))

static inline bool near(double a, double b)
{
	return fabs(a - b) < 1e-6 * (1 + fabs(b));
}

static inline double uniform(uint64_t *seed, double lo, double hi)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return lo + (hi - lo) * (double)(*seed >> 11) / 9007199254740992.0;
}

static inline int uniform_int(uint64_t *seed, int lo, int hi) /* both in */
{
	return (int)uniform(seed, lo, hi + 1);
}

/* F, I, W seconds a stage and microbatch, the same for all; a stage's bytes are 1 as well. */
static inline struct costs equal_costs(struct arena *mem, const struct schedule *s, double f, double i, double w, double hop)
{
	struct chunk_cost *k = NEWN(mem, struct chunk_cost, s->p * s->v);

	for (int g = 0; g < s->p * s->v; g++)
		k[g] = (struct chunk_cost){ .seconds = { f / s->v, (i + w) / s->v, i / s->v, w / s->v }, .bytes = 1.0 / s->v,
					    .hop = { hop, hop } };
	return (struct costs){ .chunk = k, .receive = RECEIVE_BUFFERS, .clip = true };
}

enum streams { ONE_STREAM, SEND_AND_RECEIVE, PAIRS, CHANNELS };

struct graph {
	int n, edges, *from, *to;
	double *cost;
};

static inline void edge(struct graph *g, int from, int to)
{
	if (from < 0 || to < 0)
		return;
	g->from[g->edges] = from;
	g->to[g->edges++] = to;
}

/* Rounds of relaxation in topological order; -1 if there is a cycle. */
static inline double longest_path(struct arena *mem, const struct graph *g)
{
	int *waits = NEWN(mem, int, g->n), *first = NEWN(mem, int, g->n), *next = NEWN(mem, int, g->edges);
	int *ready = NEWN(mem, int, g->n), n = 0, done = 0;
	double *end = NEWN(mem, double, g->n), most = 0;

	for (int i = 0; i < g->n; i++)
		first[i] = -1;
	for (int e = 0; e < g->edges; e++) {
		waits[g->to[e]]++;
		next[e] = first[g->from[e]];
		first[g->from[e]] = e;
	}
	for (int i = 0; i < g->n; i++)
		if (!waits[i])
			ready[n++] = i;
	for (; done < n; done++) {
		int i = ready[done];

		end[i] += g->cost[i];
		most = fmax(most, end[i]);
		for (int e = first[i]; e >= 0; e = next[e]) {
			end[g->to[e]] = fmax(end[g->to[e]], end[i]);
			if (--waits[g->to[e]] == 0)
				ready[n++] = g->to[e];
		}
	}
	return done == g->n ? most : -1;
}

/* Node of an action: ((chunk, mb), F | B or I | W); of the message that it sends: 2 more kinds. */
static inline int node(const struct schedule *s, int chunk, int mb, int kind)
{
	return ((chunk * s->m + mb) * 5) + kind; /* 0 F, 1 B or I, 2 W, 3 F's message, 4 B's message */
}

/* A step's time, rendezvous, with streams as asked at both ends of each message and so many receive
 * buffers a channel (0: any); -1: deadlock. */
static inline double oracle(struct arena *mem, const struct schedule *s, const struct actions *list, const struct costs *c,
			    enum streams streams, int receive)
{
	int chunks = s->p * s->v, total = chunks * s->m * 5;
	struct graph g = { .n = total, .from = NEWN(mem, int, total * 6), .to = NEWN(mem, int, total * 6),
			   .cost = NEWN(mem, double, total) };

	for (int d = 0; d < s->p; d++) {
		int before = -1;
		/* By stream: 2 p ends x 2 directions of data x (send, receive). */
		int *last = NEWN(mem, int, s->p * 4);
		int **taken = NEWN(mem, int *, s->p * 2), *ntaken = NEWN(mem, int, s->p * 2);

		for (int i = 0; i < s->p * 4; i++)
			last[i] = -1;
		for (int i = 0; i < s->p * 2; i++)
			taken[i] = NEWN(mem, int, list[d].n);
		for (uint32_t i = 0; i < list[d].n; i++) {
			const struct action *a = &list[d].at[i];
			int back = a->kind != ACT_F, kind = a->kind == ACT_F ? 0 : a->kind == ACT_W ? 2 : 1;
			int me = node(s, a->chunk, a->mb, kind), from = a->chunk + (back ? 1 : -1), to = a->chunk + (back ? -1 : 1);

			g.cost[me] = c->chunk[a->chunk].seconds[a->kind];
			edge(&g, before, me);
			before = me;
			if (a->kind == ACT_W)
				continue;
			for (int sends = 0; sends < 2; sends++) {
				int other = sends ? to : from, peer, message, key;

				if (other < 0 || other >= chunks)
					continue;
				peer = schedule_stage(s, other);
				if (peer == d) {
					if (!sends)
						edge(&g, node(s, other, a->mb, kind), me);
					continue;
				}
				message = node(s, sends ? a->chunk : other, a->mb, 3 + back);
				if (sends) {
					g.cost[message] = c->chunk[a->chunk].hop[back];
					edge(&g, me, message);
				} else {
					edge(&g, message, me);
				}
				key = streams == ONE_STREAM ? 0 : streams == SEND_AND_RECEIVE ? sends
					: streams == PAIRS ? peer * 4 + sends : peer * 4 + sends * 2 + back;
				edge(&g, last[key], message);
				last[key] = message;
				if (!sends) {
					int *t = taken[peer * 2 + back], *nt = &ntaken[peer * 2 + back];

					if (receive && *nt >= receive)
						edge(&g, t[*nt - receive], message);
					t[(*nt)++] = me;
				}
			}
		}
	}
	return longest_path(mem, &g);
}

#endif
