#!/bin/sh
# The cases of a list of public bug reports that concern the compiler, by their number: A divisibility, B
# gradients, C normalisation of the loss, D norms and decay, F experts, G random numbers, J context
# parallelism, M sharding. `same` compares a plan with one rank by `ptc check`: named values, loss,
# norm, gradients, updated params.
#
# Not here, since they ask for something else:
#   R40 R53                     pipelines (R28 and R29 are here, R41 has the accumulation)
#   all of E, H and K           in tests/reports
#   R71's scope of a microbatch no such scope: a term is of a sequence or of the whole batch
#   R73 R115 R116               estimates of time
#   all of I                    in tests/formulas
#   R77, all of L               checkpoints and resuming
#   R80 R100 R110               in tests/recompute (R74's masks are here)
#   R113                        no search for plans
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
D=tests/cases

compare() { # NAME MODEL OPTIONS...
	title=$1 model=$2
	shift 2
	expect "$title: $*" 0 timeout 120 "$PTC" check "$model" "$@" && ok "$title: $*"
}

# On the evaluator; and also through compiled kernels on ranks.
same() {
	title=$1 model=$D/$2.pdsl
	shift 2
	compare "$title" "$model" --evaluator "$@"
}
both() {
	title=$1 model=$D/$2.pdsl
	shift 2
	compare "$title" "$model" "$@"
}

equal() { # NAME GOT WANTED
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		echo "got '$2', not '$3'" >"$TMP/why"
		bad "$1" "$TMP/why"
	fi
}

near() { # NAME GOT WANTED WITHIN
	if awk -v a="${2:-nan}" -v b="$3" -v e="$4" 'BEGIN { d = a - b; exit !(d <= e && -d <= e) }'; then
		ok "$1"
	else
		echo "got '$2', not '$3'" >"$TMP/why"
		bad "$1" "$TMP/why"
	fi
}

# Data: ints of 16 bits, bools, floats among 0, 1, 2, 4, given as words.
ints() {
	file=$1
	shift
	for i; do printf "\\$(printf %o $((i % 256)))\\$(printf %o $((i / 256)))"; done >"$TMP/$file.bin"
}
bools() {
	file=$1
	shift
	for i; do printf "\\$i"; done >"$TMP/$file.raw"
}
floats() {
	file=$1
	shift
	for i; do
		case $i in
		0) printf '\0\0\0\0' ;;
		1) printf '\0\0\200\077' ;;
		2) printf '\0\0\0\100' ;;
		4) printf '\0\0\200\100' ;;
		esac
	done >"$TMP/$file.bin"
}
many() { seq -s ' ' "$2" | sed "s/[0-9][0-9]*/$1/g"; } # VALUE TIMES

train() { # NAME STEPS MODEL DATA OPTIONS...: its params in $TMP/new, what it reports in $TMP/out
	title=$1 steps=$2 model=$D/$3.pdsl from=$4
	shift 4
	expect "$title: $*" 0 "$PTC" run "$model" --data "$from" --steps "$steps" --json --save "$TMP/new" "$@"
}

reported() { jq -r "select(.step == ${2:-0}) | .$1" "$TMP/out"; }

