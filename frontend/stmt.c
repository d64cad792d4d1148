/* Statements that declare and bind names. */
#include "frontend/lower.h"

#include <math.h>

static const char *path_of(struct ctx *c, const char *name)
{
	return *c->prefix ? arena_printf(c->mem, "%s%s", c->prefix, name) : name;
}

/* Names of dims to dims; -1 after a message. what: whose dims they are, for messages. */
int eval_dims(struct ctx *c, const struct node *list, dimid *d, const char *what)
{
	int n = 0;
	bool good = true;

	for (const struct node *p = list; p; p = p->next) {
		dimid x = find_dim_name(c, p->name, p->at);

		if (x == NODIM) {
			good = false;
			continue;
		}
		for (int i = 0; i < n && x != NODIM; i++)
			if (d[i] == x) {
				fail(c, p->at, "'%s' has '%s' twice", what, p->name);
				const char *other = find(c, "ctx") ? "other" : "ctx";

				hint(c, "declare dim %s = %s, and rename one side: k[%s -> %s]", other,
				     p->name, p->name, other);
				good = false;
				x = NODIM;
			}
		if (n == MAX_DIMS) {
			fail(c, p->at, "'%s' has more than %d dims", what, MAX_DIMS);
			return -1;
		}
		if (x != NODIM)
			d[n++] = x;
	}
	return good ? n : -1;
}

/* -- dim -- */

static bool dim_size_of(struct ctx *c, const struct node *n, int64_t *size)
{
	struct setting *set = find_setting(c, n->name);

	if (set)
		set->used = true;
	const struct node *from = set ? set->value : n->a;
	if (!eval_size(c, from, size))
		return false;
	if (*size >= 0 && *size <= (int64_t)1 << 40)
		return true;
	fail(c, from->at, "dim '%s' is %lld; a dim is at least 0 and at most 2^40", n->name,
	     (long long)*size);
	return false;
}

void lower_dims(struct ctx *c, const struct node *n)
{
	for (const struct node *p = n->list; p; p = p->next) {
		int64_t size = 1;

		if (!may_declare(c, p->name, p->name_at))
			continue;
		bool good = dim_size_of(c, p, &size);
		struct sym *s = declare(c, c->scope, S_DIM, p->name, p->name_at);
		if (c->m->dims.n >= 2000) {
			fail(c, p->at, "more than 2000 dims");
			good = false;
		}
		if (!good)
			continue; /* the sym stays V_BAD */
		s->val = (struct val){ .kind = V_DIM, .dt = INT, .x = (double)size };
		s->val.d = module_dim(c->m, p->name, size, p->name_at);
	}
}

/* -- input -- */

static void input_type(struct ctx *c, const struct node *type, struct sym *s)
{
	struct buffer *b = s->buf;

	if (streq(type->name, "token")) {
		b->dt = INT;
		if (!type->a)
			fail(c, type->at, "write token(n), with the number of tokens");
		else if (eval_size(c, type->a, &b->tokens) && b->tokens < 1)
			fail(c, type->a->at, "there must be at least one token");
		if (b->tokens < 1)
			b->tokens = 1; /* refused, it is still an input of tokens */
		s->rows = type->a && type->a->kind == N_NAME ? type->a->name : NULL;
	} else if (streq(type->name, "float")) {
		b->dt = F32;
	} else if (streq(type->name, "int")) {
		b->dt = INT;
	} else if (streq(type->name, "bool")) {
		b->dt = BOOL;
	} else {
		fail(c, type->name_at, "there is no type '%s'", type->name);
		hint(c, "an input is float, int, bool or token(n)");
	}
	if (type->a && !streq(type->name, "token"))
		fail(c, type->at, "'%s' takes no number", type->name);
}

