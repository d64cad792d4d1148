/* ir/trace.c - which ops a trace shows, and its JSON: docs "Trace Event Format" of Chrome. */
#include "ir/trace.h"

#include "ir/region.h"

/* A read of an input is a copy from its batch; one of another buffer, or a write, may be one that changes the layout. */
static bool is_copy(const struct module *m, const struct op *op)
{
	const struct buffer *b = find_buffer(m, op->at.buf);
	const struct op *from = op->nin ? op->in[0]->def : NULL;

	if (op->code == OP_READ)
		return b && (b->role == B_INPUT || (b->host && op->out[0]->off >= 0));
	if (from && from->code == OP_WAIT)
		from = from->in[0]->def;
	return b && (b->host ? !(from && from->code == OP_TO_HOST) : write_copies(m, op));
}

int trace_stream(const struct module *m, const struct op *op)
{
	switch (op->code) {
	case OP_KERNEL:
	case OP_EINSUM:
	case OP_ATTENTION:
	case OP_ATTENTION_GRAD:
		return TRACE_COMPUTE;
	case OP_FROM_HOST:
		return TRACE_IN;
	case OP_TO_HOST:
		return TRACE_OUT;
	case OP_READ:
	case OP_WRITE:
		return is_copy(m, op) ? TRACE_COPY : -1;
	default:
		return comm_sends(op->code) ? TRACE_COMM : -1;
	}
}

static int64_t number_block(const struct block *b, int64_t n)
{
	for (struct op *op = b->first; op; op = op->next) {
		op->mark = n++;
		if (op->code == OP_REPEAT)
			n = number_block(op->body, n);
	}
	return n;
}

int64_t trace_number(const struct module *m)
{
	return number_block(&m->top, 0);
}

/* -- JSON -- */

struct writer {
	struct text *out;
	struct arena *mem;
	const struct module *m;
	const char **label, **at; /* by number of op */
	bool some;
};

static const char *quoted(struct arena *mem, const char *s)
{
	struct text t = { .mem = mem };

	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			text_put(&t, "\\%c", *s);
		else if ((unsigned char)*s < ' ')
			text_put(&t, "\\u%04x", *s);
		else
			text_bytes(&t, s, 1);
	}
	return t.n ? t.s : "";
}

static void label_ops(struct writer *w, const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next) {
		w->label[op->mark] = quoted(w->mem, op_label_text(w->mem, w->m, op));
		w->at[op->mark] = quoted(w->mem, span_text(w->mem, w->m->src, op->span));
		if (op->code == OP_REPEAT)
			label_ops(w, op->body);
	}
}

static void next(struct writer *w)
{
	text_put(w->out, w->some ? ",\n" : "\n");
	w->some = true;
}

