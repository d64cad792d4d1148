/* Memory and messages of pipelines: packing, channels, what lies where and how long; ranks that stall, leave
 * or run another plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "frontend/frontend.h"
#include "ir/laying.h"
#include "passes/passes.h"
#include "runtime/internal.h"
#include "tests/unit/allocations.h"

/* -- packing -- */

static uint64_t seed = 1;

static int64_t draw(int64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)(seed >> 33) % n;
}

static void pieces_do_not_overlap(void **state)
{
	enum { N = 60, T = 40 };

	(void)state;
	for (int round = 0; round < 50; round++) {
		struct arena *mem = arena_new();
		struct packed x[N], *at[N];

		for (int i = 0; i < N; i++) {
			int64_t start = draw(T);

			x[i] = (struct packed){ .bytes = 64 * draw(20), .start = start, .end = start + draw(T - start) };
			at[i] = &x[i];
		}
		int64_t least = most_live(mem, at, N, T), loose = pack(mem, at, N, T), height = pack_tight(mem, at, N, T);

		assert_true(least <= height && height <= loose && (double)height <= 1.15 * (double)least);
		for (int i = 0; i < N; i++)
			for (int k = 0; k < i; k++)
				if (x[i].start <= x[k].end && x[k].start <= x[i].end && x[i].bytes && x[k].bytes)
					assert_true(x[i].off + x[i].bytes <= x[k].off || x[k].off + x[k].bytes <= x[i].off);
		arena_free(mem);
	}
}

/* -- channels -- */

struct talk {
	struct comm *c;
	struct channel *ch;
	int64_t wrong_mb; /* -1: none */
	int n;
	bool good;
};

static void *talk_from(void *arg)
{
	struct talk *t = arg;

	for (int i = 0; i < t->n; i++) {
		struct letter l = { FORWARD, 0, i, 8 };
		char *to = channel_room(t->ch, &l);
		int64_t x = 1000 + i;

		if (!to)
			break;
		memcpy(to, &x, 8);
		channel_send(t->ch);
	}
	channel_flush(t->ch);
	comm_done(t->c);
	return NULL;
}

static void *talk_to(void *arg)
{
	struct talk *t = arg;

	t->good = true;
	channel_await(t->ch, true);
	for (int i = 0; i < t->n && t->good; i++) {
		struct letter l = { FORWARD, 0, i == t->wrong_mb ? 99 : i, 8 };
		const char *from = channel_take(t->ch, &l);
		int64_t x = 0;

		if (from)
			memcpy(&x, from, 8);
		t->good = x == 1000 + i;
		if (from)
			channel_done(t->ch);
	}
	channel_await(t->ch, false);
	comm_done(t->c);
	return NULL;
}

static const char *talk(struct talk *t, int n, int64_t wrong_mb, bool listens)
{
	static char out[8], in[16], why[256];
	pthread_t a, b;
	struct span at;

	*t = (struct talk){ .c = comm_open(2, 60), .wrong_mb = wrong_mb, .n = n };
	t->ch = channel_open(t->c, &(struct channel_ends){ 0, 1, 2, 8, out, in });
	comm_begin(t->c);
	pthread_create(&a, NULL, talk_from, t);
	if (listens)
		pthread_create(&b, NULL, talk_to, t);
	else
		comm_done(t->c);
	pthread_join(a, NULL);
	if (listens)
		pthread_join(b, NULL);
	snprintf(why, sizeof why, "%s", comm_failed(t->c) ? comm_error(t->c, &at) : "");
	channel_close(t->ch);
	comm_close(t->c);
	return why;
}

static void messages_come_in_order(void **state)
{
	struct talk t;

	(void)state;
	assert_string_equal(talk(&t, 2000, -1, true), "");
	assert_true(t.good);
}

static void a_wrong_message_is_found(void **state)
{
	struct talk t;

	(void)state;
	assert_string_equal(talk(&t, 5, 3, true),
			    "rank 1: a message does not match: forward of chunk 0, microbatch 99, 8 bytes is awaited from "
			    "rank 0, which sent forward of chunk 0, microbatch 3, 8 bytes");
}

