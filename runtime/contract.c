/* runtime/contract.c - an einsum as matrix products, and what is copied where its operands do not lie as one needs them.
 *
 * What multiplies and copies is the backend's (struct contractor). */
#include "runtime/rings.h"

/* -- a contraction as matrix products -- */

/* The longest loop of the result that is not in the product; NULL: none. */
static const struct ring *longest_left(const struct rings *by, const struct choice *c)
{
	const struct ring *best = NULL;

	for (int kind = 0; kind < SUM; kind++)
		for (int i = 0; i < by[kind].n; i++)
			if ((i != c->at[kind] || kind == BATCH) && (!best || by[kind].r[i].n > best->n))
				best = &by[kind].r[i];
	return best;
}

/* The loops around the product; sums innermost, the first of them with x->add. */
static bool around(const struct contractor *g, const struct contraction *x, const struct rings *by, const struct choice *c,
		   const char *a, const char *b, char *o)
{
	struct ring r[4 * 3 * MAX_DIMS];
	int64_t at[4 * 3 * MAX_DIMS] = { 0 };
	int n = 0, sums = 0;

	const struct ring *batch = g->batches ? longest_left(by, c) : NULL;

	for (int kind = 0; kind < NKINDS; kind++)
		for (int i = 0; i < by[kind].n; i++)
			if ((i != c->at[kind] || kind == BATCH) && &by[kind].r[i] != batch) {
				r[n++] = by[kind].r[i];
				sums += kind == SUM;
			}
	int64_t ea = dtype_bytes(x->dt[0]), eb = dtype_bytes(x->dt[1]), ec = dtype_bytes(x->dt[2]);

	for (;;) {
		bool add = x->add;

		for (int i = n - sums; i < n; i++)
			add |= at[i] > 0;
		if (!g->product(g->self, c, batch, x, a, b, o, add))
			return false;
		int i = n - 1;

		for (; i >= 0; i--) {
			a += r[i].s[0] * ea;
			b += r[i].s[1] * eb;
			o += r[i].s[2] * ec;
			if (++at[i] < r[i].n)
				break;
			a -= r[i].n * r[i].s[0] * ea;
			b -= r[i].n * r[i].s[1] * eb;
			o -= r[i].n * r[i].s[2] * ec;
			at[i] = 0;
		}
		if (i < 0)
			return true;
	}
}

/* -- the ways that always work -- */

enum { COPIED = 48 << 20, CALL = 4 << 20 }; /* bytes: that are copied at once; that a GPU moves while a launch is put in order */

static bool by_halves(const struct contractor *g, const struct contraction *x, const char *a, const char *b, char *c,
		      bool reorder);

/* There are products of these types. */
static bool is_native(const struct contractor *g, const struct contraction *x)
{
	return x->dt[0] == x->dt[1] && (x->dt[0] == F32 ? x->dt[2] == F32 : g->bf16);
}

/* Operands copied in float32 where they are not (or as they are, if the backend keeps types); to [batch, rows, sums] and [batch, sums, columns] if
 * they must be reordered, the result then made as [batch, rows, columns]. */
static bool packed(const struct contractor *g, const struct contraction *x, const void *a, const void *b, void *c, bool reorder)
{
	struct contraction y = *x;
	const void *from[2] = { a, b }, *at[2] = { a, b };
	bool own = reorder && g->keeps && is_native(g, x);
	struct nest l, lc;
	void *out = c;
	struct rings by[NKINDS];
	struct choice best;

	for (int k = 0; k < 2; k++) {
		if (!reorder && x->dt[k] == F32)
			continue;
		l = reorder ? packing(x, &y, k, k ? 0 : 2, k ? 2 : 1) : in_order(x, &y, k);
		void *room = g->room(g->self, k ? SCRATCH_B : SCRATCH_A, nest_count(&l) * 4);

		if (!room)
			return false;
		y.dt[k] = own ? x->dt[k] : F32;
		if (!g->copy(g->self, &l, y.dt[k], room, x->dt[k], from[k]))
			return false;
		at[k] = room;
	}
	lc = reorder ? packing(x, &y, 2, 0, 1) : in_order(x, &y, 2);
	y.dt[2] = own ? x->dt[2] : F32;
	if (!reorder && x->dt[2] == F32) {
		memcpy(y.stride[2], x->stride[2], sizeof y.stride[2]);
	} else {
		y.add = false;
		if (!(out = g->room(g->self, SCRATCH_C, nest_count(&lc) * 4)))
			return false;
	}
	if (!classify(&y, by) || !choose(by, &best)) {
		if (!reorder)
			return by_halves(g, x, a, b, c, true);
		return g->plain(g->self, x, a, b, c);
	}
	if (!around(g, &y, by, &best, at[0], at[1], out))
		return false;
	if (out == c)
		return true;
	struct nest back = lc;

	memcpy(back.ds, lc.ss, sizeof back.ds);
	memcpy(back.ss, lc.ds, sizeof back.ss);
	return x->add ? g->add(g->self, &back, F32, c, out) : g->copy(g->self, &back, x->dt[2], c, y.dt[2], out);
}

