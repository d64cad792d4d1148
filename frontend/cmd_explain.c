/* frontend/cmd_explain.c - ptc explain: what a step of a plan computes, sends and stores, and what time it
 * takes. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd.h"
#include "passes/report.h"

struct facts {
	struct flops flops;
	struct stage_memory *memory; /* by stage */
	struct step_time time;
	int stages;
	int64_t peak;
};

static struct facts find_facts(struct arena *mem, const struct module *m)
{
	struct facts f = { count_flops(m), stage_memories(mem, m), .stages = pipe_stages(m) };

	f.time = step_time_of(mem, m, &f.flops);
	for (int d = 0; d < f.stages; d++)
		f.peak = f.memory[d].peak > f.peak ? f.memory[d].peak : f.peak;
	return f;
}

static double chunk_seconds(const struct facts *f, int stage, enum action_kind kind)
{
	double sum = 0;

	for (int g = 0; g < f->time.costs.s.p * f->time.costs.s.v; g++)
		if (schedule_stage(&f->time.costs.s, g) == stage)
			sum += f->time.costs.c.chunk[g].seconds[kind];
	return sum;
}

/* -- for programs -- */

static void add_comm(struct session *s, const struct module *m, int stage, json_t *list)
{
	int n;
	struct comm_row *rows = stage_table(s->mem, m, stage, &n);

	for (int i = 0; i < n; i++) {
		json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:I, s:s}", "op", rows[i].name, "axis", rows[i].axis, "link",
					rows[i].link, "count", (json_int_t)rows[i].count, "bytes", (json_int_t)rows[i].bytes,
					"why", rows[i].why ? rows[i].why : "");

		if (pipe_axis(m) >= 0)
			json_object_set_new(row, "stage", json_integer(stage));
		json_array_append_new(list, row);
	}
}

static json_t *stage_json(const struct module *m, const struct facts *f, int d)
{
	const struct stage_memory *x = &f->memory[d];
	json_t *stage = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "peak", (json_int_t)x->peak, "params", (json_int_t)x->params,
				  "grads", (json_int_t)x->grads, "optimizer", (json_int_t)x->optimizer, "activations",
				  (json_int_t)x->activations, "workspace", (json_int_t)x->workspace, "comm", (json_int_t)x->comm,
				  "host", (json_int_t)m->host);

	if (stage && pipe_axis(m) >= 0)
		json_object_update_new(stage, json_pack("{s:I, s:I, s:f, s:f, s:f}", "iterations", (json_int_t)stage_iterations(m, d),
				       "elements", (json_int_t)stage_params(m, d), "forward_s", chunk_seconds(f, d, ACT_F),
				       "backward_s", chunk_seconds(f, d, ACT_B), "in_flight", f->time.run.stage[d].peak));
	return stage;
}

