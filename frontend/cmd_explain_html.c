/* frontend/cmd_explain_html.c - ptc explain --html: one page that needs nothing else, made of the template
 * frontend/report.html and what is known of the plan as JSON. The page has one event for each action; the ops of an
 * action are kept once for all actions that run the same. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd_explain.h"
#include "passes/trace.h"
#include "report_html.h"

enum { MAX_PART = 4000, MAX_HELD = 40 }; /* ops of an action that are shown; tensors of a stage */

struct page {
	struct session *s;
	const struct facts *f;
	struct trace trace;
	json_t *parts, *ops, *sources;
	VEC(char *) texts;     /* of parts */
	int *op_no, *file_no;  /* by op.mark; by file of a span. -1: not on the page */
	double *busy;          /* by number on the page: seconds of a step on the busiest stage */
	double *count;
	struct busy *one;      /* seconds of one */
};

/* -- source texts -- */

static const char *text_of(struct session *s, const struct source *x, size_t *len)
{
	struct diag loud = s->diag;

	if (x->text || !x->name) {
		*len = x->len;
		return x->text;
	}
	diag_init(&s->diag, s->mem, &s->src, NULL); /* a plan may have come without its model */
	const char *text = read_file(s, x->name, len);
	s->diag = loud;
	return text;
}

static int file_no(struct page *p, uint32_t file)
{
	const struct source *x = file < p->s->src.files.n ? &p->s->src.files.at[file] : NULL;
	size_t len = 0;

	if (!x || p->file_no[file] >= 0)
		return x ? p->file_no[file] : -1;
	const char *text = text_of(p->s, x, &len);
	json_t *valid = text ? json_stringn(text, len) : NULL;

	p->file_no[file] = (int)json_array_size(p->sources);
	json_array_append_new(p->sources, json_pack("{s:s, s:o}", "name", x->name ? x->name : "?", "text", valid ? valid : json_null()));
	return p->file_no[file];
}

/* [file, line] of a span; [-1, 0]: nowhere. */
static json_t *place_json(struct page *p, struct span at)
{
	int file = at.line ? file_no(p, at.file) : -1;

	return json_pack("[i, i]", file, file < 0 ? 0 : (int)at.line);
}

/* -- ops -- */

static void add_ops(struct page *p, const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next) {
		if (trace_stream(p->f->m, op) >= 0) {
			p->op_no[op->mark] = (int)json_array_size(p->ops);
			json_array_append_new(p->ops, json_pack("{s:s, s:s, s:i, s:o, s:f, s:f}", "name", op_label_text(p->s->mem, p->f->m, op),
								"code", opinfo[op->code].name, "stream", trace_stream(p->f->m, op), "at",
								place_json(p, op->span), "flops", op_local_flops(p->f->m, op), "bytes",
								comm_sends(op->code) ? comm_bytes(p->f->m, op) : op_local_bytes(p->f->m, op)));
		} else {
			p->op_no[op->mark] = -1;
		}
		if (op->code == OP_REPEAT)
			add_ops(p, op->body);
	}
}

static int busiest(const struct facts *f)
{
	int most = 0;

	for (int d = 1; d < f->stages; d++)
		if (f->time.run.stage[d].busy > f->time.run.stage[most].busy)
			most = d;
	return most;
}

/* What each op takes in a step on the busiest stage, and how often it runs there. */
static void add_totals(struct page *p)
{
	const struct trace_list *l = &p->trace.stage[busiest(p->f)];
	size_t n = json_array_size(p->ops);

	p->busy = NEWN(p->s->mem, double, n + 1);
	p->count = NEWN(p->s->mem, double, n + 1);
	for (uint32_t i = 0; i < l->event.n; i++) {
		const struct trace_event *e = &l->event.at[i];

		if (e->what != TRACE_OP)
			continue;
		p->busy[p->op_no[e->op->mark]] += e->end - e->start;
		p->count[p->op_no[e->op->mark]]++;
	}
	for (size_t i = 0; i < n; i++)
		json_object_update_new(json_array_get(p->ops, i), json_pack("{s:f, s:f}", "seconds", p->busy[i], "times", p->count[i]));
}

/* -- the timeline -- */

