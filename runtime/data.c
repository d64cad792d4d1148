/* runtime/data.c - training data: memory-mapped files cut in windows, in an order that depends on
 * nothing but seed and epoch.
 *
 * .bin: flat uint16 (at most 65536 tokens), uint32 or float32; .npy: the first dim is the example;
 * anything else: bytes. Sample j of step t is g = t B + j; its epoch g / E, its place there g % E;
 * rng.h's data_order says which example that is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/rng.h"
#include "runtime/internal.h"

enum element { E_U8, E_I8, E_U16, E_I16, E_U32, E_I32, E_I64, E_F32, E_F64, E_BOOL };
static const int element_bytes[] = { 1, 1, 2, 2, 4, 4, 8, 4, 8, 1 };
static const struct span nowhere;

struct file {
	const struct buffer *buf;
	const char *path;
	const unsigned char *map;
	int64_t bytes, skip; /* before the first element */
	enum element type;
	int64_t n, window, examples; /* elements; of an example */
};

/* What one input is given: a file, or all files of a folder in the order of their names. */
struct feed {
	const struct buffer *buf;
	const char *path;
	VEC(struct file) files;
	int64_t examples;
};

struct data {
	struct runtime *rt;
	VEC(struct feed *) feeds;
	int64_t batch, examples;
	uint64_t seed;
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && strcmp(s + n - k, end) == 0;
}

static bool map_file(struct file *f, struct diag *d)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return diag_error(d, nowhere, "the data '%s' can't be read: %s", f->path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return diag_error(d, nowhere, "the data '%s' is no file", f->path);
	}
	f->bytes = st.st_size;
	if (f->bytes) {
		void *p = mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);

		if (p == MAP_FAILED) {
			close(fd);
			return diag_error(d, nowhere, "the data '%s' can't be mapped: %s", f->path, strerror(errno));
		}
		f->map = p;
	}
	close(fd);
	return true;
}

/* -- .npy -- */

static bool npy_type(const char *s, enum element *t)
{
	static const struct { const char *name; enum element type; } types[] = {
		{ "|u1", E_U8 }, { "|i1", E_I8 }, { "<u2", E_U16 }, { "<i2", E_I16 }, { "<u4", E_U32 }, { "<i4", E_I32 },
		{ "<i8", E_I64 }, { "<f4", E_F32 }, { "<f8", E_F64 }, { "|b1", E_BOOL },
	};

	for (size_t i = 0; i < LEN(types); i++)
		if (strncmp(s, types[i].name, 3) == 0) {
			*t = types[i].type;
			return true;
		}
	return false;
}

/* 'key': what follows it in the header, NULL if it is not there. */
static const char *npy_key(const char *head, const char *key)
{
	const char *p = strstr(head, key);

	if (!p)
		return NULL;
	p += strlen(key);
	return p + strspn(p, ": '");
}

/* "x[batch, feat] takes (n, 3), n examples" */
static const char *shape_needed(struct arena *mem, const struct module *m, const struct buffer *b)
{
	struct text t = { .mem = mem };

	text_put(&t, "%s[", b->name);
	for (int i = 0; i < b->nd; i++)
		text_put(&t, "%s%s", i ? ", " : "", m->dims.at[b->d[i]].name);
	text_put(&t, "] takes (n");
	for (int i = 1; i < b->nd; i++)
		text_put(&t, ", %lld", (long long)dim_size(m, b->d[i]));
	text_put(&t, "), n examples");
	return t.s;
}

/* p: "(4, 3)". False, without a message: it is none. */
static bool npy_shape(struct file *f, const struct module *m, const char *p, struct arena *mem, struct diag *d)
{
	const char *shape = arena_strndup(mem, p, strcspn(p, ")") + 1);
	int nd = 0;
	int64_t n = 1;
	bool fits = true;

	if (*p++ != '(')
		return false;
	while (*p && *p != ')') {
		char *end;
		long long k = strtoll(p, &end, 10);

		if (end == p || k < 0 || __builtin_mul_overflow(n, k, &n))
			return false;
		fits = fits && nd < f->buf->nd && (nd == 0 || k == dim_size(m, f->buf->d[nd]));
		nd++;
		p = end + strspn(end, ", ");
	}
	if (!fits || nd != f->buf->nd)
		return diag_error(d, nowhere, "the data '%s' has the shape %s; the input %s", f->path, shape, shape_needed(mem, m, f->buf));
	f->n = n;
	return true;
}