static void a_message_that_nobody_takes_is_found(void **state)
{
	struct talk t;

	(void)state;
	assert_string_equal(talk(&t, 5, -1, false),
			    "rank 0: deadlock: forward of chunk 0, microbatch 1: the send of 8 bytes waits for rank 1");
}

/* -- a model on stages -- */

static const char model[] =
	"dim batch = 16, feat = 32, ff = 64, class = 16, first = 3, second = 5\n"
	"input x[batch, feat]: float\n"
	"input y[batch]: token(class)\n"
	"param wi[feat, ff] ~ normal(0.2)\n"
	"param wo[feat, class] ~ normal(0.2)\n"
	"h[batch, feat] = tanh(x)\n"
	"repeat first {\n"
	"	param w1[feat, ff], v1[ff, feat] ~ normal(0.2)\n"
	"	h = h + tanh(h @ w1) @ v1\n"
	"}\n"
	"k[batch, ff] = h @ wi\n"
	"repeat second {\n"
	"	param w2[feat, ff], v2[ff, feat] ~ normal(0.2)\n"
	"	h = h + tanh(h @ w2 + k) @ v2\n"
	"}\n"
	"loss = cross_entropy(h @ wo, y, class)\n"
	"minimize loss with adamw(lr = 0.01, clip = 1.0)\n";

struct job {
	struct arena *mem;
	struct sources src;
	struct diag d;
	struct module *m;
	struct runtime *rt;
};

static void compile(struct job *j, const char *pipeline, const char *mesh, const char *sets)
{
	struct front_options front = { .mesh = mesh, .sets = &sets, .nsets = 1 };
	struct pass_options opt = { 0 };

	*j = (struct job){ .mem = arena_new() };
	diag_init(&j->d, j->mem, &j->src, NULL);
	const char *text = arena_printf(j->mem, "%splan {\n	mesh pp = 2, dp = 1\n	batch -> dp\n	first, second -> pp\n"
					"	pipeline %s\n}\n", model, pipeline);

	j->m = front_compile_text(j->mem, &j->src, &j->d, "examples/stages.pdsl", text, strlen(text), &front);
	if (!j->m || !run_passes(j->m, &j->d, &opt))
		fail_msg("%s", j->d.log.s);
}

static void start(struct job *j, const char *pipeline, const char *mesh, const char *sets)
{
	double x[16 * 32], y[16];

	compile(j, pipeline, mesh, sets);
	j->rt = rt_open(j->m, 7, &j->d);
	if (!j->rt)
		fail_msg("%s", j->d.log.s);
	for (int i = 0; i < 16 * 32; i++)
		x[i] = (double)(i * 37 % 101) / 101 - 0.5;
	for (int i = 0; i < 16; i++)
		y[i] = i * 5 % 16;
	rt_set(j->rt, "x", x);
	rt_set(j->rt, "y", y);
}

static void stop(struct job *j)
{
	rt_close(j->rt);
	arena_free(j->mem);
}

static double step(struct job *j, int64_t n)
{
	bool found;

	if (!rt_step(j->rt, n, true, &j->d))
		fail_msg("%s", j->d.log.s);
	double loss = rt_report(j->rt, "loss", &found);

	assert_true(found);
	return loss;
}

static const struct {
	const char *pipeline, *mesh, *sets;
} cases[] = {
	{ "1f1b", "pp=2,dp=1", "microbatches=4" },       { "gpipe", "pp=3,dp=1", "microbatches=2" },
	{ "interleaved, chunks = 2", "pp=2,dp=2", "microbatches=4" }, { "zb_v", "pp=2,dp=1", "microbatches=4" },
	{ "zb_v", "pp=4,dp=1", "microbatches=8" },       { "1f1b", "pp=4,dp=1", "microbatches=1" },
};

/* -- layouts -- */

/* A cut of the chain anywhere, with chunks that are empty. */
static void cut_anywhere(struct module *m)
{
	int64_t *end = m->pipe.end.at;
	uint32_t n = m->pipe.end.n - 1;

	for (uint32_t g = 0; g < n; g++)
		end[g] = draw(end[n] + 1);
	for (uint32_t g = 1; g < n; g++)
		for (uint32_t k = g; k > 0 && end[k] < end[k - 1]; k--) {
			int64_t x = end[k];

			end[k] = end[k - 1];
			end[k - 1] = x;
		}
}

