/* frontend/cmd_check.c - ptc check model.pdsl: the plan against its one-rank twin.
 *
 * On the reference evaluator, then on the runtime; then the runtime's kernels against the
 * evaluator, both on one rank. For each step both sides start from the twin's params and states
 * and run it two times: once for the loss and the gradients, once with the optimizer fed the
 * twin's gradients, for what it makes of them (probe buffers PATH:grad and PATH:given carry
 * them). So a difference is found where it is made. --same-bits: then the plan with some settings changed, such as its
 * order of a pipeline or what it recomputes, against the plan, on the runtime, bit for bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_compare.h"
#include "ir/rng.h"

enum { STEPS = 2, BUDGET = 4000000, MOST_CHECKED = 1024, MOST_SHOWN = 4 };

/* A named value of the twin, in one iteration. */
struct seen {
	const char *name;
	struct span at;
	int64_t iter;
	const struct tensor *t;
};

struct check {
	struct session *s;
	struct arena *mem; /* of one step */
	struct side *plan, *twin;
	const char *where;
	enum dtype precision; /* in which they are rounded: F32 on the evaluator, which rounds nothing */
	double slack;      /* times the bound; 0: the same bits */
	const struct module *bare; /* the twin, as the evaluator runs it; NULL: no rounding is measured */
	bool exact;        /* sides round nothing, so that only what hangs on a last bit may differ */
	struct rounding *rounding; /* of the last step that was run, once it is asked for */
	VEC(struct fed) fed;       /* what it was given */
	VEC(struct seen) seen;
	double largest;    /* of the twin's gradients */
	int errors;
	/* the largest differences, as shares of what is allowed */
	double scalar, gradient, update;
	const char *gradient_of, *update_of;
	int rounded;           /* how many differ by more than the fixed bound, as rounding makes them */
	double rounding_share; /* at most, of its size */
	const char *rounding_of;
	const char *scalars; /* of the twin, as they are printed */
};

static bool is_saved(const struct buffer *b)
{
	return b->role == B_PARAM || b->role == B_STATE || b->role == B_OPT;
}

static bool is_probe(const struct buffer *b, const char *end)
{
	size_t n = strlen(b->name), k = strlen(end);

	return b->role == B_PROBE && n >= k && streq(b->name + n - k, end);
}

/* Does it have a `minimize`? */
static bool is_trained(const struct module *m)
{
	for (uint32_t i = 0; i < m->bufs.n; i++)
		if (is_probe(m->bufs.at[i], ":grad"))
			return true;
	return false;
}

/* compare takes 0 for -0. */
static struct difference differ_in_bits(const struct tensor *a, const struct tensor *b)
{
	struct difference d = { .bad = a->count != b->count, .error = INFINITY, .at = -1 };

	for (int64_t i = 0; !d.bad && i < a->count; i++)
		if (memcmp(&a->x[i], &b->x[i], sizeof a->x[i]) != 0)
			d = (struct difference){ .bad = true, .error = fabs(a->x[i] - b->x[i]), .at = i, .a = a->x[i], .b = b->x[i] };
	if (!d.bad)
		d.error = 0;
	return d;
}

static struct difference differ(struct check *c, enum quantity q, const struct tensor *a, const struct tensor *b)
{
	if (c->slack == 0)
		return differ_in_bits(a, b);
	struct difference d = compare(q, c->precision, a, b, c->largest);

	d.bound *= c->slack;
	d.bad = !(d.error <= d.bound);
	return d;
}

/* What differs by more than the fixed bound may do so by rounding, which the evaluator measures then. It has no part in
 * the kernels of the runtime: what they do wrong is not taken for rounding. */
static void allow_rounding(struct check *c, enum quantity q, struct difference *d, const char *name, const struct tensor *got,
			   const struct tensor *want, int64_t step)
{
	if (!d->bad || !c->bare || d->at < 0 || q == Q_INITIAL)
		return;
	if (!c->rounding)
		c->rounding = rounding_of_step(c->mem, c->bare, seed_of(c->s->opt), c->fed.at, (int)c->fed.n, step);
	struct off off = rounding_off(c->rounding, name, q == Q_SCALAR);
	double size = tensor_size(want);

	if (!c->exact)
		d->bound = fmax(d->bound, rounding_bound(q, off, size, c->largest));
	if (q == Q_VALUE && rounding_turns(c->rounding, name, got, want, d->bound))
		d->bound = fmax(d->bound, d->error);
	d->bad = !(d->error <= d->bound);
	if (d->bad)
		return;
	double share = d->error / check_size(q, size, c->largest);

	c->rounded++;
	if (share > c->rounding_share) {
		c->rounding_share = share;
		c->rounding_of = name;
	}
}

