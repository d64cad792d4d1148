/* attention(q, k, v, d, c, ...): docs/LANGUAGE.md. */
#include "frontend/lower.h"

#include <math.h>

static struct builder *at(struct call *k)
{
	return here(k->c, k->n->at);
}


enum { Q, K, V, HEAD, KEYS, CAUSAL, WINDOW, MASK, BIAS, CAP, SCALE, DROPOUT };

static bool attention_dims(struct call *k, struct value *const *t, dimid head, dimid keys)
{
	struct ctx *c = k->c;
	const struct { int arg; dimid d; bool has; } rules[] = {
		{ Q, head, true }, { K, head, true }, { K, keys, true }, { V, keys, true },
		{ Q, keys, false },
	};

	for (size_t i = 0; i < LEN(rules); i++) {
		const char *name = c->m->dims.at[rules[i].d].name;
		bool has = has_dim(t[rules[i].arg], rules[i].d);

		if (has == rules[i].has)
			continue;
		if (!has)
			fail(c, k->arg[rules[i].arg]->at, "%c of attention has no '%s', only %s",
			     "qkv"[rules[i].arg], name, dims_text(c, t[rules[i].arg]));
		else
			fail(c, k->arg[Q]->at, "q of attention has the key positions '%s'", name);
		return false;
	}
	return true;
}

static bool refuse_dims(struct call *k, int arg, const char *what, dimid d)
{
	fail(k->c, k->arg[arg]->at, "%c of attention %s '%s'", "qkv"[arg], what, k->c->m->dims.at[d].name);
	hint(k->c, "what attention does not do can be written out, as softmax(q @ k, c) @ v");
	return false;
}

/* One attention for each element of the dims that k and v share; q may have more, v one of its own. */
static bool attention_fits(struct call *k, struct value *const *t, dimid head, dimid keys)
{
	int own = 0;

	for (int i = 0; i < t[K]->nd; i++) {
		dimid d = t[K]->d[i];

		if (d != head && d != keys && !has_dim(t[Q], d))
			return refuse_dims(k, K, "has a dim that q lacks,", d);
		if (d != head && d != keys && !has_dim(t[V], d))
			return refuse_dims(k, K, "has a dim that v lacks,", d);
	}
	for (int i = 0; i < t[V]->nd; i++) {
		dimid d = t[V]->d[i];

		if (d == keys || (d != head && has_dim(t[K], d)))
			continue;
		if (d != head && has_dim(t[Q], d))
			return refuse_dims(k, V, "has a dim that q has and k lacks,", d);
		if (own++)
			return refuse_dims(k, V, "has a second dim of its own,", d);
	}
	return true;
}

/* o has the dims of the scores without the keys, then what v adds. scores: dims of q.k */
static int attention_types(struct value *const *t, dimid head, dimid keys, dimid *scores, int *nscores,
			   dimid *out)
{
	dimid all[2 * MAX_DIMS];
	int n = union_dims(union_dims(0, all, t[Q]), all, t[K]), m = 0;

	*nscores = 0;
	for (int i = 0; i < n && *nscores < MAX_DIMS; i++)
		if (all[i] != head && all[i] != keys)
			scores[(*nscores)++] = all[i];
	for (int i = 0; i < *nscores; i++)
		out[m++] = scores[i];
	for (int i = 0; i < t[V]->nd; i++) {
		bool has = t[V]->d[i] == keys;

		for (int j = 0; j < *nscores; j++)
			has |= scores[j] == t[V]->d[i];
		if (!has)
			out[m++] = t[V]->d[i];
	}
	return m;
}

static bool attention_options(struct call *k, struct op *op, struct value *const *t, dimid keys)
{
	struct ctx *c = k->c;
	int64_t width = dim_size(c->m, op->at.dim);
	double scale = width ? 1 / sqrt((double)width) : 1, cap = 0; /* scores of no dims are 0 */

	if (!arg_none(k, SCALE) && !arg_number(k, SCALE, &scale))
		return false;
	SET(op, scale, scale);
	if (!arg_none(k, CAP)) {
		if (!arg_number(k, CAP, &cap))
			return false;
		SET(op, cap, cap);
	}
	if (arg_none(k, CAUSAL))
		return true;
	dimid causal = arg_dim(k, CAUSAL);
	if (causal == NODIM)
		return false;
	if (!has_dim(t[Q], causal) || causal == keys) {
		fail(c, k->arg[CAUSAL]->at, "q of attention has no '%s', only %s",
		     c->m->dims.at[causal].name, dims_text(c, t[Q]));
		return false;
	}
	if (has_dim(t[K], causal))
		return refuse_dims(k, K, "has the positions of the queries,", causal);
	SET(op, causal, causal);
	return true;
}

/* -- bias, mask, window: operands behind q, k, v -- */

/* Its dims are among those of the scores: what it adds would be an attention of its own. */
static bool among_scores(struct call *k, int arg, const struct value *v, int n, const dimid *scores)
{
	struct ctx *c = k->c;
	static const char *const names[] = { [MASK] = "mask", [BIAS] = "bias" };

	for (int i = 0; i < v->nd; i++) {
		bool has = false;

		for (int j = 0; j < n; j++)
			has |= scores[j] == v->d[i];
		if (has)
			continue;
		fail(c, k->arg[arg]->at, "the %s has '%s', but the scores only [%s]", names[arg],
		     c->m->dims.at[v->d[i]].name, list_text(c, n, scores, ""));
		return false;
	}
	return true;
}

