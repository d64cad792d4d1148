/* The IR as text: it reads back to the same bytes, wrong texts are refused with one message, and no
 * bytes whatever crash or hang the reader, the printer or the verifier. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ir/text.h"

static const char model[] =
	"ptc-ir 1\n"
	"module \"gpt2\" form=partitioned precision=bf16 micro=4 batch=batch workspace=268435456 arena=4096 probes\n"
	"source 0 \"gpt2.pdsl\"\n"
	"source 1 \"lib \\\"x\\\".pdsl\"\n"
	"mesh dp=2 !0:31:10:4\n"
	"mesh tp=16\n"
	"axis dp=2 of dp\n"
	"axis tp/0=8 of tp\n"
	"axis tp/1=2 of tp\n"
	"axis micro=4 time\n"
	"hardware \"h100\" fp32=67000000000000 fp8=0.1 memory=80000000000 bandwidth=3350000000000 price=2.5 "
	"host=63000000000 copy=1e-05 cores=0.5 gemm32=91000000000 gemm32_rows=28 gemm32_columns=1.5 gemm32_depth=17 gemm32_call=2e-06 "
	"gemm16=470000000000 gemm16_rows=60 gemm16_columns=1 gemm16_depth=180 gemm16_call=1e-06 kernel=30000000000 kernel_call=1e-06 "
	"kernel_simple=5e-11 kernel_hard=1e-09 kernel_sum=2e-10 attention=24000000000 attention_call=7e-06 attention_score=1e-09 attention_back=1.25 "
	"link=nvlink:8:450000000000:3e-06 link=\"i.b\":0:50000000000:inf\n"
	"software \"nvidia_2026\" attention=fa2 elementwise=fused loss=fused graphs=off tp_overlap=on prefetch=on dp_overlap=on ep_overlap=off "
	"p2p_scatter=on grads=bf16 recompute=whole\n"
	"dim batch=512 !0:3:5:5\n"
	"dim seq=1024 zigzag=4\n"
	"dim ctx=1024\n"
	"dim \"params\"=3\n"
	"dim \"a b\"=768\n"
	"dim layers=12\n"
	"recompute auto memory=70000 keep=(\"x\", glob \"mha.*\") !0:2:3:4\n"
	"buffer @\"wq\" param f32[layers, \"a b\"@tp/0.tp/1] init=normal(0.02) compute=[layers, \"a b\"@tp/0] !0:14:3:2\n"
	"buffer @\"x\" input int[batch@micro.dp, seq] tokens=50257\n"
	"buffer @\"y\" input int[batch, seq] tokens=50257 next=\"x\":1\n"
	"buffer @\"wq:m\" opt f32[layers, \"a b\"] init=zeros owner=\"wq\" off=64\n"
	"buffer @\"s\" state bool[] init=constant(-inf)\n"
	"arrow \"sel\": \"a b\", seq -> tp\n"
	"arrow glob \"l*\": params -> dp\n"
	"arrow \"params\", seq -> tp zigzag !1:2:3:4\n"
	"arrow optimizer -> dp.tp host\n"
	"arrow params -> dp gather_step\n"
	"arrow \"x\": activations -> none\n"
	"forward:\n"
	"  %0 = read {buf=\"wq\"} : f32[layers, \"a b\"@tp/0] \"wq\" kind=param !0:9:3:1\n"
	"  %1 = const {value=0.1} : f32[]\n"
	"  %2 = repeat %1, %0 {dim=layers, ncarry=1, nwith=0, acc=3} : f32[]+dp^tp/1 \"o\" at=0:0:0:0 of=%7 "
	"why=\"because \\\"x\\\"\\n\\x01\" !0:1:1:1 {\n"
	"    args %3: f32[], %4: f32[\"a b\"@tp/0] at=0:1:2:3\n"
	"    %5 = sum %4 : f32[]\n"
	"    %6 = add %3, %5 : f32[] of=%2 phase=epilogue\n"
	"    yield %6\n"
	"  }\n"
	"backward:\n"
	"  %7 = mul %2, %2 : bf16[] anchor off=128 of=%2\n"
	"  %8 = kernel %7 : bf16[] {\n"
	"    args %9: bf16[]\n"
	"    yield %9\n"
	"  }\n"
	"  %10 = index {dim=batch} : int[batch@micro.dp] kind=inner\n"
	"  %11, %12 = attention %0, %0, %0 {ctx=ctx, causal=-, dims=(batch, seq), tos=(), axes=(dp.tp/0), scale=nan, p=-inf} : "
	"f32[], f32[]\n"
	"  kernel {\n"
	"    yield\n"
	"  }\n"
	"prologue:\n"
	"  report %7 {key=\"loss\"}\n"
	"epilogue:\n"
	"  write %8 {buf=\"wq:m\"}\n";

struct run {
	struct arena *mem;
	struct diag d;
};

static struct run start(void)
{
	struct run r = { .mem = arena_new() };

	diag_init(&r.d, r.mem, NULL, NULL);
	return r;
}

/* NULL, or the text printed; fails if it does not read back to itself. */
static char *there_and_back(struct run *r, const char *text, size_t len, size_t *out)
{
	struct diag again;
	struct module *m, *n;
	size_t len2;

	diag_init(&r->d, r->mem, NULL, NULL);
	m = module_parse(r->mem, "in.pir", text, len, &r->d);
	if (!m) {
		assert_int_equal(r->d.errors, 1);
		assert_true(r->d.log.n > 0);
		return NULL;
	}
	assert_int_equal(r->d.errors, 0);
	char *first = module_print(m, r->mem, out);
	diag_init(&again, r->mem, NULL, NULL);
	n = module_parse(r->mem, "again", first, *out, &again);
	if (!n)
		fail_msg("%s\n%s", again.log.s, first);
	char *second = module_print(n, r->mem, &len2);
	if (len2 != *out || memcmp(first, second, len2) != 0)
		fail_msg("%s\nprinted again:\n%s", first, second);
	diag_init(&again, r->mem, m->src, NULL);
	verify(m, &again);
	return first;
}

