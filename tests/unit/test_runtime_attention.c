/* Blocked attention and its gradient against plain loops in double: grouped queries, causal rows that
 * start anywhere, caps, dropout, layouts with room to spare, rows without keys, bf16. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/rng.h"
#include "runtime/internal.h"

/* batch, keys' heads, queries a head */
struct shape {
	int64_t b, h, g, rows, cols, d, dv, pad;
	bool causal, swap; /* swap: [b, h, s, d], else [b, s, h, d] */
	int64_t row_start;
	double cap, p;
	enum dtype dt;
};

struct all {
	struct attention x;
	double *v[NAT], *want[NAT];
	void *at[NAT];
	int64_t room[NAT];
};

static double draw(uint64_t *s)
{
	*s = *s * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(*s >> 33) / 2147483648.0 * 2 - 1;
}

/* Strides of [b, rows, h, g, w] or [b, h, g, rows, w], sizes padded. */
static int64_t lay(const struct shape *s, struct attention *x, int w, bool key, int64_t rows, int64_t width)
{
	int64_t p = s->pad, g = key ? 1 : s->g, n = width > 0 ? width + p : 1, st = n;

	x->d_stride[w] = 1;
	if (s->swap) {
		x->row_stride[w] = st;
		st *= rows + p;
	}
	x->stride[w][2] = key ? 0 : st;
	st *= g;
	x->stride[w][1] = st;
	st *= s->h;
	if (!s->swap) {
		x->row_stride[w] = st;
		st *= rows + p;
	}
	x->stride[w][0] = st;
	return st * s->b;
}

static int64_t size_of(const struct shape *s, int w)
{
	switch (w) {
	case AT_LSE:
		return 0;
	case AT_V:
	case AT_O:
	case AT_DO:
	case AT_DV:
		return s->dv;
	default:
		return s->d;
	}
}

static bool is_key(int w)
{
	return w == AT_K || w == AT_V || w == AT_DK || w == AT_DV;
}

static void set_up(const struct shape *s, struct all *a)
{
	uint64_t seed = 7;

	memset(a, 0, sizeof *a);
	a->x = (struct attention){ .dt = s->dt, .rows = s->rows, .cols = s->cols, .d = s->d, .dv = s->dv, .nloop = 3,
				   .n = { s->b, s->h, s->g }, .keys = { true, true, false }, .causal = s->causal,
				   .row = { .start = s->row_start }, .scale = 0.7, .cap = s->cap, .p = s->p, .key = 12345,
				   .step = 3, .iter = 2 };
	/* mask over [b, h, g, all rows, cols]; this part starts at row_start, batch 5 */
	int64_t all_rows = s->row_start + s->rows + 3;

	a->x.rng_col = 1;
	a->x.rng_row = (uint64_t)s->cols;
	a->x.rng_loop[2] = (uint64_t)(s->cols * all_rows);
	a->x.rng_loop[1] = a->x.rng_loop[2] * (uint64_t)s->g;
	a->x.rng_loop[0] = a->x.rng_loop[1] * (uint64_t)s->h;
	a->x.rng_base = 5 * a->x.rng_loop[0] + (uint64_t)s->row_start * a->x.rng_row;
	for (int w = 0; w < NAT; w++) {
		enum dtype dt = w == AT_LSE ? F32 : s->dt;
		int64_t n = a->room[w] = 1 + lay(s, &a->x, w, is_key(w), is_key(w) ? s->cols : s->rows, size_of(s, w));

		a->v[w] = malloc((size_t)n * sizeof(double));
		a->want[w] = malloc((size_t)n * sizeof(double));
		a->at[w] = malloc((size_t)n * 4);
		for (int64_t i = 0; i < n; i++) {
			nest_store(dt, a->at[w], i, w <= AT_V || w == AT_DO ? draw(&seed) * 2 : 9);
			a->want[w][i] = a->v[w][i] = nest_load(dt, a->at[w], i);
		}
	}
}

static void tear_down(struct all *a)
{
	for (int w = 0; w < NAT; w++) {
		free(a->v[w]);
		free(a->want[w]);
		free(a->at[w]);
	}
}

static int64_t at(const struct all *a, int w, int64_t b, int64_t h, int64_t g, int64_t r, int64_t i)
{
	const struct attention *x = &a->x;

	return b * x->stride[w][0] + h * x->stride[w][1] + g * x->stride[w][2] + r * x->row_stride[w] + i * x->d_stride[w];
}

