/* runtime/run.c - `ptc run`: the training loop, what it prints, how it ends. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ir/file.h"
#include "runtime/internal.h"

enum exit { DONE = 0, WRONG = 1, MACHINE = 3 };
static const struct span nowhere;

struct run {
	struct runtime *rt;
	const struct run_options *opt;
	struct diag *d;
	struct data *data;
	struct progress at; /* of the run as a whole */
	bool resumes;     /* goes on from a checkpoint */
	bool full;        /* one could not be written */
	int64_t steps;    /* done here */
	double tokens;    /* a step */
	double seconds, later_seconds; /* of all steps; of all but the first */
	double began, ended; /* the last one, without its data */
	double loss;
	bool has_loss;
};

/* What a step eats: elements of the first input of tokens, else of examples. */
static double tokens_of(const struct runtime *r)
{
	const struct module *m = r->m;

	for (uint32_t i = 0; i < r->inputs.n; i++)
		if (r->inputs.at[i]->buf->tokens && !r->inputs.at[i]->buf->next_of)
			return (double)r->inputs.at[i]->count;
	return m->batch == NODIM ? 1 : (double)dim_size(m, m->batch);
}

static bool is_own_key(const char *key)
{
	return streq(key, "loss") || streq(key, "grad_norm");
}

/* A number of JSON, or null. */
static const char *number(struct arena *mem, double x, bool known)
{
	return known && isfinite(x) ? arena_printf(mem, "%.9g", x) : "null";
}

static void print_json(struct run *x, struct arena *mem, int64_t step, double seconds)
{
	bool has_norm;
	double norm = rt_report(x->rt, "grad_norm", &has_norm);
	int metrics = 0;

	printf("{\"step\":%lld,\"loss\":%s,\"grad_norm\":%s,\"tokens_per_s\":%.6g,\"step_ms\":%.6g,\"cpu_ms\":%.6g", (long long)step,
	       number(mem, x->loss, x->has_loss), number(mem, norm, has_norm), x->tokens / seconds, seconds * 1e3, rt_processor_seconds(x->rt) * 1e3);
	for (uint32_t i = 0; i < x->rt->reports.n; i++) {
		const struct report *r = &x->rt->reports.at[i];

		if (is_own_key(r->key))
			continue;
		printf("%s\"%s\":%s", metrics++ ? "," : ",\"metrics\":{", r->key, number(mem, r->x, r->set));
	}
	printf("%s", metrics ? "}" : "");
	if (x->steps == 1 && x->opt->about)
		printf(",\"run\":%s", x->opt->about);
	puts("}");
}

static void print_progress(struct run *x, struct arena *mem, int64_t step, double seconds)
{
	bool has_norm;
	double norm = rt_report(x->rt, "grad_norm", &has_norm);

	printf("step %lld", (long long)step);
	if (x->has_loss)
		printf("  loss %.6f", x->loss);
	if (has_norm)
		printf("  grad_norm %.4f", norm);
	for (uint32_t i = 0; i < x->rt->reports.n; i++)
		if (!is_own_key(x->rt->reports.at[i].key))
			printf("  %s %.6g", x->rt->reports.at[i].key, x->rt->reports.at[i].x);
	printf("  %.*f tokens/s  %s\n", x->tokens < 10 * seconds ? 3 : 0, x->tokens / seconds, seconds_text(mem, seconds));
}

/* -- the summary -- */

struct total {
	const char *op, *axis;
	double count, bytes;
};

static int totals(struct run *x, struct arena *mem, int64_t rank, struct total *t)
{
	const struct module *m = x->rt->m;
	int n = 0;

	for (uint32_t i = 0; i < x->rt->senders.n; i++) {
		const struct op *op = x->rt->senders.at[i].op;
		const struct tally *c = &x->rt->rank[rank].sent[i];
		int k = 0;

		if (!c->count)
			continue;
		const char *axis = axes_user_text(mem, m, op ? comm_axes(op) : 1u << pipe_axis(m)), *name = op ? comm_name(op) : "send";
		while (k < n && !(streq(t[k].op, name) && streq(t[k].axis, axis)))
			k++;
		if (k == n)
			t[n++] = (struct total){ name, axis, 0, 0 };
		t[k].count += c->count / (double)x->steps;
		t[k].bytes += c->bytes / (double)x->steps;
	}
	return n;
}

