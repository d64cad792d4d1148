/* frontend/parse.y - the grammar of the language. It builds the tree and nothing
 * else: names are looked up later, in source order. */
%require "3.8"
%expect 0
%define api.pure full
%define api.location.type {struct span}
%define api.token.prefix {T_}
%define parse.error custom
%define parse.lac full
%parse-param {struct parser *ps} {void *scanner}
%lex-param {void *scanner}

%code requires {
#include "frontend/ast.h"
}
%code {
#include "frontend/syntax.h"

int yylex(YYSTYPE *value, struct span *at, void *scanner);

/* Deep nesting is an error, not a crash. */
#define YYMAXDEPTH 4000
#define YYLLOC_DEFAULT(Cur, Rhs, N) \
	((Cur) = (N) ? syntax_join(YYRHSLOC(Rhs, 1), YYRHSLOC(Rhs, N)) : YYRHSLOC(Rhs, 0))
#define NODE(kind, at) node_new(ps, kind, at)
#define NAMED(kind, at, name, name_at) node_name(ps, kind, at, name, name_at)
#define BINARY(op, all, op_at, a, b) node_binary(ps, op, all, op_at, a, b)
#define ADD(list, n) nodes_add(list, n)
#define ONE(n) nodes_add((struct nodes){ 0 }, n)

static void yyerror(const struct span *at, struct parser *ps, void *scanner, const char *what);
}

%union {
	const char *text;
	struct node *node;
	struct nodes list;
}

%token <text> NAME "name" STRING "string" WORD "word"
%token <text> DIM "dim" INPUT "input" PARAM "param" STATE "state" UPDATE "update" METRIC "metric"
%token <text> REPEAT "repeat" DEF "def" RETURN "return" INCLUDE "include" MINIMIZE "minimize"
%token <text> PLAN "plan" HARDWARE "hardware" CHECKPOINT "checkpoint" WITH "with" OVER "over" ON "on"
%token <node> NUMBER "number"
%token EOL "end of line" ARROW "->" EQ "==" NE "!=" LE "<=" GE ">=" FLOORDIV "//" ATDIMS "@["
%token YYEOF 0 "end of file"

%type <text> name path
%type <node> map fdim item stmt dim tensor type formal gline line what arg value init expr postfix call sub
%type <list> items block stmts dims tensors names formals flist over groups glines lines whats
%type <list> args vlist exprs subs maps fdims

%left '|'
%left '&'
%nonassoc EQ NE '<' LE '>' GE
%left '+' '-'
%left '*' '/' FLOORDIV '%' '@' ATDIMS
%precedence UNARY

%%
file: items { ps->items = $1.first; };

items: %empty { $$ = (struct nodes){ 0 }; } | items item { $$ = ADD($1, $2); };

item:
  "dim" dims EOL { $$ = NODE(N_DIM, @1); $$->list = $2.first; }
| "include" STRING EOL { $$ = NAMED(N_INCLUDE, @2, $2, @2); }
| "input" tensor ':' type EOL { $$ = NODE(N_INPUT, @1); $$->a = $2; $$->b = $4; }
| "input" tensor ':' type '=' expr EOL {
	$$ = NODE(N_INPUT, @1); $$->a = $2; $$->b = $4; $$->c = $6; }
| "def" name '(' formals ')' block EOL {
	$$ = NAMED(N_DEF, @2, $2, @2); $$->list = $4.first; $$->body = $6.first; }
| "minimize" name over "with" init groups EOL {
	$$ = NAMED(N_MINIMIZE, @1, $2, @2); $$->list = $3.first; $$->a = $5; $$->more = $6.first; }
| "plan" '{' lines '}' EOL { $$ = NODE(N_PLAN, @1); $$->body = $3.first; }
| "plan" name '{' lines '}' EOL { $$ = NAMED(N_PLAN, @2, $2, @2); $$->body = $4.first; }
| "hardware" name '{' lines '}' EOL { $$ = NAMED(N_HARDWARE, @2, $2, @2); $$->body = $4.first; }
| "checkpoint" name '{' maps '}' EOL { $$ = NAMED(N_CHECKPOINT, @2, $2, @2); $$->body = $4.first; }
| stmt
;

block: '{' stmts '}' { $$ = $2; };

stmts: %empty { $$ = (struct nodes){ 0 }; } | stmts stmt { $$ = ADD($1, $2); };

stmt:
  "param" tensors '~' init EOL { $$ = NODE(N_PARAM, @1); $$->list = $2.first; $$->a = $4; }