/* One row by the book. */
static void row(const struct shape *s, struct all *a, int64_t b, int64_t h, int64_t g, int64_t r)
{
	double u[300], t[300], p[300], keep[300], dp[300], top = -INFINITY, sum = 0, dot = 0;
	int64_t n = s->causal && s->row_start + r + 1 < s->cols ? s->row_start + r + 1 : s->cols;

	n = n < 0 ? 0 : n;
	for (int64_t j = 0; j < n; j++) {
		u[j] = 0;
		for (int64_t i = 0; i < s->d; i++)
			u[j] += a->v[AT_Q][at(a, AT_Q, b, h, g, r, i)] * a->v[AT_K][at(a, AT_K, b, h, g, j, i)];
		u[j] *= a->x.scale;
		t[j] = s->cap ? tanh(u[j] / s->cap) : 0;
		u[j] = s->cap ? s->cap * t[j] : u[j];
		top = u[j] > top ? u[j] : top;
	}
	for (int64_t j = 0; j < n; j++)
		sum += exp(u[j] - top);
	a->want[AT_LSE][at(a, AT_LSE, b, h, g, r, 0)] = n ? top + log(sum) : -INFINITY;
	for (int64_t j = 0; j < n; j++) {
		uint64_t i = a->x.rng_base + (uint64_t)r * a->x.rng_row + (uint64_t)j + (uint64_t)b * a->x.rng_loop[0] +
			     (uint64_t)h * a->x.rng_loop[1] + (uint64_t)g * a->x.rng_loop[2];

		p[j] = exp(u[j] - top) / sum;
		keep[j] = s->p > 0 ? (rng_uniform(a->x.key, i, a->x.step, a->x.iter) >= s->p) / (1 - s->p) : 1;
	}
	for (int64_t i = 0; i < s->dv; i++) {
		double o = 0;

		for (int64_t j = 0; j < n; j++)
			o += p[j] * keep[j] * a->v[AT_V][at(a, AT_V, b, h, g, j, i)];
		a->want[AT_O][at(a, AT_O, b, h, g, r, i)] = o;
	}
	for (int64_t j = 0; j < n; j++) {
		dp[j] = 0;
		for (int64_t i = 0; i < s->dv; i++) {
			double go = a->v[AT_DO][at(a, AT_DO, b, h, g, r, i)];

			dp[j] += go * a->v[AT_V][at(a, AT_V, b, h, g, j, i)] * keep[j];
			a->want[AT_DV][at(a, AT_DV, b, h, g, j, i)] += go * p[j] * keep[j];
		}
		dot += p[j] * dp[j];
	}
	for (int64_t i = 0; i < s->d; i++)
		a->want[AT_DQ][at(a, AT_DQ, b, h, g, r, i)] = 0;
	for (int64_t j = 0; j < n; j++) {
		double ds = p[j] * (dp[j] - dot) * (1 - t[j] * t[j]) * a->x.scale;

		for (int64_t i = 0; i < s->d; i++) {
			a->want[AT_DQ][at(a, AT_DQ, b, h, g, r, i)] += ds * a->v[AT_K][at(a, AT_K, b, h, g, j, i)];
			a->want[AT_DK][at(a, AT_DK, b, h, g, j, i)] += ds * a->v[AT_Q][at(a, AT_Q, b, h, g, r, i)];
		}
	}
}

static void book(const struct shape *s, struct all *a)
{
	for (int64_t b = 0; b < s->b; b++)
		for (int64_t h = 0; h < s->h; h++) {
			for (int64_t j = 0; j < s->cols; j++) {
				for (int64_t i = 0; i < s->d; i++)
					a->want[AT_DK][at(a, AT_DK, b, h, 0, j, i)] = 0;
				for (int64_t i = 0; i < s->dv; i++)
					a->want[AT_DV][at(a, AT_DV, b, h, 0, j, i)] = 0;
			}
			for (int64_t g = 0; g < s->g; g++)
				for (int64_t r = 0; r < s->rows; r++)
					row(s, a, b, h, g, r);
		}
}

