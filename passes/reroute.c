/* passes/reroute.c - the cheapest chain, by Dijkstra over shardings, where the greedy one of reshard.c may
 * not be: several things are sent, and each order of them passes through other sizes.
 *
 * What counts is the time that bytes take, not latency: decisions are the same for all sizes. Where links
 * differ an all_reduce may be taken apart, so that the slow one carries less. Only axes whose place changes
 * move; those that both shardings have at the head of a dim stay. Paths
 * dearer than the greedy chain are cut off, so that few states are seen. */
#include "passes/reshard.h"

enum { MOST_STATES = 1000, SLOTS = 4096, MOST_WAITING = 8000 };

struct node {
	struct sharding sh;
	struct reshard step; /* that led here */
	int from;            /* -1: the start */
	double cost, held;   /* held: the most elements on the way */
	bool done;
};

/* A node that was given this cost; an old entry if it has a lower one now. */
struct waiting {
	double cost, held;
	int node;
};

struct route {
	const struct module *m;
	int nd, n;
	const dimid *d;
	enum dtype dt;
	const struct sharding *dst;
	uint32_t moving;       /* axes that may move */
	int fixed[MAX_DIMS];   /* how many axes of a dim stay */
	double bound;
	struct node *node;
	int nheap;
	struct waiting *heap;
	int16_t slot[SLOTS];   /* by hash of the sharding: 1 + node, 0: none */
};

static bool is_time(const struct route *r, int axis)
{
	return r->m->axes.at[axis].time;
}

static uint32_t hash_of(const struct route *r, const struct sharding *sh)
{
	uint64_t h = fnv1a(FNV_START, &sh->sum, sizeof sh->sum);

	h = fnv1a(h, &sh->max, sizeof sh->max);
	for (int i = 0; i < r->nd; i++) {
		h = fnv1a(h, &sh->on[i].n, 1);
		h = fnv1a(h, sh->on[i].a, sh->on[i].n);
	}
	return (uint32_t)(h ^ h >> 32) % SLOTS;
}

/* The node of sh, made if there is room; -1: no room. */
static int node_of(struct route *r, const struct sharding *sh)
{
	uint32_t h = hash_of(r, sh);

	for (; r->slot[h]; h = (h + 1) % SLOTS)
		if (sharding_equal(&r->node[r->slot[h] - 1].sh, sh, r->nd))
			return r->slot[h] - 1;
	if (r->n == MOST_STATES)
		return -1;
	r->node[r->n] = (struct node){ .sh = *sh, .from = -1, .cost = 1e30 };
	r->slot[h] = (int16_t)(r->n + 1);
	return r->n++;
}

static double send_seconds(const struct route *r, const struct reshard *s, double in, double out)
{
	uint32_t axes = step_axes(s);
	double latency = comm_seconds(r->m, axes, 0);

	return comm_seconds(r->m, axes, step_bytes(r->m, s, r->dt, in, out)) - (1 - 1e-6) * latency; /* ties: fewer */
}

/* -- a heap, the cheapest first -- */

static bool before(const struct waiting *a, const struct waiting *b)
{
	return a->cost < b->cost || (a->cost == b->cost && (a->held < b->held || (a->held == b->held && a->node < b->node)));
}

