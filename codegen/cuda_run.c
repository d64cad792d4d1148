/* codegen/cuda_run.c - small kernels that follow each other, launched together: the optimizer's, one for each param; the sums of
 * squares of the norm.
 *
 * Where there are barriers all have blocks of one size; elsewhere one of fewer threads leaves whole warps of its blocks idle. */
#include <inttypes.h>

#include "codegen/cuda_impl.h"

enum { MOST_BYTES = 3840, STEP_BYTES = 64 }; /* of arguments: a kernel has 4 KB */

static int bytes_of(const struct cuda_region *x)
{
	return 8 * (int)(x->g->op->nin + x->g->op->nout) + 16 * x->g->sig->next;
}

static bool may_run(const struct cuda_region *x)
{
	return x->sig->nlaunch && !x->sig->clear && cuda_has_body(x->g);
}

/* Are their launches of one kind? */
static bool are_alike(const struct cuda_sig *a, const struct cuda_sig *b)
{
	if (a->nlaunch != b->nlaunch)
		return false;
	for (int k = 0; k < a->nlaunch; k++)
		if ((a->launch[k].shared || b->launch[k].shared) && a->launch[k].block != b->launch[k].block)
			return false;
	return true;
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
	if (op != b->g->op || op->at.where != a->g->op->at.where || !are_alike(a->sig, b->sig))
		return false;
	for (uint32_t i = 0; i < op->nin; i++)
		for (int k = 0; k < n; k++)
			if (maker(op->in[i]) == a[k].g->op)
				return false;
	return true;
}

/* Launch k of all of them. scratch: where that of each begins. */
static struct cuda_launch put_launch(struct arena *mem, struct text *t, const struct cuda_region *x, int n, int no, int k, const int64_t *scratch)
{
	struct cuda_launch all = { arena_printf(mem, "r%d_%d", no, k), 0, 0, 0 };

	for (int i = 0; i < n; i++) {
		const struct cuda_launch *l = &x[i].sig->launch[k];

		all.block = l->block > all.block ? l->block : all.block;
		all.shared = l->shared > all.shared ? l->shared : all.shared;
	}
	text_put(t, "extern \"C\" __global__ void __launch_bounds__(%u, 2) %s(", all.block, all.fn);
	for (int i = 0; i < n; i++)
		put_arguments(x[i].g, t, arena_printf(mem, "a%d_", i), "", true);
	text_put(t, "char *scratch, const struct ptc_step *step_, struct ptc_iter iter_)\n{\n(void)scratch;\n%s",
		 all.shared ? "PTC_DYN_SHARED(unsigned char, shared);\n" : "");
	for (int i = 0; i < n; i++) {
		const struct cuda_launch *l = &x[i].sig->launch[k];

		text_put(t, "%s", i ? "else " : "");
		if (i < n - 1)
			text_put(t, "if (blockIdx.x < %u)\n", all.grid + l->grid);
		text_put(t, "{\nif (threadIdx.x < %u)\n\t%s_%d_at(blockIdx.x - %u, %s, ", l->block, x[i].name, k, all.grid,
			 all.shared ? "shared" : "(unsigned char *)0");
		put_arguments(x[i].g, t, arena_printf(mem, "a%d_", i), arena_printf(mem, "scratch + %" PRId64 ", ", scratch[i]), false);
		text_put(t, "step_, iter_);\n}\n");
		all.grid += l->grid;
	}
	text_put(t, "}\n");
	return all;
}

static void put_run(struct arena *mem, struct text *t, const struct cuda_region *x, int n, int no)
{
	struct cuda_run *run = NEW(mem, struct cuda_run);
	int64_t *scratch = NEWN(mem, int64_t, n);

	run->n = n;
	run->nlaunch = x->sig->nlaunch;
	run->launch = NEWN(mem, struct cuda_launch, run->nlaunch);
	for (int i = 0; i < n; i++) {
		scratch[i] = run->scratch;
		run->scratch += (x[i].sig->scratch + 63) / 64 * 64;
		x[i].sig->run = run;
		x[i].sig->run_at = i;
	}
	for (int k = 0; k < run->nlaunch; k++)
		run->launch[k] = put_launch(mem, t, x, n, no, k, scratch);
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
