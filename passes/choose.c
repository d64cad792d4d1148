/* passes/choose.c - the cheapest work sharding of an op, among those that operands, layouts and readers
 * suggest (docs/SHARDING.md); and the hints of readers. */
#include "passes/partition.h"
#include "passes/place.h"

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

static void offer_dim(const struct op *op, struct options *o, dimid d)
{
	if (work_closed(op, d) || o->n == MAX_OPTION)
		return;
	for (int i = 0; i < o->n; i++)
		if (!o->at[i].none && !o->at[i].pass && o->at[i].d == d)
			return;
	o->at[o->n++] = (struct option){ .d = d };
}

/* Where the arrows put the keys of k or v. */
static struct axes keys_by_arrows(struct part *p, const struct op *op, const struct value *v)
{
	bool time = op->phase == FORWARD || op->phase == BACKWARD;
	struct sharding sh = v->placed ? v->sh : place_by_arrows(p->m, v->name, v->nd, v->d, time);

	return sh.on[dim_pos(v, op->at.ctx)];
}

/* The keys of an attention are split over an axis only where an arrow says so of k: then each rank may
 * meet its own, or those of all, one after the other, if the axis splits rows too. */
static void offer_keys(struct part *p, const struct op *op, struct options *o, int axis)
{
	const struct value *k = op->in[1];
	struct axes keys = keys_by_arrows(p, op, k);
	int n = o->n;

	if (!axes_has(&keys, axis))
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

/* Rows of a repeat stay on their stages, even where to gather them costs nothing. */
static void keep_rows(const struct module *m, struct options *o)
{
	for (int i = 0; i < o->n; i++)
		if (!o->at[i].none && !o->at[i].pass && is_staged(m, o->at[i].d)) {
			o->at[0] = o->at[i];
			o->n = 1;
		}
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
	if (axis == pipe_axis(p->m))
		keep_rows(p->m, &o);
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

static int pending_count(const struct module *m, const struct op *op, const struct work *w)
{
	int n = 0;

	for (uint32_t k = 0; k < op->nout; k++) {
		struct sharding sh = work_result(m, op, w, k);

		n += __builtin_popcount(sh.sum | sh.max);
	}
	return n;
}

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
	work_time(s->p, s->op, &w);
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

/* Is the axis that of the pipeline, and op of one stage at a time: in a microbatch, or in rows of a repeat? */
static bool is_apart(const struct part *p, const struct op *op, int axis)
{
	const struct scope *s = p->scope;

	while (s && !(s->old && is_staged(p->m, s->old->at.dim)))
		s = s->up;
	return axis == pipe_axis(p->m) && (s || op->phase == FORWARD || op->phase == BACKWARD);
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

		if (p->m->axes.at[a].time || p->m->axes.at[a].size == 1 || is_apart(p, op, (int)a))
			continue;
		o = axis_options(p, op, (int)a, s.have);
		if (o.n == 1 && o.at[0].none)
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

/* Keys without a name are made where the arrows want them. */
static void hint_keys(struct part *p, struct op *op)
{
	for (uint32_t i = 1; i < 3 && opinfo[op->code].class == C_ATTN; i++) {
		struct axes keys = keys_by_arrows(p, op, op->in[i]);

		for (int x = 0; x < keys.n; x++)
			info_of(p, op->in[i])->hint[keys.a[x]] |= (uint16_t)(1u << dim_pos(op->in[i], op->at.ctx));
	}
}

static void hint_operands(struct part *p, struct op *op)
{
	hint_keys(p, op);
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
