# PTC_CUDA_TUNE: of the ways that cuBLASLt offers, the one that is fastest by events is taken and kept. On the software GPU, whose
# clock is what each way is said to take. Sourced by run.sh.
[ $# = 0 ] || case " $* " in *" tune "*) ;; *) return ;; esac

# ways TUNE SOFTGPU_WAYS RANKS: how many products ran by each way, "COUNT WAY ..."
ways() {
	PTC_CUDA_TUNE=$1 SOFTGPU_WAYS=$2 SOFTGPU_VERBOSE=1 timeout 300 "$PTC" check --backend cuda "$TMP/case.pdsl" --mesh "dp=$3" \
		>"$TMP/out" 2>"$TMP/err" || echo "exit status $?"
	sed -n 's/.*matmul .* by way \([0-9]\).*/\1/p' "$TMP/err" | sort | uniq -c | awk '{ printf "%s%s %s", (NR > 1 ? " " : ""), $1, $2 }'
}

same() {
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		echo "$2, not $3" >"$TMP/why"
		bad "$1" "$TMP/why"
	fi
}

gelu='gelu(x @ w1 + b1, tanh)'
write_model "$gelu"
keep=$PTC_CACHE
export PTC_CACHE="$TMP/tune"
mkdir -m 700 "$PTC_CACHE"
# 5 products a step (2 forward, 3 backward: nothing wants the gradient of the input), 4 steps; 6 rounds of each way before
same "not tuned: the library's best" "$(ways '' 3,1,2 1)" "20 0"
same "tuned: the fastest" "$(ways 3 3,1,2 1)" "30 0 50 1 30 2"
same "kept: nothing is measured again" "$(ways 3 3,2,1 1)" "20 1"
same "not tuned: what was kept" "$(ways 0 3,2,1 1)" "20 1"
same "more ways than were tried" "$(ways 4 3,2,1,0 1)" "30 0 30 1 30 2 50 3"
same "ranks take what one of them has found" "$(ways 2 2,1 2)" "30 0 70 1"
export PTC_CACHE=$keep
