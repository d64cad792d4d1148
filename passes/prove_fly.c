/* passes/prove_fly.c - collectives, and copies from and to the host, that have started: what they read and write is theirs until
 * something waits for it, or the next iteration has come. */
#include "passes/prove.h"

bool in_flight(struct prover *p, const struct op *op, const struct value *v, struct bytes at, bool writes)
{
	for (uint32_t i = 0; i < p->flights.n; i++) {
		const struct flight *f = &p->flights.at[i];
		const char *name = f->op ? opinfo[f->op->code].name : "a message";

		if (!meet(f->at, at) || (!writes && !f->written))
			continue;
		if (writes)
			unsafe(p, op, "it writes %s where %s is still at work", prove_name(p, v), name);
		else
			unsafe(p, op, "it reads %s while %s still writes there", prove_name(p, v), name);
		return true;
	}
	return false;
}

void start_flight(struct prover *p, const struct op *op, struct bytes at, bool written)
{
	PUSH(p->d->mem, &p->flights, ((struct flight){ at, written, op }));
}

static void end_flights(struct prover *p, const struct op *op)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->flights.n; i++)
		if (p->flights.at[i].op != op)
			p->flights.at[n++] = p->flights.at[i];
	p->flights.n = n;
}

/* It has started: its operands are read, its results written, until something waits for it. */
void fly(struct prover *p, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++)
		start_flight(p, op, range_of(p, &held(p, op->in[i])->spot), false);
	for (uint32_t i = 0; i < op->nout; i++)
		start_flight(p, op, range_of(p, &held(p, op->out[i])->spot), true);
}

bool walk_wait(struct prover *p, const struct op *op)
{
	const struct op *start = op->in[0]->def;

	end_flights(p, start);
	for (uint32_t i = 0; i < op->nin; i++) {
		if (!same_spot(&held(p, op->in[i])->spot, &held(p, op->out[i])->spot))
			return unsafe(p, op, "%s is not where what it waits for puts it", prove_name(p, op->out[i]));
		held(p, op->out[i])->is = held(p, op->in[i])->is;
	}
	return true;
}

/* The gather or copy of another iteration than this, from its start on. */
bool fly_ahead(struct prover *p, const struct op *op, int depth, struct bytes rows, int64_t turn)
{
	struct bytes kept[NCOUNT];
	bool ok = true;

	memcpy(kept, p->iter, sizeof kept);
	set_iter(p, depth, rows, turn);
	for (uint32_t i = 0; ok && i < op->nin; i++) {
		held(p, op->in[i])->is = held(p, op->home->owner->in[op->in[i]->no])->is;
		ok = op->in[i]->off < 0 ? read_value(p, op, op->in[i]) :
					  unsafe(p, op, "%s is a copy, made in its own iteration", prove_name(p, op->in[i]));
	}
	for (uint32_t i = 0; ok && i < op->nout; i++)
		ok = write_at(p, op, op->out[i], range_of(p, &held(p, op->out[i])->spot), (struct content){ 0, 0 });
	if (ok)
		fly(p, op);
	memcpy(p->iter, kept, sizeof kept);
	return ok;
}

/* What the iteration before started is there; the next one's starts. */
bool walk_ahead(struct prover *p, const struct op *op)
{
	int depth = prove_depth(op->home) - 1;

	end_flights(p, op);
	return walk_compute(p, op) &&
	       (p->next.lo == p->next.hi || fly_ahead(p, op, depth, p->next, p->turns[depth] + 1));
}
