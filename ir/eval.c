/* ir/eval.c - the reference evaluator: buffers, the step, blocks and regions. */
#include <stdlib.h>

#include "ir/eval_impl.h"
#include "ir/rng.h"

struct tensor *tensor_new(struct arena *mem, int nd, const int64_t *size)
{
	struct tensor *t = NEW(mem, struct tensor);

	t->nd = nd;
	t->count = 1;
	for (int i = 0; i < nd; i++) {
		t->size[i] = size[i];
		t->count *= size[i];
	}
	t->x = NEWN(mem, double, t->count ? t->count : 1);
	return t;
}

struct tensor *tensor_like(struct arena *mem, const struct module *m, int nd, const dimid *d)
{
	int64_t size[MAX_DIMS];

	for (int i = 0; i < nd; i++)
		size[i] = dim_size(m, d[i]);
	return tensor_new(mem, nd, size);
}

uint64_t stream_key(uint64_t seed, const char *path)
{
	return seed ^ fnv1a(FNV_START, path, strlen(path));
}

double init_value(const struct buffer *b, uint64_t seed, uint64_t index)
{
	/* A master copy starts as its param does. */
	uint64_t key = stream_key(seed, b->owner ? b->owner : b->name);

	switch (b->init) { /* rounded to float32, the widest a buffer is */
	case INIT_ONES:
		return 1;
	case INIT_CONSTANT:
		return (float)b->init_arg;
	case INIT_NORMAL:
		return (float)(b->init_arg * rng_normal(key, index, 0, 0));
	case INIT_UNIFORM:
		return (float)(b->init_arg * (2 * rng_uniform(key, index, 0, 0) - 1));
	default:
		return 0;
	}
}

/* -- buffers -- */

static void add_bufs(struct eval *e)
{
	for (uint32_t i = e->bufs.n; i < e->m->bufs.n; i++) {
		const struct buffer *b = e->m->bufs.at[i];
		struct ebuf new = { .b = b };

		new.now = tensor_like(e->mem, e->m, b->nd, b->d);
		new.next = tensor_like(e->mem, e->m, b->nd, b->d);
		PUSH(e->mem, &e->bufs, new);
	}
}

static struct ebuf *find_ebuf(struct eval *e, const char *name)
{
	add_bufs(e);
	for (uint32_t i = 0; i < e->bufs.n; i++)
		if (streq(e->bufs.at[i].b->name, name))
			return &e->bufs.at[i];
	return NULL;
}

struct eval *eval_new(struct arena *mem, const struct module *m, uint64_t seed)
{
	struct eval *e = NEW(mem, struct eval);

	e->mem = mem;
	e->m = m;
	e->seed = seed;
	add_bufs(e);
	return e;
}

void eval_init(struct eval *e)
{
	add_bufs(e);
	for (uint32_t i = 0; i < e->bufs.n; i++) {
		struct ebuf *b = &e->bufs.at[i];

		if (b->b->role == B_INPUT)
			continue;
		b->set = true;
		for (int64_t k = 0; k < b->now->count; k++)
			b->now->x[k] = init_value(b->b, e->seed, (uint64_t)k);
	}
}

void eval_set(struct eval *e, const char *buffer, const struct tensor *t)
{
	struct ebuf *b = find_ebuf(e, buffer);

	if (!b)
		die("eval_set: there is no buffer '%s'", buffer);
	if (t->count != b->now->count)
		die("eval_set: buffer '%s' has %lld elements, not %lld", buffer, (long long)b->now->count,
		    (long long)t->count);
	memcpy(b->now->x, t->x, (size_t)t->count * sizeof *t->x);
	b->set = true;
}

struct tensor *eval_get(struct eval *e, const char *buffer)
{
	struct ebuf *b = find_ebuf(e, buffer);
	struct tensor *t;

	if (!b)
		return NULL;
	t = tensor_new(e->mem, b->now->nd, b->now->size); /* a copy: the caller may keep it */
	memcpy(t->x, b->now->x, (size_t)t->count * sizeof *t->x);
	return t;
}

int eval_reports(const struct eval *e)
{
	return (int)e->reports.n;
}

const char *eval_report_key(const struct eval *e, int i)
{
	return e->reports.at[i].key;
}

