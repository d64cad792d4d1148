/* What the einsums of the examples are to a library of matrix products whose batches have one stride: one call each, but for two
 * kinds. Where the tokens that each rank has for an expert lie apart (deepseek, mixtral), a call for each expert of a rank with
 * thousands of rows, which an array of pointers would make one call. And sums over what lies apart (deepseek's gradients of experts,
 * patches of images in clip and vit), which no batch makes one: their operands are put in order first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "frontend/frontend.h"
#include "passes/passes.h"
#include "runtime/rings.h"

static const struct {
	const char *file;
	int calls; /* that some einsum is, in order as it lies */
	int more;  /* einsums that are more than one call */
} model[] = {
	{ "examples/bert.pdsl", 1, 0 }, { "examples/clip.pdsl", 672, 2 }, { "examples/deepseek.pdsl", 64, 18 },
	{ "examples/gemma2.pdsl", 1, 0 }, { "examples/gpt-mini.pdsl", 1, 0 }, { "examples/gpt2.pdsl", 1, 0 },
	{ "examples/llama.pdsl", 1, 0 }, { "examples/lora.pdsl", 1, 0 }, { "examples/mixtral.pdsl", 4, 1 }, { "examples/mlp.pdsl", 1, 0 },
	{ "examples/mlp_bn.pdsl", 1, 0 }, { "examples/mup.pdsl", 1, 0 }, { "examples/t5.pdsl", 1, 0 }, { "examples/vit.pdsl", 672, 2 },
};

static struct contraction contraction_of(const struct module *m, const struct op *op)
{
	const struct value *v[3] = { op->in[0], op->in[1], op->out[0] };
	struct contraction x = { 0 };
	dimid d[3 * MAX_DIMS];

	for (int k = 0; k < 3; k++)
		x.nd = union_dims(x.nd, d, v[k]);
	for (int k = 0; k < 3; k++) {
		int64_t stride[MAX_DIMS];

		x.dt[k] = v[k]->dt;
		strides_of(m, v[k]->nd, v[k]->d, v[k]->sh.on, stride);
		for (int i = 0; i < x.nd; i++) {
			int p = dim_pos(v[k], d[i]);

			x.has[k][i] = p >= 0;
			x.stride[k][i] = p >= 0 ? stride[p] : 0;
			x.n[i] = p >= 0 ? cap_of(m, d[i], &v[k]->sh.on[p]) : x.n[i];
		}
	}
	return x;
}

struct found {
	int einsums, batches, more, calls;
};

static void look(const struct module *m, const struct block *b, struct found *f)
{
	for (const struct op *op = b->first; op; op = op->next) {
		struct contraction x = { 0 };
		struct rings by[NKINDS];
		struct choice c;

		if (op->code == OP_EINSUM) {
			x = contraction_of(m, op);
			assert_true(classify(&x, by) && choose(by, &c));
			int calls = (int)contract_calls(by, &c, true);

			f->einsums++;
			f->batches += by[BATCH].n > 0;
			f->more += calls > 1;
			f->calls = calls > f->calls ? calls : f->calls;
		}
		if (op->body && op->code != OP_KERNEL)
			look(m, op->body, f);
	}
}

static void examples(void **state)
{
	int wrong = 0;

	(void)state;
	for (size_t i = 0; i < LEN(model); i++) {
		struct arena *mem = arena_new();
		struct sources src = { 0 };
		struct found f = { 0 };
		struct diag d;

		diag_init(&d, mem, &src, NULL);
		struct module *m = front_compile(mem, &src, &d, model[i].file, &(struct front_options){ 0 });

		assert_non_null(m);
		assert_true(run_passes(m, &d, &(struct pass_options){ .stop_after = "fuse" }));
		look(m, &m->top, &f);
		print_message("%s: %d einsums, %d with a batch, %d of more calls than one, up to %d\n", model[i].file, f.einsums, f.batches,
			      f.more, f.calls);
		wrong += f.more != model[i].more || f.calls != model[i].calls;
		arena_free(mem);
	}
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(examples) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
