#!/bin/sh
# Recomputation: what each mode keeps, that it changes no bit, what memory it saves and what it costs.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
D=tests/recompute

equal() { # TITLE GOT WANTED
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		printf 'got:\n%s\nwanted:\n%s\n' "$2" "$3" >"$TMP/why"
		bad "$1" "$TMP/why"
	fi
}

# plan MODEL PLAN LINE: the model in $TMP/model.pdsl with the line at the start of the plan.
plan() {
	dir=$PWD/$(dirname "$1")
	sed "s/^plan $2 *{/&\n    $3/; s#^include \"#&$dir/#" "$1" >"$TMP/model.pdsl"
}

# -- what is kept of a layer --

kept() { # MODEL OPTIONS...
	"$PTC" show "$@" --after=rematerialize 2>"$TMP/err" | awk -f $D/kept.awk
}

LAYER="examples/llama.pdsl --plan big --mesh dp=1,tp=8"
# shellcheck disable=SC2086
equal "kept of a llama layer: selective" "$(kept $LAYER --set microbatches=1,recompute=selective)" "einsum [batch, seq, ff@tp]
einsum [batch, seq, ff@tp]
cast [batch, seq@tp, embed]
arg [batch, seq@tp, embed]
attention 1 [batch, seq, kv@tp, group, head]
cast [batch, seq, kv@tp, group, head]
cast [batch, ctx, kv@tp, head]
einsum [batch, ctx, kv@tp, head]
attention 2 [batch, seq, kv@tp, group]"
# shellcheck disable=SC2086
equal "kept of a llama layer: full" "$(kept $LAYER --set microbatches=1,recompute=full)" "arg [batch, seq@tp, embed]"
plan examples/llama.pdsl big 'recompute full, keep = [q, "*.v", "sw*"]'
equal "kept of a llama layer: a list" "$(kept "$TMP/model.pdsl" --plan big --mesh dp=1,tp=8 --set microbatches=1)" "arg [batch, seq@tp, embed]
cast [batch, seq, kv@tp, group, head]
einsum [batch, ctx, kv@tp, head]"
plan examples/llama.pdsl big 'recompute auto, memory = 100Ti'
equal "kept of a llama layer: all, if there is room" "$(kept "$TMP/model.pdsl" --plan big --mesh dp=1,tp=8 --set microbatches=1 | sort)" \
	"$(kept "$TMP/model.pdsl" --plan big --mesh dp=1,tp=8 --set microbatches=1,recompute=none | sort)"

# Routing is kept whatever else is not: no tie may go another way the second time (R80).
for model in mixtral deepseek; do
	set=$(sed -n 's/^# SET: //p' tests/models/$model.pdsl)
	if expect "R80 $model" 0 "$PTC" show tests/models/$model.pdsl --plan small --set "$set,recompute=full" --after=rematerialize; then
		equal "R80 routing of $model is not made again" \
			"$(grep -cE ' = (topk|rank|argmax) .*again=1' "$TMP/out") $(grep -cE ' = einsum .*again=1' "$TMP/out" | sed 's/[1-9][0-9]*/some/')" "0 some"
	fi
done

# Params that lie sharded are gathered for backward in any mode, and not a second time for what is made again (R110).
gathers() {
	"$PTC" show tests/equiv/gpt.pdsl --mesh dp=2 --plan params --set recompute="$1" --after=rematerialize |
		grep -c '^    .* = all_gather .*the next einsum needs'
}
equal "R110 gathers of weights in an iteration" "$(gathers none) $(gathers selective) $(gathers full)" "12 12 12"
equal "R110 gathers of activations are dropped and done again" "$("$PTC" explain --json tests/equiv/gpt.pdsl --mesh tp=2 --plan sp \
	--set recompute=selective | jq '[.comm[] | select(.why | test("layers.h.*again, as it was not kept")) | .count] | add')" 2

# -- the same bits --

bits() { # NAME DATA MODEL OPTIONS...
	name=$1 data=$2 model=$3 first=
	shift 3
	for how in none selective full auto; do
		expect "bits of $name, $how" 0 "$PTC" run "$model" --data "$data" --steps 2 --save "$TMP/save" --set recompute=$how "$@" || continue
		hash="$(sha256sum <"$TMP/save") $(grep -o 'loss .* grad_norm [^ ]*' "$TMP/out")"
		[ "$how" != none ] || first=$hash
		equal "bits of $name, $how: $*" "$hash" "$first"
	done
}

