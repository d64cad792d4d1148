/* tests/fuzz/check.c - random modules, partitioned, against one rank: fuzz-check [-h] [-k] [-o] [-s] [-p PASS] N [SEED [FAILURES]]
 *
 * Built and run by `make fuzz-check N=... SEED=...`, from check.c, gen*.c and the archives of ir and passes.
 *
 * Each case is compiled up to partition (or PASS) with verify and the round trip after each pass, then run by
 * the reference evaluator on all ranks and microbatches. The loss, the metrics, the gradient norm,
 * every named value in every version, every gradient and every buffer after the step must equal
 * those of the module as it was made, on one rank and in one batch, to 1e-9. Some cases also check
 * that gradient by finite differences.
 *
 * Each case then goes through the last passes, and its plan is proved safe; those whose seed ends in 0, with -k
 * all, are run by the runtime, too: compiled.c.
 * fuzz-check -s N ...: the programs have pipelines, and go through the pass `pipeline` as well. -o: all are
 * `deterministic`, their sums in one order. -h: params, optimizer states or both lie in host memory.
 *
 * At the end stand the cases that were refused, by reason, and what share of the cases had which feature.
 *
 * fuzz-check -d SEED [SKIPPED STEPS...] shows one case: its text, what is wrong. Cases run in a child, so
 * that a crash, or a hang, is a failure like others. A failing case is made smaller by leaving steps out. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/eval.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "tests/fuzz/compiled.h"
#include "tests/fuzz/features.h"
#include "tests/fuzz/gen.h"

enum {
	MOST_RUN = 64,    /* ranks times microbatches; beyond, cases are compiled only */
	EVERY = 10,       /* one case of so many is run by the runtime too */
	MOST_SECONDS = 60 /* of a case; then it hangs */
};

/* Why a case was not compared. */
enum { ALL_COMPARED, SMALL_DIMS, TOO_MANY_RANKS, SHAKY, REFUSED, NSKIPPED };
static const char *const skipped[NSKIPPED] = {
	[SMALL_DIMS] = "small dims cut the axes in too many parts",
	[TOO_MANY_RANKS] = "too many ranks to run",
	[SHAKY] = "rounding decides",
	[REFUSED] = "no pipeline",
};

static double near = 1e-9;
static const char *last_pass = "rematerialize";
static bool staged, all_run, in_order, on_host;

struct seen {
	const char *name;
	int64_t iter;
	int nd;
	dimid d[MAX_DIMS];
	struct tensor *t;
};

typedef VEC(struct tensor *) tensors;

struct run {
	struct arena *mem;
	struct gen_case c;
	struct rnd r;
	struct module *ref, *m;
	struct eval *re, *e;
	VEC(struct seen) seen;
	VEC(struct datum) data;
	uint32_t compared, held;  /* named values; buffers on the runtime */
	bool training, plan, kernels;
	int skipped;
	bool chunked; /* a value is made in parts */
	uint64_t features;
	const char *wrong;
};

static bool fail(struct run *r, const char *what)
{
	if (!r->wrong)
		r->wrong = what;
	return false;
}

/* -- one rank -- */

static void keep(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error)
{
	struct run *r = me;
	struct seen s = { v->name, iter, v->nd, { 0 }, NULL };

	if (error)
		fail(r, arena_printf(r->mem, "one rank: %s", error));
	if (!v->name || (v->def && v->def->code == OP_READ))
		return;
	memcpy(s.d, v->d, sizeof s.d);
	s.t = tensor_new(r->mem, whole->nd, whole->size);
	memcpy(s.t->x, whole->x, (size_t)whole->count * sizeof *whole->x);
	PUSH(r->mem, &r->seen, s);
}

/* -- all ranks -- */