static void name_threads(struct writer *w, int stages)
{
	static const char *const thread[NTRACE] = { "actions", "compute", "comm", "copy", "from host", "to host" };

	for (int d = 0; d < stages; d++) {
		next(w);
		text_put(w->out, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"stage %d\"}}", d, d);
		for (int k = 0; k < NTRACE; k++) {
			next(w);
			text_put(w->out, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", d, k, thread[k]);
		}
	}
}

static enum trace_stream stream_of(const struct writer *w, const struct trace_event *e)
{
	if (e->what == TRACE_OP)
		return (enum trace_stream)trace_stream(w->m, e->op);
	return e->what == TRACE_SEND || e->what == TRACE_RECEIVE ? TRACE_COMM : TRACE_ACTIONS;
}

static void put_action(struct text *out, const struct action *a)
{
	if (a->kind < NACT)
		text_put(out, "%c%d.%d", action_letter[a->kind], a->mb, a->chunk);
	else
		text_put(out, "%s", a->mb ? "epilogue" : "prologue");
}

/* "17:B3.2:5" names the op, the action with its microbatch and chunk, and the iteration. */
static void put_id(struct text *out, const struct trace_event *e)
{
	if (e->what == TRACE_OP)
		text_put(out, "%lld:", (long long)e->op->mark);
	else if (e->what == TRACE_SEND || e->what == TRACE_RECEIVE)
		text_put(out, e->what == TRACE_SEND ? "send:" : "receive:");
	put_action(out, &e->act);
	if (e->what == TRACE_OP)
		text_put(out, ":%lld", (long long)e->iter);
}

static void put_name(struct writer *w, const struct trace_event *e)
{
	if (e->what == TRACE_OP)
		text_put(w->out, "%s", w->label[e->op->mark]);
	else if (e->what == TRACE_SEND || e->what == TRACE_RECEIVE)
		text_put(w->out, "%s stage %d", e->what == TRACE_SEND ? "send to" : "receive from", e->other);
	else if (e->act.kind < NACT)
		text_put(w->out, "%c%d", action_letter[e->act.kind], e->act.mb);
	else
		put_action(w->out, &e->act);
}

static void put_event(struct writer *w, int stage, const struct trace_event *e)
{
	next(w);
	text_put(w->out, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"", stage, stream_of(w, e),
		 e->start * 1e6, (e->end - e->start) * 1e6);
	put_name(w, e);
	text_put(w->out, "\",\"args\":{\"id\":\"");
	put_id(w->out, e);
	text_put(w->out, e->what == TRACE_OP ? "\",\"at\":\"%s\"}}" : "\"}}", e->what == TRACE_OP ? w->at[e->op->mark] : "");
}

static void put_idle(struct writer *w, int stage, double from, double to)
{
	next(w);
	text_put(w->out, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"idle\",\"args\":{\"id\":\"idle\"}}", stage,
		 TRACE_ACTIONS, from * 1e6, (to - from) * 1e6);
}

/* An arrow from the end of what is sent to the beginning of what waits for it. Both ends know the chunk that
 * sends, the microbatch and the direction. */
static void put_flow(struct writer *w, int stage, const struct trace_event *e)
{
	bool send = e->what == TRACE_SEND, fore = e->act.kind == ACT_F;
	int from = send ? e->act.chunk : fore ? e->act.chunk - 1 : e->act.chunk + 1;

	next(w);
	text_put(w->out, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"name\":\"message\",\"cat\":\"send\",\"id\":\"%c%d.%d\"%s}",
		 send ? "s" : "f", stage, TRACE_COMM, (send ? e->start : e->end) * 1e6, fore ? 'F' : 'B', e->act.mb, from,
		 send ? "" : ",\"bp\":\"e\"");
}

static void put_stage(struct writer *w, int stage, const struct trace_list *l, double seconds)
{
	double busy = 0;

	for (uint32_t i = 0; i < l->event.n; i++) {
		const struct trace_event *e = &l->event.at[i];

		if (stream_of(w, e) == TRACE_ACTIONS) {
			if (e->start > busy + 1e-9)
				put_idle(w, stage, busy, e->start);
			busy = e->end;
		}
		put_event(w, stage, e);
		if (e->what == TRACE_SEND || e->what == TRACE_RECEIVE)
			put_flow(w, stage, e);
	}
	if (seconds > busy + 1e-9)
		put_idle(w, stage, busy, seconds);
}

void trace_write(struct text *out, const struct module *m, const struct trace *t)
{
	struct writer w = { .out = out, .mem = arena_new(), .m = m };
	int64_t ops = trace_number(m);

	w.label = NEWN(w.mem, const char *, ops + 1);
	w.at = NEWN(w.mem, const char *, ops + 1);
	label_ops(&w, &m->top);
	text_put(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"model\":\"%s\",\"kind\":\"%s\",\"step_s\":%.9g},\"traceEvents\":[",
		 quoted(w.mem, m->name ? m->name : ""), t->kind, t->seconds);
	name_threads(&w, t->stages);
	for (int d = 0; d < t->stages; d++)
		put_stage(&w, d, &t->stage[d], t->seconds);
	text_put(out, "\n]}\n");
	arena_free(w.mem);
}
