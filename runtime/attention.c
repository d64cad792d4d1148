/* runtime/attention.c - blocked attention and its gradient, one (batch, head) after the other.
 *
 * A tile of rows meets all keys that it may see: scores by a matrix product, one pass of softmax in
 * float32, a second product; the scores are never stored beyond a tile. The backward makes them
 * again from lse. Keys and values that several query heads share (grouped queries) are found by
 * their stride 0; their gradients are summed in a fixed order in float32. */
#include <math.h>

#include "ir/rng.h"
#include "runtime/internal.h"

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

enum { LANES = 16 };
typedef float vf __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define AT(p) (*(vf *)(p))
#define PICK(mask, a, b) ((vf)(((mask) & (vi)(a)) | (~(mask) & (vi)(b))))

/* e^x to 1 ulp or so; 0 below -87 and for -inf. x <= 88. A macro, so that no vector is passed. */
#define VEXP(x, out) do { \
	vf x_ = (x), t_ = x_ * 1.44269504f + 12582912.0f, n_ = t_ - 12582912.0f; \
	vi live_ = x_ > -87.0f; \
	vf r_ = (x_ - n_ * 0.693359375f) + n_ * 2.12194440e-4f; \
	vf p_ = 1.9875691500e-4f * r_ + 1.3981999507e-3f; \
	p_ = p_ * r_ + 8.3334519073e-3f; \
	p_ = p_ * r_ + 4.1665795894e-2f; \
	p_ = p_ * r_ + 1.6666665459e-1f; \
	p_ = p_ * r_ + 5.0000001201e-1f; \
	p_ = p_ * r_ * r_ + r_ + 1.0f; \
	(out) = (vf)(((vi)p_ + ((vi)t_ << 23)) & live_); \
} while (0)

static int64_t round_lanes(int64_t n)
{
	return (n + LANES - 1) / LANES * LANES;
}

/* s[0..n) = e^(scale s - max), *sum of them; the largest of scale s is returned. s has room up to the
 * next multiple of LANES. */
FAST static float softmax_row(float *s, int64_t n, float scale, float *sum)
{
	int64_t full = round_lanes(n);
	vf m = { 0 }, l = { 0 };
	float top = -INFINITY, total = 0;

	for (int64_t j = n; j < full; j++)
		s[j] = scale < 0 ? INFINITY : -INFINITY;
	m = m - INFINITY;
	for (int64_t j = 0; j < full; j += LANES) {
		vf x = AT(s + j) * scale;
		vi more = (x > m) | (x != x);

		m = PICK(more, x, m);
	}
	for (int i = 0; i < LANES; i++)
		top = m[i] > top || isnan(m[i]) ? m[i] : top;
	float zero = top == -INFINITY ? 0 : top;

	for (int64_t j = 0; j < full; j += LANES) {
		vf x = AT(s + j) * scale - zero, e;

		VEXP(x, e);
		AT(s + j) = e;
		l += e;
	}
	for (int i = 0; i < LANES; i++)
		total += l[i];
	*sum = isnan(top) ? top : total;
	return top;
}

/* p = e^(scale p - lse) */
FAST static void exp_row(float *p, int64_t n, float scale, float lse)
{
	for (int64_t j = 0; j < round_lanes(n); j += LANES) {
		vf e;

		VEXP(AT(p + j) * scale - lse, e);
		AT(p + j) = e;
	}
}

/* g = p (g - d) scale */
FAST static void grad_row(float *g, const float *p, int64_t n, float d, float scale)
{
	for (int64_t j = 0; j < round_lanes(n); j += LANES)
		AT(g + j) = AT(p + j) * (AT(g + j) - d) * scale;
}

FAST static void scale_row(float *x, int64_t n, float by)
{
	for (int64_t j = 0; j < n; j++)
		x[j] *= by;
}

FAST static void mul_row(float *x, const float *y, int64_t n)
{
	for (int64_t j = 0; j < n; j++)
		x[j] *= y[j];
}

/* -- dropout masks -- */

enum { WIDE = 8 };
typedef uint64_t vu __attribute__((vector_size(8 * WIDE), aligned(8)));

static const vu lane_no = { 0, 1, 2, 3, 4, 5, 6, 7 };

