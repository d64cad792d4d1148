/* ir/verify_shard.c - the shardings of a partitioned module. Of every op there is one work sharding: all
 * operands and results that have a dim split it over the same axes; what a result is pending over follows
 * from it. Collectives change what they claim, and nothing else. */
#include "ir/text.h"
#include "ir/verify.h"

bool ver_sharding(struct verifier *v, const struct op *op, const char *what, int nd, const struct sharding *sh)
{
	uint32_t n = v->m->axes.n, all = (1u << n) - 1, used = sh->sum | sh->max;

	if (used & ~all)
		return ver_fail(v, op, "%s is pending over an unknown axis", what);
	if (sh->sum & sh->max)
		return ver_fail(v, op, "%s owes a sum and a maximum over one axis", what);
	for (int i = 0; i < nd; i++) {
		if (sh->on[i].n > MAX_ON)
			return ver_fail(v, op, "%s has a dim with %d axes", what, sh->on[i].n);
		for (int k = 0; k < sh->on[i].n; k++) {
			int a = sh->on[i].a[k];

			if (a >= (int)n)
				return ver_fail(v, op, "%s is split over an unknown axis", what);
			if (used >> a & 1)
				return ver_fail(v, op, "%s has axis '%s' twice", what, v->m->axes.at[a].name);
			used |= 1u << a;
		}
	}
	return true;
}

static uint32_t bits_of(const struct axes *l)
{
	uint32_t bits = 0;

	for (int i = 0; i < l->n; i++)
		bits |= 1u << l->a[i];
	return bits;
}

static const char *names_of(struct verifier *v, uint32_t bits)
{
	struct text t = { .mem = v->d->mem };

	for (uint32_t i = 0; i < v->m->axes.n; i++)
		if (bits >> i & 1)
			text_put(&t, "%s%s", t.n ? "." : "", v->m->axes.at[i].name);
	return t.n ? t.s : "nothing";
}

static const char *shown(struct verifier *v, const struct value *x)
{
	return arena_printf(v->d->mem, "%%%u : %s", x->id, value_text(v->d->mem, v->m, x));
}

/* -- work shardings -- */

struct work {
	int n;
	dimid d[130 * MAX_DIMS];
	struct axes on[130 * MAX_DIMS];
	uint32_t axes; /* of all dims */
};

/* lookup and scatter_add along a dim that the indices have too: a position and a row are not one loop. */
static bool is_closed(const struct op *op, dimid d)
{
	const struct dimlist *l = &op->at.dims;

	if (op_closed_dim(op, d))
		return !attn_keys(op, d);
	if (op->code != OP_LOOKUP && op->code != OP_SCATTER)
		return false;
	for (int i = 0; i < l->n; i++)
		for (uint32_t k = op->code == OP_LOOKUP; l->d[i] == d && k < op->nin; k++)
			if (has_dim(op->in[k], d))
				return true;
	return false;
}

/* Does axes l split something else too? Of an attention rows and keys may go over one axis. */
static bool twice(struct verifier *v, const struct op *op, const struct work *w, dimid d, uint32_t l)
{
	uint32_t used = attn_keys(op, d) ? 0 : w->axes & l;

	return used && !ver_fail(v, op, "axis %s splits two dims of the work", names_of(v, used));
}

static bool add_work(struct verifier *v, const struct op *op, struct work *w, const struct value *x, uint32_t no,
		     bool operand)
{
	for (int i = 0; i < x->nd; i++) {
		dimid d = op_label(op, x->d[i], !operand);
		const struct axes *l = &x->sh.on[i];
		int k = 0;

		if (attn_whole(op, x->d[i], no, !operand)) {
			if (l->n)
				return ver_fail(v, op, "%s: it must be whole along '%s'", shown(v, x),
						v->m->dims.at[x->d[i]].name);
			continue;
		}
		if (l->n && (is_closed(op, x->d[i]) || !op_may_split(v->m, op, d, l)))
			return ver_fail(v, op, "%s: it may not be split along '%s'", shown(v, x),
					v->m->dims.at[x->d[i]].name);
		while (k < w->n && w->d[k] != d)
			k++;
		if (k < w->n) {
			if (!axes_equal(&w->on[k], l))
				return ver_fail(v, op, "%s: others split '%s' in another way", shown(v, x),
						v->m->dims.at[x->d[i]].name);
			continue;
		}
		if (twice(v, op, w, d, bits_of(l)))
			return false;
		if (!attn_keys(op, d))
			w->axes |= bits_of(l);
		w->d[w->n] = d;
		w->on[w->n++] = *l;
	}
	return true;
}

