/* frontend/cmd_shrink.c - a model too big to be checked: the same one with smaller dims.
 *
 * The dims that are written as numbers are made smaller one by one, the largest first, for as long as
 * the model still compiles. What arrows shard keeps its remainder modulo the axes (the batch: and the
 * microbatches), so that what divides divides, and what is padded is padded as before. Where far too much is left, as
 * with an axis of 97, a dim keeps only how it lies on its own axes: it divides, it is padded, or it is shorter than they;
 * and what did not compile is tried again with the others smaller.
 *
 * Nearly all that a size can break is found before anything is sharded, in a small part of the time of a compile: each step
 * is tried that far. What is left to evaluate, which only a whole compile tells, falls from step to step, so it is asked
 * after one, two, four more, and where that is too many, by halving. */
#include <stdio.h>

#include "frontend/ast.h"
#include "frontend/cmd.h"
#include "frontend/frontend.h"

enum { MAX_FREE = 64, MICRO = 4, LEAST = 4, LEAST_LOOP = 2, TRIES = 8, FAR = 10, LONG = 25, MANY = 8 };

struct free_dim {
	const char *name;
	int64_t size, least;
	int64_t modulo; /* of all axes, if an arrow has it */
	int64_t parts;  /* of its own axes */
	bool done;
};

struct shrink {
	struct session *s;
	const char *set;  /* the user's */
	bool fewer;       /* microbatches than the plan has */
	bool shrunk;
	bool hard;        /* remainders may change, and a dim that did not become smaller is tried again */
	bool again;       /* one became smaller since */
	const char *last; /* settings that were compiled last, as a whole, and what was left then */
	double left;
	struct layout how;
	struct free_dim dim[MAX_FREE];
	int n;
};

/* Is NAME= in the list that the user gave? */
static bool is_set(const char *set, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = set; p && *p; p += strcspn(p, ","), p += *p == ',')
		if (strncmp(p, name, n) == 0 && p[n] == '=')
			return true;
	return false;
}

static void find_free(struct shrink *k)
{
	struct diag quiet;
	struct sources src = { 0 };

	diag_init(&quiet, k->s->mem, &src, NULL);
	for (struct node *x = ast_read(k->s->mem, &src, &quiet, k->s->opt->file); x; x = x->next) {
		if (x->kind != N_DIM)
			continue;
		for (struct node *d = x->list; d; d = d->next)
			if (d->a && d->a->kind == N_NUMBER && d->a->whole && k->n < MAX_FREE && !is_set(k->set, d->name))
				k->dim[k->n++] = (struct free_dim){ d->name, d->a->integer, LEAST, 1, 1, false };
	}
}