/* 4 WIDE numbers from block b on: u < limit is dropped. */
FAST static void mask_blocks(float *keep, uint64_t key, uint64_t b, uint32_t step, uint32_t iter, uint64_t limit,
			     float with)
{
	const uint64_t low = 0xffffffff;
	vu block = lane_no + b, c0 = block & low, c1 = block >> 32, c2 = block * 0 + step, c3 = block * 0 + iter;
	uint64_t k0 = key & low, k1 = key >> 32;

	for (int round = 0; round < 10; round++) {
		vu p0 = c0 * 0xD2511F53ull, p1 = c2 * 0xCD9E8D57ull;
		vu n0 = (p1 >> 32) ^ c1 ^ k0, n2 = (p0 >> 32) ^ c3 ^ k1;

		c1 = p1 & low;
		c3 = p0 & low;
		c0 = n0;
		c2 = n2;
		k0 = (k0 + 0x9E3779B9u) & low;
		k1 = (k1 + 0xBB67AE85u) & low;
	}
	for (int i = 0; i < WIDE; i++) {
		keep[4 * i] = c0[i] < limit ? 0 : with;
		keep[4 * i + 1] = c1[i] < limit ? 0 : with;
		keep[4 * i + 2] = c2[i] < limit ? 0 : with;
		keep[4 * i + 3] = c3[i] < limit ? 0 : with;
	}
}

static void mask_row(const struct attention *x, float *keep, int64_t n, uint64_t base)
{
	/* u = w / 2^32 < p, w an integer */
	uint64_t limit = (uint64_t)ceil(x->p * 4294967296.0);
	float with = (float)(1 / (1 - x->p)), w[4 * WIDE];

	if (x->rng_col != 1) {
		for (int64_t j = 0; j < n; j++)
			keep[j] = rng_uniform(x->key, base + (uint64_t)j * x->rng_col, x->step, x->iter) < x->p ? 0 : with;
		return;
	}
	for (int64_t j = 0; j < n;) {
		uint64_t i = base + (uint64_t)j;
		int64_t skip = (int64_t)(i % 4), m = 4 * WIDE - skip < n - j ? 4 * WIDE - skip : n - j;

		mask_blocks(w, x->key, i / 4, x->step, x->iter, limit, with);
		memcpy(keep + j, w + skip, (size_t)m * sizeof *keep);
		j += m;
	}
}

/* -- operands as float32 matrices -- */

struct mat {
	float *x;
	int64_t ld;
};

struct work {
	struct gemm *g;
	const struct attention *x;
	int64_t tile, ld;                 /* rows of a tile; leading dim of scores */
	float *s, *ds, *keep;             /* scores, their gradient, a row's mask */
	float *q, *k, *v, *o, *dov, *dq, *dk, *dvv; /* packed; also accumulators */
	int64_t at[MAX_LOOPS], off[NAT];  /* where the loops stand; element offsets */
};

static int64_t width(const struct attention *x, int which)
{
	return which == AT_V || which == AT_O || which == AT_DO || which == AT_DV ? x->dv : x->d;
}

static struct nest rows_of(const struct attention *x, int which, int64_t n)
{
	int64_t w = width(x, which);

	return (struct nest){ 2, { n, w }, { w, 1 }, { x->row_stride[which], x->d_stride[which] } };
}

/* n rows of an operand from row r on: as they lie, or packed to `room`. */
static struct mat matrix(const struct work *w, void *const *at, int which, int64_t r, int64_t n, float *room)
{
	const struct attention *x = w->x;
	int64_t off = w->off[which] + r * x->row_stride[which], wide = width(x, which);

	if (x->dt == F32 && (x->d_stride[which] == 1 || wide == 1) && (n == 1 || x->row_stride[which] >= wide))
		return (struct mat){ (float *)at[which] + off, n == 1 ? wide : x->row_stride[which] };
	struct nest l = rows_of(x, which, n);

	nest_copy(&l, F32, room, x->dt, (const char *)at[which] + off * dtype_bytes(x->dt));
	return (struct mat){ room, wide };
}

static void put(const struct work *w, void *const *at, int which, int64_t r, int64_t n, const float *from)
{
	const struct attention *x = w->x;
	struct nest l = rows_of(x, which, n), back = l;

	memcpy(back.ds, l.ss, sizeof back.ds);
	memcpy(back.ss, l.ds, sizeof back.ss);
	nest_copy(&back, x->dt, (char *)at[which] + (w->off[which] + r * x->row_stride[which]) * dtype_bytes(x->dt), F32,
		  from);
}

static bool work_open(struct work *w, struct gemm *g, const struct attention *x, bool backward)
{
	int64_t cols = x->cols > 0 ? x->cols : 1, wide = x->d > x->dv ? x->d : x->dv;

	*w = (struct work){ .g = g, .x = x };
	w->ld = round_lanes(cols);
	if (w->ld % 1024 == 0)
		w->ld += LANES;
	w->tile = 131072 / w->ld;
	w->tile = w->tile < 16 ? 16 : w->tile > 64 ? 64 : w->tile;
	int64_t scores = w->tile * w->ld, rows = round_lanes(w->tile * wide), keys = round_lanes(cols * wide);
	float *p = gemm_scratch(g, SCRATCH_ATTENTION,
				4 * ((backward ? 2 : 1) * scores + w->ld + 4 * rows + (backward ? 4 : 2) * keys));

	if (!p)
		return false;
	w->s = p;
	w->ds = backward ? (p += scores) : NULL;
	w->keep = p += scores;
	w->q = p += w->ld;
	w->o = p += rows;
	w->dov = p += rows;
	w->dq = p += rows;
	w->k = p += rows;
	w->v = p += keys;
	w->dk = backward ? (p += keys) : NULL;
	w->dvv = backward ? p + keys : NULL;
	return true;
}

