/* codegen/cuda_attn.c - the attention kernels that a plan needs, and their launches. */
#include "codegen/cuda_impl.h"

_Static_assert(MAX_DIMS == 10, "an attention has up to MAX_DIMS - 2 loops, for which cuda.h and cuda_attn.inc have room");

/* Of a size of heads: keys of a tile and warps forward; for dq; rows of a tile, warps, and warps that share keys for dk, dv. */
struct shape {
	int d, b, warps, bq, warps_q, bk, warps_k, halves;
};
static const struct shape narrow[] = {
	{ 32, 64, 4, 64, 4, 32, 4, 1 }, { 64, 64, 4, 32, 4, 32, 4, 1 }, { 96, 64, 4, 32, 4, 32, 4, 1 },
	{ 128, 64, 4, 32, 4, 32, 4, 1 }, { 192, 32, 4, 32, 4, 32, 8, 2 }, { 256, 32, 4, 16, 4, 16, 8, 2 },
}, wide[] = {
	{ 32, 32, 4, 32, 4, 32, 4, 1 }, { 64, 32, 4, 32, 4, 32, 4, 1 }, { 96, 32, 4, 32, 4, 16, 4, 1 },
	{ 128, 32, 4, 32, 4, 16, 4, 1 }, { 192, 16, 2, 16, 2, 16, 4, 2 }, { 256, 16, 2, 16, 2, 16, 4, 2 },
};

/* The size that the heads of op are padded to; NULL: too large. */
static const struct shape *shape_of(const struct module *m, const struct op *op)
{
	const struct value *k = op->in[1], *v = op->in[2];
	const struct shape *s = op->in[0]->dt == BF16 ? narrow : wide;
	int64_t d = dim_size(m, op->at.dim), own = 1;

	for (int i = 0; i < v->nd; i++)
		own *= has_dim(k, v->d[i]) ? 1 : cap_of(m, v->d[i], &v->sh.on[i]);
	for (size_t i = 0; i < LEN(narrow); i++)
		if (s[i].d >= d && s[i].d >= own)
			return &s[i];
	return NULL;
}

static const char *type_of(const struct op *op)
{
	return op->in[0]->dt == BF16 ? "bf16" : "float";
}

/* What its kernels must know: F of cuda_attn.inc. */
static int features(const struct op *op)
{
	return (HAS(op, cap) && op->at.cap != 0) | (HAS(op, p) && op->at.p > 0) << 1 | (HAS(op, extra) && op->at.extra != 0) << 2;
}

/* extern "C" kernel `what` of the types and sizes in args, unless t has it. bounds: its threads and, where ptxas would rather
 * spill than have few blocks at once, how many of them are enough. */
static void put_kernel(struct text *t, const char *what, const char *fn, const char *type, int d, int f, const char *bounds,
		       const char *args, bool shared)
{
	const char *head = arena_printf(t->mem, "extern \"C\" __global__ void __launch_bounds__(%s) ptc_attend%s_%s_%d_%d("
					"const __grid_constant__ struct ptc_attention x, const struct ptc_step *step, struct ptc_iter iter)\n",
					bounds, what, type, d, f);

	if (t->n && strstr(t->s, head))
		return;
	text_put(t, "%s{\n", head);
	if (shared)
		text_put(t, "PTC_DYN_SHARED(unsigned char, shared);\n%s<%s>(&x, step, &iter, shared);\n}\n", fn, args);
	else
		text_put(t, "(void)step, (void)iter;\n%s<%s>(&x);\n}\n", fn, args);
}

static const char *threads(struct arena *mem, int warps)
{
	return arena_printf(mem, "%d", 32 * warps);
}

bool cuda_attention_text(struct text *t, const struct module *m, const struct op *op, struct diag *d)
{
	const struct shape *s = shape_of(m, op);
	const char *type = type_of(op);
	int f = features(op);

	if (!s) {
		diag_error(d, op->span, "attention with heads of more than 256 elements has no CUDA kernel");
		diag_note(d, op->span, "make heads smaller, or run the plan on the CPU");
		return false;
	}
	const char *rows = arena_printf(t->mem, "%s, %d, %d, %d, %d", type, s->d, f, s->bq, s->warps_q);

	if (op->code == OP_ATTENTION) {
		put_kernel(t, "", "p_attend", type, s->d, f, threads(t->mem, s->warps),
			   arena_printf(t->mem, "%s, %d, %d, %d, %d", type, s->d, f, s->b, s->warps), true);
		return true;
	}
	put_kernel(t, "_delta", "p_delta", type, s->d, f, "128", type, false);
	put_kernel(t, "_dq", "p_attend_dq", type, s->d, f, threads(t->mem, s->warps_q), rows, true);
	put_kernel(t, "_dkv", "p_attend_dkv", type, s->d, f, threads(t->mem, s->warps_k),
		   arena_printf(t->mem, "%s, %d, %d, %d, %d, %d", type, s->d, f, s->bk, s->warps_k, s->halves), true);
	if (attn_extra(op, X_BIAS) >= 0)
		put_kernel(t, "_dbias", "p_attend_dbias", type, s->d, f, arena_printf(t->mem, "%d, 2", 32 * s->warps_q), rows, true);
	return true;
}

