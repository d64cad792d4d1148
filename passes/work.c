/* passes/work.c - work shardings: what an op may do with the axes, and the cheapest choice. */
#include "passes/partition.h"
#include "passes/place.h"

struct axes *work_on(struct work *w, dimid d)
{
	for (int i = 0; i < w->nd; i++)
		if (w->d[i] == d)
			return &w->on[i];
	return NULL;
}

static const struct axes *on(const struct work *w, dimid d)
{
	static const struct axes none;
	const struct axes *l = work_on((struct work *)w, d);

	return l ? l : &none;
}

static void add_labels(const struct op *op, struct work *w, const struct value *v, bool result)
{
	for (int i = 0; i < v->nd; i++) {
		dimid d = op_label(op, v->d[i], result);

		if (work_on(w, d))
			continue;
		if (w->nd == MAX_SPACE)
			die("an op over more than %d dims", MAX_SPACE);
		w->d[w->nd++] = d;
	}
}

struct work work_empty(const struct op *op)
{
	struct work w;

	memset(&w, 0, sizeof w);
	for (uint32_t i = 0; i < op->nin; i++)
		add_labels(op, &w, op->in[i], false);
	for (uint32_t i = 0; i < op->nout; i++)
		add_labels(op, &w, op->out[i], true);
	return w;
}

static bool looked_up(const struct op *op, dimid d)
{
	if (op->code != OP_LOOKUP && op->code != OP_SCATTER)
		return false;
	for (int i = 0; i < op->at.dims.n; i++)
		if (op->at.dims.d[i] == d)
			return true;
	return false;
}

struct sharding work_need(const struct op *op, const struct work *w, uint32_t i)
{
	const struct value *v = op->in[i];
	struct sharding sh;

	memset(&sh, 0, sizeof sh);
	for (int k = 0; k < v->nd; k++)
		if (!attn_whole(op, v->d[k], i, false))
			sh.on[k] = *on(w, op_label(op, v->d[k], false));
	for (int a = 0; a < MAX_AXES; a++)
		if (w->pass[a] >> i & 1)
			sh.sum |= 1u << a;
	return sh;
}

struct sharding work_result(const struct module *m, const struct op *op, const struct work *w, uint32_t k)
{
	const struct value *v = op->out[k];
	struct sharding sh;
	uint32_t gone = 0;

	memset(&sh, 0, sizeof sh);
	for (int i = 0; i < v->nd; i++)
		if (!attn_whole(op, v->d[i], k, true))
			sh.on[i] = *on(w, op_label(op, v->d[i], true));
	for (int i = 0; i < w->nd && op->code != OP_ATTENTION; i++) /* lse is whole without v's dims */
		gone |= axes_bits(&w->on[i]);
	gone &= ~sharding_axes(&sh, v->nd);
	if (op->code == OP_RMAX)
		sh.max = gone;
	else
		sh.sum = gone;
	for (uint32_t a = 0; a < m->axes.n; a++)
		if (w->pass[a])
			sh.sum |= 1u << a;
	return sh;
}

/* -- the time axis and the pipeline's: no choice, a microbatch is what there is, and a stage -- */

/* What is pending over axis a stays so. */
static void pass_on(struct part *p, const struct op *op, struct work *w, int a)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		shardings list = { 0 };

		available(p, op->in[i], &list);
		if (list.n && list.at[0].sum >> a & 1)
			w->pass[a] |= op_linear(op, i);
	}
}

static void set_time(struct part *p, const struct op *op, struct work *w)
{
	int t = time_axis(p->m);

	if (op->phase != FORWARD && op->phase != BACKWARD)
		return;
	if (pipe_axis(p->m) >= 0)
		pass_on(p, op, w, pipe_axis(p->m));
	struct axes *l = t < 0 ? NULL : work_on(w, p->m->batch);
	if (l) {
		struct axes with = { .n = 1, .a = { (uint8_t)t } };

		for (int i = 0; i < l->n; i++)
			if (l->a[i] != t)
				axes_push(&with, l->a[i]);
		*l = with;
	} else if (t >= 0) {
		pass_on(p, op, w, t);
	}
}

