/* runtime/cuda/env.c - see env.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/env.h"

bool env_set(const char *name)
{
	const char *s = getenv(name);

	return s && *s;
}

bool env_number(const char *name, int low, int high, int *x, char *why)
{
	const char *s = getenv(name);

	if (!env_set(name))
		return true;
	long n = strspn(s, "0123456789") == strlen(s) && strlen(s) < 10 ? strtol(s, NULL, 10) : -1;

	if (n < low || n > high) {
		snprintf(why, ENV_TEXT, "%s=%.40s is no number from %d to %d", name, s, low, high);
		return false;
	}
	*x = (int)n;
	return true;
}
