#!/bin/sh
# Every example of docs/LANGUAGE.md is compiled, as it stands. A ```pdsl block is a file, with what
# the HTML comment <!-- pdsl ... --> before it holds put in front. With a line "# error: TEXT" it
# must be refused in these words, with "# warning: TEXT" it must be warned about; else silent.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

cp examples/lib.pdsl "$TMP"
awk -v dir="$TMP" '
	/^<!-- pdsl$/ { hidden = 1; text = ""; next }
	hidden && /^-->$/ { hidden = 0; next }
	hidden { text = text $0 "\n"; next }
	/^```pdsl$/ { inside = 1; file = sprintf("%s/line-%04d.pdsl", dir, NR); printf "%s", text > file; next }
	inside && /^```$/ { inside = 0; text = ""; close(file); next }
	inside { print > file }' docs/LANGUAGE.md

for f in "$TMP"/line-*.pdsl; do
	title="docs/LANGUAGE.md, $(basename "$f" .pdsl)"
	said=$(sed -n 's/^ *# \(error: .*\)/\1/p; s/^ *# \(warning: .*\)/\1/p' "$f")
	want=0
	[ "${said#error: }" = "$said" ] || want=1
	expect "$title" $want "$PTC" "$f" -o "$TMP/plan" || continue
	if [ -z "$said" ] && grep -q 'warning:' "$TMP/err"; then
		bad "$title" "$TMP/err"
	elif [ -n "$said" ] && ! grep -qF -e "$said" "$TMP/err"; then
		bad "$title: $said" "$TMP/err"
	else
		ok "$title"
	fi
done
[ "$PASSED" -gt 20 ] || bad "there are examples in docs/LANGUAGE.md"
finish
