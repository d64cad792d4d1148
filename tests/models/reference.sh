# Sourced by run.sh: three steps of each model, on one rank and on four, equal PyTorch's: losses and
# gradient norms within 1e-4, and how far each param moved within 1e-4 (of a tenth of the farthest of its
# tensor at least) and the rounding of the param.
# In bf16 they are within BF16_LOSS and BF16_NORM of PyTorch's fp32. tests/reference/make_models.py
# wrote the figures, and says which models these are. In the third step of mlp_bn bf16 puts an activation on
# the other side of 0: PyTorch with bf16 activations has the gradient norm 0.8855 as well, instead of 1.0247.
. tests/tensors.sh
BF16_LOSS=0.00390625 # a unit; two for CLIP, whose scores are 14 times a product of unit vectors
BF16_NORM=0.0234375 # six units
mkdir -p "$TMP/examples" "$TMP/tests/models"
cp $D/*.pdsl "$TMP/tests/models"
for f in examples/*.pdsl; do
	sed -f $D/still.sed "$f" >"$TMP/$f"
done

# three NAME JSON LOSS NORM OPTIONS...: three steps, and what is too far from PyTorch's in $TMP/why.
three() {
	title=$1 figures=$2 far_loss=$3 far_norm=$4
	shift 4
	args=$(jq -r --arg tmp "$TMP" '.args | map(if startswith("tests/models/") then "\($tmp)/\(.)" else . end) | join(" ")' "$figures")
	# shellcheck disable=SC2086
	expect "$title" 0 timeout 120 "$PTC" $args --json "$@" || return 1
	jq -s --slurpfile want "$figures" --argjson loss "$far_loss" --argjson norm "$far_norm" --argjson steps "$steps" -r '
		def far($a; $b; $share): (($a - $b) | fabs) <= $share * ($b | fabs) | not;
		map(select(.step != null)) as $got | $want[0] as $w | range($steps) as $i |
		(if far($got[$i].loss; $w.loss[$i]; $loss) then "step \($i): loss \($got[$i].loss), PyTorch \($w.loss[$i])" else empty end),
		(if far($got[$i].grad_norm; $w.grad_norm[$i]; $norm)
		 then "step \($i): grad_norm \($got[$i].grad_norm), PyTorch \($w.grad_norm[$i])" else empty end)
	' "$TMP/out" >"$TMP/why" 2>&1
	return 0
}

# The changes of params in $TMP/changes that differ from those of FIGURES; those of $TMP/before round.
moves() {
	awk 'function abs(x) { return x < 0 ? -x : x }
		FILENAME == ARGV[1] { for (i = 2; i <= NF; i++) p[$1, i] = $i; next }
		FILENAME == ARGV[2] { for (i = 2; i <= NF; i++) got[$1, i] = $i; next }
		{
			most = 0
			for (i = 3; i <= NF; i += 2) if (abs($i) > most) most = abs($i)
			for (i = 2; i < NF; i += 2) {
				k = $i + 2; want = $(i + 1)
				near = abs(want) > most / 10 ? abs(want) : most / 10
				if (!(($1, k) in got) || got[$1, k] ~ /n/ ||
				    !(abs(got[$1, k] - want) <= 1e-4 * near + 4e-7 * abs(p[$1, k])))
					print $1 "[" $i "] moved by " got[$1, k] ", PyTorch " want
			}
		}' "$TMP/before" "$TMP/changes" "$1"
}

for json in tests/reference/models/*.json; do
	model=$(basename "$json" .json) steps=3
	three "PyTorch: $model" "$json" 1 1 --mesh dp=1 --steps 0 --save "$TMP/begin" || continue
	for mesh in dp=1 dp=2,tp=2; do
		three "PyTorch: $model, $mesh" "$json" 1e-4 1e-4 --mesh $mesh --steps 3 --save "$TMP/end" || continue
		moved "$TMP/begin" "$TMP/end" >"$TMP/changes"
		moves "${json%.json}.moved" >>"$TMP/why"
		if [ -s "$TMP/why" ]; then bad "PyTorch: $model, $mesh" "$TMP/why"; else ok "PyTorch: $model, $mesh"; fi
	done
	loss=$BF16_LOSS
	[ "$model" != mlp_bn ] || steps=2
	[ "$model" != clip ] || loss=0.0078125
	three "PyTorch: $model, bf16" "$json" $loss $BF16_NORM --mesh dp=1 --set precision=bf16 --steps 3 || continue
	if [ -s "$TMP/why" ]; then bad "PyTorch: $model, bf16" "$TMP/why"; else ok "PyTorch: $model, bf16"; fi
done
