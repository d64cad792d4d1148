#!/bin/sh
# The command line: exit statuses, messages, and what is printed for programs.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

says() { # NAME STATUS TEXT COMMAND...: TEXT is on stdout or stderr
	name=$1 status=$2 text=$3
	shift 3
	expect "$name" "$status" "$@" || return
	if cat "$TMP/out" "$TMP/err" | grep -qF -e "$text"; then
		ok "$name"
	else
		{
			echo "expected: $text"
			cat "$TMP/out" "$TMP/err"
		} >"$TMP/why"
		bad "$name" "$TMP/why"
	fi
}

mini=tests/equiv/mlp.pdsl
gpt=tests/equiv/gpt.pdsl
says "no arguments" 2 "ptc model.pdsl -o plan" "$PTC"
says "help" 0 "ptc model.pdsl -o plan" "$PTC" --help
says "help of a command" 0 "--log-every" "$PTC" run --help
says "version" 0 "ptc $(sed -n 's/.*PTC_VERSION "\(.*\)"/\1/p' frontend/version.h)" "$PTC" --version
for what in "cpu   oneDNN " "cuda  libcuda.so.1" "no MPI" "built by "; do says "version: $what" 0 "$what" "$PTC" --version; done
says "--version of a command" 0 "ptc 0." "$PTC" run --version
says "--version, misspelt" 2 "did you mean '--version'" "$PTC" --versoin
says "help names --version" 0 "ptc --version" "$PTC" --help
says "unknown command" 2 "did you mean 'check'" "$PTC" chekc
says "unknown option" 2 "did you mean '--mesh'" "$PTC" check $mini --mehs dp=2
says "no file" 2 "no file given" "$PTC" explain
says "two files" 2 "one file is enough" "$PTC" show $mini $gpt
says "no value" 2 "a value is missing" "$PTC" $mini -o
says "a word for a count" 2 "k, M, G, T, P or E behind it: 300e9, 300G, 15T" "$PTC" explain $mini --tokens x
says "a negative count" 2 "--tokens can't be '-5'" "$PTC" explain $mini --tokens -5
says "a word for a whole number" 2 "it takes a whole number, 0 or more" "$PTC" run $mini --steps ten
says "a word for a number" 2 "--steps can't be 'ten'" "$PTC" run $mini --steps ten
says "steps are needed" 2 "how many steps" "$PTC" run $mini
says "a missing file" 1 "No such file" "$PTC" show nowhere.pdsl
says "a missing plan" 1 "nowhere.plan" "$PTC" run nowhere.plan --steps 1
says "a folder" 1 "error" "$PTC" opt tests
says "check wants a model" 1 "is no model" "$PTC" check tests/data/text.txt
says "an unknown axis" 1 "axis" "$PTC" $mini --mesh zz=2 -o "$TMP/plan"
says "an unknown plan" 1 "plan" "$PTC" $mini --plan zz -o "$TMP/plan"
says "an unknown dim" 1 "zz" "$PTC" $mini --set zz=2 -o "$TMP/plan"
for order in gpipe 1f1b interleaved zb_h1 zb_v; do
	pipe="explain tests/explain/gpt.pdsl --plan $([ $order = gpipe ] && echo interleaved || echo gpipe) --mesh pp=2"
	says "--set pipeline=$order" 0 "pipeline    $order, 2 stages" "$PTC" $pipe --set pipeline=$order,microbatches=4
	says "--add pipeline $order" 0 "pipeline    $order, 2 stages" "$PTC" $pipe --set microbatches=4 --add "pipeline $order"