static int64_t lcm(int64_t a, int64_t b)
{
	int64_t x = a, y = b;

	while (y) {
		int64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x * b;
}

static struct free_dim *find_dim_of(struct shrink *k, const struct module *m, dimid d)
{
	for (int i = 0; i < k->n; i++)
		if (streq(m->dims.at[d].name, k->dim[i].name))
			return &k->dim[i];
	return NULL;
}

static int64_t ranks_of(const struct module *m, const struct arrow *a)
{
	int64_t n = 1;

	for (int i = 0; i < a->naxes; i++)
		n *= m->mesh.at[a->axes[i]].size;
	return n;
}

static void find_limits(struct shrink *k, const struct module *m)
{
	int64_t axes = 1, micro = k->fewer ? MICRO : m->micro;
	struct free_dim *f;

	for (const struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_REPEAT && (f = find_dim_of(k, m, op->at.dim)))
			f->least = LEAST_LOOP;

	for (uint32_t i = 0; i < m->mesh.n; i++)
		axes = lcm(axes, m->mesh.at[i].size);
	for (uint32_t i = 0; i < m->arrows.n; i++) {
		const struct arrow *a = &m->arrows.at[i];

		for (int j = 0; j < a->dims.n; j++)
			if ((f = find_dim_of(k, m, a->dims.d[j]))) {
				int64_t more = a->dims.d[j] == m->batch ? micro : a->zigzag ? 2 : 1;

				f->modulo = axes * more;
				f->parts = lcm(f->parts, ranks_of(m, a) * more);
			}
	}
}

static const char *settings(struct shrink *k)
{
	struct text t = { .mem = k->s->mem };

	text_put(&t, "%s", k->set ? k->set : "");
	if (k->fewer)
		text_put(&t, "%smicrobatches=%d", t.n ? "," : "", MICRO);
	for (int i = 0; i < k->n; i++)
		text_put(&t, "%s%s=%lld", t.n ? "," : "", k->dim[i].name, (long long)k->dim[i].size);
	return t.s;
}

void halve_chunks(struct module *m)
{
	for (uint32_t i = 0; i < m->chunks.n; i++) {
		m->chunks.at[i].parts = 2;
		m->chunks.at[i].rows = 0;
	}
}

/* An element costs about as much as ten products; an op, however small, as much as some elements. */
enum { ELEMENT = 10, OP = 200 };

/* What the evaluator would do for a step of all ranks, in products; before placing there is one. */
static double work_of(const struct module *m, const struct block *b, bool placed)
{
	double sum = 0, ranks = placed ? (double)module_ranks(m) : 1;

	for (const struct op *op = b->first; op; op = op->next) {
		double one = OP;

		if (op->body) {
			sum += work_of(m, op->body, placed);
			continue;
		}
		for (uint32_t i = 0; i < op->nout; i++)
			one += ELEMENT * (double)(placed ? local_count(m, op->out[i]) : value_count(m, op->out[i]));
		one += (placed ? op_local_flops(m, op) : op_flops(m, op)) / 2;
		sum += one * op_times(m, op) * ranks;
	}
	return sum;
}

/* Quietly; NULL: it does not compile that far. */
static struct module *try_compile(struct arena *mem, struct session *s, struct layout how, const char *stop_after)
{
	struct sources *src = NEW(mem, struct sources);
	const char *sets[] = { how.set };
	struct diag quiet;

	diag_init(&quiet, mem, src, NULL);
	struct module *m = front_compile(mem, src, &quiet, s->opt->file,
					 &(struct front_options){ how.plan, how.mesh, sets, how.set ? 1 : 0, how.add });

	if (m && how.set != s->opt->set)
		halve_chunks(m);
	return m && run_passes(m, &quiet, &(struct pass_options){ .stop_after = stop_after }) ? m : NULL;
}

/* Of all ranks; < 0: it does not compile. */
static double work(struct session *s, struct layout how)
{
	struct arena *mem = arena_new();
	struct module *m = try_compile(mem, s, how, "memory");
	double sum = m ? work_of(m, &m->top, true) : -1;

	arena_free(mem);
	return sum;
}

/* Does x lie on the axes as the dim does? */
static bool lies_alike(const struct free_dim *d, int64_t x, bool hard)
{
	int64_t m = hard ? d->parts : d->modulo;

	if (x < d->least || (x < m) != (d->size < m))
		return false;
	return hard ? (x % m == 0) == (d->size % m == 0) : x % m == d->size % m;
}

/* The largest of at most `from`, else the smallest of more, that is less than the dim has; 0: there is none. */
static int64_t smaller(const struct free_dim *d, int64_t from, bool hard)
{
	enum { MOST_TRIED = 1 << 20 };

	for (int64_t x = from; x >= d->least && from - x < MOST_TRIED; x--)
		if (lies_alike(d, x, hard))
			return x;
	for (int64_t x = from + 1; x < d->size && x - from < MOST_TRIED; x++)
		if (lies_alike(d, x, hard))
			return x;
	return 0;
}

/* The largest that was not tried in vain, -1: none. */
static int next_dim(const struct shrink *k)
{
	int at = -1;

	for (int i = 0; i < k->n; i++)
		if (!k->dim[i].done && (at < 0 || k->dim[i].size > k->dim[at].size))
			at = i;
	return at;
}

/* -- the way down -- */

struct step {
	struct free_dim *dim;
	int64_t from, to; /* to 0: it can't be made smaller */
	int tries;        /* left */
};

struct way {
	struct step *at;
	uint32_t n, cap;
	uint32_t taken; /* the dims are as after so many */
};

static void take_steps(struct shrink *k, struct way *way, uint32_t n)
{
	for (; way->taken < n; way->taken++) {
		const struct step *x = &way->at[way->taken];

		x->dim->size = x->to ? x->to : x->from;
		x->dim->done = !x->to;
	}
	for (; way->taken > n; way->taken--) {
		const struct step *x = &way->at[way->taken - 1];

		x->dim->size = x->from;
		x->dim->done = false;
	}
	k->how.set = settings(k);
}

static bool may_compile(struct shrink *k)
{
	struct arena *mem = arena_new();
	bool may = try_compile(mem, k->s, k->how, "place") != NULL;

	arena_free(mem);
	return may;
}

/* What is left to do, of all ranks. */
static double work_now(struct shrink *k)
{
	if (!k->last || !streq(k->last, k->how.set)) {
		k->left = work(k->s, k->how);
		k->last = k->how.set;
	}
	return k->left;
}

/* To the next size, of those that `ok` takes: about half. Hard: or what lies a little below, as rows of patches come in
 * sixteens. */
static void find_size(struct shrink *k, struct step *x, bool (*ok)(struct shrink *))
{
	int64_t from = x->to ? x->to - 1 : (x->from + 1) / 2;
	bool first = !x->to;

	x->to = 0;
	for (; x->tries > 0 && !x->to; from--, first = false) {
		int64_t next = smaller(x->dim, from, k->hard);

		x->tries--;
		if (!next || (next > from && !first))
			break;
		x->dim->size = from = next;
		k->how.set = settings(k);
		x->to = ok(k) ? next : 0;
	}
	x->dim->size = x->from;
}

/* So many steps, or to where no dim can be made smaller. */
static struct way find_way(struct shrink *k, uint32_t most)
{
	struct way way = { 0 };
	int at;

	while (way.n < most && (at = next_dim(k)) >= 0) {
		struct step x = { &k->dim[at], k->dim[at].size, 0, k->hard ? TRIES : 1 };

		find_size(k, &x, may_compile);
		PUSH(k->s->mem, &way, x);
		take_steps(k, &way, way.n);
	}
	take_steps(k, &way, 0);
	return way;
}

/* To the first step after which it is small enough, or else as far as it compiles. NULL, or the step that does not. */
static struct step *go_down(struct shrink *k, struct way *way, double enough, double *cost)
{
	uint32_t low = 0, high = way->n + 1; /* too large after low steps; after high ones not, or it does not compile */
	double then = -1;                    /* what is left after high steps */

	for (uint32_t n = way->n; high - low > 1; n = low + (high - low) / 2) {
		take_steps(k, way, n);
		double now = work_now(k);

		if (now > enough)
			low = n, *cost = now;
		else
			high = n, then = now;
	}
	if (then >= 0)
		low = high, *cost = then;
	take_steps(k, way, low);
	return low < way->n && then < 0 ? &way->at[low] : NULL;
}

static bool compiles(struct shrink *k)
{
	return work_now(k) >= 0;
}

/* In place of a step that, as a whole, does not compile. */
static void step_aside(struct shrink *k, struct step *x, double *cost)
{
	find_size(k, x, compiles);
	if (x->to)
		*cost = k->left;
	take_steps(k, &(struct way){ x, 1, 1, 0 }, 1);
}

static int64_t sum_of_sizes(const struct shrink *k)
{
	int64_t sum = 0;

	for (int i = 0; i < k->n; i++)
		sum += k->dim[i].size;
	return sum;
}

static void shrink(struct shrink *k, double enough, double *cost)
{
	int64_t before = sum_of_sizes(k);
	uint32_t most = 1;

	while (*cost > enough && next_dim(k) >= 0) {
		struct way way = find_way(k, most);
		struct step *bad = go_down(k, &way, enough, cost);

		most = bad ? 1 : 2 * most;
		if (bad)
			step_aside(k, bad, cost);
	}
	if (sum_of_sizes(k) < before)
		k->shrunk = k->again = true;
}

static void shrink_harder(struct shrink *k, double enough, double *cost)
{
	k->hard = k->again = true;
	while (*cost > enough && k->again) {
		k->again = false;
		for (int i = 0; i < k->n; i++)
			k->dim[i].done = false;
		shrink(k, enough, cost);
	}
}

/* Of microbatches, where that is not said to matter, and fewer divide the batch as well. */
static void try_fewer(struct shrink *k, const struct module *m)
{
	const struct options *o = k->s->opt;

	k->fewer = m->micro > MICRO && !is_set(o->set, "microbatches") && !o->schedule; /* which says how many there are */
	if (!k->fewer)
		return;
	k->how.set = settings(k);
	k->fewer = work_now(k) >= 0;
	k->how.set = k->fewer ? k->how.set : k->set;
}

/* What keeps it large, and what would be quick. */
static void say_long(struct shrink *k, const struct module *m)
{
	struct text why = { .mem = k->s->mem }, mesh = { .mem = k->s->mem };
	bool many = module_ranks(m) > MANY;
	int n = 0;

	for (int i = 0; i < k->n; i++)
		if (k->dim[i].parts > k->dim[i].least && k->dim[i].size >= k->dim[i].parts)
			text_put(&why, "%s%s", n++ ? ", " : "", k->dim[i].name);
	if (n)
		text_put(&why, " can't be shorter than %s", n == 1 ? "its axes" : "their axes");
	if (many)
		text_put(&why, "%seach of %lld ranks is evaluated", why.n ? ", and " : "", (long long)module_ranks(m));
	if (k->set)
		text_put(&why, "%swhat --set says stays", why.n ? ", and " : "");
	printf("it will take a while: %s\n", why.n ? why.s : "no dim can be made smaller");
	for (uint32_t i = 0; i < m->mesh.n; i++)
		if (m->mesh.at[i].size > 1)
			text_put(&mesh, "%s%s=%d", mesh.n ? "," : "", m->mesh.at[i].name, m->mesh.at[i].size % 2 ? 3 : 2);
	if (many)
		printf("a smaller mesh of the same axes is quick: --mesh %s\n", mesh.s);
}

const char *shrink_model(struct session *s, double budget)
{
	const struct options *o = s->opt;
	struct shrink k = { .s = s, .set = o->set, .how = { o->plan, o->mesh, o->set, o->schedule, o->add } };
	struct module *m = try_compile(s->mem, s, k.how, "simplify");
	double one = m ? 3 * work_of(m, &m->top, false) : -1; /* rank, with backward */

	if (one < 0 || one * (double)module_ranks(m) <= budget)
		return o->set; /* errors will be reported by whoever compiles it */
	double cost = work(s, k.how);

	if (cost < 0 || cost <= (one > budget ? 1 : FAR) * budget)
		return o->set;
	find_free(&k);
	try_fewer(&k, m);
	find_limits(&k, m);
	shrink(&k, budget, &cost);
	if (cost > FAR * budget)
		shrink_harder(&k, FAR * budget, &cost);
	if (k.shrunk || k.fewer) /* else it fits, but only just */
		printf("%s is too big to be evaluated; checked with %s\n", o->file, k.how.set);
	if (cost > LONG * budget)
		say_long(&k, m);
	fflush(stdout); /* before what is said of this model on stderr */
	return k.shrunk || k.fewer ? k.how.set : o->set;
}
