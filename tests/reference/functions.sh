# Sourced by run.sh: values and gradients of every function equal PyTorch's, on one rank and on four.
# tests/reference/make_functions.py wrote the programs and the figures, and says how to read them.
# An element is right within 1e-4 of itself or of a hundredth of the largest of its tensor; in bf16 all
# of a tensor within BF16 of the largest. There the loss, a sum of many terms, says nothing, and int, floor
# and rank may fall on the other side of a whole number. bf16(x) rounds only where it is stored.
. tests/tensors.sh
F=tests/reference/functions
BF16=0.0234375 # six units

# compare NAME FIGURES SHARE FLOOR EXCEPT: of $TMP/moved and the loss in $TMP/out; a result for each function.
compare() {
	jq -r 'select(.step != null) | "loss \(.loss)"' "$TMP/out" | cat - "$TMP/moved" | awk -v share="$3" -v floor="$4" -v except=" $5 " -v bf16=$BF16 '
		function abs(x) { return x < 0 ? -x : x }
		function name(path) { sub(/^t_/, "", path); sub(/[.].*/, "", path); return path }
		NR == FNR { n[$1] = NF; for (i = 2; i <= NF; i++) got[$1, i] = $i; next }
		/^#/ || index(except, " " name($1) " ") { next }
		{
			most = 0
			limit = name($1) == "bf16" ? bf16 : share
			for (i = 2; i <= NF; i++) if (abs($i) > most) most = abs($i)
			all[name($1)] = 1
			if (n[$1] != NF) print "bad", name($1), $1 ": " n[$1] - 1 " elements, not " NF - 1
			for (i = 2; i <= NF && n[$1] == NF; i++) {
				near = abs($i) > floor * most ? abs($i) : floor * most
				if (got[$1, i] ~ /n/ || !(abs(got[$1, i] - $i) <= limit * near + 1e-6)) {
					print "bad", name($1), $1 "[" i - 2 "]: " got[$1, i] ", PyTorch " $i
					break
				}
			}
		}
		END { for (f in all) print "all", f }' - "$2" >"$TMP/result"
	sed -n 's/^all //p' "$TMP/result" | sort >"$TMP/names"
	while read -r fn; do
		grep "^bad $fn " "$TMP/result" | cut -d' ' -f3- >"$TMP/why"
		if [ -s "$TMP/why" ]; then bad "$1: $fn" "$TMP/why"; else ok "$1: $fn"; fi
	done <"$TMP/names"
}

for figures in "$F"/*.txt; do
	program=$(basename "$figures" .txt)
	args=$(sed -n 's/^# args: //p' "$figures")
	# shellcheck disable=SC2086
	expect "functions: $program" 0 "$PTC" $args --mesh dp=1 --steps 0 --save "$TMP/begin" || continue
	for options in "--mesh dp=1" "--mesh dp=2,tp=2" "--mesh dp=1 --set precision=bf16"; do
		name="functions: $program $options"
		# shellcheck disable=SC2086
		expect "$name" 0 timeout 120 "$PTC" $args $options --steps 1 --json --save "$TMP/end" || continue
		moved "$TMP/begin" "$TMP/end" >"$TMP/moved"
		case $options in
		*bf16*) compare "$name" "$figures" $BF16 1 "loss int floor rank rank_two" ;;
		*) compare "$name" "$figures" 1e-4 0.01 "$([ "$program" != pointwise ] || echo loss)" ;; # bf16(x) is in it
		esac
	done
done
