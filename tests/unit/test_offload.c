/* Copies between the memories of host and device: where they start and are waited for, what is called unsafe, and that a
 * thread does them beside the rank. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "ir/file.h"
#include "passes/passes.h"
#include "runtime/internal.h"
#include "tests/unit/both.h"

/* -- the order of ops -- */

#define HEAD "ptc-ir 1\nmodule \"t\" form=partitioned\nmesh dp=2\naxis dp=2 of dp\n" \
	"hardware \"h\" fp32=1e9 bf16=1e9 memory=1e9 bandwidth=1e11 price=1 host=1e6 copy=1e-06 link=l:0:1e9:1e-05\n"

/* By their names, where they start in capitals' stead; reads are left out. Copies have the number of their buffer. */
static const char *order(struct arena *mem, const struct module *m, const struct block *b)
{
	struct text t = { .mem = mem };

	for (const struct op *op = b->first; op; op = op->next) {
		const struct op *of = op->code == OP_WAIT ? op->in[0]->def : op;
		const struct op *to = of->code == OP_TO_HOST ? of->next : NULL;
		const struct buffer *buf = of->code == OP_FROM_HOST ? host_buffer(m, of->in[0]) : NULL;
		const char *name = op->code == OP_WAIT ? arena_printf(mem, "wait:%s", opinfo[of->code].name) : opinfo[op->code].name;

		if (op->code == OP_READ)
			continue;
		for (const struct value *v = to ? of->out[0] : NULL; to && !buf; to = to->next)
			for (uint32_t i = 0; i < to->nin; i++)
				if (to->in[i] == v && to->code == OP_WAIT)
					v = to->out[i];
				else if (to->in[i] == v)
					buf = find_buffer(m, to->at.buf);
		text_put(&t, "%s%s%s%s", t.n ? " " : "", HAS(op, async) ? "start:" : HAS(op, ahead) ? "ahead:" : "", name, buf ? buf->name : "");
		if (op->body)
			text_put(&t, " (%s)", order(mem, m, op->body));
	}
	return t.n ? t.s : "";
}

static void ordered(const char *text, const char *want)
{
	struct arena *mem = arena_new();
	struct diag d;
	const char *all = arena_printf(mem, "%s%s", HEAD, text);

	diag_init(&d, mem, NULL, stderr);
	struct module *m = module_parse(mem, "t", all, strlen(all), &d);
	if (!m || !verify(m, &d) || !run_pass_list(m, &d, "offload,overlap", &(struct pass_options){ .verify = true }))
		fail_msg("%s", all);
	assert_string_equal(order(mem, m, &m->top), want);
	arena_free(mem);
}

#define BUF(n, host) "buffer @\"" n "\" param f32[x, y]" host "\n"
#define DIMS "dim x=6\ndim y=6\ndim z=6\n"
#define UPDATE(buf, r, v, w) r " = read {buf=\"" buf "\"} : f32[x, y]\n" v " = einsum " r ", %0 : f32[y, z]\n" w " = einsum " v ", %0 : f32[x, y]\nwrite " w " {buf=\"" buf "\"}\n"
#define CHAIN(a, b, c) DIMS "buffer @\"q\" param f32[x, z]\n" BUF("1", a) BUF("2", b) BUF("3", c) \
	"epilogue:\n%0 = read {buf=\"q\"} : f32[x, z]\n" UPDATE("1", "%1", "%2", "%3") UPDATE("2", "%4", "%5", "%6") UPDATE("3", "%7", "%8", "%9")

/* Of params of one size one is on its way in, and one out. */
static void one_ahead(void **state)
{
	(void)state;
	ordered(CHAIN("", "", ""), "einsum einsum write einsum einsum write einsum einsum write");
	ordered(CHAIN(" host", " host", " host"),
		"from_host1 start:from_host2 einsum einsum start:to_host1 wait:from_host2 start:from_host3 einsum einsum wait:to_host1 "
		"write start:to_host2 wait:from_host3 einsum einsum wait:to_host2 write to_host3 write");
}

