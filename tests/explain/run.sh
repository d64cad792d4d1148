#!/bin/sh
# What `ptc explain` says, against arithmetic that is done here from the model's sizes: FLOPs, utilization,
# cost, bubbles, microbatches in flight, bytes of messages. And orders of actions from and to a CSV.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

gpt=tests/explain/gpt.pdsl
# Stages as good as equal: 16 layers of 12 embed^2 params, next to which 16 rows of the embedding are nothing.
large=batch=64,seq=2048,vocab=16,embed=2048,heads=16,head=128,ff=8192,layers=16

# explain NAME JQ ARGS...: its JSON makes the condition true.
explain() {
	name=$1 test=$2
	shift 2
	expect "$name" 0 "$PTC" explain --json "$@" || return
	if jq -e "def near(a; b; e): a as \$a | b as \$b | ((\$a - \$b) | fabs) <= e * (\$b | fabs); $test" "$TMP/out" >"$TMP/why" 2>&1; then
		ok "$name"
	else
		bad "$name" "$TMP/out"
	fi
}

# 2 FLOPs a multiply-add, thrice for backward: 6 x params x tokens for the layers' products and for the tied
# head; attention two products of the lower half of the scores forward, four backward.
hand='(64 * 2048) as $tokens
	| (6 * $tokens * (16 * 12 * 2048 * 2048 + 16 * 2048) + 16 * 6 * 64 * 2048 * 2048 * 2048) as $flops'
for plan in plan gpipe interleaved whole; do
	[ $plan = plan ] && set -- || set -- --plan $plan
	explain "FLOPs, $plan" "$hand | near(.flops.model; \$flops; 1e-9)" $gpt "$@" --set $large
	# The H100 of examples/hardware.pdsl has 989e12 FLOP/s and costs PRICE dollars an hour; 4 ranks.
	price=$(sed -n '/^hardware h100 {/,/^}/s/^ *price *//p' examples/hardware.pdsl)
	explain "utilization and cost, $plan" "$hand | .time.step_s as \$t
		| near(.mfu; \$flops / (\$t * 4 * 989e12); 1e-9) and near(.tflops_per_gpu; \$flops / \$t / 4e12; 1e-9)
		and near(.tokens_per_s_per_gpu; \$tokens / \$t / 4; 1e-9) and .hfu >= .mfu * 0.999999
		and near(.cost.usd_per_step; \$t * 4 * $price / 3600; 1e-9)
		and near(.cost.usd_per_1e12_tokens; \$t * 4 * $price / 3600 / \$tokens * 1e12; 1e-9)" $gpt "$@" --set $large
	explain "a step is compute, communication and bubble, $plan" '.time
		| near(.compute_s + .exposed_comm_s + .bubble_fraction * .step_s; .step_s; 1e-9)' $gpt "$@" --set $large
done

# No product is faster than the best that was measured, and products are most of the time.
best=$(sed -n '/^hardware h100 {/,/^}/s/^ *sustained bf16 = \([0-9.]*\)T.*/\1e12/p' examples/hardware.pdsl)
explain "compute is bound by the best product" "$hand | .time.compute_s > \$flops / 4 / $best and .time.compute_s < 1.7 * \$flops / 4 / $best" \
	$gpt --set $large

# Idle: (p - 1)(F + B) of a stage; interleaved a v-th of it. In flight: 1f1b min(m, p - s); gpipe m;
# interleaved (v - 1) p + 2 (p - 1 - s) + 1 chunks, v to a microbatch.
idle='(.time.bubble_fraction * .time.step_s) as $idle | (.memory.stages | map(.forward_s + .backward_s) | add / length) as $fb'
explain "1f1b" "$idle | near(\$idle; 3 * \$fb; 0.06) and [.memory.stages[].in_flight] == [4, 3, 2, 1]" $gpt --set $large
explain "gpipe" "$idle | near(\$idle; 3 * \$fb; 0.06) and [.memory.stages[].in_flight] == [8, 8, 8, 8]" $gpt --plan gpipe --set $large
explain "interleaved" "$idle | near(\$idle; 1.5 * \$fb; 0.12) and [.memory.stages[].in_flight] == [5.5, 4.5, 3.5, 2.5]" \
	$gpt --plan interleaved --set $large
explain "one microbatch a stage at a time" '[.memory.stages[].in_flight] == [2, 2, 2, 1]' $gpt --set $large,microbatches=2

