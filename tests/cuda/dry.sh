# Part of run.sh: `make gpu-check` where there is no GPU, and, so that all of its lines have run before a GPU is there, with the software
# GPU in the place of two. The speeds that it prints mean nothing.
[ $# = 0 ] || case " $* " in *" dry "*) ;; *) return ;; esac

# dry NAME PATH PASSED SKIPPED TEXTS...: it ends so, and says these
dry() {
	name=$1 path=$2 counts="$3 passed, 0 failed, $4 skipped"
	shift 4
	expect "gpu-check: $name" 0 env PATH="$path" timeout 300 sh tests/gpu/run.sh || return
	for text in "$counts" "$@"; do
		grep -q -e "$text" "$TMP/out" || {
			bad "gpu-check: $name: no \"$text\"" "$TMP/out"
			return
		}
	done
	ok "gpu-check: $name"
}
mkdir "$TMP/gpus" "$TMP/gpu0"
cat >"$TMP/gpus/nvidia-smi" <<'EOF'
#!/bin/sh
case $1 in *memory*) echo "NVIDIA H100 80GB HBM3, 0 MiB, 0" ;; *) printf 'NVIDIA H100 80GB HBM3\nNVIDIA H100 80GB HBM3\n' ;; esac
EOF
printf '#!/bin/sh\nexit 9\n' >"$TMP/gpu0/nvidia-smi"
# Python sees no torch in it.
printf '#!/bin/sh\nexit 1\n' >"$TMP/gpus/python3"
chmod +x "$TMP"/gpu[s0]/*
dry "no GPU" "$TMP/gpu0:$PATH" 0 3 "nvidia-smi finds no GPU"
dry "the software GPU" "$TMP/gpus:$PATH" 0 3 "PTC_CUDA_LIBS names the software GPU"
export GPU_CHECK_DRY=1
dry "two GPUs" "$TMP/gpus:$PATH" 3 1 "tokens/s, MFU [0-9.]* %" "data parallel over 2: [0-9]* tokens/s; each sends a step: [1-9][0-9]* bytes" \
	"python3 has no torch that sees a GPU"
unset GPU_CHECK_DRY
