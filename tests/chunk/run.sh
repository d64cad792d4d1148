#!/bin/sh
# The setting `chunk`: what is made in parts is what one rank makes whole, in any layout, and the plan is safe.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

# Model, mesh, lines ("_" is a space), settings.
while read -r model mesh add set; do
	lines=$(echo "$add" | tr _ ' ' | sed 's/zb h1/zb_h1/')
	name="$model $mesh $lines $set"
	expect "$name" 0 timeout 200 "$PTC" check "tests/$model.pdsl" --verify --mesh "$mesh" --add "$lines" --set "$set" && ok "$name"
	expect "$name: safe" 0 "$PTC" verify "tests/$model.pdsl" --mesh "$mesh" --add "$lines" --set "$set" && ok "$name: safe"
done <<TABLE
equiv/gpt dp=2,tp=2 chunk_logits,_parts_=_2 masked=1
equiv/gpt dp=2,tp=2 chunk_logits,_rows_=_8;seq_->_tp;optimizer_->_dp microbatches=2
equiv/gpt tp=4 chunk_logits,_parts_=_4,_dim_=_seq;seq_->_tp masked=1
equiv/gpt dp=2,tp=2 chunk_logits,_rows_=_5;grads_->_dp microbatches=2
equiv/gpt dp=4 chunk_logits,_parts_=_4;params_->_dp masked=1
equiv/gpt dp=2,tp=2 chunk_logits,_parts_=_2;params_->_dp,_gather_=_step;recompute_full microbatches=2
equiv/llama dp=2,tp=2 chunk_logits,_parts_=_2;seq_->_tp;recompute_full microbatches=2
equiv/llama dp=2 chunk_logits,_parts_=_4;params_->_dp precision=bf16
cases/moe dp=2,ep=2 chunk_logits,_parts_=_2 seq=8
chunk/heads dp=2,tp=2 chunk_logits,_parts_=_2;chunk_side,_rows_=_4,_dim_=_seq microbatches=2
chunk/heads cp=2,tp=2 chunk_logits,_parts_=_2;chunk_side,_parts_=_4 seq=8
chunk/top tp=2 chunk_h,_parts_=_2,_dim_=_batch batch=8
TABLE

# Along a pipeline: what follows from the logits stays on the last stage.
sed '/^plan {/,/^}/d; /^plan /,$d' tests/equiv/gpt.pdsl >"$TMP/pipe.pdsl"
sed -i "s,\"../../,\"$PWD/," "$TMP/pipe.pdsl"
cat >>"$TMP/pipe.pdsl" <<'PLAN'
plan {
	mesh pp = 2, dp = 2
	batch -> dp
	layers -> pp
	microbatches = 4
	chunk logits, parts = 2
}
PLAN
for more in "pipeline 1f1b" "pipeline gpipe; params -> dp" "pipeline zb_h1; recompute selective"; do
	expect "pp: $more" 0 timeout 200 "$PTC" check "$TMP/pipe.pdsl" --verify --add "$more" --set batch=8 && ok "pp: $more"
	expect "pp: $more: safe" 0 "$PTC" verify "$TMP/pipe.pdsl" --add "$more" --set batch=8 && ok "pp: $more: safe"
done

# Each row is computed as without: the loss has the same bits, until params have been updated.
first_loss() {
	"$PTC" run tests/equiv/gpt.pdsl --set batch=8,seq=32,vocab=256,embed=32,head=8,ff=64 --data tests/data/text.txt --steps 1 \
		--json "$@" | jq -r 'select(.step == 0) | .loss'
}
whole=$(first_loss --mesh dp=2,tp=2 --plan sp)
for line in "chunk logits, parts = 4" "chunk logits, rows = 16, dim = seq"; do
	parts=$(first_loss --mesh dp=2,tp=2 --plan sp --add "$line")
	if [ -n "$whole" ] && [ "$whole" = "$parts" ]; then
		ok "the same loss: $line"
	else
		echo "$parts with $line, $whole without" >"$TMP/why"
		bad "the same loss: $line" "$TMP/why"
	fi
done

# Nothing is computed twice.
flops() { "$PTC" explain --json examples/gpt2.pdsl "$@" 2>/dev/null | jq -c '.flops.hardware'; }
if [ "$(flops)" = "$(flops --add 'chunk logits, parts = 8')" ]; then ok "the same work"; else bad "the same work"; fi

# Of two lines for one value the last holds.
for lines in 'chunk logits, parts = 2; chunk logits, rows = 5' 'chunk logits, rows = 3; chunk logits, rows = 5'; do
	"$PTC" show tests/equiv/gpt.pdsl --mesh dp=2 --add "$lines" 2>"$TMP/err" | sed 's/ !2:.*//' >"$TMP/two"
	"$PTC" show tests/equiv/gpt.pdsl --mesh dp=2 --add "${lines##*; }" 2>>"$TMP/err" | sed 's/ !2:.*//' >"$TMP/last"
	if [ -s "$TMP/two" ] && cmp -s "$TMP/two" "$TMP/last"; then ok "the last holds: $lines"; else bad "the last holds: $lines" "$TMP/err"; fi
done

# A plan that does not fit as its logits are large is told so, and what the parts save.
"$PTC" explain --fit examples/gpt-mini.pdsl --mesh dp=1 --set batch=4096,microbatches=1,vocab=65536 >"$TMP/out" 2>&1
if grep -q '^chunk logits, parts = 16 .* [kMG]B ' "$TMP/out"; then ok "--fit"; else bad "--fit" "$TMP/out"; fi
finish
