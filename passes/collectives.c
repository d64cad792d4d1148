/* passes/collectives.c - collectives that can be issued at one place become one: a bucket.
 *
 * Requires form PARTITIONED, after fuse. A collective may stand anywhere from behind the last op that
 * makes its operand to before the first that reads its result; those of one kind over the same axes
 * whose ranges have a place in common are merged, up to a size. What is reduced is reduced element by
 * element, in the order of the ranks, so no bit of a result changes.
 *
 * The size: a collective costs its latency once, so what merging can save is small against the time
 * on the link once that is WORTH latencies; but all results of a bucket are held from one moment on, and
 * none of it can start before the last operand is there. */
#include <stdlib.h>

#include "passes/passes.h"

enum { WORTH = 25, NAMED = 2, ROUNDS = 4 };
static const double MOST_BYTES = 40e6, USUAL_BYTES = 32e6;

/* A collective that may move: to before the op at any position in earliest..latest. */
struct site {
	struct op *op;
	int64_t earliest, latest;
	double bytes;
	uint32_t kind;
};

struct bucketing {
	struct module *m;
	struct block *block;
	struct op **at;       /* ops by position */
	int64_t n;
	bool *back, *shown;   /* by position; top block */
	VEC(struct site) sites;
};

static bool sends(const struct op *op)
{
	return comm_sends(op->code) && is_bucket(op->code) && op->nin == 1 && !HAS(op, async);
}

/* -- positions -- */

/* op.mark is its position; value.mark that of its first reader, or the end of its section. A write
 * doesn't count: it can follow. */
static void survey(struct bucketing *b)
{
	int64_t end = b->n;

	for (struct op *op = b->block->last; op; op = op->prev) {
		op->mark = --b->n;
		if (op->next && op->next->phase != op->phase)
			end = op->mark + 1;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = end;
	}
	for (struct op *op = b->block->last; op; op = op->prev) {
		b->at[op->mark] = op;
		b->n++;
		for (uint32_t i = 0; i < op->nin && op->code != OP_WRITE; i++)
			if (op->in[i]->mark > op->mark)
				op->in[i]->mark = op->mark;
	}
}

/* What an evaluation runs must not be merged with what it leaves out, nor what a report of it reads with
 * what depends on backward. */
static void find_shown(struct bucketing *b)
{
	for (int64_t p = 0; p < b->n; p++) {
		const struct op *op = b->at[p];

		b->back[p] = op->phase == BACKWARD;
		for (uint32_t i = 0; i < op->nin; i++)
			b->back[p] |= op->in[i]->def && b->back[op->in[i]->def->mark];
	}
	for (int64_t p = b->n - 1; p >= 0; p--) {
		const struct op *op = b->at[p];

		b->shown[p] |= op->code == OP_REPORT && !b->back[p];
		for (uint32_t i = 0; i < op->nin && b->shown[p]; i++)
			if (op->in[i]->def)
				b->shown[op->in[i]->def->mark] = true;
	}
}

static int64_t section_start(const struct bucketing *b, int64_t p)
{
	while (p > 0 && b->at[p - 1]->phase == b->at[p]->phase)
		p--;
	return p;
}

/* One that reads another collective's result does not move forward, and that one not behind it. */
static void find_sites(struct bucketing *b)
{
	int64_t start[NPHASE];

	for (int i = 0; i < NPHASE; i++)
		start[i] = -1;
	for (int64_t p = 0; p < b->n; p++) {
		struct op *op = b->at[p];

		if (start[op->phase] < 0)
			start[op->phase] = section_start(b, p);
		if (!sends(op))
			continue;
		struct site s = { .op = op, .earliest = start[op->phase], .latest = op->out[0]->mark };
		const struct op *def = op->in[0]->def;

		if (def && def->mark + 1 > s.earliest)
			s.earliest = def->mark + 1;
		if (def && sends(def))
			s.earliest = p;
		if (s.latest < b->n && sends(b->at[s.latest]) && s.latest > p)
			s.latest--;
		s.bytes = (double)local_bytes(b->m, op->code == OP_ALL_GATHER ? op->out[0] : op->in[0]);
		s.kind = (uint32_t)op->code << 4 | (uint32_t)op->phase << 2 | (uint32_t)b->back[p] << 1 | b->shown[p];
		s.kind = s.kind << 1 | (HAS(op, max) && op->at.max);
		PUSH(b->m->mem, &b->sites, s);
	}
}

