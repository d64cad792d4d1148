#!/bin/sh
# What each rank sends in a step, counted while it trains, is what `ptc explain` says of its stage: by op and axis, the
# bytes, and how often. (Of a stacked gradient that is reduced at once explain counts each layer: `stacked` lines.)
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

sums='group_by([.op, .axis]) | map([.[0].op, .[0].axis, (map(.bytes) | add)] + if $times then [map(.count) | add] else [] end)'

# write_case MODEL PLAN LINES: a model of tests/equiv with a plan of its own, lines separated by ;
write_case() {
	sed "/^plan /,\$d; s#\.\./\.\./examples/#$PWD/examples/#" "tests/equiv/$1.pdsl"
	echo 'plan {'
	echo "$2" | tr ';_' '\n '
	echo '}'
}

while read -r times model plan sets; do
	case $times in
	'' | '#'*) continue ;;
	esac
	name="$model $plan $sets" counts=true
	[ "$times" = each ] || counts=false
	write_case "$model" "$plan" | sed 's/zb h1/zb_h1/; s/zb v/zb_v/' >"$TMP/case.pdsl"
	expect "$name" 0 timeout 120 "$PTC" run "$TMP/case.pdsl" --data tests/data/text.txt --steps 2 --json --set "vocab=256${sets:+,$sets}" || continue
	jq -c --argjson times $counts "select(.summary) | [.summary.comm[] | $sums] | unique | sort" "$TMP/out" >"$TMP/sent"
	expect "$name" 0 "$PTC" explain --json "$TMP/case.pdsl" --set "vocab=256${sets:+,$sets}" || continue
	jq -c --argjson times $counts "[.comm | group_by(.stage)[] | $sums] | unique | sort" "$TMP/out" >"$TMP/told"
	if [ "$(jq 'flatten | length' "$TMP/told")" -gt 3 ] && cmp -s "$TMP/sent" "$TMP/told"; then
		ok "$name"
	else
		diff "$TMP/sent" "$TMP/told" >"$TMP/why"
		bad "$name" "$TMP/why"
	fi
done <<TABLE
each    gpt   mesh_dp=2,_tp=2;batch_->_dp;heads,_ff,_vocab_->_tp;seq_->_tp microbatches=2
each    gpt   mesh_dp=4;batch_->_dp;params_->_dp
each    llama mesh_cp=4;seq,_ctx_->_cp
stacked gpt   mesh_pp=2,_dp=2;batch_->_dp;layers_->_pp;optimizer_->_dp;pipeline_1f1b microbatches=2,layers=5
each    gpt   mesh_pp=4,_tp=2;heads,_ff,_vocab_->_tp;layers_->_pp;pipeline_gpipe microbatches=4,layers=6
stacked gpt   mesh_pp=4,_dp=2;batch_->_dp;layers_->_pp;pipeline_interleaved,_chunks_=_2 microbatches=3,layers=9,batch=12
stacked llama mesh_pp=2,_dp=2;batch_->_dp;layers_->_pp;params_->_dp;pipeline_zb_v microbatches=4,layers=6,batch=16
each    llama mesh_pp=2,_cp=2;seq,_ctx_->_cp;layers_->_pp;pipeline_zb_h1 microbatches=2,layers=3
TABLE
finish
