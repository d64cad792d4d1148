/* codegen/pick.c - argmax, topk and rank: kernels of one op. The dims that are looked through are
 * the inner loops, in the order that the op says; all others are rows. */
#include <inttypes.h>

#include "codegen/cuda_impl.h"

enum { MOST_COUNTERS = 65536 };

static int64_t stride_of(const struct gen *g, const struct value *v, dimid d)
{
	int64_t stride = 1;

	for (int i = v->nd - 1; i >= 0; i--) {
		if (v->d[i] == d)
			return stride;
		stride *= cap_of(g->m, v->d[i], &v->sh.on[i]);
	}
	return 0;
}

/* How many elements of dim i of v this rank holds. */
static const char *local_size(struct gen *g, const struct value *v, int i)
{
	struct kernel_sig *sig = g->sig;

	if (!v->sh.on[i].n)
		return SAY(g, "%" PRId64, dim_size(g->m, v->d[i]));
	sig->ext[sig->next].d = v->d[i];
	sig->ext[sig->next].on = v->sh.on[i];
	return SAY(g, g->device ? "valid%d" : "valid[%d]", sig->next++);
}

static bool listed(const struct dimlist *l, dimid d)
{
	for (int i = 0; i < l->n; i++)
		if (l->d[i] == d)
			return true;
	return false;
}

/* Loops over the dims that are not looked through; leaves x and r at the row. */
static void open_rows(struct gen *g, struct text *t, const struct op *op, const struct dimlist *along)
{
	const struct value *v = op->in[0];
	struct text x = { .mem = g->mem }, r = { .mem = g->mem };

	for (int i = 0; i < v->nd; i++) {
		if (listed(along, v->d[i]))
			continue;
		text_put(t, "for (int64_t i%d = 0; i%d < %s; i%d++)\n", i, i, local_size(g, v, i), i);
		text_put(&x, " + i%d * %" PRId64, i, stride_of(g, v, v->d[i]));
		text_put(&r, " + i%d * %" PRId64, i, stride_of(g, op->out[0], v->d[i]));
	}
	text_put(t, "{\nconst %s *x = p%s;\nint32_t *r = o%s;\n", ctype[v->dt], x.n ? x.s : "", r.n ? r.s : "");
}

/* Offset of element `index` along d, in elements. */
static const char *offset_along(struct gen *g, dimid d, const char *index, int64_t stride)
{
	return SAY(g, "%s * %" PRId64, position_of(g, d, index), stride);
}

static const char *load_at(struct gen *g, const struct value *v, const char *at)
{
	return SAY(g, v->dt == BF16 ? "ld_bf16(x[%s])" : "x[%s]", at);
}

/* The largest first, by many at a time, then where it is. A NaN is never the largest, unless it comes first. */
static void put_argmax(struct gen *g, struct text *t, const struct op *op)
{
	const struct value *v = op->in[0];
	int64_t n = dim_size(g->m, op->at.dim), s = stride_of(g, v, op->at.dim);
	const char *type = is_float(v->dt) ? "float" : "int32_t", *y = load_at(g, v, offset_along(g, op->at.dim, "j", s));

	text_put(t, "%s top = %s;\nint32_t at = 0;\n_Pragma(\"omp simd reduction(max:top)\")\n", type, load_at(g, v, "0"));
	text_put(t, "for (int64_t j = 1; j < %" PRId64 "; j++) {\nconst %s y = %s;\ntop = y > top ? y : top;\n}\n", n, type, y);
	text_put(t, "if (%s == %s)\n", load_at(g, v, "0"), load_at(g, v, "0"));
	text_put(t, "for (int64_t j = 0; j < %" PRId64 "; j++)\nif (%s == top) {\nat = (int32_t)j;\nbreak;\n}\n*r = at;\n", n, y);
}

/* A sorted list of the k best so far; an element goes behind those that are not smaller. */
static void put_topk(struct gen *g, struct text *t, const struct op *op)
{
	const struct value *v = op->in[0];
	int64_t n = dim_size(g->m, op->at.dim), k = dim_size(g->m, op->at.to), s = stride_of(g, op->out[0], op->at.to);
	const char *type = is_float(v->dt) ? "float" : "int32_t";

	text_put(t, "%s best[%" PRId64 "];\nint64_t have = 0;\n", type, k);
	text_put(t, "for (int64_t j = 0; j < %" PRId64 "; j++) {\nconst %s y = %s;\n", n, type,
		 load_at(g, v, offset_along(g, op->at.dim, "j", stride_of(g, v, op->at.dim))));
	text_put(t, "int64_t at = have;\nwhile (at > 0 && y > best[at - 1])\nat--;\n");
	text_put(t, "if (at == %" PRId64 ")\ncontinue;\nhave += have < %" PRId64 ";\n", k, k);
	text_put(t, "for (int64_t i = have - 1; i > at; i--) {\nbest[i] = best[i - 1];\nr[i * %" PRId64
		 "] = r[(i - 1) * %" PRId64 "];\n}\n", s, s);
	text_put(t, "best[at] = y;\nr[at * %" PRId64 "] = (int32_t)j;\n}\n", s);
}

