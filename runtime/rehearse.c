/* runtime/rehearse.c - before there is anything to compute, all that computes is carried out once, on an arena of zeros:
 * then the library has made the code and the primitives of its matrix products, and the workspace is as large as it gets.
 * So no step allocates, not the first one either.
 *
 * Nothing is sent or copied, a loop goes round once, of the actions of a stage each chunk has one of a kind; and what was
 * written is taken away. */
#include <sys/mman.h>

#include "runtime/backend.h"
#include "runtime/exec.h"

static bool rehearse_prog(struct rank *r, const struct prog *p);

/* Some iterations that the rank may come to: of the chunk at work, or of the first that has any. */
static struct trips some_trips(struct rank *r, const struct loop *x)
{
	const struct module *m = r->rt->m;

	if (x->first || !x->staged)
		return (struct trips){ 0, x->first ? 1 : x->trips };
	for (int g = 0; g < pipe_chunks(m); g++) {
		struct trips t = pipe_trips(m, x->dim, g);

		if ((r->chunk >= 0 ? g != r->chunk : pipe_stage(m, g) != r->stage) || t.lo == t.hi)
			continue;
		r->rows_before = pipe_row(m, x->dim, g);
		return t;
	}
	return (struct trips){ 0, 0 };
}

static bool rehearse_loop(struct rank *r, const struct instr *i)
{
	const struct loop *x = i->loop;
	struct trips t = r->range[x->depth] = some_trips(r, x);
	int64_t need = rank_carry_bytes(x);

	if (t.lo == t.hi)
		return true;
	if (need && !r->rt->backend->scratch(r, i->op, SCRATCH_CARRY, need))
		return false;
	rank_set_iter(r, x, t.lo, 0);
	return rehearse_prog(r, &x->body);
}

/* As the first microbatch makes it, and as others add to it. */
static bool rehearse_einsum(struct rank *r, const struct instr *i)
{
	bool first = r->first, first_rows = r->first_rows, ok = run_einsum(r, i);

	r->first = r->first_rows = false;
	ok = ok && (!i->einsum->x.add || run_einsum(r, i));
	r->first = first;
	r->first_rows = first_rows;
	return ok;
}

static bool rehearse_one(struct rank *r, const struct instr *i)
{
	switch (i->code) {
	case I_KERNEL:
		return r->rt->backend->kernel(r, i);
	case I_EINSUM:
		return rehearse_einsum(r, i);
	case I_ATTENTION:
		return rehearse_attention(r, i);
	case I_REPEAT:
		return rehearse_loop(r, i);
	default:
		return true;
	}
}

static bool rehearse_prog(struct rank *r, const struct prog *p)
{
	for (uint32_t k = 0; k < p->code.n; k++)
		if (holds_any(r, p->code.at[k].where) && !rehearse_one(r, &p->code.at[k]))
			return false;
	return true;
}

static bool was_before(const struct rank *r, uint32_t no)
{
	const struct pipe_step *s = &r->steps[no];

	for (uint32_t i = 0; i < no; i++)
		if (r->steps[i].section == s->section && r->steps[i].act.chunk == s->act.chunk)
			return true;
	return false;
}

static bool rehearse_actions(struct rank *r)
{
	const struct module *m = r->rt->m;
	const struct stage_layout *l = &r->rt->layouts->stage[r->stage];

	for (uint32_t i = 0; i < l->acts.n; i++) {
		const struct pipe_step *s = &r->steps[i];

		if (was_before(r, i))
			continue;
		r->slot = s->slot;
		r->chunk = s->act.chunk;
		for (int place = 0; place <= 2 * (int)m->pipe.loops.n; place++)
			if (pipe_runs(m, s->act.chunk, place) && !rehearse_prog(r, &r->rt->prog[s->section][place]))
				return false;
	}
	return true;
}

static bool rehearse_once(struct rank *r, enum phase phase)
{
	begin_once(r);
	return rehearse_prog(r, r->rt->prog[phase]);
}

bool rehearse(struct rank *r)
{
	struct runtime *rt = r->rt;

	memset(&r->env, 0, sizeof r->env);
	r->env.training = true;
	r->first = r->first_rows = true;
	bool ok = rehearse_once(r, PROLOGUE) &&
		  (rt->layouts ? rehearse_actions(r) : rehearse_prog(r, rt->prog[FORWARD]) && rehearse_prog(r, rt->prog[BACKWARD])) &&
		  rehearse_once(r, EPILOGUE);

	r->scores = 0;
	if (madvise(r->arena, rank_bytes(r), MADV_DONTNEED) != 0) /* zeros again; not where pages are locked */
		memset(r->arena, 0, rank_bytes(r));
	return ok;
}