/* Ops of an action, [op, start, end] in thousandths of it; the number of the part. */
static int part_no(struct page *p, const struct trace_event *ops, uint32_t n, const struct trace_event *act)
{
	double length = act->end - act->start;
	struct text t = { .mem = p->s->mem };

	text_put(&t, "[");
	for (uint32_t i = 0; i < n && i < MAX_PART; i++)
		text_put(&t, "%s[%d,%.4g,%.4g]", i ? "," : "", p->op_no[ops[i].op->mark], length > 0 ? 1000 * (ops[i].start - act->start) / length : 0,
			 length > 0 ? 1000 * (ops[i].end - act->start) / length : 0);
	text_put(&t, "]");
	for (uint32_t i = 0; i < p->texts.n; i++)
		if (streq(p->texts.at[i], t.s))
			return (int)i;
	PUSH(p->s->mem, &p->texts, t.s);
	json_array_append_new(p->parts, json_loads(t.s, 0, NULL));
	return (int)p->texts.n - 1;
}

struct seen { /* the part of an action of each kind and chunk */
	int *part;
	int chunks;
};

static int find_part(struct page *p, const struct trace_list *l, uint32_t i, const struct seen *seen)
{
	const struct trace_event *e = &l->event.at[i];
	int *known = e->act.kind < NACT ? &seen->part[e->act.kind * seen->chunks + e->act.chunk] : NULL;
	uint32_t n = 0;

	if (known && *known >= 0)
		return *known;
	while (i + 1 + n < l->event.n && l->event.at[i + 1 + n].what == TRACE_OP)
		n++;
	int no = part_no(p, &l->event.at[i + 1], n, e);

	if (known)
		*known = no;
	return no;
}

/* [kind, chunk, microbatch, start, end, part] of each action: kinds F B I W, 4 prologue, 5 epilogue. */
static json_t *events_json(struct page *p, int stage)
{
	const struct trace_list *l = &p->trace.stage[stage];
	struct seen seen = { .chunks = p->f->time.costs.s.p * p->f->time.costs.s.v };
	json_t *list = json_array();

	seen.part = NEWN(p->s->mem, int, NACT * seen.chunks);
	memset(seen.part, -1, (size_t)(NACT * seen.chunks) * sizeof *seen.part);
	for (uint32_t i = 0; i < l->event.n; i++) {
		const struct trace_event *e = &l->event.at[i];
		bool once = e->act.kind == NACT;

		if (e->what == TRACE_ACTION)
			json_array_append_new(list, json_pack("[i, i, i, f, f, i]", once ? NACT + e->act.mb : e->act.kind, once ? 0 : e->act.chunk,
							      once ? 0 : e->act.mb, e->start, e->end, find_part(p, l, i, &seen)));
	}
	return list;
}

static json_t *held_json(struct page *p, const struct stage_live *x)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < x->held.n && i < MAX_HELD; i++) {
		const struct holding *h = &x->held.at[i];

		json_array_append_new(list, json_pack("[s, i, I, I, o]", h->name, (int)h->kind, (json_int_t)h->bytes, (json_int_t)h->times,
						      place_json(p, h->at)));
	}
	return list;
}

static json_t *stages_json(struct page *p)
{
	json_t *list = json_array();

	for (int d = 0; d < p->f->stages; d++) {
		const struct stage_live *x = &p->f->live[d];
		json_t *of = json_array(), *stage;

		for (int k = 0; k < NMEM; k++)
			json_array_append_new(of, json_integer((json_int_t)x->of[k]));
		stage = json_pack("{s:I, s:s, s:o, s:o, s:o, s:I, s:o}", "peak", (json_int_t)x->peak, "when", x->when ? x->when : "", "at",
				  place_json(p, x->at), "of", of, "tensors", held_json(p, x), "layers",
				  (json_int_t)(p->f->stages > 1 ? stage_iterations(p->f->m, d) : 0), "events", events_json(p, d));
		json_array_append_new(list, stage);
	}
	return list;
}

/* -- collectives -- */

static json_t *comm_row(struct page *p, const struct comm_row *r, int stage)
{
	return json_pack("{s:s, s:s, s:s, s:f, s:f, s:s, s:o, s:[i]}", "op", r->name, "axis", r->axis, "link", r->link, "count", r->count,
			 "bytes", r->bytes, "why", r->why ? r->why : "", "at", place_json(p, r->at), "stages", stage);
}

static bool same_row(const json_t *a, const struct comm_row *r)
{
	return streq(json_string_value(json_object_get(a, "op")), r->name) && streq(json_string_value(json_object_get(a, "axis")), r->axis) &&
	       streq(json_string_value(json_object_get(a, "why")), r->why ? r->why : "");
}

/* Adds a stage's row to those of the stage that are alike: of what passes between chunks there is one for each value. */
static void add_alike(struct comm_row *rows, int *n, const struct comm_row *r)
{
	for (int i = 0; i < *n; i++)
		if (streq(rows[i].name, r->name) && rows[i].axes == r->axes && streq(rows[i].why, r->why)) {
			rows[i].count += r->count;
			rows[i].bytes += r->bytes;
			return;
		}
	rows[(*n)++] = *r;
}

