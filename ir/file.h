/* ir/file.h - files that are written whole or not at all, and the clock. */
#ifndef PTC_FILE_H
#define PTC_FILE_H
#include <stdio.h>

#include "ir/ir.h"

/* A file being written beside the one that it will replace. What is no regular file (a pipe, /dev/stdout) is written
 * in place. */
struct outfile {
	FILE *f;
	const char *path;
	char *tmp;      /* on mem of outfile_open; equal to path: in place */
	int why;        /* errno of the first failure seen */
};
/* Before long work: can it be written? Nothing is left of the attempt. false after an error, which was reported. */
bool outfile_check(struct arena *mem, const char *path, struct diag *d);
bool outfile_open(struct outfile *o, struct arena *mem, const char *path, struct diag *d);
void outfile_put(struct outfile *o, const void *s, size_t n);
/* ok false: the text was not whole, for the reason in errno; the old file stays. false after an error, which was
 * reported. */
bool outfile_close(struct outfile *o, bool ok, struct diag *d);

double seconds_now(void); /* since some moment; never goes back */

#endif
