#!/bin/sh
# Runs every suite, JOBS (a core each) at once, prints the time of each and one line that adds them all up.
# `tests/check.sh golden unit` runs some. Suites are tests/NAME.sh and tests/NAME/run.sh. What a suite says is printed
# when it ends.
cd "$(dirname "$0")/.." || exit 1
export BUILD="${BUILD:-build}" MAKE="${MAKE:-make}"
JOBS=${JOBS:-$(nproc)}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 1' INT TERM

# The long ones first, so that none is left over in the end. By themselves: those that measure time.
LONG="asan tsan cuda unit pipeline fuzz equiv models validate recompute softgpu"
ALONE="calibrate"

if [ $# = 0 ]; then
	set -- $LONG includes roundtrip golden error cli plan size volume reference bf16
	for dir in tests/*/run.sh; do
		name=$(basename "$(dirname "$dir")")
		case " $* " in
		*" $name "*) ;;
		*) set -- "$@" "$name" ;;
		esac
	done
fi

script_of() {
	script=tests/$1.sh
	[ -f "$script" ] || script=tests/$1/run.sh
	[ -f "$script" ]
}

# One line: passed, failed and skipped, with what it printed before it.
run() { # SUITE
	dir=$tmp/$1
	script_of "$1" || return
	start=$(date +%s)
	sh "$script" >"$dir/out" 2>&1
	status=$?
	line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$dir/out" | tail -1)
	grep -vxF -e "$line" "$dir/out" >"$dir/said"
	if [ -z "$line" ]; then
		line="0 passed, 1 failed"
		cp "$dir/out" "$dir/said"
		echo "    FAIL  $1 stopped early (status $status)" >>"$dir/said"
	elif [ $status != 0 ] && [ "${line#* passed, 0 failed}" != "$line" ]; then
		line="${line%% *} passed, 1 failed"
		echo "    FAIL  $1 ended with status $status" >>"$dir/said"
	fi
	printf '%-10s %5ss  %s\n' "$1" $(($(date +%s) - start)) "$line" >>"$dir/said"
	echo "$line" | tr -dc '0-9 ' >"$dir/count"
	flock "$tmp/lock" cat "$dir/said"
}

# Suites one after the other, those that no other worker has begun.
worker() { # SUITES...
	for suite; do
		! mkdir "$tmp/$suite" 2>/dev/null || run "$suite"
	done
}

together= alone=
for suite; do
	case " $ALONE " in
	*" $suite "*) alone="$alone $suite" ;;
	*) together="$together $suite" ;;
	esac
done
# What several suites would make, each on its own.
broken=0 need=all
case " $* " in
*" cuda "* | *" softgpu "*) need="all softgpu" ;;
esac
# shellcheck disable=SC2086
if [ "$JOBS" -gt 1 ] && [ $# -gt 1 ] && ! $MAKE --no-print-directory -s $need; then
	broken=1
	echo "    FAIL  make $need"
fi
for job in $(seq "$JOBS"); do
	# shellcheck disable=SC2086
	worker $together &
done
wait
# shellcheck disable=SC2086
worker $alone

passed=0 failed=$broken skipped=0
for suite; do
	script_of "$suite" || continue
	p=0 f=1 s=
	read -r p f s <"$tmp/$suite/count"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
done
if [ $skipped -gt 0 ]; then
	echo "$passed passed, $failed failed, $skipped skipped"
else
	echo "$passed passed, $failed failed"
fi
[ $failed = 0 ] && [ $passed -gt 0 ]
