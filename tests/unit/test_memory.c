/* The memory pass: what takes no memory, what may not overlap, and that repeats with carried, sliced and
 * stacked values run as the evaluator says, in place or not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "passes/passes.h"
#include "runtime/runtime.h"

struct plan {
	struct arena *mem;
	struct module *m;
	struct builder b;
	struct diag d;
	dimid x, y, l; /* l: the repeat's */
};

static void plan_new(struct plan *p, int64_t micro)
{
	static const struct span at;

	p->mem = arena_new();
	p->m = module_new(p->mem, NULL);
	p->m->name = "test";
	p->m->form = PARTITIONED;
	p->m->micro = micro;
	diag_init(&p->d, p->mem, NULL, stderr);
	if (micro > 1) {
		struct axis a = { "micro", (int)micro, -1, true };

		PUSH(p->mem, &p->m->axes, a);
	}
	p->x = module_dim(p->m, "x", 5, at);
	p->y = module_dim(p->m, "y", 5, at);
	p->l = module_dim(p->m, "l", 3, at);
	p->b = (struct builder){ .m = p->m, .block = &p->m->top, .phase = FORWARD };
}

static struct value *param(struct plan *p, const char *name, int nd, const dimid *d)
{
	struct buffer *b = module_buffer(p->m, B_PARAM, name, F32, nd, d);

	b->init = INIT_NORMAL;
	b->init_arg = 0.7;
	return b_read(&p->b, b);
}

static struct op *sink(struct plan *p, const char *name, struct value *v)
{
	module_buffer(p->m, B_STATE, name, v->dt, v->nd, v->d);
	struct builder b = p->b;

	b.phase = EPILOGUE;
	struct op *op = op_new(&b, OP_WRITE, 1, &v, 0);

	SET(op, buf, name);
	return op;
}

/* y[x,y] = sum over the shared dim; to be able to chain them a rename follows. */
static struct value *product(struct builder *b, struct plan *p, struct value *v, struct value *w)
{
	dimid keep[1] = { p->y };

	return b_rename(b, b_einsum(b, v, w, F32, 1, keep), p->y, p->x); /* v[x] w[x,y] -> [y] -> [x] */
}

static void compare(struct plan *p)
{
	const char *why = "";
	struct eval *e = eval_new(p->mem, p->m, 5);
	struct runtime *r = rt_open(p->m, 5, &p->d);

	assert_non_null(r);
	eval_init(e);
	for (int64_t step = 0; step < 2; step++) {
		if (!eval_step(e, step, true, NULL, &why))
			fail_msg("evaluator: %s", why);
		assert_true(rt_step(r, step, true, &p->d));
		for (uint32_t i = 0; i < p->m->bufs.n; i++) {
			struct tensor *t = eval_get(e, p->m->bufs.at[i]->name);
			double *x = malloc((size_t)t->count * sizeof *x);

			rt_get(r, p->m->bufs.at[i]->name, x);
			for (int64_t k = 0; k < t->count; k++)
				if (!(fabs(x[k] - t->x[k]) <= 1e-5 * (1 + fabs(t->x[k]))))
					fail_msg("step %d: %s[%lld] is %g, not %g", (int)step, p->m->bufs.at[i]->name, (long long)k, x[k], t->x[k]);
			free(x);
		}
	}
	rt_close(r);
}

/* No two values of the top block that are live together share bytes, buffers included. */
static void no_overlap(const struct plan *p)
{
	const struct value *v[200];
	int64_t from[200], to[200], n = 0, pos = 0;

	for (const struct op *op = p->m->top.first; op; op = op->next, pos++) {
		for (uint32_t i = 0; i < op->nin; i++)
			for (int64_t k = 0; k < n; k++)
				if (v[k] == op->in[i])
					to[k] = pos;
		for (uint32_t i = 0; i < op->nout; i++)
			if (op->out[i]->off >= 0) {
				v[n] = op->out[i];
				from[n] = to[n] = pos;
				assert_int_equal(v[n]->off % 64, 0);
				assert_true(v[n]->off + local_bytes(p->m, v[n]) <= p->m->arena);
				n++;
			}
	}
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < i; k++)
			if (from[i] <= to[k] && from[k] <= to[i])
				assert_true(v[i]->off >= v[k]->off + local_bytes(p->m, v[k]) ||
					    v[k]->off >= v[i]->off + local_bytes(p->m, v[i]));
}

