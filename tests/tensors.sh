# Sourced: reads safetensors files of fp32 with od, and compares what a step changed with figures.

# tensors FILE: a line for each tensor, its name and its elements.
tensors() {
	head=$(od -An -tu8 -N8 "$1" | tr -d ' ')
	tail -c +9 "$1" | head -c "$head" | jq -r 'to_entries[] | select(.key != "__metadata__")
		| "\(.key) \(.value.data_offsets[0] / 4) \(.value.data_offsets[1] / 4)"' >"$TMP/list"
	tail -c +$((head + 9)) "$1" | od -An -v -tf4 -w4 >"$TMP/numbers"
	awk 'NR == FNR { x[n++] = $1; next }
		{ s = $1; for (i = $2; i < $3; i++) s = s " " x[i]; print s }' "$TMP/numbers" "$TMP/list"
}

# moved BEFORE AFTER: by how much each element became smaller, in the form of `tensors`.
moved() {
	tensors "$1" >"$TMP/before"
	tensors "$2" >"$TMP/after"
	awk 'NR == FNR { for (i = 2; i <= NF; i++) x[$1, i] = $i; next }
		{ s = $1; for (i = 2; i <= NF; i++) s = s " " sprintf("%.9g", x[$1, i] - $i); print s }' "$TMP/before" "$TMP/after"
}
