#!/bin/sh
# The cases of a list of public bug reports that concern pipelines (E), estimates of memory (H) and the order of collectives
# (K), by their number; the other letters are in tests/cases. The model is M0 of tests/cases with plans of its own.
#
# Not here, since others have them:
#   R53              no mode where the norm is summed in one order for any layout
#   R97 R98          in tests/mutate: a plan whose collectives stand in another order on one stage is refused
#   R100             in tests/recompute
#   R101             in tests/unit/test_pipeline.c and test_runtime.c: who left, at which op and line, within ten seconds
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

equal() { # NAME GOT WANTED
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		echo "got '$2', not '$3'" >"$TMP/why"
		bad "$1" "$TMP/why"
	fi
}

# m0 LINES: M0 with a plan of these lines, separated by ; ("_" is a space).
m0() {
	{
		sed '/^plan /,$d' tests/cases/m0.pdsl
		printf 'plan {\n'
		echo "$1" | tr ';_' '\n ' | sed 's/zb h1/zb_h1/; s/zb v/zb_v/'
		printf '}\n'
	} >"$TMP/m0.pdsl"
}

same() { # NAME LINES SETS: a rank's step is that of one rank alone, and the plan is proved safe
	m0 "$2"
	expect "$1: $2 $3" 0 timeout 120 "$PTC" check "$TMP/m0.pdsl" --verify --set "$3" && ok "$1: $2 $3"
	expect "$1: safe" 0 "$PTC" verify "$TMP/m0.pdsl" --set "$3"
}

told() { # LINES SETS FILTER: of what explain says
	m0 "$1"
	"$PTC" explain --json "$TMP/m0.pdsl" --set "$2" 2>"$TMP/err" | jq -c "$3"
}

# -- E. Pipelines --