static void a_chain_needs_two_places(void **state)
{
	(void)state;
	struct plan p;

	plan_new(&p, 1);
	dimid d1[1] = { p.x }, d2[2] = { p.x, p.y };
	struct value *v = param(&p, "v", 1, d1), *w = param(&p, "w", 2, d2);

	for (int i = 0; i < 20; i++)
		v = product(&p.b, &p, v, w);
	sink(&p, "out", v);
	assert_true(pass_memory(p.m, &p.d));
	no_overlap(&p);
	assert_int_equal(w->off, -1); /* the param itself */
	assert_int_equal(v->off, -1); /* a rename */
	/* v, w (100 bytes) and out, and two places of 64 */
	assert_int_equal(p.m->arena, 64 + 128 + 64 + 2 * 64);
	compare(&p);
	arena_free(p.mem);
}

static void long_lives_do_not_overlap(void **state)
{
	(void)state;
	uint64_t seed = 1;

	for (int round = 0; round < 30; round++) {
		struct plan p;
		struct value *all[40];
		int n = 0;

		plan_new(&p, 1);
		dimid d1[1] = { p.x }, d2[2] = { p.x, p.y };
		struct value *w = param(&p, "w", 2, d2);

		all[n++] = param(&p, "v", 1, d1);
		while (n < 40) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			all[n] = product(&p.b, &p, all[(seed >> 33) % (uint64_t)n], w);
			n++;
		}
		sink(&p, "a", all[n - 1]);
		sink(&p, "b", all[n / 2]);
		assert_true(pass_memory(p.m, &p.d));
		no_overlap(&p);
		compare(&p);
		arena_free(p.mem);
	}
}

static void states_are_read_before_they_are_written(void **state)
{
	(void)state;
	struct plan p;

	plan_new(&p, 1);
	dimid d1[1] = { p.x }, d2[2] = { p.x, p.y };
	struct value *v = param(&p, "v", 1, d1), *w = param(&p, "w", 2, d2);
	struct value *new = product(&p.b, &p, v, w);
	struct op *op = op_new(&p.b, OP_WRITE, 1, &new, 0);

	op->phase = EPILOGUE;
	SET(op, buf, "v");
	p.b.phase = EPILOGUE;
	sink(&p, "old", product(&p.b, &p, v, w)); /* still the old one */
	assert_true(pass_memory(p.m, &p.d));
	compare(&p);
	arena_free(p.mem);
}

/* -- repeats -- */

struct repeat_test {
	bool reverse, stack_carried, stack_made, use_twice, swap, stack_last, nested;
};

static struct op *repeat_new(struct plan *p, uint32_t nin, struct value **in, int ncarry, int nwith, uint32_t nout)
{
	struct op *r = op_new(&p->b, OP_REPEAT, nin, in, nout);

	r->body = block_new(p->m, r);
	SET(r, dim, p->l);
	SET(r, ncarry, ncarry);
	SET(r, nwith, nwith);
	return r;
}

static void stack_type(struct plan *p, struct op *r, uint32_t k, const struct value *row, bool last)
{
	dimid d[3];
	int n = 0;

	if (!last)
		d[n++] = p->l;
	for (int i = 0; i < row->nd; i++)
		d[n++] = row->d[i];
	if (last)
		d[n++] = p->l;
	op_type(&p->b, r, k, row->dt, n, d);
}

static void one_repeat(const struct repeat_test *t)
{
	struct plan p;

	plan_new(&p, 1);
	dimid d1[1] = { p.x }, d3[3] = { p.l, p.x, p.y }, d2[2] = { p.x, p.y };
	struct value *in[4] = { param(&p, "u", 1, d1), param(&p, "v", 1, d1), param(&p, "g", 2, d2), param(&p, "w", 3, d3) };
	struct op *r = repeat_new(&p, 4, in, 2, 1, 4);
	struct builder b = p.b;

	b.block = r->body;
	if (t->reverse)
		SET(r, reverse, 1);
	struct value *u = block_arg(&b, r->body, F32, 1, d1), *v = block_arg(&b, r->body, F32, 1, d1);
	struct value *g = block_arg(&b, r->body, F32, 2, d2), *w = block_arg(&b, r->body, F32, 2, d2);
	struct value *a = product(&b, &p, u, w), *c = product(&b, &p, v, g);
	dimid keep[1] = { p.y };
	struct value *made = b_einsum(&b, u, w, F32, 1, keep);

	if (t->use_twice)
		c = product(&b, &p, c, w);
	struct value *late = b_einsum(&b, t->use_twice ? u : c, g, F32, 1, keep);
	struct value *y[4] = { t->swap ? v : a, t->swap ? u : c, t->stack_carried ? u : late, t->stack_made ? made : late };

	if (t->swap)
		y[2] = a;
	for (int i = 0; i < 4; i++)
		PUSH(p.mem, &r->body->yields, y[i]);
	op_type(&p.b, r, 0, F32, 1, d1);
	op_type(&p.b, r, 1, F32, 1, d1);
	stack_type(&p, r, 2, y[2], t->stack_last);
	stack_type(&p, r, 3, y[3], false);
	static const char *const names[] = { "o0", "o1", "o2", "o3" };

	for (int i = 0; i < 4; i++)
		sink(&p, names[i], r->out[i]);
	assert_true(pass_memory(p.m, &p.d));
	no_overlap(&p);
	if (t->stack_made)
		assert_int_equal(made->off, -1); /* right in its row */
	assert_int_equal(w->off, -1);
	compare(&p);
	arena_free(p.mem);
}

