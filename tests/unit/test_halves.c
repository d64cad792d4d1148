/* Backward in two halves: what is I, what is W, what lasts from one to the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "frontend/frontend.h"
#include "passes/passes.h"

static const char model[] =
	"dim batch = 6, embed = 3, ff = 5, layers = 4, out = 2\n"
	"input x[batch, embed]: float\n"
	"input y[batch, out]: float\n"
	"param wo[embed, out] ~ normal(0.3)\n"
	"h = x\n"
	"repeat layers {\n"
	"	param w1[embed, ff], w2[ff, embed] ~ normal(0.3)\n"
	"	h = h + relu(h @ w1) @ w2\n"
	"}\n"
	"e = h @ wo - y\n"
	"loss = sum(e * e)\n"
	"minimize loss with sgd(lr = 0.1)\n";

struct job {
	struct arena *mem;
	struct sources src;
	struct diag d;
	struct module *m;
};

static void compile(struct job *j, const char *order)
{
	struct front_options front = { 0 };
	struct pass_options opt = { .stop_after = "halves", .verify = true };

	*j = (struct job){ .mem = arena_new() };
	diag_init(&j->d, j->mem, &j->src, NULL);
	const char *text = arena_printf(j->mem, "%splan {\n	mesh pp = 2\n	layers -> pp\n	microbatches = 3\n"
					"	pipeline %s\n}\n", model, order);

	j->m = front_compile_text(j->mem, &j->src, &j->d, "halves.pdsl", text, strlen(text), &front);
	if (!j->m || !run_passes(j->m, &j->d, &opt))
		fail_msg("%s", j->d.log.s);
}

static const struct op *find_repeat(const struct job *j, enum phase phase, bool late)
{
	for (const struct op *op = j->m->top.first; op; op = op->next)
		if (op->code == OP_REPEAT && op->phase == phase && HAS(op, late) == late)
			return op;
	return NULL;
}

static bool reads(const struct op *op, const struct value *v)
{
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i] == v)
			return true;
	return false;
}

/* Elements of a row of the stacks of a that b reads. */
static int64_t stacked(const struct job *j, const struct op *a, const struct op *b)
{
	int64_t n = 0;

	for (uint32_t k = (uint32_t)a->at.ncarry; k < a->nout; k++)
		n += reads(b, a->out[k]) ? value_count(j->m, a->body->yields.at[k]) : 0;
	return n;
}

static int einsums(const struct op *loop)
{
	int n = 0;

	for (const struct op *op = loop->body->first; op; op = op->next)
		n += op->code == OP_EINSUM;
	return n;
}

/* I frees nothing, and W waits with as much again. */
static void test_mlp(void **state)
{
	struct job j;

	(void)state;
	compile(&j, "zb_h1");
	const struct op *f = find_repeat(&j, FORWARD, false), *i = find_repeat(&j, BACKWARD, false),
			*w = find_repeat(&j, BACKWARD, true);
	assert_non_null(f);
	assert_non_null(i);
	assert_non_null(w);
	assert_int_equal(stacked(&j, f, w), 6 * 3 + 6 * 5);
	assert_int_equal(stacked(&j, f, i), 6 * 5); /* relu's sign */
	assert_int_equal(stacked(&j, i, w), 6 * 3 + 6 * 5);
	assert_int_equal(i->at.ncarry, 1);
	assert_int_equal(i->nout, 3);
	assert_int_equal(w->at.ncarry, 0); /* nothing waits for the iteration before */
	assert_int_equal(w->nout, 2);
	assert_true(bits_equal(w->at.acc, bits_of_word(j.mem, 3)));
	assert_int_equal(einsums(i), 2);
	assert_int_equal(einsums(w), 2);
	arena_free(j.mem);
}

/* What travels is I, what is accumulated W. */
static void test_top(void **state)
{
	struct job j;
	int late = 0;

	(void)state;
	compile(&j, "zb_v");
	for (const struct op *op = j.m->top.first; op; op = op->next) {
		late += HAS(op, late);
		assert_true(!HAS(op, late) || op->phase == BACKWARD);
		assert_true(op->code != OP_ACCUMULATE || op->phase != BACKWARD || HAS(op, late));
		for (uint32_t k = 0; k < op->nin && op->phase == BACKWARD; k++)
			if (op->in[k]->def->phase == BACKWARD && op->in[k]->def->at.where != op->at.where)
				assert_false(HAS(op->in[k]->def, late));
	}
	assert_true(late > 1);
	arena_free(j.mem);
}

static void test_whole(void **state)
{
	struct job j;

	(void)state;
	compile(&j, "1f1b");
	assert_null(find_repeat(&j, BACKWARD, true));
	for (const struct op *op = j.m->top.first; op; op = op->next)
		assert_false(HAS(op, late));
	arena_free(j.mem);
}

/* W may not be waited for. */
static void test_verify(void **state)
{
	struct job j;

	(void)state;
	compile(&j, "zb_h1");
	struct op *i = find_repeat(&j, BACKWARD, false)->in[0]->def;
	SET(i, late, 1);
	assert_false(verify(j.m, &j.d));
	assert_non_null(strstr(j.d.log.s, "made by W"));
	arena_free(j.mem);
	compile(&j, "1f1b");
	i = (struct op *)find_repeat(&j, BACKWARD, false);
	SET(i, late, 1);
	assert_false(verify(j.m, &j.d));
	assert_non_null(strstr(j.d.log.s, "no schedule puts it off"));
	arena_free(j.mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mlp),
		cmocka_unit_test(test_top),
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_verify),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
