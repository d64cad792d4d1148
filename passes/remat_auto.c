/* passes/remat_auto.c - what to keep within a number of bytes.
 *
 * The front of each loop's choices (remat_front.c); then, as a choice for all iterations leaves a gap to the next,
 * two of them, one for the first iterations of a stage and one that keeps more for the others; then of all loops
 * together. What an iteration is given, and routing, is kept in any case. */
#include <stdlib.h>

#include "passes/remat.h"

/* Points of the front: of the first n iterations, of the others. */
struct option {
	double bytes, seconds;
	uint32_t a, b;
	int64_t n;
};

struct job {
	struct pair *p;
	uint32_t nops;
	struct op **op;       /* of the trial */
	struct trial_op *trial;
	struct front front;
	double times, stashes; /* iterations; those whose stacks a rank holds at once */
	int64_t rows;          /* iterations of the stage with most */
	VEC(struct option) options;
};

static int number_of(const struct job *j, const struct op *op)
{
	for (uint32_t i = 0; i < j->nops; i++)
		if (j->op[i] == op)
			return (int)i;
	return -1;
}

/* The nodes' ops in their order, without sources. */
static void list_ops(struct job *j)
{
	struct pair *p = j->p;

	j->op = NEWN(p->m->mem, struct op *, p->nodes.n + 1);
	for (uint32_t i = 0; i < p->nodes.n; i++) {
		const struct node *n = p->nodes.at[i];

		if (n->v->def && !n->source && number_of(j, n->v->def) < 0)
			j->op[j->nops++] = n->v->def;
	}
}

static void describe(struct job *j, uint32_t i)
{
	struct pair *p = j->p;
	struct op *op = j->op[i];
	struct trial_op *t = &j->trial[i];
	uint32_t *in = NEWN(p->m->mem, uint32_t, op->nin + 1);
	bool fits = true;

	t->in = in;
	t->seconds = op_seconds(p->m, op);
	for (uint32_t k = 0; k < op->nin; k++) {
		int no = op->in[k]->def ? number_of(j, op->in[k]->def) : -1;

		if (no >= 0)
			in[t->nin++] = (uint32_t)no;
	}
	for (uint32_t k = 0; k < op->nout; k++) {
		const struct node *n = node_of(p, op->out[k]);

		if (!n)
			continue;
		t->read |= n->read;
		fits &= can_stack(p, n->v);
		t->bytes += is_wanted(p->m, n->v) ? 0 : local_bytes(p->m, n->v);
	}
	t->may_keep = fits && opinfo[op->code].class != C_LEAF && (t->read || !is_light(p, op));
}

/* As many chunks as the schedule has in flight on a stage; of a loop that is not cut, all rows each time. */
double rows_held(const struct module *m, dimid d)
{
	struct schedule s = pipe_schedule(m);
	double most = 0;

	if (pipe_axis(m) < 0)
		return (double)dim_size(m, d);
	for (int stage = 0; stage < s.p; stage++) {
		double rows = is_staged(m, d) ? (double)pipe_rows(m, d, stage) : (double)dim_size(m, d) * s.v;
		double held = rows / s.v * schedule_inflight(&s, stage);

		most = held > most ? held : most;
	}
	return most;
}

static void open_job(struct job *j)
{
	const struct module *m = j->p->m;
	dimid d = j->p->fwd->at.dim;

	j->times = (double)dim_size(m, d);
	j->stashes = rows_held(m, d);
	j->rows = dim_size(m, d);
	for (int s = 0; is_staged(m, d) && s < pipe_stages(m); s++)
		j->rows = s == 0 || pipe_rows(m, d, s) > j->rows ? pipe_rows(m, d, s) : j->rows;
	list_ops(j);
	j->trial = NEWN(m->mem, struct trial_op, j->nops + 1);
	for (uint32_t i = 0; i < j->nops; i++)
		describe(j, i);
}

/* -- one choice for the first iterations, another for the rest -- */

static void offer(struct job *j, uint32_t a, uint32_t b, int64_t n)
{
	const struct point *x = &j->front.at[a], *y = &j->front.at[b];
	double part = j->rows ? (double)n / (double)j->rows : 0;
	struct option o = { j->stashes * ((double)y->bytes - part * (double)(y->bytes - x->bytes)),
			    j->times * (y->seconds + part * (x->seconds - y->seconds)), a, b, n };

	PUSH(j->p->m->mem, &j->options, o);
}

static bool keeps_less(const struct point *a, const struct point *b)
{
	for (int w = 0; w < KEEP_WORDS; w++)
		if (a->keep[w] & ~b->keep[w])
			return false;
	return true;
}

