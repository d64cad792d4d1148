#!/bin/sh
# tests/blocks.sh FOLDER [--accept] [FILE...]: tests that hold their own answer. A file has a line
#     # RUN: ptc opt --pass=simplify %s
# (a shell command, run in the folder; %s is the file, %t a temporary name), perhaps
#     # EXIT: 1
# and, at its end, what the command says on stdout and stderr, as comments:
#     # >>> output
#     # first line
#     # <<<
# --accept rewrites that block.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh
folder=$1
shift
accept=
[ "$1" != --accept ] || { accept=1 && shift; }
case $BUILD in
/*) PATH=$BUILD:$PATH ;;
*) PATH=$PWD/$BUILD:$PATH ;;
esac
cd "tests/$folder" || exit 1
[ $# -gt 0 ] || set -- *.pdsl *.pir *.plan

for f in "$@"; do
	f=$(basename "$f")
	[ -f "$f" ] || continue
	run=$(sed -n 's/^# RUN: //p' "$f" | sed "s,%s,$f,g; s,%t,$TMP/t,g")
	[ -n "$run" ] || continue # a file that others include
	want=$(sed -n 's/^# EXIT: //p' "$f")
	timeout 60 sh -c "$run" >"$TMP/out" 2>&1 </dev/null
	status=$?
	if [ $status != "${want:-0}" ]; then
		{
			echo "exit status $status, expected ${want:-0}: $run"
			cat "$TMP/out"
		} >"$TMP/why"
		bad "$folder/$f" "$TMP/why"
		continue
	fi
	sed -n '/^# >>> output$/,/^# <<<$/p' "$f" | sed '1d;$d;s/^# \{0,1\}//' >"$TMP/want"
	sed 's/[ \t]*$//' "$TMP/out" >"$TMP/got"
	if cmp -s "$TMP/want" "$TMP/got"; then
		ok "$folder/$f"
	elif [ -n "$accept" ]; then
		{
			sed '/^# >>> output$/,$d' "$f"
			echo '# >>> output'
			sed 's/^/# /; s/[ \t]*$//' "$TMP/got"
			echo '# <<<'
		} >"$TMP/new" && cp "$TMP/new" "$f"
		echo "    accepted $folder/$f"
		ok "$folder/$f"
	else
		diff -u "$TMP/want" "$TMP/got" >"$TMP/why"
		bad "$folder/$f" "$TMP/why"
	fi
done
finish
