#!/bin/sh
# Part of make bench: what `ptc explain` predicts of a step on this machine, as `ptc calibrate` measured it, against what
# it takes by the clock, for 30 layouts of two models. Measured is the least of PASSES times STEPS steps, the passes one
# behind the other, so that a slow moment of the machine does not meet one layout alone; calibrate does likewise, for each
# number of ranks before its layouts are run. Others must not use the machine meanwhile. BLOCKS=FILE: what calibrate
# wrote before, for all numbers of ranks, to a file that begins with "here".
cd "$(dirname "$0")/.." || exit 1
ptc=${PTC:-$PWD/${BUILD:-build}/ptc}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

cp examples/lib.pdsl "$tmp"
data=$PWD/tests/data/text.txt

# sizes MODEL CHANGES: all settings; a change stands in the place of what it changes
sizes() {
	all=batch=8,seq=64
	[ "$1" = llama ] && all=$all,vocab=256,embed=256,layers=4,kv=4,group=2,head=32,ff=512,precision=fp32,microbatches=1
	for change in $(echo "$2" | tr ',' ' '); do
		[ "$change" = - ] || all="$(echo "$all" | sed "s/\(^\|,\)${change%%=*}=[^,]*//; s/^,//"),$change"
	done
	echo "$all"
}

# layouts WHAT RANKS: predicts or measures each row of the table for so many ranks: line number and milliseconds
layouts() {
	n=0
	while read -r model ranks mesh set add; do
		n=$((n + 1))
		[ "$ranks" = "$2" ] || continue
		file=$tmp/$model$ranks.pdsl plan=
		[ -e "$file" ] || sed "s/ on \(cpu\|h100\)/ on here$ranks/; s/^include \"lib.pdsl\"/&\ninclude \"here$ranks.pdsl\"/" "examples/$model.pdsl" >"$file"
		[ "$model" = llama ] && plan="--plan big"
		args="$file $plan --mesh $mesh --set $(sizes "$model" "$set")"
		# shellcheck disable=SC2086
		if [ "$1" = predict ]; then
			ms=$($ptc explain $args ${add:+--add "$add"} --json 2>"$tmp/err" | jq '1000 * .time.step_s')
		else
			ms=$($ptc run $args ${add:+--add "$add"} --data "$data" --steps "${STEPS:-8}" --json 2>"$tmp/err" |
				jq -s '[.[] | select(.step > 0) | .step_ms] | min')
		fi
		if [ -z "$ms" ] || [ "$ms" = null ]; then echo "    $model $mesh $set $add: $(head -1 "$tmp/err")" >&2; else echo "$n $ms"; fi
	done <"$tmp/table"
}

cat >"$tmp/table" <<TABLE
gpt-mini 1 dp=1 -
gpt-mini 1 dp=1 embed=128
gpt-mini 1 dp=1 seq=256
gpt-mini 1 dp=1 embed=512,layers=2
gpt-mini 1 dp=1 layers=6,recompute=full
gpt-mini 2 dp=2 -
gpt-mini 2 dp=2 embed=64
gpt-mini 2 dp=2 layers=6 params -> dp
gpt-mini 2 tp=2 -
gpt-mini 2 tp=2 seq=256
gpt-mini 4 dp=4 -
gpt-mini 4 dp=2,tp=2 embed=128
gpt-mini 4 dp=2,tp=2 batch=16,recompute=full
gpt-mini 4 tp=4 embed=512
gpt-mini 8 dp=8 batch=16
gpt-mini 8 dp=4,tp=2 embed=64,seq=128
gpt-mini 8 dp=2,tp=4 -
llama 1 dp=1 -
llama 1 dp=1 ff=2048
llama 1 dp=1 embed=128,layers=2
llama 2 dp=2 -
llama 2 tp=2 seq=256
llama 2 cp=2 seq=512,batch=2
llama 2 pp=2 microbatches=4
llama 4 dp=4 embed=128
llama 4 cp=2,tp=2 seq=256
llama 4 pp=2,dp=2 microbatches=4
llama 8 dp=8 -
llama 8 dp=2,tp=4 layers=8
llama 8 dp=2,cp=2,tp=2 layers=2
TABLE

for of in 1 2 4 8; do
	if [ -n "$BLOCKS" ]; then cp "$BLOCKS" "$tmp/here$of.pdsl"; else $ptc calibrate --ranks $of -o "$tmp/here$of.pdsl" 2>/dev/null || exit 1; fi
	layouts predict $of >>"$tmp/predicted"
	for pass in $(seq "${PASSES:-3}"); do layouts measure $of; done >>"$tmp/passes"
done
awk '!($1 in t) || $2 < t[$1] { t[$1] = $2 } END { for (n in t) print n, t[n] }' "$tmp/passes" >"$tmp/measured"
awk 'FILENAME ~ /predicted$/ { p[$1] = $2; next } FILENAME ~ /measured$/ { m[$1] = $2; next } FNR in p && FNR in m { print p[FNR], m[FNR], $0 }' \
	"$tmp/predicted" "$tmp/measured" "$tmp/table" | tee "$tmp/all" |
	awk '{ e = $1 / $2; if (e < 1) e = 1 / e; printf "    %-8s %8.1f ms predicted %8.1f ms measured %5.0f %%  ", $3, $1, $2, 100 * (e - 1); $1 = $2 = $3 = $4 = ""; sub(/^ +/, ""); print }'

# The median error, and Spearman's rank correlation.
sort -g -k1,1 "$tmp/all" | awk '{ print NR, $0 }' | sort -g -k3,3 | awk '
	{ d = $1 - NR; sum += d * d; e = $2 / $3; error[NR] = e < 1 ? 1 / e - 1 : e - 1 }
	END {
		for (i = 1; i <= NR; i++) for (k = i + 1; k <= NR; k++) if (error[k] < error[i]) { t = error[i]; error[i] = error[k]; error[k] = t }
		printf "    %d layouts: median error %.0f %%, nine in ten below %.0f %%, rank correlation %.2f\n", NR, 100 * error[int((NR + 1) / 2)],
			100 * error[int(NR * 0.9)], (NR > 1 ? 1 - 6 * sum / (NR * (NR * NR - 1)) : 1)
	}'
