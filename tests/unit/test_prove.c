/* The proof that a plan is safe: plans that are, and what hand-made faults are called. */
#include "frontend/frontend.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "passes/prove.h"
#include "runtime/runtime.h"
#include "tests/unit/both.h"

static const char mlp[] =
	"mesh dp=2\n"
	"dim batch=8\ndim in=6\ndim out=4\ndim layers=6\n"
	"buffer @\"x\" input f32[batch, in]\n"
	"buffer @\"w\" param f32[layers, in, out] init=normal(0.2)\n"
	"buffer @\"v\" param f32[layers, out, in] init=normal(0.2)\n"
	"arrow batch -> dp\n"
	"forward:\n"
	"  %0 = read {buf=\"x\"} : f32[batch, in] kind=input\n"
	"  %1 = read {buf=\"w\"} : f32[layers, in, out] kind=param\n"
	"  %2 = read {buf=\"v\"} : f32[layers, out, in] kind=param\n"
	"  %3 = repeat %0, %1, %2 {dim=layers, ncarry=1, nwith=0} : f32[batch, in] kind=inner {\n"
	"    args %4: f32[batch, in] kind=inner, %5: f32[in, out] kind=param, %6: f32[out, in] kind=param\n"
	"    %7 = einsum %4, %5 : f32[batch, out] kind=inner\n"
	"    %8 = tanh %7 : f32[batch, out] kind=inner\n"
	"    %9 = einsum %8, %6 : f32[batch, in] kind=inner\n"
	"    %10 = tanh %9 : f32[batch, in] kind=inner\n"
	"    %11 = add %4, %10 : f32[batch, in] kind=inner\n"
	"    yield %11\n"
	"  }\n"
	"  %12 = mul %3, %3 : f32[batch, in] kind=inner\n"
	"  %13 = sum %12 : f32[] \"loss\" kind=sum\n"
	"  %14 = const {value=0.1} : f32[]\n"
	"  %15 = const {value=0} : f32[]\n"
	"  minimize %13, %14, %15, %15 {buf=\"w\", opt=\"sgd\", group=0}\n"
	"  minimize %13, %14, %15, %15 {buf=\"v\", opt=\"sgd\", group=0}\n"
	"  report %13 {key=\"loss\"}\n";

struct plan {
	struct arena *mem;
	struct diag d;
	struct module *m;
};

static struct plan plan_of(const char *props)
{
	struct plan p = { .mem = arena_new() };

