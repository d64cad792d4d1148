#include "frontend/syntax.h"

#include <ctype.h>

#include "frontend/tokens.h"
#include "parse.h"

struct span syntax_join(struct span a, struct span b)
{
	if (a.line == b.line && b.col + b.len > a.col)
		a.len = b.col + b.len - a.col;
	return a;
}

struct node *syntax_parens(struct parser *ps, struct node *n, struct span at)
{
	(void)ps;
	if (n->kind == N_BINARY || n->kind == N_UNARY)
		n->at = at;
	return n;
}

const char *syntax_path(struct parser *ps, const char *path, const char *name, struct span at)
{
	static const char too_long[] = "";

	if (path == too_long)
		return path;
	if (strlen(path) + strlen(name) < 1000)
		return arena_printf(ps->mem, "%s.%s", path, name);
	diag_error(ps->diag, at, "this path is longer than 1000 bytes");
	return too_long;
}

static const char *token_text(struct parser *ps, struct span at)
{
	size_t n = at.len > 40 ? 40 : at.len, from = ps->offset - at.len;

	if (at.len > ps->offset)
		return "";
	return arena_strndup(ps->mem, ps->text + from, n);
}

static bool is_operator(int token)
{
	switch (token) {
	case '+': case '-': case '*': case '/': case '%': case '@': case '<': case '>': case '&':
	case '|': case T_EQ: case T_NE: case T_LE: case T_GE: case T_FLOORDIV: case T_ATDIMS:
		return true;
	default:
		return false;
	}
}

static bool is_word(int token)
{
	return token == T_NAME || token == T_WORD || (token >= T_DIM && token <= T_ON);
}

/* Two words at the start of a line: the first is taken for the name of a statement. */
static void unknown_statement(struct parser *ps)
{
	static const char *const words[] = {
		"dim", "input", "param", "state", "update", "metric", "repeat", "def", "return",
		"include", "minimize", "plan", "hardware", "checkpoint",
	};
	struct near n = { .name = ps->first_text };

	for (size_t i = 0; i < LEN(words); i++)
		near_offer(&n, words[i]);
	if (n.best)
		diag_error(ps->diag, ps->first_at, "no statement '%.40s': did you mean '%s'?",
			   ps->first_text, n.best);
	else
		diag_error(ps->diag, ps->first_at, "no statement '%.40s'; statements are dim, input, "
			   "param, repeat, def, include, minimize, plan, hardware, and 'name = value'",
			   ps->first_text);
}

/* (a, b) where a list belongs. */
static bool is_list(struct parser *ps, int token)
{
	const struct bracket *b = ps->open.n ? &ps->open.at[ps->open.n - 1] : NULL;

	return token == ',' && b && b->c == '(' && !b->call;
}

static void list_advice(struct parser *ps, const struct bracket *b)
{
	const char *p = ps->text + b->offset, *end = ps->text + ps->len;
	size_t n = 0;

	while (p + n < end && n < 60 && !strchr(")\n#{}", p[n]))
		n++;
	if (p + n < end && p[n] == ')')
		diag_error(ps->diag, b->at, "lists are [%.*s]", (int)n, p);
	else
		diag_error(ps->diag, b->at, "lists are written [a, b]");
}

static const char *dims_in_brackets(struct parser *ps)
{
	const char *p = ps->text + ps->offset, *end = ps->text + ps->len;
	size_t n = 0;

	while (p + n < end && n < 60 && !strchr("[]()\n#{}", p[n]))
		n++;
	return p + n < end && p[n] == ']' ? arena_strndup(ps->mem, p, n) : "d";
}

static void plain(struct parser *ps, struct span at, int n, const char *const *names)
{
	struct text t = { .mem = ps->mem };
	const char *what = ps->last == T_EOL ? "the end of the line" :
			   ps->last == 0 ? "the end of the file" :
			   arena_printf(ps->mem, "'%s'", token_text(ps, at));

	for (int i = 0; i < n; i++) {
		bool word = names[i][0] >= 'a' && names[i][0] <= 'z';

		if (streq(names[i], "end of file"))
			continue;
		text_put(&t, "%s%s%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ",
			 word ? "" : "'", names[i][0] == '\'' ? arena_strndup(ps->mem, names[i] + 1, 1) :
			 names[i], word ? "" : "'");
	}
	if (ps->last == '}' && ps->count == 1)
		diag_error(ps->diag, at, "this '}' closes nothing");
	else if (t.n)
		diag_error(ps->diag, at, "%s is not expected here, but %s", what, t.s);
	else if (ps->last == T_EOL || ps->last == 0)
		diag_error(ps->diag, at, "the line ends too early");
	else
		diag_error(ps->diag, at, "%s is not expected here", what);
}

/* name[], ended at by its ']'. */
static bool has_no_dims(const struct parser *ps, int token)
{
	const char *p = ps->text + ps->offset - 1;

	if (token != ']' || ps->before != '[')
		return false;
	while (*p != '[' && p > ps->text)
		p--;
	return p > ps->text && (isalnum((unsigned char)p[-1]) || p[-1] == '_');
}

/* minimize 2 * loss, minimize a + b: an expression where the name of one belongs. */
static bool minimizes_expression(const struct parser *ps, int token)
{
	bool first = ps->count == 2 && !is_word(token) && token != T_EOL && token != 0;

	return ps->first_text && scan_keyword(ps->first_text) == T_MINIMIZE && (first || (ps->count == 3 && is_operator(token)));
}

void syntax_error(struct parser *ps, struct span at, int n, const char *const *names)
{
	int token = ps->last, count = ps->count;
	bool muted = ps->muted || ps->recovering, list = is_list(ps, token), sum = minimizes_expression(ps, token);
	struct bracket open = ps->open.n ? ps->open.at[ps->open.n - 1] : (struct bracket){ 0 };
	const struct bracket *lost = scan_recover(ps, token);

	if (muted)
		return;
	if (lost)
		diag_error(ps->diag, lost->at, "'%c' is not closed", lost->c);
	else if (list)
		list_advice(ps, &open);
	else if (count == 1 && is_operator(token))
		diag_error(ps->diag, at, "end the line before with '%s'", token_text(ps, at));
	else if (count == 2 && ps->first_text && is_word(token) &&
		 scan_keyword(ps->first_text) == T_NAME)
		unknown_statement(ps);
	else if (token == '[' && ps->before == '@')
		diag_error(ps->diag, at, "write @[%s]", dims_in_brackets(ps));
	else if (has_no_dims(ps, token))
		diag_error(ps->diag, at, "what has no dims is written without brackets");
	else if (sum)
		diag_error(ps->diag, at, "minimize takes one name: compute total = a + b before it, then minimize total");
	else
		plain(ps, at, n, names);
}