/* -- candidates -- */

struct option {
	bool none, pass;
	bool ring;     /* of an attention: d, a dim of its rows, and its keys */
	dimid d;
	uint64_t mask;
};

enum { MAX_OPTION = 12 };

struct options {
	int n;
	struct option at[MAX_OPTION];
};

/* A position and a row along one dim are not one loop. */
static bool closed(const struct op *op, dimid d)
{
	bool both = false;

	for (uint32_t i = op->code == OP_LOOKUP; i < op->nin && looked_up(op, d); i++)
		both |= has_dim(op->in[i], d);
	return both || (op_closed_dim(op, d) && !attn_keys(op, d));
}

static void offer_dim(const struct op *op, struct options *o, dimid d)
{
	if (closed(op, d) || o->n == MAX_OPTION)
		return;
	for (int i = 0; i < o->n; i++)
		if (!o->at[i].none && !o->at[i].pass && o->at[i].d == d)
			return;
	o->at[o->n++] = (struct option){ .d = d };
}

/* The keys of an attention are split over an axis only where an arrow says so of k: then each rank may
 * meet its own, or those of all, one after the other, if the axis splits rows too. */
static void offer_keys(struct part *p, const struct op *op, struct options *o, int axis)
{
	const struct value *k = op->in[1];
	bool time = op->phase == FORWARD || op->phase == BACKWARD;
	struct sharding sh = k->placed ? k->sh : place_by_arrows(p->m, k->name, k->nd, k->d, time);
	int n = o->n;

	if (!axes_has(&sh.on[dim_pos(k, op->at.ctx)], axis))
		return;
	offer_dim(op, o, op->at.ctx);
	for (int i = 0; i < n && o->n < MAX_OPTION; i++)
		if (!o->at[i].none && !o->at[i].pass && !has_dim(k, o->at[i].d) && !has_dim(op->in[2], o->at[i].d))
			o->at[o->n++] = (struct option){ .ring = true, .d = o->at[i].d };
}

static void offer_pass(struct options *o, uint64_t mask)
{
	for (int i = 0; i < o->n; i++)
		if (o->at[i].pass && o->at[i].mask == mask)
			return;
	if (o->n < MAX_OPTION)
		o->at[o->n++] = (struct option){ .pass = true, .mask = mask };
}

/* A product lets a pending operand through only if the other needs no gradient: else backward
 * reads the resolved value anyway. */
static bool pass_allowed(struct part *p, const struct op *op, uint32_t i)
{
	if (op->phase > FORWARD || (op->code != OP_MUL && op->code != OP_EINSUM && op->code != OP_DIV))
		return true;
	for (uint32_t k = 0; k < op->nin; k++)
		if (k != i && info_of(p, op->in[k])->needs_grad)
			return false;
	return true;
}

static void offer_sharding(struct part *p, const struct op *op, struct options *o, int axis,
			   const struct value *v, const struct sharding *sh, int operand)
{
	for (int k = 0; k < v->nd; k++)
		if (axes_has(&sh->on[k], axis) && !attn_keys(op, v->d[k]))
			offer_dim(op, o, op_label(op, v->d[k], operand < 0));
	if (operand >= 0 && sh->sum >> axis & 1 && op_linear(op, (uint32_t)operand) &&
	    pass_allowed(p, op, (uint32_t)operand))
		offer_pass(o, op_linear(op, (uint32_t)operand));
}

static struct options axis_options(struct part *p, struct op *op, int axis, const shardings *have)
{
	struct options o = { .n = 1, .at = { { .none = true } } };

	for (uint32_t i = 0; i < op->nin; i++)
		for (uint32_t k = 0; k < have[i].n; k++)
			offer_sharding(p, op, &o, axis, op->in[i], &have[i].at[k], (int)i);
	for (uint32_t k = 0; k < op->nout; k++) {
		struct value *v = op->out[k];

		if (v->placed)
			offer_sharding(p, op, &o, axis, v, &v->sh, -1);
		for (int i = 0; i < v->nd; i++)
			if (info_of(p, v)->hint[axis] >> i & 1)
				offer_dim(op, &o, op_label(op, v->d[i], true));
	}
	if (opinfo[op->code].class == C_ATTN)
		offer_keys(p, op, &o, axis);
	return o;
}