# Every layer is on one stage, once.
for case in 30:4 10:3 7:2; do
	layers=${case%:*} stages=${case#*:}
	equal "R56 $layers layers on $stages stages" "$(told "mesh_pp_=_$stages;layers_->_pp;microbatches_=_4" "layers=$layers" \
		'.memory.stages | [length, (map(.iterations) | add)]')" "[$stages,$layers]"
done
same R56 'mesh_pp_=_3;layers_->_pp;microbatches_=_2' layers=10
same R56 'mesh_pp_=_2;layers_->_pp;microbatches_=_2' layers=7

# A head that costs more than a stage takes no layer, and no stage has less than none.
HEAD=vocab=1000,embed=8,seq=64
equal "R58 the head's stage has no layer" "$(told 'mesh_pp_=_4;layers_->_pp;microbatches_=_4' $HEAD \
	'.memory.stages | [(map(.iterations) | add), (map(.iterations) | min), .[3].iterations]')" "[4,0,0]"
same R58 'mesh_pp_=_4;layers_->_pp;microbatches_=_2' vocab=200

# Any number of microbatches; a short last group does not stand still.
for m in 1 3 5 10; do
	same R59 "mesh_pp_=_4;layers_->_pp;pipeline_interleaved,_chunks_=_2;microbatches_=_$m" "layers=8,batch=$((2 * m))"
done
# Both neighbours of a stage are one rank.
same R61 'mesh_pp_=_2;layers_->_pp;pipeline_interleaved,_chunks_=_2;microbatches_=_4' layers=4
# Messages come in the order of who wants them: more buffers gain nothing.
step() { told "mesh_pp_=_4;layers_->_pp;microbatches_=_8;pipeline_interleaved,_chunks_=_2,_buffers_=_$1" layers=8,batch=16 .time.step_s; }
equal "R62 two buffers are as good as many" "$(step 2)" "$(step 64)"

# Gradients add up in place: memory does not grow with microbatches.
peaks() { told "mesh_pp_=_4;layers_->_pp;microbatches_=_$1;pipeline_zb_h1" "layers=8,batch=$((2 * $1))" '.memory.stages | map(.peak)'; }
equal "R64 64 microbatches need what 8 do" "$(jq -n "[$(peaks 8), $(peaks 64)] | transpose | all(.[]; .[1] <= 1.001 * .[0])")" true

# A backward in halves, with all that it may meet.
for order in zb_h1 zb_v; do
	same "R65 attention" "mesh_pp_=_2;layers_->_pp;pipeline_$order;microbatches_=_2" seq=8
	for how in selective full full,_first_=_1; do
		same "R65 recompute" "mesh_pp_=_2;layers_->_pp;pipeline_$order;microbatches_=_2;recompute_$how" seq=8
	done
	for model in moe tied; do
		sed '/^plan /,$d' tests/cases/$model.pdsl >"$TMP/$model.pdsl"
		printf 'plan {\n\tmesh pp = 2\n\tlayers -> pp\n\tpipeline %s\n\tmicrobatches = 2\n}\n' $order >>"$TMP/$model.pdsl"
		expect "R65 $model $order" 0 timeout 120 "$PTC" check "$TMP/$model.pdsl" --verify && ok "R65 $model $order"
	done
done

# Params that lie sharded are gathered for each microbatch, or once.
gathers() {
	told "mesh_pp_=_2,_dp_=_2;layers_->_pp;batch_->_dp;params_->_dp$1;microbatches_=_$2" "batch=16" \
		'[.comm[] | select(.op == "all_gather" and .stage == 0 and (.why | test("layers"))) | .count] | add'
}
equal "R67 gathers for each microbatch, and once" "$(($(gathers '' 4) / $(gathers '' 2))) $(($(gathers ',_gather_=_step' 4) / $(gathers ',_gather_=_step' 2)))" "2 1"

# What is foretold is what there is, to the byte.
m0 'mesh_pp_=_2;layers_->_pp;pipeline_zb_h1;microbatches_=_4'
expect R68 0 "$PTC" run "$TMP/m0.pdsl" --data tests/data/text.txt --steps 2 --json --set vocab=256,batch=8 &&
	equal "R68 the peak of each stage" "$(jq -c 'select(.summary) | .summary.peak_bytes' "$TMP/out")" \
		"$("$PTC" explain --json "$TMP/m0.pdsl" --set vocab=256,batch=8 | jq -c '[.memory.stages[].peak]')"

# -- H. Memory --

# Seven billion params in bf16, with float32 masters, moments and gradients, over eight ranks: bytes a param. (zero1 adds up
# whole gradients, and has a place for the part of their sum that its states are for.)
cat >"$TMP/psi.pdsl" <<MODEL
dim batch = 16, a = 70000, b = 100000
input x[batch, a]: float
param w[a, b] ~ zeros
y[batch, b] = x @ w
loss = mean(square(y))
minimize loss with adamw(lr = 1e-3)
plan zero0 { mesh dp = 8; batch -> dp; microbatches = 2; precision bf16 }
plan zero1 { mesh dp = 8; batch -> dp; optimizer -> dp; microbatches = 2; precision bf16 }
plan zero2 { mesh dp = 8; batch -> dp; grads -> dp; microbatches = 2; precision bf16 }
plan zero3 { mesh dp = 8; batch -> dp; params -> dp; microbatches = 2; precision bf16 }
MODEL
while read -r plan want; do
	expect "R82 $plan" 0 "$PTC" explain --json "$TMP/psi.pdsl" --plan "$plan" &&
		equal "R82 params, gradients, states of $plan" "$(jq -c '.memory.stages[0] | [.params, .grads, .optimizer] | map(. / 7e9)' "$TMP/out")" "$want"
done <<TABLE
zero0 [2,4,12]
zero1 [2,4.5,1.5]
zero2 [2,0.5,1.5]
zero3 [0.25,0.5,1.5]
TABLE

# Stages differ: in what is in flight, and in who has the logits.
LINES='mesh_pp_=_4;layers_->_pp;microbatches_=_8;pipeline_1f1b,_stages_=_[1,_1,_1,_1]'
WIDE=batch=16,seq=256,embed=512,ff=2048
equal "R83 microbatches in flight" "$(told "$LINES" $WIDE '.memory.stages | map(.in_flight)')" "[4,3,2,1]"
middle() { told "$LINES" "$WIDE,vocab=$1" '.memory.stages[1:3] | map(.peak)'; }
last() { told "$LINES" "$WIDE,vocab=$1" '.memory.stages[3].peak'; }
equal "R83 only the last stage has logits" "$(middle 100) $(($(last 2000) > $(last 100)))" "$(middle 2000) 1"

# What gathered weights take is a line of its own: two layers, the one at work and the next, however many there are.
cat >"$TMP/gathers.pdsl" <<MODEL
dim batch = 8000, a = 7000, b = a, layers = 6
input x0[batch, a]: float
x = x0
repeat layers {
    param w[a, b] ~ normal(0.02)
    x = x + tanh(x @ w)[b -> a]
}
loss = mean(square(x))
minimize loss with sgd(lr = 1e-3)
plan zero0 { mesh dp = 8; batch -> dp; precision bf16 }
plan zero3 { mesh dp = 8; batch -> dp; params -> dp; precision bf16 }
MODEL
for layers in 4 6; do
	expect "R85 explain" 0 "$PTC" explain --json "$TMP/gathers.pdsl" --plan zero3 --set layers=$layers &&
		equal "R85 gathered weights of $layers layers" "$(jq -c '.memory.stages[0] | [.gathered, (.tensors[] |
			select(.kind == "gathered") | .name, .times)]' "$TMP/out")" "[$((2 * 7000 * 7000 * 2)),\"all_gather layers.w\",2]"
