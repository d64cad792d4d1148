/* frontend/chunk.c - the setting `chunk`: a value in parts, one after the other. */
#include "frontend/lower.h"

static void read_number(struct ctx *c, const struct node *option, int64_t *x)
{
	const struct node *v = option->a;

	if (!v || v->kind == N_STRING || v->kind == N_LIST || v->kind == N_WORD)
		fail(c, option->at, "write %s = n", option->name);
	else if (eval_size(c, v, x) && *x < 1)
		fail(c, v->at, "%s is at least 1", option->name);
}

static void read_dim(struct ctx *c, const struct node *option, dimid *d)
{
	*d = option->a && option->a->kind == N_NAME ? find_dim(c->m, option->a->name) : NODIM;
	if (*d != NODIM)
		return;
	if (option->a && option->a->kind == N_NAME)
		fail(c, option->a->at, "there is no dim '%s'", option->a->name);
	else
		fail(c, option->at, "write dim = name");
}

static bool read_option(struct ctx *c, const struct node *o, struct chunk *x)
{
	if (o->kind == N_KEY && streq(o->name, "parts"))
		read_number(c, o, &x->parts);
	else if (o->kind == N_KEY && streq(o->name, "rows"))
		read_number(c, o, &x->rows);
	else if (o->kind == N_KEY && streq(o->name, "dim"))
		read_dim(c, o, &x->dim);
	else
		return false;
	return true;
}

/* A name of the file that is no value with dims; false: it may be one, or is looked for later. */
static bool says_no_value(struct ctx *c, const struct node *what)
{
	struct sym *s = find(c, what->name);

	if (!s || s->val.kind == V_BAD || (s->kind == S_VALUE && s->val.kind == V_TENSOR && s->val.v->nd))
		return false;
	fail(c, what->at, "'%s' is %s", what->name, s->kind == S_VALUE && s->val.kind == V_TENSOR ? "a scalar" : sym_kind_name(s));
	hint(c, "chunk takes a value with dims that is computed: logits[batch, seq, vocab] = …%s", s->kind == S_DIM ? "; dim = name says along which" : "");
	return true;
}

void read_chunk(struct ctx *c, const struct node *line)
{
	const struct node *what = setting_value(line);
	struct chunk x = { .dim = NODIM, .at = line->at };

	if (!what || what->kind != N_NAME) {
		fail(c, line->at, "chunk is followed by the name of a value");
		hint(c, "write chunk logits, rows = 1024");
		return;
	}
	if (says_no_value(c, what))
		return;
	x.sel = what->name;
	for (const struct node *o = line->list ? line->list->next : NULL; o; o = o->next)
		if (!read_option(c, o, &x)) {
			fail(c, o->at, "chunk has no option like this");
			hint(c, "options are rows, parts, dim");
			return;
		}
	if (!x.parts == !x.rows && !c->diag->errors) {
		fail(c, line->at, x.parts ? "either rows or parts, not both" : "how large is a part?");
		hint(c, "write rows = n, at most so many at once on a rank, or parts = n");
	}
	for (uint32_t i = 0; i < c->m->chunks.n; i++)
		if (streq(c->m->chunks.at[i].sel, x.sel)) { /* --add, behind the plan's own */
			c->m->chunks.at[i] = x;
			return;
		}
	PUSH(c->mem, &c->m->chunks, x);
}
