/* passes/reshard.c - see reshard.h. The rules, first that applies, until the shardings are equal:
 *
 *   1 shard           a is free and the next axis wanted of a dim          nothing is sent
 *   2 reduce_scatter  a is pending and the next axis wanted of a dim
 *   3 all_to_all      a is last on one dim and the next wanted of another; an axis of the mesh that was cut
 *                     where a link ends as one
 *   4 all_reduce      all pending axes of one kind that are not wanted, as one group
 *   5 all_gather      the last axis of the first dim whose list is not a prefix of what is wanted
 *   6 to_partial      a is free and wanted as pending                      nothing is sent
 *
 * The order matters: what comes first shrinks what an all_reduce sees. The time axis is only ever
 * sharded or made partial.
 */
#include "passes/reshard.h"

struct state {
	const struct module *m;
	int nd;
	const dimid *d;
	const struct sharding *dst;
	struct sharding cur;
};

static bool is_time(const struct module *m, int axis)
{
	return m->axes.at[axis].time;
}

static bool next_wanted(const struct state *s, int i, int *axis)
{
	if (!axes_prefix(&s->cur.on[i], &s->dst->on[i]) || s->cur.on[i].n == s->dst->on[i].n)
		return false;
	*axis = s->dst->on[i].a[s->cur.on[i].n];
	return true;
}

static bool pending(const struct sharding *sh, int axis)
{
	return (sh->sum | sh->max) >> axis & 1;
}

static bool wanted_on_dim(const struct state *s, int axis)
{
	return sharding_axes(s->dst, s->nd) >> axis & 1;
}

static struct axes one_axis(int axis)
{
	return (struct axes){ .n = 1, .a = { (uint8_t)axis } };
}

static bool rule_shard(struct state *s, struct reshard *r)
{
	int a;

	for (int i = 0; i < s->nd; i++)
		if (next_wanted(s, i, &a) && !pending(&s->cur, a) &&
		    !(sharding_axes(&s->cur, s->nd) >> a & 1)) {
			axes_push(&s->cur.on[i], a);
			*r = (struct reshard){ OP_SHARD, one_axis(a), s->d[i], NODIM, false, s->cur };
			return true;
		}
	return false;
}

static bool rule_reduce_scatter(struct state *s, struct reshard *r)
{
	int a;

	for (int i = 0; i < s->nd; i++)
		if (next_wanted(s, i, &a) && s->cur.sum >> a & 1 && !is_time(s->m, a)) {
			axes_push(&s->cur.on[i], a);
			s->cur.sum &= ~(1u << a);
			*r = (struct reshard){ OP_REDUCE_SCATTER, one_axis(a), s->d[i], NODIM, false, s->cur };
			return true;
		}
	return false;
}

/* How many axes at the end of dim i are the next wanted of dim e. */
static int tail_wanted(const struct state *s, int i, int e)
{
	const struct axes *l = &s->cur.on[i], *want = &s->dst->on[e];
	int have = s->cur.on[e].n;

	for (int n = 1; n <= l->n && have + n <= want->n; n++) {
		int a = l->a[l->n - n];

		if (is_time(s->m, a) || (n > 1 && !same_cut_axis(s->m, a, l->a[l->n - n + 1])))
			return 0;
		if (memcmp(&l->a[l->n - n], &want->a[have], (size_t)n) == 0)
			return n;
	}
	return 0;
}

static bool rule_all_to_all(struct state *s, struct reshard *r)
{
	int a;

	for (int e = 0; e < s->nd; e++) {
		if (!next_wanted(s, e, &a))
			continue;
		for (int i = 0; i < s->nd; i++) {
			struct axes tail = { .n = (uint8_t)tail_wanted(s, i, e) };

			if (i == e || !tail.n)
				continue;
			s->cur.on[i].n -= tail.n;
			for (int k = 0; k < tail.n; k++) {
				tail.a[k] = s->dst->on[e].a[s->cur.on[e].n];
				axes_push(&s->cur.on[e], tail.a[k]);
			}
			*r = (struct reshard){ OP_ALL_TO_ALL, tail, s->d[i], s->d[e], false, s->cur };
			return true;
		}
	}
	return false;
}

static bool rule_all_reduce(struct state *s, struct reshard *r, bool force)
{
	for (int max = 0; max < 2; max++) {
		uint32_t *cur = max ? &s->cur.max : &s->cur.sum, keep = max ? s->dst->max : s->dst->sum;
		struct axes l = { 0 };

		for (int a = 0; a < MAX_AXES; a++)
			if (*cur >> a & 1 && !(keep >> a & 1) && !is_time(s->m, a) && l.n < MAX_ON &&
			    (force || max || !wanted_on_dim(s, a)))
				axes_push(&l, a);
		if (!l.n)
			continue;
		for (int i = 0; i < l.n; i++)
			*cur &= ~(1u << l.a[i]);
		*r = (struct reshard){ OP_ALL_REDUCE, l, NODIM, NODIM, max, s->cur };
		return true;
	}
	return false;
}

static bool rule_all_gather(struct state *s, struct reshard *r)
{
	for (int i = 0; i < s->nd; i++) {
		struct axes *l = &s->cur.on[i];

		if (axes_prefix(l, &s->dst->on[i]))
			continue;
		int a = l->a[l->n - 1];
		if (is_time(s->m, a))
			return false;
		l->n--;
		*r = (struct reshard){ OP_ALL_GATHER, one_axis(a), s->d[i], NODIM, false, s->cur };
		return true;
	}
	return false;
}

