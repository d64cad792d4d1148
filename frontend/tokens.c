#include "frontend/tokens.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "parse.h"

static bool may_end(int token)
{
	switch (token) {
	case T_EOL: case '{': case 0:
	case T_ARROW: case T_EQ: case T_NE: case T_LE: case T_GE: case T_FLOORDIV: case T_ATDIMS:
		return false;
	default:
		return token > 255 || token == ')' || token == ']' || token == '}';
	}
}

static const struct bracket *top(const struct parser *ps)
{
	return ps->open.n ? &ps->open.at[ps->open.n - 1] : NULL;
}

static bool in_brackets(const struct parser *ps)
{
	return ps->open.n && top(ps)->c != '{';
}

void scan_step(struct parser *ps, struct span *at, const char *text, size_t n)
{
	*at = (struct span){ ps->file, ps->line, ps->col, (uint32_t)(n > 65535 ? 65535 : n) };
	for (size_t i = 0; i < n; i++) {
		ps->col++;
		if (text[i] == '\n') {
			ps->line++;
			ps->col = 1;
		}
	}
	ps->offset += n;
}

int scan_token(struct parser *ps, int token, const char *name, const struct span *at)
{
	ps->before = ps->last;
	ps->last = token;
	if (token == T_EOL) {
		ps->count = 0;
		ps->recovering = ps->muted = false;
	} else if (++ps->count == 1) {
		ps->first_text = name;
		ps->first_at = *at;
	}
	return token;
}

int scan_open(struct parser *ps, int token, char c, const struct span *at)
{
	bool word = ps->last > 255 && may_end(ps->last) && ps->last != T_NUMBER;

	PUSH(ps->mem, &ps->open, ((struct bracket){ c, c == '(' && word, *at, ps->offset }));
	scan_token(ps, token, NULL, at);
	if (c == '{')
		ps->count = 0;
	return token;
}

int scan_close(struct parser *ps, int token, char opens, const struct span *at)
{
	if (ps->open.n && top(ps)->c == opens)
		ps->open.n--;
	return scan_token(ps, token, NULL, at);
}

int scan_error(struct parser *ps, struct span at, const char *what)
{
	if (!ps->recovering)
		diag_error(ps->diag, at, "%s", what);
	scan_recover(ps, T_WORD);
	return T_YYerror;
}

int scan_stray(struct parser *ps, const char *text, struct span at)
{
	unsigned char c = (unsigned char)*text;

	if (c >= 32 && c < 127)
		return scan_error(ps, at, arena_printf(ps->mem, "'%c' means nothing here", c));
	return scan_error(ps, at, arena_printf(ps->mem, "byte 0x%02x outside a comment or string%s", c, c < 128 ? "" :
		"; names are of letters a to z, digits and _"));
}

int scan_end(struct parser *ps, struct span *at)
{
	*at = (struct span){ ps->file, ps->line, ps->col, 1 };
	if (ps->open.n && !ps->muted && !ps->recovering) {
		diag_error(ps->diag, top(ps)->at, "'%c' is not closed", top(ps)->c);
		ps->open.n = 0;
		ps->muted = true;
		return T_YYerror;
	}
	if (ps->count) {
		bool muted = ps->muted;

		scan_token(ps, T_EOL, NULL, at);
		ps->muted = muted;
		return T_EOL;
	}
	return T_YYEOF;
}

int scan_keyword(const char *text)
{
	static const struct { const char *text; int token; } words[] = {
		{ "dim", T_DIM }, { "input", T_INPUT }, { "param", T_PARAM }, { "state", T_STATE },
		{ "update", T_UPDATE }, { "metric", T_METRIC }, { "repeat", T_REPEAT },
		{ "def", T_DEF }, { "return", T_RETURN }, { "include", T_INCLUDE },
		{ "minimize", T_MINIMIZE }, { "plan", T_PLAN }, { "hardware", T_HARDWARE },
		{ "checkpoint", T_CHECKPOINT }, { "with", T_WITH }, { "over", T_OVER }, { "on", T_ON },
	};

	for (size_t i = 0; i < LEN(words); i++)
		if (streq(text, words[i].text))
			return words[i].token;
	return T_NAME;
}

