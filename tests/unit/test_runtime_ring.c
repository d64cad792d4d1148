/* Attention over split keys on ranks that are threads: what it computes and sends, that it gives the same
 * bits every time, how work is spread over ranks, and what happens when there is no room for a block. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "runtime/internal.h"

/* q, k and v are params, so that a step of sgd shows their gradients. */
static const char model[] =
	"forward:\n"
	"%1 = read {buf=\"q\"} : f32[batch, seq, heads, head]\n"
	"%2 = read {buf=\"k\"} : f32[batch, ctx, heads, head]\n"
	"%3 = read {buf=\"v\"} : f32[batch, ctx, heads, head]\n"
	"%4, %5 = attention %1, %2, %3 {dim=head, ctx=ctx, CAUSALscale=0.7} : f32[batch, seq, heads, head], "
	"f32[batch, seq, heads]\n"
	"%6 = mul %4, %4 : f32[batch, seq, heads, head]\n"
	"%7 = mul %6, %4 : f32[batch, seq, heads, head]\n"
	"%8 = sum %7 : f32[] \"loss\"\n"
	"%9 = const {value=1} : f32[]\n"
	"%10 = const {value=0} : f32[]\n"
	"report %8 {key=\"loss\"}\n"
	"minimize %8, %9, %10, %10 {buf=\"q\", opt=\"sgd\", group=0}\n"
	"minimize %8, %9, %10, %10 {buf=\"k\", opt=\"sgd\", group=0}\n"
	"minimize %8, %9, %10, %10 {buf=\"v\", opt=\"sgd\", group=0}\n";

struct layout {
	const char *mesh, *arrows;
	int64_t seq, workspace;
	bool causal;
};

static struct module *compile(struct arena *mem, const struct layout *l, bool planned, struct diag *d)
{
	struct pass_options opt = { .stop_after = planned ? NULL : "optimizer", .verify = true };
	struct text t = { .mem = mem };

	text_put(&t, "ptc-ir 1\nmodule \"ring\" form=logical precision=f32 micro=1 batch=batch workspace=%lld\n",
		 (long long)l->workspace);
	for (const char *s = l->mesh; *s; s += strcspn(s, " "), s += *s == ' ')
		text_put(&t, "mesh %.*s\n", (int)strcspn(s, " "), s);
	text_put(&t, "dim batch=2\ndim seq=%lld\ndim ctx=%lld\ndim heads=2\ndim head=5\n", (long long)l->seq, (long long)l->seq);
	text_put(&t, "buffer @\"q\" param f32[batch, seq, heads, head] init=normal(0.7)\n"
		     "buffer @\"k\" param f32[batch, ctx, heads, head] init=normal(0.7)\n"
		     "buffer @\"v\" param f32[batch, ctx, heads, head] init=normal(0.7)\n");
	for (const char *s = l->arrows; *s; s += strcspn(s, ";"), s += *s == ';')
		text_put(&t, "arrow %.*s\n", (int)strcspn(s, ";"), s);
	const char *hole = strstr(model, "CAUSAL");
	text_put(&t, "%.*s%s%s", (int)(hole - model), model, l->causal ? "causal=seq, " : "", hole + strlen("CAUSAL"));
	struct module *m = module_parse(mem, "ring", t.s, strlen(t.s), d);

	assert_non_null(m);
	assert_true(run_passes(m, d, &opt));
	return m;
}

static struct runtime *open_layout(struct arena *mem, const struct layout *l, struct diag *d)
{
	struct runtime *r = rt_open(compile(mem, l, true, d), 3, d);

	assert_non_null(r);
	return r;
}

static const char *const bufs[] = { "q", "k", "v" };

static void against_one_rank(const struct layout *l)
{
	struct arena *mem = arena_new();
	struct layout one = { "cp=1", "", l->seq, 0, l->causal };
	struct diag d;
	const char *why = NULL;

	diag_init(&d, mem, NULL, stderr);
	struct module *m = compile(mem, &one, false, &d);
	struct eval *e = eval_new(mem, m, 3);
	struct runtime *r = open_layout(mem, l, &d);

	eval_init(e);
	if (!eval_step(e, 0, true, NULL, &why))
		fail_msg("%s", why);
	assert_true(rt_step(r, 0, true, &d));
	for (size_t b = 0; b < LEN(bufs); b++) {
		struct tensor *want = eval_get(e, bufs[b]);
		double *x = NEWN(mem, double, want->count);

		rt_get(r, bufs[b], x);
		for (int64_t i = 0; i < want->count; i++)
			if (!(fabs(x[i] - want->x[i]) <= 1e-5))
				fail_msg("%s over %s: element %lld of %s is %g, not %g", l->arrows, l->mesh, (long long)i, bufs[b],
					 x[i], want->x[i]);
	}
	rt_close(r);
	arena_free(mem);
}

