/* ir/eval_comm.c - what passes between coordinates: reading and joining whole tensors, collectives. */
#include "ir/eval_impl.h"

enum mode { SET, ADD, MAXIMUM };

static void put(double *to, double x, enum mode mode)
{
	if (mode == ADD)
		*to += x;
	else if (mode == SET || x > *to || isnan(x))
		*to = x;
}

static bool near_enough(double a, double b)
{
	return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

static int on_axis(const struct eval *e, int c, int axis)
{
	return c / e->step_of[axis] % e->size[axis];
}

/* c with coordinate 0 on the axes of bits. */
static int origin(const struct eval *e, int c, uint32_t bits)
{
	for (uint32_t i = 0; i < e->m->axes.n; i++)
		if (bits >> i & 1)
			c -= on_axis(e, c, (int)i) * e->step_of[i];
	return c;
}

/* The k-th coordinate, in rank order, of the group of c along the axes of bits. */
int ev_member(const struct eval *e, int c, uint32_t bits, int64_t k)
{
	c = origin(e, c, bits);
	for (int i = (int)e->m->axes.n - 1; i >= 0; i--)
		if (bits >> i & 1) {
			c += (int)(k % e->size[i]) * e->step_of[i];
			k /= e->size[i];
		}
	return c;
}

int64_t ev_members(const struct eval *e, uint32_t bits)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < e->m->axes.n; i++)
		if (bits >> i & 1)
			n *= e->size[i];
	return n;
}

/* -- boxes: the part of `from` at coordinate s that lies in `to` at coordinate c -- */

struct box {
	int nd;
	int64_t n[MAX_DIMS], to_step[MAX_DIMS], from_step[MAX_DIMS], to, from;
};

static int64_t box_of(const struct held *to, int c, const struct held *from, int s, struct box *b)
{
	int64_t count = 1;

	b->nd = to->v->nd;
	b->to = b->from = 0;
	for (int i = 0; i < b->nd; i++) {
		int k = dim_pos(from->v, to->v->d[i]);
		const struct extent *x = ev_ext(to, c) + i, *y = ev_ext(from, s) + k;
		int64_t lo = x->start > y->start ? x->start : y->start;
		int64_t hx = x->start + x->valid, hy = y->start + y->valid, hi = hx < hy ? hx : hy;

		b->n[i] = hi > lo ? hi - lo : 0;
		b->to_step[i] = to->stride[i];
		b->from_step[i] = from->stride[k];
		b->to += (lo - x->start) * to->stride[i];
		b->from += (lo - y->start) * from->stride[k];
		count *= b->n[i];
	}
	return count;
}

static void box_put(const struct box *b, int dim, double *to, const double *from, enum mode mode)
{
	if (dim == b->nd) {
		put(to, *from, mode);
		return;
	}
	for (int64_t i = 0; i < b->n[dim]; i++)
		box_put(b, dim + 1, to + i * b->to_step[dim], from + i * b->from_step[dim], mode);
}

static int64_t valid_count(const struct held *h, int c)
{
	int64_t n = 1;

	for (int i = 0; i < h->v->nd; i++)
		n *= ev_ext(h, c)[i].valid;
	return n;
}

/* -- replicas and whole tensors -- */

static uint32_t used_axes(const struct eval *e, const struct value *v)
{
	const struct sharding *s = ev_sharding(e, v);

	return sharding_axes(s, v->nd) | s->sum | s->max;
}

/* Axes whose coordinates in c are not 0, among bits: "tp=1 dp=3". */
static const char *coord_text(const struct eval *e, int c, uint32_t bits)
{
	struct text t = { .mem = e->mem };

	for (uint32_t i = 0; i < e->m->axes.n; i++)
		if ((bits >> i & 1) && on_axis(e, c, (int)i))
			text_put(&t, "%s%s=%d", t.n ? " " : "", e->m->axes.at[i].name, on_axis(e, c, (int)i));
	return t.n ? t.s : "0";
}

/* The op of the top block that v is made by, or within. */
static const struct op *top_op(const struct value *v)
{
	const struct op *op = v->def ? v->def : v->home->owner;

	while (op && op->home->owner)
		op = op->home->owner;
	return op;
}

/* The first coordinate that holds what c does; -1: c holds nothing, as its stage has no part in v. */
static int origin_of(const struct eval *e, const struct value *v, int c, uint32_t bits)
{
	int axis = pipe_axis(e->m), first = origin(e, c, bits);
	const struct op *op = top_op(v);

	if (axis < 0 || !e->local || !op || !ev_where(e, op))
		return first;
	if (ev_absent(e, op, c))
		return -1;
	if (bits >> axis & 1)
		first += pipe_first_stage(e->m, op->at.where) * e->step_of[axis];
	return first;
}