/* -- order of several axes on one dim: as in an anchor or an operand, else mesh order -- */

static bool orders(const struct sharding *sh, int pos, int a, int b, bool *first)
{
	int ia = -1, ib = -1;

	if (pos < 0)
		return false;
	for (int i = 0; i < sh->on[pos].n; i++) {
		if (sh->on[pos].a[i] == a)
			ia = i;
		if (sh->on[pos].a[i] == b)
			ib = i;
	}
	*first = ia < ib;
	return ia >= 0 && ib >= 0;
}

static bool comes_first(const struct op *op, const shardings *have, dimid d, int a, int b)
{
	bool first;

	for (uint32_t k = 0; k < op->nout; k++)
		if (op->out[k]->placed && orders(&op->out[k]->sh, label_pos(op, op->out[k], d, true), a, b, &first))
			return first;
	for (uint32_t i = 0; i < op->nin; i++)
		for (uint32_t k = 0; k < have[i].n; k++)
			if (orders(&have[i].at[k], label_pos(op, op->in[i], d, false), a, b, &first))
				return first;
	return a < b;
}

static void insert_axis(const struct op *op, const shardings *have, struct work *w, dimid d, int axis)
{
	struct axes *l = work_on(w, d), with = { .n = 0 };
	int i = 0;

	while (i < l->n && comes_first(op, have, d, l->a[i], axis))
		axes_push(&with, l->a[i++]);
	axes_push(&with, axis);
	while (i < l->n)
		axes_push(&with, l->a[i++]);
	*l = with;
}

/* -- the cost of a choice -- */

/* Axes of an attention's keys that split its rows too; and those that don't. */
static uint32_t ring_axes(const struct op *op, const struct work *w, uint32_t *apart)
{
	uint32_t keys, rows = 0;

	*apart = 0;
	if (opinfo[op->code].class != C_ATTN)
		return 0;
	keys = axes_bits(on(w, op->at.ctx));
	for (int i = 0; i < w->nd; i++)
		if (w->d[i] != op->at.ctx)
			rows |= axes_bits(&w->on[i]);
	*apart = keys & ~rows;
	return keys & rows;
}

/* What an attention sends itself: blocks of keys while it computes, the first of which it has; then it
 * combines results. Latency counts once, as in a gather: decisions do not depend on sizes. */
static double inner_seconds(struct part *p, const struct op *op, const struct work *w, double compute)
{
	const struct module *m = p->m;
	uint32_t apart, ring = ring_axes(op, w, &apart);
	double ranks = (double)group_size(m, ring), kv = 0, rows = 0, k = (double)group_size(m, apart);

	for (uint32_t i = 1; ring && i < 3; i++) {
		struct sharding sh = work_need(op, w, i);

		kv += shard_elements(m, op->in[i]->nd, op->in[i]->d, &sh) * dtype_bytes(op->in[i]->dt);
	}
	if (ring) {
		double send = comm_seconds(m, ring, (ranks - 1) * kv), own = compute / ranks;

		compute = own + (send > compute - own ? send : compute - own);
	}
	for (uint32_t i = 0; apart && i < 2; i++) {
		struct sharding sh = work_result(m, op, w, i);

		rows += (i + 1) * shard_elements(m, op->out[i]->nd, op->out[i]->d, &sh) * 4;
	}
	return compute + (apart ? comm_seconds(m, apart, 2 * (k - 1) / k * rows) : 0);
}

static double local_space(const struct module *m, const struct work *w)
{
	double n = 1;

	for (int i = 0; i < w->nd; i++)
		n *= (double)cap_of(m, w->d[i], &w->on[i]);
	return n;
}

