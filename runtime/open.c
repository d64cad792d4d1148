/* runtime/open.c - a plan made ready to run: arenas, groups, kernels; logical tensors in and out. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "ir/eval.h"
#include "ir/rng.h"
#include "runtime/backend.h"
#include "runtime/exec.h"

static const struct span nowhere;

int group_kind(struct runtime *rt, uint32_t axes, int64_t where)
{
	struct group_kind k = { axes, where };

	for (uint32_t i = 0; i < rt->groups.n; i++)
		if (rt->groups.at[i].axes == axes && rt->groups.at[i].where == where)
			return (int)i;
	PUSH(rt->mem, &rt->groups, k);
	return (int)rt->groups.n - 1;
}

struct host_input *rt_input(struct runtime *r, const char *buffer)
{
	for (uint32_t i = 0; i < r->inputs.n; i++)
		if (streq(r->inputs.at[i]->buf->name, buffer))
			return r->inputs.at[i];
	return NULL;
}

static const struct backend *const all[] = { &cpu_backend, &cuda_backend };

void backend_versions(struct text *t)
{
	for (size_t i = 0; i < LEN(all); i++) {
		text_put(t, "%-6s", all[i]->name);
		all[i]->versions(t);
		text_put(t, "\n");
	}
}

const struct backend *backend_find(const char *name, struct diag *d)
{
	for (size_t i = 0; i < LEN(all); i++)
		if (!name || streq(all[i]->name, name))
			return all[i];
	diag_error(d, nowhere, "there is no backend '%s'", name);
	diag_note(d, nowhere, "backends are cpu and cuda");
	return NULL;
}

bool backend_machine(const struct backend *on, struct machine *m, struct diag *d)
{
	*m = (struct machine){ 0 };
	return on->machine(m, d);
}

/* -- groups -- */

/* Ranks of a kind of group through rank r, first axis outermost; *me: r's place. */
static int members(const struct runtime *rt, const struct rank *r, struct group_kind kind, int64_t *ranks, int *me)
{
	int n = 0;

	for (int64_t i = 0; i < rt->nrank; i++) {
		bool with = holds_any(&rt->rank[i], kind.where);

		for (uint32_t a = 0; a < rt->m->axes.n && with; a++)
			with = (kind.axes >> a & 1) || rt->m->axes.at[a].time || rt->rank[i].coord[a] == r->coord[a];
		if (!with)
			continue;
		if (i == r->no)
			*me = n;
		ranks[n++] = i;
	}
	return n;
}

/* Of several processes each makes its own rank's alone. */
static bool make_groups(struct runtime *rt, struct diag *d)
{
	int64_t *ranks = NEWN(rt->mem, int64_t, rt->nrank);

	for (int64_t i = 0; i < rt->nrank; i++) {
		rt->rank[i].group = NEWN(rt->mem, struct group *, rt->groups.n + 1);
		rt->rank[i].place = NEWN(rt->mem, int, rt->groups.n + 1);
	}
	for (uint32_t s = 0; s < rt->groups.n; s++)
		for (int64_t i = 0; i < rt->nrank; i++) {
			struct rank *r = &rt->rank[i];

			if (!rank_here(r) || !holds_any(r, rt->groups.at[s].where))
				continue;
			int n = members(rt, r, rt->groups.at[s], ranks, &r->place[s]);
			struct group *g = rt->rank[ranks[0]].group[s];

			if (!g && !(g = comm_group(rt->comm, n, ranks)))
				return diag_error(d, nowhere, "no memory for groups of ranks");
			rt->rank[ranks[0]].group[s] = r->group[s] = g;
			r->most_peers = n > r->most_peers ? n : r->most_peers;
		}
	for (int64_t i = 0; i < rt->nrank; i++) {
		rt->rank[i].peers = NEWN(rt->mem, const void *, rt->rank[i].most_peers + 1);
		rt->rank[i].weights = NEWN(rt->mem, float, rt->rank[i].most_peers + 1);
	}
	return true;
}

