#!/bin/sh
# A step never sends more than what XLA's GSPMD inserts for the same model, mesh and shardings.
# tests/reference/data/gspmd.json holds GSPMD's figures, made by tests/reference/gspmd.py, and what
# is published; V=1 or TABLE=1 prints the table. Columns, in MB that a rank sends a step (f32):
#   compiled   XLA's CPU compiler, told the shardings that ptc's plan says
#   lowest     the least of all variants, told the shardings of all activations too, and with what
#              XLA's passes for accelerators would make of it; this is what ptc may not exceed
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
data=tests/reference/data/gspmd.json
[ -f "$data" ] || { skip gspmd "no $data"; finish; }

jq -r '.cases[] | "\(.name) \(.model) \(.plan) \(.mesh | to_entries | map("\(.key)=\(.value)") | join(",")) \(if .arrows.optimizer then 0.9 else 0 end)"' \
	"$data" >"$TMP/cases"
while read -r name model plan mesh momentum; do
	"$PTC" explain --json "tests/gspmd/$model.pdsl" --plan "$plan" --mesh "$mesh" --set "momentum=$momentum" \
		>"$TMP/out" 2>"$TMP/err" </dev/null
	got=$?
	if [ $got != 0 ]; then
		if grep -q 'not supported yet' "$TMP/err"; then
			skip "$name" "$(sed -n 's/.*error: //p' "$TMP/err" | head -1)"
		else
			bad "$name: exit status $got" "$TMP/err"
		fi
		echo 'null' >"$TMP/out"
	fi
	jq -r --arg name "$name" --slurpfile ptc "$TMP/out" '
		def mb: . / 1e4 | round | . / 100;
		def least(f): map(f) | min // 0;
		.cases[] | select(.name == $name) | . as $c | $ptc[0] as $p |
		(if $p then $p.comm | group_by(.axis) | map({ (.[0].axis): (map(.bytes) | add) }) | add else {} end) as $axis |
		([$axis[]] | add) as $total |
		(.runs | map(select(.backend == "cpu" and .anchors == "named")) | min_by(.compiled.total).compiled) as $compiled |
		(if $p and $p.params != .params then "bad the model has \($p.params) params, JAX has \(.params)"
		 elif $p == null then "none"
		 elif $total > .lowest.total then "bad ptc sends \($total) bytes, GSPMD \(.lowest.total)"
		 else "ok" end),
		([$axis, $compiled.axis, .lowest.axis, .formula.axis | keys[]] | unique[] |
		 [$name, ., ($axis[.] // 0), ($compiled.axis[.] // 0), ($c.lowest.axis[.] // 0), ($c.formula.axis[.] // 0)] |
		 [.[0:2][], (.[2:][] | mb)] | map(tostring) | join(" ")),
		([$name, "all", $total // 0, $compiled.total, .lowest.total, .formula.total] |
		 [.[0:2][], (.[2:][] | mb)] | map(tostring) | join(" "))
	' "$data" >"$TMP/rows" || { bad "$name: the table"; continue; }
	sed 1d "$TMP/rows" >>"$TMP/table"
	case $(head -1 "$TMP/rows") in
	ok) ok "$name" ;;
	bad*)
		{ head -1 "$TMP/rows" | cut -c5-; jq -r '.comm[] | "\(.bytes) \(.axis) \(.why)"' "$TMP/out" | sort -rn; } >"$TMP/why"
		bad "$name" "$TMP/why"
		;;
	esac
done <"$TMP/cases"

if [ -n "$V$TABLE" ]; then
	awk 'BEGIN { printf "%-15s %-9s %11s %11s %11s %11s\n", "MB a rank, step", "axis", "ptc", "compiled", "lowest", "published" }
		{ printf "%-15s %-9s %11.2f %11.2f %11.2f %11.2f%s\n", $2 == "all" ? $1 : "", $2, $3, $4, $5, $6,
			$2 == "all" && $3 > 0 ? sprintf("  %.3f", $3 / $5) : "" }' "$TMP/table"
fi
finish
