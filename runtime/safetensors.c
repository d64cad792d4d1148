/* runtime/safetensors.c - params, or all that a run goes on from, as one file of logical tensors: 8 bytes of length, a JSON
 * header, the bytes of all tensors, float32. Where a param has a float32 master, that is what is saved.
 *
 * A checkpoint has the optimizer's tensors too, and says in its metadata how many steps are done, and of which seed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/file.h"
#include "runtime/internal.h"

enum { MAX_HEADER = 100 << 20 };
static const struct span nowhere;

static int64_t count_of(const struct module *m, const struct buffer *b)
{
	int64_t n = 1;

	for (int i = 0; i < b->nd; i++)
		n *= dim_size(m, b->d[i]);
	return n;
}

/* The float32 master of a param, or itself. */
static const struct buffer *master_of(struct runtime *r, const struct buffer *b)
{
	const struct buffer *x = find_buffer(r->m, arena_printf(r->mem, "%s:master", b->name));

	return x ? x : b;
}

/* Is b in a file of params, or of a whole run? Masters are saved as the params. */
static bool is_saved(struct runtime *r, const struct buffer *b, bool whole)
{
	if (b->role == B_OPT)
		return whole && !(b->owner && streq(b->name, arena_printf(r->mem, "%s:master", b->owner)));
	return b->role == B_PARAM || b->role == B_STATE;
}

static const char *const steps_key = "ptc steps", *const seed_key = "ptc seed"; /* of the metadata, which is text */

/* -- saving -- */

static json_t *metadata(const struct progress *done)
{
	char steps[24], seed[24];

	snprintf(steps, sizeof steps, "%" PRId64, done->steps);
	snprintf(seed, sizeof seed, "%" PRIu64, done->seed);
	return json_pack("{s:s, s:s}", steps_key, steps, seed_key, seed);
}

/* done: of a whole run; NULL: of params */
static json_t *header(struct runtime *r, const struct progress *done)
{
	json_t *h = json_object();
	int64_t at = 0;

	if (h && done)
		json_object_set_new(h, "__metadata__", metadata(done));
	for (uint32_t i = 0; h && i < r->m->bufs.n; i++) {
		const struct buffer *b = r->m->bufs.at[i];

		if (!is_saved(r, b, done != NULL))
			continue;
		json_t *shape = json_array();

		for (int k = 0; k < b->nd; k++)
			json_array_append_new(shape, json_integer(dim_size(r->m, b->d[k])));
		int64_t end = at + 4 * count_of(r->m, b);

		json_object_set_new(h, b->name, json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape,
							  "data_offsets", (json_int_t)at, (json_int_t)end));
		at = end;
	}
	return h;
}

static bool write_buffer(struct runtime *r, const struct buffer *b, FILE *f)
{
	int64_t n = count_of(r->m, b);
	double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
	float *y = malloc((size_t)(n ? n : 1) * sizeof *y);
	bool ok = x && y;

	if (ok) {
		rt_get(r, b->name, x);
		for (int64_t i = 0; i < n; i++)
			y[i] = (float)x[i];
		ok = fwrite(y, sizeof *y, (size_t)n, f) == (size_t)n;
	} else {
		errno = ENOMEM;
	}
	free(x);
	free(y);
	return ok;
}