/* Axes of the work that do not split r. An attention combines what it has over them itself. */
static uint32_t summed(const struct op *op, const struct work *w, const struct value *r)
{
	uint32_t bits = 0;

	for (int i = 0; i < w->n; i++)
		bits |= bits_of(&w->on[i]);
	return op->code == OP_ATTENTION ? 0 : bits & ~sharding_axes(&r->sh, r->nd);
}

static bool check_keys(struct verifier *v, const struct op *op)
{
	const struct value *k = op->in[1];
	uint32_t split = bits_of(&k->sh.on[dim_pos(k, op->at.ctx)]), axes = HAS(op, axes) ? bits_of(&op->at.axes) : 0;

	if (split != axes)
		return ver_fail(v, op, "%s: the keys are split over %s, {axes} says %s", shown(v, k), names_of(v, split),
				names_of(v, axes));
	return !(v->time >= 0 && axes >> v->time & 1) || ver_fail(v, op, "keys of several microbatches");
}

/* The axes of a pending maximum that op leaves so: it only moves elements about. */
static uint32_t passed_max(const struct op *op)
{
	return opinfo[op->code].class == C_VIEW ? op->in[0]->sh.max : 0;
}

/* The axes over which operands are pending and that the op may leave so. */
static bool passed(struct verifier *v, const struct op *op, uint32_t work, uint32_t *pass)
{
	*pass = 0;
	for (uint32_t i = 0; i < op->nin; i++) {
		if (op->in[i]->sh.max & ~passed_max(op))
			return ver_fail(v, op, "%s: a pending maximum must be resolved first", shown(v, op->in[i]));
		*pass |= op->in[i]->sh.sum;
	}
	if ((*pass | passed_max(op)) & work)
		return ver_fail(v, op, "axis %s is pending and splits the work", names_of(v, (*pass | passed_max(op)) & work));
	for (uint32_t a = 0; a < v->m->axes.n; a++) {
		uint64_t who = 0, want = 0;

		if (!(*pass >> a & 1))
			continue;
		for (uint32_t i = 0; i < op->nin && i < 64; i++) {
			if (!(op->in[i]->sh.sum >> a & 1))
				continue;
			want = who ? want : op_linear(op, i);
			who |= 1ull << i;
		}
		if (who != want)
			return ver_fail(v, op, "a pending sum over %s must be resolved first: it is not linear in it",
					v->m->axes.at[a].name);
	}
	return true;
}

static bool check_work(struct verifier *v, const struct op *op)
{
	struct work w = { 0 };
	uint32_t pass;

	for (uint32_t i = 0; i < op->nin; i++)
		if (!add_work(v, op, &w, op->in[i], i, true))
			return false;
	for (uint32_t i = 0; i < op->nout; i++)
		if (!add_work(v, op, &w, op->out[i], i, false))
			return false;
	if (opinfo[op->code].class == C_ATTN && !check_keys(v, op))
		return false;
	if (!passed(v, op, w.axes, &pass))
		return false;
	for (uint32_t i = 0; i < op->nout; i++) {
		const struct value *r = op->out[i];
		uint32_t sum = op->code == OP_RMAX ? 0 : summed(op, &w, r);
		uint32_t max = op->code == OP_RMAX ? summed(op, &w, r) : passed_max(op);

		if (r->sh.sum != (sum | pass))
			return ver_fail(v, op, "%s: its pending sum is over %s", shown(v, r), names_of(v, sum | pass));
		if (r->sh.max != max)
			return ver_fail(v, op, "%s: its pending maximum is over %s", shown(v, r), names_of(v, max));
	}
	return true;
}

/* -- buffers -- */

static bool check_stored(struct verifier *v, const struct op *op, const struct value *x)
{
	const struct buffer *b = find_buffer(v->m, op->at.buf);

	if (x->sh.sum || x->sh.max)
		return ver_fail(v, op, "%s: a buffer is never pending", shown(v, x));
	if (pipe_axis(v->m) >= 0 && b->where && HAS(op, where) && op->at.where & ~b->where)
		return ver_fail(v, op, "buffer '%s' is not on all stages of its places", b->name);
	if (b->role == B_INPUT)
		return true;
	for (int i = 0; i < b->nd; i++)
		if (!axes_equal(&x->sh.on[dim_pos(x, b->d[i])], &b->store.on[i]))
			return ver_fail(v, op, "%s: buffer '%s' is stored in another way", shown(v, x), b->name);
	return true;
}