static void wait_turn(struct route *r, struct waiting w)
{
	int i = r->nheap;

	if (r->nheap == MOST_WAITING)
		return;
	for (r->nheap++; i && before(&w, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
		r->heap[i] = r->heap[(i - 1) / 2];
	r->heap[i] = w;
}

/* -1: nobody waits. */
static int next_node(struct route *r)
{
	while (r->nheap) {
		struct waiting first = r->heap[0], last = r->heap[--r->nheap];
		int i = 0;

		for (int k; (k = 2 * i + 1) < r->nheap; i = k) {
			k += k + 1 < r->nheap && before(&r->heap[k + 1], &r->heap[k]);
			if (!before(&r->heap[k], &last))
				break;
			r->heap[i] = r->heap[k];
		}
		r->heap[i] = last;
		if (!r->node[first.node].done && first.cost == r->node[first.node].cost)
			return first.node;
	}
	return -1;
}

static void relax(struct route *r, int at, const struct reshard *s)
{
	double in = shard_elements(r->m, r->nd, r->d, &r->node[at].sh);
	double out = shard_elements(r->m, r->nd, r->d, &s->sh), cost = r->node[at].cost;
	bool sends = s->code != OP_SHARD && s->code != OP_TO_PARTIAL;
	double held = r->node[at].held > out ? r->node[at].held : out;

	if (sends)
		cost += send_seconds(r, s, in, out);
	if (cost > r->bound)
		return;
	int i = node_of(r, &s->sh);
	if (i < 0 || cost > r->node[i].cost || (cost == r->node[i].cost && held >= r->node[i].held))
		return;
	r->node[i].cost = cost;
	r->node[i].held = held;
	r->node[i].from = at;
	r->node[i].step = *s;
	wait_turn(r, (struct waiting){ cost, held, i });
}

/* May these axes split dim i too? Not the layers of a stack, on the way: the plan would depend on their number. */
static bool has_room(const struct route *r, const struct sharding *sh, int i, const struct axes *l)
{
	bool loop = r->m->dims.at[r->d[i]].loop;

	for (int k = 0; k < l->n; k++)
		if (loop && !axes_has(&r->dst->on[i], l->a[k]))
			return false;
	return sh->on[i].n + l->n <= MAX_ON;
}

/* The parts of an axis that was cut where a link ends, at the end of dim i: to another dim as one. */
static void move_parts(struct route *r, int at, int i)
{
	const struct axes all = r->node[at].sh.on[i];
	int n = 1;

	while (all.n - n > r->fixed[i] && same_cut_axis(r->m, all.a[all.n - n - 1], all.a[all.n - n]))
		n++;
	for (; n > 1; n--)
		for (int e = 0; e < r->nd; e++) {
			struct reshard s = { OP_ALL_TO_ALL, { .n = (uint8_t)n }, r->d[i], r->d[e], false, r->node[at].sh };

			memcpy(s.axes.a, &all.a[all.n - n], (size_t)n);
			if (e == i || !has_room(r, &s.sh, e, &s.axes))
				continue;
			s.sh.on[i].n = (uint8_t)(all.n - n);
			for (int k = 0; k < n; k++)
				axes_push(&s.sh.on[e], s.axes.a[k]);
			relax(r, at, &s);
		}
}

static struct reshard step(enum opcode code, int axis, dimid dim, const struct sharding *sh)
{
	return (struct reshard){ code, { .n = 1, .a = { (uint8_t)axis } }, dim, NODIM, false, *sh };
}

/* An axis that splits nothing: onto a dim, or pending where that is wanted. */
static void place_axis(struct route *r, int at, int a)
{
	struct sharding sh = r->node[at].sh;
	struct axes one = { .n = 1, .a = { (uint8_t)a } };
	bool owed = sh.sum >> a & 1;

	if (sh.max >> a & 1 || (owed && is_time(r, a)))
		return;
	for (int i = 0; i < r->nd && a != pipe_axis(r->m); i++) { /* not all stages need have the value */
		struct sharding to = sh;

		if (!has_room(r, &to, i, &one))
			continue;
		axes_push(&to.on[i], a);
		to.sum &= ~(1u << a);
		struct reshard s = step(owed ? OP_REDUCE_SCATTER : OP_SHARD, a, r->d[i], &to);
		relax(r, at, &s);
	}
	if (owed || !((r->dst->sum | r->dst->max) >> a & 1))
		return;
	bool max = r->dst->max >> a & 1;
	if (max)
		sh.max |= 1u << a;
	else
		sh.sum |= 1u << a;
	struct reshard s = step(OP_TO_PARTIAL, a, NODIM, &sh);
	s.max = max;
	relax(r, at, &s);
}

/* The last axis of dim i: gathered, or to the end of another dim. */
static void take_axis(struct route *r, int at, int i)
{
	struct sharding sh = r->node[at].sh;

	if (sh.on[i].n <= r->fixed[i])
		return;
	int a = sh.on[i].a[--sh.on[i].n];
	struct axes one = { .n = 1, .a = { (uint8_t)a } };
	if (is_time(r, a))
		return;
	struct reshard s = step(OP_ALL_GATHER, a, r->d[i], &sh);
	relax(r, at, &s);
	for (int e = 0; e < r->nd; e++) {
		struct sharding to = sh;

		if (e == i || !has_room(r, &to, e, &one))
			continue;
		axes_push(&to.on[e], a);
		s = step(OP_ALL_TO_ALL, a, r->d[i], &to);
		s.to = r->d[e];
		relax(r, at, &s);
	}
}

static void reduce_group(struct route *r, int at, uint32_t set, bool max)
{
	struct reshard s = { .code = OP_ALL_REDUCE, .dim = NODIM, .to = NODIM, .max = max, .sh = r->node[at].sh };

	for (int a = 0; a < MAX_AXES; a++)
		if (set >> a & 1 && s.axes.n < MAX_ON)
			axes_push(&s.axes, a);
	for (int i = 0; i < s.axes.n; i++)
		*(max ? &s.sh.max : &s.sh.sum) &= ~(1u << s.axes.a[i]);
	if (s.axes.n)
		relax(r, at, &s);
}

static void reduce_axes(struct route *r, int at)
{
	const struct sharding sh = r->node[at].sh;
	uint32_t time = 0, split = sharding_axes(r->dst, r->nd);

	for (uint32_t a = 0; a < r->m->axes.n; a++)
		time |= (uint32_t)is_time(r, (int)a) << a;
	for (int max = 0; max < 2; max++) {
		uint32_t owed = (max ? sh.max & ~r->dst->max : sh.sum & ~r->dst->sum) & ~time;

		reduce_group(r, at, owed, max);
		reduce_group(r, at, owed & ~split, max);
		for (int a = 0; a < MAX_AXES && (owed & (owed - 1)); a++)
			reduce_group(r, at, owed & 1u << a, max);
	}
}

static void expand(struct route *r, int at)
{
	uint32_t used = sharding_axes(&r->node[at].sh, r->nd);

	for (int a = 0; a < MAX_AXES; a++)
		if (r->moving >> a & 1 && !(used >> a & 1))
			place_axis(r, at, a);
	for (int i = 0; i < r->nd; i++) {
		take_axis(r, at, i);
		move_parts(r, at, i);
	}
	reduce_axes(r, at);
}

/* Axes at the head of a dim in both stay there; so do those that nobody moves. */
static void find_moving(struct route *r, const struct sharding *src)
{
	const struct sharding *dst = r->dst;
	uint32_t stay = (src->sum & dst->sum) | (src->max & dst->max), all = 0;

	for (int i = 0; i < r->nd; i++) {
		int k = 0;

		while (k < src->on[i].n && k < dst->on[i].n && src->on[i].a[k] == dst->on[i].a[k])
			stay |= 1u << src->on[i].a[k++];
		r->fixed[i] = k;
	}
	all = sharding_axes(src, r->nd) | sharding_axes(dst, r->nd) | src->sum | src->max | dst->sum | dst->max;
	r->moving = all & ~stay;
}

static void write_chain(const struct route *r, int at, struct chain *c)
{
	struct chain new = { .seconds = r->node[at].cost, .free = true };

	for (int i = at; r->node[i].from >= 0; i = r->node[i].from)
		new.n++;
	if (new.n >= MAX_CHAIN)
		return;
	for (int i = at, k = new.n; r->node[i].from >= 0; i = r->node[i].from)
		new.step[--k] = r->node[i].step;
	*c = new;
}

/* What a chain takes, as send_seconds has it, and the most elements on the way. */
static double chain_cost(const struct route *r, const struct sharding *src, const struct chain *c, double *held)
{
	double in = shard_elements(r->m, r->nd, r->d, src), sum = 0;

	*held = in;
	for (int i = 0; i < c->n; i++) {
		double out = shard_elements(r->m, r->nd, r->d, &c->step[i].sh);

		if (c->step[i].code != OP_SHARD && c->step[i].code != OP_TO_PARTIAL)
			sum += send_seconds(r, &c->step[i], in, out);
		*held = out > *held ? out : *held;
		in = out;
	}
	return sum;
}

void reroute(const struct module *m, int nd, const dimid *d, enum dtype dt, const struct sharding *src,
	     const struct sharding *dst, struct chain *c)
{
	struct arena *mem = arena_new();
	struct route *r = NEW(mem, struct route);
	double most, cost;

	r->m = m;
	r->nd = nd;
	r->d = d;
	r->dt = dt;
	r->dst = dst;
	cost = chain_cost(r, src, c, &most);
	r->bound = cost * (1 + 1e-9);
	r->node = NEWN(mem, struct node, MOST_STATES);
	r->heap = NEWN(mem, struct waiting, MOST_WAITING);
	find_moving(r, src);
	int at = node_of(r, src);
	r->node[at].cost = 0;
	r->node[at].held = shard_elements(m, nd, d, src);
	while (at >= 0 && !sharding_equal(&r->node[at].sh, dst, nd)) {
		r->node[at].done = true;
		expand(r, at);
		at = next_node(r);
	}
	if (at >= 0 && (r->node[at].cost < cost * (1 - 1e-9) || r->node[at].held < most))
		write_chain(r, at, c);
	arena_free(mem);
}
