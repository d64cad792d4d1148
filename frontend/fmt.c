/* frontend/fmt.c - lays a file out anew: a statement a line, canonical spaces, long lines wrapped.
 * It walks the scanner's tokens and what lies between them; the layout follows from the tokens,
 * the comments and the breaks that were there, so that to format twice is to format once. */
#include "frontend/fmt.h"

#include <string.h>

#include "frontend/ast.h"
#include "parse.h"
#define YY_NO_UNISTD_H
#include "scan.h"

enum { WIDTH = 100, INDENT = 4, FAR = 60, NEVER = 1 << 20 };

struct comment {
	size_t at, len;
	bool own;   /* on a line of its own */
	bool blank; /* after a blank line */
};

struct token {
	int kind;
	size_t at, len;
	uint32_t first, last; /* the comments in front of it: first .. last-1 */
	bool broken, blank;   /* first on its line; after a blank line */
	/* in its statement */
	bool space; /* a space in front of it */
	bool unary;
	int cost; /* of a line break behind it; NEVER: none */
};

struct lexed {
	const char *text;
	size_t len;
	VEC(struct token) tokens;
	VEC(struct comment) comments;
};

struct fmt {
	struct arena *mem;
	struct lexed in;
	struct text out;
	size_t line; /* where out's last line begins */
	size_t col;  /* how wide it is so far */
	uint32_t i;  /* the next token */
	VEC(int) blocks;       /* the word that opened each block around */
	VEC(size_t) brackets;  /* the column behind each open bracket of the statement */
	bool fresh;            /* nothing stands in this block yet */
};

/* -- tokens and comments -- */

/* What lies between two tokens. *lines: the ends of lines since the last token or comment. */
static void read_gap(struct arena *mem, struct lexed *x, size_t from, size_t to, int *lines)
{
	for (size_t p = from; p < to; p++) {
		const char *nl;
		size_t end;

		if (x->text[p] == '\n')
			++*lines;
		if (x->text[p] != '#')
			continue;
		nl = memchr(x->text + p, '\n', to - p);
		end = nl ? (size_t)(nl - x->text) : to;
		struct comment c = { p, end - p, *lines > 0, *lines > 1 };
		while (c.len && strchr(" \t\r", x->text[p + c.len - 1]) && x->text[p + c.len - 1])
			c.len--;
		PUSH(mem, &x->comments, c);
		*lines = 0;
		p = end - 1;
	}
}

/* All tokens of a text without mistakes, the end of the file last; false if it has some. */
static bool lex(struct arena *mem, struct lexed *x, struct sources *src, struct diag *d, uint32_t file)
{
	struct parser ps = { .mem = mem, .src = src, .diag = d, .file = file, .line = 1, .col = 1,
			     .text = x->text, .len = x->len };
	void *scanner;
	size_t end = 0;
	int kind, lines = 1;

	if (yylex_init_extra(&ps, &scanner))
		die("out of memory");
	yy_scan_bytes(x->text, (int)x->len, scanner);
	do {
		YYSTYPE value;
		YYLTYPE at;
		uint32_t first = x->comments.n;

		kind = yylex(&value, &at, scanner);
		bool real = kind != T_EOL && kind > 0 && kind != T_YYerror;
		size_t len = real ? (size_t)yyget_leng(scanner) : 0;

		read_gap(mem, x, end, ps.offset - len, &lines);
		end = ps.offset;
		struct token t = { .kind = kind, .at = end - len, .len = len, .first = first,
				   .last = x->comments.n, .broken = lines > 0, .blank = lines > 1 };
		PUSH(mem, &x->tokens, t);
		if (real)
			lines = 0;
	} while (kind > 0 && kind != T_YYerror);
	yylex_destroy(scanner);
	return kind == T_YYEOF && end == x->len;
}

static bool same_bytes(const char *a, size_t na, const char *b, size_t nb)
{
	return na == nb && memcmp(a, b, na) == 0;
}

/* The same tokens make the same tree. */
static bool same_tokens(const struct lexed *a, const struct lexed *b)
{
	if (a->tokens.n != b->tokens.n || a->comments.n != b->comments.n)
		return false;
	for (uint32_t i = 0; i < a->tokens.n; i++) {
		const struct token *s = &a->tokens.at[i], *t = &b->tokens.at[i];

		if (s->kind != t->kind || !same_bytes(a->text + s->at, s->len, b->text + t->at, t->len))
			return false;
	}
	for (uint32_t i = 0; i < a->comments.n; i++) {
		const struct comment *s = &a->comments.at[i], *t = &b->comments.at[i];

		if (s->own != t->own || !same_bytes(a->text + s->at, s->len, b->text + t->at, t->len))
			return false;
	}
	return true;
}

