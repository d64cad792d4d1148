/* ir/eval_attn.c - attention and its gradient, row by row.
 *
 * A row is one element of lse: u[j] over ctx, its softmax, its dropout. Dims that k, v, o or a
 * gradient lack have step 0 in the walk over rows; v's own dims (its head dim, which may have the
 * name of {dim}) are listed apart.
 *
 * Where keys are split over {axes}, a coordinate sees those of its whole group: k and v are gathered for
 * it, and what it adds to dk and dv is added up where these lie. Of axes that do not split rows as well,
 * each coordinate has its own keys' part of the gradients. */
#include <stdlib.h>

#include "ir/eval_impl.h"
#include "ir/rng.h"

enum { T_Q, T_K, T_V, T_O, T_LSE, T_DO, T_DQ, T_DK, T_DV, T_BIAS, T_MASK, T_WINDOW, T_DBIAS, MAX_TENSORS };

struct attn {
	const struct op *op;
	const struct held *q, *k, *v, *o, *lse, *dout, *dq, *dk, *dv, *bias, *mask, *window, *dbias;
	const struct held *split_k, *split_dk, *split_dv; /* as the op has them, if keys are split */
	struct held *wide[4];         /* k, v, dk, dv of all keys */
	uint32_t ring;                /* axes of rows and keys */
	struct nest n;          /* rows; pointers in the order above, those that exist */
	int at[MAX_TENSORS];    /* pointer number of each, -1 */
	int own_nd;
	dimid own[MAX_DIMS];    /* v's own dims */
	int c;                  /* the coordinate at work */
	int64_t ndim, nctx, nown;
	int64_t *vo, *oo, *doo, *dvo; /* offsets of v's own elements in v, o, do, dv */
	double *u, *p, *dp, *keep;    /* along ctx; keep: 1/(1-p) or 0 */
	double *slope;                /* of u by q.k */
	bool *mine;                   /* does this coordinate differentiate by that key? */
	int64_t mask_step[NEST_DIMS], mask_ctx; /* of the index of the dropout mask */
	uint64_t key;
	uint32_t step, iter;
	double scale, drop;
};

/* -- set up -- */

static bool own_dims(struct eval *e, struct attn *a)
{
	const struct op *op = a->op;

	a->own_nd = 0;
	for (int i = 0; i < a->v->v->nd; i++) {
		dimid d = a->v->v->d[i];

		if (d == op->at.ctx || has_dim(a->lse->v, d))
			continue;
		if (!has_dim(a->o->v, d))
			return ev_fail(e, op, "the result lacks dim '%s' of v", e->m->dims.at[d].name);
		a->own[a->own_nd++] = d;
	}
	return true;
}

static bool is_own(const struct attn *a, dimid d)
{
	for (int i = 0; i < a->own_nd; i++)
		if (a->own[i] == d)
			return true;
	return false;
}

/* Adds a tensor to the walk over rows, its dims along {dim}, {ctx} and v's own left out. */
static void add_tensor(struct attn *a, int which, const struct held *h, bool valued)
{
	dimid as[MAX_DIMS];

	a->at[which] = -1;
	if (!h)
		return;
	for (int i = 0; i < h->v->nd; i++) {
		dimid d = h->v->d[i];
		bool inner = valued ? is_own(a, d) : d == a->op->at.dim;

		as[i] = inner || d == a->op->at.ctx ? NODIM : d;
	}
	a->at[which] = nest_ptr_as(&a->n, h, as);
}

static bool mask_steps(struct eval *e, struct attn *a)
{
	const struct op *op = a->op;
	int64_t step = 1;

	memset(a->mask_step, 0, sizeof a->mask_step);
	a->mask_ctx = 0;
	for (int i = op->at.dims.n - 1; i >= 0; i--) {
		dimid d = op->at.dims.d[i];
		bool known = d == op->at.ctx;

		if (known)
			a->mask_ctx = step;
		for (int k = 0; k < a->n.nd; k++)
			if (a->n.d[k] == d) {
				a->mask_step[k] = step;
				known = true;
			}
		if (!known)
			return ev_fail(e, op, "the mask has a dim '%s' that the scores lack", e->m->dims.at[d].name);
		step *= dim_size(e->m, d);
	}
	return true;
}

