/* codegen/codegen.c - the C source of kernels: the prelude, then each different kernel once. */
#include "codegen/source.h"
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

_Static_assert(MAX_NEST == 8, "struct ptc_env is in prelude.inc, struct ptc_iter in cuda.inc, too");

struct job {
	struct arena *mem;
	const struct module *m;
	struct diag *d;
	VEC(struct kernel_sig) sigs;
	struct codes codes;
};

static bool one_kernel(void *self, const struct op *op)
{
	struct job *j = self;

	if (op->code != OP_KERNEL)
		return true;
	struct kernel_sig *sig = NEW(j->mem, struct kernel_sig);
	struct gen *g = NEW(j->mem, struct gen);

	sig->op = op;
	sig->split = 1;
	*g = (struct gen){ .mem = j->mem, .m = j->m, .op = op, .d = j->d, .sig = sig, .split = -1 };
	const struct op *pick = kernel_pick(op);

	if (!pick && !kernel_plan(g))
		return false;
	const char *text = pick ? pick_text(g, pick) : kernel_text(g);

	if (!text || g->failed)
		return false;
	sig->code = code_no(&j->codes, text);
	PUSH(j->mem, &j->sigs, *sig);
	return true;
}

bool codegen_kernels(struct arena *mem, const struct module *m, struct kernel_set *set, struct diag *d)
{
	struct job j = { .mem = mem, .m = m, .d = d, .codes = { .mem = mem } };

	if (!source_each(&m->top, one_kernel, &j))
		return false;
	*set = (struct kernel_set){ j.sigs.at, j.codes.all.at, (int)j.sigs.n, (int)j.codes.all.n };
	return true;
}

char *codegen_source(struct arena *mem, const struct kernel_code *code, int n)
{
	struct text t = { .mem = mem };

	text_bytes(&t, prelude_inc, sizeof prelude_inc - 1);
	text_bytes(&t, math_inc, sizeof math_inc - 1);
	text_bytes(&t, rows_inc, sizeof rows_inc - 1);
	for (int i = 0; i < n; i++)
		put_named(&t, code[i].text, code[i].name);
	return t.s;
}

char *codegen_c(struct arena *mem, const struct module *m, struct kernel_sig **sigs, int *nsig, struct diag *d)
{
	struct kernel_set set;

	if (!codegen_kernels(mem, m, &set, d))
		return NULL;
	for (int i = 0; i < set.ncode; i++)
		set.code[i].name = arena_printf(mem, "k%d", i);
	for (int i = 0; i < set.nsig; i++)
		set.sig[i].name = set.code[set.sig[i].code].name;
	*sigs = set.sig;
	*nsig = set.nsig;
	return codegen_source(mem, set.code, set.ncode);
}
