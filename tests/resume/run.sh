#!/bin/sh
# A run that is stopped and gone on with ends in the same bits as one that was not; on another mesh, as near as rounding.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
TEXT=$PWD/tests/data/text.txt

trains() { # NAME STEPS MORE...: what it says of each step lies in $TMP/lines
	name=$1 steps=$2
	shift 2
	expect "$name" 0 timeout 120 "$PTC" run --data "$TEXT" --steps "$steps" --json "$@" || return 1
	jq -c 'select(.step) | [.step, .loss, .grad_norm]' "$TMP/out" >"$TMP/lines"
}

same() { # NAME FILE FILE
	if cmp "$2" "$3" >"$TMP/why" 2>&1; then ok "$1"; else bad "$1" "$TMP/why"; fi
}

near() { # NAME FILE FILE: losses within 1 in 2,000
	if paste "$2" "$3" | tr -d '[]' | tr '\t' ',' | awk -F, '
		function off(a, b) { return a > b ? a - b : b - a }
		NF != 6 || $1 != $4 || off($2, $5) > 5e-4 * $2 { bad = 1 } END { exit bad || !NR }'; then ok "$1"; else
		paste "$2" "$3" >"$TMP/why"; bad "$1" "$TMP/why"; fi
}

# NAME "LAYOUT" "OTHER LAYOUT" MODEL MORE...: seven steps, against three and four more
goes_on() {
	name=$1 here=$2 there=$3
	shift 3
	# shellcheck disable=SC2086
	trains "$name: seven" 7 "$@" $here --checkpoint "$TMP/seven" && tail -n 4 "$TMP/lines" >"$TMP/want" &&
		trains "$name: three" 3 "$@" $here --checkpoint "$TMP/three" &&
		trains "$name: four more" 7 "$@" $here --resume "$TMP/three" --checkpoint "$TMP/more" || return
	same "$name: the same bits" "$TMP/seven" "$TMP/more"
	same "$name: the same losses" "$TMP/want" "$TMP/lines"
	# shellcheck disable=SC2086
	trains "$name: on $there" 7 "$@" $there --resume "$TMP/three" && near "$name: on $there" "$TMP/want" "$TMP/lines"
}

gpt="tests/equiv/gpt.pdsl --set vocab=256"
# shellcheck disable=SC2086
goes_on "ZeRO" "--plan all --mesh dp=2,tp=2" "--plan sp --mesh dp=1" $gpt
# shellcheck disable=SC2086
goes_on "bf16" "--plan all --mesh dp=2" "--plan zero --mesh dp=2,tp=2" $gpt --set precision=bf16
for how in "adafactor(lr = 1e-2)" "sgd(lr = 1e-1, momentum = 0.9)" "adamw(lr = cosine(1e-2, warmup = 2, steps = 10))"; do
	sed "s|OPTIMIZER|minimize loss with $how|; s#\.\./\.\./examples/#$PWD/examples/#" tests/resume/state.pdsl >"$TMP/state.pdsl"
	goes_on "$how" "--mesh pp=2,tp=2" "--mesh dp=2" "$TMP/state.pdsl"
done
goes_on "in host memory" "--mesh dp=2 --add optimizer->host" "--mesh tp=2" "$TMP/state.pdsl"

# -- a run that is stopped --

rm -f "$TMP/ck"
mkfifo "$TMP/pipe"
# shellcheck disable=SC2086
timeout 120 "$PTC" run $gpt --plan all --mesh dp=2 --data "$TEXT" --steps 100000000 --checkpoint "$TMP/ck" --resume "$TMP/ck" >"$TMP/pipe" 2>"$TMP/err" &
pid=$!
{ head -n 5 >/dev/null; kill -INT "$(pgrep -P $pid)"; cat >"$TMP/rest"; } <"$TMP/pipe"
if wait $pid; then ok "interrupted"; else bad "interrupted" "$TMP/err"; fi
last=$(sed -n 's/^ptc: interrupted after step //p' "$TMP/err")
# shellcheck disable=SC2086
if [ -n "$last" ] && trains "from where it was interrupted" $((last + 3)) $gpt --plan all --mesh dp=2 --resume "$TMP/ck"; then
	tail -n 2 "$TMP/lines" >"$TMP/lines2"
	trains "without an interruption" $((last + 3)) $gpt --plan all --mesh dp=2 && tail -n 2 "$TMP/lines" >"$TMP/want" &&
		same "from where it was interrupted" "$TMP/want" "$TMP/lines2"