static void note_worst(double *worst, const char **of, const struct difference *d, const char *name)
{
	double share = d->error == 0 ? 0 : d->bound > 0 ? d->error / d->bound : INFINITY;

	if (!(share <= *worst)) {
		*worst = share;
		if (of)
			*of = name;
	}
}

/* -- what is said about a difference -- */

static void say_difference(struct check *c, struct span at, const char *what, const struct difference *d,
			   int64_t step, const struct op *by)
{
	struct diag *diag = &c->s->diag;
	const char *unit = c->precision == BF16 ? "bf16 " : "";
	double n = ulps(d->a, d->b) / (c->precision == BF16 ? 65536 : 1);

	c->errors++;
	if (d->at < 0)
		diag_error(diag, at, "%s differs in size (step %lld, %s)", what, (long long)step, c->where);
	else
		diag_error(diag, at, "%s differs: %.9g is %.9g %s, %.*g %sulps apart (bound %.3g; element %lld, step %lld, %s)",
			   what, d->a, d->b, c->slack == 0 ? "with the other settings" : "on one rank", n < 1e9 ? 9 : 3, n, unit, d->bound,
			   (long long)d->at, (long long)step, c->where);
	if (by)
		diag_note(diag, by->span, "made by %s", by->why);
}

/* -- what both sides are given -- */

static struct tensor *drawn(struct check *c, const struct buffer *b, int64_t step)
{
	const struct module *m = c->twin->m;
	struct tensor *t = tensor_like(c->mem, m, b->nd, b->d);
	int64_t row = b->nd > 1 ? dim_size(m, b->d[b->nd - 1]) : 1;
	uint64_t seed = seed_of(c->s->opt);
	uint64_t key = stream_key(seed, b->next_of ? b->next_of : b->name);

	for (int64_t i = 0; i < t->count; i++) {
		/* `next` reads the same stream further on, for which there is room behind every row */
		uint64_t at = (uint64_t)(i / row * (row + 64) + i % row + (b->next_of ? b->next_k : 0));

		if (b->tokens)
			t->x[i] = floor(rng_uniform(key, at, (uint32_t)step, 0) * (double)b->tokens);
		else if (is_float(b->dt))
			t->x[i] = (float)rng_normal(key, at, (uint32_t)step, 0);
		else if (b->dt == BOOL)
			t->x[i] = rng_uniform(key, at, (uint32_t)step, 0) < 0.75;
		if (b->next_of && rng_uniform(stream_key(seed, b->name), (uint64_t)i, (uint32_t)step, 1) < 0.125)
			t->x[i] = -100;
	}
	return t;
}

static void give(struct check *c, const char *buffer, const struct tensor *t)
{
	struct fed x = { buffer, t };

	PUSH(c->mem, &c->fed, x); /* the last one counts */
	c->twin->set(c->twin->self, buffer, t);
	c->plan->set(c->plan->self, buffer, t);
}

static void give_inputs(struct check *c, int64_t step)
{
	const struct module *m = c->twin->m;

	for (uint32_t i = 0; i < m->bufs.n; i++)
		if (m->bufs.at[i]->role == B_INPUT)
			give(c, m->bufs.at[i]->name, drawn(c, m->bufs.at[i], step));
}

static struct tensor **snapshot(struct check *c)
{
	const struct module *m = c->twin->m;
	struct tensor **all = NEWN(c->mem, struct tensor *, m->bufs.n + 1);

	for (uint32_t i = 0; i < m->bufs.n; i++)
		if (is_saved(m->bufs.at[i]))
			all[i] = c->twin->get(c->twin->self, c->mem, m->bufs.at[i]->name);
	return all;
}

static void restore(struct check *c, struct tensor **all)
{
	for (uint32_t i = 0; i < c->twin->m->bufs.n; i++)
		if (all[i])
			give(c, c->twin->m->bufs.at[i]->name, all[i]);
}

