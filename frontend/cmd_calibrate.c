/* frontend/cmd_calibrate.c - ptc calibrate: measures this machine into hardware blocks, one for each number of ranks
 * that share it.
 *
 * Small models are trained, each of which spends its time on one thing: large and small products, elementwise kernels,
 * attention, sums of activations and of gradients, short messages. The figures of the block are those with which the
 * cost model says of these steps what was measured, found one by one until nothing gets better (the sum of
 * |log(predicted / measured)| falls). So they mean what the model takes them for, whatever else it knows. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "frontend/cmd_explain.h"
#include "frontend/frontend.h"
#include "ir/file.h"
#include "runtime/runtime.h"

static const char products[] =
	"dim batch = 256, embed = 512, ff = 2048, layers = 2\n"
	"input x[batch, embed]: float\n"
	"h[batch, embed] = x\n"
	"repeat layers {\n"
	"    param w1[embed, ff], w2[ff, embed] ~ normal(0.02)\n"
	"    h = h + relu(h @ w1) @ w2\n"
	"}\n"
	"loss = mean(h * h)\n"
	"minimize loss with adamw(lr = 1e-4)\n"
	"plan {\n    mesh dp = 1, tp = 1 on cpu\n    batch -> dp\n    ff -> tp\n}\n";

static const char kernels[] =
	"dim batch = 512, embed = 512, layers = 4\n"
	"input x[batch, embed]: float\n"
	"h[batch, embed] = x\n"
	"repeat layers {\n"
	"    param g[embed] ~ ones\n"
	"    h = rmsnorm(h + gelu(h * g), embed)\n"
	"}\n"
	"loss = mean(h * h)\n"
	"minimize loss with adamw(lr = 1e-4)\n"
	"plan {\n    mesh dp = 1, tp = 1 on cpu\n    batch -> dp\n}\n";

static const char block[] =
	"dim batch = 8, seq = 128, ctx = seq, embed = 128, heads = 8, head = 16, ff = 512, layers = 2\n"
	"input x[batch, seq, embed]: float\n"
	"h[batch, seq, embed] = x\n"
	"repeat layers {\n"
	"    param wq[embed, heads, head], wk[embed, heads, head], wv[embed, heads, head] ~ normal(0.02)\n"
	"    param wo[heads, head, embed], w1[embed, ff], w2[ff, embed] ~ normal(0.02)\n"
	"    n = rmsnorm(h, embed)\n"
	"    m = n[seq -> ctx]\n"
	"    h = h + attention(n @ wq, m @ wk, m @ wv, head, ctx, causal = seq) @[heads, head] wo\n"
	"    h = h + gelu(rmsnorm(h, embed) @ w1) @ w2\n"
	"}\n"
	"loss = mean(h * h)\n"
	"minimize loss with adamw(lr = 1e-4)\n"
	"plan {\n    mesh dp = 1, tp = 1 on cpu\n    batch -> dp\n    heads, ff -> tp\n}\n";

/* What is trained; axis: over which the ranks lie. One rank sends nothing. */
static const struct trial {
	const char *name, *text, *set, *axis;
	bool sends;
	int weight; /* blocks are what people train */
} trials[] = {
	{ "large products", products, "layers=2", "dp", false, 1 },
	{ "small products", products, "embed=128,ff=256,layers=4", "dp", false, 1 },
	{ "products in bf16", products, "precision=bf16", "dp", false, 1 },
	{ "kernels", kernels, "layers=4", "dp", false, 1 },
	{ "kernels in cache", kernels, "embed=64", "dp", false, 1 },
	{ "a block", block, "layers=2", "dp", false, 3 },
	{ "a block in bf16", block, "precision=bf16", "dp", false, 3 },
	{ "sums of activations", block, "layers=3", "tp", true, 3 },
	{ "sums of gradients", products, "batch=64,layers=2", "dp", true, 1 },
	{ "large messages", products, "batch=8,embed=1024", "dp", true, 1 },
	{ "short messages", block, "batch=2,seq=16,embed=32,head=4,ff=64,layers=8", "tp", true, 1 },
};

enum { STEPS = 5, TRIALS = LEN(trials), FIGURES = 5 };

struct measured {
	const struct trial *trial;
	struct module *m;
	struct flops flops;
	double seconds, predicted;
};

/* -- runs -- */

static struct module *compile_trial(struct session *s, const struct trial *t, int ranks)
{
	const char *sets[] = { t->set };
	struct front_options front = { .mesh = arena_printf(s->mem, "%s=%d", t->axis, ranks), .sets = sets, .nsets = 1 };
	struct module *m = front_compile_text(s->mem, &s->src, &s->diag, t->name, t->text, strlen(t->text), &front);

	return m && run_passes(m, &s->diag, &(struct pass_options){ 0 }) ? m : NULL;
}

/* The least of some steps; the first makes ready what later ones find. < 0 after an error. */
static double step_seconds(struct session *s, struct module *m)
{
	struct runtime *rt = rt_open(m, 1, &s->diag);
	double least = -1;

	for (int i = 0; rt && i <= STEPS; i++) {
		if (!rt_step(rt, i, true, &s->diag)) {
			least = -1;
			break;
		}
		double now = rt_processor_seconds(rt);

		if (i > 0 && (least < 0 || now < least))
			least = now;
	}
	rt_close(rt);
	return least;
}

