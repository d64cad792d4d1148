/* frontend/recompute.c - the setting `recompute`: what backward makes again. */
#include "frontend/lower.h"

static bool positive(struct ctx *c, const struct node *option, int64_t *x)
{
	const struct node *v = option->a;

	if (!v || v->kind == N_STRING || v->kind == N_LIST || v->kind == N_WORD) {
		fail(c, option->at, "write %s = n", option->name);
		return false;
	}
	if (!eval_size(c, v, x))
		return false;
	if (*x < 1)
		fail(c, v->at, "%s is at least 1", option->name);
	return *x >= 1;
}

static void read_memory(struct ctx *c, const struct node *option)
{
	struct recompute *r = &c->m->recompute;
	int64_t x;

	if (r->how != RECOMPUTE_AUTO) {
		fail(c, option->at, "'memory' is an option of auto");
		hint(c, "write recompute auto, memory = …");
	} else if (positive(c, option, &x)) {
		r->memory = x;
	}
}

static void read_first(struct ctx *c, const struct node *option)
{
	struct recompute *r = &c->m->recompute;
	int64_t x;

	if (r->how == RECOMPUTE_NONE || r->how == RECOMPUTE_AUTO) {
		fail(c, option->at, r->how == RECOMPUTE_NONE ? "with recompute none nothing is made again" :
			"with recompute auto it is chosen how many iterations make again what they need");
		hint(c, "write recompute full, first = n");
	} else if (positive(c, option, &x)) {
		r->first = x;
	}
}

static void read_keep(struct ctx *c, const struct node *option)
{
	struct recompute *r = &c->m->recompute;

	if (r->how == RECOMPUTE_NONE) {
		fail(c, option->at, "with recompute none all is kept");
		hint(c, "write recompute full, keep = […]");
		return;
	}
	if (!option->a || option->a->kind != N_LIST || !option->a->list) {
		fail(c, option->at, "write keep = [\"x\", \"mha.*\"], the names of values");
		return;
	}
	for (const struct node *e = option->a->list; e; e = e->next) {
		struct keep_name k = { e->name, e->kind == N_STRING, e->at };

		if (e->kind == N_STRING || e->kind == N_NAME)
			PUSH(c->mem, &r->keep, k);
		else
			fail(c, e->at, "'keep' lists names and patterns in quotes");
	}
}

void read_recompute(struct ctx *c, const struct node *line)
{
	const struct node *word = setting_value(line), *option;
	struct recompute *r = &c->m->recompute;

	*r = (struct recompute){ .at = line->at };
	while (r->how + 1 < NRECOMPUTE && !streq(recompute_name[r->how], word->name))
		r->how++;
	if ((option = plan_option(line, "memory")))
		read_memory(c, option);
	if ((option = plan_option(line, "first")))
		read_first(c, option);
	if ((option = plan_option(line, "keep")))
		read_keep(c, option);
}

static bool any_named(const struct block *block, const struct node *what)
{
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			if (op->code != OP_READ && op->out[i]->name && selects(what, op->out[i]->name))
				return true;
		if (op->body && any_named(op->body, what))
			return true;
	}
	return false;
}

/* The iterations that `first` counts: of the pipeline's repeats, or of the longest at the top. */
static int64_t counted(const struct module *m)
{
	int64_t most = 0, piped = 0;

	for (const struct op *op = m->top.first; op; op = op->next) {
		int64_t n = op->code == OP_REPEAT ? dim_size(m, op->at.dim) : 0;

		most = n > most ? n : most;
		piped += n && pipe_takes(m, op->at.dim) ? n : 0;
	}
	return piped ? piped : most;
}

void check_first(struct ctx *c)
{
	const struct recompute *r = &c->m->recompute;
	int64_t n = counted(c->m);

	if (!r->first || r->first < n)
		return;
	caution(c, r->at, "first is %lld, and there are %lld iterations: all of them make again what they need", (long long)r->first,
		(long long)n);
	if (n > 1)
		hint(c, "leave 'first' out, or give a number from 1 to %lld", (long long)n - 1);
	else
		hint(c, "leave 'first' out");
}

void check_keep(struct ctx *c)
{
	const struct recompute *r = &c->m->recompute;

	for (uint32_t i = 0; i < r->keep.n; i++) {
		const struct keep_name *k = &r->keep.at[i];
		struct node what = { .kind = k->glob ? N_STRING : N_NAME, .name = k->sel };

		if (any_named(&c->m->top, &what))
			continue;
		caution(c, k->at, k->glob ? "no value is called like \"%s\"" : "no value is called '%s'", k->sel);
		hint(c, "'keep' takes names of values, as arrows do: x, mha.q, \"mha.*\"");
	}
}