# param FILE NAME FORMAT: the values, in one line.
param() {
	head=$(od -An -tu8 -N8 "$1" | tr -d ' ')
	at=$(tail -c +9 "$1" | head -c "$head" | jq -r ".[\"$2\"].data_offsets | \"\(.[0]) \(.[1])\"")
	od -An -v -tf4 -j $((8 + head + ${at% *})) -N $((${at#* } - ${at% *})) "$1" |
		awk -v f="${3:-%g}" '{ for (i = 1; i <= NF; i++) printf(f " ", $i) }' | sed 's/-\(0\.*0* \)/\1/g; s/ $//'
}

partition() { # NAME MODEL OPTIONS...: the partitioned IR in $TMP/ir
	title=$1 model=$D/$2.pdsl
	shift 2
	expect "$title" 0 "$PTC" show --after=partition "$model" -o "$TMP/ir" "$@"
}

# How many collectives a step has whose reason matches.
collectives() { # NAME PATTERN MODEL OPTIONS...: what is sent, before it is put in buckets
	title=$1 pattern=$2 model=$D/$3.pdsl
	shift 3
	expect "$title" 0 "$PTC" show "$model" --after=partition "$@" || return
	sed -n 's/.* why="\([^"]*\)".*/\1/p' "$TMP/out" | grep -cE "$pattern"
}

ints zeros $(many 0 4096)
ints text $(seq 0 16)
floats ones $(many 1 1024)

# -- A: sizes that do not divide --

both "R01 fewer kv heads than tp" m0 --mesh tp=4
if partition "R01 each kv head on two ranks" m0 --mesh tp=4; then
	equal "R01 each kv head on two ranks" "$(grep -c '^buffer @"layers.wk" param f32\[layers, embed, kv@tp/0, head\]' "$TMP/ir")" 1
	# wk of a layer is 16 floats, 64 bytes: 4 * (4 * 16 + 3 * 32 + 2 * 8) + 2 * 24 + 8 floats in all; the last three fill lines of 64 bytes
	expect "R01 params" 0 "$PTC" explain --json $D/m0.pdsl --mesh tp=4 &&
		equal "R01 a rank's params" "$(jq '.memory.stages[0].params' "$TMP/out")" 3136
fi
same "R02 four kv heads on eight ranks" m0 --mesh tp=8 --set kv=4,group=2,head=128,embed=16,layers=1
same "R04 28 heads, 7 kv heads, Ulysses" m0 --plan ulysses --mesh cp=2 --set kv=7,group=4,layers=1
if partition "R04 16 heads of 4 a rank" m0 --plan ulysses --mesh cp=2 --set kv=7,group=4,layers=1; then
	equal "R04 16 heads of 4 a rank" "$(sed -n 's/.*: f32\(\[.*\]\) "layers\.\([qk]\)" .*/\2\1/p' "$TMP/ir" | grep kv@cp | sort -u | tr '\n' ' ')" \
		"k[batch, ctx, kv@cp, head] q[batch, seq, kv@cp, group, head] "
fi
both "R05 13 heads on tp 4" m0 --mesh tp=4 --set kv=13,group=1,layers=1
expect "R05 shards of 4" 0 "$PTC" explain $D/m0.pdsl --mesh tp=4 --set kv=13,group=1 &&
	equal "R05 shards of 4" "$(grep -c "'kv' is padded from 13 to 16 " "$TMP/err")" 1
same "R05 52 heads on tp 8" m0 --mesh tp=8 --set kv=52,group=1,layers=1
same "R05 40 heads on tp 3" m0 --mesh tp=3 --set kv=40,group=1,layers=1
both "R07 Ulysses beyond the kv heads" m0 --plan ulysses --mesh cp=4
same "R07 Ulysses with tp" m0 --plan ulysses --mesh cp=2,tp=2
same "R07 one kv head" m0 --plan ulysses --mesh cp=4 --set kv=1,group=4

for mesh in tp=1 tp=2; do
	train "R08 five tokens on tp 2" 3 head "tokens=$TMP/zeros.bin" --mesh $mesh --set vocab=5 || continue
	near "R08 loss of zero logits, $mesh" "$(reported loss)" 1.609438 1e-6
	reported loss 2 >"$TMP/third.$mesh"
	param "$TMP/new" wout %.5f >"$TMP/wout.$mesh"
done
near "R08 loss of the third step" "$(cat "$TMP/third.tp=2")" "$(cat "$TMP/third.tp=1")" 2e-6
equal "R08 updated head" "$(cat "$TMP/wout.tp=2")" "$(cat "$TMP/wout.tp=1")"
both "R08 five tokens on tp 2" head --mesh tp=2 --set vocab=5

same "R10 merged dims of uneven shards" uneven --plan rows --mesh tp=4 --set n=256
same "R10 the merged dim split evenly" uneven --plan merged --mesh tp=4 --set n=256
floats one30 $(many 1 30)
for mesh in tp=1 tp=3 tp=4; do
	train "R11 five on three ranks" 1 uneven "x=$TMP/one30.bin" --mesh $mesh --set batch=6 || continue
	equal "R11 five in order, $mesh" "$(param "$TMP/new" w %.1f)" "-0.1 0.9 1.9 2.9 3.9"
done
same "R11 five on three ranks" uneven --mesh tp=3
same "R13 six on cp 2 and tp 2" m0 --plan both --mesh cp=2,tp=2 --set seq=6
expect "R13 six padded to eight" 0 "$PTC" explain $D/m0.pdsl --plan both --mesh cp=2,tp=2 --set seq=6 &&
	equal "R13 six padded to eight" "$(grep -c "'seq' is padded from 6 to 8 " "$TMP/err")" 1
both "R14 three tokens on tp 4" head --mesh tp=4 --set vocab=3
same "R14 three tokens on tp 4" m0 --mesh tp=4 --set vocab=3
if train "R14 save" 1 head "tokens=$TMP/zeros.bin" --mesh tp=4 --set vocab=3; then
	param "$TMP/new" wout %.6f >"$TMP/saved"
	cp "$TMP/new" "$TMP/old"
	train "R14 load" 0 head "tokens=$TMP/zeros.bin" --mesh tp=4 --set vocab=3 --init "$TMP/old" &&
		equal "R14 saved and loaded" "$(param "$TMP/new" wout %.6f)" "$(cat "$TMP/saved")"
fi
for z in 1 2 3; do
	both "R16 params of no elements, ZeRO-$z" empty --plan zero$z --mesh dp=2,tp=2
	same "R16 no ff, ZeRO-$z" m0 --plan zero$z --mesh dp=2,tp=2 --set ff=0
done
both "R16 dims of 0" empty --mesh dp=2,tp=3
for dim in layers kv head embed seq; do same "R16 no $dim" m0 --mesh dp=2,tp=2 --set $dim=0; done
for dim in ff layers slot embed; do same "R16 no $dim" moe --plan zero3 --mesh ep=2,tp=2 --set $dim=0; done
for dim in inner tap half pick slot; do same "R16 no $dim" ops --mesh dp=2 --set $dim=0; done
floats ones96 $(many 1 96)
for mesh in dp=1,tp=1 dp=2,tp=2 dp=4,tp=1; do
	train "R16 run" 1 empty "x=$TMP/ones96.bin" --plan zero3 --mesh $mesh || continue
	equal "R16 sums are 0 and the largest is -inf, $mesh" \
		"$(jq -c 'select(.step == 0) | .metrics | [.empty, .below, .same]' "$TMP/out")" "[0,6,0]"
	equal "R16 nothing of size 0 is sent, $mesh" "$(jq -r '.summary.comm // [] | flatten | map(select(.bytes == 0)) | length' "$TMP/out" | tail -1)" 0
	cp "$TMP/new" "$TMP/old"
	train "R16 load" 0 empty "x=$TMP/ones96.bin" --mesh dp=2,tp=2 --init "$TMP/old" &&
		equal "R16 saved and loaded, $mesh" "$(sha256sum <"$TMP/new")" "$(sha256sum <"$TMP/old")"
done
expect "R16 bytes" 0 "$PTC" explain --json $D/empty.pdsl --plan zero3 --mesh dp=2,tp=2 &&
	equal "R16 params without elements take no room" "$(jq '.params' "$TMP/out")" 42

# -- B: gradients --

same "R17 final norm under sequence parallelism" m0 --plan sp --mesh tp=2
equal "R17 its reduction is in the plan" "$(collectives "R17" 'gradient of rms.g over tp' m0 --plan sp --mesh tp=2)" 1
same "R19 row-parallel linear, reduce-scattered" linear --mesh tp=4
same "R19 row-parallel linear, all-reduced" linear --plan whole --mesh tp=4
equal "R19 there is a reduce-scatter" "$(collectives "R19" 'reduce_scatter of [yt] ' linear --mesh tp=4)" 1
for ep in 1 2; do
	for before in 0 1; do
		same "R20 router, tp 2" moe --mesh ep=$ep,tp=2 --set before=$before
		same "R20 router, experts split by tp" moe --plan etp --mesh ep=$ep,tp=2 --set before=$before
	done
done
same "R20 router, sequence parallelism" moe --plan sp --mesh ep=2,tp=2
both "R22 eight experts, ep 2" moe --mesh ep=2

# All tokens to expert 0: expert 1 has no token, and decays by 1 - 0.1 * 0.1 all the same.
sed 's/with sgd.*/with adamw(lr = 0.1, weight_decay = 0.1)/' $D/moe.pdsl >"$TMP/decay.pdsl"
train "R23 initial" 0 moe "tokens=$TMP/text.bin" --set force=1000,pick=1,batch=2,vocab=32
param "$TMP/new" layers.wd %.9g | tr ' ' '\n' | sed -n '49,96p' >"$TMP/before"
for layout in "--mesh ep=1" "--mesh ep=4" "--mesh dp=2,tp=2 --plan etp" "--mesh ep=2,dp=2 --plan zero3"; do
	name="R23 an idle expert decays, $layout"
	# shellcheck disable=SC2086
	expect "$name" 0 "$PTC" run "$TMP/decay.pdsl" --data "tokens=$TMP/text.bin" --steps 1 --save "$TMP/new" \
		--set force=1000,pick=1,batch=2,vocab=32 $layout || continue
	param "$TMP/new" layers.wd %.9g | tr ' ' '\n' | sed -n '49,96p' | paste "$TMP/before" - |
		awk '{ r = $2 / $1 - 0.99; if (r > 1e-6 || r < -1e-6) bad++ } END { print NR - bad }' >"$TMP/got"
	equal "$name" "$(cat "$TMP/got")" 48
done

for mesh in dp=1 dp=2 ep=2 dp=2,ep=2 ep=4 dp=4,ep=2 dp=4,ep=4; do
	same "R25 expert gradients" moe --mesh $mesh
	same "R26 the same with params -> dp, ep" moe --plan zero3 --mesh $mesh
done
both "R26 experts, ZeRO-3 and tp" moe --plan zero3 --mesh dp=2,ep=2,tp=2

floats pair 1 1
for how in "pp=2,dp=2" "pp=2,dp=2 --plan zero" "pp=2 --plan v --set layers=4"; do
	set -- $how
	mesh=$1
	shift
	both "R28 a scalar tied over stages" tied --mesh "$mesh" "$@"
	train "R28 its gradient is 8: $how" 1 tied "x=$TMP/pair.bin" --mesh "$mesh" "$@" &&
		equal "R28 its gradient is 8: $how" "$(param "$TMP/new" w)" -7
done
sed 's/, wout\[[^]]*\]//; s/@ wout/@ wte/' $D/m0.pdsl >"$TMP/tied.pdsl"
sed 's/^plan {/plan stages {\n    mesh pp = 1\n    layers -> pp\n    microbatches = 2\n    pipeline zb_v\n}\n&/' "$TMP/tied.pdsl" >"$TMP/stages.pdsl"
compare "R29 tied, both copies on one stage" "$TMP/stages.pdsl" --plan stages --mesh pp=2 --set layers=4,batch=4
sed 's/pipeline zb_v/pipeline 1f1b/' "$TMP/stages.pdsl" >"$TMP/apart.pdsl"
compare "R29 tied, copies on two stages" "$TMP/apart.pdsl" --plan stages --mesh pp=4 --set layers=4,batch=4
compare "R31 tied, ZeRO-0" "$TMP/tied.pdsl" --evaluator --mesh dp=2,tp=2
for z in 1 2 3; do compare "R31 tied, ZeRO-$z" "$TMP/tied.pdsl" --evaluator --plan zero$z --mesh dp=2,tp=2; done

both "R32 embedding over vocab, tokens over dp" m0 --plan vocab --mesh dp=2,tp=2 --set layers=1
if partition "R32 the verifier" m0 --plan vocab --mesh dp=2,tp=2; then
	sed '/why="all_reduce of the gradient of wte/s/axes=(dp)/axes=(tp)/' "$TMP/ir" >"$TMP/wrong.pir"
	expect "R32 the verifier refuses the wrong axis" 1 "$PTC" opt --pass=fuse --verify "$TMP/wrong.pir" -o /dev/null &&
		equal "R32 the verifier refuses the wrong axis" "$(grep -c "error: invalid IR: all_reduce .* over tp it does not make" "$TMP/err")" 1
fi
PTC_TEST_DROP=6 expect "R32 a lost reduction is found" 1 "$PTC" check --evaluator $D/m0.pdsl --plan vocab --mesh dp=2,tp=2 &&
	ok "R32 a lost reduction is found"
same "R34 gathered and split again" m0 --plan back --mesh tp=2
same "R34 gathered and split again" m0 --plan back --mesh dp=2,tp=3
equal "R35 one reduction over cp for each gradient" "$(collectives "R35" 'the gradient of [a-z.]* over cp' m0 --mesh cp=2)" 12
same "R35 a partial sum, transposed" linear --mesh tp=2

# -- C: what the loss is divided by --

# The first sequence has losses of 1, the second of 4; 5 and 1 of their tokens count.
floats want $(many 1 5) $(many 4 5)
bools real 1 1 1 1 1 1 0 0 0 0
bools none 0 0 0 0 0 0 0 0 0 0
bools half 1 1 1 1 1 0 0 0 0 0
for split in dp=1 dp=2 cp=2 dp=2,cp=2 microbatches=2; do
	case $split in
	micro*) how="--set $split" ;;
	*) how="--mesh $split" ;;
	esac
	name="R37 R38 tokens 5 and 1, $split"
	data=want=$TMP/want.bin,other=$TMP/none.raw
	# shellcheck disable=SC2086
	train "$name" 1 loss "$data,real=$TMP/real.raw" $how || continue
	near "$name: loss" "$(reported loss)" 1.5 1e-6
	near "$name: gradient" "$(param "$TMP/new" lift %.9g)" 0.690380 1e-5
	# shellcheck disable=SC2086
	train "R38 a part without tokens, $split" 1 loss "$data,real=$TMP/half.raw" $how &&
		near "R38 a part without tokens, $split" "$(reported loss)" 1 1e-6
done
train "R38 no token at all" 1 loss "$data,real=$TMP/none.raw" --mesh dp=2 &&
	equal "R38 no token at all" "$(reported loss) $(param "$TMP/new" lift)" "0 0"

for split in "" "--mesh dp=2"; do
	# shellcheck disable=SC2086
	train "R41 four microbatches $split" 1 norm "x=$TMP/ones.bin" --set microbatches=4,whole=1 $split &&
		equal "R41 four microbatches $split" "$(param "$TMP/new" b)" "-1"
done

floats four 4 4 4 4 4 4 4 4
bools one 0 0 1 0 0 0 0 0
bools none8 0 0 0 0 0 0 0 0
for cp in 1 2 4; do
	train "R43 one label" 1 loss "want=$TMP/four.bin,real=$TMP/one.raw,other=$TMP/none8.raw" \
		--set batch=1,seq=8 --mesh cp=$cp &&
		equal "R43 one label, cp $cp" "$(param "$TMP/new" shift %.4f)" "0.0000 0.0000 0.9817 0.0000 0.0000 0.0000 0.0000 0.0000"
done

# (1 + 1 + 2) / 3 of the first term; 4 of the second, whose one token lies where the first has none.
floats terms 1 1 2 4 1 1 4 2
bools main 1 1 1 0 0 0 0 0
bools aux 0 0 0 0 0 0 1 0
for mesh in dp=1 dp=2 dp=4 dp=2,cp=2; do
	train "R44 two terms" 1 loss "want=$TMP/terms.bin,real=$TMP/main.raw,other=$TMP/aux.raw" \
		--set batch=4,seq=2,second=1 --mesh $mesh &&
		near "R44 two terms, $mesh" "$(reported loss)" 5.333333 2e-6
done
same "R44 two terms" loss --set batch=4,second=1 --mesh dp=4

# Labels 1 to 8 and 9 to 16, times their places 1 to 8; documents end after the third token, the eighth, the last.
ints docs 0 0 0 1 1 1 1 1 2 2 2 2 2 2 2 2 3
for mesh in dp=1 dp=2 cp=2 cp=4 dp=2,cp=3; do
	train "R46 labels" 1 labels "tokens=$TMP/text.bin,doc=$TMP/docs.bin" --mesh $mesh &&
		equal "R46 labels, $mesh" "$(jq -c 'select(.step == 0) | .metrics | [.plain, .packed, .ends]' "$TMP/out")" "[696,495,3]"
done

ints wide $(seq 0 1021 65000)
for mesh in tp=1 tp=2 dp=2; do
	train "R47 bf16" 1 head "tokens=$TMP/wide.bin" --plan bf16 --mesh $mesh --set vocab=65536,embed=2 &&
		near "R47 65536 zero logits in bf16, $mesh" "$(reported loss)" 11.0903549 1e-5
done

# -- D: norms, decay --

for mesh in dp=1 tp=2 dp=2,tp=2; do
	train "R49 norm" 1 norm "x=$TMP/ones.bin" --mesh $mesh &&
		near "R49 norm of 3, 4 split and 5 whole, $mesh" "$(reported grad_norm)" 7.0710678 1e-5
done
for mesh in dp=1 dp=8 dp=3; do
	train "R50 norm" 1 norm "x=$TMP/ones.bin" --plan zero3 --mesh $mesh --set n=8,slope=7,rise=0,whole=14,second=1 &&
		near "R50 norm of sharded and replicated params, $mesh" "$(reported grad_norm)" 28 1e-4
done
while read -r how; do
	# shellcheck disable=SC2086
	train "R50 each param once" 1 norms "x=$TMP/ones.bin" --mesh $how &&
		near "R50 each param once, $how" "$(reported grad_norm)" 14.035669 1e-5
done <<MESHES
dp=1
dp=2
dp=8
tp=2
tp=3
tp=8
ep=2
ep=4
ep=8
dp=2,ep=2,tp=2
dp=2,ep=4,tp=2 --set microbatches=1
dp=2,ep=2,tp=2 --set microbatches=2
dp=2,ep=2,tp=3 --plan zero1
dp=4,tp=2 --plan zero2 --set microbatches=2
dp=2,ep=2,tp=2 --plan zero2
dp=3,ep=2,tp=2 --plan zero3
dp=8 --plan zero3
dp=2,ep=2,tp=2 --plan nested
dp=3,ep=2,tp=2 --plan nested
MESHES
same "R50 each param once" norms --plan zero3 --mesh dp=2,ep=2,tp=2
same "R52 norm, experts over ep and tp" moe --plan etp --mesh ep=2,tp=2
floats zero24 $(many 0 24)
for z in 1 2 3; do
	train "R55 gains" 1 decay "x=$TMP/zero24.bin" --plan zero$z --mesh dp=4 &&
		equal "R55 no decay of gains, ZeRO-$z" "$(param "$TMP/new" g %.9g) $(param "$TMP/new" b %.9g) $(param "$TMP/new" w %.4f)" \
			"$(many 1 12) $(many 0.9500 6)"
done

# -- F: experts --

for tp in 1 2 4; do same "R70 balance loss, tp $tp" moe --plan sp --mesh tp=$tp --set balance=0.01; done
for m in 1 2 4; do same "R71 balance of a sequence" moe --set balance=0.01,microbatches=$m; done
same "R71 balance of a sequence" moe --set balance=0.01,batch=8,microbatches=2 --mesh dp=2,ep=2
sed 's/gate), seq, pick)/gate), batch, seq, pick)/; s/mean(trust, seq)/mean(trust, batch, seq)/' $D/moe.pdsl >"$TMP/global.pdsl"
compare "R71 balance of the whole batch" "$TMP/global.pdsl" --evaluator --mesh dp=2,ep=2 --set balance=0.01
expect "R71 balance of the whole batch, microbatches" 1 "$PTC" check --evaluator "$TMP/global.pdsl" --set balance=0.01,microbatches=2 &&
	equal "R71 balance of the whole batch, microbatches" "$(grep -c "error: 'microbatches = 2' splits 'batch'" "$TMP/err")" 1

# -- G: random numbers --

# -1 where the mask kept the weight, 1 where it did not.
while read -r how; do
	# shellcheck disable=SC2086
	train "R76 masks" 1 mask "x=$TMP/ones.bin" --mesh $how || continue
	sha256sum <"$TMP/new"
done <<MESHES >"$TMP/all"
dp=1
dp=2
dp=4
cp=2
cp=4
tp=2
tp=4
dp=2,cp=2,tp=2
dp=3,tp=3
dp=2,tp=3,cp=2 --plan nested
dp=2,tp=2,cp=3 --plan turned
dp=4,tp=3 --plan turned
cp=2 --plan zigzag
dp=2,cp=4,tp=2 --plan zigzag
MESHES
equal "R76 one mask for all layouts" "$(sort "$TMP/all" | uniq -c | awk '{ print $1 }')" 14
ints rows 0 1 2 3
while read -r how; do
	# shellcheck disable=SC2086
	train "R76 masks of rows" 1 masks "row=$TMP/rows.bin" --mesh $how || continue
	sha256sum <"$TMP/new"
done <<MESHES >"$TMP/all"
dp=1
dp=2 --set microbatches=2
dp=1 --set microbatches=4
dp=2,tp=3 --set microbatches=2
cp=4,tp=2 --set microbatches=2
dp=2,cp=2,tp=2 --plan nested --set microbatches=2
dp=3,cp=2,tp=2 --plan nested
MESHES
equal "R76 one mask for layers and microbatches" "$(sort "$TMP/all" | uniq -c | awk '{ print $1 }')" 7
train "R76 masks of rows" 1 masks "row=$TMP/rows.bin" --mesh dp=2,tp=3 --set microbatches=2 &&
	equal "R76 layers have different masks" \
		"$(param "$TMP/new" layers.w | awk '{ for (i = 1; i <= 120; i++) n += $i != $(i + 120); print NF, (n > 30 && n < 90) }')" "240 1"
if train "R76 masks" 1 mask "x=$TMP/ones.bin" --mesh dp=2; then
	param "$TMP/new" w >"$TMP/mask"
	equal "R76 two shards have different masks" \
		"$(awk '{ for (i = 1; i <= 128; i++) n += $i != $(i + 128); print (n > 32 && n < 96) }' "$TMP/mask")" 1
	equal "R76 half is kept" "$(awk '{ for (i = 1; i <= NF; i++) n += $i < 0; print NF, (n > 96 && n < 160) }' "$TMP/mask")" "256 1"
fi
sha256sum <"$TMP/new" >"$TMP/none"
for how in none selective full; do
	sed "s/^    batch -> dp/&\n    recompute $how/" $D/mask.pdsl >"$TMP/recompute.pdsl"
	expect "R74 recompute $how" 0 "$PTC" run "$TMP/recompute.pdsl" --data "x=$TMP/ones.bin" --steps 1 --save "$TMP/new" --mesh dp=2 &&
		equal "R74 recompute $how" "$(sha256sum <"$TMP/new")" "$(cat "$TMP/none")"
done

# 20 meshes of up to 16 ranks, by a fixed random sequence, in three plans.
r=1 n=0
while [ $n -lt 20 ]; do
	r=$(((r * 1103515245 + 12345) % 2147483648))
	a=$((r / 65536 % 4 + 1)) b=$((r / 262144 % 4 + 1)) c=$((r / 1048576 % 4 + 1))
	[ $((a * b * c)) -le 16 ] || continue
	n=$((n + 1))
	case $((n % 3)) in
	0) plan= ;;
	1) plan=--plan=cols ;;
	2) plan=--plan=mixed ;;
	esac
	# shellcheck disable=SC2086
	train "R79 initial params" 0 init "x=$TMP/ones.bin" --mesh dp=$a,ep=$b,tp=$c $plan && sha256sum <"$TMP/new"
