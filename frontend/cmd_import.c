/* frontend/cmd_import.c - ptc import config.json -o model.pdsl: a model file of a Hugging Face config. */
#include "frontend/cmd.h"
#include "frontend/fmt.h"
#include "frontend/import.h"

int cmd_import(struct session *s)
{
	const struct options *o = s->opt;
	size_t len;
	char *text = read_file(s, o->file, &len);

	if (!text)
		return WRONG;
	text = import_config(s->mem, &s->src, &s->diag, o->file, text, len, &len);
	if (!text)
		return WRONG;
	text = fmt_text(s->mem, &s->src, &s->diag, o->out ? o->out : "stdout", text, len, &len);
	if (!text)
		die("ptc import made a text that does not parse");
	return write_file(s, o->out, text, len) ? DONE : MACHINE;
}