static bool write_all(struct runtime *r, const struct progress *done, FILE *f)
{
	json_t *h = header(r, done);
	char *s = h ? json_dumps(h, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	bool ok = s != NULL;

	if (ok) {
		uint64_t len = (strlen(s) + 7) / 8 * 8;
		unsigned char le[8];

		for (int i = 0; i < 8; i++)
			le[i] = (unsigned char)(len >> (8 * i));
		ok = fwrite(le, 1, 8, f) == 8 && fputs(s, f) >= 0;
		for (size_t n = strlen(s); ok && n < len; n++)
			ok = fputc(' ', f) != EOF;
	} else {
		errno = ENOMEM;
	}
	for (uint32_t i = 0; ok && i < r->m->bufs.n; i++)
		if (is_saved(r, r->m->bufs.at[i], done != NULL))
			ok = write_buffer(r, master_of(r, r->m->bufs.at[i]), f);
	free(s);
	json_decref(h);
	return ok;
}

bool run_save(struct runtime *r, const char *path, const struct progress *done, struct diag *d)
{
	struct outfile o;

	if (!outfile_open(&o, r->mem, path, d))
		return false;
	errno = 0;
	return outfile_close(&o, write_all(r, done, o.f), d);
}

bool params_save(struct runtime *r, const char *path, struct diag *d)
{
	return run_save(r, path, NULL, d);
}

/* -- loading -- */

struct st_file {
	const char *path;
	const unsigned char *map;
	int64_t bytes, data; /* where the tensors start */
	json_t *head;
};

static void st_close(struct st_file *f)
{
	if (f->map)
		munmap((void *)(uintptr_t)f->map, (size_t)f->bytes);
	if (f->head)
		json_decref(f->head);
}

static bool st_open(struct st_file *f, struct diag *d)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint64_t len = 0;

	if (fd < 0)
		return diag_error(d, nowhere, "'%s' can't be read: %s", f->path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 8) {
		close(fd);
		return diag_error(d, nowhere, "'%s' is no safetensors file", f->path);
	}
	f->bytes = st.st_size;
	void *p = mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);

	close(fd);
	if (p == MAP_FAILED)
		return diag_error(d, nowhere, "'%s' can't be mapped: %s", f->path, strerror(errno));
	f->map = p;
	for (int i = 0; i < 8; i++)
		len |= (uint64_t)f->map[i] << (8 * i);
	if (len > MAX_HEADER || len > (uint64_t)f->bytes - 8)
		return diag_error(d, nowhere, "'%s' is no safetensors file, or is truncated: a header of %" PRIu64 " bytes", f->path,
				  len);
	json_error_t why;

	f->head = json_loadb((const char *)f->map + 8, (size_t)len, JSON_REJECT_DUPLICATES, &why);
	f->data = 8 + (int64_t)len;
	if (!json_is_object(f->head))
		return diag_error(d, nowhere, "'%s' has a header that is no JSON object: %s", f->path, f->head ? "" : why.text);
	return true;
}

struct tensor_ref {
	const unsigned char *x;
	enum dtype dt;
};

static bool st_find(const struct st_file *f, struct runtime *r, const struct buffer *b, struct tensor_ref *t,
		    struct diag *d)
{
	json_t *e = json_object_get(f->head, b->name), *shape = json_object_get(e, "shape");
	json_t *off = json_object_get(e, "data_offsets");
	const char *dt = json_string_value(json_object_get(e, "dtype"));

	if (!e)
		return diag_error(d, nowhere, "'%s' has no tensor '%s'", f->path, b->name);
	if (!dt || (!streq(dt, "F32") && !streq(dt, "BF16")))
		return diag_error(d, nowhere, "'%s': '%s' has dtype %s; F32 and BF16 are read", f->path, b->name, dt ? dt : "none");
	if ((int)json_array_size(shape) != b->nd)
		return diag_error(d, nowhere, "'%s': '%s' has %zu dims; the model has %d", f->path, b->name,
				  json_array_size(shape), b->nd);
	for (int i = 0; i < b->nd; i++)
		if (json_integer_value(json_array_get(shape, (size_t)i)) != dim_size(r->m, b->d[i]))
			return diag_error(d, nowhere, "'%s': '%s' has size %" JSON_INTEGER_FORMAT " along '%s'; the model has %lld",
					  f->path, b->name, json_integer_value(json_array_get(shape, (size_t)i)),
					  r->m->dims.at[b->d[i]].name, (long long)dim_size(r->m, b->d[i]));
	t->dt = streq(dt, "F32") ? F32 : BF16;
	int64_t from = json_integer_value(json_array_get(off, 0)), to = json_integer_value(json_array_get(off, 1));