done
printf '0F0,0B0\n1F0,1B0\n' >"$TMP/one.csv"
# What can't be written is a failure of the machine, and is said, whatever prints: little or much, at the end or before.
"$PTC" $mini -o "$TMP/full.plan" 2>/dev/null
for args in "--help" "--version" "run --help" "check $mini --mesh dp=2" "verify $TMP/full.plan" "verify $TMP/full.plan --json" "fmt $mini" \
	"show $mini" "show tests/explain/gpt.pdsl --csv" "explain $mini" "explain $mini --json" "explain $mini --fit" \
	"explain $mini --plan ,zero" "explain $mini --plan ,zero --json" "opt $TMP/full.pir" "import tests/import/gpt2.json" \
	"run $gpt --set vocab=256 --steps 2 --data tests/data/text.txt" "run $gpt --set vocab=256 --steps 2 --data tests/data/text.txt --json"; do
	case $args in opt*) "$PTC" show $mini -o "$TMP/full.pir" 2>/dev/null ;; esac
	# shellcheck disable=SC2086
	"$PTC" $args >/dev/full 2>"$TMP/err"
	status=$?
	if [ $status = 3 ] && [ "$(grep -c 'ptc: error: stdout: ' "$TMP/err")" = 1 ]; then ok "ptc $args, to a full disk"; else
		echo "status $status" >>"$TMP/err"
		bad "ptc $args, to a full disk" "$TMP/err"
	fi
done
train="$PTC run $gpt --set vocab=256 --steps 2 --data tests/data/text.txt --save $TMP/kept"
for to in "--trace $TMP/trace /dev/full" "--trace /dev/full $TMP/log"; do
	rm -f "$TMP/kept"
	# shellcheck disable=SC2086
	$train ${to% *} >"${to##* }" 2>"$TMP/err"
	status=$?
	if [ $status = 3 ] && [ -s "$TMP/kept" ]; then ok "what was trained is saved, ${to% *} >${to##* }"; else
		echo "status $status" >>"$TMP/err"
		bad "what was trained is saved, ${to% *} >${to##* }" "$TMP/err"
	fi
done
says "a plan to a full disk" 3 "No space left" "$PTC" $mini -o /dev/full
says "calibrate to nowhere" 3 "can't be written" timeout 5 "$PTC" calibrate -o /nowhere/here.pdsl
says "an order of fewer microbatches" 1 "--set microbatches=1 gives" "$PTC" explain tests/explain/gpt.pdsl --mesh pp=2 --schedule "$TMP/one.csv"
says "ranks that no plan file may have" 1 "1048576 is the most" "$PTC" $mini --mesh dp=1048576,tp=2 -o "$TMP/plan"
expect "check of what does not compile" 1 "$PTC" check examples/gpt-mini.pdsl --add 'chunk nix, parts = 2' &&
	if [ -s "$TMP/out" ]; then bad "check of what does not compile" "$TMP/out"; else ok "check of what does not compile"; fi
says "too many ranks to check" 1 "ptc verify proves a plan of any size" timeout 20 "$PTC" check $mini --mesh dp=4096
# A long axis: dims keep how they lie on it, not their remainder. The note comes before what is said of the smaller model.
says "an axis of 97" 0 "checked with batch=4,seq=4,vocab=4," "$PTC" check examples/gpt-mini.pdsl --mesh dp=97 --evaluator
# Half of 12 is no multiple of the heads, though a third is: a step that does not compile ends the way of its dim.
says "a size that heads do not divide" 0 "checked with microbatches=4,batch=16,seq=4,vocab=5,embed=12,heads=4,layers=4" \
	"$PTC" check examples/gpt2.pdsl --evaluator
says "padded over an axis of 97" 0 "checked with h1=512,batch=159,pixels=4," "$PTC" check examples/mlp.pdsl --mesh dp=97 --set h1=512 --evaluator
"$PTC" check examples/gpt-mini.pdsl --mesh dp=97 --evaluator >"$TMP/both" 2>&1
if sed -n 1p "$TMP/both" | grep -q 'too big' && grep -q 'warning: ' "$TMP/both"; then ok "what it is checked with comes first"; else
	bad "what it is checked with comes first" "$TMP/both"; fi
"$PTC" check examples/t5.pdsl --mesh tp=97 >"$TMP/both" 2>&1 &
for i in $(seq 300); do ! grep -q 'against one rank' "$TMP/both" || break; sleep 0.2; done
kill $!
if grep -q "will take a while: src, dst, vocab, ff can't be shorter than their axes, and each of 97 ranks" "$TMP/both" &&
	grep -q 'is quick: --mesh tp=3$' "$TMP/both"; then ok "what can't be made smaller"; else bad "what can't be made smaller" "$TMP/both"; fi
