/* frontend/cmd_explain_side.c - several plans side by side, in 100 columns: what is the same in all is said once, what
 * differs with how much it differs from the first. */
#include <math.h>
#include <stdio.h>

#include "frontend/cmd_explain.h"

enum { LABEL = 20, COLUMN = 16 };

/* One line of the table: a text for each plan, and a number to compare; NAN: texts only. */
struct side {
	const char *text[MAX_SIDE];
	double x[MAX_SIDE];
};

struct sides {
	struct session *s;
	const struct facts *f;
	int n;
};

static const char *cell(struct sides *t, const struct side *r, int i)
{
	double a = r->x[0], b = r->x[i], more = b / a - 1;

	if (i && streq(r->text[0], r->text[i]))
		return "=";
	if (!i || isnan(a) || isnan(b) || a <= 0 || fabs(more) < 0.0005 || more >= 999) /* so much the texts tell, in less room */
		return r->text[i];
	if (fabs(more) < 1)
		return arena_printf(t->s->mem, "%s %+.3g%%", r->text[i], round(1000 * more) / 10);
	return arena_printf(t->s->mem, "%s x%.3g", r->text[i], b / a);
}

static void print_side(struct sides *t, const char *label, const struct side *r)
{
	printf("%-*.*s", LABEL, LABEL - 1, label);
	for (int i = 0; i < t->n; i++)
		printf("%*.*s", COLUMN, COLUMN - 1, cell(t, r, i));
	putchar('\n');
}

/* Words: no percentages. k is handed on to the function. */
static void print_words(struct sides *t, const char *label, const char *(*of)(struct sides *, int, int), int k)
{
	struct side r;

	for (int i = 0; i < t->n; i++) {
		r.text[i] = of(t, i, k);
		r.x[i] = NAN;
	}
	print_side(t, label, &r);
}

enum look { AS_COUNT, AS_AMOUNT, AS_BYTES, AS_SECONDS, AS_PERCENT, AS_DAYS };

static const char *look_text(struct arena *a, enum look look, double x)
{
	switch (look) {
	case AS_COUNT:
		return arena_printf(a, "%.0f", x);
	case AS_AMOUNT:
		return amount(a, x, "");
	case AS_BYTES:
		return amount(a, x, "B");
	case AS_SECONDS:
		return seconds_text(a, x);
	case AS_DAYS:
		return long_time(a, x);
	case AS_PERCENT:
		break;
	}
	return arena_printf(a, "%.1f %%", 100 * x);
}

/* Figures, by function; those that are counts or shares are not compared in per cent. */
static void print_figure(struct sides *t, const char *label, enum look look, double (*of)(const struct facts *, double), double k)
{
	struct side r;

	for (int i = 0; i < t->n; i++) {
		double x = of(&t->f[i], k);

		r.text[i] = look_text(t->s->mem, look, x);
		r.x[i] = look == AS_COUNT || look == AS_PERCENT ? NAN : x;
	}
	print_side(t, label, &r);
}

#define FIGURE(name, value) static double name(const struct facts *f, double k) { (void)k; return (double)(value); }
FIGURE(ranks, module_ranks(f->m))
FIGURE(micro, f->m->micro)
FIGURE(rows, rows_of_microbatch(f->m))
FIGURE(params, param_count(f->m))
FIGURE(model_flops, f->flops.model)
FIGURE(rank_flops, f->flops.hardware)
FIGURE(peak, f->peak)
FIGURE(limit, f->m->hw.memory)
FIGURE(kind_bytes, f->live[f->fullest].of[(int)k])
FIGURE(step, f->time.step)
FIGURE(compute, f->time.compute)
FIGURE(exposed, f->time.exposed)
FIGURE(copies, f->time.copies)
FIGURE(bubble, fabs(f->time.bubble))
FIGURE(mfu, f->time.mfu)
FIGURE(hfu, f->time.hfu)
FIGURE(speed, f->time.tokens)
FIGURE(price, f->time.per_tokens)
FIGURE(run_seconds, run_of(f, k).seconds)
FIGURE(run_dollars, run_of(f, k).dollars)
FIGURE(run_wh, run_of(f, k).joules / 3600)

static const char *hardware(struct sides *t, int i, int k)
{
	(void)k;
	return t->f[i].m->hw.name ? t->f[i].m->hw.name : "";
}

static const char *pipeline(struct sides *t, int i, int k)
{
	(void)k;
	return pipe_axis(t->f[i].m) < 0 ? "none" : schedule_name(t->f[i].time.costs.s.kind);
}

static const char *recompute(struct sides *t, int i, int k)
{
	(void)k;
	return recompute_name[t->f[i].m->recompute.how];
}

static const char *fits(struct sides *t, int i, int k)
{
	(void)k;
	return (double)t->f[i].peak <= t->f[i].m->hw.memory ? "yes" : "no";
}

/* The size of the k-th of the axes that any of the plans has. */
struct names {
	VEC(const char *) v;
};

static struct names axes_of(struct sides *t)
{
	struct names all = { 0 };

	for (int i = 0; i < t->n; i++)
		for (uint32_t k = 0; k < t->f[i].m->mesh.n; k++) {
			const char *name = t->f[i].m->mesh.at[k].name;
			bool seen = false;

			for (uint32_t j = 0; j < all.v.n; j++)
				seen |= streq(all.v.at[j], name);
			if (!seen)
				PUSH(t->s->mem, &all.v, name);
		}
	return all;
}

static const char *axis_size(struct sides *t, int i, int k)
{
	const char *name = axes_of(t).v.at[k];
	const struct module *m = t->f[i].m;

	for (uint32_t a = 0; a < m->mesh.n; a++)
		if (streq(m->mesh.at[a].name, name))
			return arena_printf(t->s->mem, "%d", m->mesh.at[a].size);
	return "-";
}