# Params are 12 embed^2 and 13 embed a layer (4 + 1 + 4 biases, 4 of the norms), on the stage of the layer; the table
# is on the first and the last; bf16. AdamW keeps two states and masters in f32.
explain "params of a stage" '([.memory.stages[].elements] | map(. / (4 * (12 * 2048 * 2048 + 13 * 2048))) | all(. >= 1 and . < 1.001))
	and all(.memory.stages[]; .params >= 2 * .elements and .params < 2.001 * .elements and near(.optimizer; 12 * .elements; 1e-3)
		and near(.grads; 4 * .elements; 1e-3) and .iterations == 4)' $gpt --set $large
explain "parts of the peak" 'all(.memory.stages[]; .peak == .params + .grads + .optimizer + .activations + .workspace + .comm + .gathered and .unused <= .activations
		and ([.tensors[].bytes] | add) == .peak and ([.tensors[].bytes] | . == (sort | reverse)))
	and .memory.peak == ([.memory.stages[].peak] | max)' $gpt --set $large

# A message is one microbatch of x in bf16; the last stage sends nothing forward, the first nothing back.
explain "messages" '(8 * 2048 * 2048 * 2) as $x | [.comm[] | select(.op == "send")] as $sends
	| ($sends | length) > 0 and all($sends[]; .axis == "pp" and .count % 8 == 0)
	and all($sends[] | select(.why | startswith("send of x over")); .bytes == .count * $x and .stage < 3)
	and ([$sends[] | select(.why | startswith("send of x over")) | .stage] | unique) == [0, 1, 2]' $gpt --set $large
explain "a stage of each collective" 'all(.comm[]; .stage >= 0 and .stage < 4)' $gpt --set $large
explain "no stages without a pipeline" 'all(.comm[]; has("stage") | not) and (.memory.stages | length) == 1
	and .time.bubble_fraction == 0' $gpt --plan whole --set $large

# Twice the microbatches of the same size: twice the work in each section, the same bubble in seconds.
if expect "more microbatches" 0 "$PTC" explain --json $gpt --set $large && cp "$TMP/out" "$TMP/few" &&
	expect "more microbatches" 0 "$PTC" explain --json $gpt --set "${large#*,},microbatches=16,batch=128"; then
	if jq -es 'def idle: .time.bubble_fraction * .time.step_s; (.[1] | idle) / (.[0] | idle) | . > 0.95 and . < 1.05' \
		"$TMP/few" "$TMP/out" >/dev/null; then ok "more microbatches"; else bad "more microbatches"; fi
fi

# For people: the table of stages fits a screen of 100 columns.
if expect "the table" 0 "$PTC" explain $gpt --set $large; then
	if awk '/^stage/ { on = 1 } /^$/ { if (on > 1) exit } on { on++; if (length($0) > 100) bad = 1 } END { exit bad || on != 6 }' "$TMP/out" &&
		grep -q '^time .*bubble' "$TMP/out" && grep -q '^speed .*MFU' "$TMP/out"; then ok "the table"; else bad "the table" "$TMP/out"; fi
fi

# Llama 3 405B on 16,384 ranks: the plan is small, and so is the work of making it.
big="examples/llama.pdsl --plan big --set batch=2048,embed=16384,layers=126,group=16,ff=53248 --mesh pp=16,dp=128,tp=8"
# shellcheck disable=SC2086
if (ulimit -v 204800 && expect "405B" 0 timeout 20 "$PTC" $big -o "$TMP/plan"); then
	if [ "$(wc -c <"$TMP/plan")" -lt 1000000 ]; then ok "405B: a plan below 1 MB, 200 MB to make it"; else bad "405B: size of the plan"; fi
else
	bad "405B"
fi
explain "405B: 6 FLOPs a param and token, and attention" '(6 * 405853388800 * 2048 * 8192) as $f | .params == 405853388800
	and .flops.model > $f and .flops.model < 1.08 * $f and (.memory.stages | length) == 16
	and ([.memory.stages[].iterations] | add) == 126' "$TMP/plan"

# -- what fits --

