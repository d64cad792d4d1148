/* runtime/plan.c - plan files: a header line, then the IR of the plan.
 *
 *   ptc-plan 1 <16 hex digits: fnv1a of the text> <bytes of the text>
 *
 * A file that is truncated, edited or newer is refused; so is one whose text is sound but whose
 * offsets leave the arena. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/file.h"
#include "ir/text.h"
#include "runtime/place.h"

enum { VERSION = 1, MAX_HEADER = 80 };
static const char magic[] = "ptc-plan ";
static const struct span nowhere;

/* -- saving -- */

bool plan_save(struct module *m, const char *path, struct diag *d)
{
	size_t len;
	char *text = module_print(m, m->mem, &len), head[MAX_HEADER];
	int n = snprintf(head, sizeof head, "%s%d %016" PRIx64 " %zu\n", magic, VERSION, fnv1a(FNV_START, text, len), len);
	struct outfile o;

	if (!outfile_open(&o, m->mem, path, d))
		return false;
	outfile_put(&o, head, (size_t)n);
	outfile_put(&o, text, len);
	return outfile_close(&o, true, d);
}

/* -- loading -- */

bool is_plan_file(const char *path)
{
	char buf[sizeof magic - 1];
	FILE *f = fopen(path, "rb");

	if (!f)
		return false;
	bool is = fread(buf, 1, sizeof buf, f) == sizeof buf && memcmp(buf, magic, sizeof buf) == 0;

	fclose(f);
	return is;
}

static char *read_file(struct arena *mem, const char *path, size_t *len, struct diag *d)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	size_t n = 0;

	if (fd < 0) {
		diag_error(d, nowhere, "'%s' can't be read: %s", path, strerror(errno));
		return NULL;
	}
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > INT64_C(1) << 32) {
		close(fd);
		diag_error(d, nowhere, "'%s' is no plan file", path);
		return NULL;
	}
	char *s = arena_alloc(mem, (size_t)st.st_size + 1);

	while (n < (size_t)st.st_size) {
		ssize_t k = read(fd, s + n, (size_t)st.st_size - n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		n += (size_t)k;
	}
	close(fd);
	if (n < (size_t)st.st_size) {
		diag_error(d, nowhere, "'%s' can't be read to its end", path);
		return NULL;
	}
	*len = n;
	return s;
}

/* The text after the header, checked against it. NULL after an error. */
static const char *check_header(const char *path, const char *s, size_t len, size_t *text_len, struct diag *d)
{
	const char *end = memchr(s, '\n', len < MAX_HEADER ? len : MAX_HEADER);
	unsigned long long sum, bytes;
	int version, used = 0;

	if (!end || len < sizeof magic || memcmp(s, magic, sizeof magic - 1) != 0) {
		diag_error(d, nowhere, "'%s' is no plan file", path);
		return NULL;
	}
	if (sscanf(s + sizeof magic - 1, "%9d", &version) != 1 || version < 1) {
		diag_error(d, nowhere, "'%s' is damaged: its header has no version", path);
		return NULL;
	}
	if (version > VERSION) {
		diag_error(d, nowhere, "'%s' is a plan of version %d; this ptc reads version %d", path, version, VERSION);
		diag_note(d, nowhere, "compile the model again with this ptc");
		return NULL;
	}
	if (sscanf(s + sizeof magic - 1, "%*9d %16llx %19llu%n", &sum, &bytes, &used) != 2 ||
	    s + sizeof magic - 1 + used != end) {
		diag_error(d, nowhere, "'%s' is damaged: its header can't be read", path);
		return NULL;
	}
	const char *text = end + 1;
	size_t n = len - (size_t)(text - s);

	if (bytes != n) {
		diag_error(d, nowhere, "'%s' is %s: %zu bytes where the header says %llu", path,
			   n < bytes ? "truncated" : "longer than it should be", n, bytes);
		return NULL;
	}
	if (fnv1a(FNV_START, text, n) != sum) {
		diag_error(d, nowhere, "'%s' has been edited or is damaged: its checksum is wrong", path);
		diag_note(d, nowhere, "compile the model again; `ptc opt` reads IR text without a header");
		return NULL;
	}
	*text_len = n;
	return text;
}

static bool check_block(struct placing *p, const struct block *block)
{
	struct loc at;

	for (uint32_t i = 0; i < block->args.n; i++)
		if (!place_checked(p, block->args.at[i], &at))
			return false;
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			if (!place_checked(p, op->out[i], &at))
				return false;
		if (op->code == OP_REPEAT && !check_block(p, op->body))
			return false;
	}
	return true;
}

static bool check_places(struct module *m, struct diag *d)
{
	struct placing p = { .m = m, .r = regions_of(m->mem, m), .d = d };
	struct span at;
	const char *refused = layout_refused(m->mem, m, &at);

	if (refused)
		return diag_error(d, at, "%s", refused);
	if (m->arena < 0 || m->host < 0 || m->workspace < 0 || m->micro < 1)
		return diag_error(d, nowhere, "the plan has no arena, or no microbatches");
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		struct value v = { .dt = b->dt, .nd = b->nd, .sh = b->store };
		int64_t bytes;

		memcpy(v.d, b->d, sizeof v.d);
		if (!safe_bytes(m, &v, &bytes))
			return diag_error(d, b->at, "the buffer '%s' is too large", b->name);
		if (b->role != B_INPUT && (b->off < 0 || b->off % 64 || bytes > (b->host ? m->host : m->arena) - b->off))
			return diag_error(d, b->at, "the buffer '%s' lies outside the arena", b->name);
	}
	note_targets(&m->top);
	return check_block(&p, &m->top);
}

struct module *plan_load(struct arena *mem, struct sources *src, const char *path, struct diag *d)
{
	size_t len, n;
	char *s = read_file(mem, path, &len, d);
	const char *text = s ? check_header(path, s, len, &n, d) : NULL;
	struct module *m = text ? module_parse(mem, path, text, n, d) : NULL;

	if (!m)
		return NULL;
	if (src && m->src && m->src != src) {
		*src = *m->src;
		m->src = src;
	}
	if (m->form != PLANNED) {
		diag_error(d, nowhere, "'%s' holds a module that is %s, not a plan", path, form_name[m->form]);
		return NULL;
	}
	return verify(m, d) && check_places(m, d) ? m : NULL;
}
