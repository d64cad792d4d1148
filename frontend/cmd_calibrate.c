/* frontend/cmd_calibrate.c - ptc calibrate: measures this machine into hardware blocks, one for each number of ranks
 * that share it: the command and its file. */
#include <math.h>
#include <stdio.h>

#include "frontend/cmd_calibrate.h"
#include "frontend/cmd_explain.h"
#include "ir/file.h"

/* -- the file -- */

/* "1.23G", of which the language's numbers are made. */
static const char *figure_text(struct arena *mem, double x)
{
	static const struct {
		double size;
		const char *name;
	} unit[] = { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "K" }, { 1, "" }, { 1e-3, "m" }, { 1e-6, "u" }, { 1e-9, "n" } };
	size_t i = 0;

	while (i + 1 < LEN(unit) && x < unit[i].size)
		i++;
	if (x < unit[i].size)
		return arena_printf(mem, "%.4g", x);
	return arena_printf(mem, "%.4g%s", x / unit[i].size, unit[i].name);
}

static void put_gemm(struct text *t, const char *type, const struct product_rate *g)
{
	if (g->rate > 0)
		text_put(t, "    gemm %s = %s, rows = %.3g, columns = %.3g, depth = %.3g, call = %s\n", type, figure_text(t->mem, g->rate), g->rows, g->columns, g->depth,
			 figure_text(t->mem, g->call));
}

static void put_block(struct text *t, const char *name, const struct trials *x, const struct machine *on, const struct hardware *h)
{
	const struct measured *m = &h->measured;
	struct arena *a = t->mem;

	if (on->cores > 0)
		text_put(t, "\n# %d rank%s, each a thread or some, on %.0f core%s. Of a step:\n", x->ranks, x->ranks == 1 ? "" : "s", on->cores, on->cores == 1 ? "" : "s");
	else
		text_put(t, "\n# %d GPU%s. Of a step:\n", x->ranks, x->ranks == 1 ? "" : "s");
	for (uint32_t i = 0; i < x->out.n; i++)
		text_put(t, "#   %-24s measured %s, predicted %s\n", x->out.at[i].name, seconds_text(a, x->out.at[i].seconds),
			 seconds_text(a, x->out.at[i].predicted));
	text_put(t, "hardware %s%d {\n    flops fp32 = %s, bf16 = %s\n    memory %s, bandwidth = %s\n    link %s, bandwidth = %s, latency = %s\n", name,
		 x->ranks, figure_text(a, h->fp32), figure_text(a, h->bf16), figure_text(a, h->memory), figure_text(a, h->bandwidth),
		 h->link[0].name, figure_text(a, h->link[0].bandwidth), figure_text(a, h->link[0].latency));
	if (h->cores > 0)
		text_put(t, "    cores %.4g\n", h->cores);
	if (h->units > 0)
		text_put(t, "    units %.0f\n", h->units);
	put_gemm(t, "fp32", &m->gemm[0]);
	put_gemm(t, "bf16", &m->gemm[1]);
	text_put(t, "    kernel bandwidth = %s, call = %s, simple = %s, hard = %s, sum = %s\n", figure_text(a, m->kernel.bandwidth),
		 figure_text(a, m->kernel.call), figure_text(a, m->kernel.simple), figure_text(a, m->kernel.hard), figure_text(a, m->kernel.sum));
	text_put(t, "    scores rate = %s, call = %s, score = %s, back = %.3g\n}\n", figure_text(a, m->attention.rate), figure_text(a, m->attention.call),
		 figure_text(a, m->attention.score), m->attention.back);
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

static bool calibrate_ranks(struct session *s, const struct backend *backend, const struct machine *on, int ranks, const char *name, struct text *out)
{
	double share = on->cores / ranks;
	struct trials t = { .ranks = ranks, .on = backend, .quick = s->opt->quick };
	struct hardware h = { .nlink = 1, .link = { { .name = on->cores > 0 ? "shm" : "device" } }, .units = on->units };

	t.cores = h.cores = share > 1 ? floor(share) : share; /* as the runtime shares them out */
	h.memory = on->cores > 0 ? on->memory / ranks : on->memory;
	if (!run_trials(s, &t))
		return false;
	find_figures(&t, &h);
	put_block(out, name, &t, on, &h);
	return true;
}

int cmd_calibrate(struct session *s)
{
	static const int shares[] = { 1, 2, 4, 8 };
	struct text out = { .mem = s->mem };
	const char *name = block_name(s->mem, s->opt->out);
	const struct backend *backend = backend_find(s->opt->backend, &s->diag);
	struct machine on;
	int one = (int)s->opt->ranks;

	if (s->opt->ranks > 64) {
		fputs("ptc: error: --ranks is at most 64\n", stderr);
		return USAGE;
	}
	if (!backend)
		return WRONG;
	if (s->opt->out && !streq(s->opt->out, "-") && !outfile_check(s->mem, s->opt->out, &s->diag))
		return MACHINE;
	if (!backend_machine(backend, &on, &s->diag))
		return MACHINE;
	text_put(&out, "# Made by ptc calibrate: what this machine does for so many ranks. To plan for it, include this file\n"
		       "# in a model and write mesh ... on %s%d.\n", name, one ? one : 1);
	for (size_t i = 0; i < (one ? 1 : LEN(shares)); i++)
		if (one || !on.ranks || shares[i] <= on.ranks)
			if (!calibrate_ranks(s, backend, &on, one ? one : shares[i], name, &out))
				return MACHINE;
	return write_file(s, s->opt->out, out.s, out.n) ? DONE : MACHINE;
}
