#!/bin/sh
# ptc calibrate: its blocks are read by the language, and predict the ops that they were made from; explain --calibrate:
# one run scales times and leaves the rest.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

if expect "calibrate" 0 timeout 500 "$PTC" calibrate --quick --ranks 2 -o "$TMP/mine.pdsl"; then
	ok "calibrate"
	# Of ops: whole steps of small models on a machine that others use say little.
	if awk '/predicted within/ { n++; sum += $(NF - 1) } END { exit !(n >= 4 && sum / n < 120) }' "$TMP/err" &&
		[ "$(grep -c 'measured .* predicted' "$TMP/mine.pdsl")" = 6 ]; then ok "figures predict what was measured"; else
		bad "figures predict what was measured" "$TMP/err"; fi
	cp examples/lib.pdsl "$TMP"
	sed 's/ on cpu/ on mine2/; s/^include "lib.pdsl"/&\ninclude "mine.pdsl"/' examples/gpt-mini.pdsl >"$TMP/mini.pdsl"
	if expect "a block of calibrate" 0 "$PTC" explain --json "$TMP/mini.pdsl" --mesh dp=2 && jq -e '.time.step_s > 0' "$TMP/out" >/dev/null &&
		! grep -q warning "$TMP/err"; then ok "a block of calibrate"; else bad "a block of calibrate" "$TMP/err"; fi
fi
# Ranks that share cores: the ops of most kinds are seen.
many=$((4 * $(nproc)))
if [ $many -le 64 ] && expect "more ranks than cores" 0 timeout 500 "$PTC" calibrate --quick --ranks $many -o "$TMP/many.pdsl"; then
	if [ "$(grep -c 'predicted within' "$TMP/err")" -ge 4 ]; then ok "more ranks than cores"; else bad "more ranks than cores" "$TMP/err"; fi
fi
# GPUs: on the software one, whose times mean nothing.
${MAKE:-make} -s softgpu >"$TMP/log" 2>&1 || bad "make softgpu" "$TMP/log"
mkdir -p -m 700 "$TMP/cache"
export SOFTGPU_DEVICES=2 SOFTGPU_CACHE="$PWD/build/softgpu/cache"
if expect "GPUs" 0 env PTC_CUDA_LIBS="$PWD/build/softgpu" PTC_CACHE="$TMP/cache" timeout 500 "$PTC" calibrate --quick --backend cuda --ranks 2 -o "$TMP/gpu.pdsl"; then
	sed 's/ on cpu/ on gpu2/; s/^include "lib.pdsl"/&\ninclude "gpu.pdsl"/' examples/gpt-mini.pdsl >"$TMP/gpumini.pdsl"
	if grep -q '^    units 4$' "$TMP/gpu.pdsl" && ! grep -q '^    cores' "$TMP/gpu.pdsl" && expect "a block of GPUs" 0 "$PTC" explain --json "$TMP/gpumini.pdsl" --mesh dp=2 &&
		jq -e '.time.step_s > 0 and .memory.limit > 0' "$TMP/out" >/dev/null; then ok "a block of GPUs"; else bad "a block of GPUs" "$TMP/gpu.pdsl"; fi
fi
expect "no GPUs" 3 env PTC_CUDA_LIBS="$TMP" "$PTC" calibrate --backend cuda -o "$TMP/x" && ok "no GPUs"
expect "no such backend" 1 "$PTC" calibrate --backend tpu -o "$TMP/x" && ok "no such backend"
expect "too many ranks" 2 "$PTC" calibrate --ranks 1000 -o "$TMP/x" && ok "too many ranks"