double eval_report(const struct eval *e, const char *key, bool *found)
{
	for (uint32_t i = 0; i < e->reports.n; i++)
		if (streq(e->reports.at[i].key, key)) {
			if (found)
				*found = true;
			return e->reports.at[i].value;
		}
	if (found)
		*found = false;
	return NAN;
}

/* -- write and report -- */

/* A value that leaves the grid: it must be whole, and the same wherever it is held. */
static bool leave(struct eval *e, const struct op *op, const struct held *h, const dimid *order, double *to)
{
	const struct sharding *s = ev_sharding(e, h->v);
	const char *wrong;

	if (e->frame)
		return ev_fail(e, op, "inside a repeat");
	if (s->sum || s->max)
		return ev_fail(e, op, "%%%u is still pending", h->v->id);
	wrong = ev_join(e, h, order, to);
	return !wrong || ev_fail(e, op, "%s", wrong);
}

static bool write_buffer(struct eval *e, const struct op *op)
{
	const struct held *h = ev_in(e, op, op->in[0]);
	struct ebuf *b = find_ebuf(e, op->at.buf);

	if (!h)
		return false;
	if (!b)
		return ev_fail(e, op, "there is no buffer '%s'", op->at.buf ? op->at.buf : "");
	if (b->written)
		return ev_fail(e, op, "buffer '%s' is written twice", b->b->name);
	if (h->v->nd != b->b->nd)
		return ev_fail(e, op, "the dims are not those of buffer '%s'", b->b->name);
	for (int i = 0; i < b->b->nd; i++)
		if (!has_dim(h->v, b->b->d[i]))
			return ev_fail(e, op, "the dims are not those of buffer '%s'", b->b->name);
	b->written = true;
	return leave(e, op, h, b->b->d, b->next->x);
}

static bool report(struct eval *e, const struct op *op)
{
	const struct held *h = ev_in(e, op, op->in[0]);
	struct ereport r = { op->at.key, 0 };

	if (!h)
		return false;
	if (h->v->nd)
		return ev_fail(e, op, "the value is no scalar");
	if (!leave(e, op, h, h->v->d, &r.value))
		return false;
	for (uint32_t i = 0; i < e->reports.n; i++)
		if (streq(e->reports.at[i].key, r.key)) {
			e->reports.at[i].value = r.value;
			return true;
		}
	PUSH(e->mem, &e->reports, r);
	return true;
}

/* -- blocks: who reads what last -- */

static bool enter(struct eval *e, const struct block *block, const struct value *v, uint32_t arg)
{
	struct held *h = v && v->id < e->ntab ? &e->tab[v->id] : NULL;

	if (!h || h->v)
		return ev_fail(e, v ? v->def : NULL, "value %%%u is defined twice or has no number", v ? v->id : 0);
	h->v = v;
	h->home = block;
	h->arg = arg;
	h->kept = !v->def;
	return true;
}

static bool enter_block(struct eval *e, const struct block *block);

static bool enter_op(struct eval *e, const struct block *block, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		struct held *h = op->in[i]->id < e->ntab ? &e->tab[op->in[i]->id] : NULL;

		if (!h || h->v != op->in[i] || h->home != block)
			return ev_fail(e, op, "operand %%%u is not a value of this block", op->in[i]->id);
		h->last = op;
	}
	for (uint32_t i = 0; i < op->nout; i++)
		if (!enter(e, block, op->out[i], 0))
			return false;
	return !op->body || enter_block(e, op->body);
}

static bool enter_block(struct eval *e, const struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		if (!enter(e, block, block->args.at[i], i))
			return false;
	for (const struct op *op = block->first; op; op = op->next)
		if (!enter_op(e, block, op))
			return false;
	for (uint32_t i = 0; i < block->yields.n; i++) {
		const struct value *v = block->yields.at[i];
		struct held *h = v->id < e->ntab ? &e->tab[v->id] : NULL;

		if (!h || h->v != v || h->home != block)
			return ev_fail(e, block->owner, "yield %%%u is not a value of the block", v->id);
		h->kept = true;
	}
	return true;
}

/* -- rounding -- */

void eval_round(struct eval *e, uint64_t draw)
{
	e->draw = draw;
	e->rounded = 0;
}

