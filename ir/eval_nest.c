/* ir/eval_nest.c - the grid of coordinates, local tensors, and loop nests over named dims. */
#include <stdlib.h>

#include "ir/eval_impl.h"

static const struct sharding whole;

bool ev_fail(struct eval *e, const struct op *op, const char *fmt, ...)
{
	struct text t = { .mem = e->mem };
	char what[512];
	va_list ap;

	if (e->why)
		return false;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	if (op) {
		text_put(&t, "%s", opinfo[op->code].name);
		if (op->nout && op->out[0])
			text_put(&t, " %%%u", op->out[0]->id);
		if (op->nout && op->out[0] && op->out[0]->name)
			text_put(&t, " '%s'", op->out[0]->name);
		if (HAS(op, axes)) {
			text_put(&t, " over ");
			for (int i = 0; i < op->at.axes.n; i++) {
				int axis = op->at.axes.a[i];

				text_put(&t, "%s%s", i ? "." : "",
					 axis < (int)e->m->axes.n ? e->m->axes.at[axis].name : "?");
			}
		}
		text_put(&t, " (%s): ", span_text(e->mem, e->m->src, op->span));
	}
	text_put(&t, "%s", what);
	e->why = t.s;
	return false;
}

/* -- the grid -- */

void ev_grid(struct eval *e)
{
	const struct module *m = e->m;

	e->local = m->form >= PARTITIONED;
	e->ncoord = 1;
	if (m->axes.n > MAX_AXES)
		die("%u axes", m->axes.n);
	for (int i = (int)m->axes.n - 1; i >= 0; i--) {
		e->size[i] = e->local ? m->axes.at[i].size : 1;
		e->step_of[i] = e->ncoord;
		e->ncoord *= e->size[i];
	}
}

void ev_coords(const struct eval *e, int c, int *coord)
{
	for (uint32_t i = 0; i < e->m->axes.n; i++)
		coord[i] = c / e->step_of[i] % e->size[i];
}

/* -- stages -- */

int ev_stage(const struct eval *e, int c)
{
	int axis = pipe_axis(e->m);

	return axis < 0 || !e->local ? 0 : c / e->step_of[axis] % e->size[axis];
}

/* Does op run on some stages only, for good? In forward and backward what it makes travels on; here all
 * stages make it again. */
bool ev_where(const struct eval *e, const struct op *op)
{
	return e->local && pipe_axis(e->m) >= 0 && HAS(op, where) &&
	       (op->phase == EPILOGUE || op->code == OP_ACCUMULATE);
}

bool ev_absent(const struct eval *e, const struct op *op, int c)
{
	return ev_where(e, op) && !(pipe_places(e->m, ev_stage(e, c)) & op->at.where);
}

/* What a stage does not run it does not have. */
void ev_forget_absent(struct eval *e, const struct op *op)
{
	for (int c = 0; c < e->ncoord; c++)
		for (uint32_t i = 0; i < op->nout && ev_absent(e, op, c); i++) {
			struct held *h = &e->tab[op->out[i]->id];

			for (int64_t k = 0; h->x && k < h->count; k++)
				h->x[c * h->count + k] = NAN;
		}
}

/* -- local tensors -- */

const struct sharding *ev_sharding(const struct eval *e, const struct value *v)
{
	return e->local ? &v->sh : &whole;
}

static void lay_out(struct eval *e, struct held *h)
{
	const struct value *v = h->v;
	const struct sharding *s = ev_sharding(e, v);
	int coord[MAX_AXES];

	h->ext = NEWN(e->scratch, struct extent, (size_t)e->ncoord * (v->nd ? v->nd : 1));
	for (int c = 0; c < e->ncoord; c++) {
		ev_coords(e, c, coord);
		for (int i = 0; i < v->nd; i++)
			h->ext[c * v->nd + i] = extent_of(e->m, v->d[i], &s->on[i], coord);
	}
	h->count = 1;
	for (int i = v->nd - 1; i >= 0; i--) {
		h->stride[i] = h->count;
		h->count *= h->ext[i].cap;
	}
}

void ev_room(struct eval *e, struct held *h)
{
	if (!h->ext)
		lay_out(e, h);
	if (!h->x) {
		size_t n = (size_t)h->count * (size_t)e->ncoord;

		h->x = malloc((n ? n : 1) * sizeof *h->x);
		if (!h->x)
			die("out of memory");
		for (size_t i = 0; i < n; i++)
			h->x[i] = NAN;
	}
}

struct held *ev_make(struct eval *e, const struct value *v)
{
	struct held *h = &e->tab[v->id];

	ev_room(e, h);
	return h;
}

void ev_drop(struct held *h)
{
	free(h->x);
	h->x = NULL;
}

struct held *ev_in(struct eval *e, const struct op *op, const struct value *v)
{
	struct held *h = v->id < e->ntab ? &e->tab[v->id] : NULL;

	if (!h || h->v != v || !h->x) {
		ev_fail(e, op, "operand %%%u is not at hand: made later, or in another block", v->id);
		return NULL;
	}
	return h;
}

/* -- nests -- */

void nest_init(struct nest *n)
{
	n->nd = n->np = 0;
	n->stray = NODIM;
}

static int nest_pos(const struct nest *n, dimid d)
{
	for (int i = 0; i < n->nd; i++)
		if (n->d[i] == d)
			return i;
	return -1;
}

void nest_dims(struct nest *n, const struct value *v)
{
	for (int i = 0; i < v->nd; i++)
		if (nest_pos(n, v->d[i]) < 0) {
			if (n->nd == NEST_DIMS)
				die("a loop nest of more than %d dims", NEST_DIMS);
			n->d[n->nd++] = v->d[i];
		}
}

