/* passes/timing.c - the seconds of each op, and of a part of the step, walked in order.
 *
 * A section is walked in order with a clock for each stream. An op of compute takes its time on the first; a collective,
 * or a copy from or to the host, starts when compute and its own stream are there and holds up compute, unless it is {async}: then
 * only its wait does, or {ahead}: then it was started an iteration before.
 *
 * The refined timing has one more clock, the host's, which must have launched an op before it runs, and asks the
 * software which collectives compute hides. */
#include "passes/timing.h"

#include "ir/region.h"
#include "passes/constants.h"

struct op_time {
	double compute, comm; /* seconds of one; comm: of what other streams do */
	double start, end;    /* of the one in flight; -1: none */
	double launches;      /* the host's seconds */
	enum time_kind kind;
	double whole[NTIME];  /* of a loop: what each iteration does beside the plan's ops */
};

static void time_ops(struct timing *t, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next) {
		struct op_time *x = &t->op[op->mark];

		if (op->code == OP_REPEAT)
			time_ops(t, op->body);
		else if (may_fly(op->code))
			x->comm = op_seconds(t->m, op);
		else if (host_seconds(t->m, op) > 0)
			x->comm = host_seconds(t->m, op);
		else if (!op_is_free(t->m, op)) {
			x->compute = op_compute_seconds(t->m, op);
			x->comm = op_seconds(t->m, op) - x->compute; /* of an attention over ranks: what it can't hide */
		}
	}
}

static struct timing *new_timing(struct arena *mem, const struct module *m)
{
	struct timing *t = NEW(mem, struct timing);

	*t = (struct timing){ .mem = mem, .m = m, .op = NEWN(mem, struct op_time, number_ops(&m->top, 0) + 1) };
	return t;
}

struct timing *timing_of(struct arena *mem, const struct module *m)
{
	struct timing *t = new_timing(mem, m);

	time_ops(t, &m->top);
	return t;
}

/* -- refined -- */

static void price_ops(struct timing *t, const struct block *block)
{
	double launch = launch_seconds(t->m);

	for (const struct op *op = block->first; op; op = op->next) {
		struct op_time *x = &t->op[op->mark];

		if (op->code == OP_REPEAT) {
			price_ops(t, op->body);
			continue;
		}
		if (host_seconds(t->m, op) > 0 || opinfo[op->code].class == C_HOST) {
			x->kind = T_COPIES;
			x->comm = host_seconds(t->m, op);
			continue;
		}
		struct op_price p = op_price(t->price, op);

		x->kind = p.kind;
		x->launches = p.launches * launch;
		if (comm_sends(op->code))
			x->comm = p.seconds;
		else
			x->compute = p.seconds + p.extra, x->comm = p.ring;
	}
}

/* What one iteration takes, by kind: of all its ops, or of those that backward does again. */
static void sum_body(const struct timing *t, const struct op *loop, bool again, double sum[NTIME])
{
	for (const struct op *op = loop->body->first; op; op = op->next) {
		const struct op_time *x = &t->op[op->mark];

		if (op->code == OP_REPEAT || (again && !HAS(op, again)))
			continue;
		sum[x->kind] += x->compute + (may_fly(op->code) ? x->comm : 0);
		sum[T_HOST] += x->launches;
	}
}

enum { CHECKPOINT_LAUNCHES = 60, TORCH_LAUNCHES = 20 }; /* Megatron's keeps states of generators; PyTorch's hooks */

/* Software that wraps a layer runs all of it again, where the plan leaves out what nobody reads. */
static void redo_whole(struct timing *t, const struct op *back, const struct op *loop)
{
	double all[NTIME] = { 0 }, again[NTIME] = { 0 }, *more = t->op[back->mark].whole;

	sum_body(t, loop, false, all);
	sum_body(t, back, true, again);
	if (again[T_PRODUCTS] <= 0)
		return;
	for (int k = 0; k < NTIME; k++)
		more[k] = k != T_PARAMS && all[k] > again[k] ? all[k] - again[k] : 0;
	more[T_HOST] += launch_seconds(t->m) * (t->m->software.at[SW_ELEMENTWISE] == ELEM_FUSED ? CHECKPOINT_LAUNCHES : TORCH_LAUNCHES);
}

