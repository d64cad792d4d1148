#!/bin/sh
# The cache of kernels: each is compiled once, whatever plan it is of; what is broken is made again; processes share it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

# A compiler that keeps what it is given.
mkdir "$TMP/sources" "$TMP/at-once"
cat >"$TMP/cc" <<'CC'
#!/bin/sh
for last; do case $last in *.c) cp "$last" "${0%/*}/sources" ;; esac; done
exec cc "$@"
CC
chmod +x "$TMP/cc"
export CC="$TMP/cc -O0" PTC_THREADS=1 PTC_CACHE="$TMP/cache"

check() { # TITLE OPTIONS...
	title=$1
	shift
	if expect "$title" 0 timeout 300 "$PTC" check tests/equiv/gpt.pdsl "$@"; then ok "$title"; fi
}

compiled() {
	sed -n 's/^KERNEL(\(k_.*\))/\1/p' "$TMP/sources"/*.c | sort
}

check "a first plan" --mesh dp=2
first=$(compiled | wc -l)
check "the same plan" --mesh dp=2
again=$(compiled | wc -l)
check "a plan that is much like it" --mesh dp=2 --plan zero
like=$(($(compiled | wc -l) - first))
if [ "$first" -gt 10 ] && [ "$again" = "$first" ] && [ $like -gt 0 ] && [ $like -lt $((first / 2)) ] && [ -z "$(compiled | uniq -d)" ]; then
	ok "each kernel is compiled once"
else
	bad "each kernel is compiled once: $first, with the same plan $again, $like more with another"
fi

for f in "$TMP/cache"/*.so; do : >"$f"; done
check "after files were cut short" --mesh dp=2
if [ "$(compiled | uniq -d | wc -l)" = "$first" ]; then
	ok "what is broken is made again, and only what is read"
else
	bad "what is broken is made again, and only what is read: $(compiled | uniq -d | wc -l), not $first"
fi

export PTC_CACHE="$TMP/shared"
for n in 1 2 3; do
	timeout 300 "$PTC" check tests/equiv/gpt.pdsl --mesh dp=2 >"$TMP/at-once/$n" 2>&1 &
done
wait
if [ "$(tail -qn1 "$TMP/at-once"/* | grep -cx 'the same')" = 3 ] && ! ls "$TMP/shared" | grep -qv '^k_[0-9a-f]*\.so$'; then
	ok "three processes at once"
else
	ls "$TMP/shared" | grep -v '\.so$' | cat - "$TMP/at-once"/* >"$TMP/why"
	bad "three processes at once" "$TMP/why"
fi
finish
