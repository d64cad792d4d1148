/* Random meshes and shardings, and a chain of reshards that is run: for the tests of chains. After cmocka.h. */
#ifndef PTC_TEST_CHAINS_H
#define PTC_TEST_CHAINS_H
#include "ir/eval.h"
#include "ir/rng.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "passes/reshard.h"

static uint64_t seed;

static inline int rnd(int n)
{
	seed += 0x9E3779B97F4A7C15ull;
	return (int)((mix64(seed) >> 33) % (uint64_t)n);
}

/* -- meshes and random shardings -- */

static inline struct module *mesh_of(struct arena *mem, int n, const int *size, int nd, const int64_t *dims, dimid *d)
{
	static const char *const axis[] = { "w", "x", "y", "z" }, *const dim[] = { "a", "b", "c" };
	struct module *m = module_new(mem, NULL);

	m->name = "mesh";
	m->form = PARTITIONED;
	for (int i = 0; i < n; i++) {
		struct user_axis u = { axis[i], size[i], { 0 } };
		struct axis a = { axis[i], size[i], i, false };

		PUSH(mem, &m->mesh, u);
		PUSH(mem, &m->axes, a);
	}
	for (int i = 0; i < nd; i++)
		d[i] = module_dim(m, dim[i], dims[i], (struct span){ 0 });
	return m;
}

static inline struct sharding random_sharding(const struct module *m, int nd, bool pending)
{
	struct sharding sh;
	int order[4] = { 0, 1, 2, 3 }, n = (int)m->axes.n;

	memset(&sh, 0, sizeof sh);
	for (int i = n - 1; i > 0; i--) {
		int k = rnd(i + 1), t = order[i];

		order[i] = order[k];
		order[k] = t;
	}
	for (int i = 0; i < n; i++) {
		int where = rnd(nd + (pending ? 2 : 1));

		if (where < nd)
			axes_push(&sh.on[where], order[i]);
		else if (where == nd + 1)
			sh.sum |= 1u << order[i];
	}
	return sh;
}

/* -- a chain, run -- */

struct seen {
	const double *want;
	int64_t count;
	int n;
	bool wrong;
};

static void see(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error)
{
	struct seen *s = me;

	(void)v;
	(void)iter;
	s->n++;
	s->wrong |= error != NULL;
	for (int64_t i = 0; i < s->count; i++)
		s->wrong |= !(fabs(whole->x[i] - s->want[i]) <= 1e-12 * fabs(s->want[i]));
}

static struct value *emit(struct builder *b, struct value *v, const struct reshard *r)
{
	struct op *op = op_new(b, r->code, 1, &v, 1);
	struct value *out = op_type(b, op, 0, v->dt, v->nd, v->d);

	SET(op, axes, r->axes);
	if (r->dim != NODIM)
		SET(op, dim, r->dim);
	if (r->to != NODIM)
		SET(op, to, r->to);
	out->sh = r->sh;
	return out;
}

/* src, made of a buffer by to_partial, then the chain: verified, and each value in it is the buffer. */
static inline bool run_chain(struct arena *mem, struct module *m, int nd, const dimid *d, const struct sharding *src,
		      const struct chain *c)
{
	struct buffer *buf = module_buffer(m, B_PARAM, "p", F32, nd, d);
	struct builder b = { .m = m, .block = &m->top, .phase = FORWARD };
	struct diag diag;
	const char *why = NULL;

	diag_init(&diag, mem, NULL, stdout);
	buf->init = INIT_NORMAL;
	buf->init_arg = 1;
	buf->store = *src;
	buf->store.sum = 0;
	buf->compute = buf->store;
	struct value *v = b_read(&b, buf);
	v->sh = buf->store;
	for (uint32_t a = 0; a < m->axes.n; a++)
		if (src->sum >> a & 1) {
			struct reshard r = { OP_TO_PARTIAL, { .n = 1, .a = { (uint8_t)a } }, NODIM, NODIM, false, v->sh };

			r.sh.sum |= 1u << a;
			v = emit(&b, v, &r);
		}
	for (int i = 0; i < c->n; i++)
		v = emit(&b, v, &c->step[i]);
	struct eval *e = eval_new(mem, m, 3);
	eval_init(e);
	const struct tensor *x = eval_get(e, "p");
	struct seen s = { x->x, x->count, 0, false };
	struct eval_watch w = { see, &s, false };
	if (!verify(m, &diag) || !eval_step(e, 0, true, &w, &why) || s.wrong) {
		printf("%s\n%s\n", why ? why : "", module_print(m, mem, NULL));
		return false;
	}
	return s.n == c->n + 1 + __builtin_popcount(src->sum);
}

#endif
