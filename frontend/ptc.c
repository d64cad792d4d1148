/* frontend/ptc.c - the program: reads the command line and calls a subcommand. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/cmd.h"
#include "frontend/version.h"
#include "runtime/runtime.h"

enum { COMPILE = 1, RUN = 2, CHECK = 4, SHOW = 8, OPT = 16, EXPLAIN = 32, FMT = 64, IMPORT = 128, VERIFY = 256,
       CALIBRATE = 512 };

struct command {
	const char *name;
	int bit;
	int (*run)(struct session *s);
	const char *usage, *what;
};

static const struct command commands[] = {
	{ "compile", COMPILE, cmd_compile, "model.pdsl -o plan", "compile a model into a plan ('compile' may be left out)" },
	{ "run", RUN, cmd_run, "plan|model.pdsl --data FILE --steps N", "train" },
	{ "check", CHECK, cmd_check, "model.pdsl", "compare the plan with its one-rank twin" },
	{ "explain", EXPLAIN, cmd_explain, "plan|model.pdsl...", "say what a step computes, sends and stores" },
	{ "calibrate", CALIBRATE, cmd_calibrate, "-o here.pdsl", "measure this machine into hardware blocks" },
	{ "verify", VERIFY, cmd_verify, "plan|model.pdsl", "prove that a plan is safe, for all its ranks" },
	{ "show", SHOW, cmd_show, "plan|model.pdsl", "print the IR" },
	{ "opt", OPT, cmd_opt, "--pass=A,B in.pir", "run passes on IR text" },
	{ "fmt", FMT, cmd_fmt, "FILE...", "lay models out ('-': stdin)" },
	{ "import", IMPORT, cmd_import, "config.json -o model.pdsl", "make a model of a Hugging Face config" },
};

enum type { FLAG, TEXT, WHOLE, COUNT, JOINED, LINES };

struct option {
	const char *name, *arg;
	enum type type;
	size_t at;
	int commands;
	const char *what;
};

#define AT(field) offsetof(struct options, field)
enum { MODEL = COMPILE | RUN | CHECK | SHOW | EXPLAIN | VERIFY };
static const struct option options[] = {
	{ "-o", "FILE", TEXT, AT(out), COMPILE | OPT | SHOW | IMPORT | CALIBRATE, "where to write ('-': stdout)" },
	{ "--plan", "NAME", TEXT, AT(plan), MODEL, "which plan of the model" },
	{ "--mesh", "dp=2,tp=4", TEXT, AT(mesh), MODEL, "sizes of the plan's axes; others become 1" },
	{ "--set", "seq=64,...", JOINED, AT(set), MODEL, "sizes of dims, values of constants and settings" },
	{ "--add", "'a -> b'", LINES, AT(add), MODEL, "a line more in the plan, behind its own" },
	{ "--schedule", "FILE.csv", TEXT, AT(schedule), MODEL, "the order of a pipeline's actions" },
	{ "--verify", NULL, FLAG, AT(verify), MODEL | OPT, "check the IR after every pass" },
	{ "--dump-after", "NAME|all", TEXT, AT(dump_after), MODEL | OPT, "print the IR after a pass, to stderr" },
	{ "--time", NULL, FLAG, AT(time), MODEL | OPT, "print the time of every pass, to stderr" },
	{ "--after", "PASS", TEXT, AT(after), SHOW, "the IR after this pass ('lower': as lowered)" },
	{ "--csv", NULL, FLAG, AT(csv), SHOW, "the order of a pipeline's actions, as --schedule reads it" },
	{ "--pass", "A,B", TEXT, AT(passes), OPT, "the passes to run, in this order" },
	{ "--steps", "N", WHOLE, AT(steps), RUN, "how many steps" },
	{ "--data", "FILE", TEXT, AT(data), RUN, "the data: a file of text, or INPUT=FILE,..." },
	{ "--seed", "N", WHOLE, AT(seed), RUN | CHECK, "of initial params, dropout and the order of data" },
	{ "--init", "FILE", TEXT, AT(init), RUN, "safetensors file to begin from" },
	{ "--save", "FILE", TEXT, AT(save), RUN, "safetensors file to write the params to" },
	{ "--checkpoint", "FILE", TEXT, AT(checkpoint), RUN, "write all that the run goes on from, at its end or on Ctrl-C" },
	{ "--checkpoint-every", "N", WHOLE, AT(checkpoint_every), RUN, "and each N steps" },
	{ "--resume", "FILE", TEXT, AT(resume), RUN, "go on from a checkpoint, on any mesh; --steps counts from the first step of all" },
	{ "--trace", "FILE", TEXT, AT(trace), RUN | EXPLAIN, "write a step's timeline as Chrome's or Perfetto's JSON" },
	{ "--log-every", "N", WHOLE, AT(log_every), RUN, "steps between two lines" },
	{ "--json", NULL, FLAG, AT(json), RUN | EXPLAIN | VERIFY, "for programs" },
	{ "--tokens", "15T", COUNT, AT(tokens), EXPLAIN, "of a whole run: what time, money and energy it takes" },
	{ "--html", "FILE", TEXT, AT(html), EXPLAIN, "write all that is known of a step as a page for a browser" },
	{ "--calibrate", "RUN.jsonl", TEXT, AT(calibrate), EXPLAIN, "what `ptc run --json` printed: times are scaled to it" },
	{ "--ranks", "N", WHOLE, AT(ranks), CALIBRATE, "measure for this number of ranks; else for 1, 2, 4 and 8" },
	{ "--fit", NULL, FLAG, AT(fit), EXPLAIN, "the largest microbatch that fits, or what to change" },
	{ "--evaluator", NULL, FLAG, AT(eval_only), CHECK, "on the reference evaluator only" },
	{ "--same-bits", "name=value,...", TEXT, AT(same_bits), CHECK, "with these settings too it computes the same, bit for bit" },
	{ "--quick", NULL, FLAG, AT(quick), CALIBRATE, "a few small models only, to see how it goes" },
	{ "--backend", "cpu|cuda", TEXT, AT(backend), RUN | CHECK | CALIBRATE, "what carries the plan out" },
	{ "--threads", "N", WHOLE, AT(threads), RUN | CHECK, "cores to use (0: all)" },
	{ "-w", NULL, FLAG, AT(write_back), FMT, "write the files back" },
	{ "--check", NULL, FLAG, AT(dry), FMT, "only name the files that would change; then exit 1" },
	{ "--help", NULL, FLAG, AT(help), ~0, "this" },
	{ "--version", NULL, FLAG, AT(version), ~0, "the version of ptc, and what it was built with" },
};

static void usage(FILE *to)
{
	fputs("ptc compiles a model and its layout into a parallel training plan, and runs it\n\n", to);
	for (size_t i = 0; i < LEN(commands); i++)
		fprintf(to, "  ptc %s%s%-*s  %s\n", i ? commands[i].name : "", i ? " " : "",
			(int)(46 - (i ? strlen(commands[i].name) + 1 : 0)), commands[i].usage, commands[i].what);
	fputs("\nptc COMMAND --help lists the options of a command, ptc --version says what this is.\n", to);
}

#ifdef __clang__
#define COMPILER "" /* its version names it */
#else
#define COMPILER "gcc "
#endif

