#!/bin/sh
# Params and FLOPs that ptc counts, against the formulas of the literature and published figures.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

if ! command -v python3 >/dev/null; then
	skip "formulas" "no python3"
	finish
fi
PTC="$PTC" python3 tests/formulas/formulas.py >"$TMP/out" 2>&1
while IFS= read -r line; do
	case $line in
	"ok  "*) ok "${line#ok   }" ;;
	*) bad "${line#FAIL }" ;;
	esac
done <"$TMP/out"
[ "$PASSED" -gt 30 ] || bad "there are formulas"
finish
