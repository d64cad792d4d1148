/* ir/simulate.c - a run of the lists: each stage takes its actions in order, each channel its
 * messages. As orders are fixed, the time of an action follows from what it waits for, so stages
 * are walked in turn as far as they get; what stands still then is a deadlock. */
#include "ir/simulate.h"

struct message {
	int chunk, mb;
	double hop, began, ready, arrived, freed; /* began, ready: of the action that makes it */
};

struct channel {
	int from, to;
	enum action_kind kind;
	struct message *msg;
	int made, moved, taken, room;
	int next; /* of the same start; -1: none */
};

struct sim {
	struct arena *mem;
	const struct schedule *s;
	const struct actions *list;
	const struct costs *c;
	int chunks;
	int *in[2], *out[2]; /* channel of F (0) and B (1) into and out of a chunk; -1: none */
	int *first;          /* channel that starts at a stage */
	struct { VEC(struct channel) v; } ch;
	uint8_t *done;       /* bits of kinds, by chunk and microbatch */
	uint32_t *pc;
	bool *ran;           /* the action of a stage has run, and taken its message; it waits to send its own */
	double *now;
	struct run *run;
};

static int find_channel(struct sim *x, int from, int to, enum action_kind kind)
{
	struct channel new = { .from = from, .to = to, .kind = kind, .next = x->first[from] };

	if (from == to)
		return -1;
	for (int i = x->first[from]; i >= 0; i = x->ch.v.at[i].next)
		if (x->ch.v.at[i].to == to && x->ch.v.at[i].kind == kind)
			return i;
	PUSH(x->mem, &x->ch.v, new);
	return x->first[from] = (int)x->ch.v.n - 1;
}

static void make_channels(struct sim *x)
{
	for (int d = 0; d < x->s->p; d++)
		x->first[d] = -1;
	for (int g = 0; g < x->chunks; g++)
		x->in[0][g] = x->in[1][g] = x->out[0][g] = x->out[1][g] = -1;
	for (int g = 0; g + 1 < x->chunks; g++) {
		int a = schedule_stage(x->s, g), b = schedule_stage(x->s, g + 1);

		x->out[0][g] = x->in[0][g + 1] = find_channel(x, a, b, ACT_F);
		x->out[1][g + 1] = x->in[1][g] = find_channel(x, b, a, ACT_B);
		for (int k = 0; k < 2; k++)
			if (x->out[k][g + k] >= 0)
				x->ch.v.at[x->out[k][g + k]].room += x->s->m;
	}
	for (uint32_t i = 0; i < x->ch.v.n; i++)
		x->ch.v.at[i].msg = NEWN(x->mem, struct message, x->ch.v.at[i].room);
}

/* Messages that are ready move, one after the other, each into a buffer that is free. */
static void move(struct sim *x, struct channel *c)
{
	int n = x->c->receive;

	for (; c->moved < c->made && (!n || c->taken > c->moved - n); c->moved++) {
		struct message *m = &c->msg[c->moved];
		double at = m->ready;

		if (c->moved && c->msg[c->moved - 1].arrived > at)
			at = c->msg[c->moved - 1].arrived;
		if (n && c->moved >= n && c->msg[c->moved - n].freed > at)
			at = c->msg[c->moved - n].freed;
		m->arrived = at + m->hop;
	}
}

/* What an action waits for. */
struct wait {
	double until;
	int stage; /* that must go on first; -1: nothing */
	const char *why;
};

static bool is_done(const struct sim *x, int chunk, int mb, unsigned kinds)
{
	return x->done[(int64_t)chunk * x->s->m + mb] & kinds;
}

static void wait_for(struct wait *w, double t)
{
	if (t > w->until)
		w->until = t;
}

