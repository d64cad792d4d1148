/* frontend/cmd_explain.c - ptc explain: what a step of a plan computes, sends and stores, and what time it
 * takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_explain.h"
#include "passes/trace.h"

bool find_facts(struct session *s, struct module *m, struct facts *f)
{
	*f = (struct facts){ s->opt->file, m, count_flops(m), .factor = 1, .stages = pipe_stages(m) };
	f->live = live_at_peak(s->mem, m, &s->diag);
	if (!f->live)
		return false;
	for (int d = 0; d < f->stages; d++)
		if (f->live[d].peak > f->peak) {
			f->peak = f->live[d].peak;
			f->fullest = d;
		}
	f->time = step_time_of(s->mem, m, &f->flops); /* numbers the ops: last */
	return !s->opt->calibrate || calibrate_to(s, f, s->opt->calibrate);
}

double chunk_seconds(const struct facts *f, int stage, enum action_kind kind)
{
	double sum = 0;

	for (int g = 0; g < f->time.costs.s.p * f->time.costs.s.v; g++)
		if (schedule_stage(&f->time.costs.s, g) == stage)
			sum += f->time.costs.c.chunk[g].seconds[kind];
	return f->factor * sum;
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

const char *short_name(struct arena *mem, const char *name, int most)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
	int n = (int)strlen(base);

	return n <= most ? base : arena_printf(mem, "..%s", base + n - most + 2);
}

double joules_of(const struct facts *f)
{
	return f->m->hw.watts * (double)module_ranks(f->m) * f->time.step;
}

struct whole_run run_of(const struct facts *f, double tokens)
{
	double a_step = step_tokens(f->m);
	struct whole_run r = { .tokens = tokens, .steps = a_step > 0 ? ceil(tokens / a_step) : 0 };

	r.seconds = r.steps * f->time.step;
	r.dollars = r.steps * f->time.dollars;
	r.joules = r.steps * joules_of(f);
	return r;
}

static void print_run(struct arena *a, const struct facts *f, double tokens)
{
	struct whole_run r = run_of(f, tokens);

	printf("run         %s tokens in %.0f steps: %s", amount(a, r.tokens, ""), r.steps, long_time(a, r.seconds));
	if (r.dollars > 0)
		printf(", $%s", amount(a, r.dollars, ""));
	if (r.joules > 0)
		printf(", %s", amount(a, r.joules / 3600, "Wh"));
	putchar('\n');
}

static void print_time(struct arena *a, const struct facts *f)
{
	const struct module *m = f->m;
	const struct step_time *t = &f->time;

	printf("time        %s a step, predicted%s: compute %s, exposed communication %s", seconds_text(a, t->step),
	       f->factor == 1 ? "" : arena_printf(a, ", times %.3g as measured", f->factor), seconds_text(a, t->compute), seconds_text(a, t->exposed));
	if (m->host && m->hw.host > 0)
		printf(" (copies from and to the host %s)", seconds_text(a, t->copies));
	if (pipe_axis(m) >= 0)
		printf(", bubble %.1f %%", 100 * t->bubble);
	printf("\nspeed       MFU %.1f %%, HFU %.1f %%; %.1f TFLOP/s and %.0f tokens/s a rank\n", 100 * t->mfu, 100 * t->hfu, t->tflops,
	       t->tokens);
	if (m->hw.price > 0)
		printf("cost        $%.3g a step, $%.3g for 1e12 tokens\n", t->dollars, t->per_tokens);
	if (m->hw.watts > 0)
		printf("energy      %s a step, at the %.0f W of each device\n", amount(a, joules_of(f), "J"), m->hw.watts);
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
		if (k != MEM_GATHERED || x->of[k])
			printf("%s %s %s", k ? "," : "", mem_kind_name[k], amount(a, (double)x->of[k], "B"));
	putchar('\n');
	if (f->m->host) {
		struct host_traffic copies = host_traffic(f->m);
		const char *untimed = f->m->hw.host > 0 ? "" : " (not in the time: the hardware has no 'host bandwidth')";

		printf("host        %s a rank; %s copied to the device in a step, %s back%s\n", amount(a, (double)f->m->host, "B"),
		       amount(a, copies.in, "B"), amount(a, copies.out, "B"), untimed);
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
	print_time(a, f);
	if (s->opt->tokens > 0)
		print_run(a, f, s->opt->tokens);
	if (f->stages > 1) {
		print_pipeline(&f->time.costs.s);
		print_stages(a, f);
	}
	putchar('\n');
	print_held(s, f);
	putchar('\n');
	print_comm(s, m, stdout);
	return DONE;
}

static int print_json(json_t *all)
{
	char *text = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(15));

	if (!text)
		die("json_dumps failed");
	puts(text);
	free(text);
	json_decref(all);
	return DONE;
}