/* Element i of the dims d, in the order of `as`. */
static int64_t reordered(const struct module *m, int nd, const dimid *d, const dimid *as, int64_t i)
{
	int64_t at[MAX_DIMS], to = 0;

	for (int k = nd - 1; k >= 0; k--) {
		at[k] = i % dim_size(m, d[k]);
		i /= dim_size(m, d[k]);
	}
	for (int k = 0; k < nd; k++)
		for (int j = 0; j < nd; j++)
			if (d[j] == as[k])
				to = to * dim_size(m, as[k]) + at[j];
	return to;
}

static const char *differs(struct run *r, int nd, const dimid *d, const struct tensor *a, const dimid *bd,
			   const struct tensor *b)
{
	double most = 1e-4;

	if (a->count != b->count)
		return "another size";
	for (int64_t i = 0; i < b->count; i++)
		if (isfinite(b->x[i]))
			most = fmax(most, fabs(b->x[i]));
	for (int64_t i = 0; i < a->count; i++) {
		double x = a->x[i], y = b->x[reordered(r->m, nd, d, bd, i)];

		if (x == y || (isnan(x) && isnan(y)))
			continue;
		if (!(fabs(x - y) <= near * most))
			return arena_printf(r->mem, "element %lld is %.17g, should be %.17g", (long long)i, x, y);
	}
	return NULL;
}

/* A carried value as the body finds it: that of the iteration before, under the same name. */
static bool is_argument(const struct value *v)
{
	while (v->def && opinfo[v->def->code].class == C_COMM)
		v = v->def->in[v->no];
	return !v->def;
}

static void compare(void *me, const struct value *v, int64_t iter, const struct tensor *whole, const char *error)
{
	struct run *r = me;
	const char *name = v->name ? v->name : v->def ? opinfo[v->def->code].name : "argument";

	if (error)
		fail(r, arena_printf(r->mem, "'%s' (%%%u) of iteration %lld: %s", name, v->id, (long long)iter, error));
	if (!v->name || is_argument(v))
		return;
	for (const struct op *loop = v->home->owner; loop; loop = loop->home->owner)
		if (loop->code == OP_REPEAT && find_dim(r->ref, r->m->dims.at[loop->at.dim].name) == NODIM)
			return; /* a part of what one rank has whole */
	const char *last = "one rank has another size of it";
	bool found = false;
	for (uint32_t i = 0; i < r->seen.n; i++) {
		const struct seen *s = &r->seen.at[i];

		if (s->iter != iter || !streq(s->name, v->name) || s->nd != v->nd)
			continue;
		last = differs(r, v->nd, v->d, whole, s->d, s->t);
		found = true;
		if (!last)
			break; /* a name with several bindings: one of them */
	}
	r->compared += found;
	if (found && last)
		fail(r, arena_printf(r->mem, "'%s' (%%%u) of iteration %lld: %s", name, v->id, (long long)iter, last));
}

/* -- data -- */

/* Floats as a rank can hold them. */
static void fill(struct run *r, struct tensor *t, const struct buffer *b)
{
	int masked = (int)rnd_to(&r->r, 3);

	for (int64_t i = 0; i < t->count; i++) {
		double u = rnd_unit(&r->r);

		if (b->role != B_INPUT)
			t->x[i] = strstr(b->name, ":m") || !strchr(b->name, ':') ? 2 * u - 1 : 0.1 + u;
		else if (!b->tokens)
			t->x[i] = 3 * u - 1.5;
		else
			t->x[i] = (double)rnd_to(&r->r, (uint32_t)b->tokens);
		t->x[i] = (double)(float)t->x[i];
		if (streq(b->name, "targets") && (masked == 1 ? u < 0.4 : masked == 2 && i < t->count / 2))
			t->x[i] = -100;
	}
}

static void set_data(struct run *r)
{
	r->r.s = r->c.seed ^ 78;
	r->data.n = 0;
	eval_init(r->re);
	eval_init(r->e);
	for (uint32_t i = 0; i < r->ref->bufs.n; i++) {
		const struct buffer *b = r->ref->bufs.at[i];

		if (b->role == B_PARAM || b->role == B_STATE)
			continue;
		struct tensor *t = tensor_like(r->mem, r->ref, b->nd, b->d);
		fill(r, t, b);
		PUSH(r->mem, &r->data, ((struct datum){ b->name, t }));
		eval_set(r->re, b->name, t);
		eval_set(r->e, b->name, t);
	}
}