done | sort | uniq -c | awk '{ print $1 }' >"$TMP/hashes"
equal "R79 one hash for 20 meshes" "$(cat "$TMP/hashes")" 20
train "R79 initial params" 0 init "x=$TMP/ones.bin" && cp "$TMP/new" "$TMP/first" &&
	train "R79 initial params" 0 init "x=$TMP/ones.bin" --mesh dp=2,ep=3,tp=2 --plan order &&
	equal "R79 the same in zigzag order" "$(sha256sum <"$TMP/new")" "$(sha256sum <"$TMP/first")"
train "R79 params of another seed" 0 init "x=$TMP/ones.bin" --seed 9 && cp "$TMP/new" "$TMP/first" &&
	train "R79 loaded" 0 init "x=$TMP/ones.bin" --init "$TMP/first" --mesh ep=2,tp=3 --plan order &&
	equal "R79 loaded in zigzag order" "$(sha256sum <"$TMP/new")" "$(sha256sum <"$TMP/first")"
train "R79 initial params" 0 init "x=$TMP/ones.bin" --mesh ep=5 &&
	equal "R79 shards differ" "$(param "$TMP/new" b | tr ' ' '\n' | sort | uniq -d | wc -l)" 0

# -- J: context parallelism --

both "R94 ring, contiguous" m0 --plan ring --mesh cp=4
same "R94 gathered keys" m0 --mesh cp=4
same "R94 split keys" m0 --plan split --mesh cp=4
for plan in ring zigzag; do
	expect "R94 imbalance" 0 "$PTC" explain --json $D/m0.pdsl --plan $plan --mesh cp=4 &&
		near "R94 imbalance, $plan" "$(jq .imbalance "$TMP/out")" $([ $plan = ring ] && echo 1.667 || echo 1) 0.001
