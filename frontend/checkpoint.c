/* checkpoint blocks: which stored tensor holds which param, and how its dims lie there. Checked
 * against the params; reading files by them is for later. */
#include "frontend/lower.h"

/* Where the dims of a param are found: counted in the name, or dims of the file. */
struct places {
	dimid d[2 * MAX_DIMS];
	struct span at[2 * MAX_DIMS];
	int n;
	const struct node *part; /* a/b, or NULL */
};

struct line {
	const struct node *map;
	struct places where;
};

static bool add_place(struct ctx *c, struct places *p, const char *name, struct span at)
{
	dimid d = find_dim_name(c, name, at);

	if (d == NODIM)
		return false;
	for (int i = 0; i < p->n; i++)
		if (p->d[i] == d) {
			fail(c, at, "'%s' stands twice in this line", name);
			return false;
		}
	if (p->n == LEN(p->d)) {
		fail(c, at, "a stored tensor has at most %d dims", (int)LEN(p->d));
		return false;
	}
	p->at[p->n] = at;
	p->d[p->n++] = d;
	return true;
}

/* {layers} or {layers+3}, at p; its length, 0 after a message. */
static size_t read_counter(struct ctx *c, const struct node *map, const char *p, struct places *to)
{
	struct span at = map->name_at;
	size_t end = strcspn(p, "}"), n = strspn(p + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
	size_t digits = p[n + 1] == '+' ? strspn(p + n + 2, "0123456789") : 0;

	at.col += (uint32_t)(p - map->name) + 1;
	at.len = (uint32_t)(p[end] ? end + 1 : strlen(p));
	if (p[end] && n && n + 1 + (digits ? digits + 1 : 0) == end && digits < 10) {
		const char *name = arena_strndup(c->mem, p + 1, n);

		at.col++;
		at.len = (uint32_t)n;
		return add_place(c, to, name, at) ? end + 1 : 0;
	}
	fail(c, at, "this is no counter of a dim");
	hint(c, "write {dim} or {dim+3}");
	return 0;
}

static bool read_name(struct ctx *c, const struct node *map, struct places *to)
{
	for (const char *p = map->name; *p; p++) {
		size_t n = *p == '{' ? read_counter(c, map, p, to) : 1;

		if (!n)
			return false;
		p += n - 1;
	}
	return true;
}

static bool read_part(struct ctx *c, const struct node *n, bool first, struct places *to)
{
	const struct node *a = n->a, *b = n->b;

	if (!a->whole || !b->whole || a->integer < 1 || b->integer < a->integer) {
		fail(c, n->at, "a part is 1/3, 2/3 or 3/3: a whole number of as many");
		return false;
	}
	if (!first || to->part) {
		fail(c, n->at, to->part ? "a stored tensor is cut in parts along one dim" :
		     "a part stands first in the dims that are stored as one: (1/3, heads, head)");
		return false;
	}
	to->part = n;
	return true;
}

static bool read_dims(struct ctx *c, const struct node *list, bool merged, struct places *to)
{
	for (const struct node *n = list; n; n = n->next) {
		bool good = false;

		if (n->kind == N_NAME)
			good = add_place(c, to, n->name, n->at);
		else if (n->kind == N_PART)
			good = read_part(c, n, merged && n == list, to);
		else if (merged)
			fail(c, n->at, "dims are merged one level deep");
		else
			good = read_dims(c, n->list, true, to);
		if (!good)
			return false;
	}
	return true;
}

static const char *param_dims_text(struct ctx *c, const struct buffer *b)
{
	return arena_printf(c->mem, "[%s]", list_text(c, b->nd, b->d, ""));
}

/* The line has each dim of the param, and no other. */
static bool fits_param(struct ctx *c, const struct line *l, const struct sym *p)
{
	const struct buffer *b = p->buf;

	for (int i = 0; i < l->where.n; i++) {
		bool has = false;

		for (int k = 0; k < b->nd; k++)
			has |= b->d[k] == l->where.d[i];
		if (has)
			continue;
		fail(c, l->where.at[i], "param '%s' has no '%s', only %s", p->path,
		     c->m->dims.at[l->where.d[i]].name, param_dims_text(c, b));
		return false;
	}
	for (int k = 0; k < b->nd; k++) {
		bool has = false;

		for (int i = 0; i < l->where.n; i++)
			has |= b->d[k] == l->where.d[i];
		if (has)
			continue;
		fail(c, l->map->at, "'%s' of param '%s' is not in this line", c->m->dims.at[b->d[k]].name,
		     p->path);
		hint(c, "count it in the name, {%s}, or list it in […]", c->m->dims.at[b->d[k]].name);
		return false;
	}
	return true;
}

static bool same_place(const struct node *a, const struct node *b)
{
	const struct node *x = a->list, *y = b->list;

	if (!streq(a->name, b->name))
		return false;
	/* parts of one tensor differ in their fractions */
	for (; x && y; x = x->next, y = y->next) {
		const struct node *p = x->kind == N_LIST ? x->list : NULL, *q = y->kind == N_LIST ? y->list : NULL;

		if (p && q && p->kind == N_PART && q->kind == N_PART &&
		    p->b->integer == q->b->integer && p->a->integer != q->a->integer)
			return false;
	}
	return true;
}

/* All params that the line selects and no line before it. readers: by param, the line it is read by. */
static void check_line(struct ctx *c, const struct line *l, const struct node **readers)
{
	bool any = false;

	for (uint32_t i = 0; i < c->params.n; i++) {
		struct sym *p = c->params.at[i];

		if (!selects(l->map->a, p->path))
			continue;
		any = true;
		if (readers[i])
			continue; /* the first line that matches wins */
		if (!fits_param(c, l, p))
			return;
		for (uint32_t k = 0; k < c->params.n; k++)
			if (readers[k] && same_place(readers[k], l->map)) {
				fail(c, l->map->name_at, "'%s' and '%s' would both be read from \"%s\"",
				     c->params.at[k]->path, p->path, l->map->name);
				return;
			}
		readers[i] = l->map;
	}
	if (any || c->broken)
		return;
	fail(c, l->map->at, l->map->a->kind == N_STRING ? "no param matches \"%s\"" :
	     "there is no param '%s'", l->map->a->name);
	list_params(c);
}

static void check_block(struct ctx *c, const struct node *block)
{
	const struct node **readers = NEWN(c->mem, const struct node *, c->params.n + 1);

	for (const struct node *map = block->body; map; map = map->next) {
		struct line l = { .map = map };

		if (read_name(c, map, &l.where) && read_dims(c, map->list, false, &l.where))
			check_line(c, &l, readers);
	}
}

void check_checkpoints(struct ctx *c)
{
	for (uint32_t i = 0; i < c->checkpoints.n; i++) {
		const struct node *n = c->checkpoints.at[i];

		for (uint32_t k = 0; k < i; k++)
			if (streq(n->name, c->checkpoints.at[k]->name)) {
				fail(c, n->at, "checkpoint '%s' is already defined", n->name);
				hint(c, "first here: %s", line_of(c, c->checkpoints.at[k]->at, n->at));
			}
		check_block(c, n);
	}
}