/* -- tensors in and out -- */

/* Loops over a rank's part of a buffer: ds in the rank's memory, ss in the logical tensor; where it starts
 * along each dim. */
struct part {
	const struct module *m;
	const struct buffer *b;
	struct nest l;
	int64_t start[MAX_DIMS];
};

static struct part part_of(const struct runtime *rt, const struct buffer *b, const struct rank *r)
{
	struct part p = { rt->m, b, { .nd = b->nd }, { 0 } };
	int64_t s = 1, local[MAX_DIMS];

	strides_of(rt->m, b->nd, b->d, b->store.on, local);
	for (int i = b->nd - 1; i >= 0; i--) {
		struct extent e = rank_extent(rt->m, b->d[i], &b->store.on[i], r->coord);

		p.l.n[i] = e.valid;
		p.l.ds[i] = local[i];
		p.l.ss[i] = s;
		p.start[i] = e.start;
		s *= dim_size(rt->m, b->d[i]);
	}
	return p;
}

/* What element i of the part along dim k adds to its place in the logical tensor. */
static int64_t logical(const struct part *p, int k, int64_t i)
{
	return dim_index(p->m, p->b->d[k], p->start[k] + i) * p->l.ss[k];
}

static int64_t buffer_count(const struct module *m, const struct buffer *b)
{
	int64_t n = 1;

	for (int i = 0; i < b->nd; i++)
		n *= dim_size(m, b->d[i]);
	return n;
}

/* Calls for each element of a rank's part: index in the part (elements), in the logical tensor. */
typedef void each_fn(void *me, int64_t local, int64_t whole);

static void each(const struct part *p, each_fn *fn, void *me)
{
	const struct nest *l = &p->l;
	int64_t at[MAX_DIMS + 2] = { 0 }, a = 0, b = 0;

	if (nest_empty(l))
		return;
	for (int i = 0; i < l->nd; i++)
		b += logical(p, i, 0);
	for (;;) {
		fn(me, a, b);
		int i = l->nd - 1;

		for (; i >= 0; i--) {
			bool more = at[i] + 1 < l->n[i];
			int64_t next = more ? at[i] + 1 : 0;

			a += (next - at[i]) * l->ds[i];
			b += logical(p, i, next) - logical(p, i, at[i]);
			at[i] = next;
			if (more)
				break;
		}
		if (i < 0)
			return;
	}
}

struct filling {
	const struct buffer *b;
	uint64_t key;
	const double *x;
	double *out;
	char *mem;
};

/* As init_value, with the key of the stream at hand. */
static void normal_one(void *me, int64_t local, int64_t whole)
{
	struct filling *f = me;

	nest_store(f->b->dt, f->mem, local, f->b->init_arg * rng_normal(f->key, (uint64_t)whole, 0, 0));
}

static void init_one(void *me, int64_t local, int64_t whole)
{
	struct filling *f = me;

	nest_store(f->b->dt, f->mem, local, init_value(f->b, f->key, (uint64_t)whole));
}

static void set_one(void *me, int64_t local, int64_t whole)
{
	struct filling *f = me;

	nest_store(f->b->dt, f->mem, local, f->x[whole]);
}

static void get_one(void *me, int64_t local, int64_t whole)
{
	struct filling *f = me;

	f->out[whole] = nest_load(f->b->dt, f->mem, local);
}

/* NULL: this rank does not hold it. */
static char *buffer_at(const struct rank *r, const struct buffer *b)
{
	const struct runtime *rt = r->rt;
	uint32_t i = 0;

	if (b->host)
		return holds_buffer(rt->m, b, r->stage) ? r->host + b->off : NULL;
	if (!rt->layouts)
		return r->arena + b->off;
	while (rt->m->bufs.at[i] != b)
		i++;
	struct loc at = { .region = rt->regions->buf[i], .base = b->off };

	return at.region < 0 || r->slot[at.region].base < 0 ? NULL : rank_at(r, &at);
}

