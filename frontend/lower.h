/* frontend/lower.h - checks and lowering: one walk over the tree in source order, which makes
 * IR as it goes. A mistake is reported where it is met and gives a V_BAD value, which
 * silences what follows from it. */
#ifndef PTC_LOWER_H
#define PTC_LOWER_H
#include "frontend/ast.h"
#include "frontend/frontend.h"

enum val_kind { V_BAD, V_NUMBER, V_DIM, V_NONE, V_FLAG, V_TENSOR };

struct val {
	enum val_kind kind;
	enum dtype dt;
	double x;         /* V_NUMBER; V_DIM: its size */
	dimid d;          /* V_DIM */
	const char *flag; /* V_FLAG */
	struct value *v;  /* V_TENSOR */
};

enum sym_kind { S_DIM, S_INPUT, S_PARAM, S_STATE, S_VALUE, S_FORMAL, S_DEF };

struct sym {
	const char *name, *path;
	enum sym_kind kind;
	struct span at;
	uint32_t order;         /* of declaration */
	struct val val;
	struct buffer *buf;     /* inputs, params */
	struct frame *frame;    /* where its value is made, when it is first used */
	const struct node *def;
	const char *rows;       /* of an input token(n): the dim n */
	struct span updated;    /* of a state: by what; line 0: not yet */
	const struct node *trained; /* of a param: by which minimize */
	bool used, hidden;      /* hidden: it lives on for messages only */
};

/* Names that are visible together. */
struct scope {
	struct scope *up;
	VEC(struct sym *) syms;
	VEC(uint32_t) hashes; /* of their names: files may have ten thousands */
	bool call;            /* of a call: sees of the file only what stands above the def */
	uint32_t limit;       /* the order of that def */
	const struct node *repeat;
};

/* What a state becomes in an iteration. */
struct stacked {
	const struct sym *sym;
	struct value *v;
	struct span at;
};

/* A block of ops under construction. Values of outer blocks come in as operands of the repeat. */
struct frame {
	struct frame *up;
	struct builder b;
	struct op *op; /* the repeat */
	dimid dim;
	VEC(struct value *) with, with_arg, over, over_arg;
	VEC(struct stacked) stacked;
};

/* What the left-hand side says about the dims of an expression in an open place. */
struct want {
	bool known;
	uint8_t n;
	dimid d[MAX_DIMS];
	const char *name;
};

/* One "n=v" of --set. */
struct setting {
	const char *name;
	const struct node *value;
	bool used;
};

struct ctx {
	struct arena *mem;
	struct sources *src;
	struct diag *diag;
	const struct front_options *opt;
	struct module *m;
	const struct node *items; /* the file */
	struct scope *file, *scope;
	struct frame *frame;
	struct sym *found_hidden;
	const char *prefix;        /* "layers.mha." */
	const char *statement;     /* path of the statement at work: for keys of random numbers */
	const char *left;          /* the first name on its left side, or NULL */
	bool declared;             /* the statement at work names its dims */
	uint32_t order;
	int calls, ncalls;         /* depth; all of them */
	const struct node *call;   /* the innermost call */
	VEC(struct span) reported; /* where errors were: one mistake, one message */
	VEC(struct sym *) params, dead;
	bool broken;               /* statements were refused, and perhaps params with them */
	VEC(struct setting) sets;
	VEC(const struct node *) plans, hardware;
	VEC(const char *) keys, metrics;
	VEC(dimid) repeated;       /* dims of repeats */
	VEC(const struct node *) minimize;
	VEC(const struct node *) checkpoints;
	const struct node *pipeline; /* the arrow of repeats */
	int pipeline_axis;
	struct span micro_at;      /* where the number of microbatches is said */
	const struct node *loop;   /* the innermost repeat of the call at work */
	struct val *ret;           /* values returned by the call at work */
	int nret;
	bool returned, full, muted; /* full: too many ops; muted: the last message was not shown */
};

