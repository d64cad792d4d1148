#!/bin/sh
# 60 published runs of all groups are predicted within a bound. `make validate` does all of them.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

if ! command -v python3 >/dev/null; then
	skip "published runs" "no python3"
	finish
fi
if PTC="$PTC" python3 tests/validate/validate.py --sample 60 --bounds sample >"$TMP/out" 2>&1; then
	ok "60 published runs"
else
	bad "60 published runs" "$TMP/out"
fi
grep -E '^(dense|MoE|all|pairs|bound)' "$TMP/out" | sed 's/^/          /'
finish