static bool same_buffers(struct run *r)
{
	for (uint32_t i = 0; i < r->ref->bufs.n; i++) {
		const struct buffer *b = r->ref->bufs.at[i];
		const char *what;

		if (b->role == B_INPUT)
			continue;
		what = differs(r, b->nd, b->d, eval_get(r->e, b->name), b->d, eval_get(r->re, b->name));
		if (what)
			return fail(r, arena_printf(r->mem, "buffer '%s' after the step: %s", b->name, what));
	}
	return true;
}

static bool same_reports(struct run *r)
{
	if (eval_reports(r->e) != eval_reports(r->re))
		return fail(r, "another number of reports");
	for (int i = 0; i < eval_reports(r->re); i++) {
		const char *key = eval_report_key(r->re, i);
		bool found;
		double y = eval_report(r->re, key, NULL), x = eval_report(r->e, key, &found);

		if (!found || (!(isnan(x) && isnan(y)) && !(fabs(x - y) <= near * fmax(fabs(y), 1e-4))))
			return fail(r, arena_printf(r->mem, "report '%s' is %.17g, should be %.17g", key, x, y));
	}
	return true;
}

/* -- finite differences of the one-rank loss, along one direction -- */

static double loss_at(struct run *r, const tensors *base, double by, bool *ok)
{
	struct eval *e = r->re;
	struct rnd dir = { r->c.seed };
	uint32_t k = 0;

	for (uint32_t i = 0; i < r->ref->bufs.n; i++) {
		const struct buffer *b = r->ref->bufs.at[i];

		if (b->role != B_PARAM && b->role != B_STATE)
			continue;
		const struct tensor *from = base->at[k++];
		struct tensor *t = tensor_like(r->mem, r->ref, b->nd, b->d);
		for (int64_t j = 0; j < t->count; j++)
			t->x[j] = from->x[j] + (b->role == B_PARAM ? by * (2 * rnd_unit(&dir) - 1) : 0);
		eval_set(e, b->name, t);
	}
	*ok &= eval_step(e, 3, r->training, NULL, NULL);
	return eval_report(e, "loss", NULL);
}

static double slope(struct run *r)
{
	struct rnd dir = { r->c.seed };
	double sum = 0;

	for (uint32_t i = 0; i < r->ref->bufs.n; i++) {
		const struct buffer *b = r->ref->bufs.at[i];
		const struct seen *g = NULL;
		int64_t n = 1;

		if (b->role != B_PARAM)
			continue;
		for (uint32_t k = 0; k < r->seen.n; k++)
			if (strncmp(r->seen.at[k].name, "d:", 2) == 0 && streq(r->seen.at[k].name + 2, b->name))
				g = &r->seen.at[k];
		for (int k = 0; k < b->nd; k++)
			n *= dim_size(r->ref, b->d[k]);
		for (int64_t j = 0; j < n; j++) {
			double u = 2 * rnd_unit(&dir) - 1;

			if (!g || r->c.groups > 1)
				return NAN; /* a frozen one, or of another loss */
			sum += u * g->t->x[reordered(r->ref, b->nd, b->d, g->d, j)];
		}
	}
	return sum;
}

