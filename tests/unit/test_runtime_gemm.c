/* Contractions against plain loops: labels in all orders, fp32 and bf16, padded strides, sums over
 * microbatches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/internal.h"

static uint64_t next(uint64_t *s)
{
	*s = *s * 6364136223846793005ull + 1442695040888963407ull;
	return *s >> 33;
}

static double draw(uint64_t *s)
{
	return (double)next(s) / 2147483648.0 * 2 - 1;
}

/* "bmk,kn->bmn": loops in order of first use; caps are larger than n by pad. */
static void parse(const char *spec, const int64_t *size, int pad, struct contraction *x, int64_t *room)
{
	char names[32] = "";
	int which = 0;

	memset(x, 0, sizeof *x);
	for (const char *p = spec; *p; p++)
		if (*p >= 'a' && *p <= 'z' && !strchr(names, *p)) {
			names[x->nd] = *p;
			x->n[x->nd++] = size[*p - 'a'];
		}
	for (const char *p = spec; which < 3; which++) {
		size_t len = strcspn(p, ",-");
		int64_t s = 1;

		for (size_t i = len; i-- > 0;) {
			int at = (int)(strchr(names, p[i]) - names);

			x->has[which][at] = true;
			x->stride[which][at] = s;
			s *= x->n[at] + (i ? pad : 0);
		}
		room[which] = s + 1;
		p += len;
		p += *p == ',' ? 1 : *p == '-' ? 2 : 0;
	}
}

static void reference(const struct contraction *x, const double *a, const double *b, double *c)
{
	int64_t at[3 * MAX_DIMS] = { 0 };

	for (;;) {
		int64_t o[3] = { 0 };
		int i;

		for (int k = 0; k < 3; k++)
			for (int d = 0; d < x->nd; d++)
				o[k] += x->has[k][d] ? at[d] * x->stride[k][d] : 0;
		c[o[2]] += a[o[0]] * b[o[1]];
		for (i = x->nd - 1; i >= 0 && ++at[i] == x->n[i]; i--)
			at[i] = 0;
		if (i < 0)
			return;
	}
}

static void check(struct gemm *g, const char *spec, const int64_t *size, int pad, enum dtype da, enum dtype db,
		  enum dtype dc, bool add)
{
	struct contraction x;
	int64_t room[3];
	uint64_t seed = 1;
	enum dtype dt[3] = { da, db, dc };

	parse(spec, size, pad, &x, room);
	x.add = add;
	void *v[3];
	double *d[3];

	for (int k = 0; k < 3; k++) {
		x.dt[k] = dt[k];
		v[k] = malloc((size_t)room[k] * 4);
		d[k] = malloc((size_t)room[k] * sizeof(double));
		for (int64_t i = 0; i < room[k]; i++) {
			nest_store(dt[k], v[k], i, k < 2 ? draw(&seed) * (is_float(dt[k]) ? 1 : 4) : 7);
			d[k][i] = nest_load(dt[k], v[k], i);
		}
	}
	double *want = malloc((size_t)room[2] * sizeof(double));
	char *touched = calloc((size_t)room[2], 1);

	/* what is no element of c must stay */
	for (int64_t i = 0; i < room[2]; i++)
		want[i] = d[2][i];
	int64_t at[3 * MAX_DIMS] = { 0 };

	for (bool more = true; more;) {
		int64_t o = 0;
		int i;

		for (int k = 0; k < x.nd; k++)
			o += x.has[2][k] ? at[k] * x.stride[2][k] : 0;
		touched[o] = 1;
		want[o] = add ? d[2][o] : 0;
		for (i = x.nd - 1; i >= 0 && (!x.has[2][i] || ++at[i] == x.n[i]); i--)
			at[i] = 0;
		more = i >= 0;
	}
	reference(&x, d[0], d[1], want);
	if (!contract(g, &x, v[0], v[1], v[2]))
		fail_msg("%s: %s", spec, gemm_error(g));
	for (int64_t i = 0; i < room[2]; i++) {
		double e = fabs(nest_load(dc, v[2], i) - want[i]), tol = touched[i] ? 1e-4 + (dc == BF16 ? 0.01 * fabs(want[i]) : 0) : 0;

		if (!(e <= tol))
			fail_msg("%s pad %d %s: element %lld is %g, not %g", spec, pad, dtype_name[dc], (long long)i,
				 nest_load(dc, v[2], i), want[i]);
	}
	for (int k = 0; k < 3; k++) {
		free(v[k]);
		free(d[k]);
	}
	free(want);
	free(touched);
}

