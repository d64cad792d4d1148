#!/bin/sh
# What a plan may be large in (ir/limits.h): what is no limit runs, and what is one is told before anything is written or run,
# with the line of the model and the way out.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

head -c 40000 /dev/zero | tr '\0' '\77' >"$TMP/x.bin"
head -c 4000 /dev/zero | tr '\0' '\7' >"$TMP/tokens"
says() { # NAME WORDS FILE
	if grep -q "$2" "$3"; then ok "$1"; else bad "$1" "$3"; fi
}

# -- ranks --
cat >"$TMP/wide.pdsl" <<'END'
dim batch = 1100, d = 4
input x[batch, d]: float
param w[d] ~ normal(0.5)
y = x * w
loss = sum(y * y)
minimize loss with sgd(lr = 0.0001)
plan {
	mesh dp = 1
	batch -> dp
}
END
loss_of() {
	sed -n 's/^step 1 .*loss \([0-9.]*\).*/\1/p' "$TMP/out"
}
expect "1 rank" 0 "$PTC" run "$TMP/wide.pdsl" --data "$TMP/x.bin" --steps 2 --log-every 1 && one=$(loss_of)
if expect "a group of 1,100 ranks" 0 timeout 300 "$PTC" run "$TMP/wide.pdsl" --mesh dp=1100 --data "$TMP/x.bin" --steps 2 --log-every 1; then
	if echo "$one $(loss_of)" | awk '{ exit !(NF == 2 && $1 > 0 && ($1 / $2 - 1) ^ 2 < 1e-8) }'; then ok "a group of 1,100 ranks"; else bad "a group of 1,100 ranks" "$TMP/out"; fi
fi
many="--mesh dp=5000 --set batch=5000"
# shellcheck disable=SC2086
expect "a plan for 5,000 ranks" 0 "$PTC" "$TMP/wide.pdsl" $many -o "$TMP/many.plan" &&
	expect "5,000 ranks are safe" 0 "$PTC" verify "$TMP/many.plan" && says "5,000 ranks are safe" "^safe: 5,000 ranks" "$TMP/out"
if expect "they are no threads of one process" 3 "$PTC" run "$TMP/many.plan" --data "$TMP/x.bin" --steps 1; then
	says "they are no threads of one process" "5000 ranks: each is a thread here, and this process has at most 4096" "$TMP/err"
	says "what to do is said" "note: .*a smaller --mesh" "$TMP/err"
fi

# -- params of a repeat: each has a gradient that microbatches add up --
{
	printf 'dim batch = 8, d = 4, layers = 3\ninput x[batch, d]: float\nh[batch, d] = x\nrepeat layers {\n'
	seq -f '    param w%g[d] ~ normal(0.5)' 70
	seq -f '    h = tanh(h + w%g)' 70
	printf '}\nloss = sum(h * h)\nminimize loss with sgd(lr = 0.01)\n'
	printf 'plan {\n\tmesh dp = 2\n\tbatch -> dp\n\tmicrobatches = 2\n}\n'
	for order in 1f1b zb_h1; do
		printf 'plan by_%s {\n\tmesh pp = 3\n\tlayers -> pp\n\tpipeline %s\n\tmicrobatches = 4\n}\n' $order $order
	done
} >"$TMP/many.pdsl"
for plan in "" 1f1b zb_h1; do
	if expect "70 params in a repeat $plan" 0 "$PTC" check "$TMP/many.pdsl" ${plan:+--plan by_$plan}; then says "70 params in a repeat $plan" "^the same$" "$TMP/out"; fi
done

# -- inputs --
{
	echo 'dim batch = 2, d = 2'
	seq -f 'input x%g[batch, d]: float' 70
	printf 'param w[d] ~ normal(0.5)\nloss = sum(w * (%s))\nminimize loss with sgd(lr = 0.01)\n' "$(seq -s ' + ' -f 'x%g' 70)"
} >"$TMP/inputs.pdsl"
if expect "data for 70 inputs" 0 "$PTC" run "$TMP/inputs.pdsl" --steps 1 --data "$(seq -s , -f "x%g=$TMP/x.bin" 70)"; then ok "data for 70 inputs"; fi

# -- workspace: what follows from the plan is told before it is written, what the library of the machine wants before the first step --
gpt=tests/equiv/gpt.pdsl
if expect "no workspace for the keys of others" 1 "$PTC" $gpt --plan ring --mesh cp=2 --set workspace=1000 -o "$TMP/small.plan"; then
	says "no workspace for the keys of others" "lib.pdsl:25:12: error: attention needs 4096 bytes of workspace for the keys of other ranks, and the plan has 1000" "$TMP/err"
	says "how it gets some" "note: 'workspace = 4096' in the plan" "$TMP/err"
	if ! grep -q 'at fault' "$TMP/err" && [ ! -e "$TMP/small.plan" ]; then ok "nobody is at fault"; else bad "nobody is at fault" "$TMP/err"; fi
fi
for more in "" ",precision=bf16"; do
	if expect "no workspace$more" 3 "$PTC" run $gpt --mesh dp=2 --set workspace=1$more --data "$TMP/tokens" --steps 1; then
		says "no workspace$more" "lib.pdsl:.*the workspace of 1 bytes is too small: [0-9]* are needed; 'workspace = [0-9]*' in the plan" "$TMP/err"
	fi
done
finish
