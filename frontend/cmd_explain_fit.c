/* frontend/cmd_explain_fit.c - ptc explain --fit: the largest microbatch that fits, and what to change in a plan that
 * does not. Nothing here is estimated: each change is made, the plan compiled, its peak and its time read off. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_explain.h"

enum { MAX_CHANGES = 48, MAX_PAIRED = 8, MAX_STEPS = 24 };

#define WORTH 0.999 /* of the peak: what saves less is no way out */

#define CHUNKED 0.02 /* of the peak: what is smaller is not worth a loop */

struct tries {
	struct session *s;
	const struct facts *f;
	double limit;
	struct change *at;
	int n, cap;
};

/* -- a changed plan -- */

static const char *joined(struct arena *mem, const char *a, const char *b, char with)
{
	return !a ? b : !b ? a : arena_printf(mem, "%s%c%s", a, with, b);
}

/* Is what is set at `item`, up to its '=', set in list too? */
static bool is_set_in(const char *list, const char *item)
{
	size_t n = strcspn(item, "=") + 1;

	for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
		if (strncmp(p, item, n) == 0)
			return true;
	return false;
}

/* The user's --set without what a change sets itself, and that. */
static const char *with_change(struct arena *mem, const char *set, const char *change)
{
	struct text t = { .mem = mem };

	for (const char *p = set; p && *p; p += strcspn(p, ","), p += *p == ',')
		if (!is_set_in(change, p))
			text_put(&t, "%s%.*s", t.n ? "," : "", (int)strcspn(p, ","), p);
	return joined(mem, t.n ? t.s : NULL, change, ',');
}

/* Fills in what the plan with the change would need and take. False: there is no such plan. */
static bool try_change(struct tries *t, struct change *c)
{
	const struct options *o = t->s->opt;
	struct session quiet;

	session_start(&quiet, o);
	quiet.diag.out = NULL;
	struct arena *mem = quiet.mem;
	struct layout how = { o->plan, o->mesh, with_change(mem, o->set, c->set), o->schedule, joined(mem, o->add, c->add, ';') };
	struct module *m = load_model(&quiet, &how);
	bool ok = m && run_passes(m, &quiet.diag, &(struct pass_options){ 0 });

	if (ok) {
		struct flops f = count_flops(m);

		c->peak = m->workspace + m->arena;
		c->step = step_time_of(mem, m, &f).step;
		c->fits = (double)c->peak <= t->limit;
		c->rows = rows_of_microbatch(m);
	}
	session_end(&quiet);
	return ok;
}

int64_t rows_of_microbatch(const struct module *m)
{
	for (const struct op *op = m->top.first; op && m->batch != NODIM; op = op->next) {
		const struct value *v = op->code == OP_READ ? op->out[0] : NULL;
		const struct buffer *b = v ? find_buffer(m, op->at.buf) : NULL;
		int at = b && b->role == B_INPUT ? dim_pos(v, m->batch) : -1;

		if (at >= 0) /* read once for all microbatches, or microbatch by microbatch */
			return ceil_div(cap_of(m, m->batch, &v->sh.on[at]), axes_has(&v->sh.on[at], time_axis(m)) ? 1 : m->micro);
	}
	return 0;
}

/* -- the largest microbatch -- */

/* The next number of microbatches that divides the batch, up or down; 0: none. */
static int64_t next_count(int64_t batch, int64_t m, bool up)
{
	for (m += up ? 1 : -1; m >= 1 && m <= batch; m += up ? 1 : -1)
		if (batch % m == 0)
			return m;
	return 0;
}

/* From the plan's own on: fewer microbatches while they fit, or more until they do. best.rows 0: none fits. */
static struct change largest_microbatch(struct tries *t)
{
	const struct module *m = t->f->m;
	int64_t batch = m->batch == NODIM ? 0 : dim_size(m, m->batch), count = m->micro;
	bool fits = (double)t->f->peak <= t->limit;
	struct change best = { .peak = t->f->peak, .step = t->f->time.step, .fits = fits, .micro = count,
			       .rows = fits ? rows_of_microbatch(m) : 0 };

	for (int i = 0; i < MAX_STEPS && batch && (count = next_count(batch, count, !fits)); i++) {
		struct change c = { .set = arena_printf(t->s->mem, "microbatches=%lld", (long long)count), .micro = count };

		if (!try_change(t, &c))
			continue;
		if (c.fits)
			best = c;
		if (c.fits != fits)
			break;
	}
	return best;
}

/* -- what to change -- */

