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

enum { MOST_EXTENTS = 512 }; /* of a region 2 * 64; of a run as many as 4 KB hold */

/* What a region is told: pointers, scratch, extents, the step, the iteration. */
struct arguments {
	CUdeviceptr at[2 * MAX_OPERANDS + 2];
	int64_t extent[MOST_EXTENTS];
	struct ptc_iter iter;
	void *args[2 * MAX_OPERANDS + MOST_EXTENTS + 4];
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

static void add_values(struct arguments *c, const struct rank *r, const struct instr *i)
{
	const struct op *op = i->op;

	for (uint32_t k = 0; k < op->nin; k++)
		add_pointer(c, rank_at(r, &i->at[k]), local_bytes(r->rt->m, op->in[k]), false);
	for (uint32_t k = 0; k < op->nout; k++)
		add_pointer(c, rank_at(r, &i->at[op->nin + k]), local_bytes(r->rt->m, op->out[k]), true);
}

static void add_extents(struct arguments *c, const struct rank *r, const struct cuda_sig *s, int from)
{
	for (int k = 0; k < s->next; k++) {
		struct extent e = rank_extent(r->rt->m, s->ext[k].d, &s->ext[k].on, r->coord);

		c->extent[from + 2 * k] = e.start;
		c->extent[from + 2 * k + 1] = e.valid;
		c->args[c->nargs++] = &c->extent[from + 2 * k];
		c->args[c->nargs++] = &c->extent[from + 2 * k + 1];
	}
}

static void add_step(struct arguments *c, const struct rank *r)
{
	struct gpu *g = gpu_of(r);

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
	struct arguments c;
	char *scratch = s->scratch ? gpu_room(g, SLOT_KERNEL, s->scratch) : NULL;

	if (g->dry || (s->scratch && !scratch))
		return g->dry;
	c.nargs = 0;
	c.n = 0;
	add_values(&c, r, i);
	add_pointer(&c, scratch, s->scratch, true);
	add_extents(&c, r, s, 0);
	add_step(&c, r);
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

/* -- several at once -- */

/* Do kernels a and b of a run, by what they touch, not need one another? */
static bool independent(const struct touched *a, uint32_t na, const struct touched *b, uint32_t nb)
{
	for (uint32_t i = 0; i < na; i++)
		for (uint32_t k = 0; k < nb; k++) {
			const char *x = a[i].at, *y = b[k].at;

			if ((a[i].writes || b[k].writes) && x < y + b[k].bytes && y < x + a[i].bytes)
				return false;
		}
	return true;
}

bool cuda_kernels(struct rank *r, const struct instr *i, uint32_t n, uint32_t *done)
{
	struct gpu *g = gpu_of(r);
	const struct cuda_sig *s = i->own;
	const struct cuda_run *run = s->run;
	struct arguments c;
	int extents = 0;

	if (!run || s->run_at || n < (uint32_t)run->n)
		return true;
	c.nargs = 0;
	c.n = 0;
	for (int k = 0; k < run->n; k++) {
		const struct cuda_sig *x = i[k].code == I_KERNEL ? i[k].own : NULL;
		uint32_t before = c.n;

		if (!x || x->run != run || x->run_at != k || i[k].eval != i->eval || i[k].where != i->where)
			return true;
		add_values(&c, r, &i[k]);
		add_extents(&c, r, x, extents);
		extents += 2 * x->next;
		if (!independent(c.touched, before, c.touched + before, c.n - before))
			return true;
	}
	*done = (uint32_t)run->n;
	char *scratch = run->scratch ? gpu_room(g, SLOT_KERNEL, run->scratch) : NULL;

	if (run->scratch && !scratch)
		return false;
	add_pointer(&c, scratch, run->scratch, true);
	add_step(&c, r);
	for (int k = 0; k < run->nlaunch; k++) {
		const struct cuda_launch *l = &run->launch[k];
		CUfunction fn = gpu_function(g, l->fn, l->shared);

		if (!fn)
			return false;
		if (g->dry || !l->grid)
			continue;
		gpu_declare(c.touched, c.n);
		if (!CU(g, cuLaunchKernel, fn, l->grid, 1, 1, l->block, 1, 1, l->shared, g->compute, c.args, NULL))
			return false;
	}
	return true;
}
