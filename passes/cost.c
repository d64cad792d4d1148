/* passes/cost.c - what an op costs, counted from its labels; the one place with machine numbers.
 *
 * FLOPs are those of contractions (2 a multiply-add); elementwise work is counted by the bytes it
 * moves. Seconds of one rank: max(flops / peak, bytes / bandwidth) for an op, and for a
 * collective latency + bytes / the slowest link that its group crosses. */
#include "ir/region.h"
#include "passes/passes.h"

#include "ir/region.h"

/* The product of the sizes of the loops of op; local: the parts that one rank has. */
static double space(const struct module *m, const struct op *op, bool local)
{
	dimid d[MAX_DIMS * 12];
	int n = op_space(op, d);
	double size = 1;

	for (int i = 0; i < n; i++) {
		int64_t cap = dim_size(m, d[i]);

		for (uint32_t k = 0; local && k < op->nin + op->nout; k++) {
			const struct value *v = k < op->nin ? op->in[k] : op->out[k - op->nin];
			int pos = dim_pos(v, d[i]);

			if (pos >= 0 && cap_of(m, d[i], &v->sh.on[pos]) < cap)
				cap = cap_of(m, d[i], &v->sh.on[pos]);
		}
		size *= (double)cap;
	}
	return size;
}

/* Products with each score: q.k over the dims of a key and p.v over those of a value forward; backward the
 * gradients of q and k, of p and v. Kernels that do not keep scores make q.k once more (Dao et al. 2022), which
 * ranks do, but the model does not ask for. */
static double attention_flops(const struct module *m, const struct op *op, bool local)
{
	const struct value *q = op->in[0], *v = op->in[2];
	double key = (double)dim_size(m, op->at.dim), value = has_dim(v, op->at.dim) ? key : 1, apart = 1;

	for (int i = 0; i < v->nd; i++)
		if (!has_dim(q, v->d[i]) && v->d[i] != op->at.ctx)
			apart *= (double)(local ? cap_of(m, v->d[i], &v->sh.on[i]) : dim_size(m, v->d[i]));
	double all = space(m, op, local), scores = all > 0 ? all / key / apart : 0, half = HAS(op, causal) ? 0.5 : 1;
	double ring = local ? (double)group_size(m, attn_ring(op)) : 1;

	value *= apart;
	if (op->code == OP_ATTENTION)
		return 2 * (key + value) * scores * half * ring;
	return 2 * ((local ? 3 : 2) * key + 2 * value) * scores * half * ring;
}

static double flops(const struct module *m, const struct op *op, bool local)
{
	double sum = 0;

	switch (op->code) {
	case OP_EINSUM:
		return 2 * space(m, op, local);
	case OP_ATTENTION:
	case OP_ATTENTION_GRAD:
		return attention_flops(m, op, local);
	case OP_REPEAT:
	case OP_KERNEL:
		for (const struct op *o = op->body->first; o; o = o->next)
			sum += flops(m, o, local);
		return is_first_part(m, op) ? sum * first_share(m, op->at.dim, -1, -1) :
		       op->code == OP_REPEAT ? sum * (double)dim_size(m, op->at.dim) : sum;
	default:
		return 0;
	}
}

double op_flops(const struct module *m, const struct op *op)
{
	return flops(m, op, false);
}

double op_local_flops(const struct module *m, const struct op *op)
{
	return flops(m, op, true);
}

double op_local_bytes(const struct module *m, const struct op *op)
{
	double bytes = 0;

	for (uint32_t i = 0; i < op->nin; i++)
		bytes += (double)local_bytes(m, op->in[i]);
	for (uint32_t i = 0; i < op->nout; i++)
		bytes += (double)local_bytes(m, op->out[i]);
	return bytes;
}

/* -- links --
 *
 * Ranks are numbered so that the last axis varies fastest, and `group` neighbours share a link. A group
 * over these axes lies in blocks of `reach` ranks, so on a link if its groups are whole blocks; else on the
 * next. A collective that spans several links is a ring over the slowest: alpha + bytes / bandwidth (Thakur,
 * Rabenseifner, Gropp 2005, "Optimization of collective communication operations in MPICH"). Its staged form
 * (Cho et al. 2019, "BlueConnect") does the part on each link for itself, the inner first, and what an outer
 * link carries is divided by the ranks further in; its time is the sum over the links. */

static bool on_mesh(const struct module *m, uint32_t axes, int i)
{
	return axes >> i & 1 && !m->axes.at[i].time && m->axes.at[i].size > 1;
}