#define LOOP(body) DIMS "dim layers=3\nbuffer @\"p\" param f32[layers, x, y] host\nbuffer @\"q\" param f32[x, y]\n" \
	"forward:\n%0 = read {buf=\"q\"} : f32[x, y]\n%1 = read {buf=\"p\"} : f32[layers, x, y]\n" \
	"%2 = repeat %0, %1 {dim=layers, ncarry=1, nwith=0} : f32[x, y] {\n  args %3: f32[x, y], %4: f32[x, y]\n" body "  yield %8\n}\n"

/* The row of the next iteration. */
static void rows_ahead(void **state)
{
	(void)state;
	ordered(LOOP("  %5 = einsum %3, %4 : f32[x]\n  %8 = einsum %5, %4 : f32[x, y]\n"), "repeat (ahead:from_hostp einsum einsum)");
	/* stacked as it is: it does not outlive its iteration */
	ordered(DIMS "dim layers=3\nbuffer @\"p\" param f32[layers, x, y] host\nbuffer @\"q\" param f32[x, y]\n"
		"forward:\n%0 = read {buf=\"q\"} : f32[x, y]\n%1 = read {buf=\"p\"} : f32[layers, x, y]\n"
		"%2, %7 = repeat %0, %1 {dim=layers, ncarry=1, nwith=0} : f32[x, y], f32[layers, x, y] {\n  args %3: f32[x, y], %4: f32[x, y]\n"
		"  %5 = einsum %3, %4 : f32[x]\n  %8 = einsum %5, %4 : f32[x, y]\n  yield %8, %4\n}\n", "repeat (from_hostp einsum einsum)");
}

/* A product and what is carried out with it stay neighbours: what the kernel wants is there before both. */
static void before_products(void **state)
{
	(void)state;
	ordered(DIMS "dim layers=3\nbuffer @\"p\" param f32[layers, x, y] host\nbuffer @\"b\" param f32[layers, y] host\nbuffer @\"q\" param f32[z, x]\n"
		"forward:\n%0 = read {buf=\"q\"} : f32[z, x]\n%1 = read {buf=\"p\"} : f32[layers, x, y]\n%2 = read {buf=\"b\"} : f32[layers, y]\n"
		"%9 = repeat %0, %1, %2 {dim=layers, ncarry=1, nwith=0} : f32[z, x] {\n  args %3: f32[z, x], %4: f32[x, y], %5: f32[y]\n"
		"  %6 = einsum %3, %4 : f32[z, y]\n  %7 = kernel %6, %5 : f32[z, y] {\n    args %10: f32[z, y], %11: f32[y]\n"
		"    %12 = add %10, %11 : f32[z, y]\n    yield %12\n  }\n  %8 = einsum %7, %4 : f32[z, x]\n  yield %8\n}\n",
		"repeat (ahead:from_hostp ahead:from_hostb einsum kernel (add) einsum)");
}

/* Who reads the old value behind the write has it on the device. */
static void written_behind(void **state)
{
	(void)state;
	ordered(DIMS "buffer @\"q\" param f32[x, z]\n" BUF("1", " host") "epilogue:\n%0 = read {buf=\"q\"} : f32[x, z]\n%1 = read {buf=\"1\"} : f32[x, y]\n"
		"%2 = einsum %1, %0 : f32[y, z]\n%3 = einsum %2, %0 : f32[x, y]\nwrite %3 {buf=\"1\"}\n%4 = einsum %1, %2 : f32[x, z]\nwrite %4 {buf=\"q\"}\n",
		"from_host1 einsum einsum start:to_host1 einsum write wait:to_host1 write");
}

/* -- what the verifier says of the ops -- */

static void wrong(const char *text, const char *words)
{
	struct arena *mem = arena_new();
	struct diag d;
	const char *all = arena_printf(mem, "%s%s%s", HEAD, DIMS "dim layers=3\nbuffer @\"h\" param f32[layers, x] host\nbuffer @\"d\" param f32[layers, x]\n", text);

	diag_init(&d, mem, NULL, NULL);
	struct module *m = module_parse(mem, "t", all, strlen(all), &d);
	if ((m && verify(m, &d)) != !words)
		fail_msg("%s: %s\n%s", words ? "it is taken" : "it is refused", d.log.s ? d.log.s : "", all);
	if (words && !strstr(d.log.s, words))
		fail_msg("not '%s', but: %s", words, d.log.s);
	arena_free(mem);
}

