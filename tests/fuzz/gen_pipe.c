/* tests/fuzz/gen_pipe.c - programs that are cut into stages: repeats at the top with glue around them, and
 * how they are cut. */
#include "tests/fuzz/gen_impl.h"

void make_chain(struct gen *g)
{
	struct module *m = g->m;

	for (int i = 0, n = 1 + (int)roll(g, CHAIN); i < n; i++) {
		int64_t size = chance(g, 3) ? 0 : 1 + (int64_t)roll(g, 5);

		g->chain[g->nchain++] = module_dim(m, arena_printf(g->mem, "l%d", i), size, (struct span){ 0 });
	}
}

bool in_chain(const struct gen *g, const struct value *v)
{
	for (int i = 0; i < g->nchain; i++)
		if (has_dim(v, g->chain[i]))
			return true;
	return false;
}

/* Glue, a repeat, glue, a repeat, glue: what is made in one place is picked in all later ones. */
void fill_chain(struct gen *g)
{
	struct scope *s = &g->top;
	int made = 0;

	for (int i = 0; i < g->nchain; i++) {
		gen_step(g);
		fill_scope(g, s, (int)roll(g, i ? 3 : 4));
		struct value *v = gen_step(g) ? make_repeat(g, s, g->chain[i]) : NULL;

		if (!v)
			continue;
		g->chain[made++] = g->chain[i];
		PUSH(g->mem, &s->pool, v);
		PUSH(g->mem, &s->aux, mean_all(g, s, one_op(s, OP_SIN, v))); /* so that none is dead */
	}
	g->nchain = made;
	gen_step(g);
	fill_scope(g, s, (int)roll(g, 4));
}

/* Each iteration goes to any chunk, in order: some may stay empty. */
static void cut_by_hand(struct gen *g, int64_t total)
{
	struct pipe *p = &g->m->pipe;
	int chunks = pipe_chunks(g->m);
	int64_t *n = NEWN(g->mem, int64_t, chunks), sum = 0;

	for (int64_t i = 0; i < total; i++)
		n[roll(g, (uint32_t)chunks)]++;
	p->fixed = true;
	for (int i = 0; i < chunks; i++)
		PUSH(g->mem, &p->end, sum += n[i]);
}

static int chunks_of(struct gen *g, enum schedule_kind order)
{
	return order == SCHED_ZB_V ? 2 : order == SCHED_INTERLEAVED ? 1 + (int)roll(g, 3) : 1;
}

/* The pipeline's axis, the last of the mesh so far, and its arrow. Its size; 1: there is none. */
int gen_pipeline(struct gen *g)
{
	static const enum schedule_kind orders[] = { SCHED_GPIPE,	SCHED_1F1B,  SCHED_1F1B,
						     SCHED_INTERLEAVED, SCHED_ZB_H1, SCHED_ZB_V };
	struct module *m = g->m;
	struct arrow a = { .what = W_DIMS, .naxes = 1, .axes = { (uint8_t)m->mesh.n } };
	struct pipe p = { .user = (int)m->mesh.n, .order = orders[roll(g, LEN(orders))] };
	int64_t total = 0;
	int size = 2 + (int)roll(g, 3);

	p.chunks = chunks_of(g, p.order);
	for (int i = 0; i < g->nchain; i++)
		if (i == g->nchain - 1 - (int)g->c->seed % g->nchain || chance(g, 80)) {
			a.dims.d[a.dims.n++] = g->chain[i];
			total += dim_size(m, g->chain[i]);
		}
	while (size > 2 && size * p.chunks > total + 2)
		size--;
	if (!a.dims.n || size * p.chunks > total + 2 || !total || m->mesh.n == MAX_MESH)
		return 1;
	if (chance(g, 15))
		p.inflight = 1 + (int64_t)roll(g, 6);
	struct user_axis u = { "pp", size, { 0 } };
	struct axis x = { "pp", size, p.user, false };
	PUSH(g->mem, &m->mesh, u);
	PUSH(g->mem, &m->axes, x);
	PUSH(g->mem, &m->arrows, a);
	m->pipe = p;
	if (chance(g, 50))
		cut_by_hand(g, total);
	return size;
}
