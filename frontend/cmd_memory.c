/* frontend/cmd_memory.c - what the memory of a rank is used for, stage by stage. */
#include "frontend/cmd.h"
#include "ir/layout.h"

static int64_t buffer_bytes(const struct module *m, const struct buffer *b, int stage)
{
	int64_t bytes = dtype_bytes(b->dt);

	for (int i = 0; i < b->nd; i++) {
		bool rows = pipe_axis(m) >= 0 && is_staged(m, b->d[i]) && b->store.on[i].n == 1;

		bytes *= rows ? pipe_rows(m, b->d[i], stage) : cap_of(m, b->d[i], &b->store.on[i]);
	}
	return bytes;
}

static int64_t gradient_bytes(const struct module *m)
{
	int64_t bytes = 0;

	for (const struct op *op = m->top.first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			if (op->out[i]->name && strncmp(op->out[i]->name, "d:", 2) == 0)
				bytes += local_bytes(m, op->out[i]);
	return bytes;
}

static void add_buffers(const struct module *m, int stage, struct memory *x)
{
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];

		if (!holds_buffer(m, b, stage))
			continue;
		if (b->host) {
			x->host += round_up(buffer_bytes(m, b, stage));
			continue;
		}
		if (b->role == B_PARAM || b->role == B_STATE)
			x->params += buffer_bytes(m, b, stage);
		if (b->role == B_OPT)
			x->optimizer += buffer_bytes(m, b, stage);
	}
}

/* What lives as long as the step and is no buffer: sums over the microbatches. */
static int64_t sums_bytes(const struct regions *r, const struct stage_layout *l, const struct memory *x)
{
	int64_t bytes = -x->params - x->optimizer;

	for (uint32_t i = 0; i < r->at.n; i++)
		if (r->at.at[i].kind == RG_STEP && l->once[i].base >= 0)
			bytes += r->at.at[i].bytes * l->once[i].rows;
	return bytes;
}

static int64_t channel_bytes(const struct layouts *l, int stage)
{
	int64_t bytes = 0;

	for (uint32_t i = 0; i < l->channels.n; i++) {
		const struct channel_plan *c = &l->channels.at[i];

		bytes += c->to == stage ? c->bytes * c->buffers : 0;
		bytes += c->from == stage && c->out >= 0 ? c->bytes : 0;
	}
	return bytes;
}

static void count_stage(const struct module *m, const struct regions *r, const struct layouts *l, int stage, struct memory *x)
{
	int64_t arena = l ? l->stage[stage].arena : m->arena;

	*x = (struct memory){ .peak = arena + m->workspace, .workspace = m->workspace };
	add_buffers(m, stage, x);
	x->grads = l ? sums_bytes(r, &l->stage[stage], x) : gradient_bytes(m);
	x->comm = l ? channel_bytes(l, stage) : 0;
	x->activations = arena - x->params - x->optimizer - x->grads - x->comm;
	if (x->activations < 0) { /* gradients share their place with what is not alive any more */
		x->grads += x->activations;
		x->activations = 0;
	}
}

struct memory *count_memory(struct session *s, const struct module *m, int *stages)
{
	struct regions *r = regions_of(s->mem, m);
	struct layouts *l = NULL;

	regions_measure(r, m);
	if (pipe_axis(m) >= 0)
		l = layouts_of(s->mem, m, r);
	*stages = l ? l->stages : 1;
	struct memory *x = NEWN(s->mem, struct memory, *stages);

	for (int i = 0; i < *stages; i++)
		count_stage(m, r, l, i, &x[i]);
	return x;
}
