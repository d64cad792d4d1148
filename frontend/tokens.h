/* frontend/tokens.h - what the rules of scan.l call. */
#ifndef PTC_TOKENS_H
#define PTC_TOKENS_H
#include "frontend/ast.h"

/* Moves over a piece of text and gives its place. */
void scan_step(struct parser *ps, struct span *at, const char *text, size_t n);
/* Each gives the token back, after keeping what the advice on syntax slips needs. */
int scan_token(struct parser *ps, int token, const char *name, const struct span *at);
int scan_open(struct parser *ps, int token, char c, const struct span *at);
int scan_close(struct parser *ps, int token, char opens, const struct span *at);
int scan_end(struct parser *ps, struct span *at);
int scan_error(struct parser *ps, struct span at, const char *what);
int scan_stray(struct parser *ps, const char *text, struct span at);
int scan_keyword(const char *text);
bool scan_ends_line(struct parser *ps, char c);
/* A '(' or '[' is open where only a '{' could be: says so, forgets them. */
bool scan_unclosed(struct parser *ps);
struct node *scan_number(struct parser *ps, const char *text, const struct span *at);
/* After a syntax error at `token`: what the bracket stack and the scanner do until the end of
 * the line. Gives the bracket that is never closed, or NULL. */
const struct bracket *scan_recover(struct parser *ps, int token);

#endif
