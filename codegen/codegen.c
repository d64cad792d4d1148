/* codegen/codegen.c - the C source of a plan: the prelude, then each different kernel once. */
#include "codegen/kernel.h"
#include "math_inc.h"
#include "prelude_inc.h"
#include "rows_inc.h"

/* No -ffast-math: it licenses the compiler to drop -inf and NaN. Sums are reordered only where a
 * reduction clause says so, hence no -fassociative-math either. No contraction of products and sums: what
 * an op yields may not depend on which ops share its kernel, so that what backward makes again is the same. */
const char *const codegen_cflags =
	"-std=gnu17 -O3 -march=native -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math -fno-signed-zeros "
	"-fno-strict-aliasing -fopenmp-simd"
#if defined(__x86_64__)
	" -mprefer-vector-width=512"
#endif
	;

struct made {
	const char *text, *name;
	uint64_t hash;
	const struct kernel_sig *sig;
};

struct job {
	struct arena *mem;
	const struct module *m;
	struct diag *d;
	VEC(struct kernel_sig *) sigs;
	VEC(struct made) made;
	struct text out;
};

static void put_named(struct text *t, const char *text, const char *name)
{
	for (const char *s = text; *s; s++)
		if (*s == '@')
			text_put(t, "%s", name);
		else
			text_bytes(t, s, 1);
}

static bool one_kernel(struct job *j, const struct op *op)
{
	struct kernel_sig *sig = NEW(j->mem, struct kernel_sig);
	struct gen *g = NEW(j->mem, struct gen);

	sig->op = op;
	sig->name = arena_printf(j->mem, "k%u", j->made.n);
	PUSH(j->mem, &j->sigs, sig);
	g->mem = j->mem;
	g->m = j->m;
	g->op = op;
	g->d = j->d;
	g->sig = sig;
	g->split = -1;
	sig->split = 1;
	const struct op *pick = kernel_pick(op);

	if (!pick && !kernel_plan(g))
		return false;
	struct made made = { .text = pick ? pick_text(g, pick) : kernel_text(g), .name = sig->name, .sig = sig };
	if (!made.text || g->failed)
		return false;
	made.hash = fnv1a(FNV_START, made.text, strlen(made.text));
	for (uint32_t i = 0; i < j->made.n; i++)
		if (j->made.at[i].hash == made.hash && streq(j->made.at[i].text, made.text)) {
			sig->name = j->made.at[i].name;
			return true;
		}
	PUSH(j->mem, &j->made, made);
	put_named(&j->out, made.text, made.name);
	return true;
}

static bool all_kernels(struct job *j, const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next) {
		if (op->code == OP_KERNEL && !one_kernel(j, op))
			return false;
		if (op->code != OP_KERNEL && op->body && !all_kernels(j, op->body))
			return false;
	}
	return true;
}

char *codegen_c(struct arena *mem, const struct module *m, struct kernel_sig **sigs, int *nsig, struct diag *d)
{
	struct job j = { .mem = mem, .m = m, .d = d, .out = { .mem = mem } };

	text_bytes(&j.out, prelude_inc, sizeof prelude_inc - 1);
	text_bytes(&j.out, math_inc, sizeof math_inc - 1);
	text_bytes(&j.out, rows_inc, sizeof rows_inc - 1);
	if (!all_kernels(&j, &m->top))
		return NULL;
	*nsig = (int)j.sigs.n;
	*sigs = NEWN(mem, struct kernel_sig, j.sigs.n + 1);
	for (uint32_t i = 0; i < j.sigs.n; i++)
		(*sigs)[i] = *j.sigs.at[i];
	return j.out.s;
}