static bool right_slope(struct run *r)
{
	tensors base = { 0 };
	static const double steps[] = { 1e-5, 1e-6, 1e-4, 1e-7 };
	double want = slope(r), got = 0;
	bool ok = true;

	for (uint32_t i = 0; i < r->ref->bufs.n; i++)
		if (r->ref->bufs.at[i]->role == B_PARAM || r->ref->bufs.at[i]->role == B_STATE)
			PUSH(r->mem, &base, eval_get(r->re, r->ref->bufs.at[i]->name));
	for (size_t i = 0; i < LEN(steps) && !isnan(want); i++) {
		double h = steps[i];

		got = (loss_at(r, &base, h, &ok) - loss_at(r, &base, -h, &ok)) / (2 * h);
		if (fabs(got - want) <= 1e-4 * fmax(fabs(want), 0.1))
			return true;
	}
	if (isnan(want) || !ok)
		return true;
	return fail(r, arena_printf(r->mem, "slope of the loss is %.9g, the gradient says %.9g", got, want));
}

/* -- cases that say nothing -- */

/* Does the one-rank run itself change by 1e-7 if its params change by 1e-12? Then the case is chaotic, or
 * stands on a kink, and rounding decides. */
static bool shaky(struct run *r)
{
	struct eval_watch check = { compare, r, false };
	const char *wrong = r->wrong, *why;
	struct module *m = r->m;
	struct rnd u = { 5 };

	r->m = r->ref;
	r->wrong = NULL;
	near = 1e-7;
	set_data(r);
	for (uint32_t i = 0; i < r->ref->bufs.n; i++) {
		const struct buffer *b = r->ref->bufs.at[i];
		struct tensor *t = eval_get(r->re, b->name);

		if (b->tokens)
			continue;
		for (int64_t j = 0; j < t->count; j++)
			t->x[j] *= 1 + 1e-12 * rnd_unit(&u);
		eval_set(r->re, b->name, t);
	}
	double loss = eval_report(r->re, "loss", NULL);
	bool shaken = !eval_step(r->re, 3, r->training, &check, &why) || r->wrong ||
		      fabs(eval_report(r->re, "loss", NULL) - loss) > near * fmax(fabs(loss), 1e-4);
	near = 1e-9;
	r->m = m;
	r->wrong = wrong;
	return shaken;
}

/* -- a case -- */

static struct module *read_back(struct run *r, const char *text, size_t n, struct diag *d)
{
	struct module *m = module_parse(r->mem, "fuzz", text, n, d);

	if (!m)
		fail(r, arena_printf(r->mem, "does not read back: %s", d->log.s));
	return m;
}

/* Repeats that are dead, or carry what is of params alone, and hence once a step; an order that can't hold so
 * few microbatches. */
static bool no_pipeline(const char *log)
{
	return strstr(log, "the stages have") || strstr(log, "microbatches in flight") || strstr(log, "can't be cut into stages: each iteration") ||
	       strstr(log, "read as a whole outside its repeat") || strstr(log, "nothing to cut");
}

/* True if the value of this name is made in parts now. */
static bool cut_chunk(struct run *r, struct chunk c, const char *name)
{
	struct module *m = r->m;
	uint32_t dims = m->dims.n;
	struct diag quiet;

	diag_init(&quiet, r->mem, NULL, NULL);
	c.sel = name;
	m->chunks.n = 0;
	PUSH(r->mem, &m->chunks, c);
	return pass_chunk(m, &quiet) && m->dims.n > dims;
}

/* Of a value that can't be cut, the next that can. In evaluation there is no backward, where chunks are. */
static bool cut_chunks(struct run *r, struct diag *d)
{
	const struct chunk c = r->m->chunks.at[0];
	bool cut = r->training && cut_chunk(r, c, c.sel);
	VEC(const char *) names = { 0 };

	for (const struct op *op = r->m->top.first; op && r->training; op = op->next)
		if (op->phase == FORWARD && op->nout && op->out[0]->name)
			PUSH(r->mem, &names, op->out[0]->name);
	for (uint32_t i = 0; !cut && i < names.n; i++)
		cut = cut_chunk(r, c, names.at[i]);
	r->chunked = cut;
	r->m->chunks.n = 0;
	return verify(r->m, d);
}