static bool run_trials(struct session *s, int ranks, struct measured *x, int *n)
{
	for (int i = 0; i < TRIALS; i++) {
		if (ranks == 1 && trials[i].sends)
			continue;
		struct measured *to = &x[(*n)++];

		to->trial = &trials[i];
		to->m = compile_trial(s, &trials[i], ranks);
		to->seconds = to->m ? step_seconds(s, to->m) : -1;
		if (to->seconds < 0)
			return false;
		to->flops = count_flops(to->m);
		fprintf(stderr, "%d rank%s  %-20s %s a step\n", ranks, ranks == 1 ? " " : "s", to->trial->name, seconds_text(s->mem, to->seconds));
	}
	return true;
}

/* -- figures -- */

static double *figure(struct hardware *h, int k)
{
	double *at[FIGURES] = { &h->fp32, &h->bf16, &h->bandwidth, &h->link[0].bandwidth, &h->link[0].latency };

	return at[k];
}

static const struct hardware usual = { .fp32 = 4e10, .bf16 = 4e10, .bandwidth = 4e9, .nlink = 1, .link = { { "shm", 0, 2e9, 2e-5 } } };

#define PULL 0.005 /* a figure that no run speaks of stays near the usual */

/* The mean of |log(predicted / measured)|, and a little of |log(figure / usual)|. */
static double distance(struct measured *x, int n, const struct hardware *h)
{
	struct hardware a = *h, b = usual;
	double sum = 0, weight = 0;

	for (int i = 0; i < n; i++)
		weight += x[i].trial->weight;
	for (int k = 0; k < FIGURES; k++)
		sum += PULL * weight * fabs(log(*figure(&a, k) / *figure(&b, k)));

	for (int i = 0; i < n; i++) {
		struct arena *mem = arena_new();

		x[i].m->hw = *h;
		x[i].predicted = step_time_of(mem, x[i].m, &x[i].flops).step;
		sum += x[i].trial->weight * fabs(log(x[i].predicted / x[i].seconds));
		arena_free(mem);
	}
	return sum / weight;
}

static void fit(struct measured *x, int n, struct hardware *h)
{
	double best = distance(x, n, h);

	for (double by = 4; by > 1.02; by = sqrt(by))
		for (bool better = true; better;) {
			better = false;
			for (int k = 0; k < 2 * FIGURES; k++) {
				struct hardware other = *h;

				*figure(&other, k / 2) *= k % 2 ? by : 1 / by;
				double d = distance(x, n, &other);

				if (d < best * 0.9999) {
					best = d;
					*h = other;
					better = true;
				}
			}
		}
	distance(x, n, h);
}

/* -- the file -- */

static int cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* "1.23G", of which the language's numbers are made. */
static const char *figure_text(struct arena *mem, double x)
{
	static const struct {
		double size;
		const char *name;
	} unit[] = { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" }, { 1, "" }, { 1e-3, "m" }, { 1e-6, "u" } };
	size_t i = 0;

	while (i + 1 < LEN(unit) && x < unit[i].size)
		i++;
	return arena_printf(mem, "%.4g%s", x / unit[i].size, unit[i].name);
}

static void put_block(struct text *t, const char *name, int ranks, const struct hardware *h, const struct measured *x, int n)
{
	text_put(t, "\n# %d rank%s, each a thread or some, on %d core%s. Of a step:\n", ranks, ranks == 1 ? "" : "s", cores(), cores() == 1 ? "" : "s");
	for (int i = 0; i < n; i++)
		text_put(t, "#   %-20s measured %s, predicted %s\n", x[i].trial->name, seconds_text(t->mem, x[i].seconds),
			 seconds_text(t->mem, x[i].predicted));
	text_put(t, "hardware %s%d {\n    flops fp32 = %s, bf16 = %s\n    memory %s, bandwidth = %s\n    link shm, bandwidth = %s, latency = %s\n}\n", name,
		 ranks, figure_text(t->mem, h->fp32), figure_text(t->mem, h->bf16), figure_text(t->mem, h->memory),
		 figure_text(t->mem, h->bandwidth), figure_text(t->mem, h->link[0].bandwidth), figure_text(t->mem, h->link[0].latency));
}

/* The name of the blocks: that of the file, as far as it is a name. */
static const char *block_name(struct arena *mem, const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL, *base = slash ? slash + 1 : path ? path : "";
	size_t n = 0;

	while ((base[n] >= 'a' && base[n] <= 'z') || (base[n] >= 'A' && base[n] <= 'Z') || base[n] == '_')
		n++;
	return n ? arena_strndup(mem, base, n) : "here";
}

static bool calibrate_ranks(struct session *s, int ranks, const char *name, struct text *out)
{
	struct measured x[TRIALS];
	int n = 0;
	struct hardware h = usual;

	h.memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / ranks;
	if (!run_trials(s, ranks, x, &n))
		return false;
	fit(x, n, &h);
	put_block(out, name, ranks, &h, x, n);
	return true;
}

int cmd_calibrate(struct session *s)
{
	static const int shares[] = { 1, 2, 4, 8 };
	struct text out = { .mem = s->mem };
	const char *name = block_name(s->mem, s->opt->out);

	if (s->opt->ranks > 64) {
		fputs("ptc: error: --ranks is at most 64\n", stderr);
		return USAGE;
	}
	text_put(&out, "# Made by ptc calibrate: what this machine does for so many ranks. To plan for it, include this file\n"
		       "# in a model and write mesh ... on %s4.\n", name);
	for (size_t i = 0; i < (s->opt->ranks ? 1 : LEN(shares)); i++)
		if (!calibrate_ranks(s, s->opt->ranks ? (int)s->opt->ranks : shares[i], name, &out))
			return MACHINE;
	return write_file(s, s->opt->out, out.s, out.n) ? DONE : MACHINE;
}
