/* frontend/cmd_explain.c - ptc explain: what a step of a plan computes, sends and stores, and what time it
 * takes. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_explain.h"
#include "passes/trace.h"

bool find_facts(struct session *s, struct module *m, struct facts *f)
{
	*f = (struct facts){ s->opt->file, m, count_flops(m), .stages = pipe_stages(m) };
	f->live = live_at_peak(s->mem, m, &s->diag);
	if (!f->live)
		return false;
	for (int d = 0; d < f->stages; d++)
		if (f->live[d].peak > f->peak) {
			f->peak = f->live[d].peak;
			f->fullest = d;
		}
	f->time = step_time_of(s->mem, m, &f->flops); /* numbers the ops: last */
	return true;
}

double chunk_seconds(const struct facts *f, int stage, enum action_kind kind)
{
	double sum = 0;

	for (int g = 0; g < f->time.costs.s.p * f->time.costs.s.v; g++)
		if (schedule_stage(&f->time.costs.s, g) == stage)
			sum += f->time.costs.c.chunk[g].seconds[kind];
	return sum;
}

/* -- for people -- */

const char *amount(struct arena *mem, double x, const char *unit)
{
	static const char *const prefix[] = { "", "k", "M", "G", "T", "P", "E" };
	size_t i = 0;

	while (x >= 1000 && i + 1 < LEN(prefix)) {
		x /= 1000;
		i++;
	}
	return arena_printf(mem, x == (double)(int64_t)x && i == 0 ? "%.0f %s%s" : "%.1f %s%s", x, prefix[i], unit);
}

const char *seconds_text(struct arena *mem, double x)
{
	return x >= 1 ? arena_printf(mem, "%.2f s", x) : x >= 1e-3 ? arena_printf(mem, "%.2f ms", 1e3 * x) :
			arena_printf(mem, "%.1f us", 1e6 * x);
}

static void print_time(struct arena *a, const struct module *m, const struct step_time *t)
{
	printf("time        %s a step, predicted: compute %s, exposed communication %s", seconds_text(a, t->step), seconds_text(a, t->compute),
	       seconds_text(a, t->exposed));
	if (pipe_axis(m) >= 0)
		printf(", bubble %.1f %%", 100 * t->bubble);
	printf("\nspeed       MFU %.1f %%, HFU %.1f %%; %.1f TFLOP/s and %.0f tokens/s a rank\n", 100 * t->mfu, 100 * t->hfu, t->tflops,
	       t->tokens);
	if (m->hw.price > 0)
		printf("cost        $%.3g a step, $%.3g for 1e12 tokens\n", t->dollars, t->per_tokens);
}

static void print_pipeline(const struct schedule *s)
{
	printf("pipeline    %s, %d stages", schedule_name(s->kind), s->p);
	if (s->v > 1)
		printf(" of %d chunks", s->v);
	printf(", %d microbatch%s", s->m, s->m == 1 ? "" : "es");
	if (s->list)
		printf(", %s", s->kind == SCHED_LIST ? "in the order of the file" : "in an order that suits its costs better");
	else if (s->warm_extra)
		printf(", %d more warm-up", s->warm_extra);
	putchar('\n');
}

static void print_stages(struct arena *a, const struct facts *f)
{
	static const enum mem_kind column[] = { MEM_PARAMS, MEM_GRADS, MEM_OPTIMIZER, MEM_ACTIVATIONS, MEM_COMM };

	printf("\nstage iters  params   forward  backward flight     peak");
	for (size_t i = 0; i < LEN(column); i++)
		printf(" %8.8s", column[i] == MEM_ACTIVATIONS ? "activ." : column[i] == MEM_OPTIMIZER ? "optim." : mem_kind_name[column[i]]);
	for (int d = 0; d < f->stages; d++) {
		printf("\n%5d %5lld %7s %9s %9s %6.4g %8s", d, (long long)stage_iterations(f->m, d), amount(a, (double)stage_params(f->m, d), ""),
		       seconds_text(a, chunk_seconds(f, d, ACT_F)), seconds_text(a, chunk_seconds(f, d, ACT_B)), f->time.run.stage[d].peak,
		       amount(a, (double)f->live[d].peak, "B"));
		for (size_t i = 0; i < LEN(column); i++)
			printf(" %8s", amount(a, (double)f->live[d].of[column[i]], "B"));
	}
	putchar('\n');
}

static void print_memory(struct arena *a, const struct facts *f)
{
	const struct stage_live *x = &f->live[f->fullest];
	double over = (double)f->peak - f->m->hw.memory;

	printf("memory      %s ", amount(a, (double)x->peak, "B"));
	if (f->m->hw.memory > 0)
		printf("of %s ", amount(a, f->m->hw.memory, "B"));
	printf("a rank");
	if (f->stages > 1)
		printf(" on stage %d, the fullest", f->fullest);
	if (f->m->hw.memory > 0 && over > 0)
		printf(": %s too many; --fit says what to change", amount(a, over, "B"));
	printf("\n           ");
	for (int k = 0; k < NMEM; k++)
		printf(" %s %s%s", mem_kind_name[k], amount(a, (double)x->of[k], "B"), k + 1 < NMEM ? "," : "\n");
	if (f->m->host) {
		struct host_traffic copies = host_traffic(f->m);

		printf("host        %s a rank; %s copied to the device in a step, %s back\n", amount(a, (double)f->m->host, "B"),
		       amount(a, copies.in, "B"), amount(a, copies.out, "B"));
	}
}

static int explain_text(struct session *s, const struct facts *f)
{
	const struct module *m = f->m;
	struct arena *a = s->mem;

	printf("ranks       %lld (%s)\n", (long long)module_ranks(m), mesh_text(a, m));
	printf("params      %lld\n", (long long)param_count(m));
	printf("flops       %s a step; %s with padding and what ranks compute twice\n", amount(a, f->flops.model, "FLOP"),
	       amount(a, f->flops.hardware, "FLOP"));
	if (attention_imbalance(m) > 1.01)
		printf("balance     the slowest rank makes %.2f times the mean of the scores of causal attention; order = zigzag evens it out\n",
		       attention_imbalance(m));
	print_memory(a, f);
	print_time(a, m, &f->time);
	if (f->stages > 1) {
		print_pipeline(&f->time.costs.s);
		print_stages(a, f);
	}
	putchar('\n');
	print_held(s, f);
	putchar('\n');
	print_comm(s, m, stdout);
	return fflush(stdout) ? MACHINE : DONE;
}

static int print_json(json_t *all)
{
	char *text = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(15));

	if (!text)
		die("json_dumps failed");
	puts(text);
	free(text);
	json_decref(all);
	return fflush(stdout) ? MACHINE : DONE;
}

static bool write_trace(struct session *s, const struct facts *f)
{
	struct trace t = trace_predicted(s->mem, f->m, &f->time);
	struct text out = { .mem = s->mem };

	trace_write(&out, f->m, &t);
	return write_file(s, s->opt->trace, out.s, out.n);
}

int cmd_explain(struct session *s)
{
	struct module *m = load_plan(s);
	struct facts f;

	if (!m || !find_facts(s, m, &f))
		return WRONG;
	if (s->opt->trace && !write_trace(s, &f))
		return MACHINE;
	return s->opt->json ? print_json(explain_json(s, &f)) : explain_text(s, &f);
}