/* -- spaces, and where a line may break -- */

static bool is_word(int kind)
{
	return kind == T_NAME || kind == T_WORD || (kind >= T_DIM && kind <= T_ON);
}

static bool is_operand(int kind)
{
	return is_word(kind) || kind == T_NUMBER || kind == T_STRING || kind == ')' || kind == ']';
}

static bool is_opening(int kind)
{
	return kind == '(' || kind == '[' || kind == T_ATDIMS;
}

/* The lines of a plan begin with a name and go on with values. */
static bool is_plan(int block)
{
	return block == T_PLAN || block == T_HARDWARE;
}

static bool space_between(const struct token *a, const struct token *b, bool head, int block)
{
	if (a->unary || is_opening(a->kind) || a->kind == '.')
		return false;
	switch (b->kind) {
	case ')': case ']': case ',': case ':': case '.':
		return false;
	case '(':
		return head || !is_word(a->kind);
	case '[':
		return !is_operand(a->kind);
	case '/':
		return block != T_CHECKPOINT;
	}
	return a->kind != '/' || block != T_CHECKPOINT;
}

/* Commas rather than operators, outer ones rather than inner ones, all rather than the left side. */
static int break_cost(const struct token *t, int depth)
{
	switch (t->kind) {
	case ',':
		return 2 * depth;
	case '+': case '-': case '|': case '&': case '<': case '>':
	case T_EQ: case T_NE: case T_LE: case T_GE:
		return t->unary ? NEVER : 2 * depth + 1;
	case '*': case '/': case '%': case '@': case T_FLOORDIV:
		return 2 * depth + 3;
	case '=': case '~': case T_ARROW:
		return depth ? NEVER : 5;
	}
	return NEVER;
}

static void prepare(struct token *t, uint32_t n, int block)
{
	bool head = t->kind == T_RETURN || is_plan(block);
	uint32_t left = 0;
	int depth = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct token *a = i ? &t[i - 1] : NULL;
		bool first = i == 1 && head;

		t[i].unary = t[i].kind == '!' || (t[i].kind == '-' && (!a || !is_operand(a->kind) || first));
		t[i].space = a && space_between(a, &t[i], first, block);
		if (is_opening(t[i].kind))
			depth++;
		else if (depth && (t[i].kind == ')' || t[i].kind == ']'))
			depth--;
		t[i].cost = break_cost(&t[i], depth);
		if (t[i].kind == '=' && depth == 0 && !left)
			left = i;
	}
	for (uint32_t i = 0; i < left; i++)
		if (t[i].cost > 1 && t[i].cost < NEVER)
			t[i].cost += 20;
}

/* -- lines -- */

static size_t width(const char *s, size_t n)
{
	size_t cols = 0;

	for (size_t i = 0; i < n; i++)
		cols += ((unsigned char)s[i] & 0xc0) != 0x80;
	return cols;
}

static void put(struct fmt *f, const char *s, size_t n)
{
	text_bytes(&f->out, s, n);
	f->col += width(s, n);
}

static void begin_line(struct fmt *f, bool blank, size_t indent)
{
	if (f->out.n)
		text_bytes(&f->out, "\n\n", blank && !f->fresh ? 2 : 1);
	f->fresh = false;
	f->line = f->out.n;
	f->col = indent;
	for (size_t i = 0; i < indent; i++)
		text_bytes(&f->out, " ", 1);
}

/* How many spaces stand before a comment behind code: as many as there were, if the code of the
 * line has not changed; else two. */
static size_t padding(const struct fmt *f, const struct comment *c)
{
	const char *text = f->in.text;
	size_t begin = c->at, end = c->at;

	while (begin > 0 && text[begin - 1] != '\n')
		begin--;
	while (end > begin && text[end - 1] == ' ')
		end--;
	if (c->at - end < 2 || !same_bytes(text + begin, end - begin, f->out.s + f->line, f->out.n - f->line))
		return 2;
	return c->at - end;
}

static void put_comment(struct fmt *f, const struct comment *c, size_t indent)
{
	if (c->own || !f->out.n)
		begin_line(f, c->blank, indent);
	else
		for (size_t n = padding(f, c); n; n--)
			put(f, " ", 1);
	put(f, f->in.text + c->at, c->len);
}

/* The comments in front of a token that begins or ends a statement. */
static void put_comments(struct fmt *f, const struct token *t)
{
	for (uint32_t i = t->first; i < t->last; i++)
		put_comment(f, &f->in.comments.at[i], f->blocks.n * INDENT);
}

