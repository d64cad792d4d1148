#!/bin/sh
# Makes the figures of tests/reference/data anew. Needs Python with torch, safetensors and numpy.
cd "$(dirname "$0")/../.." || exit 1
ptc=${PTC:-build/ptc}
text=tests/data/text.txt
out=tests/reference/data
init=$(mktemp) || exit 1
trap 'rm -f "$init"' EXIT

# NAME MODEL 'arguments of ptc run' 'arguments of make_reference.py'
make() {
	printf '%s\n%s\n' "$3" "dp=1 dp=2,tp=2" >$out/$1.args
	# shellcheck disable=SC2086
	$ptc run $3 --mesh dp=1 --steps 0 --data $text --save "$init" >/dev/null &&
		python3 tests/reference/make_reference.py "$2" "$init" $text $4 >$out/$1.json
}
make gpt-mini gpt "examples/gpt-mini.pdsl" \
	"--batch 16 --seq 128 --lr 2e-3 --warmup 20 --total 300 --final 2e-4"
make llama llama "tests/equiv/llama.pdsl --plan all --set batch=8,seq=32,vocab=256,embed=32,head=8,ff=64" \
	"--batch 8 --seq 32 --lr 1e-3 --warmup 2 --total 10"