# The order of a file is of so many microbatches, a plan of eight of which four are checked else.
"$PTC" show --csv tests/explain/gpt.pdsl -o "$TMP/order.csv"
says "a schedule keeps microbatches" 0 "checked with batch=8," "$PTC" check tests/explain/gpt.pdsl --schedule "$TMP/order.csv"
all=$(sed -n 's/^dim //p' tests/explain/gpt.pdsl | tr -d ' ')
says "nothing is left to shrink" 0 "checked with $all,microbatches=4" "$PTC" check tests/explain/gpt.pdsl --set "$all" --evaluator
# A model without minimize.
sed '/^minimize/d' $mini >"$TMP/bare.pdsl"
{ sed '/^minimize/,$d' $mini; echo 'metric cost = loss'; sed -n '/^plan {/,/^}/p' $mini; } >"$TMP/metric.pdsl"
{ sed '/^minimize/,$d' $mini; printf 'state seen[feat] ~ zeros\nupdate seen = seen + mean(x, batch)\n'; sed -n '/^plan {/,/^}/p' $mini; } >"$TMP/state.pdsl"
says "check of nothing" 1 "has no 'minimize' and no 'metric': no rank computes anything" "$PTC" check "$TMP/bare.pdsl" --mesh dp=2
says "check of a metric" 0 "nothing is trained, as there is no 'minimize': compared are metrics (cost), and" "$PTC" check "$TMP/metric.pdsl" --mesh dp=2
says "check of a metric: what it is" 0 "runtime    cost 2." "$PTC" check "$TMP/metric.pdsl" --mesh dp=2
says "check of a state" 0 "compared are states, and named values" "$PTC" check "$TMP/state.pdsl" --mesh dp=2
PTC_TEST_DROP=0 "$PTC" check "$TMP/metric.pdsl" --mesh dp=2 >"$TMP/out" 2>&1
if [ $? = 1 ] && grep -q '^not the same$' "$TMP/out"; then ok "a metric that differs"; else bad "a metric that differs" "$TMP/out"; fi
says "an unknown pass" 1 "zz" "$PTC" show $mini --after zz
says "no data" 1 "--data" "$PTC" run $gpt --steps 1
says "opt: an unknown pass" 1 "passes: simplify, " "$PTC" opt --pass=simplify,zz tests/golden/dead-op.pir
train="run $gpt --set vocab=256 --steps 1 --data"
says "data for an input that is not there" 1 "inputs that take data: tokens" "$PTC" $train foo=tests/data/text.txt
# Arrays of NumPy: a header of 118 bytes behind ten, then elements.
npy() { # FILE TYPE ORDER SHAPE
	printf '\223NUMPY\001\000\166\000' >"$1"
	printf '%-117s\n' "{'descr': '$2', 'fortran_order': $3, 'shape': $4, }" >>"$1"
	head -c 4096 /dev/zero >>"$1"
}
train_npy="run $mini --steps 1 --data"
npy "$TMP/y.npy" '<i4' False '(12,)'
npy "$TMP/x.npy" '<f4' False '(12, 10)'
says "npy" 0 "step 0" "$PTC" $train_npy "x=$TMP/x.npy,y=$TMP/y.npy"
npy "$TMP/x.npy" '<f4' False '(12, 5, 2)'
says "npy of another rank" 1 "x.npy' has the shape (12, 5, 2); the input x[batch, feat] takes (n, 10), n examples" "$PTC" $train_npy "x=$TMP/x.npy,y=$TMP/y.npy"
npy "$TMP/x.npy" '<f4' False '(12, 9)'
says "npy of another size" 1 "x.npy' has the shape (12, 9); the input x[batch, feat] takes (n, 10), n examples" "$PTC" $train_npy "x=$TMP/x.npy,y=$TMP/y.npy"
npy "$TMP/x.npy" '<c8' False '(12, 10)'
says "npy of a type that is not read" 1 "x.npy' for the input 'x' has elements of type '<c8', which are not read" "$PTC" $train_npy "x=$TMP/x.npy,y=$TMP/y.npy"
npy "$TMP/x.npy" '<f4' True '(12, 10)'
says "npy in Fortran's order" 1 "np.ascontiguousarray(x)" "$PTC" $train_npy "x=$TMP/x.npy,y=$TMP/y.npy"
npy "$TMP/x.npy" '<f4' False '(12, 10)'
npy "$TMP/y.npy" '<f4' False '(12,)' # 0.5, twelve times
head -c 128 "$TMP/y.npy" >"$TMP/half.npy"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '\000\000\000\077'; done >>"$TMP/half.npy"
says "npy of halves for labels" 1 "half.npy' has 0.5 at offset 1" "$PTC" $train_npy "x=$TMP/x.npy,y=$TMP/half.npy"
for to in save trace; do # before the first step, not after the last
	says "--$to to nowhere" 3 "'/nowhere/x' can't be written" "$PTC" $train tests/data/text.txt --$to /nowhere/x
	if [ -s "$TMP/out" ]; then bad "--$to to nowhere: no step" "$TMP/out"; else ok "--$to to nowhere: no step"; fi
	says "--$to into a folder" 3 "Is a directory" "$PTC" $train tests/data/text.txt --$to "$TMP"
