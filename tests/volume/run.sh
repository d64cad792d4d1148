#!/bin/sh
# What a rank sends, in elements by axis, and in how many collectives, equals the volumes that are
# derived by hand for the known ways of parallelism; what is ready at one place counts once. The model: two layers of GPT-2 with biases and
# tied head, 1952 params, batch 4, seq 8, embed 8, ff 32, vocab 16.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

volume() { # NAME ELEMENTS COUNT OPTIONS...
	name=$1 elements=$2 count=$3
	shift 3
	expect "$name" 0 "$PTC" explain "tests/volume/${model:-gpt}.pdsl" --json "$@" || return
	got=$(jq -r '.comm | "\(map(.bytes) | add / 4) \(map(.count) | add)"' "$TMP/out")
	if [ "$got" = "$elements $count" ]; then
		ok "volume: $name"
	else
		{
			echo "elements and collectives: $got, expected $elements $count"
			jq -c '.comm[] | [.op, .axis, .count, .bytes / 4, .why]' "$TMP/out"
		} >"$TMP/why"
		bad "volume: $name" "$TMP/why"
	fi
}

# The same by op and axis: "all_reduce dp 2928, ..." in alphabetical order. Scalars are in it.
parts() { # NAME PARTS OPTIONS...
	name=$1 want=$2
	shift 2
	expect "$name" 0 "$PTC" explain "tests/volume/${model:-gpt}.pdsl" --json "$@" || return
	got=$(jq -r '[.comm | group_by([.op, .axis])[] | "\(.[0].op) \(.[0].axis) \(map(.bytes) | add / 4)"] | join(", ")' "$TMP/out")
	if [ "$got" = "$want" ]; then
		ok "parts: $name"
	else
		{
			echo "sent:     $got" && echo "expected: $want"
			jq -r '.comm[] | "\(.bytes / 4) \(.why)"' "$TMP/out"
		} >"$TMP/why"
		bad "parts: $name" "$TMP/why"
	fi
}

# All gradients are all-reduced at once: 2 * 1952 * 3/4; and two scalars, the loss and the number of labels.
volume "dp 4" 2931 3 --mesh dp=4
# Two all-reduces of [batch, seq, embed] a layer forward, two backward, one for the embedding, one for the
# logits' gradient: 10 * 384; cross entropy: two of [batch, seq]; the loss and the norm: two scalars.
volume "tp 4" 3939 14 --mesh tp=4
# The same as reduce-scatters and all-gathers; and the gradients of what works on a part of seq: ten of norms,
# four of biases, [embed] each, all at once; cross entropy as before; three scalars. What backward makes again, the norms,
# is not gathered again: it reads what forward gathered.
volume "tp 4, seq -> tp" 4108.5 26 --mesh tp=4 --plan sp
# The all-reduces as reduce-scatters and all-gathers; three scalars.
volume "dp 4, optimizer -> dp" 2932.5 5 --mesh dp=4 --plan zero
# Keys and values gathered: forward 2 * 192 a layer, backward their gradients scattered, 2 * 192. The gradients of all
# params but wpe, which lies split by seq, 2 * 3/4 * 1888; the loss, the labels and the norm. As a ring: forward
# the same, backward keys and values again and their gradients, 4 * 192. A ring or a bucket of two in place of two collectives.
volume "seq -> cp 4" $((4 * 384 + 2832 + 4)).5 8 --mesh cp=4 --plan gathered
volume "seq, ctx -> cp 4" $((6 * 384 + 2832 + 4)).5 8 --mesh cp=4 --plan ring
# Two heads of keys on four ranks: k and v are computed twice, from the h that q has gathered, so that their parts of
# the cotangent of h are added to that of q before it is scattered. 20 * 6144 as reduce-scatters and all-gathers,
# each over the two parts of tp; a layer's dk (2048), and dwv instead of dv (256), over one part; cross entropy; five norms;
# three scalars.
model=gqa volume "grouped queries, tp 4, seq -> tp" $((20 * 6144 + 2 * 2048 + 2 * 256 + 2 * 384 + 5 * 48 + 4)).5 50
# The gradient of the table is 512 elements, that of what is read from it 128: each rank gathers these, 32 of its
# own, and makes the gradient whole, or its part of it; the other gradient, 64, is reduced. In microbatches the same.
for m in 1 2; do
	model=table volume "a table, dp 4, $m microbatches" $((3 * 32 + 96 + 3)) $((m + 3)) --set microbatches=$m
	model=table volume "a table, optimizer -> dp, $m microbatches" $((3 * 32 + 48 + 3 * 128 + 48 + 4)).5 $((m + 5)) \
		--plan zero --set microbatches=$m