static bool attn_init(struct eval *e, struct attn *a)
{
	const struct op *op = a->op;

	a->scale = HAS(op, scale) ? op->at.scale : 1 / sqrt((double)dim_size(e->m, op->at.dim));
	a->ring = e->local ? attn_ring(op) : 0;
	a->drop = e->training && HAS(op, p) ? op->at.p : 0;
	a->ndim = dim_size(e->m, op->at.dim);
	a->nctx = dim_size(e->m, op->at.ctx);
	a->key = a->drop > 0 ? stream_key(e->seed, op->at.key) : 0;
	if (dim_pos(a->q->v, op->at.dim) < 0 || dim_pos(a->k->v, op->at.dim) < 0)
		return ev_fail(e, op, "q or k lacks dim '%s'", e->m->dims.at[op->at.dim].name);
	if (dim_pos(a->k->v, op->at.ctx) < 0 || dim_pos(a->v->v, op->at.ctx) < 0)
		return ev_fail(e, op, "k or v lacks dim '%s'", e->m->dims.at[op->at.ctx].name);
	if (HAS(op, causal) && !has_dim(a->lse->v, op->at.causal))
		return ev_fail(e, op, "no dim '%s' to be causal along", e->m->dims.at[op->at.causal].name);
	nest_init(&a->n);
	nest_dims(&a->n, a->lse->v);
	if (!own_dims(e, a) || !mask_steps(e, a))
		return false;
	add_tensor(a, T_Q, a->q, false);
	add_tensor(a, T_K, a->k, false);
	add_tensor(a, T_V, a->v, true);
	add_tensor(a, T_O, a->o, true);
	add_tensor(a, T_LSE, a->lse, false);
	add_tensor(a, T_DO, a->dout, true);
	add_tensor(a, T_DQ, a->dq, false);
	add_tensor(a, T_DK, a->dk, false);
	add_tensor(a, T_DV, a->dv, true);
	add_tensor(a, T_BIAS, a->bias, false);
	add_tensor(a, T_MASK, a->mask, false);
	add_tensor(a, T_WINDOW, a->window, false);
	add_tensor(a, T_DBIAS, a->dbias, false);
	return true;
}

static bool whole_here(struct eval *e, const struct attn *a, const struct held *h, dimid d)
{
	return ev_ext(h, a->c)[dim_pos(h->v, d)].valid == dim_size(e->m, d) ||
	       ev_fail(e, a->op, "dim '%s' of %%%u is split", e->m->dims.at[d].name, h->v->id);
}

static bool extra_whole(struct eval *e, const struct attn *a, const struct held *h)
{
	return !h || !has_dim(h->v, a->op->at.ctx) || whole_here(e, a, h, a->op->at.ctx);
}

/* Offsets in h of v's own elements at this coordinate; all tensors must hold the same ones. */
static int64_t *own_offsets(struct eval *e, const struct attn *a, const struct held *h)
{
	int64_t *off = NEWN(e->scratch, int64_t, a->nown ? a->nown : 1), i[MAX_DIMS] = { 0 };

	for (int d = 0; d < a->own_nd; d++) {
		const struct extent *x = ev_ext(a->v, a->c) + dim_pos(a->v->v, a->own[d]);
		int pos = dim_pos(h->v, a->own[d]);

		if (pos < 0 || ev_ext(h, a->c)[pos].valid != x->valid ||
		    (x->valid && ev_ext(h, a->c)[pos].start != x->start)) {
			ev_fail(e, a->op, "%%%u and %%%u hold different parts of '%s'", h->v->id, a->v->v->id,
				e->m->dims.at[a->own[d]].name);
			return NULL;
		}
	}
	for (int64_t k = 0; k < a->nown; k++) {
		for (int d = 0; d < a->own_nd; d++)
			off[k] += i[d] * h->stride[dim_pos(h->v, a->own[d])];
		for (int d = a->own_nd - 1; d >= 0; d--) {
			if (++i[d] < ev_ext(a->v, a->c)[dim_pos(a->v->v, a->own[d])].valid)
				break;
			i[d] = 0;
		}
	}
	return off;
}

static void find_mine(struct eval *e, struct attn *a)
{
	int pos = a->split_k ? dim_pos(a->split_k->v, a->op->at.ctx) : -1;

	memset(a->mine, pos < 0, (size_t)a->nctx * sizeof *a->mine);
	for (int64_t g = 0; pos >= 0 && g < ev_members(e, a->ring); g++) {
		const struct extent *x = ev_ext(a->split_k, ev_member(e, a->c, a->ring, g)) + pos;

		for (int64_t j = 0; j < x->valid; j++)
			a->mine[x->start + j] = true;
	}
}

