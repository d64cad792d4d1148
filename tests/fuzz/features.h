/* tests/fuzz/features.h - what a random module has, to see that each thing is tried often enough. */
#ifndef PTC_FUZZ_FEATURES_H
#define PTC_FUZZ_FEATURES_H
#include "ir/ir.h"

enum { NFEATURES = 33 };

uint64_t features_of(const struct module *m); /* bit set */
const char *feature_name(int i);

#endif