static const char *const specs[] = {
	"mk,kn->mn", "km,kn->mn", "mk,nk->mn", "km,nk->mn", "mk,kn->nm", "km,nk->nm",       /* transposes */
	"bse,ehd->bshd", "bshd,hde->bse", "bse,bshd->ehd", "bshd,ehd->bse", "bse,ve->bsv",    /* a transformer */
	"bsv,ve->bse", "bsv,bse->ve", "bshd,bchd->bhsc", "bhsc,bchd->bshd",                   /* attention by hand */
	"m,m->", "m,n->mn", "mk,k->m", "k,kn->n", "b,b->b", "mb,mb->b", "bm,bn->bmn",
	"kmb,kbn->mbn", "abc,bcd->da", "akb,kbc->acb", "xk,k->xk", "ijk,kjl->lji", "bs,s->", "bse,be->s",
	"ab,cb->", "abk,k->b", /* sums over a loop of one operand */
	"m,->m", ",n->n", ",->",
};

static void all_patterns(void **state)
{
	(void)state;
	struct gemm *g = gemm_open(1 << 28);
	int64_t small[26], odd[26], one[26];

	for (int i = 0; i < 26; i++) {
		small[i] = 3 + i % 5;
		odd[i] = 1 + (i * 7) % 18;
		one[i] = i % 3 == 0 ? 1 : 5;
	}
	const int64_t *sizes[] = { small, odd, one };

	for (size_t s = 0; s < LEN(specs); s++)
		for (size_t z = 0; z < LEN(sizes); z++)
			for (int pad = 0; pad < 3; pad++) {
				check(g, specs[s], sizes[z], pad, F32, F32, F32, false);
				check(g, specs[s], sizes[z], pad, F32, F32, F32, true);
				check(g, specs[s], sizes[z], pad, BF16, BF16, F32, false);
				check(g, specs[s], sizes[z], pad, BF16, BF16, F32, true);
				check(g, specs[s], sizes[z], pad, BF16, BF16, BF16, false);
				check(g, specs[s], sizes[z], pad, F32, BF16, F32, false);
				check(g, specs[s], sizes[z], pad, INT, F32, F32, false);
			}
	gemm_close(g);
}

static void larger(void **state)
{
	(void)state;
	struct gemm *g = gemm_open(1 << 28);
	int64_t size[26];

	for (int i = 0; i < 26; i++)
		size[i] = 33;
	size['m' - 'a'] = 200;
	size['n' - 'a'] = 130;
	size['k' - 'a'] = 97;
	for (int pad = 0; pad < 2; pad++)
		for (size_t s = 0; s < 6; s++) {
			check(g, specs[s], size, pad, F32, F32, F32, false);
			check(g, specs[s], size, pad, BF16, BF16, F32, true);
			check(g, specs[s], size, pad, BF16, BF16, BF16, false);
		}
	gemm_close(g);
}

/* Little room for copies: the loops are cut until they fit. */
static void in_small_room(void **state)
{
	(void)state;
	struct gemm *g = gemm_open(256 << 10);
	int64_t size[26];

	for (int i = 0; i < 26; i++)
		size[i] = 6;
	size['m' - 'a'] = size['b' - 'a'] = 40;
	size['n' - 'a'] = size['e' - 'a'] = 130;
	size['k' - 'a'] = size['s' - 'a'] = 97;
	for (size_t s = 0; s < LEN(specs); s++) {
		check(g, specs[s], size, 0, BF16, BF16, F32, true);
		check(g, specs[s], size, 1, BF16, BF16, BF16, false);
		check(g, specs[s], size, 1, F32, BF16, F32, false);
	}
	gemm_close(g);
}