/* The result of the chunk before (behind, for a backward), by its channel or on the stage itself. */
static void wait_input(struct sim *x, int d, const struct action *a, int dir, struct wait *w)
{
	int from = a->chunk + (dir ? 1 : -1);

	if (from < 0 || from == x->chunks)
		return;
	if (x->in[dir][a->chunk] < 0) {
		if (!is_done(x, from, a->mb, dir ? 1u << ACT_B | 1u << ACT_I : 1u << ACT_F))
			*w = (struct wait){ 0, d, "comes before what it needs" };
		return;
	}
	struct channel *c = &x->ch.v.at[x->in[dir][a->chunk]];
	if (c->moved <= c->taken)
		*w = (struct wait){ 0, c->from, "receives from" };
	else if (c->msg[c->taken].chunk != from || c->msg[c->taken].mb != a->mb)
		*w = (struct wait){ 0, d, "does not take messages in the order they are sent" };
	else
		wait_for(w, c->msg[c->taken].arrived);
}

static void wait_output(struct sim *x, const struct action *a, int dir, struct wait *w)
{
	int n = x->c->send;

	if (a->kind == ACT_W || x->out[dir][a->chunk] < 0 || !n)
		return;
	struct channel *c = &x->ch.v.at[x->out[dir][a->chunk]];
	if (c->made < n)
		return;
	if (c->moved <= c->made - n)
		*w = (struct wait){ 0, c->to, "has all its buffers full to" };
	else
		wait_for(w, c->msg[c->made - n].arrived);
}

static struct wait find_wait(struct sim *x, int d, const struct action *a)
{
	struct wait w = { x->now[d], -1, NULL };
	int dir = a->kind != ACT_F;

	if (x->ran[d]) {
		wait_output(x, a, dir, &w);
		return w;
	}
	if (a->kind == ACT_W) {
		if (!is_done(x, a->chunk, a->mb, 1u << ACT_I))
			w = (struct wait){ 0, d, "comes before what it needs" };
		return w;
	}
	if (dir && !is_done(x, a->chunk, a->mb, 1u << ACT_F))
		return (struct wait){ 0, d, "comes before what it needs" };
	wait_input(x, d, a, dir, &w);
	return w;
}

static void take(struct sim *x, int channel, double end)
{
	if (channel < 0)
		return;
	struct channel *c = &x->ch.v.at[channel];
	c->msg[c->taken++].freed = end;
	move(x, c);
}

static void give(struct sim *x, int channel, const struct action *a, double began, double ready)
{
	if (channel < 0)
		return;
	struct channel *c = &x->ch.v.at[channel];
	c->msg[c->made++] = (struct message){ .chunk = a->chunk, .mb = a->mb, .began = began, .ready = ready,
					      .hop = x->c->chunk[a->chunk].hop[a->kind != ACT_F] };
	move(x, c);
}

static void act(struct sim *x, int d, double start)
{
	const struct action *a = &x->list[d].at[x->pc[d]];
	struct stage_run *r = &x->run->stage[d];
	double seconds = x->c->chunk[a->chunk].seconds[a->kind];
	struct event e = { *a, start, start + seconds };

	if (!r->n)
		r->start = start;
	r->event[r->n++] = e;
	r->busy += seconds;
	x->now[d] = r->end = e.end;
	x->done[(int64_t)a->chunk * x->s->m + a->mb] |= (uint8_t)(1u << a->kind);
	x->ran[d] = true;
	if (a->kind != ACT_W)
		take(x, x->in[a->kind != ACT_F][a->chunk], e.end);
}

/* What the action has made goes, from `at` on. */
static void send_off(struct sim *x, int d, double at)
{
	const struct action *a = &x->list[d].at[x->pc[d]];
	struct stage_run *r = &x->run->stage[d];

	x->now[d] = r->end = at;
	x->pc[d]++;
	x->ran[d] = false;
	if (a->kind != ACT_W)
		give(x, x->out[a->kind != ACT_F][a->chunk], a, r->event[r->n - 1].start, at);
}

