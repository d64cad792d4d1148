/* runtime/rings.c - which loops of a contraction are rows, columns, sums, and how operands are packed. */
#include "runtime/rings.h"

static const int key_operand[NKINDS] = { 2, 2, 2, 0 };

static void insert(struct rings *l, struct ring r, int key)
{
	int i = l->n++;

	for (; i > 0 && l->r[i - 1].s[key] < r.s[key]; i--)
		l->r[i] = l->r[i - 1];
	l->r[i] = r;
}

static void merge(struct rings *l)
{
	int n = 0;

	for (int i = 0; i < l->n; i++) {
		struct ring *in = &l->r[i], *out = n ? &l->r[n - 1] : NULL;
		bool fits = out != NULL;

		for (int k = 0; k < 3 && fits; k++)
			fits = out->s[k] == in->n * in->s[k];
		if (fits) {
			in->n *= out->n;
			*out = *in;
		} else {
			l->r[n++] = *in;
		}
	}
	l->n = n;
}

bool classify(const struct contraction *x, struct rings *by)
{
	memset(by, 0, NKINDS * sizeof *by);
	for (int i = 0; i < x->nd; i++) {
		bool a = x->has[0][i], b = x->has[1][i], c = x->has[2][i];
		struct ring r = { x->n[i], { a ? x->stride[0][i] : 0, b ? x->stride[1][i] : 0, c ? x->stride[2][i] : 0 } };

		if (a + b + c < 2 && x->n[i] != 1)
			return false;
		if (x->n[i] == 1)
			continue;
		int kind = a && b && c ? BATCH : a && c ? ROW : b && c ? COL : SUM;

		insert(&by[kind], r, key_operand[kind]);
	}
	for (int k = 0; k < NKINDS; k++)
		merge(&by[k]);
	return true;
}

static bool stored(int64_t rows, int64_t row_stride, int64_t cols, int64_t col_stride, bool *trans, int64_t *ld)
{
	if ((col_stride == 1 || cols == 1) && (row_stride >= cols || rows == 1)) {
		*trans = false;
		*ld = rows == 1 ? cols : row_stride;
		return true;
	}
	if ((row_stride == 1 || rows == 1) && (col_stride >= rows || cols == 1)) {
		*trans = true;
		*ld = cols == 1 ? rows : col_stride;
		return true;
	}
	return false;
}

static void try_choice(const struct rings *by, int im, int in, int ik, struct choice *best)
{
	static const struct ring none = { 1, { 0, 0, 0 } };
	const struct ring *m = im < 0 ? &none : &by[ROW].r[im], *n = in < 0 ? &none : &by[COL].r[in];
	const struct ring *k = ik < 0 ? &none : &by[SUM].r[ik];
	struct choice c = { { -1, im, in, ik }, false, false, false, m->n, n->n, k->n, 0, 0, 0,
			    (double)m->n * (double)n->n * (double)k->n };

	if (c.work <= best->work || !stored(m->n, m->s[0], k->n, k->s[0], &c.ta, &c.lda) ||
	    !stored(k->n, k->s[1], n->n, n->s[1], &c.tb, &c.ldb) ||
	    !stored(m->n, m->s[2], n->n, n->s[2], &c.swap, &c.ldc))
		return;
	*best = c;
}

bool choose(const struct rings *by, struct choice *best)
{
	best->work = 0;
	for (int m = by[ROW].n ? 0 : -1; m < by[ROW].n; m++)
		for (int n = by[COL].n ? 0 : -1; n < by[COL].n; n++)
			for (int k = by[SUM].n ? 0 : -1; k < by[SUM].n; k++)
				try_choice(by, m, n, k, best);
	return best->work > 0;
}

struct nest in_order(const struct contraction *x, struct contraction *y, int which)
{
	struct nest l = { 0 };
	int64_t s = 1;
	int idx[3 * MAX_DIMS];

	for (int i = 0; i < x->nd; i++) {
		if (!x->has[which][i])
			continue;
		int k = l.nd++;

		for (; k > 0 && x->stride[which][idx[k - 1]] < x->stride[which][i]; k--)
			idx[k] = idx[k - 1];
		idx[k] = i;
	}
	for (int k = l.nd - 1; k >= 0; k--) {
		l.n[k] = x->n[idx[k]];
		l.ds[k] = s;
		l.ss[k] = x->stride[which][idx[k]];
		y->stride[which][idx[k]] = s;
		s *= x->n[idx[k]];
	}
	return l;
}

struct nest packing(const struct contraction *x, struct contraction *y, int which, int first, int second)
{
	struct nest l = { 0 };
	const bool (*has)[3 * MAX_DIMS] = x->has;
	int64_t s = 1;
	int idx[3 * MAX_DIMS];

	for (int pass = 0; pass < 3; pass++)
		for (int i = 0; i < x->nd; i++) {
			bool f = has[first][i], t = has[second][i];

			if (has[which][i] && pass == (f && t ? 0 : f ? 1 : 2))
				idx[l.nd++] = i;
		}
	for (int k = l.nd - 1; k >= 0; k--) {
		int i = idx[k];

		l.n[k] = x->n[i];
		l.ds[k] = s;
		l.ss[k] = x->stride[which][i];
		y->stride[which][i] = s;
		s *= x->n[i];
	}
	return l;
}

int64_t nest_count(const struct nest *l)
{
	int64_t n = 1;

	for (int i = 0; i < l->nd; i++)
		n *= l->n[i];
	return n;
}
