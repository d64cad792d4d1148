/* ir/parse_pipe.c - the line of IR text that says how a pipeline runs. */
#include "ir/parse.h"

static void parse_pipe_loops(struct parser *p, struct pipe *x)
{
	lex_expect(p, '(', "'('");
	do {
		struct token at = p->tok;
		dimid d = parse_dim(p);

		for (uint32_t i = 0; i < x->loops.n && !p->bad; i++)
			if (x->loops.at[i] == d)
				lex_fail_at(p, at, "a repeat twice in the pipeline");
		if (x->loops.n == 31)
			lex_fail_at(p, at, "more than 31 repeats in the pipeline");
		if (!p->bad)
			PUSH(p->mem, &x->loops, d);
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
}

static void parse_pipe_ends(struct parser *p, struct pipe *x)
{
	int64_t last = 0;

	lex_expect(p, '(', "'('");
	do {
		last = lex_int(p, last, MOST_SIZE);
		if (x->end.n == MOST_RANKS)
			lex_fail(p, "more than %d chunks", MOST_RANKS);
		PUSH(p->mem, &x->end, last);
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
}

static void parse_pipe_arenas(struct parser *p, struct pipe *x)
{
	lex_expect(p, '(', "'('");
	do {
		if (x->arena.n == MOST_RANKS)
			lex_fail(p, "more than %d stages", MOST_RANKS);
		PUSH(p->mem, &x->arena, lex_int(p, 0, INT64_MAX));
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
}

/* A string a stage, each a row of a CSV: it is read and checked as one. */
static void parse_pipe_list(struct parser *p, struct pipe *x)
{
	struct token at = p->tok;
	struct text csv = { .mem = p->mem };
	struct schedule_fault fault;
	struct schedule s;

	lex_expect(p, '(', "'('");
	do {
		const char *row = lex_string(p, "the actions of a stage");

		if (!p->bad)
			text_put(&csv, "%s\n", row);
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
	if (p->bad)
		return;
	if (!schedule_read_csv(p->mem, csv.s, csv.n, &s, &fault)) {
		lex_fail_at(p, at, "stage %d of the pipeline's list: %s", fault.stage, fault.what);
		return;
	}
	x->list = s.list;
	x->place = s.place;
	p->listed = s;
}

/* A list is of this pipeline. */
static void check_pipe_list(struct parser *p, struct token at)
{
	struct pipe *x = &p->m->pipe;
	const struct schedule *s = &p->listed;

	if (x->order == SCHED_LIST && !x->list)
		lex_fail_at(p, at, "a pipeline without its list");
	if (p->bad || !x->list)
		return;
	if (s->p != pipe_stages(p->m) || s->v != x->chunks || s->m != p->m->micro)
		lex_fail_at(p, at, "the list has %d stages of %d chunks and %d microbatches, the pipeline %d, %d and %lld",
			    s->p, s->v, s->m, pipe_stages(p->m), x->chunks, (long long)p->m->micro);
	struct schedule known = { .kind = x->order, .p = s->p, .v = s->v };
	for (int g = 0; x->order != SCHED_LIST && !p->bad && g < s->p * s->v; g++)
		if (s->place[g] != schedule_stage(&known, g))
			lex_fail_at(p, at, "chunk %d is on stage %d in the list, and on %d in %s", g, s->place[g],
				    schedule_stage(&known, g), schedule_name(x->order));
	if (x->order != SCHED_LIST)
		x->place = NULL;
}

/* The ends of all chunks, up to that of the chain. */
static void check_pipe(struct parser *p, struct token at)
{
	const struct pipe *x = &p->m->pipe;
	int64_t whole = 0;

	for (uint32_t i = 0; i < x->loops.n; i++)
		whole += dim_size(p->m, x->loops.at[i]);
	if (!p->bad && x->user < 0)
		lex_fail_at(p, at, "a pipeline has an axis");
	if (!p->bad && (int64_t)x->chunks * pipe_stages(p->m) > MOST_RANKS)
		lex_fail_at(p, at, "more than %d chunks", MOST_RANKS);
	if (!p->bad && x->order == SCHED_ZB_V && x->chunks != 2)
		lex_fail_at(p, at, "zb_v has 2 chunks a stage");
	if (!p->bad && x->arena.n && (int)x->arena.n != pipe_stages(p->m))
		lex_fail_at(p, at, "%u arenas of %d stages", x->arena.n, pipe_stages(p->m));
	if (!p->bad && x->end.n && x->loops.n && ((int)x->end.n != pipe_chunks(p->m) || x->end.at[x->end.n - 1] != whole))
		lex_fail_at(p, at, "the ends do not cut %lld iterations into %d chunks", (long long)whole,
			    pipe_chunks(p->m));
	if (!p->bad)
		check_pipe_list(p, at);
}

void parse_pipe(struct parser *p)
{
	struct token at = p->tok;
	struct pipe x = { .user = -1, .chunks = 1 };

	const char *name = lex_string(p, "an order");
	if (!p->bad && streq(name, schedule_name(SCHED_LIST))) {
		x.order = SCHED_LIST;
	} else if (!p->bad && !schedule_find(name, &x.order)) {
		lex_fail_at(p, at, "no order of a pipeline");
		return;
	}
	while (!p->bad && p->tok.kind == T_WORD) {
		if (lex_accept_key(p, "axis"))
			x.user = parse_user_axis(p);
		else if (lex_accept_key(p, "chunks"))
			x.chunks = (int)lex_int(p, 1, MOST_RANKS);
		else if (lex_accept_key(p, "inflight"))
			x.inflight = lex_int(p, 0, MOST_SIZE);
		else if (lex_accept_key(p, "buffers"))
			x.buffers = lex_int(p, 0, MOST_RANKS);
		else if (lex_accept_key(p, "warm"))
			x.warm = (int)lex_int(p, 0, MOST_RANKS);
		else if (lex_accept_key(p, "list"))
			parse_pipe_list(p, &x);
		else if (lex_accept_word(p, "fixed"))
			x.fixed = true;
		else if (lex_accept_key(p, "loops"))
			parse_pipe_loops(p, &x);
		else if (lex_accept_key(p, "ends"))
			parse_pipe_ends(p, &x);
		else if (lex_accept_key(p, "arenas"))
			parse_pipe_arenas(p, &x);
		else
			lex_fail(p, "an unknown property of the pipeline");
	}
	p->m->pipe = x;
	check_pipe(p, at);
}