static void launch(struct cuda_attention *a, const char *what, const char *type, const struct shape *s, int f, int64_t blocks, int warps, int64_t shared)
{
	if (blocks <= 0)
		return;
	snprintf(a->name[a->nlaunch], sizeof a->name[0], "ptc_attend%s_%s_%d_%d", what, type, s->d, f);
	a->launch[a->nlaunch] = (struct cuda_launch){ a->name[a->nlaunch], (uint32_t)blocks, (uint32_t)(32 * warps), (uint32_t)shared };
	a->nlaunch++;
}

/* Bytes of tiles of so many rows in all; in float32 a warp needs room for 16 rows of b. */
static int64_t shared_of(const struct shape *s, bool bf16, int rows, int warps, int b)
{
	return bf16 ? (int64_t)rows * (s->d + 8) * 2 : (int64_t)rows * (s->d + 4) * 4 + (int64_t)warps * 16 * (b + 4) * 4;
}

static int64_t count(const struct ptc_attention *x, int64_t which)
{
	int64_t n = 1;

	for (int l = 0; l < x->nloop; l++)
		n *= which >> l & 1 ? x->n[l] : 1;
	return n;
}

static void bias_launch(struct cuda_attention *a, const struct ptc_attention *x, const struct shape *s, const char *type, int f, bool bf16)
{
	const struct ptc_extra *to = &x->extra[CUDA_DBIAS - CUDA_BIAS];
	int m = 16 * s->warps_q;
	int64_t shared = shared_of(s, bf16, 2 * m + 2 * s->bq, s->warps_q, s->bq), blocks = 1;

	for (int l = 0; l < x->nloop; l++)
		blocks *= to->loop[l] ? x->n[l] : 1;
	blocks *= (to->row ? ceil_div(x->rows, m) : 1) * (to->col ? ceil_div(x->cols, s->bq) : 1);
	launch(a, "_dbias", type, s, f, blocks, s->warps_q, shared > 4 * m * s->bq ? shared : 4 * m * s->bq);
}

void cuda_attention_of(struct cuda_attention *a, const struct module *m, const struct op *op, struct ptc_attention *x)
{
	const struct shape *s = shape_of(m, op);
	const char *type = type_of(op);
	int f = features(op);
	bool bf16 = op->in[0]->dt == BF16;

	memset(a, 0, sizeof *a);
	if (!s)
		return;
	for (int l = 0; l < x->nloop; l++)
		if (!x->n[l] && !(x->keys >> l & 1)) {
			x->n[l] = 1; /* no rows */
			x->rows = 0;
		}
	int64_t all = count(x, -1);

	if (op->code == OP_ATTENTION) {
		launch(a, "", type, s, f, all * ceil_div(x->rows, 16 * s->warps), s->warps,
		       shared_of(s, bf16, 16 * s->warps + 2 * s->b, s->warps, s->b));
		return;
	}
	int keys = 16 * s->warps_k / s->halves;

	a->scratch = 4 * all * x->rows;
	launch(a, "_delta", type, s, f, ceil_div(all * x->rows, 4), 4, 0);
	launch(a, "_dq", type, s, f, all * ceil_div(x->rows, 16 * s->warps_q), s->warps_q,
	       shared_of(s, bf16, 32 * s->warps_q + 2 * s->bq, s->warps_q, s->bq));
	launch(a, "_dkv", type, s, f, count(x, x->keys) * ceil_div(x->cols, keys), s->warps_k,
	       shared_of(s, bf16, 2 * keys + 2 * s->bk, s->warps_k, s->bk) + 8 * s->bk);
	if (x->extra[CUDA_DBIAS - CUDA_BIAS].there)
		bias_launch(a, x, s, type, f, bf16);
}
