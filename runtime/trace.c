/* runtime/trace.c - when one rank of each stage began and ended what it did in a step. Notes go to room that was
 * made before; what a step costs more is two readings of the clock for each instruction. */
#include <stdlib.h>
#include <time.h>

#include "ir/file.h"
#include "runtime/backend.h"
#include "runtime/internal.h"

struct tracer {
	struct trace_event *at;
	int64_t n, room;
	bool busy;         /* the thread's own clock is read too */
	bool rests;        /* nothing is noted for now */
	double began;      /* of it, at the last tracer_now */
};

static double thread_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double tracer_now(const struct rank *r)
{
	if (!r->trace || r->trace->rests)
		return 0;
	if (r->trace->busy)
		r->trace->began = thread_seconds();
	return seconds_now();
}

void tracer_begin(struct rank *r)
{
	if (r->trace)
		r->trace->n = 0;
}

void tracer_note_span(struct rank *r, enum trace_what what, const struct op *op, int other, double start, double end)
{
	struct tracer *t = r->trace;

	if (!t || t->rests || t->n == t->room)
		return;
	t->at[t->n++] = (struct trace_event){ .what = what, .op = op, .act = r->act, .iter = r->env.iter_all, .other = other,
					      .start = start, .end = end, .busy = t->busy ? thread_seconds() - t->began : 0 };
}

void tracer_note(struct rank *r, enum trace_what what, const struct op *op, int other, double start)
{
	tracer_note_span(r, what, op, other, start, r->trace && !r->trace->rests ? seconds_now() : 0);
}

/* -- how many notes a step makes -- */

static int64_t count_prog(const struct rank *r, const struct prog *p, int chunk);

static int64_t trips_of(const struct rank *r, const struct loop *x, int chunk)
{
	struct trips t;

	if (!x->staged)
		return x->trips;
	if (chunk < 0)
		return pipe_rows(r->rt->m, x->dim, r->stage);
	t = pipe_trips(r->rt->m, x->dim, chunk);
	return t.hi - t.lo;
}

static int64_t count_prog(const struct rank *r, const struct prog *p, int chunk)
{
	int64_t n = 0;

	for (uint32_t k = 0; k < p->code.n; k++) {
		const struct instr *i = &p->code.at[k];

		if (i->code == I_REPEAT)
			n += trips_of(r, i->loop, chunk) * count_prog(r, &i->loop->body, chunk);
		else
			n += i->stream >= 0;
	}
	return n;
}

static int64_t count_step(const struct rank *r)
{
	const struct runtime *rt = r->rt;
	int64_t n = 2 + count_prog(r, rt->prog[PROLOGUE], -1) + count_prog(r, rt->prog[EPILOGUE], -1);

	if (!rt->layouts)
		return n + rt->m->micro * (2 + count_prog(r, rt->prog[FORWARD], -1) + count_prog(r, rt->prog[BACKWARD], -1));
	const struct stage_layout *l = &rt->layouts->stage[r->stage];
	for (uint32_t a = 0; a < l->acts.n; a++) {
		n += 3; /* receives, acts, sends */
		for (int place = 0; place <= 2 * (int)rt->m->pipe.loops.n; place++)
			if (pipe_runs(rt->m, l->acts.at[a].chunk, place))
				n += count_prog(r, &rt->prog[r->steps[a].section][place], l->acts.at[a].chunk);
	}
	return n;
}

/* The first of its stage. */
static bool is_shown(const struct rank *r)
{
	for (uint32_t k = 0; k < r->rt->m->axes.n; k++)
		if (!r->rt->m->axes.at[k].time && (int)k != pipe_axis(r->rt->m) && r->coord[k])
			return false;
	return true;
}

bool tracers_open(struct runtime *rt, struct diag *d)
{
	if (!streq(rt->backend->name, "cpu"))
		return diag_error(d, (struct span){ 0 }, "--trace goes by the host's clock, and on %s ops run behind it; use the vendor's profiler",
				  rt->backend->name);
	for (int64_t i = 0; i < rt->nrank; i++) {
		struct rank *r = &rt->rank[i];

		if (!is_shown(r))
			continue;
		struct tracer *t = NEW(rt->mem, struct tracer);
		t->room = count_step(r);
		t->at = calloc((size_t)t->room, sizeof *t->at);
		if (!t->at)
			return diag_error(d, (struct span){ 0 }, "no memory for the %lld events of a trace", (long long)t->room);
		r->trace = t;
	}
	return true;
}

bool rt_watch(struct runtime *rt, bool on, struct diag *d)
{
	if (!rt->rank[0].trace && !tracers_open(rt, d))
		return false;
	for (int64_t i = 0; i < rt->nrank; i++)
		if (rt->rank[i].trace) {
			rt->rank[i].trace->busy = true;
			rt->rank[i].trace->rests = !on;
		}
	return true;
}

const struct trace_event *rt_watched(const struct runtime *rt, int64_t *n)
{
	*n = rt->rank[0].trace ? rt->rank[0].trace->n : 0;
	return *n ? rt->rank[0].trace->at : NULL;
}

void tracers_close(struct runtime *rt)
{
	for (int64_t i = 0; rt->rank && i < rt->nrank; i++)
		if (rt->rank[i].trace)
			free(rt->rank[i].trace->at);
}

/* -- the file -- */

bool tracers_write(struct runtime *rt, const char *path, double began, double ended, struct diag *d)
{
	struct arena *mem = arena_new();
	struct trace t = { .kind = "measured", .seconds = ended - began, .stages = pipe_stages(rt->m) };
	struct text out = { .mem = mem };
	struct outfile o;

	t.stage = NEWN(mem, struct trace_list, t.stages);
	for (int64_t i = 0; i < rt->nrank; i++) {
		const struct tracer *x = rt->rank[i].trace;

		for (int64_t k = 0; x && k < x->n; k++) {
			struct trace_event e = x->at[k];

			e.start -= began;
			e.end -= began;
			PUSH(mem, &t.stage[rt->rank[i].stage].event, e);
		}
	}
	trace_write(&out, rt->m, &t);
	bool ok = outfile_open(&o, mem, path, d);

	if (ok) {
		outfile_put(&o, out.s, out.n);
		ok = outfile_close(&o, true, d);
	}
	arena_free(mem);
	return ok;
}