/* next(tokens, k) */
static void input_rule(struct ctx *c, const struct node *rule, struct buffer *b)
{
	const struct node *of = rule->kind == N_CALL && streq(rule->name, "next") ? rule->list : NULL;

	if (!of || of->kind != N_NAME) {
		fail(c, rule->at, "the rule of an input is next(another input, k = 1)");
		return;
	}
	struct sym *s = find(c, of->name);
	if (!s) {
		no_name(c, of->name, of->at);
		return;
	}
	if (s->kind == S_INPUT && !s->buf)
		return; /* it was refused */
	if (s->kind != S_INPUT || !s->buf->tokens || s->buf->next_of) {
		fail(c, of->at, "next needs an input of tokens; '%s' is none", of->name);
		return;
	}
	if (s->buf->nd != b->nd || memcmp(s->buf->d, b->d, b->nd * sizeof *b->d) || !b->tokens) {
		fail(c, rule->at, "'%s' must have the dims and the type of '%s'", b->name, of->name);
		return;
	}
	b->next_of = s->buf->name;
	b->next_k = 1;
	const struct node *k = of->next && of->next->kind == N_KEY ? of->next->a : of->next;
	if (k && eval_size(c, k, &b->next_k) && b->next_k < 1)
		fail(c, k->at, "next looks at least 1 token ahead");
}

void lower_input(struct ctx *c, const struct node *n)
{
	const struct node *t = n->a;
	dimid d[MAX_DIMS];

	if (!may_declare(c, t->name, t->name_at))
		return;
	int nd = eval_dims(c, t->list, d, t->name);
	struct sym *s = declare(c, c->scope, S_INPUT, t->name, t->name_at);
	if (nd < 0 || !fits(c, nd, d, t->at))
		return;
	if (nd == 0) {
		fail(c, t->at, "an input has dims, the batch first");
		return;
	}
	if (!dim_size(c->m, d[0])) {
		fail(c, t->at, "the batch '%s' is 0; a step needs at least one example", c->m->dims.at[d[0]].name);
		return;
	}
	if (c->m->batch == NODIM) {
		c->m->batch = d[0];
	} else if (c->m->batch != d[0]) {
		fail(c, t->at, "the first dim of every input is the batch, '%s'",
		     c->m->dims.at[c->m->batch].name);
		return;
	}
	s->path = t->name;
	s->buf = module_buffer(c->m, B_INPUT, t->name, F32, nd, d);
	s->buf->at = t->name_at;
	input_type(c, n->b, s);
	if (n->c)
		input_rule(c, n->c, s->buf);
}

/* -- param and state -- */

static bool initialiser(struct ctx *c, const struct node *n, enum init *init, double *x)
{
	struct near near = { .name = n->name };

	for (int i = 0; i < NINIT; i++) {
		bool takes = i >= INIT_CONSTANT;

		near_offer(&near, init_name[i]);
		if (!streq(n->name, init_name[i]))
			continue;
		*init = (enum init)i;
		if (n->kind == N_CALL && (!takes || !n->list || n->list->next || n->label ||
					  n->list->kind == N_KEY || n->list->kind == N_WORD))
			fail(c, n->at, takes ? "%s takes one number" : "%s takes nothing", n->name);
		else if (n->kind == N_NAME && takes)
			fail(c, n->at, "%s takes a number: %s(…)", n->name, n->name);
		else
			return !takes || eval_number(c, n->list, "the argument of an initialiser", x);
		return false;
	}
	fail(c, n->name_at, "there is no initialiser '%s'", n->name);
	if (near.best)
		hint(c, "did you mean '%s'?", near.best);
	else
		hint(c, "initialisers are zeros, ones, constant(c), normal(s), uniform(a)");
	return false;
}

/* The dims of a param in a repeat: those of the repeats first. */
static int param_dims(struct ctx *c, const struct node *t, dimid *d)
{
	dimid own[MAX_DIMS], outer[64];
	int n = eval_dims(c, t->list, own, t->name), k = 0;
	bool clash = false;

	if (n < 0)
		return -1;
	for (const struct frame *f = c->frame; f->up && k < 64; f = f->up)
		outer[k++] = f->dim;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < k; j++)
			if (own[i] == outer[j] && !clash) {
				fail(c, t->at, "'%s' has '%s' twice: the repeat adds it", t->name,
				     c->m->dims.at[own[i]].name);
				clash = true;
			}
	if (clash)
		return -1;
	if (n + k > MAX_DIMS) {
		fail(c, t->at, "'%s' has more than %d dims", t->name, MAX_DIMS);
		return -1;
	}
	for (int i = 0; i < k; i++)
		d[i] = outer[k - 1 - i];
	for (int i = 0; i < n; i++)
		d[k + i] = own[i];
	return n + k;
}

