/* frontend/cmd_side.c - what runs the modules that `ptc check` compares. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_compare.h"
#include "runtime/runtime.h"

/* -- the reference evaluator -- */

static void eval_side_set(void *self, const char *buffer, const struct tensor *t)
{
	eval_set(self, buffer, t);
}

static struct tensor *eval_side_get(void *self, struct arena *mem, const char *buffer)
{
	(void)mem;
	return eval_get(self, buffer);
}

static bool eval_side_step(void *self, int64_t step, const struct eval_watch *watch, const char **why)
{
	return eval_step(self, step, true, watch, why);
}

static double eval_side_report(void *self, const char *key, bool *found)
{
	return eval_report(self, key, found);
}

static void eval_side_close(void *self)
{
	(void)self; /* lies on the arena */
}

struct side *side_eval(struct session *s, struct module *m, uint64_t seed)
{
	struct side *x = NEW(s->mem, struct side);
	struct eval *e = eval_new(s->mem, m, seed);

	eval_init(e);
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