static bool walk(struct sim *x)
{
	bool again = true, all = true;

	while (again) {
		again = false;
		all = true;
		for (int d = 0; d < x->s->p; d++) {
			while (x->pc[d] < x->list[d].n) {
				struct wait w = find_wait(x, d, &x->list[d].at[x->pc[d]]);

				if (w.stage >= 0)
					break;
				x->ran[d] ? send_off(x, d, w.until) : act(x, d, w.until);
				again = true;
			}
			all &= x->pc[d] == x->list[d].n;
		}
	}
	return all;
}

static void say_wait(struct text *t, struct sim *x, int d, const struct wait *w)
{
	const struct action *a = &x->list[d].at[x->pc[d]];

	text_put(t, "%sstage %d: %d%c%d %s", t->n ? "; " : "", d, a->chunk, action_letter[a->kind], a->mb, w->why);
	if (w->stage != d)
		text_put(t, " stage %d", w->stage);
}

/* Follows who waits for whom until a stage comes again, then tells that circle. */
static void find_fault(struct sim *x)
{
	struct schedule_fault *f = &x->run->fault;
	struct text note = { .mem = x->mem };
	bool *seen = NEWN(x->mem, bool, x->s->p);
	struct wait w;
	int d = 0, start;

	while (x->pc[d] == x->list[d].n)
		d++;
	for (; !seen[d]; d = w.stage) {
		seen[d] = true;
		w = find_wait(x, d, &x->list[d].at[x->pc[d]]);
		if (x->pc[w.stage] == x->list[w.stage].n) { /* waits for what nobody sends */
			f->what = "an action waits for a message that is never sent";
			break;
		}
	}
	start = d;
	do {
		w = find_wait(x, d, &x->list[d].at[x->pc[d]]);
		say_wait(&note, x, d, &w);
		d = w.stage;
	} while (d != start && x->pc[d] < x->list[d].n);
	f->stage = start;
	f->at = x->pc[start];
	f->note = note.s;
	if (!f->what) /* a stage that waits for itself is a circle of one */
		f->what = find_wait(x, start, &x->list[start].at[f->at]).stage == start ? "an action is out of order"
			: "the stages wait for each other";
}

/* Activations: taken when F starts, a share freed and the cut made when I ends, freed when B or W
 * ends. */
static void find_peaks(const struct sim *x, int d)
{
	struct stage_run *r = &x->run->stage[d];
	double bytes = x->c->stage ? x->c->stage[d].bytes : 0;
	int held = 0, most = 0;

	r->bytes = r->fixed = bytes;
	for (uint32_t i = 0; i < r->n; i++) {
		const struct action *a = &r->event[i].what;
		const struct chunk_cost *k = &x->c->chunk[a->chunk];

		held += a->kind == ACT_F ? 1 : a->kind == ACT_I ? 0 : -1;
		bytes += a->kind == ACT_F ? k->bytes
			: a->kind == ACT_B ? -k->bytes
			: a->kind == ACT_I ? k->cut - k->bytes * k->freed
			: -(k->bytes * (1 - k->freed) + k->cut);
		most = held > most ? held : most;
		r->bytes = bytes > r->bytes ? bytes : r->bytes;
	}
	r->peak = (double)most / x->s->v;
}

static void find_channels(struct sim *x)
{
	struct run *r = x->run;

	r->channels = (int)x->ch.v.n;
	r->channel = NEWN(x->mem, struct channel_run, r->channels);
	for (int i = 0; i < r->channels; i++) {
		const struct channel *c = &x->ch.v.at[i];
		int most = 0, gone = 0;

		for (int k = 0; k < c->moved; k++) {
			while (gone < k && c->msg[gone].arrived <= c->msg[k].began)
				gone++;
			most = k + 1 - gone > most ? k + 1 - gone : most;
		}
		r->channel[i] = (struct channel_run){ c->from, c->to, c->kind, c->made, most };
	}
}