static void model_is_a_fixed_point(void **state)
{
	(void)state;
	struct run r = start();
	size_t len;
	char *out = there_and_back(&r, model, sizeof model - 1, &len);

	if (!out)
		fail_msg("%s", r.d.log.s);
	assert_string_equal(out, model);
	arena_free(r.mem);
}

static void fields_are_read(void **state)
{
	(void)state;
	struct run r = start();
	struct module *m = module_parse(r.mem, "in.pir", model, sizeof model - 1, &r.d);

	assert_non_null(m);
	assert_ptr_equal(r.d.src, m->src);
	assert_string_equal(m->src->files.at[1].name, "lib \"x\".pdsl");
	assert_int_equal(m->form, PARTITIONED);
	assert_int_equal(m->precision, BF16);
	assert_int_equal(m->batch, 0);
	assert_true(m->probes);
	assert_int_equal(m->axes.n, 4);
	assert_int_equal(m->axes.at[2].user, 1);
	assert_true(m->axes.at[3].time);
	assert_true(m->hw.link[1].latency == INFINITY);
	assert_true(m->hw.cores == 0.5 && m->hw.measured.gemm[1].rows == 60 && m->hw.measured.kernel.sum == 2e-10 && m->hw.measured.attention.back == 1.25);
	assert_string_equal(m->software.name, "nvidia_2026");
	assert_int_equal(m->software.at[SW_GRAPHS], GRAPHS_OFF);
	assert_int_equal(m->software.at[SW_RECOMPUTE], RECOMPUTE_WHOLE);
	const struct buffer *b = find_buffer(m, "wq");
	assert_int_equal(b->store.on[1].n, 2);
	assert_int_equal(b->compute.on[1].n, 1);
	assert_true(find_buffer(m, "s")->init_arg == -INFINITY);
	assert_int_equal(m->arrows.n, 6);
	assert_null(m->arrows.at[2].sel);
	assert_int_equal(m->arrows.at[2].dims.n, 2);
	assert_true(m->arrows.at[1].glob);
	assert_int_equal(m->arrows.at[1].what, W_PARAMS);
	const struct op *rep = m->top.first->next->next;
	assert_int_equal(rep->code, OP_REPEAT);
	assert_int_equal(rep->out[0]->sh.sum, 1);
	assert_int_equal(rep->out[0]->sh.max, 4);
	assert_int_equal(rep->body->last->phase, EPILOGUE);
	assert_ptr_equal(rep->of, rep->next);
	assert_string_equal(rep->why, "because \"x\"\n\x01");
	assert_int_equal(rep->next->out[0]->off, 128);
	assert_int_equal(m->dims.at[1].zigzag, 4);
	arena_free(r.mem);
}

