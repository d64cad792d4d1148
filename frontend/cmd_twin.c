/* frontend/cmd_twin.c - the modules that `ptc check` compares: the plan, and its twin on one rank. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_compare.h"
#include "ir/schedule.h"

static const char *without_microbatches(struct arena *mem, const char *set)
{
	struct text t = { .mem = mem };

	while (set && *set) {
		size_t n = strcspn(set, ",");

		if (strncmp(set, "microbatches=", 13) != 0)
			text_put(&t, "%s%.*s", t.n ? "," : "", (int)n, set);
		set += n + (set[n] == ',');
	}
	text_put(&t, "%smicrobatches=1", t.n ? "," : "");
	return t.s;
}

/* Cuts m where `like` is cut, if its chunks are as many; in the same order of actions, if both ask for one and the same:
 * what all iterations add to, such as the gradient of a param that they share, is summed in that order. */
static void cut_like(struct module *m, const struct module *like)
{
	if (m->pipe.user < 0 || pipe_chunks(m) != (int)like->pipe.end.n)
		return;
	m->pipe.end.n = 0;
	for (uint32_t i = 0; i < like->pipe.end.n; i++)
		PUSH(m->mem, &m->pipe.end, like->pipe.end.at[i]);
	m->pipe.fixed = true;
	if (m->pipe.order != like->pipe.order || m->micro != like->micro || m->pipe.list)
		return;
	struct schedule s = pipe_schedule(like);

	m->pipe.list = schedule_expand(m->mem, &s);
	m->pipe.place = like->pipe.place;
	m->pipe.inflight = like->pipe.inflight;
	m->pipe.buffers = like->pipe.buffers;
}

/* The model of the command line, but for its --set. */
static struct module *load(struct session *s, const struct layout *how, const char *set)
{
	struct module *m = load_model(s, how);

	if (!m)
		return NULL;
	m->probes = true;
	if (set != s->opt->set)
		halve_chunks(m); /* its dims were made smaller */
	return m;
}

/* NULL after errors, m NULL too. */
static struct module *compile(struct session *s, struct module *m, const char *stop_after)
{
	struct pass_options po;

	if (!m || !pass_options(s, &po))
		return NULL;
	po.stop_after = stop_after;
	return run_passes(m, &s->diag, &po) ? m : NULL;
}

struct module *check_twin(struct session *s, const struct module *plan, const char *set, const char *stop_after)
{
	struct layout how = { .plan = s->opt->plan, .mesh = s->opt->mesh, .set = set, .add = s->opt->add };
	struct diag loud = s->diag;

	if (plan->mesh.n)
		how.mesh = arena_printf(s->mem, "%s=1", plan->mesh.at[0].name);
	if (plan->micro > 1)
		how.set = without_microbatches(s->mem, how.set);
	diag_init(&s->diag, s->mem, &s->src, NULL); /* its warnings were given for the plan */
	struct module *m = load(s, &how, set);

	if (m) { /* it need not fit */
		m->recompute = (struct recompute){ .how = RECOMPUTE_NONE };
		m->chunks.n = 0;
	}
	m = compile(s, m, stop_after);
	if (!m)
		fputs(s->diag.log.s ? s->diag.log.s : "", stderr);
	s->diag = loud;
	return m;
}

/* Test only: PTC_TEST_DROP=N makes the N-th reduction of the plan (from 0) leave its operand as
 * it is, on every rank. A check that does not find it is none. */
static void drop(struct module *m, struct block *b, struct op *op)
{
	if (op->code == OP_ALL_REDUCE) {
		op->code = OP_CAST;
		return;
	}
	struct builder at = { m, b, op, op->phase, op->span, op->of, op->at.where };
	struct value *pending = op->in[0];
	struct op *cast = op_new(&at, OP_CAST, 1, &pending, 1);
	struct value *whole = op_type(&at, cast, 0, pending->dt, pending->nd, pending->d);

	whole->sh = pending->sh;
	whole->kind = pending->kind;
	for (int i = 0; i < op->at.axes.n; i++)
		whole->sh.sum &= ~(1u << op->at.axes.a[i]);
	cast->why = op->why;
	op->in[0] = whole;
	op->code = OP_SHARD;
}

static void drop_reduction(struct module *m, struct block *b, int *left)
{
	for (struct op *op = b->first; op; op = op->next) {
		if ((op->code == OP_ALL_REDUCE || op->code == OP_REDUCE_SCATTER) && (*left)-- == 0)
			drop(m, b, op);
		if (op->body)
			drop_reduction(m, op->body, left);
	}
}

struct module *check_plan(struct session *s, const char *set, const char *more, const struct module *like)
{
	const char *number = getenv("PTC_TEST_DROP");
	struct layout how = { s->opt->plan, s->opt->mesh, set, s->opt->schedule, s->opt->add };

	if (more)
		how.set = set ? arena_printf(s->mem, "%s,%s", set, more) : more;
	struct module *m = load(s, &how, set);

	if (m && like)
		cut_like(m, like);
	m = compile(s, m, number ? "partition" : NULL);
	if (!m || !number)
		return m;
	int left = atoi(number);

	drop_reduction(m, &m->top, &left);
	if (left >= 0) {
		diag_error(&s->diag, (struct span){ 0 }, "PTC_TEST_DROP=%s: there is no such reduction", number);
		return NULL;
	}
	return run_passes(m, &s->diag, &(struct pass_options){ .start_after = "partition" }) ? m : NULL;
}