static int explain_json(struct session *s, const struct module *m, const struct facts *f)
{
	const struct step_time *t = &f->time;
	json_t *stages = json_array(), *comm = json_array();

	for (int d = 0; d < f->stages; d++) {
		json_array_append_new(stages, stage_json(m, f, d));
		add_comm(s, m, d, comm);
	}
	json_t *all = json_pack("{s:I, s:I, s:{s:f, s:f, s:f, s:f}, s:f, s:{s:I, s:o}, s:o}", "ranks",
				(json_int_t)module_ranks(m), "params", (json_int_t)param_count(m), "flops", "model",
				f->flops.model, "hardware", f->flops.hardware, "causal", f->flops.model, "full", f->flops.full,
				"imbalance", attention_imbalance(m), "memory", "peak", (json_int_t)f->peak, "stages", stages,
				"comm", comm);
	if (all)
		json_object_update_new(all, json_pack("{s:{s:f, s:f, s:f, s:f}, s:f, s:f, s:f, s:f, s:{s:f, s:f}}", "time", "step_s",
				       t->step, "compute_s", t->compute, "exposed_comm_s", t->exposed, "bubble_fraction", t->bubble,
				       "mfu", t->mfu, "hfu", t->hfu, "tflops_per_gpu", t->tflops, "tokens_per_s_per_gpu", t->tokens,
				       "cost", "usd_per_step", t->dollars, "usd_per_1e12_tokens", t->per_tokens));
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

static const char *seconds(struct arena *mem, double x)
{
	return x >= 1 ? arena_printf(mem, "%.2f s", x) : x >= 1e-3 ? arena_printf(mem, "%.2f ms", 1e3 * x) :
			arena_printf(mem, "%.1f us", 1e6 * x);
}

static void print_time(struct arena *a, const struct module *m, const struct step_time *t)
{
	printf("time        %s a step, predicted: compute %s, exposed communication %s", seconds(a, t->step), seconds(a, t->compute),
	       seconds(a, t->exposed));
	if (pipe_axis(m) >= 0)
		printf(", bubble %.1f %%", 100 * t->bubble);
	printf("\nspeed       MFU %.1f %%, HFU %.1f %%; %.1f TFLOP/s and %.0f tokens/s a rank\n", 100 * t->mfu, 100 * t->hfu, t->tflops,
	       t->tokens);
	if (m->hw.price > 0)
		printf("cost        $%.3g a step, $%.3g for 1e12 tokens\n", t->dollars, t->per_tokens);
}

static void print_stages(struct arena *a, const struct module *m, const struct facts *f)
{
	const struct schedule *s = &f->time.costs.s;

	printf("pipeline    %s, %d stages", schedule_name(s->kind), s->p);
	if (s->v > 1)
		printf(" of %d chunks", s->v);
	printf(", %d microbatch%s", s->m, s->m == 1 ? "" : "es");
	if (s->list)
		printf(", %s", s->kind == SCHED_LIST ? "in the order of the file" : "in an order that suits its costs better");
	else if (s->warm_extra)
		printf(", %d more warm-up", s->warm_extra);
	printf("\n\nstage iters   params   forward  backward  flight      peak    params     grads optimizer activations\n");
	for (int d = 0; d < s->p; d++) {
		const struct stage_memory *x = &f->memory[d];

		printf("%5d %5lld %8s %9s %9s %7.4g %9s %9s %9s %9s %11s\n", d, (long long)stage_iterations(m, d),
		       amount(a, (double)stage_params(m, d), ""), seconds(a, chunk_seconds(f, d, ACT_F)), seconds(a, chunk_seconds(f, d, ACT_B)),
		       f->time.run.stage[d].peak, amount(a, (double)x->peak, "B"), amount(a, (double)x->params, "B"),
		       amount(a, (double)x->grads, "B"), amount(a, (double)x->optimizer, "B"), amount(a, (double)x->activations, "B"));
	}
}

static int explain_text(struct session *s, const struct module *m, const struct facts *f)
{
	struct arena *a = s->mem;
	int most = 0;

	for (int d = 1; d < f->stages; d++)
		most = f->memory[d].peak > f->memory[most].peak ? d : most;
	const struct stage_memory *x = &f->memory[most];
	printf("ranks       %lld (%s)\n", (long long)module_ranks(m), mesh_text(a, m));
	printf("params      %lld\n", (long long)param_count(m));
	printf("flops       %s a step; %s with padding and what ranks compute twice\n", amount(a, f->flops.model, "FLOP"),
	       amount(a, f->flops.hardware, "FLOP"));
	if (attention_imbalance(m) > 1.01)
		printf("balance     the slowest rank makes %.2f times the mean of the scores of causal attention; order = zigzag evens it out\n",
		       attention_imbalance(m));
	printf("memory      %s a rank", amount(a, (double)x->peak, "B"));
	if (pipe_axis(m) >= 0)
		printf(" of stage %d, the most; workspace %s of it\n", most, amount(a, (double)x->workspace, "B"));
	else
		printf(": params %s, gradients %s, optimizer %s, activations %s, workspace %s\n", amount(a, (double)x->params, "B"),
		       amount(a, (double)x->grads, "B"), amount(a, (double)x->optimizer, "B"),
		       amount(a, (double)x->activations, "B"), amount(a, (double)x->workspace, "B"));
	if (m->host) {
		struct host_traffic copies = host_traffic(m);

		printf("host        %s a rank; %s copied to the device in a step, %s back\n", amount(a, (double)m->host, "B"),
		       amount(a, copies.in, "B"), amount(a, copies.out, "B"));
	}
	print_time(a, m, &f->time);
	if (pipe_axis(m) >= 0)
		print_stages(a, m, f);
	putchar('\n');
	print_comm(s, m, stdout);
	return fflush(stdout) ? MACHINE : DONE;
}

int cmd_explain(struct session *s)
{
	struct module *m = load_plan(s);

	if (!m)
		return WRONG;
	struct facts f = find_facts(s->mem, m);

	return s->opt->json ? explain_json(s, m, &f) : explain_text(s, m, &f);
}
