#!/bin/sh
# tests/fuzz/run.sh [modules|large|front|ir|programs]...: random input for T seconds (45) from SEED (1).
#
# modules    N (1500) random modules and 600 with pipelines, 150 of them `deterministic` and 150 with what lives
#            on in host memory, partitioned, against one rank, their plans proved safe: check.c
# front, ir  any bytes into the front end and into the parser of IR texts: libFuzzer with ASan and
#            UBSan, its dictionary and first inputs made from this repository. Both at once, 2/3 of T
# large      a megabyte of one thing: every one ends within 20 s, in a result or in an error
# programs   random programs without mistakes through compiler, fmt and check: programs.c. 1/3 of T
#
# What fails is kept in build/fuzz/found, and one command shows it again.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
MAKE=${MAKE:-make} T=${T:-45} SEED=${SEED:-1} N=${N:-1500}
DIR=build/fuzz
[ $# -gt 0 ] || set -- modules large front ir programs

built() { # TARGET ARGUMENTS OF MAKE...
	$MAKE --no-print-directory "$@" >"$TMP/log" 2>&1 && return
	grep -v '^  ' "$TMP/log" >"$TMP/why"
	bad "make $*" "$TMP/why"
	return 1
}

modules() {
	built "$BUILD/fuzz-check" || return
	if "$BUILD/fuzz-check" "$N" "$SEED" >"$TMP/out" 2>&1; then
		ok "$(tail -1 "$TMP/out")"
		sed '/ right$/d; s/^/    fuzz modules: /' "$TMP/out"
	else
		bad "fuzz-check $N $SEED" "$TMP/out"
	fi
	for how in "-s 300 1" "-s -o 150 1001" "-s -h 150 2001"; do
		# shellcheck disable=SC2086
		if "$BUILD/fuzz-check" $how >"$TMP/out" 2>&1; then
			ok "pipelines, $how: $(tail -1 "$TMP/out")"
		else
			bad "fuzz-check $how" "$TMP/out"
		fi
	done
	known
}

# Seeds of what was wrong once, each run by the runtime, too: memory of two results, sums of several chunks
# stacked across rows, one value for two buffers, stages that lacked what they read or waited for each other, plans that were
# right and not proved.
known() {
	for seed in 2 29 32 33 43 46 70 79 97 104 137 150 230 259 276 329 343 397 590 664 \
		373 497 532 943 1001 1196 1421 1458 1527 2005 2073 2177 2438 2654 2671 2687 3312 3357 3722 20330 20660 21235 21252 22536 \
		22772 40431 40771 100225; do
		known_seed "-s -k 1 $seed"
	done
	for seed in 158 186 320 700 1344 120586; do known_seed "-k 1 $seed"; done
	known_seed "-s -h 1 91097"
}

known_seed() { # OPTIONS OF fuzz-check
	# shellcheck disable=SC2086
	if "$BUILD/fuzz-check" $1 >"$TMP/out" 2>&1; then ok "fuzz-check $1"; else bad "fuzz-check $1" "$TMP/out"; fi
}

# The models of this repository, each without the output that it expects.
front_seeds() {
	for f in examples/*.pdsl tests/*/*.pdsl; do
		sed '/^# >>> output$/,$d; /^# RUN:/d' "$f" >"$1/$(echo "$f" | tr / -)"
	done
	awk -v to="$1/docs" '/^```pdsl/ { n++; on = 1; next } /^```/ { on = 0 } on { print > (to n ".pdsl") }' \
		docs/LANGUAGE.md
	for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		"$BUILD/fuzz-programs" -d $((SEED * 1000 + n)) >"$1/program$n"
	done
	printf '#set batch=4,lr=1e-3\n#mesh dp=2\n' | cat - examples/mlp.pdsl >"$1/set.pdsl"
}

# IR texts that tests expect, and a model after some passes.
ir_seeds() {
	for f in tests/*/*.pdsl tests/*/*.pir; do
		sed -n '/^# >>> output$/,/^# <<<$/s/^# \{0,1\}//p' "$f" | sed '/^>>> output$/d; /^<<<$/d' |
			sed -n '/^ptc-ir/,$p' >"$TMP/seed"
		[ ! -s "$TMP/seed" ] || cp "$TMP/seed" "$1/$(echo "$f" | tr / -)"
	done
	for pass in simplify differentiate partition memory; do
		"$PTC" show --after=$pass --mesh dp=2 tests/equiv/mlp.pdsl >"$1/mlp-$pass" 2>/dev/null
		"$PTC" show --after=$pass --set layers=2 tests/equiv/gpt.pdsl >"$1/gpt-$pass" 2>/dev/null
	done
}

words() {
	grep -oh '"[a-zA-Z_0-9]\{2,\}"' "$@" | sort -u
	printf '"%s"\n' '->' '==' '!=' '<=' '>=' '//' '@[' ' = ' '[x = ' '\x0a' ' {\x0a' '\x0a}\x0a' '1e308' 'Gi' '0.5'
}

front_words() {
	words frontend/*.y frontend/[!ci]*.c frontend/call.c frontend/checkpoint.c
}

ir_words() {
	words ir/parse.c ir/lex.c ir/ops.h
	printf '"%s"\n' ' : f32[' 'bool[' 'int[' ' {dim=' 'dims=(' '%1' '@tp' '+dp' '^dp' '!0:1:2:3' ' of=%'
}

fuzzer_starts() { # front|ir
	rm -rf "$TMP/$1" && mkdir -p "$TMP/$1" $DIR/corpus/"$1" $DIR/found
	"$1_seeds" "$TMP/$1"
	"$1_words" >"$DIR/$1.dict"
	ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
		"$DIR/$1" -max_total_time=$((T * 2 / 3 + 1)) -timeout=5 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
		-max_len=8192 -seed="$SEED" -dict="$DIR/$1.dict" -artifact_prefix="$DIR/found/$1-" \
		$DIR/corpus/"$1" "$TMP/$1" >"$TMP/$1.log" 2>&1 </dev/null &
}

fuzzer_ends() { # front|ir PROCESS
	if wait "$2"; then
		ok "$1: $(sed -n 's/^Done \(.*\)/\1/p' "$TMP/$1.log")"
		echo "    fuzz $1: $(sed -n 's/^Done \(.*\)/\1/p' "$TMP/$1.log"), $(grep -o 'cov: [0-9]*' "$TMP/$1.log" | tail -1)"
		return
	fi
	{
		sed -n '/^WRONG\|^ptc: internal\|ERROR\|runtime error\|^    #/p' "$TMP/$1.log" | head -30
		echo "once more: $DIR/$1 $(sed -n 's/.*Test unit written to //p' "$TMP/$1.log" | tail -1)"
	} >"$TMP/why"
	bad "fuzz $1" "$TMP/why"
}

fuzzers() {
	if ! { command -v clang && echo 'int main(void){}' | clang -fsanitize=fuzzer-no-link,address -xc - -o "$TMP/a"; } >"$TMP/why" 2>&1; then
		for which; do skip "fuzz $which" "needs clang with libclang-rt-dev"; done
		return
	fi
	built "$BUILD/ptc" "$BUILD/fuzz-programs" && built SAN=fuzz fuzzers || return
	pids=
	for which; do
		fuzzer_starts "$which"
		pids="$pids $which:$!"
	done
	for pair in $pids; do fuzzer_ends "${pair%:*}" "${pair#*:}"; done
}

programs() {
	built "$BUILD/ptc" "$BUILD/fuzz-programs" || return
	mkdir -p $DIR/found
	if "$BUILD/fuzz-programs" -t $((T / 3)) -p "$PTC" -o $DIR/found "$SEED" >"$TMP/out" 2>&1; then
		ok "$(tail -1 "$TMP/out")"
		echo "    fuzz programs: $(tail -1 "$TMP/out")"
	else
		bad "fuzz-programs" "$TMP/out"
	fi
}

many() { # PIECE TIMES
	awk -v s="$1" -v n="$2" 'BEGIN { while (n-- > 0) printf "%s", s }'
}

ends() { # NAME STATUS: of $TMP/large.pdsl
	timeout 20 "$PTC" show --after=lower "$TMP/large.pdsl" -o /dev/null >"$TMP/out" 2>&1 </dev/null
	status=$?
	if [ $status = "$2" ]; then
		ok "$1"
		return
	fi
	{
		echo "exit status $status, expected $2"
		head -c 1000 "$TMP/out"
	} >"$TMP/why"
	bad "large: $1" "$TMP/why"
}

large() {
	built "$BUILD/ptc" || return
	to=$TMP/large.pdsl
	printf 'dim a = 3\0\n' >"$to" && ends "a NUL" 1
	{ printf 'x = ' && many '1 + ' 250000 && echo 1; } >"$to" && ends "a sum" 1
	{ printf 'x = ' && many '(' 500000 && many ')' 500000; } >"$to" && ends "parentheses" 1
	{ printf 'x = ' && many - 1000000; } >"$to" && ends "signs" 1
	{ echo 'dim a = 2' && many 'repeat a {
' 50000; } >"$to" && ends "repeats" 1
	{ printf 'plan { x = ' && many '[' 1000000; } >"$to" && ends "lists" 1
	{ printf 'plan { ' && many 'a.' 100000 && echo 'a -> b }'; } >"$to" && ends "a path" 1
	{ printf 'dim ' && many a 1000000 && echo ' = 1'; } >"$to" && ends "a name" 0
	{ printf '#' && many x 1000000; } >"$to" && ends "a comment" 0
	{ printf 'x = ' && many 9 1000000; } >"$to" && ends "a number" 1
	many 'x = q
' 100000 >"$to" && ends "mistakes" 1
	{ echo 'dim a = 2; input u[a]: float' && awk 'BEGIN { for (i = 0; i < 20000; i++) print "x" i " = u + " i }'; } \
		>"$to" && ends "names" 0
}

both=
for what in "$@"; do
	case $what in
	front | ir) both="$both $what" ;;
	esac
done
for what in "$@"; do
	case $what in
	modules | large | programs) $what ;;
	esac
done
# shellcheck disable=SC2086
[ -z "$both" ] || fuzzers $both
finish
