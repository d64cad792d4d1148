#!/bin/sh
# `make gpu-check`: what only silicon shows. Where there is no GPU it says what it skips, and why. Each step has its time-out.
#   right     plans on the GPUs that there are compute what one rank computes on the processor
#   speed     GPT-2 124M in bf16: tokens a second and the share of the GPU's peak, beside compiled PyTorch where that is installed
#   links     tokens a second of data parallelism, and what its collectives send, with two GPUs or more
# GPU_CHECK_DRY=1: on the software GPU of PTC_CUDA_LIBS, with a small GPT-2, so that tests run each line of this (tests/cuda/dry.sh).
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | grep -c .)
why=
[ -n "$GPU_CHECK_DRY" ] || [ ! -e "$PTC_CUDA_LIBS/libsoftgpu.so" ] || why="PTC_CUDA_LIBS names the software GPU"
command -v jq >/dev/null || why="jq is not installed"
[ "$gpus" -gt 0 ] || why="nvidia-smi finds no GPU"
if [ -n "$why" ]; then
	for what in "plans on a GPU are right" "GPT-2 124M in bf16: tokens/s, MFU" "data parallelism, bytes of collectives"; do
		skip "$what" "$why"
	done
	finish
fi
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
steps=30 seq=1024 size=precision=bf16,microbatches=1
[ -z "$GPU_CHECK_DRY" ] || steps=3 seq=16 size=$size,layers=1,embed=32,heads=2,vocab=256

# -- right --

while read -r need model plan mesh sets; do
	name="$model $plan $mesh $sets"
	[ -z "$GPU_CHECK_DRY" ] || [ "$plan" = params ] || continue
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

# gpt2 GPUS: trains it, 8 sequences a GPU; what it says is in $TMP/run, what is predicted in $TMP/explain. false: said.
gpt2() {
	expect "GPT-2: compile" 0 timeout 60 "$PTC" examples/gpt2.pdsl --mesh "dp=$1,tp=1" --set "batch=$((8 * $1)),seq=$seq,$size" -o "$TMP/gpt2.plan" &&
		expect "GPT-2: explain" 0 timeout 60 "$PTC" explain "$TMP/gpt2.plan" --json && cp "$TMP/out" "$TMP/explain" &&
		expect "GPT-2: run" 0 timeout 600 "$PTC" run "$TMP/gpt2.plan" --backend cuda --steps $steps --data tests/data/text.txt --json &&
		cp "$TMP/out" "$TMP/run"
}
# says NAME FILTER: prints what jq makes of the run
says() {
	if jq -s --slurpfile e "$TMP/explain" --argjson peak "$(peak_of "$name")" --argjson n "$gpus" --argjson tokens "$((8 * seq))" -r "$2" "$TMP/run" >"$TMP/said" 2>"$TMP/why"; then
		cat "$TMP/said"
		ok "$1"
	else
		bad "$1: its numbers can't be read" "$TMP/why"
	fi
}

if gpt2 1; then
	says "GPT-2 124M in bf16" '(.[-1].summary.tokens_per_s // error("no tokens_per_s")) as $t | ($e[0].flops.model // error("no flops.model")) as $f |
		"GPT-2, bf16, 8 sequences: \($t | floor) tokens/s" + if $peak > 0 then
		", MFU \($t * $f / $tokens / ($peak * 1e12) * 1000 | floor / 10) %" else ", MFU unknown: no peak is known for this GPU" end'
fi
if ! command -v python3 >/dev/null; then
	skip "compiled PyTorch" "python3 is not installed"
elif ! timeout 120 python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
	skip "compiled PyTorch" "python3 has no torch that sees a GPU"
elif expect "PyTorch" 0 timeout 600 python3 tests/gpu/gpt2_torch.py; then
	cat "$TMP/out"
	ok "PyTorch"
fi

# -- links --

if [ "$gpus" -lt 2 ]; then
	skip "data parallelism, bytes of collectives" "it needs 2 GPUs, there is 1"
else
	[ "$gpus" -lt 8 ] && gpus=2 || gpus=8
	if gpt2 $gpus; then
		says "data parallel over $gpus GPUs" '.[-1].summary | "data parallel over \($n): \(.tokens_per_s | floor) tokens/s; each sends a step: \([.comm[0][].bytes] | add) bytes"'
	fi
fi
finish
