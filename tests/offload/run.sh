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
	echo "$3" | tr ';_' '\n '
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
done <<TABLE
gpt   dp=1,tp=1 optimizer_->_host
gpt   dp=2,tp=2 optimizer_->_dp;optimizer_->_host;seq_->_tp microbatches=2
gpt   dp=2,tp=1 params_->_dp;params_->_host;optimizer_->_host microbatches=2
llama dp=2,tp=1 grads_->_dp;params_->_host
llama dp=2,tp=1 params_->_dp,_gather_=_step;params_->_host
llama dp=2,tp=1 wte:_params_->_host;"w*":_optimizer_->_host
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

# A copy takes its time: of all bytes at the host's rate, and a latency each. The rest of the step is as without, but for
# launches, for which nothing waits while there are copies.
priced() { # LINE: a machine with it; what a step takes, and what is copied
	write_case gpt "dp = 2, tp = 1" "optimizer_->_dp;$2" | sed 's/mesh .*/& on box/' >"$TMP/priced.pdsl"
	printf 'hardware box {\n\tflops fp32 = 1T\n\tmemory 8Gi, bandwidth = 1T\n\tlink l, bandwidth = 1T, latency = 1u\n%s\n}\n' "$1" >>"$TMP/priced.pdsl"
	"$PTC" explain --json "$TMP/priced.pdsl" --set microbatches=2 | jq .time.step_s
}
device=$(priced '	host bandwidth = 1M' '')
for lines in 'optimizer_->_host' 'params_->_host' 'optimizer_->_host;params_->_host'; do
	free=$(priced '' "$lines")
	slow=$(priced '	host bandwidth = 1M' "$lines")
	twice=$(priced '	host bandwidth = 0.5M' "$lines")
	late=$(priced '	host bandwidth = 1M, latency = 1' "$lines")
	copied=$("$PTC" explain "$TMP/priced.pdsl" --set microbatches=2 | sed -n 's/^host .* a rank; //p')
	if jq -en "$device == $free and $slow > 10 * $free and ((2 * ($slow - $free) - ($twice - $free)) | fabs) < $free and
		(($late - $slow) | . > 5 and ((. - round) | fabs) < 1e-6)" >"$TMP/why"; then
		ok "copies are priced: $lines"
	else
		echo "device $device free $free slow $slow twice $twice late $late; $copied" >"$TMP/why"
		bad "copies are priced: $lines" "$TMP/why"
	fi
done
write_case gpt "dp = 2, tp = 1" "optimizer_->_host" | sed 's/mesh .*/& on box/' >"$TMP/priced.pdsl"
printf 'hardware box {\n\tflops fp32 = 1T\n\tmemory 8Gi, bandwidth = 1T\n\tlink l, bandwidth = 1T\n}\n' >>"$TMP/priced.pdsl"
expect "no host link" 0 "$PTC" explain "$TMP/priced.pdsl" &&
	if grep -q "not in the time: the hardware has no 'host bandwidth'" "$TMP/out"; then ok "no host link"; else bad "no host link" "$TMP/out"; fi

write_case gpt "dp = 2, tp = 1" "optimizer_->_host,_dp" >"$TMP/wrong.pdsl"
expect "host and an axis" 1 "$PTC" show "$TMP/wrong.pdsl" &&
	if grep -q "an arrow to the host has no axes" "$TMP/err"; then ok wrong; else bad wrong "$TMP/err"; fi
finish