| "state" tensors '~' init EOL { $$ = NODE(N_STATE, @1); $$->list = $2.first; $$->a = $4; }
| "update" name '=' expr EOL { $$ = NAMED(N_UPDATE, @1, $2, @2); $$->a = $4; }
| "metric" name '=' expr EOL { $$ = NAMED(N_METRIC, @1, $2, @2); $$->a = $4; }
| "repeat" name block EOL { $$ = NAMED(N_REPEAT, @1, $2, @2); $$->body = $3.first; }
| tensors '=' expr EOL { $$ = NODE(N_ASSIGN, @1); $$->list = $1.first; $$->a = $3; }
| "return" exprs EOL { $$ = NODE(N_RETURN, @1); $$->list = $2.first; }
| error EOL { $$ = NULL; yyerrok; }
;

dims: dim { $$ = ONE($1); } | dims ',' dim { $$ = ADD($1, $3); };
dim: name '=' expr { $$ = NAMED(N_KEY, @$, $1, @1); $$->a = $3; };

tensors: tensor { $$ = ONE($1); } | tensors ',' tensor { $$ = ADD($1, $3); };
tensor:
  name { $$ = NAMED(N_TENSOR, @1, $1, @1); }
| name '[' names ']' { $$ = NAMED(N_TENSOR, @$, $1, @1); $$->list = $3.first; $$->dims = true; }
;

type:
  name { $$ = NAMED(N_TYPE, @1, $1, @1); }
| name '(' expr ')' { $$ = NAMED(N_TYPE, @$, $1, @1); $$->a = $3; }
;

names:
  name { $$ = ONE(NAMED(N_NAME, @1, $1, @1)); }
| names ',' name { $$ = ADD($1, NAMED(N_NAME, @3, $3, @3)); }
;

formals: %empty { $$ = (struct nodes){ 0 }; } | flist;
flist: formal { $$ = ONE($1); } | flist ',' formal { $$ = ADD($1, $3); };
formal:
  name { $$ = NAMED(N_FORMAL, @1, $1, @1); }
| name '=' expr { $$ = NAMED(N_FORMAL, @$, $1, @1); $$->a = $3; }
;

over: %empty { $$ = (struct nodes){ 0 }; } | "over" whats { $$ = $2; };
groups: %empty { $$ = (struct nodes){ 0 }; } | '{' glines '}' { $$ = $2; };
glines: gline { $$ = ONE($1); } | glines gline { $$ = ADD($1, $2); };
gline: whats ':' args EOL { $$ = NODE(N_GROUP, @1); $$->list = $1.first; $$->more = $3.first; };

lines: %empty { $$ = (struct nodes){ 0 }; } | lines line { $$ = ADD($1, $2); };
line:
  whats "->" args EOL {
	$$ = NODE(N_ARROW, syntax_join(@1, @3)); $$->name_at = @2;
	$$->list = $1.first; $$->more = $3.first; }
| whats ':' whats "->" args EOL {
	$$ = NODE(N_ARROW, syntax_join(@1, @5)); $$->name_at = @4;
	$$->body = $1.first; $$->list = $3.first; $$->more = $5.first; }
| name EOL { $$ = NAMED(N_SETTING, @1, $1, @1); }
| name '=' value EOL {
	$$ = NAMED(N_SETTING, syntax_join(@1, @3), $1, @1); $$->a = $3; $$->dims = true; }
| name args EOL { $$ = NAMED(N_SETTING, syntax_join(@1, @2), $1, @1); $$->list = $2.first; }
| name args "on" name EOL {
	$$ = NAMED(N_SETTING, syntax_join(@1, @2), $1, @1); $$->list = $2.first;
	$$->label = $4; $$->label_at = @4; }
| error EOL { $$ = NULL; yyerrok; }
;

whats: what { $$ = ONE($1); } | whats ',' what { $$ = ADD($1, $3); };
what:
  path { $$ = NAMED(N_NAME, @1, $1, @1); }
| STRING { $$ = NAMED(N_STRING, @1, $1, @1); }
;
path: name | path '.' name { $$ = syntax_path(ps, $1, $3, @$); };

maps: map { $$ = ONE($1); } | maps map { $$ = ADD($1, $2); };
map: what ':' STRING '[' fdims ']' EOL {
	$$ = NAMED(N_MAP, @1, $3, @3); $$->a = $1; $$->list = $5.first; };
fdims: fdim { $$ = ONE($1); } | fdims ',' fdim { $$ = ADD($1, $3); };
fdim:
  name { $$ = NAMED(N_NAME, @1, $1, @1); }
| NUMBER '/' NUMBER { $$ = NODE(N_PART, @$); $$->a = $1; $$->b = $3; }
| '(' fdims ')' { $$ = NODE(N_LIST, @$); $$->list = $2.first; $$ = node_close(ps, $$); }
;

args: arg { $$ = ONE($1); } | args ',' arg { $$ = ADD($1, $3); };
arg:
  expr
| WORD { $$ = NAMED(N_WORD, @1, $1, @1); }
| name '=' value { $$ = NAMED(N_KEY, @$, $1, @1); $$->a = $3; }
;

value:
  expr