static bool attn_coord(struct eval *e, struct attn *a, uint32_t first_iter)
{
	const struct op *op = a->op;

	if (!whole_here(e, a, a->q, op->at.dim) || !whole_here(e, a, a->k, op->at.dim) ||
	    !whole_here(e, a, a->k, op->at.ctx) || !whole_here(e, a, a->v, op->at.ctx) ||
	    !extra_whole(e, a, a->bias) || !extra_whole(e, a, a->mask) || !extra_whole(e, a, a->window))
		return false;
	if (a->drop > 0 && !ev_iteration(e, op, first_iter, a->c, &a->iter))
		return false;
	a->nown = 1;
	for (int d = 0; d < a->own_nd; d++)
		a->nown *= ev_ext(a->v, a->c)[dim_pos(a->v->v, a->own[d])].valid;
	find_mine(e, a);
	a->vo = own_offsets(e, a, a->v);
	a->oo = own_offsets(e, a, a->o);
	if (!a->dout)
		return a->vo && a->oo;
	a->doo = own_offsets(e, a, a->dout);
	a->dvo = own_offsets(e, a, a->dv);
	return a->vo && a->oo && a->doo && a->dvo;
}

/* -- one row -- */

static int64_t inner(const struct held *h, dimid d)
{
	return h->stride[dim_pos(h->v, d)];
}

static double *row_of(const struct attn *a, const struct walk *w, const struct held *h, int which, int64_t i)
{
	return ev_at(h, a->c) + w->off[a->at[which]] + i * walk_step(w, a->at[which]);
}

/* Element of a bias, mask, window or dbias at row i, column j. */
static double *extra_at(const struct attn *a, const struct walk *w, const struct held *h, int which, int64_t i,
			int64_t j)
{
	int pos = dim_pos(h->v, a->op->at.ctx);

	return row_of(a, w, h, which, i) + (pos < 0 ? 0 : j * h->stride[pos]);
}

/* Does row i, which has index `row` in {causal}, see the key at position j, which has index `key`? */
static bool sees(const struct attn *a, const struct walk *w, int64_t i, int64_t row, int64_t j, int64_t key)
{
	if (a->mask && *extra_at(a, w, a->mask, T_MASK, i, j) == 0)
		return false;
	if (a->window && (double)(row - key) >= *extra_at(a, w, a->window, T_WINDOW, i, j))
		return false;
	return !HAS(a->op, causal) || key <= row;
}

/* u (-inf where masked), slope and keep. */
static void scores(const struct eval *e, struct attn *a, const struct walk *w, int64_t i, const double *q, const double *k)
{
	const struct op *op = a->op;
	int64_t qd = inner(a->q, op->at.dim), kd = inner(a->k, op->at.dim), kc = inner(a->k, op->at.ctx);
	int64_t row = 0, mask = 0;

	for (int d = 0; d < a->n.nd; d++) {
		if (HAS(op, causal) && a->n.d[d] == op->at.causal)
			row = walk_index(e, w, d, i);
		mask += walk_index(e, w, d, i) * a->mask_step[d];
	}
	for (int64_t j = 0; j < a->nctx; j++) {
		int64_t key = dim_index(e->m, op->at.ctx, j);
		double u = 0;

		for (int64_t x = 0; x < a->ndim; x++)
			u += q[x * qd] * k[j * kc + x * kd];
		u *= a->scale;
		a->slope[j] = a->scale;
		if (HAS(op, cap) && op->at.cap > 0) {
			double t = tanh(u / op->at.cap);

			u = op->at.cap * t;
			a->slope[j] *= 1 - t * t;
		}
		if (a->bias)
			u += *extra_at(a, w, a->bias, T_BIAS, i, j);
		a->u[j] = sees(a, w, i, row, j, key) ? u : -INFINITY;
		a->keep[j] = 1;
		if (a->drop > 0)
			a->keep[j] = rng_uniform(a->key, (uint64_t)(mask + key * a->mask_ctx), a->step,
						 a->iter) < a->drop ? 0 : 1 / (1 - a->drop);
	}
}

static double softmax(struct attn *a)
{
	double top = -INFINITY, sum = 0, lse;

	for (int64_t j = 0; j < a->nctx; j++)
		top = a->u[j] > top || isnan(a->u[j]) ? a->u[j] : top;
	for (int64_t j = 0; j < a->nctx; j++)
		sum += top == -INFINITY ? 0 : exp(a->u[j] - top);
	lse = top == -INFINITY ? top : top + log(sum);
	for (int64_t j = 0; j < a->nctx; j++)
		a->p[j] = a->u[j] == -INFINITY ? 0 : exp(a->u[j] - lse);
	return lse;
}

