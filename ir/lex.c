/* ir/lex.c - tokens, names and numbers of IR text. Strings are decoded; nothing is copied else. */
#include "ir/lex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TOKEN = 64 };

/* -- errors: the first one ends the text -- */

bool lex_fail_at(struct parser *p, struct token at, const char *fmt, ...)
{
	struct source me = { p->name, p->text, p->len };
	struct sources one = { { &me, 1, 1 } };
	struct sources *was = p->d->src;
	char what[400];
	va_list ap;

	p->tok.kind = T_END;
	if (p->bad)
		return false;
	p->bad = true;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	p->d->src = &one;
	diag_error(p->d, (struct span){ 0, at.line, at.col, (uint32_t)(at.n < 80 ? at.n : 1) }, "%s", what);
	p->d->src = was;
	return false;
}

/* -- tokens -- */

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool in_word(char c)
{
	return is_letter(c) || is_digit(c) || c == '/' || c == '\'';
}

char lex_peek(const struct parser *p, size_t ahead)
{
	return p->pos + ahead < p->len ? p->text[p->pos + ahead] : 0;
}

static int hex(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* The character that an escape stands for, 0 if there is none. */
static char escape(struct parser *p)
{
	char c = lex_peek(p, 1);

	p->pos += 2;
	switch (c) {
	case '"':
	case '\\':
		return c;
	case 'n':
		return '\n';
	case 'x': {
		int h = hex(lex_peek(p, 0)), l = hex(lex_peek(p, 1));

		p->pos += 2;
		return (char)(h < 0 || l < 0 ? 0 : h * 16 + l);
	}
	default:
		return 0;
	}
}

static void scan_string(struct parser *p)
{
	struct text t = { .mem = p->mem };

	p->tok.kind = T_STRING;
	text_bytes(&t, "", 0);
	for (p->pos++;;) {
		char c = lex_peek(p, 0);

		if (c == '"')
			break;
		if (!c || c == '\n') {
			lex_fail(p, "a string without an end");
			return;
		}
		if (c == '\\')
			c = escape(p);
		else
			p->pos++;
		if (!c) {
			lex_fail(p, "a wrong escape in a string");
			return;
		}
		text_bytes(&t, &c, 1);
	}
	p->pos++;
	p->tok.s = t.s;
	p->tok.n = t.n;
}

static void scan_number(struct parser *p)
{
	size_t from = p->pos;

	p->tok.kind = T_NUMBER;
	while (is_digit(lex_peek(p, 0)) || lex_peek(p, 0) == '.' || lex_peek(p, 0) == 'e') {
		p->pos++;
		if (p->text[p->pos - 1] == 'e' && (lex_peek(p, 0) == '-' || lex_peek(p, 0) == '+'))
			p->pos++;
	}
	p->tok.n = p->pos - from;
}

static void scan_value(struct parser *p)
{
	uint64_t id = 0;
	size_t from = p->pos++;

	p->tok.kind = T_VALUE;
	while (is_digit(lex_peek(p, 0)) && id < UINT32_MAX)
		id = id * 10 + (uint64_t)(p->text[p->pos++] - '0');
	p->tok.n = p->pos - from;
	p->tok.id = (uint32_t)id;
	if (p->tok.n < 2)
		lex_fail(p, "'%%' without a number");
	else if (id >= UINT32_MAX - 1)
		lex_fail(p, "too large a number of a value");
}

void lex_skip_blanks(struct parser *p)
{
	while (lex_peek(p, 0) == ' ' || lex_peek(p, 0) == '\t' || lex_peek(p, 0) == '\r')
		p->pos++;
	if (lex_peek(p, 0) == '#')
		while (p->pos < p->len && p->text[p->pos] != '\n')
			p->pos++;
}

void lex_next(struct parser *p)
{
	if (p->bad)
		return;
	lex_skip_blanks(p);
	p->tok = (struct token){ .kind = T_END, .s = p->text + p->pos, .n = 1, .line = p->line,
				 .col = (uint32_t)(p->pos - p->line_at + 1) };
	if (p->pos >= p->len)
		return;
	char c = p->text[p->pos];
	if (c == '"') {
		scan_string(p);
	} else if (c == '%') {
		scan_value(p);
	} else if (is_digit(c)) {
		scan_number(p);
	} else if (is_letter(c)) {
		p->tok.kind = T_WORD;
		while (in_word(lex_peek(p, 0)))
			p->pos++;
		p->tok.n = (size_t)(p->text + p->pos - p->tok.s);
	} else if (c == '-' && lex_peek(p, 1) == '>') {
		p->tok.kind = T_TO;
		p->pos += 2;
	} else if (c > 0 && strchr("\n:=@{}[](),.+^!-", c)) {
		p->tok.kind = c;
		p->pos++;
		p->line += c == '\n';
		p->line_at = c == '\n' ? p->pos : p->line_at;
	} else {
		lex_fail(p, "unexpected character '%.*s'", c >= 32 && c < 127 ? 1 : 0, &p->text[p->pos]);
	}
}

bool lex_accept(struct parser *p, int kind)
{
	if (p->tok.kind != kind || kind == T_END)
		return false;
	lex_next(p);
	return true;
}

bool lex_expect(struct parser *p, int kind, const char *what)
{
	return lex_accept(p, kind) || lex_fail(p, "%s expected", what);
}

bool lex_is_word(const struct token *t, const char *word)
{
	return t->kind == T_WORD && t->n == strlen(word) && memcmp(t->s, word, t->n) == 0;
}

bool lex_accept_word(struct parser *p, const char *word)
{
	if (!lex_is_word(&p->tok, word))
		return false;
	lex_next(p);
	return true;
}

/* word '=' */
bool lex_accept_key(struct parser *p, const char *word)
{
	return lex_accept_word(p, word) && lex_expect(p, '=', "'='");
}

void lex_end_line(struct parser *p)
{
	if (p->tok.kind != T_END)
		lex_expect(p, T_LINE, "the end of the line");
}

/* A plain or a quoted name; "" after an error. */
const char *lex_name(struct parser *p, const char *what)
{
	const char *s = "";

	if (p->tok.kind != T_WORD && p->tok.kind != T_STRING)
		lex_fail(p, "%s expected", what);
	else if (p->tok.kind == T_STRING && !p->tok.n)
		lex_fail(p, "%s without a name", what);
	else
		s = p->tok.kind == T_STRING ? p->tok.s : arena_strndup(p->mem, p->tok.s, p->tok.n);
	lex_next(p);
	return s;
}

const char *lex_string(struct parser *p, const char *what)
{
	const char *s = p->tok.kind == T_STRING ? p->tok.s : "";

	lex_expect(p, T_STRING, what);
	return s;
}

int64_t lex_int(struct parser *p, int64_t least, int64_t most)
{
	struct token at = p->tok;
	bool minus = lex_accept(p, '-');
	uint64_t x = 0;
	bool ok = p->tok.kind == T_NUMBER;

	for (size_t i = 0; ok && i < p->tok.n; i++) {
		ok = is_digit(p->tok.s[i]) && x < UINT64_MAX / 10 - 1;
		x = x * 10 + (uint64_t)(p->tok.s[i] - '0');
	}
	ok = ok && x <= (uint64_t)INT64_MAX;
	x = ok ? x : 0;
	int64_t n = minus ? -(int64_t)x : (int64_t)x;
	if (!ok)
		lex_fail_at(p, at, "a whole number expected");
	else if (n < least || n > most)
		lex_fail_at(p, at, "%lld is out of range, [%lld, %lld]", (long long)n, (long long)least, (long long)most);
	lex_next(p);
	return p->bad ? 0 : n;
}

double lex_number(struct parser *p)
{
	struct token at = p->tok;
	bool minus = lex_accept(p, '-');
	char s[MAX_TOKEN], *end = s;
	double x = 0;

	if (lex_is_word(&p->tok, "inf")) {
		x = INFINITY;
	} else if (lex_is_word(&p->tok, "nan")) {
		x = NAN;
	} else if (p->tok.kind == T_NUMBER && p->tok.n < sizeof s) {
		memcpy(s, p->tok.s, p->tok.n);
		s[p->tok.n] = 0;
		x = strtod(s, &end);
		if (*end)
			lex_fail_at(p, at, "a number expected");
	} else {
		lex_fail_at(p, at, "a number expected");
	}
	lex_next(p);
	return minus ? -x : x;
}

struct span lex_span(struct parser *p)
{
	struct span s = { 0 };
	uint32_t *part[] = { &s.file, &s.line, &s.col, &s.len };

	for (size_t i = 0; i < LEN(part); i++) {
		if (i)
			lex_expect(p, ':', "':' in a place");
		*part[i] = (uint32_t)lex_int(p, 0, UINT32_MAX);
	}
	return s;
}

bool lex_accept_span(struct parser *p, struct span *s)
{
	if (!lex_accept(p, '!'))
		return false;
	*s = lex_span(p);
	return true;
}

/* The word's place in a table of names. */
int lex_choice(struct parser *p, const char *const *names, int n, const char *what)
{
	for (int i = 0; i < n; i++)
		if (names[i] && lex_accept_word(p, names[i]))
			return i;
	lex_fail(p, "%s expected, not '%.*s'", what, p->tok.n < 40 ? (int)p->tok.n : 40, p->tok.n ? p->tok.s : "");
	return 0;
}
