/* runtime/nest.c - strided loops over tensors: copies, sums and conversions between layouts. */
#include <math.h>

#include "runtime/internal.h"
#include "runtime/vector.h"

void nest_simplify(struct nest *l)
{
	int nd = 0;

	for (int i = 0; i < l->nd; i++) {
		if (l->n[i] == 1)
			continue;
		if (nd && l->ds[nd - 1] == l->n[i] * l->ds[i] && l->ss[nd - 1] == l->n[i] * l->ss[i]) {
			l->n[nd - 1] *= l->n[i];
			l->ds[nd - 1] = l->ds[i];
			l->ss[nd - 1] = l->ss[i];
			continue;
		}
		l->n[nd] = l->n[i];
		l->ds[nd] = l->ds[i];
		l->ss[nd] = l->ss[i];
		nd++;
	}
	l->nd = nd;
}

bool nest_empty(const struct nest *l)
{
	for (int i = 0; i < l->nd; i++)
		if (l->n[i] <= 0)
			return true;
	return false;
}

/* Steps through all but the innermost loop. */
struct walk {
	int64_t at[MAX_DIMS + 2], d, s;
};

static bool walk_next(const struct nest *l, struct walk *w)
{
	for (int i = l->nd - 2; i >= 0; i--) {
		w->d += l->ds[i];
		w->s += l->ss[i];
		if (++w->at[i] < l->n[i])
			return true;
		w->d -= l->n[i] * l->ds[i];
		w->s -= l->n[i] * l->ss[i];
		w->at[i] = 0;
	}
	return false;
}

static int64_t inner(const struct nest *l, int64_t *ds, int64_t *ss)
{
	*ds = l->nd ? l->ds[l->nd - 1] : 1;
	*ss = l->nd ? l->ss[l->nd - 1] : 1;
	return l->nd ? l->n[l->nd - 1] : 1;
}

double nest_load(enum dtype dt, const void *p, int64_t i)
{
	switch (dt) {
	case F32:
		return ((const float *)p)[i];
	case BF16:
		return bf16_float(((const uint16_t *)p)[i]);
	case INT:
		return ((const int32_t *)p)[i];
	default:
		return ((const uint8_t *)p)[i];
	}
}

void nest_store(enum dtype dt, void *p, int64_t i, double x)
{
	switch (dt) {
	case F32:
		((float *)p)[i] = (float)x;
		break;
	case BF16:
		((uint16_t *)p)[i] = float_bf16((float)x);
		break;
	case INT:
		((int32_t *)p)[i] = (int32_t)x;
		break;
	default:
		((uint8_t *)p)[i] = x != 0;
	}
}

/* -- runs of neighbours -- */

FAST static void widen(float *d, const uint16_t *s, int64_t n)
{
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		*(vw *)(d + i) = __builtin_convertvector(*(const vh *)(s + i), vw) << 16;
	for (; i < n; i++)
		d[i] = bf16_float(s[i]);
}

FAST static void narrow(uint16_t *d, const float *s, int64_t n)
{
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		vw u = *(const vw *)(s + i), even = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
		vw odd = (vw)((u & 0x7fffffff) > 0x7f800000);

		*(vh *)(d + i) = __builtin_convertvector((odd & nan) | (~odd & even), vh);
	}
	for (; i < n; i++)
		d[i] = float_bf16(s[i]);
}

FAST static void add_run(float *d, const float *s, int64_t n)
{
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		AT(d + i) = GET(d + i) + GET(s + i);
	for (; i < n; i++)
		d[i] += s[i];
}

FAST static void max_run(float *d, const float *s, int64_t n)
{
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		vf a = GET(d + i), b = GET(s + i);
		vi keep = (a > b) | (a != a);

		AT(d + i) = PICK(keep, a, b);
	}
	for (; i < n; i++)
		d[i] = d[i] > s[i] || isnan(d[i]) ? d[i] : s[i];
}

#define STRIDED(T) for (int64_t i = 0; i < n; i++) ((T *)dst)[i * ds] = ((const T *)src)[i * ss]