static bool path_is_new(struct ctx *c, const char *path, const struct node *t, const char *what)
{
	const struct buffer *old = find_buffer(c->m, path);

	if (!old)
		return true;
	fail(c, c->call ? c->call->at : t->at, "%s '%s' is made twice", what, path);
	if (c->call)
		hint(c, "label the calls: %s.one(…), %s.two(…); to share a %s, declare it outside and pass it",
		     c->call->name, c->call->name, what);
	else
		hint(c, "first here: %s", line_of(c, old->at, t->at));
	return false;
}

void lower_param(struct ctx *c, const struct node *n)
{
	enum init init = INIT_ZEROS;
	double x = 0;
	bool good = initialiser(c, n->a, &init, &x), state = n->kind == N_STATE;

	for (const struct node *t = n->list; t; t = t->next) {
		dimid d[MAX_DIMS];

		if (!may_declare(c, t->name, t->name_at))
			continue;
		int nd = param_dims(c, t, d);
		struct sym *s = declare(c, c->scope, state ? S_STATE : S_PARAM, t->name, t->name_at);
		s->path = path_of(c, t->name);
		if (nd < 0 || !good || !fits(c, nd, d, t->at) ||
		    !path_is_new(c, s->path, t, state ? "state" : "param"))
			continue;
		s->buf = module_buffer(c->m, state ? B_STATE : B_PARAM, s->path, F32, nd, d);
		s->buf->init = init;
		s->buf->init_arg = x;
		s->buf->at = t->at;
		if (!state)
			PUSH(c->mem, &c->params, s);
	}
}

/* -- def -- */

/* The body sees no computed value of the file, so an argument may be called like one. */
static bool may_be_formal(struct ctx *c, const struct node *f)
{
	const struct sym *s = find(c, f->name);

	return (s && s->kind == S_VALUE && s->val.kind != V_NUMBER) || may_declare(c, f->name, f->name_at);
}

void lower_def(struct ctx *c, const struct node *n)
{
	bool good = may_declare(c, n->name, n->name_at);
	int count = 0;

	if (good && find_builtin(n->name, 1)) {
		fail(c, n->name_at, "'%s' is a function already", n->name);
		good = false;
	}
	for (const struct node *f = n->list; f; f = f->next) {
		good &= may_be_formal(c, f);
		for (const struct node *g = n->list; g != f; g = g->next)
			if (streq(f->name, g->name)) {
				fail(c, f->name_at, "'%s' is already an argument of '%s'", f->name, n->name);
				good = false;
			}
		count++;
	}
	if (count > 30) {
		fail(c, n->name_at, "'%s' has more than 30 arguments", n->name);
		good = false;
	}
	if (find(c, n->name))
		return;
	struct sym *s = declare(c, c->scope, S_DEF, n->name, n->name_at);
	s->def = n;
	s->val.kind = good ? V_NONE : V_BAD;
}

/* -- assignments -- */

static bool assignable(struct ctx *c, const struct sym *s, const struct node *t)
{
	if (s->kind == S_VALUE || (s->kind == S_FORMAL && s->val.kind != V_DIM))
		return true;
	if (s->kind == S_FORMAL)
		fail(c, t->at, "'%s' is a dim and can't be assigned", t->name);
	else
		fail(c, t->at, "'%s' is %s and can't be assigned", t->name, sym_kind_name(s));
	if (s->kind == S_STATE)
		hint(c, "write update %s = …", t->name);
	else if (s->kind == S_INPUT || s->kind == S_PARAM)
		hint(c, "take a new name (a state is changed by 'update')");
	else
		hint(c, "take a new name");
	return false;
}

/* The term of a sum that brought the dim in; the whole if more than one did. */
static const struct node *blame(struct ctx *c, const struct node *n, const struct want *w, dimid d,
				const struct node **other)
{
	while (n->kind == N_BINARY && (n->op == OPR_ADD || n->op == OPR_SUB)) {
		struct val a = eval(c, n->a, w), b = eval(c, n->b, w);
		bool left = a.kind == V_TENSOR && has_dim(a.v, d);
		bool right = b.kind == V_TENSOR && has_dim(b.v, d);

		if (left == right)
			break;
		*other = left ? n->b : NULL;
		n = left ? n->a : n->b;
	}
	return n;
}

