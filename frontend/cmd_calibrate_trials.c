/* frontend/cmd_calibrate_trials.c - the small models that `ptc calibrate` trains, and what their ops take.
 *
 * Each is run for some steps as it is, for the time of a step, then for some in which every op of rank 0 is timed; all
 * of this several times, as a machine has slow moments. Where
 * more ranks run than there are cores, an op's time is that for which its thread had a core, times the ranks that share
 * one: by the clock it would be that of whoever was let in between. */
#include <stdio.h>

#include "frontend/cmd_calibrate.h"
#include "frontend/frontend.h"
#include "ir/file.h"

static const char products[] =
	"dim batch = 256, embed = 512, ff = 2048, layers = 2\n"
	"input x[batch, embed]: float\n"
	"h[batch, embed] = x\n"
	"repeat layers {\n"
	"    param w1[embed, ff], w2[ff, embed] ~ normal(0.02)\n"
	"    h = h + relu(h @ w1) @ w2\n"
	"}\n"
	"loss = mean(h * h)\n"
	"minimize loss with adamw(lr = 1e-4, clip = 1.0)\n"
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
	"minimize loss with adamw(lr = 1e-4, clip = 1.0)\n"
	"plan {\n    mesh dp = 1, tp = 1 on cpu\n    batch -> dp\n}\n";

/* A language model: layers of attention and products between a lookup and a loss. */
static const char layers[] =
	"dim batch = 8, seq = 128, ctx = seq, vocab = 256, embed = 128, heads = 8, head = 16, ff = 512, layers = 2\n"
	"input tokens[batch, seq]: token(vocab)\n"
	"input targets[batch, seq]: token(vocab) = next(tokens)\n"
	"param wte[vocab, embed], wpe[seq, embed] ~ normal(0.02)\n"
	"h[batch, seq, embed] = wte[vocab = tokens] + wpe\n"
	"repeat layers {\n"
	"    param wq[embed, heads, head], wk[embed, heads, head], wv[embed, heads, head] ~ normal(0.02)\n"
	"    param wo[heads, head, embed], w1[embed, ff], w2[ff, embed] ~ normal(0.02)\n"
	"    param g[embed], b[embed], b1[ff] ~ ones\n"
	"    n = layernorm(h, embed) * g + b\n"
	"    m = n[seq -> ctx]\n"
	"    h = h + attention(n @ wq, m @ wk, m @ wv, head, ctx, causal = seq) @[heads, head] wo\n"
	"    h = h + gelu(rmsnorm(h, embed) @ w1 + b1) @ w2\n"
	"}\n"
	"logits[batch, seq, vocab] = h @ wte\n"
	"loss = cross_entropy(logits, targets, vocab)\n"
	"minimize loss with adamw(lr = 1e-4, clip = 1.0)\n"
	"plan {\n    mesh dp = 1, tp = 1 on cpu\n    batch -> dp\n    heads, ff, vocab -> tp\n}\n";

/* axis: over which the ranks lie. One rank sends nothing. quick: sizes for --quick; NULL: it is left out. */
struct trial {
	const char *name, *text, *set, *axis;
	enum speaks of;
	bool sends;
	const char *quick;
};

#define SMALL "batch=16,embed=64,ff=128,layers=1"
#define SMALL_LAYERS "batch=2,seq=16,vocab=32,embed=32,heads=2,ff=64,layers=1"

static const struct trial trials[] = {
	{ "large products", products, "layers=2", "dp", OF_PRODUCTS, false, SMALL },
	{ "products", products, "batch=512,embed=256,ff=1024,layers=3", "dp", OF_PRODUCTS, false, NULL },
	{ "small products", products, "embed=128,ff=256,layers=4", "dp", OF_PRODUCTS, false, NULL },
	{ "skinny products", products, "batch=32,embed=384,ff=768,layers=4", "dp", OF_PRODUCTS, false, NULL },
	{ "narrow products", products, "batch=2048,embed=32,ff=128,layers=4", "dp", OF_PRODUCTS, false, NULL },
	{ "products in bf16", products, "precision=bf16", "dp", OF_PRODUCTS16, false, SMALL ",precision=bf16" },
	{ "small products in bf16", products, "embed=128,ff=256,layers=4,precision=bf16", "dp", OF_PRODUCTS16, false, NULL },
	{ "skinny products in bf16", products, "batch=32,embed=384,ff=768,precision=bf16", "dp", OF_PRODUCTS16, false, NULL },
	{ "kernels", kernels, "layers=4", "dp", OF_KERNELS, false, "batch=16,embed=64,layers=1" },
	{ "kernels out of cache", kernels, "batch=2048,embed=1024,layers=2", "dp", OF_KERNELS, false, NULL },
	{ "kernels in cache", kernels, "embed=64", "dp", OF_KERNELS, false, NULL },
	{ "layers", layers, "layers=2", "dp", OF_ATTENTION, false, SMALL_LAYERS },
	{ "wide layers", layers, "seq=64,embed=256,heads=4,head=64,ff=1024", "dp", OF_ATTENTION, false, NULL },
	{ "layers of long sequences", layers, "batch=4,seq=384,heads=4,head=32,ff=256", "dp", OF_ATTENTION, false, NULL },
	{ "small layers", layers, "seq=32,embed=64,heads=4,ff=256,layers=4", "dp", OF_ATTENTION, false, NULL },
	{ "layers in bf16", layers, "precision=bf16", "dp", OF_ATTENTION, false, NULL },
	{ "shared layers", layers, "layers=3", "tp", OF_COLLECTIVES, true, SMALL_LAYERS },
	{ "shared wide layers", layers, "seq=64,embed=256,heads=8,head=32,ff=1024", "tp", OF_COLLECTIVES, true, NULL },
	{ "sums of gradients", products, "batch=64,layers=2", "dp", OF_COLLECTIVES, true, "batch=16,embed=32,ff=64,layers=2" },
	{ "large messages", products, "batch=8,embed=1024", "dp", OF_COLLECTIVES, true, NULL },
	{ "short messages", layers, "batch=2,seq=16,embed=32,heads=8,head=4,ff=64,layers=8", "tp", OF_COLLECTIVES, true, NULL },
};