static void copy_run(enum dtype dt, void *dst, int64_t ds, const void *src, int64_t ss, int64_t n)
{
	if (ds == 1 && ss == 1) {
		memcpy(dst, src, (size_t)(n * dtype_bytes(dt)));
		return;
	}
	switch (dtype_bytes(dt)) {
	case 4:
		STRIDED(uint32_t);
		break;
	case 2:
		STRIDED(uint16_t);
		break;
	default:
		STRIDED(uint8_t);
	}
}

static void convert_run(enum dtype ddt, void *dst, int64_t ds, enum dtype sdt, const void *src, int64_t ss,
			int64_t n)
{
	if (ddt == F32 && sdt == BF16 && ds == 1 && ss == 1) {
		widen(dst, src, n);
	} else if (ddt == BF16 && sdt == F32 && ds == 1 && ss == 1) {
		narrow(dst, src, n);
	} else if (ddt == F32 && sdt == BF16) {
		for (int64_t i = 0; i < n; i++)
			((float *)dst)[i * ds] = bf16_float(((const uint16_t *)src)[i * ss]);
	} else if (ddt == BF16 && sdt == F32) {
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)dst)[i * ds] = float_bf16(((const float *)src)[i * ss]);
	} else {
		for (int64_t i = 0; i < n; i++)
			nest_store(ddt, dst, i * ds, nest_load(sdt, src, i * ss));
	}
}

static void copy(const struct nest *x, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	struct nest l = *x;
	struct walk w = { 0 };
	int64_t ds, ss;

	if (nest_empty(&l))
		return;
	nest_simplify(&l);
	int64_t n = inner(&l, &ds, &ss), db = dtype_bytes(ddt), sb = dtype_bytes(sdt);

	do {
		char *d = (char *)dst + w.d * db;
		const char *s = (const char *)src + w.s * sb;

		if (ddt == sdt)
			copy_run(ddt, d, ds, s, ss, n);
		else
			convert_run(ddt, d, ds, sdt, s, ss, n);
	} while (walk_next(&l, &w));
}

static void add(const struct nest *x, enum dtype dt, void *dst, const void *src)
{
	struct nest l = *x;
	struct walk w = { 0 };
	int64_t ds, ss;

	if (nest_empty(&l))
		return;
	nest_simplify(&l);
	int64_t n = inner(&l, &ds, &ss), b = dtype_bytes(dt);

	do {
		char *d = (char *)dst + w.d * b;
		const char *s = (const char *)src + w.s * b;

		if (dt == F32 && ds == 1 && ss == 1) {
			add_run((float *)d, (const float *)s, n);
		} else if (dt == F32) {
			for (int64_t i = 0; i < n; i++)
				((float *)d)[i * ds] += ((const float *)s)[i * ss];
		} else if (dt == INT) {
			for (int64_t i = 0; i < n; i++)
				((int32_t *)d)[i * ds] += ((const int32_t *)s)[i * ss];
		} else {
			for (int64_t i = 0; i < n; i++)
				nest_store(dt, d, i * ds, nest_load(dt, d, i * ds) + nest_load(dt, s, i * ss));
		}
	} while (walk_next(&l, &w));
}

/* -- by all threads of a rank -- */

enum { WORTH = 1 << 16 }; /* elements, before a copy is shared out */

struct job {
	const struct nest *l;
	enum dtype ddt, sdt;
	bool adds;
	void *dst;
	const void *src;
	int along; /* which loop is cut */
};

static void run_part(void *arg, int me, int n)
{
	const struct job *j = arg;
	struct nest l = *j->l;
	int64_t from = l.n[j->along] * me / n, to = l.n[j->along] * (me + 1) / n;
	char *d = (char *)j->dst + from * l.ds[j->along] * dtype_bytes(j->ddt);
	const char *s = (const char *)j->src + from * l.ss[j->along] * dtype_bytes(j->sdt);

	l.n[j->along] = to - from;
	if (j->adds)
		add(&l, j->ddt, d, s);
	else
		copy(&l, j->ddt, d, j->sdt, s);
}

