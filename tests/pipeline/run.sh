#!/bin/sh
# Pipelines compute the step of one rank: `ptc check` over models, stages, orders, microbatches, other axes and
# recompute, and what is recomputed changes no bit of it. Of their product few cases in which each pair of settings occurs, and
# MORE (300) at random from SEED, which is another for each commit. `tests/pipeline/run.sh one MODEL STAGES ORDER
# MICROBATCHES AXES RECOMPUTE` runs a single one; `all`, or `make pipeline-all`, all of them, `all 2/7` the second of
# seven parts. JOBS cases at once.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
export CC="${CC:-cc} -O0" PTC_CACHE="${PTC_CACHE:-$PWD/$BUILD/test-kernels}" PTC_THREADS=1 # kernels are compiled, not timed
MORE=${MORE:-300} JOBS=${JOBS:-$(nproc)}
SEED=${SEED:-$({ git rev-parse HEAD 2>/dev/null || date +%F; } | cksum | cut -d' ' -f1)}

# The dims, small, the repeats and the arrows of each model. The plans of the files are not wanted.
case_of() {
	head='heads, ff, vocab -> tp' loops=layers rows=seq
	case $1 in
	gpt) size=layers=6 ;;
	llama) size=layers=6 head='kv, group, ff, vocab -> tp' ;;
	shared) size=layers=4,more=2 head='ff, vocab -> tp' loops='layers, more' ;;
	mixtral)
		size=seq=8,vocab=16,embed=8,layers=6,kv=2,group=2,head=4,ff=6,experts=4
		head='kv, group, ff, vocab -> tp'
		;;
	t5)
		size=src=6,dst=8,vocab=16,embed=8,enc=3,dec=3,heads=2,head=4,ff=6,buckets=8
		loops='enc, dec' rows='src, dst'
		;;
	esac
	file=examples/$1.pdsl
	[ -f "tests/equiv/$1.pdsl" ] && file=tests/equiv/$1.pdsl
}

write_case() { # MODEL ORDER MESH LINES
	sed -e '/^plan/,$d' -e "s,\"../../examples/lib,\"$PWD/examples/lib," -e "s,include \"lib,include \"$PWD/examples/lib," "$file"
	echo 'plan {'
	echo "	mesh $3"
	echo '	batch -> dp'
	echo "	$head"
	echo "	$loops -> pp"
	echo "	$4"
	echo "	pipeline $2"
	echo '}'
}

peak_of() { # RECOMPUTE
	"$PTC" explain "$TMP/case.pdsl" --set "$size,recompute=$1" --json 2>"$TMP/err" | jq .memory.peak
}

# Half of what keeping all takes more than keeping least.
write_auto() {
	none=$(peak_of none) full=$(peak_of full)
	[ -n "$none" ] && [ -n "$full" ] || return
	memory=$(((none + full) / 2))
	sed -i "s/^	pipeline /	recompute auto, memory = $memory\n&/" "$TMP/case.pdsl"
}

one_case() { # MODEL STAGES ORDER MICROBATCHES AXES RECOMPUTE
	name=$*
	case_of "$1"
	size=$size,batch=$((2 * $4)),microbatches=$4
	mesh="pp = $2" lines=
	case $5 in
	none) mesh="$mesh, dp = 1, tp = 1" ;;
	tp) mesh="$mesh, dp = 1, tp = 2" ;;
	sp) mesh="$mesh, dp = 1, tp = 2" lines="$rows -> tp" ;;
	dp) mesh="$mesh, dp = 2, tp = 1" ;;
	*) mesh="$mesh, dp = 2, tp = 1" lines="$5 -> dp" ;;
	esac
	order=$3
	[ "$3" != interleaved ] || order='interleaved, chunks = 2'
	write_case "$1" "$order" "$mesh" "$lines" >"$TMP/case.pdsl"
	bits="--same-bits recompute=none"
	[ "$6" != none ] || bits=
	if [ "$6" != auto ]; then
		size=$size,recompute=$6
	elif ! write_auto; then
		bad "$name: explain" "$TMP/err"
		return
	fi
	# shellcheck disable=SC2086
	if expect "$name" 0 timeout 600 "$PTC" check "$TMP/case.pdsl" --set "$size" $bits; then ok "$name"; fi
}

# Those of $TMP/cases, in JOBS processes: each takes the next that nobody has.
cases() {
	mkdir "$TMP/taken"
	for job in $(seq "$JOBS"); do
		mkdir "$TMP/$job"
		(
			taken=$TMP/taken all=$TMP/cases TMP=$TMP/$job
			while read -r no line; do
				# shellcheck disable=SC2086
				! mkdir "$taken/$no" 2>/dev/null || one_case $line
			done <"$all"
			echo "$PASSED $FAILED" >"$TMP/count"
		) >"$TMP/$job/log" 2>&1 &
	done
	wait
	for job in $(seq "$JOBS"); do
		cat "$TMP/$job/log"
		if read -r passed failed <"$TMP/$job/count"; then
			PASSED=$((PASSED + passed)) FAILED=$((FAILED + failed))
		else
			bad "cases stopped early"
		fi
	done
}

