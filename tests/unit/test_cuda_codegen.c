/* The kernels of test_codegen.c as CUDA, against those in C. */
#define WITH_CUDA
#include "tests/unit/test_codegen.c"