static bool open_npy(struct file *f, const struct module *m, struct arena *mem, struct diag *d)
{
	int64_t len, at;

	if (f->bytes < 12 || memcmp(f->map, "\x93NUMPY", 6) != 0)
		return diag_error(d, nowhere, "the data '%s' is no .npy file", f->path);
	at = f->map[6] == 1 ? 10 : 12;
	len = f->map[8] | f->map[9] << 8;
	if (f->map[6] != 1)
		len |= (int64_t)f->map[10] << 16 | (int64_t)f->map[11] << 24;
	if (len > f->bytes - at)
		return diag_error(d, nowhere, "the data '%s' ends in its header", f->path);
	char *head = arena_strndup(mem, (const char *)f->map + at, (size_t)len);
	const char *type = npy_key(head, "'descr'"), *order = npy_key(head, "'fortran_order'"), *shape = npy_key(head, "'shape'");
	int before = d->errors;

	if (!type || !npy_type(type, &f->type)) {
		diag_error(d, nowhere, "the data '%s' for the input '%s' has elements of type '%.*s', which are not read", f->path, f->buf->name,
			   type ? (int)strcspn(type, "'}") : 0, type ? type : "");
		diag_note(d, nowhere, "read are |u1, |i1, <u2, <i2, <u4, <i4, <i8, <f4, <f8 and |b1: x.astype('<f4') of NumPy makes floats, '<i4' ints");
		return false;
	}
	if (!order || strncmp(order, "False", 5) != 0) {
		diag_error(d, nowhere, "the data '%s' for the input '%s' is in Fortran's order", f->path, f->buf->name);
		diag_note(d, nowhere, "np.ascontiguousarray(x) of NumPy lays it out as it is read");
		return false;
	}
	if (!shape || !npy_shape(f, m, shape, mem, d))
		return d->errors > before ? false : diag_error(d, nowhere, "the data '%s' has no shape", f->path);
	f->skip = at + len;
	if (f->n > (f->bytes - f->skip) / element_bytes[f->type])
		return diag_error(d, nowhere, "the data '%s' is truncated: %lld elements do not fit in %lld bytes", f->path,
				  (long long)f->n, (long long)f->bytes);
	return true;
}

/* -- opening -- */

static bool open_flat(struct file *f, struct diag *d)
{
	const struct buffer *b = f->buf;

	if (!ends_with(f->path, ".bin"))
		f->type = E_U8;
	else if (b->dt == F32 || b->dt == BF16)
		f->type = E_F32;
	else
		f->type = b->tokens > 0 && b->tokens <= 65536 ? E_U16 : E_U32;
	if (f->type == E_U8 && is_float(b->dt))
		return diag_error(d, nowhere, "the input '%s' is float: '%s' must be .bin (float32) or .npy", b->name, f->path);
	if (f->bytes % element_bytes[f->type])
		return diag_error(d, nowhere, "the data '%s' of %lld bytes is no whole number of %d-byte elements", f->path,
				  (long long)f->bytes, element_bytes[f->type]);
	f->n = f->bytes / element_bytes[f->type];
	return true;
}

/* What one example of the batch has. */
static int64_t example_elements(const struct module *m, const struct buffer *b)
{
	int64_t n = 1;

	for (int i = 1; i < b->nd; i++)
		n *= dim_size(m, b->d[i]);
	return n;
}

static bool open_file(const struct module *m, struct feed *feed, const char *path, struct arena *mem, struct diag *d)
{
	struct file f = { .buf = feed->buf, .path = path };
	bool ok = map_file(&f, d);

	f.window = example_elements(m, f.buf);
	ok = ok && (ends_with(path, ".npy") ? open_npy(&f, m, mem, d) : open_flat(&f, d));
	f.examples = ok ? f.n / f.window : 0;
	feed->examples += f.examples;
	PUSH(mem, &feed->files, f);
	return ok;
}

static int visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static bool open_folder(const struct module *m, struct feed *feed, struct arena *mem, struct diag *d)
{
	struct dirent **e;
	int n = scandir(feed->path, &e, visible, alphasort);
	bool ok = n >= 0 || diag_error(d, nowhere, "the data '%s' can't be read: %s", feed->path, strerror(errno));

	for (int i = 0; i < n; i++) {
		char *path = arena_printf(mem, "%s/%s", feed->path, e[i]->d_name);
		struct stat st;

		if (ok && stat(path, &st) == 0 && S_ISREG(st.st_mode))
			ok = open_file(m, feed, path, mem, d);
		free(e[i]);
	}
	if (n >= 0)
		free(e);
	return ok;
}

