/* runtime/exec.c - every rank is a thread that runs the program of the plan, one step at a time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/backend.h"
#include "runtime/exec.h"

bool rank_broken(struct rank *r, const struct op *op, const char *why)
{
	comm_fail(r->rt->comm, r->no, op->span, "%s: %s", opinfo[op->code].name, why);
	return false;
}

int rank_turn(const struct rank *r, const struct op *op)
{
	int depth = 0;

	for (const struct block *b = op->home; b->owner; b = b->owner->home)
		depth++;
	return depth ? (int)(r->iter[SLOT + depth - 1] & 1) : 0;
}

static const struct backend *on(const struct rank *r)
{
	return r->rt->backend;
}

char *rank_at(const struct rank *r, const struct loc *l)
{
	static const struct slot all = { 0, 1 };
	bool host = l->region == r->rt->regions->host;
	const struct slot *s = host ? &all : &r->slot[l->region];
	int64_t off = s->base + l->base * s->rows;

	for (int i = 0; i < l->n; i++)
		off += r->iter[l->depth[i]] * l->stride[i];
	return (host ? r->host : r->arena) + off;
}

static char *at(const struct rank *r, const struct loc *l)
{
	return rank_at(r, l);
}

bool holds_any(const struct rank *r, int64_t places)
{
	return !places || !r->rt->layouts || (r->places & places);
}

/* Does a sum over microbatches begin? */
static bool begins(const struct rank *r, const struct loc *l)
{
	return l->rows ? r->first_rows : r->first;
}

static int64_t valid(const struct rank *r, dimid d, const struct axes *on)
{
	return rank_extent(r->rt->m, d, on, r->coord).valid;
}

int64_t rank_iter_all(const struct rank *r)
{
	return r->env.iter_all;
}

/* -- instructions -- */

static struct contraction contraction_of(const struct rank *r, const struct instr *i)
{
	struct contraction x = i->einsum->x;

	for (int k = 0; k < x.nd; k++)
		x.n[k] = valid(r, i->einsum->d[k], &i->einsum->on[k]);
	x.add = x.add && !begins(r, &i->at[2]);
	return x;
}

/* Of n instructions from i on, as many as the backend carries out at once: an einsum and its epilogue, kernels of a run. */
static bool run_together(struct rank *r, const struct instr *i, uint32_t n, uint32_t *done)
{
	bool both = false;

	if (i->code == I_KERNEL && on(r)->kernels)
		return on(r)->kernels(r, i, n, done);
	if (i->code != I_EINSUM || !i->with || !on(r)->epilogue)
		return true;
	struct contraction x = contraction_of(r, i);
	bool ok = on(r)->epilogue(r, i, i + 1, &x, &both);

	*done = both ? 2 : 0;
	return ok;
}

bool run_einsum(struct rank *r, const struct instr *i)
{
	struct contraction x = contraction_of(r, i);

	return on(r)->einsum(r, i, &x, at(r, &i->at[0]), at(r, &i->at[1]), at(r, &i->at[2]));
}

static bool off_zero(const struct rank *r, uint32_t axes)
{
	for (uint32_t k = 0; k < r->rt->m->axes.n; k++)
		if ((axes >> k & 1) && r->coord[k])
			return true;
	return false;
}

/* Of a value that some stages hold: is this the one that keeps it, or one of those? */
static bool keeps(const struct rank *r, const struct mover *m)
{
	if (!m->from)
		return !off_zero(r, m->axes);
	if (off_zero(r, m->axes & ~(1u << pipe_axis(r->rt->m))))
		return false;
	return m->from_all ? r->places & m->from : r->stage == pipe_first_stage(r->rt->m, m->from);
}

static struct nest nest_of(const struct rank *r, const struct mover *m)
{
	struct nest l = { .nd = m->nd };

	for (int k = 0; k < m->nd; k++) {
		l.n[k] = extent_of(r->rt->m, m->d[k], &m->on[k], r->coord).valid;
		l.ds[k] = m->ds[k];
		l.ss[k] = m->ss[k];
	}
	return l;
}

