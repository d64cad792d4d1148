#!/bin/sh
# The small tests under ASan with UBSan, and under TSan: nothing leaks, races or crashes.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
MAKE=${MAKE:-make}

# The sanitized compiler on one model, compiled, shown, checked and run.
small() {
	kind=$1 PTC=$PWD/build/$2/ptc
	for args in "check tests/equiv/mlp.pdsl --mesh dp=2,tp=2" \
		"check tests/equiv/gpt.pdsl --mesh dp=2,tp=2 --plan all --set batch=4,masked=1,microbatches=2,layers=1" \
		"check tests/equiv/attend.pdsl --mesh cp=3 --set seq=7,src=5,layers=1" \
		"check tests/equiv/attend.pdsl --mesh a=2,b=2 --plan both --set layers=1" \
		"check tests/equiv/attend.pdsl --mesh cp=2 --plan zigzag --set layers=1" \
		"run tests/equiv/gpt.pdsl --mesh dp=2,tp=2 --plan all --set vocab=256 --steps 2 --data tests/data/text.txt --save $TMP/p" \
		"explain tests/equiv/llama.pdsl --mesh dp=2,tp=2 --plan all --json" \
		"tests/equiv/llama.pdsl --mesh dp=2,tp=2 --plan all --verify -o $TMP/plan" \
		"show $TMP/plan"; do
		# shellcheck disable=SC2086
		if expect "$kind: ptc $args" 0 timeout 300 "$PTC" $args; then ok "$kind: ptc $args"; fi
	done
}

suite() {
	kind=$1 name=$2
	shift 2
	BUILD=build/$kind sh "$@" >"$TMP/log" 2>&1
	line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$TMP/log" | tail -1)
	case $line in
	*' passed, 0 failed'*) ok "$kind: $name: $line" ;;
	*) bad "$kind: $name: $line" "$TMP/log" ;;
	esac
}

# Threads: what they do, less the kernels of oneDNN, which is not instrumented. Memory: all but what runs generated CUDA,
# whose accesses the software GPU checks itself.
units_of() {
	if [ "$1" = tsan ]; then
		ls tests/unit | sed -n 's/^\(test_runtime.*\|test_pipeline\)\.c$/\1/p' | grep -v gemm
	else
		ls tests/unit | sed -n 's/\.c$//p' | grep -v '^test_cuda_'
	fi
}

export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=0"
for san in address thread; do
	kind=asan
	[ $san = address ] || kind=tsan
	# shellcheck disable=SC2046
	if ! $MAKE --no-print-directory SAN=$san all $(units_of $kind | sed "s,^,build/$kind/unit/,") >"$TMP/log" 2>&1; then
		grep -v '^  ' "$TMP/log" >"$TMP/why"
		bad "make SAN=$san" "$TMP/why"
		continue
	fi
	ok "make SAN=$san"
	small "$kind" "$kind"
	# shellcheck disable=SC2046
	suite $kind unit tests/unit.sh $(units_of $kind)
	[ $kind = asan ] || continue
	suite $kind error tests/error/run.sh
	suite $kind golden tests/golden/run.sh
	suite $kind plan tests/plan/run.sh
done
finish