static int option_order(const void *x, const void *y)
{
	const struct option *a = x, *b = y;

	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? -1 : 1;
	if (a->seconds != b->seconds)
		return a->seconds < b->seconds ? -1 : 1;
	return (a->n > b->n) - (a->n < b->n);
}

/* Those that no other beats in both bytes and seconds. */
static void find_options(struct job *j)
{
	enum { CUTS = 16 };
	int64_t step = j->rows / CUTS + 1;
	uint32_t good = 0;

	for (uint32_t b = 0; b < j->front.n; b++)
		offer(j, b, b, 0);
	for (uint32_t b = 1; b < j->front.n; b++)
		for (uint32_t a = 0; a < b; a++)
			for (int64_t n = step; n < j->rows && keeps_less(&j->front.at[a], &j->front.at[b]); n += step)
				offer(j, a, b, n);
	qsort(j->options.at, j->options.n, sizeof *j->options.at, option_order);
	for (uint32_t i = 0; i < j->options.n; i++)
		if (!good || j->options.at[i].seconds < j->options.at[good - 1].seconds)
			j->options.at[good++] = j->options.at[i];
	j->options.n = good;
}

/* -- several loops -- */

struct mix {
	double bytes, seconds;
	uint32_t choice, before; /* option of the last loop; which mix of those before it */
};

typedef VEC(struct mix) mixes;

static int by_bytes(const void *x, const void *y)
{
	const struct mix *a = x, *b = y;

	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? -1 : 1;
	return a->seconds < b->seconds ? -1 : a->seconds > b->seconds;
}

static mixes add_loop(struct arena *mem, const mixes *old, const struct job *j)
{
	enum { MOST = 512 }; /* of what is good so far, evenly */
	mixes all = { 0 }, good = { 0 };
	uint32_t step = old->n / MOST + 1;

	for (uint32_t a = 0; a < old->n; a += step)
		for (uint32_t b = 0; b < j->options.n; b++) {
			struct mix x = { old->at[a].bytes + j->options.at[b].bytes,
					 old->at[a].seconds + j->options.at[b].seconds, b, a };

			PUSH(mem, &all, x);
		}
	qsort(all.at, all.n, sizeof *all.at, by_bytes);
	for (uint32_t i = 0; i < all.n; i++)
		if (!good.n || all.at[i].seconds < good.at[good.n - 1].seconds)
			PUSH(mem, &good, all.at[i]);
	return good;
}

static void keep_option(struct job *j, const struct option *o)
{
	const struct point *x = &j->front.at[o->b], *less = &j->front.at[o->a];
	uint32_t c = 0;

	j->p->first = first_apart(j->p, o->n);
	if (o->n && !j->p->first) /* other loops have another number */
		x = less;

	for (uint32_t i = 0; i < j->nops; i++) {
		if (!j->trial[i].may_keep || c == 64 * KEEP_WORDS)
			continue;
		bool keep = x->keep[c / 64] >> (c % 64) & 1, by_all = less->keep[c / 64] >> (c % 64) & 1;
		c++;
		for (uint32_t k = 0; keep && k < j->op[i]->nout; k++) {
			PUSH(j->p->m->mem, &j->p->kept, j->op[i]->out[k]);
			if (!by_all)
				PUSH(j->p->m->mem, &j->p->rest, j->op[i]->out[k]);
		}
	}
}

int64_t choose_within(struct module *m, struct pair *pairs, uint32_t n, int64_t bytes, struct front **fronts)
{
	struct job *job = NEWN(m->mem, struct job, n + 1);
	mixes *mix = (mixes *)NEWN(m->mem, mixes, n + 1);
	uint32_t at = 0;
	bool made = !*fronts;

	if (made)
		*fronts = NEWN(m->mem, struct front, n + 1);
	PUSH(m->mem, &mix[0], ((struct mix){ 0 }));
	for (uint32_t i = 0; i < n; i++) {
		job[i].p = &pairs[i];
		find_nodes(&pairs[i]); /* a forward loop may have two reverse ones */
		open_job(&job[i]);
		if (made)
			(*fronts)[i] = remat_front(m->mem, job[i].nops, job[i].trial);
		job[i].front = (*fronts)[i];
		find_options(&job[i]);
		mix[i + 1] = add_loop(m->mem, &mix[i], &job[i]);
	}
	while (at + 1 < mix[n].n && mix[n].at[at + 1].bytes <= (double)bytes)
		at++;
	bytes = (int64_t)mix[n].at[at].bytes;
	for (uint32_t i = n; i-- > 0;) {
		const struct mix *x = &mix[i + 1].at[at];

		keep_option(&job[i], &job[i].options.at[x->choice]);
		at = x->before;
	}
	return bytes;
}
