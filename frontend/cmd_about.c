/* frontend/cmd_about.c - what `ptc run --json` says of its plan, so that `ptc explain --calibrate` knows a run of another. */
#include <jansson.h>
#include <stdlib.h>

#include "frontend/cmd.h"
#include "frontend/version.h"
#include "passes/report.h"

/* Axes of 1 are as good as none. */
static json_t *mesh_of(const struct module *m)
{
	json_t *mesh = json_object();

	for (uint32_t i = 0; i < m->mesh.n; i++)
		if (m->mesh.at[i].size > 1)
			json_object_set_new(mesh, m->mesh.at[i].name, json_integer(m->mesh.at[i].size));
	return mesh;
}

static json_t *inputs_of(const struct module *m)
{
	json_t *all = json_object();

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];

		if (b->role != B_INPUT)
			continue;
		json_t *sizes = json_array();

		for (int k = 0; k < b->nd; k++)
			json_array_append_new(sizes, json_integer(dim_size(m, b->d[k])));
		json_object_set_new(all, b->name, sizes);
	}
	return all;
}

/* Bytes in a step, by a rank of each stage, summed. */
static double sent(struct session *s, const struct module *m)
{
	double sum = 0;

	for (int d = 0; d < pipe_stages(m); d++) {
		int n;
		const struct comm_row *rows = stage_table(s->mem, m, d, &n);

		for (int i = 0; i < n; i++)
			sum += rows[i].bytes;
	}
	return sum;
}

/* 2^53 is the last of which all before are exact. */
static json_t *whole(double x)
{
	return x < 0x1p53 ? json_integer((json_int_t)x) : json_real(x);
}

const char *about_plan(struct session *s, const struct module *m)
{
	json_t *all = json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:s, s:I, s:o}", "ptc", PTC_VERSION, "model", s->opt->file, "params", (json_int_t)param_count(m), "flops",
				whole(count_flops(m).model), "inputs", inputs_of(m), "mesh", mesh_of(m), "precision",
				m->precision == BF16 ? "bf16" : "fp32", "microbatches", (json_int_t)m->micro, "sent_bytes",
				whole(sent(s, m)));
	char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;

	if (!text)
		die("what is said of a plan is no JSON");
	const char *about = arena_strdup(s->mem, text);

	free(text);
	json_decref(all);
	return about;
}
