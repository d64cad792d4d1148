/* Hardware blocks: of the file, else of the table built in from examples/hardware.pdsl. */
#include <math.h>
#include <stddef.h>

#include "frontend/lower.h"

#include "hardware_pdsl.h"

static bool positive(struct ctx *c, const struct node *n, double *x)
{
	if (!n || n->kind == N_WORD || n->kind == N_KEY || n->kind == N_STRING || n->kind == N_LIST) {
		fail(c, n ? n->at : (struct span){ 0 }, "this must be a number");
		return false;
	}
	if (!eval_number(c, n, "a figure of a machine", x))
		return false;
	if (*x > 0 && *x < 1e18)
		return true;
	fail(c, n->at, *x > 0 ? "no machine has this" : "this must be positive");
	return false;
}

/* What is counted: `a group` of ranks, … */
static void counted(struct ctx *c, const struct node *n, const char *what, double *x)
{
	double y;

	if (!positive(c, n, &y))
		return;
	if (y != floor(y))
		fail(c, n->at, "%s", what);
	*x = y;
}

static void unknown_key(struct ctx *c, const struct node *a, const char *of, const char *takes)
{
	fail(c, a->at, "%s has no '%s'", of, a->name ? a->name : node_text(c->mem, c->src, a));
	hint(c, "it takes %s", takes);
}

struct figure {
	const char *name;
	double *at; /* NULL: read, and of no use yet */
};

/* A line of figures, name = x, …; takes: their names. */
static void figures(struct ctx *c, const struct node *line, int n, const struct figure *figure, const char *takes)
{
	for (const struct node *a = line->list; a; a = a->next) {
		double x = 0;
		int i = 0;

		while (i < n && !(a->kind == N_KEY && streq(a->name, figure[i].name)))
			i++;
		if (i == n)
			unknown_key(c, a, line->name, takes);
		else if (positive(c, a->a, &x) && figure[i].at)
			*figure[i].at = x;
	}
}

static void flops(struct ctx *c, const struct node *line)
{
	struct hardware *hw = &c->m->hw;
	const struct figure figure[] = {
		{ "fp32", &hw->fp32 }, { "bf16", &hw->bf16 }, { "fp8", &hw->fp8 }, { "fp4", &hw->fp4 }, { "fp16", NULL }, { "tf32", NULL },
	};

	figures(c, line, LEN(figure), figure, "fp32 = x, bf16 = x, fp8 = x, fp4 = x");
}

/* What the best products measured reach, in FLOP/s. */
static void sustained(struct ctx *c, const struct node *line)
{
	const struct figure figure[] = { { "bf16", &c->m->hw.best16 }, { "fp8", &c->m->hw.best8 } };

	figures(c, line, LEN(figure), figure, "bf16 = x, fp8 = x");
}

/* What kernels of attention reach, as shares of the peak. */
static void attention(struct ctx *c, const struct node *line)
{
	struct hardware *hw = &c->m->hw;
	const struct figure figure[] = { { "fa1", &hw->fa1 }, { "fa2", &hw->fa2 }, { "fa3", &hw->fa3 }, { "fp8", &hw->attn8 } };

	figures(c, line, LEN(figure), figure, "fa1 = x, fa2 = x, fa3 = x, fp8 = x");
	if (hw->fa1 > 1 || hw->fa2 > 1 || hw->fa3 > 1 || hw->attn8 > 1)
		fail(c, line->at, "shares of the peak are at most 1");
}

/* -- what was measured -- */

/* gemm fp32 = x, rows = x, columns = x, depth = x, call = x; or bf16 = x. */
static void gemm(struct ctx *c, const struct node *line)
{
	const struct node *first = line->list;
	bool half = first && first->kind == N_KEY && streq(first->name, "bf16");
	struct product_rate *g = &c->m->hw.measured.gemm[half];
	const struct figure figure[] = { { half ? "bf16" : "fp32", &g->rate }, { "rows", &g->rows }, { "columns", &g->columns }, { "depth", &g->depth }, { "call", &g->call } };

	figures(c, line, LEN(figure), figure, "fp32 = x or bf16 = x, rows = x, columns = x, depth = x, call = x");
	if (g->rate <= 0)
		fail(c, line->at, "write gemm fp32 = x or gemm bf16 = x, then rows = x, columns = x, depth = x, call = x");
}

