/* frontend/cmd_shrink.c - a model too big to be checked: the same one with smaller dims.
 *
 * The dims that are written as numbers are made smaller one by one, the largest first, for as long as
 * the model still compiles. What arrows shard keeps its remainder modulo the axes (the batch: and the
 * microbatches), so that what divides divides, and what is padded is padded as before. Where far too much is left, as
 * with an axis of 97, a dim keeps only how it lies on its own axes: it divides, it is padded, or it is shorter than they;
 * and what did not compile is tried again with the others smaller. */
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

/* < 0: it does not compile. */
static double work(struct session *s, struct layout how, bool placed, struct module **made)
{
	struct diag quiet;
	const char *sets[] = { how.set };

	diag_init(&quiet, s->mem, &s->src, NULL);
	struct module *m = front_compile(s->mem, &s->src, &quiet, s->opt->file,
					 &(struct front_options){ how.plan, how.mesh, sets, how.set ? 1 : 0, how.add });

	if (m && how.set != s->opt->set)
		halve_chunks(m);
	if (!m || !run_passes(m, &quiet, &(struct pass_options){ .stop_after = placed ? "memory" : "simplify" }))
		return -1;
	if (made)
		*made = m;
	return work_of(m, &m->top, placed);
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

/* About half. Hard: or what compiles a little below, as rows of patches come in sixteens. */
static bool shrink_dim(struct shrink *k, struct free_dim *d, double *cost)
{
	int64_t was = d->size, x = (was + 1) / 2;

	for (int tries = k->hard ? TRIES : 1; tries > 0; tries--, x--) {
		int64_t next = smaller(d, x, k->hard);

		if (!next || (next > x && tries < TRIES && k->hard))
			break;
		d->size = x = next;
		k->how.set = settings(k);
		double now = work(k->s, k->how, true, NULL);

		if (now >= 0) {
			*cost = now;
			return true;
		}
	}
	d->size = was;
	k->how.set = settings(k);
	return false;
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

static void shrink(struct shrink *k, double enough, double *cost)
{
	int at;

	while (*cost > enough && (at = next_dim(k)) >= 0) {
		if (shrink_dim(k, &k->dim[at], cost))
			k->shrunk = k->again = true;
		else
			k->dim[at].done = true;
	}
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
	k->fewer = work(k->s, k->how, true, NULL) >= 0;
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
	struct module *m = NULL;
	double one = 3 * work(s, k.how, false, &m); /* rank, with backward */

	if (one < 0 || one * (double)module_ranks(m) <= budget)
		return o->set; /* errors will be reported by whoever compiles it */
	double cost = work(s, k.how, true, NULL);

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