int nest_array(struct nest *n, int nd, const dimid *d, const int64_t *step)
{
	int p = n->np++;

	if (p == NEST_PTRS)
		die("a loop nest over more than %d tensors", NEST_PTRS);
	n->p[p].h = NULL;
	memset(n->p[p].step, 0, sizeof n->p[p].step);
	for (int i = 0; i < nd; i++) {
		int at = d[i] == NODIM ? -1 : nest_pos(n, d[i]);

		if (at >= 0)
			n->p[p].step[at] = step[i];
		else if (d[i] != NODIM)
			n->stray = d[i];
	}
	return p;
}

int nest_ptr_as(struct nest *n, const struct held *h, const dimid *as)
{
	int p = nest_array(n, h->v->nd, as, h->stride);

	n->p[p].h = h;
	memcpy(n->p[p].as, as, h->v->nd * sizeof *as);
	return p;
}

int nest_ptr(struct nest *n, const struct held *h)
{
	return nest_ptr_as(n, h, h->v->d);
}

/* Where a dim of the nest starts and ends here: all tensors that have it must agree. */
static bool walk_extents(struct eval *e, const struct op *op, struct walk *w, int c)
{
	const struct nest *n = w->nest;
	bool known[NEST_DIMS] = { false };

	for (int p = 0; p < n->np; p++) {
		const struct held *h = n->p[p].h;

		for (int i = 0; h && i < h->v->nd; i++) {
			const struct extent *x = ev_ext(h, c) + i;
			int at = n->p[p].as[i] == NODIM ? -1 : nest_pos(n, n->p[p].as[i]);

			if (at < 0)
				continue;
			/* Where nothing is, it does not matter where it would start. */
			if (known[at] && (w->n[at] != x->valid || (x->valid && w->start[at] != x->start)))
				return ev_fail(e, op, "%%%u holds %lld elements of '%s' from %lld on, another "
					       "operand or the result %lld from %lld on (coordinate %d)", h->v->id,
					       (long long)x->valid, e->m->dims.at[n->d[at]].name, (long long)x->start,
					       (long long)w->n[at], (long long)w->start[at], c);
			known[at] = true;
			w->n[at] = x->valid;
			w->start[at] = x->start;
		}
	}
	for (int i = 0; i < n->nd; i++)
		if (!known[i])
			return ev_fail(e, op, "nothing says how long '%s' is", e->m->dims.at[n->d[i]].name);
	return true;
}

bool walk_begin(struct eval *e, const struct op *op, const struct nest *n, int c, struct walk *w)
{
	if (n->stray != NODIM)
		return ev_fail(e, op, "dim '%s' has no place in the loops", e->m->dims.at[n->stray].name);
	w->nest = n;
	w->row = n->nd - 1;
	w->begun = false;
	memset(w->i, 0, sizeof w->i);
	memset(w->off, 0, sizeof w->off);
	return walk_extents(e, op, w, c);
}

bool walk_row(struct walk *w)
{
	const struct nest *n = w->nest;

	if (!w->begun) {
		w->begun = true;
		for (int i = 0; i < n->nd; i++)
			if (!w->n[i])
				return false;
		return true;
	}
	for (int i = w->row - 1; i >= 0; i--) {
		bool more = ++w->i[i] < w->n[i];

		for (int p = 0; p < n->np; p++)
			w->off[p] += n->p[p].step[i] * (more ? 1 : 1 - w->n[i]);
		if (more)
			return true;
		w->i[i] = 0;
	}
	return false;
}

int64_t walk_across(const struct eval *e, const struct walk *w, int p)
{
	int64_t at = 0;

	for (int k = 0; k < w->row; k++)
		if (w->nest->p[p].step[k])
			at += walk_index(e, w, k, 0) * w->nest->p[p].step[k];
	return at;
}

bool ev_fill(struct eval *e, const struct op *op, const struct held *h, double x)
{
	struct nest n;
	struct walk w;

	nest_init(&n);
	nest_dims(&n, h->v);
	nest_ptr(&n, h);
	for (int c = 0; c < e->ncoord; c++) {
		if (!walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w)) {
			double *to = ev_at(h, c) + w.off[0];

			for (int64_t i = 0; i < walk_n(&w); i++)
				to[i * walk_step(&w, 0)] = x;
		}
	}
	return true;
}

/* The names of h's dims, that of skip gone. */
static void names_without(const struct held *h, dimid skip, dimid *as)
{
	for (int i = 0; i < h->v->nd; i++)
		as[i] = h->v->d[i] == skip ? NODIM : h->v->d[i];
}

bool ev_copy(struct eval *e, const struct op *op, const struct held *to, int64_t to_at,
	     const struct held *from, int64_t from_at, dimid skip)
{
	dimid as[MAX_DIMS];
	struct nest n;
	struct walk w;

	nest_init(&n);
	for (int i = 0; i < to->v->nd; i++)
		if (to->v->d[i] != skip)
			n.d[n.nd++] = to->v->d[i];
	names_without(to, skip, as);
	nest_ptr_as(&n, to, as);
	names_without(from, skip, as);
	nest_ptr_as(&n, from, as);
	for (int c = 0; c < e->ncoord; c++) {
		if (e->only >= 0 && ev_stage(e, c) != e->only)
			continue;
		if (!walk_begin(e, op, &n, c, &w))
			return false;
		while (walk_row(&w)) {
			double *a = ev_at(to, c) + to_at + w.off[0];
			const double *b = ev_at(from, c) + from_at + w.off[1];

			for (int64_t i = 0; i < walk_n(&w); i++)
				a[i * walk_step(&w, 0)] = b[i * walk_step(&w, 1)];
		}
	}
	return true;
}
