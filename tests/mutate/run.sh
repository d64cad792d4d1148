#!/bin/sh
# Plans with one fault each (mutants.c): ptc verify rejects every one that hangs, crashes or computes something else
# when all its ranks run (main.c). N mutants (200) from SEED (1); with ALL=1 those that are
# rejected are all run too. Prints the table with V=1.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
MAKE=${MAKE:-make} N=${N:-200} SEED=${SEED:-1}
export TMP

# Hardware that is slow at all but starting to send: what can be sent early is.
slow() { # MODEL
	{
		sed "s|include \"../../|include \"$PWD/|" "tests/equiv/$1.pdsl"
		printf 'hardware cpu {\n\tflops fp32 = 1M, bf16 = 1M\n\tmemory 8Gi, bandwidth = 1M\n'
		printf '\tlink slow, bandwidth = 1M, latency = 1n\n}\n'
	} >"$TMP/slow-$1.pdsl"
}
slow gpt
slow mlp

piped() { # NAME SCHEDULE MESH ARROW MODEL
	{
		sed -e '/^plan/,$d' -e "s|include \"../../|include \"$PWD/|" "tests/equiv/${5:-gpt}.pdsl"
		printf 'plan {\n\tmesh %s\n\tbatch -> dp\n\tff, vocab -> tp\n\tlayers -> pp\n' "$3"
		printf '%s\tpipeline %s\n}\n' "${4:+	$4
}" "$2"
	} >"$TMP/$1.pdsl"
}
piped pipe1 1f1b 'pp = 2, dp = 1, tp = 1'
piped pipe2 1f1b 'pp = 3, dp = 1, tp = 1' 'optimizer -> dp'
piped pipe3 'interleaved, chunks = 2' 'pp = 2, dp = 1, tp = 1'
piped pipe4 zb_v 'pp = 2, dp = 1, tp = 1'
piped pipe5 1f1b 'pp = 2, dp = 2, tp = 1' 'params -> dp'
piped pipe6 1f1b 'pp = 4, dp = 1, tp = 1' '' llama
# Copies from and to the host, started early.
hosted() { # NAME MODEL MESH ARROWS
	{
		sed -e '/^plan/,$d' -e "s|include \"../../|include \"$PWD/|" "tests/equiv/$2.pdsl"
		printf 'hardware cpu {\n\tflops fp32 = 1M\n\tmemory 8Gi, bandwidth = 1M\n\tlink slow, bandwidth = 1M, latency = 1n\n'
		printf '\thost bandwidth = 1M, latency = 1n\n}\nplan {\n\tmesh %s\n\tbatch -> dp\n%s\n}\n' "$3" "$4"
	} >"$TMP/pipe-$1.pdsl"
}
hosted host1 gpt 'dp = 1' '	params -> host
	optimizer -> host'
hosted host2 gpt 'dp = 2' '	optimizer -> dp
	optimizer -> host
	params -> host'
hosted host3 mlp 'dp = 2' '	params -> dp
	params -> host'
hosted host4 gpt 'pp = 2, dp = 1' '	layers -> pp
	pipeline 1f1b
	optimizer -> host
	params -> host'
plans=
while read -r name file options; do
	# shellcheck disable=SC2086
	expect "compile $name" 0 "$PTC" "$(echo "$file" | sed "s,^slow\|^pipe,$TMP/&,")" -o "$TMP/$name.plan" $options || continue
	if expect "verify $name" 0 "$PTC" verify "$TMP/$name.plan"; then ok "verify $name: $(cat "$TMP/out")"; fi
	plans="$plans $TMP/$name.plan"
done <<TABLE
dp       tests/equiv/gpt.pdsl  --mesh dp=2 --set microbatches=2
tp       tests/equiv/gpt.pdsl  --mesh tp=2
dptp     tests/equiv/gpt.pdsl  --mesh dp=2,tp=2 --set layers=5
sp       tests/equiv/gpt.pdsl  --plan sp --mesh tp=2
zero1    tests/equiv/gpt.pdsl  --plan zero --mesh dp=2
zero2    tests/equiv/gpt.pdsl  --plan grads --mesh dp=2 --set microbatches=2
zero3    tests/equiv/gpt.pdsl  --plan params --mesh dp=2 --set microbatches=2,layers=5
ring     tests/equiv/gpt.pdsl  --plan ring --mesh cp=2
ulysses  tests/equiv/gpt.pdsl  --plan ulysses --mesh cp=2
llama    tests/equiv/llama.pdsl --plan all --mesh tp=2
experts  tests/cases/moe.pdsl  --mesh ep=2
overlap1 slow-gpt.pdsl --plan grads --mesh dp=2
overlap2 slow-gpt.pdsl --plan params --mesh dp=2 --set layers=3,microbatches=2
overlap3 slow-mlp.pdsl --plan zero --mesh dp=2
pipe1    pipe1.pdsl --set layers=5,microbatches=2
pipe2    pipe2.pdsl --set layers=4,microbatches=2
pipe3    pipe3.pdsl --set layers=5,microbatches=4
pipe4    pipe4.pdsl --set layers=7,microbatches=4
pipe5    pipe5.pdsl --set layers=4,microbatches=2
host1    pipe-host1.pdsl --set layers=5
host2    pipe-host2.pdsl --set layers=3,microbatches=2
host3    pipe-host3.pdsl
host4    pipe-host4.pdsl --set layers=5,microbatches=4
pipe6    pipe6.pdsl --set layers=7,microbatches=2
pipe7    tests/pipeline/idle.pdsl
TABLE

$MAKE --no-print-directory "$BUILD/mutate" >"$TMP/log" 2>&1 || bad "build mutate" "$TMP/log"
# shellcheck disable=SC2086
if "$BUILD/mutate" ${ALL:+-a} "$N" "$SEED" $plans >"$TMP/table"; then
	ok "$(tail -1 "$TMP/table")"
	echo "    mutate: $(tail -1 "$TMP/table" | awk '{ print $2 " mutants, " $3 " run, " $4 " unsafe, " $5 " rejected, " $6 " of them harmless, " $7 " plans of other models, " $8 " missed" }')"
	[ -z "$V" ] || cat "$TMP/table"
else
	cp "$TMP"/missed-* "${KEEP:-/tmp}" 2>/dev/null
	bad "mutate $N $SEED" "$TMP/table"
fi
finish
