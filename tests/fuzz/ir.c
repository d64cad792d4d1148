/* tests/fuzz/ir.c - for libFuzzer: any bytes through the parser of IR texts.
 *
 * Either an error is reported, or what is read prints, reads back and prints the same. verify() may
 * refuse it, but must say why, and must say the same of the copy. */
#include <stdio.h>
#include <stdlib.h>

#include "ir/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void wrong(const char *what, const char *text, const char *more)
{
	fprintf(stderr, "WRONG: %s\n%s\n%s\n", what, text ? text : "", more ? more : "");
	abort();
}

static bool verifies(const struct module *m, struct diag *d)
{
	int errors = d->errors;
	bool good = verify(m, d);

	if (good != (d->errors == errors))
		wrong(good ? "verify is content in spite of errors" : "verify says nothing", d->log.s, NULL);
	return good;
}

static void reads(struct arena *mem, const char *text, size_t len)
{
	struct diag d;
	size_t n, again;

	diag_init(&d, mem, NULL, NULL);
	struct module *m = module_parse(mem, "fuzz", text, len, &d);
	if (!m != (d.errors > 0))
		wrong(m ? "a module in spite of errors" : "no module, and nothing was said", d.log.s, NULL);
	if (!m)
		return;
	char *once = module_print(m, mem, &n);
	struct module *copy = module_parse(mem, "once", once, n, &d);
	if (!copy)
		wrong("the module does not read back", d.log.s, once);
	char *twice = module_print(copy, mem, &again);
	if (n != again || memcmp(once, twice, n) != 0)
		wrong("the module reads back as another", once, twice);
	if (verifies(m, &d) != verifies(copy, &d))
		wrong("verify: the copy differs", d.log.s, once);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct arena *mem = arena_new();
	char *text = malloc(len ? len : 1);

	if (!text)
		abort();
	if (len)
		memcpy(text, data, len);
	reads(mem, text, len);
	free(text);
	arena_free(mem);
	return 0;
}
