/* tests/fuzz/front.c - for libFuzzer: any bytes through scanner, parser, checks, lowering and fmt.
 *
 * Whatever the text is, an error is reported or there is a module that verifies, prints and reads back
 * the same. What parses is formatted, and formatting that changes nothing. Lines at the top that
 * begin with "#set " and "#mesh " stand for --set and --mesh. Includes are read from examples/. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/ast.h"
#include "frontend/fmt.h"
#include "frontend/frontend.h"
#include "ir/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
size_t LLVMFuzzerMutate(uint8_t *data, size_t len, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t most, unsigned seed);

static void wrong(const char *what, const char *text, const char *more)
{
	fprintf(stderr, "WRONG: %s\n%s\n%s\n", what, text ? text : "", more ? more : "");
	abort();
}

/* Takes a line "#set a=1" off the text. */
static const char *option(struct arena *mem, const char *word, const char **text, size_t *len)
{
	size_t n = strlen(word);

	if (*len < n || memcmp(*text, word, n) != 0)
		return NULL;
	const char *nl = memchr(*text, '\n', *len);
	size_t line = nl ? (size_t)(nl - *text) : *len;
	const char *value = arena_strndup(mem, *text + n, line - n);
	*text += line;
	*len -= line;
	if (*len)
		++*text, --*len;
	return value;
}

static void formats(struct arena *mem, const char *text, size_t len)
{
	struct sources src = { 0 };
	struct diag d;
	size_t n = 0, again = 0;

	diag_init(&d, mem, &src, NULL);
	ast_parse(mem, &src, &d, "fuzz", text, len);
	bool parses = !d.errors;
	d.errors = 0;
	char *once = fmt_text(mem, &src, &d, "fuzz", text, len, &n);
	if (!once && (parses || !d.errors))
		wrong("fmt refuses what parses", d.log.s, NULL);
	if (!once)
		return;
	char *twice = fmt_text(mem, &src, &d, "once", once, n, &again);
	if (!twice)
		wrong("fmt does not read what it wrote", once, d.log.s);
	if (n != again || memcmp(once, twice, n) != 0)
		wrong("fmt changes what it wrote", once, twice);
}

static void prints(struct arena *mem, struct module *m, struct diag *d)
{
	size_t n, again;
	char *once = module_print(m, mem, &n);
	struct module *copy = module_parse(mem, "fuzz.ir", once, n, d);

	if (!copy)
		wrong("the module does not read back", d->log.s, once);
	char *twice = module_print(copy, mem, &again);
	if (n != again || memcmp(once, twice, n) != 0)
		wrong("the module reads back as another", once, twice);
}

static void compiles(struct arena *mem, const char *text, size_t len, bool whole)
{
	struct front_options opt = { 0 };
	struct sources src = { 0 };
	struct diag d;
	const char *set = option(mem, "#set ", &text, &len);

	opt.mesh = option(mem, "#mesh ", &text, &len);
	opt.sets = &set;
	opt.nsets = set != NULL;
	diag_init(&d, mem, &src, NULL);
	struct module *m = front_compile_text(mem, &src, &d, "examples/fuzz.pdsl", text, len, &opt);
	if (!m && !d.errors)
		wrong("nothing came out, and nothing was said", NULL, NULL);
	if (m && d.errors)
		wrong("a module in spite of errors", d.log.s, NULL);
	if (!m)
		return;
	if (!verify(m, &d))
		wrong("the module does not verify", d.log.s, module_print(m, mem, &len));
	if (whole)
		prints(mem, m, &d);
}

/* Files of this machine are not for a fuzzer to read: /dev/tty would wait for ever. */
static bool safe(const char *text, size_t len)
{
	return !memmem(text, len, "include", 7) || !(memmem(text, len, "\"/", 2) || memmem(text, len, "..", 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct arena *mem = arena_new();
	char *text = malloc(len ? len : 1); /* to the byte, so that ASan sees a read past it */

	if (!text)
		abort();
	if (len)
		memcpy(text, data, len);
	bool whole = fnv1a(FNV_START, data, len) % 4 == 0; /* the rest is slow, and seldom wrong */
	if (safe(text, len)) {
		compiles(mem, text, len, whole);
		if (whole)
			formats(mem, text, len);
	}
	free(text);
	arena_free(mem);
	return 0;
}

/* -- mutations that leave most of a program as it is: pieces are words, numbers, operators, lines -- */

static bool of_word(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* The piece that data[at] is part of; the next one if that is a blank. */
static void piece(const uint8_t *data, size_t len, size_t at, bool line, size_t *from, size_t *to)
{
	while (at < len && !line && data[at] <= ' ')
		at++;
	*from = *to = at;
	while (*from > 0 && (line ? data[*from - 1] != '\n' : of_word(data[at]) && of_word(data[*from - 1])))
		--*from;
	while (*to < len && (line ? data[*to] != '\n' : *to == at || (of_word(data[at]) && of_word(data[*to]))))
		++*to;
	*to += line && *to < len;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t most, unsigned seed)
{
	uint64_t r = (seed + 1) * 0x9E3779B97F4A7C15ull;
	size_t a, b, c, d;
	uint8_t *copy;

	if (len < 2 || r >> 62 == 0 || !(copy = malloc(len)))
		return LLVMFuzzerMutate(data, len, most);
	bool line = (r >> 60 & 3) == 0, kept = (r >> 58 & 3) == 0, lost = (r >> 55 & 7) == 0;
	memcpy(copy, data, len);
	piece(data, len, (r >> 16 & 0xffffff) % len, line, &a, &b);
	piece(data, len, (r * 0xD1342543DE82EF95ull >> 16) % len, line, &c, &d);
	/* another piece in the place of this one, or before it; or nothing */
	size_t end = kept ? a : b, more = lost ? 0 : d - c;
	if (a + more + (len - end) <= most) {
		memcpy(data + a, copy + c, more);
		memcpy(data + a + more, copy + end, len - end);
		len = a + more + (len - end);
	}
	free(copy);
	return len;
}
