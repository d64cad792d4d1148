#!/bin/sh
# Params and optimizer states in host memory: a plan computes what one rank computes, trains to the same bits as without,
# and the memory of the device falls by what lies on the host.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

# write_case MODEL MESH ARROWS: like the model in tests/equiv, arrows separated by ;
write_case() {
	sed "/^plan /,\$d; s#\.\./\.\./examples/#$PWD/examples/#" "tests/equiv/$1.pdsl"
	heads=heads
	[ "$1" = gpt ] || heads="kv, group"
	printf 'plan {\n\tmesh %s\n\tbatch -> dp\n\t%s, ff, vocab -> tp\n' "$2" "$heads"
	echo "$3" | tr ';_-' '\n __' | sed 's/_>/->/'
	echo '}'
}

while read -r model mesh arrows sets; do
	case $model in
	'' | '#'*) continue ;;
	esac
	name="$model $mesh $arrows $sets"
	write_case "$model" "$(echo "$mesh" | sed 's/=/ = /g; s/,/, /g')" "$arrows" >"$TMP/case.pdsl"
	if expect "offload $name" 0 timeout 120 "$PTC" check --verify "$TMP/case.pdsl" ${sets:+--set "$sets"}; then
		ok "offload $name"
	fi
	if expect "verify $name" 0 "$PTC" verify "$TMP/case.pdsl" ${sets:+--set "$sets"}; then ok "verify $name"; fi
done <<TABLE
gpt   dp=1,tp=1 optimizer_->_host
gpt   dp=2,tp=2 optimizer_->_dp;optimizer_->_host;seq_->_tp microbatches=2
gpt   dp=2,tp=1 params_->_dp;params_->_host;optimizer_->_host microbatches=2
llama dp=2,tp=1 grads_->_dp;params_->_host
llama dp=2,tp=1 params_->_dp,_gather_=_step;params_->_host
llama dp=2,tp=1 wte:_params_->_host;"w*":_optimizer_->_host
gpt   pp=2,dp=1,tp=1 layers_->_pp;pipeline_zb-v;optimizer_->_host;params_->_host microbatches=4,layers=5
gpt   pp=2,dp=2,tp=1 layers_->_pp;pipeline_1f1b;optimizer_->_dp;optimizer_->_host;params_->_host microbatches=2
llama pp=2,dp=2,tp=1 layers_->_pp;pipeline_gpipe;params_->_dp;params_->_host microbatches=2
TABLE

# Training: the same bits in the params and the losses, and a smaller arena.
arena() {
	grep -a -o ' arena=[0-9]*' "$1" | head -1 | cut -d= -f2
}
write_case gpt "dp = 2, tp = 1" "optimizer_->_dp" >"$TMP/device.pdsl"
write_case gpt "dp = 2, tp = 1" "optimizer_->_dp;optimizer_->_host" >"$TMP/states.pdsl"
write_case gpt "dp = 2, tp = 1" "optimizer_->_dp;optimizer_->_host;params_->_host" >"$TMP/both.pdsl"
for plan in device states both; do
	"$PTC" "$TMP/$plan.pdsl" --set vocab=256,layers=8 -o "$TMP/$plan.plan" >"$TMP/out" 2>&1 || bad "compile $plan" "$TMP/out"
	expect "train $plan" 0 "$PTC" run "$TMP/$plan.plan" --data tests/data/text.txt --steps 4 --log-every 1 --save "$TMP/$plan.st"
	grep '^step' "$TMP/out" | sed 's/  [0-9.]* tokens.*//' >"$TMP/$plan.log"
done
# What starts is carried out beside the rank, or (to find what a plan does not wait for) at its start, or at its wait.
for when in EAGER LATE; do
	env "PTC_TEST_$when=1" "$PTC" run "$TMP/both.plan" --data tests/data/text.txt --steps 4 --save "$TMP/when.st" >"$TMP/out" 2>&1 ||
		bad "train $when" "$TMP/out"
	if cmp "$TMP/both.st" "$TMP/when.st" >"$TMP/why" 2>&1; then ok "copies $when: the same bits"; else bad "copies $when: the same bits" "$TMP/why"; fi