static void check(const struct shape *s)
{
	struct gemm *g = gemm_open(1 << 26);
	struct all a;

	set_up(s, &a);
	book(s, &a);
	assert_true(attention_forward(g, &a.x, a.at));
	assert_true(attention_backward(g, &a.x, a.at));
	for (int w = AT_O; w < NAT; w++) {
		double most = 0;

		for (int64_t i = 0; i < a.room[w]; i++)
			most = fabs(a.want[w][i]) > most && isfinite(a.want[w][i]) ? fabs(a.want[w][i]) : most;
		for (int64_t i = 0; i < a.room[w]; i++) {
			double x = nest_load(w == AT_LSE ? F32 : s->dt, a.at[w], i), y = a.want[w][i];
			double tol = most * (s->dt == BF16 && w != AT_LSE ? 0.02 : 3e-6) + 1e-30;

			if (isinf(y) ? x != y : !(fabs(x - y) <= tol))
				fail_msg("tensor %d, element %lld: %g, not %g (b %d h %d g %d rows %d cols %d d %d)", w, (long long)i, x, y,
					 (int)s->b, (int)s->h, (int)s->g, (int)s->rows, (int)s->cols, (int)s->d);
		}
	}
	tear_down(&a);
	gemm_close(g);
}

static void shapes(void **state)
{
	(void)state;
	static const struct shape all[] = {
		{ 2, 3, 1, 8, 8, 4, 4, 0, true, false, 0, 0, 0, F32 },
		{ 2, 3, 1, 8, 8, 4, 4, 0, false, false, 0, 0, 0, F32 },
		{ 1, 2, 3, 9, 13, 5, 7, 1, true, false, 3, 0, 0, F32 },   /* grouped, own size of v, part of the rows */
		{ 1, 2, 3, 9, 13, 5, 7, 2, true, true, 3, 0, 0.3, F32 },
		{ 2, 1, 2, 70, 70, 16, 16, 0, true, false, 0, 0, 0.1, F32 }, /* more than a tile */
		{ 1, 2, 1, 130, 130, 8, 8, 1, true, true, 0, 0, 0, F32 },
		{ 1, 1, 1, 65, 257, 8, 3, 0, false, false, 0, 5, 0.2, F32 },
		{ 1, 1, 2, 17, 33, 1, 1, 0, true, false, 10, 2, 0, F32 },
		{ 1, 1, 1, 1, 1, 4, 4, 0, true, false, 0, 0, 0, F32 },
		{ 2, 2, 2, 33, 40, 16, 8, 0, true, false, 2, 0, 0.1, BF16 },
		{ 1, 2, 1, 70, 70, 64, 64, 0, false, true, 0, 0, 0, BF16 },
		{ 2, 2, 1, 0, 5, 4, 4, 0, true, false, 9, 0, 0, F32 },     /* a rank without rows */
		{ 1, 2, 2, 4, 6, 4, 4, 0, true, false, -3, 0, 0, F32 },    /* rows that see no key */
	};

	for (size_t i = 0; i < LEN(all); i++)
		check(&all[i]);
}

static void no_queries_means_zero_gradients(void **state)
{
	(void)state;
	struct shape s = { 1, 2, 2, 3, 4, 4, 4, 0, false, false, 0, 0, 0, F32 };
	struct gemm *g = gemm_open(1 << 24);
	struct all a;

	set_up(&s, &a);
	a.x.n[2] = 0; /* this rank has none of the groups */
	assert_true(attention_forward(g, &a.x, a.at));
	assert_true(attention_backward(g, &a.x, a.at));
	for (int64_t i = 0; i + 1 < a.room[AT_DK]; i++)
		assert_true(((float *)a.at[AT_DK])[i] == 0);
	assert_true(((float *)a.at[AT_DQ])[0] == 9);
	tear_down(&a);
	gemm_close(g);
}

static void nan_stays_nan(void **state)
{
	(void)state;
	struct shape s = { 1, 1, 1, 3, 4, 4, 4, 0, false, false, 0, 0, 0, F32 };
	struct gemm *g = gemm_open(1 << 24);
	struct all a;

	set_up(&s, &a);
	((float *)a.at[AT_Q])[0] = NAN;
	assert_true(attention_forward(g, &a.x, a.at));
	assert_true(isnan(((float *)a.at[AT_O])[0]));
	assert_false(isnan(((float *)a.at[AT_O])[4]));
	tear_down(&a);
	gemm_close(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shapes), cmocka_unit_test(no_queries_means_zero_gradients), cmocka_unit_test(nan_stays_nan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