const char *ev_replicas(struct eval *e, const struct held *h)
{
	const struct sharding *s = ev_sharding(e, h->v);
	uint32_t free = ~used_axes(e, h->v);
	struct nest n;
	struct walk w;

	if (s->sum && s->max)
		return "pending by sum and by max at once";
	nest_init(&n);
	nest_dims(&n, h->v);
	nest_ptr(&n, h);
	for (int c = 0; c < e->ncoord; c++) {
		int first = origin_of(e, h->v, c, free);

		if (first == c || first < 0 || !walk_begin(e, NULL, &n, c, &w))
			continue;
		while (walk_row(&w))
			for (int64_t i = 0; i < walk_n(&w); i++) {
				int64_t at = w.off[0] + i * walk_step(&w, 0);
				double a = ev_at(h, first)[at], b = ev_at(h, c)[at];

				if (!near_enough(a, b))
					return arena_printf(e->mem, "replicas of %%%u differ: %.17g, but %.17g at %s "
							    "(local element %lld)", h->v->id, a, b,
							    coord_text(e, c, free), (long long)at);
			}
	}
	return NULL;
}

/* Steps in a whole tensor of the dims in order, in the order of v's. */
static int64_t whole_steps(const struct eval *e, const struct value *v, const dimid *order, int64_t *step)
{
	int64_t count = 1;

	for (int i = v->nd - 1; i >= 0; i--) {
		step[dim_pos(v, order[i])] = count;
		count *= dim_size(e->m, order[i]);
	}
	return count;
}

/* A nest over h (pointer 0) and the whole tensor (pointer 1). */
static void whole_nest(const struct eval *e, const struct held *h, const dimid *order, struct nest *n,
		       int64_t *count)
{
	int64_t step[MAX_DIMS];

	*count = whole_steps(e, h->v, order, step);
	nest_init(n);
	nest_dims(n, h->v);
	nest_ptr(n, h);
	nest_array(n, h->v->nd, h->v->d, step);
}

const char *ev_join(struct eval *e, const struct held *h, const dimid *order, double *whole)
{
	const struct sharding *s = ev_sharding(e, h->v);
	enum mode mode = s->sum ? ADD : s->max ? MAXIMUM : SET;
	uint32_t free = ~used_axes(e, h->v);
	int64_t count;
	struct nest n;
	struct walk w;

	whole_nest(e, h, order, &n, &count);
	for (int64_t i = 0; i < count; i++)
		whole[i] = mode == ADD ? 0 : mode == SET ? NAN : -INFINITY;
	for (int c = 0; c < e->ncoord; c++) {
		if (origin_of(e, h->v, c, free) != c || !walk_begin(e, NULL, &n, c, &w))
			continue;
		while (walk_row(&w)) {
			double *row = whole + walk_across(e, &w, 1);
			const double *from = ev_at(h, c) + w.off[0];

			for (int64_t i = 0; i < walk_n(&w); i++)
				put(&row[walk_along(e, &w, 1, i)], from[i * walk_step(&w, 0)], mode);
		}
	}
	return ev_replicas(e, h);
}

static struct ebuf *find_ebuf(struct eval *e, const char *name)
{
	for (uint32_t i = 0; i < e->bufs.n; i++)
		if (streq(e->bufs.at[i].b->name, name))
			return &e->bufs.at[i];
	return NULL;
}

bool ev_read(struct eval *e, const struct op *op)
{
	struct held *h = ev_make(e, op->out[0]);
	const struct value *v = h->v;
	struct ebuf *b = find_ebuf(e, op->at.buf);
	int64_t count;
	struct nest n;
	struct walk w;

	if (!b)
		return ev_fail(e, op, "there is no buffer '%s'", op->at.buf ? op->at.buf : "");
	if (!b->set)
		return ev_fail(e, op, "buffer '%s' has no value yet", b->b->name);
	for (int i = 0; i < b->b->nd; i++)
		if (b->b->nd != v->nd || !has_dim(v, b->b->d[i]))
			return ev_fail(e, op, "the dims are not those of buffer '%s'", b->b->name);
	if (v->nd != b->b->nd)
		return ev_fail(e, op, "the dims are not those of buffer '%s'", b->b->name);
	whole_nest(e, h, b->b->d, &n, &count);
	for (int c = 0; c < e->ncoord; c++) {
		if (!walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w)) {
			double *to = ev_at(h, c) + w.off[0];
			const double *row = b->now->x + walk_across(e, &w, 1);

			for (int64_t i = 0; i < walk_n(&w); i++)
				to[i * walk_step(&w, 0)] = row[walk_along(e, &w, 1, i)];
		}
	}
	return true;
}