/* -- scope.c: names, messages -- */
/* The message goes out once a place; gives a V_BAD. hint() adds to the message before it. */
struct val fail(struct ctx *c, struct span at, const char *fmt, ...) PRINTF(3, 4);
void hint(struct ctx *c, const char *fmt, ...) PRINTF(2, 3);
void caution(struct ctx *c, struct span at, const char *fmt, ...) PRINTF(3, 4);
const char *line_of(struct ctx *c, struct span at, struct span from); /* "line 5", "lib.pdsl:5" */
struct sym *find(struct ctx *c, const char *name);
struct sym *declare(struct ctx *c, struct scope *s, enum sym_kind kind, const char *name, struct span at);
bool may_declare(struct ctx *c, const char *name, struct span at);
struct val no_name(struct ctx *c, const char *name, struct span at);
dimid find_dim_name(struct ctx *c, const char *name, struct span at); /* NODIM after a message */
const char *sym_kind_name(const struct sym *s);
struct scope *scope_push(struct ctx *c, struct scope *up);
bool matches_pattern(const char *pattern, const char *text);
/* A selector: a name matches the last part, with a dot the whole path; in quotes a pattern. */
bool selects(const struct node *what, const char *path);

/* -- number.c: what is known when compiling -- */
bool is_number(const struct val *v); /* numbers and sizes of dims */
struct val val_number(enum dtype dt, double x);
struct val fold1(struct ctx *c, enum opcode code, struct val a, struct span at);
struct val fold2(struct ctx *c, enum opcode code, struct val a, struct val b, struct span at);
/* An integer of dims and constants: '/' is exact. false after a message. */
bool eval_size(struct ctx *c, const struct node *n, int64_t *x);
bool eval_number(struct ctx *c, const struct node *n, const char *what, double *x);
struct setting *find_setting(struct ctx *c, const char *name);

/* -- emit.c: values of the IR -- */
struct builder *here(struct ctx *c, struct span at);
struct value *import(struct ctx *c, struct value *v); /* v, seen from the block at work */
struct val tensor(struct value *v);
struct value *value_of(struct ctx *c, struct val v, struct span at);
struct value *float_of(struct ctx *c, struct val v, struct span at);
struct val sym_value(struct ctx *c, struct sym *s);
struct value *iter_of(struct ctx *c, const struct frame *f);
const char *dims_text(struct ctx *c, const struct value *v); /* "[batch, seq]" */
const char *list_text(struct ctx *c, int n, const dimid *d, const char *quote); /* "a, b" */
struct val emit1(struct ctx *c, enum opcode code, struct val a, struct span at);
/* name: what the user wrote, for messages */
struct val emit2(struct ctx *c, enum opcode code, struct val a, struct val b, struct span at,
		 const char *name);
struct val emit_where(struct ctx *c, struct val cond, struct val a, struct val b, struct span at);
struct val emit_sum(struct ctx *c, struct val a, int n, const dimid *over, struct span at);
bool fits(struct ctx *c, int n, const dimid *d, struct span at); /* dims and elements */
struct val copy_of(struct ctx *c, struct value *v, struct span at, int n, const dimid *d);

/* -- expr.c -- */
struct val eval(struct ctx *c, const struct node *n, const struct want *w);
struct val eval_name(struct ctx *c, const struct node *n);

/* -- dot.c -- */
struct val eval_dot(struct ctx *c, const struct node *n, const struct want *w);

/* -- call.c, builtin.c, nn.c, schedule.c: functions -- */
struct call {
	struct ctx *c;
	const struct node *n;
	const struct builtin *f;
	const struct want *w;
	const struct node *arg[16]; /* by the places of the signature */
	const struct node *rest[MAX_DIMS];
	int nrest;
};

struct builtin {
	const char *name, *args; /* "x dim eps? dims*": '?' may be left out, '*' any number */
	struct val (*make)(struct call *k);
	enum opcode code;
};

