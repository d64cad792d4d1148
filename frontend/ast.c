#include "frontend/ast.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "parse.h"
#define YY_NO_UNISTD_H
#include "scan.h"

enum { MAX_DEEP = 300, MAX_FILES = 256 };
#define MAX_BYTES ((size_t)64 << 20)

struct node *node_new(struct parser *ps, enum node_kind kind, struct span at)
{
	struct node *n = NEW(ps->mem, struct node);

	n->kind = kind;
	n->at = n->name_at = at;
	n->deep = 1;
	return n;
}

struct node *node_name(struct parser *ps, enum node_kind kind, struct span at, const char *name,
		       struct span name_at)
{
	struct node *n = node_new(ps, kind, at);

	n->name = name;
	n->name_at = name_at;
	return n;
}

struct node *node_binary(struct parser *ps, enum node_op op, struct span at, struct span op_at,
			 struct node *a, struct node *b)
{
	struct node *n = node_new(ps, b ? N_BINARY : N_UNARY, at);

	n->op = op;
	n->name_at = op_at;
	n->a = a;
	n->b = b;
	return node_close(ps, n);
}

static uint32_t deeper(uint32_t deep, const struct node *n)
{
	for (; n; n = n->next) {
		const struct node *inner = n->kind == N_KEY && n->a ? n->a : n;

		if (inner->deep > deep)
			deep = inner->deep;
	}
	return deep;
}

struct node *node_close(struct parser *ps, struct node *n)
{
	n->deep = 1 + deeper(deeper(deeper(0, n->a), n->b), n->list);
	if (n->deep <= MAX_DEEP)
		return n;
	if (!ps->too_deep)
		diag_error(ps->diag, n->name_at, "this expression is more than %d deep", MAX_DEEP);
	ps->too_deep = true;
	return node_new(ps, N_BAD, n->at);
}

struct nodes nodes_add(struct nodes list, struct node *n)
{
	if (!n)
		return list;
	if (list.last)
		list.last->next = n;
	else
		list.first = n;
	list.last = n;
	return list;
}

const char *node_op_name(enum node_op op)
{
	static const char *const names[] = {
		"|", "&", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "@",
		"-", "!",
	};

	return names[op];
}

/* The text from the file: what the user wrote is what he knows. */
const char *node_text(struct arena *mem, const struct sources *src, const struct node *n)
{
	const struct source *f = &src->files.at[n->at.file];
	const char *p = f->text, *end = f->text + f->len;

	for (uint32_t line = 1; line < n->at.line && p < end; line++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		p = nl ? nl + 1 : end;
	}
	p += n->at.col - 1;
	size_t len = n->at.len > 60 ? 60 : n->at.len;
	if (p > end || (size_t)(end - p) < len)
		return "";
	return arena_strndup(mem, p, len);
}

static uint32_t add_source(struct sources *src, struct arena *mem, const char *name,
			   const char *text, size_t len)
{
	PUSH(mem, &src->files, ((struct source){ name, text, len }));
	return src->files.n - 1;
}

static struct node *parse(struct arena *mem, struct sources *src, struct diag *d, uint32_t file)
{
	struct parser ps = { .mem = mem, .src = src, .diag = d, .file = file, .line = 1, .col = 1,
			     .text = src->files.at[file].text, .len = src->files.at[file].len };
	void *scanner;

	if (yylex_init_extra(&ps, &scanner))
		die("out of memory");
	yy_scan_bytes(ps.text, (int)ps.len, scanner);
	yyparse(&ps, scanner);
	yylex_destroy(scanner);
	return ps.items;
}

struct node *ast_parse(struct arena *mem, struct sources *src, struct diag *d, const char *name,
		       const char *text, size_t len)
{
	return parse(mem, src, d, add_source(src, mem, name, text, len));
}

/* NULL with errno set. Reads pipes as well as files. */
static char *slurp(struct arena *mem, const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	struct text t = { .mem = mem };
	char buf[16384];
	size_t n;

	if (!f)
		return NULL;
	text_bytes(&t, "", 0);
	while ((n = fread(buf, 1, sizeof buf, f)) > 0 && t.n <= MAX_BYTES)
		text_bytes(&t, buf, n);
	int bad = ferror(f) ? errno : t.n > MAX_BYTES ? EFBIG : 0;
	fclose(f);
	errno = bad;
	*len = t.n;
	return bad ? NULL : t.s;
}

struct reader {
	struct arena *mem;
	struct sources *src;
	struct diag *d;
	VEC(const char *) seen; /* true paths of the files read */
};

static bool seen(struct reader *r, const char *path)
{
	char real[PATH_MAX];
	const char *is = realpath(path, real) ? real : path;

	for (uint32_t i = 0; i < r->seen.n; i++)
		if (streq(r->seen.at[i], is))
			return true;
	PUSH(r->mem, &r->seen, arena_strdup(r->mem, is));
	return false;
}

static struct node *read_file(struct reader *r, const char *path, struct span from)
{
	size_t len = 0;
	char *text = slurp(r->mem, path, &len);

	if (!text) {
		diag_error(r->d, from, "cannot read '%.200s': %s", path, strerror(errno));
		return NULL;
	}
	return ast_parse(r->mem, r->src, r->d, path, text, len);
}

static const char *beside(struct reader *r, const char *file, const char *path)
{
	const char *slash = strrchr(file, '/');

	if (*path == '/' || !slash)
		return path;
	return arena_printf(r->mem, "%.*s/%s", (int)(slash - file), file, path);
}

/* Puts what is included in the place of the include. Not recursive: an include is expanded
 * where it stands, and the walk goes on with what it brought. */
static struct node *expand(struct reader *r, struct node *items)
{
	struct nodes out = { 0 };
	struct node *next;

	for (struct node *n = items; n; n = next) {
		next = n->next;
		n->next = NULL;
		if (n->kind != N_INCLUDE) {
			out = nodes_add(out, n);
			continue;
		}
		const char *path = beside(r, r->src->files.at[n->at.file].name, n->name);

		if (seen(r, path))
			continue;
		if (r->seen.n > MAX_FILES) {
			diag_error(r->d, n->at, "more than %d files", MAX_FILES);
			break;
		}
		struct node *inner = read_file(r, path, n->at), *last = inner;
		if (!inner)
			continue;
		while (last->next)
			last = last->next;
		last->next = next;
		next = inner;
	}
	return out.first;
}

struct node *ast_read(struct arena *mem, struct sources *src, struct diag *d, const char *path)
{
	struct reader r = { .mem = mem, .src = src, .d = d };

	seen(&r, path);
	return expand(&r, read_file(&r, path, (struct span){ 0 }));
}

struct node *ast_read_text(struct arena *mem, struct sources *src, struct diag *d, const char *name,
			   const char *text, size_t len)
{
	struct reader r = { .mem = mem, .src = src, .d = d };

	seen(&r, name);
	return expand(&r, ast_parse(mem, src, d, name, text, len));
}
