#!/bin/sh
# Pipelines compute the step of one rank: `ptc check` over models, orders, stages, chunks and microbatches,
# with tensor and data parallelism. A line of the table: model, order, mesh, arrows ("-" none), settings.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

# The dims, small, and the repeats of each model. The plans of the files of tests/equiv are not wanted.
case_of() {
	head='heads, ff, vocab -> tp' loops=layers
	case $1 in
	gpt) size=batch=12,layers=7 ;;
	llama) size=batch=12,layers=7 head='kv, group, ff, vocab -> tp' ;;
	shared) size=batch=24 head='ff, vocab -> tp' loops='layers, more' ;;
	mixtral)
		size=batch=12,seq=8,vocab=16,embed=8,layers=7,kv=2,group=2,head=4,ff=6,experts=4
		head='kv, group, ff, vocab -> tp'
		;;
	t5)
		size=batch=12,src=6,dst=8,vocab=16,embed=8,enc=4,dec=4,heads=2,head=4,ff=6,buckets=8
		loops='enc, dec'
		;;
	esac
	file=examples/$1.pdsl
	[ -f "tests/equiv/$1.pdsl" ] && file=tests/equiv/$1.pdsl
}

write_case() {
	sed -e '/^plan/,$d' -e "s,\"../../examples/lib,\"$PWD/examples/lib," -e "s,include \"lib,include \"$PWD/examples/lib," "$file"
	echo 'plan {'
	echo "	mesh ${3}"
	echo '	batch -> dp'
	echo "	$head"
	echo "	$loops -> pp"
	[ "$4" = - ] || echo "	$4" | tr ';_' '\n '
	echo "	pipeline $2" | tr '_' ' ' | sed 's/zb h1/zb_h1/; s/zb v/zb_v/'
	echo '}'
}

while read -r model order mesh arrows sets; do
	case $model in
	'' | '#'*) continue ;;
	esac
	case_of "$model"
	case $sets in
	batch=*) size=${size#batch=12,} ;;
	esac
	name="$model $order $mesh $arrows $sets"
	write_case "$model" "$order" "$(echo "pp=1,dp=1,tp=1,$mesh" | awk -F, '{
		for (i = 1; i <= NF; i++) { split($i, x, "="); n[x[1]] = x[2] }
		print "pp = " n["pp"] ", dp = " n["dp"] ", tp = " n["tp"] }')" "$arrows" >"$TMP/case.pdsl"
	if expect "$name" 0 timeout 120 "$PTC" check "$TMP/case.pdsl" --set "$size${sets:+,$sets}"; then
		ok "$name"
	fi
done <<TABLE
gpt     1f1b     pp=2 - microbatches=1
gpt     1f1b     pp=2 - microbatches=3
gpt     gpipe    pp=2 - microbatches=2
gpt     gpipe    pp=3 - microbatches=4
gpt     1f1b     pp=3 - microbatches=6
gpt     1f1b     pp=4 - microbatches=2
gpt     zb_h1    pp=2 - microbatches=4
gpt     zb_v     pp=2 - microbatches=3
gpt     zb_v     pp=3 - microbatches=6
gpt     interleaved,_chunks_=_2 pp=2 - microbatches=3
shared  1f1b     pp=2,dp=2,tp=2 seq_->_tp;grads_->_dp microbatches=2
shared  interleaved,_chunks_=_2 pp=3,dp=2 params_->_dp microbatches=3
shared  zb_v     pp=3 - microbatches=2
gpt     interleaved,_chunks_=_2 pp=3 - microbatches=4
gpt     interleaved,_chunks_=_3 pp=2 - microbatches=1
gpt     1f1b     pp=2,tp=2 - microbatches=2
gpt     1f1b     pp=2,dp=2,tp=2 seq_->_tp;optimizer_->_dp microbatches=2
gpt     1f1b     pp=2,dp=2 params_->_dp microbatches=3
llama   1f1b     pp=2,dp=2 grads_->_dp microbatches=2
llama   interleaved,_chunks_=_2 pp=2,tp=2 seq_->_tp microbatches=2
llama   zb_v     pp=2,dp=2 params_->_dp microbatches=2
t5      1f1b     pp=2 - microbatches=2
t5      1f1b     pp=3 - microbatches=4
t5      interleaved,_chunks_=_2 pp=2 - microbatches=3
t5      zb_v     pp=2,tp=2 optimizer_->_dp microbatches=4
mixtral 1f1b     pp=2 - microbatches=2
mixtral interleaved,_chunks_=_2 pp=2,dp=2 optimizer_->_dp microbatches=3
gpt     gpipe    pp=4 - microbatches=12
gpt     1f1b     pp=4,tp=2 seq_->_tp microbatches=4
gpt     interleaved,_chunks_=_2 pp=3,dp=2 params_->_dp microbatches=2
gpt     zb_h1    pp=3,dp=2 grads_->_dp microbatches=3
gpt     zb_v     pp=3,tp=2 - microbatches=1
llama   interleaved,_chunks_=_3 pp=2 - microbatches=6
llama   gpipe    pp=4 optimizer_->_dp microbatches=3
t5      gpipe    pp=4 - microbatches=3
t5      interleaved,_chunks_=_2 pp=3,dp=2 params_->_dp microbatches=2
t5      1f1b     pp=2,tp=2 - microbatches=1
mixtral zb_v     pp=2,tp=2 - microbatches=4
mixtral zb_h1    pp=3 - microbatches=6
gpt     zb_h1    pp=2,tp=2 seq_->_tp microbatches=1
gpt     zb_h1    pp=4 params_->_dp batch=8,microbatches=8
gpt     zb_v     pp=4,dp=2 grads_->_dp microbatches=2
llama   zb_h1    pp=2,dp=2 params_->_dp batch=10,microbatches=5
llama   zb_v     pp=3 - batch=8,microbatches=8
t5      zb_h1    pp=3,dp=2 optimizer_->_dp microbatches=3
t5      zb_h1    pp=2,tp=2 - batch=10,microbatches=5
t5      zb_v     pp=4 - microbatches=2
TABLE