static void forward_row(const struct eval *e, struct attn *a, const struct walk *w, int64_t i)
{
	const double *v = row_of(a, w, a->v, T_V, i);
	double *o = row_of(a, w, a->o, T_O, i);
	int64_t vc = inner(a->v, a->op->at.ctx);

	scores(e, a, w, i, row_of(a, w, a->q, T_Q, i), row_of(a, w, a->k, T_K, i));
	*row_of(a, w, a->lse, T_LSE, i) = softmax(a);
	for (int64_t x = 0; x < a->nown; x++) {
		double sum = 0;

		for (int64_t j = 0; j < a->nctx; j++)
			if (a->u[j] != -INFINITY)
				sum += a->p[j] * a->keep[j] * v[j * vc + a->vo[x]];
		o[a->oo[x]] = sum;
	}
}

/* Into dv and dbias; a->dp becomes the cotangent of q.k. */
static void grad_values(struct attn *a, const struct walk *w, int64_t i)
{
	const double *v = row_of(a, w, a->v, T_V, i), *dout = row_of(a, w, a->dout, T_DO, i);
	double *dv = row_of(a, w, a->dv, T_DV, i), delta = 0;
	int64_t vc = inner(a->v, a->op->at.ctx), dvc = inner(a->dv, a->op->at.ctx);

	for (int64_t j = 0; j < a->nctx; j++) {
		double dp = 0;

		for (int64_t x = 0; x < a->nown && a->u[j] != -INFINITY; x++) {
			dp += a->keep[j] * dout[a->doo[x]] * v[j * vc + a->vo[x]];
			if (a->mine[j])
				dv[j * dvc + a->dvo[x]] += a->p[j] * a->keep[j] * dout[a->doo[x]];
		}
		a->dp[j] = dp;
		delta += a->p[j] * dp;
	}
	for (int64_t j = 0; j < a->nctx; j++) {
		double du = a->u[j] != -INFINITY && a->mine[j] ? a->p[j] * (a->dp[j] - delta) : 0;

		if (a->dbias)
			*extra_at(a, w, a->dbias, T_DBIAS, i, j) += du;
		a->dp[j] = a->u[j] != -INFINITY ? du * a->slope[j] : 0;
	}
}

static void grad_row(const struct eval *e, struct attn *a, const struct walk *w, int64_t i)
{
	const double *q = row_of(a, w, a->q, T_Q, i), *k = row_of(a, w, a->k, T_K, i);
	double lse = *row_of(a, w, a->lse, T_LSE, i);
	double *dq = row_of(a, w, a->dq, T_DQ, i), *dk = row_of(a, w, a->dk, T_DK, i);
	dimid dim = a->op->at.dim, ctx = a->op->at.ctx;
	int64_t qd = inner(a->q, dim), kd = inner(a->k, dim), kc = inner(a->k, ctx);
	int64_t dqd = inner(a->dq, dim), dkd = inner(a->dk, dim), dkc = inner(a->dk, ctx);

	scores(e, a, w, i, q, k);
	for (int64_t j = 0; j < a->nctx; j++)
		a->p[j] = a->u[j] == -INFINITY ? 0 : exp(a->u[j] - lse);
	grad_values(a, w, i);
	for (int64_t j = 0; j < a->nctx; j++)
		for (int64_t x = 0; x < a->ndim && a->dp[j] != 0; x++) {
			dq[x * dqd] += a->dp[j] * k[j * kc + x * kd];
			dk[j * dkc + x * dkd] += a->dp[j] * q[x * qd];
		}
}

/* -- the ops -- */

static bool rows(struct eval *e, struct attn *a, uint32_t first_iter, bool grad)
{
	struct walk w;

	for (a->c = 0; a->c < e->ncoord; a->c++) {
		if (!attn_coord(e, a, first_iter) || !walk_begin(e, a->op, &a->n, a->c, &w))
			return false;
		while (walk_row(&w))
			for (int64_t i = 0; i < walk_n(&w); i++)
				(grad ? grad_row : forward_row)(e, a, &w, i);
	}
	return true;
}

/* A bias, mask or window; *ok becomes false if it should be there and is not. */
static struct held *extra_in(struct eval *e, const struct op *op, int which, bool *ok)
{
	int at = attn_extra(op, which);
	struct held *h = at < 0 ? NULL : ev_in(e, op, op->in[at]);

	*ok = *ok && (at < 0 || h);
	return h;
}