static void move(struct rank *r, const struct mover *m, bool first, char *to, const char *from)
{
	struct nest l = nest_of(r, m);

	if (m->part_axis >= 0)
		from += r->coord[m->part_axis] * m->part * dtype_bytes(m->sdt);
	if (m->mode == MODE_FILL && !keeps(r, m))
		on(r)->fill(r, &l, m->ddt, to, m->fill);
	else if (to == from)
		return;
	else if (m->mode == MODE_ADD && !first)
		on(r)->add(r, &l, m->ddt, to, from);
	else
		on(r)->copy(r, &l, m->ddt, to, m->sdt, from);
}

static void run_move(struct rank *r, const struct move *mv)
{
	move(r, &mv->m, begins(r, &mv->to), at(r, &mv->to), at(r, &mv->from));
}

/* A collective, or a copy from or to the host: done, or only begun. */
static bool begin(struct rank *r, const struct instr *i)
{
	if (i->code == I_COMM)
		return on(r)->comm(r, i);
	if (!i->aside) {
		run_move(r, i->move);
		return true;
	}
	const struct mover *m = &i->move->m;
	struct nest l = nest_of(r, m);

	return on(r)->aside(r, i, &l, m->ddt, at(r, &i->move->to), m->sdt, at(r, &i->move->from));
}

/* From dim k on, run by run of elements that lie together in the logical tensor too; l has those before. */
static void input_runs(struct rank *r, const struct mover *m, struct nest l, int k, char *to, const char *from)
{
	if (k == m->nd) {
		nest_copy_by(r->team, &l, m->ddt, to, m->sdt, from);
		return;
	}
	struct extent e = extent_of(r->rt->m, m->d[k], &m->on[k], r->coord);
	struct order o = order_of(r->rt->m, m->d[k], e.start);

	for (int64_t i = 0; i < e.valid; i += l.n[k]) {
		l.n[k] = order_run(&o, i, e.valid);
		input_runs(r, m, l, k + 1, to + i * m->ds[k] * dtype_bytes(m->ddt),
			   from + order_index(&o, i) * m->ss[k] * dtype_bytes(m->sdt));
	}
}

/* This rank's part of the global batch, into host memory. */
void rank_input(struct rank *r, const struct instr *i, char *to)
{
	const struct mover *m = &i->move->m;
	struct nest l = { .nd = m->nd };

	memcpy(l.ds, m->ds, sizeof m->ds);
	memcpy(l.ss, m->ss, sizeof m->ss);
	input_runs(r, m, l, 0, to, i->input->x);
}

/* The first rank that has it says it. */
static bool shows(const struct rank *r, const struct instr *i)
{
	int axis = pipe_axis(r->rt->m), stage = i->where ? pipe_first_stage(r->rt->m, i->where) : 0;

	for (uint32_t k = 0; k < r->rt->m->axes.n; k++)
		if (!r->rt->m->axes.at[k].time && r->coord[k] != ((int)k == axis ? stage : 0))
			return false;
	return true;
}

static bool run_report(struct rank *r, const struct instr *i)
{
	return !shows(r, i) || on(r)->report(r, i, at(r, &i->at[0]));
}

void rank_report(struct rank *r, const struct instr *i, const void *x)
{
	struct report *p = &r->rt->reports.at[i->no];

	p->x = nest_load(i->op->in[0]->dt, x, 0);
	p->set = true;
}

/* -- repeats -- */

int64_t rank_carry_bytes(const struct loop *x)
{
	int64_t n = 0;

	for (uint32_t k = 0; k < x->after.n; k++)
		if (x->after.at[k].m.late)
			n += (x->after.at[k].m.bytes + 63) / 64 * 64;
	return n;
}

/* Carried values that were not made in place. Late ones by way of scratch memory, same layout as `to`. */
static bool run_carry(struct rank *r, const struct instr *i)
{
	const struct loop *x = i->loop;
	int64_t need = rank_carry_bytes(x), off = 0;
	char *room = need ? on(r)->scratch(r, i->op, SCRATCH_CARRY, need) : NULL;

	if (need && !room)
		return false;
	for (uint32_t k = 0; k < x->after.n; k++)
		if (x->after.at[k].m.late) {
			move(r, &x->after.at[k].m, true, room + off, at(r, &x->after.at[k].from));
			off += (x->after.at[k].m.bytes + 63) / 64 * 64;
		}
	for (uint32_t k = 0; k < x->after.n; k++)
		if (!x->after.at[k].m.late)
			run_move(r, &x->after.at[k]);
	off = 0;
	for (uint32_t k = 0; k < x->after.n; k++)
		if (x->after.at[k].m.late) {
			struct mover back = x->after.at[k].m;

			memcpy(back.ss, back.ds, sizeof back.ss);
			back.sdt = back.ddt;
			move(r, &back, true, at(r, &x->after.at[k].to), room + off);
			off += (back.bytes + 63) / 64 * 64;
		}
	return true;
}

