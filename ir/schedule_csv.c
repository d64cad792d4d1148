/* ir/schedule_csv.c - schedules of torch.distributed.pipelining. What PyTorch calls a rank is a
 * stage here, and its stage index a chunk. Its cells of communication and of sharding are passed
 * over: here they follow from the order of the others. A pair that runs at once, (0F1;3B0)OVERLAP_F_B,
 * is its two actions one after the other. */
#include "ir/schedule.h"

#include <ctype.h>

struct reader {
	struct arena *mem;
	const char *s, *end;
	int line, chunks, mbs;
	const char *line_start;
	struct { VEC(struct actions) v; } rows;
	struct { VEC(struct cells { VEC(struct span) v; }) v; } spans;
	struct schedule_fault *fault;
};

static bool refuse(struct reader *r, const char *s, const char *end, const char *what)
{
	*r->fault = (struct schedule_fault){
		.what = what, .stage = (int)r->rows.v.n - 1,
		.note = end > s ? "a cell is CHUNK, one of F, B, I, W, and MICROBATCH, like 2F0" : NULL,
		.span = { 0, (uint32_t)r->line, (uint32_t)(s - r->line_start) + 1, (uint32_t)(end - s) },
	};
	return false;
}

static const char *skip_number(const char *s, const char *end, int *x)
{
	int64_t n = 0;

	if (s == end || !isdigit((unsigned char)*s))
		return NULL;
	for (; s < end && isdigit((unsigned char)*s); s++)
		if ((n = n * 10 + (*s - '0')) > INT32_MAX / 2)
			return NULL;
	*x = (int)n;
	return s;
}

static bool is_word(const char *s, const char *end, const char *word)
{
	return (size_t)(end - s) == strlen(word) && memcmp(s, word, (size_t)(end - s)) == 0;
}

/* 0SEND_F1, 1UNSHARD, 2REDUCE_GRAD: s is after the number. */
static bool is_passed_over(const char *s, const char *end)
{
	static const char *const words[] = { "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD" };

	while (end > s && isdigit((unsigned char)end[-1]))
		end--;
	for (size_t i = 0; i < LEN(words); i++)
		if (is_word(s, end, words[i]))
			return true;
	return false;
}

static bool read_action(struct reader *r, const char *s, const char *end)
{
	struct actions *row = &r->rows.v.at[r->rows.v.n - 1];
	struct span at = { 0, (uint32_t)r->line, (uint32_t)(s - r->line_start) + 1, (uint32_t)(end - s) };
	int chunk, mb, kind = 0;
	const char *t = skip_number(s, end, &chunk);

	if (t && is_passed_over(t, end))
		return true;
	while (t && t < end && kind < NACT && action_letter[kind] != *t)
		kind++;
	if (!t || t == end || kind == NACT || skip_number(t + 1, end, &mb) != end)
		return refuse(r, s, end, arena_printf(r->mem, "'%.*s' is not an action", (int)(end - s < 40 ? end - s : 40), s));
	if (chunk >= UINT16_MAX || mb >= 1 << 26)
		return refuse(r, s, end, arena_printf(r->mem, "'%.*s' is out of range", (int)(end - s), s));
	struct action a = { (uint8_t)kind, (uint16_t)chunk, mb };
	PUSH(r->mem, row, a);
	PUSH(r->mem, &r->spans.v.at[r->rows.v.n - 1].v, at);
	r->chunks = chunk >= r->chunks ? chunk + 1 : r->chunks;
	r->mbs = mb >= r->mbs ? mb + 1 : r->mbs;
	return true;
}

static bool read_cell(struct reader *r, const char *s, const char *end)
{
	const char *close, *semi;

	while (s < end && (isspace((unsigned char)*s) || *s == '"'))
		s++;
	while (s < end && (isspace((unsigned char)end[-1]) || end[-1] == '"'))
		end--;
	if (s == end)
		return true;
	if (*s != '(')
		return read_action(r, s, end);
	close = memchr(s, ')', (size_t)(end - s));
	semi = memchr(s, ';', (size_t)(end - s));
	if (!close || !semi || semi > close || !is_word(close + 1, end, "OVERLAP_F_B"))
		return refuse(r, s, end, arena_printf(r->mem, "'%.*s' is not an action", (int)(end - s < 40 ? end - s : 40), s));
	return read_action(r, s + 1, semi) && read_action(r, semi + 1, close);
}