done
# An MLP: one gather and one reduce-scatter forward, the same backward; so do embedding and head together: 9 * 768.
# 26 gradients of [embed], cross entropy, three scalars.
model=nest volume "a repeat in a repeat, tp 4, seq -> tp" $((9 * 768 + 26 * 12 + 96 + 4)).5 42
expect "the repeat in a repeat is what one rank computes" 0 "$PTC" check tests/volume/nest.pdsl --set microbatches=2 --mesh dp=2,tp=2 &&
	ok "nest: as one rank"
# Experts: each exchange is of [batch, experts, slot, embed], 1024 elements: to the experts and back, twice in
# backward. The gradients of the experts are whole after it; those of wte and wr are reduced; three scalars.
model=moe parts "experts, ep 4" "all_reduce ep $((192 + 48 + 4)).5, all_to_all ep $((4 * 192))"
# dp sees half the batch: the gradients of the experts, 2 * 512 a rank, are reduced over it.
model=moe parts "experts, dp 2, ep 2" "all_reduce dp 1024, all_reduce dp.ep $((192 + 48 + 3)), all_reduce ep 1, all_to_all ep 512" --plan two
# Without `wr: none -> ep` the router is split by experts: x is gathered for it, its result exchanged.
model=moe parts "experts, the router is split" \
	"all_gather ep 192, all_reduce ep $((192 + 4)).5, all_to_all ep $((4 * 192 + 2 * 24)), reduce_scatter ep 192" --plan split
# Experts of which tp has half: ye is reduced, 512; its cotangent not, but that of x, 128, with what it is added to.
# Embedding and head 2 * 128, cross entropy 2 * 16; an exchange is 256.
model=moe parts "experts, ep 2, tp 2" \
	"all_reduce ep $((64 + 32 + 1)), all_reduce ep.tp 3, all_reduce tp $((512 + 128 + 256 + 32)), all_to_all ep 1024" --plan tp
for plan in "" "--plan two --set batch=7,experts=3" "--plan split --set batch=7,experts=3" "--plan tp --set seq=7,experts=3"; do
	expect "experts, $plan, as one rank" 0 "$PTC" check --evaluator tests/volume/moe.pdsl $plan && ok "experts: $plan"
done
# Four heads of keys on eight ranks: tp is 4 x 2. Six all-reduces over both of [batch, seq, embed], 448, two of
# [batch, seq], 28, two scalars; over the two that share a head dk and dv, 32 each. From seq 32 on these are larger than
# the gradients of wk, bk, wv and bv (32 and 2), which are then reduced instead. Latency is nothing here, so three of the
# six, with residual sums, are split around these: as many bytes in two halves.
model=heads parts "grouped queries, tp 8" "all_gather tp $((3 * 224)), all_reduce tp $((3 * 448 + 2 * 28 + 2 * 32 + 3)).5, reduce_scatter tp $((3 * 224))"
model=heads parts "grouped queries, tp 8, seq 32" "all_gather tp $((3 * 896)), all_reduce tp $((3 * 1792 + 2 * 112 + 68 + 3)).5, reduce_scatter tp $((3 * 896))" --set seq=32
model=heads parts "grouped queries, tp 8, seq 64" "all_gather tp $((3 * 1792)), all_reduce tp $((3 * 3584 + 2 * 224 + 68 + 3)).5, reduce_scatter tp $((3 * 1792))" --set seq=64
# Batch normalization: two all-reduces of [c] forward and two backward, 9 each; the gradients, 60 elements; two scalars.
for batch in 8 7; do
	model=bn volume "batch normalization, dp 4, batch $batch" $((4 * 9 + 90 + 3)) 7 --set batch=$batch
	expect "batch normalization as one rank" 0 "$PTC" check --evaluator tests/volume/bn.pdsl --set batch=$batch && ok bn
done
# Two layers of GPT-2 at full width: 20 reduce-scatters and all-gathers of 16 * 1024 * 768 elements, 3/4 of them; norms and
# biases behind a sum, 14 * 768 over all; a rank has 12565 rows of wte, 256 of wpe, a quarter of the layers; cross entropy.
model=../gspmd/gpt2 parts "GPT-2, dp 2, tp 4, seq -> tp" \
	"all_gather tp $((10 * 9437184)), all_reduce dp $((12565 * 768 + 256 * 768 + 2 * (12 * 768 * 192 + 3 * 192 + 768))), all_reduce dp.tp $((14 * 1344 + 3)).5, all_reduce tp $((2 * 24576 + 1)).5, reduce_scatter tp $((10 * 9437184))" \
	--plan dp_sp --mesh dp=2,tp=4 --set layers=2,batch=32,vocab=50257

