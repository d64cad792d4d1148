/* Collectives of small plans made by hand against the evaluator, on 2 to 8 ranks with sizes that nothing
 * divides; what comm_threads says of ranks that do not fit; plan files that have been tampered with. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "runtime/internal.h"

/* -- plans -- */

struct plan {
	struct arena *mem;
	struct module *m;
	struct builder b;
	struct diag d;
	dimid a, c;
};

static struct axes on(int n, const int *a)
{
	struct axes x = { .n = (uint8_t)n };

	for (int i = 0; i < n; i++)
		x.a[i] = (uint8_t)a[i];
	return x;
}
#define ON(...) on((int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)), (int[]){ __VA_ARGS__ })
static const struct axes whole;

static void plan_new(struct plan *p, int s0, int s1, int64_t a, int64_t c)
{
	static const struct span at;

	p->mem = arena_new();
	p->m = module_new(p->mem, NULL);
	p->m->name = "test";
	p->m->form = PARTITIONED;
	diag_init(&p->d, p->mem, NULL, stderr);
	struct user_axis u0 = { "x", s0, at }, u1 = { "y", s1, at };
	struct axis a0 = { "x", s0, 0, false }, a1 = { "y", s1, 1, false };

	PUSH(p->mem, &p->m->mesh, u0);
	PUSH(p->mem, &p->m->mesh, u1);
	PUSH(p->mem, &p->m->axes, a0);
	PUSH(p->mem, &p->m->axes, a1);
	p->a = module_dim(p->m, "a", a, at);
	p->c = module_dim(p->m, "c", c, at);
	p->b = (struct builder){ .m = p->m, .block = &p->m->top, .phase = EPILOGUE };
}

static struct value *typed(struct value *v, struct axes x, struct axes y, uint32_t sum)
{
	v->sh.on[0] = x;
	if (v->nd > 1)
		v->sh.on[1] = y;
	v->sh.sum = sum;
	return v;
}

static struct value *source(struct plan *p, const char *name, enum dtype dt, struct axes x, struct axes y)
{
	dimid d[2] = { p->a, p->c };
	struct buffer *b = module_buffer(p->m, B_PARAM, name, dt, 2, d);

	b->init = INIT_NORMAL;
	b->init_arg = 1;
	b->store.on[0] = b->compute.on[0] = x;
	b->store.on[1] = b->compute.on[1] = y;
	return typed(b_read(&p->b, b), x, y, 0);
}

static void sink(struct plan *p, const char *name, struct value *v)
{
	struct buffer *b = module_buffer(p->m, B_STATE, name, v->dt, v->nd, v->d);

	memcpy(b->store.on, v->sh.on, sizeof b->store.on);
	b->compute = b->store;
	struct op *op = op_new(&p->b, OP_WRITE, 1, &v, 0);

	SET(op, buf, name);
}

static struct value *comm(struct plan *p, enum opcode code, struct value *v, struct axes axes, dimid dim, dimid to,
			  struct axes x, struct axes y, uint32_t sum)
{
	struct op *op = op_new(&p->b, code, 1, &v, 1);

	SET(op, axes, axes);
	if (dim != NODIM)
		SET(op, dim, dim);
	if (to != NODIM)
		SET(op, to, to);
	return typed(op_type(&p->b, op, 0, v->dt, v->nd, v->d), x, y, sum);
}

static void compare(struct plan *p, bool buckets)
{
	const char *why = "";

	if (buckets)
		assert_true(pass_collectives(p->m, &p->d) && verify(p->m, &p->d));
	assert_true(pass_memory(p->m, &p->d));
	struct eval *e = eval_new(p->mem, p->m, 5);
	struct runtime *r = rt_open(p->m, 5, &p->d);

	assert_non_null(r);
	eval_init(e);
	for (int64_t step = 0; step < 2; step++) {
		if (!eval_step(e, step, true, NULL, &why))
			fail_msg("evaluator: %s", why);
		assert_true(rt_step(r, step, true, &p->d));
		for (uint32_t i = 0; i < p->m->bufs.n; i++) {
			const char *name = p->m->bufs.at[i]->name;
			struct tensor *t = eval_get(e, name);
			double *x = malloc((size_t)t->count * sizeof *x);

			rt_get(r, name, x);
			for (int64_t k = 0; k < t->count; k++) {
				double tol = p->m->bufs.at[i]->dt == BF16 ? 0.1 : 1e-5;

				if (!(fabs(x[k] - t->x[k]) <= tol * (1 + fabs(t->x[k]))))
					fail_msg("%s[%lld] is %g, not %g", name, (long long)k, x[k], t->x[k]);
			}
			free(x);
		}
	}
	rt_close(r);
	arena_free(p->mem);
}

