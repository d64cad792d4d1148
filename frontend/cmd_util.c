/* frontend/cmd_util.c - what the subcommands share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "frontend/cmd.h"
#include "frontend/frontend.h"
#include "ir/file.h"
#include "runtime/runtime.h"

void session_start(struct session *s, const struct options *opt)
{
	*s = (struct session){ .mem = arena_new(), .opt = opt };
	diag_init(&s->diag, s->mem, &s->src, stderr);
}

void session_end(struct session *s)
{
	arena_free(s->mem);
}

bool is_model(const char *path)
{
	size_t n = strlen(path);

	return n >= 5 && streq(path + n - 5, ".pdsl");
}

bool is_pass(struct session *s, const char *option, const char *name)
{
	struct text all = { .mem = s->mem };

	for (const struct pass *p = passes; p->name; p++) {
		if (streq(p->name, name))
			return true;
		text_put(&all, "%s%s", all.n ? ", " : "", p->name);
	}
	diag_error(&s->diag, (struct span){ 0 }, "%s: there is no pass '%s'", option, name);
	diag_note(&s->diag, (struct span){ 0 }, "passes: %s", all.s);
	return false;
}

bool pass_options(struct session *s, struct pass_options *po)
{
	*po = (struct pass_options){
		.dump_after = s->opt->dump_after,
		.verify = s->opt->verify,
		.time = s->opt->time,
	};
	return !po->dump_after || streq(po->dump_after, "all") || is_pass(s, "--dump-after", po->dump_after);
}

char *read_file(struct session *s, const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	char *text = NULL;

	if (!f || fstat(fileno(f), &st)) {
		diag_error(&s->diag, (struct span){ 0 }, "%s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		diag_error(&s->diag, (struct span){ 0 }, "%s is not a file", path);
	} else {
		text = arena_alloc(s->mem, (size_t)st.st_size + 1);
		*len = fread(text, 1, (size_t)st.st_size, f);
		if (ferror(f)) {
			diag_error(&s->diag, (struct span){ 0 }, "%s: %s", path, strerror(errno));
			text = NULL;
		}
	}
	if (f)
		fclose(f);
	return text;
}

bool write_file(struct session *s, const char *path, const char *text, size_t len)
{
	struct outfile o;

	if (path && !streq(path, "-")) {
		if (!outfile_open(&o, s->mem, path, &s->diag))
			return false;
		outfile_put(&o, text, len);
		return outfile_close(&o, true, &s->diag);
	}
	return fwrite(text, 1, len, stdout) == len; /* main says it if not */
}

const char *mesh_text(struct arena *mem, const struct module *m)
{
	struct text t = { .mem = mem };

	for (uint32_t i = 0; i < m->mesh.n; i++)
		text_put(&t, "%s%s %d", i ? " x " : "", m->mesh.at[i].name, m->mesh.at[i].size);
	return t.n ? t.s : "1";
}

int64_t param_count(const struct module *m)
{
	int64_t total = 0;

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *b = m->bufs.at[i];
		int64_t count = b->role == B_PARAM;

		for (int k = 0; k < b->nd; k++)
			count *= dim_size(m, b->d[k]);
		total += count;
	}
	return total;
}

struct module *load_model(struct session *s, const struct layout *how)
{
	const char *sets[] = { how->set };
	struct front_options front = { how->plan, how->mesh, sets, how->set ? 1 : 0, how->add };

	struct module *m = front_compile(s->mem, &s->src, &s->diag, s->opt->file, &front);

	return m && how->schedule && !take_schedule(s, m, how->schedule) ? NULL : m;
}

struct module *load_plan(struct session *s)
{
	const struct options *o = s->opt;

	if (is_model(o->file)) {
		struct pass_options po;

		if (!pass_options(s, &po))
			return NULL;
		struct module *m = load_model(s, &(struct layout){ o->plan, o->mesh, o->set, o->schedule, o->add });
		return m && run_passes(m, &s->diag, &po) ? m : NULL;
	}
	if (o->plan || o->mesh || o->set || o->schedule || o->add) {
		diag_error(&s->diag, (struct span){ 0 }, "%s is a plan: its sizes and its mesh are fixed", o->file);
		diag_note(&s->diag, (struct span){ 0 }, "%s goes with the model", o->plan ? "--plan" : o->mesh ? "--mesh" : o->set ? "--set" : o->add ? "--add" : "--schedule");
		return NULL;
	}
	return plan_load(s->mem, &s->src, o->file, &s->diag);
}