TEXT=tests/data/text.txt
while read -r model options; do
	# shellcheck disable=SC2086
	bits $model $TEXT tests/equiv/$model.pdsl --set vocab=256 $options
done <<TABLE
gpt --mesh dp=2,tp=2 --plan grads --set microbatches=2
gpt --mesh dp=2,tp=2 --plan params
gpt --mesh dp=3 --plan zero --set batch=6,microbatches=2
gpt --mesh cp=2 --plan ulysses
llama --mesh dp=2,tp=2 --plan all --set microbatches=2
llama --mesh dp=2,cp=2,tp=2 --plan zigzag
TABLE

# The first n iterations of a stage, the others keep all: in any order of a pipeline, over several repeats, in halves.
# A line: model, mesh, arrows ("-" none), settings. Memory falls with n; layouts may be packed a little worse.
first() { # MODEL MESH LINES SETS
	model=$1 mesh=$2 lines=$3 sets=vocab=256${4:+,$4} hash= last=
	for how in none full 'full, first = 1' 'full, first = 2' 'full, first = 3' 'selective, first = 2'; do
		{
			sed -e '/^plan/,$d' -e "s,\"../../examples/lib,\"$PWD/examples/lib," "tests/equiv/$model.pdsl"
			echo "plan {"
			echo "	mesh $mesh" | sed 's/=/ = /g; s/,/, /g'
			echo "	batch -> dp"
			[ "$lines" = - ] || echo "	$lines" | tr ';_' '\n ' | sed 's/zb h1/zb_h1/; s/zb v/zb_v/'
			echo "	recompute $how"
			echo "}"
		} >"$TMP/model.pdsl"
		name="first of $model $mesh $lines $4, $how"
		expect "$name" 0 timeout 120 "$PTC" run "$TMP/model.pdsl" --data $TEXT --steps 2 --save "$TMP/save" --set "$sets" --json || continue
		if [ "$(jq 'select(.summary) | .summary | .peak_bytes == .predicted_peak_bytes' "$TMP/out")" != true ]; then
			bad "$name: peak"
			continue
		fi
		peaks=$(jq -c 'select(.summary) | .summary.peak_bytes' "$TMP/out")
		case $how in
		none) hash=$(sha256sum <"$TMP/save") ;;
		full) ;;
		full,*)
			[ -z "$last" ] || equal "$name: less memory" "$(jq -n "[$last, $peaks] | transpose | [all(.[]; .[0] * 1.001 >= .[1]), any(.[]; .[0] > .[1])] | all")" true
			last=$peaks
			;;
		esac
		equal "$name: the same bits" "$(sha256sum <"$TMP/save")" "$hash"
	done
}

while read -r model mesh lines sets; do
	first "$model" "$mesh" "$lines" "$sets"
done <<TABLE
gpt    dp=2,tp=2 heads,_ff,_vocab_->_tp;seq_->_tp batch=32,seq=16,layers=5
llama  dp=2,tp=1 params_->_dp batch=64,layers=5,seq=16,microbatches=2
gpt    pp=2,dp=1,tp=2 heads,_ff,_vocab_->_tp;layers_->_pp;pipeline_1f1b batch=48,layers=7,microbatches=3
gpt    pp=2,dp=2 layers_->_pp;pipeline_gpipe,_stages_=_[3,_4] batch=96,layers=7,microbatches=3
llama  pp=2,dp=2 layers_->_pp;pipeline_interleaved,_chunks_=_2 batch=128,layers=7,microbatches=4
llama  pp=2,dp=1 layers_->_pp;pipeline_zb_h1 batch=64,layers=6,microbatches=4
llama  pp=2,dp=1 layers_->_pp;pipeline_zb_v batch=64,layers=9,microbatches=4
shared pp=2,dp=1 layers,_more_->_pp;pipeline_1f1b batch=96,microbatches=4
TABLE

# -- one rank's step --

same() { # MODEL OPTIONS...
	expect "check $*" 0 timeout 120 "$PTC" check "$@" && ok "check $*"
}

