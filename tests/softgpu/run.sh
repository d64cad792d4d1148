#!/bin/sh
# The software GPU itself: programs that must end well in every order, unchecked and checked.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

${MAKE:-make} -s softgpu >"$TMP/log" 2>&1 || {
	bad "make softgpu" "$TMP/log"
	finish
}
export PTC_CUDA_LIBS="$PWD/build/softgpu" SOFTGPU_CACHE="$PWD/build/softgpu/cache" SOFTGPU_DEVICES=4

build() {
	${CC:-cc} -std=c17 -D_GNU_SOURCE -Wall -Wextra -O1 -g -I. -o "$TMP/$1" "tests/softgpu/programs/$1.c" tests/softgpu/programs/test.c \
		-ldl -lm -lpthread 2>"$TMP/log" && return 0
	bad "$1 does not compile" "$TMP/log"
	return 1
}

for p in kernels collectives; do
	build $p || continue
	for check in 0 1; do
		for order in fifo lifo random; do
			SOFTGPU_CHECK=$check SOFTGPU_ORDER=$order expect "$p check=$check $order" 0 timeout 60 "$TMP/$p" && ok "$p $check $order"
		done
	done
done
finish