static double compute_seconds(struct part *p, const struct op *op, const struct work *w)
{
	const struct module *m = p->m;
	double flops = 0, bytes = 0, peak = m->hw.fp32 > 0 ? m->hw.fp32 : 1e12;
	uint32_t apart;

	for (uint32_t i = 0; i < op->nin; i++) {
		struct sharding sh = work_need(op, w, i);

		bytes += shard_elements(m, op->in[i]->nd, op->in[i]->d, &sh) * dtype_bytes(op->in[i]->dt);
	}
	for (uint32_t k = 0; k < op->nout; k++) {
		struct sharding sh = work_result(m, op, w, k);

		bytes += shard_elements(m, op->out[k]->nd, op->out[k]->d, &sh) * dtype_bytes(op->out[k]->dt);
	}
	if (op->code == OP_EINSUM)
		flops = 2 * local_space(m, w);
	if (opinfo[op->code].class == C_ATTN)
		flops = 4 * local_space(m, w) * (double)group_size(m, ring_axes(op, w, &apart));
	if (op->nin && op->in[0]->dt == BF16 && m->hw.bf16 > 0)
		peak = m->hw.bf16;
	return inner_seconds(p, op, w, flops / peak + bytes / (m->hw.bandwidth > 0 ? m->hw.bandwidth : 1e10));
}

/* Elements at which a pending v is reduced in the end: its own, or fewer where all its readers are
 * linear and sum it up. */
static double reduced_at(struct part *p, const struct value *v)
{
	double size = (double)value_count(p->m, v), later = info_of(p, v)->later;

	return later > 0 && later < size ? later : size;
}

static bool passes_on(const struct op *op, uint32_t i)
{
	if (op->code == OP_REPORT || op->code == OP_ACCUMULATE)
		return true;
	return op->phase != BACKWARD && op->code != OP_REPEAT && op_linear(op, i) &&
	       (op->code != OP_MUL && op->code != OP_EINSUM);
}

void set_later(struct part *p, struct block *block)
{
	for (struct op *op = block->last; op; op = op->prev) {
		if (op->body)
			set_later(p, op->body);
		for (uint32_t i = 0; i < op->nin; i++) {
			double n = 1e30;

			if (passes_on(op, i)) {
				n = op->nout ? 0 : 1;
				for (uint32_t k = 0; k < op->nout; k++)
					n += reduced_at(p, op->out[k]);
			}
			info_of(p, op->in[i])->later += n;
		}
	}
}

/* Whoever leaves a result pending pays for the reduction, here and not at the reader. A scalar
 * stays pending until it is used: the loss, the squares of the norm. */
static double pending_seconds(struct part *p, const struct value *v, const struct sharding *sh)
{
	const struct module *m = p->m;
	double n = shard_elements(m, v->nd, v->d, sh) * dtype_bytes(v->dt), t = 0;

	if (!v->nd)
		return 0;
	n *= reduced_at(p, v) / (double)(value_count(m, v) ? value_count(m, v) : 1);
	for (int max = 0; max < 2; max++) {
		uint32_t axes = max ? sh->max : sh->sum; /* one collective resolves them all */
		int time = time_axis(m);

		if (time >= 0)
			axes &= ~(1u << time);
		if (axes)
			t += staged_seconds(m, axes, n, 1);
	}
	return t;
}

static double operand_seconds(struct part *p, const struct op *op, const struct work *w)
{
	double t = 0;

	for (uint32_t i = 0; i < op->nin; i++) {
		struct sharding need = work_need(op, w, i);
		bool again = false;

		for (uint32_t k = 0; k < i && !again; k++) {
			struct sharding other = work_need(op, w, k);

			again = rename_root(p, op->in[k]) == rename_root(p, op->in[i]) &&
				op->in[k]->nd == op->in[i]->nd && sharding_equal(&need, &other, op->in[i]->nd);
		}
		if (!again)
			t += version_seconds(p, op->in[i], &need);
	}
	return t;
}

/* -- what the choice means for backward, which mirrors it -- */

/* How the gradient op of operand i gives its part of the cotangent: pending over what the operand lacks. */
static struct sharding gives(const struct op *op, const struct work *w, uint32_t i)
{
	struct sharding sh = work_need(op, w, i);

