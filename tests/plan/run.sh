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
finish