/* A stage's pieces, packed by themselves, lie as the layout says. */
static void check_packing(struct arena *mem, const struct stage_layout *x)
{
	struct packed **at = NEWN(mem, struct packed *, x->pieces.n + 1);
	int64_t *off = NEWN(mem, int64_t, x->pieces.n + 1);

	for (uint32_t i = 0; i < x->pieces.n; i++) {
		at[i] = &x->pieces.at[i]->p;
		off[i] = at[i]->off;
	}
	assert_int_equal(pack_tight(mem, at, x->pieces.n, x->ticks), x->arena);
	assert_int_equal(most_live(mem, at, x->pieces.n, x->ticks), x->live);
	for (uint32_t i = 0; i < x->pieces.n; i++)
		assert_int_equal(at[i]->off, off[i]);
}

/* What is known of one cut holds for another, of one stage for another. */
static void known_packings_are_right(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(cases); i++) {
		struct job j;

		compile(&j, cases[i].pipeline, cases[i].mesh, cases[i].sets);
		struct regions *r = regions_of(j.mem, j.m);
		int64_t *bytes = NEWN(j.mem, int64_t, pipe_stages(j.m));

		regions_measure(r, j.m);
		struct arenas *a = arenas_open(j.mem, j.m, r);

		for (int round = 0; round < 40; round++) {
			struct arena *mem = arena_new();

			arenas_find(a, bytes);
			struct layouts *l = layouts_of(mem, j.m, r);

			for (int d = 0; d < l->stages; d++) {
				check_packing(mem, &l->stage[d]);
				assert_int_equal(bytes[d], l->stage[d].arena);
			}
			arena_free(mem);
			cut_anywhere(j.m);
		}
		arena_free(j.mem);
	}
}

static bool packed_alike(const char *pipeline, int stage, int other)
{
	struct job j;

	compile(&j, pipeline, "pp=8,dp=1", "microbatches=8");
	struct regions *r = regions_of(j.mem, j.m);
	struct known known = { .mem = j.mem };

	regions_measure(r, j.m);
	struct laying l = lay(j.mem, j.m, r, lines_of(j.mem, j.m), &known);
	bool same = packing_of(&l, stage) == packing_of(&l, other);

	arena_free(j.mem);
	return same;
}

/* Where stages do the same they are packed once, so that many of them take no longer; where they differ they are not. */
static void stages_alike_are_packed_once(void **state)
{
	(void)state;
	assert_true(packed_alike("gpipe, stages = [1, 1, 1, 1, 1, 1, 1, 1]", 4, 5));
	assert_false(packed_alike("gpipe, stages = [1, 1, 1, 1, 1, 1, 1, 1]", 0, 5)); /* other places */
	assert_false(packed_alike("1f1b, stages = [1, 1, 1, 1, 1, 1, 1, 1]", 4, 5)); /* another order of actions */
}

/* -- memory -- */

/* What the place leaves for nobody is spoilt: NaN to whoever reads it. */
static bool spoil_dead(struct rank *r, const struct pipe_step *s, int place)
{
	const struct regions *all = r->rt->regions;

	for (uint32_t i = 0; i < all->at.n; i++) {
		const struct region *x = &all->at.at[i];
		const struct slot *at = &s->slot[i];
		bool work = x->kind == RG_WORK && x->phase == s->phase, stash = x->kind == RG_STASH && s->phase == BACKWARD && (s->act.kind != ACT_I || !x->until_w);

		if (at->base >= 0 && x->place == place && (work || stash))
			memset(r->arena + at->base, 0xff, (size_t)(x->bytes * at->rows));
	}
	return true;
}

static void nothing_is_read_when_it_is_dead(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(cases); i++) {
		struct job a, b;

		start(&a, cases[i].pipeline, cases[i].mesh, cases[i].sets);
		start(&b, cases[i].pipeline, cases[i].mesh, cases[i].sets);
		b.rt->after_place = spoil_dead;
		for (int n = 0; n < 3; n++)
			assert_true(step(&a, n) == step(&b, n));
		stop(&a);
		stop(&b);
	}
}

