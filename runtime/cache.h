/* runtime/cache.h - compiled kernels and what was measured of this machine, kept on disk: cache.c. */
#ifndef PTC_RUNTIME_CACHE_H
#define PTC_RUNTIME_CACHE_H
#include "runtime/internal.h"

char *cache_dir(struct arena *mem, struct diag *d); /* made if need be, ours alone; NULL after an error */
bool cache_ours(const char *path);                  /* only a file of ours is used */
bool cache_put(int fd, const char *s, size_t n);    /* all of it; false: errno */
/* All of a file of ours, with a 0 behind it; NULL: there is none. */
char *cache_read(struct arena *mem, const char *path, size_t *n);
/* Whole or not at all, whoever else writes it. */
bool cache_write(struct arena *mem, const char *path, const char *s, size_t n);

#endif
