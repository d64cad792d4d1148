/* frontend/stages.c - the pipeline of a plan: its order, and whether its stages and the iterations of its
 * repeats fit. */
#include "frontend/lower.h"

const struct node *plan_option(const struct node *line, const char *name)
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

/* stages = [a, b, ...]: an entry for each chunk, adding up to the iterations. */
static void read_list(struct ctx *c, const struct node *option, int64_t stages, int64_t iterations)
{
	const struct node *list = option->a;
	int64_t n = 0, sum = 0, x;
	struct pipe *p = &c->m->pipe;

	p->end.n = 0;
	p->fixed = true;

	if (!list || list->kind != N_LIST) {
		fail(c, option->at, "write stages = [a, b, …], the iterations of each stage");
		return;
	}
	for (const struct node *e = list->list; e; e = e->next, n++) {
		if (!eval_size(c, e, &x))
			return;
		if (x < 0 || x > iterations) {
			fail(c, e->at, "a stage has from 0 to %lld iterations, not %lld", (long long)iterations, (long long)x);
			return;
		}
		sum += x;
		PUSH(c->mem, &p->end, sum);
	}
	if (n != stages)
		fail(c, option->at, "'stages' has %lld entries for %lld stages", (long long)n, (long long)stages);
	else if (sum != iterations)
		fail(c, option->at, "'stages' adds up to %lld, the repeats to %lld", (long long)sum, (long long)iterations);
}

/* A positive whole number; 0 after a message or without the option. */
static int64_t read_count(struct ctx *c, const struct node *line, const char *name)
{
	const struct node *option = plan_option(line, name);
	int64_t n = 0;

	if (!option || !option->a || !eval_size(c, option->a, &n))
		return 0;
	if (n < 1 || n > 1 << 20)
		fail(c, option->at, "'%s' is a whole number from 1 up", name);
	return n < 1 || n > 1 << 20 ? 0 : n;
}

static void read_order(struct ctx *c, const struct node *line)
{
	struct pipe *p = &c->m->pipe;
	const struct node *word = line ? setting_value(line) : NULL;

	p->order = SCHED_1F1B;
	if (word && word->name)
		schedule_find(word->name, &p->order);
	p->chunks = (int)read_count(c, line, "chunks");
	p->inflight = read_count(c, line, "inflight");
	p->buffers = read_count(c, line, "buffers");
	bool several = p->order == SCHED_INTERLEAVED || p->order == SCHED_ZB_V;
	if (p->chunks && p->chunks != 1 && !several)
		fail(c, plan_option(line, "chunks")->at, "%s has one chunk a stage; interleaved and zb_v have more",
		     schedule_name(p->order));
	if (p->chunks && p->chunks != 2 && p->order == SCHED_ZB_V)
		fail(c, plan_option(line, "chunks")->at, "zb_v has 2 chunks a stage");
	if (!p->chunks)
		p->chunks = several ? 2 : 1;
}

void read_pipeline(struct ctx *c, const struct node *line)
{
	const struct node *list;

	if (!c->pipeline || c->m->mesh.at[c->pipeline_axis].size == 1) {
		c->m->pipe.user = -1; /* on an axis of 1 (--mesh) nothing is cut */
		return;
	}
	read_order(c, line);
	int64_t chunks = pipe_chunks(c->m), iterations = chain_length(c, c->pipeline);
	list = plan_option(line, "stages");
	if (list)
		read_list(c, list, chunks, iterations);
	if (chunks > iterations + 2) {
		fail(c, c->pipeline->at, "%lld stages, but %lld iterations", (long long)chunks, (long long)iterations);
		hint(c, "at most %lld: first and last may be empty", (long long)iterations + 2);
	}
}