static size_t continued(const struct fmt *f)
{
	if (f->brackets.n)
		return f->brackets.at[f->brackets.n - 1];
	return (f->blocks.n + 1) * INDENT;
}

static void put_token(struct fmt *f, const struct token *t, bool begins)
{
	if (t->space && !begins)
		put(f, " ", 1);
	put(f, f->in.text + t->at, t->len);
	if (is_opening(t->kind)) {
		size_t col = f->col <= FAR ? f->col : (f->blocks.n + 2) * INDENT;

		PUSH(f->mem, &f->brackets, col);
	} else if ((t->kind == ')' || t->kind == ']') && f->brackets.n) {
		f->brackets.n--;
	}
}

/* How many of the n tokens go on the line that begins with the first of them: up to a comment, to
 * where the line was broken before (if that is a good place), or to the cheapest break that keeps
 * the line short enough and not too short. */
static uint32_t fitting(const struct fmt *f, const struct token *t, uint32_t n)
{
	size_t col = f->col, third = col + (WIDTH - (col < WIDTH ? col : WIDTH)) / 3;
	uint32_t late = 0, any = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (i && (t[i].first < t[i].last || (t[i].broken && t[i - 1].cost < NEVER)))
			return i;
		col += (i && t[i].space) + width(f->in.text + t[i].at, t[i].len);
		if (col > WIDTH && any)
			return late ? late : any;
		if (t[i].cost == NEVER || i + 1 == n)
			continue;
		if (!any || t[i].cost <= t[any - 1].cost)
			any = i + 1;
		if (col > third && (!late || t[i].cost <= t[late - 1].cost))
			late = i + 1;
	}
	return n;
}

static void put_statement(struct fmt *f, const struct token *t, uint32_t n)
{
	f->brackets.n = 0;
	while (n) {
		uint32_t k = fitting(f, t, n);

		for (uint32_t i = 0; i < k; i++)
			put_token(f, &t[i], i == 0);
		t += k;
		n -= k;
		if (!n)
			break;
		for (uint32_t i = t->first; i < t->last; i++)
			put_comment(f, &f->in.comments.at[i], continued(f));
		begin_line(f, false, continued(f));
	}
}

/* -- the file -- */

/* From f->i to the end of the statement or to the '{' that ends its line. */
static void format_statement(struct fmt *f)
{
	struct token *t = &f->in.tokens.at[f->i];
	int block = f->blocks.n ? f->blocks.at[f->blocks.n - 1] : 0;
	uint32_t n = 0;

	put_comments(f, t);
	if (t->kind == '}') {
		if (f->blocks.n)
			f->blocks.n--;
		f->fresh = true;
		block = 0;
	}
	begin_line(f, t->blank, f->blocks.n * INDENT);
	while (t[n].kind != T_EOL && t[n].kind != T_YYEOF && t[n].kind != '{')
		n++;
	n += t[n].kind == '{';
	prepare(t, n, block);
	put_statement(f, t, n);
	f->i += n;
	if (n && t[n - 1].kind == '{') {
		PUSH(f->mem, &f->blocks, t->kind);
		f->fresh = true;
	} else if (t[n].kind == T_EOL) {
		put_comments(f, &t[n]);
		f->i++;
	}
}

char *fmt_text(struct arena *mem, struct sources *src, struct diag *d, const char *name, const char *text,
	       size_t len, size_t *out_len)
{
	struct fmt f = { .mem = mem, .in = { .text = text, .len = len }, .out = { .mem = mem }, .fresh = true };
	struct lexed again = { 0 };
	int errors = d->errors;

	text_bytes(&f.out, "", 0);
	ast_parse(mem, src, d, name, text, len);
	if (d->errors > errors)
		return NULL;
	uint32_t file = src->files.n - 1;
	bool good = lex(mem, &f.in, src, d, file);
	while (good && f.in.tokens.at[f.i].kind != T_YYEOF)
		format_statement(&f);
	if (good)
		put_comments(&f, &f.in.tokens.at[f.i]);
	if (f.out.n)
		text_bytes(&f.out, "\n", 1);
	again.text = f.out.s;
	again.len = f.out.n;
	if (!good || !lex(mem, &again, src, d, file) || !same_tokens(&f.in, &again)) {
		if (d->errors == errors)
			diag_error(d, (struct span){ file, 1, 1, 1 }, "ptc fmt would change what this file says: a bug; it is left alone");
		return NULL;
	}
	*out_len = f.out.n;
	return f.out.s;
}