/* What a rank sent in a step, by op and axis. */
static void print_comm(struct run *x, struct arena *mem, int64_t rank)
{
	struct total *t = NEWN(mem, struct total, x->rt->senders.n + 1);
	int n = totals(x, mem, rank, t);

	putchar('[');
	for (int i = 0; i < n; i++)
		printf("%s{\"op\":\"%s\",\"axis\":\"%s\",\"count\":%.15g,\"bytes\":%.15g}", i ? "," : "", t[i].op, t[i].axis,
		       t[i].count, t[i].bytes);
	putchar(']');
}

static double rate(const struct run *x)
{
	if (x->steps > 1 && x->later_seconds > 0)
		return x->tokens * (double)(x->steps - 1) / x->later_seconds;
	return x->seconds > 0 ? x->tokens * (double)x->steps / x->seconds : 0;
}

static void print_summary(struct run *x, struct arena *mem)
{
	const struct module *m = x->rt->m;

	printf("{\"summary\":{\"steps\":%lld,\"loss\":%s,\"tokens_per_s\":%.6g,\"peak_bytes\":[", (long long)x->steps,
	       number(mem, x->loss, x->has_loss), rate(x));
	for (int64_t i = 0; i < x->rt->nrank; i++)
		printf("%s%lld", i ? "," : "", (long long)rt_peak_bytes(x->rt, i));
	printf("],\"predicted_peak_bytes\":[");
	for (int64_t i = 0; i < x->rt->nrank; i++)
		printf("%s%lld", i ? "," : "", (long long)(m->workspace + (x->rt->layouts ? m->pipe.arena.at[x->rt->rank[i].stage] : m->arena)));
	printf("],\"comm\":[");
	for (int64_t i = 0; i < x->rt->nrank; i++) {
		printf("%s", i ? "," : "");
		print_comm(x, mem, i);
	}
	printf("]}}\n");
}

/* -- the loop -- */

static bool interrupted(const sigset_t *set)
{
	static const struct timespec zero;

	return sigtimedwait(set, NULL, &zero) > 0;
}

static int one_step(struct run *x, struct arena *mem, int64_t step)
{
	double start = seconds_now();

	if (!data_step(x->data, step, x->d))
		return WRONG;
	x->began = seconds_now();
	if (!rt_step(x->rt, step, true, x->d))
		return MACHINE;
	x->ended = seconds_now();
	double seconds = x->ended - start;

	x->steps++;
	x->seconds += seconds;
	if (x->steps > 1)
		x->later_seconds += seconds;
	x->loss = rt_report(x->rt, "loss", &x->has_loss);
	if (x->rt->here > 0)
		return DONE; /* rank 0 says it */
	if (x->opt->json)
		print_json(x, mem, step, seconds);
	else if (x->opt->log_every > 0 && (step % x->opt->log_every == 0 || step + 1 == x->opt->steps))
		print_progress(x, mem, step, seconds);
	if (x->has_loss && !isfinite(x->loss)) {
		diag_error(x->d, nowhere, "the loss is %g at step %lld", x->loss, (long long)step);
		diag_note(x->d, nowhere, "a lower learning rate, a longer warm-up or a smaller clip may help");
		return WRONG;
	}
	return DONE;
}

static bool checkpoint(struct run *x)
{
	return !x->opt->checkpoint || run_save(x->rt, x->opt->checkpoint, &x->at, x->d);
}

/* What was trained: each file whether or not the other can be written. */
static int save(struct run *x)
{
	bool kept = !x->full && checkpoint(x), saved = !x->opt->save || params_save(x->rt, x->opt->save, x->d);

	return kept && saved ? DONE : MACHINE;
}

