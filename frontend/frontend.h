/* frontend/frontend.h - from the text of a model to the IR. The rest of the folder is private:
 * ast.h (the tree), lower.h (checks and lowering, one walk in source order). */
#ifndef PTC_FRONTEND_H
#define PTC_FRONTEND_H
#include "ir/ir.h"

struct front_options {
	const char *plan;  /* which plan of the file; NULL: the unnamed one, else the first */
	const char *mesh;  /* "dp=4,tp=2": sizes of axes; NULL: as written */
	const char **sets; /* "embed=768,layers=2": dims, constants and settings */
	int nsets;
	const char *add;   /* "optimizer -> dp; seq -> tp": more lines of the plan, behind its own; NULL: none */
};

/* Reads the file, parses, checks, lowers. NULL after errors were reported. The module lives on mem. */
struct module *front_compile(struct arena *mem, struct sources *src, struct diag *d, const char *path,
			     const struct front_options *opt);
/* The same of a text in memory. Its includes are files, looked for beside the path `name`. */
struct module *front_compile_text(struct arena *mem, struct sources *src, struct diag *d, const char *name,
				  const char *text, size_t len, const struct front_options *opt);

#endif