/* How many keys row r sees. */
static int64_t seen(const struct attention *x, int64_t r)
{
	int64_t n = x->row_start + r + 1;

	return !x->causal || n > x->cols ? x->cols : n < 0 ? 0 : n;
}

static uint64_t mask_base(const struct work *w, int64_t row)
{
	uint64_t i = w->x->rng_base + (uint64_t)row * w->x->rng_row;

	for (int l = 0; l < w->x->nloop; l++)
		i += (uint64_t)w->at[l] * w->x->rng_loop[l];
	return i;
}

/* u = cap tanh(scale s / cap); t keeps 1 - tanh^2 if asked for. */
static void cap_row(const struct attention *x, float *s, int64_t n, float *t)
{
	for (int64_t j = 0; j < n; j++) {
		float h = tanhf(s[j] * (float)(x->scale / x->cap));

		s[j] = (float)x->cap * h;
		if (t)
			t[j] = 1 - h * h;
	}
}

/* Next of the loops whose `keys` is as said; offsets follow. */
static bool next_loop(struct work *w, bool keys)
{
	const struct attention *x = w->x;

	for (int i = x->nloop - 1; i >= 0; i--) {
		if (x->keys[i] != keys)
			continue;
		int64_t by = ++w->at[i] < x->n[i] ? 1 : 1 - x->n[i];

		if (by != 1)
			w->at[i] = 0;
		for (int k = 0; k < NAT; k++)
			w->off[k] += by * x->stride[k][i];
		if (by == 1)
			return true;
	}
	return false;
}

/* Is there nothing to do? A loop that only queries have, of no steps, leaves no rows. */
static bool empty(struct attention *x)
{
	for (int i = 0; i < x->nloop; i++) {
		if (x->n[i] > 0)
			continue;
		if (x->keys[i])
			return true;
		x->n[i] = 1;
		x->rows = 0;
	}
	return false;
}

/* -- forward -- */

static void forward_row(struct work *w, int64_t row, float *s, int64_t cols, float *lse, float *inverse)
{
	const struct attention *x = w->x;
	int64_t n = seen(x, row);
	float sum = 0, top;

	if (x->cap)
		cap_row(x, s, n, NULL);
	top = softmax_row(s, n, x->cap ? 1 : (float)x->scale, &sum);
	*lse = n > 0 ? top + logf(sum) : -INFINITY;
	*inverse = sum > 0 ? 1 / sum : n > 0 ? sum : 0;
	if (x->p > 0 && n > 0) {
		mask_row(x, w->keep, n, mask_base(w, row));
		mul_row(s, w->keep, n);
	}
	if (n < cols)
		memset(s + n, 0, (size_t)(cols - n) * sizeof *s);
}

static bool forward_tile(struct work *w, void *const *at, int64_t r, int64_t n, struct mat k, struct mat v)
{
	const struct attention *x = w->x;
	int64_t cols = seen(x, r + n - 1);
	struct mat q = matrix(w, at, AT_Q, r, n, w->q);
	float *lse = (float *)at[AT_LSE] + w->off[AT_LSE];
	float inverse[64];

	if (cols > 0 && !gemm_f32(w->g, false, true, n, cols, x->d, q.x, q.ld, k.x, k.ld, 0, w->s, w->ld))
		return false;
	for (int64_t i = 0; i < n; i++)
		forward_row(w, r + i, w->s + i * w->ld, cols, &lse[(r + i) * x->row_stride[AT_LSE]], &inverse[i]);
	if (cols <= 0)
		memset(w->o, 0, (size_t)(n * x->dv) * sizeof *w->o);
	else if (!gemm_f32(w->g, false, false, n, x->dv, cols, w->s, w->ld, v.x, v.ld, 0, w->o, x->dv))
		return false;
	for (int64_t i = 0; i < n; i++)
		scale_row(w->o + i * x->dv, x->dv, inverse[i]);
	put(w, at, AT_O, r, n, w->o);
	return true;
}

bool attention_forward(struct gemm *g, const struct attention *given, void *const *at)
{
	struct attention copy = *given, *x = &copy;
	struct work w;

	if (empty(x) || x->rows <= 0)
		return true;
	if (!work_open(&w, g, x, false))
		return false;
	do {
		struct mat k = matrix(&w, at, AT_K, 0, x->cols, w.k), v = matrix(&w, at, AT_V, 0, x->cols, w.v);

		do {
			for (int64_t r = 0; r < x->rows; r += w.tile) {
				int64_t n = x->rows - r < w.tile ? x->rows - r : w.tile;

				if (!forward_tile(&w, at, r, n, k, v))
					return false;
			}
		} while (next_loop(&w, false));
	} while (next_loop(&w, true));
	return true;
}

