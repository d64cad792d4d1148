/* kernels.c - a plan's CUDA source, cut into its kernels; those of other plans that are the same are one. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/text.h"
#include "tests/nvrtc/kernels.h"

static const char start[] = "extern \"C\" __global__ void ";

/* -- cutting -- */

/* After the brace that closes the first one at or after s. Kernels hold no braces in strings. */
static const char *end_of(const char *s)
{
	int depth = 0;

	do {
		s += strcspn(s, "{}");
		if (!*s)
			die("a kernel has no end");
		depth += *s++ == '{' ? 1 : -1;
	} while (depth);
	return *s == '\n' ? s + 1 : s;
}

static const char *shared_text(struct catalog *k, const char *s)
{
	for (uint32_t i = 0; i < k->preludes.n; i++)
		if (streq(k->preludes.at[i], s))
			return k->preludes.at[i];
	PUSH(k->mem, &k->preludes, arena_strdup(k->mem, s));
	return k->preludes.at[k->preludes.n - 1];
}

/* s with each number as N: what two kernels share that differ in sizes only. */
static char *without_numbers(struct arena *mem, const char *s)
{
	struct text t = { .mem = mem };
	char before = 0;

	while (*s) {
		size_t n = strspn(s, "0123456789");

		if (n && !isalnum((unsigned char)before) && before != '_') {
			text_bytes(&t, "N", 1);
			before = 'N';
			s += n;
		} else {
			text_bytes(&t, s, 1);
			before = *s++;
		}
	}
	return t.s;
}

static bool same(const struct kernel *a, const struct kernel *b)
{
	return a->prelude == b->prelude && streq(a->head, b->head) && streq(a->rest, b->rest) && (!a->named || streq(a->name, b->name));
}

/* The kernel at s, which ends at end. Its index. */
static int add_one(struct catalog *k, const char *plan, const char *prelude, const char *s, const char *end)
{
	const char *name = s + sizeof start - 1, *bounds = "__launch_bounds__(";
	struct kernel x = { .prelude = prelude, .plan = plan, .threads = 1 };

	if (!strncmp(name, bounds, strlen(bounds))) {
		x.threads = atoi(name + strlen(bounds));
		name = strchr(name, ')') + 2;
	}
	size_t n = strcspn(name, "(");

	x.name = arena_strndup(k->mem, name, n);
	x.named = strncmp(name, "k", 1) != 0;
	x.head = arena_strndup(k->mem, s, (size_t)(name - s));
	x.rest = arena_strndup(k->mem, name + n, (size_t)(end - name) - n);
	k->total++;
	for (uint32_t i = 0; i < k->all.n; i++)
		if (same(&k->all.at[i], &x)) {
			k->all.at[i].uses++;
			return (int)i;
		}
	x.uses = 1;
	PUSH(k->mem, &k->all, x);
	return (int)k->all.n - 1;
}

static void set_kinds(struct catalog *k, uint32_t from)
{
	for (uint32_t i = from; i < k->all.n; i++) {
		struct kernel *x = &k->all.at[i];
		const char *alike = x->named ? arena_printf(k->mem, "%s", x->name) : without_numbers(k->mem, x->rest);
		uint64_t h = fnv1a(fnv1a(FNV_START, x->head, strlen(x->head)), alike, strlen(alike));

		x->like = (int)i;
		x->hash = h;
		for (uint32_t b = 0; b < i && x->like == (int)i; b++)
			if (k->all.at[b].hash == h)
				x->like = k->all.at[b].like;
		k->kinds += x->like == (int)i;
	}
}

/* -- launches -- */

struct names {
	VEC(struct { const char *name; int at; }) v;
};

static void launched(struct catalog *k, const struct names *names, const struct cuda_launch *l, const char *plan)
{
	for (uint32_t i = 0; i < names->v.n; i++)
		if (streq(names->v.at[i].name, l->fn)) {
			struct kernel *x = &k->all.at[names->v.at[i].at];

			if ((uint32_t)x->threads != l->block)
				die("%s: %s is launched with %u threads, and compiled for %d", plan, l->fn, l->block, x->threads);
			x->shared = l->shared > x->shared ? l->shared : x->shared;
			return;
		}
	die("%s: %s is launched, and not in the source", plan, l->fn);
}

/* What attention is given does not depend on how much there is of it. */
static void attentions(struct catalog *k, const struct names *names, const struct module *m, const struct block *b, const char *plan)
{
	for (const struct op *op = b->first; op; op = op->next) {
		struct ptc_attention x = { .rows = 1, .cols = 1, .extra[CUDA_DBIAS - CUDA_BIAS].there = attn_extra(op, X_BIAS) >= 0 };
		struct cuda_attention a;

		if (opinfo[op->code].class == C_ATTN) {
			cuda_attention_of(&a, m, op, &x);
			for (int i = 0; i < a.nlaunch; i++)
				launched(k, names, &a.launch[i], plan);
		} else if (op->body && op->code != OP_KERNEL) {
			attentions(k, names, m, op->body, plan);
		}
	}
}

static void cut(struct catalog *k, struct names *names, const char *plan, const char *source)
{
	struct text around = { .mem = k->mem };
	const char *prelude = NULL;

	for (const char *s = source, *at; (at = strstr(s, start)); s = at) {
		if (at > s) {
			text_bytes(&around, s, (size_t)(at - s));
			prelude = shared_text(k, around.s);
		}
		const char *end = end_of(at);
		int i = add_one(k, plan, prelude, at, end);

		PUSH(k->mem, &names->v, ((__typeof__(*names->v.at)){ NULL, i }));
		const char *name = at + strlen(k->all.at[i].head);

		names->v.at[names->v.n - 1].name = arena_strndup(k->mem, name, strcspn(name, "("));
		at = end;
	}
}

static char *contents(struct arena *mem, const char *file, size_t *size, struct diag *d)
{
	static const struct span nowhere;
	struct text t = { .mem = mem };
	char buf[65536];
	FILE *f = fopen(file, "r");

	for (size_t n; f && (n = fread(buf, 1, sizeof buf, f));)
		text_bytes(&t, buf, n);
	if (!f || ferror(f) || fclose(f))
		diag_error(d, nowhere, "%s cannot be read", file);
	*size = t.n;
	return d->errors ? NULL : t.s;
}

bool kernels_add(struct catalog *k, const char *file, struct diag *d)
{
	struct cuda_sig *sig;
	struct names names = { { 0 } };
	uint32_t from = k->all.n;
	size_t size;
	int n;
	char *text = contents(k->mem, file, &size, d);
	struct module *m = text ? module_parse(k->mem, file, text, size, d) : NULL;
	char *source = m ? codegen_cuda(k->mem, m, &sig, &n, d) : NULL;

	if (!source)
		return false;
	cut(k, &names, file, source);
	for (int i = 0; i < n; i++)
		for (int l = 0; l < sig[i].nlaunch; l++)
			launched(k, &names, &sig[i].launch[l], file);
	attentions(k, &names, m, &m->top, file);
	set_kinds(k, from);
	return true;
}
