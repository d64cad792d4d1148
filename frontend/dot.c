/* a @ b: which dims it sums over (rule 12), and what is said when that is not clear. */
#include "frontend/lower.h"

static bool in(int n, const dimid *d, dimid x)
{
	for (int i = 0; i < n; i++)
		if (d[i] == x)
			return true;
	return false;
}

static const char *text(struct ctx *c, const struct node *n)
{
	return node_text(c->mem, c->src, n);
}

/* tokens @ w1: ints that count rows of a table were meant to be looked up. */
static void table_hint(struct ctx *c, const struct node *n, const struct value *b)
{
	const struct sym *s = n->a->kind == N_NAME ? find(c, n->a->name) : NULL;

	if (!s || !s->rows)
		return;
	for (uint32_t i = 0; i < c->params.n; i++) {
		const struct buffer *buf = c->params.at[i]->buf;
		bool rows = false, shares = false;

		for (int k = 0; k < buf->nd; k++) {
			rows |= streq(c->m->dims.at[buf->d[k]].name, s->rows);
			shares |= has_dim(b, buf->d[k]);
		}
		if (rows && shares) {
			hint(c, "did you mean %s[%s = %s] @ %s?", c->params.at[i]->name, s->rows,
			     s->name, text(c, n->b));
			return;
		}
	}
}

static int explicit_dims(struct ctx *c, const struct node *n, const struct value *a,
			 const struct value *b, dimid *sum)
{
	int k = eval_dims(c, n->list, sum, "@[…]");

	for (int i = 0; i < k; i++)
		if (!has_dim(a, sum[i]) || !has_dim(b, sum[i])) {
			const struct node *side = has_dim(a, sum[i]) ? n->b : n->a;

			fail(c, n->at, "'@' can't contract '%s': %s is %s",
			     c->m->dims.at[sum[i]].name, text(c, side),
			     dims_text(c, has_dim(a, sum[i]) ? b : a));
			return -1;
		}
	return k;
}

static int ambiguous(struct ctx *c, const struct node *n, int k, const dimid *shared)
{
	fail(c, n->at, "'@' could contract %s", list_text(c, k, shared, ""));
	hint(c, "name the result's dims, %s[…] = %s, or say which: %s @[%s] %s",
	     c->left ? c->left : "s", text(c, n), text(c, n->a),
	     c->m->dims.at[shared[k - 1]].name, text(c, n->b));
	return -1;
}

static int nothing(struct ctx *c, const struct node *n, const struct want *w, int k,
		   const dimid *shared)
{
	fail(c, n->at, "'@' contracts nothing: %s keeps %s, the only dim%s %s and %s share",
	     w->name, list_text(c, k, shared, "'"), k > 1 ? "s" : "", text(c, n->a), text(c, n->b));
	hint(c, "'*' multiplies without contracting");
	return -1;
}

/* The dims that are summed away; -1 after a message. */
static int contracted(struct ctx *c, const struct node *n, const struct want *w,
		      const struct value *a, const struct value *b, dimid *sum)
{
	dimid shared[MAX_DIMS];
	int k = 0, m = 0;

	if (n->dims)
		return explicit_dims(c, n, a, b, sum);
	for (int i = 0; i < a->nd; i++)
		if (has_dim(b, a->d[i]))
			shared[k++] = a->d[i];
	if (k == 0) {
		fail(c, n->at, "%s and %s share no dim", dims_text(c, a), dims_text(c, b));
		table_hint(c, n, b);
		return -1;
	}
	if (w && w->known) {
		for (int i = 0; i < k; i++)
			if (!in(w->n, w->d, shared[i]))
				sum[m++] = shared[i];
		return m ? m : nothing(c, n, w, k, shared);
	}
	if (k > 1)
		return ambiguous(c, n, k, shared);
	sum[0] = shared[0];
	return 1;
}

struct val eval_dot(struct ctx *c, const struct node *n, const struct want *w)
{
	struct val x = eval(c, n->a, NULL), y = eval(c, n->b, NULL);
	dimid sum[MAX_DIMS], keep[2 * MAX_DIMS];
	int nkeep = 0;

	if (x.kind == V_BAD || y.kind == V_BAD)
		return call_bad();
	if (x.kind != V_TENSOR || y.kind != V_TENSOR) {
		const struct node *side = x.kind != V_TENSOR ? n->a : n->b;

		fail(c, side->at, "%s has no dims: '@' contracts nothing", text(c, side));
		hint(c, "'*' multiplies without contracting");
		return call_bad();
	}
	int k = contracted(c, n, w, x.v, y.v, sum);
	if (k < 0)
		return call_bad();
	struct value *a = float_of(c, x, n->at), *b = float_of(c, y, n->at);
	const struct value *side[2] = { a, b };
	for (int s = 0; s < 2; s++)
		for (int i = 0; i < side[s]->nd; i++)
			if (!in(k, sum, side[s]->d[i]) && !in(nkeep, keep, side[s]->d[i]))
				keep[nkeep++] = side[s]->d[i];
	if (!fits(c, nkeep, keep, n->at))
		return call_bad();
	return tensor(b_einsum(here(c, n->at), a, b, F32, nkeep, keep));
}
