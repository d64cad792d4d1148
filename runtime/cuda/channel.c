/* runtime/cuda/channel.c - messages between stages: each channel has a communicator of two and a stream at both ends.
 *
 * NCCL has no tags: the k-th send of a channel meets its k-th receive, and both ends know the order from the plan. The receiver
 * posts a receive for each of its buffers when they are there, and the next as soon as one has been read; the sender waits only
 * for the message before. All of that is order on streams: no thread waits. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cuda/cuda.h"

enum { SENDER, RECEIVER };

struct end {
	struct gpu *g;          /* NULL: in another process */
	ncclComm_t group;
	CUstream stream;
	CUevent ready, *there;  /* compute to stream; a message has gone, or (by buffer) has come */
	uint64_t n, posted;     /* messages of this step: sent or taken; receives */
	uint32_t step;          /* of the rank's actions: where to look for the next to receive */
};

struct channel {
	struct runtime *rt;
	struct channel_ends at;
	struct end end[2];
	int64_t bytes;          /* of the message that is being written */
};

struct channel *cuda_channel_open(struct runtime *rt, const struct channel_ends *e)
{
	struct channel *ch = calloc(1, sizeof *ch);

	if (!ch)
		return NULL;
	ch->rt = rt;
	ch->at = *e;
	for (int i = 0; i < 2; i++) {
		struct rank *r = &rt->rank[i == SENDER ? e->from : e->to];
		struct end *x = &ch->end[i];

		if (!(x->g = gpu_of(r)))
			continue;
		x->there = NEWN(x->g->mem, CUevent, e->buffers + 1);
		if (e->from != e->to)
			PUSH(x->g->mem, &x->g->channels, ch);
	}
	return ch;
}

void cuda_channel_close(struct channel *ch)
{
	free(ch);
}

static bool open_end(struct channel *ch, int side)
{
	struct end *x = &ch->end[side];
	int events = side == SENDER ? 1 : ch->at.buffers;
	struct gpu *g = x->g;
	uint32_t no = 0;
	char name[64];

	while (ch->rt->channels.at[no] != ch)
		no++;
	snprintf(name, sizeof name, "channel %u", no);
	if (!CU(g, cuStreamCreate, &x->stream, CU_STREAM_NON_BLOCKING) || !CU(g, cuEventCreate, &x->ready, CU_EVENT_DISABLE_TIMING))
		return false;
	for (int i = 0; i < events; i++)
		if (!CU(g, cuEventCreate, &x->there[i], CU_EVENT_DISABLE_TIMING))
			return false;
	return communicator(g, name, 2, (const int64_t[]){ ch->at.from, ch->at.to }, side, &x->group);
}

/* All ranks open theirs in one order, so that nobody waits in a circle. */
bool channels_open(struct gpu *g)
{
	for (uint32_t i = 0; i < g->channels.n; i++) {
		struct channel *ch = g->channels.at[i];

		if (!open_end(ch, ch->end[SENDER].g == g ? SENDER : RECEIVER))
			return false;
	}
	return true;
}

uint32_t channels_take(struct gpu *g, ncclComm_t *to)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->channels.n; i++) {
		struct channel *ch = g->channels.at[i];
		struct end *x = &ch->end[ch->end[SENDER].g == g ? SENDER : RECEIVER];

		if (x->group)
			to[n++] = x->group;
		x->group = NULL;
	}
	return n;
}

void channels_close(struct gpu *g)
{
	for (uint32_t i = 0; i < g->channels.n; i++) {
		struct channel *ch = g->channels.at[i];
		struct end *x = &ch->end[ch->end[SENDER].g == g ? SENDER : RECEIVER];

		if (x->group)
			lib.ncclCommDestroy(x->group);
		x->group = NULL;
		for (int k = 0; k < ch->at.buffers; k++)
			if (x->there[k])
				lib.cuEventDestroy(x->there[k]);
		if (x->ready)
			lib.cuEventDestroy(x->ready);
		if (x->stream)
			lib.cuStreamDestroy(x->stream);
	}
}

/* The channel's stream waits for what compute has done. */
static bool follow(struct end *x)
{
	return CU(x->g, cuEventRecord, x->ready, x->g->compute) && CU(x->g, cuStreamWaitEvent, x->stream, x->ready, CU_EVENT_WAIT_DEFAULT);
}

static char *buffer(const struct channel *ch, uint64_t message)
{
	return ch->at.in + (int64_t)(message % (uint64_t)ch->at.buffers) * ch->at.bytes;
}

/* -- the sender -- */

char *cuda_channel_room(struct channel *ch, const struct letter *l)
{
	struct end *x = &ch->end[SENDER];

	ch->bytes = l->bytes;
	if (!ch->at.out)
		return buffer(ch, x->n);
	return !x->n || gpu_waits(x->g, x->there[0], NULL) ? ch->at.out : NULL;
}

void cuda_channel_send(struct channel *ch)
{
	struct end *x = &ch->end[SENDER];

	x->n++;
	if (ch->at.out && !x->g->dry && follow(x) &&
	    nccl_ok(x->g, x->group, lib.ncclSend(ch->at.out, (size_t)ch->bytes, ncclUint8, RECEIVER, x->group, x->stream), "ncclSend"))
		CU(x->g, cuEventRecord, x->there[0], x->stream);
}

bool cuda_channel_flush(struct channel *ch)
{
	struct end *x = &ch->end[SENDER];
	bool any = x->n > 0;

	x->n = 0;
	return !ch->at.out || !any || gpu_waits(x->g, x->there[0], NULL);
}

/* -- the receiver -- */

/* The next message of this step that has no receive yet. NULL: none is left. */
static const struct message *next_message(struct channel *ch)
{
	struct end *x = &ch->end[RECEIVER];
	const struct rank *r = x->g->r;
	const struct stage_layout *l = &ch->rt->layouts->stage[r->stage];

	while (x->step < l->acts.n) {
		const struct pipe_step *s = &r->steps[x->step++];

		if (s->from == ch && (r->env.training || s->phase == FORWARD))
			return s->gets;
	}
	return NULL;
}

static void post(struct channel *ch)
{
	struct end *x = &ch->end[RECEIVER];
	const struct message *m = next_message(ch);

	if (!m || x->g->dry || !follow(x) ||
	    !nccl_ok(x->g, x->group, lib.ncclRecv(buffer(ch, x->posted), (size_t)m->bytes, ncclUint8, SENDER, x->group, x->stream), "ncclRecv"))
		return;
	CU(x->g, cuEventRecord, x->there[x->posted++ % (uint64_t)ch->at.buffers], x->stream);
}

void cuda_channel_await(struct channel *ch, bool open)
{
	struct end *x = &ch->end[RECEIVER];

	x->n = x->posted = x->step = 0;
	for (int i = 0; open && ch->at.out && i < ch->at.buffers; i++)
		post(ch);
}

const char *cuda_channel_take(struct channel *ch, const struct letter *l)
{
	struct end *x = &ch->end[RECEIVER];

	(void)l;
	return !ch->at.out || gpu_waits(x->g, x->there[x->n % (uint64_t)ch->at.buffers], NULL) ? buffer(ch, x->n) : NULL;
}

void cuda_channel_done(struct channel *ch)
{
	ch->end[RECEIVER].n++;
	if (ch->at.out)
		post(ch);
}