/* -- regions -- */

static bool same_sharding(struct verifier *v, const struct op *op, const struct value *a, const struct value *b,
			  uint32_t sum)
{
	bool ok = a->sh.sum == sum && a->sh.max == b->sh.max;

	for (int i = 0; i < a->nd; i++) {
		int k = dim_pos(b, a->d[i]);

		if (k >= 0)
			ok = ok && axes_equal(&a->sh.on[i], &b->sh.on[k]);
		else
			ok = ok && (!a->sh.on[i].n || (a->sh.on[i].n == 1 && is_staged(v->m, a->d[i])));
	}
	return ok || ver_fail(v, op, "%s and %s do not agree", shown(v, a), shown(v, b));
}

static bool check_repeat(struct verifier *v, const struct op *op)
{
	const struct block *body = op->body;
	uint32_t ncarry = (uint32_t)op->at.ncarry, time = v->time < 0 ? 0 : 1u << v->time;
	uint32_t stages = pipe_axis(v->m) < 0 ? 0 : 1u << pipe_axis(v->m);
	bool ok = true;

	for (uint32_t i = 0; i < op->nin; i++)
		ok = ok && same_sharding(v, op, op->in[i], body->args.at[i], body->args.at[i]->sh.sum);
	for (uint32_t i = 0; ok && i < op->nout; i++) {
		const struct value *y = body->yields.at[i];
		bool acc = repeat_adds(op, i);

		if (acc && time && !(y->sh.sum & time))
			return ver_fail(v, op, "%s is not pending over the microbatches", shown(v, y));
		uint32_t own = repeat_local(op, i) ? stages : 0;

		ok = same_sharding(v, op, op->out[i], y, acc ? y->sh.sum & ~time : y->sh.sum | own);
		if (ok && i < ncarry)
			ok = same_sharding(v, op, op->out[i], op->in[i], op->in[i]->sh.sum | own);
	}
	return ok;
}

static bool check_kernel(struct verifier *v, const struct op *op)
{
	bool ok = true;

	for (uint32_t i = 0; i < op->nin; i++)
		ok = ok && same_sharding(v, op, op->in[i], op->body->args.at[i], op->body->args.at[i]->sh.sum);
	for (uint32_t i = 0; i < op->nout; i++)
		ok = ok && same_sharding(v, op, op->out[i], op->body->yields.at[i], op->body->yields.at[i]->sh.sum);
	return ok;
}

/* -- collectives -- */

static bool pop_axes(struct axes *l, const struct axes *a)
{
	if (a->n > l->n || memcmp(l->a + l->n - a->n, a->a, a->n) != 0)
		return false;
	l->n -= a->n;
	memset(l->a + l->n, 0, sizeof l->a - l->n);
	return true;
}

static bool push_axes(struct axes *l, const struct axes *a)
{
	if (l->n + a->n > MAX_ON)
		return false;
	memcpy(l->a + l->n, a->a, a->n);
	l->n += a->n;
	return true;
}

static bool same_lists(const struct value *want, const struct value *x)
{
	for (int i = 0; i < want->nd; i++) {
		const struct axes *a = &want->sh.on[i], *b = &x->sh.on[dim_pos(x, want->d[i])];

		if (a->n != b->n || memcmp(a->a, b->a, a->n) != 0)
			return false;
	}
	return want->sh.sum == x->sh.sum && want->sh.max == x->sh.max;
}

/* What op makes of *x, its operand i; false: it cannot. */
static bool apply_comm(const struct op *op, uint32_t i, struct value *x)
{
	const struct axes *a = &op->at.axes;
	uint32_t bits = bits_of(a), *owed = HAS(op, max) && op->at.max ? &x->sh.max : &x->sh.sum;
	dimid dim = comm_dim(op, i);
	struct axes *on = dim != NODIM ? &x->sh.on[dim_pos(x, dim)] : NULL;
	struct axes *to = HAS(op, to) ? &x->sh.on[dim_pos(x, op->at.to)] : NULL;
	bool had = (*owed & bits) == bits;

	switch (op->code) {
	case OP_ALL_GATHER:
		return pop_axes(on, a);
	case OP_REDUCE_SCATTER:
		x->sh.sum &= ~bits;
		return had && push_axes(on, a);
	case OP_ALL_REDUCE:
		*owed &= ~bits;
		return had;
	case OP_ALL_TO_ALL:
		return on != to && pop_axes(on, a) && push_axes(to, a);
	case OP_SHARD:
		return push_axes(on, a);
	case OP_TO_PARTIAL:
		*owed |= bits;
		return true;
	default:
		return false;
	}
}

