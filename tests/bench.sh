#!/bin/sh
# make bench: how long the compiler takes, by layers and ranks, and a training step by layout.
cd "$(dirname "$0")/.." || exit 1
ptc=${BUILD:-build}/ptc
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

echo "compile examples/gpt2.pdsl"
for layers in 12 96; do
	for mesh in dp=2,tp=4 dp=512,tp=8; do
		$ptc examples/gpt2.pdsl -o "$tmp/plan" --mesh $mesh --set layers=$layers,batch=4096 2>&1 | grep compiled
		echo "    layers $layers, $mesh: plan of $(wc -c <"$tmp/plan") bytes"
	done
done
echo "train examples/gpt-mini.pdsl"
for mesh in dp=1 dp=2 tp=2 dp=2,tp=2; do
	$ptc run examples/gpt-mini.pdsl --mesh $mesh --data tests/data/text.txt --steps 10 --json |
		tail -1 | jq -r "\"    $mesh: \\(.summary.tokens_per_s | floor) tokens/s\""
done
echo "explain Llama 3 405B on 16,384 ranks"
big="examples/llama.pdsl --plan big --set batch=2048,embed=16384,layers=126,group=16,ff=53248 --mesh pp=16,dp=128,tp=8"
for how in "" --fit "--trace $tmp/t.json" "--html $tmp/h.html"; do
	# shellcheck disable=SC2086
	/usr/bin/env bash -c "TIMEFORMAT='%R s, %U s of a processor'; time $ptc explain $big $how >/dev/null" 2>"$tmp/time"
	echo "    explain ${how%% *}: $(cat "$tmp/time")"
done
echo "predicted and measured steps on this machine"
sh tests/predict.sh