/* One of the neighbours of x among floats of so many bits. What is one of them stays. */
static double round_at_random(struct eval *e, double x, int bits)
{
	enum { LEAST = -126 };
	int top = x == 0 ? LEAST : ilogb(x);
	double unit = ldexp(1, (top < LEAST ? LEAST : top) - (bits - 1)), below = floor(x / unit);
	double u = (double)(mix64(e->draw ^ mix64(++e->rounded)) >> 11) * 0x1p-53;

	return unit * (below + (u < x / unit - below));
}

static void round_result(struct eval *e, const struct op *op)
{
	for (uint32_t k = 0; k < op->nout; k++) {
		const struct held *h = &e->tab[op->out[k]->id];
		int bits = h->v->dt == BF16 ? 8 : 24;

		if (!h->x || !is_float(h->v->dt))
			continue;
		for (int64_t i = 0; i < h->count * e->ncoord; i++)
			if (isfinite(h->x[i]))
				h->x[i] = round_at_random(e, h->x[i], bits);
	}
}

static void drop_read(struct eval *e, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		struct held *h = &e->tab[op->in[i]->id];

		if (h->last == op && !h->kept)
			ev_drop(h);
	}
	for (uint32_t i = 0; i < op->nout; i++) {
		struct held *h = &e->tab[op->out[i]->id];

		if (!h->last && !h->kept)
			ev_drop(h);
	}
}

static void drop_block(struct eval *e, const struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		ev_drop(&e->tab[block->args.at[i]->id]);
	for (uint32_t i = 0; i < block->yields.n; i++)
		ev_drop(&e->tab[block->yields.at[i]->id]);
}

static int64_t frames_iter(const struct eval *e, const struct frame *f)
{
	return f ? frames_iter(e, f->up) * dim_size(e->m, f->dim) + f->i : 0;
}

static bool run_op(struct eval *e, const struct op *op);

static void show(struct eval *e, const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++) {
		const struct value *v = op->out[i];
		struct tensor *t = e->watch->named && !v->name ? NULL : tensor_like(e->scratch, e->m, v->nd, v->d);
		const char *wrong = t ? ev_join(e, &e->tab[v->id], v->d, t->x) : ev_replicas(e, &e->tab[v->id]);

		e->watch->see(e->watch->me, v, frames_iter(e, e->frame), t, wrong);
	}
}

static bool run_block(struct eval *e, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next) {
		if (!run_op(e, op))
			return false;
		if (e->draw)
			round_result(e, op);
		if (block == &e->m->top)
			ev_forget_absent(e, op);
		if (e->watch)
			show(e, op);
		drop_read(e, op);
	}
	return true;
}

/* -- regions -- */

/* Copies a value across the edge of a region: same dims and same debts, but for those in but. */
static bool cross(struct eval *e, const struct op *op, const struct value *to, const struct value *from,
		  uint32_t but)
{
	const struct held *src = ev_in(e, op, from);
	const struct sharding *a = ev_sharding(e, to), *b = ev_sharding(e, from);

	if (!src)
		return false;
	if (!same_dims(to, from))
		return ev_fail(e, op, "%%%u and %%%u have other dims", to->id, from->id);
	if ((a->sum ^ b->sum) & ~but || a->max != b->max)
		return ev_fail(e, op, "%%%u and %%%u have other pending axes", to->id, from->id);
	return ev_copy(e, op, ev_make(e, to), 0, src, 0, NODIM);
}

static bool kernel(struct eval *e, const struct op *op)
{
	const struct block *body = op->body;

	if (!body || body->args.n != op->nin || body->yields.n != op->nout)
		return ev_fail(e, op, "the body does not fit");
	for (uint32_t i = 0; i < op->nin; i++)
		if (!cross(e, op, body->args.at[i], op->in[i], 0))
			return false;
	if (!run_block(e, body))
		return false;
	for (uint32_t i = 0; i < op->nout; i++)
		if (!cross(e, op, op->out[i], body->yields.at[i], 0))
			return false;
	drop_block(e, body);
	return true;
}

/* All stages hold what this one does. */
static void tell_all(struct eval *e, struct held *h, int stage)
{
	for (int c = 0; c < e->ncoord; c++) {
		int from = c + (stage - ev_stage(e, c)) * e->step_of[pipe_axis(e->m)];

		if (from != c)
			memcpy(ev_at(h, c), ev_at(h, from), (size_t)h->count * sizeof *h->x);
	}
}

