#!/bin/sh
# The models of examples/: params at full size; packed on few lines they are the same models; at a
# small size (tests/models/NAME.pdsl) each trains and computes on any mesh what one rank computes.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
D=tests/models

# -- params at full size --

params() { # NAME COUNT OPTIONS...
	title="params of $1" model=examples/$1.pdsl count=$2
	shift 2
	expect "$title" 0 "$PTC" explain --json "$model" "$@" || return
	got=$(jq .params "$TMP/out")
	if [ "$got" = "$count" ]; then ok "$title"; else bad "$title: $got, not $count"; fi
}

params gpt2 124439808
params llama 8030261248
params llama 405853388800 --plan big --set batch=2048,embed=16384,layers=126,group=16,ff=53248
params mixtral 46702792704
params bert 109514298
params vit 86567656
params t5 222903552
params clip 149620737
params gemma2 9241705984

# The params of an IR file whose paths do not match a pattern.
count() {
	awk -v skip="$1" '
		/^dim / { split($2, d, "="); size[d[1]] = d[2] }
		/^buffer @".*" param / {
			split($0, q, "\"")
			if (skip != "" && q[2] ~ skip) next
			inside = $0; sub(/^[^[]*\[/, "", inside); sub(/\].*/, "", inside)
			n = split(inside, dims, ", "); k = 1
			for (i = 1; i <= n; i++) k *= size[dims[i]]
			total += k
		}
		END { printf "%.0f\n", total }' "$2"
}

# DeepSeek-V3 is counted without its prediction layer.
if expect "params of deepseek" 0 "$PTC" show --after=lower examples/deepseek.pdsl -o "$TMP/deepseek.pir"; then
	got=$(count 'mtp|^rms[.](hid|emb)[.]|^w[xe]$' "$TMP/deepseek.pir")
	if [ "$got" = 671026404352 ]; then ok "params of deepseek"; else bad "params of deepseek: $got"; fi
fi

# -- packed with ';', on few lines --

cp $D/packed/*.pdsl "$TMP"
buffers() { sed -n '/^dim /p; /^buffer /p' "$1" | sed 's/ ![0-9:]*$//' | sort; }
for f in $D/packed/*.pdsl; do
	model=$(basename "$f")
	[ "$model" != lib.pdsl ] || continue
	mesh=
	! grep -q '^plan' "$f" || mesh=--mesh=dp=1
	expect "packed $model" 0 "$PTC" show --after=lower $mesh "$TMP/$model" -o "$TMP/packed.pir" || continue
	expect "packed $model" 0 "$PTC" show --after=lower --mesh=dp=1 "examples/$model" -o "$TMP/open.pir" || continue
	buffers "$TMP/packed.pir" >"$TMP/packed"
	buffers "$TMP/open.pir" >"$TMP/open"
	if diff "$TMP/packed" "$TMP/open" >"$TMP/why"; then ok "packed $model"; else bad "packed $model" "$TMP/why"; fi
done

# -- small: three steps, and the plan against one rank --

# NAME ELEMENTS KIND: values that any token(2) input takes (t: uint16, b: bytes), or floats (f).
file() {
	case $3 in
	t) bytes='\0\0\001\0\001\0\0\0' each=2 end=bin ;;
	b) bytes='\0\001\001\001' each=1 end=raw ;;
	f) bytes='\0\0\200\077\0\0\0\277' each=4 end=bin ;;
	esac
	n=$(($2 * each))
	printf "$bytes%.0s" $(seq 1 $n) | head -c $n >"$TMP/$1.$end"
	data=$data${data:+,}$1=$TMP/$1.$end
}

small() { # NAME INPUT:ELEMENTS-OF-AN-EXAMPLE:KIND...
	title="model $1" model=$D/$1.pdsl data=
	shift
	set=$(sed -n 's/^# SET: //p' "$model")
	for input; do
		rest=${input#*:}
		file "${input%%:*}" $((${rest%:*} * 16)) "${rest#*:}"
	done
	for mesh in dp=2,tp=2 dp=1,tp=4 dp=3,tp=1; do
		expect "$title, $mesh" 0 timeout 120 "$PTC" check "$model" --plan small --set "$set" --mesh $mesh &&
			ok "$title, $mesh"
	done
	case $title in
	*mlp_bn* | *clip*) # a sum over the batch goes back into the model
		expect "$title, microbatches" 1 "$PTC" check "$model" --plan small --set "$set,microbatches=2" &&
			ok "$title, microbatches" ;;
	*) expect "$title, microbatches" 0 "$PTC" check --evaluator "$model" --plan small \
		--set "$set,microbatches=2" --mesh dp=2,tp=1 && ok "$title, microbatches" ;;
	esac
	expect "$title: three steps" 0 "$PTC" run "$model" --plan small --set "$set" --data "$data" --steps 3 --json || return
	if jq -es '[.[] | select(.step != null)] | length == 3 and all(.loss > 0 and .loss < 100)' "$TMP/out" >/dev/null
	then ok "$title: three steps"; else bad "$title: three steps" "$TMP/out"; fi
}

small gpt2 tokens:8:t
small llama tokens:8:t
small mixtral tokens:8:t
small deepseek tokens:8:t
small bert tokens:8:t segments:8:t real:8:b labels:8:t
small vit image:192:f label:1:t
small t5 tokens:6:t given:8:t answer:8:t
small mlp_bn image:12:f label:1:t
small clip image:192:f text:6:t
small gemma2 tokens:8:t
small lora tokens:8:t labels:8:t
small mup tokens:8:t

# -- the examples that rounding takes far, made smaller by check: a norm of short vectors, gradients that cancel each other --

# What rounds so is the same, and it is said; a fault a little larger than that is found in each phase, and in bf16, where
# rounding may be all there is, what differs by its size.
far="$PTC check examples/clip.pdsl --mesh dp=2"
while read -r title options; do
	# shellcheck disable=SC2086
	expect "rounding of $title" 0 timeout 120 "$PTC" check $options || continue
	if grep -q '^ *rounding alone takes [0-9]* further than the fixed bound, at most by ' "$TMP/out"; then
		ok "rounding of $title"
	else
		bad "rounding of $title" "$TMP/out"
	fi
done <<TABLE
clip examples/clip.pdsl --mesh dp=2
clip,fp32 examples/clip.pdsl --mesh dp=2 --set precision=fp32
clip,dp=4 examples/clip.pdsl --mesh dp=4
t5 examples/t5.pdsl --mesh dp=2,tp=2
sign $D/rounding/sign.pdsl
zero $D/rounding/zero.pdsl
TABLE
while read -r precision where off; do
	title="no rounding: $precision, $where $off"
	# shellcheck disable=SC2086
	PTC_TEST_OFF="$where $off" expect "$title" 1 timeout 120 $far --set precision=$precision || continue
	if grep -q "error: gradient '${off#* }' differs: .*element 0, step 0, $where)" "$TMP/err"; then ok "$title"; else bad "$title" "$TMP/err"; fi
done <<TABLE
fp32 evaluator 6e-7 tlayers.block.mha.bv:grad
fp32 runtime 6e-6 tlayers.block.mha.bv:grad
fp32 kernels 1e-5 tlayers.block.mha.bv:grad
bf16 evaluator 6e-7 tlayers.block.mha.bv:grad
bf16 runtime 0.05 tlayers.block.mha.bv:grad
bf16 runtime 0.02 norm.text.b:grad
bf16 kernels 0.06 tlayers.block.mha.bv:grad
TABLE
# A zero that is more than rounding.
expect "no zero" 1 env PTC_TEST_OFF="runtime 0.01 layers.att.bk:grad" "$PTC" check $D/rounding/zero.pdsl && ok "no zero"

# -- experts on an axis of their own: the plan of the example --

for mesh in dp=2,ep=2 dp=1,ep=4; do
	for model in mixtral deepseek; do
		set=$(sed -n 's/^# SET: //p' $D/$model.pdsl),precision=fp32,microbatches=1
		expect "experts of $model, $mesh" 0 timeout 120 "$PTC" check examples/$model.pdsl --set "$set" --mesh $mesh &&
			ok "experts of $model, $mesh"
	done
done

. $D/reference.sh
finish