# -- what a repeat carries on: the models of this folder, on one stage more than they say and on fewer microbatches too --

for model in tests/pipeline/*.pdsl; do
	for how in '--set microbatches=3' '--set microbatches=1' '--set microbatches=2 --mesh pp=3'; do
		# shellcheck disable=SC2086
		if expect "$model $how" 0 timeout 120 "$PTC" check "$model" $how; then ok "$model $how"; fi
	done
done

# once a step, not in each microbatch: a sum of params, all stages' parts reduced
"$PTC" show --after=partition tests/pipeline/penalty.pdsl >"$TMP/out" 2>"$TMP/err"
if sed -n '/^forward:/,/^backward:/p' "$TMP/out" | grep -q '"reg"' || [ "$(grep -c 'repeat.*local=' "$TMP/out")" -lt 2 ]; then
	bad "a penalty is added up once a step" "$TMP/out"
else
	ok "a penalty is added up once a step"
fi

# -- training: the losses of one rank, the same bits each time, params that load into other layouts --

# trains NAME ORDER MESH OPTIONS...: three steps, a line of JSON each, to $TMP/out
trains() {
	name=$1
	case_of gpt
	write_case gpt "$2" "$3" - >"$TMP/case.pdsl"
	shift 3
	expect "$name" 0 timeout 120 "$PTC" run "$TMP/case.pdsl" --set "$size,vocab=256,microbatches=3" --steps 3 --json \
		--data tests/data/text.txt "$@"
}

losses() {
	jq -c 'select(.step != null) | [.step, .loss, .grad_norm]' "$TMP/out"
}

near() {
	jq -ens --slurpfile a "$1" --slurpfile b "$2" '[$a, $b] | transpose | all(.[]; [.[0], .[1]] | transpose |
		all(.[]; (.[0] - .[1]) | fabs < 1e-4))' >"$TMP/why" 2>&1
}

trains 'one rank trains' 1f1b 'pp = 1, dp = 1, tp = 1' --save "$TMP/one.st" && losses >"$TMP/one"
trains 'one rank goes on' 1f1b 'pp = 1, dp = 1, tp = 1' --init "$TMP/one.st" && losses >"$TMP/more"
for spec in '1f1b:pp = 2, dp = 1, tp = 1' 'interleaved,_chunks_=_2:pp = 2, dp = 2, tp = 1' 'zb_v:pp = 2, dp = 1, tp = 2'; do
	order=${spec%%:*} mesh=${spec#*:}
	trains "$spec trains" "$order" "$mesh" --save "$TMP/stages.st" || continue
	losses >"$TMP/stages"
	if near "$TMP/one" "$TMP/stages"; then ok "$spec: losses"; else bad "$spec: losses" "$TMP/stages"; fi
	jq -c 'select(.summary) | .summary | [.peak_bytes, .predicted_peak_bytes]' "$TMP/out" >"$TMP/peaks"
	"$PTC" explain --json "$TMP/case.pdsl" --set "$size,vocab=256,microbatches=3" | jq -c '[.memory.stages[].peak]' >"$TMP/told"
	if jq -e --slurpfile told "$TMP/told" '.[0] == .[1] and (.[0] | unique | length) == 2 and (.[0] | unique) == ($told[0] | sort)' \
		"$TMP/peaks" >"$TMP/why"; then
		ok "$spec: each stage has the peak that is foretold"
	else
		bad "$spec: each stage has the peak that is foretold" "$TMP/peaks"
	fi
	trains "$spec again" "$order" "$mesh" && losses >"$TMP/again"
	if cmp -s "$TMP/stages" "$TMP/again"; then ok "$spec: the same bits"; else bad "$spec: the same bits" "$TMP/again"; fi
	trains "$spec from one rank's params" "$order" "$mesh" --init "$TMP/one.st" && losses >"$TMP/there"
	trains "one rank from params of $spec" 1f1b 'pp = 1, dp = 1, tp = 1' --init "$TMP/stages.st" && losses >"$TMP/back"
	if near "$TMP/more" "$TMP/there" && near "$TMP/more" "$TMP/back"; then
		ok "$spec: params load into any layout"
	else
		bad "$spec: params load into any layout" "$TMP/there"
	fi
done
# -- I and W do what B does, bit for bit --

for mesh in 'pp = 2, dp = 1, tp = 2' 'pp = 3, dp = 2, tp = 1'; do
	stages='3,_4'
	[ "${mesh%%,*}" = 'pp = 2' ] || stages='2,_2,_3'
	trains "whole backward, $mesh" "1f1b,_stages_=_[$stages]" "$mesh" --save "$TMP/whole.st"
	trains "I and W, $mesh" "zb_h1,_stages_=_[$stages]" "$mesh" --save "$TMP/halves.st"
	if cmp -s "$TMP/whole.st" "$TMP/halves.st"; then ok "I and W: the bits of B, $mesh"; else bad "I and W: the bits of B, $mesh"; fi
done
finish
