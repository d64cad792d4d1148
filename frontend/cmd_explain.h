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
	int stages, fullest;      /* fullest: the stage with the highest peak */
	int64_t peak;
};

/* False after an error: a plan that ptc did not make. */
bool find_facts(struct session *s, struct module *m, struct facts *f);
double chunk_seconds(const struct facts *f, int stage, enum action_kind kind); /* of all chunks of a stage, one microbatch */
double joules_of(const struct facts *f);     /* of a step, at the rated power of all devices; 0: not known */

/* "1.2 GB", "3.40 ms", "1 h 12 min": on the arena. */
const char *amount(struct arena *mem, double x, const char *unit);
const char *seconds_text(struct arena *mem, double x);

json_t *explain_json(struct session *s, const struct facts *f);
void print_held(struct session *s, const struct facts *f); /* what is live at the peak, for people */
#endif