/* Every kind of collective on a mesh of s0 x s1. */
static void every_collective(int s0, int s1, int64_t na, int64_t nc, enum dtype dt, bool buckets)
{
	struct plan p;

	plan_new(&p, s0, s1, na, nc);
	dimid a = p.a, c = p.c, keep[1] = { c };
	struct value *v = source(&p, "p", dt, ON(0, 1), whole);
	struct value *g = comm(&p, OP_ALL_GATHER, v, ON(1), a, NODIM, ON(0), whole, 0);
	struct value *w = comm(&p, OP_ALL_GATHER, g, ON(0), a, NODIM, whole, whole, 0);

	sink(&p, "gathered", w);
	sink(&p, "half", g);
	/* of the other type, split along the other dim: it joins the bucket of the first */
	struct value *u = source(&p, "u", dt == F32 ? BF16 : F32, whole, ON(1));
	sink(&p, "other", comm(&p, OP_ALL_GATHER, u, ON(1), c, NODIM, whole, whole, 0));
	sink(&p, "sharded", comm(&p, OP_SHARD, w, ON(1), c, NODIM, whole, ON(1), 0));
	sink(&p, "exchanged", comm(&p, OP_ALL_TO_ALL, v, ON(1), a, c, ON(0), ON(1), 0));
	sink(&p, "back", comm(&p, OP_ALL_TO_ALL, source(&p, "q", dt, whole, ON(0)), ON(0), c, a, ON(0), whole, 0));
	struct value *h = comm(&p, OP_SHARD, source(&p, "r", dt, ON(0), whole), ON(1), a, NODIM, ON(0, 1), whole, 0);
	struct value *s = b_einsum(&p.b, v, h, dt, 1, keep); /* over a, in parts */

	s->sh.sum = 3;
	sink(&p, "reduced", comm(&p, OP_ALL_REDUCE, s, ON(0, 1), NODIM, NODIM, whole, whole, 0));
	struct value *t = comm(&p, OP_REDUCE_SCATTER, s, ON(1), c, NODIM, ON(1), whole, 1);

	sink(&p, "scattered", comm(&p, OP_REDUCE_SCATTER, t, ON(0), c, NODIM, ON(1, 0), whole, 0));
	struct value *z = comm(&p, OP_TO_PARTIAL, w, ON(0), NODIM, NODIM, whole, whole, 1);

	sink(&p, "partial", comm(&p, OP_ALL_REDUCE, z, ON(0), NODIM, NODIM, whole, whole, 0));
	sink(&p, "again", comm(&p, OP_ALL_REDUCE, s, ON(0, 1), NODIM, NODIM, whole, whole, 0));
	compare(&p, buckets);
}

/* Groups over two axes of one dim, whose order need not be that of the mesh. */
static void groups_of_two_axes(int s0, int s1, int64_t na, int64_t nc, struct axes on, uint8_t k)
{
	struct axes x = on, y = on;
	struct plan p;

	x.n = k;
	y.n = (uint8_t)(on.n - k);
	memmove(y.a, &on.a[k], y.n);
	plan_new(&p, s0, s1, na, nc);
	dimid a = p.a, c = p.c, keep[1] = { c };
	struct value *v = source(&p, "p", F32, on, whole);

	sink(&p, "gathered", comm(&p, OP_ALL_GATHER, v, y, a, NODIM, x, whole, 0));
	sink(&p, "exchanged", comm(&p, OP_ALL_TO_ALL, v, y, a, c, x, y, 0));
	struct value *s = b_einsum(&p.b, v, v, F32, 1, keep);

	s->sh.sum = 3;
	sink(&p, "scattered", comm(&p, OP_REDUCE_SCATTER, s, on, c, NODIM, on, whole, 0));
	compare(&p, nc & 1);
}

static void collectives(void **state)
{
	(void)state;
	static const int64_t sizes[][2] = { { 8, 6 }, { 7, 5 }, { 3, 11 }, { 1, 2 }, { 17, 9 } };
	static const int meshes[][2] = { { 2, 1 }, { 1, 3 }, { 2, 2 }, { 3, 2 }, { 2, 4 } };

	for (size_t i = 0; i < LEN(sizes); i++)
		for (size_t k = 0; k < LEN(meshes); k++) {
			for (int n = 0; n < 4; n++)
				every_collective(meshes[k][0], meshes[k][1], sizes[i][0], sizes[i][1], n & 1 ? BF16 : F32, n & 2);
			for (uint8_t left = 0; left < 2; left++) {
				groups_of_two_axes(meshes[k][0], meshes[k][1], sizes[i][0], sizes[i][1], ON(0, 1), left);
				groups_of_two_axes(meshes[k][0], meshes[k][1], sizes[i][0], sizes[i][1], ON(1, 0), left);
			}
		}
}