done
expect "R85 explain" 0 "$PTC" explain "$TMP/gathers.pdsl" --plan zero3
equal "R85 a line" "$(grep -c '^            params .* gathered 196.0 MB$' "$TMP/out")" 1
expect "R85 explain" 0 "$PTC" explain "$TMP/gathers.pdsl" --plan zero0
equal "R85 nothing to gather" "$(grep -c gathered "$TMP/out")" 0

# 8,192 tokens of 151,936 words in float32 are 4.637 GiB; 1,024 at once 0.580 GiB, forward and backward, one copy. What is
# computed stays the same.
cat >"$TMP/head.pdsl" <<MODEL
include "$PWD/examples/lib.pdsl"
dim batch = 1, seq = 8192, vocab = 151936, embed = 64
input tokens[batch, seq]: token(vocab)
input targets[batch, seq]: token(vocab) = next(tokens)
param wte[vocab, embed], wout[vocab, embed] ~ normal(0.02)
x[batch, seq, embed] = wte[vocab = tokens]
logits[batch, seq, vocab] = norm(x, embed) @ wout
loss = cross_entropy(logits, targets, vocab)
minimize loss with adamw(lr = 1e-3)
plan {
	mesh dp = 1, cp = 1, tp = 1 on h100
	batch -> dp
	seq -> cp
	vocab -> tp
	chunk logits, rows = 8192
}
MODEL
wide() { # OPTIONS: gibibytes of the largest tensors, as many as are over half of one, and FLOPs
	"$PTC" explain --json "$TMP/head.pdsl" "$@" 2>"$TMP/err" |
		jq -c '[.memory.stages[0].tensors[] | select(.bytes * .times > 5e8) | (.bytes * .times / 1073741824 * 1000 | round / 1000)], .flops.hardware' | tr '\n' ' '
}
whole=$(wide) parts=$(wide --add 'chunk logits, rows = 1024')
equal "R86 8192 rows at once" "${whole%% *}" "[4.637]"
equal "R86 1024 rows at once" "${parts%% *}" "[0.58]"
equal "R86 the same FLOPs" "${parts#* }" "${whole#* }"
equal "R86 on each of four ranks" "$(wide --mesh cp=2,tp=2 --add 'chunk logits, rows = 2048' | sed 's/ .*//')" "[0.58]"

# Any number of ranks, from the plan alone: 2,048 in seconds.
expect "R88 2,048 ranks" 0 timeout 20 "$PTC" explain --json examples/llama.pdsl --plan big --mesh pp=8,dp=32,tp=8 \
	--set batch=512,embed=16384,layers=126,group=16,ff=53248 &&
	equal "R88 2,048 ranks, and what the library may take" "$(jq -c '[.ranks, (.memory.stages | length), .memory.stages[0].workspace]' "$TMP/out")" "[2048,8,268435456]"

# Of one rank the step is the sum of its parts.
equal "R89 nothing but compute" "$(told 'mesh_dp_=_1' seq=8 '.time | (.compute_s - .step_s | fabs) < 1e-12 and (.exposed_comm_s | fabs) < 1e-12 and
	.bubble_fraction < 1e-12 and (([.kinds | to_entries[] | select(.key != "hidden") | .value] | add) - .step_s | fabs) < 1e-12')" true

# -- K. Order --

# Exchanges of experts and reductions of gradients, on groups that cross: one order on all ranks, and no circle.
for mesh in dp=2,ep=2 dp=2,ep=2,tp=2 dp=4,ep=2; do
	expect "R98 $mesh" 0 "$PTC" verify tests/cases/moe.pdsl --plan zero3 --mesh $mesh && ok "R98 $mesh"
done
finish
