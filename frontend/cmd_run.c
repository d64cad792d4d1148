/* frontend/cmd_run.c - ptc run plan|model.pdsl: trains. */
#include <stdio.h>

#include "frontend/cmd.h"
#include "runtime/runtime.h"

/* "a=F,b=G" or "F" into words. */
static int split_data(struct session *s, const char ***data)
{
	VEC(const char *) all = { 0 };

	for (const char *p = s->opt->data; p && *p;) {
		size_t len = strcspn(p, ",");

		PUSH(s->mem, &all, arena_strndup(s->mem, p, len));
		p += len + (p[len] == ',');
	}
	*data = all.at;
	return (int)all.n;
}

int cmd_run(struct session *s)
{
	const struct options *o = s->opt;
	struct run_options run = {
		.backend = backend_find(o->backend, &s->diag),
		.seed = o->seed,
		.steps = o->steps,
		.init = o->init,
		.save = o->save,
		.resume = o->resume,
		.checkpoint = o->checkpoint,
		.checkpoint_every = o->checkpoint_every,
		.trace = o->trace,
		.json = o->json,
		.log_every = o->log_every,
	};

	if (o->steps < 0) {
		fputs("ptc: error: how many steps?\nptc: note: --steps N\n", stderr);
		return USAGE;
	}
	if (o->checkpoint_every && !o->checkpoint) {
		fputs("ptc: error: which file is it that --checkpoint-every writes?\nptc: note: --checkpoint FILE\n", stderr);
		return USAGE;
	}
	if (o->resume && o->init) {
		fputs("ptc: error: --resume and --init both say what to begin from\n"
		      "ptc: note: a checkpoint has the params, too; --init FILE takes these alone, and begins with step 0\n", stderr);
		return USAGE;
	}
	if (!run.backend)
		return WRONG;
	struct module *m = load_plan(s);
	struct proof proof; /* of a few milliseconds, and nothing is run that is not safe */

	if (!m)
		return WRONG;
	if (!prove_safe(m, &proof, &s->diag))
		return WRONG;
	run.ndata = split_data(s, &run.data);
	if (o->json)
		run.about = about_plan(s, m);
	return run_plan(m, &run, &s->diag);
}
