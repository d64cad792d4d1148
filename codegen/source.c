/* codegen/source.c - a plan's source: each different text once, by a name of its own. */
#include "codegen/source.h"

void put_named(struct text *t, const char *text, const char *name)
{
	for (const char *s = text; *s; s++)
		if (*s == '@')
			text_put(t, "%s", name);
		else
			text_bytes(t, s, 1);
}

int code_no(struct codes *c, const char *text)
{
	struct kernel_code code = { .text = text, .hash = fnv1a(FNV_START, text, strlen(text)) };

	for (uint32_t i = 0; i < c->all.n; i++)
		if (c->all.at[i].hash == code.hash && streq(c->all.at[i].text, text))
			return (int)i;
	PUSH(c->mem, &c->all, code);
	return (int)c->all.n - 1;
}

bool source_each(const struct block *b, bool (*f)(void *self, const struct op *op), void *self)
{
	for (const struct op *op = b->first; op; op = op->next)
		if (!f(self, op) || (op->code != OP_KERNEL && op->body && !source_each(op->body, f, self)))
			return false;
	return true;
}
