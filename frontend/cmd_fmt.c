/* frontend/cmd_fmt.c - ptc fmt FILE...: lays models out; -w writes them back, --check only asks. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/cmd.h"
#include "frontend/fmt.h"

#define MOST_BYTES ((size_t)64 << 20)

static char *read_stdin(struct session *s, size_t *len)
{
	struct text t = { .mem = s->mem };
	char buf[16384];
	size_t n;

	text_bytes(&t, "", 0);
	while ((n = fread(buf, 1, sizeof buf, stdin)) > 0 && t.n <= MOST_BYTES)
		text_bytes(&t, buf, n);
	*len = t.n;
	if (!ferror(stdin))
		return t.s;
	diag_error(&s->diag, (struct span){ 0 }, "stdin: %s", strerror(errno));
	return NULL;
}

static bool failed(struct session *s, const char *path)
{
	return diag_error(&s->diag, (struct span){ 0 }, "%s: %s", path, strerror(errno));
}

/* Beside the file first, so that the old text is there until the new one is whole. */
static bool write_back(struct session *s, const char *path, const char *text, size_t len)
{
	char real[PATH_MAX];
	struct stat st;

	if (!realpath(path, real) || stat(real, &st))
		return failed(s, path);
	char *temp = arena_printf(s->mem, "%s.XXXXXX", real);
	int fd = mkstemp(temp);
	if (fd < 0)
		return failed(s, path);
	FILE *f = fdopen(fd, "wb");
	bool good = f && fwrite(text, 1, len, f) == len && fflush(f) == 0 && fchmod(fd, st.st_mode & 07777) == 0;
	int error = errno;

	if (f ? fclose(f) != 0 : close(fd) != 0) {
		error = good ? errno : error;
		good = false;
	}
	if (good && rename(temp, real)) {
		error = errno;
		good = false;
	}
	if (good)
		return true;
	unlink(temp);
	errno = error;
	return failed(s, path);
}

/* -1: an error was reported; else whether --check finds fault with the file. */
static int format_file(struct session *s, const char *path)
{
	const struct options *o = s->opt;
	bool in = streq(path, "-");
	size_t len, n;
	char *text = in ? read_stdin(s, &len) : read_file(s, path, &len);

	if (!text)
		return -1;
	if (len > MOST_BYTES) {
		diag_error(&s->diag, (struct span){ 0 }, "%s: more than 64 MB", in ? "stdin" : path);
		return -1;
	}
	char *out = fmt_text(s->mem, &s->src, &s->diag, in ? "stdin" : path, text, len, &n);
	if (!out)
		return -1;
	bool same = n == len && memcmp(out, text, n) == 0;
	if (o->dry) {
		if (!same)
			printf("%s\n", in ? "stdin" : path);
		return !same;
	}
	if (o->write_back && !in)
		return same || write_back(s, path, out, n) ? 0 : -1;
	return write_file(s, NULL, out, n) ? 0 : -1;
}

int cmd_fmt(struct session *s)
{
	int status = DONE;

	for (int i = 0; i < s->opt->nfiles; i++) {
		s->diag.errors = 0; /* the limit of messages is one for each file */
		if (format_file(s, s->opt->files[i]) != 0)
			status = WRONG;
	}
	return status;
}