static void copy_is_deep(void **state)
{
	(void)state;
	struct run r = start();
	struct module *m = module_parse(r.mem, "in.pir", model, sizeof model - 1, &r.d);
	struct module *c = module_copy(m, r.mem);

	assert_ptr_equal(c->src, m->src);
	c->top.first->out[0]->name = "other";
	assert_string_equal(module_print(m, r.mem, NULL), model);
	arena_free(r.mem);
}

static void refused(const char *text, const char *line, const char *why)
{
	struct run r = start();
	struct module *m = module_parse(r.mem, "in.pir", text, strlen(text), &r.d);
	char *at = arena_printf(r.mem, "in.pir:%s:", line);

	assert_null(m);
	assert_int_equal(r.d.errors, 1);
	assert_null(r.d.src);
	if (!strstr(r.d.log.s, why) || !strstr(r.d.log.s, at))
		fail_msg("expected '%s' and '%s' in: %s", at, why, r.d.log.s);
	arena_free(r.mem);
}

#define HEAD "ptc-ir 1\nmodule\nmesh tp=2\ndim a=4\ndim b=8\n"
#define OPS HEAD "forward:\n%0 = index {dim=a} : int[a]\n"

static void wrong_declarations_are_refused(void **state)
{
	(void)state;
	refused("", "1:1", "not an IR text");
	refused("ptc-ir 2\n", "1:1", "not an IR text");
	refused("ptc-ir 1 x\n", "1:10", "end of the line");
	refused("ptc-ir 1\nmodule \"x\n", "2:8", "string without an end");
	refused("ptc-ir 1\nmodule \"\\q\"\n", "2:8", "escape");
	refused("ptc-ir 1\nmodule \"\\x00\"\n", "2:8", "escape");
	refused("ptc-ir 1\nmodule form=wild\n", "2:13", "form expected, not 'wild'");
	refused("ptc-ir 1\nmodule batch=q\n", "2:14", "no dim 'q'");
	refused("ptc-ir 1\nmodule micro=0\n", "2:14", "out of range");
	refused("ptc-ir 1\nmodule micro=99999999999999999999\n", "2:14", "whole number");
	refused("ptc-ir 1\ndim a=4\nmodule\n", "3:1", "out of order");
	refused("ptc-ir 1\nmodule\nmodule\n", "3:1", "out of order");
	refused("ptc-ir 1\ndim a=4\ndim a=4\n", "3:5", "'a' twice");
	refused("ptc-ir 1\ndim a=-4\n", "2:7", "out of range");
	refused("ptc-ir 1\nmesh a=2\nmesh a=2\n", "3:6", "'a' twice");
	refused("ptc-ir 1\nmesh a=1000000\nmesh b=1000000\n", "3:6", "ranks");
	refused("ptc-ir 1\naxis a=2 of b\n", "2:13", "no axis 'b' in the mesh");
	refused("ptc-ir 1\nmesh a=2\naxis a=2\n", "3:9", "'of' or 'time'");
	refused("ptc-ir 1\nsource 1 \"x\"\n", "2:8", "out of range");
	refused(HEAD "buffer @\"x\" param f32[c]\n", "6:23", "no dim 'c'");
	refused(HEAD "buffer @\"x\" param f32[a, a]\n", "6:26", "twice in a type");
	refused(HEAD "buffer @\"x\" thing f32[a]\n", "6:13", "role expected, not 'thing'");
	refused(HEAD "buffer @\"x\" param f32[a]\nbuffer @\"x\" param f32[a]\n", "7:9", "twice");
	refused(HEAD "buffer @\"x\" param f32[a@q]\n", "6:25", "no axis 'q'");
	refused(HEAD "buffer @\"x\" param f32[a] compute=[b]\n", "6:34", "other dims");
	refused(HEAD "buffer @\"x\" param f32[a] init=normal(x)\n", "6:38", "number");
	refused(HEAD "recompute most\n", "6:11", "recomputed");
	refused(HEAD "recompute full keep=()\n", "6:22", "a name");
	refused(HEAD "arrow a tp\n", "6:9", "'->' expected");
	refused(HEAD "arrow glob a -> tp\n", "6:12", "pattern");
	refused(HEAD "arrow a -> none tp\n", "6:17", "out of place");
	refused(HEAD "arrow a -> b\n", "6:12", "no axis 'b'");
	refused("ptc-ir 1\nhardware weight=3\n", "2:10", "unknown property");
	refused("ptc-ir 1\n\x01\n", "2:1", "unexpected");
}

