#!/bin/sh
# The real NVRTC, which needs no GPU, takes the kernels of all examples at their full sizes, and what they use stays within
# limits (main.c). Of kernels that differ in sizes only one is compiled, for one architecture in turn, and half of those made by
# hand: a minute of a processor. ALL=1, `make check-nvrtc`: all for each, six minutes. ONLY="gpt2 t5": of these examples.
# TABLE: a file that gets a line for each kernel. $NVRTC: the library, if the loader does not know it; else what
# `make deps-nvrtc` has brought.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

${MAKE:-make} -s "$BUILD/nvrtc-kernels" >"$TMP/log" 2>&1 || {
	bad "make nvrtc-kernels" "$TMP/log"
	finish
}
plans=
for file in ${ONLY:-$(ls examples/*.pdsl | sed 's,.*/,,; s,\.pdsl$,,' | grep -vx 'lib\|hardware')}; do
	if "$PTC" show --after=memory "examples/$file.pdsl" >"$TMP/$file.ir" 2>"$TMP/err"; then
		plans="$plans $TMP/$file.ir"
	else
		bad "$file has no plan" "$TMP/err"
	fi
done
[ -n "$NVRTC" ] || NVRTC=$(ls build/nvrtc/nvidia/cu13/lib/libnvrtc.so.13 2>/dev/null)
export NVRTC
# shellcheck disable=SC2086
"$BUILD/nvrtc-kernels" ${ALL:+-a} ${TABLE:+-t "$TABLE"} $plans >"$TMP/out" 2>"$TMP/err"
case $? in
0) ok "$(cat "$TMP/out")" && sed 's/^/    nvrtc: /' "$TMP/out" ;;
77) skip "kernels by NVRTC" "libnvrtc is not found; make deps-nvrtc" ;;
*)
	cat "$TMP/out" >>"$TMP/err"
	bad "kernels by NVRTC" "$TMP/err"
	;;
esac
finish