/* Of operand k as float32. */
static int64_t bytes_of(const struct contraction *x, int k)
{
	int64_t n = 4;

	for (int i = 0; i < x->nd; i++)
		n *= x->has[k][i] ? x->n[i] : 1;
	return n;
}

/* Bytes of scratch that packed() takes. */
static int64_t appetite(const struct contraction *x, bool reorder)
{
	int64_t sum = 0;

	for (int k = 0; k < 3; k++)
		sum += reorder || x->dt[k] != F32 ? bytes_of(x, k) : 0;
	return sum;
}

/* The longest loop (of the result). */
static int longest(const struct contraction *x, bool result)
{
	int d = -1;

	for (int i = 0; i < x->nd; i++)
		if ((x->has[2][i] || !result) && (d < 0 || x->n[i] > x->n[d]))
			d = i;
	return d;
}

/* A bf16 result whose sum is taken in parts: made in float32 first. */
static bool widened(const struct contractor *g, const struct contraction *x, const char *a, const char *b, char *c, bool reorder)
{
	struct contraction y = *x;
	struct nest l = in_order(x, &y, 2), back = l;
	char *out = g->room(g->self, SCRATCH_OUT, nest_count(&l) * 4);

	y.dt[2] = F32;
	if (!out || !by_halves(g, &y, a, b, out, reorder))
		return false;
	memcpy(back.ds, l.ss, sizeof back.ds);
	memcpy(back.ss, l.ds, sizeof back.ss);
	return g->copy(g->self, &back, x->dt[2], c, F32, out);
}

/* Cuts the longest loop in two until what is copied at once is small. */
static bool by_halves(const struct contractor *g, const struct contraction *x, const char *a, const char *b, char *c,
		      bool reorder)
{
	int64_t most = g->limit / 4 < COPIED ? g->limit / 4 : COPIED; /* each of four */
	int d = longest(x, false);

	if (d < 0 || appetite(x, reorder) <= most || x->n[d] < 2)
		return packed(g, x, a, b, c, reorder);
	if (!x->has[2][d] && x->dt[2] != F32) {
		if (bytes_of(x, 2) <= most / 2)
			return widened(g, x, a, b, c, reorder);
		d = longest(x, true);
		if (d < 0 || x->n[d] < 2)
			return packed(g, x, a, b, c, reorder);
	}
	struct contraction l = *x, r = *x;

	l.n[d] = (x->n[d] / 2 + 31) / 32 * 32 < x->n[d] ? (x->n[d] / 2 + 31) / 32 * 32 : x->n[d] / 2;
	r.n[d] = x->n[d] - l.n[d];
	if (!x->has[2][d])
		r.add = true;
	int64_t off[3];

	for (int k = 0; k < 3; k++)
		off[k] = x->has[k][d] ? l.n[d] * x->stride[k][d] * dtype_bytes(x->dt[k]) : 0;
	return by_halves(g, &l, a, b, c, reorder) && by_halves(g, &r, a + off[0], b + off[1], c + off[2], reorder);
}

static bool clear(const struct contractor *g, const struct contraction *x, void *c)
{
	struct nest l = { 0 };

	if (x->add)
		return true;
	for (int i = 0; i < x->nd; i++)
		if (x->has[2][i]) {
			l.n[l.nd] = x->n[i];
			l.ds[l.nd++] = x->stride[2][i];
		}
	return g->fill(g->self, &l, x->dt[2], c, 0);
}

/* Calls that `around` makes: of products, or of batches of them. */
int64_t contract_calls(const struct rings *by, const struct choice *c, bool batches)
{
	const struct ring *batch = batches ? longest_left(by, c) : NULL;
	int64_t n = 1;

	for (int kind = 0; kind < NKINDS; kind++)
		for (int i = 0; i < by[kind].n; i++)
			if ((i != c->at[kind] || kind == BATCH) && &by[kind].r[i] != batch)
				n *= by[kind].r[i].n;
	return n;
}

/* Is it less to copy the operands in order for one product, by a backend whose calls cost as much as moving CALL bytes? Of those that
 * are summed all but the first read and write the result once more. */
static bool many_calls(const struct contractor *g, const struct contraction *x, const struct rings *by, const struct choice *c)
{
	int64_t n = contract_calls(by, c, g->batches), sums = 1;

	for (int i = 0; i < by[SUM].n; i++)
		sums *= i == c->at[SUM] ? 1 : by[SUM].r[i].n;
	return g->batches && n > 1 && n * CALL + (sums - 1) * 2 * bytes_of(x, 2) > 2 * appetite(x, true);
}

bool contract_by(const struct contractor *g, const struct contraction *x, const void *a, const void *b, void *c)
{
	struct rings by[NKINDS];
	struct choice best;

	for (int i = 0; i < x->nd; i++)
		if (x->n[i] <= 0)
			return clear(g, x, c);
	if (!is_float(x->dt[0]) || !is_float(x->dt[1]) || !is_float(x->dt[2]) || !classify(x, by))
		return g->plain(g->self, x, a, b, c);
	if (!is_native(g, x))
		return by_halves(g, x, a, b, c, false);
	if (!choose(by, &best) || (x->dt[2] != F32 && by[SUM].n > 1) || many_calls(g, x, by, &best))
		return by_halves(g, x, a, b, c, true);
	return around(g, x, by, &best, a, b, c);
}