static void find_whole(struct timing *t)
{
	for (const struct op *back = t->m->top.first; back; back = back->next)
		for (const struct op *loop = t->m->top.first; loop && back->code == OP_REPEAT && back->phase == BACKWARD; loop = loop->next)
			if (loop->code == OP_REPEAT && loop->phase == FORWARD && loop->at.dim == back->at.dim)
				redo_whole(t, back, loop);
}

struct timing *timing_refined(struct arena *mem, const struct module *m)
{
	struct timing *t = new_timing(mem, m);
	const struct recompute *r = &m->recompute;

	t->price = pricing_of(mem, m);
	price_ops(t, &m->top);
	if (m->software.at[SW_RECOMPUTE] == RECOMPUTE_WHOLE && r->how == RECOMPUTE_FULL && !r->keep.n)
		find_whole(t);
	return t;
}

/* -- a section -- */

struct walk {
	struct timing *t;
	struct part here;
	double now;        /* the clocks: compute's */
	double end[NSTREAM]; /* and when each other stream has done what it was given */
	double ahead[NSTREAM]; /* of that, seconds for the iteration after the one at hand */
	double host;       /* of launches, refined */
	double compute;    /* of now */
	double kind[NTIME], behind[NTIME];
	double hidden;     /* comm under compute; since the last loop began */
	double exchanged;  /* the same, of exchanges of tokens */
	double under;      /* all of it */
	double lane;       /* when the last collective that is hidden ends */
	int64_t index, iter; /* of the innermost loop, of all around together */
};

enum { WARM = 3 }; /* iterations until one is like the next */

static double later(double a, double b)
{
	return a > b ? a : b;
}

static void note(const struct walk *w, const struct op *op, double start, double end)
{
	if (w->here.note)
		w->here.note(w->here.to, op, w->iter, start, end);
}

/* The part of what op says that is here: rows along a dim that is cut into stages. */
static double share_of(const struct walk *w, const struct op *op)
{
	const struct module *m = w->t->m;
	const struct value *v = op->nin ? op->in[0] : op->nout ? op->out[0] : NULL;

	if (!v || !v->nd || !is_staged(m, v->d[0]) || v->sh.on[0].n != 1 || (w->here.chunk < 0 && w->here.stage < 0))
		return 1;
	double cap = (double)cap_of(m, v->d[0], &v->sh.on[0]);
	struct trips t = w->here.chunk < 0 ? (struct trips){ 0, pipe_rows(m, v->d[0], w->here.stage) } : pipe_trips(m, v->d[0], w->here.chunk);

	return cap > 0 ? (double)(t.hi - t.lo) / cap : 1;
}

/* Compute waits until `until`, for kind. */
static void wait_until(struct walk *w, double until, enum time_kind kind)
{
	if (until <= w->now)
		return;
	w->kind[kind] += until - w->now;
	w->now = until;
}

static void spend(struct walk *w, double seconds, enum time_kind kind)
{
	w->now += seconds;
	w->kind[kind] += seconds;
}

/* In the order of the plan: without {async} or {ahead} it is waited for. */
static void walk_as_planned(struct walk *w, const struct op *op, double seconds)
{
	struct op_time *x = &w->t->op[op->mark];
	double *end = &w->end[op_stream(op->code)];

	if (HAS(op, ahead) && x->end >= 0) {
		wait_until(w, x->end, x->kind);
		note(w, op, x->start, x->end);
	}
	x->start = later(w->now, *end);
	*end = x->start + seconds;
	if (!HAS(op, ahead) || x->end < 0)
		note(w, op, x->start, *end);
	if (HAS(op, ahead) && x->end < 0) { /* the first iteration's own */
		wait_until(w, *end, x->kind);
		x->start = *end;
		*end += seconds;
	}
	x->end = *end;
	w->ahead[op_stream(op->code)] += HAS(op, ahead) ? seconds : 0;
	if (!HAS(op, async) && !HAS(op, ahead))
		wait_until(w, *end, x->kind);
}

static int overlap_of(const struct walk *w, enum time_kind kind)
{
	bool step = w->here.section == PROLOGUE || w->here.section == EPILOGUE;
	enum switch_no sw = kind == T_ACTIVATIONS ? SW_TP : kind == T_EXCHANGE ? SW_EP : step ? SW_DP : SW_PREFETCH;

	return w->t->price ? w->t->m->software.at[sw] : OVERLAP_PLAN;
}