done
echo old >"$TMP/old" && ln -sf old "$TMP/link"
says "--trace to a link, no step" 1 "no step was run" "$PTC" run $gpt --set vocab=256 --data tests/data/text.txt --steps 0 --trace "$TMP/link"
if [ "$(cat "$TMP/old")" = old ]; then ok "what was there stays"; else bad "what was there stays" "$TMP/old"; fi
says "dump after a pass" 0 "%0 = " "$PTC" $mini --dump-after partition -o "$TMP/plan"
says "what is written is proved" 0 " s, proved in " "$PTC" $mini -o "$TMP/plan"
says "verify" 0 "compiled in" "$PTC" $gpt --mesh dp=2,tp=2 --plan all --verify -o "$TMP/plan"
says "an unwritable plan" 3 "error" "$PTC" $mini -o /nowhere/plan

# verify
if expect "compile for verify" 0 "$PTC" $gpt -o "$TMP/v.plan" --mesh dp=2,tp=2; then
	says "verify a plan" 0 "safe: 4 ranks, 1 stage, " "$PTC" verify "$TMP/v.plan"
	sed 1d "$TMP/v.plan" >"$TMP/v.pir"
	says "verify what is no plan" 1 "is no plan file" "$PTC" verify "$TMP/v.pir"
fi
says "verify a model" 0 "safe: 1,024 ranks, 1 stage, " "$PTC" verify $gpt --set batch=1024 --mesh dp=1024
says "a repeat whose rows have their dims in another order" 0 "safe: 1 rank" "$PTC" verify tests/frontend/states.pdsl
says "it is run, too" 0 "the same" "$PTC" check tests/frontend/states.pdsl
if expect "verify --json" 0 "$PTC" verify $mini --mesh dp=2 --json; then
	if jq -e '.safe and .ranks == 2 and .reads > 0' "$TMP/out" >/dev/null 2>"$TMP/why"; then ok "verify --json"; else bad "verify --json" "$TMP/out"; fi
fi
# explain --json
if expect "explain --json" 0 "$PTC" explain $gpt --mesh dp=2,tp=2 --plan all --json; then
	if jq -e '.ranks == 4 and .params > 0 and .flops.model > 0 and .flops.model == .flops.causal
		and .memory.peak > 0 and (.comm | length) > 0 and all(.comm[]; .op and .axis and .count > 0 and .bytes >= 0 and .why)' \
		"$TMP/out" >/dev/null 2>"$TMP/why"; then ok "explain --json"; else bad "explain --json" "$TMP/out"; fi
