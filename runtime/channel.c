/* runtime/channel.c - messages from one stage to another, first in, first out.
 *
 * A message is written to the sender's buffer and copied on as soon as one of the receiver's is free, by
 * whoever makes that true. So a sender waits only for the message before to be gone, a receiver only for
 * its own. The receiver's buffers lie where its prologue and epilogue have other things, so it says when they
 * are there. Nothing is tagged, but both ends say what they think a message is. */
#include <stdlib.h>

#include "runtime/internal.h"

enum { SENDER, RECEIVER };

struct channel {
	struct comm *c;
	int64_t rank[2];
	int buffers;
	int64_t bytes;
	char *out, *in;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	int asleep[2];
	bool open;                   /* the receiver's buffers are there: not in its prologue and epilogue */
	uint64_t sent, there, taken; /* messages */
	struct letter *letters;      /* of those on their way */
	struct letter mine[2];       /* at work */
};

struct channel *channel_open(struct comm *c, const struct channel_ends *e)
{
	struct channel *ch = calloc(1, sizeof *ch);

	if (!ch)
		return NULL;
	*ch = (struct channel){ .c = c, .rank = { e->from, e->to }, .buffers = e->buffers, .bytes = e->bytes, .out = e->out, .in = e->in };
	ch->letters = calloc((size_t)e->buffers + 1, sizeof *ch->letters);
	if (ch->letters && pthread_mutex_init(&ch->lock, NULL) == 0) {
		if (comm_cond(&ch->moved))
			return ch;
		pthread_mutex_destroy(&ch->lock);
	}
	free(ch->letters);
	free(ch);
	return NULL;
}

void channel_close(struct channel *ch)
{
	if (!ch)
		return;
	pthread_cond_destroy(&ch->moved);
	pthread_mutex_destroy(&ch->lock);
	free(ch->letters);
	free(ch);
}

static char *buffer(const struct channel *ch, uint64_t message)
{
	return ch->in + (int64_t)(message % (uint64_t)ch->buffers) * ch->bytes;
}

static struct letter *letter(const struct channel *ch, uint64_t message)
{
	return &ch->letters[message % ((uint64_t)ch->buffers + 1)];
}

static bool has_room(void *x)
{
	const struct channel *ch = x;

	return ch->out ? ch->there == ch->sent : ch->sent - ch->taken < (uint64_t)ch->buffers;
}

static bool has_come(void *x)
{
	const struct channel *ch = x;

	return ch->there > ch->taken;
}

static const char *letter_text(const struct letter *l)
{
	return l->phase == FORWARD ? "forward" : "backward";
}

static void sender_stuck(void *x, const char *how)
{
	const struct channel *ch = x;
	const struct letter *l = &ch->mine[SENDER];

	comm_fail(ch->c, ch->rank[SENDER], (struct span){ 0 },
		  "%s: %s of chunk %d, microbatch %lld: the send of %lld bytes waits for rank %lld", how, letter_text(l),
		  l->chunk, (long long)l->mb, (long long)l->bytes, (long long)ch->rank[RECEIVER]);
}

static void receiver_stuck(void *x, const char *how)
{
	const struct channel *ch = x;
	const struct letter *l = &ch->mine[RECEIVER];

	comm_fail(ch->c, ch->rank[RECEIVER], (struct span){ 0 },
		  "%s: the receive of %lld bytes from %s of chunk %d, microbatch %lld, waits for rank %lld", how,
		  (long long)l->bytes, letter_text(l), l->chunk, (long long)l->mb, (long long)ch->rank[SENDER]);
}

static bool wait_for(struct channel *ch, int side, bool (*ready)(void *), void (*stuck)(void *, const char *))
{
	struct nap n = { &ch->moved, &ch->lock, &ch->asleep[side], ready, stuck, ch, ch->rank[side] };

	if (!ready(ch))
		comm_nap(ch->c, &n);
	return !comm_failed(ch->c);
}

/* With the lock: into the receiver's buffer, if one is free. */
static void pass_on(struct channel *ch)
{
	if (!ch->open || ch->there == ch->sent || ch->there - ch->taken == (uint64_t)ch->buffers)
		return;
	if (ch->out)
		memcpy(buffer(ch, ch->there), ch->out, (size_t)letter(ch, ch->there)->bytes);
	ch->there++;
	comm_wake(ch->c, &ch->moved, &ch->asleep[SENDER]);
	comm_wake(ch->c, &ch->moved, &ch->asleep[RECEIVER]);
}

void channel_await(struct channel *ch, bool open)
{
	pthread_mutex_lock(&ch->lock);
	ch->open = open;
	pass_on(ch);
	pthread_mutex_unlock(&ch->lock);
}

char *channel_room(struct channel *ch, const struct letter *l)
{
	pthread_mutex_lock(&ch->lock);
	ch->mine[SENDER] = *l;
	bool ok = wait_for(ch, SENDER, has_room, sender_stuck);
	char *room = ch->out ? ch->out : buffer(ch, ch->sent);

	if (ok)
		*letter(ch, ch->sent) = *l;
	pthread_mutex_unlock(&ch->lock);
	return ok ? room : NULL;
}

void channel_send(struct channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	ch->sent++;
	pass_on(ch);
	pthread_mutex_unlock(&ch->lock);
}

static bool is_gone(void *x)
{
	const struct channel *ch = x;

	return ch->there == ch->sent;
}

bool channel_flush(struct channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	bool ok = !ch->out || wait_for(ch, SENDER, is_gone, sender_stuck);

	pthread_mutex_unlock(&ch->lock);
	return ok;
}

static bool same_letter(const struct letter *a, const struct letter *b)
{
	return a->phase == b->phase && a->chunk == b->chunk && a->mb == b->mb && a->bytes == b->bytes;
}

const char *channel_take(struct channel *ch, const struct letter *l)
{
	pthread_mutex_lock(&ch->lock);
	ch->mine[RECEIVER] = *l;
	bool ok = wait_for(ch, RECEIVER, has_come, receiver_stuck);
	const struct letter *o = letter(ch, ch->taken);

	if (ok && !same_letter(o, l)) {
		comm_fail(ch->c, ch->rank[RECEIVER], (struct span){ 0 },
			  "a message does not match: %s of chunk %d, microbatch %lld, %lld bytes is awaited from rank %lld, "
			  "which sent %s of chunk %d, microbatch %lld, %lld bytes", letter_text(l), l->chunk, (long long)l->mb,
			  (long long)l->bytes, (long long)ch->rank[SENDER], letter_text(o), o->chunk, (long long)o->mb,
			  (long long)o->bytes);
		ok = false;
	}
	const char *at = buffer(ch, ch->taken);

	pthread_mutex_unlock(&ch->lock);
	return ok ? at : NULL;
}

void channel_done(struct channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	ch->taken++;
	if (ch->out)
		pass_on(ch);
	else
		comm_wake(ch->c, &ch->moved, &ch->asleep[SENDER]);
	pthread_mutex_unlock(&ch->lock);
}
