/* A pipeline is cut so that each stage has the memory it needs, if any cut does: against all cuts of a small one. If none
 * does, it is cut as if memory were no matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "frontend/frontend.h"
#include "passes/passes.h"
#include "passes/report.h"

enum { LAYERS = 6, MOST_CUTS = 64 };

static const char settings[] = "layers=6,batch=48,seq=32,vocab=512,embed=32,microbatches=6";

static const struct {
	const char *pipeline, *recompute;
	int stages, chunks;
} cases[] = {
	{ "1f1b", "none", 3, 1 },  { "1f1b", "selective", 3, 1 },         { "gpipe", "full, first = 1", 3, 1 },
	{ "zb_h1", "none", 2, 1 }, { "interleaved, chunks = 2", "none", 2, 2 },
};

struct result {
	double peak, seconds; /* of the stage with most; of a step */
	int end[4];           /* of each chunk */
};

/* Compiled with the cut, or with one of its own; memory: what a rank has. */
static struct result compile(size_t no, const int *end, double memory)
{
	const char *set = settings;
	struct arena *mem = arena_new();
	struct sources src = { 0 };
	struct diag d;
	struct front_options front = { .sets = &set, .nsets = 1 };

	diag_init(&d, mem, &src, NULL);
	const char *text = arena_printf(mem, "include \"../tests/equiv/gpt.pdsl\"\nplan mine {\n	mesh pp = %d\n	layers -> pp\n"
					"	pipeline %s\n	recompute %s\n	workspace = 1Mi\n}\n", cases[no].stages, cases[no].pipeline,
					cases[no].recompute);

	front.plan = "mine";
	struct module *m = front_compile_text(mem, &src, &d, "examples/fit.pdsl", text, strlen(text), &front);

	if (!m)
		fail_msg("%s", d.log.s);
	m->hw.memory = memory;
	m->pipe.fixed = end != NULL;
	m->pipe.end.n = 0;
	for (int g = 0; end && g < cases[no].stages * cases[no].chunks; g++)
		PUSH(mem, &m->pipe.end, end[g]);
	if (!run_passes(m, &d, &(struct pass_options){ 0 }))
		fail_msg("%s", d.log.s);
	struct flops f = count_flops(m);
	struct result r = { (double)(m->arena + m->workspace), step_time_of(mem, m, &f).step, { 0 } };

	for (int g = 0; g < cases[no].stages * cases[no].chunks; g++)
		r.end[g] = (int)m->pipe.end.at[g];

	arena_free(mem);
	return r;
}

static int all_cuts(int chunks, int (*cut)[4])
{
	int n = 0, end[4] = { 0 };

	end[chunks - 1] = LAYERS;
	for (;;) {
		bool rising = true;

		for (int g = 1; g < chunks; g++)
			rising &= end[g] >= end[g - 1];
		if (rising) {
			assert_true(n < MOST_CUTS * 2);
			memcpy(cut[n++], end, sizeof end);
		}
		int g = 0;
		while (g < chunks - 1 && ++end[g] > LAYERS)
			end[g++] = 0;
		if (g >= chunks - 1)
			return n;
	}
}

static void it_fits_if_any_cut_does(void **state)
{
	int tight = 0;

	(void)state;
	for (size_t no = 0; no < LEN(cases); no++) {
		int cut[MOST_CUTS * 2][4], n = all_cuts(cases[no].stages * cases[no].chunks, cut);
		struct result all[MOST_CUTS * 2];
		double least = 1e30, most = 0;

		for (int i = 0; i < n; i++) {
			all[i] = compile(no, cut[i], 0);
			least = all[i].peak < least ? all[i].peak : least;
			most = all[i].peak > most ? all[i].peak : most;
		}
		struct result free = compile(no, NULL, 0), lacks = compile(no, NULL, least * .9);

		/* the order may be another: one that holds more than there is is not taken */
		if (memcmp(lacks.end, free.end, sizeof free.end))
			fail_msg("case %zu: cut otherwise where nothing fits", no);
		for (int k = 0; k <= 8; k++) {
			double memory = least + (most - least) * k / 8, best = 1e30;
			struct result mine = compile(no, NULL, memory);

			for (int i = 0; i < n; i++)
				if (all[i].peak <= memory && all[i].seconds < best)
					best = all[i].seconds;
			if (mine.peak > memory)
				fail_msg("case %zu: %.0f bytes where %.0f are enough", no, mine.peak, memory);
			/* cuts are chosen by the roofline of their ops, steps are predicted with launches and what kernels reach */
			if (mine.seconds > 1.1 * best)
				fail_msg("case %zu, %.0f bytes: %g s where %g are enough", no, memory, mine.seconds, best);
			tight += memory < free.peak;
		}
	}
	assert_true(tight >= 5); /* else nothing was asked for */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(it_fits_if_any_cut_does) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