void rank_set_iter(struct rank *r, const struct loop *x, int64_t n, int64_t turn)
{
	r->iter[x->depth] = n;
	r->iter[SLOT + x->depth] = turn & 1;
	if (x->kept != NODIM)
		r->iter[IN_KEPT] = kept_row(r->rt->m, x->kept, n);
	if (x->staged) {
		r->iter[IN_CHUNK] = n - r->range[x->depth].lo;
		r->iter[IN_STAGE] = r->rows_before + r->iter[IN_CHUNK];
	}
}

/* What the first iteration wants of what is had ahead, into the place that its turn has. */
static bool run_first(struct rank *r, const struct loop *x)
{
	struct trips t = r->range[x->depth];

	rank_set_iter(r, x, x->reverse ? t.hi - 1 : t.lo, r->turns[x->depth]);
	for (uint32_t k = 0; t.lo < t.hi && k < x->body.code.n; k++)
		if (x->body.code.at[k].ahead && !begin(r, &x->body.code.at[k]))
			return false;
	return true;
}

/* It is there for this iteration, and begins for the one after. */
static bool run_next(struct rank *r, const struct instr *i)
{
	const struct loop *x = r->loop[r->depth - 1];
	struct trips t = r->range[x->depth];
	int64_t now = r->iter[x->depth], n = now + (x->reverse ? -1 : 1), turn = r->turns[x->depth];
	bool ok = true;

	if (!on(r)->wait(r, i))
		return false;
	if (n < t.lo || n >= t.hi)
		return true;
	rank_set_iter(r, x, n, turn + 1);
	ok = begin(r, i);
	rank_set_iter(r, x, now, turn);
	return ok;
}

/* Iterations of the range at hand. */
static bool run_trips(struct rank *r, const struct instr *i)
{
	const struct loop *x = i->loop;
	struct trips range = r->range[x->depth];
	uint32_t outer = r->env.iter_all;

	if (!run_first(r, x))
		return false;
	r->loop[r->depth++] = x;
	for (int64_t t = range.lo; t < range.hi; t++) {
		int64_t n = x->reverse ? range.hi - 1 - (t - range.lo) : t;

		rank_set_iter(r, x, n, r->turns[x->depth]);
		r->env.iter[x->depth] = (uint32_t)n;
		r->env.iter_all = outer * (uint32_t)x->trips + (uint32_t)n;
		for (uint32_t k = 0; k < x->each.n; k++)
			run_move(r, &x->each.at[k]);
		if (!run_prog(r, &x->body) || !run_carry(r, i))
			return false;
		r->turns[x->depth]++;
	}
	r->depth--;
	r->env.iter_all = outer;
	return true;
}

/* The iterations of a chunk. */
static bool run_chunk(struct rank *r, const struct instr *i, int chunk)
{
	const struct loop *x = i->loop;
	struct trips t = pipe_trips(r->rt->m, x->dim, chunk);

	if (x->reverse ? t.hi == x->trips : t.lo == 0)
		for (uint32_t k = 0; k < x->entry.n; k++)
			run_move(r, &x->entry.at[k]);
	r->range[x->depth] = t;
	r->rows_before = pipe_row(r->rt->m, x->dim, chunk);
	return run_trips(r, i);
}

static bool run_repeat(struct rank *r, const struct instr *i)
{
	const struct loop *x = i->loop;

	for (uint32_t k = 0; k < x->before.n; k++)
		run_move(r, &x->before.at[k]);
	r->range[x->depth] = (struct trips){ 0, x->trips };
	if (x->first)
		r->range[x->depth].hi = in_first(r->rt->m, x->dim, r->iter[x->depth - 1]);
	if (!x->staged)
		return run_trips(r, i);
	if (r->chunk >= 0)
		return run_chunk(r, i, r->chunk);
	for (int g = 0; g < pipe_chunks(r->rt->m); g++)
		if (pipe_stage(r->rt->m, g) == r->stage && !run_chunk(r, i, g))
			return false;
	return true;
}