/* Runs the steps that are left. */
static int loop(struct run *x, struct arena *mem, const sigset_t *set)
{
	int64_t every = x->opt->checkpoint_every;

	while (x->at.steps < x->opt->steps) {
		int status = one_step(x, mem, x->at.steps++);

		if (status != DONE)
			return status;
		if (every > 0 && x->at.steps % every == 0 && x->at.steps < x->opt->steps && !checkpoint(x)) {
			x->full = true;
			fprintf(stderr, "ptc: stopped after step %lld, as there is no checkpoint of it\n", (long long)x->at.steps - 1);
			break;
		}
		if (interrupted(set)) {
			fprintf(stderr, "ptc: interrupted after step %lld\n", (long long)x->at.steps - 1);
			break;
		}
		if (fflush(stdout) != 0) { /* main says why; what was trained is saved */
			fprintf(stderr, "ptc: stopped after step %lld, as it can't be printed\n", (long long)x->at.steps - 1);
			break;
		}
	}
	return DONE;
}

/* Where the run begins: at step 0, or where a checkpoint ends. One that is to be written, and is not there yet, is none to go
 * on from, so that a job may be started again and again with the same words. */
static bool find_start(struct run *x)
{
	const struct run_options *o = x->opt;

	x->at.seed = o->seed < 0 ? 0 : (uint64_t)o->seed;
	if (!o->resume || (o->checkpoint && streq(o->checkpoint, o->resume) && access(o->resume, F_OK) != 0 && errno == ENOENT))
		return true;
	if (!run_progress(o->resume, &x->at, x->d))
		return false;
	x->resumes = true;
	if (o->seed >= 0 && (uint64_t)o->seed != x->at.seed) {
		diag_error(x->d, nowhere, "'%s' is of a run with seed %llu", o->resume, (unsigned long long)x->at.seed);
		diag_note(x->d, nowhere, "the order of the data depends on the seed; leave --seed out to go on with it");
		return false;
	}
	if (x->at.steps >= o->steps)
		fprintf(stderr, "ptc: '%s' has %lld steps done, and --steps %lld counts from the first of all: none is left\n", o->resume,
			(long long)x->at.steps, (long long)o->steps);
	return true;
}

/* Options that write need all ranks in one process, and files that can be written. */
static int check_files(struct run *x, struct arena *mem)
{
	const struct run_options *o = x->opt;
	const char *const files[] = { o->save, o->trace, o->checkpoint };

	if ((o->save || o->checkpoint) && x->rt->here >= 0) {
		diag_error(x->d, nowhere, "--%s needs all ranks in one process: each of several has its part of the params only",
			   o->save ? "save" : "checkpoint");
		return WRONG;
	}
	for (size_t i = 0; i < LEN(files); i++)
		if (files[i] && !outfile_check(mem, files[i], x->d))
			return MACHINE;
	return DONE;
}

static int run_all(struct run *x, struct arena *mem, const sigset_t *set)
{
	const struct run_options *o = x->opt;

	x->tokens = tokens_of(x->rt);
	if (x->at.steps < o->steps && !(x->data = data_open(mem, x->rt, o, x->at.seed, x->d)))
		return WRONG;
	if (o->init && !params_load(x->rt, o->init, x->d))
		return WRONG;
	if (x->resumes && !run_load(x->rt, o->resume, x->d))
		return WRONG;
	int status = check_files(x, mem);

	if (status == DONE && o->trace && !tracers_open(x->rt, x->d))
		status = MACHINE;
	if (status == DONE)
		status = loop(x, mem, set);

	if (status == DONE) /* first: it does not depend on whether there is room for a trace */
		status = save(x);
	if (status == DONE && o->trace && !x->steps) {
		diag_error(x->d, nowhere, "no step was run that --trace could show");
		status = WRONG;
	}
	if (status == DONE && o->trace && !tracers_write(x->rt, o->trace, x->began, x->ended, x->d))
		status = MACHINE;
	if (status == DONE && o->json && x->rt->here <= 0)
		print_summary(x, mem);
	return status;
}

int run_plan(struct module *m, const struct run_options *opt, struct diag *d)
{
	struct arena *mem = arena_new();
	struct run x = { .opt = opt, .d = d };
	sigset_t set, old;
	int status = MACHINE;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, &old); /* rank threads inherit this */
	if (!find_start(&x))
		status = WRONG;
	else if ((x.rt = rt_open_on(opt->backend, m, x.at.seed, d)))
		status = run_all(&x, mem, &set);
	data_close(x.data);
	rt_close(x.rt);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	arena_free(mem);
	return status;
}