static void wrong_ops_are_refused(void **state)
{
	(void)state;
	refused(OPS "%1 = foo %0 : int[a]\n", "8:6", "no operation 'foo'");
	refused(OPS "%1 = neg %2 : int[a]\n", "8:10", "used before it is defined");
	refused(OPS "%1 = neg %1 : int[a]\n", "8:10", "used before it is defined");
	refused(OPS "%0 = neg %0 : int[a]\n", "8:1", "defined twice");
	refused(OPS "%1 = add %0 : int[a]\n", "8:6", "2 to 2 operands, not 1");
	refused(OPS "%1, %2 = neg %0 : int[a], int[a]\n", "8:10", "1 results, not 2");
	refused(OPS "neg %0\n", "8:1", "1 results, not 0");
	refused(OPS "%1 = neg %0\n", "8:12", "':' and a type");
	refused(OPS "%1 = neg %0 : real[a]\n", "8:15", "type expected, not 'real'");
	refused(OPS "%1 = neg %0 {colour=1} : int[a]\n", "8:14", "unknown attribute");
	refused(OPS "%1 = neg %0 {dim=a, dim=b} : int[a]\n", "8:21", "'dim' twice");
	refused(OPS "%1 = neg %0 {start=1.5} : int[a]\n", "8:20", "whole number");
	refused(OPS "%1 = neg %0 : int[a] of=%9\n", "8:25", "names no other operation");
	refused(OPS "%1 = neg %0 : int[a] of=%1\n", "8:25", "names no other operation");
	refused(OPS "%1 = neg %0 : int[a] !1:2\n", "8:26", "':' in a place");
	refused(OPS "%1 = repeat %0 {dim=a} : int[]\n", "8:31", "a body");
	refused(OPS "%1 = repeat %0 {dim=a} : int[] {\n%2 = neg %0 : int[a]\nyield\n}\n", "9:10", "not visible");
	refused(OPS "%1 = repeat %0 {dim=a} : int[] {\nargs %2: int[]\nyield %0\n}\n", "10:7", "not visible");
	refused(OPS "%1 = repeat %0 {dim=a} : int[] {\nargs %2: int[]\n}\n", "10:1", "'yield' expected");
	refused(OPS "%1 = repeat %0 {dim=a} : int[] {\nargs %2: int[]\nyield %2\n", "11:1", "'}' expected");
	refused(OPS "%1 = repeat %0 {dim=a} : int[] {\nargs %2: int[]\nyield %2\n}\n%3 = neg %2 : int[]\n", "12:10",
		"not visible");
	refused(OPS "%4294967295 = neg %0 : int[a]\n", "8:1", "too large");
	refused(OPS "}\n", "8:1", "no operation");
	refused(OPS "dim c=3\n", "8:1", "out of order");
}

/* Bodies in bodies, far beyond what is allowed, and other large things. */
static void size_is_bounded(void **state)
{
	(void)state;
	struct run r = start();
	struct text t = { .mem = r.mem };

	text_put(&t, HEAD "forward:\n");
	for (int i = 0; i < 100000; i++)
		text_put(&t, "kernel {\n");
	refused(t.s, "40:1", "nested too deeply");
	t = (struct text){ .mem = r.mem };
	text_put(&t, HEAD "forward:\n%%0 = step : int[]\n%%1 = accum %%0");
	for (int i = 0; i < 100000; i++)
		text_put(&t, ", %%0");
	refused(t.s, "8:6", "operands");
	t = (struct text){ .mem = r.mem };
	text_put(&t, "ptc-ir 1\n");
	for (int i = 0; i < 5000; i++)
		text_put(&t, "dim d%d=1\n", i);
	refused(t.s, "4098:5", "more than 4096 dims");
	refused("ptc-ir 1\ndim a=1000000000000\ndim b=1000000000000\nbuffer @\"x\" param f32[a, b]\n", "4:26",
		"too many elements");
	arena_free(r.mem);
}