static bool run_instr(struct rank *r, const struct instr *i)
{
	switch (i->code) {
	case I_KERNEL:
		return on(r)->kernel(r, i);
	case I_EINSUM:
		return run_einsum(r, i);
	case I_ATTENTION:
		return run_attention(r, i);
	case I_COPY:
		run_move(r, i->move);
		return true;
	case I_COMM:
	case I_HOST:
		return i->ahead ? run_next(r, i) : begin(r, i);
	case I_WAIT:
		return on(r)->wait(r, i);
	case I_REPEAT:
		return run_repeat(r, i);
	case I_INPUT:
		return on(r)->input(r, i, at(r, &i->move->to));
	case I_REPORT:
		return run_report(r, i);
	case I_ITER:
		return on(r)->count(r, i, at(r, &i->at[0]), (int32_t)r->iter[i->no]);
	}
	return false;
}

bool run_prog(struct rank *r, const struct prog *p)
{
	for (uint32_t k = 0; k < p->code.n; k++) {
		const struct instr *i = &p->code.at[k];
		uint32_t done = 0;

		if ((!r->env.training && !i->eval) || !holds_any(r, i->where))
			continue;
		if (comm_failed(r->rt->comm))
			return false;
		comm_pulse(r->rt->comm, r->no, i->op, i->patience, r->chunk, r->mb);
		double start = tracer_now(r);

		r->op = i->op;
		r->ended = 0;
		if (on(r)->begins && !on(r)->begins(r, i))
			return false;
		if (!run_together(r, i, p->code.n - k, &done) || (!done && !run_instr(r, i)))
			return false;
		k += done ? done - 1 : 0;
		if (i->stream < 0 || i->code == I_REPEAT)
			continue;
		if (r->ended > 0)
			tracer_note_span(r, TRACE_OP, i->op, 0, r->began, r->ended);
		else
			tracer_note(r, TRACE_OP, i->op, 0, start);
	}
	return true;
}

/* -- a step -- */

static void begin_micro(struct rank *r, int64_t mb)
{
	int time = time_axis(r->rt->m);

	r->mb = mb;
	if (time >= 0)
		r->coord[time] = (int)mb;
}

static bool run_half(struct rank *r, enum phase phase)
{
	double start = tracer_now(r);

	r->act = (struct action){ .kind = phase == FORWARD ? ACT_F : ACT_B, .mb = (int32_t)r->mb };
	if (!run_prog(r, r->rt->prog[phase]))
		return false;
	tracer_note(r, TRACE_ACTION, NULL, 0, start);
	return true;
}

static bool run_micros(struct rank *r)
{
	bool ok = true;

	for (int64_t mb = 0; ok && mb < r->rt->m->micro; mb++) {
		begin_micro(r, mb);
		r->first = mb == 0;
		ok = run_half(r, FORWARD) && run_half(r, BACKWARD);
	}
	return ok;
}

/* The prologue or the epilogue. */
static bool run_once(struct rank *r, enum phase phase)
{
	double start = tracer_now(r);

	begin_once(r);
	r->act = (struct action){ .kind = NACT, .mb = phase == EPILOGUE };
	if (!run_prog(r, r->rt->prog[phase]))
		return false;
	tracer_note(r, TRACE_ACTION, NULL, 0, start);
	return true;
}

/* All that a step of a rank is; false: comm_fail has been told. */
static bool run_all(struct rank *r)
{
	struct runtime *rt = r->rt;

	memset(&r->env, 0, sizeof r->env);
	r->depth = 0;
	r->env.seed = rt->seed;
	r->env.step = (uint32_t)rt->step;
	r->env.training = rt->training;
	begin_micro(r, 0);
	r->first = r->first_rows = true;
	tracer_begin(r);
	bool ok = run_once(r, PROLOGUE) && (rt->layouts ? run_actions(r) : run_micros(r));

	r->mb = 0;
	r->first = true;
	return ok && run_once(r, EPILOGUE);
}