int comm_link(const struct module *m, uint32_t axes)
{
	int64_t stride = 1, reach = 1;
	int link = 0;

	for (int i = (int)m->axes.n - 1; i >= 0; i--) {
		if (m->axes.at[i].time)
			continue;
		stride *= m->axes.at[i].size;
		if (on_mesh(m, axes, i))
			reach = stride;
	}
	for (; link + 1 < m->hw.nlink; link++) {
		int64_t group = m->hw.link[link].group;

		if (!group || stride <= group || group % reach == 0)
			break;
	}
	return link;
}

double comm_seconds(const struct module *m, uint32_t axes, double bytes)
{
	if (!m->hw.nlink)
		return bytes * 1e-10;
	const struct link *l = &m->hw.link[comm_link(m, axes)];
	return l->latency + (l->bandwidth > 0 ? bytes / l->bandwidth : 0);
}

bool several_links(const struct module *m, uint32_t axes)
{
	int first = -1;

	for (int i = 0; i < (int)m->axes.n; i++) {
		if (!on_mesh(m, axes, i))
			continue;
		int link = comm_link(m, 1u << i);

		if (first >= 0 && link != first)
			return true;
		first = link;
	}
	return false;
}

bool same_cut_axis(const struct module *m, int a, int b)
{
	const struct axis *x = &m->axes.at[a], *y = &m->axes.at[b];

	return (a - b == 1 || b - a == 1) && !x->time && !y->time && x->user == y->user &&
	       several_links(m, 1u << a | 1u << b);
}

double staged_seconds(const struct module *m, uint32_t axes, double bytes, int ways)
{
	double flat = (double)group_size(m, axes), sum = 0;

	flat = comm_seconds(m, axes, ways * (flat - 1) / flat * bytes);
	if (!several_links(m, axes))
		return flat;
	for (int link = 0; link < m->hw.nlink; link++) {
		uint32_t here = 0;

		for (int i = 0; i < (int)m->axes.n; i++)
			if (on_mesh(m, axes, i) && comm_link(m, 1u << i) == link)
				here |= 1u << i;
		if (!here)
			continue;
		double k = (double)group_size(m, here);
		bool outermost = link == comm_link(m, axes); /* further in, an all_reduce is in two parts */

		sum += comm_seconds(m, here, ways * (k - 1) / k * bytes);
		sum += outermost ? 0 : (ways - 1) * comm_seconds(m, here, 0);
		bytes /= k;
	}
	return sum < flat ? sum : flat;
}

/* Blocks go round while the op computes on those that it has. Then results are combined. */
static double attention_seconds(const struct module *m, const struct op *op, double compute)
{
	uint32_t ring = attn_ring(op), apart = attn_apart(op);
	double ranks = (double)group_size(m, ring), bytes = comm_bytes(m, op);

	if (bytes <= 0)
		return compute;
	double send = comm_seconds(m, ring | apart, bytes), own = compute / ranks;
	if (apart)
		return compute + send;
	return own + (send > compute - own ? send : compute - own);
}

double op_compute_seconds(const struct module *m, const struct op *op)
{
	double peak = op->nin && op->in[0]->dt == BF16 && m->hw.bf16 > 0 ? m->hw.bf16 : m->hw.fp32;
	double compute = peak > 0 ? op_local_flops(m, op) / peak : 0;
	double move = m->hw.bandwidth > 0 ? op_local_bytes(m, op) / m->hw.bandwidth : 0;

	return compute > move ? compute : move;
}

double op_seconds(const struct module *m, const struct op *op)
{
	double sum = 0;

	if (op->code == OP_REPEAT) {
		for (const struct op *o = op->body->first; o; o = o->next)
			sum += op_seconds(m, o);
		return sum * (double)dim_size(m, op->at.dim);
	}
	if (op->code == OP_WAIT)
		return 0;
	if (opinfo[op->code].class == C_HOST)
		return host_seconds(m, op);
	if (comm_sends(op->code))
		return comm_seconds(m, comm_axes(op), comm_bytes(m, op));
	double compute = op_compute_seconds(m, op);
	return opinfo[op->code].class == C_ATTN ? attention_seconds(m, op, compute) : compute;
}

struct balance {
	double most, mean;
};

/* Scores below the diagonal of the rows of dim d, by ranks along the axes that split it. */
static struct balance causal_rows(const struct module *m, dimid d, const struct axes *on)
{
	struct balance b = { 0, 0 };
	int64_t ranks = 1;
	int coord[MAX_AXES] = { 0 };