/* -- backward -- */

static float dot(const float *a, const float *b, int64_t n)
{
	float s = 0;

	for (int64_t i = 0; i < n; i++)
		s += a[i] * b[i];
	return s;
}

/* s: scores in, what multiplies do out; ds: the gradient of what is softmaxed in, of the scores out. */
static void backward_row(struct work *w, int64_t row, float *s, float *ds, int64_t cols, float lse, float d)
{
	const struct attention *x = w->x;
	int64_t n = seen(x, row);

	if (n > 0 && x->cap)
		cap_row(x, s, n, NULL);
	if (n > 0) {
		float *keep = w->keep;

		if (x->p > 0) {
			mask_row(x, keep, n, mask_base(w, row));
			mul_row(ds, keep, n);
		}
		if (x->cap) { /* the mask has been used on ds; 1 - tanh^2 goes in by u = cap tanh */
			for (int64_t j = 0; j < n; j++) {
				float h = s[j] / (float)x->cap, p = expf(s[j] - lse);

				ds[j] = p * (ds[j] - d) * (1 - h * h) * (float)x->scale;
				s[j] = p;
			}
		} else {
			exp_row(s, n, (float)x->scale, lse);
			grad_row(ds, s, n, d, (float)x->scale);
		}
		if (x->p > 0)
			mul_row(s, keep, n);
	}
	if (n < cols) {
		memset(s + n, 0, (size_t)(cols - n) * sizeof *s);
		memset(ds + n, 0, (size_t)(cols - n) * sizeof *ds);
	}
}

static bool backward_tile(struct work *w, void *const *at, int64_t r, int64_t n, struct mat k, struct mat v)
{
	const struct attention *x = w->x;
	int64_t cols = seen(x, r + n - 1), d = x->d, dv = x->dv, ld = w->ld;
	struct mat q = matrix(w, at, AT_Q, r, n, w->q), o = matrix(w, at, AT_O, r, n, w->o);
	struct mat g = matrix(w, at, AT_DO, r, n, w->dov);
	const float *lse = (const float *)at[AT_LSE] + w->off[AT_LSE];

	if (cols <= 0) {
		memset(w->dq, 0, (size_t)(n * d) * sizeof *w->dq);
		put(w, at, AT_DQ, r, n, w->dq);
		return true;
	}
	if (!gemm_f32(w->g, false, true, n, cols, d, q.x, q.ld, k.x, k.ld, 0, w->s, ld) ||
	    !gemm_f32(w->g, false, true, n, cols, dv, g.x, g.ld, v.x, v.ld, 0, w->ds, ld))
		return false;
	for (int64_t i = 0; i < n; i++)
		backward_row(w, r + i, w->s + i * ld, w->ds + i * ld, cols, lse[(r + i) * x->row_stride[AT_LSE]],
			     dot(o.x + i * o.ld, g.x + i * g.ld, dv));
	if (!gemm_f32(w->g, true, false, cols, dv, n, w->s, ld, g.x, g.ld, 1, w->dvv, dv) ||
	    !gemm_f32(w->g, true, false, cols, d, n, w->ds, ld, q.x, q.ld, 1, w->dk, d) ||
	    !gemm_f32(w->g, false, false, n, d, cols, w->ds, ld, k.x, k.ld, 0, w->dq, d))
		return false;
	put(w, at, AT_DQ, r, n, w->dq);
	return true;
}

bool attention_backward(struct gemm *g, const struct attention *given, void *const *at)
{
	struct attention copy = *given, *x = &copy;
	struct work w;

	if (empty(x))
		return true;
	if (!work_open(&w, g, x, true))
		return false;
	do {
		struct mat k = matrix(&w, at, AT_K, 0, x->cols, w.k), v = matrix(&w, at, AT_V, 0, x->cols, w.v);

		memset(w.dk, 0, (size_t)(x->cols * x->d) * sizeof *w.dk);
		memset(w.dvv, 0, (size_t)(x->cols * x->dv) * sizeof *w.dvv);
		do {
			for (int64_t r = 0; r < x->rows; r += w.tile) {
				int64_t n = x->rows - r < w.tile ? x->rows - r : w.tile;

				if (!backward_tile(&w, at, r, n, k, v))
					return false;
			}
		} while (next_loop(&w, false));
		put(&w, at, AT_DK, 0, x->cols, w.dk);
		put(&w, at, AT_DV, 0, x->cols, w.dvv);
	} while (next_loop(&w, true));
	return true;
}
