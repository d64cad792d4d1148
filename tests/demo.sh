#!/bin/sh
# make demo: compiles a small GPT for four ranks and trains it on the licence texts of this system.
cd "$(dirname "$0")/.." || exit 1
ptc=${BUILD:-build}/ptc
dir=build/demo
steps=${STEPS:-300}
mkdir -p $dir || exit 1

for f in /usr/share/common-licenses/*; do
	[ -f "$f" ] && [ ! -L "$f" ] && cat "$f"
done >$dir/licences.txt
[ -s $dir/licences.txt ] || cp tests/data/text.txt $dir/licences.txt

run() {
	echo "$ $*"
	"$@" || exit 1
	echo
}
run $ptc examples/gpt-mini.pdsl -o $dir/gpt-mini.plan
run $ptc explain $dir/gpt-mini.plan
start=$(date +%s)
run $ptc run $dir/gpt-mini.plan --data $dir/licences.txt --steps "$steps" --log-every 20 --save $dir/gpt-mini.safetensors
echo "trained in $(($(date +%s) - start)) s; the params are in $dir/gpt-mini.safetensors"