| WORD { $$ = NAMED(N_WORD, @1, $1, @1); }
| STRING { $$ = NAMED(N_STRING, @1, $1, @1); }
| '[' vlist ']' { $$ = NODE(N_LIST, @$); $$->list = $2.first; $$ = node_close(ps, $$); }
;
vlist: value { $$ = ONE($1); } | vlist ',' value { $$ = ADD($1, $3); };

exprs: expr { $$ = ONE($1); } | exprs ',' expr { $$ = ADD($1, $3); };
init: name { $$ = NAMED(N_NAME, @1, $1, @1); } | call;

expr:
  postfix
| '-' expr %prec UNARY { $$ = BINARY(OPR_NEG, @$, @1, $2, NULL); }
| '!' expr %prec UNARY { $$ = BINARY(OPR_NOT, @$, @1, $2, NULL); }
| expr '*' expr { $$ = BINARY(OPR_MUL, @$, @2, $1, $3); }
| expr '/' expr { $$ = BINARY(OPR_DIV, @$, @2, $1, $3); }
| expr "//" expr { $$ = BINARY(OPR_FLOORDIV, @$, @2, $1, $3); }
| expr '%' expr { $$ = BINARY(OPR_MOD, @$, @2, $1, $3); }
| expr '@' expr { $$ = BINARY(OPR_DOT, @$, @2, $1, $3); }
| expr "@[" names ']' expr %prec '@' {
	$$ = BINARY(OPR_DOT, @$, @2, $1, $5);
	if ($$->kind == N_BINARY) { $$->list = $3.first; $$->dims = true; } }
| expr '+' expr { $$ = BINARY(OPR_ADD, @$, @2, $1, $3); }
| expr '-' expr { $$ = BINARY(OPR_SUB, @$, @2, $1, $3); }
| expr "==" expr { $$ = BINARY(OPR_EQ, @$, @2, $1, $3); }
| expr "!=" expr { $$ = BINARY(OPR_NE, @$, @2, $1, $3); }
| expr '<' expr { $$ = BINARY(OPR_LT, @$, @2, $1, $3); }
| expr "<=" expr { $$ = BINARY(OPR_LE, @$, @2, $1, $3); }
| expr '>' expr { $$ = BINARY(OPR_GT, @$, @2, $1, $3); }
| expr ">=" expr { $$ = BINARY(OPR_GE, @$, @2, $1, $3); }
| expr '&' expr { $$ = BINARY(OPR_AND, @$, @2, $1, $3); }
| expr '|' expr { $$ = BINARY(OPR_OR, @$, @2, $1, $3); }
;

postfix:
  NUMBER
| name { $$ = NAMED(N_NAME, @1, $1, @1); }
| call
| '(' expr ')' { $$ = syntax_parens(ps, $2, @$); }
| postfix '[' subs ']' {
	$$ = NODE(N_SUBSCRIPT, @$); $$->a = $1; $$->list = $3.first; $$ = node_close(ps, $$); }
;

call:
  name '(' args ')' {
	$$ = NAMED(N_CALL, @$, $1, @1); $$->list = $3.first; $$ = node_close(ps, $$); }
| name '.' name '(' args ')' {
	$$ = NAMED(N_CALL, @$, $1, @1); $$->label = $3; $$->label_at = @3;
	$$->list = $5.first; $$ = node_close(ps, $$); }
;

subs: sub { $$ = ONE($1); } | subs ',' sub { $$ = ADD($1, $3); };
sub:
  name "->" name {
	$$ = NAMED(N_RENAME, @$, $1, @1); $$->label = $3; $$->label_at = @3; }
| name '=' expr { $$ = NAMED(N_KEY, @$, $1, @1); $$->a = $3; }
;

name:
  NAME | "dim" | "input" | "param" | "state" | "update" | "metric" | "repeat" | "def" | "return"
| "include" | "minimize" | "plan" | "hardware" | "checkpoint" | "with" | "over" | "on"
;
%%

static void yyerror(const struct span *at, struct parser *ps, void *scanner, const char *what)
{
	(void)scanner;
	(void)what; /* bison's own words: only "memory exhausted" comes here */
	if (!ps->diag->errors)
		diag_error(ps->diag, *at, "this nests too deeply");
}

static int yyreport_syntax_error(const yypcontext_t *ctx, struct parser *ps, void *scanner)
{
	enum { MOST = 5 };
	yysymbol_kind_t kinds[MOST];
	const char *names[MOST];
	int n = yypcontext_expected_tokens(ctx, kinds, MOST);

	(void)scanner;
	if (n == 0) /* more than MOST of them */
		n = MOST;
	else
		for (int i = 0; i < n; i++)
			names[i] = yysymbol_name(kinds[i]);
	syntax_error(ps, *yypcontext_location(ctx), n < MOST ? n : 0, names);
	return 0;
}