/* The end of the step: gradients are reduced on each stage, then all wait for the norm. */
static void find_end(struct sim *x)
{
	struct run *r = x->run;
	double norm = 0, busiest = 0;

	for (int d = 0; d < x->s->p; d++) {
		const struct stage_cost none = { 0 }, *k = x->c->stage ? &x->c->stage[d] : &none;
		double end = x->now[d] + k->reduce;

		r->stage[d].busy += k->prologue + k->reduce + k->epilogue;
		norm = end > norm ? end : norm;
		busiest = r->stage[d].busy > busiest ? r->stage[d].busy : busiest;
	}
	for (int d = 0; d < x->s->p; d++) {
		const struct stage_cost none = { 0 }, *k = x->c->stage ? &x->c->stage[d] : &none;
		double end = (x->c->clip ? norm : x->now[d] + k->reduce) + k->epilogue;

		r->seconds = end > r->seconds ? end : r->seconds;
	}
	for (int d = 0; d < x->s->p; d++)
		r->stage[d].idle = r->seconds - r->stage[d].busy;
	r->idle = r->seconds - busiest > 1e-12 * r->seconds ? r->seconds - busiest : 0; /* but for rounding */
	r->bubble = r->seconds > 0 ? r->idle / r->seconds : 0;
}

struct run simulate(struct arena *mem, const struct schedule *s, const struct actions *list, const struct costs *c)
{
	struct run run = { .stage = NEWN(mem, struct stage_run, s->p), .fault = { .stage = -1 } };
	struct sim x = { .mem = mem, .s = s, .list = list, .c = c, .chunks = s->p * s->v, .run = &run };

	for (int k = 0; k < 2; k++) {
		x.in[k] = NEWN(mem, int, x.chunks);
		x.out[k] = NEWN(mem, int, x.chunks);
	}
	x.first = NEWN(mem, int, s->p);
	x.done = NEWN(mem, uint8_t, (int64_t)x.chunks * s->m);
	x.pc = NEWN(mem, uint32_t, s->p);
	x.ran = NEWN(mem, bool, s->p);
	x.now = NEWN(mem, double, s->p);
	make_channels(&x);
	for (int d = 0; d < s->p; d++) {
		run.stage[d].event = NEWN(mem, struct event, list[d].n);
		x.now[d] = c->stage ? c->stage[d].prologue : 0;
	}
	if (!walk(&x))
		find_fault(&x);
	for (int d = 0; d < s->p; d++)
		find_peaks(&x, d);
	find_channels(&x);
	find_end(&x);
	return run;
}

/* Seconds of a message between neighbours of the chain. */
static double hop_seconds(const struct schedule *s, const struct costs *c, int from, int to)
{
	if (to == s->p * s->v || schedule_stage(s, from) == schedule_stage(s, to))
		return 0;
	return c->chunk[from].hop[to < from];
}

/* Work of a stage, after the forwards and before the backwards of the chunks that come before its
 * first; W may come last and hides the latter. */
static double stage_bound(const struct schedule *s, const struct costs *c, int d, bool splits)
{
	double t = 0;
	bool reached = false;

	for (int g = 0; g < s->p * s->v; g++) {
		const double *k = c->chunk[g].seconds;

		reached |= schedule_stage(s, g) == d;
		if (schedule_stage(s, g) == d)
			t += s->m * (k[ACT_F] + (splits ? k[ACT_I] + k[ACT_W] : k[ACT_B]));
		if (!reached)
			t += k[ACT_F] + hop_seconds(s, c, g, g + 1) + (splits ? 0 : k[ACT_B] + hop_seconds(s, c, g + 1, g));
	}
	return t;
}

double lower_bound(const struct schedule *s, const struct costs *c)
{
	bool splits = schedule_splits(s);
	double most = splits ? c->chunk[0].seconds[ACT_W] : 0;

	for (int g = 0; g < s->p * s->v; g++) {
		most += c->chunk[g].seconds[ACT_F] + c->chunk[g].seconds[splits ? ACT_I : ACT_B] + hop_seconds(s, c, g, g + 1);
		most += g ? hop_seconds(s, c, g, g - 1) : 0;
	}
	for (int d = 0; d < s->p; d++) {
		double t = stage_bound(s, c, d, splits);

		most = t > most ? t : most;
	}
	return most;
}