static void share(struct team *t, struct job *j)
{
	int64_t n = 1;

	for (int i = 0; i < j->l->nd; i++) {
		n *= j->l->n[i];
		if (j->l->n[i] > j->l->n[j->along])
			j->along = i;
	}
	if (n < WORTH || team_size(t) == 1)
		run_part(j, 0, 1);
	else
		team_run(t, run_part, j);
}

void nest_copy_by(struct team *t, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	struct job j = { l, ddt, sdt, false, dst, src, 0 };

	if (l->nd)
		share(t, &j);
	else
		copy(l, ddt, dst, sdt, src);
}

void nest_add_by(struct team *t, const struct nest *l, enum dtype dt, void *dst, const void *src)
{
	struct job j = { l, dt, dt, true, dst, src, 0 };

	if (l->nd)
		share(t, &j);
	else
		add(l, dt, dst, src);
}

void nest_copy(const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	copy(l, ddt, dst, sdt, src);
}

void nest_add(const struct nest *l, enum dtype dt, void *dst, const void *src)
{
	add(l, dt, dst, src);
}

void nest_fill(const struct nest *x, enum dtype dt, void *dst, double v)
{
	struct nest l = *x;
	struct walk w = { 0 };
	int64_t ds, ss;

	if (nest_empty(&l))
		return;
	memcpy(l.ss, l.ds, sizeof l.ss);
	nest_simplify(&l);
	int64_t n = inner(&l, &ds, &ss), b = dtype_bytes(dt);

	do {
		if (ds == 1 && v == 0) {
			memset((char *)dst + w.d * b, 0, (size_t)(n * b));
			continue;
		}
		for (int64_t i = 0; i < n; i++)
			nest_store(dt, dst, w.d + i * ds, v);
	} while (walk_next(&l, &w));
}

enum { BLOCK = 512 };

/* acc (+)= or max= n elements of src. Sums of floats are taken in float32, in the order of calls. */
static void join_f32(float *acc, enum dtype dt, const void *src, int64_t ss, int64_t n, bool max, bool first)
{
	float t[BLOCK];
	const float *s = t;

	if (dt == F32 && ss == 1)
		s = src;
	else if (dt == F32)
		copy_run(F32, t, 1, src, ss, n);
	else
		convert_run(F32, t, 1, BF16, src, ss, n);
	if (first)
		memcpy(acc, s, (size_t)n * sizeof *acc);
	else if (!max)
		add_run(acc, s, n);
	else
		max_run(acc, s, n);
}

static void join_ints(enum dtype dt, char *d, int64_t ds, int k, const void *const *src, int64_t so, int64_t ss,
		      int64_t n, bool max)
{
	for (int64_t i = 0; i < n; i++) {
		double x = nest_load(dt, src[0], so + i * ss);

		for (int c = 1; c < k; c++) {
			double y = nest_load(dt, src[c], so + i * ss);

			x = max ? (y > x ? y : x) : x + y;
		}
		nest_store(dt, d, i * ds, x);
	}
}

void nest_join(const struct nest *x, enum dtype dt, void *dst, int k, const void *const *src, bool max)
{
	struct nest l = *x;
	struct walk w = { 0 };
	int64_t ds, ss;

	if (nest_empty(&l))
		return;
	nest_simplify(&l);
	int64_t n = inner(&l, &ds, &ss), b = dtype_bytes(dt);
	float acc[BLOCK];

	do {
		for (int64_t i = 0; i < n; i += BLOCK) {
			int64_t m = n - i < BLOCK ? n - i : BLOCK, so = w.s + i * ss;
			char *d = (char *)dst + (w.d + i * ds) * b;

			if (!is_float(dt)) {
				join_ints(dt, d, ds, k, src, so, ss, m, max);
				continue;
			}
			for (int c = 0; c < k; c++)
				join_f32(acc, dt, (const char *)src[c] + so * b, ss, m, max, c == 0);
			if (dt == F32)
				copy_run(dt, d, ds, acc, 1, m);
			else
				convert_run(dt, d, ds, F32, acc, 1, m);
		}
	} while (walk_next(&l, &w));
}