# Each change, made by hand, has the peak and the time that --fit says; they are in order; the largest microbatch fits, and
# one larger does not.
big8b="examples/llama.pdsl --mesh dp=8"
# shellcheck disable=SC2086
fit() {
	name=$1
	shift
	expect "$name" 0 "$PTC" explain --json --fit "$@" && cp "$TMP/out" "$TMP/fit" || return
	jq -r '.fit.changes[] | [.set // "", .add // "", .peak, .step_s] | join("|")' "$TMP/fit" >"$TMP/changes"
	while IFS='|' read -r set add peak step; do
		explain "$name: $set $add" ".memory.peak == $peak and near(.time.step_s; $step; 1e-9)" "$@" ${set:+--set "$set"} ${add:+--add "$add"}
	done <"$TMP/changes"
	if jq -e '.memory.peak as $peak | .fit | (.changes | length) > 0 and all(.changes[]; .saves == $peak - .peak and .saves > 0)
		and ([.changes[] | [(if .fits then 0 else 1 end), .step_s]] | . == sort) and .fits == false
		and (.microbatch as $m | ($m == null) or any(.changes[]; .set == $m.set and .add == null))
		and any(.changes[]; .fits) and all(.changes[]; .fits == (.peak <= 80e9))' "$TMP/fit" >/dev/null; then ok "$name"; else bad "$name" "$TMP/fit"; fi
}
fit "too large a microbatch" examples/llama.pdsl --mesh dp=8 --set microbatches=16
fit "no state fits without its axis" examples/llama.pdsl --plan big --mesh dp=4 --set batch=64
fit "a microbatch far off is in the table" examples/llama.pdsl --mesh dp=8 --set microbatches=1,batch=1024
# shellcheck disable=SC2086
if expect "the largest microbatch" 0 "$PTC" explain --json --fit $big8b && cp "$TMP/out" "$TMP/fit"; then
	m=$(jq .fit.microbatch.microbatches "$TMP/fit")
	explain "the largest microbatch fits" ".memory.peak <= 80e9 and .memory.peak == $(jq .fit.microbatch.peak "$TMP/fit")" $big8b --set "microbatches=$m"
	explain "a larger one does not" ".memory.peak > 80e9" $big8b --set "microbatches=$((m / 2))"
	"$PTC" examples/llama.pdsl -o "$TMP/plan" 2>/dev/null
	expect "--fit of a plan" 1 "$PTC" explain --fit "$TMP/plan" && ok "--fit of a plan"
fi
explain "an arrow more" '.memory.stages[0].optimizer < 3.1e9' examples/llama.pdsl --plan big --mesh dp=32 --add 'grads -> dp'

# -- several plans --

expect "side by side" 0 "$PTC" explain $gpt --plan ,gpipe,interleaved,whole --set $large --tokens 1T &&
	if awk 'length($0) > 100 { exit 1 } /^a step / { same = NF; step = 1 } / *pp / { eq = / = / } END { exit !step }' "$TMP/out" &&
		[ "$(head -1 "$TMP/out" | tr -s ' ')" = " plan gpipe interleaved whole" ] && grep -q '^microbatches .* = .* = ' "$TMP/out" &&
		grep -qE '^memory a rank .*[+-][0-9.]+%' "$TMP/out"; then ok "side by side"; else bad "side by side" "$TMP/out"; fi
# Models far apart: ratios from 0 to 10^6, none of them cut short, and no time below nothing.
for far in "--plan ,one examples/gpt-mini.pdsl" "examples/mlp.pdsl examples/gpt2.pdsl"; do
	expect "far apart: $far" 0 "$PTC" explain $far &&
		if grep -qE ' -[0-9.]+ [um]?s|x-|x[0-9.]+e' "$TMP/out"; then bad "far apart: $far" "$TMP/out"; else ok "far apart: $far"; fi
done
"$PTC" $gpt --set $large -o "$TMP/a.plan" 2>/dev/null
if expect "seven plans" 0 "$PTC" explain --json "$TMP/a.plan" $gpt examples/gpt2.pdsl examples/mlp.pdsl examples/bert.pdsl examples/vit.pdsl examples/t5.pdsl; then
	if jq -e '(.plans | length) == 7 and all(.plans[]; .memory.peak > 0) and .plans[3].plan == "examples/mlp.pdsl"' "$TMP/out" >/dev/null; then
		ok "seven plans"; else bad "seven plans" "$TMP/out"; fi
fi
expect "seven plans in tables" 0 "$PTC" explain "$TMP/a.plan" $gpt examples/gpt2.pdsl examples/mlp.pdsl examples/bert.pdsl examples/vit.pdsl examples/t5.pdsl &&
	if awk 'length($0) > 100 { exit 1 } /a.plan/ { n++ } END { exit n != 2 }' "$TMP/out"; then ok "seven plans in tables"; else bad "seven plans in tables" "$TMP/out"; fi
expect "a trace of two plans" 2 "$PTC" explain $gpt examples/gpt2.pdsl --trace "$TMP/x" && ok "a trace of two plans"
explain "a run of 2^20 tokens" '.run.steps == 8 and near(.run.seconds; 8 * .time.step_s; 1e-9) and near(.run.usd; 8 * .cost.usd_per_step; 1e-9)
	and near(.cost.joules_per_step; .time.step_s * 4 * 700; 1e-9) and near(.run.joules; 8 * .cost.joules_per_step; 1e-9)' \
	$gpt --set $large --tokens 1048576

