#!/bin/sh
# Plans for machines with several links compute the step of one rank, and say which link is used for what.
# The models are those of tests/equiv, with a `hardware` block whose inner link joins few ranks.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

# on MODEL GROUP RATIO: $file, the model on nodes of GROUP ranks, RATIO times faster inside
on() {
	file=$TMP/$1-$2-$3.pdsl
	sed -e "s|\"../../|\"$PWD/|" -e 's/^\(	mesh .*\)$/\1 on box/' "tests/equiv/$1.pdsl" >"$file"
	cat >>"$file" <<BOX
hardware box {
	flops fp32 = 1T, bf16 = 2T
	memory 80G, bandwidth = 1T
	link inner, group = $2, bandwidth = $((50000 * $3)), latency = 1u
	link outer, bandwidth = 50000, latency = 2u
}
BOX
}

while read -r model group ratio options; do
	case $model in
	'' | '#'*) continue ;;
	esac
	on "$model" "$group" "$ratio"
	# shellcheck disable=SC2086
	if expect "check $model $group $ratio $options" 0 timeout 120 "$PTC" check "$file" $options; then
		ok "check $model $group $ratio $options"
	fi
done <<TABLE
# data parallel and sharded states, on 8 and 16 ranks
gpt   2 8  --mesh dp=8 --set batch=8
gpt   4 8  --mesh dp=8 --set batch=16,masked=1,microbatches=2
gpt   4 8  --mesh dp=16 --set batch=16
gpt   2 8  --mesh dp=8 --plan zero --set batch=8
gpt   4 8  --mesh dp=16 --plan zero --set batch=16
gpt   4 2  --mesh dp=8 --plan grads --set batch=16,microbatches=2
gpt   4 2  --mesh dp=16 --plan params --set batch=16
llama 4 2  --mesh dp=16 --set batch=16
# two axes, of which either lies across
llama 4 8  --mesh dp=4,tp=4 --plan all
llama 4 8  --mesh dp=8,tp=2 --plan all --set batch=8
llama 2 8  --mesh dp=2,tp=4 --plan all
gpt   4 8  --mesh dp=2,tp=8 --plan sp --set heads=8
gpt   2 2  --mesh dp=2,tp=4 --plan all
gpt   4 8  --mesh dp=2,tp=8 --plan params --set heads=8
# context parallel, and all-to-all, whose parts go one by one or as one
gpt   4 8  --mesh dp=2,cp=8 --plan context
gpt   2 2  --mesh cp=8 --plan ulysses --set heads=8
gpt   4 8  --mesh cp=8 --plan ulysses --set heads=8
# rings, split keys and zigzag order over an axis that is cut
gpt    4 8 --mesh cp=8 --plan ring
gpt    4 8 --mesh dp=2,cp=8 --plan zigzag --set seq=16
attend 4 8 --mesh cp=8 --plan zigzag_apart --set seq=16
# sizes that do not divide
gpt   4 8  --mesh dp=12 --plan zero --set batch=12
gpt   4 8  --mesh dp=6 --plan params --set batch=7,vocab=23
gpt   2 2  --mesh dp=8 --plan all --set batch=5,vocab=23,embed=12,ff=31
llama 4 8  --mesh dp=3,tp=4 --plan all --set batch=6
TABLE

# What goes over which link: the outer one carries an eighth.
cat >"$TMP/data.pdsl" <<'MODEL'
dim batch = 4096, in = 64, out = 64
input tokens[batch]: token(in)
input targets[batch]: token(out) = next(tokens)
param w[in, out] ~ normal(0.2)
y[batch, out] = w[in = tokens]
loss = cross_entropy(y, targets, out)
minimize loss with sgd(lr = 0.1)
plan {
	mesh dp = 16 on h100
	batch -> dp
}
MODEL
if expect "explain: links" 0 "$PTC" explain "$TMP/data.pdsl" --json; then
	if jq -e '[.comm[] | select(.bytes > 1000) | [.op, .axis, .link, .bytes]] == [
			["reduce_scatter", "dp", "nvlink", 14336], ["all_reduce", "dp", "net", 2048],
			["all_gather", "dp", "nvlink", 14336]]' "$TMP/out" >/dev/null; then
		ok "explain: links"
	else
		bad "explain: links" "$TMP/out"
	fi
fi
if expect "explain: a column" 0 "$PTC" explain "$TMP/data.pdsl"; then
	if grep -q '^collective  *axis  *link  *count' "$TMP/out" && grep -q '^all_reduce  *dp  *net  *2  *2056' "$TMP/out"; then
		ok "explain: a column"
	else
		bad "explain: a column" "$TMP/out"
	fi
fi
if expect "explain: one link" 0 "$PTC" explain examples/gpt-mini.pdsl; then
	if grep -q '^collective  *axis  *count' "$TMP/out"; then ok "explain: one link"; else bad "explain: one link" "$TMP/out"; fi
fi

# Params that were saved by a mesh that is cut load into one that is not, and give the same loss.
on gpt 2 8
run() { # NAME FILE OPTIONS...
	name=$1
	shift
	expect "$name" 0 timeout 60 "$PTC" run "$@" --data tests/data/text.txt --set batch=8,vocab=256 || return 1
	sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$TMP/out" | tail -1 >"$TMP/$name"
}
if run cut "$file" --mesh dp=8 --plan zero --steps 2 --save "$TMP/w" &&
	run again "$file" --mesh dp=8 --plan zero --steps 1 --init "$TMP/w" &&
	run whole tests/equiv/gpt.pdsl --mesh dp=4 --steps 1 --init "$TMP/w"; then
	# two meshes add up in two orders: 1e-5 relative, as ptc check has it
	if paste "$TMP/again" "$TMP/whole" | awk '{ d = $1 - $2 } END { exit !(NF == 2 && d * d <= 1e-10 * $2 * $2) }'; then
		ok "save"
	else
		paste "$TMP/again" "$TMP/whole" >"$TMP/why"
		bad "save" "$TMP/why"
	fi
fi
finish
