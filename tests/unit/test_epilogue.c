/* Products and their epilogues: which kernels stand right behind an einsum as what it makes of its result, and that what only looks
 * like one of the forms does not. Each model is also run against the evaluator. */
#include "frontend/frontend.h"
#include "ir/epilogue.h"
#include "passes/price.h"
#include "tests/unit/both.h"

#define HEAD \
	"mesh dp=1\n" \
	"dim batch=8\ndim in=6\ndim mid=16\ndim out=4\n" \
	"buffer @\"x\" input f32[batch, in]\n" \
	"buffer @\"w\" param f32[in, mid] init=normal(0.2)\n" \
	"buffer @\"b\" param f32[mid] init=normal(0.2)\n" \
	"buffer @\"v\" param f32[mid, out] init=normal(0.2)\n" \
	"forward:\n" \
	"  %0 = read {buf=\"x\"} : f32[batch, in] kind=input\n" \
	"  %1 = read {buf=\"w\"} : f32[in, mid] kind=param\n" \
	"  %2 = read {buf=\"b\"} : f32[mid] kind=param\n" \
	"  %3 = read {buf=\"v\"} : f32[mid, out] kind=param\n" \
	"  %4 = einsum %0, %1 : f32[batch, mid] kind=inner\n"
/* From %20, f32[batch, mid]. */
#define TAIL \
	"  %21 = einsum %20, %3 : f32[batch, out] kind=inner\n" \
	"  %22 = mul %21, %21 : f32[batch, out] kind=inner\n" \
	"  %23 = sum %22 : f32[] \"loss\" kind=sum\n" \
	"  %24 = const {value=0.1} : f32[]\n" \
	"  %25 = const {value=0} : f32[]\n" \
	"  minimize %23, %24, %25, %25 {buf=\"w\", opt=\"sgd\", group=0}\n" \
	"  minimize %23, %24, %25, %25 {buf=\"b\", opt=\"sgd\", group=0}\n" \
	"  minimize %23, %24, %25, %25 {buf=\"v\", opt=\"sgd\", group=0}\n" \
	"  report %23 {key=\"loss\"}\n"

static const char *describe(struct arena *mem, const struct epilogue *e)
{
	static const char *const act[] = { "", " gelu", " relu", " dgelu" };

	if (e->z < 0)
		return arena_printf(mem, "[sum of %d]", e->side);
	return arena_printf(mem, "[z%s%s%s%s]", e->bias >= 0 ? " bias" : "", e->kept >= 0 ? " kept" : "", act[e->act], e->grad >= 0 ? " sum" : "");
}

static const char *pairs_of(struct arena *mem, const struct block *b)
{
	const char *all = "";
	struct epilogue e;

	for (const struct op *op = b->first; op; op = op->next) {
		if (epilogue_pair(op, &e))
			all = arena_printf(mem, "%s%s", all, describe(mem, &e));
		if (op->body && op->code != OP_KERNEL)
			all = arena_printf(mem, "%s%s", all, pairs_of(mem, op->body));
	}
	return all;
}