fi

# Every second step, so that a run which fails in the fourth has left what it had after two.
sed "s|OPTIMIZER|fail = where(step == 3, 0.0, 1.0)\nminimize loss / fail with sgd(lr = 1e-2)|; s#\.\./\.\./examples/#$PWD/examples/#" tests/resume/state.pdsl |
	sed 's|^minimize loss / fail|worse = loss / fail\nminimize worse|' >"$TMP/fails.pdsl"
if expect "a step that fails" 1 "$PTC" run "$TMP/fails.pdsl" --data "$TEXT" --steps 9 --checkpoint "$TMP/two" --checkpoint-every 2 &&
	trains "goes on before it" 3 "$TMP/fails.pdsl" --resume "$TMP/two"; then
	if [ "$(cut -d, -f1 "$TMP/lines")" = "[2" ]; then ok "a step that fails leaves the checkpoint before it"; else
		bad "a step that fails leaves the checkpoint before it" "$TMP/lines"; fi
fi

# -- what is refused, and what is not --

refused() { # NAME STATUS TEXT MORE...
	name=$1 status=$2 text=$3
	shift 3
	# shellcheck disable=SC2086
	expect "$name" "$status" "$PTC" run $gpt --plan zero --mesh dp=2 --data "$TEXT" "$@" || return
	if [ -z "$text" ] || grep -qF -- "$text" "$TMP/err"; then ok "$name"; else bad "$name" "$TMP/err"; fi
}

trains "params" 2 $gpt --mesh dp=2 --plan zero --save "$TMP/params" --checkpoint "$TMP/begun"
refused "params alone are no checkpoint" 1 "--init $TMP/params" --steps 3 --resume "$TMP/params"
refused "a file that is not there" 1 "No such file" --steps 3 --resume "$TMP/nothing"
refused "of another model" 1 "is of another model: it has" --steps 9 --resume "$TMP/two"
refused "another seed" 1 "is of a run with seed 0" --steps 9 --resume "$TMP/begun" --seed 1
refused "both" 2 "--resume and --init" --steps 9 --resume "$TMP/begun" --init "$TMP/params"
refused "no file" 2 "--checkpoint FILE" --steps 9 --checkpoint-every 3
refused "nothing is left" 0 "2 steps done, and --steps 2 counts from the first of all" --steps 2 --resume "$TMP/begun"
refused "the params of a checkpoint" 0 "" --steps 1 --init "$TMP/begun"
head -c 30000 "$TMP/begun" >"$TMP/cut"
refused "a truncated one" 1 "truncated or damaged" --steps 9 --resume "$TMP/cut"
sed 's/"ptc steps":"2"/"ptc steps":"x"/' "$TMP/begun" >"$TMP/text"
refused "steps that are no number" 1 "is no checkpoint of a run" --steps 9 --resume "$TMP/text"
refused "a full disk" 3 "can't be written" --steps 1 --checkpoint /dev/full
for every in 0 2; do
	rm -f "$TMP/kept"
	refused "a full disk, every $every" 3 "can't be written" --steps 5 --checkpoint /dev/full --checkpoint-every $every --save "$TMP/kept" &&
		if [ -s "$TMP/kept" ]; then ok "a full disk, every $every: the params are saved"; else bad "a full disk, every $every: the params are saved"; fi
done
refused "a folder that is not there" 3 "can't be written" --steps 1 --checkpoint "$TMP/no/file"
finish