static bool compile(struct run *r, const char *text, size_t n, bool show)
{
	struct pass_options one = { .verify = show }, all = { .stop_after = last_pass, .verify = true };
	struct diag d;

	diag_init(&d, r->mem, NULL, NULL);
	if (!(r->ref = read_back(r, text, n, &d)) || !(r->m = read_back(r, text, n, &d)))
		return false;
	r->ref->mesh.n = r->ref->axes.n = r->ref->arrows.n = 0;
	r->ref->micro = 1;
	r->ref->pipe = (struct pipe){ .user = -1 };
	if (r->kernels) {
		r->m->precision = F32; /* as exact as it gets */
		r->m->probes = r->ref->probes = true; /* gradients are seen, and updates are of the same ones */
	}
	r->ref->precision = F32;
	/* what adafactor takes for rows and columns depends on which repeats are alive */
	const char *passes_of = strstr(text, "\"adafactor\"") ? "simplify,differentiate,optimizer" : "differentiate,optimizer";
	if (!run_pass_list(r->ref, &d, passes_of, &one))
		return fail(r, arena_printf(r->mem, "one rank does not compile: %s", d.log.s));
	all.dump_after = show ? getenv("DUMP") : NULL;
	struct pass_options first = all, rest = all;
	first.stop_after = "partition";
	rest.start_after = "chunk";
	bool cut = r->m->chunks.n && streq(last_pass, "rematerialize");
	if (!cut)
		r->m->chunks.n = 0;
	if (cut ? !run_passes(r->m, &d, &first) || !cut_chunks(r, &d) || !run_passes(r->m, &d, &rest) : !run_passes(r->m, &d, &all)) {
		if (!strstr(d.log.s, "small dims cut the axes") && !no_pipeline(d.log.s))
			return fail(r, arena_printf(r->mem, "does not compile: %s", d.log.s));
		r->skipped = no_pipeline(d.log.s) ? REFUSED : SMALL_DIMS;
	}
	if (show)
		printf("%s", module_print(r->m, r->mem, NULL));
	return true;
}

static bool is_proved(struct run *r)
{
	const char *wrong = r->plan ? check_proved(r->mem, r->m) : NULL;

	if (wrong && no_pipeline(wrong)) {
		r->skipped = REFUSED;
		r->kernels = false;
		return true;
	}
	return !wrong || fail(r, wrong);
}

static bool right_kernels(struct run *r)
{
	struct one_rank one = { r->ref, r->re, r->data.at, r->data.n, 7, 3, r->training };
	const char *wrong = check_compiled(r->mem, r->m, &one, &r->held);

	return !wrong || fail(r, wrong);
}

static void put_on_host(struct run *r, struct module *m, enum arrow_what what)
{
	struct arrow a = { .what = what, .host = true };

	PUSH(r->mem, &m->arrows, a);
}

static bool run_case(struct run *r, bool show)
{
	struct eval_watch see = { keep, r, false }, check = { compare, r, false };
	struct diag d;
	size_t n;
	const char *why = NULL;

	diag_init(&d, r->mem, NULL, NULL);
	struct module *made = gen_module(r->mem, &r->c);
	made->deterministic = in_order;
	if (on_host && r->c.seed % 3 != 1)
		put_on_host(r, made, W_PARAMS);
	if (on_host && r->c.seed % 3 != 2)
		put_on_host(r, made, W_OPTIMIZER);
	char *text = module_print(made, r->mem, &n);
	if (show)
		printf("%s", text);
	if (!verify(made, &d))
		return fail(r, arena_printf(r->mem, "the generator made this: %s", d.log.s));
	r->features = features_of(made);
	r->plan = streq(last_pass, "rematerialize");
	r->kernels = r->plan && (all_run || r->c.seed % EVERY == 0);
	r->r.s = r->c.seed ^ 77;
	r->training = rnd_to(&r->r, 5) > 0;
	if (!compile(r, text, n, show))
		return false;
	if (!r->skipped && module_ranks(r->m) * r->m->micro > MOST_RUN)
		r->skipped = TOO_MANY_RANKS;
	if (r->skipped)
		return r->skipped != TOO_MANY_RANKS || is_proved(r);
	r->re = eval_new(r->mem, r->ref, 7);
	r->e = eval_new(r->mem, r->m, 7);
	set_data(r);
	if (!eval_step(r->re, 3, r->training, &see, &why))
		return fail(r, arena_printf(r->mem, "one rank: %s", why));
	if (!eval_step(r->e, 3, r->training, &check, &why))
		return fail(r, arena_printf(r->mem, "evaluator: %s", why));
	if (r->wrong || !same_reports(r) || !same_buffers(r)) {
		r->skipped = SHAKY;
		return shaky(r);
	}
	if (!is_proved(r) || (r->kernels && !right_kernels(r)))
		return false;
	if (r->c.seed % 7 == 0 && !r->c.detached) {
		set_data(r);
		return right_slope(r);
	}
	return true;
}

