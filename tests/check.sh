#!/bin/sh
# Runs every suite, prints the time of each and one line that adds them all up.
# `tests/check.sh golden unit` runs some. Suites are tests/NAME.sh and tests/NAME/run.sh.
cd "$(dirname "$0")/.." || exit 1
export BUILD="${BUILD:-build}"
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
passed=0 failed=0 skipped=0

if [ $# = 0 ]; then
	set -- includes unit roundtrip golden error cli plan size volume reference bf16 equiv sanitize
	for dir in tests/*/run.sh; do
		name=$(basename "$(dirname "$dir")")
		case " $* " in
		*" $name "*) ;;
		*) set -- "$@" "$name" ;;
		esac
	done
fi
for suite in "$@"; do
	script=tests/$suite.sh
	[ -f "$script" ] || script=tests/$suite/run.sh
	[ -f "$script" ] || continue
	start=$(date +%s)
	sh "$script" >"$out" 2>&1
	status=$?
	line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$out" | tail -1)
	grep -vxF -e "$line" "$out"
	if [ -z "$line" ]; then
		line="0 passed, 1 failed"
		echo "    FAIL  $suite stopped early (status $status)"
	elif [ $status != 0 ] && [ "${line#* passed, 0 failed}" != "$line" ]; then
		line="${line%% *} passed, 1 failed"
	fi
	set -f
	n=$(echo "$line" | tr -dc '0-9 ')
	set +f
	p=$(echo $n | cut -d' ' -f1) f=$(echo $n | cut -d' ' -f2) s=$(echo $n | cut -s -d' ' -f3)
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
	printf '%-10s %5ss  %s\n' "$suite" $(($(date +%s) - start)) "$line"
done
if [ $skipped -gt 0 ]; then
	echo "$passed passed, $failed failed, $skipped skipped"
else
	echo "$passed passed, $failed failed"
fi
[ $failed = 0 ] && [ $passed -gt 0 ]