done
for plan in states both; do
	if cmp "$TMP/device.st" "$TMP/$plan.st" >"$TMP/why" 2>&1 && cmp "$TMP/device.log" "$TMP/$plan.log" >"$TMP/why" 2>&1; then
		ok "$plan on the host: the same bits"
	else
		bad "$plan on the host: the same bits" "$TMP/why"
	fi
	expect "explain $plan" 0 "$PTC" explain "$TMP/$plan.plan" --json
	host=$(jq '.memory.stages[0].host' "$TMP/out")
	if [ $(($(arena "$TMP/device.plan") - $(arena "$TMP/$plan.plan"))) -ge $((host / 2)) ]; then
		ok "$plan on the host: less on the device"
	else
		echo "arena $(arena "$TMP/device.plan"), then $(arena "$TMP/$plan.plan"); on the host $host" >"$TMP/why"
		bad "$plan on the host: less on the device" "$TMP/why"
	fi
done
# A checkpoint of one loads into the other.
expect "load" 0 "$PTC" run "$TMP/device.plan" --data tests/data/text.txt --steps 0 --init "$TMP/both.st" --save "$TMP/again.st" &&
	if cmp -s "$TMP/again.st" "$TMP/both.st"; then ok load; else bad load; fi

# A copy takes its time: of all bytes at the host's rate, and a latency each. Where the link is slow nothing hides them but those
# in the other direction: a step takes as long as the copies of one, and no longer than those of both.
priced() { # LINE: a machine with it; what a step takes, and what is copied
	write_case gpt "dp = 2, tp = 1" "optimizer_->_dp;$2" | sed 's/mesh .*/& on box/' >"$TMP/priced.pdsl"
	printf 'hardware box {\n\tflops fp32 = 1T\n\tmemory 8Gi, bandwidth = 1T\n\tlink l, bandwidth = 1T, latency = 1u\n%s\n}\n' "$1" >>"$TMP/priced.pdsl"
	"$PTC" explain --json "$TMP/priced.pdsl" --set microbatches=2 | jq .time.step_s
}
device=$(priced '	host bandwidth = 1M' '')
for lines in 'optimizer_->_host' 'params_->_host' 'optimizer_->_host;params_->_host'; do
	free=$(priced '' "$lines")
	slow=$(priced '	host bandwidth = 1M' "$lines")
	"$PTC" explain --json "$TMP/priced.pdsl" --set microbatches=2 >"$TMP/json"
	twice=$(priced '	host bandwidth = 0.5M' "$lines")
	late=$(priced '	host bandwidth = 1M, latency = 1' "$lines")
	copied=$("$PTC" explain "$TMP/priced.pdsl" --set microbatches=2 | sed -n 's/^host .* a rank; //p')
	# "117.2 kB copied to the device in a step, 39.9 kB back", in seconds at 1 MB/s
	both=$(echo "$copied" | awk '{ print ($1 * ($2 == "kB" ? 1e3 : 1) + $10 * ($11 == "kB" ? 1e3 : 1)) / 1e6 }')
	one=$(echo "$copied" | awk '{ a = $1 * ($2 == "kB" ? 1e3 : 1); b = $10 * ($11 == "kB" ? 1e3 : 1); print (a > b ? a : b) / 1e6 }')
	exposed=$(jq .time.exposed_copies_s "$TMP/json")
	if jq -en "$device == $free and $slow > 10 * $free and ((2 * ($slow - $free) - ($twice - $free)) | fabs) < $free and
		($late - $slow) > 5 and $exposed > 0.98 * $one and $exposed < 1.02 * $both and (($slow - $free - $exposed) | fabs) < $free" >"$TMP/why"; then
		ok "copies are priced: $lines"
	else
		echo "device $device free $free slow $slow twice $twice late $late exposed $exposed of $both, at least $one; $copied" >"$TMP/why"
		bad "copies are priced: $lines" "$TMP/why"
	fi
done

