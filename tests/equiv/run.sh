#!/bin/sh
# Every layout computes the step of one rank: `ptc check` over models, meshes, plans, sizes that
# do and do not divide, and microbatches. `run.sh [--long]`; a line of the table is one check.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

check() {
	model=$1
	shift
	if expect "check $model $*" 0 timeout 120 "$PTC" check "tests/equiv/$model.pdsl" "$@"; then
		ok "check $model $*"
	fi
}

while read -r model options; do
	case $model in
	'' | '#'*) continue ;;
	esac
	# shellcheck disable=SC2086
	check "$model" $options
done <<TABLE
# a norm over what is split
norm
# data parallel
gpt   --mesh dp=2
gpt   --mesh dp=3 --set batch=6
gpt   --mesh dp=4
gpt   --mesh dp=8 --set batch=8
llama --mesh dp=2
llama --mesh dp=4
mlp   --mesh dp=2
mlp   --mesh dp=3
mlp   --mesh dp=4
mlp   --mesh dp=8
# tensor parallel
gpt   --mesh tp=2
gpt   --mesh tp=3
gpt   --mesh tp=4
llama --mesh tp=2
llama --mesh tp=3
llama --mesh tp=4
mlp   --mesh tp=2
mlp   --mesh tp=3
mlp   --mesh tp=4 --plan zero
# sequence parallel
gpt   --mesh tp=2 --plan sp
gpt   --mesh tp=4 --plan sp
llama --mesh tp=2 --plan sp
llama --mesh tp=4 --plan sp
# both, with and without seq -> tp and optimizer -> dp
gpt   --mesh dp=2,tp=2
gpt   --mesh dp=2,tp=2 --plan sp
gpt   --mesh dp=2,tp=2 --plan zero
gpt   --mesh dp=2,tp=2 --plan all
llama --mesh dp=2,tp=2
llama --mesh dp=2,tp=2 --plan sp
llama --mesh dp=2,tp=2 --plan zero
llama --mesh dp=2,tp=2 --plan all
mlp   --mesh dp=2,tp=2
mlp   --mesh dp=2,tp=2 --plan zero
gpt   --mesh dp=4 --plan zero
gpt   --mesh dp=3 --plan zero
# sizes that do not divide
gpt   --mesh tp=4 --set vocab=23
gpt   --mesh dp=2,tp=2 --plan all --set vocab=23
gpt   --mesh tp=2 --plan sp --set seq=7
gpt   --mesh dp=2,tp=2 --plan all --set seq=7,vocab=23
gpt   --mesh tp=4 --set heads=3
gpt   --mesh tp=2 --plan sp --set heads=3,ff=33
gpt   --mesh dp=2,tp=3 --plan all --set batch=3,seq=7,vocab=23,heads=4,ff=31
gpt   --mesh dp=4 --set batch=3
mlp   --mesh dp=4,tp=3 --plan zero --set batch=7,hidden=11,class=5
llama --mesh tp=4 --plan sp --set kv=1,group=2
llama --mesh tp=4 --set kv=2,group=3,seq=7,vocab=23
llama --mesh dp=2,tp=4 --plan all --set kv=2,group=2
llama --mesh tp=6 --set kv=2,group=3
# gradients and params sharded too, context parallel, all-to-all between heads and positions
gpt   --mesh dp=2,tp=2 --plan grads
gpt   --mesh dp=2,tp=2 --plan params
gpt   --mesh dp=3 --plan params --set microbatches=2,batch=6
gpt   --mesh dp=2,tp=2 --plan step --set microbatches=2,vocab=23
gpt   --mesh dp=3 --plan step --set microbatches=2,batch=6
gpt   --mesh dp=2,cp=2 --plan context
gpt   --mesh cp=2,tp=2 --plan context --set seq=7
# an early and a late part of the sequence on each rank
gpt   --mesh cp=4 --plan zigzag
gpt   --mesh dp=2,cp=2,tp=2 --plan zigzag --set microbatches=2
gpt   --mesh dp=2,cp=3,tp=2 --plan zigzag --set seq=18,microbatches=2,masked=1
gpt   --mesh dp=2,cp=2 --plan zigzag3
llama --mesh dp=2,cp=2,tp=2 --plan zigzag
llama --mesh cp=3,tp=4 --plan zigzag --set seq=12
gpt   --mesh dp=2,cp=2 --plan ulysses
gpt   --mesh cp=4 --plan ulysses
# rings and split keys: caps, biases, masks, windows, dropout, another text, over two axes, with the others;
# sizes that do not divide, ranks without keys, more ranks than key heads
attend --mesh cp=2
attend --mesh cp=2 --plan apart
attend --mesh cp=2 --plan gathered
attend --mesh cp=2 --plan half
attend --mesh dp=2,cp=2,tp=2 --plan zigzag --set batch=4,microbatches=2
attend --mesh cp=4 --plan zigzag --set seq=16
attend --mesh cp=2 --plan zigzag_apart
attend --mesh cp=2 --plan half_apart
attend --mesh cp=3 --set seq=7,src=5
attend --mesh cp=3 --set seq=7,src=5 --plan apart
attend --mesh cp=8 --set seq=9,src=3
attend --mesh cp=8 --set seq=9,src=3 --plan apart
attend --mesh a=2,b=2 --plan two
attend --mesh a=2,b=3,tp=2 --plan both --set seq=7,src=4
attend --mesh dp=2,cp=2,tp=2 --set batch=4,microbatches=2
attend --mesh cp=2,tp=4
attend --mesh cp=2,tp=4 --plan apart --set kv=1,group=4
unnamed --mesh cp=2
unnamed --mesh cp=3 --plan ring
gpt   --mesh dp=2,cp=2 --plan ring
gpt   --mesh cp=4,tp=2 --plan ring --set seq=9,microbatches=2
# microbatches, where parts have no, one and all labels
gpt   --set batch=4,microbatches=2
gpt   --set batch=4,microbatches=4
gpt   --set batch=4,masked=1,microbatches=1
gpt   --set batch=4,masked=1,microbatches=2
gpt   --set batch=4,masked=1,microbatches=4
gpt   --mesh dp=2 --set batch=8,masked=1,microbatches=4
gpt   --mesh dp=2,tp=2 --plan all --set batch=8,masked=1,microbatches=2
gpt   --mesh dp=2 --set batch=7,masked=1,microbatches=2
llama --mesh dp=2,tp=2 --plan all --set batch=8,microbatches=4
mlp   --mesh dp=2 --plan zero --set microbatches=3
TABLE
# What can overlap does, on hardware that is slow at all but starting to send: carried out as late as it may be,
# at the wait, and (PTC_TEST_EAGER) as early, at the start.
for model in gpt llama mlp; do
	{
		sed "s|include \"../../|include \"$PWD/|" "tests/equiv/$model.pdsl"
		echo 'hardware cpu { flops fp32 = 1M, bf16 = 1M'
		echo 'memory 8Gi, bandwidth = 1M'
		echo 'link slow, bandwidth = 1M, latency = 1n'
		echo '}'
	} | sed 's/{ flops/{\n\tflops/' >"$TMP/$model.pdsl"
