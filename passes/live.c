/* passes/live.c - what is live at the peak of each stage.
 *
 * The memory pass's own pieces are looked at again: of each region those that are live when most of the
 * region is, on each stage the regions that are there when most of the arena is (ir/layout.h). A body of a
 * repeat is one piece, which has pieces of its own. */
#include "passes/live.h"

#include <stdlib.h>

#include "ir/layout.h"
#include "ir/trace.h"
#include "passes/memory.h"

const char *const mem_kind_name[NMEM] = { "params", "grads", "optimizer", "activations", "workspace", "comm", "gathered" };

/* What a row of a region holds, and the op at which it holds most. */
struct content {
	VEC(struct holding) found;
	const struct op *op;
};

struct living {
	struct arena *mem;
	const struct module *m;
	const struct items *items;
	struct regions *r;
	struct content *in; /* by region */
	struct stage_live *to;
};

/* -- one timeline -- */

/* The position in -1..n at which most of these pieces is live. */
static int64_t fullest(struct arena *mem, struct packed *const *at, uint32_t count, int64_t n)
{
	int64_t *step = NEWN(mem, int64_t, n + 3), now = 0, most = -1, where = -1;

	for (uint32_t i = 0; i < count; i++) {
		step[at[i]->start + 1] += at[i]->bytes;
		step[at[i]->end + 2] -= at[i]->bytes;
	}
	for (int64_t t = -1; t <= n; t++) {
		now += step[t + 1];
		if (now > most) {
			most = now;
			where = t;
		}
	}
	return where;
}

static bool live(const struct packed *p, int64_t t)
{
	return p->start <= t && t <= p->end;
}

static int64_t end_of(const struct items *l)
{
	return l->of->last ? l->of->last->mark + 1 : 0;
}

static int64_t fullest_of(struct living *l, const struct items *items, int region)
{
	struct packed **at = NEWN(l->mem, struct packed *, items->list.n + 1);
	uint32_t n = 0;

	for (uint32_t i = 0; i < items->list.n; i++)
		if (region < 0 || items->list.at[i]->region == region)
			at[n++] = &items->list.at[i]->p;
	return fullest(l->mem, at, n, end_of(items));
}

/* -- what a piece holds -- */

/* The row of a stack that a repeat makes has the name of what it stacks. */
static const struct value *named(const struct value *v)
{
	while (!v->name && v->def && v->def->code == OP_REPEAT)
		v = v->def->body->yields.at[v->no];
	return v;
}

static bool is_gradient(const struct module *m, const char *name)
{
	const struct buffer *b = name && strncmp(name, "d:", 2) == 0 ? find_buffer(m, name + 2) : NULL;

	return b && b->role == B_PARAM;
}

/* What a repeat stacks of collectives' results is kept for backward, like any activation. */
static enum mem_kind kind_of(const struct module *m, const struct value *v)
{
	if (is_gradient(m, named(v)->name))
		return MEM_GRADS;
	const struct op *def = v->def && v->def->code == OP_WAIT ? v->def->in[0]->def : v->def;
	if (!def || !comm_sends(def->code))
		return MEM_ACTIVATIONS;
	return v->kind == K_PARAM ? MEM_GATHERED : MEM_COMM;
}

static const char *label_of(struct living *l, const struct value *v)
{
	v = named(v);
	if (v->name)
		return strncmp(v->name, "d:", 2) ? v->name : arena_printf(l->mem, "the gradient of %s", v->name + 2);
	return v->def ? op_label_text(l->mem, l->m, v->def) : arena_printf(l->mem, "row at %s", span_text(l->mem, l->m->src, v->span));
}

/* Of what lies in home h at position t: the value made last, by the name of an alias of it if it has none. */
static const struct value *holder(const struct module *m, const struct block *b, const struct home *h, int64_t t,
				  const struct value *root)
{
	const struct value *best = NULL;

	for (const struct op *op = b->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++) {
			const struct value *v = op->out[i];

			if (v->aux != h)
				continue;
			bool alias = is_alias(m, op);

			if (!best || (!alias && op->mark <= t) || (alias && (!named(best)->name || is_gradient(m, v->name))))
				best = v;
		}
	return best ? best : root;
}