case $1 in
one)
	shift
	one_case "$@"
	finish
	;;
all)
	part=${2:-1/1}
	awk -v all=1 -f tests/pipeline/cover.awk | awk -v i="${part%/*}" -v n="${part#*/}" 'NR % n == i % n { print ++k, $0 }' >"$TMP/cases"
	cases
	finish
	;;
esac
{
	# where auto would have its actions in another order than none
	echo shared 3 zb_v 5 tp auto
	awk -v more="$MORE" -v seed="$SEED" -f tests/pipeline/cover.awk
} | awk '{ print NR, $0 }' >"$TMP/cases"
echo "    pipelines: $(wc -l <"$TMP/cases") cases, the random ones from SEED=$SEED"
cases

# -- what a repeat carries on: the models of this folder, on one and two stages more than they say and on fewer microbatches too --

for model in tests/pipeline/*.pdsl; do
	for how in '--set microbatches=3' '--set microbatches=1' '--set microbatches=2 --mesh pp=3' '--set microbatches=2 --mesh pp=4' \
		'--add deterministic'; do
		# shellcheck disable=SC2086
		if expect "$model $how" 0 timeout 600 "$PTC" check "$model" $how && expect "$model $how" 0 "$PTC" verify "$model" $how; then
			ok "$model $how"
		fi
	done
done

# once a step, not in each microbatch: a sum of params, all stages' parts reduced
"$PTC" show --after=partition tests/pipeline/penalty.pdsl >"$TMP/out" 2>"$TMP/err"
if sed -n '/^forward:/,/^backward:/p' "$TMP/out" | grep -q '"reg"' || [ "$(grep -c 'repeat.*local=' "$TMP/out")" -lt 2 ]; then
	bad "a penalty is added up once a step" "$TMP/out"
else
	ok "a penalty is added up once a step"
fi

# an order that waits for itself with two receive buffers gets more
sed '/^# >>>/,$d; s/, buffers = 2//' tests/error/39-stages-wait.pdsl >"$TMP/wait.pdsl"
if expect "receive buffers" 0 timeout 600 "$PTC" check "$TMP/wait.pdsl" && expect "receive buffers" 0 "$PTC" verify "$TMP/wait.pdsl"; then
	ok "receive buffers"
fi

# -- training: the losses of one rank, the same bits each time, params that load into other layouts --

# trains NAME ORDER MESH OPTIONS...: three steps, a line of JSON each, to $TMP/out
trains() {
	name=$1
	case_of gpt
	size=batch=12,layers=7
	write_case gpt "$2" "$3" "" >"$TMP/case.pdsl"
	shift 3
	expect "$name" 0 timeout 600 "$PTC" run "$TMP/case.pdsl" --set "$size,vocab=256,microbatches=3" --steps 3 --json \
		--data tests/data/text.txt "$@"
}

losses() {
	jq -c 'select(.step != null) | [.step, .loss, .grad_norm]' "$TMP/out"
}

near() {
	jq -ens --slurpfile a "$1" --slurpfile b "$2" '[$a, $b] | transpose | all(.[]; [.[0], .[1]] | transpose |
		all(.[]; (.[0] - .[1]) | fabs < 1e-4))' >"$TMP/why" 2>&1
}

trains 'one rank trains' 1f1b 'pp = 1, dp = 1, tp = 1' --save "$TMP/one.st" && losses >"$TMP/one"
trains 'one rank goes on' 1f1b 'pp = 1, dp = 1, tp = 1' --init "$TMP/one.st" && losses >"$TMP/more"
for spec in '1f1b:pp = 2, dp = 1, tp = 1' 'interleaved, chunks = 2:pp = 2, dp = 2, tp = 1' 'zb_v:pp = 2, dp = 1, tp = 2'; do
	order=${spec%%:*} mesh=${spec#*:}
	trains "$spec trains" "$order" "$mesh" --save "$TMP/stages.st" || continue
	losses >"$TMP/stages"
	if near "$TMP/one" "$TMP/stages"; then ok "$spec: losses"; else bad "$spec: losses" "$TMP/stages"; fi
	jq -c 'select(.summary) | .summary | [.peak_bytes, .predicted_peak_bytes]' "$TMP/out" >"$TMP/peaks"
	"$PTC" explain --json "$TMP/case.pdsl" --set "$size,vocab=256,microbatches=3" | jq -c '[.memory.stages[].peak]' >"$TMP/told"
	if jq -e --slurpfile told "$TMP/told" '.[0] == .[1] and (.[0] | unique | length) == 2 and (.[0] | unique) == ($told[0] | sort)' \
		"$TMP/peaks" >"$TMP/why"; then
		ok "$spec: each stage has the peak that is foretold"
	else
		bad "$spec: each stage has the peak that is foretold" "$TMP/peaks"
	fi
	trains "$spec again" "$order" "$mesh" && losses >"$TMP/again"
	if cmp -s "$TMP/stages" "$TMP/again"; then ok "$spec: the same bits"; else bad "$spec: the same bits" "$TMP/again"; fi
	trains "$spec from one rank's params" "$order" "$mesh" --init "$TMP/one.st" && losses >"$TMP/there"
	trains "one rank from params of $spec" 1f1b 'pp = 1, dp = 1, tp = 1' --init "$TMP/stages.st" && losses >"$TMP/back"
	if near "$TMP/more" "$TMP/there" && near "$TMP/more" "$TMP/back"; then
		ok "$spec: params load into any layout"
	else
		bad "$spec: params load into any layout" "$TMP/there"
	fi
done
# -- bits: W does what B does, and with `deterministic` stages, their order and their cut make no difference --

# bits ORDER MESH LINES STEPS [MODEL]: trains, params to $TMP/bits.st, losses and norms to $TMP/bits
bits() {
	model=${5:-gpt} data=tests/data/text.txt
	case_of "$model"
	write_case "$model" "$1" "$2" "$3" >"$TMP/case.pdsl"
	size=$(echo "batch=8,$size,vocab=256,microbatches=4" | sed 's/vocab=16,//; s/dst=8/dst=6/')
	[ "$model" != t5 ] || data=tokens=$data,given=$data,answer=$data
	save_bits "$*" "$TMP/case.pdsl" --set "$size" --steps "$4" --data "$data"
}

save_bits() { # NAME MODEL OPTIONS OF run...
	name=$1
	shift
	rm -f "$TMP/bits.st"
	expect "$name" 0 timeout 600 "$PTC" run "$@" --json --save "$TMP/bits.st" || return
	jq -c 'select(.step != null) | [.step, .loss, .grad_norm, .metrics]' "$TMP/out" >"$TMP/bits"
}

same_bits() { # NAME: the last two runs of bits
	if cmp -s "$TMP/before.st" "$TMP/bits.st" && cmp -s "$TMP/before" "$TMP/bits"; then
		ok "$1: the same bits"
	else
		bad "$1: the same bits" "$TMP/bits"
	fi
}

keep_bits() {
	cp "$TMP/bits.st" "$TMP/before.st" && cp "$TMP/bits" "$TMP/before"
}

# The cut is the same, so all sums are made in the same order: in halves, and in other orders of actions. zb_v and
# interleaved orders cut otherwise: their stages sum squares over other layers, and one of zb_v's has both uses of wte, so their
# bits are those of 1f1b where these sums do not depend on the cut.
for mesh in 'pp = 2, dp = 1, tp = 2' 'pp = 3, dp = 2, tp = 1'; do
	cut='3, 3'
	[ "${mesh%%,*}" = 'pp = 2' ] || cut='2, 1, 3'
	bits "1f1b, stages = [$cut]" "$mesh" '' 3 && keep_bits
	for order in gpipe zb_h1; do
		bits "$order, stages = [$cut]" "$mesh" '' 3 && same_bits "$order as 1f1b, $mesh"
	done
done
# Whatever the cut: the norm and tied params too.
want=
while read -r pp order; do
	bits "$order" "pp = $pp, dp = 1, tp = 1" deterministic 100 || continue
	[ -z "$want" ] || same_bits "deterministic: $order, pp $pp"
	want=1
	keep_bits
done <<TABLE
1 1f1b
2 1f1b
4 gpipe
4 1f1b, stages = [0, 3, 3, 0]
3 zb_h1
2 interleaved, chunks = 2
3 zb_v
TABLE
# Params that all iterations read, of one repeat or of two.
for model in shared t5; do
	want=
	while read -r pp order; do
		bits "$order" "pp = $pp, dp = 1, tp = 1" deterministic 5 $model || continue
		[ -z "$want" ] || same_bits "deterministic: $model, $order, pp $pp"
		want=1
		keep_bits
	done <<TABLE
1 1f1b
2 1f1b
3 gpipe
3 zb_h1
2 interleaved, chunks = 2
2 zb_v
TABLE
done
# Sums that iterations add to once a step.
i=0
while [ $((i += 1)) -le 360 ]; do
	printf "\\0\\0\\$(printf %o $((i * 37 % 251)))\\076" >&3
	printf "\\$((i % 4))\\0" >&4
done 3>"$TMP/x.bin" 4>"$TMP/y.bin"
truncate -s 120 "$TMP/y.bin"
for pp in 1 2 3; do
	save_bits "deterministic: penalty, pp $pp" tests/pipeline/penalty.pdsl --add deterministic --mesh "pp=$pp" --steps 3 \
		--data "x0=$TMP/x.bin,y=$TMP/y.bin" || continue
	[ $pp = 1 ] || same_bits "deterministic: penalty, pp $pp"
	keep_bits
done
want=
for pp in 1 2; do
	bits 1f1b "pp = $pp, dp = 2, tp = 2" "deterministic; optimizer -> dp" 3 || continue
	[ -z "$want" ] || same_bits "deterministic beside dp 2, tp 2: pp $pp"
	want=1
	keep_bits
done
finish
