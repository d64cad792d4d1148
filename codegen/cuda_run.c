/* codegen/cuda_run.c - small kernels that follow each other as one launch: the optimizer's, one for each param.
 *
 * None of them has shared memory, hence barriers, so that one of fewer threads leaves whole warps of its blocks idle. */
#include <inttypes.h>

#include "codegen/cuda_impl.h"

enum { MOST_BYTES = 3840, STEP_BYTES = 64 }; /* of arguments: a kernel has 4 KB */

static int bytes_of(const struct cuda_region *x)
{
	return 8 * (int)(x->g->op->nin + x->g->op->nout) + 16 * x->g->sig->next;
}

static bool may_run(const struct cuda_region *x)
{
	const struct cuda_sig *s = x->sig;

	return s->nlaunch == 1 && !s->scratch && !s->clear && cuda_has_body(x->g, (int)s->launch->shared);
}

/* Ops that are nothing at run time, or at most copies, which end a run there (the runtime looks). */
static bool is_between(const struct op *op)
{
	return op->code == OP_READ || op->code == OP_WRITE || op->code == OP_RENAME || op->code == OP_SPLIT ||
	       op->code == OP_MERGE;
}

static const struct op *maker(const struct value *v)
{
	while (v->def && v->def->nin == 1 && is_between(v->def))
		v = v->def->in[0];
	return v->def;
}

/* May b, the next kernel, run with the n from a on? It reads nothing that they make. */
static bool follows(const struct cuda_region *a, int n, const struct cuda_region *b)
{
	const struct op *op = a[n - 1].g->op->next;

	while (op && is_between(op))
		op = op->next;
	if (op != b->g->op || op->at.where != a->g->op->at.where)
		return false;
	for (uint32_t i = 0; i < op->nin; i++)
		for (int k = 0; k < n; k++)
			if (maker(op->in[i]) == a[k].g->op)
				return false;
	return true;
}

static void put_run(struct arena *mem, struct text *t, const struct cuda_region *x, int n, int no)
{
	struct cuda_run *run = NEW(mem, struct cuda_run);

	*run = (struct cuda_run){ arena_printf(mem, "r%d", no), n, 0, 0 };
	for (int i = 0; i < n; i++)
		run->block = x[i].sig->launch->block > run->block ? x[i].sig->launch->block : run->block;
	text_put(t, "extern \"C\" __global__ void __launch_bounds__(%u, 2) %s(", run->block, run->fn);
	for (int i = 0; i < n; i++)
		put_arguments(x[i].g, t, arena_printf(mem, "a%d_", i), "", true);
	text_put(t, "const struct ptc_step *step_, struct ptc_iter iter_)\n{\n");
	for (int i = 0; i < n; i++) {
		text_put(t, "%s", i ? "else " : "");
		if (i < n - 1)
			text_put(t, "if (blockIdx.x < %u)\n", run->grid + x[i].sig->launch->grid);
		text_put(t, "{\nif (threadIdx.x < %u)\n\t%s_0_at(blockIdx.x - %u, ", x[i].sig->launch->block, x[i].name, run->grid);
		put_arguments(x[i].g, t, arena_printf(mem, "a%d_", i), "(char *)0, ", false);
		text_put(t, "step_, iter_);\n}\n");
		run->grid += x[i].sig->launch->grid;
		x[i].sig->run = run;
		x[i].sig->run_at = i;
	}
	text_put(t, "}\n");
}

void cuda_runs(struct arena *mem, struct text *out, const struct cuda_region *all, int n)
{
	for (int i = 0, no = 0, k; i < n; i += k) {
		int bytes = STEP_BYTES + bytes_of(&all[i]);

		for (k = 1; may_run(&all[i]) && i + k < n && may_run(&all[i + k]) && bytes + bytes_of(&all[i + k]) <= MOST_BYTES &&
			    follows(&all[i], k, &all[i + k]); k++)
			bytes += bytes_of(&all[i + k]);
		if (k > 1)
			put_run(mem, out, &all[i], k, no++);
	}
}
