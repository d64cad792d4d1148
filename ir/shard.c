/* ir/shard.c - shardings: the order along a dim, extents of nested chunks, what a collective moves. */
#include "ir/ir.h"

int64_t zigzag_index(int64_t size, int64_t k, int64_t position)
{
	if (!k)
		return position;
	int64_t chunk = size / (2 * k), pair = position / (2 * chunk), at = position % (2 * chunk);
	return at < chunk ? pair * chunk + at : (2 * k - 2 - pair) * chunk + at;
}

int64_t zigzag_position(int64_t size, int64_t k, int64_t index)
{
	if (!k)
		return index;
	int64_t chunk = size / (2 * k), no = index / chunk, at = index % chunk;
	return no < k ? no * 2 * chunk + at : ((2 * k - 1 - no) * 2 + 1) * chunk + at;
}

int64_t dim_index(const struct module *m, dimid d, int64_t position)
{
	return is_staged(m, d) ? pipe_index(m, d, position) :
				 zigzag_index(m->dims.at[d].size, m->dims.at[d].zigzag, position);
}

int64_t dim_position(const struct module *m, dimid d, int64_t index)
{
	return is_staged(m, d) ? pipe_position(m, d, index) :
				 zigzag_position(m->dims.at[d].size, m->dims.at[d].zigzag, index);
}

struct extent extent_of(const struct module *m, dimid d, const struct axes *on, const int *coord)
{
	int64_t size = dim_size(m, d);
	struct extent e = { 0, size, size };
	int i = 0;

	if (on->n && is_staged(m, d)) { /* cut by the pipeline, not in equal parts */
		e = pipe_extent(m, d, coord[on->a[0]]);
		i = 1;
	}
	for (; i < on->n; i++) {
		int64_t chunk = ceil_div(e.cap, m->axes.at[on->a[i]].size);
		int64_t from = coord[on->a[i]] * chunk;

		e.start += from;
		e.valid = e.valid - from < 0 ? 0 : e.valid - from > chunk ? chunk : e.valid - from;
		e.cap = chunk;
	}
	return e;
}

int64_t cap_of(const struct module *m, dimid d, const struct axes *on)
{
	bool staged = on->n && is_staged(m, d);
	int64_t size = staged ? pipe_extent(m, d, 0).cap : dim_size(m, d);

	for (int i = staged; i < on->n; i++)
		size = ceil_div(size, m->axes.at[on->a[i]].size);
	return size;
}

int64_t local_count(const struct module *m, const struct value *v)
{
	int64_t n = 1;

	for (int i = 0; i < v->nd; i++)
		n *= cap_of(m, v->d[i], &v->sh.on[i]);
	return n;
}

int64_t local_bytes(const struct module *m, const struct value *v)
{
	return local_count(m, v) * dtype_bytes(v->dt);
}

bool axes_has(const struct axes *l, int axis)
{
	for (int i = 0; i < l->n; i++)
		if (l->a[i] == axis)
			return true;
	return false;
}

bool axes_prefix(const struct axes *a, const struct axes *b)
{
	return a->n <= b->n && memcmp(a->a, b->a, a->n) == 0;
}

bool axes_equal(const struct axes *a, const struct axes *b)
{
	return a->n == b->n && memcmp(a->a, b->a, a->n) == 0;
}

void axes_push(struct axes *l, int axis)
{
	if (l->n == MAX_ON)
		die("more than %d axes on one dim", MAX_ON);
	l->a[l->n++] = (uint8_t)axis;
}

bool same_layout(const struct value *v, int nd, const dimid *d, const struct axes *on, enum dtype dt)
{
	if (v->nd != nd || v->dt != dt)
		return false;
	for (int i = 0; i < nd; i++)
		if (v->d[i] != d[i] || !axes_equal(&v->sh.on[i], &on[i]))
			return false;
	return true;
}

bool is_row(const struct module *m, const struct value *v, const struct value *whole, dimid dim)
{
	const struct axes *on = &whole->sh.on[0];
	bool staged = on->n == 1 && is_staged(m, dim) && on->a[0] == pipe_axis(m);

	return whole->nd == v->nd + 1 && whole->d[0] == stack_dim(m, whole, dim) && (!on->n || staged) &&
	       same_layout(v, whole->nd - 1, whole->d + 1, whole->sh.on + 1, whole->dt);
}

