/* frontend/cmd_explain_scale.c - ptc explain --calibrate: one measured run of the same plan says by which factor all
 * predicted times are off. */
#include <jansson.h>
#include <stdlib.h>

#include "frontend/cmd_explain.h"

struct steps {
	VEC(double) seconds;
};

static int ascending(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;

	return (a > b) - (a < b);
}

/* The times of all steps but the first, which makes ready what later ones find. */
static bool read_steps(struct session *s, const char *path, struct steps *x)
{
	size_t len;
	char *text = read_file(s, path, &len);
	int line = 0;

	for (char *p = text; p && *p; line++) {
		size_t n = strcspn(p, "\n");
		json_error_t why;
		json_t *row = json_loadb(p, n, 0, &why);
		json_t *ms = json_object_get(row, "step_ms");

		if (n && !row)
			return diag_error(&s->diag, (struct span){ 0 }, "%s:%d is no JSON: %s", path, line + 1, why.text);
		if (json_is_number(ms) && json_integer_value(json_object_get(row, "step")) > 0)
			PUSH(s->mem, &x->seconds, json_number_value(ms) / 1e3);
		json_decref(row);
		p += n + (p[n] == '\n');
	}
	return text;
}

bool calibrate_to(struct session *s, struct facts *f, const char *path)
{
	struct steps x = { 0 };
	struct step_time *t = &f->time;

	if (!read_steps(s, path, &x))
		return false;
	if (x.seconds.n < 2) {
		diag_error(&s->diag, (struct span){ 0 }, "%s has %u steps behind the first that say what they took; two are needed", path, x.seconds.n);
		diag_note(&s->diag, (struct span){ 0 }, "it is what 'ptc run --json --steps 10' prints");
		return false;
	}
	qsort(x.seconds.at, x.seconds.n, sizeof *x.seconds.at, ascending);
	double measured = x.seconds.at[x.seconds.n / 2];

	if (!(measured > 0) || !(t->step > 0))
		return diag_error(&s->diag, (struct span){ 0 }, "%s: a step takes no time", path);
	f->factor = measured / t->step;
	t->step = measured;
	t->compute *= f->factor;
	t->exposed *= f->factor;
	t->copies *= f->factor;
	t->mfu /= f->factor;
	t->hfu /= f->factor;
	t->tflops /= f->factor;
	t->tokens /= f->factor;
	t->dollars *= f->factor;
	t->per_tokens *= f->factor;
	return true;
}