	if (json_array_size(off) != 2 || from < 0 || to < from || to > f->bytes - f->data ||
	    to - from != count_of(r->m, b) * dtype_bytes(t->dt))
		return diag_error(d, nowhere, "'%s' is truncated or damaged: '%s' lies outside it", f->path, b->name);
	t->x = f->map + f->data + from;
	return true;
}

static bool load_one(const struct st_file *f, struct runtime *r, const struct buffer *b, bool whole, struct diag *d)
{
	struct tensor_ref t = { 0 };
	int64_t n = count_of(r->m, b);

	if (!whole && b->role == B_STATE && !json_object_get(f->head, b->name))
		return true; /* it keeps its initial value */
	if (!st_find(f, r, b, &t, d))
		return false;
	double *x = malloc((size_t)(n ? n : 1) * sizeof *x);

	if (!x)
		return diag_error(d, nowhere, "no memory for '%s'", b->name);
	for (int64_t i = 0; i < n; i++) {
		float v = 0;
		uint16_t h = 0;

		if (t.dt == F32)
			memcpy(&v, t.x + 4 * i, sizeof v);
		else
			memcpy(&h, t.x + 2 * i, sizeof h);
		x[i] = (double)(t.dt == F32 ? v : bf16_float(h));
	}
	rt_set(r, b->name, x);
	const struct buffer *master = master_of(r, b);

	if (master != b)
		rt_set(r, master->name, x);
	free(x);
	return true;
}

static bool load_all(const struct st_file *f, struct runtime *r, bool whole, struct diag *d)
{
	for (uint32_t i = 0; i < r->m->bufs.n; i++)
		if (is_saved(r, r->m->bufs.at[i], whole) && !load_one(f, r, r->m->bufs.at[i], whole, d))
			return false;
	return true;
}

bool params_load(struct runtime *r, const char *path, struct diag *d)
{
	struct st_file f = { .path = path };
	bool ok = st_open(&f, d) && load_all(&f, r, false, d);

	st_close(&f);
	return ok;
}

/* -- checkpoints -- */

/* A whole number, of a value of the metadata. */
static bool read_number(const json_t *meta, const char *key, uint64_t *x)
{
	const char *s = json_string_value(json_object_get(meta, key));
	char *end;

	if (!s || *s < '0' || *s > '9')
		return false;
	errno = 0;
	*x = strtoull(s, &end, 10);
	return !*end && !errno;
}

bool run_progress(const char *path, struct progress *done, struct diag *d)
{
	struct st_file f = { .path = path };
	bool ok = st_open(&f, d);
	const json_t *meta = json_object_get(f.head, "__metadata__");
	uint64_t steps = 0;

	if (ok && (!read_number(meta, steps_key, &steps) || steps > INT64_MAX || !read_number(meta, seed_key, &done->seed))) {
		ok = diag_error(d, nowhere, "'%s' is no checkpoint of a run", path);
		diag_note(d, nowhere, "a file of params alone is one to begin from: --init %s", path);
	}
	done->steps = (int64_t)steps;
	st_close(&f);
	return ok;
}

/* All tensors of the file have a place in the model: another optimizer would go on without what this one left. */
static bool all_known(const struct st_file *f, struct runtime *r, struct diag *d)
{
	const char *name;
	json_t *tensor;

	json_object_foreach(f->head, name, tensor) {
		const struct buffer *b = streq(name, "__metadata__") ? NULL : find_buffer(r->m, name);

		if (!streq(name, "__metadata__") && (!b || !is_saved(r, b, true))) {
			diag_error(d, nowhere, "'%s' is of another model: it has '%s'", f->path, name);
			diag_note(d, nowhere, "--init %s takes the params that are in both, and begins with step 0", f->path);
			return false;
		}
	}
	return true;
}

bool run_load(struct runtime *r, const char *path, struct diag *d)
{
	struct st_file f = { .path = path };
	bool ok = st_open(&f, d) && all_known(&f, r, d) && load_all(&f, r, true, d);

	st_close(&f);
	return ok;
}
