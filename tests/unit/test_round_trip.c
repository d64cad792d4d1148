/* Leaving a sharding and coming back changes nothing: of a partitioned step every value of forward and backward
 * is split and gathered again, or, where it is a pending sum, reduced and made pending again. With one microbatch
 * (with more, sums over ranks and over microbatches change places) losses, gradients and params are the same to
 * the bit. A framework that types a cotangent by the forward value alone gets the gradient of such a round trip
 * wrong: pytorch/pytorch#172932. */
#include "tests/unit/both.h"

static const char props[] = "precision=f32 micro=1 batch=batch";
static const char step_text[] =
	"mesh dp=2\n"
	"mesh tp=2\n"
	"dim batch=8\n"
	"dim f=6\n"
	"dim h=8\n"
	"dim out=4\n"
	"buffer @\"x\" input f32[batch, f]\n"
	"buffer @\"y\" input f32[batch, out]\n"
	"buffer @\"w1\" param f32[f, h] init=normal(0.5)\n"
	"buffer @\"w2\" param f32[h, out] init=normal(0.5)\n"
	"arrow batch -> dp\n"
	"arrow h -> tp\n"
	"forward:\n"
	"  %0 = read {buf=\"x\"} : f32[batch, f] \"x\"\n"
	"  %1 = read {buf=\"w1\"} : f32[f, h]\n"
	"  %2 = einsum %0, %1 : f32[batch, h] \"u\"\n"
	"  %3 = tanh %2 : f32[batch, h] \"a\"\n"
	"  %4 = read {buf=\"w2\"} : f32[h, out]\n"
	"  %5 = einsum %3, %4 : f32[batch, out] \"o\"\n"
	"  %6 = tanh %5 : f32[batch, out]\n"
	"  %7 = read {buf=\"y\"} : f32[batch, out] \"y\"\n"
	"  %8 = sub %6, %7 : f32[batch, out]\n"
	"  %9 = mul %8, %8 : f32[batch, out]\n"
	"  %10 = sum %9 : f32[] \"loss\"\n"
	"  report %10 {key=\"loss\"}\n"
	"  %11 = const {value=0.05} : f32[]\n"
	"  %12 = const {value=0} : f32[]\n"
	"  %13 = const {value=0.9} : f32[]\n"
	"  minimize %10, %11, %12, %13 {buf=\"w1\", opt=\"sgd\", group=0}\n"
	"  minimize %10, %11, %12, %13 {buf=\"w2\", opt=\"sgd\", group=0}\n";

static struct value *resharded(struct module *m, struct op *at, struct value *v, enum opcode code, struct axes axes, dimid dim,
			       const struct sharding *sh)
{
	struct builder b = { m, &m->top, at, at->phase, v->span, NULL, 0 };
	struct op *op = op_new(&b, code, 1, &v, 1);

	SET(op, axes, axes);
	if (dim != NODIM)
		SET(op, dim, dim);
	struct value *out = op_type(&b, op, 0, v->dt, v->nd, v->d);
	out->sh = *sh;
	out->placed = true;
	out->kind = v->kind;
	return out;
}

/* There and back, before `at`; NULL: no axis is free for it. */
static struct value *round_trip(struct module *m, struct op *at, struct value *v, bool *pending)
{
	uint32_t time = time_axis(m) < 0 ? 0 : 1u << time_axis(m), used = sharding_axes(&v->sh, v->nd) | v->sh.sum | v->sh.max;
	struct sharding sh = v->sh;
	struct axes l = { 0 };

	for (int a = 0; a < (int)m->axes.n; a++)
		if (v->sh.sum & ~time & 1u << a)
			axes_push(&l, a);
	*pending = l.n;
	if (l.n) {
		sh.sum &= time;
		struct value *whole = resharded(m, at, v, OP_ALL_REDUCE, l, NODIM, &sh);
		return resharded(m, at, whole, OP_TO_PARTIAL, l, NODIM, &v->sh);
	}
	for (int a = 0; a < (int)m->axes.n; a++)
		for (int i = 0; i < v->nd && !(used >> a & 1) && !m->axes.at[a].time; i++) {
			if (v->sh.on[i].n || dim_size(m, v->d[i]) % m->axes.at[a].size)
				continue;
			axes_push(&l, a);
			axes_push(&sh.on[i], a);
			struct value *part = resharded(m, at, v, OP_SHARD, l, v->d[i], &sh);
			return resharded(m, at, part, OP_ALL_GATHER, l, v->d[i], &v->sh);
		}
	return NULL;
}

static int insert_trips(struct module *m, int *sums)
{
	int n = 0;

	for (struct op *op = m->top.first, *next; op; op = next) {
		next = op->next;
		for (uint32_t i = 0; next && i < op->nout && (op->phase == FORWARD || op->phase == BACKWARD); i++) {
			struct value *v = op->out[i];
			bool pending;

			if (next->phase != op->phase)
				continue;
			struct value *same = round_trip(m, next, v, &pending);
			if (!same)
				continue;
			struct op *leaves = same->def->in[0]->def;
			replace_uses(&m->top, v, same);
			leaves->in[0] = v;
			n++;
			*sums += pending;
		}
	}
	return n;
}

static struct eval *start(struct arena *mem, const struct module *m)
{
	struct eval *e = eval_new(mem, m, 3);

	eval_init(e);
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];

		if (b->role != B_INPUT)
			continue;
		struct tensor *t = tensor_like(mem, m, b->nd, b->d);
		for (int64_t k = 0; k < t->count; k++)
			t->x[k] = sin(1.7 * (double)k + i);
		eval_set(e, b->name, t);
	}
	return e;
}

static void nothing_changes(void **state)
{
	struct both x = { .mem = arena_new() };
	struct module *m[2];
	struct eval *e[2];
	int sums = 0;

	(void)state;
	for (int k = 0; k < 2; k++) {
		m[k] = both_parse(x.mem, &x.d, props, step_text);
		both_pass(&x, m[k], "simplify,precision,differentiate,optimizer,simplify2,microbatch,place,partition");
	}
	assert_true(insert_trips(m[1], &sums) > 10);
	assert_true(sums > 1);
	assert_true(verify(m[1], &x.d));
	for (int k = 0; k < 2; k++)
		e[k] = start(x.mem, m[k]);
	for (int step = 0; step < 3; step++)
		for (int k = 0; k < 2; k++) {
			const char *why = NULL;

			if (!eval_step(e[k], step, true, NULL, &why))
				fail_msg("%s", why);
		}
	for (uint32_t i = 0; i < m[0]->bufs.n; i++) {
		struct tensor *a = eval_get(e[0], m[0]->bufs.at[i]->name), *b = eval_get(e[1], m[0]->bufs.at[i]->name);

		assert_memory_equal(a->x, b->x, (size_t)a->count * sizeof *a->x);
	}
	for (int i = 0; i < eval_reports(e[0]); i++) {
		const char *key = eval_report_key(e[0], i);
		bool found;

		assert_true(eval_report(e[0], key, &found) == eval_report(e[1], key, &found) && found);
	}
	arena_free(x.mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_changes),
	};

	return cmocka_run_group_tests_name("round_trip", tests, NULL, NULL);
}
