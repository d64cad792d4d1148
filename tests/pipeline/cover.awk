# Cases of the product of pipelines: model, stages, order, microbatches, other axes, recompute; one a line.
#
#   awk -v more=N -v seed=S -f cover.awk   few in which every pair of two settings occurs, and N others at random
#   awk -v all=1 -f cover.awk              all of them
#
# Greedy: a case begins with a pair that is missing and is filled up at random, the best of some tries.

function level(f, text) {
	n[f] = split(text, part, " ")
	for (i = 1; i <= n[f]; i++)
		name[f, i] = part[i]
}

# The same numbers in every awk.
function roll(k) {
	state = (state * 1103 + 12345) % 1048576
	return int(state / 1048576 * k) + 1
}

function show(   f, line) {
	for (f = 1; f <= F; f++)
		line = line (f > 1 ? " " : "") name[f, pick[f]]
	if (line in shown)
		return 0
	shown[line] = 1
	print line
	return 1
}

function gain(   f, g, sum) {
	for (f = 1; f <= F; f++)
		for (g = f + 1; g <= F; g++)
			sum += !((f, pick[f], g, pick[g]) in have)
	return sum
}

function cover(f, a, g, b,   try, k, got, most) {
	most = 0
	for (try = 0; try < 40; try++) {
		for (k = 1; k <= F; k++)
			pick[k] = k == f ? a : k == g ? b : roll(n[k])
		got = gain()
		if (got > most) {
			most = got
			for (k = 1; k <= F; k++)
				best[k] = pick[k]
		}
	}
	for (k = 1; k <= F; k++)
		pick[k] = best[k]
	for (f = 1; f <= F; f++)
		for (g = f + 1; g <= F; g++)
			have[f, pick[f], g, pick[g]] = 1
	show()
}

function product(f) {
	if (f > F) {
		show()
		return
	}
	for (pick[f] = 1; pick[f] <= n[f]; pick[f]++)
		product(f + 1)
}

BEGIN {
	F = 6
	level(1, "gpt llama mixtral t5 shared")
	level(2, "2 3 4")
	level(3, "gpipe 1f1b interleaved zb_h1 zb_v")
	level(4, "1 2 3 5 8")
	level(5, "none tp sp dp optimizer grads params")
	level(6, "none selective full auto")
	state = 1
	if (all) {
		product(1)
		exit
	}
	for (f = 1; f <= F; f++)
		for (g = f + 1; g <= F; g++)
			for (a = 1; a <= n[f]; a++)
				for (b = 1; b <= n[g]; b++)
					if (!((f, a, g, b) in have))
						cover(f, a, g, b)
	state = (seed * 7919 + 17) % 1048576
	for (i = 0; i < more; i += show())
		for (k = 1; k <= F; k++)
			pick[k] = roll(n[k])
}