fi
# run --json
if expect "run --json" 0 "$PTC" run $gpt --mesh dp=2,tp=2 --plan all --set vocab=256 --data tests/data/text.txt --steps 3 --json \
	--save "$TMP/p"; then
	if jq -es '(map(select(.step != null)) | length) == 3 and (.[-1].summary | .steps == 3 and (.peak_bytes | length) == 4
		and (.peak_bytes == .predicted_peak_bytes) and (.comm | length) == 4 and all(.comm[]; length > 0))' "$TMP/out" >/dev/null 2>"$TMP/why"
	then ok "run --json"; else bad "run --json" "$TMP/out"; fi
fi
# --save, --init: the same params again, and another layout goes on from them
args="run $gpt --set vocab=256 --data tests/data/text.txt --json"
# shellcheck disable=SC2086
if expect "save" 0 "$PTC" $args --mesh dp=2 --steps 0 --save "$TMP/a" &&
	expect "init" 0 "$PTC" $args --mesh tp=2 --steps 0 --init "$TMP/a" --save "$TMP/b"; then
	if cmp -s "$TMP/a" "$TMP/b"; then ok "--save, --init: the same bytes"; else bad "--save, --init: the same bytes"; fi
	head -c 100 "$TMP/a" >"$TMP/c"
	says "a short safetensors file" 1 "error" "$PTC" $args --steps 0 --init "$TMP/c"
fi

# Every reduction that is dropped on all ranks is found, with its line and why it was there.
n=0
while [ $n -lt 200 ]; do
	PTC_TEST_DROP=$n "$PTC" check --evaluator $gpt --mesh dp=2,tp=2 --plan all >"$TMP/out" 2>"$TMP/err" </dev/null
	status=$?
	! grep -q 'there is no such reduction' "$TMP/err" || break
	if [ $status = 1 ] && grep -q '\.pdsl:[0-9]*:[0-9]*: error: ' "$TMP/err" && grep -q 'note: made by' "$TMP/err"; then
		ok "dropped reduction $n"
	else
		bad "dropped reduction $n (status $status)" "$TMP/err"
	fi
	n=$((n + 1))
done
[ $n -gt 10 ] || bad "there are reductions to drop"
PTC_TEST_DROP=4
export PTC_TEST_DROP
says "dropped reduction, all of check" 1 "not the same" "$PTC" check $gpt --mesh dp=2,tp=2 --plan all
unset PTC_TEST_DROP

# --same-bits: what is computed in the same order, what is not, what can't be compared
same="$PTC check $gpt --mesh dp=2 --set batch=4,recompute=full"
# shellcheck disable=SC2086
if expect "--same-bits" 0 $same --same-bits recompute=none; then
	if grep -q '^same bits .* updates 0.0e+00$' "$TMP/out"; then ok "--same-bits"; else bad "--same-bits" "$TMP/out"; fi
fi
# shellcheck disable=SC2086
says "--same-bits: other bits" 1 "with the other settings, 1 ulps apart (bound 0;" $same --same-bits microbatches=2
# shellcheck disable=SC2086
says "--same-bits: other sizes" 1 "makes 'tokens' another tensor" $same --same-bits seq=4
# shellcheck disable=SC2086
says "--same-bits: not on the evaluator" 2 "--evaluator leaves it out" $same --evaluator --same-bits recompute=none
# shellcheck disable=SC2086
says "--same-bits: no such setting" 1 "no dim, constant or setting 'foo'" $same --same-bits foo=1

# --threads: what the runtime is told of cores; the compiler of kernels is a process that can say so.
printf '#!/bin/sh\necho "$PTC_THREADS" >>"%s/threads"\nexec cc "$@"\n' "$TMP" >"$TMP/cc"
chmod +x "$TMP/cc"
if CC="$TMP/cc -O0" PTC_CACHE="$TMP/threads-cache" PTC_THREADS=2 expect "--threads" 0 "$PTC" check $gpt --mesh dp=1 --threads 3; then
	if [ "$(sort -u "$TMP/threads")" = 3 ]; then ok "--threads"; else bad "--threads" "$TMP/threads"; fi
fi
says "check takes no steps" 2 "ptc check has no option '--steps'" "$PTC" check $gpt --steps 1
says "check takes no data" 2 "ptc check has no option '--data'" "$PTC" check $gpt --data tests/data/text.txt
finish