static const struct {
	const char *name, *props, *text, *pairs;
} model[] = {
	{ "bias", "", HEAD "  %20 = add %4, %2 : f32[batch, mid] \"h\" kind=inner\n" TAIL, "[z bias][sum of 1]" },
	{ "bias, the other way", "", HEAD "  %20 = add %2, %4 : f32[batch, mid] \"h\" kind=inner\n" TAIL, "[z bias][sum of 1]" },
	{ "gelu", "", HEAD "  %20 = gelu %4 {form=1} : f32[batch, mid] \"h\" kind=inner\n" TAIL, "[z dgelu]" },
	{ "bias and gelu", "", HEAD "  %5 = add %4, %2 : f32[batch, mid] kind=inner\n"
	  "  %20 = gelu %5 {form=1} : f32[batch, mid] \"h\" kind=inner\n" TAIL, "[z bias kept gelu][z dgelu sum]" },
	{ "bias and gelu, bf16", "precision=bf16", HEAD "  %5 = add %4, %2 : f32[batch, mid] kind=inner\n"
	  "  %20 = gelu %5 {form=1} : f32[batch, mid] \"h\" kind=inner\n" TAIL, "[z bias kept gelu][z dgelu][sum of 1]" },
	{ "bias and relu", "", HEAD "  %5 = add %4, %2 : f32[batch, mid] kind=inner\n"
	  "  %20 = relu %5 : f32[batch, mid] \"h\" kind=inner\n" TAIL, "[z bias relu]" },
	/* of the other gelus only the bias's gradient is known */
	{ "erf", "", HEAD "  %5 = add %4, %2 : f32[batch, mid] kind=inner\n"
	  "  %20 = gelu %5 {form=0} : f32[batch, mid] \"h\" kind=inner\n" TAIL, "" },
	{ "quick", "", HEAD "  %5 = add %4, %2 : f32[batch, mid] kind=inner\n"
	  "  %20 = gelu %5 {form=2} : f32[batch, mid] \"h\" kind=inner\n" TAIL, "" },
	{ "sub", "", HEAD "  %20 = sub %4, %2 : f32[batch, mid] \"h\" kind=inner\n" TAIL, "" },
	{ "twice the product", "", HEAD "  %5 = add %4, %4 : f32[batch, mid] kind=inner\n"
	  "  %20 = add %5, %2 : f32[batch, mid] \"h\" kind=inner\n" TAIL, "" },
	{ "silu", "", HEAD "  %5 = add %4, %2 : f32[batch, mid] kind=inner\n"
	  "  %20 = silu %5 : f32[batch, mid] \"h\" kind=inner\n" TAIL, "" },
};

static void forms(void **state)
{
	struct arena *mem = arena_new();
	int wrong = 0;

	(void)state;
	for (size_t i = 0; i < LEN(model); i++) {
		struct both x = both_open(arena_printf(mem, "batch=batch %s", model[i].props), model[i].text);
		const char *found = pairs_of(x.mem, &x.plan->top);

		wrong += !streq(found, model[i].pairs);
		if (!streq(found, model[i].pairs))
			print_error("%s: %s, not %s\n", model[i].name, found, model[i].pairs);
		for (int64_t step = 0; step < 3; step++)
			both_step(&x, step, step != 1, strstr(model[i].props, "bf16") ? 0.05 : 1e-4);
		both_close(&x);
	}
	arena_free(mem);
	assert_int_equal(wrong, 0);
}

/* On a GPU an epilogue is no launch, and but what it keeps or was kept for it is read or written. */
static void prices(void **state)
{
	struct arena *mem = arena_new();
	struct sources src = { 0 };
	struct diag d;
	int pairs = 0;

	(void)state;
	diag_init(&d, mem, &src, NULL);
	struct module *m = front_compile(mem, &src, &d, "examples/gpt2.pdsl", &(struct front_options){ 0 });

	assert_non_null(m);
	assert_true(run_passes(m, &d, &(struct pass_options){ .stop_after = "fuse" }));
	for (int gpu = 0; gpu < 2; gpu++) {
		m->hw.units = gpu ? 132 : 0;
		struct pricing *p = pricing_of(mem, m);

		for (const struct op *r = m->top.first; r; r = r->next)
			for (const struct op *op = r->code == OP_REPEAT ? r->body->first : NULL; op; op = op->next) {
				struct epilogue e;

				if (!epilogue_pair(op, &e))
					continue;
				struct op_price x = op_price(p, op);
				bool beside = e.aux >= 0 || e.kept >= 0;

				pairs++;
				assert_true(x.launches == !gpu);
				assert_true(gpu && !beside ? x.seconds == 0 : x.seconds > 0);
			}
	}
	assert_true(pairs >= 2 * 8);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(forms), cmocka_unit_test(prices) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