/* -- named values, on the evaluator -- */

static void see_twin(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error)
{
	struct check *c = me;

	(void)error;
	if (!v->name || strncmp(v->name, "d:", 2) == 0)
		return;
	struct tensor *t = tensor_new(c->mem, whole->nd, whole->size);

	memcpy(t->x, whole->x, sizeof *t->x * (size_t)t->count);
	struct seen x = { v->name, v->span, iter, t };
	PUSH(c->mem, &c->seen, x);
}

/* Is it made in parts that the twin has whole? */
static bool is_part(const struct check *c, const struct value *v)
{
	for (const struct op *r = v->home->owner; r; r = r->home->owner)
		if (r->code == OP_REPEAT && find_dim(c->twin->m, c->plan->m->dims.at[r->at.dim].name) == NODIM)
			return true;
	return false;
}

/* A def that is called twice binds a name twice at one place: any of these values will do. */
static void compare_seen(struct check *c, const struct value *v, int64_t iter, const struct tensor *whole)
{
	struct difference d = { .bad = false };

	if (is_part(c, v))
		return;
	for (uint32_t i = 0; v->name && i < c->seen.n; i++) {
		const struct seen *x = &c->seen.at[i];

		if (x->iter != iter || !streq(x->name, v->name) || x->at.line != v->span.line || x->at.col != v->span.col)
			continue;
		d = whole->nd == x->t->nd ? differ(c, Q_VALUE, whole, x->t) : (struct difference){ 0 };
		if (!d.bad)
			return;
	}
	if (d.bad)
		say_difference(c, v->span, arena_printf(c->mem, "'%s'%s", v->name,
			       iter ? arena_printf(c->mem, " (iteration %lld)", (long long)iter) : ""), &d, 0, made_by(v));
}

static void see_plan(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error)
{
	struct check *c = me;

	if (c->errors)
		return; /* what follows from the first difference is no news */
	if (error) {
		c->errors++;
		diag_error(&c->s->diag, v->span, "%s%s%s: %s", v->name ? "'" : "a value of this line", v->name ? v->name : "",
			   v->name ? "'" : "", error);
		const struct op *by = made_by(v);

		if (by)
			diag_note(&c->s->diag, by->span, "made by %s", by->why);
		return;
	}
	compare_seen(c, v, iter, whole);
}

/* -- a step -- */

static bool run_both(struct check *c, int64_t step, bool watch)
{
	struct eval_watch twin = { see_twin, c, true }, plan = { see_plan, c, true };
	const char *why = "";

	c->seen.n = 0;
	c->rounding = NULL;
	if (!c->twin->step(c->twin->self, step, watch ? &twin : NULL, &why))
		return diag_error(&c->s->diag, (struct span){ 0 }, "%s, one rank: %s", c->where, why);
	if (!c->plan->step(c->plan->self, step, watch ? &plan : NULL, &why)) {
		if (!c->errors)
			diag_error(&c->s->diag, (struct span){ 0 }, "%s: %s", c->where, why);
		c->errors++;
		return false;
	}
	return true;
}

static double scalar_of(struct side *x, const char *key)
{
	bool found = false;
	double v = x->report(x->self, key, &found);

	return found ? v : 0;
}

static void compare_scalar(struct check *c, const char *key, int64_t step)
{
	struct tensor *a = tensor_new(c->mem, 0, NULL), *b = tensor_new(c->mem, 0, NULL);

	a->x[0] = scalar_of(c->plan, key);
	b->x[0] = scalar_of(c->twin, key);
	struct difference d = differ(c, Q_SCALAR, a, b);

	allow_rounding(c, Q_SCALAR, &d, key, a, b, step);
	note_worst(&c->scalar, NULL, &d, key);
	if (d.bad && !c->errors)
		say_difference(c, (struct span){ 0 }, arena_printf(c->mem, "%s", key), &d, step, NULL);
}

/* Where the plan writes this buffer: the value that differed. */
static const struct op *made_buffer(const struct module *m, const char *buffer)
{
	for (const struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_WRITE && streq(op->at.buf, buffer))
			return made_by(op->in[0]);
	return NULL;
}

