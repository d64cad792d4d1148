/* frontend/cmd_explain_json.c - what `ptc explain --json` says: README.md has the keys. */
#include "frontend/cmd_explain.h"

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

static json_t *held_json(struct session *s, const struct stage_live *x)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < x->held.n; i++) {
		const struct holding *h = &x->held.at[i];

		json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I, s:s}", "name", h->name, "kind", mem_kind_name[h->kind], "bytes",
						      (json_int_t)h->bytes, "times", (json_int_t)h->times, "at",
						      h->at.line ? span_text(s->mem, &s->src, h->at) : ""));
	}
	return list;
}

static json_t *stage_json(struct session *s, const struct facts *f, int d)
{
	const struct stage_live *x = &f->live[d];
	json_t *stage = json_pack("{s:I, s:I, s:I, s:s, s:s, s:o}", "peak", (json_int_t)x->peak, "unused", (json_int_t)x->unused, "host",
				  (json_int_t)f->m->host, "when", x->when ? x->when : "", "at",
				  x->at.line ? span_text(s->mem, &s->src, x->at) : "", "tensors", held_json(s, x));

	for (int k = 0; k < NMEM; k++)
		json_object_set_new(stage, mem_kind_name[k], json_integer((json_int_t)x->of[k]));
	if (stage && software_bytes(f->m, &f->time.run, d))
		json_object_set_new(stage, "software", json_integer((json_int_t)software_bytes(f->m, &f->time.run, d)));
	if (stage && f->stages > 1)
		json_object_update_new(stage, json_pack("{s:I, s:I, s:f, s:f, s:f}", "iterations", (json_int_t)stage_iterations(f->m, d),
				       "elements", (json_int_t)stage_params(f->m, d), "forward_s", chunk_seconds(f, d, ACT_F),
				       "backward_s", chunk_seconds(f, d, ACT_B), "in_flight", f->time.run.stage[d].peak));
	return stage;
}

/* Seconds of a step of the busiest stage, by where they go; hidden: of collectives under compute. */
static json_t *kinds_json(const struct facts *f)
{
	const struct step_time *t = &f->time;
	const struct busy *b = &t->costs.stage[t->busiest];
	json_t *kinds = json_object();

	for (int k = 0; k < NTIME; k++)
		json_object_set_new(kinds, time_name[k], json_real(f->factor * b->kind[k]));
	json_object_set_new(kinds, "idle", json_real(f->factor * t->run.idle));
	json_object_set_new(kinds, "slowest_rank", json_real(f->factor * t->waits));
	json_object_set_new(kinds, "hidden", json_real(f->factor * b->hidden));
	return kinds;
}

json_t *explain_json(struct session *s, const struct facts *f)
{
	const struct module *m = f->m;
	const struct step_time *t = &f->time;
	json_t *stages = json_array(), *comm = json_array();

	for (int d = 0; d < f->stages; d++) {
		json_array_append_new(stages, stage_json(s, f, d));
		add_comm(s, m, d, comm);
	}
	json_t *all = json_pack("{s:I, s:I, s:{s:f, s:f, s:f, s:f, s:f}, s:f, s:{s:I, s:f, s:o}, s:o}", "ranks",
				(json_int_t)module_ranks(m), "params", (json_int_t)param_count(m), "flops", "model",
				f->flops.model, "hardware", f->flops.hardware, "causal", f->flops.model, "full", f->flops.full,
				"hardware_full", f->flops.hardware_full,
				"imbalance", attention_imbalance(m), "memory", "peak", (json_int_t)f->peak, "limit", m->hw.memory,
				"stages", stages, "comm", comm);
	if (!all)
		die("json_pack failed");
	json_object_update_new(all, json_pack("{s:{s:f, s:f, s:f, s:f}, s:f, s:f, s:f, s:f, s:{s:f, s:f, s:f}}", "time", "step_s",
			       t->step, "compute_s", t->compute, "exposed_comm_s", t->exposed, "bubble_fraction", t->bubble,
			       "mfu", t->mfu, "hfu", t->hfu, "tflops_per_gpu", t->tflops, "tokens_per_s_per_gpu", t->tokens,
			       "cost", "usd_per_step", t->dollars, "usd_per_1e12_tokens", t->per_tokens,
			       "joules_per_step", joules_of(f)));
	json_object_set_new(json_object_get(all, "time"), "exposed_copies_s", json_real(t->copies));
	json_object_set_new(json_object_get(all, "time"), "factor", json_real(f->factor));
	json_object_set_new(json_object_get(all, "time"), "kinds", kinds_json(f));
	if (s->opt->tokens > 0) {
		struct whole_run r = run_of(f, s->opt->tokens);

		json_object_set_new(all, "run", json_pack("{s:f, s:f, s:f, s:f, s:f}", "tokens", r.tokens, "steps", r.steps,
							  "seconds", r.seconds, "usd", r.dollars, "joules", r.joules));
	}
	return all;
}
