/* passes/passes.c - the table of passes and the one driver: run, verify, dump, time.
 *
 *   text -> simplify -> precision -> differentiate -> optimizer -> simplify2   (logical)
 *        -> microbatch -> stages -> place                                     (placed)
 *        -> partition -> chunk -> pipeline -> rematerialize -> split -> halves -> fuse (partitioned)
 *        -> collectives -> delay -> offload -> overlap -> balance              (partitioned)
 *        -> memory                                                            (planned)
 */
#define _POSIX_C_SOURCE 200809L
#include "passes/passes.h"

#include <stdio.h>

#include "ir/file.h"
#include "ir/text.h"

const struct pass passes[] = {
	{ "simplify", "fold constants, merge equal ops, drop dead ones, lookups to views", pass_simplify, LOGICAL, LOGICAL },
	{ "precision", "give floats the width the plan asks for", pass_precision, LOGICAL, LOGICAL },
	{ "differentiate", "add the backward ops", pass_differentiate, LOGICAL, LOGICAL },
	{ "optimizer", "write the optimizer as ops on its states", pass_optimizer, LOGICAL, LOGICAL },
	{ "simplify2", "the same again, on the whole step", pass_simplify, LOGICAL, LOGICAL },
	{ "microbatch", "cut the step into prologue, forward, backward, epilogue", pass_microbatch, LOGICAL, LOGICAL },
	{ "stages", "where along the pipeline each op runs", pass_stages, LOGICAL, LOGICAL },
	{ "place", "arrows to shardings of named values, params and states", pass_place, LOGICAL, PLACED },
	{ "partition", "a sharding for every value, collectives in between", pass_partition, PLACED, PARTITIONED },
	{ "chunk", "what a plan wants in parts, and what is made of it, in a loop over them", pass_chunk, PARTITIONED, PARTITIONED },
	{ "pipeline", "a place for every op of forward and backward", pass_pipeline, PARTITIONED, PARTITIONED },
	{ "rematerialize", "make again in backward what the plan does not keep", pass_rematerialize, PARTITIONED, PARTITIONED },
	{ "split", "all_reduces around work on each element become a scatter and a gather", pass_split, PARTITIONED, PARTITIONED },
	{ "halves", "backward in two halves, for schedules with I and W", pass_halves, PARTITIONED, PARTITIONED },
	{ "fuse", "group ops into kernels", pass_fuse, PARTITIONED, PARTITIONED },
	{ "collectives", "collectives that are ready together become one", pass_collectives, PARTITIONED, PARTITIONED },
	{ "delay", "work that a collective does not wait for goes behind its start", pass_delay, PARTITIONED, PARTITIONED },
	{ "offload", "what lies in host memory is copied where it is used", pass_offload, PARTITIONED, PARTITIONED },
	{ "overlap", "start collectives and copies early and wait for them late", pass_overlap, PARTITIONED, PARTITIONED },
	{ "balance", "iterations cut into stages, and the order of their actions, by cost", pass_balance, PARTITIONED, PARTITIONED },
	{ "memory", "offsets in one arena a rank", pass_memory, PARTITIONED, PLANNED },
	{ 0 },
};

/* Print, read back, print: the text must stay and the module that goes on is the one read back. */
static bool round_trip(struct module *m, struct diag *d, const struct pass *p)
{
	size_t n1, n2;
	char *one = module_print(m, m->mem, &n1);
	struct module *back = module_parse(m->mem, p->name, one, n1, d);

	if (!back)
		return diag_error(d, (struct span){ 0 }, "the text after pass '%s' does not read back", p->name);
	char *two = module_print(back, m->mem, &n2);
	if (n1 != n2 || memcmp(one, two, n1))
		return diag_error(d, (struct span){ 0 }, "the text after pass '%s' changes when read back", p->name);
	struct sources *src = m->src;
	*m = *back;
	m->src = src;
	m->top.owner = NULL;
	for (struct op *op = m->top.first; op; op = op->next) {
		op->home = &m->top;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->home = &m->top;
	}
	return true;
}

static bool dump_wanted(const struct pass_options *opt, const struct pass *p)
{
	return opt->dump_after && (streq(opt->dump_after, "all") || streq(opt->dump_after, p->name));
}

static bool run_pass(struct module *m, struct diag *d, const struct pass *p,
		     const struct pass_options *opt)
{
	double start = seconds_now();
	const char *before = NULL;

	if (m->form != p->from)
		return diag_error(d, (struct span){ 0 }, "pass '%s' takes form %s, this is %s", p->name,
				  form_name[p->from], form_name[m->form]);
	if (dump_wanted(opt, p))
		before = module_print(m, m->mem, NULL);
	if (!p->run(m, d))
		return false;
	if (m->form != p->to)
		die("pass %s left form %s", p->name, form_name[m->form]);
	if (opt->time)
		fprintf(stderr, "%-14s %8.3f ms\n", p->name, 1e3 * (seconds_now() - start));
	if (before) {
		const char *after = module_print(m, m->mem, NULL);

		fprintf(stderr, "# after %s%s\n%s", p->name, streq(before, after) ? " (unchanged)" : "",
			streq(before, after) ? "" : after);
	}
	return !opt->verify || (verify(m, d) && round_trip(m, d, p) && verify(m, d));
}

bool run_passes(struct module *m, struct diag *d, const struct pass_options *opt)
{
	const struct pass *p = passes;

	while (opt->start_after && p->name && !streq((p++)->name, opt->start_after))
		;
	for (; p->name; p++) {
		if (!run_pass(m, d, p, opt))
			return false;
		if (opt->stop_after && streq(opt->stop_after, p->name))
			break;
	}
	return true;
}

bool run_pass_list(struct module *m, struct diag *d, const char *names, const struct pass_options *opt)
{
	while (*names) {
		size_t n = strcspn(names, ",");
		const struct pass *p = passes;

		while (p->name && (strlen(p->name) != n || strncmp(p->name, names, n)))
			p++;
		if (!p->name)
			return diag_error(d, (struct span){ 0 }, "there is no pass '%.*s'", (int)n, names);
		if (!run_pass(m, d, p, opt))
			return false;
		names += n + (names[n] == ',');
	}
	return true;
}
