/* frontend/cmd_explain_comm.c - the table of collectives for people. */
#include <stdio.h>

#include "frontend/cmd.h"

/* Rows of one op, axis, link and source line are one: the optimizer's are as many as there are params. */
struct line {
	const struct comm_row *row;
	double *count, *bytes, *rows; /* by stage; rows of the table that are this one */
};

struct lines {
	VEC(struct line) v;
};

static bool alike(const struct comm_row *a, const struct comm_row *b)
{
	return a->op == b->op && streq(a->axis, b->axis) && streq(a->link, b->link) && a->at.file == b->at.file && a->at.line == b->at.line;
}

/* "all_gather of h over tp: q needs seq whole (f:1)" without what the row says already. */
static const char *short_why(struct arena *mem, const struct comm_row *row)
{
	const char *why = row->why ? row->why : "", *op = row->name;
	const char *over = arena_printf(mem, " over %s: ", row->axis), *cut = strstr(why, over);
	size_t skip = strlen(op) + strlen(" of ");

	if (!cut || strncmp(why, op, strlen(op)) != 0 || (size_t)(cut - why) < skip)
		return why;
	return arena_printf(mem, "%.*s: %s", (int)(cut - why - (ptrdiff_t)skip), why + skip, cut + strlen(over));
}

/* With a column for the stages if there are some, and for the link if the hardware has several. */
static void print_row(const struct module *m, FILE *out, const char *op, const char *axis, const char *link, const char *stages)
{
	fprintf(out, "%-15s %-8s ", op, axis);
	if (pipe_axis(m) >= 0)
		fprintf(out, "%-7s ", stages);
	if (m->hw.nlink > 1)
		fprintf(out, "%-7s ", link);
}

static struct line *find_line(struct arena *mem, struct lines *all, const struct comm_row *row, int stages)
{
	for (uint32_t i = 0; i < all->v.n; i++)
		if (alike(all->v.at[i].row, row))
			return &all->v.at[i];
	PUSH(mem, &all->v, ((struct line){ row, NEWN(mem, double, stages), NEWN(mem, double, stages), NEWN(mem, double, stages) }));
	return &all->v.at[all->v.n - 1];
}

/* Rows of one stage are added to the lines, total is what it sends. */
static void add_stage(struct session *s, const struct module *m, int stage, struct lines *all, double *total)
{
	int n, stages = pipe_stages(m);
	struct comm_row *rows = stage_table(s->mem, m, stage, &n);

	for (int i = 0; i < n; i++) {
		struct line *l = find_line(s->mem, all, &rows[i], stages);

		l->rows[stage]++;
		l->count[stage] += rows[i].count;
		l->bytes[stage] += rows[i].bytes;
		*total += rows[i].bytes;
	}
}

/* "0-2,5" */
static const char *stage_list(struct arena *mem, const struct line *l, int stages)
{
	struct text t = { .mem = mem };

	for (int d = 0; d < stages; d++) {
		int from = d;

		if (l->count[d] <= 0)
			continue;
		while (d + 1 < stages && l->count[d + 1] > 0)
			d++;
		text_put(&t, from == d ? "%s%d" : "%s%d-%d", t.n ? "," : "", from, d);
	}
	return t.s;
}

/* Of the stage that sends most of it. */
static void print_line(struct session *s, const struct module *m, FILE *out, const struct line *l)
{
	int stages = pipe_stages(m), most = 0;

	for (int d = 1; d < stages; d++)
		most = l->bytes[d] > l->bytes[most] ? d : most;
	print_row(m, out, l->row->name, l->row->axis, l->row->link, stage_list(s->mem, l, stages));
	fprintf(out, "%7.0f %12.0f  %s", l->count[most], l->bytes[most], short_why(s->mem, l->row));
	if (l->rows[most] > 1)
		fprintf(out, "; and %.0f more", l->rows[most] - 1);
	fputc('\n', out);
}

void print_comm(struct session *s, const struct module *m, FILE *out)
{
	int stages = pipe_stages(m), most = 0;
	double *total = NEWN(s->mem, double, stages);
	struct lines all = { 0 };

	for (int d = 0; d < stages; d++) {
		add_stage(s, m, d, &all, &total[d]);
		most = total[d] > total[most] ? d : most;
	}
	if (!all.v.n) {
		fputs("no collectives\n", out);
		return;
	}
	print_row(m, out, "collective", "axis", "link", "stages");
	fprintf(out, "%7s %12s  %s\n", "count", "bytes", "why");
	for (uint32_t i = 0; i < all.v.n; i++)
		print_line(s, m, out, &all.v.at[i]);
	print_row(m, out, "all", "", "", pipe_axis(m) >= 0 ? arena_printf(s->mem, "%d", most) : "");
	fprintf(out, "%7s %12.0f  sent by a rank in a step\n", "", total[most]);
}