/* -- collectives -- */

/* Every element of the result comes from the one member that holds it. */
static bool move(struct eval *e, const struct op *op, const struct held *in, const struct held *out,
		 uint32_t bits)
{
	for (int c = 0; c < e->ncoord; c++) {
		int64_t got = 0;

		for (int64_t k = 0; k < ev_members(e, bits); k++) {
			int s = ev_member(e, c, bits, k);
			struct box b;
			int64_t n = box_of(out, c, in, s, &b);

			got += n;
			if (n)
				box_put(&b, 0, ev_at(out, c) + b.to, ev_at(in, s) + b.from, SET);
		}
		if (got != valid_count(out, c))
			return ev_fail(e, op, "the group of coordinate %d holds %lld elements of its result, "
				       "which has %lld", c, (long long)got, (long long)valid_count(out, c));
	}
	return true;
}

/* Every element of the result comes from all members, in rank order. */
static bool combine(struct eval *e, const struct op *op, const struct held *in, const struct held *out,
		    uint32_t bits, bool max)
{
	if (!ev_fill(e, op, out, max ? -INFINITY : 0))
		return false;
	for (int c = 0; c < e->ncoord; c++)
		for (int64_t k = 0; k < ev_members(e, bits); k++) {
			int s = ev_member(e, c, bits, k);
			struct box b;
			int64_t n = box_of(out, c, in, s, &b);

			if (ev_absent(e, op, s))
				continue;
			if (n != valid_count(out, c))
				return ev_fail(e, op, "coordinate %d holds %lld elements of the result at %d, "
					       "which has %lld", s, (long long)n, c, (long long)valid_count(out, c));
			if (n)
				box_put(&b, 0, ev_at(out, c) + b.to, ev_at(in, s) + b.from, max ? MAXIMUM : ADD);
		}
	return true;
}

/* Of stages: does coordinate c give what it holds? Of parts all do, else the first that holds the value. */
static bool from_here(const struct eval *e, const struct op *op, int c)
{
	int stage = ev_stage(e, c);

	return op->at.form ? pipe_places(e->m, stage) & op->at.from : stage == pipe_first_stage(e->m, op->at.from);
}

struct held *ev_wider(struct eval *e, const struct held *h, dimid d)
{
	struct value *v = NEW(e->scratch, struct value);
	struct held *w = NEW(e->scratch, struct held);

	*v = *h->v;
	v->sh.on[dim_pos(v, d)] = (struct axes){ 0 };
	w->v = v;
	ev_room(e, w);
	return w;
}

bool ev_gather(struct eval *e, const struct op *op, const struct held *h, const struct held *whole, uint32_t bits)
{
	return move(e, op, h, whole, bits);
}

bool ev_scatter(struct eval *e, const struct op *op, const struct held *whole, const struct held *out, uint32_t bits)
{
	return combine(e, op, whole, out, bits, false);
}

static bool to_partial(struct eval *e, const struct op *op, const struct held *in, const struct held *out,
		       uint32_t bits, bool max)
{
	if (!ev_fill(e, op, out, max ? -INFINITY : 0))
		return false;
	for (int c = 0; c < e->ncoord; c++) {
		bool here = HAS(op, from) ? from_here(e, op, c) && origin(e, c, bits & ~(1u << pipe_axis(e->m))) == c :
					    origin(e, c, bits) == c;
		struct box b;

		if (box_of(out, c, in, c, &b) != valid_count(out, c))
			return ev_fail(e, op, "the shapes differ");
		if (here && valid_count(out, c))
			box_put(&b, 0, ev_at(out, c) + b.to, ev_at(in, c) + b.from, SET);
	}
	return true;
}