/* Of the part of b that r holds; with rows of a stage, so many. */
static int64_t buffer_bytes(const struct rank *r, const struct buffer *b)
{
	const struct module *m = r->rt->m;
	struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store };
	int64_t n;

	memcpy(v.d, b->d, sizeof v.d);
	n = local_bytes(m, &v);
	if (r->rt->layouts && b->nd && is_staged(m, b->d[0]) && b->store.on[0].n == 1)
		n = n / pipe_extent(m, b->d[0], 0).cap * pipe_rows(m, b->d[0], r->stage);
	return n;
}

static void for_part(struct runtime *rt, const struct buffer *b, struct rank *r, each_fn *fn, struct filling *f)
{
	struct part p = part_of(rt, b, r);

	if (!rank_here(r)) {
		if (f->out)
			comm_fail(rt->comm, r->no, b->at, "'%s' is in another process", b->name);
		return;
	}

	char *at = buffer_at(r, b);
	int64_t bytes = buffer_bytes(r, b);

	f->b = b;
	if (!at || nest_empty(&p.l))
		return;
	f->mem = rt->backend->peek(r, at, bytes);
	if (f->mem) {
		each(&p, fn, f);
		rt->backend->poke(r, at, f->mem, bytes, !f->out);
	}
}

void rt_set(struct runtime *r, const char *buffer, const double *x)
{
	struct buffer *b = find_buffer(r->m, buffer);
	struct host_input *in = rt_input(r, buffer);
	struct filling f = { .x = x };

	if (in)
		for (int64_t i = 0; i < in->count; i++)
			nest_store(b->dt, in->x, i, x[i]);
	else if (b && b->off >= 0)
		for (int64_t i = 0; i < r->nrank; i++)
			for_part(r, b, &r->rank[i], set_one, &f);
}

void rt_get(struct runtime *r, const char *buffer, double *x)
{
	struct buffer *b = find_buffer(r->m, buffer);
	struct host_input *in = rt_input(r, buffer);
	struct filling f = { .out = x };

	if (in)
		for (int64_t i = 0; i < in->count; i++)
			x[i] = nest_load(b->dt, in->x, i);
	else if (b && b->off >= 0)
		for (int64_t i = r->nrank - 1; i >= 0; i--)
			for_part(r, b, &r->rank[i], get_one, &f);
}

/* Does r hold the first copy of its part of b? */
static bool is_first(const struct runtime *rt, const struct buffer *b, const struct rank *r)
{
	uint32_t split = sharding_axes(&b->store, b->nd);
	int pipe = pipe_axis(rt->m);

	for (uint32_t a = 0; a < rt->m->axes.n; a++) {
		int first = (int)a == pipe && b->where ? pipe_first_stage(rt->m, b->where) : 0;

		if (!(split >> a & 1) && r->coord[a] != first)
			return false;
	}
	return true;
}

static struct rank *first_copy(struct runtime *rt, const struct buffer *b, struct rank *r)
{
	uint32_t split = sharding_axes(&b->store, b->nd);

	for (int64_t i = 0; i < rt->nrank; i++) {
		bool same = is_first(rt, b, &rt->rank[i]);

		for (uint32_t a = 0; a < rt->m->axes.n && same; a++)
			same = !(split >> a & 1) || rt->rank[i].coord[a] == r->coord[a];
		if (same)
			return &rt->rank[i];
	}
	return r;
}

static void draw(struct rank *r, const struct buffer *b)
{
	struct runtime *rt = r->rt;
	struct filling f = { .key = rt->seed };

	if (b->init == INIT_NORMAL)
		f.key = stream_key(rt->seed, b->owner ? b->owner : b->name);
	for_part(rt, b, r, b->init == INIT_NORMAL ? normal_one : init_one, &f);
}

