/* frontend/cmd_schedule.c - the order of a pipeline's actions from and to a CSV of PyTorch's. */
#include "frontend/cmd.h"

/* The CSV's file is no source of the model: its faults are told with its name. */
static bool refuse(struct session *s, const char *path, const struct schedule_fault *f)
{
	if (f->span.line)
		diag_error(&s->diag, (struct span){ 0 }, "%s:%u:%u: %s", path, f->span.line, f->span.col, f->what);
	else
		diag_error(&s->diag, (struct span){ 0 }, "%s: %s", path, f->what);
	if (f->note)
		diag_note(&s->diag, (struct span){ 0 }, "%s", f->note);
	return false;
}

static bool fits(struct session *s, const struct module *m, const char *path, const struct schedule *x)
{
	int chunks = x->p * x->v;
	int64_t iterations = 0;

	for (uint32_t i = 0; i < m->pipe.loops.n; i++)
		iterations += dim_size(m, m->pipe.loops.at[i]);
	if (m->pipe.user < 0)
		return diag_error(&s->diag, (struct span){ 0 }, "%s: the plan has no pipeline for this order", path);
	if (x->m != m->micro) {
		diag_error(&s->diag, (struct span){ 0 }, "%s: %d microbatches, but the plan has %lld", path, x->m, (long long)m->micro);
		diag_note(&s->diag, (struct span){ 0 }, "--set microbatches=%d gives it as many", x->m);
		return false;
	}
	if (x->p != pipe_stages(m))
		diag_error(&s->diag, (struct span){ 0 }, "%s: %d rows, but %d stages", path, x->p, pipe_stages(m));
	else if (m->pipe.fixed && (int)m->pipe.end.n != chunks)
		diag_error(&s->diag, (struct span){ 0 }, "%s: %d chunks, but 'stages' has %u entries", path, chunks, m->pipe.end.n);
	else if (m->pipe.loops.n && chunks > iterations + 2)
		diag_error(&s->diag, (struct span){ 0 }, "%s: %d chunks, but %lld iterations", path, chunks, (long long)iterations);
	else
		return true;
	return false;
}

bool take_schedule(struct session *s, struct module *m, const char *path)
{
	struct schedule_fault fault;
	struct schedule x;
	size_t n;
	const char *text = read_file(s, path, &n);

	if (!text)
		return false;
	if (!schedule_read_csv(s->mem, text, n, &x, &fault))
		return refuse(s, path, &fault);
	if (!fits(s, m, path, &x))
		return false;
	m->pipe.order = SCHED_LIST;
	m->pipe.chunks = x.v;
	m->pipe.list = x.list;
	m->pipe.place = x.place;
	return true;
}

int show_schedule(struct session *s, const struct module *m)
{
	struct text t = { .mem = s->mem };
	struct schedule x = pipe_schedule(m);

	if (pipe_axis(m) < 0) {
		diag_error(&s->diag, (struct span){ 0 }, "%s: no pipeline, so no schedule", s->opt->file);
		return WRONG;
	}
	schedule_write_csv(&t, &x, schedule_expand(s->mem, &x));
	return write_file(s, s->opt->out, t.s, t.n) ? DONE : MACHINE;
}