static void find(struct living *l, struct content *c, struct holding h)
{
	for (uint32_t i = 0; i < c->found.n; i++) {
		struct holding *x = &c->found.at[i];

		if (x->kind == h.kind && streq(x->name, h.name) && x->at.line == h.at.line && x->at.file == h.at.file) {
			x->bytes += h.bytes;
			x->times += h.times;
			return;
		}
	}
	PUSH(l->mem, &c->found, h);
}

static const struct op *op_at(const struct block *b, int64_t t)
{
	const struct op *op = b->first;

	while (op && op->mark < t)
		op = op->next;
	return op ? op : b->last;
}

static void find_items(struct living *l, struct content *c, const struct items *items, int region)
{
	int64_t t = fullest_of(l, items, region);

	for (uint32_t i = 0; i < items->list.n; i++) {
		const struct item *x = items->list.at[i];

		if ((region >= 0 && x->region != region) || !live(&x->p, t))
			continue;
		if (!x->v) {
			find_items(l, c, x->body, -1);
			continue;
		}
		const struct home *h = x->v->aux;
		const struct value *v = holder(l->m, items->of, h, t, x->v);

		find(l, c, (struct holding){ label_of(l, v), kind_of(l->m, v), x->p.bytes, h->twice ? 2 : 1, named(v)->span });
	}
	if (!c->op && items->of->first) /* the innermost */
		c->op = op_at(items->of, t);
}

static enum mem_kind role_kind(enum role role)
{
	return role == B_OPT ? MEM_OPTIMIZER : role == B_PROBE ? MEM_ACTIVATIONS : MEM_PARAMS;
}

static void find_buffers(struct living *l, struct content *c, int region)
{
	for (uint32_t i = 0; i < l->m->bufs.n; i++) {
		const struct buffer *b = l->m->bufs.at[i];
		const struct region *x = &l->r->at.at[region];
		struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store };

		if (b->role == B_INPUT || l->r->buf[i] != region)
			continue;
		memcpy(v.d, b->d, sizeof v.d);
		int64_t cap = x->dim == NODIM ? 1 : cap_of(l->m, x->dim, &b->store.on[0]);

		find(l, c, (struct holding){ b->name, role_kind(b->role), round_up(local_bytes(l->m, &v) / (cap ? cap : 1)), 1, b->at });
	}
}

/* -- a stage -- */

static void hold(struct living *l, struct holding h)
{
	l->to->of[h.kind] += h.bytes;
	PUSH(l->mem, &l->to->held, h);
}

/* So many rows of a region, in so many microbatches. */
static void hold_region(struct living *l, int region, int64_t rows, int64_t times)
{
	const struct content *c = &l->in[region];

	for (uint32_t i = 0; i < c->found.n; i++) {
		struct holding h = c->found.at[i];

		h.bytes *= rows;
		h.times *= times;
		hold(l, h);
	}
}

static int by_bytes(const void *x, const void *y)
{
	const struct holding *a = x, *b = y;
	int c = (a->bytes < b->bytes) - (a->bytes > b->bytes);

	return c ? c : strcmp(a->name, b->name);
}

static void close_stage(struct living *l, int64_t arena)
{
	struct stage_live *to = l->to;
	int64_t sum = 0;

	for (int k = 0; k < NMEM; k++)
		sum += to->of[k];
	to->unused = arena - sum;
	to->peak = arena + l->m->workspace;
	if (l->m->workspace)
		hold(l, (struct holding){ "workspace of the backend", MEM_WORKSPACE, l->m->workspace, 1, { 0 } });
	if (to->unused)
		hold(l, (struct holding){ "holes between tensors", MEM_ACTIVATIONS, to->unused, 1, { 0 } });
	qsort(to->held.at, to->held.n, sizeof *to->held.at, by_bytes);
}

