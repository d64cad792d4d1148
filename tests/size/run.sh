#!/bin/sh
# The plan of GPT-2 does not grow with layers or ranks, nor does what the compiler does for it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

compiled() { # NAME OPTIONS...: $TMP/NAME.plan, $TMP/NAME.pir
	case_name=$1
	shift
	expect "compile $case_name" 0 "$PTC" examples/gpt2.pdsl -o "$TMP/$case_name.plan" "$@" || return 1
	expect "show $case_name" 0 "$PTC" show "$TMP/$case_name.plan" -o "$TMP/$case_name.pir"
}

same_size() { # A B PERCENT
	for kind in plan pir; do
		a=$(wc -c <"$TMP/$1.$kind") b=$(wc -c <"$TMP/$2.$kind")
		if [ $((a * 100)) -le $((b * (100 + $3))) ] && [ $((b * 100)) -le $((a * (100 + $3))) ]; then
			ok "$kind of $1 and $2: $a, $b bytes"
		else
			bad "$kind of $1 and $2: $a, $b bytes"
		fi
	done
}

same_ops() { # A B: collectives apart
	a=$(grep ' = ' "$TMP/$1.pir" | grep -cvE ' = (all_|reduce_|wait)') b=$(grep ' = ' "$TMP/$2.pir" | grep -cvE ' = (all_|reduce_|wait)')
	if [ "$a" = "$b" ]; then ok "$a ops for $1 and $2"; else bad "ops of $1 and $2: $a, $b"; fi
}

compiled layers-12-ranks-8 --mesh dp=2,tp=4 --set batch=16384,layers=12 &&
	compiled layers-96-ranks-8 --mesh dp=2,tp=4 --set batch=16384,layers=96 &&
	compiled layers-96-ranks-64 --mesh dp=16,tp=4 --set batch=16384,layers=96 &&
	compiled layers-12-ranks-4096 --mesh dp=1024,tp=4 --set batch=16384,layers=12 &&
	compiled layers-96-ranks-4096 --mesh dp=1024,tp=4 --set batch=16384,layers=96 || finish
# Of larger gradients fewer fit in one collective, and more of them are worth a start and a wait: there are a few
# more of these, but no more of anything else.
same_size layers-12-ranks-8 layers-96-ranks-8 3
same_ops layers-12-ranks-8 layers-96-ranks-8
same_size layers-12-ranks-4096 layers-96-ranks-4096 3
same_ops layers-12-ranks-4096 layers-96-ranks-4096
# More ranks: other collectives may be cheaper for a gradient, but no more of anything else. On more than one
# node a reduction is in parts, one for each link.
same_size layers-96-ranks-64 layers-96-ranks-4096 3
same_size layers-96-ranks-8 layers-96-ranks-4096 20
finish
