#!/bin/sh
# What functions give, in figures worked out elsewhere: a line `metric NAME = ...  # VALUE` of a
# model here is right if a training step shows this value (1e-6), on one rank and on two. And the evaluator computes the same loss.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

for f in tests/values/*.pdsl; do
	for mesh in dp=1 dp=2; do
		expect "$f, $mesh" 0 "$PTC" run "$f" --mesh $mesh --steps 1 --json || continue
		sed -n 's/^metric \([a-z_0-9]*\) = .*# *\([-0-9.e]*\)$/\1 \2/p' "$f" >"$TMP/list"
		while read -r metric want; do
			got=$(jq -r "select(.step != null) | .metrics.$metric" "$TMP/out")
			if awk -v a="$got" -v b="$want" 'BEGIN { d = a - b; if (d < 0) d = -d; m = b < 0 ? -b : b
				exit !(a != "null" && d <= 1e-6 * (m > 1 ? m : 1)) }'
			then ok "$f: $metric"; else bad "$f, $mesh: $metric is $got, not $want"; fi
		done <"$TMP/list"
		if expect "check $f, $mesh" 0 "$PTC" check "$f" --mesh $mesh; then ok "check $f, $mesh"; fi
	done
done
finish