enum { STEPS = 3, ROUNDS = 6, QUICK_ROUNDS = 1 };

static struct module *compile_trial(struct session *s, const struct trial *t, int ranks, bool quick)
{
	const char *sets[] = { quick ? t->quick : t->set };
	struct front_options front = { .mesh = arena_printf(s->mem, "%s=%d", t->axis, ranks), .sets = sets, .nsets = 1 };
	struct module *m = front_compile_text(s->mem, &s->src, &s->diag, t->name, t->text, strlen(t->text), &front);

	return m && run_passes(m, &s->diag, &(struct pass_options){ 0 }) ? m : NULL;
}

/* What was seen of one op, or of a step, in every step: total seconds. */
struct seen {
	const struct op *op;
	double times, at[ROUNDS * STEPS];
};

/* The machine when nobody disturbs it. */
static double least(const double *x, int n)
{
	double y = x[0];

	for (int i = 1; i < n; i++)
		y = x[i] < y ? x[i] : y;
	return y;
}

/* What rank 0 spent on each op of the last step, summed over the times: to op[mark].at[step]. */
static void add_events(const struct runtime *rt, const struct trials *t, struct seen *op, int step)
{
	int64_t n;
	const struct trace_event *e = rt_watched(rt, &n);

	for (int64_t i = 0; i < n; i++)
		if (e[i].what == TRACE_OP) {
			struct seen *x = &op[e[i].op->mark];

			x->op = e[i].op;
			x->at[step] += crowd(t) > 1 ? e[i].busy * crowd(t) : e[i].end - e[i].start;
			x->times += step == 0;
		}
}

/* One round of a trial: some steps as they are, some watched. */
static bool run_round(struct session *s, const struct trials *t, struct outcome *o, struct seen *step, struct seen *op, int round)
{
	bool timed = t->cores > 0, ok = !timed || rt_watch(o->rt, false, &s->diag);

	for (int i = 0; ok && i < STEPS; i++) {
		double start = seconds_now();

		ok = rt_step(o->rt, 1, true, &s->diag);
		step->at[round * STEPS + i] = seconds_now() - start;
	}
	ok = ok && (!timed || rt_watch(o->rt, true, &s->diag));
	for (int i = 0; ok && timed && i < STEPS; i++) {
		ok = rt_step(o->rt, 1, true, &s->diag);
		add_events(o->rt, t, op, round * STEPS + i);
	}
	return ok;
}

static void end_trial(struct outcome *o, const struct seen *step, const struct seen *op, int n)
{
	o->seconds = least(step->at, n);
	for (int64_t k = 0; k < o->n; k++)
		if (op[k].op)
			o->op[k] = (struct sample){ op[k].op, op[k].times, least(op[k].at, n) / op[k].times };
}

/* Compiles it and runs a first step, which makes ready what later ones find. */
static bool begin_trial(struct session *s, struct trials *t, const struct trial *x)
{
	struct outcome o = { .name = x->name, .of = x->of, .m = compile_trial(s, x, t->ranks, t->quick) };

	if (!o.m)
		return false;
	o.flops = count_flops(o.m);
	o.rt = rt_open_on(t->on, o.m, 1, &s->diag);
	o.pricing = pricing_of(s->mem, o.m); /* numbers ops, which opening a plan did too */
	o.n = number_ops(&o.m->top, 0);
	o.op = NEWN(s->mem, struct sample, o.n + 1);
	PUSH(s->mem, &t->out, o);
	if (o.rt)
		fprintf(stderr, "%d rank%s  %s\n", t->ranks, t->ranks == 1 ? " " : "s", o.name);
	return o.rt && rt_step(o.rt, 0, true, &s->diag);
}

static bool run_rounds(struct session *s, struct trials *t)
{
	int rounds = t->quick ? QUICK_ROUNDS : ROUNDS;
	struct seen *step = NEWN(s->mem, struct seen, t->out.n + 1), **op = NEWN(s->mem, struct seen *, t->out.n + 1);

	for (uint32_t i = 0; i < t->out.n; i++)
		op[i] = NEWN(s->mem, struct seen, t->out.at[i].n + 1);
	for (int round = 0; round < rounds; round++)
		for (uint32_t i = 0; i < t->out.n; i++)
			if (!run_round(s, t, &t->out.at[i], &step[i], op[i], round))
				return false;
	for (uint32_t i = 0; i < t->out.n; i++)
		end_trial(&t->out.at[i], &step[i], op[i], rounds * STEPS);
	return true;
}

bool run_trials(struct session *s, struct trials *t)
{
	bool ok = true;

	for (size_t i = 0; ok && i < LEN(trials); i++)
		if ((t->ranks > 1 || !trials[i].sends) && (!t->quick || trials[i].quick))
			ok = begin_trial(s, t, &trials[i]);
	ok = ok && run_rounds(s, t);
	for (uint32_t i = 0; i < t->out.n; i++)
		rt_close(t->out.at[i].rt);
	for (uint32_t i = 0; i < t->out.n; i++)
		number_ops(&t->out.at[i].m->top, 0); /* again */
	return ok;
}
