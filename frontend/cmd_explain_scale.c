/* frontend/cmd_explain_scale.c - ptc explain --calibrate: one measured run of the same plan says by which factor all
 * predicted times are off. */
#include <jansson.h>
#include <stdlib.h>

#include "frontend/cmd_explain.h"

struct steps {
	VEC(double) seconds;
	json_t *about; /* the plan that was run; NULL: the log does not say */
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
		json_t *about = json_object_get(row, "run");
		bool other = about && x->about && !json_equal(about, x->about);

		if (about && !x->about)
			x->about = json_incref(about);
		json_decref(row);
		if (other)
			return diag_error(&s->diag, (struct span){ 0 }, "%s:%d: a run of another plan begins here", path, line + 1);
		p += n + (p[n] == '\n');
	}
	return text;
}

static const char *shown(struct session *s, const json_t *x)
{
	char *text = x ? json_dumps(x, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12)) : NULL;
	const char *kept = text ? arena_strdup(s->mem, text) : "nothing";

	free(text);
	return kept;
}

/* What is said of both plans and differs: "mesh {"dp":4} there, {"dp":2} here". NULL: nothing. */
static const char *differing(struct session *s, const json_t *there, const json_t *here, const char *const *key)
{
	struct text t = { .mem = s->mem };

	for (; *key; key++) {
		const json_t *a = json_object_get(there, *key), *b = json_object_get(here, *key);

		if (!json_equal(a, b))
			text_put(&t, "%s%s %s there, %s here", t.n ? "; " : "", *key, shown(s, a), shown(s, b));
	}
	return t.s;
}

/* A run of another plan says nothing of this one's times. */
static bool of_this_plan(struct session *s, const struct facts *f, const json_t *about, const char *path)
{
	static const char *const must[] = { "params", "flops", "inputs", "mesh", "precision", NULL }, *const should[] = { "microbatches", "sent_bytes", NULL };

	if (!about) {
		diag_warn(&s->diag, (struct span){ 0 }, "%s does not say what was run; it is taken for a run of %s", path, f->name);
		return true;
	}
	json_t *here = json_loads(about_plan(s, f->m), 0, NULL);

	if (!here)
		die("what is said of a plan is no JSON");
	const char *other = differing(s, about, here, must), *less = differing(s, about, here, should);

	json_decref(here);
	if (other) {
		diag_error(&s->diag, (struct span){ 0 }, "%s is no run of %s: %s", path, f->name, other);
		diag_note(&s->diag, (struct span){ 0 }, "run the plan that is to be explained, with the same --plan, --mesh and --set: ptc run --json --steps 10");
	} else if (less) {
		diag_warn(&s->diag, (struct span){ 0 }, "%s is a run of another layout than %s: %s; times are scaled to it all the same", path, f->name, less);
	}
	return !other;
}

bool calibrate_to(struct session *s, struct facts *f, const char *path)
{
	struct steps x = { 0 };
	struct step_time *t = &f->time;
	bool fits = read_steps(s, path, &x) && of_this_plan(s, f, x.about, path);

	json_decref(x.about);
	if (!fits)
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