static bool rule_to_partial(struct state *s, struct reshard *r)
{
	uint32_t taken = sharding_axes(&s->cur, s->nd);

	for (int max = 0; max < 2; max++) {
		uint32_t *cur = max ? &s->cur.max : &s->cur.sum, want = max ? s->dst->max : s->dst->sum;
		struct axes l = { 0 };

		for (int a = 0; a < MAX_AXES; a++)
			if (want >> a & 1 && !pending(&s->cur, a) && !(taken >> a & 1) && l.n < MAX_ON)
				axes_push(&l, a);
		if (!l.n)
			continue;
		for (int i = 0; i < l.n; i++)
			*cur |= 1u << l.a[i];
		*r = (struct reshard){ OP_TO_PARTIAL, l, NODIM, NODIM, max, s->cur };
		return true;
	}
	return false;
}

double shard_elements(const struct module *m, int nd, const dimid *d, const struct sharding *sh)
{
	double n = 1;

	for (int i = 0; i < nd; i++)
		n *= (double)cap_of(m, d[i], &sh->on[i]);
	return n;
}

uint32_t step_axes(const struct reshard *r)
{
	uint32_t axes = 0;

	for (int i = 0; i < r->axes.n; i++)
		axes |= 1u << r->axes.a[i];
	return axes;
}

double step_bytes(const struct module *m, const struct reshard *r, enum dtype dt, double in, double out)
{
	double k = (double)group_size(m, step_axes(r));

	return dtype_bytes(dt) * (r->code == OP_ALL_GATHER ? in * (k - 1) :
				  r->code == OP_REDUCE_SCATTER ? out * (k - 1) :
				  r->code == OP_ALL_TO_ALL ? out * (k - 1) / k : 2 * (k - 1) / k * in);
}

static bool is_sent(const struct reshard *r)
{
	return r->code != OP_SHARD && r->code != OP_TO_PARTIAL;
}

static double step_latency(const struct state *s, const struct reshard *r)
{
	return is_sent(r) ? comm_seconds(s->m, step_axes(r), 0) : 0;
}

/* weighing: an all_reduce over several links is not emitted as it stands. */
static double step_seconds(const struct state *s, const struct reshard *r, const struct sharding *before,
			   enum dtype dt, bool weighing)
{
	double in = shard_elements(s->m, s->nd, s->d, before);
	double out = shard_elements(s->m, s->nd, s->d, &r->sh);

	if (!is_sent(r))
		return 0;
	if (weighing && r->code == OP_ALL_REDUCE && s->nd)
		return staged_seconds(s->m, step_axes(r), in * dtype_bytes(dt), 2);
	return comm_seconds(s->m, step_axes(r), step_bytes(s->m, r, dt, in, out));
}

struct chain reshard_chain(const struct module *m, int nd, const dimid *d, enum dtype dt,
			   const struct sharding *src, const struct sharding *dst)
{
	struct chain c;
	struct state s = { m, nd, d, dst, *src };

	c.n = 0;
	c.seconds = c.latency = 0;
	c.free = true;
	while (!sharding_equal(&s.cur, dst, nd)) {
		struct reshard *r = &c.step[c.n];
		struct sharding before = s.cur;

		if (c.n == MAX_CHAIN - 1)
			die("a reshard of more than %d steps", MAX_CHAIN);
		if (!rule_shard(&s, r) && !rule_reduce_scatter(&s, r) && !rule_all_to_all(&s, r) &&
		    !rule_all_reduce(&s, r, false) && !rule_all_gather(&s, r) &&
		    !rule_to_partial(&s, r) && !rule_all_reduce(&s, r, true)) {
			c.seconds = 1e30; /* only by moving the time axis: not possible */
			c.free = false;
			return c;
		}
		c.n++;
		double t = step_seconds(&s, r, &before, dt, true);
		c.seconds += t;
		c.latency += step_latency(&s, r);
		c.free &= !is_sent(r);
	}
	return c;
}

/* One thing sent, or gathers alone, can't be done better, unless what is gathered is then cut, or links differ.
 * Of a scalar it is all latency. */
static bool may_be_better(const struct module *m, int nd, const struct chain *c)
{
	int sent = 0, gathers = 0;
	uint32_t axes = 0;
	bool cut = false;

	for (int i = 0; i < c->n; i++) {
		bool gather = c->step[i].code == OP_ALL_GATHER;

		gathers += gather;
		sent += is_sent(&c->step[i]);
		axes |= is_sent(&c->step[i]) ? step_axes(&c->step[i]) : 0;
		cut |= gathers && c->step[i].code == OP_SHARD;
	}
	return c->seconds < 1e30 && (cut || (sent > 1 && gathers < sent) || (nd && several_links(m, axes)));
}

struct chain reshard_best(const struct module *m, int nd, const dimid *d, enum dtype dt,
			  const struct sharding *src, const struct sharding *dst)
{
	struct chain c = reshard_chain(m, nd, d, dt, src, dst);

	if (may_be_better(m, nd, &c))
		reroute(m, nd, d, dt, src, dst, &c);
	if (c.seconds >= 1e30)
		return c;
	c.seconds = c.latency = 0;
	c.free = true;
	for (int i = 0; i < c.n; i++) {
		struct state s = { m, nd, d, dst, c.step[i].sh };

		c.seconds += step_seconds(&s, &c.step[i], i ? &c.step[i - 1].sh : src, dt, false);
		c.latency += step_latency(&s, &c.step[i]);
		c.free &= !is_sent(&c.step[i]);
	}
	return c;
}
