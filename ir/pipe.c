/* ir/pipe.c - the cut of a pipeline: which iterations and which glue a stage has.
 *
 * The iterations of the pipelined repeats, in file order, are one chain. Chunk g runs those from end[g-1]
 * up to end[g]. Places along the chain are numbered: 2k is the glue before repeat k, 2k + 1 repeat k
 * itself, 2n the glue behind the last of n. */
#include "ir/ir.h"

int pipe_axis(const struct module *m)
{
	for (uint32_t i = 0; m->pipe.user >= 0 && i < m->axes.n; i++)
		if (!m->axes.at[i].time && m->axes.at[i].user == m->pipe.user)
			return m->axes.at[i].size > 1 ? (int)i : -1;
	return -1;
}

bool pipe_takes(const struct module *m, dimid d)
{
	for (uint32_t i = 0; i < m->arrows.n; i++) {
		const struct arrow *a = &m->arrows.at[i];

		for (int k = 0; a->what == W_DIMS && k < a->dims.n; k++)
			for (int x = 0; a->dims.d[k] == d && x < a->naxes; x++)
				if (a->axes[x] == m->pipe.user)
					return true;
	}
	return false;
}

int pipe_stages(const struct module *m)
{
	return m->pipe.user < 0 ? 1 : m->mesh.at[m->pipe.user].size;
}

int pipe_chunks(const struct module *m)
{
	return pipe_stages(m) * (m->pipe.chunks > 0 ? m->pipe.chunks : 1);
}

int pipe_stage(const struct module *m, int g)
{
	struct schedule s = { .kind = m->pipe.order, .p = pipe_stages(m), .v = m->pipe.chunks, .place = m->pipe.place };

	return schedule_stage(&s, g);
}

static int loop_no(const struct module *m, dimid d)
{
	if (m->dims.at[d].part == PART_KEPT)
		d = m->dims.at[d].of;
	for (uint32_t i = 0; i < m->pipe.loops.n; i++)
		if (m->pipe.loops.at[i] == d)
			return (int)i;
	return -1;
}

bool is_staged(const struct module *m, dimid d)
{
	return m->pipe.end.n && loop_no(m, d) >= 0;
}

/* Where repeat k begins in the chain. */
static int64_t chain_start(const struct module *m, int k)
{
	int64_t at = 0;

	for (int i = 0; i < k; i++)
		at += dim_size(m, m->pipe.loops.at[i]);
	return at;
}

static int64_t clamp(int64_t x, int64_t most)
{
	return x < 0 ? 0 : x > most ? most : x;
}

/* Of a PART_KEPT: the rows among those of the stage. */
static struct trips kept_trips(const struct module *m, const struct dim *x, int g)
{
	struct trips t = pipe_trips(m, x->of, g);
	int64_t first = pipe_chunk_number(m, x->of, g) - x->from, last = first + t.hi - t.lo - 1;

	if (t.lo == t.hi)
		return (struct trips){ 0, 0 };
	return (struct trips){ first > 0 ? first : 0, (last > 0 ? last : 0) + 1 };
}

struct trips pipe_trips(const struct module *m, dimid d, int g)
{
	if (m->dims.at[d].part == PART_KEPT)
		return kept_trips(m, &m->dims.at[d], g);
	int k = loop_no(m, d);
	int64_t start = chain_start(m, k), n = dim_size(m, d);

	return (struct trips){ clamp((g ? m->pipe.end.at[g - 1] : 0) - start, n), clamp(m->pipe.end.at[g] - start, n) };
}

int64_t pipe_rows(const struct module *m, dimid d, int stage)
{
	int p = pipe_stages(m), chunks = pipe_chunks(m);
	int64_t rows = 0;

	for (int turn = 0; turn < chunks; turn += p) { /* each turn of the chain has one chunk of the stage */
		int g = pipe_stage(m, turn + stage) == stage ? turn + stage : turn + p - 1 - stage;
		struct trips t = pipe_trips(m, d, g);

		rows += t.hi - t.lo;
	}
	return rows;
}

int64_t pipe_row(const struct module *m, dimid d, int g)
{
	int64_t row = 0;

	for (int i = 0; i < g; i++)
		if (pipe_stage(m, i) == pipe_stage(m, g)) {
			struct trips t = pipe_trips(m, d, i);

			row += t.hi - t.lo;
		}
	return row;
}

struct extent pipe_extent(const struct module *m, dimid d, int stage)
{
	struct extent e = { 0, 0, 0 };

	for (int s = 0; s < pipe_stages(m); s++) {
		int64_t rows = pipe_rows(m, d, s);

		e.start += s < stage ? rows : 0;
		e.valid = s == stage ? rows : e.valid;
		e.cap = rows > e.cap ? rows : e.cap;
	}
	return e;
}

int64_t pipe_chunk_number(const struct module *m, dimid d, int g)
{
	int64_t n = 0, start = chain_start(m, loop_no(m, d)), begin = g ? m->pipe.end.at[g - 1] : 0;

	for (int i = 0; i < g; i++)
		if (pipe_stage(m, i) == pipe_stage(m, g))
			n += m->pipe.end.at[i] - (i ? m->pipe.end.at[i - 1] : 0);
	return n + (start > begin ? start - begin : 0);
}

