/* passes/remat_cut.c - a minimum cut by augmenting shortest paths (Edmonds and Karp 1972). Of the cuts of one
 * cost it is the one nearest to the sink. */
#include "passes/remat.h"

struct arc {
	int to, next; /* the next arc of the same vertex; -1: none */
	int64_t left; /* capacity that is left; arc i ^ 1 is its reverse */
};

struct cut {
	struct arena *mem;
	int n;
	int *first, *via, *queue;
	bool *behind;
	VEC(struct arc) arcs;
};

struct cut *cut_new(struct arena *mem, int vertices)
{
	struct cut *c = NEW(mem, struct cut);

	c->mem = mem;
	c->n = vertices;
	c->first = NEWN(mem, int, vertices);
	c->via = NEWN(mem, int, vertices);
	c->queue = NEWN(mem, int, vertices);
	c->behind = NEWN(mem, bool, vertices);
	for (int i = 0; i < vertices; i++)
		c->first[i] = -1;
	return c;
}

static void half_arc(struct cut *c, int from, int to, int64_t capacity)
{
	struct arc a = { to, c->first[from], capacity };

	c->first[from] = (int)c->arcs.n;
	PUSH(c->mem, &c->arcs, a);
}

void cut_arc(struct cut *c, int from, int to, int64_t capacity)
{
	half_arc(c, from, to, capacity);
	half_arc(c, to, from, 0);
}

/* Breadth first to the sink; via: the arc by which a vertex was reached. */
static bool find_path(struct cut *c)
{
	int head = 0, tail = 0;

	for (int i = 0; i < c->n; i++)
		c->via[i] = -1;
	c->queue[tail++] = CUT_FROM;
	while (head < tail && c->via[CUT_TO] < 0) {
		int at = c->queue[head++];

		for (int a = c->first[at]; a >= 0; a = c->arcs.at[a].next) {
			int to = c->arcs.at[a].to;

			if (!c->arcs.at[a].left || to == CUT_FROM || c->via[to] >= 0)
				continue;
			c->via[to] = a;
			c->queue[tail++] = to;
		}
	}
	return c->via[CUT_TO] >= 0;
}

/* What can still reach the sink, against the arcs. */
static void mark_behind(struct cut *c)
{
	int head = 0, tail = 0;

	c->behind[CUT_TO] = true;
	c->queue[tail++] = CUT_TO;
	while (head < tail) {
		int at = c->queue[head++];

		for (int a = c->first[at]; a >= 0; a = c->arcs.at[a].next) {
			int from = c->arcs.at[a].to;

			if (!c->arcs.at[a ^ 1].left || c->behind[from])
				continue;
			c->behind[from] = true;
			c->queue[tail++] = from;
		}
	}
}

bool cut_solve(struct cut *c)
{
	while (find_path(c)) {
		int64_t least = CUT_NEVER;

		for (int v = CUT_TO; v != CUT_FROM; v = c->arcs.at[c->via[v] ^ 1].to)
			if (c->arcs.at[c->via[v]].left < least)
				least = c->arcs.at[c->via[v]].left;
		if (least >= CUT_NEVER / 2)
			return false;
		for (int v = CUT_TO; v != CUT_FROM; v = c->arcs.at[c->via[v] ^ 1].to) {
			c->arcs.at[c->via[v]].left -= least;
			c->arcs.at[c->via[v] ^ 1].left += least;
		}
	}
	mark_behind(c);
	return true;
}

bool cut_behind(const struct cut *c, int vertex)
{
	return c->behind[vertex];
}
