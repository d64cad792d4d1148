#!/bin/sh
# The text of the IR, after each pass, of each example, reads back to the same text; the module
# that is read back goes through the remaining passes to the same plan.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh

passes="lower simplify precision differentiate optimizer simplify2 microbatch stages place partition pipeline rematerialize split halves fuse collectives delay offload overlap balance memory"
for model in examples/*.pdsl tests/equiv/*.pdsl; do
	grep -q '^minimize' "$model" || continue # a library, or a table
	name=$(basename "$model")
	expect "$name --verify" 0 "$PTC" "$model" --verify -o "$TMP/plan" || continue
	ok "$name --verify"
	"$PTC" show "$model" >"$TMP/last" 2>/dev/null
	rest=$passes
	for pass in $passes; do
		rest=${rest#* }
		expect "$name after $pass" 0 "$PTC" show "$model" --after="$pass" -o "$TMP/one.pir" || continue
		expect "$name after $pass reads back" 0 "$PTC" opt "$TMP/one.pir" -o "$TMP/two.pir" || continue
		if cmp -s "$TMP/one.pir" "$TMP/two.pir"; then
			ok "$name after $pass: the same bytes"
		else
			diff "$TMP/one.pir" "$TMP/two.pir" | head -20 >"$TMP/why"
			bad "$name after $pass: the same bytes" "$TMP/why"
		fi
		[ "$pass" != memory ] || continue
		expect "$name from $pass on" 0 "$PTC" opt --pass="$(echo $rest | tr ' ' ,)" "$TMP/one.pir" -o "$TMP/two.pir" || continue
		if cmp -s "$TMP/two.pir" "$TMP/last"; then
			ok "$name from $pass on: the same plan"
		else
			diff "$TMP/two.pir" "$TMP/last" | head -20 >"$TMP/why"
			bad "$name from $pass on: the same plan" "$TMP/why"
		fi
	done
done
finish
