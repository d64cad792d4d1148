/* frontend/stages.c - do the stages of a pipeline and the iterations of its repeats fit?
 * Checked whether or not there is a pass for pipelines, so that a plan is right before it runs. */
#include "frontend/lower.h"

static const struct node *find_line(const struct node *plan, const char *name)
{
	for (const struct node *line = plan->body; line; line = line->next)
		if (line->kind == N_SETTING && streq(line->name, name))
			return line;
	return NULL;
}

static const struct node *find_option(const struct node *line, const char *name)
{
	for (const struct node *a = line ? line->list : NULL; a; a = a->next)
		if (a->kind == N_KEY && streq(a->name, name))
			return a;
	return NULL;
}

/* Iterations of all repeats that the arrow names, in one chain. */
static int64_t chain_length(const struct ctx *c, const struct node *arrow)
{
	int64_t n = 0;

	for (const struct node *d = arrow->list; d; d = d->next) {
		dimid id = d->kind == N_NAME ? find_dim(c->m, d->name) : (dimid)NODIM;

		if (id != NODIM && is_repeated(c, id))
			n += dim_size(c->m, id);
	}
	return n;
}

/* stages = [a, b, ...]: an entry for each stage, adding up to the iterations. */
static void check_list(struct ctx *c, const struct node *option, int64_t stages, int64_t iterations)
{
	const struct node *list = option->a;
	int64_t n = 0, sum = 0, x;

	if (!list || list->kind != N_LIST) {
		fail(c, option->at, "write stages = [a, b, …], the iterations of each stage");
		return;
	}
	for (const struct node *e = list->list; e; e = e->next, n++) {
		if (!eval_size(c, e, &x))
			return;
		sum += x;
	}
	if (n != stages)
		fail(c, option->at, "'stages' has %lld entries for %lld stages", (long long)n, (long long)stages);
	else if (sum != iterations)
		fail(c, option->at, "'stages' adds up to %lld, the repeats to %lld", (long long)sum, (long long)iterations);
}

void check_stages(struct ctx *c, const struct node *plan)
{
	const struct node *line = find_line(plan, "pipeline"), *list, *chunks;
	int64_t v = 1, iterations;

	if (!c->pipeline || !line || c->m->mesh.at[c->pipeline_axis].size == 1)
		return; /* on an axis of 1 (--mesh) nothing is cut */
	chunks = find_option(line, "chunks");
	if (chunks && chunks->a && !eval_size(c, chunks->a, &v))
		return;
	int64_t stages = c->m->mesh.at[c->pipeline_axis].size * (v > 0 ? v : 1);
	iterations = chain_length(c, c->pipeline);
	list = find_option(line, "stages");
	if (list)
		check_list(c, list, stages, iterations);
	if (stages > iterations + 2) {
		fail(c, c->pipeline->at, "%lld stages, but %lld iterations", (long long)stages, (long long)iterations);
		hint(c, "at most %lld: first and last may be empty", (long long)iterations + 2);
	}
}
