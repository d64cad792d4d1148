/* frontend/ast.h - the tree that the parser builds, and the parser's own state.
 * The tree says what was written and nothing more: names are looked up by the checks. */
#ifndef PTC_AST_H
#define PTC_AST_H
#include "ir/base.h"
#include "ir/diag.h"

enum node_kind {
	/* expressions and arguments */
	N_NUMBER,    /* number, whole */
	N_NAME,      /* name */
	N_STRING,    /* name: the text without quotes */
	N_WORD,      /* name: a digit-led word such as 1f1b */
	N_LIST,      /* list */
	N_CALL,      /* name(list), or name.label(list) */
	N_UNARY,     /* op a */
	N_BINARY,    /* a op b; list: the dims of @[...] */
	N_SUBSCRIPT, /* a[list] of N_RENAME and N_KEY */
	N_RENAME,    /* name -> label */
	N_KEY,       /* name = a */
	N_BAD,       /* in place of what could not be read */
	/* statements */
	N_DIM,        /* list: N_KEY */
	N_INCLUDE,    /* name: the path; at: the string */
	N_INPUT,      /* a: N_TENSOR, b: N_TYPE, c: the rule or NULL */
	N_DEF,        /* name(list of N_FORMAL) body */
	N_MINIMIZE,   /* name over list with a { more: N_GROUP } */
	N_PLAN,       /* name or NULL, body: plan lines */
	N_HARDWARE,   /* name, body: plan lines */
	N_CHECKPOINT, /* name, body: N_MAP */
	N_PARAM,      /* list: N_TENSOR, a: the initialiser */
	N_STATE,      /* the same */
	N_UPDATE,     /* name = a */
	N_METRIC,     /* name = a */
	N_REPEAT,     /* name, body */
	N_ASSIGN,     /* list: N_TENSOR = a */
	N_RETURN,     /* list */
	/* parts */
	N_TENSOR, /* name, or name[list] */
	N_TYPE,   /* name, or name(a) */
	N_FORMAL, /* name, or name = a */
	N_GROUP,  /* list (what): more (options) */
	N_MAP,    /* a (what): name (the stored tensor) [list: N_NAME, N_PART, N_LIST] */
	N_PART,   /* a / b */
	/* lines of a plan or a hardware block */
	N_ARROW,   /* body (selectors) : list -> more */
	N_SETTING, /* name; name = a; name list [on label] */
};

enum node_op {
	OPR_OR, OPR_AND, OPR_EQ, OPR_NE, OPR_LT, OPR_LE, OPR_GT, OPR_GE, OPR_ADD, OPR_SUB, OPR_MUL, OPR_DIV,
	OPR_FLOORDIV, OPR_MOD, OPR_DOT, OPR_NEG, OPR_NOT,
};

struct node {
	enum node_kind kind;
	enum node_op op;
	struct span at;      /* the whole */
	struct span name_at; /* the name, or the operator */
	struct span label_at;
	const char *name, *label;
	double number;
	int64_t integer;
	bool whole;    /* the number is an integer: `integer` holds it */
	bool dims;     /* N_TENSOR: [..] was written; N_BINARY: @[..]; N_SETTING: '=' was written */
	uint32_t deep; /* how far the tree goes down from here */
	struct node *a, *b, *c;
	struct node *list, *more, *body;
	struct node *next; /* in the list that it stands in */
};

struct nodes {
	struct node *first, *last;
};

struct bracket {
	char c;
	bool call; /* '(' after a name: its arguments */
	struct span at;
	size_t offset;
};

/* One file being read. The scanner's state lives here too: nothing is static. */
struct parser {
	struct arena *mem;
	struct sources *src;
	struct diag *diag;
	uint32_t file;
	const char *text;
	size_t len;
	struct node *items; /* the result */
	/* the scanner */
	uint32_t line, col;
	size_t offset; /* just behind the token */
	VEC(struct bracket) open;
	int last, before;           /* the token read last, and the one before it */
	const char *first_text;     /* of the statement: its first word */
	struct span first_at;
	int count;                  /* tokens of the statement so far */
	bool recovering;            /* after a syntax error, up to the end of the line */
	bool muted;                 /* the mistake was reported by the scanner */
	int skip;                   /* blocks to skip: that deep inside */
	bool too_deep;
};

/* Reads a file and all that it includes; each file once. The nodes stand in one list, the
 * includes replaced by what they name. NULL list with errors in d if nothing could be read. */
struct node *ast_read(struct arena *mem, struct sources *src, struct diag *d, const char *path);
struct node *ast_read_text(struct arena *mem, struct sources *src, struct diag *d, const char *name,
			   const char *text, size_t len);
/* One text, its includes as they stand (the built-in hardware table). */
struct node *ast_parse(struct arena *mem, struct sources *src, struct diag *d, const char *name,
		       const char *text, size_t len);

struct node *node_new(struct parser *ps, enum node_kind kind, struct span at);
struct node *node_name(struct parser *ps, enum node_kind kind, struct span at, const char *name,
		       struct span name_at);
struct node *node_binary(struct parser *ps, enum node_op op, struct span at, struct span op_at,
			 struct node *a, struct node *b);
/* Notes how deep the node's tree is; reports a tree that is too deep and cuts it off. */
struct node *node_close(struct parser *ps, struct node *n);
struct nodes nodes_add(struct nodes list, struct node *n);
const char *node_op_name(enum node_op op);
/* The node as the user would write it, shortened to about `most` bytes. */
const char *node_text(struct arena *mem, const struct sources *src, const struct node *n);

#endif
