#include "frontend/lower.h"

enum { MOST_ERRORS = 20 }; /* that diag.c shows */

static const char *const reserved[] = {
	"none", "host", "params", "grads", "optimizer", "activations", "inf", "training", "step",
};

static bool reported(struct ctx *c, struct span at)
{
	for (uint32_t i = 0; i < c->reported.n; i++) {
		struct span s = c->reported.at[i];

		if (s.file == at.file && s.line == at.line && s.col == at.col)
			return true;
	}
	PUSH(c->mem, &c->reported, at);
	return false;
}

/* The hints of a message that was not shown go the same way. */
struct val fail(struct ctx *c, struct span at, const char *fmt, ...)
{
	char what[1024];
	va_list ap;

	c->muted = c->full || c->diag->errors > MOST_ERRORS || reported(c, at);
	if (c->muted)
		return (struct val){ .kind = V_BAD };
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	diag_error(c->diag, at, "%s", what);
	if (c->call && (at.file != c->call->at.file || at.line != c->call->at.line))
		hint(c, "in '%s', called at %s", c->call->name, line_of(c, c->call->at, at));
	return (struct val){ .kind = V_BAD };
}

void hint(struct ctx *c, const char *fmt, ...)
{
	char what[1024];
	va_list ap;

	if (c->muted)
		return;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	diag_note(c->diag, (struct span){ 0 }, "%s", what);
}

void caution(struct ctx *c, struct span at, const char *fmt, ...)
{
	char what[1024];
	va_list ap;

	c->muted = reported(c, at);
	if (c->muted)
		return;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	diag_warn(c->diag, at, "%s", what);
}

const char *line_of(struct ctx *c, struct span at, struct span from)
{
	if (at.file == from.file)
		return arena_printf(c->mem, "line %u", at.line);
	return span_text(c->mem, c->src, at);
}

static struct sym *search(const struct scope *s, const char *name)
{
	uint32_t hash = (uint32_t)fnv1a(FNV_START, name, strlen(name));

	for (uint32_t i = s->syms.n; i-- > 0;)
		if (s->hashes.at[i] == hash && streq(s->syms.at[i]->name, name))
			return s->syms.at[i];
	return NULL;
}

/* A def sees no computed tensor, and nothing that stands below it. */
static bool seen_by_def(const struct sym *s, uint32_t limit)
{
	return s->order < limit && (s->kind != S_VALUE || s->val.kind == V_NUMBER ||
				    s->val.kind == V_BAD);
}

struct sym *find(struct ctx *c, const char *name)
{
	uint32_t limit = UINT32_MAX;
	bool call = false;

	c->found_hidden = NULL;
	for (const struct scope *s = c->scope; s; s = s->up) {
		struct sym *found = search(s, name);

		if (found && call && !seen_by_def(found, limit))
			c->found_hidden = found;
		else if (found)
			return found;
		if (s->call && !call) {
			call = true;
			limit = s->limit;
		}
	}
	return NULL;
}

struct sym *declare(struct ctx *c, struct scope *s, enum sym_kind kind, const char *name,
		    struct span at)
{
	struct sym *sym = NEW(c->mem, struct sym);

	sym->name = name;
	sym->kind = kind;
	sym->at = at;
	sym->order = c->order++;
	sym->frame = c->frame;
	PUSH(c->mem, &s->syms, sym);
	PUSH(c->mem, &s->hashes, (uint32_t)fnv1a(FNV_START, name, strlen(name)));
	return sym;
}

bool may_declare(struct ctx *c, const char *name, struct span at)
{
	for (size_t i = 0; i < LEN(reserved); i++)
		if (streq(name, reserved[i])) {
			fail(c, at, "'%s' has a meaning of its own and can't be declared", name);
			return false;
		}
	struct sym *s = find(c, name);
	if (!s)
		return true;
	fail(c, at, "'%s' is already defined", name);
	hint(c, "first here: %s", line_of(c, s->at, at));
	return false;
}

const char *sym_kind_name(const struct sym *s)
{
	static const char *const names[] = { "a dim", "an input", "a param", "a state", "a value",
					     "an argument", "a def" };

	if (s->kind == S_VALUE && s->val.kind == V_NUMBER)
		return "a number";
	return names[s->kind];
}

/* The name nearest to what was written, among those in sight. dims: only dims. */
static void near_name(struct ctx *c, const char *name, struct span at, bool dims)
{
	struct near n = { .name = name };
	const struct sym *best = NULL;

	for (const struct scope *s = c->scope; s; s = s->up)
		for (uint32_t i = 0; i < s->syms.n; i++) {
			const char *was = n.best;

			if (dims ? s->syms.at[i]->val.kind != V_DIM : s->syms.at[i]->kind == S_DEF)
				continue;
			near_offer(&n, s->syms.at[i]->name);
			if (n.best != was)
				best = s->syms.at[i];
		}
	if (best)
		hint(c, "did you mean '%s' (%s)?", best->name, line_of(c, best->at, at));
}

struct val no_name(struct ctx *c, const char *name, struct span at)
{
	const struct sym *hidden = c->found_hidden;

	for (uint32_t i = c->dead.n; i-- > 0;) {
		const struct sym *s = c->dead.at[i];

		if (!streq(s->name, name) || c->calls)
			continue;
		fail(c, at, "nothing is called '%s' here", name);
		hint(c, "it lives inside 'repeat %s' (%s): give it a value before the loop to carry it out",
		     s->def->name, line_of(c, s->def->at, at));
		return (struct val){ .kind = V_BAD };
	}
	fail(c, at, "nothing is called '%s'%s", name, hidden ? " here" : "");
	if (hidden && hidden->kind == S_VALUE)
		hint(c, "a def sees no computed value of the file: pass '%s' as an argument", name);
	else if (hidden)
		hint(c, "'%s' stands below the def (%s)", name, line_of(c, hidden->at, at));
	else
		near_name(c, name, at, false);
	return (struct val){ .kind = V_BAD };
}

dimid find_dim_name(struct ctx *c, const char *name, struct span at)
{
	const struct sym *s = find(c, name);

	if (s && s->val.kind == V_DIM)
		return s->val.d;
	if (s && s->val.kind == V_BAD && s->kind != S_DEF && s->kind != S_PARAM && s->kind != S_INPUT)
		return NODIM;
	fail(c, at, "there is no dim '%s'", name);
	if (s)
		hint(c, "'%s' is %s (%s)", name, sym_kind_name(s), line_of(c, s->at, at));
	else
		near_name(c, name, at, true);
	return NODIM;
}

struct scope *scope_push(struct ctx *c, struct scope *up)
{
	struct scope *s = NEW(c->mem, struct scope);

	s->up = up;
	c->scope = s;
	return s;
}

bool matches_pattern(const char *pattern, const char *text)
{
	const char *star = NULL, *back = NULL;

	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			back = text;
		} else if (*pattern == '?' || *pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++back;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

bool selects(const struct node *what, const char *path)
{
	const char *dot = strrchr(path, '.');

	if (!strchr(what->name, '.') && dot)
		path = dot + 1;
	return what->kind == N_STRING ? matches_pattern(what->name, path) : streq(what->name, path);
}
