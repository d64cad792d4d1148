/* frontend/syntax.h - what the grammar calls beside the making of nodes: spans that cover
 * others, and what is said about a line that is none. */
#ifndef PTC_SYNTAX_H
#define PTC_SYNTAX_H
#include "frontend/ast.h"

struct span syntax_join(struct span a, struct span b);
struct node *syntax_parens(struct parser *ps, struct node *n, struct span at);
/* "path.name"; at most 1000 bytes, lest a long chain of names takes its length squared. */
const char *syntax_path(struct parser *ps, const char *path, const char *name, struct span at);
/* At the token read last. names: the n tokens that could stand here; n = 0: too many to say. */
void syntax_error(struct parser *ps, struct span at, int n, const char *const *names);

#endif