static bool write_trace(struct session *s, const struct facts *f)
{
	struct trace t = trace_predicted(s->mem, f->m, &f->time);
	struct text out = { .mem = s->mem };

	trace_write(&out, f->m, &t);
	return write_file(s, s->opt->trace, out.s, out.n);
}

static int explain_one(struct session *s, const struct facts *f)
{
	struct fit fit;

	if (s->opt->fit && !find_fit(s, f, &fit))
		return WRONG;
	if ((s->opt->trace && !write_trace(s, f)) || (s->opt->html && !write_html(s, f)))
		return MACHINE;
	if (!s->opt->json && !s->opt->fit)
		return explain_text(s, f);
	if (!s->opt->json) {
		print_fit(s, f, &fit);
		return DONE;
	}
	json_t *all = explain_json(s, f);

	if (s->opt->fit)
		json_object_set_new(all, "fit", fit_json(f, &fit));
	return print_json(all);
}

static int explain_sides(struct session *s, const struct facts *all, int n)
{
	json_t *list = s->opt->json ? json_array() : NULL;

	if (!list) {
		print_sides(s, all, n);
		return DONE;
	}
	for (int i = 0; i < n; i++) {
		json_t *one = explain_json(s, &all[i]);

		json_object_set_new(one, "plan", json_string(all[i].name));
		json_array_append_new(list, one);
	}
	return print_json(json_pack("{s:o}", "plans", list));
}

/* -- which plans: files, and names of plans joined by ',' in each of them that is a model; "" is the one without a name -- */

struct chosen {
	VEC(struct facts) v;
};

static bool choose(struct session *s, const struct options *o, const char *file, const char *plan, const char *name, struct chosen *all)
{
	struct options one = *o;
	struct facts f;

	one.file = file;
	one.plan = plan;
	s->opt = &one;
	struct module *m = load_plan(s);
	bool ok = m && find_facts(s, m, &f);

	s->opt = o;
	f.name = name;
	if (ok)
		PUSH(s->mem, &all->v, f);
	return ok;
}

static bool choose_all(struct session *s, const struct options *o, struct chosen *all)
{
	bool several = o->plan && strchr(o->plan, ',');

	for (int i = 0; i < o->nfiles; i++) {
		const char *file = o->files[i], *plan = is_model(file) || o->nfiles == 1 ? o->plan : NULL;

		if (!plan && !choose(s, o, file, NULL, file, all))
			return false;
		for (const char *p = plan; p && *p; p += strcspn(p, ","), p += *p == ',') {
			const char *name = arena_strndup(s->mem, p, strcspn(p, ","));

			if (!choose(s, o, file, *name ? name : NULL, !several ? file : *name ? name : "plan", all))
				return false;
		}
	}
	return true;
}

int cmd_explain(struct session *s)
{
	struct chosen all = { 0 };

	if (!choose_all(s, s->opt, &all))
		return WRONG;
	if (all.v.n == 1)
		return explain_one(s, &all.v.at[0]);
	if (s->opt->trace || s->opt->html || s->opt->fit) {
		fprintf(stderr, "ptc: error: %s is about one plan, not %u\n", s->opt->trace ? "--trace" : s->opt->html ? "--html" : "--fit", all.v.n);
		return USAGE;
	}
	return explain_sides(s, all.v.at, (int)all.v.n);
}
