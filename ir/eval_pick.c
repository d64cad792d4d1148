/* ir/eval_pick.c - argmax, topk and rank: positions of elements along dims that are whole. */
#include "ir/eval_impl.h"

struct pick {
	const struct op *op;
	const struct held *in, *out;
	struct dimlist along; /* looked through; all other dims are walked */
	struct nest n;        /* pointers: out, in */
	int64_t count;        /* elements along */
	int64_t *off, *res;   /* their offsets in the operand, and in the result */
};

static bool is_along(const struct pick *p, dimid d)
{
	for (int i = 0; i < p->along.n; i++)
		if (p->along.d[i] == d)
			return true;
	return p->op->code == OP_TOPK && d == p->op->at.to;
}

static void others(const struct pick *p, const struct held *h, dimid *as)
{
	for (int i = 0; i < h->v->nd; i++)
		as[i] = is_along(p, h->v->d[i]) ? NODIM : h->v->d[i];
}

static bool pick_init(struct eval *e, struct pick *p)
{
	dimid as[MAX_DIMS];

	p->along = (struct dimlist){ 1, { p->op->at.dim } };
	if (p->op->code == OP_RANK)
		p->along = p->op->at.dims;
	p->count = 1;
	for (int i = 0; i < p->along.n; i++) {
		if (!has_dim(p->in->v, p->along.d[i]))
			return ev_fail(e, p->op, "the operand lacks dim '%s'", e->m->dims.at[p->along.d[i]].name);
		p->count *= dim_size(e->m, p->along.d[i]);
	}
	nest_init(&p->n);
	for (int i = 0; i < p->out->v->nd; i++)
		if (!is_along(p, p->out->v->d[i]))
			p->n.d[p->n.nd++] = p->out->v->d[i];
	others(p, p->out, as);
	nest_ptr_as(&p->n, p->out, as);
	others(p, p->in, as);
	nest_ptr_as(&p->n, p->in, as);
	return true;
}

/* Offsets in h of all elements along, row-major by index in the order of the list. */
static bool offsets(struct eval *e, const struct pick *p, const struct held *h, int c, int64_t *off)
{
	for (int64_t k = 0; k < p->count; k++) {
		int64_t rest = k;

		off[k] = 0;
		for (int i = p->along.n - 1; i >= 0; i--) {
			int pos = dim_pos(h->v, p->along.d[i]);
			int64_t size = dim_size(e->m, p->along.d[i]);

			if (ev_ext(h, c)[pos].valid != size)
				return ev_fail(e, p->op, "dim '%s' is split", e->m->dims.at[p->along.d[i]].name);
			off[k] += dim_position(e->m, p->along.d[i], rest % size) * h->stride[pos];
			rest /= size;
		}
	}
	return true;
}

/* The n largest, largest first; an element goes behind those that are not smaller. */
static void largest(const struct pick *p, const double *x, int64_t n, int64_t *best)
{
	int64_t have = 0;

	for (int64_t j = 0; j < p->count; j++) {
		int64_t at = have;

		while (at > 0 && x[p->off[j]] > x[p->off[best[at - 1]]])
			at--;
		if (at == n)
			continue;
		have += have < n;
		for (int64_t i = have - 1; i > at; i--)
			best[i] = best[i - 1];
		best[at] = j;
	}
}

static void pick_row(const struct pick *p, int64_t n, int64_t *best, const double *x, double *r)
{
	if (p->op->code == OP_RANK) {
		for (int64_t j = 0; j < p->count; j++) {
			double seen = 0;

			for (int64_t i = 0; i < j; i++)
				seen += x[p->off[i]] == x[p->off[j]];
			r[p->res[j]] = seen;
		}
		return;
	}
	largest(p, x, n, best);
	for (int64_t k = 0; k < n; k++)
		r[p->res[k]] = (double)best[k];
}

bool ev_pick(struct eval *e, const struct op *op)
{
	struct pick p = { .op = op, .in = ev_in(e, op, op->in[0]), .out = ev_make(e, op->out[0]) };
	int64_t n = op->code == OP_TOPK ? dim_size(e->m, op->at.to) : 1, *best;
	int to = op->code == OP_TOPK ? dim_pos(op->out[0], op->at.to) : -1;
	struct walk w;

	if (!p.in || !pick_init(e, &p))
		return false;
	if (op->code != OP_RANK && n > p.count)
		return ev_fail(e, op, "the %lld largest of %lld", (long long)n, (long long)p.count);
	best = NEWN(e->scratch, int64_t, n);
	p.off = NEWN(e->scratch, int64_t, p.count + 1);
	p.res = NEWN(e->scratch, int64_t, p.count + 1);
	for (int c = 0; c < e->ncoord; c++) {
		if (!offsets(e, &p, p.in, c, p.off) || !walk_begin(e, op, &p.n, c, &w))
			return false;
		if (op->code == OP_RANK && !offsets(e, &p, p.out, c, p.res))
			return false;
		for (int64_t k = 0; to >= 0 && k < n; k++)
			p.res[k] = k * p.out->stride[to];
		while (walk_row(&w))
			for (int64_t i = 0; i < walk_n(&w); i++)
				pick_row(&p, n, best, ev_at(p.in, c) + w.off[1] + i * walk_step(&w, 1),
					 ev_at(p.out, c) + w.off[0] + i * walk_step(&w, 0));
	}
	return true;
}
