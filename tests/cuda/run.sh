#!/bin/sh
# The CUDA backend on the software GPU: `ptc check --backend cuda` says that the plan on GPUs computes what one rank computes on
# the processor (each check runs four steps: one read as it is carried out, one captured, two replayed); what is said when
# libraries are missing, or processes or GPUs are lost. `run.sh PART...` runs some parts: errors, epilogues, tune, processes, dry, plans.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

${MAKE:-make} -s softgpu >"$TMP/log" 2>&1 || {
	bad "make softgpu" "$TMP/log"
	finish
}
export PTC_CUDA_LIBS="$PWD/build/softgpu" SOFTGPU_DEVICES=8 PTC_CACHE="$TMP/cache" SOFTGPU_CACHE="$PWD/build/softgpu/cache"
mkdir -p -m 700 "$PTC_CACHE"
# What runs once for a few numbers, on machines that do other things too: not to be optimised, nor shared by threads.
export SOFTGPU_OPT=0 PTC_THREADS=1

# -- plans --

# The dims, small.
case_of() {
	file=tests/equiv/$1.pdsl head='heads, ff, vocab -> tp' size=
	case $1 in
	llama) head='kv, group, ff, vocab -> tp' ;;
	mixtral)
		file=examples/mixtral.pdsl head='kv, group, ff, vocab -> tp'
		size=batch=4,seq=8,vocab=16,embed=8,layers=2,kv=2,group=2,head=4,ff=6,experts=4
		;;
	mlp) head='hidden, class -> tp' ;;
	esac
}

# write_case MESH ARROWS: arrows "-" (none), or separated by ; with _ for spaces
write_case() {
	sed -e '/^plan/,$d' -e "s,\"../../examples/lib,\"$PWD/examples/lib," -e "s,include \"lib,include \"$PWD/examples/lib," "$file"
	printf 'plan {\n\tmesh %s\n' "$(echo "$1" | sed 's/=/ = /g; s/,/, /g')"
	case $1 in *ep=*) printf '\texperts -> ep\n\tbatch -> dp, ep\n' ;; *) printf '\tbatch -> dp\n' ;; esac
	echo "	$head"
	[ "$2" = - ] || echo "	$2" | tr ';_' '\n ' | sed 's/zb h1/zb_h1/'
	echo '}'
}

plans() {
	while read -r check model mesh arrows sets; do
		case $check in
		'' | '#'*) continue ;;
		esac
		case_of "$model"
		name="$model $mesh $arrows $sets"
		write_case "$mesh" "$arrows" >"$TMP/case.pdsl"
		export SOFTGPU_CHECK=$check
		all=$size${size:+${sets:+,}}$sets
		if expect "$name" 0 timeout 300 "$PTC" check --backend cuda "$TMP/case.pdsl" ${all:+--set "$all"}; then
			if grep -q "^softgpu" "$TMP/err"; then bad "$name: says something" "$TMP/err"; else ok "$name"; fi
		fi
	done
}
# two layers of products, biases of both, and gelu (tanh) or what MAP says between
write_model() {
	cat >"$TMP/case.pdsl" <<EOF
dim batch = 8, in = 8, mid = 16, out = 8
input x[batch, in]: float
input y[batch]: token(out)
param w1[in, mid], w2[mid, out] ~ normal(0.3)
param b1[mid], b2[out] ~ normal(0.1)
h[batch, mid] = $1
z[batch, out] = h @ w2 + b2
loss = cross_entropy(z, y, out)
minimize loss with sgd(lr = 0.1)
plan {
	mesh dp = 1
	batch -> dp
}
EOF
}

. tests/cuda/errors.sh
. tests/cuda/epilogues.sh
. tests/cuda/processes.sh
. tests/cuda/tune.sh
. tests/cuda/dry.sh
. tests/cuda/plans.sh
finish
