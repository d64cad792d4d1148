#!/bin/sh
# What a rank sends, in elements by axis, and in how many collectives, equals the volumes that are
# derived by hand for the known ways of parallelism. The model: two layers of GPT-2 with biases and
# tied head, 1952 params in 36 tensors (a layer's counted each), batch 4, seq 8, embed 8, ff 32, vocab 16.
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

# Each gradient is all-reduced: 2 * 1952 * 3/4; and two scalars, the loss and the number of labels.
volume "dp 4" 2931 38 --mesh dp=4
# Two all-reduces of [batch, seq, embed] a layer forward, two backward, one for the embedding, one for the
# logits' gradient: 10 * 384; cross entropy: two of [batch, seq]; the loss and the norm: two scalars.
volume "tp 4" 3939 14 --mesh tp=4
# The same as reduce-scatters and all-gathers; and the gradients of what works on a part of seq: ten of norms,
# four of biases, [embed] each; cross entropy as before; three scalars. What backward makes again, the norms,
# is not gathered again: it reads what forward gathered.
volume "tp 4, seq -> tp" 4108.5 39 --mesh tp=4 --plan sp
# The all-reduces as reduce-scatters and all-gathers; three scalars.
volume "dp 4, optimizer -> dp" 2932.5 75 --mesh dp=4 --plan zero
# Keys and values gathered: forward 2 * 192 a layer, backward their gradients scattered, 2 * 192. The gradients of all
# params but wpe, which lies split by seq, 2 * 3/4 * 1888; the loss, the labels and the norm. As a ring: forward
# the same, backward keys and values again and their gradients, 4 * 192; two rings for four collectives.
volume "seq -> cp 4" $((4 * 384 + 2832 + 4)).5 46 --mesh cp=4 --plan gathered
volume "seq, ctx -> cp 4" $((6 * 384 + 2832 + 4)).5 42 --mesh cp=4 --plan ring
# Two heads of keys on four ranks: k and v are computed twice, from the h that q has gathered, so that their parts of
# the cotangent of h are added to that of q before it is scattered. 20 * 6144 as reduce-scatters and all-gathers,
# each over the two parts of tp; a layer's dk (2048), and dwv instead of dv (256), over one part; cross entropy; five norms;
# three scalars.
model=gqa volume "grouped queries, tp 4, seq -> tp" $((20 * 6144 + 2 * 2048 + 2 * 256 + 2 * 384 + 5 * 48 + 4)).5 54
# The gradient of the table is 512 elements, that of what is read from it 128: each rank gathers these, 32 of its
# own, and makes the gradient whole, or its part of it; the other gradient, 64, is reduced. In microbatches the same.
for m in 1 2; do
	model=table volume "a table, dp 4, $m microbatches" $((3 * 32 + 96 + 3)) $((m + 3)) --set microbatches=$m
	model=table volume "a table, optimizer -> dp, $m microbatches" $((3 * 32 + 48 + 3 * 128 + 48 + 4)).5 $((m + 6)) \
		--plan zero --set microbatches=$m
done
# An MLP: one gather and one reduce-scatter forward, the same backward; so do embedding and head together: 9 * 768.
# 26 gradients of [embed], cross entropy, three scalars.
model=nest volume "a repeat in a repeat, tp 4, seq -> tp" $((9 * 768 + 26 * 12 + 96 + 4)).5 67
expect "the repeat in a repeat is what one rank computes" 0 "$PTC" check tests/volume/nest.pdsl --set microbatches=2 --mesh dp=2,tp=2 &&
	ok "nest: as one rank"
for plan in "--plan zero" "--plan zero --set microbatches=2,batch=24 --mesh dp=3" "--mesh dp=3"; do
	expect "a table, $plan, is what one rank computes" 0 "$PTC" check tests/volume/table.pdsl $plan && ok "table: $plan"
done
finish