/* Of more numbers than an int has bits. */
static void sets_are_read(void **state)
{
	static const struct {
		const char *set, *why; /* NULL: it reads back */
	} all[] = { { "0", NULL }, { "9223372036854775807", NULL }, { "\"8000000000000000\"", NULL }, { "\"1f0000000000000003\"", NULL },
		    { "-1", "out of range" }, { "\"\"", "digits of a set" }, { "\"7fffffffffffffff\"", "digits of a set" },
		    { "\"01f0000000000000003\"", "digits of a set" }, { "\"1g0000000000000003\"", "digits of a set" } };
	struct run r = start();

	(void)state;
	for (size_t i = 0; i < LEN(all); i++) {
		const char *text = arena_printf(r.mem, HEAD "forward:\n  %%0 = repeat {dim=a, ncarry=0, acc=%s, local=%s} : f32[a] {\n"
							"    yield\n  }\n", all[i].set, all[i].set);
		size_t n;

		diag_init(&r.d, r.mem, NULL, NULL);
		struct module *m = module_parse(r.mem, "t", text, strlen(text), &r.d);
		if (all[i].why && !(r.d.errors && strstr(r.d.log.s, all[i].why)))
			fail_msg("%s: not '%s', but: %s", all[i].set, all[i].why, r.d.log.s);
		if (!all[i].why && (!m || !strstr(module_print(m, r.mem, &n), arena_printf(r.mem, "acc=%s, local=%s}", all[i].set, all[i].set))))
			fail_msg("%s is not read back: %s", all[i].set, r.d.log.s);
	}
	arena_free(r.mem);
}

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void numbers_keep_their_bits(void **state)
{
	(void)state;
	struct run r = start();
	uint64_t seed = 88172645463325252u;
	const double some[] = { 0, -0.0, 1, 0.1, 1e22, 1e23, 5e-324, 1.7976931348623157e308, 123456789012345678, -1e-7 };

	for (int i = 0; i < 2000; i++) {
		uint64_t bits = rnd(&seed);
		double x, y;

		memcpy(&x, &bits, sizeof x);
		if (i < (int)LEN(some))
			x = some[i];
		if (isnan(x))
			continue;
		struct module *m = module_new(r.mem, NULL);
		struct builder b = { .m = m, .block = &m->top };
		b_const(&b, F32, x);
		struct module *c = module_copy(m, r.mem);
		y = c->top.first->at.value;
		assert_memory_equal(&x, &y, sizeof x);
	}
	arena_free(r.mem);
}

static void names_keep_their_bytes(void **state)
{
	(void)state;
	struct run r = start();
	char s[300] = "";

	for (int c = 1; c < 256; c++)
		s[c - 1] = (char)c;
	struct module *m = module_new(r.mem, NULL);
	m->name = s;
	struct module *c = module_copy(m, r.mem);
	assert_string_equal(c->name, s);
	arena_free(r.mem);
}

/* An op whose forward op has been taken out names none. */
static void of_a_lost_op_is_not_printed(void **state)
{
	(void)state;
	struct run r = start();
	struct module *m = module_new(r.mem, NULL);
	struct builder b = { .m = m, .block = &m->top, .phase = FORWARD };
	struct value *lost = b_const(&b, F32, 1), *kept = b_const(&b, F32, 2);
	struct value *v = b_map1(&b, OP_NEG, kept);

	v->def->of = lost->def;
	op_unlink(lost->def);
	assert_null(strstr(module_print(m, r.mem, NULL), "of="));
	v->def->of = kept->def;
	assert_non_null(strstr(module_print(m, r.mem, NULL), "%1 = neg %0 : f32[] of=%0\n"));
	assert_string_equal(value_text(r.mem, m, v), "f32[]");
	arena_free(r.mem);
}

static void truncated_texts_are_refused_or_read(void **state)
{
	(void)state;
	for (size_t n = 0; n < sizeof model; n++) {
		struct run r = start();
		char *exact = arena_strndup(r.mem, model, n);
		size_t len;

		there_and_back(&r, exact, n, &len);
		arena_free(r.mem);
	}
}