static bool open_feed(struct data *x, struct feed *feed, struct arena *mem, struct diag *d)
{
	struct stat st;
	bool folder = stat(feed->path, &st) == 0 && S_ISDIR(st.st_mode);

	if (!(folder ? open_folder(x->rt->m, feed, mem, d) : open_file(x->rt->m, feed, feed->path, mem, d)))
		return false;
	if (!feed->examples && folder)
		return diag_error(d, nowhere, "the data '%s' has no file with an example of '%s'", feed->path, feed->buf->name);
	if (!feed->examples)
		return diag_error(d, nowhere, "the data '%s' has %lld elements, fewer than one example of '%s' (%lld)", feed->path,
				  (long long)feed->files.at[0].n, feed->buf->name, (long long)feed->files.at[0].window);
	if (x->examples && x->examples != feed->examples)
		return diag_error(d, nowhere, "the data '%s' has %lld examples; '%s' has %lld", feed->path, (long long)feed->examples,
				  x->feeds.at[0]->path, (long long)x->examples);
	x->examples = feed->examples;
	return true;
}

static const struct buffer *only_input(const struct module *m)
{
	const struct buffer *one = NULL;

	for (uint32_t i = 0; i < m->bufs.n; i++)
		if (m->bufs.at[i]->role == B_INPUT && !m->bufs.at[i]->next_of) {
			if (one)
				return NULL;
			one = m->bufs.at[i];
		}
	return one;
}

static struct feed *feed_of(struct data *x, const char *buffer)
{
	for (uint32_t i = 0; i < x->feeds.n; i++)
		if (streq(x->feeds.at[i]->buf->name, buffer))
			return x->feeds.at[i];
	return NULL;
}

static bool no_input(const struct module *m, const char *arg, int len, struct arena *mem, struct diag *d)
{
	struct text all = { .mem = mem };

	for (uint32_t i = 0; i < m->bufs.n; i++)
		if (m->bufs.at[i]->role == B_INPUT && !m->bufs.at[i]->next_of)
			text_put(&all, "%s%s", all.n ? ", " : "", m->bufs.at[i]->name);
	diag_error(d, nowhere, "--data %s: there is no input '%.*s'", arg, len, arg);
	diag_note(d, nowhere, "inputs that take data: %s", all.n ? all.s : "none");
	return false;
}

static bool bind_one(struct data *x, const char *arg, struct arena *mem, struct diag *d)
{
	const struct module *m = x->rt->m;
	const char *eq = strchr(arg, '=');
	const struct buffer *b = eq ? find_buffer(m, arena_strndup(mem, arg, (size_t)(eq - arg))) : NULL;
	const char *path = b ? eq + 1 : arg;

	if (!b && eq && access(arg, F_OK) != 0)
		return no_input(m, arg, (int)(eq - arg), mem, d);
	if (!b)
		b = only_input(m);
	if (!b)
		return diag_error(d, nowhere, "--data %s: which input is it for? say NAME=FILE", arg);
	if (b->role != B_INPUT || b->next_of)
		return diag_error(d, nowhere, "--data %s: '%s' is no input that takes data", arg, b->name);
	if (feed_of(x, b->name))
		return diag_error(d, nowhere, "--data %s: '%s' has data already", arg, b->name);
	if (!example_elements(m, b))
		return true; /* nothing of it will be read */
	struct feed *feed = NEW(mem, struct feed);

	feed->buf = b;
	feed->path = path;
	PUSH(mem, &x->feeds, feed);
	return open_feed(x, feed, mem, d);
}

static bool all_bound(struct data *x, struct diag *d)
{
	const struct module *m = x->rt->m;

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];

		if (b->role != B_INPUT || b->next_of || feed_of(x, b->name) || !example_elements(m, b))
			continue;
		diag_error(d, b->at, "the input '%s' has no data", b->name);
		diag_note(d, nowhere, "--data %s%sFILE", only_input(m) ? "" : b->name, only_input(m) ? "" : "=");
		return false;
	}
	return true;
}

struct data *data_open(struct arena *mem, struct runtime *r, const struct run_options *opt, uint64_t seed, struct diag *d)
{
	struct data *x = NEW(mem, struct data);