static void print_layout(struct sides *t)
{
	struct names axes = axes_of(t);

	print_figure(t, "ranks", AS_COUNT, ranks, 0);
	for (uint32_t k = 0; k < axes.v.n; k++)
		print_words(t, arena_printf(t->s->mem, "  %s", axes.v.at[k]), axis_size, (int)k);
	print_words(t, "on", hardware, 0);
	print_figure(t, "microbatches", AS_COUNT, micro, 0);
	print_figure(t, "  rows of a rank", AS_COUNT, rows, 0);
	print_words(t, "pipeline", pipeline, 0);
	print_words(t, "recompute", recompute, 0);
	print_figure(t, "params", AS_AMOUNT, params, 0);
	print_figure(t, "FLOPs of the model", AS_AMOUNT, model_flops, 0);
	print_figure(t, "  of all ranks", AS_AMOUNT, rank_flops, 0);
}

static void print_memory(struct sides *t)
{
	print_figure(t, "memory a rank", AS_BYTES, peak, 0);
	for (int k = 0; k < NMEM; k++)
		print_figure(t, arena_printf(t->s->mem, "  %s", mem_kind_name[k]), AS_BYTES, kind_bytes, k);
	print_figure(t, "  there is", AS_BYTES, limit, 0);
	print_words(t, "  fits", fits, 0);
}

static bool any_copies(const struct sides *t)
{
	bool any = false;

	for (int i = 0; i < t->n; i++)
		any |= t->f[i].time.copies > 0;
	return any;
}

static void print_speed(struct sides *t)
{
	print_figure(t, "a step", AS_SECONDS, step, 0);
	print_figure(t, "  compute", AS_SECONDS, compute, 0);
	print_figure(t, "  exposed comm", AS_SECONDS, exposed, 0);
	if (any_copies(t))
		print_figure(t, "    host copies", AS_SECONDS, copies, 0);
	print_figure(t, "  bubble", AS_PERCENT, bubble, 0);
	print_figure(t, "MFU", AS_PERCENT, mfu, 0);
	print_figure(t, "HFU", AS_PERCENT, hfu, 0);
	print_figure(t, "tokens/s a rank", AS_AMOUNT, speed, 0);
	print_figure(t, "dollars/1e12 tokens", AS_AMOUNT, price, 0);
	if (t->s->opt->tokens > 0) {
		print_figure(t, "the whole run", AS_DAYS, run_seconds, t->s->opt->tokens);
		print_figure(t, "  dollars", AS_AMOUNT, run_dollars, t->s->opt->tokens);
		print_figure(t, "  Wh", AS_AMOUNT, run_wh, t->s->opt->tokens);
	}
}

/* -- what is sent, by op and axis, on the stage that sends most of it -- */

struct sent {
	const char *op, *axis;
	double bytes[MAX_SIDE];
};

struct sents {
	VEC(struct sent) v;
};

static struct sent *find_sent(struct sides *t, struct sents *all, const char *op, const char *axis)
{
	for (uint32_t i = 0; i < all->v.n; i++)
		if (streq(all->v.at[i].op, op) && streq(all->v.at[i].axis, axis))
			return &all->v.at[i];
	PUSH(t->s->mem, &all->v, ((struct sent){ .op = op, .axis = axis }));
	return &all->v.at[all->v.n - 1];
}

static void add_stage(struct sides *t, struct sents *all, int plan, int stage)
{
	int n;
	struct comm_row *rows = stage_table(t->s->mem, t->f[plan].m, stage, &n);
	struct sents here = { 0 };

	for (int i = 0; i < n; i++)
		find_sent(t, &here, rows[i].name, rows[i].axis)->bytes[0] += rows[i].bytes;
	for (uint32_t i = 0; i < here.v.n; i++) {
		double *most = &find_sent(t, all, here.v.at[i].op, here.v.at[i].axis)->bytes[plan];

		*most = here.v.at[i].bytes[0] > *most ? here.v.at[i].bytes[0] : *most;
	}
}

static void print_sent(struct sides *t)
{
	struct arena *a = t->s->mem;
	struct sents all = { 0 };

	for (int i = 0; i < t->n; i++)
		for (int d = 0; d < t->f[i].stages; d++)
			add_stage(t, &all, i, d);
	printf("sent by a rank in a step\n");
	for (uint32_t k = 0; k < all.v.n; k++) {
		const struct sent *x = &all.v.at[k];
		struct side r;

		for (int i = 0; i < t->n; i++) {
			r.x[i] = x->bytes[i];
			r.text[i] = x->bytes[i] > 0 ? amount(a, x->bytes[i], "B") : "-";
			if (x->bytes[i] <= 0)
				r.x[i] = NAN;
		}
		print_side(t, arena_printf(a, "  %s %s", x->op, x->axis), &r);
	}
}

/* Up to MAX_SIDE in one table; more are several tables, the first plan in each. */
void print_sides(struct session *s, const struct facts *all, int n)
{
	struct facts part[MAX_SIDE] = { all[0] };

	for (int from = 1; from < n; from += MAX_SIDE - 1) {
		struct sides t = { s, part, 1 };

		while (t.n < MAX_SIDE && from + t.n - 1 < n) {
			part[t.n] = all[from + t.n - 1];
			t.n++;
		}
		printf("%s%*s", from > 1 ? "\n" : "", LABEL, "");
		for (int i = 0; i < t.n; i++)
			printf("%*s", COLUMN, short_name(s->mem, part[i].name, COLUMN - 2));
		putchar('\n');
		print_layout(&t);
		print_memory(&t);
		print_speed(&t);
		print_sent(&t);
	}
}
