#!/bin/sh
# All-reduces around elementwise work, split: what the pass does on a machine where latency costs nothing, so that it
# fires at any size, computes what one rank computes, sends not a byte more, and leaves alone what would not pay.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

for model in gpt llama; do
	{
		sed "s#\.\./\.\./examples/#$PWD/examples/#; s/^\(	mesh .*\)/\1 on quick/" "tests/equiv/$model.pdsl"
		printf 'hardware quick {\n    flops fp32 = 100G, bf16 = 100G\n    memory 8Gi, bandwidth = 1G\n'
		printf '    link l, bandwidth = 10G, latency = 1e-12\n}\n'
	} >"$TMP/$model.pdsl"
done

# The operations of a plan after a pass: how many all_reduces over these axes are left in it, and gathers.
count() { # FILE PASS OPTIONS...
	file=$1 pass=$2
	shift 2
	"$PTC" show "$file" --after="$pass" "$@" 2>/dev/null | grep -c "^ .* = \(reduce_scatter\|all_gather\) .*axes=(tp[^)]*)"
}

sent() { # FILE OPTIONS...
	"$PTC" explain --json "$@" 2>/dev/null | jq '.comm | map(.bytes) | add'
}

while read -r model options; do
	name="split $model $options"
	# shellcheck disable=SC2086
	if [ "$(count "$TMP/$model.pdsl" split $options)" -le "$(count "$TMP/$model.pdsl" pipeline $options)" ]; then
		echo "no all_reduce was split" >"$TMP/why"
		bad "$name" "$TMP/why"
		continue
	fi
	# shellcheck disable=SC2086
	if expect "$name" 0 timeout 120 "$PTC" check "$TMP/$model.pdsl" $options; then
		ok "$name"
	fi
	# shellcheck disable=SC2086
	split=$(sent "$TMP/$model.pdsl" $options) whole=$(sent "tests/equiv/$model.pdsl" $options)
	if [ "$split" = "$whole" ]; then
		ok "$name sends the same"
	else
		echo "bytes: $split, without it $whole" >"$TMP/why"
		bad "$name sends the same" "$TMP/why"
	fi
done <<TABLE
gpt   --mesh tp=4
gpt   --mesh dp=2,tp=4 --set microbatches=2
gpt   --mesh dp=2,tp=2 --plan zero --set masked=1
llama --mesh tp=2
llama --mesh dp=2,tp=4
TABLE

# What does not divide stays whole, and so does a plan in which the sequence is split already.
while read -r model options; do
	name="split: not $model $options"
	# shellcheck disable=SC2086
	"$PTC" show "$TMP/$model.pdsl" --after=pipeline $options >"$TMP/before" 2>/dev/null
	# shellcheck disable=SC2086
	"$PTC" show "$TMP/$model.pdsl" --after=split $options >"$TMP/after" 2>/dev/null
	if cmp -s "$TMP/before" "$TMP/after"; then
		ok "$name"
	else
		diff "$TMP/before" "$TMP/after" >"$TMP/why"
		bad "$name" "$TMP/why"
	fi
done <<TABLE
gpt   --mesh tp=3 --set batch=5,seq=7,embed=16
llama --mesh dp=2,tp=2 --plan sp
gpt   --mesh dp=2,tp=2 --plan all
TABLE
finish