/* What the cases of a run had and how they went. */
struct count {
	uint64_t cases, compared, kernels, held, chunked;
	uint64_t skipped[NSKIPPED], had[NFEATURES];
};

static void count_case(struct count *n, const struct run *r)
{
	n->cases++;
	n->compared += r->compared;
	n->kernels += r->held > 0;
	n->held += r->held;
	n->chunked += r->chunked;
	n->skipped[r->skipped]++;
	for (int i = 0; i < NFEATURES; i++)
		n->had[i] += r->features >> i & 1;
}

static void print_count(const struct count *n)
{
	printf("%llu cases run by the runtime too, %llu buffers compared; in %llu a value is made in parts\nnot compared:",
	       (unsigned long long)n->kernels, (unsigned long long)n->held, (unsigned long long)n->chunked);
	for (int i = 1; i < NSKIPPED; i++)
		printf("%s %llu %s", i > 1 ? "," : "", (unsigned long long)n->skipped[i], skipped[i]);
	printf("\nof 100 cases there have:");
	for (int i = 0; i < NFEATURES; i++)
		printf("%s %.0f %s", i ? "," : "", 100.0 * (double)n->had[i] / (double)(n->cases ? n->cases : 1),
		       feature_name(i));
	printf("\n");
}

/* NULL: it passed. */
static char *outcome(const struct gen_case *c, bool show, struct count *n, int *steps)
{
	struct run *r = calloc(1, sizeof *r);
	char *wrong = NULL;

	r->mem = arena_new();
	r->c = *c;
	alarm(MOST_SECONDS);
	if (!run_case(r, show))
		wrong = strdup(r->wrong ? r->wrong : "no reason given");
	alarm(0);
	count_case(n, r);
	*steps = r->c.steps;
	arena_free(r->mem);
	free(r);
	return wrong;
}

/* -- in a child -- */

struct shared {
	uint64_t seed;     /* at work */
	struct count n;
	char wrong[2000];
	int steps;
};

/* Runs cases from *seed on; returns true if all of them passed, else *seed is the bad one. */
static bool run_some(struct shared *s, uint64_t *seed, uint64_t end, const bool *skip)
{
	struct count made_smaller = { 0 };
	int status;

	snprintf(s->wrong, sizeof s->wrong, "it crashed");
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		if (skip && !freopen("/dev/null", "w", stderr))
			_exit(3);
		for (s->seed = *seed; s->seed < end; s->seed++) {
			struct gen_case c = { .seed = s->seed, .staged = staged };

			if (skip)
				memcpy(c.skip, skip, sizeof c.skip);
			char *wrong = outcome(&c, false, skip ? &made_smaller : &s->n, &s->steps);
			if (wrong) {
				snprintf(s->wrong, sizeof s->wrong, "%s", wrong);
				_exit(1);
			}
		}
		exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status))
		snprintf(s->wrong, sizeof s->wrong, "%s", WTERMSIG(status) == SIGALRM ? "it hangs" : strsignal(WTERMSIG(status)));
	*seed = s->seed;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Leaves out steps as long as the case fails in whatever way. */