# Under compute they are hidden: of those of a loop, of which there is one at a time, all but the first. What a section
# begins with has nothing before it.
cat >"$TMP/hides.pdsl" <<MODEL
dim batch = 64, in = 32, out = 32, layers = 20
input x[batch, in]: float
h = x
repeat layers {
	param w[in, out] ~ normal(0.1)
	h = tanh((h @ w)[out -> in])
}
loss = mean(h * h)
minimize loss with sgd(lr = 0.1)
hardware box {
	flops fp32 = FLOPS
	memory 8Gi, bandwidth = 1T
	link l, bandwidth = 1T, latency = 1u
	host bandwidth = 10M, latency = 1u
}
plan {
	mesh dp = 1 on box
	batch -> dp
	params -> host
}
MODEL
# 20 rows of 4 kB are 8.2 ms, in forward and in backward; the update copies all in, and out.
hides() { # FLOPS: seconds that are not hidden
	sed "s/FLOPS/$1/" "$TMP/hides.pdsl" >"$TMP/model.pdsl"
	"$PTC" explain --json "$TMP/model.pdsl" | jq .time.exposed_copies_s
}
fast=$(hides 1T) even=$(hides 1G) idle=$(hides 200M)
if jq -en "$fast > 0.030 and $idle < 0.018 and $idle > 0.016 and $even > 1.1 * $idle and $even < 0.9 * $fast" >"$TMP/why"; then
	ok "copies hide under compute: exposed $fast s, $even s, $idle s"
else
	echo "exposed $fast $even $idle" >"$TMP/why"
	bad "copies hide under compute" "$TMP/why"
fi

# The timeline shows them on threads of their own, beside compute.
sed 's/FLOPS/200M/' "$TMP/hides.pdsl" >"$TMP/model.pdsl"
expect "trace" 0 "$PTC" explain --trace "$TMP/trace.json" "$TMP/model.pdsl" &&
	if jq -e '[.traceEvents[] | select(.ph == "X")] as $e | [$e[] | select(.tid == 4)] as $in | [$e[] | select(.tid == 1)] as $work |
		($in | length) > 40 and ([$e[] | select(.tid == 5)] | length) > 0 and
		([$in[] | . as $c | select(any($work[]; .ts < $c.ts + $c.dur and $c.ts < .ts + .dur))] | length) > 36' "$TMP/trace.json" >"$TMP/why"; then
		ok "a trace shows copies beside compute"
	else
		bad "a trace shows copies beside compute" "$TMP/why"
	fi
expect "measured trace" 0 "$PTC" run "$TMP/both.plan" --data tests/data/text.txt --steps 2 --trace "$TMP/real.json" &&
	if "$PTC" explain --trace "$TMP/foreseen.json" "$TMP/both.plan" >"$TMP/out" &&
		jq -en '[inputs | [.traceEvents[] | select(.tid >= 4 and .ph == "X") | [.tid, .name, .args.id]] | sort] | .[0] == .[1] and (.[0] | length) > 100' \
			"$TMP/real.json" "$TMP/foreseen.json" >"$TMP/why"; then
		ok "the measured trace has the same copies"
	else
		bad "the measured trace has the same copies" "$TMP/why"
	fi
write_case gpt "dp = 2, tp = 1" "optimizer_->_host" | sed 's/mesh .*/& on box/' >"$TMP/priced.pdsl"
printf 'hardware box {\n\tflops fp32 = 1T\n\tmemory 8Gi, bandwidth = 1T\n\tlink l, bandwidth = 1T\n}\n' >>"$TMP/priced.pdsl"
expect "no host link" 0 "$PTC" explain "$TMP/priced.pdsl" &&
	if grep -q "not in the time: the hardware has no 'host bandwidth'" "$TMP/out"; then ok "no host link"; else bad "no host link" "$TMP/out"; fi

write_case gpt "dp = 2, tp = 1" "optimizer_->_host,_dp" >"$TMP/wrong.pdsl"
expect "host and an axis" 1 "$PTC" show "$TMP/wrong.pdsl" &&
	if grep -q "an arrow to the host has no axes" "$TMP/err"; then ok wrong; else bad wrong "$TMP/err"; fi
finish
