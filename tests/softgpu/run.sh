#!/bin/sh
# The software GPU itself: programs that must end well in every order, unchecked and checked.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

${MAKE:-make} -s softgpu >"$TMP/log" 2>&1 || {
	bad "make softgpu" "$TMP/log"
	finish
}
export PTC_CUDA_LIBS="$PWD/build/softgpu" SOFTGPU_CACHE="$PWD/build/softgpu/cache" SOFTGPU_DEVICES=4
export SOFTGPU_TIMEOUT=0.3

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

# fault PROGRAM NAME KIND CHECK ORDER: the original ends well and silent, the fault is reported as what it is.
fault() {
	export SOFTGPU_CHECK=$4 SOFTGPU_ORDER=$5
	expect "$2, right ($5)" 0 timeout 60 "$TMP/$1" "$2" good || return
	if [ -s "$TMP/err" ]; then
		bad "$2, right ($5): says something" "$TMP/err"
		return
	fi
	expect "$2 ($5)" 66 timeout 60 "$TMP/$1" "$2" bad || return
	if grep -q "^softgpu: $3: " "$TMP/err"; then
		ok "$2 ($5)"
	else
		bad "$2 ($5): no \"$3\"" "$TMP/err"
	fi
}

build kernel_faults && "$TMP/kernel_faults" >"$TMP/names" && while IFS=: read -r name kind; do
	for order in fifo lifo random; do
		fault kernel_faults "$name" "$kind" 1 $order
	done
done <"$TMP/names"

build op_faults && "$TMP/op_faults" >"$TMP/names" && while IFS=: read -r name kind unchecked; do
	for order in fifo lifo random; do
		fault op_faults "$name" "$kind" 1 $order
	done
	[ "$unchecked" = 0 ] || fault op_faults "$name" "$kind" 0 random
done <"$TMP/names"
finish
