#!/bin/sh
# The first 20 losses and gradient norms equal PyTorch's, 1e-4 relative, on one rank and on four.
# tests/reference/data/NAME.json holds PyTorch's figures, the first line of NAME.args our arguments.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

for json in tests/reference/data/*.json; do
	[ -f "${json%.json}.args" ] || continue # another table
	name=$(basename "$json" .json)
	args=$(head -1 "tests/reference/data/$name.args")
	for mesh in $(sed -n '2p' "tests/reference/data/$name.args"); do
		# shellcheck disable=SC2086
		expect "reference $name $mesh" 0 timeout 300 "$PTC" run $args --mesh "$mesh" --steps 20 --json \
			--data tests/data/text.txt || continue
		jq -s --slurpfile want "$json" -r '
			def far($a; $b): (($a - $b) | fabs) <= 1e-4 * ($b | fabs) | not;
			map(select(.step != null)) as $got | $want[0] as $w |
			if ($got | length) != 20 then "there are \($got | length) steps" else
			range(20) as $i |
			(if far($got[$i].loss; $w.loss[$i]) then "step \($i): loss \($got[$i].loss), PyTorch \($w.loss[$i])" else empty end),
			(if far($got[$i].grad_norm; $w.grad_norm[$i])
			 then "step \($i): grad_norm \($got[$i].grad_norm), PyTorch \($w.grad_norm[$i])" else empty end) end
		' "$TMP/out" >"$TMP/why" 2>&1
		if [ -s "$TMP/why" ]; then bad "reference $name $mesh" "$TMP/why"; else ok "reference $name $mesh"; fi
	done
done
. tests/reference/functions.sh
finish
