#!/bin/sh
# Every example of docs/LANGUAGE.md is compiled, as it stands. A ```pdsl block is a file, with what
# the HTML comment <!-- pdsl ... --> before it holds put in front. With a line "# error: TEXT" it
# must be refused in these words, with "# warning: TEXT" it must be warned about; else silent.
# Commands behind <!-- run --> are run, here and in README.md.
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
# Commands that texts show, with what they say; ACCEPT=1 writes that into the texts.
here=$PWD/tests/docs
mkdir "$TMP/shown" "$TMP/bin" && ln -s "$PTC" "$TMP/bin/ptc" && cp -r examples "$TMP/shown" && cp examples/*.pdsl "$TMP/shown"
for doc in README.md docs/*.md; do
	grep -q '^<!-- run -->$' "$doc" || continue
	(cd "$TMP/shown" && PATH="$TMP/bin:$PATH" awk -f "$here/shown.awk") <"$doc" >"$TMP/now"
	if diff "$doc" "$TMP/now" >"$TMP/why"; then
		ok "$doc: commands"
	elif [ -n "$ACCEPT" ]; then
		cp "$TMP/now" "$doc"
	else
		bad "$doc: commands (ACCEPT=1 $0)" "$TMP/why"
	fi
done
[ "$PASSED" -gt 20 ] || bad "there are examples in docs/LANGUAGE.md"
finish
