#!/bin/sh
# Runs the cmocka programs that make has built, and counts their tests. `unit.sh NAME...`: only these.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
export CMOCKA_MESSAGE_OUTPUT=stdout

[ $# -gt 0 ] || set -- $(ls tests/unit | sed -n 's/\.c$//p')
for name in "$@"; do
	timeout "${UNIT_TIMEOUT:-300}" "$BUILD/unit/$name" >"$TMP/out" 2>&1 </dev/null
	status=$?
	good=$(grep -c '^\[       OK \]' "$TMP/out")
	wrong=$(grep -c '^\[  FAILED  \] [^0-9]' "$TMP/out")
	PASSED=$((PASSED + good))
	if [ $status != 0 ]; then
		grep -v '^\[ RUN\|^\[       OK' "$TMP/out" | tail -40 >"$TMP/why"
		bad "unit/$name (status $status, $good passed, $wrong lines of failure)" "$TMP/why"
	else
		[ -z "$V" ] || echo "    ok    unit/$name ($good)"
	fi
done
finish
