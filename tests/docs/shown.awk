# Runs the commands that a text shows: the lines "    $ COMMAND" of an indented block behind a line <!-- run -->, and
# prints the text with what they say now. Of an output that has a line "..." that stands for any lines, the
# others must be there, in this order; then it is left as it is.

function shown_as(said, n, want, m,    i, k, free) {
	for (i = k = 0; k < m; k++) {
		if (want[k] == "    ...") {
			free = 1
			continue
		}
		while (free && i < n && said[i] != want[k])
			i++
		if (i == n || said[i] != want[k])
			return 0
		i++
		free = 0
	}
	return i == n || free
}

function run(    n, k, line, said, now) {
	if (command == "")
		return
	gsub(/\\\n/, "", command)
	sub(/\n$/, "", command)
	now = "{ " command "; } 2>&1"
	for (n = 0; (now | getline line) > 0; n++)
		said[n] = line == "" ? "" : "    " line
	close(now)
	while (rows > 0 && want[rows - 1] == "") # between this and what follows
		rows--
	while (n > 0 && said[n - 1] == "")
		n--
	if (dots && shown_as(said, n, want, rows)) {
		for (k = 0; k < rows; k++)
			print want[k]
	} else {
		for (k = 0; k < n; k++)
			print said[k]
	}
	command = ""
	rows = dots = 0
}

function finish() {
	run()
	while (blank-- > 0)
		print ""
	blank = 0
	inside = 0
}

/^<!-- run -->$/ { waiting = 1; print; next }
waiting && /^    / { waiting = 0; inside = 1 }
waiting && $0 != "" { waiting = 0 }
!inside { print; next }
inside && !more && $0 != "" && !/^    / { finish(); print; next }
more { print; command = command substr($0, 5) "\n"; more = /\\$/; next }
/^    \$ / {
	if (command != "") {
		run()
		print ""
	}
	blank = 0
	print
	command = substr($0, 7) "\n"
	more = /\\$/
	next
}
{
	want[rows++] = $0
	dots += $0 == "    ..."
	blank = $0 == "" ? blank + 1 : 0
}
END { if (inside) finish() }