static bool read_row(struct reader *r, const char *end)
{
	struct actions none = { 0 };
	struct cells cells = { 0 };
	bool more = true;

	PUSH(r->mem, &r->rows.v, none);
	PUSH(r->mem, &r->spans.v, cells);
	for (const char *s = r->s, *comma; more; s = comma + 1) {
		comma = memchr(s, ',', (size_t)(end - s));
		more = comma != NULL;
		comma = comma ? comma : end;
		if (!read_cell(r, s, comma))
			return false;
	}
	return true;
}

/* Rows up to the last that is not blank. */
static bool read_rows(struct reader *r)
{
	while (r->end > r->s && isspace((unsigned char)r->end[-1]))
		r->end--;
	while (r->s < r->end) {
		const char *nl = memchr(r->s, '\n', (size_t)(r->end - r->s));

		r->line++;
		r->line_start = r->s;
		if (!read_row(r, nl ? nl : r->end))
			return false;
		r->s = nl ? nl + 1 : r->end;
	}
	return true;
}

/* A stage that has not its share of chunks; a blank row is the likelier mistake. -1: none. */
static int odd_stage(const uint16_t *count, int p, int chunks)
{
	for (int d = 0; d < p; d++)
		if (!count[d])
			return d;
	for (int d = 0; d < p; d++)
		if (count[d] * p != chunks)
			return d;
	return -1;
}

/* Each chunk where its first action is; as many on each stage. */
static bool place_chunks(struct reader *r, struct schedule *s)
{
	uint16_t *place = NEWN(r->mem, uint16_t, r->chunks), *count = NEWN(r->mem, uint16_t, s->p);
	bool *placed = NEWN(r->mem, bool, r->chunks);
	int odd;

	for (int d = 0; d < s->p; d++)
		for (uint32_t i = 0; i < s->list[d].n; i++)
			if (!placed[s->list[d].at[i].chunk]) {
				placed[s->list[d].at[i].chunk] = true;
				place[s->list[d].at[i].chunk] = (uint16_t)d;
				count[d]++;
			}
	*r->fault = (struct schedule_fault){ .stage = -1, .span = { .line = 1, .col = 1 } };
	for (int g = 0; g < r->chunks && !r->fault->what; g++)
		if (!placed[g])
			r->fault->what = arena_printf(r->mem, "no row has actions of chunk %d", g);
	odd = odd_stage(count, s->p, r->chunks);
	if (odd >= 0 && !r->fault->what)
		*r->fault = (struct schedule_fault){
			.what = arena_printf(r->mem, "stage %d has %d of the %d chunks of %d stages", odd, count[odd], r->chunks, s->p),
			.note = "a row is a stage; all have as many chunks", .stage = odd, .span = { .line = (uint32_t)odd + 1, .col = 1 },
		};
	s->place = place;
	s->v = r->chunks / s->p;
	return !r->fault->what;
}

bool schedule_read_csv(struct arena *mem, const char *text, size_t n, struct schedule *out,
		       struct schedule_fault *fault)
{
	struct reader r = { .mem = mem, .s = text, .end = text + n, .line_start = text, .fault = fault };
	const char *refused;
	int64_t total = 0;

	*fault = (struct schedule_fault){ .stage = -1 };
	if (!read_rows(&r))
		return false;
	*out = (struct schedule){ .kind = SCHED_LIST, .p = (int)r.rows.v.n, .m = r.mbs, .list = r.rows.v.at };
	if (!r.chunks)
		return refuse(&r, r.line_start, r.line_start, "no actions");
	for (int d = 0; d < out->p; d++)
		total += out->list[d].n;
	if ((int64_t)r.chunks * r.mbs > total) /* a number too large, not a list too short */
		return refuse(&r, r.line_start, r.line_start, arena_printf(mem, "%lld actions for %d chunks and %d microbatches",
									     (long long)total, r.chunks, r.mbs));
	if (!place_chunks(&r, out))
		return false;
	refused = schedule_refused(mem, out);
	if (refused)
		return refuse(&r, r.line_start, r.line_start, refused);
	if (schedule_check(mem, out, out->list, 2, fault))
		return true;
	if (fault->stage >= 0 && fault->at < out->list[fault->stage].n)
		fault->span = r.spans.v.at[fault->stage].v.at[fault->at];
	else
		fault->span = (struct span){ .line = fault->stage < 0 ? 1 : (uint32_t)fault->stage + 1, .col = 1 };
	return false;
}

void schedule_write_csv(struct text *out, const struct schedule *s, const struct actions *list)
{
	for (int d = 0; d < s->p; d++) {
		for (uint32_t i = 0; i < list[d].n; i++)
			text_put(out, "%s%d%c%d", i ? "," : "", list[d].at[i].chunk, action_letter[list[d].at[i].kind], list[d].at[i].mb);
		text_put(out, "\r\n"); /* as Python's csv module does */
	}
}
