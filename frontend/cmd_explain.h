/* frontend/cmd_explain.h - the parts of `ptc explain`: cmd_explain*.c. */
#ifndef PTC_CMD_EXPLAIN_H
#define PTC_CMD_EXPLAIN_H
#include <jansson.h>

#include "frontend/cmd.h"
#include "passes/live.h"
#include "passes/report.h"

/* All that is said of one plan. */
struct facts {
	const char *name;         /* the file, or the plan's name where one file has several */
	struct module *m;
	struct flops flops;
	struct stage_live *live;  /* by stage */
	struct step_time time;
	double factor;            /* of times, by --calibrate; else 1 */
	int stages, fullest;      /* fullest: the stage with the highest peak */
	int64_t peak;
};

/* False after an error: a plan that ptc did not make. */
bool find_facts(struct session *s, struct module *m, struct facts *f);
double chunk_seconds(const struct facts *f, int stage, enum action_kind kind); /* of all chunks of a stage, one microbatch */

/* A plan with something changed: settings of --set, lines of --add. */
struct change {
	const char *set, *add;
	int64_t peak, rows, micro; /* bytes; rows of a microbatch on a rank; microbatches, if it is about these */
	double step;               /* seconds, predicted */
	bool fits;
};

struct fit {
	double limit;              /* bytes a rank */
	bool fits;
	struct change microbatch;  /* the largest that fits; rows 0: none does */
	struct change *change;     /* that save memory, if it does not fit; those that make it fit first, then by time */
	int n;
};
bool find_fit(struct session *s, const struct facts *f, struct fit *x); /* false after an error */
int64_t rows_of_microbatch(const struct module *m);                     /* 0: no inputs */
void print_fit(struct session *s, const struct facts *f, const struct fit *x);
json_t *fit_json(const struct facts *f, const struct fit *x);

/* Scales what is predicted to the run in a file that `ptc run --json` wrote. False after an error. */
bool calibrate_to(struct session *s, struct facts *f, const char *path);
bool write_html(struct session *s, const struct facts *f); /* --html; false after an error */

/* Several plans side by side: at most MAX_SIDE in a table. */
enum { MAX_SIDE = 5 };
void print_sides(struct session *s, const struct facts *all, int n);

/* Of a run of so many tokens. */
struct whole_run {
	double tokens, steps, seconds, dollars, joules;
};
double joules_of(const struct facts *f); /* of a step, at the rated power of all devices; 0: not known */
struct whole_run run_of(const struct facts *f, double tokens);

/* "1.2 GB", on the arena; a file's name without its folders, shortened. */
const char *amount(struct arena *mem, double x, const char *unit);
const char *short_name(struct arena *mem, const char *name, int most);

json_t *explain_json(struct session *s, const struct facts *f);
void print_held(struct session *s, const struct facts *f); /* what is live at the peak, for people */
#endif
