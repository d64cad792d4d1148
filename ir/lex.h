/* ir/lex.h - the reader of IR text (parse.c): its state, tokens, names and numbers (lex.c). */
#ifndef PTC_LEX_H
#define PTC_LEX_H
#include "ir/ir.h"

/* A character stands for itself. */
enum token_kind { T_END, T_LINE = '\n', T_WORD = 'w', T_STRING = 's', T_NUMBER = '0', T_VALUE = '%', T_TO = '>' };

struct token {
	int kind;
	const char *s; /* in the text; of a string: decoded, NUL-terminated */
	size_t n;
	uint32_t line, col, id;
};

struct fix { /* of=%id, which may stand before its op */
	struct op *op;
	struct token at;
};

struct parser {
	struct arena *mem;
	struct module *m;
	struct diag *d;
	const char *name, *text;
	size_t len, pos, line_at;
	uint32_t line;
	struct token tok;
	bool bad;
	int stage;
	bool axes_listed;
	enum phase phase;
	struct token batch;
	struct schedule listed; /* of the pipeline's list */
	struct value **table; /* by v->id, open addressing; cap is a power of two */
	uint32_t ntable, cap;
	VEC(struct value *) values; /* in order of definition */
	VEC(struct fix) fixes;
};

/* The first error ends the text: every token is T_END from then on. */
bool lex_fail_at(struct parser *p, struct token at, const char *fmt, ...) PRINTF(3, 4);
#define lex_fail(p, ...) lex_fail_at((p), (p)->tok, __VA_ARGS__)
char lex_peek(const struct parser *p, size_t ahead);
void lex_skip_blanks(struct parser *p);
void lex_next(struct parser *p);
bool lex_accept(struct parser *p, int kind);
bool lex_expect(struct parser *p, int kind, const char *what);
bool lex_is_word(const struct token *t, const char *word);
bool lex_accept_word(struct parser *p, const char *word);
bool lex_accept_key(struct parser *p, const char *word);
void lex_end_line(struct parser *p);
const char *lex_name(struct parser *p, const char *what);
const char *lex_string(struct parser *p, const char *what);
int64_t lex_int(struct parser *p, int64_t least, int64_t most);
double lex_number(struct parser *p);
struct span lex_span(struct parser *p);
bool lex_accept_span(struct parser *p, struct span *s);
int lex_choice(struct parser *p, const char *const *names, int n, const char *what);

#endif