static void extra_dim(struct ctx *c, const struct node *t, const struct node *e, const struct want *w,
		      dimid d)
{
	const struct node *other = NULL, *at = blame(c, e, w, d, &other);
	const char *name = c->m->dims.at[d].name, *text = node_text(c->mem, c->src, at);

	fail(c, at->at, "'%s' is on the right of '=' but not among %s's dims", name, t->name);
	if (other && other->kind == N_BINARY && other->op == OPR_DOT)
		hint(c, "'@' binds tighter than '+': (%s + %s) @ %s", text,
		     node_text(c->mem, c->src, other->a), node_text(c->mem, c->src, other->b));
	else
		hint(c, "only @ contracts: write sum(%s, %s), or add '%s' to %s[…]", text, name, name,
		     t->name);
}

/* Does the right side have exactly the dims of the left? */
bool check_dims(struct ctx *c, const struct node *t, const struct node *e, const struct want *w,
		const struct val *v)
{
	struct value left = { .nd = w->n }, none = { .nd = 0 };
	const struct value *right = v->kind == V_TENSOR ? v->v : &none;

	memcpy(left.d, w->d, sizeof left.d);
	for (int i = 0; i < right->nd; i++)
		if (!has_dim(&left, right->d[i])) {
			extra_dim(c, t, e, w, right->d[i]);
			return false;
		}
	for (int i = 0; i < left.nd; i++)
		if (!has_dim(right, left.d[i])) {
			fail(c, e->at, "nothing on the right has '%s'", c->m->dims.at[left.d[i]].name);
			hint(c, "the right side has %s", dims_text(c, right));
			return false;
		}
	return true;
}

static const char *shape_text(struct ctx *c, const struct val *v)
{
	if (v->kind != V_TENSOR)
		return "a number";
	return v->v->nd ? dims_text(c, v->v) : "without dims";
}

/* A name that has a value keeps its dims and type. */
static bool check_same(struct ctx *c, const struct node *t, const struct sym *s, const struct val *v)
{
	static const char *const types[] = { "float", "float", "int", "bool" };
	struct value none = { .nd = 0 };
	const struct value *was = s->val.kind == V_TENSOR ? s->val.v : &none;
	const struct value *is = v->kind == V_TENSOR ? v->v : &none;

	if (!same_dims(was, is)) {
		fail(c, t->at, "'%s' was %s at %s", t->name, shape_text(c, &s->val),
		     line_of(c, s->at, t->at));
		hint(c, "a name keeps its dims; take a new one");
		return false;
	}
	if (s->val.dt != v->dt && !(is_float(s->val.dt) && is_float(v->dt))) {
		fail(c, t->at, "'%s' was %s at %s, and this is %s", t->name, types[s->val.dt],
		     line_of(c, s->at, t->at), types[v->dt]);
		hint(c, s->val.kind == V_NUMBER && s->val.dt == INT ?
		     "a name keeps its type; begin with %s = %.15g.0" : "a name keeps its type",
		     t->name, s->val.x);
		return false;
	}
	return true;
}

/* The value under this name, its dims in the order of the left side. A value that has a name
 * already is copied: each name has a layout of its own. */
static struct val named(struct ctx *c, struct val v, const char *path, const struct want *w,
			struct span at)
{
	bool same = !w->known || (w->n == v.v->nd && !memcmp(w->d, v.v->d, w->n * sizeof *w->d));
	struct value *x = import(c, v.v);
	enum opclass class = x->def ? opinfo[x->def->code].class : C_STEP;
	bool fresh = x->def && x->def == c->frame->b.block->last && !x->name;
	bool free_order = class == C_MAP || class == C_REDUCE || class == C_EINSUM || class == C_LOOKUP;

	if (x->name && streq(x->name, path) && same)
		return tensor(x);
	if (x->name || !x->def || class == C_LEAF || (!same && !(fresh && free_order)))
		x = copy_of(c, x, at, w->known ? w->n : x->nd, w->known ? w->d : x->d).v;
	else if (!same)
		memcpy(x->d, w->d, w->n * sizeof *w->d);
	x->name = path;
	return tensor(x);
}

