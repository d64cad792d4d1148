# Part of run.sh: ranks that are processes, as torchrun starts them, train as threads do; one that is killed is named by all
# others, and so is a GPU that stands still.
[ $# = 0 ] || case " $* " in *" processes "*) ;; *) return ;; esac

"$PTC" tests/equiv/gpt.pdsl --set vocab=256,layers=1 --plan params --mesh dp=2,tp=1 -o "$TMP/2.plan" >"$TMP/out" 2>&1 || bad "compile 2.plan" "$TMP/out"
{
	sed -e '/^plan/,$d' -e "s,include \"../../,include \"$PWD/," tests/equiv/gpt.pdsl
	printf 'plan {\n\tmesh pp = 2, dp = 1, tp = 2\n\tbatch -> dp\n\theads, ff, vocab -> tp\n\tlayers -> pp\n\tpipeline 1f1b\n\tseq -> tp\n}\n'
} >"$TMP/4.pdsl"
"$PTC" "$TMP/4.pdsl" --set vocab=256,layers=2,microbatches=2 -o "$TMP/4.plan" >"$TMP/out" 2>&1 || bad "compile 4.plan" "$TMP/out"

# processes N STEPS [LOST HOW]: starts them, each with what torchrun tells it, but for rank LOST, if HOW is absent; else that is lost
# so, by SOFTGPU_LOSE. Their numbers are in $pids, that of rank 0 first. What they say goes to files out.RANK and err.RANK.
turn=0
processes() {
	turn=$((turn + 1)) pids=
	export SOFTGPU_PROCESSES="$TMP/meet.$turn" MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + ($$ * 7 + turn) % 10000)) WORLD_SIZE=$1
	mkdir "$SOFTGPU_PROCESSES"
	rank=0
	while [ $rank -lt "$1" ]; do
		how=
		[ $rank != "${3:-none}" ] || how=$4
		[ "$how" = absent ] || SOFTGPU_LOSE=$how RANK=$rank LOCAL_RANK=$rank "$PTC" run "$TMP/$1.plan" --backend cuda --steps "$2" --data tests/data/text.txt --json \
			>"$TMP/out.$rank" 2>"$TMP/err.$rank" &
		[ "$how" = absent ] || pids="$pids $!"
		rank=$((rank + 1))
	done
	unset SOFTGPU_PROCESSES MASTER_ADDR MASTER_PORT WORLD_SIZE
}

# all_end SECONDS STATUS: all of $pids but $dead end within so many seconds, and so.
all_end() {
	good=true left=$(($1 * 10)) status=
	for pid in $pids; do
		while kill -0 "$pid" 2>/dev/null && [ $left -gt 0 ]; do
			sleep .1
			left=$((left - 1))
		done
		kill -9 "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
		status="$status $?"
	done
	[ $left -gt 0 ] || status="$status, not within $1 s"
	[ "$status" = "$2" ]
}

for n in 2 4; do
	expect "$n threads" 0 timeout 120 "$PTC" run "$TMP/$n.plan" --backend cuda --steps 4 --data tests/data/text.txt --json || continue
	cp "$TMP/out" "$TMP/threads"
	processes $n 4
	zeros=$(printf ' 0%.0s' $(seq $n))
	if all_end 120 "$zeros" && ! grep -q . "$TMP"/err.[0-9] && [ "$(jq -c 'select(.loss) | [.step, .loss, .grad_norm]' "$TMP/out.0")" = \
		"$(jq -c 'select(.loss) | [.step, .loss, .grad_norm]' "$TMP/threads")" ] && [ "$(jq -s '[.[] | select(.loss)] | length' "$TMP/out.0")" = 4 ]; then
		ok "$n processes train as threads do"
	else
		{
			echo "status$status"
			cat "$TMP"/err.[0-9] "$TMP/threads" "$TMP/out.0"
		} >"$TMP/why"
		bad "$n processes train as threads do" "$TMP/why"
	fi
	if [ -z "$(ls "$TMP/meet.$turn")" ]; then ok "$n processes leave nothing"; else bad "$n processes leave something"; fi
done

# Each of the others says that rank 2 is gone, and stops within 10 s.
processes 4 100000
for i in $(seq 600); do
	[ "$(wc -l <"$TMP/out.0")" -gt 2 ] && break
	sleep .1
done
# shellcheck disable=SC2086
kill -9 $(echo $pids | cut -d' ' -f3)
if all_end 10 " 3 3 137 3" && [ "$(grep -l "rank 2 has left" "$TMP"/err.[0-9] | wc -l)" = 3 ]; then
	ok "who is killed is named"
else
	{
		echo "status$status"
		tail "$TMP"/err.[0-9]
	} >"$TMP/why"
	bad "who is killed is named" "$TMP/why"
fi

# lost NAME HOW RANK SECONDS STATUS SAYS: of four processes that rank is lost before there are communicators; all end in time, and all
# others say so.
lost() {
	rm -f "$TMP"/err.[0-9]
	processes 4 2 "$3" "$2"
	if all_end "$4" "$5" && [ "$(grep -l "$6" "$TMP"/err.[0-9] | wc -l)" -ge 3 ]; then
		ok "lost: $1"
	else
		{
			echo "status$status"
			tail "$TMP"/err.[0-9]
		} >"$TMP/why"
		bad "lost: $1" "$TMP/why"
	fi
}
lost "before it gives NCCL's name" id:kill 2 10 " 3 3 137 3" "rank 2 has left"
lost "rank 0, which others ask" id:kill 0 10 " 137 3 3 3" "rank 0 has left"
lost "as NCCL connects ranks" init:kill 3 10 " 3 3 3 137" "rank 3 has left"
lost "when NCCL has seen it" joined:kill 1 10 " 3 137 3 3" "rank 1 has left"
export PTC_CUDA_WAIT=3
lost "never started" absent 2 10 " 3 3 3" "3 of 4 ranks have come in 3 s; not: 2"
lost "rank 0 never started" absent 0 10 " 3 3 3" "rank 0 can't be reached at port"
lost "it stands still" id:hang 2 10 " 3 3 3 3" "has not connected\|have not come: .*2"
unset PTC_CUDA_WAIT

# A launch in the second step, from its graph, stands still for 90 s: named after 8 s of silence.
stall='rank 1: stalled: [a-z_]* \(or what follows it, [0-9]* instructions, \)*has not ended for [0-9]* s, and'
SOFTGPU_STALL=1:200:90 expect "a GPU that stands still" 3 timeout 60 "$PTC" run "$TMP/2.plan" --backend cuda --steps 4 --data tests/data/text.txt &&
	if grep -q "$stall \(it waits for its GPU\|rank 0 waits\)" "$TMP/err"; then ok "a GPU that stands still"; else bad "a GPU that stands still" "$TMP/err"; fi
export SOFTGPU_STALL=1:200:90
processes 2 4
unset SOFTGPU_STALL
if all_end 60 " 3 3" && grep -q "rank 0: the run ends: $stall it waits for its GPU" "$TMP/err.0" && grep -q "$stall it waits for its GPU" "$TMP/err.1"; then
	ok "a process whose GPU stands still"
else
	{
		echo "status$status"
		cat "$TMP"/err.[0-9]
	} >"$TMP/why"
	bad "a process whose GPU stands still" "$TMP/why"
fi