static void version(void)
{
	struct arena *mem = arena_new();
	struct text t = { .mem = mem };

	backend_versions(&t);
	printf("ptc %s\n%sbuilt by %s%s\n", PTC_VERSION, t.s, COMPILER, __VERSION__);
	arena_free(mem);
}

static void help(const struct command *c)
{
	printf("ptc %s %s\n  %s\n\n", c->name, c->usage, c->what);
	for (size_t i = 0; i < LEN(options); i++) {
		const struct option *o = &options[i];

		if (o->commands & c->bit)
			printf("  %s%s%-*s  %s\n", o->name, o->arg ? (o->name[1] == '-' ? "=" : " ") : "",
			       (int)(26 - strlen(o->name) - (o->arg ? 1 : 0)), o->arg ? o->arg : "", o->what);
	}
}

static int wrong_usage(const char *what, const char *arg, const char *hint)
{
	fprintf(stderr, "ptc: error: %s '%s'\n", what, arg);
	if (hint)
		fprintf(stderr, "ptc: note: did you mean '%s'?\n", hint);
	else
		fputs("ptc: note: 'ptc --help' says what there is\n", stderr);
	return USAGE;
}

/* "300e9", "15T" */
static bool read_count(const char *value, double *x)
{
	static const char prefix[] = "kMGTPE";
	char *end;

	errno = 0;
	*x = strtod(value, &end);
	const char *p = *end ? strchr(prefix, *end) : NULL;
	for (ptrdiff_t i = 0; p && i <= p - prefix; i++)
		*x *= 1000;
	return end > value && !end[p != NULL] && !errno && isfinite(*x) && *x > 0;
}

static bool set_option(struct arena *mem, struct options *to, const struct option *o, const char *value)
{
	void *field = (char *)to + o->at;

	switch (o->type) {
	case FLAG:
		*(bool *)field = true;
		return true;
	case TEXT:
		*(const char **)field = value;
		return *value;
	case JOINED:
	case LINES: {
		const char **s = field;

		*s = *s ? arena_printf(mem, "%s%c%s", *s, o->type == JOINED ? ',' : ';', value) : value;
		return *value;
	}
	case COUNT:
		return read_count(value, field);
	case WHOLE: {
		char *end;

		errno = 0;
		long long n = strtoll(value, &end, 10);
		*(int64_t *)field = n;
		return *value && !*end && !errno && n >= 0;
	}
	}
	return false;
}