/* Three threads: the same as one but for rounding (a library may block smaller parts otherwise), and the same
 * bits each time. */
static void by_a_team(void **state)
{
	(void)state;
	struct team *team = team_open(3);
	struct gemm *g = gemm_team(1 << 28, team), *one = gemm_open(1 << 28);
	enum { M = 300, N = 200, K = 151 };
	float *a = malloc(M * K * 4), *b = malloc(K * N * 4), *c = malloc(M * N * 4), *d = malloc(M * N * 4);
	int64_t size[26] = { 0 }, room[3];
	struct contraction x;
	uint64_t seed = 3;

	size['m' - 'a'] = M;
	size['n' - 'a'] = N;
	size['k' - 'a'] = K;
	parse("mk,kn->mn", size, 0, &x, room);
	for (int i = 0; i < M * K; i++)
		a[i] = (float)draw(&seed);
	for (int i = 0; i < K * N; i++)
		b[i] = (float)draw(&seed);
	assert_true(contract(g, &x, a, b, c));
	assert_true(contract(one, &x, a, b, d));
	for (int i = 0; i < M * N; i++)
		assert_true(fabsf(c[i] - d[i]) <= 1e-5f * K);
	assert_true(contract(g, &x, a, b, d));
	assert_memory_equal(c, d, M * N * 4);
	free(a);
	free(b);
	free(c);
	free(d);
	gemm_close(one);
	gemm_close(g);
	team_close(team);
}

static void nothing_to_sum(void **state)
{
	(void)state;
	struct gemm *g = gemm_open(1 << 20);
	int64_t size[26] = { 0 };

	size['m' - 'a'] = 3;
	size['n' - 'a'] = 4; /* k has no elements: c is zero, or stays */
	struct contraction x;
	int64_t room[3];
	float c[32], z = 0;

	parse("mk,kn->mn", size, 0, &x, room);
	for (int i = 0; i < 32; i++)
		c[i] = 5;
	assert_true(contract(g, &x, &z, &z, c));
	for (int i = 0; i < 12; i++)
		assert_true(c[i] == 0);
	assert_true(c[12] == 5);
	c[0] = 2;
	x.add = true;
	assert_true(contract(g, &x, &z, &z, c));
	assert_true(c[0] == 2);
	gemm_close(g);
}

static void scratch_has_a_limit(void **state)
{
	(void)state;
	struct gemm *g = gemm_open(1 << 20);

	assert_non_null(gemm_scratch(g, SCRATCH_A, 1 << 19));
	assert_null(gemm_scratch(g, SCRATCH_B, 1 << 20));
	assert_non_null(strstr(gemm_error(g), "too small"));
	assert_true(gemm_bytes(g) <= 1 << 20);
	gemm_close(g);
}

static void copies_and_sums(void **state)
{
	(void)state;
	float a[24], b[24], c[24];
	struct nest l = { 3, { 2, 3, 4 }, { 12, 4, 1 }, { 1, 2, 6 } }; /* a permutation */
	const void *src[3] = { a, b, a };

	for (int i = 0; i < 24; i++) {
		a[i] = (float)i;
		b[i] = (float)(100 * i);
	}
	nest_copy(&l, F32, c, F32, a);
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 3; j++)
			for (int k = 0; k < 4; k++)
				assert_true(c[12 * i + 4 * j + k] == a[i + 2 * j + 6 * k]);
	nest_join(&l, F32, c, 3, src, false);
	assert_true(c[1] == 600 + 12);
	nest_join(&l, F32, c, 3, src, true);
	assert_true(c[1] == 600);
	nest_fill(&l, F32, c, -INFINITY);
	assert_true(isinf(c[23]));
	b[0] = NAN;
	nest_join(&l, F32, c, 3, src, true);
	assert_true(isnan(c[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_patterns), cmocka_unit_test(larger), cmocka_unit_test(nothing_to_sum),
		cmocka_unit_test(in_small_room), cmocka_unit_test(by_a_team),
		cmocka_unit_test(scratch_has_a_limit), cmocka_unit_test(copies_and_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
