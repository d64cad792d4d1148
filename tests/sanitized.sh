# Sourced by the suites asan and tsan: builds the compiler and the unit tests with a sanitizer, and runs small things with them.
MAKE=${MAKE:-make}
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=0"

# build_with asan|tsan SAN UNITS...: nothing can be run if it fails.
build_with() {
	kind=$1 san=$2
	shift 2
	if $MAKE --no-print-directory SAN="$san" all $(printf "build/$kind/unit/%s " "$@") >"$TMP/log" 2>&1; then
		ok "make SAN=$san"
		return
	fi
	grep -v '^  ' "$TMP/log" >"$TMP/why"
	bad "make SAN=$san" "$TMP/why"
	finish
}

# The sanitized compiler on one model, compiled, shown, checked and run.
small() { # asan|tsan
	PTC=$PWD/build/$1/ptc
	for args in "check tests/equiv/mlp.pdsl --mesh dp=2,tp=2" \
		"check tests/equiv/gpt.pdsl --mesh dp=2,tp=2 --plan all --set batch=4,masked=1,microbatches=2,layers=1" \
		"check tests/equiv/attend.pdsl --mesh cp=3 --set seq=7,src=5,layers=1" \
		"check tests/equiv/attend.pdsl --mesh a=2,b=2 --plan both --set layers=1" \
		"check tests/equiv/attend.pdsl --mesh cp=2 --plan zigzag --set layers=1" \
		"run tests/equiv/gpt.pdsl --mesh dp=2,tp=2 --plan all --set vocab=256 --steps 2 --data tests/data/text.txt --save $TMP/p --checkpoint $TMP/c" \
		"run tests/equiv/gpt.pdsl --mesh tp=2 --plan all --set vocab=256 --steps 3 --data tests/data/text.txt --resume $TMP/c" \
		"explain tests/equiv/llama.pdsl --mesh dp=2,tp=2 --plan all --json" \
		"tests/equiv/llama.pdsl --mesh dp=2,tp=2 --plan all --verify -o $TMP/plan" \
		"show $TMP/plan"; do
		# shellcheck disable=SC2086
		if expect "$1: ptc $args" 0 timeout 300 "$PTC" $args; then ok "$1: ptc $args"; fi
	done
}

suite() { # asan|tsan NAME SCRIPT...
	kind=$1 name=$2
	shift 2
	BUILD=build/$kind sh "$@" >"$TMP/log" 2>&1
	line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$TMP/log" | tail -1)
	case $line in
	*' passed, 0 failed'*) ok "$kind: $name: $line" ;;
	*) bad "$kind: $name: $line" "$TMP/log" ;;
	esac
}