	for (int i = 0; i < on->n; i++)
		ranks *= m->axes.at[on->a[i]].size;
	for (int64_t r = 0; r < ranks; r++) {
		int64_t rest = r;
		double sum = 0;

		for (int i = on->n - 1; i >= 0; i--) {
			coord[on->a[i]] = (int)(rest % m->axes.at[on->a[i]].size);
			rest /= m->axes.at[on->a[i]].size;
		}
		struct extent e = extent_of(m, d, on, coord);
		for (int64_t i = 0; i < e.valid; i++)
			sum += (double)dim_index(m, d, e.start + i) + 1;
		b.mean += sum / (double)ranks;
		b.most = sum > b.most ? sum : b.most;
	}
	return b;
}

static void add_balance(const struct module *m, const struct block *block, struct balance *all)
{
	for (const struct op *op = block->first; op; op = op->next) {
		if (op->body)
			add_balance(m, op->body, all);
		if (opinfo[op->code].class != C_ATTN || !HAS(op, causal))
			continue;
		const struct value *lse = op->code == OP_ATTENTION ? op->out[1] : op->in[attn_rest(op) + 1];
		int pos = dim_pos(lse, op->at.causal);
		struct balance b = { 0, 0 };
		double weight = op_times(m, op) * op_local_flops(m, op);

		if (pos >= 0)
			b = causal_rows(m, op->at.causal, &lse->sh.on[pos]);
		all->most += b.mean > 0 ? weight * b.most / b.mean : 0;
		all->mean += b.mean > 0 ? weight : 0;
	}
}

double attention_imbalance(const struct module *m)
{
	struct balance all = { 0, 0 };

	add_balance(m, &m->top, &all);
	return all.mean > 0 ? all.most / all.mean : 1;
}

/* Does this stage run op, at the top? */
static bool on_stage(const struct module *m, const struct op *op, int stage)
{
	return pipe_axis(m) < 0 || stage < 0 || !HAS(op, where) || (op->at.where & pipe_places(m, stage));
}

static double times_on(const struct module *m, const struct op *op, int stage)
{
	double times = op->phase == FORWARD || op->phase == BACKWARD ? (double)m->micro : 1;

	for (; op->home->owner; op = op->home->owner)
		if (op->home->owner->code == OP_REPEAT) {
			dimid d = op->home->owner->at.dim;

			if (is_first_part(m, op->home->owner))
				times *= first_share(m, d, stage, -1);
			else
				times *= stage >= 0 && is_staged(m, d) ? (double)pipe_rows(m, d, stage) : (double)dim_size(m, d);
		}
	return on_stage(m, op, stage) ? times : 0;
}

double op_times(const struct module *m, const struct op *op)
{
	return times_on(m, op, -1);
}

/* -- host memory -- */

/* Bytes that op copies between the memories of host and device: a copy, or a read or write that is one since it changes
 * the layout. */
static double copied_bytes(const struct module *m, const struct op *op)
{
	bool uses = op->code == OP_READ || op->code == OP_WRITE;
	const struct buffer *b = uses ? find_buffer(m, op->at.buf) : NULL;

	if (opinfo[op->code].class == C_HOST)
		return (double)local_bytes(m, op->in[0]);
	if (!b || !b->host || b->role == B_INPUT)
		return 0;
	if (op->code == OP_READ)
		return reads_in_place(m, op) ? 0 : (double)local_bytes(m, op->out[0]);
	const struct op *from = op->in[0]->def;

	if (from && from->code == OP_WAIT)
		from = from->in[0]->def;
	return from && from->code == OP_TO_HOST ? 0 : (double)local_bytes(m, op->in[0]);
}

static void add_traffic(const struct module *m, const struct block *block, struct host_traffic *x)
{
	for (const struct op *op = block->first; op; op = op->next) {
		double bytes = op_times(m, op) * copied_bytes(m, op);

		if (op->code == OP_REPEAT)
			add_traffic(m, op->body, x);
		else if (op->code == OP_WRITE || op->code == OP_TO_HOST)
			x->out += bytes;
		else
			x->in += bytes;
	}
}

struct host_traffic host_traffic(const struct module *m)
{
	struct host_traffic x = { 0, 0 };

	add_traffic(m, &m->top, &x);
	return x;
}

double host_seconds(const struct module *m, const struct op *op)
{
	double bytes = m->hw.host > 0 ? copied_bytes(m, op) : 0;

	return bytes > 0 ? m->hw.host_latency + bytes / m->hw.host : 0;
}

/* -- the table of collectives -- */

struct rows {
	struct arena *mem;
	VEC(struct comm_row) row;
	int stage;  /* whose; -1: all that the program does */
	bool *loop; /* by dim: a repeat runs over it */
};