enum { MARK = 0xa5 };

/* Where the arena holds neither buffers nor a mark it has been written. */
static void mark_arena(struct rank *r)
{
	const struct stage_layout *l = &r->rt->layouts->stage[r->stage];
	char *copy = malloc((size_t)l->arena);

	assert_non_null(copy);
	memcpy(copy, r->arena, (size_t)l->arena);
	memset(r->arena, MARK, (size_t)l->arena);
	for (uint32_t i = 0; i < r->rt->regions->at.n; i++) {
		const struct region *x = &r->rt->regions->at.at[i];

		if (x->kind == RG_STEP && l->once[i].base >= 0)
			memcpy(r->arena + l->once[i].base, copy + l->once[i].base, (size_t)(x->bytes * l->once[i].rows));
	}
	free(copy);
}

static void all_of_the_arena_is_used(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(cases); i++) {
		struct job j;

		start(&j, cases[i].pipeline, cases[i].mesh, cases[i].sets);
		for (int64_t k = 0; k < j.rt->nrank; k++)
			mark_arena(&j.rt->rank[k]);
		step(&j, 0);
		for (int64_t k = 0; k < j.rt->nrank; k++) {
			const struct rank *r = &j.rt->rank[k];
			const struct stage_layout *l = &j.rt->layouts->stage[r->stage];
			int64_t high = l->arena;

			while (high && (unsigned char)r->arena[high - 1] == MARK)
				high--;
			assert_true(l->arena - high < 64); /* the last piece is rounded up */
			assert_true((double)l->arena <= 1.15 * (double)l->live);
			assert_int_equal(rt_peak_bytes(j.rt, k), l->arena + j.m->workspace);
		}
		stop(&j);
	}
}

static void a_step_allocates_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(cases); i++) {
		struct job j;

		start(&j, cases[i].pipeline, cases[i].mesh, cases[i].sets);
		step(&j, 0);
		int64_t grew = 1; /* a thread of the library's may get its scratch late */

		for (int n = 1; n < 8 && grew; n++) {
			int64_t pages = pages_of_data();

			count_allocations(true);
			step(&j, n);
			assert_int_equal(count_allocations(false), 0);
			grew = pages_of_data() - pages;
		}
		assert_int_equal(grew, 0);
		stop(&j);
	}
}

static void peaks_do_not_grow(void **state)
{
	static const char *const orders[] = { "1f1b", "zb_h1" };

	(void)state;
	for (size_t i = 0; i < LEN(orders); i++) {
		struct job a, b;

		compile(&a, orders[i], "pp=4,dp=1", "batch=64,microbatches=8");
		compile(&b, orders[i], "pp=4,dp=1", "batch=512,microbatches=64");
		for (int s = 0; s < 4; s++)
			assert_true(b.m->pipe.arena.at[s] <= a.m->pipe.arena.at[s] * 101 / 100); /* packed in other orders */
		arena_free(a.mem);
		arena_free(b.mem);
	}
}

/* -- ranks that do not do what they should -- */

static bool stall(struct rank *r, const struct pipe_step *s, int place)
{
	(void)place;
	if (r->no == 1 && r->rt->step == 1 && s->act.mb == 1)
		for (int i = 0; i < 200 && !comm_failed(r->rt->comm); i++)
			usleep(100000);
	return true;
}

