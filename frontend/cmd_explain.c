/* frontend/cmd_explain.c - ptc explain: what a step of a plan computes, sends and stores. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd.h"

struct flops {
	double model, hardware, full;
};

/* times: iterations of the repeats around the block. Logical sizes cover all microbatches. */
static void add_flops(const struct module *m, const struct block *b, double times, struct flops *f)
{
	for (const struct op *op = b->first; op; op = op->next) {
		if (op->body) {
			double n = op->code == OP_REPEAT ? (double)dim_size(m, op->at.dim) : 1;

			add_flops(m, op->body, times * n, f);
			continue;
		}
		double one = times * op_flops(m, op);
		bool half = (op->code == OP_ATTENTION || op->code == OP_ATTENTION_GRAD) && HAS(op, causal);

		if (!HAS(op, again)) {
			f->model += one;
			f->full += half ? 2 * one : one; /* scores above the diagonal too */
		}
		f->hardware += op_times(m, op) * op_local_flops(m, op) * (double)module_ranks(m);
	}
}

/* -- for programs -- */

static json_t *comm_json(struct session *s, const struct module *m)
{
	int n;
	struct comm_row *rows = comm_table(s->mem, m, &n);
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:I, s:s}", "op", rows[i].name,
					      "axis", rows[i].axis, "link", rows[i].link, "count", (json_int_t)rows[i].count, "bytes",
					      (json_int_t)rows[i].bytes, "why", rows[i].why ? rows[i].why : ""));
	return list;
}

static json_t *stage_json(const struct memory *x)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "peak", (json_int_t)x->peak, "params", (json_int_t)x->params,
			 "grads", (json_int_t)x->grads, "optimizer", (json_int_t)x->optimizer, "activations",
			 (json_int_t)x->activations, "workspace", (json_int_t)x->workspace, "comm", (json_int_t)x->comm,
			 "host", (json_int_t)x->host);
}

static int explain_json(struct session *s, const struct module *m, const struct flops *f, const struct memory *x, int stages)
{
	json_t *list = json_array();

	for (int i = 0; i < stages; i++)
		json_array_append_new(list, stage_json(&x[i]));
	json_t *all = json_pack("{s:I, s:I, s:{s:f, s:f, s:f, s:f}, s:f, s:{s:I, s:o}, s:o}", "ranks",
				(json_int_t)module_ranks(m), "params", (json_int_t)param_count(m), "flops", "model",
				f->model, "hardware", f->hardware, "causal", f->model, "full", f->full, "imbalance",
				attention_imbalance(m), "memory",
				"peak", (json_int_t)(m->arena + m->workspace), "stages", list, "comm", comm_json(s, m));
	char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

	if (!text)
		die("json_dumps failed");
	puts(text);
	free(text);
	json_decref(all);
	return fflush(stdout) ? MACHINE : DONE;
}

/* -- for people -- */

static const char *amount(struct arena *mem, double x, const char *unit)
{
	static const char *const prefix[] = { "", "k", "M", "G", "T", "P", "E" };
	size_t i = 0;

	while (x >= 1000 && i + 1 < LEN(prefix)) {
		x /= 1000;
		i++;
	}
	return arena_printf(mem, x == (double)(int64_t)x && i == 0 ? "%.0f %s%s" : "%.1f %s%s", x, prefix[i], unit);
}

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

/* With a column for the link if the hardware has several. */
static void print_row(const struct module *m, FILE *out, const char *op, const char *axis, const char *link)
{
	fprintf(out, "%-15s %-8s ", op, axis);
	if (m->hw.nlink > 1)
		fprintf(out, "%-7s ", link);
}

/* Rows of one op, axis, link and line are one: the optimizer's are as many as there are params. */
void print_comm(struct session *s, const struct module *m, FILE *out)
{
	int n;
	struct comm_row *rows = comm_table(s->mem, m, &n);
	bool *done = NEWN(s->mem, bool, n + 1);
	double total = 0;

	if (n == 0) {
		fputs("no collectives\n", out);
		return;
	}
	print_row(m, out, "collective", "axis", "link");
	fprintf(out, "%7s %12s  %s\n", "count", "bytes", "why");
	for (int i = 0; i < n; i++) {
		double count = 0, bytes = 0;
		int more = -1;

		total += rows[i].bytes;
		for (int k = i; k < n && !done[i]; k++) {
			if (k != i && (done[k] || !alike(&rows[i], &rows[k])))
				continue;
			count += rows[k].count;
			bytes += rows[k].bytes;
			done[k] = k != i;
			more++;
		}
		if (done[i])
			continue;
		print_row(m, out, rows[i].name, rows[i].axis, rows[i].link);
		fprintf(out, "%7.0f %12.0f  %s", count, bytes, short_why(s->mem, &rows[i]));
		if (more)
			fprintf(out, "; and %d more", more);
		fputc('\n', out);
	}
	print_row(m, out, "all", "", "");
	fprintf(out, "%7s %12.0f  sent by a rank in a step\n", "", total);
}

static void print_memory(struct arena *a, const char *whose, const struct memory *x)
{
	printf("%-11s %s a rank: params %s, gradients %s, optimizer %s, activations %s, workspace %s", whose,
	       amount(a, (double)x->peak, "B"), amount(a, (double)x->params, "B"), amount(a, (double)x->grads, "B"),
	       amount(a, (double)x->optimizer, "B"), amount(a, (double)x->activations, "B"),
	       amount(a, (double)x->workspace, "B"));
	if (x->comm)
		printf(", messages %s", amount(a, (double)x->comm, "B"));
	if (x->host)
		printf("; on the host %s", amount(a, (double)x->host, "B"));
	putchar('\n');
}

static int explain_text(struct session *s, const struct module *m, const struct flops *f, const struct memory *x, int stages)
{
	struct arena *a = s->mem;

	printf("ranks       %lld (%s)\n", (long long)module_ranks(m), mesh_text(a, m));
	printf("params      %lld\n", (long long)param_count(m));
	printf("flops       %s a step; %s with padding%s what ranks compute twice%s\n", amount(a, f->model, "FLOP"),
	       amount(a, f->hardware, "FLOP"), m->recompute.how ? "," : " and",
	       m->recompute.how ? " and what backward makes again" : "");
	if (attention_imbalance(m) > 1.01)
		printf("balance     the slowest rank makes %.2f times the mean of the scores of causal attention; order = zigzag evens it out\n",
		       attention_imbalance(m));
	for (int i = 0; i < stages; i++)
		print_memory(a, stages == 1 ? "memory" : arena_printf(a, "stage %d", i), &x[i]);
	struct host_traffic copies = host_traffic(m);
	if (m->host)
		printf("host        %s copied to the device in a step, %s back\n", amount(a, copies.in, "B"), amount(a, copies.out, "B"));
	putchar('\n');
	print_comm(s, m, stdout);
	return fflush(stdout) ? MACHINE : DONE;
}

int cmd_explain(struct session *s)
{
	struct module *m = load_plan(s);
	struct flops f = { 0 };

	if (!m)
		return WRONG;
	add_flops(m, &m->top, 1, &f);
	int stages;
	struct memory *x = count_memory(s, m, &stages);
	return s->opt->json ? explain_json(s, m, &f, x, stages) : explain_text(s, m, &f, x, stages);
}