/* A bf16 buffer of the evaluator may hold more than its type does: reading it rounds. */
static void round_bf16(struct tensor *t)
{
	for (int64_t i = 0; i < t->count; i++) {
		float f = (float)t->x[i];
		uint32_t u;

		memcpy(&u, &f, sizeof u);
		u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
		memcpy(&f, &u, sizeof f);
		t->x[i] = f;
	}
}

static void compare_buffers(struct check *c, enum quantity q, int64_t step)
{
	const struct module *m = c->twin->m;

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];

		if (q == Q_GRADIENT ? !is_probe(b, ":grad") : !is_saved(b))
			continue;
		struct tensor *want = c->twin->get(c->twin->self, c->mem, b->name);
		struct tensor *got = c->plan->get(c->plan->self, c->mem, b->name);

		if (q != Q_GRADIENT && b->dt == BF16) {
			round_bf16(want);
			round_bf16(got);
		}
		/* a state is made of values, not of gradients: it differs as they do */
		enum quantity kind = q != Q_UPDATED ? q : b->role == B_STATE ? Q_VALUE : b->dt == BF16 ? Q_STORED : q;
		struct difference d = differ(c, kind, got, want);

		allow_rounding(c, kind, &d, b->name, got, want, step);
		if (q == Q_GRADIENT)
			note_worst(&c->gradient, &c->gradient_of, &d, b->name);
		else
			note_worst(&c->update, &c->update_of, &d, b->name);
		if (d.bad && !c->errors) {
			const char *what = q == Q_INITIAL ? "initial" : q == Q_GRADIENT ? "gradient" : "updated";

			say_difference(c, b->at, arena_printf(c->mem, "%s '%s'", what, b->name), &d, step,
				       q == Q_INITIAL ? NULL : made_buffer(c->plan->m, b->name));
		}
	}
}

static void give_gradients(struct check *c)
{
	const struct module *m = c->twin->m;

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];

		if (!is_probe(b, ":grad"))
			continue;
		const char *given = arena_printf(c->mem, "%.*s:given", (int)(strlen(b->name) - 5), b->name);

		give(c, given, c->twin->get(c->twin->self, c->mem, b->name));
	}
}

static void find_largest(struct check *c)
{
	const struct module *m = c->twin->m;

	c->largest = 0;
	for (uint32_t i = 0; i < m->bufs.n; i++)
		if (is_probe(m->bufs.at[i], ":grad"))
			c->largest = fmax(c->largest, tensor_size(c->twin->get(c->twin->self, c->mem, m->bufs.at[i]->name)));
}

/* Loss and norm of what is trained; of a model that trains nothing its metrics, which else are means of what rounding may
 * turn, such as an argmax. */
static const struct op *next_scalar(const struct module *m, const struct op *op)
{
	while (op && !(op->code == OP_REPORT && (!is_trained(m) || streq(op->at.key, "loss") || streq(op->at.key, "grad_norm"))))
		op = op->next;
	return op;
}

static void compare_scalars(struct check *c, int64_t step)
{
	const struct module *m = c->twin->m;
	struct text t = { .mem = c->s->mem };
	int n = 0;

	for (const struct op *op = m->top.first; (op = next_scalar(m, op)); op = op->next) {
		const char *key = op->at.key;

		compare_scalar(c, key, step);
		if (n++ < MOST_SHOWN)
			text_put(&t, "%s%s %-9.6g", t.n ? " " : "", streq(key, "grad_norm") ? "norm" : key, scalar_of(c->twin, key));
	}
	c->scalars = t.n ? t.s : "";
}

static bool check_step(struct check *c, int64_t step)
{
	give_inputs(c, step);
	struct tensor **state = snapshot(c);

	restore(c, state);
	if (!run_both(c, step, true))
		return false;
	find_largest(c);
	compare_scalars(c, step);
	compare_buffers(c, Q_GRADIENT, step);
	if (c->errors)
		return false;
	restore(c, state);
	give_gradients(c);
	if (!run_both(c, step, false))
		return false;
	compare_buffers(c, Q_UPDATED, step);
	return !c->errors;
}

