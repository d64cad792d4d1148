/* frontend/software.c - the setting `software`: a preset, then switches of it that are set otherwise. */
#include "frontend/lower.h"

static const char *words_text(struct ctx *c, int sw)
{
	struct text t = { .mem = c->mem };

	for (int i = 0; switches[sw].word[i]; i++)
		text_put(&t, "%s%s", i ? ", " : "", switches[sw].word[i]);
	return t.s;
}

static void read_preset(struct ctx *c, const struct node *a)
{
	const struct software *s = find_preset(a->name);
	struct near near = { .name = a->name };
	struct text t = { .mem = c->mem };

	if (s) {
		c->m->software = *s;
		return;
	}
	for (s = presets; s->name; s++) {
		near_offer(&near, s->name);
		text_put(&t, "%s%s", t.n ? ", " : "", s->name);
	}
	fail(c, a->at, "there is no software '%s'", a->name);
	if (near.best)
		hint(c, "did you mean '%s'?", near.best);
	else
		hint(c, "presets are %s; switches are name = word", t.s);
}

static void read_switch(struct ctx *c, const struct node *a)
{
	int sw = find_switch(a->name), word;
	struct near near = { .name = a->name };
	struct text t = { .mem = c->mem };

	if (sw < 0) {
		for (int i = 0; i < NSWITCH; i++) {
			near_offer(&near, switches[i].name);
			text_put(&t, "%s%s", i ? ", " : "", switches[i].name);
		}
		fail(c, a->at, "software has no switch '%s'", a->name);
		if (near.best)
			hint(c, "did you mean '%s'?", near.best);
		else
			hint(c, "switches are %s", t.s);
		return;
	}
	word = a->a && (a->a->kind == N_NAME || a->a->kind == N_WORD) ? find_word(sw, a->a->name) : -1;
	if (word < 0)
		fail(c, a->a ? a->a->at : a->at, "%s is one of %s", a->name, words_text(c, sw));
	else
		c->m->software.at[sw] = (uint8_t)word;
}

void read_software(struct ctx *c, const struct node *line)
{
	const struct node *first = line->a ? line->a : line->list;

	c->m->software = (struct software){ 0 };
	if (!first)
		fail(c, line->at, "write software PRESET, or switch = word, …");
	for (const struct node *a = first; a; a = a->next)
		if (a->kind == N_KEY)
			read_switch(c, a);
		else if (a == first && a->kind == N_NAME)
			read_preset(c, a);
		else
			fail(c, a->at, a == first ? "this must be the name of a preset" : "after the preset come switch = word, …");
}