/* Groups along each set of seven axes, most of one rank: 127 kinds of them. */
static void many_kinds_of_groups(void **state)
{
	struct plan p;

	(void)state;
	plan_new(&p, 2, 2, 8, 6);
	for (int i = 2; i < 7; i++) {
		struct axis a = { arena_printf(p.mem, "y/%d", i), 1, 1, false };

		PUSH(p.mem, &p.m->axes, a);
	}
	struct value *v = source(&p, "p", F32, whole, whole), *sum = v;

	for (uint32_t set = 1; set < 1u << 7; set++) {
		struct axes axes = whole;

		for (int i = 0; i < 7; i++)
			if (set >> i & 1)
				axes_push(&axes, i);
		struct value *z = comm(&p, OP_TO_PARTIAL, v, axes, NODIM, NODIM, whole, whole, set);

		z = comm(&p, OP_ALL_REDUCE, z, axes, NODIM, NODIM, whole, whole, 0);
		sum = typed(b_map2(&p.b, OP_ADD, sum, z), whole, whole, 0);
	}
	sink(&p, "sum", sum);
	assert_true(pass_fuse(p.m, &p.d));
	compare(&p, false);
}

static void same_bits_every_time(void **state)
{
	(void)state;
	double first[40] = { 0 }, x[40];

	for (int turn = 0; turn < 3; turn++) {
		struct plan p;

		plan_new(&p, 2, 4, 37, 40);
		dimid keep[1] = { p.c };
		struct value *v = source(&p, "p", F32, ON(0, 1), whole), *s = b_einsum(&p.b, v, v, F32, 1, keep);

		s->sh.sum = 3;
		sink(&p, "s", comm(&p, OP_ALL_REDUCE, s, ON(0, 1), NODIM, NODIM, whole, whole, 0));
		assert_true(pass_memory(p.m, &p.d));
		struct runtime *r = rt_open(p.m, 1, &p.d);

		assert_non_null(r);
		assert_true(rt_step(r, 0, true, &p.d));
		rt_get(r, "s", x);
		if (turn)
			assert_memory_equal(first, x, sizeof x);
		memcpy(first, x, sizeof x);
		rt_close(r);
		arena_free(p.mem);
	}
}

/* What calibrate goes by: the time for which an op's thread had a processor, no more than from its begin to its end. */
static void watched_ops_are_busy(void **state)
{
	struct plan p;
	int64_t n;
	double busy = 0;

	(void)state;
	plan_new(&p, 1, 1, 700, 500);
	dimid keep[1] = { p.c };
	struct value *v = source(&p, "p", F32, whole, whole);

	sink(&p, "s", b_einsum(&p.b, v, v, F32, 1, keep));
	assert_true(pass_memory(p.m, &p.d));
	struct runtime *r = rt_open(p.m, 1, &p.d);

	assert_non_null(r);
	assert_true(rt_watch(r, true, &p.d));
	assert_true(rt_step(r, 0, true, &p.d) && rt_step(r, 1, true, &p.d));
	const struct trace_event *e = rt_watched(r, &n);

	for (int64_t i = 0; i < n; i++)
		if (e[i].what == TRACE_OP && e[i].op->code == OP_EINSUM) {
			assert_true(e[i].busy <= e[i].end - e[i].start + 1e-3);
			busy += e[i].busy;
		}
	assert_true(busy > 2e-5); /* 350,000 products and sums */
	rt_close(r);
	arena_free(p.mem);
}

/* A kernel with a sum and without, large enough to be shared out: right, and the same bits for any number
 * of threads. */
