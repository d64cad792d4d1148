/* ir/diag.h - the source files of a compilation and what is said about them.
 * Messages: lower case, no full stop, names in single quotes, the offending value given;
 * a note says what to do. One mistake, one message; after 20 errors the rest is dropped. */
#ifndef PTC_DIAG_H
#define PTC_DIAG_H
#include <stdio.h>

#include "ir/base.h"

struct source {
	const char *name; /* as the user wrote it */
	const char *text; /* NULL: not at hand (a plan that was loaded elsewhere) */
	size_t len;
};

struct sources {
	VEC(struct source) files; /* index = span.file */
};

enum severity { NOTE, WARNING, ERROR };

struct diag {
	struct arena *mem;
	struct sources *src; /* may be NULL: then only names and lines of spans are unknown */
	FILE *out;           /* NULL: collect only */
	struct text log;     /* everything said, as printed */
	int errors, warnings;
};

void diag_init(struct diag *d, struct arena *mem, struct sources *src, FILE *out);

/* "file:line:col: error: what", the source line, a caret. Returns false, so that
 * `return diag_error(...)` ends a check. A note follows the message it belongs to and is
 * dropped with it. */
bool diag_error(struct diag *d, struct span at, const char *fmt, ...) PRINTF(3, 4);
void diag_warn(struct diag *d, struct span at, const char *fmt, ...) PRINTF(3, 4);
void diag_note(struct diag *d, struct span at, const char *fmt, ...) PRINTF(3, 4);

/* The candidate nearest to name by edit distance, NULL if none is near enough
 * (distance <= 1 + len/4). */
struct near {
	const char *name, *best;
	int dist;
};
void near_offer(struct near *n, const char *candidate);

/* "gpt2.pdsl:14", for a why; "?" if the span is nowhere. On the arena. */
const char *span_text(struct arena *mem, const struct sources *src, struct span at);

#endif