	sh.sum = 0;
	for (int k = 0; k < w->nd; k++)
		for (int x = 0; label_pos(op, op->in[i], w->d[k], false) < 0 && x < w->on[k].n; x++)
			sh.sum |= 1u << w->on[k].a[x];
	return sh;
}

static bool has_gradient(struct part *p, const struct op *op)
{
	for (uint32_t k = 0; k < op->nout && op->phase == FORWARD; k++)
		if (info_of(p, op->out[k])->needs_grad)
			return true;
	return false;
}

static bool split_alike(const struct sharding *a, const struct sharding *b, int nd)
{
	for (int x = 0; x < nd; x++)
		if (!axes_equal(&a->on[x], &b->on[x]))
			return false;
	return true;
}

static bool is_given(const struct info *i, const struct sharding *sh, int nd)
{
	for (uint32_t k = 0; k < i->gives.n; k++)
		if (split_alike(&i->gives.at[k], sh, nd))
			return true;
	return false;
}

/* Parts of a cotangent that are split alike are added up before they are brought home. An op whose
 * part is split otherwise than those of all readers before it pays for the way of its own. */
static double apart_seconds(struct part *p, const struct op *op, const struct work *w)
{
	double t = 0;

	for (uint32_t i = 0; i < op->nin && has_gradient(p, op); i++) {
		struct sharding sh = gives(op, w, i);
		struct value *v = root_of(p, op->in[i], &sh);
		const struct info *in = info_of(p, v);

		if (!in->gives.n || !in->ver.n || is_given(in, &sh, v->nd))
			continue;
		struct sharding home = in->ver.at[0].sh;
		home.sum = home.max = 0;
		t += reshard_chain(p->m, v->nd, v->d, v->dt, &sh, &home).seconds;
	}
	return t;
}

void note_gradients(struct part *p, struct op *op, const struct work *w)
{
	for (uint32_t i = 0; i < op->nin && has_gradient(p, op); i++) {
		struct sharding sh = gives(op, w, i);
		struct value *v = root_of(p, op->in[i], &sh);
		struct info *in = info_of(p, v);

		if (in->needs_grad && !in->weight && in->how == H_MADE && !is_given(in, &sh, v->nd))
			PUSH(p->m->mem, &in->gives, sh);
	}
}

/* now: what is sent before the op runs, as against what its readers may have to send. */
static double work_seconds(struct part *p, const struct op *op, const struct work *w, double *now)
{
	double t = *now = operand_seconds(p, op, w);

	t += compute_seconds(p, op, w) + apart_seconds(p, op, w);
	for (uint32_t k = 0; k < op->nout; k++) {
		const struct value *v = op->out[k];
		struct sharding sh = work_result(p->m, op, w, k);

		if (v->placed && (op->phase <= FORWARD || op->phase == EPILOGUE))
			t += reshard_chain(p->m, v->nd, v->d, v->dt, &sh, &v->sh).seconds;
		else
			t += pending_seconds(p, v, &sh);
	}
	return t;
}

static int pending_count(const struct module *m, const struct op *op, const struct work *w)
{
	int n = 0;

	for (uint32_t k = 0; k < op->nout; k++) {
		struct sharding sh = work_result(m, op, w, k);

		n += __builtin_popcount(sh.sum | sh.max);
	}
	return n;
}

/* -- all choices -- */

struct search {
	struct part *p;
	struct op *op;
	shardings *have;
	int naxis, axis[MAX_AXES];
	struct options opt[MAX_AXES];
	struct work best;
	double best_seconds, best_now;
	int best_pending, best_pick[MAX_AXES];
};

