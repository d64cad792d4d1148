# Sourced by run.sh: three steps of each model, on one rank and on four, equal PyTorch's (1e-4
# relative). The figures are made by tests/reference/make_models.py.
for json in tests/reference/models/*.json; do
	model=$(basename "$json" .json)
	args=$(jq -r '.args | join(" ")' "$json")
	for mesh in dp=1 dp=2,tp=2; do
		# shellcheck disable=SC2086
		expect "PyTorch: $model, $mesh" 0 timeout 120 "$PTC" $args --mesh $mesh --steps 3 --json || continue
		jq -s --slurpfile want "$json" -r '
			def far($a; $b): (($a - $b) | fabs) <= 1e-4 * ($b | fabs) | not;
			map(select(.step != null)) as $got | $want[0] as $w | range(3) as $i |
			(if far($got[$i].loss; $w.loss[$i]) then "step \($i): loss \($got[$i].loss), PyTorch \($w.loss[$i])" else empty end),
			(if far($got[$i].grad_norm; $w.grad_norm[$i])
			 then "step \($i): grad_norm \($got[$i].grad_norm), PyTorch \($w.grad_norm[$i])" else empty end)
		' "$TMP/out" >"$TMP/why" 2>&1
		if [ -s "$TMP/why" ]; then bad "PyTorch: $model, $mesh" "$TMP/why"; else ok "PyTorch: $model, $mesh"; fi
	done
done
