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
