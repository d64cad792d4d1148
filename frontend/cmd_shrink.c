/* frontend/cmd_shrink.c - a model too big to be checked: the same one with smaller dims.
 *
 * The dims that are written as numbers are made smaller one by one, the largest first, for as long as
 * the model still compiles. What arrows shard keeps its remainder modulo the axes (the batch: and the
 * microbatches), so that what divides divides, and what is padded is padded as before. */
#include <stdio.h>

#include "frontend/ast.h"
#include "frontend/cmd.h"
#include "frontend/frontend.h"

enum { MAX_FREE = 64, MICRO = 4, LEAST = 4, LEAST_LOOP = 2 };

struct free_dim {
	const char *name;
	int64_t size, modulo, least;
	bool done;
};

struct shrink {
	struct session *s;
	const char *set;  /* the user's */
	bool fewer;       /* microbatches than the plan has */
	bool shrunk;
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
				k->dim[k->n++] = (struct free_dim){ d->name, d->a->integer, 1, LEAST, false };
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

static void find_limits(struct shrink *k, const struct module *m)
{
	int64_t axes = 1, micro = m->micro < MICRO ? m->micro : MICRO;
	struct free_dim *f;

	for (const struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_REPEAT && (f = find_dim_of(k, m, op->at.dim)))
			f->least = LEAST_LOOP;

	for (uint32_t i = 0; i < m->mesh.n; i++)
		axes = lcm(axes, m->mesh.at[i].size);
	for (uint32_t i = 0; i < m->arrows.n; i++) {
		const struct dimlist *dims = &m->arrows.at[i].dims;

		for (int j = 0; j < dims->n; j++)
			if ((f = find_dim_of(k, m, dims->d[j])))
				f->modulo = axes * (dims->d[j] == m->batch ? micro : m->arrows.at[i].zigzag ? 2 : 1);
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

/* What the evaluator would do for a step, in products and elements; < 0: it does not compile. */
static double work(struct session *s, struct layout how, bool placed, struct module **made)
{
	struct diag quiet;
	const char *sets[] = { how.set };
	double sum = 0;

	diag_init(&quiet, s->mem, &s->src, NULL);
	struct module *m = front_compile(s->mem, &s->src, &quiet, s->opt->file,
					 &(struct front_options){ how.plan, how.mesh, sets, how.set ? 1 : 0, how.add });

	if (m && how.set != s->opt->set)
		halve_chunks(m);
	if (!m || !run_passes(m, &quiet, &(struct pass_options){ .stop_after = placed ? "memory" : "simplify" }))
		return -1;
	if (made)
		*made = m;
	for (const struct op *op = m->top.first; op; op = op->next) {
		sum += op_flops(m, op) / 2;
		for (uint32_t i = 0; i < op->nout; i++)
			sum += (double)value_count(m, op->out[i]) * 10;
		for (const struct op *o = op->body ? op->body->first : NULL; o; o = o->next)
			for (uint32_t i = 0; i < o->nout; i++)
				sum += (double)value_count(m, o->out[i]) * (double)dim_size(m, op->at.dim) * 10;
	}
	return sum;
}

/* About half, with the same remainder; as it is if there is nothing smaller. */
static int64_t smaller(const struct free_dim *d)
{
	int64_t half = (d->size + 1) / 2, rest = d->size % d->modulo;
	int64_t x = half - half % d->modulo + rest;

	while (x < d->least)
		x += d->modulo;
	return x < d->size ? x : d->size;
}

static bool shrink_one(struct shrink *k, double *cost)
{
	int at = -1;

	for (int i = 0; i < k->n; i++)
		if (!k->dim[i].done && (at < 0 || k->dim[i].size > k->dim[at].size))
			at = i;
	if (at < 0)
		return false;
	int64_t was = k->dim[at].size;

	k->dim[at].size = smaller(&k->dim[at]);
	k->how.set = settings(k);
	double now = k->dim[at].size == was ? -1 : work(k->s, k->how, true, NULL);

	if (now < 0) {
		k->dim[at].size = was;
		k->dim[at].done = true;
		k->how.set = settings(k);
	} else {
		*cost = now;
		k->shrunk = true;
	}
	return true;
}

const char *shrink_model(struct session *s, double budget)
{
	const struct options *o = s->opt;
	struct shrink k = { .s = s, .set = o->set, .how = { o->plan, o->mesh, o->set, o->schedule, o->add } };
	struct module *m = NULL;
	double cost = work(s, k.how, false, &m);

	if (cost < 0 || cost * 3 <= budget)
		return o->set; /* errors will be reported by whoever compiles it */
	find_free(&k);
	find_limits(&k, m);
	k.fewer = m->micro > MICRO && !is_set(o->set, "microbatches");
	while (cost > budget && shrink_one(&k, &cost))
		;
	if (!k.shrunk && !k.fewer)
		return o->set; /* it fits, but only just, or does not compile for another reason */
	printf("%s is too big to be evaluated; checked with %s\n", o->file, k.how.set);
	return k.how.set;
}
