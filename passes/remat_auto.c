/* passes/remat_auto.c - what to keep within a number of bytes.
 *
 * The front of each loop's choices (remat_front.c), then of all loops together: one choice for each loop, the
 * same for all its iterations. What an iteration is given, and routing, is kept in any case. */
#include <stdlib.h>

#include "passes/remat.h"

struct job {
	struct pair *p;
	uint32_t nops;
	struct op **op;       /* of the trial */
	struct trial_op *trial;
	struct front front;
	double times, stashes; /* iterations; those whose stacks a rank holds at once */
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
	list_ops(j);
	j->trial = NEWN(m->mem, struct trial_op, j->nops + 1);
	for (uint32_t i = 0; i < j->nops; i++)
		describe(j, i);
}

/* -- several loops -- */

struct mix {
	double bytes, seconds;
	uint32_t choice, before; /* point of the last loop; which mix of those before it */
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
		for (uint32_t b = 0; b < j->front.n; b++) {
			struct mix x = { old->at[a].bytes + j->stashes * (double)j->front.at[b].bytes,
					 old->at[a].seconds + j->times * j->front.at[b].seconds, b, a };

			PUSH(mem, &all, x);
		}
	qsort(all.at, all.n, sizeof *all.at, by_bytes);
	for (uint32_t i = 0; i < all.n; i++)
		if (!good.n || all.at[i].seconds < good.at[good.n - 1].seconds)
			PUSH(mem, &good, all.at[i]);
	return good;
}

static void keep_point(struct job *j, const struct point *x)
{
	uint32_t c = 0;

	for (uint32_t i = 0; i < j->nops; i++) {
		if (!j->trial[i].may_keep || c == 64 * KEEP_WORDS)
			continue;
		bool keep = x->keep[c / 64] >> (c % 64) & 1;
		c++;
		for (uint32_t k = 0; keep && k < j->op[i]->nout; k++)
			PUSH(j->p->m->mem, &j->p->kept, j->op[i]->out[k]);
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
		mix[i + 1] = add_loop(m->mem, &mix[i], &job[i]);
	}
	while (at + 1 < mix[n].n && mix[n].at[at + 1].bytes <= (double)bytes)
		at++;
	bytes = (int64_t)mix[n].at[at].bytes;
	for (uint32_t i = n; i-- > 0;) {
		const struct mix *x = &mix[i + 1].at[at];

		keep_point(&job[i], &job[i].front.at[x->choice]);
		at = x->before;
	}
	return bytes;
}
