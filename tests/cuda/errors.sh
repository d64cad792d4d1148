# Part of run.sh: what is said when something is missing.
[ $# = 0 ] || case " $* " in *" errors "*) ;; *) return ;; esac

"$PTC" tests/equiv/gpt.pdsl --set vocab=256,layers=1 --plan params --mesh dp=2,tp=1 -o "$TMP/two.plan" >"$TMP/out" 2>&1 || bad "compile two.plan" "$TMP/out"

# says NAME STATUS TEXT...: ptc run of two ranks ends so, and says all these.
says() {
	name=$1 status=$2
	shift 2
	expect "$name" "$status" timeout 60 "$PTC" run "$TMP/two.plan" --backend cuda --steps 1 --data tests/data/text.txt || return
	for text; do
		grep -q -e "$text" "$TMP/err" || {
			bad "$name: no \"$text\"" "$TMP/err"
			return
		}
	done
	ok "$name"
}

mkdir "$TMP/none" "$TMP/old" "$TMP/some"
PTC_CUDA_LIBS="$TMP/nowhere" says "a folder that is none" 3 "PTC_CUDA_LIBS names the only folder"
PTC_CUDA_LIBS="$TMP/none" says "all libraries are missing" 3 "the NVIDIA driver can't be loaded" "NVRTC can't be loaded" \
	"cuBLASLt can't be loaded" "NCCL can't be loaded" "install the CUDA Toolkit" "PTC_CUDA_LIBS names the only folder"
for l in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13; do ln -s "$PWD/build/softgpu/libsoftgpu.so" "$TMP/some/$l"; done
PTC_CUDA_LIBS="$TMP/some" says "NCCL is missing" 3 "NCCL can't be loaded" "install NCCL 2.14 or newer"
if grep -q "driver can't" "$TMP/err"; then bad "NCCL is missing: nothing else is" "$TMP/err"; else ok "nothing else is missing"; fi
echo 'int cuInit(unsigned x) { return (int)x; }' | ${CC:-cc} -shared -fPIC -x c - -o "$TMP/old/libcuda.so.1"
PTC_CUDA_LIBS="$TMP/old" says "an old driver" 3 "the NVIDIA driver that was found lacks cuDriverGetVersion: it is too old"
SOFTGPU_DEVICES=1 says "too few GPUs" 3 "the plan is for 2 ranks, and there is 1 GPU" "each rank needs a GPU of its own"
SOFTGPU_DEVICES=2 SOFTGPU_MEMORY=64K says "too little memory" 3 "no memory for rank\|cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"
expect "a backend that is none" 1 "$PTC" run "$TMP/two.plan" --backend gpu --steps 1 &&
	if grep -q "backends are cpu and cuda" "$TMP/err"; then ok "a backend that is none"; else bad "a backend that is none" "$TMP/err"; fi

# refuses NAME LOW HIGH VALUES...: the variable, with each of these.
refuses() {
	variable=$1 low=$2 high=$3
	shift 3
	for value; do
		export "$variable=$value"
		says "$variable=$value" 3 "error: $variable=$value is no number from $low to $high"
	done
	unset "$variable"
}
refuses PTC_CUDA_TUNE 0 16 99 17 -1 many 1e1 ' 3' 3.5 99999999999999999999
refuses PTC_CUDA_GRAPHS 0 1 2 off
refuses PTC_CUDA_WAIT 1 86400 0 5m 86401
export WORLD_SIZE=2 RANK=1 MASTER_PORT=29500 MASTER_ADDR=127.0.0.1
refuses LOCAL_RANK 0 1048576 x
unset LOCAL_RANK
refuses MASTER_PORT 1 65535 0 65536
export MASTER_PORT=29500
refuses RANK 0 1 2
export RANK=1
refuses WORLD_SIZE 1 1048576 0 two
export WORLD_SIZE=2
MASTER_ADDR='' says "MASTER_ADDR is empty" 3 "MASTER_ADDR is not set"
MASTER_ADDR=no.such.host.invalid PTC_CUDA_WAIT=1 says "MASTER_ADDR is nobody" 3 "the address of rank 0, 'no.such.host.invalid', is unknown"
unset WORLD_SIZE RANK MASTER_PORT MASTER_ADDR
export SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_JOB_ID=1 SLURM_JOB_NODELIST=a
refuses SLURM_PROCID 0 1 2 x
SLURM_PROCID=0 SLURM_JOB_NODELIST=, says "SLURM_JOB_NODELIST names none" 3 "SLURM_JOB_NODELIST names no node"
unset SLURM_NTASKS SLURM_PROCID SLURM_LOCALID SLURM_JOB_ID SLURM_JOB_NODELIST

# Processes meet by torchrun's variables, and exchange what NCCL needs; the software NCCL connects processes only when it is told to.
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
WORLD_SIZE=3 RANK=0 says "too many processes" 3 "the plan is for 2 ranks, and 3 processes were started" "start one for each rank"
WORLD_SIZE=2 says "a process without a rank" 3 "RANK is not set"
WORLD_SIZE=2 RANK=1 LOCAL_RANK=9 says "a host with too few GPUs" 3 "rank 1 is number 9 on its host, which has 8 GPUs"
WORLD_SIZE=2 RANK=1 LOCAL_RANK=1 SOFTGPU_TIMEOUT=1 timeout 120 "$PTC" run "$TMP/two.plan" --backend cuda --steps 1 --data tests/data/text.txt \
	>"$TMP/one.out" 2>"$TMP/one.err" &
one=$!
WORLD_SIZE=2 RANK=0 SOFTGPU_TIMEOUT=1 timeout 120 "$PTC" run "$TMP/two.plan" --backend cuda --steps 1 --data tests/data/text.txt \
	>"$TMP/out" 2>"$TMP/err"
if grep -q "rank 0: \(the run ends: rank 1: \)*ncclCommInitRank: " "$TMP/err"; then ok "two processes meet"; else bad "two processes meet" "$TMP/err"; fi
wait $one
if grep -q "rank 1: ncclCommInitRank: .* run ranks as threads" "$TMP/one.err"; then
	ok "the other has got the name of the communicator"
else
	bad "the other has got the name of the communicator" "$TMP/one.err"
fi
unset MASTER_ADDR MASTER_PORT

# Two ranks train, the losses are those of the processor to rounding, and what is sent is counted in replayed steps too.
for b in cpu cuda; do
	expect "train on $b" 0 timeout 120 "$PTC" run "$TMP/two.plan" --backend $b --steps 5 --json --data tests/data/text.txt &&
		cp "$TMP/out" "$TMP/$b.json"
done
if jq -s -e '[.[0:5][].loss] as $a | [.[6:11][].loss] as $b | [range(5)] | all($a[.] - $b[.] | fabs < 1e-4)' "$TMP/cpu.json" "$TMP/cuda.json" \
	>/dev/null 2>"$TMP/why" && jq -s -e '.[5].summary.comm == .[11].summary.comm and (.[5].summary.comm | length > 0)' "$TMP/cpu.json" \
	"$TMP/cuda.json" >/dev/null 2>"$TMP/why"; then
	ok "five steps"
else
	cat "$TMP/cpu.json" "$TMP/cuda.json" >>"$TMP/why"
	bad "five steps" "$TMP/why"
fi

# What devices leave in the middle of a run, between steps that are replayed, is gone on with here and there.
if expect "checkpoint of devices" 0 timeout 120 "$PTC" run "$TMP/two.plan" --backend cuda --steps 5 --checkpoint "$TMP/ck" --checkpoint-every 3 \
	--data tests/data/text.txt && cp "$TMP/ck" "$TMP/five" &&
	expect "checkpoint of devices" 0 timeout 120 "$PTC" run "$TMP/two.plan" --backend cuda --steps 3 --checkpoint "$TMP/three" --data tests/data/text.txt; then
	for b in cpu cuda; do
		expect "resume on $b" 0 timeout 120 "$PTC" run "$TMP/two.plan" --backend $b --steps 5 --json --resume "$TMP/three" \
			--checkpoint "$TMP/$b.ck" --data tests/data/text.txt || continue
		if jq -s -e --slurpfile want "$TMP/cuda.json" '[.[0:2][].loss] as $a | [$want[3:5][].loss] as $b |
			[range(2)] | all($a[.] - $b[.] | fabs < 1e-4)' "$TMP/out" >/dev/null; then ok "resume on $b"; else bad "resume on $b" "$TMP/out"; fi
	done
	if cmp "$TMP/five" "$TMP/cuda.ck" >"$TMP/why" 2>&1; then ok "resume on devices: the same bits"; else bad "resume on devices: the same bits" "$TMP/why"; fi
fi