static const char *const bits_of_text[] = {
	"\n", " ", "%0", "%1", "%99", "{", "}", "[", "]", "(", ")", ",", ":", "=", "+", "^", "@", "!", "-", "->", ".", "\"", "\\",
	"\"x\"", "0", "1", "4294967295", "9223372036854775807", "-9223372036854775808", "1e999", "nan", "inf", "batch", "seq",
	"tp/0", "micro", "dim=batch", "ncarry=2", "nwith=1", "acc=-1", "yield", "args", "kernel {\n", "repeat", "of=%0",
	"at=0:1:1:1", "off=3", "phase=forward", "f32[]", "int", "forward:\n", "dims=(batch)", "tos=(seq, ctx)", "axes=(dp)", "\x80", "\0",
	"all_gather", "add", "sum", "einsum", "slice", "split", "merge", "lookup", "rename", "accum", "zigzag=2", "#",
};

static size_t mutate(char *s, size_t n, size_t room, uint64_t *seed)
{
	size_t at = rnd(seed) % (n + 1), span = rnd(seed) % 30, from = rnd(seed) % (n + 1);
	const char *bit = bits_of_text[rnd(seed) % LEN(bits_of_text)];

	switch (rnd(seed) % 5) {
	case 0: /* a byte */
		if (at < n)
			s[at] = (char)rnd(seed);
		return n;
	case 1: /* less */
		span = at + span > n ? n - at : span;
		memmove(s + at, s + at + span, n - at - span);
		return n - span;
	case 2: /* a piece of it again */
		if (from + span > n || n + span > room)
			return n;
		memmove(s + at + span, s + at, n - at);
		memmove(s + at, s + (from >= at && from + span <= n ? from : 0), span);
		return n + span;
	default: /* a word */
		span = strlen(bit) ? strlen(bit) : 1;
		if (n + span > room)
			return n;
		memmove(s + at + span, s + at, n - at);
		memcpy(s + at, bit, span);
		return n + span;
	}
}

/* Words in the place of words: most of these are read, and must print and verify. */
static size_t replace(char *s, size_t n, size_t room, uint64_t *seed)
{
	size_t from = rnd(seed) % n, to;
	const char *bit = bits_of_text[rnd(seed) % LEN(bits_of_text)];
	size_t len = strlen(bit) ? strlen(bit) : 1;

	while (from < n && s[from] != ' ' && s[from] != '[' && s[from] != '=' && s[from] != '(')
		from++;
	from += from < n;
	for (to = from; to < n && !strchr(" ,])=\n", s[to]);)
		to++;
	if (n - (to - from) + len > room)
		return n;
	memmove(s + from + len, s + to, n - to);
	memcpy(s + from, bit, len);
	return n - (to - from) + len;
}

static void mutants_do_not_crash(void **state)
{
	(void)state;
	enum { ROOM = sizeof model + 4000, ROUNDS = 30000 };
	uint64_t seed = 0x9e3779b97f4a7c15u;
	int read = 0;

	for (int i = 0; i < ROUNDS; i++) {
		struct run r = start();
		char *s = arena_alloc(r.mem, ROOM);
		size_t n = sizeof model - 1, len;

		memcpy(s, model, n);
		for (uint64_t k = rnd(&seed) % 3 + 1; k; k--)
			n = i & 1 ? mutate(s, n, ROOM, &seed) : replace(s, n, ROOM, &seed);
		read += there_and_back(&r, s, n, &len) != NULL;
		arena_free(r.mem);
	}
	assert_true(read > ROUNDS / 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(model_is_a_fixed_point),
		cmocka_unit_test(fields_are_read),
		cmocka_unit_test(copy_is_deep),
		cmocka_unit_test(wrong_declarations_are_refused),
		cmocka_unit_test(wrong_ops_are_refused),
		cmocka_unit_test(size_is_bounded),
		cmocka_unit_test(sets_are_read),
		cmocka_unit_test(numbers_keep_their_bits),
		cmocka_unit_test(names_keep_their_bytes),
		cmocka_unit_test(of_a_lost_op_is_not_printed),
		cmocka_unit_test(truncated_texts_are_refused_or_read),
		cmocka_unit_test(mutants_do_not_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