static int compare(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int by_kind(const void *x, const void *y)
{
	const struct site *a = x, *b = y;
	int c = compare(a->kind, b->kind);

	if (!c)
		c = compare(axes_bits(&a->op->at.axes), axes_bits(&b->op->at.axes));
	if (!c)
		c = compare(a->op->at.where, b->op->at.where);
	if (!c)
		c = compare(a->op->at.late, b->op->at.late);
	if (!c)
		c = memcmp(a->op->at.axes.a, b->op->at.axes.a, a->op->at.axes.n);
	if (!c)
		c = compare(a->earliest, b->earliest);
	return c ? c : compare(a->op->mark, b->op->mark);
}

static bool alike(const struct site *a, const struct site *b)
{
	return a->kind == b->kind && a->op->at.where == b->op->at.where && a->op->at.late == b->op->at.late &&
	       axes_equal(&a->op->at.axes, &b->op->at.axes);
}

/* -- making one of many -- */

/* "all_gather of h over tp: q needs seq whole (f:1)": what stands behind `over tp: `. */
static const char *reason(const struct op *op)
{
	const char *over = op->why ? strstr(op->why, " over ") : NULL, *colon = over ? strstr(over, ": ") : NULL;

	return colon ? colon + 2 : "";
}

static const char *spoken(const struct module *m, const struct op *op)
{
	const char *what = op->why ? strstr(op->why, " of ") : NULL, *over = what ? strstr(what, " over ") : NULL;

	return over ? arena_printf(m->mem, "%.*s", (int)(over - what - 4), what + 4) : "a value";
}

/* "all_gather of wte, wpe and 10 more over dp: ...", the reason being that of the first. */
static const char *why_of(const struct module *m, const struct site *s, uint32_t n)
{
	struct text t = { .mem = m->mem };
	const struct op *op = s->op;

	text_put(&t, "%s of ", opinfo[op->code].name);
	for (uint32_t i = 0; i < n && i < NAMED; i++)
		text_put(&t, "%s%s", !i ? "" : n <= NAMED ? " and " : ", ", spoken(m, s[i].op));
	if (n > NAMED)
		text_put(&t, " and %u more", n - NAMED);
	text_put(&t, " over %s: %s", axes_user_text(m->mem, m, axes_bits(&op->at.axes)), reason(op));
	return t.s;
}

/* Takes over the values themselves, so nothing that reads them need change. */
static void merge(struct bucketing *b, const struct site *s, uint32_t n, int64_t place)
{
	struct op *first = s->op;
	struct builder at = { .m = b->m, .block = b->block, .before = place < b->n ? b->at[place] : NULL,
			      .phase = first->phase, .span = first->span, .where = first->at.where };
	struct value **in = NEWN(b->m->mem, struct value *, n);

	for (uint32_t i = 0; i < n; i++)
		in[i] = s[i].op->in[0];
	struct op *op = op_new(&at, first->code, n, in, n);
	op_half(op, first);
	SET(op, axes, first->at.axes);
	if (HAS(first, max))
		SET(op, max, first->at.max);
	op->why = why_of(b->m, s, n);
	op->mark = place;
	for (uint32_t i = 0; i < n; i++) {
		op->out[i] = s[i].op->out[0];
		op->out[i]->def = op;
		op->out[i]->no = i;
		s[i].op->nout = 0;
	}
}

static bool written_only(const struct bucketing *b, const struct site *s)
{
	return !b->block->owner && s->latest == b->n;
}

/* A reduction makes less of what it reads, so it stands early; a gather more, so it stands late, unless it
 * makes what is only written to a buffer. */
static int64_t place_for(const struct bucketing *b, const struct site *s, uint32_t n)
{
	int64_t early = 0, late = INT64_MAX;
	bool gather = s->op->code == OP_ALL_GATHER;

	for (uint32_t i = 0; i < n; i++) {
		early = s[i].earliest > early ? s[i].earliest : early;
		late = s[i].latest < late ? s[i].latest : late;
	}
	return gather && !written_only(b, s) ? late : early;
}

static double bucket_bytes(const struct module *m, uint32_t axes)
{
	double latency = comm_seconds(m, axes, 0), second = comm_seconds(m, axes, 1e9) - latency;

	if (latency <= 0 || second <= 0)
		return USUAL_BYTES;
	double bytes = WORTH * latency * 1e9 / second;
	return bytes > MOST_BYTES ? MOST_BYTES : bytes;
}

/* How many from s on have a place in common and fit in one bucket. They are in order of `earliest`. */
static uint32_t together(const struct site *s, uint32_t n, double most)
{
	int64_t latest = s->latest;
	double bytes = s->bytes;
	uint32_t k = 1;

	for (; k < n && k < MAX_BUCKET && alike(s, &s[k]); k++) {
		bytes += s[k].bytes;
		if (s[k].earliest > latest || bytes > most)
			break;
		latest = s[k].latest < latest ? s[k].latest : latest;
	}
	return k;
}

/* A write stands behind what makes its value. */
static void follow(struct bucketing *b)
{
	for (int64_t p = 0; p < b->n; p++) {
		struct op *op = b->at[p], *def = op->nin ? op->in[0]->def : NULL;

		if (op->code == OP_WRITE && def && is_bucket(def->code) && def->nin > 1 && def->mark > p)
			op_move_before(op, def->next);
	}
}

static bool merge_all(struct bucketing *b)
{
	struct site *s = b->sites.at;
	bool any = false;

	if (b->sites.n)
		qsort(s, b->sites.n, sizeof *s, by_kind);
	for (uint32_t i = 0, k; i < b->sites.n; i += k) {
		k = together(&s[i], b->sites.n - i, bucket_bytes(b->m, axes_bits(&s[i].op->at.axes)));
		if (k > 1)
			merge(b, &s[i], k, place_for(b, &s[i], k));
		any |= k > 1;
	}
	if (any)
		follow(b);
	for (uint32_t i = 0; any && i < b->sites.n; i++)
		if (!s[i].op->nout)
			op_unlink(s[i].op);
	return any;
}

static bool bucket_block(struct module *m, struct block *block)
{
	struct bucketing b = { .m = m, .block = block };

	for (struct op *op = block->first; op; op = op->next)
		b.n++;
	b.at = NEWN(m->mem, struct op *, b.n + 1);
	b.back = NEWN(m->mem, bool, b.n + 1);
	b.shown = NEWN(m->mem, bool, b.n + 1);
	survey(&b);
	if (!block->owner)
		find_shown(&b);
	find_sites(&b);
	return merge_all(&b);
}

/* Again while it helps: what reads the results of a bucket may be one in the next round. */
static void bucket_blocks(struct module *m, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next)
		if (op->code == OP_REPEAT)
			bucket_blocks(m, op->body);
	for (int round = 0; round < ROUNDS && bucket_block(m, block); round++)
		;
}

bool pass_collectives(struct module *m, struct diag *d)
{
	(void)d;
	bucket_blocks(m, &m->top);
	return true;
}
