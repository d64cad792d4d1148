#!/bin/sh
# `make gpu-check`: what only silicon shows. Where there is no GPU it says what it skips, and why.
#   right     plans on the GPUs that there are compute what one rank computes on the processor
#   speed     GPT-2 124M in bf16: tokens a second and the share of the GPU's peak, beside compiled PyTorch where that is installed
#   links     bytes a second of the collectives of a plan, with two GPUs or more
# PTC_CUDA_LIBS must not name the software GPU.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l)
if [ "$gpus" -lt 1 ]; then
	for what in "plans on a GPU are right" "GPT-2 124M in bf16: tokens/s, MFU" "bandwidth of collectives"; do
		skip "$what" "nvidia-smi finds no GPU"
	done
	finish
fi
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader

# -- right --

while read -r need model plan mesh sets; do
	name="$model $plan $mesh $sets"
	if [ "$gpus" -lt "$need" ]; then
		skip "$name" "it needs $need GPUs, there are $gpus"
		continue
	fi
	if expect "$name" 0 timeout 300 "$PTC" check --backend cuda "tests/equiv/$model.pdsl" --plan "$plan" --mesh "$mesh" \
		${sets:+--set "$sets"}; then
		ok "$name"
	fi
done <<TABLE
1 gpt   all    dp=1,tp=1
1 gpt   all    dp=1,tp=1 precision=bf16
1 llama all    dp=1,tp=1 microbatches=2
2 gpt   params dp=2,tp=1
2 gpt   all    dp=1,tp=2 precision=bf16
2 gpt   ring   dp=1,cp=2,tp=1
4 llama all    dp=2,tp=2 microbatches=2
8 gpt   ring   dp=2,cp=2,tp=2 precision=bf16
TABLE

# -- speed --

# FLOPs of a token of GPT-2 124M, forward and backward, by `ptc explain`; the peak in bf16 without sparsity.
peak_of() {
	case $1 in
	*H200* | *H100*SXM* | *H100*HBM3*) echo 989.4 ;;
	*H100*) echo 756 ;;
	*B200*) echo 2250 ;;
	*A100*) echo 312 ;;
	*L40S*) echo 362 ;;
	*4090*) echo 165.2 ;;
	*) echo 0 ;;
	esac
}
name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
size=batch=8,seq=1024,precision=bf16,microbatches=1
if "$PTC" examples/gpt2.pdsl --mesh dp=1,tp=1 --set "$size" -o "$TMP/gpt2.plan" >"$TMP/why" 2>&1 &&
	"$PTC" explain "$TMP/gpt2.plan" --json >"$TMP/explain" 2>"$TMP/why" &&
	timeout 900 "$PTC" run "$TMP/gpt2.plan" --backend cuda --steps 30 --data tests/data/text.txt --json >"$TMP/run" 2>"$TMP/why"; then
	jq -s --slurpfile e "$TMP/explain" --argjson peak "$(peak_of "$name")" -r '.[-1].summary.tokens_per_s as $t |
		"GPT-2 124M, bf16, 8 x 1024: \($t | floor) tokens/s" + (if $peak > 0 then
		", MFU \($t * $e[0].flops.model / (8 * 1024) / ($peak * 1e12) * 1000 | floor / 10) %" else "" end)' "$TMP/run"
	ok "GPT-2 124M in bf16"
else
	bad "GPT-2 124M in bf16" "$TMP/why"
fi
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
	expect "PyTorch" 0 timeout 900 python3 tests/gpu/gpt2_torch.py && cat "$TMP/out" && ok "PyTorch"
else
	skip "compiled PyTorch" "python3 has no torch that sees a GPU"
fi

# -- links --

if [ "$gpus" -lt 2 ]; then
	skip "bandwidth of collectives" "it needs two GPUs"
else
	n=$([ "$gpus" -ge 8 ] && echo 8 || echo 2)
	if "$PTC" examples/gpt2.pdsl --mesh dp=$n,tp=1 --set "batch=$((8 * n)),seq=1024,precision=bf16,microbatches=1" -o "$TMP/dp.plan" >"$TMP/why" 2>&1 &&
		timeout 900 "$PTC" run "$TMP/dp.plan" --backend cuda --steps 30 --data tests/data/text.txt --json >"$TMP/run" 2>"$TMP/why"; then
		jq -s -r --arg n "$n" '.[-1].summary | "data parallel over \($n): \(.tokens_per_s | floor) tokens/s; sent a step: \([.comm[].bytes] | add) bytes"' \
			"$TMP/run"
		ok "data parallel over $n GPUs"
	else
		bad "data parallel over $n GPUs" "$TMP/why"
	fi
fi
finish
