/* frontend/cmd_compile.c - ptc model.pdsl -o plan */
#include <stdio.h>

#include "frontend/cmd.h"
#include "ir/file.h"
#include "runtime/runtime.h"

int cmd_compile(struct session *s)
{
	const struct options *o = s->opt;
	double start = seconds_now();

	if (!is_model(o->file)) {
		diag_error(&s->diag, (struct span){ 0 }, "%s is no model (.pdsl)", o->file);
		return WRONG;
	}
	struct module *m = load_plan(s);

	if (!m)
		return WRONG;
	double seconds = seconds_now() - start;
	struct proof proof;

	if (!prove_made(m, &proof, &s->diag))
		return WRONG;
	if (!plan_fits(m, &s->diag)) {
		own_fault(&s->diag);
		return WRONG;
	}
	if (o->out && !plan_save(m, o->out, &s->diag))
		return MACHINE;
	fprintf(stderr, "%s: %lld rank%s (%s), %lld params, %.1f MB a rank, compiled in %.3f s, proved in %.3f s\n",
		o->file, (long long)module_ranks(m), module_ranks(m) == 1 ? "" : "s", mesh_text(s->mem, m),
		(long long)param_count(m), (double)(m->arena + m->workspace) / 1e6, seconds, proof.seconds);
	if (!o->out)
		fputs("ptc: note: nothing is written; -o FILE writes the plan\n", stderr);
	return DONE;
}