struct val eval_call(struct ctx *c, const struct node *n, const struct want *w);
int eval_call_many(struct ctx *c, const struct node *n, struct val *out, int most);
struct val call_bad(void);
const struct builtin *find_builtin(const char *name, int nargs);
void offer_builtins(struct near *n);
const char *builtin_usage(struct ctx *c, const char *name);
struct val arg_open(struct call *k, int i);   /* an open place */
struct val arg_value(struct call *k, int i);  /* a place that is not open */
dimid arg_dim(struct call *k, int i);         /* NODIM after a message */
bool arg_number(struct call *k, int i, double *x); /* left as it is if not given */
bool arg_none(struct call *k, int i);         /* not given, or none */
int arg_rest(struct call *k, dimid *d);       /* -1 after a message */
bool arg_probability(struct call *k, int i, double *p); /* left as it is if not given */
const char *mask_key(struct ctx *c);          /* of the next random numbers of this statement */
int iterations(struct ctx *c, struct value **in); /* of the repeats around, outermost first */
bool arg_float(struct call *k, int i, struct val *v, const struct value **t, dimid d);

struct val make_softmax(struct call *k);
struct val make_layernorm(struct call *k);
struct val make_rmsnorm(struct call *k);
struct val make_l2norm(struct call *k);
struct val make_lse(struct call *k);
struct val make_dropout(struct call *k);
struct val make_rope(struct call *k);
struct val make_attention(struct call *k);
struct val make_nll(struct call *k);
struct val make_cross_entropy(struct call *k);
struct val make_schedule(struct call *k);
struct val make_argmax(struct call *k);
struct val make_topk(struct call *k);
struct val make_rank(struct call *k);
struct val make_concat(struct call *k);
struct val make_scatter(struct call *k);

/* -- stmt.c, state.c, repeat.c, train.c, reach.c, checkpoint.c -- */
void lower_statements(struct ctx *c, const struct node *list);
void lower_repeat(struct ctx *c, const struct node *n);
void lower_param(struct ctx *c, const struct node *n); /* and states */
void lower_input(struct ctx *c, const struct node *n);
void lower_dims(struct ctx *c, const struct node *n);
void lower_def(struct ctx *c, const struct node *n);
void lower_assign(struct ctx *c, const struct node *n);
void bind_name(struct ctx *c, const struct node *target, struct sym *s, struct val v, const struct node *from);
int eval_dims(struct ctx *c, const struct node *list, dimid *d, const char *what); /* -1 after a message */
/* Does v have exactly the dims that the left side t wants? from: the right side. */
bool check_dims(struct ctx *c, const struct node *t, const struct node *from, const struct want *w,
		const struct val *v);
void lower_update(struct ctx *c, const struct node *n);
void write_state(struct ctx *c, struct frame *f, const struct sym *s, struct value *v, struct span at);
void leave_stacked(struct ctx *c, struct frame *f);
void lower_minimize(struct ctx *c, const struct node *n, int64_t group);
void list_params(struct ctx *c); /* as a hint */
void check_gradients(struct ctx *c);
void check_checkpoints(struct ctx *c);
void lower_metric(struct ctx *c, const struct node *n);

/* -- plan.c, arrow.c, tensors.c, hardware.c -- */
void lower_plan(struct ctx *c);
const struct user_axis *find_user_axis(const struct ctx *c, const char *name, int *no);
bool is_repeated(const struct ctx *c, dimid d);
void lower_arrow(struct ctx *c, const struct node *n, const struct node *plan);
void find_pipeline_axis(struct ctx *c, const struct node *n);
/* -- stages.c: of a plan whose arrows have been looked at -- */
const struct node *setting_value(const struct node *line); /* the value of `name = value`, or the first word; NULL: none */
void read_pipeline(struct ctx *c, const struct node *line); /* the line that holds, or NULL */
const struct node *plan_option(const struct node *line, const char *name); /* name = value after the word; NULL: none */
/* -- recompute.c -- */
void read_software(struct ctx *c, const struct node *line); /* software.c */
void read_recompute(struct ctx *c, const struct node *line);
void read_chunk(struct ctx *c, const struct node *line); /* chunk.c */
void check_keep(struct ctx *c); /* does `keep` name something? */
void check_first(struct ctx *c); /* are there more iterations than `first` says? */
/* What the arrows do to the tensors of the model: arrows that do nothing, padding, microbatches. */
void check_arrows(struct ctx *c);
bool lower_hardware(struct ctx *c, const char *name, struct span at);

#endif
