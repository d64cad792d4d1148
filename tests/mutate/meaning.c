/* tests/mutate/meaning.c - does a plan compute what its own text says? That is asked of the reference evaluator, without a
 * mesh: one rank, one microbatch, no collectives, no stages, nothing that waits, and each value in a place of its own. What
 * is left is what the ops mean. A run of all ranks that ends as this does has computed that model, alike on
 * all of them, whatever model it is.
 *
 * How far fp32 may be off is asked of the evaluator too: its steps are done once more from buffers that differ in the last bits. */
#include <math.h>

#include "ir/eval.h"
#include "ir/text.h"
#include "runtime/internal.h"
#include "tests/mutate/mutate.h"

enum { TIMES = 30 };                            /* what fp32 may do, in moves of the last bits */
static const double exact = 3e-5, loose = 0.02; /* of the largest element */

struct meaning {
	struct arena *mem;
	struct module *m;
	struct eval *e, *moved; /* moved: from other last bits */
};

static void unsplit(struct sharding *sh)
{
	*sh = (struct sharding){ 0 };
}

/* A collective brings to a rank what others have: one rank has it. */
static void read_alone(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		unsplit(&block->args.at[i]->sh);
	for (struct op *op = block->first, *next; op; op = next) {
		next = op->next;
		for (uint32_t k = 0; k < op->nout; k++)
			unsplit(&op->out[k]->sh);
		op->has &= ~(1u << A_axes);
		if (op->body)
			read_alone(op->body);
		if (opinfo[op->code].class != C_COMM || op->code == OP_WAIT)
			continue;
		for (uint32_t k = 0; k < op->nout; k++)
			replace_uses(op->home, op->out[k], op->in[k]);
		op_unlink(op);
	}
}

static void read_by_one_rank(struct module *m)
{
	for (uint32_t i = 0; i < m->bufs.n; i++)
		unsplit(&m->bufs.at[i]->store);
	read_alone(&m->top);
	m->axes.n = 0;
	m->pipe = (struct pipe){ .user = -1 };
	m->micro = 1;
}

static void move_last_bits(struct meaning *x)
{
	for (uint32_t i = 0; i < x->m->bufs.n; i++) {
		const struct buffer *b = x->m->bufs.at[i];
		struct tensor *t = eval_get(x->moved, b->name);

		if (b->role == B_INPUT)
			continue;
		for (int64_t k = 0; k < t->count; k++)
			t->x[k] *= 1 + ((double)(k * 2654435761 % 2001) / 1000 - 1) / (1 << 23);
		eval_set(x->moved, b->name, t);
	}
}

struct meaning *meaning_of(struct arena *mem, const char *path, const char *text, size_t len, uint64_t seed)
{
	struct meaning *x = NEW(mem, struct meaning);
	struct diag d;

	diag_init(&d, mem, NULL, NULL);
	x->mem = mem;
	x->m = module_parse(mem, path, text, len, &d);
	read_by_one_rank(x->m);
	x->e = eval_new(mem, x->m, seed);
	x->moved = eval_new(mem, x->m, seed);
	eval_init(x->e);
	eval_init(x->moved);
	move_last_bits(x);
	return x;
}

static double largest(const struct tensor *t)
{
	double most = 0;

	for (int64_t i = 0; i < t->count; i++)
		if (isfinite(t->x[i]))
			most = fmax(most, fabs(t->x[i]));
	return most;
}

/* Of all buffers of a role: what should be zero is rounded as those beside it are. */
static double size_of(struct meaning *x, enum role role)
{
	double most = 0;

	for (uint32_t i = 0; i < x->m->bufs.n; i++)
		if (x->m->bufs.at[i]->role == role)
			most = fmax(most, largest(eval_get(x->e, x->m->bufs.at[i]->name)));
	return most;
}

/* Are n numbers, of about that size, those that are wanted, as far as fp32 may tell? Not if it can't tell. */
static bool are_same(const double *got, const double *want, const double *moved, int64_t n, double size)
{
	double most = size / 10, off = 0;

	for (int64_t i = 0; i < n; i++) {
		if (isfinite(want[i]) != isfinite(moved[i]))
			return false;
		if (!isfinite(want[i]))
			continue;
		most = fmax(most, fabs(want[i]));
		off = fmax(off, fabs(want[i] - moved[i]));
	}
	double bound = exact * most + TIMES * off;

	for (int64_t i = 0; i < n; i++)
		if (isfinite(want[i]) ? !(fabs(got[i] - want[i]) <= bound) : isfinite(got[i]))
			return false;
	return bound <= loose * most;
}

static bool same_buffer(struct meaning *x, struct runtime *rt, const struct buffer *b)
{
	const struct tensor *want = eval_get(x->e, b->name), *moved = eval_get(x->moved, b->name);
	struct tensor *got = tensor_new(x->mem, want->nd, want->size);

	rt_get(rt, b->name, got->x);
	return are_same(got->x, want->x, moved->x, want->count, size_of(x, b->role));
}

static bool same_reports(struct meaning *x, const struct runtime *rt)
{
	for (uint32_t i = 0; i < rt->reports.n; i++) {
		const char *key = rt->reports.at[i].key;
		bool found = false;
		double want = eval_report(x->e, key, &found), moved = eval_report(x->moved, key, NULL);

		if (!found || !are_same(&rt->reports.at[i].x, &want, &moved, 1, fabs(want)))
			return false;
	}
	return true;
}

bool meaning_step(struct meaning *x, struct runtime *rt, int64_t step)
{
	const char *why;

	for (uint32_t i = 0; i < x->m->bufs.n; i++) {
		const struct buffer *b = x->m->bufs.at[i];
		struct tensor *t = b->role == B_INPUT ? tensor_like(x->mem, x->m, b->nd, b->d) : NULL;

		if (!t)
			continue;
		for (int64_t k = 0; k < t->count; k++)
			t->x[k] = input_value(b, step, k);
		eval_set(x->e, b->name, t);
		eval_set(x->moved, b->name, t);
	}
	if (!eval_step(x->e, step, true, NULL, &why) || !eval_step(x->moved, step, true, NULL, &why))
		return false;
	for (uint32_t i = 0; i < x->m->bufs.n; i++)
		if (x->m->bufs.at[i]->role != B_INPUT && !same_buffer(x, rt, x->m->bufs.at[i]))
			return false;
	return same_reports(x, rt);
}
