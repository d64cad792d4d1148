/* runtime/fits.c - would a runtime take this plan? All that rt_open asks of a plan itself, by the same code, but for no rank:
 * not for the memory, the threads or the compiler of a machine. */
#include "runtime/backend.h"

static bool no_load(struct runtime *rt, struct diag *d)
{
	struct kernel_set set;

	if (!codegen_kernels(rt->mem, rt->m, &set, d))
		return false;
	rt->kernels.n = set.nsig;
	rt->kernels.op = NEWN(rt->mem, const struct op *, set.nsig + 1);
	for (int i = 0; i < set.nsig; i++)
		rt->kernels.op[i] = set.sig[i].op;
	return true;
}

static bool no_code(struct runtime *rt, struct instr *i, struct diag *d)
{
	(void)rt;
	(void)i;
	(void)d;
	return true;
}

static const struct backend paper = { .name = "none", .starts = 1u << S_IN | 1u << S_OUT, .load = no_load, .prepare = no_code };

bool plan_fits(struct module *m, struct diag *d)
{
	struct runtime rt = { .mem = arena_new(), .m = m, .nrank = module_ranks(m), .here = -1, .backend = &paper };
	struct span at;
	const char *refused = layout_refused(rt.mem, m, &at);
	bool ok = refused ? diag_error(d, at, "%s", refused) : plan_lay_out(&rt, d) && rt.backend->load(&rt, d) && program_build(&rt, d);

	for (int stage = 0; ok && rt.layouts && stage < rt.layouts->stages; stage++)
		ok = actions_there(&rt, stage, d);
	arena_free(rt.mem);
	return ok;
}