/* Loops a0, a1, ... over the dims of the list; *x and *r: where their element is. */
static const char *along_loops(struct gen *g, const struct op *op, const char *name, const char **x, const char **r)
{
	struct text t = { .mem = g->mem }, at = { .mem = g->mem }, to = { .mem = g->mem };

	for (int i = 0; i < op->at.dims.n; i++) {
		dimid d = op->at.dims.d[i];

		text_put(&t, "for (int64_t %s%d = 0; %s%d < %" PRId64 "; %s%d++)\n", name, i, name, i, dim_size(g->m, d),
			 name, i);
		const char *no = SAY(g, "%s%d", name, i);

		text_put(&at, "%s%s", i ? " + " : "", offset_along(g, d, no, stride_of(g, op->in[0], d)));
		text_put(&to, "%s%s", i ? " + " : "", offset_along(g, d, no, stride_of(g, op->out[0], d)));
	}
	*x = SAY(g, "x[%s]", at.s);
	*r = SAY(g, "r[%s]", to.s);
	return t.s;
}

/* A counter for each value, if they lie together; else each is compared with all before it. */
static void put_rank(struct gen *g, struct text *t, const struct op *op)
{
	const char *x, *r, *y, *unused, *loop = along_loops(g, op, "a", &x, &r), *inner = along_loops(g, op, "b", &y, &unused);

	text_put(t, "int32_t low = INT32_MAX, high = INT32_MIN;\n%s{\nlow = %s < low ? %s : low;\nhigh = %s > high ? %s : high;\n}\n",
		 loop, x, x, x, x);
	text_put(t, "if ((int64_t)high - low < %d) {\nint32_t count[%d];\n", MOST_COUNTERS, MOST_COUNTERS);
	text_put(t, "for (int64_t i = 0; i <= (int64_t)high - low; i++)\ncount[i] = 0;\n%s%s = count[%s - low]++;\n", loop, r, x);
	text_put(t, "} else {\nint64_t no = 0;\n%s{\nint64_t other = 0;\nint32_t n = 0;\n", loop);
	text_put(t, "%sn += (other++ < no) & (%s == %s);\n%s = n;\nno++;\n}\n}\n", inner, y, x, r);
}

/* -- the same by threads of a GPU -- */

/* Opens the row that `row` names: leaves x and r there. Rows of caps, of which not all are there. */
static int64_t pick_row(struct gen *g, struct text *t, const struct op *op, const struct dimlist *along)
{
	const struct value *v = op->in[0];
	struct text x = { .mem = g->mem }, r = { .mem = g->mem }, all = { .mem = g->mem };
	int64_t rows = 1;

	for (int i = v->nd - 1; i >= 0; i--) {
		if (listed(along, v->d[i]))
			continue;
		int64_t cap = cap_of(g->m, v->d[i], &v->sh.on[i]);

		text_put(t, "const int64_t i%d = row / %" PRId64 " %% %" PRId64 ";\n", i, rows, cap);
		text_put(&x, " + i%d * %" PRId64, i, stride_of(g, v, v->d[i]));
		text_put(&r, " + i%d * %" PRId64, i, stride_of(g, op->out[0], v->d[i]));
		text_put(&all, " && i%d < %s", i, local_size(g, v, i));
		rows *= cap;
	}
	text_put(t, "if (row < %" PRId64 "%s) {\nconst %s *x = p0%s;\nint32_t *r = o0%s;\n", rows, all.n ? all.s : "", ctype[v->dt],
		 x.n ? x.s : "", r.n ? r.s : "");
	return rows;
}