# -- CSV --

fails() {
	name=$1 want=$2
	shift 2
	expect "$name" 1 "$PTC" explain $gpt "$@" || return
	if grep -qF -- "$want" "$TMP/err"; then ok "$name"; else bad "$name" "$TMP/err"; fi
}

if expect "an order as CSV" 0 "$PTC" show --csv $gpt --set $large -o "$TMP/a.csv" &&
	expect "an order from CSV" 0 "$PTC" $gpt --set $large --schedule "$TMP/a.csv" --verify -o "$TMP/csv.plan" &&
	expect "an order as CSV again" 0 "$PTC" show --csv "$TMP/csv.plan" -o "$TMP/b.csv"; then
	if cmp -s "$TMP/a.csv" "$TMP/b.csv" && [ "$(wc -l <"$TMP/a.csv")" = 4 ]; then ok "from and to CSV"; else bad "from and to CSV" "$TMP/b.csv"; fi
	explain "the order of a CSV is the plan's" '[.memory.stages[].in_flight] == [4, 3, 2, 1]' "$TMP/csv.plan"
	sed 's/0B3/0X3/' "$TMP/a.csv" >"$TMP/c.csv"
	fails "a cell that is no action" "c.csv:1:" --schedule "$TMP/c.csv"
	sed '4d' "$TMP/a.csv" >"$TMP/c.csv"
	fails "a stage without a row" "3 rows, but 4 stages" --schedule "$TMP/c.csv"
	sed '1s/0F0,/0B0,0F0,/;1s/,0B0,/,/2' "$TMP/a.csv" >"$TMP/c.csv"
	fails "backward before forward" "'0B0' comes before its F" --schedule "$TMP/c.csv"
	fails "other microbatches" "8 microbatches, but the plan has 4" --schedule "$TMP/a.csv" --set microbatches=4
	fails "no pipeline" "no pipeline" --schedule "$TMP/a.csv" --plan whole
	fails "no file" "No such file" --schedule "$TMP/none.csv"
	# GPipe's order, given as a CSV, computes the same step.
	expect "gpipe as CSV" 0 "$PTC" show --csv $gpt --plan gpipe -o "$TMP/g.csv" &&
		expect "a step in the order of a CSV" 0 "$PTC" check $gpt --schedule "$TMP/g.csv" && ok "a step in the order of a CSV"
	# Plans are text that anyone may write: a list of other stages, or one that stands still, is refused.
	"$PTC" show "$TMP/csv.plan" >"$TMP/csv.pir"
	sed '/^pipeline/s/, "3F0[^"]*"//' "$TMP/csv.pir" >"$TMP/short.pir"
	sed '/^pipeline/s/"0F0,0F1/"0F1,0F0/' "$TMP/csv.pir" >"$TMP/swapped.pir"
	sed '/^pipeline/s/list=([^)]*)//' "$TMP/csv.pir" >"$TMP/none.pir"
	for bad in short swapped none; do
		if cmp -s "$TMP/csv.pir" "$TMP/$bad.pir"; then
			bad "a $bad list is refused"
		elif expect "a $bad list is refused" 1 "$PTC" opt "$TMP/$bad.pir"; then
			if grep -q 'list' "$TMP/err"; then ok "a $bad list is refused"; else bad "a $bad list is refused" "$TMP/err"; fi
		fi
	done
fi

# A step of hours: for people in hours, for programs in seconds.
{
	sed "/^plan/,\$d; s,../../examples,$PWD/examples," $gpt
	printf 'hardware slow {\n    flops fp32 = 1K\n    memory 1T, bandwidth = 1G\n    link a, bandwidth = 1G\n}\nplan {\n    mesh dp = 2 on slow\n    batch -> dp\n}\n'
} >"$TMP/slow.pdsl"
expect "a step of hours" 0 "$PTC" explain --json "$TMP/slow.pdsl" --set batch=8 && hours=$(jq '.time.step_s / 3600' "$TMP/out") &&
	expect "a step of hours" 0 "$PTC" explain "$TMP/slow.pdsl" --set batch=8 &&
	if awk -v h="$hours" '/^time/ { good = $3 == "h" && $2 > 2 && h / $2 < 1.01 && $2 / h < 1.01 && !/[0-9][0-9][0-9]\.[0-9]* s/ } END { exit !good }' "$TMP/out"; then
		ok "a step of hours"; else bad "a step of hours" "$TMP/out"; fi
finish
