/* runtime/cuda/launch.c - kernel regions: arguments as codegen/cuda.h says. */
#include "runtime/cuda/cuda.h"

void gpu_declare(const struct touched *t, size_t n)
{
	CUdeviceptr base[2 * MAX_OPERANDS + 2];
	size_t bytes[LEN(base)], k = 0;
	unsigned char writes[LEN(base)];

	if (!lib.softgpuDeclare)
		return;
	for (size_t i = 0; i < n && k < LEN(base); i++)
		if (t[i].bytes > 0) {
			base[k] = dev(t[i].at);
			bytes[k] = (size_t)t[i].bytes;
			writes[k++] = t[i].writes;
		}
	lib.softgpuDeclare((int)k, base, bytes, writes);
}

bool cuda_prepare(struct runtime *rt, struct instr *i, struct diag *d)
{
	const struct cuda *c = rt->own;

	(void)d;
	i->own = &c->sig[i->no];
	return true;
}

/* What a region is told: pointers, scratch, extents, the step, the iteration. */
struct arguments {
	CUdeviceptr at[2 * MAX_OPERANDS + 2];
	int64_t extent[2 * 64];
	struct ptc_iter iter;
	void *args[2 * MAX_OPERANDS + 2 * 64 + 4];
	struct touched touched[2 * MAX_OPERANDS + 2];
	int nargs;
	uint32_t n; /* of at and touched */
};

static void add_pointer(struct arguments *c, const void *p, int64_t bytes, bool writes)
{
	c->touched[c->n] = (struct touched){ p, bytes, writes };
	c->at[c->n] = dev(p);
	c->args[c->nargs++] = &c->at[c->n++];
}

static void add_rest(struct arguments *c, const struct rank *r, const struct cuda_sig *s)
{
	struct gpu *g = gpu_of(r);

	for (int k = 0; k < s->next; k++) {
		struct extent e = rank_extent(r->rt->m, s->ext[k].d, &s->ext[k].on, r->coord);

		c->extent[2 * k] = e.start;
		c->extent[2 * k + 1] = e.valid;
		c->args[c->nargs++] = &c->extent[2 * k];
		c->args[c->nargs++] = &c->extent[2 * k + 1];
	}
	add_pointer(c, (const void *)(uintptr_t)g->step, sizeof(struct ptc_step), false);
	memcpy(c->iter.iter, r->env.iter, sizeof c->iter.iter);
	c->iter.iter_all = r->env.iter_all;
	c->iter.mb = (uint32_t)r->mb;
	c->args[c->nargs++] = &c->iter;
}

static bool clear_results(struct gpu *g, const struct instr *i, const struct cuda_sig *s)
{
	const struct op *op = i->op;

	for (uint32_t k = 0; k < op->nout && k < 64; k++) {
		int64_t bytes = local_bytes(g->r->rt->m, op->out[k]);

		if ((s->clear >> k & 1) && bytes && !CU(g, cuMemsetD8Async, dev(rank_at(g->r, &i->at[op->nin + k])), 0, (size_t)bytes, g->compute))
			return false;
	}
	return true;
}

bool cuda_kernel(struct rank *r, const struct instr *i)
{
	struct gpu *g = gpu_of(r);
	const struct cuda *cuda = r->rt->own;
	const struct cuda_sig *s = i->own;
	const struct op *op = i->op;
	struct arguments c;
	char *scratch = s->scratch ? gpu_room(g, SLOT_KERNEL, s->scratch) : NULL;

	if (g->dry || (s->scratch && !scratch))
		return g->dry;
	c.nargs = 0;
	c.n = 0;
	for (uint32_t k = 0; k < op->nin; k++)
		add_pointer(&c, rank_at(r, &i->at[k]), local_bytes(r->rt->m, op->in[k]), false);
	for (uint32_t k = 0; k < op->nout; k++)
		add_pointer(&c, rank_at(r, &i->at[op->nin + k]), local_bytes(r->rt->m, op->out[k]), true);
	add_pointer(&c, scratch, s->scratch, true);
	add_rest(&c, r, s);
	if (!clear_results(g, i, s))
		return false;
	for (int k = 0; k < s->nlaunch; k++) {
		const struct cuda_launch *l = &s->launch[k];

		gpu_declare(c.touched, c.n);
		if (l->grid && !CU(g, cuLaunchKernel, g->fn[cuda->first[i->no] + k], l->grid, 1, 1, l->block, 1, 1, l->shared, g->compute, c.args, NULL))
			return false;
	}
	return true;
}
