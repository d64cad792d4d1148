/* What is live at the peak of real plans: planning them once more moves nothing, tensors and kinds add up to
 * the peak, and holes are few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "frontend/frontend.h"
#include "ir/text.h"
#include "passes/live.h"
#include "passes/passes.h"

static const struct {
	const char *file, *plan, *mesh, *set;
} layout[] = {
	{ "examples/gpt-mini.pdsl", NULL, NULL, NULL },
	{ "examples/gpt-mini.pdsl", NULL, "dp=4", "microbatches=2" },
	{ "examples/gpt-mini.pdsl", "one", NULL, "recompute=full" },
	{ "examples/llama.pdsl", NULL, NULL, NULL },
	{ "examples/llama.pdsl", "big", "pp=4,dp=2,tp=8", NULL },
	{ "examples/mixtral.pdsl", NULL, NULL, NULL },
	{ "examples/deepseek.pdsl", NULL, NULL, NULL },
	{ "examples/gemma2.pdsl", NULL, NULL, NULL },
	{ "tests/explain/gpt.pdsl", "interleaved", NULL, NULL },
	{ "tests/explain/gpt.pdsl", "gpipe", NULL, NULL },
};

static void check_stage(const struct stage_live *x, int64_t peak)
{
	int64_t kinds = 0, held = 0;

	for (int k = 0; k < NMEM; k++) {
		assert_true(x->of[k] >= 0);
		kinds += x->of[k];
	}
	for (uint32_t i = 0; i < x->held.n; i++) {
		held += x->held.at[i].bytes;
		assert_true(x->held.at[i].bytes >= 0 && x->held.at[i].times >= 1);
		assert_true(i == 0 || x->held.at[i].bytes <= x->held.at[i - 1].bytes);
	}
	assert_int_equal(x->peak, peak);
	assert_int_equal(kinds, peak);
	assert_int_equal(held, peak);
	assert_true(x->unused >= 0 && x->unused < peak / 8);
}

static void peaks(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(layout); i++) {
		struct arena *mem = arena_new();
		struct sources src = { 0 };
		struct diag d;
		struct front_options front = { .plan = layout[i].plan, .mesh = layout[i].mesh, .sets = (const char *[]){ layout[i].set }, .nsets = layout[i].set ? 1 : 0 };

		diag_init(&d, mem, &src, NULL);
		struct module *m = front_compile(mem, &src, &d, layout[i].file, &front);
		assert_non_null(m);
		assert_true(run_passes(m, &d, &(struct pass_options){ 0 }));
		size_t n;
		const char *before = module_print(m, mem, &n);
		struct stage_live *all = live_at_peak(mem, m, &d);
		assert_non_null(all);
		assert_string_equal(module_print(m, mem, &n), before);
		for (int s = 0; s < pipe_stages(m); s++)
			check_stage(&all[s], m->workspace + (pipe_axis(m) < 0 ? m->arena : m->pipe.arena.at[s]));
		arena_free(mem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(peaks) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