int64_t pipe_number(const struct module *m, dimid d, int64_t index)
{
	if (!is_staged(m, d))
		return index;
	int g = pipe_chunk_of(m, d, index);

	return pipe_chunk_number(m, d, g) + index - pipe_trips(m, d, g).lo;
}

int64_t kept_row(const struct module *m, dimid kept, int64_t index)
{
	const struct dim *x = &m->dims.at[kept];
	int64_t row = pipe_number(m, x->of, index) - x->from;

	row = row > 0 ? row : 0;
	return is_staged(m, x->of) ? row - kept_trips(m, x, pipe_chunk_of(m, x->of, index)).lo : row;
}

bool in_first(const struct module *m, dimid first, int64_t index)
{
	return pipe_number(m, m->dims.at[first].of, index) < m->dims.at[first].from;
}

int64_t first_trips(const struct module *m, dimid first, int g)
{
	const struct dim *x = &m->dims.at[first];
	int64_t n = 0;

	if (!is_staged(m, x->of))
		return clamp(x->from, dim_size(m, x->of));
	for (int i = g < 0 ? 0 : g; i < (g < 0 ? pipe_chunks(m) : g + 1); i++) {
		struct trips t = pipe_trips(m, x->of, i);

		n += clamp(x->from - pipe_chunk_number(m, x->of, i), t.hi - t.lo);
	}
	return n;
}

double first_share(const struct module *m, dimid first, int stage, int g)
{
	dimid of = m->dims.at[first].of;
	int64_t all = 0, n = 0;

	for (int i = 0; is_staged(m, of) && i < pipe_chunks(m); i++) {
		if ((g >= 0 && i != g) || (g < 0 && stage >= 0 && pipe_stage(m, i) != stage))
			continue;
		struct trips t = pipe_trips(m, of, i);

		all += t.hi - t.lo;
		n += first_trips(m, first, i);
	}
	if (!is_staged(m, of)) {
		all = dim_size(m, of);
		n = first_trips(m, first, -1);
	}
	return all ? (double)n / (double)all : 0;
}

double pipe_share(const struct module *m, const struct value *v, int stage)
{
	if (!v->nd || !is_staged(m, v->d[0]) || v->sh.on[0].n != 1)
		return 1;
	int64_t cap = cap_of(m, v->d[0], &v->sh.on[0]);

	return cap ? (double)pipe_rows(m, v->d[0], stage) / (double)cap : 1;
}

int pipe_chunk_of(const struct module *m, dimid d, int64_t index)
{
	int64_t at = chain_start(m, loop_no(m, d)) + index;
	int g = 0;

	while (m->pipe.end.at[g] <= at)
		g++;
	return g;
}

int64_t pipe_position(const struct module *m, dimid d, int64_t index)
{
	int g = pipe_chunk_of(m, d, index);

	return pipe_extent(m, d, pipe_stage(m, g)).start + pipe_row(m, d, g) + index - pipe_trips(m, d, g).lo;
}

int64_t pipe_index(const struct module *m, dimid d, int64_t position)
{
	int64_t at = 0;

	for (int s = 0; s < pipe_stages(m); s++)
		for (int g = 0; g < pipe_chunks(m); g++) {
			if (pipe_stage(m, g) != s)
				continue;
			struct trips t = pipe_trips(m, d, g);
			if (position < at + t.hi - t.lo)
				return t.lo + position - at;
			at += t.hi - t.lo;
		}
	die("position %lld of '%s' is on no stage", (long long)position, m->dims.at[d].name);
}

bool pipe_runs(const struct module *m, int g, int place)
{
	int n = (int)m->pipe.loops.n, k = place / 2;

	if (place % 2) {
		struct trips t = pipe_trips(m, m->pipe.loops.at[k], g);

		return t.hi > t.lo;
	}
	if (k == 0)
		return g == 0;
	if (k == n)
		return g == pipe_chunks(m) - 1;
	return pipe_chunk_of(m, m->pipe.loops.at[k], 0) == g;
}

int64_t pipe_places(const struct module *m, int stage)
{
	int64_t bits = 0;

	for (int g = 0; g < pipe_chunks(m); g++)
		for (int p = 0; pipe_stage(m, g) == stage && p <= 2 * (int)m->pipe.loops.n; p++)
			bits |= pipe_runs(m, g, p) ? 1ll << p : 0;
	return bits;
}

int pipe_first_stage(const struct module *m, int64_t places)
{
	int s = 0;

	while (s + 1 < pipe_stages(m) && !(pipe_places(m, s) & places))
		s++;
	return s;
}

struct schedule pipe_schedule(const struct module *m)
{
	return (struct schedule){ .kind = m->pipe.order, .p = pipe_stages(m), .v = m->pipe.chunks, .m = (int)m->micro,
				  .inflight = (int)m->pipe.inflight, .warm_extra = m->pipe.warm,
				  .list = m->pipe.list, .place = m->pipe.place };
}