static void try_work(struct search *s, const int *pick)
{
	struct work w = work_empty(s->op);

	for (int i = 0; i < s->naxis; i++) {
		const struct option *o = &s->opt[i].at[pick[i]];

		if (o->pass)
			w.pass[s->axis[i]] = o->mask;
		else if (!o->none)
			insert_axis(s->op, s->have, &w, o->d, s->axis[i]);
		if (o->ring)
			insert_axis(s->op, s->have, &w, s->op->at.ctx, s->axis[i]);
	}
	for (int i = 0; i < w.nd; i++)
		if (!op_may_split(s->p->m, s->op, w.d[i], &w.on[i]))
			return;
	set_time(s->p, s->op, &w);
	double now, t = work_seconds(s->p, s->op, &w, &now), eps = 1e-9 * s->best_seconds;
	int pend = pending_count(s->p->m, s->op, &w);
	bool better = t < s->best_seconds - eps;

	/* Ties: who waits may find that the value shrinks; then the fewest pending axes. */
	if (t <= s->best_seconds + eps && !better)
		better = now < s->best_now - eps || (now <= s->best_now + eps && pend < s->best_pending);
	if (better) {
		s->best = w;
		s->best_seconds = t;
		s->best_now = now;
		s->best_pending = pend;
		memcpy(s->best_pick, pick, (size_t)s->naxis * sizeof *pick);
	}
}

/* A free operand comes in any sharding; the arrows say which ones to think of. */
static void offer_free(struct part *p, const struct op *op, struct value *v, shardings *list)
{
	const struct info *i = info_of(p, v);
	bool time = op->phase == FORWARD || op->phase == BACKWARD;

	if (i->how == H_WITH)
		i = info_of(p, i->from);
	if (i->how != H_FREE || !v->nd)
		return;
	struct sharding sh = place_by_arrows(p->m, v->name, v->nd, v->d, time);
	PUSH(p->m->mem, list, sh);
}

enum { MOST_TRIES = 60 };

static void try_all(struct search *s)
{
	int pick[MAX_AXES] = { 0 }, i = 0;

	while (i >= 0) {
		try_work(s, pick);
		for (i = s->naxis - 1; i >= 0; i--) {
			if (++pick[i] < s->opt[i].n)
				break;
			pick[i] = 0;
		}
	}
}

static void try_like(struct search *s, const struct value *v, const struct sharding *sh, int operand)
{
	int pick[MAX_AXES] = { 0 };

	for (int a = 0; a < s->naxis; a++)
		for (int k = 0; k < s->opt[a].n; k++) {
			const struct option *o = &s->opt[a].at[k];
			int pos = o->none || o->pass ? -1 : label_pos(s->op, v, o->d, operand < 0);

			if ((pos >= 0 && axes_has(&sh->on[pos], s->axis[a])) ||
			    (o->pass && operand >= 0 && o->mask >> operand & 1 && sh->sum >> s->axis[a] & 1))
				pick[a] = k;
		}
	try_work(s, pick);
}

static bool same_option(const struct option *x, const struct option *y)
{
	return x->none == y->none && x->pass == y->pass && x->ring == y->ring && x->d == y->d && x->mask == y->mask;
}

/* Moves one axis, or two to the same place, as long as that helps. */
static void descend(struct search *s)
{
	double before;

	do {
		before = s->best_seconds;
		for (int a = 0; a < s->naxis; a++)
			for (int k = 0; k < s->opt[a].n; k++) {
				int pick[MAX_AXES];

				memcpy(pick, s->best_pick, sizeof pick);
				pick[a] = k;
				try_work(s, pick);
				for (int b = a + 1; b < s->naxis; b++)
					for (int x = 0; x < s->opt[b].n; x++)
						if (same_option(&s->opt[a].at[k], &s->opt[b].at[x]) && s->best_pick[b] != x) {
							pick[b] = x;
							try_work(s, pick);
							pick[b] = s->best_pick[b];
						}
			}
	} while (s->best_seconds < before * (1 - 1e-9));
}

/* Too many axes to try all: from what operands and anchors have, one axis after the other. Costs of axes
 * hardly depend on each other. */
static void try_some(struct search *s)
{
	int none[MAX_AXES] = { 0 };

	try_work(s, none);
	for (uint32_t k = 0; k < s->op->nout; k++)
		if (s->op->out[k]->placed)
			try_like(s, s->op->out[k], &s->op->out[k]->sh, -1);
	for (uint32_t i = 0; i < s->op->nin; i++)
		for (uint32_t k = 0; k < s->have[i].n && k < 4; k++)
			try_like(s, s->op->in[i], &s->have[i].at[k], (int)i);
	descend(s);
}

