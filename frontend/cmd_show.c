/* frontend/cmd_show.c - ptc show plan|model.pdsl [--after=PASS]: the IR as text. */
#include <stdio.h>

#include "frontend/cmd.h"
#include "ir/text.h"

int cmd_show(struct session *s)
{
	const struct options *o = s->opt;
	struct module *m;
	size_t len;

	if (!is_model(o->file)) {
		if (o->after) {
			diag_error(&s->diag, (struct span){ 0 }, "a plan holds the IR after the last pass only");
			diag_note(&s->diag, (struct span){ 0 }, "--after needs the model");
			return WRONG;
		}
		m = load_plan(s);
	} else {
		struct pass_options po;

		if (!pass_options(s, &po))
			return WRONG;
		if (o->after && !streq(o->after, "lower") && !is_pass(s, "--after", o->after))
			return WRONG;
		po.stop_after = o->after;
		m = load_model(s, &(struct layout){ o->plan, o->mesh, o->set, o->schedule, o->add });
		if (m && !streq(o->after, "lower") && !run_passes(m, &s->diag, &po))
			return WRONG;
	}
	if (!m)
		return WRONG;
	if (o->csv)
		return show_schedule(s, m);
	char *text = module_print(m, s->mem, &len);
	return write_file(s, o->out, text, len) ? DONE : MACHINE;
}
