/* ptc fmt: what it writes is the same tree, for every model in the repository, and it writes the
 * same when asked again; texts with mistakes and texts of any bytes are refused, not damaged. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "frontend/ast.h"
#include "frontend/fmt.h"

struct run {
	struct arena *mem;
	struct sources src;
	struct diag diag;
};

static void start(struct run *r)
{
	memset(r, 0, sizeof *r);
	r->mem = arena_new();
	diag_init(&r->diag, r->mem, &r->src, NULL);
}

static bool same_list(const struct node *a, const struct node *b);

static bool same_node(const struct node *a, const struct node *b)
{
	if (!a || !b)
		return a == b;
	return a->kind == b->kind && a->op == b->op && streq(a->name, b->name) && streq(a->label, b->label) &&
	       a->number == b->number && a->integer == b->integer && a->whole == b->whole && a->dims == b->dims &&
	       same_node(a->a, b->a) && same_node(a->b, b->b) && same_node(a->c, b->c) &&
	       same_list(a->list, b->list) && same_list(a->more, b->more) && same_list(a->body, b->body);
}

static bool same_list(const struct node *a, const struct node *b)
{
	for (; a && b; a = a->next, b = b->next)
		if (!same_node(a, b))
			return false;
	return a == b;
}

static char *slurp(struct run *r, const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	struct text t = { .mem = r->mem };
	char buf[4096];
	size_t n;

	assert_non_null(f);
	text_bytes(&t, "", 0);
	while ((n = fread(buf, 1, sizeof buf, f)) > 0)
		text_bytes(&t, buf, n);
	fclose(f);
	*len = t.n;
	return t.s;
}

/* False: the text has mistakes. */
static bool check_text(struct run *r, const char *name, const char *text, size_t len)
{
	size_t n, again;
	char *out = fmt_text(r->mem, &r->src, &r->diag, name, text, len, &n);

	if (!out) {
		assert_true(r->diag.errors > 0);
		assert_null(strstr(r->diag.log.s, "a bug"));
		return false;
	}
	struct node *a = ast_parse(r->mem, &r->src, &r->diag, name, text, len);
	struct node *b = ast_parse(r->mem, &r->src, &r->diag, name, out, n);
	if (!same_list(a, b) || r->diag.errors)
		fail_msg("%s: another tree", name);
	char *twice = fmt_text(r->mem, &r->src, &r->diag, name, out, n, &again);
	assert_non_null(twice);
	if (again != n || memcmp(out, twice, n) != 0)
		fail_msg("%s: twice is not once", name);
	return true;
}

static void every_model(void **state)
{
	static const char *const patterns[] = { "examples/*.pdsl", "tests/*/*.pdsl" };
	int models = 0;

	(void)state;
	for (size_t i = 0; i < LEN(patterns); i++) {
		glob_t g;

		if (glob(patterns[i], 0, NULL, &g))
			continue;
		for (size_t k = 0; k < g.gl_pathc; k++) {
			struct run r;
			size_t len;

			start(&r);
			char *text = slurp(&r, g.gl_pathv[k], &len);
			models += check_text(&r, g.gl_pathv[k], text, len);
			arena_free(r.mem);
		}
		globfree(&g);
	}
	assert_true(models > 20);
}

/* A model with bytes put in, taken out and changed: mostly wrong, never a crash. */
static void changed_bytes(void **state)
{
	static const char some[] = "#;\n(){}[]@-=,. \t\r\"a1~:>!";
	uint64_t seed = 88172645463325252u;
	struct run r;
	size_t len;

	(void)state;
	start(&r);
	char *text = slurp(&r, "tests/fmt/spaces.in.pdsl", &len);
	for (int i = 0; i < 3000; i++) {
		struct run one;
		int changes = 1 + i % 3;

		start(&one);
		char *copy = arena_strndup(one.mem, text, len);
		while (changes--) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			copy[seed % len] = some[(seed >> 40) % (sizeof some - 1)];
		}
		check_text(&one, "changed", copy, len);
		arena_free(one.mem);
	}
	arena_free(r.mem);
}

static void odd_texts(void **state)
{
	static const char *const texts[] = {
		"", "\n\n\n", "# only a comment", "#", ";;;", "\r\n\r\n", "a = 1", "a = 1 # b", "a = 1;# b;", "a = 1 #;",
		"plan{}", "plan{#\n}", "plan {\n\n\n# a\n\n\n}# b\n# c", "a =\n\n# b\n\n1\n", "a = f(# x\n# y\n)",
		"repeat d{}", "a = f(b,# c\n\n\n# d\n\n e) # f", "dim a = 1,\r\n b = 2\r\n", "a = 1\n\n\n",
	};

	(void)state;
	for (size_t i = 0; i < LEN(texts); i++) {
		struct run r;

		start(&r);
		check_text(&r, texts[i], texts[i], strlen(texts[i]));
		arena_free(r.mem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_model),
		cmocka_unit_test(changed_bytes),
		cmocka_unit_test(odd_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