/* Iteration i is on one stage; in the loop all stages have its slice. */
static bool slice_stage(struct eval *e, const struct op *op, dimid d, struct held *s, struct held *o, int64_t i,
			int64_t stride, bool into_stack)
{
	int g = pipe_chunk_of(e->m, op->at.dim, i), stage = pipe_stage(e->m, g);
	int64_t row = pipe_row(e->m, d, g) + (d == op->at.dim ? i - pipe_trips(e->m, d, g).lo : kept_row(e->m, d, i));
	bool ok;

	e->only = stage;
	ok = into_stack ? ev_copy(e, op, s, row * stride, o, 0, d) : ev_copy(e, op, o, 0, s, row * stride, d);
	e->only = -1;
	if (ok && !into_stack)
		tell_all(e, o, stage);
	return ok;
}

/* One iteration of a stacked tensor against a value without the repeat's dim. */
static bool slice(struct eval *e, const struct op *op, const struct value *stacked, const struct value *one,
		  int64_t i, bool into_stack)
{
	struct held *s = into_stack ? ev_make(e, stacked) : ev_in(e, op, stacked);
	struct held *o = into_stack ? ev_in(e, op, one) : ev_make(e, one);
	dimid d = stack_dim(e->m, stacked, op->at.dim);
	int pos = dim_pos(stacked, d);
	uint32_t time = time_axis(e->m) >= 0 ? 1u << time_axis(e->m) : 0;
	const struct sharding *a = ev_sharding(e, stacked), *b = ev_sharding(e, one);

	if (!s || !o)
		return false;
	if (pos < 0 || stacked->nd != one->nd + 1 || has_dim(one, op->at.dim))
		return ev_fail(e, op, "%%%u is no iteration of %%%u", one->id, stacked->id);
	if (a->on[pos].n && !is_staged(e->m, op->at.dim))
		return ev_fail(e, op, "%%%u is split along the repeat", stacked->id);
	if ((a->sum ^ b->sum) & ~(into_stack ? time : 0) || a->max != b->max)
		return ev_fail(e, op, "%%%u and %%%u have other pending axes", one->id, stacked->id);
	if (a->on[pos].n)
		return slice_stage(e, op, d, s, o, i, s->stride[pos], into_stack);
	int64_t row = d == op->at.dim ? i : kept_row(e->m, d, i);

	if (into_stack)
		return ev_copy(e, op, s, row * s->stride[pos], o, 0, d);
	return ev_copy(e, op, o, 0, s, row * s->stride[pos], d);
}

/* Does each stage carry a value of its own, that the iterations of others leave alone? */
static bool is_local(const struct eval *e, const struct op *op, int64_t k)
{
	return e->local && repeat_local(op, (uint32_t)k) && pipe_axis(e->m) >= 0;
}

/* Carried values pass through the results: arguments and yields may be one and the same. */
static bool iteration(struct eval *e, const struct op *op, int64_t i)
{
	const struct block *body = op->body;
	int64_t nc = op->at.ncarry, first = nc + op->at.nwith;

	for (int64_t k = 0; k < nc; k++) {
		bool local = is_local(e, op, k);

		if (!cross(e, op, body->args.at[k], op->out[k], local ? 1u << pipe_axis(e->m) : 0))
			return false;
		if (local) /* as it is where the iteration runs */
			tell_all(e, ev_make(e, body->args.at[k]), pipe_stage(e->m, pipe_chunk_of(e->m, op->at.dim, i)));
	}
	for (uint32_t k = (uint32_t)first; k < op->nin; k++)
		if (!slice(e, op, op->in[k], body->args.at[k], i, false))
			return false;
	if (!run_block(e, body))
		return false;
	for (int64_t k = 0; k < nc; k++) {
		bool local = is_local(e, op, k), ok;

		e->only = local ? pipe_stage(e->m, pipe_chunk_of(e->m, op->at.dim, i)) : -1;
		ok = cross(e, op, op->out[k], body->yields.at[k], local ? 1u << pipe_axis(e->m) : 0);
		e->only = -1;
		if (!ok)
			return false;
	}
	for (uint32_t k = (uint32_t)nc; k < op->nout; k++)
		if (!slice(e, op, op->out[k], body->yields.at[k], i, true))
			return false;
	for (uint32_t k = 0; k < body->yields.n; k++)
		if (body->yields.at[k]->def)
			ev_drop(&e->tab[body->yields.at[k]->id]);
	return true;
}

