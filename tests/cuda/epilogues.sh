# Products with their epilogues: which ones a plan's come to, on the software GPU, and what happens where cuBLASLt has none, or not
# for such shapes. Sourced by run.sh.
[ $# = 0 ] || case " $* " in *" epilogues "*) ;; *) return ;; esac

# took NAME ENV PLAN SETS WANT: a check passes, and its products have run with these, "COUNT EPILOGUE ..." a step.
took() {
	name=$1
	if SOFTGPU_CHECK=1 SOFTGPU_VERBOSE=1 expect "$name" 0 env $2 timeout 300 "$PTC" check --backend cuda "$3" ${4:+--set "$4"}; then
		got=$(sed -n 's/.*matmul .* with \([A-Z_]*\).*/\1/p' "$TMP/err" | sort | uniq -c | awk '{ printf "%s%s %s", (NR > 1 ? " " : ""), $1 / 4, $2 }')
		if [ "$got" = "$5" ] && ! grep -q '^softgpu: [a-z ]*: ' "$TMP/err"; then
			ok "$name"
		else
			grep '^softgpu: [a-z ]*: ' "$TMP/err" >"$TMP/why"
			echo "with $got, not with $5" >>"$TMP/why"
			bad "$name" "$TMP/why"
		fi
	fi
}

gelu='gelu(x @ w1 + b1, tanh)'
write_model "$gelu"
took "gelu" A=1 "$TMP/case.pdsl" "" "1 DGELU_BGRAD 1 GELU_AUX_BIAS"
took "gelu, bf16" A=1 "$TMP/case.pdsl" precision=bf16 "1 BGRADA 1 DGELU 1 GELU_AUX_BIAS"
took "gelu, microbatches" A=1 "$TMP/case.pdsl" microbatches=2 "2 DGELU_BGRAD 2 GELU_AUX_BIAS"
took "gelu, a library without epilogues" SOFTGPU_PLAIN=1 "$TMP/case.pdsl" "" ""
took "gelu, rows that cuBLASLt has no auxiliary matrix for" A=1 "$TMP/case.pdsl" mid=12 ""
write_model 'relu(x @ w1 + b1)'
took "relu" A=1 "$TMP/case.pdsl" "" "1 RELU_BIAS"
write_model 'gelu(x @ w1 + b1, erf)'
took "erf" A=1 "$TMP/case.pdsl" "" ""
# weights by rows of what they make, as PyTorch has them: the gradient's other operand is summed
write_model "$gelu"
sed -i 's/w1\[in, mid\], w2\[mid, out\]/w1[mid, in], w2[out, mid]/' "$TMP/case.pdsl"
took "gelu, weights the other way, bf16" A=1 "$TMP/case.pdsl" precision=bf16 "1 BGRADB 1 DGELU 1 GELU_AUX_BIAS"

# layers ACT BIAS: two layers, computed again for the gradients: what goes into ACT is not kept the first time
layers() {
	cat >"$TMP/case.pdsl" <<EOF
dim batch = 8, in = 8, mid = 16, out = 8, layers = 2
input x[batch, in]: float
input y[batch]: token(out)
param u[in, out] ~ normal(0.3)
h[batch, in] = x
repeat layers {
	param w[in, mid], v[mid, in] ~ normal(0.3)
	param b[mid] ~ normal(0.1)
	g[batch, mid] = $1(h @ w$2)
	h[batch, in] = h + g @ v
}
z[batch, out] = h @ u
loss = cross_entropy(z, y, out)
minimize loss with sgd(lr = 0.1)
plan {
	mesh dp = 1
	batch -> dp
	recompute full
}
EOF
}
layers "gelu" ", tanh"
sed -i '/param b/d' "$TMP/case.pdsl"
took "gelu, computed again" A=1 "$TMP/case.pdsl" "" "2 DGELU 2 GELU"
layers "gelu" " + b, tanh"
took "gelu with a bias, computed again" A=1 "$TMP/case.pdsl" "" "2 DGELU_BGRAD 2 GELU_BIAS"
layers "relu" ""
sed -i '/param b/d' "$TMP/case.pdsl"
took "relu, computed again" A=1 "$TMP/case.pdsl" precision=bf16 "2 RELU"
case_of gpt
write_case dp=1,tp=1 - >"$TMP/case.pdsl"
took "gpt" A=1 "$TMP/case.pdsl" precision=bf16 "8 BGRADA 6 BIAS 2 DGELU 2 GELU_AUX_BIAS"
# Sums of squares in parts, these added up, the optimizer: over all params, a launch each.
case_of llama
write_case dp=1,tp=1 - >"$TMP/case.pdsl"
if SOFTGPU_CHECK=1 SOFTGPU_VERBOSE=1 expect "norm and optimizer" 0 timeout 300 "$PTC" run "$TMP/case.pdsl" --set vocab=256 --backend cuda --steps 3 \
	--data tests/data/text.txt; then
	n=$(grep -c "ran kernel r[0-9]" "$TMP/err")
	if [ "$n" = 9 ]; then ok "norm and optimizer are three launches"; else
		echo "$n launches of runs in 3 steps" >"$TMP/why"
		bad "norm and optimizer are three launches" "$TMP/why"
	fi
fi