#define BOTH "epilogue:\n%0 = read {buf=\"h\"} : f32[layers, x]\n%1 = read {buf=\"d\"} : f32[layers, x]\n"
#define IN(from, attrs) "%2 = from_host " from " " attrs ": f32[layers, x]\n"
#define ROWS(from, attrs, yield) "%2 = repeat " from " {dim=layers, ncarry=0, nwith=0} : f32[layers, x] {\n  args %3: f32[x]\n" \
	"  %4 = from_host %3 " attrs ": f32[x]\n  %5 = neg %4 : f32[x]\n  yield " yield "\n}\n"

static void verified(void **state)
{
	(void)state;
	wrong(BOTH IN("%0", "") "%3 = to_host %2 : f32[layers, x]\nwrite %3 {buf=\"h\"}\n", NULL);
	wrong(BOTH IN("%0", "{async=1} ") "%3 = wait %2 : f32[layers, x]\n%4 = neg %3 : f32[layers, x]\n%5 = to_host %4 {async=1} : f32[layers, x]\n"
	      "%6 = wait %5 : f32[layers, x]\nwrite %6 {buf=\"h\"}\n", NULL);
	wrong(BOTH ROWS("%0", "", "%5"), NULL);
	wrong(BOTH ROWS("%0", "{ahead=1} ", "%5"), NULL);
	wrong(BOTH ROWS("%0", "{ahead=1} ", "%4"), "does not outlive its iteration");
	wrong(BOTH ROWS("%1", "", "%5"), "does not lie in host memory");
	wrong(BOTH IN("%1", ""), "does not lie in host memory");
	wrong(BOTH IN("%0", "{ahead=1} "), "in a loop can be {ahead}");
	wrong(BOTH IN("%0", "{async=1} "), "nothing waits for it");
	wrong(BOTH IN("%0", "{async=1} ") "%3 = neg %2 : f32[layers, x]\n%4 = wait %2 : f32[layers, x]\n", "is in flight: only a wait may read it");
	wrong(BOTH "%2 = to_host %1 : f32[layers, x]\nwrite %2 {buf=\"d\"}\n", "other than the write of a buffer in host memory");
	wrong(BOTH "%2 = to_host %1 : f32[layers, x]\n%3 = neg %2 : f32[layers, x]\n", "other than the write of a buffer in host memory");
	wrong(BOTH "%2 = to_host %1 {async=1} : f32[layers, x]\n%4 = wait %2 : f32[layers, x]\n%3 = neg %4 : f32[layers, x]\n",
	      "other than the write of a buffer in host memory");
	wrong(BOTH "%2 = repeat %1 {dim=layers, ncarry=0, nwith=0} : f32[layers, x] {\n  args %3: f32[x]\n  %4 = to_host %3 : f32[x]\n  yield %4\n}\n",
	      "a loop writes no buffer");
}

/* -- plans with a fault -- */

static const char net[] =
	"hardware \"h\" fp32=1e6 bf16=1e6 memory=1e9 bandwidth=1e6 price=1 host=1e6 copy=1e-09 link=l:0:1e6:1e-09\n"
	"dim b=8\ndim e=6\ndim f=10\ndim layers=3\nbuffer @\"x\" input f32[b, e]\nbuffer @\"u\" param f32[layers, e, f] init=normal(0.5)\n"
	"buffer @\"v\" param f32[layers, f, e] init=normal(0.5)\nbuffer @\"w\" param f32[e, f] init=normal(1)\n"
	"forward:\n%0 = read {buf=\"x\"} : f32[b, e]\n%1 = read {buf=\"u\"} : f32[layers, e, f]\n%2 = read {buf=\"v\"} : f32[layers, f, e]\n"
	"%3 = repeat %0, %1, %2 {dim=layers, ncarry=1, nwith=0} : f32[b, e] \"y\" {\n  args %4: f32[b, e], %5: f32[e, f], %6: f32[f, e]\n"
	"  %7 = einsum %4, %5 : f32[b, f]\n  %8 = tanh %7 : f32[b, f]\n  %9 = einsum %8, %6 : f32[b, e]\n  %10 = add %4, %9 : f32[b, e]\n  yield %10\n}\n"
	"%11 = read {buf=\"w\"} : f32[e, f]\n%12 = einsum %3, %11 : f32[b, f]\n%13 = tanh %12 : f32[b, f]\n%14 = sum %13 : f32[]\nreport %14 {key=\"loss\"}\n"
	"%15 = const {value=0.1} : f32[]\n%16 = const {value=0} : f32[]\n"
	"minimize %14, %15, %16, %16 {buf=\"u\", opt=\"sgd\", group=0}\nminimize %14, %15, %16, %16 {buf=\"v\", opt=\"sgd\", group=0}\n"
	"minimize %14, %15, %16, %16 {buf=\"w\", opt=\"sgd\", group=0}\n";

