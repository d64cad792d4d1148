/* frontend/cmd_explain_memory.c - what is live at the peak, tensor by tensor, for people. */
#include <stdio.h>

#include "frontend/cmd_explain.h"

enum { ROWS = 14 };

static void print_rest(struct arena *a, const struct stage_live *x, uint32_t from)
{
	double bytes = 0;

	for (uint32_t i = from; i < x->held.n; i++)
		bytes += (double)x->held.at[i].bytes;
	if (from < x->held.n)
		printf("%9s                     %u smaller ones\n", amount(a, bytes, "B"), x->held.n - from);
}

/* The largest first; they add up to the peak. */
void print_held(struct session *s, const struct facts *f)
{
	const struct stage_live *x = &f->live[f->fullest];
	uint32_t n = x->held.n <= ROWS + 1 ? x->held.n : ROWS;
	const char *where = x->at.line ? arena_printf(s->mem, " (%s)", span_text(s->mem, &s->src, x->at)) : "";

	printf("%9s %5s %-12s  live at the peak: %s%s\n", "bytes", "times", "kind", x->when ? x->when : "", where);
	for (uint32_t i = 0; i < n; i++) {
		const struct holding *h = &x->held.at[i];
		const char *at = h->at.line ? span_text(s->mem, &s->src, h->at) : "";

		printf("%9s %5lld %-12s  %s%s%s\n", amount(s->mem, (double)h->bytes, "B"), (long long)h->times, mem_kind_name[h->kind], h->name,
		       h->at.line && !strstr(h->name, at) ? arena_printf(s->mem, "  %s", at) : "", "");
	}
	print_rest(s->mem, x, n);
}
