/* frontend/fmt.h - ptc fmt: a model's text laid out anew, with its comments. */
#ifndef PTC_FMT_H
#define PTC_FMT_H
#include "ir/base.h"
#include "ir/diag.h"

/* The text of one file in the canonical layout, on mem: the same tokens, so the same tree, and the
 * same comments. NULL after errors were reported; `name` is what they call the file. */
char *fmt_text(struct arena *mem, struct sources *src, struct diag *d, const char *name, const char *text,
	       size_t len, size_t *out_len);

#endif
