/* runtime/attention.c - blocked attention and its gradient, one (batch, head) after the other.
 *
 * A tile of rows meets all keys that it may see: scores by a matrix product, one pass of softmax in
 * float32, a second product; the scores are never stored beyond a tile. Keys are taken in the order of their
 * indices, and a tile is of rows whose indices follow each other, whatever the order in memory, so that what a
 * tile sees are the first keys. A bias, mask or window is read
 * where it lies. The backward makes scores again from lse. Keys and values that several query heads
 * share (grouped queries) are found by their stride 0; their gradients are summed in a fixed order in
 * float32. The threads of a rank take the sets of keys in turn.
 *
 * With `join` the keys are a block of more: results of blocks are normalized each and joined by their lse
 * (o = sum of o_i e^(lse_i - lse)), which needs no order of blocks and leaves rows without keys alone. */
#include <math.h>

#include "ir/rng.h"
#include "runtime/internal.h"
#include "runtime/vector.h"

/* e^x to 1 ulp or so; 0 below -87 and for -inf; NaN stays. x <= 88. A macro, so that no vector is passed. */
#define VEXP(x, out) do { \
	vf x_ = (x), t_ = x_ * 1.44269504f + 12582912.0f, n_ = t_ - 12582912.0f; \
	vi dead_ = x_ <= -87.0f; \
	vf r_ = (x_ - n_ * 0.693359375f) + n_ * 2.12194440e-4f; \
	vf p_ = 1.9875691500e-4f * r_ + 1.3981999507e-3f; \
	p_ = p_ * r_ + 8.3334519073e-3f; \
	p_ = p_ * r_ + 4.1665795894e-2f; \
	p_ = p_ * r_ + 1.6666665459e-1f; \
	p_ = p_ * r_ + 5.0000001201e-1f; \
	p_ = p_ * r_ * r_ + r_ + 1.0f; \
	(out) = (vf)(((vw)p_ + ((vw)t_ << 23)) & ~(vw)dead_); \
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
		vi more = x > m; /* NaN is found in the sum */

		m = PICK(more, x, m);
	}
	for (int i = 0; i < LANES; i++)
		top = m[i] > top ? m[i] : top;
	float zero = top == -INFINITY ? 0 : top;

	for (int64_t j = 0; j < full; j += LANES) {
		vf x = AT(s + j) * scale - zero, e;

		VEXP(x, e);
		AT(s + j) = e;
		l += e;
	}
	for (int i = 0; i < LANES; i++)
		total += l[i];
	*sum = total;
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

/* Keys that lie together: number `to` on of those at work, `at` on in memory, `index` on in {ctx}. */
struct run {
	int64_t to, at, index, n;
};

static void mask_run(const struct attention *x, float *keep, int64_t n, uint64_t base)
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
	float *s, *ds, *keep, *slope;     /* scores, their gradient; of a row: the mask, du / d(q.k) */
	bool plain;                       /* u = scale q.k */
	double scores;                    /* made so far */
	struct run *run;                  /* of the keys, in order of their indices */
	int64_t nrun;
	float *q, *k, *v, *o, *dov, *dq, *dk, *dvv; /* packed; also accumulators */
	int64_t at[MAX_LOOPS], off[NPLACE]; /* where the loops stand; element offsets */
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

static void get(const struct work *w, void *const *at, int which, int64_t r, int64_t n, float *room)
{
	const struct attention *x = w->x;
	struct nest l = rows_of(x, which, n);

	nest_copy(&l, F32, room, x->dt,
		  (const char *)at[which] + (w->off[which] + r * x->row_stride[which]) * dtype_bytes(x->dt));
}

/* n rows of an operand from row r on: as they lie, or packed to `room`. */
static struct mat matrix(const struct work *w, void *const *at, int which, int64_t r, int64_t n, float *room)
{
	const struct attention *x = w->x;
	int64_t off = w->off[which] + r * x->row_stride[which], wide = width(x, which);

	if (x->dt == F32 && (x->d_stride[which] == 1 || wide == 1) && (n == 1 || x->row_stride[which] >= wide))
		return (struct mat){ (float *)at[which] + off, n == 1 ? wide : x->row_stride[which] };
	get(w, at, which, r, n, room);
	return (struct mat){ room, wide };
}