/* False if they differ. */
static bool check_sides(struct check c)
{
	bool same = true;

	for (int64_t step = 0; same && step < STEPS; step++) {
		c.mem = arena_new();
		c.seen.at = NULL;
		c.seen.n = c.seen.cap = 0;
		c.fed.at = NULL;
		c.fed.n = c.fed.cap = 0;
		if (step == 0) {
			compare_buffers(&c, Q_INITIAL, 0);
			c.update = 0;
			same = !c.errors;
		}
		same = same && check_step(&c, step);
		if (c.gradient_of)
			c.gradient_of = arena_strdup(c.s->mem, c.gradient_of);
		if (c.rounding_of)
			c.rounding_of = arena_strdup(c.s->mem, c.rounding_of);
		arena_free(c.mem);
	}
	if (same)
		printf("%-10s %s; of the bound: scalars %.1e, gradients %.1e (%s), updates %.1e\n", c.where, c.scalars, c.scalar, c.gradient, c.gradient_of ? c.gradient_of : "none", c.update);
	if (same && c.rounded)
		printf("%-10s rounding alone takes %d further than the fixed bound, at most by %.1e of its size (%s)%s\n", "", c.rounded, c.rounding_share,
		       c.rounding_of, c.precision == BF16 ? "; --set precision=fp32 compares closely" : "");
	fflush(stdout);
	return same;
}

/* -- the whole -- */

static bool check_kernels(struct session *s, struct module *twin, struct module *bare)
{
	uint64_t seed = seed_of(s->opt);
	struct side *a = side_runtime(s, backend_find(NULL, &s->diag), twin, seed);
	/* fp32 against double: rounding, and the kernels' own exp, tanh and log */
	bool same = a && check_sides((struct check){ s, .where = "kernels", .plan = a, .twin = side_eval(s, bare, seed), .bare = bare,
		.precision = twin->precision, .slack = twin->precision == BF16 ? 3 : 10 });

	if (a)
		a->close(a->self);
	return same;
}

/* The plan on a backend against its twin on the processor. */
static bool check_runtime(struct session *s, const struct backend *on, struct module *plan, struct module *twin, const struct module *bare)
{
	uint64_t seed = seed_of(s->opt);
	const struct backend *cpu = backend_find(NULL, &s->diag);
	struct side *b = side_runtime(s, cpu, twin, seed), *a = b ? side_runtime(s, on, plan, seed) : NULL;
	/* another backend sums in another order, and has its own exp */
	bool same = a && check_sides((struct check){ s, .where = on == cpu ? "runtime" : s->opt->backend, .plan = a, .twin = b, .bare = bare,
		.precision = twin->precision, .slack = on == cpu ? 1 : twin->precision == BF16 ? 3 : 10 });

	if (a)
		a->close(a->self);
	if (b)
		b->close(b->self);
	return same;
}

/* Sides are given the same inputs, params and states: these must be the same in number and size. */
static bool same_buffers(struct session *s, const struct module *m, const struct module *other)
{
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *a = m->bufs.at[i], *b = find_buffer(other, a->name);
		bool same = b && a->nd == b->nd;

		for (int k = 0; same && k < a->nd; k++)
			same = dim_size(m, a->d[k]) == dim_size(other, b->d[k]);
		if (same || !(is_saved(a) || is_probe(a, "") || a->role == B_INPUT))
			continue;
		diag_error(&s->diag, a->at, "--same-bits '%s' makes '%s' another tensor", s->opt->same_bits, a->name);
		diag_note(&s->diag, (struct span){ 0 }, "it is for how a step is computed: recompute, pipeline, microbatches, ...");
		return false;
	}
	return true;
}

/* The plan against itself with the settings of --same-bits. Stages are those of the plan, though other settings take
 * other times: what is summed stage by stage would round otherwise. */
static bool check_bits(struct session *s, const struct backend *on, struct module *plan, const char *set)
{
	uint64_t seed = seed_of(s->opt);
	struct diag loud = s->diag;

	diag_init(&s->diag, s->mem, &s->src, NULL); /* its warnings were given for the plan */
	struct module *other = check_plan(s, set, s->opt->same_bits, plan);

	if (!other)
		fputs(s->diag.log.s ? s->diag.log.s : "", stderr);
	s->diag = loud;
	bool fit = other && same_buffers(s, plan, other) && same_buffers(s, other, plan);
	struct side *b = fit ? side_runtime(s, on, other, seed) : NULL, *a = b ? side_runtime(s, on, plan, seed) : NULL;
	bool same = a && check_sides((struct check){ s, .where = "same bits", .plan = a, .twin = b, .precision = plan->precision });

	if (a)
		a->close(a->self);
	if (b)
		b->close(b->self);
	return same;
}