/* The first byte after blanks, comments and ends of lines; its offset in *p. */
static int peek(const struct parser *ps, size_t *p)
{
	while (*p < ps->len) {
		char c = ps->text[*p];

		if (c == '#')
			while (*p < ps->len && ps->text[*p] != '\n')
				++*p;
		else if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
			++*p;
		else
			return (unsigned char)c;
	}
	return -1;
}

static struct span place(const struct parser *ps, size_t offset)
{
	struct span at = { ps->file, ps->line, ps->col, 1 };

	for (size_t i = ps->offset; i < offset; i++) {
		at.col++;
		if (ps->text[i] == '\n') {
			at.line++;
			at.col = 1;
		}
	}
	return at;
}

/* A '{' on a line of its own is reported here, and read as if it stood where it belongs. */
bool scan_ends_line(struct parser *ps, char c)
{
	size_t p = ps->offset;

	if (!ps->count || in_brackets(ps))
		return false;
	if (ps->recovering)
		return true;
	if (!may_end(ps->last))
		return false;
	if (c == '\n' && peek(ps, &p) == '{') {
		diag_error(ps->diag, place(ps, p), "'{' belongs on the line of '%.40s'",
			   ps->first_text ? ps->first_text : "its statement");
		return false;
	}
	return true;
}

bool scan_unclosed(struct parser *ps)
{
	if (!in_brackets(ps))
		return false;
	if (!ps->recovering)
		diag_error(ps->diag, top(ps)->at, "'%c' is not closed", top(ps)->c);
	while (in_brackets(ps))
		ps->open.n--;
	ps->recovering = ps->muted = true;
	if (!ps->count)
		ps->count = 1;
	return true;
}

struct node *scan_number(struct parser *ps, const char *text, const struct span *at)
{
	static const struct { const char *text; double by; } suffixes[] = {
		{ "Ki", 0x1p10 }, { "Mi", 0x1p20 }, { "Gi", 0x1p30 }, { "Ti", 0x1p40 },
		{ "Pi", 0x1p50 }, { "K", 1e3 }, { "M", 1e6 }, { "G", 1e9 }, { "T", 1e12 },
		{ "P", 1e15 }, { "m", 1e-3 }, { "u", 1e-6 }, { "n", 1e-9 },
	};
	struct node *n = node_new(ps, N_NUMBER, *at);
	char *end;

	n->number = strtod(text, &end);
	n->whole = !strpbrk(text, ".eE");
	for (size_t i = 0; i < LEN(suffixes); i++)
		if (streq(end, suffixes[i].text)) {
			/* divide: 3u is the double nearest to 3e-6 */
			n->number = suffixes[i].by < 1 ? n->number / nearbyint(1 / suffixes[i].by) :
						       n->number * suffixes[i].by;
			n->whole = suffixes[i].by > 1 && n->number == floor(n->number);
		}
	if (!isfinite(n->number) || (n->whole && n->number >= 0x1p62)) {
		diag_error(ps->diag, *at, "this number is too large");
		n->number = 1;
	}
	n->integer = n->whole ? (int64_t)n->number : 0;
	return n;
}

/* Is the innermost bracket closed before the text says that it cannot be? */
static bool closes(const struct parser *ps, size_t p)
{
	int depth = 1;

	for (; p < ps->len; p++) {
		char c = ps->text[p];

		if (c == '#') {
			while (p + 1 < ps->len && ps->text[p + 1] != '\n')
				p++;
		} else if (c == '"') {
			while (p + 1 < ps->len && ps->text[p + 1] != '"' && ps->text[p + 1] != '\n')
				p++;
			p++;
		} else if (c == '(' || c == '[') {
			depth++;
		} else if (c == ')' || c == ']') {
			if (--depth == 0)
				return true;
		} else if (c == '{' || c == '}') {
			return false;
		}
	}
	return false;
}

const struct bracket *scan_recover(struct parser *ps, int token)
{
	struct bracket *lost = NULL;

	if (in_brackets(ps) && !closes(ps, top(ps)->offset)) {
		lost = NEW(ps->mem, struct bracket);
		*lost = *top(ps);
		while (in_brackets(ps))
			ps->open.n--;
	}
	ps->recovering = token != T_EOL;
	if (token == '{' && ps->open.n) {
		ps->open.n--;
		ps->skip = 1;
	}
	return lost;
}
