#!/bin/sh
# Golden tests of the lowering, then broken files: every model cut off at many places must be
# refused or compiled, never crash or hang.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
sh tests/blocks.sh frontend "$@" >"$TMP/golden" 2>&1
grep -v 'passed,' "$TMP/golden"
PASSED=$(sed -n 's/^\([0-9]*\) passed.*/\1/p' "$TMP/golden")
FAILED=$(sed -n 's/.* \([0-9]*\) failed.*/\1/p' "$TMP/golden")
[ $# = 0 ] || finish

cp examples/lib.pdsl "$TMP"
for f in examples/*.pdsl tests/frontend/*.pdsl; do
	size=$(wc -c <"$f")
	at=1
	good=1
	while [ $at -lt "$size" ]; do
		head -c $at "$f" >"$TMP/cut.pdsl"
		timeout 10 "$PTC" show --after=lower -o /dev/null "$TMP/cut.pdsl" >"$TMP/out" 2>&1
		status=$?
		[ $status -le 1 ] || {
			good=0
			bad "$f cut at byte $at: status $status" "$TMP/out"
			break
		}
		at=$((at + 97))
	done
	[ $good = 0 ] || ok "$f cut off"
done
finish