	x->rt = r;
	x->seed = seed;
	x->batch = r->m->batch == NODIM ? 1 : dim_size(r->m, r->m->batch);
	bool ok = true;

	for (int i = 0; ok && i < opt->ndata; i++)
		ok = bind_one(x, opt->data[i], mem, d);
	if (ok && all_bound(x, d))
		return x;
	data_close(x);
	return NULL;
}

void data_close(struct data *x)
{
	if (!x)
		return;
	for (uint32_t i = 0; i < x->feeds.n; i++)
		for (uint32_t k = 0; k < x->feeds.at[i]->files.n; k++) {
			const struct file *f = &x->feeds.at[i]->files.at[k];

			if (f->map)
				munmap((void *)(uintptr_t)f->map, (size_t)f->bytes);
		}
	x->feeds.n = 0;
}

/* -- a step's batch -- */

static double element(const struct file *f, int64_t i)
{
	const unsigned char *p = f->map + f->skip + i * element_bytes[f->type];
	union { uint16_t u2; int16_t i2; uint32_t u4; int32_t i4; int64_t i8; float f4; double f8; } v;

	memcpy(&v, p, (size_t)element_bytes[f->type]);
	switch (f->type) {
	case E_U8:
		return *p;
	case E_I8:
		return (int8_t)*p;
	case E_U16:
		return v.u2;
	case E_I16:
		return v.i2;
	case E_U32:
		return v.u4;
	case E_I32:
		return v.i4;
	case E_I64:
		return (double)v.i8;
	case E_F32:
		return v.f4;
	case E_F64:
		return v.f8;
	case E_BOOL:
		return *p != 0;
	}
	return 0;
}

static bool fetch(const struct file *f, const struct buffer *b, int64_t i, void *to, int64_t at, struct diag *d)
{
	double v = element(f, i);

	if (b->tokens > 0 && v != -100 && !(v >= 0 && v < (double)b->tokens))
		return diag_error(d, nowhere, "the data '%s' has %.0f at offset %lld; '%s' takes 0 to %lld", f->path, v,
				  (long long)(f->skip + i * element_bytes[f->type]), b->name, (long long)b->tokens - 1);
	if (!is_float(b->dt) && v != floor(v))
		return diag_error(d, nowhere, "the data '%s' has %g at offset %lld; '%s' takes whole numbers", f->path, v,
				  (long long)(f->skip + i * element_bytes[f->type]), b->name);
	nest_store(b->dt, to, at, v);
	return true;
}

/* k = 0: the window itself; else its tokens k places on, -100 beyond the file. */
static bool fill(const struct file *f, struct host_input *in, int64_t k, int64_t j, int64_t example, struct diag *d)
{
	for (int64_t p = 0; p < f->window; p++) {
		int64_t i = example * f->window + p + k, to = j * f->window + p;

		if (i >= f->n)
			nest_store(in->buf->dt, in->x, to, -100);
		else if (!fetch(f, in->buf, i, in->x, to, d))
			return false;
	}
	return true;
}

/* The file that holds an example, which becomes the one in that file. */
static const struct file *file_with(const struct feed *feed, int64_t *example)
{
	uint32_t i = 0;

	while (*example >= feed->files.at[i].examples)
		*example -= feed->files.at[i++].examples;
	return &feed->files.at[i];
}

bool data_step(struct data *x, int64_t step, struct diag *d)
{
	for (uint32_t i = 0; i < x->rt->inputs.n; i++) {
		struct host_input *in = x->rt->inputs.at[i];
		const char *from = in->buf->next_of ? in->buf->next_of : in->buf->name;
		const struct feed *feed = feed_of(x, from);
		int64_t k = in->buf->next_of ? in->buf->next_k : 0;

		if (!in->count)
			continue;
		if (!feed || in->count != x->batch * feed->files.at[0].window)
			return diag_error(d, in->buf->at, "the input '%s' does not have the shape of its data", in->buf->name);
		for (int64_t j = 0; j < x->batch; j++) {
			uint64_t g = (uint64_t)step * (uint64_t)x->batch + (uint64_t)j, e = (uint64_t)x->examples;
			int64_t example = (int64_t)data_order(x->seed, g / e, e, g % e);
			const struct file *f = file_with(feed, &example);

			if (!fill(f, in, k, j, example, d))
				return false;
		}
	}
	return true;
}