void init_first(struct rank *r)
{
	struct runtime *rt = r->rt;

	for (uint32_t i = 0; i < rt->m->bufs.n; i++) {
		const struct buffer *b = rt->m->bufs.at[i];
		if (b->off >= 0 && b->init != INIT_ZEROS && is_first(rt, b, r)) /* the arena is zero */
			draw(r, b);
	}
}

static void copy_buffer(struct rank *from, struct rank *to, const struct buffer *b)
{
	const struct backend *on = to->rt->backend;
	int64_t bytes = buffer_bytes(to, b);
	char *src = buffer_at(from, b), *dst = buffer_at(to, b);
	void *seen = on->peek(from, src, bytes), *mine = seen ? on->peek(to, dst, bytes) : NULL;

	if (mine) {
		memcpy(mine, seen, (size_t)bytes);
		on->poke(to, dst, mine, bytes, true);
	}
	if (seen)
		on->poke(from, src, seen, bytes, false);
}

void init_copies(struct rank *r)
{
	struct runtime *rt = r->rt;

	for (uint32_t i = 0; i < rt->m->bufs.n; i++) {
		const struct buffer *b = rt->m->bufs.at[i];

		if (b->off < 0 || b->init == INIT_ZEROS || is_first(rt, b, r) || !buffer_at(r, b))
			continue;
		struct rank *from = first_copy(rt, b, r);

		if (rank_here(from))
			copy_buffer(from, r, b);
		else
			draw(r, b); /* the same numbers */
	}
}

/* -- open and close -- */

static bool make_inputs(struct runtime *rt, struct diag *d)
{
	for (uint32_t i = 0; i < rt->m->bufs.n; i++) {
		struct buffer *b = rt->m->bufs.at[i];

		if (b->role != B_INPUT)
			continue;
		struct host_input *in = NEW(rt->mem, struct host_input);

		in->buf = b;
		in->count = buffer_count(rt->m, b);
		PUSH(rt->mem, &rt->inputs, in);
		in->x = calloc((size_t)(in->count ? in->count : 1), (size_t)dtype_bytes(b->dt));
		if (!in->x)
			return diag_error(d, b->at, "no memory for the input '%s'", b->name);
	}
	return true;
}

size_t rank_bytes(const struct rank *r)
{
	const struct runtime *rt = r->rt;
	int64_t n = rt->layouts ? rt->layouts->stage[r->stage].arena : rt->m->arena;

	return n ? (size_t)n : 64;
}

static void find_rank(struct runtime *rt, struct rank *r)
{
	r->rt = rt;
	rank_coords(rt->m, r->no, r->coord);
	if (rt->layouts) {
		r->stage = r->coord[pipe_axis(rt->m)];
		r->places = pipe_places(rt->m, r->stage);
	}
	begin_once(r);
}

static bool make_rank(struct runtime *rt, struct rank *r, struct diag *d)
{
	return rt->backend->rank_open(r, rank_bytes(r), d);
}

/* Cores that we may use; PTC_THREADS: fewer or more, in all. */
int processor_count(void)
{
	const char *want = getenv("PTC_THREADS");
	cpu_set_t set;
	int n = want ? atoi(want) : 0;

	if (n < 1)
		n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	return n < 1 ? 1 : n > 512 ? 512 : n;
}

/* What the plan leaves to be made from it; it must need as much memory as it says. */
bool plan_lay_out(struct runtime *rt, struct diag *d)
{
	const struct module *m = rt->m;

	rt->regions = regions_of(rt->mem, m);
	if (pipe_axis(m) < 0)
		return true;
	regions_measure(rt->regions, m);
	rt->layouts = layouts_of(rt->mem, m, rt->regions);
	for (int i = 0; i < rt->layouts->stages; i++)
		if (i >= (int)m->pipe.arena.n || m->pipe.arena.at[i] != rt->layouts->stage[i].arena)
			return diag_error(d, nowhere, "the plan has an arena for stage %d that does not fit what lies in it", i);
	return true;
}