/* A collective on a stacked gradient is one for each layer: what Megatron or XLA would issue. (A bucket is one.) */
static double stacked_times(const struct rows *r, const struct module *m, const struct op *op)
{
	const struct value *v = op->in[0];
	double times = 1;

	for (int i = 0; i < v->nd; i++)
		if (r->loop[v->d[i]])
			times *= r->stage >= 0 && is_staged(m, v->d[i]) ? (double)pipe_rows(m, v->d[i], r->stage) : (double)dim_size(m, v->d[i]);
	return times;
}

/* Of what a rank of the longest stage sends, the part of this one. */
static double stage_share(const struct rows *r, const struct module *m, const struct op *op)
{
	return r->stage < 0 ? 1 : pipe_share(m, op->in[0], r->stage);
}

static const char *link_name(const struct module *m, uint32_t axes)
{
	const char *name = m->hw.nlink ? m->hw.link[comm_link(m, axes)].name : NULL;

	return name ? name : "";
}

static void add_row(struct rows *r, const struct module *m, const struct op *op)
{
	double times = times_on(m, op, r->stage), elements = comm_elements(m, op) * times * stage_share(r, m, op);
	double bytes = comm_bytes(m, op) * times * stage_share(r, m, op), count = times * (is_bucket(op->code) && op->nin > 1 ? 1 : stacked_times(r, m, op));

	if (count <= 0)
		return;
	for (uint32_t i = 0; i < r->row.n; i++) {
		struct comm_row *c = &r->row.at[i];

		if (c->op == op->code && c->axes == comm_axes(op) && streq(c->why, op->why)) {
			c->count += count;
			c->bytes += bytes;
			c->elements += elements;
			return;
		}
	}
	struct comm_row c = { op->code, comm_name(op), comm_axes(op), axes_user_text(r->mem, m, comm_axes(op)),
			      link_name(m, comm_axes(op)),
			      op->why, op->span, count, bytes, elements };
	PUSH(r->mem, &r->row, c);
}

static void walk(struct rows *r, const struct module *m, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next) {
		if (comm_elements(m, op) * op_times(m, op) > 0)
			add_row(r, m, op);
		if (op->body)
			walk(r, m, op->body);
	}
}

static void mark_loops(struct rows *r, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next)
		if (op->code == OP_REPEAT) {
			r->loop[op->at.dim] = true;
			mark_loops(r, op->body);
		}
}

/* What a stage sends to its neighbours, by value. */
static void add_sends(struct rows *r, const struct module *m)
{
	struct regions *all = regions_of(r->mem, m);
	struct chunk_map map = chunk_map_of(r->mem, m);
	uint32_t axis = 1u << pipe_axis(m);

	for (uint32_t i = 0; i < all->at.n; i++) {
		const struct region *x = &all->at.at[i];
		struct trips from = region_senders(&map, x);
		double count = 0;

		for (int g = (int)from.lo; g < from.hi; g++) {
			int to = x->phase == FORWARD ? g + 1 : g - 1;

			if ((r->stage < 0 || pipe_stage(m, g) == r->stage) && pipe_stage(m, to) != pipe_stage(m, g))
				count += (double)m->micro;
		}
		if (count <= 0)
			continue;
		const char *over = axes_user_text(r->mem, m, axis), *name = x->v->name ? x->v->name : "";
		const char *what = strncmp(name, "d:", 2) == 0 ? arena_printf(r->mem, "the gradient of %s", name + 2) :
				   *name ? name : arena_printf(r->mem, "the %s of %s", opinfo[x->v->def->code].name, span_text(r->mem, m->src, x->v->span));
		const char *why = arena_printf(r->mem, "send of %s over %s: the chunk %s goes on with it", what, over,
					       x->phase == FORWARD ? "behind" : "before");
		struct comm_row row = { NOP, "send", axis, over, link_name(m, axis), why,
					x->v->span, count, count * (double)local_bytes(m, x->v), count * (double)local_count(m, x->v) };
		PUSH(r->mem, &r->row, row);
	}
}

struct comm_row *stage_table(struct arena *mem, const struct module *m, int stage, int *n)
{
	struct rows r = { .mem = mem, .stage = stage, .loop = NEWN(mem, bool, m->dims.n + 1) };

	mark_loops(&r, &m->top);
	walk(&r, m, &m->top);
	if (pipe_axis(m) >= 0)
		add_sends(&r, m);
	*n = (int)r.row.n;
	return r.row.at;
}

struct comm_row *comm_table(struct arena *mem, const struct module *m, int *n)
{
	return stage_table(mem, m, -1, n);
}