struct work choose_work(struct part *p, struct op *op)
{
	struct search s = { .p = p, .op = op, .best_seconds = 1e300 };
	s.have = NEWN(p->m->mem, shardings, op->nin ? op->nin : 1);
	for (uint32_t k = 0; k < op->nin; k++) {
		available(p, op->in[k], &s.have[k]);
		offer_free(p, op, op->in[k], &s.have[k]);
	}
	for (uint32_t a = 0; a < p->m->axes.n; a++) {
		struct options o;

		if (p->m->axes.at[a].time || p->m->axes.at[a].size == 1 ||
		    ((int)a == pipe_axis(p->m) && (op->phase == FORWARD || op->phase == BACKWARD)))
			continue;
		o = axis_options(p, op, (int)a, s.have);
		if (o.n == 1)
			continue;
		s.axis[s.naxis] = (int)a;
		s.opt[s.naxis++] = o;
	}
	s.best = work_empty(op);
	double all = 1;
	for (int a = 0; a < s.naxis; a++)
		all *= s.opt[a].n;
	if (all <= MOST_TRIES)
		try_all(&s);
	else
		try_some(&s);
	return s.best;
}

/* How `of`, the work of f, splits a dim of f's operands or results. */
static const struct axes *split_of(const struct op *f, const struct work *of, dimid d)
{
	const struct axes *l = work_on((struct work *)of, d);

	if (!l)
		l = work_on((struct work *)of, op_label(f, d, true));
	return l ? l : on(of, op_label(f, d, false));
}

struct work mirror_work(struct part *p, struct op *op, const struct work *of)
{
	struct work w = work_empty(op);

	for (int i = 0; i < w.nd; i++) {
		const struct axes *l = split_of(op->of, of, w.d[i]);

		if (!closed(op, w.d[i]) && op_may_split(p->m, op, w.d[i], l))
			w.on[i] = *l;
	}
	for (uint32_t i = 0; i < op->nin; i++)
		for (uint32_t a = 0; a < p->m->axes.n; a++)
			if (info_of(p, op->in[i])->sunk >> a & 1)
				w.pass[a] |= op_linear(op, i);
	set_time(p, op, &w);
	return w;
}

/* -- hints: what the readers of a value want of it, one sweep from the end -- */

/* op: whose operand v is, and its result `like`; NULL: dims are matched by name. */
static void hint_like(struct part *p, struct value *v, const struct value *like, const struct sharding *sh,
		      const struct info *from, const struct op *op)
{
	struct info *i = info_of(p, v);

	for (int k = 0; k < v->nd; k++) {
		int pos = op ? label_pos(op, like, op_label(op, v->d[k], false), true) : dim_pos(like, v->d[k]);

		for (uint32_t a = 0; pos >= 0 && a < p->m->axes.n; a++)
			if ((sh && axes_has(&sh->on[pos], (int)a)) || (from && from->hint[a] >> pos & 1))
				i->hint[a] |= (uint16_t)(1u << k);
	}
}

static void hint_operands(struct part *p, struct op *op)
{
	for (uint32_t k = 0; k < op->nout; k++) {
		struct value *out = op->out[k];

		for (uint32_t i = 0; i < op->nin; i++)
			hint_like(p, op->in[i], out, out->placed ? &out->sh : NULL,
				  out->placed ? NULL : info_of(p, out), op);
	}
}

void set_hints(struct part *p, struct block *block)
{
	for (struct op *op = block->last; op; op = op->prev) {
		if (op->phase > FORWARD)
			continue;
		if (op->code != OP_REPEAT) {
			hint_operands(p, op);
			continue;
		}
		for (int64_t i = 0; i < op->at.ncarry; i++) {
			struct value *arg = op->body->args.at[i];

			if (!arg->placed)
				continue;
			hint_like(p, op->in[i], arg, &arg->sh, NULL, NULL);
			hint_like(p, op->body->yields.at[i], arg, &arg->sh, NULL, NULL);
		}
		set_hints(p, op->body);
	}
}