static const struct layout layouts[] = {
	{ "cp=2", "seq -> cp;ctx -> cp", 8, 1 << 24, true },
	{ "cp=4", "seq -> cp;ctx -> cp", 8, 1 << 24, false },
	{ "cp=4", "seq -> cp;ctx -> cp", 9, 1 << 24, true }, /* two ranks without rows or keys are among them */
	{ "cp=3", "ctx -> cp", 7, 1 << 24, true },           /* of keys that the first rows do not see */
	{ "cp=4", "ctx -> cp", 9, 1 << 24, false },
	{ "a=2 b=2", "seq -> a;ctx -> a.b", 7, 1 << 24, true },
	{ "a=2 b=2", "seq -> a.b;ctx -> b.a", 6, 1 << 24, true },
	{ "cp=2", "seq -> cp zigzag;ctx -> cp zigzag", 8, 1 << 24, true },
	{ "cp=4", "seq -> cp zigzag;ctx -> cp zigzag", 48, 1 << 24, true },
	{ "a=2 b=2", "seq -> a zigzag;ctx -> a.b zigzag", 16, 1 << 24, true },
};

static void one_rank_or_many(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(layouts); i++)
		against_one_rank(&layouts[i]);
}

static void same_bits_every_time(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(layouts); i++) {
		double first[3][2 * 48 * 2 * 5] = { 0 }, x[2 * 48 * 2 * 5] = { 0 };

		for (int turn = 0; turn < 3; turn++) {
			struct arena *mem = arena_new();
			struct diag d;

			diag_init(&d, mem, NULL, stderr);
			struct runtime *r = open_layout(mem, &layouts[i], &d);

			assert_true(rt_step(r, 0, true, &d));
			for (size_t b = 0; b < LEN(bufs); b++) {
				rt_get(r, bufs[b], turn ? x : first[b]);
				assert_true(!turn || !memcmp(x, first[b], sizeof(double) * (size_t)(2 * layouts[i].seq * 10)));
			}
			rt_close(r);
			arena_free(mem);
		}
	}
}

/* What rank 0 has counted is what the table says: forward k and v, backward again with their gradients. */
static void what_is_sent(void **state)
{
	(void)state;
	struct arena *mem = arena_new();
	struct diag d;

	diag_init(&d, mem, NULL, stderr);
	struct runtime *r = open_layout(mem, &layouts[0], &d);
	double kv = 2 * 2 * (8 / 2) * 2 * 5 * 4, bytes[2] = { 0 };
	int n, rings = 0;
	struct comm_row *rows = comm_table(mem, r->m, &n);

	assert_true(rt_step(r, 0, true, &d));
	for (uint32_t i = 0; i < r->senders.n; i++)
		if (r->senders.at[i].op && opinfo[r->senders.at[i].op->code].class == C_ATTN)
			bytes[r->senders.at[i].op->code == OP_ATTENTION_GRAD] += r->rank[0].sent[i].bytes;
	assert_true(bytes[0] == kv && bytes[1] == 2 * kv);
	for (int i = 0; i < n; i++)
		if (streq(rows[i].name, "ring")) {
			assert_true(rows[i].bytes == bytes[rows[i].op == OP_ATTENTION_GRAD]);
			rings++;
		}
	assert_int_equal(rings, 2);
	rt_close(r);
	arena_free(mem);
}

/* Scores that the ranks make: the most of a rank over the mean. */
static double slowest(const char *mesh, const char *arrows, int64_t seq, double *mean)
{
	struct layout l = { mesh, arrows, seq, 1 << 24, true };
	struct arena *mem = arena_new();
	struct diag d;
	double most = 0;

	diag_init(&d, mem, NULL, stderr);
	struct runtime *r = open_layout(mem, &l, &d);

	*mean = 0;
	assert_true(rt_step(r, 0, true, &d));
	for (int64_t i = 0; i < r->nrank; i++) {
		most = r->rank[i].scores > most ? r->rank[i].scores : most;
		*mean += r->rank[i].scores / (double)r->nrank;
	}
	print_message("%s, %s: %g scores a rank, the most %g: %.3f\n", mesh, arrows, *mean, most, most / *mean);
	rt_close(r);
	arena_free(mem);
	return most / *mean;
}

/* Under a causal mask contiguous parts leave the last rank nearly twice the mean; in zigzag order all ranks
 * have the same, and no block that nobody sees is worked on: as many scores in all as without ring. */
static void work_is_even_in_zigzag_order(void **state)
{
	double one, ring, even;

	(void)state;
	slowest("cp=1", "", 512, &one);
	assert_true(slowest("cp=4", "seq -> cp;ctx -> cp", 512, &ring) > 1.6);
	assert_true(slowest("cp=4", "seq -> cp zigzag;ctx -> cp zigzag", 512, &even) == 1);
	assert_true(even * 4 == one && ring * 4 == one);
}

static void no_room_for_a_block(void **state)
{
	struct layout l = { "cp=2", "seq -> cp;ctx -> cp", 4096, 1 << 16, true };
	struct arena *mem = arena_new();
	char said[4096] = { 0 };
	FILE *out = fmemopen(said, sizeof said - 1, "w");
	struct diag d;

	(void)state;
	assert_non_null(out);
	diag_init(&d, mem, NULL, out);
	assert_null(rt_open(compile(mem, &l, true, &d), 3, &d)); /* it is seen when the plan is loaded */
	fflush(out);
	assert_non_null(strstr(said, "the workspace of"));
	assert_non_null(strstr(said, "is too small"));
	fclose(out);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_rank_or_many),
		cmocka_unit_test(same_bits_every_time),
		cmocka_unit_test(what_is_sent),
		cmocka_unit_test(work_is_even_in_zigzag_order),
		cmocka_unit_test(no_room_for_a_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