for how in selective full; do
	same tests/equiv/gpt.pdsl --mesh dp=2,tp=2 --plan params --set recompute=$how
	same tests/equiv/llama.pdsl --mesh dp=2,cp=2 --plan zigzag --set recompute=$how # rings: R100
	same tests/equiv/attend.pdsl --mesh dp=1,cp=4 --set recompute=$how --evaluator
	for model in mixtral t5; do
		set=$(sed -n 's/^# SET: //p' tests/models/$model.pdsl)
		same tests/models/$model.pdsl --plan small --set "$set,recompute=$how" --mesh dp=2,tp=2
	done
	same examples/mixtral.pdsl --mesh dp=2,ep=2 --set "$(sed -n 's/^# SET: //p' tests/models/mixtral.pdsl),precision=fp32,microbatches=1,recompute=$how"
	same $D/pipe.pdsl --set recompute=$how
	same $D/nested.pdsl --set recompute=$how
	same $D/product.pdsl --set recompute=$how
done
for how in 'full, first = 1' 'selective, first = 2' 'full, first = 1, keep = ["x*", q]'; do
	plan $D/pipe.pdsl '' "recompute $how"
	same "$TMP/model.pdsl" --verify
	same "$TMP/model.pdsl" --mesh pp=1,tp=2 --verify --evaluator
	plan $D/nested.pdsl '' "recompute $how"
	same "$TMP/model.pdsl"
done
for model in mixtral t5; do
	set=$(sed -n 's/^# SET: //p' tests/models/$model.pdsl)
	plan tests/models/$model.pdsl small 'recompute full, first = 1'
	same "$TMP/model.pdsl" --plan small --set "$set" --mesh dp=2,tp=2
done
plan $D/pipe.pdsl '' 'recompute auto, memory = 1'
same "$TMP/model.pdsl"
plan $D/nested.pdsl '' 'recompute auto, memory = 1'
same "$TMP/model.pdsl"
plan tests/equiv/llama.pdsl all 'recompute full, keep = [q, "gqa.*"]'
same "$TMP/model.pdsl" --mesh dp=2,tp=2 --plan all

# -- memory and work --

figures() {
	"$PTC" explain --json examples/gpt-mini.pdsl --set recompute="$1" | jq -r '[.memory.peak, .flops.model, .flops.hardware] | @tsv'
}
for how in none selective full; do figures $how; done >"$TMP/figures"
equal "less memory, the same model, more work" "$(awk '{ peak[NR] = $1; model[NR] = $2; work[NR] = $3 }
	END { print (peak[1] > peak[2]), (peak[2] > peak[3]), (model[1] == model[2]), (model[1] == model[3]), (work[1] == work[2]), (work[3] > 1.15 * work[1]) }' "$TMP/figures")" "1 1 1 1 1 1"

for mem in 310000000 305000000 301000000; do
	plan examples/gpt-mini.pdsl '' "recompute auto, memory = $mem"
	expect "auto, $mem bytes" 0 "$PTC" explain --json "$TMP/model.pdsl" || continue
	equal "auto, $mem bytes: it fits, nothing is said" "$(jq ".memory.peak <= $mem" "$TMP/out") $(wc -c <"$TMP/err" | tr -d ' ')" "true 0"
	jq .flops.hardware "$TMP/out"
done >"$TMP/auto"
equal "auto: less memory is more work" "$(awk 'NF == 1 { n++; up += $1 >= last; last = $1 } END { print n, up }' "$TMP/auto")" "3 3"
# One choice for all iterations would do 1.0387 times the work of the model, in 303681088 bytes.
plan examples/gpt-mini.pdsl '' "recompute auto, memory = 305M"
expect "auto: iterations differ" 0 "$PTC" explain --json "$TMP/model.pdsl" &&
	equal "auto: iterations differ" "$(jq '.memory.peak > 303681088 and .flops.hardware < 1.03 * .flops.model' "$TMP/out") $("$PTC" show "$TMP/model.pdsl" |
		grep -c '^dim.*=first layers')" "true 1"
plan examples/gpt-mini.pdsl '' "recompute auto, memory = 280M"
expect "auto: too little" 0 "$PTC" explain "$TMP/model.pdsl" &&
	equal "auto: too little" "$(grep -c 'warning: a rank needs .* however much is recomputed' "$TMP/err")" 1
finish