static void kernels_in_parts(void **state)
{
	(void)state;
	static const char *const threads[] = { "1", "2", "3" };
	double sum[3][70], map[300 * 70];

	for (int t = 0; t < 3; t++) {
		struct plan p;

		setenv("PTC_THREADS", threads[t], 1);
		plan_new(&p, 1, 1, 300, 70);
		dimid both[2] = { p.a, p.c };
		struct value *v = source(&p, "p", F32, whole, whole);
		struct op *k = op_new(&p.b, OP_KERNEL, 1, &v, 2);
		struct builder b = p.b;

		k->body = b.block = block_new(p.m, k);
		struct value *x = block_arg(&b, b.block, F32, 2, both), *y = b_map2(&b, OP_MUL, x, x);
		struct value *s = b_reduce(&b, OP_SUM, y, 1, &p.a);

		PUSH(p.mem, &b.block->yields, y);
		PUSH(p.mem, &b.block->yields, s);
		sink(&p, "map", op_type(&p.b, k, 0, F32, 2, both));
		sink(&p, "sum", op_type(&p.b, k, 1, F32, 1, &both[1]));
		assert_true(pass_memory(p.m, &p.d));
		struct runtime *r = rt_open(p.m, 1, &p.d);
		double in[300 * 70], want[70] = { 0 };

		assert_non_null(r);
		rt_get(r, "p", in);
		assert_true(rt_step(r, 0, true, &p.d));
		rt_get(r, "map", map);
		rt_get(r, "sum", sum[t]);
		for (int i = 0; i < 300 * 70; i++) {
			assert_true(fabs(map[i] - in[i] * in[i]) <= 1e-6 * in[i] * in[i]);
			want[i % 70] += in[i] * in[i];
		}
		for (int i = 0; i < 70; i++)
			assert_true(fabs(sum[t][i] - want[i]) <= 1e-5 * want[i]);
		assert_memory_equal(sum[t], sum[0], sizeof sum[0]);
		rt_close(r);
		arena_free(p.mem);
	}
	unsetenv("PTC_THREADS");
}

/* -- ranks that do not fit -- */

struct meeting {
	struct comm *c;
	struct group *g;
	int me, rounds;
	const char *what;
	int64_t bytes;
	bool ok;
	int slow; /* instructions before it comes, 50 ms each */
};

static void *meet(void *arg)
{
	struct meeting *x = arg;
	struct call call = { .name = x->what, .bytes = x->bytes, .axes = 1, .at = { 0, 10 + (uint32_t)x->me, 1, 1 } };

	x->ok = true;
	for (int i = 0; i < x->slow; i++) {
		static const struct op op = { .code = OP_EINSUM };

		comm_pulse(x->c, x->me, &op, 0, -1, 0);
		usleep(50000);
	}
	for (int i = 0; i < x->rounds && x->ok; i++)
		x->ok = comm_meet(x->g, x->me, &call, NULL, NULL) && comm_wait(x->g, x->me);
	comm_done(x->c);
	return NULL;
}

static const char *run_meeting(struct comm *c, struct meeting *x, int n, struct span *at)
{
	pthread_t t[16];
	int64_t ranks[16];

	for (int i = 0; i < n; i++)
		ranks[i] = i;
	struct group *g = comm_group(c, n, ranks);

	comm_begin(c);
	for (int i = 0; i < n; i++) {
		x[i].c = c;
		x[i].g = g;
		x[i].me = i;
		assert_int_equal(pthread_create(&t[i], NULL, meet, &x[i]), 0);
	}
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	return comm_failed(c) ? comm_error(c, at) : NULL;
}

static void many_ranks_on_few_cores(void **state)
{
	(void)state;
	struct comm *c = comm_open(16, 60);
	struct meeting x[16];
	struct span at;

	for (int i = 0; i < 16; i++)
		x[i] = (struct meeting){ .rounds = 300, .what = "all_reduce", .bytes = 4 };
	assert_null(run_meeting(c, x, 16, &at));
	comm_close(c);
}

static void a_mismatch_is_told(void **state)
{
	(void)state;
	struct comm *c = comm_open(2, 60);
	struct meeting x[2] = { { .rounds = 3, .what = "all_reduce", .bytes = 4 }, { .rounds = 3, .what = "all_gather", .bytes = 8 } };
	struct span at;
	const char *why = run_meeting(c, x, 2, &at);

	assert_non_null(why);
	assert_non_null(strstr(why, "does not match"));
	assert_non_null(strstr(why, "all_gather of 8 bytes"));
	assert_non_null(strstr(why, "all_reduce of 4 bytes"));
	assert_true(at.line == 10 || at.line == 11);
	comm_close(c);
}

/* A rank that takes longer than the limit, but gets on: who waits for it waits. */
static void a_slow_rank_is_waited_for(void **state)
{
	(void)state;
	struct comm *c = comm_open(2, 1);
	struct meeting x[2] = { { .rounds = 1, .what = "all_reduce", .bytes = 4 }, { .rounds = 1, .what = "all_reduce", .bytes = 4, .slow = 40 } };
	struct span at;

	assert_null(run_meeting(c, x, 2, &at));
	comm_close(c);
}

