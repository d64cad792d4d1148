/* passes/reshard.c - see reshard.h. The rules, first that applies, until the shardings are equal:
 *
 *   1 shard           a is free and the next axis wanted of a dim          nothing is sent
 *   2 reduce_scatter  a is pending and the next axis wanted of a dim
 *   3 all_to_all      a is last on one dim and the next wanted of another
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

static bool rule_all_to_all(struct state *s, struct reshard *r)
{
	int a;

	for (int e = 0; e < s->nd; e++) {
		if (!next_wanted(s, e, &a))
			continue;
		for (int i = 0; i < s->nd; i++) {
			struct axes *l = &s->cur.on[i];

			if (i == e || !l->n || l->a[l->n - 1] != a || is_time(s->m, a))
				continue;
			l->n--;
			axes_push(&s->cur.on[e], a);
			*r = (struct reshard){ OP_ALL_TO_ALL, one_axis(a), s->d[i], s->d[e], false, s->cur };
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

static double step_seconds(const struct state *s, const struct reshard *r, const struct sharding *before,
			   enum dtype dt)
{
	uint32_t axes = 0;

	if (r->code == OP_SHARD || r->code == OP_TO_PARTIAL)
		return 0;
	for (int i = 0; i < r->axes.n; i++)
		axes |= 1u << r->axes.a[i];
	double k = (double)group_size(s->m, axes);
	double in = shard_elements(s->m, s->nd, s->d, before);
	double out = shard_elements(s->m, s->nd, s->d, &r->sh);
	double elements = r->code == OP_ALL_GATHER ? in * (k - 1) :
			  r->code == OP_REDUCE_SCATTER ? out * (k - 1) :
			  r->code == OP_ALL_TO_ALL ? out * (k - 1) / k : 2 * (k - 1) / k * in;
	return comm_seconds(s->m, axes, elements * dtype_bytes(dt));
}

struct chain reshard_chain(const struct module *m, int nd, const dimid *d, enum dtype dt,
			   const struct sharding *src, const struct sharding *dst)
{
	struct chain c;
	struct state s = { m, nd, d, dst, *src };

	c.n = 0;
	c.seconds = 0;
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
		double t = step_seconds(&s, r, &before, dt);
		c.seconds += t;
		c.free &= r->code == OP_SHARD || r->code == OP_TO_PARTIAL;
	}
	return c;
}

/* One thing sent, or gathers alone, can't be done better, unless what is gathered is then cut. */
static bool may_be_better(const struct chain *c)
{
	int sent = 0, gathers = 0;
	bool cut = false;

	for (int i = 0; i < c->n; i++) {
		bool gather = c->step[i].code == OP_ALL_GATHER;

		gathers += gather;
		sent += c->step[i].code != OP_SHARD && c->step[i].code != OP_TO_PARTIAL;
		cut |= gathers && c->step[i].code == OP_SHARD;
	}
	return c->seconds < 1e30 && (cut || (sent > 1 && gathers < sent));
}

struct chain reshard_best(const struct module *m, int nd, const dimid *d, enum dtype dt,
			  const struct sharding *src, const struct sharding *dst)
{
	struct chain c = reshard_chain(m, nd, d, dt, src, dst);

	if (!may_be_better(&c))
		return c;
	reroute(m, nd, d, dt, src, dst, &c);
	c.seconds = 0;
	c.free = true;
	for (int i = 0; i < c.n; i++) {
		struct state s = { m, nd, d, dst, c.step[i].sh };

		c.seconds += step_seconds(&s, &c.step[i], i ? &c.step[i - 1].sh : src, dt);
		c.free &= c.step[i].code == OP_SHARD || c.step[i].code == OP_TO_PARTIAL;
	}
	return c;
}