/* `s` is the symbol that the name has already, or NULL. from: the right side. */
void bind_name(struct ctx *c, const struct node *t, struct sym *s, struct val v, const struct node *from)
{
	struct want w = { .known = false };

	if (v.kind == V_NONE || v.kind == V_FLAG)
		v = fail(c, from->at, "this is no value");
	if (v.kind == V_BAD) {
		if (!s)
			declare(c, c->scope, S_VALUE, t->name, t->name_at)->path = t->name;
		else if (s->val.kind != V_BAD && s->kind == S_VALUE)
			s->val = v;
		return;
	}
	if (v.kind == V_DIM)
		v = val_number(INT, v.x);
	if (s && s->val.kind != V_BAD && !check_same(c, t, s, &v))
		return;
	if (t->dims) {
		int n = eval_dims(c, t->list, w.d, t->name);

		w.known = n >= 0;
		w.n = (uint8_t)(n < 0 ? 0 : n);
	} else if (s && s->val.kind == V_TENSOR) {
		w.known = true;
		w.n = s->val.v->nd;
		memcpy(w.d, s->val.v->d, sizeof w.d);
	}
	if (!s) {
		s = declare(c, c->scope, S_VALUE, t->name, t->name_at);
		s->path = path_of(c, t->name);
	}
	if (!s->path)
		s->path = path_of(c, t->name);
	s->val = v.kind == V_TENSOR ? named(c, v, s->path, &w, t->at) : v;
}

static bool wanted(struct ctx *c, const struct node *t, const struct sym *s, struct want *w)
{
	w->name = t->name;
	if (t->dims) {
		int n = eval_dims(c, t->list, w->d, t->name);

		if (n < 0)
			return false;
		w->known = true;
		w->n = (uint8_t)n;
	} else if (s && s->val.kind == V_TENSOR) {
		w->known = true;
		w->n = s->val.v->nd;
		memcpy(w->d, s->val.v->d, sizeof w->d);
	}
	return true;
}

static bool is_new_dims(struct ctx *c, const struct node *t, const struct sym *s, const struct want *w)
{
	struct value left = { .nd = w->n };

	if (!s || s->val.kind != V_TENSOR || !t->dims)
		return true;
	memcpy(left.d, w->d, sizeof left.d);
	if (same_dims(&left, s->val.v))
		return true;
	fail(c, t->at, "'%s' was %s at %s", t->name, dims_text(c, s->val.v), line_of(c, s->at, t->at));
	hint(c, "a name keeps its dims; take a new one");
	return false;
}

static void assign_one(struct ctx *c, const struct node *n, const struct node *t, struct sym *s)
{
	struct setting *set = c->scope == c->file && !t->dims ? find_setting(c, t->name) : NULL;
	struct want w = { .known = false };
	struct val v = { .kind = V_BAD };

	if (wanted(c, t, s, &w) && is_new_dims(c, t, s, &w)) {
		c->declared = w.known;
		v = eval(c, n->a, &w);
		if (set && is_number(&v)) {
			v = eval(c, set->value, NULL);
			set->used = true;
		}
		if (t->dims && v.kind != V_BAD && !check_dims(c, t, n->a, &w, &v))
			v = call_bad();
	}
	bind_name(c, t, s, v, n->a);
}

static void assign_many(struct ctx *c, const struct node *n, struct val *vals, int got)
{
	int i = 0;

	for (const struct node *t = n->list; t; t = t->next, i++) {
		struct sym *s = find(c, t->name);
		struct want w = { .known = false };
		struct val v = got < 0 ? call_bad() : vals[i];

		if (!s ? !may_declare(c, t->name, t->name_at) : !assignable(c, s, t))
			continue;
		if (!wanted(c, t, s, &w) || !is_new_dims(c, t, s, &w) ||
		    (t->dims && v.kind != V_BAD && !check_dims(c, t, n->a, &w, &v)))
			v = call_bad();
		bind_name(c, t, s, v, n->a);
	}
}

void lower_assign(struct ctx *c, const struct node *n)
{
	const struct node *t = n->list;
	struct val vals[MAX_DIMS];
	int want = 0, got;

	c->left = t->name;
	c->statement = path_of(c, t->name);
	c->declared = false;
	if (!t->next) {
		struct sym *s = find(c, t->name);

		if (!s ? may_declare(c, t->name, t->name_at) : assignable(c, s, t))
			assign_one(c, n, t, s);
		return;
	}
	for (const struct node *p = t; p; p = p->next)
		want++;
	got = n->a->kind == N_CALL ? eval_call_many(c, n->a, vals, MAX_DIMS) : -1;
	if (n->a->kind != N_CALL)
		fail(c, n->a->at, "a list of names takes a call that returns as many values");
	if (got >= 0 && got != want) {
		fail(c, n->a->at, "%s returns %d value%s for %d names", n->a->name, got,
		     got == 1 ? "" : "s", want);
		got = -1;
	}
	assign_many(c, n, vals, got);
}