/* Counters of all that a rank may send. */
static void make_tallies(struct runtime *rt)
{
	const struct regions *r = rt->regions;

	rt->sends = NEWN(rt->mem, int, r->at.n + 1);
	for (uint32_t i = 0; i < r->at.n; i++) {
		rt->sends[i] = r->at.at[i].kind == RG_KEPT ? (int)rt->senders.n : -1;
		if (r->at.at[i].kind == RG_KEPT)
			PUSH(rt->mem, &rt->senders, ((struct sender){ .sent = r->at.at[i].v }));
	}
	for (int64_t i = 0; i < rt->nrank; i++)
		rt->rank[i].sent = NEWN(rt->mem, struct tally, rt->senders.n + 1);
}

static void enter(struct rank *r)
{
	r->rt->backend->enter(r);
}

static void leave(struct rank *r)
{
	r->rt->backend->leave(r);
}

static bool make_all(struct runtime *rt, struct diag *d)
{
	rt->nrank = module_ranks(rt->m);
	rt->threads = (int)(processor_count() / rt->nrank);
	rt->threads = rt->threads < 1 ? 1 : rt->threads > 64 ? 64 : rt->threads;
	if (rt->m->form != PLANNED)
		return diag_error(d, nowhere, "only a plan can be run: this module is %s", form_name[rt->m->form]);
	if (!plan_lay_out(rt, d) || !make_inputs(rt, d) || !rt->backend->load(rt, d) || !program_build(rt, d))
		return false;
	rt->rank = NEWN(rt->mem, struct rank, rt->nrank);
	rt->comm = comm_open(rt->nrank, 600);
	if (!rt->comm)
		return diag_error(d, nowhere, "no memory for communication");
	make_tallies(rt);
	for (int64_t i = 0; i < rt->nrank; i++) {
		rt->rank[i].no = i;
		find_rank(rt, &rt->rank[i]);
		if (rank_here(&rt->rank[i]) && !make_rank(rt, &rt->rank[i], d))
			return false;
	}
	if (!make_groups(rt, d) || !actions_open(rt, d))
		return false;
	if (!threads_start(rt, d))
		return false;
	rt->entered = true;
	if (threads_run(rt, enter) && !comm_failed(rt->comm) && threads_run(rt, init_first) && threads_run(rt, init_copies) &&
	    !comm_failed(rt->comm))
		return true;
	struct span at = nowhere;
	const char *why = comm_error(rt->comm, &at);

	return diag_error(d, at, "%s", why);
}

struct runtime *rt_open_on(const struct backend *backend, struct module *m, uint64_t seed, struct diag *d)
{
	struct arena *mem = arena_new();
	struct runtime *rt = NEW(mem, struct runtime);

	rt->mem = mem;
	rt->m = m;
	rt->seed = seed;
	rt->backend = backend;
	rt->here = -1;
	pthread_mutex_init(&rt->lock, NULL);
	pthread_cond_init(&rt->go, NULL);
	pthread_cond_init(&rt->ended, NULL);
	if (make_all(rt, d))
		return rt;
	rt_close(rt);
	return NULL;
}

struct runtime *rt_open(struct module *m, uint64_t seed, struct diag *d)
{
	return rt_open_on(&cpu_backend, m, seed, d);
}

void rt_close(struct runtime *r)
{
	if (!r)
		return;
	if (r->entered)
		threads_run(r, leave);
	threads_stop(r);
	for (int64_t i = 0; r->rank && i < r->nrank; i++)
		if (r->rank[i].rt)
			r->backend->rank_close(&r->rank[i], rank_bytes(&r->rank[i]));
	for (uint32_t i = 0; i < r->inputs.n; i++)
		free(r->inputs.at[i]->x);
	actions_close(r);
	tracers_close(r);
	r->backend->unload(r);
	comm_close(r->comm);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->go);
	pthread_cond_destroy(&r->ended);
	arena_free(r->mem);
}
