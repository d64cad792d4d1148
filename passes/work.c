/* passes/work.c - work shardings: what follows from one for operands and results, what it costs, and
 * that of a gradient op, which mirrors its forward op. */
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

void work_time(struct part *p, const struct op *op, struct work *w)
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

/* A position and a row along one dim are not one loop. */
bool work_closed(const struct op *op, dimid d)
{
	bool both = false;

	for (uint32_t i = op->code == OP_LOOKUP; i < op->nin && looked_up(op, d); i++)
		both |= has_dim(op->in[i], d);
	return both || (op_closed_dim(op, d) && !attn_keys(op, d));
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

/* Readers want v cut over these axes too, which is free; its cotangent then comes in parts, and is gathered. */
static double cut_seconds(struct part *p, const struct op *op, const struct value *v, const struct sharding *sh)
{
	struct sharding from = *sh, to = *sh;
	const struct info *i = info_of(p, v);

	from.sum = from.max = to.sum = to.max = 0;
	for (uint32_t a = 0; a < p->m->axes.n && has_gradient(p, op); a++)
		if (i->hint[a] && !((sharding_axes(sh, v->nd) | sh->sum | sh->max) >> a & 1))
			axes_push(&from.on[__builtin_ctz(i->hint[a])], (int)a);
	return reshard_chain(p->m, v->nd, v->d, v->dt, &from, &to).seconds;
}

/* now: what is sent before the op runs, as against what its readers may have to send. */
double work_seconds(struct part *p, const struct op *op, const struct work *w, double *now)
{
	double t = *now = operand_seconds(p, op, w);

	t += compute_seconds(p, op, w) + apart_seconds(p, op, w);
	for (uint32_t k = 0; k < op->nout; k++) {
		const struct value *v = op->out[k];
		struct sharding sh = work_result(p->m, op, w, k);

		if (v->placed && (op->phase <= FORWARD || op->phase == EPILOGUE))
			t += reshard_chain(p->m, v->nd, v->d, v->dt, &sh, &v->sh).seconds;
		else
			t += pending_seconds(p, v, &sh) + cut_seconds(p, op, v, &sh);
	}
	return t;
}

/* -- gradient ops -- */

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

		if (!work_closed(op, w.d[i]) && op_may_split(p->m, op, w.d[i], l))
			w.on[i] = *l;
	}
	for (uint32_t i = 0; i < op->nin; i++)
		for (uint32_t a = 0; a < p->m->axes.n; a++)
			if (info_of(p, op->in[i])->sunk >> a & 1)
				w.pass[a] |= op_linear(op, i);
	work_time(p, op, &w);
	return w;
}

/* The gradient of a param that op alone makes, as it is accumulated; else NULL. */
static const struct value *sole_gradient(struct part *p, const struct op *op)
{
	const struct info *i = op->nout == 1 ? info_of(p, op->out[0]) : NULL;

	if (!i || op->phase != BACKWARD || i->yielded || i->stacked || i->readers.n != 1 ||
	    i->readers.at[0]->code != OP_ACCUMULATE)
		return NULL;
	const struct value *v = i->readers.at[0]->out[0];
	return v->placed && v->name && strncmp(v->name, "d:", 2) == 0 ? v : NULL;
}

/* Seconds a microbatch, without latencies, until the gradient `home` lies where it is wanted. */
static double seconds_home(struct part *p, const struct op *op, const struct work *w, const struct value *home)
{
	struct sharding sh = work_result(p->m, op, w, 0);
	int t = time_axis(p->m);

	if (t >= 0)
		sh.sum &= ~(1u << t);
	struct chain c = reshard_chain(p->m, home->nd, home->d, home->dt, &sh, &home->sh);
	double way = c.seconds - c.latency;
	if (!reduced_each_microbatch(p->m, home->name + 2))
		way /= (double)p->m->micro;
	p->no_latency = true;
	way += operand_seconds(p, op, w) + compute_seconds(p, op, w);
	p->no_latency = false;
	return way;
}

/* w with axis a where `home` has it, not on a loop that is summed up. */
static struct work work_at_home(const struct op *op, const struct work *w, int a, const struct value *home)
{
	struct work alt = *w;

	alt.pass[a] = 0;
	for (int i = 0; i < alt.nd; i++) {
		struct axes l = { .n = 0 };

		for (int k = 0; k < w->on[i].n; k++)
			if (w->on[i].a[k] != a)
				axes_push(&l, w->on[i].a[k]);
		alt.on[i] = l;
	}
	for (int k = 0; k < home->nd; k++)
		if (axes_has(&home->sh.on[k], a))
			axes_push(work_on(&alt, op_label(op, home->d[k], true)), a);
	return alt;
}

static bool allowed(struct part *p, const struct op *op, const struct work *w)
{
	for (int i = 0; i < w->nd; i++)
		if (w->on[i].n && (work_closed(op, w->d[i]) || !op_may_split(p->m, op, w->d[i], &w->on[i])))
			return false;
	return true;
}

/* The gradient of a table of which few rows are read is larger than what is added to them: then each rank
 * gathers that and makes the gradient, or its own part of it, rather than reduce a sum that is mostly zeros.
 * Decisions do not hang on latency, nor on what is about the same. */
struct work gradient_work(struct part *p, struct op *op, const struct work *of)
{
	struct work w = mirror_work(p, op, of);
	const struct value *home = sole_gradient(p, op);

	if (!home || opinfo[op->code].class != C_SCATTER || !same_dims(home, op->out[0]))
		return w;
	for (uint32_t a = 0; a < p->m->axes.n; a++) {
		if (p->m->axes.at[a].time || (int)a == pipe_axis(p->m) ||
		    !(work_result(p->m, op, &w, 0).sum >> a & 1))
			continue;
		struct work alt = work_at_home(op, &w, (int)a, home);
		if (allowed(p, op, &alt) && seconds_home(p, op, &alt, home) < seconds_home(p, op, &w, home) * 0.9)
			w = alt;
	}
	return w;
}