static void kernel(struct ctx *c, const struct node *line)
{
	struct kernel_rate *k = &c->m->hw.measured.kernel;
	const struct figure figure[] = { { "bandwidth", &k->bandwidth }, { "call", &k->call }, { "simple", &k->simple }, { "hard", &k->hard }, { "sum", &k->sum } };

	figures(c, line, LEN(figure), figure, "bandwidth = x, call = x, simple = x, hard = x, sum = x");
	if (k->bandwidth <= 0)
		fail(c, line->at, "write kernel bandwidth = x, call = x, simple = x, hard = x, sum = x");
}

static void scores(struct ctx *c, const struct node *line)
{
	struct attention_rate *a = &c->m->hw.measured.attention;
	const struct figure figure[] = { { "rate", &a->rate }, { "call", &a->call }, { "score", &a->score }, { "back", &a->back } };

	figures(c, line, LEN(figure), figure, "rate = x, call = x, score = x, back = x");
	if (a->rate <= 0 || a->back <= 0)
		fail(c, line->at, "write scores rate = x, call = x, score = x, back = x");
}

static void memory(struct ctx *c, const struct node *line)
{
	struct hardware *hw = &c->m->hw;

	if (line->a) {
		positive(c, line->a, &hw->memory);
		return;
	}
	for (const struct node *a = line->list; a; a = a->next) {
		if (a->kind != N_KEY)
			positive(c, a, &hw->memory);
		else if (streq(a->name, "bandwidth"))
			positive(c, a->a, &hw->bandwidth);
		else
			unknown_key(c, a, "memory", "bandwidth");
	}
}

/* The way to host memory, of each rank by itself. */
static void host(struct ctx *c, const struct node *line)
{
	struct hardware *hw = &c->m->hw;
	const struct figure figure[] = { { "bandwidth", &hw->host }, { "latency", &hw->host_latency } };

	figures(c, line, LEN(figure), figure, "bandwidth = x, latency = x");
	if (hw->host <= 0)
		fail(c, line->at, "write host bandwidth = x, latency = x");
}

static void add_link(struct ctx *c, const struct node *line)
{
	struct hardware *hw = &c->m->hw;
	const struct node *first = line->list;
	struct link *l = &hw->link[hw->nlink];
	double ranks = 0;

	if (!first || first->kind != N_NAME || hw->nlink == (int)LEN(hw->link)) {
		fail(c, line->at, first && first->kind == N_NAME ? "more than 4 links" :
		     "write link name, group = n, bandwidth = x, latency = x");
		return;
	}
	*l = (struct link){ .name = first->name };
	for (const struct node *a = first->next; a; a = a->next) {
		if (a->kind != N_KEY)
			unknown_key(c, a, "link", "group, bandwidth, latency");
		else if (streq(a->name, "group"))
			counted(c, a->a, "a group is a whole number of ranks", &ranks);
		else if (streq(a->name, "bandwidth"))
			positive(c, a->a, &l->bandwidth);
		else if (streq(a->name, "latency"))
			positive(c, a->a, &l->latency);
		else
			unknown_key(c, a, "link", "group, bandwidth, latency");
	}
	l->group = (int64_t)ranks;
	if (l->bandwidth <= 0)
		fail(c, line->at, "link '%s' needs a bandwidth", l->name);
	hw->nlink++;
}

/* Of a line that has one; NULL: it has none, or more. */
static const struct node *only_figure(struct ctx *c, const struct node *line)
{
	const struct node *n = line->a ? line->a : line->list;

	if (n && !n->next)
		return n;
	fail(c, n ? n->next->at : line->at, n ? "one number is all that %s takes" : "write %s = x", line->name);
	return NULL;
}

static void units(struct ctx *c, const struct node *line)
{
	const struct node *n = only_figure(c, line);

	if (n)
		counted(c, n, "units are a whole number", &c->m->hw.units);
}

/* Less than one core is shared with other ranks; from one on they are whole. */
static void cores(struct ctx *c, const struct node *line)
{
	const struct node *n = only_figure(c, line);
	double *x = &c->m->hw.cores;

	if (n && positive(c, n, x) && *x > 1 && *x != floor(*x))
		fail(c, n->at, "cores are a whole number, or less than 1 where ranks share one");
}

