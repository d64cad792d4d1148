/* ir/file.c - see file.h. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ir/file.h"

static const struct span nowhere;

static bool can_replace(const char *path)
{
	struct stat st;

	return lstat(path, &st) != 0 || S_ISREG(st.st_mode);
}

bool outfile_check(struct arena *mem, const char *path, struct diag *d)
{
	struct outfile o;
	struct stat st;

	if (!can_replace(path)) { /* to open it would empty it, or wait for the reader of a pipe */
		errno = 0;
		bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);

		if (!folder && (access(path, W_OK) == 0 || errno == ENOENT)) /* a link to what is not there yet */
			return true;
		return diag_error(d, nowhere, "'%s' can't be written: %s", path, strerror(folder ? EISDIR : errno));
	}
	if (!outfile_open(&o, mem, path, d))
		return false;
	fclose(o.f);
	unlink(o.tmp);
	return true;
}

bool outfile_open(struct outfile *o, struct arena *mem, const char *path, struct diag *d)
{
	*o = (struct outfile){ .path = path };
	o->tmp = can_replace(path) ? arena_printf(mem, "%s.%ld.tmp", path, (long)getpid()) : arena_strdup(mem, path);
	o->f = fopen(o->tmp, "wbe");
	return o->f || diag_error(d, nowhere, "'%s' can't be written: %s", path, strerror(errno));
}

void outfile_put(struct outfile *o, const void *s, size_t n)
{
	errno = 0;
	if (n && fwrite(s, 1, n, o->f) != n && !o->why)
		o->why = errno ? errno : EIO;
}

bool outfile_close(struct outfile *o, bool ok, struct diag *d)
{
	if (!ok && !o->why)
		o->why = errno ? errno : EIO;
	if (fclose(o->f) != 0 && !o->why)
		o->why = errno;
	if (!o->why && !streq(o->tmp, o->path) && rename(o->tmp, o->path) != 0)
		o->why = errno;
	if (!o->why)
		return true;
	if (!streq(o->tmp, o->path))
		unlink(o->tmp);
	return diag_error(d, nowhere, "'%s' can't be written: %s", o->path, strerror(o->why));
}

double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