done
for mesh in cp=2 cp=4 dp=2,cp=2,tp=2; do both "R94 zigzag" m0 --plan zigzag --mesh $mesh; done
both "R94 zigzag, all that looks at an index" order --mesh cp=3,dp=2
both "R94 zigzag, experts, convolution, scatter" ops --plan zigzag --mesh cp=2
same "R94 zigzag, all that looks at an index" order --mesh cp=2,tp=3
same "R94 zigzag of nothing" m0 --plan zigzag --mesh cp=2 --set seq=0
same "R95 window 3 and full, documents of 4 and 8" m0 --mesh cp=2 --set seq=12,reach=3,cut=4
both "R95 window 3 and full, zigzag" m0 --plan zigzag --mesh cp=3 --set seq=12,reach=3,cut=4
same "R95 window 3 and full, ring" m0 --plan ring --mesh cp=4 --set seq=12,reach=3,cut=4
same "R95 window 3 and full, Ulysses" m0 --plan ulysses --mesh cp=2,dp=2 --set seq=12,reach=3,cut=4

# -- M: sharding --

equal "R109 nothing is sent for the batch" "$(collectives "R109" '.' ops --mesh dp=4)" \
	"$(collectives "R109" 'the gradient of [a-z]* over dp|of loss over dp' ops --mesh dp=4)"
same "R109 each kind of op" ops --mesh dp=4
equal "R112 one gather for a product" "$(collectives "R112" 'all_gather' product --mesh tp=4)" 1
same "R112 one gather for a product" product --mesh tp=4
finish
