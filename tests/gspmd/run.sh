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

jq -r '.cases[] | "\(.name) \(.model) \(.plan) \(.mesh | to_entries |
	map({ key: (.key | rtrimstr("0") | rtrimstr("1")), value }) | reduce .[] as $a ({}; .[$a.key] = (.[$a.key] // 1) * $a.value) |
	to_entries | map("\(.key)=\(.value)") | join(",")) \(if .arrows.optimizer then 0.9 else 0 end) \(.dims.batch)"' \
	"$data" >"$TMP/cases"
while read -r name model plan mesh momentum batch; do
	"$PTC" explain --json "tests/gspmd/$model.pdsl" --plan "$plan" --mesh "$mesh" --set "momentum=$momentum,batch=$batch" \
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
		([$name, "all", $total // 0, $compiled.total, .lowest.total, .formula.total, .formula.regather // 0] |
		 [.[0:2][], (.[2:][] | mb)] | map(tostring) | join(" "))
	' "$data" >"$TMP/rows" || { bad "$name: the table"; continue; }
	sed 1d "$TMP/rows" >>"$TMP/table"
	case $(head -1 "$TMP/rows") in
	ok) ok "$name" ;;
	bad*)
		{
			head -1 "$TMP/rows" | cut -c5-
			jq -r --arg name "$name" --slurpfile ptc "$TMP/out" '.cases[] | select(.name == $name) |
				(.lowest as $l | .runs | map(select(.ops and .backend == $l.backend))[0].ops) as $g |
				($ptc[0].comm | map(.op |= gsub("_"; "-"))) as $p |
				[$p[], $g[] | { op, axis }] | unique[] | . as $k |
				def of(l): [l[] | select(.op == $k.op and .axis == $k.axis) | .bytes] | add // 0;
				"\(.op) \(.axis): ptc \(of($p)), GSPMD \(of($g))"' "$data"
			jq -r '.comm[] | "\(.bytes) \(.axis) \(.why)"' "$TMP/out" | sort -rn | head -8
		} >"$TMP/why" 2>&1
		bad "$name" "$TMP/why"
		;;
	esac
done <"$TMP/cases"

if [ -n "$V$TABLE" ]; then
	awk 'BEGIN { printf "%-18s %-9s %11s %11s %11s %11s  ptc/lowest\n", "MB a rank, a step", "axis", "ptc", "compiled", "lowest", "published" }
		{ printf "%-18s %-9s %11.2f %11.2f %11.2f %11.2f%s\n", $2 == "all" ? $1 : "", $2, $3, $4, $5, $6,
			($2 == "all" && $3 + 0 > 0) ? sprintf("  %.4f%s", $3 / $5, $7 + 0 ? "; published, regathered " $7 : "") : "" }' "$TMP/table"
fi
finish