static double processor_seconds(clockid_t of)
{
	struct timespec t;

	clock_gettime(of, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_step(struct rank *r)
{
	double start = processor_seconds(CLOCK_THREAD_CPUTIME_ID);

	on(r)->step(r, run_all);
	r->busy_s = processor_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
	comm_pulse(r->rt->comm, r->no, NULL, 0, -1, 0);
	comm_done(r->rt->comm);
}

static void *rank_main(void *arg)
{
	struct rank *r = arg;
	struct runtime *rt = r->rt;
	uint64_t turn = 0;

	one_thread_each();
	for (;;) {
		pthread_mutex_lock(&rt->lock);
		while (rt->turn == turn && !rt->stop)
			pthread_cond_wait(&rt->go, &rt->lock);
		turn = rt->turn;
		bool stop = rt->stop;

		pthread_mutex_unlock(&rt->lock);
		if (stop)
			return NULL;
		rt->what(r);
		pthread_mutex_lock(&rt->lock);
		if (--rt->busy == 0)
			pthread_cond_signal(&rt->ended);
		pthread_mutex_unlock(&rt->lock);
	}
}

bool threads_run(struct runtime *r, void (*what)(struct rank *))
{
	pthread_mutex_lock(&r->lock);
	r->what = what;
	r->busy = r->here < 0 ? r->nrank : 1;
	r->turn++;
	pthread_cond_broadcast(&r->go);
	while (r->busy)
		pthread_cond_wait(&r->ended, &r->lock);
	pthread_mutex_unlock(&r->lock);
	return true;
}

bool rt_step(struct runtime *r, int64_t step, bool training, struct diag *d)
{
	if (comm_failed(r->comm)) {
		struct span at;

		return diag_error(d, (struct span){ 0 }, "the run has ended: %s", comm_error(r->comm, &at));
	}
	comm_begin(r->comm);
	r->step = step;
	r->training = training;
	double start = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);

	threads_run(r, run_step);
	r->busy_s = processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
	if (comm_failed(r->comm)) {
		struct span at;
		const char *why = comm_error(r->comm, &at);

		return diag_error(d, at, "step %lld, %s", (long long)step, why);
	}
	return true;
}

double rt_processor_seconds(const struct runtime *r)
{
	double most = r->busy_s / processor_count();

	for (int64_t i = 0; i < r->nrank; i++)
		most = r->rank[i].busy_s > most ? r->rank[i].busy_s : most;
	return most;
}

double rt_report(struct runtime *r, const char *key, bool *found)
{
	for (uint32_t i = 0; i < r->reports.n; i++)
		if (streq(r->reports.at[i].key, key)) {
			*found = r->reports.at[i].set;
			return r->reports.at[i].x;
		}
	*found = false;
	return NAN;
}

int64_t rt_peak_bytes(struct runtime *r, int64_t rank)
{
	return r->m->workspace + (r->layouts ? r->layouts->stage[r->rank[rank].stage].arena : r->m->arena);
}

bool threads_start(struct runtime *rt, struct diag *d)
{
	pthread_attr_t attr;

	if (pthread_attr_init(&attr) != 0)
		return diag_error(d, (struct span){ 0 }, "threads can't be made");
	pthread_attr_setstacksize(&attr, 16 << 20);
	for (int64_t i = 0; i < rt->nrank; i++) {
		if (!rank_here(&rt->rank[i]))
			continue;
		int err = pthread_create(&rt->rank[i].thread, &attr, rank_main, &rt->rank[i]);

		if (err) {
			pthread_attr_destroy(&attr);
			return diag_error(d, (struct span){ 0 }, "the thread of rank %lld can't be made: %s", (long long)i,
					  strerror(err));
		}
		rt->rank[i].started = true;
	}
	pthread_attr_destroy(&attr);
	return true;
}

void threads_stop(struct runtime *rt)
{
	pthread_mutex_lock(&rt->lock);
	rt->stop = true;
	pthread_cond_broadcast(&rt->go);
	pthread_mutex_unlock(&rt->lock);
	for (int64_t i = 0; rt->rank && i < rt->nrank; i++)
		if (rt->rank[i].started)
			pthread_join(rt->rank[i].thread, NULL);
}
