# Sourced by every suite: counting, temporary folder, the closing line that check.sh adds up.
# A suite says `ok NAME`, `bad NAME [file with details]`, `skip NAME why`, and ends with `finish`.
BUILD=${BUILD:-build}
PTC=${PTC:-$PWD/$BUILD/ptc}
PASSED=0 FAILED=0 SKIPPED=0
TMP=$(mktemp -d "${TMPDIR:-/tmp}/ptc-test.XXXXXX") || exit 1
trap 'rm -rf "$TMP"' EXIT
trap 'exit 1' INT TERM

ok() {
	PASSED=$((PASSED + 1))
	[ -z "$V" ] || echo "    ok    $1"
}

bad() {
	FAILED=$((FAILED + 1))
	echo "    FAIL  $1"
	[ -z "$2" ] || sed -n '1,40s/^/          /p' "$2" | cut -c1-600
}

skip() {
	SKIPPED=$((SKIPPED + 1))
	echo "    skip  $1: $2"
}

# expect NAME STATUS COMMAND...: runs it, keeps what it said in $TMP/out and $TMP/err.
expect() {
	_name=$1 _want=$2
	shift 2
	"$@" >"$TMP/out" 2>"$TMP/err" </dev/null
	got=$?
	[ "$got" = "$_want" ] && return 0
	{
		echo "exit status $got, expected $_want: $*"
		cat "$TMP/err"
	} >"$TMP/why"
	bad "$_name" "$TMP/why"
	return 1
}

finish() {
	if [ "$SKIPPED" -gt 0 ]; then
		echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
	else
		echo "$PASSED passed, $FAILED failed"
	fi
	[ "$FAILED" = 0 ]
	exit
}