/* What an option of a type takes. */
static const char *takes(enum type type)
{
	switch (type) {
	case WHOLE: return "it takes a whole number, 0 or more";
	case COUNT: return "it takes a positive number, as it is or with k, M, G, T, P or E behind it: 300e9, 300G, 15T";
	default: return "it takes a word or a file's name";
	}
}

static int wrong_value(const struct option *o, const char *value)
{
	fprintf(stderr, "ptc: error: %s can't be '%s'\nptc: note: %s\n", o->name, value, takes(o->type));
	return USAGE;
}

/* The option at argv[*i], its value from "=value" or the next word. */
static int read_option(struct arena *mem, const struct command *c, struct options *to, int argc,
		       char **argv, int *i)
{
	const char *arg = argv[*i], *eq = strchr(arg, '=');
	size_t len = arg[1] == '-' && eq ? (size_t)(eq - arg) : strlen(arg);
	struct near near = { .name = arena_strndup(mem, arg, len) };

	for (size_t k = 0; k < LEN(options); k++) {
		const struct option *o = &options[k];
		const char *value = "";

		if (!(o->commands & c->bit))
			continue;
		near_offer(&near, o->name);
		if (!streq(o->name, near.name))
			continue;
		if (o->arg) {
			if (len < strlen(arg))
				value = eq + 1;
			else if (*i + 1 < argc)
				value = argv[++*i];
			else
				return wrong_usage("a value is missing after", o->name, NULL);
		} else if (len < strlen(arg)) {
			return wrong_usage("this option takes no value:", arg, NULL);
		}
		if (!set_option(mem, to, o, value))
			return wrong_value(o, value);
		return DONE;
	}
	return wrong_usage(arena_printf(mem, "ptc %s has no option", c->name), near.name, near.best);
}

static int read_arguments(struct arena *mem, const struct command *c, struct options *to, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (argv[i][0] == '-' && argv[i][1]) {
			int status = read_option(mem, c, to, argc, argv, &i);

			if (status)
				return status;
		} else if (to->file && !(c->bit & (FMT | EXPLAIN))) {
			return wrong_usage("one file is enough; there is also", argv[i], NULL);
		} else {
			to->file = to->file && c->bit != FMT ? to->file : argv[i];
			to->files[to->nfiles++] = argv[i];
		}
	}
	return DONE;
}

/* The runtime asks the environment how many cores it may use. */
static void take_threads(const struct options *o)
{
	char text[24];

	snprintf(text, sizeof text, "%lld", (long long)o->threads);
	if (o->threads > 0 && setenv("PTC_THREADS", text, 1))
		die("the environment can't be set: %s", strerror(errno));
}

/* Whatever was printed must have arrived. */
static int printed(int status)
{
	int why = fflush(stdout) ? errno : 0;

	if (!why && !ferror(stdout))
		return status;
	fprintf(stderr, "ptc: error: stdout: %s\n", why ? strerror(why) : "not all of it could be written");
	return MACHINE;
}

int main(int argc, char **argv)
{
	const struct command *c = &commands[0];
	int first = 1;

	if (argc < 2 || streq(argv[1], "--help") || streq(argv[1], "-h") || streq(argv[1], "help")) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? USAGE : printed(DONE);
	}
	if (streq(argv[1], "-V") || streq(argv[1], "version")) {
		version();
		return printed(DONE);
	}
	for (size_t i = 0; i < LEN(commands); i++) {
		if (streq(argv[1], commands[i].name)) {
			c = &commands[i];
			first = 2;
		}
	}
	if (first == 1 && argv[1][0] != '-' && !strchr(argv[1], '.') && !strchr(argv[1], '/')) {
		struct near near = { .name = argv[1] };

		for (size_t i = 0; i < LEN(commands); i++)
			near_offer(&near, commands[i].name);
		return wrong_usage("there is no command", argv[1], near.best);
	}

	struct arena *mem = arena_new();
	struct options opt = { .log_every = 1, .steps = -1, .seed = -1 };
	opt.files = NEWN(mem, const char *, argc);
	int status = read_arguments(mem, c, &opt, argc - first, argv + first);

	if (status == DONE && opt.help) {
		help(c);
	} else if (status == DONE && opt.version) {
		version();
	} else if (status == DONE && !opt.file && c->bit != CALIBRATE) {
		fprintf(stderr, "ptc: error: no file given\nptc: note: ptc %s %s\n", first == 1 ? "" : c->name, c->usage);
		status = USAGE;
	} else if (status == DONE) {
		struct session s;

		take_threads(&opt);
		session_start(&s, &opt);
		status = c->run(&s);
		session_end(&s);
	}
	arena_free(mem);
	return printed(status);
}
