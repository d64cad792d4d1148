#!/bin/sh
# Part of make bench: what `ptc explain` predicts of a step on this machine, as `ptc calibrate` measured it, against what
# it takes, for 30 layouts of two models. Measured is the least of some steps in processor time (cpu_ms), which other
# programs on the machine hardly touch. BLOCKS=FILE: blocks that were measured before, of that name.
cd "$(dirname "$0")/.." || exit 1
ptc=${PTC:-$PWD/${BUILD:-build}/ptc}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

if [ -n "$BLOCKS" ]; then cp "$BLOCKS" "$tmp/here.pdsl"; else $ptc calibrate -o "$tmp/here.pdsl" 2>/dev/null || exit 1; fi
cp examples/lib.pdsl "$tmp"
data=$PWD/tests/data/text.txt
mini=batch=8,seq=64
llama=batch=8,seq=64,vocab=256,embed=256,layers=4,kv=4,group=2,head=32,ff=512,precision=fp32,microbatches=1

while read -r model ranks mesh set add; do
	[ -n "$model" ] || continue
	file=$tmp/$model.pdsl
	sed "s/ on \(cpu\|h100\)/ on here$ranks/; s/^include \"lib.pdsl\"/&\ninclude \"here.pdsl\"/" "examples/$model.pdsl" >"$file"
	plan=; sizes=$mini
	[ $model = llama ] && plan="--plan big" sizes=$llama
	[ "$set" = - ] || sizes="$(echo "$sizes" | sed "s/\(^\|,\)${set%%=*}=[^,]*//"),$set"
	# shellcheck disable=SC2086
	{
		predicted=$($ptc explain "$file" $plan --mesh "$mesh" --set "$sizes" ${add:+--add "$add"} --json 2>"$tmp/err" | jq '1000 * .time.step_s')
		measured=$($ptc run "$file" $plan --mesh "$mesh" --set "$sizes" ${add:+--add "$add"} --data "$data" --steps "${STEPS:-6}" --json 2>>"$tmp/err" |
			jq -s '[.[] | select(.step > 0) | .cpu_ms] | min')
	}
	if [ -z "$predicted" ] || [ -z "$measured" ] || [ "$measured" = null ]; then
		echo "    $model $mesh $set $add: $(head -1 "$tmp/err")"
		continue
	fi
	echo "$predicted $measured $model $mesh $set $add" | tee -a "$tmp/all" |
		awk '{ e = $1 / $2; if (e < 1) e = 1 / e; printf "    %-6s %8.1f ms predicted %8.1f ms measured %5.0f %%  ", $3, $1, $2, 100 * (e - 1); $1 = $2 = $3 = ""; print }'
done <<TABLE
gpt-mini 1 dp=1 -
gpt-mini 1 dp=1 microbatches=2
gpt-mini 1 dp=1 recompute=full
gpt-mini 1 dp=1 embed=128
gpt-mini 1 dp=1 seq=128
gpt-mini 2 dp=2 -
gpt-mini 2 tp=2 -
gpt-mini 2 dp=2 microbatches=2
gpt-mini 2 dp=2 - params -> dp
gpt-mini 4 dp=4 -
gpt-mini 4 dp=2,tp=2 -
gpt-mini 4 tp=4 -
gpt-mini 4 dp=2,tp=2 recompute=full
gpt-mini 8 dp=8 -
gpt-mini 8 dp=4,tp=2 -
gpt-mini 8 dp=2,tp=4 -
llama 1 dp=1 -
llama 1 dp=1 ff=1024
llama 2 dp=2 -
llama 2 tp=2 -
llama 2 cp=2 -
llama 2 pp=2 microbatches=4
llama 4 dp=4 -
llama 4 dp=2,tp=2 -
llama 4 cp=2,tp=2 -
llama 4 tp=4 -
llama 4 pp=2,dp=2 microbatches=4
llama 8 dp=8 -
llama 8 dp=2,tp=4 -
llama 8 dp=2,cp=2,tp=2 -
TABLE

# The median error, and Spearman's rank correlation.
sort -g -k1,1 "$tmp/all" | awk '{ print NR, $0 }' | sort -g -k3,3 | awk '
	{ d = $1 - NR; sum += d * d; e = $2 / $3; error[NR] = e < 1 ? 1 / e - 1 : e - 1 }
	END {
		for (i = 1; i <= NR; i++) for (k = i + 1; k <= NR; k++) if (error[k] < error[i]) { t = error[i]; error[i] = error[k]; error[k] = t }
		printf "    %d layouts: median error %.0f %%, nine in ten below %.0f %%, rank correlation %.2f\n", NR, 100 * error[int((NR + 1) / 2)],
			100 * error[int(NR * 0.9)], (NR > 1 ? 1 - 6 * sum / (NR * (NR * NR - 1)) : 1)
	}'