/* A model without `minimize`: what is compared all the same. False, after an error: nothing is. */
static bool say_untrained(struct session *s, const struct module *m)
{
	struct text t = { .mem = s->mem };
	bool states = false;

	for (const struct op *op = m->top.first; op; op = op->next) {
		const struct buffer *b = op->code == OP_WRITE ? find_buffer(m, op->at.buf) : NULL;

		if (op->code == OP_REPORT)
			text_put(&t, "%s%s", t.n ? ", " : "", op->at.key);
		states |= b && b->role == B_STATE;
	}
	if (!t.n && !states) {
		diag_error(&s->diag, (struct span){ 0 }, "%s has no 'minimize' and no 'metric': no rank computes anything that could differ", s->opt->file);
		diag_note(&s->diag, (struct span){ 0 }, "minimize loss with adamw(lr = 1e-3) trains it; metric m = loss reports what it computes");
		return false;
	}
	printf("nothing is trained, as there is no 'minimize': compared are%s%s%s%s, and named values on the evaluator\n", t.n ? " metrics (" : "", t.n ? t.s : "",
	       t.n ? ")" : "", states ? t.n ? ", states" : " states" : "");
	return true;
}

int cmd_check(struct session *s)
{
	const struct options *o = s->opt;
	uint64_t seed = seed_of(o);

	if (!is_model(o->file)) {
		diag_error(&s->diag, (struct span){ 0 }, "%s is no model (.pdsl)", o->file);
		diag_note(&s->diag, (struct span){ 0 }, "a plan has no one-rank twin; the model has");
		return WRONG;
	}
	if (o->same_bits && o->eval_only) {
		diag_error(&s->diag, (struct span){ 0 }, "--same-bits compares what the runtime computes, --evaluator leaves it out");
		return USAGE;
	}
	const struct backend *on = backend_find(o->backend, &s->diag), *cpu = backend_find(NULL, &s->diag);
	const char *set = on ? shrink_model(s, BUDGET) : NULL;

	if (!on)
		return WRONG;
	struct module *plan = check_plan(s, set, NULL, NULL);

	if (plan && module_ranks(plan) > MOST_CHECKED) {
		diag_error(&s->diag, (struct span){ 0 }, "%lld ranks are too many to do what each of them does; at most %d", (long long)module_ranks(plan), MOST_CHECKED);
		diag_note(&s->diag, (struct span){ 0 }, "ptc verify proves a plan of any size; for the numbers take a smaller mesh of the same axes, as --mesh dp=2,tp=2");
		return WRONG;
	}
	if (plan && !is_trained(plan) && !say_untrained(s, plan))
		return WRONG;
	struct module *bare = plan ? check_twin(s, plan, set, "optimizer") : NULL;
	struct module *twin = bare && !o->eval_only ? check_twin(s, plan, set, NULL) : NULL;

	if (!plan || !bare || (!twin && !o->eval_only))
		return WRONG;
	printf("%s: %lld rank%s (%s), %lld microbatch%s, against one rank\nbound: %s\n", o->file, (long long)module_ranks(plan),
	       module_ranks(plan) == 1 ? "" : "s", mesh_text(s->mem, plan), (long long)plan->micro,
	       plan->micro == 1 ? "" : "es", check_bound_text(plan->precision));
	fflush(stdout);
	bool same = on != cpu || check_sides((struct check){ s, .where = "evaluator", .plan = side_eval(s, plan, seed),
		.twin = side_eval(s, bare, seed), .bare = bare, .exact = true, .precision = F32, .slack = 1 });

	if (!o->eval_only && !(check_runtime(s, on, plan, twin, bare) && (on != cpu || check_kernels(s, twin, bare))))
		same = false;
	if (same && o->same_bits && !o->eval_only && !check_bits(s, on, plan, set))
		same = false;
	puts(same ? "the same" : "not the same");
	return same ? DONE : WRONG;
}