done
while read -r waits model options; do
	# shellcheck disable=SC2086
	expect "overlap $model $options" 0 "$PTC" show "$TMP/$model.pdsl" $options || continue
	got=$(grep -c ' = wait ' "$TMP/out")
	if [ "$got" -ge "$waits" ]; then
		ok "overlap $model $options: $got waits"
	else
		bad "overlap $model $options: $got waits, not $waits"
	fi
	for eager in '' 1; do
		# shellcheck disable=SC2086
		if PTC_TEST_EAGER=$eager expect "overlap $model $options $eager" 0 timeout 120 "$PTC" check "$TMP/$model.pdsl" $options; then
			ok "overlap $model $options $eager"
		fi
	done
done <<TABLE
40 gpt   --mesh dp=2,tp=2 --plan params
30 gpt   --mesh dp=2,tp=2 --plan grads --set microbatches=2
30 gpt   --mesh dp=2,tp=2 --plan all --set batch=8,masked=1,microbatches=2
15 gpt   --mesh dp=2,cp=2 --plan ulysses
15 gpt   --mesh dp=3 --plan step --set microbatches=2,batch=6,vocab=23
20 llama --mesh dp=2,tp=2 --plan all
5  mlp   --mesh dp=2 --plan zero --set microbatches=3
TABLE
# the examples, which are made smaller for it
for model in gpt-mini gpt2 llama mlp mixtral; do
	if expect "check examples/$model" 0 timeout 300 "$PTC" check "examples/$model.pdsl"; then ok "check examples/$model"; fi
done
# an arrow on the keys, and nothing else, makes a ring or splits them, whether they have names or not
for plan in "default combine" "ring ring" "gathered all_gather"; do
	name=${plan% *}
	[ "$name" != default ] || name=
	title="unnamed keys: $plan"
	expect "$title" 0 "$PTC" explain tests/equiv/unnamed.pdsl --json --mesh cp=2 ${name:+--plan "$name"} || continue
	got=$(jq -r '[.comm[].op | select(. == "ring" or . == "combine" or . == "all_gather")] | unique | .[-1]' "$TMP/out")
	if [ "$got" = "${plan#* }" ]; then ok "$title"; else bad "$title: $got"; fi
done
finish
