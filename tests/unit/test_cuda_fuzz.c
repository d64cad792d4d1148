/* The random kernels of test_codegen_fuzz.c as CUDA, against those in C. */
#define WITH_CUDA
#include "tests/unit/test_codegen_fuzz.c"