struct plan {
	struct arena *mem;
	struct diag d;
	struct module *m;
};

static struct plan plan_of(const char *props, const char *arrows)
{
	struct plan p = { .mem = arena_new() };

	p.m = both_parse(p.mem, &p.d, props, both_on_mesh(p.mem, "mesh dp=2\n", arrows, net));
	for (const struct pass *x = passes; x->name; x++)
		if (!run_pass_list(p.m, &p.d, x->name, &(struct pass_options){ .verify = true }))
			fail_msg("pass %s: %s", x->name, p.d.log.s);
	return p;
}

static bool is_safe(struct plan *p)
{
	struct proof proof;
	size_t n;
	const char *text = module_print(p->m, p->mem, &n);

	diag_init(&p->d, p->mem, NULL, NULL);
	struct module *m = module_parse(p->mem, "t", text, n, &p->d);
	return m && prove_plan(m, &proof, &p->d);
}

static void refused(struct plan *p, const char *words)
{
	if (is_safe(p))
		fail_msg("it is called safe, not: %s", words);
	if (!strstr(p->d.log.s, words))
		fail_msg("not '%s', but: %s", words, p->d.log.s);
	arena_free(p->mem);
}

static struct op *find(struct block *b, enum opcode code, bool async)
{
	for (struct op *op = b->first; op; op = op->next) {
		struct op *in = op->code == OP_REPEAT ? find(op->body, code, async) : NULL;

		if (in)
			return in;
		if (op->code == code && is_async(op) == async)
			return op;
	}
	return NULL;
}

static struct op *wait_for(struct op *start)
{
	struct op *op = start->next;

	while (op->code != OP_WAIT || op->in[0]->def != start)
		op = op->next;
	return op;
}

static const char *const HOST = "arrow b -> dp\narrow params -> host\n";
static const char *const PROPS = "precision=f32 micro=2 batch=b";

static void faults(void **state)
{
	struct plan p = plan_of(PROPS, HOST);
	struct op *op = find(&p.m->top, OP_FROM_HOST, false), *w;

	(void)state;
	assert_true(op && HAS(op, ahead) && is_safe(&p));

	/* a copy is left out: what reads its result reads the memory of the host */
	replace_uses(op->home, op->out[0], op->in[0]);
	op_unlink(op);
	refused(&p, "lies in host memory");

	/* nothing waits for a copy that comes in, or the wait stands behind the reader */
	p = plan_of(PROPS, HOST);
	op = find(&p.m->top, OP_FROM_HOST, true);
	w = wait_for(op);
	replace_uses(w->home, w->out[0], w->in[0]);
	op_unlink(w);
	refused(&p, "is in flight: only a wait may read it");

	/* the wait for one that goes out is left out, or comes too late: its operand's place has been taken */
	p = plan_of(PROPS, HOST);
	op = find(&p.m->top, OP_TO_HOST, true);
	w = wait_for(op);
	replace_uses(w->home, w->out[0], w->in[0]);
	op_unlink(w);
	refused(&p, "is in flight: only a wait may read it");

	/* it starts before what it copies has been made */
	p = plan_of(PROPS, HOST);
	op = find(&p.m->top, OP_TO_HOST, true);
	op_move_before(op, op->in[0]->def);
	refused(&p, "is used before it is defined");

	/* what arrives lies where compute is at work meanwhile */
	p = plan_of(PROPS, HOST);
	op = find(&p.m->top, OP_FROM_HOST, true);
	for (w = op->next; !w->nout || w->code == OP_WAIT || w->out[0]->off < 0; w = w->next)
		;
	op->out[0]->off = w->out[0]->off;
	refused(&p, "from_host is still at work");

	/* so does what is had ahead, whose other place is at work for the next iteration */
	p = plan_of(PROPS, HOST);
	op = find(&p.m->top, OP_FROM_HOST, false);
	for (w = op->home->first; w == op || !w->nout || w->out[0]->off < 0; w = w->next)
		;
	op->out[0]->off = w->out[0]->off;
	assert_false(is_safe(&p));
	arena_free(p.mem);

	/* a copy to the host that is made on the device */
	p = plan_of(PROPS, HOST);
	op = find(&p.m->top, OP_TO_HOST, true);
	op->out[0]->off = 0;
	refused(&p, "does not lie in host memory");

	/* nothing says where it goes */
	p = plan_of(PROPS, HOST);
	op = find(&p.m->top, OP_TO_HOST, true);
	w = wait_for(op)->next;
	while (w->code != OP_WRITE || w->in[0]->def->in[0] != op->out[0])
		w = w->next;
	op_unlink(w);
	refused(&p, "nothing reads");
}