static bool repeat(struct eval *e, const struct op *op)
{
	const struct block *body = op->body;
	int64_t nc = op->at.ncarry, nw = op->at.nwith, trips = dim_size(e->m, op->at.dim);
	struct frame f = { e->frame, op->at.dim, 0 };

	if (is_first_part(e->m, op) && e->frame)
		trips = in_first(e->m, op->at.dim, e->frame->i);

	if (!body || nc < 0 || nw < 0 || nc + nw > op->nin || nc > op->nout || body->args.n != op->nin ||
	    body->yields.n != op->nout)
		return ev_fail(e, op, "the body does not fit");
	for (int64_t k = 0; k < nc; k++)
		if (!cross(e, op, op->out[k], op->in[k], is_local(e, op, k) ? 1u << pipe_axis(e->m) : 0))
			return false;
	for (int64_t k = nc; k < nc + nw; k++)
		if (!cross(e, op, body->args.at[k], op->in[k], 0))
			return false;
	for (uint32_t k = (uint32_t)nc; k < op->nout; k++)
		ev_make(e, op->out[k]);
	e->frame = &f;
	for (int64_t t = 0; t < trips; t++) {
		f.i = op->at.reverse ? trips - 1 - t : t;
		if (!iteration(e, op, f.i))
			return false;
	}
	e->frame = f.up;
	drop_block(e, body);
	for (uint32_t k = (uint32_t)nc; k < op->nout; k++)
		if (repeat_adds(op, k) && !ev_sum_time(e, op, &e->tab[op->out[k]->id]))
			return false;
	return true;
}

/* -- the step -- */

static bool accumulate(struct eval *e, const struct op *op)
{
	int axis = time_axis(e->m);

	return cross(e, op, op->out[0], op->in[0], axis < 0 ? 0 : 1u << axis) &&
	       ev_sum_time(e, op, &e->tab[op->out[0]->id]);
}

static bool run_op(struct eval *e, const struct op *op)
{
	switch (op->code) {
	case OP_REPEAT:
		return repeat(e, op);
	case OP_KERNEL:
		return kernel(e, op);
	case OP_ATTENTION:
	case OP_ATTENTION_GRAD:
		return ev_attention(e, op);
	case OP_ARGMAX:
	case OP_TOPK:
	case OP_RANK:
		return ev_pick(e, op);
	case OP_WAIT:
	case OP_FROM_HOST:
	case OP_TO_HOST:
		return ev_wait(e, op);
	case OP_ACCUMULATE:
		return accumulate(e, op);
	case OP_WRITE:
		return write_buffer(e, op);
	case OP_REPORT:
		return report(e, op);
	case OP_MINIMIZE:
	case OP_TRAIN:
		return true; /* not yet expanded: nothing happens */
	default:
		return opinfo[op->code].class == C_COMM ? ev_comm(e, op) : ev_compute(e, op);
	}
}

/* In evaluation only the probes change. */
static void commit(struct eval *e, bool done)
{
	for (uint32_t i = 0; i < e->bufs.n; i++) {
		struct ebuf *b = &e->bufs.at[i];

		if (done && b->written && (e->training || b->b->role == B_PROBE)) {
			struct tensor *t = b->now;

			b->now = b->next;
			b->next = t;
			b->set = true;
		}
		b->written = false;
	}
}

bool eval_step(struct eval *e, int64_t step, bool training, const struct eval_watch *watch, const char **why)
{
	bool ok;

	add_bufs(e);
	e->scratch = arena_new();
	e->watch = watch;
	e->step = step;
	e->training = training;
	e->frame = NULL;
	e->only = -1;
	e->why = NULL;
	e->ntab = e->m->next_id;
	e->tab = NEWN(e->scratch, struct held, e->ntab ? e->ntab : 1);
	ev_grid(e);
	ok = enter_block(e, &e->m->top) && run_block(e, &e->m->top);
	commit(e, ok);
	for (uint32_t i = 0; i < e->ntab; i++)
		ev_drop(&e->tab[i]);
	arena_free(e->scratch);
	e->scratch = NULL;
	e->tab = NULL;
	if (why)
		*why = e->why;
	return ok;
}