	p.m = both_parse(p.mem, &p.d, props, mlp);
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

/* It is refused, with these words; the plan is done with. */
static void refused(struct plan *p, const char *words)
{
	if (is_safe(p))
		fail_msg("it is called safe");
	if (!strstr(p->d.log.s, words))
		fail_msg("not '%s', but: %s", words, p->d.log.s);
	arena_free(p->mem);
}

static struct op *find(struct block *block, enum opcode code, int nth)
{
	for (struct op *op = block->first; op; op = op->next)
		if (op->code == code && nth-- == 0)
			return op;
	fail_msg("there is no %s", opinfo[code].name);
	return NULL;
}

static void safe_plans(void **state)
{
	static const char *const props[] = { "micro=1 batch=batch", "micro=2 batch=batch", "micro=4 batch=batch" };

	(void)state;
	for (size_t i = 0; i < LEN(props); i++) {
		struct plan p = plan_of(props[i]);

		if (!is_safe(&p))
			fail_msg("%s: %s", props[i], p.d.log.s);
		arena_free(p.mem);
	}
}

static void overlaps(void **state)
{
	struct plan p = plan_of("micro=2 batch=batch");
	struct op *loop = find(&p.m->top, OP_REPEAT, 0);
	struct op *a = find(loop->body, OP_EINSUM, 0), *b = find(loop->body, OP_EINSUM, 1);

	(void)state;
	b->out[0]->off = a->out[0]->off = 0; /* the params lie there */
	refused(&p, "unsafe plan: ");
}

static void arena_ends(void **state)
{
	struct plan p = plan_of("micro=2 batch=batch");

	(void)state;
	p.m->arena -= 64;
	refused(&p, "it lies outside of the arena");
}

static void buffers_overlap(void **state)
{
	struct plan p = plan_of("micro=1 batch=batch");

	(void)state;
	find_buffer(p.m, "v")->off = find_buffer(p.m, "w")->off + 64;
	refused(&p, "the buffer 'v' lies on another");
}

/* Every rank trains on its own part of the batch: safe, and wrong. */
static void reduction_dropped(void **state)
{
	struct plan p = plan_of("micro=1 batch=batch");
	struct op *sum = find(&p.m->top, OP_ALL_REDUCE, 0);

	(void)state;
	for (uint32_t i = 0; i < sum->nout; i++)
		replace_uses(sum->home, sum->out[i], sum->in[i]);
	op_unlink(sum);
	refused(&p, "");
}

static void term_dropped(void **state)
{
	struct plan p = plan_of("micro=1 batch=batch");

	(void)state;
	op_unlink(find(&p.m->top, OP_WRITE, 0));
	refused(&p, "nothing reads");
}

static void loop_turned(void **state)
{
	struct plan p = plan_of("micro=1 batch=batch");
	struct op *loop = find(&p.m->top, OP_REPEAT, 0);

	(void)state;
	SET(loop, reverse, 1);
	refused(&p, "it runs from its last iteration to its first");
	p = plan_of("micro=1 batch=batch");
	SET(find(&p.m->top, OP_REPEAT, 1), reverse, 0);
	refused(&p, "it runs the way of the loop whose gradients it makes");
}

/* -- bytes -- */

static void pieces_of_memory(void **state)
{
	struct arena *mem = arena_new();
	struct memory m = { .mem = mem };
	struct piece hole;
	struct content a = { 1, 0 }, b = { 2, 64 };

	(void)state;
	memory_put(&m, (struct bytes){ 0, 256 }, a);
	assert_null(memory_find(&m, (struct bytes){ 0, 256 }, a, &hole));
	memory_put(&m, (struct bytes){ 64, 128 }, b);
	assert_null(memory_find(&m, (struct bytes){ 0, 64 }, a, &hole));
	assert_null(memory_find(&m, (struct bytes){ 128, 256 }, a, &hole));
	assert_int_equal(memory_find(&m, (struct bytes){ 0, 256 }, a, &hole)->is.tag, 2);
	assert_int_equal(memory_find(&m, (struct bytes){ 64, 128 }, (struct content){ 2, 0 }, &hole)->is.start, 64);
	assert_ptr_equal(memory_find(&m, (struct bytes){ 192, 320 }, a, &hole), &hole);
	assert_int_equal(hole.at.lo, 256);
	memory_put(&m, (struct bytes){ 0, 256 }, a);
	assert_int_equal(m.pieces.n, 1);
	arena_free(mem);
}

/* 200 random writes, against one tag a byte. */
static void bytes_one_by_one(void **state)
{
	struct arena *mem = arena_new();
	struct memory m = { .mem = mem };
	uint32_t want[64] = { 0 }, seed = 1;

	(void)state;
	for (uint32_t i = 1; i <= 200; i++) {
		seed = seed * 1664525 + 1013904223;
		int64_t lo = seed >> 8 & 63, hi = lo + (seed >> 16 & 15);

		hi = hi > 64 ? 64 : hi;
		memory_put(&m, (struct bytes){ lo, hi }, (struct content){ i, 0 });
		for (int64_t k = lo; k < hi; k++)
			want[k] = i;
		for (int64_t k = 0; k < 64; k++) {
			struct piece hole;
			const struct piece *x = memory_find(&m, (struct bytes){ k, k + 1 }, (struct content){ want[k], 0 }, &hole);

			assert_true(want[k] ? !x : x && !x->is.tag);
		}
	}
	arena_free(mem);
}

/* -- messages: two stages, four microbatches, 1f1b -- */

static const char chain[] =
	"dim batch = 8, embed = 4, mid = 6, layers = 4\n"
	"input x0[batch, embed]: float\n"
	"x = x0\n"
	"repeat layers {\n"
	"    param w[embed, mid], v[mid, embed] ~ normal(0.2)\n"
	"    x = x + tanh(x @ w) @ v\n"
	"}\n"
	"loss = mean(x * x)\n"
	"minimize loss with sgd(lr = 0.1)\n"
	"plan {\n"
	"    mesh pp = 2 on cpu\n"
	"    layers -> pp\n"
	"    pipeline 1f1b\n"
	"    microbatches = 4\n"
	"}\n";

struct stages {
	struct arena *mem;
	struct sources src;
	struct diag d;
	struct module *m;
	struct layouts *l;
};

static void stages_open(struct stages *x)
{
	*x = (struct stages){ .mem = arena_new() };
	diag_init(&x->d, x->mem, &x->src, NULL);
	x->m = front_compile_text(x->mem, &x->src, &x->d, "chain.pdsl", chain, sizeof chain - 1, &(struct front_options){ 0 });
	if (!x->m || !run_passes(x->m, &x->d, &(struct pass_options){ .verify = true }))
		fail_msg("%s", x->d.log.s);
	struct regions *r = regions_of(x->mem, x->m);

	regions_measure(r, x->m);
	x->l = layouts_of(x->mem, x->m, r);
}

static bool messages_fit(struct stages *x)
{
	return prove_channels(&(struct prover){ .m = x->m, .d = &x->d, .l = x->l });
}

static void swap_actions(struct actions *a, uint32_t i, uint32_t k)
{
	struct action kept = a->at[i];

	a->at[i] = a->at[k];
	a->at[k] = kept;
}

static void messages_are_taken(void **state)
{
	struct stages x;
	struct proof proof;

	(void)state;
	stages_open(&x);
	assert_true(messages_fit(&x));
	assert_int_equal(x.l->channels.n, 2);
	if (!prove_plan(x.m, &proof, &x.d))
		fail_msg("%s", x.d.log.s);
	assert_int_equal(proof.stages, 2);
	assert_int_equal(proof.channels, 2);
	arena_free(x.mem);
}

/* Stage 1 takes microbatch 0 first, stage 0 sends 1. */
static void messages_out_of_order(void **state)
{
	struct stages x;

	(void)state;
	stages_open(&x);
	swap_actions(&x.l->stage[0].acts, 0, 1);
	assert_false(messages_fit(&x));
	assert_non_null(strstr(x.d.log.s, "stage 1, action 0: F of chunk 1, microbatch 0 takes what stage 0 sends from chunk 0 for microbatch 1"));
	arena_free(x.mem);
}

/* Stage 0 wants the gradient of what it has not sent. */
static void stages_in_a_circle(void **state)
{
	struct stages x;

	(void)state;
	stages_open(&x);
	uint32_t b = 0;
	while (x.l->stage[0].acts.at[b].kind != ACT_B)
		b++;
	swap_actions(&x.l->stage[0].acts, 0, b);
	assert_false(messages_fit(&x));
	assert_non_null(strstr(x.d.log.s, "stage 0 (action 0: B of chunk 0, microbatch 0) waits to hear from stage 1, "
					  "stage 1 (action 0: F of chunk 1, microbatch 0) waits to hear from stage 0"));
	arena_free(x.mem);
}

static void nobody_takes(void **state)
{
	struct stages x;

	(void)state;
	stages_open(&x);
	x.l->stage[0].acts.n--; /* the last backward */
	assert_false(messages_fit(&x));
	assert_non_null(strstr(x.d.log.s, "nobody takes what stage 1 sends to stage 0"));
	arena_free(x.mem);
}

static void arena_of_a_stage(void **state)
{
	struct stages x;
	struct proof proof;

	(void)state;
	stages_open(&x);
	x.m->pipe.arena.at[1] -= 64;
	assert_false(prove_plan(x.m, &proof, &x.d));
	assert_non_null(strstr(x.d.log.s, "the arena of stage 1 does not fit"));
	arena_free(x.mem);
}

/* -- orders that balance.c may choose -- */

static bool proved(struct stages *x)
{
	struct proof proof;

	layout_arenas(x->m, regions_of(x->mem, x->m));
	return prove_plan(x->m, &proof, &x->d);
}

static void forwards_first(void **state)
{
	struct stages x;

	(void)state;
	stages_open(&x);
	int64_t arena = x.m->pipe.arena.at[0];
	for (x.m->pipe.warm = 0; x.m->pipe.warm < 3; x.m->pipe.warm++)
		if (!proved(&x))
			fail_msg("warm %d: %s", x.m->pipe.warm, x.d.log.s);
	assert_true(x.m->pipe.arena.at[0] > arena); /* one more microbatch waits for its backward */
	x.m->pipe.warm = 0;
	struct proof proof;
	assert_false(prove_plan(x.m, &proof, &x.d));
	assert_non_null(strstr(x.d.log.s, "the arena of stage 0 does not fit"));
	arena_free(x.mem);
}

/* A list of actions: that of the order, all forwards first, and one in which both stages wait. */
static void listed_actions(void **state)
{
	struct stages x;

	(void)state;
	stages_open(&x);
	struct actions *list = NEWN(x.mem, struct actions, 2);
	for (int s = 0; s < 2; s++)
		for (uint32_t i = 0; i < x.l->stage[s].acts.n; i++)
			PUSH(x.mem, &list[s], x.l->stage[s].acts.at[i]);
	x.m->pipe.list = list;
	if (!proved(&x))
		fail_msg("%s", x.d.log.s);
	for (uint32_t n = 0, front = 0; n < list[0].n; n++) { /* stage 0: forwards to the front, in their order */
		if (list[0].at[n].kind != ACT_F)
			continue;
		for (uint32_t k = n; k > front; k--)
			swap_actions(&list[0], k, k - 1);
		front++;
	}
	if (!proved(&x))
		fail_msg("forwards first: %s", x.d.log.s);
	uint32_t b = 0;
	while (list[0].at[b].kind != ACT_B)
		b++;
	for (; b > 0; b--)
		swap_actions(&list[0], b, b - 1);
	struct proof proof;
	assert_false(prove_plan(x.m, &proof, &x.d));
	assert_non_null(strstr(x.d.log.s, "unsafe plan: "));
	arena_free(x.mem);
}

/* -- stages without iterations -- */

/* Stages 0 and 3 of 4 run no iteration. */
static void idle_open(struct stages *x)
{
	*x = (struct stages){ .mem = arena_new() };
	diag_init(&x->d, x->mem, &x->src, NULL);
	x->m = front_compile(x->mem, &x->src, &x->d, "tests/pipeline/idle.pdsl", &(struct front_options){ 0 });
	if (!x->m || !run_passes(x->m, &x->d, &(struct pass_options){ .verify = true }))
		fail_msg("%s", x->d.log.s);
}

/* As its text says, once what stages have now is laid out; *opens: by the runtime. */
static bool idle_is_safe(struct stages *x, bool *opens)
{
	struct proof proof;
	struct sources src = { 0 };
	size_t n;

	layout_arenas(x->m, regions_of(x->mem, x->m));
	const char *text = module_print(x->m, x->mem, &n);

	diag_init(&x->d, x->mem, &src, NULL);
	struct module *m = module_parse(x->mem, "t", text, n, &x->d);
	bool safe = m && prove_plan(m, &proof, &x->d);
	struct runtime *rt = safe && opens ? rt_open(m, 1, &x->d) : NULL;

	if (opens)
		*opens = rt;
	rt_close(rt);
	return safe;
}

static void idle_refused(struct stages *x, const char *words)
{
	if (idle_is_safe(x, NULL))
		fail_msg("it is called safe");
	if (!strstr(x->d.log.s, words))
		fail_msg("not '%s', but: %s", words, x->d.log.s);
	arena_free(x->mem);
}

/* What loops without iterations name: the first repeat reads d and c, which stage 0 does not hold. */
static void idle_stage_lacks(void **state)
{
	struct stages x;

	(void)state;
	idle_open(&x);
	SET(find(&x.m->top, OP_REPEAT, 0), where, 0);
	idle_refused(&x, "tests/pipeline/idle.pdsl:12:13: error: unsafe plan: kernel of %5: stage 0 has no place for %3 'd:s'");
}

/* {from} of the sums of parts, or of those at one place that name stages 1 and 2, becomes another. */
static void takes_from(bool parts, int64_t from, const char *words)
{
	struct stages x;

	idle_open(&x);
	for (struct op *op = x.m->top.first; op; op = op->next)
		if (op->code == OP_TO_PARTIAL && (parts ? HAS(op, form) && op->at.form : HAS(op, from) && HAS(op, where) && op->at.from == 6))
			SET(op, from, from);
	idle_refused(&x, words);
}

static void idle_stage_gives(void **state)
{
	(void)state;
	takes_from(false, 1, "it takes what stage 0 has of ");
}

/* A sum of parts that no stage is said to have: the runtime would leave out all but those of the first stage. */
static void parts_of_no_stage(void **state)
{
	(void)state;
	takes_from(true, 0, "a sum of parts names the stages that have them");
}

/* What only a stage runs that there is not: no stage would. */
static void places_of_no_pipeline(void **state)
{
	struct stages x;

	(void)state;
	idle_open(&x);
	SET(find(&x.m->top, OP_REPORT, 0), where, 1 << 20);
	idle_refused(&x, "report: it is at a place that the pipeline has not got");
	idle_open(&x);
	x.m->bufs.at[x.m->bufs.n - 1]->where = 1 << 20;
	idle_refused(&x, "is at a place that the pipeline has not got");
}

/* Offsets, rows and arenas that no number holds. */
static void larger_than_memory(void **state)
{
	static const char *const words[] = { "lies behind the end of any memory", "lies behind the end of any memory",
					     "it wants more than any memory has", "what lies on a stage is larger than any memory" };

	(void)state;
	for (size_t i = 0; i < LEN(words); i++) {
		struct stages x;

		idle_open(&x);
		struct plan p = { x.mem, x.d, x.m };

		if (i == 0)
			find(&p.m->top, OP_REPEAT, 0)->out[0]->off = INT64_MAX - 63;
		if (i == 1)
			p.m->bufs.at[p.m->bufs.n - 1]->off = INT64_MAX - 63;
		if (i == 2)
			p.m->arena = INT64_MAX;
		for (struct op *op = p.m->top.first; i == 3 && op; op = op->next)
			for (uint32_t k = 0; k < op->nout; k++)
				op->out[k]->off = op->out[k]->off < 0 ? -1 : MAX_MEMORY;
		refused(&p, words[i]);
	}
}

static void idle_stage_holds(void **state)
{
	struct stages x;

	(void)state;
	idle_open(&x);
	find_buffer(x.m, "c:m")->where = 0;
	idle_refused(&x, "write: stage 0 holds 'c:m' and does not write it");
}

/* Whatever stages run an op: what is proved the runtime opens. */
static void what_is_proved_opens(void **state)
{
	struct stages x;
	int safe = 0;

	(void)state;
	idle_open(&x);
	for (struct op *op = x.m->top.first; op; op = op->next)
		for (int64_t w = 0; HAS(op, where) && w < 8; w++) {
			int64_t was = op->at.where;
			bool opens;

			op->at.where = w;
			if (idle_is_safe(&x, &opens) && !opens)
				fail_msg("%s that runs at %lld: %s", opinfo[op->code].name, (long long)w, x.d.log.s);
			safe += opens;
			op->at.where = was;
		}
	assert_true(safe > 40);
	arena_free(x.mem);
}

/* -- what ptc has made, before it is written -- */

/* With these words, and as no fault of the model. */
static void not_made(struct stages *x, const char *words)
{
	struct proof proof;

	diag_init(&x->d, x->mem, &x->src, NULL);
	if (prove_made(x->m, &proof, &x->d))
		fail_msg("it would be written");
	if (!strstr(x->d.log.s, words) || !strstr(x->d.log.s, "note: the model is not at fault, ptc is") ||
	    !strstr(x->d.log.s, "note: please report the model"))
		fail_msg("not '%s', but: %s", words, x->d.log.s);
	arena_free(x->mem);
}

static void made_is_sound(void **state)
{
	struct stages x;
	struct proof proof;

	(void)state;
	stages_open(&x);
	if (!prove_made(x.m, &proof, &x.d))
		fail_msg("%s", x.d.log.s);
	assert_true(proof.reads > 0 && !x.d.log.n);
	arena_free(x.mem);
}

static void made_of_wrong_type(void **state)
{
	struct stages x;

	(void)state;
	stages_open(&x);
	find(find(&x.m->top, OP_REPEAT, 0)->body, OP_EINSUM, 0)->out[0]->nd--;
	not_made(&x, "error: invalid IR: ");
}

static void made_unsafe(void **state)
{
	struct stages x;

	(void)state;
	stages_open(&x);
	find(&x.m->top, OP_REPEAT, 0)->out[0]->off += 64;
	not_made(&x, "error: unsafe plan: ");
}

static void made_unreadable(void **state)
{
	struct stages x;

	(void)state;
	stages_open(&x);
	x.m->bufs.at[0]->where = -1;
	not_made(&x, "the plan:");
}

/* A step reads what the one before has left in a buffer, wherever it writes it. */
static void read_of_what_was_written(void **state)
{
	static const char head[] = "ptc-ir 1\nmodule \"t\" form=planned precision=f32 micro=1 workspace=1024 arena=128\n"
		"buffer @\"s\" state f32[] init=zeros off=0\nepilogue:\n%0 = read {buf=\"s\"} : f32[]\n"
		"%1 = kernel %0 : f32[] off=64 {\nargs %2: f32[]\n%3 = const {value=1} : f32[]\n%4 = add %2, %3 : f32[]\nyield %4\n}\n";
	static const char write[] = "write %1 {buf=\"s\"}\n", read[] = "%5 = read {buf=\"s\"} : f32[]\nreport %5 {key=\"s\"}\n";

	(void)state;
	for (int late = 0; late < 2; late++) {
		struct plan p = { .mem = arena_new() };
		const char *text = arena_printf(p.mem, "%s%s%s", head, late ? write : read, late ? read : write);

		diag_init(&p.d, p.mem, NULL, NULL);
		p.m = module_parse(p.mem, "t", text, strlen(text), &p.d);
		if (!p.m || (!late && !is_safe(&p)))
			fail_msg("%s", p.d.log.s);
		if (late)
			refused(&p, "read of %5: 's' has been written, which holds from the next step on");
		else
			arena_free(p.mem);
	}
}

/* -- what a runtime asks of ops -- */

static void place_of_no_pipeline(void **state)
{
	struct plan p = plan_of("micro=2 batch=batch");

	(void)state;
	SET(find(&p.m->top, OP_REPEAT, 0), where, 2);
	refused(&p, "repeat of %3: it has a place along a pipeline that is not there");
}

#define PLANNED_TEXT "module form=planned precision=f32 micro=2 batch=batch workspace=1024 arena=4096\nmesh dp=2\nmesh tp=2\n" \
	"axis dp=2 of dp\naxis tp=2 of tp\naxis micro=2 time\ndim batch=8\ndim n=8\ndim c=4\ndim e=2\ndim seq=4\ndim ctx=4\n"

/* By the proof, and by the runtime. */
static void text_refused(const char *buffers, const char *ops, const char *words)
{
	struct plan p = { .mem = arena_new() };
	const char *text = arena_printf(p.mem, "ptc-ir 1\n%s%s%s", PLANNED_TEXT, buffers, ops);

	diag_init(&p.d, p.mem, NULL, NULL);
	p.m = module_parse(p.mem, "t", text, strlen(text), &p.d);
	if (!p.m)
		fail_msg("%s", p.d.log.s);
	struct runtime *rt = rt_open(p.m, 1, &p.d);
	assert_null(rt);
	if (!strstr(p.d.log.s, " in the plan: "))
		fail_msg("the runtime says %s", p.d.log.s);
	refused(&p, words);
}

static void cut_over_two_axes(void **state)
{
	(void)state;
	text_refused("buffer @\"x\" param f32[n] init=zeros off=0\nbuffer @\"y\" state f32[n@dp.tp] init=zeros off=64\n",
		     "prologue:\n%0 = read {buf=\"x\"} : f32[n]\n%1 = shard %0 {dim=n, axes=(dp.tp)} : f32[n@dp.tp] off=128\n"
		     "epilogue:\nwrite %1 {buf=\"y\"}\n",
		     "it cuts over several axes at once");
}

static void sum_that_is_not_f32(void **state)
{
	(void)state;
	text_refused("buffer @\"x\" input f32[batch, n]\nbuffer @\"w\" param bf16[n, c] init=zeros off=0\n"
		     "buffer @\"y\" state bf16[c] init=zeros off=64\n",
		     "forward:\n%0 = read {buf=\"x\"} : f32[batch@micro, n] off=128\n"
		     "%1 = kernel %0 : bf16[batch@micro, n] off=256 {\nargs %2: f32[batch@micro, n]\n"
		     "%3 = cast %2 : bf16[batch@micro, n]\nyield %3\n}\n"
		     "%4 = read {buf=\"w\"} : bf16[n, c]\n%5 = einsum %1, %4 : bf16[c]+micro\n%6 = accumulate %5 : bf16[c] off=384\n"
		     "epilogue:\nwrite %6 {buf=\"y\"}\n",
		     "what microbatches add up is not f32");
}

static void attention_of_other_dims(void **state)
{
	(void)state;
	text_refused("buffer @\"q\" param f32[seq, n, c] init=zeros off=0\nbuffer @\"k\" param f32[ctx, c] init=zeros off=512\n"
		     "buffer @\"v\" param f32[ctx, c, e] init=zeros off=576\n",
		     "prologue:\n%0 = read {buf=\"q\"} : f32[seq, n, c]\n%1 = read {buf=\"k\"} : f32[ctx, c]\n"
		     "%2 = read {buf=\"v\"} : f32[ctx, c, e]\n"
		     "%3, %4 = attention %0, %1, %2 {dim=c, ctx=ctx, scale=1} : f32[seq, n, c, e] off=704, f32[seq, n] off=1728\n"
		     "%5 = kernel %3 : f32[] off=1856 {\nargs %6: f32[seq, n, c, e]\n%7 = sum %6 : f32[]\nyield %7\n}\n"
		     "epilogue:\nreport %5 {key=\"a\"}\n",
		     "v has two dims of its own");
}

/* -- kernels that no code can be made for: ptc verify says what rt_open says -- */

static const char *verify_says(struct plan *p)
{
	const char *build = getenv("BUILD");
	char path[] = "/tmp/ptc-fits-XXXXXX", *said = arena_alloc(p->mem, 4096);
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	assert_true(plan_save(p->m, path, &p->d));
	FILE *f = popen(arena_printf(p->mem, "%s/ptc verify %s 2>&1", build ? build : "build", path), "r");

	assert_non_null(f);
	said[fread(said, 1, 4095, f)] = 0;
	pclose(f);
	unlink(path);
	return said;
}

/* One kernel of so many results, each of a dim of its own or of none. */
static void no_code(int results, bool dims, const char *words)
{
	struct plan p = { .mem = arena_new() };
	struct text ops = { .mem = p.mem }, yield = { .mem = p.mem }, all = { .mem = p.mem };

	text_put(&all, "ptc-ir 1\nmodule \"t\" form=planned precision=f32 micro=1 workspace=1024 arena=65536\nmesh dp=2\naxis dp=2 of dp\n");
	for (int i = 0; dims && i < results; i++)
		text_put(&all, "dim d%d=2\n", i);
	text_put(&all, "prologue:\n");
	for (int i = 0, id = results; i < results; i++, id += 3) {
		text_put(&all, "%s%%%d", i ? ", " : "", i);
		text_put(&yield, "%s%%%d", i ? ", " : "", id + 2);
		if (dims)
			text_put(&ops, "%%%d = index {dim=d%d} : int[d%d]\n%%%d = cast %%%d : f32[d%d]\n%%%d = sum %%%d : f32[]\n",
				 id, i, i, id + 1, id, i, id + 2, id + 1);
		else
			text_put(&ops, "%%%d = step : f32[]\n%%%d = const {value=%d} : f32[]\n%%%d = add %%%d, %%%d : f32[]\n",
				 id, id + 1, i, id + 2, id, id + 1);
	}
	text_put(&all, " = kernel : ");
	for (int i = 0; i < results; i++)
		text_put(&all, "%sf32[] off=%d", i ? ", " : "", i * 64);
	text_put(&all, " {\n%syield %s\n}\n", ops.s, yield.s);
	for (int i = 0; i < results; i++)
		text_put(&all, "report %%%d {key=\"k%d\"}\n", i, i);
	diag_init(&p.d, p.mem, NULL, NULL);
	p.m = module_parse(p.mem, "t", all.s, all.n, &p.d);
	if (!p.m)
		fail_msg("%s", p.d.log.s);
	const char *said = verify_says(&p);

	if (!strstr(said, words))
		fail_msg("not '%s', but: %s", words, said);
	assert_null(rt_open(p.m, 1, &p.d));
	assert_non_null(strstr(p.d.log.s, words));
	arena_free(p.mem);
}

static void kernels_without_code(void **state)
{
	(void)state;
	no_code(33, true, "a kernel of more than 32 dims");
	no_code(257, false, "a kernel of more than 256 results");
}

/* -- ptc run -- */

static void run_refuses(void **state)
{
	struct plan p = plan_of("micro=2 batch=batch");
	struct op *loop = find(&p.m->top, OP_REPEAT, 0);
	struct op *a = find(loop->body, OP_EINSUM, 0), *b = find(loop->body, OP_EINSUM, 1);
	const char *build = getenv("BUILD");
	char path[] = "/tmp/ptc-unsafe-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	b->out[0]->off = a->out[0]->off = 0; /* the params lie there */
	assert_true(plan_save(p.m, path, &p.d));
	char *command = arena_printf(p.mem, "%s/ptc run %s --steps 1 2>&1 | grep -q 'error: unsafe plan: '", build ? build : "build", path);
	int status = system(command);
	unlink(path);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	arena_free(p.mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(safe_plans),	       cmocka_unit_test(overlaps),    cmocka_unit_test(arena_ends),
		cmocka_unit_test(buffers_overlap),     cmocka_unit_test(reduction_dropped),
		cmocka_unit_test(term_dropped),	       cmocka_unit_test(loop_turned), cmocka_unit_test(pieces_of_memory),
		cmocka_unit_test(bytes_one_by_one),    cmocka_unit_test(messages_are_taken),
		cmocka_unit_test(messages_out_of_order), cmocka_unit_test(stages_in_a_circle),
		cmocka_unit_test(nobody_takes),	       cmocka_unit_test(arena_of_a_stage),
		cmocka_unit_test(forwards_first),      cmocka_unit_test(listed_actions),
		cmocka_unit_test(idle_stage_lacks),    cmocka_unit_test(idle_stage_gives), cmocka_unit_test(parts_of_no_stage), cmocka_unit_test(places_of_no_pipeline), cmocka_unit_test(larger_than_memory),
		cmocka_unit_test(idle_stage_holds),    cmocka_unit_test(what_is_proved_opens),
		cmocka_unit_test(made_is_sound),       cmocka_unit_test(made_of_wrong_type),
		cmocka_unit_test(made_unsafe),	       cmocka_unit_test(made_unreadable),
		cmocka_unit_test(place_of_no_pipeline), cmocka_unit_test(cut_over_two_axes),
		cmocka_unit_test(sum_that_is_not_f32), cmocka_unit_test(attention_of_other_dims),
		cmocka_unit_test(read_of_what_was_written), cmocka_unit_test(kernels_without_code), cmocka_unit_test(run_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