static void repeats(void **state)
{
	(void)state;

	for (int i = 0; i < 64; i++) {
		struct repeat_test t = { i & 1, i & 2, i & 4, i & 8, i & 16, i & 32, false };

		one_repeat(&t);
	}
}

/* A weight gradient stacked over layers and summed over microbatches, and one outside a repeat. */
static void sums_over_microbatches(void **state)
{
	(void)state;
	struct plan p;

	plan_new(&p, 4);
	dimid n = module_dim(p.m, "n", 10, (struct span){ 0 }); /* the batch: 3, 3, 3 and 1 */
	dimid dn[2] = { n, p.x }, dw[3] = { p.l, p.x, p.y }, keep[2] = { p.x, p.y }, rest[2] = { n, p.y };
	struct axes over = { 1, { 0 } };

	p.m->batch = n;
	struct buffer *in = module_buffer(p.m, B_INPUT, "in", F32, 2, dn);
	struct value *x = b_read(&p.b, in), *w = param(&p, "w", 3, dw);

	x->sh.on[0] = over;
	struct value *operands[2] = { x, w };
	struct op *r = repeat_new(&p, 2, operands, 1, 0, 2);
	struct builder b = p.b;

	b.block = r->body;
	struct value *h = block_arg(&b, r->body, F32, 2, dn), *wl = block_arg(&b, r->body, F32, 2, keep);

	h->sh.on[0] = over;
	struct value *o = b_einsum(&b, h, wl, F32, 2, rest), *o2 = b_rename(&b, o, p.y, p.x);
	struct value *grad = b_einsum(&b, h, o, F32, 2, keep);

	o->sh.on[0] = o2->sh.on[0] = over;
	grad->sh.sum = 1;
	PUSH(p.mem, &r->body->yields, o2);
	PUSH(p.mem, &r->body->yields, grad);
	op_type(&p.b, r, 0, F32, 2, dn)->sh.on[0] = over;
	stack_type(&p, r, 1, grad, false);
	SET(r, acc, bits_of_word(p.mem, 1));
	struct value *last = b_rename(&p.b, r->out[0], p.x, p.y), *g2 = b_einsum(&p.b, x, last, F32, 2, keep);

	last->sh.on[0] = over;
	g2->sh.sum = 1;
	struct op *add = op_new(&p.b, OP_ACCUMULATE, 1, &g2, 1);

	op_type(&p.b, add, 0, F32, 2, keep);
	sink(&p, "stacked", r->out[1]);
	sink(&p, "alone", add->out[0]);
	assert_true(pass_memory(p.m, &p.d));
	assert_int_equal(grad->off, -1);
	assert_int_equal(g2->off, -1);
	assert_int_equal(wl->off, -1);
	no_overlap(&p);
	const char *why = "";
	struct eval *e = eval_new(p.mem, p.m, 5);
	struct runtime *rt = rt_open(p.m, 5, &p.d);
	struct tensor *t = tensor_like(p.mem, p.m, 2, dn);

	assert_non_null(rt);
	eval_init(e);
	for (int64_t i = 0; i < t->count; i++)
		t->x[i] = (float)sin((double)i);
	eval_set(e, "in", t);
	rt_set(rt, "in", t->x);
	for (int64_t step = 0; step < 2; step++) {
		if (!eval_step(e, step, true, NULL, &why))
			fail_msg("evaluator: %s", why);
		assert_true(rt_step(rt, step, true, &p.d));
		for (int k = 0; k < 2; k++) {
			const char *name = k ? "alone" : "stacked";
			double got[200];
			struct tensor *want = eval_get(e, name);

			rt_get(rt, name, got);
			for (int64_t i = 0; i < want->count; i++)
				if (!(fabs(got[i] - want->x[i]) <= 1e-4 * (1 + fabs(want->x[i]))))
					fail_msg("%s[%lld] is %g, not %g", name, (long long)i, got[i], want->x[i]);
		}
	}
	rt_close(rt);
	arena_free(p.mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chain_needs_two_places), cmocka_unit_test(long_lives_do_not_overlap),
		cmocka_unit_test(states_are_read_before_they_are_written), cmocka_unit_test(repeats),
		cmocka_unit_test(sums_over_microbatches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