mini=examples/gpt-mini.pdsl
expect "as predicted" 0 "$PTC" explain --json $mini && cp "$TMP/out" "$TMP/plain"
ms=$(jq '2000 * .time.step_s' "$TMP/plain")
for x in 9999 "$ms" "$ms" 1 "$ms" 77777; do echo "{\"step\":$((n)),\"step_ms\":$x}"; n=$((n + 1)); done >"$TMP/run.jsonl"
echo '{"summary":{"steps":6}}' >>"$TMP/run.jsonl"
if expect "twice as long" 0 "$PTC" explain --json $mini --calibrate "$TMP/run.jsonl"; then
	if jq -es 'def near(a; b): (a - b | fabs) <= 1e-9 * (b | fabs); .[0] as $a | .[1] as $b
		| near($b.time.step_s; 2 * $a.time.step_s) and near($b.time.factor; 2) and near($b.time.exposed_comm_s; 2 * $a.time.exposed_comm_s)
		and near($b.mfu; $a.mfu / 2) and near($b.tokens_per_s_per_gpu; $a.tokens_per_s_per_gpu / 2)
		and near($b.cost.usd_per_step; 2 * $a.cost.usd_per_step) and $b.memory == $a.memory and $b.comm == $a.comm and $b.flops == $a.flops' \
		"$TMP/plain" "$TMP/out" >/dev/null; then ok "twice as long"; else bad "twice as long" "$TMP/out"; fi
fi
expect "a trace of the measured length" 0 "$PTC" explain $mini --calibrate "$TMP/run.jsonl" --trace "$TMP/t.json" &&
	if jq -e "(.otherData.step_s * 1000 - $ms | fabs) < 1e-6 * $ms" "$TMP/t.json" >/dev/null; then ok "a trace of the measured length"; else
		bad "a trace of the measured length"; fi
refused() {
	name=$1 want=$2
	shift 2
	expect "$name" 1 "$PTC" explain $mini --calibrate "$@" &&
		if grep -qF -- "$want" "$TMP/err"; then ok "$name"; else bad "$name" "$TMP/err"; fi
}
echo '{"step":1,"step_ms":3}' >"$TMP/one.jsonl"
refused "one step" "two are needed" "$TMP/one.jsonl"
echo 'step 1 loss 3' >"$TMP/text.jsonl"
refused "no JSON" "text.jsonl:1 is no JSON" "$TMP/text.jsonl"
refused "no file" "No such file" "$TMP/none.jsonl"
printf '{"step":1,"step_ms":0}\n{"step":2,"step_ms":0}\n' >"$TMP/zero.jsonl"
refused "no time" "takes no time" "$TMP/zero.jsonl"

# The log says what was run.
size=seq=16,embed=16,heads=4,layers=2
run() { "$PTC" run $mini --set $size --data tests/data/text.txt --steps 4 --json "$@"; }
run >"$TMP/real.jsonl" 2>"$TMP/err" || bad "a run to calibrate by" "$TMP/err"
run --mesh dp=4 >"$TMP/dp.jsonl" 2>"$TMP/err" || bad "a run on another mesh" "$TMP/err"
"$PTC" $mini --set $size -o "$TMP/mini.plan" 2>"$TMP/err" || bad "a plan to calibrate" "$TMP/err"
expect "a run of this plan" 0 "$PTC" explain "$TMP/mini.plan" --calibrate "$TMP/real.jsonl" &&
	if [ ! -s "$TMP/err" ] && grep -q 'as measured' "$TMP/out"; then ok "a run of this plan"; else bad "a run of this plan" "$TMP/err"; fi
refused "a run of other sizes" "is no run of $mini: params " "$TMP/real.jsonl"
refused "a run of another mesh" 'mesh {"dp":2,"tp":2} there, {"dp":4} here' "$TMP/real.jsonl" --set $size --mesh dp=4
refused "a run of another batch" 'inputs {"tokens":[16,16],"targets":[16,16]} there, {"tokens":[8,16],"targets":[8,16]} here' \
	"$TMP/real.jsonl" --set $size,batch=8
cat "$TMP/real.jsonl" "$TMP/dp.jsonl" >"$TMP/both.jsonl"
refused "two runs" "both.jsonl:6: a run of another plan begins here" "$TMP/both.jsonl" --set $size
warned() {
	name=$1 want=$2
	shift 2
	expect "$name" 0 "$PTC" explain $mini --set $size --calibrate "$@" &&
		if grep -qF -- "$want" "$TMP/err"; then ok "$name"; else bad "$name" "$TMP/err"; fi
}
warned "a run of another layout" "is a run of another layout than $mini: sent_bytes " "$TMP/real.jsonl" --set recompute=full
sed 's/,"run":{.*}}$/}/' "$TMP/real.jsonl" >"$TMP/old.jsonl"
warned "a log that does not say" "old.jsonl does not say what was run; it is taken for a run of $mini" "$TMP/old.jsonl"
finish