static void a_missing_rank_is_told(void **state)
{
	(void)state;
	struct comm *c = comm_open(3, 60);
	struct meeting x[3] = { { .rounds = 2, .what = "all_reduce", .bytes = 4 }, { .rounds = 1, .what = "all_reduce", .bytes = 4 },
				{ .rounds = 2, .what = "all_reduce", .bytes = 4 } };
	struct span at;
	const char *why = run_meeting(c, x, 3, &at);

	assert_non_null(why);
	assert_non_null(strstr(why, "deadlock: all_reduce of 4 bytes waits for rank 1"));
	comm_close(c);
}

/* -- plan files -- */

static char *path_of(struct arena *mem)
{
	return arena_printf(mem, "/tmp/ptc-test-%ld.plan", (long)getpid());
}

static void put(const char *path, const char *s, size_t n)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(s, 1, n, f), n);
	fclose(f);
}

/* Loads it; returns what was said. */
static const char *refusal(struct arena *mem, const char *path)
{
	struct diag d;
	struct sources src = { 0 };

	diag_init(&d, mem, &src, NULL);
	struct module *m = plan_load(mem, &src, path, &d);

	assert_true((m == NULL) == (d.errors > 0));
	return m ? NULL : d.log.s;
}

static void tampered_plans(void **state)
{
	(void)state;
	struct plan p;

	plan_new(&p, 2, 1, 6, 4);
	sink(&p, "s", comm(&p, OP_ALL_GATHER, source(&p, "p", F32, ON(0), whole), ON(0), p.a, NODIM, whole, whole, 0));
	assert_true(pass_memory(p.m, &p.d));
	char *path = path_of(p.mem), s[20000];

	assert_true(plan_save(p.m, path, &p.d));
	assert_true(is_plan_file(path));
	assert_null(refusal(p.mem, path));
	FILE *f = fopen(path, "rb");
	size_t n = fread(s, 1, sizeof s, f);

	fclose(f);
	for (size_t i = 0; i < n; i++) { /* cut anywhere, any byte changed */
		char c = s[i];

		put(path, s, i);
		assert_non_null(refusal(p.mem, path));
		s[i] = (char)(c ^ 4);
		put(path, s, n);
		assert_non_null(refusal(p.mem, path));
		s[i] = c;
	}
	put(path, s, n - 10);
	assert_non_null(strstr(refusal(p.mem, path), "truncated"));
	char *newer = arena_printf(p.mem, "ptc-plan 2 0123456789abcdef 10\n");

	put(path, newer, strlen(newer));
	assert_non_null(strstr(refusal(p.mem, path), "a plan of version 2; this ptc reads version 1"));
	put(path, "hello\n", 6);
	assert_false(is_plan_file(path));
	assert_non_null(strstr(refusal(p.mem, path), "is no plan file"));
	unlink(path);
	assert_non_null(strstr(refusal(p.mem, path), "can't be read"));
	arena_free(p.mem);
}

/* Sound files whose offsets are not. */
static void hostile_offsets(void **state)
{
	(void)state;
	static const int64_t bad[] = { -64, 1, 32, 1 << 20, INT64_MAX - 63, INT64_MIN };

	for (size_t i = 0; i < 2 * LEN(bad); i++) {
		struct plan p;

		plan_new(&p, 2, 1, 6, 4);
		sink(&p, "s", comm(&p, OP_ALL_GATHER, source(&p, "p", F32, ON(0), whole), ON(0), p.a, NODIM, whole, whole, 0));
		assert_true(pass_memory(p.m, &p.d));
		struct value *v = p.m->top.first->next->out[0];

		if (i % 2)
			v->off = bad[i / 2];
		else
			p.m->bufs.at[0]->off = bad[i / 2];
		char *path = path_of(p.mem);

		assert_true(plan_save(p.m, path, &p.d));
		assert_non_null(refusal(p.mem, path));
		unlink(path);
		arena_free(p.mem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(collectives), cmocka_unit_test(many_kinds_of_groups), cmocka_unit_test(same_bits_every_time), cmocka_unit_test(watched_ops_are_busy), cmocka_unit_test(kernels_in_parts), cmocka_unit_test(many_ranks_on_few_cores),
		cmocka_unit_test(a_mismatch_is_told), cmocka_unit_test(a_missing_rank_is_told), cmocka_unit_test(a_slow_rank_is_waited_for), cmocka_unit_test(tampered_plans),
		cmocka_unit_test(hostile_offsets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
