/* runtime/cuda/env.h - numbers that the environment gives to the CUDA backend. */
#ifndef PTC_CUDA_ENV_H
#define PTC_CUDA_ENV_H
#include <stdbool.h>

enum { ENV_TEXT = 400 }; /* bytes of a reason */

/* *x stays as it is where the variable is not set, or empty. false: why. */
bool env_number(const char *name, int low, int high, int *x, char *why);
bool env_set(const char *name); /* and not empty */

#endif