/* -- the same bits as without, however late the copies are -- */

static void same_bits(void **state)
{
	static const char *const arrows[] = { "arrow b -> dp\narrow params -> host\n", "arrow b -> dp\narrow params -> dp\narrow params -> host\n",
					      "arrow b -> dp\narrow optimizer -> dp\narrow optimizer -> host\narrow params -> host\n" };
	static const char *const env[] = { "PTC_TEST_NONE", "PTC_TEST_EAGER", "PTC_TEST_LATE" };
	struct arena *mem = arena_new();

	(void)state;
	for (size_t i = 0; i < LEN(arrows); i++)
		for (size_t k = 0; k < LEN(env); k++) {
			setenv(env[k], "1", 1);
			both_run("precision=f32 micro=2 batch=b", both_on_mesh(mem, "mesh dp=2\n", arrows[i], net), 1e-4);
			unsetenv(env[k]);
		}
	arena_free(mem);
}

/* -- the thread -- */

enum { N = 64, LONG = 1 << 20 };

static void beside(void **state)
{
	struct aside *a = aside_open(N);
	float *from = malloc(sizeof(float) * N * LONG / 64), *to = calloc(N * LONG / 64, sizeof(float));
	const struct nest l = { 1, { LONG / 64 }, { 1 }, { 1 } };
	double began, ended;

	(void)state;
	assert_true(a && from && to);
	for (int i = 0; i < N * LONG / 64; i++)
		from[i] = (float)i;
	for (int turn = 0; turn < 20; turn++) {
		memset(to, 0, sizeof(float) * N * LONG / 64);
		for (int i = 0; i < N; i++)
			aside_put(a, (i * 7 + turn) % N, &l, F32, to + i * (LONG / 64), F32, from + i * (LONG / 64));
		for (int i = N - 1; i >= 0; i -= 2) {
			aside_wait(a, (i * 7 + turn) % N, &began, &ended);
			assert_true(began <= ended);
			assert_memory_equal(to + i * (LONG / 64), from + i * (LONG / 64), sizeof(float) * LONG / 64);
		}
		aside_drain(a);
		assert_memory_equal(to, from, sizeof(float) * N * LONG / 64);
	}
	/* one that has been put is done before it is closed */
	memset(to, 0, sizeof(float) * N * LONG / 64);
	for (int i = 0; i < N; i++)
		aside_put(a, i, &l, F32, to + i * (LONG / 64), F32, from + i * (LONG / 64));
	aside_close(a);
	assert_memory_equal(to, from, sizeof(float) * N * LONG / 64);
	free(from);
	free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_ahead), cmocka_unit_test(rows_ahead), cmocka_unit_test(before_products), cmocka_unit_test(written_behind), cmocka_unit_test(verified),
		cmocka_unit_test(faults), cmocka_unit_test(same_bits), cmocka_unit_test(beside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
