#!/bin/sh
# A plan that was cut short or changed is refused, with exit status 1 and a message, whatever was done to it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

refused() {
	"$PTC" run "$TMP/bad" --steps 1 --data tests/data/text.txt >"$TMP/out" 2>"$TMP/err" </dev/null
	got=$?
	if [ $got = 1 ] && grep -q '^\(ptc: \)\?.*error: ' "$TMP/err"; then
		ok "refused: $1"
	else
		{
			echo "exit status $got"
			cat "$TMP/err"
		} >"$TMP/why"
		bad "refused: $1" "$TMP/why"
	fi
}

expect "compile" 0 "$PTC" tests/equiv/gpt.pdsl --mesh dp=2,tp=2 --plan all -o "$TMP/plan" || finish
size=$(wc -c <"$TMP/plan")
expect "the same bytes" 0 "$PTC" tests/equiv/gpt.pdsl --mesh dp=2,tp=2 --plan all -o "$TMP/plan2"
if cmp -s "$TMP/plan" "$TMP/plan2"; then ok "the same input, the same bytes"; else bad "the same input, the same bytes"; fi
if expect "show a plan" 0 "$PTC" show "$TMP/plan"; then ok "show a plan"; fi
if expect "explain a plan" 0 "$PTC" explain "$TMP/plan"; then ok "explain a plan"; fi

for part in 0 1 20 40 41 100 $((size / 3)) $((size / 2)) $((size - 2)) $((size - 1)); do
	head -c "$part" "$TMP/plan" >"$TMP/bad"
	refused "the first $part bytes"
done
{ cat "$TMP/plan" && echo x; } >"$TMP/bad"
refused "a line more"
for at in 5 12 $((size / 5)) $((size / 2)) $((size - 10)); do
	{ head -c "$at" "$TMP/plan" && printf '\001' && tail -c +$((at + 2)) "$TMP/plan"; } >"$TMP/bad"
	refused "byte $at changed"
done
sed '1s/ptc-plan 1 /ptc-plan 2 /' "$TMP/plan" >"$TMP/bad"
refused "a newer version"
sed 's/lr/rl/;s/mesh dp=2/mesh dp=4/' "$TMP/plan" >"$TMP/bad"
refused "another mesh"
head -c 3000 /dev/zero >"$TMP/bad"
refused "zeros"
printf 'ptc-plan 1 0000000000000000 99999999999999\n' >"$TMP/bad"
refused "a header alone"

# A compiler that makes a plan that is not sound (PTC_TEST_SPOIL) says so, and writes nothing.
unwritten() { # NAME SPOIL WORDS
	for plan in old new; do
		rm -rf "$TMP/made" && mkdir "$TMP/made"
		[ $plan = new ] || cp "$TMP/plan" "$TMP/made/plan"
		expect "$1, $plan" 1 env PTC_TEST_SPOIL="$2" "$PTC" tests/equiv/gpt.pdsl --mesh dp=2,tp=2 -o "$TMP/made/plan" || continue
		cat "$TMP/out" >>"$TMP/err"
		ls "$TMP/made" >>"$TMP/err"
		if ! grep -q "error: .*$3" "$TMP/err" || ! grep -q 'note: the model is not at fault, ptc is: .* nothing is written' "$TMP/err" ||
			! grep -q 'note: please report the model' "$TMP/err" || grep -q 'compiled in' "$TMP/err"; then
			bad "what is said: $1, $plan" "$TMP/err"
		elif [ $plan = old ] && [ "$(ls -A "$TMP/made")" = plan ] && cmp -s "$TMP/plan" "$TMP/made/plan"; then
			ok "$1: the plan of that name stays"
		elif [ $plan = new ] && [ -z "$(ls -A "$TMP/made")" ]; then
			ok "$1: nothing is written"
		else
			bad "$1, $plan" "$TMP/err"
		fi
	done
}
expect "its places" 0 "$PTC" tests/equiv/gpt.pdsl --mesh dp=2,tp=2 -o "$TMP/other"
off=$(sed -n 's/^buffer .* \(off=[1-9][0-9]*\).*/\1/p' "$TMP/other" | head -1)
unwritten "a place that is taken" "$off off=0" "unsafe plan: the buffer '.*' lies on another"
unwritten "a lost reduction" "all_reduce to_partial" "has axis dp already"
unwritten "a text that can't be read" "all_reduce zzz" "zzz"
unwritten "a text that changes" "micro=1 micro=01" "the text of the plan changes when it is read back"
finish
