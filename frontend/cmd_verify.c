/* frontend/cmd_verify.c - ptc verify plan|model.pdsl: proves that a plan is safe. */
#include <stdio.h>

#include "frontend/cmd.h"
#include "runtime/runtime.h"

static void put_count(struct text *t, int64_t n, const char *what)
{
	const char *digits = arena_printf(t->mem, "%lld", (long long)n);
	size_t len = strlen(digits);

	text_put(t, "%s", t->n ? ", " : "");
	for (size_t i = 0; i < len; i++)
		text_put(t, "%s%c", i && (len - i) % 3 == 0 ? "," : "", digits[i]);
	text_put(t, " %s%s", what, n == 1 ? "" : "s");
}

int cmd_verify(struct session *s)
{
	struct module *m = load_plan(s);
	struct text t = { .mem = s->mem };
	struct proof proof;

	if (!m || !prove_plan(m, &proof, &s->diag) || !plan_fits(m, &s->diag))
		return WRONG;
	if (s->opt->json) {
		printf("{\"safe\":true,\"ranks\":%lld,\"stages\":%lld,\"collectives\":%lld,\"channels\":%lld,\"reads\":%lld,"
		       "\"writes\":%lld,\"ms\":%.3g}\n", (long long)module_ranks(m), (long long)proof.stages,
		       (long long)proof.collectives, (long long)proof.channels, (long long)proof.reads, (long long)proof.writes,
		       proof.seconds * 1e3);
		return DONE;
	}
	put_count(&t, module_ranks(m), "rank");
	put_count(&t, proof.stages, "stage");
	put_count(&t, proof.collectives, "collective");
	if (proof.channels)
		put_count(&t, proof.channels, "channel");
	put_count(&t, proof.reads, "read");
	printf("safe: %s, %.0f ms\n", t.s, proof.seconds * 1e3);
	return DONE;
}