static bool check_comm_of(struct verifier *v, const struct op *op, uint32_t i)
{
	uint32_t bits = bits_of(&op->at.axes);
	struct value want = *op->in[i];
	uint32_t before = want.sh.sum | want.sh.max | sharding_axes(&want.sh, want.nd);
	bool free = op->code == OP_SHARD || op->code == OP_TO_PARTIAL;

	if (op->code == OP_TO_PARTIAL && HAS(op, form) && op->at.form) { /* of parts, on the stages of {from} */
		if (!HAS(op, from) || !op->at.from)
			return ver_fail(v, op, "a sum of parts names the stages that have them");
		before = want.sh.sum & bits ? 0 : ~0u;
	}
	if (free && before & bits)
		return ver_fail(v, op, "%s has axis %s already", shown(v, op->in[i]), names_of(v, before & bits));
	if (!apply_comm(op, i, &want) || !same_lists(&want, op->out[i]))
		return ver_fail(v, op, "over %s it does not make %s of %s", names_of(v, bits), shown(v, op->out[i]),
				shown(v, op->in[i]));
	return true;
}

static bool check_wait(struct verifier *v, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (!same_sharding(v, op, op->out[i], op->in[i], op->in[i]->sh.sum))
			return false;
	return true;
}

static bool check_comm(struct verifier *v, const struct op *op)
{
	const struct axes *a = &op->at.axes;
	bool free = op->code == OP_SHARD || op->code == OP_TO_PARTIAL;

	for (int i = 0; i < a->n; i++)
		if (a->a[i] >= v->m->axes.n)
			return ver_fail(v, op, "an unknown axis");
	if (!a->n)
		return ver_fail(v, op, "it is over no axis");
	if (!free && v->time >= 0 && axes_has(a, v->time))
		return ver_fail(v, op, "a collective over the microbatches");
	for (uint32_t i = 0; i < op->nin; i++)
		if (!check_comm_of(v, op, i))
			return false;
	return true;
}

/* -- the step -- */

static bool check_accumulate(struct verifier *v, const struct op *op)
{
	uint32_t time = v->time < 0 ? 0 : 1u << v->time;

	if (time && !(op->in[0]->sh.sum & time))
		return ver_fail(v, op, "%s is not pending over the microbatches", shown(v, op->in[0]));
	return same_sharding(v, op, op->out[0], op->in[0], op->in[0]->sh.sum & ~time);
}

/* Outside the microbatches nothing may be one part of many. */
static bool check_time(struct verifier *v, const struct op *op)
{
	uint32_t time = v->time < 0 ? 0 : 1u << v->time;

	if (op->phase == FORWARD || op->phase == BACKWARD)
		return true;
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct value *x = op->in[i];

		if (op->code != OP_ACCUMULATE &&
		    (x->sh.sum | x->sh.max | sharding_axes(&x->sh, x->nd)) & time)
			return ver_fail(v, op, "%s is of one microbatch, it is read in the %s", shown(v, x),
					phase_name[op->phase]);
	}
	for (uint32_t i = 0; i < op->nout; i++) {
		const struct value *x = op->out[i];

		if ((x->sh.sum | x->sh.max | sharding_axes(&x->sh, x->nd)) & time)
			return ver_fail(v, op, "%s is of one microbatch, it is made in the %s", shown(v, x),
					phase_name[op->phase]);
	}
	return true;
}

bool ver_op_shards(struct verifier *v, const struct op *op)
{
	if (!check_time(v, op))
		return false;
	switch (op->code) {
	case OP_READ:
		return check_stored(v, op, op->out[0]);
	case OP_WRITE:
		return check_stored(v, op, op->in[0]);
	case OP_REPORT:
		return !(op->in[0]->sh.sum | op->in[0]->sh.max) ||
		       ver_fail(v, op, "%s is still pending", shown(v, op->in[0]));
	case OP_ACCUMULATE:
		return check_accumulate(v, op);
	case OP_REPEAT:
		return check_repeat(v, op);
	case OP_KERNEL:
		return check_kernel(v, op);
	case OP_WAIT:
	case OP_FROM_HOST:
	case OP_TO_HOST:
		return check_wait(v, op);
	default:
		return opinfo[op->code].class == C_COMM ? check_comm(v, op) : check_work(v, op);
	}
}