static void live_whole(struct living *l)
{
	static const char *const when[] = { "before the microbatches", "forward", "backward", "the update" };

	const struct op *op = l->in[0].op;

	hold_region(l, 0, 1, 1);
	if (op) {
		l->to->at = op->span;
		l->to->when = when[op->phase];
	}
	close_stage(l, l->m->arena);
}

static const char *action_text(struct living *l, const struct stage_layout *s, int64_t tick)
{
	static const char *const what[] = { "forward", "backward", "backward of activations", "backward of weights" };
	int64_t per = s->acts.n ? (s->ticks - 1) / s->acts.n : 1, a = tick > 0 ? (tick - 1) / per : 0;

	if (tick <= 0 || tick >= s->ticks || a >= s->acts.n)
		return tick <= 0 ? "before the microbatches" : "the update";
	const struct action *act = &s->acts.at[a];
	return arena_printf(l->mem, "%s of microbatch %d in chunk %d", what[act->kind], act->mb, act->chunk);
}

static void hold_channel(struct living *l, const struct channel_plan *c, int64_t bytes)
{
	const char *name = arena_printf(l->mem, "messages %s, stage %d to %d", c->phase == FORWARD ? "forward" : "backward", c->from, c->to);

	hold(l, (struct holding){ name, MEM_COMM, bytes, c->bytes ? bytes / round_up(c->bytes) : 1, { 0 } });
}

static void live_stage(struct living *l, const struct layouts *all, int stage)
{
	const struct stage_layout *s = &all->stage[stage];
	struct packed **at = NEWN(l->mem, struct packed *, s->pieces.n + 1);
	int64_t *bytes = NEWN(l->mem, int64_t, l->r->at.n + 1), *times = NEWN(l->mem, int64_t, l->r->at.n + 1);

	for (uint32_t i = 0; i < s->pieces.n; i++)
		at[i] = &s->pieces.at[i]->p;
	int64_t tick = fullest(l->mem, at, s->pieces.n, s->ticks);

	for (uint32_t i = 0; i < s->pieces.n; i++) {
		const struct laid *x = s->pieces.at[i];

		if (!live(&x->p, tick) || !x->p.bytes)
			continue;
		if (x->channel >= 0) {
			hold_channel(l, &all->channels.at[x->channel], x->p.bytes);
			continue;
		}
		bytes[x->region] += x->p.bytes;
		times[x->region]++;
	}
	for (uint32_t i = 0; i < l->r->at.n; i++)
		if (bytes[i]) {
			hold_region(l, (int)i, bytes[i] / l->r->at.at[i].bytes, times[i]);
			if (l->r->at.at[i].kind == RG_WORK && l->in[i].op)
				l->to->at = l->in[i].op->span;
		}
	l->to->when = action_text(l, s, tick);
	close_stage(l, l->m->pipe.arena.at[stage]);
}

struct stage_live *live_at_peak(struct arena *mem, struct module *m, struct diag *d)
{
	struct living l = { .mem = mem, .m = m };
	struct stage_live *all = NEWN(mem, struct stage_live, pipe_stages(m));

	l.items = memory_items(m, d);
	if (!l.items)
		return NULL;
	l.r = regions_of(mem, m);
	regions_measure(l.r, m);
	l.in = NEWN(mem, struct content, l.r->at.n);
	for (uint32_t i = 0; i < l.r->at.n; i++) {
		if ((int)i == l.r->host)
			continue;
		find_buffers(&l, &l.in[i], (int)i);
		find_items(&l, &l.in[i], l.items, (int)i);
	}
	l.to = all;
	if (pipe_axis(m) < 0) {
		live_whole(&l);
		return all;
	}
	struct layouts *layouts = layouts_of(mem, m, l.r);

	for (int i = 0; i < pipe_stages(m); i++) {
		l.to = &all[i];
		live_stage(&l, layouts, i);
	}
	return all;
}
