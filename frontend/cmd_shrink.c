/* frontend/cmd_shrink.c - a model too big to be checked: the same one with smaller dims.
 *
 * The dims that are written as numbers are made smaller one by one, the largest first, for as long as
 * the model still compiles. Each keeps its remainder modulo the product of the mesh's axes and the
 * microbatches, so that what divides divides, and what is padded is padded as before. */
#include <stdio.h>

#include "frontend/ast.h"
#include "frontend/cmd.h"
#include "frontend/frontend.h"

enum { MAX_FREE = 64 };

struct free_dim {
	const char *name;
	int64_t size;
	bool done;
};

struct shrink {
	struct session *s;
	const char *set;  /* the user's */
	struct layout how;
	int64_t modulo;
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
				k->dim[k->n++] = (struct free_dim){ d->name, d->a->integer, d->a->integer <= 2 };
	}
}

static const char *settings(struct shrink *k)
{
	struct text t = { .mem = k->s->mem };

	text_put(&t, "%s", k->set ? k->set : "");
	for (int i = 0; i < k->n; i++)
		text_put(&t, "%s%s=%lld", t.n ? "," : "", k->dim[i].name, (long long)k->dim[i].size);
	return t.s;
}

/* What the evaluator would do for a step, in products and elements; < 0: it does not compile. */
static double work(struct session *s, struct layout how, bool placed, int64_t *modulo)
{
	struct diag quiet;
	const char *sets[] = { how.set };
	double sum = 0;

	diag_init(&quiet, s->mem, &s->src, NULL);
	struct module *m = front_compile(s->mem, &s->src, &quiet, s->opt->file,
					 &(struct front_options){ how.plan, how.mesh, sets, how.set ? 1 : 0 });

	if (!m || !run_passes(m, &quiet, &(struct pass_options){ .stop_after = placed ? "memory" : "simplify" }))
		return -1;
	*modulo = module_ranks(m) * m->micro;
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
static int64_t smaller(int64_t size, int64_t modulo)
{
	int64_t half = (size + 1) / 2, rest = size % modulo;
	int64_t x = half - half % modulo + rest;

	if (x <= 0)
		x = modulo + rest;
	return x < size && x >= 2 ? x : size;
}

static bool shrink_one(struct shrink *k, double *cost)
{
	int at = -1;
	int64_t ignore;

	for (int i = 0; i < k->n; i++)
		if (!k->dim[i].done && (at < 0 || k->dim[i].size > k->dim[at].size))
			at = i;
	if (at < 0)
		return false;
	int64_t was = k->dim[at].size;

	k->dim[at].size = smaller(was, k->modulo);
	k->how.set = settings(k);
	double now = k->dim[at].size == was ? -1 : work(k->s, k->how, true, &ignore);

	if (now < 0) {
		k->dim[at].size = was;
		k->dim[at].done = true;
		k->how.set = settings(k);
	} else {
		*cost = now;
	}
	return true;
}

const char *shrink_model(struct session *s, double budget)
{
	const struct options *o = s->opt;
	struct shrink k = { .s = s, .set = o->set, .how = { o->plan, o->mesh, o->set } };
	double cost = work(s, k.how, false, &k.modulo);

	if (cost < 0 || cost * 3 <= budget)
		return o->set; /* errors will be reported by whoever compiles it */
	find_free(&k);
	while (cost > budget && shrink_one(&k, &cost))
		;
	printf("%s is too big to be evaluated; checked with %s\n", o->file, k.how.set ? k.how.set : "");
	return k.how.set;
}