static bool pop_axes(struct axes *l, const struct axes *a)
{
	if (l->n < a->n || memcmp(l->a + l->n - a->n, a->a, a->n) != 0)
		return false;
	l->n -= a->n;
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

/* What a collective makes of the lists of axes. */
static bool lists_fit(struct eval *e, const struct op *op, uint32_t n)
{
	const struct value *in = op->in[n], *out = op->out[n];
	enum opcode code = op->code;
	bool leaves = code == OP_ALL_GATHER || code == OP_ALL_TO_ALL, fits = true;
	bool comes = code == OP_REDUCE_SCATTER || code == OP_SHARD || code == OP_ALL_TO_ALL;
	dimid from = comm_dim(op, n), to = code == OP_ALL_TO_ALL ? op->at.to : from;

	if ((leaves && !has_dim(in, from)) || (comes && !has_dim(in, to)))
		return ev_fail(e, op, "the operand lacks a dim of the collective");
	for (int i = 0; i < in->nd; i++) {
		struct axes l = in->sh.on[i];

		if (leaves && in->d[i] == from)
			fits &= pop_axes(&l, &op->at.axes);
		if (comes && in->d[i] == to)
			fits &= push_axes(&l, &op->at.axes);
		fits &= axes_equal(&l, &out->sh.on[dim_pos(out, in->d[i])]);
	}
	return fits || ev_fail(e, op, "the sharding of the result is not what it makes of its operand's");
}

/* What a collective makes of the pending axes. */
static bool pending_fits(struct eval *e, const struct op *op, uint32_t n, uint32_t bits)
{
	const struct sharding *a = ev_sharding(e, op->in[n]);
	const struct sharding *b = ev_sharding(e, op->out[n]);
	uint32_t owed = op->at.max ? a->max : a->sum, left = op->at.max ? b->max : b->sum;
	uint32_t other = op->at.max ? a->sum : a->max, still = op->at.max ? b->sum : b->max;

	switch (op->code) {
	case OP_ALL_REDUCE:
	case OP_REDUCE_SCATTER:
		if ((owed & bits) != bits)
			return ev_fail(e, op, "nothing is owed over these axes");
		owed &= ~bits;
		break;
	case OP_TO_PARTIAL:
		if (HAS(op, form) && op->at.form ? (owed & bits) != bits : used_axes(e, op->in[n]) & bits)
			return ev_fail(e, op, "the axis is in use");
		owed |= bits;
		break;
	default:
		break;
	}
	return (owed == left && other == still) || ev_fail(e, op, "the pending axes of the result are wrong");
}

static bool comm_of(struct eval *e, const struct op *op, uint32_t n)
{
	const struct held *in = ev_in(e, op, op->in[n]), *out = ev_make(e, op->out[n]);
	uint32_t bits = axes_bits(&op->at.axes);
	const char *wrong;

	if (!in)
		return false;
	if (!same_dims(in->v, out->v))
		return ev_fail(e, op, "the dims of operand and result differ");
	if (!e->local && op->code == OP_TO_PARTIAL)
		return ev_copy(e, op, ev_make(e, op->out[0]), 0, in, 0, NODIM);
	if (!e->local)
		return ev_fail(e, op, "a collective in a module that is not partitioned");
	if (!lists_fit(e, op, n) || !pending_fits(e, op, n, bits))
		return false;
	wrong = ev_replicas(e, in);
	if (wrong)
		return ev_fail(e, op, "%s", wrong);
	switch (op->code) {
	case OP_SHARD:
		return move(e, op, in, out, 0);
	case OP_TO_PARTIAL:
		return to_partial(e, op, in, out, bits, op->at.max);
	case OP_ALL_GATHER:
	case OP_ALL_TO_ALL:
		return move(e, op, in, out, bits);
	default:
		return combine(e, op, in, out, bits, op->at.max);
	}
}

bool ev_wait(struct eval *e, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct held *in = ev_in(e, op, op->in[i]), *out = ev_make(e, op->out[i]);

		if (!in || !move(e, op, in, out, 0))
			return false;
	}
	return true;
}

bool ev_comm(struct eval *e, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (!comm_of(e, op, i))
			return false;
	return true;
}

bool ev_sum_time(struct eval *e, const struct op *op, const struct held *h)
{
	int axis = time_axis(e->m);

	if (axis < 0 || !e->local)
		return true;
	if (sharding_axes(ev_sharding(e, h->v), h->v->nd) >> axis & 1)
		return ev_fail(e, op, "the value is split over the microbatches");
	for (int c = 0; c < e->ncoord; c++) {
		double *to = ev_at(h, c);

		if (on_axis(e, c, axis))
			continue;
		for (int t = 1; t < e->size[axis]; t++)
			for (int64_t i = 0; i < h->count; i++)
				to[i] += ev_at(h, c + t * e->step_of[axis])[i];
		for (int t = 1; t < e->size[axis]; t++)
			memcpy(ev_at(h, c + t * e->step_of[axis]), to, (size_t)h->count * sizeof *to);
	}
	return true;
}