/* A collective on activations that software overlaps with products: a part is seen in any case. */
static void overlap(struct walk *w, double seconds, enum time_kind kind)
{
	bool exchange = kind == T_EXCHANGE;

	spend(w, seconds * (exchange ? EP_EXPOSED : TP_EXPOSED), kind);
	w->exchanged += exchange ? seconds * (1 - EP_EXPOSED) : 0;
}

static void walk_comm(struct walk *w, const struct op *op, double share)
{
	struct op_time *x = &w->t->op[op->mark];
	double seconds = x->comm * share;
	bool partly = x->kind == T_ACTIVATIONS || x->kind == T_EXCHANGE;

	switch (overlap_of(w, x->kind)) {
	case OVERLAP_PLAN:
		walk_as_planned(w, op, seconds);
		return;
	case OVERLAP_OFF:
		x->end = w->now + seconds;
		note(w, op, w->now, x->end);
		spend(w, seconds, x->kind);
		return;
	default:
		x->end = w->now;
		w->lane = later(w->now, w->lane) + seconds;
		note(w, op, w->lane - seconds, w->lane);
		if (partly)
			overlap(w, seconds, x->kind);
		else if (w->here.section == PROLOGUE || w->here.section == EPILOGUE)
			w->behind[x->kind] += seconds;
		else
			w->hidden += seconds;
	}
}

/* Exchanges of one microbatch go under the compute of another: those of its forward under a backward, which takes
 * twice as long, so of what both compute each may hide half. They slow it, and are waited for where it is too short. */
static void settle_exchange(struct walk *w, double compute)
{
	double hidden = w->exchanged, room = compute * (w->here.section == FORWARD ? 1.5 : 0.75);

	w->exchanged = 0;
	w->under += hidden;
	spend(w, CONTENTION * (hidden < room ? hidden : room) + later(0, hidden - room), T_EXCHANGE);
}

/* What goes on under compute since `from` slows it, and is waited for where it takes longer. */
static void settle(struct walk *w, double from)
{
	settle_exchange(w, w->now - from);
	double compute = w->now - from, hidden = w->hidden; /* what waits for tokens hides params */

	if (hidden <= 0)
		return;
	double slowed = compute + CONTENTION * hidden, end = later(slowed, hidden);
	spend(w, end - compute, T_PARAMS);
	w->under += hidden;
	w->hidden = 0;
}

static void walk_loop(struct walk *w, const struct op *loop, struct trips trips);

/* The host launches, ahead of the device, or waits for each launch to have run: then the device waits for it. */
static void launch(struct walk *w, double seconds)
{
	if (w->t->price && w->t->m->software.at[SW_GRAPHS] == GRAPHS_BLOCKING)
		spend(w, seconds, T_HOST);
	else
		w->host += seconds;
}

static void walk_op(struct walk *w, const struct op *op, double share)
{
	const struct op_time *x = &w->t->op[op->mark];

	launch(w, x->launches);
	if (op->code == OP_WAIT) {
		const struct op_time *of = &w->t->op[op->in[0]->def->mark];

		wait_until(w, of->end, of->kind);
	} else if (opinfo[op->code].class == C_HOST) {
		walk_as_planned(w, op, x->comm * share);
	} else if (comm_sends(op->code)) {
		walk_comm(w, op, share);
	} else {
		if (x->compute > 0)
			wait_until(w, w->host, T_HOST);
		double start = w->now;

		spend(w, x->compute * share, x->kind);
		spend(w, x->comm * share, x->kind == T_COPIES ? T_COPIES : T_RING);
		w->compute += x->compute * share;
		note(w, op, start, w->now);
	}
}

/* What was walked since `before` counts for a share of it. */
static void scale(struct walk *w, const struct walk *before, double share)
{
	w->now = before->now + share * (w->now - before->now);
	for (int s = 0; s < NSTREAM; s++)
		w->end[s] = before->end[s] + share * (w->end[s] - before->end[s]);
	w->host = before->host + share * (w->host - before->host);
	w->compute = before->compute + share * (w->compute - before->compute);
	w->under = before->under + share * (w->under - before->under);
	for (int k = 0; k < NTIME; k++)
		w->kind[k] = before->kind[k] + share * (w->kind[k] - before->kind[k]);
}

static double share_early(const struct walk *w, dimid first)
{
	return w->here.early == AS_CUT ? first_share(w->t->m, first, w->here.stage, w->here.chunk) : w->here.early == ALL_EARLY;
}

