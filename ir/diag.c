#include "ir/diag.h"

enum { MAX_ERRORS = 20 };

void diag_init(struct diag *d, struct arena *mem, struct sources *src, FILE *out)
{
	*d = (struct diag){ .mem = mem, .src = src, .out = out, .log = { .mem = mem } };
}

static const char *line_start(const struct source *f, uint32_t line, size_t *len)
{
	const char *p = f->text, *end = f->text + f->len;

	while (--line && p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		if (!nl)
			return NULL;
		p = nl + 1;
	}
	const char *nl = memchr(p, '\n', (size_t)(end - p));
	*len = (size_t)((nl ? nl : end) - p);
	if (*len && p[*len - 1] == '\r')
		--*len;
	return p;
}

static bool goes_on(char c) /* a later byte of a letter in UTF-8: no place of its own */
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* Long lines are shown around the caret only; other control bytes as '?'. */
static void put_caret(struct text *t, const struct source *f, struct span at)
{
	enum { WIDE = 160 };
	size_t len = 0, col = at.col ? at.col - 1 : 0;
	const char *p = f->text ? line_start(f, at.line, &len) : NULL;

	if (!p || col > len)
		return;
	size_t from = col > WIDE / 2 && len > WIDE ? col - WIDE / 2 : 0;
	size_t n = len - from > WIDE ? WIDE : len - from;

	text_put(t, "    ");
	for (size_t i = 0; i < n; i++) {
		char c = p[from + i];

		text_bytes(t, (unsigned char)c < 32 && c != '\t' ? "?" : &c, 1);
	}
	text_put(t, "\n    ");
	for (size_t i = from; i < col; i++)
		if (!goes_on(p[i]))
			text_bytes(t, p[i] == '\t' ? "\t" : " ", 1);
	text_put(t, "^");
	for (size_t i = 1; i < at.len && col + i < from + n; i++)
		if (!goes_on(p[col + i]))
			text_put(t, "~");
	text_put(t, "\n");
}

static void say(struct diag *d, const char *kind, struct span at, const char *fmt, va_list ap)
{
	struct text t = { .mem = d->mem };
	char what[2048];
	const struct source *f = d->src && at.line && at.file < d->src->files.n ?
		&d->src->files.at[at.file] : NULL;

	vsnprintf(what, sizeof what, fmt, ap);
	if (f)
		text_put(&t, "%s:%u:%u: ", f->name, at.line, at.col);
	else
		text_put(&t, streq(kind, "note") ? "    " : "ptc: ");
	text_put(&t, "%s: %s\n", kind, what);
	if (f)
		put_caret(&t, f, at);
	text_bytes(&d->log, t.s, t.n);
	if (d->out)
		fwrite(t.s, 1, t.n, d->out);
}

bool diag_error(struct diag *d, struct span at, const char *fmt, ...)
{
	va_list ap;

	if (d->errors++ < MAX_ERRORS) {
		va_start(ap, fmt);
		say(d, "error", at, fmt, ap);
		va_end(ap);
	}
	return false;
}

void diag_warn(struct diag *d, struct span at, const char *fmt, ...)
{
	va_list ap;

	d->warnings++;
	if (d->errors > MAX_ERRORS)
		return;
	va_start(ap, fmt);
	say(d, "warning", at, fmt, ap);
	va_end(ap);
}

void diag_note(struct diag *d, struct span at, const char *fmt, ...)
{
	va_list ap;

	if (d->errors > MAX_ERRORS)
		return;
	va_start(ap, fmt);
	say(d, "note", at, fmt, ap);
	va_end(ap);
}

static int distance(const char *a, const char *b)
{
	int row[64], n = (int)strlen(b);

	if (n > 60 || strlen(a) > 60)
		return 99;
	for (int j = 0; j <= n; j++)
		row[j] = j;
	for (int i = 1; a[i - 1]; i++) {
		int diagonal = row[0];

		row[0] = i;
		for (int j = 1; j <= n; j++) {
			int best = diagonal + (a[i - 1] != b[j - 1]);

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[n];
}

void near_offer(struct near *n, const char *candidate)
{
	int dist = distance(n->name, candidate), most = 1 + (int)strlen(n->name) / 4;

	if (dist <= most && dist < (int)strlen(candidate) && (!n->best || dist < n->dist)) {
		n->best = candidate;
		n->dist = dist;
	}
}

const char *span_text(struct arena *mem, const struct sources *src, struct span at)
{
	if (!at.line || !src || at.file >= src->files.n)
		return "?";
	return arena_printf(mem, "%s:%u", src->files.at[at.file].name, at.line);
}