# Between stages: all that one chunk hands to the next is x, [batch / m, seq, embed] in each microbatch at each
# boundary, and its gradient back (Narayanan et al. 2021, 3.2); seq -> tp: a part of it.
sends() { # NAME ELEMENTS OPTIONS...: that all stages of one rank each send, each way
	name=$1 elements=$2
	shift 2
	expect "$name" 0 "$PTC" explain "tests/volume/${model:-gpt}.pdsl" --json "$@" || return
	got=$(jq -r '[.comm[] | select(.op == "send")] | [map(select(.why | test("behind"))), map(select(.why | test("before")))] |
		map(map(.bytes) | add / 4) | join(" ")' "$TMP/out")
	if [ "$got" = "$elements $elements" ]; then
		ok "sends: $name"
	else
		{
			echo "forward and backward: $got, expected $elements both"
			jq -c '.comm[] | select(.op == "send") | [.stage, .bytes / 4, .why]' "$TMP/out"
		} >"$TMP/why"
		bad "sends: $name" "$TMP/why"
	fi
}

x=$((4 * 8 * 8))
for m in 1 2 4; do
	sends "pp 2, $m microbatches" $x --plan pipe --mesh pp=2 --set microbatches=$m
done
sends "pp 4" $((3 * x)) --plan pipe --mesh pp=4 --set layers=5,microbatches=2
sends "pp 2, 2 chunks" $((3 * x)) --plan pipe_i --mesh pp=2 --set layers=5,microbatches=2
sends "pp 2, zb_v, the middle on one stage" $((2 * x)) --plan pipe_v --mesh pp=2 --set layers=5,microbatches=2
# An encoder and a decoder in bf16, half the bytes: x between encoder layers, mem and y between decoder layers.
t5="batch=12,src=6,dst=8,vocab=16,embed=8,enc=4,dec=4,heads=2,head=4,ff=6,buckets=8,microbatches=2"
mem=$((12 * 6 * 8)) y=$((12 * 8 * 8))
model=../../examples/t5 sends "encoder | decoder" $(((mem + y) / 2)) --mesh pp=2,dp=1,tp=1 --set $t5
model=../../examples/t5 sends "encoder in two, decoder in two" $(((mem + 2 * (mem + y)) / 2)) --mesh pp=4,dp=1,tp=1 --set $t5
sends "pp 2, tp 2, seq -> tp" $((x / 2)) --plan pipe_sp --mesh pp=2,tp=2 --set microbatches=2
# A model in bf16 sends as many activations as in fp32: a value is rounded once for all that read it, gathered and reduced once.
counts() { # AXIS MODEL OPTIONS...
	axis=$1
	shift
	"$PTC" explain "examples/$@" --json 2>"$TMP/err" | jq -r "[.comm | group_by([.op, .axis])[] | select(.[0].axis == \"$axis\") | \"\(.[0].op) \(map(.count) | add)\"] | join(\", \")"
}
while read -r axis model options; do
	# shellcheck disable=SC2086
	{
		wide=$(counts $axis $model.pdsl $options --set microbatches=1,precision=fp32)
		half=$(counts $axis $model.pdsl $options --set microbatches=1,precision=bf16)
	}
	if [ -n "$half" ] && [ "$wide" = "$half" ]; then
		ok "bf16: $model over $axis"
	else
		printf 'fp32 %s\nbf16 %s\n' "$wide" "$half" >"$TMP/why"
		bad "bf16: $model over $axis" "$TMP/why"
	fi
done <<END
tp llama --plan big --mesh pp=1,dp=1,tp=8
cp llama --plan big --mesh pp=1,dp=1,cp=2,tp=2
tp gpt2 --mesh dp=2,tp=4
tp t5 --mesh pp=1,dp=2,tp=2
END
for plan in "--plan zero" "--plan zero --set microbatches=2,batch=24 --mesh dp=3" "--mesh dp=3"; do
	expect "a table, $plan, is what one rank computes" 0 "$PTC" check tests/volume/table.pdsl $plan && ok "table: $plan"
done
finish