static bool leave(struct rank *r, const struct pipe_step *s, int place)
{
	(void)place;
	return !(r->no == 1 && r->rt->step == 1 && s->act.mb == 1);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void expect_failure(struct job *j, const char *const *words, int n)
{
	double begin = seconds();

	assert_false(rt_step(j->rt, 1, true, &j->d));
	assert_true(seconds() - begin < 10);
	for (int i = 0; i < n; i++)
		if (!strstr(j->d.log.s, words[i]))
			fail_msg("'%s' is not in: %s", words[i], j->d.log.s);
}

static void a_stalled_rank_is_named(void **state)
{
	static const char *const words[] = { "stages.pdsl:", "step 1, rank 1: stalled: ", "of chunk 1, microbatch 1", "rank 0 waits" };
	struct job j;

	(void)state;
	start(&j, "1f1b", "pp=2,dp=1", "microbatches=4");
	step(&j, 0);
	j.rt->after_place = stall;
	expect_failure(&j, words, LEN(words));
	stop(&j);
}

static void a_rank_that_left_is_named(void **state)
{
	static const char *const words[] = { "step 1, rank 0: deadlock: ", "microbatch ", "waits for rank 1" };
	struct job j;

	(void)state;
	start(&j, "1f1b", "pp=2,dp=1", "microbatches=4");
	step(&j, 0);
	j.rt->after_place = leave;
	expect_failure(&j, words, LEN(words));
	stop(&j);
}

static void another_order_is_found(void **state)
{
	static const char *const words[] = { "step 1, rank 1: a message does not match: forward of chunk 0, microbatch 1", "rank 0, which sent" };
	struct job j;

	(void)state;
	start(&j, "gpipe", "pp=2,dp=1", "microbatches=4");
	step(&j, 0);
	struct pipe_step *s = (struct pipe_step *)(uintptr_t)j.rt->rank[1].steps, t = s[0];

	s[0] = s[1];
	s[1] = t;
	expect_failure(&j, words, LEN(words));
	stop(&j);
}

/* -- plans that are not sound -- */

static void refused(struct job *j, const char *word)
{
	char path[] = "/tmp/ptc-stages.XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	assert_true(plan_save(j->m, path, &j->d));
	struct module *m = plan_load(j->mem, NULL, path, &j->d);
	struct runtime *rt = m ? rt_open(m, 7, &j->d) : NULL;

	unlink(path);
	assert_null(rt);
	if (!strstr(j->d.log.s, word))
		fail_msg("'%s' is not in: %s", word, j->d.log.s);
	arena_free(j->mem);
}

static struct op *first_of(const struct job *j, enum phase phase)
{
	struct op *op = j->m->top.first;

	while (op->phase != phase)
		op = op->next;
	return op;
}

static void plans_that_are_not_sound_are_refused(void **state)
{
	struct job j;

	(void)state;
	compile(&j, "1f1b", "pp=2,dp=1", "microbatches=4");
	j.m->pipe.arena.at[1] += 64;
	refused(&j, "does not fit what lies in it");
	compile(&j, "1f1b", "pp=2,dp=1", "microbatches=4");
	first_of(&j, FORWARD)->at.where = 1 << 20;
	refused(&j, "is at a place that the pipeline has not got");
	compile(&j, "1f1b", "pp=2,dp=1", "microbatches=4");
	first_of(&j, BACKWARD)->at.where = 3;
	refused(&j, "has not got one place along the pipeline");
	compile(&j, "1f1b", "pp=2,dp=1", "microbatches=4");
	j.m->pipe.end.n = 0;
	refused(&j, "invalid IR");
	compile(&j, "1f1b", "pp=2,dp=1", "microbatches=4");
	for (struct op *op = first_of(&j, FORWARD); op->phase == FORWARD; op = op->next)
		if (op->nin && op->at.where == 16) /* behind the last repeat: what it reads is not on stage 0 */
			op->at.where = 1;
	refused(&j, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_do_not_overlap),
		cmocka_unit_test(messages_come_in_order),
		cmocka_unit_test(a_wrong_message_is_found),
		cmocka_unit_test(a_message_that_nobody_takes_is_found),
		cmocka_unit_test(known_packings_are_right),
		cmocka_unit_test(stages_alike_are_packed_once),
		cmocka_unit_test(nothing_is_read_when_it_is_dead),
		cmocka_unit_test(all_of_the_arena_is_used),
		cmocka_unit_test(a_step_allocates_nothing),
		cmocka_unit_test(peaks_do_not_grow),
		cmocka_unit_test(a_stalled_rank_is_named),
		cmocka_unit_test(a_rank_that_left_is_named),
		cmocka_unit_test(another_order_is_found),
		cmocka_unit_test(plans_that_are_not_sound_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
