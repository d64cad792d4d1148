/* frontend/cmd_opt.c - ptc opt --pass=A,B in.pir: passes on IR text. */
#include <stdio.h>
#include <string.h>

#include "frontend/cmd.h"
#include "ir/text.h"

static bool are_passes(struct session *s, const char *names)
{
	while (names && *names) {
		size_t n = strcspn(names, ",");

		if (!is_pass(s, "--pass", arena_strndup(s->mem, names, n)))
			return false;
		names += n + (names[n] == ',');
	}
	return true;
}

int cmd_opt(struct session *s)
{
	struct pass_options po;
	size_t len;
	char *text = read_file(s, s->opt->file, &len);

	if (!text || !pass_options(s, &po) || !are_passes(s, s->opt->passes))
		return WRONG;
	struct module *m = module_parse(s->mem, s->opt->file, text, len, &s->diag);

	if (!m || !verify(m, &s->diag))
		return WRONG;
	if (s->opt->passes && !run_pass_list(m, &s->diag, s->opt->passes, &po))
		return WRONG;
	char *out = module_print(m, s->mem, &len);
	return write_file(s, s->opt->out, out, len) ? DONE : MACHINE;
}
