#!/bin/sh
# The page of `ptc explain --html`, in a browser without a screen: no error, no text over another, nothing cut off, all
# parts there; an item marks its line and a line its items; keys zoom and choose. The page checks itself when its address ends in #check.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
big="examples/llama.pdsl --plan big --set batch=2048,embed=16384,layers=126,group=16,ff=53248 --mesh pp=16,dp=128,tp=8"

# page NAME ARGS...: it is one file below 1 MB that asks for nothing else.
page() {
	name=$1
	shift
	expect "$name" 0 "$PTC" explain "$@" --html "$TMP/$name.html" || return 1
	if [ "$(wc -c <"$TMP/$name.html")" -gt 1000000 ]; then
		bad "$name: below 1 MB"
	elif grep -oE '(src|href)="[^"]*"|url\([^)]*\)|https?://[^ "]*' "$TMP/$name.html" | grep -vE '^href="data:,"|^http://www.w3.org/2000/svg$' >"$TMP/why"; then
		bad "$name: asks for nothing" "$TMP/why"
	else
		ok "$name: one small file"
	fi
}

# look NAME WIDTH COLOURS JQ: the page's own checks find nothing, and the condition is true of what it counts.
look() {
	title="$1, $2 px, $3"
	[ -n "$browser" ] || { skip "$title" "there is no chromium"; return; }
	timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$TMP/profile" --window-size="$2,900" \
		--enable-logging=stderr --virtual-time-budget=4000 --dump-dom "file://$TMP/$1.html#check,$3" >"$TMP/dom" 2>"$TMP/log"
	sed -n 's/.*<pre id="checked">\(.*\)<\/pre>.*/\1/p' "$TMP/dom" >"$TMP/found"
	grep 'CONSOLE' "$TMP/log" >>"$TMP/found"
	if jq -e ".bad == [] and .width == $2 and .dark == $([ "$3" = dark ] && echo true || echo false) and ($4)" "$TMP/found" >/dev/null 2>&1; then
		ok "$title"
	else
		bad "$title" "$TMP/found"
	fi
}

# shellcheck disable=SC2086
page big $big && for colours in light dark; do
	for width in 1400 700; do
		look big $width $colours '.stages == 16 and .bars >= 80 and .dots > 4 and .rows == 14 and .lines > 40 and .labels > 30 and .focus > 60'
	done
done
page mini examples/gpt-mini.pdsl && for width in 1400 700; do
	look mini $width light '.stages == 1 and .bars >= 5 and .dots > 4 and .rows == 14 and .lines > 40'
done
# The page says of ops what the report says of the step.
expect "ops of the page" 0 "$PTC" explain examples/gpt-mini.pdsl --plan one --json --html "$TMP/sum.html" &&
	sed -n 's/.*id="data">\(.*\)<\/script>.*/\1/p' "$TMP/sum.html" >"$TMP/data" &&
	if jq -e --argjson said "$(jq .time "$TMP/out")" '(.ops | map(.seconds) | add) as $all | (.summary.step - $said.step_s | fabs) < 1e-5 * $said.step_s
		and ($all + $said.kinds.host - $said.step_s | fabs) < 2e-3 * $said.step_s' "$TMP/data" >"$TMP/why" 2>&1; then ok "ops of the page"; else
		bad "ops of the page" "$TMP/why"; fi
page alone examples/gpt-mini.pdsl --plan one && look alone 1000 dark '.stages == 1 and .rows == 0 and .streams == 1'
# Copies from and to the host have rows of their own below an action.
page offload examples/gpt-mini.pdsl --add 'optimizer -> host' && look offload 700 light '.streams == 4'
page interleaved tests/explain/gpt.pdsl --plan interleaved && look interleaved 1400 light '.stages == 4'
page wide examples/llama.pdsl --plan big --mesh pp=64,dp=2,tp=8 --set layers=126,microbatches=64 && look wide 700 light '.stages == 64'
# A plan whose model is not at hand; a model whose text is full of what a page must not take for its own.
cp examples/gpt-mini.pdsl examples/lib.pdsl "$TMP"
(cd "$TMP" && "$PTC" gpt-mini.pdsl -o far.plan 2>/dev/null && rm gpt-mini.pdsl)
page far "$TMP/far.plan" && look far 700 light '.lines == 0'
{ echo '# </script><script>throw 1</script><!-- "quotes" \ @DATA@ &amp;'; cat examples/gpt-mini.pdsl; } >"$TMP/odd.pdsl"
page odd "$TMP/odd.pdsl" && look odd 1400 light '.stages == 1 and .lines > 40'
expect "a folder that is not there" 3 "$PTC" explain examples/gpt-mini.pdsl --html "$TMP/none/x.html" && ok "a folder that is not there"
finish