/* A loop that only some of the iterations around it run: its share of one. */
static void walk_first(struct walk *w, const struct op *loop)
{
	struct walk before = *w;

	if (w->here.note && !in_first(w->t->m, loop->at.dim, w->index))
		return;
	walk_loop(w, loop, (struct trips){ 0, 1 });
	if (w->here.note)
		return;
	scale(w, &before, share_early(w, loop->at.dim));
}

static void walk_body(struct walk *w, const struct op *loop)
{
	const double *more = w->t->op[loop->mark].whole;
	double start = w->now, outer = w->hidden, around = w->exchanged;

	w->hidden = w->exchanged = 0;
	for (const struct op *op = loop->body->first; op; op = op->next)
		if (is_first_part(w->t->m, op))
			walk_first(w, op);
		else if (op->code == OP_REPEAT)
			walk_loop(w, op, (struct trips){ 0, dim_size(w->t->m, op->at.dim) });
		else
			walk_op(w, op, 1);
	launch(w, more[T_HOST]);
	for (int k = 0; k < NTIME; k++)
		if (k != T_HOST && more[k] > 0) {
			bool comm = k == T_ACTIVATIONS || k == T_EXCHANGE;

			if (comm && overlap_of(w, k) == OVERLAP_ON)
				overlap(w, more[k], k);
			else
				spend(w, more[k], k);
			w->compute += k <= T_MEMORY ? more[k] : 0;
		}
	wait_until(w, w->host, T_HOST);
	settle(w, start);
	w->hidden = outer;
	w->exchanged = around;
}

static void walk_loop(struct walk *w, const struct op *loop, struct trips t)
{
	struct walk before = *w;
	bool reverse = HAS(loop, reverse) && loop->at.reverse;
	int64_t trips = t.hi - t.lo, n = trips < WARM || w->here.note ? trips : WARM, outer = w->iter, index = w->index;

	for (const struct op *op = loop->body->first; op; op = op->next)
		w->t->op[op->mark].end = -1;
	for (int64_t i = 0; i < n; i++) {
		before = *w;
		memset(w->ahead, 0, sizeof w->ahead);
		w->index = reverse ? t.hi - 1 - i : t.lo + i;
		w->iter = outer * dim_size(w->t->m, loop->at.dim) + w->index;
		walk_body(w, loop);
	}
	w->index = index;
	w->iter = outer;
	if (trips > n) /* the rest is like the last */
		scale(w, &before, (double)(trips - n) + 1);
	for (int s = 0; s < NSTREAM; s++) /* nothing comes after it */
		w->end[s] -= n > 0 ? w->ahead[s] : 0;
	memset(w->ahead, 0, sizeof w->ahead);
}

static bool is_here(const struct walk *w, const struct op *op)
{
	if (op_section(op) != w->here.section)
		return false;
	if (pipe_axis(w->t->m) < 0)
		return true;
	if (op->phase == FORWARD || op->phase == BACKWARD)
		return w->here.places >> op_place(op) & 1;
	return !HAS(op, where) || (op->at.where & w->here.places);
}

/* All iterations, or those of the chunk at work, or of all chunks of the stage one by one. */
static void walk_here(struct walk *w, const struct op *loop)
{
	const struct module *m = w->t->m;
	dimid d = loop->at.dim;

	if (!is_staged(m, d) || (w->here.chunk < 0 && w->here.stage < 0)) {
		walk_loop(w, loop, (struct trips){ 0, dim_size(m, d) });
		return;
	}
	for (int g = 0; g < pipe_chunks(m); g++)
		if (w->here.chunk < 0 ? pipe_stage(m, g) == w->here.stage : g == w->here.chunk)
			walk_loop(w, loop, pipe_trips(m, d, g));
}

struct busy walk_part(struct timing *t, struct part part)
{
	struct walk w = { .t = t, .here = part };

	for (const struct op *op = part.first ? part.first : t->m->top.first; op != part.end; op = op->next) {
		if (!is_here(&w, op))
			continue;
		if (op->code == OP_REPEAT)
			walk_here(&w, op);
		else
			walk_op(&w, op, share_of(&w, op));
	}
	settle(&w, 0);
	struct busy b = { .compute = w.compute, .exposed = w.now - w.compute, .hidden = w.under };
	memcpy(b.kind, w.kind, sizeof b.kind);
	memcpy(b.behind, w.behind, sizeof b.behind);
	return b;
}
