# What the forward repeat of an IR text keeps of an iteration: "op TYPE", or "arg TYPE", a line each.
/^forward:/ { on = 1 }
/^backward:/ { on = 0 }
!on { next }
/^    args / {
	n = split(substr($0, 10), a, ", %")
	for (i = 1; i <= n; i++) { split(a[i], p, ": "); sub(/^%/, "", p[1]); made["%" p[1]] = "arg " type(p[2]) }
}
/^    %/ {
	split($0, half, " = ")
	sub(/^ */, "", half[1])
	n = split(half[1], r, ", ")
	split(half[2], w, " ")
	rest = half[2]
	sub(/^[^:]* : /, "", rest)
	m = split(rest, t, /, (f32|bf16|int|bool)\[/)
	for (i = 1; i <= n; i++) made[r[i]] = w[1] (n > 1 ? " " i : "") " " type((i > 1 ? "[" : "") t[i])
}
/^    yield / {
	sub(/^    yield /, "")
	n = split($0, y, ", ")
	for (i = 2; i <= n; i++) print made[y[i]]
}
function type(s) { sub(/^[a-z0-9]*\[/, "[", s); sub(/\].*/, "]", s); return s }
