#!/bin/sh
# Timelines of a step, predicted and measured: both parse, have the same events, add up to the step, and each message
# has two ends.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

gpt=tests/explain/gpt.pdsl
sed "/^plan /,\$d; s#\.\./\.\./examples/#$PWD/examples/#" $gpt >"$TMP/model.pdsl"

# compare NAME FILE ARGS...
compare() {
	name=$1 file=$2
	shift 2
	expect "$name, predicted" 0 "$PTC" explain "$file" "$@" --trace "$TMP/p.json" || return
	expect "$name, measured" 0 timeout 120 "$PTC" run "$file" "$@" --data tests/data/text.txt --steps 2 --trace "$TMP/m.json" || return
	for k in p m; do
		jq -r '.traceEvents[] | select(.ph != "M" and .name != "idle") | [.ph, .pid, .tid, .name, (.args.id // .id)] | @tsv' "$TMP/$k.json" |
			sort >"$TMP/$k.txt"
		# Actions and idle time tile the step; nothing lies outside it; arrows go from one end to the other.
		if jq -e '(.otherData.step_s * 1e6) as $step | [.traceEvents[] | select(.ph == "X")] as $x
			| ($x | map(select(.tid == 0)) | group_by(.pid) | all(((map(.dur) | add) - $step | fabs) < 1e-3 * $step + 1))
			and all($x[]; .ts > -1 and .dur >= 0 and (.tid == 2 or .ts + .dur < $step * 1.001 + 1))
			and ([.traceEvents[] | select(.ph == "s") | .id] | sort) == ([.traceEvents[] | select(.ph == "f") | .id] | sort)
			and ([.traceEvents[] | select(.ph == "s") | .id] | length == (unique | length))' "$TMP/$k.json" >"$TMP/why" 2>&1; then
			ok "$name, $k adds up"
		else
			bad "$name, $k adds up" "$TMP/why"
		fi
	done
	diff "$TMP/p.txt" "$TMP/m.txt" >"$TMP/why"
	if [ -s "$TMP/p.txt" ] && [ ! -s "$TMP/why" ]; then ok "$name, the same events"; else bad "$name, the same events" "$TMP/why"; fi
}

for plan in gpipe interleaved whole; do
	compare "$plan" $gpt --plan $plan --set vocab=256
done
compare "zb_v" $gpt --plan interleaved --set vocab=256,pipeline=zb_v
compare "1f1b, few microbatches" $gpt --set vocab=256,microbatches=2
compare "recompute" $gpt --plan whole --set vocab=256,recompute=full
compare "one rank" examples/gpt-mini.pdsl --plan one --set seq=32,layers=2
# Params that are gathered ahead, and states in host memory.
while read -r name lines; do
	[ -n "$name" ] || continue
	{
		cat "$TMP/model.pdsl"
		printf 'plan {\n\t%s\n}\n' "$(echo "$lines" | sed 's/;/\n\t/g')"
	} >"$TMP/case.pdsl"
	compare "$name" "$TMP/case.pdsl" --set vocab=256
done <<TABLE
gathered mesh dp = 4 on h100; batch -> dp; params -> dp; microbatches = 2
host mesh dp = 2 on h100; batch -> dp; optimizer -> dp; optimizer -> host; params -> host
both mesh pp = 2, dp = 2 on h100; layers -> pp; pipeline 1f1b; batch -> dp; params -> dp; params -> host; microbatches = 2
TABLE

# Ops take in a timeline what the report says of their kind: one after the other on one rank, where nothing overlaps, they
# are the step.
adds_up() {
	name=$1
	shift
	expect "$name" 0 "$PTC" explain "$@" --json --trace "$TMP/s.json" || return
	if jq -es --argjson said "$(jq .time "$TMP/out")" '.[0].traceEvents | map(select(.ph == "X" and .tid > 0)) | {
			all: (map(.dur) | add / 1e6), products: (map(select(.name | startswith("einsum")) | .dur) | add / 1e6),
			attention: (map(select(.name | startswith("attention")) | .dur) | add / 1e6) } as $t | $said.kinds as $k
			| def near(a; b): (a - b | fabs) < 2e-3 * b;
			near($t.all; $said.step_s - $k.host) and near($t.products; $k.products) and near($t.attention; $k.attention)' \
		"$TMP/s.json" >"$TMP/why" 2>&1; then ok "$name"; else bad "$name" "$TMP/why"; fi
}
adds_up "ops are the step" examples/gpt-mini.pdsl --plan one
adds_up "ops are the step, on a GPU" examples/gpt-mini.pdsl --set precision=bf16 --mesh dp=1,tp=1 --plan one --add "recompute full"

# What can't be written is said.
expect "a folder that is not there" 3 "$PTC" explain $gpt --trace "$TMP/none/x.json" && ok "a folder that is not there"
expect "no steps" 1 "$PTC" run $gpt --set vocab=256 --data tests/data/text.txt --steps 0 --trace "$TMP/x.json" && ok "no steps"
if [ -e build/softgpu/libcuda.so.1 ]; then
	expect "ops that run behind the host's clock" 3 env PTC_CUDA_LIBS="$PWD/build/softgpu" "$PTC" run examples/gpt-mini.pdsl --plan one --set seq=16,layers=1 \
		--data tests/data/text.txt --steps 1 --backend cuda --trace "$TMP/x.json" &&
		if grep -q "host's clock" "$TMP/err"; then ok "ops that run behind the host's clock"; else bad "ops that run behind the host's clock" "$TMP/err"; fi
else
	skip "ops that run behind the host's clock" "there is no build/softgpu"
fi
finish