/* A bias that is a number moves all scores of a row alike: it does nothing. */
static bool add_bias(struct call *k, int n, const dimid *scores, struct value **bias)
{
	struct val v = arg_value(k, BIAS);

	if (v.kind == V_BAD || is_number(&v))
		return v.kind != V_BAD;
	if (v.kind != V_TENSOR) {
		fail(k->c, k->arg[BIAS]->at, "the bias of attention is a float tensor");
		return false;
	}
	*bias = float_of(k->c, v, k->n->at);
	return among_scores(k, BIAS, *bias, n, scores);
}

static bool add_mask(struct call *k, int n, const dimid *scores, struct value **mask)
{
	struct val v = arg_value(k, MASK);

	if (v.kind == V_BAD)
		return false;
	if (v.kind != V_TENSOR || v.dt != BOOL) {
		fail(k->c, k->arg[MASK]->at, "the mask of attention is a bool tensor, true where a key is seen");
		if (v.kind == V_TENSOR)
			hint(k->c, "write a comparison, %s != 0",
			     node_text(k->c->mem, k->c->src, k->arg[MASK]));
		return false;
	}
	*mask = import(k->c, v.v);
	return among_scores(k, MASK, *mask, n, scores);
}

static bool add_window(struct call *k, struct value **window)
{
	struct ctx *c = k->c;
	struct val v = arg_value(k, WINDOW);

	if (v.kind == V_BAD)
		return false;
	if (arg_none(k, CAUSAL)) {
		fail(c, k->arg[WINDOW]->at, "a window needs 'causal', which names the positions it counts from");
		return false;
	}
	bool number = is_number(&v) && v.x >= 1 && v.x == floor(v.x) && v.x < 0x1p31;
	if (!number && (v.kind != V_TENSOR || v.dt != INT || v.v->nd)) {
		fail(c, k->arg[WINDOW]->at, "the window of attention is a positive integer, or one for each iteration");
		return false;
	}
	if (is_number(&v))
		v.dt = INT;
	*window = value_of(c, v, k->arg[WINDOW]->at);
	return true;
}

/* Appends what is given to the operands; how many there are then, 0 after a message. */
static uint32_t attention_extras(struct call *k, struct op *op, struct value **in, int nscores,
				 const dimid *scores)
{
	dimid all[MAX_DIMS + 1];
	struct value *extra[3] = { NULL };
	uint32_t n = 3;
	int64_t bits = 0;

	memcpy(all, scores, (size_t)nscores * sizeof *scores);
	all[nscores] = op->at.ctx;
	if (!arg_none(k, BIAS) && !add_bias(k, nscores + 1, all, &extra[0]))
		return 0;
	if (!arg_none(k, MASK) && !add_mask(k, nscores + 1, all, &extra[1]))
		return 0;
	if (!arg_none(k, WINDOW) && !add_window(k, &extra[2]))
		return 0;
	for (int i = 0; i < 3; i++)
		if (extra[i]) {
			in[n++] = extra[i];
			bits |= 1 << i;
		}
	if (bits)
		SET(op, extra, bits);
	return n;
}

/* -- dropout of the weights -- */

/* The attributes of dropout, and the iterations it reads; their number, -1 after a message. */
static int attention_dropout(struct call *k, struct op *op, double p, int n, const dimid *scores,
			     struct value **iters)
{
	struct dimlist dims = { .n = (uint8_t)(n + 1) };

	if (p == 0)
		return 0;
	memcpy(dims.d, scores, (size_t)n * sizeof *scores);
	dims.d[n] = op->at.ctx;
	SET(op, p, p);
	SET(op, key, mask_key(k->c));
	SET(op, dims, dims);
	at(k);
	int depth = iterations(k->c, iters);
	if (depth <= 4)
		return depth;
	fail(k->c, k->n->at, "dropout inside more than 4 repeats");
	return -1;
}

static bool attention_operands(struct call *k, struct value **t, dimid *head, dimid *keys)
{
	bool good = true;

	for (int i = Q; i <= V; i++) {
		struct val v = arg_value(k, i);
		const struct value *whole;

		good &= arg_float(k, i, &v, &whole, NODIM);
		t[i] = v.v;
	}
	*head = arg_dim(k, HEAD);
	*keys = arg_dim(k, KEYS);
	return good && *head != NODIM && *keys != NODIM && attention_dims(k, t, *head, *keys) &&
	       attention_fits(k, t, *head, *keys);
}

struct val make_attention(struct call *k)
{
	struct ctx *c = k->c;
	struct value *in[6 + MAX_DIMS];
	dimid head, keys, scores[MAX_DIMS], out[2 * MAX_DIMS];
	struct op options = { .code = OP_ATTENTION };
	double p = 0;
	int nscores;

	if (!attention_operands(k, in, &head, &keys))
		return call_bad();
	SET(&options, dim, head);
	SET(&options, ctx, keys);
	int n = attention_types(in, head, keys, scores, &nscores, out);
	if (nscores >= MAX_DIMS)
		return fail(c, k->n->at, "the scores of this attention have more than %d dims", MAX_DIMS);
	if (!fits(c, n, out, k->n->at) || !attention_options(k, &options, in, keys))
		return call_bad();
	if (!arg_none(k, DROPOUT) && !arg_probability(k, DROPOUT, &p))
		return call_bad();
	uint32_t nin = attention_extras(k, &options, in, nscores, scores);
	int depth = nin ? attention_dropout(k, &options, p, nscores, scores, in + nin) : -1;
	if (depth < 0)
		return call_bad();
	struct op *op = op_new(at(k), OP_ATTENTION, nin + (uint32_t)depth, in, 2);
	op->has = options.has;
	op->at = options.at;
	op_type(at(k), op, 1, F32, nscores, scores);
	return tensor(op_type(at(k), op, 0, F32, n, out));
}

