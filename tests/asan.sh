#!/bin/sh
# The small tests under ASan with UBSan: nothing leaks or crashes. All unit tests but what runs generated CUDA, whose accesses
# the software GPU checks itself.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
. tests/sanitized.sh

units=$(ls tests/unit | sed -n 's/\.c$//p' | grep -v '^test_cuda_')
# shellcheck disable=SC2086
build_with asan address $units
small asan
# shellcheck disable=SC2086
suite asan unit tests/unit.sh $units
suite asan error tests/error/run.sh
suite asan golden tests/golden/run.sh
suite asan plan tests/plan/run.sh
finish