uint32_t sharding_axes(const struct sharding *s, int nd)
{
	uint32_t bits = 0;

	for (int i = 0; i < nd; i++)
		for (int k = 0; k < s->on[i].n; k++)
			bits |= 1u << s->on[i].a[k];
	return bits;
}

bool sharding_equal(const struct sharding *a, const struct sharding *b, int nd)
{
	if (a->sum != b->sum || a->max != b->max)
		return false;
	for (int i = 0; i < nd; i++)
		if (!axes_equal(&a->on[i], &b->on[i]))
			return false;
	return true;
}

int64_t group_size(const struct module *m, uint32_t axes)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < m->axes.n; i++)
		if (axes >> i & 1)
			n *= m->axes.at[i].size;
	return n;
}

uint32_t axes_bits(const struct axes *l)
{
	uint32_t bits = 0;

	for (int i = 0; i < l->n; i++)
		bits |= 1u << l->a[i];
	return bits;
}

/* Rank by rank: keys and values go round, their gradients go home in float32; the combination of results
 * is a maximum and a sum for each row, and a sum of o. */
static double attention_elements(const struct module *m, const struct op *op, bool bytes)
{
	double ring = (double)group_size(m, attn_ring(op)), apart = (double)group_size(m, attn_apart(op));
	double kv = (double)(local_count(m, op->in[1]) + local_count(m, op->in[2])), n;

	n = (ring - 1) * kv * (bytes ? dtype_bytes(op->in[1]->dt) : 1);
	if (op->code == OP_ATTENTION_GRAD)
		return n + (ring - 1) * kv * (bytes ? 4 : 1);
	double rows = (double)local_count(m, op->out[1]), o = (double)local_count(m, op->out[0]);
	return n + 2 * (apart - 1) / apart * (2 * rows + o) * (bytes ? 4 : 1);
}

dimid comm_dim(const struct op *op, uint32_t i)
{
	const struct value *in = op->in[i], *out = op->out[i];

	if (HAS(op, dim))
		return op->at.dim;
	for (int k = 0; k < in->nd && op->code != OP_ALL_REDUCE; k++) {
		int p = dim_pos(out, in->d[k]);

		if (p >= 0 && in->sh.on[k].n != out->sh.on[p].n)
			return in->d[k];
	}
	return NODIM;
}

static double sent(const struct module *m, const struct op *op, uint32_t i, double k)
{
	double in = (double)local_count(m, op->in[i]), out = (double)local_count(m, op->out[i]);

	switch (op->code) {
	case OP_ALL_GATHER:
		return in * (k - 1);
	case OP_REDUCE_SCATTER:
		return out * (k - 1);
	case OP_ALL_TO_ALL:
		return out * (k - 1) / k;
	default:
		return 2 * (k - 1) / k * in;
	}
}

static double all_sent(const struct module *m, const struct op *op, bool bytes)
{
	double sum = 0, k;

	if (opinfo[op->code].class == C_ATTN)
		return attention_elements(m, op, bytes);
	if (!comm_sends(op->code))
		return 0;
	k = (double)group_size(m, axes_bits(&op->at.axes));
	for (uint32_t i = 0; i < op->nin; i++)
		sum += sent(m, op, i, k) * (bytes ? dtype_bytes(op->in[i]->dt) : 1);
	return sum;
}

double comm_elements(const struct module *m, const struct op *op)
{
	return all_sent(m, op, false);
}

double comm_bytes(const struct module *m, const struct op *op)
{
	return all_sent(m, op, true);
}

uint32_t comm_axes(const struct op *op)
{
	return HAS(op, axes) ? axes_bits(&op->at.axes) : 0;
}

const char *comm_name(const struct op *op)
{
	if (opinfo[op->code].class != C_ATTN)
		return opinfo[op->code].name;
	return attn_ring(op) ? "ring" : "combine";
}

const char *axes_user_text(struct arena *mem, const struct module *m, uint32_t axes)
{
	struct text t = { .mem = mem };

	for (uint32_t u = 0; u < m->mesh.n; u++) {
		bool in = false;

		for (uint32_t i = 0; i < m->axes.n; i++)
			in |= (axes >> i & 1) && !m->axes.at[i].time && m->axes.at[i].user == (int)u;
		if (in)
			text_put(&t, "%s%s", t.n ? "." : "", m->mesh.at[u].name);
	}
	text_put(&t, "%s", "");
	return t.n ? t.s : "";
}
