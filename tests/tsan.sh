#!/bin/sh
# Ranks are threads: nothing races under TSan. Less the kernels of oneDNN, which is not instrumented.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
. tests/sanitized.sh

units=$(ls tests/unit | sed -n 's/^\(test_runtime.*\|test_pipeline\|test_offload\)\.c$/\1/p' | grep -v gemm)
# shellcheck disable=SC2086
build_with tsan thread $units
small tsan
# shellcheck disable=SC2086
suite tsan unit tests/unit.sh $units
finish