/* All keys, in order. */
static struct mat keys_of(const struct work *w, void *const *at, int which, float *room)
{
	int64_t wide = width(w->x, which);

	if (w->nrun <= 1)
		return matrix(w, at, which, 0, w->x->cols, room);
	for (int64_t i = 0; i < w->nrun; i++)
		get(w, at, which, w->run[i].at, w->run[i].n, room + w->run[i].to * wide);
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

/* The same, added to what is there, which is float32. */
static void grow(const struct work *w, void *const *at, int which, int64_t r, int64_t n, const float *from)
{
	const struct attention *x = w->x;
	struct nest l = rows_of(x, which, n), back = l;

	memcpy(back.ds, l.ss, sizeof back.ds);
	memcpy(back.ss, l.ds, sizeof back.ss);
	nest_add(&back, F32, (float *)at[which] + w->off[which] + r * x->row_stride[which], from);
}

static void give(const struct work *w, void *const *at, int which, int64_t r, int64_t n, const float *from)
{
	if (w->x->join)
		grow(w, at, which, r, n, from);
	else
		put(w, at, which, r, n, from);
}

static void put_keys(const struct work *w, void *const *at, int which, const float *from)
{
	for (int64_t i = 0; i < w->nrun; i++)
		give(w, at, which, w->run[i].at, w->run[i].n, from + w->run[i].to * width(w->x, which));
}

/* At most so many runs; they are found chunk by chunk, in order of index. */
static int64_t most_runs(const struct attention *x)
{
	return x->col.zigzag ? 2 * (int64_t)x->col.zigzag : 1;
}

static void find_runs(struct work *w)
{
	const struct order *o = &w->x->col;
	int64_t chunks = most_runs(w->x), size = o->zigzag ? o->size / chunks : w->x->cols, to = 0;

	for (int64_t c = 0; c < chunks; c++) {
		int64_t first = zigzag_position(o->size, o->zigzag, c * size) - (o->zigzag ? o->start : 0), last = first + size;
		int64_t at = first < 0 ? 0 : first, end = last < w->x->cols ? last : w->x->cols;

		if (at >= end)
			continue;
		w->run[w->nrun++] = (struct run){ to, at, order_index(o, at), end - at };
		to += end - at;
	}
}

static bool work_open(struct work *w, struct gemm *g, const struct attention *x, bool backward)
{
	int64_t cols = x->cols > 0 ? x->cols : 1, wide = x->d > x->dv ? x->d : x->dv;
	int64_t runs = round_lanes(most_runs(x) * (int64_t)(sizeof(struct run) / sizeof(float)));

	*w = (struct work){ .g = g, .x = x, .plain = !x->cap };
	for (int k = 0; k < NPLACE - NAT; k++)
		w->plain &= !x->extra[k].there;
	w->ld = round_lanes(cols);
	if (w->ld % 1024 == 0)
		w->ld += LANES;
	w->tile = 131072 / w->ld;
	w->tile = w->tile < 16 ? 16 : w->tile > 64 ? 64 : w->tile;
	int64_t scores = w->tile * w->ld, rows = round_lanes(w->tile * wide), keys = round_lanes(cols * wide);
	float *p = gemm_scratch(g, SCRATCH_ATTENTION,
				4 * (runs + (backward ? 2 : 1) * scores + 2 * w->ld + 4 * rows + (backward ? 4 : 2) * keys));

	if (!p)
		return false;
	w->run = (struct run *)(void *)p;
	find_runs(w);
	w->s = p += runs;
	w->ds = backward ? (p += scores) : NULL;
	w->keep = p += scores;
	w->slope = p += w->ld;
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

/* How many keys row r sees: the first ones. */
static int64_t seen(const struct work *w, int64_t r)
{
	int64_t end = order_index(&w->x->row, r) + 1, n = 0;

	if (!w->x->causal)
		return w->x->cols;
	for (int64_t i = 0; i < w->nrun && w->run[i].index < end; i++)
		n += end - w->run[i].index < w->run[i].n ? end - w->run[i].index : w->run[i].n;
	return n;
}

static uint64_t mask_base(const struct work *w, int64_t row)
{
	const struct attention *x = w->x;
	uint64_t i = x->rng_base + (uint64_t)(order_index(&x->row, row) - x->row.start) * x->rng_row;

	for (int l = 0; l < x->nloop; l++)
		i += (uint64_t)(order_index(&x->loop[l], w->at[l]) - x->loop[l].start) * x->rng_loop[l];
	return i;
}

/* Part of run i that is among the first n keys; 0: that was the last. */
static int64_t run_part_of(const struct work *w, int64_t i, int64_t n)
{
	int64_t left = i < w->nrun ? n - w->run[i].to : 0;

	return left <= 0 ? 0 : left < w->run[i].n ? left : w->run[i].n;
}

static void mask_row(const struct work *w, int64_t row, int64_t n)
{
	uint64_t base = mask_base(w, row);

	for (int64_t i = 0, m; (m = run_part_of(w, i, n)) > 0; i++)
		mask_run(w->x, w->keep + w->run[i].to, m, base + (uint64_t)w->run[i].index * w->x->rng_col);
}

/* -- what is added to scores, and what hides them -- */

static int64_t extra_off(const struct work *w, int which, int64_t row)
{
	return w->off[which] + row * w->x->extra[which - NAT].row;
}

/* Of a run of n keys, which starts at c. */
static void add_bias(const struct work *w, void *const *at, int64_t row, const struct run *c, float *s, int64_t n)
{
	int64_t step = w->x->extra[AT_BIAS - NAT].col;
	const float *b = (const float *)at[AT_BIAS] + extra_off(w, AT_BIAS, row) + c->at * step;

	for (int64_t j = 0; j < n; j++)
		s[j] += b[j * step];
}

static void hide(const struct work *w, void *const *at, int64_t row, const struct run *c, float *s, int64_t n)
{
	const struct attention *x = w->x;

	if (x->extra[AT_MASK - NAT].there) {
		int64_t step = x->extra[AT_MASK - NAT].col;
		const uint8_t *m = (const uint8_t *)at[AT_MASK] + extra_off(w, AT_MASK, row) + c->at * step;

		for (int64_t j = 0; j < n; j++)
			s[j] = m[j * step] ? s[j] : -INFINITY;
	}
	if (x->extra[AT_WINDOW - NAT].there) {
		int64_t step = x->extra[AT_WINDOW - NAT].col, me = order_index(&x->row, row) - c->index;
		const int32_t *reach = (const int32_t *)at[AT_WINDOW] + extra_off(w, AT_WINDOW, row) + c->at * step;

		for (int64_t j = 0; j < n; j++)
			s[j] = me - j < reach[j * step] ? s[j] : -INFINITY;
	}
}

/* q.k of a row becomes u; slope (if not NULL) its derivative by q.k. */
static void finish_scores(const struct work *w, void *const *at, int64_t row, float *s, int64_t n, float *slope)
{
	const struct attention *x = w->x;
	float scale = (float)x->scale, cap = (float)x->cap;

	if (x->cap)
		for (int64_t j = 0; j < n; j++) {
			float h = tanhf(s[j] * (float)(x->scale / x->cap));

			s[j] = cap * h;
			if (slope)
				slope[j] = (1 - h * h) * scale;
		}
	else
		for (int64_t j = 0; j < n; j++) {
			s[j] *= scale;
			if (slope)
				slope[j] = scale;
		}
	for (int64_t i = 0, m; (m = run_part_of(w, i, n)) > 0; i++) {
		if (x->extra[AT_BIAS - NAT].there)
			add_bias(w, at, row, &w->run[i], s + w->run[i].to, m);
		hide(w, at, row, &w->run[i], s + w->run[i].to, m);
	}
}

/* dbias += g, along the dims that it has. */
static void grow_dbias(const struct work *w, void *const *at, int64_t row, const float *g, int64_t n)
{
	int64_t step = w->x->extra[AT_DBIAS - NAT].col;

	if (!w->x->extra[AT_DBIAS - NAT].there)
		return;
	float *b = (float *)at[AT_DBIAS] + extra_off(w, AT_DBIAS, row), sum = 0;

	for (int64_t i = 0, m; step && (m = run_part_of(w, i, n)) > 0; i++)
		for (int64_t j = 0; j < m; j++)
			b[(w->run[i].at + j) * step] += g[w->run[i].to + j];
	for (int64_t j = 0; j < n && !step; j++)
		sum += g[j];
	if (!step)
		b[0] += sum;
}

static void zero_dbias(const struct attention *x, void *const *at)
{
	const struct extra *b = &x->extra[AT_DBIAS - NAT];
	struct nest l = { .nd = x->nloop + 2 };

	if (!b->there)
		return;
	for (int i = 0; i < x->nloop; i++) {
		l.n[i] = b->loop[i] ? x->n[i] : 1;
		l.ds[i] = b->loop[i];
	}
	l.n[x->nloop] = b->row ? x->rows : 1;
	l.ds[x->nloop] = b->row;
	l.n[x->nloop + 1] = b->col ? x->cols : 1;
	l.ds[x->nloop + 1] = b->col;
	nest_fill(&l, F32, at[AT_DBIAS], 0);
}

static void step_loop(struct work *w, int loop, int64_t by)
{
	for (int k = 0; k < NAT; k++)
		w->off[k] += by * w->x->stride[k][loop];
	for (int k = NAT; k < NPLACE; k++)
		w->off[k] += by * w->x->extra[k - NAT].loop[loop];
}

/* Next of the loops that only queries have; offsets follow. */
static bool next_queries(struct work *w)
{
	const struct attention *x = w->x;

	for (int i = x->nloop - 1; i >= 0; i--) {
		if (x->keys[i])
			continue;
		int64_t by = ++w->at[i] < x->n[i] ? 1 : 1 - x->n[i];

		if (by != 1)
			w->at[i] = 0;
		step_loop(w, i, by);
		if (by == 1)
			return true;
	}
	return false;
}

/* To the i-th of the loops over keys, the first queries there. */
static void seek(struct work *w, int64_t i)
{
	const struct attention *x = w->x;

	memset(w->at, 0, sizeof w->at);
	memset(w->off, 0, sizeof w->off);
	for (int l = x->nloop - 1; l >= 0; l--) {
		if (!x->keys[l])
			continue;
		w->at[l] = i % x->n[l];
		i /= x->n[l];
		step_loop(w, l, w->at[l]);
	}
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

/* Rows of the tile that starts at row r: of neighbouring indices, so that the last one sees most. */
static int64_t tile_at(const struct work *w, int64_t r)
{
	int64_t n = order_run(&w->x->row, r, w->x->rows);

	return n < w->tile ? n : w->tile;
}

/* -- forward -- */

static void forward_row(struct work *w, void *const *at, int64_t row, float *s, int64_t cols, float *lse, float *inverse)
{
	const struct attention *x = w->x;
	int64_t n = seen(w, row);
	float sum = 0, top;

	if (!w->plain)
		finish_scores(w, at, row, s, n, NULL);
	top = softmax_row(s, n, w->plain ? (float)x->scale : 1, &sum);
	*lse = n > 0 ? top + logf(sum) : -INFINITY;
	*inverse = sum > 0 ? 1 / sum : n > 0 ? sum : 0;
	if (x->p > 0 && n > 0) {
		mask_row(w, row, n);
		mul_row(s, w->keep, n);
	}
	if (n < cols)
		memset(s + n, 0, (size_t)(cols - n) * sizeof *s);
}

/* A row's o, of weight e^lse, meets what is there. */
static void join_row(const struct work *w, void *const *at, int64_t row, const float *o, float inverse, float lse)
{
	const struct attention *x = w->x;
	float *to = (float *)at[AT_O] + w->off[AT_O] + row * x->row_stride[AT_O];
	float *all = (float *)at[AT_LSE] + w->off[AT_LSE] + row * x->row_stride[AT_LSE];
	float top = lse > *all ? lse : *all;

	if (lse == -INFINITY)
		return;
	float sum = top + logf(expf(*all - top) + expf(lse - top)), old = expf(*all - sum), new = expf(lse - sum) * inverse;

	for (int64_t j = 0; j < x->dv; j++)
		to[j * x->d_stride[AT_O]] = to[j * x->d_stride[AT_O]] * old + o[j] * new;
	*all = sum;
}

static bool forward_tile(struct work *w, void *const *at, int64_t r, int64_t n, struct mat k, struct mat v)
{
	const struct attention *x = w->x;
	int64_t cols = seen(w, r + n - 1);
	struct mat q = matrix(w, at, AT_Q, r, n, w->q);
	float *all = (float *)at[AT_LSE] + w->off[AT_LSE];
	float inverse[64], lse[64];

	if (cols <= 0 && x->join)
		return true;
	w->scores += (double)(n * cols);
	if (cols > 0 && !gemm_f32(w->g, false, true, n, cols, x->d, q.x, q.ld, k.x, k.ld, 0, w->s, w->ld))
		return false;
	for (int64_t i = 0; i < n; i++)
		forward_row(w, at, r + i, w->s + i * w->ld, cols, &lse[i], &inverse[i]);
	if (cols <= 0)
		memset(w->o, 0, (size_t)(n * x->dv) * sizeof *w->o);
	else if (!gemm_f32(w->g, false, false, n, x->dv, cols, w->s, w->ld, v.x, v.ld, 0, w->o, x->dv))
		return false;
	for (int64_t i = 0; i < n && x->join; i++)
		join_row(w, at, r + i, w->o + i * x->dv, inverse[i], lse[i]);
	if (x->join)
		return true;
	for (int64_t i = 0; i < n; i++) {
		scale_row(w->o + i * x->dv, x->dv, inverse[i]);
		all[(r + i) * x->row_stride[AT_LSE]] = lse[i];
	}
	put(w, at, AT_O, r, n, w->o);
	return true;
}

static bool forward_keys(struct work *w, void *const *at)
{
	const struct attention *x = w->x;
	struct mat k = keys_of(w, at, AT_K, w->k), v = keys_of(w, at, AT_V, w->v);

	do {
		for (int64_t r = 0, n; r < x->rows; r += n) {
			n = tile_at(w, r);
			if (!forward_tile(w, at, r, n, k, v))
				return false;
		}
	} while (next_queries(w));
	return true;
}

/* -- backward -- */

FAST static float dot(const float *a, const float *b, int64_t n)
{
	vf l = { 0 };
	float s = 0;
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		l += GET(a + i) * GET(b + i);
	for (int k = 0; k < LANES; k++)
		s += l[k];
	for (; i < n; i++)
		s += a[i] * b[i];
	return s;
}

/* s: scores in, what multiplies do out; ds: the gradient of what is softmaxed in, of the scores out. */
static void backward_row(struct work *w, void *const *at, int64_t row, float *s, float *ds, int64_t cols, float lse,
			 float d)
{
	const struct attention *x = w->x;
	int64_t n = lse == -INFINITY ? 0 : seen(w, row);

	if (n > 0) {
		float *keep = w->keep;

		if (x->p > 0) {
			mask_row(w, row, n);
			mul_row(ds, keep, n);
		}
		if (!w->plain)
			finish_scores(w, at, row, s, n, w->slope);
		exp_row(s, n, w->plain ? (float)x->scale : 1, lse);
		grad_row(ds, s, n, d, w->plain ? (float)x->scale : 1);
		if (!w->plain) {
			grow_dbias(w, at, row, ds, n);
			mul_row(ds, w->slope, n);
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
	int64_t cols = seen(w, r + n - 1), d = x->d, dv = x->dv, ld = w->ld;
	struct mat q = matrix(w, at, AT_Q, r, n, w->q), o = matrix(w, at, AT_O, r, n, w->o);
	struct mat g = matrix(w, at, AT_DO, r, n, w->dov);
	const float *lse = (const float *)at[AT_LSE] + w->off[AT_LSE];

	if (cols <= 0 && x->join)
		return true;
	if (cols <= 0) {
		memset(w->dq, 0, (size_t)(n * d) * sizeof *w->dq);
		put(w, at, AT_DQ, r, n, w->dq);
		return true;
	}
	w->scores += (double)(n * cols);
	if (!gemm_f32(w->g, false, true, n, cols, d, q.x, q.ld, k.x, k.ld, 0, w->s, ld) ||
	    !gemm_f32(w->g, false, true, n, cols, dv, g.x, g.ld, v.x, v.ld, 0, w->ds, ld))
		return false;
	for (int64_t i = 0; i < n; i++)
		backward_row(w, at, r + i, w->s + i * ld, w->ds + i * ld, cols, lse[(r + i) * x->row_stride[AT_LSE]],
			     dot(o.x + i * o.ld, g.x + i * g.ld, dv));
	if (!gemm_f32(w->g, true, false, cols, dv, n, w->s, ld, g.x, g.ld, 1, w->dvv, dv) ||
	    !gemm_f32(w->g, true, false, cols, d, n, w->ds, ld, q.x, q.ld, 1, w->dk, d) ||
	    !gemm_f32(w->g, false, false, n, d, cols, w->ds, ld, k.x, k.ld, 0, w->dq, d))
		return false;
	give(w, at, AT_DQ, r, n, w->dq);
	return true;
}

static bool backward_keys(struct work *w, void *const *at)
{
	const struct attention *x = w->x;
	struct mat k = keys_of(w, at, AT_K, w->k), v = keys_of(w, at, AT_V, w->v);

	memset(w->dk, 0, (size_t)(x->cols * x->d) * sizeof *w->dk);
	memset(w->dvv, 0, (size_t)(x->cols * x->dv) * sizeof *w->dvv);
	do {
		for (int64_t r = 0, n; r < x->rows; r += n) {
			n = tile_at(w, r);
			if (!backward_tile(w, at, r, n, k, v))
				return false;
		}
	} while (next_queries(w));
	put_keys(w, at, AT_DK, w->dk);
	put_keys(w, at, AT_DV, w->dvv);
	return true;
}

/* -- both: sets of keys shared out among the threads of the rank -- */

struct job {
	struct gemm *g;
	const struct attention *x;
	void *const *at;
	bool backward, ok[64];
	double scores[64];
	int64_t sets;
};

static void run_part(void *arg, int me, int n)
{
	struct job *j = arg;
	struct work w;

	j->ok[me] = work_open(&w, gemm_of(j->g, me), j->x, j->backward);
	for (int64_t i = j->sets * me / n; j->ok[me] && i < j->sets * (me + 1) / n; i++) {
		seek(&w, i);
		j->ok[me] = j->backward ? backward_keys(&w, j->at) : forward_keys(&w, j->at);
	}
	j->scores[me] = w.scores;
}

static bool run(struct gemm *g, const struct attention *given, void *const *at, bool backward)
{
	struct attention x = *given;
	struct job j = { .g = g, .x = &x, .at = at, .backward = backward, .sets = 1 };
	int n = team_size(gemm_threads(g));

	if (backward && !x.join)
		zero_dbias(given, at);
	if (empty(&x) || (!backward && x.rows <= 0))
		return true;
	for (int i = 0; i < x.nloop; i++) {
		j.sets *= x.keys[i] ? x.n[i] : 1;
		if (backward && x.extra[AT_DBIAS - NAT].there && !x.extra[AT_DBIAS - NAT].loop[i])
			n = 1; /* all sets of keys add to one bias */
	}
	if (n == 1 || n > (int)LEN(j.ok) || j.sets == 1) {
		n = 1;
		run_part(&j, 0, 1);
	} else {
		team_run(gemm_threads(g), run_part, &j);
	}
	for (int i = 0; i < n && x.scores; i++)
		*x.scores += j.scores[i];
	if (n == 1)
		return j.ok[0];
	for (int i = 0; i < n; i++)
		if (!j.ok[i])
			return gemm_failed(g, gemm_of(g, i));
	return true;
}

bool attention_forward(struct gemm *g, const struct attention *x, void *const *at)
{
	return run(g, x, at, false);
}

bool attention_backward(struct gemm *g, const struct attention *x, void *const *at)
{
	return run(g, x, at, true);
}