/* A row for all stages that do it; count and bytes of the one that sends most. */
static void add_comm(struct page *p, json_t *list, const struct comm_row *r, int stage)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *x = json_array_get(list, i);

		if (!same_row(x, r))
			continue;
		json_array_append_new(json_object_get(x, "stages"), json_integer(stage));
		if (json_number_value(json_object_get(x, "bytes")) < r->bytes)
			json_object_update_new(x, json_pack("{s:f, s:f}", "bytes", r->bytes, "count", r->count));
		return;
	}
	json_array_append_new(list, comm_row(p, r, stage));
}

static json_t *comm_json(struct page *p)
{
	json_t *list = json_array();

	for (int d = 0; d < p->f->stages; d++) {
		int n, some = 0;
		struct comm_row *all = stage_table(p->s->mem, p->f->m, d, &n), *rows = NEWN(p->s->mem, struct comm_row, n + 1);

		for (int i = 0; i < n; i++)
			add_alike(rows, &some, &all[i]);
		for (int i = 0; i < some; i++)
			add_comm(p, list, &rows[i], d);
	}
	return list;
}

/* -- the page -- */

static json_t *summary_json(struct page *p)
{
	const struct facts *f = p->f;
	const struct step_time *t = &f->time;
	const struct hardware *hw = &f->m->hw;
	bool half = f->m->precision == BF16 && hw->bf16 > 0;

	json_t *x = json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:I, s:I}", "name", f->name, "mesh", mesh_text(p->s->mem, f->m), "ranks",
			      (json_int_t)module_ranks(f->m), "params", (json_int_t)param_count(f->m), "schedule",
			      f->stages > 1 ? schedule_name(t->costs.s.kind) : "", "recompute", recompute_name[f->m->recompute.how],
			      "microbatches", (json_int_t)f->m->micro, "peak", (json_int_t)f->peak);
	json_object_update_new(x, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "step", t->step, "compute", t->compute, "exposed",
					    t->exposed, "bubble", t->bubble, "mfu", t->mfu, "tflops", t->tflops, "tokens", t->tokens, "dollars",
					    t->dollars, "busiest", (double)busiest(f)));
	json_object_set_new(x, "hw", json_pack("{s:s, s:f, s:f, s:f, s:s}", "name", hw->name ? hw->name : "", "memory", hw->memory, "peak",
					       half ? hw->bf16 : hw->fp32, "bandwidth", hw->bandwidth, "precision", half ? "bf16" : "fp32"));
	return x;
}

static json_t *page_json(struct page *p)
{
	const struct module *m = p->f->m;

	p->sources = json_array();
	p->parts = json_array();
	p->ops = json_array();
	p->file_no = NEWN(p->s->mem, int, p->s->src.files.n + 1);
	memset(p->file_no, -1, (p->s->src.files.n + 1) * sizeof *p->file_no);
	p->trace = trace_predicted(p->s->mem, m, &p->f->time);
	p->op_no = NEWN(p->s->mem, int, trace_number(m) + 1);
	if (p->s->src.files.n)
		file_no(p, 0); /* the model comes first */
	add_ops(p, &m->top);
	add_totals(p);
	json_t *kinds = json_array();

	for (int k = 0; k < NMEM; k++)
		json_array_append_new(kinds, json_string(mem_kind_name[k]));
	json_t *all = json_pack("{s:o, s:o, s:o, s:o, s:o}", "summary", summary_json(p), "kinds", kinds, "stages", stages_json(p), "comm",
				comm_json(p), "ops", p->ops);

	json_object_set_new(all, "parts", p->parts);
	json_object_set_new(all, "sources", p->sources);
	return all;
}

bool write_html(struct session *s, const struct facts *f)
{
	static const char mark[] = "@DATA@";
	struct page p = { .s = s, .f = f };
	const char *at = strstr(report_html, mark);
	json_t *all = page_json(&p);
	char *data = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(6));
	struct text out = { .mem = s->mem };

	if (!data || !at)
		die("a report can't be made");
	text_bytes(&out, report_html, (size_t)(at - report_html));
	for (const char *from = data; *from;) { /* no tag in a text of the data is one of the page */
		size_t n = strcspn(from, "<");

		text_bytes(&out, from, n);
		from += n + (from[n] == '<');
		if (from[-1] == '<')
			text_put(&out, "\\u003c");
	}
	text_put(&out, "%s", at + strlen(mark));
	free(data);
	json_decref(all);
	return write_file(s, s->opt->html, out.s, out.n);
}
