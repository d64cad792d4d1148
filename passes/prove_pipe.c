/* passes/prove_pipe.c - stages meet: messages in the order of both ends, and nobody waits in a circle.
 *
 * A group over other axes than the pipeline's joins ranks at the same instruction of the same program, so ranks
 * may be taken for their stages. What remains is the order of actions, of the messages of each channel, and of
 * collectives between stages, which stand in the prologue and the epilogue, where all stages have one order.
 * A message needs nothing but room, and takes room from nobody else: so if the actions can be carried out in any
 * order of time, they can in every one. */
#include "passes/prove.h"

struct letter {
	int chunk, mb;
};

struct queue {
	const struct channel_plan *plan;
	VEC(struct letter) sent;
	uint32_t taken;
};

struct stage {
	const struct actions *acts;
	uint32_t at;
	bool has; /* what its action takes is there: it has run, and has something to send */
};

struct line {
	struct prover *p;
	struct queue *queue;
	struct stage *stage;
};

static enum phase phase_of(const struct action *a)
{
	return a->kind == ACT_F ? FORWARD : BACKWARD;
}

static const struct action *action_of(const struct line *l, int s)
{
	return &l->stage[s].acts->at[l->stage[s].at];
}

static int step(const struct action *a)
{
	return phase_of(a) == FORWARD ? 1 : -1;
}

/* The channel of the message that chunk `from` sends to chunk `to`; NULL: there is no message. */
static struct queue *queue_of(const struct line *l, enum phase phase, int from, int to)
{
	const struct layouts *x = l->p->l;
	const struct message *msg = phase == FORWARD ? x->fore : x->back;
	int chunks = pipe_chunks(l->p->m);

	if (from < 0 || to < 0 || from >= chunks || to >= chunks || !msg[from].regions.n)
		return NULL;
	int no = channel_find(&x->channels, pipe_stage(l->p->m, from), pipe_stage(l->p->m, to), phase);

	return no < 0 ? NULL : &l->queue[no];
}

static struct queue *inbox(const struct line *l, const struct action *a)
{
	return a->kind == ACT_W ? NULL : queue_of(l, phase_of(a), a->chunk - step(a), a->chunk);
}

static struct queue *outbox(const struct line *l, const struct action *a)
{
	return a->kind == ACT_W ? NULL : queue_of(l, phase_of(a), a->chunk, a->chunk + step(a));
}

/* The sender has a buffer too, but for itself. */
static bool has_room(const struct queue *q)
{
	uint32_t room = (uint32_t)q->plan->buffers + (q->plan->from != q->plan->to);

	return q->sent.n - q->taken < room;
}

static const char *action_text(const struct line *l, int s)
{
	const struct action *a = action_of(l, s);

	return arena_printf(l->p->d->mem, "%c of chunk %d, microbatch %d", action_letter[a->kind], a->chunk, a->mb);
}

static bool take(struct line *l, int s, struct queue *q)
{
	const struct action *a = action_of(l, s);
	struct letter got = q->sent.at[q->taken++];

	if (got.chunk == a->chunk - step(a) && got.mb == a->mb)
		return true;
	return diag_error(l->p->d, (struct span){ 0 },
			  "unsafe plan: stage %d, action %u: %s takes what stage %d sends from chunk %d for microbatch %d", s,
			  l->stage[s].at, action_text(l, s), q->plan->from, got.chunk, got.mb);
}

/* As far as stage s gets. */
static bool advance(struct line *l, int s, bool *moved)
{
	struct stage *x = &l->stage[s];

	while (x->at < x->acts->n) {
		const struct action *a = action_of(l, s);
		struct queue *in = inbox(l, a), *out = outbox(l, a);

		if (!x->has && in && in->taken == in->sent.n)
			return true;
		if (!x->has && in && !take(l, s, in))
			return false;
		*moved |= !x->has;
		x->has = true;
		if (out && !has_room(out))
			return true;
		if (out)
			PUSH(l->p->d->mem, &out->sent, ((struct letter){ a->chunk, a->mb }));
		x->has = false;
		x->at++;
		*moved = true;
	}
	return true;
}

/* Whom stage s waits for. */
static int waits_for(const struct line *l, int s)
{
	const struct action *a = action_of(l, s);

	return l->stage[s].has ? outbox(l, a)->plan->to : inbox(l, a)->plan->from;
}

static bool stuck(struct line *l, int first)
{
	struct text t = { .mem = l->p->d->mem };
	bool *seen = NEWN(l->p->d->mem, bool, l->p->l->stages);
	int s = first;

	while (!seen[s] && l->stage[s].at < l->stage[s].acts->n) {
		seen[s] = true;
		text_put(&t, "%sstage %d (action %u: %s) waits to %s stage %d", t.n ? ", " : "", s, l->stage[s].at, action_text(l, s),
			 l->stage[s].has ? "send to" : "hear from", waits_for(l, s));
		s = waits_for(l, s);
	}
	return diag_error(l->p->d, (struct span){ 0 }, "unsafe plan: %s%s", t.s,
			  seen[s] ? "" : ", which has ended");
}

static bool walk_messages(struct line *l)
{
	bool moved = true;

	while (moved) {
		moved = false;
		for (int s = 0; s < l->p->l->stages; s++)
			if (!advance(l, s, &moved))
				return false;
	}
	for (int s = 0; s < l->p->l->stages; s++)
		if (l->stage[s].at < l->stage[s].acts->n)
			return stuck(l, s);
	for (uint32_t i = 0; i < l->p->l->channels.n; i++)
		if (l->queue[i].taken != l->queue[i].sent.n)
			return diag_error(l->p->d, (struct span){ 0 }, "unsafe plan: nobody takes what stage %d sends to stage %d",
					  l->queue[i].plan->from, l->queue[i].plan->to);
	return true;
}

/* Stages reach the same point of prologue and epilogue in one order, in loops too, but in those over rows, of which
 * each has its own; of an action they do not. */
static bool prove_groups(struct prover *p, const struct block *block, bool together)
{
	for (const struct op *op = block->first; op; op = op->next) {
		bool here = block->owner ? together : op->phase != FORWARD && op->phase != BACKWARD;
		bool attends = opinfo[op->code].class == C_ATTN, joins = (comm_sends(op->code) || attends) && (comm_axes(op) >> pipe_axis(p->m) & 1);

		if (joins && !here)
			return unsafe(p, op, "it joins stages, which do not come here together");
		if (joins && attends && HAS(op, where) && op->at.where)
			return unsafe(p, op, "keys come from all stages, and some do not run it");
		if (op->code == OP_REPEAT && !prove_groups(p, op->body, here && (block->owner || !is_staged(p->m, op->at.dim))))
			return false;
	}
	return true;
}

bool prove_channels(struct prover *p)
{
	struct line l = { .p = p };

	if (!p->l)
		return true;
	l.queue = NEWN(p->d->mem, struct queue, p->l->channels.n + 1);
	l.stage = NEWN(p->d->mem, struct stage, p->l->stages);
	for (uint32_t i = 0; i < p->l->channels.n; i++)
		l.queue[i].plan = &p->l->channels.at[i];
	for (int s = 0; s < p->l->stages; s++)
		l.stage[s].acts = &p->l->stage[s].acts;
	return prove_groups(p, &p->m->top, true) && walk_messages(&l);
}