static void minimise(struct shared *s, uint64_t seed)
{
	struct gen_case c = { .seed = seed, .staged = staged };
	char wrong[sizeof s->wrong];
	uint64_t at = seed;
	int steps = s->steps ? s->steps : MOST_STEPS;

	snprintf(wrong, sizeof wrong, "%s", s->wrong);
	for (int round = 0; round < 2; round++)
		for (int i = steps < MOST_STEPS ? steps - 1 : MOST_STEPS - 1; i >= 0; i--) {
			if (c.skip[i])
				continue;
			c.skip[i] = true;
			at = seed;
			if (run_some(s, &at, seed + 1, c.skip) || strncmp(s->wrong, wrong, 5))
				c.skip[i] = false;
			else
				snprintf(wrong, sizeof wrong, "%s", s->wrong);
		}
	printf("smaller: fuzz-check -d %llu", (unsigned long long)seed);
	for (int i = 0; i < steps; i++)
		if (c.skip[i])
			printf(" %d", i);
	printf("\n  %s\n", wrong);
}

static int fuzz(uint64_t n, uint64_t first, int most)
{
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = first, end = first + n;
	int bad = 0;

	while (seed < end && bad < most) {
		uint64_t stop = seed - (seed - first) % 5000 + 5000;

		if (run_some(s, &seed, stop < end ? stop : end, NULL)) {
			if (seed < end)
				printf("%llu right\n", (unsigned long long)(seed - first - (uint64_t)bad));
			continue;
		}
		printf("seed %llu: %s\n", (unsigned long long)seed, s->wrong);
		minimise(s, seed);
		bad++;
		seed++;
	}
	print_count(&s->n);
	printf("%llu cases from seed %llu, %llu named values compared, %d wrong\n",
	       (unsigned long long)(seed - first), (unsigned long long)first,
	       (unsigned long long)s->n.compared, bad);
	return bad != 0;
}

static int show_case(int argc, char **argv)
{
	struct gen_case c = { .seed = strtoull(argv[2], NULL, 10), .staged = staged };
	struct count n = { 0 };
	int steps;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 3; i < argc; i++)
		if (atoi(argv[i]) >= 0 && atoi(argv[i]) < MOST_STEPS)
			c.skip[atoi(argv[i])] = true;
	char *wrong = outcome(&c, true, &n, &steps);
	printf("# %s (%llu named values compared, %llu buffers of the runtime)\n", wrong ? wrong : "passed",
	       (unsigned long long)n.compared, (unsigned long long)n.held);
	int bad = wrong != NULL;
	free(wrong);
	return bad;
}

int main(int argc, char **argv)
{
	for (; argc >= 2 && strlen(argv[1]) == 2 && argv[1][0] == '-' && strchr("hkos", argv[1][1]); argc--, argv++) {
		on_host |= argv[1][1] == 'h';
		all_run |= argv[1][1] == 'k';
		in_order |= argv[1][1] == 'o';
		staged |= argv[1][1] == 's';
	}
	if (argc >= 3 && streq(argv[1], "-p")) {
		last_pass = argv[2];
		argc -= 2;
		argv += 2;
	}
	use_fast_compiler();
	if (argc >= 3 && streq(argv[1], "-d"))
		return show_case(argc, argv);
	if (argc < 2 || argc > 4) {
		fprintf(stderr, "usage: fuzz-check [-h] [-k] [-o] [-s] [-p PASS] N [SEED [FAILURES]]\n"
				"       fuzz-check [-h] [-k] [-o] [-s] [-p PASS] -d SEED [SKIPPED STEPS...]\n");
		return 2;
	}
	return fuzz(strtoull(argv[1], NULL, 10), argc > 2 ? strtoull(argv[2], NULL, 10) : 1,
		    argc > 3 ? atoi(argv[3]) : 1);
}