static void offer(struct tries *t, const char *set, const char *add)
{
	struct change c = { .set = set, .add = add };

	if (t->n < t->cap && try_change(t, &c) && (double)c.peak < WORTH * (double)t->f->peak)
		t->at[t->n++] = c;
}

/* Is dim d of an input, other than the batch? */
static bool is_input_dim(const struct module *m, dimid d)
{
	for (uint32_t i = 0; i < m->bufs.n; i++)
		for (int k = 0; m->bufs.at[i]->role == B_INPUT && k < m->bufs.at[i]->nd; k++)
			if (m->bufs.at[i]->d[k] == d && d != m->batch)
				return true;
	return false;
}

/* For each axis: states, gradients and params over it, and dims of the inputs. */
static void offer_arrows(struct tries *t)
{
	static const char *const what[] = { "optimizer", "grads", "params" };
	const struct module *m = t->f->m;

	for (uint32_t a = 0; a < m->mesh.n; a++) {
		const char *axis = m->mesh.at[a].name;

		if (m->mesh.at[a].size < 2 || (int)a == m->pipe.user)
			continue;
		for (size_t k = 0; k < LEN(what); k++)
			offer(t, NULL, arena_printf(t->s->mem, "%s -> %s", what[k], axis));
		for (uint32_t d = 0; d < m->dims.n; d++)
			if (is_input_dim(m, (dimid)d))
				offer(t, NULL, arena_printf(t->s->mem, "%s -> %s", m->dims.at[d].name, axis));
	}
	offer(t, NULL, "optimizer -> host");
	offer(t, NULL, "params -> host");
}

/* The largest value with a name that forward makes outside of all repeats: logits, say. */
static const struct value *largest_outside(const struct module *m)
{
	const struct value *most = NULL;

	for (const struct op *op = m->top.first; op; op = op->next)
		for (uint32_t i = 0; op->phase == FORWARD && op->code != OP_READ && !op->body && i < op->nout; i++)
			if (op->out[i]->name && op->out[i]->nd > 1 && (!most || local_bytes(m, op->out[i]) > local_bytes(m, most)))
				most = op->out[i];
	return most;
}

/* In parts what is a good part of the peak. */
static void offer_chunks(struct tries *t)
{
	const struct value *v = largest_outside(t->f->m);

	for (int parts = 4; v && parts <= 16 && (double)local_bytes(t->f->m, v) > CHUNKED * (double)t->f->peak; parts *= 4)
		offer(t, NULL, arena_printf(t->s->mem, "chunk %s, parts = %d", v->name, parts));
}

static void offer_settings(struct tries *t)
{
	const struct module *m = t->f->m;
	int64_t count = m->micro;

	for (int k = 0; k < NRECOMPUTE; k++)
		if (k != (int)m->recompute.how)
			offer(t, arena_printf(t->s->mem, "recompute=%s", recompute_name[k]), NULL);
	for (int k = 0; k < 2 && m->batch != NODIM && (count = next_count(dim_size(m, m->batch), count, true)); k++)
		offer(t, arena_printf(t->s->mem, "microbatches=%lld", (long long)count), NULL);
}

static int by_peak(const void *x, const void *y)
{
	const struct change *a = x, *b = y;

	return (a->peak > b->peak) - (a->peak < b->peak);
}

/* What fits first, by predicted time. */
static int by_time(const void *x, const void *y)
{
	const struct change *a = x, *b = y;

	if (a->fits != b->fits)
		return b->fits - a->fits;
	return a->step != b->step ? (a->step > b->step) - (a->step < b->step) : by_peak(x, y);
}

/* Two changes together, of those that save most; not two values of one setting. */
static void offer_pairs(struct tries *t)
{
	int n = t->n < MAX_PAIRED ? t->n : MAX_PAIRED;

	qsort(t->at, (size_t)t->n, sizeof *t->at, by_peak);
	for (int i = 0; i < n; i++)
		for (int k = i + 1; k < n; k++) {
			const struct change *a = &t->at[i], *b = &t->at[k];
			size_t key = a->set && b->set ? strcspn(a->set, "=") : 0;

			if (!key || strncmp(a->set, b->set, key + 1) != 0)
				offer(t, joined(t->s->mem, a->set, b->set, ','), joined(t->s->mem, a->add, b->add, ';'));
		}
}

/* The microbatch that fits is a change like others, if it was not among those that were tried. */
static void add_largest(struct tries *t, const struct change *c)
{
	for (int i = 0; i < t->n; i++)
		if (streq(t->at[i].set, c->set) && !t->at[i].add)
			return;
	if (c->set && t->n < t->cap)
		t->at[t->n++] = *c;
}

