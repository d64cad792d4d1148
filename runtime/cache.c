/* runtime/cache.c - the folder of what is made once and used again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cache.h"

static const struct span nowhere;

char *cache_dir(struct arena *mem, struct diag *d)
{
	const char *own = getenv("PTC_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *dir;
	struct stat st;

	if (own && *own) {
		dir = arena_strdup(mem, own);
	} else if (xdg && *xdg) {
		mkdir(xdg, 0700);
		dir = arena_printf(mem, "%s/ptc", xdg);
	} else if (home && *home) {
		dir = arena_printf(mem, "%s/.cache", home);
		mkdir(dir, 0700);
		dir = arena_printf(mem, "%s/.cache/ptc", home);
	} else {
		dir = arena_printf(mem, "/tmp/ptc-%u", (unsigned)getuid());
	}
	if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
		diag_error(d, nowhere, "the kernel cache '%s' can't be made: %s", dir, strerror(errno));
		diag_note(d, nowhere, "set PTC_CACHE to a folder that can be written");
		return NULL;
	}
	if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
		diag_error(d, nowhere, "the kernel cache '%s' is no folder", dir);
		return NULL;
	}
	if (st.st_uid != geteuid() || (st.st_mode & 022)) {
		diag_error(d, nowhere, "the kernel cache '%s' can be written by others", dir);
		diag_note(d, nowhere, "make it yours with mode 0700, or set PTC_CACHE to another folder");
		return NULL;
	}
	return dir;
}

bool cache_put(int fd, const char *s, size_t n)
{
	while (n) {
		ssize_t k = write(fd, s, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		s += k;
		n -= (size_t)k;
	}
	return true;
}

bool cache_ours(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022);
}

char *cache_read(struct arena *mem, const char *path, size_t *n)
{
	int fd = cache_ours(path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	struct stat st;
	char *s = NULL;
	size_t got = 0;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && st.st_size >= 0 && st.st_size < INT32_MAX) {
		s = arena_alloc(mem, (size_t)st.st_size + 1);
		while (got < (size_t)st.st_size) {
			ssize_t k = read(fd, s + got, (size_t)st.st_size - got);

			if (k < 0 && errno == EINTR)
				continue;
			if (k <= 0)
				break;
			got += (size_t)k;
		}
		s = got == (size_t)st.st_size ? s : NULL;
	}
	close(fd);
	*n = got;
	return s;
}

bool cache_write(struct arena *mem, const char *path, const char *s, size_t n)
{
	char *tmp = arena_printf(mem, "%s.%ld.%p.tmp", path, (long)getpid(), (void *)&n);
	int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return false;
	bool ok = cache_put(fd, s, n);

	if (close(fd) == 0 && ok && rename(tmp, path) == 0)
		return true;
	unlink(tmp);
	return false;
}
