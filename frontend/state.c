/* state and update: buffers that a step reads as they were before it, and writes after it. */
#include "frontend/lower.h"

/* The dims of a state as the statements of its block see it: without those of the repeats. */
static struct want own_dims(struct ctx *c, const struct sym *s)
{
	struct want w = { .known = true, .name = s->name };

	for (int i = 0; i < s->buf->nd; i++) {
		bool repeated = false;

		for (const struct frame *f = c->frame; f->up; f = f->up)
			repeated |= f->dim == s->buf->d[i];
		if (!repeated)
			w.d[w.n++] = s->buf->d[i];
	}
	return w;
}

static bool may_update(struct ctx *c, const struct node *n, struct sym *s)
{
	if (!s) {
		no_name(c, n->name, n->name_at);
		return false;
	}
	if (s->kind != S_STATE) {
		if (s->val.kind != V_BAD || s->buf) {
			fail(c, n->name_at, "'%s' is %s, not a state", n->name, sym_kind_name(s));
			hint(c, "what 'update' changes is declared with 'state'");
		}
		return false;
	}
	if (s->updated.line) {
		fail(c, n->name_at, "'%s' is updated twice", n->name);
		hint(c, "first here: %s", line_of(c, s->updated, n->at));
		return false;
	}
	s->updated = n->at;
	if (s->frame == c->frame)
		return s->buf != NULL;
	fail(c, n->name_at, "'%s' is one state for all iterations, and can't be updated in each of them",
	     n->name);
	hint(c, "declare it inside the repeat, or update it after the loop (it is at %s)",
	     line_of(c, s->at, n->at));
	return false;
}

void write_state(struct ctx *c, struct frame *f, const struct sym *s, struct value *v, struct span at)
{
	if (f->up) {
		PUSH(c->mem, &f->stacked, ((struct stacked){ s, v, at }));
		return;
	}
	f->b.span = at;
	struct op *op = op_new(&f->b, OP_WRITE, 1, &v, 0);
	SET(op, buf, s->path);
}

void lower_update(struct ctx *c, const struct node *n)
{
	struct sym *s = find(c, n->name);
	const struct node left = { .kind = N_TENSOR, .name = n->name, .at = n->name_at, .name_at = n->name_at };

	if (!may_update(c, n, s))
		return;
	struct want w = own_dims(c, s);
	c->left = n->name;
	c->statement = s->path;
	c->declared = true;
	struct val v = eval(c, n->a, &w);
	if (v.kind == V_BAD)
		return;
	if (v.kind != V_TENSOR && !is_number(&v)) {
		fail(c, n->a->at, "this is no value");
		return;
	}
	if (!check_dims(c, &left, n->a, &w, &v))
		return;
	struct value *x = float_of(c, v, n->at);
	if (memcmp(x->d, w.d, w.n * sizeof *w.d) != 0)
		x = copy_of(c, x, n->at, w.n, w.d).v;
	write_state(c, c->frame, s, x, n->at);
}

/* What the body of a repeat writes comes out of it stacked, and is written there. */
void leave_stacked(struct ctx *c, struct frame *f)
{
	for (uint32_t i = 0; i < f->stacked.n; i++) {
		const struct stacked *s = &f->stacked.at[i];
		struct value like = { .dt = s->v->dt, .nd = (uint8_t)(s->v->nd + 1) };

		like.d[0] = f->dim;
		memcpy(like.d + 1, s->v->d, s->v->nd * sizeof *like.d);
		like.span = s->at;
		PUSH(c->mem, &f->op->body->yields, s->v);
		write_state(c, f->up, s->sym, op_add_out(c->m, f->op, &like), s->at);
	}
}