bool find_fit(struct session *s, const struct facts *f, struct fit *x)
{
	struct tries t = { .s = s, .f = f, .limit = f->m->hw.memory, .cap = MAX_CHANGES };

	*x = (struct fit){ .limit = t.limit };
	if (!is_model(s->opt->file)) {
		diag_error(&s->diag, (struct span){ 0 }, "%s is a plan: --fit changes the plan of a model", s->opt->file);
		diag_note(&s->diag, (struct span){ 0 }, "give it the model that the plan was made of");
		return false;
	}
	t.at = NEWN(s->mem, struct change, t.cap);
	x->microbatch = largest_microbatch(&t);
	x->fits = (double)f->peak <= t.limit;
	if (!x->fits) {
		offer_settings(&t);
		offer_arrows(&t);
		offer_chunks(&t);
		bool some = false;

		for (int i = 0; i < t.n; i++)
			some |= t.at[i].fits;
		if (!some)
			offer_pairs(&t);
		add_largest(&t, &x->microbatch);
		qsort(t.at, (size_t)t.n, sizeof *t.at, by_time);
	}
	x->change = t.at;
	x->n = t.n;
	return true;
}

/* -- for people and programs -- */

static const char *change_text(struct arena *mem, const struct change *c)
{
	return joined(mem, c->set, c->add, ';');
}

static void print_microbatch(struct session *s, const struct facts *f, const struct change *c)
{
	int64_t own = rows_of_microbatch(f->m);

	printf("microbatch  ");
	if (!own)
		printf("there are no inputs\n");
	else if (!c->rows)
		printf("of %lld row%s a rank; none of fewer rows fits\n", (long long)own, own == 1 ? "" : "s");
	else if (c->micro == f->m->micro)
		printf("of %lld row%s a rank is the largest that fits\n", (long long)own, own == 1 ? "" : "s");
	else
		printf("of %lld row%s a rank; the largest that fits has %lld: --set %s, %s, %s a step\n", (long long)own, own == 1 ? "" : "s",
		       (long long)c->rows, c->set, amount(s->mem, (double)c->peak, "B"), seconds_text(s->mem, c->step));
}

void print_fit(struct session *s, const struct facts *f, const struct fit *x)
{
	struct arena *a = s->mem;

	printf("fit         %s of %s a rank: ", amount(a, (double)f->peak, "B"), amount(a, x->limit, "B"));
	if (x->fits)
		printf("%s left\n", amount(a, x->limit - (double)f->peak, "B"));
	else
		printf("%s too many\n", amount(a, (double)f->peak - x->limit, "B"));
	print_microbatch(s, f, &x->microbatch);
	if (x->fits)
		return;
	printf("\n%-52s %9s %9s %10s\n", "to change (--set name=value, --add 'a -> b')", "peak", "saves", "a step");
	for (int i = 0; i < x->n; i++) {
		const struct change *c = &x->change[i];

		printf("%-52s %9s %9s %10s%s\n", change_text(a, c), amount(a, (double)c->peak, "B"),
		       amount(a, (double)(f->peak - c->peak), "B"), seconds_text(a, c->step), c->fits ? "  fits" : "");
	}
	if (!x->n)
		printf("nothing that was tried saves memory\n");
	printf("%-52s %9s %9s %10s\n", "as it is", amount(a, (double)f->peak, "B"), "", seconds_text(a, f->time.step));
}

static json_t *change_json(const struct change *c)
{
	json_t *x = json_pack("{s:I, s:f, s:b, s:I}", "peak", (json_int_t)c->peak, "step_s", c->step, "fits", (int)c->fits, "rows",
			      (json_int_t)c->rows);

	if (c->set)
		json_object_set_new(x, "set", json_string(c->set));
	if (c->add)
		json_object_set_new(x, "add", json_string(c->add));
	return x;
}

json_t *fit_json(const struct facts *f, const struct fit *x)
{
	json_t *list = json_array(), *largest = x->microbatch.rows ? change_json(&x->microbatch) : json_null();

	for (int i = 0; i < x->n; i++) {
		json_t *c = change_json(&x->change[i]);

		json_object_set_new(c, "saves", json_integer((json_int_t)(f->peak - x->change[i].peak)));
		json_array_append_new(list, c);
	}
	if (x->microbatch.rows)
		json_object_set_new(largest, "microbatches", json_integer((json_int_t)x->microbatch.micro));
	return json_pack("{s:f, s:b, s:o, s:o}", "limit", x->limit, "fits", (int)x->fits, "microbatch", largest, "changes", list);
}
