/* A step allocates and maps nothing, the first neither: arenas, messages, workspaces and the library's matrix products
 * are there when the plan has been loaded. The models of examples/ at a small size, in many layouts, each rank with
 * several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "frontend/frontend.h"
#include "passes/passes.h"
#include "runtime/internal.h"
#include "tests/unit/allocations.h"

static const struct {
	const char *model, *plan, *mesh, *sets;
} cases[] = {
	{ "tests/models/mlp_bn.pdsl", NULL, "dp=2", "" },
	{ "tests/models/gpt2.pdsl", "small", NULL, "" },
	{ "tests/models/gpt2.pdsl", "small", NULL, "precision=bf16" },
	{ "tests/models/llama.pdsl", "small", NULL, "" },
	{ "tests/models/bert.pdsl", "small", NULL, "" },
	{ "tests/models/vit.pdsl", "small", NULL, "" },
	{ "tests/models/clip.pdsl", "small", NULL, "" },
	{ "tests/models/t5.pdsl", "small", NULL, "" },
	{ "tests/models/gemma2.pdsl", "small", NULL, "" },
	{ "tests/models/lora.pdsl", "small", NULL, "" },
	{ "tests/models/mup.pdsl", "small", NULL, "" },
	{ "tests/models/mixtral.pdsl", "small", NULL, "" },
	{ "tests/models/deepseek.pdsl", "small", NULL, "" },
	{ "tests/equiv/gpt.pdsl", "grads", "dp=2,tp=2", "microbatches=2" },
	{ "tests/equiv/gpt.pdsl", "params", "dp=2,tp=2", "recompute=full" },
	{ "tests/equiv/llama.pdsl", "zigzag", "dp=2,cp=2,tp=2", "" },
	{ "tests/recompute/pipe.pdsl", NULL, NULL, "" },
};

/* The line "# SET: a=b,..." of a model. */
static const char *set_line(struct arena *mem, const char *path)
{
	FILE *f = fopen(path, "r");
	char line[512];
	const char *found = "";

	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		if (strncmp(line, "# SET: ", 7) == 0)
			found = arena_printf(mem, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
	fclose(f);
	return found;
}

static void fill_inputs(struct runtime *rt)
{
	for (uint32_t i = 0; i < rt->inputs.n; i++) {
		const struct host_input *in = rt->inputs.at[i];
		double *x = calloc((size_t)in->count, sizeof *x);

		assert_non_null(x);
		for (int64_t k = 0; k < in->count; k++)
			x[k] = in->buf->tokens ? (double)(k * 7 % in->buf->tokens) : (double)(k * 37 % 101) / 101 - 0.5;
		rt_set(rt, in->buf->name, x);
		free(x);
	}
}

static void run_case(size_t no)
{
	struct arena *mem = arena_new();
	struct sources src = { 0 };
	struct diag d;
	const char *own = set_line(mem, cases[no].model), *sets[2] = { own, cases[no].sets };
	struct front_options front = { .mesh = cases[no].mesh, .plan = cases[no].plan, .sets = sets, .nsets = 2 };

	if (!*own)
		sets[0] = sets[1];
	if (!*own || !*cases[no].sets)
		front.nsets = *sets[0] ? 1 : 0;
	diag_init(&d, mem, &src, NULL);
	struct module *m = front_compile(mem, &src, &d, cases[no].model, &front);

	if (!m || !run_passes(m, &d, &(struct pass_options){ 0 }))
		fail_msg("%s: %s", cases[no].model, d.log.s);
	struct runtime *rt = rt_open(m, 7, &d);

	if (!rt)
		fail_msg("%s: %s", cases[no].model, d.log.s);
	fill_inputs(rt);
	int64_t grew = 1; /* a thread of the library's may get its scratch late, but memory does not grow for ever */

	for (int n = 0; n < 8 && (n < 3 || grew); n++) {
		int64_t pages = pages_of_data();

		count_allocations(true);
		bool ok = rt_step(rt, n, true, &d);
		int64_t count = count_allocations(false), more = pages_of_data() - pages;

		if (!ok)
			fail_msg("%s: %s", cases[no].model, d.log.s);
		if (count)
			fail_msg("%s, step %d: %lld allocations", cases[no].model, n, (long long)count);
		grew = more;
	}
	if (grew)
		fail_msg("%s: each step has %lld more pages", cases[no].model, (long long)grew);
	rt_close(rt);
	arena_free(mem);
}

static void a_step_allocates_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(cases); i++)
		run_case(i);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void *volatile kept;

/* Each way to get memory is seen, or the test above would say nothing. */
static void all_ways_are_seen(void **state)
{
	(void)state;
	void *here[6];

	count_allocations(true);
	here[0] = kept = malloc(1);
	here[1] = kept = calloc(1, 1);
	here[2] = kept = realloc(NULL, 1);
	here[3] = kept = aligned_alloc(64, 64);
	here[4] = kept = memalign(64, 64);
	assert_int_equal(posix_memalign(&here[5], 64, 64), 0);
	kept = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(kept != MAP_FAILED);
	munmap(kept, 1 << 20);
	assert_true(sbrk(4096) != (void *)-1);
	assert_true(sbrk(-4096) != (void *)-1);
	assert_int_equal(count_allocations(false), 9);
	for (size_t i = 0; i < LEN(here); i++)
		free(here[i]);
	int64_t pages = pages_of_data();

	kept = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(kept != MAP_FAILED);
	assert_int_equal(pages_of_data() - pages, (1 << 20) / sysconf(_SC_PAGESIZE));
	munmap(kept, 1 << 20);
}
#else
static void all_ways_are_seen(void **state)
{
	(void)state;
	skip();
}
#endif

int main(void)
{
	setenv("PTC_THREADS", "16", 1);
	const struct CMUnitTest tests[] = { cmocka_unit_test(all_ways_are_seen), cmocka_unit_test(a_step_allocates_nothing) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
