/* frontend/cmd.h - the driver: what ptc.c and the cmd_*.c share. The driver alone sees all
 * folders; each subcommand is one file. */
#ifndef PTC_CMD_H
#define PTC_CMD_H
#include "ir/ir.h"
#include "passes/passes.h"

/* Exit statuses. */
enum { DONE, WRONG, USAGE, MACHINE };

struct options {
	const char *file;                /* the model, plan or IR file */
	const char **files;              /* all of them, where there may be several */
	int nfiles;
	const char *out;                 /* -o */
	const char *plan, *mesh, *set;   /* set: all --set, joined by ',' */
	const char *add;                 /* all --add, joined by ';' */
	const char *after, *passes, *dump_after;
	const char *schedule;            /* a CSV to read */
	const char *same_bits;           /* settings, of check */
	const char *data, *init, *save;
	const char *resume, *checkpoint;
	const char *trace, *html;        /* files to write */
	double tokens;                   /* of a whole run */
	const char *calibrate;           /* a run's --json */
	int64_t ranks;
	bool fit;
	const char *backend;             /* NULL: cpu */
	int64_t steps, log_every, checkpoint_every, threads;
	int64_t seed;                    /* -1: not given */
	bool verify, time, json, eval_only, help, version;
	bool write_back, dry;            /* -w, --check of fmt */
	bool csv;
	bool quick;                      /* of calibrate */
};

static inline uint64_t seed_of(const struct options *o)
{
	return o->seed < 0 ? 0 : (uint64_t)o->seed;
}

/* One run of the program. */
struct session {
	struct arena *mem;
	struct sources src;
	struct diag diag;
	const struct options *opt;
};
void session_start(struct session *s, const struct options *opt);
void session_end(struct session *s);

/* What the command line overrides: used twice by `check`. schedule: a CSV. */
struct layout {
	const char *plan, *mesh, *set, *schedule, *add;
};

/* The model of s->opt->file as lowered, no pass run; NULL after errors. */
struct module *load_model(struct session *s, const struct layout *how);
/* A model is compiled through all passes, a plan is read. NULL after errors. */
struct module *load_plan(struct session *s);
bool is_model(const char *path);
/* False, with an error, if there is no such pass. */
bool pass_options(struct session *s, struct pass_options *po);
bool is_pass(struct session *s, const char *option, const char *name);
/* A whole file on the arena, NUL-terminated; NULL after an error has been reported. */
char *read_file(struct session *s, const char *path, size_t *len);
/* to path, "-" and NULL are stdout. False after an error has been reported. */
bool write_file(struct session *s, const char *path, const char *text, size_t len);

/* "dp 2 x tp 4", and the number of elements of the params. */
const char *mesh_text(struct arena *mem, const struct module *m);
int64_t param_count(const struct module *m);
/* An object of JSON: its params, FLOPs, inputs, mesh and what else a run depends on. */
const char *about_plan(struct session *s, const struct module *m);
/* The order of the CSV at path becomes that of m's pipeline, before any pass has run. */
bool take_schedule(struct session *s, struct module *m, const char *path);
int show_schedule(struct session *s, const struct module *m);
/* The table of collectives for people. */
void print_comm(struct session *s, const struct module *m, FILE *out);

/* The --set of a model that is small enough to be evaluated: the user's own, or more. */
const char *shrink_model(struct session *s, double budget);
void halve_chunks(struct module *m); /* of a smaller model: two parts each, as rows may be few */

int cmd_compile(struct session *s);
int cmd_run(struct session *s);
int cmd_check(struct session *s);
int cmd_verify(struct session *s);
int cmd_show(struct session *s);
int cmd_opt(struct session *s);
int cmd_explain(struct session *s);
int cmd_calibrate(struct session *s);
int cmd_fmt(struct session *s);
int cmd_import(struct session *s);

#endif
