/* frontend/cmd_side.c - what runs the modules that `ptc check` compares. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_compare.h"
#include "runtime/runtime.h"

/* Test only: PTC_TEST_OFF="WHERE X NAME" puts the first element of buffer NAME off by X: of the plan on the evaluator
 * (WHERE is "evaluator") or on the runtime ("runtime"), or on every runtime, as a kernel would ("kernels"). A check that does
 * not find it there, where rounding is less, is none. */
static void put_off(const char *side, const struct module *m, const char *buffer, struct tensor *t)
{
	const char *s = getenv("PTC_TEST_OFF");
	char where[16];
	double x;
	int at = 0;

	if (!s || sscanf(s, "%15s %lf %n", where, &x, &at) < 2 || !at || !streq(s + at, buffer) || !t->count)
		return;
	if (streq(where, "kernels") ? streq(side, "runtime") : streq(where, side) && module_ranks(m) > 1)
		t->x[0] += x;
}

/* -- the reference evaluator -- */

struct evaluating {
	struct module *m;
	struct eval *e;
};

static void eval_side_set(void *self, const char *buffer, const struct tensor *t)
{
	eval_set(((struct evaluating *)self)->e, buffer, t);
}

static struct tensor *eval_side_get(void *self, struct arena *mem, const char *buffer)
{
	const struct evaluating *x = self;
	struct tensor *t = eval_get(x->e, buffer);

	(void)mem;
	put_off("evaluator", x->m, buffer, t);
	return t;
}

static bool eval_side_step(void *self, int64_t step, const struct eval_watch *watch, const char **why)
{
	return eval_step(((struct evaluating *)self)->e, step, true, watch, why);
}

static double eval_side_report(void *self, const char *key, bool *found)
{
	return eval_report(((struct evaluating *)self)->e, key, found);
}

static void eval_side_close(void *self)
{
	(void)self; /* lies on the arena */
}

struct side *side_eval(struct session *s, struct module *m, uint64_t seed)
{
	struct side *x = NEW(s->mem, struct side);
	struct evaluating *e = NEW(s->mem, struct evaluating);

	*e = (struct evaluating){ m, eval_new(s->mem, m, seed) };
	eval_init(e->e);
	*x = (struct side){ m, e, eval_side_set, eval_side_get, eval_side_step, eval_side_report, eval_side_close };
	return x;
}

/* -- the runtime -- */

struct running {
	struct module *m;
	struct runtime *rt;
	struct diag *diag;
};

static void rt_side_set(void *self, const char *buffer, const struct tensor *t)
{
	rt_set(((struct running *)self)->rt, buffer, t->x);
}

static struct tensor *rt_side_get(void *self, struct arena *mem, const char *buffer)
{
	struct running *r = self;
	const struct buffer *b = find_buffer(r->m, buffer);
	struct tensor *t = tensor_like(mem, r->m, b->nd, b->d);

	rt_get(r->rt, buffer, t->x);
	put_off("runtime", r->m, buffer, t);
	return t;
}

static bool rt_side_step(void *self, int64_t step, const struct eval_watch *watch, const char **why)
{
	struct running *r = self;

	(void)watch;
	*why = "the runtime failed";
	return rt_step(r->rt, step, true, r->diag);
}

static double rt_side_report(void *self, const char *key, bool *found)
{
	return rt_report(((struct running *)self)->rt, key, found);
}

static void rt_side_close(void *self)
{
	rt_close(((struct running *)self)->rt);
}

struct side *side_runtime(struct session *s, const struct backend *backend, struct module *m, uint64_t seed)
{
	struct side *x = NEW(s->mem, struct side);
	struct running *r = NEW(s->mem, struct running);

	*r = (struct running){ m, rt_open_on(backend, m, seed, &s->diag), &s->diag };
	if (!r->rt)
		return NULL;
	*x = (struct side){ m, r, rt_side_set, rt_side_get, rt_side_step, rt_side_report, rt_side_close };
	return x;
}
