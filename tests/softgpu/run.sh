#!/bin/sh
# The software GPU itself. `run.sh PART...` runs some parts: programs, faults, conform.
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

# Fibers by ucontext, as on machines for which no switch is written.
portable() {
	mkdir "$TMP/portable" && ${CC:-cc} -std=c17 -D_GNU_SOURCE -DSOFTGPU_UCONTEXT -I. -fPIC -fvisibility=hidden -O1 -pthread -shared \
		-o "$TMP/portable/libsoftgpu.so" tests/softgpu/block.c $(ls build/softgpu/*.o | grep -v /block.o) -lm -ldl 2>"$TMP/log" || {
		bad "fibers by ucontext do not compile" "$TMP/log"
		return
	}
	for l in build/softgpu/lib*.so.*; do
		ln -s libsoftgpu.so "$TMP/portable/$(basename "$l")"
	done
	PTC_CUDA_LIBS="$TMP/portable" SOFTGPU_CHECK=1 expect "fibers by ucontext" 0 timeout 60 "$TMP/kernels" && ok "fibers by ucontext"
}

# Programs that must end well in every order, unchecked and checked.
programs() {
	for p in driver kernels capture products collectives edges; do
		build $p || continue
		for check in 0 1; do
			for order in fifo lifo random; do
				SOFTGPU_CHECK=$check SOFTGPU_ORDER=$order expect "$p check=$check $order" 0 timeout 60 "$TMP/$p" && ok "$p $check $order"
			done
		done
	done
	portable
}

# fault PROGRAM NAME KIND CHECK ORDER: the original ends well and silent, the fault is reported as what it is.
fault() {
	export SOFTGPU_CHECK=$4 SOFTGPU_ORDER=$5
	expect "$2, right ($5)" 0 timeout 60 "$TMP/$1" "$2" good || return
	if [ -s "$TMP/err" ]; then
		bad "$2, right ($5): says something" "$TMP/err"
		return
	fi
	expect "$2 ($5)" 66 timeout 60 "$TMP/$1" "$2" bad || return
	if grep -q "^softgpu: $3: " "$TMP/err" && ! grep "kernel k[0-9]" "$TMP/err" | grep -qv "at test.cu:[0-9]"; then
		ok "$2 ($5)"
	else
		bad "$2 ($5): no \"$3\", or no line" "$TMP/err"
	fi
}

faults() {
	build kernel_faults && "$TMP/kernel_faults" >"$TMP/names" && while IFS=: read -r name kind; do
		for order in fifo lifo; do
			fault kernel_faults "$name" "$kind" 1 $order
		done
	done <"$TMP/names"

	build op_faults && "$TMP/op_faults" >"$TMP/names" && while IFS=: read -r name kind unchecked; do
		for order in fifo random; do
			fault op_faults "$name" "$kind" 1 $order
		done
		[ "$unchecked" = 0 ] || fault op_faults "$name" "$kind" 0 random
	done <"$TMP/names"
	# A wait left out by the stand-in: each of a program's own can be tried so.
	export SOFTGPU_CHECK=1 SOFTGPU_DROP_WAIT=1
	expect "a wait left out" 66 timeout 60 "$TMP/op_faults" read-too-early good &&
		if grep -q "^softgpu: missing wait: " "$TMP/err"; then ok "a wait left out"; else bad "a wait left out" "$TMP/err"; fi
	unset SOFTGPU_DROP_WAIT
}

# ---- against a toolkit, where there is one ----

toolkit=${CUDA_HOME:-/usr/local/cuda}
headers="-I$toolkit/include"
compare_abi() {
	for h in cuda.h nvrtc.h cublasLt.h nccl.h; do
		echo "#include <$h>" | ${CXX:-g++} -E -x c++ $headers - >/dev/null 2>&1 || {
			skip "api.h is the toolkit's" "no $h in $toolkit/include"
			return
		}
	done
	if ${CXX:-g++} -std=c++17 -fsyntax-only -I. $headers tests/softgpu/same_abi.cc 2>"$TMP/log"; then
		ok "api.h is the toolkit's"
	else
		bad "api.h is not the toolkit's" "$TMP/log"
	fi
}

# Where a real library lies: in the toolkit, then where the loader finds it. The driver's may be a stub.
real() {
	for d in "$toolkit/lib64" "$toolkit/lib" "$toolkit/lib64/stubs" "$toolkit/lib/stubs"; do
		[ -e "$d/$1" ] && echo "$d/$1" && return
	done
	ldconfig -p 2>/dev/null | sed -n "s,.*$1 .*=> ,,p" | head -1
}

# names LIST FILE: all names of an api.h list are exported by FILE.
compare_names() {
	so=$(real "$2")
	if [ -z "$so" ]; then
		skip "names of $2" "not found"
		return
	fi
	{
		echo '#include "runtime/cuda/api.h"'
		echo '#define NAME(name, ret, args) @name'
		echo "$1(NAME)"
	} | ${CC:-cc} -E -P -I. -xc - | tr ' ' '\n' | sed -n 's/^@//p' | sort >"$TMP/want"
	nm -D --defined-only "$so" | sed 's/.* //; s/@.*//' | sort -u >"$TMP/have"
	comm -23 "$TMP/want" "$TMP/have" >"$TMP/why"
	if [ -s "$TMP/want" ] && ! [ -s "$TMP/why" ]; then
		ok "names of $2"
	else
		bad "$so lacks" "$TMP/why"
	fi
	prefix=$3
	nm -D --defined-only build/softgpu/libsoftgpu.so | sed 's/.* //; s/@.*//' | grep "^$prefix[A-Z]" | sort -u | comm -23 - "$TMP/have" >"$TMP/why"
	if [ -s "$TMP/why" ]; then
		bad "not in $so" "$TMP/why"
	else
		ok "no others in the stand-in for $2"
	fi
}

compare_attributes() {
	so=$(real libcublasLt.so.13)
	if [ -z "$so" ]; then
		skip "attributes of cuBLASLt" "libcublasLt.so.13 not found"
		return
	fi
	build lt_attrs || return
	"$TMP/lt_attrs" "$so" >"$TMP/real" && "$TMP/lt_attrs" build/softgpu/libcublasLt.so.13 >"$TMP/ours"
	if [ -s "$TMP/real" ] && diff "$TMP/real" "$TMP/ours" >"$TMP/why"; then
		ok "attributes of cuBLASLt"
	else
		bad "attributes of cuBLASLt" "$TMP/why"
	fi
}

conform() {
	compare_abi
	compare_names CU_FUNCTIONS libcuda.so cu
	compare_names NVRTC_FUNCTIONS libnvrtc.so.13 nvrtc
	compare_names CUBLASLT_FUNCTIONS libcublasLt.so.13 cublasLt
	compare_names NCCL_FUNCTIONS libnccl.so.2 nccl
	compare_attributes
}

for part in ${*:-programs faults conform}; do
	$part
done
finish
