#!/bin/sh
# ptc fmt: NAME.in.pdsl becomes NAME.out.pdsl; what it writes stays; what it can't read it leaves
# alone. That the tree is the same is tested in tests/unit/test_fmt.c.
# `tests/fmt/run.sh --accept` writes the .out.pdsl files.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

same() { # NAME WANTED GOT
	if diff -u "$2" "$3" >"$TMP/why"; then ok "$1"; else bad "$1" "$TMP/why"; fi
}

says() { # NAME STATUS TEXT COMMAND...: TEXT is on stdout or stderr
	name=$1 status=$2 text=$3
	shift 3
	expect "$name" "$status" "$@" || return
	if cat "$TMP/out" "$TMP/err" | grep -qF -e "$text"; then ok "$name"; else bad "$name" "$TMP/err"; fi
}

for f in tests/fmt/*.in.pdsl; do
	golden=${f%.in.pdsl}.out.pdsl
	expect "$f" 0 "$PTC" fmt "$f" || continue
	[ "$1" != --accept ] || cp "$TMP/out" "$golden"
	same "$f" "$golden" "$TMP/out"
done

# Every model without mistakes: formatted twice is formatted once.
for f in examples/*.pdsl tests/*/*.pdsl; do
	"$PTC" fmt "$f" >"$TMP/once" 2>/dev/null || continue
	expect "$f again" 0 sh -c "$PTC fmt - <$TMP/once" && same "$f again" "$TMP/once" "$TMP/out"
done

# Ends of lines as on Windows, and a file without an end of its last line.
sed 's/$/\r/' tests/fmt/packed.in.pdsl | head -c -2 >"$TMP/crlf.pdsl"
expect "CRLF" 0 "$PTC" fmt "$TMP/crlf.pdsl" && same "CRLF" tests/fmt/packed.out.pdsl "$TMP/out"
: >"$TMP/empty.pdsl"
expect "an empty file" 0 "$PTC" fmt "$TMP/empty.pdsl" && same "an empty file" "$TMP/empty.pdsl" "$TMP/out"

# -w and --check
cp tests/fmt/wrap.in.pdsl "$TMP/a.pdsl"
cp tests/fmt/wrap.out.pdsl "$TMP/b.pdsl"
chmod 640 "$TMP/a.pdsl"
ln -s a.pdsl "$TMP/link.pdsl"
says "--check names the file" 1 "$TMP/a.pdsl" "$PTC" fmt --check "$TMP/a.pdsl" "$TMP/b.pdsl"
if grep -q b.pdsl "$TMP/out"; then bad "--check names no other" "$TMP/out"; else ok "--check names no other"; fi
same "--check changes nothing" tests/fmt/wrap.in.pdsl "$TMP/a.pdsl"
expect "-w" 0 "$PTC" fmt -w "$TMP/link.pdsl" "$TMP/b.pdsl" && same "-w" tests/fmt/wrap.out.pdsl "$TMP/a.pdsl"
if [ -L "$TMP/link.pdsl" ] && [ "$(stat -c %a "$TMP/a.pdsl")" = 640 ]; then ok "-w keeps link and mode"; else bad "-w keeps link and mode"; fi
expect "--check is content" 0 "$PTC" fmt --check "$TMP/a.pdsl" "$TMP/b.pdsl" && ok "--check is content"
says "--check of stdin" 1 "stdin" sh -c "$PTC fmt --check - <tests/fmt/wrap.in.pdsl"

# What can't be read is left alone, and does not keep others from being formatted.
printf 'dim a = 1\nparm w[a] ~ ones\n' >"$TMP/bad.pdsl"
cp "$TMP/bad.pdsl" "$TMP/bad.copy"
cp tests/fmt/wrap.in.pdsl "$TMP/a.pdsl"
says "a mistake" 1 "bad.pdsl:2:1: error: no statement 'parm'" "$PTC" fmt -w "$TMP/bad.pdsl" "$TMP/a.pdsl"
same "a mistake is left alone" "$TMP/bad.copy" "$TMP/bad.pdsl"
same "the other file is written" tests/fmt/wrap.out.pdsl "$TMP/a.pdsl"
says "a missing file" 1 "No such file" "$PTC" fmt nowhere.pdsl
says "a folder" 1 "is not a file" "$PTC" fmt tests
says "no file" 2 "no file given" "$PTC" fmt

# The editors' grammar is JSON, and knows every keyword of the scanner.
grammar=docs/ptc.tmLanguage.json
if jq -e '.scopeName == "source.ptc" and (.repository | length) > 0' $grammar >/dev/null 2>"$TMP/why"; then
	ok "$grammar"
else
	bad "$grammar" "$TMP/why"
fi
for word in $(sed -n 's/.*{ "\([a-z]*\)", T_[A-Z]*.*/\1/p' frontend/tokens.c) dim; do
	if grep -q "[(|]$word[|)]" $grammar; then ok "$grammar: $word"; else bad "$grammar has no '$word'"; fi
done
finish