/* A block a row: the largest, then the first that equals it. A block that has no row goes on to the barriers. */
static void block_argmax(struct gen *g, struct text *t, const struct op *op)
{
	const struct value *v = op->in[0];
	int64_t n = dim_size(g->m, op->at.dim), s = stride_of(g, v, op->at.dim);
	const char *type = is_float(v->dt) ? "float" : "int32_t", *y = load_at(g, v, offset_along(g, op->at.dim, "j", s));
	const char *loop = SAY(g, "for (int64_t j = threadIdx.x; j < %" PRId64 "; j += blockDim.x) {\nconst %s y = %s;\n", n, type, y);

	text_put(t, "%s top = %s;\nint32_t at = INT32_MIN;\n", type, is_float(v->dt) ? "-INF" : "INT32_MIN");
	text_put(t, "%stop = y > top ? y : top;\n}\ntop = p_block_max(top, (%s *)shared);\n", loop, type);
	text_put(t, "%sat = y == top && -(int32_t)j > at ? -(int32_t)j : at;\n}\nat = p_block_max(at, (int32_t *)(shared + 256));\n", loop);
	text_put(t, "if (!threadIdx.x)\n\t*r = %s == %s && at != INT32_MIN ? -at : 0;\n", load_at(g, v, "0"), load_at(g, v, "0"));
}

static void put_along(struct gen *g, struct text *t, const struct op *op, const char *number, const char *name, const char **x, const char **r)
{
	int64_t n = 1;

	along_loops(g, op, name, x, r);
	for (int i = op->at.dims.n - 1; i >= 0; i--) {
		int64_t size = dim_size(g->m, op->at.dims.d[i]);

		text_put(t, "const int64_t %s%d = %s / %" PRId64 " %% %" PRId64 ";\n", name, i, number, n, size);
		n *= size;
	}
}

/* A thread an element, which counts those before it. */
static void thread_rank(struct gen *g, struct text *t, const struct op *op)
{
	const char *x, *r, *y, *unused;

	put_along(g, t, op, "no", "a", &x, &r);
	text_put(t, "const int32_t me = %s;\nint32_t n = 0;\nfor (int64_t other = 0; other < no; other++) {\n", x);
	put_along(g, t, op, "other", "b", &y, &unused);
	text_put(t, "n += %s == me;\n}\n%s = n;\n", y, r);
}

char *cuda_pick(struct gen *g, const struct op *op, int64_t *blocks, int *block)
{
	struct text t = { .mem = g->mem };
	struct dimlist along = { 1, { op->at.dim } };
	int64_t size = 1, rows;

	if (g->op->body->first->next || g->op->nin != 1 || g->op->nout != 1 || op->in[0]->def) {
		diag_error(g->d, op->span, "%s with others in one kernel", opinfo[op->code].name);
		return NULL;
	}
	if (op->code == OP_RANK)
		along = op->at.dims;
	for (int i = 0; i < along.n; i++)
		size *= dim_size(g->m, along.d[i]);
	*block = 128;
	if (op->code == OP_ARGMAX) {
		*block = size > 1024 ? 256 : size > 128 ? 64 : 32;
		text_put(&t, "const int64_t row = block;\n");
	} else {
		text_put(&t, "const int64_t thread = block * (int64_t)128 + threadIdx.x, no = thread %% %" PRId64 ", row = thread / %" PRId64
			 ";\n(void)no;\n", op->code == OP_RANK ? size : (int64_t)1, op->code == OP_RANK ? size : (int64_t)1);
	}
	rows = pick_row(g, &t, op, &along);
	*blocks = op->code == OP_ARGMAX ? rows : ceil_div(rows * (op->code == OP_RANK ? size : 1), 128);
	if (op->code == OP_ARGMAX)
		block_argmax(g, &t, op);
	else if (op->code == OP_TOPK)
		put_topk(g, &t, op);
	else
		thread_rank(g, &t, op);
	text_put(&t, "}\n");
	return t.s;
}

const struct op *kernel_pick(const struct op *kernel)
{
	const struct op *op = kernel->body->first;

	return op && opinfo[op->code].class == C_PICK ? op : NULL;
}

char *pick_text(struct gen *g, const struct op *op)
{
	struct text t = { .mem = g->mem };
	struct dimlist along = { 1, { op->at.dim } };

	if (g->op->body->first->next || g->op->nin != 1 || g->op->nout != 1 || op->in[0]->def) {
		diag_error(g->d, op->span, "%s with others in one kernel", opinfo[op->code].name);
		return NULL;
	}
	if (op->code == OP_RANK)
		along = op->at.dims;
	text_put(&t, "KERNEL(@)\n{\nconst %s *p = in[0];\nint32_t *o = out[0];\n(void)start, (void)valid, (void)env;\n",
		 ctype[op->in[0]->dt]);
	open_rows(g, &t, op, &along);
	if (op->code == OP_ARGMAX)
		put_argmax(g, &t, op);
	else if (op->code == OP_TOPK)
		put_topk(g, &t, op);
	else
		put_rank(g, &t, op);
	text_put(&t, "}\n}\n");
	return t.s;
}