static bool gather_keys(struct eval *e, struct attn *a)
{
	const struct op *op = a->op;
	dimid ctx = op->at.ctx;

	if (!e->local || !HAS(op, axes) || !op->at.axes.n)
		return true;
	if (!has_dim(a->k->v, ctx) || !has_dim(a->v->v, ctx))
		return ev_fail(e, op, "k or v lacks dim '%s'", e->m->dims.at[ctx].name);
	a->split_k = a->k;
	a->wide[0] = ev_wider(e, a->k, ctx);
	a->wide[1] = ev_wider(e, a->v, ctx);
	if (!ev_gather(e, op, a->k, a->wide[0], axes_bits(&op->at.axes)) ||
	    !ev_gather(e, op, a->v, a->wide[1], axes_bits(&op->at.axes)))
		return false;
	a->k = a->wide[0];
	a->v = a->wide[1];
	if (!a->dk)
		return true;
	a->split_dk = a->dk;
	a->split_dv = a->dv;
	a->dk = a->wide[2] = ev_wider(e, a->dk, ctx);
	a->dv = a->wide[3] = ev_wider(e, a->dv, ctx);
	return ev_fill(e, op, a->dk, 0) && ev_fill(e, op, a->dv, 0);
}

static bool scatter_keys(struct eval *e, struct attn *a)
{
	return !a->split_dk || (ev_scatter(e, a->op, a->dk, a->split_dk, a->ring) &&
				ev_scatter(e, a->op, a->dv, a->split_dv, a->ring));
}

static bool grad_tensors(struct eval *e, struct attn *a)
{
	const struct op *op = a->op;

	a->dout = ev_in(e, op, op->in[attn_rest(op) + 2]);
	a->dq = ev_make(e, op->out[0]);
	a->dk = ev_make(e, op->out[1]);
	a->dv = ev_make(e, op->out[2]);
	a->dbias = op->nout > 3 ? ev_make(e, op->out[3]) : NULL;
	if (!a->dout)
		return false;
	if (!same_dims(a->q->v, a->dq->v) || !same_dims(a->k->v, a->dk->v) || !same_dims(a->v->v, a->dv->v) ||
	    !same_dims(a->o->v, a->dout->v) || (a->dbias && (!a->bias || !same_dims(a->bias->v, a->dbias->v))))
		return ev_fail(e, op, "a gradient has other dims than its value");
	return ev_fill(e, op, a->dq, 0) && ev_fill(e, op, a->dk, 0) && ev_fill(e, op, a->dv, 0) &&
	       (!a->dbias || ev_fill(e, op, a->dbias, 0));
}

static bool attn_tensors(struct eval *e, struct attn *a)
{
	const struct op *op = a->op;
	bool grad = op->code == OP_ATTENTION_GRAD, ok = true;
	uint32_t rest = attn_rest(op);

	if (op->nin < attn_iterations(op))
		return ev_fail(e, op, "%u operands", op->nin);
	a->q = ev_in(e, op, op->in[0]);
	a->k = ev_in(e, op, op->in[1]);
	a->v = ev_in(e, op, op->in[2]);
	a->bias = extra_in(e, op, X_BIAS, &ok);
	a->mask = extra_in(e, op, X_MASK, &ok);
	a->window = extra_in(e, op, X_WINDOW, &ok);
	a->o = grad ? ev_in(e, op, op->in[rest]) : ev_make(e, op->out[0]);
	a->lse = grad ? ev_in(e, op, op->in[rest + 1]) : ev_make(e, op->out[1]);
	if (!a->q || !a->k || !a->v || !a->o || !a->lse || !ok)
		return false;
	return !grad || grad_tensors(e, a);
}

static void drop_wide(struct attn *a)
{
	for (size_t i = 0; i < LEN(a->wide); i++)
		if (a->wide[i])
			ev_drop(a->wide[i]);
}

bool ev_attention(struct eval *e, const struct op *op)
{
	struct attn a = { .op = op, .step = (uint32_t)e->step };
	bool grad = op->code == OP_ATTENTION_GRAD, ok;
	int64_t n = dim_size(e->m, op->at.ctx);
	double *line;

	if (!attn_tensors(e, &a) || !gather_keys(e, &a) || !attn_init(e, &a)) {
		drop_wide(&a);
		return false;
	}
	a.mine = NEWN(e->scratch, bool, n ? n : 1);
	line = calloc((size_t)(n ? n : 1), 5 * sizeof *line);
	if (!line)
		die("out of memory");
	a.u = line;
	a.p = line + n;
	a.dp = line + 2 * n;
	a.keep = line + 3 * n;
	a.slope = line + 4 * n;
	ok = rows(e, &a, attn_iterations(op), grad) && scatter_keys(e, &a);
	free(line);
	drop_wide(&a);
	return ok;
}