/* The lines of a block: read by a function of their own, or one figure. */
static const struct line {
	const char *name;
	void (*read)(struct ctx *c, const struct node *line);
	size_t at; /* of a figure in struct hardware */
} lines[] = {
	{ "flops", flops, 0 }, { "sustained", sustained, 0 }, { "attention", attention, 0 },
	{ "units", units, 0 }, { "watts", NULL, offsetof(struct hardware, watts) },
	{ "memory", memory, 0 }, { "bandwidth", NULL, offsetof(struct hardware, bandwidth) }, { "link", add_link, 0 },
	{ "host", host, 0 }, { "price", NULL, offsetof(struct hardware, price) }, { "cores", cores, 0 },
	{ "gemm", gemm, 0 }, { "kernel", kernel, 0 }, { "scores", scores, 0 },
};

static void line_of_hardware(struct ctx *c, const struct node *line)
{
	struct near near = { .name = line->name };

	if (line->kind != N_SETTING) {
		fail(c, line->at, "a hardware block has no arrows");
		return;
	}
	for (size_t i = 0; i < LEN(lines); i++) {
		if (!streq(line->name, lines[i].name)) {
			near_offer(&near, lines[i].name);
			continue;
		}
		const struct node *n = lines[i].read ? NULL : only_figure(c, line);

		if (lines[i].read)
			lines[i].read(c, line);
		else if (n)
			positive(c, n, (double *)(void *)((char *)&c->m->hw + lines[i].at));
		return;
	}
	fail(c, line->name_at, "hardware has no '%s'", line->name);
	hint(c, near.best ? "did you mean '%s'?" : "it takes flops, sustained, attention, units, watts, memory, link, host, price, and of "
	     "what was measured cores, gemm, kernel, scores", near.best);
}

static void read_block(struct ctx *c, const struct node *block)
{
	struct hardware *hw = &c->m->hw;

	*hw = (struct hardware){ .name = block->name };
	for (const struct node *line = block->body; line; line = line->next)
		line_of_hardware(c, line);
	if (hw->fp32 <= 0 && hw->bf16 <= 0)
		fail(c, block->at, "hardware '%s' needs flops", block->name);
	if (hw->memory <= 0 || hw->bandwidth <= 0)
		fail(c, block->at, "hardware '%s' needs memory and its bandwidth", block->name);
	if (hw->bf16 <= 0)
		hw->bf16 = hw->fp32;
	if (hw->fp32 <= 0)
		hw->fp32 = hw->bf16;
	if (hw->best16 > hw->bf16 || (hw->fp8 > 0 && hw->best8 > hw->fp8))
		fail(c, block->at, "hardware '%s' sustains more than its peak", block->name);
	if (hw->measured.gemm[0].rate <= 0)
		hw->measured.gemm[0] = hw->measured.gemm[1];
}

static struct node *built_in(struct ctx *c)
{
	return ast_parse(c->mem, c->src, c->diag, "hardware.pdsl", hardware_pdsl, sizeof hardware_pdsl - 1);
}

bool lower_hardware(struct ctx *c, const char *name, struct span at)
{
	struct near near = { .name = name };

	for (uint32_t i = 0; i < c->hardware.n; i++) {
		const struct node *block = c->hardware.at[i];

		for (uint32_t j = i + 1; j < c->hardware.n; j++)
			if (streq(block->name, c->hardware.at[j]->name))
				fail(c, c->hardware.at[j]->name_at, "hardware '%s' is already defined", block->name);
		near_offer(&near, block->name);
		if (streq(block->name, name))
			return read_block(c, block), true;
	}
	struct node *table = built_in(c);
	for (const struct node *n = table; n; n = n->next) {
		if (n->kind != N_HARDWARE)
			continue;
		near_offer(&near, n->name);
		if (streq(n->name, name))
			return read_block(c, n), true;
	}
	fail(c, at, "there is no hardware '%s'", name);
	if (near.best) {
		hint(c, "did you mean '%s'?", near.best);
		return false;
	}
	struct text t = { .mem = c->mem };
	for (const struct node *n = table; n; n = n->next)
		if (n->kind == N_HARDWARE)
			text_put(&t, "%s%s", t.n ? ", " : "", n->name);
	hint(c, "built in are %s; others need a block, hardware %s { … }", t.s ? t.s : "none", name);
	return false;
}
